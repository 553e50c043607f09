/*
 * What goes from node to node: an image whose contents are elsewhere, frames and answers; and everything that is none
 * of these.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/image/answer.h"
#include "cpu/image/frame.h"
#include "cpu/image/test_image.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"

enum { PAGE = FLYT_CHECKPOINT_PAGE_BYTES };

/* As a stream. */
static int read_stream(const void *data, size_t bytes, struct flyt_checkpoint_totals *ret_totals,
                       struct flyt_error *err)
{
    flyt_auto_close int fd = test_fd(data, bytes);
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    int status;

    assert_int_equal(flyt_checkpoint_reader_new(fd, "sample", false, &reader, err), 0);
    while ((status = flyt_checkpoint_next(reader, &record, err)) > 0)
        continue;
    if (ret_totals)
        *ret_totals = *flyt_checkpoint_reader_totals(reader);
    flyt_checkpoint_reader_free(reader);
    return status;
}

static void an_image_tells_what_is_elsewhere(void **state)
{
    struct test_bytes image = test_stream_sample();
    struct flyt_checkpoint_totals totals;
    struct flyt_error err = {0};

    assert_int_equal(read_stream(image.data, image.bytes, &totals, &err), 0);
    assert_true(totals.has_streams);
    assert_int_equal(totals.stream_count, 2);
    assert_int_equal(totals.elsewhere_page_count, 5);
    assert_int_equal(totals.page_counts[FLYT_CHECKPOINT_RAW], 1);
    assert_int_equal(test_read(image.data, image.bytes, NULL, &err), -ENOTSUP); /* it is no file */
    assert_non_null(strstr(err.text, "another node"));
    free(image.data);
}

static void every_cut_and_every_changed_bit_is_found(void **state)
{
    struct test_bytes image = test_stream_sample();
    struct flyt_error err;

    for (size_t bytes = 0; bytes < image.bytes; bytes += bytes < 2000 ? 1 : 997)
        assert_int_equal(read_stream(image.data, bytes, NULL, &err), -ENODATA);
    for (size_t at = 0; at < image.bytes; at += at < 2000 ? 1 : 997) {
        image.data[at] ^= (unsigned char)(1u << at % 8);
        assert_true(read_stream(image.data, image.bytes, NULL, &err) < 0);
        image.data[at] ^= (unsigned char)(1u << at % 8);
    }
    assert_int_equal(read_stream(image.data, image.bytes, NULL, &err), 0);
    free(image.data);
}

/* The body of a record as XDR, into `body`. */
static struct test_record encode(uint32_t type, xdrproc_t xdr, void *what, unsigned char *body, size_t room)
{
    XDR xdrs;

    xdrmem_create(&xdrs, (char *)body, (u_int)room, XDR_ENCODE);
    assert_true(xdr(&xdrs, what));
    return (struct test_record){.type = type, .body = {body, xdr_getpos(&xdrs)}};
}

/* The sample with this in the place of its first record of that type; what reading it says. */
static int read_with(struct test_record record)
{
    struct test_bytes image = test_stream_sample();
    struct test_records records = test_split(&image);
    struct flyt_error err = {0};

    records.record[test_find(&records, record.type)] = record;
    struct test_bytes joined = test_join(&records);
    int status = read_stream(joined.data, joined.bytes, NULL, &err);
    assert_true(!status || *err.text);
    free(joined.data);
    free(image.data);
    return status;
}

static int read_with_streams(unsigned stream_count)
{
    flyt_checkpoint_streams streams = {.stream_count = stream_count};
    unsigned char body[64];

    return read_with(
        encode(FLYT_CHECKPOINT_STREAMS, (xdrproc_t)xdr_flyt_checkpoint_streams, &streams, body, sizeof body));
}

/* hash_bytes 0: as many as the pages need. */
static int read_with_runs(unsigned stream, uint64_t number, const flyt_checkpoint_run *runs, unsigned run_count,
                          uint32_t hash_bytes)
{
    static char hashes[FLYT_CHECKPOINT_BATCH_HASHES_BYTES_MAX];
    static unsigned char body[16384];
    flyt_checkpoint_elsewhere batch = {.stream = stream, .number = number};

    batch.runs.runs_val = (flyt_checkpoint_run *)runs;
    batch.runs.runs_len = run_count;
    batch.hashes.hashes_val = hashes;
    batch.hashes.hashes_len = hash_bytes;
    for (unsigned i = 0; !hash_bytes && i < run_count; i++)
        batch.hashes.hashes_len += runs[i].page_count * FLYT_CHECKPOINT_PAGE_HASH_BYTES;
    if (batch.hashes.hashes_len > sizeof hashes)
        batch.hashes.hashes_len = sizeof hashes;
    return read_with(
        encode(FLYT_CHECKPOINT_ELSEWHERE, (xdrproc_t)xdr_flyt_checkpoint_elsewhere, &batch, body, sizeof body));
}

