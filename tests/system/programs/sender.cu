// Calls its GPU without a pause, and says what came of it: each call is executed once, whatever becomes of its server.
// usage: sender LAUNCHES ALLOCATIONS ASKERS
//
// One thread launches a kernel LAUNCHES times that adds 1 to a counter, each time waiting for it, then allocates and
// gives back memory ALLOCATIONS times; ASKERS threads ask for attributes and free memory all the while. LAUNCHES may be
// "-": the thread launches until the program's standard input ends. The last line is "launched N of M", N being the
// counter and M the launches, and "error CODE" (exit status 7) where a call has failed.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <cstring>
#include <mutex>
#include <thread>
#include <unistd.h>
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

static void wait_until_told(std::atomic<bool> *is_told)
{
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    *is_told = true;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const bool is_until_told = !strcmp(argv[1], "-");
    const unsigned long launches_max = is_until_told ? 0 : strtoul(argv[1], NULL, 10);
    unsigned long launches = 0;
    std::atomic<bool> is_over(false), is_told(false);
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
    if (is_until_told)
        std::thread(wait_until_told, &is_told).detach();
    while (is_until_told ? !is_told : launches < launches_max) {
        add<<<1, 1, 0, stream>>>(counter);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
        launches++;
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
    printf("launched %u of %lu\n", count, launches);
    return 0;
}
