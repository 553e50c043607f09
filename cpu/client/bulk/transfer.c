#include "cpu/client/bulk/transfer.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"

/* A chunk from when it begins to be read off a connection until it is in host memory: read straight into that, or into
 * `data` where the box has gaps, or an earlier transfer still writes there. */
struct flyt_piece {
    uint64_t offset_bytes;
    size_t bytes;
    bool is_direct;
    bool is_held; /* it has come, and waits for earlier transfers */
    struct flyt_piece *next;
    char data[];
};

static struct flyt_table transfer_table = FLYT_TABLE_INIT(FLYT_ID_TRANSFER, struct flyt_transfer, 1);

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;        /* something is done, or nothing will be */
    struct flyt_transfer *first;   /* the last one first */
    uint64_t out_address, out_end; /* what unfinished device-to-host transfers write lies between */
} transfers = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

_Atomic unsigned flyt_transfer_out_count;

/* How many transfers were pulled and are not being sent yet. */
static _Atomic unsigned pulled_count;
/* How many chunks are held. */
static _Atomic unsigned held_count;

/* ---- boxes ---- */

bool flyt_host_box_is_plain(const struct flyt_host_box *box)
{
    bool has_row_gaps = box->height > 1 && box->pitch_bytes != box->width_bytes;
    bool has_slice_gaps = box->depth > 1 && box->slice_bytes != box->width_bytes * box->height;
    return !has_row_gaps && !has_slice_gaps;
}

/* Visits the rows that the packed range touches. */
static void move_rows(const struct flyt_host_box *box, uint64_t offset_bytes, char *packed, size_t bytes, bool is_pack)
{
    while (bytes) {
        uint64_t row = offset_bytes / box->width_bytes, column = offset_bytes % box->width_bytes;
        uint64_t part = box->width_bytes - column < bytes ? box->width_bytes - column : bytes;
        char *place = (char *)(uintptr_t)(box->address + row / box->height * box->slice_bytes +
                                          row % box->height * box->pitch_bytes + column);
        memcpy(is_pack ? packed : place, is_pack ? place : packed, part);
        packed += part;
        offset_bytes += part;
        bytes -= part;
    }
}

void flyt_host_box_pack(const struct flyt_host_box *box, uint64_t offset_bytes, void *packed, size_t bytes)
{
    move_rows(box, offset_bytes, packed, bytes, true);
}

void flyt_host_box_unpack(const struct flyt_host_box *box, uint64_t offset_bytes, const void *packed, size_t bytes)
{
    move_rows(box, offset_bytes, (char *)(uintptr_t)packed, bytes, false);
}

/* ---- life of a transfer ---- */

static void unref_locked(struct flyt_transfer *transfer);
static void go_on(void);

static void clear_locked(struct flyt_pending_d2h *pending_d2h)
{
    for (unsigned i = 0; i < pending_d2h->count; i++)
        unref_locked(pending_d2h->transfers[i]);
    free(pending_d2h->transfers);
    pending_d2h->transfers = NULL;
    pending_d2h->count = 0;
    pending_d2h->capacity = 0;
}

static void unref_locked(struct flyt_transfer *transfer)
{
    if (--transfer->reference_count)
        return;
    clear_locked(&transfer->behind); /* only ever output, which is behind nothing */
    free(transfer->packed);
    while (transfer->pieces) {
        struct flyt_piece *piece = transfer->pieces;
        transfer->pieces = piece->next;
        free(piece);
    }
    flyt_table_free(&transfer_table, &transfer->record);
}

static uint64_t end_of(const struct flyt_transfer *transfer)
{
    return transfer->host.address + flyt_host_box_span(&transfer->host);
}

/* A new device-to-host transfer. Most write where no other one is at; these ask no further. */
static void count_out_locked(struct flyt_transfer *transfer)
{
    const uint64_t address = transfer->host.address, end = end_of(transfer);
    if (!atomic_fetch_add(&flyt_transfer_out_count, 1)) {
        transfers.out_address = address;
        transfers.out_end = end;
        return;
    }
    transfer->is_alone = address >= transfers.out_end || end <= transfers.out_address;
    if (address < transfers.out_address)
        transfers.out_address = address;
    if (end > transfers.out_end)
        transfers.out_end = end;
}

