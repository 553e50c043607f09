#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/client/client.h"
#include "control/client/user.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/endpoint/listen.h"

enum { REPORT_US = 200000, REPORT_MS = 5000, LOOK_UPS_MAX = 4096, SHOWN_MAX = 256, SENTENCE_BYTES = 256 };
/* So long who may not use the GPU has to ask, so that he is told why, before his connection ends. */
enum { FAREWELL_US = 1000000 };

/* A program, or flytctl: a connection on the unix socket. */
struct flyt_program_entry {
    struct flyt_program_entry *next;
    struct flyt_client_manager *manager;
    struct flyt_peer *peer;
    uint64_t number; /* which no other program had */
    char *name;      /* NULL: has not asked for a GPU */
    unsigned asked;  /* how often */
    uint64_t since_ms;
    sd_event_source *farewell; /* NULL: he may, or that is not known yet */
};

static struct flyt_program_entry *find(struct flyt_client_manager *manager, const struct flyt_peer *peer)
{
    for (struct flyt_program_entry *p = manager->programs; p; p = p->next)
        if (p->peer == peer)
            return p;
    return NULL;
}

static struct flyt_program_entry *enter(struct flyt_client_manager *manager, struct flyt_peer *peer)
{
    struct flyt_program_entry *program = find(manager, peer);
    if (program || !(program = calloc(1, sizeof *program)))
        return program;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    program->manager = manager;
    program->peer = peer;
    program->number = ++manager->program_number;
    program->since_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    program->next = manager->programs;
    manager->programs = program;
    return program;
}

static struct flyt_program_entry *find_number(struct flyt_client_manager *manager, uint64_t number)
{
    for (struct flyt_program_entry *p = manager->programs; p; p = p->next)
        if (p->number == number)
            return p;
    return NULL;
}

static void forget(struct flyt_client_manager *manager, const struct flyt_peer *peer)
{
    for (struct flyt_program_entry **at = &manager->programs; *at; at = &(*at)->next) {
        struct flyt_program_entry *program = *at;
        if (program->peer != peer)
            continue;
        *at = program->next;
        if (program->name) {
            manager->program_count--;
            flyt_programs_report(manager);
        }
        sd_event_source_disable_unref(program->farewell);
        free(program->name);
        free(program);
        return;
    }
}

static void ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    forget(user, peer);
}

/* ---- who may ---- */

/* A procedure, for who may and for who may not. Besides who may use the GPU, members of these groups alone may call it.
 */
struct service {
    void (*serve)(struct flyt_client_manager *manager, struct flyt_program_entry *program, struct flyt_call *call,
                  void *args);
    void (*refuse)(struct flyt_call *call, const flyt_outcome *outcome);
    const struct flyt_strings *(*groups)(const struct flyt_client_settings *settings); /* NULL: everybody who may */
};

/* A connection or a call whose user is looked up. */
struct looking_up {
    struct flyt_client_manager *manager;
    uint64_t number; /* of the program */
    uid_t uid;
    struct flyt_strings users, groups; /* copies: the settings may change meanwhile */
    bool may;
    char user[64];          /* his name, where he may not */
    struct flyt_call *call; /* NULL: it has only connected */
    void *args;
    const struct service *service; /* of the call */
    bool is_member_asked;          /* he may use the GPU, and it is looked up whether he is a member */
};

static bool copy_strings(const struct flyt_strings *from, struct flyt_strings *to)
{
    to->items = calloc(from->count + 1, sizeof *to->items);
    for (size_t i = 0; to->items && i < from->count; i++) {
        if (!(to->items[i] = strdup(from->items[i])))
            return false;
        to->count = i + 1;
    }
    return to->items;
}

static void free_strings(struct flyt_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
}

static void look_up(void *job)
{
    struct looking_up *looking = job;
    looking->may = flyt_user_may(looking->uid, &looking->users, &looking->groups);
    if (!looking->may)
        flyt_user_print(looking->uid, looking->user, sizeof looking->user);
}

