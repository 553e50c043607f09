// Green contexts: SMs are split, and what runs in a green context's streams, its default stream included, stays on as
// many SMs as it has, kernels of graphs too, and those that wait when it is destroyed; events of whole contexts; what
// is refused.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>
#include <sched.h>

enum { BLOCKS = 2048, SMS_MAX = 1024 };

/* Which SMs blocks come to. */
__global__ void visit(unsigned *seen, unsigned cycles)
{
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    long long start = clock64();
    while (clock64() - start < cycles)
        ;
    if (threadIdx.x == 0)
        atomicAdd(&seen[sm % SMS_MAX], 1);
}

__global__ void add_one(unsigned *value)
{
    *value += 1;
}

/* Adds 1 when much time has gone. */
__global__ void add_late(unsigned *value, long long cycles)
{
    long long start = clock64();
    while (clock64() - start < cycles)
        ;
    *value += 1;
}

static unsigned *seen;

/* On how many SMs a kernel in the stream runs. */
static unsigned sms_of(CUstream stream)
{
    static unsigned counts[SMS_MAX];
    unsigned count = 0, blocks = 0;
    CHECK_CU(cuMemsetD8Async((CUdeviceptr)(uintptr_t)seen, 0, sizeof counts, stream));
    visit<<<BLOCKS, 32, 0, (cudaStream_t)stream>>>(seen, 2000);
    CHECK_LAUNCH();
    CHECK_CU(cuMemcpyDtoHAsync(counts, (CUdeviceptr)(uintptr_t)seen, sizeof counts, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < SMS_MAX; i++) {
        count += counts[i] != 0;
        blocks += counts[i];
    }
    EXPECT_EQ(blocks, BLOCKS);
    return count;
}

static CUgreenCtx make_green(CUdevResource *resources, unsigned count)
{
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CHECK_CU(cuDevResourceGenerateDesc(&desc, resources, count));
    CHECK_CU(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static CUdevResource whole_gpu, groups[8], rest;
static unsigned group_count = 8, each;

static void check_split(void)
{
    CUdevResource other;
    unsigned count = 0;
    CHECK_CU(cuDeviceGetDevResource(0, &whole_gpu, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_EQ(whole_gpu.type, CU_DEV_RESOURCE_TYPE_SM);
    int sm_count;
    CHECK_CU(cuDeviceGetAttribute(&sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    EXPECT_EQ(whole_gpu.sm.smCount, sm_count);
    EXPECT(whole_gpu.sm.minSmPartitionSize > 0 && whole_gpu.sm.minSmPartitionSize <= whole_gpu.sm.smCount, "%u",
           whole_gpu.sm.minSmPartitionSize);
    each = whole_gpu.sm.minSmPartitionSize;
    CHECK_CU(cuDevSmResourceSplitByCount(NULL, &count, &whole_gpu, NULL, 0, each));
    EXPECT(count > 1 && count * each <= whole_gpu.sm.smCount, "%u groups of %u SMs", count, each);
    group_count = count < 8 ? count : 8;
    CHECK_CU(cuDevSmResourceSplitByCount(groups, &group_count, &whole_gpu, &rest, 0, each));
    EXPECT_EQ(group_count, count < 8 ? count : 8);
    unsigned sum = rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0;
    for (unsigned i = 0; i < group_count; i++) {
        EXPECT_EQ(groups[i].type, CU_DEV_RESOURCE_TYPE_SM);
        EXPECT_EQ(groups[i].sm.smCount, groups[0].sm.smCount);
        EXPECT(groups[i].sm.smCount >= each, "%u of %u", groups[i].sm.smCount, each);
        sum += groups[i].sm.smCount;
    }
    EXPECT_EQ(sum, whole_gpu.sm.smCount);
    EXPECT_CU(cuDeviceGetDevResource(0, &other, CU_DEV_RESOURCE_TYPE_INVALID), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    EXPECT_CU(cuDeviceGetDevResource(1000, &other, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_DEVICE);
    other = {};
    count = 1;
    EXPECT_CU(cuDevSmResourceSplitByCount(&groups[7], &count, &other, NULL, 0, each), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    EXPECT_CU(cuDevSmResourceSplitByCount(NULL, &count, &whole_gpu, NULL, 0, whole_gpu.sm.smCount + 1),
              CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

static void check_greens(void)
{
    CUgreenCtx one = make_green(groups, 1), two = make_green(groups, 2), found;
    CUcontext context, two_context, primary;
    CUdevResource resource;
    CUstream stream, pair;
    unsigned long long id, other_id;
    CHECK_CU(cuCtxGetCurrent(&primary));
    EXPECT_CU(cuGreenCtxStreamCreate(&stream, one, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuGreenCtxStreamCreate(&stream, one, CU_STREAM_NON_BLOCKING, 0));
    CHECK_CU(cuGreenCtxStreamCreate(&pair, two, CU_STREAM_NON_BLOCKING, 0));
    const unsigned single = sms_of(stream), both = sms_of(pair), whole = sms_of(NULL);
    EXPECT(single <= groups[0].sm.smCount, "on %u SMs of %u", single, groups[0].sm.smCount);
    EXPECT(both <= 2 * groups[0].sm.smCount, "on %u SMs of %u", both, 2 * groups[0].sm.smCount);
    EXPECT(whole <= whole_gpu.sm.smCount && whole > single, "on %u SMs, and %u", whole, single);
    CHECK_CU(cuStreamGetGreenCtx(stream, &found));
    EXPECT(found == one);
    CHECK_CU(cuStreamGetCtx_v2(stream, &context, &found));
    EXPECT(found == one && context == primary);
    CHECK_CU(cuStreamGetGreenCtx(NULL, &found));
    EXPECT(found == NULL);
    CHECK_CU(cuGreenCtxGetDevResource(two, &resource, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_EQ(resource.sm.smCount, 2 * groups[0].sm.smCount);
    CHECK_CU(cuGreenCtxGetId(one, &id));
    CHECK_CU(cuGreenCtxGetId(two, &other_id));
    EXPECT(id != other_id);

    /* Its default stream, and streams that are made while it is current. Memory is the primary context's. */
    CUdeviceptr memory;
    CUstream inside;
    CHECK_CU(cuCtxFromGreenCtx(&context, one));
    CHECK_CU(cuCtxFromGreenCtx(&two_context, two));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuMemAlloc(&memory, 4096));
    EXPECT(sms_of(NULL) <= groups[0].sm.smCount);
    CHECK_CU(cuStreamCreate(&inside, CU_STREAM_NON_BLOCKING));
    EXPECT(sms_of(inside) <= groups[0].sm.smCount);
    CHECK_CU(cuStreamGetGreenCtx(NULL, &found));
    EXPECT(found == one);
    CHECK_CU(cuStreamGetGreenCtx(inside, &found));
    EXPECT(found == one);
    CHECK_CU(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_EQ(resource.sm.smCount, groups[0].sm.smCount);
    CHECK_CU(cuStreamDestroy(inside));
    CHECK_CU(cuCtxSetCurrent(primary));
    CHECK_CU(cuStreamDestroy(stream));
    CHECK_CU(cuStreamDestroy(pair));
    CHECK_CU(cuGreenCtxDestroy(one));
    CHECK_CU(cuGreenCtxDestroy(two));
    CHECK_CU(cuMemsetD8(memory, 1, 4096));
    CHECK_CU(cuMemFree(memory));
    EXPECT(sms_of(NULL) > groups[0].sm.smCount);
}

/* What is captured in a green context's stream runs on its SMs, whatever stream the graph is launched into; so does a
 * node that is added while the context is current. */
static void check_graphs(void)
{
    static unsigned counts[SMS_MAX];
    CUgreenCtx green = make_green(groups, 1);
    CUcontext context, primary;
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec[2];
    unsigned cycles = 2000;
    void *args[] = {&seen, &cycles};
    cudaKernelNodeParams params = {};
    cudaGraphNode_t node;
    CHECK_CU(cuCtxGetCurrent(&primary));
    CHECK_CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    visit<<<BLOCKS, 32, 0, (cudaStream_t)stream>>>(seen, cycles);
    CHECK_LAUNCH();
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphInstantiate(&exec[0], graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuCtxFromGreenCtx(&context, green));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuGraphCreate(&graph, 0));
    params.func = (void *)visit;
    params.gridDim = dim3(BLOCKS);
    params.blockDim = dim3(32);
    params.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&node, graph, NULL, 0, &params));
    CHECK_CU(cuGraphInstantiate(&exec[1], graph, 0));
    CHECK_CU(cuCtxSetCurrent(primary));
    for (int i = 0; i < 4; i++) {
        CUstream in = i % 2 ? stream : NULL;
        unsigned count = 0;
        CHECK_CU(cuMemsetD8Async((CUdeviceptr)(uintptr_t)seen, 0, sizeof counts, in));
        CHECK_CU(cuGraphLaunch(exec[i / 2], in));
        CHECK_CU(cuMemcpyDtoHAsync(counts, (CUdeviceptr)(uintptr_t)seen, sizeof counts, in));
        CHECK_CU(cuStreamSynchronize(in));
        for (unsigned at = 0; at < SMS_MAX; at++)
            count += counts[at] != 0;
        EXPECT(count > 0 && count <= groups[0].sm.smCount, "on %u SMs of %u", count, groups[0].sm.smCount);
    }
    CHECK_CU(cuGraphExecDestroy(exec[0]));
    CHECK_CU(cuGraphExecDestroy(exec[1]));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuStreamDestroy(stream));
    CHECK_CU(cuGreenCtxDestroy(green));
}

static void wait_for(void *go)
{
    while (!__atomic_load_n((int *)go, __ATOMIC_ACQUIRE))
        sched_yield();
}

/* A launch that was made before its kernels' context was destroyed runs on that one's SMs, whenever its turn comes. */
static void check_destroyed(void)
{
    static unsigned counts[SMS_MAX];
    CUgreenCtx green = make_green(groups, 1);
    CUstream stream, other;
    CUgraph graph;
    CUgraphExec exec;
    unsigned count = 0;
    int go = 0;
    CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    visit<<<BLOCKS, 32, 0, (cudaStream_t)stream>>>(seen, 2000);
    CHECK_LAUNCH();
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphInstantiate(&exec, graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuMemsetD8Async((CUdeviceptr)(uintptr_t)seen, 0, sizeof counts, other));
    CHECK_CU(cuLaunchHostFunc(other, wait_for, &go));
    if (!is_forwarded()) // a first launch, and the end of a context, may wait for what comes before
        __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    CHECK_CU(cuGraphLaunch(exec, other));
    CHECK_CU(cuStreamDestroy(stream));
    CHECK_CU(cuGreenCtxDestroy(green));
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    CHECK_CU(cuMemcpyDtoHAsync(counts, (CUdeviceptr)(uintptr_t)seen, sizeof counts, other));
    CHECK_CU(cuStreamSynchronize(other));
    for (unsigned at = 0; at < SMS_MAX; at++)
        count += counts[at] != 0;
    EXPECT(count > 0 && count <= groups[0].sm.smCount, "on %u SMs of %u", count, groups[0].sm.smCount);
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuStreamDestroy(other));
}

/* What the streams of one context get waits for the streams of another. */
static void check_events(void)
{
    enum { STREAMS = 3 };
    CUgreenCtx first = make_green(&groups[0], 1), second = make_green(&groups[1], 1);
    CUcontext primary;
    CUstream from[STREAMS], to[STREAMS], later;
    CUevent event;
    unsigned *values, got[STREAMS + 1];
    CHECK_CU(cuCtxGetCurrent(&primary));
    CHECK(cudaMalloc((void **)&values, sizeof got));
    CHECK(cudaMemset(values, 0, sizeof got));
    CHECK(cudaDeviceSynchronize());
    CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < STREAMS; i++) {
        CHECK_CU(cuGreenCtxStreamCreate(&from[i], first, CU_STREAM_NON_BLOCKING, 0));
        CHECK_CU(cuGreenCtxStreamCreate(&to[i], second, CU_STREAM_NON_BLOCKING, 0));
        add_late<<<1, 1, 0, (cudaStream_t)from[i]>>>(values + i, 20000000);
        CHECK_LAUNCH();
    }
    CHECK_CU(cuGreenCtxRecordEvent(first, event));
    CHECK_CU(cuGreenCtxWaitEvent(second, event));
    CHECK_CU(cuGreenCtxStreamCreate(&later, second, CU_STREAM_NON_BLOCKING, 0));
    /* Each copy is of what all the others have left. */
    for (int i = 0; i < STREAMS; i++)
        CHECK_CU(
            cuMemcpyDtoHAsync(&got[i], (CUdeviceptr)(uintptr_t)(values + (i + 1) % STREAMS), sizeof got[0], to[i]));
    CHECK_CU(cuMemcpyDtoHAsync(&got[STREAMS], (CUdeviceptr)(uintptr_t)values, sizeof got[0], later));
    for (int i = 0; i < STREAMS; i++)
        CHECK_CU(cuStreamSynchronize(to[i]));
    CHECK_CU(cuStreamSynchronize(later));
    for (int i = 0; i <= STREAMS; i++)
        EXPECT_EQ(got[i], 1);
    CHECK_CU(cuEventSynchronize(event));

    /* The same of contexts that are not green. */
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    add_late<<<1, 1, 0, stream>>>(values, 20000000);
    CHECK_CU(cuCtxRecordEvent(primary, event));
    CHECK_CU(cuGreenCtxWaitEvent(second, event));
    add_one<<<1, 1, 0, (cudaStream_t)to[0]>>>(values);
    CHECK_CU(cuGreenCtxRecordEvent(second, event));
    CHECK_CU(cuCtxWaitEvent(primary, event));
    CHECK(cudaMemcpyAsync(&got[0], values, sizeof got[0], cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT_EQ(got[0], 3);
    CHECK(cudaStreamDestroy(stream));

    /* Not while one of the streams is captured. */
    CUgraph graph;
    CHECK_CU(cuStreamBeginCapture(to[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CU(cuGreenCtxRecordEvent(second, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CU(cuStreamEndCapture(to[0], &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    for (int i = 0; i < STREAMS; i++) {
        CHECK_CU(cuStreamDestroy(from[i]));
        CHECK_CU(cuStreamDestroy(to[i]));
    }
    CHECK_CU(cuStreamDestroy(later));
    CHECK_CU(cuEventDestroy(event));
    CHECK_CU(cuGreenCtxDestroy(first));
    CHECK_CU(cuGreenCtxDestroy(second));
    CHECK(cudaFree(values));
}

static void check_refusals(void)
{
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CHECK_CU(cuDevResourceGenerateDesc(&desc, groups, 1));
    EXPECT_CU(cuGreenCtxCreate(&green, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuGreenCtxCreate(&green, desc, 1000, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(cuDevResourceGenerateDesc(&desc, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuDevResourceGenerateDesc(NULL, groups, 1), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc((void **)&seen, SMS_MAX * sizeof *seen));
    check_split();
    check_greens();
    check_graphs();
    check_destroyed();
    check_events();
    check_refusals();
    CHECK(cudaFree(seen));
    printf("ok\n");
    return 0;
}
