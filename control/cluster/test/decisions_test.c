/* Decisions one by one, in the world of test_world.h: checkpoints, drains, nodes that are too old, refuse or die, GPUs
 * that change nodes, documents by hand, and what is shown of all that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/checkpoint_op.h"
#include "control/cluster/reconcile/vm_device.h"
#include "control/cluster/reconcile/desired_store.h"
#include "control/cluster/test/test_world.h"

/* ---- checkpoints and restores ---- */

static void test_checkpoint(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    struct flyt_cluster *cluster = world_cluster(world);

    world_checkpoint(world, 0, "images");
    world_must_have_said(world, FLYT_STATUS_INVALID, "whole path");
    world_checkpoint(world, 1, "/images");
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "no");
    world_checkpoint(world, 0, "/images");
    world_answer(world, node, false);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    assert_non_null(flyt_checkpoint_op_of(world_vm(world, 0)->allocation));
    assert_int_equal(world_count(flyt_checkpoint_op_view(cluster, "")), 1);
    /* Meanwhile it stays as it is. */
    world_checkpoint(world, 0, "/others");
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "checkpointed already");
    world_resize(world, 0, 16, 0, false, 1000);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "checkpointed");
    world_migrate(world, 0, node, -1, 0);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "checkpointed");
    world_document(world, 0, 16, 1, false, 0);
    world_run(world);
    assert_int_equal(world_vm(world, 0)->allocation->slots[0].sm_count, 32);
    /* When it is over, what the document has come to say holds. */
    world_settle(world);
    assert_null(cluster->checkpoint_ops);
    assert_int_equal(world_vm(world, 0)->allocation->slots[0].sm_count, 16);
    assert_int_equal(world_count(flyt_checkpoint_op_view(cluster, "10.0.0.1")), 1);
    assert_int_equal(world_count(flyt_checkpoint_op_view(cluster, "10.0.0.2")), 0);
    world_free(world);
}

static void test_restore(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);

    world_restore_images(world, WORLD_NODES, "/images");
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "no program waits");
    world_restore_images(world, node, "images");
    world_must_have_said(world, FLYT_STATUS_INVALID, "whole path");
    world_restore_images(world, node, "/images");
    world_answer(world, node, false);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_settle(world);
    assert_int_equal(world_count(flyt_checkpoint_op_view(world_cluster(world), "")), 1);
    world_disconnect(world, node);
    world_restore_images(world, node, "/images");
    world_must_have_said(world, FLYT_STATUS_UNAVAILABLE, "not connected");
    world_settle(world);
    world_free(world);
}

static void test_nothing_is_saved(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);

    world_set_manner(world, node, WORLD_IS_OLD);
    world_checkpoint(world, 0, "/images");
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_NOT_SUPPORTED, "older than this cluster manager");
    world_set_manner(world, node, WORLD_REFUSES);
    world_checkpoint(world, 0, "/images");
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "refused");
    /* It has begun; then its node is one that knows nothing of it. */
    world_set_manner(world, node, WORLD_OBEYS);
    world_checkpoint(world, 0, "/images");
    world_answer(world, node, false);
    world_set_manner(world, node, WORLD_IS_OLD);
    world_pass(world, 1500);
    world_run(world);
    assert_null(world_cluster(world)->checkpoint_ops);
    world_set_manner(world, node, WORLD_OBEYS);
    world_settle(world);
    world_free(world);
}

static void test_one_session(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    const struct flyt_cluster_allocation *allocation = world_vm(world, 0)->allocation;

    world_checkpoint_session(world, 1, "/images");
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "no session");
    world_session(world, node, 99, 8, false);
    world_checkpoint_session(world, 1, "/images");
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "not known");
    world_session(world, node, allocation->id, 24, false);
    /* Its kernels' blocks run together. */
    world_resize(world, 0, 16, 0, false, 1000);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_IN_USE, "need 24 SMs");
    world_resize(world, 0, 24, 0, false, 1000);
    world_run(world);
    assert_int_equal(allocation->slots[0].sm_count, 24);
    /* No other node has the library that it has opened. */
    world_migrate(world, 0, !node, -1, 0);
    assert_true(world_last_status(world, NULL) != FLYT_STATUS_OK && !allocation->migration);
    world_checkpoint_session(world, 1, "/images");
    world_answer(world, node, false);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_pass(world, 1500);
    world_run(world);
    world_session(world, node, allocation->id, 0, true);
    world_checkpoint_session(world, 1, "/images");
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "in an image already");
    world_restore_images(world, WORLD_NODES, "/images");
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_settle(world);
    world_free(world);
}

