/*
 * Who decides: the manager that holds the lease (control/store/lease.h). On a store of its own that is this one, from
 * the start. A new leader raises the epoch in every GPU's document, and with it the revision, so that the one before it
 * can change none of them any more, then reads everything, then decides. Who has lost the lease forgets everything and
 * starts anew. The lease of a shared store has a connection and a thread of its own: no other work holds it up.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/daemon.h"
#include "control/base/json_memory.h"
#include "control/base/peer.h"
#include "control/base/worker.h"
#include "control/cluster/io/claims.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/settings.h"
#include "control/store/json.h"
#include "control/store/lease.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

enum { RAISE_ROUNDS = 5, TELL_MS = 5000, LOOK_MS_MAX = 500, LEASE_JOBS_MAX = 4 };

struct flyt_lead {
    struct flyt_cluster *cluster;
    struct flyt_lease *lease;
    struct flyt_store *store;   /* the lease's own; NULL where the store is not shared */
    struct flyt_worker *worker; /* its thread */
    sd_event_source *timer;
    bool is_stepping, is_loading, is_releasing;
    uint64_t next_step_ms, told_epoch;
    const char *must_resign; /* why, as soon as nothing on the stack uses the registry */
    uint64_t claimed_epoch;  /* of a node, believed: where this manager leads it goes above that; 0: none */
    struct flyt_claims claims;
    char url[FLYT_URL_BYTES_MAX + 1]; /* of this manager */
    struct flyt_lease_view view;
};

enum { NODES, GPUS, MEMBERS, TOKENS, EVENTS, COLLECTIONS };
static const char *const collections[COLLECTIONS] = {"nodes", "gpus", "members", "tokens", "events"};

static void step(struct flyt_lead *lead);
static void give_up(struct flyt_lead *lead);

/* ---- on the store's thread ---- */

/* Of a GPU's document; one that no leader can have written is none. */
static uint64_t epoch_of(const cJSON *document)
{
    uint64_t epoch = flyt_json_number(document, "epoch");

    return epoch <= FLYT_EPOCH_MAX ? epoch : 0;
}

/* Work on the lease. */
struct stepping {
    struct flyt_lead *lead;
    enum flyt_store_result (*run)(struct flyt_lease *lease, struct flyt_error *err);
    void (*done)(void *stepping, int is_cancelled);
    struct flyt_error err;
    enum flyt_store_result result;
    uint64_t took_us;
    bool is_look; /* it was asked for after all claims so far had been made */
};

static void run_stepping(void *user)
{
    struct stepping *stepping = user;
    uint64_t start_ns = flyt_clock_ns();

    stepping->result = stepping->run(stepping->lead->lease, &stepping->err);
    stepping->took_us = (flyt_clock_ns() - start_ns) / 1000;
}

static enum flyt_store_result run_stepping_record(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct stepping *stepping = user;

    run_stepping(stepping);
    *err = stepping->err;
    return stepping->result;
}

struct loading {
    struct flyt_lead *lead;
    uint64_t epoch;
    uint64_t found_epoch; /* a higher one in a GPU's document; 0: none */
    bool is_shared;
    enum flyt_store_result result;
    struct flyt_error err;
    cJSON *lists[COLLECTIONS];
    uint64_t start_ms, raised_ms, read_ms; /* monotonic */
};

cJSON *flyt_lead_raised(const cJSON *document, uint64_t epoch)
{
    uint64_t failures = flyt_json_failures();
    cJSON *raised = cJSON_Duplicate(document, true), *number = cJSON_CreateNumber((double)epoch);

    cJSON_DeleteItemFromObjectCaseSensitive(raised, "epoch");
    if (!cJSON_AddItemToObject(raised, "epoch", number))
        cJSON_Delete(number);
    if (flyt_json_failures() == failures)
        return raised;
    cJSON_Delete(raised); /* a member may be missing */
    return NULL;
}

