// What becomes of managed memory when its context ends, its device is reset, or the program has many threads.
// nvcc: -lcuda -lpthread
#include <cuda.h>
#include <pthread.h>
#include "check.h"

__global__ void add(uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[i] += value;
}

static void there_and_back(size_t count, cudaStream_t stream)
{
    uint32_t *words = NULL;

    CHECK(cudaMallocManaged((void **)&words, count * sizeof(*words)));
    for (size_t i = 0; i < count; i++)
        words[i] = i;
    add<<<2, 64, 0, stream>>>(words, count, 7);
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < count; i++)
        EXPECT_EQ(words[i], i + 7);
    CHECK(cudaFree(words));
}

static void contexts_end(void)
{
    CUcontext context;
    CUdevice device;
    CUdeviceptr memory, again;
    bool is_managed;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    for (size_t bytes : {(size_t)100, (size_t)(5 << 20)}) {
        CHECK_CU(cuCtxCreate(&context, NULL, 0, device));
        CHECK_CU(cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL));
        *(int *)memory = 5;
        CHECK_CU(cuMemsetD8(memory + 50, 1, 10));
        EXPECT_EQ(*(int *)memory, 5);
        CHECK_CU(cuCtxDestroy(context));
        CHECK_CU(cuCtxCreate(&context, NULL, 0, device));
        EXPECT_CU(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory),
                  CUDA_ERROR_INVALID_VALUE);
        CHECK_CU(cuMemAllocManaged(&again, bytes, CU_MEM_ATTACH_GLOBAL));
        memset((void *)again, 3, bytes);
        CHECK_CU(cuMemsetD8(again + bytes - 1, 4, 1));
        EXPECT_EQ(((char *)again)[bytes - 1], 4);
        EXPECT_EQ(((char *)again)[bytes - 2], 3);
        CHECK_CU(cuCtxDestroy(context));
    }
}

static void device_is_reset(void)
{
    uint32_t *words;

    for (int turn = 0; turn < 3; turn++) {
        there_and_back(1000, 0);
        there_and_back(3 << 20, 0);
        CHECK(cudaMallocManaged((void **)&words, 3 << 20)); /* goes with the reset */
        words[5] = 1;
        add<<<1, 64>>>(words, 6, 1);
        CHECK(cudaDeviceReset());
    }
}

enum { THREADS = 4, ROUNDS = 25 };

static void *work(void *user)
{
    const size_t count = user ? 300000 : 3000; /* large ones and small ones */
    cudaStream_t stream;
    uint32_t *own;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocManaged((void **)&own, count * sizeof(*own), cudaMemAttachHost));
    CHECK(cudaStreamAttachMemAsync(stream, own));
    CHECK(cudaStreamSynchronize(stream));
    memset(own, 0, count * sizeof(*own));
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        void *other = NULL;
        own[round] = 1000;
        add<<<1, 64, 0, stream>>>(own, count, 1);
        CHECK_LAUNCH();
        CHECK(cudaMallocManaged(&other, 64, cudaMemAttachHost));
        *(int *)other = 1;
        CHECK(cudaStreamSynchronize(stream));
        EXPECT_EQ(own[round], 1001);
        EXPECT_EQ(own[count - 1], round);
        EXPECT_EQ(own[0], round);
        CHECK(cudaFree(other));
    }
    CHECK(cudaFree(own));
    CHECK(cudaStreamDestroy(stream));
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];

    for (size_t i = 0; i < THREADS; i++)
        EXPECT_EQ(pthread_create(&all[i], NULL, work, (void *)(i % 2)), 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT_EQ(pthread_join(all[i], NULL), 0);
}

int main(void)
{
    int is_there = 0;

    CHECK(cudaDeviceGetAttribute(&is_there, cudaDevAttrManagedMemory, 0));
    if (!is_there)
        SKIP("the device has no managed memory");
    contexts_end();
    threads();
    device_is_reset();
    return 0;
}
