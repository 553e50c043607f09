// cudaGraphExecUpdate: which graphs an executable one takes over, whatever order their nodes were added in; and of those
// that it does not, which node differs and which edge leads to it.
#include "check.h"

enum { NODES_MAX = 5, NONE = -1 };

/* A node is a letter, K: a kernel, E: empty; `before` has the numbers of those that it comes after, in the order in which
 * it is made to. */
struct form {
    const char *kinds;
    const char *before[NODES_MAX];
};

static unsigned *values;

/* Each kernel's own place shows which of the graphs it is of. */
__global__ void mark(unsigned *place, unsigned value)
{
    *place = value;
}

static cudaGraph_t make(const struct form *form, unsigned value, cudaGraphNode_t *nodes)
{
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    for (unsigned i = 0; form->kinds[i]; i++) {
        unsigned *place = values + i, own = value + i;
        void *arguments[] = {&place, &own};
        cudaKernelNodeParams params = {};
        params.func = (void *)mark;
        params.gridDim = params.blockDim = dim3(1);
        params.kernelParams = arguments;
        if (form->kinds[i] == 'K')
            CHECK(cudaGraphAddKernelNode(&nodes[i], graph, NULL, 0, &params));
        else
            CHECK(cudaGraphAddEmptyNode(&nodes[i], graph, NULL, 0));
    }
    for (unsigned i = 0; form->kinds[i]; i++)
        for (const char *before = form->before[i]; before && *before; before++)
            CHECK(cudaGraphAddDependencies(graph, &nodes[*before - '0'], &nodes[i], NULL, 1));
    return graph;
}

static void expect_node(cudaGraphNode_t got, const cudaGraphNode_t *nodes, int want)
{
    EXPECT(got == (want == NONE ? NULL : nodes[want]), "%p, expected node %d", (void *)got, want);
}

static void update(const struct form *before, const struct form *after, cudaGraphExecUpdateResult want, int node, int from)
{
    cudaGraphNode_t own[NODES_MAX], other[NODES_MAX];
    cudaGraph_t graph = make(before, 10, own), changed = make(after, 20, other);
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    unsigned got[NODES_MAX];
    memset(&info, 0x77, sizeof info);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT_ERR(cudaGraphExecUpdate(exec, changed, &info),
               want == cudaGraphExecUpdateSuccess ? cudaSuccess : cudaErrorGraphExecUpdateFailure);
    EXPECT_EQ(info.result, want);
    expect_node(info.errorNode, other, node);
    expect_node(info.errorFromNode, other, from);
    CHECK(cudaMemset(values, 0, sizeof got));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaMemcpy(got, values, sizeof got, cudaMemcpyDeviceToHost));
    const struct form *does = want == cudaGraphExecUpdateSuccess ? after : before;
    for (unsigned i = 0; does->kinds[i]; i++)
        EXPECT_EQ(got[i], does->kinds[i] == 'K' ? (does == after ? 20 : 10) + i : 0);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(changed));
}

/* The same form, if not the same order of nodes. */
static void taken_over(void)
{
    static const struct form pairs[][2] = {
        {{"KK", {"", "0"}}, {"KK", {"", "0"}}},
        {{"KE", {"", "0"}}, {"EK", {"1", ""}}},
        {{"KKK", {"", "", "01"}}, {"KKK", {"", "", "10"}}},
        {{"KKKKK", {"", "", "0", "1", "23"}}, {"KKKKK", {"", "", "1", "0", "23"}}},
        {{"KKKK", {"", "", "0", "21"}}, {"KKKK", {"", "", "1", "20"}}},
    };
    for (const struct form(&one)[2] : pairs)
        update(&one[0], &one[1], cudaGraphExecUpdateSuccess, NONE, NONE);
}

