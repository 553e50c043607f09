// Products of matrices with nvcuda::wmma: every shape with halves, bfloat16, tf32, bytes and doubles, one warp for each
// tile of the result, matrices in global and in shared memory. Whole numbers, so that every sum is exact.
// nvcc: -gencode arch=compute_80,code=[compute_80,sm_80] -gencode arch=compute_90,code=sm_90
#include "tensor.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

/* Tiles of M × N over a matrix of TILES × TILES of them, K steps of STEPS. */
enum { TILES = 2, STEPS = 3 };

template <typename Element> struct stored { /* what lies in memory for an element of a fragment */
    typedef Element type;
};
template <> struct stored<wmma::precision::tf32> {
    typedef float type;
};

/* d (by rows) = a (by rows) × b (by columns). a's tile goes through shared memory. */
template <int M, int N, int K, typename Element, typename Sum>
__global__ void multiply(const typename stored<Element>::type *a, const typename stored<Element>::type *b, Sum *d)
{
    typedef typename stored<Element>::type Stored;
    enum { DEPTH = K * STEPS };
    __shared__ alignas(32) Stored tile[M * K];
    wmma::fragment<wmma::matrix_a, M, N, K, Element, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, M, N, K, Element, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    int row = blockIdx.y * M, column = blockIdx.x * N;

    wmma::fill_fragment(sum, (Sum)0.0f);
    for (int k = 0; k < DEPTH; k += K) {
        for (int i = threadIdx.x; i < M * K; i += 32)
            tile[i] = a[(row + i / K) * DEPTH + k + i % K];
        __syncwarp();
        wmma::load_matrix_sync(left, tile, K);
        wmma::load_matrix_sync(right, b + column * DEPTH + k, DEPTH);
        wmma::mma_sync(sum, left, right, sum);
        __syncwarp();
    }
    for (int i = 0; i < sum.num_elements; i++)
        sum.x[i] = sum.x[i] + sum.x[i];
    wmma::store_matrix_sync(d + row * N * TILES + column, sum, N * TILES, wmma::mem_row_major);
}

template <int M, int N, int K, typename Element, typename Sum> static void check(const char *what, int least, int most)
{
    typedef typename stored<Element>::type Stored;
    enum { ROWS = M * TILES, COLUMNS = N * TILES, DEPTH = K * STEPS };
    static Stored a[ROWS * DEPTH], b[COLUMNS * DEPTH];
    static Sum back[ROWS * COLUMNS];
    static double want[ROWS * COLUMNS];
    uint32_t seed = 7;
    Stored *device_a, *device_b;
    Sum *device_d;

    fill_numbers(a, ROWS * DEPTH, least, most, &seed);
    fill_numbers(b, COLUMNS * DEPTH, least, most, &seed);
    multiply_on_host(want, a, b, ROWS, COLUMNS, DEPTH);
    device_a = on_device(a, ROWS * DEPTH);
    device_b = on_device(b, COLUMNS * DEPTH);
    device_d = on_device(back, ROWS * COLUMNS);
    multiply<M, N, K, Element, Sum><<<dim3(TILES, TILES), 32>>>(device_a, device_b, device_d);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_d, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        EXPECT((double)(float)back[i] == 2 * want[i], "%s, row %d, column %d: %g, expected %g", what, i / COLUMNS,
               i % COLUMNS, (double)(float)back[i], 2 * want[i]);
    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_d));
}

int main(void)
{
    want_capability_8();
    check<16, 16, 16, half, float>("half 16 × 16", -7, 7);
    check<32, 8, 16, half, float>("half 32 × 8", -7, 7);
    check<8, 32, 16, half, float>("half 8 × 32", -7, 7);
    check<16, 16, 16, half, half>("half into half, 16 × 16", -3, 3);
    check<32, 8, 16, half, half>("half into half, 32 × 8", -3, 3);
    check<8, 32, 16, half, half>("half into half, 8 × 32", -3, 3);
    check<16, 16, 16, __nv_bfloat16, float>("bfloat16 16 × 16", -7, 7);
    check<32, 8, 16, __nv_bfloat16, float>("bfloat16 32 × 8", -7, 7);
    check<8, 32, 16, __nv_bfloat16, float>("bfloat16 8 × 32", -7, 7);
    check<16, 16, 8, wmma::precision::tf32, float>("tf32", -500, 500);
    check<16, 16, 16, signed char, int>("signed bytes 16 × 16", -128, 127);
    check<32, 8, 16, unsigned char, int>("bytes 32 × 8", 0, 255);
    check<8, 32, 16, signed char, int>("signed bytes 8 × 32", -128, 127);
    check<8, 8, 4, double, double>("double", -500, 500);
    return 0;
}
