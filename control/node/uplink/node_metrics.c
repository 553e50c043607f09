/* The node's metrics (report.h): one family for each figure, set anew before each answer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/node/link/server.h"
#include "control/node/link/share.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/move.h"
#include "control/node/ops/session_load.h"
#include "control/node/uplink/report.h"

enum family {
    GPU_BUSY,
    GPU_MEMORY_USED,
    GPU_POWER,
    GPU_TEMPERATURE,
    GPU_HEALTHY,
    GPU_WARM,
    GPU_FAULTS,
    GPU_SESSIONS,
    ALLOCATION_LIMIT,
    ALLOCATION_USED,
    ALLOCATION_RESERVE,
    ALLOCATION_PEAK,
    ALLOCATION_SERVERS,
    ALLOCATION_REFUSED,
    ALLOCATION_SMS,
    ALLOCATION_SHARED,
    ALLOCATION_WAITED,
    ALLOCATION_OVERRUN,
    ALLOCATION_SUSPENDED,
    SESSION_CALLS,
    SESSION_MEMORY,
    SESSION_GPU_TIME,
    STARTED,
    REFUSED,
    RESUMED,
    MOVED,
    OVERDUE,
    WATCHED,
    MIGRATIONS,
    ARRIVALS,
    MIGRATION_STANDSTILL,
    MIGRATION_COPIED,
    MIGRATION_ROUNDS,
    FAMILIES
};

/* Upper bounds of histograms: seconds, bytes, rounds. */
static const double *const buckets[FAMILIES] = {
    [MIGRATION_STANDSTILL] = (const double[]){0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 0},
    [MIGRATION_COPIED] = (const double[]){1e6, 1e7, 1e8, 1e9, 3e9, 1e10, 3e10, 1e11, 3e11, 1e12, 0},
    [MIGRATION_ROUNDS] = (const double[]){1, 2, 3, 5, 10, 20, 50, 100, 0},
};

#define GPU        "gpu"
#define ALLOCATION "allocation vm_ip slot"
#define SESSION    "session allocation vm_ip program"

