#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/client/client.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

enum { ATTACH_MS = 20000 };

/* A program that waits for the cluster manager's answer. */
struct flyt_waiting_program {
    struct flyt_waiting_program *next;
    struct flyt_call *call;
    uint64_t since_us;
    uint64_t deadline_ms;
};

static uint64_t now_us(void)
{
    return flyt_clock_ns() / 1000;
}

static void reply(struct flyt_client_manager *manager, struct flyt_call *call, uint64_t since_us,
                  const flyt_local_attach_res *res)
{
    flyt_status_attached(manager, now_us() - since_us, res->outcome.status);
    flyt_call_reply(call, res);
}

static void refuse(struct flyt_client_manager *manager, struct flyt_call *call, uint64_t since_us, flyt_status status,
                   const char *text)
{
    flyt_local_attach_res res = {.outcome = {.status = status, .text = (char *)text}};
    reply(manager, call, since_us, &res);
}

/* One program's credentials out of the VM's grant: a number that no program had, and the secret derived from it. */
static void serve_granted(struct flyt_client_manager *manager, struct flyt_call *call, uint64_t since_us)
{
    const flyt_grant *grant = &manager->grants[0];
    struct flyt_credentials credentials = {.allocation_id = grant->allocation.id,
                                           .generation = grant->allocation.generation,
                                           .key_number = grant->key_number};
    unsigned char data[320];
    flyt_local_attach_res res = {.is_encrypted = grant->allocation.is_encrypted};
    if (getrandom(&credentials.program_number, sizeof credentials.program_number, 0) !=
        (ssize_t)sizeof credentials.program_number) {
        refuse(manager, call, since_us, FLYT_STATUS_UNAVAILABLE, "no random numbers");
        return;
    }
    strncpy(credentials.vm_ip, grant->allocation.vm_ip, sizeof credentials.vm_ip - 1);
    size_t bytes = flyt_credentials_put(&credentials, data);
    flyt_ticket_secret((const unsigned char *)grant->ticket_key, credentials.program_number,
                       (unsigned char *)res.secret);
    res.urls.urls_len = grant->data_urls.data_urls_len;
    res.urls.urls_val = grant->data_urls.data_urls_val;
    res.credentials.credentials_len = (u_int)bytes;
    res.credentials.credentials_val = (char *)data;
    res.outcome.text = (char *)"";
    reply(manager, call, since_us, &res);
    explicit_bzero(res.secret, sizeof res.secret);
}

static void forget_grants(struct flyt_client_manager *manager)
{
    for (unsigned i = 0; i < manager->grant_count; i++) {
        explicit_bzero(manager->grants[i].ticket_key, sizeof manager->grants[i].ticket_key);
        xdr_free((xdrproc_t)xdr_flyt_grant, &manager->grants[i]);
    }
    free(manager->grants);
    manager->grants = NULL;
    manager->grant_count = 0;
}

static void take_grants(struct flyt_client_manager *manager, flyt_grant **grants, u_int *count)
{
    forget_grants(manager);
    manager->grants = *grants;
    manager->grant_count = *count;
    *grants = NULL;
    *count = 0;
    flyt_devices_changed(manager);
}

/* Every waiting program gets what there is now: a grant, or the refusal. */
static void serve_waiting(struct flyt_client_manager *manager, flyt_status status, const char *text)
{
    struct flyt_waiting_program *waiting = manager->waiting;
    manager->waiting = NULL;
    while (waiting) {
        struct flyt_waiting_program *next = waiting->next;
        if (status == FLYT_STATUS_OK && manager->grant_count)
            serve_granted(manager, waiting->call, waiting->since_us);
        else
            refuse(manager, waiting->call, waiting->since_us, status == FLYT_STATUS_OK ? FLYT_STATUS_NOT_FOUND : status,
                   text);
        free(waiting);
        waiting = next;
    }
    sd_event_source_set_enabled(manager->waiting_timer, SD_EVENT_OFF);
}

