/* Tests of the store's documents: they are read, and written again, as the golden file has them, which the manager of
 * the version before wrote. What a newer build or a hand has put there does not take the rest with it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "control/cluster/io/event.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/member_document.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/io/node_document.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/member.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/table.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/store/json.h"

static const struct flyt_cluster_settings settings = {.events_max = 64, .window_ms = 100};

/* No store is there, and nothing is written. */
struct flyt_record *__wrap_flyt_record_new(struct flyt_store_writer *store_writer, const char *collection,
                                           const char *id, uint64_t revision, cJSON *(*make)(void *object),
                                           void *object);
struct flyt_record *__wrap_flyt_record_free(struct flyt_record *record);

struct flyt_record *__wrap_flyt_record_new(struct flyt_store_writer *store_writer, const char *collection,
                                           const char *id, uint64_t revision, cJSON *(*make)(void *object),
                                           void *object)
{
    return malloc(1);
}

struct flyt_record *__wrap_flyt_record_free(struct flyt_record *record)
{
    free(record);
    return NULL;
}

/* What a manager has in memory when it begins to lead. */
struct world {
    struct flyt_cluster cluster;
};

static struct world *new_world(void)
{
    struct world *world = calloc(1, sizeof *world);

    assert_non_null(world);
    world->cluster.settings = &settings;
    world->cluster.epoch = 42;
    world->cluster.events.next_sequence = 1;
    world->cluster.events.is_saving = true;
    TAILQ_INIT(&world->cluster.links);
    TAILQ_INIT(&world->cluster.unseen);
    return world;
}

static void free_world(struct world *world)
{
    struct flyt_cluster *cluster = &world->cluster;

    for (size_t i = 0; i < cluster->allocations.count; i++)
        flyt_allocation_free(cluster->allocations.items[i]);
    for (size_t i = 0; i < cluster->gpus.count; i++)
        flyt_gpu_free(cluster->gpus.items[i]);
    for (size_t i = 0; i < cluster->nodes.count; i++)
        flyt_node_free(cluster->nodes.items[i]);
    for (size_t i = 0; i < cluster->members.count; i++)
        flyt_member_free(cluster->members.items[i]);
    for (size_t i = 0; i < cluster->tokens.count; i++)
        flyt_token_free(cluster->tokens.items[i]);
    flyt_event_fini(cluster);
    flyt_table_fini(&cluster->allocations);
    flyt_table_fini(&cluster->gpus);
    flyt_table_fini(&cluster->nodes);
    flyt_table_fini(&cluster->members);
    flyt_table_fini(&cluster->tokens);
    free(cluster->place_nodes);
    free(world);
}

static cJSON *read_golden(void)
{
    static char text[65536];
    FILE *in = fopen(FLYT_DOCUMENT_GOLDEN, "r");

    assert_non_null(in);
    text[fread(text, 1, sizeof text - 1, in)] = 0;
    fclose(in);
    cJSON *golden = cJSON_Parse(text);
    assert_non_null(golden);
    return golden;
}

static const struct {
    const char *name;
    int (*load)(struct flyt_cluster *cluster, const cJSON *document);
} collections[] = {{"nodes", flyt_node_load},
                   {"gpus", flyt_gpu_load},
                   {"members", flyt_member_load},
                   {"tokens", flyt_token_load},
                   {"events", flyt_event_load}};

static void load_all(struct world *world, const cJSON *documents)
{
    const cJSON *document;

    for (unsigned i = 0; i < sizeof collections / sizeof *collections; i++)
        cJSON_ArrayForEach(document, cJSON_GetObjectItemCaseSensitive(documents, collections[i].name))
            assert_int_equal(collections[i].load(&world->cluster, document), 0);
    for (size_t i = 0; i < world->cluster.allocations.count; i++)
        flyt_migration_loaded(world->cluster.allocations.items[i]);
}

static cJSON *document_of(const cJSON *documents, const char *collection, const char *id)
{
    cJSON *document;

    cJSON_ArrayForEach(
        document,
        cJSON_GetObjectItemCaseSensitive(
            documents, collection)) if (!strcmp(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(document, "_id")),
                                                id)) return document;
    fail_msg("no %s in %s", id, collection);
    return NULL;
}

