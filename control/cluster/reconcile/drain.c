/*
 * Waiting until nothing runs any more on SMs that were taken from a VM (FLYT_DRAIN): they stay charged to its
 * allocation until its node says so (flyt_held_has_emptied). When the caller's time is over, the node is asked which
 * programs these are, and ends them where that is wished; they are answered for when they have gone.
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
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/drain.h"
#include "rpc/base/error.h"

enum {
    KILL_MS = 20000, /* programs that are ended have gone by then */
    NAMED_MAX = 4,   /* programs that a sentence names */
    TIMEOUT_MAX_MS = 3600000,
};

struct flyt_drain {
    struct flyt_cluster *cluster;
    struct flyt_held *held; /* NULL: it has gone */
    struct flyt_call *call; /* NULL: answered */
    sd_event_source *timer;
    bool kill;
    bool is_asking; /* the node: its answer refers to this object */
    bool is_asked;
    flyt_order_drain_res told; /* the node's answer; owned */
    char who[FLYT_NAME_BYTES_MAX + 1];
    TAILQ_ENTRY(flyt_drain) entry;
};

unsigned flyt_held_draining(const struct flyt_held *held)
{
    unsigned sms = 0;

    for (unsigned i = 0; i < held->part_count; i++)
        if (held->parts[i].card)
            sms += flyt_capacity_sms(flyt_gpu_capacity(held->parts[i].card), &held->parts[i].leaving);
    return sms;
}

/* Nothing is left, as far as the node's word on the present groups goes. */
static bool has_drained(const struct flyt_held *held)
{
    return held->applied_revision >= held->revision && !flyt_held_draining(held);
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
                          .sm_count = drain->held ? flyt_held_draining(drain->held) : 0,
                          .sessions = {drain->told.sessions.sessions_len, drain->told.sessions.sessions_val}};

    drain->timer = sd_event_source_disable_unref(drain->timer);
    if (drain->held)
        TAILQ_REMOVE(&drain->held->drains, drain, entry);
    drain->held = NULL;
    flyt_call_reply(drain->call, &res);
    drain->call = NULL;
    drain_release(drain);
}

/* "16 SMs draining: solver (pid 12), …" */
static void describe(const struct flyt_drain *drain, char *text, size_t bytes)
{
    const u_int count = drain->told.sessions.sessions_len;
    size_t used = (size_t)snprintf(text, bytes, "%u SMs draining", flyt_held_draining(drain->held));

    for (u_int i = 0; i < count && i < NAMED_MAX && used < bytes; i++) {
        const flyt_draining *one = &drain->told.sessions.sessions_val[i];
        used += (size_t)snprintf(text + used, bytes - used, "%s %s (pid %u)", i ? "," : ":", one->program_name,
                                 one->client_pid);
    }
    if (count > NAMED_MAX && used < bytes)
        snprintf(text + used, bytes - used, " and %u more", count - NAMED_MAX);
}

static int on_late(sd_event_source *source, uint64_t usec, void *user);

static bool arm(struct flyt_drain *drain, uint64_t ms)
{
    drain->timer = sd_event_source_disable_unref(drain->timer);
    return sd_event_add_time_relative(drain->cluster->event, &drain->timer, CLOCK_MONOTONIC, ms * 1000, 1000, on_late,
                                      drain) >= 0;
}

static void tell_killed(const struct flyt_drain *drain)
{
    for (u_int i = 0; i < drain->told.sessions.sessions_len; i++) {
        const flyt_draining *one = &drain->told.sessions.sessions_val[i];
        char object[17];
        snprintf(object, sizeof object, "%016" PRIx64, (uint64_t)one->session_id);
        flyt_event_add(drain->cluster, "session.killed", drain->who, object, NULL, NULL,
                       "session %s (%s, pid %u) was ended: SMs that were taken from VM %s still had work of it", object,
                       one->program_name, one->client_pid, drain->held ? drain->held->vm_ip : "?");
    }
}

