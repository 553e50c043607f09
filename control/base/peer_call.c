/* The calls that a peer makes: encoded, on the wire or waiting, matched with their replies, ended once. */
#include "control/base/peer_state.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include "rpc/base/log.h"
#include "rpc/transport/message.h"
#include "rpc/transport/xdr_buffer.h"

enum { MARK_BYTES = 4 };

static const uint32_t mark_last = 0x80000000u; /* RFC 5531 section 11 */

/* ---- encoding ---- */

static struct flyt_outgoing *record_from(struct flyt_bytes *bytes)
{
    struct flyt_outgoing *record = calloc(1, sizeof *record);
    uint32_t mark = htonl(mark_last | (uint32_t)(bytes->used - MARK_BYTES));

    if (!record) {
        flyt_bytes_fini(bytes);
        return NULL;
    }
    memcpy(bytes->data, &mark, sizeof mark);
    /* Many may wait for a peer that reads slowly: what they cost is what is counted. */
    unsigned char *data = realloc(bytes->data, bytes->used);
    record->data = data ? data : bytes->data;
    record->bytes = bytes->used;
    return record;
}

static size_t record_bytes_max(const struct flyt_peer *peer)
{
    return peer->config.record_bytes_max ? peer->config.record_bytes_max : FLYT_CONTROL_RECORD_BYTES_MAX;
}

int flyt_peer_encode(const struct flyt_peer *peer, const struct flyt_record_head *head, xdrproc_t xdr, const void *body,
                     struct flyt_outgoing **ret_record)
{
    struct flyt_bytes bytes = {.bytes_max = MARK_BYTES + record_bytes_max(peer)};
    XDR xdrs;

    if (!flyt_bytes_reserve(&bytes, MARK_BYTES))
        return -ENOMEM;
    bytes.used = MARK_BYTES;
    flyt_xdr_encode_init(&xdrs, &bytes);
    bool is_good = head->is_reply ? flyt_reply_head_put(&xdrs, head->xid)
                                  : flyt_call_head_put(&xdrs, head->xid, head->program, head->version, head->procedure);
    if (!is_good || (xdr && !xdr(&xdrs, body))) {
        flyt_bytes_fini(&bytes);
        return -EINVAL;
    }
    *ret_record = record_from(&bytes);
    return *ret_record ? 0 : -ENOMEM;
}

bool flyt_peer_queue_words(struct flyt_peer *peer, const uint32_t *words, unsigned count)
{
    struct flyt_bytes bytes = {.bytes_max = FLYT_CONTROL_HELLO_BYTES_MAX};
    struct flyt_outgoing *record = NULL;

    if (!flyt_peer_has_room(peer)) {
        flyt_peer_fail(peer, -ENOBUFS, "it does not read its answers");
        return false;
    }
    if (flyt_bytes_reserve(&bytes, MARK_BYTES + 4 * count)) {
        bytes.used = MARK_BYTES + 4 * count;
        for (unsigned i = 0; i < count; i++) {
            uint32_t word = htonl(words[i]);
            memcpy(bytes.data + MARK_BYTES + 4 * i, &word, sizeof word);
        }
        record = record_from(&bytes);
    }
    if (!record) {
        flyt_peer_fail(peer, -ENOMEM, "out of memory");
        return false;
    }
    flyt_peer_queue(peer, record);
    return true;
}

/* ---- made calls ---- */

static int by_xid(const void *one, const void *other)
{
    uint32_t a = ((const struct flyt_made_call *)one)->xid, b = ((const struct flyt_made_call *)other)->xid;

    return a < b ? -1 : a > b;
}

static struct flyt_made_call *call_find(const struct flyt_peer *peer, uint32_t xid)
{
    const struct flyt_made_call key = {.xid = xid};
    void *node = tfind(&key, &peer->made_by_xid, by_xid);

    return node ? *(struct flyt_made_call **)node : NULL;
}

static void call_free(struct flyt_made_call *call)
{
    tdelete(call, &call->peer->made_by_xid, by_xid);
    TAILQ_REMOVE(&call->peer->made, call, link);
    if (call->is_on_wire)
        call->peer->on_wire_count--;
    sd_event_source_disable_unref(call->deadline);
    free(call);
}

