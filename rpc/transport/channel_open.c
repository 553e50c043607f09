#include "rpc/transport/channel_state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "flyt_signatures.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"
#include "rpc/transport/listen.h"

enum { DEFAULT_TIMEOUT_MS = 10000, TCP_STREAMS_MAX = 4, UNIX_STREAMS_MAX = 2 };

/* ---- the handshake ---- */

/* Encodes the call, sends it, and tells the hash of its record. 0 or a negative errno. */
static int send_handshake(struct flyt_output *output, flyt_handshake_args *args, unsigned char *ret_hash)
{
    struct flyt_bytes call = {.bytes_max = FLYT_HANDSHAKE_BYTES_MAX};
    XDR xdrs;

    flyt_xdr_encode_init(&xdrs, &call);
    if (!flyt_call_head_put(&xdrs, 0, FLYT_PROGRAM, FLYT_VERSION, FLYT_HANDSHAKE) ||
        !xdr_flyt_handshake_args(&xdrs, args)) {
        flyt_bytes_fini(&call);
        return -EINVAL;
    }
    flyt_sha256_of(call.data, call.used, ret_hash);
    flyt_output_lock(output);
    int status = flyt_output_begin_locked(output, true, &xdrs);
    if (!status) {
        if (xdr_opaque(&xdrs, (char *)call.data, (u_int)call.used)) {
            flyt_output_end_locked(output);
            status = flyt_output_flush_locked(output, true);
        } else {
            flyt_output_cancel_locked(output);
            status = -ENOMEM;
        }
    }
    flyt_output_unlock(output);
    flyt_bytes_fini(&call);
    return status;
}

static bool is_unix_socket(int fd)
{
    int domain = 0;
    socklen_t bytes = sizeof domain;

    return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) && domain == AF_UNIX;
}

/* The handshake of one connection. */
struct greeting {
    struct flyt_output *output;
    struct flyt_input *input;
    uint64_t deadline_ms;
    int cancel_fd;
    bool takes_page;            /* looks for a descriptor with the answers: over a unix socket */
    bool is_odd;                /* there was more than one */
    int page_fd;                /* the one that came, or -1; the caller closes it, also where the handshake fails */
    struct flyt_secure *secure; /* where TLS was begun: the caller's, also where the handshake fails */
};

/*
 * Reads once from a unix socket, and takes the descriptor that came with the bytes: descriptors travel with the first
 * byte of the record that they belong to, and a read that does not ask for them throws them away, as every later one
 * does. Bytes read or a negative errno.
 */
static int fill_with_descriptor(struct greeting *greeting)
{
    struct flyt_input *input = greeting->input;
    char bytes[4096];
    int fds[FLYT_DESCRIPTORS_MAX];
    unsigned count = 0;
    int received = flyt_descriptors_receive(input->fd, bytes, sizeof bytes, fds, FLYT_DESCRIPTORS_MAX, &count);

    if (received <= 0)
        return received == -ECONNRESET || !received ? -EPIPE : received;
    greeting->is_odd = greeting->is_odd || count > 1 || (count && greeting->page_fd >= 0);
    for (unsigned i = 0; i < count; i++) {
        flyt_close(greeting->page_fd);
        greeting->page_fd = fds[i];
    }
    if (greeting->is_odd)
        greeting->page_fd = flyt_close(greeting->page_fd);
    atomic_fetch_add_explicit(&input->received_bytes, (uint64_t)received, memory_order_relaxed);
    int status = flyt_input_preload(input, bytes, (size_t)received);
    return status ? status : received;
}

/* The first record that comes, within the deadline. 0 or a negative errno. */
static int receive_first(struct greeting *greeting, struct flyt_input_record *ret_record)
{
    struct flyt_input *input = greeting->input;

    for (;;) {
        int status = flyt_input_next(input, ret_record);
        if (status)
            return status < 0 ? status : 0;
        status = flyt_wait_ready(input->fd, POLLIN, greeting->deadline_ms, greeting->cancel_fd);
        if (!status)
            status = greeting->takes_page ? fill_with_descriptor(greeting) : flyt_input_fill(input, false);
        if (status < 0 && status != -EAGAIN)
            return status;
    }
}

