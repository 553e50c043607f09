// Polls for the end of GPU work with queries alone, prints "NAME POLLS" for each way, checks what the work has written,
// and returns 0; or, asked to work until a call fails, prints "working" and then "query CODE" and returns 7.
// usage: poll work | fault | endless
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));                 \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum { VALUES = 64, ROUNDS = 20000, LONG_ROUNDS = 100 * ROUNDS };

__host__ __device__ static unsigned step(unsigned x)
{
    return x * 1664525u + 1013904223u;
}

__global__ void work(unsigned *values, unsigned rounds)
{
    unsigned x = threadIdx.x;

    for (unsigned i = 0; i < rounds; i++)
        x = step(x);
    values[threadIdx.x] = x;
}

__global__ void fault(unsigned *values, unsigned rounds)
{
    unsigned x = threadIdx.x;

    for (unsigned i = 0; i < rounds; i++)
        x = step(x);
    values[x | 1] = 1;
    asm volatile("trap;");
}

static bool is_right(const unsigned *values)
{
    for (unsigned i = 0; i < VALUES; i++) {
        unsigned x = i;
        for (unsigned round = 0; round < ROUNDS; round++)
            x = step(x);
        if (values[i] != x)
            return false;
    }
    return true;
}

static cudaError_t poll(cudaStream_t stream, cudaEvent_t event, unsigned long *polls)
{
    cudaError_t error;

    do {
        error = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
        (*polls)++;
    } while (error == cudaErrorNotReady);
    return error;
}

/* Work, its result in pinned memory, and the answer to a query: the bytes must be there with it. */
static int poll_work(const char *name, cudaStream_t stream, cudaEvent_t event, unsigned *device, unsigned *host)
{
    unsigned long polls = 0;

    for (unsigned i = 0; i < 10; i++) {
        memset(host, 0, VALUES * sizeof *host);
        work<<<1, VALUES, 0, stream>>>(device, ROUNDS);
        CHECK(cudaMemcpyAsync(host, device, VALUES * sizeof *host, cudaMemcpyDeviceToHost, stream));
        if (event)
            CHECK(cudaEventRecord(event, stream));
        CHECK(poll(stream, event, &polls));
        if (!is_right(host)) {
            fprintf(stderr, "%s: wrong values\n", name);
            return 1;
        }
    }
    printf("%s %lu\n", name, polls);
    return 0;
}

static int is_open;

static void wait_until_open(void *flag)
{
    while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE))
        usleep(1000);
}

/* A stream whose work is done is done while another still works, and so is an event in the middle of a stream. */
static int poll_beside(cudaStream_t stream, cudaStream_t other, cudaEvent_t event, unsigned *device, unsigned *host)
{
    unsigned long polls = 0;

    work<<<1, VALUES, 0, other>>>(device + VALUES, 1);
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaLaunchHostFunc(other, wait_until_open, &is_open));
    work<<<1, VALUES, 0, other>>>(device + VALUES, 1);
    CHECK(poll(other, event, &polls));
    if (poll_work("beside", stream, NULL, device, host))
        return 1;
    cudaError_t error = cudaStreamQuery(other);
    printf("other %s\n", cudaGetErrorName(error));
    __atomic_store_n(&is_open, 1, __ATOMIC_RELEASE);
    CHECK(poll(other, NULL, &polls));
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "work";
    unsigned *device, *host;
    cudaStream_t stream, other;
    cudaEvent_t event;
    unsigned long polls = 0;

    CHECK(cudaMalloc(&device, 2 * VALUES * sizeof *device));
    CHECK(cudaMallocHost(&host, VALUES * sizeof *host));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    if (!strcmp(mode, "work"))
        return poll_work("stream", stream, NULL, device, host) || poll_work("event", stream, event, device, host) ||
               poll_work("legacy", NULL, NULL, device, host) || poll_beside(stream, other, event, device, host);
    if (!strcmp(mode, "fault"))
        fault<<<1, VALUES, 0, stream>>>(device, ROUNDS);
    else
        for (unsigned i = 0; i < 1000; i++)
            work<<<1, VALUES, 0, stream>>>(device, LONG_ROUNDS);
    printf("working\n");
    fflush(stdout);
    printf("query %d\n", (int)poll(stream, NULL, &polls));
    return 7;
}
