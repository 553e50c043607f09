/*
 * Tests of migration_rules.c: what a node's word means, and what is next: for everything that can be seen of a
 * migration in every state, and for migrations whose nodes say what they like.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"

enum { SOURCE = FLYT_MIGRATION_SOURCE, TARGET = FLYT_MIGRATION_TARGET };

/* ---- what a word means ---- */

static void test_standing(void **state)
{
    static const enum flyt_migration_standing of_phase[] = {
        [FLYT_MIGRATION_PREPARING] = FLYT_STANDING_COPYING,  [FLYT_MIGRATION_COPYING] = FLYT_STANDING_COPYING,
        [FLYT_MIGRATION_STOPPING] = FLYT_STANDING_COPYING,   [FLYT_MIGRATION_ARRIVED] = FLYT_STANDING_ARRIVED,
        [FLYT_MIGRATION_SWITCHING] = FLYT_STANDING_SWITCHED, [FLYT_MIGRATION_DONE] = FLYT_STANDING_DONE,
        [FLYT_MIGRATION_FAILED] = FLYT_STANDING_FAILED,
    };

    for (unsigned bits = 0; bits < 32; bits++)
        for (flyt_migration_phase phase = FLYT_MIGRATION_PREPARING; phase <= FLYT_MIGRATION_ARRIVED; phase++) {
            const unsigned side = bits & 1 ? TARGET : SOURCE;
            struct flyt_migration_word word = {.status = FLYT_STATUS_OK,
                                               .phase = phase,
                                               .is_between = bits & 2,
                                               .is_moved = bits & 4,
                                               .has_registered = bits & 8,
                                               .has_allocation = bits & 16};
            bool is_its_own = !word.is_between && (phase == FLYT_MIGRATION_ARRIVED ||
                                                   phase == FLYT_MIGRATION_SWITCHING); /* not to be told */
            assert_int_equal(flyt_migration_standing_of(&word, side),
                             is_its_own ? FLYT_STANDING_COPYING : of_phase[phase]);
            /* It cannot say: neither its phase nor where the allocation was registered decides. */
            for (flyt_status status = FLYT_STATUS_INVALID; status <= FLYT_STATUS_HELD; status++) {
                word.status = status;
                if (status != FLYT_STATUS_NOT_FOUND)
                    assert_int_equal(flyt_migration_standing_of(&word, side), FLYT_STANDING_UNKNOWN);
            }
        }
}

/* Of a node that knows nothing of it, in the order of is_between, is_moved, has_registered, has_allocation. */
static void test_standing_of_who_forgot(void **state)
{
    enum { U = FLYT_STANDING_UNKNOWN, A = FLYT_STANDING_ABSENT, D = FLYT_STANDING_DONE, F = FLYT_STANDING_FAILED };
    enum { N = FLYT_STANDING_FORGOTTEN };
    static const int expected[FLYT_MIGRATION_SIDES][16] = {
        [SOURCE] = {U, U, A, F, U, U, A, F, A, A, A, F, A, A, A, F},
        [TARGET] = {N, N, A, D, N, N, A, D, A, A, A, A, N, N, A, D},
    };

    for (unsigned side = 0; side < FLYT_MIGRATION_SIDES; side++)
        for (unsigned bits = 0; bits < 16; bits++) {
            const struct flyt_migration_word word = {.status = FLYT_STATUS_NOT_FOUND,
                                                     .phase = FLYT_MIGRATION_DONE,
                                                     .is_between = bits & 8,
                                                     .is_moved = bits & 4,
                                                     .has_registered = bits & 2,
                                                     .has_allocation = bits & 1};
            assert_int_equal(flyt_migration_standing_of(&word, side), expected[side][bits]);
        }
}

/* ---- what is next ---- */

enum { U, A, C, R, S, D, F, N }; /* unknown, absent, copying, arrived, switched, done, failed, forgotten */

