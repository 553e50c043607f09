#include "rpc/base/time_slice_seat.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/sealed.h"
#include "rpc/base/time_slice_board.h"

#define MS 1000000ull

/* An offer that was seen so late may be another's by now: it is asked for once more. */
static const uint64_t take_ns = FLYT_TIME_SLICE_TAKE_MS * MS / 2;
/* Who waits looks whether the giver is away. */
static const uint64_t look_ns = FLYT_TIME_SLICE_AWAY_MS * MS / 2;
/* Before the end of its part by the clock, for what is on the GPU then. */
static const uint64_t margin_ns = 2 * MS;

struct flyt_time_slice_seat {
    const struct flyt_time_slice_board *board;
    struct flyt_time_slice_page *page;
    int page_fd, bell_fd;
    uint64_t tenant_id;
    unsigned place;
    enum flyt_time_slice_state state;
    uint64_t number;         /* of what was said last */
    uint64_t taken;          /* the offer that was taken last */
    bool is_by_clock;        /* it runs because its part of the cycle is now */
    _Atomic(uint32_t) woken; /* by flyt_time_slice_seat_wake */
};

int flyt_time_slice_seat_open(const int *fds, struct flyt_time_slice_seat **ret_seat)
{
    struct flyt_shared *page;
    struct flyt_time_slice_seat *seat = calloc(1, sizeof *seat);
    const void *board;

    if (!seat)
        return -ENOMEM;
    int status = flyt_sealed_map(fds[0], FLYT_TIME_SLICE_BOARD_BYTES, &board);
    if (status) {
        free(seat);
        return status == -EINVAL ? -EBADMSG : status;
    }
    seat->board = board;
    status = seat->board->head.magic != FLYT_TIME_SLICE_BOARD_MAGIC       ? -EBADMSG
             : seat->board->head.version != FLYT_TIME_SLICE_BOARD_VERSION ? -EPROTO
                                                                          : 0;
    if (!status)
        status = flyt_shared_open(fds[1], FLYT_TIME_SLICE_PAGE_BYTES, FLYT_TIME_SLICE_PAGE_MAGIC,
                                  FLYT_TIME_SLICE_BOARD_VERSION, &seat->page_fd, &page);
    if (status)
        goto unmap;
    seat->page = (struct flyt_time_slice_page *)page;
    seat->place = page->count;
    seat->tenant_id = seat->page->tenant_id;
    seat->bell_fd = fcntl(fds[2], F_DUPFD_CLOEXEC, 0);
    status = seat->bell_fd < 0 ? -errno : seat->place >= FLYT_TIME_SLICE_SERVERS_MAX ? -EBADMSG : 0;
    if (status)
        goto close_page;
    flyt_time_slice_seat_set_idle(seat, true, flyt_clock_ns());
    *ret_seat = seat;
    return 0;
close_page:
    flyt_close(seat->bell_fd);
    flyt_shared_close(seat->page_fd, page, FLYT_TIME_SLICE_PAGE_BYTES);
unmap:
    flyt_sealed_unmap(seat->board, FLYT_TIME_SLICE_BOARD_BYTES);
    free(seat);
    return status;
}

/* Points at which a test ends or hangs a server: before it says how it is, and before anybody hears that. */
static const struct {
    const char *saying, *said;
} points[] = {
    [FLYT_TIME_SLICE_IDLE] = {"time_slice.give", "time_slice.given"},
    [FLYT_TIME_SLICE_WAITS] = {"time_slice.ask", "time_slice.asked"},
    [FLYT_TIME_SLICE_RUNS] = {"time_slice.take", "time_slice.taken"},
    [FLYT_TIME_SLICE_BESIDE] = {"time_slice.step_aside", "time_slice.stepped_aside"},
};

static void say(struct flyt_time_slice_seat *seat, enum flyt_time_slice_state state, uint64_t number)
{
    const uint64_t one = 1;

    flyt_fault_point(points[state].saying);
    seat->state = state;
    /* seq_cst: an offer that is looked at afterwards was not withdrawn before this could be seen. */
    atomic_store(&seat->page->word, number << FLYT_TIME_SLICE_STATE_BITS | state);
    flyt_fault_point(points[state].said);
    if (write(seat->bell_fd, &one, sizeof one) < 0)
        return; /* it rings already */
}

struct flyt_time_slice_seat *flyt_time_slice_seat_close(struct flyt_time_slice_seat *seat)
{
    if (!seat)
        return NULL;
    say(seat, FLYT_TIME_SLICE_IDLE, ++seat->number);
    flyt_close(seat->bell_fd);
    flyt_shared_close(seat->page_fd, &seat->page->head, FLYT_TIME_SLICE_PAGE_BYTES);
    flyt_sealed_unmap(seat->board, FLYT_TIME_SLICE_BOARD_BYTES);
    free(seat);
    return NULL;
}

static uint64_t offer_of(const struct flyt_time_slice_seat *seat)
{
    return atomic_load(&seat->board->places[seat->place].offer);
}

static bool is_away(const struct flyt_time_slice_seat *seat, uint64_t now_ns)
{
    return now_ns > atomic_load_explicit(&seat->board->seen_ns, memory_order_relaxed) + FLYT_TIME_SLICE_AWAY_MS * MS;
}

/* ---- by the clock ---- */

