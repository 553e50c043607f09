/* The way of a checkpoint or a restore: ordered to its node, followed, and its end (saving.h says how). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/base/peer.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/saving.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "control/cluster/reconcile/saving.h"
#include "rpc/base/clock.h"

enum {
    ASK_MS = 10000,  /* a node answers within this how far it is, */
    AGAIN_MS = 1000, /* and is asked again so soon */
};

struct flyt_saving *flyt_saving_new(struct flyt_cluster *cluster, uint64_t id)
{
    struct flyt_saving *saving = calloc(1, sizeof *saving);

    if (!saving)
        return NULL;
    while (!id)
        if (getrandom(&id, sizeof id, 0) != sizeof id)
            id = 0;
    saving->cluster = cluster;
    saving->id = saving->use.id = id;
    saving->use.phase = FLYT_SAVING_PREPARING;
    saving->started_ms = flyt_wall_ms();
    snprintf(saving->id_text, sizeof saving->id_text, "%016" PRIx64, id);
    return saving;
}

struct flyt_saving *flyt_saving_free(struct flyt_saving *saving)
{
    if (!saving)
        return NULL;
    if (saving->call)
        flyt_call_outcome(saving->call, FLYT_STATUS_UNAVAILABLE,
                          "this cluster manager leads no longer: `flytctl checkpoints` says what has become of it");
    free(saving);
    return NULL;
}

static void unlink_from_list(struct flyt_saving *saving)
{
    struct flyt_saving **link = &saving->cluster->savings;

    while (*link != saving)
        link = &(*link)->next;
    *link = saving->next;
}

/* ---- its end ---- */

/* What the VM's document has come to say meanwhile is carried out now. */
static void catch_up(struct flyt_cluster *cluster, uint64_t allocation_id)
{
    struct flyt_held *held = allocation_id ? flyt_held_find(cluster, allocation_id) : NULL;

    if (held)
        flyt_held_look_soon(held);
}

/* It is over, and gone. */
static void end(struct flyt_saving *saving)
{
    struct flyt_cluster *cluster = saving->cluster;
    const uint64_t allocation_id = saving->allocation_id;

    unlink_from_list(saving);
    saving->ended_ms = flyt_wall_ms();
    flyt_saving_tell_end(saving);
    flyt_saving_free(saving);
    catch_up(cluster, allocation_id);
}

static void fail(struct flyt_saving *saving, flyt_status status, const char *text)
{
    saving->use.phase = FLYT_SAVING_FAILED;
    saving->use.outcome.status = status;
    snprintf(saving->reason, sizeof saving->reason, "%.511s", *text ? text : "the node does not say why");
    end(saving);
}

/* Nothing has begun: that is no event, who asked is told. */
static void refuse(struct flyt_saving *saving, flyt_status status, const char *text)
{
    unlink_from_list(saving);
    if (saving->call)
        flyt_call_outcome(saving->call, status, "%s", text);
    saving->call = NULL;
    const uint64_t allocation_id = saving->allocation_id;
    struct flyt_cluster *cluster = saving->cluster;
    flyt_saving_free(saving);
    catch_up(cluster, allocation_id);
}

static void take_use(struct flyt_saving *saving, const flyt_saving_use *use)
{
    saving->use = *use;
    saving->use.outcome.text = NULL;
    snprintf(saving->reason, sizeof saving->reason, "%s", use->outcome.text ? use->outcome.text : "");
}

/* ---- what the node is asked ---- */

/* Of a call to the node about one: it may be over by the time of the answer. */
struct asking {
    struct flyt_cluster *cluster;
    uint64_t id;
};

static struct flyt_node *node_of(const struct flyt_saving *saving)
{
    return flyt_table_find(&saving->cluster->nodes, saving->node);
}

static const char *build_of(const struct flyt_saving *saving)
{
    const struct flyt_node *node = node_of(saving);

    return node && node->build ? node->build : "?";
}

