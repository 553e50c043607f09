// Watches the SMs that it has by their clock registers: a block on each measures again and again how many cycles the same
// arithmetic takes, which keeps the SM's pipes full. Whoever else runs a kernel there takes some of them.
//
//   watch WINDOWS   "watch BLOCKS SMS USUAL SLOW": blocks, distinct SMs that they were on, the median of a window's cycles, and
//                   how many windows of each million took an eighth more than that
//   end             also the end of input: exit status 0
//
// The first line is "ready". An error is "error NAME" and exit status 7.
#include <algorithm>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

enum { THREADS = 512, ROUNDS = 200, WINDOWS_MAX = 200000 };

static void check(cudaError_t error)
{
    if (!error)
        return;
    printf("error %s\n", cudaGetErrorName(error));
    fflush(stdout);
    _Exit(7);
}

__global__ static void watch(unsigned *cycles, unsigned *sms, int windows, float *sink)
{
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    if (!threadIdx.x)
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sms[blockIdx.x]));
    for (int window = 0; window < windows; window++) {
        __syncthreads();
        long long begin = clock64();
        for (int i = 0; i < ROUNDS; i++) {
            a = a * 0.5f + 1, b = b * 0.5f + 1, c = c * 0.5f + 1, d = d * 0.5f + 1;
        }
        __syncthreads();
        if (!threadIdx.x)
            cycles[(size_t)blockIdx.x * windows + window] = (unsigned)(clock64() - begin);
    }
    if (a + b + c + d < 0)
        *sink = a;
}

int main()
{
    char line[64];
    int windows, blocks;
    unsigned *cycles, *sms;
    float *sink;
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaMalloc(&sink, sizeof *sink));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && sscanf(line, "watch %d", &windows) == 1) {
        windows = std::min(std::max(windows, 1), (int)WINDOWS_MAX);
        check(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0));
        const size_t count = (size_t)blocks * windows;
        std::vector<unsigned> seen(count), places(blocks);
        check(cudaMalloc(&cycles, count * sizeof *cycles));
        check(cudaMalloc(&sms, blocks * sizeof *sms));
        watch<<<blocks, THREADS, 0, stream>>>(cycles, sms, windows, sink);
        check(cudaGetLastError());
        check(cudaStreamSynchronize(stream));
        check(cudaMemcpy(seen.data(), cycles, count * sizeof *cycles, cudaMemcpyDeviceToHost));
        check(cudaMemcpy(places.data(), sms, blocks * sizeof *sms, cudaMemcpyDeviceToHost));
        check(cudaFree(cycles));
        check(cudaFree(sms));
        std::vector<unsigned> sorted = seen;
        std::nth_element(sorted.begin(), sorted.begin() + count / 2, sorted.end());
        const unsigned usual = sorted[count / 2];
        const size_t slow = std::count_if(seen.begin(), seen.end(), [=](unsigned one) { return one > usual + usual / 8; });
        printf("watch %d %d %u %zu\n", blocks, (int)std::set<unsigned>(places.begin(), places.end()).size(), usual,
               (size_t)(1e6 * slow / count));
        fflush(stdout);
    }
    return 0;
}