/* Whoever leads next goes on to ask about those that have begun and not ended. */
static void test_savings_are_remembered(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    struct flyt_cluster *cluster = world_cluster(world);
    char begun[256];

    snprintf(begun, sizeof begun,
             "{\"id\":\"00000000000000aa\",\"kind\":\"checkpoint\",\"node\":\"n%u\",\"folder\":\"/images\"}", node);
    flyt_checkpoint_op_load_event(cluster, "checkpoint.started", begun);
    flyt_checkpoint_op_load_event(cluster, "restore.started",
                                  "{\"id\":\"00000000000000bb\",\"kind\":\"restore\",\"node\":\"n1\"}");
    flyt_checkpoint_op_load_event(cluster, "restore.done",
                                  "{\"id\":\"00000000000000bb\",\"kind\":\"restore\",\"node\":\"n1\"}");
    flyt_checkpoint_op_load_event(cluster, "vm.added", "{}");
    assert_non_null(flyt_checkpoint_op_find(cluster, 0xaa));
    assert_null(flyt_checkpoint_op_find(cluster, 0xbb));
    assert_true(flyt_checkpoint_op_is_told(cluster, "checkpoint.done", "checkpoint 00000000000000aa: written"));
    assert_true(flyt_checkpoint_op_is_told(cluster, "restore.done", "restore 00000000000000bb: 1 program"));
    assert_false(flyt_checkpoint_op_is_told(cluster, "restore.done", "restore 00000000000000cc: 1 program"));
    assert_false(flyt_checkpoint_op_is_told(cluster, "vm.added", "checkpoint 00000000000000aa: written"));
    world_settle(world); /* its node does not know it: it has failed */
    assert_null(cluster->checkpoint_ops);
    world_free(world);
}

/* ---- draining ---- */

/* VM 0 had 32 SMs; its programs are still on those that were taken from it. */
static struct world *world_that_drains(unsigned *ret_node)
{
    struct world *world = world_with_vm(ret_node);
    const struct flyt_cluster_allocation *allocation = world_vm(world, 0)->allocation;

    while (!allocation->session_count) /* programs come when the world likes */
        world_heartbeat(world, *ret_node);
    world_resize(world, 0, 8, 0, false, 100);
    world_run(world);
    assert_true(flyt_groupset_count(&allocation->slots[0].leaving) > 0);
    return world;
}

static void test_drain(void **state)
{
    unsigned node;
    struct world *world = world_that_drains(&node);

    world_drain(world, 7);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "");
    assert_null(world_vm(world, 1)->allocation);
    world_drain(world, 1);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    /* Its time is over: which programs they are. */
    world_drain(world, 0);
    world_pass(world, 5001);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_TIMEOUT, "solver (pid 7)");
    world_set_manner(world, node, WORLD_REFUSES);
    world_drain_and_kill(world, 0, 0);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_TIMEOUT, "has ended none");
    world_disconnect(world, node);
    world_drain_and_kill(world, 0, 0);
    world_must_have_said(world, FLYT_STATUS_TIMEOUT, "cannot say");
    world_set_manner(world, node, WORLD_OBEYS);
    world_register(world, node, false);
    world_run(world);
    world_settle(world);
    world_free(world);
}

static void test_drain_and_kill(void **state)
{
    unsigned node;
    struct world *world = world_that_drains(&node);

    world_drain_and_kill(world, 0, 100);
    world_pass(world, 101);
    world_answer(world, node, false);
    for (unsigned i = 0; flyt_groupset_count(&world_vm(world, 0)->allocation->slots[0].leaving) && i < 100; i++)
        world_heartbeat(world, node);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_settle(world);
    world_free(world);
}

/* ---- nodes and GPUs ---- */

static void test_fence(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);

    world_fence(world, 7, true);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "");
    world_fence(world, node, true);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "may be up");
    world_die(world, node);
    world_pass(world, 11000);
    world_fence(world, node, false);
    world_must_have_said(world, FLYT_STATUS_INVALID, "--confirmed-dead");
    world_fence(world, node, true);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    assert_null(world_vm(world, 0)->allocation);
    world_settle(world);
    world_free(world);
}

