/*
 * Matrices in the registers of a warp (matrix.h): their products, and moves between registers and memory.
 *
 * Each element of a product starts with c, to which the products are added in the order of k: of 16- and 8-bit floats
 * and tf32 in f32, where each product is exact; of f64 fused; of integers exactly. Hardware adds floats in an order,
 * and with some bits, that no manual tells.
 */
#include "cpu/softgpu/ptx/matrix.h"

#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/half.h"
#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"

#include <fenv.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

enum {
    N = PTX_BLOCK_ROWS,
    FLOAT_DEPTH = 16,  /* of a block, at most: of 8-bit floats */
    INTEGER_DEPTH = 32 /* of 4-bit integers */
};

#define INLINE static inline __attribute__((always_inline))

/* The first operand of each matrix: a, b, c, then d (flyt_ptx_lower_emit_wide: sources first). */
struct places {
    unsigned b, c, d, end;
};

static struct places find_places(const struct ptx_product *product)
{
    unsigned blocks = (unsigned)product->rows * product->columns;
    struct places places = {.b = (unsigned)product->rows * product->depth};

    places.c = places.b + (unsigned)product->columns * product->depth;
    places.d = places.c + blocks * ptx_block_registers(product->c);
    places.end = places.d + blocks * ptx_block_registers(product->d);
    return places;
}

/* Whether an accumulator's blocks are in pairs, and A's. */
static bool is_paired(const struct ptx_product *product)
{
    return product->rows > 1;
}

/* Writes what has been computed: `count` registers of 32 lanes of lane_bytes, from operand `first` on. */
static void write_results(const struct ptx_warp *w, const struct ptx_insn *in, unsigned first, unsigned count,
                          const void *results, unsigned lane_bytes)
{
    for (unsigned i = 0; i < count; i++) {
        char *d = ptx_wide_operand(w, in, first + i);
        const char *from = (const char *)results + (size_t)i * PTX_LANES * lane_bytes;

        if (w->mask == PTX_ALL_LANES)
            memcpy(d, from, (size_t)PTX_LANES * lane_bytes);
        else
            PTX_EACH_LANE(lane, w->mask)
        memcpy(d + lane * lane_bytes, from + lane * lane_bytes, lane_bytes);
    }
}

/* A block of B as its columns lie in a register: each of `depth` elements. Turned, rows lie together. */
#define TURN(name, T)                                                                                                  \
    INLINE void turn_##name(T *to, const T *from, unsigned depth)                                                      \
    {                                                                                                                  \
        for (unsigned k = 0; k < depth; k++)                                                                           \
            for (unsigned n = 0; n < N; n++)                                                                           \
                to[k * N + n] = from[n * depth + k];                                                                   \
    }

/* Eight rows of sums += a (eight rows of `depth`) × b (`depth` rows of eight). */
#define MULTIPLY(name, T, SUM)                                                                                         \
    typedef T name##_row __attribute__((vector_size(N * sizeof(T)), aligned(sizeof(T)), may_alias));                   \
    INLINE void multiply_##name(T sums[N * N], const T *a, const T *b, unsigned depth)                                 \
    {                                                                                                                  \
        name##_row rows[N];                                                                                            \
        memcpy(rows, sums, sizeof rows);                                                                               \
        for (unsigned k = 0; k < depth; k++) {                                                                         \
            const name##_row right = *(const name##_row *)(const void *)(b + k * N);                                   \
            for (unsigned m = 0; m < N; m++)                                                                           \
                rows[m] = SUM(rows[m], a[m * depth + k], right);                                                       \
        }                                                                                                              \
        memcpy(sums, rows, sizeof rows);                                                                               \
    }

