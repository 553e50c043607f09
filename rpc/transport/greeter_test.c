/* Tests of a server's listener: listening, connecting, what happens before a handshake, and the handshake's helpers. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <rpc/rpc.h>
#include "flyt_signatures.h"
#include "rpc/base/clock.h"
#include "rpc/base/machine.h"
#include "rpc/base/sha256.h"
#include "rpc/base/url.h"
#include "rpc/transport/greeter.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/message.h"

/* ---- listening and connecting ---- */

static void unix_url(char *url, size_t bytes)
{
    snprintf(url, bytes, "unix:///tmp/flyt-greeter-test-%d", (int)getpid());
}

static void test_listen_and_connect_tcp(void **state)
{
    static const char *const urls[] = {"tcp://127.0.0.1:0", "tcp://localhost:0", "tcp://:0", "tcp://[::1]:0"};
    char text[FLYT_URL_TEXT_BYTES];
    struct flyt_error err;
    int listen_fd, fd;

    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        int status = flyt_listen(urls[i], &err, &listen_fd, text);
        if (status && strstr(urls[i], "::1")) /* a machine without IPv6 */
            continue;
        assert_int_equal(status, 0);
        assert_null(strstr(text, ":0"));
        assert_true(fcntl(listen_fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(flyt_connect(text, 2000, &err, &fd), 0);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
        close(fd);
        close(listen_fd);
        flyt_unlisten(text); /* nothing to remove */
        assert_int_equal(flyt_connect(text, 2000, &err, &fd), -ECONNREFUSED);
        assert_non_null(strstr(err.text, text));
    }
    assert_int_equal(flyt_connect("tcp://no-such-host.invalid:1", 100, &err, &fd), -EHOSTUNREACH);
    assert_non_null(strstr(err.text, "no-such-host.invalid"));
}

static void test_unix_socket_file(void **state)
{
    char url[100], text[FLYT_URL_TEXT_BYTES];
    const char *path = url + strlen("unix://");
    struct flyt_error err;
    struct stat info;
    int first, second, fd;

    unix_url(url, sizeof url);
    assert_int_equal(flyt_listen(url, &err, &first, text), 0);
    assert_string_equal(text, url);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(flyt_listen(url, &err, &second, text), -EADDRINUSE); /* somebody listens */
    assert_int_equal(flyt_connect(url, 2000, &err, &fd), 0);
    close(fd);
    close(first); /* as a server that was killed leaves it */
    assert_int_equal(flyt_connect(url, 2000, &err, &fd), -ECONNREFUSED);
    assert_int_equal(flyt_listen(url, &err, &second, text), 0);
    close(second);
    flyt_unlisten(url);
    assert_int_equal(stat(path, &info), -1);
    fd = open(path, O_CREAT | O_WRONLY, 0600); /* somebody's file is not removed */
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(flyt_listen(url, &err, &second, text), -EADDRINUSE);
    assert_int_equal(stat(path, &info), 0);
    unlink(path);
}

/* Named with this machine; and one of another machine is neither made nor taken for one of this. */
static void test_unix_socket_of_a_machine(void **state)
{
    static const char elsewhere[] = "unix://0a1b2c3d-1111-4222-8333-0123456789ac";
    char boot_id[FLYT_URL_BOOT_ID_BYTES], plain[100], url[200], text[FLYT_URL_TEXT_BYTES];
    const char *path = plain + strlen("unix://");
    struct flyt_error err;
    struct stat info;
    int listen_fd, fd;

    flyt_machine_boot_id(boot_id);
    unix_url(plain, sizeof plain);
    snprintf(url, sizeof url, "%s%s", elsewhere, path);
    assert_int_equal(flyt_listen(url, &err, &listen_fd, text), -EHOSTUNREACH);
    assert_non_null(strstr(err.text, "another machine"));
    assert_int_equal(stat(path, &info), -1);
    snprintf(url, sizeof url, "unix://%s%s", boot_id, path);
    assert_int_equal(flyt_listen(url, &err, &listen_fd, text), 0);
    assert_string_equal(text, url);
    assert_true(flyt_listens_at(listen_fd, path));
    assert_false(flyt_listens_at(listen_fd, "/tmp"));
    assert_int_equal(flyt_connect(url, 2000, &err, &fd), 0);
    assert_false(flyt_listens_at(fd, path)); /* it is bound to nothing */
    close(fd);
    snprintf(url, sizeof url, "%s%s", elsewhere, path);
    assert_int_equal(flyt_connect(url, 2000, &err, &fd), -EHOSTUNREACH);
    assert_non_null(strstr(err.text, "another machine"));
    flyt_unlisten(text);
    assert_false(flyt_listens_at(listen_fd, path));
    close(listen_fd);
}

/* ---- the greeter ---- */

struct listener {
    struct flyt_greeter *greeter;
    int listen_fd;
    char url[FLYT_URL_TEXT_BYTES];
    unsigned handshakes;
    int fd; /* of the last one */
    unsigned char record[70000];
    size_t bytes;
    unsigned answers;
    struct flyt_greeter_answer answer; /* of the last one, without args */
    unsigned char proof;
};

static void fill_query(void *user, flyt_query_res *res)
{
    res->build = (char *)"listener";
    res->warm_count = 3;
}

static void take_handshake(void *user, int fd, const void *record, size_t bytes)
{
    struct listener *listener = user;

    listener->handshakes++;
    listener->fd = fd;
    memcpy(listener->record, record, bytes);
    listener->bytes = bytes;
}

/* Whoever has credentials is to prove them. */
static bool has_credentials(void *user, const flyt_handshake_args *args)
{
    return args->credentials.credentials_len > 0;
}

static void take_answer(void *user, int fd, const struct flyt_greeter_answer *answer, const void *record, size_t bytes)
{
    struct listener *listener = user;

    take_handshake(user, fd, record, bytes);
    listener->answers++;
    listener->answer = *answer;
    listener->proof =
        answer->args->proof.flyt_late_bytes_len ? (unsigned char)answer->args->proof.flyt_late_bytes_val[0] : 0;
}

/* Time may stand: connections of which a full greeter has too many are given a second, which a busy machine may take.
 */
static struct timespec stands_at; /* all zero: it goes on */

int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    if (!stands_at.tv_sec)
        return __real_clock_gettime(clock, ret_time);
    *ret_time = stands_at;
    return 0;
}

