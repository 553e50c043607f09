#include "control/cluster/test/test_world.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <cmocka.h>

#include "control/base/peer.h"
#include "control/cluster/api/serve.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/gpu_document.h"
#include "control/cluster/io/keep.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/io/node_document.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/part.h"
#include "control/cluster/model/saving.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/drain.h"
#include "control/cluster/reconcile/loaded.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/node.h"
#include "control/cluster/reconcile/resize.h"
#include "control/cluster/reconcile/vm.h"
#include "control/cluster/reconcile/wish.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/error.h"

enum { MOVES = 16, ALLOCATIONS = 64, ORDERS = 256, CALLS = 512, TIMERS = 512, CONTENT_BYTES = 256 };
#define GIB (1ull << 30)

/* ---- the pieces ---- */

struct waiter {
    flyt_kept_done_fn done;
    void *user;
    struct waiter *next;
};

struct flyt_kept {
    char collection[32], id[64];
    cJSON *(*make)(void *object);
    void *object;
    struct waiter *waiting, *writing; /* for the next write, for the one under way */
    struct flyt_kept *next;           /* in the queue */
    bool is_queued;
};

/* Other work on the store's thread. */
struct job {
    enum flyt_store_result (*work)(struct flyt_store *store, void *job, struct flyt_error *err);
    void (*done)(void *job, int is_cancelled);
    void *user;
    struct job *next;
};

/* What a node has of an allocation. */
struct applied {
    uint64_t id, revision;
    char vm_ip[16], content[CONTENT_BYTES];
    unsigned gpu, sm_count;
    uint64_t groups, in_use; /* bits; in_use: programs run there still */
    uint64_t memory_bytes;
    enum flyt_allocation_state state;
};

struct order {
    unsigned procedure;
    uint64_t id, revision; /* of the allocation */
    uint64_t removed[8];   /* by FLYT_ORDER_APPLY, in place of a change */
    unsigned removed_count;
    uint64_t migration_id;
    bool is_cancel;
    struct applied wanted;
    flyt_call_done_fn done;
    void *user;
    uint64_t deadline_ms;
};

/* A node's part of a migration. */
struct move {
    uint64_t id, allocation_id;
    enum { WITHIN, INCOMING, OUTGOING } kind;
    flyt_migration_phase phase;
    struct applied wanted;
};

struct flyt_peer {
    struct world *world;
    unsigned node;
    struct flyt_identity identity;
    void *user;
};

struct flyt_call {
    struct flyt_peer *peer;
    const char *what;
    bool is_registration;
    struct flyt_vm *vm; /* that is resized */
};

struct sd_event_source {
    uint64_t due_ms;
    sd_event_time_handler_t handler;
    void *user;
};

struct node {
    struct flyt_peer peer;
    struct flyt_link link;
    struct applied applied[ALLOCATIONS];
    struct order orders[ORDERS];
    unsigned order_count, needed_sms;
    struct move moves[MOVES];
    unsigned move_count; /* ever; the last ones are kept */
};

struct world {
    uint64_t random, now_ms;
    struct flyt_cluster_settings settings;
    struct flyt_cluster cluster;
    struct node nodes[WORLD_NODES];
    struct flyt_peer operator;
    struct flyt_link operator_link;
    /* the store */
    cJSON *gpus, *documents, *history, *refused; /* by uuid; by the VM's address; "id revision content" that was
                                                    written; id -> the last revision that a node refused */
    struct flyt_kept *queue, *busy;
    cJSON *snapshot;
    struct job *jobs;
    struct sd_event_source *timers[TIMERS];
    unsigned calls;
    uint64_t may_be_lost; /* writes whose end nobody knows */
    unsigned fail_one_in; /* 0: none fails at once */
};

static struct world *the_world;

/* ---- time and chance ---- */

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    uint64_t now_ms = the_world ? the_world->now_ms : 1000;

    *ret_now = (struct timespec){(time_t)(now_ms / 1000), (long)(now_ms % 1000) * 1000000};
    return 0;
}

/* xorshift64* */
unsigned world_random(struct world *world, unsigned below)
{
    world->random ^= world->random >> 12;
    world->random ^= world->random << 25;
    world->random ^= world->random >> 27;
    return (unsigned)((world->random * 0x2545f4914f6cdd1dull) >> 33) % below;
}

/* ids of allocations: the same for a seed */
ssize_t getrandom(void *bytes, size_t count, unsigned flags)
{
    for (size_t i = 0; i < count; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)world_random(the_world, 256);
    return (ssize_t)count;
}

int sd_event_add_time_relative(sd_event *event, sd_event_source **ret_source, clockid_t clock, uint64_t usec,
                               uint64_t accuracy, sd_event_time_handler_t handler, void *user)
{
    struct sd_event_source *timer = calloc(1, sizeof *timer);

    assert_non_null(timer);
    *timer = (struct sd_event_source){the_world->now_ms + usec / 1000, handler, user};
    for (unsigned i = 0; i < TIMERS; i++)
        if (!the_world->timers[i]) {
            the_world->timers[i] = timer;
            if (ret_source)
                *ret_source = timer;
            return 0;
        }
    fail_msg("too many timers");
    return -1;
}

sd_event_source *sd_event_source_disable_unref(sd_event_source *source)
{
    for (unsigned i = 0; source && i < TIMERS; i++)
        if (the_world->timers[i] == source)
            the_world->timers[i] = NULL;
    free(source);
    return NULL;
}

static void fire_timers(struct world *world)
{
    for (unsigned i = 0; i < TIMERS; i++) {
        struct sd_event_source *timer = world->timers[i];
        if (!timer || timer->due_ms > world->now_ms)
            continue;
        timer->due_ms = UINT64_MAX; /* once; its owner frees it */
        timer->handler(timer, 0, timer->user);
    }
}

/* ---- what is compared ---- */

static void write_content(char *content, const char *state, uint64_t groups, unsigned sm_count, uint64_t memory_bytes)
{
    snprintf(content, CONTENT_BYTES, "%s groups=%" PRIx64 " sms=%u memory=%" PRIu64, state, groups, sm_count,
             memory_bytes);
}

/* The entry of an allocation in a GPU's document has been written. */
static void remember_entry(struct world *world, const cJSON *entry)
{
    char key[64 + CONTENT_BYTES], content[CONTENT_BYTES];
    uint64_t groups = 0;
    const cJSON *group;

    cJSON_ArrayForEach(group, cJSON_GetObjectItemCaseSensitive(entry, "sm_groups")) groups |= 1ull << group->valueint;
    write_content(content, cJSON_GetObjectItemCaseSensitive(entry, "state")->valuestring, groups,
                  (unsigned)cJSON_GetObjectItemCaseSensitive(entry, "sm_count")->valuedouble,
                  (uint64_t)cJSON_GetObjectItemCaseSensitive(entry, "memory_bytes")->valuedouble);
    snprintf(key, sizeof key, "%s %" PRIu64 " %s", cJSON_GetObjectItemCaseSensitive(entry, "id")->valuestring,
             (uint64_t)cJSON_GetObjectItemCaseSensitive(entry, "revision")->valuedouble, content);
    cJSON_DeleteItemFromObjectCaseSensitive(world->history, key);
    cJSON_AddTrueToObject(world->history, key);
}

static void arriving_key(char *key, const char *uuid, const char *id)
{
    snprintf(key, 64, "%.20s arrives on %.20s", id, uuid);
}

