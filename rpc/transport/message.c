#include "rpc/transport/message.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <rpc/rpc.h>
#include "rpc/proto/limits.h"

enum { CHUNK_VERSION = 1 };

/* Heads as they lie in a record, at any address: big-endian words. */
struct auth_wire {
    uint32_t flavor, bytes; /* and so many bytes, padded to whole words */
} __attribute__((packed));

struct call_wire {
    uint32_t xid, direction, rpc_version;
    uint32_t program, version, procedure;  /* of version 2 from here on */
    struct auth_wire credential, verifier; /* without bytes; where the credential has some, the verifier lies behind */
} __attribute__((packed));
_Static_assert(sizeof(struct call_wire) == FLYT_CALL_HEAD_BYTES, "RFC 5531, section 9");

struct reply_wire {
    uint32_t xid, direction, reply_status;
    struct auth_wire verifier; /* of an accepted one */
    uint32_t accept_status;
} __attribute__((packed));
_Static_assert(sizeof(struct reply_wire) == FLYT_REPLY_HEAD_BYTES, "RFC 5531, section 9");

struct chunk_wire {
    struct call_wire call;
    struct chunk_args_wire {
        uint64_t transfer_id, offset_bytes;
        uint32_t bytes;
    } __attribute__((packed)) args;
} __attribute__((packed));
_Static_assert(sizeof(struct chunk_wire) == FLYT_CHUNK_HEAD_BYTES, "a call with the arguments of a chunk");

bool flyt_call_head_put(XDR *xdrs, uint32_t xid, uint32_t program, uint32_t version, uint32_t procedure)
{
    struct call_wire *wire = (void *)XDR_INLINE(xdrs, sizeof *wire);

    if (!wire)
        return false;
    *wire = (struct call_wire){
        .xid = htobe32(xid),
        .direction = htobe32(CALL),
        .rpc_version = htobe32(RPC_MSG_VERSION),
        .program = htobe32(program),
        .version = htobe32(version),
        .procedure = htobe32(procedure),
        .credential.flavor = htobe32(AUTH_NONE),
        .verifier.flavor = htobe32(AUTH_NONE),
    };
    return true;
}

bool flyt_reply_head_put(XDR *xdrs, uint32_t xid)
{
    struct reply_wire *wire = (void *)XDR_INLINE(xdrs, sizeof *wire);

    if (!wire)
        return false;
    *wire = (struct reply_wire){
        .xid = htobe32(xid),
        .direction = htobe32(REPLY),
        .reply_status = htobe32(MSG_ACCEPTED),
        .verifier.flavor = htobe32(AUTH_NONE),
        .accept_status = htobe32(SUCCESS),
    };
    return true;
}

bool flyt_message_is_call(const unsigned char *record, size_t bytes)
{
    const struct call_wire *wire = (const void *)record;

    return bytes >= offsetof(struct call_wire, rpc_version) && be32toh(wire->direction) == CALL;
}

/* Steps over an opaque_auth at *offset. */
static bool skip_auth(const unsigned char *record, size_t record_bytes, size_t *offset, uint32_t *ret_flavor)
{
    const struct auth_wire *wire = (const void *)(record + *offset);

    if (record_bytes - *offset < sizeof *wire)
        return false;
    uint32_t bytes = be32toh(wire->bytes);
    *offset += sizeof *wire;
    if (bytes > MAX_AUTH_BYTES || record_bytes - *offset < RNDUP(bytes))
        return false;
    *offset += RNDUP(bytes);
    *ret_flavor = be32toh(wire->flavor);
    return true;
}

