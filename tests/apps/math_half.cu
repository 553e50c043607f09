// Half precision and bfloat16: conversions of every kind of value, arithmetic, comparisons and packed pairs, against
// conversions written out on the host.
#include "check.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

enum { COUNT = 1024, RESULTS = 8 };

__global__ void half_arithmetic(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    half a = __float2half(in[2 * i]), b = __float2half(in[2 * i + 1]);
    float *o = out + i * RESULTS;

    o[0] = __half2float(a);
    o[1] = __half2float(__hadd(a, b));
    o[2] = __half2float(__hsub(a, b));
    o[3] = __half2float(__hmul(a, b));
    o[4] = __half2float(__hfma(a, b, a));
    o[5] = __hlt(a, b) + 2 * __heq(a, b) + 4 * __hge(a, b);
    o[6] = __half2float(__float2half_rz(in[2 * i]));
    o[7] = (float)__half2int_rz(a) + (float)__half_as_ushort(__int2half_rn(i)) / 65536;
}

__global__ void half_pairs(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    half2 a = __floats2half2_rn(in[2 * i], in[2 * i + 1]), b = __half2half2(__float2half(1.5f));
    half2 sum = __hadd2(a, b), product = __hmul2(a, b), fused = __hfma2(a, b, __lowhigh2highlow(a));
    float *o = out + i * RESULTS;

    o[0] = __low2float(sum);
    o[1] = __high2float(sum);
    o[2] = __low2float(product);
    o[3] = __high2float(product);
    o[4] = __low2float(fused);
    o[5] = __high2float(fused);
    o[6] = __half2float(__hneg(__low2half(a)));
    o[7] = __half2float(__habs(__high2half(a)));
}

__global__ void bfloat(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat16 a = __float2bfloat16(in[2 * i]), b = __float2bfloat16(in[2 * i + 1]);
    float *o = out + i * RESULTS;

    o[0] = __bfloat162float(a);
    o[1] = __bfloat162float(__hadd(a, b));
    o[2] = __bfloat162float(__hmul(a, b));
    o[3] = __hlt(a, b) ? 1 : 0;
    o[4] = o[5] = o[6] = o[7] = 0;
}

/* Rounds x to a format of BITS of mantissa (the hidden one included) and the given exponents; ties to even. */
static float rounded(double x, int bits, int least_exponent, double greatest, int toward_zero)
{
    int exponent;
    double unit, r;

    if (x == 0 || isnan(x) || isinf(x))
        return (float)x;
    frexp(x, &exponent);
    if (exponent < least_exponent)
        exponent = least_exponent;
    unit = ldexp(1, exponent - bits);
    r = toward_zero ? trunc(x / unit) * unit : rint(x / unit) * unit;
    if (fabs(r) > greatest)
        return toward_zero ? (float)copysign(greatest, x) : (float)copysign(INFINITY, x);
    return (float)r;
}

static float to_half(double x)
{
    return rounded(x, 11, -13, 65504, 0);
}
static float to_bfloat(double x)
{
    return rounded(x, 8, -125, 3.3895313892515355e38, 0);
}

static unsigned half_bits_of_int(int i)
{
    int exponent;
    float r = to_half(i);

    if (i == 0)
        return 0;
    frexpf(r, &exponent);
    return (unsigned)(exponent - 1 + 15) << 10 | ((unsigned)ldexpf(r, 11 - exponent) & 0x3ff);
}

static void expect_same(const char *what, int i, int result, float got, float want)
{
    EXPECT((isnan(got) && isnan(want)) || got == want, "%s %d, result %d: %a, expected %a", what, i, result, got, want);
}

static float in[2 * COUNT], back[COUNT * RESULTS];

static void check_half(void)
{
    for (int i = 0; i < COUNT; i++) {
        float a = to_half(in[2 * i]), b = to_half(in[2 * i + 1]);
        float whole = isnan(a) ? 0 : a > 2147483520.0f ? 2147483520.0f : truncf(a);
        const float want[RESULTS] = {a,
                                     to_half((double)a + b),
                                     to_half((double)a - b),
                                     to_half((double)a * b),
                                     to_half((double)a * b + a),
                                     (float)((a < b) + 2 * (a == b) + 4 * (a >= b)),
                                     rounded(in[2 * i], 11, -13, 65504, 1),
                                     whole + (float)half_bits_of_int(i) / 65536};

        for (int r = 0; r < RESULTS; r++)
            if (r != 7 || !isinf(a))
                expect_same("half", i, r, back[i * RESULTS + r], want[r]);
    }
}

static void check_pairs(void)
{
    for (int i = 0; i < COUNT; i++) {
        float a = to_half(in[2 * i]), b = to_half(in[2 * i + 1]);
        const float want[RESULTS] = {to_half(a + 1.5),
                                     to_half(b + 1.5),
                                     to_half(a * 1.5),
                                     to_half(b * 1.5),
                                     to_half(a * 1.5 + b),
                                     to_half(b * 1.5 + a),
                                     -a,
                                     fabsf(b)};

        for (int r = 0; r < RESULTS; r++)
            expect_same("pair", i, r, back[i * RESULTS + r], want[r]);
    }
}

static void check_bfloat(void)
{
    for (int i = 0; i < COUNT; i++) {
        float a = to_bfloat(in[2 * i]), b = to_bfloat(in[2 * i + 1]);
        const float want[4] = {a, to_bfloat((double)a + b), to_bfloat((double)a * b), a < b ? 1.0f : 0.0f};

        for (int r = 0; r < 4; r++)
            expect_same("bfloat16", i, r, back[i * RESULTS + r], want[r]);
    }
}

int main(void)
{
    static const float edges[] = {0.0f,     1.0f,    -1.0f,    65504.0f, 65519.9f, 65520.0f, 1e6f,    6.1e-5f,
                                  5.96e-8f, 2.9e-8f, 2.99e-8f, 0.1f,     1.0f / 3, 2049.0f,  2051.0f, -0.5f};
    uint32_t seed = 99;
    float *device_in, *device_out;

    for (int i = 0; i < 2 * COUNT; i++) {
        if (i < 512)
            in[i] = i % 2 ? edges[i / 2 % 16] : edges[i / 32];
        else
            in[i] = ldexpf((float)(int32_t)next_random(&seed), (int)(next_random(&seed) % 24) - 42);
    }
    CHECK(cudaMalloc(&device_in, sizeof(in)));
    CHECK(cudaMalloc(&device_out, sizeof(back)));
    CHECK(cudaMemcpy(device_in, in, sizeof(in), cudaMemcpyHostToDevice));
    half_arithmetic<<<COUNT / 128, 128>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    check_half();
    half_pairs<<<COUNT / 128, 128>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    check_pairs();
    bfloat<<<COUNT / 128, 128>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    check_bfloat();
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return 0;
}
