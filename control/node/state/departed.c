#include "control/node/state/departed.h"

#include <errno.h>
#include <stdlib.h>

#include "control/node/state/state.h"

static int check(void *item, struct flyt_error *err)
{
    const struct flyt_node_departed *departed = item;

    return departed->migration_id ? 0 : flyt_error_set(err, -EINVAL, "migration_id is 0");
}

static const struct flyt_field fields[] = {
    {"allocation_id", FLYT_NUMBER(struct flyt_node_departed, allocation_id), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"migration_id", FLYT_NUMBER(struct flyt_node_departed, migration_id), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {0},
};
const struct flyt_item flyt_node_departed_item = {
    .fields = fields, .bytes = sizeof(struct flyt_node_departed), .check = check};

uint64_t flyt_node_departed_find(const struct flyt_node_state *state, uint64_t allocation_id)
{
    const struct flyt_node_departed *left = state->left;

    while (left && left->allocation_id != allocation_id)
        left = left->next;
    return left ? left->migration_id : 0;
}

int flyt_node_departed_add(struct flyt_node_state *state, uint64_t allocation_id, uint64_t migration_id)
{
    struct flyt_node_departed *left = malloc(sizeof *left);

    if (!left)
        return -ENOMEM;
    *left = (struct flyt_node_departed){state->left, allocation_id, migration_id};
    state->left = left;
    return 0;
}

void flyt_node_departed_remove(struct flyt_node_state *state, uint64_t allocation_id)
{
    struct flyt_node_departed **link = &state->left;

    while (*link && (*link)->allocation_id != allocation_id)
        link = &(*link)->next;
    struct flyt_node_departed *left = *link;
    if (left)
        *link = left->next;
    free(left);
}
