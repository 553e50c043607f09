/*
 * Images as bytes: what was put in comes out; nothing that is cut, changed, put in, taken out or out of order is taken
 * for an image; what a reader allocates and reads has bounds.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/image/checksum.h"
#include "cpu/image/test_image.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"

enum { PAGE = FLYT_CHECKPOINT_PAGE_BYTES };

#define WINDOW   flyt_window_base(0)
#define DO(call) assert_int_equal((call), 0)

static void checksums_are_crc32c(void **state)
{
    unsigned char bytes[300];

    /* RFC 3720, B.4, and the check value of the catalogues. */
    memset(bytes, 0, 32);
    assert_int_equal(flyt_checkpoint_checksum(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(flyt_checkpoint_checksum(0, bytes, 32), 0x62a8ab43);
    assert_int_equal(flyt_checkpoint_checksum(0, "123456789", 9), 0xe3069283);
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i + 7);
    for (unsigned from = 0; from < 9; from++) {
        for (unsigned count = 0; count < 280; count++) {
            uint32_t sum = test_checksum(bytes + from, count);
            assert_int_equal(flyt_checkpoint_checksum(0, bytes + from, count), sum);
            assert_int_equal(flyt_checkpoint_checksum_plain(0, bytes + from, count), sum);
            uint32_t part = flyt_checkpoint_checksum(0, bytes + from, count / 3);
            assert_int_equal(flyt_checkpoint_checksum(part, bytes + from + count / 3, count - count / 3), sum);
        }
    }
}

/* ---- what was put in comes out ---- */

/* Two extents beside each other and a third one; every page known. */
enum { PAGES = 3 * TEST_EXTENT_PAGES, MODULE_BYTES = 9000001, GLOBAL_BYTES = 5000000, RANGES = 70000 };

struct big {
    unsigned char *pages, *module, *global;
    flyt_checkpoint_range *ranges;
    unsigned char hashes[PAGES][FLYT_CHECKPOINT_PAGE_HASH_BYTES];
};

static uint64_t noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void make_big(struct big *big)
{
    uint64_t random = 5;

    big->pages = calloc(PAGES, PAGE);
    big->module = malloc(MODULE_BYTES);
    big->global = malloc(GLOBAL_BYTES);
    big->ranges = calloc(RANGES, sizeof *big->ranges);
    assert_true(big->pages && big->module && big->global && big->ranges);
    for (unsigned i = 0; i < PAGES; i++) {
        unsigned char *page = big->pages + (size_t)i * PAGE;
        if (i % 5 == 1 && i <= 80)
            test_page(page, i);
        else if (i % 5 == 2 || i > 80)
            for (unsigned j = 0; j < PAGE; j++)
                page[j] = (unsigned char)noise(&random);
        memset(big->hashes[i], (int)i, sizeof big->hashes[i]);
    }
    big->pages[3 * PAGE - 1] = 1; /* zero but for its last byte */
    for (unsigned i = 0; i < MODULE_BYTES; i++)
        big->module[i] = (unsigned char)noise(&random);
    for (unsigned i = 0; i < GLOBAL_BYTES; i++)
        big->global[i] = (unsigned char)noise(&random);
    for (uint64_t i = 0; i < RANGES; i++)
        big->ranges[i] = (flyt_checkpoint_range){WINDOW + i * 32, 1 + i % 32};
}

static void free_big(struct big *big)
{
    free(big->pages);
    free(big->module);
    free(big->global);
    free(big->ranges);
}

static struct test_bytes write_big(const struct big *big, enum flyt_checkpoint_packing packing)
{
    flyt_auto_close int fd = test_fd("", 0);
    flyt_checkpoint_head head = test_head(1, 0);
    flyt_checkpoint_global global = {.module_id = 77, .symbol = (char *)"table", .total_bytes = GLOBAL_BYTES};
    flyt_checkpoint_sequence sequence = {.received = 3, .executed = 3, .completed = 2};
    unsigned char sha256[FLYT_SHA256_BYTES], again[FLYT_SHA256_BYTES];
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;

    DO(flyt_checkpoint_writer_new(fd, "big", &head, packing, &writer, &err));
    DO(flyt_checkpoint_put_slot(writer, 0, 0, &err));
    DO(flyt_checkpoint_put_round(writer, &err));
    DO(flyt_checkpoint_put_extent(writer, WINDOW + FLYT_CHECKPOINT_EXTENT_ALIGN, 2ull * FLYT_CHECKPOINT_EXTENT_ALIGN,
                                  &err));
    DO(flyt_checkpoint_put_extent(writer, WINDOW, FLYT_CHECKPOINT_EXTENT_ALIGN, &err));
    DO(flyt_checkpoint_put_allocations(writer, big->ranges, RANGES, &err));
    DO(flyt_checkpoint_put_module_image(writer, big->module, MODULE_BYTES, sha256, &err));
    DO(flyt_checkpoint_put_module_image(writer, big->module, MODULE_BYTES, again, &err));
    assert_memory_equal(sha256, again, sizeof sha256);
    for (unsigned kind = 0; kind < 20; kind++) {
        flyt_checkpoint_object object = {.number = 10 * kind, .kind = kind};
        object.value.value_len = kind * 1000;
        object.value.value_val = (char *)big->module + kind;
        DO(flyt_checkpoint_put_object(writer, &object, &err));
    }
    DO(flyt_checkpoint_put_global(writer, &global, big->global, 1000, &err));
    global.offset_bytes = 1000;
    DO(flyt_checkpoint_put_global(writer, &global, big->global + 1000, GLOBAL_BYTES - 1000, &err));
    DO(flyt_checkpoint_put_pages(writer, WINDOW, PAGES, big->pages, big->hashes, &err));
    DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
    DO(flyt_checkpoint_put_end(writer, &err));
    assert_true(flyt_checkpoint_writer_has_ended(writer));
    struct test_bytes image = test_contents(fd);
    assert_int_equal(flyt_checkpoint_writer_bytes(writer), image.bytes);
    flyt_checkpoint_writer_free(writer);
    return image;
}

