/* Where a session that was moved is: the client manager of this test grants anew each time that it is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "control.h"
#include "cpu/client/core/client.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/instance.h"
#include "rpc/base/machine.h"
#include "rpc/base/url.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/message.h"

enum { RECORD_BYTES_MAX = 65536, MARK_BYTES = 4, NOTICE_XID = 99 };

/* ---- a client manager ---- */

static struct {
    char url[FLYT_URL_TEXT_BYTES];
    int listen_fd;
    pthread_t thread;
    _Atomic(unsigned) asked_count, connection_count;
    _Atomic(bool) refuses, is_deaf, tells_news; /* deaf: ends a connection instead of answering */
    _Atomic(const char *) socket_of;            /* boot id: it names a unix socket there, last; NULL: none */
    _Atomic(bool) is_socket_alone, has_moved;   /* moved: every grant names other addresses */
} manager;

/* In the manager's thread, which is none of the test's. */
static void must(bool holds)
{
    if (!holds)
        abort();
}

static bool read_all(int fd, void *data, size_t bytes)
{
    return recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* Begins a record, behind room for its mark. */
static void begin_record(struct flyt_bytes *bytes, XDR *xdrs)
{
    *bytes = (struct flyt_bytes){.bytes_max = RECORD_BYTES_MAX};
    uint32_t mark = 0;
    flyt_xdr_encode_init(xdrs, bytes);
    must(xdr_opaque(xdrs, (char *)&mark, sizeof mark));
}

static void send_record(int fd, struct flyt_bytes *bytes)
{
    uint32_t mark = htonl(0x80000000u | (uint32_t)(bytes->used - MARK_BYTES));
    memcpy(bytes->data, &mark, sizeof mark);
    must(send(fd, bytes->data, bytes->used, MSG_NOSIGNAL) == (ssize_t)bytes->used);
    flyt_bytes_fini(bytes);
}

static void send_news(int fd)
{
    struct flyt_bytes bytes;
    XDR xdrs;
    static char text[] = "another GPU";
    flyt_local_changed_args changed = {.text = text};
    begin_record(&bytes, &xdrs);
    must(flyt_call_head_put(&xdrs, NOTICE_XID, FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, FLYT_LOCAL_CHANGED) &&
         xdr_flyt_local_changed_args(&xdrs, &changed));
    send_record(fd, &bytes);
}

/* The n-th grant: two addresses and credentials that say n. */
static void send_grant(int fd, unsigned n)
{
    struct flyt_bytes bytes;
    XDR xdrs;
    static char no_text[] = "", refusal[] = "it was taken away";
    char first[64], second[64], third[128], credentials = (char)n;
    flyt_url_text urls[] = {first, second, third};
    const char *socket_of = atomic_load(&manager.socket_of);
    bool is_socket_alone = atomic_load(&manager.is_socket_alone);
    unsigned host = atomic_load(&manager.has_moved) ? n : 0;
    snprintf(first, sizeof first, "tcp://10.0.0.%u:1", host);
    snprintf(second, sizeof second, "tcp://10.0.0.%u:2", host);
    flyt_local_attach_res res = {.outcome.text = no_text, .is_encrypted = n % 2};
    if (atomic_load(&manager.refuses)) {
        res.outcome.status = FLYT_STATUS_DENIED;
        res.outcome.text = refusal;
    } else {
        snprintf(third, sizeof third, "unix://%s/run/%u", socket_of ? socket_of : "", host);
        res.urls.urls_len = is_socket_alone ? 1 : socket_of ? 3 : 2;
        res.urls.urls_val = is_socket_alone ? &urls[2] : urls;
        res.credentials.credentials_len = 1;
        res.credentials.credentials_val = &credentials;
        memset(res.secret, (int)n, sizeof res.secret);
    }
    begin_record(&bytes, &xdrs);
    must(flyt_reply_head_put(&xdrs, 1) && xdr_flyt_local_attach_res(&xdrs, &res));
    send_record(fd, &bytes);
}

static void serve_program(int fd)
{
    static unsigned char record[RECORD_BYTES_MAX];
    uint32_t mark;
    while (read_all(fd, &mark, sizeof mark) && read_all(fd, record, ntohl(mark) & 0x7fffffff)) {
        if (atomic_load(&manager.is_deaf))
            return;
        if (atomic_load(&manager.tells_news))
            send_news(fd);
        send_grant(fd, atomic_fetch_add(&manager.asked_count, 1) + 1);
    }
}

static void *run_manager(void *user)
{
    int fd;
    while ((fd = accept(manager.listen_fd, NULL, NULL)) >= 0) {
        atomic_fetch_add(&manager.connection_count, 1);
        serve_program(fd);
        close(fd);
    }
    return NULL;
}

static int start_manager(void **state)
{
    struct flyt_error err;
    char url[128];
    snprintf(url, sizeof url, "unix:///tmp/flyt-locate-test-%d", (int)getpid());
    if (flyt_listen(url, &err, &manager.listen_fd, manager.url))
        return -1;
    setenv("FLYT_CLIENT_SOCKET", manager.url + strlen("unix://"), 1);
    unsetenv("FLYT_SERVER");
    return -pthread_create(&manager.thread, NULL, run_manager, NULL);
}

static int stop_manager(void **state)
{
    flyt_local_close(&flyt_client.local);
    shutdown(manager.listen_fd, SHUT_RDWR);
    pthread_join(manager.thread, NULL);
    close(manager.listen_fd);
    flyt_unlisten(manager.url);
    return 0;
}

/* ---- what the channel is told ---- */

static int ask(unsigned attempt, struct flyt_channel_place *place, struct flyt_error *err)
{
    *err = (struct flyt_error){0};
    return fake.handlers->locate(fake.user, attempt, place, err);
}

static void expect_grant(const struct flyt_channel_place *place, unsigned n, unsigned port)
{
    char url[64];
    snprintf(url, sizeof url, "tcp://10.0.0.%u:%u", atomic_load(&manager.has_moved) ? n : 0, port);
    assert_string_equal(place->url, url);
    assert_int_equal(place->credentials.bytes, 1);
    assert_int_equal(*(const char *)place->credentials.data, n);
    assert_int_equal(place->credentials.secret[FLYT_TICKET_KEY_BYTES - 1], n);
    assert_int_equal(place->credentials.is_encrypted, n % 2);
}

/* Each try has a new grant, and the addresses take turns. */
static void test_it_is_granted_anew(void **state)
{
    struct flyt_channel_place place = {0};
    struct flyt_error err;
    assert_int_equal(flyt_client_init(), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&manager.asked_count), 1);
    for (unsigned attempt = 0; attempt < 5; attempt++) {
        assert_int_equal(ask(attempt, &place, &err), 0);
        expect_grant(&place, attempt + 2, attempt % 2 + 1);
    }
    assert_int_equal(atomic_load(&manager.connection_count), 1);
}

