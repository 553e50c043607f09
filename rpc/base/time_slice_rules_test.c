/* Tests of the rules of a set of SMs' token, played in simulated time against numbers worked out by hand. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "rpc/base/time_slice_board.h"
#include "rpc/base/time_slice_rules.h"

#define US 1000ull
#define MS 1000000ull
#define S  1000000000ull

/*
 * A machine in which time passes in steps of 20 µs. Each program gives kernels to the GPU, one after the other, and
 * thinks between two of them; it follows the protocol as a server does. The GPU has one tenant's kernels at a time or
 * the test fails.
 */
enum { STEP_US = 20, PROGRAMS_MAX = 8 };

struct program {
    uint64_t tenant_id, server_id;
    uint64_t kernel_us, think_us; /* think 0: has always another one */
    uint64_t from_us, to_us;      /* lives; 0: to the end */
    bool is_stopped;              /* does nothing any more, and says nothing */
    /* its state */
    unsigned place;
    bool is_open, is_ended;
    uint64_t until_ns, again_ns, kernel_end_ns, think_end_ns, idle_since_ns;
    uint32_t wakes;
    uint64_t gpu_ns; /* its kernels took */
};

struct machine {
    struct flyt_time_slice_table table;
    uint64_t now_ns;
    struct program programs[PROGRAMS_MAX];
    unsigned count;
    uint64_t unused_ns;
    uint64_t overlap_ns;
};

static void set_share(struct machine *machine, uint64_t tenant, unsigned minimum, unsigned maximum, unsigned window_ms,
                      int priority)
{
    const struct flyt_time_slice_share share = {minimum, maximum, window_ms, priority};
    struct flyt_time_slice_answer answer;

    assert_int_equal(flyt_time_slice_table_set(&machine->table, tenant, &share, 1, machine->now_ns, &answer), 0);
}

static struct machine *new_machine(void)
{
    struct machine *machine = calloc(1, sizeof *machine);

    assert_non_null(machine);
    machine->now_ns = 5 * S;
    flyt_time_slice_table_init(&machine->table, machine->now_ns);
    return machine;
}

static struct program *add_program(struct machine *machine, uint64_t tenant, uint64_t kernel_us, uint64_t think_us)
{
    struct program *program = &machine->programs[machine->count++];

    *program = (struct program){
        .tenant_id = tenant, .server_id = 100 + machine->count, .kernel_us = kernel_us, .think_us = think_us};
    int place = flyt_time_slice_table_join(&machine->table, tenant, program->server_id);
    assert_true(place >= 0);
    program->place = (unsigned)place;
    return program;
}

static void tell(struct machine *machine, struct program *program, enum flyt_time_slice_state state)
{
    struct flyt_time_slice_answer answer;

    assert_int_equal(flyt_time_slice_table_tell(&machine->table, program->place, program->server_id, state,
                                                machine->now_ns, &answer),
                     0);
    program->is_open = answer.is_granted;
    program->until_ns = answer.until_ns;
    program->again_ns = answer.again_ns;
    program->wakes = machine->table.servers[program->place].wake;
}

static bool wants(const struct machine *machine, const struct program *program)
{
    return !program->is_ended && machine->now_ns >= program->think_end_ns;
}

/* What a server does in one round of its loop. */
static void step_program(struct machine *machine, struct program *program)
{
    struct flyt_time_slice_server *server = &machine->table.servers[program->place];
    uint64_t now_ns = machine->now_ns;
    bool is_busy = program->kernel_end_ns > now_ns;

    if (program->kernel_end_ns && !is_busy) {
        program->kernel_end_ns = 0;
        program->think_end_ns = now_ns + program->think_us * US;
        program->idle_since_ns = now_ns;
        flyt_time_slice_set_idle(server, true, now_ns);
    }
    if (server->state == FLYT_TIME_SLICE_RUNS)
        server->seen_ns = now_ns;
    if (program->is_open && (now_ns >= program->until_ns || now_ns >= machine->table.until_ns))
        tell(machine, program, FLYT_TIME_SLICE_RUNS);
    bool is_idle_long = !is_busy && now_ns - program->idle_since_ns >= 1 * MS;
    if (server->state == FLYT_TIME_SLICE_RUNS && !is_busy &&
        (!program->is_open || (is_idle_long && !wants(machine, program))))
        tell(machine, program, wants(machine, program) ? FLYT_TIME_SLICE_WAITS : FLYT_TIME_SLICE_IDLE);
    else if (server->state == FLYT_TIME_SLICE_IDLE && !is_busy && wants(machine, program))
        tell(machine, program, FLYT_TIME_SLICE_WAITS);
    else if (server->state == FLYT_TIME_SLICE_WAITS && (server->wake != program->wakes || now_ns >= program->again_ns))
        tell(machine, program, FLYT_TIME_SLICE_WAITS);
    if (program->is_open && !is_busy && wants(machine, program)) {
        flyt_time_slice_set_idle(server, false, now_ns);
        program->kernel_end_ns = now_ns + program->kernel_us * US;
    }
}