/* Compares a record with what was put; counts what has come. */
static void compare(const struct big *big, struct flyt_checkpoint_reader *reader,
                    const struct flyt_checkpoint_record *record, uint64_t *counts)
{
    const union flyt_checkpoint_body *body = record->body;
    unsigned char *place = malloc(record->place_bytes + 1);
    struct flyt_error err;
    uint64_t first;

    assert_non_null(place);
    memset(place, 0xee, record->place_bytes + 1);
    DO(flyt_checkpoint_place(reader, place, &err));
    assert_int_equal(place[record->place_bytes], 0xee);
    switch (record->type) {
    case FLYT_CHECKPOINT_ALLOCATIONS:
        assert_int_equal(body->allocations.is_first, counts[record->type] == 0);
        assert_memory_equal(body->allocations.ranges.ranges_val, big->ranges + counts[record->type],
                            body->allocations.ranges.ranges_len * sizeof(flyt_checkpoint_range));
        counts[record->type] += body->allocations.ranges.ranges_len;
        break;
    case FLYT_CHECKPOINT_MODULE_IMAGE:
        assert_memory_equal(place, big->module + body->module_image.offset_bytes, record->place_bytes);
        counts[record->type] += record->place_bytes;
        break;
    case FLYT_CHECKPOINT_GLOBAL:
        assert_string_equal(body->global.symbol, "table");
        assert_memory_equal(place, big->global + body->global.offset_bytes, record->place_bytes);
        counts[record->type] += record->place_bytes;
        break;
    case FLYT_CHECKPOINT_OBJECT:
        assert_int_equal(body->object.number, 10 * counts[record->type]);
        assert_int_equal(body->object.kind, counts[record->type]);
        assert_int_equal(body->object.value.value_len, 1000 * counts[record->type]);
        assert_memory_equal(body->object.value.value_val, big->module + body->object.kind,
                            body->object.value.value_len);
        counts[record->type]++;
        break;
    case FLYT_CHECKPOINT_PAGES:
        first = (body->pages.address - WINDOW) / PAGE;
        assert_int_equal(record->place_bytes, (uint64_t)body->pages.page_count * PAGE);
        assert_memory_equal(place, big->pages + first * PAGE, record->place_bytes);
        assert_int_equal(body->pages.hashes.hashes_len, body->pages.page_count * FLYT_CHECKPOINT_PAGE_HASH_BYTES);
        assert_memory_equal(body->pages.hashes.hashes_val, big->hashes[first], body->pages.hashes.hashes_len);
        counts[record->type] += body->pages.page_count;
        break;
    default:
        counts[record->type]++;
    }
    free(place);
}

static void read_big(const struct big *big, const struct test_bytes *image, enum flyt_checkpoint_packing packing)
{
    flyt_auto_close int fd = test_fd(image->data, image->bytes);
    uint64_t counts[FLYT_CHECKPOINT_END + 1] = {0};
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    struct flyt_error err;
    int status;

    DO(flyt_checkpoint_reader_new(fd, "big", true, &reader, &err));
    while ((status = flyt_checkpoint_next(reader, &record, &err)) > 0)
        compare(big, reader, &record, counts);
    if (status)
        fail_msg("%s", err.text);
    assert_int_equal(flyt_checkpoint_next(reader, &record, &err), 0);
    assert_int_equal(counts[FLYT_CHECKPOINT_ALLOCATIONS], RANGES);
    assert_int_equal(counts[FLYT_CHECKPOINT_MODULE_IMAGE], MODULE_BYTES);
    assert_int_equal(counts[FLYT_CHECKPOINT_GLOBAL], GLOBAL_BYTES);
    assert_int_equal(counts[FLYT_CHECKPOINT_OBJECT], 20);
    assert_int_equal(counts[FLYT_CHECKPOINT_PAGES], PAGES);
    assert_int_equal(counts[FLYT_CHECKPOINT_END], 1);
    const struct flyt_checkpoint_totals *totals = flyt_checkpoint_reader_totals(reader);
    uint64_t zero = 0;
    for (unsigned i = 0; i < PAGES; i++)
        zero += (i % 5 != 1 && i % 5 != 2 && i <= 80);
    assert_int_equal(totals->page_counts[FLYT_CHECKPOINT_ZERO], zero);
    assert_int_equal(totals->page_counts[FLYT_CHECKPOINT_RAW] + totals->page_counts[FLYT_CHECKPOINT_LZ4] +
                         totals->page_counts[FLYT_CHECKPOINT_ZSTD],
                     PAGES - zero);
    assert_true(packing == FLYT_CHECKPOINT_PACK_LZ4 || !totals->page_counts[FLYT_CHECKPOINT_LZ4]);
    assert_true(packing == FLYT_CHECKPOINT_PACK_ZSTD || !totals->page_counts[FLYT_CHECKPOINT_ZSTD]);
    /* Pages 81 to 95 are noise, which nothing makes smaller. */
    if (packing != FLYT_CHECKPOINT_PACK_NOT)
        assert_true(totals->page_counts[FLYT_CHECKPOINT_RAW] >= 15 &&
                    totals->page_counts[FLYT_CHECKPOINT_RAW] < PAGES - zero);
    assert_int_equal(totals->extent_bytes, PAGES * (uint64_t)PAGE);
    assert_int_equal(totals->object_counts[0], 20 - (FLYT_CHECKPOINT_KINDS - 1));
    assert_int_equal(totals->module_image_count, 1);
    assert_int_equal(totals->sequence.completed, 2);
    flyt_checkpoint_reader_free(reader);
}