static const struct {
    enum flyt_metric_kind kind;
    const char *name, *labels, *help;
} rows[FAMILIES] = {
    [GPU_BUSY] = {FLYT_GAUGE, "flyt_node_gpu_busy_ratio", GPU, "share of time in which a kernel ran"},
    [GPU_MEMORY_USED] = {FLYT_GAUGE, "flyt_node_gpu_memory_used_bytes", GPU, "as the driver counts"},
    [GPU_POWER] = {FLYT_GAUGE, "flyt_node_gpu_power_watts", GPU, "power"},
    [GPU_TEMPERATURE] = {FLYT_GAUGE, "flyt_node_gpu_temperature_celsius", GPU, "temperature"},
    [GPU_HEALTHY] = {FLYT_GAUGE, "flyt_node_gpu_healthy", GPU, "1: servers start on it"},
    [GPU_WARM] = {FLYT_GAUGE, "flyt_node_gpu_warm_servers", GPU, "servers ready for a program"},
    [GPU_FAULTS] = {FLYT_COUNTER, "flyt_node_gpu_faults_total", GPU, "faults that ended all programs that shared it"},
    [GPU_SESSIONS] = {FLYT_GAUGE, "flyt_node_gpu_sessions", GPU, "programs"},
    [ALLOCATION_LIMIT] = {FLYT_GAUGE, "flyt_node_allocation_memory_limit_bytes", ALLOCATION, "limit that holds"},
    [ALLOCATION_USED] = {FLYT_GAUGE, "flyt_node_allocation_memory_used_bytes", ALLOCATION, "charged to the ledger"},
    [ALLOCATION_RESERVE] = {FLYT_GAUGE, "flyt_node_allocation_memory_reserve_bytes", ALLOCATION,
                            "of that: what drivers take for modules and libraries"},
    [ALLOCATION_PEAK] = {FLYT_GAUGE, "flyt_node_allocation_memory_peak_bytes", ALLOCATION, "most that was charged"},
    [ALLOCATION_SERVERS] = {FLYT_GAUGE, "flyt_node_allocation_servers", ALLOCATION, "entries in its ledger"},
    [ALLOCATION_REFUSED] = {FLYT_COUNTER, "flyt_node_allocation_memory_refused_total", ALLOCATION, "beyond the limit"},
    [ALLOCATION_SMS] = {FLYT_GAUGE, "flyt_node_allocation_sms", ALLOCATION, "SMs that hold"},
    [ALLOCATION_SHARED] = {FLYT_COUNTER, "flyt_node_allocation_shared_gpu_seconds_total", ALLOCATION,
                           "GPU time in slices beside others"},
    [ALLOCATION_WAITED] = {FLYT_COUNTER, "flyt_node_allocation_time_slice_wait_seconds_total", ALLOCATION,
                           "had work and waited for its time slice"},
    [ALLOCATION_OVERRUN] = {FLYT_COUNTER, "flyt_node_allocation_time_slice_overrun_seconds_total", ALLOCATION,
                            "of the GPU time in slices: beyond their ends"},
    [ALLOCATION_SUSPENDED] = {FLYT_GAUGE, "flyt_node_allocation_suspended", ALLOCATION,
                              "1: nothing of it is on its GPU, by order"},
    [SESSION_CALLS] = {FLYT_COUNTER, "flyt_session_calls_total", SESSION, "calls of the program"},
    [SESSION_MEMORY] = {FLYT_GAUGE, "flyt_session_memory_bytes", SESSION, "memory of the program"},
    [SESSION_GPU_TIME] = {FLYT_COUNTER, "flyt_session_gpu_seconds_total", SESSION, "measured GPU time"},
    [STARTED] = {FLYT_COUNTER, "flyt_sessions_started_total", "", "programs that got a server"},
    [REFUSED] = {FLYT_COUNTER, "flyt_sessions_refused_total", "", "programs that were refused"},
    [RESUMED] = {FLYT_COUNTER, "flyt_sessions_resumed_total", "", "programs that went on at another server process"},
    [MOVED] = {FLYT_COUNTER, "flyt_sessions_moved_total", "", "programs that were moved while they ran"},
    [OVERDUE] = {FLYT_COUNTER, "flyt_time_slices_overdue_total", "",
                 "work for which others have not waited any longer"},
    [WATCHED] = {FLYT_COUNTER, "flyt_sessions_ended_by_account_total", "reason",
                 "programs that were ended for what their GPU's account shows"},
    [MIGRATIONS] = {FLYT_COUNTER, "flyt_node_migrations_total", "outcome", "migrations of VMs that have ended"},
    [ARRIVALS] = {FLYT_COUNTER, "flyt_node_arrivals_total", "outcome", "VMs whose programs came from another node"},
    [MIGRATION_STANDSTILL] = {FLYT_HISTOGRAM, "flyt_node_migration_standstill_seconds", "",
                              "how long programs of a migration that was done stood still, the longest; of one to "
                              "another node: until they left"},
    [MIGRATION_COPIED] = {FLYT_HISTOGRAM, "flyt_node_migration_copied_bytes", "",
                          "what was copied in one that was done, all rounds"},
    [MIGRATION_ROUNDS] = {FLYT_HISTOGRAM, "flyt_node_migration_rounds", "", "rounds of copying in one that was done"},
};

struct flyt_node_metrics {
    struct flyt_metric *families[FAMILIES];
};

struct flyt_node_metrics *flyt_node_metrics_new(struct flyt_metrics *registry)
{
    struct flyt_node_metrics *metrics = calloc(1, sizeof *metrics);

    for (unsigned i = 0; metrics && i < FAMILIES; i++) {
        metrics->families[i] =
            flyt_metric_new(registry, rows[i].kind, rows[i].name, rows[i].labels, rows[i].help, buckets[i]);
        if (!metrics->families[i])
            return flyt_node_metrics_free(metrics);
    }
    return metrics;
}

