/*
 * What is known about the pages of a device's extents while they are being sent elsewhere, to another GPU or into an
 * image: for each page the hash of the bytes that were sent last, and whether there are any.
 *
 * The rule on which everything rests: the hash kept for a page is that of the bytes that were SENT, never that of what
 * was seen in the page, because the page may have changed between the look and the copy, and may change back. So:
 *
 *   1. flyt_page_table_look gives what the table has, to be hashed in place (flyt_page_batch_look).
 *   2. flyt_page_table_compare, with what was seen of each page, collects runs of pages that differ from what was sent.
 *      (Before the first round nothing was sent: flyt_page_table_collect gives all of it without a look.)
 *   3. flyt_page_table_begin says that a run, or a part of it, is being sent.
 *      A run of other than zero pages is copied and hashed in one (flyt_page_batch_copy), and the copy is sent;
 *      a run of zero pages need not be: telling the other side that they are zero sends zeros.
 *   4. When the other side has it, flyt_page_table_sent takes over the hash of each page of the copy, or
 *      flyt_page_table_sent_zeros that of zeros. When it does not arrive, flyt_page_table_lost.
 *
 * Again from 1, while the program runs, until little is left; then, with the program stopped and its work drained, for
 * the last time. What the other side has is exact where flyt_page_table_is_exact of a look that began after the drain.
 *
 * What cannot be got wrong: a flyt_page_seen is not a flyt_page_sent (page_hasher.h), only runs that this table gave
 * can be begun, only begun ones can be sent, each page once at a time, and a run of an extent that was given back
 * meanwhile is refused even if another extent is at its place. What remains the caller's: to send the copy that was
 * hashed, to call flyt_page_table_sent only when it has arrived, and to apply what was sent in the order in which it
 * was begun.
 *
 * 17 bytes for each page: 8.5 MiB for 32 GiB. One thread at a time.
 */
#ifndef FLYT_SERVER_PAGE_TABLE_H
#define FLYT_SERVER_PAGE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/move/common/page_hasher.h"

enum { FLYT_PAGE_EXTENTS_MAX = 4096 };

/* Extents, and so the table, are in multiples of this. */
#define FLYT_PAGE_EXTENT_BYTES (2ull << 20)

struct flyt_page_extent;

struct flyt_page_table {
    struct flyt_page_extent *extents; /* by address */
    unsigned extent_count, extent_capacity;
    uint64_t last_number; /* of extents */
    struct flyt_page_hash zero;
    /* To be read by anybody: how many pages there are, never (or in vain) sent, and on their way. */
    uint64_t pages_count, unsent_count, sending_count;
};

/* Neighbouring pages of one extent that are to be sent. A part of it may be made by hand: the number stays. */
struct flyt_page_run {
    uint64_t address;
    uint64_t pages_count;
    uint64_t extent_number;
    bool is_zero; /* all of them were, when they were seen */
};

/* The runs of one look, in order; zeroed to begin with. */
struct flyt_page_runs {
    struct flyt_page_run *items;
    uint64_t count, capacity;
    uint64_t pages_count, zero_pages_count; /* of all of them */
    uint64_t compared_count, on_way_count;  /* pages that were compared; of them those that were on their way */
    unsigned last_extent;                   /* where the last one was */
};

void flyt_page_runs_clear(struct flyt_page_runs *runs);
void flyt_page_runs_fini(struct flyt_page_runs *runs);

/* zero: the hash of the all-zero page under the key in use (flyt_page_hasher_zero). */
void flyt_page_table_init(struct flyt_page_table *table, const struct flyt_page_hash *zero);
void flyt_page_table_fini(struct flyt_page_table *table);

/* A new extent, of which nothing was sent. 0; -EINVAL: not multiples of FLYT_PAGE_EXTENT_BYTES, none, or beyond the
 * address space; -EEXIST: part of it is there; -ENOSPC: FLYT_PAGE_EXTENTS_MAX are; -ENOMEM. */
int flyt_page_table_add(struct flyt_page_table *table, uint64_t address, uint64_t bytes);
/* The extent that begins at the address is given back: nothing of it is known any more. 0 or -ENOENT. */
int flyt_page_table_remove(struct flyt_page_table *table, uint64_t address);

/* The other side has the page at the address already, with this hash (NULL: it is zero): as if it had been sent. 0;
 * -ENOENT: there is no such page; -EBUSY: it was sent, or is on its way. */
int flyt_page_table_inherit(struct flyt_page_table *table, uint64_t address, const struct flyt_page_hash *hash);

/* Whether there is an extent that begins at the address. */
bool flyt_page_table_has(const struct flyt_page_table *table, uint64_t address);

/*
 * Extent n of the table, by address, below extent_count: where it begins, how many pages it has, and the hash of what
 * was sent of each, which is good until something of the table changes. NULL, and nothing is told, while anything of
 * the table was not sent, or is on its way.
 */
const struct flyt_page_hash *flyt_page_table_hashes(const struct flyt_page_table *table, unsigned n,
                                                    uint64_t *ret_address, uint64_t *ret_pages_count);

/*
 * What to look at next: ranges from *cursor on (0 to begin with), at most ranges_max (1 or more) of them with
 * pages_max (1 or more) pages in all. *cursor becomes where to go on. Their number; 0: the end.
 */
uint32_t flyt_page_table_look(const struct flyt_page_table *table, uint64_t *cursor, uint64_t pages_max,
                              uint32_t ranges_max, struct flyt_page_range *ret_ranges);

/*
 * Appends the page at the address to the runs where what was seen of it is not what was sent. Pages that are on their
 * way are left out, as their turn comes in the next round, and those of extents that are gone. 0 or -ENOMEM: nothing
 * was appended.
 */
int flyt_page_table_compare(const struct flyt_page_table *table, uint64_t address, struct flyt_page_seen seen,
                            struct flyt_page_runs *runs);
/* Appends all pages of which nothing was sent or is on its way, as not zero; none counts as compared. 0 or -ENOMEM. */
int flyt_page_table_collect(const struct flyt_page_table *table, struct flyt_page_runs *runs);

/* The run is being sent from now on: what is copied after this call. 0; -ESTALE: its extent is gone; -EBUSY: one of its
 * pages is on its way; -EINVAL: it is not within its extent. Nothing has changed then. */
int flyt_page_table_begin(struct flyt_page_table *table, const struct flyt_page_run *run);

/* The copy of page n of a run that was begun, with this hash, is where it was sent to. 0; -ESTALE: its extent is gone,
 * and what was sent with it; -EINVAL: no such page, or it is not on its way. */
int flyt_page_table_sent(struct flyt_page_table *table, const struct flyt_page_run *run, uint64_t n,
                         struct flyt_page_sent sent);
/* The other side has made all pages of a run that was begun zero. As flyt_page_table_sent. */
int flyt_page_table_sent_zeros(struct flyt_page_table *table, const struct flyt_page_run *run);
/* Of a run that was begun, the pages that are still on their way are not going to arrive, or in part: nothing is known
 * of what the other side has there. 0; -ESTALE; -EINVAL: it is not within its extent. */
int flyt_page_table_lost(struct flyt_page_table *table, const struct flyt_page_run *run);

/* The runs were cleared before a look at all pages, each was compared once, and all of them are as they were sent. */
bool flyt_page_table_is_exact(const struct flyt_page_table *table, const struct flyt_page_runs *runs);

#endif
