#include "cpu/client/bulk/staging.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/bulk/copy_box.h"
#include "cpu/client/core/instance.h"
#include "rpc/base/clock.h"
#include "rpc/base/region.h"

enum {
    LANES = 2,
    LANE_PIECES = 2,             /* one is copied by the thread, the other one by the GPU */
    PIECE_BYTES_MAX = 1 << 20,   /* stays in a core's second cache, and is long beside a round trip */
    PIECE_BYTES_MIN = 256 << 10, /* below that the round trips cost more than copying does */
    REGION_PART = 8,             /* at most this part of the region, in which the program's pinned memory is to lie */
    TURN_PIECES = 8,
    PATIENCE_MS = 100, /* without any lane's moving a piece */
    CLAIMS_APART = 64, /* copies, after there was no room */
};

/* Who waits for a lane, in the order of coming. */
struct waiter {
    struct waiter *next;
    int lane; /* −1: none yet */
};

struct lane {
    bool is_taken;
    bool is_left; /* by who cannot tell that the GPU is done with its pieces; it stays taken until that is known, */
    uint64_t server, sequence; /* by where this call was sent */
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a waiter has got a lane */
    char *base;             /* NULL: not claimed */
    uint64_t piece_bytes;
    unsigned copies_till_claim;
    struct lane lanes[LANES];
    struct waiter *first, **end;
    _Atomic uint64_t moved_count; /* pieces */
} place = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .end = &place.first};

/*
 * Only what a VM shares with its host is bounded, and a server has that over a socket that is none of one host
 * (channel_open.c). There a data stream is the guest's network: each byte goes through two kernels and a virtual
 * device. Over a unix socket data streams are as fast as several of the host's cores copy, which one thread is not.
 */
bool flyt_staging_is_used(void)
{
    return flyt_arena_server() && flyt_arena_is_bounded();
}

/* ---- lanes ---- */

static bool claim_locked(const struct flyt_staging_ops *ops)
{
    if (place.base)
        return true;
    if (place.copies_till_claim) {
        place.copies_till_claim--;
        return false;
    }
    const uint64_t share_bytes = flyt_channel_region(flyt_client.channel)->bytes / REGION_PART / (LANES * LANE_PIECES);
    place.piece_bytes = share_bytes < PIECE_BYTES_MAX ? share_bytes : PIECE_BYTES_MAX;
    if (place.piece_bytes >= PIECE_BYTES_MIN)
        place.base = ops->take(LANES * LANE_PIECES * place.piece_bytes);
    if (!place.base)
        place.copies_till_claim = CLAIMS_APART;
    return place.base;
}

static void leave_locked(struct waiter *waiter)
{
    struct waiter **link = &place.first;
    while (*link != waiter)
        link = &(*link)->next;
    *link = waiter->next;
    if (!*link)
        place.end = link;
}

/* −1: nobody has moved a piece for a while. Who has a lane may wait for what the calling thread is to do next. */
static int wait_for_lane_locked(void)
{
    struct waiter self = {.lane = -1};
    uint64_t moved_count;
    int status = 0;
    *place.end = &self;
    place.end = &self.next;
    do {
        const uint64_t until_ns = flyt_clock_ns() + PATIENCE_MS * 1000000ull;
        const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                                       .tv_nsec = (long)(until_ns % 1000000000)};
        moved_count = atomic_load(&place.moved_count);
        for (status = 0; self.lane < 0 && status != ETIMEDOUT;)
            status = pthread_cond_clockwait(&place.changed, &place.mutex, CLOCK_MONOTONIC, &until);
    } while (self.lane < 0 && moved_count != atomic_load(&place.moved_count));
    if (self.lane < 0)
        leave_locked(&self);
    return self.lane;
}

/* To who has waited longest, where anybody does. */
static void hand_on_locked(int lane)
{
    struct waiter *next = place.first;
    place.lanes[lane].is_taken = next;
    if (!next)
        return;
    leave_locked(next);
    next->lane = lane;
    pthread_cond_broadcast(&place.changed);
}

/* What a server has that the session has left is over, too. */
static bool is_over(const struct lane *lane)
{
    return lane->server != flyt_arena_server() ||
           flyt_channel_progress(flyt_client.channel).completed >= lane->sequence;
}

/* Whether there is any lane, after those have come back whose pieces the GPU is done with. */
static bool has_lanes_locked(void)
{
    unsigned left_count = 0;
    for (int i = 0; i < LANES; i++) {
        struct lane *lane = &place.lanes[i];
        if (lane->is_left && is_over(lane)) {
            lane->is_left = false;
            hand_on_locked(i);
        }
        left_count += lane->is_left;
    }
    return left_count < LANES;
}

static int take_lane(const struct flyt_staging_ops *ops)
{
    int lane = -1;
    pthread_mutex_lock(&place.mutex);
    if (has_lanes_locked() && claim_locked(ops)) {
        for (int i = 0; i < LANES && lane < 0; i++)
            lane = place.lanes[i].is_taken ? -1 : i;
        if (lane < 0)
            lane = wait_for_lane_locked();
        else
            place.lanes[lane].is_taken = true;
    }
    pthread_mutex_unlock(&place.mutex);
    return lane;
}

static void give_lane(int lane)
{
    pthread_mutex_lock(&place.mutex);
    hand_on_locked(lane);
    pthread_mutex_unlock(&place.mutex);
}

