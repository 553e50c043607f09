/* cuSPARSELt: products with a structured matrix, D = activation(alpha op(A) op(B) + beta C + bias). */
#include <math.h>
#include <stdlib.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/number.h"
#include "cpu/softgpu/library/product.h"
#include "cpu/softgpu/sparse/sparse.h"
#include "cpu/softgpu/sparse/structured.h"

struct matmul {
    struct flyt_soft_slt_matmul desc;
    struct flyt_soft_slt_lines lines;
    struct flyt_soft_product product;
    float alpha, beta;
    const float *alphas, *betas; /* of each row, in device memory; NULL: the same for all */
    const void *a, *b, *c;
    void *d;
};

/* ---- what is done to each number of the sum ---- */

/* Results of 8-bit integers have one of floats, where they are integers. */
static cudaDataType bias_type(const struct matmul *call)
{
    cudaDataType type = (cudaDataType)call->desc.d.type;

    return type == CUDA_R_8I || type == CUDA_R_32I ? CUDA_R_32F : type;
}

static double activate(const struct flyt_soft_slt_matmul *desc, double x)
{
    if (desc->is_relu)
        return x > desc->relu_threshold ? fmin(x, desc->relu_upper_bound) : 0;
    return desc->is_gelu ? desc->gelu_scaling * flyt_soft_gelu(x) : x;
}

static void *number_of(const struct flyt_soft_slt_matrix *matrix, const void *at, int64_t row, int64_t column)
{
    int64_t place =
        matrix->order == CUSPARSE_ORDER_ROW ? row * matrix->leading + column : column * matrix->leading + row;

    return (char *)at + place * (int64_t)flyt_soft_number_bytes((cudaDataType)matrix->type);
}

static void finish(const struct matmul *call, const void *sum, const void *c, const char *bias, void *d)
{
    const struct flyt_soft_product *p = &call->product;
    unsigned sum_bytes = flyt_soft_number_bytes(p->sum_type);

    for (int64_t column = 0; column < p->n; column++)
        for (int64_t row = 0; row < p->m; row++) {
            double x = creal(flyt_soft_number_get(p->sum_type, (const char *)sum + (column * p->m + row) * sum_bytes));
            double beta = call->betas ? call->betas[row] : call->beta;

            x *= call->alphas ? call->alphas[row] : call->alpha;
            if (beta != 0)
                x += beta * creal(flyt_soft_number_get((cudaDataType)call->desc.c.type,
                                                       number_of(&call->desc.c, c, row, column)));
            if (bias)
                x += creal(flyt_soft_number_get(bias_type(call), bias + row * flyt_soft_number_bytes(bias_type(call))));
            flyt_soft_number_put((cudaDataType)call->desc.d.type, number_of(&call->desc.d, d, row, column),
                                 activate(&call->desc, x));
        }
}

/* ---- the work ---- */

static const char *member_of(const struct flyt_soft_slt_matrix *matrix, const void *at, int64_t member)
{
    return (const char *)at + member * matrix->stride * (int64_t)flyt_soft_number_bytes((cudaDataType)matrix->type);
}

/* The structured operand's numbers with its zeros; NULL: memory is out. */
static void *expand(const struct matmul *call, const void *compressed)
{
    const struct flyt_soft_slt_lines *l = &call->lines;
    void *dense = malloc((size_t)(l->count * l->k) * flyt_soft_number_bytes(l->type));

    if (dense)
        flyt_soft_slt_expand(l, compressed, dense);
    return dense;
}

