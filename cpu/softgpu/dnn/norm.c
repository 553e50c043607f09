/* cuDNN: normalization over a batch, and across channels. */
#include <math.h>

#include "cpu/softgpu/dnn/dnn.h"

/* ---- over a batch ---- */

/* Operands. Means and variances are those of a training's moving averages, or those that it saves. */
enum { X, Y, Z, SCALE, BIAS, RUNNING_MEAN, RUNNING_VARIANCE, MEAN, INVERSE, DY, DX, DZ, NORM_OPERANDS };
enum { DSCALE = RUNNING_MEAN, DBIAS = RUNNING_VARIANCE }; /* backward, in the place of the averages */
_Static_assert((int)NORM_OPERANDS <= (int)FLYT_SOFT_OPERANDS, "a record has room for them");

/* The numbers that share a mean: all of a channel's, or those in the same place of the batch's members. */
struct share {
    int64_t count, groups, inner, outer, stride;
};

/* Group g has number (o * groups + g) * inner + i of x for all o and i. */
static struct share share_of(const struct cudnnTensorStruct *x, int mode)
{
    int64_t of_one = flyt_soft_tensor_count(x) / x->sizes[0];
    struct share share = {.outer = x->sizes[0]};

    share.groups = mode == CUDNN_BATCHNORM_PER_ACTIVATION ? of_one : x->sizes[1];
    share.inner = of_one / share.groups;
    share.count = share.outer * share.inner;
    share.stride = of_one;
    return share;
}

#define EACH_OF_GROUP(share_, group_, at_)                                                                             \
    for (int64_t o_ = 0; o_ < (share_).outer; o_++)                                                                    \
        for (int64_t at_ = o_ * (share_).stride + (group_) * (share_).inner, end_ = at_ + (share_).inner; at_ < end_;  \
             at_++)

static void find_moments(const struct share *share, int64_t group, const double *x, double *ret_mean,
                         double *ret_variance)
{
    double sum = 0, squares = 0;

    EACH_OF_GROUP(*share, group, i)
    {
        sum += x[i];
    }
    *ret_mean = sum / (double)share->count;
    EACH_OF_GROUP(*share, group, i)
    {
        squares += (x[i] - *ret_mean) * (x[i] - *ret_mean);
    }
    *ret_variance = squares / (double)share->count;
}

/* y of one group: normalized, with z added and activated where that is asked for. */
static void normalize(const struct flyt_soft_dnn *call, const struct share *share, int64_t group, double mean,
                      double inverse)
{
    const struct flyt_soft_operand *all = call->operands;

    EACH_OF_GROUP(*share, group, i)
    {
        double y = all[SCALE].values[group] * (all[X].values[i] - mean) * inverse + all[BIAS].values[group];

        if (all[Z].is_read)
            y += all[Z].values[i];
        all[Y].values[i] = flyt_soft_activate(&call->activation, y);
    }
}

static CUresult run_infer(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *all = call->operands;
    struct share share = share_of(&all[X].tensor, call->mode);

    for (int64_t g = 0; g < share.groups; g++)
        normalize(call, &share, g, all[RUNNING_MEAN].values[g],
                  1 / sqrt(all[RUNNING_VARIANCE].values[g] + call->number));
    return CUDA_SUCCESS;
}

/* The moving variance is that of the numbers as a sample; what y is made with, that of the numbers alone. */
static CUresult run_train(struct flyt_soft_dnn *call)
{
    struct flyt_soft_operand *all = call->operands;
    struct share share = share_of(&all[X].tensor, call->mode);
    double unbiased = share.count > 1 ? (double)share.count / (double)(share.count - 1) : 1;

    for (int64_t g = 0; g < share.groups; g++) {
        double mean, variance, inverse;

        find_moments(&share, g, all[X].values, &mean, &variance);
        inverse = 1 / sqrt(variance + call->number);
        normalize(call, &share, g, mean, inverse);
        if (all[RUNNING_MEAN].is_written) {
            all[RUNNING_MEAN].values[g] = mean;
            all[RUNNING_VARIANCE].values[g] = variance * unbiased;
        }
        if (all[MEAN].is_written) {
            all[MEAN].values[g] = mean;
            all[INVERSE].values[g] = inverse;
        }
    }
    return CUDA_SUCCESS;
}

