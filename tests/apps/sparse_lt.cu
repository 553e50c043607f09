// cuSPARSELt: matrices of several types are pruned, looked at, compressed and multiplied, with epilogues, with a search, from
// plans and without; each product is compared with a plain loop over the pruned matrix.
// nvcc: -ldl
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <vector>
#include "check.h"
#include "sparse_lt_interface.h"

enum { M = 64, N = 32, K = 128, ROUNDS = 3 };

static sparse_lt_room handle;
static cudaStream_t stream;

template <typename T> struct kind;
template <> struct kind<__half> {
    static const int type = CUDA_R_16F, compute = SPARSE_LT_COMPUTE_32F, kept = 2, group = 4;
};
template <> struct kind<__nv_bfloat16> {
    static const int type = CUDA_R_16BF, compute = SPARSE_LT_COMPUTE_32F, kept = 2, group = 4;
};
template <> struct kind<float> {
    static const int type = CUDA_R_32F, compute = SPARSE_LT_COMPUTE_32F, kept = 1, group = 2;
};
template <> struct kind<int8_t> {
    static const int type = CUDA_R_8I, compute = SPARSE_LT_COMPUTE_32I, kept = 2, group = 4;
};
template <> struct kind<int32_t> {
    static const int type = CUDA_R_32I;
};

