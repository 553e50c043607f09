#include "control/node/model/allocation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control/node/model/server.h"
#include "control/node/state/checkpointed.h"
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

static void name_locked_ledger(const struct flyt_node_allocation *allocation, char *name)
{
    snprintf(name, NAME_BYTES, "ledger-%016" PRIx64 "-locked", (uint64_t)allocation->now.id);
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

/* ---- of page-locked memory ---- */

void flyt_node_allocation_set_locked_limit(const struct flyt_node_allocation *allocation)
{
    const uint64_t bytes = allocation->node->settings->vm_memory_host_bytes;

    if (allocation->locked_ledger)
        flyt_ledger_set_limit(allocation->locked_ledger, bytes ? bytes : UINT64_MAX, 0, true, NULL);
}

/* It is kept over a restart, and has entries of sessions that have ended meanwhile. */
static void restore_locked_ledger(struct flyt_node_allocation *allocation)
{
    char name[NAME_BYTES];

    if (!allocation->node->daemon)
        return;
    name_locked_ledger(allocation, name);
    flyt_auto_close int fd = flyt_daemon_take(allocation->node->daemon, name);
    if (fd >= 0 && flyt_ledger_open(fd, &allocation->locked_ledger))
        flyt_warn("allocation %016" PRIx64 ": what was kept as its ledger of page-locked memory is none",
                  (uint64_t)allocation->now.id);
    flyt_node_allocation_set_locked_limit(allocation);
}

static void keep_locked_ledger(struct flyt_node_allocation *allocation)
{
    char name[NAME_BYTES];

    name_locked_ledger(allocation, name);
    flyt_node_keep(allocation->node, name, flyt_ledger_fd(allocation->locked_ledger));
}

static void drop_locked_ledger(struct flyt_node_allocation *allocation, bool is_final)
{
    char name[NAME_BYTES];

    name_locked_ledger(allocation, name);
    if (allocation->locked_ledger && is_final)
        flyt_node_forget(allocation->node, name);
    allocation->locked_ledger = flyt_ledger_close(allocation->locked_ledger);
}

struct flyt_ledger *flyt_node_allocation_locked_ledger(struct flyt_node_allocation *allocation, uint64_t session_id)
{
    const uint64_t bytes = allocation->node->settings->vm_memory_host_bytes;
    int status = 0;

    if (!bytes || (!allocation->locked_ledger && allocation->node->is_reattaching))
        return NULL;
    if (!allocation->locked_ledger) {
        status = flyt_ledger_new(bytes, &allocation->locked_ledger);
        if (!status)
            keep_locked_ledger(allocation);
    }
    if (!status) {
        flyt_node_allocation_set_locked_limit(allocation);
        status = flyt_ledger_join(allocation->locked_ledger, session_id);
    }
    if (!status || status == -EEXIST)
        return allocation->locked_ledger;
    flyt_warn("session %016" PRIx64 ": its page-locked memory is not added up with that of its VM's others: %s",
              session_id, strerror(-status));
    return NULL;
}

void flyt_node_allocation_take_locked_ledger(struct flyt_node_allocation *allocation, int fd)
{
    if (allocation->locked_ledger)
        return;
    if (flyt_ledger_open(fd, &allocation->locked_ledger))
        flyt_warn("allocation %016" PRIx64 ": what came back as its ledger of page-locked memory is none",
                  (uint64_t)allocation->now.id);
    else
        keep_locked_ledger(allocation);
    flyt_node_allocation_set_locked_limit(allocation);
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

unsigned flyt_node_slot_sms(const struct flyt_node_slot *slot, const flyt_slot *ordered)
{
    /* Before the first server was ready on the GPU nothing is known of its groups but what was ordered. */
    return slot->gpu && slot->gpu->is_known ? flyt_node_gpu_sms(slot->gpu, slot->groups) : ordered->sm_count;
}

void flyt_node_slot_read_groups(const flyt_slot *from, unsigned char *groups)
{
    memset(groups, 0, FLYT_MANAGER_LINK_GROUP_BYTES);
    for (u_int i = 0; i < from->sm_groups.sm_groups_len; i++)
        flyt_manager_link_add_group(groups, from->sm_groups.sm_groups_val[i]);
}

static void set_up_slots(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &allocation->slots[i];
        const flyt_slot *from = &allocation->now.slots.slots_val[i];
        slot->gpu = flyt_node_gpus_find(&node->gpus, from->gpu_uuid);
        flyt_node_slot_read_groups(from, slot->groups);
        memcpy(slot->holding, slot->groups, sizeof slot->holding);
        slot->sm_count_now = flyt_node_slot_sms(slot, from);
        slot->switch_state = FLYT_SWITCH_VACATED;
        slot->groups_revision = allocation->now.revision;
    }
}

void flyt_node_allocation_set_up(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    drop_ledgers(node, allocation);
    set_up_slots(node, allocation);
}

/* Of its sessions those that are in images: of before a restart. */
static void count_checkpointed(struct flyt_node_allocation *allocation)
{
    const struct flyt_node_checkpointed *checkpointed = allocation->node->state.checkpointed;

    for (; checkpointed; checkpointed = checkpointed->next)
        allocation->checkpointed_count += checkpointed->allocation_id == allocation->now.id;
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
    restore_locked_ledger(allocation);
    count_checkpointed(allocation);
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

    while (*link != allocation)
        link = &(*link)->next;
    *link = allocation->next;
    node->allocation_count--;
    for (flyt_node_allocation_end_fn *const *end = node->allocation_ends; end && *end; end++)
        (*end)(allocation, is_final);
    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++) {
        if (allocation->slots[i].ledger && is_final) {
            name_ledger(allocation, i, name);
            flyt_node_forget(node, name);
        }
        flyt_ledger_close(allocation->slots[i].ledger);
    }
    drop_locked_ledger(allocation, is_final);
    xdr_free((xdrproc_t)xdr_flyt_allocation, &allocation->now);
    free(allocation);
}

