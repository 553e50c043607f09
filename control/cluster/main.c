#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/base/daemon.h"
#include "control/base/json_memory.h"
#include "control/base/peer.h"
#include "control/base/tls.h"
#include "control/cluster/api/backup.h"
#include "control/cluster/api/member.h"
#include "control/cluster/api/serve.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/reconcile/look.h"
#include "control/cluster/reconcile/node.h"
#include "control/cluster/reconcile/checkpoint_op.h"
#include "control/cluster/reconcile/vm.h"
#include "control/cluster/reconcile/desired_store.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"
#include "rpc/base/url.h"
#include "rpc/transport/endpoint/listen.h"

enum { TICK_MS = 1000, STOP_MS = 3000, SPARE_DESCRIPTORS = 64 /* listening, the store, timers, metrics */ };

static int on_tick(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_cluster *cluster = user;

    flyt_links_tick(cluster);
    if (cluster->is_leader) {
        flyt_node_tick(cluster);
        flyt_looks_tick(cluster);
        flyt_checkpoint_op_tick(cluster);
        flyt_vm_tick(cluster);
        flyt_event_tick(cluster);
    }
    sd_event_source_set_time_relative(source, TICK_MS * 1000);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int on_poll(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_cluster *cluster = user;

    flyt_desired_store_poll(cluster);
    sd_event_source_set_time_relative(source, cluster->settings->desired_poll_ms * 1000);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void store_overruled(uint64_t epoch, void *user)
{
    flyt_lead_lost(user, epoch, "a GPU's document has a higher epoch: another manager leads");
}

static void store_turned(bool is_available, const char *cause, void *user)
{
    struct flyt_cluster *cluster = user;

    cluster->is_store_available = is_available;
    if (is_available)
        flyt_info("the store answers again");
    else
        flyt_fail("the store does not answer: %s", cause);
}

static int open_store(struct flyt_cluster *cluster, struct flyt_error *err)
{
    struct flyt_store *store = NULL;
    int status = flyt_store_open(cluster->settings->store, (unsigned)cluster->settings->store_timeout_ms, err, &store);

    if (status)
        return status;
    cluster->is_shared_store = flyt_store_is_shared(store);
    cluster->is_store_available = true;
    struct flyt_store_writer_config config = {.event = cluster->event,
                                              .store = store,
                                              .user = cluster,
                                              .overruled = store_overruled,
                                              .turned = store_turned,
                                              .measured = flyt_measure_store};
    status = flyt_store_writer_new(&config, &cluster->store_writer);
    if (!status)
        return 0;
    flyt_store_close(store);
    return flyt_error_set(err, status, "the store's thread could not be started: %s", strerror(-status));
}

static int open_door(struct flyt_cluster *cluster, const char *url, struct flyt_tls *tls, int *fd,
                     struct flyt_door **ret_door, struct flyt_error *err)
{
    char text[FLYT_URL_TEXT_BYTES];
    struct flyt_door_config config = {.peer = {.event = cluster->event,
                                               .serves = &flyt_cluster_program,
                                               .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX,
                                               .user = cluster,
                                               .ready = flyt_link_ready,
                                               .ended = flyt_link_ended,
                                               .measured = flyt_measure_call},
                                      .peers_max = (unsigned)cluster->settings->connections_max,
                                      .per_address_max = (unsigned)cluster->settings->per_address_max,
                                      .per_identity_max = (unsigned)cluster->settings->per_identity_max,
                                      .admit = flyt_member_admit};
    int status = flyt_listen(url, err, fd, text);

    if (status)
        return status;
    status = flyt_door_new(*fd, tls, &config, ret_door);
    if (status)
        return flyt_error_set(err, status, "%s cannot be served: %s", url, strerror(-status));
    if (!strncmp(text, "tcp:", 4))
        snprintf(cluster->listen_url, sizeof cluster->listen_url, "%.*s", FLYT_URL_BYTES_MAX, text);
    flyt_info("listens on %s%s", text, tls ? " with TLS" : ", in clear");
    return 0;
}

/* Operators of this machine: the file's permissions say who. */
static void set_socket_mode(const char *path, const char *group_name)
{
    const struct group *group = group_name ? getgrnam(group_name) : NULL;

    if (group && chown(path, (uid_t)-1, group->gr_gid))
        flyt_warn("%s: its group could not be set to %s: %m", path, group_name);
    if (chmod(path, 0660))
        flyt_warn("%s: its mode could not be set to 0660: %m", path);
}

static int open_doors(struct flyt_cluster *cluster, struct flyt_error *err)
{
    const struct flyt_cluster_settings *settings = cluster->settings;
    struct flyt_tls_files files = {settings->tls.authority, settings->tls.certificate, settings->tls.key};
    char url[FLYT_URL_BYTES_MAX + 1];
    int status = 0;

    if (files.certificate)
        status = flyt_tls_new(&files, true, err, &cluster->tls);
    if (!status && settings->listen)
        status = open_door(cluster, settings->listen, cluster->tls, &cluster->tcp_fd, &cluster->tcp_door, err);
    if (status || !settings->socket)
        return status;
    snprintf(url, sizeof url, "unix://%s", settings->socket);
    status = open_door(cluster, url, NULL, &cluster->unix_fd, &cluster->unix_door, err);
    if (!status)
        set_socket_mode(settings->socket, settings->socket_group);
    return status;
}

/* One for each connection. */
static void raise_descriptors(uint64_t connections_max)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files))
        return;
    if (files.rlim_cur < files.rlim_max) {
        struct rlimit raised = {files.rlim_max, files.rlim_max};
        if (!setrlimit(RLIMIT_NOFILE, &raised))
            files = raised;
    }
    if (files.rlim_cur < connections_max + SPARE_DESCRIPTORS)
        flyt_warn("connections_max is %" PRIu64 ", but %" PRIu64 " descriptors are all that is allowed: raise the hard "
                  "limit (LimitNOFILE= of the unit, ulimit -Hn), or lower connections_max",
                  connections_max, (uint64_t)files.rlim_cur);
}

