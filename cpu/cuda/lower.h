/*
 * The driver's structures in the core's terms, for the files of libcuda.so.1.
 */
#ifndef FLYT_CUDA_LOWER_H
#define FLYT_CUDA_LOWER_H

#include "cpu/cuda/driver.h"

#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/kernel.h"

/* CUDA_ERROR_INVALID_VALUE: an unknown type of memory, rows wider than their pitch, slices taller than their height;
 * CUDA_ERROR_NOT_SUPPORTED: an array. */
CUresult flyt_cuda_lower_copy(const CUDA_MEMCPY3D *copy, struct flyt_copy *ret_copy);
/* The pairs of `extra`: a parameter buffer and its size, in either order, up to CU_LAUNCH_PARAM_END; or `params`.
 * CUDA_ERROR_INVALID_VALUE: both, or an unknown pair. */
CUresult flyt_cuda_launch_params(struct flyt_launch *launch, void **params, void **extra);

#endif
