// The video instructions of PTX: parts of registers, saturation, second operations, two or four at once; and special
// registers read with 16 bits, as in PTX 1.x. What is expected is computed on the host from the manual's words. Spellings for
// which the driver's compiler gives an H200 other results than the manual are left out: saturation into a part of a register
// and of mixed signs, `.min` and `.max` of an unsigned saturated sum and of `vset`, `.h1` of `vmax`, a saturated shift, and
// `vmad` with `.po.sat.shr7`.
#include "check.h"

typedef long long wide;

#define B(x, i)  ((wide)(uint8_t)((x) >> (8 * (i))))
#define SB(x, i) ((wide)(int8_t)((x) >> (8 * (i))))
#define H(x, i)  ((wide)(uint16_t)((x) >> (16 * (i))))
#define SH(x, i) ((wide)(int16_t)((x) >> (16 * (i))))
#define U(x)     ((wide)(uint32_t)(x))
#define S(x)     ((wide)(int32_t)(x))

static wide limit(wide value, wide least, wide most)
{
    return value < least ? least : value > most ? most : value;
}

static wide lesser(wide a, wide b)
{
    return a < b ? a : b;
}

static wide greater(wide a, wide b)
{
    return a > b ? a : b;
}

static wide distance(wide a, wide b)
{
    return a < b ? b - a : a - b;
}

static wide average(wide a, wide b)
{
    return a + b >= 0 ? (a + b + 1) / 2 : -((-(a + b) + 1) / 2);
}

static wide scaled(__int128 value, int shift)
{
    return (wide)(value >> shift);
}

#define SAT_S32(v) limit(v, INT32_MIN, INT32_MAX)
#define SAT_U32(v) limit(v, 0, UINT32_MAX)

/* Parts of d replaced. */
#define INTO_B(i, v)    (((uint32_t)(v)&0xff) << (8 * (i)) | (c & ~(0xffu << (8 * (i)))))
#define INTO_H(i, v)    (((uint32_t)(v)&0xffff) << (16 * (i)) | (c & ~(0xffffu << (16 * (i)))))
#define PAIR(low, high) (((uint32_t)(low)&0xffff) | (uint32_t)(high) << 16)
#define FOUR(v0, v1, v2, v3)                                                                                           \
    (((uint32_t)(v0)&0xff) | ((uint32_t)(v1)&0xff) << 8 | ((uint32_t)(v2)&0xff) << 16 | (uint32_t)(v3) << 24)
/* Each pair of parts by the same formula. */
#define EACH2(f, x) PAIR(f(x(a, 0), x(b, 0)), f(x(a, 1), x(b, 1)))
#define EACH4(f, x) FOUR(f(x(a, 0), x(b, 0)), f(x(a, 1), x(b, 1)), f(x(a, 2), x(b, 2)), f(x(a, 3), x(b, 3)))
#define SUM4(f, x)  (f(x(a, 0), x(b, 0)) + f(x(a, 1), x(b, 1)) + f(x(a, 2), x(b, 2)) + f(x(a, 3), x(b, 3)))
#define PLUS(x, y)  ((x) + (y))
#define MINUS(x, y) ((x) - (y))
#define LESS(x, y)  ((x) < (y))

