#include "control/node/allocation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control/node/images.h"
#include "control/node/pool.h"
#include "control/node/server.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum {
    NAME_BYTES = 64,
    REMOVE_MS = 8000, /* an order to remove is answered by then: a server may hang in the driver */
};

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
        if (fd >= 0 && flyt_ledger_open(fd, &allocation->slots[i].ledger))
            flyt_warn("allocation %016" PRIx64 ": what was kept as its ledger is none", (uint64_t)allocation->now.id);
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

/* ---- slots ---- */

static void read_groups(const flyt_slot *from, unsigned char *groups)
{
    memset(groups, 0, FLYT_SERVER_LINK_GROUP_BYTES);
    for (u_int i = 0; i < from->sm_groups.sm_groups_len; i++)
        flyt_server_link_add_group(groups, from->sm_groups.sm_groups_val[i]);
}

static unsigned sms_of(const struct flyt_node_slot *slot, const flyt_slot *ordered)
{
    /* Before the first server was ready on the GPU nothing is known of its groups but what was ordered. */
    return slot->gpu && slot->gpu->is_known ? flyt_node_gpu_sms(slot->gpu, slot->groups) : ordered->sm_count;
}

static void set_up_slots(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &allocation->slots[i];
        const flyt_slot *from = &allocation->now.slots.slots_val[i];
        slot->gpu = flyt_node_gpus_find(&node->gpus, from->gpu_uuid);
        read_groups(from, slot->groups);
        memcpy(slot->holding, slot->groups, sizeof slot->holding);
        slot->sm_count_now = sms_of(slot, from);
        slot->switch_state = FLYT_SWITCH_VACATED;
        slot->groups_revision = allocation->now.revision;
    }
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
    allocation->next = node->allocations;
    node->allocations = allocation;
    node->allocation_count++;
    *ret_allocation = allocation;
    return 0;
}

static void finish_pending(struct flyt_node_allocation *allocation, flyt_status status, const char *text);
static void finish_removal(struct flyt_node_allocation *allocation, flyt_status status, const char *text);

void flyt_node_allocation_free(struct flyt_node *node, struct flyt_node_allocation *allocation, bool is_final)
{
    struct flyt_node_allocation **link = &node->allocations;
    char name[NAME_BYTES];

    finish_pending(allocation, FLYT_STATUS_NOT_FOUND, "the allocation was removed");
    finish_removal(allocation, is_final ? FLYT_STATUS_OK : FLYT_STATUS_UNAVAILABLE, "the node manager ends");
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
    if (is_final)
        flyt_node_images_remove(node, allocation->now.vm_ip);
    xdr_free((xdrproc_t)xdr_flyt_allocation, &allocation->now);
    free(allocation);
}

/* ---- sessions ---- */

static bool has_server(const struct flyt_node *node, uint64_t server_id)
{
    const struct flyt_node_server *server = node->servers;

    while (server && server->server_id != server_id)
        server = server->next;
    return server;
}

/* Servers of before a restart that may still come back: who they are stands in the ledgers; where one is not there
 * (yet), nobody knows, and there may be one. */
static unsigned count_absent(const struct flyt_node_allocation *allocation)
{
    unsigned absent = 0;

    for (unsigned i = 0; allocation->node->is_rejoining && i < allocation->now.slots.slots_len; i++) {
        uint64_t ids[FLYT_LEDGER_ENTRIES_MAX];
        const struct flyt_ledger *ledger = allocation->slots[i].ledger;
        unsigned count = ledger ? flyt_ledger_list(ledger, ids) : 0, here = ledger ? 0 : 1;
        for (unsigned j = 0; j < count; j++)
            here += !has_server(allocation->node, ids[j]);
        absent = here > absent ? here : absent;
    }
    return absent;
}

