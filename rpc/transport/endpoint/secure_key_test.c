/* The keys of an encrypted connection: each protects so many records, the next one is what RFC 8446 says, and what does
 * not belong to it is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/clock.h"
#include "rpc/transport/endpoint/secure.h"
#include "rpc/transport/endpoint/test_records.h"
#include "rpc/transport/endpoint/test_secure.h"

enum { LONG_MS = 60000, BULK_BYTES = 6 << 20, WIRE_BYTES = 2 * BULK_BYTES, PIECE_BYTES = 50000, RECORD_BYTES = 16384 };

static const unsigned char key[FLYT_SECURE_KEY_BYTES] = "a key that both of them know 123";

/* Of either end; the client is [0], and what it sends is another thing than what it gets. */
static unsigned char byte_at(bool of_server, size_t offset)
{
    return (unsigned char)((offset * 2654435761u >> 13) + of_server);
}

static unsigned char *make_content(bool of_server)
{
    unsigned char *bytes = malloc(BULK_BYTES);
    assert_non_null(bytes);
    for (size_t i = 0; i < BULK_BYTES; i++)
        bytes[i] = byte_at(of_server, i);
    return bytes;
}

/* ---- two ends, and between them a thread that writes down what passes ---- */

struct way {
    int from, to;
    unsigned char *wire;
    size_t bytes;
};

struct line {
    int sockets[2]; /* the ends' */
    struct way ways[2];
    pthread_t carrier;
    struct test_secrets secrets;
    struct flyt_secure *ends[2];
    struct flyt_error errs[2];
};

/* False: the end of it. */
static bool carry_some(struct way *way)
{
    ssize_t got = recv(way->from, way->wire + way->bytes, WIRE_BYTES - way->bytes, 0);
    if (got <= 0) {
        shutdown(way->to, SHUT_WR);
        return false;
    }
    for (ssize_t done = 0; done < got;) {
        ssize_t sent = send(way->to, way->wire + way->bytes + done, (size_t)(got - done), MSG_NOSIGNAL);
        if (sent < 0)
            break;
        done += sent;
    }
    way->bytes += (size_t)got;
    return true;
}

static void *carry(void *user)
{
    struct line *line = user;
    struct pollfd polls[] = {{.fd = line->ways[0].from, .events = POLLIN},
                             {.fd = line->ways[1].from, .events = POLLIN}};
    while (polls[0].fd >= 0 || polls[1].fd >= 0) {
        poll(polls, 2, -1);
        for (unsigned i = 0; i < 2; i++)
            if (polls[i].fd >= 0 && polls[i].revents && !carry_some(&line->ways[i]))
                polls[i].fd = -1;
    }
    return NULL;
}

static void lay(struct line *line, int flags)
{
    int pairs[2][2];
    *line = (struct line){.sockets = {-1, -1}};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[i]), 0);
        line->sockets[i] = pairs[i][0];
        line->ways[i].wire = malloc(WIRE_BYTES);
        assert_non_null(line->ways[i].wire);
        if (flags)
            assert_int_equal(fcntl(pairs[i][0], F_SETFL, flags), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        line->ways[i].from = pairs[i][1];
        line->ways[i].to = pairs[!i][1];
    }
    assert_int_equal(pthread_create(&line->carrier, NULL, carry, line), 0);
}

/* Both ends have sent their last. */
static void take_up(struct line *line)
{
    for (unsigned i = 0; i < 2; i++)
        line->ends[i] = test_secure_free(line->ends[i]);
    pthread_join(line->carrier, NULL);
}

static void end(struct line *line)
{
    for (unsigned i = 0; i < 2; i++) {
        close(line->ways[i].from);
        free(line->ways[i].wire);
    }
}

