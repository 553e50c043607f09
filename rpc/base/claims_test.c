/* Who has which part of a file: against a map of pages, for several claimants, one of whom is killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/claims.h"

enum { PAGE = 4096, PAGES = 64, OWNERS = 3, TRIES = 3000, HELD_MAX = 16 };

static int file_fd;

/* The file once more, as somebody else has it. */
static int open_anew(void)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file_fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int set_up(void **state)
{
    file_fd = memfd_create("claims_test", MFD_CLOEXEC);
    return file_fd < 0 || ftruncate(file_fd, PAGES * PAGE);
}

static int tear_down(void **state)
{
    close(file_fd);
    return 0;
}

static void one_has_a_part(void **state)
{
    int one = open_anew(), other = open_anew(), same = dup(one);
    assert_int_equal(flyt_claim(one, PAGE, 2 * PAGE), 0);
    assert_int_equal(flyt_claim(one, PAGE, 2 * PAGE), 0);
    assert_int_equal(flyt_claim(same, 2 * PAGE, PAGE), 0);
    assert_int_equal(flyt_claim(other, 2 * PAGE, PAGE), -EBUSY);
    assert_int_equal(flyt_claim(other, 0, 4 * PAGE), -EBUSY);
    assert_int_equal(flyt_claim(other, 3 * PAGE, PAGE), 0);
    flyt_unclaim(other, PAGE, 2 * PAGE); /* not his */
    assert_int_equal(flyt_claim(other, PAGE, PAGE), -EBUSY);
    flyt_unclaim(one, PAGE, PAGE);
    assert_int_equal(flyt_claim(other, PAGE, PAGE), 0);
    close(one);
    assert_int_equal(flyt_claim(other, 2 * PAGE, PAGE), -EBUSY); /* there is another descriptor of it */
    close(same);
    assert_int_equal(flyt_claim(other, 2 * PAGE, PAGE), 0);
    close(other);
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 8;
}

struct owner {
    struct flyt_claims *claims;
    uint64_t at[HELD_MAX], bytes[HELD_MAX];
    unsigned count;
};

static void take(struct owner *owner, unsigned number, unsigned pages, unsigned *map)
{
    uint64_t at;
    int status = flyt_claims_take(owner->claims, (uint64_t)pages * PAGE, &at);
    if (status) {
        assert_int_equal(status, -ENOSPC);
        for (unsigned first = 1, run = 0; first < PAGES; first++) { /* there is none indeed */
            run = map[first] ? 0 : run + 1;
            assert_true(run < pages);
        }
        return;
    }
    assert_true(at >= PAGE && at % PAGE == 0 && at / PAGE + pages <= PAGES);
    for (unsigned i = 0; i < pages; i++) {
        assert_int_equal(map[at / PAGE + i], 0);
        map[at / PAGE + i] = number;
    }
    owner->at[owner->count] = at;
    owner->bytes[owner->count++] = (uint64_t)pages * PAGE;
}

static void give(struct owner *owner, unsigned which, unsigned *map)
{
    flyt_claims_give(owner->claims, owner->at[which]);
    for (unsigned i = 0; i < owner->bytes[which] / PAGE; i++)
        map[owner->at[which] / PAGE + i] = 0;
    owner->count--;
    owner->at[which] = owner->at[owner->count];
    owner->bytes[which] = owner->bytes[owner->count];
}

static void places_are_as_a_map_says(void **state)
{
    struct owner owners[OWNERS] = {0};
    unsigned map[PAGES] = {0}, seed = 3;
    for (unsigned i = 0; i < OWNERS; i++)
        assert_int_equal(flyt_claims_new(open_anew(), PAGE, PAGES * PAGE, &owners[i].claims), 0);
    for (unsigned i = 0; i < TRIES; i++) {
        const unsigned who = next(&seed) % OWNERS;
        struct owner *owner = &owners[who];
        if (owner->count == HELD_MAX || (owner->count && next(&seed) % 2))
            give(owner, next(&seed) % owner->count, map);
        else
            take(owner, who + 1, 1 + next(&seed) % 9, map);
        flyt_claims_give(owner->claims, PAGE / 2); /* nothing begins there */
    }
    for (unsigned i = 0; i < OWNERS; i++)
        flyt_claims_free(owners[i].claims);
    uint64_t at;
    struct flyt_claims *all;
    assert_int_equal(flyt_claims_new(open_anew(), PAGE, PAGES * PAGE, &all), 0);
    assert_int_equal(flyt_claims_take(all, PAGES * PAGE, &at), -ENOSPC);
    assert_int_equal(flyt_claims_take(all, (PAGES - 1) * PAGE, &at), 0);
    assert_int_equal(at, PAGE);
    assert_null(flyt_claims_free(all));
    assert_null(flyt_claims_free(NULL));
}

/* What was given back is not taken at once again. */
static void others_come_first(void **state)
{
    struct flyt_claims *claims;
    uint64_t first, second, third;
    assert_int_equal(flyt_claims_new(open_anew(), PAGE, PAGES * PAGE, &claims), 0);
    assert_int_equal(flyt_claims_take(claims, PAGE, &first), 0);
    flyt_claims_give(claims, first);
    assert_int_equal(flyt_claims_take(claims, PAGE, &second), 0);
    assert_int_not_equal(second, first);
    assert_int_equal(flyt_claims_take(claims, (PAGES - 3) * PAGE, &third), 0);
    assert_int_equal(flyt_claims_take(claims, PAGE, &third), 0);
    assert_int_equal(third, first); /* there is nothing else */
    flyt_claims_free(claims);
}

static void a_killed_process_has_none(void **state)
{
    struct flyt_claims *claims;
    int ready[2];
    uint64_t at;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (!pid) {
        if (flyt_claims_new(open_anew(), PAGE, PAGES * PAGE, &claims) ||
            flyt_claims_take(claims, (PAGES - 1) * PAGE, &at) || write(ready[1], "r", 1) != 1)
            _exit(1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(flyt_claims_new(open_anew(), PAGE, PAGES * PAGE, &claims), 0);
    assert_int_equal(flyt_claims_take(claims, PAGE, &at), -ENOSPC);
    int host_fd = open_anew(); /* the other side of a VM does not see it */
    assert_int_equal(flyt_claim(host_fd, PAGE, PAGE), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(flyt_claims_take(claims, (PAGES - 1) * PAGE, &at), 0);
    flyt_claims_free(claims);
    close(host_fd);
    close(ready[0]);
    close(ready[1]);
}

static void a_forked_child_keeps_nothing(void **state)
{
    struct flyt_claims *claims, *others;
    int ready[2];
    uint64_t at;
    char byte;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(flyt_claims_new(open_anew(), PAGE, PAGES * PAGE, &claims), 0);
    assert_int_equal(flyt_claims_take(claims, PAGE, &at), 0);
    pid_t pid = fork();
    if (!pid) {
        flyt_claims_abandon(claims);
        flyt_claims_abandon(NULL);
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    flyt_claims_free(claims);
    assert_int_equal(flyt_claims_new(open_anew(), PAGE, PAGES * PAGE, &others), 0);
    assert_int_equal(flyt_claims_take(others, (PAGES - 1) * PAGE, &at), 0);
    flyt_claims_free(others);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_has_a_part),
        TEST(places_are_as_a_map_says),
        TEST(others_come_first),
        TEST(a_killed_process_has_none),
        TEST(a_forked_child_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