/* What comes back through the activation: nothing where the output was cut off. */
static double gradient(const struct flyt_soft_dnn *call, int64_t i)
{
    bool is_cut = call->activation.mode == CUDNN_ACTIVATION_RELU && !(call->operands[Y].values[i] > 0);

    return is_cut ? 0 : call->operands[DY].values[i];
}

static void normalize_backward(const struct flyt_soft_dnn *call, const struct share *share, int64_t group, double mean,
                               double inverse)
{
    const struct flyt_soft_operand *all = call->operands;
    const double *x = all[X].values;
    double dscale = 0, dbias = 0, count = (double)share->count;

    EACH_OF_GROUP(*share, group, i)
    {
        dscale += gradient(call, i) * (x[i] - mean) * inverse;
        dbias += gradient(call, i);
    }
    EACH_OF_GROUP(*share, group, i)
    {
        double of_one = gradient(call, i) - (dbias + (x[i] - mean) * inverse * dscale) / count;

        all[DX].values[i] = all[SCALE].values[group] * inverse * of_one;
        if (all[DZ].is_written)
            all[DZ].values[i] = gradient(call, i);
    }
    all[DSCALE].values[group] = dscale;
    all[DBIAS].values[group] = dbias;
}

static CUresult run_backward(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *all = call->operands;
    struct share share = share_of(&all[X].tensor, call->mode);

    for (int64_t g = 0; g < share.groups; g++) {
        double mean, inverse;

        if (all[MEAN].is_read) {
            mean = all[MEAN].values[g];
            inverse = all[INVERSE].values[g];
        } else {
            find_moments(&share, g, all[X].values, &mean, &inverse);
            inverse = 1 / sqrt(inverse + call->number);
        }
        normalize_backward(call, &share, g, mean, inverse);
    }
    return CUDA_SUCCESS;
}

/* ---- entry points over a batch ---- */

