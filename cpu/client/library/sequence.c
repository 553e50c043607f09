#include "cpu/client/library/sequence.h"

#include <pthread.h>
#include <stdlib.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/library/object.h"

struct flyt_lib_taking {
    uint64_t number; /* of its call, which the channel writes; 0: not yet */
    uint64_t count;
    struct flyt_lib_taking *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* A server that is older than this note hears what stands against a move when the session comes elsewhere. */
static void set_lost(struct flyt_lib_object *object, bool is_lost)
{
    if (atomic_exchange(&object->sequence.is_lost, is_lost) == is_lost)
        return;
    flyt_libobject_stay_args args = {
        .thread = flyt_thread_number(), .object_id = object->record.minted_id, .is_lost = is_lost};
    flyt_send_libobject_stay(flyt_client.channel, &args, NULL);
}

void flyt_lib_sequence_lose(struct flyt_lib_object *object)
{
    set_lost(object, true);
}

struct flyt_lib_step flyt_lib_sequence_step(struct flyt_lib_object *object, const struct flyt_lib_row *row,
                                            const void *arguments)
{
    struct flyt_lib_step step = {row->flags & FLYT_LIB_DRAWS ? FLYT_LIB_LOSES : FLYT_LIB_PLACES, 0};
    if (!object->kind->step || !object->arguments)
        return step;
    pthread_mutex_lock(&mutex);
    step = object->kind->step(object->arguments, object->sequence.notes, row->name, arguments);
    pthread_mutex_unlock(&mutex);
    return step;
}

/* Takes up to the call of that number out of the list; what they took. The channel is about to write the number of
 * those that have none. */
static uint64_t settle_locked(struct flyt_lib_sequence *sequence, uint64_t number)
{
    uint64_t taken = 0;
    for (struct flyt_lib_taking **place = &sequence->sent, *one; (one = *place);) {
        if (!one->number || one->number > number) {
            place = &one->next;
            continue;
        }
        taken += one->count;
        *place = one->next;
        free(one);
    }
    return taken;
}

void flyt_lib_sequence_made(struct flyt_lib_object *object, struct flyt_lib_step step)
{
    struct flyt_lib_sequence *sequence = &object->sequence;
    if (step.way == FLYT_LIB_LOSES) {
        set_lost(object, true);
        return;
    }
    pthread_mutex_lock(&mutex);
    if (step.way == FLYT_LIB_PLACES) { /* what was taken before has been executed before */
        settle_locked(sequence, UINT64_MAX);
        sequence->place = step.by;
        sequence->taken = 0;
    } else {
        sequence->taken += step.by;
    }
    pthread_mutex_unlock(&mutex);
    if (step.way == FLYT_LIB_PLACES)
        set_lost(object, false);
}

uint64_t *flyt_lib_sequence_send(struct flyt_lib_object *object, struct flyt_lib_step step)
{
    struct flyt_lib_sequence *sequence = &object->sequence;
    if (step.way == FLYT_LIB_TAKES && !step.by)
        return NULL;
    struct flyt_lib_taking *fresh = step.way == FLYT_LIB_TAKES ? calloc(1, sizeof *fresh) : NULL;
    if (!fresh) {
        set_lost(object, true);
        return NULL;
    }
    pthread_mutex_lock(&mutex);
    /* What has been executed needs no number any more. */
    sequence->taken += settle_locked(sequence, flyt_channel_progress(flyt_client.channel).executed);
    fresh->count = step.by;
    fresh->next = sequence->sent;
    sequence->sent = fresh;
    pthread_mutex_unlock(&mutex);
    return &fresh->number;
}

void flyt_lib_sequence_not_sent(struct flyt_lib_object *object, const uint64_t *number)
{
    pthread_mutex_lock(&mutex);
    struct flyt_lib_taking **place = &object->sequence.sent, *one;
    while ((one = *place) && &one->number != number)
        place = &one->next;
    if (one) {
        *place = one->next;
        free(one);
    }
    pthread_mutex_unlock(&mutex);
}

bool flyt_lib_sequence_at(struct flyt_lib_object *object, uint64_t number, uint64_t *ret_place)
{
    const struct flyt_lib_sequence *sequence = &object->sequence;
    pthread_mutex_lock(&mutex);
    uint64_t taken = sequence->taken;
    for (const struct flyt_lib_taking *one = sequence->sent; one; one = one->next)
        if (one->number && one->number <= number)
            taken += one->count;
    *ret_place = sequence->place + taken;
    pthread_mutex_unlock(&mutex);
    return taken;
}

void flyt_lib_sequence_fini(struct flyt_lib_object *object)
{
    pthread_mutex_lock(&mutex);
    for (struct flyt_lib_taking *one = object->sequence.sent, *next; one; one = next) {
        next = one->next;
        free(one);
    }
    object->sequence.sent = NULL;
    pthread_mutex_unlock(&mutex);
}
