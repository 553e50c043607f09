/*
 * What the files of a move share (move.h). Nobody else includes this.
 *
 *   move.c         its stages: who is awaited for how long, what follows from each end
 *   move_source.c  what the server is told that is left, and what it says; knows nothing of what the target is
 *   move_target.c  what the target is: a warm server of this node, which is prepared, makes memory and loads the state
 *   move_host.c    connections to the target, where the GPUs cannot reach each other's memory
 *   move_connect.c connections to another node, where the target is there
 *   move_client.c  the client comes: what the session has changes hands, and its connection is handed over
 *
 * The source's file reaches the target by flyt_node_move_target_library, _locks, _load and _compare alone; the target's
 * file reaches the source by flyt_node_move_source_mirror and _ask_locks alone.
 *
 * The loop's thread.
 */
#ifndef FLYT_NODE_MOVE_STATE_H
#define FLYT_NODE_MOVE_STATE_H

#include "control/node/ops/move.h"

/* ---- move.c ---- */

void flyt_node_move_set_stage(struct flyt_node_move *move, enum flyt_node_move_stage stage);
/* Notes a failure (a negative errno) and its sentence. The first one is the cause of what follows: others are not kept,
 * nor is one of a move that is over. */
__attribute__((format(printf, 3, 4))) void flyt_node_move_fail(struct flyt_node_move *move, int status,
                                                               const char *format, ...);
/* Whether a test lets this step fail (rpc/base/fault_point.h); it is noted then. */
bool flyt_node_move_is_made_to_fail(struct flyt_node_move *move, const char *point);
/* Whether its stage has lasted longer. */
bool flyt_node_move_is_late(const struct flyt_node_move *move, uint64_t limit_ms);
/* Queues a message for one of its servers; fd (-1: none) is taken over. Where that fails the move has failed, but for a
 * server that has gone: its end says so. */
void flyt_node_move_send(struct flyt_node_move *move, struct flyt_node_server *server,
                         const struct flyt_manager_link_message *message, int fd);

/* The same for a kind with several descriptors. */
void flyt_node_move_send_all(struct flyt_node_move *move, struct flyt_node_server *server,
                             const struct flyt_manager_link_message *message, const int *fds, unsigned fd_count);

/* ---- move_source.c ---- */

/* MOVE, as its migration is bounded; the descriptors of one of kind SEND are taken over, streams (else NULL) says what
 * they are. It is ASKED then. */
void flyt_node_move_source_ask(struct flyt_node_move *move, const struct flyt_manager_link_streams *streams,
                               const int *fds, unsigned fd_count);
/* MIRROR: the target has this memory. fd is taken over. */
void flyt_node_move_source_mirror(struct flyt_node_move *move, const struct flyt_manager_link_extent *extent, int fd);
/* LOCKS_WANTED: the target can lock ahead what is page-locked there. */
void flyt_node_move_source_ask_locks(struct flyt_node_move *move);
/* GO_ON instead of whatever else it was to be told. */
void flyt_node_move_source_go_on(struct flyt_node_move *move);
/* Nothing of the move is the source's any more. It may have gone already. */
void flyt_node_move_source_let_go(struct flyt_node_move *move);
/* The session has moved: everything that the source (NULL: it has gone) has is let go of, and it is ended; its SMs stay
 * its VM's until it has. */
void flyt_node_move_source_end(struct flyt_node_move *move);
/* What the source has said. fd (-1: none) is taken over. */
void flyt_node_move_source_on_message(struct flyt_node_move *move, const struct flyt_manager_link_message *told,
                                      int fd);
/* A server without a move, which came back with a session that it had been told to leave, has it again. */
void flyt_node_move_source_returned(struct flyt_node_server *server);
/* What a server without a move has said that came back with a session that it had been told to leave. */
void flyt_node_move_source_hear_returned(struct flyt_node_server *server, const struct flyt_manager_link_message *told);
/* The source's link was lost, and it has not left: it goes on by itself. NULL, or why it cannot. */
const char *flyt_node_move_source_goes_on(struct flyt_node_move *move);
/* TAKE_BACK: the session goes on at its source after all, which may have no move any more. 0: fd is taken over; else a
 * negative errno, and nothing has changed. */
int flyt_node_move_source_take_back(struct flyt_node_server *source, const struct flyt_node_ticket *ticket, int fd,
                                    const void *record, size_t bytes);

/* ---- move_connect.c ---- */

/* Begins to connect to the other node, or goes on with it, and hands the source its connections (MOVE) when all are
 * there. */
void flyt_node_move_connect(struct flyt_node_move *move);
/* Closes what there is of them. */
void flyt_node_move_disconnect(struct flyt_node_move *move);

/* ---- move_host.c ---- */

/* The target is prepared: it (RECEIVE) and the source (MOVE) are given the ends of FLYT_NODE_MOVE_HOST_STREAMS
 * connections for contents, and one for the image. */
void flyt_node_move_host_begin(struct flyt_node_move *move);

/* ---- move_target.c ---- */

/* For flyt_node_target_ops. WANTED: takes a target as soon as there is one and prepares it; fails where there will be
 * none. */
void flyt_node_move_target_look(struct flyt_node_target *target);
void flyt_node_move_target_prepared(struct flyt_node_target *target);
void flyt_node_move_target_made(struct flyt_node_target *target, const struct flyt_manager_link_made *made, int fd);
void flyt_node_move_target_unmade(struct flyt_node_target *target, uint64_t extent_id);
void flyt_node_move_target_loaded(struct flyt_node_target *target, const struct flyt_manager_link_prepared *prepared);
/* LIBRARY from the source: for the target, or kept until there is one. */
void flyt_node_move_target_library(struct flyt_node_move *move, const struct flyt_manager_link_message *told);
/* LOCKS from the source; fd (-1: none) is taken over. */
void flyt_node_move_target_locks(struct flyt_node_move *move, const struct flyt_manager_link_message *told, int fd);
void flyt_node_move_target_locked(struct flyt_node_target *target, const struct flyt_manager_link_locks_done *done);
/* STATE: what the session has beside its memory; fd is taken over. */
void flyt_node_move_target_load(struct flyt_node_move *move, int fd);
/* By way of the host: where the source has stopped and the target is LOADED, whether that has it all, as it was left.
 */
void flyt_node_move_target_compare(struct flyt_node_move *move);
/* Forgets what was made there, closing it, and what was kept for it. */
void flyt_node_move_target_forget(struct flyt_node_move *move);
/* The target's process has ended. */
void flyt_node_move_target_lose(struct flyt_node_move *move, struct flyt_node_server *target);

/* ---- move_client.c ---- */

/* Its target, which was given it, has gone: what that had of the session is the source's again. */
void flyt_node_move_undo_giving(struct flyt_node_move *move, struct flyt_node_server *target);

/* The source has new memory, which is held; it has it no more. */
void flyt_node_move_extent(struct flyt_node_server *server, const struct flyt_manager_link_extent *extent, int fd);
void flyt_node_move_extent_gone(struct flyt_node_server *server, uint64_t extent_id);
/* ---- its client ---- */

/* As of struct flyt_node_role_ops, of the source. */
void flyt_node_move_describe(const struct flyt_node_session *session, struct flyt_manager_link_resume *ret_resume);
bool flyt_node_move_given(struct flyt_node_session *session);
bool flyt_node_move_is_undecided(const struct flyt_node_session *session);
int flyt_node_move_charge(struct flyt_node_session *session, uint64_t target_id);
void flyt_node_move_charge_back(struct flyt_node_session *session, uint64_t target_id);

#endif
