/* Descriptors of cuDNN's older interface whose setters and getters are no row: they are kept in the client. */
#include <string.h>
#include "cpu/client/library/library_call.h"
#include "flyt_lib_cudnn.h"
#include "rpc/library/cudnn_list.h"

extern const struct flyt_lib flyt_lib_cudnn;
extern const struct flyt_lib_kind flyt_lib_kind_cudnn_cudnn;
extern const struct flyt_lib_row flyt_lib_row_cudnnSetDropoutDescriptor, flyt_lib_row_cudnnGetRNNWeightParams,
    flyt_lib_row_cudnnCTCLoss, flyt_lib_row_cudnnGetCTCLossWorkspaceSize;
extern const struct flyt_lib_value_kind flyt_lib_value_cudnn_tensor, flyt_lib_value_cudnn_filter,
    flyt_lib_value_cudnn_convolution, flyt_lib_value_cudnn_pooling, flyt_lib_value_cudnn_activation,
    flyt_lib_value_cudnn_dropout, flyt_lib_value_cudnn_rnn, flyt_lib_value_cudnn_rnndata, flyt_lib_value_cudnn_ctc;

#define VALID(name, desc) struct flyt_value_##name *value = flyt_lib_valid(&flyt_lib_value_cudnn_##name, desc)

enum { INVALID = 2000, SUCCESS = 0, NHWC = 1, VECT_C = 2, DIMS_MAX = 8 };

/* ---- tensors ---- */

static int set_tensor(void *desc, int data_type, int dims, const int *sizes, const int *strides)
{
    VALID(tensor, desc);
    if (!value)
        return INVALID;
    value->data_type = data_type;
    value->dims = dims;
    memset(value->sizes, 0, sizeof value->sizes);
    memset(value->strides, 0, sizeof value->strides);
    memcpy(value->sizes, sizes, (size_t)dims * sizeof(int));
    memcpy(value->strides, strides, (size_t)dims * sizeof(int));
    return SUCCESS;
}

/* Packed, with the second dimension innermost or where it is. */
FLYT_LIB_ENTRY int cudnnSetTensorNdDescriptorEx(void *desc, int format, int data_type, int dims, const int *sizes)
{
    int strides[DIMS_MAX], step = 1;
    if (format == VECT_C)
        return flyt_lib_refuse(&flyt_lib_cudnn, "cudnnSetTensorNdDescriptorEx with vectors of channels");
    if (dims < 2 || dims > DIMS_MAX || !sizes)
        return INVALID;
    if (format == NHWC) {
        strides[1] = 1;
        step = sizes[1];
    }
    for (int i = dims - 1; i >= 0; i--) {
        if (i == 1 && format == NHWC)
            continue;
        strides[i] = step;
        step *= sizes[i];
    }
    return set_tensor(desc, data_type, dims, sizes, strides);
}

FLYT_LIB_ENTRY int cudnnSetTensor4dDescriptor(void *desc, int format, int data_type, int n, int c, int h, int w)
{
    return cudnnSetTensorNdDescriptorEx(desc, format, data_type, 4, (const int[]){n, c, h, w});
}

FLYT_LIB_ENTRY int cudnnSetTensor4dDescriptorEx(void *desc, int data_type, int n, int c, int h, int w, int n_stride,
                                                int c_stride, int h_stride, int w_stride)
{
    return set_tensor(desc, data_type, 4, (const int[]){n, c, h, w},
                      (const int[]){n_stride, c_stride, h_stride, w_stride});
}

FLYT_LIB_ENTRY int cudnnGetTensorNdDescriptor(const void *desc, int requested, int *data_type, int *dims, int *sizes,
                                              int *strides)
{
    const VALID(tensor, desc);
    if (!value || requested < 0)
        return INVALID;
    int count = value->dims < requested ? value->dims : requested;
    if (data_type)
        *data_type = value->data_type;
    if (dims)
        *dims = value->dims;
    if (sizes)
        memcpy(sizes, value->sizes, (size_t)count * sizeof(int));
    if (strides)
        memcpy(strides, value->strides, (size_t)count * sizeof(int));
    return SUCCESS;
}

