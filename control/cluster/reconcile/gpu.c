/* GPUs: their documents and their health, what nodes report of them, and who claims them. */
#include <errno.h>
#include <string.h>

#include "control/cluster/io/event.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/keep.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/text.h"
#include "control/cluster/reconcile/gpu.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum { CLAIM_TOLD_MS = 60000 }; /* one event in so long, whoever claims it */

void flyt_gpu_set_health(struct flyt_card *card, enum flyt_health health, const char *health_text)
{
    struct flyt_cluster *cluster = card->node->cluster;

    if (!flyt_gpu_note_health(card, health, health_text) || !cluster->is_loaded)
        return;
    flyt_event_add(cluster, "gpu.health", "node", card->key, NULL, NULL, "%s:%u is %s%s%s", card->node->key,
                   flyt_gpu_capacity(card)->index, flyt_health_name(card->health), *health_text ? ": " : "",
                   health_text);
    flyt_kept_change(card->kept, NULL);
}

/* A node has reported a GPU that is another one's: a UUID is no proof, so an operator decides. */
static void note_claim(struct flyt_card *card, const struct flyt_node *node)
{
    uint64_t now_ms = flyt_clock_ms();

    bool is_known = flyt_gpu_is_claimed_by(card, node);
    if (!is_known && flyt_text_set(&card->claimant, node->key))
        flyt_warn("gpu: %s: no memory for who claims it", card->key);
    if (card->claim_told_ms && (is_known || now_ms - card->claim_told_ms < CLAIM_TOLD_MS))
        return;
    card->claim_told_ms = now_ms;
    flyt_event_add(card->node->cluster, "gpu.claimed", "manager", card->key, NULL, NULL,
                   "node %s reports GPU %s, which is node %s's: it stays so, with its allocations, until `flytctl node "
                   "adopt %s %s` says that the GPU is there now",
                   node->key, card->key, card->node->key, node->key, card->key);
}

static bool same_groups(const struct flyt_capacity *capacity, const struct flyt_gpu *report)
{
    if (capacity->group_count != report->group_sms.group_sms_len)
        return false;
    for (unsigned i = 0; i < capacity->group_count; i++)
        if (capacity->group_sms[i] != report->group_sms.group_sms_val[i])
            return false;
    return true;
}

int flyt_gpu_report(struct flyt_node *node, const struct flyt_gpu *report)
{
    struct flyt_cluster *cluster = node->cluster;
    struct flyt_card *card = flyt_table_find(&cluster->cards, report->uuid);
    bool is_new = !card, has_changed = is_new;

    if (!card && !(card = flyt_gpu_new(node, report->uuid, report->type, 0)))
        return -ENOMEM;
    if (card->node != node) {
        note_claim(card, node);
        return -EEXIST;
    }
    struct flyt_capacity *capacity = flyt_gpu_capacity(card);
    has_changed |= capacity->index != report->index || capacity->memory_bytes != report->memory_bytes ||
                   capacity->server_reserve_bytes != report->server_reserve_bytes ||
                   capacity->client_slots != report->client_slots || capacity->isolation != report->isolation ||
                   card->group_size != report->group_size || !same_groups(capacity, report) ||
                   strcmp(card->type, report->type) != 0;
    if (strcmp(card->type, report->type) && !flyt_text_set(&card->type, report->type))
        capacity->type = card->type;
    capacity->index = report->index;
    capacity->memory_bytes = report->memory_bytes;
    capacity->server_reserve_bytes = report->server_reserve_bytes;
    capacity->client_slots = report->client_slots;
    capacity->isolation = report->isolation;
    card->group_size = report->group_size;
    card->compute_major = report->compute_major;
    card->compute_minor = report->compute_minor;
    capacity->compute_capability = 100 * card->compute_major + card->compute_minor;
    card->is_reported = true;
    flyt_capacity_set_groups(capacity, report->group_sms.group_sms_val, report->group_sms.group_sms_len);
    flyt_gpu_count(card);
    flyt_gpu_set_health(card, report->health, report->health_text);
    if (has_changed)
        flyt_kept_change(card->kept, NULL);
    if (is_new)
        flyt_event_add(cluster, "gpu.added", "node", card->key, NULL, NULL, "%s:%u is a %s with %u SMs", node->key,
                       capacity->index, card->type, capacity->sms_total);
    return 0;
}
