/* setp and testp: comparisons into predicates. */
#include "cpu/softgpu/ptx/half.h"
#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"

#include <math.h>

// clang-format off
#define INTEGER_TYPES(X) \
    X(b16, uint16_t, "p=hh") \
    X(b32, uint32_t, "p=ww") \
    X(b64, uint64_t, "p=dd") \
    X(u16, uint16_t, "p=hh") \
    X(u32, uint32_t, "p=ww") \
    X(u64, uint64_t, "p=dd") \
    X(s16, int16_t, "p=hh") \
    X(s32, int32_t, "p=ww") \
    X(s64, int64_t, "p=dd")
// clang-format on
#define COMPARE_INTEGERS(t, T, shape)                                                                                  \
    PTX_COMPARE(eq_##t, T, a[i] == b[i])                                                                               \
    PTX_COMPARE(ne_##t, T, a[i] != b[i])                                                                               \
    PTX_COMPARE(lt_##t, T, a[i] < b[i])                                                                                \
    PTX_COMPARE(le_##t, T, a[i] <= b[i])                                                                               \
    PTX_COMPARE(gt_##t, T, a[i] > b[i])                                                                                \
    PTX_COMPARE(ge_##t, T, a[i] >= b[i])
INTEGER_TYPES(COMPARE_INTEGERS)

static inline float plain(float x)
{
    return x;
}

static inline double plain_f64(double x)
{
    return x;
}

static inline float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? 0.0f : x;
}

static inline float half_value(uint16_t x)
{
    return flyt_half_to_float(x);
}

static inline float half_value_ftz(uint16_t x)
{
    return fabsf(flyt_half_to_float(x)) < 0x1p-14f ? 0.0f : flyt_half_to_float(x);
}

static inline float bfloat_value(uint16_t x)
{
    return flyt_bfloat_to_float(x);
}

/* V turns a register into a number. The comparisons that end in u are true for NaN too. */
// clang-format off
#define FLOAT_TYPES(X) \
    X(f32, float, plain, "f32", "p=ww") \
    X(f32_ftz, float, flush, "ftz.f32", "p=ww") \
    X(f64, double, plain_f64, "f64", "p=dd") \
    X(f16, uint16_t, half_value, "f16", "p=hh") \
    X(f16_ftz, uint16_t, half_value_ftz, "ftz.f16", "p=hh") \
    X(bf16, uint16_t, bfloat_value, "bf16", "p=hh")
// clang-format on
#define UNORDERED(V) (V(a[i]) != V(a[i]) || V(b[i]) != V(b[i]))
#define COMPARE_FLOATS(t, T, V, key, shape)                                                                            \
    PTX_COMPARE(eq_##t, T, V(a[i]) == V(b[i]))                                                                         \
    PTX_COMPARE(ne_##t, T, V(a[i]) != V(b[i]) && !UNORDERED(V))                                                        \
    PTX_COMPARE(lt_##t, T, V(a[i]) < V(b[i]))                                                                          \
    PTX_COMPARE(le_##t, T, V(a[i]) <= V(b[i]))                                                                         \
    PTX_COMPARE(gt_##t, T, V(a[i]) > V(b[i]))                                                                          \
    PTX_COMPARE(ge_##t, T, V(a[i]) >= V(b[i]))                                                                         \
    PTX_COMPARE(equ_##t, T, V(a[i]) == V(b[i]) || UNORDERED(V))                                                        \
    PTX_COMPARE(neu_##t, T, V(a[i]) != V(b[i]))                                                                        \
    PTX_COMPARE(ltu_##t, T, !(V(a[i]) >= V(b[i])))                                                                     \
    PTX_COMPARE(leu_##t, T, !(V(a[i]) > V(b[i])))                                                                      \
    PTX_COMPARE(gtu_##t, T, !(V(a[i]) <= V(b[i])))                                                                     \
    PTX_COMPARE(geu_##t, T, !(V(a[i]) < V(b[i])))                                                                      \
    PTX_COMPARE(num_##t, T, !UNORDERED(V))                                                                             \
    PTX_COMPARE(nan_##t, T, UNORDERED(V))
FLOAT_TYPES(COMPARE_FLOATS)

/* ---- testp ---- */

#define TEST(name, T, expression)                                                                                      \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        const T *a = ptx_lanes(w, in->op[1]);                                                                          \
        uint32_t truth = 0;                                                                                            \
        for (unsigned i = 0; i < PTX_LANES; i++)                                                                       \
            truth |= (uint32_t)(expression) << i;                                                                      \
        ptx_set_pred(w, in->op[0], truth);                                                                             \
        return in + 1;                                                                                                 \
    }
#define TESTS(t, T)                                                                                                    \
    TEST(test_finite_##t, T, fpclassify(a[i]) != FP_NAN && fpclassify(a[i]) != FP_INFINITE)                            \
    TEST(test_infinite_##t, T, fpclassify(a[i]) == FP_INFINITE)                                                        \
    TEST(test_number_##t, T, fpclassify(a[i]) != FP_NAN)                                                               \
    TEST(test_notanumber_##t, T, fpclassify(a[i]) == FP_NAN)                                                           \
    TEST(test_normal_##t, T, fpclassify(a[i]) == FP_NORMAL || fpclassify(a[i]) == FP_ZERO)                             \
    TEST(test_subnormal_##t, T, fpclassify(a[i]) == FP_SUBNORMAL)
TESTS(f32, float)
TESTS(f64, double)

/* ---- the table ---- */

#define INTEGER_ROWS(t, T, shape)                                                                                      \
    {"setp.eq." #t, eq_##t, shape}, {"setp.ne." #t, ne_##t, shape}, {"setp.lt." #t, lt_##t, shape},                    \
        {"setp.le." #t, le_##t, shape}, {"setp.gt." #t, gt_##t, shape}, {"setp.ge." #t, ge_##t, shape},                \
        {"setp.lo." #t, lt_##t, shape}, {"setp.ls." #t, le_##t, shape}, {"setp.hi." #t, gt_##t, shape},                \
        {"setp.hs." #t, ge_##t, shape},
#define FLOAT_ROWS(t, T, V, key, shape)                                                                                \
    {"setp.eq." key, eq_##t, shape}, {"setp.ne." key, ne_##t, shape}, {"setp.lt." key, lt_##t, shape},                 \
        {"setp.le." key, le_##t, shape}, {"setp.gt." key, gt_##t, shape}, {"setp.ge." key, ge_##t, shape},             \
        {"setp.equ." key, equ_##t, shape}, {"setp.neu." key, neu_##t, shape}, {"setp.ltu." key, ltu_##t, shape},       \
        {"setp.leu." key, leu_##t, shape}, {"setp.gtu." key, gtu_##t, shape}, {"setp.geu." key, geu_##t, shape},       \
        {"setp.num." key, num_##t, shape}, {"setp.nan." key, nan_##t, shape},
#define TEST_ROWS(t, shape)                                                                                            \
    {"testp.finite." #t, test_finite_##t, shape}, {"testp.infinite." #t, test_infinite_##t, shape},                    \
        {"testp.number." #t, test_number_##t, shape}, {"testp.notanumber." #t, test_notanumber_##t, shape},            \
        {"testp.normal." #t, test_normal_##t, shape}, {"testp.subnormal." #t, test_subnormal_##t, shape},

static const struct ptx_op_row rows[] = {INTEGER_TYPES(INTEGER_ROWS) FLOAT_TYPES(FLOAT_ROWS) TEST_ROWS(f32, "p=w")
                                             TEST_ROWS(f64, "p=d")};

extern const struct ptx_op_table PTX_OP_TABLE(compare);
const struct ptx_op_table PTX_OP_TABLE(compare) = {rows, sizeof rows / sizeof *rows};