/* Members, their order, and numbers bit for bit. */
static void expect(const cJSON *golden, const char *collection, const char *id, cJSON *made)
{
    const cJSON *document = document_of(golden, collection, id);

    assert_non_null(made);
    if (!flyt_json_equal(document, made, true)) {
        char *want = cJSON_Print(document), *have = cJSON_Print(made);
        fail_msg("%s %s is\n%s\nnot\n%s", collection, id, have, want);
    }
    cJSON_Delete(made);
}

static void test_the_format_stays(void **state)
{
    struct world *world = new_world();
    struct flyt_cluster *cluster = &world->cluster;
    cJSON *golden = read_golden();

    load_all(world, golden);
    assert_int_equal(cluster->nodes.count, 2);
    assert_int_equal(cluster->gpus.count, 4);
    assert_int_equal(cluster->allocations.count, 5);
    for (size_t i = 0; i < cluster->nodes.count; i++)
        expect(golden, "nodes", ((struct flyt_node *)cluster->nodes.items[i])->key,
               flyt_node_document(cluster->nodes.items[i]));
    for (size_t i = 0; i < cluster->gpus.count; i++)
        expect(golden, "gpus", ((struct flyt_cluster_gpu *)cluster->gpus.items[i])->key,
               flyt_gpu_document(cluster->gpus.items[i]));
    for (size_t i = 0; i < cluster->members.count; i++)
        expect(golden, "members", ((struct flyt_member *)cluster->members.items[i])->key,
               flyt_member_document(cluster->members.items[i]));
    for (size_t i = 0; i < cluster->tokens.count; i++)
        expect(golden, "tokens", ((struct flyt_token *)cluster->tokens.items[i])->key,
               flyt_token_document(cluster->tokens.items[i]));
    for (size_t i = 0; i < cluster->events.count; i++) {
        char id[24];
        snprintf(id, sizeof id, "%016u", (unsigned)cluster->events.items[i].sequence);
        expect(golden, "events", id, flyt_event_document(&cluster->events.items[i]));
    }
    cJSON_Delete(golden);
    free_world(world);
}

/* What the names mean, apart from what writes them. */
static void test_what_is_read(void **state)
{
    struct world *world = new_world();
    cJSON *golden = read_golden();

    load_all(world, golden);
    const struct flyt_cluster_allocation *allocation = flyt_allocation_find(&world->cluster, 0xabc);
    assert_int_equal(allocation->state, FLYT_ALLOCATION_BLOCKED);
    assert_string_equal(allocation->tenant, "lab");
    assert_true(allocation->revision == 7 && allocation->generation == 3 && allocation->sessions_max == 8 &&
                allocation->priority == -5);
    assert_true(allocation->share.is_timed && allocation->share.minimum_pct == 20 &&
                allocation->share.maximum_pct == 60);
    assert_true(allocation->share.window_ms == 250 && allocation->shown_sms == 2 &&
                allocation->created_ms == 1700000000000);
    assert_true(allocation->is_suspended && allocation->is_reserved && allocation->when_free &&
                allocation->is_encrypted);
    assert_true(allocation->slots[0].sm_count == 4 && allocation->slots[0].wanted_sms == 3 &&
                allocation->slots[0].leaving_bytes == 4096);
    assert_true(flyt_groupset_has(&allocation->slots[0].leaving, 7) &&
                flyt_groupset_count(&allocation->slots[0].groups) == 2);
    allocation = flyt_allocation_find(&world->cluster, 0xdef);
    assert_true(allocation->slot_count == 2 && !strcmp(allocation->slots[1].gpu->key, "GPU-2"));
    const struct flyt_migration *migration = flyt_allocation_find(&world->cluster, 0xfa)->migration;
    assert_true(migration->is_between && migration->id == 0xfeed && migration->bounds.stop_ms == 750);
    assert_true(migration->stream_count == 3 && migration->packing == 2 && migration->is_encrypted);
    assert_true(migration->is_forced && migration->revision == 8);
    migration = flyt_allocation_find(&world->cluster, 0xea)->migration;
    assert_true(!migration->is_between && migration->bounds.timeout_s == 60 && !migration->stream_count);
    assert_string_equal(migration->who, "operator:bob");
    const struct flyt_node *node = flyt_table_find(&world->cluster.nodes, "n2");
    assert_true(node->is_fenced && node->place.schedule == FLYT_SCHEDULE_CORDONED);
    assert_int_equal(((struct flyt_cluster_gpu *)flyt_table_find(&world->cluster.gpus, "GPU-4"))->health,
                     FLYT_HEALTH_FAILED);
    cJSON_Delete(golden);
    free_world(world);
}

