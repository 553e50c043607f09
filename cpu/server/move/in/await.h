/*
 * A server that has received a session (receiving.h), has said so, and loses its node manager before it was given the
 * client: all of the session is here, and may be nowhere else by then. So it looks for the next node manager, as a
 * server does that serves a session (watch.h), and says what it is (REJOIN). One that takes it back hears what it has
 * heard before; one that does not has it end. It keeps nothing that came behind its word that all is there.
 *
 * Before there is a session; one thread. Nothing of the session runs.
 */
#ifndef FLYT_SERVER_AWAIT_H
#define FLYT_SERVER_AWAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/transport/manager_link.h"

struct flyt_adopted_extents;
struct flyt_session;

/* With what the session has on the GPU; then it ends. */
enum {
    FLYT_AWAIT_MS = 600000,        /* without a node manager, in all of each time that it waits */
    FLYT_AWAIT_ANSWER_MS = 660000, /* for the answer of one that is there, which waits for other servers before that,
                                      10 minutes at most (`rejoin`) */
};

/* How long to wait until a node manager is looked for again: by chance, so that not all servers come at once. */
uint64_t flyt_await_pause_ms(void);

/* Whether the server may wait. */
bool flyt_await_may(const struct flyt_session *session);
/*
 * The link has ended; the caller closes it. Waits until a node manager has taken the session back: away_ms at most
 * while there is none, which does not count while one is there, and answer_ms for what that says. *message is written
 * to. 0: *ret_link_fd is the link to it, the caller's; -ECANCELED: it does not want the session; -ETIMEDOUT: there was
 * none, or it has not answered.
 */
int flyt_await(struct flyt_session *session, struct flyt_adopted_extents *adopted,
               struct flyt_manager_link_message *message, uint64_t away_ms, uint64_t answer_ms, int *ret_link_fd);

#endif
