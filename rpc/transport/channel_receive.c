#include "rpc/transport/channel_state.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include "rpc/base/clock.h"
#include "rpc/transport/endpoint/listen.h"

enum {
    PAUSES_BETWEEN_SYSTEM_CALLS = 16,
    SPIN_NS = 30 * 1000,            /* a reply that comes at all soon comes within this */
    LOOK_MAX_NS = 6 * 1000 * 1000,  /* a wait of more than this is slept through: it is woken 50 µs late or more */
    TICK_MS = 1,                    /* how long a call may wait in the buffer, and the reader's role for a reader */
    ATTENTIVE_NS = 10 * 1000 * 1000 /* the background thread goes on ticking so long after the last thing it saw */
};

/* ---- replies ---- */

/* Where a reply's payload pointer is in the struct that rpcgen made of an opaque<>. */
struct opaque_field {
    u_int length;
    char *value;
};

static struct opaque_field *payload_field(const struct flyt_waiter *waiter)
{
    return (void *)((char *)waiter->res + flyt_procedure_find(waiter->procedure)->payload_offset_bytes);
}

static struct flyt_waiter *find_waiter_locked(struct flyt_channel *channel, uint32_t xid)
{
    struct flyt_waiter *waiter = channel->first_waiter;

    while (waiter && waiter->xid != xid)
        waiter = waiter->next;
    return waiter;
}

static void remove_waiter_locked(struct flyt_channel *channel, struct flyt_waiter *waiter)
{
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    else
        channel->last_waiter = waiter->previous;
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        channel->first_waiter = waiter->next;
    if (waiter->sequence != atomic_load(&channel->first_awaited))
        return;
    /* They were entered in the order of their numbers. */
    const struct flyt_waiter *oldest = channel->last_waiter;
    while (oldest && !oldest->sequence)
        oldest = oldest->previous;
    atomic_store(&channel->first_awaited, oldest ? oldest->sequence : UINT64_MAX);
}

/* Marks the waiter as being filled: it stays until it is done. NULL: there is none. */
static struct flyt_waiter *hold_waiter(struct flyt_channel *channel, uint32_t xid)
{
    pthread_mutex_lock(&channel->mutex);
    struct flyt_waiter *waiter = find_waiter_locked(channel, xid);
    channel->busy_waiter = waiter;
    pthread_mutex_unlock(&channel->mutex);
    return waiter;
}

static void finish_waiter(struct flyt_channel *channel, struct flyt_waiter *waiter, int status)
{
    pthread_mutex_lock(&channel->mutex);
    channel->busy_waiter = NULL;
    remove_waiter_locked(channel, waiter);
    waiter->status = status;
    waiter->is_done = true;
    /* After this it may be gone. */
    pthread_cond_signal(&waiter->answered);
    pthread_mutex_unlock(&channel->mutex);
}

/* Progress only grows: a reply may have been overtaken by a notice. */
static void raise_to(_Atomic(uint64_t) *number, uint64_t to)
{
    if (to > atomic_load_explicit(number, memory_order_relaxed))
        atomic_store(number, to);
}

static void note_progress(struct flyt_channel *channel, const flyt_progress *progress)
{
    raise_to(&channel->completed, progress->completed);
    raise_to(&channel->executed, progress->executed);
    raise_to(&channel->received, progress->received);
}

/* What every reply of a table's procedure begins with. */
struct reply_start {
    int result;
    flyt_progress progress;
};

/* Whether the reply to this waiter is no more than that. */
static bool is_start_alone(const struct flyt_waiter *waiter)
{
    const struct flyt_procedure *known = flyt_procedure_find(waiter->procedure);
    return known && known->res_bytes == sizeof(struct reply_start) && waiter->xdr_res == known->xdr_res;
}

