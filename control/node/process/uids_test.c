/*
 * The pool of users for servers, over a folder like /proc that this test makes; what of the setting is refused; and
 * what a process is that has become such a user (as root only).
 */
#include "control/node/process/uids.h"

#include <errno.h>
#include <linux/capability.h>
#include <pwd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/base/worker.h"
#include "control/node/link/server.h"
#include "control/node/model/node.h"
#include "control/node/state/uid_range.h"
#include "rpc/base/ticket.h"

enum { FIRST = 70000, LAST = 70003 };

struct fixture {
    char folder[64];
    struct flyt_node_uids uids;
};

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    const struct flyt_range range = {.first = FIRST, .last = LAST};

    if (!self)
        return -1;
    strcpy(self->folder, "/tmp/flyt-uids-test-XXXXXX");
    assert_non_null(mkdtemp(self->folder));
    assert_int_equal(flyt_node_uids_init(&self->uids, &range), 0);
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    char command[128];

    flyt_node_uids_fini(&self->uids);
    snprintf(command, sizeof command, "rm -rf %s", self->folder);
    assert_int_equal(system(command), 0);
    free(self);
    return 0;
}

static void begin(const struct fixture *self, const char *process, const char *uids)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", self->folder, process);
    assert_int_equal(mkdir(path, 0755), 0);
    strcat(path, "/status");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "Name:\tUid: 70000\nState:\tS (sleeping)\nUid:\t%s\nGid:\t0\t0\t0\t0\n", uids);
    assert_int_equal(fclose(file), 0);
}

static void end(const struct fixture *self, const char *process)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s/status", self->folder, process);
    assert_int_equal(unlink(path), 0);
    *strrchr(path, '/') = 0;
    assert_int_equal(rmdir(path), 0);
}

static void each_is_given_once(void **state)
{
    struct fixture *self = *state;

    for (uid_t uid = FIRST; uid <= LAST; uid++)
        assert_int_equal(flyt_node_uids_next(&self->uids), uid);
    assert_int_equal(flyt_node_uids_next(&self->uids), 0);
}

static void processes_have_theirs(void **state)
{
    struct fixture *self = *state;

    begin(self, "17", "0\t0\t0\t0");
    begin(self, "18", "70001\t70001\t70001\t70001");
    begin(self, "19", "0\t0\t70003\t0");               /* could be that user again */
    begin(self, "self", "70000\t70000\t70000\t70000"); /* no number: no process */
    begin(self, "20", "4294967295\t69999\t70004\t0");
    assert_int_equal(flyt_node_uids_look(&self->uids, self->folder), 0);
    assert_int_equal(flyt_node_uids_next(&self->uids), FIRST);
    assert_int_equal(flyt_node_uids_next(&self->uids), FIRST + 2);
    assert_int_equal(flyt_node_uids_next(&self->uids), 0);
}

static void who_has_ended_gives_his_back(void **state)
{
    struct fixture *self = *state;

    for (unsigned i = 0; i < 4; i++)
        flyt_node_uids_next(&self->uids);
    begin(self, "18", "70000\t70000\t70000\t70000");
    begin(self, "19", "70002\t70002\t70002\t70002");
    assert_int_equal(flyt_node_uids_look(&self->uids, self->folder), 0);
    flyt_node_uids_mark(&self->uids, FIRST + 3); /* a process that is not that user yet */
    assert_int_equal(flyt_node_uids_next(&self->uids), FIRST + 1);
    assert_int_equal(flyt_node_uids_next(&self->uids), 0);
    end(self, "19");
    assert_int_equal(flyt_node_uids_look(&self->uids, self->folder), 0);
    /* The next one after that which was given last: a number rests as long as there are others. */
    assert_int_equal(flyt_node_uids_next(&self->uids), FIRST + 2);
    assert_int_equal(flyt_node_uids_next(&self->uids), FIRST + 3);
    assert_int_equal(flyt_node_uids_next(&self->uids), FIRST + 1);
    assert_int_equal(flyt_node_uids_next(&self->uids), 0);
}

