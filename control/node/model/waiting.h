/*
 * Programs that have connected and have no server yet (attach/pool.h): with a place, or held until there is one.
 */
#ifndef FLYT_NODE_WAITING_H
#define FLYT_NODE_WAITING_H

#include "control/node/model/node.h"
#include "control/node/model/ticket.h"

struct flyt_node_waiting {
    struct flyt_node_waiting *next;
    struct flyt_node_ticket ticket;
    int fd;
    bool is_held; /* there is no place for it yet */
    uint64_t until_ms, hold_until_ms;
    size_t bytes;
    unsigned char record[];
};
/* Programs that wait for a server or a place and are of this allocation, but for those whose sessions go on. */
unsigned flyt_node_waiting_count(const struct flyt_node *node, uint64_t allocation_id);
/* Those of these that were let in: each will be a session as soon as there is a server for it. */
unsigned flyt_node_waiting_admitted(const struct flyt_node *node, uint64_t allocation_id);
/* Programs of any allocation that were let in, have no server yet, and will have one of this GPU; of the allocation's
 * first GPU. Each has a client slot there. */
unsigned flyt_node_waiting_promised_on(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
unsigned flyt_node_waiting_promised(const struct flyt_node *node, const struct flyt_node_allocation *allocation);
/* Whether the client of this session, which goes on, waits for a server. */
bool flyt_node_waiting_has_client(const struct flyt_node *node, uint64_t session_id);
/* Whether the program at the other end of a connection has gone. */
bool flyt_node_waiting_has_hung_up(int fd);
/* The GPU on which a program of the allocation begins; NULL: the node has it no more. */
struct flyt_node_gpu *flyt_node_waiting_gpu(const struct flyt_node_allocation *allocation);
/* Those of its allocation that came before it, or before a newcomer (NULL): held ones, or all that began to wait. */
unsigned flyt_node_waiting_before(const struct flyt_node *node, uint64_t allocation_id,
                                  const struct flyt_node_waiting *newcomer, bool held_alone);

#endif
