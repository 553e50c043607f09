/*
 * A cluster manager for tests that only writes down what a node manager says, and gives the orders that a test wants;
 * and that node manager, which has registered with it.
 */
#ifndef FLYT_TEST_BOSS_H
#define FLYT_TEST_BOSS_H

#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "control/base/peer.h"
#include "control/node/test/test_node.h"
#include "control/node/uplink/manager.h"
#include "rpc/base/url.h"

struct test_boss {
    struct test_node *test;
    struct flyt_node_manager *manager;
    struct flyt_door *door;
    struct flyt_peer *peer;
    int listen_fd;
    char url[FLYT_URL_TEXT_BYTES];
    char *urls[1];
    uint64_t epoch, written_epoch; /* written_epoch: by the node, when it registered */
    bool is_forgetful;             /* heartbeats are answered NOT_FOUND */
    bool is_slow;                  /* one heartbeat and one registration wait here for the test to answer them: */
    struct flyt_call *beat, *registration;
    flyt_allocation *entitled; /* of the node, told at registration; NULL: nothing */
    unsigned register_count, heartbeat_count, event_count;
    flyt_register_args inventory; /* the last one, owned */
    flyt_heartbeat_args figures;
    char last_event[128];
    unsigned unsaved_count; /* events of a state that is not saved */
    /* Of FLYT_NODE_MIGRATION. */
    unsigned migration_count, deaf_count; /* deaf_count: so many ends are not heard */
    flyt_migration_use migration;         /* the last one; its text is `text` */
    flyt_migration_use asked;             /* what an order was answered with */
    flyt_migration_phase awaited_phase;
    /* The last order's outcome. */
    bool has_outcome;
    flyt_status order_status, status;
    char text[256];
    flyt_gpu gpu;            /* of FLYT_ORDER_GPU_SET; its parts are not kept */
    char driver_version[64]; /* that it has told */
    unsigned cuda_version;
};

/* The allocation of test_boss_wish. */
extern const struct test_wish test_boss_ticket;

/* As of cmocka; *state is a struct test_boss. */
int test_boss_set_up(void **state);
int test_boss_tear_down(void **state);
/* Its socket. */
void test_boss_open(struct test_boss *boss);
void test_boss_close(struct test_boss *boss);
/* The node and its connection, whose settings name the one manager. */
void test_boss_start_node(struct test_boss *boss);
void test_boss_stop_node(struct test_boss *boss);
/* For test_node_until, of a boss (user). */
bool test_boss_is_registered(struct test_node *test, void *user);
bool test_boss_has_no_session(struct test_node *test, void *user);
/* What a node manager that is killed now would find. */
uint64_t test_boss_written_epoch(const struct test_boss *boss);

/* Gives an order and waits for its outcome, of which `done` takes what is wanted. */
void test_boss_order(struct test_boss *boss, uint32_t procedure, xdrproc_t xdr_args, const void *args,
                     xdrproc_t xdr_res, size_t result_bytes, flyt_call_done_fn done);
void test_boss_on_applied(void *user, int status, void *result);
void test_boss_on_outcome(void *user, int status, void *result);
void test_boss_on_gpu(void *user, int status, void *result);
void test_boss_on_migration(void *user, int status, void *result);
/* An allocation of four groups and 100 MiB on GPU 0. Parts are static. */
flyt_allocation *test_boss_wish(struct test_boss *boss, uint64_t revision);
/* Orders it. */
flyt_status test_boss_apply(struct test_boss *boss, uint64_t revision);

#endif
