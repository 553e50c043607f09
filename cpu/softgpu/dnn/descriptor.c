/* cuDNN's descriptors: what is said of tensors, filters, windows and operations. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/dnn/dnn.h"

/* ---- types ---- */

static const struct {
    int type;
    cudaDataType cuda_type;
    unsigned bytes;
    bool is_real;
} types[] = {
    {CUDNN_DATA_FLOAT, CUDA_R_32F, 4, true},     {CUDNN_DATA_DOUBLE, CUDA_R_64F, 8, true},
    {CUDNN_DATA_HALF, CUDA_R_16F, 2, true},      {CUDNN_DATA_INT8, CUDA_R_8I, 1, false},
    {CUDNN_DATA_INT32, CUDA_R_32I, 4, false},    {CUDNN_DATA_UINT8, CUDA_R_8U, 1, false},
    {CUDNN_DATA_BFLOAT16, CUDA_R_16BF, 2, true},
};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

static unsigned find_type(int type)
{
    unsigned i = 0;

    while (i < TYPES && types[i].type != type)
        i++;
    return i;
}

unsigned flyt_soft_dnn_type_bytes(int type)
{
    unsigned i = find_type(type);

    return i < TYPES ? types[i].bytes : 0;
}

bool flyt_soft_dnn_type_is_real(int type)
{
    unsigned i = find_type(type);

    return i < TYPES && types[i].is_real;
}

/* Of a type that find_type knows. */
cudaDataType flyt_soft_dnn_cuda_type(int type)
{
    return types[find_type(type)].cuda_type;
}

/* ---- sizes ---- */

int64_t flyt_soft_tensor_count(const struct cudnnTensorStruct *tensor)
{
    int64_t count = 1;

    for (int i = 0; i < tensor->dims; i++)
        count *= tensor->sizes[i];
    return count;
}

void flyt_soft_tensor_pack(struct cudnnTensorStruct *tensor, int format)
{
    int stride = format == CUDNN_TENSOR_NHWC ? tensor->sizes[1] : 1;

    for (int i = tensor->dims - 1; i >= 2; i--) {
        tensor->strides[i] = stride;
        stride *= tensor->sizes[i];
    }
    tensor->strides[1] = format == CUDNN_TENSOR_NHWC ? 1 : stride;
    tensor->strides[0] = format == CUDNN_TENSOR_NHWC ? stride : stride * tensor->sizes[1];
}

bool flyt_soft_tensor_is_alike(const struct cudnnTensorStruct *a, const struct cudnnTensorStruct *b)
{
    return a && b && a->dims && a->dims == b->dims &&
           !memcmp(a->sizes, b->sizes, (size_t)a->dims * sizeof(a->sizes[0]));
}

bool flyt_soft_tensor_spreads(const struct cudnnTensorStruct *small, const struct cudnnTensorStruct *large)
{
    if (small->dims != large->dims)
        return false;
    for (int i = 0; i < small->dims; i++)
        if (small->sizes[i] != 1 && small->sizes[i] != large->sizes[i])
            return false;
    return true;
}

void flyt_soft_tensor_space(const struct cudnnTensorStruct *tensor, int ret_space[FLYT_SOFT_SPACE])
{
    int missing = FLYT_SOFT_SPACE - (tensor->dims - 2);

    for (int i = 0; i < FLYT_SOFT_SPACE; i++)
        ret_space[i] = i < missing ? 1 : tensor->sizes[i - missing + 2];
}

int64_t flyt_soft_tensor_spread(const struct cudnnTensorStruct *small, const struct cudnnTensorStruct *large,
                                int64_t index)
{
    int64_t found = 0, step = 1;

    for (int i = large->dims - 1; i >= 0; i--) {
        int64_t place = index % large->sizes[i];

        index /= large->sizes[i];
        if (small->sizes[i] != 1)
            found += place * step;
        step *= small->sizes[i];
    }
    return found;
}

int64_t flyt_soft_window_steps(const struct flyt_soft_window *w, int dimension, int length)
{
    int64_t reach = (int64_t)(w->sizes[dimension] - 1) * w->dilation[dimension] + 1,
            room = (int64_t)length + 2 * (int64_t)w->padding[dimension] - reach;

    return room < 0 ? 0 : room / w->strides[dimension] + 1;
}

/* ---- making and ending ---- */

