/* A node: registers, sends heartbeats, holds what it is ordered to hold. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tests/bench/load/load.h"

static char empty[] = "";

struct load_node *load_node_find(struct load *load, const char *name)
{
    unsigned index;

    if (sscanf(name, "node-%u", &index) != 1 || index >= load->node_count || strcmp(load->nodes[index].name, name))
        return NULL;
    return &load->nodes[index];
}

/* ---- what it says ---- */

struct report {
    flyt_allocation_use *uses;
    flyt_slot_use *slots;
    flyt_session_use *sessions;
    unsigned session_count;
};

static void fill_use(const struct load_held *held, flyt_allocation_use *use, flyt_slot_use *slots)
{
    *use = (flyt_allocation_use){.id = held->id,
                                 .revision = held->revision,
                                 .outcome = {FLYT_STATUS_OK, empty},
                                 .session_count = load_held_session_count(held),
                                 .slots = {.slots_len = held->slot_count, .slots_val = slots}};
    for (unsigned i = 0; i < held->slot_count; i++)
        slots[i] = (flyt_slot_use){.memory_bytes = held->slots[i].memory_bytes,
                                   .sm_count = held->slots[i].sm_count,
                                   .switch_state = FLYT_SWITCH_VACATED};
}

static void make_report(const struct load_node *node, struct report *report)
{
    size_t count = node->held_count + 1;

    *report = (struct report){.uses = calloc(count, sizeof *report->uses),
                              .slots = calloc(count * FLYT_SLOTS_MAX, sizeof *report->slots),
                              .sessions = calloc(count, sizeof *report->sessions)};
    if (!report->uses || !report->slots || !report->sessions)
        abort();
    for (unsigned i = 0; i < node->held_count; i++) {
        const struct load_held *held = node->held[i];
        fill_use(held, &report->uses[i], &report->slots[(size_t)i * FLYT_SLOTS_MAX]);
        if (!load_held_session_count(held))
            continue;
        report->sessions[report->session_count++] = (flyt_session_use){.id = held->id ^ 1,
                                                                       .allocation_id = held->id,
                                                                       .program_name = (char *)"load",
                                                                       .client_pid = held->vm->index + 1,
                                                                       .client_address = held->vm->ip,
                                                                       .server_pid = held->vm->index + 1,
                                                                       .memory_bytes = 1 << 20,
                                                                       .why_not = empty};
    }
}

static void free_report(struct report *report)
{
    free(report->uses);
    free(report->slots);
    free(report->sessions);
}

static void fill_gpu(const struct load_node *node, unsigned index, flyt_gpu *gpu, char uuid[LOAD_NAME_BYTES],
                     unsigned group_sms[LOAD_GROUPS])
{
    snprintf(uuid, LOAD_NAME_BYTES, "GPU-%08x-%04x-%u", (unsigned)node->load->seed, node->index, index);
    for (unsigned i = 0; i < LOAD_GROUPS; i++)
        group_sms[i] = i + 1 < LOAD_GROUPS ? LOAD_GROUP_SMS : LOAD_LAST_GROUP_SMS;
    *gpu = (flyt_gpu){.uuid = uuid,
                      .index = index,
                      .type = (char *)"NVIDIA H200",
                      .sm_count = (LOAD_GROUPS - 1) * LOAD_GROUP_SMS + LOAD_LAST_GROUP_SMS,
                      .group_size = LOAD_GROUP_SMS,
                      .group_sms = {.group_sms_len = LOAD_GROUPS, .group_sms_val = group_sms},
                      .memory_bytes = LOAD_MEMORY_BYTES,
                      .server_reserve_bytes = LOAD_RESERVE_BYTES,
                      .client_slots = LOAD_CLIENT_SLOTS,
                      .isolation = FLYT_ISOLATION_SHARED,
                      .health_text = empty,
                      .compute_major = 9};
}

/* ---- registration ---- */

static void register_node(struct load_node *node);

static void set_registered(struct load_node *node, bool is_registered)
{
    if (node->is_registered == is_registered)
        return;
    node->is_registered = is_registered;
    node->load->nodes_up += is_registered ? 1 : -1u;
    load_peers_changed(node->load);
}

