/* What of cuSOLVER's refactorization is no row: arrays of arrays of the program's, and factors whose sizes the node's
 * library alone knows. */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/library/library_call.h"
#include "flyt_lib_cusolver.h"

extern const struct flyt_lib flyt_lib_cusolver;
extern const struct flyt_lib_kind flyt_lib_kind_cusolver_rf;
extern const struct flyt_lib_row flyt_lib_row_cusolverRfBatchSetupHost, flyt_lib_row_cusolverRfBatchZeroPivot,
    flyt_lib_row_cusolverRfExtractBundledFactorsHost, flyt_lib_row_cusolverRfExtractSplitFactorsHost;

#define SENT(symbol)                                                                                                   \
    struct flyt_args_##symbol sent;                                                                                    \
    struct flyt_lib_call call = {.row = &flyt_lib_row_##symbol, .arguments = &sent};                                   \
    memset(&sent, 0, sizeof sent)

static void begin(struct flyt_lib_call *call, void *handle)
{
    flyt_lib_begin(call);
    flyt_lib_object(call, (uint64_t)(uintptr_t)handle, &flyt_lib_kind_cusolver_rf);
}

static uint32_t ints_in(struct flyt_lib_call *call, const int *data, long count)
{
    return flyt_lib_in(call, data, flyt_lib_extent(count, sizeof(int)), false);
}

static uint32_t doubles_in(struct flyt_lib_call *call, const double *data, long count)
{
    return flyt_lib_in(call, data, flyt_lib_extent(count, sizeof(double)), false);
}

/* ---- batches ---- */

/* The numbers of all arrays, one array behind the other. NULL: no memory, or an array is missing. */
static double *gather(double *const *arrays, int array_count, int count)
{
    double *all = array_count > 0 && count > 0 ? malloc((size_t)array_count * (size_t)count * sizeof *all) : NULL;
    for (int i = 0; all && i < array_count; i++) {
        if (!arrays || !arrays[i]) {
            free(all);
            return NULL;
        }
        memcpy(all + (size_t)i * (size_t)count, arrays[i], (size_t)count * sizeof *all);
    }
    return all;
}

FLYT_LIB_ENTRY int cusolverRfBatchSetupHost(int batchSize, int n, int nnzA, int *h_csrRowPtrA, int *h_csrColIndA,
                                            double **h_csrValA_array, int nnzL, int *h_csrRowPtrL, int *h_csrColIndL,
                                            double *h_csrValL, int nnzU, int *h_csrRowPtrU, int *h_csrColIndU,
                                            double *h_csrValU, int *h_P, int *h_Q, void *handle)
{
    SENT(cusolverRfBatchSetupHost);
    double *values = gather(h_csrValA_array, batchSize, nnzA);
    begin(&call, handle);
    sent.batchSize = batchSize;
    sent.n = n;
    sent.nnzA = nnzA;
    sent.nnzL = nnzL;
    sent.nnzU = nnzU;
    sent.h_csrRowPtrA_bytes = ints_in(&call, h_csrRowPtrA, (long)n + 1);
    sent.h_csrColIndA_bytes = ints_in(&call, h_csrColIndA, nnzA);
    sent.h_csrValA_array_bytes = doubles_in(&call, values, (long)batchSize * nnzA);
    sent.h_csrRowPtrL_bytes = ints_in(&call, h_csrRowPtrL, (long)n + 1);
    sent.h_csrColIndL_bytes = ints_in(&call, h_csrColIndL, nnzL);
    sent.h_csrValL_bytes = doubles_in(&call, h_csrValL, nnzL);
    sent.h_csrRowPtrU_bytes = ints_in(&call, h_csrRowPtrU, (long)n + 1);
    sent.h_csrColIndU_bytes = ints_in(&call, h_csrColIndU, nnzU);
    sent.h_csrValU_bytes = doubles_in(&call, h_csrValU, nnzU);
    sent.h_P_bytes = ints_in(&call, h_P, n);
    sent.h_Q_bytes = ints_in(&call, h_Q, n);
    int status = flyt_lib_finish(&call);
    free(values);
    if (status == flyt_lib_cusolver.success)
        ((struct flyt_state_rf *)flyt_lib_state(call.objects[0]))->batch = batchSize;
    return status;
}

/* As many positions as the batch has matrices. */
FLYT_LIB_ENTRY int cusolverRfBatchZeroPivot(void *handle, int *position)
{
    SENT(cusolverRfBatchZeroPivot);
    begin(&call, handle);
    const struct flyt_lib_object *object = call.object_count ? call.objects[0] : NULL;
    int batch = object ? ((struct flyt_state_rf *)flyt_lib_state(call.objects[0]))->batch : 0;
    if (object && (!position || !batch))
        return flyt_lib_cusolver.invalid;
    sent.position_bytes = flyt_lib_out(&call, position, flyt_lib_extent(batch, sizeof(int)), false);
    return flyt_lib_finish(&call);
}

/* ---- factors ---- */

/* A factor in memory that the program frees. */
struct factor {
    int rows, count;
    int *offsets, *indices;
    double *values;
};

/* false: no memory. */
static bool factor_new(struct factor *factor)
{
    factor->offsets = malloc(((size_t)factor->rows + 1) * sizeof(int));
    factor->indices = malloc(((size_t)factor->count + 1) * sizeof(int));
    factor->values = malloc(((size_t)factor->count + 1) * sizeof(double));
    return factor->offsets && factor->indices && factor->values;
}

static void factor_free(struct factor *factor)
{
    free(factor->offsets);
    free(factor->indices);
    free(factor->values);
}

static void factor_give(const struct factor *factor, int *ret_count, int **ret_offsets, int **ret_indices,
                        double **ret_values)
{
    *ret_count = factor->count;
    *ret_offsets = factor->offsets;
    *ret_indices = factor->indices;
    *ret_values = factor->values;
}

/* The three arrays of a factor among a call's results. */
static void factor_out(struct flyt_lib_call *call, const struct factor *factor, uint32_t *ret_offsets_bytes,
                       uint32_t *ret_indices_bytes, uint32_t *ret_values_bytes)
{
    *ret_offsets_bytes = flyt_lib_out(call, factor->offsets, ((size_t)factor->rows + 1) * sizeof(int), true);
    *ret_indices_bytes = flyt_lib_out(call, factor->indices, (size_t)factor->count * sizeof(int), true);
    *ret_values_bytes = flyt_lib_out(call, factor->values, (size_t)factor->count * sizeof(double), true);
}

/* Asks for the counts while there are no arrays, and else for these. */
static int ask_bundled(void *handle, int counts[2], const struct factor *factor)
{
    SENT(cusolverRfExtractBundledFactorsHost);
    begin(&call, handle);
    sent.counts_bytes = flyt_lib_out(&call, counts, 2 * sizeof(int), false);
    if (factor->offsets)
        factor_out(&call, factor, &sent.h_Mp_bytes, &sent.h_Mi_bytes, &sent.h_Mx_bytes);
    return flyt_lib_finish(&call);
}

FLYT_LIB_ENTRY int cusolverRfExtractBundledFactorsHost(void *handle, int *h_nnzM, int **h_Mp, int **h_Mi, double **h_Mx)
{
    struct factor factor = {0};
    int counts[2] = {0, 0};
    if (!h_nnzM || !h_Mp || !h_Mi || !h_Mx)
        return flyt_lib_cusolver.invalid;
    int status = ask_bundled(handle, counts, &factor);
    factor.rows = counts[0];
    factor.count = counts[1];
    if (status == flyt_lib_cusolver.success)
        status = factor_new(&factor) ? ask_bundled(handle, counts, &factor) : flyt_lib_cusolver.memory;
    if (status == flyt_lib_cusolver.success)
        factor_give(&factor, h_nnzM, h_Mp, h_Mi, h_Mx);
    else
        factor_free(&factor);
    return status;
}

static int ask_split(void *handle, int counts[3], const struct factor *lower, const struct factor *upper)
{
    SENT(cusolverRfExtractSplitFactorsHost);
    begin(&call, handle);
    sent.counts_bytes = flyt_lib_out(&call, counts, 3 * sizeof(int), false);
    if (lower->offsets) {
        factor_out(&call, lower, &sent.h_csrRowPtrL_bytes, &sent.h_csrColIndL_bytes, &sent.h_csrValL_bytes);
        factor_out(&call, upper, &sent.h_csrRowPtrU_bytes, &sent.h_csrColIndU_bytes, &sent.h_csrValU_bytes);
    }
    return flyt_lib_finish(&call);
}

FLYT_LIB_ENTRY int cusolverRfExtractSplitFactorsHost(void *handle, int *h_nnzL, int **h_csrRowPtrL, int **h_csrColIndL,
                                                     double **h_csrValL, int *h_nnzU, int **h_csrRowPtrU,
                                                     int **h_csrColIndU, double **h_csrValU)
{
    struct factor lower = {0}, upper = {0};
    int counts[3] = {0, 0, 0};
    if (!h_nnzL || !h_csrRowPtrL || !h_csrColIndL || !h_csrValL || !h_nnzU || !h_csrRowPtrU || !h_csrColIndU ||
        !h_csrValU)
        return flyt_lib_cusolver.invalid;
    int status = ask_split(handle, counts, &lower, &upper);
    lower.rows = upper.rows = counts[0];
    lower.count = counts[1];
    upper.count = counts[2];
    if (status == flyt_lib_cusolver.success)
        status = factor_new(&lower) && factor_new(&upper) ? ask_split(handle, counts, &lower, &upper)
                                                          : flyt_lib_cusolver.memory;
    if (status == flyt_lib_cusolver.success) {
        factor_give(&lower, h_nnzL, h_csrRowPtrL, h_csrColIndL, h_csrValL);
        factor_give(&upper, h_nnzU, h_csrRowPtrU, h_csrColIndU, h_csrValU);
    } else {
        factor_free(&lower);
        factor_free(&upper);
    }
    return status;
}
