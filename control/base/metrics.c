#include "control/base/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <search.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rpc/base/log.h"

enum { BUCKETS_MAX = 24, CONNECTIONS_MAX = 16, CONNECTION_S = 10 };

static const double default_buckets[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                         0.25,   0.5,   1,      2.5,   5,    10,    0};

struct series {
    struct series *next, *previous;
    char *labels; /* as in the text: a="x",b="y"; "" without labels */
    double value; /* a histogram's sum */
    uint64_t count;
    uint64_t buckets[BUCKETS_MAX]; /* not cumulative */
};

struct flyt_metric {
    struct flyt_metric *next;
    enum flyt_metric_kind kind;
    char *name, *help;
    char *label_names[FLYT_METRIC_LABELS_MAX];
    unsigned label_count;
    double bounds[BUCKETS_MAX];
    unsigned bucket_count;
    struct series *series, *series_last; /* in the order in which they came */
    void *tree;                          /* the same by labels (tsearch(3)) */
};

struct flyt_metrics {
    struct flyt_metric *first, **end;
};

struct flyt_metrics *flyt_metrics_new(void)
{
    struct flyt_metrics *metrics = calloc(1, sizeof *metrics);
    if (metrics)
        metrics->end = &metrics->first;
    return metrics;
}

static int compare(const void *one, const void *other)
{
    return strcmp(((const struct series *)one)->labels, ((const struct series *)other)->labels);
}

static void forget(struct flyt_metric *metric, struct series *series)
{
    tdelete(series, &metric->tree, compare);
    *(series->previous ? &series->previous->next : &metric->series) = series->next;
    *(series->next ? &series->next->previous : &metric->series_last) = series->previous;
    free(series->labels);
    free(series);
}

static void forget_all(struct flyt_metric *metric)
{
    while (metric->series)
        forget(metric, metric->series);
}

static void metric_free(struct flyt_metric *metric)
{
    forget_all(metric);
    for (unsigned i = 0; i < metric->label_count; i++)
        free(metric->label_names[i]);
    free(metric->name);
    free(metric->help);
    free(metric);
}

struct flyt_metrics *flyt_metrics_free(struct flyt_metrics *metrics)
{
    while (metrics && metrics->first) {
        struct flyt_metric *metric = metrics->first;
        metrics->first = metric->next;
        metric_free(metric);
    }
    free(metrics);
    return NULL;
}

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            fputc('\\', out);
        if (*text == '\n')
            fputs("\\n", out);
        else
            fputc(*text, out);
    }
}

