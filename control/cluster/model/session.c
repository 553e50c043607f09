/* Sessions: what nodes have reported of them. */
#include <errno.h>
#include <string.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/session.h"
#include "rpc/base/error.h"

struct flyt_session_use *flyt_session_find(struct flyt_cluster *cluster, uint64_t id, struct flyt_node **ret_node)
{
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct flyt_node *node = cluster->nodes.items[i];
        for (unsigned j = 0; j < node->session_count; j++) {
            if (node->sessions[j].id != id)
                continue;
            *ret_node = node;
            return &node->sessions[j];
        }
    }
    return NULL;
}

bool flyt_session_is_checkpointed(const struct flyt_session_use *session)
{
    return !session->server_pid && !strncmp(session->why_not, FLYT_WHY_CHECKPOINTED, strlen(FLYT_WHY_CHECKPOINTED));
}

unsigned flyt_session_needed(const struct flyt_node *node, uint64_t session_id, unsigned slot)
{
    for (u_int i = 0; i < node->needs.needs.needs_len; i++) {
        const flyt_session_need *need = &node->needs.needs.needs_val[i];
        if (need->session_id == session_id && slot < need->sm_counts.sm_counts_len)
            return need->sm_counts.sm_counts_val[slot];
    }
    return 0;
}

bool flyt_session_needs_fit(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *before,
                            const struct flyt_cluster_slot *after, struct flyt_error *err)
{
    struct flyt_node *node = allocation->node, *found;

    for (u_int i = 0; i < node->needs.needs.needs_len; i++) {
        const flyt_session_need *need = &node->needs.needs.needs_val[i];
        /* The node may have been restarted, and not know the session again yet: what it needed it needs still. */
        const struct flyt_session_use *session = flyt_session_find(allocation->cluster, need->session_id, &found);
        for (unsigned j = 0; need->allocation_id == allocation->id && j < allocation->slot_count; j++) {
            unsigned needed = j < need->sm_counts.sm_counts_len ? need->sm_counts.sm_counts_val[j] : 0;
            if (after[j].sm_count >= before[j].sm_count || needed <= after[j].sm_count)
                continue;
            flyt_error_set(
                err, -EBUSY,
                "program %.100s (pid %u) has launched kernels whose blocks run together and need %u SMs, more "
                "than the %u that it would have; --force takes them all the same, and such launches then fail "
                "with CUDA's error",
                session ? session->program_name : "?", session ? session->client_pid : 0, needed, after[j].sm_count);
            return false;
        }
    }
    return true;
}

void flyt_session_opened(const struct flyt_cluster_allocation *allocation, struct flyt_place_libraries *libraries)
{
    const flyt_libraries_args *opened = &allocation->node->opened;

    for (u_int i = 0; i < opened->sessions.sessions_len; i++) {
        const flyt_session_libraries *session = &opened->sessions.sessions_val[i];
        for (u_int j = 0; session->allocation_id == allocation->id && j < session->libraries.libraries_len; j++)
            flyt_place_libraries_add(libraries, session->libraries.libraries_val[j].name,
                                     session->libraries.libraries_val[j].version_number);
    }
}