static int on_farewell(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_program_entry *program = user;
    struct flyt_peer *peer = program->peer;
    forget(program->manager, peer);
    flyt_peer_close(peer);
    return 0;
}

/* Who has asked is told why; who has only connected may still ask, for a moment. */
static void turn_away(const struct looking_up *looking, struct flyt_program_entry *program)
{
    struct flyt_client_manager *manager = looking->manager;
    struct flyt_peer *peer = program->peer;
    char sentence[SENTENCE_BYTES];
    if (!program->farewell) {
        flyt_warn("refused %s: user %s is neither in allow_users nor in allow_groups",
                  flyt_peer_identity(peer)->address, looking->user);
        flyt_metric_add(manager->refused_count, NULL, 1);
    }
    if (looking->call) {
        snprintf(sentence, sizeof sentence,
                 "user %s may not use this VM's GPU: neither allow_users nor allow_groups of client.conf lets him",
                 looking->user);
        looking->service->refuse(looking->call, &(flyt_outcome){FLYT_STATUS_DENIED, sentence});
        forget(manager, peer);
        flyt_peer_close_when_sent(peer);
    } else if (!program->farewell &&
               sd_event_add_time_relative(flyt_daemon_event(manager->daemon), &program->farewell, CLOCK_MONOTONIC,
                                          FAREWELL_US, 1000, on_farewell, program) < 0) {
        forget(manager, peer);
        flyt_peer_close(peer);
    }
}

static void serve_member(struct flyt_client_manager *manager, struct flyt_program_entry *program,
                         const struct looking_up *what);

static void refuse_member(const struct looking_up *looking)
{
    looking->service->refuse(looking->call,
                             &(flyt_outcome){FLYT_STATUS_DENIED, (char *)"the user is in no group that may have it"});
}

static void looked_up(void *job, int is_cancelled)
{
    struct looking_up *looking = job;
    struct flyt_program_entry *program = is_cancelled ? NULL : find_number(looking->manager, looking->number);
    if (program && !looking->may && looking->is_member_asked)
        refuse_member(looking);
    else if (program && !looking->may)
        turn_away(looking, program);
    else if (program && looking->call && !looking->is_member_asked)
        serve_member(looking->manager, program, looking);
    else if (program && looking->call)
        looking->service->serve(looking->manager, program, looking->call, looking->args);
    else if (looking->call)
        flyt_call_fail(looking->call);
    free_strings(&looking->users);
    free_strings(&looking->groups);
    free(looking);
}

static void begin_look_up(struct flyt_client_manager *manager, struct flyt_program_entry *program,
                          const struct looking_up *what, const struct flyt_strings *users,
                          const struct flyt_strings *groups)
{
    struct looking_up *looking = malloc(sizeof *looking);
    if (looking) {
        *looking = *what;
        looking->manager = manager;
        looking->number = program->number;
        looking->uid = flyt_peer_identity(program->peer)->uid;
        looking->users = looking->groups = (struct flyt_strings){0};
        if (copy_strings(users, &looking->users) && copy_strings(groups, &looking->groups) &&
            flyt_worker_do(manager->users, look_up, looked_up, looking) == 0)
            return;
        free_strings(&looking->users);
        free_strings(&looking->groups);
        free(looking);
    }
    flyt_warn("%s: whether the user may cannot be looked up now", flyt_peer_identity(program->peer)->address);
    if (what->call)
        flyt_call_fail(what->call);
}

/* He may use the GPU. */
static void serve_member(struct flyt_client_manager *manager, struct flyt_program_entry *program,
                         const struct looking_up *what)
{
    static const struct flyt_strings no_users;
    const struct flyt_strings *groups = what->service->groups ? what->service->groups(manager->settings) : NULL;
    if (!groups) {
        what->service->serve(manager, program, what->call, what->args);
    } else if (!groups->count) {
        refuse_member(what);
    } else {
        struct looking_up member = *what;
        member.is_member_asked = true;
        begin_look_up(manager, program, &member, &no_users, groups);
    }
}

