// Has executable graphs of all kinds and launches them on command. usage: replays
//
// The first line is "ready". Then commands come on standard input, a line each, answered by a line each:
//
//   check    launches each graph several times, with other input each time, and compares: "right N" (the N-th time), or
//            "wrong WHAT" and exit status 8
//   begin    begins a capture and gives it work: "begun"; "finish" ends it and launches what it has become: "finished"
//   go       has two threads launch graphs of their own all the time, one of them with a change before each: "going"
//   halt     ends them, and compares: "halted N M", with how often each has launched
//   sms      "sms A B C": of so many SMs a kernel, a graph's kernel and one in the body of a conditional node know
//   (%nsmid) end      also the end of input: "ended", exit status 0
//
// A CUDA error is "error CODE NAME line N" and exit status 7. Between commands it makes no CUDA call, but for those
// threads.
// nvcc: -lcublas -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=compute_90
#include <atomic>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thread>

#define CHECK(call) check((call), __LINE__)

enum { COUNT = 5000, LAUNCHES = 3, DEPTH = 40, ROUNDS = 7, SIDE = 16 };

static void check(cudaError_t error, int line)
{
    if (error == cudaSuccess)
        return;
    printf("error %d %s line %d\n", (int)error, cudaGetErrorName(error), line);
    exit(7);
}

__global__ void step(unsigned *words, const unsigned *by)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
    if (i < COUNT)
        words[i] = words[i] * 5 + *by + i;
}

__global__ void step_by(unsigned *words, unsigned value)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT)
        words[i] = words[i] * 5 + value + i;
}

__global__ void note_sms(unsigned *ret_count)
{
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(*ret_count));
}

// One round less, in a graph's loop.
__global__ void count_down(unsigned *left, cudaGraphConditionalHandle handle)
{
    *left -= 1;
    cudaGraphSetConditional(handle, *left);
}

static const dim3 grid((COUNT + 255) / 256), block(256);
static cudaStream_t stream, side;
static unsigned *words, *by, *sms, *left, *input, *output, called, want[COUNT], number;
static float *cells, *products;
static cublasHandle_t blas;
static cudaGraphExec_t deep, mixed, looping, multiplying, changing, sms_exec;
static cudaGraphNode_t changing_node;

static void CUDART_CB count_call(void *user)
{
    ++*(unsigned *)user;
}

// One that may begin before the last one has ended, where the GPU has kernels that wait for that (programmatic launch).
static void step_early(void)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    int major;
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = major >= 9;
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, step, words, (const unsigned *)by));
}

static cudaGraphExec_t end_capture(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

// What is captured in the side stream next is the body of a loop in what the stream captures. Ends with end_loop.
static cudaGraphConditionalHandle begin_loop(void)
{
    cudaGraphConditionalHandle handle;
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *ends;
    const cudaGraphEdgeData *edges;
    cudaGraphNodeParams params = {};
    cudaGraphNode_t node;
    cudaGraph_t graph;
    size_t count;
    CHECK(cudaStreamGetCaptureInfo(stream, &status, NULL, &graph, &ends, &edges, &count));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeWhile;
    params.conditional.size = 1;
    CHECK(cudaGraphAddNode(&node, graph, ends, NULL, count, &params));
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &node, NULL, 1, cudaStreamSetCaptureDependencies));
    CHECK(cudaStreamBeginCaptureToGraph(side, params.conditional.phGraph_out[0], NULL, NULL, 0,
                                        cudaStreamCaptureModeRelaxed));
    return handle;
}

static void end_loop(cudaGraphConditionalHandle handle)
{
    cudaGraph_t body;
    count_down<<<1, 1, 0, side>>>(left, handle);
    CHECK(cudaStreamEndCapture(side, &body));
}

// The number in the matrix that a graph multiplies by itself: small, so that sums are exact.
static float cell(int row, int column)
{
    return (float)((row * 3 + column) % 4);
}

static void check_library(cublasStatus_t status, int line)
{
    if (!status)
        return;
    printf("error %d of cuBLAS line %d\n", (int)status, line);
    exit(7);
}

