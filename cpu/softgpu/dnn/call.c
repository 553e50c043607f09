/* cuDNN: handles, versions, records and how they are executed. */
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/dnn/dnn.h"
#include "cpu/softgpu/library/number.h"

/* ---- versions ---- */

FLYT_SOFT_CUDNN cudnnGetProperty(libraryPropertyType type, int *value)
{
    static const int values[] = {CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL};

    FLYT_SOFT_DNN_CHECK(value && (unsigned)type <= PATCH_LEVEL);
    *value = values[type];
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_DNN_EXPORT size_t cudnnGetVersion(void)
{
    return CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL;
}

FLYT_SOFT_DNN_EXPORT size_t cudnnGetMaxDeviceVersion(void)
{
    return CUDNN_MAX_DEVICE_VERSION;
}

FLYT_SOFT_DNN_EXPORT size_t cudnnGetCudartVersion(void)
{
    return CUDA_VERSION;
}

/* NVIDIA's sub-libraries are all here. */
#define IS_ONE_VERSION(name_)                                                                                          \
    FLYT_SOFT_CUDNN name_(void)                                                                                        \
    {                                                                                                                  \
        return CUDNN_STATUS_SUCCESS;                                                                                   \
    }
IS_ONE_VERSION(cudnnGraphVersionCheck)
IS_ONE_VERSION(cudnnOpsVersionCheck)
IS_ONE_VERSION(cudnnCnnVersionCheck)
IS_ONE_VERSION(cudnnAdvVersionCheck)

/* ---- handles ---- */

FLYT_SOFT_CUDNN cudnnCreate(cudnnHandle_t *handle)
{
    CUcontext ctx = NULL;

    FLYT_SOFT_DNN_CHECK(handle);
    if (cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof(**handle));
    return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

FLYT_SOFT_CUDNN cudnnDestroy(cudnnHandle_t handle)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    (void)cuCtxSynchronize();
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetStream(cudnnHandle_t handle, CUstream stream)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetStream(cudnnHandle_t handle, CUstream *stream)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(stream);
    *stream = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- operands ---- */

double flyt_soft_dnn_scalar(const struct cudnnTensorStruct *tensor, const void *at)
{
    double number;
    float small;

    if (tensor->type == CUDNN_DATA_DOUBLE) {
        memcpy(&number, at, sizeof(number));
        return number;
    }
    memcpy(&small, at, sizeof(small));
    return small;
}

bool flyt_soft_dnn_is_usable(const struct cudnnTensorStruct *tensor)
{
    return tensor && tensor->dims && flyt_soft_dnn_type_is_real(tensor->type);
}

struct flyt_soft_operand flyt_soft_operand_read(const struct cudnnTensorStruct *tensor, const void *at)
{
    return (struct flyt_soft_operand){.tensor = *tensor, .at = (void *)at, .is_read = true};
}

struct flyt_soft_operand flyt_soft_operand_written(const struct cudnnTensorStruct *tensor, void *at, double alpha,
                                                   double beta)
{
    return (struct flyt_soft_operand){.tensor = *tensor, .at = at, .is_written = true, .alpha = alpha, .beta = beta};
}

/* Whether all numbers of it are device memory: between the lowest and the highest of them. */
static bool reaches(const struct flyt_soft_operand *operand)
{
    const struct cudnnTensorStruct *t = &operand->tensor;
    int64_t bytes = flyt_soft_dnn_type_bytes(t->type), low = 0, high = 0;

    for (int i = 0; i < t->dims; i++) {
        int64_t last = (int64_t)(t->sizes[i] - 1) * t->strides[i];

        *(last < 0 ? &low : &high) += last;
    }
    return flyt_soft_work_reaches((const void *)((uintptr_t)operand->at + (uintptr_t)(low * bytes)),
                                  (uint64_t)((high - low + 1) * bytes));
}

/* Calls `each` for the rows of up to FLYT_SOFT_BLOCK numbers that lie in the tensor's last dimension. */
typedef void (*row_fn)(const struct flyt_soft_operand *operand, char *at, int64_t inc, double *values, int count);

static void each_row(const struct flyt_soft_operand *operand, row_fn each)
{
    const struct cudnnTensorStruct *t = &operand->tensor;
    int64_t bytes = flyt_soft_dnn_type_bytes(t->type), offset = 0, inc = t->strides[t->dims - 1];
    int length = t->sizes[t->dims - 1], place[CUDNN_DIM_MAX] = {0};
    double *values = operand->values;

    for (int64_t rows = flyt_soft_tensor_count(t) / length; rows > 0; rows--, values += length) {
        for (int i = 0; i < length; i += FLYT_SOFT_BLOCK)
            each(operand, (char *)operand->at + (offset + i * inc) * bytes, inc, values + i,
                 length - i < FLYT_SOFT_BLOCK ? length - i : FLYT_SOFT_BLOCK);
        for (int d = t->dims - 2; d >= 0; d--) {
            offset += t->strides[d];
            if (++place[d] < t->sizes[d])
                break;
            offset -= (int64_t)t->sizes[d] * t->strides[d];
            place[d] = 0;
        }
    }
}

static void load_row(const struct flyt_soft_operand *operand, char *at, int64_t inc, double *values, int count)
{
    struct flyt_soft_block block;

    flyt_soft_block_load(&block, flyt_soft_dnn_cuda_type(operand->tensor.type), at, inc, count);
    memcpy(values, block.re, (size_t)count * sizeof(*values));
}

/* Where beta is 0 nothing is read, so that what was there may be no number. */
static void store_row(const struct flyt_soft_operand *operand, char *at, int64_t inc, double *values, int count)
{
    cudaDataType type = flyt_soft_dnn_cuda_type(operand->tensor.type);
    struct flyt_soft_block block;

    if (operand->beta != 0)
        flyt_soft_block_load(&block, type, at, inc, count);
    for (int i = 0; i < count; i++)
        block.re[i] = operand->alpha * values[i] + (operand->beta != 0 ? operand->beta * block.re[i] : 0);
    memset(block.im, 0, sizeof(block.im));
    flyt_soft_block_store(&block, type, at, inc, count);
}

/* ---- calls ---- */

static CUresult load(struct flyt_soft_operand *operand)
{
    if (!operand->is_read && !operand->is_written)
        return CUDA_SUCCESS;
    if (!reaches(operand))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    operand->values = calloc((size_t)flyt_soft_tensor_count(&operand->tensor), sizeof(*operand->values));
    if (!operand->values)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (operand->is_read)
        each_row(operand, load_row);
    return CUDA_SUCCESS;
}

static CUresult run(void *record)
{
    struct flyt_soft_dnn *call = record;
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < FLYT_SOFT_OPERANDS && result == CUDA_SUCCESS; i++)
        result = load(&call->operands[i]);
    if (result == CUDA_SUCCESS)
        result = call->kernel(call);
    for (unsigned i = 0; i < FLYT_SOFT_OPERANDS; i++) {
        if (result == CUDA_SUCCESS && call->operands[i].is_written)
            each_row(&call->operands[i], store_row);
        free(call->operands[i].values);
    }
    return result;
}

int flyt_soft_dnn_status(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return CUDNN_STATUS_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
        return CUDNN_STATUS_NOT_INITIALIZED;
    default:
        return CUDNN_STATUS_EXECUTION_FAILED;
    }
}

int flyt_soft_dnn_push(cudnnHandle_t handle, const struct flyt_soft_dnn *call, bool is_awaited)
{
    CUresult result = flyt_soft_work_push(handle->stream, run, NULL, call, sizeof(*call));

    if (result == CUDA_SUCCESS && is_awaited)
        result = cuStreamSynchronize(handle->stream);
    return flyt_soft_dnn_status(result);
}
