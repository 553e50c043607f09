/* What of cuSOLVER's refactorization is no row: batches of matrices in host memory, and factors that the library puts
 * into host memory of its own making. */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/library/library.h"
#include "flyt_lib_cusolver.h"

/* The object's settings as they have been kept here: no setter is called for the size of its batch. */
static struct flyt_state_rf *state_of(struct flyt_libcall *call)
{
    return (struct flyt_state_rf *)call->objects[0]->state;
}

/* ---- batches ---- */

static int *ints_in(struct flyt_libcall *call, uint32_t bytes, long count)
{
    size_t wanted = flyt_lib_extent(count, sizeof(int));
    flyt_libcall_require(call, bytes, wanted);
    return flyt_libcall_in(call, bytes, wanted);
}

static double *doubles_in(struct flyt_libcall *call, uint32_t bytes, long count)
{
    size_t wanted = flyt_lib_extent(count, sizeof(double));
    flyt_libcall_require(call, bytes, wanted);
    return flyt_libcall_in(call, bytes, wanted);
}

struct matrix {
    int *offsets, *indices;
    double *values;
};

static struct matrix matrix_in(struct flyt_libcall *call, const uint32_t bytes[3], long rows, long count,
                               long value_count)
{
    struct matrix matrix;
    matrix.offsets = ints_in(call, bytes[0], rows + 1);
    flyt_libcall_check_offsets(call, matrix.offsets, bytes[0] / sizeof(int), count, 0);
    matrix.indices = ints_in(call, bytes[1], count);
    flyt_libcall_check_indices(call, matrix.indices, bytes[1] / sizeof(int), rows, 0);
    matrix.values = doubles_in(call, bytes[2], value_count);
    return matrix;
}

static int *order_in(struct flyt_libcall *call, uint32_t bytes, long count)
{
    int *order = ints_in(call, bytes, count);
    flyt_libcall_check_order(call, order, bytes / sizeof(int), count);
    return order;
}

/* The address of each matrix's values. NULL: no memory. */
static double **spread(double *values, int batch, int count)
{
    double **arrays = calloc((size_t)batch, sizeof *arrays);
    for (int i = 0; arrays && i < batch; i++)
        arrays[i] = values + (size_t)i * (size_t)count;
    return arrays;
}

typedef int (*batch_setup_fn)(int, int, int, int *, int *, double **, int, int *, int *, double *, int, int *, int *,
                              double *, int *, int *, void *);

int flyt_server_run_cusolverRfBatchSetupHost(struct flyt_libcall *call);
int flyt_server_run_cusolverRfBatchSetupHost(struct flyt_libcall *call)
{
    const struct flyt_args_cusolverRfBatchSetupHost *sent = (const void *)call->arguments;
    const uint32_t bytes[3][3] = {{sent->h_csrRowPtrA_bytes, sent->h_csrColIndA_bytes, sent->h_csrValA_array_bytes},
                                  {sent->h_csrRowPtrL_bytes, sent->h_csrColIndL_bytes, sent->h_csrValL_bytes},
                                  {sent->h_csrRowPtrU_bytes, sent->h_csrColIndU_bytes, sent->h_csrValU_bytes}};
    flyt_libcall_stage(call, &sent->stage);
    struct matrix a = matrix_in(call, bytes[0], sent->n, sent->nnzA, (long)sent->batchSize * sent->nnzA);
    struct matrix l = matrix_in(call, bytes[1], sent->n, sent->nnzL, sent->nnzL);
    struct matrix u = matrix_in(call, bytes[2], sent->n, sent->nnzU, sent->nnzU);
    int *p = order_in(call, sent->h_P_bytes, sent->n), *q = order_in(call, sent->h_Q_bytes, sent->n);
    if (call->status)
        return call->status;
    if (sent->batchSize <= 0)
        return call->library->invalid;
    double **arrays = spread(a.values, sent->batchSize, sent->nnzA);
    if (!arrays)
        return call->library->memory;
    int status = ((batch_setup_fn)call->function)(sent->batchSize, sent->n, sent->nnzA, a.offsets, a.indices, arrays,
                                                  sent->nnzL, l.offsets, l.indices, l.values, sent->nnzU, u.offsets,
                                                  u.indices, u.values, p, q, call->objects[0]->real);
    free(arrays);
    if (status == call->library->success)
        state_of(call)->batch = sent->batchSize;
    return status;
}

