/* Leadership with clocks that the tests turn: over a store in memory that makes every fault a network can make, over
 * SQLite, and over MongoDB (or its stand-in). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "control/store/json.h"
#include "control/store/lease.h"
#include "control/store/store_ops.h"
#include "control/store/test_mongod.h"
#include "control/store/test_store.h"
#include "rpc/base/test_random.h"

enum { LEASE_MS = 6000, RENEW_MS = 2000, WAIT_MS = LEASE_MS + LEASE_MS / 16, MANAGERS_MAX = 4 };

/* ---- time: one true time, of which each manager has its own clock ---- */

static uint64_t true_us;

struct clock {
    uint64_t offset_ms;
    unsigned rate_ppm; /* of the true time: 1000000 */
};

static uint64_t clock_ms(void *user)
{
    struct clock *clock = user;

    return clock->offset_ms + true_us / 1000 * clock->rate_ppm / 1000000;
}

static void pass_ms(uint64_t ms)
{
    true_us += ms * 1000;
}

/* ---- a shared store in memory ---- */

enum fault { NO_FAULT, REFUSED, LOST_BEFORE, LOST_AFTER };

struct server {
    cJSON *document; /* meta/lease */
    uint64_t revision;
};

struct fake_store {
    struct flyt_store store;
    struct server *server;
    enum fault fault;             /* of every call, until it is changed */
    uint64_t before_ms, after_ms; /* pass before the server has it, and before the answer is there */
    void (*between)(void);        /* runs in both places */
};

static void travel(uint64_t ms, struct fake_store *fake)
{
    pass_ms(ms);
    if (fake->between)
        fake->between();
}

static enum flyt_store_result fake_get(struct flyt_store *store, const char *collection, const char *id,
                                       struct flyt_error *err, cJSON **ret_document)
{
    struct fake_store *fake = (struct fake_store *)store;
    cJSON *document;

    travel(fake->before_ms, fake);
    document = cJSON_Duplicate(fake->server->document, 1);
    uint64_t revision = fake->server->revision;
    travel(fake->after_ms, fake);
    if (fake->fault == REFUSED) {
        cJSON_Delete(document);
        return flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "down");
    }
    if (!document)
        return flyt_store_fail(err, FLYT_STORE_NOT_FOUND, "none");
    flyt_json_set_store_members(document, id, revision);
    *ret_document = document;
    return FLYT_STORE_OK;
}

static enum flyt_store_result fake_put(struct flyt_store *store, const char *collection, const char *id,
                                       uint64_t revision, const cJSON *seen, const cJSON *document,
                                       struct flyt_error *err)
{
    struct fake_store *fake = (struct fake_store *)store;
    struct server *server = fake->server;
    enum flyt_store_result result = FLYT_STORE_OK;

    travel(fake->before_ms, fake);
    if (fake->fault == REFUSED)
        return flyt_store_fail(err, FLYT_STORE_UNAVAILABLE, "down");
    if (fake->fault != LOST_BEFORE) {
        bool is_there = server->document != NULL;
        if (!is_there && (revision || seen))
            result = FLYT_STORE_NOT_FOUND;
        else if (is_there && (server->revision != revision || (!revision && !seen) ||
                              (seen && !flyt_json_equal(seen, server->document, true))))
            result = FLYT_STORE_CONFLICT;
        if (result == FLYT_STORE_OK) {
            cJSON_Delete(server->document);
            server->document = cJSON_Duplicate(document, 1);
            server->revision = revision + 1;
        }
    }
    travel(fake->after_ms, fake);
    if (fake->fault == LOST_BEFORE || fake->fault == LOST_AFTER)
        result = FLYT_STORE_UNKNOWN;
    return result ? flyt_store_fail(err, result, "%s", flyt_store_result_name(result)) : FLYT_STORE_OK;
}

static const struct flyt_store_ops fake_ops = {.get = fake_get, .put = fake_put};

/* ---- managers ---- */

struct manager {
    struct fake_store fake;
    struct clock clock;
    struct flyt_lease *lease;
    uint64_t last_epoch, ended_epoch;
    bool is_busy; /* inside a step */
};

