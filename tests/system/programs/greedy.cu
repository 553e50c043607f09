/*
 * Takes device memory with THREADS threads at once, as much as there is, with sizes of all kinds; what cannot be had
 * must be cudaErrorMemoryAllocation. Commands on the standard input:
 *
 *     go       all threads allocate and free ROUNDS times, keeping what they get while more is to be had; each block is
 *              filled, and compared before it is freed. "done TAKEN REFUSED" (of all threads)
 *     info     "info FREE TOTAL GLOBAL" in MiB: cudaMemGetInfo, totalGlobalMem
 *     fill MIB "fill COUNT": blocks of that size until no more is to be had, kept
 *     drop     "drop": frees what fill has kept
 *
 *     greedy THREADS ROUNDS
 */
#include <atomic>
#include <pthread.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, KEPT_MAX = 64, FILL_MAX = 4096 };

static int rounds;
static std::atomic<unsigned> taken_count, refused_count;
static void *filled[FILL_MAX];
static unsigned fill_count;

#define CHECK(call) check(call, #call)
static void check(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return;
    printf("%s: %s\n", what, cudaGetErrorName(result));
    fflush(stdout);
    exit(1);
}

/* Whether every byte is as it was set. */
__global__ void compare(const unsigned char *at, size_t bytes, unsigned char value, unsigned *wrong)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes; i += gridDim.x * (size_t)blockDim.x)
        if (at[i] != value)
            atomicAdd(wrong, 1);
}

struct block {
    unsigned char *at;
    size_t bytes;
    unsigned char value;
};

static void give_back(struct block *block, unsigned *wrong, cudaStream_t stream)
{
    unsigned found;

    /* The ends and the middle: where another block would begin. */
    size_t look = block->bytes < 4096 ? block->bytes : 4096;
    compare<<<1, 32, 0, stream>>>(block->at, look, block->value, wrong);
    compare<<<1, 32, 0, stream>>>(block->at + block->bytes - look, look, block->value, wrong);
    CHECK(cudaMemcpyAsync(&found, wrong, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (found) {
        printf("%u bytes of a block are not as they were\n", found);
        fflush(stdout);
        exit(1);
    }
    CHECK(cudaFree(block->at));
}

static void *take(void *user)
{
    struct block kept[KEPT_MAX];
    unsigned count = 0, seed = (unsigned)(uintptr_t)user * 2654435761u + 1;
    cudaStream_t stream;
    unsigned *wrong = NULL;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    while (cudaMalloc(&wrong, sizeof *wrong) == cudaErrorMemoryAllocation)
        cudaGetLastError();
    CHECK(cudaMemsetAsync(wrong, 0, sizeof *wrong, stream));
    for (int i = 0; i < rounds; i++) {
        struct block block = {NULL, 0, (unsigned char)(rand_r(&seed) % 255 + 1)};
        block.bytes = rand_r(&seed) % 3 ? 1 + rand_r(&seed) % (MIB / 2) : 1 + rand_r(&seed) % (6 * MIB);
        cudaError_t result = count < KEPT_MAX ? cudaMalloc(&block.at, block.bytes) : cudaErrorMemoryAllocation;
        if (result == cudaSuccess) {
            CHECK(cudaMemsetAsync(block.at, block.value, block.bytes, stream));
            kept[count++] = block;
            taken_count++;
            continue;
        }
        if (result != cudaErrorMemoryAllocation)
            check(result, "cudaMalloc");
        cudaGetLastError();
        refused_count++;
        /* Half of what it has, in any order: then the next one may succeed. */
        for (unsigned n = (count + 1) / 2; n && count; n--) {
            unsigned which = rand_r(&seed) % count;
            give_back(&kept[which], wrong, stream);
            kept[which] = kept[--count];
        }
    }
    while (count)
        give_back(&kept[--count], wrong, stream);
    CHECK(cudaFree(wrong));
    CHECK(cudaStreamDestroy(stream));
    return NULL;
}

static void go(int threads)
{
    pthread_t ids[64];

    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, take, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    printf("done %u %u\n", taken_count.load(), refused_count.load());
}

static void say_info(void)
{
    cudaDeviceProp properties;
    size_t free_bytes, total_bytes;

    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    CHECK(cudaGetDeviceProperties(&properties, 0));
    printf("info %zu %zu %zu\n", free_bytes / MIB, total_bytes / MIB, properties.totalGlobalMem / MIB);
}

static void fill(size_t bytes)
{
    cudaError_t result = cudaSuccess;

    while (fill_count < FILL_MAX && (result = cudaMalloc(&filled[fill_count], bytes)) == cudaSuccess)
        fill_count++;
    if (result != cudaErrorMemoryAllocation)
        check(result, "cudaMalloc");
    cudaGetLastError();
    printf("fill %u\n", fill_count);
}

int main(int argc, char **argv)
{
    char line[64];

    if (argc != 3)
        return 2;
    rounds = atoi(argv[2]);
    CHECK(cudaFree(NULL));
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "go", 2))
            go(atoi(argv[1]));
        else if (!strncmp(line, "info", 4))
            say_info();
        else if (!strncmp(line, "fill ", 5))
            fill(strtoull(line + 5, NULL, 10) * MIB);
        else if (!strncmp(line, "drop", 4)) {
            while (fill_count)
                CHECK(cudaFree(filled[--fill_count]));
            printf("drop\n");
        }
        fflush(stdout);
    }
    return 0;
}
