/* The way of a checkpoint or a restore: ordered to its node, followed, and its end (checkpoint_op.h says how). */
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
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "control/cluster/reconcile/checkpoint_op.h"
#include "rpc/base/clock.h"

enum {
    ASK_MS = 10000,  /* a node answers within this how far it is, */
    AGAIN_MS = 1000, /* and is asked again so soon */
};

struct flyt_checkpoint_op *flyt_checkpoint_op_new(struct flyt_cluster *cluster, uint64_t id)
{
    struct flyt_checkpoint_op *op = calloc(1, sizeof *op);

    if (!op)
        return NULL;
    while (!id)
        if (getrandom(&id, sizeof id, 0) != sizeof id)
            id = 0;
    op->cluster = cluster;
    op->id = op->use.id = id;
    op->use.phase = FLYT_SAVING_PREPARING;
    op->started_ms = flyt_wall_ms();
    snprintf(op->id_text, sizeof op->id_text, "%016" PRIx64, id);
    return op;
}

struct flyt_checkpoint_op *flyt_checkpoint_op_free(struct flyt_checkpoint_op *op)
{
    if (!op)
        return NULL;
    if (op->call)
        flyt_call_outcome(op->call, FLYT_STATUS_UNAVAILABLE,
                          "this cluster manager leads no longer: `flytctl checkpoints` says what has become of it");
    free(op);
    return NULL;
}

static void unlink_from_list(struct flyt_checkpoint_op *op)
{
    struct flyt_checkpoint_op **link = &op->cluster->checkpoint_ops;

    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
}

/* ---- its end ---- */

/* What the VM's document has come to say meanwhile is carried out now. */
static void catch_up(struct flyt_cluster *cluster, uint64_t allocation_id)
{
    struct flyt_cluster_allocation *allocation = allocation_id ? flyt_allocation_find(cluster, allocation_id) : NULL;

    if (allocation)
        flyt_allocation_look_soon(allocation);
}

/* It is over, and gone. */
static void end(struct flyt_checkpoint_op *op)
{
    struct flyt_cluster *cluster = op->cluster;
    const uint64_t allocation_id = op->allocation_id;

    unlink_from_list(op);
    op->ended_ms = flyt_wall_ms();
    flyt_checkpoint_op_tell_end(op);
    flyt_checkpoint_op_free(op);
    catch_up(cluster, allocation_id);
}

static void fail(struct flyt_checkpoint_op *op, flyt_status status, const char *text)
{
    op->use.phase = FLYT_SAVING_FAILED;
    op->use.outcome.status = status;
    snprintf(op->reason, sizeof op->reason, "%.511s", *text ? text : "the node does not say why");
    end(op);
}

/* Nothing has begun: that is no event, who asked is told. */
static void refuse(struct flyt_checkpoint_op *op, flyt_status status, const char *text)
{
    unlink_from_list(op);
    if (op->call)
        flyt_call_outcome(op->call, status, "%s", text);
    op->call = NULL;
    const uint64_t allocation_id = op->allocation_id;
    struct flyt_cluster *cluster = op->cluster;
    flyt_checkpoint_op_free(op);
    catch_up(cluster, allocation_id);
}

static void take_use(struct flyt_checkpoint_op *op, const flyt_saving_use *use)
{
    op->use = *use;
    op->use.outcome.text = NULL;
    snprintf(op->reason, sizeof op->reason, "%s", use->outcome.text ? use->outcome.text : "");
}

/* ---- what the node is asked ---- */

/* Of a call to the node about one: it may be over by the time of the answer. */
struct asking {
    struct flyt_cluster *cluster;
    uint64_t id;
};

static struct flyt_node *node_of(const struct flyt_checkpoint_op *op)
{
    return flyt_table_find(&op->cluster->nodes, op->node);
}

static const char *build_of(const struct flyt_checkpoint_op *op)
{
    const struct flyt_node *node = node_of(op);

    return node && node->build ? node->build : "?";
}

