// Programmatic dependent launch: kernels that begin before those that they depend on have ended, and wait for them
// inside; in streams, in captures, which make edges with data of it, and in graphs made edge by edge; events that
// launches record by attributes.
// nvcc: -lcuda -gencode arch=compute_90,code=[compute_90,sm_90]
#include "check.h"
#include <cuda.h>

enum { COUNT = 1 << 16, BYTES = COUNT * 4, THREADS = 256, BLOCKS = COUNT / THREADS, STEPS = 8, LAUNCHES = 5 };

static unsigned *values, *others;

/* Whoever depends on it may begin at once; what it depends on has ended before it reads. */
__global__ void step(unsigned *to, const unsigned *from, unsigned factor, unsigned term)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    to[i] = from[i] * factor + term;
}

static void launch(cudaStream_t stream, unsigned *to, const unsigned *from, unsigned factor, unsigned term,
                   cudaLaunchAttribute *attribute)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(BLOCKS);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = attribute ? 1 : 0;
    CHECK(cudaLaunchKernelEx(&config, step, to, from, factor, term));
}

static cudaLaunchAttribute overlapping(void)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    return attribute;
}

static void expect_values(cudaStream_t stream, const unsigned *device, unsigned want)
{
    static unsigned host[COUNT];
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(host, device, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(host[i], want);
}

static void clear(cudaStream_t stream)
{
    CHECK(cudaMemsetAsync(values, 0, BYTES, stream));
    CHECK(cudaMemsetAsync(others, 0, BYTES, stream));
}

/* Of all edges, how many have that data. */
static size_t count_edges(cudaGraph_t graph, unsigned char type, unsigned char port)
{
    cudaGraphNode_t from[64], to[64];
    cudaGraphEdgeData data[64];
    size_t count = 64, found = 0;
    CHECK(cudaGraphGetEdges(graph, from, to, data, &count));
    for (size_t i = 0; i < count; i++)
        found += data[i].type == type && data[i].from_port == port && !data[i].to_port;
    return found;
}

static unsigned after_steps(unsigned value)
{
    for (unsigned i = 0; i < STEPS; i++)
        value = value * 3 + i;
    return value;
}

static void launch_steps(cudaStream_t stream)
{
    cudaLaunchAttribute attribute = overlapping();
    for (unsigned i = 0; i < STEPS; i++)
        launch(stream, values, values, 3, i, &attribute);
}

static void run(cudaStream_t stream, cudaGraph_t graph, const unsigned *device, unsigned (*next)(unsigned))
{
    cudaGraphExec_t exec;
    unsigned want = 0;
    clear(stream);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < LAUNCHES; i++) {
        CHECK(cudaGraphLaunch(exec, stream));
        want = next(want);
        expect_values(stream, device, want);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void in_streams_and_captures(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphNode_t from[64], to[64];
    size_t count = 64;
    clear(stream);
    launch_steps(stream);
    expect_values(stream, values, after_steps(0));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launch_steps(stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    EXPECT_EQ(count_edges(graph, cudaGraphDependencyTypeProgrammatic, cudaGraphKernelNodePortProgrammatic),
              (size_t)STEPS - 1);
    EXPECT_ERR(cudaGraphGetEdges(graph, from, to, NULL, &count), cudaErrorLossyQuery);
    run(stream, graph, values, after_steps);
}

static cudaGraphNode_t add_step(cudaGraph_t graph, unsigned term)
{
    const unsigned *from = values;
    unsigned factor = 3;
    void *args[] = {&values, &from, &factor, &term};
    cudaKernelNodeParams params = {};
    cudaGraphNode_t node;
    params.func = (void *)step;
    params.gridDim = dim3(BLOCKS);
    params.blockDim = dim3(THREADS);
    params.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&node, graph, NULL, 0, &params));
    return node;
}

/* Each edge is of a kind of its own, in turn. */
static void edge_by_edge(cudaStream_t stream)
{
    cudaGraphEdgeData kinds[3] = {}, wrong = {};
    cudaGraph_t graph, copy;
    cudaGraphNode_t nodes[STEPS], set;
    cudaMemsetParams set_params = {};
    kinds[1].type = kinds[2].type = cudaGraphDependencyTypeProgrammatic;
    kinds[1].from_port = cudaGraphKernelNodePortProgrammatic;
    kinds[2].from_port = cudaGraphKernelNodePortLaunchCompletion;
    CHECK(cudaGraphCreate(&graph, 0));
    for (unsigned i = 0; i < STEPS; i++) {
        nodes[i] = add_step(graph, i);
        if (i)
            CHECK(cudaGraphAddDependencies(graph, &nodes[i - 1], &nodes[i], &kinds[i % 3], 1));
    }
    EXPECT_EQ(count_edges(graph, cudaGraphDependencyTypeProgrammatic, cudaGraphKernelNodePortProgrammatic), 3u);
    EXPECT_EQ(count_edges(graph, cudaGraphDependencyTypeProgrammatic, cudaGraphKernelNodePortLaunchCompletion), 2u);
    EXPECT_EQ(count_edges(graph, cudaGraphDependencyTypeDefault, cudaGraphKernelNodePortDefault), 2u);
    CHECK(cudaGraphClone(&copy, graph));
    run(stream, copy, values, after_steps);
    /* A programmatic edge is one between kernels, from one of their ports. */
    set_params.dst = others;
    set_params.elementSize = 4;
    set_params.width = COUNT;
    set_params.height = 1;
    CHECK(cudaGraphAddMemsetNode(&set, graph, NULL, 0, &set_params));
    EXPECT_ERR(cudaGraphAddDependencies(graph, &nodes[0], &set, &kinds[1], 1), cudaErrorInvalidValue);
    EXPECT_ERR(cudaGraphAddDependencies(graph, &set, &nodes[0], &kinds[1], 1), cudaErrorInvalidValue);
    wrong.type = cudaGraphDependencyTypeProgrammatic;
    EXPECT_ERR(cudaGraphAddDependencies(graph, &nodes[0], &nodes[STEPS - 1], &wrong, 1), cudaErrorInvalidValue);
    CHECK(cudaGraphDestroy(graph));
}

/* One stream's kernel after another one's, by an event that the first launch records. */
static void launch_across(cudaStream_t stream, cudaStream_t second, cudaEvent_t event, cudaEvent_t join, bool at_start,
                          cudaLaunchAttribute *of_second)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticEvent;
    attribute.val.programmaticEvent.event = event;
    attribute.val.programmaticEvent.triggerAtBlockStart = at_start;
    launch(stream, values, values, 2, 1, &attribute);
    CHECK(cudaStreamWaitEvent(second, event, 0));
    launch(second, others, values, 5, 0, of_second);
    CHECK(cudaEventRecord(join, second));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
}