/* The source, or the target, of a move between nodes dies in its middle. */
static void test_fenced_in_a_move(void **state)
{
    for (unsigned target_dies = 0; target_dies < 2; target_dies++)
        for (unsigned steps = 0; steps < 40; steps++) {
            unsigned node;
            struct world *world = world_with_vm(&node);
            unsigned dead = target_dies ? !node : node;
            world_migrate(world, 0, !node, -1, 0);
            for (unsigned i = 0; i < steps; i++) {
                world_store(world, false);
                world_answer(world, i % 2, false);
                if (i % 3 == 2)
                    world_move(world, i % 2, false);
            }
            world_die(world, dead);
            world_pass(world, 11000);
            world_fence(world, dead, true);
            world_run(world);
            world_settle(world);
            world_free(world);
        }
}

static void test_gpu_fails(void **state)
{
    struct world *world = world_new(1);
    unsigned node;

    /* One that has failed gets nothing new. */
    for (unsigned i = 0; i < WORLD_NODES; i++)
        for (unsigned gpu = 0; gpu < WORLD_GPUS; gpu++)
            world_gpu_health(world, i, gpu, FLYT_HEALTH_FAILED, "it has fallen off the bus");
    world_document(world, 0, 8, 1, false, 0);
    world_attach(world, 0);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_NO_CAPACITY, "");
    world_gpu_health(world, 1, 1, FLYT_HEALTH_DEGRADED, "it is hot");
    world_gpu_health(world, 1, 1, FLYT_HEALTH_OK, "");
    world_attach(world, 0);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    node = (unsigned)(world_vm(world, 0)->allocation->node->key[1] - '0');
    assert_int_equal(node, 1);
    assert_string_equal(world_vm(world, 0)->allocation->slots[0].gpu->key, "GPU-1:1");
    world_settle(world);
    world_free(world);
}

static void test_gpu_changes_nodes(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    struct flyt_cluster *cluster = world_cluster(world);
    char uuid[16];

    snprintf(uuid, sizeof uuid, "GPU-%u:0", node);
    world_adopt_gpu(world, 7);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "there is no node");
    world_adopt_gpu(world, !node);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "has not reported");
    world_register(world, !node, true);
    world_adopt_gpu(world, !node);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "does not say the truth");
    world_disconnect(world, node);
    world_adopt_gpu(world, !node);
    const struct flyt_cluster_gpu *gpu = flyt_table_find(&cluster->gpus, uuid);
    assert_int_equal(gpu->node->key[1] - '0', !node);
    for (unsigned i = 0; i < gpu->allocation_count; i++)
        assert_ptr_equal(gpu->allocations[i]->node, gpu->node);
    world_free(world);
}

static void test_vm_device(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);

    world_vm_device(world, 0, node, false);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_vm_device(world, 0, node, true);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_vm_device(world, 0, 7, false);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "not known");
    world_vm_device(world, 7, node, false);
    world_must_have_said(world, FLYT_STATUS_NOT_FOUND, "");
    world_vm_device(world, 7, node, true);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_set_manner(world, node, WORLD_REFUSES);
    world_vm_device(world, 0, node, false);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "it cannot");
    flyt_vm_device_forget(world_cluster(world), "10.0.0.1");
    world_run(world);
    world_set_manner(world, node, WORLD_IS_OLD);
    world_vm_device(world, 0, node, false);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_UNAVAILABLE, "knows no memory of VMs");
    world_disconnect(world, node);
    world_vm_device(world, 0, node, false);
    world_must_have_said(world, FLYT_STATUS_UNAVAILABLE, "not connected");
    world_set_manner(world, node, WORLD_OBEYS);
    world_settle(world);
    world_free(world);
}

/* ---- who waits for a grant ---- */