static struct listener *new_listener_with(const char *url, bool is_challenging)
{
    struct listener *listener = calloc(1, sizeof *listener);
    struct flyt_greeter_config config = {.query = fill_query,
                                         .handshake = take_handshake,
                                         .is_challenged = is_challenging ? has_credentials : NULL,
                                         .answer = take_answer,
                                         .user = listener};
    struct flyt_error err;

    listener->fd = -1;
    assert_int_equal(flyt_listen(url, &err, &listener->listen_fd, listener->url), 0);
    assert_int_equal(flyt_greeter_new(&config, &listener->greeter), 0);
    assert_int_equal(flyt_greeter_listen(listener->greeter, listener->listen_fd), 0);
    return listener;
}

static struct listener *new_listener(const char *url)
{
    return new_listener_with(url, false);
}

static void free_listener(struct listener *listener)
{
    assert_null(flyt_greeter_free(listener->greeter));
    close(listener->listen_fd);
    flyt_unlisten(listener->url);
    if (listener->fd >= 0)
        close(listener->fd);
    free(listener);
}

static int connect_to(struct listener *listener)
{
    struct flyt_error err;
    int fd;

    assert_int_equal(flyt_connect(listener->url, 2000, &err, &fd), 0);
    return fd;
}

/* Lets the greeter work until nothing happens for a moment. */
static void settle(struct listener *listener)
{
    struct pollfd ready = {.fd = flyt_greeter_fd(listener->greeter), .events = POLLIN};

    while (poll(&ready, 1, 20) > 0)
        assert_int_equal(flyt_greeter_process(listener->greeter), 0);
}

