#include "control/node/runtime.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "control/node/attach/attach.h"
#include "control/node/attach/listener.h"
#include "control/node/attach/pool.h"
#include "control/node/link/broker.h"
#include "control/node/link/fault.h"
#include "control/node/link/groups.h"
#include "control/node/link/server.h"
#include "control/node/link/share.h"
#include "control/node/memory/charge.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/model/server.h"
#include "control/node/model/tombstones.h"
#include "control/node/model/writer.h"
#include "control/node/ops/checkpoint.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/disk.h"
#include "control/node/ops/grant.h"
#include "control/node/ops/image_publish.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/migration_switch.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/receive_restart.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/restore.h"
#include "control/node/ops/send.h"
#include "control/node/ops/session_load.h"
#include "control/node/ops/sessions.h"
#include "control/node/process/images.h"
#include "control/node/process/libraries.h"
#include "control/node/process/spawn.h"
#include "control/node/process/uids.h"
#include "control/node/process/vm_device.h"
#include "control/node/state/departed.h"
#include "control/node/state/killed.h"
#include "control/node/uplink/order.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/machine.h"

static void set_group_sizes(struct flyt_node *node)
{
    for (unsigned i = 0; i < node->state.group_size_count; i++) {
        struct flyt_node_gpu *gpu = flyt_node_gpus_find(&node->gpus, node->state.group_sizes[i].uuid);
        if (gpu)
            gpu->group_size = node->state.group_sizes[i].group_size;
    }
}

/* ---- who hears what ---- */

static void on_session_left(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    flyt_node_grant_end(node, allocation);
}

static void fill_pool(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    flyt_node_pool_fill(node);
}

static void answer_needs(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    flyt_node_server_answer_needs(node, allocation);
}

enum {
    LEFT = FLYT_NODE_EVENT_SESSION_LEFT,
    FREED = FLYT_NODE_EVENT_MEMORY_FREED,
    ANSWERED = FLYT_NODE_EVENT_LIMIT_ANSWERED,
};

static const struct flyt_node_subscriber subscribers[] = {
    {LEFT, on_session_left},
    {LEFT, flyt_node_groups_look},
    {LEFT | FREED | ANSWERED, flyt_node_order_retry},
    {LEFT | ANSWERED, answer_needs},
    {FLYT_NODE_EVENT_SERVERS, fill_pool},
    {0},
};

static void drop_share(struct flyt_node_allocation *allocation, bool is_final)
{
    if (is_final)
        flyt_node_share_drop(allocation);
}

static void remove_images(struct flyt_node_allocation *allocation, bool is_final)
{
    if (is_final)
        flyt_node_images_remove(allocation->node, allocation->now.vm_ip);
}

static void forget_departed(struct flyt_node_allocation *allocation, bool is_final)
{
    if (is_final)
        flyt_node_departed_remove(&allocation->node->state, allocation->now.id);
}

/* Orders last: who waits for its end is answered when the file does not have it. */
static flyt_node_allocation_end_fn *const allocation_ends[] = {
    flyt_node_operations_forget, drop_share, remove_images, forget_departed, flyt_node_order_end, NULL};

/* ---- start ---- */

/* What was taken back while somebody might still come back with it. */
static void end_removed(struct flyt_node *node)
{
    struct flyt_node_allocation *next;

    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = next) {
        next = allocation->next;
        flyt_node_grant_end(node, allocation);
    }
}

/* Whose server has not come back has ended. */
static void tidy_killed(struct flyt_node *node)
{
    for (struct flyt_node_killed *killed = node->state.killed, *next; killed; killed = next) {
        next = killed->next;
        if (!flyt_node_session_find(node, killed->session_id))
            flyt_node_killed_remove(&node->state, killed->session_id);
    }
}

/* Entries of sessions that have ended meanwhile. */
static void tidy_locked_ledger(struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    uint64_t ids[FLYT_LEDGER_ENTRIES_MAX];
    unsigned count = allocation->locked_ledger ? flyt_ledger_list(allocation->locked_ledger, ids) : 0;

    for (unsigned i = 0; i < count; i++)
        if (!flyt_node_session_find(node, ids[i]))
            flyt_ledger_reclaim(allocation->locked_ledger, ids[i], NULL);
}

