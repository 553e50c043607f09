#include "control/node/uplink/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/node/attach/attach.h"
#include "control/node/link/server.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/move.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/session_load.h"
#include "control/node/process/mps.h"
#include "control/node/uplink/allocation_use.h"
#include "control/node/uplink/order.h"
#include "rpc/base/url.h"

/* ---- parts: NULL in them stands for no memory; xdr_free takes that ---- */

static char *copy_of(const char *text)
{
    return strdup(text);
}

/* And what its bytes go through, as its server says. */
static char *address_of(const struct flyt_node_session *session)
{
    char address[FLYT_NAME_BYTES_MAX + 1];

    snprintf(address, sizeof address, "%s%.*s",
             flyt_node_session_shown(session)->use.shares_vm_memory ? FLYT_CLIENT_VM_MEMORY : "",
             FLYT_NAME_BYTES_MAX - (int)sizeof FLYT_CLIENT_VM_MEMORY, session->ticket.client_address);
    return copy_of(address);
}

static int fill_session(const struct flyt_node_session *session, flyt_session_use *use)
{
    const struct flyt_node_server *server = flyt_node_session_server(session);
    const struct flyt_node_holding *has = flyt_node_session_shown(session);

    *use = (flyt_session_use){
        .id = session->id,
        .allocation_id = session->allocation->now.id,
        .program_name = copy_of(session->ticket.program),
        .client_pid = session->ticket.client_pid,
        .client_address = address_of(session),
        .server_pid = server ? (u_int)server->pid : 0,
        .started_ms = session->started_ms,
        .call_count = has->use.call_count,
        .memory_bytes = has->use.memory_bytes,
        .gpu_time_us = has->use.gpu_time_us,
        .is_encrypted = session->is_encrypted,
        .is_replaceable = has->use.is_replaceable != 0,
        .why_not = copy_of(has->why_not),
        .server_uid = server ? server->uid : 0,
    };
    return use->program_name && use->client_address && use->why_not ? 0 : -ENOMEM;
}

/* Nothing of it is on a GPU. */
static int fill_checkpointed(const struct flyt_node_checkpointed *checkpointed, flyt_session_use *use)
{
    char text[FLYT_NAME_BYTES_MAX + 1];

    snprintf(text, sizeof text, FLYT_WHY_CHECKPOINTED "it waits in image %.150s/%s", checkpointed->folder,
             checkpointed->image);
    *use = (flyt_session_use){
        .id = checkpointed->session_id,
        .allocation_id = checkpointed->allocation_id,
        .program_name = copy_of(checkpointed->program),
        .client_pid = checkpointed->client_pid,
        .client_address = copy_of(checkpointed->client_address),
        .started_ms = checkpointed->started_ms,
        .is_encrypted = checkpointed->is_encrypted,
        .why_not = copy_of(text),
    };
    return use->program_name && use->client_address && use->why_not ? 0 : -ENOMEM;
}

static int by_number(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return (a > b) - (a < b);
}

/* The ids of the sessions that are in images, in order, so that each of the others is looked up among them fast. */
struct in_images {
    uint64_t *ids;
    size_t count;
};

static int list_in_images(const struct flyt_node *node, struct in_images *ret_images)
{
    struct in_images images = {0};
    size_t i = 0;

    for (const struct flyt_node_checkpointed *checkpointed = node->state.checkpointed; checkpointed;
         checkpointed = checkpointed->next)
        images.count++;
    images.ids = calloc(images.count + 1, sizeof *images.ids);
    if (!images.ids)
        return -ENOMEM;
    for (const struct flyt_node_checkpointed *checkpointed = node->state.checkpointed; checkpointed;
         checkpointed = checkpointed->next)
        images.ids[i++] = checkpointed->session_id;
    qsort(images.ids, images.count, sizeof *images.ids, by_number);
    *ret_images = images;
    return 0;
}

/* Whether a process, or who waits for one, is told of as the session: not where that is in an image, nor before
 * it goes on here. */
