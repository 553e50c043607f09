/*
 * Waiting until nothing runs any more on SMs that were taken from a VM (FLYT_DRAIN): they stay charged to its
 * allocation until its node says so (flyt_allocation_has_emptied). When the caller's time is over, the node is asked
 * which programs these are, and ends them where that is wished; they are answered for when they have gone.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/drain.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/drain.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"

enum {
    KILL_MS = 20000, /* programs that are ended have gone by then */
    NAMED_MAX = 4,   /* programs that a sentence names */
    TIMEOUT_MAX_MS = 3600000,
};

struct flyt_drain {
    struct flyt_cluster *cluster;
    struct flyt_cluster_allocation *allocation; /* NULL: it has gone */
    struct flyt_call *call;                     /* NULL: answered */
    enum flyt_drain_state state;
    uint64_t due_ms; /* monotonic: the time of its state is over */
    sd_event_source *timer;
    bool kill;
    bool is_asking;            /* the node: its answer refers to this object */
    char failure[256];         /* why the node cannot say */
    flyt_order_drain_res told; /* the node's answer; owned */
    char who[FLYT_NAME_BYTES_MAX + 1];
    TAILQ_ENTRY(flyt_drain) entry;
};

/* Nothing is left, as far as the node's word on the present groups goes. */
static bool has_drained(const struct flyt_cluster_allocation *allocation)
{
    return allocation->applied_revision >= allocation->revision && !flyt_allocation_draining(allocation);
}

/* Once it is neither waited for nor in the node's hands. */
static void drain_release(struct flyt_drain *drain)
{
    if (drain->call || drain->is_asking)
        return;
    xdr_free((xdrproc_t)xdr_flyt_order_drain_res, &drain->told);
    free(drain);
}

static void answer(struct flyt_drain *drain, flyt_status status, const char *text)
{
    flyt_drain_res res = {.outcome = {status, (char *)text},
                          .sm_count = drain->allocation ? flyt_allocation_draining(drain->allocation) : 0,
                          .sessions = {drain->told.sessions.sessions_len, drain->told.sessions.sessions_val}};

    drain->timer = sd_event_source_disable_unref(drain->timer);
    if (drain->allocation)
        TAILQ_REMOVE(&drain->allocation->drains, drain, entry);
    drain->allocation = NULL;
    flyt_call_reply(drain->call, &res);
    drain->call = NULL;
    drain_release(drain);
}

/* "16 SMs draining: solver (pid 12), …" */
static void describe(const struct flyt_drain *drain, char *text, size_t bytes)
{
    const u_int count = drain->told.sessions.sessions_len;
    size_t used = (size_t)snprintf(text, bytes, "%u SMs draining", flyt_allocation_draining(drain->allocation));

    for (u_int i = 0; i < count && i < NAMED_MAX && used < bytes; i++) {
        const flyt_draining *one = &drain->told.sessions.sessions_val[i];
        used += (size_t)snprintf(text + used, bytes - used, "%s %s (pid %u)", i ? "," : ":", one->program_name,
                                 one->client_pid);
    }
    if (count > NAMED_MAX && used < bytes)
        snprintf(text + used, bytes - used, " and %u more", count - NAMED_MAX);
}

static void look(struct flyt_drain *drain);

static int on_late(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_drain *drain = user;

    drain->timer = sd_event_source_disable_unref(drain->timer);
    drain->due_ms = 0; /* the loop's clock may be behind */
    look(drain);
    return 0;
}

/* Its state lasts so long at most; without a timer it is looked at each second. */
static void arm(struct flyt_drain *drain, uint64_t ms)
{
    drain->due_ms = flyt_clock_ms() + ms;
    drain->timer = sd_event_source_disable_unref(drain->timer);
    if (ms)
        sd_event_add_time_relative(drain->cluster->event, &drain->timer, CLOCK_MONOTONIC, ms * 1000, 1000, on_late,
                                   drain);
}

static void tell_killed(const struct flyt_drain *drain)
{
    for (u_int i = 0; i < drain->told.sessions.sessions_len; i++) {
        const flyt_draining *one = &drain->told.sessions.sessions_val[i];
        char object[17];
        snprintf(object, sizeof object, "%016" PRIx64, (uint64_t)one->session_id);
        flyt_event_add(drain->cluster, "session.killed", drain->who, object, NULL, NULL,
                       "session %s (%s, pid %u) was ended: SMs that were taken from VM %s still had work of it", object,
                       one->program_name, one->client_pid, drain->allocation ? drain->allocation->vm_ip : "?");
    }
}

