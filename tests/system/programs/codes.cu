// Makes one CUDA call after another, whatever they return, and prints "NAME CODE" for each; then returns 7. An exit
// handler prints "atexit". With an argument the first call is made by so many threads at once.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

__global__ void nothing(int *p)
{
    *p = 1;
}

static void say_atexit(void)
{
    printf("atexit\n");
}

static void *first_call(void *unused)
{
    int count;
    printf("cudaGetDeviceCount %d\n", (int)cudaGetDeviceCount(&count));
    return NULL;
}

#define SAY(call, name) printf(name " %d\n", (int)(call))

int main(int argc, char **argv)
{
    int thread_count = argc > 1 ? atoi(argv[1]) : 1, host = 0;
    int *p = NULL;
    pthread_t threads[64];
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    cudaDeviceProp properties;

    atexit(say_atexit);
    for (int i = 0; i < thread_count && i < 64; i++)
        pthread_create(&threads[i], NULL, first_call, NULL);
    for (int i = 0; i < thread_count && i < 64; i++)
        pthread_join(threads[i], NULL);
    SAY(cudaSetDevice(0), "cudaSetDevice");
    SAY(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    SAY(cudaMalloc(&p, 4096), "cudaMalloc");
    SAY(cudaMemcpy(p, &host, sizeof(host), cudaMemcpyHostToDevice), "cudaMemcpy");
    SAY(cudaStreamCreate(&stream), "cudaStreamCreate");
    SAY(cudaEventCreate(&event), "cudaEventCreate");
    nothing<<<1, 1>>>(p);
    SAY(cudaGetLastError(), "launch");
    SAY(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    SAY(cudaFree(p), "cudaFree");
    return 7;
}
