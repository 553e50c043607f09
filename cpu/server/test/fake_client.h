/*
 * For tests: the client of a session that runs in this process over flyt_fake_driver, at the other end of a socket
 * pair. It speaks the wire's format by itself. To be included by one source file, which has cmocka's headers.
 */
#ifndef FLYT_SERVER_FAKE_CLIENT_H
#define FLYT_SERVER_FAKE_CLIENT_H

#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cpu/server/test/fake_driver.h"
#include "cpu/server/process/parts.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/bulk/transfer.h"
#include "flyt_signatures.h"

void flyt_program_1(struct svc_req *request, SVCXPRT *xprt);

enum { MESSAGE_BYTES_MAX = 1 << 20, REPLY_HEAD_BYTES = 24, CALL_HEAD_BYTES = 40 };

struct fixture {
    struct flyt_session session;
    pthread_t thread;
    int fd;
    uint32_t xid;
    char message[MESSAGE_BYTES_MAX];
    size_t message_bytes;
};

static inline void *serve(void *user)
{
    flyt_session_run(&((struct fixture *)user)->session);
    return NULL;
}

/* The session exists, over this driver; nobody serves it yet. */
static inline struct fixture *make_over(const struct flyt_driver *driver)
{
    struct fixture *self = calloc(1, sizeof *self);
    struct flyt_error err = {0};
    int fds[2];
    assert_non_null(self);
    assert_int_equal(flyt_session_init(&self->session, driver, &flyt_parts, &err), 0);
    /* The session takes the standard descriptors for what kernels say; the test's own lines still belong outside. */
    dup2(self->session.print.output.before_fd, STDOUT_FILENO);
    dup2(self->session.print.error.before_fd, STDERR_FILENO);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const struct flyt_connection_config config = {.dispatch = flyt_program_1,
                                                  .program = FLYT_PROGRAM,
                                                  .version = FLYT_VERSION,
                                                  .user = &self->session,
                                                  .record_bytes_max = FLYT_RECORD_BYTES_MAX,
                                                  .chunk_place = flyt_transfers_main_place,
                                                  .chunk_done = flyt_transfers_main_done};
    struct flyt_endpoint *endpoint;
    assert_int_equal(flyt_endpoint_of_socket(fds[1], &endpoint), 0);
    assert_int_equal(flyt_connection_new(endpoint, &config, &self->session.connection), 0);
    self->fd = fds[0];
    const struct timeval limit = {.tv_sec = 20};
    setsockopt(self->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(self->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return self;
}

static inline struct fixture *make(void)
{
    return make_over(flyt_fake_driver());
}

static inline int set_up(void **state)
{
    struct fixture *self = make();
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
    *state = self;
    return 0;
}

static inline int tear_down(void **state)
{
    struct fixture *self = *state;
    close(self->fd);
    pthread_join(self->thread, NULL);
    flyt_session_fini(&self->session);
    free(self);
    return 0;
}

/* ---- the client's side of the wire ---- */

static inline void put(char **at, uint32_t value)
{
    value = htonl(value);
    memcpy(*at, &value, sizeof value);
    *at += sizeof value;
}

static inline uint32_t get(const struct fixture *self, size_t offset)
{
    uint32_t value;
    assert_true(offset + sizeof value <= self->message_bytes);
    memcpy(&value, self->message + offset, sizeof value);
    return ntohl(value);
}

/* Encodes a call with its record mark; its xid is self->xid, which is its sequence number. Returns bytes. */
static inline size_t encode_call(struct fixture *self, char *record, size_t room_bytes, uint32_t procedure,
                                 xdrproc_t xdr_args, const void *args)
{
    char *at = record + 4;
    const uint32_t head[] = {++self->xid, 0, 2, FLYT_PROGRAM, FLYT_VERSION, procedure, 0, 0, 0, 0};
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
        put(&at, head[i]);
    XDR xdrs;
    xdrmem_create(&xdrs, at, (u_int)(room_bytes - CALL_HEAD_BYTES - 4), XDR_ENCODE);
    assert_true(xdr_args(&xdrs, (void *)args));
    size_t bytes = CALL_HEAD_BYTES + xdr_getpos(&xdrs);
    at = record;
    put(&at, 0x80000000u | (uint32_t)bytes);
    return bytes + 4;
}

/* Sends a call; returns its xid. */
static inline uint32_t send_call(struct fixture *self, uint32_t procedure, xdrproc_t xdr_args, const void *args)
{
    static char record[MESSAGE_BYTES_MAX];
    size_t bytes = encode_call(self, record, sizeof record, procedure, xdr_args, args);
    assert_int_equal(send(self->fd, record, bytes, MSG_NOSIGNAL), bytes);
    return self->xid;
}

/* The next message of the server. False: the connection is closed. */
static inline bool receive(struct fixture *self)
{
    uint32_t mark;
    if (recv(self->fd, &mark, sizeof mark, MSG_WAITALL) != (ssize_t)sizeof mark)
        return false;
    self->message_bytes = ntohl(mark) & 0x7fffffff;
    assert_true(self->message_bytes <= sizeof self->message);
    return recv(self->fd, self->message, self->message_bytes, MSG_WAITALL) == (ssize_t)self->message_bytes;
}

/* Skips progress notices and credits up to the reply to xid, which is decoded. */
static inline void await_reply(struct fixture *self, uint32_t xid, xdrproc_t xdr_res, void *res)
{
    for (;;) {
        assert_true(receive(self));
        if (get(self, 4) == 1 && get(self, 0) == xid)
            break;
        uint32_t procedure = get(self, 20);
        assert_true(get(self, 4) == 0 && (procedure == FLYT_BACK_PROGRESS || procedure == FLYT_BACK_CREDIT));
    }
    XDR xdrs;
    xdrmem_create(&xdrs, self->message + REPLY_HEAD_BYTES, (u_int)(self->message_bytes - REPLY_HEAD_BYTES), XDR_DECODE);
    assert_true(xdr_res(&xdrs, res));
}

/* Skips progress notices up to a call of `procedure`, whose arguments are decoded. */
static inline void await_back(struct fixture *self, uint32_t procedure, xdrproc_t xdr_args, void *args)
{
    do
        assert_true(receive(self) && get(self, 4) == 0);
    while (get(self, 20) == FLYT_BACK_PROGRESS && procedure != FLYT_BACK_PROGRESS);
    assert_int_equal(get(self, 20), procedure);
    XDR xdrs;
    xdrmem_create(&xdrs, self->message + CALL_HEAD_BYTES, (u_int)(self->message_bytes - CALL_HEAD_BYTES), XDR_DECODE);
    assert_true(xdr_args(&xdrs, args));
}

#define SEND(self, PROCEDURE, name, ...)                                                                               \
    send_call(self, PROCEDURE, (xdrproc_t)xdr_flyt_##name##_args, &(flyt_##name##_args){__VA_ARGS__})

static inline uint64_t stream_id(unsigned number)
{
    return flyt_id(FLYT_ID_STREAM, FLYT_ID_STREAM_FIRST + number);
}

static inline uint64_t event_id(unsigned number)
{
    return flyt_id(FLYT_ID_EVENT, number);
}

static const uint64_t legacy = (uint64_t)FLYT_ID_STREAM << 56 | 1;

static inline flyt_box range(uint64_t address, uint64_t bytes)
{
    return (flyt_box){
        .address = address, .width_bytes = bytes, .height = 1, .depth = 1, .pitch_bytes = bytes, .slice_bytes = bytes};
}

static inline uint64_t alloc(struct fixture *self, uint64_t bytes, int want)
{
    flyt_memory_alloc_res res;
    uint32_t xid = SEND(self, FLYT_MEMORY_ALLOC, memory_alloc, .bytes = bytes);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_memory_alloc_res, &res);
    assert_int_equal(res.result, want);
    return res.address;
}

static inline void create(struct fixture *self, unsigned number, unsigned flags)
{
    SEND(self, FLYT_STREAM_CREATE, stream_create, .stream_id = stream_id(number), .flags = flags);
}

static inline void set(struct fixture *self, uint64_t stream, uint64_t address)
{
    SEND(self, FLYT_MEMORY_SET, memory_set, .stream_id = stream, .dst = range(address, 64), .element_bytes = 1);
}

enum { SLICE_BYTES = 40 };

/* A single call that is as many operations of the driver as it has slices: of two rows each, with irregular gaps. */
static inline void set_slices(struct fixture *self, uint64_t stream, uint64_t address, unsigned slices)
{
    const flyt_box box = {.address = address,
                          .width_bytes = 1,
                          .height = 2,
                          .depth = slices,
                          .pitch_bytes = 16,
                          .slice_bytes = SLICE_BYTES};
    SEND(self, FLYT_MEMORY_SET, memory_set, .stream_id = stream, .dst = box, .element_bytes = 1);
}

static inline int synchronize(struct fixture *self, uint64_t stream)
{
    flyt_stream_synchronize_res res;
    uint32_t xid = SEND(self, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, .stream_id = stream);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res);
    return res.result;
}

static inline int query(struct fixture *self, uint64_t stream)
{
    flyt_stream_query_res res;
    uint32_t xid = SEND(self, FLYT_STREAM_QUERY, stream_query, .stream_id = stream);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_stream_query_res, &res);
    return res.result;
}