static void run(struct machine *machine, uint64_t us)
{
    for (uint64_t done_us = 0; done_us < us; done_us += STEP_US) {
        uint64_t tenant = 0;
        for (unsigned i = 0; i < machine->count; i++)
            if (!machine->programs[i].is_stopped)
                step_program(machine, &machine->programs[i]);
        for (unsigned i = 0; i < machine->count; i++) {
            struct program *program = &machine->programs[i];
            if (program->kernel_end_ns <= machine->now_ns)
                continue;
            program->gpu_ns += STEP_US * US;
            if (tenant && tenant != program->tenant_id)
                machine->overlap_ns += STEP_US * US;
            tenant = program->tenant_id;
        }
        if (!tenant)
            machine->unused_ns += STEP_US * US;
        machine->now_ns += STEP_US * US;
    }
}

static uint64_t used_us(const struct machine *machine, uint64_t tenant)
{
    uint64_t ns = 0;

    for (unsigned i = 0; i < machine->count; i++)
        if (machine->programs[i].tenant_id == tenant)
            ns += machine->programs[i].gpu_ns;
    return ns / US;
}

static void forget(struct machine *machine)
{
    machine->unused_ns = machine->overlap_ns = 0;
    for (unsigned i = 0; i < machine->count; i++)
        machine->programs[i].gpu_ns = 0;
}

/* In thousandths of the time. */
static void assert_share(const struct machine *machine, uint64_t tenant, uint64_t of_us, unsigned least, unsigned most)
{
    uint64_t share = used_us(machine, tenant) * 1000 / of_us;

    if (share < least || share > most)
        fail_msg("tenant %u has %u thousandths, not %u to %u", (unsigned)tenant, (unsigned)share, least, most);
}

enum { TEN_S_US = 10 * 1000 * 1000 };

static void test_minima_are_kept_under_contention(void **state)
{
    /* Short kernels, and ones of the length of a whole window, on either side. */
    static const unsigned kernels_us[][2] = {{100, 100},   {100, 3000},  {3000, 100},
                                             {40000, 200}, {200, 40000}, {120000, 60}};

    for (unsigned i = 0; i < sizeof kernels_us / sizeof *kernels_us; i++) {
        struct machine *machine = new_machine();
        set_share(machine, 1, 20, 100, 100, 0);
        set_share(machine, 2, 80, 100, 100, 0);
        add_program(machine, 1, kernels_us[i][0], 0);
        add_program(machine, 2, kernels_us[i][1], 0);
        run(machine, TEN_S_US);
        assert_share(machine, 1, TEN_S_US, 180, 220);
        assert_share(machine, 2, TEN_S_US, 780, 820);
        assert_int_equal(machine->overlap_ns, 0);
        free(machine);
    }
}

static void test_three_tenants_and_what_is_left(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 20, 100, 100, 0);
    set_share(machine, 2, 30, 100, 100, 0);
    set_share(machine, 3, 0, 100, 50, 0);
    add_program(machine, 1, 200, 0);
    add_program(machine, 2, 300, 0);
    add_program(machine, 3, 100, 0);
    run(machine, TEN_S_US);
    /* Half is nobody's minimum: a third of that to each. */
    assert_share(machine, 1, TEN_S_US, 347, 387);
    assert_share(machine, 2, TEN_S_US, 447, 487);
    assert_share(machine, 3, TEN_S_US, 147, 187);
    free(machine);
}

static void test_two_servers_of_a_tenant_count_as_one(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 50, 100, 100, 0);
    set_share(machine, 2, 50, 100, 100, 0);
    add_program(machine, 1, 100, 0);
    add_program(machine, 2, 100, 0);
    add_program(machine, 2, 250, 0);
    run(machine, TEN_S_US);
    assert_share(machine, 1, TEN_S_US, 480, 520);
    /* Both work at the same time. */
    assert_true(machine->programs[1].gpu_ns / US > 45 * TEN_S_US / 100);
    assert_true(machine->programs[2].gpu_ns / US > 45 * TEN_S_US / 100);
    assert_int_equal(machine->overlap_ns, 0);
    free(machine);
}

