/* cuDNN: pooling over one to three spatial dimensions. */
#include <math.h>
#include <string.h>

#include "cpu/softgpu/dnn/dnn.h"

enum { X, Y, DY, DX }; /* operands */

/* One plane of the input and of the output: a channel of a member of the batch. */
struct planes {
    int from[FLYT_SOFT_SPACE], to[FLYT_SOFT_SPACE];
    int64_t count, from_numbers, to_numbers;
};

static struct planes planes_of(const struct cudnnTensorStruct *x, const struct cudnnTensorStruct *y)
{
    struct planes planes = {.count = (int64_t)x->sizes[0] * x->sizes[1]};

    flyt_soft_tensor_space(x, planes.from);
    flyt_soft_tensor_space(y, planes.to);
    planes.from_numbers = flyt_soft_tensor_count(x) / planes.count;
    planes.to_numbers = flyt_soft_tensor_count(y) / planes.count;
    return planes;
}

/* The part of the input that an output's window sees: [begin, end) in each dimension. */
struct view {
    int begin[FLYT_SOFT_SPACE], end[FLYT_SOFT_SPACE];
};

static struct view view_of(const struct flyt_soft_window *w, const struct planes *planes, int64_t output)
{
    struct view view;

    for (int d = FLYT_SOFT_SPACE - 1; d >= 0; d--) {
        int64_t begin = output % planes->to[d] * w->strides[d] - w->padding[d], end = begin + w->sizes[d];

        output /= planes->to[d];
        view.begin[d] = (int)(begin < 0 ? 0 : begin);
        view.end[d] = (int)(end > planes->from[d] ? planes->from[d] : end);
    }
    return view;
}

#define EACH_SEEN(view_, planes_, at_)                                                                                 \
    for (int z_ = (view_).begin[0]; z_ < (view_).end[0]; z_++)                                                         \
        for (int y_ = (view_).begin[1]; y_ < (view_).end[1]; y_++)                                                     \
            for (int64_t x_ = (view_).begin[2], at_ = ((int64_t)z_ * (planes_).from[1] + y_) * (planes_).from[2] + x_; \
                 x_ < (view_).end[2]; x_++, at_++)

static bool is_max(int mode)
{
    return mode == CUDNN_POOLING_MAX || mode == CUDNN_POOLING_MAX_DETERMINISTIC;
}

/* What a sum is divided by. */
static double divisor(const struct flyt_soft_dnn *call, const struct view *view)
{
    double count = 1;

    for (int d = 0; d < FLYT_SOFT_SPACE; d++)
        count *= call->mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING ? call->window.sizes[d]
                                                                           : view->end[d] - view->begin[d];
    return count;
}

/* Where the first of the largest numbers is; -1: the window sees nothing but padding, or what are no numbers. */
static int64_t find_largest(const struct flyt_soft_dnn *call, const struct planes *planes, const struct view *view,
                            const double *x)
{
    int64_t found = -1;

    EACH_SEEN(*view, *planes, at)
    {
        if (isnan(x[at]) && call->nan_option == CUDNN_PROPAGATE_NAN)
            return at;
        if (!isnan(x[at]) && (found < 0 || x[at] > x[found]))
            found = at;
    }
    return found;
}