static void say_older(const struct flyt_saving *saving, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "node %s (build %s) makes no checkpoints: it is older than this cluster manager",
             saving->node, build_of(saving));
}

/* 0, or a negative errno: the node cannot be asked, and done is not called. */
static int call_node(struct flyt_saving *saving, bool ask, uint64_t timeout_ms, flyt_call_done_fn done)
{
    struct flyt_node *node = node_of(saving);
    struct asking *asking = node && node->is_registered ? calloc(1, sizeof *asking) : NULL;
    const flyt_order_checkpoint_args checkpoint = {.epoch = saving->cluster->epoch,
                                                   .id = saving->id,
                                                   .ask = ask,
                                                   .allocation_id = saving->allocation_id,
                                                   .session_id = saving->session_id,
                                                   .folder = saving->folder,
                                                   .leave_running = saving->leaves_running,
                                                   .full = saving->is_full,
                                                   .packing = saving->packing,
                                                   .stop_ms = saving->stop_ms,
                                                   .timeout_s = saving->timeout_s};
    const flyt_order_restore_args restore = {.epoch = saving->cluster->epoch,
                                             .id = saving->id,
                                             .ask = ask,
                                             .folder = saving->folder,
                                             .timeout_s = saving->timeout_s};

    if (!asking)
        return node && node->is_registered ? -ENOMEM : -ENOTCONN;
    *asking = (struct asking){saving->cluster, saving->id};
    int status = flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION,
                                saving->is_restore ? FLYT_ORDER_RESTORE : FLYT_ORDER_CHECKPOINT,
                                saving->is_restore ? (xdrproc_t)xdr_flyt_order_restore_args
                                                   : (xdrproc_t)xdr_flyt_order_checkpoint_args,
                                saving->is_restore ? (const void *)&restore : (const void *)&checkpoint,
                                (xdrproc_t)xdr_flyt_saving_res, sizeof(flyt_saving_res), timeout_ms, done, asking);
    if (status)
        free(asking);
    return status;
}

static void look(struct flyt_saving *saving);

static void answered(void *user, int status, void *result)
{
    struct asking *asking = user;
    struct flyt_saving *saving = flyt_saving_find(asking->cluster, asking->id);
    const flyt_saving_res *res = result;

    free(asking);
    if (!saving)
        return;
    saving->is_asking = false;
    saving->is_answered = true;
    saving->answer_error = status;
    saving->answer = status ? FLYT_STATUS_OK : res->outcome.status;
    if (!status && saving->answer == FLYT_STATUS_OK)
        take_use(saving, &res->use);
    else if (!status)
        snprintf(saving->reason, sizeof saving->reason, "%.400s", res->outcome.text);
    look(saving);
}

static int call(struct flyt_saving *saving, bool ask, uint64_t timeout_ms)
{
    int status = call_node(saving, ask, timeout_ms, answered);

    saving->asked_ms = flyt_clock_ms();
    saving->is_asking = !status;
    saving->is_answered = false;
    return status;
}

/* ---- what is next ---- */

static unsigned see(const struct flyt_saving *saving)
{
    const struct flyt_node *node = node_of(saving);

    return (saving->is_begun ? FLYT_SAVING_IS_BEGUN : 0) | (saving->is_asking ? FLYT_SAVING_IS_ASKING : 0) |
           (saving->is_answered ? FLYT_SAVING_IS_ANSWERED : 0) |
           (saving->answer_error == -EPROTO ? FLYT_SAVING_IS_OLD : 0) |
           (saving->answer != FLYT_STATUS_OK ? FLYT_SAVING_IS_REFUSED : 0) |
           (saving->answer == FLYT_STATUS_NOT_FOUND ? FLYT_SAVING_IS_FORGOTTEN : 0) |
           (saving->use.phase == FLYT_SAVING_DONE ? FLYT_SAVING_IS_DONE : 0) |
           (saving->use.phase == FLYT_SAVING_FAILED ? FLYT_SAVING_HAS_FAILED : 0) |
           (!node || node->is_fenced ? FLYT_SAVING_IS_GIVEN_UP : 0) |
           (flyt_clock_ms() - saving->asked_ms >= AGAIN_MS ? FLYT_SAVING_IS_DUE : 0);
}

