/*
 * Where the pages of an image file are: of each page of each extent that is left at its end, which record has it, and
 * the hash that came with it. Read without the pages' contents, which are passed over and not checked.
 *
 * Memory: 21 bytes for each page; FLYT_PAGE_INDEX_PAGES_MAX of them at most. One thread at a time.
 */
#ifndef FLYT_IMAGE_PAGE_INDEX_H
#define FLYT_IMAGE_PAGE_INDEX_H

#include "cpu/image/reader.h"

enum {
    FLYT_PAGE_INDEX_PAGES_MAX = 1 << 24, /* 1 TiB of memory */

    FLYT_PAGE_IS_ZERO = 1,
    FLYT_PAGE_HAS_HASH = 2,
};

struct flyt_indexed_extent {
    uint64_t address, page_count;
    uint32_t *records;     /* of each page: the record's number and 1; 0: the image has not got it, its parent may */
    unsigned char *flags;  /* of each page */
    unsigned char *hashes; /* FLYT_CHECKPOINT_PAGE_HASH_BYTES of each page, where it has one: also of pages that the
                              parent has */
};

struct flyt_page_index {
    struct flyt_indexed_extent *extents; /* by address */
    uint32_t extent_count, extent_capacity;
    uint64_t page_count;
    unsigned char id[FLYT_CHECKPOINT_ID_BYTES], parent_id[FLYT_CHECKPOINT_ID_BYTES];
    uint64_t session_id;
    uint32_t page_hash; /* version of the hashes; 0: none */
    bool has_hash_key;
    unsigned char hash_key[FLYT_CHECKPOINT_HASH_KEY_BYTES];
};

/*
 * Reads the image from the beginning of the file. name: what errors call it. 0; -EFBIG: it has too many pages; else as
 * flyt_checkpoint_next. On success free with fini.
 */
int flyt_page_index_read(int fd, const char *name, struct flyt_page_index *ret_index, struct flyt_error *err);
/* A zeroed one may be given. */
void flyt_page_index_fini(struct flyt_page_index *index);

/* The extent that the page at the address is in; NULL: none. */
struct flyt_indexed_extent *flyt_page_index_find(const struct flyt_page_index *index, uint64_t address);
/* The extent that is exactly this; NULL: none. */
const struct flyt_indexed_extent *flyt_page_index_match(const struct flyt_page_index *index, uint64_t address,
                                                        uint64_t bytes);

#endif
