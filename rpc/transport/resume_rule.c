#include "rpc/transport/resume_rule.h"

#include <stddef.h>

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

const char *flyt_resume_obstacle_for_ever(const struct flyt_resume_state *state)
{
    if (state->plain_awaited)
        return "a question was not answered";
    if (state->transfer_count)
        return "a transfer was under way";
    return state->is_torn ? "a message from the server was cut off" : NULL;
}

const char *flyt_resume_obstacle(const struct flyt_resume_state *state, uint64_t *ret_after)
{
    /* A server cannot have executed what it was not sent, whatever it says. */
    uint64_t after = smaller(state->complete, state->written);

    if (state->written > after && !state->is_moved)
        return "calls were not complete";
    if (state->awaited <= after)
        return "a call was not answered";
    const char *obstacle = flyt_resume_obstacle_for_ever(state);
    if (obstacle)
        return obstacle;
    if (state->gone > after)
        return "calls that were not executed are no longer kept";
    *ret_after = after;
    return NULL;
}

const char *flyt_resume_obstacle_of_record(const struct flyt_resume_state *state, const struct flyt_call_state *record,
                                           uint64_t last_fixed, uint64_t *ret_after)
{
    /* Behind the first answer that is missing everything that was begun would have to be executed twice. */
    uint64_t after = smaller(smaller(record->executed, state->written), state->awaited - 1);

    if (record->error_count > state->error_count)
        return "an error of a call was not heard of";
    if (last_fixed > record->executed)
        return "a call was being executed";
    if (last_fixed > after)
        return "a call was not answered";
    if (record->completed < after)
        return "calls were not complete";
    const char *obstacle = flyt_resume_obstacle_for_ever(state);
    if (obstacle)
        return obstacle;
    if (state->gone > after)
        return "calls that were not executed are no longer kept";
    *ret_after = after;
    return NULL;
}
