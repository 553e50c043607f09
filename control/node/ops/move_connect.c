#include "control/node/ops/move_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/ops/dial.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/send.h"
#include "flyt_signatures.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/ticket.h"

enum { CONNECTIONS_MAX = 1 + FLYT_MIGRATION_STREAMS_MAX, CREDENTIALS_BYTES = 320 };

struct connection {
    struct flyt_node_connections *all;
    struct flyt_node_dial *dial;
    bool is_there;
};

struct flyt_node_connections {
    struct flyt_node_move *move;
    unsigned count, there_count;
    uint64_t again_ms; /* when they are tried again; 0: they are being made */
    struct connection each[CONNECTIONS_MAX];
};

/* ---- how many at once ---- */

static unsigned count_dials(const struct flyt_node *node)
{
    unsigned count = 0;

    for (const struct flyt_node_migration *migration = flyt_node_migration_first(node); migration;
         migration = flyt_node_migration_next(migration))
        for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
            count += move->connections && !move->connections->again_ms ? move->connections->count : 0;
    return count;
}

/* ---- ending ---- */

static void hang_up(struct flyt_node_connections *connections)
{
    for (unsigned i = 0; i < connections->count; i++) {
        connections->each[i].dial = flyt_node_dial_free(connections->each[i].dial);
        connections->each[i].is_there = false;
    }
    connections->there_count = 0;
}

void flyt_node_move_disconnect(struct flyt_node_move *move)
{
    if (!move->connections)
        return;
    hang_up(move->connections);
    free(move->connections);
    move->connections = NULL;
}

/* ---- making them ---- */

static void on_dialed(void *user, int status, const char *sentence)
{
    struct connection *connection = user;
    struct flyt_node_connections *connections = connection->all;
    struct flyt_node_move *move = connections->move;

    if (!status) {
        connection->is_there = true;
        connections->there_count++;
    } else if (status == -EBUSY) {
        hang_up(connections); /* the other ones too: they belong together */
        connections->again_ms = flyt_clock_ms() + FLYT_NODE_SEND_AGAIN_MS;
    } else {
        flyt_node_move_fail(move, status, "node %.100s cannot be connected to: %.350s", move->migration->sending->node,
                            sentence);
    }
    flyt_node_migration_wake(move->migration);
}

/* Who comes, and with what. `args` refers to the source and to `credentials`. */
static void describe(const struct flyt_node_move *move, unsigned stream, unsigned char *credentials,
                     flyt_handshake_args *args)
{
    const struct flyt_node_server *source = move->source;
    struct flyt_migrate_credentials its = {.migration_id = move->migration->op.id,
                                           .allocation_id = move->migration->op.allocation_id,
                                           .session_id = move->session_id,
                                           .stream = stream,
                                           .stream_count = move->migration->sending->stream_count,
                                           .started_ms = source->session->started_ms,
                                           .leaves_coredumps = source->session->leaves_coredumps};

    memcpy(its.client_address, source->session->ticket.client_address,
           strnlen(source->session->ticket.client_address, sizeof its.client_address - 1));
    *args = (flyt_handshake_args){
        .build = (char *)flyt_build_name,
        .pid = source->session->ticket.client_pid,
        .program_name = (char *)source->session->ticket.program,
        .kind = FLYT_CONNECTION_MIGRATE,
        .token = {sizeof source->session->token, (char *)source->session->token},
        .credentials = {(u_int)flyt_migrate_credentials_put(&its, credentials), (char *)credentials},
    };
    memcpy(args->base_hash, flyt_base_hash, sizeof args->base_hash);
}

static void dial_all(struct flyt_node_move *move)
{
    struct flyt_node_connections *connections = move->connections;
    const struct flyt_node_sending *sending = move->migration->sending;
    unsigned char credentials[CREDENTIALS_BYTES];
    flyt_handshake_args args;
    int status = 0;

    connections->again_ms = 0;
    for (unsigned i = 0; i < connections->count && !status; i++) {
        struct connection *connection = &connections->each[i];
        connection->all = connections;
        describe(move, i, credentials, &args);
        const struct flyt_node_dial_config config = {.resolver = sending->resolver,
                                                     .args = &args,
                                                     .secret = sending->secret,
                                                     .timeout_ms = FLYT_NODE_DIAL_MS,
                                                     .done = on_dialed,
                                                     .user = connection};
        status = flyt_node_dial_new(move->node->event, &config, &connection->dial);
    }
    if (status)
        flyt_node_move_fail(move, status, "node %.100s cannot be connected to: %s", sending->node, strerror(-status));
}

/* The addresses are known, and there is room for its connections. */
static void begin(struct flyt_node_move *move)
{
    unsigned count = 1 + move->migration->sending->stream_count;

    if (!move->connections && count_dials(move->node) + count > FLYT_NODE_SEND_DIALS_MAX)
        return;
    if (!move->connections)
        move->connections = calloc(1, sizeof *move->connections);
    if (!move->connections) {
        flyt_node_move_fail(move, -ENOMEM, "the node manager has no memory");
        return;
    }
    move->connections->move = move;
    move->connections->count = count;
    dial_all(move);
}

/* ---- handing them over ---- */

static void hand_over(struct flyt_node_move *move)
{
    const struct flyt_node_sending *sending = move->migration->sending;
    struct flyt_node_connections *connections = move->connections;
    struct flyt_manager_link_streams streams = {.stream_count = sending->stream_count,
                                                .is_encrypted = sending->is_encrypted};
    int fds[CONNECTIONS_MAX];

    if (flyt_node_move_is_made_to_fail(move, "node.send.hand_over"))
        return;
    for (unsigned i = 0; i < connections->count; i++)
        fds[i] = flyt_node_dial_take(connections->each[i].dial, streams.keys[i]);
    if (!sending->is_encrypted)
        explicit_bzero(streams.keys, sizeof streams.keys);
    unsigned count = connections->count;
    flyt_node_move_disconnect(move);
    flyt_node_move_source_ask(move, &streams, fds, count);
    explicit_bzero(streams.keys, sizeof streams.keys);
}

void flyt_node_move_connect(struct flyt_node_move *move)
{
    const struct flyt_node_sending *sending = move->migration->sending;
    struct flyt_error err = {0};

    if (move->stage == FLYT_NODE_MOVE_NEW) {
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_CONNECTING);
        if (flyt_node_move_is_made_to_fail(move, "node.send.connect"))
            return;
    }
    if (move->connections && move->connections->there_count == move->connections->count) {
        hand_over(move);
        return;
    }
    if (flyt_node_move_is_late(move, FLYT_NODE_SEND_CONNECT_MS)) {
        flyt_node_move_fail(move, -ETIMEDOUT, "node %.100s cannot be connected to in time", sending->node);
        return;
    }
    if (move->connections && (!move->connections->again_ms || flyt_clock_ms() < move->connections->again_ms))
        return;
    int status = flyt_node_resolver_look(sending->resolver, &err);
    if (!status)
        begin(move);
    else if (status != -EAGAIN)
        flyt_node_move_fail(move, status, "node %.100s cannot be connected to: %.350s", sending->node, err.text);
}
