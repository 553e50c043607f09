#include "rpc/transport/resume_rule.h"

#include <stddef.h>

const char *flyt_resume_obstacle(const struct flyt_resume_state *state, uint64_t *ret_after)
{
    /* A server cannot have executed what it was not sent, whatever it says. */
    uint64_t after = state->complete < state->written ? state->complete : state->written;

    if (state->written > after && !state->is_moved)
        return "calls were not complete";
    if (state->awaited <= after)
        return "a call was not answered";
    if (state->plain_awaited)
        return "a question was not answered";
    if (state->transfer_count)
        return "a transfer was under way";
    if (state->is_torn)
        return "a message from the server was cut off";
    if (state->gone > after)
        return "calls that were not executed are no longer kept";
    *ret_after = after;
    return NULL;
}
