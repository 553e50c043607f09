/*
 * A VM's programs move to other GPUs, of their node or of another one, while they run (control/README.md, "Moving").
 * The cluster manager chooses the GPUs, charges them beside the present ones, records that in the documents of all of
 * them, orders the node (or both) to move, and follows what is said. When it is done, the parts on the target are the
 * allocation's; else all is as it was.
 *
 * What is recorded: the documents of the target's GPUs list the parts under `arriving`. When the programs have moved,
 * they list them under `allocations`, at a higher revision than the source's documents have them still, and these are
 * written without them afterwards. So of two entries of a part the one with the higher revision counts, and whoever
 * leads next finds what is under way whichever of the documents were written: it asks the node.
 *
 * While the node may move them, it gets no other order about that allocation; what has changed meanwhile follows.
 *
 * Between nodes the documents change sides before the programs do (FLYT_ORDER_RECEIVE in control.x has the order of
 * things): from then on the allocation is the target's, unless that says that it has failed; then they change back, at
 * a higher revision again. Nothing of what has been ordered is recorded: what is next follows from the documents and
 * from where both nodes say that they stand (flyt_migration_next).
 *
 * migration.c: the way of one in a node; migration_nodes.c: between nodes; migration_begin.c: whether;
 * migration_choose.c: where to; migration_document.c: in the store; migration_view.c: what is shown and told;
 * migration_rules.c: what nodes' words mean.
 */
#ifndef FLYT_CLUSTER_MIGRATION_H
#define FLYT_CLUSTER_MIGRATION_H

#include "control/cluster/cluster.h"
#include "control/cluster/migration_rules.h"

enum {
    FLYT_MIGRATIONS_SHOWN = 100, /* that are over */
    FLYT_MIGRATION_STREAMS = 4,  /* between nodes, where nobody says otherwise */
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
    struct flyt_held *held;
    struct flyt_call *call; /* of who asked for it, until it has begun; NULL: nobody waits */
    char who[FLYT_NAME_BYTES_MAX + 1];
    flyt_migration_bounds bounds; /* as asked for; 0: the node's own */
    bool is_forced;
    bool is_recorded;         /* in all documents: the node may be ordered */
    bool is_ordered;          /* the node may know of it */
    bool is_moved;            /* the parts are those on the target; `others` those on the source, still recorded */
    bool is_settling;         /* that is being written */
    bool has_figures;         /* of one that is done: what `use` says of it is whole, no restart has lost a part */
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
    /* Between nodes; is_between false: the rest is not used. */
    bool is_between;
    struct flyt_migration_side sides[FLYT_MIGRATION_SIDES]; /* the nodes are known in any case */
    unsigned char secret[FLYT_KEY_BYTES];                   /* until both have it */
    unsigned stream_count, packing;                         /* stream_count 0: these and the next are not known */
    bool is_encrypted;
    bool is_written;           /* the documents say what is_moved says; is_settling: they are being written */
    bool is_sent;              /* both nodes were ordered, or were to be by who led before: where they stand decides */
    bool is_told;              /* the VM, where its programs are */
    bool is_done;              /* they go on at the target; the source is to let go of what it has */
    flyt_status failed_status; /* why it fails, with `reason`; 0: it does not */
    uint64_t opened_us, switched_us; /* monotonic: the target let programs in; the source was told to let them go */
    char *from;                      /* while loading: the source's name, as entries have it */
    /* Parallel to the allocation's parts, and charged like them. card NULL while loading: not read yet. */
    struct flyt_part others[FLYT_SLOTS_MAX];
    bool is_arriving[FLYT_SLOTS_MAX]; /* while loading: others[i] was read under `arriving` */
};

