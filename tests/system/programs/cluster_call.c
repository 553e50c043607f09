/*
 * cluster_call URL KIND NAME: a connection to the cluster manager as node, vm, operator or viewer NAME. Reads calls
 * from standard input, one a line, words separated by spaces, and answers each with one line of JSON, in order:
 * {"status": "OK", "text": "", …}. The first line is HELLO's answer.
 *
 *   attach | look | usage | report COUNT
 *   view NAME [SELECTOR|-] [AFTER] [WAIT_MS]
 *   vm-add VM [FIELD=VALUE…] | vm-set VM [FIELD=VALUE…] | vm-remove VM [kill]
 *       name tenant host_ip compute_units memory_bytes devices sessions priority policy isolation reserved
 *       include_types exclude_types include_gpus exclude_gpus (commas between names)
 *   resize VM [compute_units=N] [memory_bytes=N] [when_free] [force] [timeout=MS]
 *   tenant-set NAME [compute_units=N] [memory_bytes=N] [sessions=N] [vms=N] [remove]
 *   schedule node|gpu TARGET 0|1|2 | gpu-set GPU SIZE | allocation ID adopt|kill | fence NODE [confirmed]
 *   session-kill ID | token KIND NAME SECONDS | revoke KIND NAME | backup OFFSET
 *
 * Orders that come are lines {"order": "changed", "reason": …, "grants": N} and {"order": "leader", …}.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cjson/cJSON.h>

#include "control/base/peer.h"
#include "rpc/base/log.h"
#include "tests/system/programs/input_lines.h"

enum { CALL_MS = 120000, WORDS_MAX = 64 };

struct client {
    sd_event *event;
    struct flyt_peer *peer;
    sd_event_source *input;
    const char *name;
    flyt_peer_kind kind;
    uint32_t procedure; /* of the call under way, 0: none */
    struct input_lines lines;
    bool has_ended;
};

static const char *status_name(flyt_status status)
{
    static const char *const names[] = {"OK",          "INVALID",     "NOT_FOUND",     "EXISTS", "CONFLICT",
                                        "DENIED",      "NO_CAPACITY", "QUOTA",         "IN_USE", "NOT_LEADER",
                                        "UNAVAILABLE", "TIMEOUT",     "NOT_SUPPORTED", "STALE",  "HELD"};

    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "?";
}

static void print(cJSON *object)
{
    char *text = cJSON_PrintUnformatted(object);

    printf("%s\n", text);
    fflush(stdout);
    free(text);
    cJSON_Delete(object);
}

static void add_id(cJSON *object, const char *name, uint64_t id)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, id);
    cJSON_AddStringToObject(object, name, text);
}

static void add_bytes(cJSON *object, const char *name, const void *data, size_t bytes)
{
    char *text = malloc(2 * bytes + 1);

    if (!text)
        abort();
    text[0] = '\0';
    for (size_t i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)data)[i]);
    cJSON_AddStringToObject(object, name, text);
    free(text);
}

static void add_grant(cJSON *array, const flyt_grant *grant)
{
    cJSON *object = cJSON_CreateObject(), *slots;

    add_id(object, "id", grant->allocation.id);
    cJSON_AddStringToObject(object, "node", grant->node);
    cJSON_AddNumberToObject(object, "generation", grant->allocation.generation);
    cJSON_AddNumberToObject(object, "revision", (double)grant->allocation.revision);
    cJSON_AddNumberToObject(object, "key_number", grant->key_number);
    add_bytes(object, "ticket_key", grant->ticket_key, sizeof grant->ticket_key);
    slots = cJSON_AddArrayToObject(object, "slots");
    for (unsigned i = 0; i < grant->allocation.slots.slots_len; i++) {
        const flyt_slot *from = &grant->allocation.slots.slots_val[i];
        cJSON *slot = cJSON_CreateObject(), *groups = cJSON_CreateArray();
        cJSON_AddStringToObject(slot, "gpu", from->gpu_uuid);
        cJSON_AddNumberToObject(slot, "sms", from->sm_count);
        cJSON_AddNumberToObject(slot, "memory_bytes", (double)from->memory_bytes);
        for (unsigned j = 0; j < from->sm_groups.sm_groups_len; j++)
            cJSON_AddItemToArray(groups, cJSON_CreateNumber(from->sm_groups.sm_groups_val[j]));
        cJSON_AddItemToObject(slot, "groups", groups);
        cJSON_AddItemToArray(slots, slot);
    }
    cJSON_AddItemToArray(array, object);
}

