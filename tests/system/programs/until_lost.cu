// Works in one way until a CUDA call fails, prints "working" once it has begun; then prints "NAME CODE" for the call
// that failed and for calls after it, from this and from another thread, and returns 7. An exit handler prints
// "atexit". usage: until_lost synchronize | launch | copy | blocking | event | query | credit | threads |
// callback | long | late
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__global__ void step(unsigned *values)
{
    unsigned x = values[threadIdx.x];
    for (int i = 0; i < 100; i++)
        x = x * 1664525u + 1013904223u;
    values[threadIdx.x] = x;
}

static unsigned *device;
static const size_t copy_bytes = 64u << 20;

#define SAY(call, name) printf(name " %d\n", (int)(call))

static void say_atexit(void)
{
    printf("atexit\n");
}

static void say_working(void)
{
    static int said;
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        printf("working\n");
}

static cudaError_t synchronize(cudaStream_t stream)
{
    cudaError_t error;
    do {
        step<<<1, 32, 0, stream>>>(device);
        error = cudaGetLastError();
        if (!error)
            error = cudaStreamSynchronize(stream);
        say_working();
    } while (!error);
    return error;
}

__global__ void step_long(volatile unsigned *values)
{
    for (int i = 0; i < 20000000; i++)
        values[i % 2] += i;
}

/* Mostly waiting for one kernel that takes seconds: nothing is under way meanwhile. */
static cudaError_t long_kernels(cudaStream_t stream)
{
    cudaError_t error;
    do {
        step_long<<<1, 1, 0, stream>>>(device);
        error = cudaStreamSynchronize(stream);
        say_working();
    } while (!error);
    return error;
}

/* Does nothing until standard input says something or ends; then works. */
static cudaError_t late(cudaStream_t stream)
{
    cudaError_t error = cudaStreamSynchronize(stream);
    say_working();
    getchar();
    return error ? error : synchronize(stream);
}

static cudaError_t launch(cudaStream_t stream)
{
    cudaError_t error;
    do {
        step<<<1, 32, 0, stream>>>(device);
        error = cudaGetLastError();
        say_working();
    } while (!error);
    return error;
}

static volatile unsigned launched;

/* Says that it works when no further launch has returned for a while. */
static void *watch_launches(void *unused)
{
    for (unsigned seen = 0, rounds = 0; rounds < 10; seen = launched) {
        rounds = launched && launched == seen ? rounds + 1 : 0;
        usleep(20000);
    }
    say_working();
    return NULL;
}

/* Launches behind a kernel that takes seconds, until there may be no more of them. */
static cudaError_t credit(cudaStream_t stream)
{
    pthread_t watcher;
    cudaError_t error = cudaSuccess;
    pthread_create(&watcher, NULL, watch_launches, NULL);
    for (int i = 0; i < 100; i++)
        step_long<<<1, 1, 0, stream>>>(device);
    while (!error) {
        step<<<1, 32, 0, stream>>>(device);
        error = cudaGetLastError();
        launched++;
    }
    pthread_join(watcher, NULL);
    return error;
}

static cudaError_t copy(cudaStream_t stream)
{
    void *host = NULL;
    cudaError_t error = cudaMallocHost(&host, copy_bytes);
    while (!error) {
        error = cudaMemcpyAsync(device, host, copy_bytes, cudaMemcpyHostToDevice, stream);
        if (!error)
            error = cudaMemcpyAsync(host, device, copy_bytes, cudaMemcpyDeviceToHost, stream);
        if (!error)
            error = cudaStreamSynchronize(stream);
        say_working();
    }
    return error;
}

/* The host waits for each copy; memory that is not page-locked, and memory that is. */
static cudaError_t blocking_copies(cudaStream_t stream)
{
    void *locked = NULL, *plain = malloc(copy_bytes);
    cudaError_t error = plain ? cudaMallocHost(&locked, copy_bytes) : cudaErrorMemoryAllocation;
    for (int i = 0; !error; i++) {
        void *host = i % 2 ? locked : plain;
        error = i % 4 < 2 ? cudaMemcpy(device, host, copy_bytes, cudaMemcpyHostToDevice)
                          : cudaMemcpy(host, device, copy_bytes, cudaMemcpyDeviceToHost);
        say_working();
    }
    return error;
}

/* A wait for an event behind a kernel that takes seconds. */
static cudaError_t events(cudaStream_t stream)
{
    cudaEvent_t event;
    cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming);
    while (!error) {
        step_long<<<1, 1, 0, stream>>>(device);
        error = cudaEventRecord(event, stream);
        say_working();
        if (!error)
            error = cudaEventSynchronize(event);
    }
    return error;
}

/* Asks whether such a kernel is over. */
static cudaError_t query(cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    while (!error || error == cudaErrorNotReady) {
        if (!error)
            step_long<<<1, 1, 0, stream>>>(device);
        error = cudaStreamQuery(stream);
        say_working();
    }
    return error;
}

static void sleep_for_ever(void *unused)
{
    say_working();
    for (;;)
        sleep(1000);
}

/* A synchronization behind a host function that never returns. */
static cudaError_t callback(cudaStream_t stream)
{
    cudaError_t error = cudaLaunchHostFunc(stream, sleep_for_ever, NULL);
    return error ? error : cudaStreamSynchronize(stream);
}

static void *synchronize_thread(void *ret_error)
{
    cudaStream_t stream;
    cudaError_t error = cudaStreamCreate(&stream);
    *(cudaError_t *)ret_error = error ? error : synchronize(stream);
    return NULL;
}

static cudaError_t threads(cudaStream_t stream)
{
    enum { COUNT = 6 };
    pthread_t others[COUNT];
    cudaError_t errors[COUNT];
    for (int i = 0; i < COUNT; i++)
        pthread_create(&others[i], NULL, synchronize_thread, &errors[i]);
    for (int i = 0; i < COUNT; i++) {
        pthread_join(others[i], NULL);
        SAY(errors[i], "thread");
    }
    return cudaStreamSynchronize(stream);
}

static void *later_call(void *unused)
{
    SAY(cudaDeviceSynchronize(), "other-thread");
    return NULL;
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        cudaError_t (*work)(cudaStream_t);
    } ways[] = {
        {"synchronize", synchronize}, {"launch", launch}, {"copy", copy}, {"threads", threads}, {"callback", callback},
        {"blocking", blocking_copies}, {"event", events}, {"query", query}, {"credit", credit},
        {"long", long_kernels},
        {"late", late},
    };
    cudaStream_t stream;
    pthread_t thread;
    void *p;

    setvbuf(stdout, NULL, _IOLBF, 0);
    atexit(say_atexit);
    if (argc != 2 || cudaMalloc(&device, copy_bytes) || cudaStreamCreate(&stream))
        return 1;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (!strcmp(argv[1], ways[i].name))
            SAY(ways[i].work(stream), "work");
    SAY(cudaMalloc(&p, 4096), "cudaMalloc");
    SAY(cudaMemcpy(&p, device, sizeof(p), cudaMemcpyDeviceToHost), "cudaMemcpy");
    step<<<1, 32, 0, stream>>>(device);
    SAY(cudaGetLastError(), "launch");
    SAY(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    SAY(cudaFree(device), "cudaFree");
    pthread_create(&thread, NULL, later_call, NULL);
    pthread_join(thread, NULL);
    return 7;
}
