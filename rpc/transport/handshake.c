#include "rpc/transport/handshake.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include "flyt_signatures.h"
#include "rpc/base/sha256.h"
#include "rpc/transport/input.h"
#include "rpc/transport/message.h"

enum { MARK_BYTES = 4 };

/* ---- the call ---- */

/* The record without its marks, in *input, which is to be ended (flyt_input_fini) where this succeeds. */
static int unmark(const void *record, size_t bytes, struct flyt_input *input, struct flyt_input_record *ret_whole)
{
    int status = flyt_input_init(input, NULL, FLYT_HANDSHAKE_BYTES_MAX, 0, NULL, NULL);

    if (status)
        return status;
    status = flyt_input_preload(input, record, bytes);
    if (!status)
        status = flyt_input_next(input, ret_whole) == 1 ? 0 : -EBADMSG;
    if (status)
        flyt_input_fini(input);
    return status;
}

int flyt_handshake_hash(const void *record, size_t bytes, unsigned char *ret_hash)
{
    struct flyt_input_record whole;
    struct flyt_input input;
    int status = unmark(record, bytes, &input, &whole);

    if (status)
        return status;
    flyt_sha256_of(whole.data, whole.bytes, ret_hash);
    flyt_input_fini(&input);
    return 0;
}

int flyt_handshake_decode(const void *record, size_t bytes, uint32_t *ret_xid, flyt_handshake_args *ret_args)
{
    struct flyt_input_record whole;
    struct flyt_call_head head;
    struct flyt_input input;
    flyt_handshake_args args = {0};
    XDR xdrs;

    int status = unmark(record, bytes, &input, &whole);
    if (status)
        return status;
    status = flyt_call_head_get(whole.data, whole.bytes, &head);
    if (!status && (head.rpc_version != RPC_MSG_VERSION || head.program != FLYT_PROGRAM ||
                    head.version != FLYT_VERSION || head.procedure != FLYT_HANDSHAKE))
        status = -EBADMSG;
    if (!status) {
        /* What follows the fields that we know comes from a newer client and is ignored. */
        flyt_xdr_decode_init(&xdrs, whole.data + head.bytes, whole.bytes - head.bytes, NULL);
        if (xdr_flyt_handshake_args(&xdrs, &args)) {
            *ret_args = args;
            *ret_xid = head.xid;
        } else {
            xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
            status = -EBADMSG;
        }
    }
    flyt_input_fini(&input);
    return status;
}

static bool put_args(const flyt_handshake_args *args, struct flyt_bytes *bytes)
{
    flyt_handshake_args without_proof = *args;
    XDR xdrs;

    without_proof.proof = (flyt_late_bytes){0};
    *bytes = (struct flyt_bytes){.bytes_max = FLYT_HANDSHAKE_BYTES_MAX + 4};
    flyt_xdr_encode_init(&xdrs, bytes);
    return xdr_flyt_handshake_args(&xdrs, &without_proof);
}

bool flyt_handshake_is_same(const flyt_handshake_args *first, const flyt_handshake_args *second)
{
    struct flyt_bytes one, other;
    bool is_put = put_args(first, &one);

    is_put = put_args(second, &other) && is_put;
    bool is_same = is_put && one.used == other.used && !memcmp(one.data, other.data, one.used);
    flyt_bytes_fini(&one);
    flyt_bytes_fini(&other);
    return is_same;
}

int flyt_handshake_check(const flyt_handshake_args *args, const char *own_build, struct flyt_error *err)
{
    if (!memcmp(args->base_hash, flyt_base_hash, FLYT_HASH_BYTES))
        return 0;
    return flyt_error_set(err, -EPROTO,
                          "client (build %.64s) and server (build %.64s) have different base protocols: "
                          "upgrade the older of the two",
                          args->build, own_build);
}

/* ---- signatures ---- */

static int compare(const void *left, const void *right)
{
    const flyt_signature *a = left, *b = right;

    return a->procedure < b->procedure ? -1 : a->procedure > b->procedure;
}

unsigned flyt_handshake_accept(const flyt_handshake_args *args, const flyt_signature *signatures, unsigned count,
                               u_int *ret_accepted)
{
    unsigned accepted_count = 0;

    for (unsigned i = 0; i < args->procedures.procedures_len; i++) {
        const flyt_signature *theirs = &args->procedures.procedures_val[i];
        const flyt_signature *ours = bsearch(theirs, signatures, count, sizeof *signatures, compare);
        if (ours && ours->signature == theirs->signature)
            ret_accepted[accepted_count++] = theirs->procedure;
    }
    return accepted_count;
}

void flyt_handshake_hash_rows(const flyt_signature *signatures, unsigned count, unsigned char *ret_hash)
{
    struct flyt_sha256 hash;

    flyt_sha256_init(&hash);
    for (unsigned i = 0; i < count; i++) {
        uint64_t signature = signatures[i].signature;
        const uint32_t words[] = {htonl(signatures[i].procedure), htonl((uint32_t)(signature >> 32)),
                                  htonl((uint32_t)signature)};
        flyt_sha256_add(&hash, words, sizeof words);
    }
    flyt_sha256_end(&hash, ret_hash);
}

