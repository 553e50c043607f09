// Graphs whose host does something between what sets a condition and the conditional node that reads it: host
// functions, event nodes, copies of host memory, captured calls of cuBLAS; conditions that are set again on the way, in
// bodies, or behind the node that reads them; and all that after a reset of the device.
// nvcc: -lcublas
#include <cublas_v2.h>
#include "conditional.h"

static cudaGraphNode_t host_node(cudaGraph_t graph, cudaGraphNode_t before, cudaHostFn_t function, void *user)
{
    cudaHostNodeParams params = {function, user};
    cudaGraphNode_t node;
    CHECK(cudaGraphAddHostNode(&node, graph, &before, before ? 1 : 0, &params));
    return node;
}

static void count_call(void *user)
{
    (*(unsigned *)user)++;
}

/* Sets the condition where the word is one of those that say so: values above 99, less 100. */
__global__ void decide_again(cudaGraphConditionalHandle handle, const unsigned *word)
{
    if (*word > 99)
        cudaGraphSetConditional(handle, *word - 100);
}

static cudaGraphNode_t decide_again_node(cudaGraph_t graph, cudaGraphNode_t before, cudaGraphConditionalHandle handle,
                                         unsigned place)
{
    const unsigned *word = words + place;
    void *args[] = {&handle, &word};
    return kernel_node(graph, before, (void *)decide_again, args);
}

/* IF with two bodies, and SWITCH, behind a function of the host's that sees the launch; what it writes to is copied. */
static void choices(cudaStream_t stream)
{
    enum { CASES = 4 };
    cudaGraph_t graph, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    unsigned *calls;
    CHECK(cudaMallocHost((void **)&calls, sizeof *calls));
    *calls = 0;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle one = new_handle(graph, 0, 0), many = new_handle(graph, 0, 0);
    node = decide_node(graph, NULL, one, 0);
    node = decide_node(graph, node, many, 1);
    node = host_node(graph, node, count_call, calls);
    node = copy_node(graph, node, words + 2, calls, 4);
    bodies = conditional_node(graph, node, one, cudaGraphCondTypeIf, 2, NULL);
    add_node(bodies[0], NULL, 3, 10);
    add_node(bodies[1], NULL, 3, 20);
    bodies = conditional_node(graph, node, many, cudaGraphCondTypeSwitch, CASES, NULL);
    for (unsigned i = 0; i < CASES; i++)
        add_node(bodies[i], NULL, 4, 100 + i);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (unsigned n = 0; n < 3 * (CASES + 2); n++) {
        const unsigned decided = n % 3 * 1000, value = n % (CASES + 2);
        const unsigned in[WORDS] = {decided, value};
        const unsigned want[WORDS] = {decided, value, n + 1, decided ? 10u : 20u, value < CASES ? 100 + value : 0};
        expect_words(exec, stream, in, want);
        EXPECT_EQ(*calls, n + 1);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFreeHost(calls));
}

