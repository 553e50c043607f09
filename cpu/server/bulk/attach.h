/*
 * The handshake on the connections of a session: its own, which rpcgen's dispatch serves, and its data streams, on
 * which nothing but a handshake and chunks may come.
 */
#ifndef FLYT_SERVER_ATTACH_H
#define FLYT_SERVER_ATTACH_H

#include <stddef.h>

#include "flyt.h"

#include "rpc/base/error.h"
#include "rpc/transport/endpoint/endpoint.h"

struct flyt_session;

/* Gives the session its main connection: fd, which is taken over in every case, and what was read of it already, the
 * handshake. 0 or -ENOMEM. */
int flyt_attach_connection(struct flyt_session *session, struct flyt_endpoint *endpoint, const void *record,
                           size_t bytes);
/* The endpoint of a client's socket, encrypted with `key` where the session is to be. 0, or a negative errno with a
 * sentence: then the descriptor is the caller's still. */
int flyt_attach_endpoint(const struct flyt_session *session, int fd, const unsigned char *key, struct flyt_error *err,
                         struct flyt_endpoint **ret_endpoint);

/* A flyt_dispatch_fn for data streams; their connections' user is a struct flyt_reader. */
void flyt_attach_dispatch_data(struct svc_req *request, SVCXPRT *xprt);

#endif
