#include "cpu/softgpu/ptx/compile.h"
#include "cpu/softgpu/ptx/ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUresult make(const struct flyt_ptx_unit *units, unsigned unit_count, enum ptx_joining joining,
                     const struct flyt_ptx_target *target, struct flyt_ptx_diag *diag,
                     struct flyt_ptx_module **ret_module)
{
    struct flyt_ptx_module *module = calloc(1, sizeof *module);
    struct ptx_build *build = calloc(1, sizeof *build);
    CUresult result;

    if (!module || !build) {
        snprintf(diag->text, sizeof diag->text, "out of memory while compiling PTX");
        free(module);
        free(build);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    build->diag = diag;
    build->lasting = &module->arena;
    if (!setjmp(build->way_out))
        flyt_ptx_compile(build, flyt_ptx_parse(build, units, unit_count, joining, target), target->isa, module);
    result = build->result; /* zero, CUDA_SUCCESS, unless the build left through the way out */
    flyt_ptx_arena_fini(&build->scratch);
    free(build);
    if (result != CUDA_SUCCESS || !ret_module) {
        flyt_ptx_module_free(module);
        return result;
    }
    *ret_module = module;
    return CUDA_SUCCESS;
}

CUresult flyt_ptx_module_new(const char *text, size_t text_bytes, const struct flyt_ptx_target *target,
                             struct flyt_ptx_diag *diag, struct flyt_ptx_module **ret_module)
{
    const struct flyt_ptx_unit unit = {.text = text, .text_bytes = text_bytes};

    return make(&unit, 1, PTX_JOIN_ALONE, target, diag, ret_module);
}

CUresult flyt_ptx_module_join(const struct flyt_ptx_unit *units, unsigned unit_count,
                              const struct flyt_ptx_target *target, struct flyt_ptx_diag *diag,
                              struct flyt_ptx_module **ret_module)
{
    return make(units, unit_count, ret_module ? PTX_JOIN_CLOSED : PTX_JOIN_OPEN, target, diag, ret_module);
}

struct flyt_ptx_module *flyt_ptx_module_free(struct flyt_ptx_module *module)
{
    if (!module)
        return NULL;
    free(module->insns);
    free(module->constants);
    flyt_ptx_arena_fini(&module->arena);
    free(module);
    return NULL;
}

unsigned flyt_ptx_module_variable_count(const struct flyt_ptx_module *module)
{
    return module->variable_count;
}

const struct flyt_ptx_variable *flyt_ptx_module_variable(const struct flyt_ptx_module *module, unsigned index)
{
    return &module->variables[index];
}

unsigned flyt_ptx_module_kernel_count(const struct flyt_ptx_module *module)
{
    return module->kernel_count;
}

const struct flyt_ptx_kernel *flyt_ptx_module_kernel(const struct flyt_ptx_module *module, unsigned index)
{
    return &module->kernels[index];
}

CUresult flyt_ptx_module_link(struct flyt_ptx_module *module, const uint64_t *addresses, struct flyt_ptx_diag *diag)
{
    for (unsigned v = 0; v < module->variable_count; v++) {
        const struct flyt_ptx_variable *variable = &module->variables[v];

        if (addresses[v] & (variable->align - 1)) {
            snprintf(diag->text, sizeof diag->text, "variable %.100s is given a misaligned address", variable->name);
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (module->initial[v])
            memcpy((void *)(uintptr_t)addresses[v], module->initial[v], variable->bytes);
        else if (variable->bytes)
            memset((void *)(uintptr_t)addresses[v], 0, variable->bytes);
    }
    for (size_t p = 0; p < module->pointer_count; p++) {
        const struct ptx_pointer_initial *pointer = &module->pointers[p];
        uint64_t value =
            pointer->is_function ? PTX_FUNCTION_BASE + 16ull * pointer->target_index : addresses[pointer->target_index];

        value = (value + pointer->addend) >> pointer->shift_bits;
        memcpy((char *)(uintptr_t)addresses[pointer->variable_index] + pointer->offset, &value, pointer->bytes);
    }
    for (size_t r = 0; r < module->relocation_count; r++) {
        const struct ptx_relocation *relocation = &module->relocations[r];
        uint64_t value = addresses[relocation->variable_index] + relocation->addend;

        for (unsigned lane = 0; lane < PTX_LANES; lane++)
            memcpy(module->constants + relocation->offset + lane * relocation->bytes, &value, relocation->bytes);
    }
    return CUDA_SUCCESS;
}
