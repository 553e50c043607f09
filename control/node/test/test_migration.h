/*
 * For tests of migrations (migration.h): test_one's programs at fake servers, the order to move them to groups 8 to 11
 * of a GPU, and what there must be afterwards. Every function fails the test where it cannot do its work.
 */
#ifndef FLYT_NODE_TEST_MIGRATION_H
#define FLYT_NODE_TEST_MIGRATION_H

#include "control/node/ops/migration.h"
#include "control/node/test/test_node.h"
#include "rpc/base/error.h"

enum { TEST_MIGRATION_ID = 0x99 };

/* ---- programs ---- */

/* Grants test_one's allocation and begins programs. Each has 8 MiB of memory that the node holds with a word in it, 1
 * MiB that the node does not hold, and a library. */
void test_migration_enter(struct test_node *test, struct test_program *programs, unsigned count);
/* What a program's client sees of the switch; its connection is closed then. */
void test_migration_is_told_to_leave(struct test_node *test, struct test_program *program);
/* Its client comes, and its session goes on. */
void test_migration_go_on(struct test_node *test, struct test_program *program);

/* ---- orders ---- */

/* Where test_one is to go on that GPU, as its revision 2. */
struct test_wish test_migration_target(unsigned gpu);
/* ret_err may be NULL. */
flyt_status test_migration_order(struct test_node *test, uint64_t id, const struct test_wish *wish,
                                 const flyt_migration_bounds *bounds, struct flyt_error *ret_err);
/* Orders TEST_MIGRATION_ID, which must be accepted. timeout_s 0: none that a test reaches. */
void test_migration_start(struct test_node *test, unsigned gpu);
void test_migration_start_within(struct test_node *test, unsigned gpu, unsigned timeout_s);
/* Programs that begin, are moved to this GPU, and have been told to leave. */
void test_migration_set_out(struct test_node *test, struct test_program *programs, unsigned count, unsigned gpu);
/* The same of one, whose client has come to the target, and has not made its objects again. */
void test_migration_reach_target(struct test_node *test, struct test_program *program, unsigned gpu);
/* Another VM (0x22) that wants four groups of that GPU. */
struct test_outcome test_migration_wish_other(struct test_node *test, unsigned gpu, unsigned first_group);

/* ---- what there is ---- */

/* TEST_MIGRATION_ID; NULL: not there. */
struct flyt_node_migration *test_migration_of(struct test_node *test);
/* Its move of this program's session, which must be there. */
struct flyt_node_move *test_migration_move_of(struct test_node *test, const struct test_program *program);
/* test_one's; NULL: not there. */
struct flyt_node_allocation *test_migration_allocation(struct test_node *test);
/* Runs the loop until it is in this phase, and not in a later one. */
void test_migration_until(struct test_node *test, flyt_migration_phase phase);
/* The same of its first session's move: the stage of its source, and the state of its target. */
void test_migration_until_stage(struct test_node *test, enum flyt_node_move_stage stage,
                                enum flyt_node_target_state state);
/* It has failed, with these words in its sentence. */
void test_migration_until_failed(struct test_node *test, const char *words);
/* Runs the loop until one session has moved. */
void test_migration_until_one_has_moved(struct test_node *test);
/* The allocation is on this GPU and holds nothing else: so does no server. */
void test_migration_is_only_on(struct test_node *test, unsigned gpu);
/* After a failure: all programs run where they ran, on GPU 0, with what they had, and nobody holds the other side. They
 * let go of their memory. */
void test_migration_stayed(struct test_node *test, struct test_program *programs, unsigned count);
/* Both VMs' allocations are removed and no migration is known: a test can begin anew. */
void test_migration_forget(struct test_node *test);

#endif