/* A loop behind event nodes; the next launches come into a stream of their own, and wait for the event. */
static void loop_behind_events(cudaStream_t stream)
{
    cudaGraph_t graph, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    cudaEvent_t recorded, other;
    CHECK(cudaEventCreateWithFlags(&recorded, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&other, cudaEventDisableTiming));
    CHECK(cudaEventRecord(other, stream));
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle loop = new_handle(graph, 0, 0);
    node = decide_node(graph, NULL, loop, 0);
    CHECK(cudaGraphAddEventRecordNode(&node, graph, &node, 1, recorded));
    CHECK(cudaGraphAddEventWaitNode(&node, graph, &node, 1, other));
    bodies = conditional_node(graph, node, loop, cudaGraphCondTypeWhile, 1, &node);
    count_down_node(bodies[0], add_node(bodies[0], NULL, 1, 3), 0, loop);
    add_node(graph, node, 2, 1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (unsigned n = 0; n < 5; n++) {
        const unsigned in[WORDS] = {n}, want[WORDS] = {0, 3 * n, 1};
        expect_words(exec, stream, in, want);
        CHECK(cudaEventQuery(recorded));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaEventDestroy(recorded));
    CHECK(cudaEventDestroy(other));
}

/* Set, and perhaps again, and perhaps in a body, with the host between all of these; the default holds until then. */
static void set_again(cudaStream_t stream)
{
    cudaGraph_t graph, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    unsigned calls = 0;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle wanted = new_handle(graph, 5, cudaGraphCondAssignDefault),
                               when = new_handle(graph, 0, 0);
    node = decide_again_node(graph, NULL, wanted, 0);
    node = host_node(graph, node, count_call, &calls);
    node = decide_again_node(graph, node, wanted, 1);
    node = decide_node(graph, node, when, 2);
    node = host_node(graph, node, count_call, &calls);
    bodies = conditional_node(graph, node, when, cudaGraphCondTypeIf, 1, &node);
    decide_node(bodies[0], NULL, wanted, 3);
    node = host_node(graph, node, count_call, &calls);
    bodies = conditional_node(graph, node, wanted, cudaGraphCondTypeSwitch, 8, &node);
    for (unsigned i = 0; i < 8; i++)
        add_node(bodies[i], NULL, 4, 10 + i);
    node = host_node(graph, node, count_call, &calls);
    node = decide_node(graph, node, wanted, 3); /* nobody reads that any more */
    add_node(graph, node, 5, 1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (unsigned n = 0; n < 8; n++) {
        const unsigned first = n & 1 ? 101 : 0, second = n & 2 ? 102 : 0, is_in_body = n & 4;
        const unsigned value = is_in_body ? 3 : second ? 2 : first ? 1 : 5;
        const unsigned in[WORDS] = {first, second, is_in_body, 3};
        const unsigned want[WORDS] = {first, second, is_in_body, 3, 10 + value, 1};
        expect_words(exec, stream, in, want);
        EXPECT_EQ(calls, 4 * (n + 1));
    }
    CHECK(cudaGraphExecDestroy(exec));
}

#define CHECK_BLAS(call)                                                                                               \
    do {                                                                                                               \
        cublasStatus_t got_ = (call);                                                                                  \
        if (got_ != CUBLAS_STATUS_SUCCESS)                                                                             \
            fail_at(__FILE__, __LINE__, #call, " got %d", (int)got_);                                                  \
    } while (0)

/* Captured: a kernel sets, cuBLAS multiplies, the host is told, and a loop runs as often as was set. */
static void captured_library(cudaStream_t stream)
{
    enum { N = 4 };
    const float factor = 2;
    float vector[N], *device_vector;
    cublasHandle_t blas;
    cudaStreamCaptureStatus status;
    cudaGraph_t graph, same, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    const cudaGraphNode_t *ends;
    const cudaGraphEdgeData *edges;
    size_t count;
    unsigned calls = 0;
    CHECK(cudaMalloc((void **)&device_vector, sizeof vector));
    CHECK_BLAS(cublasCreate(&blas));
    CHECK_BLAS(cublasSetStream(blas, stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaStreamGetCaptureInfo(stream, &status, NULL, &graph, &ends, &edges, &count));
    cudaGraphConditionalHandle loop = new_handle(graph, 0, 0);
    decide<<<1, 1, 0, stream>>>(loop, words);
    CHECK_BLAS(cublasSscal(blas, N, &factor, device_vector, 1));
    CHECK(cudaLaunchHostFunc(stream, count_call, &calls));
    CHECK(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &ends, &edges, &count));
    EXPECT_EQ(count, 1);
    bodies = conditional_node(graph, ends[0], loop, cudaGraphCondTypeWhile, 1, &node);
    count_down_node(bodies[0], add_node(bodies[0], NULL, 1, 1), 0, loop);
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &node, NULL, 1, cudaStreamSetCaptureDependencies));
    CHECK_BLAS(cublasSscal(blas, N, &factor, device_vector, 1));
    CHECK(cudaStreamEndCapture(stream, &same));
    CHECK(cudaGraphInstantiate(&exec, same, 0));
    CHECK(cudaGraphDestroy(same));
    for (unsigned n = 0; n < 4; n++) {
        const unsigned in[WORDS] = {n}, want[WORDS] = {0, n};
        for (int i = 0; i < N; i++)
            vector[i] = (float)(i + n);
        CHECK(cudaMemcpyAsync(device_vector, vector, sizeof vector, cudaMemcpyHostToDevice, stream));
        expect_words(exec, stream, in, want);
        CHECK(cudaMemcpy(vector, device_vector, sizeof vector, cudaMemcpyDeviceToHost));
        for (int i = 0; i < N; i++)
            EXPECT(vector[i] == 4 * (float)(i + n), "%f at %d", vector[i], i);
        EXPECT_EQ(calls, n + 1);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK_BLAS(cublasDestroy(blas));
    CHECK(cudaFree(device_vector));
}

/* Between a kernel that sets a condition and the node that reads it, host memory is copied both ways and filled. */
static void copies_between(cudaStream_t stream)
{
    cudaGraph_t graph, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    unsigned *host;
    CHECK(cudaMallocHost((void **)&host, 4 * sizeof *host));
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle = new_handle(graph, 0, 0);
    node = decide_node(graph, NULL, handle, 0);
    node = copy_node(graph, node, host, words, 4);
    node = copy_node(graph, node, words + 2, host + 1, 4);
    cudaMemsetParams fill = {};
    fill.dst = host + 2;
    fill.value = 9;
    fill.elementSize = 4;
    fill.width = fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&node, graph, &node, 1, &fill));
    bodies = conditional_node(graph, node, handle, cudaGraphCondTypeIf, 1, NULL);
    add_node(bodies[0], NULL, 1, 1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (unsigned n = 0; n < 4; n++) {
        const unsigned in[WORDS] = {n % 2}, want[WORDS] = {n % 2, n % 2, 40 + n};
        host[0] = 77;
        host[1] = 40 + n;
        host[2] = host[3] = n;
        expect_words(exec, stream, in, want);
        EXPECT_EQ(host[0], n % 2);
        EXPECT_EQ(host[1], 40 + n);
        EXPECT_EQ(host[2], 9);
        EXPECT_EQ(host[3], n);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFreeHost(host));
}

int main(void)
{
    cudaStream_t stream;
    CHECK(cudaMalloc((void **)&words, WORDS * sizeof(*words)));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    choices(stream);
    loop_behind_events(stream);
    set_again(stream);
    captured_library(stream);
    copies_between(stream);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(words));
    /* What was made for it has gone with the context. */
    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc((void **)&words, WORDS * sizeof(*words)));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    choices(stream);
    set_again(stream);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(words));
    return 0;
}
