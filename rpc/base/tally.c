#include "rpc/base/tally.h"

#include <stdatomic.h>
#include <stdlib.h>

struct flyt_tally {
    atomic_uint users; /* and what is counted: the last one frees it */
    atomic_uint count;
};

struct flyt_tally *flyt_tally_new(void)
{
    struct flyt_tally *tally = calloc(1, sizeof *tally);

    if (tally)
        atomic_init(&tally->users, 1);
    return tally;
}

struct flyt_tally *flyt_tally_ref(struct flyt_tally *tally)
{
    if (tally)
        atomic_fetch_add_explicit(&tally->users, 1, memory_order_relaxed);
    return tally;
}

/* acq_rel: whoever frees it comes after all that the others have done to it. */
struct flyt_tally *flyt_tally_unref(struct flyt_tally *tally)
{
    if (tally && atomic_fetch_sub_explicit(&tally->users, 1, memory_order_acq_rel) == 1)
        free(tally);
    return NULL;
}

void flyt_tally_add(struct flyt_tally *tally)
{
    if (flyt_tally_ref(tally))
        atomic_fetch_add_explicit(&tally->count, 1, memory_order_relaxed);
}

void flyt_tally_remove(struct flyt_tally *tally)
{
    if (tally)
        atomic_fetch_sub_explicit(&tally->count, 1, memory_order_relaxed);
    flyt_tally_unref(tally);
}

unsigned flyt_tally_count(const struct flyt_tally *tally)
{
    return atomic_load_explicit(&tally->count, memory_order_relaxed);
}

bool flyt_tally_is_alone(const struct flyt_tally *tally)
{
    return atomic_load_explicit(&tally->users, memory_order_acquire) == 1;
}