struct flyt_transfer *flyt_transfer_new(const struct flyt_host_box *host, bool is_out, int device)
{
    struct flyt_transfer *transfer = flyt_table_new(&transfer_table);
    if (!transfer)
        return NULL;
    transfer->host = *host;
    transfer->device = device;
    transfer->sequence = 0;
    transfer->bytes = flyt_host_box_bytes(host);
    transfer->received_bytes = 0;
    transfer->is_out = is_out;
    transfer->is_ending = transfer->is_done = false;
    transfer->result = CUDA_SUCCESS;
    transfer->reference_count = 2;
    transfer->is_pullable = transfer->is_pulled = transfer->is_sending = false;
    transfer->packed = NULL;
    transfer->pieces = NULL;
    pthread_mutex_lock(&transfers.mutex);
    transfer->previous = NULL;
    transfer->next = transfers.first;
    if (transfer->next)
        transfer->next->previous = transfer;
    transfers.first = transfer;
    transfer->is_alone = true;
    if (is_out)
        count_out_locked(transfer);
    flyt_table_publish(&transfer->record);
    pthread_mutex_unlock(&transfers.mutex);
    return transfer;
}

bool flyt_transfer_lacks_bytes(uint64_t sequence)
{
    bool lacks_bytes = false;
    pthread_mutex_lock(&transfers.mutex);
    for (const struct flyt_transfer *one = transfers.first; one && !lacks_bytes; one = one->next)
        lacks_bytes = one->is_out && !one->is_ending && one->sequence && one->sequence <= sequence;
    pthread_mutex_unlock(&transfers.mutex);
    return lacks_bytes;
}

struct flyt_transfer *flyt_transfer_unref(struct flyt_transfer *transfer)
{
    if (transfer) {
        pthread_mutex_lock(&transfers.mutex);
        unref_locked(transfer);
        pthread_mutex_unlock(&transfers.mutex);
    }
    return NULL;
}

/* Whether a thread is at the host memory. Chunks that were being read when the connection was lost never arrive, but
 * the loss is told only when no thread of the channel reads any more. */
static bool is_touched_locked(const struct flyt_transfer *transfer)
{
    const struct flyt_piece *piece = transfer->pieces;
    while (piece && piece->is_held)
        piece = piece->next;
    return transfer->is_sending || (piece && !atomic_load(&flyt_client.lost));
}

static void drop_held_locked(struct flyt_transfer *transfer)
{
    for (struct flyt_piece **link = &transfer->pieces, *piece; (piece = *link);) {
        if (!piece->is_held) {
            link = &piece->next;
            continue;
        }
        *link = piece->next;
        free(piece);
        atomic_fetch_sub(&held_count, 1);
    }
}

/* Nothing more is to be moved. The transfer is done at once or when the last thread is through with the host memory;
 * of several results the first stays. */
static void end_locked(struct flyt_transfer *transfer, CUresult result)
{
    if (transfer->is_done)
        return;
    if (!transfer->is_ending)
        transfer->result = result;
    transfer->is_ending = true;
    if (transfer->is_pulled)
        atomic_fetch_sub(&pulled_count, 1);
    transfer->is_pulled = transfer->is_pullable = false;
    drop_held_locked(transfer);
    if (is_touched_locked(transfer))
        return;
    transfer->is_done = true;
    flyt_table_take(&transfer_table, transfer->record.minted_id);
    *(transfer->previous ? &transfer->previous->next : &transfers.first) = transfer->next;
    if (transfer->next)
        transfer->next->previous = transfer->previous;
    if (transfer->is_out)
        atomic_fetch_sub(&flyt_transfer_out_count, 1);
    unref_locked(transfer);
    pthread_cond_broadcast(&transfers.changed);
}

void flyt_transfer_begin_send(struct flyt_transfer *transfer)
{
    pthread_mutex_lock(&transfers.mutex);
    transfer->is_sending = true;
    pthread_mutex_unlock(&transfers.mutex);
}

void flyt_transfer_finish(struct flyt_transfer *transfer, CUresult result)
{
    pthread_mutex_lock(&transfers.mutex);
    transfer->is_sending = false;
    end_locked(transfer, result);
    pthread_mutex_unlock(&transfers.mutex);
}

void flyt_transfer_wake(void)
{
    pthread_mutex_lock(&transfers.mutex);
    pthread_cond_broadcast(&transfers.changed);
    pthread_mutex_unlock(&transfers.mutex);
}

/* ---- waiting ---- */

/* Waits until it is done; a sticky code ends it first, for then its bytes may never come. */
static CUresult wait_locked(struct flyt_transfer *transfer)
{
    while (!transfer->is_done) {
        CUresult broken = flyt_client_broken();
        if (broken)
            end_locked(transfer, broken);
        if (!transfer->is_done)
            pthread_cond_wait(&transfers.changed, &transfers.mutex);
    }
    return transfer->result;
}

