// A tenant under full load, for measuring what its share of a GPU is worth.
//
// usage: tenant compute BLOCKS ITERATIONS      every thread does ITERATIONS dependent multiply-adds
//        tenant memory BLOCKS MIB              the blocks together read and write MIB once
//
// Launches one kernel after another in one stream, AHEAD of them at most in flight, and does what lines of standard
// input say: "measure MS" goes on for so long and answers "measured KERNELS NANOSECONDS MEDIAN LONGEST", by the GPU's
// own clock: kernels that ended, from the first one's end to the last one's, and the median and the longest time
// between two ends, in nanoseconds; "rest" launches nothing until "go"; "end", or the end of input, ends it: "right
// KERNELS" when every thread of every kernel had the result that the CPU has computed, else "wrong COUNT" and exit
// status 1. The first line is "ready".
#include <cmath>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <string>
#include <unistd.h>

#include "bench.h"

enum { THREADS = 256, AHEAD = 8, STAMPS = 1 << 16 };

// What a thread begins with, exactly on both sides, contracted or not; a multiply-add rounds once.
__host__ __device__ static float seed(unsigned thread)
{
    return 1.0f + thread / 1024.0f;
}

#define STEP(x) fmaf(x, 0.9999f, 0.0007f)

struct book {
    unsigned ended_blocks, wrong_count;
    unsigned long long stamps[STAMPS];
};

// The last block of a kernel to end notes the time.
__device__ static void end_block(struct book *book, unsigned number)
{
    __syncthreads();
    if (threadIdx.x)
        return;
    __threadfence();
    if (atomicAdd(&book->ended_blocks, 1) + 1 < gridDim.x)
        return;
    book->ended_blocks = 0;
    unsigned long long now_ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
    book->stamps[number % STAMPS] = now_ns;
    __threadfence();
}

__global__ void compute(struct book *book, unsigned number, unsigned iterations, const float *expected)
{
    float x = seed(threadIdx.x);
    for (unsigned i = 0; i < iterations; i++)
        x = STEP(x);
    if (x != expected[threadIdx.x])
        atomicAdd(&book->wrong_count, 1);
    end_block(book, number);
}

__global__ void stream_through(struct book *book, unsigned number, uint4 *words, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        uint4 word = words[i];
        if (word.x != number || word.w != number)
            atomicAdd(&book->wrong_count, 1);
        words[i] = make_uint4(number + 1, word.y, word.z, number + 1);
    }
    end_block(book, number);
}

struct tenant {
    bool is_memory;
    unsigned blocks, iterations;
    size_t words_count;
    struct book *book;
    float *expected;
    uint4 *words;
    cudaStream_t stream;
    cudaEvent_t ends[AHEAD];
    unsigned number; // of kernels so far
};

static void launch(struct tenant *tenant)
{
    cudaEvent_t end = tenant->ends[tenant->number % AHEAD];
    CHECK(cudaEventSynchronize(end));
    if (tenant->is_memory)
        stream_through<<<tenant->blocks, THREADS, 0, tenant->stream>>>(tenant->book, tenant->number, tenant->words,
                                                                       tenant->words_count);
    else
        compute<<<tenant->blocks, THREADS, 0, tenant->stream>>>(tenant->book, tenant->number, tenant->iterations,
                                                                tenant->expected);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(end, tenant->stream));
    tenant->number++;
}

static void measure(struct tenant *tenant, double ms)
{
    static unsigned long long stamps[STAMPS];
    // What was in flight before belongs to what was before.
    unsigned first = tenant->number + AHEAD;
    double until = wall_us() + ms * 1e3;
    do
        launch(tenant);
    while (wall_us() < until || tenant->number < first + 3);
    CHECK(cudaStreamSynchronize(tenant->stream));
    CHECK(cudaMemcpy(stamps, tenant->book->stamps, sizeof stamps, cudaMemcpyDeviceToHost));
    unsigned last = tenant->number - 1;
    if (last - first >= STAMPS)
        first = last - STAMPS + 1;
    std::vector<double> gaps;
    for (unsigned i = first; i != last; i++)
        gaps.push_back((double)(stamps[(i + 1) % STAMPS] - stamps[i % STAMPS]));
    printf("measured %u %llu %.0f %.0f\n", last - first, stamps[last % STAMPS] - stamps[first % STAMPS], median(gaps),
           *std::max_element(gaps.begin(), gaps.end()));
}

