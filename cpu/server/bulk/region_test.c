/* Which pages of a session's region are locked: compared with a map of pages, for locks in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/core/device.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "rpc/base/ledger.h"
#include "rpc/transport/manager_link.h"
#include "rpc/transport/region_offer.h"

enum { PAGES = 40, TRIES = 20000 };

static uint64_t page_bytes;

static unsigned next(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 8;
}

static struct flyt_session *open_session(void)
{
    struct flyt_session *session = calloc(1, sizeof *session);
    struct flyt_region of_client;
    int fd;
    page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(flyt_region_new(&of_client, &fd), 0);
    assert_int_equal(flyt_session_region_take(session, fd), 0);
    flyt_region_unmap(&of_client);
    close(fd);
    return session;
}

static void close_session(struct flyt_session *session)
{
    flyt_session_region_fini(session);
    flyt_session_region_fini(session); /* there may be none */
    free(session);
}

static char *place(const struct flyt_session *session, uint64_t offset_bytes, uint64_t bytes)
{
    const struct flyt_region_span span = {.offset_bytes = offset_bytes, .width_bytes = bytes, .height = 1, .depth = 1};
    return flyt_session_region_place(session, FLYT_REGION_ID, &span);
}

/* `owners` has for each page which lock has it, or 0. */
static void check_places(const struct flyt_session *session, const unsigned *owners, unsigned *seed)
{
    unsigned first = next(seed) % PAGES, last = first + next(seed) % 3;
    bool is_one = last < PAGES && owners[first];
    for (unsigned page = first; page <= last && is_one; page++)
        is_one = owners[page] == owners[first];
    char *found = place(session, first * page_bytes + 5, (last - first + 1) * page_bytes - 10);
    assert_ptr_equal(found, is_one ? session->region->region.base + first * page_bytes + 5 : NULL);
}

static void is_as_a_map_says(void **state)
{
    struct flyt_session *session = open_session();
    unsigned owners[PAGES] = {0}, seed = 5, number = 0;
    for (unsigned i = 0; i < TRIES; i++) {
        unsigned first = next(&seed) % PAGES, count = 1 + next(&seed) % 4;
        if (next(&seed) % 3 == 0 && owners[first]) { /* unlock what is there */
            unsigned owner = owners[first];
            while (first && owners[first - 1] == owner)
                first--;
            for (count = 0; first + count < PAGES && owners[first + count] == owner; count++)
                owners[first + count] = 0;
            assert_non_null(flyt_session_region_find(session, FLYT_REGION_ID, first * page_bytes, count * page_bytes));
            assert_null(
                flyt_session_region_find(session, FLYT_REGION_ID, first * page_bytes, (count + 1) * page_bytes));
            flyt_session_region_remove(session, first * page_bytes);
        } else if (first + count <= PAGES) {
            bool is_free = true;
            for (unsigned page = first; page < first + count; page++)
                is_free = is_free && !owners[page];
            int status = flyt_session_region_add(session, FLYT_REGION_ID, first * page_bytes, count * page_bytes);
            assert_int_equal(status, is_free ? 0 : -EINVAL);
            if (!is_free)
                continue;
            assert_null(place(session, first * page_bytes, 1)); /* not yet */
            flyt_session_region_find(session, FLYT_REGION_ID, first * page_bytes, count * page_bytes)->is_usable = true;
            number++;
            for (unsigned page = first; page < first + count; page++)
                owners[page] = number;
        }
        check_places(session, owners, &seed);
    }
    close_session(session);
}

static void what_is_no_place(void **state)
{
    struct flyt_session *session = open_session();
    const uint64_t bytes = session->region->region.bytes, end = bytes / page_bytes * page_bytes;
    assert_int_equal(flyt_session_region_add(session, 0, 0, page_bytes), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, 2, 0, page_bytes), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, 0), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 1, page_bytes), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, page_bytes + 1), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, end, page_bytes), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, UINT64_MAX / page_bytes * page_bytes),
                     -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, end - page_bytes, page_bytes), 0);
    flyt_session_region_find(session, FLYT_REGION_ID, end - page_bytes, page_bytes)->is_usable = true;
    assert_non_null(place(session, end - 1, 1));
    assert_null(place(session, end - 1, 2));
    assert_null(place(session, end, 1));
    assert_null(place(session, UINT64_MAX, 1));
    assert_null(place(session, end - 1, UINT64_MAX));
    const struct flyt_region_span rows = {
        .offset_bytes = end - page_bytes, .width_bytes = 1, .height = page_bytes + 1, .depth = 1, .pitch_bytes = 1};
    assert_null(flyt_session_region_place(session, FLYT_REGION_ID, &rows));
    assert_null(flyt_session_region_find(session, FLYT_REGION_ID, 0, page_bytes));
    close_session(session);
}

