/*
 * Loads and stores. Each access of a warp first turns 32 addresses into places in this process, checking all of them
 * at once where they lie close together, and only then moves data.
 *
 * Most accesses are regular: the lanes of each row of eight use consecutive places, or all the same one. So do threads
 * of a line, of a tile that is 8, 16 or 32 threads wide, and those that share a value. They have four places instead of
 * 32, and move whole rows. Everything else goes apart, lane by lane.
 */
#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"

enum { ROW = PTX_ROW, ROWS = PTX_ROWS, CHUNK_BYTES = 32 };

/* Addresses further apart are checked one by one: a check of the whole looks at each granule between them. */
static const uint64_t together_bytes = 16u << 20;

#define INLINE static inline __attribute__((always_inline))

/* ---- regular accesses ---- */

#ifdef __AVX2__
#include <immintrin.h>
#define IS_ZERO(chunk) (_mm256_testz_si256((__m256i)(chunk), (__m256i)(chunk)))
#else
#define IS_ZERO(chunk) is_zero(&(chunk))
static inline bool is_zero(const void *chunk)
{
    uint64_t words[CHUNK_BYTES / 8];

    memcpy(words, chunk, sizeof words);
    return !(words[0] | words[1] | words[2] | words[3]);
}
#endif

/* The shape of 32 addresses, by their differences, in vectors of 32 bytes. */
#define FIND_SHAPE(T)                                                                                                  \
    INLINE enum ptx_shape find_shape_##T(const T *addresses, unsigned bytes)                                           \
    {                                                                                                                  \
        enum { LANES = CHUNK_BYTES / sizeof(T) };                                                                      \
        typedef T chunk __attribute__((vector_size(CHUNK_BYTES), may_alias));                                          \
        const chunk *chunks = (const chunk *)(const void *)addresses;                                                  \
        chunk first_steps, not_consecutive = {0}, not_equal = {0};                                                     \
        for (unsigned i = 0; i < LANES; i++)                                                                           \
            first_steps[i] = (T)(i * bytes);                                                                           \
        for (unsigned lane = 0; lane < PTX_LANES; lane += LANES) {                                                     \
            chunk steps = chunks[lane / LANES] - addresses[lane / ROW * ROW];                                          \
            not_equal |= steps;                                                                                        \
            not_consecutive |= steps ^ (first_steps + (T)(lane % ROW * bytes));                                        \
        }                                                                                                              \
        return IS_ZERO(not_consecutive) ? PTX_CONSECUTIVE : IS_ZERO(not_equal) ? PTX_EQUAL : PTX_IRREGULAR;            \
    }
FIND_SHAPE(uint32_t)
FIND_SHAPE(uint64_t)

/*
 * How the addresses of 32 lanes lie. Rows that are not aligned to each other are irregular, too.
 * is_narrow: in->flags has PTX_INSN_NARROW, addresses are 32-bit ones of shared memory.
 */
INLINE void describe_base(const struct ptx_warp *w, const struct ptx_insn *in, unsigned bytes, bool is_narrow,
                          struct ptx_base *base)
{
    const void *addresses = ptx_lanes(w, in->op[4]);
    const uint32_t *narrow = addresses;
    const uint64_t *wide = addresses;
    enum ptx_shape shape = is_narrow ? find_shape_uint32_t(addresses, bytes) : find_shape_uint64_t(addresses, bytes);
    uint64_t a = is_narrow ? narrow[0] : wide[0], b = is_narrow ? narrow[ROW] : wide[ROW];
    uint64_t c = is_narrow ? narrow[2 * ROW] : wide[2 * ROW], d = is_narrow ? narrow[3 * ROW] : wide[3 * ROW];
    uint64_t ab = a < b ? a : b, cd = c < d ? c : d, low = ab < cd ? ab : cd, high;

