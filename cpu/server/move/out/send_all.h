/*
 * Asking the client for everything that it has: calls that have returned to the program may still wait in the client's
 * own buffer (rpc/transport/channel.h). When it has answered, all that was issued before the notice reached it has
 * arrived, by the order of the channel, whatever its machine was busy with meanwhile.
 *
 * A client that was built before the notice is not asked: is_known is false, and what can be said is only for how long
 * nothing has come. One that does not run (it is stopped, its VM is) does not answer: who waits bounds that.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_SEND_ALL_H
#define FLYT_SERVER_SEND_ALL_H

#include <stdbool.h>
#include <stdint.h>

#include "flyt.h"

struct flyt_session;

/* All zero: not known. */
struct flyt_send_all {
    bool is_known;     /* the client's handshake has the row of the answer */
    uint64_t asked;    /* number of the last notice; they count from 1 */
    uint64_t answered; /* number of the last answer */
    uint64_t sequence; /* of the call that was the last answer */
};

/* Looks at what the client has in common with this build. */
void flyt_send_all_init(struct flyt_send_all *self, const flyt_handshake_res *res);

/* Sends the notice, with the loop's next flush. Its number; 0: it is not known, or the client has not read what was
 * sent before, and the server would wait for it, or the session is not going on yet (resume.h): to be tried again. */
uint64_t flyt_send_all_ask(struct flyt_session *session);

/* Whether this notice, or a later one, is answered: calls with lower numbers than *ret_sequence have all arrived. Some
 * may still be deferred. */
bool flyt_send_all_is_answered(const struct flyt_session *session, uint64_t number, uint64_t *ret_sequence);

#endif
