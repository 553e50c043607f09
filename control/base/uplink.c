#include "control/base/uplink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/base/tls.h"
#include "rpc/base/log.h"
#include "rpc/base/url.h"

enum { HELLO_MS = 5000 };

struct flyt_uplink {
    struct flyt_uplink_config config;
    char *name;
    unsigned char instance[FLYT_INSTANCE_BYTES];
    struct flyt_peer *peer;
    sd_event_source *timer, *probe_timer;
    uint64_t pause_ms;
    size_t next;                         /* of the configured managers */
    char leader[FLYT_URL_BYTES_MAX + 1]; /* to be tried first; "": none is known */
    char address[FLYT_URL_BYTES_MAX + 1];
    char cause[FLYT_TEXT_BYTES_MAX + 1];
    uint64_t connect_count;
    bool is_up;
    bool has_complained; /* of the present trouble: once is enough */
};

static int try_next(sd_event_source *source, uint64_t at_us, void *user);

/* A pause from half to one and a half times pause_ms: a thousand daemons do not come back at one moment. */
static void plan(struct flyt_uplink *uplink, bool is_at_once)
{
    uint32_t dice = 0;
    if (getrandom(&dice, sizeof dice, 0) != (ssize_t)sizeof dice)
        dice = 0x80000000u;
    uint64_t wait_ms = uplink->pause_ms / 2 + uplink->pause_ms * (dice >> 16) / 65536;
    sd_event_source_set_time_relative(uplink->timer, is_at_once ? 0 : wait_ms * 1000);
    sd_event_source_set_enabled(uplink->timer, SD_EVENT_ONESHOT);
    if (!is_at_once)
        uplink->pause_ms =
            uplink->pause_ms * 2 < FLYT_UPLINK_PAUSE_MAX_MS ? uplink->pause_ms * 2 : FLYT_UPLINK_PAUSE_MAX_MS;
}

/* Notes why there is no connection, and says it once. */
static void complain(struct flyt_uplink *uplink, const char *cause)
{
    snprintf(uplink->cause, sizeof uplink->cause, "%s", cause);
    if (!uplink->has_complained)
        flyt_warn("cluster manager %s: %s", uplink->address, cause);
    uplink->has_complained = true;
}

static void leave(struct flyt_uplink *uplink, bool is_at_once)
{
    bool was_up = uplink->is_up;
    uplink->is_up = false;
    plan(uplink, is_at_once);
    if (was_up && uplink->config.down)
        uplink->config.down(uplink->config.user);
}

static void peer_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct flyt_uplink *uplink = user;
    if (uplink->peer != peer && uplink->peer)
        return;
    uplink->peer = NULL;
    complain(uplink, cause && *cause->text ? cause->text : "the connection has ended");
    leave(uplink, false);
}

static void drop_peer(struct flyt_uplink *uplink)
{
    struct flyt_peer *peer = uplink->peer;
    uplink->peer = NULL;
    flyt_peer_close(peer);
}

void flyt_uplink_follow(struct flyt_uplink *uplink, char *const *leaders, size_t count)
{
    snprintf(uplink->leader, sizeof uplink->leader, "%s", count ? leaders[0] : "");
    /* Where nobody leads yet, asking at once would be a busy loop. The peer is closed by the timer: this may be called
     * from inside one of its functions. */
    bool is_new = count && strcmp(uplink->leader, uplink->address) != 0;
    if (!is_new)
        complain(uplink, "it does not lead, and no leader is known");
    leave(uplink, is_new);
}

void flyt_uplink_leave(struct flyt_uplink *uplink, const char *cause)
{
    snprintf(uplink->cause, sizeof uplink->cause, "%s", cause);
    uplink->has_complained = true;
    /* Its HELLO was fine: without this, two such managers were asked in turn as fast as they answer. */
    if (uplink->pause_ms < FLYT_UPLINK_PAUSE_LEFT_MS)
        uplink->pause_ms = FLYT_UPLINK_PAUSE_LEFT_MS;
    leave(uplink, false);
}

