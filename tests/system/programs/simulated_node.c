/*
 * simulated_node --manager URL --name NAME [--count N] [--gpus N] [--groups N] [--group-size N] [--memory BYTES]
 *                [--slots N] [--reserve BYTES] [--heartbeat MS] [--host-ip IP] [--type TEXT]
 *
 * Nodes without GPUs, for tests and measurements of the cluster manager: registers, sends heartbeats, holds what it is
 * ordered to hold. With --count N nodes NAME-0 … in one process, else one node NAME. Lines on standard input:
 *
 *   sessions VM_IP COUNT    programs that the VM has running       use VM_IP BYTES     memory that they use
 *   busy VM_IP PCT          part of the time in which each of them works from now on
 *   driver VERSION CUDA     tells the version of its driver now
 *   refuse TEXT | accept    answers orders with IN_USE | normally  mute | speak        does not answer orders at all
 *   heartbeats off | on                                            vacate off | on     what leaves stays in use
 *   switch off | on     servers go on where they were
 *   kept SMS            programs keep so many SMs, whatever is ordered; 0: they change
 *   orphan ID VM_IP         has an allocation that nobody ordered (first GPU, first group), from its next registration
 *   reconnect               leaves its connection and makes a new one
 *   quit
 *
 * Lines on standard output: "registered NAME EPOCH", "held NAME ID VM_IP REVISION GENERATION STATE SMS BYTES",
 * "removed NAME ID", "killed NAME SESSION", "groups NAME UUID SIZE", "orphans NAME COUNT", "down NAME", "lost NAME" (an
 * order that it does not answer). SMs and bytes are those of the first slot.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>

#include "control/base/uplink.h"
#include "rpc/base/log.h"
#include "tests/system/programs/input_lines.h"

enum { GPUS_MAX = 16, REGISTER_MS = 30000 };

struct held {
    uint64_t id, revision, used_bytes, limit_bytes, gpu_time_us;
    unsigned generation, sessions, busy_pct;
    flyt_allocation_state state;
    char vm_ip[64];
    unsigned slot_count;
    struct {
        char uuid[64];
        unsigned sms, group_count, groups[FLYT_GROUPS_MAX];
        uint64_t memory_bytes;
    } slots[FLYT_SLOTS_MAX];
};

struct fleet;

struct node {
    struct fleet *fleet;
    char name[64];
    struct flyt_uplink *uplink;
    sd_event_source *timer;
    struct held **held;
    unsigned held_count, held_room;
    unsigned group_size, groups;
    uint64_t epoch, sequence;
    bool is_registered;
    bool is_asking; /* a registration is under way */
};

struct fleet {
    sd_event *event;
    struct flyt_strings managers;
    char *manager;
    struct node *nodes;
    unsigned count, gpus, groups, group_size, slots, heartbeat_ms;
    uint64_t memory_bytes, reserve_bytes;
    const char *host_ip, *type;
    char refusal[256];
    bool is_mute, is_silent, keeps_busy, keeps_groups;
    unsigned kept_sms;
    struct input_lines input;
};

static struct held *find(struct node *node, uint64_t id)
{
    for (unsigned i = 0; i < node->held_count; i++)
        if (node->held[i]->id == id)
            return node->held[i];
    return NULL;
}

static struct held *find_vm(struct fleet *fleet, const char *vm_ip)
{
    for (unsigned i = 0; i < fleet->count; i++)
        for (unsigned j = 0; j < fleet->nodes[i].held_count; j++)
            if (!strcmp(fleet->nodes[i].held[j]->vm_ip, vm_ip))
                return fleet->nodes[i].held[j];
    return NULL;
}

static struct held *add(struct node *node, uint64_t id)
{
    if (node->held_count == node->held_room) {
        node->held_room = node->held_room ? 2 * node->held_room : 8;
        node->held = realloc(node->held, node->held_room * sizeof *node->held);
        if (!node->held)
            abort();
    }
    struct held *held = calloc(1, sizeof *held);
    if (!held)
        abort();
    held->id = id;
    return node->held[node->held_count++] = held;
}

