/* Where an object of the test's is in its sequence, over a channel of which the test says what is executed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/library/object.h"

enum { THREADS = 4, ROUNDS = 3000 };

/* ---- memory that is out ---- */

static _Thread_local bool is_memory_out;

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return is_memory_out ? NULL : __real_calloc(count, bytes);
}

/* ---- an object ---- */

static char made[] = "made";
static struct {
    const void *made;
    const char *name;
} asked; /* of the kind at last */

/* A call takes as many as its arguments say, and one more for each that was asked about. */
static struct flyt_lib_step tell(const void *recipe, uint32_t notes[FLYT_LIB_NOTES], const char *name,
                                 const void *arguments)
{
    asked.made = recipe;
    asked.name = name;
    notes[0]++;
    return (struct flyt_lib_step){FLYT_LIB_TAKES, *(const uint64_t *)arguments + notes[0]};
}

static const struct flyt_lib_kind kind = {.name = "test", .step = tell}, kind_without = {.name = "test"};
static const struct flyt_lib_row draw_row = {.name = "testDraw", .flags = FLYT_LIB_DRAWS},
                                 place_row = {.name = "testPlace", .flags = FLYT_LIB_RESTARTS};
static const struct flyt_lib_step loses = {FLYT_LIB_LOSES, 0};

static struct flyt_lib_step takes(uint64_t count)
{
    return (struct flyt_lib_step){FLYT_LIB_TAKES, count};
}

static struct flyt_lib_step places(uint64_t at)
{
    return (struct flyt_lib_step){FLYT_LIB_PLACES, at};
}

static int set_up(void **state)
{
    struct flyt_lib_object *object = calloc(1, sizeof *object);
    assert_non_null(object);
    object->kind = &kind;
    object->arguments = made;
    fake.progress.executed = 0;
    *state = object;
    return 0;
}

static int tear_down(void **state)
{
    is_memory_out = false;
    flyt_lib_sequence_fini(*state);
    free(*state);
    return 0;
}

/* As a call that goes one-way, and is sent as that of this number. */
static void send_as(struct flyt_lib_object *object, uint64_t count, uint64_t number)
{
    uint64_t *place = flyt_lib_sequence_send(object, takes(count));
    assert_non_null(place);
    assert_int_equal(*place, 0);
    *place = number;
}

/* Behind the call of that number it is where a call has brought it, and has gone on from there by so many. */
static void expect_at(struct flyt_lib_object *object, uint64_t number, uint64_t place, uint64_t taken)
{
    uint64_t told = 77;
    assert_int_equal(flyt_lib_sequence_at(object, number, &told), taken != 0);
    assert_int_equal(told, place + taken);
}

/* ---- tests ---- */

static void the_kind_says_what_a_call_does(void **state)
{
    struct flyt_lib_object *object = *state;
    const uint64_t count = 10;
    for (unsigned i = 1; i <= 2; i++) { /* notes stay */
        struct flyt_lib_step step = flyt_lib_sequence_step(object, &draw_row, &count);
        assert_int_equal(step.way, FLYT_LIB_TAKES);
        assert_int_equal(step.by, 10 + i);
        assert_ptr_equal(asked.made, made);
        assert_string_equal(asked.name, "testDraw");
    }
    expect_at(object, UINT64_MAX, 0, 0); /* it was only asked */
    assert_int_equal(object->sequence.is_lost, false);
}

static void where_nothing_is_said_a_draw_loses(void **state)
{
    struct flyt_lib_object *object = *state;
    for (unsigned i = 0; i < 2; i++) {
        object->kind = i ? &kind : &kind_without;
        object->arguments = i ? NULL : object->arguments; /* nobody knows how it was made */
        assert_int_equal(flyt_lib_sequence_step(object, &draw_row, NULL).way, FLYT_LIB_LOSES);
        struct flyt_lib_step step = flyt_lib_sequence_step(object, &place_row, NULL);
        assert_int_equal(step.way, FLYT_LIB_PLACES);
        assert_int_equal(step.by, 0);
    }
}

static void what_is_executed_counts(void **state)
{
    struct flyt_lib_object *object = *state;
    expect_at(object, UINT64_MAX, 0, 0);
    flyt_lib_sequence_made(object, takes(5));
    flyt_lib_sequence_made(object, takes(0));
    expect_at(object, 0, 0, 5);
    flyt_lib_sequence_made(object, takes(1ull << 40));
    expect_at(object, 0, 0, 5 + (1ull << 40));
    expect_at(object, UINT64_MAX, 0, 5 + (1ull << 40));
}

