/* TLS between peers: who is let in with which certificate, and who is not; what happens before and without TLS. */
#include "control/base/test_door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include "control/base/tls.h"
#include "control/base/tls_role.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/listen.h"

enum { PATH_BYTES = 256 };

static char folder[] = "/tmp/flyt-tls-XXXXXX"; /* certificates for all tests, made once */

static void pki(const char *arguments)
{
    char command[512];

    snprintf(command, sizeof command, "cd %s && '%s' %s >/dev/null", folder, FLYT_PKI, arguments);
    assert_int_equal(system(command), 0);
}

static const char *path(const char *file)
{
    static char paths[8][PATH_BYTES];
    static unsigned next;
    char *text = paths[next++ % 8];

    snprintf(text, PATH_BYTES, "%s/%s", folder, file);
    return text;
}

static X509 *read_certificate(const char *file)
{
    FILE *stream = fopen(path(file), "r");

    assert_non_null(stream);
    X509 *certificate = PEM_read_X509(stream, NULL, NULL, NULL);
    fclose(stream);
    assert_non_null(certificate);
    return certificate;
}

static EVP_PKEY *read_key(const char *file)
{
    FILE *stream = fopen(path(file), "r");

    assert_non_null(stream);
    EVP_PKEY *key = PEM_read_PrivateKey(stream, NULL, NULL, NULL);
    fclose(stream);
    assert_non_null(key);
    return key;
}

/* The same certificate, signed again by the CA, but it ended an hour ago. */
static void expire(const char *file)
{
    X509 *certificate = read_certificate(file);
    EVP_PKEY *key = read_key("ca/ca-key.pem");

    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(certificate), -7200));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(certificate), -3600));
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    FILE *stream = fopen(path(file), "w");
    assert_non_null(stream);
    assert_int_equal(PEM_write_X509(stream, certificate), 1);
    fclose(stream);
    EVP_PKEY_free(key);
    X509_free(certificate);
}

static int make_certificates(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    pki("init ca");
    pki("init other --name 'Somebody else'");
    pki("issue ca manager m1 --host 127.0.0.1 --host localhost --host ::1");
    pki("issue ca manager elsewhere --host manager.example --host 192.0.2.1");
    pki("issue ca manager old --host 127.0.0.1");
    pki("issue ca node n1");
    pki("issue ca node n2");
    pki("issue ca node old");
    pki("issue ca operator alice");
    pki("issue ca vm 10.0.0.7 --days 2");
    pki("issue other node n1");
    pki("issue other manager m1 --host 127.0.0.1");
    expire("ca/node-old.pem");
    expire("ca/manager-old.pem");
    return 0;
}

