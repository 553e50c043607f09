/* cuDNN: copies, sums, scalings and reductions of tensors. */
#include <math.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/dnn/dnn.h"

enum { A, B, C }; /* operands: C is written */

static double *values_of(struct flyt_soft_dnn *call, int operand)
{
    return call->operands[operand].values;
}

/* ---- element by element ---- */

static CUresult run_copy(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *a = &call->operands[A], *c = &call->operands[C];

    for (int64_t i = 0; i < flyt_soft_tensor_count(&c->tensor); i++)
        c->values[i] = a->values[flyt_soft_tensor_spread(&a->tensor, &c->tensor, i)];
    return CUDA_SUCCESS;
}

/* c = alpha a + beta c, where a is spread over c. */
static int push_copy(cudnnHandle_t handle, cudnnTensorDescriptor_t a_desc, const void *a,
                     cudnnTensorDescriptor_t c_desc, void *c, double alpha, double beta)
{
    const struct flyt_soft_dnn call = {
        .kernel = run_copy,
        .operands = {[A] = flyt_soft_operand_read(a_desc, a), [C] = flyt_soft_operand_written(c_desc, c, alpha, beta)}};

    return flyt_soft_dnn_push(handle, &call, false);
}

FLYT_SOFT_CUDNN cudnnTransformTensor(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_desc,
                                     const void *x, const void *beta, cudnnTensorDescriptor_t y_desc, void *y)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(alpha && beta && x && y && flyt_soft_tensor_is_alike(x_desc, y_desc) &&
                        x_desc->type == y_desc->type);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(x_desc));
    return push_copy(handle, x_desc, x, y_desc, y, flyt_soft_dnn_scalar(y_desc, alpha),
                     flyt_soft_dnn_scalar(y_desc, beta));
}

FLYT_SOFT_CUDNN cudnnAddTensor(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t a_desc, const void *a,
                               const void *beta, cudnnTensorDescriptor_t c_desc, void *c)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(alpha && beta && a && c && a_desc && c_desc && a_desc->dims && c_desc->dims);
    FLYT_SOFT_DNN_CHECK(a_desc->type == c_desc->type && flyt_soft_tensor_spreads(a_desc, c_desc));
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(c_desc));
    return push_copy(handle, a_desc, a, c_desc, c, flyt_soft_dnn_scalar(c_desc, alpha),
                     flyt_soft_dnn_scalar(c_desc, beta));
}

FLYT_SOFT_CUDNN cudnnScaleTensor(cudnnHandle_t handle, cudnnTensorDescriptor_t y_desc, void *y, const void *alpha)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(y && alpha && y_desc && y_desc->dims);
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(y_desc));
    return push_copy(handle, y_desc, y, y_desc, y, flyt_soft_dnn_scalar(y_desc, alpha), 0);
}

/* ---- two tensors ---- */

/* Of two numbers of which one is none, the other, or none where that is asked for. */
static double lesser(double a, double b, int nan_option)
{
    return nan_option == CUDNN_PROPAGATE_NAN && (isnan(a) || isnan(b)) ? NAN : fmin(a, b);
}

static double combine(int op, int nan_option, double a, double b)
{
    switch (op) {
    case CUDNN_OP_TENSOR_ADD:
        return a + b;
    case CUDNN_OP_TENSOR_MUL:
        return a * b;
    case CUDNN_OP_TENSOR_MIN:
        return lesser(a, b, nan_option);
    case CUDNN_OP_TENSOR_MAX:
        return -lesser(-a, -b, nan_option);
    case CUDNN_OP_TENSOR_SQRT:
        return sqrt(a);
    default: /* CUDNN_OP_TENSOR_NOT */
        return 1 - a;
    }
}