    ab = a > b ? a : b;
    cd = c > d ? c : d;
    high = ab > cd ? ab : cd;
    base->shape = ((a ^ b) | (a ^ c) | (a ^ d)) & (bytes - 1) ? PTX_IRREGULAR : shape;
    base->low = low;
    base->span_bytes = high - low + (shape == PTX_CONSECUTIVE ? ROW * bytes : bytes);
    base->row[0] = a - low;
    base->row[1] = b - low;
    base->row[2] = c - low;
    base->row[3] = d - low;
    base->room_bytes = 0;
    if (is_narrow && base->span_bytes > w->run->shared_bytes)
        base->shape = PTX_IRREGULAR;
    else if (is_narrow)
        base->room_bytes = w->run->shared_bytes - base->span_bytes;
}

/* The rows' places behind a regular base; false where not all of them may be accessed. */
INLINE bool place_rows(struct ptx_warp *w, const struct ptx_insn *in, unsigned bytes, bool is_write, bool is_narrow,
                       const struct ptx_base *base, char *rows[ROWS])
{
    uint64_t low = base->low + (uint64_t)in->imm;
    char *place = NULL;

    if (low & (bytes - 1))
        return false;
    if (is_narrow)
        place = low <= base->room_bytes ? w->block->shared + low : NULL;
    else if (base->span_bytes <= together_bytes)
        place = flyt_ptx_span(w, in->aux, low, base->span_bytes, is_write);
    if (!place)
        return false;
    rows[0] = place + base->row[0];
    rows[1] = place + base->row[1];
    rows[2] = place + base->row[2];
    rows[3] = place + base->row[3];
    return true;
}

/*
 * The rows' places where all lanes run, are regular and may all be accessed; else PTX_IRREGULAR, and it is for the
 * apart ones to find out.
 */
INLINE enum ptx_shape find_rows(struct ptx_warp *w, const struct ptx_insn *in, unsigned bytes, bool is_write,
                                bool is_narrow, char *rows[ROWS])
{
    struct ptx_base base = {.shape = PTX_IRREGULAR};

    if (w->mask == PTX_ALL_LANES)
        describe_base(w, in, bytes, is_narrow, &base);
    if (in->flags & PTX_INSN_KEEPS)
        w->bases[in->base] = base;
    if (base.shape == PTX_IRREGULAR || !place_rows(w, in, bytes, is_write, is_narrow, &base, rows))
        return PTX_IRREGULAR;
    return base.shape;
}

/*
 * As find_rows, where another access has kept the base: that of these same lanes, as all that are here came through it,
 * and the last of them behind whatever other lanes of the warp kept in between.
 */
INLINE enum ptx_shape find_kept_rows(struct ptx_warp *w, const struct ptx_insn *in, unsigned bytes, bool is_write,
                                     bool is_narrow, char *rows[ROWS])
{
    const struct ptx_base *base = &w->bases[in->base];

    if (w->mask != PTX_ALL_LANES || base->shape == PTX_IRREGULAR ||
        !place_rows(w, in, bytes, is_write, is_narrow, base, rows))
        return PTX_IRREGULAR;
    return base->shape;
}

/* ---- lanes apart ---- */

/* Valid for the lanes that run. */
struct places {
    char *at[PTX_LANES];
};

/* Offsets of local memory, in [low, high]: each lane has its own. */
static bool find_local(const struct ptx_warp *w, const uint64_t offsets[PTX_LANES], uint64_t high, unsigned bytes,
                       struct places *places)
{
    uint64_t room = w->run->stack_bytes;

    if (high > room || bytes > room - high)
        return false;
    PTX_FOR_LANES places->at[i] = w->local + i * room + offsets[i];
    return true;
}

/* Any lanes, at any addresses. False after a fault. */
static bool find_places(struct ptx_warp *w, const struct ptx_insn *in, unsigned bytes, bool is_write,
                        struct places *places)
{
    const void *base = ptx_lanes(w, in->op[4]);
    uint64_t addresses[PTX_LANES], first, low, high, bits = 0;
    const uint32_t mask = w->mask;
    enum ptx_space space = in->aux;