static int remove_certificates(void **state)
{
    char command[64];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static struct flyt_tls *tls_of(const char *authority, const char *name, bool is_server)
{
    char certificate[PATH_BYTES], key[PATH_BYTES];
    struct flyt_error err = {0};
    struct flyt_tls *tls;

    snprintf(certificate, sizeof certificate, "%s/%s.pem", folder, name);
    snprintf(key, sizeof key, "%s/%s-key.pem", folder, name);
    const struct flyt_tls_files files = {path(authority), certificate, key};
    if (flyt_tls_new(&files, is_server, &err, &tls))
        fail_msg("%s", err.text);
    return tls;
}

struct fixture {
    sd_event *event;
    struct test_door door;
    struct test_side client;
    struct flyt_tls *server_tls, *client_tls;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    if (!f || sd_event_new(&f->event) < 0)
        return -1;
    test_door_init(&f->door, f->event, &test_program);
    test_side_init(&f->client, f->event, &test_program);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    flyt_peer_close(f->client.peer);
    test_door_close(&f->door);
    flyt_tls_free(f->server_tls);
    flyt_tls_free(f->client_tls);
    sd_event_unref(f->event);
    free(f);
    return 0;
}

static void open_door(struct fixture *f, const char *authority, const char *name)
{
    f->server_tls = tls_of(authority, name, true);
    test_door_open(&f->door, "tcp://127.0.0.1:0", f->server_tls);
}

static struct flyt_peer *begin(struct fixture *f, const char *url)
{
    struct flyt_error err = {0};
    struct flyt_peer *peer;

    if (flyt_peer_connect(url, f->client_tls, &f->client.config, 0, &err, &peer))
        fail_msg("%s", err.text);
    return peer;
}

static void connect_as(struct fixture *f, const char *name)
{
    if (name)
        f->client_tls = tls_of("ca/ca.pem", name, false);
    begin(f, f->door.url);
    test_run_until(f->event, f->client.ended_count || (f->client.ready_count && f->door.side.ready_count));
    if (f->client.ended_count)
        fail_msg("%s", f->client.cause.text);
}

/* The connection ends before it is ready, with these words in the cause. */
static void expect_refused(struct fixture *f, const char *words)
{
    struct test_outcomes outcomes = {0};
    struct flyt_peer *peer = begin(f, f->door.url);

    assert_int_equal(test_call(peer, TEST_ECHO, 1, 0, &outcomes), 0);
    test_run_until(f->event, f->client.ended_count || outcomes.good_count);
    assert_int_equal(f->client.ready_count, 0);
    assert_int_equal(f->door.side.served_count, 0);
    assert_int_equal(outcomes.last_status, -EPIPE);
    if (!strstr(f->client.cause.text, words))
        fail_msg("'%s' has not '%s'", f->client.cause.text, words);
}

/* ---- who one is ---- */

static void expect_identity(struct fixture *f, const char *file, enum flyt_role role, const char *name)
{
    const struct flyt_identity *identity = flyt_peer_identity(f->door.side.peer);
    X509 *certificate = read_certificate(file);
    BIGNUM *serial = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), NULL);
    char *text = BN_bn2hex(serial);

    assert_int_equal(identity->role, role);
    assert_string_equal(identity->name, name);
    assert_int_equal(strcasecmp(identity->serial, text), 0);
    assert_memory_equal(&f->door.asked, identity, sizeof *identity);
    OPENSSL_free(text);
    BN_free(serial);
    X509_free(certificate);
}

static void test_node_is_known_by_its_certificate(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    connect_as(f, "ca/node-n1");
    expect_identity(f, "ca/node-n1.pem", FLYT_ROLE_NODE, "n1");
    assert_int_equal(flyt_peer_identity(f->client.peer)->role, FLYT_ROLE_MANAGER);
    assert_string_equal(flyt_peer_identity(f->client.peer)->name, "m1");
    assert_int_equal(flyt_peer_call(f->client.peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_NODE, NULL, NULL,
                                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), 0, test_done_outcome, &outcomes),
                     0);
    assert_int_equal(test_call(f->door.side.peer, TEST_ECHO, 9, 0, &outcomes), 0);
    test_run_until(f->event, outcomes.done_count == 2);
    assert_int_equal(outcomes.good_count, 2);
}

static void test_operator_may_not_call_what_is_a_nodes(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    connect_as(f, "ca/operator-alice");
    expect_identity(f, "ca/operator-alice.pem", FLYT_ROLE_OPERATOR, "alice");
    assert_int_equal(flyt_peer_call(f->client.peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_NODE, NULL, NULL,
                                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), 0, test_done_outcome, &outcomes),
                     0);
    test_run_until(f->event, outcomes.done_count);
    assert_int_equal(outcomes.last_status, -EACCES);
    assert_int_equal(f->door.side.served_count, 0);
}