/* As soon as the client has an answer: many of these take no time worth mentioning. */
static void until_answered(struct listener *listener, int fd)
{
    struct pollfd ready[] = {{.fd = flyt_greeter_fd(listener->greeter), .events = POLLIN},
                             {.fd = fd, .events = POLLIN}};
    uint64_t end_ms = flyt_clock_ms() + 60000;

    do {
        assert_true(flyt_clock_ms() < end_ms);
        poll(ready, 2, 100);
        assert_int_equal(flyt_greeter_process(listener->greeter), 0);
    } while (!ready[1].revents);
}

static struct flyt_bytes make_handshake_with(unsigned procedure_count, const char *credentials, const char *proof)
{
    flyt_handshake_args args = {.build = "b", .program_name = "p"};
    struct flyt_bytes bytes = {.bytes_max = 1 << 20};
    flyt_signature *many = calloc(procedure_count + 1, sizeof *many);
    XDR xdrs;

    memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
    args.procedures.procedures_val = many;
    args.procedures.procedures_len = procedure_count;
    args.credentials.credentials_val = (char *)credentials;
    args.credentials.credentials_len = (u_int)strlen(credentials);
    args.proof.flyt_late_bytes_val = (char *)proof;
    args.proof.flyt_late_bytes_len = (u_int)strlen(proof);
    assert_true(flyt_bytes_reserve(&bytes, 4));
    bytes.used = 4;
    flyt_xdr_encode_init(&xdrs, &bytes);
    assert_true(flyt_call_head_put(&xdrs, 5, FLYT_PROGRAM, FLYT_VERSION, FLYT_HANDSHAKE));
    assert_true(xdr_flyt_handshake_args(&xdrs, &args));
    uint32_t mark = htonl(0x80000000u | (uint32_t)(bytes.used - 4));
    memcpy(bytes.data, &mark, 4);
    free(many);
    return bytes;
}

static struct flyt_bytes make_handshake(unsigned procedure_count)
{
    return make_handshake_with(procedure_count, "", "");
}