/* Serves the call (NULL: there is none yet) if its user may, else ends his connection. */
static void serve_if_may(struct flyt_client_manager *manager, struct flyt_program_entry *program,
                         const struct looking_up *what)
{
    const struct flyt_client_settings *settings = manager->settings;
    if (!flyt_user_is_free(flyt_peer_identity(program->peer)->uid, &settings->allow_users, &settings->allow_groups))
        begin_look_up(manager, program, what, &settings->allow_users, &settings->allow_groups);
    else if (what->call)
        serve_member(manager, program, what);
}

static void serve_call(struct flyt_call *call, void *args, const struct service *service)
{
    struct flyt_peer *peer = flyt_call_peer(call);
    struct flyt_client_manager *manager = peer ? flyt_peer_user(peer) : NULL;
    struct flyt_program_entry *program = manager ? enter(manager, peer) : NULL;
    if (program)
        serve_if_may(manager, program, &(struct looking_up){.call = call, .args = args, .service = service});
    else
        flyt_call_fail(call);
}

static void ready(struct flyt_peer *peer, void *user)
{
    struct flyt_client_manager *manager = user;
    struct flyt_program_entry *program = enter(manager, peer);
    if (program)
        serve_if_may(manager, program, &(struct looking_up){0});
}

/* ---- what they ask ---- */

static void attach(struct flyt_client_manager *manager, struct flyt_program_entry *program, struct flyt_call *call,
                   void *args)
{
    const flyt_local_attach_args *wish = args;
    if (!program->name && (program->name = strdup(wish->program_name))) {
        manager->program_count++;
        flyt_programs_report(manager);
        flyt_debug("program %s: %s", wish->program_name, flyt_call_identity(call)->address);
    }
    if (program->name)
        manager->services->attach(manager, call, program->asked++ > 0);
    else
        flyt_call_fail(call);
}

static void status(struct flyt_client_manager *manager, struct flyt_program_entry *program, struct flyt_call *call,
                   void *args)
{
    manager->services->status(manager, call);
}

static void devices(struct flyt_client_manager *manager, struct flyt_program_entry *program, struct flyt_call *call,
                    void *args)
{
    manager->services->devices(manager, call);
}

static void memory(struct flyt_client_manager *manager, struct flyt_program_entry *program, struct flyt_call *call,
                   void *args)
{
    manager->services->memory(manager, call);
}

static void tell_settings(struct flyt_client_manager *manager, struct flyt_program_entry *program,
                          struct flyt_call *call, void *args)
{
    flyt_call_reply(
        call, &(flyt_local_settings_res){.outcome = {FLYT_STATUS_OK, (char *)""},
                                         .managed_memory = (flyt_managed_memory)manager->settings->managed_memory});
}

static void refuse_settings(struct flyt_call *call, const flyt_outcome *outcome)
{
    flyt_call_reply(call, &(flyt_local_settings_res){.outcome = *outcome});
}

static void refuse_memory(struct flyt_call *call, const flyt_outcome *outcome)
{
    flyt_call_reply(call, outcome);
}

static const struct flyt_strings *memory_groups(const struct flyt_client_settings *settings)
{
    return &settings->memory_groups;
}

static void refuse_attach(struct flyt_call *call, const flyt_outcome *outcome)
{
    flyt_call_reply(call, &(flyt_local_attach_res){.outcome = *outcome});
}

static void refuse_status(struct flyt_call *call, const flyt_outcome *outcome)
{
    flyt_call_reply(call, &(flyt_local_status_res){.outcome = *outcome});
}

static void refuse_devices(struct flyt_call *call, const flyt_outcome *outcome)
{
    flyt_call_reply(call, &(flyt_local_devices_res){.outcome = *outcome});
}