// A loop whose body has cuBLAS add the product of a matrix with itself.
static void make_multiplying(void)
{
    static float host[SIDE * SIDE];
    const float one = 1;
    for (int i = 0; i < SIDE * SIDE; i++)
        host[i] = cell(i % SIDE, i / SIDE);
    CHECK(cudaMalloc((void **)&cells, sizeof host));
    CHECK(cudaMalloc((void **)&products, sizeof host));
    CHECK(cudaMemcpy(cells, host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(products, 0, sizeof host));
    check_library(cublasCreate(&blas), __LINE__);
    check_library(cublasSetStream(blas, side), __LINE__);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemsetAsync(left, ROUNDS, 1, stream));
    cudaGraphConditionalHandle handle = begin_loop();
    check_library(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, cells, SIDE, cells, SIDE, &one,
                              products, SIDE),
                  __LINE__);
    end_loop(handle);
    multiplying = end_capture();
}

static void check_products(unsigned launches)
{
    static float got[SIDE * SIDE];
    CHECK(cudaMemcpy(got, products, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < SIDE * SIDE; i++) {
        float sum = 0;
        for (int k = 0; k < SIDE; k++)
            sum += cell(i % SIDE, k) * cell(k, i / SIDE);
        if (got[i] == sum * (float)(ROUNDS * launches))
            continue;
        printf("wrong products: %g, not %g, at %d\n", got[i], sum * (float)(ROUNDS * launches), i);
        exit(8);
    }
}

// Many kernels, and one with copies of host memory, a function of the host's, and a branch on another stream.
static void make_graphs(void)
{
    cudaEvent_t fork, join;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < DEPTH; i++)
        step_early();
    deep = end_capture();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemcpyAsync(by, input, sizeof *by, cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    step<<<grid, block, 0, stream>>>(words, by);
    CHECK(cudaMemsetAsync(sms, 0, sizeof *sms, side));
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    CHECK(cudaMemcpyAsync(output, words, COUNT * sizeof *words, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaLaunchHostFunc(stream, count_call, &called));
    mixed = end_capture();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    note_sms<<<1, 1, 0, stream>>>(sms);
    CHECK(cudaMemsetAsync(left, 1, 1, stream));
    cudaGraphConditionalHandle handle = begin_loop();
    note_sms<<<1, 1, 0, side>>>(sms + 1);
    end_loop(handle);
    sms_exec = end_capture();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemsetAsync(left, ROUNDS, 1, stream));
    handle = begin_loop();
    step<<<grid, block, 0, side>>>(words, by);
    end_loop(handle);
    step<<<grid, block, 0, stream>>>(words, by);
    looping = end_capture();
}

static cudaKernelNodeParams value_params(unsigned *value)
{
    static void *args[] = {&words, NULL};
    cudaKernelNodeParams params = {};
    args[1] = value;
    params.func = (void *)step_by;
    params.gridDim = grid;
    params.blockDim = block;
    params.kernelParams = args;
    return params;
}

// A graph of a kernel that is given another value from time to time, and of one that is not.
static void make_changing(void)
{
    unsigned value = 0;
    cudaKernelNodeParams params = value_params(&value);
    cudaGraph_t graph;
    cudaGraphNode_t after;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddKernelNode(&changing_node, graph, NULL, 0, &params));
    CHECK(cudaGraphAddKernelNode(&after, graph, &changing_node, 1, &params));
    CHECK(cudaGraphInstantiate(&changing, graph, 0));
}

static void change(unsigned value)
{
    cudaKernelNodeParams params = value_params(&value);
    CHECK(cudaGraphExecKernelNodeSetParams(changing, changing_node, &params));
}

static void expect_step(unsigned value, int times)
{
    for (int k = 0; k < times; k++)
        for (unsigned i = 0; i < COUNT; i++)
            want[i] = want[i] * 5 + value + i;
}

// The value that the graph begins with was given to it when this ended the last time.
static void check_changes(void)
{
    for (unsigned n = 0; n < LAUNCHES; n++) {
        CHECK(cudaGraphLaunch(changing, stream));
        expect_step(number * LAUNCHES + n, 1);
        expect_step(0, 1);
        change(number * LAUNCHES + n + 1);
    }
}

