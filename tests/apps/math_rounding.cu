// The rounding-mode intrinsics and conversions: __fadd_rn/rz/ru/rd and kin in both precisions give, bit for bit, what
// the host computes in that rounding mode.
// nvcc: -Xcompiler -frounding-math,-O1,-ffp-contract=off
#include "check.h"
#include <fenv.h>
#include <math.h>

enum { COUNT = 300, OPS = 6, CONVERSIONS = 4 };

static const int modes[4] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};

#define FLOAT_ROW(o, m, a, b)                                                                                          \
    (o)[0] = __fadd_##m(a, b), (o)[1] = __fsub_##m(a, b), (o)[2] = __fmul_##m(a, b), (o)[3] = __fdiv_##m(a, b),        \
    (o)[4] = __fsqrt_##m(fabsf(a)), (o)[5] = __fmaf_##m(a, b, -a)
#define DOUBLE_ROW(o, m, a, b)                                                                                         \
    (o)[0] = __dadd_##m(a, b), (o)[1] = __dsub_##m(a, b), (o)[2] = __dmul_##m(a, b), (o)[3] = __ddiv_##m(a, b),        \
    (o)[4] = __dsqrt_##m(fabs(a)), (o)[5] = __fma_##m(a, b, -a)
#define CONVERT_ROW(o, m, d, n)                                                                                        \
    (o)[0] = __double2float_##m(d), (o)[1] = __ll2float_##m(n), (o)[2] = __double2int_##m(d),                          \
    (o)[3] = __ll2double_##m(n)

__global__ void evaluate(const float *f, const double *d, const long long *n, float *fo, double *dout, double *co)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= COUNT)
        return;
    fo += i * 4 * OPS;
    dout += i * 4 * OPS;
    co += i * 4 * CONVERSIONS;
    FLOAT_ROW(fo, rn, f[2 * i], f[2 * i + 1]);
    FLOAT_ROW(fo + OPS, rz, f[2 * i], f[2 * i + 1]);
    FLOAT_ROW(fo + 2 * OPS, ru, f[2 * i], f[2 * i + 1]);
    FLOAT_ROW(fo + 3 * OPS, rd, f[2 * i], f[2 * i + 1]);
    DOUBLE_ROW(dout, rn, d[2 * i], d[2 * i + 1]);
    DOUBLE_ROW(dout + OPS, rz, d[2 * i], d[2 * i + 1]);
    DOUBLE_ROW(dout + 2 * OPS, ru, d[2 * i], d[2 * i + 1]);
    DOUBLE_ROW(dout + 3 * OPS, rd, d[2 * i], d[2 * i + 1]);
    CONVERT_ROW(co, rn, d[2 * i], n[i]);
    CONVERT_ROW(co + CONVERSIONS, rz, d[2 * i], n[i]);
    CONVERT_ROW(co + 2 * CONVERSIONS, ru, d[2 * i], n[i]);
    CONVERT_ROW(co + 3 * CONVERSIONS, rd, d[2 * i], n[i]);
}

/* Volatile operands and results keep the compiler from computing in its own rounding mode. */
static void expected(int mode, volatile float fa, volatile float fb, volatile double da, volatile double db,
                     long long n, float *fo, double *dout, double *co)
{
    volatile float f[OPS];
    volatile double d[OPS], c[CONVERSIONS];
    volatile long long vn = n;

    fesetround(mode);
    f[0] = fa + fb;
    f[1] = fa - fb;
    f[2] = fa * fb;
    f[3] = fa / fb;
    f[4] = sqrtf(fabsf(fa));
    f[5] = fmaf(fa, fb, -fa);
    d[0] = da + db;
    d[1] = da - db;
    d[2] = da * db;
    d[3] = da / db;
    d[4] = sqrt(fabs(da));
    d[5] = fma(da, db, -da);
    c[0] = (float)da;
    c[1] = (float)vn;
    c[2] = rint(da);
    c[3] = (double)vn;
    fesetround(FE_TONEAREST);
    for (int i = 0; i < OPS; i++) {
        fo[i] = f[i];
        dout[i] = d[i];
    }
    for (int i = 0; i < CONVERSIONS; i++)
        co[i] = c[i];
    /* Conversions to int saturate. */
    co[2] = co[2] > 2147483647.0 ? 2147483647.0 : co[2] < -2147483648.0 ? -2147483648.0 : co[2];
}

