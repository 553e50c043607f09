#include "control/node/attach/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/node/attach/attach.h"
#include "control/node/attach/pool.h"
#include "control/node/host/machine.h"
#include "control/node/model/allocation.h"
#include "control/node/model/waiting.h"
#include "control/node/ops/arrival.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/move.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/room.h"
#include "flyt_signatures.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"
#include "rpc/base/url.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/greeter.h"
#include "rpc/transport/handshake.h"

/* ---- for anybody ---- */

static void answer_query(void *user, flyt_query_res *res)
{
    const struct flyt_node *node = user;

    res->build = (char *)flyt_build_name;
    res->uptime_ms = flyt_clock_ms() - node->started_ms;
    res->device_count = node->gpus.count;
    for (unsigned i = 0; i < node->gpus.count; i++) {
        res->session_count += node->starts[i].serving;
        res->warm_count += node->starts[i].warm;
    }
}

static void refuse(struct flyt_node *node, int fd, uint32_t xid, flyt_handshake_status status, const char *sentence)
{
    node->sessions_refused++;
    flyt_debug("a program is refused: %s", sentence);
    flyt_handshake_refuse(fd, xid, status, sentence);
    close(fd);
}

static bool has_credentials(void *user, const flyt_handshake_args *args)
{
    return args->credentials.credentials_len > 0;
}

/* A handshake without credentials. */
static void take_stranger(void *user, int fd, const void *record, size_t bytes)
{
    flyt_handshake_args args;
    uint32_t xid;

    if (flyt_handshake_decode(record, bytes, &xid, &args)) {
        close(fd);
        return;
    }
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
    refuse(user, fd, xid, FLYT_HANDSHAKE_DENIED,
           "this node serves programs of VMs with an allocation only, which their client manager tells the way here");
}

/* ---- tickets ---- */

/* Who has left already is at no address: as at a unix socket. */
static void print_address(int fd, char *text, size_t bytes)
{
    if (flyt_socket_print_peer(fd, text, bytes))
        snprintf(text, bytes, FLYT_CLIENT_UNIX);
}

/* Whether the proof is that of the credentials under this node's key, and the credentials are of today. NULL, or why
 * not. *ret_channel_key is set where it is. */
static const char *verify(const struct flyt_node *node, const struct flyt_credentials *credentials,
                          const struct flyt_greeter_answer *answer, unsigned char *ret_channel_key)
{
    unsigned char key[FLYT_TICKET_KEY_BYTES], secret[FLYT_TICKET_KEY_BYTES], proof[FLYT_TICKET_KEY_BYTES];
    const flyt_late_bytes *theirs = &answer->args->proof;

    flyt_ticket_key(node->state.node_key, credentials, key);
    flyt_ticket_secret(key, credentials->program_number, secret);
    flyt_ticket_proof(secret, answer->challenge, answer->record_hash, proof);
    bool is_proved = theirs->flyt_late_bytes_len == sizeof proof &&
                     flyt_equal_in_constant_time(proof, theirs->flyt_late_bytes_val, sizeof proof);
    if (is_proved)
        flyt_ticket_channel_key(secret, answer->challenge, answer->record_hash, ret_channel_key);
    explicit_bzero(key, sizeof key);
    explicit_bzero(secret, sizeof secret);
    if (!is_proved)
        return "the ticket is not one of this node's";
    if (credentials->key_number != node->state.key_number)
        return "the ticket was made with an earlier key of this node";
    return NULL;
}

/* Raising the generation ends no session, so further connections of one are as good as its first: for these the
 * session's token decides. */
static const char *check_allocation(const struct flyt_node_allocation *allocation,
                                    const struct flyt_credentials *credentials, bool is_new_session)
{
    if (!allocation)
        return "the ticket's allocation is not on this node (any more)";
    if (strcmp(allocation->now.vm_ip, credentials->vm_ip) != 0)
        return "the ticket's allocation is another VM's";
    if (is_new_session && allocation->now.generation != credentials->generation)
        return "the ticket was revoked";
    return NULL;
}

