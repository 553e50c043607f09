/*
 * One call to somebody, by libtirpc's own client, as any ONC RPC program would make it: blocking, in clear, without
 * saying who we are. For the doctor.
 */
#ifndef FLYT_FLYTCTL_PROBE_H
#define FLYT_FLYTCTL_PROBE_H

#include <rpc/rpc.h>
#include <stdint.h>

#include "control/base/tls.h"
#include "rpc/base/error.h"

/*
 * Connects and calls. 0 and *result (zeroed before; xdr_free is the caller's); or negative and a sentence:
 * -ECONNREFUSED … (no connection), -ETIMEDOUT, -EPIPE (the other end closed the connection), -EPROTO (refused: no such
 * program …).
 */
int flyt_probe(const char *url, uint32_t program, uint32_t version, uint32_t procedure, xdrproc_t xdr_res, void *result,
               unsigned timeout_ms, struct flyt_error *err);
/* The null call. */
int flyt_probe_null(const char *url, uint32_t program, uint32_t version, unsigned timeout_ms, struct flyt_error *err);
/* A TLS handshake with the cluster manager, with our certificate, and a null call behind it, which is answered only
 * where the certificate is admitted; without HELLO. 0 or negative, *err. */
int flyt_probe_tls(const char *url, struct flyt_tls *tls, unsigned timeout_ms, struct flyt_error *err);

#endif
