// NCCL over all devices that there are: communicators made at once and by a thread for each rank, all collective operations
// of several types, messages in groups, operators of the program's, captures, splits; each compared with a plain loop.
// nvcc: -ldl -lpthread
#include <pthread.h>
#include <vector>
#include "nccl_interface.h"
#include "gate.h"

enum { RANKS_MAX = 4, COUNT = 1000, ROUNDS = 40 };

static int ranks;

struct rank {
    ncclComm_t comm;
    cudaStream_t stream;
    char *send, *receive;
};
static struct rank ranks_of[RANKS_MAX];

template <typename T> struct kind;
template <> struct kind<signed char> {
    static const ncclDataType_t type = ncclInt8;
};
template <> struct kind<int> {
    static const ncclDataType_t type = ncclInt32;
};
template <> struct kind<unsigned long long> {
    static const ncclDataType_t type = ncclUint64;
};
template <> struct kind<float> {
    static const ncclDataType_t type = ncclFloat32;
};
template <> struct kind<double> {
    static const ncclDataType_t type = ncclFloat64;
};

/* Small whole numbers, which all types hold exactly. */
template <typename T> static T number(int rank, size_t i)
{
    return (T)((rank * 7 + (int)(i % 13) * 3 + 1) % 11 + 1);
}

/* Each rank's send buffer gets `count` numbers. */
template <typename T> static void fill(size_t count)
{
    for (int r = 0; r < ranks; r++) {
        std::vector<T> host(count);
        for (size_t i = 0; i < count; i++)
            host[i] = number<T>(r, i);
        CHECK(cudaSetDevice(r));
        CHECK(cudaMemcpy(ranks_of[r].send, host.data(), count * sizeof(T), cudaMemcpyHostToDevice));
        CHECK(cudaMemset(ranks_of[r].receive, 0, RANKS_MAX * COUNT * 8));
        CHECK(cudaDeviceSynchronize()); /* the ranks' streams are not ordered with it */
    }
}

template <typename T> static std::vector<T> received(int r, size_t count)
{
    std::vector<T> host(count);
    CHECK(cudaSetDevice(r));
    CHECK(cudaMemcpyAsync(host.data(), ranks_of[r].receive, count * sizeof(T), cudaMemcpyDeviceToHost, ranks_of[r].stream));
    CHECK(cudaStreamSynchronize(ranks_of[r].stream));
    return host;
}

template <typename T> static T combine(int op, size_t i)
{
    T all = number<T>(0, i);
    for (int r = 1; r < ranks; r++) {
        T one = number<T>(r, i);
        all = op == ncclProd  ? (T)(all * one)
              : op == ncclMax ? (one > all ? one : all)
              : op == ncclMin ? (one < all ? one : all)
                              : (T)(all + one);
    }
    return op == ncclAvg ? (T)(all / (T)ranks) : all;
}

#define FOR_ALL(call)                                                                                                  \
    do {                                                                                                               \
        CHECK_NCCL(ncclGroupStart());                                                                                  \
        for (int r = 0; r < ranks; r++) {                                                                              \
            struct rank *one = &ranks_of[r];                                                                           \
            CHECK_NCCL(call);                                                                                          \
        }                                                                                                              \
        CHECK_NCCL(ncclGroupEnd());                                                                                    \
    } while (0)

#define EXPECT_NUMBERS(r, count, wanted)                                                                               \
    do {                                                                                                               \
        std::vector<T> seen_ = received<T>(r, count);                                                                  \
        for (size_t i = 0; i < (count); i++) {                                                                         \
            double want_ = (double)(wanted), got_ = (double)seen_[i];                                                  \
            EXPECT(got_ - want_ < 1e-5 * want_ + 1e-12 && want_ - got_ < 1e-5 * want_ + 1e-12,                         \
                   "rank %d, number %zu: %g, expected %g", r, i, got_, want_);                                         \
        }                                                                                                              \
    } while (0)

