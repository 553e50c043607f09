#include "control/node/ops/arrival.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "control/node/host/machine.h"
#include "control/node/ops/replace.h"
#include "control/node/state/receive_record.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"
#include "rpc/transport/handshake.h"

/* ---- its loading ---- */

static struct flyt_node_arrival *arrival_of(struct flyt_node_session_load *session_load)
{
    return (struct flyt_node_arrival *)((char *)session_load - offsetof(struct flyt_node_arrival, session_load));
}

static void close_all(struct flyt_node_arrival *arrival)
{
    for (unsigned i = 0; i < 1 + FLYT_MIGRATION_STREAMS_MAX; i++)
        arrival->fds[i] = flyt_close(arrival->fds[i]);
    explicit_bzero(arrival->keys, sizeof arrival->keys);
}

/* What it says after a restart. */
static void put_awaited(const struct flyt_node_session_load *session_load, struct flyt_manager_link_awaited *awaited)
{
    const struct flyt_node_session_load_session *its = &session_load->its;

    awaited->started_ms = its->started_ms;
    awaited->client_pid = its->client_pid;
    memcpy(awaited->token, its->token, sizeof awaited->token);
    flyt_node_server_secret(session_load->target.node, session_load->target.server->uid,
                            session_load->target.server->has.server_id, its->session_id, its->allocation_id,
                            awaited->rejoin_secret);
    snprintf(awaited->program, sizeof awaited->program, "%s", its->program);
    snprintf(awaited->client_address, sizeof awaited->client_address, "%s", its->client_address);
}

/* RECEIVE, with all connections. */
static int load(struct flyt_node_session_load *session_load)
{
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_RECEIVE);
    struct flyt_node_arrival *arrival = arrival_of(session_load);
    struct flyt_manager_link_receive *receive = &message->receive;
    int fds[1 + FLYT_MIGRATION_STREAMS_MAX];

    receive->move_id = session_load->target.move_id;
    receive->streams.stream_count = arrival->stream_count;
    receive->streams.is_encrypted = arrival->receive->is_encrypted;
    if (arrival->receive->is_encrypted)
        memcpy(receive->streams.keys, arrival->keys, sizeof receive->streams.keys);
    for (unsigned i = 0; i <= arrival->stream_count; i++) {
        fds[i] = arrival->fds[i];
        arrival->fds[i] = -1;
    }
    put_awaited(session_load, &receive->awaited);
    flyt_node_target_send(&session_load->target, message, fds, 1 + arrival->stream_count, NULL);
    explicit_bzero(receive, sizeof *receive);
    close_all(arrival);
    return 0;
}

static void on_loaded(struct flyt_node_session_load *session_load, const struct flyt_manager_link_prepared *prepared)
{
    const struct flyt_node_arrival *arrival = arrival_of(session_load);

    flyt_info("session %016" PRIx64 ": has arrived, vm=%s program=%s gpu=%u server_pid=%d extents=%u bytes=%" PRIu64,
              session_load->its.session_id, arrival->receive->op.vm_ip, session_load->its.program,
              session_load->target.server->gpu->index, (int)session_load->target.server->pid,
              session_load->session->has.extents.count, session_load->session->has.extents.bytes);
}

/* Its session goes on here, which a restart is to know. */
static void note_moved(struct flyt_node_receive *receive, uint64_t session_id)
{
    receive->moved_count++;
    if (!receive->record)
        return;
    if (flyt_node_receive_record_note(receive->record, session_id))
        flyt_warn("migration %016" PRIx64 ": that session %016" PRIx64 " goes on is not kept: no memory",
                  receive->op.id, session_id);
    else if (!receive->unsaved_ms)
        receive->unsaved_ms = flyt_clock_ms();
}

