// Copies of pageable memory, by one command a line on standard input:
//
//   check N BYTES  N threads at once, each with a stream of its own, copy so many bytes, at odd places, to the GPU, change
//                  them there, and compare what comes back: "right"
//   rate MIB N     N copies of so much each way: "rate IN OUT", the medians in MB/s
//   begin BYTES    a thread begins to copy so much to the GPU and back, again and again: "begun", after the first time
//   finish         it ends, and all that it has copied was right: "finished"
//   end            also the end of input: "ended" and exit status 0
//
// The first line is "ready". What is wrong is "wrong …" and exit status 8, a CUDA error "error CODE" and 7.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

static void say(const char *text)
{
    printf("%s\n", text);
    fflush(stdout);
}

static void check(cudaError_t error)
{
    if (!error)
        return;
    printf("error %d\n", (int)error);
    fflush(stdout);
    _Exit(7);
}

static void wrong(const char *what, unsigned n, size_t at)
{
    printf("wrong %s n=%u at=%zu\n", what, n, at);
    fflush(stdout);
    _Exit(8);
}

__global__ void change(unsigned char *values, size_t count, unsigned n)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        values[i] = (unsigned char)(values[i] * 5 + n);
}

static unsigned char pattern(unsigned n, size_t i)
{
    return (unsigned char)((i * 2654435761u + n * 40503u) >> 11);
}

/* Memory of a thread's, at an odd place, with a byte on either side that no copy may change. */
struct buffer {
    std::vector<unsigned char> memory;
    size_t bytes;
    explicit buffer(size_t count) : memory(count + 9, 0xee), bytes(count) {}
    unsigned char *at() { return memory.data() + 5; }
    bool is_whole() { return memory[4] == 0xee && at()[bytes] == 0xee; }
};

/* There, changed and back, as asynchronous copies in the stream or as synchronous ones. A thousandth of it is changed. */
static void go_round(buffer *there, buffer *back, unsigned char *device, cudaStream_t stream, unsigned n)
{
    const size_t bytes = there->bytes, part = bytes / 1000 + 1;
    for (size_t i = 0; i < bytes; i++)
        there->at()[i] = pattern(n, i);
    if (stream)
        check(cudaMemcpyAsync(device + 3, there->at(), bytes, cudaMemcpyHostToDevice, stream));
    else
        check(cudaMemcpy(device + 3, there->at(), bytes, cudaMemcpyHostToDevice));
    memset(there->at(), 0, bytes); /* it has been read */
    change<<<4, 32, 0, stream>>>(device + 3, part, n);
    check(cudaGetLastError());
    change<<<4, 32, 0, stream>>>(device + 3 + bytes - part, part, n);
    check(cudaGetLastError());
    if (stream)
        check(cudaMemcpyAsync(back->at(), device + 3, bytes, cudaMemcpyDeviceToHost, stream));
    else
        check(cudaMemcpy(back->at(), device + 3, bytes, cudaMemcpyDeviceToHost));
    check(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < bytes; i++) {
        bool is_changed = i < part || i >= bytes - part;
        if (back->at()[i] != (unsigned char)(is_changed ? pattern(n, i) * 5 + n : pattern(n, i)))
            wrong("copy", n, i);
    }
    if (!back->is_whole() || !there->is_whole())
        wrong("edge", n, bytes);
}

static void copy_alone(unsigned n, size_t bytes)
{
    buffer there(bytes), back(bytes);
    unsigned char *device;
    cudaStream_t stream;
    check(cudaMalloc((void **)&device, bytes + 3));
    check(cudaStreamCreateWithFlags(&stream, n % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
    for (unsigned turn = 0; turn < 3; turn++)
        go_round(&there, &back, device, turn == 1 && n == 0 ? NULL : stream, n + 7 * turn);
    check(cudaStreamDestroy(stream));
    check(cudaFree(device));
}

static void check_all(unsigned count, size_t bytes)
{
    std::vector<std::thread> threads;
    for (unsigned n = 1; n < count; n++)
        threads.emplace_back(copy_alone, n, bytes + n);
    copy_alone(0, bytes);
    for (std::thread &thread : threads)
        thread.join();
    say("right");
}

static double rate_of(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, unsigned count)
{
    std::vector<double> rates;
    for (unsigned i = 0; i < count; i++) {
        auto start = std::chrono::steady_clock::now();
        check(cudaMemcpy(dst, src, bytes, kind));
        rates.push_back((double)bytes * 1e-6 / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() / 2];
}

static void rate(size_t mib, unsigned count)
{
    std::vector<unsigned char> host(mib << 20, 1);
    void *device;
    check(cudaMalloc(&device, host.size()));
    check(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice)); /* makes connections */
    double in = rate_of(device, host.data(), host.size(), cudaMemcpyHostToDevice, count);
    double out = rate_of(host.data(), device, host.size(), cudaMemcpyDeviceToHost, count);
    check(cudaFree(device));
    printf("rate %.0f %.0f\n", in, out);
    fflush(stdout);
}

static std::thread worker;
static std::atomic<bool> is_ending;
static std::atomic<unsigned> rounds;

static void work(size_t bytes)
{
    buffer there(bytes), back(bytes);
    unsigned char *device;
    check(cudaMalloc((void **)&device, bytes + 3));
    while (!is_ending)
        go_round(&there, &back, device, NULL, ++rounds);
    check(cudaFree(device));
}

static void begin(size_t bytes)
{
    worker = std::thread(work, bytes);
    while (rounds < 2)
        std::this_thread::yield();
    say("begun");
}

static void finish()
{
    is_ending = true;
    worker.join();
    is_ending = false;
    rounds = 0;
    say("finished");
}

int main()
{
    char line[64];
    unsigned count;
    size_t bytes;
    check(cudaFree(NULL));
    say("ready");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        if (sscanf(line, "check %u %zu", &count, &bytes) == 2)
            check_all(count, bytes);
        else if (sscanf(line, "rate %zu %u", &bytes, &count) == 2)
            rate(bytes, count);
        else if (sscanf(line, "begin %zu", &bytes) == 1)
            begin(bytes);
        else if (!strcmp(line, "finish\n"))
            finish();
        else
            wrong("command", 0, 0);
    }
    say("ended");
    return 0;
}
