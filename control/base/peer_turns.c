#include "control/base/peer_turns.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "control/base/loop.h"
#include "control/base/peer_state.h"
#include "rpc/base/clock.h"

/* Then the loop's other sources have their turn. One may be a step of a TLS handshake, which signs: a millisecond. */
enum { TURNS_AT_ONCE = 64, TURNS_NS = 5000000 };

struct flyt_peer_turns {
    unsigned ref_count; /* whoever owns it, and each of the functions below that is running */
    const struct flyt_peer_turns_ops *ops;
    int epoll_fd;
    sd_event_source *io, *again;
    TAILQ_HEAD(, flyt_peer) woken;
    struct epoll_event batch[TURNS_AT_ONCE]; /* who was ready: who has gone meanwhile is struck out */
    int batch_next, batch_count;             /* whose turn it is; in one turn of the loop or in several */
};

static void unref(struct flyt_peer_turns *turns)
{
    if (--turns->ref_count)
        return;
    free(turns);
}

static bool is_time_left(uint64_t begin_ns)
{
    return flyt_clock_ns() - begin_ns < TURNS_NS;
}

/* Who is still ready is so again (epoll(7), level-triggered), and is asked for behind all who were ready with it: the
 * kernel would name those first who were first before. */
static int on_ready(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct flyt_peer_turns *turns = user;
    uint64_t begin_ns = flyt_clock_ns();
    bool is_first = true;

    if (turns->batch_next == turns->batch_count) {
        int count = epoll_wait(fd, turns->batch, TURNS_AT_ONCE, 0);
        if (count < 0)
            return errno == EINTR ? 0 : -errno;
        turns->batch_next = 0;
        turns->batch_count = count;
    }
    turns->ref_count++;
    while (turns->batch_next < turns->batch_count && (is_first || is_time_left(begin_ns))) {
        const struct epoll_event *event = &turns->batch[turns->batch_next++];
        if (!event->data.ptr)
            continue;
        is_first = false;
        turns->ops->is_ready(event->data.ptr, event->events);
    }
    unref(turns);
    return 0;
}

static int on_woken(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_peer_turns *turns = user;
    struct flyt_peer *peer;
    uint64_t begin_ns = flyt_clock_ns();

    turns->ref_count++;
    for (unsigned i = 0; i < TURNS_AT_ONCE && (!i || is_time_left(begin_ns)) && (peer = TAILQ_FIRST(&turns->woken));
         i++) {
        TAILQ_REMOVE(&turns->woken, peer, woken_link);
        peer->is_woken = false;
        turns->ops->take_turn(peer);
    }
    if (!TAILQ_EMPTY(&turns->woken))
        flyt_loop_again(turns->again);
    unref(turns);
    return 0;
}

int flyt_peer_turns_new(sd_event *event, const struct flyt_peer_turns_ops *ops, struct flyt_peer_turns **ret_turns)
{
    struct flyt_peer_turns *turns = calloc(1, sizeof *turns);

    if (!turns)
        return -ENOMEM;
    turns->ref_count = 1;
    turns->ops = ops;
    TAILQ_INIT(&turns->woken);
    turns->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int status = turns->epoll_fd < 0 ? -errno : 0;
    if (!status)
        status = sd_event_add_io(event, &turns->io, turns->epoll_fd, EPOLLIN, on_ready, turns);
    if (status >= 0)
        status = flyt_loop_add_again(event, on_woken, turns, &turns->again);
    if (status < 0) {
        flyt_peer_turns_free(turns);
        return status;
    }
    *ret_turns = turns;
    return 0;
}

struct flyt_peer_turns *flyt_peer_turns_free(struct flyt_peer_turns *turns)
{
    if (!turns)
        return NULL;
    turns->io = sd_event_source_disable_unref(turns->io);
    turns->again = sd_event_source_disable_unref(turns->again);
    if (turns->epoll_fd >= 0)
        close(turns->epoll_fd);
    turns->epoll_fd = -1;
    unref(turns);
    return NULL;
}

int flyt_peer_turns_watch(struct flyt_peer_turns *turns, struct flyt_peer *peer, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = peer};

    if (epoll_ctl(turns->epoll_fd, peer->is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event))
        return -errno;
    peer->is_watched = true;
    return 0;
}

void flyt_peer_turns_wake(struct flyt_peer_turns *turns, struct flyt_peer *peer)
{
    if (peer->is_woken)
        return;
    peer->is_woken = true;
    TAILQ_INSERT_TAIL(&turns->woken, peer, woken_link);
    flyt_loop_again(turns->again);
}

void flyt_peer_turns_forget(struct flyt_peer_turns *turns, struct flyt_peer *peer)
{
    if (peer->is_woken)
        TAILQ_REMOVE(&turns->woken, peer, woken_link);
    peer->is_woken = false;
    if (peer->is_watched)
        epoll_ctl(turns->epoll_fd, EPOLL_CTL_DEL, peer->fd, NULL);
    peer->is_watched = false;
    for (int i = 0; i < turns->batch_count; i++)
        if (turns->batch[i].data.ptr == peer)
            turns->batch[i].data.ptr = NULL;
}