static void set_timer(struct load_node *node, uint64_t us)
{
    sd_event_source_set_time_relative(node->timer, us);
    sd_event_source_set_enabled(node->timer, SD_EVENT_ONESHOT);
}

static bool is_listed(const flyt_register_res *res, const struct load_held *held)
{
    for (unsigned i = 0; i < res->allocations.allocations_len; i++)
        if (res->allocations.allocations_val[i].id == held->id)
            return true;
    for (unsigned i = 0; i < res->orphans.orphans_len; i++)
        if (res->orphans.orphans_val[i] == held->id)
            return true;
    return false;
}

static void registered(void *user, int status, void *result)
{
    struct load_node *node = user;
    flyt_register_res *res = result;

    node->is_registering = false;
    if (status == -EPIPE || status == -ECANCELED)
        return; /* `up` comes again */
    if (status || res->outcome.status != FLYT_STATUS_OK) {
        if (!status && res->outcome.status == FLYT_STATUS_NOT_LEADER)
            flyt_uplink_follow(node->uplink, NULL, 0);
        else
            set_timer(node, LOAD_RETRY_MS * 1000);
        return;
    }
    node->epoch = res->epoch;
    node->heartbeat_ms = res->heartbeat_ms;
    for (unsigned i = node->held_count; i-- > 0;)
        if (!is_listed(res, node->held[i]))
            load_held_drop(node, node->held[i]);
    if (res->orphans.orphans_len)
        load_violation(node->load, "%s is told of %u orphans, but had nothing that was not ordered", node->name,
                       res->orphans.orphans_len);
    for (unsigned i = 0; i < res->allocations.allocations_len; i++)
        load_held_take(node, &res->allocations.allocations_val[i]);
    load_held_check(node);
    set_registered(node, true);
    uint32_t dice = 0;
    if (getrandom(&dice, sizeof dice, 0) < 0)
        dice = 0;
    set_timer(node, load_heartbeat_us(node) * (dice >> 16) / 65536); /* machines start at different times */
}

/* What it holds, as it was ordered: a manager that came back is to find it in its store. */
static void fill_wire(const struct load_node *node, const struct load_held *held, flyt_allocation *wire,
                      flyt_slot *slots, char (*uuids)[LOAD_NAME_BYTES], unsigned (*groups)[LOAD_GROUPS])
{
    *wire = (flyt_allocation){.id = held->id,
                              .vm_ip = held->vm ? held->vm->ip : empty,
                              .tenant = (char *)"default",
                              .state = held->state,
                              .revision = held->revision,
                              .generation = held->generation,
                              .sessions_max = held->sessions_max,
                              .slots = {.slots_len = held->slot_count, .slots_val = slots}};
    for (unsigned i = 0; i < held->slot_count; i++) {
        unsigned count = 0;
        for (unsigned j = 0; j < LOAD_GROUPS; j++)
            if (held->slots[i].groups >> j & 1)
                groups[i][count++] = j;
        snprintf(uuids[i], sizeof uuids[i], "GPU-%08x-%04x-%u", (unsigned)node->load->seed, node->index,
                 held->slots[i].gpu);
        slots[i] = (flyt_slot){.gpu_uuid = uuids[i],
                               .device_index = i,
                               .sm_count = held->slots[i].sm_count,
                               .sm_groups = {.sm_groups_len = count, .sm_groups_val = groups[i]},
                               .memory_bytes = held->slots[i].memory_bytes};
    }
}

