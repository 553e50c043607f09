/*
 * cuDNN on the CPU: what its files share. A call's record names its tensors (operands). When the stream is there, what
 * is read becomes doubles, without gaps and in the order of the dimensions, whatever the layout in memory; a kernel
 * computes with these; and what is written is scaled, added to and rounded. So an operand may be read and written.
 */
#ifndef FLYT_SOFTGPU_DNN_H
#define FLYT_SOFTGPU_DNN_H

#include <cuda.h>
#include <library_types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/softgpu/dnn/interface.h"

/* ---- handles and descriptors, as the client's library has them made around a call ---- */

struct cudnnContext {
    CUstream stream;
};

/* dims == 0: it was never set. Strides in numbers. At most 2^31 - 1 numbers. */
struct cudnnTensorStruct {
    int type, dims, sizes[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
};

struct cudnnFilterStruct {
    struct cudnnTensorStruct tensor; /* K, C, then the spatial dimensions */
    int format;
};

enum { FLYT_SOFT_SPACE = 3 }; /* spatial dimensions */

/* A window that moves over space: of a pooling, or a convolution's filter. Missing dimensions are in front, of 1. */
struct flyt_soft_window {
    int sizes[FLYT_SOFT_SPACE], padding[FLYT_SOFT_SPACE], strides[FLYT_SOFT_SPACE], dilation[FLYT_SOFT_SPACE];
    bool is_flipped;
};

struct cudnnConvolutionStruct {
    int dims, mode, compute_type, groups, math_type, reorder_type;
    struct flyt_soft_window window; /* its sizes are the filter's */
};

struct cudnnPoolingStruct {
    int dims, mode, nan_option;
    struct flyt_soft_window window;
};

struct cudnnActivationStruct {
    int mode, nan_option;
    double coefficient, swish_beta;
};

struct cudnnLRNStruct {
    unsigned n;
    double alpha, beta, k;
};

struct cudnnOpTensorStruct {
    int op, compute_type, nan_option;
};

struct cudnnReduceTensorStruct {
    int op, compute_type, nan_option, indices, indices_type;
};

struct cudnnDropoutStruct {
    float rate;
    void *states;
    uint64_t seed;
};

/* ---- tensors ---- */

/* Bytes of one number; 0: unknown. */
unsigned flyt_soft_dnn_type_bytes(int type);
/* Whether the operations compute with it: float, double, half, bfloat16. */
bool flyt_soft_dnn_type_is_real(int type);
cudaDataType flyt_soft_dnn_cuda_type(int type);

int64_t flyt_soft_tensor_count(const struct cudnnTensorStruct *tensor);
/* Strides without gaps, in the order of the format. */
void flyt_soft_tensor_pack(struct cudnnTensorStruct *tensor, int format);
/* Both are set, and have the same sizes. */
bool flyt_soft_tensor_is_alike(const struct cudnnTensorStruct *a, const struct cudnnTensorStruct *b);
/* Each size of `small` is that of `large`, or 1. */
bool flyt_soft_tensor_spreads(const struct cudnnTensorStruct *small, const struct cudnnTensorStruct *large);
/* The spatial sizes, with 1 for what is missing in front. */
void flyt_soft_tensor_space(const struct cudnnTensorStruct *tensor, int ret_space[FLYT_SOFT_SPACE]);
/* Of number `index` of `large`, the index of the number in `small` that it is spread from. */
int64_t flyt_soft_tensor_spread(const struct cudnnTensorStruct *small, const struct cudnnTensorStruct *large,
                                int64_t index);

/* The length of what a window comes to in a dimension; < 1: it does not fit. */
int64_t flyt_soft_window_steps(const struct flyt_soft_window *window, int dimension, int length);
/* Where the window's place `offset` is at step `step`; false: in the padding. */
static inline bool flyt_soft_window_find(const struct flyt_soft_window *w, int dimension, int step, int offset,
                                         int length, int *ret_place)
{
    int turned = w->is_flipped ? w->sizes[dimension] - 1 - offset : offset;
    int64_t place =
        (int64_t)step * w->strides[dimension] - w->padding[dimension] + (int64_t)turned * w->dilation[dimension];

    *ret_place = (int)place;
    return place >= 0 && place < length;
}

/* ---- calls ---- */

enum { FLYT_SOFT_OPERANDS = 12 };

struct flyt_soft_operand {
    struct cudnnTensorStruct tensor;
    void *at; /* NULL: there is none */
    bool is_read, is_written;
    double alpha, beta; /* written: alpha values + beta what was there */
    double *values;     /* while the kernel runs */
};

struct flyt_soft_dnn {
    CUresult (*kernel)(struct flyt_soft_dnn *call);
    struct flyt_soft_operand operands[FLYT_SOFT_OPERANDS];
    int mode, algo, nan_option, groups;
    double number, factors[2];
    uint64_t seed;
    struct flyt_soft_window window;
    struct cudnnActivationStruct activation;
    struct cudnnLRNStruct lrn;
    void *indices, *states, *reserve;
};

/* A number in host memory; floats but for tensors of doubles. */
double flyt_soft_dnn_scalar(const struct cudnnTensorStruct *tensor, const void *at);

/* The tensors are set and `at` is there: whoever calls has checked that. */
struct flyt_soft_operand flyt_soft_operand_read(const struct cudnnTensorStruct *tensor, const void *at);
struct flyt_soft_operand flyt_soft_operand_written(const struct cudnnTensorStruct *tensor, void *at, double alpha,
                                                   double beta);

/* Launches it; is_awaited: returns when it is done. A status of cuDNN's. */
int flyt_soft_dnn_push(cudnnHandle_t handle, const struct flyt_soft_dnn *call, bool is_awaited);
int flyt_soft_dnn_status(CUresult result);

/* What is set and of a type that is computed with. */
bool flyt_soft_dnn_is_usable(const struct cudnnTensorStruct *tensor);

double flyt_soft_activate(const struct cudnnActivationStruct *activation, double x);

#define FLYT_SOFT_DNN_CHECK(condition_)                                                                                \
    do {                                                                                                               \
        if (!(condition_))                                                                                             \
            return CUDNN_STATUS_BAD_PARAM;                                                                             \
    } while (0)
#define FLYT_SOFT_DNN_SUPPORT(condition_)                                                                              \
    do {                                                                                                               \
        if (!(condition_))                                                                                             \
            return CUDNN_STATUS_NOT_SUPPORTED;                                                                         \
    } while (0)
/* What every operation begins with: a handle, and tensors that are set. */
#define FLYT_SOFT_DNN_HANDLE(handle_)                                                                                  \
    do {                                                                                                               \
        if (!(handle_))                                                                                                \
            return CUDNN_STATUS_NOT_INITIALIZED;                                                                       \
    } while (0)

#endif