// A line of standard input, if there is one or is_waiting. False: the input has ended.
static bool take_line(std::string *ret_line, bool is_waiting)
{
    static std::string input;
    for (;;) {
        size_t end = input.find('\n');
        if (end != std::string::npos) {
            *ret_line = input.substr(0, end);
            input.erase(0, end + 1);
            return true;
        }
        ret_line->clear();
        struct pollfd in = {STDIN_FILENO, POLLIN, 0};
        if (poll(&in, 1, is_waiting ? -1 : 0) <= 0)
            return true;
        char chunk[256];
        ssize_t count = read(STDIN_FILENO, chunk, sizeof chunk);
        if (count <= 0)
            return false;
        input.append(chunk, (size_t)count);
    }
}

static void prepare(struct tenant *tenant, char **argv)
{
    tenant->is_memory = !strcmp(argv[1], "memory");
    tenant->blocks = (unsigned)atoi(argv[2]);
    CHECK(cudaMalloc(&tenant->book, sizeof *tenant->book));
    CHECK(cudaMemset(tenant->book, 0, sizeof *tenant->book));
    CHECK(cudaStreamCreateWithFlags(&tenant->stream, cudaStreamNonBlocking));
    for (cudaEvent_t &end : tenant->ends)
        CHECK(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
    if (tenant->is_memory) {
        size_t bytes = (size_t)atoi(argv[3]) << 20;
        tenant->words_count = bytes / sizeof *tenant->words;
        CHECK(cudaMalloc(&tenant->words, bytes));
        CHECK(cudaMemset(tenant->words, 0, bytes));
    } else {
        float expected[THREADS];
        tenant->iterations = (unsigned)atoi(argv[3]);
        for (unsigned i = 0; i < THREADS; i++) {
            expected[i] = seed(i);
            for (unsigned j = 0; j < tenant->iterations; j++)
                expected[i] = STEP(expected[i]);
        }
        CHECK(cudaMalloc(&tenant->expected, sizeof expected));
        CHECK(cudaMemcpy(tenant->expected, expected, sizeof expected, cudaMemcpyHostToDevice));
    }
    CHECK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    struct tenant tenant = {};
    if (argc != 4 || (strcmp(argv[1], "compute") && strcmp(argv[1], "memory")) || atoi(argv[2]) < 1 ||
        atoi(argv[3]) < 1) {
        fprintf(stderr, "usage: tenant compute BLOCKS ITERATIONS | tenant memory BLOCKS MIB\n");
        return 2;
    }
    prepare(&tenant, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    std::string line;
    for (bool is_resting = false; take_line(&line, is_resting) && line != "end";) {
        if (line.rfind("measure ", 0) == 0)
            measure(&tenant, atof(line.c_str() + 8));
        else if (line == "rest" || line == "go") {
            is_resting = line == "rest";
            CHECK(cudaStreamSynchronize(tenant.stream));
            puts(line.c_str());
        } else if (!is_resting)
            launch(&tenant);
    }
    CHECK(cudaStreamSynchronize(tenant.stream));
    unsigned wrong_count;
    CHECK(cudaMemcpy(&wrong_count, &tenant.book->wrong_count, sizeof wrong_count, cudaMemcpyDeviceToHost));
    if (wrong_count)
        printf("wrong %u\n", wrong_count);
    else
        printf("right %u\n", tenant.number);
    return wrong_count != 0;
}