/* A number that nobody knows is null. */
static void add_usage(cJSON *object, const flyt_vm_usage_res *res)
{
    cJSON_AddNumberToObject(object, "again_ms", res->again_ms);
    cJSON_AddStringToObject(object, "driver", res->driver.driver_version);
    cJSON_AddNumberToObject(object, "cuda", res->driver.cuda_version);
    cJSON *devices = cJSON_AddArrayToObject(object, "devices"), *programs = cJSON_AddArrayToObject(object, "programs");
    for (unsigned i = 0; i < res->devices.devices_len; i++) {
        const flyt_device_use *use = &res->devices.devices_val[i];
        cJSON *device = cJSON_CreateObject();
        cJSON_AddStringToObject(device, "type", use->type);
        cJSON_AddNumberToObject(device, "sms", use->sm_count);
        cJSON_AddNumberToObject(device, "memory_bytes", (double)use->memory_bytes);
        cJSON_AddItemToObject(device, "used_bytes",
                              use->memory_used_bytes == FLYT_UNKNOWN_BYTES
                                  ? cJSON_CreateNull()
                                  : cJSON_CreateNumber((double)use->memory_used_bytes));
        cJSON_AddItemToObject(device, "busy_pct",
                              use->busy_pct == FLYT_UNKNOWN ? cJSON_CreateNull() : cJSON_CreateNumber(use->busy_pct));
        cJSON_AddItemToArray(devices, device);
    }
    for (unsigned i = 0; i < res->programs.programs_len; i++) {
        cJSON *program = cJSON_CreateObject();
        cJSON_AddNumberToObject(program, "pid", res->programs.programs_val[i].pid);
        cJSON_AddNumberToObject(program, "memory_bytes", (double)res->programs.programs_val[i].memory_bytes);
        cJSON_AddItemToArray(programs, program);
    }
}

static void add_result(cJSON *object, uint32_t procedure, void *result)
{
    if (procedure == FLYT_HELLO) {
        flyt_hello_res *res = result;
        cJSON_AddBoolToObject(object, "leader", res->is_leader);
        cJSON_AddNumberToObject(object, "epoch", (double)res->epoch);
        cJSON *leaders = cJSON_AddArrayToObject(object, "leaders");
        for (unsigned i = 0; i < res->leaders.leaders_len; i++)
            cJSON_AddItemToArray(leaders, cJSON_CreateString(res->leaders.leaders_val[i]));
    } else if (procedure == FLYT_VM_ATTACH) {
        flyt_attach_res *res = result;
        cJSON *grants = cJSON_AddArrayToObject(object, "grants");
        for (unsigned i = 0; i < res->grants.grants_len; i++)
            add_grant(grants, &res->grants.grants_val[i]);
    } else if (procedure == FLYT_VM_USAGE) {
        add_usage(object, result);
    } else if (procedure == FLYT_VIEW || procedure == FLYT_SCHEDULE) {
        flyt_view_res *res = result;
        cJSON_AddNumberToObject(object, "next", (double)res->next);
        cJSON_AddItemToObject(object, "view", cJSON_ParseWithLength(res->json.json_val, res->json.json_len));
    } else if (procedure == FLYT_RESIZE) {
        flyt_resize_res *res = result;
        cJSON_AddNumberToObject(object, "revision", (double)res->revision);
        cJSON_AddNumberToObject(object, "uses", res->uses.uses_len);
    } else if (procedure == FLYT_JOIN_TOKEN) {
        flyt_token_res *res = result;
        cJSON_AddStringToObject(object, "token", res->token);
    } else if (procedure == FLYT_BACKUP) {
        flyt_backup_res *res = result;
        cJSON_AddNumberToObject(object, "total_bytes", (double)res->total_bytes);
        add_bytes(object, "data", res->data.data_val, res->data.data_len);
    }
}

static void next(struct client *client);

static void answered(void *user, int status, void *result)
{
    struct client *client = user;
    cJSON *object = cJSON_CreateObject();

    if (status) {
        cJSON_AddStringToObject(object, "status", "WIRE");
        cJSON_AddStringToObject(object, "text", strerror(-status));
    } else {
        const flyt_outcome *outcome = result; /* every result begins with one */
        cJSON_AddStringToObject(object, "status", status_name(outcome->status));
        cJSON_AddStringToObject(object, "text", outcome->text);
        add_result(object, client->procedure, result);
    }
    client->procedure = 0;
    print(object);
    if (!client->has_ended)
        next(client);
}