static void on_node_answer(void *user, int status, void *result)
{
    struct flyt_drain *drain = user;
    flyt_order_drain_res *res = result;

    drain->is_asking = false;
    if (!status && drain->call) {
        drain->told.sessions = res->sessions;
        memset(&res->sessions, 0, sizeof res->sessions); /* taken over */
    }
    if (status || res->outcome.status != FLYT_STATUS_OK)
        snprintf(drain->failure, sizeof drain->failure, "%.200s", status ? strerror(-status) : res->outcome.text);
    if (drain->call)
        look(drain);
    else
        drain_release(drain);
}

static void ask_node(struct flyt_drain *drain)
{
    const struct flyt_node *node = drain->allocation->node;
    const flyt_order_drain_args args = {
        .epoch = drain->cluster->epoch, .allocation_id = drain->allocation->id, .kill = drain->kill};
    int status = -ENOTCONN;

    if (node->is_registered)
        status =
            flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_DRAIN,
                           (xdrproc_t)xdr_flyt_order_drain_args, &args, (xdrproc_t)xdr_flyt_order_drain_res,
                           sizeof(flyt_order_drain_res), drain->cluster->settings->order_ms, on_node_answer, drain);
    drain->is_asking = !status;
    if (status)
        snprintf(drain->failure, sizeof drain->failure, "%s", strerror(-status));
}

static unsigned see(const struct flyt_drain *drain)
{
    return (has_drained(drain->allocation) ? FLYT_DRAIN_IS_EMPTY : 0) |
           (flyt_clock_ms() >= drain->due_ms ? FLYT_DRAIN_IS_LATE : 0) |
           (!drain->is_asking ? FLYT_DRAIN_IS_ANSWERED : 0) | (*drain->failure ? FLYT_DRAIN_IS_REFUSED : 0) |
           (drain->kill ? FLYT_DRAIN_KILLS : 0);
}

static void do_step(struct flyt_drain *drain, enum flyt_drain_step step)
{
    char text[512];

    switch (step) {
    case FLYT_DRAIN_WAIT:
        break;
    case FLYT_DRAIN_ASK:
        ask_node(drain);
        break;
    case FLYT_DRAIN_TELL_KILLED:
        tell_killed(drain);
        arm(drain, KILL_MS);
        break;
    case FLYT_DRAIN_SAY_DONE:
        answer(drain, FLYT_STATUS_OK, "");
        break;
    case FLYT_DRAIN_SAY_PROGRAMS:
        describe(drain, text, sizeof text);
        answer(drain, FLYT_STATUS_TIMEOUT, text);
        break;
    case FLYT_DRAIN_SAY_UNKNOWN:
        snprintf(text, sizeof text, "%u SMs draining; node %s cannot say of which programs%s: %s",
                 flyt_allocation_draining(drain->allocation), drain->allocation->node->key,
                 drain->kill ? ", and has ended none" : "", drain->failure);
        answer(drain, FLYT_STATUS_TIMEOUT, text);
        break;
    }
}

static void look(struct flyt_drain *drain)
{
    enum flyt_drain_step step;
    enum flyt_drain_state next;

    do {
        step = flyt_drain_next(drain->state, see(drain), &next);
        drain->state = next;
        do_step(drain, step);
    } while (step != FLYT_DRAIN_WAIT && next != FLYT_DRAIN_OVER);
}

void flyt_drain_look(struct flyt_cluster_allocation *allocation)
{
    struct flyt_drain *drain, *next;

    for (drain = TAILQ_FIRST(&allocation->drains); drain; drain = next) {
        next = TAILQ_NEXT(drain, entry);
        look(drain);
    }
}

void flyt_drain_end(struct flyt_cluster_allocation *allocation)
{
    struct flyt_drain *drain;
    bool has_gone = allocation->cluster->is_leader;

    while ((drain = TAILQ_FIRST(&allocation->drains))) {
        TAILQ_REMOVE(&allocation->drains, drain, entry);
        drain->allocation = NULL;
        answer(drain, has_gone ? FLYT_STATUS_OK : FLYT_STATUS_UNAVAILABLE,
               has_gone ? "" : "this cluster manager leads no longer");
    }
}

void flyt_serve_drain(struct flyt_call *call, void *data)
{
    const flyt_drain_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
        return;
    }
    struct flyt_cluster_allocation *allocation = vm->allocation;
    if (!allocation || has_drained(allocation)) {
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
        return;
    }
    struct flyt_drain *drain = calloc(1, sizeof *drain);
    if (!drain) {
        flyt_call_fail(call);
        return;
    }
    drain->cluster = cluster;
    drain->allocation = allocation;
    drain->call = call;
    drain->kill = args->kill;
    flyt_call_who(call, drain->who);
    TAILQ_INSERT_TAIL(&allocation->drains, drain, entry);
    arm(drain, args->timeout_ms < TIMEOUT_MAX_MS ? args->timeout_ms : TIMEOUT_MAX_MS);
    look(drain);
}
