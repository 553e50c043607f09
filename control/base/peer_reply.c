/* The calls that a peer serves: who may make which, decoding, answers, refusals (RFC 5531, section 9). */
#include "control/base/peer_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/message.h"
#include "rpc/transport/xdr_buffer.h"

enum { RPC_AUTH_TLS = 7 }; /* the flavour that asks for TLS, RFC 9289 */

/* ---- answers that are all head ---- */

static void reply_accepted(struct flyt_peer *peer, uint32_t xid, enum accept_stat status)
{
    const uint32_t words[] = {xid, REPLY, MSG_ACCEPTED, AUTH_NONE, 0, status};

    flyt_peer_queue_words(peer, words, sizeof words / sizeof words[0]);
}

static void reply_mismatch(struct flyt_peer *peer, uint32_t xid, uint32_t version)
{
    const uint32_t words[] = {xid, REPLY, MSG_ACCEPTED, AUTH_NONE, 0, PROG_MISMATCH, version, version};

    flyt_peer_queue_words(peer, words, sizeof words / sizeof words[0]);
}

static void reply_rpc_mismatch(struct flyt_peer *peer, uint32_t xid)
{
    const uint32_t words[] = {xid, REPLY, MSG_DENIED, RPC_MISMATCH, RPC_MSG_VERSION, RPC_MSG_VERSION};

    flyt_peer_queue_words(peer, words, sizeof words / sizeof words[0]);
}

static void reply_denied(struct flyt_peer *peer, uint32_t xid, enum auth_stat why)
{
    const uint32_t words[] = {xid, REPLY, MSG_DENIED, AUTH_ERROR, why};

    flyt_peer_queue_words(peer, words, sizeof words / sizeof words[0]);
}

/* RFC 9289, section 4.1: the verifier says STARTTLS, and TLS begins behind this record. */
static void reply_starttls(struct flyt_peer *peer, uint32_t xid)
{
    const uint32_t words[] = {xid, REPLY,      MSG_ACCEPTED, AUTH_NONE,
                              8,   0x53544152, 0x54544c53,   SUCCESS}; /* "STAR" "TTLS" */

    if (peer->input.begin != peer->input.end) /* what came with the question in clear must not be taken for TLS's */
        flyt_peer_fail(peer, -EPROTO, "it sent more before TLS began");
    else if (flyt_peer_queue_words(peer, words, sizeof words / sizeof words[0]))
        peer->phase = FLYT_PEER_UPGRADING;
}

/* ---- calls ---- */

static const struct flyt_procedure *procedure_find(const struct flyt_program *program, uint32_t number)
{
    for (const struct flyt_procedure *procedure = program->procedures; procedure->serve; procedure++) {
        if (procedure->number == number)
            return procedure;
    }
    return NULL;
}

static void refuse_role(struct flyt_peer *peer, uint32_t xid, const char *procedure)
{
    if (!peer->refused_count++)
        flyt_warn("call refused: procedure=%s address=%s name=%s role=0x%x: not its role; further ones are not logged",
                  procedure, peer->identity.address, peer->identity.name, peer->identity.role);
    reply_denied(peer, xid, AUTH_TOOWEAK);
}

static void call_free(struct flyt_call *call)
{
    if (call->args) {
        xdr_free(call->procedure->xdr_args, call->args);
        free(call->args);
    }
    free(call);
}

/* Decodes into zeroed memory. 0, -ENOMEM or -EBADMSG. */
static int decode_args(struct flyt_call *call, const unsigned char *data, size_t bytes)
{
    XDR xdrs;

    if (!call->procedure->xdr_args)
        return bytes ? -EBADMSG : 0;
    call->args = calloc(1, call->procedure->args_bytes);
    if (!call->args)
        return -ENOMEM;
    flyt_xdr_decode_init(&xdrs, data, bytes, NULL);
    return call->procedure->xdr_args(&xdrs, call->args) && !flyt_xdr_left(&xdrs) ? 0 : -EBADMSG;
}

static void serve(struct flyt_peer *peer, const struct flyt_procedure *procedure, uint32_t xid,
                  const unsigned char *data, size_t bytes)
{
    struct flyt_call *call = calloc(1, sizeof *call);
    int status = call ? 0 : -ENOMEM;

    if (call) {
        call->procedure = procedure;
        status = decode_args(call, data, bytes);
    }
    if (status == -EBADMSG) {
        call_free(call);
        reply_accepted(peer, xid, GARBAGE_ARGS);
        flyt_peer_fail(peer, -EBADMSG, "the arguments of its call %s cannot be decoded", procedure->name);
        peer->is_last_sent = true;
        return;
    }
    if (status) {
        if (call)
            call_free(call);
        reply_accepted(peer, xid, SYSTEM_ERR);
        return;
    }
    call->peer = peer;
    call->xid = xid;
    call->identity = peer->identity;
    call->started_us = flyt_peer_now_us();
    TAILQ_INSERT_TAIL(&peer->serving, call, link);
    peer->serving_count++;
    procedure->serve(call, call->args);
}