static void remember_arriving(struct world *world, const char *uuid, const cJSON *entry)
{
    char key[64];

    arriving_key(key, uuid, cJSON_GetObjectItemCaseSensitive(entry, "id")->valuestring);
    cJSON_DeleteItemFromObjectCaseSensitive(world->history, key);
    cJSON_AddTrueToObject(world->history, key);
}

/* What a node is given was in the store as it is given. */
static void assert_written(const struct world *world, const struct applied *given)
{
    char key[64 + CONTENT_BYTES];

    snprintf(key, sizeof key, "%016" PRIx64 " %" PRIu64 " %s", given->id, given->revision, given->content);
    if (!cJSON_GetObjectItemCaseSensitive(world->history, key))
        fail_msg("allocation and revision %s were ordered and never written", key);
}

/* No two allocations' programs are on the same SMs of a node, and no GPU gives more than it has. */
static void assert_apart(const struct node *node)
{
    for (unsigned gpu = 0; gpu < WORLD_GPUS; gpu++) {
        uint64_t taken = 0, memory_bytes = 0;
        for (unsigned i = 0; i < ALLOCATIONS; i++) {
            const struct applied *one = &node->applied[i];
            if (!one->id || one->gpu != gpu)
                continue;
            if (taken & (one->groups | one->in_use))
                fail_msg("allocation %016" PRIx64 " at revision %" PRIu64 " is on SMs of another one", one->id,
                         one->revision);
            taken |= one->groups | one->in_use;
            memory_bytes += one->memory_bytes;
        }
        assert_true(memory_bytes <= 8 * GIB);
    }
}

static void assert_model(struct world *world)
{
    for (size_t i = 0; i < world->cluster.cards.count; i++) {
        struct flyt_card *card = world->cluster.cards.items[i];
        uint64_t taken = 0, bytes = 0;
        char owner[16];
        snprintf(owner, sizeof owner, "GPU-%c", card->node->key[1]);
        if (strncmp(card->key, owner, strlen(owner)))
            fail_msg("GPU %s is node %s's, and nobody has said so", card->key, card->node->key);
        for (unsigned j = 0; j < card->held_count; j++) {
            const struct flyt_held *held = card->held[j];
            for (unsigned k = 0; k < held->part_count; k++) {
                const struct flyt_part *part = &held->parts[k];
                if (part->card != card)
                    continue;
                uint64_t groups = part->groups.words[0] | part->leaving.words[0];
                assert_int_equal(taken & groups, 0);
                taken |= groups;
                bytes += part->memory_bytes + part->leaving_bytes;
            }
        }
        assert_true(taken >> WORLD_GROUPS == 0);
        if (bytes > 8 * GIB)
            fail_msg("GPU %s has given %" PRIu64 " MiB", card->key, bytes >> 20);
    }
}

/* ---- the store's thread ---- */

struct flyt_kept *flyt_kept_new(struct flyt_keeper *keeper, const char *collection, const char *id, uint64_t revision,
                                cJSON *(*make)(void *object), void *object)
{
    struct flyt_kept *kept = calloc(1, sizeof *kept);

    assert_non_null(kept);
    snprintf(kept->collection, sizeof kept->collection, "%s", collection);
    snprintf(kept->id, sizeof kept->id, "%s", id);
    kept->make = make;
    kept->object = object;
    return kept;
}

static void tell(struct waiter **list, enum flyt_store_result result)
{
    struct waiter *told = *list;

    *list = NULL;
    while (told) {
        struct waiter *waiter = told;
        told = waiter->next;
        if (waiter->done)
            waiter->done(waiter->user, result, result == FLYT_STORE_OK ? "" : "the disk is full");
        free(waiter);
    }
}

struct flyt_kept *flyt_kept_free(struct flyt_kept *kept)
{
    if (!kept)
        return NULL;
    struct flyt_kept **at = &the_world->queue;
    while (*at && *at != kept)
        at = &(*at)->next;
    if (*at)
        *at = kept->next;
    if (the_world->busy == kept) {
        the_world->busy = NULL;
        cJSON_Delete(the_world->snapshot);
        the_world->snapshot = NULL;
    }
    tell(&kept->writing, FLYT_STORE_UNAVAILABLE);
    tell(&kept->waiting, FLYT_STORE_UNAVAILABLE);
    free(kept);
    return NULL;
}

static void add_waiter(struct flyt_kept *kept, flyt_kept_done_fn done, void *user)
{
    struct waiter **end = &kept->waiting, *waiter = calloc(1, sizeof *waiter);

    assert_non_null(waiter);
    *waiter = (struct waiter){done, user, NULL};
    while (*end)
        end = &(*end)->next;
    *end = waiter;
}

void flyt_kept_change(struct flyt_kept *kept, flyt_kept_done_fn done, void *user)
{
    unsigned chance = done && the_world->fail_one_in ? world_random(the_world, the_world->fail_one_in) : UINT_MAX;

    /* 0: no memory for who waits; 1: the store's thread has too much work. The document is written later all the same.
     */
    if (!chance)
        done(user, FLYT_STORE_UNAVAILABLE, "no memory");
    else
        add_waiter(kept, done, user);
    if (chance == 1 && the_world->busy != kept)
        tell(&kept->waiting, FLYT_STORE_UNAVAILABLE);
    if (kept->is_queued)
        return;
    kept->is_queued = true;
    kept->next = NULL;
    struct flyt_kept **last = &the_world->queue;
    while (*last)
        last = &(*last)->next;
    *last = kept;
}

int flyt_keeper_do(struct flyt_keeper *keeper, const char *operation,
                   enum flyt_store_result (*work)(struct flyt_store *store, void *job, struct flyt_error *err),
                   void (*done)(void *job, int is_cancelled), void *user)
{
    struct job **end = &the_world->jobs, *job = calloc(1, sizeof *job);

    assert_non_null(job);
    *job = (struct job){work, done, user, NULL};
    while (*end)
        end = &(*end)->next;
    *end = job;
    return 0;
}

enum flyt_store_result flyt_store_edit(struct flyt_store *store, const char *collection, const char *id,
                                       int (*edit)(cJSON **document, void *user, struct flyt_error *err), void *user,
                                       struct flyt_error *err, int *ret_status)
{
    cJSON *document = cJSON_DetachItemFromObjectCaseSensitive(the_world->documents, id);
    cJSON *before = document ? cJSON_Duplicate(document, true) : NULL;

    *ret_status = edit(&document, user, err);
    if (*ret_status) {
        cJSON_Delete(document);
        document = before;
    } else {
        cJSON_Delete(before);
    }
    if (document)
        cJSON_AddItemToObject(the_world->documents, id, document);
    return FLYT_STORE_OK;
}

static bool run_job(struct world *world)
{
    struct job *job = world->jobs;
    struct flyt_error err = {0};

    if (!job)
        return false;
    world->jobs = job->next;
    job->work(NULL, job->user, &err);
    job->done(job->user, 0);
    free(job);
    return true;
}

static void end_write(struct world *world, bool may_fail)
{
    struct flyt_kept *kept = world->busy;
    unsigned chance = may_fail ? world_random(world, 10) : 9;
    const cJSON *entry;

    /* 0: it was not written; 1: it was, and nobody knows */
    if (chance && !strcmp(kept->collection, "gpus")) {
        cJSON_DeleteItemFromObjectCaseSensitive(world->gpus, kept->id);
        cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(world->snapshot, "allocations"))
            remember_entry(world, entry);
        cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(world->snapshot, "arriving"))
            remember_arriving(world, kept->id, entry);
        cJSON_AddItemToObject(world->gpus, kept->id, world->snapshot);
    } else {
        cJSON_Delete(world->snapshot);
    }
    world->snapshot = NULL;
    world->busy = NULL;
    tell(&kept->writing, chance > 1 ? FLYT_STORE_OK : chance ? FLYT_STORE_UNKNOWN : FLYT_STORE_UNAVAILABLE);
}

