#include "cpu/softgpu/ptx/ops.h"

/* The files of arithmetic, each once per instruction set. */
#define FILES(X, isa)                                                                                                  \
    X(integer, isa)                                                                                                    \
    X(bits, isa)                                                                                                       \
    X(float, isa)                                                                                                      \
    X(compare, isa) X(half, isa) X(convert, isa) X(convert_float, isa) X(access, isa) X(matrix, isa) X(texture, isa)
#define DECLARE(name, isa) extern const struct ptx_op_table flyt_ptx_ops_##name##_##isa;
#define LIST(name, isa)    &flyt_ptx_ops_##name##_##isa,

FILES(DECLARE, base)
static const struct ptx_op_table *const base_tables[] = {FILES(LIST, base) NULL};

#ifdef PTX_HAS_X86_ISAS
FILES(DECLARE, v3)
FILES(DECLARE, v4)
static const struct ptx_op_table *const v3_tables[] = {FILES(LIST, v3) NULL};
static const struct ptx_op_table *const v4_tables[] = {FILES(LIST, v4) NULL};
#endif

/* x86-64-v3 and -v4 are the psABI's names for processors with AVX2 and with AVX-512. */
bool flyt_ptx_isa_is_here(enum flyt_ptx_isa isa)
{
#ifdef PTX_HAS_X86_ISAS
    __builtin_cpu_init();
    if (isa == FLYT_PTX_ISA_V4)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    if (isa == FLYT_PTX_ISA_V3)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
               __builtin_cpu_supports("fma");
#endif
    return isa == FLYT_PTX_ISA_BEST || isa == FLYT_PTX_ISA_BASE;
}

static const struct ptx_op_table *const *tables_of(enum flyt_ptx_isa isa)
{
#ifdef PTX_HAS_X86_ISAS
    if (isa == FLYT_PTX_ISA_V4 || (isa == FLYT_PTX_ISA_BEST && flyt_ptx_isa_is_here(FLYT_PTX_ISA_V4)))
        return v4_tables;
    if (isa == FLYT_PTX_ISA_V3 || (isa == FLYT_PTX_ISA_BEST && flyt_ptx_isa_is_here(FLYT_PTX_ISA_V3)))
        return v3_tables;
#endif
    return base_tables;
}

void flyt_ptx_ops_enter(struct ptx_build *build, enum flyt_ptx_isa isa, struct ptx_map *map)
{
    for (const struct ptx_op_table *const *table = tables_of(isa); *table; table++)
        for (size_t i = 0; i < (*table)->row_count; i++)
            flyt_ptx_map_put(build, map, (*table)->rows[i].key, (void *)(uintptr_t) & (*table)->rows[i]);
}
