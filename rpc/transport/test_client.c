#include "rpc/transport/test_client.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "flyt_client_calls.h"

/* A program that sees all devices, in the server's order. */
unsigned flyt_wire_device(unsigned device)
{
    return device;
}

static void __attribute__((format(printf, 2, 3))) note(struct test_client *client, const char *format, ...)
{
    va_list values;

    pthread_mutex_lock(&client->mutex);
    size_t used = strlen(client->notices);
    va_start(values, format);
    vsnprintf(client->notices + used, sizeof client->notices - used, format, values);
    va_end(values);
    pthread_mutex_unlock(&client->mutex);
}

static void *chunk_place(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct test_client *client = user;

    return client->place && offset_bytes + bytes <= client->place_bytes ? client->place + offset_bytes : NULL;
}

static void chunk_done(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct test_client *client = user;

    note(client, "chunk %" PRIu64 " %" PRIu64 " %zu; ", transfer_id, offset_bytes, bytes);
    atomic_fetch_add(&client->chunk_bytes, bytes);
}

static void pull(void *user, uint64_t transfer_id)
{
    note(user, "pull %" PRIu64 "; ", transfer_id);
}

static void host_function(void *user, uint64_t function_id, int status)
{
    struct test_client *client = user;
    flyt_host_function_done_args done = {.function_id = function_id};

    if (client->answers_host_functions)
        flyt_send_host_function_done(client->channel, &done, NULL);
    atomic_fetch_add(&client->host_functions, 1);
}

static void output(void *user, bool is_error, const char *text, size_t bytes)
{
    note(user, "%s %.*s; ", is_error ? "error output" : "output", (int)bytes, text);
}

static void call_error(void *user, uint64_t sequence, uint32_t thread, int result)
{
    note(user, "error %" PRIu64 " %u %d; ", sequence, thread, result);
}

static void fatal(void *user, int result, const char *cause)
{
    note(user, "fatal %d %s; ", result, cause);
}

static void credit(void *user, uint64_t stream_id, uint64_t executed_calls)
{
    note(user, "credit %" PRIu64 " %" PRIu64 "; ", stream_id, executed_calls);
}

static void transfer_failed(void *user, uint64_t transfer_id, int result)
{
    note(user, "failed %" PRIu64 " %d; ", transfer_id, result);
}

static void lost(void *user, const char *cause)
{
    struct test_client *client = user;

    snprintf(client->lost_cause, sizeof client->lost_cause, "%s", cause);
    atomic_fetch_add(&client->lost_count, 1);
}

static int resume(void *user, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct test_client *client = user;
    flyt_stream_create_args stream = {.stream_id = 3};
    flyt_memory_restore_args memory = {0};
    flyt_memory_restore_res res;

    note(client, "%s %" PRIu64 "; ", fresh ? "resume" : "stay", flyt_channel_resume_after(client->channel));
    atomic_fetch_add(&client->resume_count, 1);
    if (client->resume)
        return client->resume(client, fresh, err);
    if (!fresh)
        return 0;
    if (flyt_send_stream_create(fresh, &stream, NULL) || flyt_call_memory_restore(fresh, &memory, &res) || res.result)
        return flyt_error_set(err, -EPROTO, "the test's objects were not made again");
    return 0;
}

const struct flyt_channel_handlers test_client_handlers = {
    .chunk_place = chunk_place,
    .chunk_done = chunk_done,
    .pull = pull,
    .host_function = host_function,
    .output = output,
    .call_error = call_error,
    .fatal = fatal,
    .credit = credit,
    .transfer_failed = transfer_failed,
    .lost = lost,
    .resume = resume,
};

void test_client_init(struct test_client *client)
{
    memset(client, 0, sizeof *client);
    pthread_mutex_init(&client->mutex, NULL);
    client->config = (struct flyt_channel_config){
        .handlers = &test_client_handlers, .user = client, .cuda_version = 13000, .connect_timeout_ms = 600000};
}

void test_client_fini(struct test_client *client)
{
    pthread_mutex_destroy(&client->mutex);
}

void test_client_open(struct test_client *client, const char *url)
{
    struct flyt_error err;

    client->config.url = url;
    if (flyt_channel_open(&client->config, &err, &client->channel))
        fail_msg("%s", err.text);
}

void test_client_pause(uint64_t end_ms, const char *awaited)
{
    if (flyt_clock_ms() > end_ms)
        fail_msg("not even after a long while: %s", awaited);
    usleep(200);
}

void test_client_wait(struct test_client *client, _Atomic(uint64_t) *number, uint64_t expected)
{
    TEST_WAIT_UNTIL(atomic_load(number) >= expected);
    assert_int_equal(atomic_load(number), expected);
}