static int start_cluster(struct flyt_cluster *cluster, struct flyt_error *err)
{
    int status = open_store(cluster, err);

    raise_descriptors(cluster->settings->connections_max);
    if (!status)
        status = flyt_backup_start(cluster, err);
    if (!status)
        status = flyt_measure_start(cluster, err);
    if (!status)
        status = open_doors(cluster, err);
    if (!status)
        status = flyt_lead_start(cluster, err);
    if (!status)
        status = sd_event_add_time_relative(cluster->event, &cluster->tick_timer, CLOCK_MONOTONIC, TICK_MS * 1000, 0,
                                            on_tick, cluster);
    if (status >= 0)
        status = sd_event_add_time_relative(cluster->event, &cluster->poll_timer, CLOCK_MONOTONIC,
                                            cluster->settings->desired_poll_ms * 1000, 0, on_poll, cluster);
    if (status < 0 && !err->code)
        flyt_error_set(err, status, "a timer could not be made: %s", strerror(-status));
    return status < 0 ? status : 0;
}

static void stop(void *user)
{
    struct flyt_cluster *cluster = user;
    struct flyt_link *link;

    sd_event_source_disable_unref(cluster->tick_timer);
    sd_event_source_disable_unref(cluster->poll_timer);
    cluster->look_timer = sd_event_source_disable_unref(cluster->look_timer);
    cluster->try_timer = sd_event_source_disable_unref(cluster->try_timer);
    if (cluster->store_writer) {
        flyt_event_save_all(cluster);
        flyt_lead_stop(cluster);
        flyt_cluster_forget(cluster);
        if (!flyt_store_writer_finish(cluster->store_writer, STOP_MS) || !flyt_lead_release(cluster, STOP_MS))
            flyt_warn("the store does not answer: the last events are not in it, another manager waits for the lease");
    }
    cluster->tcp_door = flyt_door_free(cluster->tcp_door);
    cluster->unix_door = flyt_door_free(cluster->unix_door);
    while ((link = TAILQ_FIRST(&cluster->links)))
        flyt_link_free(link, "the manager ends");
    if (cluster->unix_fd >= 0) {
        unlink(cluster->settings->socket);
        close(cluster->unix_fd);
    }
    if (cluster->tcp_fd >= 0)
        close(cluster->tcp_fd);
    cluster->store_writer = flyt_store_writer_free(cluster->store_writer);
    flyt_backup_stop(cluster);
    flyt_lead_free(cluster);
    flyt_watch_free(cluster->desired_watch);
    flyt_watch_free(cluster->tenant_watch);
    flyt_watch_free(cluster->member_watch);
    flyt_measure_stop(cluster);
    cluster->tls = flyt_tls_free(cluster->tls);
}