static void everything_comes_back(void **state)
{
    static const enum flyt_checkpoint_packing packings[] = {FLYT_CHECKPOINT_PACK_NOT, FLYT_CHECKPOINT_PACK_LZ4,
                                                            FLYT_CHECKPOINT_PACK_ZSTD};
    struct flyt_checkpoint_totals totals;
    struct flyt_error err;
    struct big big;

    make_big(&big);
    for (unsigned i = 0; i < sizeof packings / sizeof packings[0]; i++) {
        struct test_bytes image = write_big(&big, packings[i]);
        read_big(&big, &image, packings[i]);
        /* The same without taking any of it. */
        DO(test_read(image.data, image.bytes, &totals, &err));
        assert_int_equal(totals.global_bytes, GLOBAL_BYTES);
        free(image.data);
    }
    free_big(&big);
}

/* What rounds leave in the end, and every field of the small records. */
static void later_rounds_override(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_ZSTD);
    flyt_auto_close int fd = test_fd(image.data, image.bytes);
    unsigned char *memory = malloc(FLYT_CHECKPOINT_EXTENT_ALIGN), *wanted = calloc(1, FLYT_CHECKPOINT_EXTENT_ALIGN);
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    struct flyt_error err;
    int status;

    assert_true(memory && wanted);
    memset(memory, 0xee, FLYT_CHECKPOINT_EXTENT_ALIGN);
    DO(flyt_checkpoint_reader_new(fd, "sample", true, &reader, &err));
    while ((status = flyt_checkpoint_next(reader, &record, &err)) > 0) {
        if (record.type == FLYT_CHECKPOINT_PAGES) {
            DO(flyt_checkpoint_place(reader, memory + (record.body->pages.address - WINDOW), &err));
        } else if (record.type == FLYT_CHECKPOINT_HEAD) {
            flyt_checkpoint_head head = test_head(7, 0);
            assert_string_equal(record.body->head.build, head.build);
            assert_string_equal(record.body->head.program_name, head.program_name);
            assert_string_equal(record.body->head.vm, head.vm);
            assert_string_equal(record.body->head.gpu_type, head.gpu_type);
            assert_memory_equal(record.body->head.id, head.id, sizeof head.id);
            assert_memory_equal(record.body->head.base_hash, head.base_hash, sizeof head.base_hash);
            assert_int_equal(record.body->head.session_id, head.session_id);
            assert_int_equal(record.body->head.pid, head.pid);
            assert_int_equal(record.body->head.sm_count, head.sm_count);
            assert_int_equal(record.body->head.page_bytes, PAGE);
        }
    }
    DO(status);
    test_page(wanted + PAGE, 11);
    test_page(wanted + 3 * PAGE, 3);
    test_page(wanted + 4 * PAGE, 4);
    assert_memory_equal(memory, wanted, FLYT_CHECKPOINT_EXTENT_ALIGN);
    const struct flyt_checkpoint_totals *totals = flyt_checkpoint_reader_totals(reader);
    assert_int_equal(totals->round_count, 2);
    assert_int_equal(totals->slot_count, 2);
    assert_int_equal(totals->slots[0].memory_limit_bytes, 8ull << 30);
    assert_int_equal(totals->extent_count, 1);
    assert_int_equal(totals->allocation_count, 1);
    assert_int_equal(totals->allocation_bytes, 2000);
    assert_int_equal(totals->object_counts[FLYT_CHECKPOINT_STREAM], 1);
    assert_int_equal(totals->object_gone_count, 1);
    assert_int_equal(totals->global_bytes, 6);
    assert_int_equal(totals->constant_count, 1);
    flyt_checkpoint_reader_free(reader);
    free(memory);
    free(wanted);
    free(image.data);
}

/* ---- damage ---- */

