/*
 * cuSPARSE: products of two sparse matrices in CSR. The product is computed where its numbers are counted, and kept in
 * the descriptor until it is copied out; `reuse` keeps its pattern, and computes its numbers each time.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/sparse.h"

struct product {
    int64_t count, multiplications;
    struct place {
        int64_t row, column;
    } * places; /* by rows, then by columns */
    flyt_soft_complex *values;
};

struct cusparseSpGEMMDescr {
    struct product product;
};

/* A record; with `product` in memory of its caller, else owned. */
struct multiplication {
    struct cusparseSpMatDescr a, b, c;
    struct flyt_soft_scalar alpha;
    cudaDataType type;
    struct product *product, owned;
};

static void product_fini(struct product *product)
{
    free(product->places);
    free(product->values);
    *product = (struct product){0};
}

/* ---- multiplying ---- */

struct operand {
    struct flyt_soft_entry *list;
    int64_t count;
};

/* A row of the product while it is summed up. */
struct row {
    flyt_soft_complex *sums;
    bool *is_there;
};

static bool product_add(struct product *product, int64_t *room, int64_t row, int64_t column, flyt_soft_complex value)
{
    if (product->count == *room) {
        int64_t more = *room * 2 + 64;
        void *places = realloc(product->places, (size_t)more * sizeof(*product->places));
        void *values = places ? realloc(product->values, (size_t)more * sizeof(*product->values)) : NULL;

        product->places = places ? places : product->places;
        product->values = values ? values : product->values;
        if (!places || !values)
            return false;
        *room = more;
    }
    product->places[product->count] = (struct place){row, column};
    product->values[product->count++] = value;
    return true;
}

