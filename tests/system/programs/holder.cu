// Has a stream wait for as long as it is told, so that a move that has to wait for its work stays where it is.
//
//   hold      gives a stream a host function, which goes on when "release" comes: "held" when it has begun
//   release   "released" when the stream is through
//   end       also the end of input: exit status 0
//
// The first line is "ready". A CUDA error is "error CODE NAME" and exit status 7.
#include <condition_variable>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static std::mutex mutex;
static std::condition_variable changed;
static bool is_held, may_go;

static void check(cudaError_t error)
{
    if (error) {
        printf("error %d %s\n", (int)error, cudaGetErrorName(error));
        fflush(stdout);
        _Exit(7);
    }
}

static void CUDART_CB wait_until_told(void *)
{
    std::unique_lock<std::mutex> lock(mutex);
    is_held = true;
    changed.notify_all();
    while (!may_go)
        changed.wait(lock);
}

int main()
{
    char line[64];
    cudaStream_t stream;

    check(cudaStreamCreate(&stream));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        std::unique_lock<std::mutex> lock(mutex);
        if (!strncmp(line, "hold", 4)) {
            may_go = is_held = false;
            check(cudaLaunchHostFunc(stream, wait_until_told, NULL));
            while (!is_held)
                changed.wait(lock);
            puts("held");
        } else {
            may_go = true;
            changed.notify_all();
            lock.unlock();
            check(cudaStreamSynchronize(stream));
            puts("released");
        }
        fflush(stdout);
    }
    return 0;
}
