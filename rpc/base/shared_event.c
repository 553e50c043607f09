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
    VERSION = 2,
    USER_BITS = 20, /* of a record's word, the lower ones: who made it. The rest is its number. */
    TRIES = 1 << 16 /* for a number: only who scribbles in the page takes so many away */
};

#define USERS_MAX  (UINT64_C(1) << USER_BITS)
#define NUMBER_MAX (UINT64_MAX >> USER_BITS)

/* The places of records are used again. */
struct place {
    _Atomic uint64_t begun;    /* the word of the record that has it, which has its number by that */
    _Atomic uint64_t complete; /* the highest number that is complete here */
};

struct page {
    struct flyt_shared head;
    _Atomic uint64_t users; /* so many ever: each has claimed the byte of its number */
    _Atomic uint64_t last;  /* word of the last record, or of the one before it, whose place says that */
    uint64_t reserved[2];
    struct place places[FLYT_SHARED_RECORDS];
};
_Static_assert(sizeof(struct page) <= PAGE_BYTES, "it fits");
_Static_assert(sizeof(struct place) == 16 && offsetof(struct page, places) == 48, "page layout");

struct flyt_shared_event {
    struct page *page;
    int fd; /* an open description of its own, which claims */
    uint64_t user;
    uint64_t *under_way; /* its own records that are not complete, in no order */
    size_t under_way_count, under_way_max;
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
    free(event->under_way);
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

static int make_room(struct flyt_shared_event *event)
{
    if (event->under_way_count < event->under_way_max)
        return 0;
    size_t max = event->under_way_max ? 2 * event->under_way_max : 8;
    uint64_t *words = realloc(event->under_way, max * sizeof *words);
    if (!words)
        return -ENOMEM;
    event->under_way = words;
    event->under_way_max = max;
    return 0;
}

/* Where it is among the own records that are not complete; their count: it is none. */
static size_t find_under_way(const struct flyt_shared_event *event, uint64_t word)
{
    size_t i = 0;
    while (i < event->under_way_count && event->under_way[i] != word)
        i++;
    return i;
}

/*
 * The number behind the last one is whose word gets into its place. The word of the last record follows that, by
 * whoever comes first: nobody waits for a process that was killed in between. False: another one was first.
 */
static bool take_number(struct flyt_shared_event *event, uint64_t last, struct flyt_shared_record *record)
{
    uint64_t word = (number_of(last) + 1) << USER_BITS | event->user;
    struct place *place = place_of(event, word);
    uint64_t begun = atomic_load(&place->begun);

    const bool is_taken = number_of(begun) == number_of(word);
    if (!is_taken &&
        (atomic_load(&event->page->last) != last || !atomic_compare_exchange_strong(&place->begun, &begun, word)))
        return false;
    *record = (struct flyt_shared_record){.word = word, .before = begun};
    atomic_compare_exchange_strong(&event->page->last, &last, is_taken ? begun : word);
    return !is_taken;
}

int flyt_shared_event_record(struct flyt_shared_event *event, struct flyt_shared_record *ret_record)
{
    struct flyt_shared_record record;
    int status = make_room(event);

    if (status)
        return status;
    for (unsigned i = 0; i < TRIES; i++) {
        uint64_t last = atomic_load(&event->page->last);
        if (number_of(last) >= NUMBER_MAX)
            return -EOVERFLOW;
        if (!take_number(event, last, &record))
            continue;
        event->under_way[event->under_way_count++] = record.word;
        *ret_record = record;
        return 0;
    }
    return -EBUSY;
}

/* Release: who finds it complete (acquire, in is_complete) finds all that was before it. */
static void set_complete(struct place *place, uint64_t number)
{
    uint64_t complete = atomic_load_explicit(&place->complete, memory_order_relaxed);

    while (complete < number && !atomic_compare_exchange_weak_explicit(&place->complete, &complete, number,
                                                                       memory_order_release, memory_order_relaxed))
        ;
}

/* What is there of another number nobody has recorded. */
static bool is_free(struct flyt_shared_event *event, const struct flyt_shared_record *record)
{
    return number_of(record->before) + FLYT_SHARED_RECORDS != number_of(record->word) ||
           flyt_shared_event_is_complete(event, record->before) ||
           flyt_shared_event_is_abandoned(event, record->before);
}

bool flyt_shared_event_complete(struct flyt_shared_event *event, const struct flyt_shared_record *record)
{
    if (!is_free(event, record))
        return false;
    set_complete(place_of(event, record->word), number_of(record->word));
    size_t i = find_under_way(event, record->word);
    if (i < event->under_way_count)
        event->under_way[i] = event->under_way[--event->under_way_count];
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
    if (user_of(word) == event->user)
        return find_under_way(event, word) == event->under_way_count;
    if (flyt_claim(event->fd, user_of(word), 1) != 0)
        return false;
    flyt_unclaim(event->fd, user_of(word), 1);
    set_complete(place_of(event, word), number_of(word));
    return true;
}
