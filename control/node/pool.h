/*
 * Warm servers: so many for each GPU, started as they are used up, a few at once, and programs that wait for one.
 */
#ifndef FLYT_NODE_POOL_H
#define FLYT_NODE_POOL_H

#include "control/node/server.h"
#include "flyt.h"

/* Starts what is missing, ends what is too much, refuses who has waited too long. Arms its own timer. */
void flyt_node_pool_fill(struct flyt_node *node);
/* A warm server of the GPU; NULL: there is none now. Its state is the caller's to change. */
struct flyt_node_server *flyt_node_pool_take(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
/* Ends the warm servers of a GPU, which are started anew: its group size has changed. */
void flyt_node_pool_renew(struct flyt_node *node, struct flyt_node_gpu *gpu);
/* What a program hears for a status of flyt_node_allocation_check. */
flyt_handshake_status flyt_node_pool_refusal(int status);
/* Programs that wait for a server and are of this allocation, but for those whose sessions go on. */
unsigned flyt_node_pool_waiting(const struct flyt_node *node, uint64_t allocation_id);
/* Whether the client of this session, which goes on, waits for a server. */
bool flyt_node_pool_has_resumed(const struct flyt_node *node, uint64_t session_id);
void flyt_node_pool_fini(struct flyt_node *node);

/* A program's connection for an allocation that has admitted it, or for a session of it that waits for its client
 * (ticket->session_id): to a warm server, now or within FLYT_NODE_WAIT_MS, or refused. Takes over fd. */
void flyt_node_pool_serve(struct flyt_node *node, struct flyt_node_allocation *allocation,
                          const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes);

/* A server became ready on the GPU; one failed, and why. */
void flyt_node_pool_ready(struct flyt_node *node, struct flyt_node_gpu *gpu);
void flyt_node_pool_failed(struct flyt_node *node, struct flyt_node_gpu *gpu, const char *why);

#endif
