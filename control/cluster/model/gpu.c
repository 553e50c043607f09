/* GPUs: what is taken of each, and which one is meant. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

struct flyt_capacity *flyt_gpu_capacity(const struct flyt_card *card)
{
    return &card->node->place.gpus[card->place];
}

/* What an allocation that moves has on a GPU besides its parts. */
static void count_others(const struct flyt_card *card, const struct flyt_held *held)
{
    struct flyt_capacity *capacity = flyt_gpu_capacity(card);

    for (unsigned i = 0; held->migration && i < held->part_count; i++) {
        const struct flyt_part *part = &held->migration->others[i];
        struct flyt_groupset groups = part->groups;
        if (part->card != card)
            continue;
        if (held->parts[i].card == card) { /* new servers beside the present ones, with the same memory and time */
            flyt_capacity_charge(capacity, &groups, 0, held->sessions_max);
            continue;
        }
        for (unsigned k = 0; k < FLYT_GROUP_WORDS; k++)
            groups.words[k] |= part->leaving.words[k];
        flyt_capacity_charge(capacity, &groups, part->memory_bytes + part->leaving_bytes, held->sessions_max);
        flyt_capacity_charge_share(capacity, held->share.is_timed ? &part->groups : NULL,
                                   flyt_share_minimum(held->isolation, &held->share, part));
    }
}

void flyt_gpu_count(struct flyt_card *card)
{
    struct flyt_capacity *capacity = flyt_gpu_capacity(card);

    flyt_capacity_reset(capacity);
    for (unsigned i = 0; i < card->held_count; i++) {
        const struct flyt_held *held = card->held[i];
        for (unsigned j = 0; j < held->part_count; j++) {
            const struct flyt_part *part = &held->parts[j];
            if (part->card != card)
                continue;
            struct flyt_groupset groups = part->groups;
            for (unsigned k = 0; k < FLYT_GROUP_WORDS; k++)
                groups.words[k] |= part->leaving.words[k];
            flyt_capacity_charge(capacity, &groups, part->memory_bytes + part->leaving_bytes, held->sessions_max);
            flyt_capacity_charge_share(capacity, held->share.is_timed ? &part->groups : NULL,
                                       flyt_share_minimum(held->isolation, &held->share, part));
        }
        count_others(card, held);
    }
}

int flyt_gpu_attach(struct flyt_card *card, struct flyt_held *held)
{
    if (card->held_count == card->held_room) {
        unsigned room = card->held_room ? 2 * card->held_room : 8;
        struct flyt_held **list = realloc(card->held, room * sizeof *list);
        if (!list)
            return -ENOMEM;
        card->held = list;
        card->held_room = room;
    }
    card->held[card->held_count++] = held;
    flyt_gpu_count(card);
    return 0;
}

void flyt_gpu_detach(struct flyt_card *card, struct flyt_held *held)
{
    for (unsigned i = 0; i < card->held_count; i++) {
        if (card->held[i] != held)
            continue;
        card->held[i] = card->held[--card->held_count];
        flyt_gpu_count(card);
        return;
    }
}

bool flyt_gpu_is_claimed_by(const struct flyt_card *card, const struct flyt_node *node)
{
    return card->node != node && card->claimant && !strcmp(card->claimant, node->key);
}

struct flyt_card *flyt_gpu_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err)
{
    const char *colon = strrchr(name, ':');
    struct flyt_card *found = NULL;
    char node_name[FLYT_NAME_BYTES_MAX + 1];

    if (colon && colon != name) {
        snprintf(node_name, sizeof node_name, "%.*s", (int)(colon - name), name);
        struct flyt_node *node = flyt_table_find(&cluster->nodes, node_name);
        char *end;
        unsigned long index = strtoul(colon + 1, &end, 10);
        for (unsigned i = 0; node && colon[1] && !*end && i < node->place.gpu_count; i++)
            if (node->place.gpus[i].index == index)
                return node->cards[i];
    }
    size_t bytes = strlen(name), place = flyt_table_place(&cluster->cards, name);
    for (; bytes && place < cluster->cards.count; place++) {
        struct flyt_card *card = cluster->cards.items[place];
        if (strncmp(card->key, name, bytes))
            break;
        if (found) {
            flyt_error_set(err, -EINVAL, "%s is the beginning of several GPUs' UUIDs, %s and %s among them", name,
                           found->key, card->key);
            return NULL;
        }
        found = card;
    }
    if (!found)
        flyt_error_set(err, -ENOENT, "there is no GPU %s; write NODE:INDEX or the beginning of its UUID", name);
    return found;
}

bool flyt_gpu_note_health(struct flyt_card *card, enum flyt_health health, const char *health_text)
{
    enum flyt_health before = card->health;

    card->health = health > FLYT_HEALTH_FAILED ? FLYT_HEALTH_FAILED : health;
    flyt_gpu_capacity(card)->is_unhealthy = card->health == FLYT_HEALTH_FAILED;
    if (flyt_text_set(&card->health_text, health_text))
        flyt_warn("gpu: %s: no memory for its health", card->key);
    return card->health != before;
}
