/*
 * cuDNN's older interface, as NVIDIA documents it: the numbers that its functions take and give. NVIDIA's header is no
 * part of the CUDA toolkit. Names of constants are NVIDIA's.
 */
#ifndef FLYT_SOFTGPU_DNN_INTERFACE_H
#define FLYT_SOFTGPU_DNN_INTERFACE_H

#include <cuda.h>
#include <library_types.h>
#include <stddef.h>

enum { CUDNN_MAJOR = 9, CUDNN_MINOR = 19, CUDNN_PATCHLEVEL = 0, CUDNN_MAX_DEVICE_VERSION = 1210 };
enum { CUDNN_DIM_MAX = 8 };

enum {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003,
    CUDNN_STATUS_EXECUTION_FAILED = 5000
};

enum {
    CUDNN_DATA_FLOAT = 0,
    CUDNN_DATA_DOUBLE = 1,
    CUDNN_DATA_HALF = 2,
    CUDNN_DATA_INT8 = 3,
    CUDNN_DATA_INT32 = 4,
    CUDNN_DATA_UINT8 = 6,
    CUDNN_DATA_BFLOAT16 = 9
};
enum { CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC };
enum { CUDNN_NOT_PROPAGATE_NAN, CUDNN_PROPAGATE_NAN };

enum {
    CUDNN_OP_TENSOR_ADD,
    CUDNN_OP_TENSOR_MUL,
    CUDNN_OP_TENSOR_MIN,
    CUDNN_OP_TENSOR_MAX,
    CUDNN_OP_TENSOR_SQRT,
    CUDNN_OP_TENSOR_NOT
};

enum {
    CUDNN_REDUCE_TENSOR_ADD,
    CUDNN_REDUCE_TENSOR_MUL,
    CUDNN_REDUCE_TENSOR_MIN,
    CUDNN_REDUCE_TENSOR_MAX,
    CUDNN_REDUCE_TENSOR_AMAX,
    CUDNN_REDUCE_TENSOR_AVG,
    CUDNN_REDUCE_TENSOR_NORM1,
    CUDNN_REDUCE_TENSOR_NORM2,
    CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS
};
enum { CUDNN_REDUCE_TENSOR_NO_INDICES, CUDNN_REDUCE_TENSOR_FLATTENED_INDICES };
enum { CUDNN_32BIT_INDICES, CUDNN_64BIT_INDICES, CUDNN_16BIT_INDICES, CUDNN_8BIT_INDICES };

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

enum { CUDNN_BATCHNORM_PER_ACTIVATION, CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_SPATIAL_PERSISTENT };
enum { CUDNN_BATCHNORM_OPS_BN, CUDNN_BATCHNORM_OPS_BN_ACTIVATION, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION };

enum { CUDNN_LRN_MIN_N = 1, CUDNN_LRN_MAX_N = 16 };
#define CUDNN_LRN_MIN_K    1e-5
#define CUDNN_LRN_MIN_BETA 0.01

enum { CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION };
enum { CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, CUDNN_FMA_MATH };
enum { CUDNN_DEFAULT_REORDER, CUDNN_NO_REORDER };
enum { CUDNN_NON_DETERMINISTIC, CUDNN_DETERMINISTIC };
enum {
    CUDNN_CONVOLUTION_FWD_ALGO_COUNT = 8,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT = 6,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT = 7
};

/* Of cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t, which are alike. */
struct flyt_soft_dnn_perf {
    int algo, status;
    float time; /* in milliseconds; -1: it was not measured */
    size_t memory;
    int determinism, math_type, reserved[3];
};
_Static_assert(sizeof(struct flyt_soft_dnn_perf) == 48, "as NVIDIA declares it");

#define FLYT_SOFT_DNN_EXPORT __attribute__((visibility("default")))
#define FLYT_SOFT_CUDNN      FLYT_SOFT_DNN_EXPORT int /* a status */

typedef struct cudnnContext *cudnnHandle_t;
#define FLYT_SOFT_DNN_DESCRIPTOR(name_)                                                                                \
    typedef struct cudnn##name_##Struct *cudnn##name_##Descriptor_t;                                                   \
    FLYT_SOFT_CUDNN cudnnCreate##name_##Descriptor(cudnn##name_##Descriptor_t *descriptor);                            \
    FLYT_SOFT_CUDNN cudnnDestroy##name_##Descriptor(cudnn##name_##Descriptor_t descriptor);
