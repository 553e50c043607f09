#include "control/node/test/test_node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/base/config.h"
#include "control/node/attach/attach.h"
#include "control/node/attach/pool.h"
#include "control/node/link/starts.h"
#include "control/node/ops/move.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/process/libraries.h"
#include "control/node/runtime.h"
#include "control/node/uplink/allocation_use.h"
#include "control/node/uplink/order.h"
#include "flyt_signatures.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/sha256.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/message.h"

enum { PATIENCE_MS = 60000, STEP_US = 20000 };

const struct test_wish test_one = {.id = 0x11,
                                   .revision = 1,
                                   .epoch = 1,
                                   .vm_ip = "10.0.0.1",
                                   .generation = 1,
                                   .sessions_max = 8,
                                   .memory_bytes = 100 * MIB,
                                   .group_count = 4};
const struct test_wish test_other = {.id = 0x22,
                                     .revision = 1,
                                     .epoch = 1,
                                     .vm_ip = "10.0.0.2",
                                     .generation = 1,
                                     .sessions_max = 8,
                                     .memory_bytes = 100 * MIB,
                                     .first_group = 4,
                                     .group_count = 4};

/* ---- the node ---- */

static void note_event(void *user, const char *kind, const char *object, const char *text)
{
    struct test_node *test = user;

    test->event_count++;
    snprintf(test->last_event, sizeof test->last_event, "%.60s %.440s", kind, text);
}

struct test_node *test_node_new(void)
{
    struct test_node *test = calloc(1, sizeof *test);
    struct flyt_error err;
    char program[512];

    assert_non_null(test);
    assert_int_equal(flyt_config_read(NULL, flyt_node_setting_table, &test->settings, &err), 0);
    strcpy(test->folder, "/tmp/flyt-node-test-XXXXXX");
    assert_non_null(mkdtemp(test->folder));
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 32);
    assert_true(bytes > 0);
    program[bytes] = 0;
    *strrchr(program, '/') = 0; /* build/control/node/FOLDER: the server is in another one */
    strcpy(strrchr(program, '/') + 1, "test/fake-server");
    test->settings.vm_coredump_bytes_max = 0; /* what servers are told in it is of other tests */
    free(test->settings.server);
    free(test->settings.state_dir);
    free(test->settings.listen.items[0]);
    free(test->settings.name);
    free(test->settings.socket);
    assert_true(asprintf(&test->settings.socket, "%s/node.sock", test->folder) > 0);
    test->settings.server = strdup(program);
    test->settings.state_dir = strdup(test->folder);
    test->settings.name = strdup("testnode");
    test->settings.software_gpus = 2;
    test->settings.software_memory_bytes = 1 << 30;
    test->settings.kill_grace_ms = TEST_LONG_MS;
    test->settings.rejoin_ms = TEST_LONG_MS;
    test->settings.limit_wait_ms = TEST_LONG_MS;
    test->settings.server_lost_ms = TEST_LONG_MS;
    test->settings.listen.items[0] = strdup("tcp://127.0.0.1:0");
    assert_true(sd_event_new(&test->event) >= 0);
    return test;
}

void test_node_start(struct test_node *test)
{
    const struct flyt_node_hooks hooks = {.user = test, .event = note_event};
    struct flyt_node_gpus none = {0};
    struct flyt_error err = {0};

    memset(&test->node, 0, sizeof test->node);
    if (flyt_node_init(&test->node, test->event, NULL, &test->settings, &none, &hooks, &err))
        fail_msg("the node does not start: %s", err.text);
    test->node.ops->replace_ms = test->node.ops->switch_ms = test->node.ops->whole_ms = TEST_LONG_MS;
}

void test_node_stop(struct test_node *test)
{
    flyt_node_fini(&test->node);
}

void test_node_free(struct test_node *test)
{
    char command[128];

    sd_event_unref(test->event);
    flyt_config_free(flyt_node_setting_table, &test->settings);
    snprintf(command, sizeof command, "rm -rf %s", test->folder);
    assert_int_equal(system(command), 0);
    free(test);
}

void test_node_until(struct test_node *test, bool (*holds)(struct test_node *test, void *user), void *user,
                     const char *what)
{
    uint64_t end_ms = flyt_clock_ms() + PATIENCE_MS;

    while (!holds(test, user)) {
        if (flyt_clock_ms() > end_ms)
            fail_msg("not within %d s: %s", PATIENCE_MS / 1000, what);
        assert_true(sd_event_run(test->event, STEP_US) >= 0);
    }
    /* What follows from it (model/events.h) comes before anything else. */
    while (flyt_node_events_are_due(&test->node))
        assert_true(sd_event_run(test->event, 0) >= 0);
}

