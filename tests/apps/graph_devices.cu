// Graphs over two devices: kernels of both, each after some of the other's, with a copy between them and one to the
// host; launched into streams of either device; nodes that change; captured over streams of both devices; memory that
// is allocated on the other one; copies of it in the body of a conditional node.
#include "check.h"

enum { COUNT = 5000, BYTES = COUNT * 4, ROUNDS = 6 };

__global__ void multiply_add(unsigned *values, int count, unsigned factor, unsigned term)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = values[i] * factor + term;
}

// Takes its time: the last word is written when all has been counted.
__global__ void count_up(unsigned *values, int count, unsigned to)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < to; i++)
        sum = sum * 3 + i;
    values[count - 1] = sum;
}

static unsigned *values[2], *from_other[2];
static cudaStream_t streams[2];

static void on(int device)
{
    CHECK(cudaSetDevice(device));
}

struct prepared {
    cudaKernelNodeParams params;
    void *args[4];
    unsigned *values;
    int count;
    unsigned factor, term;
};

static const cudaKernelNodeParams *prepare(struct prepared *prepared, unsigned *to, unsigned factor, unsigned term)
{
    *prepared = {};
    prepared->values = to;
    prepared->count = COUNT;
    prepared->factor = factor;
    prepared->term = term;
    prepared->args[0] = &prepared->values;
    prepared->args[1] = &prepared->count;
    prepared->args[2] = &prepared->factor;
    prepared->args[3] = &prepared->term;
    prepared->params.func = (void *)multiply_add;
    prepared->params.gridDim = dim3((COUNT + 127) / 128);
    prepared->params.blockDim = dim3(128);
    prepared->params.kernelParams = prepared->args;
    return &prepared->params;
}

static cudaGraphNode_t kernel_node(cudaGraph_t graph, int device, const cudaGraphNode_t *before, size_t count,
                                   unsigned factor, unsigned term)
{
    struct prepared prepared;
    cudaGraphNode_t node;
    on(device);
    CHECK(cudaGraphAddKernelNode(&node, graph, before, count, prepare(&prepared, values[device], factor, term)));
    return node;
}

static void expect_all(const unsigned *got, unsigned want)
{
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(got[i], want);
}

// Two chains that cross: the second kernel of each device comes after the first of both.
static void node_by_node(void)
{
    static unsigned got[COUNT];
    unsigned *host, want[2] = {1, 2}, term = 5;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t first[2], second[2], copy, out;
    struct prepared prepared;
    CHECK(cudaMallocHost((void **)&host, BYTES));
    CHECK(cudaGraphCreate(&graph, 0));
    for (int device = 0; device < 2; device++)
        first[device] = kernel_node(graph, device, NULL, 0, 3 + device, 1);
    // What device 0 has then goes to device 1 before its second kernel changes it.
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, first, 2, from_other[1], values[0], BYTES, cudaMemcpyDefault));
    for (int device = 0; device < 2; device++)
        second[device] = kernel_node(graph, device, &copy, 1, 7, 2 + device);
    CHECK(cudaGraphAddMemcpyNode1D(&out, graph, second, 2, host, values[1], BYTES, cudaMemcpyDefault));
    on(0);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int device = 0; device < 2; device++) {
        on(device);
        unsigned words[COUNT];
        for (int i = 0; i < COUNT; i++)
            words[i] = want[device];
        CHECK(cudaMemcpy(values[device], words, BYTES, cudaMemcpyHostToDevice));
    }
    for (int round = 0; round < ROUNDS; round++) {
        const int launched_on = round % 2;
        if (round % 3 == 2) {
            term += (unsigned)round;
            on(1);
            CHECK(cudaGraphExecKernelNodeSetParams(exec, second[1], prepare(&prepared, values[1], 7, term)));
        }
        on(launched_on);
        CHECK(cudaGraphLaunch(exec, streams[launched_on]));
        CHECK(cudaStreamSynchronize(streams[launched_on]));
        const unsigned between = want[0] * 3 + 1, last = round < 2 ? 3 : term;
        want[0] = between * 7 + 2;
        want[1] = (want[1] * 4 + 1) * 7 + last;
        expect_all(host, want[1]);
        CHECK(cudaMemcpy(got, from_other[1], BYTES, cudaMemcpyDefault));
        expect_all(got, between);
        CHECK(cudaMemcpy(got, values[0], BYTES, cudaMemcpyDefault));
        expect_all(got, want[0]);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeHost(host));
}