int flyt_server_run_cusolverRfBatchZeroPivot(struct flyt_libcall *call);
int flyt_server_run_cusolverRfBatchZeroPivot(struct flyt_libcall *call)
{
    const struct flyt_args_cusolverRfBatchZeroPivot *sent = (const void *)call->arguments;
    int batch = state_of(call)->batch;
    void *position = flyt_libcall_out(call, sent->position_bytes, flyt_lib_extent(batch, sizeof(int)));
    if (!position)
        return call->library->invalid;
    return ((int (*)(void *, void *))call->function)(call->objects[0]->real, position);
}

/* ---- factors ---- */

/* Rows of a factor that has a number in each. */
static int rows_of(const struct matrix *matrix, int count)
{
    int rows = 0;
    while (matrix->offsets[rows] < count)
        rows++;
    return rows;
}

static void matrix_free(struct matrix *matrix)
{
    free(matrix->offsets);
    free(matrix->indices);
    free(matrix->values);
}

/* What the client has room for; it has none while it asks for the counts. */
static void tell(struct flyt_libcall *call, const void *from, uint32_t bytes, long count, size_t element_bytes)
{
    void *to = flyt_libcall_out(call, bytes, flyt_lib_extent(count, element_bytes));
    if (to)
        memcpy(to, from, bytes);
}

static void tell_matrix(struct flyt_libcall *call, const struct matrix *matrix, const uint32_t bytes[3], int rows,
                        int count)
{
    tell(call, matrix->offsets, bytes[0], (long)rows + 1, sizeof(int));
    tell(call, matrix->indices, bytes[1], count, sizeof(int));
    tell(call, matrix->values, bytes[2], count, sizeof(double));
}

int flyt_server_run_cusolverRfExtractBundledFactorsHost(struct flyt_libcall *call);
int flyt_server_run_cusolverRfExtractBundledFactorsHost(struct flyt_libcall *call)
{
    const struct flyt_args_cusolverRfExtractBundledFactorsHost *sent = (const void *)call->arguments;
    const uint32_t bytes[3] = {sent->h_Mp_bytes, sent->h_Mi_bytes, sent->h_Mx_bytes};
    struct matrix m = {0};
    int count = 0;
    flyt_libcall_stage(call, &sent->stage);
    if (call->status)
        return call->status;
    int status = ((int (*)(void *, int *, int **, int **, double **))call->function)(call->objects[0]->real, &count,
                                                                                     &m.offsets, &m.indices, &m.values);
    if (status == call->library->success && m.offsets) {
        const int counts[2] = {rows_of(&m, count), count};
        tell(call, counts, sent->counts_bytes, 2, sizeof(int));
        tell_matrix(call, &m, bytes, counts[0], count);
        status = call->status;
    }
    matrix_free(&m);
    return status;
}

int flyt_server_run_cusolverRfExtractSplitFactorsHost(struct flyt_libcall *call);
int flyt_server_run_cusolverRfExtractSplitFactorsHost(struct flyt_libcall *call)
{
    const struct flyt_args_cusolverRfExtractSplitFactorsHost *sent = (const void *)call->arguments;
    const uint32_t bytes[2][3] = {{sent->h_csrRowPtrL_bytes, sent->h_csrColIndL_bytes, sent->h_csrValL_bytes},
                                  {sent->h_csrRowPtrU_bytes, sent->h_csrColIndU_bytes, sent->h_csrValU_bytes}};
    struct matrix l = {0}, u = {0};
    int lower_count = 0, upper_count = 0;
    flyt_libcall_stage(call, &sent->stage);
    if (call->status)
        return call->status;
    int status = ((int (*)(void *, int *, int **, int **, double **, int *, int **, int **, double **))call->function)(
        call->objects[0]->real, &lower_count, &l.offsets, &l.indices, &l.values, &upper_count, &u.offsets, &u.indices,
        &u.values);
    if (status == call->library->success && l.offsets && u.offsets) {
        /* Without its diagonal a factor has rows with no number. */
        int lower_rows = rows_of(&l, lower_count), upper_rows = rows_of(&u, upper_count);
        const int counts[3] = {lower_rows > upper_rows ? lower_rows : upper_rows, lower_count, upper_count};
        tell(call, counts, sent->counts_bytes, 3, sizeof(int));
        tell_matrix(call, &l, bytes[0], counts[0], lower_count);
        tell_matrix(call, &u, bytes[1], counts[0], upper_count);
        status = call->status;
    }
    matrix_free(&l);
    matrix_free(&u);
    return status;
}
