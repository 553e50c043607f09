/* Tests of the node manager with fake servers: tickets, limits, SM groups, extents, deaths. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/attach/attach.h"
#include "control/node/attach/pool.h"
#include "control/node/link/starts.h"
#include "control/node/memory/reserve.h"
#include "control/node/test/test_node.h"
#include "control/node/uplink/report.h"

static void is_refused(struct test_node *test, const struct flyt_credentials *credentials, bool is_forged,
                       flyt_handshake_status status, const char *words)
{
    struct test_program program = test_node_connect(test, credentials, NULL, is_forged);

    assert_int_equal(program.status, status);
    test_contains(program.message, words);
}

/* ---- the listener ---- */

static void test_tickets(void **state)
{
    struct test_node *test = *state;
    struct flyt_credentials credentials = test_node_credentials(&test_one);

    is_refused(test, NULL, false, FLYT_HANDSHAKE_DENIED, "client manager");
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_DENIED, "not on this node");
    test_node_grant(test, &test_one);
    is_refused(test, &credentials, true, FLYT_HANDSHAKE_DENIED, "not one of this node's");
    credentials.generation = 0;
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_DENIED, "revoked");
    credentials = test_node_credentials(&test_one);
    credentials.key_number = 0;
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_DENIED, "earlier key");
    credentials = test_node_credentials(&test_one);
    strcpy(credentials.vm_ip, "10.0.0.2");
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_DENIED, "another VM's");

    struct test_program program = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &program, "groups 0"), "0000000f");
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    struct test_wish revoked = test_one;
    revoked.revision = revoked.generation = 2;
    test_node_grant(test, &revoked);
    credentials = test_node_credentials(&test_one);
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_DENIED, "revoked");
    assert_string_equal(test_program_ask(test, &program, "groups 0"), "0000000f"); /* who runs goes on */
    close(program.fd);
}

static void test_bounds_of_a_vm(void **state)
{
    struct test_node *test = *state;
    struct test_wish two = test_one;
    const struct flyt_credentials credentials = test_node_credentials(&test_one);

    two.sessions_max = 2;
    test_node_grant(test, &two);
    struct test_program first = test_node_enter(test, &test_one), second = test_node_enter(test, &test_one);
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_BUSY, "as many as its allocation allows");
    close(first.fd);
    close(second.fd);
    test_node_until_empty(test, &test_one);
    two.revision = 2;
    two.state = FLYT_ALLOCATION_BLOCKED;
    test_node_grant(test, &two);
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_DENIED, "blocked");
    two.revision = 3;
    two.state = FLYT_ALLOCATION_ACTIVE;
    test_node_grant(test, &two);
    flyt_node_allocation_set_orphan(&test->node, flyt_node_allocation_find(&test->node, test_one.id));
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_DENIED, "does not know its allocation");
    two.revision = 4;
    test_node_grant(test, &two);
    test->settings.vm_attach_rate = 1;
    test->settings.vm_attach_burst = 1;
    first = test_node_enter(test, &test_one);
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_BUSY, "in a second");
    close(first.fd);
}

static void test_data_streams_go_to_their_session(void **state)
{
    struct test_node *test = *state;
    unsigned char wrong[FLYT_TOKEN_BYTES] = {1};

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program program = test_node_enter(test, &test_one);
    const struct flyt_credentials own = test_node_credentials(&test_one), foreign = test_node_credentials(&test_other);
    assert_int_equal(test_node_connect(test, &own, wrong, false).status, FLYT_HANDSHAKE_NO_SESSION);
    /* Another VM's token does not help. */
    assert_int_equal(test_node_connect(test, &foreign, program.token, false).status, FLYT_HANDSHAKE_NO_SESSION);
    close(program.fd);
}

static void test_programs_wait_for_servers(void **state)
{
    enum { MANY = 6 };
    struct test_node *test = *state;
    struct test_program programs[MANY];

    test_node_grant(test, &test_one);
    for (unsigned i = 0; i < MANY; i++)
        programs[i] = test_node_enter(test, &test_one); /* one is warm: the others are started for them */
    assert_int_equal(test_node_use(test, test_one.id).session_count, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        for (unsigned j = 0; j < i; j++)
            assert_true(programs[i].session_id != programs[j].session_id);
        close(programs[i].fd);
    }
    test_node_until_empty(test, &test_one);
    test_node_until_warm(test);
}

