#include "control/flytctl/link.h"

#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "control/base/tls.h"
#include "control/flytctl/certificate.h"
#include "control/flytctl/settings.h"
#include "control/flytctl/text.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/url.h"

enum { CONNECT_MS_MAX = 5000, RETRY_MS = 250 };

struct flyt_link {
    sd_event *event;
    struct flyt_ctl_settings settings;
    struct flyt_tls *tls; /* NULL: no files are named */
    flyt_peer_kind kind;
    char name[FLYT_NAME_BYTES_MAX + 1];
    char instance[FLYT_INSTANCE_BYTES];
    uint64_t deadline_ms;

    struct flyt_peer *peer;
    bool is_ready;
    bool is_leaderless;        /* the last one that was tried does not lead, and nobody who does was found */
    struct flyt_strings notes; /* complaints that were not made yet */
    struct flyt_error cause;   /* of the end of the last connection */
    char address[FLYT_URL_BYTES_MAX + 1];
    char build[FLYT_NAME_BYTES_MAX + 1];
};

/* A call under way. */
struct waiting {
    bool is_done;
    int status;
    void *result;
    size_t result_bytes;
};

/* ---- what went wrong ---- */

static void free_strings(struct flyt_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
    *strings = (struct flyt_strings){0};
}

/* Keeps a complaint until it is known whether trying again has helped. Returns status. */
static enum flyt_exit note(struct flyt_link *link, enum flyt_exit status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum flyt_exit note(struct flyt_link *link, enum flyt_exit status, const char *format, ...)
{
    va_list arguments;
    char *text;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    link->notes.items = flyt_must(reallocarray(link->notes.items, link->notes.count + 1, sizeof *link->notes.items));
    link->notes.items[link->notes.count++] = flyt_must(text);
    return status;
}

static void drop_notes(struct flyt_link *link)
{
    free_strings(&link->notes);
}

static void put_notes(struct flyt_link *link)
{
    for (size_t i = 0; i < link->notes.count; i++)
        flyt_complain(FLYT_EXIT_OK, "%s", link->notes.items[i]);
    drop_notes(link);
}

/* ---- the loop ---- */

static void on_ready(struct flyt_peer *peer, void *user)
{
    ((struct flyt_link *)user)->is_ready = true;
}

static void on_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct flyt_link *link = user;

    link->peer = NULL;
    link->cause = *cause;
}

static void on_done(void *user, int status, void *result)
{
    struct waiting *waiting = user;

    waiting->is_done = true;
    waiting->status = status;
    if (status)
        return;
    memcpy(waiting->result, result, waiting->result_bytes);
    memset(result, 0, waiting->result_bytes); /* taken out of it */
}

static enum flyt_exit run_once(struct flyt_link *link)
{
    int status = sd_event_run(link->event, UINT64_MAX);

    return status < 0 ? note(link, FLYT_EXIT_UNREACHABLE, "the event loop has failed: %s", strerror(-status))
                      : FLYT_EXIT_OK;
}

static int call(struct flyt_link *link, uint32_t procedure, xdrproc_t xdr_args, const void *args, xdrproc_t xdr_res,
                void *result, size_t result_bytes, uint64_t timeout_ms)
{
    struct waiting waiting = {.result = result, .result_bytes = result_bytes};
    int status = link->peer ? flyt_peer_call(link->peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedure,
                                             xdr_args, args, xdr_res, result_bytes, timeout_ms, on_done, &waiting)
                            : -EPIPE;

    memset(result, 0, result_bytes);
    if (status)
        return status;
    while (!waiting.is_done)
        if (run_once(link) != FLYT_EXIT_OK)
            return -EIO;
    return waiting.status;
}

/* ---- connecting ---- */

static enum flyt_exit open_tls(struct flyt_link *link)
{
    const struct flyt_tls_files files = {link->settings.authority, link->settings.certificate, link->settings.key};
    struct flyt_certificate certificate;
    struct flyt_error err;