/* The parameters have a number for each group; those of small floats are floats. */
static int check_parameters(int mode, cudnnTensorDescriptor_t x_desc, cudnnTensorDescriptor_t bn_desc)
{
    FLYT_SOFT_DNN_CHECK((unsigned)mode <= CUDNN_BATCHNORM_SPATIAL_PERSISTENT && x_desc && bn_desc && x_desc->dims &&
                        x_desc->dims == bn_desc->dims && bn_desc->sizes[0] == 1);
    for (int i = 1; i < x_desc->dims; i++)
        FLYT_SOFT_DNN_CHECK(bn_desc->sizes[i] ==
                            (i == 1 || mode == CUDNN_BATCHNORM_PER_ACTIVATION ? x_desc->sizes[i] : 1));
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(x_desc));
    FLYT_SOFT_DNN_CHECK(bn_desc->type == (x_desc->type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnBatchNormalizationForwardInference(cudnnHandle_t handle, int mode, const void *alpha,
                                                        const void *beta, cudnnTensorDescriptor_t x_desc, const void *x,
                                                        cudnnTensorDescriptor_t y_desc, void *y,
                                                        cudnnTensorDescriptor_t bn_desc, const void *scale,
                                                        const void *bias, const void *mean, const void *variance,
                                                        double epsilon)
{
    int status = check_parameters(mode, x_desc, bn_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha && beta && x && y && scale && bias && mean && variance && epsilon >= 0 &&
                        flyt_soft_tensor_is_alike(x_desc, y_desc) && x_desc->type == y_desc->type);
    const struct flyt_soft_dnn call = {
        .kernel = run_infer,
        .mode = mode,
        .number = epsilon,
        .activation = {.mode = CUDNN_ACTIVATION_IDENTITY},
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [SCALE] = flyt_soft_operand_read(bn_desc, scale),
                     [BIAS] = flyt_soft_operand_read(bn_desc, bias),
                     [RUNNING_MEAN] = flyt_soft_operand_read(bn_desc, mean),
                     [RUNNING_VARIANCE] = flyt_soft_operand_read(bn_desc, variance),
                     [Y] = flyt_soft_operand_written(y_desc, y, flyt_soft_dnn_scalar(y_desc, alpha),
                                                     flyt_soft_dnn_scalar(y_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}

/* What is fused: nothing, an activation that cuts off, or that of a sum. */
static int check_fused(int ops, cudnnActivationDescriptor_t activation)
{
    FLYT_SOFT_DNN_CHECK((unsigned)ops <= CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION);
    FLYT_SOFT_DNN_CHECK(ops == CUDNN_BATCHNORM_OPS_BN || activation);
    FLYT_SOFT_DNN_SUPPORT(ops == CUDNN_BATCHNORM_OPS_BN || activation->mode == CUDNN_ACTIVATION_RELU);
    return CUDNN_STATUS_SUCCESS;
}

static struct cudnnActivationStruct fused_activation(int ops, cudnnActivationDescriptor_t activation)
{
    return ops == CUDNN_BATCHNORM_OPS_BN ? (struct cudnnActivationStruct){.mode = CUDNN_ACTIVATION_IDENTITY}
                                         : *activation;
}

FLYT_SOFT_CUDNN
cudnnBatchNormalizationForwardTrainingEx(cudnnHandle_t handle, int mode, int ops, const void *alpha, const void *beta,
                                         cudnnTensorDescriptor_t x_desc, const void *x, cudnnTensorDescriptor_t z_desc,
                                         const void *z, cudnnTensorDescriptor_t y_desc, void *y,
                                         cudnnTensorDescriptor_t bn_desc, const void *scale, const void *bias,
                                         double factor, void *running_mean, void *running_variance, double epsilon,
                                         void *saved_mean, void *saved_inverse, cudnnActivationDescriptor_t activation,
                                         void *workspace, size_t workspace_bytes, void *reserve, size_t reserve_bytes)
{
    bool adds = ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
    int status = check_parameters(mode, x_desc, bn_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    status = status ? status : check_fused(ops, activation);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha && beta && x && y && scale && bias && epsilon >= 0 &&
                        !running_mean == !running_variance && !saved_mean == !saved_inverse);
    FLYT_SOFT_DNN_CHECK(flyt_soft_tensor_is_alike(x_desc, y_desc) && x_desc->type == y_desc->type &&
                        (!adds || (z && flyt_soft_tensor_is_alike(x_desc, z_desc) && x_desc->type == z_desc->type)));
    struct flyt_soft_dnn call = {
        .kernel = run_train,
        .mode = mode,
        .number = epsilon,
        .activation = fused_activation(ops, activation),
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [SCALE] = flyt_soft_operand_read(bn_desc, scale),
                     [BIAS] = flyt_soft_operand_read(bn_desc, bias),
                     [Y] = flyt_soft_operand_written(y_desc, y, flyt_soft_dnn_scalar(y_desc, alpha),
                                                     flyt_soft_dnn_scalar(y_desc, beta))}};
    if (adds)
        call.operands[Z] = flyt_soft_operand_read(z_desc, z);
    if (running_mean) {
        call.operands[RUNNING_MEAN] = flyt_soft_operand_written(bn_desc, running_mean, factor, 1 - factor);
        call.operands[RUNNING_VARIANCE] = flyt_soft_operand_written(bn_desc, running_variance, factor, 1 - factor);
    }
    if (saved_mean) {
        call.operands[MEAN] = flyt_soft_operand_written(bn_desc, saved_mean, 1, 0);
        call.operands[INVERSE] = flyt_soft_operand_written(bn_desc, saved_inverse, 1, 0);
    }
    return flyt_soft_dnn_push(handle, &call, false);
}

FLYT_SOFT_CUDNN cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, int mode, const void *alpha, const void *beta, cudnnTensorDescriptor_t x_desc, const void *x,
    cudnnTensorDescriptor_t y_desc, void *y, cudnnTensorDescriptor_t bn_desc, const void *scale, const void *bias,
    double factor, void *running_mean, void *running_variance, double epsilon, void *saved_mean, void *saved_inverse)
{
    return cudnnBatchNormalizationForwardTrainingEx(
        handle, mode, CUDNN_BATCHNORM_OPS_BN, alpha, beta, x_desc, x, NULL, NULL, y_desc, y, bn_desc, scale, bias,
        factor, running_mean, running_variance, epsilon, saved_mean, saved_inverse, NULL, NULL, 0, NULL, 0);
}

FLYT_SOFT_CUDNN cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, int mode, int ops, const void *alpha_data, const void *beta_data,
    const void *alpha_parameters, const void *beta_parameters, cudnnTensorDescriptor_t x_desc, const void *x,
    cudnnTensorDescriptor_t y_desc, const void *y, cudnnTensorDescriptor_t dy_desc, const void *dy,
    cudnnTensorDescriptor_t dz_desc, void *dz, cudnnTensorDescriptor_t dx_desc, void *dx,
    cudnnTensorDescriptor_t bn_desc, const void *scale, const void *bias, void *dscale, void *dbias, double epsilon,
    const void *saved_mean, const void *saved_inverse, cudnnActivationDescriptor_t activation, void *workspace,
    size_t workspace_bytes, void *reserve, size_t reserve_bytes)
{
    bool is_fused = ops != CUDNN_BATCHNORM_OPS_BN, adds = ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
    int status = check_parameters(mode, x_desc, bn_desc);

    FLYT_SOFT_DNN_HANDLE(handle);
    status = status ? status : check_fused(ops, activation);
    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha_data && beta_data && alpha_parameters && beta_parameters && x && dy && dx && scale &&
                        dscale && dbias && epsilon >= 0 && !saved_mean == !saved_inverse);
    FLYT_SOFT_DNN_CHECK(flyt_soft_tensor_is_alike(x_desc, dx_desc) && flyt_soft_tensor_is_alike(x_desc, dy_desc) &&
                        x_desc->type == dx_desc->type && x_desc->type == dy_desc->type);
    FLYT_SOFT_DNN_CHECK(!is_fused || (y && flyt_soft_tensor_is_alike(x_desc, y_desc) && x_desc->type == y_desc->type));
    FLYT_SOFT_DNN_CHECK(!adds || (dz && flyt_soft_tensor_is_alike(x_desc, dz_desc) && x_desc->type == dz_desc->type));
    double alpha = flyt_soft_dnn_scalar(dx_desc, alpha_parameters),
           beta = flyt_soft_dnn_scalar(dx_desc, beta_parameters);
    struct flyt_soft_dnn call = {
        .kernel = run_backward,
        .mode = mode,
        .number = epsilon,
        .activation = fused_activation(ops, activation),
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [DY] = flyt_soft_operand_read(dy_desc, dy),
                     [SCALE] = flyt_soft_operand_read(bn_desc, scale),
                     [DX] = flyt_soft_operand_written(dx_desc, dx, flyt_soft_dnn_scalar(dx_desc, alpha_data),
                                                      flyt_soft_dnn_scalar(dx_desc, beta_data)),
                     [DSCALE] = flyt_soft_operand_written(bn_desc, dscale, alpha, beta),
                     [DBIAS] = flyt_soft_operand_written(bn_desc, dbias, alpha, beta)}};
    if (is_fused)
        call.operands[Y] = flyt_soft_operand_read(y_desc, y);
    if (adds)
        call.operands[DZ] = flyt_soft_operand_written(dz_desc, dz, 1, 0);
    if (saved_mean) {
        call.operands[MEAN] = flyt_soft_operand_read(bn_desc, saved_mean);
        call.operands[INVERSE] = flyt_soft_operand_read(bn_desc, saved_inverse);
    }
    return flyt_soft_dnn_push(handle, &call, false);
}

