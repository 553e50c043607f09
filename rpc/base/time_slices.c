#include "rpc/base/time_slices.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/sealed.h"
#include "rpc/base/time_slice_board.h"

#define MS 1000000ull

enum {
    OWN_BELL = FLYT_TIME_SLICE_SERVERS_MAX, /* of the thread itself, beside those of the places */
    /* A server that rings more often within a beat is not heard before its end: it takes nobody else's time. */
    RINGS_MAX = 2000,
    STRAY_BEATS = 2, /* so often in a row one is seen to work without the token before its tenant pays for it */
};
/* Longer than this thread sleeps: what was said meanwhile, it has not seen. */
static const uint64_t unseen_ns = 5 * FLYT_TIME_SLICE_BEAT_MS * MS;

struct place {
    struct flyt_time_slice_page *page; /* NULL: free */
    int page_fd, bell_fd;
    uint64_t heard; /* the word of it that was heard last */
    unsigned rings; /* in this beat */
    bool is_muted;
    uint64_t looked_ns, said_ns; /* as flyt_time_slices_server */
    bool was_saying;             /* when it was looked at last */
    unsigned stray_beats;
};

struct flyt_time_slices {
    pthread_mutex_t mutex;
    pthread_t thread;
    bool is_ending;
    struct flyt_time_slice_table table;
    struct flyt_time_slice_board *board;
    int board_fd, epoll_fd, bell_fd;
    uint64_t again_ns, beat_ns, last_offer;
    struct place places[FLYT_TIME_SLICE_SERVERS_MAX];
    bool is_woken[FLYT_TIME_SLICE_SERVERS_MAX]; /* whose offer has changed, and who has not been woken */
};

/* ---- the board ---- */

static bool may_work(const struct flyt_time_slice_table *table, unsigned i)
{
    const struct flyt_time_slice_server *server = &table->servers[i];

    return server->server_id && table->holder >= 0 && (uint32_t)table->holder == server->tenant &&
           !table->is_recalled && !server->is_missing && server->state != FLYT_TIME_SLICE_IDLE;
}

static void offer(struct flyt_time_slices *time_slices, unsigned i, uint64_t number, uint64_t now_ns)
{
    struct flyt_time_slice_place *place = &time_slices->board->places[i];

    if (number)
        atomic_store_explicit(&place->offered_ns, now_ns, memory_order_relaxed);
    atomic_store(&place->offer, number);
    atomic_fetch_add_explicit(&place->wake, 1, memory_order_release);
    time_slices->is_woken[i] = true;
}

/* After every change of the table. Whether anybody is to be woken. */
static void publish(struct flyt_time_slices *time_slices, uint64_t now_ns)
{
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++) {
        bool has_offer = atomic_load_explicit(&time_slices->board->places[i].offer, memory_order_relaxed) != 0;
        bool may = time_slices->places[i].page && may_work(&time_slices->table, i);
        if (may != has_offer)
            offer(time_slices, i, may ? ++time_slices->last_offer : 0, now_ns);
    }
    atomic_store_explicit(&time_slices->board->is_wanted, time_slices->table.is_wanted, memory_order_relaxed);
    atomic_store_explicit(&time_slices->board->seen_ns, now_ns, memory_order_relaxed);
}

/* What holds while this process is away. */
static void publish_parts(struct flyt_time_slices *time_slices)
{
    for (unsigned i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++) {
        struct flyt_time_slice_part *part = &time_slices->board->parts[i];
        atomic_store_explicit(&part->part, flyt_time_slice_table_part(&time_slices->table, i), memory_order_relaxed);
        atomic_store_explicit(&part->tenant_id, time_slices->table.tenants[i].tenant_id, memory_order_relaxed);
    }
}

static void lock(struct flyt_time_slices *time_slices)
{
    pthread_mutex_lock(&time_slices->mutex);
}

