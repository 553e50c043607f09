#include "control/store/lease.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "control/store/json.h"
#include "control/store/store_ops.h"

enum {
    INSTANCE_BYTES = 33,
    DRIFT_PART = 16, /* a contender waits lease_ms + lease_ms / 16 */
};

static const char collection[] = "meta", document_id[] = "lease";

struct flyt_lease {
    struct flyt_store *store;
    char holder[FLYT_LEASE_NAME_BYTES_MAX + 1], address[FLYT_LEASE_NAME_BYTES_MAX + 1];
    char instance[INSTANCE_BYTES]; /* of this run: two managers of one name, or one that starts again, are told apart */
    uint64_t lease_ms, renew_ms;
    uint64_t (*now_ms)(void *user);
    void *user;

    /* The store's thread only. */
    bool is_seen;                /* whether the document was ever looked for; the following says what was found */
    cJSON *seen;                 /* NULL: there is none */
    uint64_t seen_since_ms;      /* from when on it is known to be unchanged: after it was read */
    uint64_t attempt, sent_ms;   /* of the latest write: its number in the document, and the time before it was sent */
    bool is_attempt_unconfirmed; /* it may have been written */

    pthread_mutex_t mutex; /* the following; never held while the store works */
    bool is_leading;
    uint64_t ends_ms; /* leading until then; UINT64_MAX: for ever */
    uint64_t epoch;   /* own */
    uint64_t epoch_least;
    bool must_look;
    uint64_t may_take_ms;         /* not leading: from then on, by what was seen; UINT64_MAX: nothing was */
    struct flyt_lease_view shown; /* of the document */
};

static uint64_t boottime_ms(void *user)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int flyt_lease_new(const struct flyt_lease_config *config, struct flyt_lease **ret_lease)
{
    struct flyt_lease *lease;
    unsigned char noise[(INSTANCE_BYTES - 1) / 2];

    if (!*config->holder || strlen(config->holder) > FLYT_LEASE_NAME_BYTES_MAX ||
        strlen(config->address) > FLYT_LEASE_NAME_BYTES_MAX || config->lease_ms == 0 || config->renew_ms == 0)
        return -EINVAL;
    lease = calloc(1, sizeof *lease);
    if (!lease || getrandom(noise, sizeof noise, 0) != sizeof noise) {
        free(lease);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < sizeof noise; i++)
        snprintf(lease->instance + 2 * i, 3, "%02x", noise[i]);
    lease->store = config->store;
    snprintf(lease->holder, sizeof lease->holder, "%s", config->holder);
    snprintf(lease->address, sizeof lease->address, "%s", config->address);
    lease->lease_ms = config->lease_ms;
    lease->renew_ms = config->renew_ms;
    lease->now_ms = config->now_ms ? config->now_ms : boottime_ms;
    lease->user = config->user;
    lease->may_take_ms = UINT64_MAX;
    pthread_mutex_init(&lease->mutex, NULL);
    *ret_lease = lease;
    return 0;
}

struct flyt_lease *flyt_lease_free(struct flyt_lease *lease)
{
    if (!lease)
        return NULL;
    cJSON_Delete(lease->seen);
    pthread_mutex_destroy(&lease->mutex);
    free(lease);
    return NULL;
}

static uint64_t now_ms(const struct flyt_lease *lease)
{
    return lease->now_ms(lease->user);
}

/* ---- what any thread may ask ---- */

static bool is_leading_locked(const struct flyt_lease *lease)
{
    return lease->is_leading && (lease->ends_ms == UINT64_MAX || now_ms(lease) < lease->ends_ms);
}

uint64_t flyt_lease_epoch(const struct flyt_lease *lease)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&lease->mutex;

    pthread_mutex_lock(mutex);
    uint64_t epoch = is_leading_locked(lease) ? lease->epoch : 0;
    pthread_mutex_unlock(mutex);
    return epoch;
}

bool flyt_lease_is_leader(const struct flyt_lease *lease)
{
    return flyt_lease_epoch(lease) != 0;
}

void flyt_lease_get_view(struct flyt_lease *lease, struct flyt_lease_view *ret_view)
{
    pthread_mutex_lock(&lease->mutex);
    uint64_t now = now_ms(lease);

    *ret_view = lease->shown;
    ret_view->left_ms = lease->may_take_ms == UINT64_MAX ? UINT64_MAX
                        : lease->may_take_ms > now       ? lease->may_take_ms - now
                                                         : 0;
    if (is_leading_locked(lease)) {
        ret_view->state = FLYT_LEASE_LEADING;
        ret_view->epoch = lease->epoch;
        snprintf(ret_view->holder, sizeof ret_view->holder, "%s", lease->holder);
        snprintf(ret_view->address, sizeof ret_view->address, "%s", lease->address);
        ret_view->left_ms = lease->ends_ms == UINT64_MAX ? UINT64_MAX : lease->ends_ms > now ? lease->ends_ms - now : 0;
    }
    pthread_mutex_unlock(&lease->mutex);
}

