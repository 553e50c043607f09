#include "control/node/attach/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/node/attach/attach.h"
#include "control/node/link/fault.h"
#include "control/node/link/starts.h"
#include "control/node/model/allocation.h"
#include "control/node/model/waiting.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/restore_check.h"
#include "control/node/ops/room.h"
#include "control/node/ops/send.h"
#include "control/node/ops/session_load.h"
#include "control/node/ops/target.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/transport/handshake.h"

enum { STARTS_MIN = 2, TICK_MS = 250, LACK_MS = 4000 };

#define TOO_MANY_WAIT "too many programs wait for a server process"

static void refuse(struct flyt_node *node, int fd, uint32_t xid, flyt_handshake_status status, const char *sentence)
{
    node->sessions_refused++;
    flyt_handshake_refuse(fd, xid, status, sentence);
    close(fd);
}

flyt_handshake_status flyt_node_pool_refusal(int status)
{
    return status == -EBUSY    ? FLYT_HANDSHAKE_BUSY
           : status == -ENODEV ? FLYT_HANDSHAKE_NO_DEVICE
                               : FLYT_HANDSHAKE_DENIED;
}

static void free_waiting(struct flyt_node_waiting *waiting)
{
    explicit_bzero(&waiting->ticket, sizeof waiting->ticket);
    free(waiting);
}

static unsigned starts_max(const struct flyt_node *node)
{
    cpu_set_t cpus;

    if (node->settings->starts_max)
        return (unsigned)node->settings->starts_max;
    int count = sched_getaffinity(0, sizeof cpus, &cpus) ? CPU_SETSIZE : CPU_COUNT(&cpus);
    return count > STARTS_MIN ? (unsigned)count : STARTS_MIN;
}

/* False while its programs stand still in a migration; after a restart, until its ledgers have come back, and as long
 * as servers that may still come back would leave no room for one more. */
static bool is_known(const struct flyt_node_allocation *allocation)
{
    return flyt_node_allocation_is_complete(allocation) && !flyt_node_operations_hold(allocation) &&
           !flyt_node_allocation_is_replaced(allocation) &&
           (!allocation->now.sessions_max || !flyt_node_allocation_absent(allocation) ||
            flyt_node_allocation_sessions(allocation) < allocation->now.sessions_max);
}

/* The client of a session that goes on, to a warm server of the GPU that it was on. False: there is none. */
static bool hand_over_session(struct flyt_node *node, const struct flyt_node_ticket *ticket, int fd, const void *record,
                              size_t bytes)
{
    struct flyt_node_session *session = flyt_node_replace_find(node, ticket->session_id);
    struct flyt_node_server *server = session ? flyt_node_replace_server(session) : NULL;

    return server && !flyt_node_replace_give(server, session, ticket, fd, record, bytes);
}

/* Hands over to any warm server. False: there is none, or it is not known yet whether the allocation has room. */
static bool hand_over(struct flyt_node *node, struct flyt_node_allocation *allocation,
                      const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes)
{
    struct flyt_node_server *server;

    if (ticket->session_id)
        return hand_over_session(node, ticket, fd, record, bytes);
    if (!is_known(allocation))
        return false;
    while ((server = flyt_node_starts_take(node, flyt_node_waiting_gpu(allocation))))
        if (!flyt_node_server_serve(server, allocation, ticket, fd, record, bytes))
            return true;
    return false;
}

/* A client that comes again has given up its connection of before. */
static void drop_earlier(struct flyt_node *node, uint64_t session_id)
{
    struct flyt_node_waiting **link = &node->waiting_first, *waiting, *last = NULL;

    while ((waiting = *link)) {
        if (waiting->ticket.session_id != session_id) {
            last = waiting;
            link = &waiting->next;
            continue;
        }
        *link = waiting->next;
        node->waiting_count--;
        refuse(node, waiting->fd, waiting->ticket.xid, FLYT_HANDSHAKE_BUSY, "the session's client came once more");
        free_waiting(waiting);
    }
    node->waiting_last = last;
}