static void test_names_and_ipv6_are_hosts_too(void **state)
{
    struct fixture *f = *state;
    char url[64];

    f->server_tls = tls_of("ca/ca.pem", "ca/manager-m1", true);
    f->client_tls = tls_of("ca/ca.pem", "ca/vm-10.0.0.7", false);
    test_door_open(&f->door, "tcp://:0", f->server_tls);
    const char *port = strrchr(f->door.url, ':');
    static const char *const hosts[] = {"localhost", "[::1]", "127.0.0.1"};
    for (unsigned i = 0; i < 3; i++) {
        snprintf(url, sizeof url, "tcp://%s%s", hosts[i], port);
        begin(f, url);
        test_run_until(f->event, f->client.ended_count || f->door.side.ready_count == i + 1);
        test_run_until(f->event, f->client.ended_count || f->client.ready_count == i + 1);
        assert_int_equal(f->client.ended_count, 0);
        expect_identity(f, "ca/vm-10.0.0.7.pem", FLYT_ROLE_VM, "10.0.0.7");
        f->client.peer = flyt_peer_close(f->client.peer);
        test_run_until(f->event, f->door.side.ended_count == i + 1);
    }
    snprintf(url, sizeof url, "tcp://127.0.0.2%s", port);
    begin(f, url);
    test_run_until(f->event, f->client.ended_count);
    assert_non_null(strstr(f->client.cause.text, "IP address mismatch"));
}

/* ---- who is not let in ---- */

#define REFUSED(test, server_ca, server, client_ca, client, words)                                                     \
    static void test(void **state)                                                                                     \
    {                                                                                                                  \
        struct fixture *f = *state;                                                                                    \
                                                                                                                       \
        open_door(f, server_ca, server);                                                                               \
        f->client_tls = tls_of(client_ca, client, false);                                                              \
        expect_refused(f, words);                                                                                      \
    }

REFUSED(test_node_of_another_ca, "ca/ca.pem", "ca/manager-m1", "ca/ca.pem", "other/node-n1", "unknown ca")
REFUSED(test_manager_of_another_ca, "ca/ca.pem", "other/manager-m1", "ca/ca.pem", "ca/node-n1",
        "certificate is refused")
REFUSED(test_expired_node, "ca/ca.pem", "ca/manager-m1", "ca/ca.pem", "ca/node-old", "certificate expired")
REFUSED(test_expired_manager, "ca/ca.pem", "ca/manager-old", "ca/ca.pem", "ca/node-n1", "certificate has expired")
REFUSED(test_manager_elsewhere, "ca/ca.pem", "ca/manager-elsewhere", "ca/ca.pem", "ca/node-n1", "mismatch")
REFUSED(test_node_as_a_server, "ca/ca.pem", "ca/node-n1", "ca/ca.pem", "ca/node-n2", "certificate")
REFUSED(test_manager_as_a_client, "ca/ca.pem", "ca/manager-m1", "ca/ca.pem", "ca/manager-elsewhere", "alert")

static void test_revoked_by_admission(void **state)
{
    struct fixture *f = *state;

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    f->door.refuse = "n1";
    f->client_tls = tls_of("ca/ca.pem", "ca/node-n1", false);
    expect_refused(f, "closed the connection");
    assert_int_equal(f->door.side.ready_count, 0);
    assert_int_equal(f->door.side.ended_count, 0);
    f->client.ended_count = 0;
    flyt_tls_free(f->client_tls);
    connect_as(f, "ca/node-n2");
}

/* ---- joining ---- */

static void join(struct fixture *f, const char *authority)
{
    unsigned char hash[32];
    struct flyt_error err;

    assert_int_equal(flyt_tls_fingerprint(path(authority), &err, hash), 0);
    assert_int_equal(flyt_tls_new_joining(hash, &err, &f->client_tls), 0);
}

static void test_joining_client_is_anonymous(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    join(f, "ca/ca.pem");
    assert_int_equal(flyt_tls_expires(f->client_tls), 0);
    connect_as(f, NULL);
    assert_int_equal(flyt_peer_identity(f->door.side.peer)->role, FLYT_ROLE_ANONYMOUS);
    assert_string_equal(flyt_peer_identity(f->door.side.peer)->name, "");
    assert_int_equal(test_call(f->client.peer, TEST_ECHO, 5, 0, &outcomes), 0);
    test_run_until(f->event, outcomes.done_count);
    assert_int_equal(outcomes.good_count, 1);
    assert_string_equal(f->door.asked.name, ""); /* admission is for those who have an identity */
}

