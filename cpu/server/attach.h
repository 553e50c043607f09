/*
 * The handshake on the connections of a session: its own, which rpcgen's dispatch serves, and its data streams, on
 * which nothing but a handshake and chunks may come.
 */
#ifndef FLYT_SERVER_ATTACH_H
#define FLYT_SERVER_ATTACH_H

#include <stddef.h>

#include "flyt.h"

struct flyt_session;

/* Gives the session its main connection: fd, which is taken over in every case, and what was read of it already, the
 * handshake. 0 or -ENOMEM. */
int flyt_attach_connection(struct flyt_session *session, int fd, const void *record, size_t bytes);

/* A flyt_dispatch_fn for data streams; their connections' user is a struct flyt_reader. */
void flyt_attach_dispatch_data(struct svc_req *request, SVCXPRT *xprt);

#endif