static int make(void **place, size_t bytes)
{
    FLYT_SOFT_DNN_CHECK(place);
    *place = calloc(1, bytes);
    return *place ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

#define DESCRIPTOR(name_)                                                                                              \
    FLYT_SOFT_CUDNN cudnnCreate##name_##Descriptor(cudnn##name_##Descriptor_t *descriptor)                             \
    {                                                                                                                  \
        return make((void **)descriptor, sizeof(**descriptor));                                                        \
    }                                                                                                                  \
    FLYT_SOFT_CUDNN cudnnDestroy##name_##Descriptor(cudnn##name_##Descriptor_t descriptor)                             \
    {                                                                                                                  \
        free(descriptor);                                                                                              \
        return CUDNN_STATUS_SUCCESS;                                                                                   \
    }
DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Convolution)
DESCRIPTOR(Pooling)
DESCRIPTOR(Activation)
DESCRIPTOR(LRN)
DESCRIPTOR(OpTensor)
DESCRIPTOR(ReduceTensor)
DESCRIPTOR(Dropout)

/* ---- tensors and filters ---- */

/* Sizes that are positive, of a known type, and of no more numbers than a tensor has. */
static int take_sizes(struct cudnnTensorStruct *to, int type, int dims, const int sizes[])
{
    int64_t count = 1;

    FLYT_SOFT_DNN_CHECK(sizes);
    FLYT_SOFT_DNN_SUPPORT(dims >= 3 && dims <= CUDNN_DIM_MAX);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_type_bytes(type));
    *to = (struct cudnnTensorStruct){.type = type, .dims = dims};
    for (int i = 0; i < dims; i++) {
        FLYT_SOFT_DNN_CHECK(sizes[i] > 0);
        count *= sizes[i];
        FLYT_SOFT_DNN_SUPPORT(count <= INT_MAX);
        to->sizes[i] = sizes[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

/* How far the last number is from the first one. */
static int64_t find_last(const struct cudnnTensorStruct *tensor)
{
    int64_t last = 0;

    for (int i = 0; i < tensor->dims; i++)
        last += (int64_t)(tensor->sizes[i] - 1) * llabs((long long)tensor->strides[i]);
    return last;
}

FLYT_SOFT_CUDNN cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, int type, int dims, const int sizes[],
                                           const int strides[])
{
    struct cudnnTensorStruct made;
    int status;

    FLYT_SOFT_DNN_CHECK(tensor && strides);
    status = take_sizes(&made, type, dims, sizes);
    if (status)
        return status;
    memcpy(made.strides, strides, (size_t)dims * sizeof(strides[0]));
    FLYT_SOFT_DNN_SUPPORT(find_last(&made) < INT_MAX);
    *tensor = made;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t tensor, size_t *ret_bytes)
{
    FLYT_SOFT_DNN_CHECK(tensor && tensor->dims && ret_bytes);
    *ret_bytes = (size_t)(find_last(tensor) + 1) * flyt_soft_dnn_type_bytes(tensor->type);
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, int type, int format, int dims,
                                           const int sizes[])
{
    struct cudnnFilterStruct made = {.format = format};
    int status;

    FLYT_SOFT_DNN_CHECK(filter);
    FLYT_SOFT_DNN_SUPPORT(format == CUDNN_TENSOR_NCHW || format == CUDNN_TENSOR_NHWC);
    status = take_sizes(&made.tensor, type, dims, sizes);
    if (status)
        return status;
    flyt_soft_tensor_pack(&made.tensor, format);
    *filter = made;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetFilterSizeInBytes(cudnnFilterDescriptor_t filter, size_t *ret_bytes)
{
    FLYT_SOFT_DNN_CHECK(filter);
    return cudnnGetTensorSizeInBytes(&filter->tensor, ret_bytes);
}

/* ---- windows ---- */

/* NULL sizes and dilations are ones. */
static int take_window(struct flyt_soft_window *to, int dims, const int sizes[], const int padding[],
                       const int strides[], const int dilation[])
{
    int missing = FLYT_SOFT_SPACE - dims;

    FLYT_SOFT_DNN_CHECK(dims > 0 && padding && strides);
    FLYT_SOFT_DNN_SUPPORT(dims <= FLYT_SOFT_SPACE);
    for (int i = 0; i < FLYT_SOFT_SPACE; i++) {
        int from = i - missing;

        to->sizes[i] = from >= 0 && sizes ? sizes[from] : 1;
        to->padding[i] = from >= 0 ? padding[from] : 0;
        to->strides[i] = from >= 0 ? strides[from] : 1;
        to->dilation[i] = from >= 0 && dilation ? dilation[from] : 1;
        FLYT_SOFT_DNN_CHECK(to->sizes[i] > 0 && to->padding[i] >= 0 && to->strides[i] > 0 && to->dilation[i] > 0);
    }
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convolution, int dims, const int padding[],
                                                const int strides[], const int dilation[], int mode, int compute_type)
{
    struct cudnnConvolutionStruct made = {.dims = dims, .mode = mode, .compute_type = compute_type, .groups = 1};
    int status;

    FLYT_SOFT_DNN_CHECK(convolution && dilation && (unsigned)mode <= CUDNN_CROSS_CORRELATION);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_type_is_real(compute_type));
    status = take_window(&made.window, dims, NULL, padding, strides, dilation);
    if (status)
        return status;
    made.window.is_flipped = mode == CUDNN_CONVOLUTION;
    *convolution = made;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups)
{
    FLYT_SOFT_DNN_CHECK(convolution && groups > 0);
    convolution->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, int math_type)
{
    FLYT_SOFT_DNN_CHECK(convolution && (unsigned)math_type <= CUDNN_FMA_MATH);
    convolution->math_type = math_type;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetConvolutionReorderType(cudnnConvolutionDescriptor_t convolution, int reorder_type)
{
    FLYT_SOFT_DNN_CHECK(convolution && (unsigned)reorder_type <= CUDNN_NO_REORDER);
    convolution->reorder_type = reorder_type;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t pooling, int mode, int nan_option, int dims,
                                            const int window[], const int padding[], const int strides[])
{
    struct cudnnPoolingStruct made = {.dims = dims, .mode = mode, .nan_option = nan_option};
    int status;

    FLYT_SOFT_DNN_CHECK(pooling && window && (unsigned)mode <= CUDNN_POOLING_MAX_DETERMINISTIC &&
                        (unsigned)nan_option <= CUDNN_PROPAGATE_NAN);
    status = take_window(&made.window, dims, window, padding, strides, NULL);
    if (status)
        return status;
    *pooling = made;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- operations ---- */

FLYT_SOFT_CUDNN cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, int mode, int nan_option,
                                             double coefficient)
{
    FLYT_SOFT_DNN_CHECK(activation && (unsigned)mode <= CUDNN_ACTIVATION_SWISH &&
                        (unsigned)nan_option <= CUDNN_PROPAGATE_NAN);
    *activation = (struct cudnnActivationStruct){mode, nan_option, coefficient, .swish_beta = 1};
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t activation, double swish_beta)
{
    FLYT_SOFT_DNN_CHECK(activation);
    activation->swish_beta = swish_beta;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetLRNDescriptor(cudnnLRNDescriptor_t lrn, unsigned n, double alpha, double beta, double k)
{
    FLYT_SOFT_DNN_CHECK(lrn && n >= CUDNN_LRN_MIN_N && n <= CUDNN_LRN_MAX_N && beta >= CUDNN_LRN_MIN_BETA &&
                        k >= CUDNN_LRN_MIN_K);
    *lrn = (struct cudnnLRNStruct){n, alpha, beta, k};
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetOpTensorDescriptor(cudnnOpTensorDescriptor_t op_tensor, int op, int compute_type,
                                           int nan_option)
{
    FLYT_SOFT_DNN_CHECK(op_tensor && (unsigned)op <= CUDNN_OP_TENSOR_NOT &&
                        (unsigned)nan_option <= CUDNN_PROPAGATE_NAN);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_type_is_real(compute_type));
    *op_tensor = (struct cudnnOpTensorStruct){op, compute_type, nan_option};
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetReduceTensorDescriptor(cudnnReduceTensorDescriptor_t reduce, int op, int compute_type,
                                               int nan_option, int indices, int indices_type)
{
    FLYT_SOFT_DNN_CHECK(
        reduce && (unsigned)op <= CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS && (unsigned)nan_option <= CUDNN_PROPAGATE_NAN &&
        (unsigned)indices <= CUDNN_REDUCE_TENSOR_FLATTENED_INDICES && (unsigned)indices_type <= CUDNN_8BIT_INDICES);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_type_is_real(compute_type));
    FLYT_SOFT_DNN_SUPPORT(indices == CUDNN_REDUCE_TENSOR_NO_INDICES || indices_type == CUDNN_32BIT_INDICES);
    *reduce = (struct cudnnReduceTensorStruct){op, compute_type, nan_option, indices, indices_type};
    return CUDNN_STATUS_SUCCESS;
}
