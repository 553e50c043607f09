/* An event of several processes: what its records say of each other's end, in any order, and whose process was killed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/shared_event.h"

static struct flyt_shared_event *open_same(const struct flyt_shared_event *event)
{
    struct flyt_shared_event *other;
    int fd;
    assert_int_equal(flyt_shared_event_descriptor(event, &fd), 0);
    assert_int_equal(flyt_shared_event_open(fd, &other), 0);
    close(fd);
    return other;
}

static struct flyt_shared_record record_in(struct flyt_shared_event *event)
{
    struct flyt_shared_record record;
    assert_int_equal(flyt_shared_event_record(event, &record), 0);
    return record;
}

/* The page as any process that has it can write it. */
static uint64_t *map_words(const struct flyt_shared_event *event)
{
    int fd;
    assert_int_equal(flyt_shared_event_descriptor(event, &fd), 0);
    uint64_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(words, MAP_FAILED);
    close(fd);
    return words;
}

static void a_record_is_complete_when_it_is_said(void **state)
{
    struct flyt_shared_event *one, *other;
    assert_int_equal(flyt_shared_event_new(&one), 0);
    other = open_same(one);
    assert_int_equal(flyt_shared_event_last(other), 0);
    assert_true(flyt_shared_event_is_complete(other, 0));
    struct flyt_shared_record first = record_in(one), second = record_in(other);
    assert_int_equal(flyt_shared_event_last(one), second.word);
    assert_int_not_equal(first.word, second.word);
    assert_false(flyt_shared_event_is_complete(other, first.word));
    assert_true(flyt_shared_event_complete(other, &second));
    assert_true(flyt_shared_event_is_complete(one, second.word));
    assert_false(flyt_shared_event_is_complete(other, first.word));
    assert_false(flyt_shared_event_is_abandoned(other, first.word));
    assert_false(flyt_shared_event_is_abandoned(one, first.word));
    assert_true(flyt_shared_event_complete(one, &first));
    assert_true(flyt_shared_event_is_complete(other, first.word));
    flyt_shared_event_close(one);
    assert_true(flyt_shared_event_is_complete(other, first.word));
    flyt_shared_event_close(other);
}

/* A record takes the place of one that is not complete: nobody takes the one for the other. */
static void places_are_used_again(void **state)
{
    enum { ROUNDS = 3, COUNT = ROUNDS * FLYT_SHARED_RECORDS };
    struct flyt_shared_event *event;
    struct flyt_shared_record records[COUNT];
    assert_int_equal(flyt_shared_event_new(&event), 0);
    for (int i = 0; i < COUNT; i++)
        records[i] = record_in(event);
    for (int i = COUNT - 1; i >= FLYT_SHARED_RECORDS; i--)
        assert_false(flyt_shared_event_complete(event, &records[i]));
    for (int i = 0; i < COUNT; i++)
        assert_false(flyt_shared_event_is_complete(event, records[i].word));
    for (int i = 0; i < COUNT; i++) {
        assert_true(flyt_shared_event_complete(event, &records[i]));
        assert_true(flyt_shared_event_is_complete(event, records[i].word));
        if (i + 1 < COUNT)
            assert_false(flyt_shared_event_is_complete(event, records[i + 1].word));
    }
    flyt_shared_event_close(event);
}

/* A process that makes a record through *fd, says which, and waits to be killed. */
static pid_t record_elsewhere(int fd, uint64_t *ret_word)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        struct flyt_shared_event *event;
        if (flyt_shared_event_open(fd, &event))
            _exit(1);
        struct flyt_shared_record record;
        if (flyt_shared_event_record(event, &record))
            _exit(1);
        if (write(ends[1], &record.word, sizeof record.word) != sizeof record.word)
            _exit(1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ends[0], ret_word, sizeof *ret_word), sizeof *ret_word);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void whose_process_has_gone_is_complete(void **state)
{
    struct flyt_shared_event *event;
    uint64_t word, next_word;
    int fd;
    assert_int_equal(flyt_shared_event_new(&event), 0);
    assert_int_equal(flyt_shared_event_descriptor(event, &fd), 0);
    pid_t pid = record_elsewhere(fd, &word);
    assert_int_equal(flyt_shared_event_last(event), word);
    assert_false(flyt_shared_event_is_abandoned(event, word));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(flyt_shared_event_is_complete(event, word)); /* which nobody has found out */
    /* Another process is not taken for the one that has gone. */
    pid = record_elsewhere(fd, &next_word);
    assert_true(flyt_shared_event_is_abandoned(event, word));
    assert_true(flyt_shared_event_is_complete(event, word));
    assert_false(flyt_shared_event_is_abandoned(event, next_word));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    /* Nor does it hold up the record that takes its place. */
    struct flyt_shared_record record = {0};
    for (int i = 0; i < FLYT_SHARED_RECORDS; i++) {
        record = record_in(event);
        assert_true(i == FLYT_SHARED_RECORDS - 1 || flyt_shared_event_complete(event, &record));
    }
    assert_int_equal(record.before, next_word);
    assert_true(flyt_shared_event_complete(event, &record));
    assert_true(flyt_shared_event_is_complete(event, record.word));
    close(fd);
    flyt_shared_event_close(event);
}

