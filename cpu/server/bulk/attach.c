#include "cpu/server/bulk/attach.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/session.h"
#include "cpu/server/bulk/region.h"
#include "cpu/server/bulk/transfer.h"
#include "flyt_signatures.h"
#include "rpc/base/build_name.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/region_offer.h"
#include "rpc/transport/endpoint/rings.h"

int flyt_attach_endpoint(const struct flyt_session *session, int fd, const unsigned char *key, struct flyt_error *err,
                         struct flyt_endpoint **ret_endpoint)
{
    struct flyt_endpoint *plain;
    int status = flyt_endpoint_of_socket(fd, &plain);
    if (status)
        return flyt_error_set(err, status, "%s", strerror(-status));
    if (!session->is_encrypted) {
        *ret_endpoint = plain;
        return 0;
    }
    status = flyt_endpoint_expect_encryption(plain, key, err, ret_endpoint);
    if (status)
        flyt_endpoint_release_socket(plain);
    return status;
}

int flyt_attach_connection(struct flyt_session *session, struct flyt_endpoint *endpoint, const void *record,
                           size_t bytes)
{
    const struct flyt_connection_config config = {
        .dispatch = session->dispatch,
        .program = FLYT_PROGRAM,
        .version = FLYT_VERSION,
        .user = session,
        .record_bytes_max = FLYT_RECORD_BYTES_MAX,
        .chunk_place = flyt_transfers_main_place,
        .chunk_done = flyt_transfers_main_done,
    };
    int status = flyt_connection_new(endpoint, &config, &session->connection);
    if (status)
        return status;
    status = flyt_connection_preload(session->connection, record, bytes);
    if (status)
        session->connection = flyt_connection_free(session->connection);
    return status;
}

/* Fills the answer. Everything that it points to is malloc'ed: rpcgen's dispatch frees it. */
static void answer(struct flyt_session *session, const flyt_handshake_args *args, flyt_handshake_res *res)
{
    struct flyt_error err = {0};
    memset(res, 0, sizeof *res);
    res->status = FLYT_HANDSHAKE_OK;
    if (flyt_handshake_check(args, flyt_build_name, &err) != 0)
        res->status = FLYT_HANDSHAKE_BASE_DIFFERS;
    res->message = strdup(err.text);
    res->build = strdup(flyt_build_name);
    res->token.token_val = malloc(FLYT_TOKEN_BYTES);
    if (!res->token.token_val || res->status != FLYT_HANDSHAKE_OK ||
        flyt_handshake_answer_rows(args, flyt_signatures, flyt_signature_count, res) != 0)
        return;
    res->token.token_len = FLYT_TOKEN_BYTES;
    memcpy(res->token.token_val, session->token, FLYT_TOKEN_BYTES);
    res->session_id = session->session_id;
    res->device_count = session->device_count;
    res->driver_version = (u_int)session->driver_version;
    res->data_streams = flyt_handshake_data_streams();
}

/* Control characters would break the log's lines. */
static void keep_name(struct flyt_session *session, const char *name)
{
    size_t bytes = 0;
    for (; name[bytes] && bytes < sizeof session->client_name - 1; bytes++)
        session->client_name[bytes] = name[bytes] > ' ' && name[bytes] < 0x7f ? name[bytes] : '_';
    session->client_name[bytes] = 0;
}

/* Whether memory may be shared with a client, and it takes it (--no-shared-memory). */
static bool may_share(const flyt_handshake_args *args, uint64_t what)
{
    const char *word = getenv("FLYT_SHARED_MEMORY");
    return !(word && !strcmp(word, "no")) && flyt_handshake_number(&args->features) & what;
}

static unsigned region_use(const struct flyt_session *session)
{
    return FLYT_REGION_IS_SEEN |
           (flyt_session_region_is_mapped(session) ? FLYT_REGION_IS_MAPPED | FLYT_REGION_IS_FILLED : 0);
}

/* The region that the client brings, which was asked for; where there is none, its copies go over its connections. 0 or
 * a negative errno: the connection is of no use. */
static int take_region(struct flyt_session *session, struct flyt_endpoint *endpoint)
{
    flyt_auto_close int fd = -1;
    unsigned use = 0;
    int status = flyt_region_await(endpoint, &fd);
    if (status)
        return status;
    int taken = fd < 0 ? -ENODATA : flyt_session_region_take(session, fd);
    if (!taken)
        use = region_use(session);
    else if (fd >= 0)
        flyt_warn("session %s: no memory is shared with its client: %s", session->label, strerror(-taken));
    return flyt_region_answer(endpoint, use);
}

