/* GPUs' documents: what a GPU is, and the entries of those allocations that have a part of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/allocation_document.h"
#include "control/cluster/io/document.h"
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

const char *flyt_health_name(enum flyt_health health)
{
    return flyt_health_names[health];
}

const char *flyt_schedule_name(enum flyt_schedule schedule)
{
    return flyt_schedule_names[schedule];
}

/* What a document says that is not the card's alone, or is not to be changed by reading it. */
struct content {
    const char *node, *type; /* borrowed */
    enum flyt_health health;
    uint64_t epoch;
    unsigned group_sms[FLYT_GROUPS_MAX], group_count;
};

enum { DOCUMENT, CONTENT, CARD, CAPACITY, PARTS };
#define OF_CONTENT(kind, ...)  FLYT_##kind(struct content, __VA_ARGS__), .part = CONTENT
#define OF_CARD(member)        FLYT_NUMBER(struct flyt_card, member), .part = CARD
#define OF_CAPACITY(kind, ...) FLYT_##kind(struct flyt_capacity, __VA_ARGS__), .part = CAPACITY

static const struct flyt_field group_fields[] = {{"", .kind = FLYT_FIELD_NUMBER, .size = sizeof(unsigned), .min = 1},
                                                 {0}};
static const struct flyt_item group_item = {.fields = group_fields, .bytes = sizeof(unsigned)};

static const struct flyt_field fields[] = {
    FLYT_DOCUMENT_FIELDS(DOCUMENT),
    {"node", OF_CONTENT(TEXT, node), .rules = FLYT_NEEDED | FLYT_BORROWED},
    {"index", OF_CAPACITY(NUMBER, index)},
    {"type", OF_CONTENT(TEXT, type), .rules = FLYT_BORROWED},
    {"sm_count", OF_CAPACITY(NUMBER, sms_total)},
    {"group_size", OF_CARD(group_size)},
    {"group_sms", OF_CONTENT(ARRAY, group_sms, group_count, &group_item)},
    {"memory_bytes", OF_CAPACITY(NUMBER, memory_bytes)},
    {"server_reserve_bytes", OF_CAPACITY(NUMBER, server_reserve_bytes)},
    {"client_slots", OF_CAPACITY(NUMBER, client_slots)},
    {"isolation", OF_CAPACITY(CHOICE, isolation, flyt_isolation_names)},
    {"health", OF_CONTENT(CHOICE, health, flyt_health_names)},
    {"schedule", OF_CAPACITY(CHOICE, schedule, flyt_schedule_names)},
    {"compute_major", OF_CARD(compute_major)},
    {"compute_minor", OF_CARD(compute_minor)},
    {"epoch", OF_CONTENT(NUMBER, epoch)},
    {0},
};

/* What `entry_of` makes of each allocation, as an array of that name; is_needed false: none where that is nothing. */
static bool add_entries(cJSON *document, const char *name, const struct flyt_card *card, bool is_needed,
                        int (*entry_of)(const struct flyt_held *held, const struct flyt_card *card, cJSON **ret_entry))
{
    cJSON *list = cJSON_CreateArray(), *entry;
    bool is_good = list != NULL;

    for (unsigned i = 0; i < card->held_count && is_good; i++) {
        entry = NULL;
        is_good = !entry_of(card->held[i], card, &entry) && (!entry || cJSON_AddItemToArray(list, entry));
    }
    if (is_good && (is_needed || cJSON_GetArraySize(list))) {
        is_good = cJSON_AddItemToObject(document, name, list);
        if (is_good)
            return true;
    }
    cJSON_Delete(list);
    return is_good;
}

cJSON *flyt_gpu_document(void *object)
{
    const struct flyt_card *card = object;
    const struct flyt_capacity *capacity = flyt_gpu_capacity(card);
    struct content content = {.node = card->node->key,
                              .type = card->type,
                              .health = card->health,
                              .epoch = card->node->cluster->epoch,
                              .group_count = capacity->group_count};

    for (unsigned i = 0; i < capacity->group_count; i++)
        content.group_sms[i] = capacity->group_sms[i];
    const void *const parts[PARTS] = {[CONTENT] = &content, [CARD] = card, [CAPACITY] = capacity};
    cJSON *document = flyt_document_write(fields, parts, "gpu", card->key);
    if (document && add_entries(document, "allocations", card, true, flyt_held_entry) &&
        add_entries(document, "arriving", card, false, flyt_migration_entry))
        return document;
    cJSON_Delete(document);
    return NULL;
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
    card->kept = flyt_kept_new(node->cluster->keeper, "gpus", uuid, revision, flyt_gpu_document, card);
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

int flyt_gpu_load(struct flyt_cluster *cluster, const cJSON *document)
{
    const cJSON *item;
    struct flyt_document its;
    struct content content = {.group_count = 0};
    int status = flyt_document_read(fields, document, (void *const[PARTS]){[DOCUMENT] = &its, [CONTENT] = &content},
                                    "the document of a", "gpu");
    if (status)
        return status;
    struct flyt_node *node = *content.node ? flyt_node_get(cluster, content.node) : NULL;
    if (!node || !*its.id)
        return -EINVAL;
    struct flyt_card *card = flyt_gpu_new(node, its.id, content.type, its.revision);
    if (!card)
        return -ENOMEM;
    struct flyt_capacity *capacity = flyt_gpu_capacity(card);
    status =
        flyt_document_read(fields, document, (void *const[PARTS]){[CARD] = card, [CAPACITY] = capacity}, "gpu", its.id);
    if (status)
        return status;
    capacity->compute_capability = 100 * card->compute_major + card->compute_minor;
    flyt_gpu_note_health(card, content.health, "");
    flyt_capacity_set_groups(capacity, content.group_sms, content.group_count);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "allocations"))
    {
        status = flyt_held_load(card, item);
        if (status == -ENOMEM)
            return status;
        if (status &&
            status != -EBADMSG) /* the others count all the same; what the node has of it comes as an orphan */
            flyt_fail("store: an allocation of gpu %s cannot be used: %s", card->key, strerror(-status));
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "arriving"))
    {
        status = flyt_migration_load(card, item);
        if (status == -ENOMEM)
            return status;
        if (status && status != -EBADMSG)
            flyt_fail("store: what arrives on gpu %s cannot be used: %s", card->key, strerror(-status));
    }
    flyt_gpu_count(card);
    return 0;
}