bool test_node_readable(struct test_node *test, int fd)
{
    uint64_t end_ms = flyt_clock_ms() + PATIENCE_MS;
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    while (poll(&ready, 1, 0) == 0) {
        if (flyt_clock_ms() > end_ms)
            return false;
        assert_true(sd_event_run(test->event, STEP_US) >= 0);
    }
    return true;
}

void test_node_run(struct test_node *test, unsigned ms)
{
    uint64_t end_ms = flyt_clock_ms() + ms;

    while (flyt_clock_ms() < end_ms)
        assert_true(sd_event_run(test->event, STEP_US / 4) >= 0);
}

/* The thread that looks for libraries opens and closes descriptors, and has a process. */
static bool is_begun(struct test_node *test, void *user)
{
    for (unsigned i = 0; i < test->node.gpus.count; i++)
        if (!test->node.starts[i].warm)
            return false;
    return flyt_node_libraries_have_looked(&test->node);
}

void test_node_until_warm(struct test_node *test)
{
    test_node_until(test, is_begun, NULL, "a warm server on each GPU and a look for libraries");
}

/* ---- orders ---- */

static void note_outcome(void *user, flyt_apply_res *res)
{
    struct test_outcome *outcome = user;

    outcome->order = res->outcome.status;
    if (!res->uses.uses_len) {
        outcome->status = res->outcome.status;
        return;
    }
    const flyt_allocation_use *use = &res->uses.uses_val[0];
    outcome->status = use->outcome.status;
    outcome->revision = use->revision;
    outcome->session_count = use->session_count;
    snprintf(outcome->text, sizeof outcome->text, "%s", use->outcome.text);
    if (use->slots.slots_len)
        outcome->slot = use->slots.slots_val[0];
}

static bool has_outcome(struct test_node *test, void *user)
{
    return ((struct test_outcome *)user)->order != (flyt_status)-1;
}

flyt_allocation test_node_allocation(const struct test_node *test, const struct test_wish *wish)
{
    static char none[] = "GPU-none", nobody[] = "";
    static u_int groups[FLYT_GROUPS_MAX];
    static flyt_slot slot;

    for (unsigned i = 0; i < wish->group_count; i++)
        groups[i] = wish->first_group + i;
    slot = (flyt_slot){.gpu_uuid = wish->gpu < test->node.gpus.count ? test->node.gpus.items[wish->gpu].uuid : none,
                       .memory_bytes = wish->memory_bytes,
                       .sm_groups = {wish->group_count, groups},
                       .sm_count = 8 * wish->group_count,
                       .minimum_share_pct = wish->minimum_pct,
                       .maximum_share_pct = wish->maximum_pct,
                       .window_ms = wish->window_ms,
                       .priority = wish->priority};
    return (flyt_allocation){.id = wish->id,
                             .vm_ip = (char *)wish->vm_ip,
                             .tenant = nobody,
                             .state = wish->state ? wish->state : FLYT_ALLOCATION_ACTIVE,
                             .revision = wish->revision,
                             .generation = wish->generation,
                             .sessions_max = wish->sessions_max,
                             .when_free = wish->when_free,
                             .is_suspended = wish->is_suspended,
                             .isolation = wish->is_strict ? FLYT_ISOLATION_STRICT : FLYT_ISOLATION_SHARED,
                             .slots = {1, &slot}};
}

static bool is_epoch_written(struct test_node *test, void *user)
{
    const struct test_wish *wish = user;

    return test->node.epoch_written >= wish->epoch;
}

struct test_outcome test_node_order(struct test_node *test, const struct test_wish *wish)
{
    flyt_allocation allocation = test_node_allocation(test, wish);
    const flyt_apply_args args = {.epoch = wish->epoch, .allocations = {1, &allocation}};
    struct test_outcome outcome = {.order = (flyt_status)-1};

    flyt_node_apply(&test->node, &args, note_outcome, &outcome);
    test_node_until(test, has_outcome, &outcome, "the order's outcome");
    if (outcome.order != FLYT_STATUS_UNAVAILABLE || test->node.epoch_written >= wish->epoch)
        return outcome;
    /* A cluster manager repeats it when it is written that the node follows it. */
    test_node_until(test, is_epoch_written, (void *)wish, "the epoch is written");
    return test_node_order(test, wish);
}