static bool is_shown(const struct in_images *images, const struct flyt_node_session *session)
{
    return flyt_node_session_is_shown(session) &&
           !bsearch(&session->id, images->ids, images->count, sizeof *images->ids, by_number);
}

static int fill_sessions(const struct flyt_node *node, flyt_session_use **ret_sessions, u_int *ret_count)
{
    struct in_images images;

    int status = list_in_images(node, &images);
    if (status)
        return status;
    *ret_sessions = calloc(node->session_count + images.count + 1, sizeof **ret_sessions);
    for (const struct flyt_node_session *session = *ret_sessions ? node->sessions : NULL; session;
         session = session->next)
        if (*ret_count < FLYT_SESSIONS_MAX && is_shown(&images, session))
            status |= fill_session(session, &(*ret_sessions)[(*ret_count)++]);
    free(images.ids);
    if (!*ret_sessions)
        return -ENOMEM;
    for (const struct flyt_node_checkpointed *checkpointed = node->state.checkpointed; checkpointed;
         checkpointed = checkpointed->next)
        if (*ret_count < FLYT_SESSIONS_MAX)
            status |= fill_checkpointed(checkpointed, &(*ret_sessions)[(*ret_count)++]);
    return status ? -ENOMEM : 0;
}

static int fill_uses(const struct flyt_node *node, flyt_allocation_use **ret_uses, u_int *ret_count)
{
    int status = 0;

    *ret_uses = calloc(node->allocation_count + 1, sizeof **ret_uses);
    if (!*ret_uses)
        return -ENOMEM;
    for (const struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next) {
        if (flyt_node_receive_hides(allocation) || flyt_node_allocation_is_hidden(allocation))
            continue;
        flyt_allocation_use *use = &(*ret_uses)[(*ret_count)++];
        flyt_node_allocation_use(allocation, FLYT_STATUS_OK, copy_of(""), use);
        if (!use->outcome.text || !use->slots.slots_val)
            status = -ENOMEM;
    }
    return status;
}

static int fill_allocations(const struct flyt_node *node, flyt_allocation **ret_allocations, u_int *ret_count)
{
    *ret_allocations = calloc(node->allocation_count + 1, sizeof **ret_allocations);
    if (!*ret_allocations)
        return -ENOMEM;
    for (const struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next) {
        if (flyt_node_receive_hides(allocation) || flyt_node_allocation_is_hidden(allocation))
            continue;
        if (flyt_node_allocation_copy(&allocation->now, &(*ret_allocations)[*ret_count]))
            return -ENOMEM;
        ++*ret_count;
    }
    return 0;
}

int flyt_node_report_gpu(const struct flyt_node *node, const struct flyt_node_gpu *gpu, flyt_gpu *ret_gpu)
{
    flyt_gpu described;

    flyt_node_gpu_describe(gpu, (unsigned)(node->settings->client_slots - node->settings->warm), &described);
    described.uuid = copy_of(described.uuid);
    described.type = copy_of(described.type);
    described.health_text = copy_of(described.health_text);
    const u_int *group_sms = described.group_sms.group_sms_val;
    described.group_sms.group_sms_val = calloc(described.group_sms.group_sms_len + 1, sizeof *group_sms);
    if (described.group_sms.group_sms_val)
        memcpy(described.group_sms.group_sms_val, group_sms, described.group_sms.group_sms_len * sizeof *group_sms);
    *ret_gpu = described;
    return described.uuid && described.type && described.health_text && described.group_sms.group_sms_val ? 0 : -ENOMEM;
}

static int fill_gpus(const struct flyt_node *node, flyt_gpu **ret_gpus, u_int *ret_count)
{
    int status = 0;

    *ret_gpus = calloc(node->gpus.count + 1, sizeof **ret_gpus);
    if (!*ret_gpus)
        return -ENOMEM;
    for (unsigned i = 0; i < node->gpus.count; i++)
        status |= flyt_node_report_gpu(node, &node->gpus.items[i], &(*ret_gpus)[(*ret_count)++]);
    return status ? -ENOMEM : 0;
}