/* ---- memory ---- */

static void test_programs_of_a_vm_share_its_memory(void **state)
{
    struct test_node *test = *state;
    char refused[16];

    snprintf(refused, sizeof refused, "%d", -ENOMEM);
    test_node_grant(test, &test_one);
    struct test_program first = test_node_enter(test, &test_one), second = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &first, "charge 0 73400320"), "0");
    assert_string_equal(test_program_ask(test, &second, "charge 0 41943040"), refused);
    assert_string_equal(test_program_ask(test, &second, "charge 0 31457280"), "0");
    struct test_outcome use = test_node_use(test, test_one.id);
    assert_int_equal(use.slot.memory_used_bytes, 100 * MIB);
    assert_int_equal(use.slot.memory_refused_count, 1);
    /* The first is killed: what it had is there again for the second. */
    test_program_ask(test, &first, "die");
    close(first.fd);
    while (test_node_use(test, test_one.id).session_count != 1)
        test_node_run(test, 20);
    assert_int_equal(test_node_used_bytes(test, &test_one), 30 * MIB);
    assert_string_equal(test_program_ask(test, &second, "charge 0 41943040"), "0");
    close(second.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
    assert_int_equal(test_node_use(test, test_one.id).slot.memory_peak_bytes, 100 * MIB);
}

/* What the test says that NVML tells of every server. */
struct told {
    uint64_t bytes;
    bool is_told;
};

static bool tell(const void *user, unsigned gpu, pid_t pid, uint64_t *ret_bytes)
{
    const struct told *told = user;

    *ret_bytes = told->bytes;
    return told->is_told;
}

/* A context of 1 MiB, as the fake server says, is not the VM's. */
static void test_what_drivers_take_is_corrected(void **state)
{
    struct test_node *test = *state;
    struct told told = {.bytes = 63 * MIB, .is_told = true};
    char refused[16];

    snprintf(refused, sizeof refused, "%d", -ENOMEM);
    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &program, "charge 0 41943040"), "0");
    assert_string_equal(test_program_ask(test, &program, "reserve 0 2097152"), "0");
    assert_int_equal(test_node_used_bytes(test, &test_one), 42 * MIB);
    flyt_node_reserve_begin(&test->node);
    flyt_node_reserve_correct(&test->node, tell, &told);
    assert_int_equal(test_node_used_bytes(test, &test_one), 62 * MIB);
    assert_string_equal(test_program_ask(test, &program, "charge 0 39845889"), refused);
    /* Not where it has charged something since: that may be in the figure or not. */
    told.bytes = 42 * MIB;
    flyt_node_reserve_begin(&test->node);
    assert_string_equal(test_program_ask(test, &program, "charge 0 1048576"), "0");
    flyt_node_reserve_correct(&test->node, tell, &told);
    assert_int_equal(test_node_used_bytes(test, &test_one), 63 * MIB);
    /* But what is there in each of several such measurements; 1 MiB is its context. */
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(test_node_used_bytes(test, &test_one), 63 * MIB);
        told.bytes = i ? 72 * MIB : 64 * MIB;
        flyt_node_reserve_begin(&test->node);
        if (i)
            assert_string_equal(test_program_ask(test, &program, "charge 0 4096"), "0");
        flyt_node_reserve_correct(&test->node, tell, &told);
        if (i)
            assert_string_equal(test_program_ask(test, &program, "release 0 4096"), "0");
    }
    assert_int_equal(test_node_used_bytes(test, &test_one), 71 * MIB - 4096);
    told.bytes = 64 * MIB;
    flyt_node_reserve_begin(&test->node);
    flyt_node_reserve_correct(&test->node, tell, &told);
    assert_int_equal(test_node_used_bytes(test, &test_one), 63 * MIB);
    /* Nor where nothing is told. */
    told.is_told = false;
    flyt_node_reserve_begin(&test->node);
    flyt_node_reserve_correct(&test->node, tell, &told);
    assert_int_equal(test_node_used_bytes(test, &test_one), 63 * MIB);
    /* Less than is charged: nothing besides. */
    told = (struct told){.bytes = 10 * MIB, .is_told = true};
    flyt_node_reserve_begin(&test->node);
    flyt_node_reserve_correct(&test->node, tell, &told);
    assert_int_equal(test_node_used_bytes(test, &test_one), 41 * MIB);
    /* While it is copied, 3 MiB more are not the VM's: those that it may take for that. */
    struct flyt_node_server *server = test->node.servers;
    while (!flyt_node_server_allocation(server))
        server = server->next;
    const struct flyt_node_role_ops role_ops = {.kind = FLYT_NODE_ROLE_SAVE};
    struct flyt_node_role role = {&role_ops};
    told.bytes = 48 * MIB;
    for (unsigned i = 0; i < 3; i++) {
        server->role = i == 1 ? &role : NULL;
        flyt_node_reserve_begin(&test->node);
        server->role = NULL; /* also where that has ended meanwhile */
        flyt_node_reserve_correct(&test->node, tell, &told);
        assert_int_equal(test_node_used_bytes(test, &test_one), (i == 1 ? 44 : 47) * MIB);
    }
    /* Far beyond the limit: one event, nobody is ended, nothing more is granted. */
    told.bytes = 300 * MIB;
    unsigned events = test->event_count;
    for (unsigned i = 0; i < 3; i++) {
        flyt_node_reserve_begin(&test->node);
        flyt_node_reserve_correct(&test->node, tell, &told);
    }
    assert_int_equal(test->event_count, events + 1);
    test_contains(test->last_event, "memory.over");
    assert_string_equal(test_program_ask(test, &program, "charge 0 1"), refused);
    assert_int_equal(test_node_use(test, test_one.id).session_count, 1);
    close(program.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
}