static void ask(struct flyt_client_manager *manager);

static void answered(void *user, int status, void *result)
{
    struct flyt_client_manager *manager = user;
    flyt_attach_res *res = result;
    bool was_for_programs = manager->asks_for_programs;
    manager->is_asking = false;
    if (status) { /* lost on the way: asked again, now or when the connection is there */
        if (status == -ETIMEDOUT && manager->waiting)
            ask(manager);
        return;
    }
    if (res->outcome.status == FLYT_STATUS_NOT_LEADER) {
        flyt_uplink_follow(manager->uplink, NULL, 0);
        return;
    }
    bool is_granted = res->outcome.status == FLYT_STATUS_OK && res->grants.grants_len;
    if (is_granted || was_for_programs)
        manager->must_ask = false;
    if (is_granted) {
        take_grants(manager, &res->grants.grants_val, &res->grants.grants_len);
        const flyt_grant *grant = &manager->grants[0];
        flyt_info("granted allocation=%016llx node=%s slots=%u revision=%llu", (unsigned long long)grant->allocation.id,
                  grant->node, grant->allocation.slots.slots_len, (unsigned long long)grant->allocation.revision);
    } else if (res->outcome.status != FLYT_STATUS_UNAVAILABLE && res->outcome.status != FLYT_STATUS_TIMEOUT) {
        forget_grants(manager); /* else it goes on with what it has: node or store are away for now */
    }
    if (!is_granted && !was_for_programs && manager->waiting) {
        ask(manager); /* they came while it was only looked what there is */
        return;
    }
    if (res->outcome.status != FLYT_STATUS_OK && manager->waiting)
        flyt_warn("no allocation: %s", res->outcome.text);
    serve_waiting(manager, res->outcome.status,
                  *res->outcome.text ? res->outcome.text : "the cluster manager grants nothing, and does not say why");
}

/* Asks the cluster manager, unless it is being asked. */
static void ask(struct flyt_client_manager *manager)
{
    /* Where nobody waits it is only asked what there is: nothing is allocated for nobody. */
    flyt_attach_args args = {.is_waiting = manager->waiting || manager->settings->attach == FLYT_ATTACH_START};
    manager->asks_for_programs = manager->is_asking ? manager->asks_for_programs : args.is_waiting;
    if (manager->is_asking || !flyt_uplink_is_up(manager->uplink))
        return;
    manager->is_asking =
        flyt_uplink_call(manager->uplink, FLYT_VM_ATTACH, (xdrproc_t)xdr_flyt_attach_args, &args,
                         (xdrproc_t)xdr_flyt_attach_res, sizeof(flyt_attach_res), ATTACH_MS, answered, manager) == 0;
}

/* For the first one that waits. */
static void arm(struct flyt_client_manager *manager)
{
    uint64_t now_ms = flyt_clock_ms(), deadline_ms = manager->waiting->deadline_ms;
    sd_event_source_set_time_relative(manager->waiting_timer, deadline_ms > now_ms ? (deadline_ms - now_ms) * 1000 : 0);
    sd_event_source_set_enabled(manager->waiting_timer, SD_EVENT_ONESHOT);
}

static int give_up(sd_event_source *source, uint64_t at_us, void *user)
{
    struct flyt_client_manager *manager = user;
    char text[FLYT_TEXT_BYTES_MAX];
    const char *cause = flyt_uplink_cause(manager->uplink);
    snprintf(text, sizeof text, "the cluster manager (%s) has not answered in time%s%.2000s",
             flyt_uplink_address(manager->uplink), *cause ? ": " : "", cause);
    uint64_t now_ms = flyt_clock_ms();
    if (manager->waiting && manager->waiting->deadline_ms <= now_ms)
        flyt_warn("%s", text);
    while (manager->waiting && manager->waiting->deadline_ms <= now_ms) {
        struct flyt_waiting_program *late = manager->waiting;
        manager->waiting = late->next;
        refuse(manager, late->call, late->since_us, FLYT_STATUS_UNAVAILABLE, text);
        free(late);
    }
    if (manager->waiting)
        arm(manager);
    return 0;
}