/* Rings for a client that goes on through them; false: both go on over the socket. */
static bool open_rings(struct flyt_session *session, const flyt_handshake_args *args, flyt_handshake_res *res,
                       struct flyt_rings *ret_rings)
{
    *ret_rings = (struct flyt_rings){.fd = -1};
    if (!may_share(args, FLYT_CLIENT_TAKES_RINGS))
        return false;
    int status = flyt_rings_new(ret_rings);
    if (status)
        flyt_warn("session %s: no rings, its calls go over its socket: %s", session->label, strerror(-status));
    else
        res->features |= FLYT_FEATURE_RINGS;
    return !status;
}

/* Rings and a region in the memory that the client's VM shares with this machine; the client names places for rings,
 * until one is free here, too. 0 or a negative errno: the connection is of no use. */
static int share_vm_memory(struct flyt_session *session, struct flyt_connection *connection)
{
    struct flyt_endpoint *endpoint = flyt_connection_endpoint(connection);
    struct flyt_rings rings = {.fd = -1};
    void *memory = NULL;
    int taken = flyt_session_region_take_vm(session), status, claimed;
    unsigned use;
    do {
        struct flyt_region_place place;
        status = flyt_region_await_rings(endpoint, &place);
        if (status)
            return status;
        claimed = taken ? taken : flyt_session_region_claim_rings(session, &place, &memory);
        if (!claimed)
            flyt_rings_place(memory, &rings);
        use = claimed == -EBUSY ? FLYT_REGION_ASKS_AGAIN : claimed ? 0 : region_use(session);
        status = flyt_region_answer(endpoint, use);
    } while (!status && use & FLYT_REGION_ASKS_AGAIN);
    if (!status && !use)
        flyt_warn("session %s: no memory is shared with its client's VM: %s", session->label, strerror(-claimed));
    if (!status && use)
        status = flyt_connection_use_rings(connection, &rings);
    atomic_store(&session->shares_vm_memory, !status && use);
    return status;
}

/* The answer to a client of a VM that may share memory with this machine goes out here, for it says then where. False:
 * it does not. */
static bool reply_and_share(struct flyt_session *session, struct flyt_connection *connection,
                            const flyt_handshake_args *args, flyt_handshake_res *res)
{
    if (!session->has_vm_memory || session->is_encrypted || !may_share(args, FLYT_CLIENT_HAS_VM_MEMORY))
        return false;
    res->features |= FLYT_FEATURE_VM_MEMORY;
    int status = flyt_connection_reply_handshake(connection, flyt_connection_xid(connection), res, NULL, 0);
    if (!status)
        status = share_vm_memory(session, connection);
    if (status)
        session->is_ended = true;
    return true;
}

/*
 * Where the client is on this host, its answer goes out here, with the progress page and rings; its region comes then.
 * False: there is no page, and rpcgen's dispatch answers as everywhere else.
 */
static bool reply_with_page(struct flyt_session *session, struct flyt_connection *connection,
                            const flyt_handshake_args *args, flyt_handshake_res *res)
{
    flyt_auto_close int fd = -1;
    if (!flyt_endpoint_passes_descriptors(flyt_connection_endpoint(connection)))
        return reply_and_share(session, connection, args, res);
    int status = flyt_progress_writer_open(&session->progress_writer, &fd);
    if (status) {
        flyt_warn("session %s: no progress page, its client asks instead: %s", session->label, strerror(-status));
        return false;
    }
    res->features |= FLYT_FEATURE_PROGRESS_PAGE;
    const bool has_region = may_share(args, FLYT_CLIENT_BRINGS_REGION);
    if (has_region)
        res->features |= FLYT_FEATURE_REGION;
    struct flyt_rings rings;
    const bool has_rings = open_rings(session, args, res, &rings);
    const int fds[] = {fd, rings.fd};
    status = flyt_connection_reply_handshake(connection, flyt_connection_xid(connection), res, fds, 1 + has_rings);
    if (!status && has_region)
        status = take_region(session, flyt_connection_endpoint(connection));
    if (!status && has_rings)
        status = flyt_connection_use_rings(connection, &rings);
    flyt_rings_close(&rings);
    if (status)
        session->is_ended = true; /* the client is gone, or what was to be said to it cannot be said */
    return true;
}

/* Whether the client is one of this session: a new one's, or that of one that goes on, which knows its token. Where
 * not, *res says why. */
