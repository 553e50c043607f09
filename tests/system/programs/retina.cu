// Trains a small network of cuDNN's, as told: a convolution, normalization, a rectifier, pooling, dropout, a convolution over
// all that is left, softmax. What its weights have come to depends on every step before, on the moving averages and on what
// was dropped.
//
//   steps N   N steps: "steps SUM", the bits of a weight, an average and an output, added up
//   end       also the end of input: exit status 0
//
// The first line is "ready". An error is "error LIBRARY STATUS" and exit status 7.
// nvcc: -ldl
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../apps/cudnn_interface.h"

enum { BATCH = 4, CLASSES = 3 };

static cudnnHandle_t handle;
static const float zero = 0, one = 1;

static void fail(const char *library, int status)
{
    printf("error %s %d\n", library, status);
    fflush(stdout);
    _Exit(7);
}

static void check(cudaError_t status)
{
    if (status)
        fail("cuda", status);
}

static void check(cudnnStatus_t status)
{
    if (status)
        fail("cudnn", status);
}

// Numbers in device memory, as a tensor and as a filter.
struct numbers {
    cudnnTensorDescriptor_t desc;
    cudnnFilterDescriptor_t filter;
    float *at;
    size_t count;
};

static struct numbers make(int n, int c, int h, int w, float scale)
{
    static unsigned state = 1;
    struct numbers all;
    all.count = (size_t)n * c * h * w;
    float *host = (float *)malloc(all.count * sizeof(float));
    for (size_t i = 0; i < all.count; i++) {
        state = state * 1664525 + 1013904223;
        host[i] = scale * ((int)(state >> 16) - 32768) / 32768;
    }
    check(cudnnCreateTensorDescriptor(&all.desc));
    check(cudnnSetTensor4dDescriptor(all.desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w));
    check(cudnnCreateFilterDescriptor(&all.filter));
    check(cudnnSetFilter4dDescriptor(all.filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, n, c, h, w));
    check(cudaMalloc(&all.at, all.count * sizeof(float)));
    check(cudaMemcpy(all.at, host, all.count * sizeof(float), cudaMemcpyHostToDevice));
    free(host);
    return all;
}

// into = factor from + rest into
static void add(struct numbers *into, const struct numbers *from, float factor, float rest)
{
    check(cudnnAddTensor(handle, &factor, from->desc, from->at, &rest, into->desc, into->at));
}

static struct {
    cudnnConvolutionDescriptor_t first, last;
    cudnnActivationDescriptor_t rectifier;
    cudnnPoolingDescriptor_t pooling;
    cudnnDropoutDescriptor_t dropout;
    void *reserve;
    size_t reserve_bytes;
    struct numbers input, seen, normal, active, pooled, kept, sums, output, wanted; // forward, one after the other
    struct numbers d_seen, d_normal, d_active, d_pooled, d_kept, d_sums;            // what the error says of them
    struct numbers look, judge, d_look, d_judge;                                    // the weights
    struct numbers scale, bias, d_scale, d_bias, mean, variance, saved, inverse;    // of the normalization
} net;

static void make_numbers(void)
{
    struct numbers *spread[] = {&net.seen, &net.normal, &net.active, &net.d_seen, &net.d_normal, &net.d_active};
    struct numbers *small[] = {&net.pooled, &net.kept, &net.d_pooled, &net.d_kept};
    struct numbers *last[] = {&net.sums, &net.output, &net.wanted, &net.d_sums};
    struct numbers *channels[] = {&net.bias, &net.scale, &net.d_scale, &net.d_bias, &net.mean, &net.variance, &net.saved, &net.inverse};
    net.input = make(BATCH, 1, 8, 8, 1);
    net.look = make(4, 1, 3, 3, 0.5f);
    net.d_look = make(4, 1, 3, 3, 0);
    net.judge = make(CLASSES, 4, 4, 4, 0.2f);
    net.d_judge = make(CLASSES, 4, 4, 4, 0);
    for (struct numbers *all : spread)
        *all = make(BATCH, 4, 8, 8, 0);
    for (struct numbers *all : small)
        *all = make(BATCH, 4, 4, 4, 0);
    for (struct numbers *all : last)
        *all = make(BATCH, CLASSES, 1, 1, 0);
    for (struct numbers *all : channels)
        *all = make(1, 4, 1, 1, all == &net.scale ? 1 : 0);
    float wanted[BATCH * CLASSES] = {0};
    for (int i = 0; i < BATCH; i++)
        wanted[i * CLASSES + i % CLASSES] = 1;
    check(cudaMemcpy(net.wanted.at, wanted, sizeof wanted, cudaMemcpyHostToDevice));
}

