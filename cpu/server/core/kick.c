#include <stdatomic.h>
#include <unistd.h>

#include "cpu/server/core/session.h"
#include "rpc/base/log.h"

void flyt_session_kick(struct flyt_session *session)
{
    if (atomic_exchange(&session->is_kicked, true))
        return;
    uint64_t one = 1;
    /* The counter cannot be full: the loop empties it before it lets the next kick through. */
    if (write(session->wake_fd, &one, sizeof one) < 0)
        flyt_fail("session %s: the submission thread cannot be woken: %m", session->label);
}
