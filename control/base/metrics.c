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

#include "control/base/loop.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum { BUCKETS_MAX = 24, CONNECTIONS_MAX = 16, CONNECTION_S = 10, LABELS_BYTES = 1024, LINES_AT_ONCE = 64 };

static const double default_buckets[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                         0.25,   0.5,   1,      2.5,   5,    10,    0};

struct series {
    struct series *next, *previous;
    uint64_t generation; /* of its metric's list, when it was last set */
    char *labels;        /* as in the text: a="x",b="y"; "" without labels */
    double value;        /* a histogram's sum */
    uint64_t count;
    uint64_t buckets[BUCKETS_MAX]; /* not cumulative */
};

struct flyt_metric {
    struct flyt_metric *next;
    struct flyt_metrics *metrics;
    bool is_renewed; /* and what was not set since is still to be forgotten */
    uint64_t generation;
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
    struct series *cursor; /* where a walk over a metric's series goes on; moved on when that goes */
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
    if (metric->metrics->cursor == series)
        metric->metrics->cursor = series->next;
    tdelete(series, &metric->tree, compare);
    *(series->previous ? &series->previous->next : &metric->series) = series->next;
    *(series->next ? &series->next->previous : &metric->series_last) = series->previous;
    free(series->labels);
    free(series);
}

static void metric_free(struct flyt_metric *metric)
{
    while (metric->series)
        forget(metric, metric->series);
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

/* Behind `used` bytes of `text`; how many there are then, of which `bytes` - 1 at most were written. */
static size_t put(char *text, size_t bytes, size_t used, char one)
{
    if (used + 1 < bytes)
        text[used] = one;
    return used + 1;
}

static size_t put_escaped(char *text, size_t bytes, size_t used, const char *from)
{
    for (; *from; from++) {
        if (*from == '\\' || *from == '"' || *from == '\n')
            used = put(text, bytes, used, '\\');
        used = put(text, bytes, used, *from == '\n' ? 'n' : *from);
    }
    return used;
}

/* As snprintf. */
static size_t print_labels(const struct flyt_metric *metric, const char *const *values, char *text, size_t bytes)
{
    size_t used = 0;

    for (unsigned i = 0; i < metric->label_count; i++) {
        if (i)
            used = put(text, bytes, used, ',');
        for (const char *name = metric->label_names[i]; *name; name++)
            used = put(text, bytes, used, *name);
        used = put(text, bytes, used, '=');
        used = put(text, bytes, used, '"');
        used = put_escaped(text, bytes, used, values[i] ? values[i] : "");
        used = put(text, bytes, used, '"');
    }
    text[used < bytes ? used : bytes - 1] = 0;
    return used;
}

static struct series *make_series(struct flyt_metric *metric, const char *labels)
{
    struct series *series = calloc(1, sizeof *series);

    if (series)
        series->labels = strdup(labels);
    if (!series || !series->labels || !tsearch(series, &metric->tree, compare)) {
        if (series)
            free(series->labels);
        free(series);
        return NULL;
    }
    series->previous = metric->series_last;
    *(series->previous ? &series->previous->next : &metric->series) = series;
    metric->series_last = series;
    return series;
}

static struct series *find(struct flyt_metric *metric, const char *const *values)
{
    char text[LABELS_BYTES], *longer = NULL;

    if (!metric->label_count && metric->series)
        return metric->series;
    size_t used = print_labels(metric, values, text, sizeof text);
    if (used >= sizeof text) {
        longer = malloc(used + 1);
        if (!longer)
            return NULL;
        print_labels(metric, values, longer, used + 1);
    }
    struct series key = {.labels = longer ? longer : text};
    struct series **at = tfind(&key, &metric->tree, compare);
    struct series *series = at ? *at : make_series(metric, key.labels);
    free(longer);
    if (series)
        series->generation = metric->generation;
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
    metric->metrics = metrics;
    metric->kind = kind;
    metric->name = strdup(name);
    metric->help = strdup(help);
    for (const double *bound = buckets ? buckets : default_buckets; *bound > 0 && metric->bucket_count < BUCKETS_MAX;
         bound++)
        metric->bounds[metric->bucket_count++] = *bound;
    bool is_made = metric->name && metric->help && take_label_names(metric, labels) == 0;
    if (is_made && !metric->label_count)
        is_made = find(metric, NULL);
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
    struct series *series = metric ? find(metric, values) : NULL;
    if (series)
        series->value += amount;
}

void flyt_metric_set(struct flyt_metric *metric, const char *const *values, double value)
{
    struct series *series = metric ? find(metric, values) : NULL;
    if (series)
        series->value = value;
}

void flyt_metric_observe(struct flyt_metric *metric, const char *const *values, double value)
{
    struct series *series = metric ? find(metric, values) : NULL;
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

void flyt_metric_renew(struct flyt_metric *metric)
{
    if (!metric)
        return;
    metric->generation++;
    metric->is_renewed = true;
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

/* ---- the text, made in pieces ---- */

/* Where its making is. */
struct walk {
    struct flyt_metrics *metrics;
    struct flyt_metric *metric; /* NULL: over */
    bool is_begun;              /* metrics->cursor is in this metric */
    bool is_printing;           /* else what was not set again is forgotten */
    FILE *out;
};

static void print_head(FILE *out, const struct flyt_metric *metric)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};

    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name, kinds[metric->kind]);
}

