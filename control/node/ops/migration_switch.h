/*
 * What an allocation is while it is migrated (migration.h), and at which moment it becomes another: the checks of the
 * order, the SM groups of both sides, the commit and its undoing; and which side there is after a restart of the node
 * manager that came in between. The loop's thread.
 */
#ifndef FLYT_NODE_MIGRATION_SWITCH_H
#define FLYT_NODE_MIGRATION_SWITCH_H

#include "control/node/ops/migration.h"

/* Whether the order can be carried out. OK and the allocation, or why not and *err. */
flyt_status flyt_node_switch_check(struct flyt_node *node, const flyt_order_migrate_args *args,
                                   struct flyt_node_allocation **ret_allocation, struct flyt_error *err);
/* Whether nothing else is under way with the allocation (NULL: there is none), and all of its programs are such as can
 * be moved, as far as that is known; how many there are. */
flyt_status flyt_node_switch_check_programs(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                            unsigned *ret_count, struct flyt_error *err);
/* 0, or -ENOTSUP and *err: one of the allocation's programs has memory of another one's that is not there any more for
 * who goes on elsewhere. */
int flyt_node_switch_check_shared(const struct flyt_node_allocation *allocation, struct flyt_error *err);
/* A session of the allocation that is in no move, and would be left behind; NULL: none is. */
const struct flyt_node_session *flyt_node_switch_find_left_out(const struct flyt_node_migration *migration);
/* How its sessions get to the devices that are wanted. The allocation, and what it is to be, are the node's. */
const struct flyt_node_way *flyt_node_switch_way(const struct flyt_node_allocation *allocation,
                                                 const flyt_allocation *wanted);

/* From now on nobody else is given what the allocation is to have. */
void flyt_node_switch_hold(struct flyt_node_migration *migration);
/* Writes the state file as it is to be after the commit, so that this takes no time then; `done` is told once. */
void flyt_node_switch_write_ahead(struct flyt_node_migration *migration, void (*done)(void *user, int status));
/* The state file gets the allocation as it is wanted, with limits that are those already; `done` is told once, and what
 * follows is _commit or _unwrite. 0; or a negative errno and *err: nothing has changed (-EBUSY: more memory is in use
 * than it is to have). */
int flyt_node_switch_write(struct flyt_node_migration *migration, void (*done)(void *user, int status),
                           struct flyt_error *err);
/* It was not written, or is not to be so any more: that is the caller's to save. */
void flyt_node_switch_unwrite(struct flyt_node_migration *migration);
/* The allocation is as was wanted; migration->wanted is what it was. What it has left is held. */
void flyt_node_switch_commit(struct flyt_node_migration *migration);
/* It is what it was again. Where that cannot be kept it is so nevertheless; that is logged. */
void flyt_node_switch_undo(struct flyt_node_migration *migration);
/* Whether no server of the allocation is about to end that uses what is held. */
bool flyt_node_switch_is_clear(const struct flyt_node_migration *migration);
/* What is held is free. */
void flyt_node_switch_release(struct flyt_node_migration *migration);

/*
 * After a restart: a server has come back, or none can any more. Servers on other devices than the allocation's state
 * names (server->came_with) are those of a migration whose commit was not followed by all: if there are none on the
 * state's devices, the allocation goes back to where its programs are; else these are ended.
 */
void flyt_node_switch_settle(struct flyt_node *node, struct flyt_node_allocation *allocation);

#endif
