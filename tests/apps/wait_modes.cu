// How the CPU waits for the GPU is what the device's flags say: a thread that is to spin or to yield uses its core while it
// waits, one that is to block sleeps. A host function holds the stream until it has seen that.
// nvcc: -Xcompiler -pthread
#include "check.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { USED_MS = 30, PATIENCE_MS = 60000 };

static clockid_t waiter_clock;
static long waiter_thread;
static bool wants_sleep, was_seen;

static double waiter_cpu_ms(void)
{
    struct timespec t;

    EXPECT(clock_gettime(waiter_clock, &t) == 0, "%m");
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool waiter_sleeps(void)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", waiter_thread);
    FILE *file = fopen(path, "r");
    EXPECT(file && fgets(line, sizeof(line), file), "%s: %m", path);
    fclose(file);
    return strrchr(line, ')') && strrchr(line, ')')[2] == 'S';
}

/* On the driver's thread, while the program's waits: of its own time it has used what is asked, or it was seen asleep. */
static void CUDART_CB watch(void *unused)
{
    double begin_ms = waiter_cpu_ms(), until_ms = now_ms() + PATIENCE_MS;

    while (!was_seen && now_ms() < until_ms) {
        usleep(1000);
        was_seen = wants_sleep ? waiter_sleeps() : waiter_cpu_ms() - begin_ms > USED_MS;
    }
}

static void expect_wait(const char *what, bool sleeps, cudaStream_t stream, cudaEvent_t event)
{
    was_seen = false;
    wants_sleep = sleeps;
    CHECK(cudaLaunchHostFunc(stream, watch, NULL));
    if (event)
        CHECK(cudaEventRecord(event, stream));
    CHECK(event ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream));
    EXPECT(was_seen, "%s: the waiting thread %s", what, sleeps ? "never slept" : "did not use its core");
}

static void run(unsigned flags, bool sleeps)
{
    cudaStream_t stream;
    cudaEvent_t plain, blocking;
    unsigned seen = 0;

    waiter_thread = syscall(SYS_gettid);
    EXPECT(pthread_getcpuclockid(pthread_self(), &waiter_clock) == 0);
    CHECK(cudaSetDeviceFlags(flags));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&plain));
    CHECK(cudaEventCreateWithFlags(&blocking, cudaEventBlockingSync));
    CHECK(cudaGetDeviceFlags(&seen));
    EXPECT_EQ(seen & cudaDeviceScheduleMask, flags);
    expect_wait("stream", sleeps, stream, NULL);
    expect_wait("event", false, stream, plain); /* an event says itself that its waits block */
    expect_wait("blocking event", true, stream, blocking);
}

static int spin(void)
{
    run(cudaDeviceScheduleSpin, false);
    return 0;
}

static int yield(void)
{
    run(cudaDeviceScheduleYield, false);
    return 0;
}

static int block(void)
{
    run(cudaDeviceScheduleBlockingSync, true);
    return 0;
}

int main(void)
{
    EXPECT_EQ(run_in_child(spin), 0);
    EXPECT_EQ(run_in_child(yield), 0);
    EXPECT_EQ(run_in_child(block), 0);
    return 0;
}