void flyt_lease_raise_epoch(struct flyt_lease *lease, uint64_t epoch)
{
    pthread_mutex_lock(&lease->mutex);
    if (epoch > lease->epoch_least && epoch <= FLYT_EPOCH_MAX)
        lease->epoch_least = epoch;
    pthread_mutex_unlock(&lease->mutex);
}

void flyt_lease_look(struct flyt_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    lease->must_look = true;
    pthread_mutex_unlock(&lease->mutex);
}

static bool take_must_look(struct flyt_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    bool must_look = lease->must_look;
    lease->must_look = false;
    pthread_mutex_unlock(&lease->mutex);
    return must_look;
}

/* ---- the document ---- */

static const char *text_of(const cJSON *document, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);

    return cJSON_IsString(item) ? item->valuestring : "";
}

static bool is_own(const struct flyt_lease *lease)
{
    return lease->seen && strcmp(text_of(lease->seen, "instance"), lease->instance) == 0;
}

/* When nobody else can be leading any more, by what was seen last. */
static uint64_t may_take_at(const struct flyt_lease *lease)
{
    bool is_released = lease->seen && !*text_of(lease->seen, "holder") && !*text_of(lease->seen, "instance");

    if (!flyt_store_is_shared(lease->store) || is_own(lease) || is_released)
        return 0;
    /* Also where there is none: somebody may have removed the document of a leader. */
    return lease->seen_since_ms + lease->lease_ms + lease->lease_ms / DRIFT_PART;
}

/* Keeps what was found (NULL: nothing; owned from now on) and since when it stands unchanged. */
static void keep_seen(struct flyt_lease *lease, cJSON *document)
{
    bool is_same =
        lease->is_seen && (document ? lease->seen && flyt_json_equal(document, lease->seen, false) : !lease->seen);

    if (!is_same)
        lease->seen_since_ms = now_ms(lease);
    lease->is_seen = true;
    cJSON_Delete(lease->seen);
    lease->seen = document;
    pthread_mutex_lock(&lease->mutex);
    memset(&lease->shown, 0, sizeof lease->shown);
    lease->may_take_ms = may_take_at(lease);
    lease->shown.epoch = flyt_json_number(document, "epoch");
    snprintf(lease->shown.holder, sizeof lease->shown.holder, "%s", text_of(document, "holder"));
    snprintf(lease->shown.address, sizeof lease->shown.address, "%s", text_of(document, "address"));
    pthread_mutex_unlock(&lease->mutex);
    flyt_lease_raise_epoch(lease, flyt_json_number(document, "epoch"));
}

static enum flyt_store_result look(struct flyt_lease *lease, struct flyt_error *err)
{
    cJSON *document = NULL;
    enum flyt_store_result result = flyt_store_get(lease->store, collection, document_id, err, &document);

    if (result != FLYT_STORE_OK && result != FLYT_STORE_NOT_FOUND)
        return result;
    keep_seen(lease, document);
    return FLYT_STORE_OK;
}

/* Writes the document over the one that was seen. is_held false: it says that nobody leads. */
static enum flyt_store_result write_document(struct flyt_lease *lease, uint64_t epoch, bool is_held,
                                             struct flyt_error *err)
{
    cJSON *document = cJSON_CreateObject();
    uint64_t revision = flyt_json_number(lease->seen, "revision");
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    if (!document || !cJSON_AddStringToObject(document, "holder", is_held ? lease->holder : "") ||
        !cJSON_AddStringToObject(document, "address", is_held ? lease->address : "") ||
        !cJSON_AddStringToObject(document, "instance", is_held ? lease->instance : "") ||
        !cJSON_AddNumberToObject(document, "epoch", (double)epoch) ||
        !cJSON_AddNumberToObject(document, "attempt", (double)(lease->attempt + 1)) ||
        /* For people; nothing is decided by it. */
        !cJSON_AddNumberToObject(document, "renewed", (double)wall.tv_sec * 1000 + (double)(wall.tv_nsec / 1000000))) {
        cJSON_Delete(document);
        return flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "no memory");
    }
    lease->attempt++;
    lease->sent_ms = now_ms(lease);
    enum flyt_store_result result =
        flyt_store_put(lease->store, collection, document_id, revision, revision ? NULL : lease->seen, document, err);
    lease->is_attempt_unconfirmed = result == FLYT_STORE_UNKNOWN;
    if (result == FLYT_STORE_OK)
        keep_seen(lease, document);
    else
        cJSON_Delete(document);
    return result;
}

