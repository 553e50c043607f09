/*
 * Calls to the VM's client manager (FLYT_LOCAL_PROGRAM of rpc/proto/control.x) over its unix socket, one after another,
 * by whoever waits for the reply: what a program asks (local.h), and what libnvidia-ml asks. Needs no channel, and
 * nothing of the rest of this folder.
 *
 * One thread at a time for each descriptor.
 */
#ifndef FLYT_CLIENT_LOCAL_CALL_H
#define FLYT_CLIENT_LOCAL_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <rpc/rpc.h>

#include "rpc/base/error.h"

#define FLYT_LOCAL_SOCKET "/run/flyt/client.sock"

struct flyt_local_question {
    uint32_t procedure;
    xdrproc_t xdr_args; /* NULL: it has none */
    const void *args;
    xdrproc_t xdr_res;
    size_t res_bytes;        /* of the decoded result */
    size_t record_bytes_max; /* a longer reply is refused */
    int *ret_fd;             /* of the descriptor that comes with the reply, the caller's; NULL: none does */
};

/* The socket's path: FLYT_CLIENT_SOCKET, or the usual place. */
const char *flyt_local_path(void);

/* Connects. 0 and *ret_fd (the caller closes it); -ENOENT: there is no client manager; else as flyt_connect. */
int flyt_local_connect(unsigned timeout_ms, struct flyt_error *err, int *ret_fd);

/*
 * Asks, and waits for the reply until deadline_ms (flyt_clock_ms). Notices that come before it are read and forgotten:
 * then *has_news is set (may be NULL). 0 and *ret_res, which is to be freed (xdr_free of xdr_res); what a newer client
 * manager says beyond what is known here is ignored. -ETIMEDOUT, -EPIPE (it closed the connection), -EBADMSG, -EPROTO
 * (it refuses the procedure, or its reply is none), -ENOMEM, or what recv(2) says; *ret_res is untouched then, and the
 * descriptor of no further use, but after -EPROTO. *ret_fd is -1 where none came.
 */
int flyt_local_ask(int fd, const struct flyt_local_question *question, uint64_t deadline_ms, bool *has_news,
                   void *ret_res);

#endif
