#include "control/base/uplink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/base/tls.h"
#include "rpc/base/build_name.h"
#include "rpc/base/log.h"
#include "rpc/base/url.h"

enum { HELLO_MS = 5000, TRIED_MAX = FLYT_MANAGERS_MAX + 1 };

struct flyt_uplink {
    struct flyt_uplink_config config;
    char *name;
    unsigned char instance[FLYT_INSTANCE_BYTES];
    struct flyt_peer *peer; /* up, or being tried; or left, until the timer */
    struct flyt_peer *kept; /* to a manager that does not lead; it says who does */
    sd_event_source *timer, *probe_timer;
    uint64_t pause_ms;
    size_t next;                         /* of the configured managers */
    char leader[FLYT_URL_BYTES_MAX + 1]; /* to be tried first; "": none is known */
    char address[FLYT_URL_BYTES_MAX + 1];
    char kept_address[FLYT_URL_BYTES_MAX + 1];
    char cause[FLYT_TEXT_BYTES_MAX + 1];
    uint64_t connect_count;
    /* the round */
    uint64_t tried[TRIED_MAX]; /* hashes of addresses */
    unsigned tried_count, round_count;
    bool has_answered; /* a manager knows who leads: the others would say the same */
    bool is_up;
    bool is_asking;      /* HELLO is under way on `peer` */
    bool stays;          /* the next one to be tried is `peer` itself */
    bool has_complained; /* of the present trouble: once is enough */
};

enum wait { AT_ONCE, SPREAD, PAUSE };

static int try_next(sd_event_source *source, uint64_t at_us, void *user);

/* From half to one and a half times this long: a thousand daemons do not come back at one moment. */
static uint64_t jittered(uint64_t ms)
{
    uint32_t dice = 0;
    if (getrandom(&dice, sizeof dice, 0) != (ssize_t)sizeof dice)
        dice = 0x80000000u;
    return ms / 2 + ms * (dice >> 16) / 65536;
}

static void plan(struct flyt_uplink *uplink, enum wait wait)
{
    uint64_t ms = 0;
    if (wait == SPREAD)
        ms = jittered(FLYT_UPLINK_PAUSE_MIN_MS);
    if (wait == PAUSE) {
        if (uplink->kept && uplink->pause_ms < FLYT_UPLINK_KEPT_PAUSE_MS)
            uplink->pause_ms = FLYT_UPLINK_KEPT_PAUSE_MS;
        ms = jittered(uplink->pause_ms);
        uplink->pause_ms =
            uplink->pause_ms * 2 < FLYT_UPLINK_PAUSE_MAX_MS ? uplink->pause_ms * 2 : FLYT_UPLINK_PAUSE_MAX_MS;
    }
    sd_event_source_set_time_relative(uplink->timer, ms * 1000);
    sd_event_source_set_enabled(uplink->timer, SD_EVENT_ONESHOT);
}

/* Says once why there is no connection. */
static void say_cause(struct flyt_uplink *uplink)
{
    if (!uplink->has_complained)
        flyt_warn("cluster manager %s: %s", uplink->address, uplink->cause);
    uplink->has_complained = true;
}

static void complain(struct flyt_uplink *uplink, const char *cause)
{
    snprintf(uplink->cause, sizeof uplink->cause, "%s", cause);
    say_cause(uplink);
}

static void begin_round(struct flyt_uplink *uplink)
{
    uplink->tried_count = 0;
    uplink->has_answered = false;
}

/* The peer itself is closed by the timer: this may be called from inside one of its functions. */
static void leave(struct flyt_uplink *uplink, enum wait wait)
{
    bool was_up = uplink->is_up;
    uplink->is_up = uplink->is_asking = false;
    if (was_up)
        begin_round(uplink);
    plan(uplink, wait);
    if (was_up && uplink->config.down)
        uplink->config.down(uplink->config.user);
}

static void peer_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct flyt_uplink *uplink = user;
    if (peer == uplink->kept) {
        uplink->kept = NULL;
        return;
    }
    if (uplink->peer != peer && uplink->peer)
        return;
    uplink->peer = NULL;
    complain(uplink, cause && *cause->text ? cause->text : "the connection has ended");
    leave(uplink, uplink->is_up ? SPREAD : AT_ONCE);
}

