// Calls its GPU without a pause, and says what came of it: each call is executed once, whatever becomes of its server.
// usage: sender LAUNCHES ALLOCATIONS ASKERS
//
// One thread launches a kernel LAUNCHES times that adds 1 to a counter, each time waiting for it, then allocates and
// gives back memory ALLOCATIONS times; ASKERS threads ask for attributes and free memory all the while. The last line is
// "launched N", N being the counter, and "error CODE" (exit status 7) where a call has failed.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <mutex>
#include <thread>
#include <vector>

#define CHECK(call) check((call))

static std::mutex is_saying;

static void check(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    is_saying.lock(); // who comes later says nothing any more
    printf("error %d\n", (int)error);
    fflush(stdout);
    _Exit(7);
}

__global__ void add(unsigned *counter)
{
    ++*counter;
}

static void ask(const std::atomic<bool> *is_over, cudaEvent_t event)
{
    cudaFuncAttributes attributes;
    size_t free_bytes, total_bytes;
    while (!*is_over) {
        CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
        CHECK(cudaFuncGetAttributes(&attributes, add));
        CHECK(cudaEventQuery(event));
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    std::atomic<bool> is_over(false);
    std::vector<std::thread> askers;
    unsigned *counter, count = 0;
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaMalloc(&counter, sizeof *counter));
    CHECK(cudaMemset(counter, 0, sizeof *counter));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < atoi(argv[3]); i++)
        askers.emplace_back(ask, &is_over, event);
    for (int i = 0; i < atoi(argv[1]); i++) {
        add<<<1, 1, 0, stream>>>(counter);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
    }
    for (int i = 0; i < atoi(argv[2]); i++) {
        void *memory;
        CHECK(cudaMalloc(&memory, 3 << 20));
        CHECK(cudaMemset(memory, i, 3 << 20));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaFree(memory));
    }
    is_over = true;
    for (std::thread &asker : askers)
        asker.join();
    CHECK(cudaMemcpy(&count, counter, sizeof count, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(counter));
    CHECK(cudaEventDestroy(event));
    printf("launched %u\n", count);
    return 0;
}