static int decode_reply(const struct flyt_input_record *record, flyt_handshake_res *res, struct flyt_error *err)
{
    struct flyt_reply_head head;
    XDR xdrs;

    if (flyt_reply_head_get(record->data, record->bytes, &head))
        return flyt_error_set(err, -EPROTO, "its answer is not that of a Flyt server");
    if (!head.is_accepted || head.status != SUCCESS)
        return flyt_error_set(err, -EPROTO, "%s", flyt_reply_failure(&head));
    flyt_xdr_decode_init(&xdrs, record->data + head.bytes, record->bytes - head.bytes, NULL);
    /* Left-over bytes are fields that a newer server added at the end. */
    if (!xdr_flyt_handshake_res(&xdrs, res))
        return flyt_error_set(err, -EPROTO, "its answer to the handshake could not be decoded");
    return 0;
}

static int status_code(flyt_handshake_status status)
{
    switch (status) {
    case FLYT_HANDSHAKE_OK:
        return 0;
    case FLYT_HANDSHAKE_BASE_DIFFERS:
        return -EPROTO;
    case FLYT_HANDSHAKE_DENIED:
    case FLYT_HANDSHAKE_NO_SESSION:
        return -EACCES;
    case FLYT_HANDSHAKE_BUSY:
        return -EBUSY;
    case FLYT_HANDSHAKE_NO_DEVICE:
        return -ENODEV;
    default:
        return -EPROTO;
    }
}

/* The answer to a call; `status` is that of sending it. 0 and *res filled (xdr_free), or a negative errno with the
 * cause in *err and *res freed. */
static int await_answer(struct greeting *greeting, int status, flyt_handshake_res *res, struct flyt_error *err)
{
    struct flyt_input_record record;

    memset(res, 0, sizeof *res);
    if (!status)
        status = receive_first(greeting, &record);
    if (status == -EPIPE)
        return flyt_error_set(err, -ECONNREFUSED, "it closed the connection instead of answering");
    if (status == -ETIMEDOUT)
        return flyt_error_set(err, status, "it did not answer in time");
    if (status)
        return flyt_error_set(err, status == -EMSGSIZE || status == -EBADMSG ? -EPROTO : status, "%s",
                              status == -EMSGSIZE || status == -EBADMSG ? "its answer is not that of a Flyt server"
                                                                        : strerror(-status));
    status = decode_reply(&record, res, err);
    if (status)
        xdr_free((xdrproc_t)xdr_flyt_handshake_res, res);
    return status;
}

/* One call and its answer. As await_answer. */
static int ask(struct greeting *greeting, flyt_handshake_args *args, unsigned char *ret_hash, flyt_handshake_res *res,
               struct flyt_error *err)
{
    return await_answer(greeting, send_handshake(greeting->output, args, ret_hash), res, err);
}

/*
 * Begins TLS: from here on everything goes through a plain socket in the place of the server's. 0, also where the
 * server answers in clear: then greeting->secure stays NULL.
 */
static int encrypt(struct greeting *greeting, const unsigned char *key, struct flyt_error *err)
{
    struct flyt_input *input = greeting->input;
    int plain_fd;

    if (input->begin != input->end)
        return flyt_error_set(err, -EPROTO, "it sent more than it was asked for");
    int status = flyt_secure_connect(input->fd, key, greeting->deadline_ms, greeting->cancel_fd, err, &greeting->secure,
                                     &plain_fd);
    if (status == -EPROTONOSUPPORT)
        return 0;
    if (status)
        return status == -EPIPE ? flyt_error_set(err, -ECONNREFUSED, "it closed the connection instead of answering")
                                : status;
    input->fd = greeting->output->fd = plain_fd;
    greeting->takes_page = false; /* descriptors do not come through */
    return 0;
}

/* The proof was sent: begins TLS where that is wanted, and waits for the answer. */
static int await_proved(const struct flyt_channel_credentials *credentials, struct greeting *greeting, int status,
                        const unsigned char *key, flyt_handshake_res *res, struct flyt_error *err)
{
    if (!status && credentials->is_encrypted) {
        memset(res, 0, sizeof *res);
        status = encrypt(greeting, key, err);
        if (status)
            return status;
    }
    return await_answer(greeting, status, res, err);
}