static void drop_peer(struct flyt_uplink *uplink)
{
    struct flyt_peer *peer = uplink->peer;
    uplink->peer = NULL;
    uplink->is_asking = false;
    flyt_peer_close(peer);
}

static void drop_kept(struct flyt_uplink *uplink)
{
    struct flyt_peer *peer = uplink->kept;
    uplink->kept = NULL;
    flyt_peer_close(peer);
}

void flyt_uplink_follow(struct flyt_uplink *uplink, char *const *leaders, size_t count)
{
    bool is_same = count && uplink->peer && strcmp(leaders[0], uplink->address) == 0;
    if (is_same && uplink->is_asking)
        return; /* its answer will say so too */
    bool is_connected = is_same || (count && uplink->kept && strcmp(leaders[0], uplink->kept_address) == 0);
    snprintf(uplink->leader, sizeof uplink->leader, "%s", count ? leaders[0] : "");
    uplink->stays = is_same;
    begin_round(uplink);
    if (!count)
        complain(uplink, "it does not lead, and no leader is known");
    /* Where nobody leads yet, asking at once would be a busy loop. */
    leave(uplink, is_connected ? AT_ONCE : count ? SPREAD : PAUSE);
}

void flyt_uplink_leave(struct flyt_uplink *uplink, const char *cause)
{
    snprintf(uplink->cause, sizeof uplink->cause, "%s", cause);
    uplink->has_complained = true;
    /* Its HELLO was fine: without this, two such managers were asked in turn as fast as they answer. */
    if (uplink->pause_ms < FLYT_UPLINK_PAUSE_LEFT_MS)
        uplink->pause_ms = FLYT_UPLINK_PAUSE_LEFT_MS;
    leave(uplink, PAUSE);
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
        leave(uplink, AT_ONCE);
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

/* It answers, but does not lead: who does is tried next. */
static void keep_peer(struct flyt_uplink *uplink, const flyt_hello_res *res)
{
    bool is_named = res->leaders.leaders_len && strcmp(res->leaders.leaders_val[0], uplink->address) != 0;
    snprintf(uplink->leader, sizeof uplink->leader, "%s", is_named ? res->leaders.leaders_val[0] : "");
    snprintf(uplink->cause, sizeof uplink->cause, "it does not lead, and no leader is known");
    uplink->has_answered = res->epoch != 0;
    if (!uplink->kept) {
        uplink->kept = uplink->peer;
        uplink->peer = NULL;
        snprintf(uplink->kept_address, sizeof uplink->kept_address, "%s", uplink->address);
    }
    leave(uplink, AT_ONCE);
}

static void hello_done(void *user, int status, void *result)
{
    struct flyt_uplink *uplink = user;
    flyt_hello_res *res = result;
    if (status == -ECANCELED || status == -EPIPE || !uplink->peer || !uplink->is_asking)
        return; /* another way of ending it has been seen */
    uplink->is_asking = false;
    if (status) {
        complain(uplink, status == -ETIMEDOUT ? "no answer" : strerror(-status));
        leave(uplink, AT_ONCE);
        return;
    }
    if (res->outcome.status == FLYT_STATUS_NOT_LEADER || (res->outcome.status == FLYT_STATUS_OK && !res->is_leader)) {
        keep_peer(uplink, res);
        return;
    }
    if (res->outcome.status != FLYT_STATUS_OK) {
        complain(uplink, res->outcome.text);
        leave(uplink, AT_ONCE);
        return;
    }
    flyt_info("cluster manager %s: connected, build %s, epoch %llu", uplink->address, res->build,
              (unsigned long long)res->epoch);
    sd_event_source_set_enabled(uplink->timer, SD_EVENT_OFF);
    drop_kept(uplink);
    begin_round(uplink);
    uplink->round_count = 0;
    uplink->leader[0] = 0;
    uplink->pause_ms = FLYT_UPLINK_PAUSE_MIN_MS;
    uplink->cause[0] = 0;
    uplink->has_complained = uplink->stays = false;
    uplink->is_up = true;
    uplink->connect_count++;
    plan_probe(uplink);
    if (uplink->config.up)
        uplink->config.up(uplink->config.user, res->epoch);
}

static void ask(struct flyt_uplink *uplink)
{
    flyt_hello_args args = {.protocol = FLYT_CONTROL_PROTOCOL,
                            .build = (char *)flyt_build_name,
                            .kind = uplink->config.kind,
                            .name = uplink->name};
    memcpy(args.instance, uplink->instance, sizeof args.instance);
    int status = flyt_peer_call(uplink->peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, FLYT_HELLO,
                                (xdrproc_t)xdr_flyt_hello_args, &args, (xdrproc_t)xdr_flyt_hello_res,
                                sizeof(flyt_hello_res), HELLO_MS, hello_done, uplink);
    uplink->is_asking = status == 0;
    if (status)
        leave(uplink, AT_ONCE);
}

static void peer_ready(struct flyt_peer *peer, void *user)
{
    struct flyt_uplink *uplink = user;
    if (peer == uplink->peer)
        ask(uplink);
}

static void peer_measured(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user)
{
    struct flyt_uplink *uplink = user;
    if (uplink->config.measured)
        uplink->config.measured(procedure, is_served, took_us, has_failed, uplink->config.user);
}

/* ---- the round ---- */

/* FNV-1a. Two addresses with one hash: one of them waits for a round of its own. */
static uint64_t hash_of(const char *url)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *url; url++)
        hash = (hash ^ (unsigned char)*url) * 0x100000001b3u;
    return hash;
}

