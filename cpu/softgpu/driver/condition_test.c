/* Conditional nodes of graphs: kernels set conditions, bodies run as often as these say. */
#include "cpu/softgpu/driver/test.h"

/* set: the condition of a handle. count: adds `v` to *p, and the condition is that *p is below a limit. */
static const char ptx[] =
    ".version 9.0\n.target sm_75\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);\n"
    ".visible .entry count(.param .u64 p, .param .u64 h, .param .u32 v, .param .u32 limit)\n{\n"
    ".reg .pred %q;\n.reg .b32 %a, %b, %c;\n.reg .b64 %d, %e;\n"
    "ld.param.u64 %d, [p];\nld.param.u64 %e, [h];\nld.param.u32 %a, [v];\nld.param.u32 %c, [limit];\n"
    "ld.global.u32 %b, [%d];\nadd.u32 %b, %b, %a;\nst.global.u32 [%d], %b;\n"
    "setp.lt.u32 %q, %b, %c;\nselp.u32 %a, 1, 0, %q;\n"
    "setp.eq.u64 %q, %e, 0;\n@%q bra done;\n"
    "{ .param .b64 x; st.param.b64 [x], %e; .param .b32 y; st.param.b32 [y], %a;\n"
    "call.uni cudaGraphSetConditional, (x, y); }\ndone:\nret;\n}\n"
    ".visible .entry set(.param .u64 h, .param .u32 v)\n{\n"
    ".reg .b32 %a;\n.reg .b64 %e;\nld.param.u64 %e, [h];\nld.param.u32 %a, [v];\n"
    "{ .param .b64 x; st.param.b64 [x], %e; .param .b32 y; st.param.b32 [y], %a;\n"
    "call.uni cudaGraphSetConditional, (x, y); }\nret;\n}\n";

enum { WORDS = 8 };

struct count_params {
    uint64_t word, handle;
    uint32_t step, limit;
};

static CUlibrary library;
static CUdeviceptr memory;
static CUcontext ctx;

static int start(void **state)
{
    test_start();
    assert_ok(cuCtxGetCurrent(&ctx));
    assert_ok(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    return cuMemAlloc(&memory, WORDS * sizeof(uint32_t)) != CUDA_SUCCESS;
}

static CUgraphNode kernel_node(CUgraph graph, CUgraphNode before, const char *name, void *params, size_t bytes)
{
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    const CUDA_KERNEL_NODE_PARAMS node_params = {.gridDimX = 1,
                                                 .gridDimY = 1,
                                                 .gridDimZ = 1,
                                                 .blockDimX = 1,
                                                 .blockDimY = 1,
                                                 .blockDimZ = 1,
                                                 .extra = extra,
                                                 .kern = (CUkernel)test_kernel(library, name),
                                                 .ctx = ctx};
    CUgraphNode node;

    assert_ok(cuGraphAddKernelNode(&node, graph, &before, before ? 1 : 0, &node_params));
    return node;
}

static CUgraphNode count_node(CUgraph graph, CUgraphNode before, unsigned word, uint64_t handle, uint32_t step,
                              uint32_t limit)
{
    struct count_params params = {memory + word * sizeof(uint32_t), handle, step, limit};

    return kernel_node(graph, before, "count", &params, sizeof(params));
}

static CUgraphNode set_node(CUgraph graph, CUgraphNode before, uint64_t handle, uint32_t value)
{
    struct {
        uint64_t handle;
        uint32_t value;
    } params = {handle, value};

    return kernel_node(graph, before, "set", &params, sizeof(params));
}

static CUgraphConditionalHandle new_handle(CUgraph graph, unsigned value, unsigned flags)
{
    CUgraphConditionalHandle handle;

    assert_ok(cuGraphConditionalHandleCreate(&handle, graph, ctx, value, flags));
    return handle;
}

static CUresult try_conditional(CUgraph graph, CUgraphNode before, uint64_t handle, CUgraphConditionalNodeType type,
                                unsigned size, CUgraphNode *ret_node, CUgraph **ret_bodies)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUresult r;

    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = ctx;
    r = cuGraphAddNode(ret_node, graph, &before, NULL, before ? 1 : 0, &params);
    *ret_bodies = params.conditional.phGraph_out;
    return r;
}

static CUgraph *conditional_node(CUgraph graph, CUgraphNode before, uint64_t handle, CUgraphConditionalNodeType type,
                                 unsigned size)
{
    CUgraphNode node;
    CUgraph *bodies;

    assert_ok(try_conditional(graph, before, handle, type, size, &node, &bodies));
    return bodies;
}

static void expect_words(CUgraphExec exec, const uint32_t *want, unsigned count)
{
    uint32_t words[WORDS];

    assert_ok(cuMemsetD32(memory, 0, WORDS));
    assert_ok(cuGraphLaunch(exec, NULL));
    assert_ok(cuMemcpyDtoH(words, memory, sizeof(words)));
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(words[i], want[i]);
}

