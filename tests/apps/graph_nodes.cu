// Graphs made node by node: kernels, fills, copies in every direction with host memory that changes between launches,
// host functions, events, child graphs; what is asked of graphs, clones, single nodes that are changed or left out,
// whole updates, user objects, and constants.
#include "check.h"

enum { COUNT = 20000, BYTES = COUNT * 4, WIDTH = 60, HEIGHT = 40, PITCH = 256 };

__global__ void multiply_add(unsigned *values, int count, unsigned factor, unsigned term)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = values[i] * factor + term;
}

__global__ void add_to(unsigned *to, const unsigned *from, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        to[i] += from[i];
}

static cudaGraphNode_t kernel_node(cudaGraph_t graph, cudaGraphNode_t before, unsigned *values, unsigned factor,
                                   unsigned term)
{
    int count = COUNT;
    void *args[] = {&values, &count, &factor, &term};
    cudaKernelNodeParams params = {};
    cudaGraphNode_t node;
    params.func = (void *)multiply_add;
    params.gridDim = dim3((COUNT + 255) / 256);
    params.blockDim = dim3(256);
    params.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&node, graph, before ? &before : NULL, before ? 1 : 0, &params));
    return node;
}

static unsigned calls, seen_sum;

static void count_call(void *user)
{
    const unsigned *values = (const unsigned *)user;
    calls++;
    seen_sum += values[1];
}

/* Host memory to the device, work, back to the host, and a function that looks at what has come. */
static void round_trip(cudaStream_t stream, bool is_pinned)
{
    unsigned *in, *out, *device, *other;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t copy_in, fill, inside, join, work, copy_out, host;
    if (is_pinned) {
        CHECK(cudaMallocHost((void **)&in, BYTES));
        CHECK(cudaMallocHost((void **)&out, BYTES));
    } else {
        in = (unsigned *)malloc(BYTES);
        out = (unsigned *)malloc(BYTES);
    }
    CHECK(cudaMalloc((void **)&device, BYTES));
    CHECK(cudaMalloc((void **)&other, BYTES));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&copy_in, graph, NULL, 0, device, in, BYTES, cudaMemcpyHostToDevice));
    cudaMemsetParams set = {};
    set.dst = other;
    set.value = 7;
    set.elementSize = 4;
    set.width = COUNT;
    set.height = 1;
    CHECK(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &set));
    work = kernel_node(graph, copy_in, device, 3, 1);
    cudaGraphNode_t both[] = {work, fill};
    int count = COUNT;
    void *args[] = {&device, &other, &count};
    cudaKernelNodeParams add = {};
    add.func = (void *)add_to;
    add.gridDim = dim3((COUNT + 127) / 128);
    add.blockDim = dim3(128);
    add.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&join, graph, both, 2, &add));
    CHECK(cudaGraphAddMemcpyNode1D(&inside, graph, &join, 1, other, device, BYTES, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphAddMemcpyNode1D(&copy_out, graph, &inside, 1, out, other, BYTES, cudaMemcpyDeviceToHost));
    cudaHostNodeParams function = {count_call, out};
    CHECK(cudaGraphAddHostNode(&host, graph, &copy_out, 1, &function));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    calls = seen_sum = 0;
    unsigned want_sum = 0;
    for (unsigned n = 0; n < 5; n++) {
        for (unsigned i = 0; i < COUNT; i++)
            in[i] = i * 17 + n;
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < COUNT; i++)
            EXPECT_EQ(out[i], (i * 17 + n) * 3 + 8);
        want_sum += (17 + n) * 3 + 8;
        EXPECT_EQ(calls, n + 1);
        EXPECT_EQ(seen_sum, want_sum);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFree(device));
    CHECK(cudaFree(other));
    if (is_pinned) {
        CHECK(cudaFreeHost(in));
        CHECK(cudaFreeHost(out));
    } else {
        free(in);
        free(out);
    }
}

