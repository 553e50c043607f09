/*
 * flyt-node-manager: one machine with GPUs.
 *
 * - One loop (sd-event, control/base/daemon.h) on the main thread does everything but what blocks: NVML and MPS's
 *   control program each have a thread (nvml.h, mps.h).
 * - Sockets: `listen`, where programs come in (listener.h); STATE_DIR/link.sock, where servers come back after a
 * restart (reattach.c); one connection to the cluster manager that leads (manager.h); /metrics.
 * - Processes: flyt-server, one for each program and some warm ones on each GPU (pool.h, server.h), each with a socket
 *   to here. They are not ended with this program: those that serve go on and look for its successor.
 * - Owned here: the tickets' key and what allocations there are (state.h), ledgers and SM groups (allocation.h),
 *   descriptors of the programs' GPU memory (extent.h). Ledgers, memory and listening sockets are kept over a restart
 *   by systemd's descriptor store.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/base/daemon.h"
#include "control/base/enrol.h"
#include "control/base/metrics.h"
#include "control/base/tls.h"
#include "control/node/attach/pool.h"
#include "control/node/gpu/nvml.h"
#include "control/node/gpu/soft_account.h"
#include "control/node/link/memory_watch.h"
#include "control/node/link/time_slice_watch.h"
#include "control/node/memory/reserve.h"
#include "control/node/model/node.h"
#include "control/node/process/check.h"
#include "control/node/process/mps.h"
#include "control/node/runtime.h"
#include "control/node/uplink/manager.h"
#include "control/node/uplink/report.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum { MEASURE_MS = 2000 }; /* more often while SMs are shared in time (time_slice_watch.h) */

struct program {
    struct flyt_daemon *daemon;
    const char *join_token, *join_file, *join_url;
    struct flyt_node node;
    struct flyt_node_nvml *nvml;
    struct flyt_node_mps *mps;
    struct flyt_tls *tls;
    struct flyt_node_manager *manager;
    struct flyt_metrics *registry;
    struct flyt_node_metrics *metrics;
    struct flyt_metric *certificate; /* when it ends */
    struct flyt_metrics_server *metrics_server;
    sd_event_source *timer;
    uint64_t memory_ms; /* when the VMs' memory was looked at last */
    bool has_node, was_registered;
};

static int take_option(void *user, const char *name, const char *value)
{
    struct program *program = user;

    if (!strcmp(name, "join-file") || (!strcmp(name, "join") && !strcmp(value, "-")))
        program->join_file = value;
    else if (!strcmp(name, "join"))
        program->join_token = value;
    else
        program->join_url = value;
    return 0;
}

/* ---- joining ---- */

static struct flyt_tls_files files_of(const struct flyt_node_settings *settings)
{
    return (struct flyt_tls_files){
        .authority = settings->authority, .certificate = settings->certificate, .key = settings->key};
}

static int join(struct program *program, const struct flyt_node_settings *settings, struct flyt_error *err)
{
    char name[FLYT_NAME_BYTES_MAX + 1], host[FLYT_NAME_BYTES_MAX + 1] = "", *url = (char *)program->join_url;
    const struct flyt_strings named = {.items = &url, .count = 1};
    const struct flyt_tls_files set = files_of(settings);
    struct flyt_enrolled_paths paths;
    struct flyt_enrolment enrolment = {
        .managers = url ? &named : &settings->managers,
        .token = program->join_token,
        .role = FLYT_ROLE_NODE,
        .name = settings->name ? settings->name : host,
        .files = flyt_enrolled_files(&set, settings->state_dir, &paths),
    };

    if (!settings->name && gethostname(host, sizeof host - 1))
        return flyt_error_set(err, -errno, "this machine has no name: set `name`");
    char *token = NULL;
    int status = program->join_file ? flyt_join_token_read(program->join_file, err, &token) : 0;
    if (token)
        enrolment.token = token;
    if (!status)
        status = flyt_enrol(&enrolment, err, name);
    flyt_join_token_free(token);
    if (status)
        return status;
    printf("enrolled as node %s: %s\n", name, enrolment.files.certificate);
    flyt_daemon_exit(program->daemon, 0);
    return 0;
}

/* ---- serving ---- */

static int find_gpus(struct program *program, const struct flyt_node_settings *settings,
                     struct flyt_node_gpus *ret_gpus, struct flyt_error *err)
{
    sd_event *event = flyt_daemon_event(program->daemon);

