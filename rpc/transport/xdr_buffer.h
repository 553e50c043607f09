/*
 * XDR streams (RFC 4506) over memory for rpcgen's routines: encoding into a buffer that grows up to a bound, decoding
 * from bytes that stay where they are. One thread at a time per stream. A decoder may send one opaque, the payload of
 * a bulk record, to memory that the caller chose, instead of what xdr_bytes would allocate.
 */
#ifndef FLYT_TRANSPORT_XDR_BUFFER_H
#define FLYT_TRANSPORT_XDR_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <rpc/rpc.h>

/* Bytes that grow. All zero but bytes_max is an empty one. */
struct flyt_bytes {
    unsigned char *data;
    size_t used, capacity;
    size_t bytes_max; /* used never exceeds it */
};

/* flyt_bytes_reserve where there is no room yet. */
bool flyt_bytes_grow(struct flyt_bytes *bytes, size_t more);
/* Makes room for `more` bytes behind the used ones. False: beyond bytes_max, or no memory; nothing has changed. */
static inline bool flyt_bytes_reserve(struct flyt_bytes *bytes, size_t more)
{
    return __builtin_expect(more <= bytes->capacity - bytes->used, 1) || flyt_bytes_grow(bytes, more);
}
/* Frees the memory; the buffer is empty and usable again. */
void flyt_bytes_fini(struct flyt_bytes *bytes);

/* Encodes behind bytes->used. `bytes` outlives the stream; a failed routine leaves what it had written. */
void flyt_xdr_encode_init(XDR *xdrs, struct flyt_bytes *bytes);

/* Where the decoder puts the one opaque whose pointer the caller has set to `place` before decoding. */
struct flyt_xdr_payload {
    void *place;
    size_t bytes_max; /* a longer one fails the decoding */
    bool is_there;    /* it was read to its place before: the stream ends in front of it */
    bool is_passed;   /* set by the decoder: nothing but padding can follow */
};

/* Decodes `bytes` bytes of data. `payload` may be NULL; both outlive the stream. */
void flyt_xdr_decode_init(XDR *xdrs, const void *data, size_t bytes, struct flyt_xdr_payload *payload);
/* Bytes that were not decoded yet. */
static inline size_t flyt_xdr_left(const XDR *xdrs)
{
    return xdrs->x_handy;
}

/* The xdr_u_quad_t that rpcgen's routines are compiled with (rules.mk): every reply has three such numbers. The same
 * bytes, put and taken as one word where the stream has them in one piece. */
bool_t flyt_xdr_u_quad_t(XDR *xdrs, u_int64_t *value);

#endif