static unsigned after_across(unsigned value)
{
    return (value / 5 * 2 + 1) * 5;
}

/* The kernel in the other stream does not need what the first one does: it may begin when that one's blocks have. */
static void launch_beside(cudaStream_t stream, cudaStream_t second, cudaEvent_t event, cudaEvent_t join)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeLaunchCompletionEvent;
    attribute.val.launchCompletionEvent.event = event;
    launch(stream, values, values, 2, 1, &attribute);
    CHECK(cudaStreamWaitEvent(second, event, 0));
    launch(second, others, others, 5, 7, NULL);
    CHECK(cudaEventRecord(join, second));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
}

static unsigned after_beside(unsigned value)
{
    return value * 5 + 7;
}

static void events_of_launches(cudaStream_t stream)
{
    cudaStream_t second;
    cudaEvent_t event, join;
    cudaGraph_t graph;
    cudaLaunchAttribute attribute = overlapping();
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    clear(stream);
    launch_across(stream, second, event, join, false, &attribute);
    launch_across(stream, second, event, join, true, &attribute);
    CHECK(cudaEventSynchronize(event));
    expect_values(stream, others, after_across(after_across(0)));
    launch_beside(stream, second, event, join);
    expect_values(stream, others, after_beside(after_across(after_across(0))));
    expect_values(stream, values, 7);
    CHECK(cudaEventQuery(event));

    for (int at_start = 0; at_start < 2; at_start++) {
        const unsigned char port =
            at_start ? cudaGraphKernelNodePortLaunchCompletion : cudaGraphKernelNodePortProgrammatic;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        launch_across(stream, second, event, join, at_start, NULL);
        CHECK(cudaStreamEndCapture(stream, &graph));
        EXPECT_EQ(count_edges(graph, cudaGraphDependencyTypeProgrammatic, port), 1u);
        run(stream, graph, others, after_across);
    }

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launch_beside(stream, second, event, join);
    CHECK(cudaStreamEndCapture(stream, &graph));
    EXPECT_EQ(count_edges(graph, cudaGraphDependencyTypeDefault, cudaGraphKernelNodePortLaunchCompletion), 1u);
    run(stream, graph, others, after_beside);
    CHECK(cudaEventDestroy(event));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(second));
}

