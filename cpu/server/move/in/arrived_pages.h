/*
 * Whether what a session has in its memory has arrived here: another server has copied it, by connection access, to
 * memory that was made here (MAKE, MIRROR in rpc/transport/manager_link.h), and has told, with the state (save.h), the
 * hashes of what is there. All of it is hashed here, where it lies, and compared: pages that were sent once and those
 * that were sent often, zeros and those that the program has never written. One page that differs, or that was not
 * told, and the session cannot go on here.
 *
 * It is done while the program stands still, at the speed of the memory (32 GiB in about 10 ms on an H200); what it
 * needs is made with the first memory on a GPU, before anything is copied there. Memory on each GPU, until the state
 * was compared: 4 MiB, not charged.
 *
 * Before there is a session; one thread. What is compared is mapped (flyt_adopted_extents_place).
 */
#ifndef FLYT_SERVER_ARRIVED_H
#define FLYT_SERVER_ARRIVED_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/move/in/adopted_extents.h"
#include "rpc/base/error.h"
#include "rpc/base/page_hash.h"

struct flyt_arrived_pages; /* session->prepare->arrived; NULL: nothing is compared */
struct flyt_session;

/* Memory was made on the device: makes what hashes it, where it is not there yet, which takes tens of milliseconds.
 * What fails is tried again when it is needed. */
void flyt_arrived_pages_make_page_reader(struct flyt_session *session, unsigned ordinal);

/* The state has come: the key of its hashes. Functions below return 0 or a negative errno with a sentence: -ENOMEM,
 * -EIO: the driver's error, or what is here is not what was there; -EBADMSG: there is no such memory. */
int flyt_arrived_pages_begin(struct flyt_session *session, const void *key, struct flyt_error *err);
/* The hashes of page_count pages from the address on, which are of one extent; behind flyt_arrived_pages_begin. They
 * are kept until there are as many as fit into a launch on the GPU, and compared then, or at the end. */
int flyt_arrived_pages_compare(struct flyt_session *session, const struct flyt_adopted_extents *adopted,
                               uint64_t address, uint64_t page_count, const struct flyt_page_hash *hashes,
                               struct flyt_error *err);
/* All of the state has come, which had no memory of its own: whether the hashes, if there was a key (an older server
 * tells none), were those of all pages. */
int flyt_arrived_pages_end(struct flyt_session *session, const struct flyt_adopted_extents *adopted,
                           struct flyt_error *err);

/* Frees everything. Nothing where there is nothing. */
void flyt_arrived_pages_free(struct flyt_session *session);
/* Frees what is in host memory, and wipes the key; the rest goes with the process. */
void flyt_arrived_pages_fini(struct flyt_session *session);

#endif