static void take_data_stream(struct flyt_node *node, const struct flyt_node_allocation *allocation, int fd,
                             const struct flyt_greeter_answer *answer, const unsigned char *channel_key,
                             const void *record, size_t bytes)
{
    struct flyt_node_server *server =
        flyt_node_server_find_token(node, answer->args->token.token_val, answer->args->token.token_len);

    if (!server && node->is_reattaching)
        refuse(node, fd, answer->xid, FLYT_HANDSHAKE_BUSY, "the session's server has not come back yet");
    else if (!server || flyt_node_server_allocation(server) != allocation)
        refuse(node, fd, answer->xid, FLYT_HANDSHAKE_NO_SESSION, "the session is not there (any more)");
    else if (flyt_node_server_add_stream(server, fd, channel_key, record, bytes))
        refuse(node, fd, answer->xid, FLYT_HANDSHAKE_BUSY, "the session's server takes no data stream now");
}

static void take_session(struct flyt_node *node, struct flyt_node_allocation *allocation, int fd,
                         const struct flyt_greeter_answer *answer, const unsigned char *channel_key, const void *record,
                         size_t bytes)
{
    struct flyt_node_ticket ticket = {.allocation_id = allocation->now.id,
                                      .generation = allocation->now.generation,
                                      .xid = answer->xid,
                                      .client_pid = answer->args->pid};
    struct flyt_error err = {0};

    int status = flyt_handshake_check(answer->args, flyt_build_name, &err);
    if (status) {
        refuse(node, fd, answer->xid, FLYT_HANDSHAKE_BASE_DIFFERS, err.text);
        return;
    }
    if (flyt_node_receive_hides(allocation)) {
        refuse(node, fd, answer->xid, FLYT_HANDSHAKE_BUSY,
               "the VM's programs are on their way to this node: try again");
        return;
    }
    status = flyt_node_room_check(node, allocation, flyt_node_waiting_count(node, allocation->now.id),
                                  flyt_node_waiting_promised(node, allocation), &err);
    bool is_held = status == -EBUSY;
    if (!status)
        status = flyt_node_room_take(node, allocation, &err);
    if (status && !is_held) {
        refuse(node, fd, answer->xid, flyt_node_pool_refusal(status), err.text);
        return;
    }
    flyt_node_clean_name(answer->args->program_name, ticket.program, sizeof ticket.program);
    print_address(fd, ticket.client_address, sizeof ticket.client_address);
    memcpy(ticket.channel_key, channel_key, sizeof ticket.channel_key);
    if (is_held)
        flyt_node_pool_hold(node, &ticket, fd, record, bytes, err.text);
    else
        flyt_node_pool_serve(node, allocation, &ticket, fd, record, bytes);
    explicit_bzero(&ticket, sizeof ticket);
}

/* The client of a session that goes on at another server. */
static void take_resumed(struct flyt_node *node, struct flyt_node_allocation *allocation, int fd,
                         const struct flyt_greeter_answer *answer, const unsigned char *channel_key, const void *record,
                         size_t bytes)
{
    struct flyt_node_ticket ticket = {
        .allocation_id = allocation->now.id, .generation = allocation->now.generation, .xid = answer->xid};
    struct flyt_node_session *session;
    struct flyt_node_server *source;
    struct flyt_error err = {0};

    print_address(fd, ticket.client_address, sizeof ticket.client_address);
    if (flyt_handshake_check(answer->args, flyt_build_name, &err)) {
        refuse(node, fd, answer->xid, FLYT_HANDSHAKE_BASE_DIFFERS, err.text);
        return;
    }
    const void *token = answer->args->token.token_val;
    size_t token_bytes = answer->args->token.token_len;
    int status = flyt_node_receive_ask(allocation, token, token_bytes, &err);
    if (status == -ENOENT)
        status = flyt_node_checkpointed_ask(node, allocation, token, token_bytes, &err);
    if (status == -EBUSY) {
        refuse(node, fd, answer->xid, FLYT_HANDSHAKE_BUSY, err.text);
        return;
    }
    status = flyt_node_move_find_token(node, allocation, token, token_bytes, &source, &err);
    memcpy(ticket.channel_key, channel_key, sizeof ticket.channel_key);
    if (!status) {
        ticket.session_id = source->session->id;
        if (flyt_node_move_take_client(source, &ticket, fd, record, bytes))
            refuse(node, fd, answer->xid, FLYT_HANDSHAKE_BUSY, "the session's server process takes it later");
        explicit_bzero(&ticket, sizeof ticket);
        return;
    }
    if (status == -ENOENT)
        status = flyt_node_replace_find_token(node, allocation, token, token_bytes, &session, &err);
    if (status) {
        refuse(node, fd, answer->xid, status == -EBUSY ? FLYT_HANDSHAKE_BUSY : FLYT_HANDSHAKE_NO_SESSION, err.text);
        return;
    }
    ticket.session_id = session->id;
    flyt_node_pool_serve(node, allocation, &ticket, fd, record, bytes);
    explicit_bzero(&ticket, sizeof ticket);
}