static void test_attach(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);

    world_look(world, 0);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_vm_says(world, 0, 3, "it is slow");
    world_vm_says(world, 0, 2, "it is slow still");
    assert_int_equal(world_vm(world, 0)->program_count, 2);
    /* Its node is away: for a moment that is waited for. */
    world_disconnect(world, node);
    world_attach(world, 0);
    world_pass(world, 11000);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_UNAVAILABLE, "is not connected for");
    world_register(world, node, false);
    world_run(world);
    /* Its document is deleted while programs run. */
    while (!world_vm(world, 0)->allocation->session_count)
        world_heartbeat(world, node);
    world_document(world, 0, 0, 0, false, 0);
    world_attach(world, 0);
    world_must_have_said(world, FLYT_STATUS_DENIED, "was removed");
    world_document(world, 0, 32, 1, false, 0);
    world_attach(world, 0);
    world_refuse(world);
    world_run(world);
    world_settle(world);
    /* Too large for any node. */
    world_document(world, 1, 512, 1, false, 0);
    world_attach(world, 1);
    world_must_have_said(world, FLYT_STATUS_NO_CAPACITY, "");
    /* It does not fit beside the first on one GPU, but on the next. */
    world_document(world, 1, 64, 1, true, 0);
    world_attach(world, 1);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_settle(world);
    world_free(world);
}

/* Whether the store has it is not known, for it does not answer: who waits hears that, not what comes of it later. */
static void test_attach_without_a_store(void **state)
{
    struct world *world = world_new(1);
    struct flyt_cluster *cluster = world_cluster(world);

    world_document(world, 0, 32, 1, false, 0);
    world_attach(world, 0);
    world_store(world, false); /* the write is under way, and does not end */
    cluster->is_store_available = false;
    world_pass(world, 1000);
    world_must_have_said(world, FLYT_STATUS_UNAVAILABLE, "is not known yet: the store does not answer");
    world_attach(world, 0);
    world_must_have_said(world, FLYT_STATUS_UNAVAILABLE, "is not known yet: the store does not answer");
    /* It has been written: who asks again has it. */
    cluster->is_store_available = true;
    world_run(world);
    world_attach(world, 0);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_settle(world);
    world_free(world);
}

static void test_resizes_that_cannot_be(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);

    world_resize(world, 1, 8, 0, false, 1000);
    world_must_have_said(world, FLYT_STATUS_CONFLICT, "has no document");
    world_resize(world, 0, 0, 0, false, 1000);
    world_must_have_said(world, FLYT_STATUS_INVALID, "names SMs");
    world_resize(world, 0, 1 << 21, 0, false, 1000);
    world_must_have_said(world, FLYT_STATUS_INVALID, "at least 1");
    world_resize(world, 0, 512, 0, false, 1000);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_NO_CAPACITY, "has not so many SMs");
    world_resize(world, 0, 0, 64ull << 30, false, 1000);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_NO_CAPACITY, "has not so much memory");
    assert_int_equal(world_vm(world, 0)->desired.sm_count, 32);
    /* The store is slow: it is not known whether it is recorded. */
    world_resize(world, 0, 16, 0, false, 100);
    world_pass(world, 101);
    world_must_have_said(world, FLYT_STATUS_TIMEOUT, "the store is slow");
    world_settle(world);
    /* The node is away: it is recorded. */
    world_disconnect(world, node);
    world_resize(world, 0, 8, 0, false, 1000);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_TIMEOUT, "it takes hold when the node is back");
    world_settle(world);
    assert_int_equal(world_vm(world, 0)->allocation->slots[0].sm_count, 8);
    world_migrate(world, 0, node, -1, 1 << 21);
    world_must_have_said(world, FLYT_STATUS_INVALID, "at least 1 SM");
    world_migrate(world, 0, node, -1, 512);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_NO_CAPACITY, "");
    world_settle(world);
    world_free(world);
}

/* A node whose programs need more refuses a size once: it is taken back, not ordered once more before. */
static void test_refused_resize(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);

    world_need(world, node, 32);
    world_resize(world, 0, 16, 0, false, 20000);
    while (world_store(world, false))
        ;
    world_pass(world, 6000); /* by the answer, what failed would be tried again */
    world_answer(world, node, false);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_IN_USE, "is taken back");
    assert_int_equal(world_refusals(world), 1);
    /* Nor does it go with the next change, which was written while the order was under way. */
    world_resize(world, 0, 16, 0, false, 1000);
    while (world_store(world, false))
        ;
    world_document(world, 0, 0, 0, false, 0);
    while (world_store(world, false))
        ;
    assert_int_equal(world_vm(world, 0)->allocation->state, FLYT_ALLOCATION_BLOCKED);
    world_answer(world, node, false);
    world_run(world);
    assert_int_equal(world_refusals(world), 2);
    assert_int_equal(world_vm(world, 0)->allocation->slots[0].sm_count, 32);
    world_settle(world);
    world_free(world);
}