static void on_gone_on(struct flyt_node_session_load *session_load, struct flyt_node_server *server)
{
    struct flyt_node_receive *receive = arrival_of(session_load)->receive;
    char id[20];

    note_moved(receive, session_load->its.session_id);
    receive->memory_bytes += server->has.extents.bytes;
    receive->standstill_us = (flyt_clock_ns() - receive->switch_ns) / 1000;
    server->node->sessions_moved++;
    snprintf(id, sizeof id, "%016" PRIx64, session_load->its.session_id);
    flyt_info("session %s: goes on here, vm=%s program=%s gpu=%u server_pid=%d", id, receive->op.vm_ip,
              session_load->its.program, server->gpu->index, (int)server->pid);
    flyt_node_tell(server->node, "session.arrived", id, "program %s of VM %s, from another node",
                   session_load->its.program, receive->op.vm_ip);
    flyt_node_changed(server->node);
}

static void on_failed(struct flyt_node_session_load *session_load, enum flyt_node_target_end how, flyt_status status,
                      const char *sentence)
{
    struct flyt_node_arrival *arrival = arrival_of(session_load);
    struct flyt_node_receive *receive = arrival->receive;

    close_all(arrival);
    flyt_warn("session %016" PRIx64 ": does not go on here, vm=%s program=%s: %s", session_load->its.session_id,
              receive->op.vm_ip, session_load->its.program, sentence);
    if (how == FLYT_NODE_TARGET_ENDED) {
        arrival->is_told = true;
    } else if (receive->is_switched) {
        arrival->has_failed = true;
        arrival->status = status;
        snprintf(arrival->sentence, sizeof arrival->sentence, "%s", sentence);
    } else if (how == FLYT_NODE_TARGET_REFUSED) {
        snprintf(receive->last_failure, sizeof receive->last_failure, "program %.100s: %.390s",
                 session_load->its.program, sentence);
    } else {
        flyt_node_operation_fail(&receive->op, status, "program %.100s: %.390s", session_load->its.program, sentence);
    }
    flyt_node_operation_wake(session_load->target.operation);
}

static const struct flyt_node_session_load_ops ops = {
    .load = load, .loaded = on_loaded, .gone_on = on_gone_on, .failed = on_failed};

/* ---- connections ---- */

static bool has_hung_up(int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLRDHUP};

    return fd >= 0 && poll(&end, 1, 0) > 0;
}

/* Lets go of connections that nobody is at the other end of. How many there are. */
static unsigned count_connections(struct flyt_node_arrival *arrival)
{
    unsigned count = 0;

    for (unsigned i = 0; i <= arrival->stream_count; i++) {
        if (has_hung_up(arrival->fds[i]))
            arrival->fds[i] = flyt_close(arrival->fds[i]);
        count += arrival->fds[i] >= 0;
    }
    return count;
}

static bool has_secret(const struct flyt_node_receive *receive)
{
    static const unsigned char none[sizeof receive->secret];

    return memcmp(receive->secret, none, sizeof none) != 0;
}

static bool is_proved(const struct flyt_node_receive *receive, const struct flyt_greeter_answer *answer)
{
    const flyt_late_bytes *theirs = &answer->args->proof;
    unsigned char proof[FLYT_TICKET_KEY_BYTES];

    flyt_ticket_proof(receive->secret, answer->challenge, answer->record_hash, proof);
    return theirs->flyt_late_bytes_len == sizeof proof &&
           flyt_equal_in_constant_time(proof, theirs->flyt_late_bytes_val, sizeof proof);
}

static struct flyt_node_arrival *find(struct flyt_node_receive *receive, uint64_t session_id, unsigned *ret_count)
{
    struct flyt_node_arrival *found = NULL;

    *ret_count = 0;
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        if (arrival->session_load.target.state == FLYT_NODE_TARGET_OVER)
            continue;
        ++*ret_count;
        if (arrival->session_load.its.session_id == session_id)
            found = arrival;
    }
    return found;
}