unsigned flyt_node_allocation_sessions(const struct flyt_node_allocation *allocation)
{
    return allocation->session_count + count_absent(allocation);
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
                               unsigned waiting_count, struct flyt_error *err)
{
    const flyt_allocation *now = &allocation->now;
    /* Before its ledgers are back nobody knows whether there is one more: programs wait for that. */
    unsigned session_count =
        waiting_count + (flyt_node_allocation_is_complete(allocation) ? flyt_node_allocation_sessions(allocation)
                                                                      : allocation->session_count);

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
        return flyt_error_set(err, -EBUSY, "VM %.255s has %u programs on its GPU, as many as its allocation allows",
                              now->vm_ip, session_count);
    if (sessions_of_vm(node, now->vm_ip) + waiting_count >= node->settings->vm_sessions_max)
        return flyt_error_set(err, -EBUSY, "VM %.255s has %u programs on this node, as many as one VM may", now->vm_ip,
                              (unsigned)node->settings->vm_sessions_max);
    for (unsigned i = 0; i < now->slots.slots_len; i++) {
        const struct flyt_node_gpu *gpu = allocation->slots[i].gpu;
        if (!gpu)
            return flyt_error_set(err, -ENODEV, "node %s has GPU %s no more", node->name,
                                  now->slots.slots_val[i].gpu_uuid);
        if (gpu->health == FLYT_HEALTH_FAILED)
            return flyt_error_set(err, -ENODEV, "GPU %u of node %.255s has failed: %.200s", gpu->index, node->name,
                                  gpu->health_text);
        if (node->starts[gpu->index].serving + node->settings->warm >= node->settings->client_slots)
            return flyt_error_set(err, -EBUSY, "all %u client slots of GPU %u of node %.255s are taken",
                                  (unsigned)(node->settings->client_slots - node->settings->warm), gpu->index,
                                  node->name);
    }
    return 0;
}

int flyt_node_allocation_admit(struct flyt_node *node, struct flyt_node_allocation *allocation, struct flyt_error *err)
{
    const flyt_allocation *now = &allocation->now;
    int status = flyt_node_allocation_check(node, allocation, flyt_node_pool_waiting(node, now->id), err);

    if (status)
        return status;
    if (!take_token(node, allocation))
        return flyt_error_set(err, -EBUSY, "VM %.255s begins more than %u programs in a second", now->vm_ip,
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
    if (allocation->is_removed && !allocation->session_count) {
        flyt_info("allocation %016" PRIx64 ": gone, vm=%s", (uint64_t)allocation->now.id, allocation->now.vm_ip);
        flyt_node_allocation_free(node, allocation, true);
        flyt_node_save(node);
        return;
    }
    flyt_node_allocation_look(node, allocation);
    flyt_node_allocation_retry(node, allocation);
    flyt_node_server_answer_needs(node, allocation);
}

void flyt_node_allocation_fill(const struct flyt_node_allocation *allocation, struct flyt_server_link_session *session)
{
    const flyt_allocation *now = &allocation->now;

    session->allocation_id = now->id;
    session->slot_count = session->ledger_count = now->slots.slots_len;
    for (unsigned i = 0; i < now->slots.slots_len; i++) {
        const struct flyt_node_slot *slot = &allocation->slots[i];
        const flyt_slot *from = &now->slots.slots_val[i];
        struct flyt_server_link_slot *to = &session->slots[i];
        *to = (struct flyt_server_link_slot){
            .gpu_index = slot->gpu ? slot->gpu->index : 0,
            .device_index = from->device_index,
            .sm_count = sms_of(slot, from),
            .memory_bytes = from->memory_bytes,
            .revision = now->revision,
            .minimum_share_pct = from->minimum_share_pct,
            .maximum_share_pct = from->maximum_share_pct,
            .window_ms = from->window_ms,
            .priority = from->priority,
        };
        if (slot->gpu)
            memcpy(to->gpu_uuid, slot->gpu->uuid_bytes, sizeof to->gpu_uuid);
        memcpy(to->groups, slot->groups, sizeof to->groups);
    }
}

/* ---- SM groups ---- */

void flyt_node_allocation_look(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &allocation->slots[i];
        /* What was taken away, be it before a restart, is not free while somebody may come back who still uses it. */
        flyt_switch_state state = count_absent(allocation) ? FLYT_SWITCH_TARGET : FLYT_SWITCH_VACATED;
        bool is_kept = false;
        for (const struct flyt_node_server *server = node->servers; server; server = server->next) {
            if (server->allocation != allocation)
                continue;
            /* One that was not told of the last groups is where it was; those that end vacate by their end. */
            flyt_switch_state its =
                server->sm_revision[i] == slot->groups_revision ? server->sm_state[i] : FLYT_SWITCH_TARGET;
            is_kept |= its == FLYT_SWITCH_KEPT;
            if (its == FLYT_SWITCH_KEPT)
                its = FLYT_SWITCH_TARGET;
            if (its < state)
                state = its;
        }
        if (is_kept)
            state = FLYT_SWITCH_KEPT;
        if (state == slot->switch_state && state != FLYT_SWITCH_VACATED)
            continue;
        if (state == FLYT_SWITCH_SWITCHED || state == FLYT_SWITCH_VACATED)
            slot->sm_count_now = sms_of(slot, &allocation->now.slots.slots_val[i]);
        if (state == FLYT_SWITCH_VACATED)
            memcpy(slot->holding, slot->groups, sizeof slot->holding);
        if (state != slot->switch_state) {
            slot->switch_state = state;
            flyt_node_changed(node);
        }
    }
}