/* Decodes a successful reply into the waiter's result. */
static bool fill_result(struct flyt_channel *channel, struct flyt_waiter *waiter,
                        const struct flyt_input_record *record, size_t head_bytes)
{
    struct reply_start start;
    XDR xdrs;

    flyt_xdr_decode_init(&xdrs, record->data + head_bytes, record->bytes - head_bytes, NULL);
    if (waiter->procedure >= FLYT_CHANNEL_TABLE_FIRST && xdr_int(&xdrs, &start.result) &&
        xdr_flyt_progress(&xdrs, &start.progress)) {
        note_progress(channel, &start.progress);
        if (is_start_alone(waiter)) {
            memcpy(waiter->res, &start, sizeof start);
            return !flyt_xdr_left(&xdrs);
        }
    }
    waiter->payload.is_there = record->is_split;
    flyt_xdr_decode_init(&xdrs, record->data + head_bytes, record->bytes - head_bytes,
                         waiter->has_payload ? &waiter->payload : NULL);
    if (waiter->has_payload)
        payload_field(waiter)->value = waiter->payload.place;
    bool is_good = waiter->xdr_res(&xdrs, waiter->res) && !flyt_xdr_left(&xdrs);
    if (waiter->has_payload) {
        struct opaque_field *field = payload_field(waiter);
        /* Without a place the decoder has allocated one; with one it is the caller's. Neither is the result's. */
        if (!waiter->payload.place)
            free(field->value);
        is_good = is_good && (waiter->payload.place || !field->length);
        field->value = NULL;
    }
    return is_good;
}

static int take_reply(struct flyt_channel *channel, const struct flyt_input_record *record, struct flyt_error *err)
{
    struct flyt_reply_head head;

    if (flyt_reply_head_get(record->data, record->bytes, &head))
        return flyt_error_set(err, -EBADMSG, "the server sent a malformed reply");
    struct flyt_waiter *waiter = hold_waiter(channel, head.xid);
    bool is_success = head.is_accepted && head.status == SUCCESS;
    if (!waiter && is_success)
        return flyt_error_set(err, -EBADMSG, "the server answered a call that was not made");
    if (waiter && head.is_accepted && head.status == PROC_UNAVAIL) {
        finish_waiter(channel, waiter, FLYT_CHANNEL_UNSUPPORTED);
        return 0;
    }
    if (!is_success)
        return flyt_error_set(err, -EBADMSG, "the server refused a call: %s", flyt_reply_failure(&head));
    const char *name = flyt_procedure_find(waiter->procedure)->name;
    if (!fill_result(channel, waiter, record, head.bytes))
        return flyt_error_set(err, -EBADMSG, "the server's reply to %s could not be decoded", name);
    atomic_fetch_add_explicit(&channel->reply_count, 1, memory_order_relaxed);
    finish_waiter(channel, waiter, FLYT_CHANNEL_OK);
    return 0;
}

/* ---- what the server calls ---- */

/* After the handler: pairs with the look at it in channel_progress.c, behind which the error must be found. */
static void count_error(struct flyt_channel *channel)
{
    atomic_fetch_add_explicit(&channel->error_count, 1, memory_order_release);
}

