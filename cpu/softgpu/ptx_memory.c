/*
 * Loads and stores. Each access of a warp first turns 32 addresses into places in this process, checking all of them
 * at once where they lie close together, and only then moves data.
 */
#include "cpu/softgpu/ptx_exec.h"
#include "cpu/softgpu/ptx_lanes.h"

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

/* What the 32 addresses of an access have turned out to be. */
struct places {
    char *at[PTX_LANES]; /* valid for the lanes that run */
    bool is_dense;       /* all lanes run, and lane i is `bytes` × i behind lane 0 */
};

/* Device or shared memory, all lanes running and close together: one check does for all. */
static bool find_together(struct ptx_warp *w, enum ptx_space space, const uint64_t addresses[PTX_LANES], unsigned bytes,
                          bool is_write, struct places *places)
{
    uint64_t low = UINT64_MAX, high = 0, bits = 0, first = addresses[0], scattered = 0;
    char *base;

    for (unsigned i = 0; i < PTX_LANES; i++) {
        low = addresses[i] < low ? addresses[i] : low;
        high = addresses[i] > high ? addresses[i] : high;
        bits |= addresses[i];
        scattered |= addresses[i] - (first + (uint64_t)i * bytes);
    }
    if ((bits & (bytes - 1)) || high - low > 1u << 20)
        return false;
    if (space == PTX_SPACE_SHARED) {
        if (high > w->run->shared_bytes || w->run->shared_bytes - high < bytes)
            return false;
        base = w->block->shared;
    } else if ((space == PTX_SPACE_GENERIC && low < PTX_WINDOWS_END) ||
               !check_device(w, low, high - low + bytes, is_write ? READABLE | WRITABLE : READABLE)) {
        return false;
    } else {
        base = NULL;
    }
    PTX_FOR_LANES places->at[i] = (char *)((uintptr_t)base + addresses[i]);
    places->is_dense = !scattered;
    return true;
}

/* Where op[4] + imm points in each running lane, for accesses of `bytes`. False after a fault. */
static bool find_places(struct ptx_warp *w, const struct ptx_insn *in, unsigned bytes, bool is_write,
                        struct places *places)
{
    const uint64_t *base = ptx_lanes(w, in->op[4]);
    enum ptx_space space = in->aux;
    uint64_t addresses[PTX_LANES];

    PTX_FOR_LANES addresses[i] = base[i] + (uint64_t)in->imm;
    places->is_dense = false;
    if (w->mask == PTX_ALL_LANES && space != PTX_SPACE_LOCAL && space != PTX_SPACE_PARAM &&
        find_together(w, space, addresses, bytes, is_write, places))
        return true;
    PTX_EACH_LANE(lane, w->mask)
    {
        places->at[lane] = flyt_ptx_address(w, lane, space, addresses[lane], bytes, is_write);
        if (!places->at[lane])
            return false;
    }
    return true;
}