int flyt_call_head_get(const unsigned char *record, size_t record_bytes, struct flyt_call_head *ret_head)
{
    const struct call_wire *wire = (const void *)record;
    struct flyt_call_head head = {.bytes = offsetof(struct call_wire, credential)};
    uint32_t verifier_flavor;

    if (record_bytes < offsetof(struct call_wire, program) || be32toh(wire->direction) != CALL)
        return -EBADMSG;
    head.xid = be32toh(wire->xid);
    head.rpc_version = be32toh(wire->rpc_version);
    if (head.rpc_version == RPC_MSG_VERSION) {
        if (record_bytes < head.bytes)
            return -EBADMSG;
        head.program = be32toh(wire->program);
        head.version = be32toh(wire->version);
        head.procedure = be32toh(wire->procedure);
        if (!skip_auth(record, record_bytes, &head.bytes, &head.credential_flavor) ||
            !skip_auth(record, record_bytes, &head.bytes, &verifier_flavor))
            return -EBADMSG;
    }
    *ret_head = head;
    return 0;
}

int flyt_reply_head_get(const unsigned char *record, size_t record_bytes, struct flyt_reply_head *ret_head)
{
    const struct reply_wire *wire = (const void *)record;
    struct flyt_reply_head head = {.bytes = offsetof(struct reply_wire, verifier)};
    uint32_t flavor, status;

    if (record_bytes < head.bytes + sizeof status || be32toh(wire->direction) != REPLY)
        return -EBADMSG;
    head.xid = be32toh(wire->xid);
    head.is_accepted = be32toh(wire->reply_status) == MSG_ACCEPTED;
    if (head.is_accepted && !skip_auth(record, record_bytes, &head.bytes, &flavor))
        return -EBADMSG;
    if (record_bytes - head.bytes < sizeof status)
        return -EBADMSG;
    memcpy(&status, record + head.bytes, sizeof status);
    head.status = be32toh(status);
    head.bytes += sizeof status;
    *ret_head = head;
    return 0;
}

const char *flyt_reply_failure(const struct flyt_reply_head *head)
{
    if (!head->is_accepted)
        return head->status == RPC_MISMATCH ? "it speaks another version of RPC" : "it does not accept our credentials";
    switch (head->status) {
    case PROG_UNAVAIL:
        return "it is no Flyt server";
    case PROG_MISMATCH:
        return "it speaks another version of the protocol";
    case PROC_UNAVAIL:
        return "it lacks a procedure";
    case GARBAGE_ARGS:
        return "it could not decode a call";
    default:
        return "it failed to answer";
    }
}

bool flyt_chunk_head_get(const unsigned char *head, size_t head_bytes, size_t record_bytes, uint32_t program,
                         uint32_t procedure, struct flyt_chunk_head *ret_head)
{
    const struct chunk_wire *wire = (const void *)head;
    const struct call_wire *call = &wire->call;

    if (head_bytes < sizeof *wire || be32toh(call->procedure) != procedure || be32toh(call->program) != program)
        return false;
    if (be32toh(call->direction) != CALL || be32toh(call->rpc_version) != RPC_MSG_VERSION ||
        be32toh(call->version) != CHUNK_VERSION || call->credential.bytes || call->verifier.bytes)
        return false;
    uint32_t bytes = be32toh(wire->args.bytes);
    if (bytes > FLYT_CHUNK_BYTES_MAX || record_bytes != sizeof *wire + RNDUP((size_t)bytes))
        return false;
    *ret_head = (struct flyt_chunk_head){
        .transfer_id = be64toh(wire->args.transfer_id),
        .offset_bytes = be64toh(wire->args.offset_bytes),
        .bytes = bytes,
    };
    return true;
}

bool flyt_chunk_head_put(XDR *xdrs, uint32_t program, uint32_t procedure, const struct flyt_chunk_head *head)
{
    struct chunk_args_wire *wire;

    if (!flyt_call_head_put(xdrs, 0, program, CHUNK_VERSION, procedure))
        return false;
    wire = (void *)XDR_INLINE(xdrs, sizeof *wire);
    if (!wire)
        return false;
    *wire = (struct chunk_args_wire){
        .transfer_id = htobe64(head->transfer_id),
        .offset_bytes = htobe64(head->offset_bytes),
        .bytes = htobe32(head->bytes),
    };
    return true;
}
