/* A VM: attaches, runs a program, ends it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base/clock.h"
#include "rpc/base/ticket.h"
#include "tests/bench/load/load.h"

void load_vm_ip(unsigned index, char ip[LOAD_NAME_BYTES])
{
    snprintf(ip, LOAD_NAME_BYTES, "10.%u.%u.%u", 64 + (index >> 16), index >> 8 & 255, index & 255);
}

struct load_vm *load_vm_find(struct load *load, const char *ip)
{
    unsigned high, middle, low;

    if (sscanf(ip, "10.%u.%u.%u", &high, &middle, &low) != 3 || high < 64)
        return NULL;
    unsigned index = (high - 64) << 16 | middle << 8 | low;
    return index < load->vm_count && !strcmp(load->vms[index].ip, ip) ? &load->vms[index] : NULL;
}

unsigned load_vm_sms(unsigned index)
{
    static const unsigned sms[] = {8, 16, 20, 32};

    return sms[index % 4];
}

uint64_t load_vm_memory_bytes(unsigned index)
{
    return (2 + index % 5) * (1ull << 30) + (index % 2 ? 1ull << 29 : 0);
}

/* ---- asking ---- */

static void ask(struct load_vm *vm);

static uint64_t now_us(void)
{
    return flyt_clock_ns() / 1000;
}

static void set_timer(struct load_vm *vm, uint64_t ms)
{
    sd_event_source_set_time_relative(vm->timer, ms * 1000);
    sd_event_source_set_enabled(vm->timer, SD_EVENT_ONESHOT);
}

static void reported(void *user, int status, void *result)
{
    /* Nothing depends on it, and who comes back says it anew. */
}

static void report(struct load_vm *vm)
{
    flyt_vm_report_args args = {.program_count = vm->is_running};

    flyt_uplink_call(vm->uplink, FLYT_VM_REPORT, (xdrproc_t)xdr_flyt_vm_report_args, &args, (xdrproc_t)xdr_flyt_outcome,
                     sizeof(flyt_outcome), LOAD_ANSWER_MS, reported, NULL);
}

/* The grant says what the VM's document wants, and its node holds it and will know its tickets. */
static void check_grant(struct load_vm *vm, const flyt_grant *grant)
{
    struct load *load = vm->load;
    const struct load_node *node = load_node_find(load, grant->node);
    const flyt_allocation *wire = &grant->allocation;
    const struct load_held *held = node ? load_held_find(node, wire->id) : NULL;
    unsigned char key[FLYT_TICKET_KEY_BYTES];
    struct flyt_credentials credentials = {
        .allocation_id = wire->id, .generation = wire->generation, .key_number = grant->key_number};

    if (!held || held->vm != vm || held->generation != wire->generation) {
        load_violation(load, "VM %s is granted %016" PRIx64 " on %s, which does not hold it for it", vm->ip,
                       (uint64_t)wire->id, grant->node);
        return;
    }
    snprintf(credentials.vm_ip, sizeof credentials.vm_ip, "%s", vm->ip);
    flyt_ticket_key(node->key, &credentials, key);
    if (memcmp(key, grant->ticket_key, sizeof key))
        load_violation(load, "VM %s got a ticket key that %s does not know", vm->ip, grant->node);
    unsigned wanted = load_vm_sms(vm->index);
    if (held->slot_count != 1 || held->slots[0].sm_count < wanted ||
        held->slots[0].sm_count >= wanted + LOAD_LAST_GROUP_SMS ||
        held->slots[0].memory_bytes != load_vm_memory_bytes(vm->index))
        load_violation(load, "VM %s wanted %u SMs and %" PRIu64 " bytes and has %u and %" PRIu64, vm->ip, wanted,
                       load_vm_memory_bytes(vm->index), held->slots[0].sm_count, held->slots[0].memory_bytes);
}

static void granted(struct load_vm *vm, const flyt_grant *grant)
{
    check_grant(vm, grant);
    vm->is_asking = false;
    vm->is_running = true;
    vm->allocation_id = grant->allocation.id;
    report(vm);
    if (!vm->stays)
        set_timer(vm, vm->load->hold_ms);
    load_answered(vm->load, true, now_us() - vm->due_us, NULL);
}

static void answered(void *user, int status, void *result)
{
    struct load_vm *vm = user;
    const flyt_attach_res *res = result;

    vm->is_called = false;
    if (!vm->is_asking)
        return;
    if (!status && res->outcome.status == FLYT_STATUS_OK && res->grants.grants_len == 1) {
        granted(vm, &res->grants.grants_val[0]);
        return;
    }
    bool is_passing = status || res->outcome.status == FLYT_STATUS_UNAVAILABLE ||
                      res->outcome.status == FLYT_STATUS_TIMEOUT || res->outcome.status == FLYT_STATUS_NOT_LEADER;
    if (is_passing) {
        vm->load->counts.again++;
        if (!status)
            snprintf(vm->load->counts.refusal, sizeof vm->load->counts.refusal, "%s", res->outcome.text);
        if (!status && res->outcome.status == FLYT_STATUS_NOT_LEADER)
            flyt_uplink_follow(vm->uplink, NULL, 0);
        else
            set_timer(vm, LOAD_RETRY_MS);
        return;
    }
    vm->is_asking = false;
    load_answered(vm->load, false, now_us() - vm->due_us, res->outcome.text);
}