// Work in a stream of the other device that events take into the capture. Launches follow each other without a wait.
static void captured(void)
{
    static unsigned got[COUNT];
    unsigned want[2] = {0, 0};
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    on(1);
    CHECK(cudaMemset(values[1], 0, BYTES));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaDeviceSynchronize());
    on(0);
    CHECK(cudaMemset(values[0], 0, BYTES));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
    multiply_add<<<(COUNT + 127) / 128, 128, 0, streams[0]>>>(values[0], COUNT, 3, 1);
    CHECK(cudaEventRecord(fork, streams[0]));
    on(1);
    CHECK(cudaStreamWaitEvent(streams[1], fork, 0));
    CHECK(cudaMemcpyAsync(from_other[1], values[0], BYTES, cudaMemcpyDefault, streams[1]));
    multiply_add<<<(COUNT + 127) / 128, 128, 0, streams[1]>>>(values[1], COUNT, 5, 2);
    CHECK(cudaEventRecord(join, streams[1]));
    on(0);
    CHECK(cudaStreamWaitEvent(streams[0], join, 0));
    multiply_add<<<(COUNT + 127) / 128, 128, 0, streams[0]>>>(values[0], COUNT, 1, 4);
    CHECK(cudaStreamEndCapture(streams[0], &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    unsigned between = 0;
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(cudaGraphLaunch(exec, streams[0]));
        between = want[0] * 3 + 1;
        want[0] = between + 4;
        want[1] = want[1] * 5 + 2;
    }
    CHECK(cudaStreamSynchronize(streams[0]));
    for (int device = 0; device < 2; device++) {
        CHECK(cudaMemcpy(got, values[device], BYTES, cudaMemcpyDefault));
        expect_all(got, want[device]);
    }
    CHECK(cudaMemcpy(got, from_other[1], BYTES, cudaMemcpyDefault));
    expect_all(got, between);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
}

static void nothing(void *)
{
}

// Nodes without work join a kernel of device 1 and a call of the host's: what comes after them comes after both.
static void joined_by_nothing(void)
{
    enum { STEPS = 1000000 };
    unsigned *host, want = 0, to = STEPS;
    int count = COUNT;
    void *args[] = {&values[1], &count, &to};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t both[2], join, out;
    cudaKernelNodeParams kernel = {};
    cudaHostNodeParams call = {};
    for (unsigned i = 0; i < to; i++)
        want = want * 3 + i;
    CHECK(cudaMallocHost((void **)&host, BYTES));
    host[COUNT - 1] = 0;
    on(0);
    CHECK(cudaGraphCreate(&graph, 0));
    kernel_node(graph, 0, NULL, 0, 1, 0);
    call.fn = nothing;
    CHECK(cudaGraphAddHostNode(&both[0], graph, NULL, 0, &call));
    kernel.func = (void *)count_up;
    kernel.gridDim = kernel.blockDim = dim3(1);
    kernel.kernelParams = args;
    on(1);
    CHECK(cudaGraphAddKernelNode(&both[1], graph, NULL, 0, &kernel));
    on(0);
    CHECK(cudaGraphAddEmptyNode(&join, graph, both, 2));
    CHECK(cudaGraphAddEmptyNode(&join, graph, &join, 1));
    CHECK(cudaGraphAddMemcpyNode1D(&out, graph, &join, 1, host, values[1], BYTES, cudaMemcpyDefault));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, streams[0]));
    CHECK(cudaStreamSynchronize(streams[0]));
    EXPECT_EQ(host[COUNT - 1], want);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeHost(host));
}