static void drop(struct node *node, struct held *held)
{
    for (unsigned i = 0; i < node->held_count; i++)
        if (node->held[i] == held)
            node->held[i] = node->held[--node->held_count];
    free(held);
}

static void take(struct held *held, const flyt_allocation *wire)
{
    snprintf(held->vm_ip, sizeof held->vm_ip, "%s", wire->vm_ip);
    held->revision = wire->revision;
    held->generation = wire->generation;
    held->state = wire->state;
    held->slot_count = wire->slots.slots_len;
    for (unsigned i = 0; i < held->slot_count; i++) {
        const flyt_slot *slot = &wire->slots.slots_val[i];
        snprintf(held->slots[i].uuid, sizeof held->slots[i].uuid, "%s", slot->gpu_uuid);
        held->slots[i].sms = slot->sm_count;
        held->slots[i].memory_bytes = slot->memory_bytes;
        held->slots[i].group_count = slot->sm_groups.sm_groups_len;
        for (unsigned j = 0; j < slot->sm_groups.sm_groups_len; j++)
            held->slots[i].groups[j] = slot->sm_groups.sm_groups_val[j];
    }
}

/* ---- what it says ---- */

static void fill_use(const struct node *node, const struct held *held, flyt_allocation_use *use, flyt_slot_use *slots)
{
    static char empty[] = "";

    *use = (flyt_allocation_use){.id = held->id,
                                 .revision = held->revision,
                                 .outcome = {FLYT_STATUS_OK, empty},
                                 .session_count = held->sessions};
    use->slots.slots_len = held->slot_count;
    use->slots.slots_val = slots;
    for (unsigned i = 0; i < held->slot_count; i++) {
        uint64_t limit = held->slots[i].memory_bytes, used = held->used_bytes;
        slots[i] = (flyt_slot_use){.memory_bytes = used > limit ? used : limit,
                                   .memory_used_bytes = used,
                                   .memory_peak_bytes = used,
                                   .sm_count = node->fleet->kept_sms ? node->fleet->kept_sms : held->slots[i].sms,
                                   .switch_state = node->fleet->kept_sms       ? FLYT_SWITCH_KEPT
                                                   : node->fleet->keeps_groups ? FLYT_SWITCH_TARGET
                                                   : node->fleet->keeps_busy   ? FLYT_SWITCH_SWITCHED
                                                                               : FLYT_SWITCH_VACATED};
    }
}

struct report {
    flyt_allocation_use *uses;
    flyt_slot_use *slots;
    flyt_session_use *sessions;
    unsigned session_count;
};

static void make_report(struct node *node, struct report *report)
{
    static char program[] = "simulated", address[] = "127.0.0.1:1", empty[] = "";
    unsigned sessions = 0;

    for (unsigned i = 0; i < node->held_count; i++)
        sessions += node->held[i]->sessions;
    report->uses = calloc(node->held_count + 1, sizeof *report->uses);
    report->slots = calloc((node->held_count + 1) * FLYT_SLOTS_MAX, sizeof *report->slots);
    report->sessions = calloc(sessions + 1, sizeof *report->sessions);
    report->session_count = 0;
    if (!report->uses || !report->slots || !report->sessions)
        abort();
    for (unsigned i = 0; i < node->held_count; i++) {
        const struct held *held = node->held[i];
        fill_use(node, held, &report->uses[i], &report->slots[i * FLYT_SLOTS_MAX]);
        for (unsigned j = 0; j < held->sessions; j++)
            report->sessions[report->session_count++] =
                (flyt_session_use){.id = held->id + j + 1,
                                   .allocation_id = held->id,
                                   .program_name = program,
                                   .client_pid = 100 + j,
                                   .client_address = address,
                                   .server_pid = (u_int)getpid(),
                                   .started_ms = 1,
                                   .memory_bytes = held->used_bytes / held->sessions,
                                   .gpu_time_us = held->gpu_time_us,
                                   .why_not = empty};
    }
}

