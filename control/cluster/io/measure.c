/* Measurements of the cluster manager (Prometheus). Those of sessions are the nodes'. */
#include <errno.h>
#include <stdlib.h>

#include "control/base/daemon.h"
#include "control/base/metrics.h"
#include "control/base/peer.h"
#include "control/base/tls.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"

struct flyt_cluster_metrics {
    struct flyt_metric *gpu_sms, *gpu_sms_allocated, *gpu_memory, *gpu_memory_allocated, *gpu_memory_used, *gpu_slots,
        *gpu_slots_allocated, *gpu_healthy;
    struct flyt_metric *allocation_sms, *allocation_memory, *allocation_used, *allocation_sessions, *allocation_refused;
    struct flyt_metric *node_up, *node_silence, *leader, *epoch, *store_up, *store_waiting, *vms, *connections,
        *certificate, *refused;
    struct flyt_metric *limits, *heartbeats, *placement_seconds, *attach_seconds, *attaches, *call_seconds,
        *call_errors, *store_seconds, *store_errors;
    struct flyt_metric *migrations, *migrating, *migration_standstill, *migration_bytes, *migration_rounds;
    struct flyt_metric *checkpoints, *restores, *op, *checkpoint_standstill, *checkpoint_bytes, *checkpoint_seconds;
};

/* Of migrations: within a node, to another one. */
static const char *const scopes[] = {"gpu", "node"};

enum { OBJECTS_AT_ONCE = 128 };

static void refresh_gpu(struct flyt_cluster_metrics *m, const struct flyt_cluster_gpu *gpu)
{
    const struct flyt_capacity *capacity = flyt_gpu_capacity(gpu);
    const char *labels[] = {gpu->node->key, gpu->key};

    flyt_metric_set(m->gpu_sms, labels, capacity->sms_total);
    flyt_metric_set(m->gpu_sms_allocated, labels, capacity->sms_total - capacity->sms_free);
    flyt_metric_set(m->gpu_memory, labels, (double)capacity->memory_bytes);
    flyt_metric_set(m->gpu_memory_allocated, labels, (double)(capacity->memory_bytes - capacity->memory_free_bytes));
    flyt_metric_set(m->gpu_memory_used, labels, (double)gpu->use.memory_used_bytes);
    flyt_metric_set(m->gpu_slots, labels, capacity->client_slots);
    flyt_metric_set(m->gpu_slots_allocated, labels, capacity->client_slots - capacity->slots_free);
    flyt_metric_set(m->gpu_healthy, labels, !capacity->is_unhealthy);
}

/* Zero from an allocation's creation on, so that rates have a beginning. */
static void refresh_allocation(struct flyt_cluster_metrics *m, const struct flyt_cluster_allocation *allocation)
{
    flyt_metric_set(m->allocation_sessions,
                    (const char *[]){allocation->id_text, allocation->vm_ip, allocation->tenant},
                    allocation->session_count);
    for (unsigned j = 0; j < allocation->slot_count; j++) {
        const struct flyt_slot_use none = {0}, *use = j < allocation->use_count ? &allocation->uses[j] : &none;
        const char *labels[] = {allocation->id_text, allocation->vm_ip, allocation->tenant,
                                allocation->slots[j].gpu->key};
        flyt_metric_set(m->allocation_sms, labels, allocation->slots[j].sm_count);
        flyt_metric_set(m->allocation_memory, labels, (double)allocation->slots[j].memory_bytes);
        flyt_metric_set(m->allocation_used, labels, (double)use->memory_used_bytes);
        flyt_metric_set(m->allocation_refused, labels, (double)use->memory_refused_count);
    }
}

static void refresh_node(struct flyt_cluster_metrics *m, const struct flyt_node *node, uint64_t now_ms)
{
    flyt_metric_set(m->node_up, (const char *[]){node->key}, node->place.is_up);
    flyt_metric_set(m->node_silence, (const char *[]){node->key}, (double)(now_ms - node->last_heard_ms) / 1000);
}