template <typename T> static void reductions(void)
{
    const ncclDataType_t type = kind<T>::type;
    static const int ops[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
    for (int op : ops) {
        bool fits = sizeof(T) > 1 || op == ncclMax || op == ncclMin || (op == ncclSum && ranks < 8);
        if (!fits)
            continue;
        fill<T>(COUNT);
        FOR_ALL(ncclAllReduce(one->send, one->receive, COUNT, type, op, one->comm, one->stream));
        for (int r = 0; r < ranks; r++)
            EXPECT_NUMBERS(r, COUNT, combine<T>(op, i));
        fill<T>(COUNT);
        FOR_ALL(ncclReduce(one->send, one->receive, COUNT, type, op, ranks - 1, one->comm, one->stream));
        EXPECT_NUMBERS(ranks - 1, COUNT, combine<T>(op, i));
        fill<T>((size_t)ranks * COUNT);
        FOR_ALL(ncclReduceScatter(one->send, one->receive, COUNT, type, op, one->comm, one->stream));
        for (int r = 0; r < ranks; r++)
            EXPECT_NUMBERS(r, COUNT, combine<T>(op, (size_t)r * COUNT + i));
    }
}

template <typename T> static void moves(void)
{
    const ncclDataType_t type = kind<T>::type;
    fill<T>(COUNT);
    FOR_ALL(ncclBroadcast(one->send, one->receive, COUNT, type, ranks - 1, one->comm, one->stream));
    for (int r = 0; r < ranks; r++)
        EXPECT_NUMBERS(r, COUNT, number<T>(ranks - 1, i));
    FOR_ALL(ncclAllGather(one->send, one->receive, COUNT, type, one->comm, one->stream));
    for (int r = 0; r < ranks; r++)
        EXPECT_NUMBERS(r, (size_t)ranks * COUNT, number<T>((int)(i / COUNT), i % COUNT));
    /* A ring: each sends to the next one, and receives from the one before. */
    fill<T>(COUNT);
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < ranks; r++) {
        struct rank *one = &ranks_of[r];
        CHECK_NCCL(ncclRecv(one->receive, COUNT, type, (r + ranks - 1) % ranks, one->comm, one->stream));
        CHECK_NCCL(ncclSend(one->send, COUNT, type, (r + 1) % ranks, one->comm, one->stream));
    }
    CHECK_NCCL(ncclGroupEnd());
    for (int r = 0; r < ranks; r++)
        EXPECT_NUMBERS(r, COUNT, number<T>((r + ranks - 1) % ranks, i));
}

static void own_operators(void)
{
    typedef float T;
    int op[RANKS_MAX];
    fill<float>(COUNT);
    for (int r = 0; r < ranks; r++) {
        float factor = (float)(r + 2);
        CHECK_NCCL(ncclRedOpCreatePreMulSum(&op[r], &factor, ncclFloat32, ncclScalarHostImmediate, ranks_of[r].comm));
        EXPECT(op[r] >= 5, "operator %d", op[r]);
    }
    FOR_ALL(ncclAllReduce(one->send, one->receive, COUNT, ncclFloat32, op[r], one->comm, one->stream));
    for (int r = 0; r < ranks; r++)
        CHECK_NCCL(ncclRedOpDestroy(op[r], ranks_of[r].comm));
    for (int r = 0; r < ranks; r++) {
        std::vector<float> wanted(COUNT);
        for (size_t i = 0; i < COUNT; i++)
            for (int k = 0; k < ranks; k++)
                wanted[i] += (float)(k + 2) * number<float>(k, i);
        EXPECT_NUMBERS(r, COUNT, wanted[i]);
    }
}

__global__ static void halve(float *numbers, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        numbers[i] *= 0.5f;
}

/* Operations take their place between a stream's kernels, once nothing of them is awaited any more. */
static void keep_their_places(struct rank *one)
{
    std::vector<float> host(COUNT, 1.0f);
    CHECK(cudaMemcpyAsync(one->send, host.data(), COUNT * sizeof(float), cudaMemcpyHostToDevice, one->stream));
    double wanted = 1;
    for (int i = 0; i < ROUNDS; i++, wanted = wanted * ranks / 2) {
        CHECK_NCCL(ncclAllReduce(one->send, one->send, COUNT, ncclFloat32, ncclSum, one->comm, one->stream));
        halve<<<(COUNT + 255) / 256, 256, 0, one->stream>>>((float *)one->send, COUNT);
    }
    CHECK(cudaMemcpyAsync(host.data(), one->send, COUNT * sizeof(float), cudaMemcpyDeviceToHost, one->stream));
    CHECK(cudaStreamSynchronize(one->stream));
    for (float seen : host)
        EXPECT(seen > wanted * 0.999 && seen < wanted * 1.001, "%g, expected %g", seen, wanted);
}

