#include "cpu/server/share/time_slice.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cpu/server/share/resize.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/time_slices.h"

enum {
    MARK_IDLE_NS = 5 * 1000,        /* so long without a call before the end of what runs is marked */
    LISTEN_NS = 1000 * 1000 * 1000, /* words of others that get lost are found out */
};

/* ---- the thread that listens ---- */

static void *await_word(void *user)
{
    struct flyt_device *device = user;
    struct flyt_time_slice *time_slice = device->time_slice;
    while (!atomic_load(&time_slice->is_ending)) {
        uint32_t wakes = flyt_time_slice_seat_wakes(time_slice->seat);
        flyt_session_kick(device->session);
        if (!atomic_load(&time_slice->is_ending))
            flyt_time_slice_seat_wait(time_slice->seat, wakes, LISTEN_NS);
    }
    return NULL;
}

static void end_thread(struct flyt_time_slice *time_slice)
{
    if (!time_slice->has_thread)
        return;
    atomic_store(&time_slice->is_ending, true);
    do /* it may have looked just before, and be about to wait */
        flyt_time_slice_seat_wake(time_slice->seat);
    while (pthread_tryjoin_np(time_slice->thread, NULL) && usleep(1000) == 0);
    time_slice->has_thread = false;
}

/* ---- the token ---- */

static bool is_busy(const struct flyt_device *device)
{
    return (device->busy_count || device->copying_count || device->thread_count) &&
           device->session->fatal == CUDA_SUCCESS;
}

static void open_gate(struct flyt_device *device)
{
    struct flyt_time_slice *time_slice = device->time_slice;
    device->time_slice_gate.is_closed = time_slice->is_wanted = false;
    time_slice->idle_since_ns = time_slice->closed_ns = 0;
    device->session->is_scan_due = true;
}

static void close_gate(struct flyt_device *device)
{
    device->time_slice_gate.is_closed = true;
    device->time_slice->is_kept = false;
}

/* Tells how the session is, and opens or closes the gate. Whether it is open. */
static bool tell(struct flyt_device *device, enum flyt_time_slice_state state)
{
    struct flyt_time_slice *time_slice = device->time_slice;
    time_slice->wakes =
        flyt_time_slice_seat_wakes(time_slice->seat); /* before: what comes meanwhile is another number */
    bool is_granted = flyt_time_slice_seat_tell(time_slice->seat, state, flyt_clock_ns(), &time_slice->again_ns);
    if (state != FLYT_TIME_SLICE_RUNS)
        time_slice->state = state;
    if (!is_granted) {
        close_gate(device);
        return false;
    }
    time_slice->state = FLYT_TIME_SLICE_RUNS;
    if (device->time_slice_gate.is_closed)
        open_gate(device);
    return true;
}

/* Begins to share; the session has nothing of it yet. */
static int join(struct flyt_device *device, struct flyt_time_slice_seat *seat)
{
    struct flyt_time_slice *time_slice = device->time_slice;
    time_slice->seat = seat;
    time_slice->state = FLYT_TIME_SLICE_IDLE;
    time_slice->is_idle = true;
    time_slice->is_draining = is_busy(device);
    close_gate(device);
    atomic_store(&time_slice->is_ending, false);
    int status = -pthread_create(&time_slice->thread, NULL, await_word, device);
    time_slice->has_thread = status == 0;
    if (time_slice->is_draining)
        tell(device, FLYT_TIME_SLICE_BESIDE);
    return status;
}

static void leave(struct flyt_device *device)
{
    struct flyt_time_slice *time_slice = device->time_slice;
    if (!time_slice->seat)
        return;
    end_thread(time_slice);
    time_slice->seat = flyt_time_slice_seat_close(time_slice->seat);
}

int flyt_time_slice_open(struct flyt_device *device, const struct flyt_manager_link_session *granted, unsigned slot,
                         struct flyt_time_slice_seat *seat)
{
    device->time_slice_gate.priority = granted->slots[slot].priority;
    device->time_slice_gate.is_suspended = device->time_slice_gate.is_closed =
        granted->slots[slot].flags & FLYT_MANAGER_LINK_IS_SUSPENDED;
    device->session->has_time_slices |= seat || device->time_slice_gate.is_suspended;
    device->session->manager->seats[slot] = NULL;
    return seat ? join(device, seat) : 0;
}

void flyt_time_slice_fini(struct flyt_device *device)
{
    leave(device);
}

