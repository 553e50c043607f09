/* NCCL on the software GPU against plain loops: every operation with every type and operator, messages, groups, splits;
 * on three devices of this process, and with ranks in two processes. What is expected is computed in doubles, of small
 * whole numbers that every type holds exactly. */
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/softgpu/library/nccl_comm.h"
#include "cpu/softgpu/library/test.h"

enum { RANKS = 3, COUNT = 37 };

typedef struct flyt_soft_nccl_comm *comm_t;

int ncclGetUniqueId(struct flyt_soft_nccl_id *ret_id);
int ncclCommInitRank(comm_t *comm, int ranks, struct flyt_soft_nccl_id id, int rank);
int ncclCommSplit(comm_t comm, int color, int key, comm_t *ret_comm, void *config);
int ncclCommDestroy(comm_t comm);
int ncclCommAbort(comm_t comm);
int ncclCommGetAsyncError(comm_t comm, int *ret_error);
int ncclCommCount(comm_t comm, int *ret);
int ncclCommUserRank(comm_t comm, int *ret);
int ncclRedOpCreatePreMulSum(int *ret_op, void *scalar, int type, int residence, comm_t comm);
int ncclRedOpDestroy(int op, comm_t comm);
int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, comm_t comm, CUstream s);
int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int op, comm_t comm, CUstream s);
int ncclReduce(const void *send, void *receive, size_t count, int type, int op, int root, comm_t comm, CUstream s);
int ncclAllGather(const void *send, void *receive, size_t count, int type, comm_t comm, CUstream s);
int ncclAlltoAll(const void *send, void *receive, size_t count, int type, comm_t comm, CUstream s);
int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, comm_t comm, CUstream s);
int ncclGather(const void *send, void *receive, size_t count, int type, int root, comm_t comm, CUstream s);
int ncclScatter(const void *send, void *receive, size_t count, int type, int root, comm_t comm, CUstream s);
int ncclSend(const void *send, size_t count, int type, int peer, comm_t comm, CUstream s);
int ncclRecv(void *receive, size_t count, int type, int peer, comm_t comm, CUstream s);

static struct {
    CUcontext ctx;
    CUstream stream;
    comm_t comm;
    CUdeviceptr send, receive;
} ranks[RANKS];

#define SEND_OF(r)    ((const void *)ranks[r].send)
#define RECEIVE_OF(r) ((void *)ranks[r].receive)

static double number(int rank, int i)
{
    return (rank * 5 + i * 3) % 4 + 1;
}

/* ---- numbers of NCCL's types ---- */

static void put(int type, void *at, double value)
{
    static const cudaDataType narrow[] = {
        [6] = CUDA_R_16F, [9] = CUDA_R_16BF, [10] = CUDA_R_8F_E4M3, [11] = CUDA_R_8F_E5M2};

    switch (type) {
    case 0:
    case 1:
        *(uint8_t *)at = (uint8_t)value;
        break;
    case 2:
    case 3:
        *(uint32_t *)at = (uint32_t)value;
        break;
    case 4:
    case 5:
        *(uint64_t *)at = (uint64_t)value;
        break;
    case 7:
        *(float *)at = (float)value;
        break;
    case 8:
        *(double *)at = value;
        break;
    default:
        flyt_soft_number_put(narrow[type], at, value);
    }
}

static void fill(int type, int count)
{
    size_t bytes = flyt_soft_nccl_type_bytes(type);
    char host[RANKS * COUNT * 8 + 8];

    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < count; i++)
            put(type, host + (size_t)i * bytes, number(r, i));
        assert_ok(cuCtxSetCurrent(ranks[r].ctx));
        assert_ok(cuMemcpyHtoD(ranks[r].send, host, (size_t)count * bytes));
        assert_ok(cuMemsetD8(ranks[r].receive, 0xee, sizeof(host)));
    }
}

