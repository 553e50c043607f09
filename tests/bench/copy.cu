/* Copies: 256 MiB pinned and pageable each way, 4 KiB each way. What was copied is compared.
 * usage: copy [MIB [ROUNDS [pinned]]]; pinned: those alone */
#include "bench.h"
#include <cstring>

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i + 8 <= count; i += 8) {
        unsigned long long value = (i + seed) * 0x9e3779b97f4a7c15ull;
        memcpy(bytes + i, &value, 8);
    }
}

static void measure(const char *way, void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, int rounds)
{
    std::vector<double> rate;
    char name[64];
    for (int round = 0; round < rounds; round++) {
        double start = wall_us();
        CHECK(cudaMemcpy(dst, src, bytes, kind));
        CHECK(cudaDeviceSynchronize());
        rate.push_back(bytes / (wall_us() - start) * 1e-3);
    }
    snprintf(name, sizeof name, "%s_%zum", way, bytes >> 20);
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

    measure("h2d_pinned", device, pinned, bytes, cudaMemcpyHostToDevice, rounds);
    measure("d2h_pinned", pinned_back, device, bytes, cudaMemcpyDeviceToHost, rounds);
    compare("pinned", pinned, pinned_back, bytes);
    if (argc > 3 && !strcmp(argv[3], "pinned"))
        return 0;
    measure("h2d_pageable", device, pageable, bytes, cudaMemcpyHostToDevice, rounds);
    measure("d2h_pageable", pageable_back, device, bytes, cudaMemcpyDeviceToHost, rounds);
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