static void test_anonymous_connection_is_short(void **state)
{
    struct fixture *f = *state;

    f->door.config.anonymous_ms = 3000; /* who has no certificate is known by then */
    open_door(f, "ca/ca.pem", "ca/manager-m1");
    join(f, "ca/ca.pem");
    connect_as(f, NULL);
    test_run_until(f->event, f->client.ended_count && f->door.side.ended_count);
    assert_int_equal(f->door.side.cause.code, -ETIMEDOUT);
}

static void test_joining_trusts_one_ca_only(void **state)
{
    struct fixture *f = *state;

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    join(f, "other/ca.pem");
    expect_refused(f, "certificate is refused");
}

static void test_joining_checks_host_and_role(void **state)
{
    struct fixture *f = *state;

    open_door(f, "ca/ca.pem", "ca/manager-elsewhere");
    join(f, "ca/ca.pem");
    expect_refused(f, "mismatch");
}

static void test_anonymous_is_refused_where_nothing_is_for_it(void **state)
{
    struct fixture *f = *state;

    test_door_init(&f->door, f->event, &test_known_program);
    open_door(f, "ca/ca.pem", "ca/manager-m1");
    join(f, "ca/ca.pem");
    expect_refused(f, "certificate required");
}

/* ---- before and without TLS ---- */

enum { AUTH_TLS_FLAVOUR = 7 };
static const uint32_t null_words[] = {CALL, 2, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, 0, 0, 0, 0, 0};
static const uint32_t echo_words[] = {CALL, 2, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_ECHO, 0, 0, 0, 0};
static const uint32_t tls_words[] = {CALL, 2, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, 0, AUTH_TLS_FLAVOUR, 0, 0, 0};

static int raw_with(struct fixture *f, const uint32_t *words, const void *more, size_t more_bytes)
{
    unsigned char data[256];
    int fd = test_raw_connect(f->door.url);
    size_t bytes = test_raw_call(data, 0x11223344, words, 9);

    if (more_bytes)
        memcpy(data + bytes, more, more_bytes);
    assert_int_equal(test_raw_write(f->event, fd, data, bytes + more_bytes), bytes + more_bytes);
    return fd;
}

static void expect_reply(struct fixture *f, int fd, const char *expected, size_t bytes)
{
    char reply[64] = {0};

    assert_int_equal(test_raw_read(f->event, fd, reply, bytes), bytes);
    assert_memory_equal(reply, expected, bytes);
}

static const char starttls[] = "\x80\0\0\x20\x11\x22\x33\x44\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\10STARTTLS\0\0\0";

