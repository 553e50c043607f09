/* GPUs: their documents, what is taken of them, cordon and drain, the size of their groups. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/migration.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum { CLAIM_TOLD_MS = 60000 }; /* one event in so long, whoever claims it */

struct flyt_capacity *flyt_gpu_capacity(const struct flyt_card *card)
{
    return &card->node->place.gpus[card->place];
}

/* What an allocation that moves has on a GPU besides its parts. */
static void count_others(const struct flyt_card *card, const struct flyt_held *held)
{
    struct flyt_capacity *capacity = flyt_gpu_capacity(card);

    for (unsigned i = 0; held->migration && i < held->part_count; i++) {
        const struct flyt_part *part = &held->migration->others[i];
        struct flyt_groupset groups = part->groups;
        if (part->card != card)
            continue;
        if (held->parts[i].card == card) { /* new servers beside the present ones, with the same memory and time */
            flyt_capacity_charge(capacity, &groups, 0, held->sessions_max);
            continue;
        }
        for (unsigned k = 0; k < FLYT_GROUP_WORDS; k++)
            groups.words[k] |= part->leaving.words[k];
        flyt_capacity_charge(capacity, &groups, part->memory_bytes + part->leaving_bytes, held->sessions_max);
        flyt_capacity_charge_share(capacity, held->share.is_timed ? &part->groups : NULL,
                                   flyt_share_minimum(held->isolation, &held->share, part));
    }
}

void flyt_gpu_count(struct flyt_card *card)
{
    struct flyt_capacity *capacity = flyt_gpu_capacity(card);

    flyt_capacity_reset(capacity);
    for (unsigned i = 0; i < card->held_count; i++) {
        const struct flyt_held *held = card->held[i];
        for (unsigned j = 0; j < held->part_count; j++) {
            const struct flyt_part *part = &held->parts[j];
            if (part->card != card)
                continue;
            struct flyt_groupset groups = part->groups;
            for (unsigned k = 0; k < FLYT_GROUP_WORDS; k++)
                groups.words[k] |= part->leaving.words[k];
            flyt_capacity_charge(capacity, &groups, part->memory_bytes + part->leaving_bytes, held->sessions_max);
            flyt_capacity_charge_share(capacity, held->share.is_timed ? &part->groups : NULL,
                                       flyt_share_minimum(held->isolation, &held->share, part));
        }
        count_others(card, held);
    }
}

int flyt_gpu_attach(struct flyt_card *card, struct flyt_held *held)
{
    if (card->held_count == card->held_room) {
        unsigned room = card->held_room ? 2 * card->held_room : 8;
        struct flyt_held **list = realloc(card->held, room * sizeof *list);
        if (!list)
            return -ENOMEM;
        card->held = list;
        card->held_room = room;
    }
    card->held[card->held_count++] = held;
    flyt_gpu_count(card);
    return 0;
}

void flyt_gpu_detach(struct flyt_card *card, struct flyt_held *held)
{
    for (unsigned i = 0; i < card->held_count; i++) {
        if (card->held[i] != held)
            continue;
        card->held[i] = card->held[--card->held_count];
        flyt_gpu_count(card);
        return;
    }
}

static const char *const health_names[] = {"ok", "degraded", "failed"};
static const char *const schedule_names[] = {"active", "cordoned", "draining"};

static cJSON *make_document(void *object)
{
    struct flyt_card *card = object;
    const struct flyt_capacity *capacity = flyt_gpu_capacity(card);
    cJSON *document = cJSON_CreateObject(), *sms, *list, *arriving = NULL;

    cJSON_AddStringToObject(document, "node", card->node->key);
    cJSON_AddNumberToObject(document, "index", capacity->index);
    cJSON_AddStringToObject(document, "type", card->type);
    cJSON_AddNumberToObject(document, "sm_count", capacity->sms_total);
    cJSON_AddNumberToObject(document, "group_size", card->group_size);
    sms = cJSON_AddArrayToObject(document, "group_sms");
    for (unsigned i = 0; i < capacity->group_count; i++)
        cJSON_AddItemToArray(sms, cJSON_CreateNumber(capacity->group_sms[i]));
    cJSON_AddNumberToObject(document, "memory_bytes", (double)capacity->memory_bytes);
    cJSON_AddNumberToObject(document, "server_reserve_bytes", (double)capacity->server_reserve_bytes);
    cJSON_AddNumberToObject(document, "client_slots", capacity->client_slots);
    cJSON_AddStringToObject(document, "isolation", capacity->isolation == FLYT_ISOLATION_STRICT ? "strict" : "shared");
    cJSON_AddStringToObject(document, "health", health_names[card->health]);
    cJSON_AddStringToObject(document, "schedule", schedule_names[capacity->schedule]);
    cJSON_AddNumberToObject(document, "compute_major", card->compute_major);
    cJSON_AddNumberToObject(document, "compute_minor", card->compute_minor);
    cJSON_AddNumberToObject(document, "epoch", (double)card->node->cluster->epoch);
    list = cJSON_AddArrayToObject(document, "allocations");
    for (unsigned i = 0; i < card->held_count; i++) {
        cJSON *entry;
        if (card->held[i]->state == FLYT_ALLOCATION_ORPHAN || !(entry = flyt_held_entry(card->held[i], card)))
            continue;
        cJSON_AddItemToArray(list, entry);
    }
    for (unsigned i = 0; i < card->held_count; i++) {
        cJSON *entry = flyt_migration_entry(card->held[i], card);
        if (!entry)
            continue;
        if (!arriving)
            arriving = cJSON_AddArrayToObject(document, "arriving");
        cJSON_AddItemToArray(arriving, entry);
    }
    if (!list || !sms) {
        cJSON_Delete(document);
        return NULL;
    }
    return document;
}