static void renew(struct flyt_cluster_metrics *m)
{
    struct flyt_metric *all[] = {
        m->gpu_sms,         m->gpu_sms_allocated,  m->gpu_memory,          m->gpu_memory_allocated,
        m->gpu_memory_used, m->gpu_slots,          m->gpu_slots_allocated, m->gpu_healthy,
        m->node_up,         m->node_silence,       m->allocation_sms,      m->allocation_memory,
        m->allocation_used, m->allocation_refused, m->allocation_sessions};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        flyt_metric_renew(all[i]);
}

/* What is one number each. */
static void refresh_totals(struct flyt_cluster *cluster)
{
    struct flyt_cluster_metrics *m = cluster->measures;
    uint64_t vms = 0, links = 0;
    struct flyt_link *link;

    for (size_t i = 0; i < cluster->vms.count; i++)
        vms += ((struct flyt_vm *)cluster->vms.items[i])->has_desired;
    TAILQ_FOREACH(link, &cluster->links, entry)
    links++;
    flyt_metric_set(m->leader, NULL, cluster->is_leader);
    flyt_metric_set(m->epoch, NULL, (double)cluster->epoch);
    flyt_metric_set(m->store_up, NULL, cluster->is_store_available);
    flyt_metric_set(m->store_waiting, NULL, (double)flyt_store_writer_waiting(cluster->store_writer));
    flyt_metric_set(m->vms, NULL, (double)vms);
    uint64_t migrating[2] = {0};
    for (size_t i = 0; i < cluster->allocations.count; i++) {
        const struct flyt_migration *migration =
            ((struct flyt_cluster_allocation *)cluster->allocations.items[i])->migration;
        if (migration)
            migrating[migration->is_between]++;
    }
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++)
        flyt_metric_set(m->migrating, &scopes[i], (double)migrating[i]);
    uint64_t op = 0;
    for (const struct flyt_checkpoint_op *one = cluster->checkpoint_ops; one; one = one->next)
        op += one->is_begun;
    flyt_metric_set(m->op, NULL, (double)op);
    flyt_metric_set(m->connections, NULL, (double)links);
    flyt_metric_set(m->refused, NULL, cluster->tcp_door ? (double)flyt_door_refused_count(cluster->tcp_door) : 0);
    flyt_metric_set(m->certificate, NULL, cluster->tls ? (double)flyt_tls_expires(cluster->tls) : 0);
}

/* Stage and place in its list: what comes or goes between two pieces may be told twice, or not at all, in one text. */
static bool refresh(void *user, uint64_t *position)
{
    enum { BEGIN, GPUS, ALLOCATIONS, NODES, TOTALS };
    struct flyt_cluster *cluster = user;
    struct flyt_cluster_metrics *m = cluster->measures;
    const struct flyt_table *const tables[] = {
        [GPUS] = &cluster->gpus, [ALLOCATIONS] = &cluster->allocations, [NODES] = &cluster->nodes};
    const uint64_t stage = *position >> 32, now_ms = flyt_clock_ms();
    uint64_t place = *position & UINT32_MAX;

    if (stage == BEGIN)
        renew(m);
    if (stage == TOTALS) {
        refresh_totals(cluster);
        return false;
    }
    const struct flyt_table *table = tables[stage];
    for (uint64_t i = 0; table && place < table->count && i < OBJECTS_AT_ONCE; i++, place++) {
        if (stage == GPUS)
            refresh_gpu(m, table->items[place]);
        else if (stage == ALLOCATIONS)
            refresh_allocation(m, table->items[place]);
        else
            refresh_node(m, table->items[place], now_ms);
    }
    *position = table && place < table->count ? stage << 32 | place : (stage + 1) << 32;
    return true;
}

static const double standstill_buckets[] = {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 0};
static const double bytes_buckets[] = {0x1p20, 0x1p24, 0x1p27, 0x1p30, 0x1p32, 0x1p34, 0x1p36, 0x1p38, 0x1p40, 0};

