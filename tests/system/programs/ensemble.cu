// Communicators over all devices, which are at work all the time: each round adds, multiplies and passes on numbers that
// follow from its own number, and compares them with what they must be.
//
//   rounds     "rounds N", how many have been right
//   rest       begins no more rounds, and "rest 0" when all ranks have ended one; go: they go on
//   make       one more communicator of all devices; "make STATUS"
//   finalize   finalizes that
//   abort      aborts its first rank
//   destroy    destroys it, or what is left of it
//   id         gets a unique id
//   use        makes a communicator of one rank with that, and destroys it
//   end        also the end of input: the round's end, and exit status 0
//
// The first line is "ready". What is not right is on stderr, with exit status 1.
// usage: ensemble all|threads     one thread for all ranks, with groups; or one for each, without any
// nvcc: -ldl
#include <atomic>
#include <pthread.h>
#include <string.h>
#include <vector>
#include "../../apps/nccl_interface.h"
#include "../../apps/check.h"

enum { RANKS_MAX = 4, STEPS = 7, SPLIT_EVERY = 16 };

static int ranks;
static std::atomic<unsigned> last_round(UINT_MAX), rest_after(UINT_MAX);

struct rank {
    ncclComm_t comm, part, heir, fresh; // part: the other way round; heir: of a communicator that is gone
    cudaStream_t stream;
    float *send, *receive, *scalar;
    float sent[STEPS], received[STEPS];
    int by_host, by_device; // operators
    void *handle;
    std::atomic<unsigned> round;
};
static struct rank rank_of[RANKS_MAX];
static bool is_grouped;
static pthread_barrier_t level; // of the ranks' threads

/* What frees a communicator waits for all devices, and NVIDIA's driver lets no other thread launch meanwhile: nobody may have an
 * operation under way then that another rank has yet to begin. */
static void meet(void)
{
    if (!is_grouped)
        pthread_barrier_wait(&level);
}

/* Small whole numbers, all of whose sums and products here are exact. */
static float number(unsigned round, int rank, int step)
{
    return (float)((round * 5 + (unsigned)rank * 3 + (unsigned)step) % 97);
}

/* Ranks FROM to TO - 1, as one group where there are several. */
#define EACH(from, to, call)                                                                                           \
    do {                                                                                                               \
        if (is_grouped)                                                                                                \
            CHECK_NCCL(ncclGroupStart());                                                                              \
        for (int r = from; r < to; r++) {                                                                              \
            struct rank *one = &rank_of[r];                                                                            \
            CHECK_NCCL(call);                                                                                          \
        }                                                                                                              \
        if (is_grouped)                                                                                                \
            CHECK_NCCL(ncclGroupEnd());                                                                                \
    } while (0)

#define EACH_DEVICE(from, to, call)                                                                                    \
    for (int r = from; r < to; r++) {                                                                                  \
        struct rank *one = &rank_of[r];                                                                                    \
        CHECK(cudaSetDevice(r));                                                                                       \
        CHECK(call);                                                                                                   \
    }

static void add(int from, int to, int step, int op, ncclComm_t rank::*comm)
{
    EACH(from, to,
         ncclAllReduce(one->send + step, one->receive + step, 1, ncclFloat32,
                       op < 0   ? one->by_host
                       : op > 0 ? one->by_device
                                : ncclSum,
                       one->*comm, one->stream));
}

static void pass_on(int from, int to, int step)
{
    CHECK_NCCL(ncclGroupStart());
    for (int r = from; r < to; r++) {
        struct rank *one = &rank_of[r];
        CHECK_NCCL(ncclSend(one->send + step, 1, ncclFloat32, (r + 1) % ranks, one->comm, one->stream));
        CHECK_NCCL(ncclRecv(one->receive + step, 1, ncclFloat32, (r + ranks - 1) % ranks, one->comm, one->stream));
    }
    CHECK_NCCL(ncclGroupEnd());
}

/* Now and then there is another part for a while. */
static void add_in_a_new_part(int from, int to, int step)
{
    EACH(from, to, ncclCommSplit(one->comm, 0, r, &one->fresh, NULL));
    EACH(from, to,
         ncclAllReduce(one->send + step, one->receive + step, 1, ncclFloat32, ncclSum, one->fresh, one->stream));
    EACH_DEVICE(from, to, cudaStreamSynchronize(one->stream));
    meet();
    EACH(from, to, ncclCommDestroy(one->fresh));
    meet();
}