/* Answers the challenge in *res: the same handshake with a proof. *res is replaced. As ask. */
static int prove(const struct flyt_channel_credentials *credentials, struct greeting *greeting,
                 flyt_handshake_args *args, const unsigned char *hash, flyt_handshake_res *res, struct flyt_error *err)
{
    unsigned char proof[FLYT_TICKET_KEY_BYTES], key[FLYT_TICKET_KEY_BYTES], second_hash[FLYT_SHA256_BYTES];
    const unsigned char *nonce = (unsigned char *)res->challenge.flyt_late_bytes_val;
    bool can_answer = credentials->data && res->challenge.flyt_late_bytes_len == FLYT_TICKET_NONCE_BYTES;

    if (can_answer) {
        flyt_ticket_proof(credentials->secret, nonce, hash, proof);
        flyt_ticket_channel_key(credentials->secret, nonce, hash, key);
    }
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, res);
    if (!can_answer)
        return flyt_error_set(err, -EACCES, "%s",
                              credentials->data ? "its challenge cannot be answered by this version"
                                                : "it wants credentials, which a client manager gives to programs of "
                                                  "its VM");
    args->proof.flyt_late_bytes_val = (char *)proof;
    args->proof.flyt_late_bytes_len = sizeof proof;
    int status =
        await_proved(credentials, greeting, send_handshake(greeting->output, args, second_hash), key, res, err);
    explicit_bzero(key, sizeof key);
    args->proof.flyt_late_bytes_val = NULL;
    args->proof.flyt_late_bytes_len = 0;
    return status;
}

/* Makes the handshake, with its challenge where there is one. 0 and *res filled (xdr_free), or a negative errno with
 * the cause in *err and *res freed. */
static int make_handshake(const struct flyt_channel *channel, struct greeting *greeting, flyt_handshake_args *args,
                          flyt_handshake_res *res, struct flyt_error *err)
{
    unsigned char hash[FLYT_SHA256_BYTES];

    int status = ask(greeting, args, hash, res, err);
    if (!status && res->status == FLYT_HANDSHAKE_CHALLENGE)
        status = prove(&channel->credentials, greeting, args, hash, res, err);
    if (status)
        return status;
    if (res->status == FLYT_HANDSHAKE_OK && channel->credentials.is_encrypted && !greeting->secure) {
        /* Anybody on the way may have said so. */
        xdr_free((xdrproc_t)xdr_flyt_handshake_res, res);
        return flyt_error_set(err, -EPROTO, "it answered in clear, where the session is to be encrypted");
    }
    if (res->status != FLYT_HANDSHAKE_OK) {
        status = flyt_error_set(err, status_code(res->status), "%.400s",
                                res->message && *res->message ? res->message : "it refused");
        xdr_free((xdrproc_t)xdr_flyt_handshake_res, res);
    }
    return status;
}

static void fill_args(const struct flyt_channel *channel, flyt_connection_kind kind, flyt_handshake_args *args)
{
    *args = (flyt_handshake_args){
        .build = FLYT_BUILD,
        .cuda_version = channel->cuda_version,
        .pid = (u_int)getpid(),
        .program_name = (char *)channel->program_name,
        .kind = kind,
        .token = {.token_len = channel->token_bytes, .token_val = (char *)channel->token},
        .credentials = {.credentials_len = (u_int)channel->credentials.bytes,
                        .credentials_val = (char *)channel->credentials.data},
    };
    memcpy(args->base_hash, flyt_base_hash, sizeof args->base_hash);
}

/* ---- opening ---- */

static bool take_accepted(struct flyt_channel *channel, const flyt_handshake_res *res)
{
    channel->accepted = calloc(flyt_procedure_end, sizeof *channel->accepted);
    if (!channel->accepted)
        return false;
    channel->accepted[FLYT_NULL] = channel->accepted[FLYT_QUERY] = true;
    for (u_int i = 0; i < res->accepted.accepted_len; i++) {
        u_int procedure = res->accepted.accepted_val[i];
        if (procedure >= FLYT_CHANNEL_TABLE_FIRST && procedure < flyt_procedure_end)
            channel->accepted[procedure] = true;
    }
    return true;
}

static int take_answer(struct flyt_channel *channel, const flyt_handshake_res *res, struct flyt_error *err)
{
    unsigned streams_max = strncmp(channel->url, "tcp:", 4) ? UNIX_STREAMS_MAX : TCP_STREAMS_MAX;

    channel->info.session_id = res->session_id;
    channel->info.device_count = res->device_count;
    channel->info.driver_version = res->driver_version;
    snprintf(channel->info.server_build, sizeof channel->info.server_build, "%s", res->build);
    channel->data_stream_count = res->data_streams < streams_max ? res->data_streams : streams_max;
    channel->token_bytes = res->token.token_len;
    if (res->token.token_len)
        memcpy(channel->token, res->token.token_val, res->token.token_len);
    return take_accepted(channel, res) ? 0 : flyt_error_set(err, -ENOMEM, "no memory");
}

/* Where the page is announced and did not come, or is not what it should be, it goes on without. */
static void take_page(struct flyt_channel *channel, const flyt_handshake_res *res, const struct greeting *greeting)
{
    if (!(res->features & FLYT_FEATURE_PROGRESS_PAGE) || !greeting->takes_page)
        return;
    int status = greeting->page_fd < 0 ? -ENODATA : flyt_progress_page_map(greeting->page_fd, &channel->page);
    if (status)
        flyt_debug("no progress page server=%s: %s", channel->url, strerror(-status));
}