static void test_limits_change(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = test_one;
    char refused[16];

    snprintf(refused, sizeof refused, "%d", -ENOMEM);
    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &program, "charge 0 62914560"), "0");
    /* Refused when all servers have answered: nobody waits so long. */
    wish.revision = 2;
    wish.memory_bytes = 50 * MIB;
    struct test_outcome outcome = test_node_order(test, &wish);
    assert_int_equal(outcome.status, FLYT_STATUS_IN_USE);
    test_contains(outcome.text, "in use");
    assert_int_equal(outcome.revision, 1); /* nothing has changed */
    assert_int_equal(outcome.slot.memory_bytes, 100 * MIB);
    /* What is only cached is given back for it. */
    assert_string_equal(test_program_ask(test, &program, "release 0 20971520"), "0");
    assert_string_equal(test_program_ask(test, &program, "cache 0 31457280"), "0");
    outcome = test_node_order(test, &wish);
    assert_int_equal(outcome.status, FLYT_STATUS_OK);
    assert_int_equal(outcome.slot.memory_bytes, 50 * MIB);
    assert_int_equal(outcome.slot.memory_used_bytes, 40 * MIB);
    assert_string_equal(test_program_ask(test, &program, "charge 0 20971520"), refused);
    /* When free: sinks as it is released. */
    wish.revision = 3;
    wish.memory_bytes = 10 * MIB;
    wish.when_free = true;
    outcome = test_node_order(test, &wish);
    assert_int_equal(outcome.status, FLYT_STATUS_OK);
    assert_int_equal(outcome.slot.memory_bytes, 40 * MIB);
    assert_string_equal(test_program_ask(test, &program, "charge 0 1"), refused);
    assert_string_equal(test_program_ask(test, &program, "release 0 36700160"), "0");
    assert_int_equal(test_node_use(test, test_one.id).slot.memory_bytes, 10 * MIB);
    assert_string_equal(test_program_ask(test, &program, "limit 0"), "10485760");
    close(program.fd);
}

