#include "control/node/state/killed.h"

#include <errno.h>
#include <stdlib.h>

#include "control/node/state/state.h"

static const struct flyt_field fields[] = {
    {"session_id", FLYT_NUMBER(struct flyt_node_killed, session_id), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {0},
};
const struct flyt_item flyt_node_killed_item = {.fields = fields, .bytes = sizeof(struct flyt_node_killed)};

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
