/* cudaMalloc + cudaFree of 1 MiB and 64 MiB. */
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

int main()
{
    CHECK(cudaFree(nullptr));
    measure("malloc_free_1m", 1 << 20, 500);
    measure("malloc_free_64m", 64 << 20, 100);
    return 0;
}
