// Kernels for kernel_test.c, compiled to PTX by the build. Each writes what the test can compute by itself.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>

#define KERNEL extern "C" __global__ void

static __device__ int index_of_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

// ---- control flow ----

KERNEL collatz(int *out)
{
    int i = index_of_thread(), n = i + 1, steps = 0;

    while (n != 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        if (++steps > 1000)
            break;
    }
    out[i] = steps;
}

KERNEL choose(int *out)
{
    int i = index_of_thread(), r;

    switch (i % 9) {
    case 0: r = out[i] + 1; break;
    case 1: r = out[i] * 3; break;
    case 2: r = __popc(out[i]); break;
    case 3: r = out[i] / 7; break;
    case 4: r = out[i] ^ 0x55; break;
    case 5: r = out[i] % 11; break;
    case 6: r = -out[i]; break;
    case 7: r = out[i] << 3; break;
    default: r = 99;
    }
    out[i] = r;
}

static __device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

KERNEL recurse(int *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 13); }

struct Shape {
    __device__ virtual int sides(int scale) { return scale; }
};
struct Square : Shape {
    __device__ int sides(int scale) override { return 4 * scale; }
};
struct Triangle : Shape {
    __device__ int sides(int scale) override { return 3 * scale; }
};

KERNEL dispatch(int *out)
{
    Square square;
    Triangle triangle;
    Shape shape, *any = threadIdx.x % 3 == 0 ? &shape : threadIdx.x % 3 == 1 ? (Shape *)&square : &triangle;

    out[threadIdx.x] = any->sides(threadIdx.x);
}

typedef int operation(int, int);
static __device__ int plus(int a, int b) { return a + b; }
static __device__ int times(int a, int b) { return a * b; }
static __device__ operation *const operations[2] = { plus, times };

KERNEL indirect(int *out) { out[threadIdx.x] = operations[threadIdx.x & 1](threadIdx.x, 5); }

struct Pair {
    int values[9];
    double weight;
};
static __device__ __noinline__ Pair reverse(Pair pair, int scale)
{
    Pair result;

    for (int i = 0; i < 9; i++)
        result.values[i] = pair.values[8 - i] * scale;
    result.weight = pair.weight / 2;
    return result;
}

KERNEL structures(int *out, Pair pair, int which)
{
    Pair turned = reverse(pair, threadIdx.x);

    out[threadIdx.x] = turned.values[which] + (int)turned.weight + pair.values[which];
}

// ---- memory ----

__constant__ int table[8] = { 1, 2, 4, 8, 16, 32, 64, 128 };
__device__ int counters[4] = { 10, 20, 30, 40 };
__device__ int *pointer = &counters[2];

KERNEL variables(int *out)
{
    out[threadIdx.x] = table[threadIdx.x & 7] + counters[threadIdx.x & 3] + *pointer;
}

KERNEL local_array(int *out, int n)
{
    int values[64];
    unsigned char bytes[32];

    for (int i = 0; i < 64; i++)
        values[i] = i * threadIdx.x;
    for (int i = 0; i < 32; i++)
        bytes[i] = values[(i * n) & 63];
    out[threadIdx.x] = values[(threadIdx.x * n) & 63] + bytes[threadIdx.x & 31];
}

KERNEL shared_reverse(int *out)
{
    __shared__ int fixed[256];
    extern __shared__ int dynamic[];
    int *through = threadIdx.x & 1 ? fixed : dynamic;

    fixed[threadIdx.x] = threadIdx.x;
    dynamic[threadIdx.x] = 1000 + threadIdx.x;
    __syncthreads();
    out[index_of_thread()] = through[blockDim.x - 1 - threadIdx.x];
}

KERNEL vectors(float4 *out, const float4 *in, short *narrow)
{
    float4 v = in[threadIdx.x];

    out[threadIdx.x] = make_float4(v.w, v.z, v.y, v.x);
    narrow[threadIdx.x] = narrow[threadIdx.x] * (signed char)-3;
}

KERNEL heap(int *out)
{
    int *mine = (int *)malloc(64);

    mine[3] = threadIdx.x;
    out[threadIdx.x] = mine[3] + 1;
    free(mine);
}

KERNEL store_at(int *address) { *address = 1; }
KERNEL shared_beyond(int *out, int n)
{
    __shared__ int values[16];

    values[n] = 1;
    out[0] = values[n / 2];
}
KERNEL fail(int n) { assert(n == 3); }
KERNEL trapped(void) { __trap(); }
static __device__ __noinline__ int endless(int n, int *out)
{
    volatile int room[16];

    room[n & 15] = n;
    return endless(n + 1, out) + room[n & 7] + out[0];
}
KERNEL overflow(int *out) { out[0] = endless(threadIdx.x, out); }
KERNEL forever(volatile int *flag)
{
    while (!*flag)
        ;
}