static void ask(struct load_vm *vm)
{
    flyt_attach_args args = {.is_waiting = true};

    if (vm->is_called || !flyt_uplink_is_up(vm->uplink))
        return; /* `up` asks */
    int status =
        flyt_uplink_call(vm->uplink, FLYT_VM_ATTACH, (xdrproc_t)xdr_flyt_attach_args, &args,
                         (xdrproc_t)xdr_flyt_attach_res, sizeof(flyt_attach_res), LOAD_ANSWER_MS, answered, vm);
    vm->is_called = status == 0;
}

void load_vm_ask(struct load_vm *vm, uint64_t due_us, bool stays)
{
    vm->is_asking = true;
    vm->stays = stays;
    vm->due_us = due_us;
    ask(vm);
    load_shard_touch(vm->load, vm->shard);
}

void load_vm_end(struct load_vm *vm)
{
    vm->is_running = vm->stays = false;
    report(vm);
    load_shard_touch(vm->load, vm->shard);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct load_vm *vm = user;

    if (vm->is_asking)
        ask(vm);
    else if (vm->is_running && !vm->stays)
        load_vm_end(vm);
    return 0;
}

/* ---- its connection ---- */

static void set_up(struct load_vm *vm, bool is_up)
{
    if (vm->is_up == is_up)
        return;
    vm->is_up = is_up;
    vm->load->vms_up += is_up ? 1 : -1u;
    load_peers_changed(vm->load);
}

static void up(void *user, uint64_t epoch)
{
    struct load_vm *vm = user;

    set_up(vm, true);
    if (vm->is_running)
        report(vm);
    if (vm->is_asking)
        ask(vm);
}

static void down(void *user)
{
    struct load_vm *vm = user;

    vm->is_called = false;
    set_up(vm, false);
}

static void serve_changed(struct flyt_call *call, void *data)
{
    static char empty[] = "";
    const flyt_changed_args *args = data;
    const struct load_vm *vm = flyt_uplink_user(call);

    if (vm && vm->is_running && !args->grants.grants_len)
        load_violation(vm->load, "VM %s is told that nothing is granted while its program runs: %s", vm->ip,
                       args->reason);
    flyt_call_reply(call, &(flyt_outcome){FLYT_STATUS_OK, empty});
}

static void serve_leader(struct flyt_call *call, void *data)
{
    static char empty[] = "";
    const flyt_leader_args *args = data;
    struct load_vm *vm = flyt_uplink_user(call);

    if (vm)
        flyt_uplink_follow(vm->uplink, args->leaders.leaders_val, args->leaders.leaders_len);
    flyt_call_reply(call, &(flyt_outcome){FLYT_STATUS_OK, empty});
}

static void serve_null(struct flyt_call *call, void *data)
{
    flyt_call_reply(call, NULL);
}

static const struct flyt_procedure procedures[] = {
    {.number = FLYT_ORDER_NULL, .name = "null", .roles = FLYT_ROLE_ANY, .serve = serve_null},
    {.number = FLYT_ORDER_CHANGED,
     .name = "order_changed",
     .roles = FLYT_ROLE_ANY,
     .xdr_args = (xdrproc_t)xdr_flyt_changed_args,
     .args_bytes = sizeof(flyt_changed_args),
     .xdr_res = (xdrproc_t)xdr_flyt_outcome,
     .serve = serve_changed},
    {.number = FLYT_ORDER_LEADER,
     .name = "order_leader",
     .roles = FLYT_ROLE_ANY,
     .xdr_args = (xdrproc_t)xdr_flyt_leader_args,
     .args_bytes = sizeof(flyt_leader_args),
     .xdr_res = (xdrproc_t)xdr_flyt_outcome,
     .serve = serve_leader},
    {0},
};
static const struct flyt_program orders = {FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, procedures};

int load_vm_init(struct load_vm *vm, struct load *load, unsigned index)
{
    vm->shard = load_shard_of(load, load->node_count + index);
    struct flyt_uplink_config config = {.event = vm->shard->event,
                                        .managers = &load->managers,
                                        .kind = FLYT_PEER_VM,
                                        .name = vm->ip,
                                        .orders = &orders,
                                        .user = vm,
                                        .up = up,
                                        .down = down};

    vm->load = load;
    vm->index = index;
    load_vm_ip(index, vm->ip);
    int status = sd_event_add_time_relative(vm->shard->event, &vm->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, vm);
    if (status < 0)
        return status;
    sd_event_source_set_enabled(vm->timer, SD_EVENT_OFF);
    return flyt_uplink_new(&config, &vm->uplink);
}

void load_vm_fini(struct load_vm *vm)
{
    vm->uplink = flyt_uplink_free(vm->uplink);
    vm->timer = sd_event_source_disable_unref(vm->timer);
}
