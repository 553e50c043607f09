/* What the files of the peer do with each of them: wake it, note that it is to end, arm a timer, let it go. */
#include "control/base/peer_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/base/loop.h"
#include "rpc/base/clock.h"

uint64_t flyt_peer_now_us(void)
{
    return flyt_clock_ns() / 1000;
}

struct flyt_peer *flyt_peer_unref(struct flyt_peer *peer)
{
    if (--peer->ref_count)
        return NULL;
    sd_event_unref(peer->config.event);
    free(peer);
    return NULL;
}

void flyt_peer_wake(struct flyt_peer *peer)
{
    if (peer->again)
        flyt_loop_again(peer->again);
    else if (peer->turns && peer->phase != FLYT_PEER_ENDED)
        flyt_peer_turns_wake(peer->turns, peer);
}

void flyt_peer_fail(struct flyt_peer *peer, int code, const char *format, ...)
{
    va_list values;

    if (peer->cause.code)
        return;
    peer->cause.code = code;
    va_start(values, format);
    vsnprintf(peer->cause.text, sizeof peer->cause.text, format, values);
    va_end(values);
    flyt_peer_wake(peer);
}

int flyt_peer_timer(struct flyt_peer *peer, sd_event_source **source, uint64_t after_ms,
                    sd_event_time_handler_t handler)
{
    if (!after_ms) {
        *source = sd_event_source_disable_unref(*source);
        return 0;
    }
    if (!*source)
        return sd_event_add_time_relative(peer->config.event, source, CLOCK_MONOTONIC, after_ms * 1000, 1000, handler,
                                          peer);
    int status = sd_event_source_set_time_relative(*source, after_ms * 1000);
    return status < 0 ? status : sd_event_source_set_enabled(*source, SD_EVENT_ONESHOT);
}
