// cuRAND's host interface: numbers are where they should be, a seed makes them again, an offset goes on in them, and streams
// and types do not disturb that.
// nvcc: -lcurand
#include <curand.h>
#include <math.h>
#include <vector>
#include "check.h"

#define CHECK_RAND(call)                                                                                               \
    do {                                                                                                               \
        curandStatus_t status_ = (call);                                                                               \
        if (status_ != CURAND_STATUS_SUCCESS) {                                                                        \
            printf("%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, (int)status_);                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { N = 20000 };

template <typename T> static std::vector<T> from_device(const T *device, size_t count)
{
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

template <typename T> static void expect_spread(const std::vector<T> &seen, double mean, double deviation, const char *what)
{
    double sum = 0, squares = 0;
    for (T one : seen) {
        sum += one;
        squares += (double)one * one;
    }
    double is = sum / seen.size(), spread = sqrt(squares / seen.size() - is * is);
    if (!(fabs(is - mean) < 0.05 * deviation) || !(fabs(spread - deviation) < 0.05 * deviation)) {
        printf("%s: mean %g and deviation %g, expected %g and %g\n", what, is, spread, mean, deviation);
        exit(1);
    }
}

static void test_type(curandRngType_t type)
{
    curandGenerator_t generator;
    float *numbers;
    double *doubles;
    unsigned *integers;
    CHECK(cudaMalloc(&numbers, N * sizeof *numbers));
    CHECK(cudaMalloc(&doubles, N * sizeof *doubles));
    CHECK(cudaMalloc(&integers, N * sizeof *integers));
    CHECK_RAND(curandCreateGenerator(&generator, type));
    CHECK_RAND(curandSetPseudoRandomGeneratorSeed(generator, 1234));
    CHECK_RAND(curandGenerateUniform(generator, numbers, N));
    std::vector<float> first = from_device(numbers, N);
    expect_spread(first, 0.5, sqrt(1 / 12.0), "uniform");
    CHECK_RAND(curandGenerateUniform(generator, numbers, N));
    EXPECT(from_device(numbers, N) != first);
    // The same seed does not go back by itself.
    CHECK_RAND(curandSetPseudoRandomGeneratorSeed(generator, 1234));
    CHECK_RAND(curandSetGeneratorOffset(generator, 0));
    CHECK_RAND(curandGenerateUniform(generator, numbers, N));
    EXPECT(from_device(numbers, N) == first);

    CHECK_RAND(curandGenerateNormal(generator, numbers, N, 3, 2));
    expect_spread(from_device(numbers, N), 3, 2, "normal");
    CHECK_RAND(curandGenerateUniformDouble(generator, doubles, N));
    expect_spread(from_device(doubles, N), 0.5, sqrt(1 / 12.0), "uniform double");
    CHECK_RAND(curandGenerateNormalDouble(generator, doubles, N, -1, 0.5));
    expect_spread(from_device(doubles, N), -1, 0.5, "normal double");
    CHECK_RAND(curandGeneratePoisson(generator, integers, N, 25));
    expect_spread(from_device(integers, N), 25, 5, "poisson");
    CHECK_RAND(curandGenerate(generator, integers, N));
    expect_spread(from_device(integers, N), 2147483648.0, 4294967296.0 * sqrt(1 / 12.0), "integers");
    CHECK_RAND(curandDestroyGenerator(generator));
    CHECK(cudaFree(numbers));
    CHECK(cudaFree(doubles));
    CHECK(cudaFree(integers));
}

// What is drawn in a stream is there when the stream is done, and no earlier call's seed is a later one's.
static void test_streams()
{
    curandGenerator_t generators[2];
    float *numbers[2];
    cudaStream_t streams[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cudaStreamCreate(&streams[i]));
        CHECK(cudaMalloc(&numbers[i], N * sizeof *numbers[i]));
        CHECK_RAND(curandCreateGenerator(&generators[i], CURAND_RNG_PSEUDO_PHILOX4_32_10));
        CHECK_RAND(curandSetStream(generators[i], streams[i]));
    }
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 2; i++) {
            CHECK_RAND(curandSetPseudoRandomGeneratorSeed(generators[i], 10 + turn));
            CHECK_RAND(curandGenerateUniform(generators[i], numbers[i], N));
        }
        for (int i = 0; i < 2; i++)
            CHECK(cudaStreamSynchronize(streams[i]));
        EXPECT(from_device(numbers[0], N) == from_device(numbers[1], N));
    }
    for (int i = 0; i < 2; i++) {
        CHECK_RAND(curandDestroyGenerator(generators[i]));
        CHECK(cudaStreamDestroy(streams[i]));
        CHECK(cudaFree(numbers[i]));
    }
}

static void test_errors()
{
    curandGenerator_t generator;
    int major = 0, version = 0;
    EXPECT(curandCreateGenerator(&generator, (curandRngType_t)999) != CURAND_STATUS_SUCCESS);
    CHECK_RAND(curandGetProperty(MAJOR_VERSION, &major));
    CHECK_RAND(curandGetVersion(&version));
    EXPECT(version / 1000 == major);
    if (getenv("FLYT_TEST_FORWARDED"))
        EXPECT(curandCreateGeneratorHost(&generator, CURAND_RNG_PSEUDO_DEFAULT) == CURAND_STATUS_TYPE_ERROR);
}

int main()
{
    test_type(CURAND_RNG_PSEUDO_DEFAULT);
    test_type(CURAND_RNG_PSEUDO_PHILOX4_32_10);
    test_streams();
    test_errors();
    CHECK(cudaDeviceSynchronize());
    return 0;
}
