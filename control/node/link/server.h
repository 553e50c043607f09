/*
 * One server process: started on a GPU, warm, then serving one session of an allocation until it ends. The node manager
 * holds its socket (rpc/transport/manager_link.h), its pidfd, and a descriptor of each extent of device memory that it
 * has, which so outlives it. When the process is gone its extents are let go of, then its entries in the ledgers.
 */
#ifndef FLYT_NODE_SERVER_H
#define FLYT_NODE_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/node/model/ticket.h"
#include "control/node/link/broker.h"
#include "control/node/memory/extent.h"
#include "control/node/link/link_queue.h"
#include "control/node/link/memory_watch.h"
#include "control/node/model/node.h"
#include "control/node/link/time_slice_watch.h"
#include "rpc/transport/call_record.h"
#include "rpc/transport/manager_link.h"

/* Why what needs a server's link all the time has failed. */
#define FLYT_NODE_LINK_LOST_TEXT "its server process had lost its link to the node manager"
/* What is said where processes have all users of server_uids. */
#define FLYT_NODE_NO_USER "no user of server_uids is free: processes have them all"

enum flyt_node_server_state {
    FLYT_NODE_SERVER_STARTING,
    FLYT_NODE_SERVER_WARM,
    FLYT_NODE_SERVER_SERVING,
    FLYT_NODE_SERVER_ENDING,    /* was told to end, or has ended its session */
    FLYT_NODE_SERVER_TAKING,    /* is given a session that goes on (replace.h), and has the client slot of that one */
    FLYT_NODE_SERVER_AWAY,      /* no process: a session that waits for its client, in node->away (replace.h) */
    FLYT_NODE_SERVER_PREPARING, /* is prepared for a session that is moved, or loaded, and is to be given it */
    FLYT_NODE_SERVER_LEFT,      /* keeps a session whose client is on its way elsewhere (move.h) */
};

/* A session's client has come anew, with a ticket of its own: where it is now. */
void flyt_node_ticket_came(struct flyt_node_ticket *session, const struct flyt_node_ticket *client);

struct flyt_node_session_load;
struct flyt_node_saving;
struct flyt_node_start;
struct flyt_node_restore_check;

struct flyt_node_server {
    struct flyt_node_server *next;
    struct flyt_node *node;
    struct flyt_node_gpu *gpu;
    enum flyt_node_server_state state;
    pid_t pid;                     /* 0, pid_fd -1: its process is being started */
    uid_t uid;                     /* whose process it is */
    int pid_fd, link_fd;           /* link_fd -1: it has hung up */
    struct flyt_node_start *start; /* while that is done (spawn.h); else NULL */
    bool is_child;                 /* else it was started by an earlier node manager */
    bool was_killed;
    bool outlives; /* the node manager, which ends, though it has no session of its own yet (session_load.h) */
    sd_event_source *pid_source, *link_source, *timer;
    uint64_t started_ms;
    char cgroup[FLYT_NODE_CGROUP_BYTES]; /* empty: none */

    /* Its session. */
    struct flyt_node_allocation *allocation; /* NULL: none */
    uint64_t server_id, session_id;
    unsigned char token[FLYT_TOKEN_BYTES];
    struct flyt_node_ticket ticket;
    uint64_t session_started_ms; /* wall */
    bool is_encrypted;
    /* Its devices, by slot of its session: those of its allocation when it got it. */
    struct flyt_node_gpu *gpus[FLYT_SLOTS_MAX];
    bool has_use; /* it has sent USE */
    struct flyt_manager_link_use use;
    char why_not[FLYT_NAME_BYTES_MAX + 1];
    char end_reason[512];
    /* By slot: the last revision of SM groups that it was told, and how far it has come. */
    uint64_t sm_revision[FLYT_SLOTS_MAX];
    flyt_switch_state sm_state[FLYT_SLOTS_MAX];
    /* By slot: the revision of the last SHARE that it was told (0: none), and has carried out. */
    uint64_t share_told[FLYT_SLOTS_MAX], share_done[FLYT_SLOTS_MAX];
    bool is_time_slices_due[FLYT_SLOTS_MAX]; /* that one has a token with it */
    bool has_share_failed[FLYT_SLOTS_MAX];   /* it could not be carried out */
    struct flyt_node_time_slice_watch time_slice_watch[FLYT_SLOTS_MAX];
    struct flyt_node_memory_watch memory_watch[FLYT_SLOTS_MAX];
    struct flyt_node_server *watched_next; /* of its allocation's, while these are looked at */
    struct {
        bool is_reported; /* and not judged yet */
        bool had_work;
        bool is_hit;    /* it ends for it */
        bool is_spared; /* its process does, but its session had no part in it and may go on */
        char cause[128];
    } fault; /* fault.h */
    struct flyt_node_extents extents;
    struct flyt_node_brokerage broker;
    struct {
        uint64_t entry_id, allocation_id; /* 0: none */
        bool has_stayed;                  /* that session has ended */
    } charged;                            /* to the entries of a session that is not its own (charge.h) */
    uint64_t context_bytes;               /* what its context took of its GPU, as it says; 0: not known any more */
    /* By slot, when the measurement under way began (reserve.h). */
    uint64_t charged_bytes[FLYT_SLOTS_MAX], reserved_bytes[FLYT_SLOTS_MAX];
    unsigned unsettled_count[FLYT_SLOTS_MAX];   /* measurements in a row during which it has charged something */
    uint64_t unexplained_bytes[FLYT_SLOTS_MAX]; /* the least that was not charged in any of these */
    bool is_measured, was_copying;
    /* By slot: the last LIMIT that it is to answer (number 0: none), how many there are, for servers of an older build,
     * which answer each without its number, and the number of the last one that it has answered. */
    struct flyt_manager_link_limit limit_told[FLYT_SLOTS_MAX];
    uint64_t limit_count[FLYT_SLOTS_MAX], limit_done[FLYT_SLOTS_MAX];
    struct {
        sd_event_source *timer;         /* while it has something to answer */
        uint64_t since_ms;              /* it has answered nothing; */
        uint64_t pause_ms;              /* the last pause before orders are sent again */
        bool is_told;                   /* an event has told so */
        bool is_probed;                 /* it was sent an order that everybody answers */
        uint64_t last_number;           /* of a LIMIT */
    } unanswered;                       /* orders (retransmit.h) */
    struct flyt_manager_link_need need; /* for which it waits; number 0: for none */