static void ask(struct rank *one, int r)
{
    int count, rank, device;
    ncclResult_t error;
    CHECK_NCCL(ncclCommCount(one->comm, &count));
    CHECK_NCCL(ncclCommUserRank(one->comm, &rank));
    CHECK_NCCL(ncclCommCuDevice(one->comm, &device));
    CHECK_NCCL(ncclCommGetAsyncError(one->comm, &error));
    EXPECT(count == ranks && rank == r && device == r && error == ncclSuccess, "%d %d %d %d", count, rank, device, (int)error);
}

/* The ranks in two halves, the other way round; the last one stays outside where there are more than two. */
static void split(struct rank *one, int r)
{
    ncclComm_t part;
    bool is_outside = ranks > 2 && r == ranks - 1;
    int members = is_outside ? 0 : ranks > 2 ? ranks - 1 : ranks, count, rank;
    CHECK_NCCL(ncclCommSplit(one->comm, is_outside ? -1 : 5, -r, &part, NULL));
    if (is_outside) {
        EXPECT(!part, "it is in no part");
        return;
    }
    CHECK_NCCL(ncclCommCount(part, &count));
    CHECK_NCCL(ncclCommUserRank(part, &rank));
    EXPECT(count == members && rank == members - 1 - r, "%d of %d, expected %d of %d", rank, count, members - 1 - r, members);
    std::vector<int> host(1, r + 1);
    CHECK(cudaMemcpyAsync(one->send, host.data(), sizeof(int), cudaMemcpyHostToDevice, one->stream));
    CHECK_NCCL(ncclAllReduce(one->send, one->receive, 1, ncclInt32, ncclSum, part, one->stream));
    CHECK(cudaMemcpyAsync(host.data(), one->receive, sizeof(int), cudaMemcpyDeviceToHost, one->stream));
    CHECK(cudaStreamSynchronize(one->stream));
    EXPECT_EQ(host[0], members * (members + 1) / 2);
    CHECK_NCCL(ncclCommDestroy(part));
}

/* Captured, a rank's operations are part of its graph, a group too; each launch meets one of the others'. */
static void in_a_graph(struct rank *one)
{
    float *values = (float *)one->send, *sums = (float *)one->receive, *most = sums + COUNT;
    std::vector<float> host(2 * COUNT, 1.0f);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaMemcpyAsync(values, host.data(), COUNT * sizeof(float), cudaMemcpyHostToDevice, one->stream));
    CHECK(cudaStreamSynchronize(one->stream));
    CHECK(cudaStreamBeginCapture(one->stream, cudaStreamCaptureModeThreadLocal));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(values, sums, COUNT, ncclFloat32, ncclSum, one->comm, one->stream));
    CHECK_NCCL(ncclAllReduce(values, most, COUNT, ncclFloat32, ncclMax, one->comm, one->stream));
    CHECK_NCCL(ncclGroupEnd());
    CHECK(cudaMemcpyAsync(values, sums, COUNT * sizeof(float), cudaMemcpyDeviceToDevice, one->stream));
    halve<<<(COUNT + 255) / 256, 256, 0, one->stream>>>(values, COUNT);
    CHECK_NCCL(ncclAllReduce(values, values, COUNT, ncclFloat32, ncclAvg, one->comm, one->stream));
    CHECK(cudaStreamEndCapture(one->stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    double wanted = 1, last = 1;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(cudaGraphLaunch(exec, one->stream));
        last = wanted;
        wanted = wanted * ranks / 2;
    }
    CHECK(cudaMemcpyAsync(host.data(), most, COUNT * sizeof(float), cudaMemcpyDeviceToHost, one->stream));
    CHECK(cudaMemcpyAsync(host.data() + COUNT, values, COUNT * sizeof(float), cudaMemcpyDeviceToHost, one->stream));
    CHECK(cudaStreamSynchronize(one->stream));
    for (int i = 0; i < 2 * COUNT; i++) {
        double want = i < COUNT ? last : wanted;
        EXPECT(host[i] > want * 0.999 && host[i] < want * 1.001, "%d: %g, expected %g", i, host[i], want);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* Another stream takes part in the capture of the first one, or that comes after it again. */
static void follow(cudaStream_t later, cudaStream_t earlier, int device)
{
    cudaEvent_t event;
    CHECK(cudaSetDevice(device));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventRecord(event, earlier));
    CHECK(cudaStreamWaitEvent(later, event, 0));
    CHECK(cudaEventDestroy(event));
}

static void launch_often(cudaStream_t stream, int times)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < times; i++)
        CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* A group of two streams of one rank in one graph: each goes on behind all of the group. */
