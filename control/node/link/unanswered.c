#include "control/node/link/unanswered.h"

#include "rpc/base/clock.h"

uint64_t flyt_node_retransmit_number(struct flyt_node_server *server)
{
    uint64_t now_ns = flyt_clock_ns(), last = server->unanswered.last_number;

    server->unanswered.last_number = now_ns > last ? now_ns : last + 1;
    return server->unanswered.last_number;
}

void flyt_node_unanswered_arm(struct flyt_node_server *server)
{
    uint64_t pause_ms = server->unanswered.pause_ms * 2;

    if (pause_ms < FLYT_NODE_RETRANSMIT_MIN_MS)
        pause_ms = FLYT_NODE_RETRANSMIT_MIN_MS;
    if (pause_ms > FLYT_NODE_RETRANSMIT_MAX_MS)
        pause_ms = FLYT_NODE_RETRANSMIT_MAX_MS;
    server->unanswered.pause_ms = pause_ms;
    server->unanswered.timer = sd_event_source_disable_unref(server->unanswered.timer);
    /* Without memory for it, the next order begins anew. */
    sd_event_add_time_relative(server->node->event, &server->unanswered.timer, CLOCK_MONOTONIC, pause_ms * 1000, 1000,
                               server->unanswered.on_time, server);
}

void flyt_node_retransmit_await(struct flyt_node_server *server)
{
    if (server->unanswered.timer || server->state == FLYT_NODE_SERVER_ENDING)
        return;
    server->unanswered.since_ms = flyt_clock_ms();
    server->unanswered.pause_ms = 0;
    server->unanswered.is_told = server->unanswered.is_probed = false;
    flyt_node_unanswered_arm(server);
}

void flyt_node_retransmit_answered(struct flyt_node_server *server)
{
    server->unanswered.since_ms = flyt_clock_ms();
    server->unanswered.is_told = server->unanswered.is_probed = false;
}