static const struct service attach_service = {attach, refuse_attach, NULL},
                            status_service = {status, refuse_status, NULL},
                            devices_service = {devices, refuse_devices, NULL},
                            memory_service = {memory, refuse_memory, memory_groups},
                            settings_service = {tell_settings, refuse_settings, NULL};

static void serve_attach(struct flyt_call *call, void *args)
{
    serve_call(call, args, &attach_service);
}

static void serve_status(struct flyt_call *call, void *args)
{
    serve_call(call, args, &status_service);
}

static void serve_devices(struct flyt_call *call, void *args)
{
    serve_call(call, args, &devices_service);
}

static void serve_memory(struct flyt_call *call, void *args)
{
    serve_call(call, args, &memory_service);
}

static void serve_settings(struct flyt_call *call, void *args)
{
    serve_call(call, args, &settings_service);
}

static const struct flyt_procedure procedures[] = {
    {FLYT_LOCAL_ATTACH, "local_attach", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_local_attach_args,
     sizeof(flyt_local_attach_args), (xdrproc_t)xdr_flyt_local_attach_res, serve_attach},
    {FLYT_LOCAL_STATUS, "local_status", FLYT_ROLE_ANY, NULL, 0, (xdrproc_t)xdr_flyt_local_status_res, serve_status},
    {FLYT_LOCAL_DEVICES, "local_devices", FLYT_ROLE_ANY, NULL, 0, (xdrproc_t)xdr_flyt_local_devices_res, serve_devices},
    {FLYT_LOCAL_MEMORY, "local_memory", FLYT_ROLE_ANY, NULL, 0, (xdrproc_t)xdr_flyt_outcome, serve_memory},
    {FLYT_LOCAL_SETTINGS, "local_settings", FLYT_ROLE_ANY, NULL, 0, (xdrproc_t)xdr_flyt_local_settings_res,
     serve_settings},
    {.serve = NULL},
};
static const struct flyt_program program_served = {FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, procedures};

/* ---- listening ---- */

static int listen_on(struct flyt_client_manager *manager, struct flyt_error *err)
{
    char url[FLYT_URL_TEXT_BYTES], shown[FLYT_URL_TEXT_BYTES];
    manager->listen_fd = flyt_daemon_take(manager->daemon, "client");
    if (manager->listen_fd >= 0)
        return 0;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", manager->settings->socket);
    char *slash = strrchr(folder, '/');
    if (slash && slash != folder) {
        *slash = 0;
        mkdir(folder, 0755); /* where it cannot be made, listening says so */
    }
    snprintf(url, sizeof url, "unix://%s", manager->settings->socket);
    int status = flyt_listen(url, err, &manager->listen_fd, shown);
    if (status)
        return status;
    manager->owns_socket = true;
    /* Every user may connect; who may stay is decided by the kernel's word about him (admit). */
    if (chmod(manager->settings->socket, 0666) != 0)
        return flyt_error_set(err, -errno, "%s: %s", manager->settings->socket, strerror(errno));
    return 0;
}

static int send_report(sd_event_source *source, uint64_t at_us, void *user);

int flyt_programs_init(struct flyt_client_manager *manager, const struct flyt_client_services *services,
                       struct flyt_error *err)
{
    manager->services = services;
    int status = listen_on(manager, err);
    if (status)
        return status;
    const struct flyt_door_config config = {
        .peer = {.event = flyt_daemon_event(manager->daemon),
                 .serves = &program_served,
                 .record_bytes_max = FLYT_CONTROL_HELLO_BYTES_MAX,
                 .user = manager,
                 .ready = ready,
                 .ended = ended,
                 .measured = manager->services->measured},
        .peers_max = (unsigned)manager->settings->programs_max,
        .per_address_max = (unsigned)manager->settings->programs_per_user_max, /* the kernel says which user */
        .anonymous_max = (unsigned)manager->settings->programs_max,
        .anonymous_ms = 10000,
    };
    status = flyt_worker_new(flyt_daemon_event(manager->daemon), "users", LOOK_UPS_MAX, &manager->users);
    if (status >= 0)
        status = flyt_door_new(manager->listen_fd, NULL, &config, &manager->door);
    if (status >= 0)
        status = sd_event_add_time_relative(flyt_daemon_event(manager->daemon), &manager->report_timer, CLOCK_MONOTONIC,
                                            REPORT_US, 50000, send_report, manager);
    return status < 0 ? flyt_error_set(err, status, "the socket %s cannot be served: %s", manager->settings->socket,
                                       strerror(-status))
                      : 0;
}