static void what_is_no_region_is_none(void **state)
{
    struct flyt_session *session = calloc(1, sizeof *session);
    const struct flyt_region_span span = {.width_bytes = 1, .height = 1, .depth = 1};
    int fd = memfd_create("region_test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(flyt_session_region_take(session, fd), -EINVAL); /* it could be cut */
    close(fd);
    assert_false(flyt_session_region_is_reached(session));
    assert_null(flyt_session_region_place(session, FLYT_REGION_ID, &span));
    assert_null(flyt_session_region_find(session, FLYT_REGION_ID, 0, 4096));
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, 4096), -EINVAL);
    free(session);
}

static void a_client_that_comes_back_has_the_same(void **state)
{
    struct flyt_session *session = calloc(1, sizeof *session);
    struct flyt_region own, another;
    int own_fd, another_fd;
    assert_int_equal(flyt_region_new(&own, &own_fd), 0);
    assert_int_equal(flyt_region_new(&another, &another_fd), 0);
    assert_int_equal(flyt_session_region_take(session, own_fd), 0);
    const struct flyt_session_region *taken = session->region;
    assert_int_equal(flyt_session_region_take(session, own_fd), 0);
    assert_int_equal(flyt_session_region_take(session, another_fd), -EEXIST);
    assert_ptr_equal(session->region, taken);
    strcpy(own.base, "one memory");
    assert_string_equal(session->region->region.base, "one memory");
    flyt_region_unmap(&own);
    flyt_region_unmap(&another);
    close(own_fd);
    close(another_fd);
    close_session(session);
}

static void locks_are_bounded(void **state)
{
    struct flyt_session *session = open_session();
    for (unsigned i = 0; i < FLYT_REGION_LOCKS_MAX; i++)
        assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 2 * i * page_bytes, page_bytes), 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, page_bytes, page_bytes), -ENOMEM);
    flyt_session_region_remove(session, 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, page_bytes, page_bytes), 0);
    close_session(session);
}

static void a_vm_has_its_share_of_the_host(void **state)
{
    char most[32];
    snprintf(most, sizeof most, "%llu", (unsigned long long)(5 * (uint64_t)sysconf(_SC_PAGESIZE) + 1));
    setenv(FLYT_LOCKED_MEMORY, most, 1);
    struct flyt_session *session = open_session();
    unsetenv(FLYT_LOCKED_MEMORY);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, 3 * page_bytes), 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 8 * page_bytes, 3 * page_bytes), -ENOMEM);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 8 * page_bytes, 2 * page_bytes), 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 4 * page_bytes, page_bytes), -ENOMEM);
    flyt_session_region_remove(session, 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 4 * page_bytes, 3 * page_bytes), 0);
    close_session(session);
}

/* ---- ahead of its client ---- */

/* What the driver has locked: how many pieces, and what it refuses. */
static struct {
    unsigned count, calls;
    bool is_refusing, is_keeping;
    const char *refused; /* the piece that begins there */
} driver_has;

static CUresult set_current(CUcontext context)
{
    return CUDA_SUCCESS;
}

