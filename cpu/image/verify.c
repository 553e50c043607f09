#include "cpu/image/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/image/contents.h"
#include "cpu/image/file.h"
#include "rpc/base/descriptors.h"

/* A file that is being looked at, with the pages it has. */
struct opened {
    int fd;
    struct flyt_checkpoint_reader *reader;
    flyt_checkpoint_head head; /* without its texts */
};

static int copy_head(flyt_checkpoint_head *copy, const flyt_checkpoint_head *head)
{
    *copy = *head;
    copy->build = strdup(head->build);
    copy->program_name = strdup(head->program_name);
    copy->vm = strdup(head->vm);
    copy->gpu_type = strdup(head->gpu_type);
    return copy->build && copy->program_name && copy->vm && copy->gpu_type ? 0 : -ENOMEM;
}

void flyt_checkpoint_summary_fini(struct flyt_checkpoint_summary *summary)
{
    free(summary->parent_ids);
    free(summary->head.build);
    free(summary->head.program_name);
    free(summary->head.vm);
    free(summary->head.gpu_type);
    *summary = (struct flyt_checkpoint_summary){.has_head = false};
}

static void closed(struct opened *opened)
{
    opened->reader = flyt_checkpoint_reader_free(opened->reader);
    opened->fd = flyt_close(opened->fd);
}

/* From the first record to the last. contents: checks those of pages; NULL: the reader does. */
static int read_records(const char *path, struct opened *opened, struct flyt_contents *contents,
                        struct flyt_checkpoint_summary *summary, struct flyt_error *err)
{
    struct flyt_checkpoint_record record;
    int status = flyt_checkpoint_reader_new(opened->fd, path, true, &opened->reader, err);

    if (!status && contents)
        flyt_checkpoint_reader_skim(opened->reader);
    while (!status && (status = flyt_checkpoint_next(opened->reader, &record, err)) > 0) {
        status = 0;
        if (contents)
            flyt_contents_take(contents, &record);
        if (record.type != FLYT_CHECKPOINT_HEAD)
            continue;
        opened->head = record.body->head;
        if (summary) {
            summary->has_head = true;
            if (copy_head(&summary->head, &record.body->head))
                status = flyt_error_set(err, -ENOMEM, "image %.200s: no memory", path);
        }
    }
    return status;
}

/* Reads all of it. summary: NULL for a parent. */
static int read_through(const char *path, struct opened *opened, struct flyt_checkpoint_summary *summary,
                        struct flyt_error *err)
{
    struct flyt_contents *contents = NULL;
    struct flyt_error unsaid;

    opened->fd = flyt_checkpoint_file_read(path, 0, err);
    if (opened->fd < 0)
        return opened->fd;
    posix_fadvise(opened->fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* only makes it faster */
    if (flyt_contents_begin(opened->fd, &contents) == 0) {
        int status = read_records(path, opened, contents, summary, &unsaid);
        if (flyt_contents_end(contents) && !status)
            return 0;
        /* What is wrong, and where that begins, is said by who reads it in order. */
        opened->reader = flyt_checkpoint_reader_free(opened->reader);
        if (summary)
            flyt_checkpoint_summary_fini(summary);
        if (lseek(opened->fd, 0, SEEK_SET) != 0)
            return flyt_error_set(err, -errno, "image %.200s: %m", path);
    }
    return read_records(path, opened, NULL, summary, err);
}

/* Whether the older image has every page that the newer one leaves to it. */
static int check_inherited(const char *path, const struct opened *newer, const struct opened *older,
                           struct flyt_error *err)
{
    const struct flyt_page_map *pages = flyt_checkpoint_reader_pages(newer->reader);
    uint64_t address = 0, page_count = 0;