static struct flyt_card *card_new(struct flyt_node *node, const char *uuid, const char *type, uint64_t revision)
{
    struct flyt_card *card = calloc(1, sizeof *card);
    char *key = strdup(uuid);

    if (!card || !key) {
        free(card);
        free(key);
        return NULL;
    }
    card->key = key;
    card->type = strdup(type);
    card->node = node;
    card->kept = flyt_kept_new(node->cluster->keeper, "gpus", uuid, revision, make_document, card);
    if (!card->type || !card->kept || flyt_table_add(&node->cluster->cards, card)) {
        flyt_gpu_free(card);
        return NULL;
    }
    if (flyt_node_add_card(node, card)) {
        flyt_table_remove(&node->cluster->cards, card);
        flyt_gpu_free(card);
        return NULL;
    }
    flyt_gpu_capacity(card)->uuid = card->key;
    flyt_gpu_capacity(card)->type = card->type;
    return card;
}

void flyt_gpu_free(struct flyt_card *card)
{
    if (!card)
        return;
    flyt_kept_free(card->kept);
    free((char *)card->key);
    free(card->type);
    free(card->health_text);
    free(card->claimant);
    free(card->held);
    free(card);
}

static double number(const cJSON *document, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);

    return cJSON_IsNumber(item) && item->valuedouble > 0 ? item->valuedouble : 0;
}

static const char *text(const cJSON *document, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, name);

    return cJSON_IsString(item) ? item->valuestring : "";
}

static unsigned name_index(const char *name, const char *const *names, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(name, names[i]))
            return i;
    return 0;
}

int flyt_gpu_load(struct flyt_cluster *cluster, const cJSON *document)
{
    const cJSON *sms = cJSON_GetObjectItemCaseSensitive(document, "group_sms"), *item;
    unsigned group_sms[FLYT_GROUPS_MAX], count = 0;
    struct flyt_node *node = *text(document, "node") ? flyt_node_get(cluster, text(document, "node")) : NULL;
    struct flyt_card *card;

    if (!node || !*text(document, "_id"))
        return -EINVAL;
    card = card_new(node, text(document, "_id"), text(document, "type"), (uint64_t)number(document, "revision"));
    if (!card)
        return -ENOMEM;
    struct flyt_capacity *capacity = flyt_gpu_capacity(card);
    cJSON_ArrayForEach(item, sms) if (count < FLYT_GROUPS_MAX && cJSON_IsNumber(item) && item->valuedouble > 0)
        group_sms[count++] = (unsigned)item->valuedouble;
    capacity->index = (unsigned)number(document, "index");
    capacity->memory_bytes = (uint64_t)number(document, "memory_bytes");
    capacity->server_reserve_bytes = (uint64_t)number(document, "server_reserve_bytes");
    capacity->client_slots = (unsigned)number(document, "client_slots");
    capacity->isolation = strcmp(text(document, "isolation"), "strict") ? FLYT_ISOLATION_SHARED : FLYT_ISOLATION_STRICT;
    capacity->schedule = name_index(text(document, "schedule"), schedule_names, 3);
    card->group_size = (unsigned)number(document, "group_size");
    card->compute_major = (unsigned)number(document, "compute_major");
    card->compute_minor = (unsigned)number(document, "compute_minor");
    capacity->compute_capability = 100 * card->compute_major + card->compute_minor;
    flyt_gpu_set_health(card, name_index(text(document, "health"), health_names, 3), "");
    flyt_capacity_set_groups(capacity, group_sms, count);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "allocations"))
    {
        int status = flyt_held_load(card, item);
        if (status == -ENOMEM)
            return status;
        if (status) /* the others count all the same; what the node has of it comes as an orphan */
            flyt_fail("store: an allocation of gpu %s cannot be used: %s", card->key, strerror(-status));
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(document, "arriving"))
    {
        int status = flyt_migration_load(card, item);
        if (status == -ENOMEM)
            return status;
        if (status)
            flyt_fail("store: what arrives on gpu %s cannot be used: %s", card->key, strerror(-status));
    }
    flyt_gpu_count(card);
    return 0;
}