FLYT_SOFT_DNN_DESCRIPTOR(Tensor)
FLYT_SOFT_DNN_DESCRIPTOR(Filter)
FLYT_SOFT_DNN_DESCRIPTOR(Convolution)
FLYT_SOFT_DNN_DESCRIPTOR(Pooling)
FLYT_SOFT_DNN_DESCRIPTOR(Activation)
FLYT_SOFT_DNN_DESCRIPTOR(LRN)
FLYT_SOFT_DNN_DESCRIPTOR(OpTensor)
FLYT_SOFT_DNN_DESCRIPTOR(ReduceTensor)
FLYT_SOFT_DNN_DESCRIPTOR(Dropout)
#undef FLYT_SOFT_DNN_DESCRIPTOR

/* ---- versions, handles ---- */

FLYT_SOFT_CUDNN cudnnGetProperty(libraryPropertyType type, int *value);
FLYT_SOFT_DNN_EXPORT size_t cudnnGetVersion(void);
FLYT_SOFT_DNN_EXPORT size_t cudnnGetMaxDeviceVersion(void);
FLYT_SOFT_DNN_EXPORT size_t cudnnGetCudartVersion(void);
FLYT_SOFT_CUDNN cudnnGraphVersionCheck(void);
FLYT_SOFT_CUDNN cudnnOpsVersionCheck(void);
FLYT_SOFT_CUDNN cudnnCnnVersionCheck(void);
FLYT_SOFT_CUDNN cudnnAdvVersionCheck(void);
FLYT_SOFT_CUDNN cudnnCreate(cudnnHandle_t *handle);
FLYT_SOFT_CUDNN cudnnDestroy(cudnnHandle_t handle);
FLYT_SOFT_CUDNN cudnnSetStream(cudnnHandle_t handle, CUstream stream);
FLYT_SOFT_CUDNN cudnnGetStream(cudnnHandle_t handle, CUstream *stream);

/* ---- descriptors ---- */

FLYT_SOFT_CUDNN cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, int type, int dims, const int sizes[],
                                           const int strides[]);
FLYT_SOFT_CUDNN cudnnGetTensorSizeInBytes(cudnnTensorDescriptor_t tensor, size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, int type, int format, int dims,
                                           const int sizes[]);
FLYT_SOFT_CUDNN cudnnGetFilterSizeInBytes(cudnnFilterDescriptor_t filter, size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convolution, int dims, const int padding[],
                                                const int strides[], const int dilation[], int mode, int compute_type);
FLYT_SOFT_CUDNN cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups);
FLYT_SOFT_CUDNN cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, int math_type);
FLYT_SOFT_CUDNN cudnnSetConvolutionReorderType(cudnnConvolutionDescriptor_t convolution, int reorder_type);
FLYT_SOFT_CUDNN cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t pooling, int mode, int nan_option, int dims,
                                            const int window[], const int padding[], const int strides[]);
FLYT_SOFT_CUDNN cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, int mode, int nan_option,
                                             double coefficient);
FLYT_SOFT_CUDNN cudnnSetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t activation, double swish_beta);
FLYT_SOFT_CUDNN cudnnSetLRNDescriptor(cudnnLRNDescriptor_t lrn, unsigned n, double alpha, double beta, double k);
FLYT_SOFT_CUDNN cudnnSetOpTensorDescriptor(cudnnOpTensorDescriptor_t op_tensor, int op, int compute_type,
                                           int nan_option);
FLYT_SOFT_CUDNN cudnnSetReduceTensorDescriptor(cudnnReduceTensorDescriptor_t reduce, int op, int compute_type,
                                               int nan_option, int indices, int indices_type);

/* ---- tensors ---- */

FLYT_SOFT_CUDNN cudnnTransformTensor(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_desc,
                                     const void *x, const void *beta, cudnnTensorDescriptor_t y_desc, void *y);
FLYT_SOFT_CUDNN cudnnAddTensor(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t a_desc, const void *a,
                               const void *beta, cudnnTensorDescriptor_t c_desc, void *c);
FLYT_SOFT_CUDNN cudnnOpTensor(cudnnHandle_t handle, cudnnOpTensorDescriptor_t op, const void *alpha1,
                              cudnnTensorDescriptor_t a_desc, const void *a, const void *alpha2,
                              cudnnTensorDescriptor_t b_desc, const void *b, const void *beta,
                              cudnnTensorDescriptor_t c_desc, void *c);
