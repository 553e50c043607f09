/*
 * Tests of claims on a ledger: every order in which the steps of several claimants can come with up to so many
 * preemptions. Each claimant is a coroutine that stops before every step that others can see.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <cmocka.h>

static void step(void);
#define FLYT_LEDGER_STEP() step()
#include "rpc/base/ledger_claim.h"

enum { CLAIMANTS_MAX = 3, STACK_BYTES = 65536, STEPS_MAX = 400, WAITS_MAX = 6, LIMIT = 100 };

struct claimant {
    ucontext_t context;
    char *stack;
    uint64_t bytes, release_bytes; /* what it charges, and what of that it has already it gives back before */
    bool is_manager;               /* charges for the first entry */
    bool is_done, is_granted;
    unsigned waits, wait_steps; /* how often it waited; for how many steps of others it does yet */
};

/* One play: who made which step. */
static struct play {
    struct flyt_ledger_shared shared;
    struct claimant claimants[CLAIMANTS_MAX];
    unsigned count;
    unsigned wait_steps; /* how long a wait is: few, so that it ends at every moment; or enough for a claim's end */
    int running;         /* -1: the test */
    ucontext_t test;
    uint64_t given_bytes[CLAIMANTS_MAX]; /* that are its own: from when it was told, to before it gives back */
} play;

static void step(void)
{
    if (play.running >= 0)
        swapcontext(&play.claimants[play.running].context, &play.test);
}

static bool wait(void *user)
{
    struct claimant *self = user;

    self->wait_steps = play.wait_steps;
    step();
    return ++self->waits < WAITS_MAX;
}

static void run(void)
{
    struct claimant *self = &play.claimants[play.running];
    struct flyt_ledger_entry *entry = &play.shared.entries[self->is_manager ? 0 : play.running];

    if (self->release_bytes) {
        play.given_bytes[play.running] -= self->release_bytes;
        flyt_ledger_subtract(&entry->used_bytes, self->release_bytes);
    }
    self->is_granted =
        flyt_ledger_claim(&play.shared, self->is_manager ? &play.shared.claimed_bytes : &entry->claimed_bytes,
                          &entry->used_bytes, self->bytes, wait, self);
    if (self->is_granted)
        play.given_bytes[play.running] += self->bytes;
    self->is_done = true;
    swapcontext(&self->context, &play.test);
}

static void begin(const struct claimant *claimants, unsigned count)
{
    memset(&play.shared, 0, sizeof play.shared);
    play.shared.limit_bytes = LIMIT;
    play.count = count;
    play.running = -1;
    for (unsigned i = 0; i < count; i++) {
        struct claimant *claimant = &play.claimants[i];
        char *stack = claimant->stack ? claimant->stack : malloc(STACK_BYTES);
        *claimant = claimants[i];
        claimant->stack = stack;
        play.shared.entries[i].server_id = i + 1;
        play.shared.entries[i].used_bytes = play.given_bytes[i] = claimant->release_bytes;
        getcontext(&claimant->context);
        claimant->context.uc_stack.ss_sp = stack;
        claimant->context.uc_stack.ss_size = STACK_BYTES;
        claimant->context.uc_link = NULL;
        makecontext(&claimant->context, run, 0);
    }
}

/* Lets a claimant make a step; then nobody may have more than the limit, nor be owed more than is in the words. */
static void advance(unsigned i)
{
    uint64_t given_bytes = 0;

    for (unsigned j = 0; j < play.count; j++)
        if (j != i && play.claimants[j].wait_steps)
            play.claimants[j].wait_steps--;
    play.running = (int)i;
    swapcontext(&play.test, &play.claimants[i].context);
    play.running = -1;
    for (unsigned j = 0; j < play.count; j++)
        given_bytes += play.given_bytes[j];
    assert_true(given_bytes <= LIMIT);
}

static bool can_run(unsigned i)
{
    return !play.claimants[i].is_done && !play.claimants[i].wait_steps;
}

/* At the end: words and grants are the same, and no claim is left. */
static void check_end(void)
{
    uint64_t had_bytes = 0, given_bytes = 0;

    for (unsigned i = 0; i < play.count; i++) {
        assert_int_equal(play.shared.entries[i].claimed_bytes, 0);
        had_bytes += play.shared.entries[i].used_bytes;
        given_bytes += play.given_bytes[i];
    }
    assert_int_equal(play.shared.claimed_bytes, 0);
    assert_int_equal(had_bytes, given_bytes);
    assert_true(play.shared.peak_bytes <= LIMIT);
}

/* One play after the other: at each step the first that can go on, then, from the last choice on, the next ones; a
 * change from one that could have gone on counts as one of `preemptions`. Returns how many plays there were. */
