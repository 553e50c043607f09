// Gives its GPU kernels so that it always has some to do, counts those that have ended, and at its end compares what they
// have computed. Answers a line on standard input by a line, also while its kernels have to wait.
//
//   count         "count N": kernels that have ended since its beginning
//   pause | go    gives no more kernels from then on (those that it gave have ended when it answers) | goes on
//   alloc MIB     a block of memory that nobody uses: "alloc CODE"
//   end           also the end of input: "right N" and exit status 0, or "wrong …" and 8
//
// The first line is "ready". A CUDA error of its kernels is "error CODE NAME" and exit status 7.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>

enum { THREADS = 32, STEPS = 40, BATCH = 4, BATCHES = 4 };

static std::mutex mutex;
static std::condition_variable changed;
static bool is_paused, is_pausing, is_ending;
static std::atomic<unsigned> count;

__host__ __device__ static unsigned mixed(unsigned x)
{
    for (int i = 0; i < STEPS; i++)
        x = x * 1664525u + 1013904223u;
    return x;
}

__global__ void step(unsigned *values)
{
    values[threadIdx.x] = mixed(values[threadIdx.x]);
}

static void check(cudaError_t error)
{
    if (error) {
        printf("error %d %s\n", (int)error, cudaGetErrorName(error));
        fflush(stdout);
        _Exit(7);
    }
}

/* Waits for a batch, while a further one is there. */
static void finish(cudaEvent_t *end, bool *is_begun)
{
    if (!*is_begun)
        return;
    check(cudaEventSynchronize(*end));
    *is_begun = false;
    count += BATCH;
}

static void work(unsigned *values, cudaStream_t stream)
{
    cudaEvent_t ends[BATCHES];
    bool are_begun[BATCHES] = {};
    unsigned next = 0;
    for (int i = 0; i < BATCHES; i++)
        check(cudaEventCreateWithFlags(&ends[i], cudaEventDisableTiming));
    std::unique_lock<std::mutex> lock(mutex);
    while (!is_ending) {
        if (is_pausing) {
            lock.unlock();
            for (int i = 0; i < BATCHES; i++)
                finish(&ends[(next + i) % BATCHES], &are_begun[(next + i) % BATCHES]);
            lock.lock();
            if (!is_pausing || is_ending)
                continue;
            is_paused = true;
            changed.notify_all();
            changed.wait(lock);
            continue;
        }
        is_paused = false;
        lock.unlock();
        finish(&ends[next], &are_begun[next]);
        for (int i = 0; i < BATCH; i++)
            step<<<1, THREADS, 0, stream>>>(values);
        check(cudaGetLastError());
        check(cudaEventRecord(ends[next], stream));
        are_begun[next] = true;
        next = (next + 1) % BATCHES;
        lock.lock();
    }
    for (int i = 0; i < BATCHES; i++)
        finish(&ends[(next + i) % BATCHES], &are_begun[(next + i) % BATCHES]);
}

static void set_pausing(bool value)
{
    std::unique_lock<std::mutex> lock(mutex);
    is_pausing = value;
    changed.notify_all();
    while (value && !is_paused)
        changed.wait(lock);
}

static int compare(const unsigned *values)
{
    unsigned host[THREADS];
    check(cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < THREADS; i++) {
        unsigned x = i;
        for (unsigned n = 0; n < count; n++)
            x = mixed(x);
        if (x != host[i]) {
            printf("wrong value %u after %u kernels\n", i, count.load());
            return 8;
        }
    }
    printf("right %u\n", count.load());
    return 0;
}

int main()
{
    unsigned *values;
    cudaStream_t stream;
    char line[64];

    check(cudaMalloc(&values, THREADS * sizeof *values));
    check(cudaStreamCreate(&stream));
    puts("ready");
    fflush(stdout);
    std::thread worker([=] {
        unsigned first[THREADS];
        for (unsigned i = 0; i < THREADS; i++)
            first[i] = i;
        check(cudaMemcpy(values, first, sizeof first, cudaMemcpyHostToDevice));
        work(values, stream);
    });
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        void *block;
        if (!strncmp(line, "count", 5)) {
            printf("count %u\n", count.load());
        } else if (!strncmp(line, "alloc ", 6)) {
            printf("alloc %d\n", (int)cudaMalloc(&block, strtoull(line + 6, NULL, 10) << 20));
        } else {
            set_pausing(!strncmp(line, "pause", 5));
            printf("%s", line);
        }
        fflush(stdout);
    }
    {
        std::lock_guard<std::mutex> lock(mutex);
        is_ending = true;
        changed.notify_all();
    }
    worker.join();
    return compare(values);
}