static CUresult run_pool(struct flyt_soft_dnn *call)
{
    struct planes planes = planes_of(&call->operands[X].tensor, &call->operands[Y].tensor);
    const double *x = call->operands[X].values;
    double *y = call->operands[Y].values;

    for (int64_t p = 0; p < planes.count; p++, x += planes.from_numbers, y += planes.to_numbers) {
        for (int64_t i = 0; i < planes.to_numbers; i++) {
            struct view view = view_of(&call->window, &planes, i);
            double sum = 0, count = divisor(call, &view);

            if (is_max(call->mode)) {
                int64_t found = find_largest(call, &planes, &view, x);

                y[i] = found < 0 ? -INFINITY : x[found];
                continue;
            }
            EACH_SEEN(view, planes, at)
            {
                sum += x[at];
            }
            y[i] = count > 0 ? sum / count : 0;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult run_pool_backward(struct flyt_soft_dnn *call)
{
    struct planes planes = planes_of(&call->operands[DX].tensor, &call->operands[DY].tensor);
    const double *x = call->operands[X].values, *dy = call->operands[DY].values;
    double *dx = call->operands[DX].values;

    for (int64_t p = 0; p < planes.count; p++, dx += planes.from_numbers, dy += planes.to_numbers) {
        for (int64_t i = 0; i < planes.to_numbers; i++) {
            struct view view = view_of(&call->window, &planes, i);
            double count = divisor(call, &view);

            if (is_max(call->mode)) {
                int64_t found = find_largest(call, &planes, &view, x + p * planes.from_numbers);

                if (found >= 0)
                    dx[found] += dy[i];
                continue;
            }
            EACH_SEEN(view, planes, at)
            {
                dx[at] += dy[i] / count;
            }
        }
    }
    return CUDA_SUCCESS;
}

/* ---- entry points ---- */

FLYT_SOFT_CUDNN cudnnGetPoolingNdForwardOutputDim(cudnnPoolingDescriptor_t pooling, cudnnTensorDescriptor_t x_desc,
                                                  int dims, int ret_sizes[])
{
    int space[FLYT_SOFT_SPACE];

    FLYT_SOFT_DNN_CHECK(pooling && pooling->dims && x_desc && x_desc->dims == pooling->dims + 2 &&
                        x_desc->dims == dims && ret_sizes);
    flyt_soft_tensor_space(x_desc, space);
    ret_sizes[0] = x_desc->sizes[0];
    ret_sizes[1] = x_desc->sizes[1];
    for (int i = 2; i < dims; i++) {
        int dimension = FLYT_SOFT_SPACE - dims + i;
        int64_t steps = flyt_soft_window_steps(&pooling->window, dimension, space[dimension]);

        FLYT_SOFT_DNN_CHECK(steps > 0);
        ret_sizes[i] = (int)steps;
    }
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetPooling2dForwardOutputDim(cudnnPoolingDescriptor_t pooling, cudnnTensorDescriptor_t x_desc,
                                                  int *n, int *c, int *h, int *w)
{
    int sizes[4], status = cudnnGetPoolingNdForwardOutputDim(pooling, x_desc, 4, sizes);

    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(n && c && h && w);
    *n = sizes[0];
    *c = sizes[1];
    *h = sizes[2];
    *w = sizes[3];
    return CUDNN_STATUS_SUCCESS;
}

/* Whether pooling x comes to y. */
static int check_shapes(cudnnPoolingDescriptor_t pooling, cudnnTensorDescriptor_t x_desc,
                        cudnnTensorDescriptor_t y_desc)
{
    int sizes[CUDNN_DIM_MAX], status;

    FLYT_SOFT_DNN_CHECK(x_desc && y_desc && x_desc->dims == y_desc->dims && x_desc->type == y_desc->type);
    FLYT_SOFT_DNN_SUPPORT(x_desc->dims <= FLYT_SOFT_SPACE + 2);
    status = cudnnGetPoolingNdForwardOutputDim(pooling, x_desc, x_desc->dims, sizes);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(!memcmp(sizes, y_desc->sizes, (size_t)y_desc->dims * sizeof(sizes[0])));
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(x_desc));
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnPoolingForward(cudnnHandle_t handle, cudnnPoolingDescriptor_t pooling, const void *alpha,
                                    cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                    cudnnTensorDescriptor_t y_desc, void *y)
{
    int status = check_shapes(pooling, x_desc, y_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha && beta && x && y);
    const struct flyt_soft_dnn call = {
        .kernel = run_pool,
        .mode = pooling->mode,
        .nan_option = pooling->nan_option,
        .window = pooling->window,
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [Y] = flyt_soft_operand_written(y_desc, y, flyt_soft_dnn_scalar(y_desc, alpha),
                                                     flyt_soft_dnn_scalar(y_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}

FLYT_SOFT_CUDNN cudnnPoolingBackward(cudnnHandle_t handle, cudnnPoolingDescriptor_t pooling, const void *alpha,
                                     cudnnTensorDescriptor_t y_desc, const void *y, cudnnTensorDescriptor_t dy_desc,
                                     const void *dy, cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                     cudnnTensorDescriptor_t dx_desc, void *dx)
{
    int status = check_shapes(pooling, x_desc, y_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    status = status ? status : check_shapes(pooling, dx_desc, dy_desc);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha && beta && x && y && dy && dx && flyt_soft_tensor_is_alike(x_desc, dx_desc) &&
                        x_desc->type == dx_desc->type);
    const struct flyt_soft_dnn call = {
        .kernel = run_pool_backward,
        .mode = pooling->mode,
        .nan_option = pooling->nan_option,
        .window = pooling->window,
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [DY] = flyt_soft_operand_read(dy_desc, dy),
                     [DX] = flyt_soft_operand_written(dx_desc, dx, flyt_soft_dnn_scalar(dx_desc, alpha),
                                                      flyt_soft_dnn_scalar(dx_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}