/* A document that the raising of all has passed over: without a revision, written meanwhile, or where the raising was
 * cut. */
static enum flyt_store_result raise_one(struct flyt_store *store, struct loading *loading, const cJSON *seen)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(seen, "_id");
    cJSON *document = flyt_lead_raised(seen, loading->epoch);
    enum flyt_store_result result = FLYT_STORE_UNAVAILABLE;

    if (!document || !cJSON_IsString(id))
        flyt_error_set(&loading->err, -ENOMEM, "no memory");
    else
        result = flyt_store_put(store, "gpus", id->valuestring, flyt_json_number(seen, "revision"), seen, document,
                                &loading->err);
    cJSON_Delete(document);
    return result == FLYT_STORE_NOT_FOUND || result == FLYT_STORE_CONFLICT || result == FLYT_STORE_UNKNOWN
               ? FLYT_STORE_OK
               : result;
}

/*
 * Raises the epoch in all GPUs' documents, then reads them. What was read counts only where each of them has the epoch:
 * then whoever led before changes none of them any more, since its revisions are old, and what it has written until
 * then was read. *ret_is_done false: look again. How the raising ended is not asked where that is not known; what was
 * read says it of each document.
 */
static enum flyt_store_result raise_epochs(struct flyt_store *store, struct loading *loading, cJSON **ret_list,
                                           bool *ret_is_done)
{
    cJSON *list = NULL;
    const cJSON *document;
    enum flyt_store_result result = flyt_store_raise(store, "gpus", "epoch", loading->epoch, &loading->err, NULL);
    bool is_raised = result == FLYT_STORE_OK, is_done = true;

    if (result == FLYT_STORE_OK || result == FLYT_STORE_UNKNOWN)
        result = flyt_store_list(store, "gpus", NULL, 0, &loading->err, &list);
    cJSON_ArrayForEach(document, list)
    {
        uint64_t epoch = epoch_of(document);
        if (result != FLYT_STORE_OK)
            break;
        if (cJSON_GetObjectItemCaseSensitive(document, "_broken")) {
            is_done &= is_raised; /* nobody can write it by what was read of it; it stays out of the registry */
        } else if (epoch > loading->epoch) {
            result = FLYT_STORE_CONFLICT;
            loading->found_epoch = epoch;
            flyt_error_set(&loading->err, -ESTALE, "GPU documents have a higher epoch than this manager's");
        } else if (epoch < loading->epoch || !flyt_json_number(document, "revision")) {
            is_done = false;
            result = raise_one(store, loading, document);
        }
    }
    *ret_is_done = is_done && result == FLYT_STORE_OK;
    if (*ret_is_done)
        *ret_list = list;
    else
        cJSON_Delete(list);
    return result;
}

static enum flyt_store_result run_loading(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct loading *loading = user;
    bool is_done = false;

    loading->result = FLYT_STORE_OK;
    /* A file of one's own is locked: nobody else can write, and a document gets the epoch with its next change. */
    for (unsigned round = 0; loading->is_shared && !is_done && loading->result == FLYT_STORE_OK; round++) {
        loading->result = raise_epochs(store, loading, &loading->lists[GPUS], &is_done);
        if (!is_done && round == RAISE_ROUNDS && loading->result == FLYT_STORE_OK) {
            flyt_error_set(&loading->err, -EAGAIN, "others change the GPUs' documents all the time");
            loading->result = FLYT_STORE_UNAVAILABLE;
        }
    }
    loading->raised_ms = flyt_clock_ms();
    for (unsigned i = 0; i < COLLECTIONS && loading->result == FLYT_STORE_OK; i++)
        if (!loading->lists[i])
            loading->result = flyt_store_list(store, collections[i], NULL, 0, &loading->err, &loading->lists[i]);
    loading->read_ms = flyt_clock_ms();
    *err = loading->err;
    return loading->result;
}

