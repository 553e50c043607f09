/* cuBLASLt: products of two matrices with what is done to them before they are stored, and changes of layout. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/lt.h"
#include "cpu/softgpu/library/number.h"
#include "cpu/softgpu/library/product.h"

/* The bits of which epilogues are made. */
enum {
    RELU = CUBLASLT_EPILOGUE_RELU,
    BIAS = CUBLASLT_EPILOGUE_BIAS,
    DRELU = 8,
    BGRAD = 16,
    GELU = CUBLASLT_EPILOGUE_GELU,
    DGELU = 64,
    AUX = 128,
    BGRADA = CUBLASLT_EPILOGUE_BGRADA,
    BGRADB = CUBLASLT_EPILOGUE_BGRADB,
};

static const uint32_t epilogues[] = {
    CUBLASLT_EPILOGUE_DEFAULT,     CUBLASLT_EPILOGUE_RELU,      CUBLASLT_EPILOGUE_RELU_AUX,
    CUBLASLT_EPILOGUE_BIAS,        CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
    CUBLASLT_EPILOGUE_DRELU,       CUBLASLT_EPILOGUE_GELU,      CUBLASLT_EPILOGUE_GELU_AUX,
    CUBLASLT_EPILOGUE_GELU_BIAS,   CUBLASLT_EPILOGUE_DGELU,     CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
    CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,    CUBLASLT_EPILOGUE_BGRADB,
    CUBLASLT_EPILOGUE_DGELU_BGRAD,
};

struct matmul {
    struct flyt_soft_lt_matmul desc;
    struct flyt_soft_lt_layout a_layout, b_layout, c_layout, d_layout;
    struct flyt_soft_product product;
    struct flyt_soft_scalar alpha, beta;
    const void *a, *b, *c;
    void *d;
};

/* ---- checks ---- */

static cudaDataType sum_type(const struct flyt_soft_lt_matmul *desc, const struct flyt_soft_lt_layout *a)
{
    bool is_complex = flyt_soft_number_is_complex((cudaDataType)a->type);

    switch (desc->compute) {
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        return CUDA_R_32I;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
        return is_complex ? CUDA_C_64F : CUDA_R_64F;
    default:
        return is_complex ? CUDA_C_32F : CUDA_R_32F;
    }
}

/* A matrix whose rows are contiguous is its transpose with contiguous columns. */
static char operation(int32_t op, const struct flyt_soft_lt_layout *layout)
{
    if (layout->order == CUBLASLT_ORDER_COL)
        return "NTC"[op];
    return "TNR"[op];
}

static bool scale_mode_is_known(const struct flyt_soft_lt_matmul *desc)
{
    bool is_outer = desc->a_scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;

    return (desc->a_scale_mode == 0 || is_outer) && desc->b_scale_mode == desc->a_scale_mode &&
           desc->c_scale_mode == 0 && desc->d_scale_mode == 0 && desc->aux_scale_mode == 0 &&
           desc->d_out_scale_mode == 0 && !desc->d_out_scale;
}

static bool epilogue_is_known(uint32_t epilogue)
{
    for (unsigned i = 0; i < sizeof(epilogues) / sizeof(epilogues[0]); i++)
        if (epilogues[i] == epilogue)
            return true;
    return false;
}