static int open_session(struct flyt_channel *channel, const struct flyt_channel_config *config, struct flyt_error *err)
{
    struct greeting greeting = {.output = &channel->output,
                                .input = &channel->input,
                                .deadline_ms = flyt_clock_ms() + channel->connect_timeout_ms,
                                .cancel_fd = -1,
                                .takes_page = is_unix_socket(channel->fd),
                                .page_fd = -1};
    flyt_handshake_args args;
    flyt_handshake_res res;

    fill_args(channel, FLYT_CONNECTION_SESSION, &args);
    args.procedures.procedures_val = (flyt_signature *)(config->signatures ? config->signatures : flyt_signatures);
    args.procedures.procedures_len = config->signatures ? config->signature_count : flyt_signature_count;
    int status = make_handshake(channel, &greeting, &args, &res, err);
    if (!status) {
        status = take_answer(channel, &res, err);
        if (!status)
            take_page(channel, &res, &greeting);
        xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    }
    if (greeting.secure) {
        channel->secure = greeting.secure;
        channel->fd = channel->input.fd;
    }
    flyt_close(greeting.page_fd);
    return status;
}

static void close_descriptors(struct flyt_channel *channel)
{
    flyt_data_close(&channel->data);
    flyt_progress_page_unmap(channel->page);
    channel->page = NULL;
    flyt_close(channel->wake_fd);
    flyt_close(channel->lost_fd);
    flyt_close(channel->fd);
}

static void free_secure(struct flyt_channel *channel)
{
    if (channel->secure)
        flyt_secure_drain(channel->secure, FLYT_CHANNEL_CLOSE_MS);
    channel->secure = flyt_secure_free(channel->secure);
    for (unsigned i = 0; i < FLYT_DATA_STREAMS_MAX; i++)
        channel->data.lanes[i].secure = flyt_secure_free(channel->data.lanes[i].secure);
}

/* Frees a channel that has no threads. */
static void free_channel(struct flyt_channel *channel)
{
    close_descriptors(channel);
    free_secure(channel);
    flyt_data_fini(&channel->data);
    flyt_input_fini(&channel->input);
    flyt_output_fini(&channel->output);
    flyt_kept_fini(&channel->kept);
    pthread_mutex_destroy(&channel->mutex);
    pthread_cond_destroy(&channel->reader_left);
    free(channel->accepted);
    explicit_bzero(channel->credentials.secret, sizeof channel->credentials.secret);
    free((void *)channel->credentials.data);
    free(channel);
}

static bool take_credentials(struct flyt_channel *channel, const struct flyt_channel_credentials *credentials)
{
    if (!credentials)
        return true;
    void *copy = malloc(credentials->bytes ? credentials->bytes : 1);
    if (!copy)
        return false;
    channel->credentials = *credentials;
    channel->credentials.data = memcpy(copy, credentials->data, credentials->bytes);
    return true;
}

static struct flyt_channel *make_channel(const struct flyt_channel_config *config, int fd)
{
    struct flyt_channel *channel = calloc(1, sizeof *channel);

    if (!channel) {
        flyt_close(fd);
        return NULL;
    }
    snprintf(channel->url, sizeof channel->url, "%s", config->url);
    snprintf(channel->program_name, sizeof channel->program_name, "%s", program_invocation_short_name);
    channel->fd = fd;
    channel->handlers = config->handlers;
    channel->user = config->user;
    channel->cuda_version = config->cuda_version;
    channel->connect_timeout_ms = config->connect_timeout_ms ? config->connect_timeout_ms : DEFAULT_TIMEOUT_MS;
    channel->plain_xid = UINT32_MAX;
    channel->first_awaited = UINT64_MAX;
    flyt_kept_init(&channel->kept);
    channel->may_spin = sysconf(_SC_NPROCESSORS_ONLN) >= 4;
    pthread_mutex_init(&channel->mutex, NULL);
    pthread_cond_init(&channel->reader_left, NULL);
    flyt_data_init(&channel->data);
    channel->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    channel->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int status = flyt_input_init(&channel->input, fd, FLYT_RECORD_BYTES_MAX, FLYT_CHANNEL_READ_AHEAD_BYTES,
                                 flyt_channel_split, channel);
    status = status ? status : flyt_output_init(&channel->output, fd);
    if (status || channel->wake_fd < 0 || channel->lost_fd < 0 || !take_credentials(channel, config->credentials)) {
        free_channel(channel);
        return NULL;
    }
    return channel;
}

