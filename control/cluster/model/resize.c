#include <errno.h>
#include <string.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/quota.h"
#include "control/cluster/model/resize.h"
#include "control/cluster/model/session.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/vm.h"
#include "rpc/base/error.h"

/* ---- how far it is ---- */

static bool is_late(const struct flyt_resize_seen *seen)
{
    return seen->is_late;
}

static bool is_late_for_someone(const struct flyt_resize_seen *seen)
{
    return seen->is_late && seen->is_waited;
}

static bool has_failed(const struct flyt_resize_seen *seen)
{
    return seen->has_failed;
}

static bool is_written(const struct flyt_resize_seen *seen)
{
    return seen->is_written;
}

static bool has_moved(const struct flyt_resize_seen *seen)
{
    return seen->has_moved;
}

static bool has_stayed(const struct flyt_resize_seen *seen)
{
    return seen->has_stayed;
}

static bool is_unreached(const struct flyt_resize_seen *seen)
{
    return seen->is_answered && seen->answer_error;
}

static bool is_refused(const struct flyt_resize_seen *seen)
{
    return seen->is_answered && seen->is_refused;
}

static bool is_answered(const struct flyt_resize_seen *seen)
{
    return seen->is_answered;
}

static bool has_switched(const struct flyt_resize_seen *seen)
{
    return seen->is_applied && seen->switch_state != FLYT_SWITCH_TARGET && seen->is_still;
}

static bool is_record(const struct flyt_resize_seen *seen)
{
    return has_switched(seen) && seen->switch_state == FLYT_SWITCH_KEPT;
}

static bool is_short(const struct flyt_resize_seen *seen)
{
    return has_switched(seen) && seen->is_short;
}

/* The first row of a state whose condition holds. */
static const struct {
    enum flyt_resize_state from;
    bool (*when)(const struct flyt_resize_seen *seen);
    enum flyt_resize_step step;
    enum flyt_resize_state to;
} rows[] = {
    {FLYT_RESIZE_QUEUED, is_late, FLYT_RESIZE_SAY_QUEUED, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_EDITING, is_late_for_someone, FLYT_RESIZE_SAY_UNKNOWN, FLYT_RESIZE_EDITING},
    {FLYT_RESIZE_MOVING, has_moved, FLYT_RESIZE_SAY_MOVED, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_MOVING, has_stayed, FLYT_RESIZE_SAY_STAYED, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_WRITING, has_failed, FLYT_RESIZE_PUT_BACK, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_WRITING, is_written, FLYT_RESIZE_ORDER, FLYT_RESIZE_ORDERED},
    {FLYT_RESIZE_WRITING, is_late_for_someone, FLYT_RESIZE_SAY_UNKNOWN, FLYT_RESIZE_WRITING},
    {FLYT_RESIZE_ORDERED, is_unreached, FLYT_RESIZE_SAY_UNREACHED, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_ORDERED, is_refused, FLYT_RESIZE_TAKE_BACK, FLYT_RESIZE_TAKING_BACK},
    {FLYT_RESIZE_ORDERED, is_answered, FLYT_RESIZE_LOOK, FLYT_RESIZE_SWITCHING},
    {FLYT_RESIZE_ORDERED, is_late_for_someone, FLYT_RESIZE_SAY_LATE, FLYT_RESIZE_ORDERED},
    {FLYT_RESIZE_SWITCHING, is_record, FLYT_RESIZE_SAY_KEPT, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_SWITCHING, is_short, FLYT_RESIZE_SAY_SHORT, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_SWITCHING, has_switched, FLYT_RESIZE_SAY_DONE, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_SWITCHING, is_late, FLYT_RESIZE_SAY_LATE, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_TAKING_BACK, is_written, FLYT_RESIZE_SAY_REFUSED, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_TAKING_BACK, has_failed, FLYT_RESIZE_SAY_REFUSED, FLYT_RESIZE_OVER},
    {FLYT_RESIZE_TAKING_BACK, is_late_for_someone, FLYT_RESIZE_SAY_UNKNOWN, FLYT_RESIZE_TAKING_BACK},
};

enum flyt_resize_step flyt_resize_next(enum flyt_resize_state state, const struct flyt_resize_seen *seen,
                                       enum flyt_resize_state *ret_state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].from != state || !rows[i].when(seen))
            continue;
        *ret_state = rows[i].to;
        return rows[i].step;
    }
    *ret_state = state;
    return FLYT_RESIZE_WAIT;
}

