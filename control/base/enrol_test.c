/* Tests of joining (enrol.h) where managers do not get so far as to answer; the rest needs a cluster manager
 * (tests/system/trust_join_test.py). */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/base/enrol.h"
#include "rpc/base/descriptors.h"

/* A manager that closes connections before it has said a word, or says what is no TLS, and is gone then. */
struct manager {
    int fd;
    char url[64];
    unsigned left, count; /* connections that it will take, and has taken */
    const char *word;     /* NULL: none */
    pthread_t thread;
};

static void *serve(void *user)
{
    struct manager *manager = user;

    while (manager->left--) {
        int fd = accept(manager->fd, NULL, NULL);
        if (fd < 0)
            break;
        manager->count++;
        if (manager->word)
            send(fd, manager->word, strlen(manager->word), MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        char rest[4096];
        while (manager->word && recv(fd, rest, sizeof rest, 0) > 0)
            continue;
        close(fd);
    }
    manager->fd = flyt_close(manager->fd);
    return NULL;
}

static void begin(struct manager *manager, unsigned connections, const char *word)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;

    *manager =
        (struct manager){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .left = connections, .word = word};
    assert_int_equal(bind(manager->fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(manager->fd, 8), 0);
    assert_int_equal(getsockname(manager->fd, (struct sockaddr *)&address, &bytes), 0);
    snprintf(manager->url, sizeof manager->url, "tcp://127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&manager->thread, NULL, serve, manager), 0);
}

static int join(struct manager *managers, unsigned count, struct flyt_error *err)
{
    static const unsigned char hash[32], secret[32];
    char *urls[2], token[256], name[FLYT_NAME_BYTES_MAX + 1];
    const struct flyt_strings all = {.items = urls, .count = count};
    const struct flyt_enrolment enrolment = {.managers = &all,
                                             .token = token,
                                             .role = FLYT_ROLE_VM,
                                             .files = {.authority = "/nonexistent/a", .certificate = "c", .key = "k"}};

    flyt_join_token_make(hash, secret, token);
    for (unsigned i = 0; i < count; i++)
        urls[i] = managers[i].url;
    int status = flyt_enrol(&enrolment, err, name);
    for (unsigned i = 0; i < count; i++)
        pthread_join(managers[i].thread, NULL);
    return status;
}

/* As one whose machine stands still for longer than a connection may take, and one that is restarted. */
static void test_one_that_does_not_get_so_far(void **state)
{
    struct flyt_error err = {0};
    struct manager manager;

    begin(&manager, 3, NULL);
    assert_int_equal(join(&manager, 1, &err), -ECONNREFUSED); /* when it is gone */
    assert_int_equal(manager.count, 3);
}

static void test_one_of_two(void **state)
{
    struct manager managers[2];
    struct flyt_error err = {0};

    begin(&managers[0], 2, NULL);
    begin(&managers[1], 2, NULL);
    assert_int_equal(join(managers, 2, &err), -ECONNREFUSED);
    assert_int_equal(managers[0].count, 2);
    assert_int_equal(managers[1].count, 2);
}

/* What it says does not become better. */
static void test_one_that_is_none(void **state)
{
    struct flyt_error err = {0};
    struct manager manager;

    begin(&manager, 1, "HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_int_not_equal(join(&manager, 1, &err), 0);
    assert_int_equal(manager.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_that_does_not_get_so_far),
        cmocka_unit_test(test_one_of_two),
        cmocka_unit_test(test_one_that_is_none),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