static void change_groups(struct flyt_node *node, struct flyt_node_allocation *allocation, unsigned i)
{
    struct flyt_node_slot *slot = &allocation->slots[i];
    unsigned char groups[FLYT_SERVER_LINK_GROUP_BYTES];

    read_groups(&allocation->now.slots.slots_val[i], groups);
    if (!memcmp(groups, slot->groups, sizeof groups))
        return;
    memcpy(slot->groups, groups, sizeof groups);
    for (unsigned j = 0; j < sizeof groups; j++)
        slot->holding[j] |= groups[j];
    slot->groups_revision = allocation->now.revision;
    slot->switch_state = FLYT_SWITCH_TARGET;
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        if (server->allocation == allocation)
            flyt_node_server_tell_groups(server, i);
}

/* ---- orders ---- */

/* An order of several allocations, answered when all of them are done. */
struct order {
    flyt_node_applied_fn done;
    void *user;
    flyt_apply_res res;
    unsigned left;
};

struct flyt_node_pending {
    struct flyt_node *node;
    struct flyt_node_allocation *allocation;
    struct order *order;
    unsigned index;
    flyt_allocation wanted;
    sd_event_source *timer;
    bool is_retrying;
};

static void order_step(struct order *order)
{
    if (--order->left)
        return;
    order->done(order->user, &order->res);
    xdr_free((xdrproc_t)xdr_flyt_apply_res, &order->res);
    free(order);
}

void flyt_node_allocation_use(const struct flyt_node_allocation *allocation, flyt_status status, char *text,
                              flyt_allocation_use *ret_use)
{
    unsigned count = allocation->now.slots.slots_len;

    *ret_use = (flyt_allocation_use){.id = allocation->now.id,
                                     .revision = allocation->now.revision,
                                     .outcome = {status, text},
                                     .session_count = flyt_node_allocation_sessions(allocation)};
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

static void answer(struct order *order, unsigned index, const struct flyt_node_allocation *allocation, uint64_t id,
                   flyt_status status, const char *text)
{
    flyt_allocation_use *use = &order->res.uses.uses_val[index];
    char *copy = strdup(text);

    if (allocation)
        flyt_node_allocation_use(allocation, status, copy, use);
    else
        *use = (flyt_allocation_use){.id = id, .outcome = {status, copy}};
    if (status != FLYT_STATUS_OK)
        flyt_warn("allocation %016" PRIx64 ": an order is not carried out: %s", id, text);
    order_step(order);
}

static void finish_pending(struct flyt_node_allocation *allocation, flyt_status status, const char *text)
{
    struct flyt_node_pending *pending = allocation->pending;

    if (!pending)
        return;
    allocation->pending = NULL;
    sd_event_source_disable_unref(pending->timer);
    answer(pending->order, pending->index, allocation, allocation->now.id, status, text);
    xdr_free((xdrproc_t)xdr_flyt_allocation, &pending->wanted);
    free(pending);
}

/* ---- removal ---- */

struct flyt_node_removal {
    struct flyt_node_allocation *allocation;
    struct order *order;
    sd_event_source *timer;
};

static void finish_removal(struct flyt_node_allocation *allocation, flyt_status status, const char *text)
{
    struct flyt_node_removal *removal = allocation->removal;

    if (!removal)
        return;
    struct order *order = removal->order;
    allocation->removal = NULL;
    sd_event_source_disable_unref(removal->timer);
    free(removal);
    if (status != FLYT_STATUS_OK && order->res.outcome.status == FLYT_STATUS_OK) {
        free(order->res.outcome.text);
        order->res.outcome = (flyt_outcome){status, strdup(text)};
    }
    order_step(order);
}

static int on_removal_timeout(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_removal *removal = user;

    finish_removal(removal->allocation, FLYT_STATUS_IN_USE, "programs of the allocation have not ended yet");
    return 0;
}

/* Who hears that it is removed gives away what it had: so not before it has gone. */
static void wait_for_end(struct flyt_node *node, struct flyt_node_allocation *allocation, struct order *order)
{
    struct flyt_node_removal *removal = calloc(1, sizeof *removal);

    finish_removal(allocation, FLYT_STATUS_CONFLICT, "another order came");
    order->left++;
    if (!removal || sd_event_add_time_relative(node->event, &removal->timer, CLOCK_MONOTONIC, REMOVE_MS * 1000, 1000,
                                               on_removal_timeout, removal) < 0) {
        free(removal);
        free(order->res.outcome.text);
        order->res.outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE, strdup("the node has no memory")};
        order_step(order);
        return;
    }
    removal->allocation = allocation;
    removal->order = order;
    allocation->removal = removal;
}