/* ---- what the allocation becomes ---- */

void flyt_resize_keep(const struct flyt_cluster_allocation *allocation, struct flyt_resize_size *ret_size)
{
    *ret_size = (struct flyt_resize_size){.share = allocation->share,
                                          .priority = allocation->priority,
                                          .is_suspended = allocation->is_suspended,
                                          .when_free = allocation->when_free,
                                          .shown_sms = allocation->shown_sms};
    memcpy(ret_size->slots, allocation->slots, allocation->slot_count * sizeof *allocation->slots);
}

static void take_size(struct flyt_cluster_allocation *allocation, const struct flyt_resize_size *size)
{
    memcpy(allocation->slots, size->slots, allocation->slot_count * sizeof *allocation->slots);
    allocation->share = size->share;
    allocation->priority = size->priority;
    allocation->is_suspended = size->is_suspended;
    allocation->when_free = size->when_free;
    allocation->shown_sms = size->shown_sms;
}

static void count_all(struct flyt_cluster_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->slot_count; i++)
        flyt_gpu_count(allocation->slots[i].gpu);
}

/* A window matters only where there are turns. */
static bool is_other_share(const struct flyt_share *one, const struct flyt_share *other)
{
    return one->minimum_pct != other->minimum_pct || one->maximum_pct != other->maximum_pct ||
           one->window_ms != other->window_ms;
}

/* As the VM's document says. Whether its SMs are its own stays as it was granted. */
static struct flyt_share share_of(const struct flyt_cluster_allocation *allocation, const struct flyt_vm *vm)
{
    struct flyt_share share = flyt_vm_share(vm);

    share.is_timed = allocation->share.is_timed;
    if (!share.is_timed)
        share.minimum_pct = share.maximum_pct = 0;
    return share;
}

static bool is_other_than_desired(const struct flyt_cluster_allocation *allocation, const struct flyt_vm *vm)
{
    const struct flyt_share share = share_of(allocation, vm);

    return is_other_share(&share, &allocation->share) || allocation->priority != vm->desired.priority ||
           allocation->is_suspended != vm->desired.is_suspended ||
           allocation->shown_sms != flyt_desired_shown(&vm->desired);
}

bool flyt_resize_is_wanted(const struct flyt_cluster_allocation *allocation, const struct flyt_vm *vm)
{
    bool is_other = is_other_than_desired(allocation, vm);

    for (unsigned i = 0; i < allocation->slot_count; i++)
        is_other |= flyt_slot_is_short(&allocation->slots[i]) ||
                    allocation->slots[i].wanted_sms != vm->desired.sm_count ||
                    allocation->slots[i].memory_bytes != vm->desired.memory_bytes;
    return is_other;
}

static flyt_status within_quota(const struct flyt_cluster_allocation *allocation, const struct flyt_resize_size *before,
                                struct flyt_error *err)
{
    struct flyt_tenant *tenant = flyt_tenant_get(allocation->cluster, allocation->tenant);
    struct flyt_quota more = {0};
    char reason[sizeof err->text];

    for (unsigned i = 0; i < allocation->slot_count; i++) {
        const struct flyt_cluster_slot *now = &allocation->slots[i], *old = &before->slots[i];
        more.sm_count += now->sm_count > old->sm_count ? now->sm_count - old->sm_count : 0;
        more.memory_bytes += now->memory_bytes > old->memory_bytes ? now->memory_bytes - old->memory_bytes : 0;
    }
    if (!tenant || flyt_quota_allows(allocation->tenant, &tenant->quota, &tenant->used, &more, reason, sizeof reason))
        return FLYT_STATUS_OK;
    flyt_error_set(err, -EDQUOT, "%s", reason);
    return FLYT_STATUS_QUOTA;
}

/* Its parts, which are not charged meanwhile. */
static flyt_status change_parts(struct flyt_cluster_allocation *allocation, const struct flyt_resize_want *want,
                                const struct flyt_resize_size *before, bool *is_change, struct flyt_error *err)
{
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        struct flyt_cluster_slot *slot = &allocation->slots[i];
        const struct flyt_cluster_slot *old = &before->slots[i];
        unsigned sms = want->sms.is_set ? (unsigned)want->sms.value : slot->wanted_sms;
        uint64_t memory_bytes = want->memory_bytes.is_set ? want->memory_bytes.value : slot->memory_bytes;
        if (!flyt_slot_change(allocation, slot, sms, memory_bytes, err) ||
            !flyt_share_fits(allocation, flyt_share_minimum(allocation->isolation, &before->share, old),
                             &allocation->share, slot, err))
            return FLYT_STATUS_NO_CAPACITY;
        *is_change |= sms != old->wanted_sms || memory_bytes != old->memory_bytes || slot->sm_count != old->sm_count;
    }
    return FLYT_STATUS_OK;
}

