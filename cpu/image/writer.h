/*
 * Writes a checkpoint image to a descriptor: a file (file.h makes one that is there whole or not at all) or a socket.
 *
 * Order of calls: new; put_slot; then for each round put_round, extents, allocations, module images and objects,
 * globals, pages; at last put_sequence, put_stopped, put_counts, put_settings, put_tallies and put_end. A file has one
 * round, a migration as many as it takes: what comes later overrides. The rules (rules.h) are those of the reader:
 * nothing is written that it would refuse.
 *
 * Every put writes before it returns and blocks as the descriptor does; page contents go out by writev(2) without a
 * copy. The descriptor is blocking; it stays the caller's and is not closed. SIGPIPE and SIGXFSZ must be ignored, or a
 * closed socket or a full quota ends the process.
 *
 * All functions return 0 or a negative errno: that of write(2); -EINVAL: the rules forbid it, or it exceeds a bound;
 * -ENOMEM. err (not NULL) then has a sentence. After a failure the image is worthless and every put gives the same one.
 * One thread at a time; pointers are read during the call only.
 */
#ifndef FLYT_IMAGE_WRITER_H
#define FLYT_IMAGE_WRITER_H

#include <sys/uio.h>

#include "checkpoint.h"
#include "cpu/image/packing.h"
#include "cpu/image/rules.h"
#include "rpc/base/error.h"

struct flyt_checkpoint_writer;

/* name: what errors call it, copied. head: page_bytes is set here. Writes the beginning. On success free with
 * flyt_checkpoint_writer_free. */
int flyt_checkpoint_writer_new(int fd, const char *name, const flyt_checkpoint_head *head,
                               enum flyt_checkpoint_packing packing, struct flyt_checkpoint_writer **ret_writer,
                               struct flyt_error *err);
/*
 * The same with a descriptor that may not block (O_NONBLOCK): where it takes nothing, a put waits until it does, or
 * until cancel_fd is readable, and then fails with -ECANCELED.
 */
int flyt_checkpoint_writer_new_cancellable(int fd, int cancel_fd, const char *name, const flyt_checkpoint_head *head,
                                           enum flyt_checkpoint_packing packing,
                                           struct flyt_checkpoint_writer **ret_writer, struct flyt_error *err);
/* The same where no descriptor takes what is written, but `send`: all of the parts, which it may change. 0 or a
 * negative errno, with which writing fails. */
int flyt_checkpoint_writer_new_sending(int (*send)(void *user, struct iovec *parts, unsigned count), void *user,
                                       const char *name, const flyt_checkpoint_head *head,
                                       enum flyt_checkpoint_packing packing, struct flyt_checkpoint_writer **ret_writer,
                                       struct flyt_error *err);
/* How pages are packed from now on: not, or as the image was begun. */
void flyt_checkpoint_writer_pack(struct flyt_checkpoint_writer *writer, enum flyt_checkpoint_packing packing);
/* NULL is allowed. Returns NULL. */
struct flyt_checkpoint_writer *flyt_checkpoint_writer_free(struct flyt_checkpoint_writer *writer);

/* The slot's window is where this build has it (rpc/base/id.h). */
int flyt_checkpoint_put_slot(struct flyt_checkpoint_writer *writer, unsigned slot, uint64_t memory_limit_bytes,
                             struct flyt_error *err);
/* Beside the slots, once, where there are hashes (FLYT_CHECKPOINT_HASH_KEY_BYTES). */
int flyt_checkpoint_put_hash_key(struct flyt_checkpoint_writer *writer, const void *key, struct flyt_error *err);
int flyt_checkpoint_put_round(struct flyt_checkpoint_writer *writer, struct flyt_error *err);
int flyt_checkpoint_put_extent(struct flyt_checkpoint_writer *writer, uint64_t address, uint64_t bytes,
                               struct flyt_error *err);
/* With its pages. Allocations must be told again then. */
int flyt_checkpoint_put_extent_gone(struct flyt_checkpoint_writer *writer, uint64_t address, struct flyt_error *err);
/* All that there are, by address. Replaces those of an earlier round. */
int flyt_checkpoint_put_allocations(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_range *ranges,
                                    uint64_t range_count, struct flyt_error *err);
/* Each image once, found by its SHA-256 (FLYT_CHECKPOINT_SHA256_BYTES in ret_sha256): a second time nothing is written.
 */
