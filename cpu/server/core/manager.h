/*
 * The server's end of its link to the node manager (rpc/transport/manager_link.h) while it has a session: what is sent,
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

#include "rpc/base/ledger.h"
#include "rpc/base/time_slice_seat.h"
#include "flyt.h"
#include "rpc/transport/manager_link.h"

enum {
    /* A node manager that takes no message for so long counts as away, and what goes on with it is given up: a machine
     * that stands still for a while must not look like that. */
    FLYT_MANAGER_SEND_MS = 60000,
    FLYT_MANAGER_ORDERS_MAX = 16384,
    FLYT_MANAGER_ORDER_FDS_MAX = 1 + FLYT_MIGRATION_STREAMS_MAX, /* of MOVE: the connections to the other server */
    FLYT_MANAGER_CAUSE_MS = 1500, /* several times as long as a node manager gathers reports */
};

/* A message that the watching thread leaves for the submission thread. */
struct flyt_manager_order {
    struct flyt_manager_order *next;
    uint32_t kind;
    int fds[FLYT_MANAGER_ORDER_FDS_MAX]; /* fds[0]: -1: none */
    unsigned fd_count;
    union {
        struct flyt_manager_link_extent extent;
        struct flyt_manager_link_limit limit;
        struct flyt_manager_link_need need;
        struct flyt_manager_link_sm sm;
        struct flyt_manager_link_share share;
        struct flyt_manager_link_welcome welcome;
        struct flyt_manager_link_move move;
        struct flyt_manager_link_stop stop;
        struct flyt_manager_link_shared shared;
    };
    size_t record_bytes; /* of TAKE_BACK */
    unsigned char *record;
    char sentence[FLYT_STRING_BYTES_MAX + 1];
};

/* What the node manager was told last of what the session uses (report.h). */
struct flyt_report {
    pthread_mutex_t mutex; /* from looking to telling: what was told last is what is true */
    struct flyt_manager_link_use told;
    const char *told_why;
};

/* Of a slot: orders that are not answered. */
struct flyt_limit_order {
    struct flyt_manager_link_limit limit; /* the last one */
    unsigned count;
    uint64_t since_ns; /* the last one came */
    uint64_t notice;   /* number of the notice that asked the client since then; 0: none yet */
};

struct flyt_manager {
    pthread_mutex_t mutex;
    /* Under the mutex. */
    int fd;                                   /* -1: away. Closed by the watching thread alone. */
    struct flyt_manager_link_session granted; /* as it is now */
    /* By slot: groups that the session's work may still run on, those of `granted` included. */
    unsigned char holding[FLYT_SLOTS_MAX][FLYT_MANAGER_LINK_GROUP_BYTES];
    struct flyt_manager_link_message out; /* what is being sent */
    struct flyt_manager_order *first, *last;
    pthread_cond_t cause_is_there;
    bool has_cause;
    char cause[512];
    bool has_client; /* the client has another connection, for the watching thread: a duplicate of its endpoint */
    struct flyt_endpoint *client;
    unsigned order_count;

    atomic_bool has_orders;
    struct flyt_ledger *ledgers[FLYT_SLOTS_MAX];        /* by slot; set before the session runs */
    struct flyt_time_slice_seat *seats[FLYT_SLOTS_MAX]; /* by slot; until the slot's device takes it */
    uint64_t last_extent_id;                            /* the submission thread's */
    _Atomic(uint64_t) extent_count;                     /* that the manager was told of and are there */
    _Atomic(unsigned) debt_count;                       /* extents that were given back and are not credited */
    uint64_t started_ms;                                /* of the session, wall */
    struct flyt_report report;
    /* The submission thread's (limit.h). */
    struct flyt_limit_order limit_orders[FLYT_SLOTS_MAX];
    unsigned limit_order_count; /* that are not answered */
};

/* `fd` is taken over; *granted is copied; fds has granted->ledger_count ledgers, then the tokens of slots that have
 * one, which stay the caller's (NULL: there are none). 0 or a negative errno. */
int flyt_manager_open(struct flyt_manager *manager, int fd, const struct flyt_manager_link_session *granted,
                      const int *fds);

/*
 * Sends a message: its part of part_bytes (NULL: none), a sentence (NULL: none) and fd_count descriptors, which
 * stay the caller's. False: the manager is away, and does not know it. Any thread; blocks FLYT_MANAGER_SEND_MS at
 * most.
 */
bool flyt_manager_tell(struct flyt_manager *manager, enum flyt_manager_link_kind kind, const void *part,
                       size_t part_bytes, const char *sentence, const int *fds, unsigned fd_count);
/* The same with data of at most FLYT_MANAGER_LINK_DATA_BYTES_MAX that are no sentence. */
bool flyt_manager_tell_data(struct flyt_manager *manager, enum flyt_manager_link_kind kind, const void *part,
                            size_t part_bytes, const void *data, uint32_t data_bytes, const int *fds,
                            unsigned fd_count);

/* The watching thread: leaves a message for the submission thread, which is then to be kicked. 0, -ENOMEM or
 * -ENOSPC.
 */
int flyt_manager_leave_order(struct flyt_manager *manager, const struct flyt_manager_link_message *message);
/* The same of one with a descriptor, which is taken over where it succeeds; -1: none. */
int flyt_manager_leave_order_with(struct flyt_manager *manager, const struct flyt_manager_link_message *message,
                                  int fd);
/* The same of one with fd_count descriptors, at most FLYT_MANAGER_ORDER_FDS_MAX, all of which are taken over where
 * it succeeds. */
int flyt_manager_leave_order_with_all(struct flyt_manager *manager, const struct flyt_manager_link_message *message,
                                      const int *fds, unsigned fd_count);
/* The watching thread: another link, or none (-1), from now on. The old one, to be closed. */
int flyt_manager_change_link(struct flyt_manager *manager, int fd);

/* The submission thread: the session has the order's groups now, beside those that it held; and it holds these
 * alone. It is what a node manager that was restarted is told. */
void flyt_manager_take_groups(struct flyt_manager *manager, unsigned slot, const struct flyt_manager_link_sm *order);
void flyt_manager_release_groups(struct flyt_manager *manager, unsigned slot);

/*
 * The submission thread: the context has ended with `result`, where MPS shares the GPU. Tells the node manager, and
 * waits FLYT_MANAGER_CAUSE_MS at most for what the program is to be told, which is put into ret_cause; nothing: it
 * was its own fault, or nobody knows. Nothing else is left to be done meanwhile.
 */
void flyt_manager_ask_cause(struct flyt_manager *manager, CUresult result, bool had_work, const char *sentence,
                            char *ret_cause, size_t bytes);
/* The watching thread: that is it. */
void flyt_manager_take_cause(struct flyt_manager *manager, const char *sentence);

/* The submission thread: the client has another connection: a duplicate of its endpoint, which is taken over; NULL:
 * there is none. */
void flyt_manager_leave_client(struct flyt_manager *manager, struct flyt_endpoint *client);
/* The watching thread: whether it has; then the endpoint, or NULL, is the caller's. */
bool flyt_manager_take_client(struct flyt_manager *manager, struct flyt_endpoint **ret_client);

/* The submission thread: what was left for it, in order; NULL: nothing. Each is the caller's to free. */
struct flyt_manager_order *flyt_manager_take_orders(struct flyt_manager *manager);
/* Returns NULL. */
struct flyt_manager_order *flyt_manager_free_order(struct flyt_manager_order *order);

#endif
