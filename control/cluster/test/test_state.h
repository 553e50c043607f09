/* What the world's own files share: what it has of the store, of nodes and of orders. Who tests uses test_world.h. */
#ifndef FLYT_CLUSTER_TEST_STATE_H
#define FLYT_CLUSTER_TEST_STATE_H

#include <cjson/cJSON.h>
#include <systemd/sd-event.h>

#include "control/base/peer.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/test/test_world.h"

enum { MOVES = 16, SAVINGS = 16, ALLOCATIONS = 64, ORDERS = 256, TIMERS = 512, CONTENT_BYTES = 256 };
#define GIB (1ull << 30)

/* What a node has of an allocation. */
struct applied {
    uint64_t id, revision;
    char vm_ip[16], content[CONTENT_BYTES];
    unsigned gpu, sm_count;
    uint64_t groups, in_use;           /* bits; in_use: programs run there still */
    uint64_t memory_bytes, used_bytes; /* what it may have, and what its programs have, be that more still */
    enum flyt_allocation_state state;
};

struct order {
    unsigned procedure;
    uint64_t id, revision; /* of the allocation */
    uint64_t removed[8];   /* by FLYT_ORDER_APPLY, in place of a change */
    unsigned removed_count;
    uint64_t migration_id;
    bool is_cancel; /* of a drain: programs are to be ended; of a checkpoint: how far it is, is asked */
    struct applied wanted;
    flyt_call_done_fn done;
    void *user;
    uint64_t deadline_ms;
};

/* A node's part of a migration. */
struct move {
    uint64_t id, allocation_id;
    enum { WITHIN, INCOMING, OUTGOING } kind;
    flyt_migration_phase phase;
    struct applied wanted;
    uint64_t used_bytes; /* of programs that have left */
    bool is_idle;        /* no program uses it any more */
};

/* A checkpoint or a restore. */
struct saving {
    uint64_t id;
    flyt_saving_phase phase;
};

struct flyt_peer {
    struct world *world;
    unsigned node;
    bool is_vm; /* a client manager's; else a node's or an operator's */
    struct flyt_identity identity;
    void *user;
};

struct flyt_call {
    struct flyt_peer *peer;
    const char *what;
    bool is_registration;
    struct flyt_vm *vm; /* that is resized */
};

struct sd_event_source {
    uint64_t due_ms;
    sd_event_time_handler_t handler;
    void *user;
};

struct node {
    struct flyt_peer peer;
    struct flyt_link link;
    struct applied applied[ALLOCATIONS];
    struct order orders[ORDERS];
    unsigned order_count, needed_sms;
    struct move moves[MOVES];
    struct saving checkpoint_ops[SAVINGS];
    unsigned move_count, saving_count; /* ever; the last ones are kept */
    enum world_manner manner;
    bool has_died; /* with all that it had */
};

struct world {
    uint64_t random, now_ms;
    struct flyt_cluster_settings settings;
    struct flyt_cluster cluster;
    struct node nodes[WORLD_NODES];
    struct flyt_peer operator;
    struct flyt_link operator_link;
    struct flyt_peer client;
    struct flyt_link client_link;
    char told[256]; /* what a client manager was told last */
    /* the store */
    cJSON *gpus, *documents, *history, *refused; /* by uuid; by the VM's address; "id revision content" that was
                                                    written; id -> the last revision that a node refused */
    struct flyt_record *queue, *busy;
    struct flyt_record_waits left; /* their documents are written no more */
    cJSON *snapshot;
    struct job *jobs;
    struct sd_event_source *timers[TIMERS];
    unsigned calls;
    unsigned refusals;       /* of sizes, by nodes */
    bool is_given;           /* a GPU, to another node, by an operator */
    flyt_status last_status; /* of the last call that was answered */
    char last_text[256];
};

extern struct world *the_world; /* what the program calls has no other way to it */

/* ---- test_world.c ---- */

/* The loop goes on after a step: what is due happens, mostly. The model is compared. */
void world_turn(struct world *world);
/* A call of a peer, to be answered once. */
struct flyt_call *world_call_new(struct world *world, struct flyt_peer *peer, const char *what);

/* ---- test_store.c ---- */

/* Other work on the store's thread, none: false. */
bool world_run_job(struct world *world);
/* Who waits for a document that is written no more is told. */
void world_tell_left(struct world *world);
/* Of the write under way. */
void world_end_write(struct world *world, bool may_fail);

/* ---- test_node.c ---- */

/* Of what goes over the wire: it has one slot. */
struct applied world_applied_of(const flyt_allocation *wire);
/* What it takes of its GPU. */
uint64_t world_memory_of(const struct applied *applied);
/* NULL: the node has nothing of it. id 0: a free place. */
struct applied *world_find_applied(struct node *node, uint64_t id);
/* As a node does: a lower revision is stale, the same one is there already, programs keep the SMs that they are on. */
flyt_status world_take(struct world *world, unsigned node, const struct applied *wanted);
/* The answers to its orders do not arrive. */
void world_drop_orders(struct node *node, int error);
/* A registration is answered. */
void world_take_registration(struct world *world, struct node *node, const flyt_register_res *res);

/* ---- test_moves.c ---- */

/* NULL: the node has no such part of a migration; world_move_of: none that is under way. */
struct move *world_find_move(struct node *node, uint64_t id);
struct move *world_move_of(struct node *node, uint64_t allocation_id);
/* The memory that programs take on a GPU where they do not run yet. */
uint64_t world_memory_arriving(const struct world *world, unsigned node, unsigned gpu);
/* What orders do; move may be NULL, but for the first. */
flyt_status world_begin_move(struct node *node, const struct order *order);
flyt_status world_switch_move(struct world *world, unsigned node, struct move *move);
flyt_status world_cancel_move(struct node *node, struct move *move);
flyt_status world_send_back(struct world *world, struct node *node, struct move *move);
flyt_migration_use world_use_of(const struct move *move);

/* ---- test_compare.c ---- */

/* What of an allocation is compared, as text of at most CONTENT_BYTES. */
void world_content(char *content, const char *state, uint64_t groups, unsigned sm_count, uint64_t memory_bytes);
/* The entry of an allocation in a GPU's document has been written; what arrives there likewise. */
void world_entry_written(struct world *world, const cJSON *entry);
void world_arriving_written(struct world *world, const char *uuid, const cJSON *entry);
/* These fail the test: what a node is given was in the store as it is given; */
void world_assert_written(const struct world *world, const struct applied *given);
/* documents list what arrives before a node hears of it; */
void world_assert_arriving(const struct world *world, unsigned node, const char *uuid, uint64_t id);
/* they give an allocation to the other node before its programs are let go; */
void world_assert_given_away(const struct world *world, const struct move *move, unsigned node);
/* no two allocations' programs are on the same SMs of a node, and no GPU gives more than it has, */
void world_assert_apart(const struct world *world, unsigned node);
/* nor does the manager; */
void world_assert_model(struct world *world);
/* programs of an allocation are at one place; */
void world_assert_one_place(const struct world *world, uint64_t id);
/* at the end nodes, store and registry agree. */
void world_assert_agree(struct world *world);
/* Whether nothing waits, and nothing is under way. */
bool world_is_at_rest(struct world *world);

#endif
