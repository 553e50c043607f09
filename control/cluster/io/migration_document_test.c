/* Tests of migration_document.c: what the documents of two nodes' GPUs say of a migration, and what who leads next
 * makes of it, be they written by an older manager or by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "control/cluster/io/allocation_document.h"
#include "control/cluster/io/migration_document.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/table.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/migration.h"

enum { GIB = 1 << 30 };

/* A manager's registry with two nodes of one GPU each. */
struct model {
    struct flyt_cluster_settings settings;
    struct flyt_cluster cluster;
    struct flyt_node nodes[2];
    struct flyt_capacity capacities[2];
    struct flyt_cluster_gpu gpus[2];
};

static struct model *new_model(void)
{
    static const char *const names[] = {"n1", "n2"}, *const uuids[] = {"GPU-1", "GPU-2"};
    struct model *model = calloc(1, sizeof *model);

    assert_non_null(model);
    model->settings.window_ms = 100;
    model->cluster.settings = &model->settings;
    for (unsigned i = 0; i < 2; i++) {
        model->nodes[i].key = names[i];
        model->nodes[i].cluster = &model->cluster;
        model->nodes[i].place.gpus = &model->capacities[i];
        model->gpus[i].key = uuids[i];
        model->gpus[i].node = &model->nodes[i];
    }
    return model;
}

static void free_model(struct model *model)
{
    for (size_t i = 0; i < model->cluster.allocations.count; i++)
        flyt_allocation_free(model->cluster.allocations.items[i]);
    flyt_table_fini(&model->cluster.allocations);
    for (unsigned i = 0; i < 2; i++)
        free(model->gpus[i].allocations);
    free(model);
}

/* An allocation on n1's GPU. */
static struct flyt_cluster_allocation *hold(struct model *model)
{
    cJSON *entry =
        cJSON_Parse("{\"id\":\"0000000000000abc\",\"vm_ip\":\"10.0.0.1\",\"tenant\":\"default\",\"state\":\"active\","
                    "\"revision\":7,\"slot\":0,\"slot_count\":1,\"sm_count\":16,\"memory_bytes\":1073741824}");

    assert_non_null(entry);
    assert_int_equal(flyt_allocation_load(&model->gpus[0], entry), 0);
    cJSON_Delete(entry);
    return model->cluster.allocations.items[0];
}

/* Its migration to n2's, as flyt_migration_start makes it. */
static struct flyt_migration *move(struct model *model, struct flyt_cluster_allocation *allocation)
{
    struct flyt_migration *migration = calloc(1, sizeof *migration);

    assert_non_null(migration);
    allocation->migration = migration;
    migration->allocation = allocation;
    migration->id = 0xfeed;
    strcpy(migration->id_text, "000000000000feed");
    strcpy(migration->who, "operator:alice");
    migration->bounds = (flyt_migration_bounds){.rounds_max = 5, .stop_ms = 750, .rest_bytes = 32 << 20};
    migration->started_ms = 1000;
    migration->is_between = true;
    migration->stream_count = 3;
    migration->packing = 2;
    migration->is_encrypted = true;
    migration->others[0] = (struct flyt_cluster_slot){.gpu = &model->gpus[1], .sm_count = 16, .memory_bytes = GIB};
    for (unsigned i = 0; i < FLYT_MIGRATION_SIDES; i++)
        migration->sides[i].node = &model->nodes[i];
    assert_int_equal(flyt_gpu_attach(&model->gpus[1], allocation), 0);
    return migration;
}

static cJSON *arriving(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_gpu *gpu)
{
    cJSON *entry;

    assert_int_equal(flyt_migration_entry(allocation, gpu, &entry), 0);
    return entry;
}

