// Conditional nodes of graphs: IF with one body and two, WHILE, SWITCH, nested in each other; conditions that kernels
// set, in the graph, in bodies and in child graphs, and default ones; bodies made node by node and by capture; changes
// of executable graphs; host memory in bodies; what is refused.
// nvcc: -lcuda
#include <cuda.h>
#include <sched.h>
#include "conditional.h"

struct step {
    unsigned *word;
    unsigned rounds;
    cudaGraphConditionalHandle handle;
};

/* The same of a structure: the word counts up to a number of rounds. */
__global__ void count_up(step s)
{
    *s.word += 1;
    cudaGraphSetConditional(s.handle, *s.word % s.rounds != 0);
}

/* Word 0 decides about the bodies, which count in the others. */
static void choices(cudaStream_t stream)
{
    cudaGraph_t graph, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle one = new_handle(graph, 0, 0), two = new_handle(graph, 0, 0),
                               three = new_handle(graph, 0, 0);
    node = decide_node(graph, NULL, one, 0);
    bodies = conditional_node(graph, node, one, cudaGraphCondTypeIf, 1, NULL);
    add_node(bodies[0], NULL, 1, 10);
    node = decide_node(graph, NULL, two, 0);
    bodies = conditional_node(graph, node, two, cudaGraphCondTypeIf, 2, NULL);
    add_node(bodies[0], NULL, 2, 20);
    add_node(bodies[1], add_node(bodies[1], NULL, 2, 30), 3, 1);
    node = decide_node(graph, NULL, three, 0);
    bodies = conditional_node(graph, node, three, cudaGraphCondTypeSwitch, 3, &node);
    for (unsigned i = 0; i < 3; i++)
        add_node(bodies[i], NULL, 4 + i, 7);
    add_node(graph, node, 7, 1);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned value = 0; value < 5; value++) {
        const unsigned in[WORDS] = {value, 1, 1, 1, 1, 1, 1, 1};
        const unsigned want[WORDS] = {value,
                                      value ? 11u : 1u,
                                      value ? 21u : 31u,
                                      value ? 1u : 2u,
                                      value == 0 ? 8u : 1u,
                                      value == 1 ? 8u : 1u,
                                      value == 2 ? 8u : 1u,
                                      2};
        expect_words(exec, stream, in, want);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* A loop whose default value begins each launch, with all kinds of nodes in its body. */
static void loops(cudaStream_t stream)
{
    cudaGraph_t graph, child, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t node, last;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));
    add_node(child, add_node(child, NULL, 1, 1), 1, 2);
    cudaGraphConditionalHandle handle = new_handle(graph, 1, cudaGraphCondAssignDefault);
    bodies = conditional_node(graph, NULL, handle, cudaGraphCondTypeWhile, 1, &last);
    cudaMemsetParams fill = {};
    fill.dst = words + 2;
    fill.value = 5;
    fill.elementSize = 4;
    fill.width = 1;
    fill.height = 1;
    CHECK(cudaGraphAddChildGraphNode(&node, bodies[0], NULL, 0, child));
    CHECK(cudaGraphAddMemsetNode(&node, bodies[0], &node, 1, &fill));
    node = add_node(bodies[0], node, 2, 1);
    CHECK(cudaGraphAddMemcpyNode1D(&node, bodies[0], &node, 1, words + 3, words + 1, 4, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphAddEmptyNode(&node, bodies[0], &node, 1));
    count_down_node(bodies[0], node, 0, handle);
    add_node(graph, last, 4, 1);
    CHECK(cudaGraphDestroy(child));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned rounds = 1; rounds < 200; rounds = 3 * rounds + 1) {
        const unsigned in[WORDS] = {rounds, 0, 9, 9}, want[WORDS] = {0, 3 * rounds, 6, 3 * rounds, 1};
        expect_words(exec, stream, in, want);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* Captured: a kernel, a loop whose body is captured into it, and a choice in that; the handle is in a structure. */
static void captured(cudaStream_t stream)
{
    cudaStreamCaptureStatus status;
    cudaGraph_t graph, *outer, *inner;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    const cudaGraphNode_t *ends;
    const cudaGraphEdgeData *edges;
    cudaStream_t other;
    size_t count;
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    add<<<1, 1, 0, stream>>>(words, 100);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamGetCaptureInfo(stream, &status, NULL, &graph, &ends, &edges, &count));
    EXPECT_EQ(status, cudaStreamCaptureStatusActive);
    EXPECT_EQ(count, 1);
    cudaGraphConditionalHandle loop = new_handle(graph, 1, cudaGraphCondAssignDefault);
    outer = conditional_node(graph, ends[0], loop, cudaGraphCondTypeWhile, 1, &node);
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &node, NULL, 1, cudaStreamSetCaptureDependencies));
    add<<<1, 1, 0, stream>>>(words + 3, 1);
    CHECK(cudaStreamBeginCaptureToGraph(other, outer[0], NULL, NULL, 0, cudaStreamCaptureModeRelaxed));
    step s = {words + 1, 4, loop};
    count_up<<<1, 1, 0, other>>>(s);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamGetCaptureInfo(other, &status, NULL, NULL, &ends, &edges, &count));
    EXPECT_EQ(count, 1);
    cudaGraphConditionalHandle when = new_handle(graph, 1, cudaGraphCondAssignDefault);
    inner = conditional_node(outer[0], ends[0], when, cudaGraphCondTypeIf, 2, &node);
    CHECK(cudaStreamUpdateCaptureDependencies(other, &node, NULL, 1, cudaStreamSetCaptureDependencies));
    decide<<<1, 1, 0, other>>>(when, words + 4);
    cudaGraph_t same;
    CHECK(cudaStreamEndCapture(other, &same));
    EXPECT(same == outer[0], "a capture into a body is its graph");
    add_node(inner[0], NULL, 2, 1);
    add_node(inner[1], NULL, 2, 1000);
    CHECK(cudaStreamEndCapture(stream, &same));
    EXPECT(same == graph, "the capture's graph");
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        const unsigned in[WORDS] = {1, 0, 0, 0, 0}, want[WORDS] = {101, 4, 3001, 1, 0};
        expect_words(exec, stream, in, want);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(other));
}