static float wanted(unsigned round, int rank, int step)
{
    float sum = 0, by_host = 0, by_device = 0;
    for (int r = 0; r < ranks; r++) {
        float one = number(round, r, step);
        sum += one;
        by_host += one * (float)(r + 2);
        by_device += one * (float)(3 * r + 1);
    }
    switch (step) {
    case 1:
        return number(round, ranks - 1, step); // the part's first rank
    case 2:
        return by_host;
    case 3:
        return by_device;
    case 4:
        return number(round, (rank + ranks - 1) % ranks, step);
    default:
        return sum;
    }
}

static void do_round(int from, int to, unsigned round)
{
    bool is_split = round % SPLIT_EVERY == 0;
    for (int r = from; r < to; r++)
        for (int step = 0; step < STEPS; step++)
            rank_of[r].sent[step] = number(round, r, step);
    EACH_DEVICE(from, to, cudaMemcpyAsync(one->send, one->sent, sizeof one->sent, cudaMemcpyHostToDevice, one->stream));
    add(from, to, 0, 0, &rank::comm);
    EACH(from, to, ncclBroadcast(one->send + 1, one->receive + 1, 1, ncclFloat32, 0, one->part, one->stream));
    add(from, to, 2, -1, &rank::comm);
    add(from, to, 3, 1, &rank::comm);
    pass_on(from, to, 4);
    add(from, to, 5, 0, &rank::heir);
    if (is_split)
        add_in_a_new_part(from, to, 6);
    EACH_DEVICE(from, to,
                cudaMemcpyAsync(one->received, one->receive, sizeof one->received, cudaMemcpyDeviceToHost, one->stream));
    EACH_DEVICE(from, to, cudaStreamSynchronize(one->stream));
    for (int r = from; r < to; r++)
        for (int step = 0; step < STEPS - !is_split; step++)
            EXPECT(rank_of[r].received[step] == wanted(round, r, step), "rank %d, round %u, step %d: %g, expected %g", r,
                   round, step, rank_of[r].received[step], wanted(round, r, step));
}

static void compute(int from, int to)
{
    for (unsigned round = 1; round <= last_round; round++) {
        do_round(from, to, round);
        for (int r = from; r < to; r++)
            rank_of[r].round = round;
        while (round >= rest_after)
            usleep(1000);
    }
}

/* What each rank has beside its first communicator. */
static void equip(int from, int to)
{
    EACH_DEVICE(from, to, cudaStreamCreateWithFlags(&one->stream, cudaStreamNonBlocking));
    EACH_DEVICE(from, to, cudaMalloc(&one->send, sizeof one->sent));
    EACH_DEVICE(from, to, cudaMalloc(&one->receive, sizeof one->received));
    EACH_DEVICE(from, to, cudaMalloc(&one->scalar, sizeof(float)));
    EACH(from, to, ncclCommSplit(one->comm, 7, -r, &one->part, NULL));
    for (int r = from; r < to; r++) {
        struct rank *one = &rank_of[r];
        float by_host = (float)(r + 2), by_device = (float)(3 * r + 1);
        CHECK(cudaSetDevice(r));
        CHECK(cudaMemcpy(one->scalar, &by_device, sizeof by_device, cudaMemcpyHostToDevice));
        CHECK_NCCL(ncclRedOpCreatePreMulSum(&one->by_host, &by_host, ncclFloat32, ncclScalarHostImmediate, one->comm));
        CHECK_NCCL(ncclRedOpCreatePreMulSum(&one->by_device, one->scalar, ncclFloat32, ncclScalarDevice, one->comm));
        CHECK_NCCL(ncclCommRegister(one->comm, one->send, sizeof one->sent, &one->handle));
    }
}

static void *compute_all(void *)
{
    ncclComm_t comms[RANKS_MAX], parents[RANKS_MAX];
    is_grouped = true;
    CHECK_NCCL(ncclCommInitAll(comms, ranks, NULL));
    CHECK_NCCL(ncclCommInitAll(parents, ranks, NULL));
    for (int r = 0; r < ranks; r++)
        rank_of[r].comm = comms[r];
    EACH(0, ranks, ncclCommSplit(parents[r], 1, r, &one->heir, NULL));
    for (int r = 0; r < ranks; r++)
        CHECK_NCCL(ncclCommDestroy(parents[r]));
    equip(0, ranks);
    compute(0, ranks);
    return NULL;
}

static ncclUniqueId ids[2];

