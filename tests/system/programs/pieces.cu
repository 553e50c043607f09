// Gives its GPU nothing but calls of which each is millions of operations: cudaMemset3D of a box of two rows of one byte in
// each slice of three. Answers a line on standard input by a line, also in the middle of a call.
//
//   count         "count B N": calls that it has begun, and that have ended
//   end           also the end of input: does not wait for the call, and exits with status 0
//
// usage: pieces SLICES [CALLS]     CALLS (0 or not named: without end): then it waits for them, and compares
//
// The first line is "ready"; after CALLS calls "right", or "wrong …" and exit status 8. A CUDA error is "error CODE NAME"
// and exit status 7.
#include <atomic>
#include <cstdlib>
#include <stdio.h>
#include <string.h>
#include <thread>
#include <vector>

enum { PITCH = 2, ROWS = 3, FILLED = 2 };

static std::atomic<unsigned> begun, ended;

static void check(cudaError_t error)
{
    if (error) {
        printf("error %d %s\n", (int)error, cudaGetErrorName(error));
        fflush(stdout);
        _Exit(7);
    }
}

static void compare(const unsigned char *box, size_t slices, unsigned char value)
{
    std::vector<unsigned char> host(slices * ROWS * PITCH);
    check(cudaMemcpy(host.data(), box, host.size(), cudaMemcpyDeviceToHost));
    for (size_t at = 0; at < host.size(); at++) {
        bool is_in = at % PITCH == 0 && at / PITCH % ROWS < FILLED;
        if (host[at] == (is_in ? value : 0))
            continue;
        printf("wrong byte %zu: %u\n", at, host[at]);
        fflush(stdout);
        _Exit(8);
    }
    puts("right");
    fflush(stdout);
}

static void work(unsigned char *box, size_t slices, unsigned calls)
{
    const cudaPitchedPtr pointer = make_cudaPitchedPtr(box, PITCH, 1, ROWS);
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned i = 0; !calls || i < calls; i++) {
        begun++;
        check(cudaMemset3DAsync(pointer, (int)(i % 255) + 1, make_cudaExtent(1, FILLED, slices), stream));
        check(cudaStreamSynchronize(stream));
        ended++;
    }
    compare(box, slices, (unsigned char)((calls - 1) % 255 + 1));
}

int main(int argc, char **argv)
{
    size_t slices = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    unsigned calls = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    unsigned char *box;
    char line[64];

    check(cudaMalloc(&box, slices * ROWS * PITCH));
    check(cudaMemset(box, 0, slices * ROWS * PITCH));
    check(cudaDeviceSynchronize());
    puts("ready");
    fflush(stdout);
    std::thread(work, box, slices, calls).detach();
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        printf("count %u %u\n", begun.load(), ended.load());
        fflush(stdout);
    }
    fflush(stdout);
    _Exit(0);
}