/* Wakes after the mutex is free: who wakes up wants nothing of this process, but it takes time. */
static void unlock(struct flyt_time_slices *time_slices)
{
    bool is_woken[FLYT_TIME_SLICE_SERVERS_MAX];

    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++) {
        is_woken[i] = time_slices->is_woken[i];
        time_slices->is_woken[i] = false;
    }
    pthread_mutex_unlock(&time_slices->mutex);
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (is_woken[i])
            syscall(SYS_futex, &time_slices->board->places[i].wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- what servers say ---- */

/* What is believed of it: it was then, or earlier. */
static void copy_page(struct flyt_time_slices *time_slices, unsigned i, uint64_t now_ns)
{
    const struct flyt_time_slice_page *page = time_slices->places[i].page;
    struct flyt_time_slice_server *server = &time_slices->table.servers[i];
    uint64_t seen_ns = atomic_load_explicit(&page->seen_ns, memory_order_relaxed);

    atomic_store_explicit(&server->seen_ns, seen_ns < now_ns ? seen_ns : now_ns, memory_order_relaxed);
    atomic_store_explicit(&server->idle, atomic_load_explicit(&page->idle, memory_order_relaxed), memory_order_relaxed);
}

static unsigned state_of(const struct place *place)
{
    return atomic_load(&place->page->word) & FLYT_TIME_SLICE_STATE_MASK;
}

/* It may have been at work since it was looked at last, by what it says, or may say at any moment. */
static void count_said(struct flyt_time_slices *time_slices, unsigned i, uint64_t now_ns)
{
    struct place *place = &time_slices->places[i];
    const uint64_t span_ns = now_ns - place->looked_ns;
    bool is_saying = state_of(place) >= FLYT_TIME_SLICE_RUNS || atomic_load(&time_slices->board->places[i].offer);

    if (is_saying || place->was_saying || span_ns > unseen_ns)
        place->said_ns += span_ns;
    place->was_saying = is_saying;
    place->looked_ns = now_ns;
}

static bool is_stray(const struct flyt_time_slices *time_slices, unsigned i)
{
    const struct flyt_time_slice_server *server = &time_slices->table.servers[i];

    return state_of(&time_slices->places[i]) == FLYT_TIME_SLICE_RUNS && server->state != FLYT_TIME_SLICE_RUNS &&
           server->is_missing != FLYT_TIME_SLICE_IS_OVER;
}

/* Says that it works, and has no token: it has come back from a pause, went by the clock, or lies. */
static void look_for_stray(struct flyt_time_slices *time_slices, unsigned i, uint64_t now_ns, uint64_t *again_ns)
{
    const uint64_t seen_ns = atomic_load_explicit(&time_slices->table.servers[i].seen_ns, memory_order_relaxed);
    struct place *place = &time_slices->places[i];
    struct flyt_time_slice_answer answer;
    bool is_seen = now_ns - seen_ns < FLYT_TIME_SLICE_LOST_MS * MS;

    place->stray_beats = is_stray(time_slices, i) && is_seen ? place->stray_beats + 1 : 0;
    if (place->stray_beats < STRAY_BEATS)
        return;
    flyt_time_slice_table_mark_over(&time_slices->table, i, now_ns, &answer);
    *again_ns = answer.again_ns;
}

/* Its word is another one: says it to the rules, where it is one that can be. */
static void hear(struct flyt_time_slices *time_slices, unsigned i, uint64_t now_ns, uint64_t *again_ns)
{
    struct flyt_time_slice_server *server = &time_slices->table.servers[i];
    struct place *place = &time_slices->places[i];
    const uint64_t word = atomic_load(&place->page->word), number = word >> FLYT_TIME_SLICE_STATE_BITS;
    const unsigned state = word & FLYT_TIME_SLICE_STATE_MASK;
    struct flyt_time_slice_answer answer;

    if (word == place->heard)
        return;
    place->heard = word;
    /* It takes an offer: the one that it has, or it sees by itself that that is gone. */
    if (state == FLYT_TIME_SLICE_RUNS && (server->state != FLYT_TIME_SLICE_WAITS || !number ||
                                          number != atomic_load(&time_slices->board->places[i].offer)))
        return;
    if (state == FLYT_TIME_SLICE_RUNS) {
        flyt_time_slice_table_take(&time_slices->table, i, now_ns, &answer);
        *again_ns = answer.again_ns;
        return;
    }
    if (!flyt_time_slice_table_tell(&time_slices->table, i, server->server_id, (enum flyt_time_slice_state)state,
                                    now_ns, &answer))
        *again_ns = answer.again_ns;
    /* What it was offered it has given back: another one may follow. */
    if (atomic_load(&time_slices->board->places[i].offer))
        offer(time_slices, i, 0, now_ns);
}

static void mute(struct flyt_time_slices *time_slices, unsigned i, bool is_muted)
{
    struct epoll_event event = {.events = is_muted ? 0 : EPOLLIN | EPOLLET, .data.u32 = i};

    time_slices->places[i].is_muted = is_muted;
    epoll_ctl(time_slices->epoll_fd, EPOLL_CTL_MOD, time_slices->places[i].bell_fd, &event);
}

/* A new beat: the board says that this process is there, and who rang too often is heard again. */
static void beat(struct flyt_time_slices *time_slices, uint64_t now_ns)
{
    time_slices->beat_ns = now_ns + FLYT_TIME_SLICE_BEAT_MS * MS;
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++) {
        time_slices->places[i].rings = 0;
        if (time_slices->places[i].page && time_slices->places[i].is_muted)
            mute(time_slices, i, false);
    }
}

