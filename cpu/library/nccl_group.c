/* Groups of NCCL's calls: kept by the thread that makes them, sent when its outermost group ends. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/client/core/visible.h"
#include "cpu/library/nccl_kin.h"

struct list {
    unsigned char *data;
    size_t bytes, room;
};

struct pending {
    struct flyt_nccl_op op;
    struct flyt_lib_object *comm;
    void *stream;
    /* Known when the group ends: */
    uint64_t context_id;
    int device;
    struct flyt_lib_stream where;
    bool is_sent;
};

/* What an order makes or ends. */
struct subject {
    void **ret_comm;
    uint64_t handle;
    bool is_made, is_ended;
};

static _Thread_local struct {
    unsigned depth;
    int status; /* the first error of a call in the group */
    struct list ops, orders, subjects;
} group;

static void *add(struct list *list, size_t bytes)
{
    if (list->bytes + bytes > list->room) {
        size_t room = 2 * (list->bytes + bytes);
        unsigned char *data = realloc(list->data, room);
        if (!data)
            return NULL;
        list->data = data;
        list->room = room;
    }
    void *place = list->data + list->bytes;
    memset(place, 0, bytes);
    list->bytes += bytes;
    return place;
}

static void drop(struct list *list)
{
    free(list->data);
    *list = (struct list){0};
}

int flyt_nccl_fail(int status)
{
    if (group.depth && !group.status)
        group.status = status;
    return status;
}

FLYT_LIB_ENTRY int ncclGroupStart(void)
{
    group.depth++;
    return NCCL_SUCCESS;
}

/* ---- operations ---- */

static int keep_op(const struct flyt_nccl_op *op, struct flyt_lib_object *comm, void *stream)
{
    size_t count = group.ops.bytes / sizeof(struct pending);
    struct pending *pending = count < FLYT_NCCL_OPS_MAX ? add(&group.ops, sizeof *pending) : NULL;
    if (!pending)
        return flyt_nccl_fail(flyt_lib_nccl.memory);
    *pending = (struct pending){.op = *op, .comm = comm, .stream = stream};
    pending->op.place = (uint32_t)count;
    return NCCL_SUCCESS;
}

int flyt_nccl_add_op(struct flyt_nccl_op *op, void *comm, void *stream)
{
    struct flyt_lib_object *object = flyt_nccl_comm(comm);
    op->comm = (uint64_t)(uintptr_t)comm;
    if (!object || !flyt_nccl_type_bytes(op->type))
        return flyt_nccl_fail(NCCL_ARGUMENT);
    ncclGroupStart();
    int status = keep_op(op, object, stream), ended = ncclGroupEnd();
    return status ? status : ended;
}

/* ---- a group's streams ---- */

static int find_streams(struct pending *ops, size_t count)
{
    int status = NCCL_SUCCESS;
    for (size_t i = 0; i < count && !status; i++) {
        struct flyt_lib_call call = {.row = &flyt_lib_row_ncclGroupEnd, .stream = ops[i].stream};
        flyt_lib_place(&call, ops[i].comm);
        ops[i].context_id = call.context_id;
        ops[i].device = call.device;
        status = flyt_lib_stream_tell(&call, &ops[i].where);
    }
    return status;
}

/* Each stream is held until all of the group are. A blocking stream and the legacy one would wait for each other: what
 * the first has to do goes to the second, with which it is ordered both before and after. */
static void join_legacy(struct pending *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; ops[i].where.is_legacy && k < count; k++)
            if (ops[k].device == ops[i].device && ops[k].where.is_blocking) {
                ops[k].stream = ops[i].stream;
                ops[k].where.id = ops[i].where.id;
                ops[k].context_id = ops[i].context_id;
            }
}

static unsigned count_streams(const struct pending *ops, size_t count)
{
    unsigned streams = 0;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (ops[k].where.id != ops[i].where.id)
            k++;
        streams += k == i;
    }
    return streams;
}

/* ---- sending ---- */

/* What tells two groups apart but for their addresses. Operators of the program's may be ended behind the group's end:
 * such a group is always awaited. */
