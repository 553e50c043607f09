/* What holds after each step, and when everything has come to its end (README.md). */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "control/cluster/model/gpu.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/test/test_state.h"

void world_content(char *content, const char *state, uint64_t groups, unsigned sm_count, uint64_t memory_bytes)
{
    snprintf(content, CONTENT_BYTES, "%s groups=%" PRIx64 " sms=%u memory=%" PRIu64, state, groups, sm_count,
             memory_bytes);
}

/* The entry of an allocation in a GPU's document has been written. */
void world_entry_written(struct world *world, const cJSON *entry)
{
    char key[64 + CONTENT_BYTES], content[CONTENT_BYTES];
    uint64_t groups = 0;
    const cJSON *group;

    cJSON_ArrayForEach(group, cJSON_GetObjectItemCaseSensitive(entry, "sm_groups")) groups |= 1ull << group->valueint;
    world_content(content, cJSON_GetObjectItemCaseSensitive(entry, "state")->valuestring, groups,
                  (unsigned)cJSON_GetObjectItemCaseSensitive(entry, "sm_count")->valuedouble,
                  (uint64_t)cJSON_GetObjectItemCaseSensitive(entry, "memory_bytes")->valuedouble);
    snprintf(key, sizeof key, "%s %" PRIu64 " %s", cJSON_GetObjectItemCaseSensitive(entry, "id")->valuestring,
             (uint64_t)cJSON_GetObjectItemCaseSensitive(entry, "revision")->valuedouble, content);
    cJSON_DeleteItemFromObjectCaseSensitive(world->history, key);
    cJSON_AddTrueToObject(world->history, key);
}

static void arriving_key(char *key, const char *uuid, const char *id)
{
    snprintf(key, 64, "%.20s arrives on %.20s", id, uuid);
}

void world_arriving_written(struct world *world, const char *uuid, const cJSON *entry)
{
    char key[64];

    arriving_key(key, uuid, cJSON_GetObjectItemCaseSensitive(entry, "id")->valuestring);
    cJSON_DeleteItemFromObjectCaseSensitive(world->history, key);
    cJSON_AddTrueToObject(world->history, key);
}

void world_assert_arriving(const struct world *world, unsigned node, const char *uuid, uint64_t id)
{
    char key[64], text[20];

    snprintf(text, sizeof text, "%016" PRIx64, id);
    arriving_key(key, uuid, text);
    if (!cJSON_GetObjectItemCaseSensitive(world->history, key))
        fail_msg("node n%u was told that %s, and no document says so", node, key);
}

/* What a node is given was in the store as it is given. */
void world_assert_written(const struct world *world, const struct applied *given)
{
    char key[64 + CONTENT_BYTES];

    snprintf(key, sizeof key, "%016" PRIx64 " %" PRIu64 " %s", given->id, given->revision, given->content);
    if (!cJSON_GetObjectItemCaseSensitive(world->history, key))
        fail_msg("allocation and revision %s were ordered and never written", key);
}

/* No two allocations' programs are on the same SMs of a node, and no GPU gives more than it has. */
void world_assert_apart(const struct world *world, unsigned i)
{
    const struct node *node = &world->nodes[i];

    for (unsigned gpu = 0; gpu < WORLD_GPUS; gpu++) {
        uint64_t taken = 0, memory_bytes = world_memory_arriving(world, i, gpu);
        for (unsigned j = 0; j < ALLOCATIONS; j++) {
            const struct applied *one = &node->applied[j];
            if (!one->id || one->gpu != gpu)
                continue;
            if (taken & (one->groups | one->in_use))
                fail_msg("allocation %016" PRIx64 " at revision %" PRIu64 " is on SMs of another one", one->id,
                         one->revision);
            taken |= one->groups | one->in_use;
            memory_bytes += world_memory_of(one);
        }
        if (memory_bytes > WORLD_MEMORY_GIB * GIB)
            fail_msg("programs have %" PRIu64 " MiB of GPU %u of node n%u", memory_bytes >> 20, gpu, i);
    }
}