struct flyt_node_metrics *flyt_node_metrics_free(struct flyt_node_metrics *metrics)
{
    free(metrics);
    return NULL;
}

static void set(struct flyt_node_metrics *metrics, enum family family, const char *const *values, double value)
{
    flyt_metric_set(metrics->families[family], values, value);
}

static void set_gpus(struct flyt_node_metrics *metrics, const struct flyt_node *node)
{
    for (unsigned i = 0; i < node->gpus.count; i++) {
        const struct flyt_node_gpu *gpu = &node->gpus.items[i];
        const char *const values[] = {gpu->uuid};
        set(metrics, GPU_BUSY, values, gpu->busy_pct / 100.0);
        set(metrics, GPU_MEMORY_USED, values, (double)gpu->used_bytes);
        set(metrics, GPU_POWER, values, gpu->power_w);
        set(metrics, GPU_TEMPERATURE, values, gpu->temperature_c);
        set(metrics, GPU_HEALTHY, values, gpu->is_known && gpu->health != FLYT_HEALTH_FAILED);
        set(metrics, GPU_WARM, values, node->starts[i].warm);
        set(metrics, GPU_FAULTS, values, (double)gpu->fault_count);
        set(metrics, GPU_SESSIONS, values, node->starts[i].serving);
    }
}

static void set_allocation(struct flyt_node_metrics *metrics, const struct flyt_node_allocation *allocation)
{
    char id[20], slot[12];

    snprintf(id, sizeof id, "%016" PRIx64, (uint64_t)allocation->now.id);
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        const char *const values[] = {id, allocation->now.vm_ip, slot};
        struct flyt_ledger_state state = {0};
        snprintf(slot, sizeof slot, "%u", i);
        if (allocation->slots[i].ledger)
            flyt_ledger_read(allocation->slots[i].ledger, &state);
        set(metrics, ALLOCATION_LIMIT, values, (double)state.holding_bytes);
        set(metrics, ALLOCATION_USED, values, (double)state.used_bytes);
        set(metrics, ALLOCATION_RESERVE, values, (double)state.reserved_bytes);
        set(metrics, ALLOCATION_PEAK, values, (double)state.peak_bytes);
        set(metrics, ALLOCATION_SERVERS, values, state.entry_count);
        set(metrics, ALLOCATION_REFUSED, values, (double)state.refused_count);
        set(metrics, ALLOCATION_SMS, values, allocation->slots[i].sm_count_now);
        flyt_slot_use use = {0};
        flyt_node_share_use(allocation, i, &use);
        set(metrics, ALLOCATION_SHARED, values, (double)use.shared_us / 1e6);
        set(metrics, ALLOCATION_WAITED, values, (double)use.waited_us / 1e6);
        set(metrics, ALLOCATION_OVERRUN, values, (double)flyt_node_share_overrun_ns(allocation, i) / 1e9);
        set(metrics, ALLOCATION_SUSPENDED, values, use.is_suspended);
    }
}

static void set_session(struct flyt_node_metrics *metrics, const struct flyt_node_session *session)
{
    const struct flyt_manager_link_use *use = &flyt_node_session_shown(session)->use;
    char id[20], allocation[20];

    snprintf(id, sizeof id, "%016" PRIx64, session->id);
    snprintf(allocation, sizeof allocation, "%016" PRIx64, (uint64_t)session->allocation->now.id);
    const char *const values[] = {id, allocation, session->allocation->now.vm_ip, session->ticket.program};
    set(metrics, SESSION_CALLS, values, (double)use->call_count);
    set(metrics, SESSION_MEMORY, values, (double)use->memory_bytes);
    set(metrics, SESSION_GPU_TIME, values, (double)use->gpu_time_us / 1e6);
}

void flyt_node_metrics_observe(struct flyt_node_metrics *metrics, const flyt_migration_use *use)
{
    flyt_metric_observe(metrics->families[MIGRATION_STANDSTILL], NULL, (double)use->standstill_us / 1e6);
    flyt_metric_observe(metrics->families[MIGRATION_COPIED], NULL, (double)use->copied_bytes);
    flyt_metric_observe(metrics->families[MIGRATION_ROUNDS], NULL, use->round);
}

