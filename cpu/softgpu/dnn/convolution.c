/* cuDNN: convolutions. There is one algorithm, by whatever number it is asked for, and it needs no workspace. */
#include <string.h>
#include <time.h>

#include "cpu/softgpu/dnn/convolve.h"

enum { X = FLYT_SOFT_CONV_X, W, Y, Z, BIAS }; /* in the order of FLYT_SOFT_CONV_… */

/* What a convolution is between; and what it is asked for. */
struct shape {
    cudnnConvolutionDescriptor_t convolution;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
};
enum kind { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };

/* The algorithm's name among those of its kind, of which it is deterministic. */
static const int algos[] = {[FORWARD] = 0, [BACKWARD_DATA] = 1, [BACKWARD_FILTER] = 1};
static const int algo_counts[] = {[FORWARD] = CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
                                  [BACKWARD_DATA] = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT,
                                  [BACKWARD_FILTER] = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT};

/* ---- shapes ---- */

static struct flyt_soft_window window_of(cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t w)
{
    struct flyt_soft_window window = convolution->window;

    flyt_soft_tensor_space(&w->tensor, window.sizes);
    return window;
}

FLYT_SOFT_CUDNN cudnnGetConvolutionNdForwardOutputDim(cudnnConvolutionDescriptor_t convolution,
                                                      cudnnTensorDescriptor_t x_desc, cudnnFilterDescriptor_t w_desc,
                                                      int dims, int ret_sizes[])
{
    int space[FLYT_SOFT_SPACE];

    FLYT_SOFT_DNN_CHECK(convolution && convolution->dims && x_desc && w_desc && ret_sizes);
    FLYT_SOFT_DNN_CHECK(x_desc->dims == dims && w_desc->tensor.dims == dims && dims == convolution->dims + 2);
    FLYT_SOFT_DNN_CHECK(x_desc->sizes[1] == (int64_t)w_desc->tensor.sizes[1] * convolution->groups &&
                        w_desc->tensor.sizes[0] % convolution->groups == 0);
    struct flyt_soft_window window = window_of(convolution, w_desc);
    flyt_soft_tensor_space(x_desc, space);
    ret_sizes[0] = x_desc->sizes[0];
    ret_sizes[1] = w_desc->tensor.sizes[0];
    for (int i = 2; i < dims; i++) {
        int dimension = FLYT_SOFT_SPACE - dims + i;
        int64_t steps = flyt_soft_window_steps(&window, dimension, space[dimension]);

        FLYT_SOFT_DNN_CHECK(steps > 0);
        ret_sizes[i] = (int)steps;
    }
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t convolution,
                                                      cudnnTensorDescriptor_t x_desc, cudnnFilterDescriptor_t w_desc,
                                                      int *n, int *c, int *h, int *w)
{
    int sizes[4], status = cudnnGetConvolutionNdForwardOutputDim(convolution, x_desc, w_desc, 4, sizes);

    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(n && c && h && w);
    *n = sizes[0];
    *c = sizes[1];
    *h = sizes[2];
    *w = sizes[3];
    return CUDNN_STATUS_SUCCESS;
}

static int check(cudnnHandle_t handle, const struct shape *shape, enum kind kind, int algo)
{
    int sizes[CUDNN_DIM_MAX], status;

    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(shape->x && shape->y && shape->w && shape->convolution && shape->x->dims &&
                        shape->x->dims == shape->y->dims);
    FLYT_SOFT_DNN_CHECK(shape->x->type == shape->y->type && shape->x->type == shape->w->tensor.type);
    FLYT_SOFT_DNN_CHECK(algo >= 0 && algo < algo_counts[kind]);
    status = cudnnGetConvolutionNdForwardOutputDim(shape->convolution, shape->x, shape->w, shape->x->dims, sizes);
    if (status)
        return status;
    FLYT_SOFT_DNN_SUPPORT(!memcmp(sizes, shape->y->sizes, (size_t)shape->y->dims * sizeof(sizes[0])));
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(shape->x) && flyt_soft_convolve_is_there());
    return CUDNN_STATUS_SUCCESS;
}

/* ---- convolutions ---- */