void flyt_programs_fini(struct flyt_client_manager *manager)
{
    manager->door = flyt_door_free(manager->door);
    manager->users = flyt_worker_free(manager->users);
    manager->report_timer = sd_event_source_disable_unref(manager->report_timer);
    while (manager->programs) {
        struct flyt_program_entry *program = manager->programs;
        manager->programs = program->next;
        sd_event_source_disable_unref(program->farewell);
        free(program->name);
        free(program);
    }
    manager->listen_fd = flyt_close(manager->listen_fd);
    if (manager->owns_socket)
        unlink(manager->settings->socket);
}

/* ---- what others hear of them ---- */

void flyt_programs_notify(struct flyt_client_manager *manager, uint64_t revision, const char *text)
{
    flyt_local_changed_args args = {.revision = revision, .text = (char *)text};
    for (struct flyt_program_entry *p = manager->programs; p; p = p->next)
        if (p->name)
            flyt_peer_call(p->peer, FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, FLYT_LOCAL_CHANGED,
                           (xdrproc_t)xdr_flyt_local_changed_args, &args, NULL, 0, 0, NULL, NULL);
    flyt_metric_add(manager->change_count, NULL, 1);
}

static void reported(void *user, int status, void *result)
{
    /* A report that was lost is followed by the next one, when the connection is there again. */
}

static int send_report(sd_event_source *source, uint64_t at_us, void *user)
{
    struct flyt_client_manager *manager = user;
    flyt_vm_report_args args = {.program_count = manager->program_count};
    if (manager->uplink)
        flyt_uplink_call(manager->uplink, FLYT_VM_REPORT, (xdrproc_t)xdr_flyt_vm_report_args, &args,
                         (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), REPORT_MS, reported, manager);
    return 0;
}

void flyt_programs_report(struct flyt_client_manager *manager)
{
    if (!manager->report_timer)
        return;
    sd_event_source_set_time_relative(manager->report_timer, REPORT_US);
    sd_event_source_set_enabled(manager->report_timer, SD_EVENT_ONESHOT);
}

unsigned flyt_programs_list(const struct flyt_client_manager *manager, flyt_program_use *ret_uses, unsigned room)
{
    unsigned count = 0;
    for (const struct flyt_program_entry *p = manager->programs; p && count < room; p = p->next)
        if (p->name)
            ret_uses[count++] = (flyt_program_use){.pid = (u_int)flyt_peer_identity(p->peer)->pid};
    return count;
}

struct cJSON *flyt_programs_json(const struct flyt_client_manager *manager)
{
    cJSON *array = cJSON_CreateArray();
    unsigned count = 0;
    for (const struct flyt_program_entry *p = manager->programs; p && count < SHOWN_MAX; p = p->next) {
        if (!p->name)
            continue;
        count++;
        const struct flyt_identity *identity = flyt_peer_identity(p->peer);
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "program", p->name);
        cJSON_AddNumberToObject(object, "pid", (double)identity->pid);
        cJSON_AddNumberToObject(object, "uid", (double)identity->uid);
        cJSON_AddNumberToObject(object, "since_ms", (double)p->since_ms);
        if (!cJSON_AddItemToArray(array, object))
            cJSON_Delete(object);
    }
    return array;
}