static inline flyt_progress barrier(struct fixture *self)
{
    flyt_session_barrier_res res;
    uint32_t xid = SEND(self, FLYT_SESSION_BARRIER, session_barrier, .thread = 1);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_session_barrier_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    return res.progress;
}

static inline void send_chunk(struct fixture *self, uint64_t transfer_id, uint64_t offset_bytes, unsigned bytes)
{
    static char data[100000];
    flyt_chunk chunk = {
        .transfer_id = transfer_id, .offset_bytes = offset_bytes, .data = {.data_len = bytes, .data_val = data}};
    send_call(self, FLYT_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunk);
    self->xid--; /* chunks have no number */
}

/* ---- the node manager's side ---- */

/* What the session says next, at the node manager's end of its link; descriptors that come with it are closed. */
static inline void hear(int link_fd, struct flyt_manager_link_message *message)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned count;
    assert_int_equal(flyt_manager_link_receive(link_fd, message, fds, &count), 0);
    while (count)
        close(fds[--count]);
}

/* ---- the driver's side ---- */

static inline unsigned count_in_log(const char *word)
{
    static char log[65536];
    unsigned count = 0;
    flyt_fake_log(log, sizeof log);
    for (const char *at = log; (at = strstr(at, word)); at++)
        count++;
    return count;
}

static inline void assert_log(const char *want)
{
    char log[4096];
    flyt_fake_log(log, sizeof log);
    assert_string_equal(log, want);
}

#endif