/* Of a node that programs leave. */
static void take_arrival(struct flyt_node *node, int fd, const struct flyt_greeter_answer *answer)
{
    struct flyt_error err = {0};

    flyt_handshake_status status = flyt_node_arrival_connect(node, fd, answer, &err);
    if (status != FLYT_HANDSHAKE_OK)
        refuse(node, fd, answer->xid, status, err.text);
}

static void take_answer(void *user, int fd, const struct flyt_greeter_answer *answer, const void *record, size_t bytes)
{
    struct flyt_node *node = user;
    struct flyt_credentials credentials;
    unsigned char channel_key[FLYT_TICKET_KEY_BYTES] = {0};

    if (answer->args->kind == FLYT_CONNECTION_MIGRATE) {
        take_arrival(node, fd, answer);
        return;
    }
    if (flyt_credentials_get(answer->args->credentials.credentials_val, answer->args->credentials.credentials_len,
                             &credentials)) {
        refuse(node, fd, answer->xid, FLYT_HANDSHAKE_DENIED, "the credentials are not of a kind that this node knows");
        return;
    }
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, credentials.allocation_id);
    const char *reason = verify(node, &credentials, answer, channel_key);
    flyt_connection_kind kind = answer->args->kind;
    if (!reason)
        reason =
            check_allocation(allocation, &credentials, kind != FLYT_CONNECTION_DATA && kind != FLYT_CONNECTION_RESUME);
    if (reason)
        refuse(node, fd, answer->xid, FLYT_HANDSHAKE_DENIED, reason);
    else if (kind == FLYT_CONNECTION_DATA)
        take_data_stream(node, allocation, fd, answer, channel_key, record, bytes);
    else if (kind == FLYT_CONNECTION_RESUME)
        take_resumed(node, allocation, fd, answer, channel_key, record, bytes);
    else
        take_session(node, allocation, fd, answer, channel_key, record, bytes);
    explicit_bzero(channel_key, sizeof channel_key);
}

/* ---- listening ---- */

static int on_greeter(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct flyt_node *node = user;

    int status = flyt_greeter_process(node->attach->greeter);
    if (status)
        flyt_fail("the listening sockets are broken: %s", strerror(-status));
    return status;
}

/* A socket that was passed is used as it is; that the settings say another port is told. */
static void compare_port(const char *name, const char *wanted, const char *passed)
{
    struct flyt_url want, have;

    if (!flyt_url_parse(wanted, NULL, &want) && !flyt_url_parse(passed, NULL, &have) && want.port &&
        want.port != have.port)
        flyt_warn("%s: the socket that was passed has port %u, `listen` says %u: programs are told %u", name, have.port,
                  want.port, have.port);
}

/* From systemd, from before a restart, or anew. */
static int open_listener(struct flyt_node *node, unsigned index, struct flyt_error *err)
{
    const char *url = node->settings->listen.items[index];
    char name[16], text[FLYT_URL_TEXT_BYTES];
    int fd = -1;

    snprintf(name, sizeof name, "data-%u", index);
    if (node->daemon)
        fd = flyt_daemon_take(node->daemon, name);
    if (fd >= 0) {
        int status = flyt_listen_describe(url, fd, text);
        if (status) {
            close(fd);
            return flyt_error_set(err, status, "the passed descriptor %s does not listen as %s", name, url);
        }
        compare_port(name, url, text);
    } else {
        int status = flyt_listen(url, err, &fd, text);
        if (status)
            return status;
        flyt_node_keep(node, name, fd);
    }
    node->attach->listen_fds[node->attach->listen_count] = fd;
    snprintf(node->attach->listen_urls[node->attach->listen_count], sizeof node->attach->listen_urls[0], "%s", text);
    node->attach->listen_count++;
    int status = flyt_greeter_listen(node->attach->greeter, fd);
    return status ? flyt_error_set(err, status, "%s: %s", url, strerror(-status)) : 0;
}