bool flyt_time_slice_ask(struct flyt_device *device)
{
    struct flyt_time_slice *time_slice = device->time_slice;
    time_slice->is_wanted = true;
    /* Who waits is woken; who runs has to see the end of that first. */
    if (device->time_slice_gate.is_suspended || !time_slice->seat || time_slice->state != FLYT_TIME_SLICE_IDLE ||
        time_slice->is_draining)
        return false;
    return tell(device, FLYT_TIME_SLICE_WAITS);
}

bool flyt_time_slice_ask_both(struct flyt_device *one, struct flyt_device *other)
{
    bool has_one = !one->time_slice_gate.is_closed || flyt_time_slice_ask(one);
    bool has_other = one == other ? has_one : !other->time_slice_gate.is_closed || flyt_time_slice_ask(other);
    if (has_one != has_other)
        (has_one ? one : other)->time_slice->is_kept = true;
    return has_one && has_other;
}

/* ---- rounds ---- */

/* Looks how far the device's streams have come; with the end of each marked, so that it is seen. */
static void look(struct flyt_device *device, bool is_marking)
{
    struct flyt_session *session = device->session;
    struct flyt_stream *next;
    for (struct flyt_stream *stream = session->busy_first; stream; stream = next) {
        struct flyt_fence *fence;
        next = stream->busy_next;
        if (stream->device != device || flyt_stream_poll(stream) || !is_marking)
            continue;
        if (session->fatal == CUDA_SUCCESS && flyt_stream_mark(stream, &fence) == CUDA_SUCCESS)
            flyt_fence_unref(fence);
    }
}

static enum flyt_time_slice_state wish_of(const struct flyt_device *device)
{
    return device->time_slice->is_wanted && !device->time_slice_gate.is_suspended ? FLYT_TIME_SLICE_WAITS
                                                                                  : FLYT_TIME_SLICE_IDLE;
}

/* Whether the session has had no work for so long that others are to have the token. */
static bool is_unused(struct flyt_time_slice *time_slice, uint64_t now_ns)
{
    if (!time_slice->idle_since_ns)
        time_slice->idle_since_ns = now_ns;
    uint64_t limit_ns =
        flyt_time_slice_seat_is_wanted(time_slice->seat) ? FLYT_TIME_SLICE_GIVE_NS : FLYT_TIME_SLICE_KEEP_NS;
    return !time_slice->is_kept && now_ns - time_slice->idle_since_ns >= limit_ns;
}

/* The gate is closed, and what is on the GPU takes long: others are to go on beside it. */
static bool is_beside(struct flyt_time_slice *time_slice, uint64_t now_ns)
{
    if (!time_slice->closed_ns)
        time_slice->closed_ns = now_ns;
    return now_ns - time_slice->closed_ns >= FLYT_TIME_SLICE_BESIDE_MS * 1000000ull;
}

/* The session has the token, or has still work on the GPU from when it had. */
static void advance_running(struct flyt_device *device, uint64_t now_ns, uint64_t idle_ns)
{
    struct flyt_time_slice *time_slice = device->time_slice;
    flyt_time_slice_seat_be_seen(time_slice->seat, now_ns);
    if (!device->time_slice_gate.is_closed)
        tell(device, FLYT_TIME_SLICE_RUNS);
    if (device->time_slice_gate.is_closed || idle_ns)
        look(device, device->time_slice_gate.is_closed || idle_ns >= MARK_IDLE_NS);
    bool is_idle = !is_busy(device);
    if (is_idle != time_slice->is_idle) {
        time_slice->is_idle = is_idle;
        flyt_time_slice_seat_set_idle(time_slice->seat, is_idle, now_ns);
    }
    if (!is_idle) {
        time_slice->idle_since_ns = 0;
        time_slice->is_draining = device->time_slice_gate.is_closed && is_beside(time_slice, now_ns);
        if (time_slice->is_draining)
            tell(device, FLYT_TIME_SLICE_BESIDE);
        return;
    }
    if (!device->time_slice_gate.is_closed && is_unused(time_slice, now_ns))
        close_gate(device);
    if (device->time_slice_gate.is_closed)
        tell(device, wish_of(device));
}