bool world_store(struct world *world, bool may_fail)
{
    if (world->busy) {
        end_write(world, may_fail);
    } else if (world->queue && (!world->jobs || world_random(world, 2))) {
        struct flyt_kept *kept = world->queue;
        world->queue = kept->next;
        kept->is_queued = false;
        kept->writing = kept->waiting;
        kept->waiting = NULL;
        world->busy = kept;
        world->snapshot = kept->make(kept->object);
        assert_non_null(world->snapshot);
    } else if (!run_job(world)) {
        return false;
    }
    assert_model(world);
    return true;
}

/* ---- connections ---- */

void *flyt_peer_user(const struct flyt_peer *peer)
{
    return peer->user;
}

void flyt_peer_set_user(struct flyt_peer *peer, void *user)
{
    peer->user = user;
}

const struct flyt_identity *flyt_peer_identity(const struct flyt_peer *peer)
{
    return &peer->identity;
}

struct flyt_peer *flyt_peer_close(struct flyt_peer *peer)
{
    return NULL;
}

struct flyt_peer *flyt_call_peer(const struct flyt_call *call)
{
    return call->peer;
}

const struct flyt_identity *flyt_call_identity(const struct flyt_call *call)
{
    return &call->peer->identity;
}

static struct flyt_call *call_new(struct world *world, struct flyt_peer *peer, const char *what)
{
    struct flyt_call *call = calloc(1, sizeof *call);

    assert_non_null(call);
    *call = (struct flyt_call){.peer = peer, .what = what};
    world->calls++;
    return call;
}

static void take_registration(struct world *world, struct node *node, const flyt_register_res *res);

/* Who is told that a node has refused his size was refused by it, and not for what was ordered before. */
static void assert_refused(const struct flyt_call *call, const flyt_outcome *outcome)
{
    const char *said = strstr(outcome->text, "; revision ");

    if (!call->vm || !call->vm->held || outcome->status != FLYT_STATUS_IN_USE || !said)
        return;
    uint64_t revision = strtoul(said + strlen("; revision "), NULL, 10);
    const cJSON *refused = cJSON_GetObjectItemCaseSensitive(the_world->refused, call->vm->held->id_text);
    if (!refused || (uint64_t)refused->valuedouble < revision)
        fail_msg("allocation %s: no node has refused revision %" PRIu64 ", and it was taken back",
                 call->vm->held->id_text, revision);
}

void flyt_call_reply(struct flyt_call *call, const void *result)
{
    assert_refused(call, result);
    the_world->calls--;
    if (call->is_registration && ((const flyt_register_res *)result)->outcome.status == FLYT_STATUS_OK)
        take_registration(the_world, &the_world->nodes[call->peer->node], result);
    free(call);
}

void flyt_call_fail(struct flyt_call *call)
{
    fail_msg("%s was not answered", call->what);
}

static struct applied applied_of(const flyt_allocation *wire)
{
    const flyt_slot *slot = &wire->slots.slots_val[0];
    struct applied applied = {.id = wire->id,
                              .revision = wire->revision,
                              .state = wire->state,
                              .gpu = (unsigned)(slot->gpu_uuid[6] - '0'),
                              .sm_count = slot->sm_count,
                              .memory_bytes = slot->memory_bytes};

    for (unsigned i = 0; i < slot->sm_groups.sm_groups_len; i++)
        applied.groups |= 1ull << slot->sm_groups.sm_groups_val[i];
    snprintf(applied.vm_ip, sizeof applied.vm_ip, "%s", wire->vm_ip);
    write_content(applied.content, flyt_held_state_name(wire->state), applied.groups, applied.sm_count,
                  applied.memory_bytes);
    return applied;
}

/* The documents list what arrives before a node hears of it. */
static void take_arriving(const struct world *world, unsigned node, struct order *order, const flyt_allocation *wire)
{
    char key[64], id[20];

    order->wanted = applied_of(wire);
    order->id = wire->id;
    snprintf(id, sizeof id, "%016" PRIx64, order->id);
    arriving_key(key, wire->slots.slots_val[0].gpu_uuid, id);
    if (!cJSON_GetObjectItemCaseSensitive(world->history, key))
        fail_msg("node n%u was told that %s, and no document says so", node, key);
}

static void take_apply(const struct world *world, struct order *order, const flyt_apply_args *args)
{
    for (unsigned i = 0; i < args->removed.removed_len; i++)
        order->removed[order->removed_count++] = order->id = args->removed.removed_val[i];
    if (order->removed_count)
        return;
    order->wanted = applied_of(&args->allocations.allocations_val[0]);
    order->id = order->wanted.id;
    order->revision = order->wanted.revision;
    assert_written(world, &order->wanted);
}

static void take_args(const struct world *world, unsigned node, struct order *order, const void *args)
{
    switch (order->procedure) {
    case FLYT_ORDER_APPLY:
        take_apply(world, order, args);
        break;
    case FLYT_ORDER_MIGRATE:
        order->migration_id = ((const flyt_order_migrate_args *)args)->migration_id;
        take_arriving(world, node, order, &((const flyt_order_migrate_args *)args)->allocation);
        break;
    case FLYT_ORDER_RECEIVE:
        order->migration_id = ((const flyt_order_receive_args *)args)->migration_id;
        take_arriving(world, node, order, &((const flyt_order_receive_args *)args)->allocation);
        break;
    case FLYT_ORDER_SEND:
        order->migration_id = ((const flyt_order_send_args *)args)->migration_id;
        order->id = ((const flyt_order_send_args *)args)->allocation_id;
        break;
    case FLYT_ORDER_SWITCH:
        order->migration_id = ((const flyt_order_switch_args *)args)->migration_id;
        break;
    case FLYT_ORDER_SEND_BACK:
        order->migration_id = ((const flyt_order_send_back_args *)args)->migration_id;
        break;
    case FLYT_ORDER_DRAIN:
        order->id = ((const flyt_order_drain_args *)args)->allocation_id;
        break;
    case FLYT_ORDER_MIGRATION:
        order->migration_id = ((const flyt_order_migration_args *)args)->migration_id;
        order->is_cancel = ((const flyt_order_migration_args *)args)->cancel;
        break;
    default:
        fail_msg("no node knows order %u", order->procedure);
    }
}

int flyt_peer_call(struct flyt_peer *peer, uint32_t program, uint32_t version, uint32_t procedure, xdrproc_t xdr_args,
                   const void *data, xdrproc_t xdr_res, size_t result_bytes, uint64_t timeout_ms,
                   flyt_call_done_fn done, void *user)
{
    struct world *world = peer->world;
    struct node *node = &world->nodes[peer->node];

    assert_in_range(node->order_count, 0, ORDERS - 1);
    struct order *order = &node->orders[node->order_count++];
    *order =
        (struct order){.procedure = procedure, .done = done, .user = user, .deadline_ms = world->now_ms + timeout_ms};
    take_args(world, peer->node, order, data);
    return 0;
}

/* ---- nodes ---- */

static struct applied *find_applied(struct node *node, uint64_t id)
{
    for (unsigned i = 0; i < ALLOCATIONS; i++)
        if (node->applied[i].id == id)
            return &node->applied[i];
    return NULL;
}

