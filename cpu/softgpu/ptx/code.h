/*
 * The compiled form of a module: one array of instructions, each with the function that executes it for a whole warp.
 *
 * A register is an array of 32 lanes of the register's size (64, 128 or 256 bytes); a predicate is a 32-bit mask, lane
 * 0 in bit 0. Constants are broadcast arrays in a pool of the module. An operand names either: bit 0 tells which base
 * it counts from (0: the frame's registers, 1: the constants), the other bits are a byte offset, a multiple of 4.
 */
#ifndef FLYT_SOFTGPU_PTX_CODE_H
#define FLYT_SOFTGPU_PTX_CODE_H

#include "cpu/softgpu/ptx/build.h"
#include "cpu/softgpu/ptx/ir.h"

/*
 * Addresses that only the engine gives meaning to. Each window is used as generic address; device memory lies above
 * all of them. Function addresses are numbers: base plus 16 × index.
 */
#define PTX_FUNCTION_BASE 0x008000000000ull
#define PTX_SHARED_BASE   0x010000000000ull
#define PTX_LOCAL_BASE    0x018000000000ull
#define PTX_PARAM_BASE    0x01c000000000ull
#define PTX_WINDOWS_END   0x020000000000ull
#define PTX_WINDOW_BYTES  0x001000000000ull

enum { PTX_LANES = 32, PTX_OPS_MAX = 6 };
#define PTX_ALL_LANES 0xffffffffu
#define PTX_NO_OP     0xffffffffu /* an operand that is absent */

enum { PTX_BASES = 4 }; /* bases of loads and stores that a warp keeps */

struct ptx_warp;
struct ptx_insn;

/* Executes one instruction for the lanes in warp->mask and returns the next one, or NULL to leave the warp. */
typedef const struct ptx_insn *ptx_exec_fn(struct ptx_warp *w, const struct ptx_insn *in);

enum ptx_insn_flags {
    PTX_INSN_NEGATED = 1, /* guards and branches: run where the predicate is false */
    PTX_INSN_SPINS = 2,   /* a backward branch of a loop that talks to other threads */
    PTX_INSN_ACQUIRE = 4,
    PTX_INSN_RELEASE = 8,
    PTX_INSN_NARROW = 16, /* loads and stores of shared memory: the base is a 32-bit register */
    PTX_INSN_KEEPS = 32,  /* loads and stores: what is found out about the base is kept for those behind it */
};

struct ptx_insn {
    ptx_exec_fn *exec;
    uint32_t op[PTX_OPS_MAX];
    union {
        int64_t imm;
        const struct ptx_insn *target;
        const struct ptx_call *call;
        const struct ptx_insn **table;
    };
    uint32_t line;
    uint16_t aux; /* by instruction: space, vector length, rounding mode … */
    uint8_t extra;
    uint8_t flags;  /* enum ptx_insn_flags */
    uint32_t count; /* of what ends a block: PTX instructions in the block */
    uint8_t base;   /* of what keeps or has kept: which of the warp's bases */
};

/* How many instructions hold the operands of one that has `count`: see flyt_ptx_lower_emit_wide. */
static inline unsigned ptx_wide_parts(unsigned count)
{
    return (count + PTX_OPS_MAX - 1) / PTX_OPS_MAX;
}

/* A function or kernel, compiled. */
struct ptx_code {
    const char *name;
    const struct ptx_insn *entry;
    uint32_t register_bytes; /* of one frame, all lanes */
    uint32_t local_bytes;    /* of one frame, per lane; a multiple of 16 */
    uint32_t param_count;
    uint32_t *param_offset, *param_bytes; /* in the frame's local memory */
    uint32_t result_offset, result_bytes;
};

enum ptx_builtin {
    PTX_BUILTIN_NONE,
    PTX_BUILTIN_PRINT,
    PTX_BUILTIN_ASSERT,
    PTX_BUILTIN_MALLOC,
    PTX_BUILTIN_FREE,
    PTX_BUILTIN_CONDITION
};

/* A call site. Offsets count in the caller's frame of local memory. */
struct ptx_call {
    const struct ptx_code *callee; /* NULL: by address in op[0], or a built-in */
    enum ptx_builtin builtin;
    uint32_t arg_count;
    uint32_t *arg_offset, *arg_bytes;
    uint32_t result_offset, result_bytes;
};

/* What a kernel needs besides its code. */
struct ptx_kernel_code {
    const struct ptx_code *code;
    uint32_t *shared_offset; /* by the module's shared variable index */
    uint32_t static_shared_bytes;
    uint32_t stack_bytes; /* local memory per lane; 0: unbounded (recursion), the launch chooses */
};

/* An address known at link time, broadcast into the constants at `offset`. */
struct ptx_relocation {
    uint32_t offset, variable_index;
    uint8_t bytes;
    uint64_t addend;
};

/* An address in a variable's initial value. */
struct ptx_pointer_initial {
    unsigned variable_index;
    uint64_t offset;
    uint8_t bytes, shift_bits;
    bool is_function;
    uint32_t target_index; /* a variable's or a function's */
    uint64_t addend;
};

struct flyt_ptx_module {
    struct ptx_arena arena; /* everything below, except insns and constants */
    int version, target;
    bool uses_reserved_shared; /* names %reserved_smem_offset_… */
    struct flyt_ptx_variable *variables;
    uint8_t **initial; /* per variable: its initial bytes, or NULL for zeros */
    unsigned variable_count;
    struct flyt_ptx_kernel *kernels;
    struct ptx_kernel_code *kernel_codes;
    unsigned kernel_count;
    struct ptx_code *codes; /* functions with a body, by index */
    unsigned code_count;
    struct ptx_insn *insns;
    size_t insn_count;
    char *constants; /* 64-byte aligned */
    size_t constants_bytes;
    struct ptx_relocation *relocations;
    size_t relocation_count;
    struct ptx_pointer_initial *pointers;
    size_t pointer_count;
};

#endif
