#include "cpu/server/test/fake_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/transport/handshake.h"

const char *const fake_one_gpu[] = {"--soft", "1", "--soft-memory", "256M", NULL};
const char *const fake_two_gpus[] = {"--soft", "2", "--soft-memory", "256M", NULL};

int fake_node_begin_all(void **state)
{
    char folder[128], images[160];
    snprintf(folder, sizeof folder, "/var/tmp/flyt-%.32s-XXXXXX", program_invocation_short_name);
    assert_non_null(mkdtemp(folder));
    snprintf(images, sizeof images, "%s/images", folder);
    assert_int_equal(mkdir(images, 0700), 0);
    setenv("FAKE_FOLDER", folder, 1);
    setenv("FAKE_IMAGES", images, 1);
    setenv("FLYT_LOG", "warn", 0);
    return 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    return remove(path);
}

int fake_node_end_all(void **state)
{
    return nftw(getenv("FAKE_FOLDER"), remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void fake_node_init(struct fake_node *node)
{
    node->wire.fd = -1;
    node->first = &node->servers[0];
    node->second = &node->servers[1];
    fake_listener_open(&node->listener);
}

void fake_node_fini(struct fake_node *node)
{
    for (unsigned i = 0; i < FAKE_NODE_SERVERS; i++)
        fake_server_abandon(&node->servers[i]);
    fake_listener_close(&node->listener);
    node->ledger = flyt_ledger_close(node->ledger);
}

void *fake_node_fixture_new(void **state, size_t bytes)
{
    struct fake_node *node = calloc(1, bytes);

    assert_non_null(node);
    fake_node_init(node);
    *state = node;
    return node;
}

int fake_node_tear_down(void **state)
{
    fake_node_fini(*state);
    free(*state);
    return 0;
}

void fake_node_begin(struct fake_node *node, const char *const *arguments, uint64_t limit_bytes)
{
    fake_server_start(node->first, arguments);
    assert_true(node->first->is_ready);
    assert_int_equal(flyt_ledger_new(limit_bytes, &node->ledger), 0);
    fake_listener_grant(&node->listener, node->first, node->ledger, limit_bytes);
}

void fake_node_let_rejoin(struct fake_node *node)
{
    snprintf(node->listener.session.rejoin_path, sizeof node->listener.session.rejoin_path, "%s/link",
             getenv("FAKE_FOLDER"));
}

void fake_node_connect(struct fake_node *node)
{
    assert_int_equal(fake_wire_open(&node->wire, node->listener.url, FLYT_CONNECTION_SESSION, NULL), FLYT_HANDSHAKE_OK);
}

flyt_handshake_status fake_node_come_back(struct fake_node *node)
{
    return fake_wire_open(&node->wire, node->listener.url, FLYT_CONNECTION_RESUME, node->listener.session.token);
}

void fake_node_finish(struct fake_node *node, struct fake_server *server)
{
    uint64_t bytes;
    fake_wire_close(&node->wire);
    fake_server_finish(server);
    assert_int_equal(flyt_ledger_reclaim(node->ledger, server->server_id, &bytes), 0);
    assert_int_equal(fake_node_used(node), 0);
}

uint64_t fake_node_used(const struct fake_node *node)
{
    struct flyt_ledger_state state;
    flyt_ledger_read(node->ledger, &state);
    return state.used_bytes;
}

void fake_node_next(struct fake_node *node)
{
    node->first = node->second;
    node->second = &node->servers[(node->second - node->servers + 1) % FAKE_NODE_SERVERS];
}

void fake_node_hand_to_second(struct fake_node *node)
{
    node->listener.server = node->second;
    node->second->ledgers[0] = node->ledger;
}

void fake_node_expect_refusal(struct fake_node *node, struct fake_server *server, flyt_connection_kind kind,
                              const void *token, flyt_handshake_status status, const char *words)
{
    assert_int_equal(fake_wire_open(&node->wire, node->listener.url, kind, token), status);
    if (!strstr(node->wire.refusal, words))
        fail_msg("'%s' does not say '%s'", node->wire.refusal, words);
    fake_server_wait_true(server, &server->is_returned);
    assert_non_null(strstr(server->sentence, words));
    fake_wire_close(&node->wire);
    assert_int_equal(fake_server_end(server), 0);
}

/* ---- moves ---- */

void fake_node_prepare(struct fake_node *node, struct fake_server *server)
{
    struct flyt_manager_link_session session = node->listener.session;
    unsigned before = server->prepared_count;
    memset(session.token, 0, sizeof session.token);
    memset(session.rejoin_secret, 0, sizeof session.rejoin_secret);
    session.ledger_count = 0;
    fake_server_send(server, FLYT_MANAGER_LINK_PREPARE, &session, sizeof session, NULL);
    fake_server_wait(server, &server->prepared_count, before + 1);
}

int fake_node_try_stop(struct fake_node *node, uint64_t move_id, uint64_t timeout_us)
{
    struct fake_server *from = node->first;
    flyt_back_stop back;
    unsigned before = from->stopped_count;
    fake_server_send_move(from, FLYT_MANAGER_LINK_STOP, move_id, timeout_us);
    fake_wire_await_back(&node->wire, FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &back);
    FAKE_WIRE_SEND(&node->wire, FLYT_SESSION_STOPPED, session_stopped, .number = back.number);
    fake_server_wait(from, &from->stopped_count, before + 1);
    node->stop_number = back.number;
    node->sequence = from->stopped.sequence;
    return from->stopped.outcome;
}

void fake_node_stop(struct fake_node *node, uint64_t move_id)
{
    if (fake_node_try_stop(node, move_id, FAKE_NODE_LONG_US) != 0)
        fail_msg("it has not stopped: %s", node->first->sentence);
}

uint64_t fake_node_await_go_on(struct fake_node *node)
{
    flyt_back_stop back;
    fake_wire_await_back(&node->wire, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &back);
    return back.number;
}

void fake_node_go_on(struct fake_node *node, uint64_t move_id)
{
    fake_server_send_move(node->first, FLYT_MANAGER_LINK_GO_ON, move_id, 0);
    assert_int_equal(fake_node_await_go_on(node), node->stop_number);
}

void fake_node_leave(struct fake_node *node, uint64_t move_id)
{
    flyt_back_moved moved;
    unsigned before = node->first->left_count;
    fake_server_send_move(node->first, FLYT_MANAGER_LINK_LEAVE, move_id, node->leave_timeout_us);
    fake_wire_await_back(&node->wire, FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &moved);
    assert_int_equal(moved.sequence, node->sequence);
    node->moved_flags = moved.flags;
    fake_wire_close(&node->wire);
    fake_server_wait(node->first, &node->first->left_count, before + 1);
}