/* A change that the store does not take is written again at once, though its node has just taken the one before. */
static void test_written_again(void **state)
{
    unsigned node;
    struct world *world = world_with_vm(&node);
    const struct flyt_cluster_allocation *allocation = world_vm(world, 0)->allocation;

    while (!allocation->session_count) /* else it ends with its document */
        world_heartbeat(world, node);
    world_resize(world, 0, 16, 0, false, 1000);
    world_run(world);
    assert_true(allocation->applied_revision == allocation->revision);
    world_document(world, 0, 0, 0, false, 0);
    world_refuse(world);
    assert_true(allocation->failed_revision == allocation->revision);
    world_run(world);
    assert_true(allocation->written_revision == allocation->revision);
    assert_true(allocation->applied_revision == allocation->revision);
    world_settle(world);
    world_free(world);
}

/* ---- documents by hand ---- */

static void write_document(struct world *world, const char *id, const char *text)
{
    cJSON *document = text ? cJSON_Parse(text) : NULL;

    assert_true(!text || document);
    flyt_desired_store_written(world_cluster(world), id, document);
    cJSON_Delete(document);
}

static void test_documents(void **state)
{
    struct world *world = world_new(1);
    struct flyt_vm *vm = world_vm(world, 3);

    write_document(world, "a", "{\"vm_ip\":\"10.0.0.4\",\"compute_units\":8,\"memory\":1}");
    assert_true(vm->has_desired);
    assert_int_equal(vm->desired.sm_count, 8);
    /* Two documents: neither counts until one goes. */
    write_document(world, "b", "{\"vm_ip\":\"10.0.0.4\",\"compute_units\":16,\"memory\":1}");
    assert_int_equal(vm->desired.sm_count, 8);
    assert_non_null(strstr(vm->reason, "both have vm_ip"));
    write_document(world, "a", NULL);
    assert_int_equal(vm->desired.sm_count, 16);
    write_document(world, "b", "{\"vm_ip\":\"10.0.0.4\",\"compute_units\":\"many\",\"memory\":1}");
    assert_int_equal(vm->desired.sm_count, 16);
    assert_non_null(strstr(vm->reason, "compute_units"));
    /* It is another VM's now. */
    write_document(world, "b", "{\"vm_ip\":\"10.0.0.5\",\"compute_units\":24,\"memory\":1}");
    assert_false(vm->has_desired);
    assert_int_equal(world_vm(world, 4)->desired.sm_count, 24);
    write_document(world, "b", NULL);
    assert_false(world_vm(world, 4)->has_desired);
    world_attach(world, 4);
    world_must_have_said(world, FLYT_STATUS_DENIED, "");
    world_settle(world);
    world_free(world);
}

static void test_tenants(void **state)
{
    struct world *world = world_new(1);
    cJSON *quota = cJSON_Parse("{\"vms\":1}"), *bad = cJSON_Parse("{\"vms\":-1}");
    struct flyt_change change = {.id = (char *)"default", .document = quota};

    flyt_tenant_changed(world_cluster(world), &change);
    change.document = bad;
    flyt_tenant_changed(world_cluster(world), &change);
    for (unsigned i = 0; i < 2; i++) {
        world_document(world, i, 8, 1, false, 0);
        world_attach(world, i);
        world_run(world);
    }
    world_must_have_said(world, FLYT_STATUS_QUOTA, "");
    change.document = NULL;
    flyt_tenant_changed(world_cluster(world), &change);
    world_attach(world, 1);
    world_run(world);
    world_must_have_said(world, FLYT_STATUS_OK, "");
    world_settle(world);
    cJSON_Delete(quota);
    cJSON_Delete(bad);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint),
        cmocka_unit_test(test_restore),
        cmocka_unit_test(test_nothing_is_saved),
        cmocka_unit_test(test_one_session),
        cmocka_unit_test(test_savings_are_remembered),
        cmocka_unit_test(test_gpu_fails),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_and_kill),
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_fenced_in_a_move),
        cmocka_unit_test(test_gpu_changes_nodes),
        cmocka_unit_test(test_vm_device),
        cmocka_unit_test(test_attach),
        cmocka_unit_test(test_attach_without_a_store),
        cmocka_unit_test(test_resizes_that_cannot_be),
        cmocka_unit_test(test_refused_resize),
        cmocka_unit_test(test_written_again),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_tenants),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