/* At the end of those that wait; it is the caller's to count. NULL: no memory, and nothing has changed. */
static struct flyt_node_waiting *queue(struct flyt_node *node, const struct flyt_node_ticket *ticket, int fd,
                                       const void *record, size_t bytes)
{
    struct flyt_node_waiting *waiting = malloc(sizeof *waiting + bytes);

    if (!waiting)
        return NULL;
    *waiting = (struct flyt_node_waiting){
        .ticket = *ticket, .fd = fd, .until_ms = flyt_clock_ms() + FLYT_NODE_WAIT_MS, .bytes = bytes};
    memcpy(waiting->record, record, bytes);
    *(node->waiting_first ? &node->waiting_last->next : &node->waiting_first) = waiting;
    node->waiting_last = waiting;
    return waiting;
}

void flyt_node_pool_serve(struct flyt_node *node, struct flyt_node_allocation *allocation,
                          const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes)
{
    if (hand_over(node, allocation, ticket, fd, record, bytes)) {
        flyt_node_pool_fill(node);
        return;
    }
    if (ticket->session_id)
        drop_earlier(node, ticket->session_id);
    struct flyt_node_waiting *waiting =
        node->waiting_count < FLYT_NODE_WAITING_MAX ? queue(node, ticket, fd, record, bytes) : NULL;
    if (!waiting) {
        refuse(node, fd, ticket->xid, FLYT_HANDSHAKE_BUSY, TOO_MANY_WAIT);
        return;
    }
    node->waiting_count++;
    flyt_node_pool_fill(node);
}

/* ---- those that are held ---- */

void flyt_node_pool_hold(struct flyt_node *node, const struct flyt_node_ticket *ticket, int fd, const void *record,
                         size_t bytes, const char *why)
{
    struct flyt_node_waiting *waiting = NULL;

    if (node->held_count < FLYT_NODE_WAITING_MAX &&
        flyt_node_waiting_before(node, ticket->allocation_id, NULL, true) < FLYT_NODE_HELD_MAX)
        waiting = queue(node, ticket, fd, record, bytes);
    if (!waiting) {
        refuse(node, fd, ticket->xid, FLYT_HANDSHAKE_BUSY, why);
        return;
    }
    flyt_debug("a program is held: %s", why);
    waiting->is_held = true;
    waiting->hold_until_ms = flyt_clock_ms() + node->attach->hold_ms;
    node->held_count++;
    flyt_node_pool_fill(node);
}

/* Each session that ends makes room for one of those that are held, in their order. */
static bool is_worth_holding(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                             const struct flyt_node_waiting *waiting, uint64_t now_ms)
{
    if (now_ms < waiting->hold_until_ms)
        return true;
    return now_ms < waiting->until_ms && flyt_node_servers_ending(node, allocation) >
                                             flyt_node_waiting_before(node, allocation->now.id, waiting, true);
}

/* There is a place for it. 0, -EBUSY and *err. */
static int let_in(struct flyt_node *node, struct flyt_node_allocation *allocation, struct flyt_node_waiting *waiting,
                  struct flyt_error *err)
{
    if (node->waiting_count >= FLYT_NODE_WAITING_MAX)
        return flyt_error_set(err, -EBUSY, TOO_MANY_WAIT);
    int status = flyt_node_room_take(node, allocation, err);
    if (status)
        return status;
    waiting->is_held = false;
    node->held_count--;
    node->waiting_count++;
    return 0;
}

/* ---- settling ---- */

/* Who has a user of server_uids may end at any moment, but whoever waits is to hear the reason before he gives up. */
static bool is_hopeless(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                        const struct flyt_node_waiting *waiting, uint64_t now_ms)
{
    const struct flyt_node_starts *starts = &node->starts[flyt_node_waiting_gpu(allocation)->index];

    return starts->lacks_user && !starts->starting && now_ms + FLYT_NODE_WAIT_MS >= waiting->until_ms + LACK_MS;
}

