/*
 * cuSPARSELt on the software GPU: what its files share. cusparseLt.h is not in the CUDA toolkit, so what NVIDIA
 * documents of it is declared here. Handles and descriptors live in the program's memory, 512 bytes each: every one is
 * a structure of ours, which begins with a number that tells what it is.
 *
 * Of a structured matrix two of four numbers that follow each other along k, the dimension over which products sum, are
 * zero; of floats one of two. Compressed, each line along k has what is not zero, and a byte for each group that says
 * where that was.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_STRUCTURED_H
#define FLYT_SOFTGPU_LIBRARY_STRUCTURED_H

#include <cuda.h>
#define DISABLE_CUSPARSE_DEPRECATED
#include <cusparse.h>
#include <stdbool.h>
#include <stdint.h>

#define FLYT_SOFT_SLT __attribute__((visibility("default"))) cusparseStatus_t

enum { FLYT_SOFT_SLT_ROOM = 512 };

/* Program's structures begin with one of these. */
enum {
    FLYT_SOFT_SLT_HANDLE = 0x68746c73,
    FLYT_SOFT_SLT_MATRIX,
    FLYT_SOFT_SLT_MATMUL,
    FLYT_SOFT_SLT_SELECTION,
    FLYT_SOFT_SLT_PLAN
};

/* cusparseComputeType, cusparseLtPruneAlg_t. */
enum { FLYT_SOFT_SLT_COMPUTE_32I, FLYT_SOFT_SLT_COMPUTE_16F, FLYT_SOFT_SLT_COMPUTE_32F };
enum { FLYT_SOFT_SLT_PRUNE_TILE, FLYT_SOFT_SLT_PRUNE_STRIP };

struct flyt_soft_slt_matrix {
    uint32_t magic, alignment_bytes;
    int64_t rows, columns, leading;
    int64_t stride; /* numbers from one of a batch to the next; 0: there is one for all */
    int32_t batch_count, type, order;
    bool is_structured;
};

struct flyt_soft_slt_matmul {
    uint32_t magic;
    int32_t op_a, op_b, compute;
    struct flyt_soft_slt_matrix a, b, c, d;
    int32_t is_relu, is_gelu, is_alpha_vector, is_beta_vector;
    float relu_upper_bound, relu_threshold, gelu_scaling;
    int32_t a_scale_mode, b_scale_mode, c_scale_mode, d_scale_mode, d_out_scale_mode;
    int64_t bias_stride;
    const void *bias, *sparse;
    void *a_scale, *b_scale, *c_scale, *d_scale, *d_out_scale;
};

/* By cusparseLtMatmulAlgAttribute_t. */
enum { FLYT_SOFT_SLT_CONFIG_ID, FLYT_SOFT_SLT_CONFIG_MAX_ID, FLYT_SOFT_SLT_ATTRIBUTES = 6 };

struct flyt_soft_slt_selection {
    uint32_t magic;
    int32_t values[FLYT_SOFT_SLT_ATTRIBUTES];
};

struct flyt_soft_slt_plan {
    uint32_t magic;
    struct flyt_soft_slt_matmul matmul;
};
_Static_assert(sizeof(struct flyt_soft_slt_plan) <= FLYT_SOFT_SLT_ROOM, "the program's memory");

/* A structured matrix by lines along k. */
struct flyt_soft_slt_lines {
    cudaDataType type;
    int64_t count, k;        /* lines; numbers of one */
    int64_t step, line_step; /* numbers from one to the next, in a line and from line to line */
    int group, kept;         /* of so many numbers so many are not zero */
    int64_t batch_count, stride;
    uint64_t bytes; /* that one matrix reaches over */
};

/* What lives in the program's memory, or NULL: it is none of these. */
const void *flyt_soft_slt_find(const void *room, uint32_t magic);
#define FLYT_SOFT_SLT_FIND(name_, room_, magic_)                                                                       \
    const struct flyt_soft_slt_##name_ *name_ = flyt_soft_slt_find(room_, magic_)

bool flyt_soft_slt_handle_is(const void *handle);
/* The structured one of a product's operands, by its lines. */
struct flyt_soft_slt_lines flyt_soft_slt_lines_of(const struct flyt_soft_slt_matrix *matrix, bool is_a, int32_t op);
struct flyt_soft_slt_lines flyt_soft_slt_sparse_of(const struct flyt_soft_slt_matmul *matmul);

/* Bytes of one matrix of a batch: as it is, and compressed. */
uint64_t flyt_soft_slt_bytes(const struct flyt_soft_slt_matrix *matrix);
uint64_t flyt_soft_slt_compressed_bytes(const struct flyt_soft_slt_lines *lines);
/* A compressed matrix with its zeros, line by line. */
void flyt_soft_slt_expand(const struct flyt_soft_slt_lines *lines, const void *compressed, void *to);