/* Several processes at once: no record has another one's number. */
static void records_of_all_processes_have_an_order(void **state)
{
    enum { PROCESSES = 3, COUNT = 20000 };
    struct flyt_shared_event *event;
    int fd, status;
    assert_int_equal(flyt_shared_event_new(&event), 0);
    assert_int_equal(flyt_shared_event_descriptor(event, &fd), 0);
    uint64_t first = record_in(event).word;
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid)
            continue;
        struct flyt_shared_event *own;
        int is_wrong = flyt_shared_event_open(fd, &own);
        uint64_t before = first;
        for (int j = 0; j < COUNT && !is_wrong; j++) {
            struct flyt_shared_record record;
            is_wrong = flyt_shared_event_record(own, &record) || record.word <= before ||
                       flyt_shared_event_last(own) < record.word;
            flyt_shared_event_complete(own, &record);
            before = record.word;
        }
        _exit(is_wrong);
    }
    for (int i = 0; i < PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    /* Numbers rise by one, so that the last one says how many there were; the lower bits are its process's. */
    uint64_t step = record_in(event).word - first;
    assert_int_equal(step % (PROCESSES * COUNT + 1), 0);
    close(fd);
    flyt_shared_event_close(event);
}

enum { WORD_LAST = 3, WORD_PLACES = 6, USER_BITS = 20 }; /* of the page */

static uint64_t *begun_of(uint64_t *words, uint64_t word)
{
    return &words[WORD_PLACES + (word >> USER_BITS) % FLYT_SHARED_RECORDS * 2];
}

/* Who is killed when his word is in its place, and not yet the last one, has his number. */
static void a_record_that_was_cut_short_has_its_number(void **state)
{
    struct flyt_shared_event *event, *other;
    assert_int_equal(flyt_shared_event_new(&event), 0);
    other = open_same(event);
    uint64_t *words = map_words(event);
    struct flyt_shared_record first = record_in(event), cut = record_in(other);
    words[WORD_LAST] = first.word;
    struct flyt_shared_record next = record_in(event);
    assert_int_equal(next.word >> USER_BITS, (cut.word >> USER_BITS) + 1);
    assert_int_equal(flyt_shared_event_last(event), next.word);
    assert_false(flyt_shared_event_is_complete(event, cut.word));
    /* The record that takes its place waits for it. */
    struct flyt_shared_record later = next;
    while (later.word >> USER_BITS != (cut.word >> USER_BITS) + FLYT_SHARED_RECORDS)
        later = record_in(event);
    assert_int_equal(later.before, cut.word);
    assert_false(flyt_shared_event_complete(event, &later));
    flyt_shared_event_close(other);
    assert_true(flyt_shared_event_complete(event, &later));
    munmap(words, 4096);
    flyt_shared_event_close(event);
}

/* Whatever the page says: nobody waits for a record of his own that he has not made, and numbers do not begin anew. */
static void what_nobody_has_recorded_is_waited_for_by_nobody(void **state)
{
    struct flyt_shared_event *event;
    assert_int_equal(flyt_shared_event_new(&event), 0);
    uint64_t *words = map_words(event);
    struct flyt_shared_record record = record_in(event);
    const uint64_t own_user = record.word & ((UINT64_C(1) << USER_BITS) - 1);
    const uint64_t made_up = UINT64_C(1) << 60 | own_user;
    assert_false(flyt_shared_event_is_abandoned(event, record.word));
    words[WORD_LAST] = made_up;
    assert_false(flyt_shared_event_is_complete(event, made_up));
    assert_true(flyt_shared_event_is_abandoned(event, made_up));
    assert_false(flyt_shared_event_is_complete(event, record.word));
    assert_true(flyt_shared_event_complete(event, &record));
    /* In a place: with the number that is waited for, and with another one. */
    for (int i = 0; i < 2; i++) {
        words[WORD_LAST] = UINT64_C(5000) << USER_BITS | own_user;
        uint64_t next = UINT64_C(5001) << USER_BITS;
        *begun_of(words, next) = next - ((uint64_t)FLYT_SHARED_RECORDS << USER_BITS) * (uint64_t)(i + 1) + own_user;
        record = record_in(event);
        assert_int_equal(record.word >> USER_BITS, 5001);
        assert_true(flyt_shared_event_complete(event, &record));
    }
    words[WORD_LAST] = UINT64_MAX;
    assert_int_equal(flyt_shared_event_record(event, &record), -EOVERFLOW);
    assert_int_equal(flyt_shared_event_last(event), UINT64_MAX);
    munmap(words, 4096);
    flyt_shared_event_close(event);
}

static void what_is_no_page_is_refused(void **state)
{
    struct flyt_shared_event *event;
    int fd = memfd_create("other", MFD_CLOEXEC);
    assert_true(fd >= 0);
    for (int bytes = 0; bytes <= 4096; bytes += 4096) {
        assert_int_equal(ftruncate(fd, bytes), 0);
        assert_int_equal(flyt_shared_event_open(fd, &event), -EBADMSG);
    }
    close(fd);
    assert_int_equal(flyt_shared_event_open(-1, &event), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_complete_when_it_is_said),
        cmocka_unit_test(places_are_used_again),
        cmocka_unit_test(whose_process_has_gone_is_complete),
        cmocka_unit_test(records_of_all_processes_have_an_order),
        cmocka_unit_test(a_record_that_was_cut_short_has_its_number),
        cmocka_unit_test(what_nobody_has_recorded_is_waited_for_by_nobody),
        cmocka_unit_test(what_is_no_page_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
