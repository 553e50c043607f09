/* Whether a session that goes on has what it had: of every kind that rows name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/core/session.h"
#include "cpu/server/move/common/counts.h"
#include "flyt_objects.h"

enum { UNKNOWN_KIND = 0xee };

struct fixture {
    struct flyt_session session; /* without a device: no memory */
    struct flyt_object objects[8];
    flyt_checkpoint_counts counts;
    flyt_checkpoint_tallies tallies;
    struct flyt_error err;
};

static void put(struct fixture *self, unsigned place, enum flyt_id_type type, uint64_t number)
{
    self->objects[place].id = flyt_id(type, number);
    assert_int_equal(flyt_object_insert(&self->session.objects, &self->objects[place], type), 0);
}

/* Two streams of the program's beside a default one, and one event. */
static int begin(void **state)
{
    struct fixture *self = *state = calloc(1, sizeof *self);
    flyt_objects_init(&self->session.objects);
    put(self, 0, FLYT_ID_STREAM, 1);
    put(self, 1, FLYT_ID_STREAM, FLYT_ID_STREAM_FIRST);
    put(self, 2, FLYT_ID_STREAM, FLYT_ID_STREAM_FIRST + 1);
    put(self, 3, FLYT_ID_EVENT, 1);
    flyt_counts_take(&self->session, &self->counts, &self->tallies);
    return 0;
}

static int end(void **state)
{
    struct fixture *self = *state;
    flyt_objects_fini(&self->session.objects);
    free(self);
    return 0;
}

static int compare(struct fixture *self)
{
    return flyt_counts_compare(&self->session, &self->counts, &self->tallies, &self->err);
}

static flyt_checkpoint_tally *tally_of(struct fixture *self, unsigned kind)
{
    for (unsigned i = 0; i < FLYT_CHECKPOINT_TALLIES_MAX; i++)
        if (self->tallies.kinds[i].kind == kind)
            return &self->tallies.kinds[i];
    return NULL;
}

static void every_kind_is_told(void **state)
{
    struct fixture *self = *state;
    for (unsigned kind = 0; kind < FLYT_OBJECTS_KINDS; kind++)
        assert_non_null(tally_of(self, flyt_objects_rows[kind].type));
    assert_int_equal(tally_of(self, FLYT_ID_STREAM)->count, 2); /* default streams come with their devices */
    assert_int_equal(tally_of(self, FLYT_ID_LIBRARY)->count, 0);
    assert_true(self->counts.streams == 2 && self->counts.events == 1 && !self->counts.libraries);
    assert_int_equal(compare(self), 0);
}

static void one_too_few_or_too_many_is_found(void **state)
{
    struct fixture *self = *state;
    put(self, 4, FLYT_ID_EVENT, 2);
    assert_true(compare(self) < 0);
    assert_string_equal(self->err.text, "its client has made 2 events again, and it had 1");
    self->counts.refused = 1; /* the program has one more, of which it never heard that it could not be made */
    assert_int_equal(compare(self), 0);
    flyt_object_remove(&self->session.objects, &self->objects[2]);
    assert_true(compare(self) < 0);
    assert_string_equal(self->err.text, "its client has made 1 streams again, and it had 2");
    put(self, 2, FLYT_ID_STREAM, FLYT_ID_STREAM_FIRST + 1);
    put(self, 5, FLYT_ID_LIBRARY, 1); /* whose maker waits for an answer */
    assert_true(compare(self) < 0);
    assert_string_equal(self->err.text, "its client has made 1 libraries again, and it had 0");
}

/* As many as there were, but another flag or priority: what rows say of their making is compared. */
static void what_they_were_made_of_is_compared(void **state)
{
    struct fixture *self = *state;
    const uint64_t stream_id = flyt_id(FLYT_ID_STREAM, FLYT_ID_STREAM_FIRST), event_id = flyt_id(FLYT_ID_EVENT, 1);
    flyt_objects_note_made(&self->session.objects, stream_id, 7);
    flyt_objects_note_made(&self->session.objects, event_id, 8);
    flyt_objects_note_made(&self->session.objects, flyt_id(FLYT_ID_EVENT, 99), 8); /* there is none */
    flyt_counts_take(&self->session, &self->counts, &self->tallies);
    assert_int_equal(compare(self), 0);
    flyt_objects_note_made(&self->session.objects, stream_id, 9);
    assert_true(compare(self) < 0);
    assert_string_equal(self->err.text, "its client has made streams again that are not what they were");
    flyt_objects_note_made(&self->session.objects, stream_id, 7);
    flyt_objects_note_made(&self->session.objects, event_id, 7);
    assert_true(compare(self) < 0);
    assert_string_equal(self->err.text, "its client has made events again that are not what they were");
    tally_of(self, FLYT_ID_EVENT)->digest = 0; /* an older server told none */
    assert_int_equal(compare(self), 0);
}

/* Objects of libraries, whose handler notes the row that made them. */
static void the_calls_that_made_objects_of_libraries_are_compared(void **state)
{
    struct fixture *self = *state;
    put(self, 4, FLYT_ID_LIBOBJECT, 1);
    put(self, 5, FLYT_ID_LIBOBJECT, 2);
    self->objects[4].made = 7;
    self->objects[5].made = 8;
    flyt_counts_take(&self->session, &self->counts, &self->tallies);
    assert_int_not_equal(tally_of(self, FLYT_ID_LIBOBJECT)->digest, 0);
    assert_int_equal(compare(self), 0);
    self->objects[4].made = 8; /* as many of each, and under other ids */
    self->objects[5].made = 7;
    assert_true(compare(self) < 0);
    assert_string_equal(self->err.text, "its client has made libobjects again that are not what they were");
}

/* A server before this one told libraries, streams and events alone. */
static void what_older_servers_told_is_compared(void **state)
{
    struct fixture *self = *state;
    memset(&self->tallies, 0xff, sizeof self->tallies);
    flyt_counts_told(&self->counts, &self->tallies);
    assert_int_equal(compare(self), 0);
    put(self, 4, FLYT_ID_EVENT, 2);
    assert_true(compare(self) < 0);
}

/* And one after this one may have kinds that are unknown here. */
static void a_kind_that_is_unknown_here(void **state)
{
    struct fixture *self = *state;
    flyt_checkpoint_tally *more = tally_of(self, 0);
    *more = (flyt_checkpoint_tally){UNKNOWN_KIND, 0, 0};
    assert_int_equal(compare(self), 0);
    more->count = 3;
    assert_true(compare(self) < 0);
    assert_string_equal(self->err.text, "it had 3 objects of kind 0xee, which this server does not know: it is older");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_kind_is_told, begin, end),
        cmocka_unit_test_setup_teardown(one_too_few_or_too_many_is_found, begin, end),
        cmocka_unit_test_setup_teardown(what_they_were_made_of_is_compared, begin, end),
        cmocka_unit_test_setup_teardown(the_calls_that_made_objects_of_libraries_are_compared, begin, end),
        cmocka_unit_test_setup_teardown(what_older_servers_told_is_compared, begin, end),
        cmocka_unit_test_setup_teardown(a_kind_that_is_unknown_here, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