static void cut_off_anywhere_is_told(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_ZSTD);
    struct flyt_error err;
    char where[40];

    for (size_t bytes = 0; bytes < image.bytes; bytes++) {
        if (test_read(image.data, bytes, NULL, &err) != -ENODATA)
            fail_msg("%zu of %zu bytes: %s", bytes, image.bytes, err.text);
        snprintf(where, sizeof where, "cut off at byte %zu", bytes);
        assert_non_null(strstr(err.text, where));
    }
    DO(test_read(image.data, image.bytes, NULL, &err));
    free(image.data);
}

static void any_changed_bit_is_told(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_ZSTD);
    struct flyt_error err;

    for (size_t at = 0; at < image.bytes; at++) {
        for (unsigned change = 1; change < 256; change = change == 128 ? 255 : 2 * change) {
            image.data[at] ^= (unsigned char)change;
            if (test_read(image.data, image.bytes, NULL, &err) != -EBADMSG)
                fail_msg("byte %zu ^ %#x: %s", at, change, err.text);
            assert_non_null(strstr(err.text, "image sample: damaged at byte "));
            image.data[at] ^= (unsigned char)change;
        }
    }
    DO(test_read(image.data, image.bytes, NULL, &err));
    free(image.data);
}

/* Contents that are read straight to their place, too. */
static void a_changed_page_is_named(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_NOT);
    struct test_records records = test_split(&image);
    struct flyt_error err;
    unsigned seen = 0;

    for (unsigned i = 0; i < records.count; i++) {
        struct test_bytes *payload = &records.record[i].payload;
        if (records.record[i].type != FLYT_CHECKPOINT_PAGES || payload->bytes != 2 * PAGE)
            continue;
        for (size_t at = 0; at < payload->bytes; at += 4099) {
            payload->data[at] ^= 4;
            assert_int_equal(test_read(image.data, image.bytes, NULL, &err), -EBADMSG);
            assert_non_null(strstr(err.text, "the checksum of 2 pages at 0x200000030000 does not fit"));
            payload->data[at] ^= 4;
            seen++;
        }
    }
    assert_true(seen > 30);
    DO(test_read(image.data, image.bytes, NULL, &err));
    free(image.data);
}

static void what_follows_the_end_is_told(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_LZ4);
    struct flyt_error err;

    image.data[image.bytes] = 0;
    assert_int_equal(test_read(image.data, image.bytes + 1, NULL, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "something follows its end"));
    free(image.data);
}

/* ---- records that no writer writes, with the right checksums ---- */

static int read_records(const struct test_records *records, struct flyt_checkpoint_totals *ret_totals,
                        struct flyt_error *err)
{
    struct test_bytes image = test_join(records);
    int status = test_read(image.data, image.bytes, ret_totals, err);

    free(image.data);
    return status;
}

static void expect_refused(const struct test_records *records, int code, const char *text)
{
    struct flyt_error err = {.code = 0};
    int status = read_records(records, NULL, &err);

    if (status != code || !strstr(err.text, text))
        fail_msg("%d, not %d: '%s' without '%s'", status, code, err.text, text);
}

static void newer_ones_are_refused_in_words(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_ZSTD);
    struct test_records records = test_split(&image), changed = records;
    struct flyt_checkpoint_totals totals;
    struct flyt_error err;
    uint32_t checksum;

    struct test_bytes same = test_join(&records);
    assert_int_equal(same.bytes, image.bytes);
    assert_memory_equal(same.data, image.data, image.bytes);
    same.data[11] = 2;
    checksum = __builtin_bswap32(test_checksum(same.data, 12));
    memcpy(same.data + 12, &checksum, 4);
    assert_int_equal(test_read(same.data, same.bytes, NULL, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "format 2, which is newer than format 1"));
    free(same.data);

    struct test_record unknown = {.type = 99, .flags = 1, .body = {(void *)"anything", 8}};
    unknown.payload = (struct test_bytes){image.data, 1000};
    for (unsigned place = 1; place < records.count; place++) {
        changed = records;
        test_insert(&changed, place, unknown);
        DO(read_records(&changed, &totals, &err));
        assert_int_equal(totals.skipped_count, 1);
        assert_int_equal(totals.page_counts[FLYT_CHECKPOINT_ZSTD], 4);
    }
    unknown.flags = 0;
    changed = records;
    test_insert(&changed, 5, unknown);
    expect_refused(&changed, -ENOTSUP, "records of type 99, which this build does not know; Flyt v1-test wrote it");
    changed = records;
    unknown.flags = 1;
    test_insert(&changed, 0, unknown);
    expect_refused(&changed, -EBADMSG, "its first record is not its head");
    changed = records;
    changed.record[3].flags = 2;
    expect_refused(&changed, -EBADMSG, "beyond its bounds");
    free(image.data);
}