void test_node_remove(struct test_node *test, uint64_t id)
{
    uint64_t ids[] = {id};
    const flyt_apply_args args = {.epoch = test->node.state.epoch, .removed = {1, ids}};

    test->removal = (struct test_outcome){.order = (flyt_status)-1};
    flyt_node_apply(&test->node, &args, note_outcome, &test->removal);
}

bool test_node_is_removed(struct test_node *test, void *unused)
{
    return has_outcome(test, &test->removal);
}

void test_node_grant(struct test_node *test, const struct test_wish *wish)
{
    struct test_outcome outcome = test_node_order(test, wish);

    if (outcome.status != FLYT_STATUS_OK)
        fail_msg("not granted: %s", outcome.text);
}

void test_node_remove_now(struct test_node *test, uint64_t id)
{
    test_node_remove(test, id);
    test_node_until(test, test_node_is_removed, NULL, "the removal");
    assert_int_equal(test->removal.order, FLYT_STATUS_OK);
    assert_null(flyt_node_allocation_find(&test->node, id));
}

struct test_outcome test_node_use(struct test_node *test, uint64_t id)
{
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(&test->node, id);
    struct test_outcome outcome = {0};
    flyt_allocation_use use;

    if (!allocation)
        fail_msg("the allocation is not there");
    flyt_node_allocation_use(allocation, FLYT_STATUS_OK, strdup(""), &use);
    outcome.revision = use.revision;
    outcome.session_count = use.session_count;
    outcome.slot = use.slots.slots_val[0];
    xdr_free((xdrproc_t)xdr_flyt_allocation_use, &use);
    return outcome;
}

uint64_t test_node_used_bytes(struct test_node *test, const struct test_wish *wish)
{
    return test_node_use(test, wish->id).slot.memory_used_bytes;
}

/* ---- programs ---- */

struct flyt_credentials test_node_credentials(const struct test_wish *wish)
{
    struct flyt_credentials credentials = {
        .allocation_id = wish->id, .generation = wish->generation, .key_number = 1, .program_number = 77};

    snprintf(credentials.vm_ip, sizeof credentials.vm_ip, "%s", wish->vm_ip);
    return credentials;
}

static void send_handshake(int fd, flyt_handshake_args *args, unsigned char *ret_hash)
{
    struct flyt_bytes bytes = {.bytes_max = 1 << 20};
    XDR xdrs;

    assert_true(flyt_bytes_reserve(&bytes, 4));
    bytes.used = 4;
    flyt_xdr_encode_init(&xdrs, &bytes);
    assert_true(flyt_call_head_put(&xdrs, 3, FLYT_PROGRAM, FLYT_VERSION, FLYT_HANDSHAKE));
    assert_true(xdr_flyt_handshake_args(&xdrs, args));
    uint32_t mark = htonl(0x80000000u | (uint32_t)(bytes.used - 4));
    memcpy(bytes.data, &mark, 4);
    flyt_sha256_of(bytes.data + 4, bytes.used - 4, ret_hash);
    assert_int_equal(send(fd, bytes.data, bytes.used, MSG_NOSIGNAL), bytes.used);
    flyt_bytes_fini(&bytes);
}

static void read_answer(struct test_node *test, int fd, flyt_handshake_res *res)
{
    unsigned char reply[4096];
    uint32_t mark;
    XDR xdrs;

    if (!test_node_readable(test, fd))
        fail_msg("no answer to the handshake");
    assert_int_equal(recv(fd, &mark, 4, MSG_WAITALL), 4);
    size_t bytes = ntohl(mark) & 0x7fffffffu;
    assert_true(bytes <= sizeof reply);
    assert_int_equal(recv(fd, reply, bytes, MSG_WAITALL), bytes);
    flyt_xdr_decode_init(&xdrs, reply + FLYT_REPLY_HEAD_BYTES, bytes - FLYT_REPLY_HEAD_BYTES, NULL);
    memset(res, 0, sizeof *res);
    assert_true(xdr_flyt_handshake_res(&xdrs, res));
}