static bool put_key(const struct pending *ops, size_t count, struct list *ret_key)
{
    bool may_be_kept = true;
    for (size_t i = 0; i < count; i++) {
        void *place = add(ret_key, offsetof(struct flyt_nccl_op, send));
        if (!place)
            return false;
        memcpy(place, &ops[i].op, offsetof(struct flyt_nccl_op, send));
        may_be_kept &= ops[i].op.op < FLYT_NCCL_OPS_BUILT_IN;
    }
    return may_be_kept;
}

static int send_bytes(const struct pending *first, const void *bytes, size_t count)
{
    struct flyt_args_ncclGroupEnd sent;
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclGroupEnd, .arguments = &sent};
    flyt_lib_begin(&call);
    flyt_lib_place(&call, first->comm);
    call.context_id = first->context_id;
    flyt_lib_stream(&call, first->stream);
    sent.part_bytes = flyt_lib_in_aside(&call, bytes, count);
    return flyt_lib_finish(&call);
}

/* The operations of one stream, that of ops[0]. Where they cannot be sent, a part without any goes instead: the server
 * ends the group then, which would wait for its part. */
static int send_part(const struct flyt_nccl_part *head, struct pending *ops, size_t count)
{
    struct list list = {0};
    void *place = add(&list, sizeof *head);
    if (place)
        memcpy(place, head, sizeof *head);
    for (size_t i = 0; i < count && place; i++) {
        if (ops[i].is_sent || ops[i].where.id != ops->where.id)
            continue;
        place = add(&list, sizeof ops[i].op);
        if (place)
            memcpy(place, &ops[i].op, sizeof ops[i].op);
        struct flyt_state_comm *state = flyt_lib_state(ops[i].comm);
        __atomic_add_fetch(&state->op_count, 1, __ATOMIC_RELAXED);
        ops[i].is_sent = true;
    }
    int status = place ? send_bytes(ops, list.data, list.bytes) : flyt_lib_nccl.memory;
    if (status)
        send_bytes(ops, head, sizeof *head);
    drop(&list);
    return status;
}

/* All parts of a group come one behind the other: of two groups with common streams one has them all first. */
static int send_parts(const struct flyt_nccl_part *head, struct pending *ops, size_t count)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int status = NCCL_SUCCESS;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < count; i++)
        if (!ops[i].is_sent) {
            int one = send_part(head, &ops[i], count - i);
            status = status ? status : one;
        }
    pthread_mutex_unlock(&mutex);
    return status;
}

static int await_group(uint64_t number)
{
    struct flyt_args_ncclGroupStart sent = {.number = number};
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclGroupStart, .arguments = &sent};
    flyt_lib_begin(&call);
    return flyt_lib_finish(&call);
}

/* A server that stops the program gets all parts of a group or none, and with them the question how it has ended. */
static int send_group(const struct flyt_nccl_part *head, struct pending *ops, size_t count)
{
    flyt_nccl_ops_begin(&ops->op, sizeof *ops, count);
    int status = send_parts(head, ops, count);
    if (head->is_awaited) {
        int ended = await_group(head->number);
        status = status ? status : ended;
    }
    flyt_nccl_ops_end(&ops->op, sizeof *ops, count, status);
    return status;
}

/* Of a graph whose launches follow each other in one thread, who awaited one rank's operations might never come to
 * another's. */
static int send_found(struct pending *ops, size_t count, bool is_of_graph)
{
    static _Atomic uint64_t last_number;
    struct list key = {0};
    bool may_be_kept = put_key(ops, count, &key);
    bool is_known = may_be_kept && flyt_lib_was_well(&flyt_lib_row_ncclGroupEnd, key.data, key.bytes);
    struct flyt_nccl_part head = {.number = atomic_fetch_add(&last_number, 1) + 1,
                                  .part_count = count_streams(ops, count),
                                  .is_awaited = !is_known && !is_of_graph};
    int status = head.part_count <= FLYT_NCCL_PARTS_MAX ? send_group(&head, ops, count) : NCCL_USAGE;
    if (may_be_kept && head.is_awaited && !status)
        flyt_lib_note_well(&flyt_lib_row_ncclGroupEnd, key.data, key.bytes);
    drop(&key);
    return status;
}

/* ---- groups in graphs ---- */

static int device_of(const struct flyt_lib_object *comm)
{
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclGroupEnd};
    flyt_lib_place(&call, comm);
    return call.device;
}

