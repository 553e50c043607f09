#include "control/node/ops/receive_restart.h"

#include <inttypes.h>

#include "control/node/model/server.h"
#include "control/node/ops/arrival.h"
#include "control/node/state/receive_record.h"
#include "rpc/base/log.h"

/* How many have come back, and are no sessions yet; of these, how many have failed since. */
static unsigned count_returned(const struct flyt_node_receive *receive, unsigned *ret_failed_count)
{
    unsigned count = 0;

    *ret_failed_count = 0;
    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        count++;
        *ret_failed_count += arrival->has_failed;
    }
    return count;
}

static bool is_session(const struct flyt_node_allocation *allocation, uint64_t session_id)
{
    const struct flyt_node_session *session = flyt_node_session_find(allocation->node, session_id);

    return session && session->allocation == allocation && session->state != FLYT_NODE_SESSION_LOADING;
}

/* After a restart: sessions that have their clients here, and those that had gone on, and have ended or may still come
 * back. */
static unsigned count_moved(const struct flyt_node_receive *receive)
{
    const struct flyt_node_allocation *allocation = receive->op.allocation;
    const struct flyt_node_receive_record *record = receive->record;
    unsigned count = allocation ? allocation->session_count : 0;

    for (unsigned i = 0; i < record->moved_count; i++)
        count += !allocation || !is_session(allocation, record->moved[i]);
    return count;
}

/* Nobody else can come back who waits, and its ledgers are there: there is nothing to wait for. */
bool flyt_node_receive_is_back(const struct flyt_node_receive *receive)
{
    const struct flyt_node_allocation *allocation = receive->op.allocation;
    unsigned failed_count, returned_count = count_returned(receive, &failed_count);

    for (unsigned i = 0; allocation && i < allocation->now.slots.slots_len; i++)
        if (!allocation->slots[i].ledger)
            return false;
    return allocation && !failed_count && count_moved(receive) + returned_count == receive->switched_count;
}

void flyt_node_receive_settle(struct flyt_node_receive *receive)
{
    struct flyt_node *node = receive->op.node;
    unsigned failed_count, returned_count = count_returned(receive, &failed_count);

    receive->is_restarted = false;
    receive->moved_count = count_moved(receive);
    if (!receive->moved_count && returned_count - failed_count < receive->switched_count) {
        flyt_node_operation_fail(&receive->op, FLYT_STATUS_UNAVAILABLE,
                                 "the node manager was restarted before a program had come to its new server process, "
                                 "and %u of %u such processes are there no more",
                                 receive->switched_count - (returned_count - failed_count), receive->switched_count);
    } else if (receive->moved_count + returned_count < receive->switched_count) {
        receive->lost_count = receive->switched_count - receive->moved_count - returned_count;
        flyt_node_tell(node, "migration.session_lost", receive->op.vm_ip,
                       "%u programs of VM %s have ended, or lost their new server processes, when the node manager "
                       "was restarted, and its others go on here",
                       receive->lost_count, receive->op.vm_ip);
    }
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival && !flyt_node_receive_is_failing(receive);
         arrival = arrival->next)
        if (arrival->session_load.target.state == FLYT_NODE_TARGET_NEW)
            flyt_node_session_load_welcome(&arrival->session_load);
    flyt_node_operation_wake(&receive->op);
}

const char *flyt_node_receive_return_check(const struct flyt_node_allocation *allocation,
                                           const struct flyt_manager_link_rejoin *rejoin)
{
    const struct flyt_node_receive *receive = allocation ? flyt_node_receive_of(allocation) : NULL;

    if (!receive || !receive->is_restarted || flyt_node_receive_is_failing(receive) || allocation->is_removed)
        return "the session does not go on here: its migration has ended";
    if (rejoin->session.slot_count != allocation->now.slots.slots_len)
        return "the session has other devices than its VM";
    return flyt_node_arrival_find(receive, rejoin->session.session_id) ? "the session is there already" : NULL;
}

const char *flyt_node_receive_return(struct flyt_node_allocation *allocation, struct flyt_node_server *server,
                                     const struct flyt_manager_link_rejoin *rejoin)
{
    struct flyt_node_receive *receive = flyt_node_receive_of(allocation);

    if (flyt_node_arrival_return(receive, allocation, server, rejoin))
        return "the node manager has no memory";
    flyt_info("session %016" PRIx64 ": is there again and waits for its client, vm=%s program=%s server_pid=%d "
              "extents=%" PRIu64 " held=%u",
              rejoin->session.session_id, receive->op.vm_ip, receive->arrivals->session_load.its.program,
              (int)server->pid, rejoin->extent_count, receive->arrivals->session_load.session->has.extents.count);
    return NULL;
}

void flyt_node_receives_settle(struct flyt_node *node)
{
    for (struct flyt_node_operation *operation = flyt_node_operation_first(node, FLYT_NODE_OPERATION_RECEIVE);
         operation; operation = operation->next) {
        struct flyt_node_receive *receive = (struct flyt_node_receive *)operation;
        if (receive->is_restarted && !flyt_node_receive_is_failing(receive))
            flyt_node_receive_settle(receive);
    }
}
