// Executable graphs of which single nodes change between launches that nobody waits for: each launch does what the
// nodes were when it was made. Kernels, fills, copies and children are changed one by one, switched off and on, and all
// at once by another graph; more than the driver changes in place (boxes, other kernels) too.
#include "check.h"

enum { COUNT = 1000, BYTES = COUNT * 4, NODES = 60, ROUNDS = 40 };

__global__ void multiply_add(unsigned *values, int count, unsigned factor, unsigned term)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = values[i] * factor + term;
}

__global__ void exclusive_or(unsigned *values, int count, unsigned factor, unsigned term)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = values[i] ^ (factor + term);
}

static cudaStream_t stream;
static unsigned *values, *others;

struct work {
    bool is_or;
    int count;
    unsigned factor, term;
};

struct prepared {
    cudaKernelNodeParams params;
    void *args[4];
    struct work work;
};

static const cudaKernelNodeParams *prepare(struct prepared *prepared, struct work work)
{
    *prepared = {};
    prepared->work = work;
    prepared->args[0] = &values;
    prepared->args[1] = &prepared->work.count;
    prepared->args[2] = &prepared->work.factor;
    prepared->args[3] = &prepared->work.term;
    prepared->params.func = work.is_or ? (void *)exclusive_or : (void *)multiply_add;
    prepared->params.gridDim = dim3((unsigned)(work.count + 127) / 128);
    prepared->params.blockDim = dim3(128);
    prepared->params.kernelParams = prepared->args;
    return &prepared->params;
}

static void expect_work(unsigned *want, struct work work)
{
    for (int i = 0; i < work.count; i++)
        want[i] = work.is_or ? want[i] ^ (work.factor + work.term) : want[i] * work.factor + work.term;
}

static cudaGraph_t make_chain(const struct work *works, cudaGraphNode_t *nodes)
{
    struct prepared prepared;
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < NODES; i++)
        CHECK(cudaGraphAddKernelNode(&nodes[i], graph, i ? &nodes[i - 1] : NULL, i ? 1 : 0,
                                     prepare(&prepared, works[i])));
    return graph;
}

static void expect_values(const unsigned *want)
{
    static unsigned got[COUNT];
    CHECK(cudaMemcpyAsync(got, values, BYTES, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(got[i], want[i]);
}

// Some kernels each round, by single calls and by whole updates; kernel and size of the grid among what changes.
static void kernels(void)
{
    static unsigned want[COUNT];
    struct work works[NODES];
    cudaGraphNode_t nodes[NODES], other_nodes[NODES];
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    struct prepared prepared;
    bool is_off[NODES] = {};
    for (int i = 0; i < NODES; i++)
        works[i] = {i % 3 == 0, COUNT - i, (unsigned)i * 2 + 1, (unsigned)i};
    cudaGraph_t graph = make_chain(works, nodes);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaMemsetAsync(values, 0, BYTES, stream));
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < round % 4; k++) {
            int at = (round * 7 + k * 13) % NODES;
            works[at] = {(round + k) % 2 == 0, 1 + (round * 37 + k) % COUNT, (unsigned)round * 2 + 1, (unsigned)at};
            CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[at], prepare(&prepared, works[at])));
        }
        if (round % 5 == 2) {
            int at = round * 11 % NODES;
            unsigned is_enabled;
            is_off[at] = !is_off[at];
            CHECK(cudaGraphNodeSetEnabled(exec, nodes[at], !is_off[at]));
            CHECK(cudaGraphNodeGetEnabled(exec, nodes[at], &is_enabled));
            EXPECT_EQ(is_enabled, !is_off[at]);
        }
        if (round % 8 == 7) {
            works[round % NODES].term += 5;
            works[0].factor += 2;
            cudaGraph_t other = make_chain(works, other_nodes);
            CHECK(cudaGraphExecUpdate(exec, other, &info));
            EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
            CHECK(cudaGraphDestroy(other));
        }
        CHECK(cudaGraphLaunch(exec, stream));
        for (int i = 0; i < NODES; i++)
            if (!is_off[i])
                expect_work(want, works[i]);
    }
    expect_values(want);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static cudaMemsetParams fill_of(unsigned *to, unsigned value, size_t width)
{
    cudaMemsetParams set = {};
    set.dst = to;
    set.value = value;
    set.elementSize = 4;
    set.width = width;
    set.height = 1;
    return set;
}