static void records_that_break_the_rules_are_refused(void **state)
{
    const uint64_t base = flyt_window_base(0);
    const flyt_checkpoint_run good[] = {{base, 1}, {base + 2 * PAGE, 3}};
    const flyt_checkpoint_run odd = {base + 1, 4}, none = {base, 0}, outside = {base + 40 * PAGE, 4};
    const flyt_checkpoint_run many = {base, 257}, twice[] = {{base, 2}, {base, 2}};
    const flyt_checkpoint_run apart[] = {{base, 1}, {flyt_window_base(1), 3}}, huge = {base, UINT32_MAX};

    assert_int_equal(read_with_streams(2), 0);
    assert_int_equal(read_with_streams(FLYT_CHECKPOINT_STREAMS_MAX), 0);
    assert_int_equal(read_with_streams(FLYT_CHECKPOINT_STREAMS_MAX + 1), -EBADMSG);
    assert_int_equal(read_with_streams(1), -EBADMSG); /* the second one is used */
    assert_int_equal(read_with_runs(1, 1, good, 2, 0), 0);
    assert_int_equal(read_with_runs(2, 1, good, 2, 0), 0);
    assert_int_equal(read_with_runs(0, 1, good, 2, 0), -EBADMSG);
    assert_int_equal(read_with_runs(3, 1, good, 2, 0), -EBADMSG);
    assert_int_equal(read_with_runs(1, 2, good, 2, 0), -EBADMSG);
    assert_int_equal(read_with_runs(1, 0, good, 2, 0), -EBADMSG);
    assert_int_equal(read_with_runs(1, 1, good, 1, 0), -EBADMSG); /* pages are missing at the end */
    assert_int_equal(read_with_runs(1, 1, good, 2, 48), -EBADMSG);
    assert_int_equal(read_with_runs(1, 1, NULL, 0, 16), -EBADMSG);
    assert_int_equal(read_with_runs(1, 1, &odd, 1, 0), -EBADMSG);
    assert_int_equal(read_with_runs(1, 1, &none, 1, 16), -EBADMSG);
    assert_int_equal(read_with_runs(1, 1, &outside, 1, 0), -EBADMSG);
    assert_int_equal(read_with_runs(1, 1, &many, 1, 0), -EBADMSG);
    assert_int_equal(read_with_runs(1, 1, &huge, 1, 0), -EBADMSG);
    assert_int_equal(read_with_runs(1, 1, twice, 2, 0), -EBADMSG);
    assert_int_equal(read_with_runs(1, 1, apart, 2, 0), -EBADMSG);
}

/* What belongs to a stream stands in no other image, and its beginning only there. */
static void records_out_of_place_are_refused(void **state)
{
    struct test_bytes stream = test_stream_sample(), plain = test_sample(FLYT_CHECKPOINT_PACK_NOT), joined;
    struct test_records records, others = test_split(&stream);
    struct flyt_error err;
    const uint32_t types[] = {FLYT_CHECKPOINT_ALIVE, FLYT_CHECKPOINT_ELSEWHERE};

    for (unsigned i = 0; i < 2; i++) {
        records = test_split(&plain);
        test_insert(&records, test_find(&records, FLYT_CHECKPOINT_SEQUENCE),
                    others.record[test_find(&others, types[i])]);
        joined = test_join(&records);
        assert_int_equal(read_stream(joined.data, joined.bytes, NULL, &err), -EBADMSG);
        free(joined.data);
    }
    for (unsigned i = 0; i < 2; i++) { /* twice; behind the first round */
        records = test_split(&stream);
        const struct test_record streams = records.record[test_find(&records, FLYT_CHECKPOINT_STREAMS)];
        if (i)
            test_remove(&records, test_find(&records, FLYT_CHECKPOINT_STREAMS));
        test_insert(&records, test_find(&records, i ? FLYT_CHECKPOINT_EXTENT : FLYT_CHECKPOINT_ROUND), streams);
        joined = test_join(&records);
        assert_int_equal(read_stream(joined.data, joined.bytes, NULL, &err), -EBADMSG);
        free(joined.data);
    }
    free(stream.data);
    free(plain.data);
}

