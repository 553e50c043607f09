// Managed memory: one address for host and device, small and large, whatever brings the bytes: kernels, copies, fills,
// host functions; and each way to wait for them. The host keeps away from memory while the GPU may use it, as devices
// without concurrent access want it.
// nvcc: -lcuda
#include <cuda.h>
#include "check.h"

static const size_t sizes[] = {4, 100, 4096, 4097, 70000, 1u << 20, (1u << 20) + 4, (3u << 20) + 12344, 20u << 20};

/* Every step-th word from `first` on. */
__global__ void add(uint32_t *words, size_t count, size_t first, size_t step, uint32_t value)
{
    for (size_t i = first + step * (blockIdx.x * blockDim.x + threadIdx.x); i < count;
         i += step * gridDim.x * blockDim.x)
        words[i] += value;
}

static void launch_add(uint32_t *words, size_t count, size_t first, size_t step, uint32_t value,
                       cudaStream_t stream = 0)
{
    add<<<8, 128, 0, stream>>>(words, count, first, step, value);
    CHECK_LAUNCH();
}

static uint32_t *alloc(size_t bytes, unsigned flags = cudaMemAttachGlobal)
{
    void *memory = NULL;

    CHECK(cudaMallocManaged(&memory, bytes, flags));
    EXPECT(memory != NULL);
    return (uint32_t *)memory;
}

/* What the host, and what kernels have made of word i. */
static uint32_t host_word(size_t i, uint32_t round)
{
    return (uint32_t)(i * 2654435761u) ^ round * 40503u;
}

static void expect_words(const uint32_t *words, size_t count, uint32_t round, size_t first, size_t step, uint32_t value)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t want = host_word(i, round) + (i >= first && (i - first) % step == 0 ? value : 0);
        EXPECT(words[i] == want, "word %zu of %zu: %x, expected %x", i, count, words[i], want);
    }
}

/* There and back, all of it and a few words; the host's and the GPU's changes of one round are in different words. */
static void there_and_back(size_t bytes)
{
    size_t count = bytes / 4;
    uint32_t *words = alloc(bytes);

    for (uint32_t round = 1; round <= 3; round++) {
        size_t step = round == 1 ? 1 : round == 2 ? 1021 : 300007;
        for (size_t i = 0; i < count; i++)
            words[i] = host_word(i, round);
        launch_add(words, count, count / 3, step, 7);
        launch_add(words, count, count / 3, step, 4); /* nothing happens in between */
        CHECK(cudaDeviceSynchronize());
        expect_words(words, count, round, count / 3, step, 11);
    }
    words[0] = 1; /* one word each, at both ends */
    words[count - 1] = 2;
    launch_add(words, count, count - 1, 1, 5);
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(words[0], count == 1 ? 7 : 1);
    EXPECT_EQ(words[count - 1], 7);
    CHECK(cudaFree(words));
}

/* Many at once, of which each kernel uses one: the others stay what they are on either side. */
static void many(void)
{
    enum { COUNT = 100 };
    uint32_t *words[COUNT];

    for (int i = 0; i < COUNT; i++) {
        words[i] = alloc(16 + 40 * i);
        *words[i] = i;
    }
    for (int i = 0; i < COUNT; i += 2)
        launch_add(words[i], 1, 0, 1, 1000);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(*words[i], i % 2 ? i : i + 1000);
    for (int i = 0; i < COUNT; i += 3)
        CHECK(cudaFree(words[i]));
    for (int i = 0; i < COUNT; i++)
        if (i % 3)
            *words[i] += 5;
    launch_add(words[1], 1, 0, 1, 1);
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(*words[1], 1 + 5 + 1);
    EXPECT_EQ(*words[2], 2 + 1000 + 5);
    for (int i = 0; i < COUNT; i++)
        if (i % 3)
            CHECK(cudaFree(words[i]));
}

/* Pointers that the host has written into managed memory lead to managed memory. */
struct node {
    struct node *next;
    uint32_t value;
};

__global__ void sum_list(const struct node *node, uint32_t *result)
{
    uint32_t sum = 0;

    for (; node; node = node->next)
        sum += node->value;
    *result = sum;
}