static flyt_status refuse(const struct applied *wanted)
{
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, wanted->id);
    cJSON_DeleteItemFromObjectCaseSensitive(the_world->refused, id);
    cJSON_AddNumberToObject(the_world->refused, id, (double)wanted->revision);
    return FLYT_STATUS_IN_USE;
}

/* As a node does: a lower revision is stale, the same one is there already, programs keep the SMs that they are on. */
static flyt_status take(struct node *node, const struct applied *wanted)
{
    struct applied *own = find_applied(node, wanted->id);

    if (own && wanted->revision < own->revision)
        return FLYT_STATUS_STALE;
    if (own && wanted->revision == own->revision) {
        if (strcmp(own->content, wanted->content))
            fail_msg("allocation %016" PRIx64 ", revision %" PRIu64 " is two things: %s, %s", own->id, own->revision,
                     own->content, wanted->content);
        return FLYT_STATUS_OK;
    }
    if (own && wanted->sm_count < own->sm_count && wanted->sm_count < node->needed_sms)
        return refuse(wanted);
    uint64_t in_use = own ? own->in_use | own->groups : 0;
    own = own ? own : find_applied(node, 0);
    assert_non_null(own);
    *own = *wanted;
    own->in_use = in_use;
    assert_apart(node);
    return FLYT_STATUS_OK;
}

static flyt_slot_use slot_use_of(const struct applied *applied)
{
    bool is_vacated = !(applied->in_use & ~applied->groups);

    return (flyt_slot_use){.memory_bytes = applied->memory_bytes,
                           .sm_count = applied->sm_count,
                           .switch_state = is_vacated ? FLYT_SWITCH_VACATED : FLYT_SWITCH_SWITCHED};
}

/* ---- moves ---- */

static struct move *find_move(struct node *node, uint64_t id)
{
    for (unsigned i = 0; i < MOVES; i++)
        if (id && node->moves[i].id == id)
            return &node->moves[i];
    return NULL;
}

static bool is_over(const struct move *move)
{
    return move->phase == FLYT_MIGRATION_DONE || move->phase == FLYT_MIGRATION_FAILED;
}

static struct move *move_of(struct node *node, uint64_t allocation_id)
{
    for (unsigned i = 0; i < MOVES; i++)
        if (node->moves[i].allocation_id == allocation_id && !is_over(&node->moves[i]))
            return &node->moves[i];
    return NULL;
}

/* Programs of an allocation are at one place. */
static void assert_one_place(const struct world *world, uint64_t id)
{
    unsigned places = 0;

    for (unsigned i = 0; i < WORLD_NODES; i++)
        for (unsigned j = 0; j < ALLOCATIONS; j++)
            places += world->nodes[i].applied[j].id == id && world->nodes[i].applied[j].in_use;
    if (places > 1)
        fail_msg("programs of allocation %016" PRIx64 " are on two nodes", id);
}

static flyt_status begin_move(struct node *node, const struct order *order)
{
    const struct applied *own = find_applied(node, order->id);
    bool is_incoming = order->procedure == FLYT_ORDER_RECEIVE;

    if (is_incoming == (own != NULL) || move_of(node, order->id))
        return FLYT_STATUS_CONFLICT;
    node->moves[node->move_count++ % MOVES] = (struct move){.id = order->migration_id,
                                                            .allocation_id = order->id,
                                                            .kind = is_incoming                           ? INCOMING
                                                                    : order->procedure == FLYT_ORDER_SEND ? OUTGOING
                                                                                                          : WITHIN,
                                                            .phase = FLYT_MIGRATION_PREPARING,
                                                            .wanted = order->wanted};
    return FLYT_STATUS_OK;
}

/* The store gives the allocation to the other node before its programs are let go. */
static void assert_given_away(const struct world *world, const struct move *move, unsigned node)
{
    const cJSON *document, *entry;
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, move->allocation_id);
    cJSON_ArrayForEach(document, world->gpus)
    {
        bool is_other = cJSON_GetObjectItemCaseSensitive(document, "node")->valuestring[1] != (char)('0' + node);
        cJSON_ArrayForEach(
            entry, cJSON_GetObjectItemCaseSensitive(
                       document, "allocations")) if (is_other &&
                                                     !strcmp(cJSON_GetObjectItemCaseSensitive(entry, "id")->valuestring,
                                                             id)) return;
    }
    fail_msg("node n%u was to let programs of %s go, and no document gives it to the other one", node, id);
}

static flyt_status switch_move(struct world *world, unsigned i, struct move *move)
{
    struct node *node = &world->nodes[i];

    if (!move)
        return FLYT_STATUS_NOT_FOUND;
    if (move->phase == FLYT_MIGRATION_SWITCHING || (move->kind == INCOMING && move->phase == FLYT_MIGRATION_DONE))
        return FLYT_STATUS_OK;
    if (move->phase != FLYT_MIGRATION_ARRIVED)
        return FLYT_STATUS_CONFLICT;
    if (move->kind == INCOMING) {
        assert_int_equal(take(node, &move->wanted), FLYT_STATUS_OK);
    } else {
        assert_given_away(world, move, i);
        find_applied(node, move->allocation_id)->in_use = 0;
    }
    move->phase = FLYT_MIGRATION_SWITCHING;
    return FLYT_STATUS_OK;
}

static flyt_status cancel_move(struct node *node, struct move *move)
{
    struct applied *own = move ? find_applied(node, move->allocation_id) : NULL;

    if (!move)
        return FLYT_STATUS_NOT_FOUND;
    if (move->phase == FLYT_MIGRATION_DONE || (move->kind == OUTGOING && move->phase == FLYT_MIGRATION_SWITCHING))
        return FLYT_STATUS_CONFLICT;
    if (move->kind == INCOMING && own && move->phase == FLYT_MIGRATION_SWITCHING)
        *own = (struct applied){0};
    move->phase = FLYT_MIGRATION_FAILED;
    return FLYT_STATUS_OK;
}

/* Programs that have left go on here. */
static flyt_status send_back(struct world *world, struct node *node, struct move *move)
{
    if (!move)
        return FLYT_STATUS_NOT_FOUND;
    if (move->phase != FLYT_MIGRATION_SWITCHING)
        return FLYT_STATUS_CONFLICT;
    move->phase = FLYT_MIGRATION_FAILED;
    struct applied *own = find_applied(node, move->allocation_id);
    if (own)
        own->in_use = own->groups;
    assert_one_place(world, move->allocation_id);
    return FLYT_STATUS_OK;
}

static flyt_migration_use use_of(const struct move *move)
{
    static char empty[] = "", failed[] = "it went wrong";
    bool has_failed = move->phase == FLYT_MIGRATION_FAILED;

    return (flyt_migration_use){
        .id = move->id,
        .allocation_id = move->allocation_id,
        .phase = move->phase,
        .outcome = {has_failed ? FLYT_STATUS_UNAVAILABLE : FLYT_STATUS_OK, has_failed ? failed : empty},
        .session_count = 1,
        .standstill_us = 1000};
}

static void end_within(struct node *node, struct move *move, bool is_done)
{
    struct applied *own = find_applied(node, move->allocation_id);

    move->phase = is_done && own ? FLYT_MIGRATION_DONE : FLYT_MIGRATION_FAILED;
    if (move->phase != FLYT_MIGRATION_DONE)
        return;
    bool was_in_use = own->in_use != 0;
    *own = move->wanted;
    own->in_use = was_in_use ? own->groups : 0;
    assert_apart(node);
}