static struct server server;
static struct manager managers[MANAGERS_MAX];

static struct flyt_lease *new_lease(struct flyt_store *store, const char *holder, struct clock *clock)
{
    struct flyt_lease_config config = {.store = store,
                                       .holder = holder,
                                       .address = "tcp://10.0.0.1:7000",
                                       .lease_ms = LEASE_MS,
                                       .renew_ms = RENEW_MS,
                                       .now_ms = clock_ms,
                                       .user = clock};
    struct flyt_lease *lease = NULL;

    assert_int_equal(flyt_lease_new(&config, &lease), 0);
    return lease;
}

static int set_up(void **state)
{
    memset(&server, 0, sizeof server);
    memset(managers, 0, sizeof managers);
    true_us = 1000000000;
    for (unsigned i = 0; i < MANAGERS_MAX; i++) {
        struct manager *m = &managers[i];
        char name[16];

        snprintf(name, sizeof name, "manager-%u", i);
        m->fake.store.ops = &fake_ops;
        m->fake.store.is_shared = true;
        m->fake.server = &server;
        m->clock.offset_ms = i * 1000003;
        m->clock.rate_ppm = 1000000;
        m->lease = new_lease(&m->fake.store, name, &m->clock);
    }
    return 0;
}

static int tear_down(void **state)
{
    for (unsigned i = 0; i < MANAGERS_MAX; i++)
        flyt_lease_free(managers[i].lease);
    cJSON_Delete(server.document);
    return 0;
}

static enum flyt_store_result step(unsigned i)
{
    struct flyt_error err = {0};
    enum flyt_store_result result = flyt_lease_step(managers[i].lease, &err);

    assert_true(result != FLYT_STORE_NOT_FOUND && result != FLYT_STORE_CONFLICT);
    assert_true(result == FLYT_STORE_OK || *err.text);
    return result;
}

static bool leads(unsigned i)
{
    return flyt_lease_is_leader(managers[i].lease);
}

static uint64_t epoch_of(unsigned i)
{
    return flyt_lease_epoch(managers[i].lease);
}

/* Manager 0 becomes the leader of a new store. */
static void make_leader(void)
{
    step(0);
    pass_ms(WAIT_MS);
    step(0);
    assert_true(leads(0));
}

/* ---- one thing each ---- */

static void test_absent_lease_is_watched_first(void **state)
{
    struct flyt_lease_view view;

    flyt_lease_get_view(managers[0].lease, &view);
    assert_int_equal(view.state, FLYT_LEASE_WATCHING);
    assert_int_equal(step(0), FLYT_STORE_OK);
    pass_ms(WAIT_MS - 1);
    step(0);
    assert_false(leads(0));
    assert_null(server.document);
    pass_ms(1);
    step(0);
    assert_true(leads(0));
    assert_int_equal(epoch_of(0), 1);
    flyt_lease_get_view(managers[0].lease, &view);
    assert_int_equal(view.state, FLYT_LEASE_LEADING);
    assert_string_equal(view.holder, "manager-0");
    assert_int_equal(view.left_ms, LEASE_MS);
    assert_string_equal(cJSON_GetObjectItem(server.document, "holder")->valuestring, "manager-0");
    assert_int_equal(cJSON_GetObjectItem(server.document, "epoch")->valuedouble, 1);
}

static void test_renewals_keep_it(void **state)
{
    struct flyt_lease_view view;

    make_leader();
    for (unsigned round = 0; round < 50; round++) {
        pass_ms(RENEW_MS);
        assert_int_equal(step(0), FLYT_STORE_OK);
        assert_int_equal(step(1), FLYT_STORE_OK);
        assert_true(leads(0));
        assert_false(leads(1));
    }
    assert_int_equal(epoch_of(0), 1);
    assert_int_equal(server.revision, 51);
    flyt_lease_get_view(managers[1].lease, &view);
    assert_string_equal(view.holder, "manager-0");
    assert_string_equal(view.address, "tcp://10.0.0.1:7000");
    assert_int_equal(view.epoch, 1);
    /* A step too soon writes nothing. */
    step(0);
    assert_int_equal(server.revision, 51);
}