static void describe(void)
{
    void *states;
    size_t states_bytes;
    check(cudnnCreateConvolutionDescriptor(&net.first));
    check(cudnnSetConvolution2dDescriptor(net.first, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    check(cudnnCreateConvolutionDescriptor(&net.last));
    check(cudnnSetConvolution2dDescriptor(net.last, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    check(cudnnCreateActivationDescriptor(&net.rectifier));
    check(cudnnSetActivationDescriptor(net.rectifier, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
    check(cudnnCreatePoolingDescriptor(&net.pooling));
    check(cudnnSetPooling2dDescriptor(net.pooling, CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
    check(cudnnCreateDropoutDescriptor(&net.dropout));
    check(cudnnDropoutGetStatesSize(handle, &states_bytes));
    check(cudnnDropoutGetReserveSpaceSize(net.pooled.desc, &net.reserve_bytes));
    check(cudaMalloc(&states, states_bytes));
    check(cudaMalloc(&net.reserve, net.reserve_bytes));
    check(cudnnSetDropoutDescriptor(net.dropout, handle, 0.2f, states, states_bytes, 7));
}

static void forward(void)
{
    check(cudnnConvolutionForward(handle, &one, net.input.desc, net.input.at, net.look.filter, net.look.at, net.first, 0, NULL, 0,
                                  &zero, net.seen.desc, net.seen.at));
    check(cudnnBatchNormalizationForwardTraining(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, net.seen.desc, net.seen.at,
                                                 net.normal.desc, net.normal.at, net.scale.desc, net.scale.at, net.bias.at, 0.1,
                                                 net.mean.at, net.variance.at, 1e-5, net.saved.at, net.inverse.at));
    check(cudnnActivationForward(handle, net.rectifier, &one, net.normal.desc, net.normal.at, &zero, net.active.desc, net.active.at));
    check(cudnnPoolingForward(handle, net.pooling, &one, net.active.desc, net.active.at, &zero, net.pooled.desc, net.pooled.at));
    check(cudnnDropoutForward(handle, net.dropout, net.pooled.desc, net.pooled.at, net.kept.desc, net.kept.at, net.reserve,
                              net.reserve_bytes));
    check(cudnnConvolutionForward(handle, &one, net.kept.desc, net.kept.at, net.judge.filter, net.judge.at, net.last, 0, NULL, 0, &zero,
                                  net.sums.desc, net.sums.at));
    check(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, net.sums.desc, net.sums.at, &zero,
                              net.output.desc, net.output.at));
}

static void backward(void)
{
    add(&net.d_sums, &net.output, 1, 0);
    add(&net.d_sums, &net.wanted, -1, 1);
    check(cudnnConvolutionBackwardFilter(handle, &one, net.kept.desc, net.kept.at, net.d_sums.desc, net.d_sums.at, net.last, 1, NULL, 0,
                                         &zero, net.d_judge.filter, net.d_judge.at));
    check(cudnnConvolutionBackwardData(handle, &one, net.judge.filter, net.judge.at, net.d_sums.desc, net.d_sums.at, net.last, 1, NULL,
                                       0, &zero, net.d_kept.desc, net.d_kept.at));
    check(cudnnDropoutBackward(handle, net.dropout, net.d_kept.desc, net.d_kept.at, net.d_pooled.desc, net.d_pooled.at, net.reserve,
                               net.reserve_bytes));
    check(cudnnPoolingBackward(handle, net.pooling, &one, net.pooled.desc, net.pooled.at, net.d_pooled.desc, net.d_pooled.at,
                               net.active.desc, net.active.at, &zero, net.d_active.desc, net.d_active.at));
    check(cudnnActivationBackward(handle, net.rectifier, &one, net.active.desc, net.active.at, net.d_active.desc, net.d_active.at,
                                  net.normal.desc, net.normal.at, &zero, net.d_normal.desc, net.d_normal.at));
    check(cudnnBatchNormalizationBackward(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, &one, &zero, net.seen.desc, net.seen.at,
                                          net.d_normal.desc, net.d_normal.at, net.d_seen.desc, net.d_seen.at, net.scale.desc,
                                          net.scale.at, net.d_scale.at, net.d_bias.at, 1e-5, net.saved.at, net.inverse.at));
    check(cudnnConvolutionBackwardFilter(handle, &one, net.input.desc, net.input.at, net.d_seen.desc, net.d_seen.at, net.first, 1, NULL,
                                         0, &zero, net.d_look.filter, net.d_look.at));
}

static void step(void)
{
    forward();
    backward();
    add(&net.look, &net.d_look, -0.05f, 1);
    add(&net.judge, &net.d_judge, -0.05f, 1);
    add(&net.scale, &net.d_scale, -0.05f, 1);
    add(&net.bias, &net.d_bias, -0.05f, 1);
}

static unsigned first_bits(const struct numbers *all)
{
    unsigned bits;
    check(cudaMemcpy(&bits, all->at, sizeof bits, cudaMemcpyDeviceToHost));
    return bits;
}

int main()
{
    char line[64];
    cudaStream_t stream;
    cudnn_open();
    check(cudaStreamCreate(&stream));
    check(cudnnCreate(&handle));
    check(cudnnSetStream(handle, stream));
    make_numbers();
    describe();
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        int steps = strncmp(line, "steps ", 6) ? 0 : atoi(line + 6);
        for (int i = 0; i < steps; i++)
            step();
        check(cudaStreamSynchronize(stream));
        printf("steps %llu\n", (unsigned long long)first_bits(&net.look) + first_bits(&net.mean) + first_bits(&net.output));
        fflush(stdout);
    }
    check(cudnnDestroy(handle));
    return 0;
}