static void call(struct client *client, uint32_t procedure, xdrproc_t xdr_args, const void *args, xdrproc_t xdr_res,
                 size_t result_bytes)
{
    client->procedure = procedure;
    int status = flyt_peer_call(client->peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedure, xdr_args, args,
                                xdr_res, result_bytes, CALL_MS, answered, client);
    if (status)
        answered(client, status, NULL);
}

#define CALL(number, args, res) call(client, number, (xdrproc_t)xdr_##args, &a, (xdrproc_t)xdr_##res, sizeof(res))

/* ---- words to arguments ---- */

/* "field=value": the value; a word "field" alone: ""; NULL: it is not there. */
static char *value_of(char **words, const char *field)
{
    size_t bytes = strlen(field);

    for (; *words; words++)
        if (!strncmp(*words, field, bytes) && ((*words)[bytes] == '=' || !(*words)[bytes]))
            return (*words)[bytes] ? *words + bytes + 1 : *words + bytes;
    return NULL;
}

static flyt_set_number set_number(char **words, const char *field)
{
    const char *value = value_of(words, field);

    return (flyt_set_number){value != NULL, value ? (u_quad_t)strtoll(value, NULL, 10) : 0};
}

static flyt_set_text set_text(char **words, const char *field)
{
    static char empty[] = "";
    char *value = value_of(words, field);

    return (flyt_set_text){value != NULL, value ? value : empty};
}

static flyt_set_names set_names(char **words, const char *field, flyt_name *names)
{
    char *value = value_of(words, field), *name, *rest = value;
    flyt_set_names set = {.is_set = value != NULL, .names = {0, names}};

    while (value && (name = strsep(&rest, ",")))
        if (*name)
            names[set.names.names_len++] = name;
    return set;
}

static void call_vm_set(struct client *client, char **words, bool must_exist)
{
    flyt_name names[4][FLYT_NAMES_MAX];
    flyt_vm_set_args a = {
        .must_exist = must_exist,
        .vm = words[1],
        .name = set_text(words + 2, "name"),
        .tenant = set_text(words + 2, "tenant"),
        .host_ip = set_text(words + 2, "host_ip"),
        .compute_units = set_number(words + 2, "compute_units"),
        .memory_bytes = set_number(words + 2, "memory_bytes"),
        .device_count = set_number(words + 2, "devices"),
        .sessions_max = set_number(words + 2, "sessions"),
        .priority = set_number(words + 2, "priority"),
        .policy = set_text(words + 2, "policy"),
        .isolation = set_text(words + 2, "isolation"),
        .include_types = set_names(words + 2, "include_types", names[0]),
        .exclude_types = set_names(words + 2, "exclude_types", names[1]),
        .include_gpus = set_names(words + 2, "include_gpus", names[2]),
        .exclude_gpus = set_names(words + 2, "exclude_gpus", names[3]),
        .is_reserved = set_number(words + 2, "reserved"),
    };
    CALL(FLYT_VM_SET, flyt_vm_set_args, flyt_outcome);
}

static void call_resize(struct client *client, char **words)
{
    flyt_resize_args a = {.vm = words[1],
                          .compute_units = set_number(words + 2, "compute_units"),
                          .memory_bytes = set_number(words + 2, "memory_bytes"),
                          .when_free = value_of(words + 2, "when_free") != NULL,
                          .force = value_of(words + 2, "force") != NULL,
                          .timeout_ms = (u_int)set_number(words + 2, "timeout").value};
    CALL(FLYT_RESIZE, flyt_resize_args, flyt_resize_res);
}

static void call_tenant_set(struct client *client, char **words)
{
    flyt_tenant_set_args a = {.tenant = words[1],
                              .compute_units = set_number(words + 2, "compute_units"),
                              .memory_bytes = set_number(words + 2, "memory_bytes"),
                              .sessions_max = set_number(words + 2, "sessions"),
                              .vm_count = set_number(words + 2, "vms"),
                              .remove = value_of(words + 2, "remove") != NULL};
    CALL(FLYT_TENANT_SET, flyt_tenant_set_args, flyt_outcome);
}

static void call_view(struct client *client, char **words, unsigned count)
{
    static char empty[] = "";
    flyt_view_args a = {.view = words[1], .selector = empty};

    if (count > 2 && strcmp(words[2], "-"))
        a.selector = words[2];
    a.after = count > 3 ? strtoull(words[3], NULL, 10) : 0;
    a.wait_ms = count > 4 ? (u_int)strtoul(words[4], NULL, 10) : 0;
    CALL(FLYT_VIEW, flyt_view_args, flyt_view_res);
}

