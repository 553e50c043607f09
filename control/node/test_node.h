/*
 * For tests: a node manager on a loop of the test's own, in a folder of its own, with fake servers (fake_server.c); and
 * programs that connect to it. Everything waits by running the loop, for ten seconds at most.
 */
#ifndef FLYT_NODE_TEST_NODE_H
#define FLYT_NODE_TEST_NODE_H

#include <stdbool.h>

#include "control/node/allocation.h"
#include "control/node/node.h"
#include "control/node/server.h"
#include "flyt.h"
#include "rpc/base/ticket.h"

/* What came of an order. `order` is -1 as long as there is no answer. */
struct test_outcome {
    flyt_status order, status;
    char text[512];
    uint64_t revision;
    flyt_slot_use slot;
    unsigned session_count;
};

struct test_node {
    sd_event *event;
    char folder[64];
    struct flyt_node_settings settings;
    struct flyt_node node;
    unsigned event_count;
    char last_event[256];
    struct test_outcome removal;
};

/* Two software GPUs with 132 SMs and 1 GiB each; warm 1. */
struct test_node *test_node_new(void);
/* Starts (again) the node manager; fails the test where it does not start. */
void test_node_start(struct test_node *test);
void test_node_stop(struct test_node *test);
void test_node_free(struct test_node *test);
/* Runs the loop until the condition holds, or fails the test. */
void test_node_until(struct test_node *test, bool (*holds)(struct test_node *test, void *user), void *user,
                     const char *what);
/* Runs the loop until fd has something to read. False: ten seconds have passed. */
bool test_node_readable(struct test_node *test, int fd);
/* Runs it for so long. */
void test_node_run(struct test_node *test, unsigned ms);
void test_node_until_warm(struct test_node *test);

/* An order for one allocation with one slot. Fills *ret_use's outcome (text: the last one's, static) and numbers. */
struct test_wish {
    uint64_t id, revision, epoch;
    const char *vm_ip;
    unsigned gpu, generation, sessions_max;
    uint64_t memory_bytes;
    unsigned first_group, group_count;
    bool when_free;
    flyt_allocation_state state; /* 0: active */
    unsigned minimum_pct, maximum_pct, window_ms;
    int priority;
    bool is_suspended, is_strict;
};
struct test_outcome test_node_order(struct test_node *test, const struct test_wish *wish);
/* Orders to take it back; test->removal is the outcome, when there is one. */
void test_node_remove(struct test_node *test, uint64_t id);
bool test_node_is_removed(struct test_node *test, void *unused);
/* What is reported of an allocation now; fails the test where there is none. */
struct test_outcome test_node_use(struct test_node *test, uint64_t id);

struct test_program {
    int fd; /* -1: refused */
    flyt_handshake_status status;
    char message[512];
    uint64_t session_id;
    unsigned char token[FLYT_TOKEN_BYTES];
};
/* Credentials as the cluster manager and the client manager make them of the node's key. */
struct flyt_credentials test_node_credentials(const struct test_wish *wish);
/* Connects and proves; `spoil` (NULL: nothing) may change the secret. token NULL: a new session. */
struct test_program test_node_connect(struct test_node *test, const struct flyt_credentials *credentials,
                                      const unsigned char *token, bool is_forged);
/* The main connection anew, of a session that goes on at another server. */
struct test_program test_node_resume(struct test_node *test, const struct flyt_credentials *credentials,
                                     const unsigned char *token, bool is_forged);
/* Says a line to the program's fake server and returns its answer (static). */
const char *test_program_ask(struct test_node *test, struct test_program *program, const char *line);

/* cmocka's: a node manager with a warm server; its end, with its programs. */
int test_node_set_up(void **state);
int test_node_tear_down(void **state);
/* An order that must be carried out. */
void test_node_grant(struct test_node *test, const struct test_wish *wish);

#endif
