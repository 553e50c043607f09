/*
 * Images for tests: a small one with every type of record, and its bytes taken apart and put together again, with
 * checksums of our own, so that records can be made that no writer would write. Everything asserts by itself.
 */
#ifndef FLYT_IMAGE_TEST_IMAGE_H
#define FLYT_IMAGE_TEST_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/image/reader.h"
#include "cpu/image/writer.h"

struct test_bytes {
    unsigned char *data;
    size_t bytes;
};

/* A head whose id is all `id` and whose parent all `parent` (0: none); made at the time `id`. */
flyt_checkpoint_head test_head(unsigned id, unsigned parent);

/* One page of the sample: its contents by a formula, of few different bytes. */
void test_page(unsigned char *ret_page, unsigned seed);

enum { TEST_EXTENT_PAGES = FLYT_CHECKPOINT_EXTENT_ALIGN / FLYT_CHECKPOINT_PAGE_BYTES };

/* A small image with every type of record, two rounds; the first extent of slot 0 stays, of its 32 pages 1, 3 and 4
 * have contents (test_page of 11, 3, 4), all else is zero. Its id is all 7. */
void test_put_sample(struct flyt_checkpoint_writer *writer);
struct test_bytes test_sample(enum flyt_checkpoint_packing packing);

/* One for a server of another node, with two further connections: of the pages of its one extent some are in the image,
 * some elsewhere, in two rounds. */
struct test_bytes test_stream_sample(void);

/* A descriptor from which the bytes can be read, from the beginning. */
int test_fd(const void *data, size_t bytes);
/* Everything that a descriptor holds, from the beginning. */
struct test_bytes test_contents(int fd);

/* Reads an image whole and drops it. 0 or the error. */
int test_read(const void *data, size_t bytes, struct flyt_checkpoint_totals *ret_totals, struct flyt_error *err);

struct test_record {
    uint32_t type, flags;
    struct test_bytes body, payload; /* into the image that it came from, unless changed */
};

enum { TEST_RECORDS_MAX = 64 };

struct test_records {
    struct test_record record[TEST_RECORDS_MAX];
    unsigned count;
};

struct test_records test_split(const struct test_bytes *image);
/* Numbers, checksums and the END record's totals and digest are made anew. */
struct test_bytes test_join(const struct test_records *records);
/* The first record of the type. */
unsigned test_find(const struct test_records *records, uint32_t type);
void test_insert(struct test_records *records, unsigned place, struct test_record record);
void test_remove(struct test_records *records, unsigned place);

uint32_t test_checksum(const void *data, size_t bytes);

#endif
