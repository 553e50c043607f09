#include "cpu/image/flatten.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/image/file.h"
#include "cpu/image/page_index.h"
#include "cpu/image/parts.h"
#include "cpu/image/verify.h"
#include "cpu/image/writer.h"
#include "rpc/base/descriptors.h"

enum { PAGE = FLYT_CHECKPOINT_PAGE_BYTES };

struct flatten {
    struct flyt_error *err;
    struct flyt_checkpoint_writer *writer;
    struct flyt_page_index newest; /* records: of pages that are still to come not 0, of others 0 */
    uint64_t left_count;           /* pages still to come */
    flyt_checkpoint_range *allocations;
    uint64_t allocation_count;
    flyt_checkpoint_sequence sequence;
    bool has_stopped;
    flyt_checkpoint_stopped stopped;
    bool has_counts;
    flyt_checkpoint_counts counts;
    bool has_settings;
    flyt_checkpoint_settings settings;
    bool has_tallies;
    flyt_checkpoint_tallies tallies;
    bool has_memory;                    /* extents and allocations were put */
    struct flyt_checkpoint_parts parts; /* of the module image that comes */
    unsigned char *payload;             /* FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX */
};

/* An image of the chain. */
struct link {
    char *path;
    int fd;
    struct flyt_page_index index;
};

static int no_memory(const struct flatten *self)
{
    return flyt_error_set(self->err, -ENOMEM, "out of host memory");
}

static int open_link(struct flatten *self, struct link *link)
{
    link->fd = flyt_checkpoint_file_read(link->path, 0, self->err);
    if (link->fd < 0)
        return link->fd;
    return flyt_page_index_read(link->fd, link->path, &link->index, self->err);
}

static void close_link(struct link *link)
{
    flyt_page_index_fini(&link->index);
    link->fd = flyt_close(link->fd);
    free(link->path);
    link->path = NULL;
}

/* take(self, reader, record) of each record, from the first one on; pages that it does not place are passed over. */
static int for_each(struct flatten *self, const struct link *link, void *user,
                    int (*take)(struct flatten *self, struct flyt_checkpoint_reader *reader,
                                const struct flyt_checkpoint_record *record, void *user))
{
    struct flyt_checkpoint_reader *reader = NULL;
    struct flyt_checkpoint_record record;
    int status = 0;
    if (lseek(link->fd, 0, SEEK_SET) != 0)
        status = flyt_error_set(self->err, -errno, "image %.200s: %m", link->path);
    if (!status)
        status = flyt_checkpoint_reader_new(link->fd, link->path, true, &reader, self->err);
    if (!status)
        flyt_checkpoint_reader_skim(reader);
    while (!status && (status = flyt_checkpoint_next(reader, &record, self->err)) > 0)
        status = take(self, reader, &record, user);
    flyt_checkpoint_reader_free(reader);
    return status;
}

/* ---- what is to be known before anything is written ---- */

static int take_allocations(struct flatten *self, const flyt_checkpoint_allocations *told)
{
    uint64_t before = told->is_first ? 0 : self->allocation_count, count = before + told->ranges.ranges_len;
    flyt_checkpoint_range *ranges = reallocarray(self->allocations, count + 1, sizeof *ranges);
    if (!ranges)
        return no_memory(self);
    if (told->ranges.ranges_len)
        memcpy(ranges + before, told->ranges.ranges_val, told->ranges.ranges_len * sizeof *ranges);
    self->allocations = ranges;
    self->allocation_count = count;
    return 0;
}

static int look_ahead(struct flatten *self, struct flyt_checkpoint_reader *reader,
                      const struct flyt_checkpoint_record *record, void *user)
{
    if (record->type == FLYT_CHECKPOINT_ALLOCATIONS)
        return take_allocations(self, &record->body->allocations);
    if (record->type == FLYT_CHECKPOINT_SEQUENCE)
        self->sequence = record->body->sequence;
    if (record->type == FLYT_CHECKPOINT_STOPPED) {
        self->has_stopped = true;
        self->stopped = record->body->stopped;
    }
    if (record->type == FLYT_CHECKPOINT_COUNTS) {
        self->has_counts = true;
        self->counts = record->body->counts;
    }
    if (record->type == FLYT_CHECKPOINT_SETTINGS) {
        self->has_settings = true;
        self->settings = record->body->settings;
    }
    if (record->type == FLYT_CHECKPOINT_TALLIES) {
        self->has_tallies = true;
        self->tallies = record->body->tallies;
    }
    return 0;
}

/* ---- everything but pages ---- */

static int begin_image(struct flatten *self, const flyt_checkpoint_head *told, int fd)
{
    flyt_checkpoint_head head = *told;
    memset(head.parent_id, 0, sizeof head.parent_id);
    head.page_hash = 0;
    return flyt_checkpoint_writer_new(fd, "that goes on", &head, FLYT_CHECKPOINT_PACK_NOT, &self->writer, self->err);
}