/* 0, or what flyt_send_gate_stop, flyt_send_gate_move and what takes a grant say. */
static int hand_over(struct flyt_channel *channel, unsigned procedure, void *args, struct flyt_error *err)
{
    const struct flyt_channel_handlers *handlers = channel->handlers;

    switch (procedure) {
    case FLYT_BACK_PULL:
        handlers->pull(channel->user, ((flyt_back_pull *)args)->transfer_id);
        break;
    case FLYT_BACK_HOST_FUNCTION: {
        const flyt_back_host_function *call = args;
        handlers->host_function(channel->user, call->function_id, call->status);
        break;
    }
    case FLYT_BACK_OUTPUT: {
        const flyt_back_output *call = args;
        handlers->output(channel->user, call->is_error, call->text.text_val ? call->text.text_val : "",
                         call->text.text_len);
        break;
    }
    case FLYT_BACK_PROGRESS:
        note_progress(channel, args);
        break;
    case FLYT_BACK_CALL_ERROR: {
        const flyt_back_call_error *call = args;
        handlers->call_error(channel->user, call->sequence, call->thread, call->result);
        count_error(channel);
        break;
    }
    case FLYT_BACK_FATAL: {
        const flyt_back_fatal *call = args;
        atomic_store(&channel->had_fatal, true);
        handlers->fatal(channel->user, call->result, call->cause);
        count_error(channel);
        break;
    }
    case FLYT_BACK_CREDIT: {
        const flyt_back_credit *call = args;
        handlers->credit(channel->user, call->stream_id, call->executed_calls);
        break;
    }
    case FLYT_BACK_TRANSFER_FAILED: {
        const flyt_back_transfer_failed *call = args;
        handlers->transfer_failed(channel->user, call->transfer_id, call->result);
        break;
    }
    case FLYT_BACK_SEND_ALL:
        flyt_channel_send_all(channel, ((flyt_back_send_all *)args)->number);
        break;
    case FLYT_BACK_STOP:
        return flyt_send_gate_stop(channel, ((flyt_back_stop *)args)->number, err);
    case FLYT_BACK_GO_ON:
        flyt_send_gate_go_on(channel, ((flyt_back_stop *)args)->number);
        break;
    case FLYT_BACK_MOVED:
        return flyt_send_gate_move(channel, args, err);
    case FLYT_BACK_GRANT:
        return channel->data.ops->grant(channel, args, err);
    case FLYT_BACK_OVER_BUDGET: {
        const flyt_back_over_budget *call = args;
        if (handlers->over_budget)
            handlers->over_budget(channel->user, call->device, call->bytes);
        break;
    }
    case FLYT_BACK_CHUNK: { /* one that could not be cut */
        const flyt_chunk *chunk = args;
        void *place =
            handlers->chunk_place(channel->user, chunk->transfer_id, chunk->offset_bytes, chunk->data.data_len);
        if (!place)
            break;
        if (chunk->data.data_len)
            memcpy(place, chunk->data.data_val, chunk->data.data_len);
        handlers->chunk_done(channel->user, chunk->transfer_id, chunk->offset_bytes, chunk->data.data_len);
        break;
    }
    }
    return 0;
}

static xdrproc_t back_args(unsigned procedure)
{
    static const xdrproc_t routines[] = {
        [FLYT_BACK_NULL] = (xdrproc_t)(void *)xdr_void,
        [FLYT_BACK_CHUNK] = (xdrproc_t)xdr_flyt_chunk,
        [FLYT_BACK_PULL] = (xdrproc_t)xdr_flyt_back_pull,
        [FLYT_BACK_HOST_FUNCTION] = (xdrproc_t)xdr_flyt_back_host_function,
        [FLYT_BACK_OUTPUT] = (xdrproc_t)xdr_flyt_back_output,
        [FLYT_BACK_PROGRESS] = (xdrproc_t)xdr_flyt_progress,
        [FLYT_BACK_CALL_ERROR] = (xdrproc_t)xdr_flyt_back_call_error,
        [FLYT_BACK_FATAL] = (xdrproc_t)xdr_flyt_back_fatal,
        [FLYT_BACK_CREDIT] = (xdrproc_t)xdr_flyt_back_credit,
        [FLYT_BACK_TRANSFER_FAILED] = (xdrproc_t)xdr_flyt_back_transfer_failed,
        [FLYT_BACK_SEND_ALL] = (xdrproc_t)xdr_flyt_back_send_all,
        [FLYT_BACK_STOP] = (xdrproc_t)xdr_flyt_back_stop,
        [FLYT_BACK_GO_ON] = (xdrproc_t)xdr_flyt_back_stop,
        [FLYT_BACK_MOVED] = (xdrproc_t)xdr_flyt_back_moved,
        [FLYT_BACK_GRANT] = (xdrproc_t)xdr_flyt_back_grant,
        [FLYT_BACK_OVER_BUDGET] = (xdrproc_t)xdr_flyt_back_over_budget,
    };

    return procedure < sizeof routines / sizeof routines[0] ? routines[procedure] : NULL;
}

