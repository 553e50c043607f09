#include "control/node/state/killed.h"

#include <errno.h>
#include <stdlib.h>

#include "control/node/state/state.h"
#include "control/node/state/state_allocation.h"

static const char array_name[] = "killed_sessions";

bool flyt_node_killed_put(cJSON *root, const struct flyt_node_killed *first)
{
    cJSON *array = cJSON_AddArrayToObject(root, array_name);
    bool is_good = array != NULL;

    for (; first && is_good; first = first->next) {
        cJSON *item = flyt_node_state_add_object(array);
        is_good = item && flyt_node_state_put_number(item, "session_id", first->session_id);
    }
    return is_good;
}

bool flyt_node_killed_get(const cJSON *root, struct flyt_node_killed **ret_first)
{
    const cJSON *array, *item;
    struct flyt_node_killed *first = NULL;
    bool is_good = flyt_node_state_get_array(root, array_name, FLYT_NODE_KILLED_MAX, &array);

    cJSON_ArrayForEach(item, array)
    {
        struct flyt_node_killed *killed = is_good ? calloc(1, sizeof *killed) : NULL;
        is_good = killed && flyt_node_state_get_number(item, "session_id", UINT64_MAX, &killed->session_id);
        if (killed) {
            killed->next = first;
            first = killed;
        }
    }
    if (is_good)
        *ret_first = first;
    else
        flyt_node_killed_free(first);
    return is_good;
}

void flyt_node_killed_free(struct flyt_node_killed *first)
{
    while (first) {
        struct flyt_node_killed *next = first->next;
        free(first);
        first = next;
    }
}

bool flyt_node_killed_has(const struct flyt_node_state *state, uint64_t session_id)
{
    const struct flyt_node_killed *killed = state->killed;

    while (killed && killed->session_id != session_id)
        killed = killed->next;
    return killed != NULL;
}

int flyt_node_killed_add(struct flyt_node_state *state, uint64_t session_id)
{
    if (flyt_node_killed_has(state, session_id))
        return 0;
    struct flyt_node_killed *killed = malloc(sizeof *killed);
    if (!killed)
        return -ENOMEM;
    *killed = (struct flyt_node_killed){state->killed, session_id};
    state->killed = killed;
    return 0;
}

void flyt_node_killed_remove(struct flyt_node_state *state, uint64_t session_id)
{
    struct flyt_node_killed **link = &state->killed;

    while (*link && (*link)->session_id != session_id)
        link = &(*link)->next;
    if (!*link)
        return;
    struct flyt_node_killed *killed = *link;
    *link = killed->next;
    free(killed);
}
