// Streams that are captured: work that becomes a graph, forks and joins by events, copies of host memory that is read
// and written at every launch, the way in which frameworks replay a step with changed input, captures into a graph that
// is there already, what a capture tells of itself, and priorities of streams.
#include "check.h"

enum { COUNT = 50000, BYTES = COUNT * 4 };

__global__ void affine(const float *in, float *out, int count, float factor, float term)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = in[i] * factor + term;
}

__global__ void add(const float *a, const float *b, float *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = a[i] + b[i];
}

static const dim3 grid((COUNT + 255) / 256), block(256);
static float *in, *left, *right, *out;

static void step(cudaStream_t main_stream, cudaStream_t side, cudaEvent_t fork, cudaEvent_t join)
{
    CHECK(cudaEventRecord(fork, main_stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    affine<<<grid, block, 0, main_stream>>>(in, left, COUNT, 2, 1);
    affine<<<grid, block, 0, side>>>(in, right, COUNT, 3, -1);
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(main_stream, join, 0));
    add<<<grid, block, 0, main_stream>>>(left, right, out, COUNT);
}

/* Warm-up on a side stream, capture there, and replays with input that is copied into the same place. */
static void replay(cudaStream_t stream, cudaStream_t side, cudaStreamCaptureMode mode)
{
    static float host[COUNT], result[COUNT];
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    for (int i = 0; i < 3; i++)
        step(stream, side, fork, join);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(stream, mode));
    step(stream, side, fork, join);
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(side, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaStreamIsCapturing(side, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    size_t count = 0;
    CHECK(cudaGraphGetNodes(graph, NULL, &count));
    EXPECT_EQ(count, 3);
    CHECK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &count));
    EXPECT_EQ(count, 2);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, stream));
    for (int n = 0; n < 4; n++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = (float)(i % 1000 + n);
        CHECK(cudaMemcpyAsync(in, host, BYTES, cudaMemcpyHostToDevice, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemcpyAsync(result, out, BYTES, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < COUNT; i++)
            EXPECT(result[i] == host[i] * 5, "at %d: %f of %f", i, result[i], host[i]);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
}

static int calls;

static void change(void *user)
{
    float *values = (float *)user;
    for (int i = 0; i < COUNT; i++)
        values[i] += 1;
    calls++;
}

/* Host memory that changes between the copy that brings it and the one that takes it back: pinned memory by a host
 * function within the graph. What is pageable is read when the graph is launched, so the program changes it between
 * launches. */
static void through_host(cudaStream_t stream, bool is_pinned)
{
    float *host, first;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (is_pinned)
        CHECK(cudaMallocHost((void **)&host, BYTES));
    else
        host = (float *)malloc(BYTES);
    CHECK(cudaMemset(in, 0, BYTES));
    memset(host, 0, BYTES);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (!is_pinned)
        CHECK(cudaMemcpyAsync(in, host, BYTES, cudaMemcpyHostToDevice, stream));
    affine<<<grid, block, 0, stream>>>(in, in, COUNT, 2, 0);
    CHECK(cudaMemcpyAsync(host, in, BYTES, cudaMemcpyDeviceToHost, stream));
    if (is_pinned) {
        CHECK(cudaLaunchHostFunc(stream, change, host));
        CHECK(cudaMemcpyAsync(in, host, BYTES, cudaMemcpyHostToDevice, stream));
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    calls = 0;
    float want = 0;
    for (int n = 0; n < 6; n++) {
        CHECK(cudaGraphLaunch(exec, stream));
        if (!is_pinned) {
            CHECK(cudaStreamSynchronize(stream));
            change(host);
        }
        want = want * 2 + 1;
    }
    CHECK(cudaMemcpyAsync(&first, in + COUNT - 1, sizeof first, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(calls, 6);
    EXPECT(first + !is_pinned == want && host[17] == want, "%f and %f, not %f", first, host[17], want);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    if (is_pinned)
        CHECK(cudaFreeHost(host));
    else
        free(host);
}

/* A second capture into the graph of the first, a graph in a graph, and what is told while it goes on. An executable
 * graph is not captured. */
static void nested(cudaStream_t stream)
{
    cudaGraph_t graph, outer, told;
    cudaGraphExec_t exec, outer_exec;
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *ends;
    cudaGraphNode_t nodes[4], mine;
    unsigned long long id = 0;
    size_t count;
    float value;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, cudaStreamCaptureModeRelaxed));
    affine<<<grid, block, 0, stream>>>(in, in, COUNT, 1, 1);
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &told, &ends, NULL, &count));
    EXPECT(status == cudaStreamCaptureStatusActive && id && told == graph && count == 1);
    /* A node of the program's own is put between two of the stream's. */
    CHECK(cudaGraphAddEmptyNode(&mine, graph, ends, count));
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &mine, NULL, 1, cudaStreamSetCaptureDependencies));
    affine<<<grid, block, 0, stream>>>(in, in, COUNT, 10, 0);
    CHECK(cudaStreamEndCapture(stream, &told));
    EXPECT(told == graph);
    count = 4;
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    EXPECT_EQ(count, 3);
    CHECK(cudaStreamBeginCaptureToGraph(stream, graph, &nodes[2], NULL, 1, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpyAsync(out, in, BYTES, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamEndCapture(stream, &told));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    EXPECT_ERR(cudaGraphLaunch(exec, stream), cudaErrorStreamCaptureUnsupported);
    EXPECT_ERR(cudaStreamEndCapture(stream, &outer), cudaErrorStreamCaptureInvalidated);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(in, 0, BYTES, stream));
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &told, &ends, NULL, &count));
    CHECK(cudaGraphAddChildGraphNode(&nodes[0], told, ends, count, graph));
    CHECK(cudaGraphAddChildGraphNode(&nodes[1], told, nodes, 1, graph));
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &nodes[1], NULL, 1, cudaStreamSetCaptureDependencies));
    CHECK(cudaStreamEndCapture(stream, &outer));
    CHECK(cudaGraphInstantiate(&outer_exec, outer, 0));
    for (int n = 0; n < 2; n++) {
        CHECK(cudaMemset(out, 0, BYTES));
        CHECK(cudaGraphLaunch(outer_exec, stream));
        CHECK(cudaMemcpyAsync(&value, out + 5, sizeof value, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(value == 110, "%f", value);
    }
    CHECK(cudaGraphExecDestroy(outer_exec));
    CHECK(cudaGraphDestroy(outer));
    CHECK(cudaGraphDestroy(graph));
}

/* Launches of one executable graph do not overlap, in whatever streams they are. */
static void two_streams(cudaStream_t one, cudaStream_t two)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float value;
    CHECK(cudaMemset(in, 0, BYTES));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 50; i++)
        affine<<<grid, block, 0, one>>>(in, in, COUNT, 1, 1);
    CHECK(cudaStreamEndCapture(one, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int n = 0; n < 8; n++)
        CHECK(cudaGraphLaunch(exec, n % 2 ? two : one));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&value, in + COUNT / 2, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == 400, "%f", value);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* An update does not change whether a kernel is cooperative, and no priority where that counts, as in `by_priority`. */
