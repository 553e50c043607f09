#include "rpc/transport/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <rpc/rpc.h>
#include "flyt_procedures.h"
#include "flyt_signatures.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/input.h"
#include "rpc/transport/message.h"
#include "rpc/transport/output.h"

enum {
    READ_AHEAD_BYTES = 64 * 1024,
    COPIED_PAYLOAD_BYTES_MAX = 4096, /* below, copying is cheaper than another entry in the writev */
    FLUSH_BYTES = 32 * 1024          /* "much is waiting" */
};

/* The call that is being dispatched. */
struct current_call {
    const unsigned char *data;
    size_t bytes;
    struct flyt_call_head head;
    bool is_garbage;  /* its arguments did not decode */
    bool is_in_place; /* they point into data */
};

struct flyt_connection {
    SVCXPRT xprt;
    struct flyt_connection_config config;
    struct flyt_input input;
    struct flyt_output output;
    struct current_call current;
    /* The chunk whose payload is being read. */
    struct flyt_chunk_head chunk;
    _Atomic(struct flyt_endpoint *) endpoint; /* rings take a socket's place while another thread asks for it */
};

/* ---- the RPC library's operations ---- */

/* The dispatch has zeroed *args. It does not free what was decoded before a failure: that is done here. */
static bool_t svc_op_getargs(SVCXPRT *xprt, xdrproc_t xdr_args, void *args)
{
    struct flyt_connection *connection = xprt->xp_p1;
    struct current_call *current = &connection->current;
    const struct flyt_call_head *head = &current->head;
    const struct flyt_procedure *known = head->program == FLYT_PROGRAM ? flyt_procedure_find(head->procedure) : NULL;
    const unsigned char *data = current->data + head->bytes;
    size_t bytes = current->bytes - head->bytes;
    XDR xdrs;

    if (known && known->decode_in_place && known->decode_in_place(data, bytes, args)) {
        current->is_in_place = true;
        return TRUE;
    }
    flyt_xdr_decode_init(&xdrs, data, bytes, NULL);
    bool is_good = xdr_args(&xdrs, args);
    /* The handshake is the one call that grows at its end; elsewhere left-over bytes mean another layout. */
    if (is_good && flyt_xdr_left(&xdrs) && head->procedure != FLYT_HANDSHAKE)
        is_good = false;
    if (is_good)
        return TRUE;
    xdr_free(xdr_args, args);
    current->is_garbage = true;
    return FALSE;
}

/* Always TRUE: rpcgen's dispatch ends the process otherwise. */
static bool_t svc_op_freeargs(SVCXPRT *xprt, xdrproc_t xdr_args, void *args)
{
    const struct flyt_connection *connection = xprt->xp_p1;

    if (!connection->current.is_in_place)
        xdr_free(xdr_args, args);
    return TRUE;
}

/* Writes out where much has come together; the rest waits for more, or for flyt_connection_flush. */
static int flush_if_much_locked(struct flyt_output *output)
{
    return output->fill.used >= FLUSH_BYTES ? flyt_output_flush_locked(output, true) : output->status;
}

static bool_t svc_op_reply(SVCXPRT *xprt, struct rpc_msg *message)
{
    struct flyt_connection *connection = xprt->xp_p1;
    bool is_sent = false;
    XDR xdrs;

    message->rm_xid = connection->current.head.xid;
    message->rm_direction = REPLY;
    flyt_output_lock(&connection->output);
    if (!flyt_output_begin_locked(&connection->output, true, &xdrs)) {
        is_sent = xdr_replymsg(&xdrs, message);
        if (is_sent) {
            flyt_output_end_locked(&connection->output);
            flush_if_much_locked(&connection->output);
        } else {
            flyt_output_cancel_locked(&connection->output);
        }
    }
    flyt_output_unlock(&connection->output);
    return is_sent;
}

static bool_t svc_op_recv(SVCXPRT *xprt, struct rpc_msg *message)
{
    return FALSE; /* records come through flyt_connection_receive */
}

static enum xprt_stat svc_op_stat(SVCXPRT *xprt)
{
    return XPRT_IDLE;
}

static void svc_op_destroy(SVCXPRT *xprt)
{
    /* Its owner frees the connection. */
}

static bool_t svc_op_control(SVCXPRT *xprt, const u_int request, void *info)
{
    return FALSE;
}

