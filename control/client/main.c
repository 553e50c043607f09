/*
 * flyt-client-manager: the VM's door to its GPU. One event loop; one thread more looks up users (user.h).
 *
 * - One connection to the cluster manager that leads (uplink.h): HELLO as this VM, attach, reports; the cluster
 *   manager's orders come on the same connection.
 * - One listening unix socket for the VM's CUDA programs and flytctl (program.c). A program keeps its connection as
 * long as it uses its GPU; its calls go to the node directly and never pass here.
 * - The memory that the VM shares with its host goes to programs as a descriptor (memory.c).
 * - What was granted is kept in memory only (grant.c): the ticket key is worth nothing on a disk.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/enrol.h"
#include "control/client/client.h"
#include "control/base/json_memory.h"
#include "rpc/base/log.h"

#define AT(field) offsetof(struct flyt_client_settings, field)

static const char *const attach_times[] = {"first-use", "start", NULL};
static const char *const managed_places[] = {
    [FLYT_MANAGED_MEMORY_DEVICE] = "device", [FLYT_MANAGED_MEMORY_HOST] = "host", NULL};

static const struct flyt_setting settings[] = {
    {.path = "managers",
     .kind = FLYT_SETTING_STRINGS,
     .offset = AT(managers),
     .is_live = true,
     .help = "addresses of the cluster managers, tcp://HOST:PORT"},
    {.path = "vm_ip", .kind = FLYT_SETTING_STRING, .offset = AT(vm_ip), .help = "this VM's name in the cluster"},
    {.path = "socket",
     .kind = FLYT_SETTING_STRING,
     .offset = AT(socket),
     .fallback = "/run/flyt/client.sock",
     .help = "where CUDA programs ask"},
    {.path = "allow_users",
     .kind = FLYT_SETTING_STRINGS,
     .offset = AT(allow_users),
     .fallback = "",
     .is_live = true,
     .help = "who may use the GPU: names or numbers; nobody named: everybody"},
    {.path = "allow_groups",
     .kind = FLYT_SETTING_STRINGS,
     .offset = AT(allow_groups),
     .fallback = "",
     .is_live = true,
     .help = "and members of these groups"},
    {.path = "memory.groups",
     .kind = FLYT_SETTING_STRINGS,
     .offset = AT(memory_groups),
     .fallback = "",
     .is_live = true,
     .help = "whose members' programs, and root's, are given the memory that this VM shares with its host; none named: "
             "nobody's"},
    {.path = "memory.slow",
     .kind = FLYT_SETTING_NUMBER,
     .offset = AT(memory_slow),
     .fallback = "8",
     .maximum = 1000000,
     .help = "it is not used where a copy out of it takes so many times what one of ordinary memory takes"},
    {.path = "memory.devices",
     .kind = FLYT_SETTING_STRING,
     .offset = AT(memory_devices),
     .fallback = FLYT_CLIENT_PCI_DEVICES,
     .help = "where the kernel shows PCI devices"},
    {.path = "attach",
     .kind = FLYT_SETTING_CHOICE,
     .offset = AT(attach),
     .fallback = "first-use",
     .choices = attach_times,
     .is_live = true,
     .help = "when to ask for the allocation"},
    {.path = "attach_timeout",
     .kind = FLYT_SETTING_SECONDS,
     .offset = AT(attach_timeout_ms),
     .fallback = "10",
     .minimum = 100,
     .maximum = 600000,
     .is_live = true,
     .help = "how long a program waits for the cluster manager"},
    {.path = "managed_memory",
     .kind = FLYT_SETTING_CHOICE,
     .offset = AT(managed_memory),
     .fallback = "device",
     .choices = managed_places,
     .is_live = true,
     .help = "where programs' managed memory lies where they share memory with their servers and FLYT_MANAGED_MEMORY "
             "does not say: host: kernels use it over the bus, and beside the host"},
    {.path = "programs_max",
     .kind = FLYT_SETTING_NUMBER,
     .offset = AT(programs_max),
     .fallback = "4096",
     .minimum = 1,
     .maximum = 65536,
     .help = "programs at once"},
    {.path = "programs_per_user_max",
     .kind = FLYT_SETTING_NUMBER,
     .offset = AT(programs_per_user_max),
     .fallback = "1024",
     .minimum = 1,
     .maximum = 65536,
     .help = "of one user of the VM; where it is more than programs_max, that counts"},
    {.path = "state_dir",
     .kind = FLYT_SETTING_STRING,
     .offset = AT(state_dir),
     .fallback = "/var/lib/flyt/client",
     .help = "where --join puts certificate and key"},
    {.path = "tls.authority",
     .kind = FLYT_SETTING_STRING,
     .offset = AT(authority),
     .fallback = "",
     .help = "CA's certificate (PEM); without it and without state_dir's the connection is in clear: loopback only"},
    {.path = "tls.certificate",
     .kind = FLYT_SETTING_STRING,
     .offset = AT(certificate),
     .fallback = "",
     .help = "this VM's certificate (PEM)"},
    {.path = "tls.key", .kind = FLYT_SETTING_STRING, .offset = AT(key), .fallback = "", .help = "its key (PEM, 0600)"},
    {.path = "metrics",
     .kind = FLYT_SETTING_STRING,
     .offset = AT(metrics),
     .fallback = "127.0.0.1:9405",
     .help = "ADDRESS:PORT of /metrics and /healthz; empty: none"},
    {0},
};

static const struct flyt_daemon_option options[] = {
    {"join", "TOKEN",
     "enrols this VM with a token of `flytctl vm join-token`, writes certificate and key, and ends; -: see next"},
    {"join-file", "FILE", "the same with the token that is in a file, or comes from standard input (-)"},
    {"admit-memory", "GROUP",
     "lets a group open the memory that this VM shares with its host, and ends: as root, before the daemon starts"},
    {0},
};

static int take_option(void *user, const char *name, const char *value)
{
    struct flyt_client_manager *manager = user;

    if (!strcmp(name, "admit-memory"))
        manager->admits = value;
    else if (!strcmp(name, "join-file") || !strcmp(value, "-"))
        manager->join_file = value;
    else
        manager->join_token = value;
    return 0;
}

static int check(const void *user, struct flyt_error *err)
{
    const struct flyt_client_settings *s = user;
    if (!s->managers.count)
        return flyt_error_set(err, -EINVAL, "managers must name at least one cluster manager");
    if (!!s->authority != !!s->certificate || !!s->authority != !!s->key)
        return flyt_error_set(err, -EINVAL, "tls needs authority, certificate and key, or none of them");
    return 0;
}

/* ---- orders of the cluster manager ---- */