/* ---- whether it still answers ---- */

static void plan_probe(struct flyt_uplink *uplink)
{
    sd_event_source_set_time_relative(uplink->probe_timer, FLYT_UPLINK_PROBE_MS * 1000ull);
    sd_event_source_set_enabled(uplink->probe_timer, SD_EVENT_ONESHOT);
}

static void probed(void *user, int status, void *result)
{
    struct flyt_uplink *uplink = user;
    if (!uplink->is_up || status == -EPIPE || status == -ECANCELED)
        return; /* another way of ending it has been seen */
    if (status) {
        complain(uplink, "it does not answer any more");
        leave(uplink, true);
    } else {
        plan_probe(uplink);
    }
}

/* A manager that is frozen, or whose machine is gone without a word, keeps its connections: it is asked. */
static int probe(sd_event_source *source, uint64_t at_us, void *user)
{
    struct flyt_uplink *uplink = user;
    if (!uplink->is_up || !uplink->peer)
        return 0;
    int status = flyt_peer_call(uplink->peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, FLYT_CONTROL_NULL, NULL, NULL,
                                NULL, 0, FLYT_UPLINK_PROBE_MS, probed, uplink);
    if (status)
        probed(uplink, status, NULL);
    return 0;
}

/* ---- HELLO ---- */

static void hello_done(void *user, int status, void *result)
{
    struct flyt_uplink *uplink = user;
    flyt_hello_res *res = result;
    if (status) {
        if (uplink->peer && status != -ECANCELED && status != -EPIPE) {
            complain(uplink, status == -ETIMEDOUT ? "no answer" : strerror(-status));
            leave(uplink, false);
        }
        return;
    }
    if (res->outcome.status == FLYT_STATUS_NOT_LEADER || (res->outcome.status == FLYT_STATUS_OK && !res->is_leader)) {
        flyt_uplink_follow(uplink, res->leaders.leaders_val, res->leaders.leaders_len);
        return;
    }
    if (res->outcome.status != FLYT_STATUS_OK) {
        complain(uplink, res->outcome.text);
        leave(uplink, false);
        return;
    }
    flyt_info("cluster manager %s: connected, build %s, epoch %llu", uplink->address, res->build,
              (unsigned long long)res->epoch);
    uplink->pause_ms = FLYT_UPLINK_PAUSE_MIN_MS;
    uplink->cause[0] = 0;
    uplink->has_complained = false;
    uplink->is_up = true;
    uplink->connect_count++;
    plan_probe(uplink);
    if (uplink->config.up)
        uplink->config.up(uplink->config.user, res->epoch);
}

static void peer_ready(struct flyt_peer *peer, void *user)
{
    struct flyt_uplink *uplink = user;
    flyt_hello_args args = {
        .protocol = FLYT_CONTROL_PROTOCOL, .build = FLYT_BUILD_NAME, .kind = uplink->config.kind, .name = uplink->name};
    memcpy(args.instance, uplink->instance, sizeof args.instance);
    int status =
        flyt_peer_call(peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, FLYT_HELLO, (xdrproc_t)xdr_flyt_hello_args,
                       &args, (xdrproc_t)xdr_flyt_hello_res, sizeof(flyt_hello_res), HELLO_MS, hello_done, uplink);
    if (status)
        leave(uplink, false);
}

static void peer_measured(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user)
{
    struct flyt_uplink *uplink = user;
    if (uplink->config.measured)
        uplink->config.measured(procedure, is_served, took_us, has_failed, uplink->config.user);
}

static const char *pick(struct flyt_uplink *uplink)
{
    const struct flyt_strings *managers = uplink->config.managers;
    if (uplink->leader[0]) {
        snprintf(uplink->address, sizeof uplink->address, "%s", uplink->leader);
        uplink->leader[0] = 0; /* once: where it does not answer, the others know better */
    } else if (managers->count) {
        snprintf(uplink->address, sizeof uplink->address, "%s", managers->items[uplink->next++ % managers->count]);
    }
    return uplink->address;
}