/* Whether the greeter has closed the connection. */
static bool is_closed(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char byte;

    return poll(&ready, 1, 0) > 0 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

static void test_handshake_is_handed_over_whole(void **state)
{
    struct flyt_bytes call = make_handshake(3000);
    char url[100], more[8] = "";
    flyt_handshake_args args;
    uint32_t xid;

    unix_url(url, sizeof url);
    struct listener *listener = new_listener(url);
    int fd = connect_to(listener);
    for (size_t at = 0; at < call.used; at += 5000) { /* in pieces */
        size_t part = call.used - at < 5000 ? call.used - at : 5000;
        assert_int_equal(listener->handshakes, 0);
        assert_int_equal(send(fd, call.data + at, part, 0), part);
        settle(listener);
    }
    assert_int_equal(listener->handshakes, 1);
    assert_int_equal(listener->bytes, call.used);
    assert_memory_equal(listener->record, call.data, call.used);
    /* What follows the record is still in the socket. */
    assert_int_equal(send(fd, "behind", 6, 0), 6);
    assert_int_equal(recv(listener->fd, more, sizeof more, 0), 6);
    assert_int_equal(flyt_handshake_decode(listener->record, listener->bytes, &xid, &args), 0);
    assert_int_equal(xid, 5);
    assert_int_equal(args.procedures.procedures_len, 3000);
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
    close(fd);
    flyt_bytes_fini(&call);
    free_listener(listener);
}

static void *run_listener(void *argument)
{
    struct listener *listener = argument;

    while (!listener->handshakes) {
        struct pollfd ready = {.fd = flyt_greeter_fd(listener->greeter), .events = POLLIN};
        if (poll(&ready, 1, 10000) > 0)
            flyt_greeter_process(listener->greeter);
    }
    flyt_handshake_refuse(listener->fd, 0, FLYT_HANDSHAKE_BUSY, "too many");
    return NULL;
}

static void test_stock_client_needs_no_session(void **state)
{
    struct listener *listener = new_listener("tcp://127.0.0.1:0");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    flyt_query_res query = {0};
    struct flyt_url url;
    pthread_t thread;
    int fd = RPC_ANYSOCK;

    assert_int_equal(flyt_url_parse(listener->url, NULL, &url), 0);
    address.sin_port = htons(url.port);
    pthread_create(&thread, NULL, run_listener, listener);
    CLIENT *client = clnttcp_create(&address, FLYT_PROGRAM, FLYT_VERSION, &fd, 400, 400);
    assert_non_null(client);
    assert_int_equal(flyt_null_1(NULL, NULL, client), RPC_SUCCESS);
    assert_int_equal(flyt_query_1(NULL, &query, client), RPC_SUCCESS);
    assert_string_equal(query.build, "listener");
    assert_int_equal(query.warm_count, 3);
    clnt_freeres(client, (xdrproc_t)xdr_flyt_query_res, (caddr_t)&query);
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res barrier_res = {0};
    assert_int_equal(flyt_session_barrier_1(&barrier, &barrier_res, client), RPC_PROCUNAVAIL);
    rpcvers_t version = 7;
    clnt_control(client, CLSET_VERS, (char *)&version);
    assert_int_equal(flyt_null_1(NULL, NULL, client), RPC_PROGVERSMISMATCH);
    auth_destroy(client->cl_auth);
    clnt_destroy(client);

    /* A handshake over it is refused by name. xid 0 is that of our own channel. */
    struct flyt_bytes call = make_handshake(10);
    memset(call.data + 4, 0, 4);
    struct flyt_error err;
    assert_int_equal(flyt_connect(listener->url, 2000, &err, &fd), 0);
    assert_int_equal(send(fd, call.data, call.used, 0), call.used);
    unsigned char reply[200];
    ssize_t bytes = recv(fd, reply, sizeof reply, 0);
    assert_true(bytes > 40);
    assert_int_equal(reply[4 + FLYT_REPLY_HEAD_BYTES + 3], FLYT_HANDSHAKE_BUSY);
    assert_memory_equal(reply + 4 + FLYT_REPLY_HEAD_BYTES + 8, "too many", 8);
    pthread_join(thread, NULL);
    close(fd);
    flyt_bytes_fini(&call);
    free_listener(listener);
}

static void test_bad_guests_are_turned_away(void **state)
{
    static const struct {
        unsigned char bytes[12];
        size_t count;
    } cases[] = {
        {{0x80, 0x01, 0x00, 0x04}, 4}, /* longer than a handshake may be */
        {{0xff, 0xff, 0xff, 0xff}, 4},
        {{0x80, 0, 0, 0}, 4},                          /* empty */
        {{0x80, 0, 0, 5, 1, 2, 3, 4, 5}, 9},           /* no multiple of 4 */
        {{0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1}, 12}, /* a reply */
        {{'G', 'E', 'T', ' ', '/'}, 5},
    };
    char url[100];

    unix_url(url, sizeof url);
    struct listener *listener = new_listener(url);
    int patient = connect_to(listener);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = connect_to(listener);
        assert_int_equal(send(fd, cases[i].bytes, cases[i].count, 0), cases[i].count);
        settle(listener);
        if (!is_closed(fd))
            fail_msg("case %zu is still there", i);
        close(fd);
    }
    int silent = connect_to(listener); /* comes and goes */
    settle(listener);
    close(silent);
    settle(listener);
    assert_false(is_closed(patient));
    close(patient);
    free_listener(listener);
}

/* A connection from a loopback address of this number, as from a machine of its own. */
static int connect_from(struct listener *listener, unsigned number)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001u + number)}, to = from;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    assert_true(fd >= 0);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)atoi(strrchr(listener->url, ':') + 1));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* A handshake stays in the kernel's queue while silent ones fill the listener; then they have to go. They have lived a
 * second before, and the first one came after begin_ms. */
static void is_let_in_later(struct listener *listener, uint64_t begin_ms)
{
    struct pollfd ready = {.fd = flyt_greeter_fd(listener->greeter), .events = POLLIN};
    bool is_early = listener->handshakes != 0;

    if (flyt_clock_ms() < begin_ms + 1000) /* else they may have gone */
        assert_false(is_early);
    uint64_t rounds = 0;
    while (!listener->handshakes) {
        assert_true(rounds++ <
                    80); /* of a tenth of a second: where the listener is not full each lives for ten seconds */
        poll(&ready, 1, 100);
        assert_int_equal(flyt_greeter_process(listener->greeter), 0);
    }
    assert_int_equal(listener->handshakes, 1);
}

