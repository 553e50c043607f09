/* cuSPARSE's descriptors: they are made around each call, of the values that came with it. */
#include <stdint.h>

#include "cpu/server/library/library.h"
#include "flyt_lib_cusparse.h"

/* Calls a function of the library's by its prototype. */
#define CALL(name, types, ...)                                                                                         \
    (find(call, name) ? ((int(*) types)find(call, name))(__VA_ARGS__) : call->library->refused)

#define FILL(name)                                                                                                     \
    int flyt_server_fill_cusparse_##name(struct flyt_libcall *call, const void *from, const void *list, void *real);   \
    int flyt_server_fill_cusparse_##name(struct flyt_libcall *call, const void *from, const void *list, void *real)
#define VALUE(name) const struct flyt_value_##name *value = from

/* cusparseFormat_t. */
enum { CSR = 1, CSC = 2, COO = 3, BLOCKED_ELL = 5, BSR = 6, SLICED_ELL = 7 };

static void *find(const struct flyt_libcall *call, const char *name)
{
    return flyt_server_library_function(call->library, name);
}

static void *at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

FILL(matdescr)
{
    VALUE(matdescr);
    int status = call->library->success;
    (void)list;
    if (value->type)
        status = CALL("cusparseSetMatType", (void *, int), real, value->type);
    if (!status && value->fill_mode)
        status = CALL("cusparseSetMatFillMode", (void *, int), real, value->fill_mode);
    if (!status && value->diag_type)
        status = CALL("cusparseSetMatDiagType", (void *, int), real, value->diag_type);
    if (!status && value->index_base)
        status = CALL("cusparseSetMatIndexBase", (void *, int), real, value->index_base);
    return status;
}

FILL(dnmat)
{
    VALUE(dnmat);
    (void)list;
    if (value->batch_count == 1 && !value->values_stride)
        return call->library->success;
    return CALL("cusparseDnMatSetStridedBatch", (void *, int, int64_t), real, value->batch_count, value->values_stride);
}

/* ---- sparse matrices ---- */

#define SIZES  int64_t, int64_t, int64_t
#define PLACES void *, void *, void *

static int create_compressed(struct flyt_libcall *call, const struct flyt_value_spmat *value, void **ret_real)
{
    const char *name = value->format == CSR ? "cusparseCreateCsr" : "cusparseCreateCsc";
    return CALL(name, (void **, SIZES, PLACES, int, int, int, int), ret_real, value->rows, value->cols, value->nnz,
                at(value->offsets), at(value->indices), at(value->values), value->offsets_type, value->indices_type,
                value->index_base, value->value_type);
}

static int create(struct flyt_libcall *call, const struct flyt_value_spmat *value, void **ret_real)
{
    switch (value->format) {
    case CSR:
    case CSC:
        return create_compressed(call, value, ret_real);
    case COO:
        return CALL("cusparseCreateCoo", (void **, SIZES, PLACES, int, int, int), ret_real, value->rows, value->cols,
                    value->nnz, at(value->offsets), at(value->indices), at(value->values), value->indices_type,
                    value->index_base, value->value_type);
    case BLOCKED_ELL:
        return CALL("cusparseCreateBlockedEll",
                    (void **, int64_t, int64_t, int64_t, int64_t, void *, void *, int, int, int), ret_real, value->rows,
                    value->cols, value->block_rows, value->ell_cols, at(value->indices), at(value->values),
                    value->indices_type, value->index_base, value->value_type);
    case BSR:
        return CALL("cusparseCreateBsr", (void **, SIZES, int64_t, int64_t, PLACES, int, int, int, int, int), ret_real,
                    value->rows, value->cols, value->nnz, value->block_rows, value->block_cols, at(value->offsets),
                    at(value->indices), at(value->values), value->offsets_type, value->indices_type, value->index_base,
                    value->value_type, value->order);
    case SLICED_ELL:
        return CALL("cusparseCreateSlicedEll", (void **, SIZES, int64_t, int64_t, PLACES, int, int, int, int), ret_real,
                    value->rows, value->cols, value->nnz, value->values_count, value->slice_rows, at(value->offsets),
                    at(value->indices), at(value->values), value->offsets_type, value->indices_type, value->index_base,
                    value->value_type);
    default:
        return call->library->invalid;
    }
}

static int set_batch(struct flyt_libcall *call, const struct flyt_value_spmat *value, void *real)
{
    if (value->batch_count == 1 && !value->offsets_stride && !value->indices_stride && !value->values_stride)
        return call->library->success;
    switch (value->format) {
    case COO:
        return CALL("cusparseCooSetStridedBatch", (void *, int, int64_t), real, value->batch_count,
                    value->values_stride);
    case BSR:
        return CALL("cusparseBsrSetStridedBatch", (void *, int, SIZES), real, value->batch_count, value->offsets_stride,
                    value->indices_stride, value->values_stride);
    default: /* the library refuses formats that have no batches */
        return CALL("cusparseCsrSetStridedBatch", (void *, int, int64_t, int64_t), real, value->batch_count,
                    value->offsets_stride, value->indices_stride);
    }
}

static int set_attribute(struct flyt_libcall *call, void *real, int attribute, int32_t number)
{
    if (!number) /* the default */
        return call->library->success;
    return CALL("cusparseSpMatSetAttribute", (void *, int, const void *, size_t), real, attribute, &number,
                sizeof number);
}

int flyt_server_make_cusparse_spmat(struct flyt_libcall *call, const void *from, void **ret_real);
int flyt_server_make_cusparse_spmat(struct flyt_libcall *call, const void *from, void **ret_real)
{
    VALUE(spmat);
    void *real = NULL;
    int status = create(call, value, &real);
    if (status)
        return status;
    status = set_batch(call, value, real);
    if (!status)
        status = set_attribute(call, real, 0, value->fill_mode);
    if (!status)
        status = set_attribute(call, real, 1, value->diag_type);
    if (status)
        (void)CALL("cusparseDestroySpMat", (void *), real);
    else
        *ret_real = real;
    return status;
}

/* What a call counts are the elements of a matrix without blocks, or with the blocks of an ELL one. */
int flyt_server_tell_cusparse_spmat(struct flyt_libcall *call, void *real, void *to);
int flyt_server_tell_cusparse_spmat(struct flyt_libcall *call, void *real, void *to)
{
    struct flyt_value_spmat *value = to;
    int64_t rows, cols, nnz;
    int status = CALL("cusparseSpMatGetSize", (void *, int64_t *, int64_t *, int64_t *), real, &rows, &cols, &nnz);
    if (!status && (value->format == CSR || value->format == CSC || value->format == COO))
        value->nnz = nnz;
    return status;
}