/* Byte by byte what `wanted` says in numbers of the type. */
static void expect(int type, int rank, int count, double (*wanted)(int rank, int i, int op), int op)
{
    size_t bytes = flyt_soft_nccl_type_bytes(type);
    char host[RANKS * COUNT * 8 + 8], want[8];

    assert_ok(cuCtxSetCurrent(ranks[rank].ctx));
    assert_ok(cuStreamSynchronize(ranks[rank].stream));
    assert_ok(cuMemcpyDtoH(host, ranks[rank].receive, sizeof(host)));
    for (int i = 0; i < count; i++) {
        put(type, want, wanted(rank, i, op));
        if (memcmp(want, host + (size_t)i * bytes, bytes))
            fail_msg("type %d, operator %d, rank %d: number %d is not %g", type, op, rank, i, wanted(rank, i, op));
    }
    assert_int_equal((unsigned char)host[(size_t)count * bytes], 0xee); /* and nothing behind it */
}

#define FOR_ALL(call)                                                                                                  \
    do {                                                                                                               \
        assert_ok(ncclGroupStart());                                                                                   \
        for (int r = 0; r < RANKS; r++)                                                                                \
            assert_ok(call);                                                                                           \
        assert_ok(ncclGroupEnd());                                                                                     \
    } while (0)

/* ---- what is expected ---- */

static double combined(int rank, int i, int op)
{
    double all = number(0, i);

    (void)rank;
    for (int r = 1; r < RANKS; r++) {
        double one = number(r, i);
        all = op == NCCL_PROD  ? all * one
              : op == NCCL_MAX ? fmax(all, one)
              : op == NCCL_MIN ? fmin(all, one)
                               : all + one;
    }
    return all;
}

static double scattered(int rank, int i, int op)
{
    return combined(rank, rank * COUNT + i, op);
}

static double of_last(int rank, int i, int op)
{
    (void)rank, (void)op;
    return number(RANKS - 1, i);
}

static double of_each(int rank, int i, int op)
{
    (void)rank, (void)op;
    return number(i / COUNT, i % COUNT);
}

static double part_of_each(int rank, int i, int op)
{
    (void)op;
    return number(i / COUNT, rank * COUNT + i % COUNT);
}

static double part_of_last(int rank, int i, int op)
{
    (void)op;
    return number(RANKS - 1, rank * COUNT + i);
}

static double of_one_before(int rank, int i, int op)
{
    (void)op;
    return number((rank + RANKS - 1) % RANKS, i);
}

/* ---- tests ---- */

static void reductions_of_all_types(void **state)
{
    (void)state;
    for (int type = 0; type < NCCL_TYPES; type++)
        for (int op = NCCL_SUM; op <= NCCL_MIN; op++) {
            if (type == 11 && op == NCCL_PROD) /* has two bits of each number: not all products */
                continue;
            fill(type, COUNT);
            FOR_ALL(ncclAllReduce(SEND_OF(r), RECEIVE_OF(r), COUNT, type, op, ranks[r].comm, ranks[r].stream));
            for (int r = 0; r < RANKS && type != 11; r++)
                expect(type, r, COUNT, combined, op);
            if (type == 11)
                continue;
            fill(type, COUNT);
            FOR_ALL(ncclReduce(SEND_OF(r), RECEIVE_OF(r), COUNT, type, op, 1, ranks[r].comm, ranks[r].stream));
            expect(type, 1, COUNT, combined, op);
            expect(type, 0, 0, combined, op);
            fill(type, RANKS * COUNT);
            FOR_ALL(ncclReduceScatter(SEND_OF(r), RECEIVE_OF(r), COUNT, type, op, ranks[r].comm, ranks[r].stream));
            for (int r = 0; r < RANKS; r++)
                expect(type, r, COUNT, scattered, op);
        }
}

static double average(int rank, int i, int op)
{
    return combined(rank, i, op) / RANKS;
}

static void averages(void **state)
{
    static const int types[] = {2, 4, 8};

    (void)state;
    for (unsigned k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
        fill(types[k], COUNT);
        FOR_ALL(ncclAllReduce(SEND_OF(r), RECEIVE_OF(r), COUNT, types[k], NCCL_AVG, ranks[r].comm, ranks[r].stream));
        for (int r = 0; r < RANKS; r++)
            expect(types[k], r, COUNT, average, NCCL_AVG);
    }
}

