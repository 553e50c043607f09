/*
 * Events: the last events_max of them, in a ring here and one document each in the store, which is written behind what
 * programs wait for. Numbers rise over restarts and changes of the leader.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/json_memory.h"
#include "control/cluster/io/document.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/events.h"
#include "control/cluster/model/text.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

enum {
    SAVE_AT_ONCE = 64,
    SAVE_BESIDE_OTHERS = 4, /* while documents wait: each event is a synchronous write, all on one thread */
    WAITING_MAX = 256,
    WAIT_MAX_MS = 60000,
    PAGE_EVENTS = 500,
};

struct flyt_event_waiter {
    struct flyt_call *call;
    uint64_t after, deadline_ms;
    char *selector;
    struct flyt_event_waiter *next;
};

static struct flyt_event *at(const struct flyt_event_log *log, size_t index)
{
    return &log->items[(log->first + index) % log->room];
}

#define OF(kind, member) FLYT_##kind(struct flyt_event, member), .part = EVENT

enum { DOCUMENT, EVENT, PARTS };
static const struct flyt_field fields[] = {
    FLYT_DOCUMENT_FIELDS(DOCUMENT),   {"sequence", OF(NUMBER, sequence)},
    {"time_ms", OF(NUMBER, time_ms)}, {"kind", OF(TEXT, kind)},
    {"who", OF(TEXT, who)},           {"object", OF(TEXT, object)},
    {"text", OF(TEXT, text)},         {"before", OF(TEXT, before)},
    {"after", OF(TEXT, after)},       {0},
};

cJSON *flyt_event_document(const struct flyt_event *event)
{
    return flyt_document_write(fields, (const void *const[PARTS]){[EVENT] = event}, "event", event->kind);
}

static void clear(struct flyt_event *event)
{
    flyt_fields_free(fields, EVENT, event);
    memset(event, 0, sizeof *event);
}

/* A slot at the end of the ring; the oldest one goes where it is full. NULL: no memory. */
static struct flyt_event *push(struct flyt_cluster *cluster)
{
    struct flyt_event_log *log = &cluster->events;

    if (!log->items) {
        log->room = (size_t)cluster->settings->events_max;
        log->items = calloc(log->room, sizeof *log->items);
        if (!log->items)
            return NULL;
    }
    if (log->count == log->room) {
        clear(at(log, 0));
        log->first = (log->first + 1) % log->room;
        log->count--;
    }
    return at(log, log->count++);
}

/* JSON as text; what is longer than the protocol carries, or may lack a member, becomes a note that says so. NULL: no
 * memory. */
static char *json_text(cJSON *item, bool is_whole)
{
    char *text = item ? cJSON_PrintUnformatted(item) : strdup("");
    const char *note = !is_whole                                    ? "{\"incomplete\":true}"
                       : text && strlen(text) > FLYT_TEXT_BYTES_MAX ? "{\"too_long\":true}"
                                                                    : NULL;

    cJSON_Delete(item);
    if (!note)
        return text;
    free(text);
    return strdup(note);
}

static void answer(struct flyt_cluster *cluster, struct flyt_call *call, uint64_t after, const char *selector)
{
    const struct flyt_event_log *log = &cluster->events;
    cJSON *array = cJSON_CreateArray();
    uint64_t last = after;

    size_t begin = 0;
    if (log->count && after >= at(log, 0)->sequence)
        begin = (size_t)(after - at(log, 0)->sequence) + 1;
    for (size_t i = begin; i < log->count && cJSON_GetArraySize(array) < PAGE_EVENTS; i++) {
        const struct flyt_event *event = at(log, i);
        last = event->sequence;
        if (!*selector || strstr(event->object, selector) || !strncmp(event->kind, selector, strlen(selector)))
            cJSON_AddItemToArray(array, flyt_event_document(event));
    }
    flyt_view_reply(call, FLYT_STATUS_OK, "", array, last);
}

static void wake(struct flyt_cluster *cluster, uint64_t now_ms)
{
    struct flyt_event_log *log = &cluster->events;
    struct flyt_event_waiter **place = &log->waiting;

    while (*place) {
        struct flyt_event_waiter *waiter = *place;
        if (log->next_sequence <= waiter->after + 1 && now_ms < waiter->deadline_ms) {
            place = &waiter->next;
            continue;
        }
        *place = waiter->next;
        log->waiting_count--;
        answer(cluster, waiter->call, waiter->after, waiter->selector);
        free(waiter->selector);
        free(waiter);
    }
}