static void look(struct flyt_time_slices *time_slices, const struct epoll_event *events, int count)
{
    uint64_t now_ns = flyt_clock_ns(), again_ns = time_slices->again_ns;
    struct flyt_time_slice_answer answer;

    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (time_slices->places[i].page) {
            copy_page(time_slices, i, now_ns);
            count_said(time_slices, i, now_ns);
        }
    /* Who has begun first of all: where this thread comes late, what another says is not to take that from it. */
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (time_slices->places[i].page && state_of(&time_slices->places[i]) == FLYT_TIME_SLICE_RUNS)
            hear(time_slices, i, now_ns, &again_ns);
    for (int e = 0; e < count; e++) {
        unsigned i = events[e].data.u32;
        if (i >= FLYT_TIME_SLICE_SERVERS_MAX || !time_slices->places[i].page)
            continue;
        hear(time_slices, i, now_ns, &again_ns);
        if (++time_slices->places[i].rings > RINGS_MAX)
            mute(time_slices, i, true);
    }
    if (now_ns >= again_ns) {
        flyt_time_slice_table_look(&time_slices->table, now_ns, &answer);
        again_ns = answer.again_ns;
    }
    if (now_ns >= time_slices->beat_ns) {
        /* What was said while somebody was not heard, or by one that has not rung. */
        for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
            if (time_slices->places[i].page) {
                hear(time_slices, i, now_ns, &again_ns);
                look_for_stray(time_slices, i, now_ns, &again_ns);
            }
        beat(time_slices, now_ns);
    }
    time_slices->again_ns = again_ns;
    publish(time_slices, now_ns);
}

static void await(struct flyt_time_slices *time_slices, struct epoll_event *events, int *ret_count, uint64_t at_ns)
{
    uint64_t now_ns = flyt_clock_ns();
    const uint64_t left_ns = at_ns > now_ns ? at_ns - now_ns : 0;
    const struct timespec left = {.tv_sec = (time_t)(left_ns / 1000000000), .tv_nsec = (long)(left_ns % 1000000000)};

    *ret_count = epoll_pwait2(time_slices->epoll_fd, events, OWN_BELL + 1, &left, NULL);
    if (*ret_count < 0 && errno == ENOSYS) /* before Linux 5.11 */
        *ret_count = epoll_wait(time_slices->epoll_fd, events, OWN_BELL + 1, (int)(left_ns / MS) + 1);
}

static void *give_out(void *user)
{
    struct flyt_time_slices *time_slices = user;
    struct epoll_event events[OWN_BELL + 1];
    int count = 0;

    for (;;) {
        lock(time_slices);
        bool is_ending = time_slices->is_ending;
        look(time_slices, events, count);
        uint64_t at_ns = time_slices->again_ns < time_slices->beat_ns ? time_slices->again_ns : time_slices->beat_ns;
        unlock(time_slices);
        if (is_ending)
            return NULL;
        await(time_slices, events, &count, at_ns);
    }
}

