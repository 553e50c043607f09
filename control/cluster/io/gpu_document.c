/* GPUs' documents: what a GPU is, and the entries of those allocations that have a part of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/allocation_document.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/keep.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/io/node_document.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/table.h"
#include "rpc/base/log.h"

static const char *const health_names[] = {"ok", "degraded", "failed"};
static const char *const schedule_names[] = {"active", "cordoned", "draining"};

const char *flyt_health_name(enum flyt_health health)
{
    return health_names[health];
}

const char *flyt_schedule_name(enum flyt_schedule schedule)
{
    return schedule_names[schedule];
}

static cJSON *make_document(void *object)
{
    struct flyt_card *card = object;
    const struct flyt_capacity *capacity = flyt_gpu_capacity(card);
    cJSON *document = cJSON_CreateObject(), *sms, *list, *arriving = NULL;

    cJSON_AddStringToObject(document, "node", card->node->key);
    cJSON_AddNumberToObject(document, "index", capacity->index);
    cJSON_AddStringToObject(document, "type", card->type);
    cJSON_AddNumberToObject(document, "sm_count", capacity->sms_total);
    cJSON_AddNumberToObject(document, "group_size", card->group_size);
    sms = cJSON_AddArrayToObject(document, "group_sms");
    for (unsigned i = 0; i < capacity->group_count; i++)
        cJSON_AddItemToArray(sms, cJSON_CreateNumber(capacity->group_sms[i]));
    cJSON_AddNumberToObject(document, "memory_bytes", (double)capacity->memory_bytes);
    cJSON_AddNumberToObject(document, "server_reserve_bytes", (double)capacity->server_reserve_bytes);
    cJSON_AddNumberToObject(document, "client_slots", capacity->client_slots);
    cJSON_AddStringToObject(document, "isolation", capacity->isolation == FLYT_ISOLATION_STRICT ? "strict" : "shared");
    cJSON_AddStringToObject(document, "health", health_names[card->health]);
    cJSON_AddStringToObject(document, "schedule", schedule_names[capacity->schedule]);
    cJSON_AddNumberToObject(document, "compute_major", card->compute_major);
    cJSON_AddNumberToObject(document, "compute_minor", card->compute_minor);
    cJSON_AddNumberToObject(document, "epoch", (double)card->node->cluster->epoch);
    list = cJSON_AddArrayToObject(document, "allocations");
    for (unsigned i = 0; i < card->held_count; i++) {
        cJSON *entry;
        if (card->held[i]->state == FLYT_ALLOCATION_ORPHAN || !(entry = flyt_held_entry(card->held[i], card)))
            continue;
        cJSON_AddItemToArray(list, entry);
    }
    for (unsigned i = 0; i < card->held_count; i++) {
        cJSON *entry = flyt_migration_entry(card->held[i], card);
        if (!entry)
            continue;
        if (!arriving)
            arriving = cJSON_AddArrayToObject(document, "arriving");
        cJSON_AddItemToArray(arriving, entry);
    }
    if (!list || !sms) {
        cJSON_Delete(document);
        return NULL;
    }
    return document;
}

struct flyt_card *flyt_gpu_new(struct flyt_node *node, const char *uuid, const char *type, uint64_t revision)
{
    struct flyt_card *card = calloc(1, sizeof *card);
    char *key = strdup(uuid);

    if (!card || !key) {
        free(card);
        free(key);
        return NULL;
    }
    card->key = key;
    card->type = strdup(type);
    card->node = node;
    card->kept = flyt_kept_new(node->cluster->keeper, "gpus", uuid, revision, make_document, card);
    if (!card->type || !card->kept || flyt_table_add(&node->cluster->cards, card)) {
        flyt_gpu_free(card);
        return NULL;
    }
    if (flyt_node_add_card(node, card)) {
        flyt_table_remove(&node->cluster->cards, card);
        flyt_gpu_free(card);
        return NULL;
    }
    flyt_gpu_capacity(card)->uuid = card->key;
    flyt_gpu_capacity(card)->type = card->type;
    return card;
}

void flyt_gpu_free(struct flyt_card *card)
{
    if (!card)
        return;
    flyt_kept_free(card->kept);
    free((char *)card->key);
    free(card->type);
    free(card->health_text);
    free(card->claimant);
    free(card->held);
    free(card);
}

static double number(const cJSON *document, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);

    return cJSON_IsNumber(item) && item->valuedouble > 0 ? item->valuedouble : 0;
}

static const char *text(const cJSON *document, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);

    return cJSON_IsString(item) ? item->valuestring : "";
}

static unsigned name_index(const char *name, const char *const *names, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(name, names[i]))
            return i;
    return 0;
}

int flyt_gpu_load(struct flyt_cluster *cluster, const cJSON *document)
{
    const cJSON *sms = cJSON_GetObjectItemCaseSensitive(document, "group_sms"), *item;
    unsigned group_sms[FLYT_GROUPS_MAX], count = 0;
    struct flyt_node *node = *text(document, "node") ? flyt_node_get(cluster, text(document, "node")) : NULL;
    struct flyt_card *card;

    if (!node || !*text(document, "_id"))
        return -EINVAL;
    card = flyt_gpu_new(node, text(document, "_id"), text(document, "type"), (uint64_t)number(document, "revision"));
    if (!card)
        return -ENOMEM;
    struct flyt_capacity *capacity = flyt_gpu_capacity(card);
    cJSON_ArrayForEach(item, sms) if (count < FLYT_GROUPS_MAX && cJSON_IsNumber(item) && item->valuedouble > 0)
        group_sms[count++] = (unsigned)item->valuedouble;
    capacity->index = (unsigned)number(document, "index");
    capacity->memory_bytes = (uint64_t)number(document, "memory_bytes");
    capacity->server_reserve_bytes = (uint64_t)number(document, "server_reserve_bytes");
    capacity->client_slots = (unsigned)number(document, "client_slots");
    capacity->isolation = strcmp(text(document, "isolation"), "strict") ? FLYT_ISOLATION_SHARED : FLYT_ISOLATION_STRICT;
    capacity->schedule = name_index(text(document, "schedule"), schedule_names, 3);
    card->group_size = (unsigned)number(document, "group_size");
    card->compute_major = (unsigned)number(document, "compute_major");
    card->compute_minor = (unsigned)number(document, "compute_minor");
    capacity->compute_capability = 100 * card->compute_major + card->compute_minor;
    flyt_gpu_note_health(card, name_index(text(document, "health"), health_names, 3), "");
    flyt_capacity_set_groups(capacity, group_sms, count);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "allocations"))
    {
        int status = flyt_held_load(card, item);
        if (status == -ENOMEM)
            return status;
        if (status) /* the others count all the same; what the node has of it comes as an orphan */
            flyt_fail("store: an allocation of gpu %s cannot be used: %s", card->key, strerror(-status));
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "arriving"))
    {
        int status = flyt_migration_load(card, item);
        if (status == -ENOMEM)
            return status;
        if (status)
            flyt_fail("store: what arrives on gpu %s cannot be used: %s", card->key, strerror(-status));
    }
    flyt_gpu_count(card);
    return 0;
}
