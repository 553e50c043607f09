/*
 * An image that builds on an earlier one (writing.h). A page is the earlier one's only in an extent that is exactly one
 * of its extents, however often that was given back meanwhile: its hash tells whether it is as it was.
 */
#include <errno.h>
#include <string.h>

#include "cpu/server/move/out/copier.h"
#include "cpu/server/move/out/writing.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

enum { HASH_BYTES = FLYT_CHECKPOINT_PAGE_HASH_BYTES };

_Static_assert(sizeof(struct flyt_page_hash) == HASH_BYTES, "hashes are taken over as they are");
_Static_assert(sizeof(struct flyt_page_key) == FLYT_CHECKPOINT_HASH_KEY_BYTES, "so is their key");

/* Why the earlier image cannot be built on; NULL: it can. */
static const char *why_not(const struct flyt_writing *writing, const struct flyt_page_index *index)
{
    if (flyt_fault_point("writing.parent") == FLYT_FAULT_ERROR)
        return "a test wants it so";
    if (index->session_id != writing->head.head.session_id)
        return "it is another session's";
    if (!index->has_hash_key || index->page_hash != FLYT_PAGE_HASH_VERSION)
        return "it has no hashes that this build can use";
    return NULL;
}

void flyt_writing_read_parent(struct flyt_writing *writing)
{
    struct flyt_page_index index = {.page_count = 0};
    struct flyt_error err;
    int status = flyt_page_index_read(writing->parent_fd, "that it is to build on", &index, &err);
    const char *why = status ? err.text : why_not(writing, &index);
    if (why) {
        flyt_warn("session %s: everything is written, for its earlier image cannot be built on: %s",
                  writing->session->label, why);
        flyt_page_index_fini(&index);
        return;
    }
    writing->parent = index;
    memcpy(writing->head.head.parent_id, index.id, sizeof index.id);
    memcpy(writing->hash_key.bytes, index.hash_key, sizeof index.hash_key);
}

void flyt_writing_inherit(const struct flyt_writing *writing, struct flyt_copier *copier)
{
    struct flyt_page_range range;
    uint64_t cursor = 0;
    while (flyt_page_table_look(&copier->table, &cursor, UINT64_MAX, 1, &range)) {
        const struct flyt_indexed_extent *extent =
            flyt_page_index_match(&writing->parent, range.address, range.pages_count * FLYT_PAGE_BYTES);
        for (uint64_t page = 0; extent && page < range.pages_count; page++) {
            const uint64_t address = range.address + page * FLYT_PAGE_BYTES;
            struct flyt_page_hash hash;
            memcpy(&hash, extent->hashes + page * HASH_BYTES, HASH_BYTES);
            if (extent->flags[page] & FLYT_PAGE_IS_ZERO)
                flyt_page_table_inherit(&copier->table, address, NULL);
            else if (extent->flags[page] & FLYT_PAGE_HAS_HASH)
                flyt_page_table_inherit(&copier->table, address, &hash);
        }
    }
}

/* Pages of which nothing is known come later. */
static int put_extent(struct flyt_writing *writing, const struct flyt_indexed_extent *extent, struct flyt_error *err)
{
    int status = 0;
    for (uint64_t first = 0, end; first < extent->page_count && !status; first = end) {
        const unsigned char flags = extent->flags[first];
        const uint64_t address = extent->address + first * FLYT_PAGE_BYTES;
        for (end = first + 1; end < extent->page_count && extent->flags[end] == flags; end++)
            continue;
        if (flags & FLYT_PAGE_IS_ZERO) /* takes as little room, and needs no earlier image */
            status = flyt_checkpoint_put_run(writing->writer, address, end - first, FLYT_CHECKPOINT_ZERO, NULL, err);
        else if (flags & FLYT_PAGE_HAS_HASH)
            status = flyt_checkpoint_put_run(writing->writer, address, end - first, FLYT_CHECKPOINT_PARENT,
                                             extent->hashes + first * HASH_BYTES, err);
    }
    return status;
}

int flyt_writing_put_inherited(struct flyt_writing *writing, const struct flyt_writing_round *round,
                               struct flyt_error *err)
{
    int status = 0;
    for (uint32_t i = 0; i < round->extent_count && !status; i++) {
        const struct flyt_indexed_extent *extent =
            flyt_page_index_match(&writing->parent, round->extents[i].address, round->extents[i].bytes);
        if (extent)
            status = put_extent(writing, extent, err);
    }
    return status;
}