/* Small whole numbers: products and sums of them are the same in all types, in whatever order they are made. */
template <typename T> static std::vector<T> numbers(size_t count, unsigned seed, int most)
{
    std::vector<T> out(count);
    for (T &one : out) {
        seed = seed * 1664525u + 1013904223u;
        one = (T)(float)((int)(seed >> 16) % (2 * most + 1) - most);
    }
    return out;
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
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

/* A product D = activation(alpha A B^T + beta C + bias): A is structured, M rows of K, row by row; B is N rows of K. */
template <typename T, typename R> struct product {
    std::vector<T> a, b;
    std::vector<R> c;
    std::vector<float> bias;
    T *device_a, *device_b;
    R *device_c, *device_d;
    void *device_bias, *compressed, *buffer, *workspace;
    sparse_lt_room mat_a, mat_b, mat_c, desc, selection, plan;
    float alpha, beta;
    bool is_relu, has_bias, has_factors;
};

template <typename T, typename R> static void put_bias(product<T, R> &p, bool is_float)
{
    std::vector<R> same(p.bias.size());
    for (size_t i = 0; i < same.size(); i++)
        same[i] = (R)p.bias[i];
    p.device_bias = is_float ? (void *)on_device(p.bias) : (void *)on_device(same);
}

template <typename T, typename R> static void set_epilogue(product<T, R> &p)
{
    const int yes = 1;
    const float bound = 300;
    if (p.is_relu) {
        CHECK_LT(cusparseLtMatmulDescSetAttribute(&handle, &p.desc, SPARSE_LT_RELU, &yes, sizeof yes));
        CHECK_LT(cusparseLtMatmulDescSetAttribute(&handle, &p.desc, SPARSE_LT_RELU_UPPER_BOUND, &bound, sizeof bound));
    }
    if (p.has_factors)
        CHECK_LT(cusparseLtMatmulDescSetAttribute(&handle, &p.desc, SPARSE_LT_ALPHA_VECTOR, &yes, sizeof yes));
    if (p.has_bias)
        CHECK_LT(cusparseLtMatmulDescSetAttribute(&handle, &p.desc, SPARSE_LT_BIAS_POINTER, &p.device_bias,
                                                  sizeof p.device_bias));
}

template <typename T, typename R> static void begin(product<T, R> &p)
{
    p.a = numbers<T>(M * K, 1, 4);
    p.b = numbers<T>(N * K, 2, 3);
    p.c = numbers<R>(M * N, 3, 5);
    p.bias = numbers<float>(M, 4, 6);
    p.device_a = on_device(p.a);
    p.device_b = on_device(p.b);
    p.device_c = on_device(p.c);
    CHECK(cudaMalloc(&p.device_d, M * N * sizeof(R)));
    put_bias(p, kind<T>::type == CUDA_R_8I);
    CHECK_LT(cusparseLtStructuredDescriptorInit(&handle, &p.mat_a, M, K, K, 16, kind<T>::type, SPARSE_LT_ORDER_ROW, 0));
    CHECK_LT(cusparseLtDenseDescriptorInit(&handle, &p.mat_b, N, K, K, 16, kind<T>::type, SPARSE_LT_ORDER_ROW));
    CHECK_LT(cusparseLtDenseDescriptorInit(&handle, &p.mat_c, M, N, N, 16, kind<R>::type, SPARSE_LT_ORDER_ROW));
    CHECK_LT(cusparseLtMatmulDescriptorInit(&handle, &p.desc, 0, 1, &p.mat_a, &p.mat_b, &p.mat_c, &p.mat_c,
                                            kind<T>::compute));
    set_epilogue(p);
    CHECK_LT(cusparseLtMatmulAlgSelectionInit(&handle, &p.selection, &p.desc, 0));
    CHECK_LT(cusparseLtMatmulPlanInit(&handle, &p.plan, &p.desc, &p.selection));
}

static int told(int *device)
{
    CHECK(cudaStreamSynchronize(stream)); /* with which copies have no order */
    return from_device(device, 1)[0];
}

template <typename T> static void expect_structured(const std::vector<T> &before, const std::vector<T> &after)
{
    for (size_t i = 0; i < after.size(); i += kind<T>::group) {
        int count = 0;
        for (int k = 0; k < kind<T>::group; k++) {
            float was = (float)before[i + k], is = (float)after[i + k];
            EXPECT(is == 0 || is == was, "%g became %g", was, is);
            count += is != 0;
        }
        EXPECT(count <= kind<T>::kept, "%d numbers are left", count);
    }
}

/* Prunes A in its place. */
template <typename T, typename R> static void prune(product<T, R> &p, int algorithm)
{
    int *valid;
    CHECK(cudaMalloc(&valid, sizeof *valid));
    CHECK(cudaMemset(valid, 0, sizeof *valid)); /* NVIDIA's check leaves what is there where nothing is wrong */
    CHECK_LT(cusparseLtSpMMAPruneCheck(&handle, &p.desc, p.device_a, valid, stream));
    EXPECT_EQ(told(valid), 1);
    CHECK_LT(cusparseLtSpMMAPrune(&handle, &p.desc, p.device_a, p.device_a, algorithm, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemset(valid, 0, sizeof *valid));
    std::vector<T> before = p.a;
    p.a = from_device(p.device_a, M * K);
    expect_structured(before, p.a);
    CHECK_LT(cusparseLtSpMMAPruneCheck(&handle, &p.desc, p.device_a, valid, stream));
    EXPECT(told(valid) == 0, "pruned, algorithm %d: %s", algorithm, __PRETTY_FUNCTION__);
    CHECK_LT(cusparseLtSpMMAPruneCheck2(&handle, &p.mat_a, 1, 0, p.device_a, valid, stream));
    EXPECT(told(valid) == 0, "pruned, algorithm %d: %s", algorithm, __PRETTY_FUNCTION__);
    CHECK(cudaFree(valid));
}

template <typename T, typename R> static void compress(product<T, R> &p)
{
    size_t bytes, buffer_bytes, bytes2, buffer_bytes2, workspace_bytes;
    CHECK_LT(cusparseLtSpMMACompressedSize(&handle, &p.plan, &bytes, &buffer_bytes));
    CHECK_LT(cusparseLtSpMMACompressedSize2(&handle, &p.mat_a, &bytes2, &buffer_bytes2));
    EXPECT_EQ(bytes, bytes2);
    EXPECT(bytes < M * K * sizeof(T), "%zu bytes", bytes);
    CHECK_LT(cusparseLtMatmulGetWorkspace(&handle, &p.plan, &workspace_bytes));
    CHECK(cudaMalloc(&p.compressed, bytes));
    CHECK(cudaMalloc(&p.buffer, buffer_bytes + 16));
    CHECK(cudaMalloc(&p.workspace, workspace_bytes + 16));
    CHECK_LT(cusparseLtSpMMACompress(&handle, &p.plan, p.device_a, p.compressed, p.buffer, stream));
}

template <typename T, typename R> static float expected(const product<T, R> &p, int row, int column)
{
    float sum = 0;
    for (int k = 0; k < K; k++)
        sum += (float)p.a[row * K + k] * (float)p.b[column * K + k];
    sum = p.alpha * sum + p.beta * (float)p.c[row * N + column] + (p.has_bias ? p.bias[row] : 0);
    return p.is_relu ? fminf(fmaxf(sum, 0), 300) : sum;
}

template <typename T, typename R> static void expect_product(const product<T, R> &p)
{
    std::vector<R> d = from_device(p.device_d, M * N);
    for (int row = 0; row < M; row++)
        for (int column = 0; column < N; column++) {
            float want = expected(p, row, column), got = (float)d[row * N + column];
            float tolerance = sizeof(R) == 2 ? fabsf(want) / 128 : 0;
            EXPECT(fabsf(got - want) <= tolerance, "%d, %d is %g, not %g", row, column, got, want);
        }
    CHECK(cudaMemsetAsync(p.device_d, 0x11, M * N * sizeof(R), stream));
}

template <typename T, typename R> static void end(product<T, R> &p)
{
    CHECK_LT(cusparseLtMatmulPlanDestroy(&p.plan));
    EXPECT_EQ(cusparseLtMatmulPlanDestroy(&p.plan), SPARSE_LT_INVALID);
    CHECK_LT(cusparseLtMatmulAlgSelectionDestroy(&p.selection));
    CHECK_LT(cusparseLtMatDescriptorDestroy(&p.mat_a));
    CHECK_LT(cusparseLtMatDescriptorDestroy(&p.mat_b));
    CHECK_LT(cusparseLtMatDescriptorDestroy(&p.mat_c));
    void *const all[] = {p.device_a, p.device_b, p.device_c, p.device_d, p.device_bias, p.compressed, p.buffer, p.workspace};
    for (void *one : all)
        CHECK(cudaFree(one));
}

template <typename T, typename R> static void multiply(int algorithm, bool is_relu, bool has_bias)
{
    product<T, R> p = {};
    p.alpha = 1;
    p.beta = -2;
    p.is_relu = is_relu;
    p.has_bias = has_bias;
    begin(p);
    prune(p, algorithm);
    compress(p);
    for (int round = 0; round < ROUNDS; round++, p.alpha += 1) {
        sparse_lt_room copy = p.plan; // as good as the plan itself
        CHECK_LT(cusparseLtMatmul(&handle, &copy, &p.alpha, p.compressed, p.device_b, &p.beta, p.device_c, p.device_d,
                                  p.workspace, &stream, 1));
        expect_product(p);
    }
    end(p);
}

/* The algorithm that a search finds is told by the selection of which the plan was made. */
static void search()
{
    product<__half, __half> p = {};
    int id = -1, count = 0, iterations = 2;
    p.alpha = 2;
    p.beta = 0;
    begin(p);
    CHECK_LT(cusparseLtMatmulAlgSetAttribute(&handle, &p.selection, SPARSE_LT_ALG_SEARCH_ITERATIONS, &iterations,
                                             sizeof iterations));
    CHECK_LT(cusparseLtMatmulAlgGetAttribute(&handle, &p.selection, SPARSE_LT_ALG_CONFIG_MAX_ID, &count, sizeof count));
    EXPECT(count >= 1);
    EXPECT_EQ(cusparseLtMatmulAlgSetAttribute(&handle, &p.selection, SPARSE_LT_ALG_CONFIG_ID, &count, sizeof count),
              SPARSE_LT_INVALID);
    prune(p, SPARSE_LT_PRUNE_STRIP);
    compress(p);
    CHECK_LT(cusparseLtMatmulSearch(&handle, &p.plan, &p.alpha, p.compressed, p.device_b, &p.beta, p.device_c, p.device_d,
                                    p.workspace, &stream, 1));
    expect_product(p);
    CHECK_LT(cusparseLtMatmulAlgGetAttribute(&handle, &p.selection, SPARSE_LT_ALG_CONFIG_ID, &id, sizeof id));
    EXPECT(id >= 0 && id < count, "%d of %d", id, count);
    size_t workspace_bytes;
    CHECK_LT(cusparseLtMatmulGetWorkspace(&handle, &p.plan, &workspace_bytes));
    CHECK(cudaFree(p.workspace));
    CHECK(cudaMalloc(&p.workspace, workspace_bytes + 16));
    CHECK_LT(cusparseLtMatmul(&handle, &p.plan, &p.alpha, p.compressed, p.device_b, &p.beta, p.device_c, p.device_d,
                              p.workspace, &stream, 1));
    expect_product(p);
    end(p);
}

/* As PyTorch does it: a matrix is pruned and compressed by its descriptor alone, and scaled by a factor for each row. */
static void without_a_plan()
{
    product<int8_t, int8_t> p = {};
    std::vector<float> factors(M, 0.0f);
    p.beta = 0;
    p.has_factors = true;
    begin(p);
    CHECK_LT(cusparseLtSpMMAPrune2(&handle, &p.mat_a, 1, 0, p.device_a, p.device_a, SPARSE_LT_PRUNE_STRIP, stream));
    p.a = from_device(p.device_a, M * K);
    size_t bytes, buffer_bytes;
    CHECK_LT(cusparseLtSpMMACompressedSize2(&handle, &p.mat_a, &bytes, &buffer_bytes));
    CHECK(cudaMalloc(&p.compressed, bytes));
    CHECK(cudaMalloc(&p.buffer, buffer_bytes + 16));
    CHECK(cudaMalloc(&p.workspace, 1 << 20));
    CHECK_LT(cusparseLtSpMMACompress2(&handle, &p.mat_a, 1, 0, p.device_a, p.compressed, p.buffer, stream));
    for (int row = 0; row < M; row++)
        factors[row] = row % 2 ? 0.25f : 0.125f;
    float *alpha = on_device(factors);
    CHECK_LT(cusparseLtMatmul(&handle, &p.plan, alpha, p.compressed, p.device_b, &p.beta, p.device_c, p.device_d,
                              p.workspace, &stream, 1));
    std::vector<int8_t> d = from_device(p.device_d, M * N);
    for (int row = 0; row < M; row++)
        for (int column = 0; column < N; column++) {
            p.alpha = factors[row];
            float want = fmaxf(-128, fminf(127, rintf(expected(p, row, column))));
            EXPECT_EQ(d[row * N + column], (int)want);
        }
    CHECK(cudaFree(alpha));
    end(p);
}

/* What the library says to mistakes. */
static void mistakes()
{
    sparse_lt_room none = {}, mat, desc;
    int version, major;
    int status = cusparseLtDenseDescriptorInit(&none, &mat, 64, 64, 64, 16, CUDA_R_16F, SPARSE_LT_ORDER_ROW);
    EXPECT(status == SPARSE_LT_NOT_INITIALIZED || (status == SPARSE_LT_INVALID && !is_forwarded()), "%d", status);
    EXPECT_EQ(cusparseLtDenseDescriptorInit(&handle, &mat, 64, 64, 8, 16, CUDA_R_16F, SPARSE_LT_ORDER_ROW),
              SPARSE_LT_INVALID);
    if (is_forwarded()) { /* NVIDIA's follows what descriptors that are none say */
        EXPECT_EQ(cusparseLtMatmulDescriptorInit(&handle, &desc, 0, 0, &none, &none, &none, &none, SPARSE_LT_COMPUTE_32F),
                  SPARSE_LT_INVALID);
        EXPECT_EQ(cusparseLtMatmulPlanInit(&handle, &desc, &none, &none), SPARSE_LT_INVALID);
    }
    CHECK_LT(cusparseLtGetVersion(&handle, &version));
    CHECK_LT(cusparseLtGetProperty(0, &major));
    EXPECT_EQ(version / 1000, major);
    EXPECT(!strcmp(cusparseLtGetErrorName(SPARSE_LT_NOT_SUPPORTED), "CUSPARSE_STATUS_NOT_SUPPORTED"));
}

int main()
{
    sparse_lt_open();
    CHECK(cudaStreamCreate(&stream));
    CHECK_LT(cusparseLtInit(&handle));
    multiply<__half, __half>(SPARSE_LT_PRUNE_TILE, true, true);
    multiply<__half, __half>(SPARSE_LT_PRUNE_STRIP, false, false);
    multiply<__nv_bfloat16, __nv_bfloat16>(SPARSE_LT_PRUNE_STRIP, true, false);
    multiply<float, float>(SPARSE_LT_PRUNE_TILE, false, true);
    multiply<int8_t, int32_t>(SPARSE_LT_PRUNE_STRIP, false, true);
    search();
    without_a_plan();
    mistakes();
    CHECK_LT(cusparseLtDestroy(&handle));
    int status = cusparseLtDestroy(&handle); // NVIDIA's library takes it for another thing, or for one that is not made
    EXPECT(status == SPARSE_LT_NOT_INITIALIZED || (status == SPARSE_LT_INVALID && !is_forwarded()), "%d", status);
    return 0;
}
