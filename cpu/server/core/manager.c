#include "cpu/server/core/manager.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "cpu/server/core/tell.h"
#include "rpc/base/deadline.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/endpoint/endpoint.h"

static void bound_sending(int fd)
{
    const struct timeval limit = {.tv_sec = FLYT_MANAGER_SEND_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

int flyt_manager_open(struct flyt_manager *manager, int fd, const struct flyt_manager_link_session *granted,
                      const int *fds)
{
    unsigned fd_count = granted->ledger_count;
    struct timespec now;
    manager->fd = fd;
    manager->granted = *granted;
    explicit_bzero(manager->granted.channel_key, sizeof manager->granted.channel_key);
    pthread_mutex_init(&manager->mutex, NULL);
    manager->report = (struct flyt_report){.told_why = NULL};
    pthread_mutex_init(&manager->report.mutex, NULL);
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
        if (!(granted->slots[i].flags & FLYT_MANAGER_LINK_HAS_TIME_SLICES))
            continue;
        int status = flyt_time_slice_seat_open(fds + fd_count, &manager->seats[i]);
        if (status)
            return status;
        fd_count += FLYT_TIME_SLICES_FDS;
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

bool flyt_manager_tell(struct flyt_manager *manager, enum flyt_manager_link_kind kind, const void *part,
                       size_t part_bytes, const char *sentence, const int *fds, unsigned fd_count)
{
    pthread_mutex_lock(&manager->mutex);
    manager->out.kind = kind;
    if (part)
        memcpy(&manager->out.ready, part, part_bytes);
    flyt_manager_link_say(&manager->out, sentence);
    bool is_told = send_locked(manager, fds, fd_count);
    pthread_mutex_unlock(&manager->mutex);
    return is_told;
}

bool flyt_manager_tell_data(struct flyt_manager *manager, enum flyt_manager_link_kind kind, const void *part,
                            size_t part_bytes, const void *data, uint32_t data_bytes, const int *fds, unsigned fd_count)
{
    pthread_mutex_lock(&manager->mutex);
    manager->out.kind = kind;
    memcpy(&manager->out.ready, part, part_bytes);
    memcpy(manager->out.data, data, data_bytes);
    manager->out.data_bytes = data_bytes;
    bool is_told = send_locked(manager, fds, fd_count);
    pthread_mutex_unlock(&manager->mutex);
    return is_told;
}

struct flyt_manager_order *flyt_manager_free_order(struct flyt_manager_order *order)
{
    if (!order)
        return NULL;
    free(order->record);
    explicit_bzero(&order->move, sizeof order->move); /* there may have been keys */
    free(order);
    return NULL;
}

/* What the message has beside its part. False: no memory. */
static bool keep_data(struct flyt_manager_order *order, const struct flyt_manager_link_message *message)
{
    if (message->kind == FLYT_MANAGER_LINK_TAKE_BACK) {
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

int flyt_manager_leave_order(struct flyt_manager *manager, const struct flyt_manager_link_message *message)
{
    return flyt_manager_leave_order_with_all(manager, message, NULL, 0);
}

int flyt_manager_leave_order_with(struct flyt_manager *manager, const struct flyt_manager_link_message *message, int fd)
{
    return flyt_manager_leave_order_with_all(manager, message, &fd, fd >= 0);
}

int flyt_manager_leave_order_with_all(struct flyt_manager *manager, const struct flyt_manager_link_message *message,
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
                       sizeof order->move >= sizeof order->sm && sizeof order->move >= sizeof order->stop &&
                       sizeof order->move >= sizeof order->shared,
                   "largest");
    memcpy(&order->move, &message->move, sizeof order->move);
    if (!keep_data(order, message)) {
        flyt_manager_free_order(order);
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
    flyt_manager_free_order(order);
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
    const struct flyt_manager_link_fault fault = {.result = (int32_t)result, .had_work = had_work};
    *ret_cause = 0;
    if (!flyt_manager_tell(manager, FLYT_MANAGER_LINK_FAULT, &fault, sizeof fault, sentence, NULL, 0))
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

void flyt_manager_leave_client(struct flyt_manager *manager, struct flyt_endpoint *client)
{
    pthread_mutex_lock(&manager->mutex);
    if (manager->has_client)
        flyt_endpoint_close(manager->client);
    manager->has_client = true;
    manager->client = client;
    pthread_mutex_unlock(&manager->mutex);
}

bool flyt_manager_take_client(struct flyt_manager *manager, struct flyt_endpoint **ret_client)
{
    pthread_mutex_lock(&manager->mutex);
    bool has_client = manager->has_client;
    if (has_client)
        *ret_client = manager->client;
    manager->has_client = false;
    pthread_mutex_unlock(&manager->mutex);
    return has_client;
}

void flyt_manager_take_groups(struct flyt_manager *manager, unsigned slot, const struct flyt_manager_link_sm *order)
{
    struct flyt_manager_link_slot *granted = &manager->granted.slots[slot];
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

struct flyt_manager_order *flyt_manager_take_orders(struct flyt_manager *manager)
{
    if (!atomic_exchange(&manager->has_orders, false))
        return NULL;
    pthread_mutex_lock(&manager->mutex);
    struct flyt_manager_order *first = manager->first;
    manager->first = NULL;
    manager->order_count = 0;
    pthread_mutex_unlock(&manager->mutex);
    return first;
}
