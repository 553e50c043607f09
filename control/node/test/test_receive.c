#include "control/node/test/test_receive.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/attach/attach.h"
#include "control/node/ops/ops.h"
#include "control/node/uplink/report.h"
#include "flyt_signatures.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"

const unsigned char test_secret[FLYT_MIGRATION_SECRET_BYTES] = "thirty-two bytes of a secret....";
struct flyt_error test_refusal;

/* ---- the order ---- */

static flyt_status answered; /* -1: not yet */

static void note_answer(void *user, flyt_status status, const char *text)
{
    answered = status;
    snprintf(test_refusal.text, sizeof test_refusal.text, "%s", text);
}

bool test_receive_is_answered(struct test_node *test, void *unused)
{
    return answered != (flyt_status)-1;
}

void test_receive_ask(struct test_node *test, const struct test_wish *wish, uint64_t migration_id,
                      const unsigned char *its_secret, bool is_encrypted)
{
    flyt_order_receive_args args = {.epoch = 1,
                                    .migration_id = migration_id,
                                    .is_encrypted = is_encrypted,
                                    .allocation = test_node_allocation(test, wish)};

    memcpy(args.secret, its_secret, sizeof args.secret);
    test_refusal = (struct flyt_error){0};
    answered = (flyt_status)-1;
    flyt_node_receive(&test->node, &args, note_answer, NULL);
}

flyt_status test_receive_as(struct test_node *test, const struct test_wish *wish, uint64_t migration_id,
                            const unsigned char *its_secret, bool is_encrypted)
{
    test_receive_ask(test, wish, migration_id, its_secret, is_encrypted);
    test_node_until(test, test_receive_is_answered, NULL, "RECEIVE is answered");
    return answered;
}

flyt_status test_receive(struct test_node *test)
{
    return test_receive_as(test, &test_one, TEST_MIGRATION, test_secret, false);
}

void test_receive_begin(struct test_node *test)
{
    if (test_receive(test) != FLYT_STATUS_OK)
        fail_msg("refused: %s", test_refusal.text);
}

struct flyt_node_receive *test_received(struct test_node *test)
{
    struct flyt_node_receive *receiving = flyt_node_receive_find(&test->node, TEST_MIGRATION);

    assert_non_null(receiving);
    return receiving;
}

static bool has_phase(struct test_node *test, void *user)
{
    flyt_migration_phase phase = test_received(test)->op.phase;

    return phase == *(const flyt_migration_phase *)user ||
           (phase >= FLYT_MIGRATION_DONE && phase != FLYT_MIGRATION_ARRIVED);
}

flyt_migration_use test_receive_until(struct test_node *test, flyt_migration_phase phase)
{
    flyt_migration_use use;

    test_node_until(test, has_phase, &phase, "the phase");
    flyt_node_operation_use(&test_received(test)->op, &use);
    if (use.phase != phase)
        fail_msg("phase %d, not %d: %s", use.phase, phase, use.outcome.text);
    return use;
}

/* ---- SWITCH ---- */

static void note_switched(void *user, const flyt_order_migration_res *res)
{
    struct test_switched *switched = user;

    assert_int_equal(switched->status, (flyt_status)-1);
    switched->status = res->outcome.status;
    switched->use = res->use;
    snprintf(switched->text, sizeof switched->text, "%s", res->outcome.text);
}

bool test_receive_is_switched(struct test_node *test, void *user)
{
    return ((const struct test_switched *)user)->status != (flyt_status)-1;
}

void test_receive_ask_to_switch(struct test_node *test, unsigned count, struct test_switched *switched)
{
    *switched = (struct test_switched){.status = (flyt_status)-1};
    flyt_node_receive_switch(test_received(test), count, note_switched, switched);
}

struct test_switched test_receive_switch(struct test_node *test, unsigned count)
{
    static struct test_switched switched;

    test_receive_ask_to_switch(test, count, &switched);
    test_node_until(test, test_receive_is_switched, &switched, "SWITCH is answered");
    return switched;
}

void test_receive_must_switch(struct test_node *test, unsigned count)
{
    struct test_switched switched = test_receive_switch(test, count);

    if (switched.status != FLYT_STATUS_OK)
        fail_msg("not switched: %s", switched.text);
    assert_int_equal(switched.use.phase, FLYT_MIGRATION_SWITCHING);
    assert_int_equal(switched.use.session_count, count);
}

/* ---- the other node ---- */

struct test_source test_source_new(uint64_t session_id, unsigned stream_count)
{
    struct test_source source = {.session_id = session_id, .stream_count = stream_count};

    memset(source.token, (int)session_id, sizeof source.token);
    for (unsigned i = 0; i < FDS_MAX; i++)
        source.fds[i] = -1;
    return source;
}