static void say_older(const struct flyt_checkpoint_op *op, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "node %s (build %s) makes no checkpoints: it is older than this cluster manager",
             op->node, build_of(op));
}

/* 0, or a negative errno: the node cannot be asked, and done is not called. */
static int call_node(struct flyt_checkpoint_op *op, bool ask, uint64_t timeout_ms, flyt_call_done_fn done)
{
    struct flyt_node *node = node_of(op);
    struct asking *asking = node && node->is_registered ? calloc(1, sizeof *asking) : NULL;
    const flyt_order_checkpoint_args checkpoint = {.epoch = op->cluster->epoch,
                                                   .id = op->id,
                                                   .ask = ask,
                                                   .allocation_id = op->allocation_id,
                                                   .session_id = op->session_id,
                                                   .folder = op->folder,
                                                   .leave_running = op->leaves_running,
                                                   .full = op->is_full,
                                                   .packing = op->packing,
                                                   .stop_ms = op->stop_ms,
                                                   .timeout_s = op->timeout_s};
    const flyt_order_restore_args restore = {
        .epoch = op->cluster->epoch, .id = op->id, .ask = ask, .folder = op->folder, .timeout_s = op->timeout_s};

    if (!asking)
        return node && node->is_registered ? -ENOMEM : -ENOTCONN;
    *asking = (struct asking){op->cluster, op->id};
    int status = flyt_peer_call(node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION,
                                op->is_restore ? FLYT_ORDER_RESTORE : FLYT_ORDER_CHECKPOINT,
                                op->is_restore ? (xdrproc_t)xdr_flyt_order_restore_args
                                               : (xdrproc_t)xdr_flyt_order_checkpoint_args,
                                op->is_restore ? (const void *)&restore : (const void *)&checkpoint,
                                (xdrproc_t)xdr_flyt_saving_res, sizeof(flyt_saving_res), timeout_ms, done, asking);
    if (status)
        free(asking);
    return status;
}

static void look(struct flyt_checkpoint_op *op);

static void answered(void *user, int status, void *result)
{
    struct asking *asking = user;
    struct flyt_checkpoint_op *op = flyt_checkpoint_op_find(asking->cluster, asking->id);
    const flyt_saving_res *res = result;

    free(asking);
    if (!op)
        return;
    op->is_asking = false;
    op->is_answered = true;
    op->answer_error = status;
    op->answer = status ? FLYT_STATUS_OK : res->outcome.status;
    if (!status && op->answer == FLYT_STATUS_OK)
        take_use(op, &res->use);
    else if (!status)
        snprintf(op->reason, sizeof op->reason, "%.400s", res->outcome.text);
    look(op);
}

static int call(struct flyt_checkpoint_op *op, bool ask, uint64_t timeout_ms)
{
    int status = call_node(op, ask, timeout_ms, answered);

    op->asked_ms = flyt_clock_ms();
    op->is_asking = !status;
    op->is_answered = false;
    return status;
}

/* ---- what is next ---- */

static unsigned see(const struct flyt_checkpoint_op *op)
{
    const struct flyt_node *node = node_of(op);

    return (op->is_begun ? FLYT_SAVING_IS_BEGUN : 0) | (op->is_asking ? FLYT_SAVING_IS_ASKING : 0) |
           (op->is_answered ? FLYT_SAVING_IS_ANSWERED : 0) | (op->answer_error == -ENOSYS ? FLYT_SAVING_IS_OLD : 0) |
           (op->answer != FLYT_STATUS_OK ? FLYT_SAVING_IS_REFUSED : 0) |
           (op->answer == FLYT_STATUS_NOT_FOUND ? FLYT_SAVING_IS_FORGOTTEN : 0) |
           (op->use.phase == FLYT_SAVING_DONE ? FLYT_SAVING_IS_DONE : 0) |
           (op->use.phase == FLYT_SAVING_FAILED ? FLYT_SAVING_HAS_FAILED : 0) |
           (!node || node->is_fenced ? FLYT_SAVING_IS_GIVEN_UP : 0) |
           (flyt_clock_ms() - op->asked_ms >= AGAIN_MS ? FLYT_SAVING_IS_DUE : 0);
}

