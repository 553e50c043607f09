/*
 * Device memory: the device's window of addresses, the extents of physical memory that are mapped into it, and their
 * division into the program's allocations.
 *
 * The window is reserved at the same place in the program and in its server, before any context is made. Extents are
 * created exportable. Allocations of up to 1 MiB share extents; larger ones are whole multiples of 2 MiB. Memory that
 * the program frees is used again when all work that was submitted before is done, and some of it stays mapped, so that
 * allocating and freeing in turn costs no driver call.
 *
 * Where the session has pads, the window's first granule is mapped before the first extent, clear, and never handed
 * out: programs read a row before their first allocation, and on a GPU there is something of the driver's. It is the
 * server's and not charged, is no extent, and does not move: the next server makes one with its first extent.
 */
#ifndef FLYT_SERVER_MEMORY_H
#define FLYT_SERVER_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/cuda/account.h"
#include "cpu/server/cuda/allocator.h"
#include "flyt.h"
#include "rpc/base/error.h"

struct flyt_device;
struct flyt_driver;
struct flyt_session;

enum { FLYT_EXTENTS_MAX = 4096 };

#define FLYT_GRANULE_BYTES     (2ull << 20) /* of mapping */
#define FLYT_SMALL_BYTES_MAX   (1ull << 20)
#define FLYT_SMALL_ALIGN_BYTES 512ull
#define FLYT_CACHED_BYTES_MAX  (1ull << 30) /* free, but mapped */

struct flyt_account_debt;
struct flyt_pending_free;

/* Physical memory, mapped into the window as one piece. */
struct flyt_extent {
    struct flyt_extent *next;
    uint64_t address, bytes;
    CUmemGenericAllocationHandle handle;
    struct flyt_allocator *arena; /* that divides it; NULL: not known yet (memory_resume.c) */
    uint64_t extent_id;           /* as the node manager knows it; 0: it does not */
    struct flyt_fence *cleared;   /* reached when it is (scrub.h); NULL: it is */
    bool is_allowed;              /* of a session that goes on: its device may access it already */
};

struct flyt_memory {
    struct flyt_allocator addresses;    /* of the window, in granules */
    struct flyt_allocator small, large; /* of what is mapped */
    struct flyt_allocator whole;        /* each extent in one piece: physical memory (physical.h) */
    bool is_pad_tried;                  /* there is a pad, or there is no memory for it, or an extent is in its place */
    struct flyt_fence *pad_cleared;     /* as an extent's */
    struct flyt_extent *imports;        /* other sessions' (ipc.h): none of the numbers below counts them */
    unsigned import_count;
    struct flyt_allocator imported; /* each import in one piece */
    struct flyt_extent *extents;
    unsigned extent_count;
    uint64_t extent_bytes;                                  /* of all of them */
    struct flyt_pending_free *pending_first, *pending_last; /* freed, but work may still use it */
    uint64_t pending_bytes;
    struct flyt_account_debt *debts; /* extents that were given back and are not credited (account.h) */
    struct flyt_account_need need;   /* what the VM's other servers were asked for (account.h) */
    uint64_t attempt;                /* the call for which memory is being looked for: its sequence number */
    struct flyt_extent **given;      /* by address: extents of a session that goes on, until it does; NULL: none */
    unsigned given_count;
    /* An allocation is freed, or physical memory; NULL: nobody wants to know (families.c). */
    void (*freed)(struct flyt_device *device, uint64_t address, uint64_t bytes);
    bool is_copied;  /* free extents were kept because they are being read (copying.h): they can go soon */
    bool is_sinking; /* more is in use than a lowered limit allows: nothing is kept for later */
};

/* Reserves the device's window. 0, or -EADDRINUSE with a sentence in *err. */
int flyt_memory_init(struct flyt_device *device, struct flyt_error *err);

/* Frees the books; what is mapped goes with the process. */
void flyt_memory_fini(struct flyt_device *device);

/* CUDA_SUCCESS and *ret_address; CUDA_ERROR_INVALID_VALUE: no bytes; CUDA_ERROR_OUT_OF_MEMORY: nothing is left behind;
 * CUDA_ERROR_NOT_READY: not now, but freed memory is still to come. The device's context is current. */
CUresult flyt_memory_alloc(struct flyt_device *device, uint64_t bytes, uint64_t *ret_address);
/* CUDA_SUCCESS or CUDA_ERROR_INVALID_VALUE: no allocation begins there. sequence: of the call, above that of every
 * earlier one. */
CUresult flyt_memory_free(struct flyt_device *device, uint64_t address, uint64_t sequence);
/*
 * An extent of its own, of whole granules, for physical memory (physical.h). sequence: of the call. As
 * flyt_memory_alloc; the extent stays the device's. Freed, of which no work may be under way any more, it goes as soon
 * as nothing reads it.
 */
CUresult flyt_memory_create_whole(struct flyt_device *device, uint64_t sequence, uint64_t bytes,
                                  struct flyt_extent **ret_extent);