static void test_takeover_and_the_old_leader_wakes(void **state)
{
    make_leader();
    step(1);
    /* Manager 0 stands still. Its time is over before anybody takes over, without it having done anything. */
    pass_ms(LEASE_MS - 1);
    assert_true(leads(0));
    pass_ms(1);
    assert_false(leads(0));
    assert_int_equal(epoch_of(0), 0);
    step(1);
    assert_false(leads(1));
    pass_ms(WAIT_MS - LEASE_MS);
    step(1);
    assert_true(leads(1));
    assert_int_equal(epoch_of(1), 2);
    /* It wakes. */
    assert_false(leads(0));
    assert_int_equal(step(0), FLYT_STORE_OK);
    assert_false(leads(0));
    struct flyt_lease_view view;
    flyt_lease_get_view(managers[0].lease, &view);
    assert_string_equal(view.holder, "manager-1");
    /* And takes over in its turn, when the other one stands still. */
    pass_ms(WAIT_MS);
    step(0);
    assert_true(leads(0));
    assert_int_equal(epoch_of(0), 3);
    assert_false(leads(1));
}

static void test_release_needs_no_waiting(void **state)
{
    make_leader();
    step(1);
    assert_int_equal(flyt_lease_release(managers[0].lease, NULL), FLYT_STORE_OK);
    assert_false(leads(0));
    step(1);
    assert_true(leads(1));
    assert_int_equal(epoch_of(1), 2);
    /* One that does not lead releases nothing. */
    assert_int_equal(flyt_lease_release(managers[0].lease, NULL), FLYT_STORE_OK);
    assert_true(leads(1));
    pass_ms(RENEW_MS);
    step(1);
    assert_true(leads(1));
}

static uint64_t left_ms(unsigned i)
{
    struct flyt_lease_view view;

    flyt_lease_get_view(managers[i].lease, &view);
    return view.left_ms;
}

/* A contender knows when its step may take the lease, and that is the first one that does. */
static void test_contender_knows_when(void **state)
{
    assert_true(left_ms(1) == UINT64_MAX);
    make_leader();
    step(1);
    assert_int_equal(left_ms(1), WAIT_MS);
    pass_ms(RENEW_MS);
    step(1);
    assert_int_equal(left_ms(1), WAIT_MS - RENEW_MS);
    step(0);
    step(1); /* sees the renewal */
    assert_int_equal(left_ms(1), WAIT_MS);
    pass_ms(left_ms(1) - 1);
    step(1);
    assert_false(leads(1));
    assert_int_equal(left_ms(1), 1);
    pass_ms(1);
    assert_int_equal(left_ms(1), 0);
    step(1);
    assert_true(leads(1));
    /* The old one has seen nothing yet: what it wrote itself it may take at once. */
    assert_int_equal(left_ms(0), 0);
    step(0);
    assert_int_equal(left_ms(0), WAIT_MS);
    assert_int_equal(flyt_lease_release(managers[1].lease, NULL), FLYT_STORE_OK);
    step(0);
    assert_true(leads(0));
}

static void test_time_counts_from_before_sending(void **state)
{
    make_leader();
    pass_ms(RENEW_MS);
    /* The renewal takes 3 s on its way and the answer as long again. */
    managers[0].fake.before_ms = 1500;
    managers[0].fake.after_ms = 1500;
    uint64_t sent_us = true_us;
    step(0);
    assert_true(leads(0));
    managers[0].fake.before_ms = managers[0].fake.after_ms = 0;
    pass_ms(LEASE_MS - (true_us - sent_us) / 1000 - 1);
    assert_true(leads(0));
    pass_ms(1);
    assert_false(leads(0));
}

static void test_late_answer_revives_nothing(void **state)
{
    make_leader();
    pass_ms(RENEW_MS);
    /* Sent in time, answered when the old time is over and the new one would not be. */
    managers[0].fake.after_ms = LEASE_MS - RENEW_MS;
    assert_int_equal(step(0), FLYT_STORE_OK);
    managers[0].fake.after_ms = 0;
    assert_false(leads(0));
    /* The document is still its own, so that it may lead again at once: under another epoch. */
    step(0);
    assert_true(leads(0));
    assert_int_equal(epoch_of(0), 2);
}