static CUresult run_member(const struct matmul *call, int64_t member)
{
    const struct flyt_soft_slt_matmul *desc = &call->desc;
    bool is_a = desc->a.is_structured;
    uint64_t compressed_bytes = flyt_soft_slt_compressed_bytes(&call->lines);
    const char *compressed =
        (const char *)(is_a ? call->a : call->b) + (call->lines.stride ? (uint64_t)member * compressed_bytes : 0);
    const struct flyt_soft_slt_matrix *other = is_a ? &desc->b : &desc->a;
    const char *operand = member_of(other, is_a ? call->b : call->a, member);
    const char *c = call->c ? member_of(&desc->c, call->c, member) : NULL;
    char *d = (char *)(uintptr_t)member_of(&desc->d, call->d, member);
    unsigned bias_bytes = flyt_soft_number_bytes(bias_type(call));
    const char *bias = desc->bias ? (const char *)desc->bias + member * desc->bias_stride * bias_bytes : NULL;
    bool has_beta = call->betas || call->beta != 0, is_well;
    void *dense, *sum;

    if (!flyt_soft_work_reaches(compressed, compressed_bytes) ||
        !flyt_soft_work_reaches(operand, flyt_soft_slt_bytes(other)) ||
        !flyt_soft_work_reaches(d, flyt_soft_slt_bytes(&desc->d)) ||
        (has_beta && !flyt_soft_work_reaches(c, flyt_soft_slt_bytes(&desc->c))) ||
        (bias && !flyt_soft_work_reaches(bias, (uint64_t)call->product.m * bias_bytes)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    dense = expand(call, compressed);
    sum = malloc((size_t)call->product.m * (size_t)call->product.n * 4);
    is_well =
        dense && sum && flyt_soft_product_run(&call->product, is_a ? dense : operand, is_a ? operand : dense, sum);
    if (is_well)
        finish(call, sum, c, bias, d);
    free(dense);
    free(sum);
    return is_well ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult run(void *record)
{
    const struct matmul *call = record;
    uint64_t vector_bytes = (uint64_t)call->product.m * sizeof(float);
    CUresult r = CUDA_SUCCESS;

    if ((call->alphas && !flyt_soft_work_reaches(call->alphas, vector_bytes)) ||
        (call->betas && !flyt_soft_work_reaches(call->betas, vector_bytes)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int64_t member = 0; member < call->desc.d.batch_count && r == CUDA_SUCCESS; member++)
        r = run_member(call, member);
    return r;
}

/* ---- the call ---- */

/* A matrix whose rows are contiguous is its transpose with contiguous columns. */
static char operation(int32_t op, const struct flyt_soft_slt_matrix *matrix)
{
    return (op == CUSPARSE_OPERATION_NON_TRANSPOSE) == (matrix->order == CUSPARSE_ORDER_COL) ? 'N' : 'T';
}

/* The structured operand is read line by line along k, without gaps. */
static struct flyt_soft_product product_of(const struct flyt_soft_slt_matmul *desc)
{
    bool is_a = desc->a.is_structured;
    int k = (int)(desc->op_a == CUSPARSE_OPERATION_NON_TRANSPOSE ? desc->a.columns : desc->a.rows);

    return (struct flyt_soft_product){
        .a_type = (cudaDataType)desc->a.type,
        .b_type = (cudaDataType)desc->b.type,
        .sum_type = desc->compute == FLYT_SOFT_SLT_COMPUTE_32I ? CUDA_R_32I : CUDA_R_32F,
        .transa = is_a ? 'T' : operation(desc->op_a, &desc->a),
        .transb = is_a ? operation(desc->op_b, &desc->b) : 'N',
        .m = (int)desc->d.rows,
        .n = (int)desc->d.columns,
        .k = k,
        .lda = is_a ? k : (int)desc->a.leading,
        .ldb = is_a ? (int)desc->b.leading : k,
    };
}

static cusparseStatus_t multiply(const struct flyt_soft_slt_plan *plan, const void *alpha, const void *beta,
                                 struct matmul *call, CUstream stream)
{
    call->desc = plan->matmul;
    call->lines = flyt_soft_slt_sparse_of(&plan->matmul);
    call->product = product_of(&plan->matmul);
    if (call->desc.is_alpha_vector)
        call->alphas = alpha;
    else
        call->alpha = *(const float *)alpha;
    if (call->desc.is_beta_vector)
        call->betas = beta;
    else
        call->beta = *(const float *)beta;
    if (!call->c && (call->betas || call->beta != 0))
        return CUSPARSE_STATUS_INVALID_VALUE;
    if (!flyt_soft_product_init(&call->product))
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    return flyt_soft_sparse_status(flyt_soft_work_push(stream, run, NULL, call, sizeof(*call)));
}

FLYT_SOFT_SLT cusparseLtMatmul(const void *handle, const void *room, const void *alpha, const void *a, const void *b,
                               const void *beta, const void *c, void *d, void *workspace, CUstream *streams,
                               int32_t stream_count)
{
    FLYT_SOFT_SLT_FIND(plan, room, FLYT_SOFT_SLT_PLAN);
    struct matmul call = {.a = a, .b = b, .c = c, .d = d};

    (void)workspace;
    if (!flyt_soft_slt_handle_is(handle))
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    if (!plan || !alpha || !beta || !a || !b || !d || stream_count < 0 || (stream_count && !streams))
        return CUSPARSE_STATUS_INVALID_VALUE;
    if (stream_count > 1)
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    return multiply(plan, alpha, beta, &call, stream_count ? *streams : NULL);
}

/* The one algorithm is the fastest. The product is computed, too. */
FLYT_SOFT_SLT cusparseLtMatmulSearch(const void *handle, void *room, const void *alpha, const void *a, const void *b,
                                     const void *beta, const void *c, void *d, void *workspace, CUstream *streams,
                                     int32_t stream_count)
{
    cusparseStatus_t status = cusparseLtMatmul(handle, room, alpha, a, b, beta, c, d, workspace, streams, stream_count);

    if (status == CUSPARSE_STATUS_SUCCESS)
        status = flyt_soft_sparse_status(cuStreamSynchronize(stream_count ? *streams : NULL));
    return status;
}