static void serve_changed(struct flyt_call *call, void *args)
{
    struct flyt_client_manager *manager = flyt_uplink_user(call);
    flyt_outcome outcome = {.text = (char *)""};
    if (manager)
        flyt_grant_change(manager, args);
    flyt_call_reply(call, &outcome);
}

static void serve_leader(struct flyt_call *call, void *args)
{
    const flyt_leader_args *leader = args;
    struct flyt_client_manager *manager = flyt_uplink_user(call);
    flyt_outcome outcome = {.text = (char *)""};
    if (manager)
        flyt_uplink_follow(manager->uplink, leader->leaders.leaders_val, leader->leaders.leaders_len);
    flyt_call_reply(call, &outcome);
}

static const struct flyt_procedure order_procedures[] = {
    {FLYT_ORDER_CHANGED, "order_changed", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_changed_args, sizeof(flyt_changed_args),
     (xdrproc_t)xdr_flyt_outcome, serve_changed},
    {FLYT_ORDER_LEADER, "order_leader", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_leader_args, sizeof(flyt_leader_args),
     (xdrproc_t)xdr_flyt_outcome, serve_leader},
    {.serve = NULL},
};
static const struct flyt_program orders = {FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, order_procedures};

static void up(void *user, uint64_t epoch)
{
    struct flyt_client_manager *manager = user;
    flyt_daemon_status(manager->daemon, "connected to the cluster manager");
    flyt_grant_up(manager);
    flyt_programs_report(manager);
    flyt_memory_up(manager);
}

static void down(void *user)
{
    struct flyt_client_manager *manager = user;
    flyt_daemon_status(manager->daemon, "the cluster manager is not reachable; programs go on");
}

/* ---- start and end ---- */

static struct flyt_tls_files files_of(const struct flyt_client_settings *s)
{
    return (struct flyt_tls_files){.authority = s->authority, .certificate = s->certificate, .key = s->key};
}