    while (flyt_page_map_next_missing(pages, address, &address, &page_count)) {
        if (!flyt_page_map_covers(flyt_checkpoint_reader_pages(older->reader), address,
                                  page_count * FLYT_CHECKPOINT_PAGE_BYTES))
            return flyt_error_set(err, -EBADMSG,
                                  "image %.200s: damaged: %" PRIu64 " pages at %#" PRIx64
                                  " are left to its parent, which has them not",
                                  path, page_count, address);
        address += page_count * FLYT_CHECKPOINT_PAGE_BYTES;
    }
    return 0;
}

char *flyt_checkpoint_path_beside(const char *path, const void *id)
{
    const char *slash = strrchr(path, '/');
    char name[FLYT_CHECKPOINT_NAME_BYTES], *beside;

    flyt_checkpoint_file_name(id, name);
    if (asprintf(&beside, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name) < 0)
        return NULL;
    return beside;
}

/* Reads the parent of newer, which lies beside it; then that is the newer one. */
static int step(char **path, struct opened *newer, struct flyt_error *err)
{
    struct opened older = {.fd = -1};
    char *beside = flyt_checkpoint_path_beside(*path, newer->head.parent_id);

    if (!beside)
        return flyt_error_set(err, -ENOMEM, "image %.200s: no memory", *path);
    int status = read_through(beside, &older, NULL, err);
    if (status == -ENOENT)
        flyt_error_set(err, -ENOENT, "image %.200s: its parent %s is not there", *path, beside);
    if (!status && memcmp(older.head.id, newer->head.parent_id, sizeof older.head.id))
        status = flyt_error_set(err, -EBADMSG, "image %.200s: damaged: it has another id than its name says", beside);
    if (!status)
        status = check_inherited(*path, newer, &older, err);
    closed(newer);
    free(*path);
    *path = beside;
    *newer = older;
    return status;
}

static int remember_parent(struct flyt_checkpoint_summary *summary, const void *id, struct flyt_error *err)
{
    size_t bytes = (size_t)summary->parent_count * FLYT_CHECKPOINT_ID_BYTES;
    unsigned char *ids = realloc(summary->parent_ids, bytes + FLYT_CHECKPOINT_ID_BYTES);

    if (!ids)
        return flyt_error_set(err, -ENOMEM, "no memory for the list of parents");
    memcpy(ids + bytes, id, FLYT_CHECKPOINT_ID_BYTES);
    summary->parent_ids = ids;
    summary->parent_count++;
    return 0;
}

int flyt_checkpoint_verify(const char *path, bool with_parents, struct flyt_checkpoint_summary *ret_summary,
                           struct flyt_error *err)
{
    struct opened opened = {.fd = -1};
    unsigned char passed[FLYT_CHECKPOINT_ID_BYTES] = {0}; /* of one on the way: met again, it is a ring */
    char *at = strdup(path);
    int status;

    *ret_summary = (struct flyt_checkpoint_summary){.has_head = false};
    if (!at)
        return flyt_error_set(err, -ENOMEM, "image %.200s: no memory", path);
    status = read_through(path, &opened, ret_summary, err);
    if (opened.reader) {
        ret_summary->totals = *flyt_checkpoint_reader_totals(opened.reader);
        ret_summary->stream_bytes = flyt_checkpoint_reader_bytes(opened.reader);
        ret_summary->inherited_page_count = flyt_page_map_count_missing(flyt_checkpoint_reader_pages(opened.reader));
    }
    while (!status && with_parents && !flyt_checkpoint_id_is_none(opened.head.parent_id)) {
        /* Remembered at each power of two, so that one of a ring of any length is met. */
        if (!(ret_summary->parent_count & (ret_summary->parent_count - 1)))
            memcpy(passed, opened.head.id, sizeof passed);
        if (!memcmp(passed, opened.head.parent_id, sizeof passed) ||
            ret_summary->parent_count == FLYT_CHECKPOINT_CHAIN_MAX)
            status = flyt_error_set(err, -ELOOP, "image %.200s: it is among its own parents, or they are more than %d",
                                    path, FLYT_CHECKPOINT_CHAIN_MAX);
        else
            status = step(&at, &opened, err);
        if (!status)
            status = remember_parent(ret_summary, opened.head.id, err);
    }
    closed(&opened);
    free(at);
    return status;
}