void flyt_gpu_set_health(struct flyt_card *card, enum flyt_health health, const char *health_text)
{
    struct flyt_cluster *cluster = card->node->cluster;

    if (health > FLYT_HEALTH_FAILED)
        health = FLYT_HEALTH_FAILED;
    flyt_gpu_capacity(card)->is_unhealthy = health == FLYT_HEALTH_FAILED;
    if (flyt_text_set(&card->health_text, health_text))
        flyt_warn("gpu: %s: no memory for its health", card->key);
    if (card->health == health)
        return;
    card->health = health;
    if (!cluster->is_loaded)
        return;
    flyt_event_add(cluster, "gpu.health", "node", card->key, NULL, NULL, "%s:%u is %s%s%s", card->node->key,
                   flyt_gpu_capacity(card)->index, health_names[health], *health_text ? ": " : "", health_text);
    flyt_kept_change(card->kept, NULL, NULL);
}

bool flyt_gpu_is_claimed_by(const struct flyt_card *card, const struct flyt_node *node)
{
    return card->node != node && card->claimant && !strcmp(card->claimant, node->key);
}

/* A node has reported a GPU that is another one's: a UUID is no proof, so an operator decides. */
static void note_claim(struct flyt_card *card, const struct flyt_node *node)
{
    uint64_t now_ms = flyt_clock_ms();

    bool is_known = flyt_gpu_is_claimed_by(card, node);
    if (!is_known && flyt_text_set(&card->claimant, node->key))
        flyt_warn("gpu: %s: no memory for who claims it", card->key);
    if (card->claim_told_ms && (is_known || now_ms - card->claim_told_ms < CLAIM_TOLD_MS))
        return;
    card->claim_told_ms = now_ms;
    flyt_event_add(card->node->cluster, "gpu.claimed", "manager", card->key, NULL, NULL,
                   "node %s reports GPU %s, which is node %s's: it stays so, with its allocations, until `flytctl node "
                   "adopt %s %s` says that the GPU is there now",
                   node->key, card->key, card->node->key, node->key, card->key);
}

static bool same_groups(const struct flyt_capacity *capacity, const struct flyt_gpu *report)
{
    if (capacity->group_count != report->group_sms.group_sms_len)
        return false;
    for (unsigned i = 0; i < capacity->group_count; i++)
        if (capacity->group_sms[i] != report->group_sms.group_sms_val[i])
            return false;
    return true;
}

int flyt_gpu_report(struct flyt_node *node, const struct flyt_gpu *report)
{
    struct flyt_cluster *cluster = node->cluster;
    struct flyt_card *card = flyt_table_find(&cluster->cards, report->uuid);
    bool is_new = !card, has_changed = is_new;

    if (!card && !(card = card_new(node, report->uuid, report->type, 0)))
        return -ENOMEM;
    if (card->node != node) {
        note_claim(card, node);
        return -EEXIST;
    }
    struct flyt_capacity *capacity = flyt_gpu_capacity(card);
    has_changed |= capacity->index != report->index || capacity->memory_bytes != report->memory_bytes ||
                   capacity->server_reserve_bytes != report->server_reserve_bytes ||
                   capacity->client_slots != report->client_slots || capacity->isolation != report->isolation ||
                   card->group_size != report->group_size || !same_groups(capacity, report) ||
                   strcmp(card->type, report->type) != 0;
    if (strcmp(card->type, report->type) && !flyt_text_set(&card->type, report->type))
        capacity->type = card->type;
    capacity->index = report->index;
    capacity->memory_bytes = report->memory_bytes;
    capacity->server_reserve_bytes = report->server_reserve_bytes;
    capacity->client_slots = report->client_slots;
    capacity->isolation = report->isolation;
    card->group_size = report->group_size;
    card->compute_major = report->compute_major;
    card->compute_minor = report->compute_minor;
    capacity->compute_capability = 100 * card->compute_major + card->compute_minor;
    card->is_reported = true;
    flyt_capacity_set_groups(capacity, report->group_sms.group_sms_val, report->group_sms.group_sms_len);
    flyt_gpu_count(card);
    flyt_gpu_set_health(card, report->health, report->health_text);
    if (has_changed)
        flyt_kept_change(card->kept, NULL, NULL);
    if (is_new)
        flyt_event_add(cluster, "gpu.added", "node", card->key, NULL, NULL, "%s:%u is a %s with %u SMs", node->key,
                       capacity->index, card->type, capacity->sms_total);
    return 0;
}

