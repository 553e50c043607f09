#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/client/client.h"
#include "control/base/json_memory.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"

static bool refresh(void *user, uint64_t *position);

int flyt_status_init(struct flyt_client_manager *manager, struct flyt_error *err)
{
    struct flyt_metrics *metrics = manager->metrics = flyt_metrics_new();
    if (!metrics)
        return flyt_error_set(err, -12, "no memory");
    manager->started_ms = flyt_clock_ms();
    manager->attach_count = flyt_metric_new(metrics, FLYT_COUNTER, "flyt_client_attaches_total", "outcome",
                                            "Programs that asked for a GPU, by outcome.", NULL);
    manager->attach_seconds = flyt_metric_new(metrics, FLYT_HISTOGRAM, "flyt_client_attach_duration_seconds", "",
                                              "From a program's question to its answer.", NULL);
    manager->refused_count = flyt_metric_new(metrics, FLYT_COUNTER, "flyt_client_refused_users_total", "",
                                             "Connections of users who may not.", NULL);
    manager->change_count = flyt_metric_new(metrics, FLYT_COUNTER, "flyt_client_grant_changes_total", "",
                                            "Changes of the grant that programs were told.", NULL);
    manager->call_seconds = flyt_metric_new(metrics, FLYT_HISTOGRAM, "flyt_client_call_duration_seconds",
                                            "procedure direction", "Calls served and made.", NULL);
    if (flyt_daemon_measure(manager->daemon, metrics, "client"))
        return flyt_error_set(err, -12, "no memory");
    if (!manager->settings->metrics)
        return 0;
    return flyt_metrics_serve(metrics, flyt_daemon_event(manager->daemon), manager->settings->metrics, refresh, manager,
                              err, &manager->metrics_server);
}

void flyt_status_fini(struct flyt_client_manager *manager)
{
    manager->metrics_server = flyt_metrics_server_free(manager->metrics_server);
    manager->metrics = flyt_metrics_free(manager->metrics);
}

/* Gauges are made at the first answer, so that each has its help text once and its value now. */
static void set(struct flyt_client_manager *manager, struct flyt_metric **gauge, const char *name, const char *help,
                double value)
{
    if (!*gauge)
        *gauge = flyt_metric_new(manager->metrics, FLYT_GAUGE, name, "", help, NULL);
    flyt_metric_set(*gauge, NULL, value);
}

static bool refresh(void *user, uint64_t *position)
{
    struct flyt_client_manager *manager = user;
    const flyt_grant *grant = manager->grant_count ? &manager->grants[0] : NULL;
    uint64_t memory_bytes = 0;
    unsigned sm_count = 0;
    for (unsigned i = 0; grant && i < grant->allocation.slots.slots_len; i++) {
        memory_bytes += grant->allocation.slots.slots_val[i].memory_bytes;
        sm_count += grant->allocation.slots.slots_val[i].sm_count;
    }
    struct flyt_client_gauges *g = &manager->gauges;
    set(manager, &g->up, "flyt_client_manager_connected", "Whether the cluster manager is connected.",
        flyt_uplink_is_up(manager->uplink));
    set(manager, &g->connects, "flyt_client_manager_connects", "Connections made to cluster managers so far.",
        (double)flyt_uplink_connect_count(manager->uplink));
    set(manager, &g->programs, "flyt_client_programs", "Programs that hold a GPU.", manager->program_count);
    set(manager, &g->memory, "flyt_client_granted_memory_bytes", "Device memory granted, all devices.",
        (double)memory_bytes);
    set(manager, &g->sms, "flyt_client_granted_sms", "SMs granted, all devices.", sm_count);
    set(manager, &g->expiry, "flyt_certificate_expiry_timestamp_seconds",
        "When the own certificate ends, seconds since 1970; 0: there is none.",
        manager->tls ? (double)flyt_tls_expires(manager->tls) : 0);
    return false;
}

void flyt_status_attached(struct flyt_client_manager *manager, uint64_t took_us, flyt_status status)
{
    static const char *const names[] = {"ok",          "invalid",     "not_found",     "exists", "conflict",
                                        "denied",      "no_capacity", "quota",         "in_use", "not_leader",
                                        "unavailable", "timeout",     "not_supported", "stale",  "held"};
    unsigned index = (unsigned)status < sizeof names / sizeof names[0] ? (unsigned)status : 1;
    flyt_metric_add(manager->attach_count, (const char *[]){names[index]}, 1);
    flyt_metric_observe(manager->attach_seconds, NULL, (double)took_us / 1e6);
}

