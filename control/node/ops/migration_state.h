/*
 * What the two kinds of migrations share (migration.c: within the node; send.c: to another one). Nobody else includes
 * this. The loop's thread.
 */
#ifndef FLYT_NODE_MIGRATION_STATE_H
#define FLYT_NODE_MIGRATION_STATE_H

#include "control/node/ops/migration.h"

/* One that is not under way yet, with bounds of which none is 0. NULL: no memory. */
struct flyt_node_migration *flyt_node_migration_new(struct flyt_node_allocation *allocation, uint64_t id,
                                                    const flyt_migration_bounds *wished);
/* With the allocation's sessions, if wanted. 0: it is under way; -ENOMEM: it is as it was, to be dismissed. */
int flyt_node_migration_begin(struct flyt_node_migration *migration, bool with_sessions);
/* Frees one that is not under way. */
void flyt_node_migration_dismiss(struct flyt_node_migration *migration);

void flyt_node_migration_set_phase(struct flyt_node_migration *migration, flyt_migration_phase phase);
/* It is to fail; the first reason counts. */
void flyt_node_migration_note_failure(struct flyt_node_migration *migration, flyt_status status, const char *text);

#endif
