// bfloat16 as instructions of GPUs from compute capability 8.0 on have it: conversions in every rounding, arithmetic of
// one number and of pairs, comparisons, and the 8-bit formats; against conversions written out on the host.
// nvcc: -gencode arch=compute_80,code=[compute_80,sm_80] -gencode arch=compute_90,code=[compute_90,sm_90]
#include "tensor.h"
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <math.h>

enum { COUNT = 1024, RESULTS = 20 };

__global__ void one(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = 0;
    float *o = out + i * RESULTS;
    __nv_bfloat16 a = __float2bfloat16(in[2 * i]), b = __float2bfloat16(in[2 * i + 1]);

    o[n++] = __bfloat162float(a);
    o[n++] = __bfloat162float(__float2bfloat16_rz(in[2 * i]));
    o[n++] = __bfloat162float(__float2bfloat16_ru(in[2 * i]));
    o[n++] = __bfloat162float(__float2bfloat16_rd(in[2 * i]));
    o[n++] = __bfloat162float(__hadd(a, b));
    o[n++] = __bfloat162float(__hsub(a, b));
    o[n++] = __bfloat162float(__hmul(a, b));
    o[n++] = __bfloat162float(__hfma(a, b, a));
    o[n++] = __bfloat162float(__hfma_relu(a, b, a));
    o[n++] = __bfloat162float(__hmin(a, b));
    o[n++] = __bfloat162float(__hmax(a, b));
    o[n++] = __bfloat162float(__hneg(a));
    o[n++] = __bfloat162float(__habs(a));
    o[n++] = __hlt(a, b) + 2 * __heq(a, b) + 4 * __hgeu(a, b);
    o[n++] = __bfloat162int_rn(__hmul(a, __float2bfloat16(64.0f)));
    o[n++] = __bfloat162float(__int2bfloat16_rn(i * 1237 - 500000));
}

__global__ void pairs(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = 0;
    float *o = out + i * RESULTS;
    __nv_bfloat162 a = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
    __nv_bfloat162 b = __floats2bfloat162_rn(in[2 * i + 1], 1.5f);
    auto put = [&](__nv_bfloat162 x) {
        o[n++] = __low2float(x);
        o[n++] = __high2float(x);
    };

    put(__hadd2(a, b));
    put(__hmul2(a, b));
    put(__hfma2(a, b, a));
    put(__hfma2_relu(a, b, a));
    put(__hmin2(a, b));
    put(__hmax2(a, b));
    put(__hlt2(a, b));
    o[n++] = __hblt2(a, b) + 2 * __hbne2(a, b);
    o[n++] = (float)(__hgt2_mask(a, b) & 0x80008000u);
}

/* The largest that 8 bits have is 448, or 57344: what is beyond becomes that. */
__global__ void eight_bits(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    out[2 * i] = (float)__nv_fp8_e4m3(in[i]);
    out[2 * i + 1] = (float)__nv_fp8_e5m2(in[i]);
}

/* x with `digits` binary digits behind the first, the nearest or the next on a side; smaller than 2^least by steps. */
static float to_digits(double x, int digits, int least, double (*round)(double))
{
    int exponent;
    double step;

    frexp(x, &exponent);
    step = ldexp(1.0, (exponent - 1 < least ? least : exponent - 1) - digits);
    return (float)(round(x / step) * step);
}

static float to_bfloat(double x)
{
    return to_digits(x, 7, -126, nearbyint);
}

static float in[2 * COUNT], back[COUNT * RESULTS];

static void expect_same(const char *what, int i, int r, float got, float want)
{
    EXPECT(got == want && signbit(got) == signbit(want), "%s %d, result %d, of %a and %a: %a, expected %a", what, i, r,
           in[2 * i], in[2 * i + 1], got, want);
}

static float rectified(float x)
{
    return x > 0 ? x : 0.0f;
}

