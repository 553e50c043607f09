/* Tests of what a VM's servers have against what its ledger says, when one of them has written rubbish into it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/link/memory_watch.h"
#include "control/node/test/test_node.h"
#include "rpc/base/ledger_claim.h"

enum { LEDGER_BYTES = 8192, LOOKS = 2 };

static struct flyt_ledger_shared *map_ledger(const struct test_node *test)
{
    int fd = flyt_ledger_fd(test->node.allocations->slots[0].ledger);
    void *memory = mmap(NULL, LEDGER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

/* The server's entry. */
static struct flyt_ledger_entry *entry_of(struct flyt_ledger_shared *shared, const struct flyt_node_server *server)
{
    for (unsigned i = 0; i < FLYT_LEDGER_ENTRIES_MAX; i++)
        if (shared->entries[i].server_id == server->has.server_id)
            return &shared->entries[i];
    return NULL;
}

static void look(struct test_node *test, unsigned count)
{
    while (count--)
        flyt_node_memory_watch_look(&test->node);
}

static uint64_t used_bytes(struct test_node *test)
{
    return test_node_used_bytes(test, &test_one);
}

static void takes(struct test_node *test, struct test_program *program, unsigned id, uint64_t bytes)
{
    char line[64];

    snprintf(line, sizeof line, "extent %u 0 %ju", id, (uintmax_t)bytes);
    test_program_say(test, program, line, "0");
    test_program_say(test, program, "charge 0 0", "0"); /* what it said before has come */
    test_node_run(test, 20);
}

/* Two programs of one VM with 20 and 30 MiB, the first of which has 2 MiB besides. */
static struct test_program programs[2];

static void begin(struct test_node *test)
{
    test_node_grant(test, &test_one);
    for (unsigned i = 0; i < 2; i++)
        programs[i] = test_node_enter(test, &test_one);
    takes(test, &programs[0], 1, 20 * MIB);
    takes(test, &programs[1], 1, 30 * MIB);
    test_program_say(test, &programs[0], "charge 0 2097152", "0");
    assert_int_equal(used_bytes(test), 52 * MIB);
}

static void end(struct test_node *test)
{
    test_node_leave(test, &test_one, programs, 2);
}

/* What can be is left as it is, however often it is looked at. */
static void test_right_entries_stay(void **state)
{
    struct test_node *test = *state;

    begin(test);
    look(test, 20);
    assert_int_equal(used_bytes(test), 52 * MIB);
    assert_non_null(test_node_server(test, &programs[0]));
    /* Also what is above a limit that was set to take hold when memory is released. */
    struct flyt_node_allocation *allocation = test->node.allocations;
    const uint64_t limit_bytes = allocation->now.slots.slots_val[0].memory_bytes;
    allocation->now.slots.slots_val[0].memory_bytes = 25 * MIB;
    allocation->now.when_free = true;
    look(test, 1);
    assert_int_equal(test_node_server(test, &programs[1])->memory_watch[0].looks, 0);
    allocation->now.slots.slots_val[0].memory_bytes = limit_bytes;
    allocation->now.when_free = false;
    end(test);
}

static void test_wrong_entries_are_mended(void **state)
{
    struct test_node *test = *state;

    begin(test);
    struct flyt_ledger_shared *shared = map_ledger(test);
    struct flyt_ledger_entry *first = entry_of(shared, test_node_server(test, &programs[0]));
    struct flyt_ledger_entry *second = entry_of(shared, test_node_server(test, &programs[1]));
    /* Too much, so that nobody gets anything, and too little, so that others get what there is not. */
    first->used_bytes = UINT64_MAX - 5;
    second->used_bytes = MIB;
    look(test, LOOKS);
    assert_int_equal(used_bytes(test), 50 * MIB);
    first->reserve_bytes = 1ull << 60;
    look(test, LOOKS);
    assert_int_equal(used_bytes(test), 50 * MIB);
    takes(test, &programs[1], 2, 10 * MIB);
    assert_int_equal(used_bytes(test), 60 * MIB);
    munmap(shared, LEDGER_BYTES);
    end(test);
}

static void test_entries_are_those_of_servers(void **state)
{
    struct test_node *test = *state;

    begin(test);
    struct flyt_ledger_shared *shared = map_ledger(test);
    struct flyt_ledger_entry *first = entry_of(shared, test_node_server(test, &programs[0]));
    /* All places are somebody's who is not there, and the first one's own is gone. */
    first->server_id = 4711;
    for (unsigned i = 0; i < FLYT_LEDGER_ENTRIES_MAX; i++)
        if (!shared->entries[i].server_id)
            shared->entries[i].server_id = 5000 + i;
    look(test, LOOKS);
    assert_int_equal(used_bytes(test), 50 * MIB);
    test_program_say(test, &programs[0], "charge 0 1048576", "0");
    assert_int_equal(used_bytes(test), 51 * MIB);
    munmap(shared, LEDGER_BYTES);
    end(test);
}

