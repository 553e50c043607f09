#ifndef FLYT_SERVER_RECEIVE_H
#define FLYT_SERVER_RECEIVE_H

#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

struct flyt_adopted_extents;
struct flyt_load_teller;
struct flyt_session;

/*
 * RECEIVE came, with its connections, 1 + order->streams.stream_count of them, which are taken over: receives, answers
 * the other server, and then the node manager where all is well (teller->done), and ends the connections. 0, or what
 * flyt_load_state fails with; also -ETIMEDOUT; -ECANCELED: the node manager has gone; -EIO: contents are not what was
 * sent.
 */
int flyt_receive(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                 const struct flyt_manager_link_receive *order, const int *fds, int link_fd,
                 const struct flyt_load_teller *teller, struct flyt_error *err);

/* The same where it cannot be begun, because of *err: the other server is told. */
void flyt_receive_not(struct flyt_session *session, const struct flyt_manager_link_receive *order, const int *fds,
                      const struct flyt_error *err);

#endif