// A fill, a copy in the device's memory and one from the host's, each changed while launches are under way.
static void fills_and_copies(void)
{
    static unsigned want[COUNT], want_others[COUNT], host[2][COUNT];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t fill, copy, in;
    cudaMemsetParams set = fill_of(values, 1, COUNT);
    for (int i = 0; i < COUNT; i++) {
        host[0][i] = (unsigned)i;
        host[1][i] = (unsigned)i * 3;
    }
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &set));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, others, values, BYTES / 2, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphAddMemcpyNode1D(&in, graph, &copy, 1, values, host[0], BYTES / 4, cudaMemcpyHostToDevice));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaMemsetAsync(values, 0, BYTES, stream));
    CHECK(cudaMemsetAsync(others, 0, BYTES, stream));
    for (int round = 0; round < ROUNDS; round++) {
        const int width = COUNT - round, offset = round * 3, words = COUNT / 2 - round;
        const unsigned *from = host[round % 2];
        set = fill_of(values, (unsigned)round + 1, (size_t)width);
        CHECK(cudaGraphExecMemsetNodeSetParams(exec, fill, &set));
        CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, copy, others + offset, values + round, (size_t)words * 4,
                                                 cudaMemcpyDeviceToDevice));
        CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, in, values, from, BYTES / 4, cudaMemcpyHostToDevice));
        CHECK(cudaGraphLaunch(exec, stream));
        for (int i = 0; i < width; i++)
            want[i] = (unsigned)round + 1;
        for (int i = 0; i < words; i++)
            want_others[offset + i] = want[round + i];
        memcpy(want, from, BYTES / 4);
    }
    expect_values(want);
    static unsigned got[COUNT];
    CHECK(cudaMemcpy(got, others, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(got[i], want_others[i]);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// The child's nodes, by a graph of its kind and by themselves.
static void children(void)
{
    static unsigned want[COUNT];
    struct work works[NODES];
    cudaGraphNode_t nodes[NODES], other_nodes[NODES], parent, before;
    cudaGraphExec_t exec;
    cudaGraph_t graph, copy;
    for (int i = 0; i < NODES; i++)
        works[i] = {i % 2 == 0, COUNT, (unsigned)i * 2 + 1, 3};
    cudaGraph_t child = make_chain(works, nodes);
    cudaMemsetParams set = fill_of(values, 7, COUNT);
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemsetNode(&before, graph, NULL, 0, &set));
    CHECK(cudaGraphAddChildGraphNode(&parent, graph, &before, 1, child));
    CHECK(cudaGraphChildGraphNodeGetGraph(parent, &copy));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 4; round++) {
        works[round * 9].term = (unsigned)round + 11;
        works[NODES - 1].factor = (unsigned)round * 2 + 3;
        cudaGraph_t other = make_chain(works, other_nodes);
        CHECK(cudaGraphExecChildGraphNodeSetParams(exec, parent, other));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaGraphDestroy(other));
        for (int i = 0; i < COUNT; i++)
            want[i] = 7;
        for (int i = 0; i < NODES; i++)
            expect_work(want, works[i]);
    }
    expect_values(want);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(child));
}

int main(void)
{
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&values, BYTES));
    CHECK(cudaMalloc((void **)&others, BYTES));
    kernels();
    fills_and_copies();
    children();
    CHECK(cudaFree(values));
    CHECK(cudaFree(others));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