static flyt_peer_kind kind_of(const char *name)
{
    static const char *const names[] = {"node", "vm", "operator", "viewer"};

    for (unsigned i = 0; i < 4; i++)
        if (!strcmp(name, names[i]))
            return (flyt_peer_kind)(FLYT_PEER_NODE + i);
    fprintf(stderr, "cluster_call: there is no kind %s\n", name);
    exit(2);
}

/* False: the words are none of those above. */
static bool call_words(struct client *client, char **words, unsigned count)
{
    const char *name = words[0];

    if (!strcmp(name, "attach") || !strcmp(name, "look")) {
        flyt_attach_args a = {.is_waiting = name[0] == 'a'};
        CALL(FLYT_VM_ATTACH, flyt_attach_args, flyt_attach_res);
    } else if (!strcmp(name, "usage")) {
        call(client, FLYT_VM_USAGE, NULL, NULL, (xdrproc_t)xdr_flyt_vm_usage_res, sizeof(flyt_vm_usage_res));
    } else if (count < 2) {
        return false;
    } else if (!strcmp(name, "report")) {
        flyt_vm_report_args a = {.program_count = (u_int)atoi(words[1])};
        CALL(FLYT_VM_REPORT, flyt_vm_report_args, flyt_outcome);
    } else if (!strcmp(name, "view")) {
        call_view(client, words, count);
    } else if (!strcmp(name, "vm-add") || !strcmp(name, "vm-set")) {
        call_vm_set(client, words, name[3] == 's');
    } else if (!strcmp(name, "vm-remove")) {
        flyt_vm_remove_args a = {.vm = words[1], .kill = value_of(words + 2, "kill") != NULL};
        CALL(FLYT_VM_REMOVE, flyt_vm_remove_args, flyt_outcome);
    } else if (!strcmp(name, "resize")) {
        call_resize(client, words);
    } else if (!strcmp(name, "tenant-set")) {
        call_tenant_set(client, words);
    } else if (!strcmp(name, "gpu-set") && count > 2) {
        flyt_gpu_set_args a = {.gpu = words[1], .group_size = (u_int)atoi(words[2])};
        CALL(FLYT_GPU_SET, flyt_gpu_set_args, flyt_outcome);
    } else if (!strcmp(name, "allocation") && count > 2) {
        flyt_allocation_args a = {.id = strtoull(words[1], NULL, 16),
                                  .action = words[2][0] == 'a' ? FLYT_ALLOCATION_ADOPT : FLYT_ALLOCATION_KILL};
        CALL(FLYT_ALLOCATION, flyt_allocation_args, flyt_outcome);
    } else if (!strcmp(name, "fence")) {
        flyt_fence_args a = {.node = words[1], .is_confirmed_dead = value_of(words + 2, "confirmed") != NULL};
        CALL(FLYT_NODE_FENCE, flyt_fence_args, flyt_outcome);
    } else if (!strcmp(name, "session-kill")) {
        flyt_session_args a = {.id = strtoull(words[1], NULL, 16)};
        CALL(FLYT_SESSION_KILL, flyt_session_args, flyt_outcome);
    } else if (!strcmp(name, "schedule") && count > 3) {
        flyt_schedule_args a = {.kind = words[1][0] == 'n' ? FLYT_TARGET_NODE : FLYT_TARGET_GPU,
                                .target = words[2],
                                .schedule = (flyt_schedule)atoi(words[3])};
        CALL(FLYT_SCHEDULE, flyt_schedule_args, flyt_view_res);
    } else if (!strcmp(name, "token") && count > 3) {
        flyt_token_args a = {.kind = kind_of(words[1]), .name = words[2], .valid_s = (u_int)atoi(words[3])};
        CALL(FLYT_JOIN_TOKEN, flyt_token_args, flyt_token_res);
    } else if (!strcmp(name, "revoke") && count > 2) {
        flyt_revoke_args a = {.kind = kind_of(words[1]), .name = words[2]};
        CALL(FLYT_REVOKE, flyt_revoke_args, flyt_outcome);
    } else if (!strcmp(name, "backup")) {
        flyt_backup_args a = {.offset_bytes = strtoull(words[1], NULL, 10)};
        CALL(FLYT_BACKUP, flyt_backup_args, flyt_backup_res);
    } else {
        return false;
    }
    return true;
}

