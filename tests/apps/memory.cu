// Linear memory: allocation and release with their corner cases, alignment, memset, copies of odd sizes and
// offsets, pointer attributes, and the refusals of bad arguments.
#include "check.h"

static void check_allocation(void)
{
    void *pointers[40], *null = (void *)1;

    CHECK(cudaMalloc(&null, 0));
    EXPECT(null == NULL, "an empty allocation is NULL");
    CHECK(cudaFree(NULL));
    EXPECT_ERR(cudaMalloc(NULL, 4), cudaErrorInvalidValue);
    for (int i = 0; i < 40; i++) {
        CHECK(cudaMalloc(&pointers[i], (size_t)1 << (i % 22)));
        EXPECT((uintptr_t)pointers[i] % 256 == 0, "%p", pointers[i]);
        for (int j = 0; j < i; j++)
            EXPECT(pointers[i] != pointers[j]);
    }
    for (int i = 0; i < 40; i += 2)
        CHECK(cudaFree(pointers[i]));
    for (int i = 1; i < 40; i += 2)
        CHECK(cudaFree(pointers[i]));
    EXPECT_ERR(cudaFree(pointers[7]), cudaErrorInvalidValue);
}

static void check_copies(void)
{
    enum { BYTES = 100003 };
    unsigned char *source = (unsigned char *)malloc(BYTES), *back = (unsigned char *)malloc(BYTES);
    unsigned char *a, *b;
    uint32_t seed = 1;

    for (int i = 0; i < BYTES; i++)
        source[i] = (unsigned char)next_random(&seed);
    CHECK(cudaMalloc(&a, BYTES));
    CHECK(cudaMalloc(&b, BYTES));
    CHECK(cudaMemcpy(a, source, BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(b, 0xa5, BYTES));
    CHECK(cudaMemcpy(b + 13, a + 1, 5001, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(back, b, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < BYTES; i++) {
        int want = i >= 13 && i < 13 + 5001 ? source[i - 12] : 0xa5;

        EXPECT(back[i] == want, "byte %d: %d, expected %d", i, back[i], want);
    }
    memset(back, 0, BYTES);
    CHECK(cudaMemcpy(back + 7, source + 3, 999, cudaMemcpyHostToHost));
    EXPECT(memcmp(back + 7, source + 3, 999) == 0 && back[6] == 0 && back[7 + 999] == 0);
    CHECK(cudaMemcpy(back, a, BYTES, cudaMemcpyDefault));
    EXPECT(memcmp(back, source, BYTES) == 0);
    CHECK(cudaMemcpy(a, back, 0, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(a, 0, 0));
    EXPECT_ERR(cudaMemcpy(a, back, 4, (cudaMemcpyKind)77), cudaErrorInvalidMemcpyDirection);
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    free(source);
    free(back);
}

static void check_attributes(void)
{
    cudaPointerAttributes attr;
    cudaDeviceProp prop;
    char *device, *pinned, local[8];

    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaMalloc(&device, 1000));
    CHECK(cudaMallocHost(&pinned, 1000));
    CHECK(cudaPointerGetAttributes(&attr, device + 999));
    EXPECT_EQ(attr.type, cudaMemoryTypeDevice);
    EXPECT_EQ(attr.device, 0);
    EXPECT(attr.devicePointer == device + 999);
    EXPECT(attr.hostPointer == NULL);
    CHECK(cudaPointerGetAttributes(&attr, pinned + 10));
    EXPECT_EQ(attr.type, cudaMemoryTypeHost);
    EXPECT(attr.hostPointer == pinned + 10);
    EXPECT(!prop.canMapHostMemory || attr.devicePointer == pinned + 10);
    CHECK(cudaPointerGetAttributes(&attr, local));
    EXPECT_EQ(attr.type, cudaMemoryTypeUnregistered);
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaPointerGetAttributes(&attr, pinned));
    EXPECT_EQ(attr.type, cudaMemoryTypeUnregistered);
}

/* A copy that would leave its allocation is refused as a whole. */
static void check_bounds(void)
{
    const size_t bytes = 4u << 20;
    char *device, *host = (char *)calloc(1, 2 * bytes);

    CHECK(cudaMalloc(&device, bytes));
    EXPECT_ERR(cudaMemcpy(host, device, 2 * bytes, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemcpy(device, host, 2 * bytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemset(device, 1, 2 * bytes), cudaErrorInvalidValue);
    CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    free(host);
}

int main(void)
{
    check_allocation();
    check_copies();
    check_attributes();
    check_bounds();
    CHECK(cudaGetLastError());
    return 0;
}