static void check_all(void)
{
    check_changes();
    for (unsigned n = 0; n < LAUNCHES; n++) {
        unsigned before = called;
        *input = number * 100 + n;
        CHECK(cudaGraphLaunch(mixed, stream));
        CHECK(cudaGraphLaunch(deep, stream));
        CHECK(cudaGraphLaunch(looping, stream));
        CHECK(cudaGraphLaunch(multiplying, stream));
        CHECK(cudaGraphLaunch(mixed, stream));
        expect_step(*input, DEPTH + ROUNDS + 3);
        CHECK(cudaStreamSynchronize(stream));
        if (called != before + 2) {
            printf("wrong count of calls: %u after %u\n", called, before);
            exit(8);
        }
        if (memcmp(output, want, sizeof want)) {
            printf("wrong words: %u, not %u, begin them\n", output[0], want[0]);
            exit(8);
        }
    }
    check_products(++number * LAUNCHES);
    printf("right %u\n", number);
}

// ---- threads ----

// A thread that launches, and what its words are to be.
struct runner {
    cudaStream_t stream;
    unsigned *words, *left, calls, launches;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t first;
    std::thread thread;
};

static runner changer, looper;
static std::atomic<bool> is_going;

__global__ void decide(cudaGraphConditionalHandle handle, const unsigned *word)
{
    cudaGraphSetConditional(handle, *word);
}

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t *before, void *kernel, dim3 blocks,
                                  dim3 threads, void **args)
{
    cudaKernelNodeParams params = {};
    cudaGraphNode_t node;
    params.func = kernel;
    params.gridDim = blocks;
    params.blockDim = threads;
    params.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&node, graph, before, before ? 1 : 0, &params));
    return node;
}

static cudaGraphNode_t add_step(cudaGraph_t graph, const cudaGraphNode_t *before, runner *self, unsigned value)
{
    void *args[] = {&self->words, &value};
    return add_kernel(graph, before, (void *)step_by, grid, block, args);
}

static void begin_runner(runner *self)
{
    CHECK(cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&self->words, sizeof want));
    CHECK(cudaMemset(self->words, 0, sizeof want));
    CHECK(cudaMalloc((void **)&self->left, sizeof *self->left));
    CHECK(cudaMemset(self->left, 0, sizeof *self->left));
    CHECK(cudaGraphCreate(&self->graph, 0));
}

// Of two kernels, the first of which is given another value each time.
static void make_changer(void)
{
    begin_runner(&changer);
    changer.first = add_step(changer.graph, NULL, &changer, 0);
    add_step(changer.graph, &changer.first, &changer, 1);
    CHECK(cudaGraphInstantiate(&changer.exec, changer.graph, 0));
}

// Of a loop whose condition is set before the host does something.
static void make_looper(void)
{
    cudaGraphConditionalHandle handle;
    cudaGraphNodeParams params = {};
    cudaMemsetParams fill = {};
    cudaHostNodeParams call = {count_call, &looper.calls};
    cudaGraphNode_t node;
    begin_runner(&looper);
    fill.dst = looper.left;
    fill.value = ROUNDS;
    fill.elementSize = 4;
    fill.width = fill.height = 1;
    CHECK(cudaGraphConditionalHandleCreate(&handle, looper.graph, 0, 0));
    CHECK(cudaGraphAddMemsetNode(&node, looper.graph, NULL, 0, &fill));
    void *args[] = {&handle, &looper.left}, *down_args[] = {&looper.left, &handle};
    node = add_kernel(looper.graph, &node, (void *)decide, 1, 1, args);
    CHECK(cudaGraphAddHostNode(&node, looper.graph, &node, 1, &call));
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeWhile;
    params.conditional.size = 1;
    CHECK(cudaGraphAddNode(&node, looper.graph, &node, NULL, 1, &params));
    node = add_step(params.conditional.phGraph_out[0], NULL, &looper, 2);
    add_kernel(params.conditional.phGraph_out[0], &node, (void *)count_down, 1, 1, down_args);
    CHECK(cudaGraphInstantiate(&looper.exec, looper.graph, 0));
}

static void run_changer(void)
{
    while (is_going) {
        unsigned value = ++changer.launches;
        void *args[] = {&changer.words, &value};
        cudaKernelNodeParams params = {};
        params.func = (void *)step_by;
        params.gridDim = grid;
        params.blockDim = block;
        params.kernelParams = args;
        CHECK(cudaGraphExecKernelNodeSetParams(changer.exec, changer.first, &params));
        CHECK(cudaGraphLaunch(changer.exec, changer.stream));
        if (value % 8 == 0)
            CHECK(cudaStreamSynchronize(changer.stream));
    }
}