static cudaError_t try_launch(cudaStream_t stream, bool is_completion, cudaEvent_t event, int flags)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    attribute.id = is_completion ? cudaLaunchAttributeLaunchCompletionEvent : cudaLaunchAttributeProgrammaticEvent;
    if (is_completion) {
        attribute.val.launchCompletionEvent.event = event;
        attribute.val.launchCompletionEvent.flags = flags;
    } else {
        attribute.val.programmaticEvent.event = event;
        attribute.val.programmaticEvent.flags = flags;
    }
    config.gridDim = dim3(BLOCKS);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, step, values, (const unsigned *)values, 2u, 1u);
}

/* Such a launch does nothing; nor does one in a capture, which goes on without it. */
static void expect_refused(cudaStream_t stream, cudaEvent_t event, int flags, cudaError_t outside, cudaError_t captured)
{
    for (int is_completion = 0; is_completion < 2; is_completion++) {
        cudaGraph_t graph;
        size_t count = 9;
        EXPECT_ERR(try_launch(stream, is_completion, event, flags), outside);
        expect_values(stream, values, 0);
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        EXPECT_ERR(try_launch(stream, is_completion, event, flags), captured);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphGetNodes(graph, NULL, &count));
        EXPECT_EQ(count, 0u);
        CHECK(cudaGraphDestroy(graph));
    }
}

/* An event that a launch cannot record is found before the kernel is. */
static void events_that_launches_refuse(cudaStream_t stream)
{
    cudaEvent_t timed, own, other;
    CUcontext context, current;
    CUdevice device;
    CHECK_CU(cuCtxGetCurrent(&current));
    CHECK_CU(cuCtxGetDevice(&device));
    CHECK_CU(cuCtxCreate(&context, NULL, 0, device));
    CHECK_CU(cuEventCreate((CUevent *)&other, CU_EVENT_DISABLE_TIMING));
    CHECK_CU(cuCtxSetCurrent(current));
    CHECK(cudaEventCreate(&timed));
    CHECK(cudaEventCreateWithFlags(&own, cudaEventDisableTiming));
    clear(stream);
    expect_refused(stream, other, 0, cudaErrorInvalidResourceHandle, cudaErrorInvalidResourceHandle);
    expect_refused(stream, NULL, 0, cudaErrorInvalidResourceHandle, cudaErrorInvalidResourceHandle);
    expect_refused(stream, timed, 0, cudaErrorNotSupported, cudaErrorNotSupported);
    expect_refused(stream, own, 1, cudaErrorIllegalState, cudaErrorNotSupported);
    CHECK(try_launch(stream, true, own, 0));
    expect_values(stream, values, 1);
    CHECK(cudaEventDestroy(timed));
    CHECK(cudaEventDestroy(own));
    CHECK_CU(cuCtxDestroy(context));
    CHECK_CU(cuCtxSetCurrent(current));
}

int main(void)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&values, BYTES));
    CHECK(cudaMalloc((void **)&others, BYTES));
    in_streams_and_captures(stream);
    edge_by_edge(stream);
    events_that_launches_refuse(stream);
    events_of_launches(stream);
    CHECK(cudaFree(values));
    CHECK(cudaFree(others));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
