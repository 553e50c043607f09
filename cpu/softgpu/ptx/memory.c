/*
 * What memory a lane may use, and the accesses that are not those of access.c: of fixed places, by cp.async, and atomic
 * ones.
 */
#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/half.h"

#include <math.h>
#include <string.h>

enum { READABLE = 1, WRITABLE = 2 };

/* ---- checks ---- */

/* Is [address, address + bytes) device memory with `need`? Not crossing granules except where both are mapped. */
static bool check_device(struct ptx_warp *w, uint64_t address, uint64_t bytes, uint8_t need)
{
    const struct flyt_ptx_memory *memory = w->run->memory;

    for (unsigned tried = 0; tried < memory->region_count; tried++) {
        unsigned index = w->region;
        const struct flyt_ptx_region *region = &memory->regions[index];
        uint64_t first = (address - region->base) >> memory->granule_shift;
        uint64_t last = (address + bytes - 1 - region->base) >> memory->granule_shift;

        if (address >= region->base && first < region->granule_count && last < region->granule_count && last >= first) {
            for (; first <= last; first++)
                if ((atomic_load_explicit(&region->mapped[first], memory_order_relaxed) & need) != need)
                    return false;
            return true;
        }
        w->region = index + 1 < memory->region_count ? index + 1 : 0;
    }
    return false;
}

/* Bytes of the window-based memories that a lane may use; NULL where the space has no such place. */
static char *window_place(const struct ptx_warp *w, unsigned lane, enum ptx_space space, uint64_t offset,
                          unsigned bytes, bool is_write)
{
    const struct ptx_run *run = w->run;
    uint64_t room;
    char *base;

    switch (space) {
    case PTX_SPACE_SHARED:
        room = run->shared_bytes;
        base = w->block->shared;
        break;
    case PTX_SPACE_LOCAL:
        room = run->stack_bytes;
        base = w->local + (size_t)lane * run->stack_bytes;
        break;
    default:
        room = run->launch->module->kernels[run->launch->kernel_index].params_bytes;
        base = is_write ? NULL : (char *)(uintptr_t)run->launch->params;
        break;
    }
    return base && offset <= room && bytes <= room - offset ? base + offset : NULL;
}

/* A generic address in one of the engine's windows: the space and the offset in it. */
static enum ptx_space find_window(uint64_t address, uint64_t *ret_offset)
{
    if (address - PTX_SHARED_BASE < PTX_WINDOW_BYTES) {
        *ret_offset = address - PTX_SHARED_BASE;
        return PTX_SPACE_SHARED;
    }
    if (address - PTX_LOCAL_BASE < PTX_WINDOW_BYTES) {
        *ret_offset = address - PTX_LOCAL_BASE;
        return PTX_SPACE_LOCAL;
    }
    if (address - PTX_PARAM_BASE < PTX_WINDOW_BYTES) {
        *ret_offset = address - PTX_PARAM_BASE;
        return PTX_SPACE_PARAM;
    }
    return PTX_SPACE_GLOBAL;
}

char *flyt_ptx_address(struct ptx_warp *w, unsigned lane, enum ptx_space space, uint64_t address, unsigned bytes,
                       bool is_write)
{
    uint64_t offset = space == PTX_SPACE_PARAM ? address - PTX_PARAM_BASE : address;
    char *place;

    if (address & (bytes - 1)) {
        flyt_ptx_warp_fault(w, CUDA_ERROR_MISALIGNED_ADDRESS);
        return NULL;
    }
    if (space == PTX_SPACE_SHARED) /* 32-bit addresses may have been extended with their sign */
        offset &= UINT32_MAX;
    if (space == PTX_SPACE_GENERIC)
        space = find_window(address, &offset);
    if (space == PTX_SPACE_GLOBAL || space == PTX_SPACE_CONST)
        place = check_device(w, address, bytes, is_write ? READABLE | WRITABLE : READABLE) ? (char *)(uintptr_t)address
                                                                                           : NULL;
    else
        place = window_place(w, lane, space, offset, bytes, is_write);
    if (!place)
        flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
    return place;
}

char *flyt_ptx_shared_address(struct ptx_warp *w, unsigned lane, enum ptx_space space, uint64_t address, unsigned bytes,
                              bool is_write)
{
    uint64_t offset;

    if (space == PTX_SPACE_GENERIC && find_window(address, &offset) != PTX_SPACE_SHARED) {
        flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
        return NULL;
    }
    return flyt_ptx_address(w, lane, space, address, bytes, is_write);
}

char *flyt_ptx_span(struct ptx_warp *w, enum ptx_space space, uint64_t address, uint64_t bytes, bool is_write)
{
    uint64_t offset = address;

    if (space == PTX_SPACE_GENERIC)
        space = find_window(address, &offset);
    if (space == PTX_SPACE_SHARED) {
        uint64_t room = w->run->shared_bytes;

        return offset <= room && bytes <= room - offset ? w->block->shared + offset : NULL;
    }
    if (space != PTX_SPACE_GLOBAL && space != PTX_SPACE_CONST)
        return NULL;
    return check_device(w, address, bytes, is_write ? READABLE | WRITABLE : READABLE) ? (char *)(uintptr_t)address
                                                                                      : NULL;
}

/* ---- fixed places: parameters of kernels, and the frame's own local memory ---- */

/* One element from `from` into a register lane of register_bytes, extended as `is_signed` says. */
static void widen(void *to, const char *from, unsigned bytes, unsigned register_bytes, bool is_signed)
{
    uint64_t value = 0;

    memcpy(&value, from, bytes);
    if (is_signed && bytes < 8 && value >> (bytes * 8 - 1) & 1)
        value |= UINT64_MAX << bytes * 8;
    memcpy(to, &value, register_bytes);
}

