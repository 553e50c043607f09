/* From the parsed module to the compiled one. */
#ifndef FLYT_SOFTGPU_PTX_COMPILE_H
#define FLYT_SOFTGPU_PTX_COMPILE_H

#include "cpu/softgpu/ptx/code.h"

/*
 * Fills `module` from `ir`; leaves through the build's way out when something is refused. module->insns and
 * module->constants are then allocated or NULL, and freed by flyt_ptx_module_free in either case.
 */
void flyt_ptx_compile(struct ptx_build *build, struct ptx_ir *ir, enum flyt_ptx_isa isa,
                      struct flyt_ptx_module *module);

#endif
