// Has green contexts and streams in them, and works in these on command. usage: greens
//
// The first line is "ready": there is a green context of a first SM group, one of a second, and one of both. Then
// commands come on standard input, a line each, answered by a line each:
//
//   check    gives each stream work, the default stream of the last context too, that waits for the others', and
//   compares: "right N"
//            (the N-th time), or "wrong WHAT" and exit status 8
//   sms      "sms A B C D": of so many SMs kernels in the three contexts, and in none, know (%nsmid); kernels of graphs
//            that were captured there, too, whatever stream they are launched into
//   end      also the end of input: "ended", exit status 0
//
// A CUDA error is "error CODE line N" and exit status 7. Between commands it makes no CUDA call.
// nvcc: -lcuda
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) check((int)(call), __LINE__)

enum { GREENS = 3, WORDS = 3000, STEPS = 20 };

static void check(int error, int line)
{
    if (!error)
        return;
    printf("error %d line %d\n", error, line);
    exit(7);
}

__global__ void step(unsigned *words, const unsigned *from)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < WORDS)
        words[i] = words[i] * 5 + from[i] + i;
}

__global__ void note_sms(unsigned *ret_count)
{
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(*ret_count));
}

static const dim3 grid((WORDS + 255) / 256), block(256);
static CUgreenCtx greens[GREENS];
static CUcontext primary, last;
static CUstream streams[GREENS], plain;
static CUevent event;
static cudaGraphExec_t graphs[GREENS + 1];
static unsigned *words[GREENS + 1], *sms, want[GREENS + 1][WORDS], got[WORDS], number;

static void make_green(int i, CUdevResource *resources, unsigned count)
{
    CUdevResourceDesc desc;
    CHECK(cuDevResourceGenerateDesc(&desc, resources, count));
    CHECK(cuGreenCtxCreate(&greens[i], desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(cuGreenCtxStreamCreate(&streams[i], greens[i], CU_STREAM_NON_BLOCKING, 0));
}

static void expect_step(int to, int from)
{
    for (unsigned i = 0; i < WORDS; i++)
        want[to][i] = want[to][i] * 5 + want[from][i] + i;
}

/* Each stream's words take those of the one before it; the last context's default stream comes after all of them. */
static void give_work(void)
{
    for (int i = 0; i < GREENS; i++) {
        int from = (i + GREENS - 1) % GREENS;
        if (i) {
            CHECK(cuGreenCtxRecordEvent(greens[from], event));
            CHECK(cuGreenCtxWaitEvent(greens[i], event));
        }
        for (int k = 0; k < STEPS; k++) {
            step<<<grid, block, 0, streams[i]>>>(words[i], words[from]);
            expect_step(i, from);
        }
    }
    CHECK(cuCtxSetCurrent(last));
    CHECK(cuGreenCtxRecordEvent(greens[GREENS - 1], event));
    CHECK(cuGreenCtxWaitEvent(greens[0], event)); /* the next round's */
    CHECK(cuStreamWaitEvent(NULL, event, 0));
    step<<<grid, block>>>(words[GREENS], words[GREENS - 1]);
    expect_step(GREENS, GREENS - 1);
    CHECK(cudaGetLastError());
    CHECK(cuStreamSynchronize(NULL));
    CHECK(cuCtxSetCurrent(primary));
}

static void check_all(void)
{
    give_work();
    for (int i = 0; i <= GREENS; i++) {
        CHECK(cudaMemcpy(got, words[i], sizeof got, cudaMemcpyDeviceToHost));
        if (memcmp(got, want[i], sizeof got)) {
            printf("wrong words of stream %d: %u, not %u, begin them\n", i, got[0], want[i][0]);
            exit(8);
        }
    }
    printf("right %u\n", ++number);
}

static unsigned noted_sms(CUstream stream)
{
    unsigned count;
    CHECK(cudaMemcpyAsync(&count, sms, sizeof count, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return count;
}

static void make_graph(int i, CUstream stream)
{
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    note_sms<<<1, 1, 0, stream>>>(sms);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&graphs[i], graph, 0));
    CHECK(cudaGraphDestroy(graph));
}

static unsigned sms_of(int i, CUstream stream)
{
    note_sms<<<1, 1, 0, stream>>>(sms);
    unsigned count = noted_sms(stream);
    for (int launched_in = 0; launched_in <= GREENS; launched_in++) {
        CUstream other = launched_in < GREENS ? streams[launched_in] : plain;
        CHECK(cudaMemsetAsync(sms, 0, sizeof *sms, other));
        CHECK(cudaGraphLaunch(graphs[i], other));
        unsigned in_graph = noted_sms(other);
        if (in_graph != count) {
            printf("wrong SMs of graph %d in stream %d: %u, not %u\n", i, launched_in, in_graph, count);
            exit(8);
        }
    }
    return count;
}

int main(void)
{
    CUdevResource all, groups[2];
    unsigned count = 2;
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cudaMalloc((void **)&sms, sizeof *sms));
    CHECK(cuCtxGetCurrent(&primary));
    for (int i = 0; i <= GREENS; i++) {
        CHECK(cudaMalloc((void **)&words[i], sizeof got));
        CHECK(cudaMemset(words[i], 0, sizeof got));
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevSmResourceSplitByCount(groups, &count, &all, NULL, 0, all.sm.minSmPartitionSize));
    if (count != 2) {
        printf("wrong count of groups: %u\n", count);
        return 8;
    }
    make_green(0, &groups[0], 1);
    make_green(1, &groups[1], 1);
    make_green(2, groups, 2);
    CHECK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i <= GREENS; i++)
        make_graph(i, i < GREENS ? streams[i] : plain);
    CHECK(cuCtxFromGreenCtx(&last, greens[2]));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    printf("ready\n");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (!strcmp(line, "check\n"))
            check_all();
        else if (!strcmp(line, "sms\n"))
            printf("sms %u %u %u %u\n", sms_of(0, streams[0]), sms_of(1, streams[1]), sms_of(2, streams[2]),
                   sms_of(GREENS, plain));
    }
    printf("ended\n");
    return 0;
}