/* In the first round, as they are at the end. */
static int put_memory(struct flatten *self)
{
    int status = 0;
    self->has_memory = true;
    for (uint32_t i = 0; i < self->newest.extent_count && !status; i++)
        status = flyt_checkpoint_put_extent(self->writer, self->newest.extents[i].address,
                                            self->newest.extents[i].page_count * PAGE, self->err);
    return status ? status
                  : flyt_checkpoint_put_allocations(self->writer, self->allocations, self->allocation_count, self->err);
}

static int put_module_image(struct flatten *self, struct flyt_checkpoint_reader *reader,
                            const struct flyt_checkpoint_record *record)
{
    unsigned char sha256[FLYT_CHECKPOINT_SHA256_BYTES];
    int status = flyt_checkpoint_parts_take(&self->parts, reader, record, self->err);
    return status > 0 ? flyt_checkpoint_put_module_image(self->writer, self->parts.image, self->parts.image_bytes,
                                                         sha256, self->err)
                      : status;
}

static int put_global(struct flatten *self, struct flyt_checkpoint_reader *reader,
                      const struct flyt_checkpoint_record *record)
{
    int status = record->place_bytes ? flyt_checkpoint_place(reader, self->payload, self->err) : 0;
    return status ? status
                  : flyt_checkpoint_put_global(self->writer, &record->body->global, self->payload, record->place_bytes,
                                               self->err);
}

static int put_record(struct flatten *self, struct flyt_checkpoint_reader *reader,
                      const struct flyt_checkpoint_record *record, void *user)
{
    const union flyt_checkpoint_body *body = record->body;
    const int *fd = user;
    int status;
    switch (record->type) {
    case FLYT_CHECKPOINT_HEAD:
        return begin_image(self, &body->head, *fd);
    case FLYT_CHECKPOINT_SLOT:
        return flyt_checkpoint_put_slot(self->writer, body->slot.slot, body->slot.memory_limit_bytes, self->err);
    case FLYT_CHECKPOINT_ROUND:
        status = flyt_checkpoint_put_round(self->writer, self->err);
        return status || self->has_memory ? status : put_memory(self);
    case FLYT_CHECKPOINT_MODULE_IMAGE:
        return put_module_image(self, reader, record);
    case FLYT_CHECKPOINT_OBJECT:
        return flyt_checkpoint_put_object(self->writer, &body->object, self->err);
    case FLYT_CHECKPOINT_OBJECT_GONE:
        return flyt_checkpoint_put_object_gone(self->writer, body->object_gone.number, self->err);
    case FLYT_CHECKPOINT_GLOBAL:
        return put_global(self, reader, record);
    default:
        return 0; /* put as it is at the end, or not needed */
    }
}

/* ---- pages ---- */

/* Of the page at the address, where it is to be noted that it came; NULL: it is not wanted, or not this record's. */
static uint32_t *wanted(struct flatten *self, const struct link *link, uint64_t address, uint32_t record)
{
    const struct flyt_indexed_extent *here = flyt_page_index_find(&link->index, address);
    struct flyt_indexed_extent *there = flyt_page_index_find(&self->newest, address);
    if (!here || !there || here->records[(address - here->address) / PAGE] != record)
        return NULL;
    uint32_t *mark = &there->records[(address - there->address) / PAGE];
    return *mark ? mark : NULL;
}

static int put_run(struct flatten *self, const flyt_checkpoint_pages *pages, uint32_t first, uint32_t count)
{
    uint64_t address = pages->address + (uint64_t)first * PAGE;
    self->left_count -= count;
    if (pages->encoding == FLYT_CHECKPOINT_ZERO)
        return flyt_checkpoint_put_run(self->writer, address, count, FLYT_CHECKPOINT_ZERO, NULL, self->err);
    return flyt_checkpoint_put_pages(self->writer, address, count, self->payload + (size_t)first * PAGE, NULL,
                                     self->err);
}

static int put_pages(struct flatten *self, struct flyt_checkpoint_reader *reader,
                     const struct flyt_checkpoint_record *record, void *user)
{
    const struct link *link = user;
    const flyt_checkpoint_pages *pages = &record->body->pages;
    uint32_t number = (uint32_t)flyt_checkpoint_reader_totals(reader)->record_count; /* and 1: it is counted already */
    bool is_placed = false;
    int status = 0;
    if (record->type != FLYT_CHECKPOINT_PAGES || pages->encoding == FLYT_CHECKPOINT_PARENT)
        return 0;
    for (uint32_t first = 0, end; first < pages->page_count && !status; first = end) {
        uint32_t *mark;
        end = first;
        while (end < pages->page_count && (mark = wanted(self, link, pages->address + (uint64_t)end * PAGE, number))) {
            *mark = 0;
            end++;
        }
        if (end == first) {
            end++;
            continue;
        }
        if (!is_placed && pages->encoding != FLYT_CHECKPOINT_ZERO)
            status = flyt_checkpoint_place(reader, self->payload, self->err);
        is_placed = true;
        if (!status)
            status = put_run(self, pages, first, end - first);
    }
    return status;
}

/* All pages are still to come. */
static void want_all(struct flatten *self)
{
    for (uint32_t i = 0; i < self->newest.extent_count; i++)
        for (uint64_t page = 0; page < self->newest.extents[i].page_count; page++)
            self->newest.extents[i].records[page] = 1;
    self->left_count = self->newest.page_count;
}