/* Three deep, and what a body sets for another node's condition. */
static void nested(cudaStream_t stream)
{
    cudaGraph_t graph, *first, *second, *third, *after;
    cudaGraphExec_t exec;
    cudaGraphNode_t node, last;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle outer = new_handle(graph, 1, cudaGraphCondAssignDefault);
    cudaGraphConditionalHandle middle = new_handle(graph, 0, 0), deep = new_handle(graph, 0, 0);
    cudaGraphConditionalHandle later = new_handle(graph, 0, cudaGraphCondAssignDefault);
    first = conditional_node(graph, NULL, outer, cudaGraphCondTypeWhile, 1, &last);
    node = decide_node(first[0], add_node(first[0], NULL, 1, 2), middle, 1);
    second = conditional_node(first[0], node, middle, cudaGraphCondTypeWhile, 1, &node);
    count_down_node(first[0], node, 0, outer);
    node = count_down_node(second[0], NULL, 1, middle);
    node = decide_node(second[0], node, deep, 1);
    third = conditional_node(second[0], node, deep, cudaGraphCondTypeIf, 2, NULL);
    add_node(third[0], NULL, 2, 1);
    decide_node(third[1], add_node(third[1], NULL, 3, 1), later, 3);
    after = conditional_node(graph, last, later, cudaGraphCondTypeSwitch, 8, NULL);
    for (unsigned i = 0; i < 8; i++)
        add_node(after[i], NULL, 4, i * 100);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned rounds = 1; rounds < 8; rounds += 3) {
        const unsigned in[WORDS] = {rounds}, want[WORDS] = {0, 0, rounds, rounds, rounds * 100};
        expect_words(exec, stream, in, want);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* Work of the host before the nodes of a condition, and after them: none of it comes between. */
static void host_work(cudaStream_t stream)
{
    cudaGraph_t graph, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t in, set, node;
    unsigned given = 0, told = 0;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle = new_handle(graph, 0, 0);
    CHECK(cudaGraphAddMemcpyNode1D(&in, graph, NULL, 0, words + 1, &given, 4, cudaMemcpyHostToDevice));
    set = decide_node(graph, NULL, handle, 0);
    cudaGraphNode_t both[] = {in, set};
    CHECK(cudaGraphAddEmptyNode(&node, graph, both, 2));
    bodies = conditional_node(graph, node, handle, cudaGraphCondTypeIf, 1, &node);
    add_node(bodies[0], NULL, 1, 5);
    CHECK(cudaGraphAddMemcpyNode1D(&node, graph, &node, 1, &told, words + 1, 4, cudaMemcpyDeviceToHost));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (given = 10; given < 14; given++) {
        const unsigned is = given % 2, start[WORDS] = {is}, want[WORDS] = {is, given + 5 * is};
        expect_words(exec, stream, start, want);
        EXPECT_EQ(told, given + 5 * is);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static cudaGraph_t counting(unsigned step, unsigned initial, cudaGraphNode_t *ret_inside)
{
    cudaGraph_t graph, *bodies;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle = new_handle(graph, initial, cudaGraphCondAssignDefault);
    bodies = conditional_node(graph, NULL, handle, cudaGraphCondTypeWhile, 1, NULL);
    *ret_inside = add_node(bodies[0], NULL, 1, step);
    count_down_node(bodies[0], *ret_inside, 0, handle);
    return graph;
}

/* An executable graph gets the nodes of another graph, whose condition has another handle and default value. */
static void updates(cudaStream_t stream)
{
    cudaGraphExecUpdateResultInfo info;
    cudaGraphNode_t inside, other_inside;
    cudaGraphExec_t exec;
    const unsigned in[WORDS] = {3};
    cudaGraph_t graph = counting(1, 1, &inside), other = counting(10, 1, &other_inside),
                none = counting(10, 0, &other_inside);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const unsigned first[WORDS] = {0, 3}, second[WORDS] = {0, 30}, third[WORDS] = {3, 0};
    expect_words(exec, stream, in, first);
    CHECK(cudaGraphExecUpdate(exec, other, &info));
    EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
    expect_words(exec, stream, in, second);
    CHECK(cudaGraphExecUpdate(exec, none, &info));
    expect_words(exec, stream, in, third);
    CHECK(cudaGraphExecUpdate(exec, graph, &info));
    expect_words(exec, stream, in, first);

    unsigned *word = words + 1, value = 4;
    void *args[] = {&word, &value};
    const unsigned changed[WORDS] = {0, 12};
    cudaKernelNodeParams params = {};
    params.func = (void *)add;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = args;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, inside, &params)); /* of a body */
    expect_words(exec, stream, in, changed);

    cudaGraph_t different, *bodies;
    CHECK(cudaGraphCreate(&different, 0));
    bodies = conditional_node(different, NULL, new_handle(different, 0, 0), cudaGraphCondTypeIf, 1, NULL);
    add_node(bodies[0], NULL, 1, 1);
    EXPECT_EQ(cudaGraphExecUpdate(exec, different, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT(info.result != cudaGraphExecUpdateSuccess, "another type of conditional node");
    (void)cudaGetLastError();
    expect_words(exec, stream, in, changed);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
    CHECK(cudaGraphDestroy(none));
    CHECK(cudaGraphDestroy(different));
}

/* The same by the driver's functions, with a context, and a drawing of it. */
static void driver_api(cudaStream_t stream)
{
    CUgraph graph, *bodies;
    CUgraphNode node;
    CUgraphConditionalHandle handle;
    CUgraphNodeParams params = {};
    CUgraphNodeType type;
    CUcontext ctx;
    cudaGraphExec_t exec;
    char path[] = "/tmp/graph-conditional-XXXXXX", line[256];
    bool is_drawn = false;
    CHECK_CU(cuCtxGetCurrent(&ctx));
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphConditionalHandleCreate(&handle, graph, ctx, 2, CU_GRAPH_COND_ASSIGN_DEFAULT));
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_SWITCH;
    params.conditional.size = 3;
    params.conditional.ctx = ctx;
    CHECK_CU(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    bodies = params.conditional.phGraph_out;
    CHECK_CU(cuGraphNodeGetType(node, &type));
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
    for (unsigned i = 0; i < 3; i++)
        add_node(bodies[i], NULL, i, i + 1);
    int fd = mkstemp(path);
    EXPECT(fd >= 0, "a temporary file");
    close(fd);
    CHECK_CU(cuGraphDebugDotPrint(graph, path, 0));
    FILE *file = fopen(path, "r");
    EXPECT(file, "no drawing");
    while (fgets(line, sizeof(line), file))
        is_drawn = is_drawn || strstr(line, "CONDITIONAL");
    fclose(file);
    EXPECT_EQ(remove(path), 0);
    EXPECT(is_drawn, "the drawing has no conditional node");
    CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
    const unsigned in[WORDS] = {}, want[WORDS] = {0, 0, 3};
    expect_words(exec, stream, in, want);
    expect_words(exec, stream, in, want);
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphDestroy(graph));
}

static void host_function(void *)
{
}

#define REFUSED(call)                                                                                                  \
    do {                                                                                                               \
        EXPECT((call) != cudaSuccess, #call);                                                                          \
        (void)cudaGetLastError();                                                                                      \
    } while (0)

static void refusals()
{
    cudaGraph_t graph, other, clone, *bodies;
    cudaGraphNode_t node, conditional;
    cudaGraphExec_t exec;
    cudaGraphConditionalHandle handle, unread;
    size_t count = 0;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&other, 0));
    REFUSED(cudaGraphConditionalHandleCreate(&handle, graph, 0, 2));
    REFUSED(cudaGraphConditionalHandleCreate(&handle, NULL, 0, 0));
    handle = new_handle(graph, 0, 0);
    REFUSED(try_conditional(other, NULL, handle, cudaGraphCondTypeIf, 1, &node, &bodies)); /* another graph's */
    REFUSED(try_conditional(graph, NULL, handle, cudaGraphCondTypeIf, 3, &node, &bodies));
    REFUSED(try_conditional(graph, NULL, handle, cudaGraphCondTypeWhile, 2, &node, &bodies));
    REFUSED(try_conditional(graph, NULL, handle, cudaGraphCondTypeSwitch, 0, &node, &bodies));
    bodies = conditional_node(graph, NULL, handle, cudaGraphCondTypeIf, 1, &conditional);
    add_node(bodies[0], NULL, 1, 1);
    CHECK(cudaGraphGetNodes(bodies[0], NULL, &count));
    EXPECT_EQ(count, 1);
    REFUSED(cudaGraphClone(&clone, graph));
    REFUSED(cudaGraphAddChildGraphNode(&node, other, NULL, 0, graph));

    /* A body that the host has work in is refused when that is added, or when it is to be executed. */
    cudaHostNodeParams function = {host_function, NULL};
    cudaError_t added = cudaGraphAddHostNode(&node, bodies[0], NULL, 0, &function);
    if (added == cudaSuccess) {
        REFUSED(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphDestroyNode(node));
    }
    (void)cudaGetLastError();
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphExecDestroy(exec));

    /* A condition that no node reads. */
    unread = new_handle(graph, 0, 0);
    cudaGraphInstantiateParams params = {};
    cudaError_t error = cudaGraphInstantiateWithParams(&exec, graph, &params);
    if (error == cudaSuccess)
        CHECK(cudaGraphExecDestroy(exec)); /* it "may cause graph instantiation to fail" */
    else
        EXPECT_EQ(params.result_out, cudaGraphInstantiateConditionalHandleUnused);
    (void)cudaGetLastError();
    EXPECT(unread != handle, "handles differ");
    CHECK(cudaGraphDestroyNode(conditional));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
}