KERNEL prints(int n)
{
    printf("%d %5d|%-5d|%05d %x %#o %u %lld %c %s %% %5.2f %e %g %*d\n", n, n, n, n, 255, 8, 4000000000u, 1ll << 40, 'z',
           "text", 3.14159, 1e10, 0.5, 6, 7);
}
KERNEL prints_narrow(int n)
{
    printf("%hd|%hu|%hhd|%02hhx|%hX|%.*f|%*d|%.*d\n", n, n, n, n, n, -1, 2.5, -6, n, 8, n);
}

// ---- atomics ----

KERNEL atomics(unsigned *u, int *s, unsigned long long *l, float *f, double *d)
{
    int i = index_of_thread();

    atomicAdd(&u[0], 1);
    atomicSub(&u[1], 2);
    atomicInc(&u[2], 9);
    atomicMax(&u[3], i);
    atomicOr(&u[4], 1u << (i & 31));
    atomicXor(&u[5], i);
    atomicAnd(&u[6], ~(1u << (i & 7)));
    atomicMin(&s[0], -i);
    atomicMax(&s[1], i - 100);
    atomicAdd(&l[0], 1ull << 33);
    atomicMax(&l[1], (unsigned long long)i << 32);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    for (unsigned seen = u[7], old; (old = atomicCAS(&u[7], seen, seen + 3)) != seen;)
        seen = old;
}

KERNEL histogram(int *out, const unsigned char *in)
{
    __shared__ int bins[16];

    if (threadIdx.x < 16)
        bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[index_of_thread()] & 15], 1);
    __syncthreads();
    if (threadIdx.x < 16)
        atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

KERNEL locked(int *lock)
{
    while (atomicCAS(lock, 0, 1))
        ;
    __threadfence();
    lock[1] = lock[1] + 1;
    __threadfence();
    atomicExch(lock, 0);
}

// ---- together ----

KERNEL shuffles(int *out)
{
    int lane = threadIdx.x & 31, *mine = out + threadIdx.x * 8;

    mine[0] = __shfl_sync(~0u, lane * 10, 5);
    mine[1] = __shfl_up_sync(~0u, lane, 3);
    mine[2] = __shfl_down_sync(~0u, lane, 4, 8);
    mine[3] = __shfl_xor_sync(~0u, lane, 16);
    mine[4] = __ballot_sync(~0u, lane % 3 == 0);
    mine[5] = __any_sync(~0u, lane == 7) + 2 * __all_sync(~0u, lane < 31);
    mine[6] = __match_any_sync(~0u, lane / 5);
    if (lane & 1)
        mine[7] = __shfl_sync(0xaaaaaaaa, lane, 9);
    else
        mine[7] = __popc(__activemask());
}

KERNEL tiles(int *out)
{
    namespace cg = cooperative_groups;
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int sum = threadIdx.x;

    if (threadIdx.x & 8) // half of the tiles take another way
        for (int k = 4; k; k /= 2)
            sum += tile.shfl_xor(sum, k);
    else
        sum = tile.shfl(sum, 2);
    tile.sync();
    out[threadIdx.x] = sum;
}

KERNEL barriers(int *out)
{
    __shared__ int slot;

    out[threadIdx.x] = __syncthreads_count(threadIdx.x % 3 == 0) * 4 + __syncthreads_and(threadIdx.x < 70) * 2 +
                       __syncthreads_or(threadIdx.x == 69);
    if (threadIdx.x >= 64)
        return; // the rest meets at barriers without them
    if (threadIdx.x == 0)
        slot = 77;
    __syncthreads();
    out[threadIdx.x] += slot;
    if (threadIdx.x < 32)
        asm volatile("bar.arrive 1, 64;");
    else
        asm volatile("bar.sync 1, 64;");
}

KERNEL grid_rounds(int *out, int rounds)
{
    auto grid = cooperative_groups::this_grid();

    for (int i = 0; i < rounds; i++) {
        if (threadIdx.x == 0)
            atomicAdd(&out[0], 1);
        grid.sync();
        if (*(volatile int *)out != (i + 1) * (int)gridDim.x)
            atomicAdd(&out[1], 1);
        grid.sync();
    }
}

KERNEL look_back(volatile int *out) // every block waits for the one before it
{
    if (threadIdx.x)
        return;
    while (blockIdx.x && !out[blockIdx.x - 1])
        ;
    __threadfence();
    out[blockIdx.x] = (blockIdx.x ? out[blockIdx.x - 1] : 0) + 1;
}

KERNEL wait_for(volatile int *flag) // waits for a block that starts later
{
    if (blockIdx.x == 0)
        while (!flag[0])
            ;
    else if (blockIdx.x == gridDim.x - 1)
        flag[0] = 1;
}

KERNEL raise_flag(volatile int *flag) { *flag = 1; }