static int make_migrations(struct flyt_cluster_metrics *m, struct flyt_metrics *all)
{
    static const double rounds_buckets[] = {1, 2, 3, 5, 10, 20, 50, 0};

    m->migration_standstill =
        flyt_metric_new(all, FLYT_HISTOGRAM, "flyt_migration_standstill_seconds", "scope",
                        "How long programs that moved stood still, the longest of a VM", standstill_buckets);
    m->migration_bytes = flyt_metric_new(all, FLYT_HISTOGRAM, "flyt_migration_copied_bytes", "scope",
                                         "What was copied to move a VM's programs, all rounds", bytes_buckets);
    m->migration_rounds = flyt_metric_new(all, FLYT_HISTOGRAM, "flyt_migration_rounds", "scope",
                                          "Rounds of copying that it took", rounds_buckets);
    if (!m->migration_standstill || !m->migration_bytes || !m->migration_rounds)
        return -ENOMEM;
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++) { /* so that rates have a beginning */
        flyt_metric_add(m->migration_standstill, &scopes[i], 0);
        flyt_metric_add(m->migration_bytes, &scopes[i], 0);
        flyt_metric_add(m->migration_rounds, &scopes[i], 0);
    }
    return 0;
}

static int make_checkpoints(struct flyt_cluster_metrics *m, struct flyt_metrics *all)
{
    static const double seconds_buckets[] = {0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 0};

    m->checkpoint_standstill =
        flyt_metric_new(all, FLYT_HISTOGRAM, "flyt_checkpoint_standstill_seconds", "",
                        "How long programs that run on stood still, the longest of a checkpoint", standstill_buckets);
    m->checkpoint_bytes = flyt_metric_new(all, FLYT_HISTOGRAM, "flyt_checkpoint_written_bytes", "",
                                          "What was written of programs' memory, all rounds", bytes_buckets);
    m->checkpoint_seconds = flyt_metric_new(all, FLYT_HISTOGRAM, "flyt_checkpoint_duration_seconds", "",
                                            "From the order until all images were whole", seconds_buckets);
    return m->checkpoint_standstill && m->checkpoint_bytes && m->checkpoint_seconds ? 0 : -ENOMEM;
}

