/*
 * The server's end of its link to the node manager (rpc/transport/server_link.h) while it has a session: what is sent,
 * and the orders that came for the submission thread. It may be away: then what is sent is dropped, and told anew when
 * the link is back (rejoining: watch.c).
 *
 * Threads: the watching thread (watch.c) receives, hangs up and rejoins; it and the submission thread send. In direct
 * mode there is no manager (session->manager is NULL).
 */
#ifndef FLYT_SERVER_MANAGER_H
#define FLYT_SERVER_MANAGER_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/limit.h"
#include "cpu/server/report.h"
#include "rpc/base/ledger.h"
#include "rpc/base/turns.h"
#include "rpc/transport/server_link.h"

struct flyt_session;
struct flyt_manager_order;

enum {
    FLYT_MANAGER_SEND_MS = 5000, /* one that takes no message for so long counts as away */
    FLYT_MANAGER_ORDERS_MAX = 16384,
    FLYT_MANAGER_ORDER_FDS_MAX = 1 + FLYT_MIGRATION_STREAMS_MAX, /* of MOVE: the connections to the other server */
    FLYT_MANAGER_CAUSE_MS = 1500, /* several times as long as a node manager gathers reports */
};

struct flyt_manager {
    pthread_mutex_t mutex;
    /* Under the mutex. */
    int fd;                                  /* -1: away. Closed by the watching thread alone. */
    struct flyt_server_link_session granted; /* as it is now */
    /* By slot: groups that the session's work may still run on, those of `granted` included. */
    unsigned char holding[FLYT_SLOTS_MAX][FLYT_SERVER_LINK_GROUP_BYTES];
    struct flyt_server_link_message out; /* what is being sent */
    struct flyt_manager_order *first, *last;
    pthread_cond_t cause_is_there;
    bool has_cause;
    char cause[512];
    bool has_client; /* the client has another connection, for the watching thread: copies of its descriptors */
    int client_main_fd, client_socket_fd;
    unsigned order_count;

    atomic_bool has_orders;
    struct flyt_ledger *ledgers[FLYT_SLOTS_MAX]; /* by slot; set before the session runs */
    struct flyt_turns *turns[FLYT_SLOTS_MAX];    /* by slot, of the slots' devices; under the mutex */
    uint64_t last_extent_id;                     /* the submission thread's */
    _Atomic(uint64_t) extent_count;              /* that the manager was told of and are there */
    _Atomic(unsigned) debt_count;                /* extents that were given back and are not credited */
    uint64_t started_ms;                         /* of the session, wall */
    struct flyt_report report;
    /* The submission thread's (limit.h). */
    struct flyt_limit_order limit_orders[FLYT_SLOTS_MAX];
    unsigned limit_order_count; /* that are not answered */
};

/* `fd` is taken over; *granted is copied; fds has granted->ledger_count ledgers, then the tokens of slots that have
 * one, which stay the caller's (NULL: there are none). 0 or a negative errno. */
int flyt_manager_open(struct flyt_manager *manager, int fd, const struct flyt_server_link_session *granted,
                      const int *fds);

/*
 * Sends a message: its part of part_bytes (NULL: none), a sentence (NULL: none) and fd_count descriptors, which stay
 * the caller's. False: the manager is away, and does not know it. Any thread; blocks FLYT_MANAGER_SEND_MS at most.
 */
bool flyt_manager_tell(struct flyt_manager *manager, enum flyt_server_link_kind kind, const void *part,
                       size_t part_bytes, const char *sentence, const int *fds, unsigned fd_count);
/* The same with data of at most FLYT_SERVER_LINK_DATA_BYTES_MAX that are no sentence. */
bool flyt_manager_tell_data(struct flyt_manager *manager, enum flyt_server_link_kind kind, const void *part,
                            size_t part_bytes, const void *data, uint32_t data_bytes);

/* The watching thread: leaves a message for the submission thread, which is then to be kicked. 0, -ENOMEM or -ENOSPC.
 */
int flyt_manager_leave_order(struct flyt_manager *manager, const struct flyt_server_link_message *message);
/* The same of one with a descriptor, which is taken over where it succeeds; -1: none. */
int flyt_manager_leave_order_with(struct flyt_manager *manager, const struct flyt_server_link_message *message, int fd);
/* The same of one with fd_count descriptors, at most FLYT_MANAGER_ORDER_FDS_MAX, all of which are taken over where it
 * succeeds. */
int flyt_manager_leave_order_with_all(struct flyt_manager *manager, const struct flyt_server_link_message *message,
                                      const int *fds, unsigned fd_count);
/* The watching thread: another link, or none (-1), from now on. The old one, to be closed. */
int flyt_manager_change_link(struct flyt_manager *manager, int fd);

/* The submission thread: the session has the order's groups now, beside those that it held; and it holds these alone.
 * It is what a node manager that was restarted is told. */
void flyt_manager_take_groups(struct flyt_manager *manager, unsigned slot, const struct flyt_server_link_sm *order);
void flyt_manager_release_groups(struct flyt_manager *manager, unsigned slot);

/*
 * The submission thread: the context has ended with `result`, where MPS shares the GPU. Tells the node manager, and
 * waits FLYT_MANAGER_CAUSE_MS at most for what the program is to be told, which is put into ret_cause; nothing: it was
 * its own fault, or nobody knows. Nothing else is left to be done meanwhile.
 */
void flyt_manager_ask_cause(struct flyt_manager *manager, CUresult result, bool had_work, const char *sentence,
                            char *ret_cause, size_t bytes);
/* The watching thread: that is it. */
void flyt_manager_take_cause(struct flyt_manager *manager, const char *sentence);

/* The submission thread: the client has another connection. main_fd: a copy of the connection's descriptor; socket_fd:
 * one of the socket beneath it, which is another where it is encrypted; both are taken over, -1: none. */
void flyt_manager_leave_client(struct flyt_manager *manager, int main_fd, int socket_fd);
/* The watching thread: whether it has; then the descriptors are the caller's. */
bool flyt_manager_take_client(struct flyt_manager *manager, int *ret_main_fd, int *ret_socket_fd);

/* The submission thread: does what was ordered. Nothing where nothing was. */
void flyt_manager_process(struct flyt_session *session);

#endif