/* What went over the wire is what the RFC's keys make of the content, and no key protects more than `limit` records. */
static struct test_tally check_way(struct line *line, bool of_server, const unsigned char *content, unsigned limit)
{
    const unsigned char *secret = of_server ? line->secrets.of_server : line->secrets.of_client;
    const struct way *way = &line->ways[of_server];
    unsigned char *plain = malloc(BULK_BYTES);
    struct test_tally tally;
    assert_non_null(plain);
    assert_true(line->secrets.are_there[of_server]);
    const char *wrong = test_records_read(way->wire, way->bytes, secret, plain, BULK_BYTES, &tally);
    if (wrong)
        fail_msg("%s", wrong);
    assert_int_equal(tally.plain_bytes, BULK_BYTES);
    assert_memory_equal(plain, content, BULK_BYTES);
    assert_in_range(tally.most_records, 1, limit);
    assert_int_equal(tally.key_updates, (tally.data_records - 1) / (limit - 1));
    if (tally.key_updates) {
        assert_int_equal(tally.least_records, limit);
        assert_int_equal(tally.most_records, limit);
    }
    free(plain);
    return tally;
}

/* ---- without threads ---- */

struct speaker {
    struct flyt_secure *secure;
    const unsigned char *words, *expected;
    int fd;
    unsigned wrong_count;
    int status;
};

static void *begin_server(void *user)
{
    struct line *line = user;
    test_secure_begin(line->ends[1], flyt_clock_ms() + LONG_MS, -1, &line->errs[1]);
    return NULL;
}

static void shake_hands(struct line *line)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, begin_server, line), 0);
    test_secure_begin(line->ends[0], flyt_clock_ms() + LONG_MS, -1, &line->errs[0]);
    pthread_join(thread, NULL);
    assert_int_equal(line->errs[0].code, 0);
    assert_int_equal(line->errs[1].code, 0);
}

/* 0: as it came; the key's limits of both. */
static void connect_direct(struct line *line, unsigned client_limit, unsigned server_limit)
{
    const unsigned limits[2] = {client_limit, server_limit};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(test_secure_new(line->sockets[i], i, key, &line->errs[i], &line->ends[i]), 0);
        if (limits[i])
            assert_int_equal(flyt_secure_limit_key(line->ends[i], limits[i]), 0);
    }
    test_secrets_watch(line->ends[1], &line->secrets);
    shake_hands(line);
}

/* Sends all of its words, in portions of different lengths, while it reads all of the other one's. */
static void *speak(void *user)
{
    struct speaker *self = user;
    unsigned char portion[7001];
    size_t sent = 0, got = 0;
    for (unsigned turns = 1; (sent < BULK_BYTES || got < BULK_BYTES) && !self->status; turns++) {
        size_t wanted = 1 + turns * 9973 % (2 * RECORD_BYTES);
        ssize_t taken = sent == BULK_BYTES ? 0
                                           : test_secure_seal(self->secure, self->words + sent,
                                                              wanted < BULK_BYTES - sent ? wanted : BULK_BYTES - sent);
        int status = taken < 0 ? (int)taken : flyt_secure_flush(self->secure);
        sent += taken > 0 ? (size_t)taken : 0;
        int count = flyt_secure_unseal(self->secure, portion, 1 + turns * 997 % sizeof portion);
        if (count > 0 &&
            ((size_t)count > BULK_BYTES - got || memcmp(portion, self->expected + got, (size_t)count) != 0))
            self->wrong_count++;
        got += count > 0 ? (size_t)count : 0;
        if ((status && status != -EAGAIN) || (count <= 0 && count != -EAGAIN && got < BULK_BYTES))
            self->status = status && status != -EAGAIN ? status : count ? count : -EPIPE;
        struct pollfd ready = {.fd = self->fd, .events = (short)(POLLIN | (status ? POLLOUT : 0))};
        if (count == -EAGAIN && (status || sent == BULK_BYTES) && got < BULK_BYTES)
            poll(&ready, 1, -1);
    }
    while (!self->status && (self->status = flyt_secure_flush(self->secure)) == -EAGAIN) {
        struct pollfd ready = {.fd = self->fd, .events = POLLOUT};
        poll(&ready, 1, -1);
        self->status = 0;
    }
    shutdown(self->fd, SHUT_WR);
    return NULL;
}