static void moves_of_all_types(void **state)
{
    (void)state;
    for (int type = 0; type < NCCL_TYPES; type++) {
        int last = RANKS - 1;

        fill(type, RANKS * COUNT);
        FOR_ALL(ncclBroadcast(SEND_OF(r), RECEIVE_OF(r), COUNT, type, last, ranks[r].comm, ranks[r].stream));
        for (int r = 0; r < RANKS; r++)
            expect(type, r, COUNT, of_last, 0);
        fill(type, RANKS * COUNT);
        FOR_ALL(ncclScatter(SEND_OF(r), RECEIVE_OF(r), COUNT, type, last, ranks[r].comm, ranks[r].stream));
        for (int r = 0; r < RANKS; r++)
            expect(type, r, COUNT, part_of_last, 0);
        fill(type, RANKS * COUNT);
        FOR_ALL(ncclAllGather(SEND_OF(r), RECEIVE_OF(r), COUNT, type, ranks[r].comm, ranks[r].stream));
        for (int r = 0; r < RANKS; r++)
            expect(type, r, RANKS * COUNT, of_each, 0);
        fill(type, RANKS * COUNT);
        FOR_ALL(ncclGather(SEND_OF(r), RECEIVE_OF(r), COUNT, type, 0, ranks[r].comm, ranks[r].stream));
        expect(type, 0, RANKS * COUNT, of_each, 0);
        expect(type, 1, 0, of_each, 0);
        fill(type, RANKS * COUNT);
        FOR_ALL(ncclAlltoAll(SEND_OF(r), RECEIVE_OF(r), COUNT, type, ranks[r].comm, ranks[r].stream));
        for (int r = 0; r < RANKS; r++)
            expect(type, r, RANKS * COUNT, part_of_each, 0);
        fill(type, COUNT);
        FOR_ALL(ncclRecv(RECEIVE_OF(r), COUNT, type, (r + RANKS - 1) % RANKS, ranks[r].comm, ranks[r].stream) ||
                ncclSend(SEND_OF(r), COUNT, type, (r + 1) % RANKS, ranks[r].comm, ranks[r].stream));
        for (int r = 0; r < RANKS; r++)
            expect(type, r, COUNT, of_one_before, 0);
    }
}

static double weighted(int rank, int i, int op)
{
    double all = 0;

    (void)rank, (void)op;
    for (int r = 0; r < RANKS; r++)
        all += (r + 2) * number(r, i);
    return all;
}

static void operators_of_the_programs(void **state)
{
    int op[RANKS];

    (void)state;
    fill(8, COUNT);
    for (int r = 0; r < RANKS; r++) {
        double factor = r + 2;
        assert_ok(ncclRedOpCreatePreMulSum(&op[r], &factor, 8, 1, ranks[r].comm));
    }
    FOR_ALL(ncclAllReduce(SEND_OF(r), RECEIVE_OF(r), COUNT, 8, op[r], ranks[r].comm, ranks[r].stream));
    for (int r = 0; r < RANKS; r++) {
        assert_ok(ncclRedOpDestroy(op[r], ranks[r].comm));
        expect(8, r, COUNT, weighted, 0);
        assert_int_equal(ncclAllReduce(SEND_OF(r), RECEIVE_OF(r), COUNT, 8, op[r], ranks[r].comm, ranks[r].stream),
                         NCCL_INVALID_ARGUMENT);
        (void)ncclGroupStart(); /* the error was the group's */
        (void)ncclGroupEnd();
    }
}

static void split(void **state)
{
    comm_t parts[RANKS];
    int count, rank;

    (void)state;
    FOR_ALL(ncclCommSplit(ranks[r].comm, r == 1 ? -1 : 7, -r, &parts[r], NULL));
    assert_null(parts[1]);
    for (int r = 0; r < RANKS; r += 2) {
        assert_ok(ncclCommCount(parts[r], &count));
        assert_ok(ncclCommUserRank(parts[r], &rank));
        assert_int_equal(count, 2);
        assert_int_equal(rank, r ? 0 : 1);
    }
    fill(2, COUNT);
    assert_ok(ncclGroupStart());
    for (int r = 0; r < RANKS; r += 2)
        assert_ok(ncclBroadcast(SEND_OF(r), RECEIVE_OF(r), COUNT, 2, 0, parts[r], ranks[r].stream));
    assert_ok(ncclGroupEnd());
    for (int r = 0; r < RANKS; r += 2) {
        expect(2, r, COUNT, of_last, 0);
        assert_ok(ncclCommDestroy(parts[r]));
    }
}

