#include "cpu/image/test_image.h"

#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"
#include "rpc/base/sha256.h"

enum { HEAD_BYTES = 40, PREAMBLE_BYTES = 16, PAGE = FLYT_CHECKPOINT_PAGE_BYTES, END_BODY_BYTES = 56 };

flyt_checkpoint_head test_head(unsigned id, unsigned parent)
{
    flyt_checkpoint_head head = {.build = (char *)"v1-test",
                                 .created_ms = id,
                                 .program_name = (char *)"my_program",
                                 .pid = 4711,
                                 .session_id = 0x1122334455667788,
                                 .vm = (char *)"10.0.0.7",
                                 .gpu_type = (char *)"NVIDIA H200",
                                 .compute_major = 9,
                                 .driver_version = 13000,
                                 .sm_count = 132,
                                 .page_hash = 1};

    memset(head.id, (int)id, sizeof head.id);
    memset(head.parent_id, (int)parent, sizeof head.parent_id);
    memset(head.base_hash, 0xbb, sizeof head.base_hash);
    return head;
}

void test_page(unsigned char *ret_page, unsigned seed)
{
    for (unsigned i = 0; i < PAGE; i++)
        ret_page[i] = (unsigned char)(seed + i / 512 % 3);
}

#define DO(call) assert_int_equal((call), 0)

static void put_first_round(struct flyt_checkpoint_writer *writer)
{
    const flyt_checkpoint_range ranges[] = {{flyt_window_base(0), 100}, {flyt_window_base(0) + 512, 70000}};
    flyt_checkpoint_object stream = {.number = 3, .kind = FLYT_CHECKPOINT_STREAM};
    flyt_checkpoint_object module = {
        .number = 9, .kind = FLYT_CHECKPOINT_MODULE, .value = {.value_len = 5, .value_val = (char *)"abcde"}};
    flyt_checkpoint_global global = {
        .module_id = 5, .symbol = (char *)"_Z7counter", .address = 0x7f0012340000, .total_bytes = 6};
    flyt_checkpoint_global constant = {.module_id = 5, .symbol = (char *)"nothing", .is_constant = TRUE};
    unsigned char sha256[FLYT_SHA256_BYTES], hashes[2 * FLYT_CHECKPOINT_PAGE_HASH_BYTES];
    unsigned char *pages = calloc(5, PAGE);
    struct flyt_error err;

    assert_non_null(pages);
    DO(flyt_checkpoint_put_round(writer, &err));
    DO(flyt_checkpoint_put_extent(writer, flyt_window_base(0), FLYT_CHECKPOINT_EXTENT_ALIGN, &err));
    DO(flyt_checkpoint_put_extent(writer, flyt_window_base(2), FLYT_CHECKPOINT_EXTENT_ALIGN, &err));
    DO(flyt_checkpoint_put_allocations(writer, ranges, 2, &err));
    DO(flyt_checkpoint_put_module_image(writer, "an image", 8, sha256, &err));
    DO(flyt_checkpoint_put_object(writer, &stream, &err));
    DO(flyt_checkpoint_put_object(writer, &module, &err));
    DO(flyt_checkpoint_put_global(writer, &global, "123456", 6, &err));
    DO(flyt_checkpoint_put_global(writer, &constant, NULL, 0, &err));
    memset(hashes, 0x55, sizeof hashes);
    test_page(pages + PAGE, 1);
    test_page(pages + 3 * PAGE, 3);
    test_page(pages + 4 * PAGE, 4);
    DO(flyt_checkpoint_put_pages(writer, flyt_window_base(0), 5, pages, NULL, &err));
    DO(flyt_checkpoint_put_run(writer, flyt_window_base(0) + 5 * PAGE, 2, FLYT_CHECKPOINT_ZERO, hashes, &err));
    DO(flyt_checkpoint_put_run(writer, flyt_window_base(0) + 7 * PAGE, TEST_EXTENT_PAGES - 7, FLYT_CHECKPOINT_ZERO,
                               NULL, &err));
    free(pages);
}

void test_put_sample(struct flyt_checkpoint_writer *writer)
{
    const flyt_checkpoint_range range = {flyt_window_base(0), 2000};
    const flyt_checkpoint_sequence sequence = {.received = 30, .executed = 20, .completed = 10};
    unsigned char page[PAGE];
    struct flyt_error err;

    DO(flyt_checkpoint_put_slot(writer, 0, 8ull << 30, &err));
    DO(flyt_checkpoint_put_slot(writer, 2, 0, &err));
    put_first_round(writer);
    DO(flyt_checkpoint_put_round(writer, &err));
    DO(flyt_checkpoint_put_extent_gone(writer, flyt_window_base(2), &err));
    DO(flyt_checkpoint_put_allocations(writer, &range, 1, &err));
    DO(flyt_checkpoint_put_object_gone(writer, 3, &err));
    test_page(page, 11);
    DO(flyt_checkpoint_put_pages(writer, flyt_window_base(0) + PAGE, 1, page, NULL, &err));
    DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
    DO(flyt_checkpoint_put_end(writer, &err));
}