/* Boxes: rows with gaps on both sides, and a fill of one. */
static void boxes(cudaStream_t stream)
{
    static unsigned char in[HEIGHT * WIDTH], out[HEIGHT * PITCH];
    unsigned char *device;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t fill, copy_in, copy_out;
    size_t pitch;
    CHECK(cudaMallocPitch((void **)&device, &pitch, WIDTH, HEIGHT));
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams set = {};
    set.dst = device;
    set.pitch = pitch;
    set.value = 0x55;
    set.elementSize = 1;
    set.width = WIDTH;
    set.height = HEIGHT;
    CHECK(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &set));
    cudaMemcpy3DParms params = {};
    params.srcPtr = make_cudaPitchedPtr(in, WIDTH, WIDTH, HEIGHT);
    params.dstPtr = make_cudaPitchedPtr(device, pitch, WIDTH, HEIGHT);
    params.extent = make_cudaExtent(WIDTH / 2, HEIGHT - 1, 1);
    params.kind = cudaMemcpyHostToDevice;
    CHECK(cudaGraphAddMemcpyNode(&copy_in, graph, &fill, 1, &params));
    params = {};
    params.srcPtr = make_cudaPitchedPtr(device, pitch, WIDTH, HEIGHT);
    params.dstPtr = make_cudaPitchedPtr(out, PITCH, WIDTH, HEIGHT);
    params.extent = make_cudaExtent(WIDTH, HEIGHT, 1);
    params.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaGraphAddMemcpyNode(&copy_out, graph, &copy_in, 1, &params));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int n = 0; n < 3; n++) {
        for (int i = 0; i < HEIGHT * WIDTH; i++)
            in[i] = (unsigned char)(i * 7 + n);
        memset(out, 0xee, sizeof out);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < PITCH; x++) {
                int want = x >= WIDTH ? 0xee : x < WIDTH / 2 && y < HEIGHT - 1 ? (y * WIDTH + x) * 7 + n : 0x55;
                EXPECT_EQ(out[y * PITCH + x], want & 0xff);
            }
    }
    cudaMemcpy3DParms told;
    CHECK(cudaGraphMemcpyNodeGetParams(copy_out, &told));
    EXPECT(told.dstPtr.ptr == out && told.srcPtr.ptr == device && told.extent.width == WIDTH &&
           told.extent.height == HEIGHT);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(device));
}

/* What a graph tells of itself, and what its clone does. */
static void questions(unsigned *device)
{
    cudaGraph_t graph, clone;
    cudaGraphNode_t a, b, c, empty, nodes[8], from[8], to[8], found;
    size_t count = 8;
    CHECK(cudaGraphCreate(&graph, 0));
    a = kernel_node(graph, NULL, device, 1, 1);
    b = kernel_node(graph, a, device, 2, 0);
    c = kernel_node(graph, a, device, 3, 0);
    cudaGraphNode_t both[] = {b, c};
    CHECK(cudaGraphAddEmptyNode(&empty, graph, both, 2));
    CHECK(cudaGraphGetNodes(graph, NULL, &count));
    EXPECT_EQ(count, 4);
    count = 8;
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    EXPECT(count == 4 && nodes[0] == a && nodes[3] == empty);
    count = 8;
    CHECK(cudaGraphGetRootNodes(graph, nodes, &count));
    EXPECT(count == 1 && nodes[0] == a);
    count = 8;
    CHECK(cudaGraphGetEdges(graph, from, to, NULL, &count));
    EXPECT_EQ(count, 4);
    count = 8;
    CHECK(cudaGraphNodeGetDependencies(empty, nodes, NULL, &count));
    EXPECT(count == 2 && nodes[0] == b && nodes[1] == c);
    count = 8;
    CHECK(cudaGraphNodeGetDependentNodes(a, nodes, NULL, &count));
    EXPECT(count == 2 && nodes[0] == b && nodes[1] == c);
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(empty, &type));
    EXPECT_EQ(type, cudaGraphNodeTypeEmpty);
    cudaKernelNodeParams params;
    CHECK(cudaGraphKernelNodeGetParams(b, &params));
    EXPECT(params.func == (void *)multiply_add && params.blockDim.x == 256 &&
           *(unsigned *)params.kernelParams[2] == 2 && *(unsigned **)params.kernelParams[0] == device);
    CHECK(cudaGraphClone(&clone, graph));
    CHECK(cudaGraphNodeFindInClone(&found, b, clone));
    EXPECT(found != b);
    CHECK(cudaGraphNodeGetType(found, &type));
    EXPECT_EQ(type, cudaGraphNodeTypeKernel);
    CHECK(cudaGraphRemoveDependencies(graph, &b, &empty, NULL, 1));
    EXPECT_ERR(cudaGraphRemoveDependencies(graph, &b, &empty, NULL, 1), cudaErrorInvalidValue);
    CHECK(cudaGraphDestroyNode(c));
    count = 8;
    CHECK(cudaGraphGetEdges(graph, from, to, NULL, &count));
    EXPECT(count == 1 && from[0] == a && to[0] == b);
    count = 8;
    CHECK(cudaGraphGetEdges(clone, from, to, NULL, &count));
    EXPECT_EQ(count, 4);
    /* A cycle cannot be instantiated. */
    cudaGraphExec_t exec;
    CHECK(cudaGraphAddDependencies(graph, &b, &a, NULL, 1));
    EXPECT_ERR(cudaGraphInstantiate(&exec, graph, 0), cudaErrorInvalidValue);
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphDestroy(graph));
}

