/* Metrics of a large cluster: lists that are set anew, and answers that are made in pieces. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/base/metrics.h"

static void assert_has(const char *text, const char *line)
{
    if (!strstr(text, line))
        fail_msg("not there: %s", line);
}

/* What is not set again goes; what others add to is not touched. */
static void lists_are_renewed(void **state)
{
    struct flyt_metrics *metrics = flyt_metrics_new();
    struct flyt_metric *list = flyt_metric_new(metrics, FLYT_GAUGE, "l", "vm", "L.", NULL);
    struct flyt_metric *total = flyt_metric_new(metrics, FLYT_COUNTER, "t_total", "vm", "T.", NULL);
    char longest[4000], line[4100];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    flyt_metric_set(list, (const char *[]){"a"}, 1);
    flyt_metric_set(list, (const char *[]){"b"}, 2);
    flyt_metric_add(total, (const char *[]){"a"}, 3);
    flyt_metric_renew(list);
    flyt_metric_set(list, (const char *[]){"b"}, 4);
    flyt_metric_set(list, (const char *[]){longest}, 5);
    for (unsigned i = 0; i < 2; i++) {
        char *text = flyt_metrics_text(metrics);
        assert_null(strstr(text, "\nl{vm=\"a\"}"));
        assert_has(text, "\nl{vm=\"b\"} 4\n");
        snprintf(line, sizeof line, "\nl{vm=\"%s\"} 5\n", longest);
        assert_has(text, line);
        assert_has(text, "\nt_total{vm=\"a\"} 3\n");
        free(text);
    }
    flyt_metrics_free(metrics);
}

enum { SERIES = 120000, SERIES_AT_ONCE = 100, ASKING = 3 };

struct asking {
    struct crowd *crowd;
    pthread_t thread;
    size_t lines;
    bool is_whole;
};

struct crowd {
    sd_event *event;
    struct flyt_metrics *metrics;
    struct flyt_metric *list;
    int port, exit_fd; /* exit_fd -1: nobody is told */
    unsigned ended, beats_while_made;
    bool is_making;
    struct asking asking[ASKING];
};

static bool refresh(void *user, uint64_t *position)
{
    struct crowd *crowd = user;
    if (!*position)
        flyt_metric_renew(crowd->list);
    crowd->is_making = true;
    for (unsigned i = 0; i < SERIES_AT_ONCE; i++, ++*position) {
        char name[32];
        snprintf(name, sizeof name, "vm-%u", (unsigned)*position);
        flyt_metric_set(crowd->list, (const char *[]){name, "a"}, (double)*position);
    }
    return *position < SERIES;
}

static void *ask(void *user)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    struct asking *asking = user;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)asking->crowd->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const size_t bytes = 65536;
    char *text = malloc(bytes), last = 0;
    bool is_first = true, is_good = false;
    ssize_t got;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) ||
        write(fd, request, sizeof request - 1) != sizeof request - 1)
        abort();
    while ((got = read(fd, text, bytes - 1)) > 0) {
        text[got] = 0;
        is_good |= is_first && strstr(text, "200 OK");
        is_first = false;
        for (ssize_t i = 0; i < got; i++)
            asking->lines += text[i] == '\n';
        last = text[got - 1];
    }
    asking->is_whole = is_good && got == 0 && last == '\n';
    close(fd);
    free(text);
    if (asking->crowd->exit_fd >= 0 && write(asking->crowd->exit_fd, "x", 1) != 1)
        abort();
    return NULL;
}

static void start(struct crowd *crowd, unsigned i)
{
    crowd->asking[i].crowd = crowd;
    assert_int_equal(pthread_create(&crowd->asking[i].thread, NULL, ask, &crowd->asking[i]), 0);
}

/* Something else that the loop has to do, all the time. */
static int beat(sd_event_source *source, uint64_t at_us, void *user)
{
    struct crowd *crowd = user;
    crowd->beats_while_made += crowd->is_making;
    sd_event_source_set_time_relative(source, 0);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int end_one(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct crowd *crowd = user;
    char byte;
    crowd->is_making = false;
    if (read(fd, &byte, 1) == 1 && ++crowd->ended == ASKING)
        return sd_event_exit(crowd->event, 0);
    return 0;
}

static struct flyt_metrics_server *serve(struct crowd *crowd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct flyt_metrics_server *server;
    struct flyt_error err = {0};
    char listen[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_return_code(bind(fd, (struct sockaddr *)&address, bytes), errno);
    assert_return_code(getsockname(fd, (struct sockaddr *)&address, &bytes), errno);
    close(fd);
    crowd->port = ntohs(address.sin_port);
    crowd->metrics = flyt_metrics_new();
    crowd->list = flyt_metric_new(crowd->metrics, FLYT_GAUGE, "crowd", "vm gpu", "C.", NULL);
    assert_true(sd_event_new(&crowd->event) >= 0);
    snprintf(listen, sizeof listen, "127.0.0.1:%d", crowd->port);
    if (flyt_metrics_serve(crowd->metrics, crowd->event, listen, refresh, crowd, &err, &server))
        fail_msg("%s", err.text);
    return server;
}

static void a_large_answer_is_made_in_pieces(void **state)
{
    struct crowd crowd = {0};
    sd_event_source *heart;
    int pipe_fds[2];
    assert_return_code(pipe(pipe_fds), errno);
    crowd.exit_fd = pipe_fds[1];
    struct flyt_metrics_server *server = serve(&crowd);
    flyt_metric_set(crowd.list, (const char *[]){"gone", "a"}, 1);
    assert_true(sd_event_add_io(crowd.event, NULL, pipe_fds[0], EPOLLIN, end_one, &crowd) >= 0);
    assert_true(sd_event_add_time_relative(crowd.event, &heart, CLOCK_MONOTONIC, 0, 1, beat, &crowd) >= 0);
    for (unsigned i = 0; i < ASKING; i++)
        start(&crowd, i);
    assert_true(sd_event_loop(crowd.event) >= 0);
    for (unsigned i = 0; i < ASKING; i++) {
        pthread_join(crowd.asking[i].thread, NULL);
        assert_true(crowd.asking[i].is_whole);
        /* The list, its two lines of text, and the head of the answer; not what is gone. */
        assert_in_range(crowd.asking[i].lines, SERIES + 3, SERIES + 12);
    }
    /* An answer that is made at once, or in two halves, is not made while others have their turn ten times. */
    assert_true(crowd.beats_while_made >= 10);
    sd_event_source_unref(heart);
    assert_null(flyt_metrics_server_free(server));
    flyt_metrics_free(crowd.metrics);
    sd_event_unref(crowd.event);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* The daemon's end, while somebody waits. */
static void an_end_while_an_answer_is_made(void **state)
{
    struct crowd crowd = {.exit_fd = -1};
    struct flyt_metrics_server *server = serve(&crowd);
    start(&crowd, 0);
    while (!crowd.is_making)
        assert_true(sd_event_run(crowd.event, UINT64_MAX) >= 0);
    assert_null(flyt_metrics_server_free(server));
    pthread_join(crowd.asking[0].thread, NULL);
    assert_false(crowd.asking[0].is_whole);
    flyt_metrics_free(crowd.metrics);
    sd_event_unref(crowd.event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_renewed),
        cmocka_unit_test(a_large_answer_is_made_in_pieces),
        cmocka_unit_test(an_end_while_an_answer_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
