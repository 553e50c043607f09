/*
 * What the channel itself costs, against a server in the same process that does nothing: time and CPU per one-way call
 * and per call with a reply, and bytes per second of transfers, over a unix socket and loopback TCP. And what rings in
 * shared memory cost between two processes that both spin: the median round trip, and bytes per second beside those of
 * one memcpy.
 *
 * usage: channel-bench
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "flyt_client_calls.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/endpoint/rings.h"
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

/* ---- rings between two processes ---- */

enum { MESSAGE_BYTES = 64, PIECE_BYTES = 64 * 1024 };

static void must(int status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "channel-bench: %s: %s\n", what, strerror(-status));
    exit(1);
}

/* All of it, without sleeping. */
static void spin_through(struct flyt_endpoint *end, char *data, size_t bytes, bool is_write)
{
    while (bytes) {
        const struct iovec part = {.iov_base = data, .iov_len = bytes};
        ssize_t done = is_write ? flyt_endpoint_write(end, &part, 1, false) : flyt_endpoint_read(end, &part, 1, false);
        if (done == -EAGAIN)
            continue;
        must(done ? (int)done : -EPIPE, "rings");
        data += done;
        bytes -= (size_t)done;
    }
}

static void stream(struct flyt_endpoint *end, char *memory, bool is_write)
{
    for (size_t at = 0; at < TRANSFER_BYTES; at += PIECE_BYTES)
        spin_through(end, memory + at, PIECE_BYTES, is_write);
}

static void answer(struct flyt_endpoint *end, char *memory)
{
    for (int i = 0; i < CALLS; i++) {
        spin_through(end, memory, MESSAGE_BYTES, false);
        spin_through(end, memory, MESSAGE_BYTES, true);
    }
    for (int round = 0; round < ROUNDS; round++) {
        stream(end, memory, false);
        spin_through(end, memory, 1, true);
    }
}

static int compare(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

static double median_trip_us(struct flyt_endpoint *end, char *memory)
{
    uint64_t *trips = malloc(CALLS * sizeof *trips);

    for (int i = 0; i < CALLS; i++) {
        uint64_t start_ns = flyt_clock_ns();
        spin_through(end, memory, MESSAGE_BYTES, true);
        spin_through(end, memory, MESSAGE_BYTES, false);
        trips[i] = flyt_clock_ns() - start_ns;
    }
    qsort(trips, CALLS, sizeof *trips, compare);
    double median = (double)trips[CALLS / 2] / 1000;
    free(trips);
    return median;
}

static void time_rings(struct flyt_endpoint *end, char *memory, char *other)
{
    double trip_us = median_trip_us(end, memory), best = 0, best_memcpy = 0;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start_ns = flyt_clock_ns();
        stream(end, memory, true);
        spin_through(end, other, 1, false);
        double rate = TRANSFER_BYTES / (double)(flyt_clock_ns() - start_ns);
        best = rate > best ? rate : best;
        start_ns = flyt_clock_ns();
        memcpy(other, memory, TRANSFER_BYTES);
        rate = TRANSFER_BYTES / (double)(flyt_clock_ns() - start_ns);
        best_memcpy = rate > best_memcpy ? rate : best_memcpy;
    }
    printf("rings round trip          %8.2f us, both spin\n", trip_us);
    printf("rings 256 MiB             %8.2f GB/s, one memcpy %.2f GB/s\n", best, best_memcpy);
}

static void measure_rings(void)
{
    struct flyt_rings rings[2];
    struct flyt_endpoint *ends[2];
    int fds[2], state = 0;
    char *memory = malloc(TRANSFER_BYTES), *other = malloc(TRANSFER_BYTES);

    memset(memory, 1, TRANSFER_BYTES);
    memset(other, 1, TRANSFER_BYTES);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) ? -errno : 0, "socketpair");
    must(flyt_rings_new(&rings[0]), "rings");
    must(flyt_rings_map(rings[0].fd, &rings[1]), "rings");
    for (unsigned i = 0; i < 2; i++) {
        must(flyt_endpoint_of_socket(fds[i], &ends[i]), "endpoint");
        must(flyt_endpoint_over_rings(ends[i], &rings[i], &ends[i]), "endpoint");
    }
    fflush(stdout);
    pid_t child = fork();
    must(child < 0 ? -errno : 0, "fork");
    if (!child) {
        answer(ends[1], memory);
        _exit(0);
    }
    time_rings(ends[0], memory, other);
    must(waitpid(child, &state, 0) < 0 ? -errno : 0, "waitpid");
    for (unsigned i = 0; i < 2; i++)
        flyt_endpoint_close(ends[i]);
    free(memory);
    free(other);
}

int main(void)
{
    char url[64];

    flyt_log_init("channel-bench", FLYT_LOG_WARN);
    snprintf(url, sizeof url, "unix:///tmp/flyt-channel-bench-%d", (int)getpid());
    measure("unix", url);
    measure("tcp", "tcp://127.0.0.1:0");
    measure_rings();
    return 0;
}
