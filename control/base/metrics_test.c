/* Metrics: the text of each kind, and the HTTP server on an event loop. */
#include "control/base/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static void assert_has(const char *text, const char *line)
{
    if (!strstr(text, line))
        fail_msg("not there: %s\n%s", line, text);
}

static void text_is_prometheus(void **state)
{
    struct flyt_metrics *metrics = flyt_metrics_new();
    struct flyt_metric *plain = flyt_metric_new(metrics, FLYT_COUNTER, "a_total", "", "All.", NULL);
    struct flyt_metric *labelled = flyt_metric_new(metrics, FLYT_GAUGE, "b_bytes", "vm gpu", "Some.", NULL);
    static const double bounds[] = {0.1, 1, 0};
    struct flyt_metric *times = flyt_metric_new(metrics, FLYT_HISTOGRAM, "c_seconds", "call", "Times.", bounds);
    char *text = flyt_metrics_text(metrics);
    assert_has(text, "# HELP a_total All.\n# TYPE a_total counter\na_total 0\n");
    free(text);
    flyt_metric_add(plain, NULL, 2);
    flyt_metric_add(plain, NULL, 0.5);
    flyt_metric_set(labelled, (const char *[]){"10.0.0.1", "a\"b\\c\nd"}, 8589934592.0);
    flyt_metric_set(labelled, (const char *[]){"10.0.0.2", "x"}, 1);
    flyt_metric_observe(times, (const char *[]){"attach"}, 0.05);
    flyt_metric_observe(times, (const char *[]){"attach"}, 0.1);
    flyt_metric_observe(times, (const char *[]){"attach"}, 0.5);
    flyt_metric_observe(times, (const char *[]){"attach"}, 20);
    text = flyt_metrics_text(metrics);
    assert_has(text, "\na_total 2.5\n");
    assert_has(text, "\nb_bytes{vm=\"10.0.0.1\",gpu=\"a\\\"b\\\\c\\nd\"} 8589934592\n");
    assert_has(text, "\nc_seconds_bucket{call=\"attach\",le=\"0.1\"} 2\n");
    assert_has(text, "\nc_seconds_bucket{call=\"attach\",le=\"1\"} 3\n");
    assert_has(text, "\nc_seconds_bucket{call=\"attach\",le=\"+Inf\"} 4\n");
    assert_has(text, "\nc_seconds_count{call=\"attach\"} 4\n");
    assert_has(text, "\nc_seconds_sum{call=\"attach\"} 20.65\n");
    free(text);
    flyt_metric_renew(labelled);
    flyt_metric_set(labelled, (const char *[]){"10.0.0.3", "y"}, 3);
    text = flyt_metrics_text(metrics);
    assert_null(strstr(text, "10.0.0.1"));
    assert_has(text, "\nb_bytes{vm=\"10.0.0.3\",gpu=\"y\"} 3\n");
    free(text);
    assert_null(flyt_metrics_free(metrics));
}

struct asking {
    sd_event *event;
    struct flyt_metric *gauge;
    int port;
    char answers[3][4096];
    int exit_fd;
};

static void ask(struct asking *asking, const char *request, char *ret_answer)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)asking->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_return_code(connect(fd, (struct sockaddr *)&address, sizeof address), errno);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    size_t used = 0;
    ssize_t got;
    while (used < 4095 && (got = read(fd, ret_answer + used, 4095 - used)) > 0)
        used += (size_t)got;
    close(fd);
}

static void *ask_all(void *user)
{
    struct asking *asking = user;
    ask(asking, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", asking->answers[0]);
    ask(asking, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", asking->answers[1]);
    ask(asking, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        asking->answers[2]);
    assert_int_equal(write(asking->exit_fd, "x", 1), 1);
    return NULL;
}

static int end(sd_event_source *source, int fd, uint32_t events, void *user)
{
    return sd_event_exit(sd_event_source_get_event(source), 0);
}

static bool refresh(void *user, uint64_t *position)
{
    flyt_metric_set(((struct asking *)user)->gauge, NULL, 42);
    return ++*position < 3;
}

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_return_code(bind(fd, (struct sockaddr *)&address, bytes), errno);
    assert_return_code(getsockname(fd, (struct sockaddr *)&address, &bytes), errno);
    close(fd);
    return ntohs(address.sin_port);
}

static void http_answers(void **state)
{
    struct flyt_metrics *metrics = flyt_metrics_new();
    struct asking asking = {.port = free_port()};
    struct flyt_metrics_server *server, *second;
    struct flyt_error err = {0};
    char listen[64];
    int pipe_fds[2];
    pthread_t thread;
    asking.gauge = flyt_metric_new(metrics, FLYT_GAUGE, "g", "", "G.", NULL);
    assert_true(sd_event_new(&asking.event) >= 0);
    assert_return_code(pipe(pipe_fds), errno);
    asking.exit_fd = pipe_fds[1];
    snprintf(listen, sizeof listen, "127.0.0.1:%d", asking.port);
    assert_int_equal(flyt_metrics_serve(metrics, asking.event, listen, refresh, &asking, &err, &server), 0);
    assert_true(flyt_metrics_serve(metrics, asking.event, listen, NULL, NULL, &err, &second) < 0);
    assert_non_null(strstr(err.text, listen));
    assert_true(flyt_metrics_serve(metrics, asking.event, "localhost", NULL, NULL, &err, &second) < 0);
    assert_true(sd_event_add_io(asking.event, NULL, pipe_fds[0], EPOLLIN, end, NULL) >= 0);
    assert_int_equal(pthread_create(&thread, NULL, ask_all, &asking), 0);
    assert_true(sd_event_loop(asking.event) >= 0);
    pthread_join(thread, NULL);
    assert_has(asking.answers[0], "200 OK");
    assert_has(asking.answers[0], "\ng 42\n");
    assert_has(asking.answers[1], "\r\n\r\nok\n");
    assert_has(asking.answers[2], "405");
    assert_null(flyt_metrics_server_free(server));
    flyt_metrics_free(metrics);
    sd_event_unref(asking.event);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_is_prometheus), cmocka_unit_test(http_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