static void test_guests_are_few(void **state)
{
    enum { MANY = FLYT_GREETER_CONNECTIONS_MAX + 10 };
    struct flyt_bytes call = make_handshake(10);
    int fds[MANY];

    struct listener *listener = new_listener("tcp://127.0.0.1:0");
    uint64_t begin_ms = flyt_clock_ms();
    for (int i = 0; i < MANY; i++) {
        fds[i] = connect_from(listener, (unsigned)i + 10);
        if (i % 64 == 63) /* the kernel's queue holds few of them */
            settle(listener);
    }
    assert_int_equal(send(fds[MANY - 1], call.data, call.used, 0), call.used);
    settle(listener);
    is_let_in_later(listener, begin_ms);
    assert_true(is_closed(fds[0]));
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    flyt_bytes_fini(&call);
    free_listener(listener);
}

/* Reads the greeter's answer, which has come. False: it has closed the connection instead. */
static bool read_answer(int fd, flyt_handshake_res *ret_res)
{
    unsigned char reply[2000];
    XDR xdrs;

    ssize_t bytes = recv(fd, reply, sizeof reply, MSG_DONTWAIT);
    if (bytes <= 0)
        return false;
    assert_true(bytes > 4 + FLYT_REPLY_HEAD_BYTES);
    flyt_xdr_decode_init(&xdrs, reply + 4 + FLYT_REPLY_HEAD_BYTES, (size_t)bytes - 4 - FLYT_REPLY_HEAD_BYTES, NULL);
    memset(ret_res, 0, sizeof *ret_res);
    assert_true(xdr_flyt_handshake_res(&xdrs, ret_res));
    return true;
}

/* Makes the first handshake of a connection, which is challenged. Returns the descriptor. */
static int be_challenged(struct listener *listener, const struct flyt_bytes *call, unsigned char *ret_challenge)
{
    flyt_handshake_res res;
    int fd = connect_to(listener);

    assert_int_equal(send(fd, call->data, call->used, 0), call->used);
    until_answered(listener, fd);
    assert_true(read_answer(fd, &res));
    assert_int_equal(res.status, FLYT_HANDSHAKE_CHALLENGE);
    assert_int_equal(res.challenge.flyt_late_bytes_len, FLYT_CHALLENGE_BYTES);
    memcpy(ret_challenge, res.challenge.flyt_late_bytes_val, FLYT_CHALLENGE_BYTES);
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    return fd;
}

static void test_challenge_and_answer(void **state)
{
    struct flyt_bytes call = make_handshake_with(10, "who", ""), second = make_handshake_with(10, "who", "P");
    unsigned char challenge[FLYT_CHALLENGE_BYTES], other[FLYT_CHALLENGE_BYTES], hash[FLYT_HASH_BYTES];
    char url[100];

    unix_url(url, sizeof url);
    struct listener *listener = new_listener_with(url, true);
    int fd = be_challenged(listener, &call, challenge);
    assert_int_equal(listener->handshakes, 0);
    flyt_sha256_of(call.data + 4, call.used - 4, hash);
    assert_int_equal(send(fd, second.data, 9, 0), 9);
    settle(listener);
    assert_int_equal(send(fd, second.data + 9, second.used - 9, 0), second.used - 9);
    settle(listener);
    assert_int_equal(listener->answers, 1);
    assert_memory_equal(listener->answer.challenge, challenge, sizeof challenge);
    assert_memory_equal(listener->answer.record_hash, hash, sizeof hash);
    assert_int_equal(listener->answer.xid, 5);
    assert_int_equal(listener->proof, 'P');
    assert_int_equal(listener->bytes, second.used);
    assert_memory_equal(listener->record, second.data, second.used);
    close(fd);
    close(listener->fd);
    /* Another connection, another challenge. */
    fd = be_challenged(listener, &call, other);
    assert_memory_not_equal(challenge, other, sizeof other);
    close(fd);
    settle(listener);
    listener->fd = -1;
    flyt_bytes_fini(&call);
    flyt_bytes_fini(&second);
    free_listener(listener);
}