/* ---- frames ---- */

static bool is_taken(struct flyt_frame frame)
{
    unsigned char bytes[FLYT_FRAME_HEAD_BYTES];
    struct flyt_frame read;

    flyt_frame_put(&frame, bytes);
    if (!flyt_frame_get(bytes, &read))
        return false;
    assert_memory_equal(&read, &frame, sizeof frame);
    return true;
}

static void frames_are_what_was_put(void **state)
{
    const struct flyt_frame frame = {.number = 0x123456789abcdef0,
                                     .first_page = 192,
                                     .page_count = 64,
                                     .encoding = FLYT_CHECKPOINT_RAW,
                                     .payload_bytes = 64 * PAGE};
    unsigned char bytes[FLYT_FRAME_HEAD_BYTES];
    struct flyt_frame wrong, read;

    assert_true(is_taken(frame));
    flyt_frame_put(&frame, bytes);
    for (unsigned bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_false(flyt_frame_get(bytes, &read));
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
#define WRONG(member, value) (wrong = frame, wrong.member = (value), assert_false(is_taken(wrong)))
    WRONG(number, 0);
    WRONG(first_page, 193);
    WRONG(first_page, UINT32_MAX);
    WRONG(page_count, 0);
    WRONG(page_count, 65);
    WRONG(page_count, UINT32_MAX);
    WRONG(payload_bytes, 64 * PAGE - 1);
    WRONG(payload_bytes, 0);
    WRONG(encoding, FLYT_CHECKPOINT_ZERO);
    WRONG(encoding, FLYT_CHECKPOINT_PARENT);
    WRONG(encoding, (flyt_checkpoint_encoding)99);
    WRONG(encoding, FLYT_CHECKPOINT_LZ4); /* not smaller */
    wrong = frame;
    wrong.encoding = FLYT_CHECKPOINT_ZSTD;
    wrong.payload_bytes = 1;
    assert_true(is_taken(wrong));
}

/* ---- answers ---- */

static void answers_are_what_was_put(void **state)
{
    struct flyt_answer answer = {.is_final = true, .status = -EIO, .sequence = 1, .extent_count = 2, .page_count = 3};
    unsigned char bytes[FLYT_ANSWER_BYTES_MAX + 1];
    struct flyt_answer read;

    memset(answer.sentence, 'x', FLYT_CHECKPOINT_TEXT_BYTES_MAX);
    size_t count = flyt_answer_put(&answer, bytes);
    assert_true(count <= FLYT_ANSWER_BYTES_MAX);
    for (size_t bytes_there = 0; bytes_there < count; bytes_there++)
        assert_int_equal(flyt_answer_get(bytes, bytes_there, &read), 0);
    assert_int_equal(flyt_answer_get(bytes, count + 1, &read), count);
    assert_int_equal(read.status, -EIO);
    assert_true(read.is_final);
    assert_int_equal(read.sequence, 1);
    assert_int_equal(read.extent_count, 2);
    assert_int_equal(read.page_count, 3);
    assert_string_equal(read.sentence, answer.sentence);
    for (size_t bit = 0; bit < 8 * count; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(flyt_answer_get(bytes, count, &read), -EBADMSG);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    answer.status = 1; /* no error */
    count = flyt_answer_put(&answer, bytes);
    assert_int_equal(flyt_answer_get(bytes, count, &read), -EBADMSG);
    answer = (struct flyt_answer){.is_final = false, .status = -EIO}; /* not yet, and why not */
    count = flyt_answer_put(&answer, bytes);
    assert_int_equal(flyt_answer_get(bytes, count, &read), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_tells_what_is_elsewhere),
        cmocka_unit_test(every_cut_and_every_changed_bit_is_found),
        cmocka_unit_test(records_that_break_the_rules_are_refused),
        cmocka_unit_test(records_out_of_place_are_refused),
        cmocka_unit_test(frames_are_what_was_put),
        cmocka_unit_test(answers_are_what_was_put),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