static int take_call(struct flyt_channel *channel, const struct flyt_input_record *record, struct flyt_error *err)
{
    union {
        flyt_chunk chunk;
        flyt_back_pull pull;
        flyt_back_host_function host_function;
        flyt_back_output output;
        flyt_progress progress;
        flyt_back_call_error call_error;
        flyt_back_fatal fatal;
        flyt_back_credit credit;
        flyt_back_transfer_failed transfer_failed;
        flyt_back_send_all send_all;
        flyt_back_stop stop;
        flyt_back_moved moved;
        flyt_back_grant grant;
    } args;
    struct flyt_call_head head;
    XDR xdrs;

    if (flyt_call_head_get(record->data, record->bytes, &head) || head.program != FLYT_BACK_PROGRAM ||
        head.version != FLYT_BACK_VERSION)
        return flyt_error_set(err, -EBADMSG, "the server sent a malformed call");
    xdrproc_t xdr_args = back_args(head.procedure);
    if (!xdr_args)
        return flyt_error_set(err, -EBADMSG, "the server called procedure %u, which this client lacks", head.procedure);
    memset(&args, 0, sizeof args);
    flyt_xdr_decode_init(&xdrs, record->data + head.bytes, record->bytes - head.bytes, NULL);
    bool is_good = xdr_args(&xdrs, &args) && !flyt_xdr_left(&xdrs);
    int status = is_good ? hand_over(channel, head.procedure, &args, err) : 0;
    xdr_free(xdr_args, &args);
    return is_good ? status
                   : flyt_error_set(err, -EBADMSG, "the server's call %u could not be decoded", head.procedure);
}

/* ---- records ---- */

/* How a reply to this waiter is cut: where its payload's length stands, if that is the same in every reply. */
static bool find_payload(const struct flyt_waiter *waiter, const unsigned char *head, size_t head_bytes,
                         size_t reply_head_bytes, size_t record_bytes, struct flyt_input_split *ret_split)
{
    size_t offset = flyt_procedure_find(waiter->procedure)->payload_wire_offset_bytes;
    size_t cut = reply_head_bytes + offset + sizeof(uint32_t);
    uint32_t length;

    if (!waiter->has_payload || !waiter->payload.place || !offset || head_bytes < cut)
        return false;
    memcpy(&length, head + cut - sizeof length, sizeof length);
    length = ntohl(length);
    if (length > waiter->payload.bytes_max || record_bytes != cut + (((size_t)length + 3) & ~(size_t)3))
        return false; /* the decoder will say what is wrong */
    *ret_split = (struct flyt_input_split){.head_bytes = cut, .payload_bytes = length, .place = waiter->payload.place};
    return true;
}

/* Cuts a reply whose payload somebody waits for; that waiter is held until the reply is complete. */
static bool split_reply(struct flyt_channel *channel, const unsigned char *head, size_t head_bytes, size_t record_bytes,
                        struct flyt_input_split *ret_split)
{
    struct flyt_reply_head reply;

    if (head_bytes == record_bytes) /* all of it is there: it is decoded as a whole */
        return false;
    if (flyt_reply_head_get(head, head_bytes, &reply) || !reply.is_accepted || reply.status != SUCCESS)
        return false;
    pthread_mutex_lock(&channel->mutex);
    struct flyt_waiter *waiter = find_waiter_locked(channel, reply.xid);
    bool is_cut = waiter && find_payload(waiter, head, head_bytes, reply.bytes, record_bytes, ret_split);
    if (is_cut)
        channel->busy_waiter = waiter;
    pthread_mutex_unlock(&channel->mutex);
    return is_cut;
}

bool flyt_channel_split(void *user, const unsigned char *head, size_t head_bytes, size_t record_bytes,
                        struct flyt_input_split *ret_split)
{
    struct flyt_channel *channel = user;
    struct flyt_chunk_head *chunk = &channel->chunk;

    if (!flyt_message_is_call(head, head_bytes))
        return split_reply(channel, head, head_bytes, record_bytes, ret_split);
    if (!flyt_chunk_head_get(head, head_bytes, record_bytes, FLYT_BACK_PROGRAM, FLYT_BACK_CHUNK, chunk))
        return false;
    *ret_split = (struct flyt_input_split){
        .head_bytes = FLYT_CHUNK_HEAD_BYTES,
        .payload_bytes = chunk->bytes,
        .place = channel->handlers->chunk_place(channel->user, chunk->transfer_id, chunk->offset_bytes, chunk->bytes),
    };
    return true;
}

