#include "control/node/model/allocation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control/node/memory/charge.h"
#include "control/node/link/groups.h"
#include "control/node/host/images.h"
#include "control/node/state/departed.h"
#include "control/node/ops/migration.h"
#include "control/node/uplink/order.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/replace.h"
#include "control/node/link/server.h"
#include "control/node/link/share.h"
#include "control/node/ops/checkpointed.h"
#include "control/node/state/writer.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum { NAME_BYTES = 64 };

struct flyt_node_allocation *flyt_node_allocation_find(const struct flyt_node *node, uint64_t id)
{
    struct flyt_node_allocation *allocation = node->allocations;

    while (allocation && allocation->now.id != id)
        allocation = allocation->next;
    return allocation;
}

/* ---- ledgers ---- */

static void name_ledger(const struct flyt_node_allocation *allocation, unsigned slot, char *name)
{
    snprintf(name, NAME_BYTES, "ledger-%016" PRIx64 "-%u", (uint64_t)allocation->now.id, slot);
}

static void keep_ledger(struct flyt_node *node, struct flyt_node_allocation *allocation, unsigned slot)
{
    char name[NAME_BYTES];

    name_ledger(allocation, slot, name);
    flyt_node_keep(node, name, flyt_ledger_fd(allocation->slots[slot].ledger));
}

int flyt_node_allocation_make_ledgers(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &allocation->slots[i];
        if (slot->ledger)
            continue;
        int status = flyt_ledger_new(allocation->now.slots.slots_val[i].memory_bytes, &slot->ledger);
        if (!status)
            status = flyt_ledger_set_limit(slot->ledger, allocation->now.slots.slots_val[i].memory_bytes,
                                           allocation->now.revision, true, NULL);
        if (status) {
            flyt_fail("allocation %016" PRIx64 ": no ledger: %s", (uint64_t)allocation->now.id, strerror(-status));
            return status;
        }
        keep_ledger(node, allocation, i);
    }
    return 0;
}

/* Out of the descriptor store, where it is. */
static void restore_ledgers(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    char name[NAME_BYTES];

    for (unsigned i = 0; node->daemon && i < allocation->now.slots.slots_len; i++) {
        name_ledger(allocation, i, name);
        flyt_auto_close int fd = flyt_daemon_take(node->daemon, name);
        if (fd < 0)
            continue;
        if (flyt_ledger_open(fd, &allocation->slots[i].ledger))
            flyt_warn("allocation %016" PRIx64 ": what was kept as its ledger is none", (uint64_t)allocation->now.id);
        else /* whatever was written there */
            flyt_ledger_set_limit(allocation->slots[i].ledger, allocation->now.slots.slots_val[i].memory_bytes,
                                  allocation->now.revision, true, NULL);
    }
}

static bool is_same_file(int one_fd, int other_fd)
{
    struct stat one, other;

    return !fstat(one_fd, &one) && !fstat(other_fd, &other) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

int flyt_node_allocation_take_ledgers(struct flyt_node *node, struct flyt_node_allocation *allocation, const int *fds,
                                      unsigned count)
{
    if (count != allocation->now.slots.slots_len)
        return -ESTALE;
    for (unsigned i = 0; i < count; i++)
        if (allocation->slots[i].ledger && !is_same_file(flyt_ledger_fd(allocation->slots[i].ledger), fds[i]))
            return -ESTALE;
    for (unsigned i = 0; i < count; i++) {
        if (allocation->slots[i].ledger)
            continue;
        int status = flyt_ledger_open(fds[i], &allocation->slots[i].ledger);
        if (status)
            return status;
        /* An order of this moment may have found no ledger to set its limit in. */
        flyt_ledger_set_limit(allocation->slots[i].ledger, allocation->now.slots.slots_val[i].memory_bytes,
                              allocation->now.revision, true, NULL);
        keep_ledger(node, allocation, i);
    }
    return 0;
}

bool flyt_node_allocation_is_complete(const struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        if (!allocation->slots[i].ledger)
            return false;
    return true;
}

static void drop_ledgers(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    char name[NAME_BYTES];

    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++) {
        if (!allocation->slots[i].ledger)
            continue;
        name_ledger(allocation, i, name);
        flyt_node_forget(node, name);
        flyt_ledger_close(allocation->slots[i].ledger);
    }
    memset(allocation->slots, 0, sizeof allocation->slots);
}