static enum flyt_migration_step next(enum flyt_move_state at, bool is_failing, int source, int target, bool is_there)
{
    const struct flyt_migration_seen seen = {
        .state = at,
        .flags = FLYT_MIGRATION_IS_BETWEEN | (is_failing ? FLYT_MIGRATION_IS_FAILING : 0) |
                 (is_there ? FLYT_MIGRATION_IS_TARGET_THERE : 0),
        .standings = {(enum flyt_migration_standing)source, (enum flyt_migration_standing)target}};

    return flyt_migration_next(&seen);
}

/* The good way between nodes, and what is next where either side says otherwise. */
static void test_next(void **state)
{
    const enum flyt_move_state way = FLYT_MOVE_UNDER_WAY, to = FLYT_MOVE_COMMITTED, left = FLYT_MOVE_LEFT;
    static const struct {
        bool is_failing;
        int source, target;
        enum flyt_migration_step step;
    } before[] = {
        {false, C, C, FLYT_STEP_WAIT},
        {false, R, C, FLYT_STEP_SWITCH_TARGET}, /* it answers when it has them all */
        {false, R, R, FLYT_STEP_SWITCH_TARGET},
        {false, R, S, FLYT_STEP_MOVE},
        {true, C, C, FLYT_STEP_CANCEL_SOURCE},
        {true, R, S, FLYT_STEP_CANCEL_SOURCE},
        {false, C, F, FLYT_STEP_CANCEL_SOURCE},
        {false, R, A, FLYT_STEP_CANCEL_SOURCE},
        {false, F, C, FLYT_STEP_CANCEL_TARGET},
        {false, A, S, FLYT_STEP_CANCEL_TARGET},
        {true, F, F, FLYT_STEP_END},
        {false, A, A, FLYT_STEP_END},
        /* The documents are the source's again. */
        {true, S, F, FLYT_STEP_SEND_BACK},
        {true, S, S, FLYT_STEP_CANCEL_TARGET},
        {true, S, D, FLYT_STEP_MOVE}, /* it has the programs all the same */
    };

    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        assert_int_equal(next(way, before[i].is_failing, before[i].source, before[i].target, true), before[i].step);
    assert_int_equal(next(to, false, R, S, true), FLYT_STEP_SWITCH_SOURCE);
    assert_int_equal(next(to, false, S, S, true), FLYT_STEP_TELL);
    assert_int_equal(next(left, false, S, S, true), FLYT_STEP_WAIT);
    assert_int_equal(next(left, false, S, D, true), FLYT_STEP_FINISH);
    assert_int_equal(next(to, true, F, S, true), FLYT_STEP_CANCEL_TARGET);
    assert_int_equal(next(left, false, S, F, true), FLYT_STEP_UNDO);
    assert_int_equal(next(to, false, R, A, true), FLYT_STEP_UNDO);
    assert_int_equal(next(left, false, S, N, true), FLYT_STEP_REGISTER);
    /* A target that is away is not asked: it is told when it is back, and what it may have stays charged until then. */
    assert_int_equal(next(way, true, F, C, false), FLYT_STEP_WITHDRAW);
    assert_int_equal(next(way, true, F, F, false), FLYT_STEP_END);
    assert_int_equal(next(way, true, S, S, false), FLYT_STEP_WAIT);
}

