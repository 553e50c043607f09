/* Copies: 256 MiB pinned and pageable each way, 4 KiB each way. What was copied is compared. */
#include "bench.h"
#include <cstring>

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i + 8 <= count; i += 8) {
        unsigned long long value = (i + seed) * 0x9e3779b97f4a7c15ull;
        memcpy(bytes + i, &value, 8);
    }
}

static void measure(const char *name, void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, int rounds)
{
    std::vector<double> rate;
    for (int round = 0; round < rounds; round++) {
        double start = wall_us();
        CHECK(cudaMemcpy(dst, src, bytes, kind));
        CHECK(cudaDeviceSynchronize());
        rate.push_back(bytes / (wall_us() - start) * 1e-3);
    }
    report(name, median(rate), "GB/s");
}

static void compare(const char *what, const void *a, const void *b, size_t bytes)
{
    if (memcmp(a, b, bytes)) {
        fprintf(stderr, "copy: %s: the bytes differ\n", what);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const size_t bytes = (argc > 1 ? strtoull(argv[1], nullptr, 0) : 256) << 20;
    const int rounds = argc > 2 ? atoi(argv[2]) : 5;
    unsigned char *device, *pinned, *pinned_back;
    unsigned char *pageable = (unsigned char *)malloc(bytes), *pageable_back = (unsigned char *)calloc(1, bytes);
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMallocHost(&pinned, bytes));
    CHECK(cudaMallocHost(&pinned_back, bytes));
    fill(pinned, bytes, 1);
    fill(pageable, bytes, 2);
    memset(pinned_back, 0, bytes);
    /* The first copy pays for staging buffers and connections. */
    CHECK(cudaMemcpy(device, pinned, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(pinned_back, device, bytes, cudaMemcpyDeviceToHost));

    measure("h2d_pinned_256m", device, pinned, bytes, cudaMemcpyHostToDevice, rounds);
    measure("d2h_pinned_256m", pinned_back, device, bytes, cudaMemcpyDeviceToHost, rounds);
    compare("pinned", pinned, pinned_back, bytes);
    measure("h2d_pageable_256m", device, pageable, bytes, cudaMemcpyHostToDevice, rounds);
    measure("d2h_pageable_256m", pageable_back, device, bytes, cudaMemcpyDeviceToHost, rounds);
    compare("pageable", pageable, pageable_back, bytes);

    std::vector<double> in, out;
    for (int i = 0; i < 1000; i++) { /* each with nothing of the other's under way */
        double start = wall_us();
        CHECK(cudaMemcpy(device, pageable, 4096, cudaMemcpyHostToDevice));
        in.push_back(wall_us() - start);
        CHECK(cudaDeviceSynchronize());
        start = wall_us();
        CHECK(cudaMemcpy(pageable_back, device, 4096, cudaMemcpyDeviceToHost));
        out.push_back(wall_us() - start);
    }
    report("h2d_4k", median(in), "us");
    report("d2h_4k", median(out), "us");
    return 0;
}