/* Bodies copy pinned memory of the host, which has other values at each launch, or not: word 0 decides. What one copy
 * brings to the host another one in the same body takes from there. */
static void host_memory_in_bodies(cudaStream_t stream)
{
    enum { IN, OUT, CHAIN, BESIDE, HOST_WORDS };
    cudaGraph_t graph, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    unsigned *host, want[WORDS];
    CHECK(cudaMallocHost((void **)&host, HOST_WORDS * sizeof *host));
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle = new_handle(graph, 0, 0),
                               loop = new_handle(graph, 1, cudaGraphCondAssignDefault);
    node = decide_node(graph, NULL, handle, 0);
    bodies = conditional_node(graph, node, handle, cudaGraphCondTypeIf, 1, &node);
    cudaGraphNode_t inside = copy_node(bodies[0], NULL, words + 1, host + IN, 4);
    inside = add_node(bodies[0], inside, 1, 5);
    inside = copy_node(bodies[0], inside, host + OUT, words + 1, 4);
    inside = copy_node(bodies[0], inside, host + CHAIN, words + 2, 4);
    copy_node(bodies[0], inside, words + 3, host + CHAIN, 4);
    bodies = conditional_node(graph, node, loop, cudaGraphCondTypeWhile, 1, NULL);
    inside = copy_node(bodies[0], NULL, words + 5, host + CHAIN, 4);
    inside = add_node(bodies[0], inside, 5, 1);
    inside = copy_node(bodies[0], inside, host + CHAIN, words + 5, 4);
    count_down_node(bodies[0], inside, 4, loop);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (unsigned n = 0; n < 6; n++) {
        unsigned in[WORDS] = {n % 2, 0, 100 + n, 0, 3, 0, 0, 0};
        host[IN] = 10 * n;
        host[OUT] = host[CHAIN] = 7;
        host[BESIDE] = n;
        memcpy(want, in, sizeof want);
        if (n % 2) {
            want[1] = 10 * n + 5;
            want[3] = want[2];
        }
        want[4] = 0;
        want[5] = (n % 2 ? want[2] : 7) + 3;
        expect_words(exec, stream, in, want);
        EXPECT_EQ(host[OUT], n % 2 ? 10 * n + 5 : 7);
        EXPECT_EQ(host[CHAIN], want[5]);
        EXPECT_EQ(host[IN], 10 * n);
        EXPECT_EQ(host[BESIDE], n);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaFreeHost(host));
}

