// Integer and bit arithmetic of 8 to 64 bits: the operators and CUDA's intrinsics, against plain C on the host.
#include "check.h"

enum { COUNT = 512, RESULTS = 30 };

__global__ void evaluate(const uint32_t *in, uint64_t *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t a = in[2 * i], b = in[2 * i + 1];
    int32_t sa = (int32_t)a, sb = (int32_t)b;
    uint64_t wa = (uint64_t)a << 32 | b, wb = (uint64_t)b << 17 ^ a;
    uint64_t *o = out + i * RESULTS;

    o[0] = a + b;
    o[1] = a * b;
    o[2] = b ? a / b : 0;
    o[3] = b ? a % b : 0;
    o[4] = (uint64_t)(int64_t)(sb && sb != -1 ? sa / sb : 0);
    o[5] = (uint64_t)(int64_t)(sb && sb != -1 ? sa % sb : 0);
    o[6] = __umulhi(a, b);
    o[7] = (uint64_t)(int64_t)__mulhi(sa, sb);
    o[8] = __umul64hi(wa, wb);
    o[9] = wb ? wa / wb : 0;
    o[10] = wb ? wa % wb : 0;
    o[11] = __popc(a) + 100 * __popcll(wa);
    o[12] = __clz(sa) + 100 * __clzll((long long)wa);
    o[13] = __ffs(sa) + 100 * __ffsll((long long)wa);
    o[14] = __brev(a);
    o[15] = __brevll(wa);
    o[16] = __byte_perm(a, b, 0x6340);
    o[17] = __funnelshift_l(a, b, 13);
    o[18] = __funnelshift_r(a, b, b);
    o[19] = (uint32_t)abs((sa >> 2) - (sb >> 2)) + 5u;
    o[20] = (uint64_t)(int64_t)(sa >> (b & 31));
    o[21] = (wa >> (a & 63)) ^ (wb << (b & 63));
    o[22] = (uint64_t)(int64_t)max(sa, sb) ^ min(a, b);
    o[23] = (uint64_t)(int64_t)(int8_t)a + (uint64_t)(uint16_t)b;
    o[24] = (uint64_t)((int64_t)(int16_t)a * (int16_t)b);
    o[25] = (a & ~b) | (b ^ 0x0f0f0f0f);
    o[26] = (uint64_t)(int64_t)__hadd(sa, sb);
    o[27] = __umul24(a, b);
    o[28] = (uint64_t)(int64_t)abs(sa >> 1);
    o[29] = a < b | (sa < sb) << 1 | (wa < wb) << 2 | (a == b) << 3 | ((uint8_t)a >= (uint8_t)b) << 4;
}

static int lowest_bit(uint64_t x)
{
    for (int i = 0; i < 64; i++)
        if (x >> i & 1)
            return i + 1;
    return 0;
}

static int leading_zeros(uint64_t x, int bits)
{
    int n = 0;

    while (n < bits && !(x >> (bits - 1 - n) & 1))
        n++;
    return n;
}

static uint64_t reversed(uint64_t x, int bits)
{
    uint64_t r = 0;

    for (int i = 0; i < bits; i++)
        r |= (x >> i & 1) << (bits - 1 - i);
    return r;
}

static int ones(uint64_t x)
{
    int n = 0;

    for (; x; x &= x - 1)
        n++;
    return n;
}

static uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t r = 0;

    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}

static void expected(uint32_t a, uint32_t b, uint64_t *o)
{
    int32_t sa = (int32_t)a, sb = (int32_t)b;
    uint64_t wa = (uint64_t)a << 32 | b, wb = (uint64_t)b << 17 ^ a, both = (uint64_t)b << 32 | a;

    o[0] = a + b;
    o[1] = a * b;
    o[2] = b ? a / b : 0;
    o[3] = b ? a % b : 0;
    o[4] = (uint64_t)(int64_t)(sb && sb != -1 ? sa / sb : 0);
    o[5] = (uint64_t)(int64_t)(sb && sb != -1 ? sa % sb : 0);
    o[6] = (uint64_t)a * b >> 32;
    o[7] = (uint64_t)(int64_t)(int32_t)((int64_t)sa * sb >> 32);
    o[8] = (uint64_t)((unsigned __int128)wa * wb >> 64);
    o[9] = wb ? wa / wb : 0;
    o[10] = wb ? wa % wb : 0;
    o[11] = (uint64_t)(ones(a) + 100 * ones(wa));
    o[12] = (uint64_t)(leading_zeros(a, 32) + 100 * leading_zeros(wa, 64));
    o[13] = (uint64_t)(lowest_bit(a) + 100 * lowest_bit(wa));
    o[14] = reversed(a, 32);
    o[15] = reversed(wa, 64);
    o[16] = permuted(a, b, 0x6340);
    o[17] = (uint32_t)(both << 13 >> 32);
    o[18] = (uint32_t)(both >> (b & 31));
    o[19] = (uint32_t)((sa >> 2) > (sb >> 2) ? (sa >> 2) - (sb >> 2) : (sb >> 2) - (sa >> 2)) + 5u;
    o[20] = (uint64_t)(int64_t)(sa >> (b & 31));
    o[21] = (wa >> (a & 63)) ^ (wb << (b & 63));
    o[22] = (uint64_t)(int64_t)(sa > sb ? sa : sb) ^ (a < b ? a : b);
    o[23] = (uint64_t)(int64_t)(int8_t)a + (uint64_t)(uint16_t)b;
    o[24] = (uint64_t)((int64_t)(int16_t)a * (int16_t)b);
    o[25] = (a & ~b) | (b ^ 0x0f0f0f0f);
    o[26] = (uint64_t)(((int64_t)sa + sb) >> 1);
    o[27] = (uint32_t)((a & 0xffffff) * (b & 0xffffff));
    o[28] = (uint64_t)(int64_t)abs(sa >> 1);
    o[29] = (uint64_t)((a < b) | (sa < sb) << 1 | (wa < wb) << 2 | (a == b) << 3 | ((uint8_t)a >= (uint8_t)b) << 4);
}

int main(void)
{
    static const uint32_t edges[] = {0,      1,          2,          0x7f,       0x80,       0xff,       0x7fff, 0x8000,
                                     0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0x80000001, 0xfffffffe, 10,     31};
    static uint32_t in[2 * COUNT];
    static uint64_t back[COUNT * RESULTS], want[RESULTS];
    uint32_t seed = 12345, *device_in;
    uint64_t *device_out;

    for (int i = 0; i < COUNT; i++) {
        in[2 * i] = i < 256 ? edges[i / 16] : next_random(&seed);
        in[2 * i + 1] = i < 256 ? edges[i % 16] : next_random(&seed) >> (i % 32);
    }
    CHECK(cudaMalloc(&device_in, sizeof(in)));
    CHECK(cudaMalloc(&device_out, sizeof(back)));
    CHECK(cudaMemcpy(device_in, in, sizeof(in), cudaMemcpyHostToDevice));
    evaluate<<<COUNT / 64, 64>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) {
        expected(in[2 * i], in[2 * i + 1], want);
        for (int r = 0; r < RESULTS; r++)
            EXPECT(back[i * RESULTS + r] == want[r], "result %d of 0x%x, 0x%x: 0x%llx, expected 0x%llx", r, in[2 * i],
                   in[2 * i + 1], (unsigned long long)back[i * RESULTS + r], (unsigned long long)want[r]);
    }
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return 0;
}
