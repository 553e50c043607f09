#include "rpc/transport/channel_state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "flyt_signatures.h"
#include "rpc/base/build_name.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/sha256.h"

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

/*
 * Reads once, and takes the descriptors that came with the bytes: they travel with the first
 * byte of the record that they belong to, and a read that does not ask for them throws them away, as every later one
 * does. Bytes read or a negative errno.
 */
static int fill_with_descriptors(struct flyt_greeting *greeting)
{
    struct flyt_input *input = greeting->input;
    char bytes[4096];
    int fds[FLYT_DESCRIPTORS_MAX];
    unsigned count = 0;
    int received = input->endpoint->ops->receive_descriptors(input->endpoint, bytes, sizeof bytes, fds,
                                                             FLYT_DESCRIPTORS_MAX, &count);

    if (received <= 0)
        return received == -ECONNRESET || !received ? -EPIPE : received;
    greeting->is_odd = greeting->is_odd || count > FLYT_GREETING_FDS_MAX || (count && greeting->fds[0] >= 0);
    for (unsigned i = 0; i < count; i++) {
        if (greeting->is_odd)
            flyt_close(fds[i]);
        else
            greeting->fds[i] = fds[i];
    }
    for (unsigned i = 0; i < FLYT_GREETING_FDS_MAX && greeting->is_odd; i++)
        greeting->fds[i] = flyt_close(greeting->fds[i]);
    atomic_fetch_add_explicit(&input->received_bytes, (uint64_t)received, memory_order_relaxed);
    int status = flyt_input_preload(input, bytes, (size_t)received);
    return status ? status : received;
}

/* The first record that comes, within the deadline. 0 or a negative errno. */
static int receive_first(struct flyt_greeting *greeting, struct flyt_input_record *ret_record)
{
    struct flyt_input *input = greeting->input;

    for (;;) {
        int status = flyt_input_next(input, ret_record);
        if (status)
            return status < 0 ? status : 0;
        status = flyt_endpoint_await(input->endpoint, FLYT_ENDPOINT_IN, greeting->cancel_fd, greeting->deadline_ms);
        if (!status)
            status = greeting->takes_fds ? fill_with_descriptors(greeting) : flyt_input_fill(input, false);
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
        return -EACCES;
    case FLYT_HANDSHAKE_NO_SESSION:
        return -ESTALE;
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
static int await_answer(struct flyt_greeting *greeting, int status, flyt_handshake_res *res, struct flyt_error *err)
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
static int ask(struct flyt_greeting *greeting, flyt_handshake_args *args, unsigned char *ret_hash,
               flyt_handshake_res *res, struct flyt_error *err)
{
    return await_answer(greeting, send_handshake(greeting->output, args, ret_hash), res, err);
}

/* Begins TLS. 0, also where the server answers in clear: then it is not encrypted. */
static int encrypt(struct flyt_greeting *greeting, const unsigned char *key, struct flyt_error *err)
{
    struct flyt_input *input = greeting->input;

    if (input->begin != input->end)
        return flyt_error_set(err, -EPROTO, "it sent more than it was asked for");
    int status = flyt_endpoint_encrypt(*greeting->endpoint, key, greeting->deadline_ms, greeting->cancel_fd, err,
                                       greeting->endpoint);
    if (status == -EPROTONOSUPPORT)
        return 0;
    if (status)
        return status == -EPIPE ? flyt_error_set(err, -ECONNREFUSED, "it closed the connection instead of answering")
                                : status;
    input->endpoint = greeting->output->endpoint = *greeting->endpoint;
    greeting->is_encrypted = true;
    greeting->takes_fds = false; /* descriptors do not come through */
    return 0;
}

/* The proof was sent: begins TLS where that is wanted, and waits for the answer. */
static int await_proved(const struct flyt_channel_credentials *credentials, struct flyt_greeting *greeting, int status,
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
static int prove(const struct flyt_channel_credentials *credentials, struct flyt_greeting *greeting,
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

/* The server has other rows: the same handshake with the list of ours. *res is replaced. As ask. */
static int name_rows(const struct flyt_channel *channel, struct flyt_greeting *greeting, flyt_handshake_args *args,
                     flyt_handshake_res *res, struct flyt_error *err)
{
    unsigned char hash[FLYT_SHA256_BYTES];

    xdr_free((xdrproc_t)xdr_flyt_handshake_res, res);
    args->rows = (flyt_late_bytes){0};
    args->procedures.procedures_val = (flyt_signature *)channel->signatures;
    args->procedures.procedures_len = channel->signature_count;
    return ask(greeting, args, hash, res, err);
}

int flyt_channel_greet(const struct flyt_channel *channel, struct flyt_greeting *greeting, flyt_handshake_args *args,
                       flyt_handshake_res *res, struct flyt_error *err)
{
    unsigned char hash[FLYT_SHA256_BYTES];

    int status = ask(greeting, args, hash, res, err);
    if (!status && res->status == FLYT_HANDSHAKE_CHALLENGE)
        status = prove(&channel->credentials, greeting, args, hash, res, err);
    if (!status && res->status == FLYT_HANDSHAKE_ROWS && args->rows.flyt_late_bytes_len)
        status = name_rows(channel, greeting, args, res, err);
    if (status)
        return status;
    if (res->status == FLYT_HANDSHAKE_OK && channel->credentials.is_encrypted && !greeting->is_encrypted) {
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

void flyt_channel_fill_handshake(const struct flyt_channel *channel, flyt_connection_kind kind,
                                 flyt_handshake_args *args)
{
    *args = (flyt_handshake_args){
        .build = (char *)flyt_build_name,
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
