// Attributes of streams: what they are at first, what is set of them and copied, and what is refused.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>
#include <string.h>

__global__ void add_one(unsigned *words)
{
    words[threadIdx.x] += 1;
}

static CUstreamAttrValue get(CUstream stream, CUstreamAttrID attribute)
{
    CUstreamAttrValue value;

    memset(&value, 0xa5, sizeof(value));
    CHECK_CU(cuStreamGetAttribute(stream, attribute, &value));
    return value;
}

static void check_first_values(CUstream stream)
{
    CUaccessPolicyWindow window = get(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW).accessPolicyWindow;

    EXPECT_EQ(window.num_bytes, (size_t)0);
    EXPECT_EQ((int)get(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY).syncPolicy, -1); // none was set
    EXPECT_EQ(get(stream, CU_STREAM_ATTRIBUTE_PRIORITY).priority, 0);
    EXPECT_EQ(get(stream, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain, CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT);
    EXPECT_EQ((int)get(stream, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP).memSyncDomainMap.default_, 0);
}

// A kernel runs as before under every attribute; the runtime says the same as the driver.
static void check_window(CUstream stream, unsigned *words, size_t bytes)
{
    CUstreamAttrValue value = {};
    cudaStreamAttrValue seen = {};
    unsigned first = 0;

    value.accessPolicyWindow.base_ptr = words;
    value.accessPolicyWindow.num_bytes = bytes;
    value.accessPolicyWindow.hitRatio = 0.5f;
    value.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_STREAMING;
    value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_NORMAL;
    CHECK_CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
    CHECK(cudaStreamGetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &seen));
    EXPECT(seen.accessPolicyWindow.base_ptr == words);
    EXPECT_EQ(seen.accessPolicyWindow.num_bytes, bytes);
    EXPECT(seen.accessPolicyWindow.hitRatio == 0.5f);
    EXPECT_EQ((int)seen.accessPolicyWindow.hitProp, (int)cudaAccessPropertyStreaming);
    add_one<<<1, 1, 0, stream>>>(words);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&first, words, sizeof(first), cudaMemcpyDeviceToHost));
    EXPECT_EQ(first, 1u);
}

static void check_others(CUstream stream, int greatest)
{
    cudaStreamAttrValue value = {};
    CUstreamAttrValue raised = {};
    int priority = 0;

    value.syncPolicy = cudaSyncPolicyBlockingSync;
    CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeSynchronizationPolicy, &value));
    EXPECT_EQ(get(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY).syncPolicy, CU_SYNC_POLICY_BLOCKING_SYNC);
    raised.priority = greatest;
    CHECK_CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_PRIORITY, &raised));
    EXPECT_EQ(get(stream, CU_STREAM_ATTRIBUTE_PRIORITY).priority, greatest);
    CHECK_CU(cuStreamGetPriority(stream, &priority));
    EXPECT_EQ(priority, greatest);
    raised.priority = greatest - 100; // is brought into the range
    CHECK_CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_PRIORITY, &raised));
    EXPECT_EQ(get(stream, CU_STREAM_ATTRIBUTE_PRIORITY).priority, greatest);
    value.memSyncDomain = cudaLaunchMemSyncDomainRemote;
    CHECK(cudaStreamSetAttribute(stream, cudaLaunchAttributeMemSyncDomain, &value));
    EXPECT_EQ(get(stream, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain, CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
}

static void check_copy(CUstream to, CUstream from)
{
    check_first_values(to);
    CHECK_CU(cuStreamCopyAttributes(to, from));
    EXPECT_EQ(get(to, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY).syncPolicy, CU_SYNC_POLICY_BLOCKING_SYNC);
    EXPECT(get(to, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW).accessPolicyWindow.num_bytes > 0);
    EXPECT_EQ(get(to, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain, CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
}

static void check_refused(CUstream stream, size_t max_bytes)
{
    CUstreamAttrValue value = {};

    EXPECT_CU(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuStreamSetAttribute(stream, (CUstreamAttrID)1000, &value), CUDA_ERROR_INVALID_VALUE);
    EXPECT_ERR(cudaStreamSetAttribute(stream, (cudaStreamAttrID)1000, (cudaStreamAttrValue *)&value),
               cudaErrorInvalidValue);
    value.syncPolicy = (CUsynchronizationPolicy)-1;
    EXPECT_CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value), CUDA_ERROR_INVALID_VALUE);
    value = {};
    value.accessPolicyWindow.num_bytes = max_bytes + 1;
    EXPECT_CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value), CUDA_ERROR_INVALID_VALUE);
    value.accessPolicyWindow.num_bytes = 0;
    value.accessPolicyWindow.hitRatio = 2;
    EXPECT_CU(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    CUstream stream, other;
    unsigned *words;
    int least, greatest, max_bytes = 0;
    size_t bytes = 4096;

    CHECK(cudaMalloc(&words, bytes));
    CHECK(cudaMemset(words, 0, bytes));
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK_CU(cuDeviceGetAttribute(&max_bytes, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 0));
    EXPECT(max_bytes > 0);
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    check_first_values(stream);
    check_refused(stream, (size_t)max_bytes);
    check_first_values(stream);
    check_window(stream, words, bytes);
    check_others(stream, greatest);
    check_copy(other, stream);
    CHECK(cudaMemset(words, 0, bytes));
    check_first_values(CU_STREAM_PER_THREAD);
    check_window(CU_STREAM_PER_THREAD, words, bytes);
    CHECK(cudaMemset(words, 0, bytes));
    check_window(NULL, words, bytes);
    CHECK_CU(cuStreamDestroy(stream));
    CHECK_CU(cuStreamDestroy(other));
    CHECK(cudaFree(words));
    return 0;
}