CUresult flyt_transfer_wait(struct flyt_transfer *transfer)
{
    pthread_mutex_lock(&transfers.mutex);
    CUresult result = wait_locked(transfer);
    pthread_mutex_unlock(&transfers.mutex);
    return result;
}

void flyt_transfer_abort(struct flyt_transfer *transfer, CUresult result)
{
    pthread_mutex_lock(&transfers.mutex);
    end_locked(transfer, result);
    wait_locked(transfer);
    pthread_mutex_unlock(&transfers.mutex);
    go_on();
}

static bool overlaps(const struct flyt_transfer *transfer, uint64_t address, uint64_t bytes)
{
    return transfer->host.address < address + bytes && address < end_of(transfer);
}

static struct flyt_transfer *find_overlap_locked(uint64_t address, uint64_t bytes, bool is_out_only)
{
    struct flyt_transfer *one = transfers.first;
    while (one && !((one->is_out || !is_out_only) && overlaps(one, address, bytes)))
        one = one->next;
    return one;
}

bool flyt_transfer_writes(uint64_t address, uint64_t bytes)
{
    if (!atomic_load_explicit(&flyt_transfer_out_count, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&transfers.mutex);
    bool found = find_overlap_locked(address, bytes, true) != NULL;
    pthread_mutex_unlock(&transfers.mutex);
    return found;
}

void flyt_transfer_wait_range(uint64_t address, uint64_t bytes)
{
    struct flyt_transfer *one;
    pthread_mutex_lock(&transfers.mutex);
    while ((one = find_overlap_locked(address, bytes, false))) {
        one->reference_count++;
        wait_locked(one);
        unref_locked(one);
    }
    pthread_mutex_unlock(&transfers.mutex);
}

/* ---- pending_d2h ---- */

static void prune_locked(struct flyt_pending_d2h *pending_d2h)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < pending_d2h->count; i++) {
        if (pending_d2h->transfers[i]->is_done)
            unref_locked(pending_d2h->transfers[i]);
        else
            pending_d2h->transfers[kept++] = pending_d2h->transfers[i];
    }
    pending_d2h->count = kept;
}

static void add_locked(struct flyt_pending_d2h *pending_d2h, struct flyt_transfer *transfer)
{
    for (unsigned i = 0; i < pending_d2h->count; i++)
        if (pending_d2h->transfers[i] == transfer)
            return;
    if (pending_d2h->count == pending_d2h->capacity) {
        unsigned capacity = pending_d2h->capacity ? 2 * pending_d2h->capacity : 8;
        struct flyt_transfer **more = realloc(pending_d2h->transfers, capacity * sizeof *more);
        if (!more) {
            wait_locked(transfer);
            return;
        }
        pending_d2h->transfers = more;
        pending_d2h->capacity = capacity;
    }
    transfer->reference_count++;
    pending_d2h->transfers[pending_d2h->count++] = transfer;
}

void flyt_pending_d2h_add(struct flyt_pending_d2h *pending_d2h, struct flyt_transfer *transfer)
{
    pthread_mutex_lock(&transfers.mutex);
    prune_locked(pending_d2h);
    if (!transfer->is_done)
        add_locked(pending_d2h, transfer);
    pthread_mutex_unlock(&transfers.mutex);
}

void flyt_pending_d2h_merge(struct flyt_pending_d2h *pending_d2h, struct flyt_pending_d2h *from)
{
    pthread_mutex_lock(&transfers.mutex);
    prune_locked(pending_d2h);
    prune_locked(from);
    for (unsigned i = 0; i < from->count; i++)
        add_locked(pending_d2h, from->transfers[i]);
    pthread_mutex_unlock(&transfers.mutex);
}

void flyt_pending_d2h_set(struct flyt_pending_d2h *pending_d2h, struct flyt_pending_d2h *from)
{
    if (!pending_d2h->count && !from->count)
        return;
    pthread_mutex_lock(&transfers.mutex);
    prune_locked(from);
    for (unsigned i = 0; i < pending_d2h->count; i++)
        unref_locked(pending_d2h->transfers[i]);
    pending_d2h->count = 0;
    for (unsigned i = 0; i < from->count; i++)
        add_locked(pending_d2h, from->transfers[i]);
    pthread_mutex_unlock(&transfers.mutex);
}

void flyt_pending_d2h_add_device(struct flyt_pending_d2h *pending_d2h, int device)
{
    if (!atomic_load_explicit(&flyt_transfer_out_count, memory_order_relaxed))
        return;
    pthread_mutex_lock(&transfers.mutex);
    for (struct flyt_transfer *one = transfers.first; one; one = one->next)
        if (one->is_out && one->device == device)
            add_locked(pending_d2h, one);
    pthread_mutex_unlock(&transfers.mutex);
}

