/* cudaMalloc + cudaFree of 1 MiB and 64 MiB; cudaMallocAsync + cudaFreeAsync in one stream. */
#include "bench.h"

static void measure(const char *name, size_t bytes, int pairs)
{
    std::vector<double> pair;
    for (int i = 0; i < pairs; i++) {
        void *device;
        double start = wall_us();
        CHECK(cudaMalloc(&device, bytes));
        CHECK(cudaFree(device));
        pair.push_back(wall_us() - start);
    }
    report(name, median(pair), "us");
}

/* The pool keeps what was freed, as PyTorch and others set it. */
static void measure_async(const char *name, size_t bytes, int pairs)
{
    unsigned long long keep = ~0ull;
    std::vector<double> pair;
    cudaMemPool_t pool;
    cudaStream_t stream;
    void *device;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    for (int i = 0; i < pairs; i++) {
        double start = wall_us();
        CHECK(cudaMallocAsync(&device, bytes, stream));
        CHECK(cudaFreeAsync(device, stream));
        pair.push_back(wall_us() - start);
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    report(name, median(pair), "us");
}

int main()
{
    CHECK(cudaFree(nullptr));
    measure("malloc_free_1m", 1 << 20, 500);
    measure("malloc_free_64m", 64 << 20, 100);
    measure_async("malloc_async_free_async_1m", 1 << 20, 2000);
    return 0;
}