/* Where the tenant's part of a cycle begins and ends, in thousandths of `*ret_all`. */
static void find_part(const struct flyt_time_slice_seat *seat, uint64_t *ret_from, uint64_t *ret_to, uint64_t *ret_all)
{
    uint64_t at = 0, from = 0, to = 0;

    for (unsigned i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++) {
        uint64_t part = atomic_load_explicit(&seat->board->parts[i].part, memory_order_relaxed);
        part = part > 1000 ? 1000 : part;
        if (atomic_load_explicit(&seat->board->parts[i].tenant_id, memory_order_relaxed) == seat->tenant_id) {
            from = at;
            to = at + part;
        }
        at += part;
    }
    *ret_from = from;
    *ret_to = to;
    *ret_all = at > 1000 ? at : 1000;
}

/* Whether its part is now; *ret_again_ns: when it begins next. */
static bool is_now(const struct flyt_time_slice_seat *seat, uint64_t now_ns, uint64_t *ret_again_ns)
{
    const uint64_t cycle_ns = FLYT_TIME_SLICE_CYCLE_MS * MS, at_ns = now_ns % cycle_ns;
    uint64_t from, to, all;

    find_part(seat, &from, &to, &all);
    uint64_t from_ns = cycle_ns / all * from, to_ns = cycle_ns / all * to;
    uint64_t less_ns = to_ns - from_ns > 2 * margin_ns ? margin_ns : (to_ns - from_ns) / 2;
    *ret_again_ns = now_ns - at_ns + from_ns + (at_ns >= from_ns ? cycle_ns : 0);
    return at_ns >= from_ns && at_ns < to_ns - less_ns;
}

/* ---- telling ---- */

/* Whether what it runs for holds. */
static bool may_go_on(struct flyt_time_slice_seat *seat, uint64_t now_ns)
{
    uint64_t again_ns;

    if (is_away(seat, now_ns))
        return is_now(seat, now_ns, &again_ns);
    return !seat->is_by_clock && offer_of(seat) == seat->taken;
}

static bool goes_on(struct flyt_time_slice_seat *seat, uint64_t now_ns)
{
    bool may = may_go_on(seat, now_ns);

    if (!may)
        flyt_fault_point("time_slice.over");
    return may;
}

/* It waits, and looks whether it may work. */
static bool ask(struct flyt_time_slice_seat *seat, uint64_t now_ns, uint64_t *ret_again_ns)
{
    uint64_t offer = offer_of(seat);

    *ret_again_ns = now_ns + look_ns;
    if (seat->state == FLYT_TIME_SLICE_WAITS && is_away(seat, now_ns)) {
        if (!is_now(seat, now_ns, ret_again_ns))
            return false;
        seat->is_by_clock = true;
        say(seat, FLYT_TIME_SLICE_RUNS, 0);
        return true;
    }
    bool is_new = offer && offer != seat->taken;
    uint64_t offered_ns = atomic_load_explicit(&seat->board->places[seat->place].offered_ns, memory_order_relaxed);
    if (seat->state == FLYT_TIME_SLICE_WAITS && is_new && now_ns < offered_ns + take_ns) {
        seat->taken = offer;
        seat->is_by_clock = false;
        say(seat, FLYT_TIME_SLICE_RUNS, offer);
        if (offer_of(seat) == offer)
            return true;
    }
    say(seat, FLYT_TIME_SLICE_WAITS, ++seat->number);
    return false;
}

bool flyt_time_slice_seat_tell(struct flyt_time_slice_seat *seat, enum flyt_time_slice_state state, uint64_t now_ns,
                               uint64_t *ret_again_ns)
{
    *ret_again_ns = UINT64_MAX;
    if (state == FLYT_TIME_SLICE_RUNS)
        return seat->state == FLYT_TIME_SLICE_RUNS && goes_on(seat, now_ns);
    if (state == FLYT_TIME_SLICE_WAITS)
        return ask(seat, now_ns, ret_again_ns);
    say(seat, state, ++seat->number);
    return false;
}

void flyt_time_slice_seat_set_idle(struct flyt_time_slice_seat *seat, bool is_idle, uint64_t now_ns)
{
    flyt_time_slice_set_idle_word(&seat->page->idle, is_idle, now_ns);
}

void flyt_time_slice_seat_be_seen(struct flyt_time_slice_seat *seat, uint64_t now_ns)
{
    atomic_store_explicit(&seat->page->seen_ns, now_ns, memory_order_relaxed);
}

bool flyt_time_slice_seat_is_wanted(const struct flyt_time_slice_seat *seat)
{
    return atomic_load_explicit(&seat->board->is_wanted, memory_order_relaxed);
}

/* ---- waiting ---- */

uint32_t flyt_time_slice_seat_wakes(const struct flyt_time_slice_seat *seat)
{
    return atomic_load_explicit(&seat->board->places[seat->place].wake, memory_order_acquire);
}

void flyt_time_slice_seat_wait(struct flyt_time_slice_seat *seat, uint32_t wakes, uint64_t timeout_ns)
{
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                                     .tv_nsec = (long)(timeout_ns % 1000000000)};

    if (atomic_exchange(&seat->woken, 0))
        return;
    /* However it ends: who waits looks again. The board can only be read, which is enough to wait there. */
    syscall(SYS_futex, &seat->board->places[seat->place].wake, FUTEX_WAIT, wakes, &timeout, NULL, 0);
}

void flyt_time_slice_seat_wake(struct flyt_time_slice_seat *seat)
{
    atomic_store(&seat->woken, 1);
    syscall(SYS_futex, &seat->board->places[seat->place].wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