/* It has no connection, and its receive does not list it. NULL: there is no memory. *its lacks what the others say. */
static struct flyt_node_arrival *begin(struct flyt_node_receive *receive,
                                       const struct flyt_node_session_load_session *its, const void *token,
                                       const char *program, const char *client_address)
{
    struct flyt_node_arrival *arrival = calloc(1, sizeof *arrival);
    struct flyt_node_session_load_session all = *its;

    if (!arrival)
        return NULL;
    memcpy(all.token, token, sizeof all.token);
    flyt_node_clean_name(program, all.program, sizeof all.program);
    flyt_node_clean_name(client_address, all.client_address, sizeof all.client_address);
    for (unsigned i = 0; i < 1 + FLYT_MIGRATION_STREAMS_MAX; i++)
        arrival->fds[i] = -1;
    arrival->receive = receive;
    flyt_node_session_load_init(&arrival->session_load, &receive->op, &ops, &all);
    arrival->session_load.is_running = true;
    explicit_bzero(all.token, sizeof all.token);
    return arrival;
}

static void enter(struct flyt_node_arrival *arrival)
{
    arrival->next = arrival->receive->arrivals;
    arrival->receive->arrivals = arrival;
}

static struct flyt_node_arrival *new_arrival(struct flyt_node_receive *receive,
                                             const struct flyt_migrate_credentials *credentials,
                                             const flyt_handshake_args *args, bool is_encrypted)
{
    const struct flyt_node_session_load_session its = {.session_id = credentials->session_id,
                                                       .allocation_id = credentials->allocation_id,
                                                       .client_pid = args->pid,
                                                       .is_encrypted = is_encrypted,
                                                       .leaves_coredumps = credentials->leaves_coredumps,
                                                       .started_ms = credentials->started_ms};
    struct flyt_node_arrival *arrival =
        begin(receive, &its, args->token.token_val, args->program_name, credentials->client_address);

    if (!arrival)
        return NULL;
    arrival->stream_count = credentials->stream_count;
    enter(arrival);
    return arrival;
}

/* The same attempt of the same program. */
static bool goes_with(const struct flyt_node_arrival *arrival, const struct flyt_migrate_credentials *credentials,
                      const flyt_handshake_args *args)
{
    return arrival->session_load.target.state == FLYT_NODE_TARGET_NEW &&
           arrival->stream_count == credentials->stream_count &&
           flyt_equal_in_constant_time(arrival->session_load.its.token, args->token.token_val, FLYT_TOKEN_BYTES);
}

/* Where the connection belongs. OK, or why there is no place for it. */
static flyt_handshake_status find_place(struct flyt_node_receive *receive,
                                        const struct flyt_migrate_credentials *credentials,
                                        const flyt_handshake_args *args, struct flyt_node_arrival **ret_arrival,
                                        struct flyt_error *err)
{
    const struct flyt_node_allocation *allocation =
        flyt_node_allocation_find(receive->op.node, receive->op.allocation_id);
    unsigned count;

    if (flyt_node_receive_is_failing(receive) || flyt_node_operation_has_ended(&receive->op) || !allocation) {
        flyt_error_set(err, -ECANCELED, "the migration has failed here: %.400s", receive->op.text);
        return FLYT_HANDSHAKE_DENIED;
    }
    if (receive->is_switched || receive->switching.done) {
        flyt_error_set(err, -EALREADY, "the VM's programs have arrived already");
        return FLYT_HANDSHAKE_DENIED;
    }
    if (credentials->allocation_id != receive->op.allocation_id || !credentials->session_id ||
        args->token.token_len != FLYT_TOKEN_BYTES) {
        flyt_error_set(err, -EINVAL, "the migration is another allocation's, or the session has no id or no token");
        return FLYT_HANDSHAKE_DENIED;
    }
    if (flyt_node_server_find(receive->op.node, credentials->session_id) ||
        flyt_node_replace_find(receive->op.node, credentials->session_id)) {
        flyt_error_set(err, -EEXIST, "the session is on this node already");
        return FLYT_HANDSHAKE_DENIED;
    }
    struct flyt_node_arrival *arrival = find(receive, credentials->session_id, &count);
    if (arrival && !goes_with(arrival, credentials, args)) {
        flyt_node_arrival_drop(arrival, "its node begins again");
        arrival = NULL;
    }
    if (!arrival && count >= receive->op.node->settings->vm_sessions_max) {
        flyt_error_set(err, -EBUSY, "%u programs of the VM arrive already", count);
        return FLYT_HANDSHAKE_BUSY;
    }
    if (!arrival)
        arrival = new_arrival(receive, credentials, args, allocation->now.is_encrypted);
    if (!arrival) {
        flyt_error_set(err, -ENOMEM, "the node has no memory");
        return FLYT_HANDSHAKE_BUSY;
    }
    if (!count_connections(arrival))
        arrival->session_load.target.state_ms = flyt_clock_ms();
    if (arrival->fds[credentials->stream] >= 0) {
        flyt_error_set(err, -EEXIST, "connection %u of the session is there already", credentials->stream);
        return FLYT_HANDSHAKE_DENIED;
    }
    *ret_arrival = arrival;
    return FLYT_HANDSHAKE_OK;
}