/* At a launch, in a stream for each device: the same operations, as far as their communicators are there. */
static int submit_captured(const void *data, size_t bytes, void *const *streams)
{
    const struct flyt_nccl_op *captured = data;
    const size_t count = bytes / sizeof *captured;
    struct pending *ops = calloc(count, sizeof *ops);
    int status = ops ? NCCL_SUCCESS : flyt_lib_nccl.memory;
    for (size_t i = 0; i < count && !status; i++) {
        ops[i].op = captured[i];
        ops[i].comm = flyt_nccl_comm((void *)(uintptr_t)captured[i].comm);
        status = ops[i].comm ? NCCL_SUCCESS : NCCL_ARGUMENT;
        if (!status)
            ops[i].stream = streams[device_of(ops[i].comm)];
    }
    if (!status)
        status = find_streams(ops, count);
    if (!status)
        status = send_found(ops, count, true);
    free(ops);
    return status;
}

/* What says where each stream of the operations is; how many there are. */
static unsigned put_streams(const struct pending *ops, size_t count, struct flyt_lib_call *ret_calls)
{
    unsigned streams = 0;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (ops[k].where.id != ops[i].where.id)
            k++;
        if (k < i)
            continue;
        struct flyt_lib_call *call = &ret_calls[streams++];
        *call = (struct flyt_lib_call){.row = &flyt_lib_row_ncclGroupEnd, .stream = ops[i].stream};
        flyt_lib_place(call, ops[i].comm);
    }
    return streams;
}

/* One node of the graph, for all streams: what NCCL launches of a group comes after them all, and they after it. */
static int capture_ops(const struct pending *ops, size_t count)
{
    struct flyt_nccl_op *captured = calloc(count, sizeof *captured);
    struct flyt_lib_call *calls = calloc(count, sizeof *calls);
    int status = flyt_lib_nccl.memory;
    for (size_t i = 0; i < count && captured; i++) {
        captured[i] = ops[i].op;
        captured[i].place = (uint32_t)i;
    }
    if (captured && calls)
        status = flyt_lib_capture(calls, put_streams(ops, count, calls), submit_captured, captured,
                                  count * sizeof *captured);
    free(captured);
    free(calls);
    return status;
}

/* All of a communicator's operations in a group are captured in one graph, or none is: NCCL has no more. */
static bool is_good_capture(const struct pending *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (ops[i].comm == ops[k].comm && ops[i].where.capture != ops[k].where.capture)
                return false;
    return true;
}

/* Moves what the capture has of the list; how much that is. */
static size_t take_capture(struct pending *ops, size_t *count, uint64_t capture, struct pending *ret_taken)
{
    size_t taken = 0, left = 0;
    for (size_t i = 0; i < *count; i++)
        if (ops[i].where.capture == capture)
            ret_taken[taken++] = ops[i];
        else
            ops[left++] = ops[i];
    *count = left;
    return taken;
}

/* A node for each graph, as if each were a process of its own. The rest of the list is as it was without them. */
static int capture_all(struct pending *ops, size_t *count)
{
    struct pending *taken = calloc(*count, sizeof *taken);
    int status = !taken ? flyt_lib_nccl.memory : is_good_capture(ops, *count) ? NCCL_SUCCESS : NCCL_USAGE;
    for (size_t i = 0; i < *count && !status;)
        if (ops[i].where.capture)
            status = capture_ops(taken, take_capture(ops, count, ops[i].where.capture, taken));
        else
            i++;
    for (size_t i = 0; i < *count; i++)
        ops[i].op.place = (uint32_t)i;
    free(taken);
    return status;
}

static int send_ops(struct pending *ops, size_t count)
{
    bool is_captured = false;
    int status = find_streams(ops, count);
    for (size_t i = 0; i < count && !status; i++)
        is_captured |= ops[i].where.capture;
    if (is_captured)
        status = capture_all(ops, &count);
    if (status || !count)
        return status;
    join_legacy(ops, count);
    return send_found(ops, count, false);
}

/* ---- orders ---- */

