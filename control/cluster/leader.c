/*
 * Who decides: the manager that holds the lease (control/store/lease.h). On a store of its own that is this one, from
 * the start. A new leader writes its epoch into every GPU's document, so that the one before it can change none of
 * them any more, then reads everything, then decides. Who has lost the lease forgets everything and starts anew.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/cluster.h"
#include "control/store/lease.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum { RAISE_ROUNDS = 5, TELL_MS = 5000, RETRY_MS = 500 };

struct flyt_lead {
    struct flyt_cluster *cluster;
    struct flyt_lease *lease;
    sd_event_source *timer;
    bool is_stepping, is_loading, is_releasing;
    uint64_t next_step_ms;
    const char *must_resign;          /* why, as soon as nothing on the stack uses the registry */
    char url[FLYT_URL_BYTES_MAX + 1]; /* of this manager */
    struct flyt_lease_view view;
};

static const char *const collections[] = {"nodes", "gpus", "members", "tokens", "events"};
enum { COLLECTIONS = sizeof collections / sizeof *collections };

static void step(struct flyt_lead *lead);

/* ---- on the store's thread ---- */

struct stepping {
    struct flyt_lead *lead;
    struct flyt_error err;
    enum flyt_store_result result;
};

static enum flyt_store_result run_step(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct stepping *stepping = user;

    stepping->result = flyt_lease_step(stepping->lead->lease, &stepping->err);
    *err = stepping->err;
    return stepping->result;
}

struct loading {
    struct flyt_lead *lead;
    uint64_t epoch;
    bool is_shared;
    enum flyt_store_result result;
    struct flyt_error err;
    cJSON *lists[COLLECTIONS];
};

/* 0: all GPUs' documents have the epoch; 1: somebody wrote meanwhile, look again. */
static enum flyt_store_result raise_epochs(struct flyt_store *store, struct loading *loading, bool *ret_again)
{
    cJSON *list = NULL, *document;
    enum flyt_store_result result = flyt_store_list(store, "gpus", NULL, 0, &loading->err, &list);

    *ret_again = false;
    while (result == FLYT_STORE_OK && (document = cJSON_DetachItemFromArray(list, 0))) {
        const cJSON *epoch = cJSON_GetObjectItemCaseSensitive(document, "epoch");
        const cJSON *revision = cJSON_GetObjectItemCaseSensitive(document, "revision");
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(document, "_id");
        if (cJSON_IsString(id) && cJSON_IsNumber(revision) &&
            (!cJSON_IsNumber(epoch) || (uint64_t)epoch->valuedouble < loading->epoch)) {
            char *name = strdup(id->valuestring);
            uint64_t seen = (uint64_t)revision->valuedouble;
            cJSON_DeleteItemFromObjectCaseSensitive(document, "epoch");
            cJSON_AddNumberToObject(document, "epoch", (double)loading->epoch);
            result = name ? flyt_store_put(store, "gpus", name, seen, NULL, document, &loading->err)
                          : FLYT_STORE_UNAVAILABLE;
            free(name);
            if (result == FLYT_STORE_CONFLICT || result == FLYT_STORE_UNKNOWN) {
                *ret_again = true;
                result = FLYT_STORE_OK;
            }
        } else if (cJSON_IsNumber(epoch) && (uint64_t)epoch->valuedouble > loading->epoch) {
            result = FLYT_STORE_CONFLICT;
            flyt_error_set(&loading->err, -ESTALE, "GPU documents have a higher epoch than this manager's");
        }
        cJSON_Delete(document);
    }
    cJSON_Delete(list);
    return result;
}

static enum flyt_store_result run_loading(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct loading *loading = user;
    bool again = true;

    loading->result = FLYT_STORE_OK;
    /* A file of one's own is locked: nobody else can write, and a document gets the epoch with its next change. */
    for (unsigned round = 0; loading->is_shared && again && loading->result == FLYT_STORE_OK; round++) {
        loading->result = raise_epochs(store, loading, &again);
        if (again && round == RAISE_ROUNDS && loading->result == FLYT_STORE_OK) {
            flyt_error_set(&loading->err, -EAGAIN, "others change the GPUs' documents all the time");
            loading->result = FLYT_STORE_UNAVAILABLE;
        }
    }
    for (unsigned i = 0; i < COLLECTIONS && loading->result == FLYT_STORE_OK; i++)
        loading->result = flyt_store_list(store, collections[i], NULL, 0, &loading->err, &loading->lists[i]);
    *err = loading->err;
    return loading->result;
}