    bool has_vm_memory;                    /* it was given the memory that its VM shares with this machine, */
    int vm_memory_fd;                      /* and its session's claims are in this open description of it */
    const struct flyt_call_record *record; /* what it executes; NULL: that is not known */
    bool has_left_at;                      /* AWAY: how far its process had come when it ended, or was left: */
    struct flyt_call_state left_at;        /* so far */

    struct flyt_node_link_queue queue;             /* of messages that it may not take at once */
    struct flyt_node_move *move;                   /* NULL: it has no part in one */
    struct flyt_node_saving *saving;               /* NULL: it writes no image (checkpoint.h) */
    struct flyt_node_session_load *session_load;   /* NULL: no session is loaded into it (session_load.h) */
    struct flyt_node_restore_check *restore_check; /* NULL: no image is tried in it (restore_check.h) */
    struct flyt_node_server *prepared;             /* AWAY: its server, which has its memory already; NULL: none yet */
    uint64_t left_move_id;                         /* LEFT, come back after a restart: the move that it was left in */
    bool has_gone;                                 /* LEFT: its session goes on at another node, which tells of it */
    struct flyt_manager_link_session *came_with;   /* come back with other devices than its allocation's; else NULL */

    struct flyt_node_hand_over *hand_over; /* TAKING, PREPARING: what it is given; else NULL */
    uint64_t replace_asked_ms;             /* SERVING: when a client first wanted its session elsewhere; 0: never */
    uint64_t away_until_ms;                /* AWAY */

    /* When its session lost its server, and what came of that (replace.h), on CLOCK_MONOTONIC; 0: not yet. */
    struct {
        uint64_t end_us;     /* its link ended, or its process had without that */
        uint64_t gone_us;    /* its process had ended */
        uint64_t come_us;    /* its client had come, the last time */
        uint64_t given_us;   /* the next server had been sent all extents */
        uint64_t session_us; /* and the session */
    } replacement;
};

/* Starts one on a GPU, whose process is there a little later. 0; -EUSERS: processes have all users of server_uids;
 * -EINPROGRESS: that is looked at, and it is tried again then; or
 * another negative errno, which is logged. */
int flyt_node_server_start(struct flyt_node *node, struct flyt_node_gpu *gpu);
/* At the node manager's end: kills a server that has no session, and waits for nothing. A session's server is left
 * alone. */
void flyt_node_server_kill_warm(struct flyt_node_server *server);
/* The same, waits for its end until node->stop_ms, and forgets it. */
void flyt_node_server_free(struct flyt_node_server *server);

/* Hands a program's connection to a warm server. 0: fd and record belong to the server (fd is closed here); or a
 * negative errno: nothing has changed but that the server is of no use and is ended. */
int flyt_node_server_serve(struct flyt_node_server *server, struct flyt_node_allocation *allocation,
                           const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes);
/* A further data stream of its session. 0 (fd is closed here) or a negative errno. */
int flyt_node_server_add_stream(struct flyt_node_server *server, int fd, const unsigned char *channel_key,
                                const void *record, size_t bytes);
