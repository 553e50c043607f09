/* Tests of vsock sockets. Those that connect do so within the machine (CID 1), and are skipped where its kernel cannot:
 * module vsock_loopback. `make vm-test` runs all of them in a guest whose kernel can. Nothing is sent to the host. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "flyt_client_calls.h"
#include "rpc/base/vsock.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/test_client.h"
#include "rpc/transport/test_peer.h"

enum { OF_NOBODY = UINT32_MAX - 1, PATIENCE_MS = 60000, TRANSFER_BYTES = (4 << 20) + 3 };

static const char within_machine[] = "vsock://1:0";

static void need_loopback(void)
{
    struct flyt_vsock_machine machine;

    flyt_vsock_look(&machine);
    if (machine.has_loopback)
        return;
    print_message("skipped: this kernel has no vsock within the machine (module vsock_loopback)\n");
    skip();
}

static void test_where_a_number_leads(void **state)
{
    static const struct {
        struct flyt_vsock_machine machine;
        uint32_t cid;
        int status;
        const char *word;
    } cases[] = {
        {{.own_cid = 3}, FLYT_URL_CID_HOST, 0, ""},
        {{.own_cid = UINT32_MAX - 1}, FLYT_URL_CID_HOST, 0, ""},
        /* The kernel would connect to a process of this machine: anybody's. */
        {{.own_cid = FLYT_URL_CID_LOCAL, .has_loopback = true}, FLYT_URL_CID_HOST, -EHOSTUNREACH, "guest"},
        {{.own_cid = FLYT_URL_CID_HOST, .has_loopback = true}, FLYT_URL_CID_HOST, -EHOSTUNREACH, "guest"},
        {{.own_cid = FLYT_URL_VSOCK_ANY, .has_loopback = true}, FLYT_URL_CID_HOST, -EHOSTUNREACH, "/dev/vsock"},
        /* It would send this to the host. */
        {{.own_cid = 3}, FLYT_URL_CID_LOCAL, -EADDRNOTAVAIL, "vsock_loopback"},
        {{.own_cid = 3, .has_loopback = true}, FLYT_URL_CID_LOCAL, 0, ""},
        {{.own_cid = FLYT_URL_CID_HOST}, 7, 0, ""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flyt_error err = {0};
        assert_int_equal(flyt_vsock_check(&cases[i].machine, cases[i].cid, &err), cases[i].status);
        if (!strstr(err.text, cases[i].word))
            fail_msg("case %zu: '%s' does not name '%s'", i, err.text, cases[i].word);
    }
}

static void test_addresses(void **state)
{
    struct flyt_url url = {.scheme = FLYT_URL_VSOCK, .cid = FLYT_URL_VSOCK_ANY};

    assert_int_equal(flyt_vsock_listener(&url).svm_cid, VMADDR_CID_ANY);
    assert_int_equal(flyt_vsock_listener(&url).svm_port, VMADDR_PORT_ANY);
    url.port = 5;
    assert_int_equal(flyt_vsock_peer(&url).svm_cid, VMADDR_CID_LOCAL);
    assert_int_equal(flyt_vsock_peer(&url).svm_port, 5);
    url.cid = 9;
    assert_int_equal(flyt_vsock_listener(&url).svm_port, 5);
    assert_int_equal(flyt_vsock_peer(&url).svm_cid, 9);
}

/* Also without vsock in the kernel. */
static void test_a_sentence_where_it_is_not_to_be_had(void **state)
{
    char url[FLYT_URL_TEXT_BYTES], text[FLYT_URL_TEXT_BYTES];
    struct flyt_vsock_machine machine;
    struct flyt_error err;
    int fd = -1;

    snprintf(url, sizeof url, "vsock://%u:0", OF_NOBODY);
    int status = flyt_listen(url, &err, &fd, text);
    assert_true(status == -EADDRNOTAVAIL || status == -EAFNOSUPPORT);
    assert_non_null(strstr(err.text, status == -EAFNOSUPPORT ? "no vsock" : "not one of this machine's"));
    assert_non_null(strstr(err.text, url));
    flyt_vsock_look(&machine);
    if (machine.has_loopback)
        return;
    assert_int_equal(flyt_connect("vsock://1:1", PATIENCE_MS, &err, &fd), -EADDRNOTAVAIL);
    assert_non_null(strstr(err.text, "vsock://1:1"));
    assert_non_null(strstr(err.text, "vsock_loopback"));
    assert_int_equal(flyt_connect("vsock://:1", PATIENCE_MS, &err, &fd), -EADDRNOTAVAIL);
    assert_int_equal(fd, -1);
}

