/* Descriptors of cuDNN's older interface: they are made around each call, of the values that came with it. */
#include <stdint.h>
#include <string.h>

#include "cpu/server/library/library.h"
#include "flyt_lib_cudnn.h"
#include "rpc/library/cudnn_list.h"

extern const struct flyt_server_value flyt_server_value_cudnn_dropout, flyt_server_value_cudnn_rnn,
    flyt_server_value_cudnn_tensor, flyt_server_value_cudnn_ctc;

/* Calls a setter of the library's by its prototype. What was never set is left as it was made. */
#define FILLER(name)                                                                                                   \
    int flyt_server_fill_cudnn_##name(struct flyt_libcall *call, const void *from, const void *list, void *real)
#define FILL(name)                                                                                                     \
    FILLER(name);                                                                                                      \
    FILLER(name)
#define VALUE(name) const struct flyt_value_##name *value = from
#define SET(setter, types, ...)                                                                                        \
    (find(call, setter) ? ((int(*) types)find(call, setter))(__VA_ARGS__) : call->library->refused)

static void *find(const struct flyt_libcall *call, const char *name)
{
    return flyt_server_library_function(call->library, name);
}

FILL(tensor)
{
    VALUE(tensor);
    (void)list;
    if (!value->dims)
        return call->library->success;
    return SET("cudnnSetTensorNdDescriptor", (void *, int, int, const int *, const int *), real, value->data_type,
               value->dims, value->sizes, value->strides);
}

FILL(filter)
{
    VALUE(filter);
    (void)list;
    if (!value->dims)
        return call->library->success;
    return SET("cudnnSetFilterNdDescriptor", (void *, int, int, int, const int *), real, value->data_type,
               value->format, value->dims, value->sizes);
}

FILL(convolution)
{
    VALUE(convolution);
    (void)list;
    int status = call->library->success;
    if (value->dims)
        status =
            SET("cudnnSetConvolutionNdDescriptor", (void *, int, const int *, const int *, const int *, int, int), real,
                value->dims, value->padding, value->strides, value->dilation, value->mode, value->compute_type);
    if (!status && value->group_count != 1)
        status = SET("cudnnSetConvolutionGroupCount", (void *, int), real, value->group_count);
    if (!status && value->math_type)
        status = SET("cudnnSetConvolutionMathType", (void *, int), real, value->math_type);
    if (!status && value->reorder_type)
        status = SET("cudnnSetConvolutionReorderType", (void *, int), real, value->reorder_type);
    return status;
}

FILL(pooling)
{
    VALUE(pooling);
    (void)list;
    if (!value->dims)
        return call->library->success;
    return SET("cudnnSetPoolingNdDescriptor", (void *, int, int, int, const int *, const int *, const int *), real,
               value->mode, value->nan_option, value->dims, value->window, value->padding, value->strides);
}

FILL(activation)
{
    VALUE(activation);
    (void)list;
    int status = SET("cudnnSetActivationDescriptor", (void *, int, int, double), real, value->mode, value->nan_option,
                     value->coefficient);
    if (!status && value->has_swish_beta)
        status = SET("cudnnSetActivationDescriptorSwishBeta", (void *, double), real, value->swish_beta);
    return status;
}

FILL(lrn)
{
    VALUE(lrn);
    (void)list;
    return SET("cudnnSetLRNDescriptor", (void *, unsigned, double, double, double), real, value->n, value->alpha,
               value->beta, value->k);
}

FILL(op)
{
    VALUE(op);
    (void)list;
    return SET("cudnnSetOpTensorDescriptor", (void *, int, int, int), real, value->op, value->compute_type,
               value->nan_option);
}

FILL(reduce)
{
    VALUE(reduce);
    (void)list;
    return SET("cudnnSetReduceTensorDescriptor", (void *, int, int, int, int, int), real, value->op,
               value->compute_type, value->nan_option, value->indices, value->indices_type);
}

/* With the call's handle. Without states nothing is written to the device, so that setting is as good as restoring. */
FILL(dropout)
{
    VALUE(dropout);
    (void)list;
    if (!value->is_set)
        return call->library->success;
    const char *setter =
        value->is_new || !value->states ? "cudnnSetDropoutDescriptor" : "cudnnRestoreDropoutDescriptor";
    return SET(setter, (void *, void *, float, void *, size_t, unsigned long long), real, call->objects[0]->real,
               value->rate, (void *)(uintptr_t)value->states, value->states_bytes, value->seed);
}

/* The call is the descriptor's making. */
int flyt_server_run_cudnnSetDropoutDescriptor(struct flyt_libcall *call);
int flyt_server_run_cudnnSetDropoutDescriptor(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnSetDropoutDescriptor *sent = (const void *)call->arguments;
    flyt_libcall_value(call, &sent->dropoutDesc, &flyt_server_value_cudnn_dropout);
    return call->status;
}