static void test_only_the_null_call_works_in_clear(void **state)
{
    struct fixture *f = *state;

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    int fd = raw_with(f, null_words, NULL, 0);
    expect_reply(f, fd, "\x80\0\0\x18\x11\x22\x33\x44\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 28);
    close(fd);
    fd = raw_with(f, echo_words, NULL, 0); /* MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK */
    expect_reply(f, fd, "\x80\0\0\x14\x11\x22\x33\x44\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\5", 24);
    close(fd);
    assert_int_equal(f->door.side.served_count, 0);
    assert_int_equal(f->door.side.ready_count, 0);
}

static void test_nothing_in_clear_is_taken_for_what_came_through_tls(void **state)
{
    struct fixture *f = *state;
    unsigned char call[64], byte;
    size_t bytes = test_raw_call(call, 1, null_words, 9);

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    int fd = raw_with(f, tls_words, call, bytes);
    assert_int_equal(test_raw_read(f->event, fd, &byte, 1), 0);
    close(fd);
}

static void test_garbage_instead_of_a_handshake(void **state)
{
    struct fixture *f = *state;
    unsigned char call[64], alert[64];
    size_t bytes = test_raw_call(call, 1, echo_words, 9);

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    int fd = raw_with(f, tls_words, NULL, 0);
    expect_reply(f, fd, starttls, sizeof starttls);
    test_raw_write(f->event, fd, call, bytes);
    assert_in_range(test_raw_read(f->event, fd, alert, sizeof alert), 0, sizeof alert - 1);
    close(fd);
    assert_int_equal(f->door.side.served_count, 0);
}

static void test_half_open_connections_end(void **state)
{
    struct fixture *f = *state;
    unsigned char byte;

    f->door.config.anonymous_ms = 2000; /* one is answered by then */
    open_door(f, "ca/ca.pem", "ca/manager-m1");
    int silent = test_raw_connect(f->door.url), waiting = raw_with(f, tls_words, NULL, 0);
    expect_reply(f, waiting, starttls, sizeof starttls);
    assert_int_equal(test_raw_read(f->event, silent, &byte, 1), 0);
    assert_int_equal(test_raw_read(f->event, waiting, &byte, 1), 0);
    close(silent);
    close(waiting);
}

static void test_client_with_tls_refuses_a_clear_door(void **state)
{
    struct fixture *f = *state;

    test_door_open(&f->door, "tcp://127.0.0.1:0", NULL);
    f->client_tls = tls_of("ca/ca.pem", "ca/node-n1", false);
    expect_refused(f, "does not speak TLS");
}

static void count_key_updates(int is_sent, int version, int type, const void *data, size_t bytes, SSL *ssl, void *user)
{
    if (!is_sent && type == SSL3_RT_HANDSHAKE && bytes && *(const unsigned char *)data == SSL3_MT_KEY_UPDATE)
        ++*(unsigned *)user;
}

/* A handshake of our own after STARTTLS, and so many calls. Whether it came to its end and each call's answer could be
 * read; how many keys were replaced meanwhile (NULL: not asked for). */
static bool shake_hands(struct fixture *f, int version, const char *alpn, unsigned call_count,
                        unsigned *ret_key_updates)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    int fd = raw_with(f, tls_words, NULL, 0);
    unsigned key_updates = 0;
    char data[64];
    int done = 0;

    expect_reply(f, fd, starttls, sizeof starttls);
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    SSL_set_msg_callback(ssl, count_key_updates);
    SSL_set_msg_callback_arg(ssl, &key_updates);
    if (alpn)
        SSL_set_alpn_protos(ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    SSL_set_connect_state(ssl);
    for (unsigned is_shaking = 1; is_shaking;) {
        done = SSL_do_handshake(ssl);
        is_shaking = done != 1 && SSL_get_error(ssl, done) == SSL_ERROR_WANT_READ;
        sd_event_run(f->event, 1000);
    }
    bool is_good = done == 1;
    for (unsigned i = 0; i < call_count && is_good; i++) {
        SSL_write(ssl, data, (int)test_raw_call((unsigned char *)data, 1, null_words, 9));
        while ((done = SSL_read(ssl, data, sizeof data)) <= 0 && SSL_get_error(ssl, done) == SSL_ERROR_WANT_READ)
            sd_event_run(f->event, 1000);
        is_good = done > 0;
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    if (ret_key_updates)
        *ret_key_updates = key_updates;
    return is_good;
}

static void test_tls_1_3_and_sunrpc_only(void **state)
{
    struct fixture *f = *state;

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    assert_true(shake_hands(f, TLS1_3_VERSION, "\6sunrpc", 1, NULL));
    assert_false(shake_hands(f, TLS1_2_VERSION, "\6sunrpc", 1, NULL));
    assert_false(shake_hands(f, TLS1_3_VERSION, "\2h2", 1, NULL));
    assert_int_equal(f->door.side.ready_count, 1);
    assert_false(shake_hands(f, TLS1_3_VERSION, NULL, 1, NULL));
}

/* Each of a few records, the last of them the message that the next key is used from now on. */
static void test_a_key_protects_so_many_records(void **state)
{
    struct fixture *f = *state;
    unsigned key_updates;

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    assert_true(shake_hands(f, TLS1_3_VERSION, "\6sunrpc", 10, &key_updates));
    assert_int_equal(key_updates, 0);
    flyt_tls_limit_key(f->server_tls, 4);
    assert_true(shake_hands(f, TLS1_3_VERSION, "\6sunrpc", 10, &key_updates));
    assert_int_equal(key_updates, 3);
}

/* ---- much ---- */

static void done_big(void *user, int status, void *result)
{
    struct test_outcomes *outcomes = user;
    const flyt_view_res *view = result;

    outcomes->done_count++;
    assert_int_equal(status, 0);
    for (u_int i = 0; i < view->json.json_len; i++) {
        if (view->json.json_val[i] != (char)(i * 31 + (i >> 12)))
            fail_msg("byte %u is another", i);
    }
    outcomes->last_bytes += view->json.json_len;
}

/* With keys that protect so many records (0: as many as they ever do). */
static void exchange_much(struct fixture *f, unsigned key_records)
{
    enum { COUNT = 6, SMALL = 1000 };
    flyt_view_args args = {.view = (char *)"x", .wait_ms = FLYT_VIEW_BYTES_MAX};
    struct test_outcomes outcomes = {0}, small = {0};

    open_door(f, "ca/ca.pem", "ca/manager-m1");
    f->client_tls = tls_of("ca/ca.pem", "ca/node-n1", false);
    if (key_records) {
        flyt_tls_limit_key(f->server_tls, key_records);
        flyt_tls_limit_key(f->client_tls, key_records);
    }
    connect_as(f, NULL);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(flyt_peer_call(f->client.peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_BIG,
                                        (xdrproc_t)xdr_flyt_view_args, &args, (xdrproc_t)xdr_flyt_view_res,
                                        sizeof(flyt_view_res), 0, done_big, &outcomes),
                         0);
    for (unsigned i = 0; i < SMALL; i++)
        assert_int_equal(test_call(f->client.peer, TEST_ECHO, i, 0, &small), 0);
    test_run_until(f->event, outcomes.done_count == COUNT && small.done_count == SMALL);
    assert_int_equal(outcomes.last_bytes, (size_t)COUNT * FLYT_VIEW_BYTES_MAX);
    assert_int_equal(small.good_count, SMALL);
}

static void test_large_answers_and_many_calls(void **state)
{
    exchange_much(*state, 0);
}

static void test_much_under_many_keys(void **state)
{
    exchange_much(*state, 3);
}

/* ---- a line that breaks ---- */

/* Between a client and the door: passes bytes on until the `at`th of one direction, which it spoils or cuts off. */
struct relay {
    int listen_fd, fds[2]; /* the client's end, the door's end */
    char url[300];
    unsigned direction; /* 0: what the client sends */
    size_t at, passed_bytes[2];
    bool is_cut;
};

static void relay_open(struct relay *relay, unsigned direction, size_t at, bool is_cut)
{
    struct flyt_error err;

    *relay = (struct relay){.fds = {-1, -1}, .direction = direction, .at = at, .is_cut = is_cut};
    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &relay->listen_fd, relay->url), 0);
    assert_int_equal(fcntl(relay->listen_fd, F_SETFL, O_NONBLOCK), 0); /* the loop connects, some turns later */
}

