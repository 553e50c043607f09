#include <string.h>

#include "control/cluster/model/capacity.h"

const char *const flyt_health_names[] = {"ok", "degraded", "failed", NULL};
const char *const flyt_isolation_names[] = {"shared", "strict", NULL};
const char *const flyt_schedule_names[] = {"active", "cordoned", "draining", NULL};

unsigned flyt_groupset_count(const struct flyt_groupset *set)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FLYT_GROUP_WORDS; i++)
        count += (unsigned)__builtin_popcountll(set->words[i]);
    return count;
}

/* The size that most groups have. */
static uint16_t regular_size(const struct flyt_capacity *capacity)
{
    uint16_t best = 0;
    unsigned best_count = 0;

    for (unsigned i = 0; i < capacity->group_count && best_count <= capacity->group_count / 2; i++) {
        unsigned count = 0;
        for (unsigned j = 0; j < capacity->group_count; j++)
            count += capacity->group_sms[j] == capacity->group_sms[i];
        if (count > best_count) {
            best_count = count;
            best = capacity->group_sms[i];
        }
    }
    return best;
}

void flyt_capacity_set_groups(struct flyt_capacity *capacity, const unsigned *group_sms, unsigned count)
{
    capacity->group_count = count < FLYT_GROUPS_MAX ? count : FLYT_GROUPS_MAX;
    capacity->sms_total = 0;
    memset(capacity->group_sms, 0, sizeof capacity->group_sms);
    for (unsigned i = 0; i < capacity->group_count; i++) {
        capacity->group_sms[i] = group_sms[i] < UINT16_MAX ? (uint16_t)group_sms[i] : UINT16_MAX;
        capacity->sms_total += capacity->group_sms[i];
    }
    capacity->regular_sms = regular_size(capacity);
    capacity->odd_count = 0;
    for (unsigned i = 0; i < capacity->group_count; i++) {
        if (capacity->group_sms[i] == capacity->regular_sms)
            continue;
        if (capacity->odd_count < FLYT_ODD_GROUPS_TRIED)
            capacity->odd[capacity->odd_count] = (uint16_t)i;
        capacity->odd_count++;
    }
    flyt_capacity_reset(capacity);
}

void flyt_capacity_reset(struct flyt_capacity *capacity)
{
    memset(&capacity->taken, 0, sizeof capacity->taken);
    memset(&capacity->timed, 0, sizeof capacity->timed);
    capacity->share_taken_pct = 0;
    capacity->sms_free = capacity->sms_total;
    capacity->regular_free = capacity->group_count - capacity->odd_count;
    capacity->slots_free = capacity->client_slots;
    capacity->memory_free_bytes = capacity->memory_bytes;
}

uint64_t flyt_capacity_memory(const struct flyt_capacity *capacity, uint64_t memory_bytes, unsigned sessions)
{
    uint64_t reserve_bytes, total_bytes;

    if (__builtin_mul_overflow(capacity->server_reserve_bytes, (uint64_t)sessions, &reserve_bytes) ||
        __builtin_add_overflow(memory_bytes, reserve_bytes, &total_bytes))
        return UINT64_MAX;
    return total_bytes;
}

void flyt_capacity_charge(struct flyt_capacity *capacity, const struct flyt_groupset *groups, uint64_t memory_bytes,
                          unsigned sessions)
{
    uint64_t bytes = flyt_capacity_memory(capacity, memory_bytes, sessions);

    for (unsigned i = 0; i < capacity->group_count; i++) {
        if (!flyt_groupset_has(groups, i) || flyt_groupset_has(&capacity->taken, i))
            continue;
        flyt_groupset_add(&capacity->taken, i);
        capacity->sms_free -= capacity->group_sms[i];
        capacity->regular_free -= capacity->group_sms[i] == capacity->regular_sms;
    }
    capacity->memory_free_bytes -= bytes < capacity->memory_free_bytes ? bytes : capacity->memory_free_bytes;
    capacity->slots_free -= sessions < capacity->slots_free ? sessions : capacity->slots_free;
}

void flyt_capacity_charge_share(struct flyt_capacity *capacity, const struct flyt_groupset *timed, unsigned minimum_pct)
{
    for (unsigned i = 0; timed && i < capacity->group_count; i++)
        if (flyt_groupset_has(timed, i))
            flyt_groupset_add(&capacity->timed, i);
    capacity->share_taken_pct += minimum_pct;
}

unsigned flyt_capacity_share(const struct flyt_capacity *capacity, unsigned sm_count)
{
    return capacity->sms_total ? (unsigned)((uint64_t)sm_count * 100 / capacity->sms_total) : 0;
}

unsigned flyt_capacity_sms(const struct flyt_capacity *capacity, const struct flyt_groupset *groups)
{
    unsigned sms = 0;

    for (unsigned i = 0; i < capacity->group_count; i++)
        sms += flyt_groupset_has(groups, i) ? capacity->group_sms[i] : 0;
    return sms;
}

/* What a request is made of: some groups of another size, and so many regular ones. */
struct composition {
    unsigned sms;
    unsigned regular_count;
    unsigned odd_count;
    uint16_t odd[FLYT_GROUPS_MAX];
};

static bool is_free(const struct flyt_capacity *capacity, const struct flyt_groupset *own, unsigned group)
{
    return !flyt_groupset_has(&capacity->taken, group) || (own && flyt_groupset_has(own, group));
}