static CUresult host_register(void *address, size_t bytes, unsigned flags)
{
    driver_has.calls++;
    if (driver_has.is_refusing || address == driver_has.refused)
        return CUDA_ERROR_OUT_OF_MEMORY;
    driver_has.count++;
    return flags == (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ? CUDA_SUCCESS
                                                                                 : CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_unregister(void *address)
{
    if (driver_has.is_keeping)
        return CUDA_ERROR_UNKNOWN;
    driver_has.count--;
    return CUDA_SUCCESS;
}

static const struct flyt_driver driver = {
    .cuCtxSetCurrent = set_current, .cuMemHostRegister = host_register, .cuMemHostUnregister = host_unregister};

/* One that is to go on here, and its client's region. */
static struct flyt_session *open_coming(int *ret_fd)
{
    struct flyt_session *session = calloc(1, sizeof *session);
    struct flyt_region of_client;
    memset(&driver_has, 0, sizeof driver_has);
    page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    session->driver = &driver;
    session->resume.state = FLYT_RESUME_AWAITED;
    assert_int_equal(flyt_region_new(&of_client, ret_fd), 0);
    flyt_region_unmap(&of_client);
    return session;
}

static struct flyt_manager_link_locks_done ahead(struct flyt_session *session, int fd, bool is_gone, unsigned count,
                                                 const struct flyt_manager_link_piece *pieces)
{
    const struct flyt_manager_link_locks locks = {.move_id = 1, .piece_count = count, .is_gone = is_gone};
    struct flyt_manager_link_locks_done done;
    flyt_session_region_lock_ahead(session, &locks, pieces, fd, &done);
    return done;
}

#define PIECE(page, pages) ((struct flyt_manager_link_piece){(page)*page_bytes, (pages)*page_bytes})

static bool is_locked(struct flyt_session *session, uint64_t page, uint64_t pages)
{
    const struct flyt_region_lock *lock =
        flyt_session_region_find(session, FLYT_REGION_ID, page * page_bytes, pages * page_bytes);
    return lock && lock->is_usable;
}

static void what_is_locked_ahead_is_there_with_its_client(void **state)
{
    int fd;
    struct flyt_session *session = open_coming(&fd);
    const struct flyt_manager_link_piece pieces[] = {PIECE(4, 2), PIECE(0, 1), PIECE(8, 3)};
    struct flyt_manager_link_locks_done done = ahead(session, fd, false, 3, pieces);
    assert_int_equal(done.locked_count, 3);
    assert_int_equal(done.missed_count, 0);
    assert_int_equal(done.locked_bytes, 6 * page_bytes);
    assert_int_equal(driver_has.count, 3);
    assert_false(is_locked(session, 4, 2)); /* nobody can name it */
    assert_null(place(session, 4 * page_bytes, 1));
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 20 * page_bytes, page_bytes), -EINVAL);
    /* The program has freed one meanwhile, and what else is said of pieces is not so. */
    const struct flyt_manager_link_piece gone[] = {PIECE(4, 2), PIECE(8, 2), PIECE(9, 1), PIECE(30, 1)};
    ahead(session, -1, true, 4, gone);
    assert_int_equal(driver_has.count, 2);
    assert_int_equal(flyt_session_region_take(session, fd), 0);
    assert_int_equal(session->resume.steps.locked_ahead_count, 2);
    assert_true(is_locked(session, 0, 1) && is_locked(session, 8, 3) && !is_locked(session, 4, 2));
    assert_non_null(place(session, 9 * page_bytes, 2 * page_bytes));
    assert_int_equal(session->region->locked_bytes, 4 * page_bytes);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 4 * page_bytes, 2 * page_bytes), 0);
    session->resume.state = FLYT_RESUME_NONE;
    assert_false(flyt_session_region_settle(session));
    assert_int_equal(driver_has.count, 2);
    close(fd);
    close_session(session);
}