/* No server of before the restart comes back any more. */
static void end_reattaching(struct flyt_node *node)
{
    node->is_reattaching = false;
    flyt_node_extents_forget_passed(node);
    end_removed(node);
    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next) {
        flyt_node_allocation_make_ledgers(node, allocation);
        tidy_locked_ledger(node, allocation);
        flyt_node_share_set(allocation);
    }
    flyt_node_share_tidy(node);
    tidy_killed(node);
    /* Entries of servers that have died meanwhile, in ledgers that were kept. */
    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next)
        for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
            uint64_t ids[FLYT_LEDGER_ENTRIES_MAX];
            unsigned count = allocation->slots[i].ledger ? flyt_ledger_list(allocation->slots[i].ledger, ids) : 0;
            for (unsigned j = 0; j < count; j++) {
                const struct flyt_node_server *server = node->servers;
                while (server && server->has.server_id != ids[j])
                    server = server->next;
                if (!server && ids[j] != flyt_node_allocation_shared_entry(allocation) &&
                    !flyt_node_sessions_have_entry(node, ids[j]) && !flyt_node_charge_stays(node, ids[j]))
                    flyt_ledger_reclaim(allocation->slots[i].ledger, ids[j], NULL);
            }
        }
    flyt_node_broker_settle_all(node);
    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next) {
        flyt_node_switch_settle(node, allocation);
        flyt_node_groups_look(node, allocation);
        flyt_node_order_retry(node, allocation);
    }
    flyt_node_receives_settle(node);
    flyt_node_changed(node);
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS);
}

static int on_rejoin_over(sd_event_source *source, uint64_t usec, void *user)
{
    end_reattaching(user);
    return 0;
}

static int take_allocations(struct flyt_node *node, struct flyt_error *err)
{
    char boot_id[FLYT_URL_BOOT_ID_BYTES];

    for (unsigned i = 0; i < node->state.allocation_count; i++) {
        struct flyt_node_allocation *allocation;
        flyt_allocation *from = &node->state.allocations[i];
        bool is_removed = from->state == FLYT_ALLOCATION_ENDING; /* its servers may not have ended yet */
        int status = flyt_node_allocation_add(node, from, &allocation);
        if (status)
            return flyt_error_set(err, status, "the allocations cannot be taken: %s", strerror(-status));
        allocation->is_removed = is_removed;
    }
    flyt_node_state_free_allocations(&node->state);
    flyt_node_checkpointed_init(node);
    flyt_node_receives_init(node);
    if (flyt_node_send_restore(node))
        return flyt_error_set(err, -ENOMEM, "no memory");
    /* After a reboot nobody can come back. */
    flyt_machine_boot_id(boot_id);
    node->is_reattaching = node->allocations && *boot_id && !strcmp(boot_id, node->state.boot_id);
    strcpy(node->state.boot_id, boot_id);
    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next)
        flyt_node_groups_look(node, allocation);
    return flyt_node_save(node) ? flyt_error_set(err, -EIO, "%s cannot be written", node->settings->state_dir) : 0;
}

static int fail_link(const struct flyt_node *node, int status, struct flyt_error *err)
{
    return flyt_error_set(err, status, "%s: %s%s", node->link_path, strerror(-status),
                          status == -EADDRINUSE ? ": another node manager runs" : "");
}

static int prepare(struct flyt_node *node, struct flyt_node_gpus *gpus, struct flyt_error *err)
{
    bool is_new;

    if (node->settings->name)
        snprintf(node->name, sizeof node->name, "%s", node->settings->name);
    else if (gethostname(node->name, sizeof node->name - 1))
        return flyt_error_set(err, -errno, "this machine has no name: set `name`");
    snprintf(node->link_path, sizeof node->link_path, "%s/link.sock", node->settings->state_dir);
    int status = flyt_node_reattach_open(node);
    if (status)
        return fail_link(node, status, err);
    status = flyt_node_state_read(node->settings->state_dir, err, &node->state, &is_new);
    if (status)
        return status;
    if (gpus->count) {
        node->gpus = *gpus;
        *gpus = (struct flyt_node_gpus){0};
    } else {
        status = flyt_node_gpus_make_software(&node->gpus, node->settings, node->name);
        if (status)
            return flyt_error_set(err, status, "no memory");
    }
    flyt_node_cgroups_open(&node->cgroups, node->settings);
    flyt_node_gpus_set_isolation(&node->gpus, node->settings);
    set_group_sizes(node);
    status = flyt_node_uids_open(node, err);
    if (!status)
        status = flyt_node_images_init(node, err);
    return status ? status : take_allocations(node, err);
}