/* Answers the challenge in *res. */
static void prove(struct test_node *test, int fd, flyt_handshake_args *args, const struct flyt_credentials *credentials,
                  const unsigned char *hash, bool is_forged, const flyt_handshake_res *res)
{
    unsigned char key[FLYT_TICKET_KEY_BYTES], secret[FLYT_TICKET_KEY_BYTES], proof[FLYT_TICKET_KEY_BYTES], unused[32];

    assert_int_equal(res->challenge.flyt_late_bytes_len, FLYT_TICKET_NONCE_BYTES);
    flyt_ticket_key(test->node.state.node_key, credentials, key);
    flyt_ticket_secret(key, credentials->program_number, secret);
    secret[5] ^= is_forged;
    flyt_ticket_proof(secret, (unsigned char *)res->challenge.flyt_late_bytes_val, hash, proof);
    args->proof.flyt_late_bytes_val = (char *)proof;
    args->proof.flyt_late_bytes_len = sizeof proof;
    send_handshake(fd, args, unused);
}

/* What was answered, which is freed. */
static void take_answer(struct test_program *program, flyt_handshake_res *res)
{
    program->status = res->status;
    program->session_id = res->session_id;
    snprintf(program->message, sizeof program->message, "%s", res->message);
    if (res->token.token_len == sizeof program->token)
        memcpy(program->token, res->token.token_val, sizeof program->token);
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, res);
    if (program->status != FLYT_HANDSHAKE_OK && program->status != FLYT_HANDSHAKE_CHALLENGE) {
        close(program->fd);
        program->fd = -1;
    }
}

/* Up to the proof, where it is challenged. */
static struct test_program knock(struct test_node *test, const struct flyt_credentials *credentials,
                                 flyt_connection_kind kind, const unsigned char *token, bool is_forged)
{
    struct test_program program = {.fd = -1};
    flyt_handshake_args args = {.kind = kind, .build = (char *)"b", .program_name = (char *)"test program", .pid = 99};
    unsigned char data[320], hash[FLYT_SHA256_BYTES];
    flyt_handshake_res res;
    struct flyt_error err;

    memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
    if (credentials) {
        args.credentials.credentials_val = (char *)data;
        args.credentials.credentials_len = (u_int)flyt_credentials_put(credentials, data);
    }
    if (token) {
        args.token.token_val = (char *)token;
        args.token.token_len = FLYT_TOKEN_BYTES;
    }
    assert_int_equal(flyt_connect(test->node.attach->listen_urls[0], PATIENCE_MS, &err, &program.fd), 0);
    send_handshake(program.fd, &args, hash);
    read_answer(test, program.fd, &res);
    if (res.status == FLYT_HANDSHAKE_CHALLENGE)
        prove(test, program.fd, &args, credentials, hash, is_forged, &res);
    take_answer(&program, &res);
    return program;
}

struct test_program test_node_knock(struct test_node *test, const struct flyt_credentials *credentials)
{
    return knock(test, credentials, FLYT_CONNECTION_SESSION, NULL, false);
}

void test_node_hear(struct test_node *test, struct test_program *program)
{
    flyt_handshake_res res;

    read_answer(test, program->fd, &res);
    take_answer(program, &res);
}

static struct test_program open_connection(struct test_node *test, const struct flyt_credentials *credentials,
                                           flyt_connection_kind kind, const unsigned char *token, bool is_forged)
{
    struct test_program program = knock(test, credentials, kind, token, is_forged);

    if (program.status == FLYT_HANDSHAKE_CHALLENGE)
        test_node_hear(test, &program);
    return program;
}

struct test_program test_node_connect(struct test_node *test, const struct flyt_credentials *credentials,
                                      const unsigned char *token, bool is_forged)
{
    return open_connection(test, credentials, token ? FLYT_CONNECTION_DATA : FLYT_CONNECTION_SESSION, token, is_forged);
}

struct test_program test_node_resume(struct test_node *test, const struct flyt_credentials *credentials,
                                     const unsigned char *token, bool is_forged)
{
    return open_connection(test, credentials, FLYT_CONNECTION_RESUME, token, is_forged);
}

static bool has_no_warm_server(struct test_node *test, void *gpu)
{
    const struct flyt_node_starts *starts = &test->node.starts[*(const unsigned *)gpu];

    return !starts->warm && !starts->starting;
}

static bool is_one_let_in(struct test_node *test, void *unused)
{
    return test->node.waiting_count == 1;
}

struct test_program test_node_let_wait(struct test_node *test, const struct test_wish *wish)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    unsigned gpu = wish->gpu;

    test->settings.warm = 0;
    test->node.starts[gpu].after_ms = UINT64_MAX;
    flyt_node_pool_fill(&test->node);
    test_node_until(test, has_no_warm_server, &gpu, "no server is warm, or becomes so");
    struct test_program program = test_node_knock(test, &credentials);
    test_node_until(test, is_one_let_in, NULL, "it has a place");
    return program;
}