/* ---- making and ending ---- */

static int add_bell(struct flyt_time_slices *time_slices, int fd, unsigned i)
{
    /* Edges: nobody reads it, so that nobody can take a ring away. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = i};

    return epoll_ctl(time_slices->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* The thread looks again, and finds what was changed. */
static void ring(struct flyt_time_slices *time_slices)
{
    const uint64_t one = 1;

    if (write(time_slices->bell_fd, &one, sizeof one) < 0)
        return; /* it rings already */
}

static int start(struct flyt_time_slices *time_slices)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = -pthread_create(&time_slices->thread, NULL, give_out, time_slices);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static void drop(struct flyt_time_slices *time_slices)
{
    flyt_close(time_slices->epoll_fd);
    flyt_close(time_slices->bell_fd);
    flyt_close(time_slices->board_fd);
    flyt_sealed_unmap(time_slices->board, FLYT_TIME_SLICE_BOARD_BYTES);
    pthread_mutex_destroy(&time_slices->mutex);
    free(time_slices);
}

int flyt_time_slices_new(struct flyt_time_slices **ret_time_slices)
{
    struct flyt_time_slices *time_slices = calloc(1, sizeof *time_slices);
    void *board;

    if (!time_slices)
        return -ENOMEM;
    int status = flyt_sealed_new("flyt-time-slices", FLYT_TIME_SLICE_BOARD_BYTES, &board, &time_slices->board_fd);
    if (status) {
        free(time_slices);
        return status;
    }
    pthread_mutex_init(&time_slices->mutex, NULL);
    time_slices->board = board;
    time_slices->again_ns = UINT64_MAX;
    flyt_time_slice_table_init(&time_slices->table, flyt_clock_ns());
    atomic_store(&time_slices->board->seen_ns, flyt_clock_ns());
    time_slices->board->head.version = FLYT_TIME_SLICE_BOARD_VERSION;
    time_slices->board->head.magic = FLYT_TIME_SLICE_BOARD_MAGIC;
    time_slices->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    time_slices->bell_fd = time_slices->epoll_fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = time_slices->bell_fd < 0 ? -errno : add_bell(time_slices, time_slices->bell_fd, OWN_BELL);
    if (!status)
        status = start(time_slices);
    if (status)
        drop(time_slices);
    else
        *ret_time_slices = time_slices;
    return status;
}

static void free_place(struct flyt_time_slices *time_slices, unsigned i)
{
    struct place *place = &time_slices->places[i];

    if (!place->page)
        return;
    flyt_close(place->bell_fd); /* the last of the descriptors here: epoll forgets it, unless the server has it */
    flyt_shared_close(place->page_fd, &place->page->head, FLYT_TIME_SLICE_PAGE_BYTES);
    *place = (struct place){0};
}

static void leave(struct flyt_time_slices *time_slices, unsigned i)
{
    if (time_slices->places[i].page)
        epoll_ctl(time_slices->epoll_fd, EPOLL_CTL_DEL, time_slices->places[i].bell_fd, NULL);
    free_place(time_slices, i);
}

struct flyt_time_slices *flyt_time_slices_close(struct flyt_time_slices *time_slices)
{
    if (!time_slices)
        return NULL;
    lock(time_slices);
    time_slices->is_ending = true;
    unlock(time_slices);
    ring(time_slices);
    pthread_join(time_slices->thread, NULL);
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        leave(time_slices, i);
    drop(time_slices);
    return NULL;
}

int flyt_time_slices_fd(const struct flyt_time_slices *time_slices)
{
    return time_slices->board_fd;
}

/* ---- calls ---- */

/* The table was changed: the board follows, and the thread looks when it is worth it. */
static void changed(struct flyt_time_slices *time_slices, const struct flyt_time_slice_answer *answer)
{
    time_slices->again_ns = answer->again_ns;
    publish_parts(time_slices);
    publish(time_slices, flyt_clock_ns());
    unlock(time_slices);
    ring(time_slices);
}

int flyt_time_slices_set(struct flyt_time_slices *time_slices, uint64_t tenant_id,
                         const struct flyt_time_slice_share *share, uint64_t revision)
{
    struct flyt_time_slice_answer answer;

    lock(time_slices);
    int status = flyt_time_slice_table_set(&time_slices->table, tenant_id, share, revision, flyt_clock_ns(), &answer);
    if (status)
        unlock(time_slices);
    else
        changed(time_slices, &answer);
    return status;
}

/* Those whose entry in the table is gone. */
static void drop_places(struct flyt_time_slices *time_slices)
{
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (!time_slices->table.servers[i].server_id)
            leave(time_slices, i);
}

void flyt_time_slices_remove(struct flyt_time_slices *time_slices, uint64_t tenant_id)
{
    struct flyt_time_slice_answer answer;

    lock(time_slices);
    flyt_time_slice_table_remove(&time_slices->table, tenant_id, flyt_clock_ns(), &answer);
    drop_places(time_slices);
    flyt_time_slice_table_look(&time_slices->table, flyt_clock_ns(), &answer);
    changed(time_slices, &answer);
}

void flyt_time_slices_leave(struct flyt_time_slices *time_slices, uint64_t server_id)
{
    struct flyt_time_slice_answer answer;

    lock(time_slices);
    flyt_time_slice_table_leave(&time_slices->table, server_id, flyt_clock_ns(), &answer);
    drop_places(time_slices);
    changed(time_slices, &answer);
}

static int make_place(struct flyt_time_slices *time_slices, unsigned i, uint64_t tenant_id)
{
    struct flyt_shared *page;
    struct place made;
    int status = flyt_shared_new("flyt-time-slice", FLYT_TIME_SLICE_PAGE_BYTES, &made.page_fd, &page);

    if (status)
        return status;
    made = (struct place){
        .page = (struct flyt_time_slice_page *)page, .page_fd = made.page_fd, .looked_ns = flyt_clock_ns()};
    made.page->tenant_id = tenant_id;
    page->count = i;
    page->version = FLYT_TIME_SLICE_BOARD_VERSION;
    page->magic = FLYT_TIME_SLICE_PAGE_MAGIC;
    made.bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = made.bell_fd < 0 ? -errno : add_bell(time_slices, made.bell_fd, i);
    if (status) {
        flyt_close(made.bell_fd);
        flyt_shared_close(made.page_fd, page, FLYT_TIME_SLICE_PAGE_BYTES);
        return status;
    }
    time_slices->places[i] = made;
    return 0;
}

int flyt_time_slices_join(struct flyt_time_slices *time_slices, uint64_t tenant_id, uint64_t server_id, int *ret_fds)
{
    struct flyt_time_slice_answer answer;

    lock(time_slices);
    /* One that is there begins anew: what it said before is of another page. */
    flyt_time_slice_table_leave(&time_slices->table, server_id, flyt_clock_ns(), &answer);
    drop_places(time_slices);
    int place = flyt_time_slice_table_join(&time_slices->table, tenant_id, server_id);
    int status = place < 0 ? place : make_place(time_slices, (unsigned)place, tenant_id);
    if (status && place >= 0)
        flyt_time_slice_table_leave(&time_slices->table, server_id, flyt_clock_ns(), &answer);
    if (!status) {
        ret_fds[0] = time_slices->board_fd;
        ret_fds[1] = time_slices->places[place].page_fd;
        ret_fds[2] = time_slices->places[place].bell_fd;
    }
    changed(time_slices, &answer);
    return status;
}

int flyt_time_slices_read(struct flyt_time_slices *time_slices, uint64_t tenant_id,
                          struct flyt_time_slices_state *ret_state)
{
    int status = -ENOENT;

    lock(time_slices);
    for (int32_t i = 0; tenant_id && i < FLYT_TIME_SLICE_TENANTS_MAX; i++) {
        const struct flyt_time_slice_tenant *tenant = &time_slices->table.tenants[i];
        if (tenant->tenant_id != tenant_id)
            continue;
        *ret_state = (struct flyt_time_slices_state){
            .share = tenant->share,
            .used_ns = tenant->used_ns,
            .waited_ns = tenant->waited_ns,
            .overused_ns = tenant->overused_ns,
            .grant_count = tenant->grant_count,
            .is_holder = time_slices->table.holder == i,
        };
        status = 0;
    }
    unlock(time_slices);
    return status;
}

unsigned flyt_time_slices_list(struct flyt_time_slices *time_slices, uint64_t *ret_ids)
{
    unsigned count = 0;

    lock(time_slices);
    for (unsigned i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++)
        if (time_slices->table.tenants[i].tenant_id)
            ret_ids[count++] = time_slices->table.tenants[i].tenant_id;
    unlock(time_slices);
    return count;
}

unsigned flyt_time_slices_servers(struct flyt_time_slices *time_slices, uint64_t *ret_ids)
{
    unsigned count = 0;

    lock(time_slices);
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (time_slices->table.servers[i].server_id)
            ret_ids[count++] = time_slices->table.servers[i].server_id;
    unlock(time_slices);
    return count;
}

static struct flyt_time_slices_server describe(struct flyt_time_slices *time_slices, unsigned i, uint64_t now_ns)
{
    const struct flyt_time_slice_server *server = &time_slices->table.servers[i];
    bool is_over = server->is_missing == FLYT_TIME_SLICE_IS_OVER;

    count_said(time_slices, i, now_ns);
    return (struct flyt_time_slices_server){
        .server_id = server->server_id,
        .said_ns = time_slices->places[i].said_ns,
        .over_ns = is_over ? now_ns - server->over_ns + 1 : 0,
        .is_kept = is_over && state_of(&time_slices->places[i]) == FLYT_TIME_SLICE_RUNS,
        .is_stray = is_stray(time_slices, i),
    };
}

unsigned flyt_time_slices_look(struct flyt_time_slices *time_slices, struct flyt_time_slices_server *ret_servers)
{
    unsigned count = 0;

    lock(time_slices);
    const uint64_t now_ns = flyt_clock_ns();
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (time_slices->places[i].page)
            ret_servers[count++] = describe(time_slices, i, now_ns);
    unlock(time_slices);
    return count;
}

/* Its place; FLYT_TIME_SLICE_SERVERS_MAX: none. */
static unsigned find_place(const struct flyt_time_slices *time_slices, uint64_t server_id)
{
    unsigned i = 0;

    while (i < FLYT_TIME_SLICE_SERVERS_MAX &&
           !(time_slices->places[i].page && time_slices->table.servers[i].server_id == server_id))
        i++;
    return i;
}

void flyt_time_slices_mark_over(struct flyt_time_slices *time_slices, uint64_t server_id)
{
    struct flyt_time_slice_answer answer;

    lock(time_slices);
    unsigned i = find_place(time_slices, server_id);
    if (i == FLYT_TIME_SLICE_SERVERS_MAX) {
        unlock(time_slices);
        return;
    }
    flyt_time_slice_table_mark_over(&time_slices->table, i, flyt_clock_ns(), &answer);
    changed(time_slices, &answer);
}

void flyt_time_slices_charge(struct flyt_time_slices *time_slices, uint64_t server_id, uint64_t ns)
{
    lock(time_slices);
    unsigned i = find_place(time_slices, server_id);
    if (i < FLYT_TIME_SLICE_SERVERS_MAX)
        flyt_time_slice_table_charge(&time_slices->table, i, ns, flyt_clock_ns());
    unlock(time_slices);
}

bool flyt_time_slices_has(struct flyt_time_slices *time_slices, uint64_t server_id)
{
    uint64_t ids[FLYT_TIME_SLICE_SERVERS_MAX];
    unsigned count = server_id ? flyt_time_slices_servers(time_slices, ids) : 0;

    while (count)
        if (ids[--count] == server_id)
            return true;
    return false;
}
