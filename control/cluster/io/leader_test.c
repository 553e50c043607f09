#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "control/base/json_memory.h"
#include "control/cluster/io/leader.h"
#include "control/store/json.h"

static _Thread_local unsigned left_count;

static void *allocate_few(size_t bytes)
{
    return left_count && !--left_count ? NULL : malloc(bytes);
}

/* A document that a new leader writes has its epoch, and all that it had before, or is not written. */
static void test_a_document_is_raised_whole_or_not(void **state)
{
    static const char text[] = "{\"_id\":\"GPU-1\",\"revision\":4,\"epoch\":2,\"parts\":[{\"id\":\"7\"}]}";
    static const char raised_text[] = "{\"_id\":\"GPU-1\",\"revision\":4,\"parts\":[{\"id\":\"7\"}],\"epoch\":3}";
    cJSON *document = cJSON_Parse(text), *wanted = cJSON_Parse(raised_text);
    unsigned refused_count = 0;

    assert_true(document && wanted);
    flyt_json_watch_memory(allocate_few);
    for (unsigned n = 1; n <= 32; n++) { /* the n-th allocation fails; one document needs fewer */
        left_count = n;
        cJSON *raised = flyt_lead_raised(document, 3);
        bool has_failed = !left_count;
        left_count = 0;
        assert_true(has_failed == !raised);
        assert_true(has_failed || flyt_json_equal(raised, wanted, false));
        refused_count += has_failed;
        cJSON_Delete(raised);
    }
    assert_in_range(refused_count, 8, 31);
    flyt_json_watch_memory(NULL);
    cJSON_Delete(document);
    cJSON_Delete(wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_document_is_raised_whole_or_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