/* One of the node's goes on, or (may_fail) goes wrong. Returns whether anything has changed. */
static bool go_on(struct world *world, unsigned i, struct move *move, bool may_fail)
{
    struct node *node = &world->nodes[i];
    struct move *other = find_move(&world->nodes[!i], move->id);
    bool fails = may_fail && !world_random(world, 6);

    if (!move->id || is_over(move))
        return false;
    if (move->kind == WITHIN) {
        end_within(node, move, !fails);
        return true;
    }
    if (fails && move->phase < FLYT_MIGRATION_SWITCHING) {
        move->phase = FLYT_MIGRATION_FAILED;
        return true;
    }
    if (move->kind == OUTGOING && move->phase == FLYT_MIGRATION_PREPARING && other &&
        other->phase == FLYT_MIGRATION_PREPARING) {
        move->phase = other->phase = FLYT_MIGRATION_ARRIVED;
        return true;
    }
    if (move->kind == INCOMING && move->phase == FLYT_MIGRATION_SWITCHING && other &&
        other->phase == FLYT_MIGRATION_SWITCHING) {
        move->phase = FLYT_MIGRATION_DONE;
        struct applied *own = find_applied(node, move->allocation_id);
        assert_non_null(own);
        own->in_use = own->groups;
        assert_apart(node);
        assert_one_place(world, move->allocation_id);
        return true;
    }
    return false;
}

bool world_move(struct world *world, unsigned i, bool may_fail)
{
    struct node *node = &world->nodes[i];
    bool has_changed = false;

    for (unsigned j = 0; j < MOVES; j++) {
        struct move *move = &node->moves[j];
        if (!go_on(world, i, move, may_fail))
            continue;
        has_changed = true;
        flyt_migration_use use = use_of(move);
        if (node->link.node && node->link.node->is_registered && !(may_fail && !world_random(world, 4)))
            flyt_serve_node_migration(call_new(world, &node->peer, "a migration's word"), &use);
    }
    assert_model(world);
    return has_changed;
}

/* ---- what a node answers ---- */

static void answer_apply(const struct order *order, flyt_status status, const struct applied *own)
{
    static char empty[] = "", refused[] = "programs need more";
    char *text = status == FLYT_STATUS_OK ? empty : refused;
    flyt_slot_use slot = own ? slot_use_of(own) : (flyt_slot_use){0};
    flyt_allocation_use use = {.id = order->id,
                               .revision = own ? own->revision : 0,
                               .outcome = {status, text},
                               .session_count = own && own->in_use,
                               .slots = {1, &slot}};
    flyt_apply_res res = {.outcome = {FLYT_STATUS_OK, empty}, .epoch = 1, .uses = {own != NULL, &use}};

    order->done(order->user, 0, &res);
}

static void answer_migration(struct node *node, const struct order *order, flyt_status status)
{
    static char empty[] = "", why[] = "it cannot";
    const struct move *move = find_move(node, order->migration_id);
    flyt_order_migration_res res = {.outcome = {status, status == FLYT_STATUS_OK ? empty : why}};

    res.use = move ? use_of(move) : (flyt_migration_use){.outcome.text = empty};
    order->done(order->user, 0, &res);
}

static flyt_status remove_all(struct world *world, struct node *node, const struct order *order)
{
    for (unsigned i = 0; i < order->removed_count; i++) {
        struct applied *own = find_applied(node, order->removed[i]);
        const struct flyt_held *held = flyt_held_find(&world->cluster, order->removed[i]);
        struct move *move = move_of(node, order->removed[i]);
        if (own && own->in_use && held && !held->is_leaving && held->state != FLYT_ALLOCATION_ENDING)
            fail_msg("programs of allocation %016" PRIx64 " were ended, and it goes on", own->id);
        if (own)
            *own = (struct applied){0};
        if (move)
            move->phase = FLYT_MIGRATION_FAILED;
    }
    return FLYT_STATUS_OK;
}

static flyt_status take_apply_order(struct world *world, struct node *node, const struct order *order)
{
    struct move *move = move_of(node, order->id);

    if (order->removed_count)
        return remove_all(world, node, order);
    if (move && move->kind != OUTGOING)
        fail_msg("allocation %016" PRIx64 " was ordered while it moves", order->id);
    return take(node, &order->wanted);
}

/* What the node does, answered or not. */
static flyt_status obey(struct world *world, unsigned i, const struct order *order)
{
    struct node *node = &world->nodes[i];
    struct move *move = find_move(node, order->migration_id);

    switch (order->procedure) {
    case FLYT_ORDER_MIGRATE:
    case FLYT_ORDER_RECEIVE:
    case FLYT_ORDER_SEND:
        return move ? FLYT_STATUS_OK : begin_move(node, order);
    case FLYT_ORDER_SWITCH:
        return switch_move(world, i, move);
    case FLYT_ORDER_SEND_BACK:
        return send_back(world, node, move);
    case FLYT_ORDER_MIGRATION:
        return order->is_cancel ? cancel_move(node, move) : move ? FLYT_STATUS_OK : FLYT_STATUS_NOT_FOUND;
    case FLYT_ORDER_DRAIN:
        return find_applied(node, order->id) ? FLYT_STATUS_OK : FLYT_STATUS_NOT_FOUND;
    default:
        return take_apply_order(world, node, order);
    }
}

static void answer(struct node *node, const struct order *order, flyt_status status)
{
    static char empty[] = "", why[] = "it cannot";

    switch (order->procedure) {
    case FLYT_ORDER_APPLY:
        answer_apply(order, status, order->removed_count ? NULL : find_applied(node, order->id));
        break;
    case FLYT_ORDER_DRAIN:
        order->done(order->user, 0,
                    &(flyt_order_drain_res){.outcome = {status, status == FLYT_STATUS_OK ? empty : why}});
        break;
    case FLYT_ORDER_SWITCH:
    case FLYT_ORDER_MIGRATION:
        answer_migration(node, order, status);
        break;
    default:
        order->done(order->user, 0, &(flyt_outcome){status, status == FLYT_STATUS_OK ? empty : why});
        break;
    }
}

bool world_answer(struct world *world, unsigned i, bool may_fail)
{
    struct node *node = &world->nodes[i];
    struct order order = node->orders[0];
    flyt_status status = FLYT_STATUS_OK;

    if (!node->order_count)
        return false;
    unsigned chance = may_fail ? world_random(world, 12) : 11;
    memmove(node->orders, node->orders + 1, --node->order_count * sizeof *node->orders);
    if (chance) /* 0: it does not arrive; 1: the answer does not */
        status = obey(world, i, &order);
    if (chance < 2)
        order.done(order.user, -ETIMEDOUT, NULL);
    else
        answer(node, &order, status);
    assert_model(world);
    return true;
}

void world_heartbeat(struct world *world, unsigned i)
{
    struct node *node = &world->nodes[i];
    flyt_allocation_use uses[ALLOCATIONS];
    flyt_slot_use slots[ALLOCATIONS];
    static char empty[] = "";
    flyt_heartbeat_args args = {.uses.uses_val = uses};

    if (!node->link.node || !node->link.node->is_registered)
        return;
    for (unsigned j = 0; j < ALLOCATIONS; j++) {
        struct applied *own = &node->applied[j];
        if (!own->id)
            continue;
        const struct move *move = move_of(node, own->id);
        switch (move && move->phase == FLYT_MIGRATION_SWITCHING ? 3 : world_random(world, 4)) {
        case 0:
            own->in_use &= own->groups; /* what was taken away is left */
            break;
        case 1:
            own->in_use = 0;
            break;
        case 2:
            own->in_use |= own->groups;
            break;
        default:
            break;
        }
        unsigned k = args.uses.uses_len++;
        slots[k] = slot_use_of(own);
        uses[k] = (flyt_allocation_use){.id = own->id,
                                        .revision = own->revision,
                                        .outcome = {FLYT_STATUS_OK, empty},
                                        .session_count = own->in_use != 0,
                                        .slots = {1, &slots[k]}};
    }
    flyt_serve_node_heartbeat(call_new(world, &node->peer, "a heartbeat"), &args);
    assert_model(world);
}