static void what_cannot_be_locked_ahead_is_not(void **state)
{
    int fd;
    struct flyt_session *session = open_coming(&fd);
    const uint64_t end = UINT64_MAX - (uint64_t)sysconf(_SC_PAGESIZE) + 1;
    const struct flyt_manager_link_piece bad[] = {{1, page_bytes},
                                                  {0, page_bytes - 1},
                                                  {0, 0},
                                                  {end, page_bytes},
                                                  {end, 2 * page_bytes},
                                                  {page_bytes, UINT64_MAX},
                                                  {page_bytes, end},
                                                  {FLYT_WINDOW_BYTES, page_bytes},
                                                  PIECE(3, 4),
                                                  PIECE(6, 2),
                                                  PIECE(3, 4)};
    enum { BAD = sizeof bad / sizeof *bad };
    struct flyt_manager_link_locks_done done = ahead(session, fd, false, BAD, bad);
    assert_int_equal(done.locked_count, 1); /* the first of three that overlap */
    assert_int_equal(done.missed_count, BAD - 1);
    assert_int_equal(driver_has.calls, 1);
    driver_has.refused = session->region->region.base + 20 * page_bytes;
    const struct flyt_manager_link_piece more[] = {PIECE(20, 1), PIECE(22, 1)};
    done = ahead(session, fd, false, 2, more);
    assert_true(done.locked_count == 1 && done.missed_count == 1);
    assert_int_equal(flyt_session_region_take(session, fd), 0);
    assert_true(is_locked(session, 3, 4) && is_locked(session, 22, 1));
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 20 * page_bytes, page_bytes), 0);
    close(fd);
    close_session(session);
    /* No region: /dev/null, or a file without seals, or a VM's that is not here. */
    session = open_coming(&fd);
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC), plain_fd = memfd_create("x", MFD_CLOEXEC);
    assert_int_equal(ftruncate(plain_fd, 1 << 20), 0);
    const int fds[] = {null_fd, plain_fd, -1};
    for (unsigned i = 0; i < 3; i++) {
        done = ahead(session, fds[i], false, 1, more);
        assert_true(done.locked_count == 0 && done.missed_count == 1 && !session->region);
    }
    assert_int_equal(driver_has.calls, 0);
    ahead(session, -1, true, 1, more); /* nothing is locked */
    close(null_fd);
    close(plain_fd);
    close(fd);
    close_session(session);
}

static void ahead_of_its_client_the_bound_is_the_same(void **state)
{
    char most[32];
    int fd;
    struct flyt_session *session = open_coming(&fd);
    snprintf(most, sizeof most, "%llu", (unsigned long long)(5 * page_bytes));
    setenv(FLYT_LOCKED_MEMORY, most, 1);
    const struct flyt_manager_link_piece pieces[] = {PIECE(0, 3), PIECE(4, 3), PIECE(8, 2)};
    struct flyt_manager_link_locks_done done = ahead(session, fd, false, 3, pieces);
    unsetenv(FLYT_LOCKED_MEMORY);
    assert_true(done.locked_count == 2 && done.missed_count == 1);
    assert_int_equal(done.locked_bytes, 5 * page_bytes);
    assert_int_equal(flyt_session_region_take(session, fd), 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 4 * page_bytes, 3 * page_bytes), -ENOMEM);
    close(fd);
    close_session(session);
}

static void what_its_client_does_not_bring_is_let_go(void **state)
{
    int fd, another_fd;
    struct flyt_region another;
    struct flyt_session *session = open_coming(&fd);
    assert_int_equal(flyt_region_new(&another, &another_fd), 0);
    flyt_region_unmap(&another);
    const struct flyt_manager_link_piece pieces[] = {PIECE(4, 2), PIECE(0, 1), PIECE(8, 3)};
    ahead(session, fd, false, 3, pieces);
    assert_int_equal(flyt_session_region_take(session, another_fd), 0);
    assert_int_equal(driver_has.count, 0);
    assert_true(flyt_region_is_of(&session->region->region, another_fd) && !session->region->lock_count);
    assert_int_equal(session->resume.steps.locked_ahead_count, 0);
    assert_int_equal(flyt_session_region_take(session, fd), -EEXIST);
    close_session(session);

    session = open_coming(&another_fd);
    ahead(session, another_fd, false, 3, pieces);
    assert_false(flyt_session_region_settle(session)); /* it may still bring it */
    session->resume.state = FLYT_RESUME_NONE;
    driver_has.is_keeping = true;
    assert_true(flyt_session_region_settle(session));
    driver_has.is_keeping = false;
    for (unsigned rounds = 1; flyt_session_region_settle(session); rounds++) /* the others, and it not for ever */
        assert_in_range(rounds, 1, 2);
    assert_non_null(session->region);
    assert_int_equal(session->region->lock_count, 1);
    flyt_session_region_remove(session, 8 * page_bytes);
    assert_false(flyt_session_region_settle(session));
    assert_null(session->region);
    assert_int_equal(driver_has.count, 1); /* the one that it kept */
    close(fd);
    close(another_fd);
    close_session(session);
}