flyt_status flyt_resize_change(struct flyt_cluster_allocation *allocation, const struct flyt_resize_want *want,
                               const struct flyt_resize_size *before, bool *ret_is_change, struct flyt_error *err)
{
    const struct flyt_vm *vm = allocation->vm;
    bool is_change = is_other_than_desired(allocation, vm);

    flyt_allocation_charge(allocation, false);
    allocation->share = share_of(allocation, vm);
    allocation->priority = vm->desired.priority;
    allocation->is_suspended = vm->desired.is_suspended;
    allocation->shown_sms = flyt_desired_shown(&vm->desired);
    flyt_status status = change_parts(allocation, want, before, &is_change, err);
    if (status != FLYT_STATUS_OK)
        take_size(allocation, before);
    flyt_allocation_charge(allocation, true);
    if (status == FLYT_STATUS_OK && !want->is_forced)
        status = within_quota(allocation, before, err);
    if (status == FLYT_STATUS_OK && !want->is_forced &&
        !flyt_session_needs_fit(allocation, before->slots, allocation->slots, err))
        status = FLYT_STATUS_IN_USE;
    if (status == FLYT_STATUS_OK) {
        allocation->when_free = want->when_free;
        *ret_is_change = is_change;
    } else {
        flyt_allocation_charge(allocation, false);
        take_size(allocation, before);
        flyt_allocation_charge(allocation, true);
    }
    count_all(allocation);
    return status;
}

void flyt_resize_put_back(struct flyt_cluster_allocation *allocation, const struct flyt_resize_size *before)
{
    struct flyt_groupset added[FLYT_SLOTS_MAX];
    uint64_t own_bytes[FLYT_SLOTS_MAX];

    for (unsigned i = 0; i < allocation->slot_count; i++) {
        own_bytes[i] = allocation->slots[i].memory_bytes + allocation->slots[i].leaving_bytes;
        for (unsigned word = 0; word < FLYT_GROUP_WORDS; word++)
            added[i].words[word] = allocation->slots[i].groups.words[word] | allocation->slots[i].leaving.words[word];
    }
    flyt_allocation_charge(allocation, false);
    take_size(allocation, before);
    flyt_allocation_charge(allocation, true);
    for (unsigned i = 0; i < allocation->slot_count; i++) {
        struct flyt_cluster_slot *slot = &allocation->slots[i];
        for (unsigned word = 0; word < FLYT_GROUP_WORDS; word++)
            slot->leaving.words[word] |= added[i].words[word] & ~slot->groups.words[word];
        if (own_bytes[i] > slot->memory_bytes + slot->leaving_bytes)
            slot->leaving_bytes = own_bytes[i] - slot->memory_bytes;
    }
    count_all(allocation);
}

/* ---- what is seen of it ---- */

flyt_switch_state flyt_resize_least_switched(const struct flyt_cluster_allocation *allocation,
                                             const struct flyt_resize_size *before, unsigned *ret_sms)
{
    flyt_switch_state least = FLYT_SWITCH_VACATED;

    for (unsigned i = 0; i < allocation->slot_count && least != FLYT_SWITCH_KEPT; i++) {
        const struct flyt_groupset *now = &allocation->slots[i].groups, *old = &before->slots[i].groups;
        const struct flyt_slot_use *use = &allocation->uses[i];
        flyt_switch_state state = i < allocation->use_count ? use->switch_state : FLYT_SWITCH_TARGET;
        if (memcmp(now->words, old->words, sizeof now->words) != 0 && (state == FLYT_SWITCH_KEPT || state < least)) {
            least = state;
            *ret_sms = use->sm_count;
        }
    }
    return least;
}

const struct flyt_cluster_slot *flyt_resize_short_slot(const struct flyt_cluster_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->slot_count; i++)
        if (flyt_slot_is_short(&allocation->slots[i]))
            return &allocation->slots[i];
    return NULL;
}