static cublasStatus_t shapes_check(const struct flyt_soft_lt_matmul *desc, const struct flyt_soft_lt_layout *a,
                                   const struct flyt_soft_lt_layout *b, const struct flyt_soft_lt_layout *c,
                                   const struct flyt_soft_lt_layout *d)
{
    bool a_is_plain = desc->transa == CUBLAS_OP_N, b_is_plain = desc->transb == CUBLAS_OP_N;

    if ((a_is_plain ? a->rows : a->columns) != d->rows || (b_is_plain ? b->columns : b->rows) != d->columns ||
        (a_is_plain ? a->columns : a->rows) != (b_is_plain ? b->rows : b->columns) || c->rows != d->rows ||
        c->columns != d->columns || a->batch_count != d->batch_count || b->batch_count != d->batch_count ||
        c->batch_count != d->batch_count)
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

/* Fills in the product as well. */
static cublasStatus_t prepare(const struct flyt_soft_lt_matmul *desc, const struct flyt_soft_lt_layout *a,
                              const struct flyt_soft_lt_layout *b, const struct flyt_soft_lt_layout *c,
                              const struct flyt_soft_lt_layout *d, struct flyt_soft_product *ret_product)
{
    if ((uint32_t)desc->transa > CUBLAS_OP_C || (uint32_t)desc->transb > CUBLAS_OP_C)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (desc->transc != CUBLAS_OP_N || desc->fill_mode != CUBLAS_FILL_MODE_FULL || !scale_mode_is_known(desc) ||
        !epilogue_is_known(desc->epilogue) || desc->pointer_mode > CUBLASLT_POINTER_MODE_DEVICE)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    FLYT_SOFT_CHECK(flyt_soft_lt_layout_check(a));
    FLYT_SOFT_CHECK(flyt_soft_lt_layout_check(b));
    FLYT_SOFT_CHECK(flyt_soft_lt_layout_check(c));
    FLYT_SOFT_CHECK(flyt_soft_lt_layout_check(d));
    FLYT_SOFT_CHECK(shapes_check(desc, a, b, c, d));
    *ret_product = (struct flyt_soft_product){
        .a_type = (cudaDataType)a->type,
        .b_type = (cudaDataType)b->type,
        .sum_type = sum_type(desc, a),
        .transa = operation(desc->transa, a),
        .transb = operation(desc->transb, b),
        .m = (int)d->rows,
        .n = (int)d->columns,
        .k = (int)(desc->transa == CUBLAS_OP_N ? a->columns : a->rows),
        .lda = (int)a->leading,
        .ldb = (int)b->leading,
    };
    if (!flyt_soft_product_init(ret_product) || !flyt_soft_number_bytes((cudaDataType)desc->scale_type) ||
        flyt_soft_number_is_complex((cudaDataType)d->type) != flyt_soft_number_is_complex(ret_product->sum_type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t flyt_soft_lt_matmul_check(const struct flyt_soft_lt_matmul *matmul, const struct flyt_soft_lt_layout *a,
                                         const struct flyt_soft_lt_layout *b, const struct flyt_soft_lt_layout *c,
                                         const struct flyt_soft_lt_layout *d)
{
    struct flyt_soft_product product;

    return prepare(matmul, a, b, c, d, &product);
}

/* ---- what is done to each number of the sum ---- */

static double gelu_gradient(double x)
{
    const double slope = FLYT_SOFT_GELU_SLOPE, cube = FLYT_SOFT_GELU_CUBE;
    double t = tanh(slope * (x + cube * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope * (1 + 3 * cube * x * x);
}

static cudaDataType bias_type(const struct matmul *call)
{
    cudaDataType d_type = (cudaDataType)call->d_layout.type;

    if (call->desc.bias_type >= 0)
        return (cudaDataType)call->desc.bias_type;
    if (d_type == CUDA_R_8I)
        return (cudaDataType)call->desc.scale_type;
    return flyt_soft_number_bytes(d_type) == 1 ? CUDA_R_16BF : d_type;
}

static cudaDataType aux_type(const struct matmul *call)
{
    return (cudaDataType)(call->desc.aux_type >= 0 ? (uint32_t)call->desc.aux_type : call->d_layout.type);
}

/* The factor in device memory, or 1. */
static double factor(const void *at, int64_t index)
{
    return at ? ((const float *)at)[index] : 1;
}

/* What is the same for all columns of one matrix. */
struct column_work {
    const struct matmul *call;
    double _Complex alpha, beta;
    const void *c;
    void *d;
    const char *bias;
    char *aux;
    double *bias_sums; /* of each row; NULL: not asked for */
    double d_largest, aux_largest;
};

/* aux holds a bit for each number, or the number that GELU is applied to. */
static bool aux_bit(const struct column_work *w, int64_t row, int64_t column)
{
    int64_t bit = column * w->call->desc.aux_leading + row;

    return w->aux[bit / 8] >> bit % 8 & 1;
}

static void aux_bit_put(const struct column_work *w, int64_t row, int64_t column, bool value)
{
    int64_t bit = column * w->call->desc.aux_leading + row;

    w->aux[bit / 8] = (char)((w->aux[bit / 8] & ~(1 << bit % 8)) | value << bit % 8);
}

static void *aux_number(const struct column_work *w, int64_t row, int64_t column)
{
    return w->aux + (column * w->call->desc.aux_leading + row) * flyt_soft_number_bytes(aux_type(w->call));
}

static double activate(struct column_work *w, double x, int64_t row, int64_t column)
{
    uint32_t epilogue = w->call->desc.epilogue;

    if (epilogue & RELU) {
        if (epilogue & AUX)
            aux_bit_put(w, row, column, x > 0);
        return x > 0 || isnan(x) ? x : 0;
    }
    if (epilogue & GELU) {
        if (epilogue & AUX) {
            w->aux_largest = fmax(w->aux_largest, fabs(x));
            flyt_soft_number_put(aux_type(w->call), aux_number(w, row, column), x * factor(w->call->desc.aux_scale, 0));
        }
        return flyt_soft_gelu(x);
    }
    if (epilogue & DRELU)
        return aux_bit(w, row, column) ? x : 0;
    if (epilogue & DGELU)
        return x * gelu_gradient(creal(flyt_soft_number_get(aux_type(w->call), aux_number(w, row, column))) *
                                 factor(w->call->desc.aux_scale, 0));
    return x;
}

static void finish_block(struct column_work *w, struct flyt_soft_block *x, int64_t row, int64_t column, int count)
{
    const struct flyt_soft_lt_matmul *desc = &w->call->desc;
    bool is_outer = desc->a_scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    unsigned bias_bytes = flyt_soft_number_bytes(bias_type(w->call));
    double d_scale = factor(desc->d_scale, 0);
    struct flyt_soft_block c, bias;
    int64_t inc;

    if (w->beta != 0) {
        const char *at = flyt_soft_lt_column(&w->call->c_layout, w->c, (uint64_t)column, &inc);
        cudaDataType type = (cudaDataType)w->call->c_layout.type;

        flyt_soft_block_load(&c, type, at + row * inc * (int64_t)flyt_soft_number_bytes(type), inc, count);
    }
    if (desc->epilogue & BIAS)
        flyt_soft_block_load(&bias, bias_type(w->call), w->bias + row * bias_bytes, 1, count);
    for (int i = 0; i < count; i++) {
        double scale = is_outer ? factor(desc->a_scale, row + i) * factor(desc->b_scale, column)
                                : factor(desc->a_scale, 0) * factor(desc->b_scale, 0);
        double _Complex value = w->alpha * scale * CMPLX(x->re[i], x->im[i]);

        if (w->beta != 0)
            value += w->beta * factor(desc->c_scale, 0) * CMPLX(c.re[i], c.im[i]);
        if (desc->epilogue & BIAS)
            value += CMPLX(bias.re[i], bias.im[i]);
        if (desc->epilogue & (RELU | GELU | DRELU | DGELU))
            value = activate(w, creal(value), row + i, column);
        if (w->bias_sums)
            w->bias_sums[row + i] += creal(value);
        w->d_largest = fmax(w->d_largest, cabs(value));
        x->re[i] = creal(value) * d_scale;
        x->im[i] = cimag(value) * d_scale;
    }
}

/* Sums of op(A) along its rows, or of op(B) along its columns: the gradients of a bias. */
static void sum_operand(const struct matmul *call, const void *a, const void *b, void *to)
{
    bool is_a = call->desc.epilogue & BGRADA;
    const struct flyt_soft_product *p = &call->product;
    cudaDataType type = is_a ? p->a_type : p->b_type;
    char trans = is_a ? p->transa : p->transb;
    unsigned bytes = flyt_soft_number_bytes(type), to_bytes = flyt_soft_number_bytes(bias_type(call));
    int64_t leading = is_a ? p->lda : p->ldb;
    bool is_along = is_a == (trans == 'T' || trans == 'C'); /* what is summed is contiguous */

    for (int64_t i = 0; i < (is_a ? p->m : p->n); i++) {
        double sum = 0;

        for (int64_t l = 0; l < p->k; l++)
            sum += creal(flyt_soft_number_get(type, (const char *)(is_a ? a : b) +
                                                        (is_along ? l + i * leading : i + l * leading) * bytes));
        flyt_soft_number_put(bias_type(call), (char *)to + i * to_bytes, sum);
    }
}

static bool compute(const struct matmul *call, const void *a, const void *b, struct column_work *w)
{
    const struct flyt_soft_product *p = &call->product;
    unsigned sum_bytes = flyt_soft_number_bytes(p->sum_type);
    cudaDataType d_type = (cudaDataType)call->d_layout.type;
    char *sum = malloc((size_t)p->m * (size_t)p->n * sum_bytes + 1);
    bool has_sums = call->desc.epilogue & BGRAD && call->desc.bias, has_memory;

    w->bias_sums = has_sums ? calloc((size_t)p->m + 1, sizeof(double)) : NULL;
    has_memory = sum && (w->bias_sums || !has_sums) && flyt_soft_product_run(p, a, b, sum);
    for (int64_t j = 0; j < p->n && has_memory; j++) {
        int64_t inc;
        char *to = flyt_soft_lt_column(&call->d_layout, w->d, (uint64_t)j, &inc);

        for (int64_t i = 0; i < p->m; i += FLYT_SOFT_BLOCK) {
            int count = p->m - i < FLYT_SOFT_BLOCK ? (int)(p->m - i) : FLYT_SOFT_BLOCK;
            struct flyt_soft_block x;

            flyt_soft_block_load(&x, p->sum_type, sum + (size_t)(j * p->m + i) * sum_bytes, 1, count);
            finish_block(w, &x, i, j, count);
            flyt_soft_block_store(&x, d_type, to + i * inc * (int64_t)flyt_soft_number_bytes(d_type), inc, count);
        }
    }
    for (int i = 0; i < p->m && has_memory && has_sums; i++)
        flyt_soft_number_put(bias_type(call), (char *)w->bias + (unsigned)i * flyt_soft_number_bytes(bias_type(call)),
                             w->bias_sums[i]);
    free(w->bias_sums);
    free(sum);
    return has_memory;
}

/* ---- the work ---- */

static uint64_t aux_bytes(const struct matmul *call)
{
    uint64_t count = (uint64_t)call->desc.aux_leading * (uint64_t)call->product.n;

    if (!(call->desc.epilogue & AUX) || count == 0)
        return 0;
    if (call->desc.epilogue & (RELU | DRELU))
        return count / 8;
    return (count - (uint64_t)(call->desc.aux_leading - call->product.m)) * flyt_soft_number_bytes(aux_type(call));
}

/* Of a bias, or of its gradient. */
static uint64_t bias_bytes(const struct matmul *call)
{
    uint32_t epilogue = call->desc.epilogue;
    uint64_t count = epilogue & (BIAS | BGRAD | BGRADA) ? (uint64_t)call->product.m
                     : epilogue & BGRADB                ? (uint64_t)call->product.n
                                                        : 0;

    return call->desc.bias ? count * flyt_soft_number_bytes(bias_type(call)) : 0;
}

static bool factors_are_in_reach(const struct matmul *call)
{
    const struct flyt_soft_lt_matmul *desc = &call->desc;
    bool is_outer = desc->a_scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const struct {
        const void *at;
        uint64_t count;
    } factors[] = {
        {desc->a_scale, is_outer ? (uint64_t)call->product.m : 1},
        {desc->b_scale, is_outer ? (uint64_t)call->product.n : 1},
        {desc->c_scale, 1},
        {desc->d_scale, 1},
        {desc->aux_scale, 1},
        {desc->d_amax, 1},
        {desc->aux_amax, 1},
    };

    for (unsigned i = 0; i < sizeof(factors) / sizeof(factors[0]); i++)
        if (factors[i].at && !flyt_soft_work_reaches(factors[i].at, factors[i].count * sizeof(float)))
            return false;
    return true;
}

static CUresult run(void *record)
{
    struct matmul *call = record;
    struct column_work w = {.call = call};

    if (!flyt_soft_scalar_read(&call->alpha) || !flyt_soft_scalar_read(&call->beta) || !factors_are_in_reach(call))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    w.alpha = flyt_soft_number_get((cudaDataType)call->desc.scale_type, call->alpha.value);
    w.beta = flyt_soft_number_get((cudaDataType)call->desc.scale_type, call->beta.value);
    for (int64_t member = 0; member < call->d_layout.batch_count; member++) {
        const void *a = flyt_soft_lt_member(&call->a_layout, call->a, member);
        const void *b = flyt_soft_lt_member(&call->b_layout, call->b, member);
        int64_t bias_offset = member * call->desc.bias_stride * (int64_t)flyt_soft_number_bytes(bias_type(call));
        int64_t aux_offset = member * call->desc.aux_stride;

        aux_offset = call->desc.epilogue & (RELU | DRELU)
                         ? aux_offset / 8
                         : aux_offset * (int64_t)flyt_soft_number_bytes(aux_type(call));
        w.c = flyt_soft_lt_member(&call->c_layout, call->c, member);
        w.d = (void *)flyt_soft_lt_member(&call->d_layout, call->d, member);
        w.bias = call->desc.bias ? (char *)call->desc.bias + bias_offset : NULL;
        w.aux = call->desc.aux ? (char *)call->desc.aux + aux_offset : NULL;
        if (!flyt_soft_work_reaches(a, flyt_soft_lt_layout_bytes(&call->a_layout)) ||
            !flyt_soft_work_reaches(b, flyt_soft_lt_layout_bytes(&call->b_layout)) ||
            !flyt_soft_work_reaches(w.d, flyt_soft_lt_layout_bytes(&call->d_layout)) ||
            (w.beta != 0 && !flyt_soft_work_reaches(w.c, flyt_soft_lt_layout_bytes(&call->c_layout))) ||
            !flyt_soft_work_reaches(w.bias, bias_bytes(call)) || !flyt_soft_work_reaches(w.aux, aux_bytes(call)))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        if (call->desc.epilogue & (BGRADA | BGRADB) && w.bias)
            sum_operand(call, a, b, (void *)w.bias);
        if (!compute(call, a, b, &w))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (call->desc.d_amax)
        *(float *)call->desc.d_amax = (float)w.d_largest;
    if (call->desc.aux_amax)
        *(float *)call->desc.aux_amax = (float)w.aux_largest;
    return CUDA_SUCCESS;
}

static cublasStatus_t pointers_check(const struct matmul *call)
{
    uint32_t epilogue = call->desc.epilogue;
    bool has_c = call->c ||
                 (!call->beta.from && flyt_soft_number_get((cudaDataType)call->desc.scale_type, call->beta.value) == 0);

    if (!call->a || !call->b || !call->d || !has_c)
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((epilogue & BIAS && !call->desc.bias) || (epilogue & AUX && !call->desc.aux))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (epilogue & AUX && (call->desc.aux_leading < call->product.m ||
                           call->desc.aux_leading % (epilogue & (RELU | DRELU) ? 128 : 8) != 0))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (epilogue & (AUX | BIAS) && !flyt_soft_number_bytes(aux_type(call)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_LT cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc, const void *alpha,
                            const void *A, cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc,
                            const void *beta, const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                            cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo, void *workspace,
                            size_t workspaceSizeInBytes, cudaStream_t stream)
{
    struct cublasContext handle = {.stream = stream};
    struct matmul call = {.a = A, .b = B, .c = C, .d = D};
    unsigned scale_bytes;

    if (!lightHandle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!computeDesc || !Adesc || !Bdesc || !Cdesc || !Ddesc)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&call.desc, computeDesc, sizeof(call.desc));
    memcpy(&call.a_layout, Adesc, sizeof(call.a_layout));
    memcpy(&call.b_layout, Bdesc, sizeof(call.b_layout));
    memcpy(&call.c_layout, Cdesc, sizeof(call.c_layout));
    memcpy(&call.d_layout, Ddesc, sizeof(call.d_layout));
    FLYT_SOFT_CHECK(prepare(&call.desc, &call.a_layout, &call.b_layout, &call.c_layout, &call.d_layout, &call.product));
    handle.pointer_mode = (cublasPointerMode_t)call.desc.pointer_mode;
    scale_bytes = flyt_soft_number_bytes((cudaDataType)call.desc.scale_type);
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(&handle, &call.alpha, alpha, scale_bytes));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(&handle, &call.beta, beta, scale_bytes));
    if (call.product.m == 0 || call.product.n == 0 || call.d_layout.batch_count == 0)
        return CUBLAS_STATUS_SUCCESS;
    FLYT_SOFT_CHECK(pointers_check(&call));
    return flyt_soft_blas_push_work(&handle, run, &call, sizeof(call));
}

/* ---- C = alpha op(A) + beta op(B), between types and orders ---- */

struct transform {
    struct flyt_soft_lt_transform desc;
    struct flyt_soft_lt_layout a_layout, b_layout, c_layout;
    struct flyt_soft_scalar alpha, beta;
    const void *a, *b;
    void *c;
};

static double _Complex transform_term(const struct flyt_soft_lt_layout *layout, const void *at, int32_t op,
                                      double _Complex times, uint64_t row, uint64_t column)
{
    cudaDataType type = (cudaDataType)layout->type;
    uint64_t i = op == CUBLAS_OP_N ? row : column, j = op == CUBLAS_OP_N ? column : row;
    int64_t inc;
    const char *first;
    double _Complex x;

    if (times == 0)
        return 0;
    first = flyt_soft_lt_column(layout, at, j, &inc);
    x = flyt_soft_number_get(type, first + i * (uint64_t)inc * flyt_soft_number_bytes(type));
    return times * (op == CUBLAS_OP_C ? conj(x) : x);
}

static CUresult run_transform(void *record)
{
    struct transform *call = record;
    cudaDataType scale_type = (cudaDataType)call->desc.scale_type, type = (cudaDataType)call->c_layout.type;
    double _Complex alpha, beta = 0;

    if (!flyt_soft_scalar_read(&call->alpha) || !flyt_soft_scalar_read(&call->beta))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    alpha = flyt_soft_number_get(scale_type, call->alpha.value);
    if (call->b)
        beta = flyt_soft_number_get(scale_type, call->beta.value);
    for (int64_t member = 0; member < call->c_layout.batch_count; member++) {
        const void *a = flyt_soft_lt_member(&call->a_layout, call->a, member);
        const void *b = call->b ? flyt_soft_lt_member(&call->b_layout, call->b, member) : NULL;
        void *c = (void *)flyt_soft_lt_member(&call->c_layout, call->c, member);

        if ((alpha != 0 && !flyt_soft_work_reaches(a, flyt_soft_lt_layout_bytes(&call->a_layout))) ||
            (beta != 0 && !flyt_soft_work_reaches(b, flyt_soft_lt_layout_bytes(&call->b_layout))) ||
            !flyt_soft_work_reaches(c, flyt_soft_lt_layout_bytes(&call->c_layout)))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        for (uint64_t j = 0; j < call->c_layout.columns; j++) {
            int64_t inc;
            char *to = flyt_soft_lt_column(&call->c_layout, c, j, &inc);

            for (uint64_t i = 0; i < call->c_layout.rows; i++)
                flyt_soft_number_put(type, to + i * (uint64_t)inc * flyt_soft_number_bytes(type),
                                     transform_term(&call->a_layout, a, call->desc.transa, alpha, i, j) +
                                         transform_term(&call->b_layout, b, call->desc.transb, beta, i, j));
        }
    }
    return CUDA_SUCCESS;
}

static bool has_shape_of(const struct flyt_soft_lt_layout *layout, int32_t op, const struct flyt_soft_lt_layout *c)
{
    bool is_plain = op == CUBLAS_OP_N;

    return layout->rows == (is_plain ? c->rows : c->columns) && layout->columns == (is_plain ? c->columns : c->rows) &&
           layout->batch_count == c->batch_count;
}

FLYT_SOFT_LT cublasLtMatrixTransform(cublasLtHandle_t lightHandle, cublasLtMatrixTransformDesc_t transformDesc,
                                     const void *alpha, const void *A, cublasLtMatrixLayout_t Adesc, const void *beta,
                                     const void *B, cublasLtMatrixLayout_t Bdesc, void *C, cublasLtMatrixLayout_t Cdesc,
                                     cudaStream_t stream)
{
    struct cublasContext handle = {.stream = stream};
    struct transform call = {.a = A, .b = B, .c = C};
    unsigned scale_bytes;

    if (!lightHandle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!transformDesc || !A || !Adesc || !C || !Cdesc || (B && (!Bdesc || !beta)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&call.desc, transformDesc, sizeof(call.desc));
    memcpy(&call.a_layout, Adesc, sizeof(call.a_layout));
    memcpy(&call.b_layout, B ? Bdesc : Adesc, sizeof(call.b_layout));
    memcpy(&call.c_layout, Cdesc, sizeof(call.c_layout));
    scale_bytes = flyt_soft_number_bytes((cudaDataType)call.desc.scale_type);
    if (call.desc.pointer_mode > CUBLASLT_POINTER_MODE_DEVICE || !scale_bytes)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((uint32_t)call.desc.transa > CUBLAS_OP_C || (uint32_t)call.desc.transb > CUBLAS_OP_C)
        return CUBLAS_STATUS_INVALID_VALUE;
    FLYT_SOFT_CHECK(flyt_soft_lt_layout_check(&call.a_layout));
    FLYT_SOFT_CHECK(flyt_soft_lt_layout_check(&call.b_layout));
    FLYT_SOFT_CHECK(flyt_soft_lt_layout_check(&call.c_layout));
    if (!has_shape_of(&call.a_layout, call.desc.transa, &call.c_layout) ||
        (B && !has_shape_of(&call.b_layout, call.desc.transb, &call.c_layout)))
        return CUBLAS_STATUS_INVALID_VALUE;
    handle.pointer_mode = (cublasPointerMode_t)call.desc.pointer_mode;
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(&handle, &call.alpha, alpha, scale_bytes));
    if (B)
        FLYT_SOFT_CHECK(flyt_soft_scalar_set(&handle, &call.beta, beta, scale_bytes));
    return flyt_soft_blas_push_work(&handle, run_transform, &call, sizeof(call));
}
