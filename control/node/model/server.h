/*
 * One server process: started on a GPU, warm, then serving one session (session.h) of an allocation until it ends. The
 * node manager holds its socket (rpc/transport/manager_link.h), its pidfd, and a descriptor of each extent of device
 * memory that it has, which so outlives it. When the process is gone its extents are let go of, then its entries in the
 * ledgers.
 */
#ifndef FLYT_NODE_MODEL_SERVER_H
#define FLYT_NODE_MODEL_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "control/node/host/link_queue.h"
#include "control/node/model/node.h"
#include "control/node/model/session.h"
#include "rpc/transport/call_record.h"
#include "rpc/transport/manager_link.h"

/* ---- how it is watched ---- */

/* Of a server, for each slot: what its entry said when that could not be; looks 0: it could. */
struct flyt_node_memory_watch {
    uint64_t charged_bytes, reserved_bytes;
    unsigned looks;
};

/* Of a server, for each slot. All zero: it was not looked at. */
struct flyt_node_time_slice_watch {
    uint64_t looked_ms, busy_us, said_us; /* when it was looked at last, and what was found */
    int64_t unsaid_us;                    /* GPU time that it has not said; less than 0: it has said more than it had */
    uint64_t worked_ms;                   /* when its last GPU time was seen; or since when it is looked at */
    bool is_overdue;
    uint64_t told_ms; /* that it is; 0: never */
};

/* ---- its part in an operation ---- */

enum flyt_node_role_kind {
    FLYT_NODE_ROLE_MOVE,        /* its session is moved from it (ops/move.h) */
    FLYT_NODE_ROLE_MOVE_TARGET, /* and to it */
    FLYT_NODE_ROLE_SAVE,        /* its session is written to an image (ops/checkpoint.h) */
    FLYT_NODE_ROLE_LOAD,        /* a session is loaded into it (ops/session_load.h) */
    FLYT_NODE_ROLE_CHECK,       /* an image is tried in it (ops/restore_check.h) */
    FLYT_NODE_ROLE_REPLACE,     /* it is given a session that has lost its server (ops/replace.h) */
};

struct flyt_node_server;

/* What happens to a server is told to the operation that it has a part in; NULL: that does not concern it. */
struct flyt_node_role_ops {
    enum flyt_node_role_kind kind;
    /* MOVE_STATE, STOPPED, LEFT, LIBRARY, MADE, PREPARED. fd (-1: none) is taken over. */
    void (*on_message)(struct flyt_node_server *server, const struct flyt_manager_link_message *message, int fd);
    /* It has new memory, which is held; it has it no more. */
    void (*on_extent)(struct flyt_node_server *server, const struct flyt_manager_link_extent *extent, int fd);
    void (*on_extent_gone)(struct flyt_node_server *server, uint64_t extent_id);
    /* It has sent USE. */
    void (*on_use)(struct flyt_node_server *server);
    /* Its process has ended. True: its session waits for its client all the same, to be given to the server that was
     * prepared for it, and has this role; where it goes on elsewhere the server has none afterwards. */
    bool (*on_exit)(struct flyt_node_server *server);
    /* Somebody ends its session, wherever that is, for this reason; the server is ended then. */
    void (*on_end)(struct flyt_node_server *server, const char *reason);
    /* Whether it is the one of two that is not to be shown as its session's. */
    bool (*hides)(const struct flyt_node_server *server);

    /* Of an operation that has prepared a target for a session (flyt_node_target_owner), which is given to that one: */
    /* What RESUME says of it besides its extents. */
    void (*describe)(const struct flyt_node_session *session, struct flyt_manager_link_resume *ret_resume);
    /* Right before SESSION its entries in the ledgers become the target's, all or none: 0 or a negative errno. Never
     * NULL. */
    int (*charge)(struct flyt_node_session *session, uint64_t target_id);
    /* SESSION was not sent after all. NULL: the entries are the session's again, charged with what its extents have. */
    void (*charge_back)(struct flyt_node_session *session, uint64_t target_id);
    /* SESSION was sent. True: its memory was handed over. */
    bool (*given)(struct flyt_node_session *session);
    /* It ends; or (is_ended) somebody has ended it. */
    void (*forget)(struct flyt_node_session *session, bool is_ended);
    /* Whether its client can be given to nobody yet. NULL: it can. */
    bool (*is_undecided)(const struct flyt_node_session *session);
};

/* The first member of what an operation has of the server. */
struct flyt_node_role {
    const struct flyt_node_role_ops *ops;
};

/* NULL: there is none. */
static inline bool flyt_node_role_is_move(const struct flyt_node_role *role)
{
    return role && (role->ops->kind == FLYT_NODE_ROLE_MOVE || role->ops->kind == FLYT_NODE_ROLE_MOVE_TARGET);
}

/* What becomes of a session whose server has ended. */
enum flyt_node_session_fate {
    FLYT_NODE_SESSION_ENDS,
    FLYT_NODE_SESSION_IN_IMAGE,  /* it goes on from there */
    FLYT_NODE_SESSION_ELSEWHERE, /* at another node, which tells of it */
};