/* ---- checks ---- */

/* Whether another VM has one of the slot's groups, or has not vacated it. Who shares by time may share SMs. */
static const struct flyt_node_allocation *find_conflict(const struct flyt_node *node, uint64_t own_id,
                                                        const flyt_slot *slot, unsigned *ret_group)
{
    if (slot->maximum_share_pct || slot->minimum_share_pct)
        return NULL;
    for (const struct flyt_node_allocation *other = node->allocations; other; other = other->next) {
        for (unsigned i = 0; other->now.id != own_id && i < other->now.slots.slots_len; i++) {
            const flyt_slot *its = &other->now.slots.slots_val[i];
            if (strcmp(its->gpu_uuid, slot->gpu_uuid) != 0 || its->maximum_share_pct || its->minimum_share_pct)
                continue;
            for (u_int j = 0; j < slot->sm_groups.sm_groups_len; j++) {
                *ret_group = slot->sm_groups.sm_groups_val[j];
                if (flyt_server_link_has_group(other->slots[i].holding, *ret_group))
                    return other;
            }
        }
    }
    return NULL;
}

static flyt_status check_slot(const struct flyt_node *node, const flyt_allocation *wanted, const flyt_slot *slot,
                              struct flyt_error *err)
{
    const struct flyt_node_gpu *gpu = flyt_node_gpus_find(&node->gpus, slot->gpu_uuid);
    unsigned group = 0;

    if (!gpu) {
        flyt_error_set(err, -ENODEV, "node %s has no GPU %s", node->name, slot->gpu_uuid);
        return FLYT_STATUS_NOT_FOUND;
    }
    if (slot->device_index >= FLYT_DEVICES_MAX || gpu->isolation != wanted->isolation) {
        flyt_error_set(err, -EINVAL, "GPU %s serves %s VMs only", gpu->uuid,
                       gpu->isolation == FLYT_ISOLATION_STRICT ? "strict" : "shared");
        return FLYT_STATUS_INVALID;
    }
    for (u_int i = 0; i < slot->sm_groups.sm_groups_len; i++) {
        if (slot->sm_groups.sm_groups_val[i] < (gpu->is_known ? gpu->group_count : FLYT_GROUPS_MAX))
            continue;
        flyt_error_set(err, -EINVAL, "GPU %s has %u SM groups, no group %u", gpu->uuid, gpu->group_count,
                       slot->sm_groups.sm_groups_val[i]);
        return FLYT_STATUS_INVALID;
    }
    const struct flyt_node_allocation *other = find_conflict(node, wanted->id, slot, &group);
    if (other) {
        flyt_error_set(err, -EBUSY, "SM group %u of GPU %s is still used by VM %.255s", group, gpu->uuid,
                       other->now.vm_ip);
        return FLYT_STATUS_CONFLICT;
    }
    return FLYT_STATUS_OK;
}

static flyt_status check(const struct flyt_node *node, const flyt_allocation *wanted, struct flyt_error *err)
{
    flyt_status status = FLYT_STATUS_OK;

    if (!wanted->id || !wanted->slots.slots_len || !*wanted->vm_ip || wanted->state < FLYT_ALLOCATION_ACTIVE ||
        wanted->state > FLYT_ALLOCATION_ORPHAN) {
        flyt_error_set(err, -EINVAL, "an allocation needs an id, a VM, a state and a device");
        return FLYT_STATUS_INVALID;
    }
    for (u_int i = 0; i < wanted->slots.slots_len && status == FLYT_STATUS_OK; i++)
        status = check_slot(node, wanted, &wanted->slots.slots_val[i], err);
    return status;
}

