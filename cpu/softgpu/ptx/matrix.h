/*
 * Matrices that a warp holds in registers: what mma, wmma, ldmatrix and their like work on.
 *
 * A matrix lies in blocks of eight rows (of B: columns), each lane's 32 bits (of f64: 64) next to the following lane's:
 * four lanes hold a row, so that the 32 lanes of a register, read as memory, are the block row by row. Blocks of A and
 * B are as deep as four registers' elements are; those of accumulators are 8 × 8, and where an element fills a register
 * they take two, one with the even columns and one with the odd ones. These are the layouts of the PTX ISA for mma, and
 * wmma, whose layouts are nobody's business, has the same.
 */
#ifndef FLYT_SOFTGPU_PTX_MATRIX_H
#define FLYT_SOFTGPU_PTX_MATRIX_H

#include <stdbool.h>
#include <stdint.h>

enum ptx_element {
    PTX_ELEMENT_F16,
    PTX_ELEMENT_BF16,
    PTX_ELEMENT_TF32,
    PTX_ELEMENT_E4M3,
    PTX_ELEMENT_E5M2,
    PTX_ELEMENT_S8,
    PTX_ELEMENT_U8,
    PTX_ELEMENT_S4,
    PTX_ELEMENT_U4,
    PTX_ELEMENT_B1,
    PTX_ELEMENT_F64,
    PTX_ELEMENT_F32,
    PTX_ELEMENT_S32,
};

static inline unsigned ptx_element_bits(enum ptx_element element)
{
    static const uint8_t bits[] = {16, 16, 32, 8, 8, 8, 8, 4, 4, 1, 64, 32, 32};

    return bits[element];
}

/* Columns of a block of A, rows of a block of B. */
static inline unsigned ptx_block_depth(enum ptx_element element)
{
    return element == PTX_ELEMENT_F64 ? 4 : 4 * 32 / ptx_element_bits(element);
}

/* Registers of a block of an accumulator. */
static inline unsigned ptx_block_registers(enum ptx_element element)
{
    return element == PTX_ELEMENT_F16 ? 1 : 2;
}

/*
 * The number of a block among `count` side by side in each row of blocks. is_paired, of A and accumulators with more
 * than one row of blocks: two below each other come one after the other, sixteen rows in all.
 */
static inline unsigned ptx_block_index(bool is_paired, unsigned count, unsigned row, unsigned column)
{
    unsigned pair = is_paired ? 2 : 1;

    return (row / pair * count + column) * pair + row % pair;
}

enum ptx_product_flags {
    PTX_PRODUCT_SATURATES = 1,
    PTX_PRODUCT_AND = 2, /* of bits: counts those of a & b, else of a ^ b */
};

/* d = a × b + c; in the instruction's imm. Blocks: `rows` of A, `columns` of B, `depth` that both have. */
struct ptx_product {
    uint8_t a, b, c, d; /* enum ptx_element */
    uint8_t rows, columns, depth;
    uint8_t flags; /* enum ptx_product_flags */
};
_Static_assert(sizeof(struct ptx_product) == 8, "lies in an instruction's imm");

enum { PTX_BLOCKS_MAX = 8, PTX_BLOCK_ROWS = 8, PTX_WIDE_OPERANDS_MAX = 32 };

/*
 * A matrix in memory, of wmma.load and wmma.store; in the instruction's imm. `outer` blocks of eight lines, each of
 * `inner` blocks; is_across: neighbours in memory are of different lines.
 */
struct ptx_fragment {
    uint8_t element; /* enum ptx_element */
    uint8_t outer, inner;
    uint8_t block_width; /* elements of a line in a block */
    uint8_t block_registers;
    uint8_t register_count; /* of the instruction; blocks are repeated up to it */
    uint8_t is_across, is_paired;
};
_Static_assert(sizeof(struct ptx_fragment) == 8, "lies in an instruction's imm");

#endif