/* Where the order has not been answered it may have begun: the node is asked in a moment, or when it is back. */
static void begin(struct flyt_saving *saving)
{
    flyt_saving_begun_res reply = {
        .outcome = {FLYT_STATUS_OK, (char *)""}, .id = saving->id, .node = (char *)saving->node};

    saving->is_begun = true;
    saving->is_answered = false;
    flyt_saving_tell_begin(saving);
    if (saving->call)
        flyt_call_reply(saving->call, &reply);
    saving->call = NULL;
}

/* Whether it is still there, and is to be looked at again. */
static bool do_step(struct flyt_saving *saving, enum flyt_saving_step step)
{
    char text[768];

    switch (step) {
    case FLYT_SAVING_WAIT:
        return false;
    case FLYT_SAVING_REFUSE_OLD:
        say_older(saving, text, sizeof text);
        refuse(saving, FLYT_STATUS_NOT_SUPPORTED, text);
        return false;
    case FLYT_SAVING_REFUSE:
        snprintf(text, sizeof text, "node %s refused: %.400s", saving->node, saving->reason);
        refuse(saving, saving->answer, text);
        return false;
    case FLYT_SAVING_BEGIN:
        begin(saving);
        return true;
    case FLYT_SAVING_ASK:
        call(saving, true, ASK_MS);
        return false;
    case FLYT_SAVING_END:
        end(saving);
        return false;
    case FLYT_SAVING_FAIL:
        snprintf(text, sizeof text, "%s", saving->reason);
        fail(saving, saving->use.outcome.status ? saving->use.outcome.status : FLYT_STATUS_UNAVAILABLE, text);
        return false;
    case FLYT_SAVING_FAIL_OLD:
        say_older(saving, text, sizeof text);
        fail(saving, FLYT_STATUS_NOT_SUPPORTED, text);
        return false;
    case FLYT_SAVING_FAIL_FORGOTTEN:
        snprintf(text, sizeof text,
                 "node %s does not know what has become of it: its manager was restarted meanwhile; `flytctl sessions` "
                 "says which programs are in images",
                 saving->node);
        fail(saving, FLYT_STATUS_TIMEOUT, text);
        return false;
    case FLYT_SAVING_FAIL_GIVEN_UP:
        fail(saving, FLYT_STATUS_UNAVAILABLE, "its node was given up");
        return false;
    }
    return false;
}

static void look(struct flyt_saving *saving)
{
    while (do_step(saving, flyt_saving_next(see(saving))))
        ;
}

void flyt_saving_ask(struct flyt_saving *saving)
{
    if (saving->is_begun && !saving->is_asking)
        call(saving, true, ASK_MS);
}

void flyt_saving_start(struct flyt_saving *saving)
{
    struct flyt_cluster *cluster = saving->cluster;
    char text[512];

    saving->next = cluster->savings;
    cluster->savings = saving;
    int status = call(saving, false, cluster->settings->order_ms);
    if (!status)
        return;
    snprintf(text, sizeof text, "node %s cannot be asked: %s", saving->node, strerror(-status));
    refuse(saving, FLYT_STATUS_UNAVAILABLE, text);
}

/* ---- all of them ---- */

void flyt_saving_tick(struct flyt_cluster *cluster)
{
    struct flyt_saving *next;

    for (struct flyt_saving *saving = cluster->savings; saving; saving = next) {
        next = saving->next;
        look(saving);
    }
}

void flyt_savings_forget(struct flyt_cluster *cluster)
{
    struct flyt_saving *saving;

    while ((saving = cluster->savings)) {
        cluster->savings = saving->next;
        flyt_saving_free(saving);
    }
    cJSON_Delete(cluster->savings_over);
    cluster->savings_over = NULL;
}
