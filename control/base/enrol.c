#include "control/base/enrol.h"
#include "control/base/name.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"

enum { ENROL_MS = 30000, CONNECT_MS = 10000, PAUSE_MS = 200, FILES = 3 };

/* One manager is asked. */
struct exchange {
    sd_event *event;
    struct flyt_peer *peer;
    flyt_enrol_args args;
    flyt_enrol_res res;
    struct flyt_error *err;
    int status;              /* 1: under way */
    bool may_another_answer; /* it failed because of the manager, not of the token */
};

static void end(struct exchange *exchange, int status)
{
    exchange->status = status;
    sd_event_exit(exchange->event, 0);
}

static void answered(void *user, int status, void *result)
{
    struct exchange *exchange = user;
    flyt_enrol_res *res = result;
    if (exchange->status != 1)
        return;
    if (status) {
        end(exchange,
            flyt_error_set(exchange->err, status, "the cluster manager does not answer: %s", strerror(-status)));
    } else if (res->outcome.status != FLYT_STATUS_OK) {
        exchange->may_another_answer =
            res->outcome.status == FLYT_STATUS_NOT_LEADER || res->outcome.status == FLYT_STATUS_NOT_SUPPORTED;
        end(exchange, flyt_error_set(exchange->err, -EACCES, "the cluster manager refuses: %.400s", res->outcome.text));
    } else {
        exchange->res = *res; /* taken out of the result, which is freed behind us */
        memset(res, 0, sizeof *res);
        end(exchange, 0);
    }
}

static void ready(struct flyt_peer *peer, void *user)
{
    struct exchange *exchange = user;
    exchange->may_another_answer = false;
    int status = flyt_peer_call(peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, FLYT_ENROL,
                                (xdrproc_t)xdr_flyt_enrol_args, &exchange->args, (xdrproc_t)xdr_flyt_enrol_res,
                                sizeof(flyt_enrol_res), ENROL_MS, answered, exchange);
    if (status)
        end(exchange, flyt_error_set(exchange->err, status, "the request cannot be sent: %s", strerror(-status)));
}

static void ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct exchange *exchange = user;
    exchange->peer = NULL;
    if (exchange->status == 1)
        end(exchange, flyt_error_set(exchange->err, cause->code ? cause->code : -EPIPE, "%s", cause->text));
}

static int ask(struct exchange *exchange, const char *url, struct flyt_tls *tls, uint64_t connect_ms)
{
    int status = sd_event_new(&exchange->event);
    if (status < 0)
        return flyt_error_set(exchange->err, status, "no event loop can be made: %s", strerror(-status));
    const struct flyt_peer_config config = {.event = exchange->event,
                                            .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX,
                                            .user = exchange,
                                            .ready = ready,
                                            .ended = ended};
    exchange->may_another_answer = true;
    exchange->status = 1;
    status = flyt_peer_connect(url, tls, &config, connect_ms, exchange->err, &exchange->peer);
    if (!status) {
        status = sd_event_loop(exchange->event);
        flyt_peer_close(exchange->peer);
        if (status >= 0)
            status = exchange->status;
    }
    exchange->event = sd_event_unref(exchange->event);
    return status;
}

/* One of the machines stands still, or the manager is being restarted. Where the token was seen all the same, that is
 * what the next attempt hears. */
static bool may_pass(int status)
{
    return status == -ETIMEDOUT || status == -EPIPE || status == -ECONNRESET;
}

/* All managers in turn, until one has said what counts for all of them; once more where one did not get so far, until
 * the time for all is over. */
static int ask_all(struct exchange *exchange, const struct flyt_strings *managers, struct flyt_tls *tls)
{
    const uint64_t until_ms = flyt_clock_ms() + ENROL_MS * (uint64_t)managers->count;
    bool is_again = true;
    int status = -ENOTCONN;

    while (status && is_again) {
        is_again = false;
        exchange->may_another_answer = true;
        for (size_t i = 0; status && exchange->may_another_answer && i < managers->count; i++) {
            uint64_t left_ms = (uint64_t)flyt_clock_left_ms(until_ms);
            status = ask(exchange, managers->items[i], tls, left_ms < CONNECT_MS ? left_ms + 1 : CONNECT_MS);
            is_again |= may_pass(status);
        }
        is_again &= (exchange->may_another_answer || may_pass(status)) && flyt_clock_left_ms(until_ms) > PAUSE_MS;
        if (is_again && status)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000l}, NULL);
    }
    return status;
}

/* ---- files ---- */

struct file {
    const char *path;
    const void *data;
    size_t bytes;
    mode_t mode;
    char fresh[PATH_MAX];
};

static int write_beside(struct file *file)
{
    snprintf(file->fresh, sizeof file->fresh, "%s.new", file->path);
    unlink(file->fresh);
    flyt_auto_close int fd = open(file->fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, file->mode);
    if (fd < 0 || fchmod(fd, file->mode))
        return -errno;
    ssize_t written = write(fd, file->data, file->bytes);
    if (written != (ssize_t)file->bytes)
        return written < 0 ? -errno : -ENOSPC;
    return fsync(fd) ? -errno : 0;
}

/* The folder that a file is in, and those above it, are made where they are missing. */
static int make_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *last = strrchr(folder, '/');
    for (char *slash = folder; last && (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        int status = mkdir(folder, slash == last ? 0700 : 0755) ? -errno : 0;
        /* Where there is one already, it may be that no folder could be made beside it. */
        if (status && access(folder, F_OK))
            return status;
        *slash = '/';
    }
    return 0;
}