FILL(rnn)
{
    VALUE(rnn);
    (void)list;
    const struct flyt_value_dropout dropout = {.head = {.magic = flyt_server_value_cudnn_dropout.magic},
                                               .is_set = value->dropout_is_set,
                                               .rate = value->dropout_rate,
                                               .seed = value->dropout_seed,
                                               .states_bytes = value->dropout_states_bytes,
                                               .states = value->dropout_states};
    void *made = flyt_libcall_value(call, &dropout, &flyt_server_value_cudnn_dropout);
    if (call->status)
        return call->status;
    int status =
        SET("cudnnSetRNNDescriptor_v8",
            (void *, int, int, int, int, int, int, int, int, int32_t, int32_t, int32_t, int32_t, void *, uint32_t),
            real, value->algorithm, value->cell_mode, value->bias_mode, value->direction_mode, value->input_mode,
            value->data_type, value->math_precision, value->math_type, value->input_size, value->hidden_size,
            value->projection_size, value->layers, made, value->flags);
    if (!status && value->clip_mode)
        status = SET("cudnnRNNSetClip_v9", (void *, int, double, double), real, value->clip_mode, value->clip_left,
                     value->clip_right);
    return status;
}

FILL(rnndata)
{
    VALUE(rnndata);
    if (value->batch <= 0 || value->list_bytes != (size_t)value->batch * sizeof(int))
        return call->library->invalid;
    uint64_t padding = value->padding;
    return SET("cudnnSetRNNDataDescriptor", (void *, int, int, int, int, int, const int *, void *), real,
               value->data_type, value->layout, value->longest, value->batch, value->vector, list,
               value->has_padding ? &padding : NULL);
}

FILL(spatial)
{
    VALUE(spatial);
    (void)list;
    return SET("cudnnSetSpatialTransformerNdDescriptor", (void *, int, int, int, const int *), real, value->sampler,
               value->data_type, value->dims, value->sizes);
}

/* `setter`: 0 and 1 are the first ones, 8 and 9 those of these versions. */
FILL(ctc)
{
    VALUE(ctc);
    (void)list;
    switch (value->setter) {
    case 9:
        return SET("cudnnSetCTCLossDescriptor_v9", (void *, int, int, int, int), real, value->compute_type,
                   value->normalization, value->gradient_mode, value->longest_label);
    case 8:
        return SET("cudnnSetCTCLossDescriptor_v8", (void *, int, int, int, int), real, value->compute_type,
                   value->normalization, value->gradient_mode, value->longest_label);
    case 1:
        return SET("cudnnSetCTCLossDescriptorEx", (void *, int, int, int), real, value->compute_type,
                   value->normalization, value->gradient_mode);
    default:
        return SET("cudnnSetCTCLossDescriptor", (void *, int), real, value->compute_type);
    }
}

/* ---- where the weights of a recurrent network lie ---- */

/* A stand-in for the weights' address, of which the library tells others by adding to it. */
enum { BASE = 1 << 24 };

static int tell_tensor(struct flyt_libcall *call, void *desc, struct flyt_value_tensor *ret_value)
{
    int (*get)(void *, int, int *, int *, int *, int *) =
        (int (*)(void *, int, int *, int *, int *, int *))find(call, "cudnnGetTensorNdDescriptor");
    return get ? get(desc, 8, &ret_value->data_type, &ret_value->dims, ret_value->sizes, ret_value->strides)
               : call->library->refused;
}

int flyt_server_run_cudnnGetRNNWeightParams(struct flyt_libcall *call);
int flyt_server_run_cudnnGetRNNWeightParams(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnGetRNNWeightParams *sent = (const void *)call->arguments;
    void *rnn = flyt_libcall_value(call, &sent->rnnDesc, &flyt_server_value_cudnn_rnn);
    struct flyt_value_tensor none = {.head = {.magic = flyt_server_value_cudnn_tensor.magic}};
    void *descs[2];
    for (unsigned i = 0; i < 2; i++)
        descs[i] = flyt_libcall_value(call, &none, &flyt_server_value_cudnn_tensor);
    struct flyt_cudnn_rnn_params *params = flyt_libcall_out(call, sent->params_bytes, sizeof *params);
    if (call->status || !params)
        return call->status ? call->status : call->library->invalid;
    void *at[2] = {NULL, NULL};
    int (*get)(void *, void *, int32_t, size_t, const void *, int32_t, void *, void **, void *, void **) = (int (*)(
        void *, void *, int32_t, size_t, const void *, int32_t, void *, void **, void *, void **))call->function;
    int status = get(call->objects[0]->real, rnn, sent->pseudoLayer, sent->weightSpaceSize, (void *)(uintptr_t)BASE,
                     sent->linLayerID, descs[0], &at[0], descs[1], &at[1]);
    for (unsigned i = 0; i < 2 && !status; i++) {
        struct flyt_value_tensor value = none;
        params->is_there[i] = at[i] != NULL;
        params->offset[i] = at[i] ? (uint64_t)(uintptr_t)at[i] - BASE : 0;
        if (at[i])
            status = tell_tensor(call, descs[i], &value);
        params->data_type[i] = value.data_type;
        params->dims[i] = value.dims;
        memcpy(params->sizes[i], value.sizes, sizeof value.sizes);
        memcpy(params->strides[i], value.strides, sizeof value.strides);
    }
    return status;
}