FLYT_SOFT_CUDNN cudnnScaleTensor(cudnnHandle_t handle, cudnnTensorDescriptor_t y_desc, void *y, const void *alpha);
FLYT_SOFT_CUDNN cudnnGetReductionIndicesSize(cudnnHandle_t handle, cudnnReduceTensorDescriptor_t reduce,
                                             cudnnTensorDescriptor_t a_desc, cudnnTensorDescriptor_t c_desc,
                                             size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnGetReductionWorkspaceSize(cudnnHandle_t handle, cudnnReduceTensorDescriptor_t reduce,
                                               cudnnTensorDescriptor_t a_desc, cudnnTensorDescriptor_t c_desc,
                                               size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnReduceTensor(cudnnHandle_t handle, cudnnReduceTensorDescriptor_t reduce, void *indices,
                                  size_t indices_bytes, void *workspace, size_t workspace_bytes, const void *alpha,
                                  cudnnTensorDescriptor_t a_desc, const void *a, const void *beta,
                                  cudnnTensorDescriptor_t c_desc, void *c);

/* ---- activations, softmax, pooling, dropout ---- */

FLYT_SOFT_CUDNN cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation, const void *alpha,
                                       cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                       cudnnTensorDescriptor_t y_desc, void *y);
FLYT_SOFT_CUDNN cudnnActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation, const void *alpha,
                                        cudnnTensorDescriptor_t y_desc, const void *y, cudnnTensorDescriptor_t dy_desc,
                                        const void *dy, cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                        cudnnTensorDescriptor_t dx_desc, void *dx);
FLYT_SOFT_CUDNN cudnnSoftmaxForward(cudnnHandle_t handle, int algo, int mode, const void *alpha,
                                    cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                    cudnnTensorDescriptor_t y_desc, void *y);
FLYT_SOFT_CUDNN cudnnSoftmaxBackward(cudnnHandle_t handle, int algo, int mode, const void *alpha,
                                     cudnnTensorDescriptor_t y_desc, const void *y, cudnnTensorDescriptor_t dy_desc,
                                     const void *dy, const void *beta, cudnnTensorDescriptor_t dx_desc, void *dx);
FLYT_SOFT_CUDNN cudnnGetPoolingNdForwardOutputDim(cudnnPoolingDescriptor_t pooling, cudnnTensorDescriptor_t x_desc,
                                                  int dims, int ret_sizes[]);
FLYT_SOFT_CUDNN cudnnGetPooling2dForwardOutputDim(cudnnPoolingDescriptor_t pooling, cudnnTensorDescriptor_t x_desc,
                                                  int *n, int *c, int *h, int *w);
FLYT_SOFT_CUDNN cudnnPoolingForward(cudnnHandle_t handle, cudnnPoolingDescriptor_t pooling, const void *alpha,
                                    cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                    cudnnTensorDescriptor_t y_desc, void *y);
FLYT_SOFT_CUDNN cudnnPoolingBackward(cudnnHandle_t handle, cudnnPoolingDescriptor_t pooling, const void *alpha,
                                     cudnnTensorDescriptor_t y_desc, const void *y, cudnnTensorDescriptor_t dy_desc,
                                     const void *dy, cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                     cudnnTensorDescriptor_t dx_desc, void *dx);
FLYT_SOFT_CUDNN cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnDropoutGetReserveSpaceSize(cudnnTensorDescriptor_t x_desc, size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float rate,
                                          void *states, size_t states_bytes, unsigned long long seed);
FLYT_SOFT_CUDNN cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float rate,
                                              void *states, size_t states_bytes, unsigned long long seed);
FLYT_SOFT_CUDNN cudnnDropoutForward(cudnnHandle_t handle, cudnnDropoutDescriptor_t dropout,
                                    cudnnTensorDescriptor_t x_desc, const void *x, cudnnTensorDescriptor_t y_desc,
                                    void *y, void *reserve, size_t reserve_bytes);
FLYT_SOFT_CUDNN cudnnDropoutBackward(cudnnHandle_t handle, cudnnDropoutDescriptor_t dropout,
                                     cudnnTensorDescriptor_t dy_desc, const void *dy, cudnnTensorDescriptor_t dx_desc,
                                     void *dx, void *reserve, size_t reserve_bytes);

/* ---- normalization ---- */

FLYT_SOFT_CUDNN cudnnLRNCrossChannelForward(cudnnHandle_t handle, cudnnLRNDescriptor_t lrn, int mode, const void *alpha,
                                            cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                            cudnnTensorDescriptor_t y_desc, void *y);
FLYT_SOFT_CUDNN cudnnLRNCrossChannelBackward(cudnnHandle_t handle, cudnnLRNDescriptor_t lrn, int mode,
                                             const void *alpha, cudnnTensorDescriptor_t y_desc, const void *y,
                                             cudnnTensorDescriptor_t dy_desc, const void *dy,
                                             cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                             cudnnTensorDescriptor_t dx_desc, void *dx);
