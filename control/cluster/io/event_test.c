#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "control/base/json_memory.h"
#include "control/cluster/io/event.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/settings.h"

static _Thread_local unsigned left_count;

static void *allocate_few(size_t bytes)
{
    return left_count && !--left_count ? NULL : malloc(bytes);
}

/* What a change has been to, as callers say it: nothing of it is checked there. */
static cJSON *change(void)
{
    cJSON *object = cJSON_CreateObject();

    cJSON_AddNumberToObject(object, "sm", 8);
    cJSON_AddNumberToObject(object, "memory_bytes", 4096);
    return object;
}

/* An event is told whatever memory its details found, and never with details that lack a part unsaid. */
static void test_details_are_whole_or_said_to_be_not(void **state)
{
    const struct flyt_cluster_settings settings = {.events_max = 64};
    struct flyt_cluster cluster = {.settings = &settings, .events.next_sequence = 1, .events.is_saving = true};
    unsigned incomplete_count = 0;

    flyt_json_watch_memory(allocate_few);
    for (unsigned n = 1; n <= 16; n++) { /* the n-th allocation fails; two changes need fewer */
        left_count = n;
        cJSON *before = change(), *after = change();
        bool has_failed = !left_count;
        left_count = 0;
        flyt_event_add(&cluster, "vm.changed", "operator", "10.0.0.1", before, after, "resized");
        const struct flyt_event *event = &cluster.events.items[n - 1];
        assert_int_equal(cluster.events.count, n);
        assert_string_equal(event->before, has_failed ? "{\"incomplete\":true}" : "{\"sm\":8,\"memory_bytes\":4096}");
        assert_string_equal(event->after, event->before);
        incomplete_count += has_failed;
    }
    assert_in_range(incomplete_count, 2, 15);
    flyt_json_watch_memory(NULL);
    flyt_event_fini(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_details_are_whole_or_said_to_be_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
