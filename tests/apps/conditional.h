// Graphs with conditional nodes, of kernels that count in words: what the programs about them have in common.
#ifndef FLYT_TESTS_CONDITIONAL_H
#define FLYT_TESTS_CONDITIONAL_H

#include "check.h"

__global__ void add(unsigned *word, unsigned value)
{
    *word += value;
}

__global__ void decide(cudaGraphConditionalHandle handle, const unsigned *word)
{
    cudaGraphSetConditional(handle, *word);
}

/* One less, and again while that is not 0. */
__global__ void count_down(unsigned *word, cudaGraphConditionalHandle handle)
{
    unsigned left = *word - 1;
    *word = left;
    cudaGraphSetConditional(handle, left);
}

enum { WORDS = 8 };

static unsigned *words;

static cudaGraphNode_t kernel_node(cudaGraph_t graph, cudaGraphNode_t before, void *kernel, void **args)
{
    cudaKernelNodeParams params = {};
    cudaGraphNode_t node;
    params.func = kernel;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&node, graph, before ? &before : NULL, before ? 1 : 0, &params));
    return node;
}

static cudaGraphNode_t add_node(cudaGraph_t graph, cudaGraphNode_t before, unsigned place, unsigned value)
{
    unsigned *word = words + place;
    void *args[] = {&word, &value};
    return kernel_node(graph, before, (void *)add, args);
}

static cudaGraphNode_t decide_node(cudaGraph_t graph, cudaGraphNode_t before, cudaGraphConditionalHandle handle,
                                   unsigned place)
{
    const unsigned *word = words + place;
    void *args[] = {&handle, &word};
    return kernel_node(graph, before, (void *)decide, args);
}

__attribute__((unused)) static cudaGraphNode_t count_down_node(cudaGraph_t graph, cudaGraphNode_t before,
                                                               unsigned place, cudaGraphConditionalHandle handle)
{
    unsigned *word = words + place;
    void *args[] = {&word, &handle};
    return kernel_node(graph, before, (void *)count_down, args);
}

static cudaGraphConditionalHandle new_handle(cudaGraph_t graph, unsigned value, unsigned flags)
{
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, value, flags));
    return handle;
}

static cudaError_t try_conditional(cudaGraph_t graph, cudaGraphNode_t before, cudaGraphConditionalHandle handle,
                                   cudaGraphConditionalNodeType type, unsigned size, cudaGraphNode_t *node,
                                   cudaGraph_t **bodies)
{
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    cudaError_t error = cudaGraphAddNode(node, graph, before ? &before : NULL, NULL, before ? 1 : 0, &params);
    *bodies = params.conditional.phGraph_out;
    return error;
}

static cudaGraph_t *conditional_node(cudaGraph_t graph, cudaGraphNode_t before, cudaGraphConditionalHandle handle,
                                     cudaGraphConditionalNodeType type, unsigned size, cudaGraphNode_t *ret_node)
{
    cudaGraphNode_t node;
    cudaGraph_t *bodies;
    cudaGraphNodeType kind;
    CHECK(try_conditional(graph, before, handle, type, size, &node, &bodies));
    CHECK(cudaGraphNodeGetType(node, &kind));
    EXPECT_EQ(kind, cudaGraphNodeTypeConditional);
    if (ret_node)
        *ret_node = node;
    return bodies;
}

/* Launches it with these words, and looks at what they are then. */
static void expect_words(cudaGraphExec_t exec, cudaStream_t stream, const unsigned *in, const unsigned *want)
{
    unsigned out[WORDS];
    CHECK(cudaMemcpyAsync(words, in, sizeof(out), cudaMemcpyHostToDevice, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(out, words, sizeof(out), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < WORDS; i++)
        EXPECT(out[i] == want[i], "word %d is %u, not %u", i, out[i], want[i]);
}

__attribute__((unused)) static cudaGraphNode_t copy_node(cudaGraph_t graph, cudaGraphNode_t before, void *to,
                                                         const void *from, size_t bytes)
{
    cudaGraphNode_t node;
    CHECK(cudaGraphAddMemcpyNode1D(&node, graph, before ? &before : NULL, before ? 1 : 0, to, from, bytes,
                                   cudaMemcpyDefault));
    return node;
}

#endif
