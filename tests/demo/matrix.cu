/* A tiled matrix product in shared memory, every element compared with the CPU's product in double precision. */
#include "demo.h"
#include <cmath>
#include <vector>

const int TILE = 16;

__global__ void multiply(const float *a, const float *b, float *c, int n)
{
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int base = 0; base < n; base += TILE) {
        a_tile[threadIdx.y][threadIdx.x] = a[row * n + base + threadIdx.x];
        b_tile[threadIdx.y][threadIdx.x] = b[(base + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            sum += a_tile[threadIdx.y][k] * b_tile[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

int main()
{
    const int n = 256;
    const size_t bytes = n * n * sizeof(float);
    print_device();
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; i++) {
        a[i] = (float)((i * 37) % 101) / 101 - 0.5f;
        b[i] = (float)((i * 53) % 97) / 97 - 0.5f;
    }
    float *a_device, *b_device, *c_device;
    CHECK(cudaMalloc(&a_device, bytes));
    CHECK(cudaMalloc(&b_device, bytes));
    CHECK(cudaMalloc(&c_device, bytes));
    CHECK(cudaMemcpy(a_device, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b_device, b.data(), bytes, cudaMemcpyHostToDevice));
    multiply<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(a_device, b_device, c_device, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(c.data(), c_device, bytes, cudaMemcpyDeviceToHost));
    double worst = 0;
    for (int row = 0; row < n; row++)
        for (int column = 0; column < n; column++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += (double)a[row * n + k] * b[k * n + column];
            worst = fmax(worst, fabs(sum - c[row * n + column]));
        }
    printf("    %d x %d times %d x %d; largest difference from the CPU's %.1e: %s\n", n, n, n, n, worst,
           worst < 1e-4 ? "correct" : "WRONG");
    return worst < 1e-4 ? 0 : 1;
}