static void wait_for_answer(struct flyt_client_manager *manager, struct flyt_call *call, uint64_t since_us)
{
    struct flyt_waiting_program *waiting = calloc(1, sizeof *waiting);
    if (!waiting) {
        refuse(manager, call, since_us, FLYT_STATUS_UNAVAILABLE, "no memory");
        return;
    }
    *waiting = (struct flyt_waiting_program){
        .call = call, .since_us = since_us, .deadline_ms = flyt_clock_ms() + manager->settings->attach_timeout_ms};
    *(manager->waiting ? manager->waiting_end : &manager->waiting) = waiting;
    manager->waiting_end = &waiting->next;
    if (manager->waiting == waiting)
        arm(manager);
    ask(manager);
}

void flyt_grant_serve(struct flyt_client_manager *manager, struct flyt_call *call, bool has_failed)
{
    uint64_t since_us = now_us();
    if (!manager->waiting_timer &&
        sd_event_add_time_relative(flyt_daemon_event(manager->daemon), &manager->waiting_timer, CLOCK_MONOTONIC, 0,
                                   1000, give_up, manager) < 0) {
        refuse(manager, call, since_us, FLYT_STATUS_UNAVAILABLE, "no memory");
        return;
    }
    if (!manager->waiting)
        sd_event_source_set_enabled(manager->waiting_timer, SD_EVENT_OFF);
    manager->must_ask |= has_failed;
    bool is_blocked = manager->grant_count && manager->grants[0].allocation.state != FLYT_ALLOCATION_ACTIVE;
    /* What there is is better than nothing, where nobody can be asked. */
    bool must_ask = manager->must_ask && flyt_uplink_is_up(manager->uplink);
    if (manager->grant_count && !must_ask && !is_blocked)
        serve_granted(manager, call, since_us);
    else
        wait_for_answer(manager, call, since_us);
}

void flyt_grant_up(struct flyt_client_manager *manager)
{
    manager->is_asking = false; /* what was under way has ended with its connection */
    if (manager->waiting || manager->grant_count || manager->settings->attach == FLYT_ATTACH_START)
        ask(manager); /* what was granted may have changed meanwhile */
}

/* What a person would say of the change, for logs and programs. */
static void describe(const flyt_grant *grant, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (unsigned i = 0; i < grant->allocation.slots.slots_len && used < bytes; i++) {
        const flyt_slot *slot = &grant->allocation.slots.slots_val[i];
        used += (size_t)snprintf(text + used, bytes - used, "%sdevice %u: %u SMs, %llu MiB", i ? "; " : "",
                                 slot->device_index, slot->sm_count, (unsigned long long)slot->memory_bytes >> 20);
    }
}

void flyt_grant_change(struct flyt_client_manager *manager, flyt_changed_args *args)
{
    char text[1024];
    take_grants(manager, &args->grants.grants_val, &args->grants.grants_len);
    if (!manager->grant_count) {
        flyt_info("nothing is granted any more: %s", args->reason);
        return;
    }
    describe(&manager->grants[0], text, sizeof text);
    flyt_info("grant changed: %s", text);
    flyt_programs_notify(manager, manager->grants[0].allocation.revision, text);
    if (manager->waiting && manager->grants[0].allocation.state == FLYT_ALLOCATION_ACTIVE)
        serve_waiting(manager, FLYT_STATUS_OK, "");
}

void flyt_grant_fini(struct flyt_client_manager *manager)
{
    serve_waiting(manager, FLYT_STATUS_UNAVAILABLE, "the client manager is ending");
    sd_event_source_disable_unref(manager->waiting_timer);
    forget_grants(manager);
}
