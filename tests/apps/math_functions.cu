// The mathematical functions stay within the error that the CUDA C++ Programming Guide documents for them, single
// precision against double on the host and double precision against long double; special values too.
#include "check.h"
#include <math.h>

enum { COUNT = 400 };

/* name, greatest documented error in ulp, range of the arguments, the host's reference */
// clang-format off
#define FLOAT_FUNCTIONS(F)                                                                                             \
    F(sqrtf, 0, 1e-30, 1e30, sqrt(x)) F(rsqrtf, 2, 1e-30, 1e30, 1 / sqrt(x)) F(cbrtf, 1, -1e20, 1e20, cbrt(x))         \
    F(expf, 2, -87, 88, exp(x)) F(exp2f, 2, -125, 127, exp2(x)) F(exp10f, 2, -37, 38, pow(10, x))                      \
    F(expm1f, 1, -10, 10, expm1(x)) F(logf, 1, 1e-30, 1e30, log(x)) F(log2f, 1, 1e-30, 1e30, log2(x))                  \
    F(log10f, 2, 1e-30, 1e30, log10(x)) F(log1pf, 1, -0.9, 10, log1p(x)) F(sinf, 2, -100, 100, sin(x))                 \
    F(cosf, 2, -1e7, 1e7, cos(x)) F(tanf, 4, -50, 50, tan(x)) F(asinf, 2, -1, 1, asin(x))                              \
    F(acosf, 2, -1, 1, acos(x)) F(atanf, 2, -100, 100, atan(x)) F(sinhf, 3, -80, 80, sinh(x))                          \
    F(coshf, 2, -80, 80, cosh(x)) F(tanhf, 2, -10, 10, tanh(x)) F(asinhf, 3, -1e5, 1e5, asinh(x))                      \
    F(acoshf, 4, 1, 1e5, acosh(x)) F(atanhf, 3, -0.999, 0.999, atanh(x)) F(erff, 2, -4, 4, erf(x))                     \
    F(erfcf, 4, -4, 9, erfc(x)) F(tgammaf, 11, 0.1, 30, tgamma(x)) F(sinpif, 2, -0.25, 0.25, sin(x * M_PI))            \
    F(floorf, 0, -100, 100, floor(x)) F(rintf, 0, -100, 100, rint(x)) F(roundf, 0, -100, 100, round(x))                \
    F(truncf, 0, -100, 100, trunc(x))

#define DOUBLE_FUNCTIONS(F)                                                                                            \
    F(sqrt, 0, 1e-30, 1e30, sqrtl(x)) F(rsqrt, 1, 1e-30, 1e30, 1 / sqrtl(x)) F(cbrt, 1, -1e20, 1e20, cbrtl(x))         \
    F(exp, 1, -700, 700, expl(x)) F(exp2, 1, -1000, 1000, exp2l(x)) F(expm1, 1, -10, 10, expm1l(x))                    \
    F(log, 1, 1e-30, 1e30, logl(x)) F(log2, 1, 1e-30, 1e30, log2l(x)) F(log10, 1, 1e-30, 1e30, log10l(x))              \
    F(log1p, 1, -0.9, 10, log1pl(x)) F(sin, 2, -1e6, 1e6, sinl(x)) F(cos, 2, -100, 100, cosl(x))                       \
    F(tan, 2, -50, 50, tanl(x)) F(asin, 2, -1, 1, asinl(x)) F(acos, 2, -1, 1, acosl(x))                                \
    F(atan, 2, -100, 100, atanl(x)) F(sinh, 2, -80, 80, sinhl(x)) F(cosh, 1, -80, 80, coshl(x))                        \
    F(tanh, 1, -10, 10, tanhl(x)) F(asinh, 3, -1e5, 1e5, asinhl(x)) F(erf, 2, -4, 4, erfl(x))                          \
    F(erfc, 5, -4, 9, erfcl(x)) F(tgamma, 10, 0.1, 30, tgammal(x))
// clang-format on

