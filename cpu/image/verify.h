/*
 * Reads image files from the first byte to the last and applies nothing: so that a restore can be refused before it has
 * begun. Contents of pages are read and checked by several threads (contents.h), which all have ended when it returns.
 * Checks everything that reader.h checks, unpacks what is packed, and follows parents in the same folder.
 */
#ifndef FLYT_IMAGE_VERIFY_H
#define FLYT_IMAGE_VERIFY_H

#include "cpu/image/reader.h"

/* What a file holds, as far as it was read. */
struct flyt_checkpoint_summary {
    bool has_head;
    flyt_checkpoint_head head; /* its texts belong to the summary */
    struct flyt_checkpoint_totals totals;
    uint64_t stream_bytes;
    uint64_t inherited_page_count; /* that its parent has, and it has not */
    uint32_t parent_count;         /* images that it builds on, which were read too and are sound */
    unsigned char *parent_ids;     /* FLYT_CHECKPOINT_ID_BYTES of each, the nearest first */
};

/* The path of the image of this id in the folder of the image `path`; malloc'ed; NULL: no memory. */
char *flyt_checkpoint_path_beside(const char *path, const void *id);

/*
 * Verifies one file, and where with_parents is set all that it builds on: each must be there under the id that its
 * child names, be sound itself, and have the pages that are left to it. 0; -ENOENT: the file, or a parent, is not
 * there; otherwise as flyt_checkpoint_next; err has the sentence. *ret_summary is filled in every case, as far as the
 * file itself was read: end it with flyt_checkpoint_summary_fini.
 */
int flyt_checkpoint_verify(const char *path, bool with_parents, struct flyt_checkpoint_summary *ret_summary,
                           struct flyt_error *err);
void flyt_checkpoint_summary_fini(struct flyt_checkpoint_summary *summary);

#endif