/* Takes the next line, if one is there and no call is under way. */
static void next(struct client *client)
{
    char *words[WORDS_MAX + 1] = {0}, line[INPUT_LINE_BYTES], *rest = line;
    unsigned count = 0;

    if (client->procedure)
        return;
    if (!input_lines_next(&client->lines, line)) {
        if (client->lines.has_ended)
            sd_event_exit(client->event, 0);
        return;
    }
    sd_event_source_set_enabled(client->input, client->lines.has_ended ? SD_EVENT_OFF : SD_EVENT_ON);
    while (count < WORDS_MAX && (words[count] = strsep(&rest, " ")))
        count += *words[count] != '\0';
    words[count] = NULL;
    if (!count || !call_words(client, words, count)) {
        fprintf(stderr, "cluster_call: '%s' is no call\n", count ? words[0] : "");
        sd_event_exit(client->event, 2);
    }
}

static int on_input(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct client *client = user;

    input_lines_read(&client->lines, fd);
    /* A full buffer is read on when a line has gone out of it. */
    if (client->lines.has_ended || input_lines_is_full(&client->lines))
        sd_event_source_set_enabled(source, SD_EVENT_OFF);
    next(client);
    return 0;
}

/* ---- the connection ---- */

static void ready(struct flyt_peer *peer, void *user)
{
    struct client *client = user;
    static char build[] = "test";
    flyt_hello_args a = {
        .protocol = FLYT_CONTROL_PROTOCOL, .build = build, .kind = client->kind, .name = (char *)client->name};
    pid_t pid = getpid();

    memcpy(a.instance, &pid, sizeof pid);
    CALL(FLYT_HELLO, flyt_hello_args, flyt_hello_res);
    sd_event_source_set_enabled(client->input, SD_EVENT_ON);
}

static void ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct client *client = user;
    cJSON *object = cJSON_CreateObject();

    client->has_ended = true;
    client->peer = NULL;
    cJSON_AddStringToObject(object, "status", "ENDED");
    cJSON_AddStringToObject(object, "text", cause->text);
    print(object);
    sd_event_exit(client->event, 1);
}

static void serve_changed(struct flyt_call *request, void *data)
{
    const flyt_changed_args *args = data;
    static char empty[] = "";
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "order", "changed");
    cJSON_AddStringToObject(object, "reason", args->reason);
    cJSON_AddNumberToObject(object, "grants", args->grants.grants_len);
    print(object);
    flyt_call_reply(request, &(flyt_outcome){FLYT_STATUS_OK, empty});
}

static void serve_leader(struct flyt_call *request, void *data)
{
    const flyt_leader_args *args = data;
    static char empty[] = "";
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "order", "leader");
    cJSON_AddNumberToObject(object, "epoch", (double)args->epoch);
    cJSON_AddStringToObject(object, "leader", args->leaders.leaders_len ? args->leaders.leaders_val[0] : "");
    print(object);
    flyt_call_reply(request, &(flyt_outcome){FLYT_STATUS_OK, empty});
}

static void serve_null(struct flyt_call *request, void *data)
{
    flyt_call_reply(request, NULL);
}

static const struct flyt_procedure orders[] = {
    {.number = FLYT_ORDER_NULL, .name = "null", .roles = FLYT_ROLE_ANY, .serve = serve_null},
    {.number = FLYT_ORDER_CHANGED,
     .name = "changed",
     .roles = FLYT_ROLE_ANY,
     .xdr_args = (xdrproc_t)xdr_flyt_changed_args,
     .args_bytes = sizeof(flyt_changed_args),
     .xdr_res = (xdrproc_t)xdr_flyt_outcome,
     .serve = serve_changed},
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

int main(int argc, char **argv)
{
    struct client client = {0};
    struct flyt_error err = {0};

    flyt_log_init("cluster_call", FLYT_LOG_WARN);
    if (argc != 4) {
        fprintf(stderr, "usage: cluster_call URL node|vm|operator|viewer NAME\n");
        return 2;
    }
    client.kind = kind_of(argv[2]);
    client.name = argv[3];
    if (sd_event_new(&client.event) < 0 ||
        sd_event_add_io(client.event, &client.input, STDIN_FILENO, EPOLLIN, on_input, &client) < 0)
        return 1;
    sd_event_source_set_enabled(client.input, SD_EVENT_OFF);
    struct flyt_peer_config config = {.event = client.event,
                                      .serves = &program,
                                      .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX,
                                      .user = &client,
                                      .ready = ready,
                                      .ended = ended};
    if (flyt_peer_connect(argv[1], NULL, &config, 10000, &err, &client.peer)) {
        fprintf(stderr, "cluster_call: %s\n", err.text);
        return 1;
    }
    int status = sd_event_loop(client.event);
    client.has_ended = true;
    flyt_peer_close(client.peer);
    sd_event_source_disable_unref(client.input);
    sd_event_unref(client.event);
    return status;
}
