/* Migrations in the registry. */
#ifndef FLYT_CLUSTER_MODEL_MIGRATION_H
#define FLYT_CLUSTER_MODEL_MIGRATION_H

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/migration_rules.h"

struct flyt_node;

enum {
    FLYT_MIGRATIONS_SHOWN = 100, /* that are over */
    FLYT_MIGRATION_STREAMS = 4,  /* between nodes, where nobody says otherwise */
};

/*
 * How far a migration is; `to target`, `to source`: the documents are being written, of both sides.
 *
 *   within a node:
 *     recording ──► recorded ──► ordered ──► to target ──► over
 *   between nodes:
 *     recording ──► recorded ──► ordered ──► sent ──► to target ──► committed ──► left ──► releasing ──► over
 *                                             ▲                         │          │
 *                                             └────── to source ◄───────┴──────────┘
 *     sent ──► withdrawn ──► sent: while the target is away, and the programs are where they were
 *
 * Until `to target` it may also end where it is: all stays as it was. Found in the documents, it begins with ordered,
 * to source or to target, as they say.
 */
enum flyt_move_state {
    FLYT_MOVE_RECORDING, /* it is being written: nobody knows of it */
    FLYT_MOVE_RECORDED,  /* the node is to have all that was ordered before */
    FLYT_MOVE_ORDERED,   /* the node, or the target's, may know of it */
    FLYT_MOVE_SENT,      /* both nodes may: where they stand decides (flyt_migration_next) */
    FLYT_MOVE_WITHDRAWN, /* it has failed; the target is away, and what it may have stays charged until it is back */
    FLYT_MOVE_TO_SOURCE,
    FLYT_MOVE_TO_TARGET, /* from here on the parts are those on the target; `others` those on the source */
    FLYT_MOVE_COMMITTED, /* the source is to let the programs go */
    FLYT_MOVE_LEFT,      /* it has, and the VM was told where they are */
    FLYT_MOVE_RELEASING, /* they go on at the target; the source is to let go of what it has */
};

/* One of the two nodes of a migration between nodes. */
struct flyt_migration_side {
    struct flyt_node *node;
    enum flyt_migration_standing standing;
    bool is_calling; /* an order about it is under way */
    unsigned called; /* the last one: its procedure, its end as such (cancel), and when */
    bool was_cancel;
    uint64_t called_ms, heard_ms; /* monotonic */
    bool has_registered;          /* since the allocation was recorded as this node's, or the documents were read */
    bool has_allocation;          /* then */
    flyt_migration_use use;       /* what it said last; outcome.text NULL */
    uint64_t use_us;              /* monotonic: when it said that, but for what a restart has lost; 0: it has not */
};

struct flyt_migration {
    uint64_t id;
    char id_text[17];
    struct flyt_cluster_allocation *allocation;
    struct flyt_call *call; /* of who asked for it, until it has begun; NULL: nobody waits */
    char who[FLYT_NAME_BYTES_MAX + 1];
    flyt_migration_bounds bounds; /* as asked for; 0: the node's own */
    bool is_forced;
    enum flyt_move_state state;
    uint64_t write,
        write_ms;        /* the write that its state waits for: its number, 0: none yet; monotonic: when it began */
    bool has_figures;    /* of one that is done: what `use` says of it is whole, no restart has lost a part */
    bool is_cancelled;   /* it is to fail, if it still can */
    bool has_registered; /* the node, since it was ordered or found in the documents */
    bool is_registered_there; /* when the node registered last, it had the allocation on the target */
    bool is_asking;           /* the node, how far it is */
    uint64_t revision;        /* of the allocation as it was ordered; 0: not known (it was loaded) */
    uint64_t source_revision; /* with which the source's documents have their entries once it has moved */
    uint64_t heard_ms;        /* monotonic: of the node, or when it was asked last */
    uint64_t started_ms, ended_ms;
    flyt_migration_use use; /* what the node said last; outcome.text is `reason` */
    char reason[512];
    char *source, *target; /* "node:0,node:1" */
    /* Between nodes; is_between false: the rest is not used. */
    bool is_between;
    struct flyt_migration_side sides[FLYT_MIGRATION_SIDES]; /* the nodes are known in any case */
    unsigned char secret[FLYT_KEY_BYTES];                   /* until both have it */
    unsigned stream_count, packing;                         /* stream_count 0: these and the next are not known */
    bool is_encrypted;
    flyt_status failed_status;       /* why it fails, with `reason`; 0: it does not */
    uint64_t opened_us, switched_us; /* monotonic: the target let programs in; the source was told to let them go */
    char *from;                      /* while loading: the source's name, as entries have it */
    /* Parallel to the allocation's parts, and charged like them. GPU NULL while loading: not read yet. */
    struct flyt_cluster_slot others[FLYT_SLOTS_MAX];
    bool is_arriving[FLYT_SLOTS_MAX]; /* while loading: others[i] was read under `arriving` */
};