/* What runs on a GPU by what its ledgers say: of a software GPU nobody else tells. */
static uint64_t charged_bytes(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    uint64_t bytes = 0;

    for (const struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next)
        for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
            struct flyt_ledger_state state;
            if (allocation->slots[i].gpu != gpu || !allocation->slots[i].ledger)
                continue;
            flyt_ledger_read(allocation->slots[i].ledger, &state);
            bytes += state.used_bytes;
        }
    return bytes;
}

static int fill_gpu_uses(const struct flyt_node *node, flyt_gpu_use **ret_uses, u_int *ret_count)
{
    *ret_uses = calloc(node->gpus.count + 1, sizeof **ret_uses);
    if (!*ret_uses)
        return -ENOMEM;
    for (unsigned i = 0; i < node->gpus.count; i++) {
        const struct flyt_node_gpu *gpu = &node->gpus.items[i];
        const struct flyt_node_starts *starts = &node->starts[i];
        flyt_gpu_use *use = &(*ret_uses)[(*ret_count)++];
        *use = (flyt_gpu_use){
            .uuid = copy_of(gpu->uuid),
            .health = gpu->health,
            .health_text = copy_of(gpu->health_text),
            .busy_pct = gpu->busy_pct,
            .memory_used_bytes = gpu->is_software ? charged_bytes(node, gpu) : gpu->used_bytes,
            .power_w = gpu->power_w,
            .temperature_c = gpu->temperature_c,
            .warm_count = starts->warm,
            .server_count = flyt_node_servers_on(node, gpu),
        };
        if (!use->uuid || !use->health_text)
            return -ENOMEM;
    }
    return 0;
}

unsigned flyt_node_report_urls(const struct flyt_node *node, char (*ret_urls)[FLYT_URL_BYTES_MAX + 1])
{
    const struct flyt_node_settings *settings = node->settings;
    unsigned count = 0;
    struct flyt_url url;

    for (size_t i = 0; i < settings->data_urls.count; i++)
        snprintf(ret_urls[count++], FLYT_URL_BYTES_MAX + 1, "%s", settings->data_urls.items[i]);
    for (unsigned i = 0; !settings->data_urls.count && i < node->attach->listen_count; i++) {
        if (flyt_url_parse(node->attach->listen_urls[i], NULL, &url))
            continue;
        /* An address that names no host is every one of this machine's; others need one that they can reach. */
        if (url.scheme == FLYT_URL_TCP && !*url.host)
            snprintf(url.host, sizeof url.host, "%.250s", settings->host_ip ? settings->host_ip : node->name);
        char text[FLYT_URL_TEXT_BYTES];
        if (url.scheme == FLYT_URL_VSOCK && url.cid == FLYT_URL_VSOCK_ANY)
            url.cid = FLYT_URL_CID_HOST; /* as this machine's guests know it; others refuse it, or are refused there */
        flyt_url_print(&url, text);
        snprintf(ret_urls[count++], FLYT_URL_BYTES_MAX + 1, "%.299s", text);
    }
    if (*node->attach->local_url && count < FLYT_URLS_MAX)
        snprintf(ret_urls[count++], FLYT_URL_BYTES_MAX + 1, "%s", node->attach->local_url);
    return count;
}

static int fill_urls(const struct flyt_node *node, flyt_register_args *args)
{
    char urls[FLYT_URLS_MAX][FLYT_URL_BYTES_MAX + 1];
    unsigned count = flyt_node_report_urls(node, urls);

    args->data_urls.data_urls_val = calloc(count + 1, sizeof *args->data_urls.data_urls_val);
    if (!args->data_urls.data_urls_val)
        return -ENOMEM;
    for (unsigned i = 0; i < count; i++) {
        args->data_urls.data_urls_val[i] = copy_of(urls[i]);
        if (!args->data_urls.data_urls_val[i])
            return -ENOMEM;
        args->data_urls.data_urls_len = i + 1;
    }
    return 0;
}