static enum flyt_store_result run_release(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct stepping *stepping = user;

    return flyt_lease_release(stepping->lead->lease, err);
}

/* ---- on the loop ---- */

static int (*const loaders[COLLECTIONS])(struct flyt_cluster *cluster, const cJSON *document) = {
    flyt_node_load, flyt_gpu_load, flyt_member_load, flyt_token_load, flyt_event_load};

static void build(struct flyt_cluster *cluster, struct loading *loading)
{
    const cJSON *document;

    for (unsigned i = 0; i < COLLECTIONS; i++) {
        cJSON_ArrayForEach(document, loading->lists[i])
        {
            const cJSON *id = cJSON_GetObjectItemCaseSensitive(document, "_id");
            int status = loaders[i](cluster, document);
            if (status)
                flyt_fail("store: %s %s cannot be used: %s", collections[i], cJSON_IsString(id) ? id->valuestring : "?",
                          strerror(-status));
        }
    }
}

static void told(void *user, int status, void *result)
{
    if (status)
        flyt_debug("a peer did not take the news of the leader: %s", strerror(-status));
}

/* Tells everybody who is connected where the leader is. */
static void announce(struct flyt_cluster *cluster)
{
    flyt_url_text urls[FLYT_MANAGERS_MAX];
    flyt_leader_args args = {.epoch = cluster->epoch, .leaders.leaders_val = urls};
    struct flyt_link *link;

    args.leaders.leaders_len = flyt_lead_addresses(cluster, urls);
    TAILQ_FOREACH(link, &cluster->links, entry)
    {
        if (link->kind == FLYT_PEER_NODE || link->kind == FLYT_PEER_VM)
            flyt_peer_call(link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_LEADER,
                           (xdrproc_t)xdr_flyt_leader_args, &args, (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome),
                           TELL_MS, told, NULL);
    }
}

static void resign(struct flyt_cluster *cluster, const char *why)
{
    if (!cluster->is_leader && !cluster->is_loaded)
        return;
    flyt_warn("this manager leads no longer: %s", why);
    cluster->is_leader = cluster->is_loaded = false;
    flyt_keeper_hold(cluster->keeper, true);
    flyt_cluster_forget(cluster);
    announce(cluster);
}

/* Nodes and VMs that are connected already are entered as if they had just said HELLO. */
static void enter_links(struct flyt_cluster *cluster)
{
    struct flyt_link *link;

    TAILQ_FOREACH(link, &cluster->links, entry)
    flyt_link_enter(link);
}

static void loaded(void *user, int is_cancelled)
{
    struct loading *loading = user;
    struct flyt_lead *lead = loading->lead;
    struct flyt_cluster *cluster = lead->cluster;

    if (!is_cancelled) {
        lead->is_loading = false;
        bool is_ours = loading->result == FLYT_STORE_OK && flyt_lease_epoch(lead->lease) == loading->epoch;
        if (is_ours) {
            cluster->epoch = loading->epoch;
            flyt_keeper_set_epoch(cluster->keeper, cluster->epoch);
            build(cluster, loading);
            cluster->is_leader = cluster->is_loaded = true;
            flyt_keeper_hold(cluster->keeper, false);
            flyt_held_loaded(cluster);
            flyt_member_recheck(cluster);
            enter_links(cluster);
            flyt_event_add(cluster, "manager.leads", "manager", cluster->settings->name, NULL, NULL,
                           "manager %s decides, epoch %" PRIu64 ": %zu GPUs, %zu allocations", cluster->settings->name,
                           cluster->epoch, cluster->cards.count, cluster->held.count);
            flyt_wish_poll(cluster);
            announce(cluster);
            flyt_daemon_ready(cluster->daemon, "leads");
        } else if (loading->result != FLYT_STORE_OK) {
            flyt_warn("the store cannot be read: %s", loading->err.text);
        }
    }
    for (unsigned i = 0; i < COLLECTIONS; i++)
        cJSON_Delete(loading->lists[i]);
    free(loading);
}

