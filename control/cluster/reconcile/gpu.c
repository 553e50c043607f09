/* GPUs: their documents and their health, what nodes report of them, and who claims them. */
#include <errno.h>
#include <string.h>

#include "control/base/fields.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/store_writer.h"
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

void flyt_gpu_set_health(struct flyt_cluster_gpu *gpu, enum flyt_health health, const char *health_text)
{
    struct flyt_cluster *cluster = gpu->node->cluster;

    if (!flyt_gpu_note_health(gpu, health, health_text) || !cluster->is_loaded)
        return;
    flyt_event_add(cluster, "gpu.health", "node", gpu->key, NULL, NULL, "%s:%u is %s%s%s", gpu->node->key,
                   flyt_gpu_capacity(gpu)->index, flyt_health_name(gpu->health), *health_text ? ": " : "", health_text);
    flyt_record_change(gpu->record, NULL);
}

/* A node has reported a GPU that is another one's: a UUID is no proof, so an operator decides. */
static void note_claim(struct flyt_cluster_gpu *gpu, const struct flyt_node *node)
{
    uint64_t now_ms = flyt_clock_ms();

    bool is_known = flyt_gpu_is_claimed_by(gpu, node);
    if (!is_known && flyt_text_set(&gpu->claimant, node->key))
        flyt_warn("gpu: %s: no memory for who claims it", gpu->key);
    if (gpu->claim_told_ms && (is_known || now_ms - gpu->claim_told_ms < CLAIM_TOLD_MS))
        return;
    gpu->claim_told_ms = now_ms;
    flyt_event_add(gpu->node->cluster, "gpu.claimed", "manager", gpu->key, NULL, NULL,
                   "node %s reports GPU %s, which is node %s's: it stays so, with its allocations, until `flytctl node "
                   "adopt %s %s` says that the GPU is there now",
                   node->key, gpu->key, gpu->node->key, node->key, gpu->key);
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
    struct flyt_cluster_gpu *gpu = flyt_table_find(&cluster->gpus, report->uuid);
    bool is_new = !gpu, has_changed = is_new;

    if (report->memory_bytes > FLYT_FIELD_NUMBER_MAX || report->server_reserve_bytes > FLYT_FIELD_NUMBER_MAX)
        return -EINVAL;
    if (!gpu && !(gpu = flyt_gpu_new(node, report->uuid, report->type, 0)))
        return -ENOMEM;
    if (gpu->node != node) {
        note_claim(gpu, node);
        return -EEXIST;
    }
    struct flyt_capacity *capacity = flyt_gpu_capacity(gpu);
    has_changed |= capacity->index != report->index || capacity->memory_bytes != report->memory_bytes ||
                   capacity->server_reserve_bytes != report->server_reserve_bytes ||
                   capacity->client_slots != report->client_slots || capacity->isolation != report->isolation ||
                   gpu->group_size != report->group_size || !same_groups(capacity, report) ||
                   strcmp(gpu->type, report->type) != 0;
    if (strcmp(gpu->type, report->type) && !flyt_text_set(&gpu->type, report->type))
        capacity->type = gpu->type;
    capacity->index = report->index;
    capacity->memory_bytes = report->memory_bytes;
    capacity->server_reserve_bytes = report->server_reserve_bytes;
    capacity->client_slots = report->client_slots;
    capacity->isolation = report->isolation;
    gpu->group_size = report->group_size;
    gpu->compute_major = report->compute_major;
    gpu->compute_minor = report->compute_minor;
    capacity->compute_capability = 100 * gpu->compute_major + gpu->compute_minor;
    gpu->is_reported = true;
    flyt_capacity_set_groups(capacity, report->group_sms.group_sms_val, report->group_sms.group_sms_len);
    flyt_gpu_count(gpu);
    flyt_gpu_set_health(gpu, report->health, report->health_text);
    if (has_changed)
        flyt_record_change(gpu->record, NULL);
    if (is_new)
        flyt_event_add(cluster, "gpu.added", "node", gpu->key, NULL, NULL, "%s:%u is a %s with %u SMs", node->key,
                       capacity->index, gpu->type, capacity->sms_total);
    return 0;
}