static void bodies_run_as_conditions_say(void **state)
{
    CUgraph graph, *bodies;
    CUgraphExec exec;
    CUgraphNode node;

    assert_ok(cuGraphCreate(&graph, 0));
    const uint64_t yes = new_handle(graph, 7, CU_GRAPH_COND_ASSIGN_DEFAULT), no = new_handle(graph, 1, 0);
    const uint64_t loop = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), which = new_handle(graph, 0, 0);
    bodies = conditional_node(graph, NULL, yes, CU_GRAPH_COND_TYPE_IF, 1);
    count_node(bodies[0], NULL, 0, 0, 1, 0);
    node = set_node(graph, NULL, no, 0);
    bodies = conditional_node(graph, node, no, CU_GRAPH_COND_TYPE_IF, 2);
    count_node(bodies[0], NULL, 1, 0, 10, 0);
    count_node(bodies[1], NULL, 1, 0, 20, 0);
    bodies = conditional_node(graph, NULL, loop, CU_GRAPH_COND_TYPE_WHILE, 1);
    count_node(bodies[0], NULL, 2, loop, 3, 100);
    node = set_node(graph, NULL, which, 2);
    bodies = conditional_node(graph, node, which, CU_GRAPH_COND_TYPE_SWITCH, 4);
    for (unsigned i = 0; i < 4; i++)
        count_node(bodies[i], NULL, 3 + i, 0, 1, 0);
    assert_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_ok(cuGraphDestroy(graph));
    for (unsigned i = 0; i < 3; i++)
        expect_words(exec, (const uint32_t[]){1, 20, 102, 0, 0, 1, 0}, 7);
    assert_ok(cuGraphExecDestroy(exec));
}

/* A loop of loops, whose condition belongs to the body that it is in. */
static void nodes_are_nested(void **state)
{
    CUgraph graph, *outer, *inner;
    CUgraphExec exec;
    CUgraphNode node;

    assert_ok(cuGraphCreate(&graph, 0));
    const uint64_t loop = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    outer = conditional_node(graph, NULL, loop, CU_GRAPH_COND_TYPE_WHILE, 1);
    const uint64_t again = new_handle(outer[0], 0, 0);
    node = set_node(outer[0], NULL, again, 1);
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory + 4, .elementSize = 4, .width = 1, .height = 1};
    assert_ok(cuGraphAddMemsetNode(&node, outer[0], &node, 1, &fill, ctx));
    inner = conditional_node(outer[0], node, again, CU_GRAPH_COND_TYPE_WHILE, 1);
    node = count_node(inner[0], NULL, 1, again, 1, 5);
    count_node(inner[0], node, 2, 0, 1, 0);
    count_node(outer[0], NULL, 0, loop, 1, 4);
    assert_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_ok(cuMemsetD32(memory, 0, WORDS));
    assert_ok(cuGraphLaunch(exec, NULL));
    assert_ok(cuGraphExecDestroy(exec)); /* what is under way goes on */
    assert_ok(cuGraphDestroy(graph));
    uint32_t words[3];
    assert_ok(cuMemcpyDtoH(words, memory, sizeof(words)));
    assert_int_equal(words[0], 4);
    assert_int_equal(words[1], 5);
    assert_int_equal(words[2], 20);
}

static void what_is_wrong_is_refused(void **state)
{
    CUgraphConditionalHandle handle;
    CUgraph graph, other, *bodies;
    CUgraphExec exec;
    CUgraphNode node;

    assert_ok(cuGraphCreate(&graph, 0));
    assert_ok(cuGraphCreate(&other, 0));
    assert_int_equal(cuGraphConditionalHandleCreate(&handle, graph, ctx, 0, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGraphConditionalHandleCreate(&handle, NULL, ctx, 0, 0), CUDA_ERROR_INVALID_VALUE);
    handle = new_handle(graph, 0, 0);
    assert_int_equal(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE); /* nothing reads it */
#define REFUSED(graph, type, size)                                                                                     \
    assert_int_equal(try_conditional(graph, NULL, handle, type, size, &node, &bodies), CUDA_ERROR_INVALID_VALUE)
    REFUSED(other, CU_GRAPH_COND_TYPE_IF, 1);
    REFUSED(graph, CU_GRAPH_COND_TYPE_IF, 3);
    REFUSED(graph, CU_GRAPH_COND_TYPE_WHILE, 2);
    REFUSED(graph, CU_GRAPH_COND_TYPE_SWITCH, 0);
    bodies = conditional_node(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1);
    assert_int_equal(cuGraphDestroy(bodies[0]), CUDA_ERROR_INVALID_VALUE);
    REFUSED(graph, CU_GRAPH_COND_TYPE_IF, 1); /* one node reads it already */
    assert_ok(cuGraphDestroy(graph));
    assert_ok(cuGraphDestroy(other));
}

/* It breaks the device, and comes last. */
static void handles_of_graphs_that_are_gone_are_none(void **state)
{
    CUgraph graph, gone;
    CUgraphExec exec;

    assert_ok(cuGraphCreate(&gone, 0));
    const uint64_t handle = new_handle(gone, 0, 0);
    assert_ok(cuGraphDestroy(gone));
    assert_ok(cuGraphCreate(&graph, 0));
    set_node(graph, NULL, handle, 1);
    assert_ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_ok(cuGraphLaunch(exec, NULL));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_ok(cuGraphExecDestroy(exec));
    assert_ok(cuGraphDestroy(graph));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_run_as_conditions_say),
        cmocka_unit_test(nodes_are_nested),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(handles_of_graphs_that_are_gone_are_none),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