/* Any record doubled, left out, or exchanged with the next one: nothing of it passes that the rules know. */
static void order_is_kept(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_ZSTD);
    struct test_records records = test_split(&image), changed;
    struct flyt_checkpoint_totals totals;
    struct flyt_error err;

    for (unsigned i = 0; i < records.count; i++) {
        uint32_t type = records.record[i].type;
        changed = records;
        test_insert(&changed, i, records.record[i]);
        /* Told twice, these are what they were: the last allocations, the same small global, one more object gone. */
        int status = read_records(&changed, &totals, &err);
        if (type == FLYT_CHECKPOINT_ALLOCATIONS || type == FLYT_CHECKPOINT_GLOBAL ||
            type == FLYT_CHECKPOINT_OBJECT_GONE)
            DO(status);
        else
            assert_int_equal(status, -EBADMSG);
    }
    changed = records;
    test_remove(&changed, test_find(&changed, FLYT_CHECKPOINT_HEAD));
    expect_refused(&changed, -EBADMSG, "not in order");
    changed = records;
    test_remove(&changed, test_find(&changed, FLYT_CHECKPOINT_SLOT));
    expect_refused(&changed, -EBADMSG, "is in no slot's window");
    changed = records;
    test_remove(&changed, test_find(&changed, FLYT_CHECKPOINT_EXTENT));
    expect_refused(&changed, -EBADMSG, "overlaps another one, or what is no extent");
    changed = records;
    test_remove(&changed, test_find(&changed, FLYT_CHECKPOINT_PAGES));
    expect_refused(&changed, -EBADMSG, "pages at 0x200000000000 are missing");
    changed = records;
    test_remove(&changed, test_find(&changed, FLYT_CHECKPOINT_SEQUENCE));
    expect_refused(&changed, -EBADMSG, "not in order");
    changed = records;
    test_remove(&changed, test_find(&changed, FLYT_CHECKPOINT_END));
    expect_refused(&changed, -ENODATA, "the head of a record");
    changed = records;
    unsigned object = test_find(&changed, FLYT_CHECKPOINT_OBJECT);
    changed.record[object] = records.record[object + 1];
    changed.record[object + 1] = records.record[object];
    expect_refused(&changed, -EBADMSG, "comes after one of a higher number");
    changed = records;
    unsigned pages = test_find(&changed, FLYT_CHECKPOINT_PAGES);
    changed.record[pages] = records.record[pages - 1];
    changed.record[pages - 1] = records.record[pages];
    expect_refused(&changed, -EBADMSG, "not in order");
    free(image.data);
}

/* A record of another image in the place of its like: sound by itself, but not of this image. */
static void records_of_another_image_are_told(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_ZSTD);
    struct test_records records = test_split(&image), changed = records;
    unsigned place = test_find(&records, FLYT_CHECKPOINT_SEQUENCE);
    unsigned char body[24];
    struct flyt_error err;

    memcpy(body, records.record[place].body.data, sizeof body);
    body[23] = 9; /* completed */
    changed.record[place].body.data = body;
    struct test_bytes other = test_join(&changed);
    DO(test_read(other.data, other.bytes, NULL, &err));
    size_t at = (size_t)(records.record[place].body.data - image.data) - 40;
    memcpy(image.data + at, other.data + at, 40 + sizeof body);
    assert_int_equal(test_read(image.data, image.bytes, NULL, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "the checksum over all records does not fit"));
    free(other.data);
    free(image.data);
}

/* Numbers beyond their bounds: the body's bytes with one 4-byte word changed, at every place, to several values. None
 * may crash, allocate without bound or pass as another image than its checksums' owner meant. */
static void hostile_numbers_have_bounds(void **state)
{
    static const uint32_t words[] = {0, 1, 0x7fffffff, 0xffffffff, 0x10000, 0x00200000};
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_ZSTD);
    struct test_records records = test_split(&image);
    struct flyt_error err;
    unsigned tried = 0, refused = 0;

    for (unsigned i = 0; i < records.count; i++) {
        struct test_records changed = records;
        size_t bytes = records.record[i].body.bytes;
        unsigned char *body = malloc(bytes);
        changed.record[i].body.data = body;
        for (size_t at = 0; at + 4 <= bytes; at += 4) {
            for (unsigned word = 0; word < sizeof words / sizeof words[0]; word++) {
                uint32_t value = __builtin_bswap32(words[word]);
                memcpy(body, records.record[i].body.data, bytes);
                memcpy(body + at, &value, 4);
                refused += read_records(&changed, NULL, &err) < 0;
                tried++;
            }
        }
        free(body);
    }
    assert_true(tried > 1000);
    assert_true(refused > tried / 4);

    struct test_records changed = records;
    unsigned pages = test_find(&records, FLYT_CHECKPOINT_PAGES);
    changed.record[pages].body.bytes = FLYT_CHECKPOINT_BODY_BYTES_MAX + 4;
    unsigned char *large = calloc(1, FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX + 1);
    changed.record[pages].body.data = large;
    expect_refused(&changed, -EBADMSG, "beyond its bounds");
    changed = records;
    changed.record[pages].payload = (struct test_bytes){large, FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX + 1};
    expect_refused(&changed, -EBADMSG, "beyond its bounds");
    changed = records;
    changed.record[test_find(&records, FLYT_CHECKPOINT_MODULE_IMAGE)].payload = (struct test_bytes){large, 8};
    expect_refused(&changed, -EBADMSG, "another SHA-256");
    free(large);
    free(image.data);
}

/* ---- the writer refuses what the reader would ---- */