int test_fd(const void *data, size_t bytes)
{
    int fd = memfd_create("image", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

struct test_bytes test_contents(int fd)
{
    struct test_bytes contents;
    struct stat about;

    assert_int_equal(fstat(fd, &about), 0);
    contents.bytes = (size_t)about.st_size;
    contents.data = malloc(contents.bytes + 1);
    assert_non_null(contents.data);
    assert_int_equal(pread(fd, contents.data, contents.bytes, 0), (ssize_t)contents.bytes);
    return contents;
}

struct test_bytes test_sample(enum flyt_checkpoint_packing packing)
{
    flyt_auto_close int fd = test_fd("", 0);
    flyt_checkpoint_head head = test_head(7, 0);
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;

    DO(flyt_checkpoint_writer_new(fd, "sample", &head, packing, &writer, &err));
    test_put_sample(writer);
    flyt_checkpoint_writer_free(writer);
    return test_contents(fd);
}

int test_read(const void *data, size_t bytes, struct flyt_checkpoint_totals *ret_totals, struct flyt_error *err)
{
    flyt_auto_close int fd = test_fd(data, bytes);
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    int status;

    DO(flyt_checkpoint_reader_new(fd, "sample", true, &reader, err));
    while ((status = flyt_checkpoint_next(reader, &record, err)) > 0)
        continue;
    if (ret_totals)
        *ret_totals = *flyt_checkpoint_reader_totals(reader);
    /* The first failure stays. */
    if (status < 0) {
        struct flyt_error again;
        assert_int_equal(flyt_checkpoint_next(reader, &record, &again), status);
        assert_string_equal(again.text, err->text);
        assert_int_equal(flyt_checkpoint_place(reader, NULL, &again), status);
    }
    flyt_checkpoint_reader_free(reader);
    return status;
}

struct test_bytes test_stream_sample(void)
{
    enum { BATCH = 4 };
    static unsigned char hashes[TEST_EXTENT_PAGES * FLYT_CHECKPOINT_PAGE_HASH_BYTES], page[PAGE];
    const uint64_t base = flyt_window_base(0);
    const flyt_checkpoint_run apart[] = {{base, 1}, {base + 2 * PAGE, BATCH - 1}}, alone = {base + PAGE, 1};
    const flyt_checkpoint_sequence sequence = {.received = 30, .executed = 20, .completed = 10};
    flyt_auto_close int fd = test_fd("", 0);
    flyt_checkpoint_head head = test_head(7, 0);
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;
    uint64_t number;

    memset(hashes, 0x55, sizeof hashes);
    test_page(page, 3);
    DO(flyt_checkpoint_writer_new(fd, "sample", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err));
    DO(flyt_checkpoint_put_slot(writer, 0, 8ull << 30, &err));
    DO(flyt_checkpoint_put_streams(writer, 2, "0123456789abcdef", &err));
    DO(flyt_checkpoint_put_alive(writer, 1, &err));
    DO(flyt_checkpoint_put_round(writer, &err));
    DO(flyt_checkpoint_put_extent(writer, base, FLYT_CHECKPOINT_EXTENT_ALIGN, &err));
    DO(flyt_checkpoint_put_elsewhere(writer, 1, apart, 2, hashes, &number, &err));
    assert_int_equal(number, 1);
    DO(flyt_checkpoint_put_pages(writer, base + PAGE, 1, page, hashes, &err));
    DO(flyt_checkpoint_put_run(writer, base + (BATCH + 1) * PAGE, TEST_EXTENT_PAGES - BATCH - 1, FLYT_CHECKPOINT_ZERO,
                               NULL, &err));
    DO(flyt_checkpoint_put_alive(writer, 5000, &err));
    DO(flyt_checkpoint_put_round(writer, &err));
    DO(flyt_checkpoint_put_elsewhere(writer, 2, &alone, 1, hashes, &number, &err));
    assert_int_equal(number, 2);
    DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
    assert_int_equal(flyt_checkpoint_writer_pages(writer), TEST_EXTENT_PAGES + 1);
    DO(flyt_checkpoint_put_end(writer, &err));
    flyt_checkpoint_writer_free(writer);
    return test_contents(fd);
}

/* ---- bytes taken apart ---- */

/* CRC-32C, bit by bit, as its definition says. */
uint32_t test_checksum(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t sum = 0xffffffff;

    for (; bytes; bytes--) {
        sum ^= *at++;
        for (int i = 0; i < 8; i++)
            sum = sum & 1 ? sum >> 1 ^ 0x82f63b78 : sum >> 1;
    }
    return ~sum;
}

static uint32_t word(const unsigned char *at)
{
    uint32_t value;

    memcpy(&value, at, 4);
    return be32toh(value);
}

static void put_word(unsigned char *at, uint32_t value)
{
    value = htobe32(value);
    memcpy(at, &value, 4);
}

static void put_long(unsigned char *at, uint64_t value)
{
    put_word(at, (uint32_t)(value >> 32));
    put_word(at + 4, (uint32_t)value);
}

struct test_records test_split(const struct test_bytes *image)
{
    struct test_records records = {.count = 0};

    for (unsigned char *at = image->data + PREAMBLE_BYTES; at < image->data + image->bytes;) {
        struct test_record *record = &records.record[records.count++];
        assert_true(records.count < TEST_RECORDS_MAX);
        *record = (struct test_record){.type = word(at + 4),
                                       .flags = word(at + 16),
                                       .body = {at + HEAD_BYTES, word(at + 20)},
                                       .payload = {at + HEAD_BYTES + word(at + 20), word(at + 24)}};
        at += HEAD_BYTES + record->body.bytes + record->payload.bytes;
    }
    return records;
}

static void put_head(unsigned char *at, const struct test_record *record, uint64_t number, const void *body)
{
    put_word(at, 0x466c7952);
    put_word(at + 4, record->type);
    put_long(at + 8, number);
    put_word(at + 16, record->flags);
    put_word(at + 20, (uint32_t)record->body.bytes);
    put_word(at + 24, (uint32_t)record->payload.bytes);
    put_word(at + 28, test_checksum(body, record->body.bytes));
    put_word(at + 32, test_checksum(record->payload.data, record->payload.bytes));
    put_word(at + 36, test_checksum(at, 36));
}

/* Of a record of pages that are elsewhere, as far as it is one. */
static uint64_t count_elsewhere(const struct test_bytes *body)
{
    uint64_t page_count = 0;

    for (uint32_t i = 0; body->bytes >= 16 && i < word(body->data + 12) && 16 + 12 * ((size_t)i + 1) <= body->bytes;
         i++)
        page_count += word(body->data + 16 + 12 * i + 8);
    return page_count;
}

struct test_bytes test_join(const struct test_records *records)
{
    struct test_bytes image = {.bytes = PREAMBLE_BYTES};
    struct flyt_sha256 hash;
    uint64_t page_count = 0;

    for (unsigned i = 0; i < records->count; i++)
        image.bytes += HEAD_BYTES + records->record[i].body.bytes + records->record[i].payload.bytes;
    unsigned char *at = image.data = malloc(image.bytes);
    assert_non_null(at);
    memcpy(at, "\211Flyt\r\n\032\0\0\0\001", 12);
    put_word(at + 12, test_checksum(at, 12));
    at += PREAMBLE_BYTES;
    flyt_sha256_init(&hash);
    for (unsigned i = 0; i < records->count; i++) {
        const struct test_record *record = &records->record[i];
        unsigned char *body = at + HEAD_BYTES;
        memcpy(body, record->body.data, record->body.bytes);
        if (record->type == FLYT_CHECKPOINT_PAGES)
            page_count += word(body + 8);
        if (record->type == FLYT_CHECKPOINT_ELSEWHERE)
            page_count += count_elsewhere(&record->body);
        if (record->type == FLYT_CHECKPOINT_END && record->body.bytes == END_BODY_BYTES) {
            struct flyt_sha256 so_far = hash;
            put_long(body, i);
            put_long(body + 8, (uint64_t)(at - image.data));
            put_long(body + 16, page_count);
            flyt_sha256_end(&so_far, body + 24);
        }
        put_head(at, record, i, body);
        flyt_sha256_add(&hash, at, HEAD_BYTES + record->body.bytes);
        at = body + record->body.bytes;
        if (record->payload.bytes)
            memcpy(at, record->payload.data, record->payload.bytes);
        at += record->payload.bytes;
    }
    return image;
}

unsigned test_find(const struct test_records *records, uint32_t type)
{
    for (unsigned i = 0; i < records->count; i++)
        if (records->record[i].type == type)
            return i;
    fail_msg("no record of type %u", type);
    return 0;
}

void test_insert(struct test_records *records, unsigned place, struct test_record record)
{
    assert_true(records->count < TEST_RECORDS_MAX);
    memmove(&records->record[place + 1], &records->record[place], (records->count - place) * sizeof record);
    records->record[place] = record;
    records->count++;
}

void test_remove(struct test_records *records, unsigned place)
{
    records->count--;
    memmove(&records->record[place], &records->record[place + 1], (records->count - place) * sizeof records->record[0]);
}