static void on_node_answer(void *user, int status, void *result)
{
    struct flyt_drain *drain = user;
    flyt_order_drain_res *res = result;
    char text[512];

    drain->is_asking = false;
    if (!status && drain->call) {
        drain->told.sessions = res->sessions;
        memset(&res->sessions, 0, sizeof res->sessions); /* taken over */
    }
    if (!drain->call) {
        drain_release(drain);
        return;
    }
    if (status || res->outcome.status != FLYT_STATUS_OK) {
        snprintf(text, sizeof text, "%u SMs draining; node %s cannot say of which programs%s: %.200s",
                 flyt_held_draining(drain->held), drain->held->node->key, drain->kill ? ", and has ended none" : "",
                 status ? strerror(-status) : res->outcome.text);
        answer(drain, FLYT_STATUS_TIMEOUT, text);
        return;
    }
    describe(drain, text, sizeof text);
    if (!drain->kill) {
        answer(drain, FLYT_STATUS_TIMEOUT, text);
        return;
    }
    tell_killed(drain);
    if (has_drained(drain->held))
        answer(drain, FLYT_STATUS_OK, "");
    else if (!arm(drain, KILL_MS))
        answer(drain, FLYT_STATUS_TIMEOUT, text);
}

static void ask_node(struct flyt_drain *drain)
{
    const struct flyt_node *node = drain->held->node;
    const flyt_order_drain_args args = {
        .epoch = drain->cluster->epoch, .allocation_id = drain->held->id, .kill = drain->kill};
    int status = -ENOTCONN;

    drain->is_asked = drain->is_asking = true;
    if (node->is_registered)
        status =
            flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_DRAIN,
                           (xdrproc_t)xdr_flyt_order_drain_args, &args, (xdrproc_t)xdr_flyt_order_drain_res,
                           sizeof(flyt_order_drain_res), drain->cluster->settings->order_ms, on_node_answer, drain);
    if (status)
        on_node_answer(drain, status, NULL);
}

static int on_late(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_drain *drain = user;
    char text[512];

    drain->timer = sd_event_source_disable_unref(drain->timer);
    if (!drain->is_asked) {
        ask_node(drain);
        return 0;
    }
    /* They were told to end, and have not gone. */
    describe(drain, text, sizeof text);
    answer(drain, FLYT_STATUS_TIMEOUT, text);
    return 0;
}

void flyt_drain_look(struct flyt_held *held)
{
    struct flyt_drain *drain, *next;

    for (drain = TAILQ_FIRST(&held->drains); drain && has_drained(held); drain = next) {
        next = TAILQ_NEXT(drain, entry);
        /* Whom the node has ended is still to be told. */
        if (!drain->is_asking)
            answer(drain, FLYT_STATUS_OK, "");
    }
}

void flyt_drain_end(struct flyt_held *held)
{
    struct flyt_drain *drain;
    bool has_gone = held->cluster->is_leader;

    while ((drain = TAILQ_FIRST(&held->drains))) {
        TAILQ_REMOVE(&held->drains, drain, entry);
        drain->held = NULL;
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
    struct flyt_held *held = vm->held;
    if (!held || has_drained(held)) {
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
        return;
    }
    struct flyt_drain *drain = calloc(1, sizeof *drain);
    if (!drain) {
        flyt_call_fail(call);
        return;
    }
    drain->cluster = cluster;
    drain->held = held;
    drain->call = call;
    drain->kill = args->kill;
    flyt_call_who(call, drain->who);
    TAILQ_INSERT_TAIL(&held->drains, drain, entry);
    if (!args->timeout_ms)
        ask_node(drain);
    else if (!arm(drain, args->timeout_ms < TIMEOUT_MAX_MS ? args->timeout_ms : TIMEOUT_MAX_MS))
        answer(drain, FLYT_STATUS_UNAVAILABLE, "the cluster manager has no memory");
}