struct flyt_card *flyt_gpu_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err)
{
    const char *colon = strrchr(name, ':');
    struct flyt_card *found = NULL;
    char node_name[FLYT_NAME_BYTES_MAX + 1];

    if (colon && colon != name) {
        snprintf(node_name, sizeof node_name, "%.*s", (int)(colon - name), name);
        struct flyt_node *node = flyt_table_find(&cluster->nodes, node_name);
        char *end;
        unsigned long index = strtoul(colon + 1, &end, 10);
        for (unsigned i = 0; node && colon[1] && !*end && i < node->place.gpu_count; i++)
            if (node->place.gpus[i].index == index)
                return node->cards[i];
    }
    size_t bytes = strlen(name), place = flyt_table_place(&cluster->cards, name);
    for (; bytes && place < cluster->cards.count; place++) {
        struct flyt_card *card = cluster->cards.items[place];
        if (strncmp(card->key, name, bytes))
            break;
        if (found) {
            flyt_error_set(err, -EINVAL, "%s is the beginning of several GPUs' UUIDs, %s and %s among them", name,
                           found->key, card->key);
            return NULL;
        }
        found = card;
    }
    if (!found)
        flyt_error_set(err, -ENOENT, "there is no GPU %s; write NODE:INDEX or the beginning of its UUID", name);
    return found;
}

/* ---- cordon, drain ---- */

/* Everything that has to end or to move before a GPU is free: its allocations with their sessions. */
static void list_held(cJSON *array, const struct flyt_card *card)
{
    for (unsigned i = 0; i < card->held_count; i++) {
        const struct flyt_held *held = card->held[i];
        for (unsigned j = 0; j < held->part_count; j++)
            if (held->parts[j].card == card)
                cJSON_AddItemToArray(array, flyt_view_held(held, &held->parts[j]));
    }
}

struct schedule_change {
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    char uuid[FLYT_NAME_BYTES_MAX + 1]; /* or node */
    char who[FLYT_NAME_BYTES_MAX + 1];
    enum flyt_schedule before, after;
    bool is_node;
};

static void schedule_written(void *user, enum flyt_store_result result, const char *err)
{
    struct schedule_change *change = user;
    struct flyt_table *table = change->is_node ? &change->cluster->nodes : &change->cluster->cards;
    void *object = flyt_table_find(table, change->uuid);
    struct flyt_card *card = change->is_node ? NULL : object;
    struct flyt_node *node = change->is_node ? object : NULL;
    cJSON *array = cJSON_CreateArray();

    if (result != FLYT_STORE_OK) {
        if (card)
            flyt_gpu_capacity(card)->schedule = change->before;
        if (node)
            node->place.schedule = change->before;
        flyt_view_reply(change->call, FLYT_STATUS_UNAVAILABLE, err, array, 0);
        free(change);
        return;
    }
    for (unsigned i = 0; node && i < node->place.gpu_count; i++)
        list_held(array, node->cards[i]);
    if (card)
        list_held(array, card);
    flyt_event_add(change->cluster, change->is_node ? "node.schedule" : "gpu.schedule", change->who, change->uuid, NULL,
                   NULL, "%s is %s now, was %s", change->uuid, schedule_names[change->after],
                   schedule_names[change->before]);
    flyt_view_reply(change->call, FLYT_STATUS_OK, "", array, 0);
    free(change);
}