/* Procedure 0 of whatever is served; with the flavour of RFC 9289 it asks for TLS. */
static void take_null_call(struct flyt_peer *peer, const struct flyt_call_head *head)
{
    if (head->credential_flavor != RPC_AUTH_TLS)
        reply_accepted(peer, head->xid, SUCCESS);
    else if (peer->phase == FLYT_PEER_GUARDED)
        reply_starttls(peer, head->xid);
    else
        reply_denied(peer, head->xid, AUTH_BADCRED);
}

void flyt_peer_take_call(struct flyt_peer *peer, const unsigned char *record, size_t bytes)
{
    const struct flyt_program *program = peer->config.serves;
    struct flyt_call_head head;

    if (flyt_call_head_get(record, bytes, &head)) {
        flyt_peer_fail(peer, -EBADMSG, "it sent a message that is no RPC");
        return;
    }
    if (head.rpc_version != RPC_MSG_VERSION) {
        reply_rpc_mismatch(peer, head.xid);
        return;
    }
    if (head.procedure && peer->phase == FLYT_PEER_GUARDED) {
        refuse_role(peer, head.xid, "in clear");
        return;
    }
    if (!program || head.program != program->program) {
        reply_accepted(peer, head.xid, PROG_UNAVAIL);
        return;
    }
    if (head.version != program->version) {
        reply_mismatch(peer, head.xid, program->version);
        return;
    }
    if (!head.procedure) {
        take_null_call(peer, &head);
        return;
    }
    const struct flyt_procedure *procedure = procedure_find(program, head.procedure);
    if (!procedure)
        reply_accepted(peer, head.xid, PROC_UNAVAIL);
    else if (head.credential_flavor == RPC_AUTH_TLS)
        reply_denied(peer, head.xid, AUTH_BADCRED);
    else if (!(procedure->roles & peer->identity.role))
        refuse_role(peer, head.xid, procedure->name);
    else
        serve(peer, procedure, head.xid, record + head.bytes, bytes - head.bytes);
}

/* ---- ends of served calls ---- */

struct flyt_peer *flyt_call_peer(const struct flyt_call *call)
{
    return call->peer;
}

const struct flyt_identity *flyt_call_identity(const struct flyt_call *call)
{
    return &call->identity;
}

static void call_end(struct flyt_call *call, bool has_failed)
{
    struct flyt_peer *peer = call->peer;

    if (peer) {
        if (peer->config.measured)
            peer->config.measured(call->procedure->name, true, flyt_peer_now_us() - call->started_us, has_failed,
                                  peer->config.user);
        TAILQ_REMOVE(&peer->serving, call, link);
        if (peer->serving_count-- == FLYT_PEER_SERVING_MAX)
            flyt_peer_wake(peer);
    }
    call_free(call);
}

static void reply(struct flyt_call *call, const void *result, int fd)
{
    const struct flyt_record_head head = {.is_reply = true, .xid = call->xid};
    struct flyt_peer *peer = call->peer;
    struct flyt_outgoing *record;

    if (!peer) {
        flyt_close(fd);
        call_end(call, false);
        return;
    }
    int status = flyt_peer_encode(peer, &head, call->procedure->xdr_res, result, &record);
    if (status) {
        flyt_fail("answer lost: procedure=%s address=%s: %s", call->procedure->name, peer->identity.address,
                  status == -EINVAL ? "a value of it is out of its bounds" : strerror(-status));
        flyt_close(fd);
        flyt_call_fail(call);
        return;
    }
    record->has_fd = fd >= 0;
    record->fd = fd;
    if (!flyt_peer_has_room(peer)) {
        flyt_outgoing_free(record);
        flyt_peer_fail(peer, -ENOBUFS, "it does not read its answers");
        call_end(call, true);
        return;
    }
    flyt_peer_queue(peer, record);
    call_end(call, false);
}

void flyt_call_reply(struct flyt_call *call, const void *result)
{
    reply(call, result, -1);
}

void flyt_call_reply_with(struct flyt_call *call, const void *result, int fd)
{
    reply(call, result, fd);
}

void flyt_call_done(struct flyt_call *call)
{
    call_end(call, false);
}

void flyt_call_fail(struct flyt_call *call)
{
    if (call->peer)
        reply_accepted(call->peer, call->xid, SYSTEM_ERR);
    call_end(call, true);
}