int flyt_node_init(struct flyt_node *node, sd_event *event, struct flyt_daemon *daemon,
                   const struct flyt_node_settings *settings, struct flyt_node_gpus *gpus,
                   const struct flyt_node_hooks *hooks, struct flyt_error *err)
{
    struct flyt_node_mps *mps = node->mps;

    *node = (struct flyt_node){.event = event, .daemon = daemon, .settings = settings, .mps = mps};
    node->started_ms = flyt_clock_ms();
    node->client_lost_s = (unsigned)(settings->client_lost_ms / 1000);
    if (hooks)
        node->hooks = *hooks;
    node->allocation_ends = allocation_ends;
    node->session_ops = &flyt_node_sessions;
    int status = flyt_node_ops_new(node);
    if (!status)
        status = flyt_node_attach_new(node);
    if (!status)
        status = flyt_node_events_init(node, subscribers);
    if (status)
        return flyt_error_set(err, status, "no memory");
    status = flyt_node_writer_new(node, event, &node->writer);
    if (status)
        return flyt_error_set(err, status, "the state's thread cannot be started: %s", strerror(-status));
    status = prepare(node, gpus, err);
    if (status)
        return status;
    status = flyt_node_reattach_listen(node);
    if (status)
        return fail_link(node, status, err);
    flyt_node_image_publish_init(node);
    status = flyt_node_listener_open(node, err);
    if (status)
        return status;
    if (!node->is_reattaching)
        end_reattaching(node);
    /* Behind what servers have said by then: a node manager that had no CPU meanwhile hears it first. */
    else if (sd_event_add_time_relative(event, &node->reattach_timer, CLOCK_MONOTONIC, settings->rejoin_ms * 1000, 1000,
                                        on_rejoin_over, node) < 0 ||
             sd_event_source_set_priority(node->reattach_timer, SD_EVENT_PRIORITY_IDLE) < 0)
        return flyt_error_set(err, -ENOMEM, "no memory");
    status = flyt_node_libraries_new(node);
    if (status)
        return flyt_error_set(err, status, "the thread that looks at libraries cannot be started: %s",
                              strerror(-status));
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS);
    return 0;
}

void flyt_node_fini(struct flyt_node *node)
{
    node->hooks = (struct flyt_node_hooks){0};
    if (!node->ops || !node->attach) { /* nothing else has begun */
        flyt_node_attach_free(node);
        flyt_node_ops_free(node);
        return;
    }
    /* Sessions outlive the node manager, with what they have page-locked. */
    for (struct flyt_node_allocation *one = node->allocations; one; one = one->next)
        one->locked_ledger = flyt_ledger_close(one->locked_ledger);
    flyt_node_receives_save(node);
    flyt_node_writer_flush(node->writer);
    flyt_node_listener_close(node);
    flyt_node_pool_fini(node);
    flyt_node_faults_fini(node);
    flyt_node_events_fini(node);
    flyt_node_libraries_free(node);
    flyt_node_vm_devices_free(node);
    flyt_node_reattach_fini(node);
    sd_event_source_disable_unref(node->reattach_timer);
    if (node->ops->link_fd >= 0 && !node->daemon)
        unlink(node->link_path);
    flyt_close(node->ops->link_fd);
    flyt_node_migrations_fini(node);
    flyt_node_checkpoints_fini(node);
    flyt_node_image_publish_fini(node);
    flyt_node_restores_fini(node);
    flyt_node_disks_fini(node);
    flyt_node_receives_fini(node);
    flyt_node_replace_fini(node);
    flyt_node_spawns_fini(node);
    node->stop_ms = flyt_clock_ms() + FLYT_NODE_STOP_MS;
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        flyt_node_server_kill_warm(server);
    while (node->servers)
        flyt_node_server_free(node->servers);
    end_removed(node); /* the last of their servers have ended here */
    node->writer = flyt_node_writer_free(node->writer);
    while (node->allocations)
        flyt_node_allocation_free(node, node->allocations, false);
    flyt_node_images_fini(node); /* the last server of a removed allocation lets go of images, too */
    flyt_node_state_fini(&node->state);
    explicit_bzero(node->state.node_key, sizeof node->state.node_key);
    flyt_node_tombstones_fini(node);
    flyt_node_gpus_fini(&node->gpus);
    flyt_node_cgroups_close(&node->cgroups);
    flyt_node_uids_fini(&node->uids);
    flyt_node_attach_free(node);
    flyt_node_ops_free(node);
}