static void speak_both(struct line *line, unsigned char *contents[2])
{
    struct speaker speakers[2];
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++) {
        speakers[i] = (struct speaker){
            .secure = line->ends[i], .words = contents[i], .expected = contents[!i], .fd = line->sockets[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, speak, &speakers[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(speakers[i].status, 0);
        assert_int_equal(speakers[i].wrong_count, 0);
    }
}

/* 0: the limit that there is where nobody sets one, which this much data does not reach. */
static void direct_with(unsigned client_limit, unsigned server_limit)
{
    struct line line;
    unsigned char *contents[2] = {make_content(false), make_content(true)};
    lay(&line, O_RDWR | O_NONBLOCK);
    connect_direct(&line, client_limit, server_limit);
    speak_both(&line, contents);
    take_up(&line);
    for (unsigned i = 0; i < 2; i++) {
        unsigned limit = i ? server_limit : client_limit;
        struct test_tally tally = check_way(&line, i, contents[i], limit ? limit : FLYT_SECURE_KEY_RECORDS);
        assert_true(tally.data_records >= BULK_BYTES / RECORD_BYTES);
        free(contents[i]);
    }
    end(&line);
}

static void both_ends_change_keys_all_the_time(void **state)
{
    direct_with(FLYT_SECURE_KEY_RECORDS_MIN, 3);
    direct_with(64, FLYT_SECURE_KEY_RECORDS_MIN);
}

/* As with a previous version, which begins no change. */
static void one_end_alone_changes_keys(void **state)
{
    direct_with(5, 0);
    direct_with(0, 5);
}

/* ---- with threads ---- */

struct flow {
    struct flyt_endpoint *endpoint;
    unsigned char *bytes;
    size_t count;
};

/* The server's end makes its handshake in its first read or write. */
static void *begin_endpoint(void *user)
{
    flyt_endpoint_write(user, NULL, 0, true);
    return NULL;
}

static void *write_all(void *user)
{
    struct flow *flow = user;
    while (flow->count < BULK_BYTES) {
        size_t wanted = BULK_BYTES - flow->count < PIECE_BYTES ? BULK_BYTES - flow->count : PIECE_BYTES;
        const struct iovec part = {flow->bytes + flow->count, wanted};
        ssize_t sent = flyt_endpoint_write(flow->endpoint, &part, 1, true);
        if (sent <= 0)
            break;
        flow->count += (size_t)sent;
    }
    /* The alert goes where there is room for it. */
    flyt_endpoint_wait(flow->endpoint, FLYT_ENDPOINT_OUT, -1, LONG_MS * INT64_C(1000000));
    flyt_endpoint_shut(flow->endpoint, FLYT_ENDPOINT_WRITING);
    return NULL;
}

static void *read_all(void *user)
{
    struct flow *flow = user;
    while (flow->count < BULK_BYTES) {
        const struct iovec part = {flow->bytes + flow->count, BULK_BYTES - flow->count};
        ssize_t got = flyt_endpoint_read(flow->endpoint, &part, 1, true);
        if (got <= 0)
            break;
        flow->count += (size_t)got;
    }
    return NULL;
}

static void connect_endpoints(struct line *line, struct flyt_endpoint *ends[2], const unsigned limits[2])
{
    struct flyt_endpoint *plain[2];
    pthread_t thread;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(flyt_endpoint_of_socket(line->sockets[i], &plain[i]), 0);
    assert_int_equal(flyt_endpoint_expect_encryption(plain[1], key, &line->errs[1], &ends[1]), 0);
    test_secrets_watch(flyt_endpoint_secure(ends[1]), &line->secrets);
    assert_int_equal(pthread_create(&thread, NULL, begin_endpoint, ends[1]), 0);
    assert_int_equal(flyt_endpoint_encrypt(plain[0], key, flyt_clock_ms() + LONG_MS, -1, &line->errs[0], &ends[0]), 0);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(flyt_secure_limit_key(flyt_endpoint_secure(ends[i]), limits[i]), 0);
}

static void endpoints_change_keys(void **state)
{
    const unsigned limits[2] = {3, 2};
    struct line line;
    struct flyt_endpoint *ends[2];
    struct flow flows[4];
    pthread_t threads[4];
    unsigned char *contents[2] = {make_content(false), make_content(true)};
    lay(&line, 0);
    connect_endpoints(&line, ends, limits);
    for (unsigned i = 0; i < 4; i++) {
        flows[i] = (struct flow){.endpoint = ends[i % 2], .bytes = i < 2 ? contents[i] : malloc(BULK_BYTES)};
        assert_non_null(flows[i].bytes);
        assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? write_all : read_all, &flows[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 2; i++)
        flyt_endpoint_close(ends[i]); /* each has said that it has ended, and that is a record, too */
    pthread_join(line.carrier, NULL);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(flows[2 + i].count, BULK_BYTES);
        assert_memory_equal(flows[2 + i].bytes, contents[!i], BULK_BYTES);
        assert_int_equal(check_way(&line, i, contents[i], limits[i]).alerts, 1);
    }
    for (unsigned i = 0; i < 2; i++) {
        free(flows[2 + i].bytes);
        free(contents[i]);
    }
    end(&line);
}

/* ---- the boundary: the test has what goes over the wire ---- */

enum { RECORDS = 5, KEY_UPDATE = 2 }; /* two of the first key, the KeyUpdate, two of the next */

struct boundary {
    struct line line; /* without a carrier */
    int fd;           /* to the server */
    unsigned char wire[RECORDS * (RECORD_BYTES + 256)];
    size_t begins[RECORDS + 1];
};

static void find_records(struct boundary *self, size_t bytes)
{
    size_t at = 0;
    for (unsigned i = 0; i < RECORDS; i++) {
        assert_true(at + 5 <= bytes);
        self->begins[i] = at;
        at += 5 + ((size_t)self->wire[at + 3] << 8 | self->wire[at + 4]);
    }
    assert_int_equal(at, bytes);
    self->begins[RECORDS] = at;
    assert_int_equal(self->begins[KEY_UPDATE + 1] - self->begins[KEY_UPDATE], 5 + 5 + 1 + 16);
}

/* The server has got none of the records. */
static void come_to_boundary(struct boundary *self)
{
    static unsigned char plain[RECORD_BYTES];
    struct line *line = &self->line;
    int tunnel[2];
    *line = (struct line){.sockets = {-1, -1}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, line->sockets), 0);
    connect_direct(line, 3, 0);
    self->fd = dup(line->sockets[0]);
    assert_true(self->fd >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, tunnel), 0);
    assert_int_equal(dup2(tunnel[0], line->sockets[0]), line->sockets[0]);
    close(tunnel[0]);
    for (unsigned i = 0; i < RECORDS - 1; i++) {
        memset(plain, (int)i + 1, sizeof plain);
        assert_int_equal(test_secure_seal(line->ends[0], plain, sizeof plain), sizeof plain);
        assert_int_equal(flyt_secure_flush(line->ends[0]), 0);
    }
    ssize_t got = recv(tunnel[1], self->wire, sizeof self->wire, 0);
    assert_true(got > 0);
    find_records(self, (size_t)got);
    close(tunnel[1]);
}