    if (settings->software_gpus)
        return 0;
    int status = flyt_node_nvml_open(NULL, event, err, &program->nvml);
    if (!status)
        status = flyt_node_nvml_list(program->nvml, (unsigned)settings->group_size, err, ret_gpus);
    if (!status && !ret_gpus->count)
        status = flyt_error_set(err, -ENODEV, "this machine has no GPU; software_gpus makes software ones");
    if (!status)
        status = flyt_node_mps_new(event, settings, err, &program->mps);
    return status;
}

static int connect_to_manager(struct program *program, const struct flyt_node_settings *settings,
                              struct flyt_error *err)
{
    const struct flyt_tls_files set = files_of(settings);
    int status = flyt_enrolled_tls(&set, settings->state_dir, err, &program->tls);

    if (status || !settings->managers.count)
        return status;
    status = flyt_node_manager_new(&program->node, program->tls, &program->manager);
    if (status)
        return flyt_error_set(err, status, "the cluster manager cannot be looked for: %s", strerror(-status));
    program->node.hooks = (struct flyt_node_hooks){
        .user = program->manager, .event = flyt_node_manager_event, .changed = flyt_node_manager_changed};
    return 0;
}

static bool refresh_metrics(void *user, uint64_t *position)
{
    struct program *program = user;

    if (flyt_node_metrics_refresh_some(program->metrics, &program->node, position))
        return true;
    flyt_metric_set(program->certificate, NULL, program->tls ? (double)flyt_tls_expires(program->tls) : 0);
    return false;
}

static int serve_metrics(struct program *program, const struct flyt_node_settings *settings, struct flyt_error *err)
{
    if (!settings->metrics)
        return 0;
    program->registry = flyt_metrics_new();
    program->metrics = program->registry ? flyt_node_metrics_new(program->registry) : NULL;
    if (program->metrics)
        program->certificate =
            flyt_metric_new(program->registry, FLYT_GAUGE, "flyt_node_certificate_expiry_seconds", "",
                            "When the own certificate ends, seconds since 1970; 0: there is none.", NULL);
    if (!program->certificate)
        return flyt_error_set(err, -ENOMEM, "no memory");
    if (flyt_daemon_measure(program->daemon, program->registry, "node"))
        return flyt_error_set(err, -ENOMEM, "no memory");
    program->node.metrics = program->metrics;
    program->node.observe = program->metrics ? flyt_node_metrics_observe : NULL;
    return flyt_metrics_serve(program->registry, flyt_daemon_event(program->daemon), settings->metrics, refresh_metrics,
                              program, err, &program->metrics_server);
}

static void say_status(struct program *program)
{
    const struct flyt_node *node = &program->node;
    char text[256];
    unsigned sessions = 0;

    for (unsigned i = 0; i < node->gpus.count; i++)
        sessions += node->starts[i].serving;
    snprintf(text, sizeof text, "%u GPUs, %u allocations, %u sessions, %s", node->gpus.count, node->allocation_count,
             sessions,
             !program->manager                                   ? "no cluster manager configured"
             : flyt_node_manager_is_registered(program->manager) ? "registered"
                                                                 : "no cluster manager");
    flyt_daemon_status(program->daemon, text);
}

static bool tell_process(const void *user, unsigned gpu, pid_t pid, uint64_t *ret_bytes)
{
    return flyt_node_nvml_process(user, gpu, pid, ret_bytes);
}

