/*
 * The xdr_string that rpcgen's routines are compiled with (rules.mk): XDR has no null strings, and libtirpc's fails to
 * encode one. Here a string that was never set is sent as the empty one, so that a reply that only tells of an error
 * need not fill in the texts that it has not got.
 */
#include <rpc/rpc.h>

bool_t flyt_xdr_string(XDR *xdrs, char **text, u_int bytes_max);

bool_t flyt_xdr_string(XDR *xdrs, char **text, u_int bytes_max)
{
    char *empty = (char *)"";

    return xdr_string(xdrs, xdrs->x_op == XDR_ENCODE && !*text ? &empty : text, bytes_max);
}