/* In which states a step may be, and what must be seen then. */
static const struct {
    enum flyt_migration_step step;
    unsigned states, all, none;
    unsigned sources, targets; /* standings; 0: any */
} needs[] = {
#define AT(state)  (1u << FLYT_MOVE_##state)
#define SEEN(what) FLYT_MIGRATION_##what
#define OUT        (1u << A | 1u << F)
    {FLYT_STEP_WRITE, AT(TO_TARGET) | AT(TO_SOURCE), SEEN(HAS_FAILED) | SEEN(IS_DUE), SEEN(IS_WRITTEN), 0, 0},
    {FLYT_STEP_BEGIN, AT(RECORDING), SEEN(IS_WRITTEN), 0, 0, 0},
    {FLYT_STEP_FAIL_UNRECORDED, AT(RECORDING), SEEN(HAS_FAILED), 0, 0, 0},
    {FLYT_STEP_FAIL_LATE, AT(RECORDED), SEEN(IS_LATE), SEEN(IS_READY), 0, 0},
    /* One that is to fail is not ordered any more. */
    {FLYT_STEP_ORDER, AT(RECORDED), SEEN(IS_READY), SEEN(IS_FAILING), 0, 0},
    {FLYT_STEP_FOLLOW, AT(ORDERED), SEEN(IS_ANSWERED), 0, 0, 0},
    {FLYT_STEP_REGISTER, AT(UNDER_WAY) | AT(COMMITTED) | AT(LEFT), 0, 0, 0, 1u << N},
    {FLYT_STEP_SWITCH_TARGET, AT(UNDER_WAY) | AT(COMMITTED) | AT(LEFT), 0, 0, 0, 1u << C | 1u << R | 1u << S},
    /* The documents are the target's when it lets programs in, or has them already. */
    {FLYT_STEP_MOVE, AT(UNDER_WAY), 0, 0, 0, 1u << S | 1u << D},
    /* Programs are told to leave by what the documents say only, when the target lets them in. */
    {FLYT_STEP_COMMIT, AT(TO_TARGET), SEEN(IS_WRITTEN) | SEEN(IS_BETWEEN), 0, 0, 0},
    {FLYT_STEP_SWITCH_SOURCE, AT(COMMITTED) | AT(LEFT), 0, 0, 1u << R, 1u << S},
    {FLYT_STEP_TELL, AT(COMMITTED), 0, 0, 0, 0},
    /* Nothing is freed at the source before they go on at the target. */
    {FLYT_STEP_FINISH, AT(TO_TARGET) | AT(LEFT), 0, 0, 0, 0},
    {FLYT_STEP_RELEASE, AT(RELEASING), 0, SEEN(IS_RELEASED), 0, 0},
    {FLYT_STEP_DONE, AT(RELEASING), SEEN(IS_RELEASED), 0, 0, 0},
    {FLYT_STEP_CANCEL_SOURCE, AT(UNDER_WAY), 0, 0, 1u << C | 1u << R | 1u << N, 0},
    {FLYT_STEP_CANCEL_TARGET, AT(UNDER_WAY) | AT(COMMITTED) | AT(LEFT), 0, 0, 0, 1u << U | 1u << C | 1u << R | 1u << S},
    /* They are let in at the source again only when the target has given up. */
    {FLYT_STEP_UNDO, AT(COMMITTED) | AT(LEFT), 0, 0, 0, OUT},
    {FLYT_STEP_RETURN, AT(TO_SOURCE), SEEN(IS_WRITTEN), 0, 0, 0},
    {FLYT_STEP_SEND_BACK, AT(UNDER_WAY), 0, 0, 1u << S | 1u << D, OUT},
    /* The source has its programs when the target is not waited for. */
    {FLYT_STEP_WITHDRAW, AT(UNDER_WAY), 0, SEEN(IS_TARGET_THERE), OUT, 0},
    {FLYT_STEP_RESUME, AT(WITHDRAWN), 0, SEEN(IS_ORDERING), 0, 0},
    /* It is not over while either may have something of it that it is to give up. */
    {FLYT_STEP_END, AT(RECORDED) | AT(UNDER_WAY), 0, 0, 0, 0},
};

