#include "control/base/peer_turns.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "control/base/peer_state.h"

enum { TURNS_AT_ONCE = 64 }; /* then the loop's other sources have their turn */

struct flyt_peer_turns {
    unsigned ref_count; /* whoever owns it, and each of the functions below that is running */
    int epoll_fd;
    sd_event_source *io, *defer;
    TAILQ_HEAD(, flyt_peer) woken;
    struct epoll_event batch[TURNS_AT_ONCE]; /* what is being gone through: who has gone meanwhile is struck out */
    int batch_count;
};

static void unref(struct flyt_peer_turns *turns)
{
    if (--turns->ref_count)
        return;
    free(turns);
}

static int on_ready(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct flyt_peer_turns *turns = user;

    int count = epoll_wait(fd, turns->batch, TURNS_AT_ONCE, 0);
    if (count < 0)
        return errno == EINTR ? 0 : -errno;
    turns->ref_count++;
    turns->batch_count = count;
    for (int i = 0; i < turns->batch_count; i++) {
        struct flyt_peer *peer = turns->batch[i].data.ptr;
        if (peer)
            flyt_peer_is_ready(peer, turns->batch[i].events);
    }
    turns->batch_count = 0;
    unref(turns);
    return 0;
}

static int on_woken(sd_event_source *source, void *user)
{
    struct flyt_peer_turns *turns = user;
    struct flyt_peer *peer;

    turns->ref_count++;
    for (unsigned i = 0; i < TURNS_AT_ONCE && (peer = TAILQ_FIRST(&turns->woken)); i++) {
        TAILQ_REMOVE(&turns->woken, peer, woken_link);
        peer->is_woken = false;
        flyt_peer_take_turn(peer);
    }
    if (!TAILQ_EMPTY(&turns->woken))
        sd_event_source_set_enabled(turns->defer, SD_EVENT_ONESHOT);
    unref(turns);
    return 0;
}

int flyt_peer_turns_new(sd_event *event, struct flyt_peer_turns **ret_turns)
{
    struct flyt_peer_turns *turns = calloc(1, sizeof *turns);

    if (!turns)
        return -ENOMEM;
    turns->ref_count = 1;
    TAILQ_INIT(&turns->woken);
    turns->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int status = turns->epoll_fd < 0 ? -errno : 0;
    if (!status)
        status = sd_event_add_io(event, &turns->io, turns->epoll_fd, EPOLLIN, on_ready, turns);
    if (status >= 0)
        status = sd_event_add_defer(event, &turns->defer, on_woken, turns);
    if (status >= 0)
        status = sd_event_source_set_enabled(turns->defer, SD_EVENT_OFF);
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
    turns->defer = sd_event_source_disable_unref(turns->defer);
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
    sd_event_source_set_enabled(turns->defer, SD_EVENT_ONESHOT);
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