FLYT_SOFT_CUDNN cudnnBatchNormalizationForwardInference(cudnnHandle_t handle, int mode, const void *alpha,
                                                        const void *beta, cudnnTensorDescriptor_t x_desc, const void *x,
                                                        cudnnTensorDescriptor_t y_desc, void *y,
                                                        cudnnTensorDescriptor_t bn_desc, const void *scale,
                                                        const void *bias, const void *mean, const void *variance,
                                                        double epsilon);
FLYT_SOFT_CUDNN cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, int mode, const void *alpha, const void *beta, cudnnTensorDescriptor_t x_desc, const void *x,
    cudnnTensorDescriptor_t y_desc, void *y, cudnnTensorDescriptor_t bn_desc, const void *scale, const void *bias,
    double factor, void *running_mean, void *running_variance, double epsilon, void *saved_mean, void *saved_inverse);
FLYT_SOFT_CUDNN
cudnnBatchNormalizationForwardTrainingEx(cudnnHandle_t handle, int mode, int ops, const void *alpha, const void *beta,
                                         cudnnTensorDescriptor_t x_desc, const void *x, cudnnTensorDescriptor_t z_desc,
                                         const void *z, cudnnTensorDescriptor_t y_desc, void *y,
                                         cudnnTensorDescriptor_t bn_desc, const void *scale, const void *bias,
                                         double factor, void *running_mean, void *running_variance, double epsilon,
                                         void *saved_mean, void *saved_inverse, cudnnActivationDescriptor_t activation,
                                         void *workspace, size_t workspace_bytes, void *reserve, size_t reserve_bytes);
FLYT_SOFT_CUDNN cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, int mode, const void *alpha_data, const void *beta_data, const void *alpha_parameters,
    const void *beta_parameters, cudnnTensorDescriptor_t x_desc, const void *x, cudnnTensorDescriptor_t dy_desc,
    const void *dy, cudnnTensorDescriptor_t dx_desc, void *dx, cudnnTensorDescriptor_t bn_desc, const void *scale,
    void *dscale, void *dbias, double epsilon, const void *saved_mean, const void *saved_inverse);
FLYT_SOFT_CUDNN cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, int mode, int ops, const void *alpha_data, const void *beta_data,
    const void *alpha_parameters, const void *beta_parameters, cudnnTensorDescriptor_t x_desc, const void *x,
    cudnnTensorDescriptor_t y_desc, const void *y, cudnnTensorDescriptor_t dy_desc, const void *dy,
    cudnnTensorDescriptor_t dz_desc, void *dz, cudnnTensorDescriptor_t dx_desc, void *dx,
    cudnnTensorDescriptor_t bn_desc, const void *scale, const void *bias, void *dscale, void *dbias, double epsilon,
    const void *saved_mean, const void *saved_inverse, cudnnActivationDescriptor_t activation, void *workspace,
    size_t workspace_bytes, void *reserve, size_t reserve_bytes);
FLYT_SOFT_CUDNN cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, int mode, int ops, cudnnTensorDescriptor_t x_desc, cudnnTensorDescriptor_t z_desc,
    cudnnTensorDescriptor_t y_desc, cudnnTensorDescriptor_t bn_desc, cudnnActivationDescriptor_t activation,
    size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, int mode, int ops, cudnnTensorDescriptor_t x_desc, cudnnTensorDescriptor_t y_desc,
    cudnnTensorDescriptor_t dy_desc, cudnnTensorDescriptor_t dz_desc, cudnnTensorDescriptor_t dx_desc,
    cudnnTensorDescriptor_t bn_desc, cudnnActivationDescriptor_t activation, size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t handle, int mode, int ops,
                                                                     cudnnActivationDescriptor_t activation,
                                                                     cudnnTensorDescriptor_t x_desc, size_t *ret_bytes);

/* ---- convolution ---- */

FLYT_SOFT_CUDNN cudnnGetConvolutionNdForwardOutputDim(cudnnConvolutionDescriptor_t convolution,
                                                      cudnnTensorDescriptor_t x_desc, cudnnFilterDescriptor_t w_desc,
                                                      int dims, int ret_sizes[]);
FLYT_SOFT_CUDNN cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t convolution,
                                                      cudnnTensorDescriptor_t x_desc, cudnnFilterDescriptor_t w_desc,
                                                      int *n, int *c, int *h, int *w);
FLYT_SOFT_CUDNN cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_desc,
                                        const void *x, cudnnFilterDescriptor_t w_desc, const void *w,
                                        cudnnConvolutionDescriptor_t convolution, int algo, void *workspace,
                                        size_t workspace_bytes, const void *beta, cudnnTensorDescriptor_t y_desc,
                                        void *y);