static int push(cudnnHandle_t handle, const struct shape *shape, enum kind kind, int algo, const void *alpha,
                const void *beta, void *x, void *w, void *y, bool is_awaited)
{
    int status = check(handle, shape, kind, algo);

    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha && beta && x && w && y);
    struct flyt_soft_dnn call = {.groups = shape->convolution->groups,
                                 .window = window_of(shape->convolution, shape->w),
                                 .factors = {1, 0},
                                 .activation = {.mode = CUDNN_ACTIVATION_IDENTITY},
                                 .operands = {[X] = flyt_soft_operand_read(shape->x, x),
                                              [W] = flyt_soft_operand_read(&shape->w->tensor, w),
                                              [Y] = flyt_soft_operand_read(shape->y, y)}};
    struct flyt_soft_operand *result = &call.operands[kind == FORWARD ? Y : kind == BACKWARD_DATA ? X : W];
    *result = flyt_soft_operand_written(&result->tensor, result->at, flyt_soft_dnn_scalar(&result->tensor, alpha),
                                        flyt_soft_dnn_scalar(&result->tensor, beta));
    call.kernel = kind == FORWARD         ? flyt_soft_convolve
                  : kind == BACKWARD_DATA ? flyt_soft_convolve_data
                                          : flyt_soft_convolve_filter;
    return flyt_soft_dnn_push(handle, &call, is_awaited);
}

FLYT_SOFT_CUDNN cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_desc,
                                        const void *x, cudnnFilterDescriptor_t w_desc, const void *w,
                                        cudnnConvolutionDescriptor_t convolution, int algo, void *workspace,
                                        size_t workspace_bytes, const void *beta, cudnnTensorDescriptor_t y_desc,
                                        void *y)
{
    const struct shape shape = {convolution, x_desc, y_desc, w_desc};

    return push(handle, &shape, FORWARD, algo, alpha, beta, (void *)x, (void *)w, y, false);
}

FLYT_SOFT_CUDNN cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha, cudnnFilterDescriptor_t w_desc,
                                             const void *w, cudnnTensorDescriptor_t dy_desc, const void *dy,
                                             cudnnConvolutionDescriptor_t convolution, int algo, void *workspace,
                                             size_t workspace_bytes, const void *beta, cudnnTensorDescriptor_t dx_desc,
                                             void *dx)
{
    const struct shape shape = {convolution, dx_desc, dy_desc, w_desc};

    return push(handle, &shape, BACKWARD_DATA, algo, alpha, beta, dx, (void *)w, (void *)dy, false);
}

FLYT_SOFT_CUDNN cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_desc,
                                               const void *x, cudnnTensorDescriptor_t dy_desc, const void *dy,
                                               cudnnConvolutionDescriptor_t convolution, int algo, void *workspace,
                                               size_t workspace_bytes, const void *beta,
                                               cudnnFilterDescriptor_t dw_desc, void *dw)
{
    const struct shape shape = {convolution, x_desc, dy_desc, dw_desc};

    return push(handle, &shape, BACKWARD_FILTER, algo, alpha, beta, (void *)x, dw, (void *)dy, false);
}

FLYT_SOFT_CUDNN
cudnnConvolutionBiasActivationForward(cudnnHandle_t handle, const void *alpha1, cudnnTensorDescriptor_t x_desc,
                                      const void *x, cudnnFilterDescriptor_t w_desc, const void *w,
                                      cudnnConvolutionDescriptor_t convolution, int algo, void *workspace,
                                      size_t workspace_bytes, const void *alpha2, cudnnTensorDescriptor_t z_desc,
                                      const void *z, cudnnTensorDescriptor_t bias_desc, const void *bias,
                                      cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t y_desc, void *y)
{
    const struct shape shape = {convolution, x_desc, y_desc, w_desc};
    int status = check(handle, &shape, FORWARD, algo);

    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha1 && alpha2 && x && w && z && bias && y && activation && bias_desc && bias_desc->dims);
    FLYT_SOFT_DNN_CHECK(flyt_soft_tensor_is_alike(z_desc, y_desc) && z_desc->type == y_desc->type &&
                        flyt_soft_tensor_spreads(bias_desc, y_desc) && bias_desc->sizes[1] == y_desc->sizes[1] &&
                        flyt_soft_tensor_count(bias_desc) == bias_desc->sizes[1]);
    FLYT_SOFT_DNN_SUPPORT(bias_desc->type == y_desc->type &&
                          (activation->mode == CUDNN_ACTIVATION_RELU || activation->mode == CUDNN_ACTIVATION_IDENTITY));
    struct flyt_soft_dnn call = {
        .kernel = flyt_soft_convolve,
        .groups = convolution->groups,
        .window = window_of(convolution, w_desc),
        .factors = {flyt_soft_dnn_scalar(y_desc, alpha1), flyt_soft_dnn_scalar(y_desc, alpha2)},
        .activation = *activation,
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [W] = flyt_soft_operand_read(&w_desc->tensor, w),
                     [BIAS] = flyt_soft_operand_read(bias_desc, bias),
                     [Y] = flyt_soft_operand_written(y_desc, y, 1, 0)}};
    if (call.factors[1] != 0)
        call.operands[Z] = flyt_soft_operand_read(z_desc, z);
    return flyt_soft_dnn_push(handle, &call, false);
}

