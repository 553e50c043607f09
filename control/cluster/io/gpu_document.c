/* GPUs' documents: what a GPU is, and the entries of those allocations that have a part of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/allocation_document.h"
#include "control/cluster/io/document.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/store_writer.h"
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

/* What a document says that is not the GPU's alone, or is not to be changed by reading it. */
struct content {
    const char *node, *type; /* borrowed */
    enum flyt_health health;
    uint64_t epoch;
    unsigned group_sms[FLYT_GROUPS_MAX], group_count;
};

enum { DOCUMENT, CONTENT, GPU, CAPACITY, PARTS };
#define OF_CONTENT(kind, ...)  FLYT_##kind(struct content, __VA_ARGS__), .part = CONTENT
#define OF_GPU(member)         FLYT_NUMBER(struct flyt_cluster_gpu, member), .part = GPU
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
    {"group_size", OF_GPU(group_size)},
    {"group_sms", OF_CONTENT(ARRAY, group_sms, group_count, &group_item)},
    {"memory_bytes", OF_CAPACITY(NUMBER, memory_bytes)},
    {"server_reserve_bytes", OF_CAPACITY(NUMBER, server_reserve_bytes)},
    {"client_slots", OF_CAPACITY(NUMBER, client_slots)},
    {"isolation", OF_CAPACITY(CHOICE, isolation, flyt_isolation_names)},
    {"health", OF_CONTENT(CHOICE, health, flyt_health_names)},
    {"schedule", OF_CAPACITY(CHOICE, schedule, flyt_schedule_names)},
    {"compute_major", OF_GPU(compute_major)},
    {"compute_minor", OF_GPU(compute_minor)},
    {"epoch", OF_CONTENT(NUMBER, epoch)},
    {0},
};

/* What `entry_of` makes of each allocation, as an array of that name; is_needed false: none where that is nothing. */
static bool add_entries(cJSON *document, const char *name, const struct flyt_cluster_gpu *gpu, bool is_needed,
                        int (*entry_of)(const struct flyt_cluster_allocation *allocation,
                                        const struct flyt_cluster_gpu *gpu, cJSON **ret_entry))
{
    cJSON *list = cJSON_CreateArray(), *entry;
    bool is_good = list != NULL;

    for (unsigned i = 0; i < gpu->allocation_count && is_good; i++) {
        entry = NULL;
        is_good = !entry_of(gpu->allocations[i], gpu, &entry) && (!entry || cJSON_AddItemToArray(list, entry));
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
    const struct flyt_cluster_gpu *gpu = object;
    const struct flyt_capacity *capacity = flyt_gpu_capacity(gpu);
    struct content content = {.node = gpu->node->key,
                              .type = gpu->type,
                              .health = gpu->health,
                              .epoch = gpu->node->cluster->epoch,
                              .group_count = capacity->group_count};

    for (unsigned i = 0; i < capacity->group_count; i++)
        content.group_sms[i] = capacity->group_sms[i];
    const void *const parts[PARTS] = {[CONTENT] = &content, [GPU] = gpu, [CAPACITY] = capacity};
    cJSON *document = flyt_document_write(fields, parts, "gpu", gpu->key);
    if (document && add_entries(document, "allocations", gpu, true, flyt_allocation_entry) &&
        add_entries(document, "arriving", gpu, false, flyt_migration_entry))
        return document;
    cJSON_Delete(document);
    return NULL;
}

struct flyt_cluster_gpu *flyt_gpu_new(struct flyt_node *node, const char *uuid, const char *type, uint64_t revision)
{
    struct flyt_cluster_gpu *gpu = calloc(1, sizeof *gpu);
    char *key = strdup(uuid);

    if (!gpu || !key) {
        free(gpu);
        free(key);
        return NULL;
    }
    gpu->key = key;
    gpu->type = strdup(type);
    gpu->node = node;
    gpu->record = flyt_record_new(node->cluster->store_writer, "gpus", uuid, revision, flyt_gpu_document, gpu);
    if (!gpu->type || !gpu->record || flyt_table_add(&node->cluster->gpus, gpu)) {
        flyt_gpu_free(gpu);
        return NULL;
    }
    if (flyt_node_add_gpu(node, gpu)) {
        flyt_table_remove(&node->cluster->gpus, gpu);
        flyt_gpu_free(gpu);
        return NULL;
    }
    flyt_gpu_capacity(gpu)->uuid = gpu->key;
    flyt_gpu_capacity(gpu)->type = gpu->type;
    return gpu;
}

void flyt_gpu_free(struct flyt_cluster_gpu *gpu)
{
    if (!gpu)
        return;
    flyt_record_free(gpu->record);
    free((char *)gpu->key);
    free(gpu->type);
    free(gpu->health_text);
    free(gpu->claimant);
    free(gpu->allocations);
    free(gpu);
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
    struct flyt_cluster_gpu *gpu = flyt_gpu_new(node, its.id, content.type, its.revision);
    if (!gpu)
        return -ENOMEM;
    struct flyt_capacity *capacity = flyt_gpu_capacity(gpu);
    status =
        flyt_document_read(fields, document, (void *const[PARTS]){[GPU] = gpu, [CAPACITY] = capacity}, "gpu", its.id);
    if (status)
        return status;
    capacity->compute_capability = 100 * gpu->compute_major + gpu->compute_minor;
    flyt_gpu_note_health(gpu, content.health, "");
    flyt_capacity_set_groups(capacity, content.group_sms, content.group_count);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "allocations"))
    {
        status = flyt_allocation_load(gpu, item);
        if (status == -ENOMEM)
            return status;
        if (status &&
            status != -EBADMSG) /* the others count all the same; what the node has of it comes as an orphan */
            flyt_fail("store: an allocation of gpu %s cannot be used: %s", gpu->key, strerror(-status));
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "arriving"))
    {
        status = flyt_migration_load(gpu, item);
        if (status == -ENOMEM)
            return status;
        if (status && status != -EBADMSG)
            flyt_fail("store: what arrives on gpu %s cannot be used: %s", gpu->key, strerror(-status));
    }
    flyt_gpu_count(gpu);
    return 0;
}