static void run_looper(void)
{
    while (is_going) {
        CHECK(cudaGraphLaunch(looper.exec, looper.stream));
        if (++looper.launches % 4 == 0)
            CHECK(cudaStreamSynchronize(looper.stream));
    }
}

static void go(void)
{
    if (!changer.exec) {
        make_changer();
        make_looper();
        CHECK(cudaDeviceSynchronize());
    }
    is_going = true;
    changer.thread = std::thread(run_changer);
    looper.thread = std::thread(run_looper);
    printf("going\n");
}

static void expect_words_of(runner *self, const unsigned *expected)
{
    static unsigned got[COUNT];
    CHECK(cudaStreamSynchronize(self->stream));
    CHECK(cudaMemcpy(got, self->words, sizeof got, cudaMemcpyDeviceToHost));
    if (memcmp(got, expected, sizeof got)) {
        printf("wrong words of a thread's: %u, not %u, begin them\n", got[0], expected[0]);
        exit(8);
    }
}

static void halt(void)
{
    static unsigned expected[COUNT];
    is_going = false;
    changer.thread.join();
    looper.thread.join();
    for (unsigned i = 0; i < COUNT; i++) {
        expected[i] = 0;
        for (unsigned value = 1; value <= changer.launches; value++)
            expected[i] = (expected[i] * 5 + value + i) * 5 + 1 + i;
    }
    expect_words_of(&changer, expected);
    for (unsigned i = 0; i < COUNT; i++) {
        expected[i] = 0;
        for (unsigned n = 0; n < looper.launches * ROUNDS; n++)
            expected[i] = expected[i] * 5 + 2 + i;
    }
    expect_words_of(&looper, expected);
    if (looper.calls != looper.launches) {
        printf("wrong count of calls: %u of %u\n", looper.calls, looper.launches);
        exit(8);
    }
    printf("halted %u %u\n", changer.launches, looper.launches);
}

static void finish(void)
{
    cudaGraphExec_t exec;
    step<<<grid, block, 0, stream>>>(words, by);
    CHECK(cudaGetLastError());
    exec = end_capture();
    CHECK(cudaGraphLaunch(exec, stream));
    expect_step(*input, 2);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaStreamSynchronize(stream));
    printf("finished\n");
}

static void tell_sms(void)
{
    unsigned plain, in_graph[2];
    note_sms<<<1, 1, 0, stream>>>(sms);
    CHECK(cudaMemcpyAsync(&plain, sms, sizeof plain, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemsetAsync(sms, 0, sizeof in_graph, stream));
    CHECK(cudaGraphLaunch(sms_exec, stream));
    CHECK(cudaMemcpyAsync(in_graph, sms, sizeof in_graph, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("sms %u %u %u\n", plain, in_graph[0], in_graph[1]);
}

int main(void)
{
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&words, sizeof want));
    CHECK(cudaMalloc((void **)&by, sizeof *by));
    CHECK(cudaMalloc((void **)&sms, 2 * sizeof *sms));
    CHECK(cudaMalloc((void **)&left, sizeof *left));
    CHECK(cudaMemset(left, 0, sizeof *left));
    CHECK(cudaMallocHost((void **)&input, sizeof *input));
    output = (unsigned *)malloc(sizeof want);
    CHECK(cudaMemset(words, 0, sizeof want));
    CHECK(cudaMemset(by, 0, sizeof *by));
    make_graphs();
    make_multiplying();
    make_changing();
    CHECK(cudaDeviceSynchronize());
    printf("ready\n");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (!strcmp(line, "check\n")) {
            check_all();
        } else if (!strcmp(line, "begin\n")) {
            CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
            step<<<grid, block, 0, stream>>>(words, by);
            printf("begun\n");
        } else if (!strcmp(line, "finish\n")) {
            finish();
        } else if (!strcmp(line, "go\n")) {
            go();
        } else if (!strcmp(line, "halt\n")) {
            halt();
        } else {
            tell_sms();
        }
    }
    printf("ended\n");
    return 0;
}
