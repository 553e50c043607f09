#include "control/node/unkept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/state.h"
#include "control/node/state_allocation.h"

/* ---- in the state file ---- */

static bool put_one(cJSON *array, const struct flyt_node_unkept *unkept)
{
    cJSON *object = flyt_node_state_add_object(array);

    return object && flyt_node_state_put_number(object, "session_id", unkept->session_id) &&
           cJSON_AddStringToObject(object, "folder", unkept->folder) &&
           cJSON_AddStringToObject(object, "image", unkept->image);
}

bool flyt_node_unkept_put(cJSON *root, const struct flyt_node_unkept *first)
{
    cJSON *array = cJSON_AddArrayToObject(root, "unkept_images");
    bool is_good = array != NULL;

    for (; first && is_good; first = first->next)
        is_good = first->is_kept || put_one(array, first);
    return is_good;
}

/* A file is removed by this: it is what an image is called, and leads nowhere else. */
static bool get_one(const cJSON *object, struct flyt_node_unkept *unkept)
{
    const char *folder = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "folder"));
    const char *image = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "image"));
    const size_t digits = FLYT_CHECKPOINT_ID_TEXT_BYTES - 1;

    if (!flyt_node_state_get_number(object, "session_id", UINT64_MAX, &unkept->session_id) || !folder ||
        *folder != '/' || strlen(folder) >= sizeof unkept->folder || !image ||
        strspn(image, "0123456789abcdef") != digits || strcmp(image + digits, ".flyt") != 0)
        return false;
    strcpy(unkept->folder, folder);
    strcpy(unkept->image, image);
    return true;
}

bool flyt_node_unkept_get(const cJSON *root, struct flyt_node_unkept **ret_first)
{
    const cJSON *array, *item;
    struct flyt_node_unkept *first = NULL;
    bool is_good = flyt_node_state_get_array(root, "unkept_images", FLYT_NODE_UNKEPT_MAX, &array);

    cJSON_ArrayForEach(item, array)
    {
        struct flyt_node_unkept *unkept = is_good ? calloc(1, sizeof *unkept) : NULL;
        is_good = unkept && get_one(item, unkept);
        if (unkept) {
            unkept->next = first;
            first = unkept;
        }
    }
    if (is_good)
        *ret_first = first;
    else
        flyt_node_unkept_free(first);
    return is_good;
}

void flyt_node_unkept_free(struct flyt_node_unkept *first)
{
    struct flyt_node_unkept *unkept;

    while ((unkept = first)) {
        first = unkept->next;
        free(unkept);
    }
}

/* ---- of a node ---- */

struct flyt_node_unkept *flyt_node_unkept_add(struct flyt_node_state *state, uint64_t session_id, const char *folder,
                                              const char *image)
{
    unsigned count = 0;

    for (const struct flyt_node_unkept *other = state->unkept; other; other = other->next)
        count++;
    struct flyt_node_unkept *unkept = count < FLYT_NODE_UNKEPT_MAX ? calloc(1, sizeof *unkept) : NULL;
    if (!unkept)
        return NULL;
    unkept->session_id = session_id;
    snprintf(unkept->folder, sizeof unkept->folder, "%s", folder);
    snprintf(unkept->image, sizeof unkept->image, "%s", image);
    unkept->next = state->unkept;
    state->unkept = unkept;
    return unkept;
}

void flyt_node_unkept_remove(struct flyt_node_state *state, struct flyt_node_unkept *unkept)
{
    struct flyt_node_unkept **link = &state->unkept;

    while (*link != unkept)
        link = &(*link)->next;
    *link = unkept->next;
    free(unkept);
}