/* One value into a register's running lanes. */
static void spread(const struct ptx_warp *w, void *to, uint64_t value, unsigned register_bytes)
{
    uint16_t *halves = to;
    uint32_t *words = to;
    uint64_t *doubles = to;

    if (register_bytes == sizeof *words && w->mask == PTX_ALL_LANES)
        for (unsigned i = 0; i < PTX_LANES; i++)
            words[i] = (uint32_t)value;
    else if (register_bytes == sizeof *doubles && w->mask == PTX_ALL_LANES)
        for (unsigned i = 0; i < PTX_LANES; i++)
            doubles[i] = value;
    else
        PTX_EACH_LANE(lane, w->mask)
    if (register_bytes == sizeof *halves)
        halves[lane] = (uint16_t)value;
    else if (register_bytes == sizeof *words)
        words[lane] = (uint32_t)value;
    else
        doubles[lane] = value;
}

/* op[0 …] results, imm the offset in the launch's parameters; the same for all lanes. */
const struct ptx_insn *flyt_ptx_exec_load_param(struct ptx_warp *w, const struct ptx_insn *in)
{
    unsigned bytes = in->aux & 0xff, register_bytes = in->aux >> 9;
    const char *from = (const char *)w->run->launch->params + in->imm;

    for (unsigned e = 0; e < in->extra; e++) {
        uint64_t value;

        if (in->op[e] == PTX_NO_OP)
            continue;
        widen(&value, from + e * bytes, bytes, sizeof value, in->aux >> 8 & 1);
        spread(w, ptx_lanes(w, in->op[e]), value, register_bytes);
    }
    return in + 1;
}

const struct ptx_insn *flyt_ptx_exec_load_frame(struct ptx_warp *w, const struct ptx_insn *in)
{
    unsigned bytes = in->aux & 0xff, register_bytes = in->aux >> 9;
    const char *from = w->local + w->frame->local_base + in->imm;

    for (unsigned e = 0; e < in->extra; e++) {
        char *d;

        if (in->op[e] == PTX_NO_OP)
            continue;
        d = ptx_lanes(w, in->op[e]);
        PTX_EACH_LANE(lane, w->mask)
        widen(d + lane * register_bytes, from + (size_t)lane * w->run->stack_bytes + e * bytes, bytes, register_bytes,
              in->aux >> 8 & 1);
    }
    return in + 1;
}

const struct ptx_insn *flyt_ptx_exec_store_frame(struct ptx_warp *w, const struct ptx_insn *in)
{
    unsigned bytes = in->aux & 0xff, register_bytes = in->aux >> 9;
    char *to = w->local + w->frame->local_base + in->imm;

    for (unsigned e = 0; e < in->extra; e++) {
        const char *a = ptx_lanes(w, in->op[e]);

        PTX_EACH_LANE(lane, w->mask)
        memcpy(to + (size_t)lane * w->run->stack_bytes + e * bytes, a + lane * register_bytes, bytes);
    }
    return in + 1;
}

/* ---- the rest ---- */

const struct ptx_insn *flyt_ptx_exec_fence(struct ptx_warp *w, const struct ptx_insn *in)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return in + 1;
}

/* Nothing to do: hints. */
const struct ptx_insn *flyt_ptx_exec_prefetch(struct ptx_warp *w, const struct ptx_insn *in)
{
    return in + 1;
}

/* isspacep: op[0] result, op[1] generic address, aux the space. */
const struct ptx_insn *flyt_ptx_exec_is_space(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint64_t *a = ptx_lanes(w, in->op[1]);
    uint32_t truth = 0;

    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t offset;

        truth |= (uint32_t)(find_window(a[lane], &offset) == (enum ptx_space)in->aux) << lane;
    }
    ptx_set_pred(w, in->op[0], truth);
    return in + 1;
}

/* cp.async: see its lowering. */
const struct ptx_insn *flyt_ptx_exec_copy_async(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint64_t *to = ptx_lanes(w, in->op[0]), *from = ptx_lanes(w, in->op[1]);
    const uint32_t *read_bytes = in->op[2] == PTX_NO_OP ? NULL : ptx_lanes(w, in->op[2]);
    uint32_t ignoring = in->op[3] == PTX_NO_OP ? 0 : ptx_pred(w, in->op[3]);

    PTX_EACH_LANE(lane, w->mask)
    {
        uint32_t wanted = ignoring >> lane & 1                       ? 0
                          : read_bytes && read_bytes[lane] < in->aux ? read_bytes[lane]
                                                                     : in->aux;
        char *d = flyt_ptx_address(w, lane, PTX_SPACE_SHARED, to[lane] + (uint64_t)(int32_t)in->imm, in->aux, true);
        const char *s =
            wanted ? flyt_ptx_address(w, lane, PTX_SPACE_GLOBAL, from[lane] + (uint64_t)(in->imm >> 32), in->aux, false)
                   : "";

        if (!d || !s)
            return NULL;
        memcpy(d, s, wanted);
        memset(d + wanted, 0, in->aux - wanted);
    }
    return in + 1;
}

/*
 * ---- atomic operations ----
 *
 * atom and red: op[0] the old value or none, op[1] base, op[2] and op[3] values; imm the offset, aux the space. One
 * lane after the other, each with a sequentially consistent operation on the memory itself: they are atomic against
 * all other threads of this process, the host's included.
 */

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