static void wait_for(void *go)
{
    while (!__atomic_load_n((int *)go, __ATOMIC_ACQUIRE))
        sched_yield();
}

/* A launch that the stream cannot take yet is of the graph that there was. */
static void destroyed_while_it_waits(cudaStream_t stream)
{
    const unsigned in[WORDS] = {}, want[WORDS] = {0, 5};
    unsigned out[WORDS];
    int go = 0;
    cudaGraph_t graph, *bodies;
    cudaGraphExec_t exec;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle = new_handle(graph, 1, cudaGraphCondAssignDefault);
    bodies = conditional_node(graph, NULL, handle, cudaGraphCondTypeIf, 1, NULL);
    add_node(bodies[0], NULL, 1, 5);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    expect_words(exec, stream, in, want); /* a graph's first launch may wait for what its stream has to do */
    CHECK(cudaMemcpyAsync(words, in, sizeof(in), cudaMemcpyHostToDevice, stream));
    CHECK(cudaLaunchHostFunc(stream, wait_for, &go));
    CHECK(cudaGraphLaunch(exec, stream));
    if (!is_forwarded()) // the driver waits for the launch then
        __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    CHECK(cudaGraphExecDestroy(exec));
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    CHECK(cudaMemcpyAsync(out, words, sizeof(out), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < WORDS; i++)
        EXPECT(out[i] == want[i], "word %d is %u, not %u", i, out[i], want[i]);
}

int main(void)
{
    cudaStream_t stream;
    CHECK(cudaMalloc((void **)&words, WORDS * sizeof(*words)));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    choices(stream);
    loops(stream);
    captured(stream);
    nested(stream);
    host_work(stream);
    updates(stream);
    driver_api(stream);
    host_memory_in_bodies(stream);
    destroyed_while_it_waits(stream);
    refusals();
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(words));
    return 0;
}
