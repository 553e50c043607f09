/*
 * cuBLASLt: what its files share. Descriptors are plain structures of the size that the header gives them, in the
 * caller's memory or made by …Create; every attribute is a field, found by a table.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_LT_H
#define FLYT_SOFTGPU_LIBRARY_LT_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

#define FLYT_SOFT_LT __attribute__((visibility("default"))) cublasStatus_t

struct flyt_soft_lt_layout {
    uint64_t rows, columns;
    int64_t leading;
    int64_t stride; /* between the matrices of a batch, in numbers */
    int64_t plane_offset_bytes;
    uint32_t type;
    int32_t order;
    int32_t batch_count;
    int32_t batch_mode;
};
_Static_assert(sizeof(struct flyt_soft_lt_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "the caller's memory");

struct flyt_soft_lt_matmul {
    const void *a_scale, *b_scale, *c_scale, *d_scale, *aux_scale;
    void *bias, *aux, *d_amax, *aux_amax, *d_out_scale, *emulation;
    int64_t bias_stride, aux_leading, aux_stride, alpha_stride;
    int32_t compute, scale_type, pointer_mode, transa, transb, transc, fill_mode;
    uint32_t epilogue;
    int32_t sm_count_target, aux_type, bias_type;
    int32_t a_scale_mode, b_scale_mode, c_scale_mode, d_scale_mode, aux_scale_mode, d_out_scale_mode;
    int8_t has_fast_accumulation;
};
_Static_assert(sizeof(struct flyt_soft_lt_matmul) <= sizeof(cublasLtMatmulDescOpaque_t), "the caller's memory");

struct flyt_soft_lt_transform {
    int32_t scale_type, pointer_mode, transa, transb;
};
_Static_assert(sizeof(struct flyt_soft_lt_transform) <= sizeof(cublasLtMatrixTransformDescOpaque_t),
               "the caller's memory");

struct flyt_soft_lt_preference {
    uint64_t workspace_bytes_max, implementation_mask;
    uint32_t search_mode, reduction_mask;
    uint32_t a_align_bytes, b_align_bytes, c_align_bytes, d_align_bytes;
    float waves_max;
};
_Static_assert(sizeof(struct flyt_soft_lt_preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t),
               "the caller's memory");

struct flyt_soft_lt_algo {
    int32_t id;
    uint32_t tile, split_k, reduction, swizzle, custom, stages;
    uint16_t inner_shape, cluster_shape;
};
_Static_assert(sizeof(struct flyt_soft_lt_algo) <= sizeof(cublasLtMatmulAlgo_t), "the caller's memory");

/* A table of attributes: number, place and size of each. */
struct flyt_soft_lt_attribute {
    int number;
    unsigned offset, bytes;
};

/* Sets and gets attributes of an object, as the header says of …SetAttribute and …GetAttribute. */
cublasStatus_t flyt_soft_lt_set(void *object, const struct flyt_soft_lt_attribute *table, unsigned count, int number,
                                const void *value, size_t value_bytes);
cublasStatus_t flyt_soft_lt_get(const void *object, const struct flyt_soft_lt_attribute *table, unsigned count,
                                int number, void *ret_value, size_t value_bytes, size_t *ret_written);

/* Whether a product of these descriptors can be computed: what cublasLtMatmul returns for it, but for its pointers. */
cublasStatus_t flyt_soft_lt_matmul_check(const struct flyt_soft_lt_matmul *matmul, const struct flyt_soft_lt_layout *a,
                                         const struct flyt_soft_lt_layout *b, const struct flyt_soft_lt_layout *c,
                                         const struct flyt_soft_lt_layout *d);

/* Bytes of one matrix of a layout; and of the numbers of one column: their place, and how many numbers lie between. */
uint64_t flyt_soft_lt_layout_bytes(const struct flyt_soft_lt_layout *layout);
void *flyt_soft_lt_column(const struct flyt_soft_lt_layout *layout, const void *at, uint64_t column, int64_t *ret_inc);
/* A type that is known, an order that is COL or ROW, a leading dimension that fits. */
cublasStatus_t flyt_soft_lt_layout_check(const struct flyt_soft_lt_layout *layout);

/* One matrix of a batch; NULL: an array of pointers that is out of reach. */
const void *flyt_soft_lt_member(const struct flyt_soft_lt_layout *layout, const void *at, int64_t member);

#endif