static void test_store_that_is_down_ends_it(void **state)
{
    make_leader();
    managers[0].fake.fault = REFUSED;
    for (unsigned i = 0; i < 5; i++) {
        pass_ms(1000);
        if (i)
            assert_int_equal(step(0), FLYT_STORE_UNAVAILABLE);
        assert_true(leads(0));
    }
    pass_ms(1000);
    assert_int_equal(step(0), FLYT_STORE_UNAVAILABLE);
    assert_false(leads(0));
    managers[0].fake.fault = NO_FAULT;
    step(0);
    assert_true(leads(0));
    assert_int_equal(epoch_of(0), 2);
}

static void test_unknown_renewals_are_looked_up(void **state)
{
    make_leader();
    /* Written, and the answer lost: reading it again confirms it, from when it was sent. */
    pass_ms(RENEW_MS);
    managers[0].fake.fault = LOST_AFTER;
    assert_int_equal(step(0), FLYT_STORE_UNKNOWN);
    managers[0].fake.fault = NO_FAULT;
    pass_ms(500);
    assert_int_equal(step(0), FLYT_STORE_OK);
    pass_ms(LEASE_MS - 501);
    assert_true(leads(0));
    /* Not written: the time goes on from the last confirmed one. */
    managers[0].fake.fault = LOST_BEFORE;
    assert_int_equal(step(0), FLYT_STORE_UNKNOWN);
    managers[0].fake.fault = NO_FAULT;
    pass_ms(1);
    assert_false(leads(0));
    step(0);
    assert_int_equal(epoch_of(0), 2);
    pass_ms(RENEW_MS);
    managers[0].fake.fault = LOST_BEFORE;
    assert_int_equal(step(0), FLYT_STORE_UNKNOWN);
    managers[0].fake.fault = NO_FAULT;
    assert_int_equal(step(0), FLYT_STORE_OK);
    pass_ms(RENEW_MS);
    assert_int_equal(step(0), FLYT_STORE_OK);
    pass_ms(LEASE_MS - 1);
    assert_true(leads(0));
    assert_int_equal(epoch_of(0), 2);
}

static void test_unknown_taking_is_taken_again(void **state)
{
    step(0);
    pass_ms(WAIT_MS);
    managers[0].fake.fault = LOST_AFTER;
    assert_int_equal(step(0), FLYT_STORE_UNKNOWN);
    assert_false(leads(0));
    managers[0].fake.fault = NO_FAULT;
    step(0);
    assert_true(leads(0));
    assert_int_equal(epoch_of(0), 2);
}

static void test_changes_by_hand(void **state)
{
    make_leader();
    step(1);
    /* Removed: the leader finds out at its next renewal; nobody takes over before its time would have passed. */
    cJSON_Delete(server.document);
    server.document = NULL;
    step(1);
    pass_ms(RENEW_MS);
    assert_int_equal(step(0), FLYT_STORE_OK);
    assert_false(leads(0));
    pass_ms(LEASE_MS - RENEW_MS);
    step(1);
    assert_false(leads(1));
    pass_ms(WAIT_MS - LEASE_MS);
    step(1);
    assert_true(leads(1));
    /* The epoch goes on from what was seen, though the document was gone. */
    assert_int_equal(epoch_of(1), 2);
    /* Nonsense, without a revision: watched for as long, then replaced. */
    cJSON_Delete(server.document);
    server.document = cJSON_Parse("{\"holder\":5,\"epoch\":\"x\",\"instance\":\"?\"}");
    server.revision = 0;
    pass_ms(RENEW_MS);
    step(1);
    assert_false(leads(1));
    step(2);
    pass_ms(WAIT_MS);
    step(2);
    assert_true(leads(2));
    assert_int_equal(server.revision, 1);
}

static void test_epoch_can_be_raised(void **state)
{
    flyt_lease_raise_epoch(managers[0].lease, 41);
    flyt_lease_raise_epoch(managers[0].lease, 7);
    make_leader();
    assert_int_equal(epoch_of(0), 42);
}

