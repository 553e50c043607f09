/*
 * cuDNN's older interface as NVIDIA documents it, as far as the tests use it. cudnn.h is not in the CUDA toolkit, so
 * the library is opened when a program runs, and nothing of it is needed to build one.
 */
#ifndef TESTS_APPS_CUDNN_INTERFACE_H
#define TESTS_APPS_CUDNN_INTERFACE_H

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <library_types.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct *cudnnConvolutionDescriptor_t;
typedef struct cudnnPoolingStruct *cudnnPoolingDescriptor_t;
typedef struct cudnnActivationStruct *cudnnActivationDescriptor_t;
typedef struct cudnnLRNStruct *cudnnLRNDescriptor_t;
typedef struct cudnnOpTensorStruct *cudnnOpTensorDescriptor_t;
typedef struct cudnnReduceTensorStruct *cudnnReduceTensorDescriptor_t;
typedef struct cudnnDropoutStruct *cudnnDropoutDescriptor_t;

/* A status; its thousands say what kind it is. */
typedef int cudnnStatus_t;
enum { CUDNN_STATUS_SUCCESS = 0, CUDNN_STATUS_BAD_PARAM = 2000, CUDNN_STATUS_NOT_SUPPORTED = 3000 };

enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_DOUBLE = 1, CUDNN_DATA_HALF = 2, CUDNN_DATA_BFLOAT16 = 9 };
enum { CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC };
enum { CUDNN_NOT_PROPAGATE_NAN, CUDNN_PROPAGATE_NAN };
enum { CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION };
enum { CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, CUDNN_FMA_MATH };
enum { CUDNN_OP_TENSOR_ADD, CUDNN_OP_TENSOR_MUL, CUDNN_OP_TENSOR_MIN, CUDNN_OP_TENSOR_MAX };
enum {
    CUDNN_REDUCE_TENSOR_ADD,
    CUDNN_REDUCE_TENSOR_MAX = 3,
    CUDNN_REDUCE_TENSOR_AVG = 5,
    CUDNN_REDUCE_TENSOR_NORM2 = 7
};
enum { CUDNN_REDUCE_TENSOR_NO_INDICES, CUDNN_REDUCE_TENSOR_FLATTENED_INDICES };
enum { CUDNN_32BIT_INDICES };
enum {
    CUDNN_ACTIVATION_SIGMOID,
    CUDNN_ACTIVATION_RELU,
    CUDNN_ACTIVATION_TANH,
    CUDNN_ACTIVATION_CLIPPED_RELU,
    CUDNN_ACTIVATION_ELU,
    CUDNN_ACTIVATION_IDENTITY,
    CUDNN_ACTIVATION_SWISH
};
enum { CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_LOG };
enum { CUDNN_SOFTMAX_MODE_INSTANCE, CUDNN_SOFTMAX_MODE_CHANNEL };
enum {
    CUDNN_POOLING_MAX,
    CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
    CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
    CUDNN_POOLING_MAX_DETERMINISTIC
};
enum { CUDNN_BATCHNORM_PER_ACTIVATION, CUDNN_BATCHNORM_SPATIAL };

/* Of the three kinds of convolution, which are alike. */
struct cudnnAlgoPerf {
    int algo;
    cudnnStatus_t status;
    float time;
    size_t memory;
    int determinism, mathType, reserved[3];
};

typedef cudnnTensorDescriptor_t cudnnT;
typedef cudnnFilterDescriptor_t cudnnF;
typedef cudnnConvolutionDescriptor_t cudnnC;
typedef const void *cudnnIn;