static void order_before(const struct ptx_insn *in)
{
    if (in->flags & PTX_INSN_RELEASE)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void order_after(const struct ptx_insn *in)
{
    if (in->flags & PTX_INSN_ACQUIRE)
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* ---- loads and stores ---- */

/* X(name, type in memory, type in the register): memory types carry the sign. */
// clang-format off
#define LOADS \
    X(load_u8_2, uint8_t, uint16_t) \
    X(load_s8_2, int8_t, uint16_t) \
    X(load_u8_4, uint8_t, uint32_t) \
    X(load_s8_4, int8_t, uint32_t) \
    X(load_u8_8, uint8_t, uint64_t) \
    X(load_s8_8, int8_t, uint64_t) \
    X(load_u16_2, uint16_t, uint16_t) \
    X(load_u16_4, uint16_t, uint32_t) \
    X(load_s16_4, int16_t, uint32_t) \
    X(load_u16_8, uint16_t, uint64_t) \
    X(load_s16_8, int16_t, uint64_t) \
    X(load_u32_4, uint32_t, uint32_t) \
    X(load_u32_8, uint32_t, uint64_t) \
    X(load_s32_8, int32_t, uint64_t) \
    X(load_u64_8, uint64_t, uint64_t)
// clang-format on

/* Volatile, so that each element is read once and whole, as other threads may be writing it. */
#define X(name, M, R)                                                                                                  \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        struct places places;                                                                                          \
        if (!find_places(w, in, sizeof(M) * in->extra, false, &places))                                                \
            return NULL;                                                                                               \
        for (unsigned e = 0; e < in->extra; e++) {                                                                     \
            R *d;                                                                                                      \
            if (in->op[e] == PTX_NO_OP)                                                                                \
                continue;                                                                                              \
            d = ptx_lanes(w, in->op[e]);                                                                               \
            if (places.is_dense && in->extra == 1) {                                                                   \
                const M *from = (const M *)(const void *)places.at[0];                                                 \
                PTX_FOR_LANES d[i] = (R)from[i];                                                                       \
            } else if (w->mask == PTX_ALL_LANES) {                                                                     \
                for (unsigned i = 0; i < PTX_LANES; i++)                                                               \
                    d[i] = (R)((const volatile M *)(void *)places.at[i])[e];                                           \
            } else {                                                                                                   \
                PTX_EACH_LANE(lane, w->mask)                                                                           \
                d[lane] = (R)((const volatile M *)(void *)places.at[lane])[e];                                         \
            }                                                                                                          \
        }                                                                                                              \
        order_after(in);                                                                                               \
        return in + 1;                                                                                                 \
    }
LOADS
#undef X

// clang-format off
#define STORES \
    X(store_8_2, uint8_t, uint16_t) \
    X(store_16_2, uint16_t, uint16_t) \
    X(store_32_4, uint32_t, uint32_t) \
    X(store_64_8, uint64_t, uint64_t)
// clang-format on

#define X(name, M, R)                                                                                                  \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        struct places places;                                                                                          \
        if (!find_places(w, in, sizeof(M) * in->extra, true, &places))                                                 \
            return NULL;                                                                                               \
        order_before(in);                                                                                              \
        for (unsigned e = 0; e < in->extra; e++) {                                                                     \
            const R *a = ptx_lanes(w, in->op[e]);                                                                      \
            if (places.is_dense && in->extra == 1) {                                                                   \
                M *to = (M *)(void *)places.at[0];                                                                     \
                PTX_FOR_LANES to[i] = (M)a[i];                                                                         \
            } else {                                                                                                   \
                PTX_EACH_LANE(lane, w->mask)                                                                           \
                ((volatile M *)(void *)places.at[lane])[e] = (M)a[lane];                                               \
            }                                                                                                          \
        }                                                                                                              \
        return in + 1;                                                                                                 \
    }
STORES
#undef X

ptx_exec_fn *flyt_ptx_load_find(uint8_t memory_bytes, uint8_t register_bytes, bool is_signed)
{
#define X(name, M, R)                                                                                                  \
    if (sizeof(M) == memory_bytes && sizeof(R) == register_bytes &&                                                    \
        (sizeof(M) == sizeof(R) || ((M) ~(M)0 < (M)1) == is_signed))                                                   \
        return name;
    LOADS
#undef X
    return NULL;
}

ptx_exec_fn *flyt_ptx_store_find(uint8_t memory_bytes, uint8_t register_bytes)
{
#define X(name, M, R)                                                                                                  \
    if (sizeof(M) == memory_bytes && sizeof(R) == register_bytes)                                                      \
        return name;
    STORES
#undef X
    return NULL;
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

/* op[0 …] results, imm the offset in the launch's parameters; the same for all lanes. */
const struct ptx_insn *flyt_ptx_exec_load_param(struct ptx_warp *w, const struct ptx_insn *in)
{
    unsigned bytes = in->aux & 0xff, register_bytes = in->aux >> 9;
    const char *from = (const char *)w->run->launch->params + in->imm;

    for (unsigned e = 0; e < in->extra; e++) {
        char *d;

        if (in->op[e] == PTX_NO_OP)
            continue;
        d = ptx_lanes(w, in->op[e]);
        PTX_EACH_LANE(lane, w->mask)
        widen(d + lane * register_bytes, from + e * bytes, bytes, register_bytes, in->aux >> 8 & 1);
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

    PTX_EACH_LANE(lane, w->mask)
    {
        uint32_t wanted = read_bytes && read_bytes[lane] < in->aux ? read_bytes[lane] : in->aux;
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