    if (in->flags & PTX_INSN_NARROW)
        PTX_FOR_LANES addresses[i] = ((const uint32_t *)base)[i] + (uint64_t)in->imm;
    else
        PTX_FOR_LANES addresses[i] = ((const uint64_t *)base)[i] + (uint64_t)in->imm;
    if (space == PTX_SPACE_SHARED)
        PTX_FOR_LANES addresses[i] = (uint32_t)addresses[i];
    first = addresses[__builtin_ctz(mask)];
    if (mask != PTX_ALL_LANES) /* lanes that do not run must not matter */
        PTX_FOR_LANES addresses[i] = PTX_BIT(mask) ? addresses[i] : first;
    low = high = first;
    for (unsigned i = 0; i < PTX_LANES; i++) {
        low = addresses[i] < low ? addresses[i] : low;
        high = addresses[i] > high ? addresses[i] : high;
        bits |= addresses[i];
    }
    if (space == PTX_SPACE_GENERIC && low - PTX_LOCAL_BASE < PTX_WINDOW_BYTES &&
        high - PTX_LOCAL_BASE < PTX_WINDOW_BYTES) {
        PTX_FOR_LANES addresses[i] -= PTX_LOCAL_BASE;
        high -= PTX_LOCAL_BASE;
        space = PTX_SPACE_LOCAL;
    }
    if (space == PTX_SPACE_LOCAL && !(bits & (bytes - 1))) {
        if (find_local(w, addresses, high, bytes, places))
            return true;
    } else if (high - low <= together_bytes && !(bits & (bytes - 1))) {
        char *place = flyt_ptx_span(w, space, low, high - low + bytes, is_write);

        if (place) {
            PTX_FOR_LANES places->at[i] = place + (addresses[i] - low);
            return true;
        }
    }
    PTX_EACH_LANE(lane, mask)
    {
        places->at[lane] = flyt_ptx_address(w, lane, space, addresses[lane], bytes, is_write);
        if (!places->at[lane])
            return false;
    }
    return true;
}