void flyt_serve_schedule(struct flyt_call *call, void *data)
{
    const struct flyt_schedule_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct schedule_change *change;
    struct flyt_error err = {0};
    struct flyt_card *card = NULL;
    struct flyt_node *node = NULL;

    if (!flyt_lead_may(cluster, call))
        return;
    if (args->schedule > FLYT_SCHEDULE_DRAINING) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "there is no schedule %d", (int)args->schedule);
        return;
    }
    if (args->kind == FLYT_TARGET_NODE && !(node = flyt_table_find(&cluster->nodes, args->target)))
        flyt_error_set(&err, -ENOENT, "there is no node %s", args->target);
    if (args->kind != FLYT_TARGET_NODE)
        card = flyt_gpu_find(cluster, args->target, &err);
    if (!card && !node) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
        return;
    }
    change = calloc(1, sizeof *change);
    if (!change) {
        flyt_call_fail(call);
        return;
    }
    enum flyt_schedule *schedule = card ? &flyt_gpu_capacity(card)->schedule : &node->place.schedule;
    change->call = call;
    change->cluster = cluster;
    snprintf(change->uuid, sizeof change->uuid, "%s", card ? card->key : node->key);
    flyt_call_who(call, change->who);
    change->is_node = node != NULL;
    change->before = *schedule;
    change->after = *schedule = args->schedule;
    flyt_kept_change(card ? card->kept : node->kept, schedule_written, change);
}

/* ---- the size of groups ---- */

struct group_change {
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    char uuid[FLYT_NAME_BYTES_MAX + 1];
    char who[FLYT_NAME_BYTES_MAX + 1];
    unsigned before;
};

static void groups_set(void *user, int status, void *result)
{
    struct group_change *change = user;
    struct flyt_order_gpu_res *answer = result;
    struct flyt_card *card = flyt_table_find(&change->cluster->cards, change->uuid);

    if (status || !card) {
        flyt_call_outcome(change->call, status == -ETIMEDOUT ? FLYT_STATUS_TIMEOUT : FLYT_STATUS_UNAVAILABLE,
                          "the node of GPU %s did not answer (%s): whether it took the order is not known",
                          change->uuid, strerror(-status));
    } else if (answer->outcome.status != FLYT_STATUS_OK) {
        flyt_call_outcome(change->call, answer->outcome.status, "%s", answer->outcome.text);
    } else if (strcmp(answer->gpu.uuid, card->key) || flyt_gpu_report(card->node, &answer->gpu)) {
        flyt_call_outcome(change->call, FLYT_STATUS_INVALID, "the node answered with a GPU that cannot be");
    } else {
        flyt_event_add(change->cluster, "gpu.group_size", change->who, change->uuid, NULL, NULL,
                       "groups of %u SMs now, of %u before: thread-block clusters of up to %u blocks run in them",
                       card->group_size, change->before, card->group_size);
        flyt_call_outcome(change->call, FLYT_STATUS_OK, "%s", "");
    }
    if (card)
        flyt_gpu_count(card);
    free(change);
}

void flyt_serve_gpu_set(struct flyt_call *call, void *data)
{
    const struct flyt_gpu_set_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_card *card = flyt_gpu_find(cluster, args->gpu, &err);
    if (!card) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
    } else if (args->group_size != 2 && args->group_size != 8) {
        flyt_call_outcome(
            call, FLYT_STATUS_INVALID,
            "a group has 8 SMs, which run thread-block clusters of up to 8 blocks, or 2, which run clusters of up to "
            "2, not %u",
            args->group_size);
    } else if (card->held_count) {
        flyt_call_outcome(call, FLYT_STATUS_IN_USE,
                          "%u allocation%s on GPU %s: its group size can change only while it is empty, for programs "
                          "would %s",
                          card->held_count, card->held_count == 1 ? "" : "s", card->key,
                          args->group_size == 2 ? "lose thread-block clusters of more than 2 blocks"
                                                : "have other SMs under the same group numbers");
    } else if (!flyt_node_is_up(card->node) || !card->node->is_registered) {
        flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "node %s is not connected", card->node->key);
    } else {
        struct group_change *change = calloc(1, sizeof *change);
        struct flyt_order_gpu_args order = {
            .epoch = cluster->epoch, .uuid = (char *)card->key, .group_size = args->group_size};
        if (!change) {
            flyt_call_fail(call);
            return;
        }
        change->call = call;
        change->cluster = cluster;
        change->before = card->group_size;
        snprintf(change->uuid, sizeof change->uuid, "%s", card->key);
        flyt_call_who(call, change->who);
        int status = flyt_peer_call(card->node->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_GPU_SET,
                                    (xdrproc_t)xdr_flyt_order_gpu_args, &order, (xdrproc_t)xdr_flyt_order_gpu_res,
                                    sizeof(struct flyt_order_gpu_res), cluster->settings->order_ms, groups_set, change);
        if (status) {
            flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "node %s cannot be asked: %s", card->node->key,
                              strerror(-status));
            free(change);
            return;
        }
        /* Nobody is placed there until the node has answered. */
        struct flyt_groupset all;
        memset(&all, 0xff, sizeof all);
        flyt_capacity_charge(flyt_gpu_capacity(card), &all, 0, 0);
    }
}