void flyt_pending_d2h_clear(struct flyt_pending_d2h *pending_d2h)
{
    if (!pending_d2h->count && !pending_d2h->transfers)
        return;
    pthread_mutex_lock(&transfers.mutex);
    clear_locked(pending_d2h);
    pthread_mutex_unlock(&transfers.mutex);
}

CUresult flyt_pending_d2h_wait(struct flyt_pending_d2h *pending_d2h)
{
    CUresult result = CUDA_SUCCESS;
    if (!pending_d2h->count)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&transfers.mutex);
    for (unsigned i = 0; i < pending_d2h->count; i++) {
        CUresult one = wait_locked(pending_d2h->transfers[i]);
        if (!result)
            result = one;
    }
    pthread_mutex_unlock(&transfers.mutex);
    return result;
}

bool flyt_pending_d2h_is_done(struct flyt_pending_d2h *pending_d2h)
{
    if (!pending_d2h->count)
        return true;
    pthread_mutex_lock(&transfers.mutex);
    prune_locked(pending_d2h);
    bool is_done = pending_d2h->count == 0;
    pthread_mutex_unlock(&transfers.mutex);
    return is_done;
}

/* ---- host to device ---- */

static void sent(void *user, uint64_t transfer_id, int status)
{
    flyt_transfer_finish(user, status ? flyt_client_status(status, "chunk") : CUDA_SUCCESS);
}

static void pack(void *user, uint64_t offset_bytes, void *place, size_t bytes)
{
    const struct flyt_transfer *transfer = user;
    flyt_host_box_pack(&transfer->host, offset_bytes, place, bytes);
}

void flyt_transfer_send(struct flyt_channel *channel, struct flyt_transfer *transfer)
{
    const void *data = (const void *)(uintptr_t)transfer->host.address;
    int status;
    flyt_transfer_begin_send(transfer);
    if (flyt_host_box_is_plain(&transfer->host))
        status =
            flyt_channel_send_data_later(channel, flyt_transfer_id(transfer), data, transfer->bytes, sent, transfer);
    else
        status =
            flyt_channel_send_packed_later(channel, flyt_transfer_id(transfer), pack, transfer->bytes, sent, transfer);
    if (status)
        sent(transfer, flyt_transfer_id(transfer), status);
}

void flyt_transfer_await_pull(struct flyt_transfer *transfer, struct flyt_pending_d2h *behind)
{
    flyt_pending_d2h_set(&transfer->behind, behind);
    pthread_mutex_lock(&transfers.mutex);
    transfer->is_pullable = true;
    pthread_mutex_unlock(&transfers.mutex);
}

/*
 * Sends what was pulled and is no longer behind any output. The server may ask before the last bytes of an earlier
 * device-to-host copy have arrived here, for they travel on other connections.
 */
static void send_pulled(void)
{
    while (atomic_load(&pulled_count)) {
        pthread_mutex_lock(&transfers.mutex);
        struct flyt_transfer *one = transfers.first;
        while (one && !(one->is_pulled && (prune_locked(&one->behind), one->behind.count == 0)))
            one = one->next;
        if (one) {
            one->is_pulled = false; /* this thread sends it */
            one->is_sending = true;
            one->reference_count++;
            atomic_fetch_sub(&pulled_count, 1);
        }
        pthread_mutex_unlock(&transfers.mutex);
        if (!one)
            return;
        flyt_transfer_send(flyt_client.channel, one);
        flyt_transfer_unref(one);
    }
}

void flyt_transfer_pull(void *user, uint64_t transfer_id)
{
    pthread_mutex_lock(&transfers.mutex);
    struct flyt_transfer *transfer = flyt_table_find(&transfer_table, transfer_id);
    if (transfer && transfer->is_pullable) {
        transfer->is_pullable = false; /* once: memory that was sent may be gone */
        transfer->is_pulled = true;
        atomic_fetch_add(&pulled_count, 1);
    }
    pthread_mutex_unlock(&transfers.mutex);
    send_pulled();
}

/* ---- device to host ---- */

static struct flyt_piece **find_piece_locked(struct flyt_transfer *transfer, uint64_t offset_bytes)
{
    struct flyt_piece **link = &transfer->pieces;
    while (*link && (*link)->offset_bytes != offset_bytes)
        link = &(*link)->next;
    return link;
}

/*
 * Whether an earlier transfer still writes where this one does. What it brings waits then, for copies of one stream
 * land in their order, whatever connections their chunks take. So do those of streams that wait for each other: whoever
 * is waited for was called before. Of other copies it makes an order that is as good as any.
 */