static CUresult run_combine(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *b = &call->operands[B], *c = &call->operands[C];
    const double *from = values_of(call, A);

    for (int64_t i = 0; i < flyt_soft_tensor_count(&c->tensor); i++) {
        double other = b->is_read ? b->values[flyt_soft_tensor_spread(&b->tensor, &c->tensor, i)] : 0;

        c->values[i] = combine(call->mode, call->nan_option, call->factors[0] * from[i], call->factors[1] * other);
    }
    return CUDA_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnOpTensor(cudnnHandle_t handle, cudnnOpTensorDescriptor_t op, const void *alpha1,
                              cudnnTensorDescriptor_t a_desc, const void *a, const void *alpha2,
                              cudnnTensorDescriptor_t b_desc, const void *b, const void *beta,
                              cudnnTensorDescriptor_t c_desc, void *c)
{
    bool is_single = op && (op->op == CUDNN_OP_TENSOR_SQRT || op->op == CUDNN_OP_TENSOR_NOT);

    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(op && alpha1 && beta && a && c && flyt_soft_tensor_is_alike(a_desc, c_desc));
    FLYT_SOFT_DNN_CHECK(is_single ||
                        (alpha2 && b && b_desc && b_desc->dims && flyt_soft_tensor_spreads(b_desc, c_desc)));
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(a_desc) && flyt_soft_dnn_is_usable(c_desc) &&
                          (is_single || flyt_soft_dnn_is_usable(b_desc)));
    struct flyt_soft_dnn call = {
        .kernel = run_combine,
        .mode = op->op,
        .nan_option = op->nan_option,
        .factors = {flyt_soft_dnn_scalar(c_desc, alpha1), is_single ? 0 : flyt_soft_dnn_scalar(c_desc, alpha2)},
        .operands = {[A] = flyt_soft_operand_read(a_desc, a),
                     [C] = flyt_soft_operand_written(c_desc, c, 1, flyt_soft_dnn_scalar(c_desc, beta))}};
    if (!is_single)
        call.operands[B] = flyt_soft_operand_read(b_desc, b);
    return flyt_soft_dnn_push(handle, &call, false);
}

/* ---- reductions ---- */

static bool has_indices(const struct cudnnReduceTensorStruct *reduce)
{
    bool finds_one = reduce->op == CUDNN_REDUCE_TENSOR_MIN || reduce->op == CUDNN_REDUCE_TENSOR_MAX ||
                     reduce->op == CUDNN_REDUCE_TENSOR_AMAX;

    return finds_one && reduce->indices == CUDNN_REDUCE_TENSOR_FLATTENED_INDICES;
}

static double neutral(int op)
{
    switch (op) {
    case CUDNN_REDUCE_TENSOR_MUL:
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
        return 1;
    case CUDNN_REDUCE_TENSOR_MIN:
        return INFINITY;
    case CUDNN_REDUCE_TENSOR_MAX:
        return -INFINITY;
    default:
        return 0;
    }
}

static double accumulate(int op, int nan_option, double sum, double x)
{
    switch (op) {
    case CUDNN_REDUCE_TENSOR_MUL:
        return sum * x;
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
        return x == 0 ? sum : sum * x;
    case CUDNN_REDUCE_TENSOR_MIN:
        return lesser(sum, x, nan_option);
    case CUDNN_REDUCE_TENSOR_MAX:
        return -lesser(-sum, -x, nan_option);
    case CUDNN_REDUCE_TENSOR_AMAX:
        return -lesser(-sum, -fabs(x), nan_option);
    case CUDNN_REDUCE_TENSOR_NORM1:
        return sum + fabs(x);
    case CUDNN_REDUCE_TENSOR_NORM2:
        return sum + x * x;
    default: /* CUDNN_REDUCE_TENSOR_ADD, CUDNN_REDUCE_TENSOR_AVG */
        return sum + x;
    }
}

/* Of number `index` of `large`, its place among those that become one number of `small`. */
static int64_t place_within(const struct cudnnTensorStruct *small, const struct cudnnTensorStruct *large, int64_t index)
{
    int64_t found = 0, step = 1;

    for (int i = large->dims - 1; i >= 0; i--) {
        int64_t place = index % large->sizes[i];

        index /= large->sizes[i];
        if (small->sizes[i] == large->sizes[i])
            continue;
        found += place * step;
        step *= large->sizes[i];
    }
    return found;
}

