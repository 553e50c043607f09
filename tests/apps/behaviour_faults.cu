// What calls answer after a kernel has broken the context, and after the reset that follows. behaviour.h says what a
// row is.
// nvcc: -lcuda
#include "behaviour.h"
#include <cuda.h>
#include <pthread.h>

__global__ void store(int *p)
{
    *p = 1;
}

static void *other_thread(void *ret_codes)
{
    int *codes = (int *)ret_codes;

    codes[0] = cudaPeekAtLastError();
    codes[1] = cudaDeviceSynchronize();
    codes[2] = cudaGetLastError();
    codes[3] = cudaGetLastError();
    return NULL;
}

static void illegal_address(void)
{
    int *memory = NULL, word = 0, codes[4] = {9, 9, 9, 9};
    size_t bytes;
    cudaDeviceProp properties;
    cudaPointerAttributes pointer;
    cudaStream_t stream;
    cudaEvent_t event;
    pthread_t thread;
    void *host;

    CHECK(cudaMalloc(&memory, 4));
    store<<<1, 1>>>((int *)16);
    IS(0, cudaPeekAtLastError());
    IS(700, cudaDeviceSynchronize());
    IS(700, cudaPeekAtLastError());
    IS(700, cudaGetLastError());
    IS(0, cudaGetLastError()); /* asking forgets it, */
    IS(0, cudaPeekAtLastError());
    RT(700, cudaMalloc(&memory, 4)); /* and the next call that needs the context says it again. */
    RT(0, cudaGetDeviceCount(&word));
    RT(0, cudaGetDevice(&word));
    RT(0, cudaSetDevice(0));
    RT(101, cudaSetDevice(99));
    RT(700, cudaFree(memory));
    RT(700, cudaStreamQuery(NULL));
    RT(700, cudaStreamSynchronize(NULL));
    RT(700, cudaMemcpy(&word, memory, 4, cudaMemcpyDeviceToHost));
    RT(700, cudaMemset(memory, 0, 4));
    RT(0, cudaGetDeviceProperties(&properties, 0));
    RT(0, cudaDeviceGetAttribute(&word, cudaDevAttrWarpSize, 0));
    RT(0, cudaDriverGetVersion(&word));
    RT(700, cudaEventCreate(&event));
    RT(700, cudaStreamCreate(&stream));
    RT(700, cudaMallocHost(&host, 16));
    RT(700, cudaMemGetInfo(&bytes, &bytes));
    RT(0, cudaPointerGetAttributes(&pointer, memory));
    store<<<1, 1>>>(memory);
    IS(700, cudaGetLastError());
    IS(0, cudaGetLastError());
    DR(700, cuCtxSynchronize());
    IS(0, cudaGetLastError());
    IS(0, pthread_create(&thread, NULL, other_thread, codes));
    IS(0, pthread_join(thread, NULL));
    IS(0, codes[0]);
    IS(700, codes[1]);
    IS(700, codes[2]);
    IS(0, codes[3]);
}

static void reset_after_fault(void)
{
    int *memory = NULL, word;
    void *host;
    cudaStream_t stream;

    CHECK(cudaMalloc(&memory, 4));
    store<<<1, 1>>>((int *)16);
    RT(700, cudaDeviceSynchronize());
    RT(0, cudaDeviceReset());
    RT(46, cudaMalloc(&memory, 4));
    RT(0, cudaDriverGetVersion(&word));
    RT(0, cudaGetDeviceCount(&word));
    RT(46, cudaMallocHost(&host, 16));
    RT(46, cudaStreamCreate(&stream));
    RT(46, cudaSetDevice(0));
    RT(46, cudaDeviceSynchronize());
}

static void driver_after_fault(void)
{
    CUcontext context, other;
    CUdeviceptr memory, more;
    CUdevice device;
    CUstream stream;
    unsigned flags;
    int value = 0, is_active;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuMemAlloc(&memory, 4));
    store<<<1, 1>>>((int *)16);
    DR(700, cuCtxSynchronize());
    DR(700, cuMemAlloc(&more, 4));
    DR(700, cuMemFree(memory));
    DR(700, cuMemcpyDtoH(&value, memory, 4));
    DR(700, cuStreamCreate(&stream, 0));
    DR(700, cuStreamQuery(NULL));
    DR(0, cuCtxGetCurrent(&other));
    IS(1, other == context);
    DR(0, cuCtxGetDevice(&device));
    DR(0, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    DR(0, cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    DR(700, cuCtxSynchronize());
}

BEHAVIOUR_MAIN({"illegal address", illegal_address}, {"reset after a fault", reset_after_fault},
               {"driver after a fault", driver_after_fault})