/* ---- what a VM's sessions have together ---- */

enum { ONE = 1, OTHER = 2 };

static struct flyt_session *with_ledger(struct flyt_session *session, const struct flyt_ledger *ledger, uint64_t id)
{
    session->session_id = id;
    assert_int_equal(flyt_ledger_open(flyt_ledger_fd(ledger), &session->locked_ledger), 0);
    return session;
}

static void close_with_ledger(struct flyt_session *session)
{
    flyt_ledger_close(session->locked_ledger);
    close_session(session);
}

static int lock(struct flyt_session *session, uint64_t page, uint64_t pages)
{
    return flyt_session_region_add(session, FLYT_REGION_ID, page * page_bytes, pages * page_bytes);
}

static void has(const struct flyt_ledger *ledger, uint64_t id, uint64_t pages)
{
    assert_int_equal(flyt_ledger_charged(ledger, id), pages * page_bytes);
}

static struct flyt_ledger *new_ledger(uint64_t pages)
{
    struct flyt_ledger *ledger;
    assert_int_equal(flyt_ledger_new(pages * (uint64_t)sysconf(_SC_PAGESIZE), &ledger), 0);
    assert_int_equal(flyt_ledger_join(ledger, ONE) | flyt_ledger_join(ledger, OTHER), 0);
    return ledger;
}

static void a_vms_sessions_have_their_share_together(void **state)
{
    struct flyt_ledger *ledger = new_ledger(10);
    struct flyt_session *one = with_ledger(open_session(), ledger, ONE);
    struct flyt_session *other = with_ledger(open_session(), ledger, OTHER);
    assert_int_equal(lock(one, 0, 6), 0);
    assert_int_equal(lock(other, 0, 5), -ENOMEM);
    assert_int_equal(lock(other, 0, 4), 0);
    assert_int_equal(lock(one, 8, 1), -ENOMEM);
    assert_int_equal(lock(one, 3, 1), -EINVAL); /* nothing is charged for what is no lock */
    has(ledger, ONE, 6);
    has(ledger, OTHER, 4);
    flyt_session_region_release(one, 0);
    has(ledger, ONE, 0);
    assert_int_equal(lock(other, 8, 6), 0);
    flyt_ledger_reclaim(ledger, OTHER, NULL); /* whoever has done that: it locks nothing any more */
    assert_int_equal(lock(other, 20, 1), -ENOMEM);
    close_with_ledger(one);
    close_with_ledger(other);
    flyt_ledger_close(ledger);
}

static void a_session_that_moves_is_charged_once(void **state)
{
    int fd;
    struct flyt_ledger *ledger = new_ledger(10);
    struct flyt_session *next = with_ledger(open_coming(&fd), ledger, ONE);
    struct flyt_session *from = with_ledger(calloc(1, sizeof *from), ledger, ONE);
    assert_int_equal(flyt_session_region_take(from, fd), 0);
    assert_int_equal(lock(from, 0, 4) | lock(from, 4, 3) | lock(from, 8, 1), 0);
    has(ledger, ONE, 8);
    const struct flyt_manager_link_piece pieces[] = {PIECE(0, 4), PIECE(4, 3)};
    ahead(next, fd, false, 2, pieces);
    ahead(next, -1, true, 1, pieces);
    has(ledger, ONE, 8); /* they are the other server's, still */
    assert_int_equal(flyt_session_region_take(next, fd), 0);
    has(ledger, ONE, 8);
    assert_int_equal(lock(next, 0, 4), 0); /* what it had elsewhere */
    has(ledger, ONE, 8);
    assert_int_equal(lock(next, 20, 4), -ENOMEM);
    flyt_session_region_release(next, 4 * page_bytes);
    has(ledger, ONE, 8); /* it may be locked again */
    next->resume.state = FLYT_RESUME_NONE;
    flyt_session_region_resumed(next);
    has(ledger, ONE, 4);
    /* Its client comes back to where it was. */
    from->resume.state = FLYT_RESUME_LEFT;
    assert_int_equal(flyt_session_region_take(from, fd), 0);
    has(ledger, ONE, 8);
    from->resume.state = FLYT_RESUME_NONE;
    flyt_session_region_resumed(from);
    has(ledger, ONE, 8);
    flyt_session_region_release(from, 8 * page_bytes);
    has(ledger, ONE, 7);
    close_with_ledger(from);
    close_with_ledger(next);
    /* It goes on where its client has no region. */
    next = with_ledger(open_coming(&fd), ledger, ONE);
    next->resume.state = FLYT_RESUME_NONE;
    flyt_session_region_resumed(next);
    has(ledger, ONE, 0);
    close_with_ledger(next);
    flyt_ledger_close(ledger);
}