static int take_record(struct flyt_channel *channel, const struct flyt_input_record *record, struct flyt_error *err)
{
    const struct flyt_chunk_head *chunk = &channel->chunk;

    if (!flyt_message_is_call(record->data, record->bytes))
        return take_reply(channel, record, err);
    if (!record->is_split)
        return take_call(channel, record, err);
    if (record->split.place)
        channel->handlers->chunk_done(channel->user, chunk->transfer_id, chunk->offset_bytes, chunk->bytes);
    return 0;
}

/* ---- reading ---- */

/* The server has read all that was written: what has been waiting for that goes out. Also what the socket refused. */
static void write_waiting(struct flyt_channel *channel)
{
    if (!atomic_load(&channel->output.is_waiting))
        return;
    if (atomic_load(&channel->received) < atomic_load(&channel->written_sequence) &&
        !atomic_load(&channel->output.is_stuck))
        return;
    flyt_output_lock(&channel->output);
    flyt_channel_write_locked(channel, false);
    flyt_output_unlock(&channel->output);
}

static __thread enum flyt_channel_waits waits_as;

void flyt_channel_wait_as(enum flyt_channel_waits how)
{
    waits_as = how;
}

/* -EAGAIN: the socket was full, and what it did not take is to be written meanwhile. */
static int fill_spinning(struct flyt_channel *channel)
{
    int status = -EAGAIN;
    while (status == -EAGAIN && !atomic_load(&channel->output.is_stuck)) {
        status = flyt_input_fill(&channel->input, false);
        if (waits_as == FLYT_CHANNEL_YIELDS)
            sched_yield();
        else
            __builtin_ia32_pause();
    }
    return status;
}

/* Looks for some time: through rings as long as the last wait took, between two looks for others to run. -EAGAIN:
 * nothing came. */
static int fill_looking(struct flyt_channel *channel, uint64_t begin_ns)
{
    const bool reads_memory = channel->endpoint->ops->reads_memory;
    const unsigned pauses = reads_memory ? 1 : PAUSES_BETWEEN_SYSTEM_CALLS;
    const uint64_t spin_ns =
        reads_memory && channel->last_wait_ns < LOOK_MAX_NS ? SPIN_NS + 2 * channel->last_wait_ns : SPIN_NS;
    uint64_t waited_ns = 0;
    do {
        int status = flyt_input_fill(&channel->input, false);
        if (status != -EAGAIN)
            return status;
        if (waited_ns > SPIN_NS)
            sched_yield();
        for (unsigned i = 0; i < pauses; i++) /* of 0.07 µs each */
            __builtin_ia32_pause();
        waited_ns = flyt_clock_ns() - begin_ns;
    } while (waited_ns < spin_ns && !atomic_load(&channel->output.is_stuck));
    return -EAGAIN;
}

static int fill_sleeping(struct flyt_channel *channel)
{
    while (atomic_load(&channel->output.is_stuck)) {
        int found = flyt_endpoint_wait(channel->endpoint, FLYT_ENDPOINT_IN | FLYT_ENDPOINT_OUT, -1, -1);
        if (found > 0 && found & FLYT_ENDPOINT_IN)
            break;
        write_waiting(channel);
    }
    return flyt_input_fill(&channel->input, true);
}

/* Waits until something can be read, as the thread has been told or in the cheapest way; goes on writing meanwhile if
 * the socket was full. */
static int fill_waiting(struct flyt_channel *channel)
{
    int status = -EAGAIN;
    const uint64_t begin_ns = flyt_clock_ns();
    if (waits_as == FLYT_CHANNEL_SPINS || waits_as == FLYT_CHANNEL_YIELDS)
        status = fill_spinning(channel);
    else if (channel->may_spin && waits_as != FLYT_CHANNEL_BLOCKS)
        status = fill_looking(channel, begin_ns);
    if (status == -EAGAIN)
        status = fill_sleeping(channel);
    channel->last_wait_ns = flyt_clock_ns() - begin_ns;
    return status;
}

/*
 * The reader's work: takes records until `waiter` has its reply (NULL: until nothing more is there). It leaves no
 * complete record in memory, where no poll would find it. 0, or a negative errno with *err; *ret_is_end then says
 * whether the connection has ended, rather than that somebody is at fault.
 */
