/*
 * atom and red: op[0] the old value or none, op[1] base, op[2] and op[3] values; imm the offset, aux the space. One
 * lane after the other, each with a sequentially consistent operation on the memory itself: they are atomic against
 * all other threads of this process, the host's included.
 */
#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/half.h"

#include <math.h>

/* Where the lane's operand lies; NULL after a fault. */
static void *place(struct ptx_warp *w, const struct ptx_insn *in, unsigned lane, unsigned bytes)
{
    const uint64_t *base = ptx_lanes(w, in->op[1]);

    return flyt_ptx_address(w, lane, in->aux, base[lane] + (uint64_t)in->imm, bytes, true);
}

/* An atomic operation on T: `update` sets `old` from `at`, `b` and `c`. */
#define ATOMIC(name, T, update)                                                                                        \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        T *d = in->op[0] == PTX_NO_OP ? NULL : ptx_lanes(w, in->op[0]);                                                \
        const T *bs = ptx_lanes(w, in->op[2]);                                                                         \
        const T *cs = in->op[3] == PTX_NO_OP ? bs : ptx_lanes(w, in->op[3]);                                           \
        PTX_EACH_LANE(lane, w->mask)                                                                                   \
        {                                                                                                              \
            T *at = place(w, in, lane, sizeof(T));                                                                     \
            T b = bs[lane], c = cs[lane], old;                                                                         \
            if (!at)                                                                                                   \
                return NULL;                                                                                           \
            (void)c;                                                                                                   \
            update;                                                                                                    \
            if (d)                                                                                                     \
                d[lane] = old;                                                                                         \
        }                                                                                                              \
        return in + 1;                                                                                                 \
    }

/* Where the processor has no such operation: compute the new value until nobody came between. */
#define UPDATE(T, value)                                                                                               \
    do {                                                                                                               \
        T fresh;                                                                                                       \
        old = __atomic_load_n(at, __ATOMIC_RELAXED);                                                                   \
        do {                                                                                                           \
            fresh = (T)(value);                                                                                        \
        } while (!__atomic_compare_exchange_n(at, &old, fresh, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));                \
    } while (0)

#define BITWISE(bits, T)                                                                                               \
    ATOMIC(and_##bits, T, old = __atomic_fetch_and(at, b, __ATOMIC_SEQ_CST))                                           \
    ATOMIC(or_##bits, T, old = __atomic_fetch_or(at, b, __ATOMIC_SEQ_CST))                                             \
    ATOMIC(xor_##bits, T, old = __atomic_fetch_xor(at, b, __ATOMIC_SEQ_CST))                                           \
    ATOMIC(exch_##bits, T, old = __atomic_exchange_n(at, b, __ATOMIC_SEQ_CST))                                         \
    ATOMIC(add_##bits, T, old = __atomic_fetch_add(at, b, __ATOMIC_SEQ_CST))                                           \
    ATOMIC(cas_##bits, T, (old = b, __atomic_compare_exchange_n(at, &old, c, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)))
BITWISE(32, uint32_t)
BITWISE(64, uint64_t)
ATOMIC(cas_16, uint16_t, (old = b, __atomic_compare_exchange_n(at, &old, c, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)))
ATOMIC(exch_16, uint16_t, old = __atomic_exchange_n(at, b, __ATOMIC_SEQ_CST))
#define EXTREMES(type, T)                                                                                              \
    ATOMIC(min_##type, T, UPDATE(T, b < old ? b : old))                                                                \
    ATOMIC(max_##type, T, UPDATE(T, b > old ? b : old))
EXTREMES(u32, uint32_t)
EXTREMES(s32, int32_t)
EXTREMES(u64, uint64_t)
EXTREMES(s64, int64_t)
ATOMIC(inc_u32, uint32_t, UPDATE(uint32_t, old >= b ? 0 : old + 1))
ATOMIC(dec_u32, uint32_t, UPDATE(uint32_t, old == 0 || old > b ? b : old - 1))

static uint32_t flush_bits(uint32_t bits)
{
    return bits & 0x7f800000u ? bits : bits & 0x80000000u;
}

static bool is_shared(const struct ptx_warp *w, const void *at)
{
    return (uintptr_t)at - (uintptr_t)w->block->shared < w->run->shared_bytes;
}

/* Subnormals count as zeros, but in shared memory (PTX ISA, atom). */
static uint32_t add_f32_bits(uint32_t a, uint32_t b, bool keeps_subnormals)
{
    float sum = keeps_subnormals ? flyt_bits_float(a) + flyt_bits_float(b)
                                 : flyt_bits_float(flush_bits(a)) + flyt_bits_float(flush_bits(b));
    uint32_t bits = sum == sum ? flyt_float_bits(sum) : 0x7fffffffu;

    return keeps_subnormals ? bits : flush_bits(bits);
}

static uint64_t add_f64_bits(uint64_t a, uint64_t b)
{
    double x, y;

    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x += y;
    memcpy(&a, &x, sizeof a);
    return a;
}

static uint16_t add_f16_bits(uint16_t a, uint16_t b)
{
    return flyt_half_from_float(flyt_half_to_float(a) + flyt_half_to_float(b));
}

static uint16_t add_bf16_bits(uint16_t a, uint16_t b)
{
    return flyt_bfloat_from_float(flyt_odd_fma(flyt_bfloat_to_float(a), 1.0f, flyt_bfloat_to_float(b)));
}

static uint32_t add_pair(uint32_t a, uint32_t b, uint16_t (*add)(uint16_t, uint16_t))
{
    return add((uint16_t)a, (uint16_t)b) | (uint32_t)add((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16;
}
ATOMIC(add_f32, uint32_t, UPDATE(uint32_t, add_f32_bits(old, b, is_shared(w, at))))
ATOMIC(add_f64, uint64_t, UPDATE(uint64_t, add_f64_bits(old, b)))
ATOMIC(add_f16, uint16_t, UPDATE(uint16_t, add_f16_bits(old, b)))
ATOMIC(add_bf16, uint16_t, UPDATE(uint16_t, add_bf16_bits(old, b)))
ATOMIC(add_f16x2, uint32_t, UPDATE(uint32_t, add_pair(old, b, add_f16_bits)))
ATOMIC(add_bf16x2, uint32_t, UPDATE(uint32_t, add_pair(old, b, add_bf16_bits)))

static const struct {
    const char *key;
    ptx_exec_fn *exec;
} rows[] = {
    {"add.u32", add_32},      {"add.s32", add_32},        {"add.u64", add_64},  {"add.s64", add_64},
    {"add.f32", add_f32},     {"add.f64", add_f64},       {"add.f16", add_f16}, {"add.bf16", add_bf16},
    {"add.f16x2", add_f16x2}, {"add.bf16x2", add_bf16x2}, {"and.b32", and_32},  {"or.b32", or_32},
    {"xor.b32", xor_32},      {"exch.b32", exch_32},      {"and.b64", and_64},  {"or.b64", or_64},
    {"xor.b64", xor_64},      {"exch.b64", exch_64},      {"cas.b16", cas_16},  {"cas.b32", cas_32},
    {"cas.b64", cas_64},      {"exch.b16", exch_16},      {"min.u32", min_u32}, {"min.s32", min_s32},
    {"min.u64", min_u64},     {"min.s64", min_s64},       {"max.u32", max_u32}, {"max.s32", max_s32},
    {"max.u64", max_u64},     {"max.s64", max_s64},       {"inc.u32", inc_u32}, {"dec.u32", dec_u32},
};

ptx_exec_fn *flyt_ptx_atomic_find(const char *key)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].key, key))
            return rows[i].exec;
    return NULL;
}
