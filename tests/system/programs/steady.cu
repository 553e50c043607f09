// Works on its GPU without an end and compares every result, and does what it is told on standard input, a line each,
// answered by a line each, in order. usage: steady [PAUSE_MS]
//
//   alloc MIB     a further block of memory, written on the GPU: "alloc CODE"
//   fill MIB      blocks of so many MiB until one is refused: "fill COUNT CODE" (of the refusal)
//   free          gives the newest block back: "free CODE"
//   info          "info FREE_MIB TOTAL_MIB" as cudaMemGetInfo says
//   device        "device TOTAL_MIB SMS" as cudaGetDeviceProperties says
//   sms           "sms N": on so many SMs its kernels run now (%nsmid)
//   priorities    "priorities LEAST GREATEST GOT": the range, and of a stream that was created with -1000
//   watch         registers a callback for notifications of the device: "watch CODE"
//   over          "over COUNT KIB": how many have come, and what the last one said
//   rounds        "rounds N": how often it has computed, copied and compared since its beginning
//   end           also the end of input: compares all blocks, "right N" and exit status 0
//
// The first line is "ready". Between commands each round allocates, uploads, computes, copies back, compares with what
// the CPU computes, frees, and looks at one page of each block. A CUDA error that is not the answer to a command is
// "error CODE NAME" and exit status 7, a wrong result "wrong …" and exit status 8.
#include <atomic>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vector>

enum { VALUES = 4096, STEPS = 16, PAGE_WORDS = 1024 };

struct block {
    unsigned *words;
    size_t pages;
    unsigned seed;
};

__host__ __device__ static unsigned page_word(size_t page, unsigned seed)
{
    return (unsigned)page * 2654435761u + seed * 40503u + 1;
}

__global__ void write_pages(unsigned *words, size_t pages, unsigned seed)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pages; i += gridDim.x * blockDim.x)
        words[i * PAGE_WORDS] = page_word(i, seed);
}

__global__ void compare_pages(const unsigned *words, size_t pages, unsigned seed, unsigned *differ)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pages; i += gridDim.x * blockDim.x)
        if (words[i * PAGE_WORDS] != page_word(i, seed))
            atomicAdd(differ, 1u);
}

__global__ void count_sms(unsigned *count)
{
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(*count));
}

__host__ __device__ static unsigned mixed(unsigned x)
{
    for (int i = 0; i < STEPS; i++)
        x = x * 1664525u + 1013904223u;
    return x;
}

__global__ void mix(unsigned *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = mixed(values[i]);
}

static void check(cudaError_t error)
{
    if (error) {
        printf("error %d %s\n", (int)error, cudaGetErrorName(error));
        exit(7);
    }
}

static cudaError_t take_block(std::vector<block> &blocks, size_t bytes)
{
    block b = {NULL, bytes / (PAGE_WORDS * sizeof(unsigned)), (unsigned)blocks.size()};
    cudaError_t error = cudaMalloc(&b.words, bytes);
    if (error) {
        cudaGetLastError();
        return error;
    }
    write_pages<<<4, 64>>>(b.words, b.pages, b.seed);
    check(cudaGetLastError());
    blocks.push_back(b);
    return cudaSuccess;
}