static void advance_waiting(struct flyt_device *device, uint64_t now_ns)
{
    struct flyt_time_slice *time_slice = device->time_slice;
    if (time_slice->is_draining) {
        look(device, true);
        time_slice->is_draining = is_busy(device);
        if (time_slice->is_draining)
            return;
    }
    enum flyt_time_slice_state wish = wish_of(device);
    bool is_news = wish != time_slice->state || now_ns >= time_slice->again_ns ||
                   flyt_time_slice_seat_wakes(time_slice->seat) != time_slice->wakes;
    if (is_news && (wish != FLYT_TIME_SLICE_IDLE || time_slice->state != FLYT_TIME_SLICE_IDLE))
        tell(device, wish);
}

static void answer(struct flyt_device *device, int outcome)
{
    const struct flyt_manager_link_share_done done = {device->time_slice->revision, device->slot, outcome};
    device->time_slice->is_answer_due = false;
    flyt_manager_tell(device->session->manager, FLYT_MANAGER_LINK_SHARE_DONE, &done, sizeof done, NULL, NULL, 0);
}

static bool advance(struct flyt_device *device, uint64_t now_ns, uint64_t idle_ns, uint64_t *again_ns)
{
    struct flyt_time_slice *time_slice = device->time_slice;
    if (time_slice->seat && time_slice->state == FLYT_TIME_SLICE_RUNS)
        advance_running(device, now_ns, idle_ns);
    else if (time_slice->seat)
        advance_waiting(device, now_ns);
    if (time_slice->is_answer_due) {
        look(device, true);
        if (!is_busy(device))
            answer(device, 0);
    }
    if (time_slice->seat && time_slice->state == FLYT_TIME_SLICE_WAITS && time_slice->again_ns < *again_ns)
        *again_ns = time_slice->again_ns;
    return (time_slice->seat && time_slice->state == FLYT_TIME_SLICE_RUNS) || time_slice->is_draining ||
           time_slice->is_answer_due;
}

bool flyt_time_slices_advance(struct flyt_session *session, uint64_t now_ns, uint64_t idle_ns, uint64_t *ret_again_ns)
{
    bool needs_poll = false;
    *ret_again_ns = UINT64_MAX;
    for (unsigned i = 0; i < session->device_count; i++)
        needs_poll |= advance(&session->devices[i], now_ns, idle_ns, ret_again_ns);
    return needs_poll;
}

/* ---- orders ---- */

/* What a node manager that was restarted is told. */
static void note(struct flyt_device *device, const struct flyt_manager_link_share *order)
{
    struct flyt_manager *manager = device->session->manager;
    struct flyt_manager_link_slot *slot = &manager->granted.slots[device->slot];
    pthread_mutex_lock(&manager->mutex);
    slot->priority = order->priority;
    slot->flags &= ~(uint32_t)(FLYT_MANAGER_LINK_HAS_TIME_SLICES | FLYT_MANAGER_LINK_IS_SUSPENDED);
    slot->flags |= (device->time_slice->seat ? FLYT_MANAGER_LINK_HAS_TIME_SLICES : 0u) |
                   (order->is_suspended ? FLYT_MANAGER_LINK_IS_SUSPENDED : 0u);
    pthread_mutex_unlock(&manager->mutex);
}

/* 0 or a negative errno: it stays with the place that it has. */
static int change_seat(struct flyt_device *device, const int *fds)
{
    struct flyt_time_slice_seat *seat;
    int status = flyt_time_slice_seat_open(fds, &seat);
    if (status)
        return status;
    leave(device);
    status = join(device, seat);
    /* Where it does not hear when it is its time slice the gate stays closed: nobody works who is not counted. */
    close_gate(device);
    return status;
}

void flyt_time_slice_take(struct flyt_device *device, const struct flyt_manager_link_share *order, const int *fds)
{
    struct flyt_session *session = device->session;
    struct flyt_time_slice *time_slice = device->time_slice;
    int status = fds ? change_seat(device, fds) : 0;
    for (unsigned i = 0; fds && i < FLYT_TIME_SLICES_FDS; i++)
        flyt_close(fds[i]);
    if (device->time_slice_gate.priority != order->priority) {
        device->time_slice_gate.priority = order->priority;
        flyt_resize_renew_streams(device);
    }
    device->time_slice_gate.is_suspended = order->is_suspended;
    if (device->time_slice_gate.is_suspended)
        close_gate(device);
    else if (!time_slice->seat && !status && device->time_slice_gate.is_closed)
        open_gate(device);
    session->has_time_slices |= time_slice->seat || device->time_slice_gate.is_suspended;
    note(device, order);
    time_slice->revision = order->revision;
    time_slice->is_answer_due = device->time_slice_gate.is_suspended && !status;
    if (!time_slice->is_answer_due)
        answer(device, status);
}
