#include "cpu/server/move/out/copying.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cpu/image/writer.h"
#include "cpu/server/move/out/copier.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/session.h"
#include "cpu/server/move/out/writing.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

enum {
    REST_NS = 100 * 1000 * 1000,        /* between two rounds, when it is ready */
    IMAGE_REST_NS = 1000 * 1000 * 1000, /* the same for an image, which each round makes longer */
    RESTS_SHORT = 400,                  /* rounds of one that is sent to another node, for which it is REST_NS */
    MIRRORS_NS = 10 * 1000 * 1000,      /* between two rounds, while mirrors are still to come */
    LOOKS_MAX = 3, /* of a session of which nothing runs: one finds the rest, one that it is there, one is too many */
};

#define NEVER_NS (UINT64_MAX - 1)

struct flyt_copying {
    struct flyt_manager_link_move move;
    struct flyt_copier copiers[FLYT_DEVICES_MAX]; /* by ordinal */
    unsigned count;
    struct flyt_writing *writing; /* NULL: to mirrors */
    struct flyt_page_key key;     /* of mirrors' hashes, which are told to the server that has them */
    struct flyt_error err;        /* code 0: all is well so far */
    uint64_t begin_ns; /* when the next round is to begin, at the earliest; UINT64_MAX: when a mirror comes */
    unsigned round;    /* that had all extents */
    unsigned looks;    /* since finish, at the same extents */
    uint64_t looks_changes;
    uint64_t finish_pages; /* copied before */
    bool is_open;          /* the copiers are: of an image that builds on another, when that was read */
    bool is_seeded;        /* and they know what that has */
    bool is_running;       /* a round is */
    bool is_void;          /* it has begun before the program stopped, or went on: it proves nothing */
    bool is_ready, is_last, is_exact, is_ending;
    bool is_settled;               /* it has been ready, with all that was written on the disk */
    bool is_state_put, is_written; /* the image's state was given to be written; all of it is */
};

/* ---- beginning and end ---- */

static int make_key(struct flyt_page_key *ret_key, struct flyt_error *err)
{
    if (getrandom(ret_key->bytes, sizeof ret_key->bytes, 0) != sizeof ret_key->bytes)
        return flyt_error_set(err, -EIO, "no random key for hashing memory: %m");
    return 0;
}

static int open_copiers(struct flyt_session *session, struct flyt_copying *copying, const struct flyt_page_key *key,
                        struct flyt_error *err)
{
    int status = 0;
    for (unsigned i = 0; i < session->device_count && status == 0; i++) {
        struct flyt_device *device;
        CUresult result = flyt_session_use_device(session, i, &device);
        if (result != CUDA_SUCCESS)
            status = flyt_error_set(err, -EIO, "device %u: no context can be made, cuda_result=%d", i, (int)result);
        if (status == 0)
            status = flyt_copier_open(&copying->copiers[i], device, key, copying->move.slowdown_pct,
                                      copying->writing ? &flyt_writing_sink : &flyt_mirror_sink, copying->writing, err);
        copying->count += status == 0;
    }
    return status;
}

static void close_all(int fd, const int *stream_fds, unsigned stream_count)
{
    flyt_close(fd);
    for (unsigned i = 0; i < stream_count; i++)
        flyt_close(stream_fds[i]);
}

/* The descriptors, `move` says how many, are taken over. */
static int open_writing(struct flyt_session *session, struct flyt_copying *copying,
                        const struct flyt_manager_link_move *move, int fd, int parent_fd, const int *stream_fds,
                        const struct flyt_page_key *key, struct flyt_error *err)
{
    const bool is_sent = move->kind == FLYT_MANAGER_LINK_MOVE_SEND;
    const struct flyt_writing_goal goal = {.packing = move->packing,
                                           .fd = fd,
                                           .streams = is_sent ? &move->streams : NULL,
                                           .stream_fds = stream_fds,
                                           .parent_fd = parent_fd,
                                           .hash_key = key};
    struct flyt_device *device;
    if (flyt_session_use_device(session, 0, &device) != CUDA_SUCCESS) {
        close_all(fd, stream_fds, is_sent ? move->streams.stream_count : 0);
        flyt_close(parent_fd);
        return flyt_error_set(err, -EIO, "device 0: no context can be made");
    }
    return flyt_writing_open(session, &goal, &copying->writing, err);
}

