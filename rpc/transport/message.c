#include "rpc/transport/message.h"

#include <errno.h>
#include <string.h>
#include <rpc/rpc.h>
#include "rpc/proto/limits.h"

enum { CHUNK_VERSION = 1, PADDING_MASK = 3 };

static uint32_t word_at(const unsigned char *record, size_t offset)
{
    uint32_t word;

    memcpy(&word, record + offset, sizeof word);
    return ntohl(word);
}

static uint64_t hyper_at(const unsigned char *record, size_t offset)
{
    return (uint64_t)word_at(record, offset) << 32 | word_at(record, offset + 4);
}

static bool put_words(XDR *xdrs, const uint32_t *words, unsigned count)
{
    int32_t *place = XDR_INLINE(xdrs, (u_int)(4 * count));

    for (unsigned i = 0; place && i < count; i++)
        place[i] = (int32_t)htonl(words[i]);
    return place;
}

bool flyt_call_head_put(XDR *xdrs, uint32_t xid, uint32_t program, uint32_t version, uint32_t procedure)
{
    const uint32_t words[FLYT_CALL_HEAD_BYTES / 4] = {xid,       CALL, RPC_MSG_VERSION, program, version, procedure,
                                                      AUTH_NONE, 0,    AUTH_NONE,       0};

    return put_words(xdrs, words, FLYT_CALL_HEAD_BYTES / 4);
}

bool flyt_reply_head_put(XDR *xdrs, uint32_t xid)
{
    const uint32_t words[FLYT_REPLY_HEAD_BYTES / 4] = {xid, REPLY, MSG_ACCEPTED, AUTH_NONE, 0, SUCCESS};

    return put_words(xdrs, words, FLYT_REPLY_HEAD_BYTES / 4);
}

bool flyt_message_is_call(const unsigned char *record, size_t bytes)
{
    return bytes >= 8 && word_at(record, 4) == CALL;
}

/* Steps over an opaque_auth at *offset. */
static bool skip_auth(const unsigned char *record, size_t record_bytes, size_t *offset, uint32_t *ret_flavor)
{
    if (record_bytes - *offset < 8)
        return false;
    uint32_t flavor = word_at(record, *offset), bytes = word_at(record, *offset + 4);
    *offset += 8;
    if (bytes > MAX_AUTH_BYTES || record_bytes - *offset < RNDUP(bytes))
        return false;
    *offset += RNDUP(bytes);
    *ret_flavor = flavor;
    return true;
}

int flyt_call_head_get(const unsigned char *record, size_t record_bytes, struct flyt_call_head *ret_head)
{
    struct flyt_call_head head = {.bytes = 24};
    uint32_t verifier_flavor;

    if (record_bytes < 12 || word_at(record, 4) != CALL)
        return -EBADMSG;
    head.xid = word_at(record, 0);
    head.rpc_version = word_at(record, 8);
    if (head.rpc_version == RPC_MSG_VERSION) {
        if (record_bytes < head.bytes)
            return -EBADMSG;
        head.program = word_at(record, 12);
        head.version = word_at(record, 16);
        head.procedure = word_at(record, 20);
        if (!skip_auth(record, record_bytes, &head.bytes, &head.credential_flavor) ||
            !skip_auth(record, record_bytes, &head.bytes, &verifier_flavor))
            return -EBADMSG;
    }
    *ret_head = head;
    return 0;
}

int flyt_reply_head_get(const unsigned char *record, size_t record_bytes, struct flyt_reply_head *ret_head)
{
    struct flyt_reply_head head = {.bytes = 12};
    uint32_t flavor;

    if (record_bytes < 16 || word_at(record, 4) != REPLY)
        return -EBADMSG;
    head.xid = word_at(record, 0);
    head.is_accepted = word_at(record, 8) == MSG_ACCEPTED;
    if (head.is_accepted && !skip_auth(record, record_bytes, &head.bytes, &flavor))
        return -EBADMSG;
    if (record_bytes - head.bytes < 4)
        return -EBADMSG;
    head.status = word_at(record, head.bytes);
    head.bytes += 4;
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
    const uint32_t expected[] = {CALL, RPC_MSG_VERSION, program, CHUNK_VERSION, procedure};

    if (head_bytes < FLYT_CHUNK_HEAD_BYTES)
        return false;
    for (unsigned i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        if (word_at(head, 4 + 4 * i) != expected[i])
            return false;
    }
    uint32_t bytes = word_at(head, FLYT_CHUNK_HEAD_BYTES - 4);
    if (word_at(head, 28) || word_at(head, 36)) /* lengths of credential and verifier */
        return false;
    if (bytes > FLYT_CHUNK_BYTES_MAX ||
        record_bytes != FLYT_CHUNK_HEAD_BYTES + (((size_t)bytes + PADDING_MASK) & ~3ull))
        return false;
    *ret_head = (struct flyt_chunk_head){
        .transfer_id = hyper_at(head, FLYT_CALL_HEAD_BYTES),
        .offset_bytes = hyper_at(head, FLYT_CALL_HEAD_BYTES + 8),
        .bytes = bytes,
    };
    return true;
}

bool flyt_chunk_head_put(XDR *xdrs, uint32_t program, uint32_t procedure, const struct flyt_chunk_head *head)
{
    const uint32_t words[] = {(uint32_t)(head->transfer_id >> 32), (uint32_t)head->transfer_id,
                              (uint32_t)(head->offset_bytes >> 32), (uint32_t)head->offset_bytes, head->bytes};

    return flyt_call_head_put(xdrs, 0, program, CHUNK_VERSION, procedure) &&
           put_words(xdrs, words, sizeof words / sizeof words[0]);
}
