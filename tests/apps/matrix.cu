// Matrices: tiled transpose and tiled product in shared memory, in single and double precision and integers, with edges
// that are no multiple of the tile, against the textbook loops.
#include "check.h"
#include <math.h>

enum { TILE = 16, M = 75, N = 61, K = 50 };

template <typename T> __global__ void transpose(const T *in, T *out, int rows, int columns)
{
    __shared__ T tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;

    if (x < columns && y < rows)
        tile[threadIdx.y][threadIdx.x] = in[y * columns + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    if (x < rows && y < columns)
        out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

template <typename T> __global__ void multiply(const T *a, const T *b, T *c, int m, int n, int k)
{
    __shared__ T left[TILE][TILE], right[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    T sum = 0;

    for (int t = 0; t < k; t += TILE) {
        left[threadIdx.y][threadIdx.x] = y < m && t + threadIdx.x < k ? a[y * k + t + threadIdx.x] : 0;
        right[threadIdx.y][threadIdx.x] = x < n && t + threadIdx.y < k ? b[(t + threadIdx.y) * n + x] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (x < n && y < m)
        c[y * n + x] = sum;
}

/* tolerance: relative to the sum of the terms' magnitudes. */
template <typename T> static void check(const char *name, double tolerance)
{
    static T a[M * K], b[K * N], c[M * N], turned[K * M];
    T *da, *db, *dc, *dt;
    uint32_t seed = 11;

    for (int i = 0; i < M * K; i++)
        a[i] = (T)((int)(next_random(&seed) % 2001) - 1000) / (T)8;
    for (int i = 0; i < K * N; i++)
        b[i] = (T)((int)(next_random(&seed) % 2001) - 1000) / (T)16;
    CHECK(cudaMalloc(&da, sizeof(a)));
    CHECK(cudaMalloc(&db, sizeof(b)));
    CHECK(cudaMalloc(&dc, sizeof(c)));
    CHECK(cudaMalloc(&dt, sizeof(turned)));
    CHECK(cudaMemcpy(da, a, sizeof(a), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b, sizeof(b), cudaMemcpyHostToDevice));
    transpose<T><<<dim3((K + TILE - 1) / TILE, (M + TILE - 1) / TILE), dim3(TILE, TILE)>>>(da, dt, M, K);
    multiply<T><<<dim3((N + TILE - 1) / TILE, (M + TILE - 1) / TILE), dim3(TILE, TILE)>>>(da, db, dc, M, N, K);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(turned, dt, sizeof(turned), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(c, dc, sizeof(c), cudaMemcpyDeviceToHost));
    for (int y = 0; y < M; y++)
        for (int x = 0; x < K; x++)
            EXPECT(turned[x * M + y] == a[y * K + x], "%s transposed (%d, %d)", name, x, y);
    for (int y = 0; y < M; y++)
        for (int x = 0; x < N; x++) {
            double want = 0, magnitude = 0;

            for (int i = 0; i < K; i++) {
                want += (double)a[y * K + i] * (double)b[i * N + x];
                magnitude += fabs((double)a[y * K + i] * (double)b[i * N + x]);
            }
            EXPECT(fabs((double)c[y * N + x] - want) <= tolerance * magnitude, "%s (%d, %d): %f, expected %f", name, x,
                   y, (double)c[y * N + x], want);
        }
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    CHECK(cudaFree(dt));
}

int main(void)
{
    check<float>("float", 1e-6);
    check<double>("double", 1e-15);
    check<int>("int", 0);
    return 0;
}