static char *labels_text(const struct flyt_metric *metric, const char *const *values)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (unsigned i = 0; i < metric->label_count; i++) {
        fprintf(out, "%s%s=\"", i ? "," : "", metric->label_names[i]);
        put_escaped(out, values[i] ? values[i] : "");
        fputc('"', out);
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static struct series *find(struct flyt_metric *metric, const char *const *values, bool may_make)
{
    struct series key = {.labels = labels_text(metric, values)};
    if (!key.labels)
        return NULL;
    struct series **at = tfind(&key, &metric->tree, compare);
    struct series *series = at ? *at : NULL;
    if (series || !may_make || !(series = calloc(1, sizeof *series))) {
        free(key.labels);
        return series;
    }
    series->labels = key.labels;
    if (!tsearch(series, &metric->tree, compare)) {
        free(key.labels);
        free(series);
        return NULL;
    }
    series->previous = metric->series_last;
    *(series->previous ? &series->previous->next : &metric->series) = series;
    metric->series_last = series;
    return series;
}

static int take_label_names(struct flyt_metric *metric, const char *labels)
{
    while (*labels && metric->label_count < FLYT_METRIC_LABELS_MAX) {
        size_t bytes = strcspn(labels, " ");
        char *name = strndup(labels, bytes);
        if (!name)
            return -ENOMEM;
        metric->label_names[metric->label_count++] = name;
        labels += bytes;
        labels += strspn(labels, " ");
    }
    return 0;
}

struct flyt_metric *flyt_metric_new(struct flyt_metrics *metrics, enum flyt_metric_kind kind, const char *name,
                                    const char *labels, const char *help, const double *buckets)
{
    struct flyt_metric *metric = calloc(1, sizeof *metric);
    if (!metric)
        return NULL;
    metric->kind = kind;
    metric->name = strdup(name);
    metric->help = strdup(help);
    for (const double *bound = buckets ? buckets : default_buckets; *bound > 0 && metric->bucket_count < BUCKETS_MAX;
         bound++)
        metric->bounds[metric->bucket_count++] = *bound;
    bool is_made = metric->name && metric->help && take_label_names(metric, labels) == 0;
    if (is_made && !metric->label_count)
        is_made = find(metric, NULL, true);
    if (!is_made) {
        metric_free(metric);
        return NULL;
    }
    *metrics->end = metric;
    metrics->end = &metric->next;
    return metric;
}

void flyt_metric_add(struct flyt_metric *metric, const char *const *values, double amount)
{
    struct series *series = metric ? find(metric, values, true) : NULL;
    if (series)
        series->value += amount;
}

void flyt_metric_set(struct flyt_metric *metric, const char *const *values, double value)
{
    struct series *series = metric ? find(metric, values, true) : NULL;
    if (series)
        series->value = value;
}

void flyt_metric_observe(struct flyt_metric *metric, const char *const *values, double value)
{
    struct series *series = metric ? find(metric, values, true) : NULL;
    if (!series)
        return;
    series->value += value;
    series->count++;
    for (unsigned i = 0; i < metric->bucket_count; i++) {
        if (value <= metric->bounds[i]) {
            series->buckets[i]++;
            break;
        }
    }
}

void flyt_metric_forget(struct flyt_metric *metric, const char *const *values)
{
    if (!metric)
        return;
    if (!values) {
        forget_all(metric);
        return;
    }
    struct series *series = find(metric, values, false);
    if (series)
        forget(metric, series);
}

static void print_plain(FILE *out, const struct flyt_metric *metric, const struct series *series)
{
    const char *open = *series->labels ? "{" : "", *close = *series->labels ? "}" : "";
    fprintf(out, "%s%s%s%s %.15g\n", metric->name, open, series->labels, close, series->value);
}

static void print_histogram(FILE *out, const struct flyt_metric *metric, const struct series *series)
{
    const char *open = *series->labels ? "{" : "", *close = *series->labels ? "}" : "";
    const char *comma = *series->labels ? "," : "";
    uint64_t sum = 0;
    for (unsigned i = 0; i < metric->bucket_count; i++) {
        sum += series->buckets[i];
        fprintf(out, "%s_bucket{%s%sle=\"%g\"} %llu\n", metric->name, series->labels, comma, metric->bounds[i],
                (unsigned long long)sum);
    }
    fprintf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", metric->name, series->labels, comma,
            (unsigned long long)series->count);
    fprintf(out, "%s_sum%s%s%s %.15g\n", metric->name, open, series->labels, close, series->value);
    fprintf(out, "%s_count%s%s%s %llu\n", metric->name, open, series->labels, close, (unsigned long long)series->count);
}

char *flyt_metrics_text(struct flyt_metrics *metrics)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (const struct flyt_metric *metric = metrics->first; metric; metric = metric->next) {
        fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name, kinds[metric->kind]);
        for (const struct series *series = metric->series; series; series = series->next)
            (metric->kind == FLYT_HISTOGRAM ? print_histogram : print_plain)(out, metric, series);
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- the HTTP server: runs on the event loop by its epoll descriptor ---- */

struct flyt_metrics_server {
    struct flyt_metrics *metrics;
    void (*refresh)(void *user);
    void *user;
    struct MHD_Daemon *http;
    sd_event_source *io, *timer;
};

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type, const char *text)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer(void *user, struct MHD_Connection *connection, const char *path, const char *method,
                              const char *version, const char *upload, size_t *upload_bytes, void **ret_state)
{
    struct flyt_metrics_server *server = user;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", "GET only\n");
    if (strcmp(path, "/healthz") == 0)
        return reply(connection, MHD_HTTP_OK, "text/plain", "ok\n");
    if (strcmp(path, "/metrics") != 0)
        return reply(connection, MHD_HTTP_NOT_FOUND, "text/plain", "/metrics or /healthz\n");
    if (server->refresh)
        server->refresh(server->user);
    char *text = flyt_metrics_text(server->metrics);
    if (!text)
        return MHD_NO;
    enum MHD_Result result = reply(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text);
    free(text);
    return result;
}