static const char local_name[] = "local"; /* in the descriptor store */

/* From before a restart, where it is still what the settings say; or -1. */
static int take_local(struct flyt_node *node)
{
    int fd = node->daemon ? flyt_daemon_take(node->daemon, local_name) : -1;

    if (fd >= 0 && !flyt_listens_at(fd, node->settings->socket)) {
        fd = flyt_close(fd);
        flyt_node_forget(node, local_name);
    }
    return fd;
}

/* Every user of this machine may connect: who may have a session the ticket says. */
static int listen_local(struct flyt_node *node, const char *url, struct flyt_error *err)
{
    char text[FLYT_URL_TEXT_BYTES];

    node->attach->local_fd = take_local(node);
    if (node->attach->local_fd < 0) {
        int status = flyt_listen(url, err, &node->attach->local_fd, text);
        if (status)
            return status;
        flyt_node_keep(node, local_name, node->attach->local_fd);
    }
    snprintf(node->attach->local_url, sizeof node->attach->local_url, "%s", url);
    if (chmod(node->settings->socket, 0666))
        return flyt_error_set(err, -errno, "%s: its mode cannot be set to 0666: %m", node->settings->socket);
    int status = flyt_greeter_listen(node->attach->greeter, node->attach->local_fd);
    return status ? flyt_error_set(err, status, "%s: %s", url, strerror(-status)) : 0;
}

static void close_local(struct flyt_node *node)
{
    node->attach->local_fd = flyt_close(node->attach->local_fd);
    if (*node->attach->local_url && !node->daemon)
        flyt_unlisten(node->attach->local_url);
    *node->attach->local_url = 0;
}

/* Its URL names this machine, so that no other one takes a socket of its own for it. */
static void open_local(struct flyt_node *node)
{
    struct flyt_error err = {0};
    char url[FLYT_URL_TEXT_BYTES];

    if (!node->settings->socket)
        return;
    snprintf(url, sizeof url, "unix://%s%s", node->state.boot_id, node->settings->socket);
    int status = *node->state.boot_id ? listen_local(node, url, &err)
                                      : flyt_error_set(&err, -ENODATA, "this machine's boot id cannot be read");
    if (status) {
        flyt_warn("programs of this machine use other addresses than `socket`: %s", err.text);
        close_local(node);
    } else {
        flyt_info("listening %s", node->attach->local_url);
    }
}

int flyt_node_listener_open(struct flyt_node *node, struct flyt_error *err)
{
    const struct flyt_greeter_config config = {.query = answer_query,
                                               .handshake = take_stranger,
                                               .is_challenged = has_credentials,
                                               .answer = take_answer,
                                               .user = node};

    int status = flyt_greeter_new(&config, &node->attach->greeter);
    if (!status)
        status = sd_event_add_io(node->event, &node->attach->greeter_source, flyt_greeter_fd(node->attach->greeter),
                                 EPOLLIN, on_greeter, node);
    if (status < 0)
        return flyt_error_set(err, status, "the listening sockets: %s", strerror(-status));
    for (unsigned i = 0; i < node->settings->listen.count; i++) {
        status = open_listener(node, i, err);
        if (status)
            return status;
        flyt_info("listening %s", node->attach->listen_urls[i]);
    }
    open_local(node);
    return 0;
}

void flyt_node_listener_close(struct flyt_node *node)
{
    sd_event_source_disable_unref(node->attach->greeter_source);
    node->attach->greeter_source = NULL;
    node->attach->greeter = flyt_greeter_free(node->attach->greeter);
    for (unsigned i = 0; i < node->attach->listen_count; i++) {
        flyt_close(node->attach->listen_fds[i]);
        if (!node->daemon)
            flyt_unlisten(node->attach->listen_urls[i]);
    }
    node->attach->listen_count = 0;
    close_local(node);
}