static const struct xp_ops operations = {
    .xp_recv = svc_op_recv,
    .xp_stat = svc_op_stat,
    .xp_getargs = svc_op_getargs,
    .xp_reply = svc_op_reply,
    .xp_freeargs = svc_op_freeargs,
    .xp_destroy = svc_op_destroy,
};

static const struct xp_ops2 further_operations = {.xp_control = svc_op_control};

/* ---- life ---- */

/* flyt_input_split_fn: a chunk's payload goes to where the consumer wants it. */
static bool split_chunk(void *user, const unsigned char *head, size_t head_bytes, size_t record_bytes,
                        struct flyt_input_split *ret_split)
{
    struct flyt_connection *connection = user;
    struct flyt_chunk_head *chunk = &connection->chunk;

    if (!connection->config.chunk_place ||
        !flyt_chunk_head_get(head, head_bytes, record_bytes, connection->config.program, FLYT_CHUNK, chunk))
        return false;
    *ret_split = (struct flyt_input_split){
        .head_bytes = FLYT_CHUNK_HEAD_BYTES,
        .payload_bytes = chunk->bytes,
        .place = connection->config.chunk_place(connection->config.user, chunk->transfer_id, chunk->offset_bytes,
                                                chunk->bytes),
    };
    return true;
}

int flyt_connection_new(struct flyt_endpoint *endpoint, const struct flyt_connection_config *config,
                        struct flyt_connection **ret_connection)
{
    struct flyt_connection *connection = calloc(1, sizeof *connection);

    if (!connection)
        goto close_endpoint;
    connection->endpoint = endpoint;
    connection->config = *config;
    connection->xprt.xp_fd = flyt_endpoint_fd(endpoint);
    connection->xprt.xp_ops = &operations;
    connection->xprt.xp_ops2 = &further_operations;
    connection->xprt.xp_p1 = connection;
    if (flyt_input_init(&connection->input, endpoint, config->record_bytes_max, READ_AHEAD_BYTES, split_chunk,
                        connection))
        goto free_connection;
    if (flyt_output_init(&connection->output, endpoint))
        goto fini_input;
    *ret_connection = connection;
    return 0;

fini_input:
    flyt_input_fini(&connection->input);
free_connection:
    free(connection);
close_endpoint:
    flyt_endpoint_close(endpoint);
    return -ENOMEM;
}

struct flyt_connection *flyt_connection_free(struct flyt_connection *connection)
{
    if (!connection)
        return NULL;
    flyt_output_fini(&connection->output);
    flyt_input_fini(&connection->input);
    flyt_endpoint_close(connection->endpoint);
    free(connection);
    return NULL;
}

struct flyt_endpoint *flyt_connection_endpoint(const struct flyt_connection *connection)
{
    return connection->endpoint;
}

void *flyt_connection_user(SVCXPRT *xprt)
{
    const struct flyt_connection *connection = xprt->xp_p1;

    return connection->config.user;
}

struct flyt_connection *flyt_connection_of(SVCXPRT *xprt)
{
    return xprt->xp_p1;
}

int flyt_connection_preload(struct flyt_connection *connection, const void *data, size_t bytes)
{
    return flyt_input_preload(&connection->input, data, bytes);
}

bool flyt_connection_has_record(const struct flyt_connection *connection)
{
    return flyt_input_has_record(&connection->input);
}

/* ---- dispatching ---- */

/* What is wrong with a call before it reaches the dispatch; *ret_error is sent by the caller. */
static bool find_call_error(struct flyt_connection *connection, const struct flyt_call_head *head,
                            struct rpc_msg *ret_error)
{
    struct rpc_msg error = {.rm_direction = REPLY};
    uint32_t version = connection->config.version;

    if (head->rpc_version != RPC_MSG_VERSION) {
        error.rm_reply.rp_stat = MSG_DENIED;
        error.rjcted_rply.rj_stat = RPC_MISMATCH;
        error.rjcted_rply.rj_vers.low = error.rjcted_rply.rj_vers.high = RPC_MSG_VERSION;
    } else if (head->program != connection->config.program) {
        error.acpted_rply.ar_stat = PROG_UNAVAIL;
    } else if (head->version != version) {
        error.acpted_rply.ar_stat = PROG_MISMATCH;
        error.acpted_rply.ar_vers.low = error.acpted_rply.ar_vers.high = version;
    } else if (head->credential_flavor != AUTH_NONE && head->credential_flavor != AUTH_SYS) {
        error.rm_reply.rp_stat = MSG_DENIED;
        error.rjcted_rply.rj_stat = AUTH_ERROR;
        error.rjcted_rply.rj_why = AUTH_REJECTEDCRED;
    } else {
        return false;
    }
    *ret_error = error;
    return true;
}