/* Addresses of another node begin with the first one, whichever try it is; from there on they take turns. */
static void test_another_node_begins_with_its_first_address(void **state)
{
    struct flyt_channel_place place = {0};
    struct flyt_error err;
    unsigned n = atomic_load(&manager.asked_count);
    atomic_store(&manager.has_moved, true);
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        assert_int_equal(ask(attempt, &place, &err), 0);
        expect_grant(&place, ++n, 1);
    }
    atomic_store(&manager.has_moved, false);
    for (unsigned attempt = 3; attempt < 7; attempt++) {
        assert_int_equal(ask(attempt, &place, &err), 0);
        expect_grant(&place, ++n, attempt % 2 ? 1 : 2);
    }
}

/* What devices are like is to be asked again there; so it is after a notice that came in between. */
static void test_that_is_news(void **state)
{
    struct flyt_channel_place place = {0};
    struct flyt_error err;
    flyt_client_has_changed();
    assert_false(flyt_client_has_changed());
    assert_int_equal(ask(0, &place, &err), 0);
    assert_true(flyt_client_has_changed());
    assert_false(flyt_client_has_changed());
    atomic_store(&manager.tells_news, true);
    assert_int_equal(flyt_local_attach(&flyt_client.local, &err), 0);
    atomic_store(&manager.tells_news, false);
    assert_true(flyt_client_has_changed());
    assert_false(flyt_client_has_changed());
}

