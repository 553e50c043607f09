#include "cpu/server/manager.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "cpu/server/account.h"
#include "cpu/server/limit.h"
#include "cpu/server/session.h"
#include "cpu/server/tell.h"
#include "rpc/base/deadline.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

struct flyt_manager_order {
    struct flyt_manager_order *next;
    uint32_t kind;
    int fds[FLYT_MANAGER_ORDER_FDS_MAX]; /* fds[0]: -1: none */
    unsigned fd_count;
    union {
        struct flyt_server_link_extent extent;
        struct flyt_server_link_limit limit;
        struct flyt_server_link_need need;
        struct flyt_server_link_sm sm;
        struct flyt_server_link_share share;
        struct flyt_server_link_welcome welcome;
        struct flyt_server_link_move move;
        struct flyt_server_link_stop stop;
    };
    size_t record_bytes; /* of TAKE_BACK */
    unsigned char *record;
    char sentence[FLYT_STRING_BYTES_MAX + 1];
};

static void bound_sending(int fd)
{
    const struct timeval limit = {.tv_sec = FLYT_MANAGER_SEND_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

int flyt_manager_open(struct flyt_manager *manager, int fd, const struct flyt_server_link_session *granted,
                      const int *fds)
{
    unsigned fd_count = granted->ledger_count;
    struct timespec now;
    manager->fd = fd;
    manager->granted = *granted;
    explicit_bzero(manager->granted.channel_key, sizeof manager->granted.channel_key);
    pthread_mutex_init(&manager->mutex, NULL);
    flyt_report_init(&manager->report);
    pthread_cond_init(&manager->cause_is_there, NULL);
    clock_gettime(CLOCK_REALTIME, &now);
    manager->started_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    bound_sending(fd);
    for (unsigned i = 0; i < granted->slot_count; i++)
        flyt_manager_release_groups(manager, i);
    for (unsigned i = 0; i < granted->ledger_count; i++) {
        int status = flyt_ledger_open(fds[i], &manager->ledgers[i]);
        /* Whoever made the ledger may have made our entry, too. */
        if (status == 0)
            status = flyt_ledger_join(manager->ledgers[i], granted->server_id);
        if (status && status != -EEXIST)
            return status;
    }
    for (unsigned i = 0; i < granted->slot_count; i++) {
        if (!(granted->slots[i].flags & FLYT_SERVER_LINK_HAS_TURNS))
            continue;
        int status = flyt_turns_open(fds[fd_count++], &manager->turns[i]);
        if (status)
            return status;
    }
    return 0;
}

/* Sends what is in manager->out. As long as the kernel takes no descriptor it is waited as for a socket that is full.
 */
static bool send_locked(struct flyt_manager *manager, const int *fds, unsigned fd_count)
{
    int status = -EPIPE;
    if (manager->fd >= 0)
        status = flyt_tell(manager->fd, &manager->out, fds, fd_count, FLYT_MANAGER_SEND_MS);
    /* A message is lost: the other side must not go on as if it had it. The watching thread sees the end. */
    if (status && status != -EPIPE) {
        flyt_warn("the node manager cannot be told, kind=%u: %s", manager->out.kind, strerror(-status));
        shutdown(manager->fd, SHUT_RDWR);
    }
    return status == 0;
}

bool flyt_manager_tell(struct flyt_manager *manager, enum flyt_server_link_kind kind, const void *part,
                       size_t part_bytes, const char *sentence, const int *fds, unsigned fd_count)
{
    pthread_mutex_lock(&manager->mutex);
    manager->out.kind = kind;
    if (part)
        memcpy(&manager->out.ready, part, part_bytes);
    flyt_server_link_say(&manager->out, sentence);
    bool is_told = send_locked(manager, fds, fd_count);
    pthread_mutex_unlock(&manager->mutex);
    return is_told;
}

bool flyt_manager_tell_data(struct flyt_manager *manager, enum flyt_server_link_kind kind, const void *part,
                            size_t part_bytes, const void *data, uint32_t data_bytes)
{
    pthread_mutex_lock(&manager->mutex);
    manager->out.kind = kind;
    memcpy(&manager->out.ready, part, part_bytes);
    memcpy(manager->out.data, data, data_bytes);
    manager->out.data_bytes = data_bytes;
    bool is_told = send_locked(manager, NULL, 0);
    pthread_mutex_unlock(&manager->mutex);
    return is_told;
}

static struct flyt_manager_order *free_order(struct flyt_manager_order *order)
{
    if (!order)
        return NULL;
    free(order->record);
    explicit_bzero(&order->move, sizeof order->move); /* there may have been keys */
    free(order);
    return NULL;
}

/* What the message has beside its part. False: no memory. */
static bool keep_data(struct flyt_manager_order *order, const struct flyt_server_link_message *message)
{
    if (message->kind == FLYT_SERVER_LINK_TAKE_BACK) {
        order->record_bytes = message->data_bytes;
        order->record = malloc(message->data_bytes + 1);
        if (order->record)
            memcpy(order->record, message->data, message->data_bytes);
        return order->record != NULL;
    }
    size_t bytes = message->data_bytes < sizeof order->sentence ? message->data_bytes : sizeof order->sentence - 1;
    memcpy(order->sentence, message->data, bytes);
    return true;
}

int flyt_manager_leave_order(struct flyt_manager *manager, const struct flyt_server_link_message *message)
{
    return flyt_manager_leave_order_with_all(manager, message, NULL, 0);
}

int flyt_manager_leave_order_with(struct flyt_manager *manager, const struct flyt_server_link_message *message, int fd)
{
    return flyt_manager_leave_order_with_all(manager, message, &fd, fd >= 0);
}

int flyt_manager_leave_order_with_all(struct flyt_manager *manager, const struct flyt_server_link_message *message,
                                      const int *fds, unsigned fd_count)
{
    struct flyt_manager_order *order = calloc(1, sizeof *order);
    int status = order ? 0 : -ENOMEM;
    if (!order)
        return status;
    order->kind = message->kind;
    order->fds[0] = -1;
    order->fd_count = fd_count;
    assert(fd_count <= FLYT_MANAGER_ORDER_FDS_MAX);
    if (fd_count)
        memcpy(order->fds, fds, fd_count * sizeof *fds);
    _Static_assert(sizeof order->move >= sizeof order->extent && sizeof order->move >= sizeof order->limit &&
                       sizeof order->move >= sizeof order->need && sizeof order->move >= sizeof order->share &&
                       sizeof order->move >= sizeof order->sm && sizeof order->move >= sizeof order->stop,
                   "largest");
    memcpy(&order->move, &message->move, sizeof order->move);
    if (!keep_data(order, message)) {
        free_order(order);
        return -ENOMEM;
    }
    pthread_mutex_lock(&manager->mutex);
    if (manager->order_count >= FLYT_MANAGER_ORDERS_MAX) {
        status = -ENOSPC;
    } else {
        *(manager->first ? &manager->last->next : &manager->first) = order;
        manager->last = order;
        manager->order_count++;
        order = NULL;
        atomic_store(&manager->has_orders, true);
    }
    pthread_mutex_unlock(&manager->mutex);
    free_order(order);
    return status;
}

void flyt_manager_take_cause(struct flyt_manager *manager, const char *sentence)
{
    pthread_mutex_lock(&manager->mutex);
    snprintf(manager->cause, sizeof manager->cause, "%s", sentence);
    manager->has_cause = true;
    pthread_cond_signal(&manager->cause_is_there);
    pthread_mutex_unlock(&manager->mutex);
}

void flyt_manager_ask_cause(struct flyt_manager *manager, CUresult result, bool had_work, const char *sentence,
                            char *ret_cause, size_t bytes)
{
    const struct flyt_server_link_fault fault = {.result = (int32_t)result, .had_work = had_work};
    *ret_cause = 0;
    if (!flyt_manager_tell(manager, FLYT_SERVER_LINK_FAULT, &fault, sizeof fault, sentence, NULL, 0))
        return;
    struct timespec until = flyt_deadline_ms(FLYT_MANAGER_CAUSE_MS);
    pthread_mutex_lock(&manager->mutex);
    int status = 0;
    while (!manager->has_cause && status != ETIMEDOUT)
        status = pthread_cond_clockwait(&manager->cause_is_there, &manager->mutex, CLOCK_MONOTONIC, &until);
    snprintf(ret_cause, bytes, "%s", manager->cause);
    pthread_mutex_unlock(&manager->mutex);
}

int flyt_manager_change_link(struct flyt_manager *manager, int fd)
{
    if (fd >= 0)
        bound_sending(fd);
    pthread_mutex_lock(&manager->mutex);
    int before = manager->fd;
    manager->fd = fd;
    pthread_mutex_unlock(&manager->mutex);
    return before;
}

void flyt_manager_leave_client(struct flyt_manager *manager, int main_fd, int socket_fd)
{
    pthread_mutex_lock(&manager->mutex);
    if (manager->has_client) {
        flyt_close(manager->client_main_fd);
        flyt_close(manager->client_socket_fd);
    }
    manager->has_client = true;
    manager->client_main_fd = main_fd;
    manager->client_socket_fd = socket_fd;
    pthread_mutex_unlock(&manager->mutex);
}

bool flyt_manager_take_client(struct flyt_manager *manager, int *ret_main_fd, int *ret_socket_fd)
{
    pthread_mutex_lock(&manager->mutex);
    bool has_client = manager->has_client;
    if (has_client) {
        *ret_main_fd = manager->client_main_fd;
        *ret_socket_fd = manager->client_socket_fd;
    }
    manager->has_client = false;
    pthread_mutex_unlock(&manager->mutex);
    return has_client;
}

/* ---- the submission thread's side ---- */

static struct flyt_device *device_of_slot(struct flyt_session *session, uint32_t slot)
{
    for (unsigned i = 0; i < session->device_count; i++)
        if (session->devices[i].slot == slot)
            return &session->devices[i];
    return NULL;
}

void flyt_manager_take_groups(struct flyt_manager *manager, unsigned slot, const struct flyt_server_link_sm *order)
{
    struct flyt_server_link_slot *granted = &manager->granted.slots[slot];
    pthread_mutex_lock(&manager->mutex);
    memcpy(granted->groups, order->groups, sizeof granted->groups);
    granted->sm_count = order->sm_count;
    granted->revision = order->revision;
    for (unsigned i = 0; i < sizeof granted->groups; i++)
        manager->holding[slot][i] |= granted->groups[i];
    pthread_mutex_unlock(&manager->mutex);
}

void flyt_manager_release_groups(struct flyt_manager *manager, unsigned slot)
{
    pthread_mutex_lock(&manager->mutex);
    memcpy(manager->holding[slot], manager->granted.slots[slot].groups, sizeof manager->holding[slot]);
    pthread_mutex_unlock(&manager->mutex);
}

static void take_groups(struct flyt_session *session, const struct flyt_server_link_sm *order)
{
    const struct flyt_server_link_sm_done none = {.revision = order->revision, .slot = order->slot, .state = -EINVAL};
    struct flyt_device *device = device_of_slot(session, order->slot);
    if (device)
        flyt_resize_take(device, order);
    else
        flyt_manager_tell(session->manager, FLYT_SERVER_LINK_SM_DONE, &none, sizeof none, NULL, NULL, 0);
}

static void take_share(struct flyt_session *session, const struct flyt_server_link_share *order, int fd)
{
    const struct flyt_server_link_share_done none = {order->revision, order->slot, -EINVAL};
    struct flyt_device *device = device_of_slot(session, order->slot);
    if (device) {
        flyt_turn_take(device, order, fd);
        return;
    }
    flyt_close(fd);
    flyt_manager_tell(session->manager, FLYT_SERVER_LINK_SHARE_DONE, &none, sizeof none, NULL, NULL, 0);
}

static void take_move(struct flyt_session *session, const struct flyt_manager_order *order)
{
    struct flyt_move_order move = {.kind = order->kind,
                                   .record = order->record,
                                   .record_bytes = order->record_bytes,
                                   .stream_fds = order->fds + 1,
                                   .stream_count = order->fd_count > 1 ? order->fd_count - 1 : 0};
    _Static_assert(sizeof move.move >= sizeof move.extent && sizeof move.move >= sizeof move.stop, "largest");
    memcpy(&move.move, &order->move, sizeof move.move);
    flyt_move_order(session, &move, order->fds[0]);
    explicit_bzero(&move.move, sizeof move.move);
}

static void take_order(struct flyt_session *session, const struct flyt_manager_order *order)
{
    switch (order->kind) {
    case FLYT_SERVER_LINK_GO_ON:
        if (!flyt_resume_let_go(session))
            take_move(session, order);
        break;
    case FLYT_SERVER_LINK_MOVE:
    case FLYT_SERVER_LINK_MIRROR:
    case FLYT_SERVER_LINK_STOP:
    case FLYT_SERVER_LINK_LEAVE:
    case FLYT_SERVER_LINK_TAKE_BACK:
        take_move(session, order);
        break;
    case FLYT_SERVER_LINK_REJOIN: /* left by the watching thread: the link has ended */
        flyt_move_link_ended(session);
        flyt_resume_let_go(session); /* the next node manager takes it for one that goes on here */
        break;
    case FLYT_SERVER_LINK_LIMIT:
        flyt_limit_take(session, &order->limit);
        break;
    case FLYT_SERVER_LINK_SM:
        take_groups(session, &order->sm);
        break;
    case FLYT_SERVER_LINK_SHARE:
        take_share(session, &order->share, order->fds[0]);
        break;
    case FLYT_SERVER_LINK_EXTENT_CREDITED: {
        struct flyt_device *device = device_of_slot(session, order->extent.slot);
        if (device)
            flyt_account_take_credit(device, &order->extent);
        break;
    }
    case FLYT_SERVER_LINK_NEED_DONE: {
        struct flyt_device *device = device_of_slot(session, order->need.slot);
        if (device)
            flyt_account_take_answer(device, order->need.number);
        break;
    }
    case FLYT_SERVER_LINK_WELCOME:
        for (unsigned i = 0; i < session->device_count; i++)
            flyt_memory_tell_extents(&session->devices[i], order->welcome.send_extents);
        flyt_execution_tell(session);
        break;
    case FLYT_SERVER_LINK_KILL:
    case FLYT_SERVER_LINK_GO:
        flyt_session_kill(session, *order->sentence ? order->sentence : "the session was ended by its node");
        break;
    case FLYT_SERVER_LINK_USE: /* left by the watching thread: so much time has passed */
        for (unsigned i = 0; i < session->device_count; i++)
            flyt_memory_settle(&session->devices[i]);
        break;
    default:
        flyt_warn("session %s: the node manager says what is not for a server, kind=%u", session->label, order->kind);
    }
}

void flyt_manager_process(struct flyt_session *session)
{
    struct flyt_manager *manager = session->manager;
    if (!manager || !atomic_exchange(&manager->has_orders, false))
        return;
    pthread_mutex_lock(&manager->mutex);
    struct flyt_manager_order *order = manager->first;
    manager->first = NULL;
    manager->order_count = 0;
    pthread_mutex_unlock(&manager->mutex);
    while (order) {
        struct flyt_manager_order *next = order->next;
        take_order(session, order);
        free_order(order);
        order = next;
    }
}
