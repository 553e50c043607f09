/* What both sides of a piece of managed memory have agreed on: which units of the host's are found to be changed, and
 * what of the GPU's bytes is taken over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/client/managed/block.h"

struct piece {
    struct flyt_managed_block block;
    char *host;
};

static void make(struct piece *piece, uint64_t bytes, bool is_large)
{
    piece->host = aligned_alloc(FLYT_MANAGED_UNIT_BYTES, (bytes + FLYT_MANAGED_UNIT_BYTES - 1) /
                                                             FLYT_MANAGED_UNIT_BYTES * FLYT_MANAGED_UNIT_BYTES);
    assert_non_null(piece->host);
    memset(piece->host, 0, bytes);
    assert_true(flyt_managed_block_init(&piece->block, (uintptr_t)piece->host, bytes, is_large));
    assert_int_equal(flyt_managed_block_is_large(&piece->block), is_large);
}

static void end(struct piece *piece)
{
    flyt_managed_block_fini(&piece->block);
    free(piece->host);
}

/* The runs of changed units as "first-end first-end ", in units. */
static const char *changes(const struct piece *piece, uint64_t bytes_max)
{
    static char text[256];
    uint64_t next = 0, at, bytes, unit_bytes = flyt_managed_unit_bytes(&piece->block);
    int used = 0;

    *text = 0;
    while ((bytes = flyt_managed_next_change(&piece->block, piece->block.bytes, bytes_max, &next, &at)))
        used += snprintf(text + used, sizeof text - (size_t)used, "%d-%d ", (int)(at / unit_bytes),
                         (int)((at + bytes + unit_bytes - 1) / unit_bytes));
    return text;
}

static void agree_all(struct piece *piece)
{
    for (uint64_t at = 0; at < piece->block.bytes; at += flyt_managed_unit_bytes(&piece->block))
        flyt_managed_agree(&piece->block, at, piece->host + at);
}

static void changes_of_the_host(struct piece *piece, uint64_t bytes)
{
    const uint64_t unit_bytes = flyt_managed_unit_bytes(&piece->block);

    assert_string_equal(changes(piece, UINT64_MAX), "");
    piece->host[0] = 1;
    piece->host[2 * unit_bytes - 1] = 2;
    piece->host[bytes - 1] = 3;
    assert_string_equal(changes(piece, UINT64_MAX), "0-2 9-10 ");
    assert_string_equal(changes(piece, unit_bytes), "0-1 1-2 9-10 ");
    agree_all(piece);
    assert_string_equal(changes(piece, UINT64_MAX), "");
    piece->host[unit_bytes] ^= 1;
    assert_string_equal(changes(piece, UINT64_MAX), "1-2 ");
    piece->host[unit_bytes] ^= 1; /* and back */
    assert_string_equal(changes(piece, UINT64_MAX), "");
    memset(piece->host, 7, bytes);
    assert_string_equal(changes(piece, UINT64_MAX), "0-10 ");
    assert_string_equal(changes(piece, 4 * unit_bytes), "0-4 4-8 8-10 ");
}

/* What the GPU has not changed does not overwrite what the host has. */
static void bytes_of_the_gpu(struct piece *piece, uint64_t bytes)
{
    const uint64_t unit_bytes = flyt_managed_unit_bytes(&piece->block);
    char *theirs = malloc(bytes);

    assert_non_null(theirs);
    memset(piece->host, 5, bytes);
    agree_all(piece);
    memset(theirs, 5, bytes);
    theirs[3 * unit_bytes + 17] = 6;
    theirs[bytes - 1] = 8;
    piece->host[0] = 9;
    flyt_managed_take(&piece->block, 0, theirs, bytes);
    assert_int_equal(piece->host[0], 9);
    assert_int_equal(piece->host[3 * unit_bytes + 17], 6);
    assert_int_equal(piece->host[bytes - 1], 8);
    assert_int_equal(piece->host[5 * unit_bytes], 5);
    assert_string_equal(changes(piece, UINT64_MAX), "0-1 ");
    theirs[4 * unit_bytes] = 1;
    flyt_managed_take(&piece->block, 4 * unit_bytes, theirs + 4 * unit_bytes, unit_bytes);
    assert_int_equal(piece->host[4 * unit_bytes], 1);
    free(theirs);
}

static void small_pieces(void **state)
{
    const uint64_t bytes = 9 * FLYT_MANAGED_UNIT_BYTES + 5; /* the last unit is a short one */
    struct piece piece;

    make(&piece, bytes, false);
    changes_of_the_host(&piece, bytes);
    bytes_of_the_gpu(&piece, bytes);
    end(&piece);
    make(&piece, 1, false);
    piece.host[0] = 1;
    assert_string_equal(changes(&piece, UINT64_MAX), "0-1 ");
    end(&piece);
}

static void large_pieces(void **state)
{
    struct piece piece;

    make(&piece, 10 * FLYT_PAGE_BYTES, true);
    changes_of_the_host(&piece, 10 * FLYT_PAGE_BYTES);
    bytes_of_the_gpu(&piece, 10 * FLYT_PAGE_BYTES);
    end(&piece);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_pieces), cmocka_unit_test(large_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