/* The instruction; what it gives for a, b and c. */
#define CASES(X)                                                                                                       \
    X("vadd.u32.u32.u32 %0, %1, %2;", U(a) + U(b))                                                                     \
    X("vadd.s32.s32.s32.sat %0, %1, %2;", SAT_S32(S(a) + S(b)))                                                        \
    X("vadd.s32.u32.u32.sat %0, %1, %2;", SAT_S32(U(a) + U(b)))                                                        \
    X("vadd.u32.u32.s32 %0, %1.b0, %2.h1;", B(a, 0) + SH(b, 1))                                                        \
    X("vadd.s32.s32.u32 %0, %1.b3, %2.b2;", SB(a, 3) + B(b, 2))                                                        \
    X("vadd.u32.u32.u32.add %0, %1.h0, %2.h1, %3;", H(a, 0) + H(b, 1) + U(c))                                          \
    X("vadd.s32.s32.s32.min %0, %1.h0, %2.h1, %3;", lesser(SH(a, 0) + SH(b, 1), S(c)))                                 \
    X("vadd.s32.s32.s32.max %0, %1.h0, %2.h1, %3;", greater(SH(a, 0) + SH(b, 1), S(c)))                                \
    X("vadd.u32.u32.u32 %0.b1, %1.b1, %2.b2, %3;", INTO_B(1, B(a, 1) + B(b, 2)))                                       \
    X("vadd.u32.u32.u32.sat %0.b3, %1.b1, %2.b2, %3;", INTO_B(3, limit(B(a, 1) + B(b, 2), 0, 255)))                    \
    X("vsub.u32.u32.u32 %0, %1, %2;", U(a) - U(b))                                                                     \
    X("vsub.u32.u32.u32.sat %0, %1, %2;", SAT_U32(U(a) - U(b)))                                                        \
    X("vsub.s32.u32.u32.sat %0, %1, %2;", SAT_S32(U(a) - U(b)))                                                        \
    X("vabsdiff.u32.s32.s32 %0, %1, %2;", distance(S(a), S(b)))                                                        \
    X("vabsdiff.u32.u32.u32.add %0, %1, %2, %3;", distance(U(a), U(b)) + U(c))                                         \
    X("vabsdiff.u32.u32.s32.add %0, %1.b2, %2.b1, %3;", distance(B(a, 2), SB(b, 1)) + U(c))                            \
    X("vabsdiff.s32.s32.s32.sat %0, %1, %2;", SAT_S32(distance(S(a), S(b))))                                           \
    X("vmin.s32.s32.u32 %0, %1, %2;", lesser(S(a), U(b)))                                                              \
    X("vmin.u32.s32.s32.sat %0, %1.h1, %2.h0;", SAT_U32(lesser(SH(a, 1), SH(b, 0))))                                   \
    X("vmax.u32.u32.u32.max %0, %1.h1, %2.b0, %3;", greater(greater(H(a, 1), B(b, 0)), U(c)))                          \
    X("vshl.u32.u32.u32.clamp %0, %1, %2.b0;", B(b, 0) > 31 ? 0 : U(a) << B(b, 0))                                     \
    X("vshl.u32.u32.u32.wrap %0, %1, %2;", U(a) << (b & 31))                                                           \
    X("vshr.u32.u32.u32.clamp %0, %1, %2.b1;", B(b, 1) > 31 ? 0 : U(a) >> B(b, 1))                                     \
    X("vshr.s32.s32.u32.clamp %0, %1, %2.b1;", S(a) >> lesser(B(b, 1), 32))                                            \
    X("vshr.s32.s32.u32.wrap.add %0, %1, %2, %3;", (S(a) >> (b & 31)) + S(c))                                          \
    X("vshr.u32.u32.u32.wrap %0.b2, %1, %2, %3;", INTO_B(2, U(a) >> (b & 31)))                                         \
    X("vmad.u32.u32.u32 %0, %1.h0, %2.h1, %3;", H(a, 0) * H(b, 1) + U(c))                                              \
    X("vmad.s32.s32.s32.sat %0, %1.h1, %2.h0, %3;", SAT_S32(SH(a, 1) * SH(b, 0) + S(c)))                               \
    X("vmad.s32.u32.s32 %0, %1.b0, %2.b3, %3;", B(a, 0) * SB(b, 3) + S(c))                                             \
    X("vmad.s32.s32.u32.shr7 %0, %1.h0, %2.b1, -%3;", scaled(SH(a, 0) * B(b, 1) - S(c), 7))                            \
    X("vmad.s32.s32.s32.sat.shr15 %0, -%1.h0, %2.h1, %3;", SAT_S32(scaled(S(c) - SH(a, 0) * SH(b, 1), 15)))            \
    X("vmad.s32.s32.s32 %0, -%1.h0, -%2.h1, %3;", SH(a, 0) * SH(b, 1) + S(c))                                          \
    X("vmad.u32.u32.u32.po %0, %1.h0, %2.h1, %3;", H(a, 0) * H(b, 1) + U(c) + 1)                                       \
    X("vset.u32.u32.lt %0, %1, %2;", U(a) < U(b))                                                                      \
    X("vset.s32.u32.ge %0, %1.b1, %2.h0;", SB(a, 1) >= H(b, 0))                                                        \
    X("vset.s32.s32.ne.add %0, %1.b1, %2.b1, %3;", (SB(a, 1) != SB(b, 1)) + U(c))                                      \
    X("vset.u32.u32.eq %0.b3, %1.b1, %2.b0, %3;", INTO_B(3, B(a, 1) == B(b, 0)))                                       \
    X("vset.s32.s32.gt %0, %1, %2;", S(a) > S(b))                                                                      \
    X("vadd2.u32.u32.u32 %0, %1, %2, %3;", EACH2(PLUS, H))                                                             \
    X("vadd2.s32.s32.s32.sat %0, %1, %2, %3;",                                                                         \
      PAIR(limit(SH(a, 0) + SH(b, 0), -32768, 32767), limit(SH(a, 1) + SH(b, 1), -32768, 32767)))                      \
    X("vadd2.u32.s32.u32.sat %0, %1, %2, %3;",                                                                         \
      PAIR(limit(SH(a, 0) + H(b, 0), 0, 65535), limit(SH(a, 1) + H(b, 1), 0, 65535)))                                  \
    X("vadd2.s32.s32.s32.add %0, %1, %2, %3;", SH(a, 0) + SH(b, 0) + SH(a, 1) + SH(b, 1) + c)                          \
    X("vadd2.u32.u32.u32 %0.h1, %1.h03, %2.h21, %3;", INTO_H(1, H(a, 0) + H(b, 0)))                                    \
    X("vsub2.u32.u32.u32.sat %0, %1.h01, %2.h33, %3;",                                                                 \
      PAIR(limit(H(a, 1) - H(b, 1), 0, 65535), limit(H(a, 0) - H(b, 1), 0, 65535)))                                    \
    X("vavrg2.u32.u32.u32 %0, %1, %2, %3;", EACH2(average, H))                                                         \
    X("vavrg2.s32.s32.s32 %0, %1, %2, %3;", EACH2(average, SH))                                                        \
    X("vabsdiff2.u32.u32.u32 %0, %1, %2, %3;", EACH2(distance, H))                                                     \
    X("vabsdiff2.u32.u32.u32.add %0, %1, %2, %3;", distance(H(a, 0), H(b, 0)) + distance(H(a, 1), H(b, 1)) + c)        \
    X("vabsdiff2.s32.s32.s32.sat %0, %1, %2, %3;",                                                                     \
      PAIR(limit(distance(SH(a, 0), SH(b, 0)), -32768, 32767), limit(distance(SH(a, 1), SH(b, 1)), -32768, 32767)))    \
    X("vmin2.s32.s32.s32 %0, %1, %2, %3;", EACH2(lesser, SH))                                                          \
    X("vmax2.u32.u32.u32 %0.h0, %1, %2, %3;", INTO_H(0, greater(H(a, 0), H(b, 0))))                                    \
    X("vset2.u32.u32.lt %0, %1, %2, %3;", EACH2(LESS, H))                                                              \
    X("vset2.s32.s32.lt.add %0, %1, %2, %3;", (SH(a, 0) < SH(b, 0)) + (SH(a, 1) < SH(b, 1)) + c)                       \
    X("vadd4.u32.u32.u32 %0, %1, %2, %3;", EACH4(PLUS, B))                                                             \
    X("vadd4.u32.u32.u32.sat %0, %1, %2, %3;",                                                                         \
      FOUR(limit(B(a, 0) + B(b, 0), 0, 255), limit(B(a, 1) + B(b, 1), 0, 255), limit(B(a, 2) + B(b, 2), 0, 255),       \
           limit(B(a, 3) + B(b, 3), 0, 255)))                                                                          \
    X("vadd4.s32.s32.s32.add %0, %1, %2, %3;", SUM4(PLUS, SB) + c)                                                     \
    X("vsub4.s32.s32.s32 %0, %1, %2, %3;", EACH4(MINUS, SB))                                                           \
    X("vsub4.u32.u32.u32 %0.b20, %1, %2, %3;",                                                                         \
      ((uint32_t)(B(a, 0) - B(b, 0)) & 0xff) | ((uint32_t)(B(a, 2) - B(b, 2)) & 0xff) << 16 | (c & 0xff00ff00u))       \
    X("vavrg4.u32.u32.u32 %0, %1, %2, %3;", EACH4(average, B))                                                         \
    X("vavrg4.s32.s32.s32 %0, %1, %2, %3;", EACH4(average, SB))                                                        \
    X("vabsdiff4.u32.u32.u32 %0, %1, %2, %3;", EACH4(distance, B))                                                     \
    X("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;", SUM4(distance, B) + c)                                              \
    X("vabsdiff4.u32.s32.s32.add %0, %1, %2, %3;", SUM4(distance, SB) + c)                                             \
    X("vabsdiff4.u32.u32.u32.add %0.b1, %1.b0246, %2.b1357, %3;", distance(B(b, 0), B(b, 1)) + c)                      \
    X("vmin4.u32.u32.u32 %0, %1, %2, %3;", EACH4(lesser, B))                                                           \
    X("vmax4.s32.s32.s32 %0.b321, %1, %2, %3;",                                                                        \
      (FOUR(0, greater(SB(a, 1), SB(b, 1)), greater(SB(a, 2), SB(b, 2)), greater(SB(a, 3), SB(b, 3))) & 0xffffff00u) | \
          (c & 0xff))                                                                                                  \
    X("vset4.u32.u32.lt %0, %1, %2, %3;", EACH4(LESS, B))                                                              \
    X("vset4.s32.s32.lt.add %0, %1, %2, %3;", SUM4(LESS, SB) + c)