/* A second process has the other rank; it ends without a word. The first one's operation waits until it is aborted. */
static void ranks_of_two_processes(void **state)
{
    struct flyt_soft_nccl_id id;
    comm_t comm;
    int error = 0, status;

    (void)state;
    assert_ok(ncclGetUniqueId(&id));
    /* The child is a bare rank over the hub's messages: the driver's threads are not in it. */
    pid_t child = fork();
    if (!child) {
        struct flyt_soft_nccl_message join = {.kind = MESSAGE_JOIN, .rank = 1, .ranks = 2, .bytes = sizeof(id.secret)};
        struct flyt_soft_nccl_message message;
        int fd = flyt_soft_nccl_hub_connect(&id), five = 5;
        void *data;

        bool is_well =
            fd >= 0 && flyt_soft_nccl_write(fd, &join, id.secret) && flyt_soft_nccl_read(fd, &message, &data);
        message = (struct flyt_soft_nccl_message){.kind = MESSAGE_COLLECT,
                                                  .sequence = 1,
                                                  .bytes = 4,
                                                  .count = 1,
                                                  .rank = 1,
                                                  .function = ALL_REDUCE,
                                                  .type = 2};
        is_well = is_well && flyt_soft_nccl_write(fd, &message, &five) && flyt_soft_nccl_read(fd, &message, &data);
        _exit(is_well && *(int *)data == 5 + 7 ? 0 : 1);
    }
    assert_ok(cuCtxSetCurrent(ranks[0].ctx));
    assert_ok(ncclCommInitRank(&comm, 2, id, 0));
    assert_ok(cuMemsetD32(ranks[0].send, 7, 1));
    assert_ok(ncclAllReduce(SEND_OF(0), RECEIVE_OF(0), 1, 2, NCCL_SUM, comm, ranks[0].stream));
    assert_ok(cuStreamSynchronize(ranks[0].stream));
    assert_int_equal(*(int *)ranks[0].receive, 12);
    (void)ncclAllReduce(SEND_OF(0), RECEIVE_OF(0), 1, 2, NCCL_SUM, comm, ranks[0].stream);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    while (!error)
        assert_ok(ncclCommGetAsyncError(comm, &error));
    assert_int_equal(error, NCCL_REMOTE_ERROR);
    assert_ok(ncclCommAbort(comm));
    assert_ok(cuStreamSynchronize(ranks[0].stream));
}

static void who_does_not_know_the_secret_stays_outside(void **state)
{
    struct flyt_soft_nccl_id id, wrong;
    comm_t comm = NULL;

    (void)state;
    assert_ok(ncclGetUniqueId(&id));
    wrong = id;
    wrong.secret[3] ^= 1;
    assert_ok(cuCtxSetCurrent(ranks[0].ctx));
    assert_int_equal(ncclCommInitRank(&comm, 1, wrong, 0), NCCL_REMOTE_ERROR);
    assert_null(comm);
    assert_ok(ncclCommInitRank(&comm, 1, id, 0));
    assert_ok(ncclCommDestroy(comm));
}

static int set_up(void **state)
{
    struct flyt_soft_nccl_id id;

    (void)state;
    setenv("FLYT_SOFT_DEVICES", "3", 1);
    test_start();
    assert_ok(ncclGetUniqueId(&id));
    assert_ok(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        assert_ok(cuDevicePrimaryCtxRetain(&ranks[r].ctx, r));
        assert_ok(cuCtxSetCurrent(ranks[r].ctx));
        assert_ok(cuStreamCreate(&ranks[r].stream, CU_STREAM_NON_BLOCKING));
        assert_ok(cuMemAlloc(&ranks[r].send, RANKS * COUNT * 8));
        assert_ok(cuMemAlloc(&ranks[r].receive, RANKS * COUNT * 8 + 8));
        assert_ok(ncclCommInitRank(&ranks[r].comm, RANKS, id, r));
    }
    assert_ok(ncclGroupEnd());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++)
        assert_ok(ncclCommDestroy(ranks[r].comm));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_of_all_types),
        cmocka_unit_test(averages),
        cmocka_unit_test(moves_of_all_types),
        cmocka_unit_test(operators_of_the_programs),
        cmocka_unit_test(split),
        cmocka_unit_test(ranks_of_two_processes),
        cmocka_unit_test(who_does_not_know_the_secret_stays_outside),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
