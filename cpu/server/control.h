/*
 * What the listener and a server process say to each other, over a socket pair that keeps message boundaries.
 */
#ifndef FLYT_SERVER_CONTROL_H
#define FLYT_SERVER_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "rpc/proto/limits.h"

enum flyt_control_kind {
    FLYT_CONTROL_READY = 1,   /* to the listener: the session is prepared; device_count is filled in */
    FLYT_CONTROL_FAILED = 2,  /* to the listener: it cannot be; `data` is one sentence */
    FLYT_CONTROL_SESSION = 3, /* to the server: a client's main connection; `data` is what was read of it */
    FLYT_CONTROL_DATA = 4,    /* to the server: a data stream of the same client; likewise */
};

struct flyt_control {
    uint32_t kind;
    uint32_t device_count;
    uint64_t session_id;
    unsigned char token[FLYT_TOKEN_BYTES];
    uint32_t data_bytes;
    unsigned char data[FLYT_HANDSHAKE_BYTES_MAX];
};

/* Sends the message with its data, and a descriptor (-1: none), which stays open here. 0 or a negative errno. */
int flyt_control_send(int control_fd, const struct flyt_control *message, int fd);
/* Receives one; waits as the socket does. *ret_fd is -1 where none came; it belongs to the caller. 0; -EPIPE: the other
 * side is gone; another negative errno. */
int flyt_control_receive(int control_fd, struct flyt_control *ret_message, int *ret_fd);

#endif