static void what_cannot_be_read_changes_nothing(void **state)
{
    struct fixture *self = *state;

    for (unsigned i = 0; i < 4; i++)
        flyt_node_uids_next(&self->uids);
    assert_int_equal(flyt_node_uids_look(&self->uids, "/nonexistent"), -ENOENT);
    assert_int_equal(flyt_node_uids_next(&self->uids), 0);
}

/* Where none is left a thread looks, and whoever starts servers is told when it has. */
static void a_thread_looks(void **state)
{
    const struct flyt_range range = {.first = 3999990000, .last = 3999990003}; /* nobody's */
    const struct flyt_node_subscriber subscribers[] = {{FLYT_NODE_EVENT_SERVERS, NULL}, {0}};
    struct flyt_node node = {.events = {.subscribers = subscribers}};
    uid_t uid = 0;

    assert_int_equal(sd_event_new(&node.event), 0);
    assert_int_equal(flyt_node_uids_init(&node.uids, &range), 0);
    assert_int_equal(flyt_worker_new(node.event, "spawner", 4, &node.spawner), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(flyt_node_uids_take(&node, &uid), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(flyt_node_uids_take(&node, &uid), -EINPROGRESS);
    while (node.uids.is_looking)
        assert_true(sd_event_run(node.event, 1000000) >= 0);
    assert_int_equal(node.events.due, 1); /* servers were to be started */
    assert_int_equal(flyt_node_uids_take(&node, &uid), 0);
    assert_int_equal(uid, range.first);
    /* That there is none is said once for each look. */
    memset(node.uids.used, 0xff, 1);
    assert_int_equal(flyt_node_uids_take(&node, &uid), -EINPROGRESS);
    while (node.uids.is_looking)
        assert_true(sd_event_run(node.event, 1000000) >= 0);
    memset(node.uids.used, 0xff, 1);
    assert_int_equal(flyt_node_uids_take(&node, &uid), -EUSERS);
    assert_int_equal(flyt_node_uids_take(&node, &uid), -EINPROGRESS);
    flyt_worker_free(node.spawner);
    sd_event_unref(node.event);
    flyt_node_uids_fini(&node.uids);
}

static void without_a_range_there_is_none(void **state)
{
    const struct flyt_range none = {0};
    struct flyt_node_uids uids;

    assert_int_equal(flyt_node_uids_init(&uids, &none), 0);
    flyt_node_uids_mark(&uids, 5);
    assert_int_equal(flyt_node_uids_look(&uids, "/proc"), 0);
    assert_int_equal(flyt_node_uids_next(&uids), 0);
    flyt_node_uids_fini(&uids);
}

static void settings_are_checked(void **state)
{
    static const struct {
        uint64_t first, last;
        const char *word; /* NULL: it is right */
    } cases[] = {
        {0, 0, NULL},
        {70000, 70095, NULL},
        {70000, 70094, "has 95 users, fewer than the 96 servers"},
        {70000, 135535, NULL},
        {70000, 135536, "more than 65536"},
        {65436, 65600, "65535, which is no user"},
        {65436, 65534, "65534, the user "},
    };
    struct flyt_node_settings settings = {.client_slots = 48, .software_gpus = 2, .server = (char *)"/bin/server"};
    struct flyt_error err;

    settings.server_uids.where = (char *)"file:7: ";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        settings.server_uids.first = cases[i].first;
        settings.server_uids.last = cases[i].last;
        if (cases[i].last == 65534 && !getpwuid(65534))
            continue; /* a machine without that account */
        int status = flyt_node_uid_range_check(&settings, &err);
        assert_int_equal(status, cases[i].word ? -EINVAL : 0);
        if (cases[i].word && (strncmp(err.text, "file:7: server_uids", 19) != 0 || !strstr(err.text, cases[i].word)))
            fail_msg("case %zu says: %s", i, err.text);
    }
    settings.server_uids = (struct flyt_range){.first = 70000, .last = 71000};
    settings.server = (char *)"build/server";
    assert_int_equal(flyt_node_uid_range_check(&settings, &err), -EINVAL);
    assert_non_null(strstr(err.text, "path from the root"));
    if (!getuid()) {
        settings.server = (char *)"/bin/server";
        assert_int_equal(seteuid(70500), 0);
        int status = flyt_node_uid_range_check(&settings, &err);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(status, -EINVAL);
        assert_non_null(strstr(err.text, "70500, the node manager's own user"));
    }
}

/* A set of capabilities of this thread. */
static uint64_t capabilities(const char *name)
{
    char line[256];
    uint64_t set = UINT64_MAX;

    FILE *file = fopen("/proc/thread-self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            set = strtoull(line + strlen(name) + 1, NULL, 16);
    if (file)
        fclose(file);
    return set;
}

/* In the child: 0 where everything of root is gone, for ever. */
static int look_at_oneself(bool may_drop)
{
    uid_t uids[3];
    gid_t gids[3];

    if (getresuid(&uids[0], &uids[1], &uids[2]) || getresgid(&gids[0], &gids[1], &gids[2]) || getgroups(0, NULL) != 0)
        return 1;
    for (unsigned i = 0; i < 3; i++)
        if (uids[i] != FIRST || gids[i] != FIRST)
            return 2;
    if (capabilities("CapInh") || capabilities("CapPrm") || capabilities("CapEff") || capabilities("CapAmb") ||
        (may_drop && capabilities("CapBnd")))
        return 3;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0)
        return 4;
    if (!setuid(0) || !setgid(0) || !kill(getppid(), 0) || !access("/etc/shadow", R_OK))
        return 5;
    return access("mark", F_OK) ? 6 : 0; /* its folder is where it is, though no path leads there */
}

static void a_process_gives_everything_up(void **state)
{
    struct fixture *self = *state;
    bool may_drop = capabilities("CapEff") >> CAP_SETPCAP & 1;
    char home[128], mark[256];
    int status;

    if (getuid())
        skip();
    snprintf(home, sizeof home, "%s/home", self->folder); /* in a folder of root's alone */
    snprintf(mark, sizeof mark, "%s/mark", home);
    assert_int_equal(mkdir(home, 0755) | mkdir(mark, 0755), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(flyt_node_uids_become(FIRST, home) ? 99 : look_at_oneself(may_drop));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    pid = fork();
    if (pid == 0)
        _exit(flyt_node_uids_become(FIRST, "/nonexistent") ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* What proves who a server is proves it for its user alone; for the node manager's, as it always was. */
static void a_secret_is_of_one_user(void **state)
{
    struct flyt_node *node = calloc(1, sizeof *node);
    unsigned char secrets[4][FLYT_MANAGER_LINK_SECRET_BYTES], old[FLYT_MANAGER_LINK_SECRET_BYTES];
    const uid_t uids[] = {geteuid(), FIRST, FIRST + 1, LAST};
    struct {
        char what[16];
        uint64_t ids[3];
    } text = {"flyt rejoin", {1, 2, 3}};

    assert_non_null(node);
    memset(node->state.node_key, 7, sizeof node->state.node_key);
    for (unsigned i = 0; i < 4; i++)
        flyt_node_server_secret(node, uids[i], 1, 2, 3, secrets[i]);
    flyt_hmac(node->state.node_key, sizeof node->state.node_key, &text, sizeof text, old);
    assert_memory_equal(secrets[0], old, sizeof old);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < i; j++)
            assert_memory_not_equal(secrets[i], secrets[j], sizeof secrets[i]);
    free(node);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_is_given_once),
        TEST(processes_have_theirs),
        TEST(who_has_ended_gives_his_back),
        TEST(what_cannot_be_read_changes_nothing),
        cmocka_unit_test(a_thread_looks),
        cmocka_unit_test(without_a_range_there_is_none),
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(a_secret_is_of_one_user),
        TEST(a_process_gives_everything_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