static bool is_tried(const struct flyt_uplink *uplink, const char *url)
{
    uint64_t hash = hash_of(url);
    for (unsigned i = 0; i < uplink->tried_count; i++)
        if (uplink->tried[i] == hash)
            return true;
    return uplink->tried_count == TRIED_MAX;
}

/* The next of this round; NULL: it has ended. */
static const char *pick(struct flyt_uplink *uplink)
{
    const struct flyt_strings *managers = uplink->config.managers;
    bool asks_others = uplink->kept && !uplink->tried_count && uplink->round_count % FLYT_UPLINK_ASK_OTHERS == 0;
    if (uplink->leader[0] && !is_tried(uplink, uplink->leader))
        return uplink->leader;
    if (uplink->kept && !asks_others && !is_tried(uplink, uplink->kept_address))
        return uplink->kept_address;
    for (size_t i = 0; i < managers->count && !uplink->has_answered; i++) {
        const char *url = managers->items[uplink->next++ % managers->count];
        if (!is_tried(uplink, url) && !(asks_others && strcmp(url, uplink->kept_address) == 0))
            return url;
    }
    return uplink->kept && !is_tried(uplink, uplink->kept_address) ? uplink->kept_address : NULL;
}

static void try_address(struct flyt_uplink *uplink)
{
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
    struct flyt_tls *tls = strncmp(uplink->address, "unix:", 5) == 0 ? NULL : uplink->config.tls;
    int status = flyt_peer_connect(uplink->address, tls, &config, FLYT_UPLINK_CONNECT_MS, &err, &uplink->peer);
    if (status) {
        complain(uplink, err.text);
        leave(uplink, AT_ONCE);
    }
}

static int try_next(sd_event_source *source, uint64_t at_us, void *user)
{
    struct flyt_uplink *uplink = user;
    const char *url = pick(uplink);
    bool stays = uplink->stays && uplink->peer && url && strcmp(url, uplink->address) == 0;
    uplink->stays = false;
    if (!stays)
        drop_peer(uplink);
    if (!url) {
        if (!uplink->cause[0])
            snprintf(uplink->cause, sizeof uplink->cause, "no manager is known");
        say_cause(uplink);
        begin_round(uplink);
        uplink->round_count++;
        plan(uplink, PAUSE);
        return 0;
    }
    uplink->tried[uplink->tried_count++] = hash_of(url);
    snprintf(uplink->address, sizeof uplink->address, "%s", url);
    if (url == uplink->leader)
        uplink->leader[0] = 0; /* once: where it does not answer, the others know better */
    if (!stays && uplink->kept && strcmp(uplink->address, uplink->kept_address) == 0) {
        uplink->peer = uplink->kept;
        uplink->kept = NULL;
        stays = true;
    }
    if (stays)
        ask(uplink);
    else
        try_address(uplink);
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
    drop_kept(uplink);
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