static void next_metric(struct walk *walk)
{
    if (!walk->is_printing)
        walk->metric->is_renewed = false;
    walk->metric = walk->metric->next;
    walk->is_begun = false;
    if (walk->metric || walk->is_printing)
        return;
    walk->is_printing = true;
    walk->metric = walk->metrics->first;
}

/* A few series on. Whether there are more. */
static bool step(struct walk *walk)
{
    struct flyt_metrics *metrics = walk->metrics;
    struct flyt_metric *metric = walk->metric;

    if (!metric)
        return false;
    if (!walk->is_printing && !metric->is_renewed) {
        next_metric(walk);
        return true;
    }
    if (!walk->is_begun) {
        walk->is_begun = true;
        metrics->cursor = metric->series;
        if (walk->is_printing)
            print_head(walk->out, metric);
    }
    for (unsigned i = 0; i < LINES_AT_ONCE && metrics->cursor; i++) {
        struct series *series = metrics->cursor;
        metrics->cursor = series->next;
        if (walk->is_printing)
            (metric->kind == FLYT_HISTOGRAM ? print_histogram : print_plain)(walk->out, metric, series);
        else if (series->generation != metric->generation)
            forget(metric, series);
    }
    if (!metrics->cursor)
        next_metric(walk);
    return true;
}

char *flyt_metrics_text(struct flyt_metrics *metrics)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    struct walk walk = {.metrics = metrics, .metric = metrics->first, .out = out};
    while (step(&walk))
        continue;
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- the HTTP server: runs on the event loop by its epoll descriptor ---- */

/* Who asks, until it is answered. */
struct waiter {
    struct waiter *next;
    struct MHD_Connection *connection;
    bool is_waiting; /* in the server's list, and suspended */
    bool is_over;    /* the answer is there, or there is none */
};