static bool is_ended(struct test_node *test, void *user)
{
    return !test_node_server(test, user);
}

/* A VM of 100 MiB in which the ledger was made to say that there is room. */
static void test_who_has_more_than_the_limit_is_ended(void **state)
{
    struct test_node *test = *state;

    begin(test);
    struct flyt_ledger_shared *shared = map_ledger(test);
    entry_of(shared, test_node_server(test, &programs[0]))->used_bytes = 0;
    entry_of(shared, test_node_server(test, &programs[1]))->used_bytes = 0;
    takes(test, &programs[1], 2, 90 * MIB);
    look(test, FLYT_NODE_MEMORY_LOOKS - 1);
    assert_int_equal(test->node.watched[FLYT_NODE_WATCHED_OVER_MEMORY], 0);
    look(test, 1);
    assert_int_equal(test->node.watched[FLYT_NODE_WATCHED_OVER_MEMORY], 1);
    test_contains(test->last_event, "session.over_memory");
    test_contains(test->last_event, "has 125829120 bytes");
    test_contains(test->last_event, "limit of 104857600");
    test_node_until(test, is_ended, &programs[1], "the server has gone");
    assert_non_null(test_node_server(test, &programs[0]));
    look(test, 20);
    assert_int_equal(used_bytes(test), 20 * MIB);
    munmap(shared, LEDGER_BYTES);
    close(programs[1].fd);
    test_node_leave(test, &test_one, programs, 1);
}

/* What the GPU counts, where the node manager holds nothing of it. */
static bool tell_memory(void *source, const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_bytes)
{
    const struct flyt_node_server *server = test_node_server(source, &programs[1]);

    *ret_bytes = server && server->pid == pid ? 300 * MIB : 60 * MIB;
    return true;
}

static void test_what_the_gpu_counts_is_looked_at(void **state)
{
    static const struct flyt_node_gpu_account_ops ops = {.memory = tell_memory};
    struct test_node *test = *state;

    begin(test);
    test->node.account = (struct flyt_node_gpu_account){&ops, test};
    look(test, FLYT_NODE_MEMORY_LOOKS);
    assert_int_equal(test->node.watched[FLYT_NODE_WATCHED_OVER_MEMORY], 1);
    test_node_until(test, is_ended, &programs[1], "the server has gone");
    look(test, 20);
    assert_int_equal(test->node.watched[FLYT_NODE_WATCHED_OVER_MEMORY], 1);
    assert_non_null(test_node_server(test, &programs[0]));
    close(programs[1].fd);
    test_node_leave(test, &test_one, programs, 1);
}

/* Each VM is looked at by its own servers alone. */
static void test_several_vms(void **state)
{
    struct test_node *test = *state;
    const struct test_wish *const wishes[] = {&test_one, &test_other};
    struct test_program all[4];

    for (unsigned i = 0; i < 2; i++)
        test_node_grant(test, wishes[i]);
    for (unsigned i = 0; i < 4; i++) { /* one of the one, one of the other */
        all[i] = test_node_enter(test, wishes[i % 2]);
        takes(test, &all[i], 1, (i + 1) * MIB);
    }
    struct flyt_ledger_shared *ledger = map_ledger(test); /* test_other's, which came last */
    atomic_store(&entry_of(ledger, test_node_server(test, &all[1]))->used_bytes, 0);
    munmap(ledger, LEDGER_BYTES);
    assert_int_equal(test_node_used_bytes(test, &test_other), 4 * MIB);
    look(test, LOOKS);
    assert_int_equal(test_node_used_bytes(test, &test_one), (1 + 3) * MIB);
    assert_int_equal(test_node_used_bytes(test, &test_other), (2 + 4) * MIB);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(test_node_use(test, wishes[i]->id).session_count, 2);
    for (unsigned i = 0; i < 4; i++)
        close(all[i].fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_right_entries_stay),
        TEST_NODE(test_wrong_entries_are_mended),
        TEST_NODE(test_entries_are_those_of_servers),
        TEST_NODE(test_who_has_more_than_the_limit_is_ended),
        TEST_NODE(test_several_vms),
        TEST_NODE(test_what_the_gpu_counts_is_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
