// Advice about managed memory, prefetching and the attributes of ranges: what is said about the host always holds; what
// is about a GPU is refused where the GPU does not use managed memory beside the host.
// nvcc: -lcuda -ldl
#include <cuda.h>
#include <dlfcn.h>
#include "check.h"

enum { PAGE = 4096, BYTES = 40 * PAGE };

static bool is_concurrent;
static unsigned char *memory;
static const cudaMemLocation host = {cudaMemLocationTypeHost, 0}, device = {cudaMemLocationTypeDevice, 0};

/* Of all pages of a range. */
static int attribute(cudaMemRangeAttribute which, size_t offset, size_t bytes)
{
    int value = -1000;

    CHECK(cudaMemRangeGetAttribute(&value, sizeof value, which, memory + offset, bytes));
    return value;
}

static void nothing_at_first(void)
{
    EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, 0, BYTES), 0);
    EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation, 0, BYTES), cudaInvalidDeviceId);
    EXPECT_EQ(attribute(cudaMemRangeAttributeAccessedBy, 0, BYTES), cudaInvalidDeviceId);
    EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation, 0, BYTES), cudaInvalidDeviceId);
    EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocationType, 0, BYTES), cudaMemLocationTypeInvalid);
    EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocationType, 0, BYTES), cudaMemLocationTypeInvalid);
}

/* Pages that a range touches have it, others do not; a range has it where all of its pages do. */
static void by_pages(void)
{
    CHECK(cudaMemAdvise(memory + PAGE + 10, PAGE, cudaMemAdviseSetReadMostly, host));
    EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, PAGE, 2 * PAGE), 1);
    EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, 2 * PAGE, 1), 1);
    EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, 0, PAGE), 0);
    EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, PAGE, 3 * PAGE), 0);
    CHECK(cudaMemAdvise(memory + PAGE, 1, cudaMemAdviseUnsetReadMostly, host));
    EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, PAGE, PAGE), 0);
    EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, 2 * PAGE, PAGE), 1);
    CHECK(cudaMemAdvise(memory, BYTES, cudaMemAdviseUnsetReadMostly, host));
}

static void about_the_host(void)
{
    int list[3] = {5, 5, 5}, mostly = 5;
    void *values[2] = {list, &mostly};
    size_t value_bytes[2] = {sizeof list, sizeof mostly};
    cudaMemRangeAttribute attributes[2] = {cudaMemRangeAttributeAccessedBy, cudaMemRangeAttributeReadMostly};

    CHECK(cudaMemAdvise(memory, BYTES, cudaMemAdviseSetPreferredLocation, host));
    EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation, 0, BYTES), cudaCpuDeviceId);
    EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocationType, 0, BYTES), cudaMemLocationTypeHost);
    CHECK(cudaMemAdvise(memory, BYTES, cudaMemAdviseSetAccessedBy, host));
    CHECK(cudaMemRangeGetAttributes(values, value_bytes, attributes, 2, memory, BYTES));
    EXPECT_EQ(list[0], cudaCpuDeviceId);
    EXPECT_EQ(list[1], cudaInvalidDeviceId);
    EXPECT_EQ(list[2], cudaInvalidDeviceId);
    EXPECT_EQ(mostly, 0);
    CHECK(cudaMemAdvise(memory, BYTES, cudaMemAdviseUnsetAccessedBy, host));
    CHECK(cudaMemAdvise(memory, PAGE, cudaMemAdviseUnsetPreferredLocation, host));
    EXPECT_EQ(attribute(cudaMemRangeAttributeAccessedBy, 0, BYTES), cudaInvalidDeviceId);
    EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation, 0, BYTES), cudaInvalidDeviceId);
    EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation, PAGE, BYTES - PAGE), cudaCpuDeviceId);
    CHECK(cudaMemAdvise(memory, BYTES, cudaMemAdviseUnsetPreferredLocation, host));
}

static void about_a_gpu(void)
{
    cudaError_t want = is_concurrent ? cudaSuccess : cudaErrorInvalidDevice;
    int preferred = is_concurrent ? 0 : (int)cudaInvalidDeviceId;

    EXPECT_ERR(cudaMemAdvise(memory, BYTES, cudaMemAdviseSetPreferredLocation, device), want);
    EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation, 0, BYTES), preferred);
    EXPECT_ERR(cudaMemAdvise(memory, BYTES, cudaMemAdviseSetAccessedBy, device), want);
    EXPECT_EQ(attribute(cudaMemRangeAttributeAccessedBy, 0, BYTES), preferred);
    EXPECT_ERR(cudaMemPrefetchAsync(memory, BYTES, device, 0, 0), want);
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation, 0, BYTES), preferred);
    EXPECT_CU(cuMemPrefetchAsync((CUdeviceptr)memory, BYTES, {CU_MEM_LOCATION_TYPE_DEVICE, {0}}, 0, 0),
              is_concurrent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(
        cuMemAdvise((CUdeviceptr)memory, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, {CU_MEM_LOCATION_TYPE_DEVICE, {0}}),
        CUDA_SUCCESS);
    EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, 0, BYTES), 1);
}

