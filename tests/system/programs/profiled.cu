// nvcc: -lcupti
/* A program that wants to be profiled (CUPTI): says what CUPTI's functions return, and works all the same. */
#include <cuda_runtime.h>
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>

static void CUPTIAPI give(uint8_t **buffer, size_t *bytes, size_t *record_count)
{
    *bytes = 65536;
    *buffer = (uint8_t *)malloc(*bytes);
    *record_count = 0;
}

static void CUPTIAPI take(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t)
{
    free(buffer);
}

static void CUPTIAPI called(void *, CUpti_CallbackDomain, CUpti_CallbackId, const void *)
{
}

__global__ static void add(unsigned *sum)
{
    atomicAdd(sum, threadIdx.x);
}

int main()
{
    CUpti_SubscriberHandle subscriber;
    unsigned *sum, result = 0;
    const int failures = (cuptiActivityRegisterCallbacks(give, take) != CUPTI_SUCCESS) +
                         (cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) +
                         (cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME) != CUPTI_SUCCESS) +
                         (cuptiSubscribe(&subscriber, called, NULL) != CUPTI_SUCCESS);
    cudaError_t error = cudaMalloc(&sum, sizeof *sum);

    if (!error)
        error = cudaMemset(sum, 0, sizeof *sum);
    if (!error) {
        add<<<1, 128>>>(sum);
        error = cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost);
    }
    const int flushed = cuptiActivityFlushAll(0) == CUPTI_SUCCESS;
    printf("refused %d flushed %d cuda %d sum %u\n", failures, flushed, (int)error, result);
    return 0;
}
