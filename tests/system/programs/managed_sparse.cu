// A program with managed memory (64 MiB, or MIB) of which host and kernel change a byte each, in every round: what goes
// over the wire for that is for its test to look at. Prints "ok ROUNDS".
//
// usage: managed_sparse ROUNDS [MIB]
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t got_ = (call);                                                                                     \
        if (got_ != cudaSuccess) {                                                                                     \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(got_));                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

__global__ void touch(unsigned char *memory, size_t read, size_t written)
{
    memory[written] = memory[read] + 1;
}

int main(int argc, char **argv)
{
    const size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 64) << 20, read = 33u << 20, written = 50u << 20;
    const int rounds = argc > 1 ? atoi(argv[1]) : 1;
    unsigned char *memory = NULL;

    CHECK(cudaMallocManaged((void **)&memory, bytes));
    for (int round = 1; round <= rounds; round++) {
        memory[read] = (unsigned char)(3 * round);
        touch<<<1, 1>>>(memory, read, written);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        if (memory[written] != (unsigned char)(3 * round + 1)) {
            fprintf(stderr, "round %d: %u\n", round, memory[written]);
            return 1;
        }
    }
    printf("ok %d\n", rounds);
    return 0;
}