FLYT_SOFT_CUDNN cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, int mode, const void *alpha_data, const void *beta_data, const void *alpha_parameters,
    const void *beta_parameters, cudnnTensorDescriptor_t x_desc, const void *x, cudnnTensorDescriptor_t dy_desc,
    const void *dy, cudnnTensorDescriptor_t dx_desc, void *dx, cudnnTensorDescriptor_t bn_desc, const void *scale,
    void *dscale, void *dbias, double epsilon, const void *saved_mean, const void *saved_inverse)
{
    return cudnnBatchNormalizationBackwardEx(handle, mode, CUDNN_BATCHNORM_OPS_BN, alpha_data, beta_data,
                                             alpha_parameters, beta_parameters, x_desc, x, NULL, NULL, dy_desc, dy,
                                             NULL, NULL, dx_desc, dx, bn_desc, scale, NULL, dscale, dbias, epsilon,
                                             saved_mean, saved_inverse, NULL, NULL, 0, NULL, 0);
}

/* Nothing is kept but what the program has anyway. */
static int tell_no_bytes(cudnnHandle_t handle, int mode, int ops, size_t *ret_bytes)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(ret_bytes && (unsigned)mode <= CUDNN_BATCHNORM_SPATIAL_PERSISTENT &&
                        (unsigned)ops <= CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION);
    *ret_bytes = 0;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, int mode, int ops, cudnnTensorDescriptor_t x_desc, cudnnTensorDescriptor_t z_desc,
    cudnnTensorDescriptor_t y_desc, cudnnTensorDescriptor_t bn_desc, cudnnActivationDescriptor_t activation,
    size_t *ret_bytes)
{
    return tell_no_bytes(handle, mode, ops, ret_bytes);
}

