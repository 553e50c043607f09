/* Nodes: their state and their GPUs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/node.h"
#include "rpc/base/clock.h"

bool flyt_node_is_up(const struct flyt_node *node)
{
    return node->place.is_up;
}

/* A program waits for its client manager's answer 10 s at most; nodes look for a manager every second or two. */
enum { AWAITED_MS = 6000 };

bool flyt_node_is_awaited(const struct flyt_node *node)
{
    uint64_t node_lost_ms = node->cluster->settings->node_lost_ms;

    return !node->is_registered && !node->is_fenced &&
           flyt_clock_ms() - node->last_heard_ms < (node_lost_ms < AWAITED_MS ? node_lost_ms : AWAITED_MS);
}

int flyt_node_add_card(struct flyt_node *node, struct flyt_card *card)
{
    unsigned count = node->place.gpu_count;

    if (count >= FLYT_GPUS_MAX)
        return -E2BIG;
    struct flyt_capacity *gpus = realloc(node->place.gpus, (count + 1) * sizeof *gpus);
    if (gpus)
        node->place.gpus = gpus;
    struct flyt_card **cards = realloc(node->cards, (count + 1) * sizeof(struct flyt_card *));
    if (cards)
        node->cards = cards;
    if (!gpus || !cards)
        return -ENOMEM;
    memset(&gpus[count], 0, sizeof *gpus);
    gpus[count].uuid = card->key;
    gpus[count].type = card->type;
    cards[count] = card;
    card->place = count;
    node->place.gpu_count++;
    return 0;
}

void flyt_node_remove_card(struct flyt_node *node, struct flyt_card *card)
{
    unsigned last = --node->place.gpu_count;

    node->place.gpus[card->place] = node->place.gpus[last];
    node->cards[card->place] = node->cards[last];
    node->cards[card->place]->place = card->place;
}