/* The two registers of a block of an accumulator, as eight rows of eight, and back. */
#define SPREAD(name, T)                                                                                                \
    INLINE void join_##name(T block[N * N], const T *even, const T *odd)                                               \
    {                                                                                                                  \
        for (unsigned i = 0; i < PTX_LANES; i++) {                                                                     \
            block[2 * i] = even[i];                                                                                    \
            block[2 * i + 1] = odd[i];                                                                                 \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE void part_##name(T *even, T *odd, const T block[N * N])                                                     \
    {                                                                                                                  \
        for (unsigned i = 0; i < PTX_LANES; i++) {                                                                     \
            even[i] = block[2 * i];                                                                                    \
            odd[i] = block[2 * i + 1];                                                                                 \
        }                                                                                                              \
    }

/* ---- floats ---- */

#define SUM(sum, a, b) ((sum) + (a) * (b))
TURN(float, float)
MULTIPLY(float, float, SUM)
SPREAD(float, float)

INLINE void floats_from_f16(float *to, const uint16_t *from, unsigned count)
{
#ifdef __F16C__
    for (unsigned i = 0; i < count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#else
    PTX_VECTOR for (unsigned i = 0; i < count; i++) to[i] = flyt_half_to_float(from[i]);
#endif
}

/* The elements of a register in the order of memory; their number is that of a block. */
static void floats_from(float *to, const void *from, enum ptx_element element)
{
    const uint8_t *bytes = from;
    const uint16_t *halves = from;
    const uint32_t *words = from;

    switch (element) {
    case PTX_ELEMENT_F16:
        floats_from_f16(to, halves, N * N);
        break;
    case PTX_ELEMENT_BF16:
        PTX_VECTOR for (unsigned i = 0; i < N * N; i++) to[i] = flyt_bfloat_to_float(halves[i]);
        break;
    case PTX_ELEMENT_TF32:
        PTX_FOR_LANES to[i] = flyt_bits_float(words[i] & ~0x1fffu);
        break;
    case PTX_ELEMENT_E4M3:
        PTX_VECTOR for (unsigned i = 0; i < N * FLOAT_DEPTH; i++) to[i] = flyt_e4m3_to_float(bytes[i]);
        break;
    default:
        PTX_VECTOR for (unsigned i = 0; i < N * FLOAT_DEPTH; i++) to[i] = flyt_e5m2_to_float(bytes[i]);
        break;
    }
}

static inline float one_nan(float x)
{
    return x == x ? x : flyt_bits_float(0x7fffffffu);
}

/* .satfinite of wmma: NaN becomes +0, and what is beyond the format's numbers its largest. */
static void saturate_floats(float sums[N * N], enum ptx_element element)
{
    float most = element == PTX_ELEMENT_F16 ? 65504.0f : 0x1.fffffep127f;

    for (unsigned i = 0; i < N * N; i++)
        sums[i] = sums[i] != sums[i] ? 0.0f : sums[i] > most ? most : sums[i] < -most ? -most : sums[i];
}

static void store_floats(uint32_t *results, const float sums[N * N], enum ptx_element element)
{
    uint16_t *halves = (uint16_t *)(void *)results;
    float clean[N * N];

    if (element == PTX_ELEMENT_F16) {
        PTX_VECTOR for (unsigned i = 0; i < N * N; i++) halves[i] = flyt_half_from_float(sums[i]);
        return;
    }
    PTX_VECTOR for (unsigned i = 0; i < N * N; i++) clean[i] = one_nan(sums[i]);
    part_float((float *)(void *)results, (float *)(void *)(results + PTX_LANES), clean);
}

static void load_floats(const struct ptx_warp *w, const struct ptx_insn *in, unsigned first, float block[N * N],
                        enum ptx_element element)
{
    if (element == PTX_ELEMENT_F16)
        floats_from_f16(block, ptx_wide_operand(w, in, first), N * N);
    else
        join_float(block, ptx_wide_operand(w, in, first), ptx_wide_operand(w, in, first + 1));
}

INLINE void product_of_floats(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_product *product,
                              unsigned depth)
{
    struct places places = find_places(product);
    unsigned c_registers = ptx_block_registers(product->c), d_registers = ptx_block_registers(product->d);
    float a[PTX_BLOCKS_MAX][N * FLOAT_DEPTH], b[PTX_BLOCKS_MAX][N * FLOAT_DEPTH], column[N * FLOAT_DEPTH];
    uint32_t results[2 * PTX_BLOCKS_MAX][PTX_LANES];

    for (unsigned i = 0; i < places.b; i++)
        floats_from(a[i], ptx_wide_operand(w, in, i), product->a);
    for (unsigned i = 0; i < places.c - places.b; i++) {
        floats_from(column, ptx_wide_operand(w, in, places.b + i), product->b);
        turn_float(b[i], column, depth);
    }
    for (unsigned m = 0; m < product->rows; m++)
        for (unsigned n = 0; n < product->columns; n++) {
            unsigned block = ptx_block_index(is_paired(product), product->columns, m, n);
            float sums[N * N];

            load_floats(w, in, places.c + block * c_registers, sums, product->c);
            for (unsigned k = 0; k < product->depth; k++)
                multiply_float(sums, a[ptx_block_index(is_paired(product), product->depth, m, k)],
                               b[n * product->depth + k], depth);
            if (product->flags & PTX_PRODUCT_SATURATES)
                saturate_floats(sums, product->d);
            store_floats(results[block * d_registers], sums, product->d);
        }
    write_results(w, in, places.d, places.end - places.d, results, sizeof **results);
}

static const struct ptx_insn *product_float(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct ptx_product product;
    const struct ptx_insn *next;
    unsigned depth;

    memcpy(&product, &in->imm, sizeof product);
    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    depth = ptx_block_depth(product.a);
    if (depth == N) /* of 16 bits, as most are: known to the compiler */
        product_of_floats(w, in, &product, N);
    else
        product_of_floats(w, in, &product, depth);
    return in + ptx_wide_parts(find_places(&product).end);
}

/* ---- integers ---- */

TURN(integer, int32_t)
MULTIPLY(integer, int32_t, SUM)
SPREAD(integer, int32_t)

static void integers_from(int32_t *to, const void *from, enum ptx_element element)
{
    const uint8_t *bytes = from;

    switch (element) {
    case PTX_ELEMENT_S8:
        PTX_VECTOR for (unsigned i = 0; i < N * 16; i++) to[i] = (int8_t)bytes[i];
        break;
    case PTX_ELEMENT_U8:
        PTX_VECTOR for (unsigned i = 0; i < N * 16; i++) to[i] = bytes[i];
        break;
    case PTX_ELEMENT_S4: /* the first of two is in the low bits */
        for (unsigned i = 0; i < N * INTEGER_DEPTH; i++)
            to[i] = (int8_t)(uint8_t)(bytes[i / 2] << (i & 1 ? 0 : 4)) >> 4;
        break;
    default:
        for (unsigned i = 0; i < N * INTEGER_DEPTH; i++)
            to[i] = bytes[i / 2] >> (i & 1 ? 4 : 0) & 15;
        break;
    }
}

/* d = c + the sums of products, which are far from overflow themselves. */
static void add_integers(int32_t *results, const int32_t *c, const int32_t *sums, bool is_saturated)
{
    for (unsigned i = 0; i < PTX_LANES; i++) {
        int64_t sum = (int64_t)c[i] + sums[i];

        if (is_saturated)
            sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
        results[i] = (int32_t)(uint32_t)(uint64_t)sum;
    }
}

static void finish_integers(const struct ptx_warp *w, const struct ptx_insn *in, unsigned c, const int32_t sums[N * N],
                            bool is_saturated, int32_t results[2][PTX_LANES])
{
    int32_t even[PTX_LANES], odd[PTX_LANES];

    part_integer(even, odd, sums);
    add_integers(results[0], ptx_wide_operand(w, in, c), even, is_saturated);
    add_integers(results[1], ptx_wide_operand(w, in, c + 1), odd, is_saturated);
}

static const struct ptx_insn *product_integer(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct ptx_product product;
    struct places places;
    const struct ptx_insn *next;
    int32_t a[PTX_BLOCKS_MAX][N * INTEGER_DEPTH], b[PTX_BLOCKS_MAX][N * INTEGER_DEPTH], column[N * INTEGER_DEPTH];
    int32_t results[PTX_BLOCKS_MAX][2][PTX_LANES];
    unsigned depth;

    memcpy(&product, &in->imm, sizeof product);
    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    places = find_places(&product);
    depth = ptx_block_depth(product.a);
    for (unsigned i = 0; i < places.b; i++)
        integers_from(a[i], ptx_wide_operand(w, in, i), product.a);
    for (unsigned i = 0; i < places.c - places.b; i++) {
        integers_from(column, ptx_wide_operand(w, in, places.b + i), product.b);
        turn_integer(b[i], column, depth);
    }
    for (unsigned m = 0; m < product.rows; m++)
        for (unsigned n = 0; n < product.columns; n++) {
            unsigned block = ptx_block_index(is_paired(&product), product.columns, m, n);
            int32_t sums[N * N] = {0};

            for (unsigned k = 0; k < product.depth; k++)
                multiply_integer(sums, a[ptx_block_index(is_paired(&product), product.depth, m, k)],
                                 b[n * product.depth + k], depth);
            finish_integers(w, in, places.c + 2 * block, sums, product.flags & PTX_PRODUCT_SATURATES, results[block]);
        }
    write_results(w, in, places.d, places.end - places.d, results, sizeof(int32_t));
    return in + ptx_wide_parts(places.end);
}

/* ---- bits: four words of a lane group are a row of A, or a column of B ---- */

static int32_t count_bits(const uint32_t *a, const uint32_t *b, bool is_and)
{
    int32_t count = 0;

    for (unsigned i = 0; i < 4; i++)
        count += __builtin_popcount(is_and ? a[i] & b[i] : a[i] ^ b[i]);
    return count;
}

static const struct ptx_insn *product_bits(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct ptx_product product;
    struct places places;
    const struct ptx_insn *next;
    int32_t results[PTX_BLOCKS_MAX][2][PTX_LANES];

    memcpy(&product, &in->imm, sizeof product);
    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    places = find_places(&product);
    for (unsigned m = 0; m < product.rows; m++) {
        int32_t sums[N * N] = {0};

        for (unsigned k = 0; k < product.depth; k++) {
            const uint32_t *a = ptx_wide_operand(w, in, ptx_block_index(is_paired(&product), product.depth, m, k));
            const uint32_t *b = ptx_wide_operand(w, in, places.b + k);

            for (unsigned i = 0; i < N * N; i++)
                sums[i] += count_bits(a + i / N * 4, b + i % N * 4, product.flags & PTX_PRODUCT_AND);
        }
        finish_integers(w, in, places.c + 2 * m, sums, false, results[m]);
    }
    write_results(w, in, places.d, places.end - places.d, results, sizeof(int32_t));
    return in + ptx_wide_parts(places.end);
}

/* ---- f64 ---- */

SPREAD(double, double)

static void multiply_double(double sums[N * N], const double *a, const double *b)
{
    for (unsigned m = 0; m < N; m++)
        for (unsigned n = 0; n < N; n++)
            for (unsigned k = 0; k < 4; k++)
                sums[m * N + n] = __builtin_fma(a[m * 4 + k], b[n * 4 + k], sums[m * N + n]);
}

/* aux is the rounding, as of fesetround. */
static const struct ptx_insn *product_double(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct ptx_product product;
    struct places places;
    const struct ptx_insn *next;
    double results[PTX_BLOCKS_MAX][2][PTX_LANES];

    memcpy(&product, &in->imm, sizeof product);
    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    places = find_places(&product);
    fesetround(in->aux);
    for (unsigned m = 0; m < product.rows; m++) {
        unsigned c = places.c + 2 * m;
        double sums[N * N];

        join_double(sums, ptx_wide_operand(w, in, c), ptx_wide_operand(w, in, c + 1));
        for (unsigned k = 0; k < product.depth; k++)
            multiply_double(sums, ptx_wide_operand(w, in, ptx_block_index(is_paired(&product), product.depth, m, k)),
                            ptx_wide_operand(w, in, places.b + k));
        part_double(results[m][0], results[m][1], sums);
    }
    fesetround(FE_TONEAREST);
    write_results(w, in, places.d, places.end - places.d, results, sizeof(double));
    return in + ptx_wide_parts(places.end);
}

/* ---- between memory and registers ---- */

enum {
    ROW_BYTES = 16, /* of a block of 16-bit elements */
    MATRICES_MAX = 4,
    LINES_MAX = 32,
    BLOCK_BYTES_MAX = 8 * N * N, /* of f64 in an accumulator */
};

/* ---- ldmatrix, stmatrix, movmatrix: eight rows of eight 16-bit elements, each at an address of its own ---- */

static void turn_halves(uint16_t block[N * N])
{
    for (unsigned row = 0; row < N; row++)
        for (unsigned column = 0; column < row; column++) {
            uint16_t other = block[column * N + row];

            block[column * N + row] = block[row * N + column];
            block[row * N + column] = other;
        }
}

/* One register's lanes that run. */
static void write_lanes(const struct ptx_warp *w, char *d, const char *from, unsigned lane_bytes)
{
    if (w->mask == PTX_ALL_LANES)
        memcpy(d, from, (size_t)PTX_LANES * lane_bytes);
    else
        PTX_EACH_LANE(lane, w->mask)
    memcpy(d + lane * lane_bytes, from + lane * lane_bytes, lane_bytes);
}

/* The rows of `extra` matrices: their addresses are those that the first lanes have. False after a fault. */
static bool find_rows(struct ptx_warp *w, const struct ptx_insn *in, bool is_write, char *rows[MATRICES_MAX * N])
{
    const uint64_t *addresses = ptx_lanes(w, in->op[0]);

    for (unsigned i = 0; i < in->extra * N; i++) {
        rows[i] = flyt_ptx_shared_address(w, i, in->aux, addresses[i], ROW_BYTES, is_write);
        if (!rows[i])
            return false;
    }
    return true;
}

/* op[0] addresses, op[1 … extra] results; aux the space, extra the number of matrices, imm 1: turned. */
static const struct ptx_insn *load_rows(struct ptx_warp *w, const struct ptx_insn *in)
{
    char *rows[MATRICES_MAX * N];
    const struct ptx_insn *next;

    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    if (!find_rows(w, in, false, rows))
        return NULL;
    for (unsigned i = 0; i < in->extra; i++) {
        uint16_t block[N * N];

        for (unsigned row = 0; row < N; row++)
            memcpy(block + row * N, rows[i * N + row], ROW_BYTES);
        if (in->imm)
            turn_halves(block);
        write_lanes(w, ptx_register(w, in->op[1 + i]), (const char *)block, 4);
    }
    return in + 1;
}

/* op[0] addresses, op[1 … extra] values; otherwise as above. */
static const struct ptx_insn *store_rows(struct ptx_warp *w, const struct ptx_insn *in)
{
    char *rows[MATRICES_MAX * N];
    const struct ptx_insn *next;

    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    if (!find_rows(w, in, true, rows))
        return NULL;
    for (unsigned i = 0; i < in->extra; i++) {
        uint16_t block[N * N];

        memcpy(block, ptx_lanes(w, in->op[1 + i]), sizeof block);
        if (in->imm)
            turn_halves(block);
        for (unsigned row = 0; row < N; row++)
            memcpy(rows[i * N + row], block + row * N, ROW_BYTES);
    }
    return in + 1;
}

/* op[0] result, op[1] source. */
static const struct ptx_insn *turn_rows(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint16_t block[N * N];
    const struct ptx_insn *next;

    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    memcpy(block, ptx_lanes(w, in->op[1]), sizeof block);
    turn_halves(block);
    write_lanes(w, ptx_register(w, in->op[0]), (const char *)block, 4);
    return in + 1;
}

/* ---- wmma.load, wmma.store ---- */

/* A fragment and the lines of memory that it lies in. */
struct matrix {
    struct ptx_fragment fragment;
    unsigned bits;          /* of an element */
    char *lines[LINES_MAX]; /* places in this process */
};

/*
 * The lines of a whole matrix, which begin `stride` elements (op[1]) from each other; the first one at op[0]. The
 * operands are the same in all lanes: else PTX leaves it undefined, and the first lane's count. False after a fault.
 */
static bool find_lines(struct ptx_warp *w, const struct ptx_insn *in, bool is_write, struct matrix *matrix)
{
    const struct ptx_fragment *fragment = &matrix->fragment;
    unsigned lane = (unsigned)__builtin_ctz(w->mask);
    uint64_t address = ((const uint64_t *)ptx_lanes(w, in->op[0]))[lane];
    uint64_t stride_bytes = (uint64_t)((const uint32_t *)ptx_lanes(w, in->op[1]))[lane] * matrix->bits / 8;
    unsigned outer = fragment->outer * N, inner = fragment->inner * fragment->block_width;
    unsigned count = fragment->is_across ? inner : outer;
    unsigned line_bytes = (fragment->is_across ? outer : inner) * matrix->bits / 8;
    unsigned align = matrix->bits > 8 ? matrix->bits / 8 : 1;

    for (unsigned i = 0; i < count; i++, address += stride_bytes) {
        uint64_t at = in->aux == PTX_SPACE_SHARED ? (uint32_t)address : address;

        if (at & (align - 1)) {
            flyt_ptx_warp_fault(w, CUDA_ERROR_MISALIGNED_ADDRESS);
            return false;
        }
        matrix->lines[i] = flyt_ptx_span(w, in->aux, at, line_bytes, is_write);
        if (!matrix->lines[i]) {
            flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
            return false;
        }
    }
    return true;
}

/* Elements of `bytes`, which the compiler knows, between a block and lines that lie across its rows. */
INLINE void move_across(const struct matrix *matrix, unsigned outer, unsigned inner, char *block, bool is_write,
                        unsigned bytes)
{
    unsigned width = matrix->fragment.block_width;

    for (unsigned column = 0; column < width; column++) {
        char *line = matrix->lines[inner * width + column] + (size_t)outer * N * bytes;

        for (unsigned row = 0; row < N; row++) {
            char *element = line + row * bytes, *at = block + (row * width + column) * bytes;

            memcpy(is_write ? element : at, is_write ? at : element, bytes);
        }
    }
}

/* Moves one block, which lies row by row, from its lines or to them. */
static void move_block(const struct matrix *matrix, unsigned outer, unsigned inner, char *block, bool is_write)
{
    unsigned row_bytes = matrix->fragment.block_width * matrix->bits / 8;

    if (matrix->fragment.is_across && matrix->bits == 8)
        move_across(matrix, outer, inner, block, is_write, 1);
    else if (matrix->fragment.is_across && matrix->bits == 16)
        move_across(matrix, outer, inner, block, is_write, 2);
    else if (matrix->fragment.is_across && matrix->bits == 32)
        move_across(matrix, outer, inner, block, is_write, 4);
    else if (matrix->fragment.is_across)
        move_across(matrix, outer, inner, block, is_write, 8);
    else
        for (unsigned row = 0; row < N; row++) {
            char *line = matrix->lines[outer * N + row] + inner * row_bytes, *at = block + row * row_bytes;

            memcpy(is_write ? line : at, is_write ? at : line, row_bytes);
        }
}

/* A block whose elements fill registers lies in two: even columns in the first, odd ones in the second. */
INLINE void part_block(char *registers, const char *block, unsigned bytes)
{
    for (unsigned i = 0; i < N * N; i++)
        memcpy(registers + (i % 2 * PTX_LANES + i / 2) * bytes, block + i * bytes, bytes);
}

INLINE void join_block(char *block, const char *registers, unsigned bytes)
{
    for (unsigned i = 0; i < N * N; i++)
        memcpy(block + i * bytes, registers + (i % 2 * PTX_LANES + i / 2) * bytes, bytes);
}

static bool begin_fragment(struct ptx_warp *w, const struct ptx_insn *in, bool is_write, struct matrix *matrix,
                           const struct ptx_insn **ret_next)
{
    memcpy(&matrix->fragment, &in->imm, sizeof matrix->fragment);
    matrix->bits = ptx_element_bits(matrix->fragment.element);
    if (!flyt_ptx_warp_gather(w, in, ret_next))
        return false;
    *ret_next = NULL;
    return find_lines(w, in, is_write, matrix);
}

/* op[0] address, op[1] stride, from op[2] on the results; aux the space, imm the fragment. */
static const struct ptx_insn *load_fragment(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct matrix matrix;
    const struct ptx_fragment *fragment = &matrix.fragment;
    char registers[PTX_BLOCKS_MAX][BLOCK_BYTES_MAX], block[BLOCK_BYTES_MAX];
    unsigned lane_bytes, blocks, count;
    const struct ptx_insn *next;

    if (!begin_fragment(w, in, false, &matrix, &next))
        return next;
    lane_bytes = matrix.bits == 64 ? 8 : 4;
    blocks = (unsigned)fragment->outer * fragment->inner;
    for (unsigned outer = 0; outer < fragment->outer; outer++)
        for (unsigned inner = 0; inner < fragment->inner; inner++) {
            char *to = registers[ptx_block_index(fragment->is_paired, fragment->inner, outer, inner)];

            move_block(&matrix, outer, inner, fragment->block_registers == 2 ? block : to, false);
            if (fragment->block_registers == 2 && lane_bytes == 4)
                part_block(to, block, 4);
            else if (fragment->block_registers == 2)
                part_block(to, block, 8);
        }
    count = fragment->register_count;
    for (unsigned i = 0; i < count; i++) {
        const char *from = registers[i / fragment->block_registers % blocks];
        char *d = ptx_wide_operand(w, in, 2 + i);

        write_lanes(w, d, from + i % fragment->block_registers * PTX_LANES * lane_bytes, lane_bytes);
    }
    return in + ptx_wide_parts(2 + count);
}

/* op[0] address, op[1] stride, from op[2] on the values; otherwise as above. */
static const struct ptx_insn *store_fragment(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct matrix matrix;
    const struct ptx_fragment *fragment = &matrix.fragment;
    char registers[BLOCK_BYTES_MAX], block[BLOCK_BYTES_MAX];
    const struct ptx_insn *next;
    size_t register_bytes;

    if (!begin_fragment(w, in, true, &matrix, &next))
        return next;
    register_bytes = (size_t)PTX_LANES * (matrix.bits == 64 ? 8 : 4);
    for (unsigned outer = 0; outer < fragment->outer; outer++)
        for (unsigned inner = 0; inner < fragment->inner; inner++) {
            unsigned first =
                fragment->block_registers * ptx_block_index(fragment->is_paired, fragment->inner, outer, inner);

            for (unsigned i = 0; i < fragment->block_registers; i++)
                memcpy(registers + i * register_bytes, ptx_wide_operand(w, in, 2 + first + i), register_bytes);
            if (fragment->block_registers == 2 && matrix.bits == 32)
                join_block(block, registers, 4);
            else if (fragment->block_registers == 2)
                join_block(block, registers, 8);
            move_block(&matrix, outer, inner, fragment->block_registers == 2 ? block : registers, true);
        }
    return in + ptx_wide_parts(2 + fragment->register_count);
}

/* ---- the table: lower_matrix.c makes the keys ---- */

static const struct ptx_op_row rows[] = {
    {"$product.float", product_float, NULL},   {"$product.integer", product_integer, NULL},
    {"$product.bits", product_bits, NULL},     {"$product.double", product_double, NULL},
    {"$rows.load", load_rows, NULL},           {"$rows.store", store_rows, NULL},
    {"$rows.turn", turn_rows, NULL},           {"$fragment.load", load_fragment, NULL},
    {"$fragment.store", store_fragment, NULL},
};

extern const struct ptx_op_table PTX_OP_TABLE(matrix);
const struct ptx_op_table PTX_OP_TABLE(matrix) = {rows, sizeof rows / sizeof *rows};