FLYT_SOFT_CUDNN cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, int mode, int ops, cudnnTensorDescriptor_t x_desc, cudnnTensorDescriptor_t y_desc,
    cudnnTensorDescriptor_t dy_desc, cudnnTensorDescriptor_t dz_desc, cudnnTensorDescriptor_t dx_desc,
    cudnnTensorDescriptor_t bn_desc, cudnnActivationDescriptor_t activation, size_t *ret_bytes)
{
    return tell_no_bytes(handle, mode, ops, ret_bytes);
}

FLYT_SOFT_CUDNN cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t handle, int mode, int ops,
                                                                     cudnnActivationDescriptor_t activation,
                                                                     cudnnTensorDescriptor_t x_desc, size_t *ret_bytes)
{
    return tell_no_bytes(handle, mode, ops, ret_bytes);
}

/* ---- across channels ---- */

/* The channels that channel c is normalized by: [*ret_begin, *ret_end). */
static void find_neighbours(const struct flyt_soft_dnn *call, int c, int channels, int *ret_begin, int *ret_end)
{
    int behind = ((int)call->lrn.n - 1) / 2, ahead = (int)call->lrn.n - behind - 1;

    *ret_begin = c < behind ? 0 : c - behind;
    *ret_end = c + ahead >= channels ? channels : c + ahead + 1;
}

/* What number c of a column of channels is divided by, before the power; the column's numbers are `step` apart. */
static double find_divisor(const struct flyt_soft_dnn *call, const double *x, int c, int channels, int64_t step)
{
    double sum = 0;
    int begin, end;

    find_neighbours(call, c, channels, &begin, &end);
    for (int i = begin; i < end; i++)
        sum += x[i * step] * x[i * step];
    return call->lrn.k + call->lrn.alpha / call->lrn.n * sum;
}