/* ---- slots ---- */

static void set_up_slots(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &allocation->slots[i];
        const flyt_slot *from = &allocation->now.slots.slots_val[i];
        slot->gpu = flyt_node_gpus_find(&node->gpus, from->gpu_uuid);
        flyt_node_groups_read(from, slot->groups);
        memcpy(slot->holding, slot->groups, sizeof slot->holding);
        slot->sm_count_now = flyt_node_groups_sms(slot, from);
        slot->switch_state = FLYT_SWITCH_VACATED;
        slot->groups_revision = allocation->now.revision;
    }
}

void flyt_node_allocation_set_up(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    drop_ledgers(node, allocation);
    set_up_slots(node, allocation);
}

int flyt_node_allocation_add(struct flyt_node *node, flyt_allocation *from,
                             struct flyt_node_allocation **ret_allocation)
{
    if (node->allocation_count == FLYT_ALLOCATIONS_MAX)
        return -ENOSPC;
    struct flyt_node_allocation *allocation = calloc(1, sizeof *allocation);
    if (!allocation)
        return -ENOMEM;
    allocation->node = node;
    allocation->now = *from;
    *from = (flyt_allocation){0};
    allocation->tokens_mil = node->settings->vm_attach_burst * 1000;
    allocation->tokens_ms = flyt_clock_ms();
    set_up_slots(node, allocation);
    restore_ledgers(node, allocation);
    flyt_node_checkpointed_count_up(allocation);
    allocation->next = node->allocations;
    node->allocations = allocation;
    node->allocation_count++;
    *ret_allocation = allocation;
    return 0;
}

void flyt_node_allocation_free(struct flyt_node *node, struct flyt_node_allocation *allocation, bool is_final)
{
    struct flyt_node_allocation **link = &node->allocations;
    char name[NAME_BYTES];

    flyt_node_migration_forget(allocation);
    if (is_final)
        flyt_node_share_drop(allocation);
    while (*link != allocation)
        link = &(*link)->next;
    *link = allocation->next;
    node->allocation_count--;
    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++) {
        if (allocation->slots[i].ledger && is_final) {
            name_ledger(allocation, i, name);
            flyt_node_forget(node, name);
        }
        flyt_ledger_close(allocation->slots[i].ledger);
    }
    if (is_final) {
        flyt_node_images_remove(node, allocation->now.vm_ip);
        flyt_node_departed_remove(node, allocation->now.id);
    }
    flyt_node_order_end(allocation, is_final); /* who waits for its end is answered when the file does not have it */
    xdr_free((xdrproc_t)xdr_flyt_allocation, &allocation->now);
    free(allocation);
}

/* ---- sessions ---- */

static bool has_server(const struct flyt_node *node, uint64_t server_id)
{
    const struct flyt_node_server *server = node->servers;

    while (server && server->server_id != server_id)
        server = server->next;
    return server || flyt_node_replace_has(node, server_id) || flyt_node_charge_stays(node, server_id);
}

/* Who they are stands in the ledgers; where one is not there (yet), nobody knows, and there may be one. */
unsigned flyt_node_allocation_absent(const struct flyt_node_allocation *allocation)
{
    unsigned absent = 0;

    for (unsigned i = 0; allocation->node->is_reattaching && i < allocation->now.slots.slots_len; i++) {
        uint64_t ids[FLYT_LEDGER_ENTRIES_MAX];
        const struct flyt_ledger *ledger = allocation->slots[i].ledger;
        unsigned count = ledger ? flyt_ledger_list(ledger, ids) : 0, here = ledger ? 0 : 1;
        for (unsigned j = 0; j < count; j++)
            here += ids[j] != flyt_node_broker_entry(allocation) && !has_server(allocation->node, ids[j]);
        absent = here > absent ? here : absent;
    }
    return absent;
}

unsigned flyt_node_allocation_sessions(const struct flyt_node_allocation *allocation)
{
    return allocation->session_count + flyt_node_allocation_absent(allocation) + allocation->stayed_count;
}