static int start(void *user, struct flyt_daemon *daemon, struct flyt_error *err)
{
    struct flyt_cluster *cluster = user;

    cluster->daemon = daemon;
    cluster->ops = &flyt_cluster_ops;
    cluster->event = flyt_daemon_event(daemon);
    cluster->settings = flyt_daemon_settings(daemon);
    cluster->started_ms = flyt_clock_ms();
    return start_cluster(cluster, err);
}

static void reload(void *user)
{
    struct flyt_cluster *cluster = user;
    struct flyt_error err = {0};

    if (cluster->tls && flyt_tls_reload(cluster->tls, &err))
        flyt_fail("the certificate was not read again: %s", err.text);
    for (size_t i = 0; i < cluster->tenants.count; i++) {
        struct flyt_tenant *tenant = cluster->tenants.items[i];
        if (!tenant->has_document)
            tenant->quota = cluster->settings->quota;
    }
}

/*
 * The cluster manager: decides who gets which GPU, and tells nodes and VMs.
 *
 *   nodes ──tcp, TLS──┐                                        ┌── flytctl, tcp, TLS
 *   VMs  ──tcp, TLS──►├── doors ──► serve.c ──► the registry ◄─┴── flytctl, unix socket
 *                     └◄─ orders ─────────────────┘   │ ▲
 *                                                     ▼ │  store_writer.c: documents out, documents in
 *                                               the store's thread ──► SQLite or MongoDB
 *
 * The loop's thread has everything but the store: connections, the registry (cluster.h), timers, metrics. The store's
 * thread does one job after another (store_writer.c): records, the reading of desired documents every two seconds
 * (request.c), events (event.c). The watches belong to that thread. On a store that managers share the lease has a
 * thread and a connection of its own (leader.c), so that no other work holds up its renewal.
 *
 * Ownership: struct flyt_cluster is main's. It owns the store writer (which owns the store), the doors (which own the
 * connections) and the tables. A link belongs to its connection. Nodes own their GPUs' capacity, the tables own nodes,
 * GPUs, VMs, allocations, documents, tenants, members and tokens; all are freed together when this manager ceases to
 * lead (flyt_cluster_forget), and read anew from the store when it leads again.
 */
int main(int argc, char **argv)
{
    struct flyt_cluster cluster = {
        .user_kind = FLYT_USER_CLUSTER, .tcp_fd = -1, .unix_fd = -1, .events = {.next_sequence = 1, .saved_next = 1}};
    const struct flyt_daemon_config config = {
        .name = "flyt-cluster-manager",
        .summary = "Decides which virtual machine gets which GPU, and how much of it.",
        .default_file = "/etc/flyt/cluster.conf",
        .settings = flyt_cluster_settings_table,
        .settings_bytes = sizeof(struct flyt_cluster_settings),
        .check = flyt_cluster_settings_check,
        .start = start,
        .reload = reload,
        .stop = stop,
        .user = &cluster,
    };

    TAILQ_INIT(&cluster.links);
    TAILQ_INIT(&cluster.unseen);
    flyt_json_watch_memory(NULL);
    return flyt_daemon_run(&config, argc, argv);
}
