/*
 * What a GPU has to give and what of it is taken: groups of SMs, memory, client slots. Plain structures and pure
 * functions, any thread. The registry counts a GPU anew from its entries (reset, then one charge for each), so that
 * nothing can drift.
 */
#ifndef FLYT_CLUSTER_CAPACITY_H
#define FLYT_CLUSTER_CAPACITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control.h"
#include "control/base/size.h"

enum {
    FLYT_GROUP_WORDS = FLYT_GROUPS_MAX / 64,
    FLYT_ODD_GROUPS_TRIED = 4, /* groups of an unusual size all combinations of which are tried; GPUs have one */
};

/* As documents and views have them, by value; NULL behind the last. */
extern const char *const flyt_isolation_names[], *const flyt_schedule_names[], *const flyt_health_names[];

/* A set of group numbers, 0 to FLYT_GROUPS_MAX - 1. */
struct flyt_groupset {
    uint64_t words[FLYT_GROUP_WORDS];
};

static inline bool flyt_groupset_has(const struct flyt_groupset *set, unsigned group)
{
    return group < FLYT_GROUPS_MAX && (set->words[group / 64] >> group % 64 & 1);
}

static inline void flyt_groupset_add(struct flyt_groupset *set, unsigned group)
{
    set->words[group / 64] |= 1ull << group % 64;
}

static inline void flyt_groupset_remove(struct flyt_groupset *set, unsigned group)
{
    set->words[group / 64] &= ~(1ull << group % 64);
}

unsigned flyt_groupset_count(const struct flyt_groupset *set);

struct flyt_capacity {
    /* What placement looks at of every GPU of a cluster, side by side: of most it reads no more. Free is what is not
     * taken; more may be taken than there is where a node reports more than the store knows. */
    enum flyt_isolation isolation;
    enum flyt_schedule schedule;
    bool is_unhealthy;
    uint16_t regular_sms; /* of most groups */
    unsigned sms_free, slots_free, sms_total;
    uint64_t memory_free_bytes, memory_bytes, server_reserve_bytes;
    /* what there is */
    const char *uuid, *type;     /* borrowed */
    unsigned index;              /* on its node */
    unsigned compute_capability; /* 100 * major + minor */
    unsigned client_slots, group_count;
    /* what is taken */
    struct flyt_groupset taken;
    struct flyt_groupset timed; /* of those: shared in time */
    unsigned share_taken_pct;   /* of the time of those (of a strict GPU: of all groups): minima that were promised */
    uint16_t group_sms[FLYT_GROUPS_MAX];
    unsigned regular_free;
    unsigned odd_count;                  /* groups of another size */
    uint16_t odd[FLYT_ODD_GROUPS_TRIED]; /* the first ones */
};

/* Sets the groups: count of them (at most FLYT_GROUPS_MAX) with their SMs, and everything free. */
void flyt_capacity_set_groups(struct flyt_capacity *capacity, const unsigned *group_sms, unsigned count);
/* Everything is free. */
void flyt_capacity_reset(struct flyt_capacity *capacity);
/* Takes groups, memory (the VM's) and sessions with their reserve. Groups that are taken already are not taken twice;
 * nothing falls below 0. */
void flyt_capacity_charge(struct flyt_capacity *capacity, const struct flyt_groupset *groups, uint64_t memory_bytes,
                          unsigned sessions);
/*
 * Promises a minimum of the time: of the groups that are shared in time, which these are some of; or, timed NULL, of a
 * strict GPU, where SMs are granted as a time share.
 */
void flyt_capacity_charge_share(struct flyt_capacity *capacity, const struct flyt_groupset *timed,
                                unsigned minimum_pct);
/* Of a strict GPU: the minimum that so many SMs of their own are, rounded down; they all are 100. */
unsigned flyt_capacity_share(const struct flyt_capacity *capacity, unsigned sm_count);
/* The SMs of a set of groups. */
unsigned flyt_capacity_sms(const struct flyt_capacity *capacity, const struct flyt_groupset *groups);
/* memory_bytes and what that many servers take besides; UINT64_MAX where it does not fit 64 bits. */
uint64_t flyt_capacity_memory(const struct flyt_capacity *capacity, uint64_t memory_bytes, unsigned sessions);

/*
 * The SMs that a request of sm_count would get from the groups that are free or in `own` (NULL: none): the fewest that
 * are not less. 0: there are not so many.
 */
unsigned flyt_capacity_fit(const struct flyt_capacity *capacity, const struct flyt_groupset *own, unsigned sm_count);
/*
 * Chooses them: own groups before others, and adjacent ones where there is a run that holds them. Returns their SMs
 * (as flyt_capacity_fit says) and *ret_groups; 0: there are not so many.
 */
unsigned flyt_capacity_choose(const struct flyt_capacity *capacity, const struct flyt_groupset *own, unsigned sm_count,
                              struct flyt_groupset *ret_groups);

#endif