static int try_next(sd_event_source *source, uint64_t at_us, void *user)
{
    struct flyt_uplink *uplink = user;
    struct flyt_error err = {0};
    const struct flyt_peer_config config = {
        .event = uplink->config.event,
        .serves = uplink->config.orders,
        .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX,
        .user = uplink,
        .ready = peer_ready,
        .ended = peer_ended,
        .measured = peer_measured,
    };
    drop_peer(uplink);
    const char *url = pick(uplink);
    struct flyt_tls *tls = strncmp(url, "unix:", 5) == 0 ? NULL : uplink->config.tls;
    int status = flyt_peer_connect(url, tls, &config, FLYT_UPLINK_CONNECT_MS, &err, &uplink->peer);
    if (status) {
        complain(uplink, err.text);
        leave(uplink, false);
    }
    return 0;
}

int flyt_uplink_new(const struct flyt_uplink_config *config, struct flyt_uplink **ret_uplink)
{
    struct flyt_uplink *uplink = calloc(1, sizeof *uplink);
    if (!uplink)
        return -ENOMEM;
    uplink->config = *config;
    uplink->pause_ms = FLYT_UPLINK_PAUSE_MIN_MS;
    uplink->name = strdup(config->name);
    int status = uplink->name ? 0 : -ENOMEM;
    if (!status && getrandom(uplink->instance, sizeof uplink->instance, 0) != (ssize_t)sizeof uplink->instance)
        status = -EIO;
    if (!status)
        status = sd_event_add_time_relative(config->event, &uplink->timer, CLOCK_MONOTONIC, 0, 1000, try_next, uplink);
    if (status >= 0)
        status =
            sd_event_add_time_relative(config->event, &uplink->probe_timer, CLOCK_MONOTONIC, 0, 100000, probe, uplink);
    if (status >= 0)
        status = sd_event_source_set_enabled(uplink->probe_timer, SD_EVENT_OFF);
    if (status < 0) {
        sd_event_source_disable_unref(uplink->timer);
        sd_event_source_disable_unref(uplink->probe_timer);
        free(uplink->name);
        free(uplink);
        return status;
    }
    *ret_uplink = uplink;
    return 0;
}

struct flyt_uplink *flyt_uplink_free(struct flyt_uplink *uplink)
{
    if (!uplink)
        return NULL;
    drop_peer(uplink);
    sd_event_source_disable_unref(uplink->timer);
    sd_event_source_disable_unref(uplink->probe_timer);
    free(uplink->name);
    free(uplink);
    return NULL;
}

void *flyt_uplink_user(const struct flyt_call *call)
{
    struct flyt_peer *peer = flyt_call_peer(call);
    struct flyt_uplink *uplink = peer ? flyt_peer_user(peer) : NULL;
    return uplink ? uplink->config.user : NULL;
}

bool flyt_uplink_is_up(const struct flyt_uplink *uplink)
{
    return uplink->is_up;
}

const char *flyt_uplink_address(const struct flyt_uplink *uplink)
{
    return uplink->address;
}

const char *flyt_uplink_cause(const struct flyt_uplink *uplink)
{
    return uplink->cause;
}

uint64_t flyt_uplink_connect_count(const struct flyt_uplink *uplink)
{
    return uplink->connect_count;
}

int flyt_uplink_call(struct flyt_uplink *uplink, uint32_t procedure, xdrproc_t xdr_args, const void *args,
                     xdrproc_t xdr_res, size_t result_bytes, uint64_t timeout_ms, flyt_call_done_fn done, void *user)
{
    if (!uplink->is_up || !uplink->peer)
        return -ENOTCONN;
    return flyt_peer_call(uplink->peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedure, xdr_args, args, xdr_res,
                          result_bytes, timeout_ms, done, user);
}
