#include "control/node/ops/dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/base/connector.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/sha256.h"
#include "rpc/base/ticket.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/message.h"

enum { MARK_BYTES = 4, FIRST_XID = 1, SECOND_XID = 2 };

enum stage {
    CONNECTING,
    ASKING,  /* the first handshake is being sent, its answer awaited */
    PROVING, /* the second one */
    OVER,
};

struct flyt_node_dial {
    struct flyt_node_dial_config config; /* without args and secret */
    sd_event *event;
    sd_event_source *io, *deadline;
    enum stage stage;
    struct flyt_connector *connector;
    const struct flyt_node_address *address; /* that was connected to, or the last one */
    int fd;                                  /* -1: none, or taken */
    flyt_handshake_args args;
    unsigned char secret[FLYT_TICKET_KEY_BYTES], hash[FLYT_SHA256_BYTES], key[FLYT_TICKET_KEY_BYTES];
    struct flyt_bytes out; /* to be sent: a record with its mark */
    size_t sent;
    unsigned char in[MARK_BYTES + FLYT_NODE_DIAL_ANSWER_BYTES_MAX];
    size_t in_bytes, in_wanted; /* of the answer */
};

/* ---- ending ---- */

static void stop(struct flyt_node_dial *dial)
{
    dial->io = sd_event_source_disable_unref(dial->io);
    dial->connector = flyt_connector_free(dial->connector);
    dial->deadline = sd_event_source_disable_unref(dial->deadline);
    explicit_bzero(dial->secret, sizeof dial->secret);
    dial->stage = OVER;
}

/* Tells what has become of it, which may free it. */
static void finish(struct flyt_node_dial *dial, int status, const char *sentence)
{
    char text[512];

    snprintf(text, sizeof text, "%s", sentence); /* it may be the dial's own */
    stop(dial);
    if (status)
        dial->fd = flyt_close(dial->fd);
    dial->config.done(dial->config.user, status, text);
}