static void note_dialed(void *user, int status, const char *sentence)
{
    struct test_dialed *dialed = user;

    dialed->status = status;
    snprintf(dialed->sentence, sizeof dialed->sentence, "%s", sentence ? sentence : "");
}

static bool is_dialed(struct test_node *test, void *user)
{
    return ((const struct test_dialed *)user)->status != 1;
}

static bool is_looked_up(struct test_node *test, void *resolver)
{
    struct flyt_error err;

    return flyt_node_resolver_look(resolver, &err) != -EAGAIN;
}

/* One connection with these credentials. */
struct test_dialed test_source_dial_as(struct test_node *test, struct test_source *source, const void *credentials,
                                       size_t bytes, const unsigned char *its_secret, unsigned stream)
{
    flyt_handshake_args args = {
        .kind = FLYT_CONNECTION_MIGRATE, .build = (char *)"b", .program_name = (char *)"test program", .pid = 99};
    char *urls[] = {test->node.attach->listen_urls[0]};
    struct test_dialed dialed = {.status = 1};
    struct flyt_node_resolver *resolver;
    struct flyt_node_dial *dial;

    memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
    args.credentials.credentials_val = (char *)credentials;
    args.credentials.credentials_len = (u_int)bytes;
    args.token.token_val = (char *)source->token;
    args.token.token_len = sizeof source->token;
    assert_int_equal(flyt_node_resolver_new(urls, 1, &resolver, &test_refusal), 0);
    test_node_until(test, is_looked_up, resolver, "the listener's address");
    const struct flyt_node_dial_config config = {.resolver = resolver,
                                                 .args = &args,
                                                 .secret = its_secret,
                                                 .timeout_ms = FLYT_NODE_DIAL_MS,
                                                 .done = note_dialed,
                                                 .user = &dialed};
    assert_int_equal(flyt_node_dial_new(test->event, &config, &dial), 0);
    test_node_until(test, is_dialed, &dialed, "an answer of the listener");
    if (!dialed.status)
        source->fds[stream] = flyt_node_dial_take(dial, source->keys[stream]);
    flyt_node_dial_free(dial);
    flyt_node_resolver_free(resolver);
    return dialed;
}

struct test_dialed test_source_dial(struct test_node *test, struct test_source *source, unsigned stream)
{
    const struct flyt_migrate_credentials credentials = {.migration_id = TEST_MIGRATION,
                                                         .allocation_id = test_one.id,
                                                         .session_id = source->session_id,
                                                         .stream = stream,
                                                         .stream_count = source->stream_count,
                                                         .started_ms = 4711,
                                                         .client_address = "10.0.0.1:999"};
    char data[400];

    return test_source_dial_as(test, source, data, flyt_migrate_credentials_put(&credentials, data), test_secret,
                               stream);
}

void test_source_must_dial(struct test_node *test, struct test_source *source, unsigned stream)
{
    struct test_dialed dialed = test_source_dial(test, source, stream);

    if (dialed.status)
        fail_msg("connection %u is refused: %s", stream, dialed.sentence);
}

void test_source_tell(const struct test_source *source, unsigned stream, const char *format, ...)
{
    char line[160];
    va_list arguments;

    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    line[bytes++] = '\n';
    assert_int_equal(send(source->fds[stream], line, (size_t)bytes, MSG_NOSIGNAL), bytes);
}

/* All connections, each with its number; the last one first. */
void test_source_arrive(struct test_node *test, struct test_source *source)
{
    for (unsigned i = source->stream_count + 1; i-- > 0;) {
        test_source_must_dial(test, source, i);
        if (i)
            test_source_tell(source, i, "%u", i);
    }
}

/* What its fake server says on the first connection; "gone": that has ended. */
const char *test_source_hear(struct test_node *test, const struct test_source *source)
{
    struct test_program program = {.fd = source->fds[0]};

    return test_program_ask(test, &program, NULL);
}

void test_source_leave(struct test_source *source)
{
    for (unsigned i = 0; i < FDS_MAX; i++)
        source->fds[i] = flyt_close(source->fds[i]);
}

/* 8 MiB with a word of its own and 2 MiB; there was something else in between. */
void test_source_copy(const struct test_source *source)
{
    test_source_tell(source, 0, "make 1 8388608 %" PRIu64, 4711 + source->session_id);
    test_source_tell(source, 0, "make 2 4194304 1");
    test_source_tell(source, 0, "gone 2");
    test_source_tell(source, 0, "make 3 2097152 3");
}

void test_source_copy_all(struct test_node *test, struct test_source *source)
{
    test_source_arrive(test, source);
    test_source_copy(source);
    test_source_tell(source, 0, "end 17");
    assert_string_equal(test_source_hear(test, source), "0");
}