/* The first entry of `row` or a later one, in a list by rows. */
static int64_t find_row(const struct operand *operand, int64_t row)
{
    int64_t low = 0, high = operand->count;

    while (low < high) {
        int64_t middle = (low + high) / 2;

        if (operand->list[middle].row < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool multiply_row(const struct multiplication *self, const struct operand *a, const struct operand *b,
                         int64_t first, int64_t end, struct row *row, int64_t *room)
{
    flyt_soft_complex alpha = flyt_soft_scalar_number(&self->alpha, self->type);
    struct product *product = self->product;

    for (int64_t i = first; i < end; i++) {
        flyt_soft_complex left = flyt_soft_number_get(self->a.type, a->list[i].value);

        for (int64_t k = find_row(b, a->list[i].column); k < b->count && b->list[k].row == a->list[i].column; k++) {
            row->is_there[b->list[k].column] = true;
            row->sums[b->list[k].column] += left * flyt_soft_number_get(self->b.type, b->list[k].value);
            product->multiplications++;
        }
    }
    for (int64_t j = 0; j < self->b.columns; j++) {
        if (row->is_there[j] && !product_add(product, room, a->list[first].row, j, alpha * row->sums[j]))
            return false;
        row->is_there[j] = false;
        row->sums[j] = 0;
    }
    return true;
}

static CUresult multiply(const struct multiplication *self, const struct operand *a, const struct operand *b)
{
    struct row row = {calloc((size_t)self->b.columns + 1, sizeof(*row.sums)),
                      calloc((size_t)self->b.columns + 1, sizeof(*row.is_there))};
    bool is_well = row.sums && row.is_there;
    int64_t room = 0;

    for (int64_t first = 0, end; first < a->count && is_well; first = end) {
        for (end = first; end < a->count && a->list[end].row == a->list[first].row; end++)
            ;
        is_well = multiply_row(self, a, b, first, end, &row, &room);
    }
    free(row.sums);
    free(row.is_there);
    return is_well ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult run_multiply(void *record)
{
    struct multiplication *self = record;
    struct operand a, b = {0};
    CUresult r;

    if (!self->product)
        self->product = &self->owned;
    product_fini(self->product);
    if (!flyt_soft_scalar_read(&self->alpha))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    r = flyt_soft_entries_load(&self->a, 0, &a.list, &a.count);
    if (r == CUDA_SUCCESS)
        r = flyt_soft_entries_load(&self->b, 0, &b.list, &b.count);
    if (r == CUDA_SUCCESS) {
        flyt_soft_entries_sort(a.list, a.count);
        flyt_soft_entries_sort(b.list, b.count);
        r = multiply(self, &a, &b);
    }
    free(a.list);
    free(b.list);
    return r;
}

/* ---- writing ---- */

static CUresult write_pattern(const struct cusparseSpMatDescr *c, const struct product *product)
{
    if (product->count > c->nnz ||
        !flyt_soft_work_reaches(c->offsets, (uint64_t)(c->rows + 1) * flyt_soft_index_bytes(c->offset_type)) ||
        !flyt_soft_work_reaches(c->indices, (uint64_t)product->count * flyt_soft_index_bytes(c->index_type)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int64_t row = 0, k = 0; row <= c->rows; row++) {
        while (k < product->count && product->places[k].row < row)
            k++;
        flyt_soft_index_put(c->offset_type, c->offsets, row, k + c->base);
    }
    for (int64_t k = 0; k < product->count; k++)
        flyt_soft_index_put(c->index_type, c->indices, k, product->places[k].column + c->base);
    return CUDA_SUCCESS;
}

static CUresult write_values(const struct cusparseSpMatDescr *c, const struct product *product)
{
    unsigned bytes = flyt_soft_number_bytes(c->type);

    if (product->count > c->nnz || !flyt_soft_work_reaches(c->values, (uint64_t)product->count * bytes))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int64_t k = 0; k < product->count; k++)
        flyt_soft_number_put(c->type, (char *)c->values + k * bytes, product->values[k]);
    return CUDA_SUCCESS;
}

static CUresult run_write_pattern(void *record)
{
    const struct multiplication *self = record;

    return write_pattern(&self->c, &self->owned);
}

static CUresult run_write(void *record)
{
    const struct multiplication *self = record;
    CUresult r = write_pattern(&self->c, &self->owned);

    return r == CUDA_SUCCESS ? write_values(&self->c, &self->owned) : r;
}

static CUresult run_multiply_and_write(void *record)
{
    struct multiplication *self = record;
    CUresult r = run_multiply(self);

    if (r == CUDA_SUCCESS)
        r = write_values(&self->c, self->product);
    product_fini(self->product);
    self->product = NULL;
    return r;
}

static void fini(void *record)
{
    product_fini(&((struct multiplication *)record)->owned);
}

/* Copies what the descriptor has into a record, which may be executed after the descriptor's end. */
static bool product_copy(const struct product *from, struct product *ret)
{
    size_t places = (size_t)from->count * sizeof(*from->places), values = (size_t)from->count * sizeof(*from->values);

    *ret = (struct product){.count = from->count, .places = malloc(places + 1), .values = malloc(values + 1)};
    if (!ret->places || !ret->values) {
        product_fini(ret);
        return false;
    }
    if (from->count) {
        memcpy(ret->places, from->places, places);
        memcpy(ret->values, from->values, values);
    }
    return true;
}

static cusparseStatus_t push_write(cusparseHandle_t handle, CUresult (*run)(void *), const struct cusparseSpMatDescr *c,
                                   const struct product *product)
{
    struct multiplication self = {.c = *c};
    CUresult r;

    FLYT_SOFT_SPARSE_CHECK(handle && product->count <= c->nnz);
    if (!product_copy(product, &self.owned))
        return CUSPARSE_STATUS_ALLOC_FAILED;
    r = flyt_soft_work_push(handle->stream, run, fini, &self, sizeof(self));
    if (r != CUDA_SUCCESS)
        fini(&self);
    return flyt_soft_sparse_status(r);
}

/* ---- calls ---- */

static bool is_product(cusparseOperation_t op_a, cusparseOperation_t op_b, const struct cusparseSpMatDescr *a,
                       const struct cusparseSpMatDescr *b, const struct cusparseSpMatDescr *c)
{
    return op_a == CUSPARSE_OPERATION_NON_TRANSPOSE && op_b == CUSPARSE_OPERATION_NON_TRANSPOSE && a && b && c &&
           a->format == CUSPARSE_FORMAT_CSR && b->format == CUSPARSE_FORMAT_CSR && c->format == CUSPARSE_FORMAT_CSR &&
           a->columns == b->rows && a->rows == c->rows && b->columns == c->columns;
}

/* Whether this call asks for the size of a buffer only, which it then gets. */
static bool is_question(size_t *bytes, const void *buffer)
{
    if (buffer)
        return false;
    *bytes = 16;
    return true;
}

FLYT_SOFT_CUSPARSE cusparseSpGEMM_createDescr(cusparseSpGEMMDescr_t *descr)
{
    FLYT_SOFT_SPARSE_CHECK(descr);
    *descr = calloc(1, sizeof(**descr));
    return *descr ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ALLOC_FAILED;
}

FLYT_SOFT_CUSPARSE cusparseSpGEMM_destroyDescr(cusparseSpGEMMDescr_t descr)
{
    FLYT_SOFT_SPARSE_CHECK(descr);
    product_fini(&descr->product);
    free(descr);
    return CUSPARSE_STATUS_SUCCESS;
}

/* Multiplies into the descriptor, and counts. */
static cusparseStatus_t count(cusparseHandle_t handle, struct multiplication *self, cusparseSpMatDescr_t c,
                              cusparseSpGEMMDescr_t descr)
{
    CUresult r;

    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    self->product = &descr->product;
    r = flyt_soft_work_push(handle->stream, run_multiply, NULL, self, sizeof(*self));
    if (r == CUDA_SUCCESS)
        r = cuStreamSynchronize(handle->stream);
    if (r == CUDA_SUCCESS)
        c->nnz = descr->product.count;
    return flyt_soft_sparse_status(r);
}

#define OPERANDS                                                                                                       \
    cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b, const void *alpha,                    \
        cusparseConstSpMatDescr_t a, cusparseConstSpMatDescr_t b, const void *beta, cusparseSpMatDescr_t c,            \
        cudaDataType type, cusparseSpGEMMAlg_t alg, cusparseSpGEMMDescr_t descr

FLYT_SOFT_CUSPARSE cusparseSpGEMM_workEstimation(OPERANDS, size_t *bytes, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(is_product(op_a, op_b, a, b, c) && descr && bytes);
    if (is_question(bytes, buffer))
        return CUSPARSE_STATUS_SUCCESS;
    struct multiplication self = {.a = *a, .b = *b, .c = *c, .type = type};
    FLYT_SOFT_SPARSE_CHECK(flyt_soft_sparse_scalar(handle, &self.alpha, alpha, type));
    return count(handle, &self, c, descr);
}

FLYT_SOFT_CUSPARSE cusparseSpGEMM_getNumProducts(cusparseSpGEMMDescr_t descr, int64_t *ret_count)
{
    FLYT_SOFT_SPARSE_CHECK(descr && ret_count);
    *ret_count = descr->product.multiplications;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSpGEMM_estimateMemory(OPERANDS, float fraction, size_t *bytes3, void *buffer3,
                                                 size_t *ret_bytes2)
{
    FLYT_SOFT_SPARSE_CHECK(is_product(op_a, op_b, a, b, c) && descr && bytes3 && fraction > 0 && fraction <= 1);
    if (is_question(bytes3, buffer3))
        return CUSPARSE_STATUS_SUCCESS;
    FLYT_SOFT_SPARSE_CHECK(ret_bytes2);
    *ret_bytes2 = 16;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSpGEMM_compute(OPERANDS, size_t *bytes, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(is_product(op_a, op_b, a, b, c) && descr && bytes);
    if (is_question(bytes, buffer))
        return CUSPARSE_STATUS_SUCCESS;
    struct multiplication self = {.a = *a, .b = *b, .c = *c, .type = type};
    FLYT_SOFT_SPARSE_CHECK(flyt_soft_sparse_scalar(handle, &self.alpha, alpha, type));
    return count(handle, &self, c, descr);
}

FLYT_SOFT_CUSPARSE cusparseSpGEMM_copy(OPERANDS)
{
    FLYT_SOFT_SPARSE_CHECK(is_product(op_a, op_b, a, b, c) && descr);
    return push_write(handle, run_write, c, &descr->product);
}

/* ---- with a pattern that is used again ---- */

#define PATTERNS                                                                                                       \
    cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b, cusparseConstSpMatDescr_t a,          \
        cusparseConstSpMatDescr_t b, cusparseSpMatDescr_t c, cusparseSpGEMMAlg_t alg, cusparseSpGEMMDescr_t descr

FLYT_SOFT_CUSPARSE cusparseSpGEMMreuse_workEstimation(PATTERNS, size_t *bytes, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(is_product(op_a, op_b, a, b, c) && descr && bytes);
    (void)is_question(bytes, buffer);
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSpGEMMreuse_nnz(PATTERNS, size_t *bytes2, void *buffer2, size_t *bytes3, void *buffer3,
                                           size_t *bytes4, void *buffer4)
{
    static const double one = 1;

    FLYT_SOFT_SPARSE_CHECK(is_product(op_a, op_b, a, b, c) && descr && bytes2 && bytes3 && bytes4);
    bool is_asked = is_question(bytes2, buffer2);
    is_asked |= is_question(bytes3, buffer3);
    is_asked |= is_question(bytes4, buffer4);
    if (is_asked)
        return CUSPARSE_STATUS_SUCCESS;
    struct multiplication self = {.a = *a, .b = *b, .c = *c, .type = CUDA_R_64F, .alpha = {.bytes = sizeof(one)}};
    memcpy(self.alpha.value, &one, sizeof(one));
    return count(handle, &self, c, descr);
}

FLYT_SOFT_CUSPARSE cusparseSpGEMMreuse_copy(PATTERNS, size_t *bytes, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(is_product(op_a, op_b, a, b, c) && descr && bytes);
    if (is_question(bytes, buffer))
        return CUSPARSE_STATUS_SUCCESS;
    return push_write(handle, run_write_pattern, c, &descr->product);
}

FLYT_SOFT_CUSPARSE cusparseSpGEMMreuse_compute(OPERANDS)
{
    FLYT_SOFT_SPARSE_CHECK(is_product(op_a, op_b, a, b, c) && descr);
    struct multiplication self = {.a = *a, .b = *b, .c = *c, .type = type};
    FLYT_SOFT_SPARSE_CHECK(flyt_soft_sparse_scalar(handle, &self.alpha, alpha, type));
    return flyt_soft_sparse_status(
        flyt_soft_work_push(handle->stream, run_multiply_and_write, NULL, &self, sizeof(self)));
}