/* One round's arithmetic: fresh memory up, through a kernel, and back. */
static void compute(cudaStream_t stream, unsigned round)
{
    static unsigned host[VALUES];
    unsigned *device;
    check(cudaMalloc(&device, sizeof host));
    for (unsigned i = 0; i < VALUES; i++)
        host[i] = round * 31u + i;
    check(cudaMemcpyAsync(device, host, sizeof host, cudaMemcpyHostToDevice, stream));
    mix<<<VALUES / 128, 128, 0, stream>>>(device, VALUES);
    check(cudaGetLastError());
    check(cudaMemcpyAsync(host, device, sizeof host, cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < VALUES; i++)
        if (host[i] != mixed(round * 31u + i)) {
            printf("wrong value %u of round %u\n", i, round);
            exit(8);
        }
    check(cudaFree(device));
}

static void look_at_blocks(const std::vector<block> &blocks, unsigned round)
{
    for (const block &b : blocks) {
        size_t page = (round * 7919ul + b.seed) % b.pages;
        unsigned word;
        check(cudaMemcpy(&word, b.words + page * PAGE_WORDS, sizeof word, cudaMemcpyDeviceToHost));
        if (word != page_word(page, b.seed)) {
            printf("wrong page %zu of block %u\n", page, b.seed);
            exit(8);
        }
    }
}

static void end(const std::vector<block> &blocks, unsigned *differ, unsigned rounds)
{
    unsigned count = 0;
    check(cudaMemset(differ, 0, sizeof *differ));
    for (const block &b : blocks)
        compare_pages<<<4, 64>>>(b.words, b.pages, b.seed, differ);
    check(cudaGetLastError());
    check(cudaMemcpy(&count, differ, sizeof count, cudaMemcpyDeviceToHost));
    if (count)
        printf("wrong pages %u\n", count);
    else
        printf("right %u\n", rounds);
    exit(count ? 8 : 0);
}

static unsigned present_sms(unsigned *word)
{
    unsigned count;
    count_sms<<<1, 1>>>(word);
    check(cudaGetLastError());
    check(cudaMemcpy(&count, word, sizeof count, cudaMemcpyDeviceToHost));
    return count;
}

static std::atomic<unsigned> notices;
static std::atomic<unsigned long long> over_bytes;

// Asks the device something, which callbacks may.
static void take_notice(cudaAsyncNotificationInfo *info, void *user, cudaAsyncCallbackHandle_t handle)
{
    size_t free_bytes, total_bytes;
    if (info->type != cudaAsyncNotificationTypeOverBudget || user != &notices ||
        cudaDeviceUnregisterAsyncNotification(0, handle) != cudaErrorNotPermitted ||
        cudaMemGetInfo(&free_bytes, &total_bytes))
        return;
    over_bytes = info->info.overBudget.bytesOverBudget;
    notices++;
}

static void obey(const char *line, std::vector<block> &blocks, unsigned *differ, unsigned rounds)
{
    size_t mib = strtoull(line + strcspn(line, " "), NULL, 10), free_bytes, total_bytes;
    cudaDeviceProp properties;

    if (!strncmp(line, "alloc ", 6)) {
        printf("alloc %d\n", (int)take_block(blocks, mib << 20));
    } else if (!strncmp(line, "fill ", 5)) {
        size_t before = blocks.size();
        cudaError_t error;
        while (!(error = take_block(blocks, mib << 20)))
            ;
        printf("fill %zu %d\n", blocks.size() - before, (int)error);
    } else if (!strcmp(line, "free")) {
        printf("free %d\n", (int)(blocks.empty() ? cudaErrorInvalidValue : cudaFree(blocks.back().words)));
        if (!blocks.empty())
            blocks.pop_back();
    } else if (!strcmp(line, "info")) {
        check(cudaMemGetInfo(&free_bytes, &total_bytes));
        printf("info %zu %zu\n", free_bytes >> 20, total_bytes >> 20);
    } else if (!strcmp(line, "sms")) {
        printf("sms %u\n", present_sms(differ));
    } else if (!strcmp(line, "priorities")) {
        int least, greatest, got;
        cudaStream_t stream;
        check(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -1000));
        check(cudaStreamGetPriority(stream, &got));
        check(cudaStreamDestroy(stream));
        printf("priorities %d %d %d\n", least, greatest, got);
    } else if (!strcmp(line, "device")) {
        check(cudaGetDeviceProperties(&properties, 0));
        printf("device %zu %d\n", properties.totalGlobalMem >> 20, properties.multiProcessorCount);
    } else if (!strcmp(line, "watch")) {
        static cudaAsyncCallbackHandle_t handle;
        printf("watch %d\n", (int)cudaDeviceRegisterAsyncNotification(0, take_notice, &notices, &handle));
    } else if (!strcmp(line, "over")) {
        printf("over %u %llu\n", notices.load(), over_bytes.load() >> 10);
    } else if (!strcmp(line, "rounds")) {
        printf("rounds %u\n", rounds);
    } else if (!strcmp(line, "end")) {
        end(blocks, differ, rounds);
    } else {
        printf("unknown %s\n", line);
    }
}

/* Takes what there is to read after so many ms at most; false at the end of input. */
static bool read_commands(std::vector<char> &pending, int wait_ms)
{
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    char text[512];

    if (poll(&input, 1, wait_ms) <= 0)
        return true;
    ssize_t bytes = read(STDIN_FILENO, text, sizeof text);
    if (bytes > 0)
        pending.insert(pending.end(), text, text + bytes);
    return bytes > 0;
}

int main(int argc, char **argv)
{
    int pause_ms = argc > 1 ? atoi(argv[1]) : 20;
    std::vector<block> blocks;
    std::vector<char> pending;
    cudaStream_t stream;
    unsigned *differ;

    setvbuf(stdout, NULL, _IOLBF, 0);
    check(cudaMalloc(&differ, sizeof *differ));
    check(cudaStreamCreate(&stream));
    compute(stream, 0);
    printf("ready\n");
    for (unsigned round = 1;; round++) {
        if (!read_commands(pending, pause_ms))
            end(blocks, differ, round);
        for (size_t i = 0; i < pending.size(); i++) {
            if (pending[i] != '\n')
                continue;
            pending[i] = 0;
            obey(pending.data(), blocks, differ, round);
            pending.erase(pending.begin(), pending.begin() + i + 1);
            i = (size_t)-1;
        }
        compute(stream, round);
        look_at_blocks(blocks, round);
    }
}