// The body of a loop on device 0 copies the other device's memory, and fills it, where device 0 reaches that.
static void in_a_body(void)
{
    static unsigned got[COUNT];
    cudaGraphNodeParams params = {};
    cudaGraphConditionalHandle handle;
    cudaGraph_t graph, body;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    cudaMemsetParams fill = {};
    int can = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    if (!can)
        return;
    on(1);
    CHECK(cudaMemset(values[1], 1, BYTES));
    CHECK(cudaDeviceSynchronize());
    on(0);
    CHECK(cudaMemset(from_other[0], 0, BYTES));
    CHECK(cudaMemset(values[0], 0, BYTES));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeIf;
    params.conditional.size = 1;
    CHECK(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    body = params.conditional.phGraph_out[0];
    CHECK(cudaGraphAddMemcpyNode1D(&node, body, NULL, 0, from_other[0], values[1], BYTES, cudaMemcpyDefault));
    node = kernel_node(body, 0, &node, 1, 1, 7);
    CHECK(cudaGraphAddMemcpyNode1D(&node, body, &node, 1, values[1], values[0], BYTES / 2, cudaMemcpyDefault));
    fill.dst = values[1] + COUNT / 2;
    fill.value = 9;
    fill.elementSize = 4;
    fill.width = COUNT / 2;
    fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&node, body, &node, 1, &fill));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, streams[0]));
    CHECK(cudaStreamSynchronize(streams[0]));
    CHECK(cudaMemcpy(got, from_other[0], BYTES, cudaMemcpyDefault));
    expect_all(got, 0x01010101);
    CHECK(cudaMemcpy(got, values[1], BYTES, cudaMemcpyDefault));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(got[i], i < COUNT / 2 ? 7u : 9u);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaDeviceDisablePeerAccess(1));
}

// A capture on device 0 takes memory from a pool of device 1's.
static void memory_of_the_other(void)
{
    static unsigned got[COUNT], in[COUNT];
    unsigned *memory;
    cudaMemPool_t pool;
    cudaMemAccessDesc access = {};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaMemAllocNodeParams told;
    cudaGraphNode_t nodes[8];
    size_t count = 8;
    int can = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    if (!can)
        return;
    on(0);
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 1));
    access.location.type = cudaMemLocationTypeDevice;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocFromPoolAsync((void **)&memory, BYTES, pool, streams[0]));
    CHECK(cudaMemcpyAsync(memory, values[0], BYTES, cudaMemcpyDefault, streams[0]));
    CHECK(cudaMemcpyAsync(from_other[1], memory, BYTES, cudaMemcpyDefault, streams[0]));
    CHECK(cudaFreeAsync(memory, streams[0]));
    CHECK(cudaStreamEndCapture(streams[0], &graph));
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    EXPECT_EQ(count, 4);
    CHECK(cudaGraphMemAllocNodeGetParams(nodes[0], &told));
    EXPECT_EQ(told.poolProps.location.id, 1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++)
            in[i] = 50 + round;
        CHECK(cudaMemcpy(values[0], in, BYTES, cudaMemcpyDefault));
        CHECK(cudaGraphLaunch(exec, streams[0]));
        CHECK(cudaStreamSynchronize(streams[0]));
        CHECK(cudaMemcpy(got, from_other[1], BYTES, cudaMemcpyDefault));
        expect_all(got, 50 + round);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// "Context on which to run the node. Must match context used to create the handle and all body nodes."
static void body_of_the_other(void)
{
    struct prepared prepared;
    cudaGraphNodeParams params = {};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t choice, node;
    on(0);
    CHECK(cudaGraphCreate(&graph, 0));
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.type = cudaGraphCondTypeIf;
    params.conditional.size = 1;
    CHECK(cudaGraphConditionalHandleCreate(&params.conditional.handle, graph, 1, cudaGraphCondAssignDefault));
    CHECK(cudaGraphAddNode(&choice, graph, NULL, NULL, 0, &params));
    on(1);
    cudaError_t error =
        cudaGraphAddKernelNode(&node, params.conditional.phGraph_out[0], NULL, 0, prepare(&prepared, values[1], 1, 0));
    on(0);
    if (error == cudaSuccess) {
        error = cudaGraphInstantiate(&exec, graph, 0);
        EXPECT(error == cudaErrorInvalidValue || (!is_forwarded() && error != cudaSuccess), "got %d", error);
    }
    (void)cudaGetLastError();
    CHECK(cudaGraphDestroy(graph));
}

int main(void)
{
    int count;
    CHECK(cudaGetDeviceCount(&count));
    if (count < 2)
        SKIP("one device only");
    for (int device = 0; device < 2; device++) {
        on(device);
        CHECK(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking));
        CHECK(cudaMalloc((void **)&values[device], BYTES));
        CHECK(cudaMalloc((void **)&from_other[device], BYTES));
    }
    node_by_node();
    captured();
    joined_by_nothing();
    in_a_body();
    memory_of_the_other();
    body_of_the_other();
    for (int device = 0; device < 2; device++) {
        on(device);
        CHECK(cudaFree(values[device]));
        CHECK(cudaFree(from_other[device]));
        CHECK(cudaStreamDestroy(streams[device]));
    }
    return 0;
}