/* ---- the functions, with what lives in the program's memory as plain addresses ---- */

FLYT_SOFT_SLT cusparseLtInit(void *handle);
FLYT_SOFT_SLT cusparseLtDestroy(const void *handle);
FLYT_SOFT_SLT cusparseLtGetVersion(const void *handle, int *version);
FLYT_SOFT_SLT cusparseLtGetProperty(int property, int *value);
FLYT_SOFT_SLT cusparseLtDenseDescriptorInit(const void *handle, void *room, int64_t rows, int64_t columns,
                                            int64_t leading, uint32_t alignment, int type, int order);
FLYT_SOFT_SLT cusparseLtStructuredDescriptorInit(const void *handle, void *room, int64_t rows, int64_t columns,
                                                 int64_t leading, uint32_t alignment, int type, int order,
                                                 int sparsity);
FLYT_SOFT_SLT cusparseLtMatDescriptorDestroy(const void *room);
FLYT_SOFT_SLT cusparseLtMatmulDescriptorInit(const void *handle, void *room, int op_a, int op_b, const void *mat_a,
                                             const void *mat_b, const void *mat_c, const void *mat_d, int compute);
FLYT_SOFT_SLT cusparseLtMatmulAlgSelectionInit(const void *handle, void *room, const void *of, int algorithm);
FLYT_SOFT_SLT cusparseLtMatmulAlgSelectionDestroy(const void *room);
FLYT_SOFT_SLT cusparseLtMatmulPlanInit(const void *handle, void *room, const void *of, const void *algorithm);
FLYT_SOFT_SLT cusparseLtMatmulPlanDestroy(const void *room);
FLYT_SOFT_SLT cusparseLtMatmulGetWorkspace(const void *handle, const void *room, size_t *ret_bytes);
FLYT_SOFT_SLT cusparseLtSpMMAPrune(const void *handle, const void *matmul, const void *in, void *out, int algorithm,
                                   CUstream stream);
FLYT_SOFT_SLT cusparseLtSpMMAPrune2(const void *handle, const void *matrix, int is_a, int op, const void *in, void *out,
                                    int algorithm, CUstream stream);
FLYT_SOFT_SLT cusparseLtSpMMAPruneCheck(const void *handle, const void *matmul, const void *in, int *valid,
                                        CUstream stream);
FLYT_SOFT_SLT cusparseLtSpMMAPruneCheck2(const void *handle, const void *matrix, int is_a, int op, const void *in,
                                         int *valid, CUstream stream);
FLYT_SOFT_SLT cusparseLtSpMMACompressedSize(const void *handle, const void *plan, size_t *ret_bytes,
                                            size_t *ret_buffer_bytes);
FLYT_SOFT_SLT cusparseLtSpMMACompressedSize2(const void *handle, const void *matrix, size_t *ret_bytes,
                                             size_t *ret_buffer_bytes);
FLYT_SOFT_SLT cusparseLtSpMMACompress(const void *handle, const void *plan, const void *in, void *out, void *buffer,
                                      CUstream stream);
FLYT_SOFT_SLT cusparseLtSpMMACompress2(const void *handle, const void *matrix, int is_a, int op, const void *in,
                                       void *out, void *buffer, CUstream stream);
FLYT_SOFT_SLT cusparseLtMatmul(const void *handle, const void *room, const void *alpha, const void *a, const void *b,
                               const void *beta, const void *c, void *d, void *workspace, CUstream *streams,
                               int32_t stream_count);
FLYT_SOFT_SLT cusparseLtMatmulSearch(const void *handle, void *room, const void *alpha, const void *a, const void *b,
                                     const void *beta, const void *c, void *d, void *workspace, CUstream *streams,
                                     int32_t stream_count);
FLYT_SOFT_SLT cusparseLtMatDescSetAttribute(const void *handle, void *room, int number, const void *data, size_t bytes);
FLYT_SOFT_SLT cusparseLtMatDescGetAttribute(const void *handle, const void *room, int number, void *data, size_t bytes);
FLYT_SOFT_SLT cusparseLtMatmulDescSetAttribute(const void *handle, void *room, int number, const void *data,
                                               size_t bytes);
FLYT_SOFT_SLT cusparseLtMatmulDescGetAttribute(const void *handle, const void *room, int number, void *data,
                                               size_t bytes);
FLYT_SOFT_SLT cusparseLtMatmulAlgSetAttribute(const void *handle, void *room, int number, const void *data,
                                              size_t bytes);
FLYT_SOFT_SLT cusparseLtMatmulAlgGetAttribute(const void *handle, const void *room, int number, void *data,
                                              size_t bytes);

#endif
