// Memory that graphs allocate and free: by nodes and in captures, kept from one launch to the next, freed by the
// program, by another graph or when the graph is launched again; pinned memory of the host; and what is said of it.
#include "mapped.h"

enum { COUNT = 100000, BYTES = COUNT * 4 };

__global__ void fill(unsigned *values, int count, unsigned n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = i * 31 + n;
}

__global__ void sum_of(const unsigned *values, int count, unsigned *ret_sum)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        atomicAdd(ret_sum, values[i]);
}

static const dim3 grid((COUNT + 255) / 256), block(256);

static unsigned want(unsigned n)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < COUNT; i++)
        sum += i * 31 + n;
    return sum;
}

static unsigned long long mark(cudaGraphMemAttributeType attribute)
{
    unsigned long long value = 77;
    CHECK(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

/* Memory that is there between an allocation and a free of one capture. */
static void inside_a_capture(cudaStream_t stream, unsigned *device_sum)
{
    unsigned *memory, sum;
    cudaGraph_t graph, clone;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync((void **)&memory, BYTES, stream));
    EXPECT(memory != NULL);
    fill<<<grid, block, 0, stream>>>(memory, COUNT, 5);
    CHECK(cudaMemsetAsync(device_sum, 0, sizeof sum, stream));
    sum_of<<<grid, block, 0, stream>>>(memory, COUNT, device_sum);
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t count = 8;
    cudaGraphNode_t nodes[8];
    cudaGraphNodeType type;
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    EXPECT_EQ(count, 5);
    CHECK(cudaGraphNodeGetType(nodes[0], &type));
    EXPECT_EQ(type, cudaGraphNodeTypeMemAlloc);
    CHECK(cudaGraphNodeGetType(nodes[4], &type));
    EXPECT_EQ(type, cudaGraphNodeTypeMemFree);
    void *freed;
    CHECK(cudaGraphMemFreeNodeGetParams(nodes[4], &freed));
    EXPECT(freed == memory);
    EXPECT_ERR(cudaGraphClone(&clone, graph), cudaErrorNotSupported);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int n = 0; n < 4; n++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemcpyAsync(&sum, device_sum, sizeof sum, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT_EQ(sum, want(5));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* One graph allocates, and the program, or another graph, frees. */
static void across_graphs(cudaStream_t stream, unsigned *device_sum)
{
    cudaMemAllocNodeParams params = {}, told;
    cudaGraph_t graph, other;
    cudaGraphExec_t exec, other_exec;
    cudaGraphNode_t alloc, work, release;
    unsigned sum;
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.bytesize = BYTES;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    EXPECT(params.dptr != NULL);
    CHECK(cudaGraphMemAllocNodeGetParams(alloc, &told));
    EXPECT(told.dptr == params.dptr && told.bytesize == BYTES);
    unsigned *memory = (unsigned *)params.dptr, n = 9;
    int count = COUNT;
    void *args[] = {&memory, &count, &n};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void *)fill;
    kernel.gridDim = grid;
    kernel.blockDim = block;
    kernel.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&work, graph, &alloc, 1, &kernel));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemsetAsync(device_sum, 0, sizeof sum, stream));
    sum_of<<<grid, block, 0, stream>>>(memory, COUNT, device_sum);
    CHECK(cudaMemcpyAsync(&sum, device_sum, sizeof sum, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(sum, want(9));
    EXPECT(mark(cudaGraphMemAttrUsedMemCurrent) >= BYTES && mark(cudaGraphMemAttrUsedMemHigh) >= BYTES);
    /* It is allocated already. */
    EXPECT_ERR(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
    CHECK(cudaFreeAsync(memory, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(memory));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphCreate(&other, 0));
    CHECK(cudaGraphAddMemFreeNode(&release, other, NULL, 0, memory));
    CHECK(cudaGraphInstantiate(&other_exec, other, 0));
    CHECK(cudaGraphLaunch(other_exec, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphLaunch(other_exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int i = 0; i < 3; i++)
        CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(memory));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphExecDestroy(other_exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
}

struct rows {
    unsigned *values, sum;
};

static void fill_rows(void *user)
{
    const struct rows *rows = (const struct rows *)user;
    for (unsigned i = 0; i < COUNT; i++)
        rows->values[i] = i * 31 + 3;
}

static void sum_rows(void *user)
{
    struct rows *rows = (struct rows *)user;
    rows->sum = 0;
    for (unsigned i = 0; i < COUNT; i++)
        rows->sum += rows->values[i];
}

static cudaMemPoolProps host_props(void)
{
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeHost;
    return props;
}

/* No capture takes it from a pool. */
static void host_inside_a_capture(cudaStream_t stream, cudaMemPool_t pool)
{
    unsigned *words;
    cudaGraph_t graph = NULL;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    EXPECT_ERR(cudaMallocFromPoolAsync((void **)&words, BYTES, pool, stream), cudaErrorNotSupported);
    cudaStreamEndCapture(stream, &graph);
    if (graph)
        CHECK(cudaGraphDestroy(graph));
    cudaGetLastError();
}

/* A node allocates it, and the program frees it. type: what it is asked for as; the first NUMA node is there where
 * there are none, too. */
static void host_by_nodes(cudaStream_t stream, cudaMemLocationType type)
{
    static rows all;
    cudaMemAllocNodeParams params = {};
    cudaHostNodeParams call = {fill_rows, &all};
    cudaPointerAttributes about;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t alloc, work;
    params.poolProps = host_props();
    params.poolProps.location.type = type;
    params.bytesize = BYTES;
    CHECK(cudaGraphCreate(&graph, 0));
    const cudaError_t code = cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params);
    if (code == cudaErrorNotSupported && !is_forwarded()) { // drivers need not have this
        CHECK(cudaGraphDestroy(graph));
        return;
    }
    CHECK(code);
    all.values = (unsigned *)params.dptr;
    CHECK(cudaGraphAddHostNode(&work, graph, &alloc, 1, &call));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int n = 0; n < 3; n++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaPointerGetAttributes(&about, all.values));
        EXPECT_EQ(about.type, cudaMemoryTypeHost);
        sum_rows(&all);
        EXPECT_EQ(all.sum, want(3));
        memset(all.values, 0, BYTES);
        EXPECT_ERR(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
        CHECK(cudaFreeAsync(all.values, stream));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* What a graph has at the host goes with the context. */
static void host_after_a_reset()
{
    cudaMemAllocNodeParams params = {};
    cudaPointerAttributes about;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t alloc;
    int has_pools;
    CHECK(cudaDeviceGetAttribute(&has_pools, cudaDevAttrHostMemoryPoolsSupported, 0));
    if (!has_pools || !is_forwarded()) // CUDA does not say what becomes of it
        return;
    params.poolProps = host_props();
    params.bytesize = BYTES;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaDeviceReset());
    CHECK(cudaPointerGetAttributes(&about, params.dptr));
    EXPECT_EQ(about.type, cudaMemoryTypeUnregistered);
}

/* "The memory pool's properties are used to set the node's creation parameters." */
static void at_the_host(cudaStream_t stream)
{
    const cudaMemPoolProps props = host_props();
    cudaMemPool_t pool;
    cudaMemAccessDesc access = {};
    int has_pools;
    CHECK(cudaDeviceGetAttribute(&has_pools, cudaDevAttrHostMemoryPoolsSupported, 0));
    if (!has_pools)
        return;
    CHECK(cudaMemPoolCreate(&pool, &props));
    access.location.type = cudaMemLocationTypeDevice;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    if (can_map_host_memory())
        CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    host_inside_a_capture(stream, pool);
    host_by_nodes(stream, cudaMemLocationTypeHost);
    host_by_nodes(stream, cudaMemLocationTypeHostNuma);
    CHECK(cudaMemPoolDestroy(pool));
}

int main(void)
{
    cudaStream_t stream;
    unsigned *device_sum;
    unsigned long long zero = 0;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&device_sum, sizeof *device_sum));
    inside_a_capture(stream, device_sum);
    across_graphs(stream, device_sum);
    at_the_host(stream);
    CHECK(cudaDeviceGraphMemTrim(0));
    EXPECT_EQ(mark(cudaGraphMemAttrUsedMemCurrent), 0);
    EXPECT_EQ(mark(cudaGraphMemAttrReservedMemCurrent), 0);
    CHECK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
    EXPECT_EQ(mark(cudaGraphMemAttrUsedMemHigh), 0);
    EXPECT_ERR(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &zero), cudaErrorInvalidValue);
    host_after_a_reset();
    printf("ok\n");
    return 0;
}