static CUresult run_bias(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *dy = &call->operands[Y], *db = &call->operands[BIAS];
    int64_t count = flyt_soft_tensor_count(&dy->tensor), of_one = count / dy->tensor.sizes[0],
            space = of_one / dy->tensor.sizes[1];

    for (int64_t i = 0; i < count; i++)
        db->values[i % of_one / space] += dy->values[i];
    return CUDA_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t dy_desc,
                                             const void *dy, const void *beta, cudnnTensorDescriptor_t db_desc,
                                             void *db)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(alpha && beta && dy && db && dy_desc && db_desc && dy_desc->dims && db_desc->dims);
    FLYT_SOFT_DNN_CHECK(dy_desc->type == db_desc->type && flyt_soft_tensor_spreads(db_desc, dy_desc) &&
                        db_desc->sizes[1] == dy_desc->sizes[1] && flyt_soft_tensor_count(db_desc) == db_desc->sizes[1]);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(dy_desc));
    const struct flyt_soft_dnn call = {
        .kernel = run_bias,
        .operands = {[Y] = flyt_soft_operand_read(dy_desc, dy),
                     [BIAS] = flyt_soft_operand_written(db_desc, db, flyt_soft_dnn_scalar(db_desc, alpha),
                                                        flyt_soft_dnn_scalar(db_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}

/* ---- algorithms ---- */

static int tell_max_count(cudnnHandle_t handle, int *count)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(count);
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int *count)
{
    return tell_max_count(handle, count);
}

FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int *count)
{
    return tell_max_count(handle, count);
}

FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle, int *count)
{
    return tell_max_count(handle, count);
}

static int tell_workspace(cudnnHandle_t handle, const struct shape *shape, enum kind kind, int algo, size_t *ret_bytes)
{
    int status = check(handle, shape, kind, algo);

    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(ret_bytes);
    *ret_bytes = 0;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                        cudnnFilterDescriptor_t w_desc,
                                                        cudnnConvolutionDescriptor_t convolution,
                                                        cudnnTensorDescriptor_t y_desc, int algo, size_t *ret_bytes)
{
    return tell_workspace(handle, &(struct shape){convolution, x_desc, y_desc, w_desc}, FORWARD, algo, ret_bytes);
}

FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, cudnnFilterDescriptor_t w_desc,
                                                             cudnnTensorDescriptor_t dy_desc,
                                                             cudnnConvolutionDescriptor_t convolution,
                                                             cudnnTensorDescriptor_t dx_desc, int algo,
                                                             size_t *ret_bytes)
{
    return tell_workspace(handle, &(struct shape){convolution, dx_desc, dy_desc, w_desc}, BACKWARD_DATA, algo,
                          ret_bytes);
}

FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                               cudnnTensorDescriptor_t dy_desc,
                                                               cudnnConvolutionDescriptor_t convolution,
                                                               cudnnFilterDescriptor_t dw_desc, int algo,
                                                               size_t *ret_bytes)
{
    return tell_workspace(handle, &(struct shape){convolution, x_desc, dy_desc, dw_desc}, BACKWARD_FILTER, algo,
                          ret_bytes);
}

/* Tells of the one algorithm; `ms`: how long it took, or -1. */
static int tell_algo(cudnnHandle_t handle, const struct shape *shape, enum kind kind, float ms, int requested,
                     int *ret_count, struct flyt_soft_dnn_perf *ret_perf)
{
    int status = check(handle, shape, kind, algos[kind]);

    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(requested > 0 && ret_count && ret_perf);
    memset(ret_perf, 0, sizeof(*ret_perf));
    *ret_perf = (struct flyt_soft_dnn_perf){.algo = algos[kind],
                                            .status = CUDNN_STATUS_SUCCESS,
                                            .time = ms,
                                            .determinism = CUDNN_DETERMINISTIC,
                                            .math_type = shape->convolution->math_type};
    *ret_count = 1;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                       cudnnFilterDescriptor_t w_desc,
                                                       cudnnConvolutionDescriptor_t convolution,
                                                       cudnnTensorDescriptor_t y_desc, int requested, int *ret_count,
                                                       struct flyt_soft_dnn_perf *ret_perf)
{
    return tell_algo(handle, &(struct shape){convolution, x_desc, y_desc, w_desc}, FORWARD, -1, requested, ret_count,
                     ret_perf);
}

FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, cudnnFilterDescriptor_t w_desc,
                                                            cudnnTensorDescriptor_t dy_desc,
                                                            cudnnConvolutionDescriptor_t convolution,
                                                            cudnnTensorDescriptor_t dx_desc, int requested,
                                                            int *ret_count, struct flyt_soft_dnn_perf *ret_perf)
{
    return tell_algo(handle, &(struct shape){convolution, dx_desc, dy_desc, w_desc}, BACKWARD_DATA, -1, requested,
                     ret_count, ret_perf);
}

FLYT_SOFT_CUDNN cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                              cudnnTensorDescriptor_t dy_desc,
                                                              cudnnConvolutionDescriptor_t convolution,
                                                              cudnnFilterDescriptor_t dw_desc, int requested,
                                                              int *ret_count, struct flyt_soft_dnn_perf *ret_perf)
{
    return tell_algo(handle, &(struct shape){convolution, x_desc, dy_desc, dw_desc}, BACKWARD_FILTER, -1, requested,
                     ret_count, ret_perf);
}

/* Does it once, which overwrites the result, and tells how long that took. */
static int find(cudnnHandle_t handle, const struct shape *shape, enum kind kind, void *x, void *w, void *y,
                int requested, int *ret_count, struct flyt_soft_dnn_perf *ret_perf)
{
    static const double one_double = 1;
    static const float one_float = 1;
    static const double zero = 0; /* of both types */
    struct timespec begin, end;
    bool is_double = shape->x && shape->x->type == CUDNN_DATA_DOUBLE;
    int status = tell_algo(handle, shape, kind, -1, requested, ret_count, ret_perf);

    if (status)
        return status;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    status = push(handle, shape, kind, algos[kind], is_double ? (const void *)&one_double : &one_float, &zero, x, w, y,
                  true);
    clock_gettime(CLOCK_MONOTONIC, &end);
    ret_perf->time = (float)(end.tv_sec - begin.tv_sec) * 1e3f + (float)(end.tv_nsec - begin.tv_nsec) * 1e-6f;
    return status;
}

FLYT_SOFT_CUDNN cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                       const void *x, cudnnFilterDescriptor_t w_desc, const void *w,
                                                       cudnnConvolutionDescriptor_t convolution,
                                                       cudnnTensorDescriptor_t y_desc, void *y, int requested,
                                                       int *ret_count, struct flyt_soft_dnn_perf *ret_perf,
                                                       void *workspace, size_t workspace_bytes)
{
    return find(handle, &(struct shape){convolution, x_desc, y_desc, w_desc}, FORWARD, (void *)x, (void *)w, y,
                requested, ret_count, ret_perf);
}

FLYT_SOFT_CUDNN cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t handle, cudnnFilterDescriptor_t w_desc,
                                                            const void *w, cudnnTensorDescriptor_t dy_desc,
                                                            const void *dy, cudnnConvolutionDescriptor_t convolution,
                                                            cudnnTensorDescriptor_t dx_desc, void *dx, int requested,
                                                            int *ret_count, struct flyt_soft_dnn_perf *ret_perf,
                                                            void *workspace, size_t workspace_bytes)
{
    return find(handle, &(struct shape){convolution, dx_desc, dy_desc, w_desc}, BACKWARD_DATA, dx, (void *)w,
                (void *)dy, requested, ret_count, ret_perf);
}

FLYT_SOFT_CUDNN cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t handle, cudnnTensorDescriptor_t x_desc,
                                                              const void *x, cudnnTensorDescriptor_t dy_desc,
                                                              const void *dy, cudnnConvolutionDescriptor_t convolution,
                                                              cudnnFilterDescriptor_t dw_desc, void *dw, int requested,
                                                              int *ret_count, struct flyt_soft_dnn_perf *ret_perf,
                                                              void *workspace, size_t workspace_bytes)
{
    return find(handle, &(struct shape){convolution, x_desc, dy_desc, dw_desc}, BACKWARD_FILTER, (void *)x, dw,
                (void *)dy, requested, ret_count, ret_perf);
}