/* ---- what a VM shares with this machine ---- */

enum { VM_PAGES = 1024 };

static int open_anew(int fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* A session of the VM whose file it is; `from`: the same session's at another server. */
static struct flyt_session *open_vm_session(int fd, const struct flyt_session *from)
{
    struct flyt_session *session = calloc(1, sizeof *session);
    page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    session->has_vm_memory = true;
    session->vm_memory_fds[0] = from ? dup(from->vm_memory_fds[0]) : open_anew(fd);
    session->vm_memory_fds[1] = open_anew(fd);
    session->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(flyt_session_region_take_vm(session), 0);
    assert_int_equal(flyt_session_region_take_vm(session), 0); /* of a client that comes back */
    return session;
}

static void close_vm_session(struct flyt_session *session)
{
    close(session->vm_memory_fds[0]);
    close(session->vm_memory_fds[1]);
    close(session->wake_fd);
    close_session(session);
}

static int add(struct flyt_session *session, uint64_t page, uint64_t pages)
{
    return flyt_session_region_add(session, FLYT_REGION_ID, page * page_bytes, pages * page_bytes);
}

static void sessions_of_a_vm_have_their_own_pages(void **state)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, VM_PAGES * sysconf(_SC_PAGESIZE)), 0);
    struct flyt_session *one = open_vm_session(fd, NULL), *other = open_vm_session(fd, NULL);
    assert_int_equal(add(one, 0, 1), -EINVAL); /* the head */
    assert_int_equal(add(one, VM_PAGES - 1, 2), -EINVAL);
    assert_int_equal(add(one, 10, 4), 0);
    assert_int_equal(add(other, 13, 2), -EBUSY);
    assert_int_equal(add(other, 14, 2), 0);
    struct flyt_session *next_server = open_vm_session(fd, one);
    assert_int_equal(add(next_server, 10, 4), 0);
    assert_int_equal(add(next_server, 15, 1), -EBUSY);
    flyt_session_region_remove(next_server, 10 * page_bytes); /* the other server still has them */
    assert_int_equal(add(other, 10, 1), -EBUSY);
    close_vm_session(next_server);
    assert_int_equal(add(other, 10, 1), -EBUSY);
    flyt_session_region_release(one, 10 * page_bytes);
    assert_int_equal(add(other, 10, 1), 0);
    close_vm_session(other);
    assert_int_equal(add(one, 10, 4), 0); /* it has ended */
    close_vm_session(one);
    close(fd);
}

/* The claims are of the server that has them locked, and of the next one at once. */
static void a_vms_pages_are_locked_ahead_without_claims(void **state)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), unused_fd;
    assert_int_equal(ftruncate(fd, VM_PAGES * sysconf(_SC_PAGESIZE)), 0);
    struct flyt_session *one = open_vm_session(fd, NULL), *other = open_vm_session(fd, NULL);
    assert_int_equal(add(one, 10, 4) | add(one, 20, 4) | add(one, 30, 1), 0);
    struct flyt_session *next_server = open_coming(&unused_fd);
    next_server->has_vm_memory = true;
    next_server->vm_memory_fds[0] = dup(one->vm_memory_fds[0]);
    const struct flyt_manager_link_piece pieces[] = {PIECE(0, 1), PIECE(10, 4), PIECE(20, 4), PIECE(VM_PAGES, 1)};
    struct flyt_manager_link_locks_done done = ahead(next_server, -1, false, 4, pieces);
    assert_true(done.locked_count == 2 && done.missed_count == 2);
    /* One is unlocked, and locked anew before the next server has heard of it. */
    ahead(next_server, -1, true, 1, &pieces[1]);
    assert_int_equal(add(other, 10, 1), -EBUSY);
    assert_int_equal(flyt_session_region_take_vm(next_server), 0);
    assert_true(is_locked(next_server, 20, 4) && !is_locked(next_server, 10, 4));
    assert_int_equal(add(next_server, 10, 4), 0);
    flyt_session_region_release(next_server, 20 * page_bytes);
    assert_int_equal(add(other, 20, 4), 0);
    close(unused_fd);
    close(next_server->vm_memory_fds[0]);
    close_session(next_server);
    close_vm_session(one);
    close_vm_session(other);
    close(fd);
}

