/*
 * Warm servers: so many for each GPU, started as they are used up, a few at once, and programs that wait for one.
 *
 * A program for which there is no place (the limit of its allocation or VM, or the GPU's client slots) is held: the one
 * before it may have ended without our having heard of it, as where a script begins one program after the other. It
 * gets the first place that is free, after those of its allocation that came earlier, and is refused when
 * node->attach->hold_ms have passed; or, while sessions of its allocation are known to end, so that it would get a
 * place of theirs, FLYT_NODE_WAIT_MS.
 */
#ifndef FLYT_NODE_POOL_H
#define FLYT_NODE_POOL_H

#include "control/node/link/server.h"
#include "flyt.h"

/* Starts what is missing, ends what is too much, refuses who has waited too long. Arms its own timer. */
void flyt_node_pool_fill(struct flyt_node *node);
/* What a program hears for a status of flyt_node_room_check. */
flyt_handshake_status flyt_node_pool_refusal(int status);
void flyt_node_pool_fini(struct flyt_node *node);

/* A program's connection for an allocation that has admitted it, or for a session of it that waits for its client
 * (ticket->session_id): to a warm server, now or within FLYT_NODE_WAIT_MS, or refused. Takes over fd. */
void flyt_node_pool_serve(struct flyt_node *node, struct flyt_node_allocation *allocation,
                          const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes);

/* A program's connection for which there is no place now, as `why` says: held, or refused at once where too many are.
 * Takes over fd. */
void flyt_node_pool_hold(struct flyt_node *node, const struct flyt_node_ticket *ticket, int fd, const void *record,
                         size_t bytes, const char *why);

#endif