/* The two entries, of `allocations` of n1's GPU and of `arriving` of n2's. */
static void record(cJSON **ret_entries)
{
    struct model *model = new_model();
    struct flyt_cluster_allocation *allocation = hold(model);

    move(model, allocation);
    assert_int_equal(flyt_allocation_entry(allocation, &model->gpus[0], &ret_entries[0]), 0);
    ret_entries[1] = arriving(allocation, &model->gpus[1]);
    assert_non_null(ret_entries[0]);
    assert_non_null(ret_entries[1]);
    assert_null(arriving(allocation, &model->gpus[0]));
    free_model(model);
}

/* By who leads next; the entries are the test's. */
static struct flyt_migration *load(struct model *model, cJSON *const *entries)
{
    assert_int_equal(flyt_allocation_load(&model->gpus[0], entries[0]), 0);
    assert_int_equal(flyt_migration_load(&model->gpus[1], entries[1]), 0);
    struct flyt_cluster_allocation *allocation = model->cluster.allocations.items[0];
    flyt_migration_loaded(allocation);
    assert_non_null(allocation->migration);
    assert_int_equal(allocation->migration->id, 0xfeed);
    assert_true(allocation->migration->is_between);
    return allocation->migration;
}

static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static void free_entries(cJSON **entries)
{
    for (unsigned i = 0; i < 2; i++)
        cJSON_Delete(entries[i]);
}

static void test_the_next_one_knows_how_it_goes(void **state)
{
    struct model *model = new_model();
    cJSON *entries[2];

    record(entries);
    for (unsigned i = 0; i < 2; i++) {
        assert_float_equal(cJSON_GetNumberValue(member(entries[i], "migration_streams")), 3, 0);
        assert_string_equal(cJSON_GetStringValue(member(entries[i], "migration_packing")), "zstd");
        assert_true(cJSON_IsTrue(member(entries[i], "migration_encrypted")));
    }
    const struct flyt_migration *migration = load(model, entries);
    assert_int_equal(migration->stream_count, 3);
    assert_int_equal(migration->packing, 2);
    assert_true(migration->is_encrypted);
    assert_int_equal(migration->bounds.stop_ms, 750);
    assert_string_equal(migration->who, "operator:alice");
    cJSON *row = flyt_migration_json(migration);
    assert_float_equal(cJSON_GetNumberValue(member(row, "streams")), 3, 0);
    assert_string_equal(cJSON_GetStringValue(member(row, "packing")), "zstd");
    assert_true(cJSON_IsTrue(member(row, "encrypted")));
    cJSON_Delete(row);
    /* What it writes again is what it has read. */
    cJSON *again = arriving(migration->allocation, &model->gpus[1]);
    assert_true(cJSON_Compare(member(again, "migration_streams"), member(entries[1], "migration_streams"), true));
    assert_true(cJSON_Compare(member(again, "migration_packing"), member(entries[1], "migration_packing"), true));
    assert_true(cJSON_Compare(member(again, "migration_encrypted"), member(entries[1], "migration_encrypted"), true));
    cJSON_Delete(again);
    free_entries(entries);
    free_model(model);
}

