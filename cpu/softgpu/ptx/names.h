/*
 * The names that the PTX ISA knows, whether the engine has what they stand for or not: what is not among them is an
 * error in the text (CUDA_ERROR_INVALID_PTX), what is and lacks here is CUDA_ERROR_NOT_SUPPORTED. As of PTX 9.0.
 */
#ifndef FLYT_SOFTGPU_PTX_NAMES_H
#define FLYT_SOFTGPU_PTX_NAMES_H

#include <stdbool.h>

/* An instruction's first part: "add", not "add.s32". */
bool flyt_ptx_names_has_operation(const char *name);
/* A special register with its percent sign: "%tid.x". */
bool flyt_ptx_names_has_register(const char *name);
/* A directive with its dot: ".global". */
bool flyt_ptx_names_has_directive(const char *name);

#endif