static float f[2 * COUNT], float_back[COUNT][4][OPS], float_want[OPS];
static double d[2 * COUNT], double_back[COUNT][4][OPS], convert_back[COUNT][4][CONVERSIONS], double_want[OPS],
    convert_want[CONVERSIONS];
static long long n[COUNT];

static void make_inputs(void)
{
    uint32_t seed = 777;

    for (int i = 0; i < 2 * COUNT; i++) {
        f[i] = ldexpf((float)(int32_t)next_random(&seed), (int)(next_random(&seed) % 40) - 45);
        d[i] = ldexp((double)(int32_t)next_random(&seed) * 4294967296.0 + next_random(&seed),
                     (int)(next_random(&seed) % 30) - 65);
    }
    /* Cancellation, denormal results, and overflow in some modes. */
    f[0] = 1.0f, f[1] = -1.0f;
    f[2] = 1.17549435e-38f, f[3] = 1.5e-39f;
    f[4] = 3.4e38f, f[5] = 3.4e38f;
    f[6] = 1e-30f, f[7] = 1e-12f;
    f[8] = 1.0f, f[9] = 3.0f;
    d[0] = 2.2250738585072014e-308, d[1] = 1e-310;
    d[2] = 1.7e308, d[3] = 1.6e308;
    d[4] = 1.0, d[5] = 3.0;
    d[6] = 2.5, d[7] = -2.5;
    d[8] = 4e9, d[10] = -4e9;
    for (int i = 0; i < COUNT; i++)
        n[i] = (long long)((uint64_t)next_random(&seed) << 32 | next_random(&seed)) >> (i % 50);
}

int main(void)
{
    float *df, *dfo;
    double *dd, *ddo, *dco;
    long long *dn;

    make_inputs();
    CHECK(cudaMalloc(&df, sizeof(f)));
    CHECK(cudaMalloc(&dd, sizeof(d)));
    CHECK(cudaMalloc(&dn, sizeof(n)));
    CHECK(cudaMalloc(&dfo, sizeof(float_back)));
    CHECK(cudaMalloc(&ddo, sizeof(double_back)));
    CHECK(cudaMalloc(&dco, sizeof(convert_back)));
    CHECK(cudaMemcpy(df, f, sizeof(f), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(dd, d, sizeof(d), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(dn, n, sizeof(n), cudaMemcpyHostToDevice));
    evaluate<<<(COUNT + 63) / 64, 64>>>(df, dd, dn, dfo, ddo, dco);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(float_back, dfo, sizeof(float_back), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(double_back, ddo, sizeof(double_back), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(convert_back, dco, sizeof(convert_back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        for (int m = 0; m < 4; m++) {
            expected(modes[m], f[2 * i], f[2 * i + 1], d[2 * i], d[2 * i + 1], n[i], float_want, double_want,
                     convert_want);
            for (int o = 0; o < OPS; o++) {
                EXPECT(memcmp(&float_back[i][m][o], &float_want[o], 4) == 0,
                       "float op %d mode %d of %a, %a: %a, expected %a", o, m, f[2 * i], f[2 * i + 1],
                       float_back[i][m][o], float_want[o]);
                EXPECT(memcmp(&double_back[i][m][o], &double_want[o], 8) == 0,
                       "double op %d mode %d of %a, %a: %a, expected %a", o, m, d[2 * i], d[2 * i + 1],
                       double_back[i][m][o], double_want[o]);
            }
            for (int c = 0; c < CONVERSIONS; c++)
                EXPECT(convert_back[i][m][c] == convert_want[c], "conversion %d mode %d of %a, %lld: %a, expected %a",
                       c, m, d[2 * i], n[i], convert_back[i][m][c], convert_want[c]);
        }
    return 0;
}