/* Whether what the older image has of the page can be what the newer one left to it. */
static bool is_left_to(const struct flatten *self, const struct flyt_indexed_extent *extent, uint64_t page,
                       const struct link *link)
{
    enum { HASH_BYTES = FLYT_CHECKPOINT_PAGE_HASH_BYTES };
    const struct flyt_page_index *older = &link->index;
    const uint64_t address = extent->address + page * PAGE;
    const struct flyt_indexed_extent *there = flyt_page_index_find(older, address);
    const uint64_t other = (address - there->address) / PAGE;
    bool have_one_key = self->newest.has_hash_key && older->has_hash_key &&
                        self->newest.page_hash == older->page_hash &&
                        !memcmp(self->newest.hash_key, older->hash_key, sizeof older->hash_key);
    bool have_hashes = extent->flags[page] & there->flags[other] & FLYT_PAGE_HAS_HASH;
    return !have_one_key || !have_hashes ||
           !memcmp(extent->hashes + page * HASH_BYTES, there->hashes + other * HASH_BYTES, HASH_BYTES);
}

/* Each page that is still to come is one of the image's, and none that came there later. */
static int check_inherited(struct flatten *self, const struct link *link)
{
    for (uint32_t i = 0; i < self->newest.extent_count; i++) {
        const struct flyt_indexed_extent *extent = &self->newest.extents[i];
        for (uint64_t page = 0; page < extent->page_count; page++) {
            uint64_t address = extent->address + page * PAGE;
            if (extent->records[page] && !flyt_page_index_find(&link->index, address))
                return flyt_error_set(self->err, -EBADMSG,
                                      "image %.200s: damaged: it has no page at %#" PRIx64 ", which is left to it",
                                      link->path, address);
            if (extent->records[page] && !is_left_to(self, extent, page, link))
                return flyt_error_set(self->err, -EBADMSG,
                                      "image %.200s: damaged: it has another page at %#" PRIx64
                                      " than the one that was left to it",
                                      link->path, address);
        }
    }
    return 0;
}

/* Goes to the parent. */
static int step(struct flatten *self, struct link *link)
{
    unsigned char id[FLYT_CHECKPOINT_ID_BYTES];
    memcpy(id, link->index.parent_id, sizeof id);
    if (flyt_checkpoint_id_is_none(id))
        return flyt_error_set(self->err, -EBADMSG, "image %.200s: damaged: of %" PRIu64 " pages nobody has contents",
                              link->path, self->left_count);
    struct link parent = {.path = flyt_checkpoint_path_beside(link->path, id), .fd = -1};
    int status = parent.path ? open_link(self, &parent) : no_memory(self);
    if (!status && memcmp(parent.index.id, id, sizeof id) != 0)
        status = flyt_error_set(self->err, -EBADMSG, "image %.200s: damaged: it has another id than its name says",
                                parent.path);
    if (!status)
        status = check_inherited(self, &parent);
    close_link(link);
    *link = parent;
    return status;
}

static int flatten(struct flatten *self, struct link *link, int fd)
{
    int status = open_link(self, link);
    if (!status) /* read twice: what is noted in one of them is not for the other */
        status = flyt_page_index_read(link->fd, link->path, &self->newest, self->err);
    if (!status)
        status = for_each(self, link, NULL, look_ahead);
    if (!status)
        status = for_each(self, link, &fd, put_record);
    if (!status)
        want_all(self);
    if (!status)
        status = for_each(self, link, link, put_pages);
    for (unsigned length = 1; self->left_count && !status; length++) {
        status = length == FLYT_CHECKPOINT_CHAIN_MAX
                     ? flyt_error_set(self->err, -ELOOP, "image %.200s: it builds on more than %d", link->path, length)
                     : step(self, link);
        if (!status)
            status = for_each(self, link, link, put_pages);
    }
    if (!status)
        status = flyt_checkpoint_put_sequence(self->writer, &self->sequence, self->err);
    if (!status && self->has_stopped)
        status = flyt_checkpoint_put_stopped(self->writer, self->stopped.error_count, self->err);
    if (!status && self->has_counts)
        status = flyt_checkpoint_put_counts(self->writer, &self->counts, self->err);
    if (!status && self->has_settings)
        status = flyt_checkpoint_put_settings(self->writer, &self->settings, self->err);
    if (!status && self->has_tallies)
        status = flyt_checkpoint_put_tallies(self->writer, &self->tallies, self->err);
    return status ? status : flyt_checkpoint_put_end(self->writer, self->err);
}

int flyt_checkpoint_flatten(const char *path, int fd, struct flyt_error *err)
{
    struct flatten self = {.err = err, .payload = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX)};
    struct link link = {.path = strdup(path), .fd = -1};
    int status = self.payload && link.path ? flatten(&self, &link, fd) : no_memory(&self);
    close_link(&link);
    flyt_checkpoint_writer_free(self.writer);
    flyt_page_index_fini(&self.newest);
    free(self.allocations);
    flyt_checkpoint_parts_fini(&self.parts);
    free(self.payload);
    return status;
}