/* Tells who has made the call how it ended. The peer may be closed by that. */
static void call_tell(struct flyt_made_call *call, int status, void *result)
{
    struct flyt_peer *peer = call->peer;
    flyt_call_done_fn done = call->done;

    if (!done)
        return;
    call->done = NULL;
    if (peer->config.measured)
        peer->config.measured(flyt_control_procedure_name(call->program, call->procedure), false,
                              flyt_peer_now_us() - call->started_us, status != 0, peer->config.user);
    done(call->user, status, result);
}

/* Takes a call's record out of those that wait. */
static void forget_waiting(struct flyt_peer *peer, const struct flyt_made_call *call)
{
    struct flyt_outgoing *record;

    STAILQ_FOREACH(record, &peer->waiting, link)
    {
        if (record->call == call)
            break;
    }
    if (!record)
        return;
    STAILQ_REMOVE(&peer->waiting, record, flyt_outgoing, link);
    peer->unsent_bytes -= flyt_outgoing_cost(record);
    flyt_outgoing_free(record);
}

static bool may_send(const struct flyt_peer *peer, const struct flyt_outgoing *record)
{
    return !record->call || peer->on_wire_count < FLYT_PEER_SERVING_MAX;
}

static void put_on_wire(struct flyt_peer *peer, struct flyt_outgoing *record)
{
    if (record->call) {
        record->call->is_on_wire = true;
        peer->on_wire_count++;
        record->call = NULL; /* which may end before this is sent */
    }
    flyt_peer_queue(peer, record);
}

void flyt_peer_release_calls(struct flyt_peer *peer)
{
    struct flyt_outgoing *record;

    if (peer->phase != FLYT_PEER_READY)
        return;
    while ((record = STAILQ_FIRST(&peer->waiting)) && may_send(peer, record)) {
        STAILQ_REMOVE_HEAD(&peer->waiting, link);
        peer->unsent_bytes -= flyt_outgoing_cost(record);
        put_on_wire(peer, record);
    }
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_made_call *call = user;
    struct flyt_peer *peer = call->peer;

    peer->ref_count++;
    if (call->is_on_wire) { /* the other end still serves it: it keeps its place until the late reply comes */
        call->deadline = sd_event_source_disable_unref(call->deadline);
        call_tell(call, -ETIMEDOUT, NULL);
    } else {
        struct flyt_made_call ended = *call;
        forget_waiting(peer, call);
        call_free(call);
        call_tell(&ended, -ETIMEDOUT, NULL);
    }
    flyt_peer_unref(peer);
    return 0;
}

static int call_new(struct flyt_peer *peer, uint64_t timeout_ms, struct flyt_made_call **ret_call)
{
    struct flyt_made_call *call = calloc(1, sizeof *call);

    if (!call)
        return -ENOMEM;
    do {
        call->xid = peer->next_xid++;
    } while (call_find(peer, call->xid));
    call->peer = peer;
    call->started_us = flyt_peer_now_us();
    if (timeout_ms && timeout_ms < UINT64_MAX / 1000 / 2 &&
        sd_event_add_time_relative(peer->config.event, &call->deadline, CLOCK_MONOTONIC, timeout_ms * 1000, 1000,
                                   on_deadline, call) < 0) {
        free(call);
        return -ENOMEM;
    }
    if (!tsearch(call, &peer->made_by_xid, by_xid)) {
        sd_event_source_disable_unref(call->deadline);
        free(call);
        return -ENOMEM;
    }
    TAILQ_INSERT_TAIL(&peer->made, call, link);
    *ret_call = call;
    return 0;
}