static int join(struct flyt_client_manager *manager, struct flyt_error *err)
{
    char name[FLYT_NAME_BYTES_MAX + 1];
    const struct flyt_client_settings *s = manager->settings;
    struct flyt_enrolled_paths paths;
    const struct flyt_tls_files set = files_of(s);
    struct flyt_enrolment enrolment = {.managers = &s->managers,
                                       .token = manager->join_token,
                                       .role = FLYT_ROLE_VM,
                                       .name = s->vm_ip,
                                       .files = flyt_enrolled_files(&set, s->state_dir, &paths)};
    char *token = NULL;
    int status = manager->join_file ? flyt_join_token_read(manager->join_file, err, &token) : 0;
    if (token)
        enrolment.token = token;
    if (!status)
        status = flyt_enrol(&enrolment, err, name);
    flyt_join_token_free(token);
    if (status)
        return status;
    printf("enrolled as VM %s: %s\n", name, enrolment.files.certificate);
    flyt_daemon_exit(manager->daemon, 0);
    return 0;
}

static const struct flyt_client_services services = {flyt_grant_serve, flyt_status_serve, flyt_devices_serve,
                                                     flyt_memory_serve, flyt_status_measured};

static int start(void *user, struct flyt_daemon *daemon, struct flyt_error *err)
{
    struct flyt_client_manager *manager = user;
    manager->daemon = daemon;
    manager->settings = flyt_daemon_settings(daemon);
    if (manager->join_token || manager->join_file)
        return join(manager, err);
    if (manager->admits) {
        flyt_daemon_exit(daemon, 0);
        return flyt_memory_admit(manager, manager->admits, err);
    }
    const struct flyt_tls_files set = files_of(manager->settings);
    flyt_memory_init(manager); /* before programs ask for it */
    int status = flyt_enrolled_tls(&set, manager->settings->state_dir, err, &manager->tls);
    if (!status)
        status = flyt_status_init(manager, err);
    if (!status)
        status = flyt_programs_init(manager, &services, err);
    if (status)
        return status;
    const struct flyt_uplink_config config = {
        .event = flyt_daemon_event(daemon),
        .managers = &manager->settings->managers,
        .tls = manager->tls,
        .kind = FLYT_PEER_VM,
        .name = manager->settings->vm_ip,
        .orders = &orders,
        .user = manager,
        .up = up,
        .down = down,
        .measured = flyt_status_measured,
    };
    status = flyt_uplink_new(&config, &manager->uplink);
    if (status)
        return flyt_error_set(err, status, "no connection can be made: %s", strerror(-status));
    flyt_daemon_ready(daemon, "serving programs");
    flyt_info("vm %s: programs at %s", manager->settings->vm_ip, manager->settings->socket);
    return 0;
}

static void reload(void *user)
{
    struct flyt_client_manager *manager = user;
    struct flyt_error err = {0};
    if (manager->tls && flyt_tls_reload(manager->tls, &err) != 0)
        flyt_fail("certificates stay as they were: %s", err.text);
}

static void stop(void *user)
{
    struct flyt_client_manager *manager = user;
    if (manager->join_token || manager->join_file || manager->admits)
        return;
    flyt_memory_fini(manager);
    flyt_grant_fini(manager);
    flyt_devices_fini(manager);
    flyt_programs_fini(manager);
    manager->uplink = flyt_uplink_free(manager->uplink);
    flyt_status_fini(manager);
    manager->tls = flyt_tls_free(manager->tls);
}

int main(int argc, char **argv)
{
    struct flyt_client_manager manager = {.listen_fd = -1, .memory = {.fd = -1}};
    const struct flyt_daemon_config config = {
        .name = "flyt-client-manager",
        .summary = "Gives the CUDA programs of this VM the GPU that the cluster manager has granted it.",
        .default_file = "/etc/flyt/client.conf",
        .settings = settings,
        .settings_bytes = sizeof(struct flyt_client_settings),
        .options = options,
        .option = take_option,
        .check = check,
        .start = start,
        .reload = reload,
        .stop = stop,
        .user = &manager,
    };
    flyt_json_watch_memory(NULL);
    return flyt_daemon_run(&config, argc, argv);
}