static struct flyt_checkpoint_writer *begun(int fd, unsigned parent)
{
    flyt_checkpoint_head head = test_head(1, parent);
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;

    DO(flyt_checkpoint_writer_new(fd, "w", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err));
    DO(flyt_checkpoint_put_slot(writer, 0, 0, &err));
    DO(flyt_checkpoint_put_round(writer, &err));
    DO(flyt_checkpoint_put_extent(writer, WINDOW, FLYT_CHECKPOINT_EXTENT_ALIGN, &err));
    return writer;
}

/* Expects a failed put whose sentence has the text, and that nothing works afterwards. */
static void expect_broken(struct flyt_checkpoint_writer *writer, int status, int code, const struct flyt_error *err,
                          const char *text)
{
    struct flyt_error again;

    assert_int_equal(status, code);
    assert_non_null(strstr(err->text, text));
    assert_int_equal(flyt_checkpoint_put_end(writer, &again), code);
    assert_string_equal(again.text, err->text);
    assert_int_equal(flyt_checkpoint_put_pages(writer, WINDOW, 0, NULL, NULL, &again), code);
    assert_int_equal(flyt_checkpoint_put_run(writer, WINDOW, 0, FLYT_CHECKPOINT_ZERO, NULL, &again), code);
    assert_false(flyt_checkpoint_writer_has_ended(writer));
    flyt_checkpoint_writer_free(writer);
}

static void the_writer_keeps_the_rules(void **state)
{
    flyt_auto_close int fd = test_fd("", 0);
    flyt_checkpoint_sequence sequence = {.received = 1};
    flyt_checkpoint_object object = {.number = 1};
    struct flyt_checkpoint_writer *writer = begun(fd, 0);
    struct flyt_error err;

    int status = flyt_checkpoint_put_sequence(writer, &sequence, &err);
    expect_broken(writer, status, -EINVAL, &err, "32 pages at 0x200000000000 are missing");
    writer = begun(fd, 0);
    status = flyt_checkpoint_put_run(writer, WINDOW, TEST_EXTENT_PAGES + 1, FLYT_CHECKPOINT_ZERO, NULL, &err);
    expect_broken(writer, status, -EINVAL, &err, "are in no extent");
    writer = begun(fd, 0);
    DO(flyt_checkpoint_put_run(writer, WINDOW, 2, FLYT_CHECKPOINT_ZERO, NULL, &err));
    status = flyt_checkpoint_put_run(writer, WINDOW + PAGE, 1, FLYT_CHECKPOINT_ZERO, NULL, &err);
    expect_broken(writer, status, -EINVAL, &err, "come twice in one round");
    writer = begun(fd, 0);
    status = flyt_checkpoint_put_run(writer, WINDOW, 2, FLYT_CHECKPOINT_PARENT, NULL, &err);
    expect_broken(writer, status, -EINVAL, &err, "but it has none");
    writer = begun(fd, 2);
    DO(flyt_checkpoint_put_run(writer, WINDOW, 2, FLYT_CHECKPOINT_PARENT, NULL, &err));
    DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
    status = flyt_checkpoint_put_round(writer, &err);
    expect_broken(writer, status, -EINVAL, &err, "not in order");
    writer = begun(fd, 2); /* its calls were not all complete */
    DO(flyt_checkpoint_put_run(writer, WINDOW, 2, FLYT_CHECKPOINT_PARENT, NULL, &err));
    status = flyt_checkpoint_put_stopped(writer, 3, &err);
    expect_broken(writer, status, -EINVAL, &err, "not in order");
    writer = begun(fd, 2);
    DO(flyt_checkpoint_put_run(writer, WINDOW, 2, FLYT_CHECKPOINT_PARENT, NULL, &err));
    DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
    status = flyt_checkpoint_put_stopped(writer, 3, &err);
    expect_broken(writer, status, -EINVAL, &err, "before its calls were completed");
    writer = begun(fd, 0);
    object.value.value_len = FLYT_CHECKPOINT_OBJECT_BYTES_MAX + 1;
    object.value.value_val = calloc(1, FLYT_CHECKPOINT_OBJECT_BYTES_MAX + 1);
    status = flyt_checkpoint_put_object(writer, &object, &err);
    expect_broken(writer, status, -EINVAL, &err, "longer than its bound");
    free(object.value.value_val);
    writer = begun(fd, 0);
    status = flyt_checkpoint_put_extent(writer, WINDOW + 2 * FLYT_CHECKPOINT_EXTENT_ALIGN, 4096, &err);
    expect_broken(writer, status, -EINVAL, &err, "is in no slot's window");
}

/* ---- hashes alone, and counts ---- */

static struct flyt_checkpoint_writer *begun_with_key(int fd, bool has_key)
{
    flyt_checkpoint_head head = test_head(1, 0);
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;

    DO(flyt_checkpoint_writer_new(fd, "w", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err));
    DO(flyt_checkpoint_put_slot(writer, 0, 0, &err));
    if (has_key)
        DO(flyt_checkpoint_put_hash_key(writer, "0123456789abcdef", &err));
    DO(flyt_checkpoint_put_round(writer, &err));
    return writer;
}

