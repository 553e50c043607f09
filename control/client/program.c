#include <cjson/cJSON.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/client/client.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/listen.h"

enum { REPORT_US = 200000, GROUPS_MAX = 256, REPORT_MS = 5000 };

/* A program, or flytctl: a connection on the unix socket. */
struct flyt_program_entry {
    struct flyt_program_entry *next;
    struct flyt_client_manager *manager;
    struct flyt_peer *peer;
    char *name;     /* NULL: has not asked for a GPU */
    unsigned asked; /* how often */
    uint64_t since_ms;
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
    program->since_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    program->next = manager->programs;
    manager->programs = program;
    return program;
}

static void serve_attach(struct flyt_call *call, void *args)
{
    const flyt_local_attach_args *wish = args;
    struct flyt_peer *peer = flyt_call_peer(call);
    struct flyt_client_manager *manager = peer ? flyt_peer_user(peer) : NULL;
    struct flyt_program_entry *program = manager ? enter(manager, peer) : NULL;
    if (!program) {
        flyt_call_fail(call);
        return;
    }
    if (!program->name) {
        program->name = strdup(wish->program_name);
        manager->program_count++;
        flyt_programs_report(manager);
        flyt_debug("program %s: %s", wish->program_name, flyt_call_identity(call)->address);
    }
    flyt_grant_serve(manager, call, program->asked++ > 0);
}

static void serve_status(struct flyt_call *call, void *args)
{
    struct flyt_peer *peer = flyt_call_peer(call);
    if (peer)
        flyt_status_serve(flyt_peer_user(peer), call);
    else
        flyt_call_fail(call);
}

static const struct flyt_procedure procedures[] = {
    {FLYT_LOCAL_ATTACH, "local_attach", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_local_attach_args,
     sizeof(flyt_local_attach_args), (xdrproc_t)xdr_flyt_local_attach_res, serve_attach},
    {FLYT_LOCAL_STATUS, "local_status", FLYT_ROLE_ANY, NULL, 0, (xdrproc_t)xdr_flyt_local_status_res, serve_status},
    {.serve = NULL},
};
static const struct flyt_program program_served = {FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, procedures};

static void ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct flyt_client_manager *manager = user;
    for (struct flyt_program_entry **at = &manager->programs; *at; at = &(*at)->next) {
        struct flyt_program_entry *program = *at;
        if (program->peer != peer)
            continue;
        *at = program->next;
        if (program->name) {
            manager->program_count--;
            flyt_programs_report(manager);
        }
        free(program->name);
        free(program);
        return;
    }
}

/* ---- who may ---- */

static bool is_in(const struct flyt_strings *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i], name) == 0)
            return true;
    return false;
}

static bool has_group(const struct flyt_strings *names, const struct passwd *user)
{
    gid_t groups[GROUPS_MAX];
    int count = GROUPS_MAX;
    if (getgrouplist(user->pw_name, user->pw_gid, groups, &count) < 0)
        count = GROUPS_MAX;
    for (size_t i = 0; i < names->count; i++) {
        const struct group *group = getgrnam(names->items[i]);
        for (int j = 0; group && j < count; j++)
            if (groups[j] == group->gr_gid)
                return true;
    }
    return false;
}

/* Everybody where nobody is named; else the named users and members of the named groups, and root. */
static bool admit(struct flyt_identity *identity, void *user)
{
    struct flyt_client_manager *manager = user;
    const struct flyt_client_settings *settings = manager->settings;
    if (identity->uid == 0 || (!settings->allow_users.count && !settings->allow_groups.count))
        return true;
    char number[16];
    snprintf(number, sizeof number, "%u", (unsigned)identity->uid);
    const struct passwd *entry = getpwuid(identity->uid);
    if (is_in(&settings->allow_users, number) || (entry && is_in(&settings->allow_users, entry->pw_name)) ||
        (entry && has_group(&settings->allow_groups, entry)))
        return true;
    flyt_warn("refused %s: neither in allow_users nor in allow_groups", identity->address);
    flyt_metric_add(manager->refused_count, NULL, 1);
    return false;
}

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

int flyt_programs_init(struct flyt_client_manager *manager, struct flyt_error *err)
{
    int status = listen_on(manager, err);
    if (status)
        return status;
    const struct flyt_door_config config = {
        .peer = {.event = flyt_daemon_event(manager->daemon),
                 .serves = &program_served,
                 .record_bytes_max = FLYT_CONTROL_HELLO_BYTES_MAX,
                 .user = manager,
                 .ended = ended,
                 .measured = flyt_status_measured},
        .peers_max = (unsigned)manager->settings->programs_max,
        .anonymous_max = (unsigned)manager->settings->programs_max,
        .anonymous_ms = 10000,
        .admit = admit,
    };
    status = flyt_door_new(manager->listen_fd, NULL, &config, &manager->door);
    if (status == 0)
        status = sd_event_add_time_relative(flyt_daemon_event(manager->daemon), &manager->report_timer, CLOCK_MONOTONIC,
                                            REPORT_US, 50000, send_report, manager);
    return status < 0 ? flyt_error_set(err, status, "the socket %s cannot be served: %s", manager->settings->socket,
                                       strerror(-status))
                      : 0;
}

void flyt_programs_fini(struct flyt_client_manager *manager)
{
    manager->door = flyt_door_free(manager->door);
    manager->report_timer = sd_event_source_disable_unref(manager->report_timer);
    while (manager->programs) {
        struct flyt_program_entry *program = manager->programs;
        manager->programs = program->next;
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

struct cJSON *flyt_programs_json(const struct flyt_client_manager *manager)
{
    cJSON *array = cJSON_CreateArray();
    for (const struct flyt_program_entry *p = manager->programs; p; p = p->next) {
        if (!p->name)
            continue;
        const struct flyt_identity *identity = flyt_peer_identity(p->peer);
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "program", p->name);
        cJSON_AddNumberToObject(object, "pid", (double)identity->pid);
        cJSON_AddNumberToObject(object, "uid", (double)identity->uid);
        cJSON_AddNumberToObject(object, "since_ms", (double)p->since_ms);
        cJSON_AddItemToArray(array, object);
    }
    return array;
}
