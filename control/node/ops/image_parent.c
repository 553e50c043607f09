#include "control/node/ops/image_parent.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "cpu/image/file.h"
#include "cpu/image/folder.h"
#include "rpc/base/log.h"

/* Images that it builds on, and itself. */
static unsigned chain_length(const struct flyt_checkpoint_entry *entry)
{
    unsigned length = 0;

    for (; entry && length <= FLYT_NODE_IMAGE_PARENT_MAX; entry = entry->parent)
        length++;
    return length;
}

/* The session's last one, good or not; NULL: there is none. */
static const struct flyt_checkpoint_entry *find_last(const struct flyt_checkpoint_folder *folder, uint64_t session_id)
{
    for (uint32_t i = folder->entry_count; i-- > 0;)
        if (folder->entries[i].session_id == session_id)
            return &folder->entries[i];
    return NULL;
}

static int open_entry(const char *folder, const struct flyt_checkpoint_entry *entry)
{
    char path[PATH_MAX];
    struct flyt_error err;

    if (!entry->is_usable) {
        flyt_warn("session %016" PRIx64 ": everything is written, for its earlier image cannot be built on: %s",
                  entry->session_id, entry->err.text);
        return -1;
    }
    if (chain_length(entry) >= FLYT_NODE_IMAGE_PARENT_MAX)
        return -1;
    snprintf(path, sizeof path, "%s/%s", folder, entry->name);
    int fd = flyt_checkpoint_file_read(path, O_NOFOLLOW, &err);
    if (fd < 0)
        flyt_warn("session %016" PRIx64 ": everything is written, for its earlier image cannot be built on: %s",
                  entry->session_id, err.text);
    return fd < 0 ? -1 : fd;
}

int flyt_node_image_parent_open(const char *path, uint64_t session_id)
{
    struct flyt_checkpoint_folder folder;
    struct flyt_error err;

    if (flyt_checkpoint_folder_read(path, &folder, &err)) {
        flyt_warn("session %016" PRIx64 ": everything is written: %s", session_id, err.text);
        return -1;
    }
    const struct flyt_checkpoint_entry *last = find_last(&folder, session_id);
    int fd = last ? open_entry(path, last) : -1;
    flyt_checkpoint_folder_fini(&folder);
    return fd;
}
