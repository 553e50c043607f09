/*
 * For tests of programs that leave for another node (send.h): that node, played on the test's loop. Its listener knows
 * the migration's secret; what fake servers say on the connections (fake_server.c) is read, and answered where the test
 * says so. Every function fails the test where it cannot do its work.
 */
#ifndef FLYT_NODE_TEST_FAR_H
#define FLYT_NODE_TEST_FAR_H

#include "control/node/test/test_migration.h"
#include "rpc/base/ticket.h"
#include "rpc/base/url.h"

enum { TEST_FAR_MAX = 64 /* connections, in a test */ };

struct flyt_greeter;

struct test_far_connection {
    int fd; /* -1: closed here */
    struct flyt_migrate_credentials credentials;
    unsigned char token[FLYT_TOKEN_BYTES];
    unsigned pid;
    char program[64];
    unsigned char key[FLYT_TICKET_KEY_BYTES];
};

struct test_far {
    struct test_node *test;
    struct flyt_greeter *greeter;
    sd_event_source *source;
    int listen_fd;
    char url[FLYT_URL_TEXT_BYTES];
    unsigned busy_count; /* so many connections are told to come later */
    bool refuses;
    struct test_far_connection connections[TEST_FAR_MAX];
    unsigned count, refused_count;
};

void test_far_open(struct test_far *far, struct test_node *test);
void test_far_close(struct test_far *far);
/* cmocka's: a node manager with a warm server, and the other node; *state is the struct test_far. Their end. */
int test_far_set_up(void **state);
int test_far_tear_down(void **state);
#define TEST_FAR(name) cmocka_unit_test_setup_teardown(name, test_far_set_up, test_far_tear_down)

/* ---- orders ---- */

struct test_far_wish {
    unsigned stream_count, stop_ms, timeout_s;
    bool is_encrypted, is_forged; /* forged: it is told another secret than the listener's */
};
/* The order's arguments as the other node is to be reached, of TEST_MIGRATION_ID and test_one's programs; they refer to
 * `far` and to *ret_url. */
flyt_order_send_args test_far_args(struct test_far *far, const struct test_far_wish *wish, char **ret_url);
/* Orders TEST_MIGRATION_ID of test_one's programs. ret_err may be NULL. */
flyt_status test_far_order(struct test_far *far, const struct test_far_wish *wish, struct flyt_error *ret_err);
/* The same, which must be accepted: no streams, in clear, no time that a test reaches. */
void test_far_start(struct test_far *far);

/* ---- what comes ---- */

/* The last connection of the program's session for this stream, when it has come. */
struct test_far_connection *test_far_connection(struct test_far *far, const struct test_program *program,
                                                unsigned stream);
/* The next line that a server says on it (static); "gone": it has closed it. */
const char *test_far_line(struct test_far *far, struct test_far_connection *connection);
void test_far_say(struct test_far_connection *connection, const char *line);
/* The whole of what a program's server sends, up to its stop and the answer to it. */
void test_far_take(struct test_far *far, const struct test_program *program);
/* All of these programs are at the other node: ARRIVED. */
void test_far_take_all(struct test_far *far, const struct test_program *programs, unsigned count);
/* Runs the loop until the migration is in this phase; one that ends in another fails the test. */
void test_far_until(struct test_far *far, flyt_migration_phase phase);

#endif