int flyt_handshake_answer_rows(const flyt_handshake_args *args, const flyt_signature *signatures, unsigned count,
                               flyt_handshake_res *res)
{
    unsigned char hash[FLYT_HASH_BYTES];

    if (args->rows.flyt_late_bytes_len != FLYT_HASH_BYTES) {
        res->accepted.accepted_val = calloc(args->procedures.procedures_len + 1, sizeof *res->accepted.accepted_val);
        if (!res->accepted.accepted_val)
            return -ENOMEM;
        res->accepted.accepted_len = flyt_handshake_accept(args, signatures, count, res->accepted.accepted_val);
        return 0;
    }
    flyt_handshake_hash_rows(signatures, count, hash);
    if (memcmp(hash, args->rows.flyt_late_bytes_val, sizeof hash)) {
        res->status = FLYT_HANDSHAKE_ROWS;
        return 0;
    }
    res->rows.flyt_late_bytes_val = malloc(sizeof hash);
    if (!res->rows.flyt_late_bytes_val)
        return -ENOMEM;
    memcpy(res->rows.flyt_late_bytes_val, hash, sizeof hash);
    res->rows.flyt_late_bytes_len = sizeof hash;
    return 0;
}

bool flyt_handshake_accepts(const flyt_handshake_res *res, unsigned procedure)
{
    for (u_int i = 0; i < res->accepted.accepted_len; i++)
        if (res->accepted.accepted_val[i] == procedure)
            return true;
    return res->rows.flyt_late_bytes_len > 0;
}

/* ---- grants ---- */

uint64_t flyt_handshake_number(const flyt_late_bytes *field)
{
    uint64_t number = 0;

    if (field->flyt_late_bytes_len != FLYT_LATE_NUMBER_BYTES)
        return 0;
    memcpy(&number, field->flyt_late_bytes_val, sizeof number);
    return be64toh(number);
}

flyt_late_bytes flyt_handshake_put_number(uint64_t number, char *ret_place)
{
    number = htobe64(number);
    memcpy(ret_place, &number, sizeof number);
    return (flyt_late_bytes){.flyt_late_bytes_len = FLYT_LATE_NUMBER_BYTES, .flyt_late_bytes_val = ret_place};
}

uint64_t flyt_handshake_answer_window(const flyt_handshake_args *args, uint64_t window_bytes, flyt_handshake_res *res)
{
    char *place;

    if (!(flyt_handshake_number(&args->features) & FLYT_CLIENT_HEEDS_GRANTS) ||
        !(place = malloc(FLYT_LATE_NUMBER_BYTES)))
        return 0;
    res->window = flyt_handshake_put_number(window_bytes, place);
    return window_bytes;
}

/* ---- data streams ---- */

unsigned flyt_handshake_data_streams(void)
{
    enum { FEW = 4, MANY = FLYT_DATA_STREAMS_MAX, CPUS_FOR_MANY = 2 * MANY };

    return sysconf(_SC_NPROCESSORS_ONLN) >= CPUS_FOR_MANY ? MANY : FEW;
}

/* ---- the reply ---- */

int flyt_handshake_encode_reply(uint32_t xid, flyt_handshake_res *res, void **ret_record, size_t *ret_bytes)
{
    struct flyt_bytes bytes = {.bytes_max = FLYT_HANDSHAKE_BYTES_MAX};
    XDR xdrs;

    if (!flyt_bytes_reserve(&bytes, MARK_BYTES))
        return -ENOMEM;
    bytes.used = MARK_BYTES;
    flyt_xdr_encode_init(&xdrs, &bytes);
    if (!flyt_reply_head_put(&xdrs, xid) || !xdr_flyt_handshake_res(&xdrs, res)) {
        flyt_bytes_fini(&bytes);
        return -EINVAL;
    }
    uint32_t mark = htonl(0x80000000u | (uint32_t)(bytes.used - MARK_BYTES));
    memcpy(bytes.data, &mark, sizeof mark);
    *ret_record = bytes.data;
    *ret_bytes = bytes.used;
    return 0;
}

static int send_reply(int fd, uint32_t xid, flyt_handshake_res *res)
{
    void *record;
    size_t bytes;

    int code = flyt_handshake_encode_reply(xid, res, &record, &bytes);
    if (code)
        return code;
    ssize_t sent = send(fd, record, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    code = sent == (ssize_t)bytes ? 0 : sent < 0 ? -errno : -EAGAIN;
    free(record);
    return code;
}

int flyt_handshake_challenge(int fd, uint32_t xid, const unsigned char *challenge)
{
    char bytes[FLYT_CHALLENGE_BYTES];
    flyt_handshake_res res = {.status = FLYT_HANDSHAKE_CHALLENGE, .message = (char *)"", .build = (char *)""};

    memcpy(bytes, challenge, sizeof bytes);
    res.challenge.flyt_late_bytes_val = bytes;
    res.challenge.flyt_late_bytes_len = sizeof bytes;
    return send_reply(fd, xid, &res);
}

int flyt_handshake_refuse(int fd, uint32_t xid, flyt_handshake_status status, const char *sentence)
{
    char message[FLYT_STRING_BYTES_MAX + 1] = "";
    flyt_handshake_res res = {.status = status, .message = message, .build = (char *)""};

    strncat(message, sentence, sizeof message - 1);
    return send_reply(fd, xid, &res);
}
