#include "rpc/transport/xdr_buffer.h"

#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 4096 };

bool flyt_bytes_grow(struct flyt_bytes *bytes, size_t more)
{
    if (more > bytes->bytes_max || bytes->used > bytes->bytes_max - more)
        return false;
    size_t capacity = bytes->capacity ? 2 * bytes->capacity : FIRST_BYTES;
    if (capacity < bytes->used + more)
        capacity = bytes->used + more;
    if (capacity > bytes->bytes_max)
        capacity = bytes->bytes_max;
    unsigned char *data = realloc(bytes->data, capacity);
    if (!data)
        return false;
    bytes->data = data;
    bytes->capacity = capacity;
    return true;
}

void flyt_bytes_fini(struct flyt_bytes *bytes)
{
    free(bytes->data);
    bytes->data = NULL;
    bytes->used = bytes->capacity = 0;
}

/* ---- encoding: x_private is the struct flyt_bytes ---- */

static bool_t encode_long(XDR *xdrs, const long *value)
{
    struct flyt_bytes *bytes = xdrs->x_private;
    uint32_t word = htonl((uint32_t)*value);

    if (!flyt_bytes_reserve(bytes, sizeof word))
        return FALSE;
    memcpy(bytes->data + bytes->used, &word, sizeof word);
    bytes->used += sizeof word;
    return TRUE;
}

static bool_t encode_bytes(XDR *xdrs, const char *data, u_int count)
{
    struct flyt_bytes *bytes = xdrs->x_private;

    if (!flyt_bytes_reserve(bytes, count))
        return FALSE;
    memcpy(bytes->data + bytes->used, data, count);
    bytes->used += count;
    return TRUE;
}

static u_int encode_position(XDR *xdrs)
{
    struct flyt_bytes *bytes = xdrs->x_private;

    return (u_int)bytes->used;
}

static bool_t encode_seek(XDR *xdrs, u_int position)
{
    struct flyt_bytes *bytes = xdrs->x_private;

    if (position > bytes->capacity)
        return FALSE;
    bytes->used = position;
    return TRUE;
}

/* Records begin at multiples of 4, and so does everything that XDR puts into them: the words are aligned. */
static int32_t *encode_inline(XDR *xdrs, u_int count)
{
    struct flyt_bytes *bytes = xdrs->x_private;

    if (bytes->used % sizeof(int32_t) || !flyt_bytes_reserve(bytes, count))
        return NULL;
    void *words = bytes->data + bytes->used;
    bytes->used += count;
    return words;
}

static bool_t refuse_get_long(XDR *xdrs, long *value)
{
    return FALSE;
}

static bool_t refuse_get_bytes(XDR *xdrs, char *data, u_int count)
{
    return FALSE;
}

static bool_t refuse_control(XDR *xdrs, int request, void *info)
{
    return FALSE;
}

static void destroy(XDR *xdrs)
{
}

void flyt_xdr_encode_init(XDR *xdrs, struct flyt_bytes *bytes)
{
    static const struct xdr_ops ops = {
        .x_getlong = refuse_get_long,
        .x_putlong = encode_long,
        .x_getbytes = refuse_get_bytes,
        .x_putbytes = encode_bytes,
        .x_getpostn = encode_position,
        .x_setpostn = encode_seek,
        .x_inline = encode_inline,
        .x_destroy = destroy,
        .x_control = refuse_control,
    };

    *xdrs = (XDR){.x_op = XDR_ENCODE, .x_ops = &ops, .x_private = bytes};
}

/* ---- decoding: x_private is the next byte, x_handy what is left, x_base the first byte, x_public the payload ---- */

static bool_t decode_long(XDR *xdrs, long *value)
{
    uint32_t word;

    if (xdrs->x_handy < sizeof word)
        return FALSE;
    memcpy(&word, xdrs->x_private, sizeof word);
    *value = (int32_t)ntohl(word);
    xdrs->x_private = (char *)xdrs->x_private + sizeof word;
    xdrs->x_handy -= (u_int)sizeof word;
    return TRUE;
}

static bool_t decode_bytes(XDR *xdrs, char *data, u_int count)
{
    struct flyt_xdr_payload *payload = (void *)xdrs->x_public;

    if (payload && payload->is_passed && payload->is_there)
        return count < BYTES_PER_XDR_UNIT; /* padding, read with the payload */
    if (payload && payload->place && data == payload->place) {
        if (count > payload->bytes_max)
            return FALSE;
        payload->is_passed = true;
        if (payload->is_there)
            return TRUE;
    }
    if (xdrs->x_handy < count)
        return FALSE;
    memcpy(data, xdrs->x_private, count);
    xdrs->x_private = (char *)xdrs->x_private + count;
    xdrs->x_handy -= count;
    return TRUE;
}

static u_int decode_position(XDR *xdrs)
{
    return (u_int)((char *)xdrs->x_private - xdrs->x_base);
}

static bool_t decode_seek(XDR *xdrs, u_int position)
{
    u_int total = decode_position(xdrs) + xdrs->x_handy;

    if (position > total)
        return FALSE;
    xdrs->x_private = xdrs->x_base + position;
    xdrs->x_handy = total - position;
    return TRUE;
}

static int32_t *decode_inline(XDR *xdrs, u_int count)
{
    void *words = xdrs->x_private;

    if (xdrs->x_handy < count || (uintptr_t)words % sizeof(int32_t))
        return NULL;
    xdrs->x_private = (char *)xdrs->x_private + count;
    xdrs->x_handy -= count;
    return words;
}

static bool_t refuse_put_long(XDR *xdrs, const long *value)
{
    return FALSE;
}

static bool_t refuse_put_bytes(XDR *xdrs, const char *data, u_int count)
{
    return FALSE;
}

void flyt_xdr_decode_init(XDR *xdrs, const void *data, size_t bytes, struct flyt_xdr_payload *payload)
{
    static const struct xdr_ops ops = {
        .x_getlong = decode_long,
        .x_putlong = refuse_put_long,
        .x_getbytes = decode_bytes,
        .x_putbytes = refuse_put_bytes,
        .x_getpostn = decode_position,
        .x_setpostn = decode_seek,
        .x_inline = decode_inline,
        .x_destroy = destroy,
        .x_control = refuse_control,
    };

    *xdrs = (XDR){.x_op = XDR_DECODE,
                  .x_ops = &ops,
                  .x_public = (char *)payload,
                  .x_private = (void *)data,
                  .x_base = (char *)data,
                  .x_handy = (u_int)bytes};
}

/* ---- numbers of 64 bits ---- */

bool_t flyt_xdr_u_quad_t(XDR *xdrs, u_int64_t *value)
{
    uint64_t wire;
    if (xdrs->x_op == XDR_FREE)
        return TRUE;
    void *place = XDR_INLINE(xdrs, sizeof wire);
    if (!place)
        return xdr_u_quad_t(xdrs, value);
    if (xdrs->x_op == XDR_ENCODE) {
        wire = htobe64(*value);
        memcpy(place, &wire, sizeof wire);
    } else {
        memcpy(&wire, place, sizeof wire);
        *value = be64toh(wire);
    }
    return TRUE;
}
