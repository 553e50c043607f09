/*
 * Matrices between memory and the registers of a warp: ldmatrix, stmatrix and movmatrix, wmma.load and wmma.store. How
 * they lie in registers is told in matrix.h.
 */
#include "cpu/softgpu/ptx/matrix.h"

#include "cpu/softgpu/ptx/exec.h"

#include <string.h>

enum {
    ROWS = PTX_BLOCK_ROWS,
    ROW_BYTES = 16, /* of a block of 16-bit elements */
    MATRICES_MAX = 4,
    LINES_MAX = 32,
    BLOCK_BYTES_MAX = 8 * ROWS * ROWS, /* of f64 in an accumulator */
};

#define INLINE static inline __attribute__((always_inline))

/* ---- eight rows of eight 16-bit elements, each row at an address of its own ---- */

static void turn(uint16_t block[ROWS * ROWS])
{
    for (unsigned row = 0; row < ROWS; row++)
        for (unsigned column = 0; column < row; column++) {
            uint16_t other = block[column * ROWS + row];

            block[column * ROWS + row] = block[row * ROWS + column];
            block[row * ROWS + column] = other;
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
static bool find_rows(struct ptx_warp *w, const struct ptx_insn *in, bool is_write, char *rows[MATRICES_MAX * ROWS])
{
    const uint64_t *addresses = ptx_lanes(w, in->op[0]);

    for (unsigned i = 0; i < in->extra * ROWS; i++) {
        rows[i] = flyt_ptx_shared_address(w, i, in->aux, addresses[i], ROW_BYTES, is_write);
        if (!rows[i])
            return false;
    }
    return true;
}

/* op[0] addresses, op[1 … extra] results; aux the space, extra the number of matrices, imm 1: turned. */
const struct ptx_insn *flyt_ptx_exec_load_matrix(struct ptx_warp *w, const struct ptx_insn *in)
{
    char *rows[MATRICES_MAX * ROWS];
    const struct ptx_insn *next;

    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    if (!find_rows(w, in, false, rows))
        return NULL;
    for (unsigned i = 0; i < in->extra; i++) {
        uint16_t block[ROWS * ROWS];

        for (unsigned row = 0; row < ROWS; row++)
            memcpy(block + row * ROWS, rows[i * ROWS + row], ROW_BYTES);
        if (in->imm)
            turn(block);
        write_lanes(w, ptx_register(w, in->op[1 + i]), (const char *)block, 4);
    }
    return in + 1;
}

/* op[0] addresses, op[1 … extra] values; otherwise as above. */
const struct ptx_insn *flyt_ptx_exec_store_matrix(struct ptx_warp *w, const struct ptx_insn *in)
{
    char *rows[MATRICES_MAX * ROWS];
    const struct ptx_insn *next;

    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    if (!find_rows(w, in, true, rows))
        return NULL;
    for (unsigned i = 0; i < in->extra; i++) {
        uint16_t block[ROWS * ROWS];

        memcpy(block, ptx_lanes(w, in->op[1 + i]), sizeof block);
        if (in->imm)
            turn(block);
        for (unsigned row = 0; row < ROWS; row++)
            memcpy(rows[i * ROWS + row], block + row * ROWS, ROW_BYTES);
    }
    return in + 1;
}

/* op[0] result, op[1] source. */
const struct ptx_insn *flyt_ptx_exec_turn_matrix(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint16_t block[ROWS * ROWS];
    const struct ptx_insn *next;

    if (!flyt_ptx_warp_gather(w, in, &next))
        return next;
    memcpy(block, ptx_lanes(w, in->op[1]), sizeof block);
    turn(block);
    write_lanes(w, ptx_register(w, in->op[0]), (const char *)block, 4);
    return in + 1;
}

/* ---- wmma ---- */

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
    unsigned outer = fragment->outer * ROWS, inner = fragment->inner * fragment->block_width;
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
        char *line = matrix->lines[inner * width + column] + (size_t)outer * ROWS * bytes;

        for (unsigned row = 0; row < ROWS; row++) {
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
        for (unsigned row = 0; row < ROWS; row++) {
            char *line = matrix->lines[outer * ROWS + row] + inner * row_bytes, *at = block + row * row_bytes;

            memcpy(is_write ? line : at, is_write ? at : line, row_bytes);
        }
}

/* A block whose elements fill registers lies in two: even columns in the first, odd ones in the second. */
INLINE void part_block(char *registers, const char *block, unsigned bytes)
{
    for (unsigned i = 0; i < ROWS * ROWS; i++)
        memcpy(registers + (i % 2 * PTX_LANES + i / 2) * bytes, block + i * bytes, bytes);
}

INLINE void join_block(char *block, const char *registers, unsigned bytes)
{
    for (unsigned i = 0; i < ROWS * ROWS; i++)
        memcpy(block + i * bytes, registers + (i % 2 * PTX_LANES + i / 2) * bytes, bytes);
}

static bool begin(struct ptx_warp *w, const struct ptx_insn *in, bool is_write, struct matrix *matrix,
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
const struct ptx_insn *flyt_ptx_exec_load_fragment(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct matrix matrix;
    const struct ptx_fragment *fragment = &matrix.fragment;
    char registers[PTX_BLOCKS_MAX][BLOCK_BYTES_MAX], block[BLOCK_BYTES_MAX];
    unsigned lane_bytes, blocks, count;
    const struct ptx_insn *next;

    if (!begin(w, in, false, &matrix, &next))
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
const struct ptx_insn *flyt_ptx_exec_store_fragment(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct matrix matrix;
    const struct ptx_fragment *fragment = &matrix.fragment;
    char registers[BLOCK_BYTES_MAX], block[BLOCK_BYTES_MAX];
    const struct ptx_insn *next;
    size_t register_bytes;

    if (!begin(w, in, true, &matrix, &next))
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
