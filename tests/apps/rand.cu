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

// A generator on the host draws what one on the device draws: integers and uniform numbers bit by bit, others as they are rounded.
static void test_host(curandRngType_t type)
{
    curandGenerator_t host, device;
    std::vector<float> numbers(N);
    std::vector<double> doubles(N);
    std::vector<unsigned> integers(N);
    float *dnumbers;
    double *ddoubles;
    unsigned *dintegers;
    CHECK(cudaMalloc(&dnumbers, N * sizeof *dnumbers));
    CHECK(cudaMalloc(&ddoubles, N * sizeof *ddoubles));
    CHECK(cudaMalloc(&dintegers, N * sizeof *dintegers));
    CHECK_RAND(curandCreateGeneratorHost(&host, type));
    CHECK_RAND(curandCreateGenerator(&device, type));
    for (curandGenerator_t one : {host, device})
        CHECK_RAND(type < CURAND_RNG_QUASI_DEFAULT ? curandSetPseudoRandomGeneratorSeed(one, 99)
                                                   : curandSetQuasiRandomGeneratorDimensions(one, 4));
    for (size_t count : {(size_t)N, (size_t)1000}) { // the second goes on where the first ended
        CHECK_RAND(curandGenerate(host, integers.data(), count));
        CHECK_RAND(curandGenerate(device, dintegers, count));
        EXPECT(!memcmp(integers.data(), from_device(dintegers, count).data(), count * sizeof(unsigned)));
        CHECK_RAND(curandGenerateUniform(host, numbers.data(), count));
        CHECK_RAND(curandGenerateUniform(device, dnumbers, count));
        EXPECT(!memcmp(numbers.data(), from_device(dnumbers, count).data(), count * sizeof(float)));
        CHECK_RAND(curandGenerateUniformDouble(host, doubles.data(), count));
        CHECK_RAND(curandGenerateUniformDouble(device, ddoubles, count));
        EXPECT(!memcmp(doubles.data(), from_device(ddoubles, count).data(), count * sizeof(double)));
        CHECK_RAND(curandGenerateNormalDouble(host, doubles.data(), count, 5, 2));
        CHECK_RAND(curandGenerateNormalDouble(device, ddoubles, count, 5, 2));
        std::vector<double> seen = from_device(ddoubles, count);
        for (size_t i = 0; i < count; i++)
            EXPECT(fabs(doubles[i] - seen[i]) < 1e-6);
    }
    CHECK_RAND(curandGenerateLogNormal(host, numbers.data(), N, 0, 0.25));
    expect_spread(numbers, exp(0.03125), exp(0.03125) * sqrt(exp(0.0625) - 1), "log-normal on the host");
    CHECK_RAND(curandDestroyGenerator(host));
    CHECK_RAND(curandDestroyGenerator(device));
    CHECK(cudaFree(dnumbers));
    CHECK(cudaFree(ddoubles));
    CHECK(cudaFree(dintegers));
}