static void register_node(struct load_node *node)
{
    struct load *load = node->load;
    size_t count = node->held_count + 1, slot_count = count * FLYT_SLOTS_MAX;
    flyt_gpu gpus[LOAD_GPUS_MAX];
    char gpu_uuids[LOAD_GPUS_MAX][LOAD_NAME_BYTES], url[LOAD_NAME_BYTES], host[LOAD_NAME_BYTES], *urls[] = {url};
    unsigned group_sms[LOAD_GPUS_MAX][LOAD_GROUPS];
    struct report report;

    if (node->is_registering)
        return;
    flyt_allocation *wires = calloc(count, sizeof *wires);
    flyt_slot *slots = calloc(slot_count, sizeof *slots);
    char(*uuids)[LOAD_NAME_BYTES] = calloc(slot_count, sizeof *uuids);
    unsigned(*groups)[LOAD_GROUPS] = calloc(slot_count, sizeof *groups);
    if (!wires || !slots || !uuids || !groups)
        abort();
    for (unsigned i = 0; i < load->gpu_count; i++)
        fill_gpu(node, i, &gpus[i], gpu_uuids[i], group_sms[i]);
    for (unsigned i = 0; i < node->held_count; i++)
        fill_wire(node, node->held[i], &wires[i], &slots[i * FLYT_SLOTS_MAX], &uuids[i * FLYT_SLOTS_MAX],
                  &groups[i * FLYT_SLOTS_MAX]);
    make_report(node, &report);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", 1 + node->index % 65535);
    snprintf(host, sizeof host, "172.16.%u.%u", node->index >> 8, node->index & 255);
    flyt_register_args args = {.boot_id = (char *)"load",
                               .data_urls = {.data_urls_len = 1, .data_urls_val = urls},
                               .host_ip = host,
                               .key_number = 1,
                               .epoch_seen = node->epoch,
                               .gpus = {.gpus_len = load->gpu_count, .gpus_val = gpus},
                               .allocations = {.allocations_len = node->held_count, .allocations_val = wires},
                               .uses = {.uses_len = node->held_count, .uses_val = report.uses},
                               .sessions = {.sessions_len = report.session_count, .sessions_val = report.sessions}};
    memcpy(args.node_key, node->key, sizeof args.node_key);
    int status =
        flyt_uplink_call(node->uplink, FLYT_NODE_REGISTER, (xdrproc_t)xdr_flyt_register_args, &args,
                         (xdrproc_t)xdr_flyt_register_res, sizeof(flyt_register_res), LOAD_ANSWER_MS, registered, node);
    node->is_registering = status == 0;
    if (status && status != -ENOTCONN && status != -EPIPE)
        load_violation(load, "%s cannot register: %s", node->name, strerror(-status));
    free_report(&report);
    free(wires);
    free(slots);
    free(uuids);
    free(groups);
}

/* ---- heartbeats ---- */

static void beaten(void *user, int status, void *result)
{
    struct load_node *node = user;
    flyt_heartbeat_res *res = result;

    if (status || res->outcome.status != FLYT_STATUS_NOT_FOUND)
        return;
    set_registered(node, false);
    register_node(node);
}

static void beat(struct load_node *node)
{
    flyt_gpu_use gpus[LOAD_GPUS_MAX];
    char uuids[LOAD_GPUS_MAX][LOAD_NAME_BYTES];
    struct report report;

    make_report(node, &report);
    for (unsigned i = 0; i < node->load->gpu_count; i++) {
        snprintf(uuids[i], sizeof uuids[i], "GPU-%08x-%04x-%u", (unsigned)node->load->seed, node->index, i);
        gpus[i] = (flyt_gpu_use){.uuid = uuids[i], .health_text = empty, .busy_pct = 40, .power_w = 350};
    }
    flyt_heartbeat_args args = {.sequence = ++node->sequence,
                                .gpus = {.gpus_len = node->load->gpu_count, .gpus_val = gpus},
                                .uses = {.uses_len = node->held_count, .uses_val = report.uses},
                                .sessions = {.sessions_len = report.session_count, .sessions_val = report.sessions}};
    /* A connection that ends says so by `down`. */
    flyt_uplink_call(node->uplink, FLYT_NODE_HEARTBEAT, (xdrproc_t)xdr_flyt_heartbeat_args, &args,
                     (xdrproc_t)xdr_flyt_heartbeat_res, sizeof(flyt_heartbeat_res), LOAD_ANSWER_MS, beaten, node);
    free_report(&report);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct load_node *node = user;

    if (!node->is_registered) {
        if (flyt_uplink_is_up(node->uplink))
            register_node(node);
        return 0;
    }
    beat(node);
    set_timer(node, load_heartbeat_us(node));
    return 0;
}

static void up(void *user, uint64_t epoch)
{
    register_node(user);
}

static void down(void *user)
{
    struct load_node *node = user;

    node->is_registering = false;
    set_registered(node, false);
}

/* ---- orders ---- */