static void *compute_one(void *user)
{
    int r = (int)(size_t)user;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t parent;
    config.blocking = 1;
    config.commName = "by threads";
    CHECK(cudaSetDevice(r));
    CHECK_NCCL(ncclCommInitRankConfig(&rank_of[r].comm, ranks, ids[0], r, &config));
    CHECK_NCCL(ncclCommInitRank(&parent, ranks, ids[1], r));
    CHECK_NCCL(ncclCommSplit(parent, 1, r, &rank_of[r].heir, NULL));
    CHECK_NCCL(ncclCommDestroy(parent));
    meet();
    equip(r, r + 1);
    compute(r, r + 1);
    return NULL;
}

/* All ranks by one thread: as a group, for ranks wait for each other in these. */
static void let_go(void)
{
    is_grouped = true;
    for (int r = 0; r < ranks; r++) {
        struct rank *one = &rank_of[r];
        if (one->handle)
            CHECK_NCCL(ncclCommDeregister(one->comm, one->handle));
        CHECK_NCCL(ncclRedOpDestroy(one->by_host, one->comm));
        CHECK_NCCL(ncclRedOpDestroy(one->by_device, one->comm));
    }
    EACH(0, ranks, ncclCommDestroy(one->part));
    EACH(0, ranks, ncclCommDestroy(one->heir));
    EACH(0, ranks, ncclCommFinalize(one->comm));
    EACH(0, ranks, ncclCommDestroy(one->comm));
}

// ---- what is asked for ----

static ncclComm_t further[RANKS_MAX];
static ncclUniqueId further_id;

static int destroy_further(void)
{
    int status = 0;
    for (int r = 0; r < ranks; r++) {
        if (further[r])
            status |= ncclCommDestroy(further[r]);
        further[r] = NULL;
    }
    return status;
}

static int use_id(void)
{
    ncclComm_t comm;
    int status = ncclCommInitRank(&comm, 1, further_id, 0);
    return status ? status : ncclCommDestroy(comm);
}

static int finalize_further(void)
{
    int status = 0;
    for (int r = 0; r < ranks; r++)
        status |= ncclCommFinalize(further[r]);
    return status;
}

static int abort_further(void)
{
    ncclComm_t comm = further[0];
    further[0] = NULL;
    return ncclCommAbort(comm);
}

/* A round that no rank has begun: none is a whole one ahead of another. */
static unsigned later_round(void)
{
    return rank_of[0].round + 3;
}

static int rest(void)
{
    rest_after = later_round();
    for (int r = 0; r < ranks; r++)
        while (rank_of[r].round < rest_after)
            usleep(1000);
    return 0;
}

static int go(void)
{
    rest_after = UINT_MAX;
    return 0;
}

static void answer(const char *word)
{
    int number = !strcmp(word, "rest")       ? rest()
                 : !strcmp(word, "go")       ? go()
                 : !strcmp(word, "make")       ? ncclCommInitAll(further, ranks, NULL)
                 : !strcmp(word, "finalize") ? finalize_further()
                 : !strcmp(word, "abort")    ? abort_further()
                 : !strcmp(word, "destroy")  ? destroy_further()
                 : !strcmp(word, "id")       ? ncclGetUniqueId(&further_id)
                 : !strcmp(word, "use")      ? use_id()
                                             : (int)rank_of[0].round;
    printf("%s %d\n", word, number);
}

int main(int argc, char **argv)
{
    char line[64];
    pthread_t threads[RANKS_MAX];
    bool by_threads = argc == 2 && !strcmp(argv[1], "threads");
    EXPECT(by_threads || (argc == 2 && !strcmp(argv[1], "all")), "usage: ensemble all|threads");
    setvbuf(stdout, NULL, _IOLBF, 0);
    nccl_open();
    CHECK(cudaGetDeviceCount(&ranks));
    EXPECT(ranks >= 2 && ranks <= RANKS_MAX, "%d devices", ranks);
    for (ncclUniqueId &id : ids)
        if (by_threads)
            CHECK_NCCL(ncclGetUniqueId(&id));
    int count = by_threads ? ranks : 1;
    EXPECT(!pthread_barrier_init(&level, NULL, (unsigned)count), "a barrier");
    for (int i = 0; i < count; i++)
        EXPECT(!pthread_create(&threads[i], NULL, by_threads ? compute_one : compute_all, (void *)(size_t)i), "a thread");
    while (!rank_of[0].round)
        usleep(1000);
    puts("ready");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        line[strcspn(line, "\n")] = '\0';
        answer(line);
    }
    last_round = later_round();
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    let_go();
    return 0;
}
