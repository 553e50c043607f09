/* Graphs: their order, that of their launches, and where their kernels run. */
#include "cpu/softgpu/driver/green_test.h"
#include "cpu/softgpu/driver/work.h"

enum { WORDS = 64 };

static CUlibrary library, where_library;
static CUdeviceptr memory;

static int start(void **state)
{
    test_start();
    library = test_library();
    where_library = test_green_library();
    return cuMemAlloc(&memory, WORDS * sizeof(uint32_t)) != CUDA_SUCCESS;
}

/* A kernel (word, value) of one block. */
static CUgraphNode kernel_node(CUgraph graph, CUgraphNode before, CUfunction kernel, CUcontext ctx, uint32_t value)
{
    struct {
        uint64_t word;
        uint32_t value;
    } params = {memory, value};
    size_t bytes = sizeof(params);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    CUDA_KERNEL_NODE_PARAMS node_params = {.gridDimX = 1,
                                           .gridDimY = 1,
                                           .gridDimZ = 1,
                                           .blockDimX = 1,
                                           .blockDimY = 1,
                                           .blockDimZ = 1,
                                           .extra = extra,
                                           .kern = (CUkernel)kernel,
                                           .ctx = ctx};
    CUgraphNode node;

    assert_ok(cuGraphAddKernelNode(&node, graph, &before, before ? 1 : 0, &node_params));
    return node;
}

static uint32_t word(unsigned i)
{
    uint32_t value;

    assert_ok(cuMemcpyDtoH(&value, memory + i * sizeof(value), sizeof(value)));
    return value;
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;

    assert_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_ok(cuGraphDestroy(graph));
    return exec;
}

static void nodes_run_in_order(void **state)
{
    CUstream stream, other;
    CUgraph graph;
    CUgraphNode set, copy, empty, last;
    CUcontext ctx;

    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    assert_ok(cuCtxGetCurrent(&ctx));
    assert_ok(cuGraphCreate(&graph, 0));
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory, .value = 3, .elementSize = 4, .width = 1, .height = 1};
    const CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = memory,
                               .srcPitch = 4,
                               .srcHeight = 1,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = memory + 4,
                               .dstPitch = 4,
                               .dstHeight = 1,
                               .WidthInBytes = 4,
                               .Height = 1,
                               .Depth = 1};
    assert_ok(cuGraphAddMemsetNode(&set, graph, NULL, 0, &fill, ctx));
    last = kernel_node(graph, set, test_kernel(library, "mul"), ctx, 7);
    assert_ok(cuGraphAddEmptyNode(&empty, graph, &last, 1));
    assert_ok(cuGraphAddMemcpyNode(&copy, graph, &empty, 1, &box, ctx));
    kernel_node(graph, copy, test_kernel(library, "add"), ctx, 1);
    CUgraphExec exec = instantiate(graph);
    /* Launches of one do not overlap, whatever streams they are in. */
    for (int i = 0; i < 20; i++)
        assert_ok(cuGraphLaunch(exec, i % 2 ? stream : other));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuStreamSynchronize(other));
    assert_int_equal(word(0), 22);
    assert_int_equal(word(1), 21);
    assert_ok(cuGraphExecDestroy(exec));
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuStreamDestroy(other));
}