void world_need(struct world *world, unsigned node, unsigned sms)
{
    world->nodes[node].needed_sms = sms;
}

/* Their answers do not arrive. */
static void drop_orders(struct node *node, int error)
{
    while (node->order_count) {
        struct order order = node->orders[0];
        memmove(node->orders, node->orders + 1, --node->order_count * sizeof *node->orders);
        order.done(order.user, error, NULL);
    }
}

void world_disconnect(struct world *world, unsigned i)
{
    struct node *node = &world->nodes[i];

    if (!node->link.node)
        return;
    drop_orders(node, -ECONNRESET);
    flyt_node_unlinked(node->link.node, "cut");
    node->link.node = NULL;
    assert_model(world);
}

struct flyt_link *flyt_call_link(const struct flyt_call *call)
{
    return call->peer->user;
}

struct flyt_cluster *flyt_call_cluster(const struct flyt_call *call)
{
    return flyt_call_link(call)->cluster;
}

/* The node connects again sometime. */
void flyt_link_close(struct flyt_link *link, const char *why)
{
    world_disconnect(the_world, link->peer->node);
}

static void take_registration(struct world *world, struct node *node, const flyt_register_res *res)
{
    for (unsigned i = 0; i < res->allocations.allocations_len; i++) {
        struct applied given = applied_of(&res->allocations.allocations_val[i]);
        struct applied *own = find_applied(node, given.id);
        if (!own || own->revision != given.revision || strcmp(own->content, given.content))
            assert_written(world, &given);
        if (take(node, &given) == FLYT_STATUS_STALE)
            assert_true(own != NULL);
    }
}

static flyt_gpu gpu_report(const char *uuid, unsigned index)
{
    static u_int group_sms[WORLD_GROUPS] = {8, 8, 8, 8, 8, 8, 8, 8};
    static char empty[] = "", type[] = "SOFT";

    return (flyt_gpu){.uuid = (char *)uuid,
                      .index = index,
                      .type = type,
                      .sm_count = 64,
                      .group_size = 8,
                      .group_sms = {WORLD_GROUPS, group_sms},
                      .memory_bytes = 8 * GIB,
                      .client_slots = 48,
                      .health_text = empty,
                      .compute_major = 9};
}

void world_register(struct world *world, unsigned i, bool claims)
{
    static char boot[] = "boot", ip[] = "127.0.0.1", empty[] = "";
    struct node *node = &world->nodes[i];
    flyt_gpu gpus[WORLD_GPUS + 1];
    char uuids[WORLD_GPUS + 1][16], name[16];
    flyt_allocation wires[ALLOCATIONS] = {0};
    flyt_allocation_use uses[ALLOCATIONS];
    flyt_slot_use slot_uses[ALLOCATIONS];
    flyt_slot slots[ALLOCATIONS] = {0};
    u_int groups[ALLOCATIONS][WORLD_GROUPS];
    static char url[] = "tcp://127.0.0.1:9";
    flyt_url_text urls[] = {url};
    flyt_register_args args = {
        .data_urls = {1, urls}, .boot_id = boot, .host_ip = ip, .gpus = {WORLD_GPUS + claims, gpus}};

    /* Of a GPU that nobody has written down yet nothing is known. */
    snprintf(name, sizeof name, "GPU-%u:0", !i);
    claims = claims && flyt_table_find(&world->cluster.cards, name);
    args.gpus.gpus_len = WORLD_GPUS + claims;
    if (node->link.node && node->link.node->is_registered && !claims)
        return;
    snprintf(name, sizeof name, "n%u", i);
    node->link.node = flyt_node_get(&world->cluster, name);
    node->link.node->link = &node->link;
    for (unsigned j = 0; j < WORLD_GPUS + (unsigned)claims; j++) {
        snprintf(uuids[j], sizeof uuids[j], "GPU-%u:%u", j < WORLD_GPUS ? i : !i, j % WORLD_GPUS);
        gpus[j] = gpu_report(uuids[j], j);
    }
    args.allocations.allocations_val = wires;
    args.uses.uses_val = uses;
    for (unsigned j = 0; j < ALLOCATIONS; j++) {
        const struct applied *own = &node->applied[j];
        if (!own->id)
            continue;
        unsigned k = args.allocations.allocations_len++;
        args.uses.uses_len++;
        for (unsigned group = 0; group < WORLD_GROUPS; group++)
            if (own->groups >> group & 1)
                groups[k][slots[k].sm_groups.sm_groups_len++] = group;
        slots[k].sm_groups.sm_groups_val = groups[k];
        slots[k].gpu_uuid = uuids[own->gpu];
        slots[k].sm_count = own->sm_count;
        slots[k].memory_bytes = own->memory_bytes;
        wires[k] = (flyt_allocation){.id = own->id,
                                     .vm_ip = (char *)own->vm_ip,
                                     .tenant = empty,
                                     .state = own->state,
                                     .revision = own->revision,
                                     .generation = 1,
                                     .sessions_max = 8,
                                     .slots = {1, &slots[k]}};
        slot_uses[k] = slot_use_of(own);
        uses[k] = (flyt_allocation_use){.id = own->id,
                                        .revision = own->revision,
                                        .outcome = {FLYT_STATUS_OK, empty},
                                        .session_count = own->in_use != 0,
                                        .slots = {1, &slot_uses[k]}};
    }
    struct flyt_call *call = call_new(world, &node->peer, "a registration");
    call->is_registration = true;
    flyt_serve_node_register(call, &args);
    assert_model(world);
}

/* ---- callers ---- */

struct flyt_cluster *world_cluster(struct world *world)
{
    return &world->cluster;
}

static const char *vm_ip(unsigned i, char *ip)
{
    snprintf(ip, 16, "10.0.0.%u", i + 1);
    return ip;
}

struct flyt_vm *world_vm(struct world *world, unsigned i)
{
    char ip[16];

    return flyt_vm_get(&world->cluster, vm_ip(i, ip));
}

void world_document(struct world *world, unsigned i, unsigned sms, unsigned gib, bool is_reserved, unsigned minimum_pct)
{
    char ip[16];

    cJSON_DeleteItemFromObjectCaseSensitive(world->documents, vm_ip(i, ip));
    cJSON *document = sms ? cJSON_CreateObject() : NULL;
    if (document) {
        cJSON_AddStringToObject(document, "vm_ip", ip);
        cJSON_AddNumberToObject(document, "compute_units", sms);
        cJSON_AddNumberToObject(document, "memory", gib);
        cJSON_AddBoolToObject(document, "reserved", is_reserved);
        if (minimum_pct)
            cJSON_AddNumberToObject(document, "minimum_share", minimum_pct);
        cJSON_AddItemToObject(world->documents, ip, document);
    }
    cJSON *copy = document ? cJSON_Duplicate(document, true) : NULL;
    flyt_wish_written(&world->cluster, ip, copy);
    cJSON_Delete(copy);
    assert_model(world);
}

