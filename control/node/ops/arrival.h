/*
 * One program that arrives from another node (receive.h): its connections, until all 1 + stream_count are there, then
 * its loading into a warm server (session_load.h), which is given them.
 *
 * A node that connects anew for a program has given up what it had connected before: connections whose other end has
 * hung up do not count, and what was made of an earlier attempt is dropped. So many programs of a VM may arrive as it
 * may have on this node (vm_sessions_max).
 *
 * The loop's thread.
 */
#ifndef FLYT_NODE_ARRIVAL_H
#define FLYT_NODE_ARRIVAL_H

#include "control/node/ops/receive.h"
#include "control/node/ops/session_load.h"
#include "flyt.h"
#include "rpc/transport/greeter.h"

enum { FLYT_NODE_ARRIVAL_GATHER_MS = 10000 }; /* from the first connection to the last one */

struct flyt_node_arrival {
    struct flyt_node_session_load session_load;
    struct flyt_node_arrival *next; /* of its receive */
    struct flyt_node_receive *receive;
    uint32_t stream_count;
    int fds[1 + FLYT_MIGRATION_STREAMS_MAX]; /* -1: it has not come, or is the server's */
    unsigned char keys[1 + FLYT_MIGRATION_STREAMS_MAX][FLYT_TICKET_KEY_BYTES];
    /* It has failed after SWITCH, which the receive has not seen to; it was lost or ended, which has been told. */
    bool has_failed, is_told;
    flyt_status status;
    char sentence[400];
};

/*
 * A connection of kind FLYT_CONNECTION_MIGRATE has answered its challenge. OK: it was answered and is taken over; else
 * why not, in *err, and it stays the caller's.
 */
flyt_handshake_status flyt_node_arrival_connect(struct flyt_node *node, int fd,
                                                const struct flyt_greeter_answer *answer, struct flyt_error *err);
/* A server comes back after a restart (REJOIN) with the session that it had received. 0; -ENOMEM: it is not taken. */
int flyt_node_arrival_return(struct flyt_node_receive *receive, struct flyt_node_allocation *allocation,
                             struct flyt_node_server *server, const struct flyt_manager_link_rejoin *rejoin);
/* Goes on as far as nobody is awaited. */
void flyt_node_arrival_advance(struct flyt_node_arrival *arrival);
/* Nothing of it is to go on here: its connections are closed, its server is ended. */
void flyt_node_arrival_drop(struct flyt_node_arrival *arrival, const char *reason);
/* The session's last attempt: earlier ones, whose servers may not have ended, say nothing. NULL: there is none. */
const struct flyt_node_arrival *flyt_node_arrival_find(const struct flyt_node_receive *receive, uint64_t session_id);
/* How many are at one of these stages. */
unsigned flyt_node_arrivals_at(const struct flyt_node_receive *receive, enum flyt_node_target_state first,
                               enum flyt_node_target_state last);
/* Out of its receive's list. */
struct flyt_node_arrival *flyt_node_arrival_free(struct flyt_node_arrival *arrival);

#endif