static void two_streams_in_a_graph(struct rank *one, int device)
{
    float *values = (float *)one->send, *sums = (float *)one->receive, *most = sums + COUNT;
    std::vector<float> host(COUNT, 1.0f);
    cudaStream_t second;
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaMemcpyAsync(values, host.data(), COUNT * sizeof(float), cudaMemcpyHostToDevice, one->stream));
    CHECK(cudaStreamSynchronize(one->stream));
    CHECK(cudaStreamBeginCapture(one->stream, cudaStreamCaptureModeThreadLocal));
    follow(second, one->stream, device);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(values, sums, COUNT, ncclFloat32, ncclSum, one->comm, one->stream));
    CHECK_NCCL(ncclAllReduce(values, most, COUNT, ncclFloat32, ncclMax, one->comm, second));
    CHECK_NCCL(ncclGroupEnd());
    halve<<<(COUNT + 255) / 256, 256, 0, second>>>(sums, COUNT);
    CHECK(cudaMemcpyAsync(values, sums, COUNT * sizeof(float), cudaMemcpyDeviceToDevice, second));
    follow(one->stream, second, device);
    launch_often(one->stream, 6);
    CHECK(cudaMemcpy(host.data(), values, COUNT * sizeof(float), cudaMemcpyDeviceToHost));
    float wanted = 1, last = 1;
    for (int i = 0; i < 6; i++) {
        last = wanted;
        wanted = wanted * ranks / 2;
    }
    for (float value : host)
        EXPECT(value == wanted, "%g, expected %g", value, wanted);
    CHECK(cudaMemcpy(host.data(), most, COUNT * sizeof(float), cudaMemcpyDeviceToHost));
    for (float value : host)
        EXPECT(value == last, "%g, expected %g", value, last);
    CHECK(cudaStreamDestroy(second));
}

/* One thread's group of all ranks in one graph, with work of each before and behind it. */
static void all_ranks_in_a_graph(void)
{
    std::vector<float> host(COUNT, 1.0f);
    struct rank *first = &ranks_of[0];
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK(cudaMemcpy(ranks_of[r].receive, host.data(), COUNT * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamBeginCapture(first->stream, cudaStreamCaptureModeThreadLocal));
    for (int r = 1; r < ranks; r++)
        follow(ranks_of[r].stream, first->stream, 0);
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK(cudaMemcpyAsync(ranks_of[r].send, ranks_of[r].receive, COUNT * sizeof(float), cudaMemcpyDeviceToDevice,
                              ranks_of[r].stream));
    }
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < ranks; r++)
        CHECK_NCCL(ncclAllReduce(ranks_of[r].send, ranks_of[r].receive, COUNT, ncclFloat32, ncclSum, ranks_of[r].comm,
                                 ranks_of[r].stream));
    CHECK_NCCL(ncclGroupEnd());
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        halve<<<(COUNT + 255) / 256, 256, 0, ranks_of[r].stream>>>((float *)ranks_of[r].receive, COUNT);
        if (r)
            follow(first->stream, ranks_of[r].stream, r);
    }
    CHECK(cudaSetDevice(0));
    launch_often(first->stream, 6);
    float wanted = 1;
    for (int i = 0; i < 6; i++)
        wanted = wanted * ranks / 2;
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK(cudaMemcpy(host.data(), ranks_of[r].receive, COUNT * sizeof(float), cudaMemcpyDeviceToHost));
        for (float value : host)
            EXPECT(value == wanted, "rank %d: %g, expected %g", r, value, wanted);
    }
}

