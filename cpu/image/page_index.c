#include "cpu/image/page_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HASH_BYTES = FLYT_CHECKPOINT_PAGE_HASH_BYTES };

static void free_extent(struct flyt_indexed_extent *extent)
{
    free(extent->records);
    free(extent->flags);
    free(extent->hashes);
}

void flyt_page_index_fini(struct flyt_page_index *index)
{
    for (uint32_t i = 0; i < index->extent_count; i++)
        free_extent(&index->extents[i]);
    free(index->extents);
    explicit_bzero(index, sizeof *index);
}

/* The first extent that ends behind the address, or extent_count. */
static uint32_t find_index(const struct flyt_page_index *index, uint64_t address)
{
    uint32_t first = 0, last = index->extent_count;
    while (first < last) {
        uint32_t middle = first + (last - first) / 2;
        const struct flyt_indexed_extent *extent = &index->extents[middle];
        if (extent->address + extent->page_count * FLYT_CHECKPOINT_PAGE_BYTES > address)
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}

struct flyt_indexed_extent *flyt_page_index_find(const struct flyt_page_index *index, uint64_t address)
{
    uint32_t i = find_index(index, address);
    return i < index->extent_count && index->extents[i].address <= address ? &index->extents[i] : NULL;
}

const struct flyt_indexed_extent *flyt_page_index_match(const struct flyt_page_index *index, uint64_t address,
                                                        uint64_t bytes)
{
    const struct flyt_indexed_extent *extent = flyt_page_index_find(index, address);
    bool is_same =
        extent && extent->address == address && extent->page_count * (uint64_t)FLYT_CHECKPOINT_PAGE_BYTES == bytes;
    return is_same ? extent : NULL;
}

/* The reader has checked that it overlaps none. 0, -EFBIG or -ENOMEM. */
static int add_extent(struct flyt_page_index *index, const flyt_checkpoint_extent *told)
{
    struct flyt_indexed_extent extent = {.address = told->address,
                                         .page_count = told->bytes / FLYT_CHECKPOINT_PAGE_BYTES};
    if (extent.page_count > FLYT_PAGE_INDEX_PAGES_MAX - index->page_count)
        return -EFBIG;
    if (index->extent_count == index->extent_capacity) {
        uint32_t capacity = index->extent_capacity ? 2 * index->extent_capacity : 64;
        struct flyt_indexed_extent *extents = reallocarray(index->extents, capacity, sizeof *extents);
        if (!extents)
            return -ENOMEM;
        index->extents = extents;
        index->extent_capacity = capacity;
    }
    extent.records = calloc(extent.page_count, sizeof *extent.records);
    extent.flags = calloc(extent.page_count, 1);
    extent.hashes = calloc(extent.page_count, HASH_BYTES);
    if (!extent.records || !extent.flags || !extent.hashes) {
        free_extent(&extent);
        return -ENOMEM;
    }
    uint32_t i = find_index(index, extent.address);
    memmove(index->extents + i + 1, index->extents + i, (index->extent_count - i) * sizeof extent);
    index->extents[i] = extent;
    index->extent_count++;
    index->page_count += extent.page_count;
    return 0;
}

static void remove_extent(struct flyt_page_index *index, uint64_t address)
{
    struct flyt_indexed_extent *extent = flyt_page_index_find(index, address);
    if (!extent) /* the reader has checked that there is one */
        return;
    index->page_count -= extent->page_count;
    free_extent(extent);
    index->extent_count--;
    memmove(extent, extent + 1, (size_t)(index->extents + index->extent_count - extent) * sizeof *extent);
}

static void set_pages(struct flyt_page_index *index, const flyt_checkpoint_pages *pages, uint32_t record)
{
    const unsigned char *hashes = pages->hashes.hashes_len ? (const unsigned char *)pages->hashes.hashes_val : NULL;
    unsigned char flags = pages->encoding == FLYT_CHECKPOINT_ZERO ? FLYT_PAGE_IS_ZERO : 0;
    struct flyt_indexed_extent *extent = NULL;
    if (hashes)
        flags |= FLYT_PAGE_HAS_HASH;
    for (uint32_t n = 0; n < pages->page_count; n++) {
        uint64_t address = pages->address + (uint64_t)n * FLYT_CHECKPOINT_PAGE_BYTES;
        if (!extent || address - extent->address >= extent->page_count * FLYT_CHECKPOINT_PAGE_BYTES)
            extent = flyt_page_index_find(index, address);
        if (!extent) /* the reader has checked that there is one */
            return;
        uint64_t page = (address - extent->address) / FLYT_CHECKPOINT_PAGE_BYTES;
        extent->records[page] = pages->encoding == FLYT_CHECKPOINT_PARENT ? 0 : record;
        extent->flags[page] = flags;
        if (hashes)
            memcpy(extent->hashes + page * HASH_BYTES, hashes + (size_t)n * HASH_BYTES, HASH_BYTES);
    }
}

static void take_head(struct flyt_page_index *index, const flyt_checkpoint_head *head)
{
    memcpy(index->id, head->id, sizeof index->id);
    memcpy(index->parent_id, head->parent_id, sizeof index->parent_id);
    index->session_id = head->session_id;
    index->page_hash = head->page_hash;
}

/* number: of the record, from 0. */
static int take_record(struct flyt_page_index *index, const struct flyt_checkpoint_record *record, uint64_t number)
{
    if (number >= UINT32_MAX)
        return -EFBIG;
    if (record->type == FLYT_CHECKPOINT_HEAD)
        take_head(index, &record->body->head);
    if (record->type == FLYT_CHECKPOINT_HASH_KEY) {
        index->has_hash_key = true;
        memcpy(index->hash_key, record->body->hash_key.key, sizeof index->hash_key);
    }
    if (record->type == FLYT_CHECKPOINT_EXTENT)
        return add_extent(index, &record->body->extent);
    if (record->type == FLYT_CHECKPOINT_EXTENT_GONE)
        remove_extent(index, record->body->extent_gone.address);
    if (record->type == FLYT_CHECKPOINT_PAGES)
        set_pages(index, &record->body->pages, (uint32_t)number + 1);
    return 0;
}

int flyt_page_index_read(int fd, const char *name, struct flyt_page_index *ret_index, struct flyt_error *err)
{
    struct flyt_page_index index = {.page_count = 0};
    struct flyt_checkpoint_reader *reader = NULL;
    struct flyt_checkpoint_record record;
    int status = lseek(fd, 0, SEEK_SET) == 0 ? 0 : flyt_error_set(err, -errno, "image %.200s: %m", name);
    if (!status)
        status = flyt_checkpoint_reader_new(fd, name, true, &reader, err);
    if (!status)
        flyt_checkpoint_reader_skim(reader);
    while (!status && (status = flyt_checkpoint_next(reader, &record, err)) > 0) {
        status = take_record(&index, &record, flyt_checkpoint_reader_totals(reader)->record_count - 1);
        if (status)
            flyt_error_set(err, status, "image %.200s: %s", name,
                           status == -EFBIG ? "it has too many pages" : "no memory");
    }
    flyt_checkpoint_reader_free(reader);
    if (status)
        flyt_page_index_fini(&index);
    else
        *ret_index = index;
    return status;
}