static void test_lone_tenant_has_nearly_everything(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 20, 100, 100, 0);
    set_share(machine, 2, 80, 100, 100, 0);
    add_program(machine, 1, 100, 0);
    run(machine, TEN_S_US);
    assert_share(machine, 1, TEN_S_US, 990, 1000);
    free(machine);
}

static void test_maximum_caps_a_lone_tenant(void **state)
{
    static const unsigned kernels_us[] = {60, 1000, 30000};

    for (unsigned i = 0; i < 3; i++) {
        struct machine *machine = new_machine();
        set_share(machine, 1, 30, 30, 100, 0);
        add_program(machine, 1, kernels_us[i], 0);
        run(machine, TEN_S_US);
        assert_share(machine, 1, TEN_S_US, 280, 320);
        /* Every window has its part, not only the whole: 30 ms, one kernel that was begun in time, and what was left
         * of the window before. */
        for (unsigned j = 0; j < 20; j++) {
            forget(machine);
            run(machine, 100 * 1000);
            assert_true(used_us(machine, 1) <= 60 * 1000 + kernels_us[i]);
        }
        free(machine);
    }
}

/* What a capped tenant only thinks is not its use: it gets its share of work, though it holds the token meanwhile. */
static void test_pauses_do_not_count_while_nobody_waits(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 0, 40, 100, 0);
    add_program(machine, 1, 400, 400);
    run(machine, TEN_S_US);
    assert_share(machine, 1, TEN_S_US, 380, 420);
    free(machine);
}

static void test_idle_tenant_gives_way_and_comes_back(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 50, 100, 100, 0);
    set_share(machine, 2, 50, 100, 100, 0);
    add_program(machine, 1, 100, 0);
    struct program *other = add_program(machine, 2, 100, 0);
    other->think_end_ns = machine->now_ns + 5 * S; /* nothing for the first half */
    run(machine, TEN_S_US / 2);
    assert_share(machine, 1, TEN_S_US / 2, 985, 1000);
    forget(machine);
    /* Comes back without credit for the pause, nor is the other's use of it held against that one. */
    run(machine, TEN_S_US / 10);
    assert_share(machine, 1, TEN_S_US / 10, 450, 550);
    assert_share(machine, 2, TEN_S_US / 10, 450, 550);
    free(machine);
}

/* A tenant that launches a short kernel now and then gets it done soon, and the others have the rest. */
static void test_seldom_tenant_is_served_soon(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 20, 100, 100, 0);
    set_share(machine, 2, 80, 100, 100, 0);
    add_program(machine, 1, 500, 50 * 1000);
    add_program(machine, 2, 200, 0);
    run(machine, TEN_S_US);
    /* 50 ms of thinking, at most a grant of the other and its last kernel, its own kernel. */
    assert_true(used_us(machine, 1) / 500 >= TEN_S_US / (50 * 1000 + 10 * 1000 + 200 + 500 + 200));
    assert_share(machine, 2, TEN_S_US, 930, 1000);
    free(machine);
}

/* One whose program is late now and then, just longer than the token is kept for it, loses that time and not a whole
 * grant of the other. */
static void test_short_pauses_cost_little(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 20, 100, 200, 0);
    set_share(machine, 2, 80, 100, 200, 0);
    add_program(machine, 1, 100, 0);
    add_program(machine, 2, 10000, 1200);
    run(machine, TEN_S_US);
    /* After 10 ms it is away for 1.2, of which 1 is kept: 9 % of nothing, a fifth for the other, the rest. A whole
     * grant of the other for each pause would leave a third. */
    assert_share(machine, 2, TEN_S_US, 690, 730);
    assert_share(machine, 1, TEN_S_US, 190, 230);
    free(machine);
}

static void test_priority_comes_after_minima(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 20, 100, 100, 0);
    set_share(machine, 2, 0, 100, 100, 5);
    set_share(machine, 3, 0, 100, 100, 0);
    add_program(machine, 1, 100, 0);
    add_program(machine, 2, 100, 0);
    add_program(machine, 3, 100, 0);
    run(machine, TEN_S_US);
    assert_share(machine, 1, TEN_S_US, 190, 220);
    assert_share(machine, 2, TEN_S_US, 770, 810);
    assert_share(machine, 3, TEN_S_US, 0, 10);
    free(machine);
}

