#include "control/node/ops/disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/model/node.h"
#include "control/node/ops/ops.h"

/* Of one folder. */
struct flyt_node_disk {
    struct flyt_node_disk *next; /* in node->ops->disks */
    char folder[FLYT_NAME_BYTES_MAX + 1];
    struct flyt_tally *left;
};

static void forget(struct flyt_node_disk **link)
{
    struct flyt_node_disk *disk = *link;

    *link = disk->next;
    flyt_tally_unref(disk->left);
    free(disk);
}

/* Folders in which nothing is under way, and nothing left, are forgotten. How many threads are left in all others. */
static unsigned tidy(struct flyt_node *node)
{
    struct flyt_node_disk **link = &node->ops->disks;
    unsigned count = 0;

    while (*link) {
        if (flyt_tally_is_alone((*link)->left)) {
            forget(link);
            continue;
        }
        count += flyt_tally_count((*link)->left);
        link = &(*link)->next;
    }
    return count;
}

static struct flyt_node_disk *find(const struct flyt_node *node, const char *folder)
{
    struct flyt_node_disk *disk = node->ops->disks;

    while (disk && strcmp(disk->folder, folder) != 0)
        disk = disk->next;
    return disk;
}

static struct flyt_node_disk *add(struct flyt_node *node, const char *folder)
{
    struct flyt_node_disk *disk = calloc(1, sizeof *disk);

    if (!disk || strlen(folder) >= sizeof disk->folder || !(disk->left = flyt_tally_new())) {
        free(disk);
        return NULL;
    }
    strcpy(disk->folder, folder);
    disk->next = node->ops->disks;
    node->ops->disks = disk;
    return disk;
}

int flyt_node_disk_take(struct flyt_node *node, const char *folder, struct flyt_tally **ret_left,
                        struct flyt_error *err)
{
    unsigned all_count = tidy(node);
    struct flyt_node_disk *disk = find(node, folder);
    unsigned count = disk ? flyt_tally_count(disk->left) : 0;

    if (count >= node->ops->disk_left_max)
        return flyt_error_set(err, -EBUSY,
                              "the disk of %.200s does not answer: %u threads of the node manager wait for it. Try "
                              "again when it does, or with a folder on another one",
                              folder, count);
    if (all_count >= node->ops->disk_left_all_max)
        return flyt_error_set(err, -EBUSY,
                              "disks of checkpoint folders do not answer: %u threads of the node manager wait for "
                              "them. Try again when they do",
                              all_count);
    if (!disk && !(disk = add(node, folder)))
        return flyt_error_set(err, -ENOMEM, "the node has no memory");
    *ret_left = flyt_tally_ref(disk->left);
    return 0;
}

void flyt_node_disks_fini(struct flyt_node *node)
{
    while (node->ops->disks)
        forget(&node->ops->disks);
}
