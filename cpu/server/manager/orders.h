/*
 * What the node manager orders while there is a session: taken from the link (manager.h) by the submission thread, and
 * handed to whoever carries it out.
 */
#ifndef FLYT_SERVER_ORDERS_H
#define FLYT_SERVER_ORDERS_H

struct flyt_part;
struct flyt_session;

/* Does what was ordered. Nothing where nothing was, or without a node manager. The submission thread. */
void flyt_orders_take(struct flyt_session *session);

extern const struct flyt_part flyt_orders_part;

#endif
