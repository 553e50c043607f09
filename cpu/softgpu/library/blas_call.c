/* Records of cuBLAS calls: checks, scalars, and how the work finds its operands. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/blas.h"

/* ---- checks ---- */

cublasStatus_t flyt_soft_blas_size(int64_t value, int *ret_size)
{
    if (value < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (value > INT_MAX)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *ret_size = (int)value;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t flyt_soft_blas_increment(int64_t value, int *ret_increment)
{
    if (value == 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (value > INT_MAX || value < -INT_MAX)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *ret_increment = (int)value;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t flyt_soft_blas_leading(int64_t value, int rows, int *ret_leading)
{
    return value < 1 || value < rows ? CUBLAS_STATUS_INVALID_VALUE : flyt_soft_blas_size(value, ret_leading);
}

/* The letter of an enumerator that counts from 0. */
static cublasStatus_t letter(const char *letters, int value, char *ret_letter)
{
    if (value < 0 || (size_t)value >= strlen(letters))
        return CUBLAS_STATUS_INVALID_VALUE;
    *ret_letter = letters[value];
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t flyt_soft_blas_operation(cublasOperation_t operation, char *ret_letter)
{
    return letter("NTC", (int)operation, ret_letter);
}

cublasStatus_t flyt_soft_blas_fill(cublasFillMode_t fill, char *ret_letter)
{
    return letter("LU", (int)fill, ret_letter);
}

cublasStatus_t flyt_soft_blas_side(cublasSideMode_t side, char *ret_letter)
{
    return letter("LR", (int)side, ret_letter);
}

cublasStatus_t flyt_soft_blas_diag(cublasDiagType_t diag, char *ret_letter)
{
    return letter("NU", (int)diag, ret_letter);
}

/* ---- records ---- */

unsigned flyt_soft_letter_bytes(enum flyt_soft_letter of)
{
    return (const unsigned[]){4, 8, 8, 16}[of];
}

unsigned flyt_soft_letter_real_bytes(enum flyt_soft_letter of)
{
    return of == FLYT_SOFT_S || of == FLYT_SOFT_C ? 4 : 8;
}

cudaDataType flyt_soft_letter_type(enum flyt_soft_letter of)
{
    return (const cudaDataType[]){CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F}[of];
}

cublasStatus_t flyt_soft_scalar_set(cublasHandle_t handle, struct flyt_soft_scalar *scalar, const void *value,
                                    unsigned bytes)
{
    if (!value)
        return CUBLAS_STATUS_INVALID_VALUE;
    *scalar = (struct flyt_soft_scalar){.bytes = bytes};
    if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE)
        scalar->from = value;
    else
        memcpy(scalar->value, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

bool flyt_soft_scalar_read(struct flyt_soft_scalar *scalar)
{
    if (!scalar->from)
        return true;
    if (!flyt_soft_work_reaches(scalar->from, scalar->bytes))
        return false;
    memcpy(scalar->value, scalar->from, scalar->bytes);
    return true;
}

struct flyt_soft_operand flyt_soft_matrix(const void *at, int64_t rows, int64_t columns, int64_t leading,
                                          unsigned number_bytes, int64_t stride)
{
    return (struct flyt_soft_operand){
        .at = at,
        .stride_bytes = stride * number_bytes,
        .bytes = rows && columns ? ((uint64_t)leading * (uint64_t)(columns - 1) + (uint64_t)rows) * number_bytes : 0,
    };
}

struct flyt_soft_operand flyt_soft_vector(const void *at, int64_t count, int64_t increment, unsigned number_bytes,
                                          int64_t stride)
{
    return flyt_soft_matrix(at, 1, count, llabs(increment), number_bytes, stride);
}

struct flyt_soft_operand flyt_soft_array_of(struct flyt_soft_operand operand)
{
    operand.is_array = true;
    return operand;
}

cublasStatus_t flyt_soft_blas_routine(struct flyt_soft_blas *call, enum flyt_soft_routine routine)
{
    call->fn = flyt_soft_routine(routine, call->letter);
    return call->fn ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- execution ---- */

/* Where the operand of a member is. False: out of reach. */
static bool operand_find(const struct flyt_soft_operand *operand, int64_t member, void **ret_at)
{
    const void *const *array = operand->at;

    if (!operand->is_array)
        *ret_at = (char *)operand->at + member * operand->stride_bytes;
    else if (operand->bytes == 0 || !flyt_soft_work_reaches(&array[member], sizeof(array[0])))
        *ret_at = NULL;
    else
        *ret_at = (void *)array[member];
    return flyt_soft_work_reaches(*ret_at, operand->bytes);
}

static CUresult run(void *record)
{
    struct flyt_soft_blas *call = record;
    uint64_t info_bytes = (uint64_t)call->batch_count * sizeof(int);

    if (!flyt_soft_scalar_read(&call->alpha) || !flyt_soft_scalar_read(&call->beta) ||
        (call->infos && !flyt_soft_work_reaches(call->infos, info_bytes)) ||
        (call->pivots && !flyt_soft_work_reaches(call->pivots, info_bytes * (uint64_t)call->n)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int64_t member = 0; member < call->batch_count; member++) {
        void *at[FLYT_SOFT_OPERANDS];

        for (unsigned i = 0; i < FLYT_SOFT_OPERANDS; i++)
            if (!operand_find(&call->operands[i], member, &at[i]))
                return CUDA_ERROR_ILLEGAL_ADDRESS;
        if (!call->kernel(call, at, member))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

cublasStatus_t flyt_soft_blas_status(CUresult r)
{
    switch (r) {
    case CUDA_SUCCESS:
        return CUBLAS_STATUS_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return CUBLAS_STATUS_ALLOC_FAILED;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
        return CUBLAS_STATUS_NOT_INITIALIZED;
    default:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

cublasStatus_t flyt_soft_blas_push_work(cublasHandle_t handle, CUresult (*work)(void *record), const void *record,
                                        size_t record_bytes)
{
    return flyt_soft_blas_status(flyt_soft_work_push(handle->stream, work, NULL, record, record_bytes));
}

cublasStatus_t flyt_soft_blas_push(cublasHandle_t handle, const struct flyt_soft_blas *call)
{
    if (call->batch_count < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (call->batch_count == 0)
        return CUBLAS_STATUS_SUCCESS;
    for (unsigned i = 0; i < FLYT_SOFT_OPERANDS; i++)
        if (call->operands[i].bytes && !call->operands[i].at)
            return CUBLAS_STATUS_INVALID_VALUE;
    return flyt_soft_blas_push_work(handle, run, call, sizeof(*call));
}
