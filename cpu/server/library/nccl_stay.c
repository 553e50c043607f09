/* Which communicators of NCCL's stand against moving: their families, and unique ids that are under way. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/library/nccl.h"
#include "rpc/library/nccl_family.h"

enum { IDS_MAX = 1024 };

struct flyt_nccl_kin {
    struct flyt_nccl_kin *next;
    struct flyt_nccl_family family;
    unsigned live_count, finalized_count; /* communicators of it; of these that are finalized */
};

/* A rank that the id is for may be anywhere, and connects to this process. */
struct given_id {
    struct given_id *next;
    unsigned char bytes[FLYT_NCCL_UNIQUE_ID_BYTES];
};

static struct {
    pthread_mutex_t mutex;
    struct flyt_nccl_kin *first;
    struct given_id *ids;
    unsigned id_count, forgotten_count; /* forgotten: for want of room, and for good */
    int told_count;
} stay = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- families ---- */

static struct flyt_nccl_kin *kin_of_ids_locked(const struct flyt_nccl_order *order)
{
    struct flyt_nccl_kin *kin = stay.first;
    while (kin && !flyt_nccl_family_has(&kin->family, order))
        kin = kin->next;
    return kin;
}

/* Of an order without unique ids: a spoilt one. */
static struct flyt_nccl_kin *kin_new_locked(const struct flyt_nccl_order *order)
{
    struct flyt_nccl_kin *kin = calloc(1, sizeof *kin);
    if (!kin)
        return NULL;
    if (order->control == FLYT_NCCL_INIT)
        flyt_nccl_family_begin(&kin->family, order);
    else
        kin->family.is_spoilt = true;
    kin->next = stay.first;
    stay.first = kin;
    return kin;
}

struct flyt_nccl_kin *flyt_nccl_kin_come(const struct flyt_nccl_order *order, struct flyt_nccl_kin *parent)
{
    pthread_mutex_lock(&stay.mutex);
    struct flyt_nccl_kin *kin = order->control == FLYT_NCCL_INIT ? kin_of_ids_locked(order) : parent;
    if (!kin)
        kin = kin_new_locked(order);
    if (kin) {
        kin->live_count++;
        flyt_nccl_family_come(&kin->family, order);
    }
    pthread_mutex_unlock(&stay.mutex);
    return kin;
}

static void kin_free_locked(struct flyt_nccl_kin *kin)
{
    struct flyt_nccl_kin **place = &stay.first;
    while (*place != kin)
        place = &(*place)->next;
    *place = kin->next;
    free(kin);
}

void flyt_nccl_kin_leave(struct flyt_nccl_kin *kin, bool was_finalized, bool is_spoilt)
{
    pthread_mutex_lock(&stay.mutex);
    kin->family.is_spoilt |= is_spoilt;
    kin->finalized_count -= was_finalized;
    if (!--kin->live_count)
        kin_free_locked(kin);
    pthread_mutex_unlock(&stay.mutex);
}

void flyt_nccl_kin_spoil(struct flyt_nccl_kin *kin)
{
    pthread_mutex_lock(&stay.mutex);
    kin->family.is_spoilt = true;
    pthread_mutex_unlock(&stay.mutex);
}

void flyt_nccl_kin_finalize(struct flyt_nccl_kin *kin)
{
    pthread_mutex_lock(&stay.mutex);
    kin->finalized_count++;
    pthread_mutex_unlock(&stay.mutex);
}

/* ---- unique ids ---- */

void flyt_nccl_id_given(const void *id)
{
    struct given_id *fresh = calloc(1, sizeof *fresh);
    pthread_mutex_lock(&stay.mutex);
    if (!fresh || stay.id_count == IDS_MAX) {
        stay.forgotten_count++;
        free(fresh);
    } else {
        memcpy(fresh->bytes, id, sizeof fresh->bytes);
        fresh->next = stay.ids;
        stay.ids = fresh;
        stay.id_count++;
    }
    pthread_mutex_unlock(&stay.mutex);
}

static void drop_id_locked(const unsigned char *id)
{
    for (struct given_id **place = &stay.ids; *place; place = &(*place)->next) {
        struct given_id *one = *place;
        if (memcmp(one->bytes, id, sizeof one->bytes))
            continue;
        *place = one->next;
        stay.id_count--;
        free(one);
        return;
    }
}

void flyt_nccl_ids_used(const struct flyt_nccl_order *order)
{
    pthread_mutex_lock(&stay.mutex);
    for (uint32_t i = 0; i < order->id_count; i++)
        drop_id_locked(flyt_nccl_order_id(order) + (size_t)i * FLYT_NCCL_UNIQUE_ID_BYTES);
    pthread_mutex_unlock(&stay.mutex);
}

/* ---- how many they are ---- */

int flyt_nccl_staying_change(void)
{
    pthread_mutex_lock(&stay.mutex);
    unsigned count = stay.id_count + stay.forgotten_count;
    for (const struct flyt_nccl_kin *kin = stay.first; kin; kin = kin->next)
        count += flyt_nccl_family_is_whole(&kin->family) ? kin->finalized_count : kin->live_count;
    int change = (int)count - stay.told_count;
    stay.told_count = (int)count;
    pthread_mutex_unlock(&stay.mutex);
    return change;
}