/* Where the order has not been answered it may have begun: the node is asked in a moment, or when it is back. */
static void begin(struct flyt_checkpoint_op *op)
{
    flyt_saving_begun_res reply = {.outcome = {FLYT_STATUS_OK, (char *)""}, .id = op->id, .node = (char *)op->node};

    op->is_begun = true;
    op->is_answered = false;
    flyt_checkpoint_op_tell_begin(op);
    if (op->call)
        flyt_call_reply(op->call, &reply);
    op->call = NULL;
}

/* Whether it is still there, and is to be looked at again. */
static bool do_step(struct flyt_checkpoint_op *op, enum flyt_checkpoint_op_step step)
{
    char text[768];

    switch (step) {
    case FLYT_SAVING_WAIT:
        return false;
    case FLYT_SAVING_REFUSE_OLD:
        say_older(op, text, sizeof text);
        refuse(op, FLYT_STATUS_NOT_SUPPORTED, text);
        return false;
    case FLYT_SAVING_REFUSE:
        snprintf(text, sizeof text, "node %s refused: %.400s", op->node, op->reason);
        refuse(op, op->answer, text);
        return false;
    case FLYT_SAVING_BEGIN:
        begin(op);
        return true;
    case FLYT_SAVING_ASK:
        call(op, true, ASK_MS);
        return false;
    case FLYT_SAVING_END:
        end(op);
        return false;
    case FLYT_SAVING_FAIL:
        snprintf(text, sizeof text, "%s", op->reason);
        fail(op, op->use.outcome.status ? op->use.outcome.status : FLYT_STATUS_UNAVAILABLE, text);
        return false;
    case FLYT_SAVING_FAIL_OLD:
        say_older(op, text, sizeof text);
        fail(op, FLYT_STATUS_NOT_SUPPORTED, text);
        return false;
    case FLYT_SAVING_FAIL_FORGOTTEN:
        snprintf(text, sizeof text,
                 "node %s does not know what has become of it: its manager was restarted meanwhile; `flytctl sessions` "
                 "says which programs are in images",
                 op->node);
        fail(op, FLYT_STATUS_TIMEOUT, text);
        return false;
    case FLYT_SAVING_FAIL_GIVEN_UP:
        fail(op, FLYT_STATUS_UNAVAILABLE, "its node was given up");
        return false;
    }
    return false;
}

static void look(struct flyt_checkpoint_op *op)
{
    while (do_step(op, flyt_checkpoint_op_next(see(op))))
        ;
}

void flyt_checkpoint_op_ask(struct flyt_checkpoint_op *op)
{
    if (op->is_begun && !op->is_asking)
        call(op, true, ASK_MS);
}

void flyt_checkpoint_op_start(struct flyt_checkpoint_op *op)
{
    struct flyt_cluster *cluster = op->cluster;
    char text[512];

    op->next = cluster->checkpoint_ops;
    cluster->checkpoint_ops = op;
    int status = call(op, false, cluster->settings->order_ms);
    if (!status)
        return;
    snprintf(text, sizeof text, "node %s cannot be asked: %s", op->node, strerror(-status));
    refuse(op, FLYT_STATUS_UNAVAILABLE, text);
}

/* ---- all of them ---- */

void flyt_checkpoint_op_tick(struct flyt_cluster *cluster)
{
    struct flyt_checkpoint_op *next;

    for (struct flyt_checkpoint_op *op = cluster->checkpoint_ops; op; op = next) {
        next = op->next;
        look(op);
    }
}

void flyt_checkpoint_ops_forget(struct flyt_cluster *cluster)
{
    struct flyt_checkpoint_op *op;

    while ((op = cluster->checkpoint_ops)) {
        cluster->checkpoint_ops = op->next;
        flyt_checkpoint_op_free(op);
    }
    cJSON_Delete(cluster->checkpoint_ops_over);
    cluster->checkpoint_ops_over = NULL;
}