static int read_records(struct flyt_channel *channel, const struct flyt_waiter *waiter, bool *ret_is_end,
                        struct flyt_error *err)
{
    struct flyt_input_record record;

    *ret_is_end = false;

    for (;;) {
        int status = flyt_input_next(&channel->input, &record);
        if (status > 0) {
            status = take_record(channel, &record, err);
            *ret_is_end = status == -ESHUTDOWN;
            if (status)
                return status;
            continue;
        }
        if (status < 0)
            return flyt_error_set(err, status, "the server sent a malformed message");
        write_waiting(channel);
        if (waiter && waiter->is_done)
            return 0;
        status = waiter ? fill_waiting(channel) : flyt_input_fill(&channel->input, false);
        if (status == -EAGAIN)
            return 0;
        *ret_is_end = status < 0 && status != -ENOMEM;
        if (status == -EPIPE)
            return flyt_error_set(err, status, "the server closed the connection");
        if (status < 0)
            return flyt_error_set(err, status, "%s", strerror(-status));
    }
}

static void enter_reader_locked(struct flyt_channel *channel)
{
    channel->has_reader = true;
    atomic_store_explicit(&channel->reader, pthread_self(), memory_order_relaxed);
}

/* Passes the role on: to a caller who waits, else to the background thread. */
static void leave_reader_locked(struct flyt_channel *channel)
{
    channel->has_reader = false;
    atomic_store_explicit(&channel->reader, 0, memory_order_relaxed);
    channel->recent_calls++;
    if (channel->first_waiter) {
        pthread_cond_signal(&channel->first_waiter->answered);
    } else if (channel->background_is_aside) {
        atomic_store(&channel->is_attended, false);
        if (!channel->background_is_timed)
            flyt_channel_kick(channel);
    }
    pthread_cond_broadcast(&channel->reader_left);
}

/* Reads as the reader. The mutex is held before and after, and free meanwhile. */
static void read_locked(struct flyt_channel *channel, const struct flyt_waiter *waiter)
{
    struct flyt_error err;
    bool is_end;

    enter_reader_locked(channel);
    pthread_mutex_unlock(&channel->mutex);
    int status = read_records(channel, waiter, &is_end, &err);
    if (status && is_end)
        flyt_channel_break(channel, err.text);
    else if (status)
        flyt_channel_lose(channel, err.text);
    pthread_mutex_lock(&channel->mutex);
    if (status) {
        channel->is_read_out = true;
        channel->is_torn = status != -ESHUTDOWN && flyt_input_has_part(&channel->input);
    }
    if (status && channel->busy_waiter) { /* nobody will fill it any more */
        pthread_cond_signal(&channel->busy_waiter->answered);
        channel->busy_waiter = NULL;
    }
    leave_reader_locked(channel);
}

int flyt_channel_wait(struct flyt_channel *channel, struct flyt_waiter *waiter)
{
    pthread_mutex_lock(&channel->mutex);
    while (!waiter->is_done) {
        if (flyt_channel_is_lost(channel) && channel->busy_waiter != waiter) {
            remove_waiter_locked(channel, waiter);
            waiter->status = FLYT_CHANNEL_LOST;
            break;
        }
        if (!channel->has_reader && !channel->is_read_out)
            read_locked(channel, waiter);
        else
            pthread_cond_wait(&waiter->answered, &channel->mutex);
    }
    pthread_mutex_unlock(&channel->mutex);
    return waiter->status;
}

/* ---- the background thread ---- */

/* What it does next: look after the socket or stand aside, tick or sleep. */
struct watch {
    bool is_aside, is_timed;
    bool was_kicked, had_waiting;
    uint64_t attentive_until_ns;
    uint64_t checked_ns; /* when it last looked after the server */
    struct flyt_vigil server;
};