static int run_http(struct flyt_metrics_server *server)
{
    MHD_run(server->http);
    MHD_UNSIGNED_LONG_LONG wait_ms;
    if (MHD_get_timeout(server->http, &wait_ms) != MHD_YES)
        return sd_event_source_set_enabled(server->timer, SD_EVENT_OFF);
    sd_event_source_set_time_relative(server->timer, (uint64_t)wait_ms * 1000);
    return sd_event_source_set_enabled(server->timer, SD_EVENT_ONESHOT);
}

static int on_input(sd_event_source *source, int fd, uint32_t events, void *user)
{
    return run_http(user);
}

static int on_time(sd_event_source *source, uint64_t at_us, void *user)
{
    return run_http(user);
}

/* "ADDRESS:PORT", "[::1]:PORT" or ":PORT" to one address. */
static int parse_address(const char *listen, struct flyt_error *err, struct sockaddr_storage *ret_address)
{
    char host[256] = "";
    const char *colon = strrchr(listen, ':');
    if (!colon || (size_t)(colon - listen) >= sizeof host)
        return flyt_error_set(err, -EINVAL, "metrics: %s is not ADDRESS:PORT", listen);
    memcpy(host, listen, (size_t)(colon - listen));
    char *bare = host;
    size_t bytes = strlen(host);
    if (bytes >= 2 && host[0] == '[' && host[bytes - 1] == ']') {
        host[bytes - 1] = 0;
        bare++;
    }
    struct addrinfo hints = {.ai_flags = AI_NUMERICSERV | AI_PASSIVE | AI_NUMERICHOST, .ai_socktype = SOCK_STREAM},
                    *found;
    int status = getaddrinfo(*bare ? bare : NULL, colon + 1, &hints, &found);
    if (status)
        return flyt_error_set(err, -EINVAL, "metrics: %s is not ADDRESS:PORT: %s", listen, gai_strerror(status));
    memcpy(ret_address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

static int start_http(struct flyt_metrics_server *server, const struct sockaddr *address)
{
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_SOCK_ADDR, 0, (void *)address},
        {MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, CONNECTION_S, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    unsigned flags = MHD_USE_EPOLL | (address->sa_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    errno = 0;
    server->http = MHD_start_daemon(flags, 0, NULL, NULL, answer, server, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    return server->http ? 0 : errno ? -errno : -EADDRINUSE;
}

int flyt_metrics_serve(struct flyt_metrics *metrics, sd_event *event, const char *listen, void (*refresh)(void *user),
                       void *user, struct flyt_error *err, struct flyt_metrics_server **ret_server)
{
    struct sockaddr_storage address = {0};
    int status = parse_address(listen, err, &address);
    if (status)
        return status;
    struct flyt_metrics_server *server = calloc(1, sizeof *server);
    if (!server)
        return flyt_error_set(err, -ENOMEM, "metrics: no memory");
    *server = (struct flyt_metrics_server){.metrics = metrics, .refresh = refresh, .user = user};
    status = start_http(server, (struct sockaddr *)&address);
    if (status == 0) {
        int fd = MHD_get_daemon_info(server->http, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        status = sd_event_add_io(event, &server->io, fd, EPOLLIN, on_input, server);
    }
    if (status >= 0)
        status = sd_event_add_time_relative(event, &server->timer, CLOCK_MONOTONIC, 0, 1000, on_time, server);
    if (status < 0) {
        flyt_metrics_server_free(server);
        return flyt_error_set(err, status, "metrics: cannot listen on %s: %s", listen, strerror(-status));
    }
    int port = MHD_get_daemon_info(server->http, MHD_DAEMON_INFO_BIND_PORT)->port;
    flyt_info("metrics: on port %d", port);
    *ret_server = server;
    return 0;
}

struct flyt_metrics_server *flyt_metrics_server_free(struct flyt_metrics_server *server)
{
    if (!server)
        return NULL;
    sd_event_source_disable_unref(server->io);
    sd_event_source_disable_unref(server->timer);
    if (server->http)
        MHD_stop_daemon(server->http);
    free(server);
    return NULL;
}