void test_node_let_start(struct test_node *test, const struct test_wish *wish, struct test_program *program)
{
    test->node.starts[wish->gpu].after_ms = 0;
    flyt_node_pool_fill(&test->node);
    test_node_hear(test, program);
    assert_int_equal(program->status, FLYT_HANDSHAKE_OK);
}

struct test_program test_node_enter(struct test_node *test, const struct test_wish *wish)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program program = test_node_connect(test, &credentials, NULL, false);

    if (program.status != FLYT_HANDSHAKE_OK)
        fail_msg("refused: %s", program.message);
    return program;
}

/* Once; what it was answered. */
static struct test_program come(struct test_node *test, const struct test_wish *wish, struct test_program *program)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program again = test_node_resume(test, &credentials, program->token, false);

    if (again.status != FLYT_HANDSHAKE_OK)
        return again;
    assert_true(again.session_id == program->session_id);
    assert_memory_equal(again.token, program->token, sizeof again.token);
    *program = again;
    return again;
}

flyt_handshake_status test_node_try_to_come(struct test_node *test, const struct test_wish *wish,
                                            struct test_program *program)
{
    return come(test, wish, program).status;
}

static struct test_program come_until_decided(struct test_node *test, const struct test_wish *wish,
                                              struct test_program *program)
{
    uint64_t end_ms = flyt_clock_ms() + PATIENCE_MS;
    struct test_program again = come(test, wish, program);

    while (again.status == FLYT_HANDSHAKE_BUSY && flyt_clock_ms() < end_ms) {
        test_node_run(test, STEP_US / 1000);
        again = come(test, wish, program);
    }
    return again;
}

void test_node_come_back(struct test_node *test, const struct test_wish *wish, struct test_program *program)
{
    struct test_program again = come_until_decided(test, wish, program);

    if (again.status != FLYT_HANDSHAKE_OK)
        fail_msg("refused: %s", again.message);
}

void test_node_come_and_hang_up(struct test_node *test, const struct test_wish *wish,
                                const struct test_program *program)
{
    static const unsigned char record[16];
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(&test->node, wish->id);
    const struct flyt_node_ticket ticket = {.session_id = program->session_id, .allocation_id = wish->id};
    const unsigned char *token = program->token;
    struct flyt_node_session *session;
    struct flyt_node_server *source;
    struct flyt_error err;
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(shutdown(ends[1], SHUT_RDWR), 0); /* a server that is being started may have it until it runs */
    close(ends[1]);
    int status = flyt_node_move_find_token(&test->node, allocation, token, FLYT_TOKEN_BYTES, &source, &err);
    if (!status) {
        assert_int_equal(flyt_node_move_take_client(source, &ticket, ends[0], record, sizeof record), 0);
        return;
    }
    assert_int_equal(status, -ENOENT);
    status = flyt_node_replace_find_token(&test->node, allocation, token, FLYT_TOKEN_BYTES, &session, &err);
    if (status)
        fail_msg("refused: %s", err.text);
    flyt_node_pool_serve(&test->node, allocation, &ticket, ends[0], record, sizeof record);
}

void test_node_come_in_vain(struct test_node *test, const struct test_wish *wish, struct test_program *program)
{
    assert_int_equal(come_until_decided(test, wish, program).status, FLYT_HANDSHAKE_NO_SESSION);
}

const char *test_program_ask(struct test_node *test, struct test_program *program, const char *line)
{
    static char text[600];
    char whole[200];
    size_t used = 0;

    if (line) {
        snprintf(whole, sizeof whole, "%s\n", line);
        assert_int_equal(send(program->fd, whole, strlen(whole), MSG_NOSIGNAL), strlen(whole));
    }
    while (used < sizeof text - 1) {
        if (!test_node_readable(test, program->fd))
            fail_msg("no answer to %s", line ? line : "nothing");
        if (recv(program->fd, text + used, 1, 0) != 1)
            return "gone";
        if (text[used] == '\n')
            break;
        used++;
    }
    text[used] = 0;
    return text;
}

void test_program_say(struct test_node *test, struct test_program *program, const char *line, const char *answer)
{
    const char *its = test_program_ask(test, program, line);

    if (strcmp(its, answer) != 0)
        fail_msg("%s: %s, not %s", line ? line : "nothing", its, answer);
}

struct flyt_node_server *test_node_server(struct test_node *test, const struct test_program *program)
{
    return flyt_node_server_find(&test->node, program->session_id);
}