static int fill(struct flyt_event *event, const char *kind, const char *who, const char *object, const char *text,
                char *before, char *after)
{
    event->kind = strdup(kind);
    event->who = strdup(who);
    event->object = strndup(object, FLYT_NAME_BYTES_MAX);
    event->text = strdup(text);
    event->before = before;
    event->after = after;
    return event->kind && event->who && event->object && event->text && before && after ? 0 : -ENOMEM;
}

void flyt_event_add(struct flyt_cluster *cluster, const char *kind, const char *who, const char *object, cJSON *before,
                    cJSON *after, const char *format, ...)
{
    struct flyt_event_log *log = &cluster->events;
    struct flyt_event *event = push(cluster);
    /* The caller has just made them. A failure elsewhere since the last event costs this one its details at most. */
    bool is_whole = flyt_json_failures() == log->json_failures;
    char *before_text = json_text(before, is_whole), *after_text = json_text(after, is_whole);
    char text[1024];
    va_list args;

    log->json_failures = flyt_json_failures();
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!event || fill(event, kind, who, object, text, before_text, after_text)) {
        if (event) {
            clear(event);
            log->count--;
        } else {
            free(before_text);
            free(after_text);
        }
        flyt_fail("event %s %s was lost: no memory", kind, object);
        return;
    }
    event->sequence = log->next_sequence++;
    event->time_ms = flyt_wall_ms();
    flyt_debug("event: %s %s: %s", kind, object, text);
    flyt_event_save(cluster);
    wake(cluster, 0);
}

int flyt_event_load(struct flyt_cluster *cluster, const cJSON *document)
{
    struct flyt_event_log *log = &cluster->events;
    struct flyt_document its;
    int status = flyt_document_read(fields, document, (void *const[PARTS]){[DOCUMENT] = &its}, "an", "event");
    uint64_t sequence = status ? 0 : strtoull(its.id, NULL, 10);

    /* Numbers follow one another in the ring, so that one is found by counting; a gap ends what is kept. */
    if (!sequence || (log->count && sequence <= at(log, log->count - 1)->sequence))
        return status ? status : -EINVAL;
    while (log->count && sequence != at(log, log->count - 1)->sequence + 1) {
        clear(at(log, 0));
        log->first = (log->first + 1) % log->room;
        log->count--;
    }
    if (!log->stored_first)
        log->stored_first = sequence;
    struct flyt_event *event = push(cluster);
    if (!event || flyt_document_read(fields, document, (void *const[PARTS]){[EVENT] = event}, "event", its.id))
        return -ENOMEM;
    event->sequence = sequence;
    log->next_sequence = log->saved_next = sequence + 1;
    return 0;
}

const struct flyt_event *flyt_event_last(const struct flyt_cluster *cluster)
{
    return at(&cluster->events, cluster->events.count - 1);
}

/* ---- saving ---- */

struct saving {
    struct flyt_cluster *cluster;
    uint64_t epoch;
    cJSON *documents[SAVE_AT_ONCE];
    uint64_t first;
    unsigned count, saved;
    uint64_t delete_first, delete_end;
};

static void sequence_id(uint64_t sequence, char *id)
{
    snprintf(id, 24, "%016" PRIu64, sequence);
}

static enum flyt_store_result run_saving(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct saving *saving = user;
    enum flyt_store_result result = FLYT_STORE_OK;
    char id[24];

    for (; saving->saved < saving->count; saving->saved++) {
        sequence_id(saving->first + saving->saved, id);
        result = flyt_store_put(store, "events", id, 0, NULL, saving->documents[saving->saved], err);
        if (result == FLYT_STORE_CONFLICT)
            result = FLYT_STORE_OK; /* it is there: from a write whose outcome was unknown */
        if (result != FLYT_STORE_OK)
            return result;
    }
    for (; saving->delete_first < saving->delete_end; saving->delete_first++) {
        sequence_id(saving->delete_first, id);
        result = flyt_store_delete(store, "events", id, 1, err);
        if (result != FLYT_STORE_OK && result != FLYT_STORE_NOT_FOUND && result != FLYT_STORE_CONFLICT)
            return result;
    }
    return FLYT_STORE_OK;
}