int flyt_channel_open(const struct flyt_channel_config *config, struct flyt_error *err,
                      struct flyt_channel **ret_channel)
{
    unsigned timeout_ms = config->connect_timeout_ms ? config->connect_timeout_ms : DEFAULT_TIMEOUT_MS;
    struct flyt_error cause = {0};
    int fd;

    int status = flyt_connect(config->url, timeout_ms, err, &fd);
    if (status)
        return status;
    struct flyt_channel *channel = make_channel(config, fd);
    if (!channel)
        return flyt_error_set(err, -ENOMEM, "cannot use the server at %s: no memory", config->url);
    status = open_session(channel, config, &cause);
    if (!status) {
        flyt_channel_keep(channel);
        status = flyt_channel_start_thread(&channel->background, "flyt-receive", flyt_channel_background, channel);
        if (status)
            flyt_error_set(&cause, status, "cannot start a thread: %s", strerror(-status));
    }
    if (status) {
        free_channel(channel);
        return flyt_error_set(err, status, "cannot use the server at %s: %.380s", config->url, cause.text);
    }
    channel->has_background = true;
    *ret_channel = channel;
    return 0;
}

int flyt_channel_connect_data(struct flyt_channel *channel, struct flyt_lane *lane, flyt_input_split_fn split_fn,
                              struct flyt_error *err)
{
    uint64_t deadline_ms = flyt_clock_ms() + channel->connect_timeout_ms;
    flyt_handshake_args args;
    flyt_handshake_res res;

    int status = flyt_socket_beside(flyt_channel_socket(channel));
    if (status < 0)
        return flyt_error_set(err, status, "cannot make a socket: %s", strerror(-status));
    lane->fd = status;
    status = flyt_connect_beside(lane->fd, flyt_channel_socket(channel), deadline_ms, channel->lost_fd);
    if (!status)
        status = flyt_output_init(&lane->output, lane->fd);
    if (status) {
        flyt_error_set(err, status, "cannot connect to %s: %s", channel->url, strerror(-status));
        goto close_fd;
    }
    /* Little ahead: what is read into the buffer of a payload is copied twice. */
    status = flyt_input_init(&lane->input, lane->fd, FLYT_RECORD_BYTES_MAX, 2 * FLYT_INPUT_PEEK_BYTES, split_fn, lane);
    if (status)
        goto fini_output;
    fill_args(channel, FLYT_CONNECTION_DATA, &args);
    struct greeting greeting = {.output = &lane->output,
                                .input = &lane->input,
                                .deadline_ms = deadline_ms,
                                .cancel_fd = channel->lost_fd,
                                .page_fd = -1};
    status = make_handshake(channel, &greeting, &args, &res, err);
    if (greeting.secure) {
        lane->secure = greeting.secure;
        lane->fd = lane->input.fd;
    }
    if (status)
        goto fini_input;
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    return 0;

fini_input:
    flyt_input_fini(&lane->input);
fini_output:
    flyt_output_fini(&lane->output);
close_fd:;
    int fd = lane->fd;
    lane->fd = -1; /* first: a child that is forked in between must not close what has this number then */
    flyt_close(fd);
    lane->secure = flyt_secure_free(lane->secure);
    return status;
}

/* ---- closing ---- */

struct flyt_channel *flyt_channel_close(struct flyt_channel *channel)
{
    struct timeval limit = {.tv_sec = FLYT_CHANNEL_CLOSE_MS / 1000};

    if (!channel)
        return NULL;
    pthread_mutex_lock(&channel->mutex);
    channel->is_closing = true; /* what fails from here on is no news */
    pthread_mutex_unlock(&channel->mutex);
    if (!flyt_channel_is_lost(channel)) {
        setsockopt(channel->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        flyt_channel_flush(channel);
    }
    flyt_channel_lose(channel, "closed");
    if (channel->has_background)
        pthread_join(channel->background, NULL);
    flyt_data_join(channel);
    /* All of them have been woken and are on their way out. */
    while (atomic_load_explicit(&channel->user_count, memory_order_acquire))
        usleep(100);
    free_channel(channel);
    return NULL;
}

void flyt_channel_abandon(struct flyt_channel *channel)
{
    if (!channel)
        return;
    flyt_secure_abandon(channel->secure);
    for (unsigned i = 0; i < FLYT_DATA_STREAMS_MAX; i++)
        flyt_secure_abandon(channel->data.lanes[i].secure);
    close_descriptors(channel);
}