static unsigned run(cudaGraphExec_t exec, cudaStream_t stream, unsigned *device)
{
    unsigned value;
    CHECK(cudaMemsetAsync(device, 0, BYTES, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(&value, device + 5, sizeof value, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return value;
}

/* ((0 + 1) · 2 + 5), with each of these changed after it was instantiated. */
static void updates(cudaStream_t stream, unsigned *device)
{
    cudaGraph_t graph, other, child;
    cudaGraphExec_t exec;
    cudaGraphNode_t a, b, in_child, parent;
    cudaGraphExecUpdateResultInfo info;
    unsigned enabled;
    CHECK(cudaGraphCreate(&graph, 0));
    a = kernel_node(graph, NULL, device, 1, 1);
    b = kernel_node(graph, a, device, 2, 5);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT_EQ(run(exec, stream, device), 7);
    unsigned factor = 10, term = 3;
    int count = COUNT;
    void *args[] = {&device, &count, &factor, &term};
    cudaKernelNodeParams params;
    CHECK(cudaGraphKernelNodeGetParams(b, &params));
    params.kernelParams = args;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, b, &params));
    EXPECT_EQ(run(exec, stream, device), 13);
    CHECK(cudaGraphNodeSetEnabled(exec, a, 0));
    CHECK(cudaGraphNodeGetEnabled(exec, a, &enabled));
    EXPECT_EQ(enabled, 0);
    EXPECT_EQ(run(exec, stream, device), 3);
    CHECK(cudaGraphNodeSetEnabled(exec, a, 1));
    EXPECT_EQ(run(exec, stream, device), 13);
    /* The graph is as it was; an update brings that back, or something else of the same form. */
    CHECK(cudaGraphExecUpdate(exec, graph, &info));
    EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
    EXPECT_EQ(run(exec, stream, device), 7);
    CHECK(cudaGraphCreate(&other, 0));
    cudaGraphNode_t x = kernel_node(other, NULL, device, 1, 4);
    EXPECT_ERR(cudaGraphExecUpdate(exec, other, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    kernel_node(other, x, device, 6, 1);
    CHECK(cudaGraphExecUpdate(exec, other, &info));
    EXPECT_EQ(run(exec, stream, device), 25);
    CHECK(cudaGraphExecDestroy(exec));
    /* A child graph is a copy, which a change of the original does not reach. */
    CHECK(cudaGraphCreate(&child, 0));
    in_child = kernel_node(child, NULL, device, 1, 9);
    CHECK(cudaGraphAddChildGraphNode(&parent, graph, &b, 1, child));
    cudaGraph_t owned;
    CHECK(cudaGraphChildGraphNodeGetGraph(parent, &owned));
    EXPECT(owned != child);
    kernel_node(graph, parent, device, 2, 0);
    CHECK(cudaGraphKernelNodeSetParams(in_child, &params));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT_EQ(run(exec, stream, device), (7 + 9) * 2);
    CHECK(cudaGraphExecChildGraphNodeSetParams(exec, parent, child));
    EXPECT_EQ(run(exec, stream, device), (7 * 10 + 3) * 2);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
    CHECK(cudaGraphDestroy(child));
}

/* An event that is recorded by each launch, and one that each launch waits for. */
static void events(cudaStream_t stream, unsigned *device)
{
    cudaEvent_t done, go;
    cudaStream_t other;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t wait, work, record;
    unsigned value;
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&go, cudaEventDisableTiming));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEventWaitNode(&wait, graph, NULL, 0, go));
    work = kernel_node(graph, wait, device, 2, 1);
    CHECK(cudaGraphAddEventRecordNode(&record, graph, &work, 1, done));
    cudaEvent_t told;
    CHECK(cudaGraphEventRecordNodeGetEvent(record, &told));
    EXPECT(told == done);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaMemset(device, 0, BYTES));
    for (unsigned n = 0, want = 0; n < 4; n++) {
        CHECK(cudaMemsetAsync(device, (int)n, BYTES, other));
        CHECK(cudaEventRecord(go, other));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamWaitEvent(other, done, 0));
        CHECK(cudaMemcpyAsync(&value, device + 3, sizeof value, cudaMemcpyDeviceToHost, other));
        CHECK(cudaStreamSynchronize(other));
        want = n * 0x01010101u * 2 + 1;
        EXPECT_EQ(value, want);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(done));
    CHECK(cudaEventDestroy(go));
    CHECK(cudaStreamDestroy(other));
}

