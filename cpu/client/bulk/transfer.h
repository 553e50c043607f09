/*
 * Bulk data on its way between host memory and the server, beside the calls that move it. One record per transfer, in a
 * list while it is unfinished: that list answers what may still write or read a piece of host memory.
 *
 * A transfer is done when nothing of it will be read or written any more: one that fails, or that a fatal error or a
 * lost connection ends, stays unfinished while a thread is still at its host memory, which its owner may free after.
 *
 * Device-to-host transfers that write the same memory write it in the order in which they were made: what comes early
 * of a later one, on another connection, is held until the earlier one is done.
 *
 * Cover: a set of unfinished device-to-host transfers, kept by streams, events and host functions. A synchronization
 * takes a copy of what is pending before it asks the server, and waits for that after the server has said that the
 * stream is done, because bytes on data streams may arrive after that word. Where no such transfer is unfinished all of
 * this costs one relaxed load.
 *
 * The transfer lock is never held across a function of the channel, whose handlers take it.
 */
#ifndef FLYT_CLIENT_TRANSFER_H
#define FLYT_CLIENT_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/table.h"

/* A box in host memory, as in flyt_copy_side. */
struct flyt_host_box {
    uint64_t address;
    uint64_t width_bytes, height, depth;
    uint64_t pitch_bytes, slice_bytes;
};

/* Bytes from the first to the last, gaps included. */
static inline uint64_t flyt_host_box_span(const struct flyt_host_box *box)
{
    return (box->depth - 1) * box->slice_bytes + (box->height - 1) * box->pitch_bytes + box->width_bytes;
}

static inline uint64_t flyt_host_box_bytes(const struct flyt_host_box *box)
{
    return box->width_bytes * box->height * box->depth;
}

/* Whether the box is one range without gaps. */
bool flyt_host_box_is_plain(const struct flyt_host_box *box);
/* Moves `bytes` packed bytes, from `offset_bytes` of the packed order on, out of the box or into it. */
void flyt_host_box_pack(const struct flyt_host_box *box, uint64_t offset_bytes, void *packed, size_t bytes);
void flyt_host_box_unpack(const struct flyt_host_box *box, uint64_t offset_bytes, const void *packed, size_t bytes);

struct flyt_channel;

struct flyt_piece;

struct flyt_transfer;

struct flyt_pending_d2h {
    struct flyt_transfer **transfers;
    _Atomic unsigned count; /* changed under the transfer lock; 0 is believed without it */
    unsigned capacity;
};

/* Under the transfer lock, but what never changes after flyt_transfer_new. */
struct flyt_transfer {
    struct flyt_record record;
    struct flyt_host_box host;
    int device;
    uint64_t sequence; /* out: of the call that asks for it; the channel writes it. 0: not sent yet */
    uint64_t bytes, received_bytes;
    bool is_out;                    /* device to host */
    bool is_alone;                  /* out: writes where no earlier one did that was unfinished when it was made */
    bool is_ending;                 /* `result` stands; done when no thread is at the host memory */
    bool is_done;                   /* and out of the list */
    CUresult result;                /* of a transfer that is ending or done */
    unsigned reference_count;       /* the list's, the issuer's, and one per set of pending copies */
    bool is_pullable;               /* in: waits for the server to ask for it */
    bool is_pulled;                 /* in: the server has asked; it goes when `behind` is done */
    bool is_sending;                /* in: its memory is being read, until flyt_transfer_finish */
    struct flyt_pending_d2h behind; /* in, pulled: what may still write the memory, as the stream stood at issue */
    void *packed;                   /* in: what the issuer sends where the box is not plain; freed when sent */
    struct flyt_piece *pieces;      /* out: chunks that are being read off a connection, or held */
    struct flyt_transfer *next, *previous;
};

/* How many device-to-host transfers are unfinished. */
extern _Atomic unsigned flyt_transfer_out_count;

/* A new transfer in the list, to or from `device`; the caller holds a reference. NULL: no memory. */
struct flyt_transfer *flyt_transfer_new(const struct flyt_host_box *host, bool is_out, int device);
struct flyt_transfer *flyt_transfer_unref(struct flyt_transfer *transfer);
static inline uint64_t flyt_transfer_id(const struct flyt_transfer *transfer)
{
    return transfer->record.minted_id;
}
/* Around sending a host-to-device transfer: between the two its memory is in use, whatever else happens. `_finish`,
 * also without the other, ends the transfer with `result`, unless it has ended with another before. */
void flyt_transfer_begin_send(struct flyt_transfer *transfer);
void flyt_transfer_finish(struct flyt_transfer *transfer, CUresult result);
/* Waits until it is done: its result. A sticky code ends it. */
CUresult flyt_transfer_wait(struct flyt_transfer *transfer);
/* Ends it with `result` and waits until it is done. */
void flyt_transfer_abort(struct flyt_transfer *transfer, CUresult result);
/* Sends the host memory of a host-to-device transfer in the background; it is done when all was read. From any thread,
 * handlers included. The channel is the program's, or one on which its session is made again. */
void flyt_transfer_send(struct flyt_channel *channel, struct flyt_transfer *transfer);
/* Lets the server ask for a host-to-device transfer, once; it is sent when what `behind` holds now is done. */
void flyt_transfer_await_pull(struct flyt_transfer *transfer, struct flyt_pending_d2h *behind);
/* Whether an unfinished device-to-host transfer writes into the range. */
bool flyt_transfer_writes(uint64_t address, uint64_t bytes);
/* Waits until no unfinished transfer uses the range. A sticky code ends those that do. */
void flyt_transfer_wait_range(uint64_t address, uint64_t bytes);
/* Whether bytes of a device-to-host transfer are missing whose call is numbered up to `sequence`. */
bool flyt_transfer_lacks_bytes(uint64_t sequence);
/* Wakes all who wait, to look at the sticky code. */
void flyt_transfer_wake(void);

/* Pending copies. Adding takes a reference. A failed allocation waits for the transfer at once instead. */
void flyt_pending_d2h_add(struct flyt_pending_d2h *pending_d2h, struct flyt_transfer *transfer);
/* Adds all device-to-host transfers of a device. */
void flyt_pending_d2h_add_device(struct flyt_pending_d2h *pending_d2h, int device);
/* Adds what `from` holds and forgets what is done. */
void flyt_pending_d2h_merge(struct flyt_pending_d2h *pending_d2h, struct flyt_pending_d2h *from);
/* Replaces the contents by those of `from`, in one step for others who look. */
void flyt_pending_d2h_set(struct flyt_pending_d2h *pending_d2h, struct flyt_pending_d2h *from);
void flyt_pending_d2h_clear(struct flyt_pending_d2h *pending_d2h);
/* Waits for every copy in a set that nobody else uses meanwhile: the first result that is not success. */
CUresult flyt_pending_d2h_wait(struct flyt_pending_d2h *pending_d2h);
/* Whether nothing in it is unfinished. */
bool flyt_pending_d2h_is_done(struct flyt_pending_d2h *pending_d2h);

/* Handlers of the channel. */
void *flyt_transfer_chunk_place(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes);
void flyt_transfer_chunk_done(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes);
void flyt_transfer_pull(void *user, uint64_t transfer_id);
void flyt_transfer_failed(void *user, uint64_t transfer_id, int result);

#endif