/* ---- CTC loss with labels in host memory ---- */

/* What the calls of the loss share: their descriptors, and the arrays of a batch. */
struct loss {
    void *probs, *gradients, *ctc;
    const int *labels, *label_lengths, *input_lengths;
};

/* The arrays are as long as the tensor of probabilities and the lengths say: that is what the library reads. */
static void take_labels(struct flyt_libcall *call, const struct flyt_value_tensor *probs, const uint32_t *bytes,
                        struct loss *ret)
{
    size_t batch = probs->dims == 3 && probs->sizes[1] > 0 ? (size_t)probs->sizes[1] : 0, count = 0;
    ret->labels = flyt_libcall_in(call, bytes[0], bytes[0]);
    ret->label_lengths = flyt_libcall_in(call, bytes[1], batch * sizeof(int));
    ret->input_lengths = flyt_libcall_in(call, bytes[2], batch * sizeof(int));
    for (size_t i = 0; i < batch && !call->status && ret->label_lengths; i++)
        count += ret->label_lengths[i] > 0 ? (size_t)ret->label_lengths[i] : 0;
    if (!call->status && (!batch || !ret->label_lengths || !ret->input_lengths || count * sizeof(int) != bytes[0]))
        call->status = call->library->invalid;
}

static struct loss take_loss(struct flyt_libcall *call, const struct flyt_value_tensor *probs,
                             const struct flyt_value_tensor *gradients, const struct flyt_value_ctc *ctc,
                             const uint32_t *bytes)
{
    struct loss loss = {.probs = flyt_libcall_value(call, probs, &flyt_server_value_cudnn_tensor),
                        .gradients = flyt_libcall_value(call, gradients, &flyt_server_value_cudnn_tensor),
                        .ctc = flyt_libcall_value(call, ctc, &flyt_server_value_cudnn_ctc)};
    take_labels(call, probs, bytes, &loss);
    return loss;
}

#define TAKE_LOSS(call, sent)                                                                                          \
    take_loss(call, &(sent)->probsDesc, &(sent)->gradientsDesc, &(sent)->ctcLossDesc,                                  \
              (const uint32_t[]){(sent)->labels_bytes, (sent)->labelLengths_bytes, (sent)->inputLengths_bytes})

int flyt_server_run_cudnnCTCLoss(struct flyt_libcall *call);
int flyt_server_run_cudnnCTCLoss(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnCTCLoss *sent = (const void *)call->arguments;
    struct loss loss = TAKE_LOSS(call, sent);
    if (call->status)
        return call->status;
    return ((int (*)(void *, void *, void *, const int *, const int *, const int *, void *, void *, void *, int, void *,
                     void *, size_t))call->function)(
        call->objects[0]->real, loss.probs, (void *)(uintptr_t)sent->probs, loss.labels, loss.label_lengths,
        loss.input_lengths, (void *)(uintptr_t)sent->costs, loss.gradients, (void *)(uintptr_t)sent->gradients,
        sent->algo, loss.ctc, (void *)(uintptr_t)sent->workspace, sent->workSpaceSizeInBytes);
}

int flyt_server_run_cudnnGetCTCLossWorkspaceSize(struct flyt_libcall *call);
int flyt_server_run_cudnnGetCTCLossWorkspaceSize(struct flyt_libcall *call)
{
    const struct flyt_args_cudnnGetCTCLossWorkspaceSize *sent = (const void *)call->arguments;
    struct loss loss = TAKE_LOSS(call, sent);
    size_t *bytes = flyt_libcall_out(call, sent->sizeInBytes_bytes, sizeof *bytes);
    if (call->status)
        return call->status;
    return ((int (*)(void *, void *, void *, const int *, const int *, const int *, int, void *,
                     size_t *))call->function)(call->objects[0]->real, loss.probs, loss.gradients, loss.labels,
                                               loss.label_lengths, loss.input_lengths, sent->algo, loss.ctc, bytes);
}