static void look_at(const struct flyt_migration_seen *seen)
{
    const unsigned source = 1u << seen->standings[SOURCE], target = 1u << seen->standings[TARGET];
    const bool decides = 1u << seen->state & (AT(UNDER_WAY) | AT(COMMITTED) | AT(LEFT));
    const enum flyt_migration_step step = flyt_migration_next(seen);

    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        if (needs[i].step != step)
            continue;
        assert_true(needs[i].states >> seen->state & 1);
        assert_int_equal(seen->flags & needs[i].all, needs[i].all);
        assert_false(seen->flags & needs[i].none);
        assert_true(!needs[i].sources || needs[i].sources & source);
        assert_true(!needs[i].targets || needs[i].targets & target);
    }
    if (step == FLYT_STEP_FINISH)
        assert_true(decides ? target == 1u << D : !(seen->flags & FLYT_MIGRATION_IS_BETWEEN));
    if (step == FLYT_STEP_END && decides)
        assert_true(source & OUT && target & OUT);
    if (decides && target == 1u << D) /* who has the programs keeps them */
        assert_true(step == FLYT_STEP_MOVE || step == FLYT_STEP_TELL || step == FLYT_STEP_FINISH);
    if (seen->state == FLYT_MOVE_UNDER_WAY && source == 1u << U && !(target & (1u << D | 1u << N)))
        assert_int_equal(step, FLYT_STEP_WAIT); /* the source may have them, and cannot say */
    for (unsigned side = 0; side < FLYT_MIGRATION_SIDES; side++)
        if (flyt_migration_is_to_be_asked(seen, side)) {
            assert_true(decides && !(1u << seen->standings[side] & OUT));
            assert_true(side == SOURCE || seen->flags & FLYT_MIGRATION_IS_BETWEEN);
        }
}

/* Whatever is seen, in every state: no step without its reason, and each step is taken. */
static void test_nothing_without_its_reason(void **state)
{
    uint64_t taken = 0;
    struct flyt_migration_seen seen = {.silent_ms = {FLYT_MIGRATION_SILENT_MS, FLYT_MIGRATION_SILENT_MS}};

    for (unsigned at = 0; at < FLYT_MOVE_STATES; at++)
        for (unsigned both = 0; both < FLYT_STANDINGS * FLYT_STANDINGS; both++)
            for (unsigned flags = 0; flags < 1u << FLYT_MIGRATION_FLAGS; flags++) {
                seen.state = (enum flyt_move_state)at;
                seen.flags = flags;
                seen.standings[SOURCE] = (enum flyt_migration_standing)(both % FLYT_STANDINGS);
                seen.standings[TARGET] = (enum flyt_migration_standing)(both / FLYT_STANDINGS);
                look_at(&seen);
                taken |= 1ull << flyt_migration_next(&seen);
            }
    assert_int_equal(taken, (1ull << FLYT_STEPS) - 1);
}

static void test_who_is_asked(void **state)
{
    struct flyt_migration_seen seen = {.state = FLYT_MOVE_UNDER_WAY, .flags = FLYT_MIGRATION_IS_BETWEEN};

    for (unsigned side = 0; side < FLYT_MIGRATION_SIDES; side++) {
        seen.standings[side] = FLYT_STANDING_UNKNOWN;
        seen.silent_ms[side] = FLYT_MIGRATION_AGAIN_MS;
        assert_true(flyt_migration_is_to_be_asked(&seen, side));
        seen.silent_ms[side]--;
        assert_false(flyt_migration_is_to_be_asked(&seen, side));
        seen.standings[side] = FLYT_STANDING_COPYING;
        seen.silent_ms[side] = FLYT_MIGRATION_SILENT_MS;
        assert_true(flyt_migration_is_to_be_asked(&seen, side));
        seen.silent_ms[side]--;
        assert_false(flyt_migration_is_to_be_asked(&seen, side));
    }
    seen.flags = 0;
    seen.silent_ms[TARGET] = FLYT_MIGRATION_SILENT_MS;
    assert_false(flyt_migration_is_to_be_asked(&seen, TARGET)); /* of one node the source speaks for both */
}