static void serve_apply(struct flyt_call *call, void *data)
{
    const flyt_apply_args *args = data;
    struct load_node *node = flyt_uplink_user(call);
    static char old[] = "the epoch is old", bad[] = "this cannot be held";
    unsigned count = args->allocations.allocations_len;
    flyt_apply_res res = {.outcome = {FLYT_STATUS_OK, empty}};

    if (!node) {
        flyt_call_fail(call);
        return;
    }
    if (args->epoch < node->epoch) {
        res.outcome = (flyt_outcome){FLYT_STATUS_STALE, old};
        res.epoch = node->epoch;
        flyt_call_reply(call, &res);
        return;
    }
    res.epoch = node->epoch = args->epoch;
    for (unsigned i = 0; i < args->removed.removed_len; i++) {
        struct load_held *held = load_held_find(node, args->removed.removed_val[i]);
        if (held)
            load_held_drop(node, held);
    }
    res.uses.uses_len = count;
    res.uses.uses_val = calloc(count + 1, sizeof *res.uses.uses_val);
    flyt_slot_use *slots = calloc((count + 1) * FLYT_SLOTS_MAX, sizeof *slots);
    if (!res.uses.uses_val || !slots)
        abort();
    for (unsigned i = 0; i < count; i++) {
        const flyt_allocation *wire = &args->allocations.allocations_val[i];
        const struct load_held *held = load_held_find(node, wire->id);
        bool is_stale = held && held->revision > wire->revision;
        if (!is_stale)
            held = load_held_take(node, wire);
        res.uses.uses_val[i] = (flyt_allocation_use){.id = wire->id, .outcome = {FLYT_STATUS_INVALID, bad}};
        if (held)
            fill_use(held, &res.uses.uses_val[i], &slots[(size_t)i * FLYT_SLOTS_MAX]);
        if (is_stale)
            res.uses.uses_val[i].outcome.status = FLYT_STATUS_STALE;
    }
    load_held_check(node);
    flyt_call_reply(call, &res);
    free(res.uses.uses_val);
    free(slots);
}

static void serve_leader(struct flyt_call *call, void *data)
{
    const flyt_leader_args *args = data;
    struct load_node *node = flyt_uplink_user(call);

    if (node)
        flyt_uplink_follow(node->uplink, args->leaders.leaders_val, args->leaders.leaders_len);
    flyt_call_reply(call, &(flyt_outcome){FLYT_STATUS_OK, empty});
}

static void serve_null(struct flyt_call *call, void *data)
{
    flyt_call_reply(call, NULL);
}

static const struct flyt_procedure procedures[] = {
    {.number = FLYT_ORDER_NULL, .name = "null", .roles = FLYT_ROLE_ANY, .serve = serve_null},
    {.number = FLYT_ORDER_APPLY,
     .name = "order_apply",
     .roles = FLYT_ROLE_ANY,
     .xdr_args = (xdrproc_t)xdr_flyt_apply_args,
     .args_bytes = sizeof(flyt_apply_args),
     .xdr_res = (xdrproc_t)xdr_flyt_apply_res,
     .serve = serve_apply},
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

int load_node_init(struct load_node *node, struct load *load, unsigned index)
{
    node->shard = load_shard_of(load, index);
    struct flyt_uplink_config config = {.event = node->shard->event,
                                        .managers = &load->managers,
                                        .kind = FLYT_PEER_NODE,
                                        .name = node->name,
                                        .orders = &orders,
                                        .user = node,
                                        .up = up,
                                        .down = down};

    node->load = load;
    node->index = index;
    node->heartbeat_ms = LOAD_HEARTBEAT_MS;
    snprintf(node->name, sizeof node->name, "node-%04u", index);
    if (getrandom(node->key, sizeof node->key, 0) != (ssize_t)sizeof node->key)
        return -EIO;
    int status = sd_event_add_time_relative(node->shard->event, &node->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, node);
    if (status < 0)
        return status;
    sd_event_source_set_enabled(node->timer, SD_EVENT_OFF);
    return flyt_uplink_new(&config, &node->uplink);
}

void load_node_fini(struct load_node *node)
{
    node->uplink = flyt_uplink_free(node->uplink);
    node->timer = sd_event_source_disable_unref(node->timer);
    for (unsigned i = 0; i < node->held_count; i++)
        free(node->held[i]);
    free(node->held);
}