static void linked_list(void)
{
    struct node *first = NULL;
    uint32_t *result = alloc(4), want = 0;

    for (uint32_t i = 0; i < 40; i++) {
        struct node *node = (struct node *)alloc(sizeof *node);
        node->next = first;
        node->value = i * i;
        want += i * i;
        first = node;
    }
    *result = 1;
    sum_list<<<1, 1>>>(first, result);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(*result, want);
    while (first) {
        struct node *next = first->next;
        CHECK(cudaFree(first));
        first = next;
    }
    CHECK(cudaFree(result));
}

/* ---- waiting ---- */

static void ways_to_wait(void)
{
    enum { WORDS = 1000 };
    uint32_t *words = alloc(WORDS * 4), *large = alloc(8u << 20), want = 0;
    cudaStream_t stream;
    cudaEvent_t event;
    int ignored, *device;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaMalloc(&device, 4));
    large[5] = 0;
    for (int way = 0; way < 6; way++) {
        words[WORDS - 1] = want += 100;
        large[5] += 1;
        launch_add(words, WORDS, WORDS - 1, 1, 3, stream);
        launch_add(large, 6, 5, 1, 10, stream);
        switch (way) {
        case 0:
            CHECK(cudaStreamSynchronize(stream));
            break;
        case 1:
            CHECK(cudaEventRecord(event, stream));
            CHECK(cudaEventSynchronize(event));
            break;
        case 2:
            while (cudaStreamQuery(stream) != cudaSuccess)
                ;
            break;
        case 3:
            CHECK(cudaEventRecord(event, stream));
            while (cudaEventQuery(event) != cudaSuccess)
                ;
            break;
        case 4: /* the other stream is done when this one is */
            CHECK(cudaEventRecord(event, stream));
            CHECK(cudaStreamWaitEvent(0, event, 0));
            CHECK(cudaStreamSynchronize(0));
            break;
        case 5: /* so does a copy that is synchronous, behind it */
            CHECK(cudaEventRecord(event, stream));
            CHECK(cudaStreamWaitEvent(0, event, 0));
            CHECK(cudaMemcpy(&ignored, device, 4, cudaMemcpyDeviceToHost));
            break;
        }
        EXPECT_EQ(words[WORDS - 1], want += 3);
        EXPECT_EQ(large[5], 11 * (way + 1));
        cudaGetLastError(); /* a query's "not ready" */
    }
    CHECK(cudaFree(words));
    CHECK(cudaFree(large));
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaEventDestroy(event));
}

/* ---- copies and fills ---- */

/* Each direction, also where it is named as memory of the one side only. */
static void copies(size_t bytes)
{
    size_t count = bytes / 4;
    uint32_t *a = alloc(bytes), *b = alloc(bytes), *device, *host = (uint32_t *)malloc(bytes);

    EXPECT(host != NULL);
    CHECK(cudaMalloc(&device, bytes));
    for (size_t i = 0; i < count; i++) {
        a[i] = host_word(i, 1);
        b[i] = 1;
        host[i] = 2;
    }
    CHECK(cudaMemcpy(host, a, bytes, cudaMemcpyDeviceToHost)); /* what the host has just written */
    expect_words(host, count, 1, 0, 1, 0);
    CHECK(cudaMemcpy(b, a, bytes, cudaMemcpyDefault));
    expect_words(b, count, 1, 0, 1, 0);
    launch_add(b, count, 0, 1, 1);
    CHECK(cudaMemcpy(host, b, bytes, cudaMemcpyDefault));
    expect_words(host, count, 1, 0, 1, 1);
    expect_words(b, count, 1, 0, 1, 1); /* the copy was synchronous */
    CHECK(cudaMemcpy(device, b, bytes, cudaMemcpyHostToDevice));
    launch_add(device, count, 0, 1, 1);
    CHECK(cudaMemcpy(a, device, bytes, cudaMemcpyDeviceToHost));
    expect_words(a, count, 1, 0, 1, 2);
    host[count - 1] = 77;
    CHECK(cudaMemcpy(a + count / 2, host + count / 2, (count - count / 2) * 4, cudaMemcpyHostToDevice));
    EXPECT_EQ(a[count - 1], 77);
    EXPECT_EQ(a[0], count > 1 ? host_word(0, 1) + 2 : 77);
    b[0] = 5;
    CHECK(cudaMemcpyAsync(a, b, 4, cudaMemcpyDeviceToDevice));
    launch_add(a, 1, 0, 1, 6);
    CHECK(cudaStreamSynchronize(0));
    EXPECT_EQ(a[0], 11);
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(device));
    free(host);
}