static void test_cap_leaves_the_rest_to_others(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 10, 30, 100, 9);
    set_share(machine, 2, 0, 0, 100, 0);
    add_program(machine, 1, 100, 0);
    add_program(machine, 2, 100, 0);
    run(machine, TEN_S_US);
    assert_share(machine, 1, TEN_S_US, 280, 310);
    assert_share(machine, 2, TEN_S_US, 670, 710);
    free(machine);
}

static void test_change_holds_at_once(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 80, 100, 100, 0);
    set_share(machine, 2, 20, 100, 100, 0);
    add_program(machine, 1, 100, 0);
    add_program(machine, 2, 100, 0);
    run(machine, TEN_S_US);
    forget(machine);
    set_share(machine, 1, 20, 100, 100, 0);
    set_share(machine, 2, 80, 100, 100, 0);
    run(machine, TEN_S_US / 5);
    assert_share(machine, 1, TEN_S_US / 5, 170, 230);
    /* One that waits for a tiny maximum is not kept by it any longer. */
    set_share(machine, 1, 0, 1, 1000, 0);
    run(machine, TEN_S_US / 5);
    set_share(machine, 1, 50, 100, 100, 0);
    set_share(machine, 2, 50, 100, 100, 0);
    forget(machine);
    run(machine, TEN_S_US / 10);
    assert_share(machine, 1, TEN_S_US / 10, 450, 600);
    free(machine);
}

static void test_stopped_holder_is_not_waited_for(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 50, 100, 100, 0);
    set_share(machine, 2, 50, 100, 100, 0);
    struct program *first = add_program(machine, 1, 100, 0);
    add_program(machine, 2, 100, 0);
    while (!first->is_open)
        run(machine, STEP_US);
    first->is_stopped = true;
    forget(machine);
    run(machine, 1100 * 1000); /* a grant, FLYT_TIME_SLICE_LOST_MS, a bit */
    forget(machine);
    run(machine, TEN_S_US / 10);
    assert_share(machine, 2, TEN_S_US / 10, 990, 1000);
    /* It goes on: what it thinks to have is not its any more. */
    first->is_stopped = false;
    tell(machine, first, FLYT_TIME_SLICE_RUNS);
    assert_false(first->is_open);
    forget(machine);
    run(machine, TEN_S_US);
    assert_share(machine, 1, TEN_S_US, 480, 520);
    assert_int_equal(machine->overlap_ns, 0);
    free(machine);
}

/* One that is granted and never comes, because it has stopped while it waited, costs FLYT_TIME_SLICE_TAKE_MS once. */
static void test_stopped_waiter_is_passed_over(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 50, 100, 100, 0);
    set_share(machine, 2, 50, 100, 100, 0);
    struct program *first = add_program(machine, 1, 100, 0);
    add_program(machine, 2, 100, 0);
    run(machine, 100 * 1000);
    while (machine->table.servers[first->place].state != FLYT_TIME_SLICE_WAITS)
        run(machine, STEP_US);
    first->is_stopped = true;
    forget(machine);
    run(machine, TEN_S_US / 10);
    assert_true(machine->unused_ns <= (FLYT_TIME_SLICE_TAKE_MS + 1) * MS);
    free(machine);
}

static void test_dead_holder_is_taken_out(void **state)
{
    struct machine *machine = new_machine();
    struct flyt_time_slice_answer answer;

    set_share(machine, 1, 50, 100, 100, 0);
    set_share(machine, 2, 50, 100, 100, 0);
    struct program *first = add_program(machine, 1, 100, 0);
    struct program *second = add_program(machine, 2, 100, 0);
    run(machine, 50 * 1000);
    while (!first->is_open)
        run(machine, STEP_US);
    first->is_stopped = true;
    flyt_time_slice_table_leave(&machine->table, first->server_id, machine->now_ns, &answer);
    assert_true(answer.woken[0] >> second->place & 1);
    first->kernel_end_ns = 0;
    forget(machine);
    run(machine, 100 * 1000);
    assert_true(machine->unused_ns <= STEP_US * US);
    /* And its tenant: what is left of it is not in anybody's way. */
    flyt_time_slice_table_remove(&machine->table, 1, machine->now_ns, &answer);
    flyt_time_slice_table_remove(&machine->table, 2, machine->now_ns, &answer);
    assert_int_equal(machine->table.holder, -1);
    assert_int_equal(flyt_time_slice_table_join(&machine->table, 2, 9), -ENOENT);
    free(machine);
}