__attribute__((format(printf, 3, 4))) static void fail(struct flyt_node_dial *dial, int status, const char *format, ...)
{
    char text[400], whole[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(whole, sizeof whole, "%.100s: %.400s", dial->address ? dial->address->url : "its listener", text);
    finish(dial, status, whole);
}

struct flyt_node_dial *flyt_node_dial_free(struct flyt_node_dial *dial)
{
    if (!dial)
        return NULL;
    stop(dial);
    flyt_close(dial->fd);
    explicit_bzero(dial->key, sizeof dial->key);
    flyt_bytes_fini(&dial->out);
    free(dial->args.build);
    free(dial->args.program_name);
    free(dial->args.token.token_val);
    free(dial->args.credentials.credentials_val);
    sd_event_unref(dial->event);
    free(dial);
    return NULL;
}

int flyt_node_dial_take(struct flyt_node_dial *dial, unsigned char *ret_key)
{
    int fd = dial->fd;

    memcpy(ret_key, dial->key, sizeof dial->key);
    explicit_bzero(dial->key, sizeof dial->key);
    dial->fd = -1;
    return fd;
}

/* ---- handshakes ---- */

static int watch(struct flyt_node_dial *dial, uint32_t events);

/* Makes the record of a handshake with this proof (NULL: none), and tells its hash where that is wanted. */
static int encode(struct flyt_node_dial *dial, uint32_t xid, const unsigned char *proof, unsigned char *ret_hash)
{
    unsigned char copy[FLYT_TICKET_KEY_BYTES];
    struct flyt_bytes *out = &dial->out;
    XDR xdrs;

    flyt_bytes_fini(out);
    out->bytes_max = MARK_BYTES + FLYT_HANDSHAKE_BYTES_MAX;
    dial->sent = 0;
    if (proof) {
        memcpy(copy, proof, sizeof copy);
        dial->args.proof = (flyt_late_bytes){sizeof copy, (char *)copy};
    }
    bool is_good = flyt_bytes_reserve(out, MARK_BYTES);
    if (is_good) {
        out->used = MARK_BYTES;
        flyt_xdr_encode_init(&xdrs, out);
        is_good = flyt_call_head_put(&xdrs, xid, FLYT_PROGRAM, FLYT_VERSION, FLYT_HANDSHAKE) &&
                  xdr_flyt_handshake_args(&xdrs, &dial->args);
    }
    dial->args.proof = (flyt_late_bytes){0};
    if (!is_good)
        return -ENOMEM;
    uint32_t mark = htonl(0x80000000u | (uint32_t)(out->used - MARK_BYTES));
    memcpy(out->data, &mark, sizeof mark);
    if (ret_hash)
        flyt_sha256_of(out->data + MARK_BYTES, out->used - MARK_BYTES, ret_hash);
    return 0;
}

static void await_answer(struct flyt_node_dial *dial)
{
    dial->in_bytes = 0;
    dial->in_wanted = MARK_BYTES;
}

static int status_of(flyt_handshake_status status)
{
    switch (status) {
    case FLYT_HANDSHAKE_BUSY:
        return -EBUSY;
    case FLYT_HANDSHAKE_DENIED:
    case FLYT_HANDSHAKE_NO_SESSION:
        return -EACCES;
    default:
        return -EPROTO;
    }
}

/* Answers the listener's challenge. */
static void prove(struct flyt_node_dial *dial, const flyt_late_bytes *challenge)
{
    unsigned char proof[FLYT_TICKET_KEY_BYTES];
    const unsigned char *nonce = (const unsigned char *)challenge->flyt_late_bytes_val;

    if (challenge->flyt_late_bytes_len != FLYT_TICKET_NONCE_BYTES) {
        fail(dial, -EPROTO, "its challenge cannot be answered by this version");
        return;
    }
    flyt_ticket_proof(dial->secret, nonce, dial->hash, proof);
    flyt_ticket_channel_key(dial->secret, nonce, dial->hash, dial->key);
    dial->stage = PROVING;
    await_answer(dial);
    int status = encode(dial, SECOND_XID, proof, NULL);
    if (!status)
        status = watch(dial, EPOLLOUT);
    if (status)
        fail(dial, status, "no memory");
}

static void take_answer(struct flyt_node_dial *dial, const flyt_handshake_res *res)
{
    if (res->status == FLYT_HANDSHAKE_CHALLENGE && dial->stage == ASKING)
        prove(dial, &res->challenge);
    else if (res->status == FLYT_HANDSHAKE_OK && dial->stage == PROVING)
        finish(dial, 0, "");
    else if (res->status == FLYT_HANDSHAKE_OK)
        fail(dial, -EPROTO, "it does not ask for a proof");
    else
        fail(dial, status_of(res->status), "%.350s", *res->message ? res->message : "it refuses without a word");
}

static void decode_answer(struct flyt_node_dial *dial)
{
    const unsigned char *record = dial->in + MARK_BYTES;
    size_t bytes = dial->in_bytes - MARK_BYTES;
    struct flyt_reply_head head;
    flyt_handshake_res res = {0};
    XDR xdrs;

    if (flyt_reply_head_get(record, bytes, &head) || head.xid != (dial->stage == ASKING ? FIRST_XID : SECOND_XID)) {
        fail(dial, -EPROTO, "its answer is not that of a node");
        return;
    }
    if (!head.is_accepted || head.status != SUCCESS) {
        fail(dial, -EPROTO, "%s", flyt_reply_failure(&head));
        return;
    }
    flyt_xdr_decode_init(&xdrs, record + head.bytes, bytes - head.bytes, NULL);
    bool is_decoded = xdr_flyt_handshake_res(&xdrs, &res);
    if (is_decoded)
        take_answer(dial, &res);
    else
        fail(dial, -EPROTO, "its answer to the handshake cannot be decoded");
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
}

/* Reads the answer and nothing behind it: that is for who takes the connection. */
static void read_answer(struct flyt_node_dial *dial)
{
    while (dial->in_bytes < dial->in_wanted) {
        ssize_t bytes = recv(dial->fd, dial->in + dial->in_bytes, dial->in_wanted - dial->in_bytes, MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (bytes <= 0) {
            fail(dial, bytes ? -errno : -EPIPE, "%s",
                 bytes ? strerror(errno) : "it closed the connection instead of answering");
            return;
        }
        dial->in_bytes += (size_t)bytes;
        if (dial->in_bytes != MARK_BYTES)
            continue;
        uint32_t mark;
        memcpy(&mark, dial->in, sizeof mark);
        mark = ntohl(mark);
        size_t record_bytes = mark & 0x7fffffffu;
        if (!(mark & 0x80000000u) || !record_bytes || record_bytes > FLYT_NODE_DIAL_ANSWER_BYTES_MAX) {
            fail(dial, -EPROTO, "its answer is not that of a node");
            return;
        }
        dial->in_wanted = MARK_BYTES + record_bytes;
    }
    decode_answer(dial);
}

static void send_record(struct flyt_node_dial *dial)
{
    while (dial->sent < dial->out.used) {
        ssize_t bytes =
            send(dial->fd, dial->out.data + dial->sent, dial->out.used - dial->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (bytes < 0) {
            fail(dial, -errno, "%s", strerror(errno));
            return;
        }
        dial->sent += (size_t)bytes;
    }
    int status = watch(dial, EPOLLIN);
    if (status)
        fail(dial, status, "no memory");
}

/* ---- connecting ---- */

static int on_io(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct flyt_node_dial *dial = user;

    if (dial->sent < dial->out.used)
        send_record(dial);
    else
        read_answer(dial);
    return 0;
}

static int watch(struct flyt_node_dial *dial, uint32_t events)
{
    if (dial->io)
        return sd_event_source_set_io_events(dial->io, events);
    int status = sd_event_add_io(dial->event, &dial->io, dial->fd, events, on_io, dial);
    return status < 0 ? status : 0;
}

static void connected(void *user, int status, int fd, unsigned number)
{
    struct flyt_node_dial *dial = user;

    dial->address = flyt_node_resolver_address(dial->config.resolver, number);
    if (status) {
        fail(dial, status, "%s", strerror(-status));
        return;
    }
    dial->fd = fd;
    flyt_node_resolver_prefer(dial->config.resolver, dial->address);
    flyt_socket_tune(dial->fd);
    dial->stage = ASKING;
    await_answer(dial);
    status = encode(dial, FIRST_XID, NULL, dial->hash);
    if (!status)
        status = watch(dial, EPOLLOUT);
    if (status)
        fail(dial, status, "no memory");
}

static int connect_to(struct flyt_node_dial *dial)
{
    struct flyt_connector_address addresses[FLYT_NODE_WAY_ADDRESSES_MAX];
    struct flyt_connector_config config = {.addresses = addresses,
                                           .count = flyt_node_resolver_count(dial->config.resolver),
                                           .first = flyt_node_resolver_first(dial->config.resolver),
                                           .deadline_ms = flyt_clock_ms() + dial->config.timeout_ms,
                                           .done = connected,
                                           .user = dial};

    for (unsigned i = 0; i < config.count; i++) {
        const struct flyt_node_address *one = flyt_node_resolver_address(dial->config.resolver, i);
        addresses[i] = (struct flyt_connector_address){(const struct sockaddr *)&one->address, one->bytes};
    }
    return flyt_connector_new(dial->event, &config, &dial->connector);
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_dial *dial = user;

    fail(dial, -ETIMEDOUT, "%s",
         dial->stage == CONNECTING ? "it cannot be connected to in time" : "it does not answer in time");
    return 0;
}

/* ---- beginning ---- */

static char *copy_of(const void *data, size_t bytes)
{
    char *copy = malloc(bytes + 1);

    if (copy) {
        memcpy(copy, data, bytes);
        copy[bytes] = 0;
    }
    return copy;
}

static int copy_args(const flyt_handshake_args *from, flyt_handshake_args *to)
{
    *to = *from;
    to->procedures.procedures_len = 0;
    to->procedures.procedures_val = NULL;
    to->proof = (flyt_late_bytes){0};
    to->build = copy_of(from->build, strlen(from->build));
    to->program_name = copy_of(from->program_name, strlen(from->program_name));
    to->token.token_val = copy_of(from->token.token_val, from->token.token_len);
    to->credentials.credentials_val = copy_of(from->credentials.credentials_val, from->credentials.credentials_len);
    return to->build && to->program_name && to->token.token_val && to->credentials.credentials_val ? 0 : -ENOMEM;
}

int flyt_node_dial_new(sd_event *event, const struct flyt_node_dial_config *config, struct flyt_node_dial **ret_dial)
{
    struct flyt_node_dial *dial = calloc(1, sizeof *dial);

    if (!dial)
        return -ENOMEM;
    dial->config = *config;
    dial->config.args = NULL;
    dial->config.secret = NULL;
    dial->event = sd_event_ref(event);
    dial->fd = -1;
    memcpy(dial->secret, config->secret, sizeof dial->secret);
    int status = copy_args(config->args, &dial->args);
    if (!status)
        status = connect_to(dial);
    if (status >= 0)
        status = sd_event_add_time_relative(event, &dial->deadline, CLOCK_MONOTONIC, config->timeout_ms * 1000, 1000,
                                            on_deadline, dial);
    if (status < 0) {
        flyt_node_dial_free(dial);
        return status;
    }
    *ret_dial = dial;
    return 0;
}