/* ---- leading ---- */

static void stop_leading(struct flyt_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    lease->is_leading = false;
    pthread_mutex_unlock(&lease->mutex);
}

/*
 * The write that was sent at sent_ms is in the document: leading lasts from then. A lease that has ended meanwhile does
 * not come to life again under its epoch, although nobody else has taken it: threads have seen it end.
 */
static void extend(struct flyt_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    lease->is_leading = is_leading_locked(lease);
    if (lease->is_leading)
        lease->ends_ms = lease->sent_ms + lease->lease_ms;
    pthread_mutex_unlock(&lease->mutex);
    lease->is_attempt_unconfirmed = false;
}

static enum flyt_store_result take(struct flyt_lease *lease, struct flyt_error *err)
{
    pthread_mutex_lock(&lease->mutex);
    uint64_t epoch = lease->epoch_least + 1;
    pthread_mutex_unlock(&lease->mutex);
    enum flyt_store_result result = write_document(lease, epoch, true, err);

    if (result != FLYT_STORE_OK)
        return result;
    pthread_mutex_lock(&lease->mutex);
    lease->epoch = epoch;
    lease->ends_ms = flyt_store_is_shared(lease->store) ? lease->sent_ms + lease->lease_ms : UINT64_MAX;
    lease->is_leading = true;
    pthread_mutex_unlock(&lease->mutex);
    return FLYT_STORE_OK;
}

static enum flyt_store_result watch(struct flyt_lease *lease, struct flyt_error *err)
{
    enum flyt_store_result result = look(lease, err);

    return result == FLYT_STORE_OK && now_ms(lease) >= may_take_at(lease) ? take(lease, err) : result;
}

/* After a renewal that was refused or whose outcome is not known. */
static enum flyt_store_result find_out(struct flyt_lease *lease, struct flyt_error *err)
{
    enum flyt_store_result result = look(lease, err);

    if (result != FLYT_STORE_OK)
        return result;
    if (!is_own(lease) || flyt_json_number(lease->seen, "epoch") != lease->epoch)
        stop_leading(lease);
    else if (lease->is_attempt_unconfirmed && flyt_json_number(lease->seen, "attempt") == lease->attempt)
        extend(lease);
    lease->is_attempt_unconfirmed = false;
    return FLYT_STORE_OK;
}

static enum flyt_store_result renew(struct flyt_lease *lease, struct flyt_error *err)
{
    enum flyt_store_result result;

    if (!flyt_store_is_shared(lease->store))
        return FLYT_STORE_OK;
    bool must_look = take_must_look(lease);
    if (lease->is_attempt_unconfirmed || must_look) {
        result = find_out(lease, err);
        if (result != FLYT_STORE_OK && must_look)
            flyt_lease_look(lease); /* it was not seen */
        if (result != FLYT_STORE_OK || !flyt_lease_is_leader(lease))
            return result;
    }
    if (now_ms(lease) - lease->sent_ms < lease->renew_ms / 2)
        return FLYT_STORE_OK;
    result = write_document(lease, lease->epoch, true, err);
    if (result == FLYT_STORE_OK)
        extend(lease);
    else if (result == FLYT_STORE_CONFLICT || result == FLYT_STORE_NOT_FOUND)
        result = find_out(lease, err);
    return result;
}

enum flyt_store_result flyt_lease_step(struct flyt_lease *lease, struct flyt_error *err)
{
    struct flyt_error unread;
    enum flyt_store_result result;

    err = err ? err : &unread;
    if (flyt_lease_is_leader(lease)) {
        result = renew(lease, err);
    } else {
        stop_leading(lease);
        result = watch(lease, err);
    }
    /* Another one was faster: the next look says who. */
    return result == FLYT_STORE_CONFLICT || result == FLYT_STORE_NOT_FOUND ? FLYT_STORE_OK : result;
}

enum flyt_store_result flyt_lease_release(struct flyt_lease *lease, struct flyt_error *err)
{
    struct flyt_error unread;
    bool was_leading = flyt_lease_is_leader(lease);
    enum flyt_store_result result = FLYT_STORE_OK;

    err = err ? err : &unread;
    stop_leading(lease);
    if (!was_leading || !flyt_store_is_shared(lease->store))
        return FLYT_STORE_OK;
    if (lease->is_attempt_unconfirmed)
        result = look(lease, err);
    if (result == FLYT_STORE_OK && is_own(lease))
        result = write_document(lease, lease->epoch, false, err);
    return result == FLYT_STORE_CONFLICT || result == FLYT_STORE_NOT_FOUND ? FLYT_STORE_OK : result;
}