/* What nobody can have given is nobody's epoch: the next one would not be exact in a document. */
static void test_epoch_has_bounds(void **state)
{
    flyt_lease_raise_epoch(managers[0].lease, UINT64_MAX);
    flyt_lease_raise_epoch(managers[0].lease, FLYT_EPOCH_MAX + 1);
    make_leader();
    assert_int_equal(epoch_of(0), 1);
}

/* Somebody says that another one leads: that is looked up at once, not at the next renewal. */
static void test_who_leads_is_looked_up(void **state)
{
    make_leader();
    flyt_lease_look(managers[0].lease);
    assert_int_equal(step(0), FLYT_STORE_OK);
    assert_true(leads(0));
    cJSON_Delete(server.document);
    server.document = cJSON_Parse("{\"holder\":\"other\",\"epoch\":9,\"instance\":\"another\",\"attempt\":1}");
    server.revision++;
    assert_int_equal(step(0), FLYT_STORE_OK);
    assert_true(leads(0)); /* nothing is due */
    managers[0].fake.fault = REFUSED;
    flyt_lease_look(managers[0].lease);
    assert_int_equal(step(0), FLYT_STORE_UNAVAILABLE);
    managers[0].fake.fault = NO_FAULT;
    assert_int_equal(step(0), FLYT_STORE_OK); /* it is still to be looked up */
    assert_false(leads(0));
}

static void test_same_name_is_another_manager(void **state)
{
    struct clock clock = {.rate_ppm = 1000000};
    struct flyt_lease *twin = new_lease(&managers[1].fake.store, "manager-0", &clock);

    make_leader();
    flyt_lease_step(twin, NULL);
    pass_ms(WAIT_MS - 1);
    flyt_lease_step(twin, NULL);
    assert_false(flyt_lease_is_leader(twin));
    pass_ms(1);
    flyt_lease_step(twin, NULL);
    assert_true(flyt_lease_is_leader(twin));
    assert_int_equal(flyt_lease_epoch(twin), 2);
    flyt_lease_free(twin);
}

static void test_bad_configurations(void **state)
{
    char longer[FLYT_LEASE_NAME_BYTES_MAX + 2];
    struct flyt_lease *lease = NULL;
    struct flyt_lease_config good = {
        .store = &managers[0].fake.store, .holder = "a", .address = "", .lease_ms = 1, .renew_ms = 1};

    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = 0;
    for (unsigned i = 0; i < 5; i++) {
        struct flyt_lease_config config = good;
        if (i == 0)
            config.holder = "";
        else if (i == 1)
            config.holder = longer;
        else if (i == 2)
            config.address = longer;
        else if (i == 3)
            config.lease_ms = 0;
        else
            config.renew_ms = 0;
        assert_int_equal(flyt_lease_new(&config, &lease), -EINVAL);
        assert_null(lease);
    }
    assert_null(flyt_lease_free(NULL));
}

/* ---- everything at once ---- */

static uint64_t noise = 1;

static unsigned chance(unsigned below)
{
    return (unsigned)(test_random_next(&noise) % below);
}

static uint64_t highest_epoch, takings, led_checks, checks;

/* At most one leads, and epochs only rise. */
static void check_all(void)
{
    unsigned leaders = 0;

    for (unsigned i = 0; i < MANAGERS_MAX; i++) {
        uint64_t epoch = epoch_of(i);

        if (!epoch) {
            managers[i].ended_epoch = managers[i].last_epoch;
            continue;
        }
        if (epoch == managers[i].ended_epoch)
            fail_msg("manager %u leads again under epoch %llu", i, (unsigned long long)epoch);
        leaders++;
        if (epoch != managers[i].last_epoch) {
            if (epoch <= highest_epoch)
                fail_msg("manager %u leads under epoch %llu after %llu", i, (unsigned long long)epoch,
                         (unsigned long long)highest_epoch);
            highest_epoch = managers[i].last_epoch = epoch;
            takings++;
        } else if (epoch != highest_epoch) {
            fail_msg("manager %u still leads under epoch %llu, %llu is there", i, (unsigned long long)epoch,
                     (unsigned long long)highest_epoch);
        }
    }
    if (leaders > 1)
        fail_msg("%u lead at the same time", leaders);
    led_checks += leaders;
    checks++;
}