#define AS_ENUM(name, ulp, low, high, reference) F_##name,
enum {
    FLOAT_FUNCTIONS(AS_ENUM) FLOAT_COUNT,
    DOUBLE_FUNCTIONS(AS_ENUM) ALL_COUNT,
    DOUBLE_COUNT = ALL_COUNT - FLOAT_COUNT - 1
};

#define FLOAT_STORE(name, ulp, low, high, reference) out[F_##name * COUNT + i] = name(in[F_##name * COUNT + i]);
#define DOUBLE_STORE(name, ulp, low, high, reference)                                                                  \
    out[(F_##name - FLOAT_COUNT - 1) * COUNT + i] = name(in[(F_##name - FLOAT_COUNT - 1) * COUNT + i]);

__global__ void single_precision(const float *in, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < COUNT) {
        FLOAT_FUNCTIONS(FLOAT_STORE)
    }
}

__global__ void double_precision(const double *in, double *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < COUNT) {
        DOUBLE_FUNCTIONS(DOUBLE_STORE)
    }
}

__global__ void two_arguments(float *fo, double *d, float *special)
{
    int i = threadIdx.x;
    float x = 0.1f + i * 0.37f, y = -3.0f + i * 0.21f;

    fo[i * 4] = powf(x, y);
    fo[i * 4 + 1] = atan2f(y, x);
    fo[i * 4 + 2] = hypotf(x, y);
    fo[i * 4 + 3] = fmodf(x * 10, 1.7f);
    d[i * 4] = pow((double)x, (double)y);
    d[i * 4 + 1] = atan2((double)y, (double)x);
    d[i * 4 + 2] = hypot((double)x, (double)y);
    d[i * 4 + 3] = fmod((double)x * 10, 1.7);
    if (i == 0) {
        special[0] = expf(200.0f);
        special[1] = logf(0.0f);
        special[2] = sqrtf(-1.0f);
        special[3] = fmaxf(nanf(""), 3.0f);
        special[4] = copysignf(2.0f, -0.0f);
        special[5] = powf(-2.0f, 3.0f);
        special[6] = expf(-200.0f);
        special[7] = sinf(1e30f);
    }
}

/* The difference in units of the last place of the expected value's own precision. */
static double ulps(double got, long double want, int mantissa_bits, int least_exponent)
{
    int exponent;

    if (isnan(got) || isinf(got))
        return INFINITY;
    frexpl(want, &exponent);
    if (exponent < least_exponent)
        exponent = least_exponent;
    return (double)(fabsl(got - want) / ldexpl(1, exponent - mantissa_bits));
}

/* Spreads arguments over the range: evenly, or by magnitude where the range is one of magnitudes. */
static double argument(double low, double high, int i)
{
    double t = (i + 0.5) / COUNT;

    return low > 0 && high / low > 1e6 ? low * pow(high / low, t) : low + (high - low) * t;
}

static float float_in[FLOAT_COUNT * COUNT], float_out[FLOAT_COUNT * COUNT];
static double double_in[DOUBLE_COUNT * COUNT], double_out[DOUBLE_COUNT * COUNT];