/* The first versions name devices by their numbers, the host by -1. */
static void by_number(void)
{
    typedef CUresult (*advise_fn)(CUdeviceptr, size_t, CUmem_advise, CUdevice);
    typedef CUresult (*prefetch_fn)(CUdeviceptr, size_t, CUdevice, CUstream);
    advise_fn advise = (advise_fn)dlsym(RTLD_DEFAULT, "cuMemAdvise");
    prefetch_fn prefetch = (prefetch_fn)dlsym(RTLD_DEFAULT, "cuMemPrefetchAsync");
    CUresult want = is_concurrent ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;

    EXPECT(advise && prefetch);
    CHECK_CU(advise((CUdeviceptr)memory, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation, 0, BYTES), cudaCpuDeviceId);
    CHECK_CU(advise((CUdeviceptr)memory, BYTES, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    EXPECT_CU(advise((CUdeviceptr)memory, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0), want);
    EXPECT_CU(prefetch((CUdeviceptr)memory, BYTES, 0, 0), want);
}

/* Several at once, to places that count from one of them on. Discarded memory is what is written next. */
static void batches(void)
{
    void *parts[3] = {memory, memory + 4 * PAGE, memory + 8 * PAGE};
    size_t sizes[3] = {PAGE, 2 * PAGE, PAGE}, firsts[2] = {0, 2};
    cudaMemLocation places[2] = {device, host};
    cudaError_t want = is_concurrent ? cudaSuccess : cudaErrorInvalidDevice;
    cudaStream_t stream;

    CHECK(cudaStreamCreate(&stream));
    EXPECT_ERR(cudaMemPrefetchBatchAsync(parts, sizes, 3, places, firsts, 2, 0, stream), want);
    CHECK(cudaStreamSynchronize(stream));
    if (is_concurrent) {
        EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation, 0, PAGE), 0);
        EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation, 4 * PAGE, 2 * PAGE), 0);
        EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation, 8 * PAGE, PAGE), cudaCpuDeviceId);
        if (is_forwarded()) // natively an H200's driver told of the first page's
            EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation, 4 * PAGE, 5 * PAGE), cudaInvalidDeviceId);
    }
    EXPECT_ERR(cudaMemDiscardBatchAsync(parts, sizes, 3, 0, stream), want);
    EXPECT_ERR(cudaMemDiscardAndPrefetchBatchAsync(parts, sizes, 3, places, firsts, 2, 0, stream), want);
    CHECK(cudaStreamSynchronize(stream));
    memory[4 * PAGE] = 7;
    EXPECT_EQ(memory[4 * PAGE], 7);
    firsts[0] = 1;
    EXPECT_ERR(cudaMemPrefetchBatchAsync(parts, sizes, 3, places, firsts, 2, 0, stream), cudaErrorInvalidValue);
    firsts[0] = 0;
    firsts[1] = 3;
    EXPECT_ERR(cudaMemPrefetchBatchAsync(parts, sizes, 3, places, firsts, 2, 0, stream), cudaErrorInvalidValue);
    CHECK(cudaStreamDestroy(stream));
}

static void refused(void)
{
    int value;
    void *ordinary;

    CHECK(cudaMalloc(&ordinary, PAGE));
    EXPECT_ERR(cudaMemAdvise(ordinary, PAGE, cudaMemAdviseSetReadMostly, host), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemAdvise(memory, BYTES + 2 * PAGE, cudaMemAdviseSetReadMostly, host), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemAdvise(memory, BYTES, (cudaMemoryAdvise)77, host), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemRangeGetAttribute(&value, 3, cudaMemRangeAttributeReadMostly, memory, BYTES),
               cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemRangeGetAttribute(&value, 6, cudaMemRangeAttributeAccessedBy, memory, BYTES),
               cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemRangeGetAttribute(&value, 4, (cudaMemRangeAttribute)99, memory, BYTES), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeReadMostly, ordinary, PAGE),
               cudaErrorInvalidValue);
    CHECK(cudaFree(ordinary));
}

int main(void)
{
    int is_there = 0, concurrent = 0;

    CHECK(cudaDeviceGetAttribute(&is_there, cudaDevAttrManagedMemory, 0));
    if (!is_there)
        SKIP("the device has no managed memory");
    CHECK(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
    is_concurrent = concurrent != 0;
    if (is_forwarded() && !getenv("FLYT_MANAGED_MEMORY"))
        EXPECT(!is_concurrent);
    CHECK(cudaMallocManaged((void **)&memory, BYTES));
    nothing_at_first();
    by_pages();
    about_the_host();
    by_number();
    about_a_gpu();
    batches();
    refused();
    CHECK(cudaFree(memory));
    return 0;
}
