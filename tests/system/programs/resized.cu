// Computes on several streams until it is told to end, and compares everything. usage: resized STREAMS
//
// Each stream has a row of words. A round gives every stream three kernels that do not commute and one of another
// stream's after an event, and nobody waits for the GPU within a batch of rounds; after it all rows are compared with
// what the CPU computes. Lines of standard input are answered by a line each: "rounds" by "rounds N", "hold" by "hold 0"
// when a kernel was launched that runs until "release", which is answered by "release 0" when it has ended, "wait" like
// "hold" (by "wait 0"), and a thread waits for the kernel from then on, which says "waited CODE" when it has; "end", also
// the end of input, by "right N" and exit status 0. The first line is "ready". A CUDA error is "error CODE NAME" and exit
// status 7, a wrong result "wrong …" and exit status 8.
#include <atomic>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>
#include <unistd.h>

enum { STREAMS_MAX = 16, WORDS = 4096, THREADS = 64, BATCH = 8, REST_MS = 20 /* between two batches, for other tests */ };

static unsigned expected[STREAMS_MAX][WORDS], found[WORDS];

static void check(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    printf("error %d %s\n", error, cudaGetErrorName(error));
    exit(7);
}

__host__ __device__ static unsigned scaled(unsigned x, unsigned round, unsigned i)
{
    for (unsigned step = 0; step < 8 + round % 8; step++)
        x = x * 1664525u + i + round;
    return x;
}

__global__ void add(unsigned *words, unsigned round)
{
    words[blockIdx.x * blockDim.x + threadIdx.x] += round;
}

__global__ void scale(unsigned *words, unsigned round)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    words[i] = scaled(words[i], round, i);
}

__global__ void mix(unsigned *words, const unsigned *others)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    words[i] ^= others[WORDS - 1 - i] >> 3;
}

__global__ void wait_for(const volatile unsigned *flag)
{
    while (!*flag)
        continue;
}

static unsigned *rows[STREAMS_MAX], *flag;
static cudaStream_t holding, releasing;
static cudaStream_t streams[STREAMS_MAX];
static cudaEvent_t scaled_all[STREAMS_MAX], mixed_all[STREAMS_MAX];

// Every stream mixes what its neighbour has scaled; none scales again before that.
static void submit(int count, unsigned round)
{
    for (int s = 0; s < count; s++) {
        check(cudaStreamWaitEvent(streams[s], mixed_all[(s + count - 1) % count], 0));
        add<<<WORDS / THREADS, THREADS, 0, streams[s]>>>(rows[s], round + s);
        scale<<<WORDS / THREADS, THREADS, 0, streams[s]>>>(rows[s], round);
        check(cudaEventRecord(scaled_all[s], streams[s]));
    }
    // In turn, since each mixes into its own row what the next one reads: the last first.
    for (int s = count - 1; s >= 0; s--) {
        int other = (s + 1) % count;
        check(cudaStreamWaitEvent(streams[s], scaled_all[other], 0));
        if (other > s)
            check(cudaStreamWaitEvent(streams[s], mixed_all[other], 0));
        mix<<<WORDS / THREADS, THREADS, 0, streams[s]>>>(rows[s], rows[other]);
        check(cudaEventRecord(mixed_all[s], streams[s]));
    }
    check(cudaGetLastError());
}

static void compute(int count, unsigned round)
{
    for (int s = 0; s < count; s++)
        for (unsigned i = 0; i < WORDS; i++)
            expected[s][i] = scaled(expected[s][i] + round + s, round, i);
    for (int s = count - 1; s >= 0; s--)
        for (unsigned i = 0; i < WORDS; i++)
            expected[s][i] ^= expected[(s + 1) % count][WORDS - 1 - i] >> 3;
}

static void compare(int count, unsigned round)
{
    for (int s = 0; s < count; s++) {
        check(cudaMemcpyAsync(found, rows[s], sizeof found, cudaMemcpyDeviceToHost, streams[s]));
        check(cudaStreamSynchronize(streams[s]));
        for (unsigned i = 0; i < WORDS; i++) {
            if (found[i] == expected[s][i])
                continue;
            printf("wrong stream %d word %u round %u: %u, not %u\n", s, i, round, found[i], expected[s][i]);
            exit(8);
        }
    }
}

static std::thread waiter;

static void start_waiter()
{
    static std::atomic<bool> has_begun;
    has_begun = false;
    waiter = std::thread([] {
        has_begun = true;
        printf("waited %d\n", cudaStreamSynchronize(holding));
    });
    while (!has_begun)
        std::this_thread::yield();
}

// Whether it was the last command.
static bool obey(unsigned round)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin) || !strncmp(line, "end", 3)) {
        printf("right %u\n", round);
        return true;
    }
    if (!strncmp(line, "hold", 4) || !strncmp(line, "wait", 4)) {
        check(cudaMemset(flag, 0, sizeof *flag));
        check(cudaDeviceSynchronize());
        wait_for<<<1, 1, 0, holding>>>(flag);
        check(cudaGetLastError());
        if (*line == 'w')
            start_waiter();
        printf("%.4s 0\n", line);
    } else if (!strncmp(line, "release", 7)) {
        check(cudaMemsetAsync(flag, 1, sizeof *flag, releasing));
        check(cudaStreamSynchronize(holding));
        if (waiter.joinable())
            waiter.join();
        printf("release 0\n");
    } else {
        printf("rounds %u\n", round);
    }
    return false;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 0;
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (count < 2 || count > STREAMS_MAX)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    check(cudaMalloc(&flag, sizeof *flag));
    check(cudaStreamCreateWithFlags(&holding, cudaStreamNonBlocking));
    check(cudaStreamCreateWithFlags(&releasing, cudaStreamNonBlocking));
    for (int s = 0; s < count; s++) {
        check(cudaMalloc(&rows[s], sizeof found));
        check(cudaMemset(rows[s], 0, sizeof found));
        check(cudaStreamCreateWithFlags(&streams[s], s % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
        check(cudaEventCreateWithFlags(&scaled_all[s], cudaEventDisableTiming));
        check(cudaEventCreate(&mixed_all[s]));
    }
    check(cudaDeviceSynchronize());
    printf("ready\n");
    for (unsigned round = 0;;) {
        for (int i = 0; i < BATCH; i++, round++) {
            submit(count, round);
            compute(count, round);
        }
        compare(count, round);
        for (int wait_ms = REST_MS; poll(&input, 1, wait_ms) > 0; wait_ms = 0)
            if (obey(round))
                return 0;
    }
}