/* What the operations know of sessions and servers need to know; installed by them at the start (ops/sessions.h). */
struct flyt_node_session_ops {
    /* A server has begun a new session; one ends here. */
    void (*begun)(struct flyt_node_server *server);
    void (*ends)(const struct flyt_node_session *session);
    enum flyt_node_session_fate (*fate)(const struct flyt_node_session *session);
    /* Of a server without a role: as its on_message. Of every one: USE has come; its link has ended. */
    void (*on_message)(struct flyt_node_server *server, const struct flyt_manager_link_message *message, int fd);
    void (*on_use)(struct flyt_node_server *server);
    void (*on_link_end)(struct flyt_node_server *server);
    /* Whether a session that loses its server may wait for its client; its server's process has ended, and it begins
     * to.
     */
    bool (*may_wait)(const struct flyt_node_server *server);
    void (*wait)(struct flyt_node_server *server, const char *how);
    /* A server is about to be freed. */
    void (*forget)(struct flyt_node_server *server);
};

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
    FLYT_NODE_SERVER_PREPARING, /* is prepared for a session that is moved, or loaded, and is to be given it */
    FLYT_NODE_SERVER_LEFT,      /* keeps a session whose client is on its way elsewhere (move.h) */
};

struct flyt_node_start;

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
    bool is_to_reap;               /* a child that has ended */
    bool was_killed;
    bool outlives; /* the node manager, which ends, though it has no session of its own yet (session_load.h) */
    sd_event_source *pid_source, *link_source, *timer;
    uint64_t started_ms;
    uint32_t takes;                      /* enum flyt_manager_link_takes */
    char cgroup[FLYT_NODE_CGROUP_BYTES]; /* empty: none */

    /* Its session. */
    struct flyt_node_session *session; /* that it has, or is prepared for; NULL: none */
    struct flyt_node_holding has;      /* of the session; before it has that, its id alone */
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
        bool is_hit;       /* it ends for it */
        bool is_spared;    /* its process does, but its session had no part in it and may go on */
        bool is_late;      /* it was hit while its driver wrote a core dump: it tells when that is there, */
        uint64_t leave_ms; /* and ends then; 0: it has not told yet */
        char cause[128];
    } fault; /* fault.h */
    struct {
        bool is_written;   /* its driver writes one */
        uint64_t since_ms; /* when the first one was begun; 0: there was none */
        unsigned told_count;
    } coredumps; /* of the GPU (fault.h) */
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
        sd_event_time_handler_t on_time; /* retransmit.h */
        sd_event_source *timer;          /* while it has something to answer */
        uint64_t since_ms;               /* it has answered nothing; */
        uint64_t pause_ms;               /* the last pause before orders are sent again */
        bool is_told;                    /* an event has told so */
        bool is_probed;                  /* it was sent an order that everybody answers */
        uint64_t last_number;            /* of a LIMIT */
    } unanswered;                        /* orders (retransmit.h) */
    struct flyt_manager_link_need need;  /* for which it waits; number 0: for none */

    const struct flyt_call_record *record; /* what it executes; NULL: that is not known */

    struct flyt_node_link_queue queue;           /* of messages that it may not take at once */
    struct flyt_node_role *role;                 /* its part in an operation; NULL: it has none */
    uint64_t left_move_id;                       /* LEFT, come back after a restart: the move that it was left in */
    struct flyt_manager_link_session *came_with; /* come back with other devices than its allocation's; else NULL */
};

/* Whose session it has; NULL: it has none (yet, or any more). */
static inline struct flyt_node_allocation *flyt_node_server_allocation(const struct flyt_node_server *server)
{
    const struct flyt_node_session *session = server->session;
    bool has_it = session && (session->present == server || (session->is_given && session->target == server));

    return has_it ? session->allocation : NULL;
}

/* Of the session that it has, or is prepared for; 0: none. */
static inline uint64_t flyt_node_server_session_id(const struct flyt_node_server *server)
{
    return server->session ? server->session->id : 0;
}

/* It has a part in moving, writing or loading a session: what it has and does is not its program's alone. */
static inline bool flyt_node_server_is_operated(const struct flyt_node_server *server)
{
    return server->role && server->role->ops->kind != FLYT_NODE_ROLE_CHECK &&
           server->role->ops->kind != FLYT_NODE_ROLE_REPLACE;
}

/* It is the one of two that is not to be shown as its session's. */
static inline bool flyt_node_server_is_hidden(const struct flyt_node_server *server)
{
    return (server->session && server->session->has_gone) ||
           (server->role && server->role->ops->hides && server->role->ops->hides(server));
}

/* Whether it is one of the allocation's that carry out what changes: it has a session, which is not on its way
 * elsewhere. */
static inline bool flyt_node_server_listens(const struct flyt_node_server *server,
                                            const struct flyt_node_allocation *allocation)
{
    return flyt_node_server_allocation(server) == allocation && server->state != FLYT_NODE_SERVER_LEFT &&
           !server->came_with;
}

#endif
