#include "control/flytctl/test_command.h"

#include <stdlib.h>

struct test_server server;
struct test_result result;

int test_command_begin_all(void **state)
{
    sd_event *event;

    unsetenv("FLYT_MANAGER");
    assert_true(sd_event_new(&event) >= 0);
    test_server_init(&server, event);
    return 0;
}

int test_command_end_all(void **state)
{
    sd_event *event = server.event;

    test_result_fini(&result);
    test_server_fini(&server);
    sd_event_unref(event);
    return 0;
}

int test_command_begin(void **state)
{
    test_server_reset(&server);
    test_interrupt_after_ms = 0;
    return 0;
}

void test_command_run(unsigned columns, const char *typed, const char *const *words)
{
    test_result_fini(&result);
    result = (struct test_result){0};
    test_run(&server, columns, typed, &result, words);
}

void test_command_expect_status(int expected, int line)
{
    if (result.status != expected)
        fail_msg("line %d: exit status %d, expected %d; stdout: %s; stderr: %s", line, result.status, expected,
                 result.out, result.err);
}

cJSON *test_command_output(void)
{
    cJSON *json = cJSON_ParseWithOpts(result.out, NULL, true);

    if (!json)
        fail_msg("not JSON: %s", result.out);
    return json;
}