static int write_files(struct file files[FILES], struct flyt_error *err)
{
    int status = 0;
    unsigned at;
    for (at = 0; !status && at < FILES; at++) {
        status = make_folder(files[at].path);
        if (!status)
            status = write_beside(&files[at]);
    }
    for (unsigned i = 0; !status && i < FILES; i++) {
        at = i + 1;
        if (rename(files[i].fresh, files[i].path))
            status = -errno;
    }
    if (!status)
        return 0;
    for (unsigned i = 0; i < FILES; i++)
        if (files[i].fresh[0])
            unlink(files[i].fresh);
    return flyt_error_set(err, status, "%s cannot be written: %s", files[at - 1].path, strerror(-status));
}

static int write_answer(const flyt_enrol_res *res, const struct flyt_tls_files *paths, const char *key,
                        struct flyt_error *err)
{
    /* The certificate last: where it is, the others are. */
    struct file files[FILES] = {
        {.path = paths->key, .data = key, .bytes = strlen(key), .mode = 0600},
        {.path = paths->authority,
         .data = res->authority.authority_val,
         .bytes = res->authority.authority_len,
         .mode = 0644},
        {.path = paths->certificate,
         .data = res->certificates.certificates_val,
         .bytes = res->certificates.certificates_len,
         .mode = 0644},
    };
    return write_files(files, err);
}

struct flyt_tls_files flyt_enrolled_files(const struct flyt_tls_files *set, const char *folder,
                                          struct flyt_enrolled_paths *paths)
{
    static const char *const names[] = {"authority.pem", "certificate.pem", "key.pem"};
    if (set->authority)
        return *set;
    for (int i = 0; i < FILES; i++)
        snprintf(paths->texts[i], sizeof paths->texts[i], "%s/%s", folder, names[i]);
    return (struct flyt_tls_files){
        .authority = paths->texts[0], .certificate = paths->texts[1], .key = paths->texts[2]};
}

int flyt_enrolled_tls(const struct flyt_tls_files *set, const char *folder, struct flyt_error *err,
                      struct flyt_tls **ret_tls)
{
    struct flyt_enrolled_paths paths;
    const struct flyt_tls_files files = flyt_enrolled_files(set, folder, &paths);
    if (!set->authority && access(files.certificate, F_OK) && errno == ENOENT) {
        *ret_tls = NULL;
        return 0;
    }
    return flyt_tls_new(&files, false, err, ret_tls);
}

/* ---- the token ---- */

int flyt_join_token_read(const char *path, struct flyt_error *err, char **ret_token)
{
    char text[2 * FLYT_NAME_BYTES_MAX];
    bool is_input = !strcmp(path, "-");
    size_t used = 0;
    int fd = is_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return flyt_error_set(err, -errno, "%s: %s", path, strerror(errno));
    ssize_t got = 1;
    /* One line: who types it ends it by that. */
    while (got > 0 && used < sizeof text - 1 && !memchr(text, '\n', used)) {
        got = read(fd, text + used, sizeof text - 1 - used);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            used += (size_t)got;
    }
    int status =
        got < 0 ? flyt_error_set(err, -errno, "%s: %s", is_input ? "standard input" : path, strerror(errno)) : 0;
    if (!is_input)
        close(fd);
    text[used] = '\0';
    char *begin = text + strspn(text, " \t\r\n");
    begin[strcspn(begin, " \t\r\n")] = '\0';
    if (!status && !*begin)
        status = flyt_error_set(err, -EINVAL, "%s holds no token", is_input ? "standard input" : path);
    if (!status && !(*ret_token = strdup(begin)))
        status = flyt_error_set(err, -ENOMEM, "no memory");
    explicit_bzero(text, sizeof text);
    return status;
}

char *flyt_join_token_free(char *token)
{
    if (token)
        explicit_bzero(token, strlen(token));
    free(token);
    return NULL;
}

/* ---- all of it ---- */

int flyt_enrol(const struct flyt_enrolment *enrolment, struct flyt_error *err, char *ret_name)
{
    unsigned char authority_hash[32], secret[32], *request = NULL;
    size_t request_bytes = 0;
    char *key = NULL;
    struct flyt_tls *tls = NULL;
    struct exchange exchange = {.err = err};
    if (flyt_join_token_parse(enrolment->token, authority_hash, secret) != 0)
        return flyt_error_set(err, -EINVAL,
                              "this is no join token (flytctl node join-token and vm join-token make them)");
    explicit_bzero(secret, sizeof secret);
    if (!enrolment->managers->count)
        return flyt_error_set(err, -EINVAL, "no cluster manager is named");
    int status = flyt_tls_new_joining(authority_hash, err, &tls);
    if (!status)
        status = flyt_tls_request(enrolment->role, enrolment->name, err, &key, &request, &request_bytes);
    if (!status) {
        exchange.args.token = (char *)enrolment->token;
        exchange.args.request.request_val = (char *)request;
        exchange.args.request.request_len = (u_int)request_bytes;
        status = ask_all(&exchange, enrolment->managers, tls);
    }
    /* It is printed, and stands in file names. */
    if (!status && !flyt_is_name(exchange.res.name) && !flyt_is_address(exchange.res.name))
        status = flyt_error_set(err, -EPROTO, "the cluster manager enrolled a name that is none");
    if (!status)
        status = write_answer(&exchange.res, &enrolment->files, key, err);
    if (!status)
        snprintf(ret_name, FLYT_NAME_BYTES_MAX + 1, "%s", exchange.res.name);
    xdr_free((xdrproc_t)xdr_flyt_enrol_res, &exchange.res);
    flyt_tls_free(tls);
    free(request);
    if (key)
        explicit_bzero(key, strlen(key));
    free(key);
    return status;
}