#define COUNT(text, expected) +1
enum { CASE_COUNT = 0 CASES(COUNT), THREADS = 256 };

__global__ void run(const uint32_t *in, uint32_t *out)
{
    uint32_t a = in[3 * threadIdx.x], b = in[3 * threadIdx.x + 1], c = in[3 * threadIdx.x + 2], d;
    uint32_t *place = out + threadIdx.x * CASE_COUNT;

#define EXECUTE(text, expected)                                                                                        \
    asm("{ .reg .u32 t; mov.u32 t, %3; " text " }" : "=r"(d) : "r"(a), "r"(b), "r"(c));                                \
    *place++ = d;
    CASES(EXECUTE)
}

/* Guarded: odd threads only. */
__global__ void run_guarded(const uint32_t *in, uint32_t *out)
{
    uint32_t d = 7, i = threadIdx.x;

    asm("{ .reg .pred p; .reg .u32 t; and.b32 t, %1, 1; setp.eq.u32 p, t, 1;\n"
        "@p vabsdiff4.u32.u32.u32.add %0, %1, %2, %3; }"
        : "+r"(d)
        : "r"(i), "r"(in[0]), "r"(in[1]));
    out[i] = d;
}

/* As PTX 1.x has it. */
__global__ void places(uint32_t *out)
{
    uint32_t tid, ntid, ctaid, nctaid, *place = out + 8 * (blockIdx.y * gridDim.x + blockIdx.x);

    asm("cvt.u32.u16 %0, %%tid.x;" : "=r"(tid));
    asm("{ .reg .u16 h; mov.u16 h, %%ntid.y; cvt.u32.u16 %0, h; }" : "=r"(ntid));
    asm("{ .reg .u16 h; mov.u16 h, %%ctaid.x; cvt.u32.u16 %0, h; }" : "=r"(ctaid));
    asm("cvt.u32.u16 %0, %%nctaid.y;" : "=r"(nctaid));
    if (threadIdx.x == 5) {
        place[0] = tid;
        place[1] = ntid;
        place[2] = ctaid;
        place[3] = nctaid;
    }
}

