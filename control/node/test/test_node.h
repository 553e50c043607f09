/*
 * For tests: a node manager on a loop of the test's own, in a folder of its own, with fake servers (fake_server.c); and
 * programs that connect to it. Everything waits by running the loop, for a minute at most. Nothing ends by time, unless
 * a test says so: machines may be slow.
 */
#ifndef FLYT_NODE_TEST_NODE_H
#define FLYT_NODE_TEST_NODE_H

#include <stdbool.h>

#include "control/node/link/server.h"
#include "control/node/model/allocation.h"
#include "control/node/model/node.h"
#include "flyt.h"
#include "rpc/base/ticket.h"

#define MIB (1ull << 20)

enum {
    TEST_LONG_MS = 600000, /* nobody waits so long: kill_grace, rejoin, limit_wait, and the node's replace_ms and
                              switch_ms, if a test does not set them otherwise */
    LONG_AGO_MS = 10000000,
    TEST_GRACE_MS = 200, /* kill_grace where a server hears nothing, and is to be killed */
};

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
    char last_event[512];
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
/* Runs the loop until fd has something to read. False: a minute has passed. */
bool test_node_readable(struct test_node *test, int fd);
/* Runs it for so long. */
void test_node_run(struct test_node *test, unsigned ms);
void test_node_until_warm(struct test_node *test);

/* An order for one allocation with one slot, repeated when its epoch is written. Fills *ret_use's outcome (text: the
 * last one's, static) and numbers. */
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
/* Two VMs of 100 MiB each: groups 0 to 3 and 4 to 7 of GPU 0. */
extern const struct test_wish test_one, test_other;
/* The allocation that is wished for; on no GPU where the node has no such one. What it points to is good until the next
 * call. */
flyt_allocation test_node_allocation(const struct test_node *test, const struct test_wish *wish);
struct test_outcome test_node_order(struct test_node *test, const struct test_wish *wish);
/* Orders to take it back; test->removal is the outcome, when there is one. */
void test_node_remove(struct test_node *test, uint64_t id);
bool test_node_is_removed(struct test_node *test, void *unused);
/* The same, and waits for the outcome, which is that it is gone. */
void test_node_remove_now(struct test_node *test, uint64_t id);
/* An order that must be carried out. */
void test_node_grant(struct test_node *test, const struct test_wish *wish);
/* What is reported of an allocation now; fails the test where there is none. */
struct test_outcome test_node_use(struct test_node *test, uint64_t id);
uint64_t test_node_used_bytes(struct test_node *test, const struct test_wish *wish);

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
/* Asks for a new session, up to the proof: its status is that it was challenged, or why it was refused; and waits for
 * the answer to that. */
struct test_program test_node_knock(struct test_node *test, const struct flyt_credentials *credentials);
void test_node_hear(struct test_node *test, struct test_program *program);
/* The main connection anew, of a session that goes on at another server. */
struct test_program test_node_resume(struct test_node *test, const struct flyt_credentials *credentials,
                                     const unsigned char *token, bool is_forged);
/* One that was let in, and for which no server gets ready: none does on the VM's GPU from now on; until they do, and it
 * has one. */
struct test_program test_node_let_wait(struct test_node *test, const struct test_wish *wish);
void test_node_let_start(struct test_node *test, const struct test_wish *wish, struct test_program *program);
/* A new session, which must be let in. */
struct test_program test_node_enter(struct test_node *test, const struct test_wish *wish);
/* Its client comes once: where it is let in it has the same session and the same token, and *program the connection. */
flyt_handshake_status test_node_try_to_come(struct test_node *test, const struct test_wish *wish,
                                            struct test_program *program);
/* The same again and again, as a client does that is told to; it must be let in. */
void test_node_come_back(struct test_node *test, const struct test_wish *wish, struct test_program *program);
/* Its client has come, and has hung up before it is given to whoever has the session; it must be let in. */
void test_node_come_and_hang_up(struct test_node *test, const struct test_wish *wish,
                                const struct test_program *program);
/* As test_node_come_back; it must be told that there is no such session. */
void test_node_come_in_vain(struct test_node *test, const struct test_wish *wish, struct test_program *program);
/* Says a line to the program's fake server (NULL: nothing) and returns its next one (static); "gone": it has ended. */
const char *test_program_ask(struct test_node *test, struct test_program *program, const char *line);
/* The same, where this must be the answer. */
void test_program_say(struct test_node *test, struct test_program *program, const char *line, const char *answer);
/* The server that has its session; NULL: none. */
struct flyt_node_server *test_node_server(struct test_node *test, const struct test_program *program);
/* After a restart: runs the loop until the program's server has come back; no other one comes any more. */
void test_node_until_back(struct test_node *test, const struct test_program *program);
void test_node_end_rejoining(struct test_node *test);
/* The session that waits without a server; NULL: there is none. */
struct flyt_node_session *test_node_away(const struct test_node *test);
/* For test_node_until: whether the session of a struct test_program waits without a process; whether a struct
 * test_wish's allocation has no session, or is not there. */
bool test_node_is_away(struct test_node *test, void *program);
bool test_node_is_empty(struct test_node *test, void *wish);
/* Runs the loop until the allocation has no session. */
void test_node_until_empty(struct test_node *test, const struct test_wish *wish);
/* Runs the loop until so much is charged to the allocation: a process that ends has its memory until it has gone. */
void test_node_until_used(struct test_node *test, const struct test_wish *wish, uint64_t bytes);
/* Runs the loop until the program's server has gone and the session's end was told. */
void test_node_until_ended(struct test_node *test, const struct test_program *program);
/* The VM's programs end; all that they used must be free then. */
void test_node_leave(struct test_node *test, const struct test_wish *wish, struct test_program *programs,
                     unsigned count);

/* ---- failures ---- */

/* Fault points (rpc/base/fault_point.h) of this process, and of warm servers, which are started anew for it. NULL:
 * none. They end with the test. */
void test_node_make_fail(struct test_node *test, const char *node_points, const char *server_points);
/* The server's link ends, and its process neither does anything nor ends, until it is killed: which one that is. */
pid_t test_node_cut_off(struct test_node *test, struct flyt_node_server *server);
/* Fails the test where the text has not these words. */
void test_contains(const char *text, const char *words);

/* cmocka's: a node manager with a warm server; its end, with its programs. */
int test_node_set_up(void **state);
int test_node_tear_down(void **state);
#define TEST_NODE(name) cmocka_unit_test_setup_teardown(name, test_node_set_up, test_node_tear_down)

#endif
