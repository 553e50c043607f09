/*
 * The region of a session whose client is on this host (rpc/base/region.h), and which of its pages are
 * page-locked: the GPU copies from and to these alone. Where the session goes on at another server, its client brings
 * its region there, and has its pages locked again.
 *
 * A server of the same node where it is about to go on has the region before its client, from the server that the
 * session leaves, and what is locked there it locks ahead, while the program runs. The pages are the same ones: they
 * are locked twice, and there once. So each server counts them for itself, and its bound is that of the session; in the
 * ledger of what the VM has page-locked (session->locked_ledger) the session has one entry, which the server that it
 * leaves has charged, and the next one takes as it is with the client, until the session has gone on. What
 * the client then brings is compared with what there is, and pages that were locked ahead count as locked when it asks.
 * The other server tells of each piece that it unlocks: the client takes its pages out of the file then, and what would
 * be locked here is nobody's.
 *
 * Locking and unlocking take the driver long, so that threads of the worker do it, or a server that has no session yet;
 * everything here is the submission thread's.
 */
#ifndef FLYT_SERVER_REGION_H
#define FLYT_SERVER_REGION_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/region.h"

struct flyt_manager_link_locks;
struct flyt_manager_link_locks_done;
struct flyt_manager_link_piece;
struct flyt_region_place;
struct flyt_session;

enum { FLYT_REGION_LOCKS_MAX = 65536 };
/* In the environment: bytes that a session may have page-locked (--locked-memory); none: no bound. */
#define FLYT_LOCKED_MEMORY "FLYT_LOCKED_MEMORY"

/* Pages that were locked, or are about to be, with one driver call. */
struct flyt_region_lock {
    uint64_t offset_bytes, bytes;
    bool is_usable;        /* the driver has locked them, and nobody has asked to unlock them */
    uint64_t told_move_id; /* the move whose next server was told of them; 0: none */
};

struct flyt_session_region {
    struct flyt_region region;
    int fd;                         /* of its file, for the next server; -1: that has the VM's */
    bool is_ahead;                  /* its client has not brought it here (yet): no call names it */
    struct flyt_region_lock *locks; /* by their offsets; they do not overlap */
    unsigned lock_count, lock_capacity;
    uint64_t locked_bytes, locked_bytes_max; /* of all of them */
    uint64_t charged_bytes; /* in the VM's ledger, to the session: as many, and while it comes what it had elsewhere */
    bool is_reached;        /* kernels may have addresses of it */
};

/* Takes what the client has brought as the session's region, in place of one that is here ahead and is another one; fd
 * stays the caller's. 0, also where it is that already; -EEXIST: the session has another one; or a negative errno of
 * flyt_region_map or fcntl(2). */
int flyt_session_region_take(struct flyt_session *session, int fd);
/* The same with the memory that the session's VM shares with this machine, which its client says that it has. 0, also
 * where it is that already; -EEXIST; or a negative errno of flyt_region_map_vm. From then on the process survives what
 * becomes of the file (flyt_session_region_is_cut). */
int flyt_session_region_take_vm(struct flyt_session *session);
/* Whether a place that the client names for rings is the session's: 0; -EBUSY: another one has some of it; or as
 * flyt_region_check_rings. Then where it is, in *ret_place; it is the session's as long as the server's rings are. */
int flyt_session_region_claim_rings(struct flyt_session *session, const struct flyt_region_place *place,
                                    void **ret_place);
/* Whether somebody has cut the VM's file: what is read and written there is nobody else's from then on, and the session
 * is to end. */
bool flyt_session_region_is_cut(const struct flyt_session *session);
/* Whether kernels of all devices reach what is locked of it, by the addresses that it has here: its own place. */
bool flyt_session_region_is_mapped(const struct flyt_session *session);
/* Whether kernels may have addresses of it. */
bool flyt_session_region_is_reached(const struct flyt_session *session);
/* Unmaps it. There may be none. Nothing is locked any more, or nobody will use the driver. */
void flyt_session_region_fini(struct flyt_session *session);

/* Notes pages that are about to be locked. 0; -EINVAL: not whole pages of the region, or some of them are noted
 * already; -ENOMEM: too many, more than the VM may have of its host, or no memory; -EBUSY: another session of the VM
 * has some of them. */
int flyt_session_region_add(struct flyt_session *session, uint32_t region_id, uint64_t offset_bytes, uint64_t bytes);
/* The note of exactly these pages; NULL: there is none. Valid until the next add or remove. */
struct flyt_region_lock *flyt_session_region_find(struct flyt_session *session, uint32_t region_id,
                                                  uint64_t offset_bytes, uint64_t bytes);
void flyt_session_region_remove(struct flyt_session *session, uint64_t offset_bytes);
/* The same, and other sessions of the VM may have them: no server of this one has them page-locked. */
void flyt_session_region_release(struct flyt_session *session, uint64_t offset_bytes);

/* The page-locking itself (cuMemHostRegister, cuMemHostUnregister), as devices[0]'s primary context: the driver's
 * code. Any thread; they block. */
CUresult flyt_session_region_register(const struct flyt_session *session, uint64_t offset_bytes, uint64_t bytes);
CUresult flyt_session_region_unregister(const struct flyt_session *session, uint64_t offset_bytes);

/* The pages once more at an address that the driver has reserved, and has nothing mapped at, page-locked there, too;
 * and the end of that. CUDA_ERROR_OUT_OF_MEMORY, or the driver's code. */
CUresult flyt_session_region_map_again(struct flyt_session *session, uint64_t offset_bytes, uint64_t bytes,
                                       uint64_t address);
CUresult flyt_session_region_unmap_again(struct flyt_session *session, uint64_t address, uint64_t bytes);

/* ---- ahead of its client ---- */

/*
 * LOCKS, of a server that has made the contexts of a session that is to go on here: takes its region (fd, which stays
 * the caller's; -1: the VM's), and locks its pieces, or unlocks them. No piece has to be good. Blocks for
 * FLYT_REGION_AHEAD_MS and one piece at most: what is not locked by then, is beyond the bound or is refused by the
 * driver is locked when the client asks for it. *ret_done, but for its move_id, says how many; of is_gone nothing.
 */
enum { FLYT_REGION_AHEAD_MS = 30000 };
/* A larger one is locked when the session has come: locking it would hold up the move for seconds. */
#define FLYT_REGION_AHEAD_PIECE_BYTES_MAX (16ull << 30)
void flyt_session_region_lock_ahead(struct flyt_session *session, const struct flyt_manager_link_locks *locks,
                                    const struct flyt_manager_link_piece *pieces, int fd,
                                    struct flyt_manager_link_locks_done *ret_done);
/* The session has gone on here: what it had page-locked elsewhere, and has not here, is its VM's again. */
void flyt_session_region_resumed(struct flyt_session *session);
/* In each round of the loop, of a session that has gone on: where its client has not brought the region, one more piece
 * is unlocked, and with the last one the region goes. Whether there is more. */
bool flyt_session_region_settle(struct flyt_session *session);

/* Where a span begins in this process; NULL: some of it does not lie in pages that are usable, locked at one time. */
char *flyt_session_region_place(const struct flyt_session *session, uint32_t region_id,
                                const struct flyt_region_span *span);

#endif
