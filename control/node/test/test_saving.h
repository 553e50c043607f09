/*
 * Fixture of tests of programs that are written to images and go on from them (checkpoint.h, restore.h): what is done
 * again and again, with fake servers, in the folder "checkpoints" of the test's own. A check that does not hold ends
 * the test.
 */
#ifndef FLYT_NODE_TEST_SAVING_H
#define FLYT_NODE_TEST_SAVING_H

#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/restore.h"
#include "control/node/test/test_node.h"

/* One for the process. */
struct test_saving {
    uint64_t last_id;           /* of orders */
    struct flyt_error refusal;  /* of the last one that was refused */
    bool is_full;               /* what the next checkpoint is asked for */
    unsigned restore_timeout_s; /* and the next restore; 0: the default */
};

extern struct test_saving test_saving;

/* ---- programs ---- */

/* The allocation and its programs: each has 8 MiB of memory with a word of its own, and has said five lines. */
void test_saving_enter(struct test_node *test, struct test_program *programs, unsigned count);
/* They run, and have it. */
void test_saving_has_memory(struct test_node *test, struct test_program *programs, unsigned count);
/* A program's; NULL: it is in no image. */
struct flyt_node_checkpointed *test_saving_record(struct test_node *test, const struct test_program *program);

/* ---- orders ---- */

/* Orders them, with a new id each; that of a restore returns when it has been answered. */
flyt_status test_saving_checkpoint(struct test_node *test, uint64_t session_id, bool leave_running);
flyt_status test_saving_restore(struct test_node *test);
/* Any restore, likewise. */
flyt_status test_saving_order_restore(struct test_node *test, const flyt_order_restore_args *args);
/* It was taken. */
void test_saving_must(flyt_status status);
/* Of the last order. */
flyt_saving_use test_saving_use(struct test_node *test);
/* The last order has come as far as this, and no further; or it has failed, for this reason. */
flyt_saving_use test_saving_until(struct test_node *test, flyt_saving_phase phase);
void test_saving_failed(struct test_node *test, flyt_status status, const char *words);

/* All of them are in images afterwards, and nothing of them is anywhere else. */
void test_saving_suspend(struct test_node *test, struct test_program *programs, unsigned count);
/* And go on from them. */
void test_saving_go_on(struct test_node *test, struct test_program *programs, unsigned count);
/* All are written, and run on; the bytes that were not written again. */
uint64_t test_saving_write(struct test_node *test);

/* ---- images ---- */

/* ret_path has FLYT_NAME_BYTES_MAX. The folder is made where it is not there. */
void test_saving_folder(struct test_node *test, char *ret_path);
/* How many images there are; the path of one of them (PATH_MAX; NULL: not wanted). Files without a name, or a hidden
 * one, are none. */
unsigned test_saving_images(struct test_node *test, char *ret_path);
/* Waits until nothing is to be removed of what has failed; then as many are there. */
void test_saving_images_are(struct test_node *test, unsigned count);
/* How many images the newest one builds on, and its path. */
unsigned test_saving_parents(struct test_node *test, char *ret_path);

#endif