/* ---- sessions ---- */

static bool has_server(const struct flyt_node *node, uint64_t server_id)
{
    const struct flyt_node_server *server = node->servers;

    while (server && server->has.server_id != server_id)
        server = server->next;
    return server || flyt_node_sessions_have_entry(node, server_id) || flyt_node_charge_stays(node, server_id);
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
            here += ids[j] != flyt_node_allocation_shared_entry(allocation) && !has_server(allocation->node, ids[j]);
        absent = here > absent ? here : absent;
    }
    return absent;
}

unsigned flyt_node_allocation_sessions(const struct flyt_node_allocation *allocation)
{
    return allocation->session_count + flyt_node_allocation_absent(allocation) + allocation->stayed_count;
}

void flyt_node_allocation_join(struct flyt_node_allocation *allocation)
{
    allocation->session_count++;
}

void flyt_node_allocation_leave(struct flyt_node_allocation *allocation)
{
    allocation->session_count--;
    flyt_node_raise_of(allocation, FLYT_NODE_EVENT_SESSION_LEFT);
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
        flyt_node_slot_read_groups(from, slot.groups);
        *to = (struct flyt_manager_link_slot){
            .gpu_index = slot.gpu ? slot.gpu->index : 0,
            .device_index = from->device_index,
            .sm_count = flyt_node_slot_sms(&slot, from),
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

void flyt_node_allocation_set_orphan(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    if (allocation->now.state == FLYT_ALLOCATION_ORPHAN || allocation->is_removed)
        return;
    allocation->now.state = FLYT_ALLOCATION_ORPHAN;
    flyt_warn("allocation %016" PRIx64 ": the cluster manager does not know it: an orphan, vm=%s",
              (uint64_t)allocation->now.id, allocation->now.vm_ip);
}

/* ---- what an order makes of it ---- */

bool flyt_node_allocation_is_being_written(const struct flyt_node_allocation *allocation)
{
    return allocation->pending && allocation->pending->stage >= FLYT_NODE_CHANGE_CREATING;
}

const flyt_allocation *flyt_node_allocation_to_write(const struct flyt_node_allocation *allocation)
{
    if (allocation->becoming)
        return allocation->becoming;
    return flyt_node_allocation_is_being_written(allocation) && allocation->pending->stage != FLYT_NODE_CHANGE_CREATING
               ? &allocation->pending->wanted
               : &allocation->now;
}

bool flyt_node_allocation_is_replaced(const struct flyt_node_allocation *allocation)
{
    return allocation->pending && allocation->pending->stage == FLYT_NODE_CHANGE_REPLACING;
}

bool flyt_node_allocation_is_hidden(const struct flyt_node_allocation *allocation)
{
    return allocation->pending && allocation->pending->stage == FLYT_NODE_CHANGE_CREATING;
}

bool flyt_node_charge_stays(const struct flyt_node *node, uint64_t entry_id)
{
    const struct flyt_node_server *server = node->servers;

    while (server && !(server->charged.has_stayed && server->charged.entry_id == entry_id))
        server = server->next;
    return server != NULL;
}

uint64_t flyt_node_allocation_shared_entry(const struct flyt_node_allocation *allocation)
{
    return allocation->now.id;
}