/* An older manager has recorded none of it: nothing is shown, and nothing is made up when it is written again. */
static void test_documents_of_an_older_manager(void **state)
{
    static const char *const names[] = {"migration_streams", "migration_packing", "migration_encrypted"};
    struct model *model = new_model();
    cJSON *entries[2];

    record(entries);
    for (unsigned i = 0; i < 6; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(entries[i % 2], names[i / 2]);
    const struct flyt_migration *migration = load(model, entries);
    assert_int_equal(migration->stream_count, 0);
    assert_int_equal(migration->bounds.rounds_max, 5);
    cJSON *row = flyt_migration_json(migration);
    assert_null(member(row, "streams"));
    assert_null(member(row, "packing"));
    assert_null(member(row, "encrypted"));
    assert_non_null(member(row, "target_node"));
    cJSON_Delete(row);
    cJSON *again = arriving(migration->allocation, &model->gpus[1]);
    for (unsigned i = 0; i < 3; i++)
        assert_null(member(again, names[i]));
    cJSON_Delete(again);
    free_entries(entries);
    free_model(model);
}

/* By hand, or by a newer manager: what is none is not taken for one. */
static void test_what_is_none(void **state)
{
    static const struct {
        const char *streams, *packing;
        unsigned stream_count;
        const char *shown;
    } cases[] = {
        {"8", "\"none\"", 8, "none"}, {"1", "\"lz4\"", 1, "lz4"},   {"9", "\"lz4\"", 0, NULL},
        {"-1", "\"lz4\"", 0, NULL},   {"1e30", "\"lz4\"", 0, NULL}, {"\"4\"", "\"lz4\"", 0, NULL},
        {"4", "\"brotli\"", 4, NULL}, {"4", "1", 4, NULL},          {"4", "null", 4, NULL},
    };

    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model *model = new_model();
        cJSON *entries[2];
        record(entries);
        for (unsigned j = 0; j < 2; j++) {
            cJSON_ReplaceItemInObjectCaseSensitive(entries[j], "migration_streams", cJSON_Parse(cases[i].streams));
            cJSON_ReplaceItemInObjectCaseSensitive(entries[j], "migration_packing", cJSON_Parse(cases[i].packing));
        }
        const struct flyt_migration *migration = load(model, entries);
        assert_int_equal(migration->stream_count, cases[i].stream_count);
        cJSON *row = flyt_migration_json(migration);
        const char *shown = cJSON_GetStringValue(member(row, "packing"));
        assert_int_equal(member(row, "streams") != NULL, cases[i].stream_count != 0);
        assert_int_equal(shown != NULL, cases[i].shown != NULL);
        if (shown)
            assert_string_equal(shown, cases[i].shown);
        cJSON_Delete(row);
        free_entries(entries);
        free_model(model);
    }
}

/* Within a node there is no such way. */
static void test_within_a_node(void **state)
{
    struct model *model = new_model();
    struct flyt_cluster_allocation *allocation = hold(model);
    struct flyt_migration *migration = move(model, allocation);

    model->gpus[1].node = &model->nodes[0];
    migration->is_between = migration->is_encrypted = false;
    migration->stream_count = migration->packing = 0;
    migration->sides[FLYT_MIGRATION_TARGET].node = &model->nodes[0];
    cJSON *entry = arriving(allocation, &model->gpus[1]);
    assert_non_null(member(entry, "migration_rounds_max"));
    assert_null(member(entry, "migration_streams"));
    assert_null(member(entry, "migration_packing"));
    assert_null(member(entry, "migration_encrypted"));
    cJSON_Delete(entry);
    model->gpus[1].node = &model->nodes[1];
    free_model(model);
}

/* One that has moved within its node, as both documents say: another manager was told what it took. */
static void test_nothing_is_known_of_what_has_moved(void **state)
{
    struct model *model = new_model();
    cJSON *entries[2];

    record(entries);
    model->gpus[1].node = &model->nodes[0];
    model->gpus[1].place = 1;
    model->nodes[0].place.gpus = model->capacities;
    for (unsigned i = 0; i < 2; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(entries[i], "migration_from");
    cJSON_ReplaceItemInObjectCaseSensitive(entries[1], "revision", cJSON_CreateNumber(9));
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(flyt_allocation_load(&model->gpus[i], entries[i]), 0);
    struct flyt_cluster_allocation *allocation = model->cluster.allocations.items[0];
    flyt_migration_loaded(allocation);
    assert_non_null(allocation->migration);
    assert_true(flyt_migration_is_moved(allocation->migration));
    assert_int_equal(allocation->migration->use.phase, FLYT_MIGRATION_DONE);
    assert_false(allocation->migration->has_figures);
    free_entries(entries);
    free_model(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_next_one_knows_how_it_goes),
        cmocka_unit_test(test_documents_of_an_older_manager),
        cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_within_a_node),
        cmocka_unit_test(test_nothing_is_known_of_what_has_moved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
