/* A GPU that another node reports than the store says: the operator says that it is there now (a node that was renamed
 * or set up anew, a GPU that was put into another machine). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/base/peer.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/keep.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/table.h"
#include "control/cluster/reconcile/adopt.h"
#include "control/store/store.h"
#include "rpc/base/error.h"

struct adoption {
    struct flyt_call *call;
    unsigned left;
    enum flyt_store_result result;
    char err[256];
    struct flyt_kept_wait waits[FLYT_GPUS_MAX]; /* of as many GPUs */
};

static void written(void *user, enum flyt_store_result result, const char *err)
{
    struct adoption *adoption = user;

    if (result != FLYT_STORE_OK && adoption->result == FLYT_STORE_OK) {
        adoption->result = result;
        snprintf(adoption->err, sizeof adoption->err, "%s", err);
    }
    if (--adoption->left)
        return;
    if (adoption->result == FLYT_STORE_OK)
        flyt_call_outcome(adoption->call, FLYT_STATUS_OK, "%s", "");
    else
        flyt_call_outcome(adoption->call, FLYT_STATUS_UNAVAILABLE,
                          "done, but the store has not recorded it yet and is tried again: %s", adoption->err);
    free(adoption);
}

static bool is_in(const struct flyt_card *card, struct flyt_card *const *cards, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (cards[i] == card)
            return true;
    return false;
}

/* Whether an allocation of the GPU can go with it: all that it has goes to the node, or is there. */
static flyt_status check_held(const struct flyt_held *held, const struct flyt_node *node,
                              struct flyt_card *const *cards, unsigned count, struct flyt_error *err)
{
    if (held->migration)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "VM %s moves (migration %s): try again when that is over",
                           held->vm_ip, held->migration->id_text);
    for (unsigned i = 0; i < held->part_count; i++) {
        const struct flyt_card *card = held->parts[i].card;
        if (card && card->node != node && !is_in(card, cards, count))
            return flyt_refuse(err, FLYT_STATUS_CONFLICT,
                               "allocation %s of VM %s has GPU %s of node %s, too: name that as well, or end the "
                               "allocation (`flytctl allocation kill %s`)",
                               held->id_text, held->vm_ip, card->key, card->node->key, held->id_text);
    }
    return FLYT_STATUS_OK;
}

static flyt_status check_card(const struct flyt_card *card, const struct flyt_node *node,
                              struct flyt_card *const *cards, unsigned count, struct flyt_error *err)
{
    flyt_status status = FLYT_STATUS_OK;

    if (!flyt_gpu_is_claimed_by(card, node))
        return flyt_refuse(err, FLYT_STATUS_CONFLICT, "node %s has not reported GPU %s, which is node %s's", node->key,
                           card->key, card->node->key);
    if (card->node->is_registered && card->is_reported)
        return flyt_refuse(err, FLYT_STATUS_CONFLICT,
                           "GPU %s is in node %s, which is up and reports it: one of the two does not say the truth",
                           card->key, card->node->key);
    for (unsigned i = 0; i < card->held_count && status == FLYT_STATUS_OK; i++)
        status = check_held(card->held[i], node, cards, count, err);
    return status;
}

static flyt_status find_cards(struct flyt_cluster *cluster, const struct flyt_node *node,
                              const struct flyt_adopt_args *args, struct flyt_card **ret_cards, unsigned *ret_count,
                              struct flyt_error *err)
{
    flyt_status status = FLYT_STATUS_OK;

    *ret_count = 0;
    for (unsigned i = 0; i < args->gpus.gpus_len; i++) {
        struct flyt_card *card = flyt_gpu_find(cluster, args->gpus.gpus_val[i], err);
        if (!card)
            return err->code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND;
        if (card->node != node && !is_in(card, ret_cards, *ret_count))
            ret_cards[(*ret_count)++] = card;
    }
    if (node->place.gpu_count + *ret_count > FLYT_GPUS_MAX)
        return flyt_refuse(err, FLYT_STATUS_INVALID, "a node has at most %d GPUs", FLYT_GPUS_MAX);
    for (unsigned i = 0; i < *ret_count && status == FLYT_STATUS_OK; i++)
        status = check_card(ret_cards[i], node, ret_cards, *ret_count, err);
    return status;
}

/* The GPU is the node's, with its allocations. */
static int move_card(struct flyt_card *card, struct flyt_node *node)
{
    struct flyt_capacity capacity = *flyt_gpu_capacity(card);
    struct flyt_node *old = card->node;

    flyt_node_remove_card(old, card);
    int status = flyt_node_add_card(node, card);
    if (status && flyt_node_add_card(old, card))
        abort(); /* its place was given up a moment ago: there is room */
    card->node = status ? old : node;
    *flyt_gpu_capacity(card) = capacity;
    if (status)
        return status;
    for (unsigned i = 0; i < card->held_count; i++) {
        card->held[i]->node = node;
        card->held[i]->applied_revision = 0;
        if (card->held[i]->vm)
            flyt_vm_tell(card->held[i]->vm, "its GPU is another node's now");
    }
    free(card->claimant);
    card->claimant = NULL;
    return 0;
}

void flyt_serve_node_adopt(struct flyt_call *call, void *data)
{
    const struct flyt_adopt_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_card *cards[FLYT_GPUS_MAX];
    char who[FLYT_NAME_BYTES_MAX + 1];
    struct flyt_error err = {0};
    unsigned count;

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_node *node = flyt_table_find(&cluster->nodes, args->node);
    if (!node) {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "there is no node %s", args->node);
        return;
    }
    flyt_status status = find_cards(cluster, node, args, cards, &count, &err);
    if (status != FLYT_STATUS_OK) {
        flyt_call_outcome(call, status, "%s", err.text);
        return;
    }
    struct adoption *adoption = calloc(1, sizeof *adoption);
    if (!adoption) {
        flyt_call_fail(call);
        return;
    }
    *adoption = (struct adoption){.call = call, .left = count + 1, .result = FLYT_STORE_OK};
    flyt_call_who(call, who);
    for (unsigned i = 0; i < count; i++) {
        const char *old = cards[i]->node->key;
        if (move_card(cards[i], node)) {
            written(adoption, FLYT_STORE_UNAVAILABLE, "no memory");
            continue;
        }
        flyt_event_add(cluster, "gpu.adopted", who, cards[i]->key, NULL, NULL,
                       "GPU %s is node %s's now, with %u allocations; it was node %s's", cards[i]->key, node->key,
                       cards[i]->held_count, old);
        adoption->waits[i] = (struct flyt_kept_wait){.done = written, .user = adoption};
        flyt_kept_change(cards[i]->kept, &adoption->waits[i]);
    }
    /* It is to say what it has of them, and to be told what it is to have. */
    if (count && node->link)
        flyt_link_close(node->link, "GPUs were given to it");
    written(adoption, FLYT_STORE_OK, "");
}