void flyt_status_measured(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user)
{
    struct flyt_client_manager *manager = user;
    flyt_metric_observe(manager->call_seconds, (const char *[]){procedure, is_served ? "served" : "made"},
                        (double)took_us / 1e6);
}

/* ---- what is shown ---- */

static void add(cJSON *object, const char *name, cJSON *item)
{
    if (!cJSON_AddItemToObject(object, name, item))
        cJSON_Delete(item);
}

static cJSON *device_json(const flyt_slot *slot)
{
    cJSON *device = cJSON_CreateObject();

    cJSON_AddStringToObject(device, "gpu", slot->gpu_uuid);
    cJSON_AddNumberToObject(device, "sms", slot->sm_count);
    cJSON_AddNumberToObject(device, "memory_bytes", (double)slot->memory_bytes);
    return device;
}

static cJSON *allocation_json(const flyt_grant *grant)
{
    char id[17];
    cJSON *object = cJSON_CreateObject();
    snprintf(id, sizeof id, "%016llx", (unsigned long long)grant->allocation.id);
    cJSON_AddStringToObject(object, "id", id);
    cJSON_AddStringToObject(object, "node", grant->node);
    cJSON_AddNumberToObject(object, "revision", (double)grant->allocation.revision);
    cJSON_AddNumberToObject(object, "generation", grant->allocation.generation);
    cJSON_AddBoolToObject(object, "encrypted", grant->allocation.is_encrypted);
    cJSON *urls = cJSON_AddArrayToObject(object, "data_urls");
    for (unsigned i = 0; urls && i < grant->data_urls.data_urls_len; i++)
        cJSON_AddItemToArray(urls, cJSON_CreateString(grant->data_urls.data_urls_val[i]));
    cJSON *devices = cJSON_AddArrayToObject(object, "devices");
    for (unsigned i = 0; devices && i < grant->allocation.slots.slots_len; i++)
        cJSON_AddItemToArray(devices, device_json(&grant->allocation.slots.slots_val[i]));
    return object;
}

char *flyt_status_json(const struct flyt_client_manager *manager)
{
    uint64_t failures = flyt_json_failures();
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "vm_ip", manager->settings->vm_ip);
    cJSON_AddStringToObject(object, "build", flyt_build_name);
    cJSON_AddStringToObject(object, "manager", flyt_uplink_address(manager->uplink));
    cJSON_AddBoolToObject(object, "connected", flyt_uplink_is_up(manager->uplink));
    cJSON_AddStringToObject(object, "cause", flyt_uplink_cause(manager->uplink));
    cJSON_AddNumberToObject(object, "uptime_ms", (double)(flyt_clock_ms() - manager->started_ms));
    cJSON_AddNumberToObject(object, "certificate_expires_s", manager->tls ? (double)flyt_tls_expires(manager->tls) : 0);
    add(object, "allocation", manager->grant_count ? allocation_json(&manager->grants[0]) : cJSON_CreateNull());
    cJSON_AddNumberToObject(object, "program_count", manager->program_count);
    cJSON_AddNumberToObject(object, "shared_memory_bytes", manager->memory.fd < 0 ? 0 : (double)manager->memory.bytes);
    cJSON_AddStringToObject(object, "shared_memory_unused", manager->memory_why);
    add(object, "programs", flyt_programs_json(manager));
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    if (flyt_json_failures() == failures)
        return text;
    free(text); /* a member may be missing */
    return NULL;
}

void flyt_status_serve(struct flyt_client_manager *manager, struct flyt_call *call)
{
    flyt_local_status_res res = {.outcome = {.text = (char *)""}};
    char *text = flyt_status_json(manager);

    res.json.json_val = text;
    res.json.json_len = text ? (u_int)strlen(text) : 0;
    if (!text)
        res.outcome = (flyt_outcome){.status = FLYT_STATUS_UNAVAILABLE, .text = (char *)"no memory"};
    flyt_call_reply(call, &res);
    free(text);
}