static void on_measured(void *user)
{
    struct program *program = user;

    flyt_node_reserve_correct(&program->node, tell_process, program->nvml);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct program *program = user;

    if (program->nvml) {
        if (!flyt_node_nvml_is_measuring(program->nvml))
            flyt_node_reserve_begin(&program->node); /* before the thread looks at anything */
        flyt_node_nvml_measure(program->nvml, &program->node.gpus, on_measured, program);
    }
    flyt_node_time_slice_watch_look(&program->node);
    if (flyt_clock_ms() - program->memory_ms >= FLYT_NODE_MEMORY_MS) {
        program->memory_ms = flyt_clock_ms();
        flyt_node_memory_watch_look(&program->node);
    }
    say_status(program);
    unsigned pause_ms =
        flyt_node_time_slice_watch_is_needed(&program->node) ? FLYT_NODE_TIME_SLICE_LOOK_MS : MEASURE_MS;
    sd_event_source_set_time_relative(source, pause_ms * 1000);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

static int make_state_dir(const struct flyt_node_settings *settings, struct flyt_error *err)
{
    if (!mkdir(settings->state_dir, 0700) || errno == EEXIST)
        return 0;
    return flyt_error_set(err, -errno, "%s cannot be made: %m", settings->state_dir);
}

static int serve(struct program *program, const struct flyt_node_settings *settings, struct flyt_error *err)
{
    sd_event *event = flyt_daemon_event(program->daemon);
    struct flyt_node_gpus gpus = {0};

    int status = make_state_dir(settings, err);
    if (!status)
        status = find_gpus(program, settings, &gpus, err);
    if (!status) {
        program->has_node = true;
        program->node.mps = program->mps;
        status = flyt_node_init(&program->node, event, program->daemon, settings, &gpus, NULL, err);
    }
    flyt_node_gpus_fini(&gpus);
    if (program->nvml)
        flyt_node_nvml_versions(program->nvml, program->node.driver_version, &program->node.cuda_version);
    program->node.account = program->nvml ? flyt_node_nvml_account(program->nvml) : flyt_node_soft_account();
    if (!status)
        status = connect_to_manager(program, settings, err);
    if (!status)
        status = serve_metrics(program, settings, err);
    if (!status &&
        sd_event_add_time_relative(event, &program->timer, CLOCK_MONOTONIC, 0, 100000, on_timer, program) < 0)
        status = flyt_error_set(err, -ENOMEM, "no memory");
    if (status)
        return status;
    flyt_node_check_host(&program->node);
    flyt_daemon_ready(program->daemon, "serving");
    return 0;
}

/* ---- the daemon ---- */

static int start(void *user, struct flyt_daemon *daemon, struct flyt_error *err)
{
    struct program *program = user;
    const struct flyt_node_settings *settings = flyt_daemon_settings(daemon);

    program->daemon = daemon;
    return program->join_token || program->join_file ? join(program, settings, err) : serve(program, settings, err);
}

static void reload(void *user)
{
    struct program *program = user;
    struct flyt_error err;

    if (program->tls && flyt_tls_reload(program->tls, &err))
        flyt_fail("certificates stay as they were: %s", err.text);
    if (!program->has_node)
        return;
    for (const struct flyt_node_allocation *one = program->node.allocations; one; one = one->next)
        flyt_node_allocation_set_locked_limit(one);
    flyt_node_raise(&program->node, FLYT_NODE_EVENT_SERVERS);
}

static void stop(void *user)
{
    struct program *program = user;

    sd_event_source_disable_unref(program->timer);
    program->metrics_server = flyt_metrics_server_free(program->metrics_server);
    program->node.observe = NULL;
    program->metrics = program->node.metrics = flyt_node_metrics_free(program->metrics);
    program->registry = flyt_metrics_free(program->registry);
    program->node.hooks = (struct flyt_node_hooks){0};
    program->manager = flyt_node_manager_free(program->manager);
    program->nvml = flyt_node_nvml_close(program->nvml); /* before the GPUs that it measures go */
    if (program->has_node)
        flyt_node_fini(&program->node);
    program->mps = flyt_node_mps_free(program->mps);
    program->tls = flyt_tls_free(program->tls);
}

int main(int argc, char **argv)
{
    static const struct flyt_daemon_option options[] = {
        {"join", "TOKEN",
         "enrols this node with a token of `flytctl node join-token`, writes the files of tls, and ends; -: see next"},
        {"join-file", "FILE", "the same with the token that is in a file, or comes from standard input (-)"},
        {"manager", "URL", "with --join or --join-file: the cluster manager, by default those of `managers`"},
        {.name = NULL},
    };
    struct program *program = calloc(1, sizeof *program);

    if (!program)
        return 1;
    const struct flyt_daemon_config config = {
        .name = "flyt-node-manager",
        .summary = "Lets programs of VMs use this machine's GPUs, each as much as was allocated to it.",
        .default_file = "/etc/flyt/node.conf",
        .settings = flyt_node_setting_table,
        .settings_bytes = sizeof(struct flyt_node_settings),
        .options = options,
        .option = take_option,
        .check = flyt_node_settings_check,
        .start = start,
        .reload = reload,
        .stop = stop,
        .user = program,
    };
    int status = flyt_daemon_run(&config, argc, argv);
    free(program);
    return status;
}