/* Behind all that was given to this thread before. What it says of the store is true. */
static enum flyt_store_result run_last(struct flyt_store *store, void *user, struct flyt_error *err)
{
    cJSON *schema = NULL;
    enum flyt_store_result result = flyt_store_get(store, "meta", "schema", err, &schema);

    cJSON_Delete(schema);
    return result;
}

/* ---- on the loop ---- */

static void stepping_done(void *user, int is_cancelled)
{
    struct stepping *stepping = user;

    if (!is_cancelled)
        flyt_store_writer_note(stepping->lead->cluster->store_writer, "lease", stepping->result, stepping->took_us,
                               &stepping->err);
    stepping->done(stepping, is_cancelled);
}

/* Has the lease worked on, on its thread or, on a store of one's own, on the store's. false: it cannot be, and done is
 * not called. */
static bool do_step(struct flyt_lead *lead, struct stepping *stepping)
{
    if (lead->worker)
        return !flyt_worker_do(lead->worker, run_stepping, stepping_done, stepping);
    return !flyt_store_writer_do(lead->cluster->store_writer, "lease", run_stepping_record, stepping->done, stepping);
}

static struct stepping *stepping_new(struct flyt_lead *lead,
                                     enum flyt_store_result (*run)(struct flyt_lease *lease, struct flyt_error *err),
                                     void (*done)(void *stepping, int is_cancelled))
{
    struct stepping *stepping = calloc(1, sizeof *stepping);

    if (stepping)
        *stepping = (struct stepping){.lead = lead, .run = run, .done = done};
    return stepping;
}