static void test_listen_and_connect(void **state)
{
    char text[FLYT_URL_TEXT_BYTES], again[FLYT_URL_TEXT_BYTES], peer[64], expected[64];
    struct flyt_error err;
    struct flyt_url url;
    int listen_fd, tcp_fd, fd, other_fd;

    need_loopback();
    assert_int_equal(flyt_listen(within_machine, &err, &listen_fd, text), 0);
    assert_true(fcntl(listen_fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(flyt_url_parse(text, &err, &url), 0);
    assert_int_equal(url.cid, FLYT_URL_CID_LOCAL);
    assert_int_not_equal(url.port, 0);
    assert_int_equal(flyt_listen_describe(within_machine, listen_fd, again), 0);
    assert_string_equal(again, text);
    assert_int_equal(flyt_listen_describe("tcp://127.0.0.1:0", listen_fd, again), -ENOTSOCK);
    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &tcp_fd, again), 0);
    assert_int_equal(flyt_listen_describe(within_machine, tcp_fd, again), -ENOTSOCK);
    close(tcp_fd);
    assert_int_equal(flyt_listen(text, &err, &other_fd, again), -EADDRINUSE);

    assert_int_equal(flyt_connect(text, PATIENCE_MS, &err, &fd), 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(flyt_socket_print_peer(fd, peer, sizeof peer), 0);
    snprintf(expected, sizeof expected, "vsock:1:%u", url.port);
    assert_string_equal(peer, expected);
    int accepted_fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(accepted_fd >= 0);
    assert_int_equal(flyt_socket_print_peer(accepted_fd, peer, sizeof peer), 0);
    assert_int_equal(strncmp(peer, "vsock:1:", 8), 0);
    struct flyt_vigil vigil = {0};
    assert_false(flyt_vigil_is_lost(&vigil, fd));
    close(accepted_fd);
    close(fd);
    close(listen_fd);
    flyt_unlisten(text); /* nothing to remove */
    assert_int_equal(flyt_connect(text, PATIENCE_MS, &err, &fd), -ECONNREFUSED);
    assert_non_null(strstr(err.text, text));
}

/* All addresses of the machine, as a node's guests reach it. */
static void test_every_address(void **state)
{
    char text[FLYT_URL_TEXT_BYTES];
    struct flyt_error err;
    int listen_fd, fd;

    need_loopback();
    assert_int_equal(flyt_listen("vsock://:0", &err, &listen_fd, text), 0);
    assert_int_equal(strncmp(text, "vsock://:", 9), 0);
    assert_int_equal(flyt_connect(text, PATIENCE_MS, &err, &fd), 0);
    close(fd);
    close(listen_fd);
}

static void fill(unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i * 31 + (i >> 9));
}

/* A channel with its data streams, which connect to where it leads. */
static void test_a_channel(void **state)
{
    flyt_copy_out_transfer_args args = {.transfer_id = 9, .bytes = TRANSFER_BYTES};
    flyt_stream_query_args query = {.stream_id = 1};
    flyt_stream_query_res res = {0};
    unsigned char *out, *back;
    struct test_peer peer;
    struct test_client client;

    need_loopback();
    out = malloc(TRANSFER_BYTES);
    back = calloc(1, TRANSFER_BYTES);
    fill(out, TRANSFER_BYTES);
    test_peer_init(&peer);
    peer.memory_bytes = TRANSFER_BYTES;
    peer.data_streams = 2;
    test_peer_start(&peer, within_machine);
    test_client_init(&client);
    client.place = back;
    client.place_bytes = TRANSFER_BYTES;
    test_client_open(&client, peer.url);
    assert_int_equal(flyt_call_stream_query(client.channel, &query, &res), FLYT_CHANNEL_OK);
    assert_int_equal(flyt_channel_send_data(client.channel, 0, out, TRANSFER_BYTES), FLYT_CHANNEL_OK);
    test_client_wait(&client, &peer.chunk_bytes, TRANSFER_BYTES);
    assert_int_equal(flyt_send_copy_out_transfer(client.channel, &args, NULL), FLYT_CHANNEL_OK);
    assert_int_equal(flyt_channel_flush(client.channel), FLYT_CHANNEL_OK);
    test_client_wait(&client, &client.chunk_bytes, TRANSFER_BYTES);
    assert_memory_equal(out, back, TRANSFER_BYTES);
    assert_int_equal(peer.link_count, 3);
    flyt_channel_close(client.channel);
    test_client_fini(&client);
    test_peer_stop(&peer);
    free(out);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_a_number_leads),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_a_sentence_where_it_is_not_to_be_had),
        cmocka_unit_test(test_listen_and_connect),
        cmocka_unit_test(test_every_address),
        cmocka_unit_test(test_a_channel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
