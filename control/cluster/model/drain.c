#include <stddef.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/drain.h"
#include "control/cluster/model/gpu.h"

/* The first row of a state counts of which all is seen. */
static const struct {
    enum flyt_drain_state from;
    unsigned all;
    enum flyt_drain_step step;
    enum flyt_drain_state to;
} rows[] = {
    {FLYT_DRAIN_WAITING, FLYT_DRAIN_IS_EMPTY, FLYT_DRAIN_SAY_DONE, FLYT_DRAIN_OVER},
    {FLYT_DRAIN_WAITING, FLYT_DRAIN_IS_LATE, FLYT_DRAIN_ASK, FLYT_DRAIN_ASKING},
    {FLYT_DRAIN_ASKING, FLYT_DRAIN_IS_ANSWERED | FLYT_DRAIN_IS_REFUSED, FLYT_DRAIN_SAY_UNKNOWN, FLYT_DRAIN_OVER},
    {FLYT_DRAIN_ASKING, FLYT_DRAIN_IS_ANSWERED | FLYT_DRAIN_KILLS, FLYT_DRAIN_TELL_KILLED, FLYT_DRAIN_ENDING},
    {FLYT_DRAIN_ASKING, FLYT_DRAIN_IS_ANSWERED | FLYT_DRAIN_IS_EMPTY, FLYT_DRAIN_SAY_DONE, FLYT_DRAIN_OVER},
    {FLYT_DRAIN_ASKING, FLYT_DRAIN_IS_ANSWERED, FLYT_DRAIN_SAY_PROGRAMS, FLYT_DRAIN_OVER},
    {FLYT_DRAIN_ENDING, FLYT_DRAIN_IS_EMPTY, FLYT_DRAIN_SAY_DONE, FLYT_DRAIN_OVER},
    {FLYT_DRAIN_ENDING, FLYT_DRAIN_IS_LATE, FLYT_DRAIN_SAY_PROGRAMS, FLYT_DRAIN_OVER},
};

enum flyt_drain_step flyt_drain_next(enum flyt_drain_state state, unsigned seen, enum flyt_drain_state *ret_state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].from == state && (seen & rows[i].all) == rows[i].all) {
            *ret_state = rows[i].to;
            return rows[i].step;
        }
    *ret_state = state;
    return FLYT_DRAIN_WAIT;
}

unsigned flyt_allocation_draining(const struct flyt_cluster_allocation *allocation)
{
    unsigned sms = 0;

    for (unsigned i = 0; i < allocation->slot_count; i++)
        if (allocation->slots[i].gpu)
            sms += flyt_capacity_sms(flyt_gpu_capacity(allocation->slots[i].gpu), &allocation->slots[i].leaving);
    return sms;
}