/* All of them are here as a whole. */
void test_sources_bring(struct test_node *test, struct test_source *sources, unsigned count)
{
    test_receive_begin(test);
    for (unsigned i = 0; i < count; i++) {
        sources[i] = test_source_new(0x100 + i, i);
        test_source_copy_all(test, &sources[i]);
    }
    flyt_migration_use use = test_receive_until(test, FLYT_MIGRATION_ARRIVED);
    assert_int_equal(use.session_count, count);
    assert_int_equal(use.memory_bytes, count * 10 * MIB);
    assert_int_equal(test_node_used_bytes(test, &test_one), count * 10 * MIB);
}

/* As clients come from there. */
struct test_program test_source_client(const struct test_source *source)
{
    struct test_program program = {.fd = -1, .session_id = source->session_id};

    memcpy(program.token, source->token, sizeof program.token);
    return program;
}

void test_source_go_on(struct test_node *test, const struct test_source *source, struct test_program *ret_program)
{
    char word[24];

    *ret_program = test_source_client(source);
    test_node_come_back(test, &test_one, ret_program);
    test_program_say(test, ret_program, "resumed", "2 3");
    test_program_say(test, ret_program, "state", "17 0");
    snprintf(word, sizeof word, "%" PRIu64, 4711 + source->session_id);
    test_program_say(test, ret_program, "read 1", word);
    test_program_say(test, ret_program, "read 3", "3");
    test_program_say(test, ret_program, "memory 2", "none");
}

unsigned test_receive_count_shown(struct test_node *test)
{
    flyt_heartbeat_args args;

    assert_int_equal(flyt_node_report_figures(&test->node, 1, &args), 0);
    unsigned count = args.sessions.sessions_len;
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    return count;
}

/* Whether the cluster manager is told of any allocation, when it registers and from time to time. */
bool test_receive_is_told(struct test_node *test)
{
    flyt_heartbeat_args figures;
    flyt_register_args inventory;

    assert_int_equal(flyt_node_report_figures(&test->node, 1, &figures), 0);
    assert_int_equal(flyt_node_report_inventory(&test->node, &inventory), 0);
    unsigned count = figures.uses.uses_len;
    assert_int_equal(inventory.uses.uses_len, count);
    assert_int_equal(inventory.allocations.allocations_len, count);
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &figures);
    xdr_free((xdrproc_t)xdr_flyt_register_args, &inventory);
    return count != 0;
}

unsigned test_receive_count_folders(struct test_node *test)
{
    char path[128];
    unsigned count = 0;

    snprintf(path, sizeof path, "%s/images", test->folder);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    while (readdir(listing))
        count++;
    closedir(listing);
    return count;
}

static bool are_only_warm(struct test_node *test, void *unused)
{
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        if (server->state > FLYT_NODE_SERVER_WARM &&
            (flyt_node_server_allocation(server) || flyt_node_session_load_at(server)))
            return false;
    return true;
}

/* They are removed by a thread. */
static bool are_folders(struct test_node *test, void *count)
{
    return test_receive_count_folders(test) == *(const unsigned *)count;
}

/* Nothing of it is on the node, and others may have what it had. */
void test_receive_is_gone(struct test_node *test, unsigned folder_count)
{
    assert_null(flyt_node_allocation_find(&test->node, test_one.id));
    assert_null(test->node.state.receiving);
    assert_null(flyt_node_target_next(test->node.ops->targets, FLYT_NODE_ROLE_LOAD));
    assert_null(test->node.sessions);
    assert_true(are_only_warm(test, NULL));
    test_node_until(test, are_folders, &folder_count, "the folders of module images are those of the beginning");
    assert_int_equal(test_receive_count_shown(test), 0);
    test_node_grant(test, &test_one);
    test_node_remove_now(test, test_one.id);
}

void test_receive_until_failed(struct test_node *test, unsigned folder_count, flyt_status status, const char *words)
{
    flyt_migration_use use = test_receive_until(test, FLYT_MIGRATION_FAILED);

    test_contains(use.outcome.text, words);
    assert_int_equal(use.outcome.status, status);
    test_contains(test->last_event, "receive.failed");
    test_receive_is_gone(test, folder_count);
}

/* The next one is not the same. */
void test_receive_forget(struct test_node *test)
{
    test_received(test)->op.id = 1;
}

static bool has_shown(struct test_node *test, void *count)
{
    return test_receive_count_shown(test) == *(const unsigned *)count;
}

void test_receive_until_shown(struct test_node *test, unsigned count)
{
    test_node_until(test, has_shown, &count, "so many sessions are shown");
}