static void free_report(struct report *report)
{
    free(report->uses);
    free(report->slots);
    free(report->sessions);
}

static void fill_gpu(const struct node *node, unsigned index, flyt_gpu *gpu, char *uuid, unsigned *group_sms)
{
    static char empty[] = "";

    snprintf(uuid, 80, "GPU-%s-%u", node->name, index);
    for (unsigned i = 0; i < node->groups; i++)
        group_sms[i] = node->group_size;
    *gpu = (flyt_gpu){.uuid = uuid,
                      .index = index,
                      .type = (char *)node->fleet->type,
                      .sm_count = node->groups * node->group_size,
                      .group_size = node->group_size,
                      .memory_bytes = node->fleet->memory_bytes,
                      .server_reserve_bytes = node->fleet->reserve_bytes,
                      .client_slots = node->fleet->slots,
                      .health_text = empty,
                      .compute_major = 9};
    gpu->group_sms.group_sms_len = node->groups;
    gpu->group_sms.group_sms_val = group_sms;
}

static void registered(void *user, int status, void *result)
{
    struct node *node = user;
    flyt_register_res *res = result;

    node->is_asking = false;
    if (status || res->outcome.status != FLYT_STATUS_OK) {
        printf("refused %s %s\n", node->name, status ? strerror(-status) : res->outcome.text);
        if (!status && res->outcome.status == FLYT_STATUS_NOT_LEADER)
            flyt_uplink_follow(node->uplink, NULL, 0);
        return;
    }
    node->is_registered = true;
    node->epoch = res->epoch;
    for (unsigned i = 0; i < res->allocations.allocations_len; i++) {
        const flyt_allocation *wire = &res->allocations.allocations_val[i];
        struct held *held = find(node, wire->id);
        take(held ? held : add(node, wire->id), wire);
    }
    printf("orphans %s %u\n", node->name, res->orphans.orphans_len);
    printf("registered %s %" PRIu64 "\n", node->name, (uint64_t)res->epoch);
}

static void register_node(struct node *node)
{
    struct fleet *fleet = node->fleet;
    static char boot[] = "boot", url[] = "tcp://127.0.0.1:9999";
    flyt_url_text urls[] = {url};
    flyt_gpu gpus[GPUS_MAX];
    char uuids[GPUS_MAX][80];
    unsigned group_sms[FLYT_GROUPS_MAX];
    struct report report;
    flyt_register_args args = {
        .boot_id = boot, .host_ip = (char *)fleet->host_ip, .key_number = 1, .epoch_seen = node->epoch};
    flyt_allocation *wires = calloc(node->held_count + 1, sizeof *wires);
    flyt_slot *slots = calloc((node->held_count + 1) * FLYT_SLOTS_MAX, sizeof *slots);

    if (!wires || !slots)
        abort();
    for (unsigned i = 0; i < sizeof args.node_key; i++)
        args.node_key[i] = (char)(node->name[0] + (char)i);
    args.data_urls.data_urls_len = 1;
    args.data_urls.data_urls_val = urls;
    for (unsigned i = 0; i < fleet->gpus; i++)
        fill_gpu(node, i, &gpus[i], uuids[i], group_sms);
    args.gpus.gpus_len = fleet->gpus;
    args.gpus.gpus_val = gpus;
    for (unsigned i = 0; i < node->held_count; i++) {
        struct held *held = node->held[i];
        static char tenant[] = "default";
        wires[i] = (flyt_allocation){.id = held->id,
                                     .vm_ip = held->vm_ip,
                                     .tenant = tenant,
                                     .state = held->state,
                                     .revision = held->revision,
                                     .generation = held->generation,
                                     .sessions_max = 1};
        wires[i].slots.slots_len = held->slot_count;
        wires[i].slots.slots_val = &slots[i * FLYT_SLOTS_MAX];
        for (unsigned j = 0; j < held->slot_count; j++) {
            flyt_slot *slot = &slots[i * FLYT_SLOTS_MAX + j];
            slot->gpu_uuid = held->slots[j].uuid;
            slot->device_index = j;
            slot->sm_count = held->slots[j].sms;
            slot->memory_bytes = held->slots[j].memory_bytes;
            slot->sm_groups.sm_groups_len = held->slots[j].group_count;
            slot->sm_groups.sm_groups_val = held->slots[j].groups;
        }
    }
    args.allocations.allocations_len = node->held_count;
    args.allocations.allocations_val = wires;
    make_report(node, &report);
    args.uses.uses_len = node->held_count;
    args.uses.uses_val = report.uses;
    args.sessions.sessions_len = report.session_count;
    args.sessions.sessions_val = report.sessions;
    int status =
        flyt_uplink_call(node->uplink, FLYT_NODE_REGISTER, (xdrproc_t)xdr_flyt_register_args, &args,
                         (xdrproc_t)xdr_flyt_register_res, sizeof(flyt_register_res), REGISTER_MS, registered, node);
    node->is_asking = !status;
    if (status)
        printf("refused %s %s\n", node->name, strerror(-status));
    free_report(&report);
    free(wires);
    free(slots);
}

