/*
 * The receiving half of an endpoint (endpoint.h): bytes become records (record marking, RFC 5531 section 11). Records
 * of any number of fragments are put together in one buffer; the payload of a bulk record, which is its last opaque, is
 * read straight to where its consumer wants it. Nothing blocks but a fill that was asked to. One thread at a time.
 */
#ifndef FLYT_TRANSPORT_INPUT_H
#define FLYT_TRANSPORT_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "rpc/transport/endpoint/endpoint.h"

/* So many bytes of a record, or all of a shorter one, are in memory when its consumer is asked for a payload's place.
 */
enum { FLYT_INPUT_PEEK_BYTES = 64 };

/* How a record is cut: `head_bytes` (at most FLYT_INPUT_PEEK_BYTES) come to memory as usual, the next payload_bytes go
 * to `place` (NULL: thrown away), and at most 3 bytes of padding follow. */
struct flyt_input_split {
    size_t head_bytes, payload_bytes;
    void *place;
};

/* Whether this record is to be cut, and how. Asked once per record of one fragment. head has head_bytes bytes. */
typedef bool (*flyt_input_split_fn)(void *user, const unsigned char *head, size_t head_bytes, size_t record_bytes,
                                    struct flyt_input_split *ret_split);

struct flyt_input_record {
    const unsigned char *data; /* not aligned; valid until the next call that takes the input */
    size_t bytes;              /* a multiple of 4, unless the record was cut */
    bool is_split;             /* `data` holds the head only */
    struct flyt_input_split split;
};

/* Members are the implementation's, but received_bytes, which anyone may read. */
struct flyt_input {
    struct flyt_endpoint *endpoint; /* NULL: bytes come by flyt_input_preload */
    size_t record_bytes_max, read_ahead_bytes;
    flyt_input_split_fn split_fn; /* NULL: nothing is cut */
    void *user;
    unsigned char *buffer;
    size_t capacity, begin, end; /* begin–end: received, not consumed */
    bool in_record, is_last, is_split_asked, is_split;
    size_t record_bytes; /* of the fragments known so far */
    unsigned fragment_count;
    struct flyt_input_split split;
    size_t payload_done_bytes, padding_bytes;
    _Alignas(8) unsigned char head[FLYT_INPUT_PEEK_BYTES];
    _Atomic(uint64_t) received_bytes;
};

/* read_ahead_bytes: how much one read may take beyond what is known to belong to the record at hand. The endpoint,
 * which may be NULL, stays the caller's. 0 or -ENOMEM. */
int flyt_input_init(struct flyt_input *input, struct flyt_endpoint *endpoint, size_t record_bytes_max,
                    size_t read_ahead_bytes, flyt_input_split_fn split_fn, void *user);
void flyt_input_fini(struct flyt_input *input);

/* Bytes that were read elsewhere go behind those that are there. 0 or -ENOMEM. */
int flyt_input_preload(struct flyt_input *input, const void *data, size_t bytes);

/* What it takes of memory. */
static inline size_t flyt_input_held_bytes(const struct flyt_input *input)
{
    return input->capacity;
}

/* The next complete record: 1 and *ret_record; 0: more bytes are needed; -EMSGSIZE: longer than allowed; -EBADMSG: no
 * record of ours (length not a multiple of 4, too many fragments). After an error the input is of no use. */
int flyt_input_next(struct flyt_input *input, struct flyt_input_record *ret_record);

/* Whether flyt_input_next would return other than 0, without asking for a place. */
bool flyt_input_has_record(const struct flyt_input *input);

/* Whether the beginning of a record is there: at the end of the stream, it was torn. */
bool flyt_input_has_part(const struct flyt_input *input);

/* Goes on with what `from` has received, over its endpoint: `from` is empty afterwards, and what the
 * input held is forgotten. */
void flyt_input_take(struct flyt_input *input, struct flyt_input *from);

/* Reads once from the endpoint; may_wait: until there is something. Returns bytes read (> 0), -EAGAIN, -EPIPE at the
 * end of the stream, -ENOMEM, or what flyt_endpoint_read says. To be called only after flyt_input_next has returned 0.
 */
int flyt_input_fill(struct flyt_input *input, bool may_wait);

#endif