static void set(cJSON *golden, const char *name, const char *value)
{
    cJSON *gpu = document_of(golden, "gpus", "GPU-1");
    cJSON *entry = cJSON_GetObjectItemCaseSensitive(gpu, "allocations")->child;
    cJSON *to = *name == '/' ? gpu : entry;

    name += *name == '/';
    cJSON_DeleteItemFromObjectCaseSensitive(to, name);
    if (value)
        cJSON_AddItemToObject(to, name, cJSON_Parse(value));
}

/* One of the first allocation's fields, or of its GPU's (/). */
static struct world *load_changed(const char *name, const char *value)
{
    struct world *world = new_world();
    cJSON *golden = read_golden();

    set(golden, name, value);
    load_all(world, golden);
    cJSON_Delete(golden);
    return world;
}

static void test_what_is_wrong_is_as_if_absent(void **state)
{
    static const char *const cases[][2] = {
        {"colour", "\"red\""},
        {"priority", "\"x\""},
        {"priority", "1e30"},
        {"minimum_share", "101"},
        {"window_ms", "0"},
        {"sharing", "\"always\""},
        {"created_ms", "-1"},
        {"created_ms", "9007199254740993"},
        {"suspended", "1"},
        {"state", "\"orphan\""},
        {"state", "7"},
        {"sm_groups", "[0,1,256,\"x\"]"},
        {"migration", "\"nothing\""},
        {"memory_bytes", "{}"},
    };

    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world *world = load_changed(cases[i][0], cases[i][1]);
        const struct flyt_cluster_allocation *allocation = flyt_allocation_find(&world->cluster, 0xabc);
        assert_non_null(allocation);
        assert_int_equal(allocation->generation, 3);
        assert_int_equal(flyt_groupset_count(&allocation->slots[0].groups), 2);
        if (!strcmp(cases[i][0], "priority"))
            assert_int_equal(allocation->priority, 0);
        if (!strcmp(cases[i][0], "window_ms"))
            assert_int_equal(allocation->share.window_ms, 100); /* the setting */
        if (!strcmp(cases[i][0], "state"))
            assert_int_equal(allocation->state, FLYT_ALLOCATION_ACTIVE);
        free_world(world);
    }
}

/* Which allocation it is, or of what: the entry is of no use then, and no other one suffers. */
static void test_what_is_needed(void **state)
{
    static const char *const cases[][2] = {
        {"id", NULL},        {"id", "\"0000000000000000\""}, {"id", "7"},           {"vm_ip", NULL}, {"vm_ip", "1"},
        {"slot_count", "0"}, {"slot_count", NULL},           {"slot_count", "1.5"}, {"slot", "1"},
    };

    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world *world = load_changed(cases[i][0], cases[i][1]);
        if (flyt_allocation_find(&world->cluster, 0xabc))
            fail_msg("%s %s is taken", cases[i][0], cases[i][1] ? cases[i][1] : "missing");
        assert_int_equal(world->cluster.allocations.count, 4);
        free_world(world);
    }
    struct world *world = new_world();
    cJSON *golden = read_golden();
    set(golden, "/node", NULL);
    assert_int_equal(flyt_gpu_load(&world->cluster, document_of(golden, "gpus", "GPU-1")), -EBADMSG);
    assert_int_equal(flyt_gpu_load(&world->cluster, golden->child), -EBADMSG);
    cJSON_Delete(golden);
    free_world(world);
}

/* A number that a document cannot hold is not written as another one. */
static void test_numbers_are_exact(void **state)
{
    struct world *world = load_changed("created_ms", "9007199254740991");
    struct flyt_cluster_allocation *allocation = flyt_allocation_find(&world->cluster, 0xabc);
    struct flyt_cluster_gpu *gpu = allocation->slots[0].gpu;

    assert_true(allocation->created_ms == (1ull << 53) - 1);
    cJSON *document = flyt_gpu_document(gpu);
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(document, "allocations")->child;
    assert_true(cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(entry, "created_ms")) == 9007199254740991.0);
    cJSON_Delete(document);
    allocation->created_ms++;
    document = flyt_gpu_document(gpu);
    assert_null(document);
    free_world(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_format_stays),
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_what_is_wrong_is_as_if_absent),
        cmocka_unit_test(test_what_is_needed),
        cmocka_unit_test(test_numbers_are_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