static void relay_close(struct relay *relay)
{
    for (unsigned i = 0; i < 2; i++)
        relay->fds[i] = flyt_close(relay->fds[i]);
    relay->listen_fd = flyt_close(relay->listen_fd);
}

static void relay_pass(struct relay *relay, unsigned from)
{
    unsigned char data[1024];
    ssize_t bytes = recv(relay->fds[from], data, sizeof data, MSG_DONTWAIT);

    if (!bytes)
        shutdown(relay->fds[!from], SHUT_WR);
    if (bytes <= 0)
        return;
    size_t before = relay->passed_bytes[from], after = before + (size_t)bytes;
    relay->passed_bytes[from] = after;
    if (from == relay->direction && before <= relay->at && relay->at < after) {
        data[relay->at - before] ^= 1;
        if (relay->is_cut)
            bytes = (ssize_t)(relay->at - before);
    }
    assert_true(send(relay->fds[!from], data, (size_t)bytes, MSG_NOSIGNAL) == bytes || errno == EPIPE ||
                errno == ECONNRESET);
    if (relay->is_cut && from == relay->direction && relay->at < after) {
        for (unsigned i = 0; i < 2; i++)
            shutdown(relay->fds[i], SHUT_RDWR);
    }
}

static void relay_run(struct relay *relay, const char *door_url)
{
    if (relay->fds[0] < 0) {
        relay->fds[0] = accept4(relay->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (relay->fds[0] >= 0)
            relay->fds[1] = test_raw_connect(door_url);
        return;
    }
    relay_pass(relay, 0);
    relay_pass(relay, 1);
}

/* What became of a call: the line broke before the answer was there; or had not, and the call had been answered, or had
 * run out of time. */
enum line { LINE_BROKEN, LINE_WHOLE, LINE_SLOW };

/* One connection and one call through a line that breaks; the call fails, or survives with the right answer. */
static enum line try_line(struct fixture *f, unsigned direction, size_t at, bool is_cut, unsigned *survived_count)
{
    struct test_outcomes outcomes = {0};
    struct flyt_error err;
    struct flyt_peer *peer;
    struct relay relay;

    f->client.ended_count = 0;
    relay_open(&relay, direction, at, is_cut);
    assert_int_equal(flyt_peer_connect(relay.url, f->client_tls, &f->client.config, 1000, &err, &peer), 0);
    assert_int_equal(test_call(peer, TEST_ECHO, at, 2000, &outcomes), 0);
    while (!outcomes.done_count) {
        sd_event_run(f->event, 200);
        relay_run(&relay, f->door.url);
    }
    bool is_broken = relay.at < relay.passed_bytes[direction];
    if (outcomes.good_count)
        assert_int_equal(outcomes.last_sequence, at);
    if (is_broken)
        *survived_count += outcomes.good_count;
    if (!f->client.ended_count)
        flyt_peer_close(peer);
    f->client.peer = NULL;
    relay_close(&relay);
    test_run_idle(f->event);
    return is_broken ? LINE_BROKEN : outcomes.good_count ? LINE_WHOLE : LINE_SLOW;
}

/* Whether it broke before the answer was there. What is spoiled is noticed by time alone in places, so there is a bound
 * of time, which a busy machine may not keep. */
static bool try_broken_line(struct fixture *f, unsigned direction, size_t at, bool is_cut, unsigned *survived_count)
{
    enum { TRIES = 20 };
    enum line line = LINE_SLOW;

    for (unsigned i = 0; i < TRIES && line == LINE_SLOW; i++)
        line = try_line(f, direction, at, is_cut, survived_count);
    assert_int_not_equal(line, LINE_SLOW);
    return line == LINE_BROKEN;
}

static void test_lines_that_break_at_any_byte(void **state)
{
    enum { STEP = 23 };
    struct fixture *f = *state;
    size_t at;

    f->door.config.anonymous_ms = 1000;
    open_door(f, "ca/ca.pem", "ca/manager-m1");
    f->client_tls = tls_of("ca/ca.pem", "ca/node-n1", false);
    for (unsigned direction = 0; direction < 2; direction++) {
        for (unsigned is_cut = 0; is_cut < 2; is_cut++) {
            unsigned survived_count = 0;
            for (at = 0; try_broken_line(f, direction, at, is_cut, &survived_count); at += STEP)
                assert_true(at < 20000);
            assert_true(at > 1000); /* certificates went both ways */
            /* Not every bit that goes in clear has a meaning: verifier, versions in heads of TLS records. */
            assert_in_range(survived_count, 0, is_cut ? 0 : 3);
        }
    }
    test_run_until(f->event, f->door.side.ended_count == f->door.side.ready_count);
}

/* ---- files ---- */

static void expect_not_loaded(const char *authority, const char *certificate, const char *key, const char *words)
{
    struct flyt_error err = {0};
    struct flyt_tls *tls = NULL;
    const struct flyt_tls_files files = {path(authority), path(certificate), path(key)};

    assert_true(flyt_tls_new(&files, true, &err, &tls) < 0);
    assert_null(tls);
    if (!strstr(err.text, words))
        fail_msg("'%s' has not '%s'", err.text, words);
}

static void test_files_that_cannot_be_used(void **state)
{
    expect_not_loaded("ca/none.pem", "ca/node-n1.pem", "ca/node-n1-key.pem", "CA's certificates");
    expect_not_loaded("ca/ca.pem", "ca/none.pem", "ca/node-n1-key.pem", "none.pem");
    expect_not_loaded("ca/ca.pem", "ca/node-n1.pem", "ca/none.pem", "No such file");
    expect_not_loaded("ca/ca.pem", "ca/node-n1.pem", "ca/node-n2-key.pem", "node-n2-key.pem");
    expect_not_loaded("ca/ca.pem", "ca/node-n1-key.pem", "ca/node-n1-key.pem", "cannot read the certificate");
    assert_int_equal(chmod(path("ca/node-n1-key.pem"), 0640), 0);
    expect_not_loaded("ca/ca.pem", "ca/node-n1.pem", "ca/node-n1-key.pem", "chmod 600");
    assert_int_equal(chmod(path("ca/node-n1-key.pem"), 0600), 0);
}

static void copy(const char *from, const char *to)
{
    char command[3 * PATH_BYTES];

    snprintf(command, sizeof command, "cp %s/%s %s/%s", folder, from, folder, to);
    assert_int_equal(system(command), 0);
}

static void test_renewed_files_are_used_from_then_on(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};

    copy("ca/node-n1.pem", "ca/renewed.pem");
    copy("ca/node-n1-key.pem", "ca/renewed-key.pem");
    open_door(f, "ca/ca.pem", "ca/manager-m1");
    connect_as(f, "ca/renewed");
    int64_t expires = flyt_tls_expires(f->client_tls);
    assert_in_range(expires, time(NULL) + 364 * 86400, time(NULL) + 365 * 86400);
    copy("ca/vm-10.0.0.7.pem", "ca/renewed.pem");
    assert_true(flyt_tls_reload(f->client_tls, &err) < 0); /* the key is another's */
    assert_int_equal(flyt_tls_expires(f->client_tls), expires);
    copy("ca/vm-10.0.0.7-key.pem", "ca/renewed-key.pem");
    assert_int_equal(flyt_tls_reload(f->client_tls, &err), 0);
    assert_in_range(flyt_tls_expires(f->client_tls), time(NULL) + 86400, time(NULL) + 2 * 86400);
    expect_identity(f, "ca/node-n1.pem", FLYT_ROLE_NODE, "n1");
    f->client.peer = flyt_peer_close(f->client.peer);
    begin(f, f->door.url);
    test_run_until(f->event, f->client.ready_count == 2 && f->door.side.ready_count == 2);
    expect_identity(f, "ca/vm-10.0.0.7.pem", FLYT_ROLE_VM, "10.0.0.7");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_node_is_known_by_its_certificate),
        TEST(test_operator_may_not_call_what_is_a_nodes),
        TEST(test_names_and_ipv6_are_hosts_too),
        TEST(test_node_of_another_ca),
        TEST(test_manager_of_another_ca),
        TEST(test_expired_node),
        TEST(test_expired_manager),
        TEST(test_manager_elsewhere),
        TEST(test_node_as_a_server),
        TEST(test_manager_as_a_client),
        TEST(test_revoked_by_admission),
        TEST(test_joining_client_is_anonymous),
        TEST(test_anonymous_connection_is_short),
        TEST(test_joining_trusts_one_ca_only),
        TEST(test_joining_checks_host_and_role),
        TEST(test_anonymous_is_refused_where_nothing_is_for_it),
        TEST(test_only_the_null_call_works_in_clear),
        TEST(test_nothing_in_clear_is_taken_for_what_came_through_tls),
        TEST(test_garbage_instead_of_a_handshake),
        TEST(test_half_open_connections_end),
        TEST(test_client_with_tls_refuses_a_clear_door),
        TEST(test_tls_1_3_and_sunrpc_only),
        TEST(test_a_key_protects_so_many_records),
        TEST(test_large_answers_and_many_calls),
        TEST(test_much_under_many_keys),
        TEST(test_lines_that_break_at_any_byte),
        TEST(test_files_that_cannot_be_used),
        TEST(test_renewed_files_are_used_from_then_on),
    };

    return cmocka_run_group_tests_name("tls", tests, make_certificates, remove_certificates);
}
