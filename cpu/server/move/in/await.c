#include "cpu/server/move/in/await.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "cpu/server/move/in/adopted_extents.h"
#include "cpu/server/share/grant.h"
#include "cpu/server/core/manager.h"
#include "cpu/server/move/in/prepare.h"
#include "cpu/server/core/session.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum { REJOIN_MIN_MS = 200, REJOIN_MAX_MS = 2000 };

uint64_t flyt_await_pause_ms(void)
{
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint32_t)flyt_clock_ns();
    return REJOIN_MIN_MS + random % (REJOIN_MAX_MS - REJOIN_MIN_MS);
}

bool flyt_await_may(const struct flyt_session *session)
{
    static const unsigned char none[FLYT_MANAGER_LINK_SECRET_BYTES];
    const struct flyt_prepare *prepare = session->prepare;
    return prepare->has_state && prepare->received_move_id && *prepare->granted.rejoin_path &&
           memcmp(prepare->awaited.rejoin_secret, none, sizeof none) != 0;
}

/* Other servers of the VM bring its ledgers; this one gets them with SESSION, and its tokens. */
static int send_rejoin(const struct flyt_session *session, const struct flyt_adopted_extents *adopted,
                       struct flyt_manager_link_message *message, int fd)
{
    const struct flyt_prepare *prepare = session->prepare;
    const struct flyt_manager_link_awaited *awaited = &prepare->awaited;
    struct flyt_manager_link_rejoin *rejoin = &message->rejoin;
    message->kind = FLYT_MANAGER_LINK_REJOIN;
    message->data_bytes = 0;
    *rejoin = (struct flyt_manager_link_rejoin){.version = FLYT_MANAGER_LINK_VERSION,
                                                .client_pid = awaited->client_pid,
                                                .started_ms = awaited->started_ms,
                                                .extent_count = adopted->count,
                                                .session = prepare->granted,
                                                .received_move_id = prepare->received_move_id,
                                                .takes = FLYT_MANAGER_LINK_TAKES_ALL};
    memcpy(rejoin->session.token, awaited->token, sizeof awaited->token);
    memcpy(rejoin->session.rejoin_secret, awaited->rejoin_secret, sizeof awaited->rejoin_secret);
    rejoin->session.ledger_count = 0;
    for (unsigned i = 0; i < rejoin->session.slot_count; i++)
        rejoin->session.slots[i].flags &= ~(uint32_t)FLYT_MANAGER_LINK_HAS_TIME_SLICES;
    snprintf(rejoin->program, sizeof rejoin->program, "%s", awaited->program);
    snprintf(rejoin->client_address, sizeof rejoin->client_address, "%s", awaited->client_address);
    int status = flyt_manager_link_send(fd, message, NULL, 0);
    explicit_bzero(rejoin, sizeof *rejoin);
    return status;
}

/* The next message that comes before the time is over; what has no place here is left out. */
static int hear(struct flyt_manager_link_message *message, int fd, uint64_t deadline_ms)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int count = poll(&ready, 1, flyt_clock_left_ms(deadline_ms));
    if (count <= 0)
        return count < 0 && errno != EINTR ? -errno : -EAGAIN;
    int status = flyt_manager_link_receive(fd, message, fds, &fd_count);
    while (fd_count)
        flyt_close(fds[--fd_count]);
    return status;
}

/* What a node manager says to it: WELCOME or GO. 0, or a negative errno: it has gone, or the time is over. */
static int hear_answer(struct flyt_manager_link_message *message, int fd, uint64_t deadline_ms)
{
    while (flyt_clock_left_ms(deadline_ms)) {
        int status = hear(message, fd, deadline_ms);
        if (status && status != -EAGAIN && status != -EBADMSG && status != -ENOMEM)
            return status;
        if (status == 0 && (message->kind == FLYT_MANAGER_LINK_WELCOME || message->kind == FLYT_MANAGER_LINK_GO ||
                            message->kind == FLYT_MANAGER_LINK_KILL))
            return 0;
    }
    return -ETIMEDOUT;
}

/* 0; -ECANCELED; or it is to be tried again. */
static int try_once(struct flyt_session *session, struct flyt_adopted_extents *adopted,
                    struct flyt_manager_link_message *message, uint64_t deadline_ms, int fd)
{
    const struct timeval limit = {.tv_sec = FLYT_MANAGER_SEND_MS / 1000}, none = {0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    int status = send_rejoin(session, adopted, message, fd);
    if (status == 0)
        status = hear_answer(message, fd, deadline_ms);
    if (status == 0 && message->kind != FLYT_MANAGER_LINK_WELCOME) {
        flyt_info("session %s: is not to go on here: %s", session->label, (const char *)message->data);
        return -ECANCELED;
    }
    if (status == 0)
        status = flyt_prepare_tell_again(session, adopted, message, message->welcome.send_extents != 0, fd);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none); /* as the link was */
    return status;
}

int flyt_await(struct flyt_session *session, struct flyt_adopted_extents *adopted,
               struct flyt_manager_link_message *message, uint64_t away_ms, uint64_t answer_ms, int *ret_link_fd)
{
    uint64_t left_ms = away_ms; /* the pauses are the time without a node manager */
    int status = 0;
    flyt_grant_name(session, &session->prepare->granted);
    flyt_warn("session %s: the node manager is away, and the program has not come", session->label);
    /* RESUME may have come, and SESSION behind it was lost. */
    adopted->is_resume = false;
    adopted->resume = (struct flyt_manager_link_resume){0};
    while (left_ms && status != -ETIMEDOUT) {
        uint64_t pause_ms = flyt_await_pause_ms();
        if (pause_ms > left_ms)
            pause_ms = left_ms;
        poll(NULL, 0, (int)pause_ms);
        left_ms -= pause_ms;
        int fd = flyt_manager_link_connect(session->prepare->granted.rejoin_path);
        if (fd < 0)
            continue;
        fd = flyt_descriptor_move_up(fd);
        status = try_once(session, adopted, message, flyt_clock_ms() + answer_ms, fd);
        if (status == 0) {
            flyt_info("session %s: the node manager is back", session->label);
            *ret_link_fd = fd;
            return 0;
        }
        flyt_close(fd);
        if (status == -ECANCELED)
            return status;
    }
    if (status == -ETIMEDOUT)
        flyt_warn("session %s: ends: the node manager has not answered within %llu s", session->label,
                  (unsigned long long)(answer_ms / 1000));
    else
        flyt_warn("session %s: ends: no node manager has come within %llu s", session->label,
                  (unsigned long long)(away_ms / 1000));
    return -ETIMEDOUT;
}