static void rings_are_of_one_session(void **state)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, VM_PAGES * sysconf(_SC_PAGESIZE)), 0);
    struct flyt_session *one = open_vm_session(fd, NULL), *other = open_vm_session(fd, NULL);
    struct flyt_region_place place = {.offset_bytes = 2 * page_bytes, .mark = "mark"};
    void *there;
    assert_int_equal(flyt_session_region_claim_rings(one, &place, &there), -ENXIO);
    memcpy(one->region->region.base + place.offset_bytes, place.mark, sizeof place.mark);
    assert_int_equal(flyt_session_region_claim_rings(one, &place, &there), 0);
    assert_ptr_equal(there, one->region->region.base + place.offset_bytes);
    assert_int_equal(flyt_session_region_claim_rings(other, &place, &there), -EBUSY);
    assert_int_equal(add(other, 3, 1), -EBUSY);
    close_vm_session(one);
    assert_int_equal(flyt_session_region_claim_rings(other, &place, &there), 0);
    close_vm_session(other);
    close(fd);
}

static void who_cuts_the_file_ends_the_session(void **state)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, VM_PAGES * sysconf(_SC_PAGESIZE)), 0);
    struct flyt_session *session = open_vm_session(fd, NULL);
    volatile char *byte = session->region->region.base + 100 * page_bytes;
    uint64_t kicks = 0;
    *byte = 7;
    assert_int_equal(ftruncate(fd, (off_t)page_bytes), 0);
    assert_false(flyt_session_region_is_cut(session)); /* nobody has been there */
    *byte = 8;
    assert_int_equal(*byte, 8); /* in memory of this process's own */
    assert_true(flyt_session_region_is_cut(session));
    assert_int_equal(read(session->wake_fd, &kicks, sizeof kicks), sizeof kicks);
    close_vm_session(session);
    /* What is cut elsewhere is not survived. */
    session = NULL;
    assert_int_equal(ftruncate(fd, VM_PAGES * sysconf(_SC_PAGESIZE)), 0);
    pid_t pid = fork();
    if (!pid) {
        signal(SIGBUS, SIG_DFL); /* not the tests' own */
        session = open_vm_session(fd, NULL);
        char *elsewhere = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (ftruncate(fd, 0))
            _exit(1);
        *elsewhere = 1;
        _exit(2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_as_a_map_says),
        cmocka_unit_test(what_is_no_place),
        cmocka_unit_test(what_is_no_region_is_none),
        cmocka_unit_test(a_client_that_comes_back_has_the_same),
        cmocka_unit_test(locks_are_bounded),
        cmocka_unit_test(a_vm_has_its_share_of_the_host),
        cmocka_unit_test(what_is_locked_ahead_is_there_with_its_client),
        cmocka_unit_test(what_cannot_be_locked_ahead_is_not),
        cmocka_unit_test(ahead_of_its_client_the_bound_is_the_same),
        cmocka_unit_test(what_its_client_does_not_bring_is_let_go),
        cmocka_unit_test(a_vms_sessions_have_their_share_together),
        cmocka_unit_test(a_session_that_moves_is_charged_once),
        cmocka_unit_test(a_vms_pages_are_locked_ahead_without_claims),
        cmocka_unit_test(sessions_of_a_vm_have_their_own_pages),
        cmocka_unit_test(rings_are_of_one_session),
        cmocka_unit_test(who_cuts_the_file_ends_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
