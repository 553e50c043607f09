/*
 * The handshake on the connections of a session: its own, which rpcgen's dispatch serves, and its data streams, on
 * which nothing but a handshake and chunks may come.
 */
#ifndef FLYT_SERVER_ATTACH_H
#define FLYT_SERVER_ATTACH_H

#include "flyt.h"

/* The build's name in handshakes and queries. */
extern const char flyt_build_name[];

/* A flyt_dispatch_fn for data streams; their connections' user is a struct flyt_reader. */
void flyt_attach_dispatch_data(struct svc_req *request, SVCXPRT *xprt);

#endif