int flyt_nccl_add_order(const struct flyt_lib_call *call, struct flyt_nccl_order *order, const void *more,
                        size_t more_bytes, void **ret_comm)
{
    void *handle = NULL;
    struct flyt_lib_object *object = ret_comm ? flyt_lib_own_new(call, &flyt_lib_kind_nccl_comm, &handle) : NULL;
    struct subject *subject = !ret_comm || object ? add(&group.subjects, sizeof *subject) : NULL;
    void *place = subject ? add(&group.orders, flyt_nccl_order_bytes(order)) : NULL;
    if (!place) {
        flyt_lib_own_end((uint64_t)(uintptr_t)handle, &flyt_lib_kind_nccl_comm);
        if (subject) /* the lists stay as long as each other */
            group.subjects.bytes -= sizeof *subject;
        return flyt_nccl_fail(flyt_lib_nccl.memory);
    }
    order->device = flyt_wire_device((unsigned)call->device);
    if (ret_comm) {
        order->comm = (uint64_t)(uintptr_t)handle;
        *ret_comm = handle;
    }
    memcpy(place, order, sizeof *order);
    if (more_bytes)
        memcpy((char *)place + sizeof *order, more, more_bytes);
    *subject = (struct subject){.ret_comm = ret_comm,
                                .handle = order->comm,
                                .is_made = ret_comm,
                                .is_ended = order->control == FLYT_NCCL_DESTROY};
    return NCCL_SUCCESS;
}

struct sent_orders {
    const void *data;
    size_t bytes;
    const int32_t *made;
    bool is_noted;
};

static void note_orders(struct flyt_lib_call *call, int status)
{
    struct sent_orders *sent = call->note_user;
    sent->is_noted = true;
    flyt_nccl_orders_note(sent->data, sent->bytes, sent->made, status);
}

int flyt_nccl_send_orders(const struct flyt_lib_row *row, const void *orders, size_t bytes, int32_t *made,
                          unsigned count)
{
    struct sent_orders noted = {orders, bytes, made, false};
    struct flyt_args_ncclCommInitRank sent;
    _Static_assert(sizeof sent == sizeof(struct flyt_args_ncclCommAbort), "both rows have the same arguments");
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = row, .arguments = &sent, .note = note_orders, .note_user = &noted};
    flyt_lib_begin(&call);
    sent.orders_bytes = flyt_lib_in(&call, orders, bytes, false);
    sent.is_made_bytes = flyt_lib_out(&call, made, count * sizeof *made, false);
    flyt_lib_finish(&call);
    if (!noted.is_noted) /* it was not sent */
        note_orders(&call, call.status);
    return call.status;
}

/* Communicators that were not made, and those that were ended, are the program's no more. */
static void settle(const struct subject *subjects, size_t count, const int32_t *made, bool is_sent)
{
    for (size_t i = 0; i < count; i++) {
        bool is_gone = subjects[i].is_made ? !made[i] : subjects[i].is_ended && is_sent;
        if (is_gone)
            flyt_lib_own_end(subjects[i].handle, &flyt_lib_kind_nccl_comm);
        if (is_gone && subjects[i].is_made)
            *subjects[i].ret_comm = NULL;
    }
}

static int send_orders(void)
{
    size_t count = group.subjects.bytes / sizeof(struct subject);
    int32_t *made = calloc(count, sizeof *made);
    int status = group.status;
    if (!made)
        return flyt_lib_nccl.memory;
    if (!status) {
        flyt_nccl_orders_begin(group.orders.data, group.orders.bytes);
        status = flyt_nccl_send_orders(&flyt_lib_row_ncclCommInitRank, group.orders.data, group.orders.bytes, made,
                                       (unsigned)count);
        flyt_nccl_orders_end();
    }
    settle((const struct subject *)(void *)group.subjects.data, count, made, !group.status);
    free(made);
    return status;
}

/* ---- the end ---- */

FLYT_LIB_ENTRY int ncclGroupEnd(void)
{
    if (!group.depth)
        return NCCL_USAGE;
    if (group.depth > 1) {
        group.depth--;
        return NCCL_SUCCESS;
    }
    int status = group.orders.bytes ? send_orders() : group.status;
    if (!status && group.ops.bytes)
        status = send_ops((struct pending *)(void *)group.ops.data, group.ops.bytes / sizeof(struct pending));
    drop(&group.ops);
    drop(&group.orders);
    drop(&group.subjects);
    group.status = NCCL_SUCCESS;
    group.depth = 0;
    return status;
}