static void test_answer_must_be_of_the_same_handshake(void **state)
{
    struct flyt_bytes call = make_handshake_with(10, "who", "");
    struct flyt_bytes others[] = {make_handshake_with(11, "who", "P"), make_handshake_with(10, "him", "P")};
    unsigned char challenge[FLYT_CHALLENGE_BYTES];
    flyt_handshake_res res;
    char url[100];

    unix_url(url, sizeof url);
    struct listener *listener = new_listener_with(url, true);
    for (unsigned i = 0; i < 2; i++) {
        int fd = be_challenged(listener, &call, challenge);
        assert_int_equal(send(fd, others[i].data, others[i].used, 0), others[i].used);
        settle(listener);
        assert_true(read_answer(fd, &res));
        assert_int_equal(res.status, FLYT_HANDSHAKE_DENIED);
        xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
        assert_true(is_closed(fd));
        close(fd);
        flyt_bytes_fini(&others[i]);
    }
    assert_int_equal(listener->answers, 0);
    assert_int_equal(listener->handshakes, 0);
    /* Who has no credentials is not challenged. */
    struct flyt_bytes plain = make_handshake(10);
    int fd = connect_to(listener);
    assert_int_equal(send(fd, plain.data, plain.used, 0), plain.used);
    settle(listener);
    assert_int_equal(listener->handshakes, 1);
    assert_int_equal(listener->answers, 0);
    close(fd);
    flyt_bytes_fini(&plain);
    flyt_bytes_fini(&call);
    free_listener(listener);
}

/* Being challenged makes a connection live no longer than any other. */
static void test_challenged_guests_are_few(void **state)
{
    enum { MANY = FLYT_GREETER_CONNECTIONS_MAX };
    struct flyt_bytes call = make_handshake_with(10, "who", ""), plain = make_handshake(10);
    unsigned char challenge[FLYT_CHALLENGE_BYTES];
    char url[100];
    int fds[MANY];

    unix_url(url, sizeof url);
    struct listener *listener = new_listener_with(url, true);
    for (int i = 0; i < MANY; i++)
        fds[i] = be_challenged(listener, &call, challenge);
    int last = connect_to(listener); /* of the same user, whose oldest one goes for it */
    assert_int_equal(send(last, plain.data, plain.used, 0), plain.used);
    settle(listener);
    assert_int_equal(listener->handshakes, 1);
    assert_true(is_closed(fds[0]));
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    close(last);
    flyt_bytes_fini(&call);
    flyt_bytes_fini(&plain);
    free_listener(listener);
}

/* Silent ones of one address, without end: others get in at once, and keep their places. */
static void test_one_address_keeps_nobody_out(void **state)
{
    enum { MANY = 3 * FLYT_GREETER_CONNECTIONS_MAX };
    struct flyt_bytes call = make_handshake_with(10, "who", ""), plain = make_handshake(10);
    unsigned char challenge[FLYT_CHALLENGE_BYTES];
    int fds[MANY], open_count = 0;

    assert_int_equal(__real_clock_gettime(CLOCK_MONOTONIC, &stands_at), 0);
    struct listener *listener = new_listener_with("tcp://127.0.0.1:0", true);
    int quiet = connect_from(listener, 7), challenged = be_challenged(listener, &call, challenge);
    for (int i = 0; i < MANY; i++) {
        fds[i] = connect_from(listener, 66);
        if (i % 64 == 63)
            settle(listener);
    }
    /* Theirs are as many as there is room, the newest. */
    for (int i = 0; i < MANY; i++) {
        bool is_open = !is_closed(fds[i]);
        open_count += is_open;
        assert_int_equal(is_open, i >= MANY - (FLYT_GREETER_CONNECTIONS_MAX - 2));
    }
    assert_int_equal(open_count, FLYT_GREETER_CONNECTIONS_MAX - 2);
    int late = connect_from(listener, 8);
    assert_int_equal(send(late, plain.data, plain.used, 0), plain.used);
    settle(listener);
    assert_int_equal(listener->handshakes, 1);
    assert_false(is_closed(quiet));
    assert_false(is_closed(challenged));
    /* Also who shares their address gets in: those that have not begun go first. */
    int shares = connect_from(listener, 66);
    assert_int_equal(send(shares, plain.data, plain.used, 0), plain.used);
    settle(listener);
    assert_int_equal(listener->handshakes, 2);
    assert_false(is_closed(quiet));
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    close(quiet);
    close(challenged);
    close(late);
    close(shares);
    flyt_bytes_fini(&call);
    flyt_bytes_fini(&plain);
    free_listener(listener);
    stands_at = (struct timespec){0};
}

