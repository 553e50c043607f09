#include "control/base/acceptor.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "rpc/base/log.h"

enum { ACCEPTS_PER_TURN = 64, PAUSE_MS = 100 };

struct flyt_acceptor {
    struct flyt_acceptor_config config;
    sd_event_source *io, *pause;
    bool is_pause_logged;
};

static int on_pause_over(sd_event_source *source, uint64_t usec, void *user)
{
    const struct flyt_acceptor *acceptor = user;

    return sd_event_source_set_enabled(acceptor->io, SD_EVENT_ON);
}

/* The timer is there from the beginning: the loop's first one needs a descriptor itself. */
static int pause_accepting(struct flyt_acceptor *acceptor)
{
    int status = sd_event_source_set_time_relative(acceptor->pause, PAUSE_MS * 1000);

    if (status >= 0)
        status = sd_event_source_set_enabled(acceptor->pause, SD_EVENT_ONESHOT);
    return status < 0 ? status : sd_event_source_set_enabled(acceptor->io, SD_EVENT_OFF);
}

static int on_connection(sd_event_source *source, int listen_fd, uint32_t events, void *user)
{
    struct flyt_acceptor *acceptor = user;
    const struct flyt_acceptor_config *config = &acceptor->config;

    for (unsigned i = 0; i < config->accepts_per_turn; i++) {
        if (config->has_room && !config->has_room(config->user))
            return pause_accepting(acceptor);
        int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            acceptor->is_pause_logged = false;
            config->accepted(fd, config->user);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!acceptor->is_pause_logged)
                flyt_warn("%s: %m", config->paused);
            acceptor->is_pause_logged = true;
            return pause_accepting(acceptor);
        }
        /* Others are of the connection that has gone again before it was accepted, accept(2). */
    }
    return 0;
}

int flyt_acceptor_new(const struct flyt_acceptor_config *config, struct flyt_acceptor **ret_acceptor)
{
    struct flyt_acceptor *acceptor = calloc(1, sizeof *acceptor);

    if (!acceptor)
        return -ENOMEM;
    acceptor->config = *config;
    if (!acceptor->config.accepts_per_turn)
        acceptor->config.accepts_per_turn = ACCEPTS_PER_TURN;
    int status = sd_event_add_time(config->event, &acceptor->pause, CLOCK_MONOTONIC, 0, 1000, on_pause_over, acceptor);
    if (status >= 0)
        status = sd_event_source_set_enabled(acceptor->pause, SD_EVENT_OFF);
    if (status >= 0)
        status = sd_event_add_io(config->event, &acceptor->io, config->listen_fd, EPOLLIN, on_connection, acceptor);
    if (status < 0) {
        flyt_acceptor_free(acceptor);
        return status;
    }
    *ret_acceptor = acceptor;
    return 0;
}

struct flyt_acceptor *flyt_acceptor_free(struct flyt_acceptor *acceptor)
{
    if (!acceptor)
        return NULL;
    sd_event_source_disable_unref(acceptor->io);
    sd_event_source_disable_unref(acceptor->pause);
    free(acceptor);
    return NULL;
}