static void refused(void)
{
    static const struct {
        struct form before, after;
        cudaGraphExecUpdateResult result;
        int node, from;
    } cases[] = {
        /* more nodes, and fewer */
        {{"K", {""}}, {"KK", {"", "0"}}, cudaGraphExecUpdateErrorTopologyChanged, NONE, NONE},
        {{"KK", {"", "0"}}, {"K", {""}}, cudaGraphExecUpdateErrorTopologyChanged, NONE, NONE},
        /* others in their places */
        {{"K", {""}}, {"E", {""}}, cudaGraphExecUpdateErrorNodeTypeChanged, 0, NONE},
        {{"KE", {"", "0"}}, {"KK", {"", "0"}}, cudaGraphExecUpdateErrorNodeTypeChanged, 1, NONE},
        {{"KEK", {"", "", "01"}}, {"KEK", {"", "", "10"}}, cudaGraphExecUpdateErrorNodeTypeChanged, 1, NONE},
        {{"KEKE", {"", "", "0", "1"}}, {"KEKE", {"", "", "1", "0"}}, cudaGraphExecUpdateErrorNodeTypeChanged, 0, NONE},
        /* more ends, and fewer */
        {{"KKK", {"", "0", "1"}}, {"KKK", {"", "0", "0"}}, cudaGraphExecUpdateErrorTopologyChanged, 1, NONE},
        {{"KKK", {"", "0", "0"}}, {"KKK", {"", "0", "1"}}, cudaGraphExecUpdateErrorTopologyChanged, NONE, NONE},
        /* a node that comes after more, or fewer */
        {{"KKK", {"", "", "01"}}, {"KKK", {"", "0", "1"}}, cudaGraphExecUpdateErrorTopologyChanged, 2, NONE},
        {{"KKK", {"", "0", "1"}}, {"KKK", {"", "", "01"}}, cudaGraphExecUpdateErrorTopologyChanged, 2, NONE},
        {{"KKKK", {"", "0", "01", "02"}}, {"KKKK", {"", "0", "01", "12"}}, cudaGraphExecUpdateErrorTopologyChanged, 1,
         NONE},
        {{"KKK", {"", "", "01"}}, {"KKE", {"", "0", "1"}}, cudaGraphExecUpdateErrorTopologyChanged, 2, NONE},
        {{"KKKK", {"", "0", "1", "2"}}, {"KKKK", {"", "0", "0", "0"}}, cudaGraphExecUpdateErrorTopologyChanged, 2, NONE},
        {{"EKE", {"", "", ""}}, {"KEE", {"", "", ""}}, cudaGraphExecUpdateErrorNodeTypeChanged, 1, NONE},
        /* an edge from a node that is another one's already */
        {{"KKKKK", {"", "", "01", "01", "23"}}, {"KKKKK", {"", "", "01", "02", "23"}},
         cudaGraphExecUpdateErrorTopologyChanged, 3, 2},
        {{"KKKKK", {"", "", "0", "01", "23"}}, {"KKKKK", {"", "", "1", "01", "23"}},
         cudaGraphExecUpdateErrorTopologyChanged, 3, 0},
    };
    for (const auto &one : cases)
        update(&one.before, &one.after, one.result, one.node, one.from);
}

/* An edge that says something else; and a node inside of another one. */
static void edges_and_children(void)
{
    static const struct form chain = {"KK", {"", ""}}, kernel = {"K", {""}}, empty = {"E", {""}};
    cudaGraphNode_t own[NODES_MAX], other[NODES_MAX], node, inner;
    cudaGraph_t graph = make(&chain, 1, own), changed = make(&chain, 1, other);
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    cudaGraphEdgeData data = {};
    data.type = cudaGraphDependencyTypeProgrammatic;
    data.from_port = cudaGraphKernelNodePortProgrammatic;
    CHECK(cudaGraphAddDependencies(graph, &own[0], &own[1], NULL, 1));
    CHECK(cudaGraphAddDependencies(changed, &other[0], &other[1], &data, 1));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT_ERR(cudaGraphExecUpdate(exec, changed, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    expect_node(info.errorNode, other, 1);
    expect_node(info.errorFromNode, other, 0);
    CHECK(cudaGraphExecUpdate(exec, graph, NULL)); /* who does not ask is told nothing */
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(changed));

    cudaGraph_t children[2] = {make(&kernel, 1, own), make(&empty, 1, own)}, child;
    size_t count = 1;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&changed, 0));
    CHECK(cudaGraphAddChildGraphNode(&node, graph, NULL, 0, children[0]));
    CHECK(cudaGraphAddChildGraphNode(&node, changed, NULL, 0, children[1]));
    CHECK(cudaGraphChildGraphNodeGetGraph(node, &child));
    CHECK(cudaGraphGetNodes(child, &inner, &count));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT_ERR(cudaGraphExecUpdate(exec, changed, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQ(info.result, cudaGraphExecUpdateErrorNodeTypeChanged);
    EXPECT(info.errorNode == inner && !info.errorFromNode, "the node of the child");
    CHECK(cudaGraphExecDestroy(exec));
    for (cudaGraph_t one : {graph, changed, children[0], children[1]})
        CHECK(cudaGraphDestroy(one));
}

/* Of several nodes that cannot become what the other graph has, the last one is told. */
static void directions(bool is_chain)
{
    cudaGraph_t graphs[2];
    cudaGraphNode_t nodes[2];
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    unsigned *host;
    CHECK(cudaMallocHost((void **)&host, sizeof *host));
    for (int i = 0; i < 2; i++) {
        CHECK(cudaGraphCreate(&graphs[i], 0));
        for (int k = 0; k < 2; k++)
            CHECK(cudaGraphAddMemcpyNode1D(&nodes[k], graphs[i], nodes, is_chain && k, i ? host : values, i ? values : host,
                                           sizeof *host, i ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice));
    }
    CHECK(cudaGraphInstantiate(&exec, graphs[0], 0));
    EXPECT_ERR(cudaGraphExecUpdate(exec, graphs[1], &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQ(info.result, cudaGraphExecUpdateErrorParametersChanged);
    expect_node(info.errorNode, nodes, 1);
    expect_node(info.errorFromNode, nodes, NONE);
    CHECK(cudaGraphExecDestroy(exec));
    for (cudaGraph_t graph : graphs)
        CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeHost(host));
}

int main(void)
{
    CHECK(cudaMalloc((void **)&values, NODES_MAX * sizeof *values));
    taken_over();
    refused();
    edges_and_children();
    directions(false);
    directions(true);
    CHECK(cudaFree(values));
    return 0;
}
