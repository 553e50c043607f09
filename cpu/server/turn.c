#include "cpu/server/turn.h"

#include <errno.h>
#include <string.h>

#include "cpu/server/session.h"
#include "cpu/server/stream.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum {
    MARK_IDLE_NS = 5 * 1000,        /* so long without a call before the end of what runs is marked */
    RETRY_NS = 10 * 1000 * 1000,    /* after another process did not let go of the token's mutex */
    LISTEN_NS = 1000 * 1000 * 1000, /* words of others that get lost are found out */
};

/* ---- the thread that listens ---- */

static void *await_word(void *user)
{
    struct flyt_device *device = user;
    struct flyt_turn *turn = &device->turn;
    while (!atomic_load(&turn->is_ending)) {
        uint32_t wakes = flyt_turns_wakes(turn->turns, turn->place);
        flyt_session_kick(device->session);
        if (!atomic_load(&turn->is_ending))
            flyt_turns_wait(turn->turns, turn->place, wakes, LISTEN_NS);
    }
    return NULL;
}

static void end_thread(struct flyt_turn *turn)
{
    if (!turn->has_thread)
        return;
    atomic_store(&turn->is_ending, true);
    flyt_turns_wake(turn->turns, turn->place);
    pthread_join(turn->thread, NULL);
    turn->has_thread = false;
}

/* ---- the token ---- */

static bool is_busy(const struct flyt_device *device)
{
    return (device->busy_count || device->copying_count) && device->session->fatal == CUDA_SUCCESS;
}

static void open_gate(struct flyt_device *device)
{
    struct flyt_turn *turn = &device->turn;
    turn->is_closed = turn->is_wanted = false;
    turn->idle_since_ns = 0;
    device->session->is_scan_due = true;
}

static void close_gate(struct flyt_turn *turn)
{
    turn->is_closed = true;
    turn->is_kept = false;
}

/* Tells the others how the session is, and opens or closes the gate as they answer. Whether it is open. */
static bool tell(struct flyt_device *device, enum flyt_turn_state state)
{
    struct flyt_turn *turn = &device->turn;
    struct flyt_turn_answer answer;
    uint64_t server_id = device->session->manager->granted.server_id;
    turn->wakes = flyt_turns_wakes(turn->turns, turn->place); /* before: what comes meanwhile is another number */
    int status = flyt_turns_tell(turn->turns, turn->place, server_id, state, &answer);
    if (status) {
        flyt_debug("session %s: device %u gets no answer about its turn: %s", device->session->label, device->ordinal,
                   strerror(-status));
        close_gate(turn);
        turn->again_ns = flyt_clock_ns() + RETRY_NS;
        return false;
    }
    if (state != FLYT_TURN_RUNS)
        turn->state = state;
    turn->again_ns = answer.again_ns;
    turn->until_ns = answer.until_ns;
    if (!answer.is_granted) {
        close_gate(turn);
        return false;
    }
    turn->state = FLYT_TURN_RUNS;
    if (turn->is_closed)
        open_gate(device);
    return true;
}

/* Joins those who share a token; the session has nothing of it yet. */
static int join(struct flyt_device *device, struct flyt_turns *turns, unsigned slot)
{
    const struct flyt_server_link_session *granted = &device->session->manager->granted;
    struct flyt_turn *turn = &device->turn;
    int place = flyt_turns_join(turns, flyt_server_link_tenant(granted->allocation_id, slot), granted->server_id);
    if (place < 0)
        return place;
    turn->turns = turns;
    turn->place = (unsigned)place;
    turn->state = FLYT_TURN_IDLE;
    turn->is_idle = true;
    flyt_turns_set_idle(turns, turn->place, true, flyt_clock_ns());
    turn->is_draining = is_busy(device);
    close_gate(turn);
    atomic_store(&turn->is_ending, false);
    int status = -pthread_create(&turn->thread, NULL, await_word, device);
    turn->has_thread = status == 0;
    return status;
}

static void leave(struct flyt_device *device)
{
    struct flyt_turn *turn = &device->turn;
    if (!turn->turns)
        return;
    end_thread(turn);
    flyt_turns_leave(turn->turns, device->session->manager->granted.server_id);
    turn->turns = flyt_turns_close(turn->turns);
}