    if (!files.certificate)
        return FLYT_EXIT_OK;
    if (flyt_certificate_read(files.certificate, &certificate, &err) || flyt_tls_new(&files, false, &err, &link->tls))
        return flyt_complain(err.code == -EACCES ? FLYT_EXIT_DENIED : FLYT_EXIT_USAGE, "%s", err.text);
    if (certificate.role != FLYT_ROLE_OPERATOR && certificate.role != FLYT_ROLE_VIEWER)
        return flyt_complain(FLYT_EXIT_DENIED,
                             "%s is the certificate of a %s: flytctl needs an operator's or a viewer's",
                             files.certificate, flyt_role_name(certificate.role));
    link->kind = certificate.role == FLYT_ROLE_VIEWER ? FLYT_PEER_VIEWER : FLYT_PEER_OPERATOR;
    snprintf(link->name, sizeof link->name, "%s", certificate.name);
    return FLYT_EXIT_OK;
}

static enum flyt_exit make_link(struct flyt_ctl *ctl)
{
    const struct passwd *user = getpwuid(geteuid());
    struct flyt_link *link = ctl->link = flyt_must(calloc(1, sizeof *link));
    int status = sd_event_new(&link->event);

    if (status < 0)
        return flyt_complain(FLYT_EXIT_UNREACHABLE, "no event loop can be made: %s", strerror(-status));
    link->kind = FLYT_PEER_OPERATOR;
    if (user)
        snprintf(link->name, sizeof link->name, "%s", user->pw_name);
    else
        snprintf(link->name, sizeof link->name, "uid=%u", (unsigned)geteuid());
    if (getrandom(link->instance, sizeof link->instance, 0) != sizeof link->instance)
        return flyt_complain(FLYT_EXIT_UNREACHABLE, "no random numbers: %s", strerror(errno));
    const struct flyt_value *deadline = flyt_option_get(ctl->arguments, "deadline");
    link->deadline_ms = deadline->is_set ? deadline->number : 10000;
    enum flyt_exit exit = flyt_ctl_settings_read(ctl->arguments, &link->settings);
    return exit == FLYT_EXIT_OK ? open_tls(link) : exit;
}

/* What a cluster manager says to a good certificate that is in no record: it closes. */
#define NO_MEMBER                                                                                                      \
    " (so it is for a certificate that is no member, or was revoked: flytctl operator join-token makes a new one)"

/* Why there is no connection, as one sentence that says what to do where that is known. */
static enum flyt_exit say_unreachable(struct flyt_link *link, const char *url)
{
    const struct flyt_error *cause = &link->cause;
    bool is_unix = !strncmp(url, "unix:", 5);
    const char *text = cause->text;

    if (is_unix && cause->code == -ENOENT)
        return note(link, FLYT_EXIT_UNREACHABLE,
                    "%s: there is no such socket: flyt-cluster-manager does not run on this machine; start it, "
                    "or name another one with --manager or FLYT_MANAGER",
                    url);
    if (is_unix && cause->code == -EACCES)
        return note(link, FLYT_EXIT_DENIED,
                    "%s: permission denied: operators are root and the members of the socket's group, usually "
                    "flyt (usermod -aG flyt USER, then log in again)",
                    url);
    if (is_unix && cause->code == -ECONNREFUSED)
        return note(link, FLYT_EXIT_UNREACHABLE,
                    "%s: nobody listens there any more: flyt-cluster-manager has ended without removing it", url);
    if (cause->code == -EACCES)
        return note(link, FLYT_EXIT_DENIED, "%s: %s", url, text);
    if (!is_unix && link->tls && cause->code == -EPIPE)
        return note(link, FLYT_EXIT_UNREACHABLE, "%s: %s%s", url, text, NO_MEMBER);
    return note(link, cause->code == -EINVAL ? FLYT_EXIT_USAGE : FLYT_EXIT_UNREACHABLE, "%s: %s", url, text);
}

static void leave(struct flyt_link *link)
{
    link->peer = flyt_peer_close(link->peer);
    link->is_ready = false;
    link->cause = (struct flyt_error){0};
}

static enum flyt_exit connect_to(struct flyt_link *link, const char *url)
{
    const struct flyt_peer_config config = {.event = link->event, .user = link, .ready = on_ready, .ended = on_ended};
    uint64_t timeout_ms = link->deadline_ms < CONNECT_MS_MAX ? link->deadline_ms : CONNECT_MS_MAX;

    leave(link);
    snprintf(link->address, sizeof link->address, "%s", url);
    if (flyt_peer_connect(url, link->tls, &config, timeout_ms, &link->cause, &link->peer))
        return say_unreachable(link, url);
    while (link->peer && !link->is_ready) {
        enum flyt_exit status = run_once(link);
        if (status != FLYT_EXIT_OK)
            return status;
    }
    return link->is_ready && link->peer ? FLYT_EXIT_OK : say_unreachable(link, url);
}

