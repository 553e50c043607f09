// cuFFT through its own interface: plans of one, two and three dimensions, batches and layouts, of both precisions, made at once
// and in parts; each compared with a plain transform.
// nvcc: -lcufft
#include <complex>
#include <cufftXt.h>
#include <math.h>
#include <vector>
#include "check.h"

#define CHECK_FFT(call)                                                                                                \
    do {                                                                                                               \
        cufftResult status_ = (call);                                                                                  \
        if (status_ != CUFFT_SUCCESS) {                                                                                \
            printf("%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, (int)status_);                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define EXPECT_FFT(call, wanted)                                                                                       \
    do {                                                                                                               \
        cufftResult status_ = (call);                                                                                  \
        if (status_ != (wanted)) {                                                                                     \
            printf("%s:%d: %s: status %d, expected %d\n", __FILE__, __LINE__, #call, (int)status_, (int)(wanted));     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef std::complex<double> number;

static unsigned random_state = 12345;

static double random_number()
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)(random_state >> 16) / 32768.0 - 1.0;
}

template <typename T> static T *on_device(const std::vector<T> &host)
{
    T *device;
    CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

template <typename T> static std::vector<T> from_device(const T *device, size_t count)
{
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

template <typename C> static number of(C value)
{
    return number(value.x, value.y);
}

static void expect_close(number seen, number wanted, double tolerance, const char *what)
{
    if (!(abs(seen - wanted) <= tolerance * (1 + abs(wanted)))) {
        printf("%s: %.9g%+.9gi, expected %.9g%+.9gi\n", what, seen.real(), seen.imag(), wanted.real(), wanted.imag());
        exit(1);
    }
}

// Of an array of rows × columns, not scaled.
static std::vector<number> transform(const std::vector<number> &in, int rows, int columns, int direction)
{
    std::vector<number> out(in.size());
    for (int u = 0; u < rows; u++)
        for (int v = 0; v < columns; v++) {
            number sum = 0;
            for (int y = 0; y < rows; y++)
                for (int x = 0; x < columns; x++)
                    sum += in[y * columns + x] *
                           std::polar(1.0, direction * 2 * M_PI * ((double)u * y / rows + (double)v * x / columns));
            out[u * columns + v] = sum;
        }
    return out;
}

template <typename C> static std::vector<C> random_numbers(size_t count)
{
    std::vector<C> out(count);
    for (C &one : out) {
        one.x = random_number();
        one.y = random_number();
    }
    return out;
}

template <typename C> static std::vector<number> widened(const std::vector<C> &in, size_t at, size_t count)
{
    std::vector<number> out;
    for (size_t i = 0; i < count; i++)
        out.push_back(of(in[at + i]));
    return out;
}

template <typename C>
static void expect_transform(const C *device, const std::vector<C> &in, int rows, int columns, int batch, int direction,
                             double tolerance, const char *what)
{
    size_t one = (size_t)rows * columns;
    std::vector<C> seen = from_device(device, one * batch);
    for (int b = 0; b < batch; b++) {
        std::vector<number> wanted = transform(widened(in, one * b, one), rows, columns, direction);
        for (size_t i = 0; i < one; i++)
            expect_close(of(seen[one * b + i]), wanted[i], tolerance, what);
    }
}

static void test_complex()
{
    enum { N = 24, BATCH = 5 };
    std::vector<cufftComplex> in = random_numbers<cufftComplex>(N * BATCH);
    cufftComplex *from = on_device(in), *to;
    CHECK(cudaMalloc(&to, in.size() * sizeof in[0]));
    cufftHandle plan;
    CHECK_FFT(cufftPlan1d(&plan, N, CUFFT_C2C, BATCH));
    for (int i = 0; i < 3; i++) // the first one's status is awaited, the others' are not
        CHECK_FFT(cufftExecC2C(plan, from, to, CUFFT_FORWARD));
    expect_transform(to, in, 1, N, BATCH, -1, 1e-5, "C2C forward");
    CHECK_FFT(cufftExecC2C(plan, from, to, CUFFT_INVERSE));
    expect_transform(to, in, 1, N, BATCH, 1, 1e-5, "C2C inverse");
    CHECK_FFT(cufftExecC2C(plan, from, from, CUFFT_FORWARD));
    expect_transform(from, in, 1, N, BATCH, -1, 1e-5, "C2C in place");
    CHECK_FFT(cufftDestroy(plan));
    EXPECT_FFT(cufftExecC2C(plan, from, to, CUFFT_FORWARD), CUFFT_INVALID_PLAN);
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
}

static void test_two_dimensions()
{
    enum { ROWS = 6, COLUMNS = 10 };
    std::vector<cufftDoubleComplex> in = random_numbers<cufftDoubleComplex>(ROWS * COLUMNS);
    cufftDoubleComplex *from = on_device(in), *to;
    CHECK(cudaMalloc(&to, in.size() * sizeof in[0]));
    cufftHandle plan;
    CHECK_FFT(cufftPlan2d(&plan, ROWS, COLUMNS, CUFFT_Z2Z));
    CHECK_FFT(cufftExecZ2Z(plan, from, to, CUFFT_FORWARD));
    expect_transform(to, in, ROWS, COLUMNS, 1, -1, 1e-10, "Z2Z of two dimensions");
    CHECK_FFT(cufftDestroy(plan));

    // A plan of three dimensions, the first of them 1.
    CHECK_FFT(cufftPlan3d(&plan, 1, ROWS, COLUMNS, CUFFT_Z2Z));
    CHECK_FFT(cufftExecZ2Z(plan, from, to, CUFFT_INVERSE));
    expect_transform(to, in, ROWS, COLUMNS, 1, 1, 1e-10, "Z2Z of three dimensions");
    CHECK_FFT(cufftDestroy(plan));
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
}

// In a stream of its own: there, back, and to N times what was there.
static void test_real()
{
    enum { N = 20, BATCH = 3, HALF = N / 2 + 1 };
    std::vector<float> in(N * BATCH);
    for (float &one : in)
        one = random_number();
    float *from = on_device(in), *back;
    cufftComplex *to;
    CHECK(cudaMalloc(&to, HALF * BATCH * sizeof *to));
    CHECK(cudaMalloc(&back, in.size() * sizeof in[0]));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cufftHandle forward, inverse;
    int n[1] = {N};
    CHECK_FFT(cufftPlanMany(&forward, 1, n, NULL, 1, 0, NULL, 1, 0, CUFFT_R2C, BATCH));
    CHECK_FFT(cufftPlanMany(&inverse, 1, n, NULL, 1, 0, NULL, 1, 0, CUFFT_C2R, BATCH));
    CHECK_FFT(cufftSetStream(forward, stream));
    CHECK_FFT(cufftSetStream(inverse, stream));
    CHECK_FFT(cufftExecR2C(forward, from, to));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<cufftComplex> seen = from_device(to, HALF * BATCH);
    for (int b = 0; b < BATCH; b++) {
        std::vector<number> wanted = transform(std::vector<number>(&in[b * N], &in[b * N] + N), 1, N, -1);
        for (int i = 0; i < HALF; i++)
            expect_close(of(seen[b * HALF + i]), wanted[i], 1e-5, "R2C");
    }
    CHECK_FFT(cufftExecC2R(inverse, to, back));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> again = from_device(back, in.size());
    for (size_t i = 0; i < in.size(); i++)
        expect_close(again[i] / N, in[i], 1e-5, "C2R");
    CHECK_FFT(cufftDestroy(forward));
    CHECK_FFT(cufftDestroy(inverse));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    CHECK(cudaFree(back));
}

// A plan made in parts, with a work area of the program's; every second number is one of the transform's.
static void test_parts()
{
    enum { N = 16, BATCH = 2, STRIDE = 2 };
    std::vector<cufftComplex> spread = random_numbers<cufftComplex>(N * BATCH * STRIDE), in;
    for (int i = 0; i < N * BATCH; i++)
        in.push_back(spread[i * STRIDE]);
    cufftComplex *from = on_device(spread), *to;
    CHECK(cudaMalloc(&to, N * BATCH * sizeof *to));
    cufftHandle plan;
    size_t bytes = 0, told = 0, estimated = 0;
    long long n[1] = {N}, embed[1] = {N * STRIDE}, dense[1] = {N};
    CHECK_FFT(cufftCreate(&plan));
    CHECK_FFT(cufftSetAutoAllocation(plan, 0));
    CHECK_FFT(cufftMakePlanMany64(plan, 1, n, embed, STRIDE, N * STRIDE, dense, 1, N, CUFFT_C2C, BATCH, &bytes));
    CHECK_FFT(cufftGetSize(plan, &told));
    CHECK_FFT(cufftEstimate1d(N, CUFFT_C2C, BATCH, &estimated));
    CHECK_FFT(cufftEstimate1d(N, CUFFT_C2C, BATCH, &estimated));
    if (told != bytes) {
        printf("cufftGetSize told %zu bytes, cufftMakePlanMany64 %zu\n", told, bytes);
        exit(1);
    }
    void *area;
    CHECK(cudaMalloc(&area, bytes + 256));
    CHECK_FFT(cufftSetWorkArea(plan, area));
    CHECK_FFT(cufftExecC2C(plan, from, to, CUFFT_FORWARD));
    expect_transform(to, in, 1, N, BATCH, -1, 1e-5, "C2C of a plan made in parts");
    CHECK_FFT(cufftDestroy(plan));

    CHECK_FFT(cufftCreate(&plan));
    CHECK_FFT(cufftXtMakePlanMany(plan, 1, n, embed, STRIDE, N * STRIDE, CUDA_C_32F, dense, 1, N, CUDA_C_32F, BATCH, &bytes,
                                  CUDA_C_32F));
    CHECK_FFT(cufftXtExec(plan, from, to, CUFFT_INVERSE));
    expect_transform(to, in, 1, N, BATCH, 1, 1e-5, "cufftXtExec");
    CHECK_FFT(cufftDestroy(plan));

    // Not made yet: the library's own word, not that of another plan which had the same numbers.
    CHECK_FFT(cufftCreate(&plan));
    if (cufftXtExec(plan, from, to, CUFFT_INVERSE) == CUFFT_SUCCESS) {
        printf("a plan that was never made is executed\n");
        exit(1);
    }
    CHECK_FFT(cufftDestroy(plan));
    CHECK(cudaFree(area));
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
}

static void test_errors()
{
    cufftHandle plan;
    int major = 0, version = 0;
    if (cufftPlan1d(&plan, -1, CUFFT_C2C, 1) == CUFFT_SUCCESS) {
        printf("a plan of -1 numbers is made\n");
        exit(1);
    }
    EXPECT_FFT(cufftDestroy(12345), CUFFT_INVALID_PLAN);
    CHECK_FFT(cufftGetProperty(MAJOR_VERSION, &major));
    CHECK_FFT(cufftGetVersion(&version));
    if (major != version / 1000) {
        printf("version %d, of major version %d\n", version, major);
        exit(1);
    }
}

int main()
{
    test_complex();
    test_two_dimensions();
    test_real();
    test_parts();
    test_errors();
    CHECK(cudaDeviceSynchronize());
    return 0;
}