/* A communicator's operations of one group are in one graph, or in none; NCCL itself lets one of a single rank have both. */
static void half_of_a_group_in_a_graph(void)
{
    struct rank *one = &ranks_of[0];
    const int device = 0;
    ncclComm_t comm;
    cudaStream_t second;
    cudaGraph_t graph = NULL;
    CHECK(cudaSetDevice(device));
    CHECK_NCCL(ncclCommInitAll(&comm, 1, &device));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(one->stream, cudaStreamCaptureModeThreadLocal));
    CHECK_NCCL(ncclGroupStart());
    ncclAllReduce(one->send, one->receive, 1, ncclFloat32, ncclSum, comm, one->stream);
    ncclAllReduce(one->send, one->receive, 1, ncclFloat32, ncclSum, comm, second);
    ncclResult_t ended = ncclGroupEnd();
    EXPECT(ended == ncclInvalidUsage || (!is_forwarded() && ended == ncclSuccess), "status %d", (int)ended);
    cudaStreamEndCapture(one->stream, &graph);
    if (graph)
        CHECK(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
    ncclCommAbort(comm);
    CHECK(cudaStreamDestroy(second));
}

static ncclUniqueId unique_id;

/* Each rank by a thread of its own: they wait for each other. */
static void *thread_of_rank(void *user)
{
    int r = (int)(size_t)user;
    struct rank *one = &ranks_of[r];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.commName = "by threads";
    CHECK(cudaSetDevice(r));
    CHECK_NCCL(ncclCommInitRankConfig(&one->comm, ranks, unique_id, r, &config));
    ask(one, r);
    keep_their_places(one);
    in_a_graph(one);
    two_streams_in_a_graph(one, r);
    split(one, r);
    CHECK_NCCL(ncclCommFinalize(one->comm));
    CHECK_NCCL(ncclCommDestroy(one->comm));
    return NULL;
}

static void by_threads(void)
{
    pthread_t threads[RANKS_MAX];
    CHECK_NCCL(ncclGetUniqueId(&unique_id));
    for (int r = 0; r < ranks; r++)
        EXPECT(!pthread_create(&threads[r], NULL, thread_of_rank, (void *)(size_t)r), "a thread");
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
}

static void *add_up(void *user)
{
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < ranks; r++)
        CHECK_NCCL(ncclAllReduce(ranks_of[r].send, ranks_of[r].receive, COUNT - 1, ncclInt32, ncclSum, ranks_of[r].comm,
                                 ranks_of[r].stream));
    CHECK_NCCL(ncclGroupEnd());
    return NULL;
}

/* A rank's stream is not done before the others' have come: here one stands before a closed gate. */
static void a_stream_that_waits_for_another_is_not_done(void)
{
    struct gate gate = {};
    pthread_t thread;
    double start = now_ms();

    if (ranks < 2)
        return;
    fill<int>(COUNT);
    CHECK(cudaSetDevice(0));
    CHECK(cudaLaunchHostFunc(ranks_of[0].stream, gate_wait, &gate));
    gate_await_reached(&gate);
    EXPECT(!pthread_create(&thread, NULL, add_up, NULL), "a thread");
    CHECK(cudaSetDevice(1));
    while (cudaStreamQuery(ranks_of[1].stream) != cudaErrorNotReady)
        EXPECT(now_ms() - start < 50e3, "the stream is done, though its peer has not begun");
    (void)cudaGetLastError();
    gate_open(&gate);
    pthread_join(thread, NULL);
    for (int r = 0; r < ranks; r++) {
        std::vector<int> host = received<int>(r, COUNT - 1);
        for (size_t i = 0; i < COUNT - 1; i++)
            EXPECT_EQ(host[i], combine<int>(ncclSum, i));
    }
}