/* Why a call had no answer. */
static enum flyt_exit say_unanswered(struct flyt_link *link, int status, uint64_t timeout_ms, bool has_effect)
{
    const char *unknown = has_effect ? "; whether it was done is not known" : "";

    switch (status) {
    case -ETIMEDOUT:
        return note(link, FLYT_EXIT_UNREACHABLE, "%s: no answer within %.3g s%s", link->address,
                    (double)timeout_ms / 1000, unknown);
    case -EACCES:
        return note(link, FLYT_EXIT_DENIED, "%s: a %s may not do this", link->address,
                    link->kind == FLYT_PEER_VIEWER ? "viewer" : "caller like this one");
    case -ENOSYS:
        return note(link, FLYT_EXIT_UNREACHABLE,
                    "%s: the cluster manager (build %s) does not know this call: it may be older than flytctl %s",
                    link->address, *link->build ? link->build : "unknown", flyt_build_name);
    case -EINVAL:
        return note(link, FLYT_EXIT_USAGE, "an argument is longer than the protocol allows");
    case -EBADMSG:
        return note(link, FLYT_EXIT_UNREACHABLE, "%s: the answer cannot be decoded%s", link->address, unknown);
    default:
        return note(link, FLYT_EXIT_UNREACHABLE, "%s: the connection was lost before the answer: %s%s", link->address,
                    link->cause.code ? link->cause.text : strerror(-status), unknown);
    }
}

/* Says HELLO. Fills ret_leaders with where to go instead, where another one leads; free it. */
static enum flyt_exit hello(struct flyt_link *link, struct flyt_strings *ret_leaders)
{
    flyt_hello_args args = {
        .protocol = FLYT_CONTROL_PROTOCOL, .build = (char *)flyt_build_name, .kind = link->kind, .name = link->name};
    flyt_hello_res res;

    memcpy(args.instance, link->instance, sizeof args.instance);
    int status = call(link, FLYT_HELLO, (xdrproc_t)xdr_flyt_hello_args, &args, (xdrproc_t)xdr_flyt_hello_res, &res,
                      sizeof res, link->deadline_ms);
    if (status)
        return say_unanswered(link, status, link->deadline_ms, false);
    snprintf(link->build, sizeof link->build, "%s", res.build);
    enum flyt_exit exit = FLYT_EXIT_OK;
    if (res.outcome.status == FLYT_STATUS_NOT_LEADER || (res.outcome.status == FLYT_STATUS_OK && !res.is_leader)) {
        for (u_int i = 0; i < res.leaders.leaders_len; i++) {
            ret_leaders->items = flyt_must(reallocarray(ret_leaders->items, i + 1u, sizeof *ret_leaders->items));
            ret_leaders->items[ret_leaders->count++] = flyt_must(strdup(res.leaders.leaders_val[i]));
        }
        link->is_leaderless = true;
        if (!ret_leaders->count)
            exit = note(link, FLYT_EXIT_UNREACHABLE, "%s: %s", link->address,
                        *res.outcome.text ? res.outcome.text : "it does not lead, and knows nobody who does");
    } else if (res.outcome.status != FLYT_STATUS_OK) {
        exit = note(link, flyt_exit_of(res.outcome.status), "%s: %s", link->address,
                    *res.outcome.text ? res.outcome.text : flyt_status_name(res.outcome.status));
    }
    xdr_free((xdrproc_t)xdr_flyt_hello_res, &res);
    return exit;
}

/* From one manager to the one that leads: each answer's addresses in turn, FLYT_LINK_HOPS_MAX in all. */
static enum flyt_exit connect_and_follow(struct flyt_link *link, const char *url)
{
    struct flyt_strings leaders = {0}, next = {0};
    enum flyt_exit status = connect_to(link, url);
    size_t at = 0;