/*
 * All combinations of the first few odd groups are tried, filled up with regular ones and, where these do not suffice,
 * with the other odd ones. Among equal ones that with the fewest odd groups wins: they are left for those who need
 * them.
 */
static bool compose(const struct flyt_capacity *capacity, const struct flyt_groupset *own, unsigned sm_count,
                    struct composition *ret_best)
{
    uint16_t odd[FLYT_GROUPS_MAX];
    unsigned odd_count = 0, regular_count = 0, regular_sms = capacity->regular_sms;
    bool is_found = false;

    for (unsigned i = 0; i < capacity->group_count; i++) {
        if (!capacity->group_sms[i] || !is_free(capacity, own, i))
            continue;
        if (capacity->group_sms[i] == regular_sms)
            regular_count++;
        else
            odd[odd_count++] = (uint16_t)i;
    }
    unsigned tried_count = odd_count < FLYT_ODD_GROUPS_TRIED ? odd_count : FLYT_ODD_GROUPS_TRIED;
    for (unsigned subset = 0; subset < 1u << tried_count; subset++) {
        struct composition one = {0};
        for (unsigned i = 0; i < tried_count; i++)
            if (subset >> i & 1) {
                one.odd[one.odd_count++] = odd[i];
                one.sms += capacity->group_sms[odd[i]];
            }
        if (one.sms < sm_count && regular_sms) {
            one.regular_count = (sm_count - one.sms + regular_sms - 1) / regular_sms;
            if (one.regular_count > regular_count)
                one.regular_count = regular_count;
            one.sms += one.regular_count * regular_sms;
        }
        for (unsigned i = tried_count; i < odd_count && one.sms < sm_count; i++) {
            one.odd[one.odd_count++] = odd[i];
            one.sms += capacity->group_sms[odd[i]];
        }
        if (one.sms < sm_count)
            continue;
        if (!is_found || one.sms < ret_best->sms || (one.sms == ret_best->sms && one.odd_count < ret_best->odd_count))
            *ret_best = one;
        is_found = true;
    }
    return is_found;
}

/* The same as compose where all odd groups are tried, without own groups, in a few steps: it runs for every GPU. */
static unsigned fit_quickly(const struct flyt_capacity *capacity, unsigned sm_count)
{
    unsigned best = 0;

    for (unsigned subset = 0; subset < 1u << capacity->odd_count; subset++) {
        unsigned sms = 0;
        for (unsigned i = 0; i < capacity->odd_count; i++) {
            if (!(subset >> i & 1))
                continue;
            if (flyt_groupset_has(&capacity->taken, capacity->odd[i]))
                goto next; /* the same as the subset without it */
            sms += capacity->group_sms[capacity->odd[i]];
        }
        if (sms < sm_count) {
            unsigned count = (sm_count - sms + capacity->regular_sms - 1) / capacity->regular_sms;
            if (count > capacity->regular_free)
                continue;
            sms += count * capacity->regular_sms;
        }
        if (!best || sms < best)
            best = sms;
    next:;
    }
    return best;
}

unsigned flyt_capacity_fit(const struct flyt_capacity *capacity, const struct flyt_groupset *own, unsigned sm_count)
{
    struct composition best;

    if (!sm_count || (!own && capacity->sms_free < sm_count))
        return 0;
    if (!own && capacity->regular_sms && capacity->odd_count <= FLYT_ODD_GROUPS_TRIED)
        return fit_quickly(capacity, sm_count);
    return compose(capacity, own, sm_count, &best) ? best.sms : 0;
}

/* Takes up to count regular groups out of *from into *to: from the smallest run that holds them all, else from the
 * largest runs. Returns how many are still wanted. */
static unsigned take_runs(const struct flyt_capacity *capacity, struct flyt_groupset *from, unsigned count,
                          struct flyt_groupset *to)
{
    while (count) {
        unsigned best_first = 0, best_count = 0;
        for (unsigned i = 0; i < capacity->group_count; i++) {
            unsigned first = i;
            while (i < capacity->group_count && flyt_groupset_has(from, i))
                i++;
            unsigned run = i - first;
            bool is_better = best_count >= count ? run >= count && run < best_count : run > best_count;
            if (run && is_better) {
                best_first = first;
                best_count = run;
            }
        }
        if (!best_count)
            return count;
        for (unsigned i = 0; i < best_count && count; i++, count--) {
            flyt_groupset_add(to, best_first + i);
            flyt_groupset_remove(from, best_first + i);
        }
    }
    return 0;
}

unsigned flyt_capacity_choose(const struct flyt_capacity *capacity, const struct flyt_groupset *own, unsigned sm_count,
                              struct flyt_groupset *ret_groups)
{
    struct flyt_groupset chosen = {{0}}, owned = {{0}}, others = {{0}};
    struct composition best;

    if (!sm_count || !compose(capacity, own, sm_count, &best))
        return 0;
    for (unsigned i = 0; i < best.odd_count; i++)
        flyt_groupset_add(&chosen, best.odd[i]);
    for (unsigned i = 0; i < capacity->group_count; i++) {
        if (capacity->group_sms[i] != capacity->regular_sms || !is_free(capacity, own, i))
            continue;
        flyt_groupset_add(own && flyt_groupset_has(own, i) ? &owned : &others, i);
    }
    unsigned wanted = take_runs(capacity, &owned, best.regular_count, &chosen);
    if (take_runs(capacity, &others, wanted, &chosen))
        return 0;
    *ret_groups = chosen;
    return best.sms;
}