int flyt_peer_call(struct flyt_peer *peer, uint32_t program, uint32_t version, uint32_t procedure, xdrproc_t xdr_args,
                   const void *args, xdrproc_t xdr_res, size_t result_bytes, uint64_t timeout_ms,
                   flyt_call_done_fn done, void *user)
{
    struct flyt_record_head head = {.program = program, .version = version, .procedure = procedure};
    struct flyt_outgoing *record;
    struct flyt_made_call *call = NULL;

    if (peer->phase >= FLYT_PEER_DRAINING || peer->cause.code)
        return -EPIPE;
    if (!flyt_peer_has_room(peer))
        return -ENOBUFS;
    if (done) {
        int status = call_new(peer, timeout_ms, &call);
        if (status)
            return status;
        call->program = program;
        call->procedure = procedure;
        call->xdr_res = xdr_res;
        call->result_bytes = result_bytes;
        call->user = user;
        call->done = done;
        head.xid = call->xid;
    } else {
        head.xid = peer->next_xid++;
    }
    int status = flyt_peer_encode(peer, &head, xdr_args, args, &record);
    if (status) {
        if (call)
            call_free(call);
        return status;
    }
    record->call = call;
    /* Calls keep their order: none passes one that waits. */
    if (peer->phase == FLYT_PEER_READY && STAILQ_EMPTY(&peer->waiting) && may_send(peer, record)) {
        put_on_wire(peer, record);
    } else {
        STAILQ_INSERT_TAIL(&peer->waiting, record, link);
        peer->unsent_bytes += flyt_outgoing_cost(record);
    }
    return 0;
}

void flyt_peer_end_calls(struct flyt_peer *peer, int status)
{
    struct flyt_made_call *call;

    while ((call = TAILQ_FIRST(&peer->made))) {
        struct flyt_made_call ended = *call;
        forget_waiting(peer, call);
        call_free(call);
        call_tell(&ended, status, NULL);
    }
}

/* ---- replies ---- */

static int status_of(const struct flyt_reply_head *head)
{
    bool is_unknown = head->status == PROC_UNAVAIL || head->status == PROG_UNAVAIL || head->status == PROG_MISMATCH;

    if (head->is_accepted)
        return head->status == SUCCESS ? 0 : is_unknown ? -ENOSYS : -EPROTO;
    return head->status == AUTH_ERROR ? -EACCES : -EPROTO;
}

/* Decodes a result into zeroed memory of its type. 0, -ENOMEM or -EBADMSG: then *ret_result is NULL. */
static int decode_result(const struct flyt_made_call *call, const unsigned char *data, size_t bytes, void **ret_result)
{
    XDR xdrs;

    *ret_result = NULL;
    if (!call->xdr_res)
        return bytes ? -EBADMSG : 0;
    void *result = calloc(1, call->result_bytes);
    if (!result)
        return -ENOMEM;
    flyt_xdr_decode_init(&xdrs, data, bytes, NULL);
    if (!call->xdr_res(&xdrs, result) || flyt_xdr_left(&xdrs)) {
        xdr_free(call->xdr_res, result); /* rpcgen's routines leave what they had allocated */
        free(result);
        return -EBADMSG;
    }
    *ret_result = result;
    return 0;
}

void flyt_peer_take_reply(struct flyt_peer *peer, const unsigned char *record, size_t bytes)
{
    struct flyt_reply_head head;
    void *result = NULL;

    if (flyt_reply_head_get(record, bytes, &head)) {
        flyt_peer_fail(peer, -EBADMSG, "it sent a message that is no RPC");
        return;
    }
    struct flyt_made_call *call = call_find(peer, head.xid);
    if (!call || !call->is_on_wire) /* the answer to a one-way call that was refused, or to our null call */
        return;
    int status = status_of(&head);
    if (!status && call->done)
        status = decode_result(call, record + head.bytes, bytes - head.bytes, &result);
    if (status && call->done)
        flyt_debug("call failed: procedure=%s address=%s: %s",
                   flyt_control_procedure_name(call->program, call->procedure), peer->identity.address,
                   status == -EBADMSG ? "bad result" : flyt_reply_failure(&head));
    if (status == -EBADMSG)
        flyt_peer_fail(peer, -EBADMSG, "its answer to %s cannot be decoded",
                       flyt_control_procedure_name(call->program, call->procedure));
    struct flyt_made_call ended = *call;
    call_free(call);
    flyt_peer_release_calls(peer);
    call_tell(&ended, status, result);
    if (result) {
        xdr_free(ended.xdr_res, result);
        free(result);
    }
}