/* The GPU may still be at its pieces, as far as this call brings them. */
static void leave_lane(int lane, uint64_t server, uint64_t sequence)
{
    pthread_mutex_lock(&place.mutex);
    place.lanes[lane] = (struct lane){.is_taken = true, .is_left = true, .server = server, .sequence = sequence};
    pthread_mutex_unlock(&place.mutex);
}

/* ---- pieces ---- */

/* A copy, and how far it has come. */
struct progress {
    const struct flyt_staging_ops *ops;
    void *user;
    const struct flyt_copy *copy;
    uint64_t server;
    char *pieces[LANE_PIECES];
    uint64_t sent_bytes, copied_bytes;
    uint64_t sequence; /* of the last piece that was sent */
    bool is_under_way; /* it has not been waited for */
};

static uint64_t left_of_piece(const struct progress *self, uint64_t offset_bytes)
{
    const uint64_t left_bytes = self->copy->width_bytes - offset_bytes;
    return left_bytes < place.piece_bytes ? left_bytes : place.piece_bytes;
}

static CUresult send_piece(struct progress *self, char *piece)
{
    struct flyt_copy part = *self->copy;
    const bool is_in = part.src.place == FLYT_PLACE_HOST;
    struct flyt_copy_side *host = is_in ? &part.src : &part.dst, *device = is_in ? &part.dst : &part.src;
    part.width_bytes = left_of_piece(self, self->sent_bytes);
    host->address = (uint64_t)(uintptr_t)piece;
    device->address += self->sent_bytes;
    CUresult result = self->ops->send(self->user, self->server, &part, &self->sequence);
    if (!result) {
        self->sent_bytes += part.width_bytes;
        self->is_under_way = true;
    }
    return result;
}

/* A piece may have failed, whoever waits for it: a server that has taken a dead one's place cannot copy it again where
 * it does not have it page-locked. What lies in it is then older. */
static CUresult wait_for_piece(struct progress *self)
{
    CUresult result = self->ops->wait(self->user);
    if (result)
        return result;
    self->is_under_way = false;
    return self->ops->error();
}

static void count_moved(void)
{
    atomic_fetch_add_explicit(&place.moved_count, 1, memory_order_relaxed);
}

/* The thread copies one piece while the GPU takes the other one. */
static CUresult turn_in(struct progress *self)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; !result && i < TURN_PIECES && self->sent_bytes < self->copy->width_bytes; i++) {
        char *piece = self->pieces[i % LANE_PIECES];
        memcpy(piece, (const char *)(uintptr_t)self->copy->src.address + self->sent_bytes, /* NOLINT: the program's */
               left_of_piece(self, self->sent_bytes));
        if (i)
            result = wait_for_piece(self);
        if (!result)
            result = send_piece(self, piece);
        count_moved();
    }
    if (!result)
        result = wait_for_piece(self);
    self->copied_bytes = self->sent_bytes;
    return result;
}

/* What the stream has brought into a piece. */
static void take_piece(struct progress *self, const char *piece, uint64_t bytes)
{
    if (!bytes)
        return;
    memcpy((char *)(uintptr_t)self->copy->dst.address + self->copied_bytes, piece, bytes); /* NOLINT: the program's */
    self->copied_bytes += bytes;
    count_moved();
}

static CUresult turn_out(struct progress *self)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t there_bytes = 0; /* in the other piece */
    unsigned i;
    for (i = 0; !result && i < TURN_PIECES && self->sent_bytes < self->copy->width_bytes; i++) {
        result = send_piece(self, self->pieces[i % LANE_PIECES]);
        take_piece(self, self->pieces[(i + 1) % LANE_PIECES], there_bytes);
        if (!result)
            result = wait_for_piece(self);
        there_bytes = result ? 0 : self->sent_bytes - self->copied_bytes;
    }
    take_piece(self, self->pieces[(i + 1) % LANE_PIECES], there_bytes);
    return result;
}

/* CUDA_ERROR_NOT_READY: the session has gone on at a server that does not have the place, or, in the midst of it, at
 * one that may. */
static CUresult turn(struct progress *self, int lane, bool *ret_is_shared)
{
    for (int i = 0; i < LANE_PIECES; i++)
        self->pieces[i] = place.base + (uint64_t)(lane * LANE_PIECES + i) * place.piece_bytes;
    *ret_is_shared = self->ops->is_shared((uint64_t)(uintptr_t)place.base, &self->server);
    if (!*ret_is_shared)
        return CUDA_ERROR_NOT_READY;
    return self->copy->src.place == FLYT_PLACE_HOST ? turn_in(self) : turn_out(self);
}

CUresult flyt_staging_copy(const struct flyt_staging_ops *ops, void *user, const struct flyt_copy *copy,
                           uint64_t *ret_bytes)
{
    struct progress self = {.ops = ops, .user = user, .copy = copy};
    CUresult result = CUDA_SUCCESS;
    bool is_shared = true;
    while (!result && is_shared && self.copied_bytes < copy->width_bytes) {
        const int lane = take_lane(ops);
        if (lane < 0)
            break;
        result = turn(&self, lane, &is_shared);
        if (result == CUDA_ERROR_NOT_READY)
            result = CUDA_SUCCESS;
        if (self.is_under_way)
            leave_lane(lane, self.server, self.sequence);
        else
            give_lane(lane);
    }
    *ret_bytes = self.copied_bytes;
    return result;
}