static void fills(size_t bytes)
{
    unsigned char *memory = (unsigned char *)alloc(bytes);

    memset(memory, 1, bytes);
    CHECK(cudaMemset(memory, 2, bytes / 2)); /* synchronous */
    EXPECT_EQ(memory[0], 2);
    EXPECT_EQ(memory[bytes / 2 - 1], 2);
    EXPECT_EQ(memory[bytes / 2], 1);
    EXPECT_EQ(memory[bytes - 1], 1);
    memory[bytes - 1] = 9;
    CHECK(cudaMemsetAsync(memory, 3, bytes - 1, 0));
    CHECK(cudaStreamSynchronize(0));
    EXPECT_EQ(memory[bytes - 2], 3);
    EXPECT_EQ(memory[bytes - 1], 9);
    CHECK(cudaMemset2D(memory, 4, 5, 2, bytes / 4));
    EXPECT_EQ(memory[0], 5);
    EXPECT_EQ(memory[2], 3);
    CHECK(cudaFree(memory));
}

/* ---- host functions ---- */

struct met {
    uint32_t *words, seen;
};

static void meet(void *user)
{
    struct met *met = (struct met *)user;

    met->seen = met->words[1];
    met->words[0] += 1000;
}

/* It sees what the stream had before it, and what it writes is there for what was issued behind it long ago. */
static void host_function(size_t bytes)
{
    uint32_t *words = alloc(bytes);
    struct met met = {words, 0};

    words[0] = 1;
    words[1] = 2;
    launch_add(words, 2, 1, 1, 5);
    CHECK(cudaLaunchHostFunc(0, meet, &met));
    launch_add(words, 2, 0, 1, 20);
    CHECK(cudaStreamSynchronize(0));
    EXPECT_EQ(met.seen, 7);
    EXPECT_EQ(words[0], 1021);
    EXPECT_EQ(words[1], 27);
    CHECK(cudaFree(words));
}

/* ---- what is said of it ---- */

static void pointers(void)
{
    unsigned char *memory = (unsigned char *)alloc(5000);
    cudaPointerAttributes attributes;
    CUdeviceptr address = (CUdeviceptr)memory, base, device_pointer;
    void *host_pointer;
    unsigned type;
    size_t bytes;
    bool is_managed = false;

    CHECK(cudaPointerGetAttributes(&attributes, memory + 100));
    EXPECT_EQ(attributes.type, cudaMemoryTypeManaged);
    EXPECT(attributes.devicePointer == memory + 100 && attributes.hostPointer == memory + 100);
    CHECK_CU(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 4999));
    EXPECT(is_managed);
    CHECK_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
    CHECK_CU(cuPointerGetAttribute(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 8));
    EXPECT_EQ(device_pointer, address + 8);
    CHECK_CU(cuPointerGetAttribute(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 8));
    EXPECT(host_pointer == memory + 8);
    CHECK_CU(cuMemGetAddressRange(&base, &bytes, address + 77));
    EXPECT_EQ(base, address);
    EXPECT_EQ(bytes, 5000);
    CHECK(cudaFree(memory));
}

static void refused(void)
{
    void *memory = NULL;
    CUdeviceptr address;

    memory = &address;
    CHECK(cudaMallocManaged(&memory, 0));
    EXPECT(!memory, "no bytes have no memory");
    EXPECT_ERR(cudaMallocManaged(&memory, 16, cudaMemAttachSingle), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMallocManaged(&memory, 16, 0), cudaErrorInvalidValue);
    EXPECT_CU(cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAllocManaged(&address, 16, CU_MEM_ATTACH_HOST));
    *(int *)address = 3;
    CHECK_CU(cuMemFree(address));
}

int main(void)
{
    int is_there = 0;

    CHECK(cudaDeviceGetAttribute(&is_there, cudaDevAttrManagedMemory, 0));
    if (!is_there)
        SKIP("the device has no managed memory");
    CHECK(cudaFree(0));
    for (size_t bytes : sizes) {
        there_and_back(bytes);
        copies(bytes);
    }
    many();
    linked_list();
    ways_to_wait();
    fills(4096);
    fills(6u << 20);
    host_function(8);
    host_function(5u << 20);
    pointers();
    refused();
    return 0;
}