/* Other devices than before: only without programs. */
static bool has_other_devices(const flyt_allocation *one, const flyt_allocation *other)
{
    if (one->slots.slots_len != other->slots.slots_len)
        return true;
    for (u_int i = 0; i < one->slots.slots_len; i++)
        if (strcmp(one->slots.slots_val[i].gpu_uuid, other->slots.slots_val[i].gpu_uuid) != 0 ||
            one->slots.slots_val[i].device_index != other->slots.slots_val[i].device_index)
            return true;
    return false;
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

/* To what holds, of the first slots. */
static void put_limits_back(struct flyt_node_allocation *allocation, unsigned count, uint64_t revision)
{
    for (unsigned i = 0; i < count; i++)
        if (allocation->slots[i].ledger)
            flyt_ledger_set_limit(allocation->slots[i].ledger, allocation->now.slots.slots_val[i].memory_bytes,
                                  revision, true, NULL);
}

/* Sets the limits of all slots, or of none. 0; -EBUSY: *ret_slot has more in use; another negative errno. */
static int set_limits(struct flyt_node_allocation *allocation, const flyt_allocation *wanted, unsigned *ret_slot,
                      uint64_t *ret_used_bytes)
{
    for (unsigned i = 0; i < wanted->slots.slots_len; i++) {
        const flyt_slot *slot = &wanted->slots.slots_val[i];
        if (!allocation->slots[i].ledger)
            continue; /* made with the limit when it is clear that nobody brings one back */
        int status = flyt_ledger_set_limit(allocation->slots[i].ledger, slot->memory_bytes, wanted->revision,
                                           wanted->when_free, ret_used_bytes);
        if (!status)
            continue;
        *ret_slot = i;
        put_limits_back(allocation, i, wanted->revision);
        return status;
    }
    return 0;
}

static void end_sessions(struct flyt_node *node, const struct flyt_node_allocation *allocation, const char *reason)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        if (server->allocation == allocation)
            flyt_node_server_end(server, reason);
}

/* Everything was checked and the limits are set: the order holds. Takes over the parts of *wanted. False: the state
 * cannot be kept, and nothing has changed. */
static bool commit(struct flyt_node *node, struct flyt_node_allocation *allocation, flyt_allocation *wanted)
{
    flyt_allocation before = allocation->now;

    allocation->now = *wanted;
    if (flyt_node_save(node)) {
        allocation->now = before;
        put_limits_back(allocation, allocation->now.slots.slots_len, wanted->revision);
        return false;
    }
    *wanted = before; /* the caller frees it */
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        change_groups(node, allocation, i);
        if (before.slots.slots_val[i].memory_bytes == allocation->now.slots.slots_val[i].memory_bytes)
            continue;
        for (struct flyt_node_server *server = node->servers; server; server = server->next)
            if (server->allocation == allocation)
                flyt_node_server_tell_limit(server, i, allocation->now.slots.slots_val[i].memory_bytes,
                                            allocation->now.revision, allocation->now.when_free);
    }
    flyt_node_allocation_look(node, allocation);
    if (allocation->now.state == FLYT_ALLOCATION_ENDING)
        end_sessions(node, allocation, "the allocation of this VM was taken back");
    return true;
}

/* Limits, then the rest. False: memory is in use that servers may still give back. */
static bool try_change(struct flyt_node *node, struct flyt_node_allocation *allocation, flyt_allocation *wanted,
                       flyt_status *ret_status, struct flyt_error *err)
{
    unsigned slot = 0;
    uint64_t used_bytes = 0;
    int status = set_limits(allocation, wanted, &slot, &used_bytes);

    *ret_status = FLYT_STATUS_OK;
    if (status == -EBUSY) {
        flyt_error_set(err, status, "%" PRIu64 " bytes of device %u are in use, more than the %" PRIu64 " wanted",
                       used_bytes, wanted->slots.slots_val[slot].device_index,
                       (uint64_t)wanted->slots.slots_val[slot].memory_bytes);
        *ret_status = FLYT_STATUS_IN_USE;
        return false;
    }
    if (status || !commit(node, allocation, wanted)) {
        flyt_error_set(err, status, "the node cannot set the limit: %s",
                       status ? strerror(-status) : "its state file cannot be written");
        *ret_status = FLYT_STATUS_UNAVAILABLE;
    }
    return true;
}