/* More than one record takes; a reader that does not know them passes over them. */
static void hashes_of_pages_that_are_elsewhere(void **state)
{
    enum { COUNT = FLYT_CHECKPOINT_HASHED_PAGES_MAX + 7, BYTES = COUNT * FLYT_CHECKPOINT_PAGE_HASH_BYTES };
    const flyt_checkpoint_sequence sequence = {7, 7, 7};
    const flyt_checkpoint_counts counts = {1, 2, 3, 4, 5, 6};
    const flyt_checkpoint_settings settings = {7, 8, 9, 10, 11, 12};
    const flyt_checkpoint_tallies tallies = {{{17, 2, 3}, {18, 0, 0}, {255, 4, 5}}};
    flyt_auto_close int fd = test_fd("", 0);
    unsigned char *hashes = malloc(BYTES), *back = calloc(1, BYTES);
    struct flyt_checkpoint_writer *writer = begun_with_key(fd, true);
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    struct flyt_error err;
    uint64_t page_count = 0;
    int status;

    for (size_t i = 0; i < BYTES; i++)
        hashes[i] = (unsigned char)(i * 2654435761u >> 13);
    DO(flyt_checkpoint_put_hashes(writer, WINDOW + PAGE, COUNT, hashes, &err));
    DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
    DO(flyt_checkpoint_put_stopped(writer, 3, &err));
    DO(flyt_checkpoint_put_counts(writer, &counts, &err));
    DO(flyt_checkpoint_put_settings(writer, &settings, &err));
    DO(flyt_checkpoint_put_tallies(writer, &tallies, &err));
    DO(flyt_checkpoint_put_end(writer, &err));
    assert_int_equal(flyt_checkpoint_writer_totals(writer)->hashed_page_count, COUNT);
    flyt_checkpoint_writer_free(writer);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    DO(flyt_checkpoint_reader_new(fd, "r", true, &reader, &err));
    while ((status = flyt_checkpoint_next(reader, &record, &err)) > 0) {
        if (record.type == FLYT_CHECKPOINT_COUNTS)
            assert_memory_equal(&record.body->counts, &counts, sizeof counts);
        if (record.type == FLYT_CHECKPOINT_SETTINGS)
            assert_memory_equal(&record.body->settings, &settings, sizeof settings);
        if (record.type == FLYT_CHECKPOINT_TALLIES)
            assert_memory_equal(&record.body->tallies, &tallies, sizeof tallies);
        if (record.type != FLYT_CHECKPOINT_HASHES)
            continue;
        assert_true(record.body->hashes.address == WINDOW + PAGE + page_count * PAGE);
        assert_int_equal(record.place_bytes, record.body->hashes.page_count * FLYT_CHECKPOINT_PAGE_HASH_BYTES);
        DO(flyt_checkpoint_place(reader, back + page_count * FLYT_CHECKPOINT_PAGE_HASH_BYTES, &err));
        page_count += record.body->hashes.page_count;
    }
    DO(status);
    assert_int_equal(page_count, COUNT);
    assert_memory_equal(back, hashes, BYTES);
    assert_int_equal(flyt_checkpoint_reader_totals(reader)->hashed_page_count, COUNT);
    assert_true(flyt_checkpoint_reader_totals(reader)->has_counts);
    assert_true(flyt_checkpoint_reader_totals(reader)->has_settings);
    assert_true(flyt_checkpoint_reader_totals(reader)->has_tallies);
    flyt_checkpoint_reader_free(reader);

    struct test_bytes image = test_contents(fd);
    struct test_records records = test_split(&image);
    for (unsigned i = 0; i < records.count; i++)
        if (records.record[i].type >= FLYT_CHECKPOINT_HASHES)
            records.record[i].type += 1000;
    struct flyt_checkpoint_totals totals;
    struct test_bytes other = test_join(&records);
    DO(test_read(other.data, other.bytes, &totals, &err));
    assert_true(totals.skipped_count == 5 && !totals.has_tallies && !totals.hashed_page_count && !totals.has_counts &&
                !totals.has_settings);
    free(other.data);
    free(image.data);
    free(hashes);
    free(back);
}

