// What the runtime says of its devices, and memory and time on the first one.
//
//   names       "names UUID BUS_ID DOMAIN BUS DEVICE MAJOR MINOR NAME" for each device, then "end"
//   total       "total MIB" that cudaMemGetInfo says
//   take MIB    allocates: "take CODE"
//   work MS     keeps the GPU busy for about so long: "work CODE"
//
// The first line is "ready PID"; the end of input is its end, exit status 0.
#include <chrono>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__global__ void turn(unsigned *out, unsigned rounds)
{
    unsigned x = threadIdx.x;
    for (unsigned i = 0; i < rounds; i++)
        x = x * 1664525 + 1013904223;
    out[threadIdx.x] = x;
}

static unsigned *numbers;

static void print_names()
{
    int count = 0;
    cudaGetDeviceCount(&count);
    for (int i = 0; i < count; i++) {
        cudaDeviceProp p;
        char bus_id[64] = "?";
        if (cudaGetDeviceProperties(&p, i) || cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, i))
            exit(1);
        printf("names GPU-");
        for (int j = 0; j < 16; j++)
            printf("%s%02x", j == 4 || j == 6 || j == 8 || j == 10 ? "-" : "", (unsigned char)p.uuid.bytes[j]);
        printf(" %s %d %d %d %d %d %s\n", bus_id, p.pciDomainID, p.pciBusID, p.pciDeviceID, p.major, p.minor, p.name);
    }
    puts("end");
}

static int work(long ms)
{
    auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    cudaError_t error = cudaSuccess;
    while (!error && std::chrono::steady_clock::now() < until) {
        turn<<<8, 32>>>(numbers, 20000);
        error = cudaDeviceSynchronize();
    }
    return error;
}

int main()
{
    char line[64];
    void *taken;
    size_t free_bytes, total_bytes = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (cudaMalloc(&numbers, 4096))
        return 1;
    printf("ready %d\n", (int)getpid());
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "names", 5)) {
            print_names();
        } else if (!strncmp(line, "total", 5)) {
            cudaMemGetInfo(&free_bytes, &total_bytes);
            printf("total %zu\n", total_bytes >> 20);
        } else if (!strncmp(line, "take ", 5)) {
            printf("take %d\n", (int)cudaMalloc(&taken, (size_t)atol(line + 5) << 20));
        } else if (!strncmp(line, "work ", 5)) {
            printf("work %d\n", work(atol(line + 5)));
        }
    }
    return 0;
}