void flyt_node_allocation_retry(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    struct flyt_node_pending *pending = allocation->pending;
    struct flyt_error err = {0};
    flyt_status status;

    if (!pending || pending->is_retrying)
        return;
    pending->is_retrying = true;
    bool is_done = try_change(node, allocation, &pending->wanted, &status, &err);
    pending->is_retrying = false;
    if (is_done)
        finish_pending(allocation, status, err.text);
}

static int on_limit_timeout(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_pending *pending = user;
    struct flyt_node_allocation *allocation = pending->allocation;
    struct flyt_error err = {0};
    flyt_status status;

    try_change(pending->node, allocation, &pending->wanted, &status, &err);
    finish_pending(allocation, status, err.text);
    return 0;
}

/* Asks servers to give back what they cache, and goes on when they have or after limit_wait. */
static void wait_for_memory(struct flyt_node *node, struct flyt_node_allocation *allocation, struct order *order,
                            unsigned index, flyt_allocation *wanted, const char *text)
{
    struct flyt_node_pending *pending = calloc(1, sizeof *pending);

    if (!pending || !allocation->session_count ||
        sd_event_add_time_relative(node->event, &pending->timer, CLOCK_MONOTONIC, node->settings->limit_wait_ms * 1000,
                                   1000, on_limit_timeout, pending) < 0) {
        free(pending);
        answer(order, index, allocation, allocation->now.id, FLYT_STATUS_IN_USE, text);
        return;
    }
    *pending = (struct flyt_node_pending){node, allocation, order, index, *wanted, pending->timer, false};
    *wanted = (flyt_allocation){0};
    allocation->pending = pending;
    for (unsigned i = 0; i < pending->wanted.slots.slots_len; i++)
        for (struct flyt_node_server *server = node->servers; server; server = server->next)
            if (server->allocation == allocation)
                flyt_node_server_tell_limit(server, i, pending->wanted.slots.slots_val[i].memory_bytes,
                                            pending->wanted.revision, false);
}

static void change(struct flyt_node *node, struct flyt_node_allocation *allocation, struct order *order, unsigned index,
                   flyt_allocation *wanted)
{
    struct flyt_error err = {0};
    flyt_status status;

    if (has_other_devices(&allocation->now, wanted)) {
        if (flyt_node_allocation_sessions(allocation)) {
            answer(order, index, allocation, wanted->id, FLYT_STATUS_IN_USE,
                   "its programs still run on the devices that it had");
            return;
        }
        flyt_allocation before = allocation->now;
        allocation->now = *wanted;
        bool is_kept = !flyt_node_save(node);
        if (is_kept) {
            *wanted = before;
            drop_ledgers(node, allocation);
            set_up_slots(node, allocation);
            is_kept = !flyt_node_allocation_make_ledgers(node, allocation);
        } else {
            allocation->now = before;
        }
        answer(order, index, allocation, allocation->now.id, is_kept ? FLYT_STATUS_OK : FLYT_STATUS_UNAVAILABLE,
               is_kept ? "" : "the node cannot keep it");
        return;
    }
    if (try_change(node, allocation, wanted, &status, &err))
        answer(order, index, allocation, allocation->now.id, status, err.text);
    else
        wait_for_memory(node, allocation, order, index, wanted, err.text);
}

static void create(struct flyt_node *node, struct order *order, unsigned index, flyt_allocation *wanted)
{
    struct flyt_node_allocation *allocation = NULL;
    uint64_t id = wanted->id;

    int status = flyt_node_allocation_add(node, wanted, &allocation);
    if (!status)
        status = flyt_node_allocation_make_ledgers(node, allocation);
    if (!status)
        status = flyt_node_save(node);
    if (status) {
        if (allocation)
            flyt_node_allocation_free(node, allocation, true);
        answer(order, index, NULL, id, FLYT_STATUS_UNAVAILABLE, "the node cannot keep it");
        return;
    }
    flyt_info("allocation %016" PRIx64 ": granted, vm=%s devices=%u memory_bytes=%" PRIu64, id, allocation->now.vm_ip,
              allocation->now.slots.slots_len, (uint64_t)allocation->now.slots.slots_val[0].memory_bytes);
    answer(order, index, allocation, id, FLYT_STATUS_OK, "");
}

