#include "cpu/softgpu/library/nccl_link.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static bool has_lost_locked(const struct flyt_soft_nccl_link *link, uint32_t comm)
{
    bool is_lost = link->is_lost;

    for (unsigned i = 0; i < link->lost_count; i++)
        is_lost |= link->lost_comms[i] == comm;
    return is_lost;
}

static void keep_locked(struct flyt_soft_nccl_link *link, const struct flyt_soft_nccl_message *message, void *data)
{
    struct flyt_soft_nccl_inbox **place = &link->first, *fresh;

    if (message->kind == MESSAGE_LOST) {
        if (link->lost_count < sizeof(link->lost_comms) / sizeof(link->lost_comms[0]))
            link->lost_comms[link->lost_count++] = message->comm;
        else
            link->is_lost = true;
        free(data);
        return;
    }
    fresh = malloc(sizeof(*fresh));
    if (!fresh) { /* what it answers will wait for ever otherwise */
        link->is_lost = true;
        free(data);
        return;
    }
    *fresh = (struct flyt_soft_nccl_inbox){.message = *message, .data = data};
    while (*place)
        place = &(*place)->next;
    *place = fresh;
}

static void *link_main(void *user)
{
    struct flyt_soft_nccl_link *link = user;
    struct flyt_soft_nccl_message message;
    void *data;

    while (flyt_soft_nccl_read(link->fd, &message, &data)) {
        pthread_mutex_lock(&link->mutex);
        keep_locked(link, &message, data);
        pthread_cond_broadcast(&link->changed);
        pthread_mutex_unlock(&link->mutex);
    }
    pthread_mutex_lock(&link->mutex);
    link->is_lost = true;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->mutex);
    return NULL;
}

struct flyt_soft_nccl_link *flyt_soft_nccl_link_open(const struct flyt_soft_nccl_id *id)
{
    struct flyt_soft_nccl_link *link = calloc(1, sizeof(*link));

    if (!link)
        return NULL;
    link->fd = flyt_soft_nccl_hub_connect(id);
    if (link->fd < 0) {
        free(link);
        return NULL;
    }
    atomic_init(&link->refs, 1);
    pthread_mutex_init(&link->write_mutex, NULL);
    pthread_mutex_init(&link->mutex, NULL);
    pthread_cond_init(&link->changed, NULL);
    if (pthread_create(&link->thread, NULL, link_main, link) == 0)
        return link;
    close(link->fd);
    free(link);
    return NULL;
}

struct flyt_soft_nccl_link *flyt_soft_nccl_link_ref(struct flyt_soft_nccl_link *link)
{
    atomic_fetch_add(&link->refs, 1);
    return link;
}

void flyt_soft_nccl_link_unref(struct flyt_soft_nccl_link *link, uint32_t comm, bool has_left)
{
    struct flyt_soft_nccl_message leave = {.kind = MESSAGE_LEAVE, .comm = comm};

    if (atomic_fetch_sub(&link->refs, 1) > 1)
        return;
    if (has_left)
        flyt_soft_nccl_link_send(link, &leave, NULL);
    shutdown(link->fd, SHUT_RDWR);
    pthread_join(link->thread, NULL);
    close(link->fd);
    while (link->first) {
        struct flyt_soft_nccl_inbox *next = link->first->next;

        free(link->first->data);
        free(link->first);
        link->first = next;
    }
    pthread_mutex_destroy(&link->write_mutex);
    pthread_mutex_destroy(&link->mutex);
    pthread_cond_destroy(&link->changed);
    free(link);
}

void flyt_soft_nccl_link_send(struct flyt_soft_nccl_link *link, const struct flyt_soft_nccl_message *message,
                              const void *data)
{
    pthread_mutex_lock(&link->write_mutex);
    (void)flyt_soft_nccl_write(link->fd, message, data); /* the thread that reads sees that the hub is gone */
    pthread_mutex_unlock(&link->write_mutex);
}

bool flyt_soft_nccl_link_has_lost(struct flyt_soft_nccl_link *link, uint32_t comm)
{
    pthread_mutex_lock(&link->mutex);
    bool is_lost = has_lost_locked(link, comm);
    pthread_mutex_unlock(&link->mutex);
    return is_lost;
}

static struct flyt_soft_nccl_inbox *take_locked(struct flyt_soft_nccl_link *link,
                                                const struct flyt_soft_nccl_message *wanted)
{
    for (struct flyt_soft_nccl_inbox **place = &link->first; *place; place = &(*place)->next) {
        struct flyt_soft_nccl_inbox *one = *place;

        if (one->message.kind != wanted->kind || one->message.comm != wanted->comm ||
            one->message.sequence != wanted->sequence ||
            (wanted->kind == MESSAGE_DIRECT && one->message.root != wanted->root))
            continue;
        *place = one->next;
        return one;
    }
    return NULL;
}

struct flyt_soft_nccl_inbox *flyt_soft_nccl_link_wait(struct flyt_soft_nccl_link *link,
                                                      const struct flyt_soft_nccl_message *wanted,
                                                      const atomic_bool *aborted, bool ends)
{
    struct flyt_soft_nccl_inbox *found;

    pthread_mutex_lock(&link->mutex);
    while (!(found = take_locked(link, wanted)) && !atomic_load(aborted) &&
           !(ends && has_lost_locked(link, wanted->comm)))
        pthread_cond_wait(&link->changed, &link->mutex);
    pthread_mutex_unlock(&link->mutex);
    return found;
}

void flyt_soft_nccl_link_wake(struct flyt_soft_nccl_link *link)
{
    pthread_mutex_lock(&link->mutex);
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->mutex);
}