// What only a generator on the host does, and memory that is not written.
static void test_host_alone()
{
    curandGenerator_t generator;
    std::vector<float> numbers(9, -7), again(9, -7);
    CHECK_RAND(curandCreateGeneratorHost(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
    CHECK_RAND(curandSetPseudoRandomGeneratorSeed(generator, 5));
    CHECK_RAND(curandGenerateUniform(generator, numbers.data(), 8));
    EXPECT(numbers[7] != -7 && numbers[8] == -7);
    CHECK_RAND(curandGenerateUniform(generator, NULL, 0));
    CHECK_RAND(curandSetPseudoRandomGeneratorSeed(generator, 5));
    CHECK_RAND(curandSetGeneratorOffset(generator, 0)); // the seed alone does not take it back
    CHECK_RAND(curandGenerateUniform(generator, again.data(), 8));
    EXPECT(again == numbers);
    CHECK_RAND(curandGenerateNormal(generator, numbers.data(), 7, 100, 1)); // an odd number of them
    for (int i = 0; i < 7; i++)
        EXPECT(fabs(numbers[i] - 100) < 10);
    EXPECT(numbers[8] == -7);
    CHECK_RAND(curandDestroyGenerator(generator));
    CHECK(cudaGetLastError());
}

// Number j of a dimension has its lowest bit j places below the highest: in all of them.
template <typename T> static void expect_directions(const T *vectors, int bits)
{
    for (int d = 0; d < 20000; d++)
        for (int j = 0; j < bits; j++) {
            T one = vectors[d * bits + j], bit = (T)1 << (bits - 1 - j);
            EXPECT((one & bit) && !(one & (bit - 1)), "dimension %d, number %d", d, j);
        }
}

// From each quasi-random number to the next one, one of its dimension's direction numbers is added.
static void test_tables()
{
    enum { COUNT = 1000, DIMENSIONS = 5 };
    curandDirectionVectors32_t *vectors = NULL, *again = NULL, *scrambled = NULL;
    curandDirectionVectors64_t *vectors_64 = NULL;
    curandGenerator_t generator;
    unsigned *numbers, *constants = NULL;
    CHECK_RAND(curandGetDirectionVectors32(&vectors, CURAND_DIRECTION_VECTORS_32_JOEKUO6));
    CHECK_RAND(curandGetDirectionVectors32(&again, CURAND_DIRECTION_VECTORS_32_JOEKUO6));
    EXPECT(vectors && vectors == again);
    expect_directions(&vectors[0][0], 32);
    CHECK_RAND(curandGetDirectionVectors64(&vectors_64, CURAND_DIRECTION_VECTORS_64_JOEKUO6));
    expect_directions(&vectors_64[0][0], 64);
    CHECK(cudaMalloc(&numbers, DIMENSIONS * COUNT * sizeof *numbers));
    CHECK_RAND(curandCreateGenerator(&generator, CURAND_RNG_QUASI_SOBOL32));
    CHECK_RAND(curandSetQuasiRandomGeneratorDimensions(generator, DIMENSIONS));
    CHECK_RAND(curandGenerate(generator, numbers, DIMENSIONS * COUNT));
    std::vector<unsigned> seen = from_device(numbers, DIMENSIONS * COUNT);
    for (int d = 0; d < DIMENSIONS; d++)
        for (int i = 1; i < COUNT; i++) {
            unsigned step = seen[d * COUNT + i] ^ seen[d * COUNT + i - 1];
            int is_one = 0;
            for (int j = 0; j < 32; j++)
                is_one |= step == vectors[d][j];
            EXPECT(is_one, "dimension %d, number %d", d, i);
        }
    // The software GPU scrambles nothing.
    curandStatus_t status = curandGetDirectionVectors32(&scrambled, CURAND_SCRAMBLED_DIRECTION_VECTORS_32_JOEKUO6);
    EXPECT(status == CURAND_STATUS_TYPE_ERROR || (status == CURAND_STATUS_SUCCESS && scrambled[0][0] && scrambled != vectors));
    status = curandGetScrambleConstants32(&constants);
    EXPECT(status == CURAND_STATUS_TYPE_ERROR || (status == CURAND_STATUS_SUCCESS && constants[0] != constants[19999]));
    EXPECT(curandGetDirectionVectors32(&again, CURAND_DIRECTION_VECTORS_64_JOEKUO6) != CURAND_STATUS_SUCCESS);
    CHECK_RAND(curandDestroyGenerator(generator));
    CHECK(cudaFree(numbers));
}

static void test_errors()
{
    curandGenerator_t generator;
    int major = 0, version = 0;
    EXPECT(curandCreateGenerator(&generator, (curandRngType_t)999) != CURAND_STATUS_SUCCESS);
    CHECK_RAND(curandGetProperty(MAJOR_VERSION, &major));
    CHECK_RAND(curandGetVersion(&version));
    EXPECT(version / 1000 == major);
    EXPECT(curandCreateGeneratorHost(&generator, (curandRngType_t)999) != CURAND_STATUS_SUCCESS);
}

// A captured draw takes what the next draw would take; the first draw has made the states, which no capture does. Where draws
// are not captured, the capture ends, and the generator goes on.
static void test_capture(curandRngType_t type)
{
    curandGenerator_t generator;
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec;
    unsigned *numbers;
    std::vector<unsigned> wanted[3];
    enum { FEW = 1000 };
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&numbers, FEW * sizeof *numbers));
    for (int is_captured = 0; is_captured < 2; is_captured++) {
        CHECK_RAND(curandCreateGenerator(&generator, type));
        CHECK_RAND(curandSetStream(generator, stream));
        int next = 0;
        if (is_captured) {
            CHECK_RAND(curandGenerate(generator, numbers, FEW));
            CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            curandStatus_t status = curandGenerate(generator, numbers, FEW);
            cudaError_t ended = cudaStreamEndCapture(stream, &graph);
            EXPECT_EQ(status, is_forwarded() ? CURAND_STATUS_TYPE_ERROR : CURAND_STATUS_SUCCESS);
            EXPECT_EQ(ended, status == CURAND_STATUS_SUCCESS ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
            (void)cudaGetLastError();
            next = 1;
        }
        if (graph) {
            CHECK(cudaGraphInstantiate(&exec, graph, 0));
            CHECK(cudaGraphLaunch(exec, stream));
            CHECK(cudaStreamSynchronize(stream));
            EXPECT(from_device(numbers, FEW) == wanted[next++], "type %d", (int)type);
            CHECK(cudaGraphExecDestroy(exec));
            CHECK(cudaGraphDestroy(graph));
        }
        for (; next < 3; next++) {
            CHECK_RAND(curandGenerate(generator, numbers, FEW));
            CHECK(cudaStreamSynchronize(stream));
            std::vector<unsigned> seen = from_device(numbers, FEW);
            if (is_captured)
                EXPECT(seen == wanted[next], "type %d", (int)type);
            wanted[next] = seen;
        }
        CHECK_RAND(curandDestroyGenerator(generator));
    }
    CHECK(cudaFree(numbers));
    CHECK(cudaStreamDestroy(stream));
}

int main()
{
    test_type(CURAND_RNG_PSEUDO_DEFAULT);
    test_type(CURAND_RNG_PSEUDO_PHILOX4_32_10);
    test_streams();
    test_host(CURAND_RNG_PSEUDO_DEFAULT);
    test_host(CURAND_RNG_PSEUDO_PHILOX4_32_10);
    test_host(CURAND_RNG_QUASI_SOBOL32);
    test_host_alone();
    test_tables();
    for (curandRngType_t type : {CURAND_RNG_PSEUDO_XORWOW, CURAND_RNG_PSEUDO_PHILOX4_32_10, CURAND_RNG_QUASI_SOBOL32})
        test_capture(type);
    test_errors();
    CHECK(cudaDeviceSynchronize());
    return 0;
}