static bool is_behind_locked(const struct flyt_transfer *transfer)
{
    if (transfer->is_alone)
        return false;
    const struct flyt_transfer *one = transfer->next;
    while (one && !(one->is_out && overlaps(one, transfer->host.address, flyt_host_box_span(&transfer->host))))
        one = one->next;
    return one;
}

/* Whether a chunk is for this transfer, fits into it, and is not being read already. */
static bool is_wanted_locked(struct flyt_transfer *transfer, uint64_t offset_bytes, size_t bytes)
{
    return transfer && transfer->is_out && !transfer->is_ending && offset_bytes <= transfer->bytes &&
           bytes <= transfer->bytes - offset_bytes && !*find_piece_locked(transfer, offset_bytes);
}

void *flyt_transfer_chunk_place(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    void *place = NULL;
    pthread_mutex_lock(&transfers.mutex);
    struct flyt_transfer *transfer = flyt_table_find(&transfer_table, transfer_id);
    if (is_wanted_locked(transfer, offset_bytes, bytes)) {
        bool is_direct = flyt_host_box_is_plain(&transfer->host) && !is_behind_locked(transfer);
        struct flyt_piece *piece = malloc(sizeof *piece + (is_direct ? 0 : bytes));
        if (piece) {
            *piece = (struct flyt_piece){
                .offset_bytes = offset_bytes, .bytes = bytes, .is_direct = is_direct, .next = transfer->pieces};
            transfer->pieces = piece;
            place = is_direct ? (char *)(uintptr_t)transfer->host.address + offset_bytes : piece->data;
        } else {
            end_locked(transfer, CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    pthread_mutex_unlock(&transfers.mutex);
    return place;
}

/* The chunk is there, and no earlier transfer in its way: brings it to its place. The mutex, which is held before and
 * after, is free meanwhile; the piece keeps the transfer in the table and the host memory in use. */
static void land_locked(struct flyt_transfer *transfer, struct flyt_piece *piece)
{
    if (!piece->is_direct) {
        pthread_mutex_unlock(&transfers.mutex);
        flyt_host_box_unpack(&transfer->host, piece->offset_bytes, piece->data, piece->bytes);
        pthread_mutex_lock(&transfers.mutex);
    }
    *find_piece_locked(transfer, piece->offset_bytes) = piece->next;
    transfer->received_bytes += piece->bytes;
    free(piece);
    if (transfer->received_bytes >= transfer->bytes || transfer->is_ending)
        end_locked(transfer, CUDA_SUCCESS);
}

/* A held chunk that need not wait any more; NULL: there is none. */
static struct flyt_piece *find_freed_locked(struct flyt_transfer **ret_transfer)
{
    for (struct flyt_transfer *one = transfers.first; one; one = one->next) {
        struct flyt_piece *piece = one->is_out ? one->pieces : NULL;
        while (piece && !piece->is_held)
            piece = piece->next;
        if (piece && !is_behind_locked(one)) {
            *ret_transfer = one;
            return piece;
        }
    }
    return NULL;
}

/* A transfer may have ended: lands what waited for it, and sends what did. */
static void go_on(void)
{
    struct flyt_transfer *transfer;
    struct flyt_piece *piece;
    if (atomic_load(&held_count)) {
        pthread_mutex_lock(&transfers.mutex);
        while ((piece = find_freed_locked(&transfer))) {
            piece->is_held = false;
            atomic_fetch_sub(&held_count, 1);
            land_locked(transfer, piece);
        }
        pthread_mutex_unlock(&transfers.mutex);
    }
    send_pulled();
}

void flyt_transfer_chunk_done(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    pthread_mutex_lock(&transfers.mutex);
    struct flyt_transfer *transfer = flyt_table_find(&transfer_table, transfer_id);
    struct flyt_piece *piece = transfer ? *find_piece_locked(transfer, offset_bytes) : NULL;
    if (piece && !piece->is_direct && !transfer->is_ending && is_behind_locked(transfer)) {
        piece->is_held = true;
        atomic_fetch_add(&held_count, 1);
    } else if (piece) {
        land_locked(transfer, piece);
    }
    pthread_mutex_unlock(&transfers.mutex);
    go_on();
}

void flyt_transfer_failed(void *user, uint64_t transfer_id, int result)
{
    pthread_mutex_lock(&transfers.mutex);
    struct flyt_transfer *transfer = flyt_table_find(&transfer_table, transfer_id);
    if (transfer)
        end_locked(transfer, result ? flyt_client_code(result) : CUDA_ERROR_UNKNOWN);
    pthread_mutex_unlock(&transfers.mutex);
    go_on();
}
