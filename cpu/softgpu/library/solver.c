/* cuSOLVER: handles and settings, records and how they are executed. */
#include "cpu/softgpu/library/solver.h"

#include <complex.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/number.h"

/* ---- handles ---- */

static void handle_free(cusolverDnHandle_t handle)
{
    if (handle && handle->after)
        (void)cuEventDestroy(handle->after);
    if (handle && handle->before)
        (void)cuEventDestroy(handle->before);
    if (handle && handle->own)
        (void)cuStreamDestroy(handle->own);
    free(handle);
}

FLYT_SOFT_CUSOLVER cusolverDnCreate(cusolverDnHandle_t *handle)
{
    CUcontext ctx = NULL;

    if (!handle)
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof(**handle));
    if (*handle && cuStreamCreate(&(*handle)->own, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
        cuEventCreate(&(*handle)->before, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
        cuEventCreate(&(*handle)->after, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
        return CUSOLVER_STATUS_SUCCESS;
    handle_free(*handle);
    return CUSOLVER_STATUS_ALLOC_FAILED;
}

FLYT_SOFT_CUSOLVER cusolverDnDestroy(cusolverDnHandle_t handle)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    (void)cuStreamSynchronize(handle->own);
    (void)cuCtxSynchronize();
    handle_free(handle);
    return CUSOLVER_STATUS_SUCCESS;
}

FLYT_SOFT_CUSOLVER cusolverGetVersion(int *version)
{
    if (!version)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *version = CUSOLVER_VERSION;
    return CUSOLVER_STATUS_SUCCESS;
}

FLYT_SOFT_CUSOLVER cusolverGetProperty(libraryPropertyType type, int *value)
{
    static const int values[] = {CUSOLVER_VER_MAJOR, CUSOLVER_VER_MINOR, CUSOLVER_VER_PATCH};

    if (!value || (unsigned)type > PATCH_LEVEL)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *value = values[type];
    return CUSOLVER_STATUS_SUCCESS;
}

#define SETTING(name_, type_, field_)                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDnSet##name_(cusolverDnHandle_t handle, type_ value)                                    \
    {                                                                                                                  \
        if (!handle)                                                                                                   \
            return CUSOLVER_STATUS_NOT_INITIALIZED;                                                                    \
        handle->field_ = value;                                                                                        \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDnGet##name_(cusolverDnHandle_t handle, type_ *ret_value)                               \
    {                                                                                                                  \
        if (!handle)                                                                                                   \
            return CUSOLVER_STATUS_NOT_INITIALIZED;                                                                    \
        if (!ret_value)                                                                                                \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        *ret_value = handle->field_;                                                                                   \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }
SETTING(Stream, cudaStream_t, stream)
SETTING(DeterministicMode, cusolverDeterministicMode_t, deterministic_mode)
SETTING(MathMode, cusolverMathMode_t, math_mode)
SETTING(EmulationStrategy, cudaEmulationStrategy_t, emulation_strategy)

/* Parameters choose among algorithms, of which there is one. */
struct cusolverDnParams {
    int unused;
};

FLYT_SOFT_CUSOLVER cusolverDnCreateParams(cusolverDnParams_t *params)
{
    if (!params)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *params = calloc(1, sizeof(**params));
    return *params ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_ALLOC_FAILED;
}

FLYT_SOFT_CUSOLVER cusolverDnDestroyParams(cusolverDnParams_t params)
{
    free(params);
    return CUSOLVER_STATUS_SUCCESS;
}

FLYT_SOFT_CUSOLVER cusolverDnSetAdvOptions(cusolverDnParams_t params, cusolverDnFunction_t function,
                                           cusolverAlgMode_t algo)
{
    return params && (unsigned)algo <= CUSOLVER_ALG_2 ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_INVALID_VALUE;
}

/* ---- records ---- */

void flyt_soft_solver_matrix(struct flyt_soft_solver *call, unsigned index, const void *at, int64_t rows,
                             int64_t columns, int64_t leading)
{
    unsigned bytes = flyt_soft_letter_bytes(call->letter);

    call->at[index] = (void *)at;
    call->bytes[index] =
        rows > 0 && columns > 0 ? ((uint64_t)leading * (uint64_t)(columns - 1) + (uint64_t)rows) * bytes : 0;
    call->stride[index] = leading * columns * bytes;
}

void flyt_soft_solver_real_vector(struct flyt_soft_solver *call, unsigned index, const void *at, int64_t count)
{
    unsigned bytes = flyt_soft_letter_real_bytes(call->letter);

    call->at[index] = (void *)at;
    call->bytes[index] = count > 0 ? (uint64_t)count * bytes : 0;
    call->stride[index] = count * bytes;
}

cusolverStatus_t flyt_soft_solver_size(int64_t value, int *ret_size)
{
    if (value < 0)
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (value > INT_MAX)
        return CUSOLVER_STATUS_NOT_SUPPORTED;
    *ret_size = (int)value;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t flyt_soft_solver_leading(int64_t value, int64_t rows, int *ret_leading)
{
    return value < 1 || value < rows ? CUSOLVER_STATUS_INVALID_VALUE : flyt_soft_solver_size(value, ret_leading);
}

cusolverStatus_t flyt_soft_solver_letter(cudaDataType type, cudaDataType compute, enum flyt_soft_letter *ret_letter)
{
    for (enum flyt_soft_letter i = FLYT_SOFT_S; i < FLYT_SOFT_LETTERS; i++) {
        if (flyt_soft_letter_type(i) != type || compute != type)
            continue;
        *ret_letter = i;
        return CUSOLVER_STATUS_SUCCESS;
    }
    return CUSOLVER_STATUS_NOT_SUPPORTED;
}

bool flyt_soft_solver_fill(cublasFillMode_t fill, char *ret_letter)
{
    return flyt_soft_blas_fill(fill, ret_letter) == CUBLAS_STATUS_SUCCESS;
}

bool flyt_soft_solver_operation(cublasOperation_t operation, char *ret_letter)
{
    return flyt_soft_blas_operation(operation, ret_letter) == CUBLAS_STATUS_SUCCESS;
}

/* ---- execution ---- */

/* The record of one member of a batch. False: out of reach. */
static bool member_find(const struct flyt_soft_solver *call, int64_t member, struct flyt_soft_solver *ret_one)
{
    *ret_one = *call;
    for (unsigned i = 0; i < FLYT_SOFT_SOLVER_OPERANDS; i++) {
        void *const *array = call->at[i];

        if (!call->at[i] || !call->bytes[i])
            continue;
        if (call->is_array && i < 2) {
            if (!flyt_soft_work_reaches(&array[member], sizeof(array[0])))
                return false;
            ret_one->at[i] = array[member];
        } else {
            ret_one->at[i] = (char *)call->at[i] + member * call->stride[i];
        }
        if (!flyt_soft_work_reaches(ret_one->at[i], call->bytes[i]))
            return false;
    }
    return true;
}

static CUresult run(void *record)
{
    const struct flyt_soft_solver *call = record;
    uint64_t pivots = (uint64_t)call->pivot_count;
    uint64_t infos = call->has_single_info ? 1 : (uint64_t)call->batch_count;

    if ((call->info && !flyt_soft_work_reaches(call->info, infos * sizeof(int))) ||
        (call->pivots && !flyt_soft_work_reaches(call->pivots, pivots * sizeof(int))) ||
        (call->wide_pivots && !flyt_soft_work_reaches(call->wide_pivots, pivots * sizeof(int64_t))))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int64_t member = 0; member < call->batch_count; member++) {
        struct flyt_soft_solver one;
        int info = 0;

        if (!member_find(call, member, &one))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        if (!call->kernel(&one, &info))
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (call->info)
            call->info[call->has_single_info ? 0 : member] = info;
    }
    return CUDA_SUCCESS;
}

/* In the handle's own stream, in the place that it has in the caller's. */
static CUresult push_own(cusolverDnHandle_t handle, const struct flyt_soft_solver *call)
{
    CUresult r = cuEventRecord(handle->before, handle->stream);

    if (r == CUDA_SUCCESS)
        r = cuStreamWaitEvent(handle->own, handle->before, CU_EVENT_WAIT_DEFAULT);
    if (r == CUDA_SUCCESS)
        r = flyt_soft_work_push(handle->own, run, NULL, call, sizeof(*call));
    if (r == CUDA_SUCCESS)
        r = cuEventRecord(handle->after, handle->own);
    if (r == CUDA_SUCCESS)
        r = cuStreamWaitEvent(handle->stream, handle->after, CU_EVENT_WAIT_DEFAULT);
    return r;
}

cusolverStatus_t flyt_soft_solver_push(cusolverDnHandle_t handle, struct flyt_soft_solver *call)
{
    CUresult r;

    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (call->batch_count < 0)
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (call->is_empty)
        return CUSOLVER_STATUS_SUCCESS;
    for (unsigned i = 0; i < FLYT_SOFT_SOLVER_OPERANDS; i++)
        if (call->bytes[i] && !call->at[i])
            return CUSOLVER_STATUS_INVALID_VALUE;
    call->fn = flyt_soft_routine(call->routine, call->letter);
    if (!call->fn)
        return CUSOLVER_STATUS_NOT_SUPPORTED;
    if (call->batch_count == 0)
        call->batch_count = 1;
    r = push_own(handle, call);
    return r == CUDA_SUCCESS               ? CUSOLVER_STATUS_SUCCESS
           : r == CUDA_ERROR_OUT_OF_MEMORY ? CUSOLVER_STATUS_ALLOC_FAILED
                                           : CUSOLVER_STATUS_EXECUTION_FAILED;
}

cusolverStatus_t flyt_soft_solver_buffer(cusolverDnHandle_t handle, int *ret_count)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (!ret_count)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *ret_count = 1;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t flyt_soft_solver_buffers(cusolverDnHandle_t handle, size_t *ret_device_bytes, size_t *ret_host_bytes)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (!ret_device_bytes || !ret_host_bytes)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *ret_device_bytes = 16;
    *ret_host_bytes = 0;
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- scratch ---- */

void flyt_soft_scratch_begin(struct flyt_soft_scratch *scratch, enum flyt_soft_letter letter)
{
    *scratch = (struct flyt_soft_scratch){
        .letter = letter,
        .work_count = -1,
        .real_count = -1,
        .int_count = -1,
        .is_asking = true,
        .has_memory = true,
    };
    scratch->work = scratch->asked_work;
    scratch->real = scratch->asked_real;
    scratch->ints = scratch->asked_ints;
}

bool flyt_soft_scratch_more(struct flyt_soft_scratch *scratch)
{
    cudaDataType real = flyt_soft_letter_real_bytes(scratch->letter) == 4 ? CUDA_R_32F : CUDA_R_64F;

    if (!scratch->is_asking)
        return false;
    scratch->is_asking = false;
    scratch->work_count =
        (int)creal(flyt_soft_number_get(flyt_soft_letter_type(scratch->letter), scratch->asked_work)) + 1;
    scratch->real_count = (int)creal(flyt_soft_number_get(real, scratch->asked_real)) + 1;
    scratch->int_count = scratch->asked_ints[0] + 1;
    scratch->work = malloc((size_t)scratch->work_count * flyt_soft_letter_bytes(scratch->letter));
    scratch->real = malloc((size_t)scratch->real_count * 8);
    scratch->ints = malloc((size_t)scratch->int_count * sizeof(int));
    scratch->has_memory = scratch->work && scratch->real && scratch->ints;
    return scratch->has_memory;
}

void flyt_soft_scratch_end(struct flyt_soft_scratch *scratch)
{
    if (scratch->is_asking)
        return;
    free(scratch->work);
    free(scratch->real);
    free(scratch->ints);
}

int flyt_soft_factor_in_order(cudaDataType type, void *a, int64_t lda, int m, int n)
{
    unsigned bytes = flyt_soft_number_bytes(type);
    int info = 0;

#define AT(i_, j_) ((char *)a + ((int64_t)(i_) + (int64_t)(j_)*lda) * bytes)
    for (int k = 0; k < m && k < n; k++) {
        double _Complex pivot = flyt_soft_number_get(type, AT(k, k));

        if (pivot == 0) {
            info = info ? info : k + 1;
            continue;
        }
        for (int i = k + 1; i < m; i++)
            flyt_soft_number_put(type, AT(i, k), flyt_soft_number_get(type, AT(i, k)) / pivot);
        for (int j = k + 1; j < n; j++) {
            double _Complex top = flyt_soft_number_get(type, AT(k, j));

            for (int i = k + 1; i < m; i++)
                flyt_soft_number_put(type, AT(i, j),
                                     flyt_soft_number_get(type, AT(i, j)) - flyt_soft_number_get(type, AT(i, k)) * top);
        }
    }
#undef AT
    return info;
}
