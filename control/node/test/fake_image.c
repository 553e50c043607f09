#include "control/node/test/fake_image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/image/file.h"
#include "cpu/image/page_index.h"
#include "cpu/image/reader.h"
#include "cpu/image/writer.h"
#include "rpc/base/id.h"

enum { PAGE = FLYT_CHECKPOINT_PAGE_BYTES, EXTENT_SHIFT = 32 };

static uint64_t address_of(uint64_t id)
{
    return flyt_window_base(0) + (id << EXTENT_SHIFT);
}

static int put_extents(struct flyt_checkpoint_writer *writer, const struct fake_image *image,
                       const struct flyt_page_index *parent, struct flyt_error *err)
{
    int status = 0;

    for (unsigned i = 0; i < image->count && !status; i++)
        status = flyt_checkpoint_put_extent(writer, address_of(image->extents[i].id), image->extents[i].bytes, err);
    for (unsigned i = 0; i < image->count && !status; i++) {
        unsigned char page[PAGE] = {0};
        uint64_t address = address_of(image->extents[i].id);
        memcpy(page, &image->extents[i].word, sizeof image->extents[i].word);
        status = flyt_checkpoint_put_pages(writer, address, 1, page, NULL, err);
        if (!status && !flyt_page_index_match(parent, address, image->extents[i].bytes))
            status = flyt_checkpoint_put_run(writer, address + PAGE, image->extents[i].bytes / PAGE - 1,
                                             FLYT_CHECKPOINT_ZERO, NULL, err);
    }
    return status;
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int fake_image_write(int fd, const struct fake_image *image, int parent_fd, uint64_t *ret_kept_pages)
{
    const flyt_checkpoint_sequence sequence = {image->sequence, image->sequence, image->sequence};
    flyt_checkpoint_head head = {.build = (char *)"fake",
                                 .created_ms = now_ms(),
                                 .program_name = (char *)"fake",
                                 .session_id = image->session_id,
                                 .vm = (char *)"",
                                 .gpu_type = (char *)"fake",
                                 .compute_major = 9};
    struct flyt_checkpoint_writer *writer = NULL;
    struct flyt_page_index parent = {.page_count = 0};
    struct flyt_error err = {0};

    int status = flyt_checkpoint_id_make(head.id);
    if (!status && parent_fd >= 0)
        status = flyt_page_index_read(parent_fd, "parent", &parent, &err);
    memcpy(head.parent_id, parent.id, sizeof head.parent_id);
    if (!status)
        status = flyt_checkpoint_writer_new(fd, "fake", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err);
    if (!status)
        status = flyt_checkpoint_put_slot(writer, 0, 0, &err);
    if (!status)
        status = flyt_checkpoint_put_round(writer, &err);
    if (!status)
        status = put_extents(writer, image, &parent, &err);
    if (!status)
        status = flyt_checkpoint_put_sequence(writer, &sequence, &err);
    if (!status) {
        *ret_kept_pages = flyt_checkpoint_writer_kept_pages(writer);
        status = flyt_checkpoint_put_end(writer, &err);
    }
    flyt_checkpoint_writer_free(writer);
    flyt_page_index_fini(&parent);
    if (status)
        fprintf(stderr, "fake server: no image: %s\n", err.text);
    return status;
}

static int take(struct flyt_checkpoint_reader *reader, const struct flyt_checkpoint_record *record,
                struct fake_image *image, unsigned char *pages, struct flyt_error *err)
{
    const union flyt_checkpoint_body *body = record->body;

    if (record->type == FLYT_CHECKPOINT_HEAD)
        image->session_id = body->head.session_id;
    if (record->type == FLYT_CHECKPOINT_SEQUENCE)
        image->sequence = body->sequence.received;
    if (record->type == FLYT_CHECKPOINT_EXTENT && image->count < FAKE_IMAGE_EXTENTS_MAX) {
        image->extents[image->count].id = (body->extent.address - flyt_window_base(0)) >> EXTENT_SHIFT;
        image->extents[image->count++].bytes = body->extent.bytes;
    }
    if (record->type != FLYT_CHECKPOINT_PAGES || body->pages.encoding == FLYT_CHECKPOINT_ZERO)
        return 0;
    int status = flyt_checkpoint_place(reader, pages, err);
    for (unsigned i = 0; i < image->count && !status; i++)
        if (address_of(image->extents[i].id) == body->pages.address)
            memcpy(&image->extents[i].word, pages, sizeof image->extents[i].word);
    return status;
}

int fake_image_read(int fd, struct fake_image *ret_image)
{
    struct flyt_checkpoint_reader *reader = NULL;
    struct flyt_checkpoint_record record;
    struct flyt_error err = {0};
    unsigned char *pages = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX);

    memset(ret_image, 0, sizeof *ret_image);
    int status = pages ? flyt_checkpoint_reader_new(fd, "fake", true, &reader, &err) : -ENOMEM;
    while (!status && (status = flyt_checkpoint_next(reader, &record, &err)) == 1)
        status = take(reader, &record, ret_image, pages, &err);
    flyt_checkpoint_reader_free(reader);
    free(pages);
    if (status)
        fprintf(stderr, "fake server: the image cannot be read: %s\n", err.text);
    return status;
}