static void check_one(void)
{
    for (int i = 0; i < COUNT; i++) {
        float x = in[2 * i], a = to_bfloat(x), b = to_bfloat(in[2 * i + 1]), fused = to_bfloat((double)a * b + a);
        const float want[16] = {a,
                                to_digits(x, 7, -126, trunc),
                                to_digits(x, 7, -126, ceil),
                                to_digits(x, 7, -126, floor),
                                to_bfloat((double)a + b),
                                to_bfloat((double)a - b),
                                to_bfloat((double)a * b),
                                fused,
                                rectified(fused),
                                fminf(a, b),
                                fmaxf(a, b),
                                -a,
                                fabsf(a),
                                a < b    ? 1.0f
                                : a == b ? 6.0f
                                         : 4.0f,
                                (float)(int)nearbyint((double)to_bfloat(a * 64.0)),
                                to_bfloat(i * 1237 - 500000)};

        for (int r = 0; r < 16; r++)
            expect_same("number", i, r, back[i * RESULTS + r], want[r]);
    }
}

static void check_pairs(void)
{
    for (int i = 0; i < COUNT; i++) {
        const float a[2] = {to_bfloat(in[2 * i]), to_bfloat(in[2 * i + 1])}, b[2] = {a[1], 1.5f};

        for (int h = 0; h < 2; h++) {
            float fused = to_bfloat((double)a[h] * b[h] + a[h]);
            const float want[7] = {to_bfloat((double)a[h] + b[h]),
                                   to_bfloat((double)a[h] * b[h]),
                                   fused,
                                   rectified(fused),
                                   fminf(a[h], b[h]),
                                   fmaxf(a[h], b[h]),
                                   a[h] < b[h] ? 1.0f : 0.0f};

            for (int r = 0; r < 7; r++)
                expect_same("pair", i, 2 * r + h, back[i * RESULTS + 2 * r + h], want[r]);
        }
        expect_same("pair", i, 14, back[i * RESULTS + 14],
                    (a[0] < b[0] && a[1] < b[1] ? 1.0f : 0.0f) + (a[0] != b[0] && a[1] != b[1] ? 2.0f : 0.0f));
        expect_same("pair", i, 15, back[i * RESULTS + 15],
                    (float)((a[0] > b[0] ? 0x8000u : 0) | (a[1] > b[1] ? 0x80000000u : 0)));
    }
}

static float bounded(float x, float most)
{
    return fabsf(x) > most ? copysignf(most, x) : x;
}

static void check_eight_bits(void)
{
    for (int i = 0; i < 2 * COUNT; i++) {
        float x = in[i];

        EXPECT(back[2 * i] == bounded(to_digits(bounded(x, 1e6f), 3, -6, nearbyint), 448.0f), "e4m3 of %a: %a", x,
               back[2 * i]);
        EXPECT(back[2 * i + 1] == bounded(to_digits(bounded(x, 1e6f), 2, -14, nearbyint), 57344.0f), "e5m2 of %a: %a",
               x, back[2 * i + 1]);
    }
}

int main(void)
{
    uint32_t seed = 99;
    float *device_in, *device_out;

    want_capability_8();
    for (int i = 0; i < 2 * COUNT; i++) /* of all sizes between 2^-20 and 2^20; every fourth has few digits, for ties */
        in[i] = ldexpf((float)((int32_t)next_random(&seed) >> (i % 4 ? 4 : 21)), (i % 4 ? -27 : -10) + i % 17 * 2 - 16);
    in[0] = 0.0f;
    in[2] = in[3] = 1.0f;
    device_in = on_device(in, 2 * COUNT);
    device_out = on_device(back, COUNT * RESULTS);
    one<<<COUNT / 128, 128>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    check_one();
    pairs<<<COUNT / 128, 128>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    check_pairs();
    eight_bits<<<2 * COUNT / 128, 128>>>(device_in, device_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device_out, sizeof(back), cudaMemcpyDeviceToHost));
    check_eight_bits();
    CHECK(cudaFree(device_in));
    CHECK(cudaFree(device_out));
    return 0;
}
