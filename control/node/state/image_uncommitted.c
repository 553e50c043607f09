#include "control/node/state/image_uncommitted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/state/state.h"

/* ---- in the state file ---- */

/* A file is removed by this: it is what an image is called, and leads nowhere else. */
static int check(void *item, struct flyt_error *err)
{
    const struct flyt_node_image_uncommitted *uncommitted = item;
    const size_t digits = FLYT_CHECKPOINT_ID_TEXT_BYTES - 1;

    if (*uncommitted->folder != '/')
        return flyt_error_set(err, -EINVAL, "folder is not a path from the root");
    if (strspn(uncommitted->image, "0123456789abcdef") != digits || strcmp(uncommitted->image + digits, ".flyt") != 0)
        return flyt_error_set(err, -EINVAL, "image is not the name of an image");
    return 0;
}

static bool is_kept(const void *item)
{
    return ((const struct flyt_node_image_uncommitted *)item)->is_kept;
}

#define OF(kind, member) FLYT_##kind(struct flyt_node_image_uncommitted, member)

static const struct flyt_field fields[] = {
    {"session_id", OF(NUMBER, session_id), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"folder", OF(CHARS, folder), .rules = FLYT_NEEDED},
    {"image", OF(CHARS, image), .rules = FLYT_NEEDED},
    {0},
};
const struct flyt_item flyt_node_image_uncommitted_item = {
    .fields = fields, .bytes = sizeof(struct flyt_node_image_uncommitted), .check = check, .is_left_out = is_kept};

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
