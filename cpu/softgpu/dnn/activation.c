/* cuDNN: activations, softmax and dropout. */
#include <math.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/dnn/dnn.h"

enum { X, Y, DY, DX }; /* operands */

/* ---- activations ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* What is below 0, and no number where those are not passed on, becomes 0. */
static double rectify(const struct cudnnActivationStruct *activation, double x)
{
    return isnan(x) && activation->nan_option == CUDNN_PROPAGATE_NAN ? x : x > 0 ? x : 0;
}

double flyt_soft_activate(const struct cudnnActivationStruct *activation, double x)
{
    switch (activation->mode) {
    case CUDNN_ACTIVATION_SIGMOID:
        return sigmoid(x);
    case CUDNN_ACTIVATION_RELU:
        return rectify(activation, x);
    case CUDNN_ACTIVATION_TANH:
        return tanh(x);
    case CUDNN_ACTIVATION_CLIPPED_RELU:
        x = rectify(activation, x);
        return x > activation->coefficient ? activation->coefficient : x;
    case CUDNN_ACTIVATION_ELU:
        return x > 0 ? x : activation->coefficient * expm1(x);
    case CUDNN_ACTIVATION_SWISH:
        return x * sigmoid(activation->swish_beta * x);
    default: /* CUDNN_ACTIVATION_IDENTITY */
        return x;
    }
}

/* The derivative at x, where the activation is y. */
static double slope(const struct cudnnActivationStruct *activation, double x, double y)
{
    double s;

    switch (activation->mode) {
    case CUDNN_ACTIVATION_SIGMOID:
        return y * (1 - y);
    case CUDNN_ACTIVATION_RELU:
        return x > 0;
    case CUDNN_ACTIVATION_TANH:
        return 1 - y * y;
    case CUDNN_ACTIVATION_CLIPPED_RELU:
        return x > 0 && x < activation->coefficient;
    case CUDNN_ACTIVATION_ELU:
        return x > 0 ? 1 : y + activation->coefficient;
    default: /* CUDNN_ACTIVATION_SWISH */
        s = sigmoid(activation->swish_beta * x);
        return s + activation->swish_beta * x * s * (1 - s);
    }
}

static CUresult run_activate(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *x = &call->operands[X], *y = &call->operands[Y];

    for (int64_t i = 0; i < flyt_soft_tensor_count(&y->tensor); i++)
        y->values[i] = flyt_soft_activate(&call->activation, x->values[i]);
    return CUDA_SUCCESS;
}

static CUresult run_activate_backward(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *dx = &call->operands[DX];

    for (int64_t i = 0; i < flyt_soft_tensor_count(&dx->tensor); i++)
        dx->values[i] = call->operands[DY].values[i] *
                        slope(&call->activation, call->operands[X].values[i], call->operands[Y].values[i]);
    return CUDA_SUCCESS;
}

