/*
 * What sessions of one VM share: a session's server exports an extent under a token that its program has drawn, and
 * whoever of the same VM shows the token is handed the descriptor that the node manager holds of the extent. Sessions
 * of other VMs find nothing under it, whatever they show.
 *
 * | memory is                                                       | charged to           | who shows its token |
 * | --------------------------------------------------------------- | -------------------- | ------------------- |
 * | its session's                                                   | that session's entry | gets it             |
 * | freed there, or of a session that has ended, but others have it | the VM's entry       | is refused          |
 * | nobody's                                                        | nobody               | is refused          |
 *
 * The VM's entry is flyt_node_allocation_shared_entry.
 *
 * What others still have is there for them until they let go of it: taking it from under their kernels would end them,
 * and under MPS everybody else. An extent is known by its session and its id there, which both stay where the session
 * goes on at another server.
 *
 * An event is shared by its page, of which the node manager has a descriptor as long as its session has it: whoever
 * shows the token gets the page, and who has it by then keeps it. Nothing is charged.
 *
 * Where a VM's sessions go on at other servers, here or coming from another node, each makes again what it has: exports
 * first. What one wants again of another that has not come so far waits for that one: until it has exported it, or
 * nobody is left who might.
 *
 * The loop's thread.
 */
#ifndef FLYT_NODE_BROKER_H
#define FLYT_NODE_BROKER_H

#include <stdbool.h>
#include <stdint.h>

#include "control/node/model/server.h"
#include "rpc/transport/manager_link.h"

struct flyt_node;
struct flyt_node_allocation;
struct flyt_node_server;

enum {
    FLYT_NODE_SHARED_MAX = 4096,        /* exports, and imports, of one server */
    FLYT_NODE_SHARED_EVENTS_MAX = 1024, /* events that one server exports, and imports: a descriptor each */
    FLYT_NODE_WANTED_MAX = 1024,        /* questions of one server that wait */
};

/* EXPORT, EXPORT_GONE, IMPORT, IMPORT_HELD, IMPORT_GONE, EVENT_EXPORT, EVENT_IMPORT. fd is taken over; -1: none. */
void flyt_node_broker_on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *message,
                                 int fd);
/* An extent of the server's session has been let go of; its charge has not been taken back yet. */
void flyt_node_broker_extent_gone(struct flyt_node_server *server, uint64_t extent_id);
/* The server's process has gone; its session may go on at another. */
void flyt_node_broker_exit(struct flyt_node_server *server);
/* The session of a server has ended, and all its extents are let go of; its entries in the ledgers are still there. */
void flyt_node_broker_end(struct flyt_node_allocation *allocation, struct flyt_node_holding *has);
/* What the allocation's sessions want may be there now, or may not be waited for any more: one has said how far it is,
 * or has ended. */
void flyt_node_broker_look(const struct flyt_node_allocation *allocation);
/* Whether it has shared something, or has something of another's. */
bool flyt_node_broker_shares(const struct flyt_node_holding *has);
/* One of the allocation's that has memory which is not its own, and which its token does not name any more: it was
 * freed, or its session has ended. That cannot be had again elsewhere. NULL: none has. */
const struct flyt_node_session *flyt_node_broker_find_stray(const struct flyt_node_allocation *allocation);
/* The session goes on at another server, which has its extents. */
void flyt_node_broker_move(struct flyt_node_holding *from, struct flyt_node_server *to);
/* Nothing of it is known any more: the server is forgotten. No charge changes. */
void flyt_node_broker_free(struct flyt_node_holding *has);
/* All servers of before a restart have come back that will. */
void flyt_node_broker_settle_all(struct flyt_node *node);

/* Bytes of a slot that only sessions have whose own it is not. 0 or -ENOMEM. */
int flyt_node_broker_left_bytes(const struct flyt_node_allocation *allocation, unsigned slot, uint64_t *ret_bytes);

#endif
