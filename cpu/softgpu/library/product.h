/*
 * Products of matrices whose types OpenBLAS does not have: f16, bf16, 8-bit floats and integers. Numbers become floats
 * a block at a time, the product is accumulated in f32 (integers: exactly, in s32) and handed out as it is; whoever
 * asked scales and rounds it.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_PRODUCT_H
#define FLYT_SOFTGPU_LIBRARY_PRODUCT_H

#include <library_types.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/softgpu/library/provider.h"

/* op(A) op(B), m × n, over k. Operations: N, T, C, and R: conjugated without being transposed. */
struct flyt_soft_product {
    cudaDataType a_type, b_type;
    cudaDataType sum_type; /* CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F, CUDA_R_32I */
    char transa, transb;
    int m, n, k, lda, ldb;
    flyt_soft_fn gemm; /* of sum_type; of floats where that is CUDA_R_32I */
};

/* Whether flyt_soft_product_run can: types, and OpenBLAS is there. Fills in `gemm`. */
bool flyt_soft_product_init(struct flyt_soft_product *product);

/* sum: m × n, column by column without gaps; written whole. False: memory is out. */
bool flyt_soft_product_run(const struct flyt_soft_product *product, const void *a, const void *b, void *sum);

#endif