static void test_shares_are_checked(void **state)
{
    static const struct flyt_time_slice_share bad[] = {
        {101, 0, 100, 0}, {0, 101, 100, 0}, {50, 40, 100, 0}, {10, 20, 9, 0}, {10, 20, 10001, 0},
    };
    struct machine *machine = new_machine();
    struct flyt_time_slice_answer answer;
    const struct flyt_time_slice_share good = {50, 50, 10, -1};

    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(flyt_time_slice_table_set(&machine->table, 1, &bad[i], 1, 0, &answer), -EINVAL);
    assert_int_equal(flyt_time_slice_table_set(&machine->table, 0, &good, 1, 0, &answer), -EINVAL);
    for (unsigned i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++)
        assert_int_equal(flyt_time_slice_table_set(&machine->table, 1 + i, &good, 2, 0, &answer), 0);
    assert_int_equal(flyt_time_slice_table_set(&machine->table, 1000, &good, 2, 0, &answer), -ENOSPC);
    assert_int_equal(flyt_time_slice_table_set(&machine->table, 1, &good, 1, 0, &answer), -ESTALE);
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        assert_int_equal(flyt_time_slice_table_join(&machine->table, 1, 1 + i), i);
    assert_int_equal(flyt_time_slice_table_join(&machine->table, 1, 1000), -ENOSPC);
    assert_int_equal(flyt_time_slice_table_join(&machine->table, 1, 5), 4);
    assert_int_equal(flyt_time_slice_table_tell(&machine->table, 4, 6, FLYT_TIME_SLICE_WAITS, 0, &answer), -ENOENT);
    assert_int_equal(flyt_time_slice_table_tell(&machine->table, 5000, 6, FLYT_TIME_SLICE_WAITS, 0, &answer), -ENOENT);
    free(machine);
}

/* One whose work is not done long after its end is not waited for; it pays for that until it says that it is done. */
static void test_overdue_holder_is_not_waited_for(void **state)
{
    struct machine *machine = new_machine();

    set_share(machine, 1, 50, 100, 100, 0);
    set_share(machine, 2, 50, 100, 100, 0);
    struct program *first = add_program(machine, 1, 100, 0);
    add_program(machine, 2, 100, 0);
    while (!first->is_open)
        run(machine, STEP_US);
    first->kernel_us = 5 * 1000 * 1000; /* from the next one on: five seconds, or for ever, for all that is known */
    while (first->kernel_end_ns < machine->now_ns + 4 * S)
        run(machine, STEP_US);
    forget(machine);
    run(machine, (FLYT_TIME_SLICE_OVERRUN_MS + 300) * 1000);
    assert_true(used_us(machine, 2) > 0);
    assert_int_equal(machine->table.servers[first->place].is_missing, FLYT_TIME_SLICE_IS_OVER);
    forget(machine);
    run(machine, 1000 * 1000);
    assert_share(machine, 2, 1000 * 1000, 950, 1000);
    assert_int_equal(machine->overlap_ns, 1000 * MS); /* that kernel nothing takes off the GPU */
    /* It is done, and waits until the other has had as much. */
    first->kernel_us = 100;
    while (first->kernel_end_ns)
        run(machine, STEP_US);
    forget(machine);
    run(machine, 500 * 1000);
    assert_int_equal(machine->table.servers[first->place].is_missing, 0);
    assert_share(machine, 1, 500 * 1000, 0, 100);
    assert_int_equal(machine->overlap_ns, 0);
    run(machine, TEN_S_US);
    forget(machine);
    run(machine, TEN_S_US);
    assert_share(machine, 1, TEN_S_US, 480, 520);
    free(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_minima_are_kept_under_contention),
        cmocka_unit_test(test_three_tenants_and_what_is_left),
        cmocka_unit_test(test_two_servers_of_a_tenant_count_as_one),
        cmocka_unit_test(test_lone_tenant_has_nearly_everything),
        cmocka_unit_test(test_maximum_caps_a_lone_tenant),
        cmocka_unit_test(test_pauses_do_not_count_while_nobody_waits),
        cmocka_unit_test(test_idle_tenant_gives_way_and_comes_back),
        cmocka_unit_test(test_seldom_tenant_is_served_soon),
        cmocka_unit_test(test_short_pauses_cost_little),
        cmocka_unit_test(test_priority_comes_after_minima),
        cmocka_unit_test(test_cap_leaves_the_rest_to_others),
        cmocka_unit_test(test_change_holds_at_once),
        cmocka_unit_test(test_stopped_holder_is_not_waited_for),
        cmocka_unit_test(test_stopped_waiter_is_passed_over),
        cmocka_unit_test(test_dead_holder_is_taken_out),
        cmocka_unit_test(test_shares_are_checked),
        cmocka_unit_test(test_overdue_holder_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
