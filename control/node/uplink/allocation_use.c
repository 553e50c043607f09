#include "control/node/uplink/allocation_use.h"

#include <stdlib.h>

#include "control/node/link/share.h"
#include "control/node/ops/checkpointed_sessions.h"

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