/* Silent ones of one user of this machine, without end, over a unix socket: others get in at once. */
static void test_one_user_keeps_nobody_out(void **state)
{
    enum { MANY = 3 * FLYT_GREETER_CONNECTIONS_MAX };
    struct flyt_bytes plain = make_handshake(10);
    char url[100], local_url[FLYT_URL_TEXT_BYTES];
    struct flyt_error err;
    int fds[MANY], local_fd, open_count = 0;

    assert_int_equal(__real_clock_gettime(CLOCK_MONOTONIC, &stands_at), 0);
    struct listener *listener = new_listener("tcp://127.0.0.1:0");
    unix_url(url, sizeof url);
    assert_int_equal(flyt_listen(url, &err, &local_fd, local_url), 0);
    assert_int_equal(flyt_greeter_listen(listener->greeter, local_fd), 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(flyt_connect(local_url, 2000, &err, &fds[i]), 0);
        if (i % 64 == 63)
            settle(listener);
    }
    int other = connect_from(listener, 7);
    assert_int_equal(send(other, plain.data, plain.used, 0), plain.used);
    settle(listener);
    assert_int_equal(listener->handshakes, 1);
    for (int i = 0; i < MANY; i++) {
        open_count += !is_closed(fds[i]);
        close(fds[i]);
    }
    assert_int_equal(open_count, FLYT_GREETER_CONNECTIONS_MAX - 1);
    close(other);
    flyt_bytes_fini(&plain);
    free_listener(listener);
    close(local_fd);
    flyt_unlisten(local_url);
    stands_at = (struct timespec){0};
}

/* One of each address: nobody has more than his share, who comes waits until one has gone. */
static void test_many_addresses_wait_for_each_other(void **state)
{
    enum { MANY = FLYT_GREETER_CONNECTIONS_MAX };
    struct flyt_bytes plain = make_handshake(10);
    int fds[MANY];

    struct listener *listener = new_listener("tcp://127.0.0.1:0");
    for (int i = 0; i < MANY; i++) {
        fds[i] = connect_from(listener, (unsigned)i + 10);
        if (i % 64 == 63)
            settle(listener);
    }
    int late = connect_from(listener, 5);
    assert_int_equal(send(late, plain.data, plain.used, 0), plain.used);
    settle(listener);
    assert_int_equal(listener->handshakes, 0);
    for (int i = 0; i < MANY; i++)
        assert_false(is_closed(fds[i]));
    close(fds[3]);
    settle(listener);
    assert_int_equal(listener->handshakes, 1);
    for (int i = 0; i < MANY; i++)
        if (i != 3)
            close(fds[i]);
    close(late);
    flyt_bytes_fini(&plain);
    free_listener(listener);
}

/* ---- the handshake's helpers ---- */