static unsigned depth;

static void step_one(unsigned i)
{
    struct manager *m = &managers[i];

    if (m->is_busy)
        return;
    m->is_busy = true;
    depth++;
    m->fake.fault = chance(8) ? NO_FAULT : (enum fault)chance(4);
    m->fake.before_ms = chance(10) ? chance(20) : chance(2 * LEASE_MS);
    m->fake.after_ms = chance(10) ? chance(20) : chance(2 * LEASE_MS);
    step(i);
    depth--;
    m->is_busy = false;
    check_all();
}

/* While one manager's call is under way, others go on. */
static void others_meanwhile(void)
{
    check_all();
    if (depth < MANAGERS_MAX && chance(2))
        step_one(chance(MANAGERS_MAX));
}

static void test_never_two_leaders(void **state)
{
    for (unsigned seed = 1; seed <= 40; seed++) {
        noise = seed * 0x9e3779b97f4a7c15;
        tear_down(NULL);
        set_up(NULL);
        highest_epoch = 0;
        for (unsigned i = 0; i < MANAGERS_MAX; i++) {
            managers[i].fake.between = others_meanwhile;
            /* Clocks that differ in speed by less than a sixteenth. */
            managers[i].clock.rate_ppm = 1000000 - 29000 + chance(58000);
        }
        for (unsigned round = 0; round < 2500; round++) {
            if (chance(200) == 0) {
                /* Restarted, or released, or the document is lost. */
                struct manager *m = &managers[chance(MANAGERS_MAX)];
                if (chance(2)) {
                    char name[16];
                    snprintf(name, sizeof name, "manager-%u", (unsigned)(m - managers));
                    flyt_lease_free(m->lease);
                    m->lease = new_lease(&m->fake.store, name, &m->clock);
                    flyt_lease_raise_epoch(m->lease, highest_epoch);
                } else {
                    m->is_busy = true;
                    flyt_lease_release(m->lease, NULL);
                    m->is_busy = false;
                }
            }
            if (chance(500) == 0) {
                /* Only the nodes know the epoch now; they tell everybody. */
                cJSON_Delete(server.document);
                server.document = NULL;
                for (unsigned i = 0; i < MANAGERS_MAX; i++)
                    flyt_lease_raise_epoch(managers[i].lease, highest_epoch);
            }
            step_one(chance(MANAGERS_MAX));
            /* Mostly in time, sometimes standing still for long. */
            pass_ms(chance(50) ? chance(RENEW_MS / 2) : chance(3 * LEASE_MS));
            check_all();
        }
    }
    /* It is no proof of anything if nobody ever leads. */
    print_message("%llu takings in %llu checks, %llu of them with a leader\n", (unsigned long long)takings,
                  (unsigned long long)checks, (unsigned long long)led_checks);
    assert_true(takings > 400);
    assert_true(led_checks > checks / 10);
}

/* ---- real stores ---- */

static void test_sqlite_leads_at_once(void **state)
{
    char folder[PATH_MAX], uri[PATH_MAX + 64];
    struct clock clock = {.rate_ppm = 1000000};

    test_folder_make(folder);
    snprintf(uri, sizeof uri, "sqlite://%s/store.db", folder);
    for (unsigned start = 1; start <= 3; start++) {
        struct flyt_store *store = test_open(uri);
        struct flyt_lease *lease = new_lease(store, "manager", &clock);
        struct flyt_lease_view view;

        assert_false(flyt_lease_is_leader(lease));
        assert_int_equal(flyt_lease_step(lease, NULL), FLYT_STORE_OK);
        assert_int_equal(flyt_lease_epoch(lease), start);
        pass_ms(1000 * LEASE_MS);
        assert_true(flyt_lease_is_leader(lease));
        assert_int_equal(flyt_lease_step(lease, NULL), FLYT_STORE_OK);
        flyt_lease_get_view(lease, &view);
        assert_int_equal(view.epoch, start);
        assert_true(view.left_ms == UINT64_MAX);
        flyt_lease_release(lease, NULL);
        assert_false(flyt_lease_is_leader(lease));
        flyt_lease_free(lease);
        flyt_store_close(store);
    }
    test_folder_remove(folder);
}

