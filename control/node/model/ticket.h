/*
 * What a program showed where it connected.
 */
#ifndef FLYT_NODE_TICKET_H
#define FLYT_NODE_TICKET_H

#include <stdint.h>

#include "control.h"
#include "rpc/base/ticket.h"
#include "rpc/proto/limits.h"

/* What a program showed to the listener. */
struct flyt_node_ticket {
    uint64_t allocation_id;
    uint64_t session_id; /* that goes on; 0: a new one */
    uint32_t generation;
    uint32_t xid;
    uint32_t client_pid;
    char program[FLYT_NAME_BYTES_MAX + 1];
    char client_address[FLYT_NAME_BYTES_MAX + 1]; /* HOST:PORT, or FLYT_CLIENT_UNIX */
    unsigned char channel_key[FLYT_TICKET_KEY_BYTES];
};

#endif