static void load(struct flyt_lead *lead, uint64_t epoch)
{
    struct flyt_cluster *cluster = lead->cluster;
    struct loading *loading = calloc(1, sizeof *loading);

    if (!loading)
        return;
    flyt_watch_free(cluster->wish_watch);
    flyt_watch_free(cluster->tenant_watch);
    flyt_watch_free(cluster->member_watch);
    cluster->wish_watch = flyt_watch_new();
    cluster->tenant_watch = flyt_watch_new();
    cluster->member_watch = flyt_watch_new();
    loading->lead = lead;
    loading->epoch = epoch;
    loading->is_shared = cluster->is_shared_store;
    lead->is_loading = cluster->wish_watch && cluster->tenant_watch && cluster->member_watch &&
                       !flyt_keeper_do(cluster->keeper, "load", run_loading, loaded, loading);
    if (!lead->is_loading)
        free(loading);
}

static void given_up(void *user, int is_cancelled)
{
    struct stepping *stepping = user;

    if (!is_cancelled)
        stepping->lead->is_releasing = false;
    free(stepping);
}

/* Lets the lease go, so that its next taking has an epoch above the one that was seen. */
static void give_up(struct flyt_lead *lead)
{
    struct stepping *stepping = calloc(1, sizeof *stepping);

    lead->must_resign = NULL;
    if (!stepping)
        return;
    stepping->lead = lead;
    lead->is_releasing = !flyt_keeper_do(lead->cluster->keeper, "lease", run_release, given_up, stepping);
    if (!lead->is_releasing)
        free(stepping);
}

/* What the lease says now decides what this manager is. */
static void judge(struct flyt_lead *lead)
{
    struct flyt_cluster *cluster = lead->cluster;
    uint64_t epoch = flyt_lease_epoch(lead->lease);

    flyt_lease_get_view(lead->lease, &lead->view);
    if (lead->must_resign && cluster->is_leader) {
        resign(cluster, lead->must_resign);
        give_up(lead);
        return;
    }
    lead->must_resign = NULL;
    if (cluster->is_leader && epoch != cluster->epoch)
        resign(cluster, epoch ? "the lease ran out and was taken again" : "the lease ran out, or another took it");
    if (epoch && !cluster->is_leader && !lead->is_loading && !lead->is_releasing && !cluster->is_polling)
        load(lead, epoch);
    if (!epoch && lead->view.address[0])
        flyt_daemon_ready(cluster->daemon, "stands by"); /* there is a leader to point to */
}