int flyt_node_report_inventory(const struct flyt_node *node, flyt_register_args *ret_args)
{
    flyt_register_args args = {.boot_id = copy_of(node->state.boot_id),
                               .host_ip = copy_of(node->settings->host_ip ? node->settings->host_ip : ""),
                               .key_number = node->state.key_number,
                               .epoch_seen = node->state.epoch};
    int status = args.boot_id && args.host_ip ? 0 : -ENOMEM;

    memcpy(args.node_key, node->state.node_key, sizeof args.node_key);
    bool is_range = node->uids.last && (!node->mps || flyt_node_mps_takes_users(node->mps));
    args.server_uid = is_range ? node->uids.first : geteuid();
    args.server_uid_last = is_range ? node->uids.last : geteuid();
    for (unsigned i = 0; i < node->gpus.count; i++)
        args.warm_count += node->starts[i].warm;
    if (!status)
        status = fill_urls(node, &args);
    if (!status)
        status = fill_gpus(node, &args.gpus.gpus_val, &args.gpus.gpus_len);
    if (!status)
        status = fill_allocations(node, &args.allocations.allocations_val, &args.allocations.allocations_len);
    if (!status)
        status = fill_uses(node, &args.uses.uses_val, &args.uses.uses_len);
    if (!status)
        status = fill_sessions(node, &args.sessions.sessions_val, &args.sessions.sessions_len);
    if (status)
        xdr_free((xdrproc_t)xdr_flyt_register_args, &args);
    else
        *ret_args = args;
    return status;
}

int flyt_node_report_figures(const struct flyt_node *node, uint64_t sequence, flyt_heartbeat_args *ret_args)
{
    flyt_heartbeat_args args = {.sequence = sequence};

    int status = fill_gpu_uses(node, &args.gpus.gpus_val, &args.gpus.gpus_len);
    if (!status)
        status = fill_uses(node, &args.uses.uses_val, &args.uses.uses_len);
    if (!status)
        status = fill_sessions(node, &args.sessions.sessions_val, &args.sessions.sessions_len);
    if (status)
        xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    else
        *ret_args = args;
    return status;
}

/* ---- needs ---- */

static unsigned need_of(const struct flyt_node_session *session)
{
    const struct flyt_manager_link_use *use = &flyt_node_session_shown(session)->use;
    unsigned most = 0;

    for (unsigned i = 0; flyt_node_session_is_shown(session) && i < session->allocation->now.slots.slots_len; i++)
        most = use->needed_sms[i] > most ? use->needed_sms[i] : most;
    return most;
}

static int add_need(const struct flyt_node_session *session, flyt_needs_args *args)
{
    if (!need_of(session) || args->needs.needs_len == FLYT_SESSIONS_MAX)
        return 0;
    unsigned count = session->allocation->now.slots.slots_len;
    flyt_session_need *need = &args->needs.needs_val[args->needs.needs_len++];
    need->session_id = session->id;
    need->allocation_id = session->allocation->now.id;
    need->sm_counts.sm_counts_val = calloc(count, sizeof *need->sm_counts.sm_counts_val);
    if (!need->sm_counts.sm_counts_val)
        return -ENOMEM;
    need->sm_counts.sm_counts_len = count;
    for (unsigned i = 0; i < count; i++)
        need->sm_counts.sm_counts_val[i] = flyt_node_session_shown(session)->use.needed_sms[i];
    return 0;
}

int flyt_node_report_needs(const struct flyt_node *node, flyt_needs_args *ret_args)
{
    int status = 0;

    *ret_args = (flyt_needs_args){0};
    ret_args->needs.needs_val = calloc(node->session_count + 1, sizeof *ret_args->needs.needs_val);
    if (!ret_args->needs.needs_val)
        return -ENOMEM;
    for (const struct flyt_node_session *session = node->sessions; session && !status; session = session->next)
        status = add_need(session, ret_args);
    return status;
}