/* fd: -1: to mirrors; of an image, it, the streams' and that of the image that it builds on (-1: none) are taken over.
 */
static CUresult begin(struct flyt_session *session, const struct flyt_manager_link_move *move, int fd, int parent_fd,
                      const int *stream_fds, struct flyt_error *err)
{
    struct flyt_copying *copying = calloc(1, sizeof *copying);
    struct flyt_page_key key;
    int status = copying ? make_key(&key, err) : flyt_error_set(err, -ENOMEM, "out of host memory");
    if (status) {
        close_all(fd, stream_fds, move->kind == FLYT_MANAGER_LINK_MOVE_SEND ? move->streams.stream_count : 0);
        flyt_close(parent_fd);
        free(copying);
        return status == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    }
    copying->move = *move;
    explicit_bzero(&copying->move.streams, sizeof copying->move.streams);
    copying->begin_ns = fd < 0 ? UINT64_MAX : 0;
    session->copying = copying;
    if (fd >= 0)
        status = open_writing(session, copying, move, fd, parent_fd, stream_fds, &key, err);
    else
        copying->key = key;
    copying->is_open = parent_fd < 0; /* else its key is not known yet */
    if (status == 0 && copying->is_open)
        status = open_copiers(session, copying, &key, err);
    explicit_bzero(&key, sizeof key);
    if (status == 0)
        return CUDA_SUCCESS;
    flyt_copying_fini(session);
    return status == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

static CUresult check(const struct flyt_session *session, const struct flyt_manager_link_move *move, bool is_right,
                      struct flyt_error *err)
{
    if (session->copying) {
        flyt_error_set(err, -EBUSY, "the session's memory is still being copied for an earlier move");
        return CUDA_ERROR_NOT_READY;
    }
    if (is_right)
        return CUDA_SUCCESS;
    flyt_error_set(err, -EINVAL, "a move of kind %u copies no memory in this way", move->kind);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_copying_begin(struct flyt_session *session, const struct flyt_manager_link_move *move,
                            struct flyt_error *err)
{
    CUresult result = check(session, move, move->kind == FLYT_MANAGER_LINK_MOVE_MIRROR, err);
    return result == CUDA_SUCCESS ? begin(session, move, -1, -1, NULL, err) : result;
}

CUresult flyt_copying_begin_image(struct flyt_session *session, const struct flyt_manager_link_move *move, int fd,
                                  int parent_fd, struct flyt_error *err)
{
    bool is_right = move->kind == FLYT_MANAGER_LINK_MOVE_WRITE && move->packing <= FLYT_CHECKPOINT_PACK_ZSTD && fd >= 0;
    CUresult result = check(session, move, is_right, err);
    if (result == CUDA_SUCCESS)
        return begin(session, move, fd, parent_fd, NULL, err);
    flyt_close(fd);
    flyt_close(parent_fd);
    return result;
}

CUresult flyt_copying_begin_sending(struct flyt_session *session, const struct flyt_manager_link_move *move, int fd,
                                    const int *stream_fds, unsigned stream_count, struct flyt_error *err)
{
    bool is_right = move->kind == FLYT_MANAGER_LINK_MOVE_SEND && move->packing <= FLYT_CHECKPOINT_PACK_ZSTD &&
                    fd >= 0 && move->streams.stream_count == stream_count;
    CUresult result = check(session, move, is_right, err);
    if (result == CUDA_SUCCESS)
        return begin(session, move, fd, -1, stream_fds, err);
    close_all(fd, stream_fds, stream_count);
    return result;
}

static void free_copying(struct flyt_session *session)
{
    explicit_bzero(&session->copying->key, sizeof session->copying->key);
    free(session->copying);
    session->copying = NULL;
}

/* Frees what nothing on the GPU uses any more. Whether that was all. */
static bool end(struct flyt_session *session)
{
    struct flyt_copying *copying = session->copying;
    bool is_all = !copying->writing || flyt_writing_is_over(copying->writing);
    for (unsigned i = 0; i < copying->count; i++)
        is_all &= flyt_copier_close(&copying->copiers[i]);
    if (!is_all)
        return false;
    flyt_writing_free(copying->writing);
    free_copying(session);
    return true;
}

void flyt_copying_end(struct flyt_session *session)
{
    if (!session->copying)
        return;
    session->copying->is_ending = true;
    if (session->copying->writing)
        flyt_writing_cancel(session->copying->writing);
    end(session);
}

void flyt_copying_fini(struct flyt_session *session)
{
    struct flyt_copying *copying = session->copying;
    for (unsigned i = 0; copying && i < copying->count; i++)
        flyt_copier_fini(&copying->copiers[i]);
    if (!copying)
        return;
    flyt_writing_free(copying->writing);
    free_copying(session);
}

/* Whether there is something to be copied still. */
static bool is_under_way(const struct flyt_copying *copying)
{
    return copying && !copying->is_ending && !copying->err.code;
}

/* ---- extents ---- */

static struct flyt_copier *copier_of(const struct flyt_device *device)
{
    struct flyt_copying *copying = device->session->copying;
    if (!copying || device->ordinal >= copying->count || !copying->copiers[device->ordinal].device)
        return NULL; /* or it was closed */
    return &copying->copiers[device->ordinal];
}

static const struct flyt_extent *find_extent(const struct flyt_device *device, uint64_t extent_id)
{
    const struct flyt_extent *extent = device->memory->extents;
    while (extent && extent->extent_id != extent_id)
        extent = extent->next;
    return extent;
}

/* The extent that a mirror is for, and its device; NULL: it is gone. */
static const struct flyt_extent *find_slot_extent(struct flyt_session *session,
                                                  const struct flyt_manager_link_extent *wanted,
                                                  struct flyt_device **ret_device)
{
    for (unsigned i = 0; i < session->device_count; i++) {
        if (session->devices[i].slot != wanted->slot)
            continue;
        *ret_device = &session->devices[i];
        return find_extent(&session->devices[i], wanted->extent_id);
    }
    return NULL;
}

static int add_mirror(struct flyt_session *session, const struct flyt_manager_link_extent *mirror, int fd,
                      struct flyt_error *err)
{
    struct flyt_device *device;
    const struct flyt_extent *extent = mirror->extent_id ? find_slot_extent(session, mirror, &device) : NULL;
    if (!extent)
        return 0;
    if (extent->address != mirror->address || extent->bytes != mirror->bytes)
        return flyt_error_set(err, -EINVAL, "memory came for an extent that is not as it says, extent_id=%llu",
                              (unsigned long long)mirror->extent_id);
    if (flyt_fault_point("copying.mirror") == FLYT_FAULT_ERROR)
        return flyt_error_set(err, -EIO, "the other server's memory cannot be mapped: a test wants it so");
    CUresult result = flyt_device_use(device);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, -EIO, "device %u: its context cannot be used, cuda_result=%d", device->ordinal,
                              (int)result);
    return flyt_mirrors_add(&copier_of(device)->mirrors, mirror, fd, err);
}

void flyt_copying_mirror(struct flyt_session *session, const struct flyt_manager_link_extent *extent, int fd)
{
    struct flyt_copying *copying = session->copying;
    if (is_under_way(copying) && !copying->writing) {
        add_mirror(session, extent, fd, &copying->err);
        if (copying->begin_ns == UINT64_MAX)
            copying->begin_ns = session->clock_ns();
    }
    flyt_close(fd);
}

bool flyt_copying_let_go(struct flyt_device *device, const struct flyt_extent *extent)
{
    struct flyt_copier *copier = copier_of(device);
    return !copier || flyt_copier_let_go(copier, extent);
}

bool flyt_copying_let_go_all(struct flyt_device *device)
{
    bool is_all = true;
    for (const struct flyt_extent *extent = device->memory->extents; extent; extent = extent->next)
        is_all &= flyt_copying_let_go(device, extent);
    return is_all;
}

void flyt_copying_extent_gone(struct flyt_session *session, uint64_t extent_id)
{
    struct flyt_copying *copying = session->copying;
    for (unsigned i = 0; extent_id && copying && i < copying->count; i++)
        if (copying->copiers[i].device)
            flyt_copier_drop(&copying->copiers[i], extent_id);
}

bool flyt_copying_holds_sms(const struct flyt_device *device)
{
    const struct flyt_copier *copier = copier_of(device);
    return copier && flyt_copier_holds_sms(copier);
}

bool flyt_copying_is_on_gpu(const struct flyt_device *device)
{
    const struct flyt_copier *copier = copier_of(device);
    return copier && flyt_session_may_work(device->session->driver->cuStreamQuery(copier->cu_stream));
}

/* ---- rounds ---- */

static bool is_whole(const struct flyt_copying *copying)
{
    bool is_all = true;
    for (unsigned i = 0; i < copying->count; i++)
        is_all &= flyt_copier_is_whole(&copying->copiers[i]);
    return is_all;
}

/* Whether a mirror is there that the next round takes in. */
static bool has_more(const struct flyt_copying *copying)
{
    for (unsigned i = 0; i < copying->count; i++)
        if (flyt_copier_has_more(&copying->copiers[i]))
            return true;
    return false;
}

static void begin_round(struct flyt_copying *copying)
{
    uint64_t changes = 0;
    if (flyt_fault_point(copying->is_last ? "copying.last" : "copying.round") == FLYT_FAULT_ERROR)
        flyt_error_set(&copying->err, -EIO, "the session's memory cannot be copied: a test wants it so");
    for (unsigned i = 0; i < copying->count && !copying->err.code; i++)
        flyt_copier_begin(&copying->copiers[i], copying->is_last, &copying->err);
    for (unsigned i = 0; i < copying->count && copying->writing && !copying->is_seeded && !copying->err.code; i++)
        flyt_writing_inherit(copying->writing, &copying->copiers[i]);
    copying->is_seeded = true;
    if (copying->writing && !copying->err.code)
        flyt_writing_begin_round(copying->writing, copying->copiers, copying->count, &copying->err);
    for (unsigned i = 0; i < copying->count; i++)
        changes += copying->copiers[i].changes;
    if (changes != copying->looks_changes)
        copying->looks = 0;
    copying->looks_changes = changes;
    copying->round += !copying->is_last && is_whole(copying);
    copying->is_running = true;
}

/* Of the last rounds. */
static void end_last(struct flyt_session *session, bool has_looked, bool is_exact)
{
    struct flyt_copying *copying = session->copying;
    copying->begin_ns = session->clock_ns();
    if (is_exact && is_whole(copying))
        copying->is_exact = true;
    else if (is_exact && !has_more(copying))
        copying->begin_ns = UINT64_MAX;
    else if (!is_exact && has_looked && ++copying->looks == LOOKS_MAX)
        flyt_error_set(&copying->err, -EIO, "memory changes though nothing of the session runs any more");
}

/* Between two rounds when it is ready. An image may have so many rounds and no more: what is sent, and is to be stopped
 * soon, has its share of them quickly, so that little is left then. */
static uint64_t rest_ns(const struct flyt_copying *copying)
{
    const struct flyt_writing *writing = copying->writing;
    bool is_short = !writing || (writing->sending && writing->round_count < RESTS_SHORT);
    return is_short ? REST_NS : IMAGE_REST_NS;
}

/* While the program runs. */
static void end_running(struct flyt_session *session, uint64_t dirty_pages, uint64_t unsent_pages, uint64_t pages)
{
    struct flyt_copying *copying = session->copying;
    uint64_t now_ns = session->clock_ns();
    bool has_all = is_whole(copying);
    copying->is_ready = has_all && !unsent_pages &&
                        (dirty_pages * FLYT_PAGE_BYTES <= copying->move.rest_bytes ||
                         copying->round >= copying->move.rounds_max || copying->is_ready);
    if (copying->writing && copying->writing->round_count >= FLYT_WRITING_ROUNDS_MAX) {
        copying->is_ready = true;
        copying->begin_ns = NEVER_NS; /* what is left is for when the program has stopped */
    } else if (copying->is_ready)
        copying->begin_ns = now_ns + rest_ns(copying);
    else if (has_all)
        copying->begin_ns = now_ns;
    else
        copying->begin_ns = pages || has_more(copying) ? now_ns + MIRRORS_NS : UINT64_MAX;
}

static void end_round(struct flyt_session *session)
{
    struct flyt_copying *copying = session->copying;
    uint64_t dirty_pages = 0, unsent_pages = 0, pages = 0;
    bool is_exact = !copying->is_void, has_looked = false;
    for (unsigned i = 0; i < copying->count; i++) {
        const struct flyt_copier *copier = &copying->copiers[i];
        dirty_pages += copier->runs.pages_count;
        unsent_pages += copier->table.unsent_count;
        pages += copier->table.pages_count;
        is_exact &= flyt_copier_is_exact(copier);
        has_looked |= copier->has_looked && !copying->is_void;
    }
    flyt_debug("session %s: round %u of copying has found %llu of %llu pages changed", session->label, copying->round,
               (unsigned long long)dirty_pages, (unsigned long long)pages);
    copying->is_running = copying->is_void = false;
    if (copying->is_last)
        end_last(session, has_looked, is_exact);
    else
        end_running(session, dirty_pages, unsent_pages, pages);
    if (copying->writing && !copying->is_last)
        flyt_writing_flush(copying->writing);
}

/* Whether what the round before has written is where it is to be: the disk may be slower than the GPU. The program
 * that has stopped does not wait for that. */
static bool is_settled(struct flyt_copying *copying)
{
    bool is_flushed = !copying->writing || flyt_writing_is_flushed(copying->writing);
    copying->is_settled |= copying->is_ready && is_flushed;
    return is_flushed || copying->is_last;
}

/* Whether all devices have ended the round; each goes on with it. */
static bool advance_round(struct flyt_copying *copying)
{
    bool has_ended = true;
    for (unsigned i = 0; i < copying->count && !copying->err.code; i++) {
        flyt_copier_advance(&copying->copiers[i], &copying->err);
        has_ended &= copying->copiers[i].step == FLYT_COPIER_ENDED;
    }
    return has_ended && !copying->err.code;
}

/* After a failure. Whether something is still on the GPU. */
static bool settle(struct flyt_copying *copying)
{
    bool is_all = true;
    for (unsigned i = 0; i < copying->count; i++)
        is_all &= flyt_copier_settle(&copying->copiers[i]);
    return !is_all;
}

/* The copiers of an image that builds on another are opened when that was read. */
static bool is_open(struct flyt_session *session)
{
    struct flyt_copying *copying = session->copying;
    if (copying->is_open || !flyt_writing_is_begun(copying->writing))
        return copying->is_open;
    copying->is_open = true;
    return open_copiers(session, copying, &copying->writing->hash_key, &copying->err) == 0;
}

bool flyt_copying_advance(struct flyt_session *session)
{
    struct flyt_copying *copying = session->copying;
    if (copying && copying->is_ending)
        return !end(session);
    if (is_under_way(copying) && copying->writing) {
        flyt_writing_advance(copying->writing, &copying->err);
        copying->is_written = flyt_writing_is_whole(copying->writing);
    }
    if (is_under_way(copying) && session->fatal != CUDA_SUCCESS)
        flyt_error_set(&copying->err, -EIO, "the session's context is lost, cuda_result=%d", (int)session->fatal);
    if (copying && copying->err.code)
        return settle(copying);
    if (!copying || copying->is_exact)
        return false; /* who writes an image kicks */
    if (!is_open(session))
        return copying->err.code ? settle(copying) : false;
    for (unsigned i = 0; i < copying->count; i++)
        flyt_copier_watch(&copying->copiers[i], session->clock_ns());
    /* No mirror is awaited, because there is no memory, or what had none is gone. */
    if (!copying->is_running && copying->begin_ns == UINT64_MAX && is_whole(copying))
        copying->begin_ns = session->clock_ns();
    if (!copying->is_running && is_settled(copying) && session->clock_ns() >= copying->begin_ns)
        begin_round(copying);
    if (copying->is_running && advance_round(copying))
        end_round(session);
    return copying->err.code ? settle(copying) : !copying->is_exact && copying->begin_ns != UINT64_MAX;
}

void flyt_copying_finish(struct flyt_session *session)
{
    struct flyt_copying *copying = session->copying;
    if (!is_under_way(copying) || copying->is_last)
        return;
    copying->is_last = true;
    copying->is_ready = copying->is_settled = copying->is_exact = false;
    copying->looks = 0;
    copying->finish_pages = 0;
    /* A look that has begun is worth nothing, though it has seen every page: what was written since is in none of its
     * hashes. What it has found so far the next one finds, too. */
    copying->is_void = copying->is_running;
    for (unsigned i = 0; i < copying->count; i++) {
        flyt_copier_stop(&copying->copiers[i]);
        copying->finish_pages += copying->copiers[i].copied_pages;
    }
    copying->begin_ns = 0;
}

void flyt_copying_go_on(struct flyt_session *session)
{
    struct flyt_copying *copying = session->copying;
    if (!is_under_way(copying) || !copying->is_last)
        return;
    copying->is_last = copying->is_exact = false;
    copying->is_void = copying->is_running;
    for (unsigned i = 0; i < copying->count; i++)
        flyt_copier_stop(&copying->copiers[i]);
    copying->begin_ns = 0;
}

void flyt_copying_put_state(struct flyt_session *session, int state_fd)
{
    struct flyt_copying *copying = session->copying;
    if (!is_under_way(copying) || !copying->writing) {
        flyt_close(state_fd);
        return;
    }
    copying->is_state_put = true;
    flyt_writing_end_image(copying->writing, copying->copiers, copying->count, state_fd, &copying->err);
}

/* ---- what is told ---- */

static bool is_ending(const struct flyt_copying *copying)
{
    return copying && copying->is_ending;
}

void flyt_copying_state(const struct flyt_session *session, struct flyt_manager_link_move_state *ret_state)
{
    const struct flyt_copying *copying = is_ending(session->copying) ? NULL : session->copying;
    struct flyt_manager_link_move_state state = *ret_state;
    state.page_bytes = FLYT_PAGE_BYTES;
    state.pages_count = state.pages_left = state.pages_dirty = state.copied_bytes = 0;
    for (unsigned i = 0; copying && i < copying->count; i++) {
        const struct flyt_copier *copier = &copying->copiers[i];
        state.pages_count += copier->device->memory->extent_bytes / FLYT_PAGE_BYTES;
        const uint64_t pages_dirty = copier->runs.pages_count + flyt_copier_pages_ahead(copier);
        state.pages_dirty += pages_dirty;
        state.pages_left += pages_dirty - copier->pages_done;
        state.copied_bytes += copier->copied_pages * FLYT_PAGE_BYTES;
    }
    state.round = copying && copying->round ? copying->round : 1;
    state.outcome = copying ? copying->err.code : 0;
    state.phase = FLYT_MANAGER_LINK_MOVE_COPYING;
    if (copying && copying->is_last)
        state.phase = FLYT_MANAGER_LINK_MOVE_LAST;
    else if (copying && copying->is_ready && copying->is_settled && is_whole(copying))
        state.phase = FLYT_MANAGER_LINK_MOVE_READY;
    *ret_state = state;
}

int flyt_copying_result(const struct flyt_session *session)
{
    const struct flyt_copying *copying = session->copying;
    if (!copying || copying->is_ending)
        return -EINVAL;
    if (copying->err.code)
        return copying->err.code;
    return copying->is_exact && copying->is_written == copying->is_state_put ? 0 : -EAGAIN;
}

const char *flyt_copying_sentence(const struct flyt_session *session)
{
    const struct flyt_copying *copying = session->copying;
    if (!copying || copying->is_ending)
        return "no memory of the session is being copied";
    return copying->err.text;
}

uint64_t flyt_copying_pages_kept(const struct flyt_session *session)
{
    const struct flyt_copying *copying = is_ending(session->copying) ? NULL : session->copying;
    return copying && copying->writing && copying->is_written ? copying->writing->kept_pages : 0;
}

uint64_t flyt_copying_pages_last(const struct flyt_session *session)
{
    const struct flyt_copying *copying = is_ending(session->copying) ? NULL : session->copying;
    uint64_t pages = 0;
    for (unsigned i = 0; copying && copying->is_last && i < copying->count; i++)
        pages += copying->copiers[i].copied_pages;
    return pages ? pages - copying->finish_pages : 0;
}

/* ---- for the server that has the mirrors ---- */

const struct flyt_page_key *flyt_copying_hash_key(const struct flyt_session *session)
{
    const struct flyt_copying *copying = session->copying;
    return copying && !copying->is_ending && !copying->writing ? &copying->key : NULL;
}

int flyt_copying_put_hashes(const struct flyt_session *session, struct flyt_checkpoint_writer *writer,
                            struct flyt_error *err)
{
    const struct flyt_copying *copying = session->copying;
    int status = 0;
    if (!copying || !copying->is_exact)
        return flyt_error_set(err, -EINVAL, "hashes are wanted of what has not been copied");
    for (unsigned i = 0; i < copying->count; i++) {
        const struct flyt_page_table *table = &copying->copiers[i].table;
        for (unsigned n = 0; n < table->extent_count && !status; n++) {
            uint64_t address, pages_count;
            const struct flyt_page_hash *hashes = flyt_page_table_hashes(table, n, &address, &pages_count);
            if (!hashes)
                return flyt_error_set(err, -EIO, "pages are still on their way though all were compared");
            status = flyt_checkpoint_put_hashes(writer, address, pages_count, hashes, err);
        }
    }
    return status;
}