static void beaten(void *user, int status, void *result)
{
    struct node *node = user;
    flyt_heartbeat_res *res = result;

    if (status || res->outcome.status != FLYT_STATUS_NOT_FOUND || !node->is_registered)
        return;
    node->is_registered = false;
    register_node(node);
}

static void beat(struct node *node)
{
    struct fleet *fleet = node->fleet;
    static char empty[] = "";
    flyt_gpu_use gpus[GPUS_MAX];
    char uuids[GPUS_MAX][80];
    struct report report;
    flyt_heartbeat_args args = {.sequence = ++node->sequence};

    for (unsigned i = 0; i < fleet->gpus; i++) {
        snprintf(uuids[i], sizeof uuids[i], "GPU-%s-%u", node->name, i);
        gpus[i] = (flyt_gpu_use){.uuid = uuids[i], .health_text = empty, .busy_pct = 7, .power_w = 100};
    }
    for (unsigned i = 0; i < node->held_count; i++)
        node->held[i]->gpu_time_us += (uint64_t)fleet->heartbeat_ms * 10 * node->held[i]->busy_pct;
    make_report(node, &report);
    args.gpus.gpus_len = fleet->gpus;
    args.gpus.gpus_val = gpus;
    args.uses.uses_len = node->held_count;
    args.uses.uses_val = report.uses;
    args.sessions.sessions_len = report.session_count;
    args.sessions.sessions_val = report.sessions;
    flyt_uplink_call(node->uplink, FLYT_NODE_HEARTBEAT, (xdrproc_t)xdr_flyt_heartbeat_args, &args,
                     (xdrproc_t)xdr_flyt_heartbeat_res, sizeof(flyt_heartbeat_res), REGISTER_MS, beaten, node);
    free_report(&report);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct node *node = user;

    if (node->is_registered && !node->fleet->is_silent)
        beat(node);
    else if (!node->is_registered && !node->is_asking && flyt_uplink_is_up(node->uplink))
        register_node(node); /* it was refused: as a node manager does, once more */
    sd_event_source_set_time_relative(source, (uint64_t)node->fleet->heartbeat_ms * 1000);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void up(void *user, uint64_t epoch)
{
    register_node(user);
}

static void down(void *user)
{
    struct node *node = user;

    node->is_registered = false;
    printf("down %s\n", node->name);
}

/* ---- what it is ordered ---- */

/* Less memory than is in use is refused with the figures, unless it may wait. */
static bool refuses(struct node *node, const flyt_allocation *wire, char *text, size_t room)
{
    const struct held *held = find(node, wire->id);

    if (*node->fleet->refusal) {
        snprintf(text, room, "%s", node->fleet->refusal);
        return true;
    }
    if (!held || wire->when_free || !wire->slots.slots_len || wire->slots.slots_val[0].memory_bytes >= held->used_bytes)
        return false;
    snprintf(text, room, "%" PRIu64 " bytes are in use, %" PRIu64 " wanted", held->used_bytes,
             (uint64_t)wire->slots.slots_val[0].memory_bytes);
    return true;
}

static void apply_one(struct node *node, const flyt_allocation *wire, flyt_allocation_use *use, flyt_slot_use *slots,
                      char *text)
{
    struct held *held = find(node, wire->id);

    if (held && held->revision > wire->revision) {
        fill_use(node, held, use, slots);
        use->outcome.status = FLYT_STATUS_STALE;
        return;
    }
    if (refuses(node, wire, text, 256)) {
        struct held none = {.id = wire->id};
        fill_use(node, held ? held : &none, use, slots);
        use->outcome = (flyt_outcome){FLYT_STATUS_IN_USE, text};
        return;
    }
    if (!held)
        held = add(node, wire->id);
    take(held, wire);
    fill_use(node, held, use, slots);
    printf("held %s %016" PRIx64 " %s %" PRIu64 " %u %d %u %" PRIu64 "\n", node->name, held->id, held->vm_ip,
           held->revision, held->generation, (int)held->state, held->slots[0].sms, held->slots[0].memory_bytes);
}

static void serve_apply(struct flyt_call *call, void *data)
{
    const flyt_apply_args *args = data;
    struct node *node = flyt_uplink_user(call);
    unsigned count = args->allocations.allocations_len;
    static char empty[] = "", old[] = "the epoch is old";
    flyt_apply_res res = {.outcome = {FLYT_STATUS_OK, empty}};

    if (!node || node->fleet->is_mute) {
        printf("lost %s\n", node ? node->name : "");
        flyt_call_done(call);
        return;
    }
    if (args->epoch < node->epoch) {
        res.outcome = (flyt_outcome){FLYT_STATUS_STALE, old};
        res.epoch = node->epoch;
        flyt_call_reply(call, &res);
        return;
    }
    res.epoch = node->epoch = args->epoch;
    res.uses.uses_len = count;
    res.uses.uses_val = calloc(count + 1, sizeof *res.uses.uses_val);
    flyt_slot_use *slots = calloc((count + 1) * FLYT_SLOTS_MAX, sizeof *slots);
    char(*texts)[256] = calloc(count + 1, sizeof *texts);
    if (!res.uses.uses_val || !slots || !texts)
        abort();
    for (unsigned i = 0; i < count; i++)
        apply_one(node, &args->allocations.allocations_val[i], &res.uses.uses_val[i], &slots[i * FLYT_SLOTS_MAX],
                  texts[i]);
    for (unsigned i = 0; i < args->removed.removed_len; i++) {
        struct held *held = find(node, args->removed.removed_val[i]);
        if (held)
            drop(node, held);
        printf("removed %s %016" PRIx64 "\n", node->name, (uint64_t)args->removed.removed_val[i]);
    }
    flyt_call_reply(call, &res);
    free(res.uses.uses_val);
    free(slots);
    free(texts);
}

static void serve_kill(struct flyt_call *call, void *data)
{
    const flyt_order_session_args *args = data;
    struct node *node = flyt_uplink_user(call);
    static char empty[] = "", none[] = "there is no such session";
    flyt_outcome outcome = {FLYT_STATUS_NOT_FOUND, none};

    for (unsigned i = 0; node && i < node->held_count; i++) {
        struct held *held = node->held[i];
        if (args->session_id <= held->id || args->session_id > held->id + held->sessions)
            continue;
        held->sessions--;
        outcome = (flyt_outcome){FLYT_STATUS_OK, empty};
        printf("killed %s %016" PRIx64 "\n", node->name, (uint64_t)args->session_id);
    }
    flyt_call_reply(call, &outcome);
}

static void serve_gpu(struct flyt_call *call, void *data)
{
    const flyt_order_gpu_args *args = data;
    struct node *node = flyt_uplink_user(call);
    static char empty[] = "";
    flyt_order_gpu_res res = {.outcome = {FLYT_STATUS_OK, empty}};
    unsigned group_sms[FLYT_GROUPS_MAX], index = 0;
    char uuid[80];

    if (!node) {
        flyt_call_fail(call);
        return;
    }
    unsigned sms = node->groups * node->group_size;
    node->group_size = args->group_size;
    node->groups = sms / args->group_size;
    for (; index < node->fleet->gpus; index++) {
        fill_gpu(node, index, &res.gpu, uuid, group_sms);
        if (!strcmp(uuid, args->uuid))
            break;
    }
    printf("groups %s %s %u\n", node->name, args->uuid, args->group_size);
    flyt_call_reply(call, &res);
}

static void serve_leader(struct flyt_call *call, void *data)
{
    const flyt_leader_args *args = data;
    struct node *node = flyt_uplink_user(call);
    static char empty[] = "";

    if (node && args->leaders.leaders_len && strcmp(args->leaders.leaders_val[0], flyt_uplink_address(node->uplink)))
        flyt_uplink_follow(node->uplink, args->leaders.leaders_val, args->leaders.leaders_len);
    flyt_call_reply(call, &(flyt_outcome){FLYT_STATUS_OK, empty});
}

static void serve_null(struct flyt_call *call, void *data)
{
    flyt_call_reply(call, NULL);
}

static const struct flyt_procedure orders[] = {
    {.number = FLYT_ORDER_NULL, .name = "null", .roles = FLYT_ROLE_ANY, .serve = serve_null},
    {.number = FLYT_ORDER_APPLY,
     .name = "apply",
     .roles = FLYT_ROLE_ANY,
     .xdr_args = (xdrproc_t)xdr_flyt_apply_args,
     .args_bytes = sizeof(flyt_apply_args),
     .xdr_res = (xdrproc_t)xdr_flyt_apply_res,
     .serve = serve_apply},
    {.number = FLYT_ORDER_SESSION_KILL,
     .name = "kill",
     .roles = FLYT_ROLE_ANY,
     .xdr_args = (xdrproc_t)xdr_flyt_order_session_args,
     .args_bytes = sizeof(flyt_order_session_args),
     .xdr_res = (xdrproc_t)xdr_flyt_outcome,
     .serve = serve_kill},
    {.number = FLYT_ORDER_GPU_SET,
     .name = "gpu",
     .roles = FLYT_ROLE_ANY,
     .xdr_args = (xdrproc_t)xdr_flyt_order_gpu_args,
     .args_bytes = sizeof(flyt_order_gpu_args),
     .xdr_res = (xdrproc_t)xdr_flyt_order_gpu_res,
     .serve = serve_gpu},
    {.number = FLYT_ORDER_LEADER,
     .name = "leader",
     .roles = FLYT_ROLE_ANY,
     .xdr_args = (xdrproc_t)xdr_flyt_leader_args,
     .args_bytes = sizeof(flyt_leader_args),
     .xdr_res = (xdrproc_t)xdr_flyt_outcome,
     .serve = serve_leader},
    {0},
};
static const struct flyt_program program = {FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, orders};

/* ---- commands ---- */

static void connect_node(struct node *node)
{
    struct flyt_uplink_config config = {.event = node->fleet->event,
                                        .managers = &node->fleet->managers,
                                        .kind = FLYT_PEER_NODE,
                                        .name = node->name,
                                        .orders = &program,
                                        .user = node,
                                        .up = up,
                                        .down = down};
    int status = flyt_uplink_new(&config, &node->uplink);

    if (status) {
        fprintf(stderr, "simulated_node: %s: %s\n", node->name, strerror(-status));
        exit(1);
    }
}

static void add_orphan(struct node *node, uint64_t id, const char *vm_ip)
{
    struct held *held = add(node, id);

    snprintf(held->vm_ip, sizeof held->vm_ip, "%s", vm_ip);
    held->revision = held->generation = 1;
    held->state = FLYT_ALLOCATION_ACTIVE;
    held->slot_count = 1;
    snprintf(held->slots[0].uuid, sizeof held->slots[0].uuid, "GPU-%.40s-0", node->name);
    held->slots[0].sms = node->group_size;
    held->slots[0].group_count = 1;
    held->slots[0].memory_bytes = 1 << 20;
}

static void told(void *user, int status, void *result)
{
}

static void tell_driver(struct node *node, char *version, unsigned cuda)
{
    const flyt_driver_args args = {version, cuda};

    flyt_uplink_call(node->uplink, FLYT_NODE_DRIVER, (xdrproc_t)xdr_flyt_driver_args, &args,
                     (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), REGISTER_MS, told, node);
}

static void command(struct fleet *fleet, const char *line)
{
    char vm_ip[64], word[16];
    uint64_t number;

    if (sscanf(line, "sessions %63s %" SCNu64, vm_ip, &number) == 2 && find_vm(fleet, vm_ip))
        find_vm(fleet, vm_ip)->sessions = (unsigned)number;
    else if (sscanf(line, "use %63s %" SCNu64, vm_ip, &number) == 2 && find_vm(fleet, vm_ip))
        find_vm(fleet, vm_ip)->used_bytes = number;
    else if (sscanf(line, "busy %63s %" SCNu64, vm_ip, &number) == 2 && find_vm(fleet, vm_ip))
        find_vm(fleet, vm_ip)->busy_pct = (unsigned)number;
    else if (sscanf(line, "driver %63s %" SCNu64, vm_ip, &number) == 2)
        tell_driver(&fleet->nodes[0], vm_ip, (unsigned)number);
    else if (sscanf(line, "orphan %" SCNx64 " %63s", &number, vm_ip) == 2)
        add_orphan(&fleet->nodes[0], number, vm_ip);
    else if (!strncmp(line, "refuse ", 7))
        snprintf(fleet->refusal, sizeof fleet->refusal, "%.200s", line + 7);
    else if (!strcmp(line, "accept"))
        fleet->refusal[0] = '\0';
    else if (!strcmp(line, "mute") || !strcmp(line, "speak"))
        fleet->is_mute = line[0] == 'm';
    else if (sscanf(line, "heartbeats %15s", word) == 1)
        fleet->is_silent = !strcmp(word, "off");
    else if (sscanf(line, "kept %u", &fleet->kept_sms) == 1)
        ;
    else if (sscanf(line, "vacate %15s", word) == 1)
        fleet->keeps_busy = !strcmp(word, "off");
    else if (sscanf(line, "switch %15s", word) == 1)
        fleet->keeps_groups = !strcmp(word, "off");
    else if (!strcmp(line, "quit"))
        sd_event_exit(fleet->event, 0);
    else if (!strcmp(line, "reconnect"))
        for (unsigned i = 0; i < fleet->count; i++) {
            fleet->nodes[i].is_registered = false;
            flyt_uplink_free(fleet->nodes[i].uplink);
            connect_node(&fleet->nodes[i]);
        }
    else
        printf("unknown %s\n", line);
    printf("done %s\n", line);
}

static int on_input(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct fleet *fleet = user;
    char line[INPUT_LINE_BYTES];

    input_lines_read(&fleet->input, fd);
    while (input_lines_next(&fleet->input, line))
        command(fleet, line);
    return fleet->input.has_ended ? sd_event_exit(fleet->event, 0) : 0;
}

static uint64_t option_number(const char *text)
{
    uint64_t bytes;

    if (!flyt_size_parse(text, &bytes))
        return bytes;
    fprintf(stderr, "simulated_node: %s is no number\n", text);
    exit(2);
}

static void options(struct fleet *fleet, int argc, char **argv, const char **ret_name)
{
    static const struct option list[] = {
        {"manager", 1, NULL, 'm'},
        {"name", 1, NULL, 'n'},
        {"count", 1, NULL, 'c'},
        {"gpus", 1, NULL, 'g'},
        {"groups", 1, NULL, 'r'},
        {"memory", 1, NULL, 'b'},
        {"group-size", 1, NULL, 's'},
        {"slots", 1, NULL, 'l'},
        {"reserve", 1, NULL, 'v'},
        {"type", 1, NULL, 't'},
        {"heartbeat", 1, NULL, 'h'},
        {"host-ip", 1, NULL, 'i'},
        {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", list, NULL)) >= 0) {
        switch (option) {
        case 'm':
            fleet->manager = optarg;
            break;
        case 'n':
            *ret_name = optarg;
            break;
        case 'i':
            fleet->host_ip = optarg;
            break;
        case 't':
            fleet->type = optarg;
            break;
        case 'c':
            fleet->count = (unsigned)option_number(optarg);
            break;
        case 'g':
            fleet->gpus = (unsigned)option_number(optarg);
            break;
        case 'r':
            fleet->groups = (unsigned)option_number(optarg);
            break;
        case 's':
            fleet->group_size = (unsigned)option_number(optarg);
            break;
        case 'l':
            fleet->slots = (unsigned)option_number(optarg);
            break;
        case 'h':
            fleet->heartbeat_ms = (unsigned)option_number(optarg);
            break;
        case 'b':
            fleet->memory_bytes = option_number(optarg);
            break;
        case 'v':
            fleet->reserve_bytes = option_number(optarg);
            break;
        default:
            exit(2);
        }
    }
    if (!fleet->manager || !*ret_name || !fleet->count || fleet->gpus > GPUS_MAX || fleet->groups > FLYT_GROUPS_MAX) {
        fprintf(stderr, "simulated_node: --manager and --name are needed; at most %d GPUs, %d groups\n", GPUS_MAX,
                FLYT_GROUPS_MAX);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct fleet fleet = {.count = 1,
                          .gpus = 2,
                          .groups = 16,
                          .group_size = 8,
                          .slots = 48,
                          .heartbeat_ms = 500,
                          .memory_bytes = 16ull << 30,
                          .host_ip = "",
                          .type = "NVIDIA H200"};
    struct rlimit files;
    const char *name = NULL;

    flyt_log_init("simulated_node", FLYT_LOG_WARN);
    options(&fleet, argc, argv, &name);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    fleet.managers = (struct flyt_strings){&fleet.manager, 1};
    fleet.nodes = calloc(fleet.count, sizeof *fleet.nodes);
    if (!fleet.nodes || sd_event_new(&fleet.event) < 0)
        return 1;
    sd_event_add_io(fleet.event, NULL, STDIN_FILENO, EPOLLIN, on_input, &fleet);
    for (unsigned i = 0; i < fleet.count; i++) {
        struct node *node = &fleet.nodes[i];
        node->fleet = &fleet;
        node->groups = fleet.groups;
        node->group_size = fleet.group_size;
        snprintf(node->name, sizeof node->name, fleet.count > 1 ? "%.40s-%u" : "%.40s", name, i);
        connect_node(node);
        /* Spread over the period, as machines that started at different times are. */
        sd_event_add_time_relative(fleet.event, &node->timer, CLOCK_MONOTONIC,
                                   (uint64_t)fleet.heartbeat_ms * 1000 * (i + 1) / fleet.count, 0, on_timer, node);
    }
    int status = sd_event_loop(fleet.event);
    for (unsigned i = 0; i < fleet.count; i++) {
        struct node *node = &fleet.nodes[i];
        flyt_uplink_free(node->uplink);
        sd_event_source_disable_unref(node->timer);
        while (node->held_count)
            drop(node, node->held[0]);
        free(node->held);
    }
    free(fleet.nodes);
    sd_event_unref(fleet.event);
    return status < 0;
}