static void build(struct flyt_cluster *cluster, struct loading *loading)
{
    const cJSON *document;

    for (unsigned i = 0; i < COLLECTIONS; i++) {
        cJSON_ArrayForEach(document, loading->lists[i])
        {
            const cJSON *id = cJSON_GetObjectItemCaseSensitive(document, "_id");
            int status = cluster->ops->load(cluster, collections[i], document);
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
static void announce(struct flyt_cluster *cluster, uint64_t epoch)
{
    flyt_url_text urls[FLYT_MANAGERS_MAX];
    flyt_leader_args args = {.epoch = epoch, .leaders.leaders_val = urls};
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
    flyt_store_writer_hold(cluster->store_writer, true);
    cluster->ops->forget(cluster);
    announce(cluster, cluster->epoch);
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
            flyt_store_writer_set_epoch(cluster->store_writer, cluster->epoch);
            build(cluster, loading);
            cluster->is_leader = cluster->is_loaded = true;
            flyt_store_writer_hold(cluster->store_writer, false);
            cluster->ops->loaded(cluster);
            flyt_event_add(cluster, "manager.leads", "manager", cluster->settings->name, NULL, NULL,
                           "manager %s decides, epoch %" PRIu64 ": %zu GPUs, %zu allocations", cluster->settings->name,
                           cluster->epoch, cluster->gpus.count, cluster->allocations.count);
            cluster->ops->leads(cluster);
            announce(cluster, cluster->epoch);
            flyt_daemon_ready(cluster->daemon, "leads");
            flyt_info("this manager leads: epoch=%" PRIu64 " gpus=%zu allocations=%zu raised_ms=%" PRIu64
                      " read_ms=%" PRIu64 " entered_ms=%" PRIu64,
                      cluster->epoch, cluster->gpus.count, cluster->allocations.count,
                      loading->raised_ms - loading->start_ms, loading->read_ms - loading->raised_ms,
                      flyt_clock_ms() - loading->read_ms);
        } else if (loading->result != FLYT_STORE_OK) {
            flyt_warn("the store cannot be read: %s", loading->err.text);
        }
        /* Where this manager has the lease all the same, e.g. since its document was removed: the next one is higher.
         */
        if (loading->found_epoch && flyt_lease_is_leader(lead->lease)) {
            flyt_lease_raise_epoch(lead->lease, loading->found_epoch);
            give_up(lead);
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
    flyt_watch_free(cluster->desired_watch);
    flyt_watch_free(cluster->tenant_watch);
    flyt_watch_free(cluster->member_watch);
    cluster->desired_watch = flyt_watch_new();
    cluster->tenant_watch = flyt_watch_new();
    cluster->member_watch = flyt_watch_new();
    loading->lead = lead;
    loading->start_ms = flyt_clock_ms();
    loading->epoch = epoch;
    loading->is_shared = cluster->is_shared_store;
    lead->is_loading = cluster->desired_watch && cluster->tenant_watch && cluster->member_watch &&
                       !flyt_store_writer_do(cluster->store_writer, "load", run_loading, loaded, loading);
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

static void last_done(void *user, int is_cancelled)
{
    struct stepping *stepping = user;

    if (is_cancelled || !do_step(stepping->lead, stepping))
        given_up(stepping, is_cancelled);
}

/* Lets the lease go, so that its next taking has an epoch above the one that was seen; not before the writes that are
 * under way have ended. */
static void give_up(struct flyt_lead *lead)
{
    struct stepping *stepping = stepping_new(lead, flyt_lease_release, given_up);

    lead->must_resign = NULL;
    if (!stepping)
        return;
    lead->is_releasing = !flyt_store_writer_do(lead->cluster->store_writer, "last", run_last, last_done, stepping);
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
    if (epoch || !lead->view.address[0])
        return;
    flyt_daemon_ready(cluster->daemon, "stands by"); /* there is a leader to point to */
    if (lead->view.epoch != lead->told_epoch && flyt_lead_elsewhere(cluster)) {
        /* Who waits here for one need not ask. */
        lead->told_epoch = lead->view.epoch;
        announce(cluster, lead->view.epoch);
    }
}

/* The next step: the holder renews, others look, and take it as soon as that may be. */
static void plan_step(struct flyt_lead *lead)
{
    const struct flyt_cluster *cluster = lead->cluster;
    uint64_t renew_ms = cluster->settings->lease_renew_ms, look_ms = renew_ms / 4, left_ms = lead->view.left_ms;

    if (lead->view.state == FLYT_LEASE_LEADING)
        look_ms = renew_ms;
    else if (look_ms > LOOK_MS_MAX)
        look_ms = LOOK_MS_MAX;
    if (lead->view.state == FLYT_LEASE_WATCHING && left_ms && left_ms < look_ms)
        look_ms = left_ms + 1; /* not a moment before */
    lead->next_step_ms = flyt_clock_ms() + look_ms;
}

/* For the next step; and an end of the lease by itself is seen soon. */
static void set_timer(struct flyt_lead *lead)
{
    uint64_t now_ms = flyt_clock_ms(), wait_ms = lead->cluster->settings->lease_renew_ms / 2;

    if (wait_ms > LOOK_MS_MAX)
        wait_ms = LOOK_MS_MAX;
    if (!lead->is_stepping && lead->next_step_ms < now_ms + wait_ms)
        wait_ms = lead->next_step_ms > now_ms ? lead->next_step_ms - now_ms : 1;
    if (!lead->timer)
        return;
    sd_event_source_set_time_relative(lead->timer, wait_ms * 1000);
    sd_event_source_set_enabled(lead->timer, SD_EVENT_ONESHOT);
}

/* The store says that this manager leads, and a node refuses its epoch: the next one is higher. */
static void go_above_claims(struct flyt_lead *lead)
{
    uint64_t epoch = lead->claimed_epoch;

    lead->claimed_epoch = 0;
    if (!epoch || epoch <= flyt_lease_epoch(lead->lease) || !flyt_lease_is_leader(lead->lease))
        return;
    flyt_lease_raise_epoch(lead->lease, epoch);
    lead->must_resign = "a node has seen a higher epoch";
}

static void stepped(void *user, int is_cancelled)
{
    struct stepping *stepping = user;
    struct flyt_lead *lead = stepping->lead;

    if (!is_cancelled) {
        lead->is_stepping = false;
        if (stepping->result == FLYT_STORE_BROKEN)
            flyt_fail("the lease cannot be read: %s", stepping->err.text);
        if (stepping->result == FLYT_STORE_OK && stepping->is_look)
            go_above_claims(lead);
        judge(lead);
        if (stepping->result == FLYT_STORE_OK)
            plan_step(lead);
        set_timer(lead);
    }
    free(stepping);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_lead *lead = user;

    judge(lead);
    step(lead);
    set_timer(lead);
    return 0;
}

static void step(struct flyt_lead *lead)
{
    uint64_t now_ms = flyt_clock_ms();
    struct stepping *stepping;

    if (lead->is_stepping || now_ms < lead->next_step_ms)
        return;
    stepping = stepping_new(lead, flyt_lease_step, stepped);
    if (stepping)
        stepping->is_look = lead->claimed_epoch != 0;
    /* Where that fails: again so soon. */
    lead->next_step_ms = now_ms + lead->cluster->settings->lease_renew_ms / 2;
    lead->is_stepping = stepping && do_step(lead, stepping);
    if (!lead->is_stepping)
        free(stepping);
}

static int open_own_store(struct flyt_lead *lead, struct flyt_error *err)
{
    const struct flyt_cluster_settings *settings = lead->cluster->settings;
    int status = flyt_store_open(settings->store, (unsigned)settings->store_timeout_ms, err, &lead->store);

    if (status)
        return status;
    status = flyt_worker_new(lead->cluster->event, "flyt-lease", LEASE_JOBS_MAX, &lead->worker);
    return status ? flyt_error_set(err, status, "the lease has no thread: %s", strerror(-status)) : 0;
}

int flyt_lead_start(struct flyt_cluster *cluster, struct flyt_error *err)
{
    const struct flyt_cluster_settings *settings = cluster->settings;
    struct flyt_lead *lead = calloc(1, sizeof *lead);
    int status;

    if (!lead)
        return flyt_error_set(err, -ENOMEM, "no memory");
    cluster->lead = lead;
    lead->cluster = cluster;
    status = cluster->is_shared_store ? open_own_store(lead, err) : 0;
    if (status)
        return status;
    snprintf(lead->url, sizeof lead->url, "%s", settings->advertise ? settings->advertise : cluster->listen_url);
    struct flyt_lease_config config = {.store =
                                           lead->store ? lead->store : flyt_store_writer_store(cluster->store_writer),
                                       .holder = settings->name,
                                       .address = lead->url,
                                       .lease_ms = settings->lease_ms,
                                       .renew_ms = settings->lease_renew_ms};
    status = flyt_lease_new(&config, &lead->lease);
    if (!status)
        status = sd_event_add_time_relative(cluster->event, &lead->timer, CLOCK_MONOTONIC, 0, 0, on_timer, lead);
    flyt_store_writer_hold(cluster->store_writer, true);
    return status < 0 ? flyt_error_set(err, status, "leadership cannot be watched: %s", strerror(-status)) : 0;
}

static void released(void *user, int is_cancelled)
{
    free(user);
}

void flyt_lead_stop(struct flyt_cluster *cluster)
{
    struct flyt_lead *lead = cluster->lead;

    if (!lead)
        return;
    sd_event_source_disable_unref(lead->timer);
    lead->timer = NULL;
    cluster->is_leader = false;
}

bool flyt_lead_release(struct flyt_cluster *cluster, uint64_t timeout_ms)
{
    struct flyt_lead *lead = cluster->lead;

    if (!lead || !lead->worker || !lead->lease)
        return true; /* nobody waits for it */
    struct stepping *stepping = stepping_new(lead, flyt_lease_release, released);
    if (!stepping || !do_step(lead, stepping)) {
        free(stepping);
        return false;
    }
    return flyt_worker_finish(lead->worker, timeout_ms);
}

void flyt_lead_free(struct flyt_cluster *cluster)
{
    struct flyt_lead *lead = cluster->lead;

    if (!lead)
        return;
    flyt_worker_free(lead->worker);
    flyt_lease_free(lead->lease);
    flyt_store_close(lead->store);
    flyt_claims_fini(&lead->claims);
    free(lead);
    cluster->lead = NULL;
}

void flyt_lead_lost(struct flyt_cluster *cluster, uint64_t epoch, const char *why)
{
    flyt_lease_raise_epoch(cluster->lead->lease, epoch);
    cluster->lead->must_resign = why;
}

void flyt_lead_claimed(struct flyt_cluster *cluster, struct flyt_node *node, uint64_t epoch)
{
    struct flyt_lead *lead = cluster->lead;
    enum flyt_claim_verdict verdict =
        flyt_claims_judge(&lead->claims, node->key, epoch, cluster->epoch, flyt_clock_ms());

    flyt_lease_look(lead->lease);
    if (verdict == FLYT_CLAIM_BELIEVED) {
        flyt_warn("node %s has seen epoch %" PRIu64 ", this manager leads at epoch %" PRIu64, node->key, epoch,
                  cluster->epoch);
        lead->claimed_epoch = epoch > lead->claimed_epoch ? epoch : lead->claimed_epoch;
        lead->next_step_ms = 0;
        return;
    }
    if (node->doubted_epoch != epoch)
        flyt_event_add(cluster, "node.epoch_refused", "manager", node->key, NULL, NULL,
                       "node %s says that it has seen epoch %" PRIu64 ", this manager leads at epoch %" PRIu64
                       ": it is not believed, since %s; while it says so it gets no orders",
                       node->key, epoch, cluster->epoch,
                       verdict == FLYT_CLAIM_TOO_FAR ? "no leader can have come so far" : "such claims come too often");
    node->doubted_epoch = epoch;
}

const char *flyt_lead_elsewhere(const struct flyt_cluster *cluster)
{
    const struct flyt_lease_view *view = &cluster->lead->view;
    bool is_other = !cluster->is_leader && view->address[0] && strcmp(view->holder, cluster->settings->name);

    return is_other ? view->address : NULL;
}

bool flyt_lead_knows_desired(const struct flyt_cluster *cluster)
{
    return cluster->is_leader && cluster->read_epoch == cluster->epoch;
}

static bool leads(const struct flyt_cluster *cluster)
{
    return cluster->is_leader && flyt_lease_epoch(cluster->lead->lease) == cluster->epoch;
}

void flyt_lead_refuse(const struct flyt_cluster *cluster, struct flyt_call *call)
{
    if (leads(cluster))
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE,
                          "this manager has just begun to lead: it still reads what is wanted");
    else if (flyt_lead_elsewhere(cluster))
        flyt_call_outcome(call, FLYT_STATUS_NOT_LEADER, "manager %s at %s leads", cluster->lead->view.holder,
                          cluster->lead->view.address);
    else
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "no manager leads at this moment%s",
                          cluster->is_store_available ? "" : ": the store is not reachable");
}

bool flyt_lead_may(struct flyt_cluster *cluster, struct flyt_call *call)
{
    const struct flyt_link *link = flyt_call_link(call);
    bool is_person = link->kind != FLYT_PEER_NODE && link->kind != FLYT_PEER_VM;

    if (leads(cluster) && (!is_person || flyt_lead_knows_desired(cluster)))
        return true;
    flyt_lead_refuse(cluster, call);
    return false;
}

uint64_t flyt_lead_known_epoch(const struct flyt_cluster *cluster)
{
    if (cluster->is_leader)
        return cluster->epoch;
    /* What was seen before the store went away may be long over. */
    return cluster->is_store_available && flyt_lead_elsewhere(cluster) ? cluster->lead->view.epoch : 0;
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