void world_attach(struct world *world, unsigned i)
{
    char ip[16];
    struct flyt_link link = {.cluster = &world->cluster, .kind = FLYT_PEER_VM, .vm = world_vm(world, i)};
    struct flyt_peer peer = {.world = world, .user = &link};
    struct flyt_call *call = call_new(world, &peer, "an attach");

    snprintf(link.name, sizeof link.name, "%s", vm_ip(i, ip));
    flyt_serve_vm_attach(call, &(flyt_attach_args){.is_waiting = true});
    assert_model(world);
}

static void resize(struct world *world, unsigned i, const flyt_resize_args *named)
{
    char ip[16];
    flyt_resize_args args = *named;

    vm_ip(i, ip);
    args.vm = ip;
    struct flyt_call *call = call_new(world, &world->operator, "a resize");
    call->vm = world_vm(world, i);
    flyt_serve_resize(call, &args);
    assert_model(world);
}

void world_resize(struct world *world, unsigned i, unsigned sms, uint64_t memory_bytes, bool when_free,
                  unsigned timeout_ms)
{
    resize(world, i,
           &(flyt_resize_args){.compute_units = {sms != 0, sms},
                               .memory_bytes = {memory_bytes != 0, memory_bytes},
                               .when_free = when_free,
                               .timeout_ms = timeout_ms});
}

void world_migrate(struct world *world, unsigned i, unsigned node, int gpu, unsigned sms)
{
    char ip[16], target[16], *name = ip;

    if (gpu < 0)
        snprintf(target, sizeof target, "n%u", node);
    else
        snprintf(target, sizeof target, "n%u:%d", node, gpu);
    vm_ip(i, ip);
    flyt_migrate_args args = {.vm = name, .target = target, .compute_units = {sms != 0, sms}};
    flyt_serve_migrate(call_new(world, &world->operator, "a migrate"), &args);
    assert_model(world);
}

void world_suspend(struct world *world, unsigned i, bool is_suspended)
{
    resize(world, i, &(flyt_resize_args){.is_suspended = {true, is_suspended}});
}

void world_end(struct world *world, unsigned i)
{
    struct flyt_vm *vm = world_vm(world, i);

    if (vm->held && vm->held->is_granted && !vm->held->is_leaving)
        flyt_held_end(vm->held, "operator", "a test");
    assert_model(world);
}

void world_drain(struct world *world, unsigned i)
{
    char ip[16];
    flyt_drain_args args = {.vm = (char *)vm_ip(i, ip), .timeout_ms = 5000};

    flyt_serve_drain(call_new(world, &world->operator, "a drain"), &args);
    assert_model(world);
}

void world_adopt(struct world *world, unsigned i)
{
    char ip[16];

    vm_ip(i, ip);
    for (size_t j = 0; j < world->cluster.held.count; j++) {
        const struct flyt_held *held = world->cluster.held.items[j];
        if (held->state != FLYT_ALLOCATION_ORPHAN || strcmp(held->vm_ip, ip))
            continue;
        flyt_allocation_args args = {.id = held->id, .action = FLYT_ALLOCATION_ADOPT};
        flyt_serve_allocation(call_new(world, &world->operator, "an adoption"), &args);
        assert_model(world);
        return;
    }
    fail_msg("VM %s has no orphan", ip);
}

/* ---- the end of all things ---- */

void world_pass(struct world *world, uint64_t ms)
{
    world->now_ms += ms;
    for (unsigned i = 0; i < WORLD_NODES; i++)
        while (world->nodes[i].order_count && world->nodes[i].orders[0].deadline_ms <= world->now_ms) {
            struct node *node = &world->nodes[i];
            struct order order = node->orders[0];
            memmove(node->orders, node->orders + 1, --node->order_count * sizeof *node->orders);
            order.done(order.user, -ETIMEDOUT, NULL);
        }
    fire_timers(world);
    flyt_node_tick(&world->cluster);
    flyt_held_tick(&world->cluster);
    flyt_vm_tick(&world->cluster);
    flyt_resize_tick(&world->cluster);
    flyt_migration_tick(&world->cluster);
    assert_model(world);
}

static bool is_at_rest(struct world *world)
{
    bool is_quiet = !world->queue && !world->busy && !world->jobs && !world->calls;

    for (unsigned i = 0; i < WORLD_NODES; i++)
        is_quiet &= !world->nodes[i].order_count;
    for (size_t i = 0; i < world->cluster.vms.count; i++)
        is_quiet &= TAILQ_EMPTY(&((struct flyt_vm *)world->cluster.vms.items[i])->resizes);
    for (size_t i = 0; i < world->cluster.held.count && is_quiet; i++) {
        const struct flyt_held *held = world->cluster.held.items[i];
        is_quiet = held->is_granted && !held->is_leaving && held->written_revision == held->revision &&
                   held->applied_revision == held->revision && !held->resize && !held->migration;
    }
    return is_quiet;
}

static void assert_agree(struct world *world)
{
    for (unsigned i = 0; i < WORLD_NODES; i++)
        for (unsigned j = 0; j < ALLOCATIONS; j++) {
            const struct applied *own = &world->nodes[i].applied[j];
            if (!own->id)
                continue;
            const struct flyt_held *held = flyt_held_find(&world->cluster, own->id);
            if (!held)
                fail_msg("node n%u has allocation %016" PRIx64 ", which nobody knows", i, own->id);
            assert_int_equal(held->revision, own->revision);
            assert_written(world, own);
        }
}

void world_strain(struct world *world, unsigned one_in)
{
    world->fail_one_in = one_in;
}

void world_refuse(struct world *world)
{
    for (struct flyt_kept *kept = world->queue; kept; kept = kept->next)
        tell(&kept->waiting, FLYT_STORE_UNAVAILABLE);
    assert_model(world);
}

void world_restore(struct world *world)
{
    cJSON *document;

    cJSON_ArrayForEach(document, world->gpus) cJSON_DeleteItemFromObjectCaseSensitive(document, "allocations");
    world_takeover(world);
}

void world_settle(struct world *world)
{
    world->fail_one_in = 0;
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        world_need(world, i, 0); /* a recorded size that a node refuses takes hold when its programs need no more */
        world_register(world, i, false);
    }
    for (unsigned round = 0; round < 3000; round++) {
        while (world_store(world, false))
            ;
        for (unsigned i = 0; i < WORLD_NODES; i++) {
            while (world_answer(world, i, false))
                ;
            world_move(world, i, false);
            world_register(world, i, false);
            world_heartbeat(world, i);
        }
        if (is_at_rest(world)) {
            assert_agree(world);
            return;
        }
        world_pass(world, 1000);
    }
    for (size_t i = 0; i < world->cluster.held.count; i++) {
        const struct flyt_held *held = world->cluster.held.items[i];
        print_message("allocation %s vm=%s state=%s revision=%" PRIu64 " written=%" PRIu64 " applied=%" PRIu64
                      " granted=%d leaving=%d ordering=%d resize=%p move=%d\n",
                      held->id_text, held->vm_ip, flyt_held_state_name(held->state), held->revision,
                      held->written_revision, held->applied_revision, held->is_granted, held->is_leaving,
                      held->is_ordering, (void *)held->resize, held->migration ? (int)held->migration->state : -1);
    }
    for (size_t i = 0; i < world->cluster.vms.count; i++) {
        const struct flyt_vm *vm = world->cluster.vms.items[i];
        if (!TAILQ_EMPTY(&vm->resizes))
            print_message("a resize of VM %s waits; its allocation: %s\n", vm->key,
                          vm->held ? vm->held->id_text : "none");
    }
    fail_msg("it does not come to an end: %u calls wait, the store %s", world->calls,
             world->queue || world->busy || world->jobs ? "has work" : "has none");
}