/* Fills up what has come together since, and takes one. */
static bool take_token(const struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    uint64_t now_ms = flyt_clock_ms(), burst_mil = node->settings->vm_attach_burst * 1000;

    allocation->tokens_mil += (now_ms - allocation->tokens_ms) * node->settings->vm_attach_rate;
    if (allocation->tokens_mil > burst_mil)
        allocation->tokens_mil = burst_mil;
    allocation->tokens_ms = now_ms;
    if (allocation->tokens_mil < 1000)
        return false;
    allocation->tokens_mil -= 1000;
    return true;
}

/* Sessions of a VM, in all its allocations here. */
static unsigned sessions_of_vm(const struct flyt_node *node, const char *vm_ip)
{
    unsigned count = 0;

    for (const struct flyt_node_allocation *other = node->allocations; other; other = other->next)
        if (!strcmp(other->now.vm_ip, vm_ip))
            count += other->session_count;
    return count;
}

int flyt_node_allocation_check(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                               unsigned waiting_count, unsigned promised_count, struct flyt_error *err)
{
    const flyt_allocation *now = &allocation->now;
    /* Those that may still come back after a restart are not counted: programs wait until that is known. */
    unsigned session_count = waiting_count + allocation->session_count;

    if (allocation->is_removed || now->state == FLYT_ALLOCATION_ENDING)
        return flyt_error_set(err, -EACCES, "the allocation of VM %.255s is being taken back", now->vm_ip);
    if (now->state == FLYT_ALLOCATION_BLOCKED)
        return flyt_error_set(err, -EACCES, "VM %.255s may begin no new programs: its allocation is blocked",
                              now->vm_ip);
    if (now->state == FLYT_ALLOCATION_ORPHAN)
        return flyt_error_set(err, -EACCES,
                              "VM %.255s may begin no new programs: the cluster manager does not know its allocation",
                              now->vm_ip);
    if (now->sessions_max && session_count >= now->sessions_max)
        return flyt_error_set(
            err, -EBUSY, "VM %.255s has %u programs on its GPU, as many as its allocation allows", now->vm_ip,
            allocation->session_count > now->sessions_max ? allocation->session_count : now->sessions_max);
    if (sessions_of_vm(node, now->vm_ip) + waiting_count >= node->settings->vm_sessions_max)
        return flyt_error_set(err, -EBUSY, "VM %.255s has %u programs on this node, as many as one VM may", now->vm_ip,
                              (unsigned)node->settings->vm_sessions_max);
    return flyt_node_allocation_check_room(node, allocation, promised_count, err);
}

int flyt_node_allocation_check_room(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                    unsigned promised_count, struct flyt_error *err)
{
    const flyt_allocation *now = &allocation->now;

    for (unsigned i = 0; i < now->slots.slots_len; i++) {
        const struct flyt_node_gpu *gpu = allocation->slots[i].gpu;
        if (!gpu)
            return flyt_error_set(err, -ENODEV, "node %s has GPU %s no more", node->name,
                                  now->slots.slots_val[i].gpu_uuid);
        if (gpu->health == FLYT_HEALTH_FAILED)
            return flyt_error_set(err, -ENODEV, "GPU %u of node %.255s has failed: %.200s", gpu->index, node->name,
                                  gpu->health_text);
        unsigned taken_count =
            node->starts[gpu->index].serving + flyt_node_replace_count(node, gpu) + (i == 0 ? promised_count : 0);
        if (taken_count + node->settings->warm >= node->settings->client_slots)
            return flyt_error_set(err, -EBUSY, "all %u client slots of GPU %u of node %.255s are taken",
                                  (unsigned)(node->settings->client_slots - node->settings->warm), gpu->index,
                                  node->name);
    }
    return 0;
}

int flyt_node_allocation_pace(const struct flyt_node *node, struct flyt_node_allocation *allocation,
                              struct flyt_error *err)
{
    if (!take_token(node, allocation))
        return flyt_error_set(err, -EBUSY, "VM %.255s begins more than %u programs in a second", allocation->now.vm_ip,
                              (unsigned)node->settings->vm_attach_rate);
    return 0;
}

void flyt_node_allocation_join(struct flyt_node_allocation *allocation)
{
    allocation->session_count++;
}

void flyt_node_allocation_leave(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    allocation->session_count--;
    flyt_node_allocation_look(node, allocation);
}