/* Two tensors of the same sizes and type. */
static int check_pair(cudnnTensorDescriptor_t a, cudnnTensorDescriptor_t b)
{
    FLYT_SOFT_DNN_CHECK(flyt_soft_tensor_is_alike(a, b) && a->type == b->type);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(a));
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation, const void *alpha,
                                       cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                       cudnnTensorDescriptor_t y_desc, void *y)
{
    int status = check_pair(x_desc, y_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(activation && alpha && beta && x && y && activation->mode != CUDNN_ACTIVATION_IDENTITY);
    const struct flyt_soft_dnn call = {
        .kernel = run_activate,
        .activation = *activation,
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [Y] = flyt_soft_operand_written(y_desc, y, flyt_soft_dnn_scalar(y_desc, alpha),
                                                     flyt_soft_dnn_scalar(y_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}

FLYT_SOFT_CUDNN cudnnActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation, const void *alpha,
                                        cudnnTensorDescriptor_t y_desc, const void *y, cudnnTensorDescriptor_t dy_desc,
                                        const void *dy, cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                        cudnnTensorDescriptor_t dx_desc, void *dx)
{
    int status = check_pair(y_desc, dx_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    status = status ? status : check_pair(x_desc, dx_desc);
    status = status ? status : check_pair(dy_desc, dx_desc);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(activation && alpha && beta && x && y && dy && dx &&
                        activation->mode != CUDNN_ACTIVATION_IDENTITY);
    const struct flyt_soft_dnn call = {
        .kernel = run_activate_backward,
        .activation = *activation,
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [Y] = flyt_soft_operand_read(y_desc, y),
                     [DY] = flyt_soft_operand_read(dy_desc, dy),
                     [DX] = flyt_soft_operand_written(dx_desc, dx, flyt_soft_dnn_scalar(dx_desc, alpha),
                                                      flyt_soft_dnn_scalar(dx_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}

/* ---- softmax ---- */

/* The numbers that one softmax is over: `count` of them, `step` apart, from number `first`. */
struct line {
    int64_t first, step, count;
};

static int64_t count_lines(const struct flyt_soft_dnn *call, const struct cudnnTensorStruct *t)
{
    return flyt_soft_tensor_count(t) /
           (call->mode == CUDNN_SOFTMAX_MODE_CHANNEL ? t->sizes[1] : flyt_soft_tensor_count(t) / t->sizes[0]);
}

static struct line find_line(const struct flyt_soft_dnn *call, const struct cudnnTensorStruct *t, int64_t index)
{
    int64_t of_one = flyt_soft_tensor_count(t) / t->sizes[0], space = of_one / t->sizes[1];

    if (call->mode == CUDNN_SOFTMAX_MODE_INSTANCE)
        return (struct line){index * of_one, 1, of_one};
    return (struct line){index / space * of_one + index % space, space, t->sizes[1]};
}

static void softmax(int algo, const double *x, double *y, struct line line)
{
    double largest = algo == CUDNN_SOFTMAX_FAST ? 0 : -INFINITY, sum = 0;

    for (int64_t i = 0; i < line.count && algo != CUDNN_SOFTMAX_FAST; i++)
        largest = fmax(largest, x[line.first + i * line.step]);
    for (int64_t i = 0; i < line.count; i++)
        sum += exp(x[line.first + i * line.step] - largest);
    for (int64_t i = 0; i < line.count; i++) {
        double shifted = x[line.first + i * line.step] - largest;

        y[line.first + i * line.step] = algo == CUDNN_SOFTMAX_LOG ? shifted - log(sum) : exp(shifted) / sum;
    }
}

static void softmax_backward(int algo, const double *y, const double *dy, double *dx, struct line line)
{
    double sum = 0;

    for (int64_t i = 0; i < line.count; i++) {
        int64_t at = line.first + i * line.step;

        sum += algo == CUDNN_SOFTMAX_LOG ? dy[at] : dy[at] * y[at];
    }
    for (int64_t i = 0; i < line.count; i++) {
        int64_t at = line.first + i * line.step;

        dx[at] = algo == CUDNN_SOFTMAX_LOG ? dy[at] - exp(y[at]) * sum : y[at] * (dy[at] - sum);
    }
}

static CUresult run_softmax(struct flyt_soft_dnn *call)
{
    const struct cudnnTensorStruct *t = &call->operands[Y].tensor;

    for (int64_t i = 0; i < count_lines(call, t); i++)
        softmax(call->algo, call->operands[X].values, call->operands[Y].values, find_line(call, t, i));
    return CUDA_SUCCESS;
}

static CUresult run_softmax_backward(struct flyt_soft_dnn *call)
{
    const struct cudnnTensorStruct *t = &call->operands[DX].tensor;

    for (int64_t i = 0; i < count_lines(call, t); i++)
        softmax_backward(call->algo, call->operands[Y].values, call->operands[DY].values, call->operands[DX].values,
                         find_line(call, t, i));
    return CUDA_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSoftmaxForward(cudnnHandle_t handle, int algo, int mode, const void *alpha,
                                    cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                    cudnnTensorDescriptor_t y_desc, void *y)
{
    int status = check_pair(x_desc, y_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha && beta && x && y && (unsigned)algo <= CUDNN_SOFTMAX_LOG &&
                        (unsigned)mode <= CUDNN_SOFTMAX_MODE_CHANNEL);
    const struct flyt_soft_dnn call = {
        .kernel = run_softmax,
        .algo = algo,
        .mode = mode,
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [Y] = flyt_soft_operand_written(y_desc, y, flyt_soft_dnn_scalar(y_desc, alpha),
                                                     flyt_soft_dnn_scalar(y_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}

FLYT_SOFT_CUDNN cudnnSoftmaxBackward(cudnnHandle_t handle, int algo, int mode, const void *alpha,
                                     cudnnTensorDescriptor_t y_desc, const void *y, cudnnTensorDescriptor_t dy_desc,
                                     const void *dy, const void *beta, cudnnTensorDescriptor_t dx_desc, void *dx)
{
    int status = check_pair(y_desc, dx_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    status = status ? status : check_pair(dy_desc, dx_desc);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha && beta && y && dy && dx && (unsigned)algo <= CUDNN_SOFTMAX_LOG &&
                        (unsigned)mode <= CUDNN_SOFTMAX_MODE_CHANNEL);
    const struct flyt_soft_dnn call = {
        .kernel = run_softmax_backward,
        .algo = algo,
        .mode = mode,
        .operands = {[Y] = flyt_soft_operand_read(y_desc, y),
                     [DY] = flyt_soft_operand_read(dy_desc, dy),
                     [DX] = flyt_soft_operand_written(dx_desc, dx, flyt_soft_dnn_scalar(dx_desc, alpha),
                                                      flyt_soft_dnn_scalar(dx_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}

/* ---- dropout ---- */

/* What the states in device memory are: whoever moves the memory moves the sequence. */
struct states {
    uint64_t seed, drawn;
};

/* Sebastiano Vigna's splitmix64, which is a hash of how many numbers were drawn before. */
static double uniform(const struct states *states, uint64_t index)
{
    uint64_t x = states->seed + (states->drawn + index + 1) * 0x9E3779B97F4A7C15u;

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

static CUresult run_seed(struct flyt_soft_dnn *call)
{
    const struct states states = {.seed = call->seed};

    if (!flyt_soft_work_reaches(call->states, sizeof(states)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    memcpy(call->states, &states, sizeof(states));
    return CUDA_SUCCESS;
}

/* A byte of the reserve for each number: whether it stays. */
static CUresult run_drop(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *x = &call->operands[X], *y = &call->operands[Y];
    int64_t count = flyt_soft_tensor_count(&y->tensor);
    unsigned char *stays = call->reserve;
    struct states states;

    if (!flyt_soft_work_reaches(call->states, sizeof(states)) || !flyt_soft_work_reaches(stays, (uint64_t)count))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    memcpy(&states, call->states, sizeof(states));
    for (int64_t i = 0; i < count; i++) {
        stays[i] = uniform(&states, (uint64_t)i) >= call->number;
        y->values[i] = stays[i] ? x->values[i] / (1 - call->number) : 0;
    }
    states.drawn += (uint64_t)count;
    memcpy(call->states, &states, sizeof(states));
    return CUDA_SUCCESS;
}

static CUresult run_drop_backward(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *dy = &call->operands[DY], *dx = &call->operands[DX];
    int64_t count = flyt_soft_tensor_count(&dx->tensor);
    const unsigned char *stays = call->reserve;

    if (!flyt_soft_work_reaches(stays, (uint64_t)count))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int64_t i = 0; i < count; i++)
        dx->values[i] = stays[i] ? dy->values[i] / (1 - call->number) : 0;
    return CUDA_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *ret_bytes)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(ret_bytes);
    *ret_bytes = sizeof(struct states);
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnDropoutGetReserveSpaceSize(cudnnTensorDescriptor_t x_desc, size_t *ret_bytes)
{
    FLYT_SOFT_DNN_CHECK(x_desc && x_desc->dims && ret_bytes);
    *ret_bytes = (size_t)flyt_soft_tensor_count(x_desc);
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float rate,
                                              void *states, size_t states_bytes, unsigned long long seed)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(dropout && rate >= 0 && rate <= 1 && (!states || states_bytes >= sizeof(struct states)));
    *dropout = (struct cudnnDropoutStruct){.rate = rate, .states = states, .seed = seed};
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float rate,
                                          void *states, size_t states_bytes, unsigned long long seed)
{
    int status = cudnnRestoreDropoutDescriptor(dropout, handle, rate, states, states_bytes, seed);
    const struct flyt_soft_dnn call = {.kernel = run_seed, .states = states, .seed = seed};

    return status || !states ? status : flyt_soft_dnn_push(handle, &call, false);
}

FLYT_SOFT_CUDNN cudnnDropoutForward(cudnnHandle_t handle, cudnnDropoutDescriptor_t dropout,
                                    cudnnTensorDescriptor_t x_desc, const void *x, cudnnTensorDescriptor_t y_desc,
                                    void *y, void *reserve, size_t reserve_bytes)
{
    int status = check_pair(x_desc, y_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(dropout && dropout->states && x && y && reserve &&
                        reserve_bytes >= (size_t)flyt_soft_tensor_count(x_desc));
    const struct flyt_soft_dnn call = {
        .kernel = run_drop,
        .number = dropout->rate,
        .states = dropout->states,
        .reserve = reserve,
        .operands = {[X] = flyt_soft_operand_read(x_desc, x), [Y] = flyt_soft_operand_written(y_desc, y, 1, 0)}};
    return flyt_soft_dnn_push(handle, &call, false);
}

FLYT_SOFT_CUDNN cudnnDropoutBackward(cudnnHandle_t handle, cudnnDropoutDescriptor_t dropout,
                                     cudnnTensorDescriptor_t dy_desc, const void *dy, cudnnTensorDescriptor_t dx_desc,
                                     void *dx, void *reserve, size_t reserve_bytes)
{
    int status = check_pair(dy_desc, dx_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(dropout && dy && dx && reserve && reserve_bytes >= (size_t)flyt_soft_tensor_count(dx_desc));
    const struct flyt_soft_dnn call = {
        .kernel = run_drop_backward,
        .number = dropout->rate,
        .reserve = reserve,
        .operands = {[DY] = flyt_soft_operand_read(dy_desc, dy), [DX] = flyt_soft_operand_written(dx_desc, dx, 1, 0)}};
    return flyt_soft_dnn_push(handle, &call, false);
}