static void what_is_sent_counts_from_its_call_on(void **state)
{
    struct flyt_lib_object *object = *state;
    send_as(object, 1, 10);
    send_as(object, 20, 12);
    send_as(object, 300, 15);
    expect_at(object, 9, 0, 0);
    expect_at(object, 10, 0, 1);
    expect_at(object, 11, 0, 1);
    expect_at(object, 12, 0, 21);
    expect_at(object, 15, 0, 321);
    flyt_lib_sequence_made(object, takes(4000)); /* and this of an awaited call besides */
    expect_at(object, 9, 0, 4000);
    expect_at(object, 14, 0, 4021);
    expect_at(object, UINT64_MAX, 0, 4321);
}

static void nothing_counts_twice_once_it_is_executed(void **state)
{
    struct flyt_lib_object *object = *state;
    for (unsigned i = 1; i <= 6; i++)
        send_as(object, 1u << i, 10 * i);
    fake.progress.executed = 40;
    send_as(object, 1u << 7, 70);
    expect_at(object, 40, 0, 2 + 4 + 8 + 16);
    expect_at(object, 60, 0, 2 + 4 + 8 + 16 + 32 + 64);
    fake.progress.executed = UINT64_MAX;
    send_as(object, 1u << 8, 80);
    expect_at(object, 79, 0, 2 + 4 + 8 + 16 + 32 + 64 + 128);
    expect_at(object, 80, 0, 2 + 4 + 8 + 16 + 32 + 64 + 128 + 256);
}

static void what_has_no_number_yet_does_not_count(void **state)
{
    struct flyt_lib_object *object = *state;
    uint64_t *place = flyt_lib_sequence_send(object, takes(5));
    assert_non_null(place);
    fake.progress.executed = 100;
    expect_at(object, UINT64_MAX, 0, 0);
    send_as(object, 30, 101); /* looks at what is executed */
    expect_at(object, UINT64_MAX, 0, 30);
    *place = 102;
    expect_at(object, 101, 0, 30);
    expect_at(object, 102, 0, 35);
}

static void what_was_not_sent_does_not_count(void **state)
{
    struct flyt_lib_object *object = *state;
    uint64_t *numbers[3], elsewhere = 0;
    for (unsigned gone = 0; gone < 3; gone++) { /* the first, one in the middle, the last */
        for (unsigned i = 0; i < 3; i++)
            numbers[i] = flyt_lib_sequence_send(object, takes(1u << i));
        flyt_lib_sequence_not_sent(object, numbers[gone]);
        for (unsigned i = 0; i < 3; i++)
            if (i != gone)
                *numbers[i] = 10 + i;
        flyt_lib_sequence_not_sent(object, &elsewhere);
        expect_at(object, UINT64_MAX, 0, 7 - (1u << gone));
        flyt_lib_sequence_made(object, places(0));
    }
    assert_int_equal(object->sequence.is_lost, false);
}

static void what_takes_nothing_is_not_noted(void **state)
{
    struct flyt_lib_object *object = *state;
    assert_null(flyt_lib_sequence_send(object, takes(0)));
    assert_int_equal(object->sequence.is_lost, false);
    expect_at(object, UINT64_MAX, 0, 0);
}

static void it_is_lost_until_it_is_placed(void **state)
{
    struct flyt_lib_object *object = *state;
    flyt_lib_sequence_made(object, takes(3));
    flyt_lib_sequence_made(object, loses);
    assert_int_equal(object->sequence.is_lost, true);
    flyt_lib_sequence_made(object, takes(3)); /* from a place that nobody knows */
    send_as(object, 3, 5);
    assert_int_equal(object->sequence.is_lost, true);
    flyt_lib_sequence_made(object, places(0));
    assert_int_equal(object->sequence.is_lost, false);
    expect_at(object, UINT64_MAX, 0, 0);
    assert_null(flyt_lib_sequence_send(object, loses));
    assert_int_equal(object->sequence.is_lost, true);
    flyt_lib_sequence_made(object, places(9));
    assert_int_equal(object->sequence.is_lost, false);
    expect_at(object, UINT64_MAX, 9, 0);
}