/* What one is to be. */
struct flyt_migration_desired {
    const char *target; /* as in flyt_migrate_args, and so are the others */
    flyt_migration_bounds bounds;
    unsigned stream_count, packing;
    bool force;
    unsigned sm_count;     /* 0: as it is */
    uint64_t memory_bytes; /* likewise */
    const char *who;
};

/* What is seen of one: of what it asked the store and its nodes for. */
enum flyt_move_seen {
    FLYT_MOVE_IS_WRITTEN = 1 << 0, /* the write that its state waits for is in all documents */
    FLYT_MOVE_HAS_FAILED = 1 << 1, /* it is not */
    FLYT_MOVE_IS_DUE = 1 << 2,     /* it is time to write again */
    FLYT_MOVE_IS_CANCELLED = 1 << 3,
    FLYT_MOVE_IS_READY = 1 << 4,  /* the node has all that was ordered before */
    FLYT_MOVE_IS_SILENT = 1 << 5, /* its node has said nothing of it for long */
    FLYT_MOVE_IS_BETWEEN = 1 << 6,
    FLYT_MOVE_IS_BACK = 1 << 7, /* the target can be asked, or is known to have nothing; no order is under way */
};

enum flyt_move_step {
    FLYT_MOVE_WAIT,
    FLYT_MOVE_BEGIN, /* it is recorded: that is told */
    FLYT_MOVE_FAIL_UNRECORDED,
    FLYT_MOVE_FAIL_CANCELLED,
    FLYT_MOVE_FAIL_LATE,
    FLYT_MOVE_ORDER,
    FLYT_MOVE_ASK,
    FLYT_MOVE_WRITE,   /* again */
    FLYT_MOVE_END,     /* within a node: the source is free */
    FLYT_MOVE_COMMIT,  /* between nodes: the documents are the target's, */
    FLYT_MOVE_RETURN,  /* or the source's again */
    FLYT_MOVE_RESUME,  /* the target is to say what it has */
    FLYT_MOVE_COMPARE, /* where both nodes stand decides (flyt_migration_next) */
    FLYT_MOVE_RELEASE,
};

/* What is next of one in this state; seen: of enum flyt_move_seen. Pure. */
enum flyt_move_step flyt_move_next(enum flyt_move_state state, unsigned seen);
/* The parts are those on the target. */
bool flyt_migration_is_moved(const struct flyt_migration *migration);
/* Goes on to a state that follows the present one; any other one is a mistake of the program. */
void flyt_migration_set_state(struct flyt_migration *migration, enum flyt_move_state state);
/* Whether orders about the allocation have to wait. */
bool flyt_migration_holds_orders(const struct flyt_cluster_allocation *allocation);
/* It has failed, and its target is away. */
bool flyt_migration_is_withdrawn(const struct flyt_cluster_allocation *allocation);
/* Whether the target of one between nodes, to which the allocation was not given, may have something of it. */
bool flyt_migration_may_be_at_target(const struct flyt_cluster_allocation *allocation);
/* Whether it is not known what its nodes have of the allocation: who registers keeps what he has. */
bool flyt_migration_is_open(const struct flyt_cluster_allocation *allocation);
/* Whether the node has something of it, or may have: as one of those between which its programs move. */
bool flyt_migration_is_on(const struct flyt_cluster_allocation *allocation, const struct flyt_node *node);
/* Whether it is too late to cancel it. */
bool flyt_migration_is_late(const struct flyt_migration *migration);
/* Whether its programs may be at the source still, or have left: the source lets nobody in who has not been there. */
bool flyt_migration_is_leaving(const struct flyt_cluster_allocation *allocation);
/* Where programs that ask now find those that run: the allocation's own parts and node, or those of the source. */
const struct flyt_cluster_slot *flyt_migration_parts_now(const struct flyt_cluster_allocation *allocation,
                                                         struct flyt_node **ret_node);
/* "node:0,node:1" of as many parts; malloc'ed, NULL: no memory. */
char *flyt_migration_places(const struct flyt_cluster_slot *slots, unsigned count);
/* By number, NULL behind the last. */
extern const char *const flyt_migration_packing_names[];
/* NULL: none of them. */
const char *flyt_migration_packing_name(unsigned packing);

#endif