static void stepped(void *user, int is_cancelled)
{
    struct stepping *stepping = user;
    struct flyt_lead *lead = stepping->lead;

    if (!is_cancelled) {
        lead->is_stepping = false;
        if (stepping->result == FLYT_STORE_BROKEN)
            flyt_fail("the lease cannot be read: %s", stepping->err.text);
        judge(lead);
    }
    free(stepping);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_lead *lead = user;
    const struct flyt_cluster_settings *settings = lead->cluster->settings;
    uint64_t pause_ms = lead->cluster->is_leader ? settings->lease_renew_ms : settings->lease_renew_ms / 2;

    judge(lead);
    step(lead);
    sd_event_source_set_time_relative(source, (pause_ms < RETRY_MS ? pause_ms : RETRY_MS) * 1000);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

static void step(struct flyt_lead *lead)
{
    uint64_t now_ms = flyt_clock_ms();
    struct stepping *stepping;

    if (lead->is_stepping || now_ms < lead->next_step_ms)
        return;
    stepping = calloc(1, sizeof *stepping);
    if (!stepping)
        return;
    stepping->lead = lead;
    lead->next_step_ms = now_ms + lead->cluster->settings->lease_renew_ms / (lead->cluster->is_leader ? 1 : 2);
    lead->is_stepping = !flyt_keeper_do(lead->cluster->keeper, "lease", run_step, stepped, stepping);
    if (!lead->is_stepping)
        free(stepping);
}

int flyt_lead_start(struct flyt_cluster *cluster, struct flyt_error *err)
{
    const struct flyt_cluster_settings *settings = cluster->settings;
    struct flyt_lead *lead = calloc(1, sizeof *lead);

    if (!lead)
        return flyt_error_set(err, -ENOMEM, "no memory");
    cluster->lead = lead;
    lead->cluster = cluster;
    snprintf(lead->url, sizeof lead->url, "%s", settings->advertise ? settings->advertise : cluster->listen_url);
    struct flyt_lease_config config = {.store = flyt_keeper_store(cluster->keeper),
                                       .holder = settings->name,
                                       .address = lead->url,
                                       .lease_ms = settings->lease_ms,
                                       .renew_ms = settings->lease_renew_ms};
    int status = flyt_lease_new(&config, &lead->lease);
    if (!status)
        status = sd_event_add_time_relative(cluster->event, &lead->timer, CLOCK_MONOTONIC, 0, 0, on_timer, lead);
    flyt_keeper_hold(cluster->keeper, true);
    return status < 0 ? flyt_error_set(err, status, "leadership cannot be watched: %s", strerror(-status)) : 0;
}

static void released(void *user, int is_cancelled)
{
    free(user);
}

void flyt_lead_stop(struct flyt_cluster *cluster)
{
    struct flyt_lead *lead = cluster->lead;
    struct stepping *stepping = lead ? calloc(1, sizeof *stepping) : NULL;

    if (!lead)
        return;
    sd_event_source_disable_unref(lead->timer);
    lead->timer = NULL;
    cluster->is_leader = false;
    if (!stepping)
        return;
    stepping->lead = lead;
    if (flyt_keeper_do(cluster->keeper, "lease", run_release, released, stepping))
        free(stepping);
}

void flyt_lead_free(struct flyt_cluster *cluster)
{
    if (!cluster->lead)
        return;
    flyt_lease_free(cluster->lead->lease);
    free(cluster->lead);
    cluster->lead = NULL;
}

void flyt_lead_lost(struct flyt_cluster *cluster, uint64_t epoch, const char *why)
{
    flyt_lease_raise_epoch(cluster->lead->lease, epoch);
    cluster->lead->must_resign = why;
}

const char *flyt_lead_elsewhere(const struct flyt_cluster *cluster)
{
    const struct flyt_lease_view *view = &cluster->lead->view;
    bool is_other = !cluster->is_leader && view->address[0] && strcmp(view->holder, cluster->settings->name);

    return is_other ? view->address : NULL;
}

bool flyt_lead_may(struct flyt_cluster *cluster, struct flyt_call *call)
{
    if (cluster->is_leader && flyt_lease_epoch(cluster->lead->lease) == cluster->epoch)
        return true;
    if (flyt_lead_elsewhere(cluster))
        flyt_call_outcome(call, FLYT_STATUS_NOT_LEADER, "manager %s at %s leads", cluster->lead->view.holder,
                          cluster->lead->view.address);
    else
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "no manager leads at this moment%s",
                          cluster->is_store_available ? "" : ": the store is not reachable");
    return false;
}

static unsigned add_url(flyt_url_text *urls, unsigned count, const char *url)
{
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(urls[i], url))
            return count;
    if (*url && count < FLYT_MANAGERS_MAX)
        urls[count++] = (char *)url;
    return count;
}

unsigned flyt_lead_addresses(const struct flyt_cluster *cluster, flyt_url_text *ret_urls)
{
    unsigned count = 0;

    count = add_url(ret_urls, count, cluster->is_leader ? cluster->lead->url : cluster->lead->view.address);
    for (size_t i = 0; i < cluster->settings->managers.count; i++)
        count = add_url(ret_urls, count, cluster->settings->managers.items[i]);
    return add_url(ret_urls, count, cluster->lead->url);
}
