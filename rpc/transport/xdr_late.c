/*
 * The routine of flyt_late_bytes (rpc/proto/flyt.x): a field at the end of the handshake that older peers do not know.
 * What is decoded is always one of our streams over one record, so that its end is known.
 */
#include "flyt.h"
#include "rpc/transport/xdr_buffer.h"

bool_t xdr_flyt_late_bytes(XDR *xdrs, flyt_late_bytes *bytes)
{
    if (xdrs->x_op == XDR_DECODE && !flyt_xdr_left(xdrs)) {
        *bytes = (flyt_late_bytes){0};
        return TRUE;
    }
    return xdr_bytes(xdrs, &bytes->flyt_late_bytes_val, &bytes->flyt_late_bytes_len, FLYT_LATE_BYTES_MAX);
}