void flyt_node_allocation_look(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    if (allocation->is_removed && !allocation->session_count && !allocation->stayed_count &&
        !flyt_node_receive_of(allocation)) {
        flyt_info("allocation %016" PRIx64 ": gone, vm=%s", (uint64_t)allocation->now.id, allocation->now.vm_ip);
        bool is_awaited = allocation->removal != NULL;
        flyt_node_allocation_free(node, allocation, true);
        if (!is_awaited) /* else it is written before the answer */
            flyt_node_save_soon(node);
        return;
    }
    flyt_node_groups_look(node, allocation);
    flyt_node_order_retry(node, allocation);
    flyt_node_server_answer_needs(node, allocation);
}

void flyt_node_allocation_fill(const struct flyt_node *node, const flyt_allocation *as,
                               struct flyt_manager_link_session *session)
{
    session->allocation_id = as->id;
    session->slot_count = session->ledger_count = as->slots.slots_len;
    for (unsigned i = 0; i < as->slots.slots_len; i++) {
        const flyt_slot *from = &as->slots.slots_val[i];
        struct flyt_manager_link_slot *to = &session->slots[i];
        struct flyt_node_slot slot = {.gpu = flyt_node_gpus_find(&node->gpus, from->gpu_uuid)};
        flyt_node_groups_read(from, slot.groups);
        *to = (struct flyt_manager_link_slot){
            .gpu_index = slot.gpu ? slot.gpu->index : 0,
            .device_index = from->device_index,
            .sm_count = flyt_node_groups_sms(&slot, from),
            .memory_bytes = from->memory_bytes,
            .revision = as->revision,
            .minimum_share_pct = from->minimum_share_pct,
            .maximum_share_pct = from->maximum_share_pct,
            .window_ms = from->window_ms,
            .priority = from->priority,
        };
        if (slot.gpu && slot.gpu->group_size <= FLYT_MANAGER_LINK_GROUP_SIZE_MAX)
            to->flags |= slot.gpu->group_size << FLYT_MANAGER_LINK_GROUP_SIZE_SHIFT;
        unsigned shown = as->shown_sms < to->sm_count ? as->shown_sms : to->sm_count;
        if (as->shown_sms && shown <= FLYT_MANAGER_LINK_SHOWN_MAX)
            to->flags |= shown << FLYT_MANAGER_LINK_SHOWN_SHIFT;
        if (slot.gpu)
            memcpy(to->gpu_uuid, slot.gpu->uuid_bytes, sizeof to->gpu_uuid);
        memcpy(to->groups, slot.groups, sizeof to->groups);
    }
}

void flyt_node_allocation_use(const struct flyt_node_allocation *allocation, flyt_status status, char *text,
                              flyt_allocation_use *ret_use)
{
    unsigned count = allocation->now.slots.slots_len;

    *ret_use = (flyt_allocation_use){.id = allocation->now.id,
                                     .revision = allocation->now.revision,
                                     .outcome = {status, text},
                                     /* One that waits in an image needs its allocation as one that runs does. */
                                     .session_count = flyt_node_allocation_sessions(allocation) +
                                                      flyt_node_checkpointed_count(allocation)};
    ret_use->slots.slots_val = calloc(count + 1, sizeof *ret_use->slots.slots_val);
    if (!ret_use->slots.slots_val)
        return;
    ret_use->slots.slots_len = count;
    for (unsigned i = 0; i < count; i++) {
        const struct flyt_node_slot *slot = &allocation->slots[i];
        flyt_slot_use *use = &ret_use->slots.slots_val[i];
        use->sm_count = slot->sm_count_now;
        use->switch_state = slot->switch_state;
        use->memory_bytes = allocation->now.slots.slots_val[i].memory_bytes;
        flyt_node_share_use(allocation, i, use);
        if (!slot->ledger)
            continue;
        struct flyt_ledger_state state;
        flyt_ledger_read(slot->ledger, &state);
        use->memory_bytes = state.holding_bytes;
        use->memory_used_bytes = state.used_bytes;
        use->memory_peak_bytes = state.peak_bytes;
        use->memory_refused_count = state.refused_count;
    }
}

void flyt_node_allocation_set_orphan(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    if (allocation->now.state == FLYT_ALLOCATION_ORPHAN || allocation->is_removed)
        return;
    allocation->now.state = FLYT_ALLOCATION_ORPHAN;
    flyt_warn("allocation %016" PRIx64 ": the cluster manager does not know it: an orphan, vm=%s",
              (uint64_t)allocation->now.id, allocation->now.vm_ip);
}