static void test_extents_outlive_nobody(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &program, "extent 1 0 8388608"), "0");
    assert_string_equal(test_program_ask(test, &program, "extent 2 0 4194304"), "0");
    struct flyt_node_server *server = flyt_node_server_find(&test->node, program.session_id);
    while (server->has.extents.count < 2)
        test_node_run(test, 10);
    assert_int_equal(server->has.extents.bytes, 12 * MIB);
    /* Credited when the manager has let go. */
    assert_string_equal(test_program_ask(test, &program, "drop 1"), "8388608");
    assert_int_equal(test_node_used_bytes(test, &test_one), 4 * MIB);
    assert_int_equal(server->has.extents.count, 1);
    int fd = server->has.extents.first->fd;
    test_program_ask(test, &program, "die");
    test_node_until_empty(test, &test_one);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
    test_contains(test->last_event, "session.ended");
    test_contains(test->last_event, "signal 9");
    close(program.fd);
}

/* ---- SMs ---- */

/* What a program cannot leave it keeps, and that is said, until it ends. */
static void test_groups_that_are_kept(void **state)
{
    struct test_node *test = *state;
    struct test_wish more = test_one;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one), able = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &program, "unchanging 1"), "0");
    more.revision = 2;
    more.group_count = 2;
    assert_int_equal(test_node_order(test, &more).status, FLYT_STATUS_OK);
    while (test_node_use(test, test_one.id).slot.switch_state == FLYT_SWITCH_TARGET)
        test_node_run(test, 10);
    assert_int_equal(test_node_use(test, test_one.id).slot.switch_state, FLYT_SWITCH_KEPT);
    assert_int_equal(test_node_use(test, test_one.id).slot.sm_count, 32);
    assert_string_equal(test_program_ask(test, &able, "groups 0"), "00000003");
    assert_int_equal(test_node_use(test, test_one.id).slot.switch_state, FLYT_SWITCH_KEPT);
    /* Its groups are not given to others meanwhile. */
    struct test_wish big = test_other;
    big.first_group = 2;
    big.group_count = 6;
    assert_int_equal(test_node_order(test, &big).status, FLYT_STATUS_CONFLICT);
    close(program.fd);
    while (test_node_use(test, test_one.id).slot.switch_state != FLYT_SWITCH_VACATED)
        test_node_run(test, 10);
    assert_int_equal(test_node_use(test, test_one.id).slot.sm_count, 16);
    assert_int_equal(test_node_order(test, &big).status, FLYT_STATUS_OK);
    close(able.fd);
    test_node_until_empty(test, &test_one);
}

static void test_groups_are_given_when_vacated(void **state)
{
    struct test_node *test = *state;
    struct test_wish small = test_one, big = test_other;

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    struct test_program program = test_node_enter(test, &test_one);
    assert_int_equal(test_node_use(test, test_one.id).slot.sm_count, 32);
    big.revision = 2;
    big.first_group = 2;
    big.group_count = 6;
    struct test_outcome outcome = test_node_order(test, &big);
    assert_int_equal(outcome.status, FLYT_STATUS_CONFLICT);
    test_contains(outcome.text, "10.0.0.1");
    assert_string_equal(test_program_ask(test, &program, "sluggish 1"), "0");
    small.revision = 2;
    small.group_count = 2;
    assert_int_equal(test_node_order(test, &small).status, FLYT_STATUS_OK);
    while (test_node_use(test, test_one.id).slot.switch_state == FLYT_SWITCH_TARGET)
        test_node_run(test, 10);
    assert_int_equal(test_node_use(test, test_one.id).slot.switch_state, FLYT_SWITCH_SWITCHED);
    assert_int_equal(test_node_use(test, test_one.id).slot.sm_count, 16);
    assert_string_equal(test_program_ask(test, &program, "groups 0"), "00000003");
    /* Old work still runs there. */
    assert_int_equal(test_node_order(test, &big).status, FLYT_STATUS_CONFLICT);
    close(program.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(test_node_use(test, test_one.id).slot.switch_state, FLYT_SWITCH_VACATED);
    assert_int_equal(test_node_order(test, &big).status, FLYT_STATUS_OK);
    /* Who begins now begins with the new ones, and the last group has 12. */
    small.revision = 3;
    small.first_group = 15;
    small.group_count = 1;
    test_node_grant(test, &small);
    program = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &program, "groups 0"), "00008000");
    assert_int_equal(test_node_use(test, test_one.id).slot.sm_count, 12);
    small.revision = 4;
    small.first_group = 16;
    assert_int_equal(test_node_order(test, &small).status, FLYT_STATUS_INVALID);
    close(program.fd);
}