/* Writes up to four numbers where they are wanted. */
static void tell(const int *numbers, int *const *places)
{
    for (int i = 0; i < 4; i++)
        if (places[i])
            *places[i] = numbers[i];
}

FLYT_LIB_ENTRY int cudnnGetTensor4dDescriptor(const void *desc, int *data_type, int *n, int *c, int *h, int *w,
                                              int *n_stride, int *c_stride, int *h_stride, int *w_stride)
{
    const VALID(tensor, desc);
    if (!value || value->dims != 4)
        return INVALID;
    if (data_type)
        *data_type = value->data_type;
    tell(value->sizes, (int *const[]){n, c, h, w});
    tell(value->strides, (int *const[]){n_stride, c_stride, h_stride, w_stride});
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnSetFilter4dDescriptor(void *desc, int data_type, int format, int k, int c, int h, int w)
{
    VALID(filter, desc);
    if (!value)
        return INVALID;
    value->data_type = data_type;
    value->format = format;
    value->dims = 4;
    memcpy(value->sizes, (const int[]){k, c, h, w}, 4 * sizeof(int));
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnGetFilterNdDescriptor(const void *desc, int requested, int *data_type, int *format, int *dims,
                                              int *sizes)
{
    const VALID(filter, desc);
    if (!value || requested < 0)
        return INVALID;
    if (data_type)
        *data_type = value->data_type;
    if (format)
        *format = value->format;
    if (dims)
        *dims = value->dims;
    if (sizes)
        memcpy(sizes, value->sizes, (size_t)(value->dims < requested ? value->dims : requested) * sizeof(int));
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnGetFilter4dDescriptor(const void *desc, int *data_type, int *format, int *k, int *c, int *h,
                                              int *w)
{
    const VALID(filter, desc);
    if (!value || value->dims != 4)
        return INVALID;
    if (data_type)
        *data_type = value->data_type;
    if (format)
        *format = value->format;
    tell(value->sizes, (int *const[]){k, c, h, w});
    return SUCCESS;
}

/* ---- what two dimensions have names for ---- */

FLYT_LIB_ENTRY int cudnnSetConvolution2dDescriptor(void *desc, int pad_h, int pad_w, int u, int v, int dilation_h,
                                                   int dilation_w, int mode, int compute_type)
{
    VALID(convolution, desc);
    if (!value)
        return INVALID;
    value->dims = 2;
    memcpy(value->padding, (const int[]){pad_h, pad_w}, 2 * sizeof(int));
    memcpy(value->strides, (const int[]){u, v}, 2 * sizeof(int));
    memcpy(value->dilation, (const int[]){dilation_h, dilation_w}, 2 * sizeof(int));
    value->mode = mode;
    value->compute_type = compute_type;
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnSetPooling2dDescriptor(void *desc, int mode, int nan_option, int window_h, int window_w,
                                               int pad_h, int pad_w, int stride_h, int stride_w)
{
    VALID(pooling, desc);
    if (!value)
        return INVALID;
    value->mode = mode;
    value->nan_option = nan_option;
    value->dims = 2;
    memcpy(value->window, (const int[]){window_h, window_w}, 2 * sizeof(int));
    memcpy(value->padding, (const int[]){pad_h, pad_w}, 2 * sizeof(int));
    memcpy(value->strides, (const int[]){stride_h, stride_w}, 2 * sizeof(int));
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnSetActivationDescriptorSwishBeta(void *desc, double beta)
{
    VALID(activation, desc);
    if (!value)
        return INVALID;
    value->swish_beta = beta;
    value->has_swish_beta = 1;
    return SUCCESS;
}

/* ---- dropout ---- */

static int keep_dropout(void *desc, float rate, void *states, size_t states_bytes, unsigned long long seed)
{
    VALID(dropout, desc);
    if (!value)
        return INVALID;
    value->is_set = 1;
    value->rate = rate;
    value->states = (uint64_t)(uintptr_t)states;
    value->states_bytes = states_bytes;
    value->seed = seed;
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnRestoreDropoutDescriptor(void *desc, void *handle, float rate, void *states,
                                                 size_t states_bytes, unsigned long long seed)
{
    (void)handle;
    return keep_dropout(desc, rate, states, states_bytes, seed);
}

/* The states are filled on the device; without any there is nothing to do there. */
FLYT_LIB_ENTRY int cudnnSetDropoutDescriptor(void *desc, void *handle, float rate, void *states, size_t states_bytes,
                                             unsigned long long seed)
{
    int status = keep_dropout(desc, rate, states, states_bytes, seed);
    if (status || !states)
        return status;
    struct flyt_args_cudnnSetDropoutDescriptor sent;
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &flyt_lib_row_cudnnSetDropoutDescriptor, .arguments = &sent};
    flyt_lib_begin(&call);
    flyt_lib_object(&call, (uint64_t)(uintptr_t)handle, &flyt_lib_kind_cudnn_cudnn);
    flyt_lib_value(&call, &sent.dropoutDesc, desc, &flyt_lib_value_cudnn_dropout);
    sent.dropoutDesc.is_new = 1;
    return flyt_lib_finish(&call);
}

/* ---- recurrent networks ---- */

FLYT_LIB_ENTRY int cudnnSetRNNDescriptor_v8(void *desc, int algorithm, int cell_mode, int bias_mode, int direction_mode,
                                            int input_mode, int data_type, int math_precision, int math_type,
                                            int32_t input_size, int32_t hidden_size, int32_t projection_size,
                                            int32_t layers, void *dropout_desc, uint32_t flags)
{
    VALID(rnn, desc);
    const struct flyt_value_dropout *dropout = flyt_lib_valid(&flyt_lib_value_cudnn_dropout, dropout_desc);
    if (!value || (dropout_desc && !dropout))
        return INVALID;
    value->algorithm = algorithm;
    value->cell_mode = cell_mode;
    value->bias_mode = bias_mode;
    value->direction_mode = direction_mode;
    value->input_mode = input_mode;
    value->data_type = data_type;
    value->math_precision = math_precision;
    value->math_type = math_type;
    value->input_size = input_size;
    value->hidden_size = hidden_size;
    value->projection_size = projection_size;
    value->layers = layers;
    value->flags = flags;
    value->dropout_is_set = dropout ? dropout->is_set : 0;
    value->dropout_rate = dropout ? dropout->rate : 0;
    value->dropout_seed = dropout ? dropout->seed : 0;
    value->dropout_states_bytes = dropout ? dropout->states_bytes : 0;
    value->dropout_states = dropout ? dropout->states : 0;
    return SUCCESS;
}

static size_t element_bytes(int data_type)
{
    return data_type == 1 ? 8 : data_type == 2 || data_type == 9 ? 2 : 4; /* double, half, bfloat16 */
}

FLYT_LIB_ENTRY int cudnnSetRNNDataDescriptor(void *desc, int data_type, int layout, int longest, int batch, int vector,
                                             const int *lengths, const void *padding)
{
    VALID(rnndata, desc);
    if (!value || batch <= 0 || !lengths)
        return INVALID;
    size_t bytes = (size_t)batch * sizeof(int);
    if (!flyt_lib_list_set(&flyt_lib_value_cudnn_rnndata, value, lengths, bytes))
        return flyt_lib_cudnn.memory;
    value->data_type = data_type;
    value->layout = layout;
    value->longest = longest;
    value->batch = batch;
    value->vector = vector;
    value->list_bytes = (uint32_t)bytes;
    value->has_padding = padding != NULL;
    value->padding = 0;
    if (padding)
        memcpy(&value->padding, padding, element_bytes(data_type));
    return SUCCESS;
}

/* The place in the weights is asked for once; the address follows from it. */
static int give_param(const struct flyt_cudnn_rnn_params *params, unsigned place, const char *weights, void *desc,
                      void **ret_address)
{
    if (!desc || !ret_address)
        return SUCCESS;
    *ret_address = NULL;
    if (!params->is_there[place])
        return SUCCESS;
    *ret_address = (void *)(uintptr_t)((uint64_t)(uintptr_t)weights + params->offset[place]);
    return set_tensor(desc, params->data_type[place], params->dims[place], params->sizes[place],
                      params->strides[place]);
}

FLYT_LIB_ENTRY int cudnnGetRNNWeightParams(void *handle, void *rnn, int32_t layer, size_t weight_bytes,
                                           const void *weights, int32_t matrix, void *matrix_desc, void **ret_matrix,
                                           void *bias_desc, void **ret_bias)
{
    struct flyt_args_cudnnGetRNNWeightParams sent;
    struct flyt_cudnn_rnn_params params;
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &flyt_lib_row_cudnnGetRNNWeightParams, .arguments = &sent};
    flyt_lib_begin(&call);
    flyt_lib_object(&call, (uint64_t)(uintptr_t)handle, &flyt_lib_kind_cudnn_cudnn);
    flyt_lib_value(&call, &sent.rnnDesc, rnn, &flyt_lib_value_cudnn_rnn);
    sent.pseudoLayer = layer;
    sent.weightSpaceSize = weight_bytes;
    sent.linLayerID = matrix;
    sent.params_bytes = flyt_lib_out(&call, &params, sizeof params, false);
    int status = flyt_lib_finish(&call);
    if (!status)
        status = give_param(&params, 0, weights, matrix_desc, ret_matrix);
    return status ? status : give_param(&params, 1, weights, bias_desc, ret_bias);
}

/* ---- CTC loss ---- */

static int set_ctc(void *desc, int setter, int compute_type, int normalization, int gradient_mode, int longest_label)
{
    VALID(ctc, desc);
    if (!value)
        return INVALID;
    value->setter = setter;
    value->compute_type = compute_type;
    value->normalization = normalization;
    value->gradient_mode = gradient_mode;
    value->longest_label = longest_label;
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnSetCTCLossDescriptor(void *desc, int compute_type)
{
    return set_ctc(desc, 0, compute_type, 0, 0, 0);
}

FLYT_LIB_ENTRY int cudnnSetCTCLossDescriptorEx(void *desc, int compute_type, int normalization, int gradient_mode)
{
    return set_ctc(desc, 1, compute_type, normalization, gradient_mode, 0);
}

FLYT_LIB_ENTRY int cudnnSetCTCLossDescriptor_v8(void *desc, int compute_type, int normalization, int gradient_mode,
                                                int longest_label)
{
    return set_ctc(desc, 8, compute_type, normalization, gradient_mode, longest_label);
}

FLYT_LIB_ENTRY int cudnnSetCTCLossDescriptor_v9(void *desc, int compute_type, int normalization, int gradient_mode,
                                                int longest_label)
{
    return set_ctc(desc, 9, compute_type, normalization, gradient_mode, longest_label);
}

/* ---- CTC loss with labels in host memory ---- */

struct labels {
    const int *labels, *label_lengths, *input_lengths;
};

/* What the calls of the loss share: their descriptors, of which the first three are places in the arguments, and the
 * arrays of a batch, which are as long as the tensor of probabilities says. */
struct loss {
    void *to_probs, *to_gradients, *to_ctc;
    uint32_t *to_bytes[3];
    const void *probs, *gradients, *ctc;
    struct labels host;
};

static void put_loss(struct flyt_lib_call *call, void *handle, const struct loss *from)
{
    flyt_lib_object(call, (uint64_t)(uintptr_t)handle, &flyt_lib_kind_cudnn_cudnn);
    flyt_lib_value(call, from->to_probs, from->probs, &flyt_lib_value_cudnn_tensor);
    flyt_lib_value(call, from->to_gradients, from->gradients, &flyt_lib_value_cudnn_tensor);
    flyt_lib_value(call, from->to_ctc, from->ctc, &flyt_lib_value_cudnn_ctc);
    const struct flyt_value_tensor *probs = flyt_lib_valid(&flyt_lib_value_cudnn_tensor, from->probs);
    const struct labels *host = &from->host;
    int batch = probs && probs->dims == 3 && probs->sizes[1] > 0 && host->label_lengths ? probs->sizes[1] : 0;
    size_t count = 0;
    for (int i = 0; i < batch; i++)
        count += host->label_lengths[i] > 0 ? (size_t)host->label_lengths[i] : 0;
    *from->to_bytes[0] = flyt_lib_in(call, host->labels, count * sizeof(int), false);
    *from->to_bytes[1] = flyt_lib_in(call, host->label_lengths, (size_t)batch * sizeof(int), false);
    *from->to_bytes[2] = flyt_lib_in(call, host->input_lengths, (size_t)batch * sizeof(int), false);
}

/* The places of a call's arguments for that. */
#define LOSS(sent, ...)                                                                                                \
    (struct loss)                                                                                                      \
    {                                                                                                                  \
        .to_probs = &(sent).probsDesc, .to_gradients = &(sent).gradientsDesc, .to_ctc = &(sent).ctcLossDesc,           \
        .to_bytes = {&(sent).labels_bytes, &(sent).labelLengths_bytes, &(sent).inputLengths_bytes}, __VA_ARGS__        \
    }

FLYT_LIB_ENTRY int cudnnCTCLoss(void *handle, const void *probs_desc, const void *probs, const int *labels,
                                const int *label_lengths, const int *input_lengths, void *costs,
                                const void *gradients_desc, void *gradients, int algorithm, void *ctc, void *workspace,
                                size_t workspace_bytes)
{
    struct flyt_args_cudnnCTCLoss sent;
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &flyt_lib_row_cudnnCTCLoss, .arguments = &sent};
    flyt_lib_begin(&call);
    put_loss(&call, handle,
             &LOSS(sent, .probs = probs_desc, .gradients = gradients_desc, .ctc = ctc,
                   .host = {labels, label_lengths, input_lengths}));
    sent.probs = (uint64_t)(uintptr_t)probs;
    sent.costs = (uint64_t)(uintptr_t)costs;
    sent.gradients = (uint64_t)(uintptr_t)gradients;
    sent.algo = algorithm;
    sent.workspace = (uint64_t)(uintptr_t)workspace;
    sent.workSpaceSizeInBytes = workspace_bytes;
    return flyt_lib_finish(&call);
}

FLYT_LIB_ENTRY int cudnnGetCTCLossWorkspaceSize(void *handle, const void *probs_desc, const void *gradients_desc,
                                                const int *labels, const int *label_lengths, const int *input_lengths,
                                                int algorithm, void *ctc, size_t *ret_bytes)
{
    struct flyt_args_cudnnGetCTCLossWorkspaceSize sent;
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &flyt_lib_row_cudnnGetCTCLossWorkspaceSize, .arguments = &sent};
    flyt_lib_begin(&call);
    put_loss(&call, handle,
             &LOSS(sent, .probs = probs_desc, .gradients = gradients_desc, .ctc = ctc,
                   .host = {labels, label_lengths, input_lengths}));
    sent.algo = algorithm;
    sent.sizeInBytes_bytes = flyt_lib_out(&call, ret_bytes, sizeof *ret_bytes, false);
    return flyt_lib_finish(&call);
}