static void refuse_late(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                        const struct flyt_node_waiting *waiting)
{
    const struct flyt_node_gpu *gpu = flyt_node_waiting_gpu(allocation);
    char sentence[512] = "programs of before the node manager's restart may still come back: try again";

    if (flyt_node_operations_hold(allocation))
        snprintf(sentence, sizeof sentence, "the programs of this VM are being moved: try again");
    else if (is_known(allocation))
        snprintf(sentence, sizeof sentence, "no server process became ready in time%s%.400s",
                 gpu->health != FLYT_HEALTH_OK ? ": " : "", gpu->health != FLYT_HEALTH_OK ? gpu->health_text : "");
    refuse(node, waiting->fd, waiting->ticket.xid, FLYT_HANDSHAKE_BUSY, sentence);
}

/* The same for the client of a session that goes on: nothing but that session decides. */
static bool settle_session(struct flyt_node *node, struct flyt_node_waiting *waiting, uint64_t now_ms)
{
    struct flyt_error err = {0};

    int status = flyt_node_replace_ask(node, waiting->ticket.session_id, &err);
    if (status) {
        refuse(node, waiting->fd, waiting->ticket.xid,
               status == -EBUSY ? FLYT_HANDSHAKE_BUSY : FLYT_HANDSHAKE_NO_SESSION, err.text);
        return true;
    }
    if (hand_over_session(node, &waiting->ticket, waiting->fd, waiting->record, waiting->bytes))
        return true;
    if (waiting->until_ms > now_ms)
        return false;
    refuse(node, waiting->fd, waiting->ticket.xid, FLYT_HANDSHAKE_BUSY,
           flyt_node_replace_find(node, waiting->ticket.session_id) ? "no server process became ready in time"
                                                                    : "the session's server process has not ended yet");
    return true;
}

/* Serves or refuses one of those that wait. False: it goes on waiting. */
static bool settle(struct flyt_node *node, struct flyt_node_waiting *waiting, uint64_t now_ms)
{
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, waiting->ticket.allocation_id);

    struct flyt_error err;

    if (waiting->ticket.session_id)
        return settle_session(node, waiting, now_ms);
    if (waiting->is_held && flyt_node_waiting_has_hung_up(waiting->fd)) {
        close(waiting->fd);
        return true;
    }
    if (!allocation || allocation->is_removed || !flyt_node_waiting_gpu(allocation)) {
        refuse(node, waiting->fd, waiting->ticket.xid, FLYT_HANDSHAKE_DENIED, "the allocation was taken back");
        return true;
    }
    if (flyt_node_migration_departed(allocation)) { /* who is denied asks its client manager once more */
        refuse(node, waiting->fd, waiting->ticket.xid, FLYT_HANDSHAKE_DENIED,
               "the programs of this VM go on at another node: ask where that is");
        return true;
    }
    if (allocation->now.generation != waiting->ticket.generation) {
        refuse(node, waiting->fd, waiting->ticket.xid, FLYT_HANDSHAKE_DENIED, "the ticket was revoked");
        return true;
    }
    unsigned before = waiting->is_held ? flyt_node_waiting_before(node, allocation->now.id, waiting, false) : 0;
    unsigned promised = waiting->is_held ? flyt_node_waiting_promised(node, allocation) : 0;
    int status = flyt_node_room_check(node, allocation, before, promised, &err);
    if (status == -EBUSY && waiting->is_held && is_worth_holding(node, allocation, waiting, now_ms))
        return false;
    if (!status && waiting->is_held)
        status = let_in(node, allocation, waiting, &err);
    if (status) {
        refuse(node, waiting->fd, waiting->ticket.xid, flyt_node_pool_refusal(status), err.text);
        return true;
    }
    if (hand_over(node, allocation, &waiting->ticket, waiting->fd, waiting->record, waiting->bytes))
        return true;
    if (waiting->until_ms <= now_ms || is_hopeless(node, allocation, waiting, now_ms)) {
        refuse_late(node, allocation, waiting);
        return true;
    }
    return false;
}

static void settle_all(struct flyt_node *node)
{
    uint64_t now_ms = flyt_clock_ms();
    struct flyt_node_waiting **link = &node->waiting_first, *waiting, *last = NULL;

    while ((waiting = *link)) {
        if (!settle(node, waiting, now_ms)) {
            last = waiting;
            link = &waiting->next;
            continue;
        }
        *link = waiting->next;
        --*(waiting->is_held ? &node->held_count : &node->waiting_count);
        free_waiting(waiting);
    }
    node->waiting_last = last;
}