#define CUDNN_DESCRIPTOR(X, name)                                                                                      \
    X(cudnnCreate##name##Descriptor, (cudnn##name##Descriptor_t *))                                                    \
    X(cudnnDestroy##name##Descriptor, (cudnn##name##Descriptor_t))

#define CUDNN_FUNCTIONS(X)                                                                                             \
    CUDNN_DESCRIPTOR(X, Tensor)                                                                                        \
    CUDNN_DESCRIPTOR(X, Filter)                                                                                        \
    CUDNN_DESCRIPTOR(X, Convolution)                                                                                   \
    CUDNN_DESCRIPTOR(X, Pooling)                                                                                       \
    CUDNN_DESCRIPTOR(X, Activation)                                                                                    \
    CUDNN_DESCRIPTOR(X, LRN)                                                                                           \
    CUDNN_DESCRIPTOR(X, OpTensor)                                                                                      \
    CUDNN_DESCRIPTOR(X, ReduceTensor)                                                                                  \
    CUDNN_DESCRIPTOR(X, Dropout)                                                                                       \
    X(cudnnCreate, (cudnnHandle_t *))                                                                                  \
    X(cudnnDestroy, (cudnnHandle_t))                                                                                   \
    X(cudnnSetStream, (cudnnHandle_t, cudaStream_t))                                                                   \
    X(cudnnGetProperty, (libraryPropertyType, int *))                                                                  \
    X(cudnnCnnVersionCheck, (void))                                                                                    \
    X(cudnnOpsVersionCheck, (void))                                                                                    \
    X(cudnnSetTensor4dDescriptor, (cudnnT, int, int, int, int, int, int))                                              \
    X(cudnnSetTensorNdDescriptor, (cudnnT, int, int, const int *, const int *))                                        \
    X(cudnnGetTensorSizeInBytes, (cudnnT, size_t *))                                                                   \
    X(cudnnSetFilter4dDescriptor, (cudnnF, int, int, int, int, int, int))                                              \
    X(cudnnSetFilterNdDescriptor, (cudnnF, int, int, int, const int *))                                                \
    X(cudnnSetConvolution2dDescriptor, (cudnnC, int, int, int, int, int, int, int, int))                               \
    X(cudnnSetConvolutionNdDescriptor, (cudnnC, int, const int *, const int *, const int *, int, int))                 \
    X(cudnnSetConvolutionGroupCount, (cudnnC, int))                                                                    \
    X(cudnnSetConvolutionMathType, (cudnnC, int))                                                                      \
    X(cudnnGetConvolution2dForwardOutputDim, (cudnnC, cudnnT, cudnnF, int *, int *, int *, int *))                     \
    X(cudnnGetConvolutionNdForwardOutputDim, (cudnnC, cudnnT, cudnnF, int, int *))                                     \
    X(cudnnGetConvolutionForwardAlgorithm_v7,                                                                          \
      (cudnnHandle_t, cudnnT, cudnnF, cudnnC, cudnnT, int, int *, struct cudnnAlgoPerf *))                             \
    X(cudnnGetConvolutionBackwardDataAlgorithm_v7,                                                                     \
      (cudnnHandle_t, cudnnF, cudnnT, cudnnC, cudnnT, int, int *, struct cudnnAlgoPerf *))                             \
    X(cudnnGetConvolutionBackwardFilterAlgorithm_v7,                                                                   \
      (cudnnHandle_t, cudnnT, cudnnT, cudnnC, cudnnF, int, int *, struct cudnnAlgoPerf *))                             \
    X(cudnnGetConvolutionForwardWorkspaceSize, (cudnnHandle_t, cudnnT, cudnnF, cudnnC, cudnnT, int, size_t *))         \
    X(cudnnGetConvolutionBackwardDataWorkspaceSize, (cudnnHandle_t, cudnnF, cudnnT, cudnnC, cudnnT, int, size_t *))    \
    X(cudnnGetConvolutionBackwardFilterWorkspaceSize, (cudnnHandle_t, cudnnT, cudnnT, cudnnC, cudnnF, int, size_t *))  \
    X(cudnnConvolutionForward, (cudnnHandle_t, cudnnIn, cudnnT, cudnnIn, cudnnF, cudnnIn, cudnnC, int, void *, size_t, \
                                cudnnIn, cudnnT, void *))                                                              \
    X(cudnnConvolutionBackwardData, (cudnnHandle_t, cudnnIn, cudnnF, cudnnIn, cudnnT, cudnnIn, cudnnC, int, void *,    \
                                     size_t, cudnnIn, cudnnT, void *))                                                 \
    X(cudnnConvolutionBackwardFilter, (cudnnHandle_t, cudnnIn, cudnnT, cudnnIn, cudnnT, cudnnIn, cudnnC, int, void *,  \
                                       size_t, cudnnIn, cudnnF, void *))                                               \
    X(cudnnConvolutionBackwardBias, (cudnnHandle_t, cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                \
    X(cudnnConvolutionBiasActivationForward,                                                                           \
      (cudnnHandle_t, cudnnIn, cudnnT, cudnnIn, cudnnF, cudnnIn, cudnnC, int, void *, size_t, cudnnIn, cudnnT,         \
       cudnnIn, cudnnT, cudnnIn, cudnnActivationDescriptor_t, cudnnT, void *))                                         \
    X(cudnnFindConvolutionForwardAlgorithmEx, (cudnnHandle_t, cudnnT, cudnnIn, cudnnF, cudnnIn, cudnnC, cudnnT,        \
                                               void *, int, int *, struct cudnnAlgoPerf *, void *, size_t))            \
    X(cudnnSetPooling2dDescriptor, (cudnnPoolingDescriptor_t, int, int, int, int, int, int, int, int))                 \
    X(cudnnGetPooling2dForwardOutputDim, (cudnnPoolingDescriptor_t, cudnnT, int *, int *, int *, int *))               \
    X(cudnnPoolingForward,                                                                                             \
      (cudnnHandle_t, cudnnPoolingDescriptor_t, cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                    \
    X(cudnnPoolingBackward, (cudnnHandle_t, cudnnPoolingDescriptor_t, cudnnIn, cudnnT, cudnnIn, cudnnT, cudnnIn,       \
                             cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                                                \
    X(cudnnSetActivationDescriptor, (cudnnActivationDescriptor_t, int, int, double))                                   \
    X(cudnnSetActivationDescriptorSwishBeta, (cudnnActivationDescriptor_t, double))                                    \
    X(cudnnActivationForward,                                                                                          \
      (cudnnHandle_t, cudnnActivationDescriptor_t, cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                 \
    X(cudnnActivationBackward, (cudnnHandle_t, cudnnActivationDescriptor_t, cudnnIn, cudnnT, cudnnIn, cudnnT, cudnnIn, \
                                cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                                             \
    X(cudnnSoftmaxForward, (cudnnHandle_t, int, int, cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, void *))               \
    X(cudnnSoftmaxBackward,                                                                                            \
      (cudnnHandle_t, int, int, cudnnIn, cudnnT, cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                   \
    X(cudnnSetLRNDescriptor, (cudnnLRNDescriptor_t, unsigned, double, double, double))                                 \
    X(cudnnLRNCrossChannelForward,                                                                                     \
      (cudnnHandle_t, cudnnLRNDescriptor_t, int, cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                   \
    X(cudnnLRNCrossChannelBackward, (cudnnHandle_t, cudnnLRNDescriptor_t, int, cudnnIn, cudnnT, cudnnIn, cudnnT,       \
                                     cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                               \
    X(cudnnBatchNormalizationForwardTraining,                                                                          \
      (cudnnHandle_t, int, cudnnIn, cudnnIn, cudnnT, cudnnIn, cudnnT, void *, cudnnT, cudnnIn, cudnnIn, double,        \
       void *, void *, double, void *, void *))                                                                        \
    X(cudnnBatchNormalizationForwardInference, (cudnnHandle_t, int, cudnnIn, cudnnIn, cudnnT, cudnnIn, cudnnT, void *, \
                                                cudnnT, cudnnIn, cudnnIn, cudnnIn, cudnnIn, double))                   \
    X(cudnnBatchNormalizationBackward,                                                                                 \
      (cudnnHandle_t, int, cudnnIn, cudnnIn, cudnnIn, cudnnIn, cudnnT, cudnnIn, cudnnT, cudnnIn, cudnnT, void *,       \
       cudnnT, cudnnIn, void *, void *, double, cudnnIn, cudnnIn))                                                     \
    X(cudnnTransformTensor, (cudnnHandle_t, cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                        \
    X(cudnnAddTensor, (cudnnHandle_t, cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                              \
    X(cudnnScaleTensor, (cudnnHandle_t, cudnnT, void *, cudnnIn))                                                      \
    X(cudnnSetOpTensorDescriptor, (cudnnOpTensorDescriptor_t, int, int, int))                                          \
    X(cudnnOpTensor, (cudnnHandle_t, cudnnOpTensorDescriptor_t, cudnnIn, cudnnT, cudnnIn, cudnnIn, cudnnT, cudnnIn,    \
                      cudnnIn, cudnnT, void *))                                                                        \
    X(cudnnSetReduceTensorDescriptor, (cudnnReduceTensorDescriptor_t, int, int, int, int, int))                        \
    X(cudnnGetReductionWorkspaceSize, (cudnnHandle_t, cudnnReduceTensorDescriptor_t, cudnnT, cudnnT, size_t *))        \
    X(cudnnGetReductionIndicesSize, (cudnnHandle_t, cudnnReduceTensorDescriptor_t, cudnnT, cudnnT, size_t *))          \
    X(cudnnReduceTensor, (cudnnHandle_t, cudnnReduceTensorDescriptor_t, void *, size_t, void *, size_t, cudnnIn,       \
                          cudnnT, cudnnIn, cudnnIn, cudnnT, void *))                                                   \
    X(cudnnDropoutGetStatesSize, (cudnnHandle_t, size_t *))                                                            \
    X(cudnnDropoutGetReserveSpaceSize, (cudnnT, size_t *))                                                             \
    X(cudnnSetDropoutDescriptor, (cudnnDropoutDescriptor_t, cudnnHandle_t, float, void *, size_t, unsigned long long)) \
    X(cudnnDropoutForward, (cudnnHandle_t, cudnnDropoutDescriptor_t, cudnnT, cudnnIn, cudnnT, void *, void *, size_t)) \
    X(cudnnDropoutBackward, (cudnnHandle_t, cudnnDropoutDescriptor_t, cudnnT, cudnnIn, cudnnT, void *, void *, size_t))

#define CUDNN_DECLARE(name, parameters) __attribute__((unused)) static cudnnStatus_t(*name) parameters;
CUDNN_FUNCTIONS(CUDNN_DECLARE)

static void cudnn_find(void *file, const char *name, void *place)
{
    *(void **)place = dlsym(file, name);
    if (!*(void **)place) {
        fprintf(stderr, "libcudnn.so.9 has no %s\n", name);
        exit(1);
    }
}

/* Ends the program with 77 where there is no cuDNN. */
static void cudnn_open(void)
{
    void *file = dlopen("libcudnn.so.9", RTLD_NOW);
    if (!file) {
        printf("skip: needs libcudnn.so.9: %s\n", dlerror());
        exit(77);
    }
#define CUDNN_FIND(name, parameters) cudnn_find(file, #name, &name);
    CUDNN_FUNCTIONS(CUDNN_FIND)
}

#endif