static void hashes_and_counts_that_cannot_be(void **state)
{
    const struct {
        uint64_t address, page_count;
        const char *words;
    } cases[] = {
        {WINDOW + 1, 1, "make no sense"},
        {WINDOW - PAGE, 1, "make no sense"},
        {WINDOW, 1, "overlap"}, /* it was told before */
        {WINDOW + (1ull << 40) - PAGE, 2, "make no sense"},
        {0x210000000000, 1, "make no sense"}, /* of a slot that there is not */
    };
    const flyt_checkpoint_sequence sequence = {7, 7, 7};
    const flyt_checkpoint_counts counts = {1, 2, 3, 4, 5, 6};
    const char hashes[2 * FLYT_CHECKPOINT_PAGE_HASH_BYTES] = "some";
    flyt_auto_close int fd = test_fd("", 0);
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;
    int status;

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        writer = begun_with_key(fd, true);
        DO(flyt_checkpoint_put_hashes(writer, WINDOW, 1, hashes, &err));
        status = flyt_checkpoint_put_hashes(writer, cases[i].address, cases[i].page_count, hashes, &err);
        expect_broken(writer, status, -EINVAL, &err, cases[i].words);
    }
    writer = begun_with_key(fd, false);
    status = flyt_checkpoint_put_hashes(writer, WINDOW, 1, hashes, &err);
    expect_broken(writer, status, -EINVAL, &err, "without their key");
    writer = begun_with_key(fd, false);
    DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
    status = flyt_checkpoint_put_counts(writer, &counts, &err);
    expect_broken(writer, status, -EINVAL, &err, "before that it has stopped");
    writer = begun_with_key(fd, false);
    DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
    DO(flyt_checkpoint_put_stopped(writer, 3, &err));
    DO(flyt_checkpoint_put_counts(writer, &counts, &err));
    status = flyt_checkpoint_put_counts(writer, &counts, &err);
    expect_broken(writer, status, -EINVAL, &err, "told twice");
    for (unsigned count = 0; count < 2; count++) {
        const flyt_checkpoint_settings settings = {0};
        writer = begun_with_key(fd, false);
        DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
        DO(flyt_checkpoint_put_stopped(writer, 3, &err));
        if (count)
            DO(flyt_checkpoint_put_counts(writer, &counts, &err));
        if (count)
            DO(flyt_checkpoint_put_settings(writer, &settings, &err));
        status = flyt_checkpoint_put_settings(writer, &settings, &err);
        expect_broken(writer, status, -EINVAL, &err, count ? "told twice" : "before what it had");
    }
    const flyt_checkpoint_tallies bad[] = {{{{17, 1, 0}}}, {{{17, 1, 0}, {17, 1, 0}}}, {{{256, 1, 0}}}};
    for (unsigned i = 0; i < 3; i++) {
        const flyt_checkpoint_settings settings = {0};
        writer = begun_with_key(fd, false);
        DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
        DO(flyt_checkpoint_put_stopped(writer, 3, &err));
        DO(flyt_checkpoint_put_counts(writer, &counts, &err));
        if (i) /* the first makes sense, but comes before */
            DO(flyt_checkpoint_put_settings(writer, &settings, &err));
        status = flyt_checkpoint_put_tallies(writer, &bad[i], &err);
        expect_broken(writer, status, -EINVAL, &err, i ? "make no sense" : "before what it had set");
    }
}

/* Once, and it is there when the image is read. */
static void what_had_stopped_is_told(void **state)
{
    const flyt_checkpoint_sequence sequence = {7, 7, 7};
    struct flyt_checkpoint_totals totals;
    struct flyt_error err;

    for (unsigned count = 0; count < 3; count++) {
        flyt_auto_close int fd = test_fd("", 0);
        struct flyt_checkpoint_writer *writer = begun(fd, 2);
        int status = 0;
        DO(flyt_checkpoint_put_run(writer, WINDOW, 2, FLYT_CHECKPOINT_PARENT, NULL, &err));
        DO(flyt_checkpoint_put_sequence(writer, &sequence, &err));
        for (unsigned i = 0; i < count; i++)
            status = flyt_checkpoint_put_stopped(writer, 3, &err);
        if (count == 2) {
            expect_broken(writer, status, -EINVAL, &err, "has stopped twice");
            continue;
        }
        DO(flyt_checkpoint_put_end(writer, &err));
        flyt_checkpoint_writer_free(writer);
        struct test_bytes image = {calloc(1, 1 << 20), 0};
        assert_true(lseek(fd, 0, SEEK_SET) == 0);
        image.bytes = (size_t)read(fd, image.data, 1 << 20);
        DO(test_read(image.data, image.bytes, &totals, &err));
        assert_int_equal(totals.has_stopped, count);
        assert_int_equal(totals.error_count, 3 * count);
        assert_int_equal(totals.skipped_count, 0);
        free(image.data);
    }
}

static void a_full_disk_is_told(void **state)
{
    flyt_auto_close int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    flyt_checkpoint_head head = test_head(1, 0);
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;

    assert_true(full >= 0);
    assert_int_equal(flyt_checkpoint_writer_new(full, "here", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err), -ENOSPC);
    assert_string_equal(err.text, "image here: at byte 0: it cannot be written: No space left on device");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_crc32c),
        cmocka_unit_test(everything_comes_back),
        cmocka_unit_test(later_rounds_override),
        cmocka_unit_test(cut_off_anywhere_is_told),
        cmocka_unit_test(any_changed_bit_is_told),
        cmocka_unit_test(a_changed_page_is_named),
        cmocka_unit_test(what_follows_the_end_is_told),
        cmocka_unit_test(newer_ones_are_refused_in_words),
        cmocka_unit_test(order_is_kept),
        cmocka_unit_test(records_of_another_image_are_told),
        cmocka_unit_test(what_had_stopped_is_told),
        cmocka_unit_test(hashes_of_pages_that_are_elsewhere),
        cmocka_unit_test(hashes_and_counts_that_cannot_be),
        cmocka_unit_test(hostile_numbers_have_bounds),
        cmocka_unit_test(the_writer_keeps_the_rules),
        cmocka_unit_test(a_full_disk_is_told),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