static void leave(struct boundary *self)
{
    close(self->fd);
    for (unsigned i = 0; i < 2; i++)
        self->line.ends[i] = test_secure_free(self->line.ends[i]);
}

static void deliver(struct boundary *self, unsigned record)
{
    size_t bytes = self->begins[record + 1] - self->begins[record];
    assert_int_equal(send(self->fd, self->wire + self->begins[record], bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* Of the data's records, 1 and more. */
static void read_well(struct boundary *self, int number)
{
    unsigned char bytes[RECORD_BYTES], expected[RECORD_BYTES];
    size_t done = 0;
    memset(expected, number, sizeof expected);
    while (done < sizeof bytes) {
        int got = flyt_secure_unseal(self->line.ends[1], bytes + done, sizeof bytes - done);
        assert_true(got > 0);
        done += (size_t)got;
    }
    assert_memory_equal(bytes, expected, sizeof bytes);
}

static void read_nothing(struct boundary *self, int status)
{
    unsigned char byte;
    assert_int_equal(flyt_secure_unseal(self->line.ends[1], &byte, 1), status);
}

static void a_key_update_may_come_in_parts(void **state)
{
    static struct boundary self;
    come_to_boundary(&self);
    for (unsigned i = 0; i < KEY_UPDATE; i++) {
        deliver(&self, i);
        read_well(&self, (int)i + 1);
    }
    for (size_t at = self.begins[KEY_UPDATE]; at < self.begins[KEY_UPDATE + 1]; at++) {
        read_nothing(&self, -EAGAIN);
        assert_int_equal(send(self.fd, self.wire + at, 1, MSG_NOSIGNAL), 1);
    }
    read_nothing(&self, -EAGAIN);
    assert_false(flyt_secure_has_part(self.line.ends[1]));
    for (unsigned i = KEY_UPDATE + 1; i < RECORDS; i++) {
        deliver(&self, i);
        read_well(&self, (int)i);
    }
    read_nothing(&self, -EAGAIN);
    assert_false(flyt_secure_has_part(self.line.ends[1]));
    leave(&self);
}

/* Read well up to the record before `record`; instead of that comes `instead`, with the bit of a byte changed where it
 * is not 0. Nothing of it is given. */
static void refused(unsigned record, unsigned instead, size_t damaged_at)
{
    static struct boundary self;
    come_to_boundary(&self);
    for (unsigned i = 0; i < record; i++) {
        deliver(&self, i);
        if (i != KEY_UPDATE)
            read_well(&self, (int)(i < KEY_UPDATE ? i + 1 : i));
    }
    self.wire[self.begins[instead] + damaged_at] ^= damaged_at != 0;
    deliver(&self, instead);
    read_nothing(&self, -EBADMSG);
    leave(&self);
}

static void what_is_damaged_at_the_boundary_is_refused(void **state)
{
    for (size_t at = 5; at < 5 + 5 + 1 + 16; at++)
        refused(KEY_UPDATE, KEY_UPDATE, at);
    for (size_t at = 5; at < RECORD_BYTES; at += 4093) {
        refused(KEY_UPDATE - 1, KEY_UPDATE - 1, at);
        refused(KEY_UPDATE + 1, KEY_UPDATE + 1, at);
    }
}

static void what_is_sent_again_over_the_boundary_is_refused(void **state)
{
    for (unsigned record = KEY_UPDATE; record < RECORDS; record++)
        for (unsigned instead = 0; instead < record; instead++)
            refused(record, instead, 0);
}

/* The KeyUpdate is missing, or a record before it. */
static void what_comes_too_early_is_refused(void **state)
{
    for (unsigned record = 0; record < KEY_UPDATE + 1; record++)
        for (unsigned instead = record + 1; instead < RECORDS; instead++)
            refused(record, instead, 0);
}

/* ---- the other one's wishes ---- */

/* An end of another make may ask for the next key: it gets it, and nothing is lost. */
static void who_asks_for_the_next_key_gets_it(void **state)
{
    struct line line;
    struct flyt_endpoint *plain, *server;
    char got[8];
    pthread_t thread;
    lay(&line, 0);
    assert_int_equal(flyt_endpoint_of_socket(line.sockets[1], &plain), 0);
    assert_int_equal(flyt_endpoint_expect_encryption(plain, key, &line.errs[1], &server), 0);
    test_secrets_watch(flyt_endpoint_secure(server), &line.secrets);
    assert_int_equal(pthread_create(&thread, NULL, begin_endpoint, server), 0);
    assert_int_equal(test_secure_new(line.sockets[0], false, key, &line.errs[0], &line.ends[0]), 0);
    assert_int_equal(test_secure_begin(line.ends[0], flyt_clock_ms() + LONG_MS, -1, &line.errs[0]), 0);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < 3; i++) {
        struct pollfd ready = {.fd = line.sockets[0], .events = POLLIN};
        const struct iovec question = {got, sizeof got}, response = {(void *)"response", 8};
        int count;
        assert_int_equal(SSL_key_update(line.ends[0]->ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(test_secure_seal(line.ends[0], "question", 8), 8);
        assert_int_equal(flyt_secure_flush(line.ends[0]), 0);
        assert_int_equal(flyt_endpoint_read(server, &question, 1, true), 8);
        assert_memory_equal(got, "question", 8);
        assert_int_equal(flyt_endpoint_write(server, &response, 1, true), 8);
        while ((count = flyt_secure_unseal(line.ends[0], got, sizeof got)) == -EAGAIN)
            assert_int_equal(poll(&ready, 1, LONG_MS), 1);
        assert_int_equal(count, 8);
        assert_memory_equal(got, "response", 8);
    }
    flyt_endpoint_close(server);
    take_up(&line);
    struct test_tally tally;
    unsigned char plain_bytes[64];
    const char *wrong = test_records_read(line.ways[1].wire, line.ways[1].bytes, line.secrets.of_server, plain_bytes,
                                          sizeof plain_bytes, &tally);
    if (wrong)
        fail_msg("%s", wrong);
    assert_int_equal(tally.key_updates, 3);
    assert_int_equal(tally.plain_bytes, 24);
    assert_memory_equal(plain_bytes, "responseresponseresponse", 24);
    end(&line);
}

static void a_limit_is_within_bounds(void **state)
{
    struct flyt_error err = {0};
    struct flyt_secure *secure;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(test_secure_new(fds[0], false, key, &err, &secure), 0);
    assert_int_equal(atomic_load(&secure->limit_records), FLYT_SECURE_KEY_RECORDS);
    assert_int_equal(flyt_secure_limit_key(secure, 0), -EINVAL);
    assert_int_equal(flyt_secure_limit_key(secure, FLYT_SECURE_KEY_RECORDS_MIN - 1), -EINVAL);
    assert_int_equal(flyt_secure_limit_key(secure, FLYT_SECURE_KEY_RECORDS + 1), -EINVAL);
    assert_int_equal(flyt_secure_limit_key(secure, UINT_MAX), -EINVAL);
    assert_int_equal(atomic_load(&secure->limit_records), FLYT_SECURE_KEY_RECORDS);
    assert_int_equal(flyt_secure_limit_key(secure, FLYT_SECURE_KEY_RECORDS_MIN), 0);
    assert_int_equal(flyt_secure_limit_key(secure, FLYT_SECURE_KEY_RECORDS), 0);
    test_secure_free(secure);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_change_keys_all_the_time),
        cmocka_unit_test(one_end_alone_changes_keys),
        cmocka_unit_test(endpoints_change_keys),
        cmocka_unit_test(a_key_update_may_come_in_parts),
        cmocka_unit_test(what_is_damaged_at_the_boundary_is_refused),
        cmocka_unit_test(what_is_sent_again_over_the_boundary_is_refused),
        cmocka_unit_test(what_comes_too_early_is_refused),
        cmocka_unit_test(who_asks_for_the_next_key_gets_it),
        cmocka_unit_test(a_limit_is_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
