// Events that a process shares with its child, which was forked before either used CUDA: recorded in one, waited for by
// a stream, asked and waited for by the host in the other, in both directions; what is waited for is the last record as
// of the wait; what cannot be shared, and what is no handle. Through a server without a node manager they are refused.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { WORDS = 300000, ROUNDS = 3 };

/* What the two processes write for each other. */
struct board {
    volatile int step;    /* of both, rising */
    volatile int is_open; /* the parent's stream goes on */
    cudaIpcEventHandle_t event;
    cudaIpcMemHandle_t memory;
};

static struct board *board;

static void step_is(int step)
{
    __sync_synchronize();
    board->step = step;
}

static void await_step(int step)
{
    while (board->step < step) {
        EXPECT(waitpid(-1, NULL, WNOHANG | WNOWAIT) <= 0 || board->step >= step, "the other process ended");
        sched_yield();
    }
    __sync_synchronize();
}

static void CUDART_CB hold(void *unused)
{
    while (!board->is_open)
        sched_yield();
}

__global__ void fill(unsigned *words, unsigned seed)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
        words[i] = seed + i;
}

/* By way of the stream, and so behind what it waits for. */
static void expect_words(cudaStream_t stream, const unsigned *memory, unsigned seed)
{
    static unsigned words[WORDS];
    CHECK(cudaMemcpyAsync(words, memory, sizeof words, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < WORDS; i++)
        EXPECT_EQ(words[i], seed + i);
}

static void child(void)
{
    cudaEvent_t event, other;
    cudaStream_t stream;
    unsigned *memory;
    float ms;
    await_step(1);
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaIpcOpenMemHandle((void **)&memory, board->memory, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenEventHandle(&event, board->event));
    CHECK(cudaEventQuery(event)); /* it was never recorded */
    CHECK(cudaEventSynchronize(event));
    EXPECT_ERR(cudaEventElapsedTime(&ms, event, event), cudaErrorInvalidResourceHandle);
    for (int round = 0; round < ROUNDS; round++) {
        step_is(2 + 4 * round);
        await_step(3 + 4 * round); /* recorded, and held */
        EXPECT_ERR(cudaEventQuery(event), cudaErrorNotReady);
        CHECK(cudaStreamWaitEvent(stream, event, 0));
        EXPECT_ERR(cudaStreamQuery(stream), cudaErrorNotReady);
        board->is_open = 1;
        expect_words(stream, memory, 100u + (unsigned)round);
        CHECK(cudaEventSynchronize(event));
        CHECK(cudaEventQuery(event));
        /* The other way round. */
        fill<<<8, 256, 0, stream>>>(memory, 200u + (unsigned)round);
        CHECK(cudaEventRecord(event, stream));
        step_is(4 + 4 * round);
        await_step(5 + 4 * round);
    }
    CHECK(cudaEventDestroy(event));
    memset(&board->event, 7, sizeof board->event);
    EXPECT(cudaIpcOpenEventHandle(&other, board->event) != cudaSuccess);
    cudaGetLastError();
    CHECK(cudaIpcCloseMemHandle(memory));
    _exit(0);
}

/* What the parent has made cannot be opened by itself, and what was not made for it cannot be shared. */
static void expect_refusals(void)
{
    cudaEvent_t event, opened;
    cudaIpcEventHandle_t handle;
    EXPECT_ERR(cudaEventCreateWithFlags(&event, cudaEventInterprocess), cudaErrorInvalidValue);
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    cudaError_t error = cudaIpcGetEventHandle(&handle, event);
    EXPECT(error == cudaErrorInvalidResourceHandle || error == cudaErrorInvalidValue, "got %d", (int)error);
    CHECK(cudaEventDestroy(event));
    EXPECT(cudaIpcOpenEventHandle(&opened, board->event) != cudaSuccess, "in the process that has it");
    cudaGetLastError();
}

static void parent(void)
{
    cudaEvent_t event;
    cudaIpcEventHandle_t again;
    cudaStream_t stream;
    unsigned *memory;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&memory, WORDS * sizeof *memory));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    CHECK(cudaIpcGetMemHandle(&board->memory, memory));
    CHECK(cudaIpcGetEventHandle(&board->event, event));
    CHECK(cudaIpcGetEventHandle(&again, event));
    EXPECT(!memcmp(&again, &board->event, sizeof again), "handles of one event");
    expect_refusals();
    fill<<<8, 256, 0, stream>>>(memory, 0); /* a kernel's first launch may wait for what its stream has to do */
    CHECK(cudaStreamSynchronize(stream));
    step_is(1);
    for (int round = 0; round < ROUNDS; round++) {
        await_step(2 + 4 * round);
        board->is_open = 0;
        CHECK(cudaLaunchHostFunc(stream, hold, NULL));
        fill<<<8, 256, 0, stream>>>(memory, 100u + (unsigned)round);
        CHECK(cudaEventRecord(event, stream));
        step_is(3 + 4 * round);
        await_step(4 + 4 * round);
        /* The child has recorded it since. */
        CHECK(cudaStreamWaitEvent(stream, event, 0));
        expect_words(stream, memory, 200u + (unsigned)round);
        CHECK(cudaEventQuery(event));
        step_is(5 + 4 * round);
    }
}

static void refused(void)
{
    cudaEvent_t event;
    cudaIpcEventHandle_t handle = {};
    EXPECT(is_forwarded());
    EXPECT_ERR(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming), cudaErrorNotSupported);
    EXPECT_ERR(cudaEventCreateWithFlags(&event, cudaEventInterprocess), cudaErrorInvalidValue);
    EXPECT_ERR(cudaIpcOpenEventHandle(&event, handle), cudaErrorNotSupported);
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    EXPECT_ERR(cudaIpcGetEventHandle(&handle, event), cudaErrorNotSupported);
    CHECK(cudaEventDestroy(event));
}

int main()
{
    int status, can_share;
    board = (struct board *)mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(board != MAP_FAILED);
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (!pid) {
        await_step(1);
        if (board->step > 1000)
            _exit(0); /* nothing is shared here */
        child();
    }
    CHECK(cudaDeviceGetAttribute(&can_share, (cudaDeviceAttr)CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
    if (can_share) {
        parent();
    } else {
        refused();
        step_is(1001);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    printf("ok\n");
    return 0;
}