static void check_places(void)
{
    static uint32_t back[8 * 6];
    uint32_t *out;

    CHECK(cudaMalloc(&out, sizeof(back)));
    places<<<dim3(3, 2), dim3(32, 2)>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 6; i++) {
        EXPECT_EQ(back[8 * i], 5);
        EXPECT_EQ(back[8 * i + 1], 2);
        EXPECT_EQ(back[8 * i + 2], i % 3);
        EXPECT_EQ(back[8 * i + 3], 2);
    }
    CHECK(cudaFree(out));
}

static uint32_t in[3 * THREADS], back[THREADS * CASE_COUNT];

int main(void)
{
    static const uint32_t edges[] = {0,      1,      0x7f,       0x80,       0xff,      0x7fff,
                                     0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff};
    static const char *const texts[] = {
#define TEXT(text, expected) text,
        CASES(TEXT)};
    uint32_t seed = 11, *d_in, *d_out;

    for (int i = 0; i < 3 * THREADS; i++)
        in[i] = i % 5 ? next_random(&seed) : edges[next_random(&seed) % (sizeof(edges) / sizeof(*edges))];
    CHECK(cudaMalloc(&d_in, sizeof(in)));
    CHECK(cudaMalloc(&d_out, sizeof(back)));
    CHECK(cudaMemcpy(d_in, in, sizeof(in), cudaMemcpyHostToDevice));
    run<<<1, THREADS>>>(d_in, d_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, d_out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < THREADS; i++) {
        const uint32_t a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2], *got = back + i * CASE_COUNT;
        const uint32_t expected[] = {
#define EXPECTED(text, value) (uint32_t)(value),
            CASES(EXPECTED)};

        for (int k = 0; k < CASE_COUNT; k++)
            EXPECT(got[k] == expected[k], "%s a=%08x b=%08x c=%08x: got %08x, expected %08x", texts[k], a, b, c, got[k],
                   expected[k]);
    }
    run_guarded<<<1, 64>>>(d_in, d_out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, d_out, 64 * sizeof(*back), cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t a = i, b = in[0], c = in[1];

        EXPECT_EQ(back[i], i & 1 ? (uint32_t)(SUM4(distance, B) + c) : 7);
    }
    CHECK(cudaFree(d_in));
    CHECK(cudaFree(d_out));
    check_places();
    return 0;
}