static void apply_one(struct flyt_node *node, struct order *order, unsigned index, const flyt_allocation *from)
{
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, from->id);
    flyt_allocation wanted = {0};
    struct flyt_error err = {0};

    if (allocation && (allocation->is_removed || from->revision < allocation->now.revision)) {
        answer(order, index, allocation, from->id, FLYT_STATUS_STALE, "the node has a later revision");
        return;
    }
    if (allocation && from->revision == allocation->now.revision && allocation->now.state != FLYT_ALLOCATION_ORPHAN) {
        answer(order, index, allocation, from->id, FLYT_STATUS_OK, "");
        return;
    }
    flyt_status status = check(node, from, &err);
    if (status == FLYT_STATUS_OK && flyt_node_allocation_copy(from, &wanted)) {
        status = FLYT_STATUS_UNAVAILABLE;
        flyt_error_set(&err, -ENOMEM, "the node has no memory");
    }
    if (status != FLYT_STATUS_OK) {
        answer(order, index, allocation, from->id, status, err.text);
        return;
    }
    if (allocation)
        finish_pending(allocation, FLYT_STATUS_CONFLICT, "another order came");
    if (allocation)
        change(node, allocation, order, index, &wanted);
    else
        create(node, order, index, &wanted);
    xdr_free((xdrproc_t)xdr_flyt_allocation, &wanted);
}

void flyt_node_allocation_remove(struct flyt_node *node, struct flyt_node_allocation *allocation, const char *reason)
{
    if (allocation->is_removed)
        return;
    finish_pending(allocation, FLYT_STATUS_NOT_FOUND, "the allocation was removed");
    allocation->is_removed = true;
    allocation->now.state = FLYT_ALLOCATION_ENDING;
    end_sessions(node, allocation, reason);
    if (!flyt_node_allocation_sessions(allocation))
        flyt_node_allocation_free(node, allocation, true);
}

void flyt_node_apply(struct flyt_node *node, const flyt_apply_args *args, flyt_node_applied_fn done, void *user)
{
    struct order *order = calloc(1, sizeof *order);
    unsigned count = args->allocations.allocations_len;
    flyt_apply_res bad = {.outcome = {FLYT_STATUS_UNAVAILABLE, (char *)"the node has no memory"},
                          .epoch = node->state.epoch};

    if (order)
        order->res.uses.uses_val = calloc(count + 1, sizeof *order->res.uses.uses_val);
    int status = order && order->res.uses.uses_val ? flyt_node_see_epoch(node, args->epoch) : -ENOMEM;
    if (status) {
        if (status == -ESTALE)
            bad.outcome = (flyt_outcome){FLYT_STATUS_STALE, (char *)"the node follows a later leader"};
        if (order)
            free(order->res.uses.uses_val);
        free(order);
        done(user, &bad);
        return;
    }
    order->done = done;
    order->user = user;
    order->left = count + 1;
    order->res.epoch = node->state.epoch;
    order->res.outcome.text = strdup("");
    order->res.uses.uses_len = count;
    /* First what goes: what comes may need its groups. */
    for (u_int i = 0; i < args->removed.removed_len; i++) {
        struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, args->removed.removed_val[i]);
        if (allocation)
            flyt_node_allocation_remove(node, allocation, "the allocation of this VM was taken back");
        allocation = flyt_node_allocation_find(node, args->removed.removed_val[i]);
        if (allocation)
            wait_for_end(node, allocation, order);
    }
    if (args->removed.removed_len)
        flyt_node_save(node);
    for (u_int i = 0; i < count; i++)
        apply_one(node, order, i, &args->allocations.allocations_val[i]);
    order_step(order);
}

void flyt_node_allocation_set_orphan(struct flyt_node *node, struct flyt_node_allocation *allocation)
{
    if (allocation->now.state == FLYT_ALLOCATION_ORPHAN || allocation->is_removed)
        return;
    allocation->now.state = FLYT_ALLOCATION_ORPHAN;
    flyt_warn("allocation %016" PRIx64 ": the cluster manager does not know it: an orphan, vm=%s",
              (uint64_t)allocation->now.id, allocation->now.vm_ip);
}