/* The programs' way: where they are known to be may be told of once they are on the target, and not before. */
static void test_states(void **state)
{
    static const enum flyt_move_state way[] = {
        FLYT_MOVE_RECORDED,  FLYT_MOVE_ORDERED,   FLYT_MOVE_RECORDED,  FLYT_MOVE_ORDERED,   FLYT_MOVE_UNDER_WAY,
        FLYT_MOVE_WITHDRAWN, FLYT_MOVE_UNDER_WAY, FLYT_MOVE_TO_TARGET, FLYT_MOVE_COMMITTED, FLYT_MOVE_TO_SOURCE,
        FLYT_MOVE_UNDER_WAY, FLYT_MOVE_TO_TARGET, FLYT_MOVE_COMMITTED, FLYT_MOVE_LEFT,      FLYT_MOVE_RELEASING,
    };
    struct flyt_migration migration = {.state = FLYT_MOVE_RECORDING, .is_between = true};

    for (size_t i = 0; i < sizeof way / sizeof *way; i++) {
        flyt_migration_set_state(&migration, way[i]);
        assert_int_equal(flyt_migration_is_moved(&migration), way[i] >= FLYT_MOVE_TO_TARGET);
    }
}

/* ---- migrations whose nodes say what they like ---- */

/* One, and what is true of its sides, whatever is known of that. */
struct trial {
    uint64_t random;
    struct flyt_migration migration;
    struct flyt_migration_seen seen;
    int truth[FLYT_MIGRATION_SIDES];
    bool is_over, is_kind; /* kind: nothing goes wrong any more */
};

static bool chance(struct trial *trial, unsigned of)
{
    trial->random = trial->random * 6364136223846793005u + 1442695040888963407u;
    return trial->random >> 33 & 0xffffff && (trial->random >> 33) % of == 0;
}

static bool goes_wrong(struct trial *trial, unsigned of)
{
    return !trial->is_kind && chance(trial, of);
}

static bool is_between(const struct trial *trial)
{
    return trial->seen.flags & FLYT_MIGRATION_IS_BETWEEN;
}

static void set_truth(struct trial *trial, unsigned side, int truth)
{
    trial->truth[side] = truth;
    if (!is_between(trial))
        trial->truth[!side] = truth;
}

static void set_state(struct trial *trial, enum flyt_move_state at)
{
    flyt_migration_set_state(&trial->migration, at);
    trial->seen.state = at;
    trial->seen.flags &= ~(unsigned)(FLYT_MIGRATION_IS_WRITTEN | FLYT_MIGRATION_HAS_FAILED);
}

/* The order arrives, or does not. */
static void obey(struct trial *trial, enum flyt_migration_step step)
{
    const int source = trial->truth[SOURCE], target = trial->truth[TARGET];

    if (goes_wrong(trial, 5))
        return;
    if (step == FLYT_STEP_ORDER)
        set_truth(trial, TARGET, C);
    else if (step == FLYT_STEP_SWITCH_TARGET && target == R)
        set_truth(trial, TARGET, S);
    else if (step == FLYT_STEP_SWITCH_SOURCE && source == R)
        set_truth(trial, SOURCE, S);
    else if (step == FLYT_STEP_CANCEL_SOURCE && (source == C || source == R))
        set_truth(trial, SOURCE, F);
    else if (step == FLYT_STEP_CANCEL_TARGET && (target == C || target == R || target == S))
        set_truth(trial, TARGET, F);
    else if (step == FLYT_STEP_SEND_BACK && source == S)
        set_truth(trial, SOURCE, F);
    else if (step == FLYT_STEP_RELEASE)
        trial->seen.flags |= FLYT_MIGRATION_IS_RELEASED;
}

