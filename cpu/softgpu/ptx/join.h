/*
 * Joining: what a name of module scope means that several units, or several lines of one unit, declare or define.
 *
 * Each unit has a map of its own, so that static objects of equal names stay apart. A name that is shared (.extern,
 * .visible, .weak, .common) has one object in all units' maps: the first declaration makes it, and a definition that
 * comes later is written over it, so that nothing that was resolved before has to be resolved again. A definition that
 * is neither weak nor common may come once; it takes the place of weak and common ones, and the first of these stays
 * where no such comes. Of common variables the largest counts.
 *
 * What is wrong between units gives CUDA_ERROR_UNKNOWN with the words of a GPU's linker, which does the same.
 */
#ifndef FLYT_SOFTGPU_PTX_JOIN_H
#define FLYT_SOFTGPU_PTX_JOIN_H

#include "cpu/softgpu/ptx/parse.h"

/* Enters a module-scope variable that was just parsed, its linkage and unit set. The build fails where it contradicts
 * what is known of the name. */
void flyt_ptx_join_variable(struct ptx_parser *parser, struct ptx_variable *variable);

/*
 * Enters a function of which the head was parsed, its linkage and unit set; is_definition: a body follows. Returns the
 * function that the body is to be parsed into, or NULL where it is to be skipped. Fails likewise.
 */
struct ptx_function *flyt_ptx_join_function(struct ptx_parser *parser, struct ptx_function *function,
                                            bool is_definition);

/* Ends the build: `name`, which `unit` refers to, is defined in no unit. */
void flyt_ptx_join_fail_undefined(struct ptx_build *build, const char *name, const struct ptx_unit *unit)
    __attribute__((noreturn));

#endif