/* ---- orders ---- */

static void test_orders_are_absolute(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = test_one;

    wish.epoch = wish.revision = 5;
    assert_int_equal(test_node_order(test, &wish).status, FLYT_STATUS_OK);
    assert_int_equal(test_node_order(test, &wish).status, FLYT_STATUS_OK); /* again */
    wish.epoch = 4;
    assert_int_equal(test_node_order(test, &wish).status, FLYT_STATUS_STALE);
    wish.epoch = 6;
    wish.revision = 4;
    struct test_outcome outcome = test_node_order(test, &wish);
    assert_int_equal(outcome.order, FLYT_STATUS_OK);
    assert_int_equal(outcome.status, FLYT_STATUS_STALE);
    assert_int_equal(outcome.revision, 5);
    assert_int_equal(test->node.state.epoch, 6);
    wish.revision = 7;
    wish.gpu = 5;
    assert_int_equal(test_node_order(test, &wish).status, FLYT_STATUS_NOT_FOUND);
    /* Another GPU, while nobody runs. */
    wish.gpu = 1;
    assert_int_equal(test_node_order(test, &wish).status, FLYT_STATUS_OK);
    wish.generation = 1;
    struct test_program program = test_node_enter(test, &wish);
    assert_int_equal(flyt_node_server_find(&test->node, program.session_id)->gpu->index, 1);
    wish.revision = 8;
    wish.gpu = 0;
    assert_int_equal(test_node_order(test, &wish).status, FLYT_STATUS_IN_USE);
    close(program.fd);
}

static void test_sessions_are_ended(void **state)
{
    struct test_node *test = *state;
    struct test_wish others_with_its_groups = test_other;
    others_with_its_groups.first_group = test_one.first_group;

    test_node_grant(test, &test_one);
    struct test_program first = test_node_enter(test, &test_one), second = test_node_enter(test, &test_one);
    assert_string_equal(test_program_ask(test, &second, "stubborn"), "0");
    flyt_node_server_end(flyt_node_server_find(&test->node, first.session_id), "an operator wants it so");
    assert_string_equal(test_program_ask(test, &first, NULL), "killed: an operator wants it so");
    while (test_node_use(test, test_one.id).session_count > 1)
        test_node_run(test, 10);
    test_contains(test->last_event, "an operator wants it so");
    /* The other does not hear, and its allocation is taken back: it is killed after its grace. */
    test->settings.kill_grace_ms = TEST_GRACE_MS;
    test_node_remove(test, test_one.id);
    const struct flyt_credentials credentials = test_node_credentials(&test_one);
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_DENIED, "taken back");
    /* Who ordered it gives its SMs and memory to others when he has the answer: not before they are free. */
    assert_int_equal(test_node_order(test, &others_with_its_groups).status, FLYT_STATUS_CONFLICT);
    assert_false(test_node_is_removed(test, NULL));
    assert_string_equal(test_program_ask(test, &second, NULL), "gone");
    test_node_until(test, test_node_is_removed, NULL, "the answer");
    assert_int_equal(test->removal.order, FLYT_STATUS_OK);
    assert_null(test->node.allocations);
    close(first.fd);
    close(second.fd);
    test_node_stop(test);
    test_node_start(test);
    assert_null(test->node.allocations); /* nor is it there after a restart */
    test_node_until_warm(test);
}

