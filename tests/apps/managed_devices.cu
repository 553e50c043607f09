// Managed memory of one device in kernels of two: each reaches it, without asking for access to its peer, and the host
// sees what both have done.
#include "check.h"

enum { WORDS = 1 << 19 };

__global__ void add(uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[i] += value;
}

static void on(int device, uint32_t *words, size_t count, uint32_t value)
{
    CHECK(cudaSetDevice(device));
    add<<<4, 128>>>(words, count, value);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
}

int main(void)
{
    int count = 0, reaches = 0, is_there = 0;
    cudaPointerAttributes attributes;

    CHECK(cudaGetDeviceCount(&count));
    if (count < 2)
        SKIP("one device only");
    CHECK(cudaDeviceCanAccessPeer(&reaches, 1, 0));
    CHECK(cudaDeviceGetAttribute(&is_there, cudaDevAttrManagedMemory, 0));
    if (!reaches || !is_there)
        SKIP("the devices do not reach each other's memory, or have no managed memory");
    uint32_t *first, *ordinary, word = 5; /* a copy that may still be under way when the other device is used first */
    CHECK(cudaMallocManaged((void **)&first, 4));
    CHECK(cudaMalloc((void **)&ordinary, 4));
    CHECK(cudaMemcpy(ordinary, &word, 4, cudaMemcpyHostToDevice));
    for (size_t words_count : {(size_t)5, (size_t)WORDS}) {
        for (int user = 0; user < 2; user++) {
            uint32_t *words;
            CHECK(cudaSetDevice(1 - user));
            CHECK(cudaMallocManaged((void **)&words, words_count * sizeof(*words)));
            CHECK(cudaPointerGetAttributes(&attributes, words));
            EXPECT_EQ(attributes.type, cudaMemoryTypeManaged);
            for (size_t i = 0; i < words_count; i++)
                words[i] = i;
            on(user, words, words_count, 1);
            words[words_count - 1] += 10;
            on(1 - user, words, words_count, 2);
            words[0] += 20;
            on(user, words, words_count, 3);
            for (size_t i = 0; i < words_count; i++)
                EXPECT_EQ(words[i], i + 6 + (i == words_count - 1 ? 10 : 0) + (i == 0 ? 20 : 0));
            CHECK(cudaFree(words));
        }
    }
    return 0;
}
