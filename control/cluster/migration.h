/*
 * A VM's programs move to other GPUs of their node while they run (control/README.md, "Moving"). The cluster manager
 * chooses the GPUs, charges them beside the present ones, records that in the documents of all of them, orders the node
 * to move, and follows what the node says. When it has said DONE, the parts on the target are the allocation's; else
 * all is as it was.
 *
 * What is recorded: the documents of the target's GPUs list the parts under `arriving`. When the programs have moved,
 * they list them under `allocations`, at a higher revision than the source's documents have them still, and these are
 * written without them afterwards. So of two entries of a part the one with the higher revision counts, and whoever
 * leads next finds what is under way whichever of the documents were written: it asks the node.
 *
 * While the node may move them, it gets no other order about that allocation; what has changed meanwhile follows.
 *
 * migration.c: the way of one; migration_begin.c: whether and where to; migration_document.c: in the store;
 * migration_view.c: what is shown and told; migration_rules.c: what the node's word means.
 */
#ifndef FLYT_CLUSTER_MIGRATION_H
#define FLYT_CLUSTER_MIGRATION_H

#include "control/cluster/cluster.h"
#include "control/cluster/migration_rules.h"

enum { FLYT_MIGRATIONS_SHOWN = 100 /* that are over */ };

struct flyt_migration {
    uint64_t id;
    char id_text[17];
    struct flyt_held *held;
    struct flyt_call *call; /* of who asked for it, until it has begun; NULL: nobody waits */
    char who[FLYT_NAME_BYTES_MAX + 1];
    flyt_migration_bounds bounds;
    bool is_recorded;         /* in all documents: the node may be ordered */
    bool is_ordered;          /* the node may know of it */
    bool is_moved;            /* the parts are those on the target; `others` those on the source, still recorded */
    bool is_settling;         /* that is being written */
    bool is_cancelled;        /* it is to fail, if it still can */
    bool has_registered;      /* the node, since it was ordered or found in the documents */
    bool is_registered_there; /* when the node registered last, it had the allocation on the target */
    bool is_asking;           /* the node, how far it is */
    uint64_t revision;        /* of the allocation as it was ordered; 0: not known (it was loaded) */
    uint64_t source_revision; /* with which the source's documents have their entries once it has moved */
    uint64_t heard_ms;        /* monotonic: of the node, or when it was asked last */
    uint64_t started_ms, ended_ms;
    flyt_migration_use use; /* what the node said last; outcome.text is `reason` */
    char reason[512];
    char *source, *target; /* "node:0,node:1" */
    /* Parallel to the allocation's parts, and charged like them. card NULL while loading: not read yet. */
    struct flyt_part others[FLYT_SLOTS_MAX];
    bool is_arriving[FLYT_SLOTS_MAX]; /* while loading: others[i] was read under `arriving` */
};

/* What one is to be. */
struct flyt_migration_wish {
    const char *target; /* as in flyt_migrate_args */
    flyt_migration_bounds bounds;
    bool force;
    unsigned sm_count;     /* 0: as it is */
    uint64_t memory_bytes; /* likewise */
    const char *who;
};

/* ---- migration.c ---- */

/* Records it and has it begin; `others`: where to (flyt_migration_choose). `call` (NULL: none) is answered when the
 * node has taken the order, or where that cannot be. 0; -ENOMEM: nothing has happened, and the call is the caller's. */
int flyt_migration_start(struct flyt_held *held, const struct flyt_migration_wish *wish, const struct flyt_part *others,
                         struct flyt_call *call);
/* One that was found in the documents, or whose node has registered: the node is asked how far it is. */
void flyt_migration_ask(struct flyt_held *held);
/* The next step, where it waits for nothing: to be ordered, or its end to be written. */
void flyt_migration_go_on(struct flyt_held *held);
/* The node has registered; wire NULL: it does not have the allocation. */
void flyt_migration_registered(struct flyt_held *held, const flyt_allocation *wire);
/* It is to fail, if it still can. */
void flyt_migration_cancel(struct flyt_held *held, const char *why);
/* The allocation is forgotten, and what it has on other GPUs with it. */
void flyt_migration_drop(struct flyt_held *held, const char *why, bool is_written);
/* Whether orders about the allocation have to wait. */
bool flyt_migration_holds_orders(const struct flyt_held *held);
/* Those that nothing was heard of, and those whose documents could not be written; every second. */
void flyt_migration_tick(struct flyt_cluster *cluster);
/* Frees it alone: the registry is forgotten. Who waits is told. NULL is allowed. Returns NULL. */
struct flyt_migration *flyt_migration_free(struct flyt_migration *migration);

/* ---- migration_begin.c ---- */

/*
 * Where a VM's programs would move, in ret_others (as many as it has parts). FLYT_STATUS_OK; or why it cannot be, with
 * a sentence in *err.
 */
flyt_status flyt_migration_choose(struct flyt_held *held, const struct flyt_migration_wish *wish,
                                  struct flyt_part *ret_others, struct flyt_error *err);

/* ---- migration_document.c ---- */

/* An entry of `arriving`, NULL: nothing of it arrives on this GPU. */
cJSON *flyt_migration_entry(const struct flyt_held *held, const struct flyt_card *card);
/* From one GPU's document: an entry of `arriving`. */
int flyt_migration_load(struct flyt_card *card, const cJSON *entry);
/* Another entry of a part that was read already, of a migration with this id ("": none). 0, -EINVAL or -ENOMEM. */
int flyt_migration_load_twice(struct flyt_held *held, unsigned slot, const struct flyt_part *part, const char *id);
/* All documents were read. */
void flyt_migration_loaded(struct flyt_held *held);

/* ---- migration_view.c ---- */

/* "node:0,node:1" of as many parts; malloc'ed, NULL: no memory. */
char *flyt_migration_places(const struct flyt_part *parts, unsigned count);
/* As in the view "migrations". */
cJSON *flyt_migration_json(const struct flyt_migration *migration);
/* Tells how it ended (use.phase, reason): event, measurements, list. */
void flyt_migration_tell_end(struct flyt_migration *migration);
/* One that is over, of an event in the store. */
void flyt_migration_load_event(struct flyt_cluster *cluster, const char *kind, const char *after);
cJSON *flyt_migration_view(struct flyt_cluster *cluster, const char *selector);

#endif