/*
 * Ends it: is told so (with a sentence for its program, may be NULL), has kill_grace, then is taken from MPS and
 * killed. Comes back at once; the server goes when its process has.
 */
void flyt_node_server_end(struct flyt_node_server *server, const char *reason);
/* The same at once, of a session's server, for what the GPU's account shows of it: is counted, and told as `event`. */
void flyt_node_server_end_watched(struct flyt_node_server *server, enum flyt_node_watched watched, const char *event,
                                  const char *reason);
/*
 * The way of every message to it: behind all that it was sent before. The descriptors stay the caller's. 0; or a
 * negative errno, which is logged unless its link has ended (-EPIPE). One that leaves too much unread is ended.
 */
int flyt_node_server_send(struct flyt_node_server *server, const struct flyt_manager_link_message *message,
                          const int *fds, unsigned fd_count);
/* As an operator orders it, of a session's server: it is on the disk first, and so holds over a restart of the node
 * manager. `reason` outlives the server. 0: done is told, once, 0 or a negative errno: it could not be written, and the
 * session goes on. Else -ENOMEM. */
int flyt_node_server_end_for_good(struct flyt_node_server *server, const char *reason,
                                  void (*done)(void *user, int status), void *user);
/* A slot's limit or groups have changed. */
void flyt_node_server_tell_limit(struct flyt_node_server *server, unsigned slot, uint64_t bytes, uint64_t revision,
                                 bool when_free);
/* The last one of that slot once more. */
void flyt_node_server_repeat_limit(struct flyt_node_server *server, unsigned slot);
/* It has answered. */
void flyt_node_server_limit_done(struct flyt_node_server *server, const struct flyt_manager_link_limit_done *done);
/* It needs memory that others of its allocation may cache: they are asked for it, and it is told when they have given
 * it back. */
void flyt_node_server_needs(struct flyt_node_server *server, const struct flyt_manager_link_need *need);
/* A server of the allocation has answered, or has gone: tells those that need memory, where nobody else is awaited. */
void flyt_node_server_answer_needs(struct flyt_node *node, const struct flyt_node_allocation *allocation);
/* Whether a server of the allocation has not answered what it was told of its limits. */
bool flyt_node_server_owes_answer(const struct flyt_node *node, const struct flyt_node_allocation *allocation);
void flyt_node_server_tell_groups(struct flyt_node_server *server, unsigned slot);

/* Whether it is one of the allocation's that carry out what changes: it has a session, which is not on its way
 * elsewhere. */
bool flyt_node_server_listens(const struct flyt_node_server *server, const struct flyt_node_allocation *allocation);
/* Whether it has, or may have, a context on the GPU: it was started there, or its VM has a device there. */
bool flyt_node_server_uses(const struct flyt_node_server *server, const struct flyt_node_gpu *gpu);
/* Whether its link or its process has ended. */
bool flyt_node_server_is_dying(const struct flyt_node_server *server);
/* How many sessions of the allocation are known to end, or to have ended, and will leave their places soon. */
unsigned flyt_node_servers_ending(const struct flyt_node *node, const struct flyt_node_allocation *allocation);
/* How many processes have: each is one of MPS's clients until it has ended. */
unsigned flyt_node_servers_on(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
/* By a session's id or token; NULL: none. By its id, of two the one that the session goes on at. */
struct flyt_node_server *flyt_node_server_find(const struct flyt_node *node, uint64_t session_id);
struct flyt_node_server *flyt_node_server_find_token(const struct flyt_node *node, const void *token, size_t bytes);

/* What a server that comes back has to know: HMAC of the node's key, of what it says it is, and of its user where that
 * is one of its own. */
void flyt_node_server_secret(const struct flyt_node *node, uid_t uid, uint64_t server_id, uint64_t session_id,
                             uint64_t allocation_id, unsigned char *ret_secret);
/* Opens node->link_path, where servers come back. One node manager alone can have it: nothing of STATE_DIR is read or
 * written before. 0; -EADDRINUSE: another one runs; or another negative errno. */
int flyt_node_reattach_open(struct flyt_node *node);
/* Takes servers that come back, those that have knocked since it was opened first. 0 or a negative errno. */
int flyt_node_reattach_listen(struct flyt_node *node);
/* Who has come and has not said who it is goes. */
void flyt_node_reattach_fini(struct flyt_node *node);
/* Makes a server of one that came back, whose identity was checked; takes over pid_fd and link_fd in every case. NULL:
 * no memory. */
struct flyt_node_server *flyt_node_server_adopt(struct flyt_node *node, struct flyt_node_gpu *gpu, pid_t pid, uid_t uid,
                                                int pid_fd, int link_fd);

#endif