/* A program in the queue, for which no server starts. Returns the other end of its socket. */
static int queue_program(struct test_node *test, const struct test_wish *wish)
{
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(&test->node, wish->id);
    const struct flyt_node_ticket ticket = {.allocation_id = wish->id, .generation = wish->generation, .xid = 9};
    int fds[2];

    test->node.starts[0].after_ms = UINT64_MAX;
    flyt_node_starts_renew(&test->node, &test->node.gpus.items[0]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    flyt_node_pool_serve(&test->node, allocation, &ticket, fds[0], "x", 1);
    return fds[1];
}

static void is_sent_away(struct test_node *test, int fd, const char *words)
{
    char reply[1024] = "";

    assert_true(test_node_readable(test, fd));
    ssize_t bytes = recv(fd, reply, sizeof reply, 0);
    assert_true(bytes > 0);
    if (!memmem(reply, (size_t)bytes, words, strlen(words)))
        fail_msg("not \"%s\"", words);
    close(fd);
}

static void test_who_waits_is_checked_again(void **state)
{
    struct test_node *test = *state;
    struct test_wish wish = test_one;

    test_node_grant(test, &wish);
    int fd = queue_program(test, &wish);
    wish.revision++;
    wish.state = FLYT_ALLOCATION_BLOCKED;
    test_node_grant(test, &wish);
    is_sent_away(test, fd, "blocked");
    wish.revision++;
    wish.state = FLYT_ALLOCATION_ACTIVE;
    test_node_grant(test, &wish);
    fd = queue_program(test, &wish);
    wish.revision++;
    wish.generation++;
    test_node_grant(test, &wish);
    is_sent_away(test, fd, "revoked");
    /* They count as sessions: a VM fills the queue with no more than it may have. */
    wish.revision++;
    wish.sessions_max = 1;
    test_node_grant(test, &wish);
    fd = queue_program(test, &wish);
    const struct flyt_credentials credentials = test_node_credentials(&wish);
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_BUSY, "as many as its allocation allows");
    close(fd);
}

static void test_limit_that_cannot_be_kept(void **state)
{
    struct test_node *test = *state;
    struct test_wish more = test_one;
    char path[128];

    test_node_grant(test, &test_one);
    snprintf(path, sizeof path, "%s/state.json.part", test->folder);
    assert_int_equal(mkdir(path, 0700), 0);
    more.revision++;
    more.memory_bytes *= 2;
    assert_int_equal(test_node_order(test, &more).status, FLYT_STATUS_UNAVAILABLE);
    assert_int_equal(test_node_use(test, test_one.id).slot.memory_bytes, test_one.memory_bytes);
    assert_int_equal(test_node_use(test, test_one.id).revision, test_one.revision);
    more.memory_bytes = test_one.memory_bytes;
    more.gpu = 1; /* nor is it on another GPU */
    assert_int_equal(test_node_order(test, &more).status, FLYT_STATUS_UNAVAILABLE);
    assert_int_equal(test_node_order(test, &more).status, FLYT_STATUS_UNAVAILABLE);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(test_node_order(test, &more).status, FLYT_STATUS_OK);
}

static void test_settings_leave_slots(void **state)
{
    struct test_node *test = *state;
    struct flyt_error err = {0};

    test->settings.warm = 3;
    test->settings.client_slots = 4;
    assert_int_equal(flyt_node_settings_check(&test->settings, &err), 0);
    test->settings.warm = 4;
    assert_int_equal(flyt_node_settings_check(&test->settings, &err), -EINVAL);
    test_contains(err.text, "client_slots");
    test->settings.warm = 1;
    static const char *const wrong[] = {"", "9", "9.", "9.0,8.0", "x", "9.0 "};
    char **capability = &test->settings.software_cc.items[0], *right = *capability;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        *capability = (char *)wrong[i];
        assert_int_equal(flyt_node_settings_check(&test->settings, &err), -EINVAL);
        test_contains(err.text, "software_cc");
    }
    *capability = right;
    assert_int_equal(flyt_node_settings_check(&test->settings, &err), 0);
}

/* vsock is programs' way here, and named as guests name their host. */
static void test_settings_of_vsock(void **state)
{
    struct test_node *test = *state;
    char urls[FLYT_URLS_MAX][FLYT_URL_BYTES_MAX + 1], *manager[] = {(char *)"vsock://2:1"};
    struct flyt_error err = {0};

    *test->node.attach->local_url = 0;
    test->node.attach->listen_count = 2;
    strcpy(test->node.attach->listen_urls[0], "vsock://:9810");
    strcpy(test->node.attach->listen_urls[1], "vsock://1:7");
    assert_int_equal(flyt_node_report_urls(&test->node, urls), 2);
    assert_string_equal(urls[0], "vsock://2:9810");
    assert_string_equal(urls[1], "vsock://1:7");
    test->node.attach->listen_count = 1;
    const struct flyt_strings none = test->settings.managers;
    test->settings.managers = (struct flyt_strings){.items = manager, .count = 1};
    assert_int_equal(flyt_node_settings_check(&test->settings, &err), -EINVAL);
    test_contains(err.text, "managers");
    test->settings.managers = none;
}

