#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#include "control/client/client.h"
#include "control/base/json_memory.h"

const char *__wrap_flyt_uplink_address(const struct flyt_uplink *uplink);
const char *__wrap_flyt_uplink_cause(const struct flyt_uplink *uplink);
bool __wrap_flyt_uplink_is_up(const struct flyt_uplink *uplink);

const char *__wrap_flyt_uplink_address(const struct flyt_uplink *uplink)
{
    return "tcp://10.0.0.9:7700";
}

const char *__wrap_flyt_uplink_cause(const struct flyt_uplink *uplink)
{
    return "";
}

bool __wrap_flyt_uplink_is_up(const struct flyt_uplink *uplink)
{
    return true;
}

static _Thread_local unsigned left_count;

static void *allocate_few(size_t bytes)
{
    return left_count && !--left_count ? NULL : malloc(bytes);
}

static bool is_whole(const char *text)
{
    static const char *const members[] = {"vm_ip", "build",     "manager",    "connected",
                                          "cause", "uptime_ms", "allocation", "programs"};
    static const char *const of_allocation[] = {"id", "node", "revision", "generation", "data_urls", "devices"};
    cJSON *object = cJSON_Parse(text);
    const cJSON *allocation = cJSON_GetObjectItem(object, "allocation");
    const cJSON *device = cJSON_GetArrayItem(cJSON_GetObjectItem(allocation, "devices"), 0);
    bool is_whole = cJSON_GetArraySize(cJSON_GetObjectItem(allocation, "data_urls")) == 1;

    for (unsigned i = 0; i < sizeof members / sizeof members[0]; i++)
        is_whole &= cJSON_HasObjectItem(object, members[i]);
    for (unsigned i = 0; i < sizeof of_allocation / sizeof of_allocation[0]; i++)
        is_whole &= cJSON_HasObjectItem(allocation, of_allocation[i]);
    is_whole &= cJSON_HasObjectItem(device, "gpu") && cJSON_HasObjectItem(device, "sms") &&
                cJSON_HasObjectItem(device, "memory_bytes");
    cJSON_Delete(object);
    return is_whole;
}

/* What is shown has all its members, or there is no answer. */
static void test_an_answer_is_whole_or_there_is_none(void **state)
{
    const struct flyt_client_settings settings = {.vm_ip = (char *)"10.0.0.1"};
    char *url = (char *)"tcp://10.0.0.2:7701";
    flyt_slot slot = {.gpu_uuid = (char *)"GPU-1", .sm_count = 16, .memory_bytes = 1 << 20};
    flyt_grant grant = {.node = (char *)"n1", .data_urls = {1, &url}, .allocation = {.id = 7, .slots = {1, &slot}}};
    const struct flyt_client_manager manager = {.settings = &settings, .grants = &grant, .grant_count = 1};
    unsigned refused_count = 0;

    flyt_json_watch_memory(allocate_few);
    for (unsigned n = 1; n <= 200; n++) { /* the n-th allocation fails; one answer needs fewer */
        left_count = n;
        char *text = flyt_status_json(&manager);
        bool has_failed = !left_count;
        left_count = 0;
        assert_true(has_failed == !text);
        assert_true(has_failed || is_whole(text));
        refused_count += has_failed;
        free(text);
    }
    assert_in_range(refused_count, 40, 199);
    flyt_json_watch_memory(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_answer_is_whole_or_there_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
