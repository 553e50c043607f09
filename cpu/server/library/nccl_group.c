/*
 * Groups of NCCL's operations. A group comes in parts, one for each of its streams, and each holds its stream as other
 * work does that a thread makes. When the last part has its stream, too, that part's thread hands all operations to
 * NCCL, in the order in which the program made them. A part that is wrong, or that ends before, lets the whole group
 * end without that.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu/server/core/session.h"
#include "cpu/server/library/library.h"
#include "cpu/server/library/nccl.h"
#include "flyt_lib_nccl.h"
#include "rpc/library/nccl_list.h"

enum { GROUPS_MAX = 1024 }; /* more than a program has threads, each of which has one at a time */

struct part {
    CUstream cu_stream;
    const struct flyt_nccl_op *ops;
    unsigned count;
};

struct group {
    struct group *next;
    uint64_t number;
    unsigned part_count, come_count, wrong_count; /* part_count: 0 as long as none has come */
    unsigned leaving_count;                       /* of parts and of who awaits it, those that know how it ended */
    bool is_awaited, is_running, is_done;
    int status;
    struct part parts[FLYT_NCCL_PARTS_MAX];
};

static struct {
    pthread_mutex_t mutex;
    struct group *first;
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The group of a number, made where it is not there; NULL: no memory, or too many of them. */
static struct group *get_group_locked(uint64_t number)
{
    unsigned count = 0;
    struct group *group = table.first;
    for (; group && group->number != number; group = group->next)
        count++;
    if (group || count == GROUPS_MAX || !(group = calloc(1, sizeof *group)))
        return group;
    group->number = number;
    group->next = table.first;
    table.first = group;
    return group;
}

/* One of those that know how the group ended goes; the last one frees it. */
static void leave_locked(struct group *group)
{
    if (++group->leaving_count < group->part_count + group->is_awaited)
        return;
    struct group **place = &table.first;
    while (*place != group)
        place = &(*place)->next;
    *place = group->next;
    free(group);
}

/* ---- what came ---- */

static const struct flyt_nccl_part *part_of(const struct flyt_libcall *call)
{
    return (const void *)(call->arguments + flyt_lib_align(call->row->bytes));
}

static bool has_part(const struct flyt_libcall *call, unsigned *ret_count)
{
    const struct flyt_args_ncclGroupEnd *sent = (const void *)call->arguments;
    size_t bytes = sent->part_bytes;
    if (bytes > call->bytes - flyt_lib_align(call->row->bytes) || bytes < sizeof(struct flyt_nccl_part))
        return false;
    bytes -= sizeof(struct flyt_nccl_part);
    *ret_count = (unsigned)(bytes / sizeof(struct flyt_nccl_op));
    return bytes % sizeof(struct flyt_nccl_op) == 0;
}

static CUresult check_ops(const struct flyt_nccl_part *part, unsigned count)
{
    const struct flyt_nccl_op *ops = (const void *)(part + 1);
    if (!count || count > FLYT_NCCL_OPS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (ops[i].function >= FLYT_NCCL_FUNCTIONS || ops[i].place >= FLYT_NCCL_OPS_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        if (!flyt_nccl_comm_find(ops[i].comm))
            return CUDA_ERROR_INVALID_HANDLE;
    }
    return CUDA_SUCCESS;
}

static void count_ops(const struct flyt_nccl_op *ops, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        flyt_nccl_comm_count(ops[i].comm);
}

static void end_group_locked(struct group *group, int status)
{
    for (unsigned i = 0; i < group->come_count; i++)
        count_ops(group->parts[i].ops, group->parts[i].count);
    group->status = status;
    group->is_done = true;
}

/* Whether the part fits the group's others. */
static bool join_locked(struct group *group, const struct flyt_nccl_part *part)
{
    bool is_first = !group->part_count;
    if (!part->part_count || part->part_count > FLYT_NCCL_PARTS_MAX || part->is_awaited > 1)
        return false;
    if (is_first) {
        group->part_count = part->part_count;
        group->is_awaited = part->is_awaited;
    }
    return group->part_count == part->part_count && group->is_awaited == part->is_awaited &&
           group->come_count + group->wrong_count < group->part_count;
}

/* ---- parts ---- */

/* A part that is wrong: the group ends with it, once its others have come. */
static void leave_out(const struct flyt_nccl_part *part, unsigned count, int status)
{
    pthread_mutex_lock(&table.mutex);
    struct group *group = get_group_locked(part->number);
    if (group && join_locked(group, part)) {
        group->wrong_count++;
        count_ops((const void *)(part + 1), count);
        if (group->come_count + group->wrong_count == group->part_count)
            end_group_locked(group, status);
        leave_locked(group);
    }
    pthread_mutex_unlock(&table.mutex);
}

CUresult flyt_server_resolve_ncclGroupEnd(struct flyt_libcall *call);
CUresult flyt_server_resolve_ncclGroupEnd(struct flyt_libcall *call)
{
    unsigned count;
    if (!has_part(call, &count))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_ops(part_of(call), count);
    if (result != CUDA_SUCCESS)
        leave_out(part_of(call), count, call->library->invalid);
    return result;
}

/* The part has ended, and its operations go with it. */
static void lose(struct flyt_libcall *call)
{
    struct group *group = call->gathered;
    pthread_mutex_lock(&table.mutex);
    if (!group->is_done)
        end_group_locked(group, call->library->failed);
    leave_locked(group);
    pthread_mutex_unlock(&table.mutex);
}

/* The part has its stream from now on. NULL: it belongs to no group. */
static struct group *come_locked(struct flyt_libcall *call)
{
    unsigned count;
    const struct flyt_nccl_part *part = part_of(call);
    struct group *group = has_part(call, &count) ? get_group_locked(part->number) : NULL;
    if (!group || !join_locked(group, part))
        return NULL;
    group->parts[group->come_count++] =
        (struct part){.cu_stream = call->cu_stream, .ops = (const void *)(part + 1), .count = count};
    call->gathered = group;
    call->lose = lose;
    call->lets_pass = part->is_awaited;
    return group;
}

static enum flyt_gathered gather_locked(struct flyt_libcall *call)
{
    struct group *group = call->gathered;
    call->status = call->library->success;
    if (!group) {
        group = come_locked(call);
        if (!group) {
            call->status = call->library->invalid;
            return FLYT_GATHERED_DONE;
        }
        if (group->is_done) { /* without it */
            const struct part *own = &group->parts[group->come_count - 1];
            count_ops(own->ops, own->count);
        } else if (group->come_count + group->wrong_count == group->part_count) {
            group->is_running = !group->wrong_count;
            if (group->is_running)
                return FLYT_GATHERED;
            end_group_locked(group, call->library->invalid);
        }
    }
    if (!group->is_done)
        return group->is_running ? FLYT_GATHERED_RUNS : FLYT_GATHERED_NOT;
    call->lose = NULL;
    leave_locked(group);
    return FLYT_GATHERED_DONE;
}

enum flyt_gathered flyt_server_gather_ncclGroupEnd(struct flyt_libcall *call);
enum flyt_gathered flyt_server_gather_ncclGroupEnd(struct flyt_libcall *call)
{
    pthread_mutex_lock(&table.mutex);
    enum flyt_gathered gathered = gather_locked(call);
    pthread_mutex_unlock(&table.mutex);
    return gathered;
}

/* ---- who awaits a group ---- */

enum flyt_gathered flyt_server_gather_ncclGroupStart(struct flyt_libcall *call);
enum flyt_gathered flyt_server_gather_ncclGroupStart(struct flyt_libcall *call)
{
    const struct flyt_args_ncclGroupStart *sent = (const void *)call->arguments;
    enum flyt_gathered gathered = FLYT_GATHERED_NOT;
    pthread_mutex_lock(&table.mutex);
    struct group *group = get_group_locked(sent->number);
    if (!group || (group->part_count && !group->is_awaited)) {
        call->status = group ? call->library->invalid : call->library->memory;
        gathered = FLYT_GATHERED_DONE;
    } else if (call->is_last && !group->is_done &&
               (!group->part_count || group->come_count + group->wrong_count < group->part_count)) {
        end_group_locked(group, call->library->failed); /* a part was refused before it came here */
    }
    if (gathered == FLYT_GATHERED_NOT && group->is_done) {
        call->status = group->status;
        gathered = FLYT_GATHERED_DONE;
        leave_locked(group);
    }
    pthread_mutex_unlock(&table.mutex);
    return gathered;
}

/* Its thread is never asked. */
int flyt_server_run_ncclGroupStart(struct flyt_libcall *call);
int flyt_server_run_ncclGroupStart(struct flyt_libcall *call)
{
    return call->library->refused;
}

/* ---- handing them to NCCL ---- */

/* The functions have these forms of NCCL's. */
typedef int (*with_op_fn)(const void *, void *, size_t, int, int, void *, CUstream);
typedef int (*with_op_and_root_fn)(const void *, void *, size_t, int, int, int, void *, CUstream);
typedef int (*with_root_fn)(const void *, void *, size_t, int, int, void *, CUstream);
typedef int (*without_fn)(const void *, void *, size_t, int, void *, CUstream);
typedef int (*with_peer_fn)(const void *, size_t, int, int, void *, CUstream);

static const char *const names[FLYT_NCCL_FUNCTIONS] = {[FLYT_NCCL_ALL_REDUCE] = "ncclAllReduce",
                                                       [FLYT_NCCL_REDUCE] = "ncclReduce",
                                                       [FLYT_NCCL_BROADCAST] = "ncclBroadcast",
                                                       [FLYT_NCCL_ALL_GATHER] = "ncclAllGather",
                                                       [FLYT_NCCL_REDUCE_SCATTER] = "ncclReduceScatter",
                                                       [FLYT_NCCL_ALL_TO_ALL] = "ncclAlltoAll",
                                                       [FLYT_NCCL_GATHER] = "ncclGather",
                                                       [FLYT_NCCL_SCATTER] = "ncclScatter",
                                                       [FLYT_NCCL_SEND] = "ncclSend",
                                                       [FLYT_NCCL_RECV] = "ncclRecv"};

static int run_op(struct flyt_libcall *call, const struct flyt_nccl_op *op, CUstream cu_stream)
{
    void *function = flyt_server_library_function(call->library, names[op->function]);
    void *comm = flyt_nccl_comm_find(op->comm), *receive = (void *)(uintptr_t)op->receive;
    const void *send = (const void *)(uintptr_t)op->send;
    int real_op = flyt_nccl_real_op(op->comm, op->op);
    if (!comm || !function || real_op < 0)
        return comm && real_op >= 0 ? call->library->refused : call->library->invalid;
    switch ((enum flyt_nccl_function)op->function) {
    case FLYT_NCCL_ALL_REDUCE:
    case FLYT_NCCL_REDUCE_SCATTER:
        return ((with_op_fn)function)(send, receive, op->count, op->type, real_op, comm, cu_stream);
    case FLYT_NCCL_REDUCE:
        return ((with_op_and_root_fn)function)(send, receive, op->count, op->type, real_op, op->peer, comm, cu_stream);
    case FLYT_NCCL_BROADCAST:
    case FLYT_NCCL_GATHER:
    case FLYT_NCCL_SCATTER:
        return ((with_root_fn)function)(send, receive, op->count, op->type, op->peer, comm, cu_stream);
    case FLYT_NCCL_ALL_GATHER:
    case FLYT_NCCL_ALL_TO_ALL:
        return ((without_fn)function)(send, receive, op->count, op->type, comm, cu_stream);
    case FLYT_NCCL_SEND:
        return ((with_peer_fn)function)(send, op->count, op->type, op->peer, comm, cu_stream);
    case FLYT_NCCL_RECV:
        return ((with_peer_fn)function)(receive, op->count, op->type, op->peer, comm, cu_stream);
    case FLYT_NCCL_FUNCTIONS:
        break;
    }
    return call->library->invalid;
}

struct placed {
    const struct flyt_nccl_op *op;
    CUstream cu_stream;
};

static int by_place(const void *a, const void *b)
{
    uint32_t left = ((const struct placed *)a)->op->place, right = ((const struct placed *)b)->op->place;
    return (left > right) - (left < right);
}

/* All operations of the group by their places; NULL: no memory. */
static struct placed *placed_ops(const struct group *group, unsigned *ret_count)
{
    unsigned count = 0, used = 0;
    for (unsigned i = 0; i < group->come_count; i++)
        count += group->parts[i].count;
    struct placed *ops = calloc(count, sizeof *ops);
    for (unsigned i = 0; ops && i < group->come_count; i++)
        for (unsigned j = 0; j < group->parts[i].count; j++)
            ops[used++] = (struct placed){&group->parts[i].ops[j], group->parts[i].cu_stream};
    if (ops)
        qsort(ops, count, sizeof *ops, by_place);
    *ret_count = count;
    return ops;
}

static int run_group(struct flyt_libcall *call, const struct group *group)
{
    typedef int (*plain_fn)(void);
    plain_fn start = (plain_fn)flyt_server_library_function(call->library, "ncclGroupStart"),
             end = (plain_fn)flyt_server_library_function(call->library, "ncclGroupEnd");
    unsigned count;
    struct placed *ops = placed_ops(group, &count);
    if (!ops || !start || !end) {
        free(ops);
        return ops ? call->library->refused : call->library->memory;
    }
    int status = start();
    for (unsigned i = 0; i < count && status == call->library->success; i++)
        status = run_op(call, ops[i].op, ops[i].cu_stream);
    int ended = end();
    free(ops);
    return status == call->library->success || status == FLYT_NCCL_IN_PROGRESS ? ended : status;
}

/* Whether the communicator goes on telling it (ncclCommGetAsyncError). */
static bool is_kept(int status)
{
    return status == FLYT_NCCL_IN_PROGRESS || status == FLYT_NCCL_REMOTE_ERROR;
}

/* What NCCL refuses because of its arguments leaves the communicators as they were. */
static void spoil_after(const struct flyt_libcall *call, const struct group *group, int status)
{
    if (status == call->library->success || status == FLYT_NCCL_IN_PROGRESS || status == call->library->invalid ||
        status == call->library->refused)
        return;
    for (unsigned i = 0; i < group->come_count; i++)
        for (unsigned j = 0; j < group->parts[i].count; j++)
            flyt_nccl_comm_spoil(group->parts[i].ops[j].comm);
}

/* Of the part that came last. Who awaits the group is told its status; where nobody does, this call's thread is. */
int flyt_server_run_ncclGroupEnd(struct flyt_libcall *call);
int flyt_server_run_ncclGroupEnd(struct flyt_libcall *call)
{
    struct group *group = call->gathered;
    const struct flyt_session *session = call->session;
    if (!group)
        return call->library->invalid;
    bool is_current = session->driver->cuCtxSetCurrent(session->devices[0].cu_primary) == CUDA_SUCCESS;
    int status = is_current ? run_group(call, group) : call->library->failed;
    spoil_after(call, group, status);
    call->staying = flyt_nccl_staying_change();
    pthread_mutex_lock(&table.mutex);
    bool is_told = group->is_awaited;
    call->lose = NULL;
    end_group_locked(group, status);
    leave_locked(group);
    pthread_mutex_unlock(&table.mutex);
    return is_told || is_kept(status) ? call->library->success : status;
}