static CUresult run_reduce(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *a = &call->operands[A], *c = &call->operands[C];
    int64_t from = flyt_soft_tensor_count(&a->tensor), to = flyt_soft_tensor_count(&c->tensor);
    uint32_t *indices = call->indices;

    if (indices && !flyt_soft_work_reaches(indices, (uint64_t)to * sizeof(*indices)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (indices)
        memset(indices, 0, (size_t)to * sizeof(*indices));
    for (int64_t i = 0; i < to; i++)
        c->values[i] = neutral(call->mode);
    for (int64_t i = 0; i < from; i++) {
        int64_t at = flyt_soft_tensor_spread(&c->tensor, &a->tensor, i);
        double sum = accumulate(call->mode, call->nan_option, c->values[at], a->values[i]);

        if (indices && sum != c->values[at])
            indices[at] = (uint32_t)place_within(&c->tensor, &a->tensor, i);
        c->values[at] = sum;
    }
    for (int64_t i = 0; i < to; i++) {
        if (call->mode == CUDNN_REDUCE_TENSOR_AVG)
            c->values[i] /= (double)(from / to);
        if (call->mode == CUDNN_REDUCE_TENSOR_NORM2)
            c->values[i] = sqrt(c->values[i]);
    }
    return CUDA_SUCCESS;
}

static int check_reduction(cudnnHandle_t handle, cudnnReduceTensorDescriptor_t reduce, cudnnTensorDescriptor_t a_desc,
                           cudnnTensorDescriptor_t c_desc)
{
    FLYT_SOFT_DNN_HANDLE(handle);
    FLYT_SOFT_DNN_CHECK(reduce && a_desc && c_desc && a_desc->dims && c_desc->dims);
    FLYT_SOFT_DNN_CHECK(flyt_soft_tensor_spreads(c_desc, a_desc));
    FLYT_SOFT_DNN_SUPPORT(flyt_soft_dnn_is_usable(a_desc) && flyt_soft_dnn_is_usable(c_desc));
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetReductionIndicesSize(cudnnHandle_t handle, cudnnReduceTensorDescriptor_t reduce,
                                             cudnnTensorDescriptor_t a_desc, cudnnTensorDescriptor_t c_desc,
                                             size_t *ret_bytes)
{
    int status = check_reduction(handle, reduce, a_desc, c_desc);

    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(ret_bytes);
    *ret_bytes = has_indices(reduce) ? (size_t)flyt_soft_tensor_count(c_desc) * sizeof(uint32_t) : 0;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnGetReductionWorkspaceSize(cudnnHandle_t handle, cudnnReduceTensorDescriptor_t reduce,
                                               cudnnTensorDescriptor_t a_desc, cudnnTensorDescriptor_t c_desc,
                                               size_t *ret_bytes)
{
    int status = check_reduction(handle, reduce, a_desc, c_desc);

    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(ret_bytes);
    *ret_bytes = 0;
    return CUDNN_STATUS_SUCCESS;
}

FLYT_SOFT_CUDNN cudnnReduceTensor(cudnnHandle_t handle, cudnnReduceTensorDescriptor_t reduce, void *indices,
                                  size_t indices_bytes, void *workspace, size_t workspace_bytes, const void *alpha,
                                  cudnnTensorDescriptor_t a_desc, const void *a, const void *beta,
                                  cudnnTensorDescriptor_t c_desc, void *c)
{
    size_t needed;
    int status = cudnnGetReductionIndicesSize(handle, reduce, a_desc, c_desc, &needed);

    if (status)
        return status;
    FLYT_SOFT_DNN_CHECK(alpha && beta && a && c && (!needed || (indices && indices_bytes >= needed)));
    const struct flyt_soft_dnn call = {
        .kernel = run_reduce,
        .mode = reduce->op,
        .nan_option = reduce->nan_option,
        .indices = needed ? indices : NULL,
        .operands = {[A] = flyt_soft_operand_read(a_desc, a),
                     [C] = flyt_soft_operand_written(c_desc, c, flyt_soft_dnn_scalar(c_desc, alpha),
                                                     flyt_soft_dnn_scalar(c_desc, beta))}};
    return flyt_soft_dnn_push(handle, &call, false);
}
