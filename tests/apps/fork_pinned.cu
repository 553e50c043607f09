// fork while page-locked memory is there and the GPU copies from and to it: however the child ends, the parent's copies
// and kernels go on with that memory. Through Flyt the child has the memory, too: where kernels reach it, parent and
// child share it, elsewhere, and where it was registered, each has its own from the fork on, as of any private memory.
// A child frees nothing of its parent's. What a child natively has of it CUDA does not say.
#include "mapped.h"
#include <signal.h>
#include <sys/mman.h>

enum { COUNT = 100003, AT = 4099 /* looked at by the child */, FROM_PARENT = 7, FROM_CHILD = 9 };

static int *pinned, *registered, *device;
static size_t registered_bytes;
static cudaStream_t stream;
static int is_shared;
static int to_child[2], from_child[2];

__global__ void increment(int *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i]++;
}

__global__ void wait_for(volatile int *word, int value)
{
    while (*word != value)
        ;
}

static void say(int fd)
{
    EXPECT(write(fd, "x", 1) == 1, "write: %m");
}

static void hear(int fd)
{
    char byte;
    EXPECT(read(fd, &byte, 1) == 1, "read: %m");
}

// Starts to send memory through the device and back, and ends it.
static void leave(int *host, int seed)
{
    for (int i = 0; i < COUNT; i++)
        host[i] = i * seed;
    CHECK(cudaMemcpyAsync(device, host, COUNT * sizeof *host, cudaMemcpyHostToDevice, stream));
    for (int i = 0; i < 3; i++)
        increment<<<(COUNT + 127) / 128, 128, 0, stream>>>(device, COUNT);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyAsync(host, device, COUNT * sizeof *host, cudaMemcpyDeviceToHost, stream));
}

static void take(const int *host, int seed)
{
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(host[i], i * seed + 3);
}

static int ends(void)
{
    return 31;
}

static int is_killed(void)
{
    raise(SIGKILL);
    return 1;
}

static int runs_another_program(void)
{
    execl("/bin/sh", "sh", "-c", "exit 33", (char *)NULL);
    return 1;
}

// Copies are under way when the child is made, and when it ends.
static void copies_go_on(void)
{
    static const struct {
        int (*child)(void);
        int status;
    } ways[] = {{ends, 31}, {is_killed, 1000 + SIGKILL}, {runs_another_program, 33}};
    int seed = 2;
    for (int *host : {pinned, registered})
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++, seed++) {
            leave(host, seed);
            EXPECT_EQ(run_in_child(ways[i].child), ways[i].status);
            take(host, seed);
            leave(host, seed + 100);
            take(host, seed + 100);
        }
}

static int sees_and_writes(void)
{
    EXPECT_EQ(pinned[AT], FROM_PARENT);
    EXPECT_EQ(registered[AT], FROM_PARENT);
    say(from_child[1]);
    hear(to_child[0]); // the parent has written
    EXPECT_EQ(pinned[AT], is_shared ? FROM_PARENT + 1 : FROM_PARENT);
    EXPECT_EQ(registered[AT], FROM_PARENT);
    pinned[AT] = registered[AT] = FROM_CHILD;
    return 34;
}

static pid_t child_that(int (*fn)(void))
{
    pid_t pid = fork();
    if (!pid)
        exit(fn());
    EXPECT(pid > 0, "fork: %m");
    return pid;
}

static void await(pid_t pid, int wanted)
{
    int status = 0;
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "status %d", status);
    EXPECT_EQ(WEXITSTATUS(status), wanted);
}

static void what_each_has(void)
{
    pinned[AT] = registered[AT] = FROM_PARENT;
    EXPECT(pipe(to_child) == 0 && pipe(from_child) == 0, "pipe: %m");
    pid_t child = child_that(sees_and_writes);
    close(from_child[1]); // or nobody would hear that the child has ended
    hear(from_child[0]);
    pinned[AT] = registered[AT] = FROM_PARENT + 1;
    say(to_child[1]);
    await(child, 34);
    EXPECT_EQ(pinned[AT], is_shared ? FROM_CHILD : FROM_PARENT + 1);
    EXPECT_EQ(registered[AT], FROM_PARENT + 1);
}

static int tells_the_kernel(void)
{
    pinned[AT] = FROM_CHILD;
    return 35;
}

static void a_kernel_hears_from_the_child(void)
{
    pinned[AT] = FROM_PARENT;
    wait_for<<<1, 1, 0, stream>>>(pinned + AT, FROM_CHILD);
    CHECK_LAUNCH();
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    await(child_that(tells_the_kernel), 35);
    CHECK(cudaStreamSynchronize(stream));
}

static int frees(void)
{
    void *more = NULL;
    EXPECT_ERR(cudaFreeHost(pinned), cudaErrorInitializationError);
    EXPECT_ERR(cudaHostUnregister(registered), cudaErrorInitializationError);
    EXPECT_ERR(cudaMallocHost(&more, 4096), cudaErrorInitializationError);
    return 36;
}

static void a_child_frees_nothing(void)
{
    for (int i = 0; i < COUNT; i++)
        pinned[i] = registered[i] = i ^ 0x5a5a;
    EXPECT_EQ(run_in_child(frees), 36);
    for (int i = 0; i < COUNT; i++)
        EXPECT(pinned[i] == (i ^ 0x5a5a) && registered[i] == (i ^ 0x5a5a), "at %d", i);
}

int main(void)
{
    is_shared = can_map_host_memory();
    registered_bytes = (COUNT * sizeof *registered + 4095) / 4096 * 4096;
    registered = (int *)mmap(NULL, registered_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(registered != MAP_FAILED, "mmap: %m");
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&pinned, COUNT * sizeof *pinned));
    CHECK(cudaHostRegister(registered, registered_bytes, cudaHostRegisterDefault));
    CHECK(cudaMalloc(&device, COUNT * sizeof *device));
    copies_go_on();
    if (is_forwarded()) {
        what_each_has();
        if (is_shared)
            a_kernel_hears_from_the_child();
        a_child_frees_nothing();
    }
    copies_go_on();
    CHECK(cudaHostUnregister(registered));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaMallocHost(&pinned, COUNT * sizeof *pinned)); // the pages that it had, which are new
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(pinned[i], 0);
    leave(pinned, 5);
    take(pinned, 5);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
