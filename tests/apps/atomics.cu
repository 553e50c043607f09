// Atomic operations of every type, in global and in shared memory, with block and system scope too: what many threads
// add up, the extremes they leave, and that each value handed out by an exchange or a count is handed out once.
#include "check.h"

enum { BLOCKS = 6, THREADS = 128, TOTAL = BLOCKS * THREADS };

struct cells {
    int add, sub, min, max, bits_and, bits_or, bits_xor, block_add;
    unsigned inc, dec, umin, umax;
    unsigned long long add64, min64, max64, or64, cas64;
    float add_float;
    unsigned cas_float_sum; /* a float, summed by compare and swap */
    double add_double;
    long long smax64;
    unsigned exchange;
    unsigned short cas16[2];
};

/* All the updates of one thread with rank r. */
__device__ void update(struct cells *c, int r)
{
    unsigned seen, expected;
    unsigned short old16, seen16;

    atomicAdd(&c->add, r);
    atomicSub(&c->sub, 2 * r);
    atomicMin(&c->min, 500 - r);
    atomicMax(&c->max, r - 1000);
    atomicAnd(&c->bits_and, ~(1 << r % 32 & 0xff00));
    atomicOr(&c->bits_or, 1 << r % 20);
    atomicXor(&c->bits_xor, r);
    atomicAdd_block(&c->block_add, 1);
    atomicInc(&c->inc, 99);
    atomicDec(&c->dec, 49);
    atomicMin(&c->umin, 4000000000u - r);
    atomicMax(&c->umax, 3000000000u + r);
    atomicAdd(&c->add64, 10000000000ull + r);
    atomicMin(&c->min64, 1ull << 40 | (unsigned)r);
    atomicMax(&c->max64, 1ull << 41 | (unsigned)r);
    atomicMax(&c->smax64, (long long)r - 5000000000ll);
    atomicOr(&c->or64, 1ull << r % 64);
    atomicAdd(&c->add_float, 0.5f);
    atomicAdd(&c->add_double, 0.25 * r);
    atomicAdd_system(&c->exchange, 1u);
    seen = c->cas_float_sum;
    do {
        expected = seen;
        seen = atomicCAS(&c->cas_float_sum, expected, __float_as_uint(__uint_as_float(expected) + 2.0f));
    } while (seen != expected);
    seen16 = c->cas16[1];
    do {
        old16 = seen16;
        seen16 = atomicCAS(&c->cas16[1], old16, (unsigned short)(old16 + 3));
    } while (seen16 != old16);
    unsigned long long old64 = c->cas64, seen64;
    while ((seen64 = atomicCAS(&c->cas64, old64, old64 + (1ull << 33))) != old64)
        old64 = seen64;
}

__device__ void reset(struct cells *c)
{
    memset(c, 0, sizeof(*c));
    c->min = 1 << 30;
    c->max = -(1 << 30);
    c->bits_and = -1;
    c->umin = 4294967295u;
    c->min64 = ~0ull;
    c->smax64 = -9000000000ll;
}

__global__ void start(struct cells *c)
{
    reset(c);
}

__global__ void in_global(struct cells *c)
{
    update(c, blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void in_shared(struct cells *out)
{
    __shared__ struct cells c;

    if (threadIdx.x == 0)
        reset(&c);
    __syncthreads();
    for (int r = threadIdx.x; r < TOTAL; r += blockDim.x)
        update(&c, r);
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = c;
}

/* Each thread draws a number and passes a token on: all numbers and all tokens are there, each once. */
__global__ void draw(unsigned *next, unsigned *token, unsigned *drawn, unsigned *passed)
{
    drawn[atomicAdd(next, 1)] = 1;
    passed[atomicExch(token, blockIdx.x * blockDim.x + threadIdx.x)] += 1;
}

static void check_cells(const struct cells *c, int block_scope_is_meant)
{
    const long long sum = (long long)TOTAL * (TOTAL - 1) / 2;
    int all_xor = 0;

    for (int r = 0; r < TOTAL; r++)
        all_xor ^= r;
    EXPECT_EQ(c->add, sum);
    EXPECT_EQ(c->sub, -2 * sum);
    EXPECT_EQ(c->min, 500 - (TOTAL - 1));
    EXPECT_EQ(c->max, TOTAL - 1 - 1000);
    EXPECT_EQ(c->bits_and, ~0xff00);
    EXPECT_EQ(c->bits_or, 0xfffff);
    EXPECT_EQ(c->bits_xor, all_xor);
    if (block_scope_is_meant)
        EXPECT_EQ(c->block_add, TOTAL);
    EXPECT_EQ(c->inc, TOTAL % 100);
    EXPECT_EQ(c->dec, (50 - TOTAL % 50) % 50);
    EXPECT_EQ(c->umin, 4000000000u - (TOTAL - 1));
    EXPECT_EQ(c->umax, 3000000000u + TOTAL - 1);
    EXPECT_EQ(c->add64, 10000000000ll * TOTAL + sum);
    EXPECT_EQ(c->min64, 1ll << 40);
    EXPECT_EQ(c->max64, (1ll << 41 | (TOTAL - 1)));
    EXPECT_EQ(c->smax64, TOTAL - 1 - 5000000000ll);
    EXPECT_EQ(c->or64, -1);
    EXPECT(c->add_float == 0.5f * TOTAL, "%f", c->add_float);
    EXPECT(c->add_double == 0.25 * (double)sum, "%f", c->add_double);
    EXPECT_EQ(c->exchange, TOTAL);
    float cas_sum;
    memcpy(&cas_sum, &c->cas_float_sum, sizeof(cas_sum));
    EXPECT(cas_sum == 2.0f * TOTAL, "%f", cas_sum);
    EXPECT_EQ(c->cas16[1], TOTAL * 3 % 65536);
    EXPECT_EQ(c->cas16[0], 0);
    EXPECT_EQ(c->cas64, (1ll << 33) * TOTAL);
}

static void check_draw(void)
{
    static unsigned back[2][TOTAL + 1];
    unsigned *counters, *drawn, *passed, start_token[2] = {0, TOTAL}, last;

    CHECK(cudaMalloc(&counters, sizeof(start_token)));
    CHECK(cudaMalloc(&drawn, sizeof(back[0])));
    CHECK(cudaMalloc(&passed, sizeof(back[1])));
    CHECK(cudaMemcpy(counters, start_token, sizeof(start_token), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(drawn, 0, sizeof(back[0])));
    CHECK(cudaMemset(passed, 0, sizeof(back[1])));
    draw<<<BLOCKS, THREADS>>>(counters, counters + 1, drawn, passed);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back[0], drawn, sizeof(back[0]), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(back[1], passed, sizeof(back[1]), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&last, counters + 1, sizeof(last), cudaMemcpyDeviceToHost));
    back[1][last]++;
    for (int i = 0; i < TOTAL; i++)
        EXPECT(back[0][i] == 1 && back[1][i] == 1, "%d: drawn %u, passed %u", i, back[0][i], back[1][i]);
    EXPECT_EQ(back[1][TOTAL], 1);
}

int main(void)
{
    struct cells *device, back[2];

    CHECK(cudaMalloc(&device, sizeof(back)));
    start<<<1, 1>>>(device);
    in_global<<<BLOCKS, THREADS>>>(device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device, sizeof(back[0]), cudaMemcpyDeviceToHost));
    check_cells(&back[0], 0);
    in_shared<<<2, THREADS>>>(device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device, sizeof(back), cudaMemcpyDeviceToHost));
    check_cells(&back[0], 1);
    check_cells(&back[1], 1);
    check_draw();
    CHECK(cudaFree(device));
    return 0;
}