static void note(void *user)
{
    ++*(int *)user;
}

static void user_objects(void)
{
    int freed = 0;
    cudaUserObject_t object;
    cudaGraph_t graph, clone;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaUserObjectCreate(&object, &freed, note, 1, cudaUserObjectNoDestructorSync));
    CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    CHECK(cudaGraphClone(&clone, graph));
    CHECK(cudaGraphDestroy(graph));
    EXPECT_EQ(freed, 0);
    CHECK(cudaGraphDestroy(clone));
    for (int i = 0; i < 1000 && !*(volatile int *)&freed; i++)
        usleep(1000);
    EXPECT_EQ(freed, 1);
}

__constant__ unsigned constants[4] = {1, 2, 3, 4};

__global__ void read_constants(unsigned *to)
{
    to[threadIdx.x] = constants[threadIdx.x];
}

/* A constant that nodes fill and copy, and a kernel behind them reads. */
static void constant_memory(cudaStream_t stream, unsigned *device)
{
    cudaMemsetParams fill = {};
    cudaKernelNodeParams kernel = {};
    void *address, *args[] = {&device};
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    unsigned host = 7, got[4];
    const unsigned want[] = {7, 0x05050505, 0x05050505, 4};
    CHECK(cudaGetSymbolAddress(&address, constants));
    CHECK(cudaGraphCreate(&graph, 0));
    fill.dst = (unsigned *)address + 1;
    fill.value = 5;
    fill.elementSize = 1;
    fill.width = 2 * sizeof *got;
    fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&node, graph, NULL, 0, &fill));
    CHECK(cudaGraphAddMemcpyNodeToSymbol(&node, graph, &node, 1, constants, &host, sizeof host, 0,
                                         cudaMemcpyHostToDevice));
    kernel.func = (void *)read_constants;
    kernel.gridDim = dim3(1);
    kernel.blockDim = dim3(4);
    kernel.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&node, graph, &node, 1, &kernel));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(got, device, sizeof got, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < 4; i++)
        EXPECT_EQ(got[i], want[i]);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* A node behind very many, and a child graph with as many ends. */
static void many_edges(cudaStream_t stream, unsigned *device)
{
    enum { MANY = 70000 };
    cudaGraphNode_t *many = (cudaGraphNode_t *)malloc(MANY * sizeof *many), node;
    cudaGraph_t graph, child;
    cudaGraphExec_t exec;
    unsigned got;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));
    cudaGraphNode_t first = kernel_node(graph, NULL, device, 0, 3);
    for (int i = 0; i < MANY; i++)
        CHECK(cudaGraphAddEmptyNode(&many[i], graph, &first, 1));
    for (int i = 0; i < MANY; i++)
        CHECK(cudaGraphAddEmptyNode(&node, child, NULL, 0));
    kernel_node(child, NULL, device, 2, 1);
    CHECK(cudaGraphAddChildGraphNode(&node, graph, many, MANY, child));
    kernel_node(graph, node, device, 5, 2);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(&got, device + 5, sizeof got, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(got, (3 * 2 + 1) * 5 + 2);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(child));
    CHECK(cudaGraphDestroy(graph));
    free(many);
}

int main(void)
{
    cudaStream_t stream;
    unsigned *device;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc((void **)&device, BYTES));
    round_trip(stream, true);
    round_trip(stream, false);
    boxes(stream);
    questions(device);
    updates(stream, device);
    events(stream, device);
    user_objects();
    constant_memory(stream, device);
    many_edges(stream, device);
    printf("ok\n");
    return 0;
}