/* Calls `each` for every column of channels, with where it begins. */
static void each_column(struct flyt_soft_dnn *call, const struct cudnnTensorStruct *t,
                        void (*each)(struct flyt_soft_dnn *call, int64_t first, int channels, int64_t step))
{
    int64_t of_one = flyt_soft_tensor_count(t) / t->sizes[0], step = of_one / t->sizes[1];

    for (int64_t n = 0; n < t->sizes[0]; n++)
        for (int64_t i = 0; i < step; i++)
            each(call, n * of_one + i, t->sizes[1], step);
}

static void lrn_column(struct flyt_soft_dnn *call, int64_t first, int channels, int64_t step)
{
    const double *x = call->operands[X].values + first;

    for (int c = 0; c < channels; c++)
        call->operands[Y].values[first + c * step] =
            x[c * step] * pow(find_divisor(call, x, c, channels, step), -call->lrn.beta);
}

/* A number is in the divisors of all channels that have it as a neighbour. */
static void lrn_column_backward(struct flyt_soft_dnn *call, int64_t first, int channels, int64_t step)
{
    const double *x = call->operands[X].values + first, *dy = call->operands[DY].values + first;
    double *dx = call->operands[DX].values + first, b = call->lrn.beta;

    for (int c = 0; c < channels; c++) {
        double divisor = find_divisor(call, x, c, channels, step),
               common = 2 * b * call->lrn.alpha / call->lrn.n * dy[c * step] * x[c * step] * pow(divisor, -b - 1);
        int begin, end;

        dx[c * step] += dy[c * step] * pow(divisor, -b);
        find_neighbours(call, c, channels, &begin, &end);
        for (int i = begin; i < end; i++)
            dx[i * step] -= common * x[i * step];
    }
}

static CUresult run_lrn(struct flyt_soft_dnn *call)
{
    each_column(call, &call->operands[Y].tensor, lrn_column);
    return CUDA_SUCCESS;
}

static CUresult run_lrn_backward(struct flyt_soft_dnn *call)
{
    each_column(call, &call->operands[DX].tensor, lrn_column_backward);
    return CUDA_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnLRNCrossChannelForward(cudnnHandle_t handle, cudnnLRNDescriptor_t lrn, int mode, const void *alpha,
                                            cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                            cudnnTensorDescriptor_t y_desc, void *y)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(lrn && lrn->n && !mode && alpha && beta && x && y &&
                        flyt_soft_tensor_is_alike(x_desc, y_desc) && x_desc->type == y_desc->type);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(x_desc));
    const struct flyt_soft_dnn call = {
        .kernel = run_lrn,
        .lrn = *lrn,
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [Y] = flyt_soft_operand_written(y_desc, y, flyt_soft_dnn_scalar(y_desc, alpha),
                                                     flyt_soft_dnn_scalar(y_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}

FLYT_SOFT_CUDNN cudnnLRNCrossChannelBackward(cudnnHandle_t handle, cudnnLRNDescriptor_t lrn, int mode,
                                             const void *alpha, cudnnTensorDescriptor_t y_desc, const void *y,
                                             cudnnTensorDescriptor_t dy_desc, const void *dy,
                                             cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
                                             cudnnTensorDescriptor_t dx_desc, void *dx)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(lrn && lrn->n && !mode && alpha && beta && x && y && dy && dx &&
                        flyt_soft_tensor_is_alike(x_desc, dx_desc) && flyt_soft_tensor_is_alike(x_desc, dy_desc) &&
                        flyt_soft_tensor_is_alike(x_desc, y_desc));
    FLYT_SOFT_DNN_CHECK(x_desc->type == dx_desc->type && x_desc->type == dy_desc->type);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(x_desc));
    const struct flyt_soft_dnn call = {
        .kernel = run_lrn_backward,
        .lrn = *lrn,
        .operands = {[X] = flyt_soft_operand_read(x_desc, x),
                     [DY] = flyt_soft_operand_read(dy_desc, dy),
                     [DX] = flyt_soft_operand_written(dx_desc, dx, flyt_soft_dnn_scalar(dx_desc, alpha),
                                                      flyt_soft_dnn_scalar(dx_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}