static unsigned waiting_for(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_waiting *waiting = node->waiting_first; waiting; waiting = waiting->next) {
        const struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, waiting->ticket.allocation_id);
        count += allocation && flyt_node_waiting_gpu(allocation) == gpu && !waiting->is_held;
    }
    return count;
}

/* Servers that do not get ready, and warm ones beyond what is wanted: who was waited for may have gone. */
static void end_superfluous(struct flyt_node *node, struct flyt_node_gpu *gpu, unsigned target, uint64_t now_ms)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next) {
        if (server->gpu != gpu)
            continue;
        if (server->state == FLYT_NODE_SERVER_STARTING && now_ms - server->started_ms > FLYT_NODE_START_MS) {
            flyt_node_server_end(server, NULL);
            flyt_node_starts_failed(node, gpu, "a server process was not ready after 60 s");
        } else if (server->state == FLYT_NODE_SERVER_WARM && node->starts[gpu->index].warm > target) {
            flyt_node_server_end(server, NULL);
        }
    }
}

static void fill_gpu(struct flyt_node *node, struct flyt_node_gpu *gpu, uint64_t now_ms)
{
    struct flyt_node_starts *starts = &node->starts[gpu->index];
    unsigned wanted = waiting_for(node, gpu) + flyt_node_targets_wanted(node, gpu);
    unsigned target = (unsigned)node->settings->warm + wanted;

    end_superfluous(node, gpu, target, now_ms);
    /* A process that starts takes the driver, the disk and processors from those that are on their way. */
    if (flyt_node_targets_are_hasty(node))
        target = wanted;
    while (starts->warm + starts->starting < target && node->starting_count < starts_max(node) &&
           flyt_node_servers_on(node, gpu) < node->settings->client_slots &&
           node->server_count < FLYT_NODE_SERVERS_MAX && starts->after_ms <= now_ms &&
           !flyt_node_fault_is_clearing(node, gpu)) {
        int status = flyt_node_server_start(node, gpu);
        if (status == -EINPROGRESS) /* it is filled when that is known */
            return;
        if (status == -EUSERS)
            flyt_node_starts_lack_user(node, gpu);
        else if (status)
            flyt_node_starts_failed(node, gpu, "no server process can be started");
        if (status)
            return;
        starts->lacks_user = false;
    }
}

static bool needs_ticks(const struct flyt_node *node)
{
    if (node->waiting_first || node->starting_count)
        return true;
    for (unsigned i = 0; i < node->gpus.count; i++)
        if (node->starts[i].warm < node->settings->warm &&
            node->starts[i].warm + node->starts[i].serving < node->settings->client_slots)
            return true;
    return false;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    flyt_node_pool_fill(user);
    return 0;
}

void flyt_node_pool_fill(struct flyt_node *node)
{
    uint64_t now_ms = flyt_clock_ms();

    settle_all(node);
    flyt_node_targets_offer(node);
    for (unsigned i = 0; i < node->gpus.count; i++)
        fill_gpu(node, &node->gpus.items[i], now_ms);
    if (!node->attach->pool_timer && sd_event_add_time_relative(node->event, &node->attach->pool_timer, CLOCK_MONOTONIC,
                                                                TICK_MS * 1000, 10000, on_timer, node) < 0)
        return;
    sd_event_source_set_time_relative(node->attach->pool_timer, TICK_MS * 1000);
    sd_event_source_set_enabled(node->attach->pool_timer, needs_ticks(node) ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

void flyt_node_pool_fini(struct flyt_node *node)
{
    struct flyt_node_waiting *waiting;

    sd_event_source_disable_unref(node->attach->pool_timer);
    node->attach->pool_timer = NULL;
    while ((waiting = node->waiting_first)) {
        node->waiting_first = waiting->next;
        close(waiting->fd);
        free_waiting(waiting);
    }
    node->waiting_count = node->held_count = 0;
}
