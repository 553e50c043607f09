/*
 * The table of regular instructions: those that compute lane by lane from registers to a register. Each file of
 * arithmetic contributes rows; a row's key is the instruction as PTX spells it, without the modifiers that are handled
 * once for all (rounding, saturation of floats). Those files are compiled once per instruction set (ptx_rules.mk), and
 * the best one that the processor has is taken.
 */
#ifndef FLYT_SOFTGPU_PTX_OPS_H
#define FLYT_SOFTGPU_PTX_OPS_H

#include "cpu/softgpu/ptx/code.h"

/*
 * shape tells the operands' sizes: destination '=' sources, one letter each: p predicate, h 16 bits, w 32, d 64, b 8
 * bits (the low byte of a wider register).
 */
struct ptx_op_row {
    const char *key;
    ptx_exec_fn *exec;
    const char *shape;
};

struct ptx_op_table {
    const struct ptx_op_row *rows;
    size_t row_count;
};

#define PTX_JOIN2(a, b) a##b
#define PTX_JOIN(a, b)  PTX_JOIN2(a, b)
#ifndef PTX_ISA
#define PTX_ISA base
#endif
/* The name of an arithmetic file's table, distinct for each instruction set. */
#define PTX_OP_TABLE(name) PTX_JOIN(flyt_ptx_ops_##name##_, PTX_ISA)

/* Puts all rows, for the instruction set asked for, into the map key → struct ptx_op_row. */
void flyt_ptx_ops_enter(struct ptx_build *build, enum flyt_ptx_isa isa, struct ptx_map *map);

#endif