/* Returns whether the arguments were garbage. Calls may nest: a dispatch may lead to that of a kept record. */
static bool dispatch(struct flyt_connection *connection, const unsigned char *data, size_t bytes,
                     const struct flyt_call_head *head)
{
    struct current_call outer = connection->current;
    struct rpc_msg error;

    connection->current = (struct current_call){.data = data, .bytes = bytes, .head = *head};
    if (find_call_error(connection, head, &error)) {
        svc_op_reply(&connection->xprt, &error);
    } else {
        struct svc_req request = {
            .rq_prog = head->program,
            .rq_vers = head->version,
            .rq_proc = head->procedure,
            .rq_cred = {.oa_flavor = (enum_t)head->credential_flavor},
            .rq_xprt = &connection->xprt,
        };
        connection->config.dispatch(&request, &connection->xprt);
    }
    bool is_garbage = connection->current.is_garbage;
    connection->current = outer;
    return is_garbage;
}

/* A chunk that could not be cut, from a client that fragments its records or sends credentials. */
static int take_whole_chunk(struct flyt_connection *connection, const struct flyt_input_record *record,
                            const struct flyt_call_head *head, struct flyt_error *err)
{
    flyt_chunk chunk = {0};
    XDR xdrs;

    flyt_xdr_decode_init(&xdrs, record->data + head->bytes, record->bytes - head->bytes, NULL);
    bool is_good = xdr_flyt_chunk(&xdrs, &chunk) && !flyt_xdr_left(&xdrs);
    if (is_good) {
        void *place = connection->config.chunk_place(connection->config.user, chunk.transfer_id, chunk.offset_bytes,
                                                     chunk.data.data_len);
        if (place && chunk.data.data_len)
            memcpy(place, chunk.data.data_val, chunk.data.data_len);
        connection->config.chunk_done(connection->config.user, chunk.transfer_id, chunk.offset_bytes,
                                      chunk.data.data_len);
    }
    xdr_free((xdrproc_t)xdr_flyt_chunk, &chunk);
    return is_good ? 0 : flyt_error_set(err, -EBADMSG, "a chunk of data could not be decoded");
}

static int take_record(struct flyt_connection *connection, const struct flyt_input_record *record,
                       struct flyt_error *err)
{
    const struct flyt_chunk_head *chunk = &connection->chunk;
    struct flyt_call_head head;

    if (record->is_split) {
        connection->config.chunk_done(connection->config.user, chunk->transfer_id, chunk->offset_bytes, chunk->bytes);
        return 0;
    }
    if (flyt_call_head_get(record->data, record->bytes, &head))
        return flyt_error_set(err, -EBADMSG, "a message of %zu bytes is no RPC call", record->bytes);
    bool is_chunk = head.rpc_version == RPC_MSG_VERSION && head.program == connection->config.program &&
                    head.version == connection->config.version && head.procedure == FLYT_CHUNK;
    if (is_chunk && !connection->config.chunk_place)
        return flyt_error_set(err, -EBADMSG, "a chunk of data came where none is expected");
    if (is_chunk)
        return take_whole_chunk(connection, record, &head, err);
    if (!dispatch(connection, record->data, record->bytes, &head))
        return 0;
    flyt_connection_flush(connection); /* tells the peer what was wrong before its connection ends */
    return flyt_error_set(err, -EBADMSG, "the arguments of %s (procedure %u) could not be decoded",
                          flyt_procedure_name(head.procedure), head.procedure);
}

/* Takes at most count_max records that are in memory (0: all). Returns how many, or a negative errno. */
static int take_records(struct flyt_connection *connection, unsigned count_max, struct flyt_error *err)
{
    struct flyt_input_record record;
    unsigned count = 0;

    while (!count_max || count < count_max) {
        int status = flyt_input_next(&connection->input, &record);
        if (status == -EMSGSIZE)
            return flyt_error_set(err, status, "a message is longer than %zu bytes",
                                  connection->config.record_bytes_max);
        if (status < 0)
            return flyt_error_set(err, status, "a message is malformed");
        if (!status)
            break;
        status = take_record(connection, &record, err);
        if (status)
            return status;
        count++;
    }
    return (int)count;
}

