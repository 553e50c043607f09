/*
 * For tests: programs that arrive at a test's node manager (test_node.h) from another node, which is played here; its
 * connections are made as a node manager makes them (dial.h). All are of VM test_one, and of one migration.
 */
#ifndef FLYT_NODE_TEST_RECEIVE_H
#define FLYT_NODE_TEST_RECEIVE_H

#include "control/node/ops/arrival.h"
#include "control/node/ops/dial.h"
#include "control/node/test/test_node.h"

enum { TEST_MIGRATION = 0x77, FDS_MAX = 1 + FLYT_MIGRATION_STREAMS_MAX };

extern const unsigned char test_secret[FLYT_MIGRATION_SECRET_BYTES];
extern struct flyt_error test_refusal; /* of the last order */

/* ---- orders ---- */

/* Without its answer. */
void test_receive_ask(struct test_node *test, const struct test_wish *wish, uint64_t migration_id,
                      const unsigned char *its_secret, bool is_encrypted);
/* Whether the last one has it. */
bool test_receive_is_answered(struct test_node *test, void *unused);
/* With its answer. */
flyt_status test_receive_as(struct test_node *test, const struct test_wish *wish, uint64_t migration_id,
                            const unsigned char *its_secret, bool is_encrypted);
/* Of test_one; the second one must be carried out. */
flyt_status test_receive(struct test_node *test);
void test_receive_begin(struct test_node *test);
struct flyt_node_receive *test_received(struct test_node *test);
/* Runs the loop until it has this phase, or has ended otherwise, which fails the test. */
flyt_migration_use test_receive_until(struct test_node *test, flyt_migration_phase phase);

/* What came of SWITCH. */
struct test_switched {
    flyt_status status; /* -1: it is not answered */
    char text[FLYT_TEXT_BYTES_MAX];
    flyt_migration_use use;
};

void test_receive_ask_to_switch(struct test_node *test, unsigned count, struct test_switched *switched);
/* For test_node_until; user: a struct test_switched. */
bool test_receive_is_switched(struct test_node *test, void *user);
/* Waits for the answer, which for the second one must be OK. */
struct test_switched test_receive_switch(struct test_node *test, unsigned count);
void test_receive_must_switch(struct test_node *test, unsigned count);
/* The next order is not the same migration. */
void test_receive_forget(struct test_node *test);

/* ---- the other node ---- */

/* A program there, and its connections; -1: none. */
struct test_source {
    uint64_t session_id;
    unsigned char token[FLYT_TOKEN_BYTES];
    unsigned stream_count;
    int fds[FDS_MAX];
    unsigned char keys[FDS_MAX][FLYT_TICKET_KEY_BYTES];
};

/* What the listener said: 0, or a negative errno and its sentence. */
struct test_dialed {
    int status; /* 1: it is not known */
    char sentence[512];
};

struct test_source test_source_new(uint64_t session_id, unsigned stream_count);
/* One connection, with these credentials or with those that are good; the last one must be let in. */
struct test_dialed test_source_dial_as(struct test_node *test, struct test_source *source, const void *credentials,
                                       size_t bytes, const unsigned char *its_secret, unsigned stream);
struct test_dialed test_source_dial(struct test_node *test, struct test_source *source, unsigned stream);
void test_source_must_dial(struct test_node *test, struct test_source *source, unsigned stream);
/* All connections, the last one first, each of which brings its number. */
void test_source_arrive(struct test_node *test, struct test_source *source);
/* A line for the fake server that the connections were given to (fake_receive.c); and what that says on the first one:
 * "gone": it has ended. */
void test_source_tell(const struct test_source *source, unsigned stream, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *test_source_hear(struct test_node *test, const struct test_source *source);
/* 8 MiB with a word of its own, and 2 MiB; there was something else in between. The second one arrives first, and is at
 * its end then, which the server has said. */
void test_source_copy(const struct test_source *source);
void test_source_copy_all(struct test_node *test, struct test_source *source);
void test_source_leave(struct test_source *source);
/* RECEIVE, and so many programs, which are here as a whole then. */
void test_sources_bring(struct test_node *test, struct test_source *sources, unsigned count);
/* The program's client; it comes, and finds what there was. */
struct test_program test_source_client(const struct test_source *source);
void test_source_go_on(struct test_node *test, const struct test_source *source, struct test_program *ret_program);

/* ---- what is to be seen ---- */

/* Sessions that the cluster manager is told of; whether it is of any allocation. */
unsigned test_receive_count_shown(struct test_node *test);
void test_receive_until_shown(struct test_node *test, unsigned count);
bool test_receive_is_told(struct test_node *test);
/* Of module images. */
unsigned test_receive_count_folders(struct test_node *test);
/* Nothing of it is on the node, and others may have what it had: as many folders as before. */
void test_receive_is_gone(struct test_node *test, unsigned folder_count);
/* Until it has failed for this reason, and that. */
void test_receive_until_failed(struct test_node *test, unsigned folder_count, flyt_status status, const char *words);

#endif