static inline void order_before(const struct ptx_insn *in)
{
    if (in->flags & PTX_INSN_RELEASE)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void order_after(const struct ptx_insn *in)
{
    if (in->flags & PTX_INSN_ACQUIRE)
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* ---- moving data ---- */

/* X(name, type in memory, type in the register, key): memory types carry the sign. */
// clang-format off
#define LOADS(X) \
    X(u8_16, uint8_t, uint16_t, "u8.16") \
    X(s8_16, int8_t, uint16_t, "s8.16") \
    X(u8_32, uint8_t, uint32_t, "u8.32") \
    X(s8_32, int8_t, uint32_t, "s8.32") \
    X(u8_64, uint8_t, uint64_t, "u8.64") \
    X(s8_64, int8_t, uint64_t, "s8.64") \
    X(u16_16, uint16_t, uint16_t, "u16.16") \
    X(u16_32, uint16_t, uint32_t, "u16.32") \
    X(s16_32, int16_t, uint32_t, "s16.32") \
    X(u16_64, uint16_t, uint64_t, "u16.64") \
    X(s16_64, int16_t, uint64_t, "s16.64") \
    X(u32_32, uint32_t, uint32_t, "u32.32") \
    X(u32_64, uint32_t, uint64_t, "u32.64") \
    X(s32_64, int32_t, uint64_t, "s32.64") \
    X(u64_64, uint64_t, uint64_t, "u64.64")
#define STORES(X) \
    X(u8_16, uint8_t, uint16_t, "u8.16") \
    X(u16_16, uint16_t, uint16_t, "u16.16") \
    X(u32_32, uint32_t, uint32_t, "u32.32") \
    X(u64_64, uint64_t, uint64_t, "u64.64")
// clang-format on

/*
 * Elements are read and written once and whole, as other threads may be using them: volatile where they move alone, and
 * vectors' elements are moved whole by processors, too.
 *
 * What all lanes load goes to its register in pieces of two rows: an instruction that reads such a piece at once would
 * wait for smaller ones to leave the processor's store buffer.
 */
#define PUT_TWO_ROWS(R, d, first, second)                                                                              \
    do {                                                                                                               \
        R two_rows_ __attribute__((vector_size(2 * ROW * sizeof(R)))) =                                                \
            __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);              \
        memcpy(d, &two_rows_, sizeof two_rows_);                                                                       \
    } while (0)

/* Element e of `count` per lane; `shape` and `count` are known where it is expanded. */
#define LOAD(name, M, R, key)                                                                                          \
    typedef R row_##name __attribute__((vector_size(ROW * sizeof(R))));                                                \
    INLINE void load_row_##name(row_##name *row, enum ptx_shape shape, const char *place, unsigned e, unsigned count)  \
    {                                                                                                                  \
        const M *from = (const M *)(const void *)place + e;                                                            \
        if (shape == PTX_CONSECUTIVE && count == 1) {                                                                  \
            M in_memory __attribute__((vector_size(ROW * sizeof(M))));                                                 \
            memcpy(&in_memory, from, sizeof in_memory);                                                                \
            *row = __builtin_convertvector(in_memory, row_##name);                                                     \
        } else if (shape == PTX_CONSECUTIVE) {                                                                         \
            for (unsigned i = 0; i < ROW; i++)                                                                         \
                (*row)[i] = (R)from[i * count];                                                                        \
        } else {                                                                                                       \
            *row = (row_##name){0} + (R) * (const volatile M *)from;                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void load_rows_##name(R *d, enum ptx_shape shape, char *const rows[ROWS], unsigned e, unsigned count)       \
    {                                                                                                                  \
        for (unsigned row = 0; row < ROWS; row += 2) {                                                                 \
            row_##name first, second;                                                                                  \
            load_row_##name(&first, shape, rows[row], e, count);                                                       \
            load_row_##name(&second, shape, rows[row + 1], e, count);                                                  \
            PUT_TWO_ROWS(R, d + row * ROW, first, second);                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    static __attribute__((noinline))                                                                                   \
    const struct ptx_insn *load_apart_##name(struct ptx_warp *w, const struct ptx_insn *in)                            \
    {                                                                                                                  \
        struct places places;                                                                                          \
        if (!find_places(w, in, sizeof(M) * in->extra, false, &places))                                                \
            return NULL;                                                                                               \
        for (unsigned e = 0; e < in->extra; e++) {                                                                     \
            R *d;                                                                                                      \
            if (in->op[e] == PTX_NO_OP)                                                                                \
                continue;                                                                                              \
            d = ptx_lanes(w, in->op[e]);                                                                               \
            if (w->mask != PTX_ALL_LANES) {                                                                            \
                PTX_EACH_LANE(lane, w->mask)                                                                           \
                d[lane] = (R)((const volatile M *)(void *)places.at[lane])[e];                                         \
                continue;                                                                                              \
            }                                                                                                          \
            for (unsigned lane = 0; lane < PTX_LANES; lane += 2 * ROW) {                                               \
                row_##name first, second;                                                                              \
                for (unsigned i = 0; i < ROW; i++) {                                                                   \
                    first[i] = (R)((const volatile M *)(void *)places.at[lane + i])[e];                                \
                    second[i] = (R)((const volatile M *)(void *)places.at[lane + ROW + i])[e];                         \
                }                                                                                                      \
                PUT_TWO_ROWS(R, d + lane, first, second);                                                              \
            }                                                                                                          \
        }                                                                                                              \
        return in + 1;                                                                                                 \
    }                                                                                                                  \
    INLINE const struct ptx_insn *load_regular_##name(struct ptx_warp *w, const struct ptx_insn *in,                   \
                                                      enum ptx_shape shape, char *const rows[ROWS])                    \
    {                                                                                                                  \
        if (shape == PTX_IRREGULAR)                                                                                    \
            return load_apart_##name(w, in);                                                                           \
        if (shape == PTX_CONSECUTIVE)                                                                                  \
            load_rows_##name(ptx_register(w, in->op[0]), PTX_CONSECUTIVE, rows, 0, 1);                                 \
        else                                                                                                           \
            load_rows_##name(ptx_register(w, in->op[0]), PTX_EQUAL, rows, 0, 1);                                       \
        return in + 1;                                                                                                 \
    }                                                                                                                  \
    static const struct ptx_insn *load_##name(struct ptx_warp *w, const struct ptx_insn *in)                           \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        const struct ptx_insn *next =                                                                                  \
            load_regular_##name(w, in, find_rows(w, in, sizeof(M), false, false, rows), rows);                         \
        order_after(in);                                                                                               \
        return next;                                                                                                   \
    }                                                                                                                  \
    static const struct ptx_insn *load_shared_##name(struct ptx_warp *w, const struct ptx_insn *in)                    \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        const struct ptx_insn *next =                                                                                  \
            load_regular_##name(w, in, find_rows(w, in, sizeof(M), false, true, rows), rows);                          \
        order_after(in);                                                                                               \
        return next;                                                                                                   \
    }                                                                                                                  \
    static const struct ptx_insn *load_kept_##name(struct ptx_warp *w, const struct ptx_insn *in)                      \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        return load_regular_##name(w, in, find_kept_rows(w, in, sizeof(M), false, false, rows), rows);                 \
    }                                                                                                                  \
    static const struct ptx_insn *load_shared_kept_##name(struct ptx_warp *w, const struct ptx_insn *in)               \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        return load_regular_##name(w, in, find_kept_rows(w, in, sizeof(M), false, true, rows), rows);                  \
    }                                                                                                                  \
    static const struct ptx_insn *load_vector_##name(struct ptx_warp *w, const struct ptx_insn *in)                    \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        enum ptx_shape shape = in->flags & PTX_INSN_NARROW                                                             \
                                   ? find_rows(w, in, sizeof(M) * in->extra, false, true, rows)                        \
                                   : find_rows(w, in, sizeof(M) * in->extra, false, false, rows);                      \
        const struct ptx_insn *next = in + 1;                                                                          \
        if (shape == PTX_IRREGULAR)                                                                                    \
            next = load_apart_##name(w, in);                                                                           \
        for (unsigned e = 0; shape != PTX_IRREGULAR && e < in->extra; e++)                                             \
            if (in->op[e] != PTX_NO_OP && shape == PTX_EQUAL)                                                          \
                load_rows_##name(ptx_lanes(w, in->op[e]), PTX_EQUAL, rows, e, 1);                                      \
            else if (in->op[e] != PTX_NO_OP && in->extra == 2)                                                         \
                load_rows_##name(ptx_lanes(w, in->op[e]), PTX_CONSECUTIVE, rows, e, 2);                                \
            else if (in->op[e] != PTX_NO_OP)                                                                           \
                load_rows_##name(ptx_lanes(w, in->op[e]), PTX_CONSECUTIVE, rows, e, 4);                                \
        order_after(in);                                                                                               \
        return next;                                                                                                   \
    }
LOADS(LOAD)

/* Where lanes write to one place the last one's value stays. */
#define STORE_ROWS_AS(M, R, a, e, count)                                                                               \
    for (unsigned row = 0; row < ROWS; row++) {                                                                        \
        M *to = (M *)(void *)rows[row] + (e);                                                                          \
        if (shape == PTX_CONSECUTIVE && (count) == 1) {                                                                \
            R in_register __attribute__((vector_size(ROW * sizeof(R))));                                               \
            M in_memory __attribute__((vector_size(ROW * sizeof(M))));                                                 \
            memcpy(&in_register, (a) + row * ROW, sizeof in_register);                                                 \
            in_memory = __builtin_convertvector(in_register, __typeof__(in_memory));                                   \
            memcpy(to, &in_memory, sizeof in_memory);                                                                  \
        } else if (shape == PTX_CONSECUTIVE) {                                                                         \
            PTX_VECTOR for (unsigned i = 0; i < ROW; i++) to[i * (count)] = (M)(a)[row * ROW + i];                     \
        } else {                                                                                                       \
            *(volatile M *)to = (M)(a)[row * ROW + ROW - 1];                                                           \
        }                                                                                                              \
    }

#define STORE(name, M, R, key)                                                                                         \
    static __attribute__((noinline))                                                                                   \
    const struct ptx_insn *store_apart_##name(struct ptx_warp *w, const struct ptx_insn *in)                           \
    {                                                                                                                  \
        struct places places;                                                                                          \
        if (!find_places(w, in, sizeof(M) * in->extra, true, &places))                                                 \
            return NULL;                                                                                               \
        order_before(in);                                                                                              \
        for (unsigned e = 0; e < in->extra; e++) {                                                                     \
            const R *a = ptx_lanes(w, in->op[e]);                                                                      \
            PTX_EACH_LANE(lane, w->mask)                                                                               \
            ((volatile M *)(void *)places.at[lane])[e] = (M)a[lane];                                                   \
        }                                                                                                              \
        return in + 1;                                                                                                 \
    }                                                                                                                  \
    INLINE const struct ptx_insn *store_regular_##name(struct ptx_warp *w, const struct ptx_insn *in,                  \
                                                       enum ptx_shape shape, char *const rows[ROWS])                   \
    {                                                                                                                  \
        const R *a;                                                                                                    \
        if (shape == PTX_IRREGULAR)                                                                                    \
            return store_apart_##name(w, in);                                                                          \
        order_before(in);                                                                                              \
        a = ptx_lanes(w, in->op[0]);                                                                                   \
        STORE_ROWS_AS(M, R, a, 0, 1)                                                                                   \
        return in + 1;                                                                                                 \
    }                                                                                                                  \
    static const struct ptx_insn *store_##name(struct ptx_warp *w, const struct ptx_insn *in)                          \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        return store_regular_##name(w, in, find_rows(w, in, sizeof(M), true, false, rows), rows);                      \
    }                                                                                                                  \
    static const struct ptx_insn *store_shared_##name(struct ptx_warp *w, const struct ptx_insn *in)                   \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        return store_regular_##name(w, in, find_rows(w, in, sizeof(M), true, true, rows), rows);                       \
    }                                                                                                                  \
    static const struct ptx_insn *store_kept_##name(struct ptx_warp *w, const struct ptx_insn *in)                     \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        return store_regular_##name(w, in, find_kept_rows(w, in, sizeof(M), true, false, rows), rows);                 \
    }                                                                                                                  \
    static const struct ptx_insn *store_shared_kept_##name(struct ptx_warp *w, const struct ptx_insn *in)              \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        return store_regular_##name(w, in, find_kept_rows(w, in, sizeof(M), true, true, rows), rows);                  \
    }                                                                                                                  \
    static const struct ptx_insn *store_vector_##name(struct ptx_warp *w, const struct ptx_insn *in)                   \
    {                                                                                                                  \
        char *rows[ROWS];                                                                                              \
        enum ptx_shape shape = in->flags & PTX_INSN_NARROW                                                             \
                                   ? find_rows(w, in, sizeof(M) * in->extra, true, true, rows)                         \
                                   : find_rows(w, in, sizeof(M) * in->extra, true, false, rows);                       \
        if (shape == PTX_IRREGULAR)                                                                                    \
            return store_apart_##name(w, in);                                                                          \
        order_before(in);                                                                                              \
        for (unsigned e = 0; e < in->extra; e++) {                                                                     \
            const R *a = ptx_lanes(w, in->op[e]);                                                                      \
            STORE_ROWS_AS(M, R, a, e, in->extra)                                                                       \
        }                                                                                                              \
        return in + 1;                                                                                                 \
    }
STORES(STORE)

/* ---- the table: lower_memory.c makes the keys ---- */

#define LOAD_KEYS(name, M, R, key)                                                                                     \
    {"$ld." key, load_##name, NULL}, {"$lds." key, load_shared_##name, NULL}, {"$ldv." key, load_vector_##name, NULL}, \
        {"$ldk." key, load_kept_##name, NULL}, {"$ldsk." key, load_shared_kept_##name, NULL},
#define STORE_KEYS(name, M, R, key)                                                                                    \
    {"$st." key, store_##name, NULL}, {"$sts." key, store_shared_##name, NULL},                                        \
        {"$stv." key, store_vector_##name, NULL}, {"$stk." key, store_kept_##name, NULL},                              \
        {"$stsk." key, store_shared_kept_##name, NULL},

static const struct ptx_op_row table_rows[] = {LOADS(LOAD_KEYS) STORES(STORE_KEYS)};

extern const struct ptx_op_table PTX_OP_TABLE(access);
const struct ptx_op_table PTX_OP_TABLE(access) = {table_rows, sizeof table_rows / sizeof *table_rows};
