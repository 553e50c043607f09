// Products of matrices the way that libraries write them: tiles come by cp.async into two buffers of shared memory,
// ldmatrix takes them into registers and mma.sync multiplies. Halves, bfloat16, bytes and doubles, in whole numbers.
// nvcc: -std=c++17 -gencode arch=compute_80,code=[compute_80,sm_80] -gencode arch=compute_90,code=sm_90
#include "tensor.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { EDGE = 64, STEP_BYTES = 32, WARPS = 4 }; /* the matrices; what a step takes of a row; each warp has 16 rows */

__device__ static unsigned shared_address(const void *pointer)
{
    return (unsigned)__cvta_generic_to_shared(pointer);
}

__device__ static void copy_async(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

__device__ static void load_four(unsigned (&d)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(shared_address(row)));
}

__device__ static void load_two(unsigned (&d)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(shared_address(row)));
}

#define MULTIPLY(T, Sum, letter, instruction)                                                                          \
    __device__ static void multiply(Sum(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2], T)                       \
    {                                                                                                                  \
        asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                    \
                     : "+" letter(d[0]), "+" letter(d[1]), "+" letter(d[2]), "+" letter(d[3])                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                              \
    }
MULTIPLY(half, float, "f", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
MULTIPLY(__nv_bfloat16, float, "f", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
MULTIPLY(signed char, int, "r", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
MULTIPLY(unsigned char, int, "r", "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32")

/* One block: d = a × b, a by rows, b by columns, of EDGE × EDGE. A step is 32 bytes of each row and column. */
template <typename T, typename Sum> __global__ void product(const T *a, const T *b, Sum *d)
{
    enum { STEP = STEP_BYTES / sizeof(T), STEPS = EDGE / STEP };
    __shared__ alignas(16) char left[2][EDGE][STEP_BYTES], right[2][EDGE][STEP_BYTES];
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16;
    Sum sums[EDGE / 8][4] = {};
    auto fetch = [&](int step) {
        int row = threadIdx.x / 2, half_row = threadIdx.x % 2 * 16;

        copy_async(&left[step % 2][row][half_row], (const char *)(a + row * EDGE + step * STEP) + half_row);
        copy_async(&right[step % 2][row][half_row], (const char *)(b + row * EDGE + step * STEP) + half_row);
        asm volatile("cp.async.commit_group;");
    };

    fetch(0);
    for (int step = 0; step < STEPS; step++) {
        unsigned fragment[4], column[2];

        if (step + 1 < STEPS) {
            fetch(step + 1);
            asm volatile("cp.async.wait_group 1;");
        } else {
            asm volatile("cp.async.wait_all;");
        }
        __syncthreads();
        load_four(fragment, &left[step % 2][first + lane % 16][lane / 16 * 16]);
        for (int n = 0; n < EDGE / 8; n++) {
            load_two(column, &right[step % 2][n * 8 + lane % 8][lane / 8 % 2 * 16]);
            multiply(sums[n], fragment, column, T());
        }
        __syncthreads();
    }
    for (int n = 0; n < EDGE / 8; n++)
        for (int i = 0; i < 4; i++)
            d[(first + lane / 4 + i / 2 * 8) * EDGE + n * 8 + lane % 4 * 2 + i % 2] = sums[n][i];
}

/* Doubles have no ldmatrix: each thread takes its own element. A warp for each tile of 8 × 8. */
__global__ void product_of_doubles(const double *a, const double *b, double *d)
{
    int row = blockIdx.y * 8 + threadIdx.x / 4, column = blockIdx.x * 8 + threadIdx.x / 4, k = threadIdx.x % 4;
    double even = 0, odd = 0;

    for (int step = 0; step < EDGE; step += 4)
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+d"(even), "+d"(odd)
                     : "d"(a[row * EDGE + step + k]), "d"(b[column * EDGE + step + k]));
    d[row * EDGE + blockIdx.x * 8 + k * 2] = even;
    d[row * EDGE + blockIdx.x * 8 + k * 2 + 1] = odd;
}

template <typename T, typename Sum> static void check(const char *what, int least, int most)
{
    static T a[EDGE * EDGE], b[EDGE * EDGE];
    static Sum back[EDGE * EDGE];
    static double want[EDGE * EDGE];
    uint32_t seed = 11;
    T *device_a, *device_b;
    Sum *device_d;

    fill_numbers(a, EDGE * EDGE, least, most, &seed);
    fill_numbers(b, EDGE * EDGE, least, most, &seed);
    multiply_on_host(want, a, b, EDGE, EDGE, EDGE);
    device_a = on_device(a, EDGE * EDGE);
    device_b = on_device(b, EDGE * EDGE);
    device_d = on_device(back, EDGE * EDGE);
    if constexpr (sizeof(T) == sizeof(double))
        product_of_doubles<<<dim3(EDGE / 8, EDGE / 8), 32>>>(device_a, device_b, device_d);
    else
        product<<<1, WARPS * 32>>>(device_a, device_b, device_d);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_d, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < EDGE * EDGE; i++)
        EXPECT((double)back[i] == want[i], "%s, row %d, column %d: %g, expected %g", what, i / EDGE, i % EDGE,
               (double)back[i], want[i]);
    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_d));
}

int main(void)
{
    want_capability_8();
    check<half, float>("half", -30, 30);
    check<__nv_bfloat16, float>("bfloat16", -30, 30);
    check<signed char, int>("signed bytes", -128, 127);
    check<unsigned char, int>("bytes", 0, 255);
    check<double, double>("double", -1000, 1000);
    return 0;
}
