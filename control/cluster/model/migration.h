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

/* One of the two sides of a migration. Within a node both are that node, which is ordered and asked as the source. */
struct flyt_migration_side {
    struct flyt_node *node;
    enum flyt_migration_standing standing;
    bool is_calling; /* an order about it is under way */
    unsigned called; /* the last one: its procedure, its end as such (cancel), and when */
    bool was_cancel;
    uint64_t called_ms, heard_ms; /* monotonic */
    bool has_registered;          /* since the allocation was recorded as this side's, or the documents were read */
    bool has_allocation;          /* then, as this side is to have it */
    flyt_migration_use use;       /* what it said last for itself; outcome.text NULL */
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
    bool is_between; /* two nodes; else its sides are one */
    enum flyt_move_state state;
    uint64_t write,
        write_ms;      /* the write that its state waits for: its number, 0: none yet; monotonic: when it began */
    bool has_figures;  /* of one that is done: what `use` says of it is whole, no restart has lost a part */
    bool is_cancelled; /* somebody wants it to fail, if it still can */
    flyt_status failed_status; /* why it fails, with `reason`; 0: it does not */
    uint64_t revision;         /* of the allocation as it was ordered; 0: not known (it was loaded) */
    uint64_t source_revision;  /* with which the source's documents have their entries once it has moved */
    uint64_t started_ms, ended_ms;
    flyt_migration_use use; /* what the source said last; outcome.text is `reason` */
    char reason[512];
    char remark[128];      /* what a side that is done has said of it */
    char *source, *target; /* "node:0,node:1" */
    struct flyt_migration_side sides[FLYT_MIGRATION_SIDES];
    /* Between nodes only. */
    unsigned char secret[FLYT_KEY_BYTES]; /* until both have it */
    unsigned stream_count, packing;       /* stream_count 0: these and the next are not known */
    bool is_encrypted;
    bool is_released;                /* the source has said that it has let go of what it had */
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
