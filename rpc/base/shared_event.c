#include "rpc/base/shared_event.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "rpc/base/claims.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/shared.h"

#define MAGIC UINT64_C(0x746e657665796c66) /* "flyevent" */

enum {
    PAGE_BYTES = 4096,
    VERSION = 1,
    USER_BITS = 20, /* of a record's word, the lower ones: who made it. The rest is its number. */
};

#define USERS_MAX (UINT64_C(1) << USER_BITS)

/* The places of records are used again. */
struct place {
    _Atomic uint64_t begun;    /* the word of the record that has it */
    _Atomic uint64_t complete; /* the highest number that is complete here */
};

struct page {
    struct flyt_shared head;
    _Atomic uint64_t users; /* so many ever: each has claimed the byte of its number */
    _Atomic uint64_t last;  /* word of the last record */
    uint64_t reserved[2];
    struct place places[FLYT_SHARED_RECORDS];
};
_Static_assert(sizeof(struct page) <= PAGE_BYTES, "it fits");
_Static_assert(sizeof(struct place) == 16 && offsetof(struct page, places) == 48, "page layout");

struct flyt_shared_event {
    struct page *page;
    int fd; /* an open description of its own, which claims */
    uint64_t user;
};

static uint64_t number_of(uint64_t word)
{
    return word >> USER_BITS;
}

static uint64_t user_of(uint64_t word)
{
    return word & (USERS_MAX - 1);
}

static struct place *place_of(const struct flyt_shared_event *event, uint64_t word)
{
    return &event->page->places[number_of(word) % FLYT_SHARED_RECORDS];
}

/* Another open description of the same memory: what is claimed by it is claimed by nobody else who has the first one.
 */
static int open_anew(int fd)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own_fd = open(path, O_RDWR | O_CLOEXEC);
    return own_fd < 0 ? -errno : own_fd;
}

int flyt_shared_event_open(int fd, struct flyt_shared_event **ret_event)
{
    struct flyt_shared *shared;
    int mapped_fd, own_fd = open_anew(fd);

    if (own_fd < 0)
        return own_fd;
    int status = flyt_shared_open(own_fd, PAGE_BYTES, MAGIC, VERSION, &mapped_fd, &shared);
    flyt_close(own_fd);
    if (status)
        return status;
    struct flyt_shared_event *event = calloc(1, sizeof *event);
    if (event) {
        *event = (struct flyt_shared_event){.page = (struct page *)shared, .fd = mapped_fd};
        event->user = atomic_fetch_add(&event->page->users, 1) + 1;
    }
    status = !event ? -ENOMEM : event->user >= USERS_MAX ? -ENOSPC : flyt_claim(mapped_fd, event->user, 1);
    if (status) {
        flyt_shared_close(mapped_fd, shared, PAGE_BYTES);
        free(event);
        return status;
    }
    *ret_event = event;
    return 0;
}

int flyt_shared_event_new(struct flyt_shared_event **ret_event)
{
    struct flyt_shared *shared;
    int fd, status = flyt_shared_new("flyt-event", PAGE_BYTES, &fd, &shared);

    if (status)
        return status;
    shared->version = VERSION;
    shared->magic = MAGIC;
    status = flyt_shared_event_open(fd, ret_event);
    flyt_shared_close(fd, shared, PAGE_BYTES);
    return status;
}

struct flyt_shared_event *flyt_shared_event_close(struct flyt_shared_event *event)
{
    if (!event)
        return NULL;
    flyt_shared_close(event->fd, &event->page->head, PAGE_BYTES);
    free(event);
    return NULL;
}

int flyt_shared_event_descriptor(const struct flyt_shared_event *event, int *ret_fd)
{
    int fd = open_anew(event->fd);

    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

/* ---- records ---- */

struct flyt_shared_record flyt_shared_event_record(struct flyt_shared_event *event)
{
    uint64_t last = atomic_load(&event->page->last);
    struct flyt_shared_record record;

    do
        record.word = (number_of(last) + 1) << USER_BITS | event->user;
    while (!atomic_compare_exchange_weak(&event->page->last, &last, record.word));
    record.before = atomic_exchange(&place_of(event, record.word)->begun, record.word);
    return record;
}

/* Release: who finds it complete (acquire, in is_complete) finds all that was before it. */
static void set_complete(struct place *place, uint64_t number)
{
    uint64_t complete = atomic_load_explicit(&place->complete, memory_order_relaxed);

    while (complete < number && !atomic_compare_exchange_weak_explicit(&place->complete, &complete, number,
                                                                       memory_order_release, memory_order_relaxed))
        ;
}

bool flyt_shared_event_complete(struct flyt_shared_event *event, const struct flyt_shared_record *record)
{
    if (record->before && !flyt_shared_event_is_complete(event, record->before) &&
        !flyt_shared_event_is_abandoned(event, record->before))
        return false;
    set_complete(place_of(event, record->word), number_of(record->word));
    return true;
}

uint64_t flyt_shared_event_last(const struct flyt_shared_event *event)
{
    return atomic_load(&event->page->last);
}

bool flyt_shared_event_is_complete(const struct flyt_shared_event *event, uint64_t word)
{
    return !word || atomic_load_explicit(&place_of(event, word)->complete, memory_order_acquire) >= number_of(word);
}

bool flyt_shared_event_is_abandoned(struct flyt_shared_event *event, uint64_t word)
{
    if (user_of(word) == event->user || flyt_claim(event->fd, user_of(word), 1) != 0)
        return false;
    flyt_unclaim(event->fd, user_of(word), 1);
    set_complete(place_of(event, word), number_of(word));
    return true;
}