bool flyt_connection_has_part(const struct flyt_connection *connection)
{
    return flyt_input_has_part(&connection->input);
}

int flyt_connection_receive(struct flyt_connection *connection, bool may_wait, unsigned record_count_max,
                            struct flyt_error *err)
{
    int count = take_records(connection, record_count_max, err);

    if (count)
        return count;
    int received = flyt_input_fill(&connection->input, may_wait);
    if (received == -EAGAIN)
        return -EAGAIN;
    if (received == -EPIPE)
        return flyt_error_set(err, -EPIPE, "the peer closed the connection");
    if (received < 0)
        return flyt_error_set(err, received, "receiving failed: %s", strerror(-received));
    return take_records(connection, record_count_max, err);
}

struct flyt_record *flyt_connection_record(struct flyt_connection *connection)
{
    const struct current_call *current = &connection->current;
    struct flyt_record *record = malloc(sizeof *record + current->bytes);

    if (!record)
        return NULL;
    record->xid = current->head.xid;
    record->procedure = current->head.procedure;
    record->bytes = current->bytes;
    memcpy(record->data, current->data, current->bytes);
    return record;
}

void flyt_connection_dispatch(struct flyt_connection *connection, const struct flyt_record *record)
{
    struct flyt_call_head head;

    if (!flyt_call_head_get(record->data, record->bytes, &head))
        dispatch(connection, record->data, record->bytes, &head);
}

uint32_t flyt_connection_xid(const struct flyt_connection *connection)
{
    return connection->current.head.xid;
}

/* ---- sending ---- */

static int as_pipe_status(int status)
{
    return status ? -EPIPE : 0;
}

/* Encodes a reply whose payload's length, the last word, is set to data_bytes. False: it cannot be encoded. */
static bool encode_reply_locked(struct flyt_output *output, XDR *xdrs, uint32_t xid, xdrproc_t xdr_res, void *res,
                                bool has_data, size_t data_bytes)
{
    uint32_t length;

    if (!flyt_reply_head_put(xdrs, xid) || !xdr_res(xdrs, res))
        return false;
    if (!has_data)
        return true;
    unsigned char *last = output->fill.data + output->fill.used - sizeof length;
    memcpy(&length, last, sizeof length);
    if (length || data_bytes > FLYT_CHUNK_BYTES_MAX)
        return false;
    length = htonl((uint32_t)data_bytes);
    memcpy(last, &length, sizeof length);
    return true;
}

/* The reply that says that there is none: the peer must not wait for ever. */
static int reply_failed_locked(struct flyt_output *output, uint32_t xid)
{
    struct rpc_msg error = {.rm_xid = xid, .rm_direction = REPLY};
    XDR xdrs;

    error.acpted_rply.ar_stat = SYSTEM_ERR;
    int status = flyt_output_begin_locked(output, true, &xdrs);
    if (!status && xdr_replymsg(&xdrs, &error))
        flyt_output_end_locked(output);
    return status;
}

static int reply_locked(struct flyt_output *output, uint32_t xid, xdrproc_t xdr_res, void *res, const void *data,
                        size_t data_bytes)
{
    XDR xdrs;
    int status = flyt_output_begin_locked(output, true, &xdrs);

    if (status)
        return status;
    if (!encode_reply_locked(output, &xdrs, xid, xdr_res, res, data, data_bytes) ||
        (data && !xdr_opaque(&xdrs, (char *)data, (u_int)data_bytes))) {
        flyt_output_cancel_locked(output);
        return reply_failed_locked(output, xid);
    }
    flyt_output_end_locked(output);
    return flush_if_much_locked(output);
}

static int reply_with_payload_locked(struct flyt_output *output, uint32_t xid, xdrproc_t xdr_res, void *res,
                                     const void *data, size_t data_bytes)
{
    XDR xdrs;
    int status = flyt_output_take_writer_locked(output);

    if (status)
        return status;
    status = flyt_output_begin_locked(output, false, &xdrs);
    if (!status && encode_reply_locked(output, &xdrs, xid, xdr_res, res, true, data_bytes))
        return flyt_output_write_payload_locked(output, data, data_bytes);
    if (!status)
        flyt_output_cancel_locked(output);
    flyt_output_leave_writer_locked(output);
    return status ? status : reply_failed_locked(output, xid);
}