/* Where nothing is granted, or nobody answers, the place stays what it was, and the next try may succeed. */
static void test_a_refusal_changes_nothing(void **state)
{
    struct flyt_channel_place place = {.url = "tcp://10.9.9.9:9"};
    struct flyt_error err;
    atomic_store(&manager.refuses, true);
    assert_int_equal(ask(0, &place, &err), -EACCES);
    assert_non_null(strstr(err.text, "it was taken away"));
    atomic_store(&manager.refuses, false);
    atomic_store(&manager.is_deaf, true);
    assert_int_equal(ask(1, &place, &err), -EPIPE);
    assert_string_equal(place.url, "tcp://10.9.9.9:9");
    assert_null(place.credentials.data);
    atomic_store(&manager.is_deaf, false);
    unsigned before = atomic_load(&manager.asked_count);
    assert_int_equal(ask(2, &place, &err), 0);
    expect_grant(&place, before + 1, 1);
}

/* A unix socket of this machine is tried first, and one of another machine not at all. */
static void test_its_own_machine_comes_first(void **state)
{
    static const char elsewhere[] = "0a1b2c3d-1111-4222-8333-0123456789ac";
    char boot_id[FLYT_URL_BOOT_ID_BYTES], url[128];
    struct flyt_channel_place place = {0};
    struct flyt_error err;
    unsigned n = atomic_load(&manager.asked_count);

    flyt_machine_boot_id(boot_id);
    snprintf(url, sizeof url, "unix://%s/run/0", boot_id);
    atomic_store(&manager.socket_of, boot_id);
    for (unsigned attempt = 0; attempt < 6; attempt++) {
        assert_int_equal(ask(attempt, &place, &err), 0);
        n++;
        if (attempt % 3)
            expect_grant(&place, n, attempt % 3);
        else
            assert_string_equal(place.url, url);
    }
    atomic_store(&manager.socket_of, elsewhere);
    for (unsigned attempt = 0; attempt < 4; attempt++) {
        assert_int_equal(ask(attempt, &place, &err), 0);
        expect_grant(&place, ++n, attempt % 2 + 1);
    }
    atomic_store(&manager.is_socket_alone, true);
    assert_int_equal(ask(0, &place, &err), -EPROTO);
    assert_non_null(strstr(err.text, "another machine"));
    expect_grant(&place, n, 2);
    atomic_store(&manager.is_socket_alone, false);
    atomic_store(&manager.socket_of, NULL);
}

/* With a server that FLYT_SERVER named nobody is asked, and it is where it was. In a child, which has not connected. */
static void test_a_named_server_stays_where_it_is(void **state)
{
    int status = -1;
    pid_t child = fork();
    if (!child) {
        struct flyt_channel_place place = {.url = "tcp://10.9.9.9:9"};
        struct flyt_error err;
        setenv("FLYT_SERVER", "unix:///nowhere", 1);
        bool is_right = !flyt_client_init() && !ask(0, &place, &err) && !strcmp(place.url, "tcp://10.9.9.9:9") &&
                        !place.credentials.data && !atomic_load(&manager.asked_count);
        _exit(is_right ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_named_server_stays_where_it_is), /* before this process connects */
        cmocka_unit_test(test_it_is_granted_anew),
        cmocka_unit_test(test_another_node_begins_with_its_first_address),
        cmocka_unit_test(test_that_is_news),
        cmocka_unit_test(test_a_refusal_changes_nothing),
        cmocka_unit_test(test_its_own_machine_comes_first),
    };
    return cmocka_run_group_tests(tests, start_manager, stop_manager);
}