static unsigned long play_all(const struct claimant *claimants, unsigned count, unsigned preemptions,
                              void (*check)(void))
{
    unsigned choices[STEPS_MAX], options[STEPS_MAX], depth = 0;
    unsigned long plays = 0;

    for (;;) {
        unsigned used = 0, at = 0;
        int last = -1;
        begin(claimants, count);
        for (;; at++) {
            unsigned runnable[CLAIMANTS_MAX], n = 0;
            /* The one that goes on is the first choice. */
            if (last >= 0 && can_run((unsigned)last))
                runnable[n++] = (unsigned)last;
            bool is_free = n == 0;
            for (unsigned i = 0; i < count && (is_free || used < preemptions); i++)
                if ((int)i != last && can_run(i))
                    runnable[n++] = i;
            if (!n) {
                bool is_over = true;
                for (unsigned i = 0; i < count; i++) {
                    is_over &= play.claimants[i].is_done;
                    play.claimants[i].wait_steps = 0; /* all wait: time passes */
                }
                if (is_over)
                    break;
                at--;
                continue;
            }
            assert_true(at < STEPS_MAX);
            if (at >= depth) {
                choices[at] = 0;
                depth = at + 1;
            }
            options[at] = n;
            used += !is_free && choices[at] > 0;
            last = (int)runnable[choices[at]];
            advance((unsigned)last);
        }
        plays++;
        check_end();
        check();
        depth = at;
        while (depth && choices[depth - 1] + 1 >= options[depth - 1])
            depth--;
        if (!depth)
            return plays;
        choices[depth - 1]++;
    }
}

static unsigned granted_count(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < play.count; i++)
        count += play.claimants[i].is_granted;
    return count;
}

static void check_nothing(void)
{
}

/* Where there is room for one, one is granted: two do not refuse each other. */
static void check_one(void)
{
    assert_int_equal(granted_count(), 1);
}

static void check_all(void)
{
    assert_int_equal(granted_count(), play.count);
}

static void check_none(void)
{
    assert_int_equal(granted_count(), 0);
}

static void test_two_claim_at_once(void **state)
{
    play.wait_steps = 30;
    static const struct claimant one_fits[] = {{.bytes = 60}, {.bytes = 60}};
    static const struct claimant both_fit[] = {{.bytes = 50}, {.bytes = 50}};
    static const struct claimant none_fits[] = {{.bytes = 101}, {.bytes = UINT64_MAX}};
    static const struct claimant small_fits[] = {{.bytes = 100}, {.bytes = 1}};

    assert_true(play_all(one_fits, 2, 4, check_one) > 1000);
    assert_true(play_all(small_fits, 2, 4, check_one) > 1000);
    assert_true(play_all(both_fit, 2, 5, check_all) > 10000);
    play_all(none_fits, 2, 4, check_none);
    /* Who looks again too soon, again and again, may give up; nobody has too much then. */
    play.wait_steps = 1;
    assert_true(play_all(one_fits, 2, 4, check_nothing) > 1000);
}

/* What one gives back while it claims more is there for the other when it is, and not before. */
static void test_one_gives_back_and_takes(void **state)
{
    static const struct claimant claimants[] = {{.bytes = 70, .release_bytes = 60}, {.bytes = 40}};

    play.wait_steps = 30;
    assert_true(play_all(claimants, 2, 4, check_nothing) > 1000);
}

static void test_the_node_manager_claims_too(void **state)
{
    static const struct claimant claimants[] = {{.bytes = 60}, {.bytes = 60, .is_manager = true}};

    play.wait_steps = 30;
    assert_true(play_all(claimants, 2, 4, check_one) > 1000);
}

static void test_three_claim_at_once(void **state)
{
    static const struct claimant one_fits[] = {{.bytes = 60}, {.bytes = 51}, {.bytes = 70}};
    static const struct claimant two_fit[] = {{.bytes = 50}, {.bytes = 50}, {.bytes = 50}};
    play.wait_steps = 60;
    static const struct claimant with_manager[] = {{.bytes = 40}, {.bytes = 50}, {.bytes = 30, .is_manager = true}};

    assert_true(play_all(one_fits, 3, 2, check_one) > 1000);
    assert_true(play_all(two_fit, 3, 2, check_nothing) > 1000);
    assert_true(play_all(with_manager, 3, 2, check_nothing) > 1000);
}

/* The limit sinks while two claim: who is granted something had it by the limit of before, and who sets it sees that.
 */
static void test_one_dies_at_each_step(void **state)
{
    static const struct claimant claimants[] = {{.bytes = 60}, {.bytes = 60}};

    for (unsigned dead = 0; dead < 2; dead++)
        for (unsigned steps = 0;; steps++) {
            begin(claimants, 2);
            for (unsigned i = 0; i < steps && !play.claimants[dead].is_done; i++)
                advance(dead);
            if (play.claimants[dead].is_done)
                break;
            /* The other is granted it at the latest when the dead one's entry is gone. */
            while (!play.claimants[1 - dead].is_done)
                advance(1 - dead);
            uint64_t used_bytes = play.shared.entries[dead].used_bytes;
            if (play.claimants[1 - dead].is_granted)
                assert_int_equal(used_bytes, 0);
            play.shared.entries[dead].server_id = 0;
            if (!play.claimants[1 - dead].is_granted) {
                struct claimant again = {.bytes = 60};
                assert_true(flyt_ledger_claim(&play.shared, &play.shared.entries[1 - dead].claimed_bytes,
                                              &play.shared.entries[1 - dead].used_bytes, 60, wait, &again));
            }
            assert_int_equal(play.shared.entries[1 - dead].used_bytes, 60);
        }
}

static int end(void **state)
{
    for (unsigned i = 0; i < CLAIMANTS_MAX; i++)
        free(play.claimants[i].stack);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_claim_at_once),           cmocka_unit_test(test_one_gives_back_and_takes),
        cmocka_unit_test(test_the_node_manager_claims_too), cmocka_unit_test(test_three_claim_at_once),
        cmocka_unit_test(test_one_dies_at_each_step),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