void flyt_memory_free_whole(struct flyt_device *device, const struct flyt_extent *extent);
/* Frees all allocations of the device, physical memory apart, on which no work is running any more. */
void flyt_memory_reset(struct flyt_device *device);
/* Charges what the driver is to take for itself, after what is free here is given back for it. CUDA_SUCCESS,
 * CUDA_ERROR_OUT_OF_MEMORY, or CUDA_ERROR_NOT_READY, as flyt_memory_alloc. */
CUresult flyt_memory_reserve(struct flyt_device *device, uint64_t bytes);
/* Takes back freed memory that no work uses any more. */
void flyt_memory_reap(struct flyt_device *device);
/* Whether what a call with a lower sequence number frees is not free yet: the call is deferred, or work may still use
 * the memory. */
bool flyt_memory_is_freeing(const struct flyt_device *device, uint64_t before_sequence);
/* Gives back what is free. when_free: also what is freed from now on, as long as more is in use than is allowed. */
void flyt_memory_give_back(struct flyt_device *device, bool when_free);
/* Tells the program, where it wants to know, by how much more memory is in use than a lowered limit allows. */
void flyt_memory_tell_over_budget(struct flyt_device *device);
/* To be called now and then: for what else would wait for the program's next call. */
void flyt_memory_settle(struct flyt_device *device);
/* The node manager is back: tells it of all extents. holds_nothing: it has let go of all that it held. */
void flyt_memory_tell_extents(struct flyt_device *device, bool holds_nothing);
/* Memory that could still be allocated, and the device's in all: of the session's allocation, where it has one. The
 * driver's error. */
CUresult flyt_memory_info(struct flyt_device *device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes);
/* Lets another device (or no longer) access all memory of this one. The driver's error: it has no access then, but for
 * what the driver does not take back. */
CUresult flyt_memory_set_peer(struct flyt_device *device, const struct flyt_device *peer, bool is_enabled);

/* Lets the device, and those that may access its memory, access the range, which is mapped. The driver's error. */
CUresult flyt_memory_allow(struct flyt_device *device, uint64_t address, uint64_t bytes);

/* ---- memory_resume.c: a session that goes on has memory already ---- */

/*
 * Maps physical memory, imported into this process, at the address where it was, which is in the device's window and,
 * like bytes, in whole granules. Its contents stay, and it is charged and known to the node manager already, under
 * extent_id. is_mapped: it is there already, and its device may access it. Nobody may access another one before
 * flyt_memory_allow_adopted. CUDA_SUCCESS: the handle is the device's; CUDA_ERROR_INVALID_VALUE: another extent is
 * there; CUDA_ERROR_OUT_OF_MEMORY: more than FLYT_EXTENTS_MAX, or no host memory; or the driver's error.
 */
CUresult flyt_memory_adopt(struct flyt_device *device, uint64_t extent_id, uint64_t address, uint64_t bytes,
                           CUmemGenericAllocationHandle handle, bool is_mapped);
/* All of the device's extents have been adopted: lets it access those that it may not yet, which lie side by side in
 * one step, because there may be thousands. The driver's error. */
CUresult flyt_memory_allow_adopted(struct flyt_device *device);
/*
 * The range is an allocation of the session's, as large as it was asked for or as that was rounded: that tells whether
 * it is one of those that share extents. CUDA_ERROR_INVALID_VALUE: it does not lie in adopted extents as such an
 * allocation would, or overlaps another: nothing has changed; CUDA_ERROR_OUT_OF_MEMORY: no host memory.
 */
CUresult flyt_memory_restore(struct flyt_device *device, uint64_t address, uint64_t bytes);
/* The adopted extent is physical memory. CUDA_ERROR_INVALID_VALUE: there is no such one, or it has allocations. */
CUresult flyt_memory_restore_whole(struct flyt_device *device, uint64_t address, uint64_t bytes,
                                   struct flyt_extent **ret_extent);
/* All allocations are there: what of the adopted extents is in none is free. CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY:
 * no host memory; to be tried again. */
CUresult flyt_memory_settle_adopted(struct flyt_device *device);

/*
 * Whether the range lies in one allocation or variable of the session, so that the driver may be given it; the device
 * that it is on is *ret_device. bytes = 0 is in every allocation.
 */
bool flyt_memory_covers(struct flyt_session *session, uint64_t address, uint64_t bytes,
                        struct flyt_device **ret_device);
/* cuMemCreate for an extent of the GPU's: exportable, and for decompression where the GPU has that. The driver's error.
 */
CUresult flyt_memory_create(const struct flyt_driver *driver, CUdevice cu_device, uint64_t bytes,
                            CUmemGenericAllocationHandle *ret_handle);
/* Whether the GPU is done with clearing it. */
bool flyt_extent_is_clear(struct flyt_extent *extent);
/* Whether the address is in an allocation of the device's, or in physical memory, where its extent lies. */
bool flyt_memory_has(const struct flyt_device *device, uint64_t address);

#endif