static void saving_done(void *user, int is_cancelled)
{
    struct saving *saving = user;
    struct flyt_cluster *cluster = saving->cluster;

    if (!is_cancelled && saving->epoch == cluster->epoch) {
        cluster->events.is_saving = false;
        cluster->events.saved_next = saving->first + saving->saved;
        cluster->events.stored_first = saving->delete_first;
        /* Where the store is down the next tick tries again. */
        if (saving->saved == saving->count)
            flyt_event_save(cluster);
    } else if (!is_cancelled) {
        cluster->events.is_saving = false;
    }
    for (unsigned i = 0; i < saving->count; i++)
        cJSON_Delete(saving->documents[i]);
    free(saving);
}

/* Begins to save events from `next` on, at_once of them in one job (up to SAVE_AT_ONCE). Returns the first one that
 * does not; `next` where nothing was begun. */
static uint64_t save_from(struct flyt_cluster *cluster, uint64_t next, unsigned at_once)
{
    struct flyt_event_log *log = &cluster->events;

    if (!cluster->is_leader || !log->count || next >= log->next_sequence)
        return next;
    struct saving *saving = calloc(1, sizeof *saving);
    if (!saving)
        return next;
    uint64_t oldest = at(log, 0)->sequence;
    saving->cluster = cluster;
    saving->epoch = cluster->epoch;
    saving->first = next > oldest ? next : oldest;
    for (uint64_t i = saving->first; i < log->next_sequence && saving->count < at_once; i++) {
        cJSON *document = flyt_event_document(at(log, (size_t)(i - oldest)));
        if (!document)
            break;
        saving->documents[saving->count++] = document;
    }
    if (!log->stored_first)
        log->stored_first = saving->first;
    uint64_t end = saving->first + saving->count;
    saving->delete_first = log->stored_first;
    saving->delete_end =
        end > log->room && end - log->room > saving->delete_first ? end - log->room : saving->delete_first;
    if (saving->delete_end > saving->delete_first + at_once)
        saving->delete_end = saving->delete_first + at_once;
    log->is_saving = !flyt_store_writer_do(cluster->store_writer, "event", run_saving, saving_done, saving);
    if (log->is_saving)
        return end;
    for (unsigned i = 0; i < saving->count; i++)
        cJSON_Delete(saving->documents[i]);
    free(saving);
    return next;
}

void flyt_event_save(struct flyt_cluster *cluster)
{
    if (!cluster->events.is_saving)
        save_from(cluster, cluster->events.saved_next,
                  flyt_store_writer_waiting(cluster->store_writer) ? SAVE_BESIDE_OTHERS : SAVE_AT_ONCE);
}

void flyt_event_save_all(struct flyt_cluster *cluster)
{
    uint64_t next = cluster->events.saved_next, before;

    /* What is under way is given once more: it is found to be there. */
    do {
        before = next;
        next = save_from(cluster, before, SAVE_AT_ONCE);
    } while (next != before);
}

void flyt_event_tick(struct flyt_cluster *cluster)
{
    flyt_event_save(cluster);
    wake(cluster, flyt_clock_ms());
}

void flyt_event_fini(struct flyt_cluster *cluster)
{
    struct flyt_event_log *log = &cluster->events;

    wake(cluster, UINT64_MAX);
    for (size_t i = 0; i < log->count; i++)
        clear(at(log, i));
    free(log->items);
    *log = (struct flyt_event_log){.next_sequence = 1, .saved_next = 1, .is_saving = log->is_saving};
}

void flyt_event_view(struct flyt_cluster *cluster, struct flyt_call *call, const flyt_view_args *args)
{
    struct flyt_event_log *log = &cluster->events;
    unsigned wait_ms = args->wait_ms < WAIT_MAX_MS ? args->wait_ms : WAIT_MAX_MS;

    struct flyt_event_waiter *waiter = NULL;
    if (wait_ms && log->next_sequence <= args->after + 1 && log->waiting_count < WAITING_MAX)
        waiter = calloc(1, sizeof *waiter);
    if (waiter && !(waiter->selector = strdup(args->selector))) {
        free(waiter);
        waiter = NULL;
    }
    if (!waiter) {
        answer(cluster, call, args->after, args->selector);
        return;
    }
    waiter->call = call;
    waiter->after = args->after;
    waiter->deadline_ms = flyt_clock_ms() + wait_ms;
    waiter->next = log->waiting;
    log->waiting = waiter;
    log->waiting_count++;
}
