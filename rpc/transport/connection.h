/*
 * The server's end of one connection: an SVCXPRT with our own operations over an endpoint, for rpcgen's dispatch.
 *
 * One thread receives (flyt_connection_receive) and dispatches; sending is allowed from any thread. Replies, calls to
 * the client and chunks leave in the order in which they were handed over. Writes are collected and go out with
 * flyt_connection_flush, or at once when much is waiting; where the endpoint takes no more, the writer waits.
 */
#ifndef FLYT_TRANSPORT_CONNECTION_H
#define FLYT_TRANSPORT_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "flyt.h"
#include "rpc/base/error.h"
#include "rpc/transport/endpoint/endpoint.h"

struct flyt_connection;

/* rpcgen's dispatch function, e.g. flyt_program_1. */
typedef void (*flyt_dispatch_fn)(struct svc_req *request, SVCXPRT *xprt);

/* A record as it came, without its record mark: what a deferred call keeps. */
struct flyt_record {
    uint32_t xid;
    uint32_t procedure;
    size_t bytes;
    unsigned char data[];
};

struct flyt_connection_config {
    flyt_dispatch_fn dispatch;
    uint32_t program, version;
    void *user;              /* flyt_connection_user(req->rq_xprt) gives it back */
    size_t record_bytes_max; /* longer records end the connection */
    /* Where the payload of a FLYT_CHUNK record is to be read to, straight off the socket; NULL: thrown away; may wait
     * for room. Then chunk_done. Both NULL where chunks are not expected (then such a record ends the connection). */
    void *(*chunk_place)(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes);
    void (*chunk_done)(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes);
};

/* Takes over the endpoint in every case. 0 or -ENOMEM. */
int flyt_connection_new(struct flyt_endpoint *endpoint, const struct flyt_connection_config *config,
                        struct flyt_connection **ret_connection);
/* Closes the endpoint. NULL is allowed. Returns NULL. */
struct flyt_connection *flyt_connection_free(struct flyt_connection *connection);
/* The connection's own: to wait for it, and to end it. */
struct flyt_endpoint *flyt_connection_endpoint(const struct flyt_connection *connection);
void *flyt_connection_user(SVCXPRT *xprt);
struct flyt_connection *flyt_connection_of(SVCXPRT *xprt);
/* First input of a connection that somebody else has already read (a handshake); to be called before receive. */
int flyt_connection_preload(struct flyt_connection *connection, const void *data, size_t bytes);

/*
 * Reads what the endpoint has (waits for the first byte only if may_wait) and dispatches at most record_count_max
 * complete records (0: all that are there). Returns how many, 0 where nothing was complete, -EAGAIN where nothing was
 * there, -EPIPE at the end of the stream, another negative errno after a bad message (the cause in *err).
 */
int flyt_connection_receive(struct flyt_connection *connection, bool may_wait, unsigned record_count_max,
                            struct flyt_error *err);
/* Whether complete records are waiting in memory: receive would not touch the endpoint. */
bool flyt_connection_has_record(const struct flyt_connection *connection);

/* During a dispatch: a copy of the record being dispatched (malloc), or NULL. */
struct flyt_record *flyt_connection_record(struct flyt_connection *connection);
/* Dispatches a kept record again. Its reply is sent as usual. */
void flyt_connection_dispatch(struct flyt_connection *connection, const struct flyt_record *record);
/* The xid of the call being dispatched: names it for a reply that comes later. */
uint32_t flyt_connection_xid(const struct flyt_connection *connection);

/* Whether the stream has ended, where it has, within a record. By who receives. */
bool flyt_connection_has_part(const struct flyt_connection *connection);
/* A reply of a call whose dispatch returned FALSE. 0 or -EPIPE. `data` (may be NULL) goes out as the last opaque of the
 * result without being copied into the XDR buffer: the result's own payload field must then be empty. */
int flyt_connection_reply(struct flyt_connection *connection, uint32_t xid, xdrproc_t xdr_res, void *res,
                          const void *data, size_t data_bytes);
/* The same for a session's handshake behind which something else is said. The descriptors, which stay the caller's,
 * travel with the reply's first byte, where such come through (flyt_endpoint_passes_descriptors). Waits until all is
 * written. 0, -EPIPE, or -EINVAL or -ENOMEM of encoding it: nothing was sent. */
int flyt_connection_reply_handshake(struct flyt_connection *connection, uint32_t xid, flyt_handshake_res *res,
                                    const int *fds, unsigned fd_count);
/* Calls a procedure of FLYT_BACK_PROGRAM, one-way. 0 or -EPIPE. */
int flyt_connection_call_back(struct flyt_connection *connection, unsigned procedure, xdrproc_t xdr_args, void *args);
/* Sends FLYT_BACK_CHUNK; `data` has been read when this returns. 0 or -EPIPE. bytes ≤ FLYT_CHUNK_BYTES_MAX. */
int flyt_connection_send_chunk(struct flyt_connection *connection, uint64_t transfer_id, uint64_t offset_bytes,
                               const void *data, size_t bytes);
int flyt_connection_flush(struct flyt_connection *connection);
/* What is read and written from now on goes through rings, which are taken over where this succeeds; by who receives,
 * before anything else was sent or has come. 0 or -ENOMEM. */
int flyt_connection_use_rings(struct flyt_connection *connection, struct flyt_rings *rings);

#endif
