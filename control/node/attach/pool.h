/*
 * Warm servers: so many for each GPU, started as they are used up, a few at once, and programs that wait for one.
 *
 * A program for which there is no place (the limit of its allocation or VM, or the GPU's client slots) is held: the one
 * before it may have ended without our having heard of it, as where a script begins one program after the other. It
 * gets the first place that is free, after those of its allocation that came earlier, and is refused when
 * node->hold_ms have passed; or, while sessions of its allocation are known to end, so that it would get a place of
 * theirs, FLYT_NODE_WAIT_MS.
 */
#ifndef FLYT_NODE_POOL_H
#define FLYT_NODE_POOL_H

#include "control/node/link/server.h"
#include "flyt.h"

/* Starts what is missing, ends what is too much, refuses who has waited too long. Arms its own timer. */
void flyt_node_pool_fill(struct flyt_node *node);
/* A warm server of the GPU; NULL: there is none now. Its state is the caller's to change. */
struct flyt_node_server *flyt_node_pool_take(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
/* Ends the warm servers of a GPU, which are started anew: its group size has changed. */
void flyt_node_pool_renew(struct flyt_node *node, struct flyt_node_gpu *gpu);
/* What a program hears for a status of flyt_node_allocation_check. */
flyt_handshake_status flyt_node_pool_refusal(int status);
/* Programs that wait for a server or a place and are of this allocation, but for those whose sessions go on. */
unsigned flyt_node_pool_waiting(const struct flyt_node *node, uint64_t allocation_id);
/* Those of these that were let in: each will be a session as soon as there is a server for it. */
unsigned flyt_node_pool_let_in(const struct flyt_node *node, uint64_t allocation_id);
/* Programs of any allocation that were let in, have no server yet, and will have one of this GPU; of the allocation's
 * first GPU. Each has a client slot there. */
unsigned flyt_node_pool_promised_on(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
unsigned flyt_node_pool_promised(const struct flyt_node *node, const struct flyt_node_allocation *allocation);
/* Whether the client of this session, which goes on, waits for a server. */
bool flyt_node_pool_has_resumed(const struct flyt_node *node, uint64_t session_id);
/* Whether the program at the other end of a connection has gone. */
bool flyt_node_pool_has_hung_up(int fd);
void flyt_node_pool_fini(struct flyt_node *node);

/* A program's connection for an allocation that has admitted it, or for a session of it that waits for its client
 * (ticket->session_id): to a warm server, now or within FLYT_NODE_WAIT_MS, or refused. Takes over fd. */
void flyt_node_pool_serve(struct flyt_node *node, struct flyt_node_allocation *allocation,
                          const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes);

/* A program's connection for which there is no place now, as `why` says: held, or refused at once where too many are.
 * Takes over fd. */
void flyt_node_pool_hold(struct flyt_node *node, const struct flyt_node_ticket *ticket, int fd, const void *record,
                         size_t bytes, const char *why);

/* A server became ready on the GPU; one failed, and why. */
void flyt_node_pool_ready(struct flyt_node *node, struct flyt_node_gpu *gpu);
void flyt_node_pool_failed(struct flyt_node *node, struct flyt_node_gpu *gpu, const char *why);

#endif
