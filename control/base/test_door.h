/*
 * For tests of peers: a loop, a door with a program to call, and what became of everything. Conditions are waited for
 * by running the loop; a condition that does not come true fails the test.
 */
#ifndef FLYT_CONTROL_TEST_DOOR_H
#define FLYT_CONTROL_TEST_DOOR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "control/base/peer.h"

enum { TEST_WAIT_S = 60, TEST_CALLS_MAX = 4096 };

/* Served by both sides; the numbers are none of FLYT_CONTROL_PROGRAM's. */
enum {
    TEST_ECHO = 100,  /* flyt_event -> the same; anybody */
    TEST_KEEP = 101,  /* flyt_event -> the same, once the test answers it (test_answer); anybody */
    TEST_NOTE = 102,  /* flyt_event, one-way */
    TEST_NODE = 103,  /* void -> flyt_outcome; nodes only */
    TEST_FAIL = 104,  /* void -> void; fails */
    TEST_BIG = 105,   /* flyt_view_args: wait_ms is the size of the answer in bytes -> flyt_view_res */
    TEST_WRONG = 106, /* void -> flyt_outcome; the answer has a text that is longer than allowed */
    TEST_LAST = 107,  /* void -> flyt_outcome; the server closes when that is sent */
};

extern const struct flyt_program test_program;       /* anonymous clients are served */
extern const struct flyt_program test_known_program; /* and not */

/* One side: what has happened to its peers. The peers' user. */
struct test_side {
    sd_event *event;
    struct flyt_peer_config config;
    struct flyt_peer *peer; /* the last one that was ready */
    unsigned ready_count, ended_count;
    struct flyt_error cause;
    struct flyt_call *kept[TEST_CALLS_MAX];
    flyt_event *kept_args[TEST_CALLS_MAX];
    unsigned kept_count, note_count, served_count, measured_count, failed_count;
    uint64_t last_note;
};

struct test_door {
    struct test_side side;
    struct flyt_door_config config;
    struct flyt_door *door;
    int listen_fd;
    char url[300];
    const char *refuse; /* admit says no to this name */
    struct flyt_identity asked;
};

/* How calls have ended. */
struct test_outcomes {
    unsigned done_count, good_count;
    int last_status;
    uint64_t last_sequence;
    unsigned statuses[8];
    size_t last_bytes;
};

void test_side_init(struct test_side *side, sd_event *event, const struct flyt_program *program);
/* Listens on url ("tcp://127.0.0.1:0", or a unix one); *door's configuration may be changed between the two. */
void test_door_init(struct test_door *door, sd_event *event, const struct flyt_program *program);
void test_door_open(struct test_door *door, const char *url, struct flyt_tls *tls);
void test_door_close(struct test_door *door);
/* Answers the oldest kept call of the side. */
void test_answer(struct test_side *side);

/* A call of TEST_ECHO, TEST_KEEP or (done NULL) TEST_NOTE, with this sequence. */
int test_call(struct flyt_peer *peer, uint32_t procedure, uint64_t sequence, uint64_t timeout_ms,
              struct test_outcomes *outcomes);
void test_done(void *user, int status, void *result);         /* of a flyt_event */
void test_done_outcome(void *user, int status, void *result); /* of a flyt_outcome, or void */

void test_run_once(sd_event *event);
#define test_run_until(event, condition)                                                                               \
    do {                                                                                                               \
        while (!(condition))                                                                                           \
            test_run_once(event);                                                                                      \
    } while (0)
/* Runs until nothing is left to be done at once. */
void test_run_idle(sd_event *event);

/* A plain socket that is connected to the URL and does not block. */
int test_raw_connect(const char *url);
/* Runs the loop until `bytes` bytes came, or the end: how many came. */
size_t test_raw_read(sd_event *event, int fd, void *data, size_t bytes);
/* Runs the loop until all is written, or it cannot be: how many bytes were. */
size_t test_raw_write(sd_event *event, int fd, const void *data, size_t bytes);
/* A call of one fragment: mark, head with this flavour, and the XDR words behind it. Returns the bytes put to data. */
size_t test_raw_call(unsigned char *data, uint32_t xid, const uint32_t *words, unsigned count);

#endif