struct flyt_metrics_server {
    struct flyt_metrics *metrics;
    flyt_metrics_refresh_fn refresh;
    void *user;
    struct MHD_Daemon *http;
    sd_event_source *io, *timer, *work;
    struct waiter *waiting, *later; /* for the answer under way; for the one after it */
    bool is_making, is_refreshing;
    uint64_t position;
    struct walk walk;
    char *text;
    size_t bytes;
    struct MHD_Response *response; /* the last one that was made; NULL: that has failed */
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

static int run_http(struct flyt_metrics_server *server);

/* Those that wait have their answer, or (NULL) hear that there is none. */
static void finish(struct flyt_metrics_server *server, struct MHD_Response *response)
{
    if (server->response)
        MHD_destroy_response(server->response);
    server->response = response;
    server->is_making = false;
    for (struct waiter *waiter; (waiter = server->waiting);) {
        server->waiting = waiter->next;
        waiter->is_waiting = false;
        waiter->is_over = true;
        MHD_resume_connection(waiter->connection);
    }
}

static int begin(struct flyt_metrics_server *server)
{
    server->is_making = server->is_refreshing = true;
    server->position = 0;
    server->text = NULL;
    server->walk = (struct walk){.metrics = server->metrics, .metric = server->metrics->first};
    server->walk.out = open_memstream(&server->text, &server->bytes);
    server->waiting = server->later;
    server->later = NULL;
    return server->walk.out ? flyt_loop_again(server->work) : -ENOMEM;
}

static struct MHD_Response *make_response(struct flyt_metrics_server *server)
{
    bool has_failed = fclose(server->walk.out) != 0;
    struct MHD_Response *response =
        has_failed ? NULL : MHD_create_response_from_buffer(server->bytes, server->text, MHD_RESPMEM_MUST_FREE);

    server->walk.out = NULL;
    if (!response)
        free(server->text);
    else
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    return response;
}

/* A piece of the answer. */
static int on_work(sd_event_source *source, uint64_t at_us, void *user)
{
    struct flyt_metrics_server *server = user;
    uint64_t until_ns = flyt_clock_ns() + FLYT_METRICS_PIECE_US * 1000ull;

    do {
        if (server->is_refreshing)
            server->is_refreshing = server->refresh && server->refresh(server->user, &server->position);
        else if (!step(&server->walk)) {
            finish(server, make_response(server));
            run_http(server);
            return 0;
        }
    } while (flyt_clock_ns() < until_ns);
    return flyt_loop_again(server->work);
}

static enum MHD_Result answer_metrics(struct flyt_metrics_server *server, struct MHD_Connection *connection,
                                      void **ret_state)
{
    struct waiter *waiter = *ret_state;

    if (waiter && waiter->is_over)
        return server->response ? MHD_queue_response(connection, MHD_HTTP_OK, server->response)
                                : reply(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "text/plain", "no memory\n");
    if (waiter)
        return MHD_YES;
    waiter = calloc(1, sizeof *waiter);
    if (!waiter)
        return MHD_NO;
    *waiter = (struct waiter){.next = server->later, .connection = connection, .is_waiting = true};
    server->later = waiter;
    *ret_state = waiter;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode how)
{
    free(*state); /* one that is suspended does not end */
    *state = NULL;
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
    return answer_metrics(server, connection, ret_state);
}

static int run_http(struct flyt_metrics_server *server)
{
    MHD_run(server->http);
    if (server->later && !server->is_making && begin(server) < 0) {
        if (server->walk.out)
            fclose(server->walk.out);
        free(server->text);
        finish(server, NULL);
        MHD_run(server->http);
    }
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
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, server},
        {MHD_OPTION_END, 0, NULL},
    };
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (address->sa_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    errno = 0;
    server->http = MHD_start_daemon(flags, 0, NULL, NULL, answer, server, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    return server->http ? 0 : errno ? -errno : -EADDRINUSE;
}

int flyt_metrics_serve(struct flyt_metrics *metrics, sd_event *event, const char *listen,
                       flyt_metrics_refresh_fn refresh, void *user, struct flyt_error *err,
                       struct flyt_metrics_server **ret_server)
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
    if (status >= 0)
        status = flyt_loop_add_again(event, on_work, server, &server->work);
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
    sd_event_source_disable_unref(server->work);
    if (server->walk.out) {
        fclose(server->walk.out);
        free(server->text);
    }
    if (server->http) {
        /* None may be suspended at the end: those hear that there is no answer. */
        finish(server, NULL);
        server->waiting = server->later;
        server->later = NULL;
        finish(server, NULL);
        MHD_run(server->http);
        while (server->later) { /* who has asked just now */
            server->waiting = server->later;
            server->later = NULL;
            finish(server, NULL);
        }
        MHD_stop_daemon(server->http);
    }
    free(server);
    return NULL;
}