static void a_place_is_where_counting_begins(void **state)
{
    struct flyt_lib_object *object = *state;
    send_as(object, 3, 5);
    flyt_lib_sequence_made(object, takes(4));
    flyt_lib_sequence_made(object, places(1000));
    expect_at(object, 4, 1000, 0);
    expect_at(object, UINT64_MAX, 1000, 0);
    flyt_lib_sequence_made(object, takes(7));
    send_as(object, 50, 8);
    expect_at(object, 7, 1000, 7);
    expect_at(object, 8, 1000, 57);
    flyt_lib_sequence_made(object, places(2));
    expect_at(object, UINT64_MAX, 2, 0);
}

/* Another thread's draw is behind the call that has brought the object to a place: the channel writes its number yet.
 */
static void a_place_leaves_what_is_about_to_be_sent(void **state)
{
    struct flyt_lib_object *object = *state;
    send_as(object, 3, 5);
    uint64_t *place = flyt_lib_sequence_send(object, takes(40)), *never = flyt_lib_sequence_send(object, takes(2));
    flyt_lib_sequence_made(object, places(100));
    expect_at(object, UINT64_MAX, 100, 0);
    *place = 7;
    flyt_lib_sequence_not_sent(object, never);
    expect_at(object, 6, 100, 0);
    expect_at(object, 7, 100, 40);
}

static void without_memory_it_is_lost(void **state)
{
    struct flyt_lib_object *object = *state;
    send_as(object, 3, 5);
    is_memory_out = true;
    assert_null(flyt_lib_sequence_send(object, takes(8)));
    is_memory_out = false;
    assert_int_equal(object->sequence.is_lost, true);
    send_as(object, 8, 6); /* further memory does not tell where it is */
    assert_int_equal(object->sequence.is_lost, true);
    flyt_lib_sequence_made(object, places(20));
    assert_int_equal(object->sequence.is_lost, false);
    send_as(object, 5, 7);
    expect_at(object, UINT64_MAX, 20, 5);
}

/* ---- several threads ---- */

static struct {
    struct flyt_lib_object *object;
    _Atomic uint64_t last_number; /* that a call has */
    _Atomic uint64_t taken;
} shared;

/* Draws that are awaited, that are not, and that are not sent in the end. */
static void *draw_often(void *user)
{
    unsigned thread = *(const unsigned *)user;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t count = 1 + (thread * ROUNDS + i) % 97, place;
        uint64_t *number = i % 3 ? flyt_lib_sequence_send(shared.object, takes(count)) : NULL;
        if (i % 3 == 2)
            flyt_lib_sequence_not_sent(shared.object, number);
        else if (i % 3 == 1)
            __atomic_store_n(number, atomic_fetch_add(&shared.last_number, 1) + 1, __ATOMIC_RELAXED);
        else
            flyt_lib_sequence_made(shared.object, takes(count));
        if (i % 3 != 2)
            atomic_fetch_add(&shared.taken, count);
        flyt_lib_sequence_at(shared.object, atomic_load(&shared.last_number), &place);
    }
    return NULL;
}

/* What is executed follows what is sent, some calls behind. */
static void *execute(void *user)
{
    _Atomic bool *is_over = user;
    while (!atomic_load(is_over)) {
        uint64_t last = atomic_load(&shared.last_number);
        __atomic_store_n(&fake.progress.executed, last > 5 ? last - 5 : 0, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void threads_lose_nothing_of_each_other(void **state)
{
    pthread_t threads[THREADS], executor;
    unsigned numbers[THREADS];
    _Atomic bool is_over = false;
    shared.object = *state;
    assert_int_equal(pthread_create(&executor, NULL, execute, &is_over), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, draw_often, &numbers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&is_over, true);
    pthread_join(executor, NULL);
    assert_int_equal(shared.last_number, THREADS * ROUNDS / 3);
    expect_at(*state, UINT64_MAX, 0, shared.taken);
    assert_int_equal(((struct flyt_lib_object *)*state)->sequence.is_lost, false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_kind_says_what_a_call_does),
        TEST(where_nothing_is_said_a_draw_loses),
        TEST(what_is_executed_counts),
        TEST(what_is_sent_counts_from_its_call_on),
        TEST(nothing_counts_twice_once_it_is_executed),
        TEST(what_has_no_number_yet_does_not_count),
        TEST(what_was_not_sent_does_not_count),
        TEST(what_takes_nothing_is_not_noted),
        TEST(it_is_lost_until_it_is_placed),
        TEST(a_place_is_where_counting_begins),
        TEST(a_place_leaves_what_is_about_to_be_sent),
        TEST(without_memory_it_is_lost),
        TEST(threads_lose_nothing_of_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