static bool is_meant(const struct flyt_session *session, const flyt_handshake_args *args, flyt_handshake_res *res)
{
    static const char none_goes_on[] = "there is no session that goes on here";
    static const char goes_on[] = "the session goes on at this server, and cannot begin anew";
    static const char is_another[] = "the session that goes on here is another one";
    bool is_resume = session->resume.state != FLYT_RESUME_NONE;
    const char *why = NULL;
    if (args->kind == FLYT_CONNECTION_RESUME && !is_resume)
        why = none_goes_on;
    else if (args->kind != FLYT_CONNECTION_RESUME && is_resume)
        why = goes_on;
    else if (is_resume && (args->token.token_len != FLYT_TOKEN_BYTES ||
                           !flyt_equal_in_constant_time(args->token.token_val, session->token, FLYT_TOKEN_BYTES)))
        why = is_another;
    if (!why)
        return true;
    res->status = FLYT_HANDSHAKE_NO_SESSION;
    free(res->message);
    res->message = strdup(why);
    return false;
}

bool_t flyt_handshake_1_svc(flyt_handshake_args *args, flyt_handshake_res *res, struct svc_req *req)
{
    struct flyt_session *session = flyt_connection_user(req->rq_xprt);
    answer(session, args, res);
    if (res->status == FLYT_HANDSHAKE_ROWS && !session->is_attached)
        return TRUE; /* once more, with the list */
    if (session->is_attached || res->status != FLYT_HANDSHAKE_OK) {
        /* The listener has looked at it already: only a second handshake comes here with something wrong. */
        session->is_ended = true;
        return TRUE;
    }
    if (!is_meant(session, args, res)) {
        snprintf(session->end_reason, sizeof session->end_reason, "%s", res->message);
        session->is_ended = true;
        return TRUE;
    }
    flyt_transfers_set_window(session, flyt_handshake_answer_window(args, FLYT_TRANSFER_WINDOW_BYTES, res));
    flyt_execution_attach(session);
    for (unsigned i = 0; (*session->parts)[i]; i++)
        if ((*session->parts)[i]->attached)
            (*session->parts)[i]->attached(session, res);
    session->is_attached = true;
    session->client_pid = (pid_t)args->pid;
    keep_name(session, *args->program_name ? args->program_name : "?");
    flyt_info("session %s: %s, client_pid=%d program=%s cuda=%u", session->label,
              session->resume.state == FLYT_RESUME_NONE ? "started" : "is to go on", (int)session->client_pid,
              session->client_name, args->cuda_version);
    return !reply_with_page(session, flyt_connection_of(req->rq_xprt), args, res);
}

void flyt_attach_dispatch_data(struct svc_req *request, SVCXPRT *xprt)
{
    struct flyt_reader *reader = flyt_connection_user(xprt);
    if (request->rq_proc != FLYT_HANDSHAKE) {
        svcerr_noproc(xprt);
        return;
    }
    flyt_handshake_args args = {0};
    flyt_handshake_res res;
    if (!svc_getargs(xprt, (xdrproc_t)xdr_flyt_handshake_args, (caddr_t)&args)) {
        svcerr_decode(xprt);
        return;
    }
    answer(reader->session, &args, &res);
    reader->is_accepted = res.status == FLYT_HANDSHAKE_OK;
    svc_sendreply(xprt, (xdrproc_t)xdr_flyt_handshake_res, (caddr_t)&res);
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    svc_freeargs(xprt, (xdrproc_t)xdr_flyt_handshake_args, (caddr_t)&args);
}

/* ---- the other procedures that are not in a table ---- */

bool_t flyt_null_1_svc(void *args, void *res, struct svc_req *req)
{
    return TRUE;
}

bool_t flyt_query_1_svc(void *args, flyt_query_res *res, struct svc_req *req)
{
    const struct flyt_session *session = flyt_connection_user(req->rq_xprt);
    memset(res, 0, sizeof *res);
    res->build = strdup(flyt_build_name);
    res->device_count = session->device_count;
    res->session_count = 1;
    return TRUE;
}

/* Chunks are read by the connection, which never dispatches them. */
bool_t flyt_chunk_1_svc(flyt_chunk *args, void *res, struct svc_req *req)
{
    return FALSE;
}

int flyt_program_1_freeresult(SVCXPRT *xprt, xdrproc_t xdr_res, caddr_t res)
{
    xdr_free(xdr_res, res);
    return TRUE;
}