/* Edges are checked as CUDA documents their data; nodes run in the order of their adding, and no edge leads back. */
static void edges_follow_the_order(void **state)
{
    const CUgraphEdgeData programmatic = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                          .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC},
                          without_port = {.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC},
                          begun = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER};
    CUgraph graph, other;
    CUgraphNode first, second, empty, stranger;
    CUcontext ctx;

    assert_ok(cuCtxGetCurrent(&ctx));
    assert_ok(cuGraphCreate(&graph, 0));
    assert_ok(cuGraphCreate(&other, 0));
    first = kernel_node(graph, NULL, test_kernel(library, "mul"), ctx, 7);
    second = kernel_node(graph, NULL, test_kernel(library, "add"), ctx, 1);
    assert_ok(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
    assert_ok(cuGraphAddEmptyNode(&stranger, other, NULL, 0));
    assert_ok(cuGraphAddDependencies(graph, &first, &second, &programmatic, 1));
    assert_ok(cuGraphAddDependencies(graph, &second, &empty, &begun, 1));
    assert_ok(cuGraphAddDependencies(graph, &first, &empty, NULL, 1));
    assert_int_equal(cuGraphAddDependencies(graph, &first, &second, &without_port, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddDependencies(graph, &first, &empty, &programmatic, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddDependencies(graph, &first, &first, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddDependencies(graph, &first, &stranger, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddDependencies(graph, &second, &first, NULL, 1), CUDA_ERROR_NOT_SUPPORTED);
    assert_ok(cuGraphDestroy(graph));
    assert_ok(cuGraphDestroy(other));
}

static void kernels_stay_in_their_context(void **state)
{
    struct test_green few = test_green_new(0, 2), many = test_green_new(4, 5);
    CUfunction where = test_kernel(where_library, "where");
    CUgraph graph;
    CUcontext primary;

    assert_ok(cuCtxGetCurrent(&primary));
    assert_ok(cuCtxSetCurrent(few.ctx));
    assert_ok(cuGraphCreate(&graph, 0));
    kernel_node(graph, NULL, where, few.ctx, 0);
    CUgraphExec exec = instantiate(graph);
    assert_ok(cuGraphLaunch(exec, many.stream));
    assert_ok(cuGraphExecDestroy(exec)); /* what is under way goes on */
    assert_ok(cuStreamSynchronize(many.stream));
    assert_int_equal(word(1), 16);
    assert_ok(cuCtxSetCurrent(primary));
    test_green_free(&few);
    test_green_free(&many);
}

/* As a library's: what it adds is another number in its own copy of the record afterwards. */
struct adding {
    uint32_t *word;
    uint32_t value;
};

static CUresult add_and_spoil(void *record)
{
    struct adding *self = record;

    *self->word += self->value;
    self->value = 1000;
    return CUDA_SUCCESS;
}

static void free_nothing(void *record)
{
}

static CUresult launch_adding(CUstream stream, unsigned place, uint32_t value, flyt_soft_work_fini_fn fini)
{
    const struct adding record = {(uint32_t *)(uintptr_t)memory + place, value};

    return flyt_soft_work_push(stream, add_and_spoil, fini, &record, sizeof(record));
}

/* In the graph of a node. */
static void expect_two_kernels(CUgraphNode node)
{
    CUgraphNode nodes[3] = {node, node, node};
    CUgraphNodeType type;
    CUDA_MEMCPY3D copy;
    CUgraph child;
    size_t count = 0;

    assert_ok(cuGraphNodeGetType(node, &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
    assert_ok(cuGraphChildGraphNodeGetGraph(node, &child));
    assert_ok(cuGraphGetNodes(child, NULL, &count));
    assert_int_equal(count, 2);
    count = 3;
    assert_ok(cuGraphGetNodes(child, nodes, &count));
    assert_int_equal(count, 2);
    assert_null(nodes[2]);
    assert_ok(cuGraphNodeGetType(nodes[1], &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_KERNEL);
    assert_int_equal(cuGraphChildGraphNodeGetGraph(nodes[1], &child), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphMemcpyNodeGetParams(nodes[1], &copy), CUDA_ERROR_INVALID_VALUE);
}

/* What is captured is in a child graph, of a graph and of a body, and runs anew each time. */
static void what_libraries_launch_is_captured(void **state)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraph captured, graph;
    CUgraphNode node;
    CUstream stream;
    CUcontext ctx;
    CUgraphConditionalHandle handle;

    assert_ok(cuCtxGetCurrent(&ctx));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuMemsetD32(memory, 0, WORDS));
    assert_ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(launch_adding(stream, 0, 3, NULL));
    assert_ok(launch_adding(stream, 1, 4, NULL));
    assert_ok(cuStreamEndCapture(stream, &captured));
    assert_int_equal(word(0), 0);
    assert_ok(cuGraphCreate(&graph, 0));
    assert_ok(cuGraphConditionalHandleCreate(&handle, graph, ctx, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    assert_ok(cuGraphAddChildGraphNode(&node, graph, NULL, 0, captured));
    expect_two_kernels(node);
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = ctx;
    assert_ok(cuGraphAddNode(&node, graph, &node, NULL, 1, &params));
    assert_ok(cuGraphAddChildGraphNode(&node, params.conditional.phGraph_out[0], NULL, 0, captured));
    assert_ok(cuGraphDestroy(captured));
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 3; i++)
        assert_ok(cuGraphLaunch(exec, stream));
    assert_ok(cuStreamSynchronize(stream));
    assert_int_equal(word(0), 3 * 2 * 3);
    assert_int_equal(word(1), 3 * 2 * 4);
    assert_ok(cuGraphExecDestroy(exec));
    assert_ok(cuStreamDestroy(stream));
}

static void what_cannot_be_captured_ends_the_capture(void **state)
{
    CUstreamCaptureStatus status;
    CUgraph graph;
    CUstream stream;

    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int way = 0; way < 3; way++) {
        assert_ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        assert_int_equal(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
        assert_ok(launch_adding(stream, 0, 1, NULL));
        assert_ok(cuStreamIsCapturing(stream, &status));
        assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        assert_int_equal(way == 0   ? cuMemsetD32Async(memory, 1, 1, stream)
                         : way == 1 ? cuStreamSynchronize(stream)
                                    : launch_adding(stream, 0, 1, free_nothing),
                         CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_ok(cuStreamIsCapturing(stream, &status));
        assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_null(graph);
    }
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    assert_ok(cuStreamSynchronize(stream));
    assert_int_equal(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(launch_adding(stream, 0, 1, NULL));
    assert_ok(cuStreamDestroy(stream)); /* with what it captures */
}

static void what_is_wrong_is_refused(void **state)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUcontext ctx;

    assert_ok(cuCtxGetCurrent(&ctx));
    assert_ok(cuGraphCreate(&graph, 0));
    assert_int_equal(cuGraphCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddEmptyNode(&node, graph, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphAddEmptyNode(&node, (CUgraph)ctx, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    const CUDA_MEMSET_NODE_PARAMS nowhere = {.dst = 4096, .value = 3, .elementSize = 4, .width = 1, .height = 1};
    assert_ok(cuGraphAddMemsetNode(&node, graph, NULL, 0, &nowhere, ctx));
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphLaunch((CUgraphExec)graph, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuGraphDestroy(graph));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_run_in_order),
        cmocka_unit_test(edges_follow_the_order),
        cmocka_unit_test(kernels_stay_in_their_context),
        cmocka_unit_test(what_libraries_launch_is_captured),
        cmocka_unit_test(what_cannot_be_captured_ends_the_capture),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
