#include "control/node/ops/move_state.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "control/node/link/broker.h"
#include "control/node/link/share.h"
#include "control/node/memory/charge.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

/* What the session has, between the server that it leaves and the one where it goes on. */

int flyt_node_move_charge(struct flyt_node_session *session, uint64_t target_id)
{
    struct flyt_node_move *move = flyt_node_move_of(session);
    struct flyt_node_allocation *allocation = session->allocation;
    struct flyt_node_holding *source = flyt_node_session_has(session);
    int status = 0;

    if (flyt_fault_point("node.migrate.switch") == FLYT_FAULT_ERROR)
        return -EIO;
    if (move->way->is_given && !move->kept.first)
        status = flyt_node_extents_copy(&source->extents, &move->kept);
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        move->charged_bytes[i] = flyt_ledger_charged(allocation->slots[i].ledger, source->server_id);
        move->reserved_bytes[i] = flyt_ledger_reserved(allocation->slots[i].ledger, source->server_id);
    }
    return status ? status : flyt_node_charge_move(allocation, &source->extents, source->server_id, target_id);
}

void flyt_node_move_charge_back(struct flyt_node_session *session, uint64_t target_id)
{
    const struct flyt_node_move *move = flyt_node_move_of(session);
    const struct flyt_node_holding *source = flyt_node_session_has(session);

    for (unsigned i = 0; i < session->allocation->now.slots.slots_len; i++) {
        struct flyt_ledger *ledger = session->allocation->slots[i].ledger;
        uint64_t used_bytes, limit_bytes;
        int status = flyt_ledger_move(ledger, target_id, source->server_id, move->charged_bytes[i]);
        if (!status) /* it has that: it counts whatever the limit is by now */
            status = flyt_ledger_reserve_measured(ledger, source->server_id, move->reserved_bytes[i], &used_bytes,
                                                  &limit_bytes);
        if (status)
            flyt_warn("session %016" PRIx64 ": its charge is not what it was: %s", move->session_id, strerror(-status));
    }
}

void flyt_node_move_undo_giving(struct flyt_node_move *move, struct flyt_node_server *target)
{
    struct flyt_node_server *source = move->source;

    flyt_node_extents_drop(move->node, &target->has.extents, target->has.server_id);
    flyt_node_charge_leave(source);
    if (move->way->is_given) {
        source->has.extents = move->kept;
        move->kept = (struct flyt_node_extents){0};
        flyt_node_extents_keep(move->node, &source->has.extents, source->has.server_id);
    }
    flyt_node_move_charge_back(source->session, target->has.server_id);
    flyt_node_broker_move(&target->has, source);
    flyt_node_share_leave(target);
    flyt_node_session_leave(target);
}