static const struct flyt_cluster_ops ops = {
    .allocation_used = flyt_held_used,
    .allocation_removed = flyt_held_removed,
    .allocation_answered = flyt_migration_go_on,
    .allocation_observed = flyt_resize_look,
};

struct world *world_new(uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);
    static char tenant[] = "default";

    assert_non_null(world);
    the_world = world;
    world->random = seed * 0x9e3779b97f4a7c15ull + 1;
    world->now_ms = 1000000;
    world->settings = (struct flyt_cluster_settings){.tenant = tenant,
                                                     .window_ms = 100,
                                                     .sessions = 8,
                                                     .isolation = FLYT_ISOLATION_SHARED,
                                                     .allocation_linger_ms = 20000,
                                                     .heartbeat_ms = 500,
                                                     .node_lost_ms = 10000,
                                                     .client_lost_ms = 30000,
                                                     .order_ms = 5000};
    struct flyt_cluster *cluster = &world->cluster;
    cluster->user_kind = FLYT_USER_CLUSTER;
    cluster->settings = &world->settings;
    cluster->ops = &ops;
    cluster->is_leader = cluster->is_loaded = cluster->is_store_available = true;
    cluster->epoch = cluster->read_epoch = 1;
    TAILQ_INIT(&cluster->links);
    world->gpus = cJSON_CreateObject();
    world->documents = cJSON_CreateObject();
    world->history = cJSON_CreateObject();
    world->refused = cJSON_CreateObject();
    world->operator_link =
        (struct flyt_link){.user_kind = FLYT_USER_LINK, .cluster = cluster, .kind = FLYT_PEER_OPERATOR};
    world->operator=(struct flyt_peer){.world = world, .user = &world->operator_link};
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        struct node *node = &world->nodes[i];
        node->link = (struct flyt_link){
            .user_kind = FLYT_USER_LINK, .cluster = cluster, .kind = FLYT_PEER_NODE, .peer = &node->peer};
        node->peer = (struct flyt_peer){.world = world, .node = i, .user = &node->link};
        world_register(world, i, false);
    }
    return world;
}

static void forget_table(struct flyt_table *table, void (*free_one)(void *one))
{
    struct flyt_table old = *table;

    *table = (struct flyt_table){0};
    for (size_t i = 0; i < old.count; i++)
        free_one(old.items[i]);
    flyt_table_fini(&old);
}

static void free_held(void *held)
{
    flyt_held_free(held);
}

static void free_wish(void *wish)
{
    flyt_wish_free(wish);
}

static void free_vm(void *one)
{
    struct flyt_vm *vm = one;

    flyt_resize_cancel(vm, "the end");
    flyt_vm_answer(vm, FLYT_STATUS_NOT_LEADER, "the end");
    flyt_vm_free(vm);
}

static void free_node(void *node)
{
    flyt_node_free(node);
}

static void free_tenant(void *one)
{
    struct flyt_tenant *tenant = one;

    free((char *)tenant->key);
    free(tenant);
}

/* As flyt_cluster_forget, in its order. */
static void forget(struct world *world)
{
    struct flyt_cluster *cluster = &world->cluster;
    struct flyt_table cards = cluster->cards;

    for (unsigned i = 0; i < WORLD_NODES; i++)
        world->nodes[i].link.node = NULL;
    for (size_t i = 0; i < cluster->vms.count; i++) {
        struct flyt_vm *vm = cluster->vms.items[i];
        vm->held = NULL;
        vm->link = NULL;
    }
    cluster->cards = (struct flyt_table){0};
    forget_table(&cluster->held, free_held);
    for (size_t i = 0; i < cards.count; i++)
        flyt_gpu_free(cards.items[i]);
    flyt_table_fini(&cards);
    forget_table(&cluster->wishes, free_wish);
    forget_table(&cluster->vms, free_vm);
    forget_table(&cluster->nodes, free_node);
    free(cluster->place_nodes);
    cluster->place_nodes = NULL;
    cluster->place_room = 0;
    forget_table(&cluster->tenants, free_tenant);
    cJSON_Delete(cluster->migrations);
    cluster->migrations = NULL;
    while (run_job(world))
        ;
    for (unsigned i = 0; i < WORLD_NODES; i++)
        drop_orders(&world->nodes[i], -ECONNRESET);
    assert_int_equal(world->calls, 0);
}

void world_takeover(struct world *world)
{
    struct flyt_cluster *cluster = &world->cluster;
    cJSON *document;

    if (world->busy)
        end_write(world, true);
    cluster->is_leader = cluster->is_loaded = false;
    forget(world);
    cJSON_ArrayForEach(document, world->gpus)
    {
        cJSON *stored = cJSON_Duplicate(document, true);
        cJSON_AddStringToObject(stored, "_id", document->string);
        cJSON_AddNumberToObject(stored, "revision", 1);
        assert_int_equal(flyt_gpu_load(cluster, stored), 0);
        cJSON_Delete(stored);
    }
    cluster->is_leader = cluster->is_loaded = true;
    flyt_held_loaded(cluster);
    cJSON_ArrayForEach(document, world->documents) flyt_wish_written(cluster, document->string, document);
    assert_model(world);
}

void world_free(struct world *world)
{
    struct flyt_cluster *cluster = &world->cluster;

    forget(world);
    sd_event_source_disable_unref(cluster->try_timer);
    cJSON_Delete(world->gpus);
    cJSON_Delete(world->documents);
    cJSON_Delete(world->history);
    cJSON_Delete(world->refused);
    the_world = NULL;
    free(world);
}

/* ---- what the program has besides, and nobody looks at here ---- */

void flyt_event_add(struct flyt_cluster *cluster, const char *kind, const char *who, const char *object, cJSON *before,
                    cJSON *after, const char *format, ...)
{
    if (getenv("WORLD_EVENTS")) {
        char text[600];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        print_message("%" PRIu64 " %s %s: %s\n", the_world->now_ms, kind, object, text);
    }
    cJSON_Delete(before);
    cJSON_Delete(after);
}

bool flyt_lead_may(struct flyt_cluster *cluster, struct flyt_call *call)
{
    return true;
}

bool flyt_lead_knows_wishes(const struct flyt_cluster *cluster)
{
    return true;
}

void flyt_lead_claimed(struct flyt_cluster *cluster, struct flyt_node *node, uint64_t epoch)
{
    fail_msg("nobody has another epoch here");
}

void flyt_measure_attach(struct flyt_cluster *cluster, uint64_t took_us, bool has_failed)
{
}

void flyt_measure_heartbeat(struct flyt_cluster *cluster, const char *node)
{
}

void flyt_measure_limit(struct flyt_cluster *cluster, const char *limit)
{
}

void flyt_measure_placement(struct flyt_cluster *cluster, uint64_t took_ns)
{
}

void flyt_measure_migration(struct flyt_cluster *cluster, const struct flyt_migration *migration)
{
}

void flyt_measure_saving(struct flyt_cluster *cluster, const struct flyt_saving *saving)
{
}

/* Documents come by world_document. */
enum flyt_store_result flyt_store_list(struct flyt_store *store, const char *collection, const char *after,
                                       unsigned limit, struct flyt_error *err, cJSON **ret_documents)
{
    return FLYT_STORE_UNAVAILABLE;
}