int flyt_turn_open(struct flyt_device *device, const struct flyt_server_link_session *granted, unsigned slot,
                   struct flyt_turns *turns)
{
    struct flyt_turn *turn = &device->turn;
    turn->priority = granted->slots[slot].priority;
    turn->is_suspended = turn->is_closed = granted->slots[slot].flags & FLYT_SERVER_LINK_IS_SUSPENDED;
    device->session->has_turns |= turns || turn->is_suspended;
    int status = turns ? join(device, turns, slot) : 0;
    if (status && !turn->turns)
        flyt_turns_close(turns);
    return status;
}

void flyt_turn_fini(struct flyt_device *device)
{
    leave(device);
}

bool flyt_turn_ask(struct flyt_device *device)
{
    struct flyt_turn *turn = &device->turn;
    turn->is_wanted = true;
    /* Who waits is woken; who runs has to see the end of that first. */
    if (turn->is_suspended || !turn->turns || turn->state != FLYT_TURN_IDLE || turn->is_draining)
        return false;
    return tell(device, FLYT_TURN_WAITS);
}

bool flyt_turn_ask_both(struct flyt_device *one, struct flyt_device *other)
{
    bool has_one = !one->turn.is_closed || flyt_turn_ask(one);
    bool has_other = one == other ? has_one : !other->turn.is_closed || flyt_turn_ask(other);
    if (has_one != has_other)
        (has_one ? one : other)->turn.is_kept = true;
    return has_one && has_other;
}

/* ---- rounds ---- */

/* Looks how far the device's streams have come; with the end of each marked, so that it is seen. */
static void look(struct flyt_device *device, bool is_marking)
{
    struct flyt_session *session = device->session;
    struct flyt_stream *next;
    for (struct flyt_stream *stream = session->busy_first; stream; stream = next) {
        struct flyt_moment *moment;
        next = stream->busy_next;
        if (stream->device != device || flyt_stream_poll(stream) || !is_marking)
            continue;
        if (session->fatal == CUDA_SUCCESS && flyt_stream_mark(stream, &moment) == CUDA_SUCCESS)
            flyt_moment_unref(moment);
    }
}

static enum flyt_turn_state wish_of(const struct flyt_turn *turn)
{
    return turn->is_wanted && !turn->is_suspended ? FLYT_TURN_WAITS : FLYT_TURN_IDLE;
}

/* Whether the session has had no work for so long that others are to have the token. */
static bool is_unused(struct flyt_turn *turn, uint64_t now_ns)
{
    if (!turn->idle_since_ns)
        turn->idle_since_ns = now_ns;
    uint64_t limit_ns = flyt_turns_is_wanted(turn->turns) ? FLYT_TURN_GIVE_NS : FLYT_TURN_KEEP_NS;
    return !turn->is_kept && now_ns - turn->idle_since_ns >= limit_ns;
}

/* The session has the token, or has still work on the GPU from when it had. */
static void advance_running(struct flyt_device *device, uint64_t now_ns, uint64_t idle_ns)
{
    struct flyt_turn *turn = &device->turn;
    flyt_turns_be_seen(turn->turns, turn->place, now_ns);
    if (!turn->is_closed && (now_ns >= turn->until_ns || now_ns >= flyt_turns_until(turn->turns)))
        tell(device, FLYT_TURN_RUNS);
    if (turn->is_closed || idle_ns)
        look(device, turn->is_closed || idle_ns >= MARK_IDLE_NS);
    bool is_idle = !is_busy(device);
    if (is_idle != turn->is_idle) {
        turn->is_idle = is_idle;
        flyt_turns_set_idle(turn->turns, turn->place, is_idle, now_ns);
    }
    if (!is_idle) {
        turn->idle_since_ns = 0;
        return;
    }
    if (!turn->is_closed && is_unused(turn, now_ns))
        close_gate(turn);
    if (turn->is_closed)
        tell(device, wish_of(turn));
}

static void advance_waiting(struct flyt_device *device, uint64_t now_ns)
{
    struct flyt_turn *turn = &device->turn;
    if (turn->is_draining) {
        look(device, true);
        turn->is_draining = is_busy(device);
        if (turn->is_draining)
            return;
    }
    enum flyt_turn_state wish = wish_of(turn);
    bool is_news =
        wish != turn->state || now_ns >= turn->again_ns || flyt_turns_wakes(turn->turns, turn->place) != turn->wakes;
    if (is_news && (wish != FLYT_TURN_IDLE || turn->state != FLYT_TURN_IDLE))
        tell(device, wish);
}

