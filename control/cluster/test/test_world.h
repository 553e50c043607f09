/*
 * A cluster manager's decisions in a world of its own: a store, nodes and callers that a test moves step by step, in
 * any order, on a clock of its own. What decides is the program's code (model, reconcile, the executor, the documents);
 * the store's thread, connections, timers and the log of events are this file's. After each step the world compares
 * what the nodes use with what they were ordered, that with what the store has had, and all of it with what there is.
 */
#ifndef FLYT_CLUSTER_TEST_WORLD_H
#define FLYT_CLUSTER_TEST_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "control/cluster/model/cluster.h"

enum {
    WORLD_NODES = 2,
    WORLD_GPUS = 2, /* of each node */
    WORLD_VMS = 5,
    WORLD_MEMORY_GIB = 5, /* of each GPU */
    WORLD_GROUPS = 8,     /* of each GPU, of 8 SMs each */
    WORLD_MOVE_MS = 7,    /* so long a move takes, as nodes say */
};

/* What a node does with orders that are no sizes. */
enum world_manner {
    WORLD_OBEYS,
    WORLD_REFUSES,
    WORLD_IS_OLD,   /* it does not know them */
    WORLD_IS_SHORT, /* of memory: it does not serve them */
};

struct world;

/* A seed makes the same world again. */
struct world *world_new(uint64_t seed);
/* Everything that waits is told; whoever was not answered by then fails the test. */
void world_free(struct world *world);
struct flyt_cluster *world_cluster(struct world *world);
unsigned world_random(struct world *world, unsigned below);
struct flyt_vm *world_vm(struct world *world, unsigned i);

/* ---- what callers do; each call is answered exactly once, or world_settle fails ---- */

void world_attach(struct world *world, unsigned vm);
/* Its client manager is connected from now on, the only one that is; and why one was told last what it has. */
void world_connect(struct world *world, unsigned vm);
const char *world_told(const struct world *world);
/* Asks what there is for it, and waits for nothing. */
void world_look(struct world *world, unsigned vm);
/* How many programs it has, and why it does not use the memory that it shares with its host. */
void world_vm_says(struct world *world, unsigned vm, unsigned programs, const char *why);
/* 0: not named. */
void world_resize(struct world *world, unsigned vm, unsigned sms, uint64_t memory_bytes, bool when_free,
                  unsigned timeout_ms);
/* gpu < 0: any of the node; sms 0: as it is. */
void world_migrate(struct world *world, unsigned vm, unsigned node, int gpu, unsigned sms);
void world_suspend(struct world *world, unsigned vm, bool is_suspended);
/* Edits the VM's document by hand; sms 0: deletes it. minimum_pct: it shares SMs in time; 0: they are its own. */
void world_document(struct world *world, unsigned vm, unsigned sms, unsigned gib, bool is_reserved,
                    unsigned minimum_pct);
void world_end(struct world *world, unsigned vm);
void world_drain(struct world *world, unsigned vm);
/* The orphan that a node has of the VM. */
void world_adopt(struct world *world, unsigned vm);

void world_checkpoint(struct world *world, unsigned vm, const char *folder);
void world_checkpoint_session(struct world *world, uint64_t session, const char *folder);
/* node >= WORLD_NODES: not named. */
void world_restore_images(struct world *world, unsigned node, const char *folder);
void world_cancel(struct world *world, unsigned vm);
void world_vm_device(struct world *world, unsigned vm, unsigned node, bool is_removal);
void world_fence(struct world *world, unsigned node, bool is_confirmed);
/* The other node's first GPU is this node's. */
void world_adopt_gpu(struct world *world, unsigned node);
/* Programs that have not left SMs that were taken away are ended, when timeout_ms are over. */
void world_drain_and_kill(struct world *world, unsigned vm, unsigned timeout_ms);
/* Of the last call that was answered: its status, and in *ret_text (NULL is allowed) its sentence. */
flyt_status world_last_status(const struct world *world, const char **ret_text);
/* It is this one, and its text names this. */
void world_must_have_said(const struct world *world, flyt_status status, const char *text);
/* A world with one VM, VM 0, that has 32 SMs and 1 GiB; *ret_node: where. */
struct world *world_with_vm(unsigned *ret_node);
/* How many items the array has, which is freed. */
int world_count(cJSON *array);
/* How many calls wait for an answer. */
unsigned world_waiting(const struct world *world);
/* No program uses the allocation at this node any more. */
void world_leave(struct world *world, unsigned node, uint64_t allocation_id);
/* How many orders of a size nodes have refused. */
unsigned world_refusals(const struct world *world);

/* ---- what happens ---- */

/* Whether the node has this allocation. */
bool world_has(const struct world *world, unsigned node, uint64_t allocation_id);
/* Store, nodes and loop go on until nothing is left to be done. */
void world_run(struct world *world);
void world_set_manner(struct world *world, unsigned node, enum world_manner manner);
/* A node tells of one session, id 1: of this allocation, that its launches have needed so many SMs, that it has opened
 * a library that no other node has. is_in_image: it was checkpointed to /images. */
void world_session(struct world *world, unsigned node, uint64_t allocation_id, unsigned needed_sms, bool is_in_image);
void world_gpu_health(struct world *world, unsigned node, unsigned gpu, unsigned health, const char *text);
/* The node dies with all that it has. */
void world_die(struct world *world, unsigned node);

/* The store's thread goes on: takes the next write, or ends the one that it has. may_fail: that may go wrong, and be in
 * the store all the same. Returns false where it has nothing to do. */
bool world_store(struct world *world, bool may_fail);
/* A node looks at the oldest order that it has: takes it, refuses it where its programs need more, or (may_fail) its
 * answer is lost. Returns false where there is none. */
bool world_answer(struct world *world, unsigned node, bool may_fail);
/* A node's parts of migrations go on, or (may_fail) go wrong, or are not told. Returns whether any has. */
bool world_move(struct world *world, unsigned node, bool may_fail);
/* A node's programs leave SMs, begin and end; then its heartbeat. */
void world_heartbeat(struct world *world, unsigned node);
/* A node's programs need so many SMs at least from now on, which it alone knows; 0: none. */
void world_need(struct world *world, unsigned node, unsigned sms);
void world_disconnect(struct world *world, unsigned node);
/* It registers, if it is not; claims: the first GPU of the other node is said to be its own. */
void world_register(struct world *world, unsigned node, bool claims);
/* All writes that wait fail. */
void world_refuse(struct world *world);
/* Another manager leads, from a store that was restored: it has no allocation. No node is connected to it yet. */
void world_restore(struct world *world);
/* Another manager leads, from what the store has: a write that is under way may be lost. No node is connected to it
 * yet. */
void world_takeover(struct world *world);
/* So much later; what is due by then happens, and the manager looks at everything. */
void world_pass(struct world *world, uint64_t ms);
/* Nothing fails any more, and everything comes to its end: no call waits, nothing is queued, and nodes, store and
 * registry say the same. Fails the test otherwise. */
void world_settle(struct world *world);

#endif