FLYT_SOFT_CUDNN
cudnnConvolutionBiasActivationForward(cudnnHandle_t handle, const void *alpha1, cudnnTensorDescriptor_t x_desc,
                                      const void *x, cudnnFilterDescriptor_t w_desc, const void *w,
                                      cudnnConvolutionDescriptor_t convolution, int algo, void *workspace,
                                      size_t workspace_bytes, const void *alpha2, cudnnTensorDescriptor_t z_desc,
                                      const void *z, cudnnTensorDescriptor_t bias_desc, const void *bias,
                                      cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t y_desc, void *y);
FLYT_SOFT_CUDNN cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha, cudnnFilterDescriptor_t w_desc,
                                             const void *w, cudnnTensorDescriptor_t dy_desc, const void *dy,
                                             cudnnConvolutionDescriptor_t convolution, int algo, void *workspace,
                                             size_t workspace_bytes, const void *beta, cudnnTensorDescriptor_t dx_desc,
                                             void *dx);
FLYT_SOFT_CUDNN cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_desc,
                                               const void *x, cudnnTensorDescriptor_t dy_desc, const void *dy,
                                               cudnnConvolutionDescriptor_t convolution, int algo, void *workspace,
                                               size_t workspace_bytes, const void *beta,
                                               cudnnFilterDescriptor_t dw_desc, void *dw);
FLYT_SOFT_CUDNN cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t dy_desc,
                                             const void *dy, const void *beta, cudnnTensorDescriptor_t db_desc,
                                             void *db);
FLYT_SOFT_CUDNN cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int *count);
FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int *count);
FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle, int *count);
FLYT_SOFT_CUDNN cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                        cudnnFilterDescriptor_t w_desc,
                                                        cudnnConvolutionDescriptor_t convolution,
                                                        cudnnTensorDescriptor_t y_desc, int algo, size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, cudnnFilterDescriptor_t w_desc,
                                                             cudnnTensorDescriptor_t dy_desc,
                                                             cudnnConvolutionDescriptor_t convolution,
                                                             cudnnTensorDescriptor_t dx_desc, int algo,
                                                             size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                               cudnnTensorDescriptor_t dy_desc,
                                                               cudnnConvolutionDescriptor_t convolution,
                                                               cudnnFilterDescriptor_t dw_desc, int algo,
                                                               size_t *ret_bytes);
FLYT_SOFT_CUDNN cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                       cudnnFilterDescriptor_t w_desc,
                                                       cudnnConvolutionDescriptor_t convolution,
                                                       cudnnTensorDescriptor_t y_desc, int requested, int *ret_count,
                                                       struct flyt_soft_dnn_perf *ret_perf);
FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, cudnnFilterDescriptor_t w_desc,
                                                            cudnnTensorDescriptor_t dy_desc,
                                                            cudnnConvolutionDescriptor_t convolution,
                                                            cudnnTensorDescriptor_t dx_desc, int requested,
                                                            int *ret_count, struct flyt_soft_dnn_perf *ret_perf);
FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                              cudnnTensorDescriptor_t dy_desc,
                                                              cudnnConvolutionDescriptor_t convolution,
                                                              cudnnFilterDescriptor_t dw_desc, int requested,
                                                              int *ret_count, struct flyt_soft_dnn_perf *ret_perf);
FLYT_SOFT_CUDNN cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                       const void *x, cudnnFilterDescriptor_t w_desc, const void *w,
                                                       cudnnConvolutionDescriptor_t convolution,
                                                       cudnnTensorDescriptor_t y_desc, void *y, int requested,
                                                       int *ret_count, struct flyt_soft_dnn_perf *ret_perf,
                                                       void *workspace, size_t workspace_bytes);
FLYT_SOFT_CUDNN cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t handle, cudnnFilterDescriptor_t w_desc,
                                                            const void *w, cudnnTensorDescriptor_t dy_desc,
                                                            const void *dy, cudnnConvolutionDescriptor_t convolution,
                                                            cudnnTensorDescriptor_t dx_desc, void *dx, int requested,
                                                            int *ret_count, struct flyt_soft_dnn_perf *ret_perf,
                                                            void *workspace, size_t workspace_bytes);
FLYT_SOFT_CUDNN cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                              const void *x, cudnnTensorDescriptor_t dy_desc,
                                                              const void *dy, cudnnConvolutionDescriptor_t convolution,
                                                              cudnnFilterDescriptor_t dw_desc, void *dw, int requested,
                                                              int *ret_count, struct flyt_soft_dnn_perf *ret_perf,
                                                              void *workspace, size_t workspace_bytes);

#endif
