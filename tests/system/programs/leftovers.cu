/*
 * Reads device memory that it has not written: looks for what somebody else has left there.
 *
 *     leftovers look COUNT BYTES…   allocates COUNT times each size, reads all of it by a kernel, by copies and through
 *                                   another stream at once; prints "words N" (that are not 0), "correct" where N is 0
 *     leftovers write BYTES         fills an allocation with a pattern, prints "written", and waits for the end of its
 *                                   standard input
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t result = (call);                                                                                   \
        if (result != cudaSuccess) {                                                                                   \
            printf("%s: %s\n", #call, cudaGetErrorName(result));                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

__global__ void count_words(const uint64_t *words, size_t count, unsigned long long *found)
{
    unsigned long long own = 0;

    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x)
        own += words[i] != 0;
    if (own)
        atomicAdd(found, own);
}

static unsigned long long look(size_t bytes, unsigned long long *found, char *host)
{
    cudaStream_t stream;
    unsigned long long before = 0, after = 0, words = 0;
    char *memory;

    CHECK(cudaMemcpy(&before, found, sizeof before, cudaMemcpyDeviceToHost));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&memory, bytes));
    /* Both at once, the first use of the memory: by a kernel, and by a copy in a stream that was made before it. */
    count_words<<<4, 64>>>((const uint64_t *)memory, bytes / sizeof(uint64_t), found);
    CHECK(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&after, found, sizeof after, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, host + i, sizeof word);
        words += word != 0;
    }
    CHECK(cudaStreamDestroy(stream));
    return words > after - before ? words : after - before;
}

static int write_and_wait(size_t bytes)
{
    char *memory, byte;

    CHECK(cudaMalloc(&memory, bytes));
    CHECK(cudaMemset(memory, 0x5e, bytes));
    CHECK(cudaDeviceSynchronize());
    printf("written\n");
    fflush(stdout);
    while (read(0, &byte, 1) == 1)
        continue;
    return 0;
}

int main(int argc, char **argv)
{
    unsigned long long *found, words = 0;

    if (argc == 3 && !strcmp(argv[1], "write"))
        return write_and_wait(strtoull(argv[2], NULL, 0));
    if (argc < 4 || strcmp(argv[1], "look"))
        return 2;
    CHECK(cudaMalloc(&found, sizeof *found));
    CHECK(cudaMemset(found, 0, sizeof *found));
    for (int i = 3; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 0);
        char *host = (char *)malloc(bytes);
        for (int n = atoi(argv[2]); host && n; n--)
            words += look(bytes, found, host);
        free(host);
    }
    printf("words %llu\n%s\n", words, words ? "leftovers" : "correct");
    return 0;
}
