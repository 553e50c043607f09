/* Modules for image_state_test.c, one for each value of PART: what state they have beside their image. */
#include <cassert>
#include <cstdio>
#include <new>

#if PART == 0 /* none: what the compiler keeps of messages, assertions and mathematical functions is no state */
__constant__ float factors[4] = {1, 2, 3, 4};
__global__ void work(float *p, unsigned n)
{
    assert(n < 100);
    if (p[n] < 0)
        printf("p[%u] is %f\n", n, p[n]);
    p[n] = factors[n % 4] * sinf(p[n]) + (float)cos((double)p[n]);
}
#elif PART == 1 /* a variable without contents */
__device__ unsigned count;
__global__ void work(float *p, unsigned n)
{
    p[n] = (float)atomicAdd(&count, 1);
}
#elif PART == 2 /* one with contents, among literals */
__device__ unsigned state = 5;
__global__ void work(float *p, unsigned n)
{
    if (p[n] < 0)
        printf("%u is below 0\n", n);
    state = state * 1664525 + n;
    p[n] = (float)state;
}
#elif PART == 3 /* kernels keep a constant's address */
__constant__ float table[4];
__global__ void work(const float **p, unsigned n)
{
    p[n] = &table[n % 4];
}
#elif PART == 4 /* memory allocated by kernels */
__global__ void work(float **p, unsigned n)
{
    p[n] = (float *)malloc(n);
}
#elif PART == 5 /* objects with virtual functions point to a table in the module */
struct shape {
    virtual __device__ float area() const = 0;
};
struct square : shape {
    float side;
    __device__ float area() const override
    {
        return side * side;
    }
};
__global__ void work(square *p, shape **q, unsigned n)
{
    q[n] = new (&p[n]) square;
}
#elif PART == 6 /* a managed variable */
__managed__ unsigned shared_count;
__global__ void work(float *p, unsigned n)
{
    p[n] = (float)atomicAdd(&shared_count, 1);
}
#elif PART == 7 /* refused: kernels that launch others */
__global__ void child(float *p)
{
    p[threadIdx.x] += 1;
}
__global__ void work(float *p, unsigned n)
{
    child<<<1, n>>>(p);
}
#endif