int flyt_connection_reply(struct flyt_connection *connection, uint32_t xid, xdrproc_t xdr_res, void *res,
                          const void *data, size_t data_bytes)
{
    struct flyt_output *output = &connection->output;
    int status;

    flyt_output_lock(output);
    if (data && data_bytes > COPIED_PAYLOAD_BYTES_MAX)
        status = reply_with_payload_locked(output, xid, xdr_res, res, data, data_bytes);
    else
        status = reply_locked(output, xid, xdr_res, res, data, data_bytes);
    flyt_output_unlock(output);
    return as_pipe_status(status);
}

static int send_with(struct flyt_endpoint *endpoint, const void *record, size_t bytes, const int *fds,
                     unsigned fd_count)
{
    if (flyt_endpoint_passes_descriptors(endpoint))
        return endpoint->ops->send_descriptors(endpoint, record, bytes, fds, fd_count);
    return flyt_endpoint_write_all(endpoint, record, bytes);
}

int flyt_connection_reply_handshake(struct flyt_connection *connection, uint32_t xid, flyt_handshake_res *res,
                                    const int *fds, unsigned fd_count)
{
    struct flyt_output *output = &connection->output;
    void *record;
    size_t bytes;
    int status = flyt_handshake_encode_reply(xid, res, &record, &bytes);

    if (status)
        return status;
    flyt_output_lock(output);
    status = flyt_output_flush_locked(output, true);
    if (!status)
        status = flyt_output_take_writer_locked(output);
    if (!status) {
        flyt_output_unlock(output);
        status = send_with(connection->endpoint, record, bytes, fds, fd_count);
        flyt_output_lock(output);
        flyt_output_leave_writer_locked(output);
    }
    flyt_output_unlock(output);
    free(record);
    return as_pipe_status(status);
}

int flyt_connection_call_back(struct flyt_connection *connection, unsigned procedure, xdrproc_t xdr_args, void *args)
{
    struct flyt_output *output = &connection->output;
    XDR xdrs;

    flyt_output_lock(output);
    int status = flyt_output_begin_locked(output, true, &xdrs);
    if (!status) {
        if (flyt_call_head_put(&xdrs, 0, FLYT_BACK_PROGRAM, FLYT_BACK_VERSION, procedure) && xdr_args(&xdrs, args)) {
            flyt_output_end_locked(output);
            status = flush_if_much_locked(output);
        } else {
            flyt_output_cancel_locked(output);
            status = -EINVAL;
        }
    }
    flyt_output_unlock(output);
    return as_pipe_status(status);
}

int flyt_connection_send_chunk(struct flyt_connection *connection, uint64_t transfer_id, uint64_t offset_bytes,
                               const void *data, size_t bytes)
{
    struct flyt_output *output = &connection->output;
    const struct flyt_chunk_head head = {
        .transfer_id = transfer_id, .offset_bytes = offset_bytes, .bytes = (uint32_t)bytes};
    XDR xdrs;

    if (bytes > FLYT_CHUNK_BYTES_MAX)
        return -EPIPE;
    flyt_output_lock(output);
    int status = flyt_output_take_writer_locked(output);
    if (!status) {
        status = flyt_output_begin_locked(output, false, &xdrs);
        if (!status && !flyt_chunk_head_put(&xdrs, FLYT_BACK_PROGRAM, FLYT_BACK_CHUNK, &head)) {
            flyt_output_cancel_locked(output);
            status = -ENOMEM;
        }
        if (status)
            flyt_output_leave_writer_locked(output);
        else
            status = flyt_output_write_payload_locked(output, data, bytes);
    }
    flyt_output_unlock(output);
    return as_pipe_status(status);
}

int flyt_connection_flush(struct flyt_connection *connection)
{
    flyt_output_lock(&connection->output);
    int status = flyt_output_flush_locked(&connection->output, true);
    flyt_output_unlock(&connection->output);
    return as_pipe_status(status);
}

int flyt_connection_use_rings(struct flyt_connection *connection, struct flyt_rings *rings)
{
    struct flyt_endpoint *endpoint;
    int status = flyt_endpoint_over_rings(connection->endpoint, rings, &endpoint);

    if (status)
        return status;
    connection->endpoint = connection->input.endpoint = connection->output.endpoint = endpoint;
    return 0;
}