static void take_step(struct trial *trial)
{
    const enum flyt_migration_step step = flyt_migration_next(&trial->seen);
    const int *truth = trial->truth;

    look_at(&trial->seen);
    switch (step) {
    case FLYT_STEP_WRITE:
        trial->seen.flags &= ~(unsigned)FLYT_MIGRATION_HAS_FAILED;
        break;
    case FLYT_STEP_BEGIN:
        set_state(trial, FLYT_MOVE_RECORDED);
        break;
    case FLYT_STEP_ORDER:
        set_state(trial, FLYT_MOVE_ORDERED);
        break;
    case FLYT_STEP_FOLLOW:
        set_state(trial, FLYT_MOVE_UNDER_WAY);
        if (is_between(trial) && !(trial->seen.flags & FLYT_MIGRATION_IS_FAILING) && !goes_wrong(trial, 5))
            set_truth(trial, SOURCE, C);
        trial->seen.standings[SOURCE] = trial->seen.standings[TARGET] = FLYT_STANDING_UNKNOWN;
        break;
    case FLYT_STEP_MOVE:
        set_state(trial, FLYT_MOVE_TO_TARGET);
        break;
    case FLYT_STEP_COMMIT:
        set_state(trial, FLYT_MOVE_COMMITTED);
        break;
    case FLYT_STEP_TELL:
        set_state(trial, FLYT_MOVE_LEFT);
        break;
    case FLYT_STEP_FINISH:
        assert_int_equal(truth[TARGET], D);
        set_state(trial, FLYT_MOVE_RELEASING);
        break;
    case FLYT_STEP_UNDO:
        set_state(trial, FLYT_MOVE_TO_SOURCE);
        break;
    case FLYT_STEP_RETURN:
    case FLYT_STEP_RESUME:
        set_state(trial, FLYT_MOVE_UNDER_WAY);
        break;
    case FLYT_STEP_WITHDRAW:
        assert_true(1u << truth[SOURCE] & OUT); /* the programs are there */
        set_state(trial, FLYT_MOVE_WITHDRAWN);
        break;
    case FLYT_STEP_DONE:
        assert_int_equal(truth[TARGET], D);
        trial->is_over = true;
        break;
    case FLYT_STEP_END:
    case FLYT_STEP_FAIL_UNRECORDED:
    case FLYT_STEP_FAIL_LATE:
        assert_true(1u << truth[SOURCE] & OUT && 1u << truth[TARGET] & OUT);
        trial->is_over = true;
        break;
    default:
        break;
    }
    /* They leave when the store gives them to the target, which lets them in. */
    if (step == FLYT_STEP_SWITCH_SOURCE)
        assert_true(truth[TARGET] != A && truth[TARGET] != C && flyt_migration_is_moved(&trial->migration));
    /* Nobody is let in at the source who may be at the target. */
    if (step == FLYT_STEP_SEND_BACK)
        assert_true(1u << truth[TARGET] & OUT && !flyt_migration_is_moved(&trial->migration));
    obey(trial, step);
}

/* The nodes do something by themselves. */
static void go_on(struct trial *trial)
{
    const int source = trial->truth[SOURCE], target = trial->truth[TARGET];
    const unsigned failing = chance(trial, 2) ? SOURCE : TARGET;

    if (goes_wrong(trial, 8) &&
        (trial->truth[failing] == C || trial->truth[failing] == R || (failing == TARGET && target == S)))
        set_truth(trial, failing, F); /* a target gives up also when nobody comes */
    else if (!is_between(trial) && source == C)
        set_truth(trial, SOURCE, D);
    else if (source == C && target == C)
        trial->truth[SOURCE] = trial->truth[TARGET] = R;
    else if (source == S && target == S)
        set_truth(trial, TARGET, D);
}