/* Decides under the mutex. False: the channel is at its end. */
static bool decide(struct flyt_channel *channel, struct watch *watch)
{
    uint64_t now_ns = flyt_clock_ns();

    pthread_mutex_lock(&channel->mutex);
    bool is_recent = channel->recent_calls > 0;
    channel->recent_calls = 0;
    watch->had_waiting = atomic_load(&channel->output.is_waiting);
    if (is_recent || watch->was_kicked || watch->had_waiting)
        watch->attentive_until_ns = now_ns + ATTENTIVE_NS;
    watch->is_aside = channel->has_reader || (is_recent && !watch->was_kicked);
    watch->is_timed = now_ns < watch->attentive_until_ns;
    channel->background_is_aside = watch->is_aside;
    channel->background_is_timed = watch->is_timed;
    atomic_store(&channel->is_attended, watch->is_timed && (!watch->is_aside || channel->has_reader));
    bool goes_on = !channel->is_closing && !flyt_channel_is_lost(channel);
    pthread_mutex_unlock(&channel->mutex);
    /* A sender that saw is_attended still true has made is_waiting true before: see it now. */
    if (!watch->is_timed && atomic_load(&channel->output.is_waiting))
        watch->is_timed = watch->had_waiting = true;
    return goes_on;
}

void flyt_channel_read(struct flyt_channel *channel)
{
    pthread_mutex_lock(&channel->mutex);
    if (!channel->has_reader && !channel->is_read_out && !flyt_channel_is_lost(channel)) {
        read_locked(channel, NULL);
        channel->recent_calls--; /* this was no caller */
    }
    pthread_mutex_unlock(&channel->mutex);
}

/* A server that has vanished while it owes an answer to what was sent: nobody else would notice (listen.h). */
static void check_server(struct flyt_channel *channel, struct watch *watch)
{
    uint64_t now_ns = flyt_clock_ns();

    if (now_ns - watch->checked_ns < FLYT_PEER_CHECK_MS * UINT64_C(1000000))
        return;
    watch->checked_ns = now_ns;
    if (!flyt_endpoint_is_alive(channel->endpoint, &watch->server))
        flyt_channel_lose(channel, "the server has not answered for a minute");
}

static void watch_once(struct flyt_channel *channel, struct watch *watch)
{
    const int64_t timeout_ms = watch->is_timed ? TICK_MS : FLYT_PEER_CHECK_MS;
    unsigned events = (watch->is_aside ? 0 : FLYT_ENDPOINT_IN);
    eventfd_t kicks;

    events |= atomic_load(&channel->output.is_stuck) ? FLYT_ENDPOINT_OUT : 0;
    int found = flyt_endpoint_wait(channel->endpoint, events, channel->wake_fd, timeout_ms * 1000000);
    watch->was_kicked = found > 0 && found & FLYT_ENDPOINT_WOKEN;
    if (watch->was_kicked)
        eventfd_read(channel->wake_fd, &kicks);
    if (found > 0 && found & FLYT_ENDPOINT_IN)
        flyt_channel_read(channel);
    /* A full tick in the buffer is long enough, whatever the server does. */
    bool is_overdue = !found && watch->had_waiting;
    if (atomic_load(&channel->output.is_waiting) && (is_overdue || (found > 0 && found & FLYT_ENDPOINT_OUT))) {
        flyt_output_lock(&channel->output);
        flyt_channel_write_locked(channel, false);
        flyt_output_unlock(&channel->output);
    }
}

void *flyt_channel_background(void *argument)
{
    struct flyt_channel *channel = argument;
    struct watch watch = {0};

    while (decide(channel, &watch)) {
        if (flyt_channel_is_away(channel)) {
            channel->resume(channel);
            watch = (struct watch){.was_kicked = true};
            continue;
        }
        flyt_channel_send_all_late(channel);
        flyt_send_gate_answer(channel);
        watch_once(channel, &watch);
        check_server(channel, &watch);
    }
    /* Nobody may be in a handler, or in the program's memory, when `lost` tells that it is over. */
    pthread_mutex_lock(&channel->mutex);
    while (channel->has_reader)
        pthread_cond_wait(&channel->reader_left, &channel->mutex);
    bool is_closing = channel->is_closing;
    pthread_mutex_unlock(&channel->mutex);
    if (is_closing)
        return NULL;
    channel->data.ops->shutdown(channel); /* who has noticed the loss may not have come to that yet */
    channel->data.ops->join(channel);
    channel->handlers->lost(channel->user, channel->lost_cause);
    return NULL;
}