/* Half an ulp of the rounding of the result itself is part of the documented maximum except where that is 0. */
#define FLOAT_CHECK(name, ulp, low, high, reference)                                                                   \
    for (int i = 0; i < COUNT; i++) {                                                                                  \
        double x = float_in[F_##name * COUNT + i], got = float_out[F_##name * COUNT + i], want = reference;            \
        double limit = ulp ? ulp + 0.5 : 0.5001;                                                                       \
        EXPECT(ulps(got, want, 24, -125) <= limit, #name "(%a): %a, expected %a, off by %.2f ulp", x, got, want,       \
               ulps(got, want, 24, -125));                                                                             \
    }
#define DOUBLE_CHECK(name, ulp, low, high, reference)                                                                  \
    for (int i = 0; i < COUNT; i++) {                                                                                  \
        long double x = double_in[(F_##name - FLOAT_COUNT - 1) * COUNT + i], want = reference;                         \
        double got = double_out[(F_##name - FLOAT_COUNT - 1) * COUNT + i], limit = ulp ? ulp + 0.5 : 0.5001;           \
        EXPECT(ulps(got, want, 53, -1021) <= limit, #name "(%La): %a, expected %La, off by %.2f ulp", x, got, want,    \
               ulps(got, want, 53, -1021));                                                                            \
    }
#define FLOAT_FILL(name, ulp, low, high, reference)                                                                    \
    for (int i = 0; i < COUNT; i++)                                                                                    \
        float_in[F_##name * COUNT + i] = (float)argument(low, high, i);
#define DOUBLE_FILL(name, ulp, low, high, reference)                                                                   \
    for (int i = 0; i < COUNT; i++)                                                                                    \
        double_in[(F_##name - FLOAT_COUNT - 1) * COUNT + i] = argument(low, high, i);

static void check_single(void)
{
    float *in, *out;

    FLOAT_FUNCTIONS(FLOAT_FILL)
    CHECK(cudaMalloc(&in, sizeof(float_in)));
    CHECK(cudaMalloc(&out, sizeof(float_out)));
    CHECK(cudaMemcpy(in, float_in, sizeof(float_in), cudaMemcpyHostToDevice));
    single_precision<<<(COUNT + 63) / 64, 64>>>(in, out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(float_out, out, sizeof(float_out), cudaMemcpyDeviceToHost));
    FLOAT_FUNCTIONS(FLOAT_CHECK)
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
}

static void check_double(void)
{
    double *in, *out;

    DOUBLE_FUNCTIONS(DOUBLE_FILL)
    CHECK(cudaMalloc(&in, sizeof(double_in)));
    CHECK(cudaMalloc(&out, sizeof(double_out)));
    CHECK(cudaMemcpy(in, double_in, sizeof(double_in), cudaMemcpyHostToDevice));
    double_precision<<<(COUNT + 63) / 64, 64>>>(in, out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(double_out, out, sizeof(double_out), cudaMemcpyDeviceToHost));
    DOUBLE_FUNCTIONS(DOUBLE_CHECK)
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
}

static void check_two_arguments(void)
{
    const double float_limits[4] = {9, 3.5, 3.5, 0.5001}, double_limits[4] = {2.5, 2.5, 2.5, 0.5001};
    float *fo, *special, f[128], s[8];
    double *out, d[128];

    CHECK(cudaMalloc(&fo, sizeof(f)));
    CHECK(cudaMalloc(&out, sizeof(d)));
    CHECK(cudaMalloc(&special, sizeof(s)));
    two_arguments<<<1, 32>>>(fo, out, special);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(f, fo, sizeof(f), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(d, out, sizeof(d), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(s, special, sizeof(s), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) {
        /* As nvcc contracts it on the device. */
        float x = fmaf((float)i, 0.37f, 0.1f), y = fmaf((float)i, 0.21f, -3.0f);
        const long double want[4] = {powl(x, y), atan2l(y, x), hypotl(x, y), fmodl((long double)(x * 10), 1.7f)};
        const long double want_d[4] = {want[0], want[1], want[2], fmodl((long double)((double)x * 10), 1.7)};

        for (int k = 0; k < 4; k++) {
            EXPECT(ulps(f[i * 4 + k], want[k], 24, -125) <= float_limits[k], "float %d of %a, %a: %a, expected %La", k,
                   x, y, f[i * 4 + k], want[k]);
            EXPECT(ulps(d[i * 4 + k], want_d[k], 53, -1021) <= double_limits[k],
                   "double %d of %a, %a: %a, expected %La", k, x, y, d[i * 4 + k], want_d[k]);
        }
    }
    EXPECT(isinf(s[0]) && s[0] > 0 && isinf(s[1]) && s[1] < 0 && isnan(s[2]));
    EXPECT(s[3] == 3 && s[4] == -2 && s[5] == -8 && s[6] == 0, "%f %f %f %f", s[3], s[4], s[5], s[6]);
    EXPECT(fabsf(s[7] - (float)sinl(1e30f)) < 1e-6, "sinf(1e30): %f", s[7]);
}

int main(void)
{
    check_single();
    check_double();
    check_two_arguments();
    return 0;
}
