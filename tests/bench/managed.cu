/* Managed memory: how fast kernels read and write it when the host leaves it alone, what it costs when both use it in
 * turns, and, where they may at once, how long an answer takes and whether additions get lost. What comes back is
 * compared.
 * usage: managed [MIB [ROUNDS [WORD]]]; WORD: figures are named managed_WORD_… */
#include "bench.h"
#include <cstring>

enum { THREADS = 256, ANSWERS = 200, ADDS = 50176 /* on each side; a multiple of 256 */ };

__global__ void sum_up(const uint4 *words, size_t count, unsigned *sum)
{
    unsigned own = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x) {
        uint4 four = words[i];
        own += four.x + four.y + four.z + four.w;
    }
    atomicAdd(sum, own);
}

__global__ void fill(uint4 *words, size_t count, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x)
        words[i] = make_uint4(value, value, value, value);
}

__global__ void add(unsigned *words, size_t count, unsigned value)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x)
        words[i] += value;
}

__global__ void answer(volatile unsigned *said, volatile unsigned *answered, unsigned rounds)
{
    for (unsigned round = 1; round <= rounds; round++) {
        while (*said != round)
            ;
        *answered = round;
        __threadfence_system();
    }
}

static const char *word;
static size_t bytes;
static int blocks, rounds;

static void tell(const char *what, double value, const char *unit)
{
    char name[64];
    snprintf(name, sizeof name, "managed_%s%s%s", word, *word ? "_" : "", what);
    report(name, value, unit);
}

static void expect(const char *what, unsigned long long seen, unsigned long long expected)
{
    if (seen == expected)
        return;
    fprintf(stderr, "managed: %s: %llu, expected %llu\n", what, seen, expected);
    exit(1);
}

/* The rate of a kernel over all of it, waited for, behind one that has brought it to where kernels have it. */
template <typename Launch> static double kernel_rate(Launch launch)
{
    std::vector<double> rate;
    launch();
    CHECK(cudaDeviceSynchronize());
    for (int round = 0; round < rounds; round++) {
        double start = wall_us();
        launch();
        CHECK(cudaDeviceSynchronize());
        rate.push_back(bytes / (wall_us() - start) * 1e-3);
    }
    return median(rate);
}

static void alone(uint4 *words, unsigned *sum)
{
    const size_t count = bytes / sizeof *words;
    tell("kernel_write", kernel_rate([=] { fill<<<blocks, THREADS>>>(words, count, 3); }), "GB/s");
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    tell("kernel_read", kernel_rate([=] { sum_up<<<blocks, THREADS>>>(words, count, sum); }), "GB/s");
    unsigned seen = 0;
    CHECK(cudaMemcpy(&seen, sum, sizeof seen, cudaMemcpyDeviceToHost));
    expect("sum", seen, (unsigned)(count * 12 * (rounds + 1)));
}

/* The host writes all of it, a kernel adds, the host reads all of it. */
static void in_turns(unsigned *words)
{
    const size_t count = bytes / sizeof *words;
    std::vector<double> rate;
    for (int round = 0; round < rounds; round++) {
        double start = wall_us();
        for (size_t i = 0; i < count; i++)
            words[i] = (unsigned)i + round;
        add<<<blocks, THREADS>>>(words, count, 5);
        CHECK(cudaDeviceSynchronize());
        unsigned long long seen = 0;
        for (size_t i = 0; i < count; i++)
            seen += words[i];
        rate.push_back(bytes / (wall_us() - start) * 1e-3);
        expect("turn", seen, (unsigned long long)count * (count - 1) / 2 + count * (unsigned long long)(round + 5));
    }
    tell("in_turns", median(rate), "GB/s");
}

__global__ void add_to(unsigned *sum, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        atomicAdd_system(sum, 1u);
}

/* Additions of host and kernel to one word at once, of which none gets lost where the two are atomic to each other. */
static void adding_together(void)
{
    unsigned *sum;
    CHECK(cudaMallocManaged((void **)&sum, sizeof *sum));
    *sum = 0;
    add_to<<<4, 64>>>(sum, ADDS / 256);
    CHECK(cudaGetLastError());
    for (unsigned i = 0; i < ADDS; i++)
        __atomic_fetch_add(sum, 1, __ATOMIC_RELAXED);
    CHECK(cudaDeviceSynchronize());
    tell("lost_of_100k_additions", 2.0 * ADDS - *sum, "additions");
}

static void at_once(void)
{
    volatile unsigned *said;
    CHECK(cudaMallocManaged((void **)&said, 2 * 4096));
    volatile unsigned *answered = said + 1024;
    said[0] = answered[0] = 0;
    answer<<<1, 1>>>(said, answered, ANSWERS);
    CHECK(cudaGetLastError());
    std::vector<double> took;
    for (unsigned round = 1; round <= ANSWERS; round++) {
        double start = wall_us();
        said[0] = round;
        while (answered[0] != round)
            ;
        took.push_back(wall_us() - start);
    }
    CHECK(cudaDeviceSynchronize());
    tell("answer", median(took), "us");
}

static bool is_concurrent(void)
{
    int is_so = 0;
    CHECK(cudaDeviceGetAttribute(&is_so, cudaDevAttrConcurrentManagedAccess, 0));
    return is_so;
}

int main(int argc, char **argv)
{
    uint4 *words;
    unsigned *sum;
    cudaDeviceProp properties;
    bytes = (argc > 1 ? strtoull(argv[1], nullptr, 0) : 256) << 20;
    rounds = argc > 2 ? atoi(argv[2]) : 5;
    word = argc > 3 ? argv[3] : "";
    CHECK(cudaGetDeviceProperties(&properties, 0));
    blocks = 8 * properties.multiProcessorCount;
    CHECK(cudaMallocManaged((void **)&words, bytes));
    CHECK(cudaMalloc((void **)&sum, sizeof *sum));
    alone(words, sum);
    in_turns((unsigned *)words);
    if (is_concurrent()) {
        at_once();
        adding_together();
    }
    return 0;
}