/* What one is to be. */
struct flyt_migration_wish {
    const char *target; /* as in flyt_migrate_args, and so are the others */
    flyt_migration_bounds bounds;
    unsigned stream_count, packing;
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
/* One that was found in the documents, or whose node (NULL: any of them) has registered: that is asked how far it is.
 */
void flyt_migration_ask(struct flyt_held *held, const struct flyt_node *node);
/* The next step, where it waits for nothing: to be ordered, or its end to be written. */
void flyt_migration_go_on(struct flyt_held *held);
/* One of its nodes has registered; wire NULL: it does not have the allocation. */
void flyt_migration_registered(struct flyt_held *held, const struct flyt_node *node, const flyt_allocation *wire);
/* It is to fail, if it still can. */
void flyt_migration_cancel(struct flyt_held *held, const char *why);
/* The allocation is forgotten, and what it has on other GPUs with it. */
void flyt_migration_drop(struct flyt_held *held, const char *why, bool is_written);
/* Whether orders about the allocation have to wait. */
bool flyt_migration_holds_orders(const struct flyt_held *held);
/* Whether the node has something of it, or may have: as one of those between which its programs move. */
bool flyt_migration_is_on(const struct flyt_held *held, const struct flyt_node *node);
/* Whether it is too late to cancel it. */
bool flyt_migration_is_late(const struct flyt_migration *migration);
/* Those that nothing was heard of, and those whose documents could not be written; every second. */
void flyt_migration_tick(struct flyt_cluster *cluster);
/* Frees it alone: the registry is forgotten. Who waits is told. NULL is allowed. Returns NULL. */
struct flyt_migration *flyt_migration_free(struct flyt_migration *migration);

/* ---- migration.c, for migration_nodes.c ---- */

/* Who asked for it is told that it has begun. */
void flyt_migration_reply(struct flyt_held *held);
/* It is over, and gone: the source is free (migration->use says how it went), or all is as it was. */
void flyt_migration_end(struct flyt_held *held);
void flyt_migration_fail(struct flyt_held *held, flyt_status status, const char *text);
/* Counts anew what the GPUs of both sides have left. */
void flyt_migration_count(const struct flyt_held *held);

/* ---- migration_nodes.c: between nodes ---- */

/* It is recorded, and the source has what was ordered before. */
void flyt_migration_nodes_order(struct flyt_held *held);
/* The next step, where it waits for nothing. */
void flyt_migration_nodes_go_on(struct flyt_held *held);
/* How far it is, as one of the nodes says. */
void flyt_migration_nodes_heard(struct flyt_held *held, const struct flyt_node *node, const flyt_migration_use *use);
void flyt_migration_nodes_ask(struct flyt_held *held, const struct flyt_node *node);
void flyt_migration_nodes_registered(struct flyt_held *held, const struct flyt_node *node, const flyt_allocation *wire);
/* It is to fail, if it still can (is_cancelled). */
void flyt_migration_nodes_cancel(struct flyt_held *held);
/* Every second. */
void flyt_migration_nodes_tick(struct flyt_held *held);
/* The node is dead, or has ended all that it had. True: the allocation stays, at the other one or until that is known.
 */
bool flyt_migration_nodes_fenced(struct flyt_held *held, const struct flyt_node *node);
/* The allocation is forgotten at once: the nodes are told. */
void flyt_migration_nodes_drop(const struct flyt_held *held);
/* The node is not to have these allocations: what it still has of them goes. */
void flyt_migration_remove_strays(struct flyt_node *node, u_quad_t *ids, u_int count);
/* Where programs that ask now find those that run: the allocation's own parts and node, or those of the source. */
const struct flyt_part *flyt_migration_parts_now(const struct flyt_held *held, struct flyt_node **ret_node);

/* ---- migration_begin.c ---- */

/*
 * Where a VM's programs would move, in ret_others (as many as it has parts). FLYT_STATUS_OK; or why it cannot be, with
 * a sentence in *err.
 */
flyt_status flyt_migration_choose(struct flyt_held *held, const struct flyt_migration_wish *wish,
                                  struct flyt_part *ret_others, struct flyt_error *err);

/* ---- migration_choose.c ---- */

/* The same, of the GPUs alone: neither the allocation's state nor quotas are looked at. */
flyt_status flyt_migration_choose_gpus(const struct flyt_held *held, const struct flyt_migration_wish *wish,
                                       struct flyt_part *ret_others, struct flyt_error *err);
/* Whether what programs have goes encrypted to this node, which is not theirs. */
bool flyt_migration_is_encrypted(const struct flyt_held *held, const struct flyt_node *node);

/* ---- migration_document.c ---- */

/* An entry of `arriving`, NULL: nothing of it arrives on this GPU. */
cJSON *flyt_migration_entry(const struct flyt_held *held, const struct flyt_card *card);
/* Adds to an entry of either kind that the allocation moves. */
void flyt_migration_mark(const struct flyt_migration *migration, cJSON *entry);
/* From one GPU's document: an entry of `arriving`. */
int flyt_migration_load(struct flyt_card *card, const cJSON *entry);
/* Another entry, of `allocations`, of a part that was read already. 0, -EINVAL or -ENOMEM. */
int flyt_migration_load_twice(struct flyt_held *held, unsigned slot, const struct flyt_part *part, const cJSON *entry);
/* All documents were read. */
void flyt_migration_loaded(struct flyt_held *held);

/* ---- migration_view.c ---- */

/* "node:0,node:1" of as many parts; malloc'ed, NULL: no memory. */
char *flyt_migration_places(const struct flyt_part *parts, unsigned count);
/* "none", "lz4", "zstd", by number from 0; NULL: none of them. */
const char *flyt_migration_packing_name(unsigned packing);
/* As in the view "migrations". */
cJSON *flyt_migration_json(const struct flyt_migration *migration);
/* Tells how it ended (use.phase, reason): event, measurements, list. */
void flyt_migration_tell_end(struct flyt_migration *migration);
/* One that is over, of an event in the store. */
void flyt_migration_load_event(struct flyt_cluster *cluster, const char *kind, const char *after);
cJSON *flyt_migration_view(struct flyt_cluster *cluster, const char *selector);

#endif