static bool is_back(struct test_node *test, void *program)
{
    return test_node_server(test, program);
}

void test_node_until_back(struct test_node *test, const struct test_program *program)
{
    test_node_until(test, is_back, (void *)program, "the server comes back");
}

static bool is_rejoining_over(struct test_node *test, void *unused)
{
    return !test->node.is_reattaching;
}

void test_node_end_rejoining(struct test_node *test)
{
    if (test->node.is_reattaching)
        assert_true(sd_event_source_set_time_relative(test->node.reattach_timer, 0) >= 0);
    test_node_until(test, is_rejoining_over, NULL, "nobody may come back any more");
}

struct flyt_node_session *test_node_away(const struct test_node *test)
{
    struct flyt_node_session *session = test->node.sessions;

    while (session && !flyt_node_session_is_away(session))
        session = session->next;
    return session;
}

bool test_node_is_away(struct test_node *test, void *program)
{
    return flyt_node_replace_find(&test->node, ((struct test_program *)program)->session_id) != NULL;
}

bool test_node_is_empty(struct test_node *test, void *wish)
{
    const struct flyt_node_allocation *allocation =
        flyt_node_allocation_find(&test->node, ((const struct test_wish *)wish)->id);

    return !allocation || !allocation->session_count;
}

void test_node_until_empty(struct test_node *test, const struct test_wish *wish)
{
    test_node_until(test, test_node_is_empty, (void *)wish, "the sessions' end");
}

struct usage {
    const struct test_wish *wish;
    uint64_t bytes;
};

static bool is_used(struct test_node *test, void *user)
{
    const struct usage *usage = user;

    return test_node_used_bytes(test, usage->wish) == usage->bytes;
}

void test_node_until_used(struct test_node *test, const struct test_wish *wish, uint64_t bytes)
{
    char what[64];

    snprintf(what, sizeof what, "%llu bytes are charged", (unsigned long long)bytes);
    test_node_until(test, is_used, &(struct usage){wish, bytes}, what);
}

static bool has_ended(struct test_node *test, void *program)
{
    return !test_node_server(test, program);
}

void test_node_until_ended(struct test_node *test, const struct test_program *program)
{
    test_node_until(test, has_ended, (void *)program, "its session's end");
}

void test_node_leave(struct test_node *test, const struct test_wish *wish, struct test_program *programs,
                     unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        close(programs[i].fd);
    test_node_until_empty(test, wish);
    assert_int_equal(test_node_used_bytes(test, wish), 0);
}

/* ---- failures ---- */

static bool is_renewed(struct test_node *test, void *unused)
{
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        if (server->state == FLYT_NODE_SERVER_ENDING && !flyt_node_server_allocation(server))
            return false;
    return is_begun(test, NULL);
}

void test_node_make_fail(struct test_node *test, const char *node_points, const char *server_points)
{
    assert_int_equal(flyt_fault_set(node_points), 0);
    if (server_points)
        setenv(FLYT_FAULT_VARIABLE, server_points, 1);
    else
        unsetenv(FLYT_FAULT_VARIABLE);
    for (unsigned i = 0; i < test->node.gpus.count; i++)
        flyt_node_starts_renew(&test->node, &test->node.gpus.items[i]);
    test_node_until(test, is_renewed, NULL, "other warm servers");
}

static bool has_no_link(struct test_node *test, void *server)
{
    return ((const struct flyt_node_server *)server)->link_fd < 0;
}

pid_t test_node_cut_off(struct test_node *test, struct flyt_node_server *server)
{
    assert_int_equal(kill(server->pid, SIGSTOP), 0);
    assert_int_equal(shutdown(server->link_fd, SHUT_RDWR), 0);
    test_node_until(test, has_no_link, server, "its link's end is seen");
    return server->pid;
}

void test_contains(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("not \"%s\": %s", words, text);
}

/* ---- set up, tear down ---- */

int test_node_set_up(void **state)
{
    struct test_node *test = test_node_new();

    test_node_start(test);
    test_node_until_warm(test);
    *state = test;
    return 0;
}

int test_node_tear_down(void **state)
{
    struct test_node *test = *state;

    flyt_fault_set(NULL);
    unsetenv(FLYT_FAULT_VARIABLE);
    while (test->node.servers && flyt_node_server_allocation(test->node.servers)) {
        kill(test->node.servers->pid, SIGKILL);
        test_node_run(test, 20);
    }
    test_node_stop(test);
    test_node_free(test);
    return 0;
}