static void answer(struct flyt_device *device, int outcome)
{
    const struct flyt_server_link_share_done done = {device->turn.revision, device->slot, outcome};
    device->turn.is_answer_due = false;
    flyt_manager_tell(device->session->manager, FLYT_SERVER_LINK_SHARE_DONE, &done, sizeof done, NULL, NULL, 0);
}

static bool advance(struct flyt_device *device, uint64_t now_ns, uint64_t idle_ns, uint64_t *again_ns)
{
    struct flyt_turn *turn = &device->turn;
    if (turn->turns && turn->state == FLYT_TURN_RUNS)
        advance_running(device, now_ns, idle_ns);
    else if (turn->turns)
        advance_waiting(device, now_ns);
    if (turn->is_answer_due) {
        look(device, true);
        if (!is_busy(device))
            answer(device, 0);
    }
    if (turn->turns && turn->state == FLYT_TURN_WAITS && turn->again_ns < *again_ns)
        *again_ns = turn->again_ns;
    return (turn->turns && turn->state == FLYT_TURN_RUNS) || turn->is_draining || turn->is_answer_due;
}

bool flyt_turns_advance(struct flyt_session *session, uint64_t now_ns, uint64_t idle_ns, uint64_t *ret_again_ns)
{
    bool needs_poll = false;
    *ret_again_ns = UINT64_MAX;
    for (unsigned i = 0; i < session->device_count; i++)
        needs_poll |= advance(&session->devices[i], now_ns, idle_ns, ret_again_ns);
    return needs_poll;
}

/* ---- orders ---- */

/* What a node manager that was restarted is told. */
static void note(struct flyt_device *device, const struct flyt_server_link_share *order)
{
    struct flyt_manager *manager = device->session->manager;
    struct flyt_server_link_slot *slot = &manager->granted.slots[device->slot];
    pthread_mutex_lock(&manager->mutex);
    slot->priority = order->priority;
    slot->flags = (device->turn.turns ? FLYT_SERVER_LINK_HAS_TURNS : 0u) |
                  (order->is_suspended ? FLYT_SERVER_LINK_IS_SUSPENDED : 0u);
    manager->turns[device->slot] = device->turn.turns;
    pthread_mutex_unlock(&manager->mutex);
}

/* 0 or a negative errno: it stays with the token that it has. */
static int change_turns(struct flyt_device *device, int turns_fd)
{
    struct flyt_manager *manager = device->session->manager;
    struct flyt_turns *turns;
    int status = flyt_turns_open(turns_fd, &turns);
    if (status)
        return status;
    pthread_mutex_lock(&manager->mutex); /* the watching thread may be about to send it */
    manager->turns[device->slot] = NULL;
    pthread_mutex_unlock(&manager->mutex);
    leave(device);
    status = join(device, turns, device->slot);
    if (status && !device->turn.turns)
        flyt_turns_close(turns);
    /* Without a token the gate stays closed: nobody works who is not counted. */
    close_gate(&device->turn);
    return status;
}

void flyt_turn_take(struct flyt_device *device, const struct flyt_server_link_share *order, int turns_fd)
{
    struct flyt_session *session = device->session;
    struct flyt_turn *turn = &device->turn;
    int status = turns_fd >= 0 ? change_turns(device, turns_fd) : 0;
    flyt_close(turns_fd);
    if (turn->priority != order->priority) {
        turn->priority = order->priority;
        flyt_resize_renew_streams(device);
    }
    turn->is_suspended = order->is_suspended;
    if (turn->is_suspended)
        close_gate(turn);
    else if (!turn->turns && !status && turn->is_closed)
        open_gate(device);
    session->has_turns |= turn->turns || turn->is_suspended;
    note(device, order);
    turn->revision = order->revision;
    turn->is_answer_due = turn->is_suspended && !status;
    if (!turn->is_answer_due)
        answer(device, status);
}

int flyt_turn_priority(const struct flyt_device *device, int priority)
{
    int least, greatest; /* of streams, the greatest priority is the lowest number */
    if (!device->turn.priority ||
        device->session->driver->cuCtxGetStreamPriorityRange(&least, &greatest) != CUDA_SUCCESS)
        return priority;
    priority -= device->turn.priority;
    return priority < greatest ? greatest : priority > least ? least : priority;
}