static void happen(struct trial *trial)
{
    unsigned *flags = &trial->seen.flags, side = chance(trial, 2) ? SOURCE : TARGET;
    const bool is_writing = !(*flags & (FLYT_MIGRATION_IS_WRITTEN | FLYT_MIGRATION_HAS_FAILED));

    if (goes_wrong(trial, 30))
        *flags |= FLYT_MIGRATION_IS_FAILING;
    if (is_writing && chance(trial, 3))
        *flags |= goes_wrong(trial, 3) ? FLYT_MIGRATION_HAS_FAILED : FLYT_MIGRATION_IS_WRITTEN;
    if (goes_wrong(trial, 6))
        *flags ^= FLYT_MIGRATION_IS_TARGET_THERE;
    if (trial->is_kind)
        *flags |= FLYT_MIGRATION_IS_TARGET_THERE;
    if (chance(trial, 3))
        go_on(trial);
    if (trial->seen.state < FLYT_MOVE_UNDER_WAY)
        return;
    /* It says where it stands, or registers anew. */
    trial->seen.standings[side] =
        goes_wrong(trial, 6) ? FLYT_STANDING_UNKNOWN : (enum flyt_migration_standing)trial->truth[side];
    if (!is_between(trial))
        trial->seen.standings[!side] = trial->seen.standings[side];
    if (trial->seen.standings[side] == FLYT_STANDING_FAILED)
        *flags |= FLYT_MIGRATION_IS_FAILING;
}

static void test_sequences(void **state)
{
    enum { SEQUENCES = 20000, STEPS = 120, KIND = 2000 };
    unsigned ends[2] = {0};

    for (unsigned seed = 1; seed <= SEQUENCES; seed++) {
        struct trial trial = {.random = seed, .truth = {A, A}};
        trial.migration.is_between = seed % 2;
        trial.seen.flags = FLYT_MIGRATION_IS_DUE | FLYT_MIGRATION_IS_READY | FLYT_MIGRATION_IS_ANSWERED |
                           FLYT_MIGRATION_IS_TARGET_THERE |
                           (seed % 2 ? FLYT_MIGRATION_IS_BETWEEN : FLYT_MIGRATION_IS_RELEASED);
        for (unsigned i = 0; i < STEPS + KIND && !trial.is_over; i++) {
            trial.is_kind = i >= STEPS;
            if (chance(&trial, 2))
                happen(&trial);
            else
                take_step(&trial);
        }
        if (!trial.is_over)
            fail_msg("seed %u: state %u, truth %d and %d, does not end", seed, trial.seen.state, trial.truth[SOURCE],
                     trial.truth[TARGET]);
        ends[trial.truth[TARGET] == D]++;
    }
    assert_true(ends[false] > SEQUENCES / 10 && ends[true] > SEQUENCES / 10);
}

static void test_names(void **state)
{
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_PREPARING), "preparing");
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_SWITCHING), "switching");
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_FAILED), "failed");
    assert_string_equal(flyt_migration_phase_name(FLYT_MIGRATION_ARRIVED), "arrived");
    assert_string_equal(flyt_migration_phase_name((flyt_migration_phase)0), "unknown");
    assert_string_equal(flyt_migration_phase_name((flyt_migration_phase)8), "unknown");
}

static void test_figures(void **state)
{
    const flyt_migration_use use = {.session_count = 2,
                                    .round = 3,
                                    .memory_bytes = 4ull << 30,
                                    .copied_bytes = 6ull << 30,
                                    .elapsed_ms = 2500,
                                    .standstill_us = 41500,
                                    .last_bytes = 3 << 20};
    char text[256], cut[16];

    flyt_migration_figures(&use, text, sizeof text);
    assert_string_equal(text,
                        "2 programs with 4 GiB, 6 GiB copied in 3 rounds and 2.5 s; they stood still for 41.5 ms, "
                        "while 3 MiB were copied");
    flyt_migration_figures(&use, cut, sizeof cut);
    assert_string_equal(cut, "2 programs with");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standing),     cmocka_unit_test(test_standing_of_who_forgot),
        cmocka_unit_test(test_next),         cmocka_unit_test(test_nothing_without_its_reason),
        cmocka_unit_test(test_who_is_asked), cmocka_unit_test(test_states),
        cmocka_unit_test(test_sequences),    cmocka_unit_test(test_names),
        cmocka_unit_test(test_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