/* What nobody but this node manager answers: it is no session's server. */
static int answer_ok(int fd, uint32_t xid, const struct flyt_node_arrival *arrival)
{
    flyt_handshake_res res = {.status = FLYT_HANDSHAKE_OK,
                              .message = (char *)"",
                              .session_id = arrival->session_load.its.session_id,
                              .build = (char *)flyt_build_name};
    size_t bytes;
    void *record;

    int status = flyt_handshake_encode_reply(xid, &res, &record, &bytes);
    if (status)
        return status;
    /* So little fits into the buffer of a connection on which nothing else is under way. */
    ssize_t sent = send(fd, record, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    free(record);
    return sent == (ssize_t)bytes ? 0 : -EPIPE;
}

flyt_handshake_status flyt_node_arrival_connect(struct flyt_node *node, int fd,
                                                const struct flyt_greeter_answer *answer, struct flyt_error *err)
{
    const flyt_handshake_args *args = answer->args;
    struct flyt_migrate_credentials credentials;
    struct flyt_node_arrival *arrival;

    if (flyt_migrate_credentials_get(args->credentials.credentials_val, args->credentials.credentials_len,
                                     &credentials)) {
        flyt_error_set(err, -EBADMSG, "the credentials are not of a kind that this node knows");
        return FLYT_HANDSHAKE_DENIED;
    }
    struct flyt_node_receive *receive = flyt_node_receive_find(node, credentials.migration_id);
    /* One that has ended, or was restarted, has no secret any more: anybody could prove to know that. */
    if (!receive || !has_secret(receive) || !is_proved(receive, answer)) {
        flyt_error_set(err, -EACCES, "nothing that migrates is awaited with such credentials");
        return FLYT_HANDSHAKE_DENIED;
    }
    if (flyt_fault_point("node.receive.connect") == FLYT_FAULT_ERROR) {
        flyt_error_set(err, -EIO, "a test lets it fail at node.receive.connect");
        return FLYT_HANDSHAKE_DENIED;
    }
    flyt_handshake_status status = find_place(receive, &credentials, args, &arrival, err);
    if (status != FLYT_HANDSHAKE_OK)
        return status;
    if (answer_ok(fd, answer->xid, arrival)) {
        flyt_error_set(err, -EPIPE, "the connection has gone");
        return FLYT_HANDSHAKE_BUSY;
    }
    arrival->fds[credentials.stream] = fd;
    flyt_ticket_channel_key(receive->secret, answer->challenge, answer->record_hash, arrival->keys[credentials.stream]);
    flyt_node_operation_wake(&receive->op);
    return FLYT_HANDSHAKE_OK;
}

/* ---- after a restart ---- */

int flyt_node_arrival_return(struct flyt_node_receive *receive, struct flyt_node_allocation *allocation,
                             struct flyt_node_server *server, const struct flyt_manager_link_rejoin *rejoin)
{
    const struct flyt_node_session_load_session its = {.session_id = rejoin->session.session_id,
                                                       .allocation_id = rejoin->session.allocation_id,
                                                       .client_pid = rejoin->client_pid,
                                                       .is_encrypted = rejoin->session.is_encrypted,
                                                       .leaves_coredumps =
                                                           flyt_manager_link_leaves_coredumps(&rejoin->session),
                                                       .started_ms = rejoin->started_ms};
    struct flyt_node_arrival *arrival =
        begin(receive, &its, rejoin->session.token, rejoin->program, rejoin->client_address);

    if (!arrival)
        return -ENOMEM;
    int status = flyt_node_session_load_return(&arrival->session_load, allocation, server, rejoin->received_move_id,
                                               rejoin->extent_count);
    if (status) {
        flyt_node_session_load_fini(&arrival->session_load);
        free(arrival);
        return status;
    }
    enter(arrival);
    return 0;
}

/* ---- going on, and the end ---- */

/* It is not said to have failed: whoever connects may do so again. */
static void forget(struct flyt_node_arrival *arrival, const char *sentence)
{
    struct flyt_node_receive *receive = arrival->receive;

    flyt_warn("session %016" PRIx64 ": does not arrive, vm=%s program=%s: %s", arrival->session_load.its.session_id,
              receive->op.vm_ip, arrival->session_load.its.program, sentence);
    snprintf(receive->last_failure, sizeof receive->last_failure, "program %.100s: %.390s",
             arrival->session_load.its.program, sentence);
    flyt_node_arrival_drop(arrival, sentence);
}

static void gather(struct flyt_node_arrival *arrival)
{
    char sentence[160];
    unsigned count = count_connections(arrival);

    if (count == 1 + arrival->stream_count) {
        flyt_node_session_load_begin(&arrival->session_load);
    } else if (!count) {
        forget(arrival, "its node has given up");
    } else if (flyt_clock_ms() - arrival->session_load.target.state_ms > FLYT_NODE_ARRIVAL_GATHER_MS) {
        snprintf(sentence, sizeof sentence, "%u of its %u connections have come within %u s", count,
                 1 + arrival->stream_count, FLYT_NODE_ARRIVAL_GATHER_MS / 1000);
        forget(arrival, sentence);
    }
}

void flyt_node_arrival_advance(struct flyt_node_arrival *arrival)
{
    struct flyt_node_session_load *session_load = &arrival->session_load;

    /* After SWITCH all of it is here: a server that came back says so within the time of any message. */
    const uint64_t load_ms =
        arrival->receive->is_switched ? FLYT_NODE_SESSION_LOAD_PREPARE_MS : arrival->receive->op.timeout_s * 1000ull;

    if (session_load->target.state == FLYT_NODE_TARGET_NEW)
        gather(arrival);
    else if (session_load->target.state <= FLYT_NODE_TARGET_PREPARING && has_hung_up(arrival->fds[0]))
        forget(arrival, "its node has given up");
    flyt_node_session_load_advance(session_load, load_ms);
}

void flyt_node_arrival_drop(struct flyt_node_arrival *arrival, const char *reason)
{
    close_all(arrival);
    flyt_node_session_load_drop(&arrival->session_load, reason);
}

struct flyt_node_arrival *flyt_node_arrival_free(struct flyt_node_arrival *arrival)
{
    struct flyt_node_arrival **link = &arrival->receive->arrivals;

    while (*link != arrival)
        link = &(*link)->next;
    *link = arrival->next;
    close_all(arrival);
    flyt_node_session_load_fini(&arrival->session_load);
    free(arrival);
    return NULL;
}

const struct flyt_node_arrival *flyt_node_arrival_find(const struct flyt_node_receive *receive, uint64_t session_id)
{
    const struct flyt_node_arrival *arrival = receive->arrivals;

    while (arrival && arrival->session_load.its.session_id != session_id)
        arrival = arrival->next;
    return arrival;
}

unsigned flyt_node_arrivals_at(const struct flyt_node_receive *receive, enum flyt_node_target_state first,
                               enum flyt_node_target_state last)
{
    unsigned count = 0;

    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        count += arrival->session_load.target.state >= first && arrival->session_load.target.state <= last;
    return count;
}
