/*
 * Heads of RPC messages (RFC 5531, section 9), put and read by hand, because they are all alike: every call of ours
 * has AUTH_NONE twice, every good reply an empty verifier. Pure functions.
 */
#ifndef FLYT_TRANSPORT_MESSAGE_H
#define FLYT_TRANSPORT_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "rpc/transport/input.h"
#include "rpc/transport/xdr_buffer.h"

enum {
    FLYT_CALL_HEAD_BYTES = 40,
    FLYT_REPLY_HEAD_BYTES = 24,
    /* A chunk's record up to its payload: head, transfer id, offset, length. */
    FLYT_CHUNK_HEAD_BYTES = FLYT_CALL_HEAD_BYTES + 8 + 8 + 4
};
_Static_assert((int)FLYT_CHUNK_HEAD_BYTES <= (int)FLYT_INPUT_PEEK_BYTES,
               "a chunk must be recognised from what is peeked at");

/* Encode a head; false: the stream is full. */
bool flyt_call_head_put(XDR *xdrs, uint32_t xid, uint32_t program, uint32_t version, uint32_t procedure);
bool flyt_reply_head_put(XDR *xdrs, uint32_t xid);

/* Whether a record is a call (else it can only be a reply). */
bool flyt_message_is_call(const unsigned char *record, size_t bytes);

struct flyt_call_head {
    uint32_t xid, rpc_version, program, version, procedure;
    uint32_t credential_flavor; /* AUTH_NONE, AUTH_SYS … */
    size_t bytes;               /* where the arguments begin */
};

/* Reads a call's head. 0; -EBADMSG: not a call, cut off, or credentials longer than 400 bytes (RFC 5531, 8.2). Where
 * rpc_version is not 2, nothing behind it is read. */
int flyt_call_head_get(const unsigned char *record, size_t record_bytes, struct flyt_call_head *ret_head);

struct flyt_reply_head {
    uint32_t xid;
    bool is_accepted;
    uint32_t status; /* accept_stat, or reject_stat where it was not accepted */
    size_t bytes;    /* where the results begin, if it is a success */
};

/* 0 or -EBADMSG. */
int flyt_reply_head_get(const unsigned char *record, size_t record_bytes, struct flyt_reply_head *ret_head);

/* What a failed reply means, as the end of a sentence. */
const char *flyt_reply_failure(const struct flyt_reply_head *head);

struct flyt_chunk_head {
    uint64_t transfer_id, offset_bytes;
    uint32_t bytes;
};

/* Whether the beginning of a record of record_bytes is a well-formed chunk of this program and procedure without
 * credentials, the form that can be cut. Fills *ret_head then. */
bool flyt_chunk_head_get(const unsigned char *head, size_t head_bytes, size_t record_bytes, uint32_t program,
                         uint32_t procedure, struct flyt_chunk_head *ret_head);
/* Encodes a chunk's record up to its payload. */
bool flyt_chunk_head_put(XDR *xdrs, uint32_t program, uint32_t procedure, const struct flyt_chunk_head *head);

#endif