static int make(struct flyt_cluster *cluster)
{
    struct flyt_cluster_metrics *m = cluster->measures;
    struct flyt_metrics *all = cluster->metrics;
    static const double placement_buckets[] = {0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0};
    static const char gpu[] = "node gpu", allocation[] = "allocation vm_ip tenant gpu";

    const struct {
        struct flyt_metric **metric;
        enum flyt_metric_kind kind;
        const char *name, *labels, *help;
    } rows[] = {
        {&m->gpu_sms, FLYT_GAUGE, "flyt_gpu_sms", gpu, "SMs that a GPU has"},
        {&m->gpu_sms_allocated, FLYT_GAUGE, "flyt_gpu_sms_allocated", gpu, "SMs that are charged"},
        {&m->gpu_memory, FLYT_GAUGE, "flyt_gpu_memory_bytes", gpu, "Memory that a GPU has"},
        {&m->gpu_memory_allocated, FLYT_GAUGE, "flyt_gpu_memory_allocated_bytes", gpu,
         "Memory that is charged, servers' reserve included"},
        {&m->gpu_memory_used, FLYT_GAUGE, "flyt_gpu_memory_used_bytes", gpu, "Memory in use as the driver counts"},
        {&m->gpu_slots, FLYT_GAUGE, "flyt_gpu_client_slots", gpu, "Client slots that a GPU has"},
        {&m->gpu_slots_allocated, FLYT_GAUGE, "flyt_gpu_client_slots_allocated", gpu, "Client slots that are charged"},
        {&m->gpu_healthy, FLYT_GAUGE, "flyt_gpu_healthy", gpu, "1: it may be used"},
        {&m->allocation_sms, FLYT_GAUGE, "flyt_allocation_sms", allocation, "SMs of an allocation"},
        {&m->allocation_memory, FLYT_GAUGE, "flyt_allocation_memory_bytes", allocation, "Its memory limit"},
        {&m->allocation_used, FLYT_GAUGE, "flyt_allocation_memory_used_bytes", allocation, "Memory in use"},
        {&m->allocation_refused, FLYT_GAUGE, "flyt_allocation_memory_refused", allocation,
         "Allocations of memory that its limit refused"},
        {&m->allocation_sessions, FLYT_GAUGE, "flyt_allocation_sessions", "allocation vm_ip tenant",
         "Programs that run"},
        {&m->node_up, FLYT_GAUGE, "flyt_node_up", "node", "1: heartbeats arrive"},
        {&m->node_silence, FLYT_GAUGE, "flyt_node_silence_seconds", "node", "Since the last heartbeat"},
        {&m->leader, FLYT_GAUGE, "flyt_manager_leader", "", "1: this manager decides"},
        {&m->epoch, FLYT_GAUGE, "flyt_manager_epoch", "", "Rises with each new leader"},
        {&m->store_up, FLYT_GAUGE, "flyt_store_up", "", "1: the store answers"},
        {&m->store_waiting, FLYT_GAUGE, "flyt_store_waiting", "", "Documents that wait to be written"},
        {&m->vms, FLYT_GAUGE, "flyt_vms", "", "VMs with a document"},
        {&m->connections, FLYT_GAUGE, "flyt_manager_connections", "", "Connections"},
        {&m->certificate, FLYT_GAUGE, "flyt_manager_certificate_expiry_seconds", "",
         "When this manager's certificate ends, since 1970; 0: none"},
        {&m->refused, FLYT_COUNTER, "flyt_manager_certificates_refused_total", "",
         "Connections whose certificate was refused, or is not admitted"},
        {&m->migrating, FLYT_GAUGE, "flyt_migrations_running", "scope", "VMs whose programs move to another GPU"},
        {&m->migrations, FLYT_COUNTER, "flyt_migrations_total", "outcome scope",
         "Those that are over, cancelled ones among the failed"},
        {&m->op, FLYT_GAUGE, "flyt_checkpoints_running", "", "Checkpoints and restores under way"},
        {&m->checkpoints, FLYT_COUNTER, "flyt_checkpoints_total", "outcome", "Checkpoints that are over"},
        {&m->restores, FLYT_COUNTER, "flyt_restores_total", "outcome", "Restores that are over"},
        {&m->limits, FLYT_COUNTER, "flyt_limits_hit_total", "limit", "Refusals by the limit that was hit"},
        {&m->heartbeats, FLYT_COUNTER, "flyt_heartbeats_total", "node", "Heartbeats of a node"},
        {&m->attach_seconds, FLYT_HISTOGRAM, "flyt_attach_duration_seconds", "", "From a VM's question to its grant"},
        {&m->attaches, FLYT_COUNTER, "flyt_attaches_total", "outcome", "Answers to VMs"},
        {&m->call_seconds, FLYT_HISTOGRAM, "flyt_call_duration_seconds", "procedure direction", "Calls"},
        {&m->call_errors, FLYT_COUNTER, "flyt_call_errors_total", "procedure direction", "Calls that failed"},
        {&m->store_seconds, FLYT_HISTOGRAM, "flyt_store_duration_seconds", "operation", "Operations of the store"},
        {&m->store_errors, FLYT_COUNTER, "flyt_store_errors_total", "operation", "Those that failed"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        *rows[i].metric = flyt_metric_new(all, rows[i].kind, rows[i].name, rows[i].labels, rows[i].help, NULL);
        if (!*rows[i].metric)
            return -ENOMEM;
    }
    m->placement_seconds = flyt_metric_new(all, FLYT_HISTOGRAM, "flyt_placement_duration_seconds", "",
                                           "Choosing GPUs for a VM among all that there are", placement_buckets);
    if (!m->placement_seconds)
        return -ENOMEM;
    if (make_migrations(m, all) || make_checkpoints(m, all))
        return -ENOMEM;
    static const char *const outcomes[] = {"done", "failed"};
    for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
        flyt_metric_add(m->checkpoints, &outcomes[i], 0);
        flyt_metric_add(m->restores, &outcomes[i], 0);
        for (size_t j = 0; j < sizeof scopes / sizeof *scopes; j++)
            flyt_metric_add(m->migrations, (const char *[]){outcomes[i], scopes[j]}, 0);
    }
    static const char *const limits[] = {"capacity", "quota"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        flyt_metric_add(m->limits, &limits[i], 0);
    return 0;
}

int flyt_measure_start(struct flyt_cluster *cluster, struct flyt_error *err)
{
    cluster->metrics = flyt_metrics_new();
    cluster->measures = calloc(1, sizeof *cluster->measures);
    if (!cluster->metrics || !cluster->measures || make(cluster))
        return flyt_error_set(err, -ENOMEM, "no memory");
    if (flyt_daemon_measure(cluster->daemon, cluster->metrics, "manager"))
        return flyt_error_set(err, -ENOMEM, "no memory");
    if (!cluster->settings->metrics)
        return 0;
    return flyt_metrics_serve(cluster->metrics, cluster->event, cluster->settings->metrics, refresh, cluster, err,
                              &cluster->metrics_server);
}

void flyt_measure_stop(struct flyt_cluster *cluster)
{
    cluster->metrics_server = flyt_metrics_server_free(cluster->metrics_server);
    cluster->metrics = flyt_metrics_free(cluster->metrics);
    free(cluster->measures);
    cluster->measures = NULL;
}

void flyt_measure_call(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user)
{
    enum flyt_user_kind *kind = user;
    struct flyt_cluster *cluster = *kind == FLYT_USER_LINK ? ((struct flyt_link *)user)->cluster : user;
    const char *labels[] = {procedure, is_served ? "served" : "made"};

    if (!cluster->measures)
        return;
    flyt_metric_observe(cluster->measures->call_seconds, labels, (double)took_us / 1e6);
    if (has_failed)
        flyt_metric_add(cluster->measures->call_errors, labels, 1);
}

void flyt_measure_store(const char *operation, bool has_failed, uint64_t took_us, void *user)
{
    struct flyt_cluster *cluster = user;

    if (!cluster->measures)
        return;
    flyt_metric_observe(cluster->measures->store_seconds, &operation, (double)took_us / 1e6);
    if (has_failed)
        flyt_metric_add(cluster->measures->store_errors, &operation, 1);
}

void flyt_measure_attach(struct flyt_cluster *cluster, uint64_t took_us, bool has_failed)
{
    const char *outcome = has_failed ? "refused" : "granted";

    if (!cluster->measures)
        return;
    flyt_metric_observe(cluster->measures->attach_seconds, NULL, (double)took_us / 1e6);
    flyt_metric_add(cluster->measures->attaches, &outcome, 1);
}

void flyt_measure_placement(struct flyt_cluster *cluster, uint64_t took_ns)
{
    if (cluster->measures)
        flyt_metric_observe(cluster->measures->placement_seconds, NULL, (double)took_ns / 1e9);
}

void flyt_measure_limit(struct flyt_cluster *cluster, const char *limit)
{
    if (cluster->measures)
        flyt_metric_add(cluster->measures->limits, &limit, 1);
}

void flyt_measure_heartbeat(struct flyt_cluster *cluster, const char *node)
{
    if (cluster->measures)
        flyt_metric_add(cluster->measures->heartbeats, &node, 1);
}

void flyt_measure_migration(struct flyt_cluster *cluster, const struct flyt_migration *migration)
{
    const flyt_migration_use *use = &migration->use;
    struct flyt_cluster_metrics *m = cluster->measures;
    const char *outcome = use->phase == FLYT_MIGRATION_DONE ? "done" : "failed", *scope = scopes[migration->is_between];

    if (!m)
        return;
    flyt_metric_add(m->migrations, (const char *[]){outcome, scope}, 1);
    if (use->phase != FLYT_MIGRATION_DONE || !migration->has_figures)
        return;
    flyt_metric_observe(m->migration_standstill, &scope, (double)use->standstill_us / 1e6);
    flyt_metric_observe(m->migration_bytes, &scope, (double)use->copied_bytes);
    flyt_metric_observe(m->migration_rounds, &scope, use->round);
}

void flyt_measure_checkpoint_op(struct flyt_cluster *cluster, const struct flyt_checkpoint_op *op)
{
    struct flyt_cluster_metrics *m = cluster->measures;
    const bool is_done = op->use.phase == FLYT_SAVING_DONE;
    const char *outcome = is_done ? "done" : "failed";

    if (!m)
        return;
    flyt_metric_add(op->is_restore ? m->restores : m->checkpoints, &outcome, 1);
    if (!is_done || op->is_restore)
        return;
    flyt_metric_observe(m->checkpoint_bytes, NULL, (double)op->use.copied_bytes);
    flyt_metric_observe(m->checkpoint_seconds, NULL, (double)op->use.elapsed_ms / 1e3);
    if (op->leaves_running)
        flyt_metric_observe(m->checkpoint_standstill, NULL, (double)op->use.standstill_us / 1e6);
}