/* ---- GPUs ---- */

static void test_gpu_that_does_not_work(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_one);
    setenv("FLYT_FAKE_FAILURE", "the driver says 999", 1);
    flyt_node_starts_renew(&test->node, &test->node.gpus.items[0]);
    while (test->node.gpus.items[0].health != FLYT_HEALTH_FAILED)
        test_node_run(test, 20);
    assert_string_equal(test->node.gpus.items[0].health_text, "the driver says 999");
    const struct flyt_credentials credentials = test_node_credentials(&test_one);
    is_refused(test, &credentials, false, FLYT_HANDSHAKE_NO_DEVICE, "the driver says 999");
    unsetenv("FLYT_FAKE_FAILURE");
    while (test->node.gpus.items[0].health != FLYT_HEALTH_OK)
        test_node_run(test, 20);
    struct test_program program = test_node_enter(test, &test_one);
    close(program.fd);
}

/* A driver that splits the SMs otherwise than the one before: the same group numbers would mean other SMs. */
static void test_another_split_is_refused(void **state)
{
    static const struct {
        const char *name, *value, *said;
    } splits[] = {
        {"FLYT_FAKE_SPLIT", "3 6", "finds 16 SM groups with 130 SMs on GPU"},
        {"FLYT_FAKE_GROUPS", "15", "finds 15 SM groups with 120 SMs on GPU"},
    };
    struct test_node *test = *state;
    struct flyt_node_gpu *gpu = &test->node.gpus.items[0];

    test_node_grant(test, &test_one);
    struct test_program running = test_node_enter(test, &test_one);
    for (unsigned i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        setenv(splits[i].name, splits[i].value, 1);
        flyt_node_starts_renew(&test->node, gpu);
        while (gpu->health != FLYT_HEALTH_FAILED)
            test_node_run(test, 20);
        test_contains(gpu->health_text, splits[i].said);
        test_contains(gpu->health_text, "where others found 16 with 132");
        const struct flyt_credentials credentials = test_node_credentials(&test_one);
        is_refused(test, &credentials, false, FLYT_HANDSHAKE_NO_DEVICE, splits[i].said);
        /* Who runs goes on, and what was known stays. */
        assert_string_equal(test_program_ask(test, &running, "groups 0"), "0000000f");
        assert_int_equal(gpu->group_count, 16);
        assert_int_equal(gpu->group_sms[3], 8);
        unsetenv(splits[i].name);
        while (gpu->health != FLYT_HEALTH_OK)
            test_node_run(test, 20);
    }
    struct test_program program = test_node_enter(test, &test_one);
    close(program.fd);
    close(running.fd);
}

/* The fake server is as one of a build before core dumps, which a message of these ends. */
static void test_an_older_server_is_told_of_no_core_dumps(void **state)
{
    struct test_node *test = *state;

    test->settings.vm_coredump_bytes_max = 1 << 20;
    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "groups 0", "0000000f");
    test_node_leave(test, &test_one, &program, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_an_older_server_is_told_of_no_core_dumps),
        TEST_NODE(test_tickets),
        TEST_NODE(test_bounds_of_a_vm),
        TEST_NODE(test_data_streams_go_to_their_session),
        TEST_NODE(test_programs_wait_for_servers),
        TEST_NODE(test_programs_of_a_vm_share_its_memory),
        TEST_NODE(test_what_drivers_take_is_corrected),
        TEST_NODE(test_limits_change),
        TEST_NODE(test_extents_outlive_nobody),
        TEST_NODE(test_groups_are_given_when_vacated),
        TEST_NODE(test_groups_that_are_kept),
        TEST_NODE(test_another_split_is_refused),
        TEST_NODE(test_orders_are_absolute),
        TEST_NODE(test_sessions_are_ended),
        TEST_NODE(test_who_waits_is_checked_again),
        TEST_NODE(test_limit_that_cannot_be_kept),
        TEST_NODE(test_settings_leave_slots),
        TEST_NODE(test_settings_of_vsock),
        TEST_NODE(test_gpu_that_does_not_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