static void attributes_stay(cudaGraph_t graph, cudaGraphExec_t by_priority, cudaGraphNode_t node)
{
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    cudaLaunchAttributeValue value = {}, old;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributePriority, &old));
    CHECK(cudaDeviceGetStreamPriorityRange(&value.priority, NULL));
    value.priority = old.priority ? 0 : value.priority - 1;
    CHECK(cudaGraphExecUpdate(by_priority, graph, &info));
    CHECK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributePriority, &value));
    CHECK(cudaGraphExecUpdate(exec, graph, &info));
    EXPECT_ERR(cudaGraphExecUpdate(by_priority, graph, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQ(info.result, cudaGraphExecUpdateErrorAttributesChanged);
    CHECK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributePriority, &old));
    memset(&value, 0, sizeof value);
    value.cooperative = 1;
    CHECK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeCooperative, &value));
    EXPECT_ERR(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT(info.result != cudaGraphExecUpdateSuccess, "it is cooperative now");
    CHECK(cudaGraphExecDestroy(exec));
}

/* Kernels have the priority of the stream that they were captured in, and a graph may be instantiated to run by them.
 */
static void priorities(void)
{
    enum { LAUNCHES = 3 };
    static float host[COUNT];
    int least, greatest;
    cudaStream_t first, plain;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t nodes[2];
    cudaLaunchAttributeValue value = {};
    cudaEvent_t fork, join;
    unsigned long long flags = 0;
    size_t count = 2;
    bool is_seen[2] = {};
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, greatest));
    CHECK(cudaStreamCreateWithFlags(&plain, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaMemset(left, 0, BYTES));
    CHECK(cudaMemset(right, 0, BYTES));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(plain, cudaStreamCaptureModeGlobal));
    CHECK(cudaEventRecord(fork, plain));
    CHECK(cudaStreamWaitEvent(first, fork, 0));
    affine<<<grid, block, 0, first>>>(left, left, COUNT, 2, 1);
    affine<<<grid, block, 0, plain>>>(right, right, COUNT, 3, 1);
    CHECK(cudaEventRecord(join, first));
    CHECK(cudaStreamWaitEvent(plain, join, 0));
    CHECK(cudaStreamEndCapture(plain, &graph));
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    EXPECT_EQ(count, 2u);
    for (int i = 0; i < 2; i++) {
        CHECK(cudaGraphKernelNodeGetAttribute(nodes[i], cudaLaunchAttributePriority, &value));
        EXPECT(value.priority == greatest || value.priority == 0, "priority %d", value.priority);
        is_seen[value.priority == 0] = true;
    }
    EXPECT(is_seen[0] && is_seen[1], "one of each");
    CHECK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority));
    CHECK(cudaGraphExecGetFlags(exec, &flags));
    EXPECT_EQ(flags, 0ull); /* that flag is not told */
    for (int i = 0; i < LAUNCHES; i++)
        CHECK(cudaGraphLaunch(exec, plain));
    CHECK(cudaStreamSynchronize(plain));
    CHECK(cudaMemcpy(host, left, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(host[i], 7.0f); /* 1, 3, 7 */
    CHECK(cudaMemcpy(host, right, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(host[i], 13.0f); /* 1, 4, 13 */
    attributes_stay(graph, exec, nodes[0]);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(plain));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
}

int main(void)
{
    cudaStream_t stream, side, blocking;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaMalloc((void **)&in, BYTES));
    CHECK(cudaMalloc((void **)&left, BYTES));
    CHECK(cudaMalloc((void **)&right, BYTES));
    CHECK(cudaMalloc((void **)&out, BYTES));
    replay(stream, side, cudaStreamCaptureModeGlobal);
    replay(blocking, side, cudaStreamCaptureModeThreadLocal);
    replay(side, blocking, cudaStreamCaptureModeRelaxed);
    through_host(stream, true);
    through_host(stream, false);
    nested(stream);
    two_streams(stream, side);
    priorities();
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaStreamDestroy(blocking));
    printf("ok\n");
    return 0;
}
