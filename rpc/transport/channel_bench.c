/*
 * What the channel itself costs, against a server in the same process that does nothing: time and CPU per one-way call
 * and per call with a reply, and bytes per second of transfers, over a unix socket and loopback TCP.
 *
 * usage: channel-bench
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "flyt_client_calls.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/transport/test_peer.h"

enum { SENDS = 400000, CALLS = 20000, TRANSFER_BYTES = 256 * 1024 * 1024, ROUNDS = 5 };

struct sink {
    unsigned char *memory;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t arrived_bytes;
};

static void *place(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    return ((struct sink *)user)->memory + offset_bytes;
}

static void placed(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct sink *sink = user;

    pthread_mutex_lock(&sink->mutex);
    sink->arrived_bytes += bytes;
    pthread_cond_signal(&sink->changed);
    pthread_mutex_unlock(&sink->mutex);
}

static void ignore_pull(void *user, uint64_t transfer_id)
{
}

static void ignore_host_function(void *user, uint64_t function_id, int status)
{
}

static void ignore_output(void *user, bool is_error, const char *text, size_t bytes)
{
}

static void ignore_call_error(void *user, uint64_t sequence, uint32_t thread, int result)
{
}

static void ignore_fatal(void *user, int result, const char *cause)
{
}

static void ignore_credit(void *user, uint64_t stream_id, uint64_t executed_calls)
{
}

static void ignore_transfer_failed(void *user, uint64_t transfer_id, int result)
{
}

static void ignore_lost(void *user, const char *cause)
{
}

static const struct flyt_channel_handlers handlers = {
    .chunk_place = place,
    .chunk_done = placed,
    .pull = ignore_pull,
    .host_function = ignore_host_function,
    .output = ignore_output,
    .call_error = ignore_call_error,
    .fatal = ignore_fatal,
    .credit = ignore_credit,
    .transfer_failed = ignore_transfer_failed,
    .lost = ignore_lost,
};

static uint64_t thread_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void measure_sends(struct flyt_channel *channel, const char *name)
{
    char params[16] = {0};
    flyt_kernel_launch_args args = {
        .stream_id = 1, .kernel_id = 2, .grid = {1, 1, 1}, .block = {32, 1, 1}, .params = {sizeof params, params}};
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res res;
    double best_cpu = 1e9, best_wall = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start_ns = flyt_clock_ns(), start_cpu_ns = thread_ns();
        for (int i = 0; i < SENDS; i++)
            flyt_send_kernel_launch(channel, &args, NULL);
        uint64_t cpu_ns = thread_ns() - start_cpu_ns;
        flyt_call_session_barrier(channel, &barrier, &res);
        double cpu = (double)cpu_ns / SENDS, wall = (double)(flyt_clock_ns() - start_ns) / SENDS;
        best_cpu = cpu < best_cpu ? cpu : best_cpu;
        best_wall = wall < best_wall ? wall : best_wall;
    }
    printf("%-5s one-way call        %8.0f ns of CPU, %8.0f ns until executed\n", name, best_cpu, best_wall);
}

static void measure_calls(struct flyt_channel *channel, const char *name)
{
    flyt_stream_query_args args = {.stream_id = 1};
    flyt_stream_query_res res;
    double best = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start_ns = flyt_clock_ns();
        for (int i = 0; i < CALLS; i++)
            flyt_call_stream_query(channel, &args, &res);
        double each = (double)(flyt_clock_ns() - start_ns) / CALLS;
        best = each < best ? each : best;
    }
    printf("%-5s call with a reply   %8.2f us\n", name, best / 1000);
}

static void measure_transfers(struct flyt_channel *channel, struct sink *sink, struct test_peer *peer, const char *name)
{
    flyt_copy_out_transfer_args args = {.transfer_id = 1, .bytes = TRANSFER_BYTES};
    double best_in = 0, best_out = 0;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start_ns = flyt_clock_ns(), before = atomic_load(&peer->chunk_bytes);
        flyt_channel_send_data(channel, 0, sink->memory, TRANSFER_BYTES);
        while (atomic_load(&peer->chunk_bytes) - before < TRANSFER_BYTES && !flyt_channel_is_lost(channel))
            usleep(20);
        double rate = TRANSFER_BYTES / (double)(flyt_clock_ns() - start_ns);
        best_in = rate > best_in ? rate : best_in;

        sink->arrived_bytes = 0;
        start_ns = flyt_clock_ns();
        flyt_send_copy_out_transfer(channel, &args, NULL);
        flyt_channel_flush(channel);
        pthread_mutex_lock(&sink->mutex);
        while (sink->arrived_bytes < TRANSFER_BYTES && !flyt_channel_is_lost(channel))
            pthread_cond_wait(&sink->changed, &sink->mutex);
        pthread_mutex_unlock(&sink->mutex);
        rate = TRANSFER_BYTES / (double)(flyt_clock_ns() - start_ns);
        best_out = rate > best_out ? rate : best_out;
    }
    printf("%-5s 256 MiB to server   %8.2f GB/s, to client %8.2f GB/s\n", name, best_in, best_out);
}

static void measure(const char *name, const char *url)
{
    struct sink sink = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct flyt_channel_config config = {.handlers = &handlers, .user = &sink, .cuda_version = 13000};
    struct flyt_channel *channel;
    struct flyt_error err;
    struct test_peer peer;

    test_peer_init(&peer);
    peer.data_streams = 8;
    peer.memory_bytes = TRANSFER_BYTES;
    test_peer_start(&peer, url);
    memset(peer.memory, 1, peer.memory_bytes);
    sink.memory = malloc(TRANSFER_BYTES);
    memset(sink.memory, 1, TRANSFER_BYTES);
    config.url = peer.url;
    if (flyt_channel_open(&config, &err, &channel)) {
        fprintf(stderr, "channel-bench: %s\n", err.text);
        exit(1);
    }
    measure_sends(channel, name);
    measure_calls(channel, name);
    measure_transfers(channel, &sink, &peer, name);
    flyt_channel_close(channel);
    test_peer_stop(&peer);
    free(sink.memory);
}

int main(void)
{
    char url[64];

    flyt_log_init("channel-bench", FLYT_LOG_WARN);
    snprintf(url, sizeof url, "unix:///tmp/flyt-channel-bench-%d", (int)getpid());
    measure("unix", url);
    measure("tcp", "tcp://127.0.0.1:0");
    return 0;
}
