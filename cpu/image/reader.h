/*
 * Reads a checkpoint image from a descriptor, record by record, without believing any of it: every byte is under a
 * checksum, every number has a bound, and the order is that of rules.h. Reads exactly the image's bytes, so that a
 * socket can be used for something else behind it.
 *
 *     while ((status = flyt_checkpoint_next(reader, &record, err)) > 0)
 *         …a record; place its payload where it belongs with flyt_checkpoint_place…
 *
 * Only status 0, after the END record, says that the image is whole: until then nothing of it may be used for good
 * (flyt_checkpoint_verify reads a file to its end without keeping anything).
 *
 * Memory: less than FLYT_CHECKPOINT_READER_BYTES_MAX, and what rules.h names. All functions return 0 (next: 1 for a
 * record) or a negative errno, and then a sentence that names the image and the byte: -ENODATA: it ends too early;
 * -EBADMSG: it is damaged or breaks the rules; -ENOTSUP: a newer format, or a record that this build must understand
 * and does not; -ENOMEM; or that of read(2). Every later call gives the same. The descriptor is blocking and stays the
 * caller's. One thread at a time.
 */
#ifndef FLYT_IMAGE_READER_H
#define FLYT_IMAGE_READER_H

#include "cpu/image/packing.h"
#include "cpu/image/rules.h"

/* Body, its decoded form, payload, unpacked pages. */
enum {
    FLYT_CHECKPOINT_READER_BYTES_MAX =
        3 * FLYT_CHECKPOINT_BODY_BYTES_MAX + 2 * FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX + 65536
};

struct flyt_checkpoint_reader;

/* What next gives; its pointers live until the next call. */
struct flyt_checkpoint_record {
    flyt_checkpoint_type type;
    const union flyt_checkpoint_body *body;
    uint64_t place_bytes; /* that place fills: of pages raw, whatever their encoding; 0: there are none */
    uint64_t stream_offset_bytes;
    uint64_t payload_offset_bytes; /* where its bytes are, as they lie */
    uint32_t payload_bytes, payload_checksum;
};

/* name: what errors call it, copied. must_end: the descriptor has to end with the image, as a file does, which is
 * refused where contents are elsewhere. Reads nothing yet. On success free with flyt_checkpoint_reader_free. */
int flyt_checkpoint_reader_new(int fd, const char *name, bool must_end, struct flyt_checkpoint_reader **ret_reader,
                               struct flyt_error *err);
/*
 * The descriptor does not block (O_NONBLOCK): `wait` is called where nothing is there, and waits until there is. 0, or
 * a negative errno with a clause ("nothing was heard …"), with which reading fails.
 */
void flyt_checkpoint_reader_set_wait(struct flyt_checkpoint_reader *reader,
                                     int (*wait)(void *user, struct flyt_error *err), void *user);
/* It is not read from the descriptor, but by `read`, which does not block: the bytes, 0 at the end, -EAGAIN or another
 * negative errno. `wait`: as above. Not with must_end. */
void flyt_checkpoint_reader_set_source(struct flyt_checkpoint_reader *reader,
                                       ssize_t (*read)(void *user, void *place, size_t bytes),
                                       int (*wait)(void *user, struct flyt_error *err), void *user);
/* Of a file: contents of pages, and hashes alone, that nobody places are passed over from now on, unread and not
 * checked.
 */
void flyt_checkpoint_reader_skim(struct flyt_checkpoint_reader *reader);
/* NULL is allowed. Returns NULL. */
struct flyt_checkpoint_reader *flyt_checkpoint_reader_free(struct flyt_checkpoint_reader *reader);

/* 1 and a record; 0 after the last one, everything having been right; or a negative errno. What was not placed of the
 * record before is read and checked all the same. */
int flyt_checkpoint_next(struct flyt_checkpoint_reader *reader, struct flyt_checkpoint_record *ret_record,
                         struct flyt_error *err);
/* Puts the current record's bytes, place_bytes of them, to `place`: once for each record. Of pages of the parent
 * nothing is written (place_bytes is 0). Raw bytes are read straight to their place: on failure anything may be there.
 */
int flyt_checkpoint_place(struct flyt_checkpoint_reader *reader, void *place, struct flyt_error *err);

/* What came so far. Both live as long as the reader. */
const struct flyt_checkpoint_totals *flyt_checkpoint_reader_totals(const struct flyt_checkpoint_reader *reader);
const struct flyt_page_map *flyt_checkpoint_reader_pages(const struct flyt_checkpoint_reader *reader);
/* Pages of all rounds. */
uint64_t flyt_checkpoint_reader_page_count(const struct flyt_checkpoint_reader *reader);
uint64_t flyt_checkpoint_reader_bytes(const struct flyt_checkpoint_reader *reader);

#endif