void world_assert_model(struct world *world)
{
    for (size_t i = 0; i < world->cluster.gpus.count; i++) {
        struct flyt_cluster_gpu *gpu = world->cluster.gpus.items[i];
        uint64_t taken = 0, bytes = 0;
        char owner[16];
        snprintf(owner, sizeof owner, "GPU-%c", gpu->node->key[1]);
        if (!world->is_given && strncmp(gpu->key, owner, strlen(owner)))
            fail_msg("GPU %s is node %s's, and nobody has said so", gpu->key, gpu->node->key);
        for (unsigned j = 0; j < gpu->allocation_count; j++) {
            const struct flyt_cluster_allocation *allocation = gpu->allocations[j];
            for (unsigned k = 0; k < allocation->slot_count; k++) {
                const struct flyt_cluster_slot *slot = &allocation->slots[k];
                if (slot->gpu != gpu)
                    continue;
                uint64_t groups = slot->groups.words[0] | slot->leaving.words[0];
                assert_int_equal(taken & groups, 0);
                taken |= groups;
                bytes += slot->memory_bytes + slot->leaving_bytes;
            }
        }
        assert_true(taken >> WORLD_GROUPS == 0);
        if (bytes > WORLD_MEMORY_GIB * GIB)
            fail_msg("GPU %s has given %" PRIu64 " MiB", gpu->key, bytes >> 20);
    }
}

void world_assert_one_place(const struct world *world, uint64_t id)
{
    unsigned places = 0;

    for (unsigned i = 0; i < WORLD_NODES; i++)
        for (unsigned j = 0; j < ALLOCATIONS; j++)
            places += world->nodes[i].applied[j].id == id && world->nodes[i].applied[j].in_use;
    if (places > 1)
        fail_msg("programs of allocation %016" PRIx64 " are on two nodes", id);
}

void world_assert_given_away(const struct world *world, const struct move *move, unsigned node)
{
    const cJSON *document, *entry;
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, move->allocation_id);
    cJSON_ArrayForEach(document, world->gpus)
    {
        bool is_other = cJSON_GetObjectItemCaseSensitive(document, "node")->valuestring[1] != (char)('0' + node);
        cJSON_ArrayForEach(
            entry, cJSON_GetObjectItemCaseSensitive(
                       document, "allocations")) if (is_other &&
                                                     !strcmp(cJSON_GetObjectItemCaseSensitive(entry, "id")->valuestring,
                                                             id)) return;
    }
    fail_msg("node n%u was to let programs of %s go, and no document gives it to the other one", node, id);
}

/* ---- the end of all things ---- */

bool world_is_at_rest(struct world *world)
{
    bool is_quiet = !world->queue && !world->busy && !world->jobs && !world->calls && !world->cluster.checkpoint_ops;

    for (unsigned i = 0; i < WORLD_NODES; i++)
        is_quiet &= !world->nodes[i].order_count;
    for (size_t i = 0; i < world->cluster.vms.count; i++)
        is_quiet &= TAILQ_EMPTY(&((struct flyt_vm *)world->cluster.vms.items[i])->resizes);
    for (size_t i = 0; i < world->cluster.allocations.count && is_quiet; i++) {
        const struct flyt_cluster_allocation *allocation = world->cluster.allocations.items[i];
        is_quiet =
            allocation->is_granted && !allocation->is_leaving && allocation->written_revision == allocation->revision &&
            allocation->applied_revision == allocation->revision && !allocation->resize && !allocation->migration;
    }
    return is_quiet;
}

void world_assert_agree(struct world *world)
{
    for (unsigned i = 0; i < WORLD_NODES; i++)
        for (unsigned j = 0; j < ALLOCATIONS; j++) {
            const struct applied *own = &world->nodes[i].applied[j];
            if (!own->id)
                continue;
            const struct flyt_cluster_allocation *allocation = flyt_allocation_find(&world->cluster, own->id);
            if (!allocation)
                fail_msg("node n%u has allocation %016" PRIx64 ", which nobody knows", i, own->id);
            assert_int_equal(allocation->revision, own->revision);
            world_assert_written(world, own);
        }
}
