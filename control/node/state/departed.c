#include "control/node/state/departed.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "control/node/state/state.h"
#include "control/node/state/state_allocation.h"

static const char array_name[] = "left";

bool flyt_node_departed_put(cJSON *root, const struct flyt_node_departed *first)
{
    cJSON *array = cJSON_AddArrayToObject(root, array_name);
    bool is_good = array != NULL;

    for (; first && is_good; first = first->next) {
        cJSON *item = flyt_node_state_add_object(array);
        is_good = item && flyt_node_state_put_number(item, "allocation_id", first->allocation_id) &&
                  flyt_node_state_put_number(item, "migration_id", first->migration_id);
    }
    return is_good;
}

bool flyt_node_departed_get(const cJSON *root, struct flyt_node_departed **ret_first)
{
    const cJSON *array, *item;
    struct flyt_node_departed *first = NULL;
    bool is_good = flyt_node_state_get_array(root, array_name, INT_MAX, &array);

    cJSON_ArrayForEach(item, array)
    {
        struct flyt_node_departed *left = is_good ? calloc(1, sizeof *left) : NULL;
        is_good = left && flyt_node_state_get_number(item, "allocation_id", UINT64_MAX, &left->allocation_id) &&
                  flyt_node_state_get_number(item, "migration_id", UINT64_MAX, &left->migration_id) &&
                  left->migration_id;
        if (left) {
            left->next = first;
            first = left;
        }
    }
    if (is_good)
        *ret_first = first;
    else
        flyt_node_departed_free(first);
    return is_good;
}

void flyt_node_departed_free(struct flyt_node_departed *first)
{
    while (first) {
        struct flyt_node_departed *next = first->next;
        free(first);
        first = next;
    }
}

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
