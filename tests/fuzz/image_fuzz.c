/*
 * Damaged checkpoint images against their reader: each round takes the records of a valid image, damages some, puts in,
 * takes out and exchanges others, mostly with checksums that are right again, and reads the result whole, as a file and
 * as a stream; so it does with the heads of frames and the answers that go beside one. What is looked for are crashes,
 * reads and writes outside, leaks (with a sanitizer) and hangs; and that nothing passes whose pages were not all there.
 * The run depends on its seed alone.
 *
 * usage: image-fuzz [SECONDS [SEED]]     (default: 3 seconds, seed 1)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/image/answer.h"
#include "cpu/image/frame.h"
#include "cpu/image/test_image.h"
#include "rpc/base/clock.h"

enum { CHANGED_MAX = 8 };

static uint64_t state = 1, round_count, good_count;

static unsigned below(unsigned end)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % end;
}

/* Bytes that decoders stumble over, or any. */
static void damage(struct test_bytes *bytes, size_t bytes_max)
{
    static const uint32_t words[] = {0,          1,          2,          4,          0x7fffffff, 0x80000000, 0xffffffff,
                                     0x00000100, 0x00001000, 0x00800000, 0x00002000, 0x00200000, 0xfcffffff};
    size_t at = bytes->bytes ? below((unsigned)bytes->bytes) : 0;

    switch (below(4)) {
    case 0:
        if (bytes->bytes)
            bytes->data[at] ^= (unsigned char)(1u << below(8));
        break;
    case 1:
        if ((at & ~(size_t)3) + 4 <= bytes->bytes)
            memcpy(bytes->data + (at & ~(size_t)3), &words[below(sizeof words / sizeof words[0])], 4);
        break;
    case 2:
        bytes->bytes = at & ~(size_t)3;
        break;
    default:
        bytes->bytes = bytes->bytes + 4 <= bytes_max ? bytes->bytes + 4 : bytes->bytes;
    }
}

/* A copy of a record's bytes with room behind them, to be freed. */
static struct test_bytes copy(const struct test_bytes *bytes)
{
    struct test_bytes made = {calloc(1, bytes->bytes + 64), bytes->bytes};

    if (!made.data)
        abort();
    memcpy(made.data, bytes->data, bytes->bytes);
    return made;
}

static void change_record(struct test_records *records, struct test_bytes *copies, unsigned *copy_count)
{
    struct test_record *record = &records->record[below(records->count)];
    struct test_bytes *bytes = below(3) ? &record->body : &record->payload;

    switch (below(6)) {
    case 0:
        test_remove(records, below(records->count));
        break;
    case 1:
        test_insert(records, below(records->count), *record);
        break;
    case 2:
        record->type = below(19);
        break;
    case 3:
        record->flags ^= 1u << below(3);
        break;
    default:
        copies[*copy_count] = copy(bytes);
        *bytes = copies[(*copy_count)++];
        damage(bytes, bytes->bytes + 64);
    }
}

static void read_whole(const struct test_bytes *image)
{
    int fd = memfd_create("image", MFD_CLOEXEC);
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    struct flyt_error err = {.code = 0};
    bool has_parent = false;
    int status;

    if (fd < 0 || write(fd, image->data, image->bytes) != (ssize_t)image->bytes || lseek(fd, 0, SEEK_SET))
        abort();
    if (flyt_checkpoint_reader_new(fd, "fuzz", below(2), &reader, &err))
        abort();
    while ((status = flyt_checkpoint_next(reader, &record, &err)) > 0) {
        if (record.place_bytes > FLYT_CHECKPOINT_RUN_PAGES_MAX * (uint64_t)FLYT_CHECKPOINT_PAGE_BYTES)
            abort();
        if (record.type == FLYT_CHECKPOINT_HEAD)
            has_parent = !flyt_checkpoint_id_is_none(record.body->head.parent_id);
        /* Exactly as much as is said, so that a sanitizer sees a write behind it; not gigabytes of zeros. */
        if (record.place_bytes <= FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX && below(2)) {
            void *place = malloc(record.place_bytes ? record.place_bytes : 1);
            if (!place)
                abort();
            flyt_checkpoint_place(reader, place, &err);
            free(place);
        }
    }
    if (status < 0 && !*err.text)
        abort();
    uint64_t address, page_count;
    if (!status && !has_parent &&
        flyt_page_map_next_missing(flyt_checkpoint_reader_pages(reader), 0, &address, &page_count))
        abort();
    good_count += !status;
    flyt_checkpoint_reader_free(reader);
    close(fd);
}

/* A frame's head and an answer: what passes is within its bounds. */
static void read_beside(void)
{
    const struct flyt_frame frame = {.number = 1 + below(3),
                                     .first_page = below(300),
                                     .page_count = below(70),
                                     .encoding = (flyt_checkpoint_encoding)below(6),
                                     .payload_bytes = below(5) * FLYT_CHECKPOINT_PAGE_BYTES};
    const struct flyt_answer answer = {.is_final = below(2), .status = -(int)below(3), .sentence = "no memory"};
    unsigned char head[FLYT_FRAME_HEAD_BYTES];
    struct test_bytes bytes = {malloc(FLYT_ANSWER_BYTES_MAX), 0};
    struct flyt_answer said = {.status = 0};
    struct flyt_frame read;

    if (!bytes.data)
        abort();
    flyt_frame_put(&frame, head);
    if (flyt_frame_get(head, &read) && (read.page_count > FLYT_CHECKPOINT_DATA_PAGES_MAX || !read.page_count ||
                                        read.first_page + read.page_count > FLYT_CHECKPOINT_BATCH_PAGES_MAX ||
                                        read.payload_bytes > read.page_count * FLYT_CHECKPOINT_PAGE_BYTES))
        abort();
    bytes.bytes = flyt_answer_put(&answer, bytes.data);
    for (unsigned changes = below(3); changes; changes--)
        damage(&bytes, bytes.bytes);
    if (flyt_answer_get(bytes.data, bytes.bytes, &said) > (int)bytes.bytes || said.status > 0)
        abort();
    free(bytes.data);
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 3;
    struct test_bytes images[] = {test_sample(FLYT_CHECKPOINT_PACK_LZ4), test_sample(FLYT_CHECKPOINT_PACK_ZSTD),
                                  test_stream_sample()};

    state = argc > 2 ? strtoull(argv[2], NULL, 0) | 1 : 1;
    for (uint64_t end_ms = flyt_clock_ms() + seconds * 1000ull; flyt_clock_ms() < end_ms;) {
        for (int i = 0; i < 100; i++, round_count++) {
            struct test_records records = test_split(&images[below(3)]);
            struct test_bytes copies[CHANGED_MAX];
            unsigned copy_count = 0;
            for (unsigned changes = below(4); changes; changes--)
                change_record(&records, copies, &copy_count);
            struct test_bytes image = test_join(&records);
            for (unsigned changes = below(8) ? 0 : below(4); changes; changes--)
                damage(&image, image.bytes);
            read_whole(&image);
            read_beside();
            free(image.data);
            while (copy_count)
                free(copies[--copy_count].data);
        }
    }
    printf("%" PRIu64 " images, %" PRIu64 " read all the same\n", round_count, good_count);
    free(images[0].data);
    free(images[1].data);
    free(images[2].data);
    return 0;
}