    if (status == FLYT_EXIT_OK)
        status = hello(link, &leaders);
    for (unsigned hop = 0; at < leaders.count; hop++) {
        if (hop == FLYT_LINK_HOPS_MAX) {
            status = note(link, FLYT_EXIT_UNREACHABLE, "no manager leads: they name each other");
            break;
        }
        status = connect_to(link, leaders.items[at++]);
        if (status == FLYT_EXIT_OK)
            status = hello(link, &next);
        if (next.count) {
            free_strings(&leaders);
            leaders = next;
            next = (struct flyt_strings){0};
            at = 0;
        } else if (status == FLYT_EXIT_OK) {
            link->is_leaderless = false;
            break;
        } else if (status == FLYT_EXIT_DENIED) {
            link->is_leaderless = false; /* it is there, and this is its answer */
        }
    }
    free_strings(&leaders);
    if (status != FLYT_EXIT_OK)
        leave(link);
    return status;
}

/*
 * Each of the managers in turn. Where one is there but nobody leads (the one that did was killed, and its lease runs
 * out), that is tried again until the deadline: before HELLO's good answer nothing has been asked for.
 */
static enum flyt_exit find_leader(struct flyt_link *link)
{
    const struct flyt_strings *managers = &link->settings.managers;
    uint64_t end_ms = flyt_clock_ms() + link->deadline_ms;

    for (;;) {
        enum flyt_exit status = FLYT_EXIT_UNREACHABLE;
        bool is_leaderless = false;
        for (size_t i = 0; i < managers->count; i++) {
            link->is_leaderless = false;
            status = connect_and_follow(link, managers->items[i]);
            if (status == FLYT_EXIT_OK)
                return status;
            is_leaderless = is_leaderless || link->is_leaderless;
        }
        if (!is_leaderless)
            return status;
        if (flyt_clock_ms() + RETRY_MS >= end_ms)
            return note(link, FLYT_EXIT_UNREACHABLE,
                        "no manager leads at present, and none has taken over within %.3g s",
                        (double)link->deadline_ms / 1000);
        drop_notes(link);
        usleep(RETRY_MS * 1000);
    }
}

static enum flyt_exit make_ready(struct flyt_ctl *ctl)
{
    enum flyt_exit status = ctl->link ? FLYT_EXIT_OK : make_link(ctl);

    if (status != FLYT_EXIT_OK) {
        flyt_link_close(ctl);
        return status;
    }
    if (ctl->link->peer)
        return FLYT_EXIT_OK;
    status = find_leader(ctl->link);
    put_notes(ctl->link);
    return status;
}

/* ---- calling ---- */

static bool has_effect(uint32_t procedure)
{
    return procedure != FLYT_VIEW && procedure != FLYT_BACKUP;
}

enum flyt_exit flyt_link_call(struct flyt_ctl *ctl, uint32_t procedure, xdrproc_t xdr_args, const void *args,
                              xdrproc_t xdr_res, void *result, size_t result_bytes, uint64_t wait_ms)
{
    memset(result, 0, result_bytes);
    for (unsigned try = 0; try < FLYT_LINK_HOPS_MAX; try++) {
        enum flyt_exit exit = make_ready(ctl);
        if (exit != FLYT_EXIT_OK)
            return exit;
        struct flyt_link *link = ctl->link;
        uint64_t timeout_ms = link->deadline_ms + wait_ms;
        int status = call(link, procedure, xdr_args, args, xdr_res, result, result_bytes, timeout_ms);
        if (status) {
            exit = say_unanswered(link, status, timeout_ms, has_effect(procedure));
            put_notes(link);
            leave(link);
            return exit;
        }
        if (((const flyt_outcome *)result)->status != FLYT_STATUS_NOT_LEADER)
            return FLYT_EXIT_OK;
        /* Its leadership has ended since HELLO; a new HELLO says who leads. */
        xdr_free(xdr_res, result);
        memset(result, 0, result_bytes);
        leave(link);
    }
    return flyt_complain(FLYT_EXIT_UNREACHABLE, "no manager leads at the moment; try again soon");
}

const char *flyt_link_address(const struct flyt_ctl *ctl)
{
    return ctl->link ? ctl->link->address : "";
}

const char *flyt_link_build(const struct flyt_ctl *ctl)
{
    return ctl->link ? ctl->link->build : "";
}

void flyt_link_close(struct flyt_ctl *ctl)
{
    struct flyt_link *link = ctl->link;

    if (!link)
        return;
    leave(link);
    drop_notes(link);
    flyt_tls_free(link->tls);
    flyt_config_free(flyt_ctl_settings_table, &link->settings);
    sd_event_unref(link->event);
    free(link);
    ctl->link = NULL;
}
