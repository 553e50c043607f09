/*
 * Fixture of tests of programs that leave for another node (send.h): what is done again and again, on top of the node
 * that is played (test_far.h). A check that does not hold ends the test.
 */
#ifndef FLYT_NODE_TEST_SEND_H
#define FLYT_NODE_TEST_SEND_H

#include "control/node/ops/send.h"
#include "control/node/test/test_far.h"

enum { TEST_SEND_PROGRAM_PID = 99, TEST_SEND_PHASES = 3 };

/* The order to switch, which is answered when this returns; *ret_err has why not. */
flyt_status test_send_switch(struct test_node *test, struct flyt_node_migration *migration, struct flyt_error *ret_err);
flyt_status test_send_do_switch(struct test_node *test, struct flyt_error *ret_err);
/* The same, whose answer nobody hears. */
void test_send_begin_switch(struct test_node *test);
/* It is taken. */
void test_send_let_leave(struct test_node *test);
/* What a program's client sees of it. */
void test_send_is_told_to_leave(struct test_node *test, struct test_program *program);
/* Both, with all of them. */
void test_send_all_leave(struct test_node *test, struct test_program *programs, unsigned count);
/* Begins, and everything is at the other node. */
void test_send_arrive(struct test_far *far, struct test_program *programs, unsigned count);
/* Begins, with two programs, and stays in a phase in which it can still fail: number 0 to TEST_SEND_PHASES - 1, of
 * copying, stopping, and everything being at the other node. */
void test_send_reach(struct test_far *far, struct test_program *programs, unsigned number);
/* Sessions that the cluster manager is told of. */
unsigned test_send_count_shown(struct test_node *test);
/* Whether the migration has ended; for test_node_until. */
bool test_send_is_done(struct test_node *test, void *unused);
/* The other node has them: the allocation is taken back, what was left ends, and nobody hears of it. */
void test_send_take_back(struct test_node *test, unsigned count);
/* The migration fails, with these words in its reason. */
void test_send_failed(struct test_far *far, const char *words);
/* And the programs go on where they were. */
void test_send_stayed(struct test_far *far, struct test_program *programs, unsigned count);
/* A program begins, or tries to. */
flyt_handshake_status test_send_come(struct test_node *test, struct test_program *program);

#endif
