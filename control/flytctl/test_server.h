/*
 * For tests of flytctl's commands: a cluster manager with canned answers behind a real door, and flytctl as a real
 * process against it. The loop of the test serves while the process runs, so that what it asked can be looked at
 * afterwards.
 */
#ifndef FLYT_FLYTCTL_TEST_SERVER_H
#define FLYT_FLYTCTL_TEST_SERVER_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "control/base/peer.h"

enum { TEST_LEADERS_MAX = 4, TEST_WORDS_MAX = 40 };

/* What the server does with calls behind HELLO. */
enum test_manner {
    TEST_ANSWERS,
    TEST_IS_SILENT, /* never answers */
    TEST_IS_SILENT_FROM_HELLO,
    TEST_CLOSES,        /* closes the connection instead */
    TEST_DOES_NOT_LEAD, /* HELLO says so */
    TEST_LEADS_FROM_THIRD_HELLO,
    TEST_LEADS_NO_MORE, /* HELLO says that it leads, the first call that it does not; then HELLO does not either */
    TEST_REPEATS,       /* views never end: each page is empty and says to go on where the last one said */
    TEST_IS_GARBAGE,    /* views are no JSON */
};

struct test_view {
    const char *name;
    const char *json;
    size_t pages; /* 0, 1: one. More: the same again, so often */
};

struct test_server {
    sd_event *event;
    struct flyt_door *door;
    int listen_fd;
    char url[300];
    char folder[64]; /* removed at the end */

    enum test_manner manner;
    const char *leaders[TEST_LEADERS_MAX];
    const struct test_view *views; /* ended by one without name */
    flyt_status status;            /* of all calls behind HELLO */
    const char *text;
    const char *token;
    uint64_t backup_bytes, backup_cut_bytes; /* the copy; where it ends early (0: it does not) */

    struct flyt_call *kept[16]; /* those that are never answered */
    unsigned kept_count;

    /* What was asked. */
    unsigned hello_count, call_count, view_count;
    flyt_peer_kind kind;
    char name[256], vm[256], selector[256], target[256], tenant[256];
    const char *path; /* of memory that a VM is to share; NULL: one in /dev/shm */
    uint32_t last;
    flyt_vm_set_args set; /* its strings are not kept */
    char set_name[256];
    unsigned include_count;
    char library[64]; /* the first that a VM is set to want */
    bool has_includes;
    flyt_resize_args resize;
    flyt_migrate_args migrate; /* its strings are not kept */
    unsigned migrate_count, cancel_count;
    flyt_status migrate_status;      /* what FLYT_MIGRATE answers; OK: migration 000000000000feed */
    flyt_checkpoint_args checkpoint; /* its strings are not kept; vm, target: the folder */
    flyt_restore_args restore;       /* likewise; vm: the node */
    unsigned checkpoint_count, restore_count;
    flyt_status saving_status; /* what these answer; OK: 000000000000beef */
    flyt_drain_args drain;
    unsigned drain_count;
    /* What FLYT_DRAIN answers: so many SMs of a program are draining (0: none); TIMEOUT, or OK where it was to end it.
     */
    unsigned draining_sms;
    const char *program_name; /* of what is draining; NULL: "solver" */
    flyt_tenant_set_args quotas;
    flyt_schedule_args schedule;
    unsigned group_size, valid_s;
    flyt_peer_kind token_kind;
    uint64_t id;
    int action;
    bool kill, is_confirmed;
};

/* A server on a unix socket in a folder of its own. */
void test_server_init(struct test_server *server, sd_event *event);
void test_server_fini(struct test_server *server);
/* What it was asked so far is forgotten; it answers again. */
void test_server_reset(struct test_server *server);

struct test_result {
    int status; /* exit status; 128 + the signal */
    char *out, *err;
    size_t out_bytes;
};

/* Runs flytctl with --manager of the server (NULL: none) and these words, ended by NULL; on_terminal: stdout is a
 * terminal of so many columns. Typed: what is put into the terminal. Free with test_result_fini. */
void test_run(struct test_server *server, unsigned columns, const char *typed, struct test_result *ret_result,
              const char *const *words);
void test_result_fini(struct test_result *result);
/* Ends the process that test_run runs with SIGINT, after so many ms and when it has read three views (0: not at all).
 */
extern unsigned test_interrupt_after_ms;
/* Runs it as this user; 0: as ourselves. */
extern unsigned test_as_uid;

#endif
