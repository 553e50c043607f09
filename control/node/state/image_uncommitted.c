#include "control/node/state/image_uncommitted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/state/state.h"
#include "control/node/state/state_allocation.h"

/* ---- in the state file ---- */

static bool put_one(cJSON *array, const struct flyt_node_image_uncommitted *uncommitted)
{
    cJSON *object = flyt_node_state_add_object(array);

    return object && flyt_node_state_put_number(object, "session_id", uncommitted->session_id) &&
           cJSON_AddStringToObject(object, "folder", uncommitted->folder) &&
           cJSON_AddStringToObject(object, "image", uncommitted->image);
}

bool flyt_node_image_uncommitted_put(cJSON *root, const struct flyt_node_image_uncommitted *first)
{
    cJSON *array = cJSON_AddArrayToObject(root, "unkept_images");
    bool is_good = array != NULL;

    for (; first && is_good; first = first->next)
        is_good = first->is_kept || put_one(array, first);
    return is_good;
}

/* A file is removed by this: it is what an image is called, and leads nowhere else. */
static bool get_one(const cJSON *object, struct flyt_node_image_uncommitted *uncommitted)
{
    const char *folder = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "folder"));
    const char *image = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "image"));
    const size_t digits = FLYT_CHECKPOINT_ID_TEXT_BYTES - 1;

    if (!flyt_node_state_get_number(object, "session_id", UINT64_MAX, &uncommitted->session_id) || !folder ||
        *folder != '/' || strlen(folder) >= sizeof uncommitted->folder || !image ||
        strspn(image, "0123456789abcdef") != digits || strcmp(image + digits, ".flyt") != 0)
        return false;
    strcpy(uncommitted->folder, folder);
    strcpy(uncommitted->image, image);
    return true;
}

bool flyt_node_image_uncommitted_get(const cJSON *root, struct flyt_node_image_uncommitted **ret_first)
{
    const cJSON *array, *item;
    struct flyt_node_image_uncommitted *first = NULL;
    bool is_good = flyt_node_state_get_array(root, "unkept_images", FLYT_NODE_IMAGE_UNCOMMITTED_MAX, &array);

    cJSON_ArrayForEach(item, array)
    {
        struct flyt_node_image_uncommitted *uncommitted = is_good ? calloc(1, sizeof *uncommitted) : NULL;
        is_good = uncommitted && get_one(item, uncommitted);
        if (uncommitted) {
            uncommitted->next = first;
            first = uncommitted;
        }
    }
    if (is_good)
        *ret_first = first;
    else
        flyt_node_image_uncommitted_free(first);
    return is_good;
}

void flyt_node_image_uncommitted_free(struct flyt_node_image_uncommitted *first)
{
    struct flyt_node_image_uncommitted *uncommitted;

    while ((uncommitted = first)) {
        first = uncommitted->next;
        free(uncommitted);
    }
}

/* ---- of a node ---- */

struct flyt_node_image_uncommitted *flyt_node_image_uncommitted_add(struct flyt_node_state *state, uint64_t session_id,
                                                                    const char *folder, const char *image)
{
    unsigned count = 0;

    for (const struct flyt_node_image_uncommitted *other = state->uncommitted; other; other = other->next)
        count++;
    struct flyt_node_image_uncommitted *uncommitted =
        count < FLYT_NODE_IMAGE_UNCOMMITTED_MAX ? calloc(1, sizeof *uncommitted) : NULL;
    if (!uncommitted)
        return NULL;
    uncommitted->session_id = session_id;
    snprintf(uncommitted->folder, sizeof uncommitted->folder, "%s", folder);
    snprintf(uncommitted->image, sizeof uncommitted->image, "%s", image);
    uncommitted->next = state->uncommitted;
    state->uncommitted = uncommitted;
    return uncommitted;
}

void flyt_node_image_uncommitted_remove(struct flyt_node_state *state, struct flyt_node_image_uncommitted *uncommitted)
{
    struct flyt_node_image_uncommitted **link = &state->uncommitted;

    while (*link != uncommitted)
        link = &(*link)->next;
    *link = uncommitted->next;
    free(uncommitted);
}