static void test_mongodb_takeover(void **state)
{
    char database[64], uri[512];
    struct clock clocks[2] = {{.rate_ppm = 1000000}, {.offset_ms = 77777, .rate_ppm = 1000000}};
    struct flyt_store *stores[2];
    struct flyt_lease *leases[2];

    test_mongod_database(database, sizeof database);
    test_mongod_uri(database, uri, sizeof uri);
    for (unsigned i = 0; i < 2; i++) {
        stores[i] = test_open(uri);
        leases[i] = new_lease(stores[i], i ? "two" : "one", &clocks[i]);
        assert_int_equal(flyt_lease_step(leases[i], NULL), FLYT_STORE_OK);
    }
    pass_ms(WAIT_MS);
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(flyt_lease_step(leases[i], NULL), FLYT_STORE_OK);
        assert_int_equal(flyt_lease_epoch(leases[0]), 1);
        assert_int_equal(flyt_lease_epoch(leases[1]), 0);
        pass_ms(RENEW_MS);
    }
    pass_ms(WAIT_MS);
    assert_int_equal(flyt_lease_step(leases[1], NULL), FLYT_STORE_OK);
    assert_int_equal(flyt_lease_epoch(leases[1]), 2);
    assert_int_equal(flyt_lease_epoch(leases[0]), 0);
    assert_int_equal(flyt_lease_step(leases[0], NULL), FLYT_STORE_OK);
    assert_false(flyt_lease_is_leader(leases[0]));
    assert_int_equal(flyt_lease_release(leases[1], NULL), FLYT_STORE_OK);
    assert_int_equal(flyt_lease_step(leases[0], NULL), FLYT_STORE_OK);
    assert_int_equal(flyt_lease_epoch(leases[0]), 3);
    for (unsigned i = 0; i < 2; i++) {
        flyt_lease_free(leases[i]);
        flyt_store_close(stores[i]);
    }
    test_mongod_drop(database);
}

static void test_own_clock_is_boottime(void **state)
{
    char folder[PATH_MAX], uri[PATH_MAX + 64];
    struct flyt_lease_config config = {.holder = "a", .address = "", .lease_ms = 60000, .renew_ms = 1000};
    struct flyt_lease *lease;

    test_folder_make(folder);
    snprintf(uri, sizeof uri, "sqlite://%s/store.db", folder);
    config.store = test_open(uri);
    assert_int_equal(flyt_lease_new(&config, &lease), 0);
    assert_int_equal(flyt_lease_step(lease, NULL), FLYT_STORE_OK);
    assert_true(flyt_lease_is_leader(lease));
    flyt_lease_free(lease);
    flyt_store_close(config.store);
    test_folder_remove(folder);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_absent_lease_is_watched_first),
        TEST(test_renewals_keep_it),
        TEST(test_takeover_and_the_old_leader_wakes),
        TEST(test_release_needs_no_waiting),
        TEST(test_contender_knows_when),
        TEST(test_time_counts_from_before_sending),
        TEST(test_late_answer_revives_nothing),
        TEST(test_store_that_is_down_ends_it),
        TEST(test_unknown_renewals_are_looked_up),
        TEST(test_unknown_taking_is_taken_again),
        TEST(test_changes_by_hand),
        TEST(test_epoch_can_be_raised),
        TEST(test_epoch_has_bounds),
        TEST(test_who_leads_is_looked_up),
        TEST(test_same_name_is_another_manager),
        TEST(test_bad_configurations),
        TEST(test_never_two_leaders),
        cmocka_unit_test(test_sqlite_leads_at_once),
        cmocka_unit_test(test_own_clock_is_boottime),
        cmocka_unit_test(test_mongodb_takeover),
    };

    test_mongod_start();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_mongod_stop();
    return failed;
}