static void set_watched(struct flyt_node_metrics *metrics, const struct flyt_node *node)
{
    static const char *const reasons[FLYT_NODE_WATCHED_COUNT] = {
        [FLYT_NODE_WATCHED_OUT_OF_TIME_SLICE] = "out_of_time_slice",
        [FLYT_NODE_WATCHED_TIME_SLICE_KEPT] = "time_slice_kept",
        [FLYT_NODE_WATCHED_OVER_MEMORY] = "over_memory",
    };

    set(metrics, OVERDUE, NULL, (double)node->time_slices_overdue);
    for (unsigned i = 0; i < FLYT_NODE_WATCHED_COUNT; i++)
        set(metrics, WATCHED, (const char *const[]){reasons[i]}, (double)node->watched[i]);
}

static void set_migrations(struct flyt_node_metrics *metrics, const struct flyt_node *node)
{
    set(metrics, ARRIVALS, (const char *const[]){"done"}, (double)node->receives_done);
    set(metrics, ARRIVALS, (const char *const[]){"failed"}, (double)(node->receives_ended - node->receives_done));
    set(metrics, MIGRATIONS, (const char *const[]){"done"}, (double)node->migrations_done);
    set(metrics, MIGRATIONS, (const char *const[]){"failed"}, (double)(node->migrations_ended - node->migrations_done));
}

enum { OBJECTS_AT_ONCE = 64 };

/* Where a list goes on: lists change between two pieces, and so may what comes twice or not at all in one text. */
static bool set_allocations(struct flyt_node_metrics *metrics, const struct flyt_node *node, uint64_t first)
{
    const struct flyt_node_allocation *allocation = node->allocations;

    for (; allocation && first; first--)
        allocation = allocation->next;
    for (unsigned i = 0; allocation && i < OBJECTS_AT_ONCE; i++, allocation = allocation->next)
        set_allocation(metrics, allocation);
    return allocation != NULL;
}

static bool set_sessions(struct flyt_node_metrics *metrics, const struct flyt_node *node, uint64_t first)
{
    const struct flyt_node_session *session = node->sessions;

    for (; session && first; first--)
        session = session->next;
    for (unsigned i = 0; session && i < OBJECTS_AT_ONCE; i++, session = session->next)
        if (flyt_node_session_is_shown(session))
            set_session(metrics, session);
    return session != NULL;
}

bool flyt_node_metrics_refresh_some(struct flyt_node_metrics *metrics, const struct flyt_node *node, uint64_t *position)
{
    enum { BEGIN, ALLOCATIONS, SESSIONS, REST };
    const uint64_t stage = *position >> 32, first = *position & UINT32_MAX;
    bool has_more = false;

    switch (stage) {
    case BEGIN:
        for (unsigned i = 0; i < STARTED; i++)
            flyt_metric_renew(metrics->families[i]);
        set_gpus(metrics, node);
        break;
    case ALLOCATIONS:
        has_more = set_allocations(metrics, node, first);
        break;
    case SESSIONS:
        has_more = set_sessions(metrics, node, first);
        break;
    default:
        set(metrics, STARTED, NULL, (double)node->sessions_started);
        set(metrics, REFUSED, NULL, (double)node->sessions_refused);
        set(metrics, RESUMED, NULL, (double)node->sessions_resumed);
        set(metrics, MOVED, NULL, (double)node->sessions_moved);
        set_watched(metrics, node);
        set_migrations(metrics, node);
        return false;
    }
    *position = has_more ? *position + OBJECTS_AT_ONCE : (stage + 1) << 32;
    return true;
}

void flyt_node_metrics_refresh(struct flyt_node_metrics *metrics, const struct flyt_node *node)
{
    uint64_t position = 0;

    while (flyt_node_metrics_refresh_some(metrics, node, &position))
        continue;
}