/* Buffers that are registered hold what others do. NCCL may give no handle where registering does not help. */
static void registered_buffers(void)
{
    void *handles[RANKS_MAX][2] = {};
    for (int r = 0; r < ranks; r++) {
        CHECK_NCCL(ncclCommRegister(ranks_of[r].comm, ranks_of[r].send, COUNT * 8, &handles[r][0]));
        CHECK_NCCL(ncclCommRegister(ranks_of[r].comm, ranks_of[r].receive, COUNT * 8, &handles[r][1]));
        EXPECT(!handles[r][0] || handles[r][0] != handles[r][1], "two buffers, %p", handles[r][0]);
    }
    reductions<float>();
    for (int r = 0; r < ranks; r++)
        for (void *handle : handles[r])
            if (handle) {
                CHECK_NCCL(ncclCommDeregister(ranks_of[r].comm, handle));
                EXPECT(ncclCommDeregister(ranks_of[r].comm, handle) != ncclSuccess, "a handle that is gone");
            }
    reductions<float>();
    void *odd = nullptr; /* memory of the host: NCCL itself takes it in some versions, and whoever does has a handle */
    if (ncclCommRegister(ranks_of[0].comm, handles, sizeof handles, &odd) == ncclSuccess && odd)
        CHECK_NCCL(ncclCommDeregister(ranks_of[0].comm, odd));
    void *left; /* it ends with its communicator */
    CHECK_NCCL(ncclCommRegister(ranks_of[0].comm, ranks_of[0].send, COUNT, &left));
}

static void what_is_wrong_is_said(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    struct rank *one = &ranks_of[0];
    config.magic = 1;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, unique_id, 0, &config), ncclInvalidArgument);
    EXPECT_EQ(ncclCommInitRank(&comm, 2, unique_id, 2), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(one->send, one->receive, 1, (ncclDataType_t)99, ncclSum, one->comm, one->stream), ncclInvalidArgument);
    EXPECT_EQ(ncclBroadcast(one->send, one->receive, 1, ncclInt32, ranks, one->comm, one->stream), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT(strlen(ncclGetErrorString(ncclInvalidUsage)) > 0, "a text");
}

int main()
{
    int devices, version;
    nccl_open();
    CHECK(cudaGetDeviceCount(&devices));
    CHECK_NCCL(ncclGetVersion(&version));
    EXPECT(version >= 20000, "version %d", version);
    ranks = devices < RANKS_MAX ? devices : RANKS_MAX;
    ncclComm_t comms[RANKS_MAX];
    CHECK_NCCL(ncclCommInitAll(comms, ranks, NULL));
    for (int r = 0; r < ranks; r++) {
        ranks_of[r].comm = comms[r];
        CHECK(cudaSetDevice(r));
        CHECK(cudaStreamCreateWithFlags(&ranks_of[r].stream, cudaStreamNonBlocking));
        CHECK_NCCL(ncclMemAlloc((void **)&ranks_of[r].send, RANKS_MAX * COUNT * 8));
        CHECK(cudaMalloc((void **)&ranks_of[r].receive, RANKS_MAX * COUNT * 8));
        ask(&ranks_of[r], r);
    }
    reductions<signed char>();
    reductions<int>();
    reductions<unsigned long long>();
    reductions<float>();
    reductions<double>();
    moves<signed char>();
    moves<float>();
    moves<double>();
    own_operators();
    all_ranks_in_a_graph();
    half_of_a_group_in_a_graph();
    a_stream_that_waits_for_another_is_not_done();
    registered_buffers();
    what_is_wrong_is_said();
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < ranks; r++)
        CHECK_NCCL(ncclCommDestroy(comms[r]));
    CHECK_NCCL(ncclGroupEnd());
    by_threads();
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaSetDevice(r));
        CHECK_NCCL(ncclMemFree(ranks_of[r].send));
        CHECK(cudaFree(ranks_of[r].receive));
    }
    printf("%d ranks\n", ranks);
    return 0;
}