/* An older client's record ends before the proof, a newer one's goes on behind it. */
static void test_handshake_of_other_builds(void **state)
{
    struct flyt_bytes call = make_handshake_with(5, "who", "");
    flyt_handshake_args args;
    uint32_t xid, mark;

    mark = htonl(0x80000000u | (uint32_t)(call.used - 8));
    memcpy(call.data, &mark, 4);
    assert_int_equal(flyt_handshake_decode(call.data, call.used - 4, &xid, &args), 0);
    assert_int_equal(args.proof.flyt_late_bytes_len, 0);
    assert_memory_equal(args.credentials.credentials_val, "who", 3);
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
    assert_true(flyt_bytes_reserve(&call, 8));
    memset(call.data + call.used, 7, 8);
    mark = htonl(0x80000000u | (uint32_t)(call.used + 4));
    memcpy(call.data, &mark, 4);
    assert_int_equal(flyt_handshake_decode(call.data, call.used + 8, &xid, &args), 0);
    assert_int_equal(args.procedures.procedures_len, 5);
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
    flyt_bytes_fini(&call);
}

static void test_handshake_decode_takes_nothing_bad(void **state)
{
    struct flyt_bytes call = make_handshake(5);
    flyt_handshake_args args;
    struct flyt_error err;
    uint32_t xid;

    for (size_t cut = 0; cut < call.used; cut++)
        assert_int_equal(flyt_handshake_decode(call.data, cut, &xid, &args), -EBADMSG);
    call.data[4 + 23] = FLYT_QUERY; /* another procedure */
    assert_int_equal(flyt_handshake_decode(call.data, call.used, &xid, &args), -EBADMSG);
    call.data[4 + 23] = FLYT_HANDSHAKE;
    assert_int_equal(flyt_handshake_decode(call.data, call.used, &xid, &args), 0);
    assert_int_equal(flyt_handshake_check(&args, "own", &err), 0);
    args.base_hash[7] ^= 1;
    assert_int_equal(flyt_handshake_check(&args, "own", &err), -EPROTO);
    assert_non_null(strstr(err.text, "upgrade"));
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
    flyt_bytes_fini(&call);
}

static void test_handshake_accepts_equal_signatures(void **state)
{
    flyt_signature theirs[] = {{20, 1}, {17, 2}, {18, 3}, {400, 4}}, ours[] = {{17, 2}, {18, 9}, {19, 5}, {20, 1}};
    flyt_handshake_args args = {.procedures = {4, theirs}};
    u_int accepted[4];

    assert_int_equal(flyt_handshake_accept(&args, ours, 4, accepted), 2);
    assert_int_equal(accepted[0], 20);
    assert_int_equal(accepted[1], 17);
}

static void test_handshake_reply_is_bounded(void **state)
{
    char *message = malloc(FLYT_STRING_BYTES_MAX + 2);
    flyt_handshake_res res = {.message = message};
    void *record = NULL;
    size_t bytes;

    memset(message, 'm', FLYT_STRING_BYTES_MAX + 1);
    message[FLYT_STRING_BYTES_MAX + 1] = 0;
    assert_int_equal(flyt_handshake_encode_reply(1, &res, &record, &bytes), -EINVAL);
    message[FLYT_STRING_BYTES_MAX] = 0;
    assert_int_equal(flyt_handshake_encode_reply(1, &res, &record, &bytes), 0);
    free(record);
    free(message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listen_and_connect_tcp),
        cmocka_unit_test(test_unix_socket_file),
        cmocka_unit_test(test_unix_socket_of_a_machine),
        cmocka_unit_test(test_handshake_is_handed_over_whole),
        cmocka_unit_test(test_stock_client_needs_no_session),
        cmocka_unit_test(test_bad_guests_are_turned_away),
        cmocka_unit_test(test_guests_are_few),
        cmocka_unit_test(test_challenge_and_answer),
        cmocka_unit_test(test_answer_must_be_of_the_same_handshake),
        cmocka_unit_test(test_challenged_guests_are_few),
        cmocka_unit_test(test_one_address_keeps_nobody_out),
        cmocka_unit_test(test_one_user_keeps_nobody_out),
        cmocka_unit_test(test_many_addresses_wait_for_each_other),
        cmocka_unit_test(test_handshake_of_other_builds),
        cmocka_unit_test(test_handshake_decode_takes_nothing_bad),
        cmocka_unit_test(test_handshake_accepts_equal_signatures),
        cmocka_unit_test(test_handshake_reply_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
