#include "control/node/link/time_slice_watch.h"

#include <inttypes.h>
#include <stdio.h>

#include "control/node/link/server.h"
#include "control/node/model/allocation.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/base/time_slices.h"

enum {
    GAP_MAX_MS = 4 * FLYT_NODE_TIME_SLICE_LOOK_MS, /* after a longer pause of this loop nothing is concluded from it */
    /* Of the time between two looks: what the two accounts may differ by, of one server that is right. */
    TOLERANCE_PCT = 10,
    CREDIT_US = 500 * 1000, /* what was said too much makes up for so much that was said too late */
};

static const uint64_t LIE_NS = FLYT_NODE_TIME_SLICE_LIE_MS * 1000000ull;

/* What is found of a server. */
struct look {
    struct flyt_node_server *server;
    struct flyt_time_slices *time_slices;
    struct flyt_node_time_slice_watch *watch;
    const struct flyt_time_slices_server *said;
    uint64_t now_ms, busy_us, said_us;
};

bool flyt_node_time_slice_watch_is_needed(const struct flyt_node *node)
{
    bool is_needed = false;

    for (unsigned i = 0; i < node->gpus.count; i++)
        is_needed |= node->gpus.items[i].time_slices != NULL;
    return is_needed;
}

/* ---- what is done about it ---- */

static void end(const struct look *look, enum flyt_node_watched watched, const char *event, const char *reason)
{
    struct flyt_node_server *server = look->server;

    flyt_warn("session %016" PRIx64 ": is ended: %s, vm=%s server_pid=%d", server->session->id, reason,
              flyt_node_server_allocation(server)->now.vm_ip, (int)server->pid);
    flyt_node_server_end_watched(server, watched, event, reason);
}

static void end_liar(const struct look *look)
{
    char reason[160];

    snprintf(reason, sizeof reason,
             "its server used its GPU for %" PRIu64 " ms though it said that it did not: outside its VM's time slice",
             (uint64_t)look->watch->unsaid_us / 1000);
    flyt_time_slices_charge(look->time_slices, look->said->server_id, (uint64_t)look->watch->unsaid_us * 1000);
    end(look, FLYT_NODE_WATCHED_OUT_OF_TIME_SLICE, "session.out_of_time_slice", reason);
}

static void end_keeper(const struct look *look)
{
    char reason[160];

    snprintf(reason, sizeof reason,
             "its server has kept its VM's time slice for %" PRIu64 " ms beyond its end, and did nothing on its GPU",
             look->said->over_ns / 1000000);
    end(look, FLYT_NODE_WATCHED_TIME_SLICE_KEPT, "session.time_slice_kept", reason);
}

/* Each time is counted; it is told now and then. */
static void tell_overdue(const struct look *look)
{
    struct flyt_node_time_slice_watch *watch = look->watch;
    struct flyt_node_server *server = look->server;
    bool is_overdue = look->said->over_ns >= LIE_NS;
    char id[20];

    if (is_overdue && !watch->is_overdue)
        server->node->time_slices_overdue++;
    bool is_news = is_overdue && !watch->is_overdue &&
                   (!watch->told_ms || look->now_ms - watch->told_ms >= FLYT_NODE_TIME_SLICE_TELL_MS);
    watch->is_overdue = is_overdue;
    if (!is_news)
        return;
    watch->told_ms = look->now_ms;
    snprintf(id, sizeof id, "%016" PRIx64, server->session->id);
    flyt_node_tell(server->node, "session.overdue", id,
                   "program %s of VM %s has had work on GPU %u for %" PRIu64
                   " ms after its time slice: others go on beside it, and its VM pays for it",
                   server->session->ticket.program, server->session->allocation->now.vm_ip, server->gpu->index,
                   look->said->over_ns / 1000000);
}

/* ---- what is concluded ---- */

static int64_t toward_zero(int64_t value, int64_t by)
{
    if (value > 0)
        return value > by ? value - by : 0;
    return -value > by ? value + by : 0;
}

static void judge(const struct look *look)
{
    struct flyt_node_time_slice_watch *watch = look->watch;
    const uint64_t span_us = (look->now_ms - watch->looked_ms) * 1000;
    uint64_t busy_us = look->busy_us - watch->busy_us;

    busy_us = busy_us < span_us ? busy_us : span_us; /* several contexts may have worked at once */
    if (busy_us)
        watch->worked_ms = look->now_ms;
    watch->unsaid_us += (int64_t)busy_us - (int64_t)(look->said_us - watch->said_us);
    watch->unsaid_us = toward_zero(watch->unsaid_us, (int64_t)(span_us * TOLERANCE_PCT / 100));
    if (watch->unsaid_us < -CREDIT_US)
        watch->unsaid_us = -CREDIT_US;
    if (look->said->is_stray && busy_us > span_us / 2) /* it has stopped; what it had given to the GPU goes on */
        flyt_time_slices_mark_over(look->time_slices, look->said->server_id);
    if (watch->unsaid_us > FLYT_NODE_TIME_SLICE_LIE_MS * 1000)
        end_liar(look);
    else if (look->said->is_kept && look->said->over_ns >= LIE_NS &&
             look->now_ms - watch->worked_ms >= FLYT_NODE_TIME_SLICE_LIE_MS)
        end_keeper(look);
}

/* Copying a session, the server itself uses the GPU, beside the time_slices. */
static bool is_exempt(const struct flyt_node_server *server)
{
    return server->state != FLYT_NODE_SERVER_SERVING || flyt_node_server_is_operated(server);
}

static void conclude(struct look *look, bool is_counted)
{
    struct flyt_node_time_slice_watch *watch = look->watch;
    bool can_compare = is_counted && !is_exempt(look->server) && watch->looked_ms &&
                       look->now_ms - watch->looked_ms <= GAP_MAX_MS && look->busy_us >= watch->busy_us &&
                       look->said_us >= watch->said_us;

    if (can_compare) {
        judge(look);
    } else {
        watch->unsaid_us = 0;
        watch->worked_ms = look->now_ms;
    }
    watch->busy_us = look->busy_us;
    watch->said_us = look->said_us;
    watch->looked_ms = is_counted ? look->now_ms : 0;
}

static void look_at(struct flyt_node *node, const struct flyt_node_gpu *gpu, const struct flyt_time_slices_server *said)
{
    struct flyt_node_server *server = node->servers;
    unsigned slot = 0;

    while (server && server->has.server_id != said->server_id)
        server = server->next;
    while (server && slot < FLYT_SLOTS_MAX && server->has.gpus[slot] != gpu)
        slot++;
    if (!server || !flyt_node_server_allocation(server) || slot == FLYT_SLOTS_MAX)
        return;
    struct look look = {.server = server,
                        .time_slices = gpu->time_slices,
                        .watch = &server->time_slice_watch[slot],
                        .said = said,
                        .now_ms = flyt_clock_ms(),
                        .said_us = said->said_ns / 1000};
    bool is_counted = flyt_node_gpu_account_busy(&node->account, gpu, server->pid, &look.busy_us);
    tell_overdue(&look);
    conclude(&look, is_counted);
}

void flyt_node_time_slice_watch_look(struct flyt_node *node)
{
    struct flyt_time_slices_server said[FLYT_TIME_SLICE_SERVERS_MAX];

    for (unsigned i = 0; i < node->gpus.count; i++) {
        const struct flyt_node_gpu *gpu = &node->gpus.items[i];
        unsigned count = gpu->time_slices ? flyt_time_slices_look(gpu->time_slices, said) : 0;
        for (unsigned j = 0; j < count; j++)
            look_at(node, gpu, &said[j]);
    }
}