int flyt_checkpoint_put_module_image(struct flyt_checkpoint_writer *writer, const void *image, uint64_t bytes,
                                     unsigned char *ret_sha256, struct flyt_error *err);
int flyt_checkpoint_put_object(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_object *object,
                               struct flyt_error *err);
int flyt_checkpoint_put_object_gone(struct flyt_checkpoint_writer *writer, uint64_t number, struct flyt_error *err);
/* `bytes` of the contents, from global->offset_bytes on: all of them, or pieces in order, with nothing between. */
int flyt_checkpoint_put_global(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_global *global,
                               const void *contents, uint64_t bytes, struct flyt_error *err);
/* page_count pages of FLYT_CHECKPOINT_PAGE_BYTES. hashes: FLYT_CHECKPOINT_PAGE_HASH_BYTES of each, or NULL. Pages of
 * zeros are found and take no room. Each page at most once in a round. */
int flyt_checkpoint_put_pages(struct flyt_checkpoint_writer *writer, uint64_t address, uint64_t page_count,
                              const void *contents, const void *hashes, struct flyt_error *err);
/* Pages without contents: FLYT_CHECKPOINT_ZERO, or FLYT_CHECKPOINT_PARENT, which undoes those of an earlier round. */
int flyt_checkpoint_put_run(struct flyt_checkpoint_writer *writer, uint64_t address, uint64_t page_count,
                            flyt_checkpoint_encoding encoding, const void *hashes, struct flyt_error *err);
/* Hashes of pages that the image has not (FLYT_CHECKPOINT_PAGE_HASH_BYTES of each), last in a round, by address; behind
 * put_hash_key. */
int flyt_checkpoint_put_hashes(struct flyt_checkpoint_writer *writer, uint64_t address, uint64_t page_count,
                               const void *hashes, struct flyt_error *err);
/*
 * From node to node, behind the slots and before the first round: how many further connections there are, and the key
 * of the hashes (FLYT_CHECKPOINT_HASH_KEY_BYTES). Then who reads answers (answer.h).
 */
int flyt_checkpoint_put_streams(struct flyt_checkpoint_writer *writer, unsigned stream_count, const void *hash_key,
                                struct flyt_error *err);
/* Pages whose contents go over one of them, behind those of the last number. hashes: of each. *ret_number: which they
 * are (frame.h). */
int flyt_checkpoint_put_elsewhere(struct flyt_checkpoint_writer *writer, unsigned stream,
                                  const flyt_checkpoint_run *runs, uint32_t run_count, const void *hashes,
                                  uint64_t *ret_number, struct flyt_error *err);
/* Nothing is to be written, and there will be more. */
int flyt_checkpoint_put_alive(struct flyt_checkpoint_writer *writer, uint64_t idle_ms, struct flyt_error *err);
/* Without a parent every page of every extent must have come. */
int flyt_checkpoint_put_sequence(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_sequence *sequence,
                                 struct flyt_error *err);
/* Behind put_sequence with three times the same number, where the program has stopped there; at most once. */
int flyt_checkpoint_put_stopped(struct flyt_checkpoint_writer *writer, uint64_t error_count, struct flyt_error *err);
/* Behind put_stopped; at most once. */
int flyt_checkpoint_put_counts(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_counts *counts,
                               struct flyt_error *err);
/* Behind put_counts; at most once. */
int flyt_checkpoint_put_settings(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_settings *settings,
                                 struct flyt_error *err);
/* Behind put_settings; at most once. */
int flyt_checkpoint_put_tallies(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_tallies *tallies,
                                struct flyt_error *err);
int flyt_checkpoint_put_end(struct flyt_checkpoint_writer *writer, struct flyt_error *err);

/* What was put so far. Lives as long as the writer. */
const struct flyt_checkpoint_totals *flyt_checkpoint_writer_totals(const struct flyt_checkpoint_writer *writer);
/* Pages of all rounds. */
uint64_t flyt_checkpoint_writer_pages(const struct flyt_checkpoint_writer *writer);
/* How many pages are left to the parent now. */
uint64_t flyt_checkpoint_writer_kept_pages(const struct flyt_checkpoint_writer *writer);
/* Whether put_end has written the last record. */
bool flyt_checkpoint_writer_has_ended(const struct flyt_checkpoint_writer *writer);
uint64_t flyt_checkpoint_writer_bytes(const struct flyt_checkpoint_writer *writer);

#endif
