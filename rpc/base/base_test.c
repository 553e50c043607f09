/* Tests of the small modules of rpc/base: URLs, errors, SHA-256, id tables, descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "rpc/base/clock.h"
#include "rpc/base/close_aside.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/error.h"
#include "rpc/base/id.h"
#include "rpc/base/idtable.h"
#include "rpc/base/log.h"
#include "rpc/base/machine.h"
#include "rpc/base/sha256.h"
#include "rpc/base/thread.h"
#include "rpc/base/url.h"

/* ---- errors and log ---- */

static void test_error_keeps_code_and_cuts_text(void **state)
{
    struct flyt_error err;
    char longer[2 * sizeof err.text];

    assert_int_equal(flyt_error_set(&err, -EINVAL, "port %d", 7), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.text, "port 7");
    assert_int_equal(flyt_error_set(NULL, -EIO, "nobody reads this"), -EIO);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    flyt_error_set(&err, -EIO, "%s", longer);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

/* What one flyt_log call writes to stderr. */
static void logged(char *text, size_t bytes, enum flyt_log_level level, const char *value)
{
    int ends[2], saved = dup(STDERR_FILENO);

    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    errno = ENOENT;
    flyt_log(level, "thing failed: name=%s: %m", value);
    assert_int_equal(errno, ENOENT);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t count = read(ends[0], text, bytes - 1);
    text[count > 0 ? count : 0] = 0;
    close(ends[0]);
}

static void test_log_writes_one_line(void **state)
{
    char text[4096], longer[4000];

    setenv("FLYT_LOG", "warn", 1);
    flyt_log_init("prog", FLYT_LOG_TRACE);
    assert_true(flyt_log_is_on(FLYT_LOG_ERROR));
    assert_false(flyt_log_is_on(FLYT_LOG_INFO));
    logged(text, sizeof text, FLYT_LOG_WARN, "a\nb");
    assert_string_equal(text, "prog: thing failed: name=a b: No such file or directory\n");
    logged(text, sizeof text, FLYT_LOG_INFO, "x");
    assert_string_equal(text, "");
    memset(longer, 'y', sizeof longer);
    longer[sizeof longer - 1] = 0;
    logged(text, sizeof text, FLYT_LOG_ERROR, longer);
    assert_int_equal(text[strlen(text) - 1], '\n');
    unsetenv("FLYT_LOG");
    flyt_log_init("prog", FLYT_LOG_WARN);
}

/* What a peer says cannot command a terminal that shows the log. */
static void test_log_writes_no_control_character(void **state)
{
    static const struct {
        const char *value, *shown;
    } cases[] = {
        {"a\x1b[2Jb\x7f", "a [2Jb "},
        {"a\xc2\x9b"
         "2Jb",
         "a  2Jb"}, /* CSI, as UTF-8 */
        {"a\xc2\x80\xc2\x9f"
         "b",
         "a    b"},
        {"a\x9b"
         "2Jb",
         "a 2Jb"},                                                /* the same as a byte */
        {"\xc0\x9b\xe2\x82", "\xc0 \xe2\x82"},                    /* no UTF-8 */
        {"\xc2\xa0\xc3\x9b\xc4\x80", "\xc2\xa0\xc3\x9b\xc4\x80"}, /* no-break space, U with circumflex, A with macron */
        {"\xe2\x82\xac \xf0\x9f\x9a\x80", "\xe2\x82\xac \xf0\x9f\x9a\x80"},
    };
    char text[4096], expected[256];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        logged(text, sizeof text, FLYT_LOG_WARN, cases[i].value);
        snprintf(expected, sizeof expected, "prog: thing failed: name=%s: No such file or directory\n", cases[i].shown);
        assert_string_equal(text, expected);
    }
}

static void test_clock_counts_down(void **state)
{
    uint64_t now_ms = flyt_clock_ms();

    assert_int_equal(flyt_clock_left_ms(now_ms - 1), 0);
    assert_in_range(flyt_clock_left_ms(now_ms + 100000), 90000, 100000);
    assert_int_equal(flyt_clock_left_ms(UINT64_MAX), INT32_MAX);
}

/* ---- URLs ---- */

#define HERE      "0a1b2c3d-1111-4222-8333-0123456789ab"
#define ELSEWHERE "0a1b2c3d-1111-4222-8333-0123456789ac"

static void test_url_accepts(void **state)
{
    static const struct {
        const char *text, *host, *path, *printed;
        unsigned port, cid;
    } cases[] = {
        {"tcp://gpu1:4000", "gpu1", "", "tcp://gpu1:4000", 4000, 0},
        {"tcp://[::1]:1", "::1", "", "tcp://[::1]:1", 1, 0},
        {"tcp://:0", "", "", "tcp://:0", 0, 0},
        {"tcp://10.0.0.1:65535", "10.0.0.1", "", "tcp://10.0.0.1:65535", 65535, 0},
        {"unix:///run/flyt.sock", "", "/run/flyt.sock", "unix:///run/flyt.sock", 0, 0},
        {"unix://" HERE "/run/s", HERE, "/run/s", "unix://" HERE "/run/s", 0, 0},
        {"vsock://2:9810", "", "", "vsock://2:9810", 9810, 2},
        {"vsock://:0", "", "", "vsock://:0", 0, UINT32_MAX},
        {"vsock://4294967294:4294967294", "", "", "vsock://4294967294:4294967294", UINT32_MAX - 1, UINT32_MAX - 1},
        {"vsock://007:08", "", "", "vsock://7:8", 8, 7},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flyt_url url;
        char printed[FLYT_URL_TEXT_BYTES];
        assert_int_equal(flyt_url_parse(cases[i].text, NULL, &url), 0);
        assert_string_equal(url.host, cases[i].host);
        assert_string_equal(url.path, cases[i].path);
        assert_int_equal(url.port, cases[i].port);
        assert_int_equal(url.cid, cases[i].cid);
        flyt_url_print(&url, printed);
        assert_string_equal(printed, cases[i].printed);
    }
}

static void test_url_refuses_and_says_why(void **state)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"", "expected tcp"},
        {"http://x:1", "expected tcp"},
        {"tcp://host", "no port"},
        {"tcp://host:", "port ''"},
        {"tcp://host:65536", "65535"},
        {"tcp://host:12x", "12x"},
        {"tcp://host:-1", "-1"},
        {"tcp://::1:80", "brackets"},
        {"tcp://[::1:80", "bracket"},
        {"tcp://[::1]", "no port"},
        {"unix://relative", "absolute"},
        {"unix:///", "absolute"},
        {"tcp://host/x:80", "no port"},
        {"unix://relative/x", "boot id"},
        {"unix://" HERE, "absolute"},
        {"unix://" HERE "/", "absolute"},
        {"unix://0A1B2C3D-1111-4222-8333-0123456789AB/s", "boot id"},
        {"unix://" HERE "0/s", "boot id"},
        {"unix://0a1b2c3d11111-4222-8333-0123456789ab/s", "boot id"},
        {"vsock://", "no port"},
        {"vsock://2", "no port"},
        {"vsock://2:", "port"},
        {"vsock://2:4294967295", "4294967294"},
        {"vsock://2:99999999999999999999", "4294967294"},
        {"vsock://2:1:2", "port"},
        {"vsock://0:1", "CID"},
        {"vsock://4294967295:1", "CID"},
        {"vsock://4294967298:1", "CID"},
        {"vsock://host:1", "CID"},
        {"vsock://-1:1", "CID"},
    };
    struct flyt_url url = {.port = 9};
    struct flyt_error err;
    char longer[600];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(flyt_url_parse(cases[i].text, &err, &url), -EINVAL);
        if (!strstr(err.text, cases[i].word))
            fail_msg("'%s' does not name '%s'", err.text, cases[i].word);
    }
    memset(longer, 'p', sizeof longer);
    longer[sizeof longer - 1] = 0;
    memcpy(longer, "unix:///", 8);
    assert_int_equal(flyt_url_parse(longer, &err, &url), -EINVAL);
    memcpy(longer, "tcp://xx", 8);
    assert_int_equal(flyt_url_parse(longer, &err, &url), -EINVAL);
    assert_int_equal(url.port, 9); /* untouched */
}

static void test_url_order(void **state)
{
    static char *const texts[] = {
        "tcp://a:1", "unix:///any",           "unix://" ELSEWHERE "/far", "later://x", "unix://" HERE "/near",
        "tcp://b:1", "unix://" HERE "/second"};
    static const char *const near[] = {
        "unix://" HERE "/near", "unix://" HERE "/second", "tcp://a:1", "unix:///any", "later://x", "tcp://b:1"};
    char ordered[7][FLYT_URL_TEXT_BYTES];

    assert_int_equal(flyt_url_order(texts, 7, HERE, ordered), 6);
    for (unsigned i = 0; i < 6; i++)
        assert_string_equal(ordered[i], near[i]);
    /* Nobody's sockets are this machine's where it does not know what it is called. */
    assert_int_equal(flyt_url_order(texts, 7, "", ordered), 4);
    for (unsigned i = 0; i < 4; i++)
        assert_string_equal(ordered[i], near[i + 2]);
    assert_int_equal(flyt_url_order(&texts[2], 1, HERE, ordered), 0);
    assert_int_equal(flyt_url_order(NULL, 0, HERE, ordered), 0);
}

static void test_machine(void **state)
{
    char boot_id[FLYT_URL_BOOT_ID_BYTES], text[FLYT_URL_TEXT_BYTES];
    struct flyt_error err;
    struct flyt_url url;

    flyt_machine_boot_id(boot_id);
    snprintf(text, sizeof text, "unix://%s/s", boot_id);
    assert_int_equal(flyt_url_parse(text, NULL, &url), 0); /* the kernel's form is the URL's */
    assert_int_equal(flyt_machine_check(&url, &err), 0);
    assert_int_equal(flyt_url_parse("unix:///s", NULL, &url), 0);
    assert_int_equal(flyt_machine_check(&url, &err), 0);
    assert_int_equal(flyt_url_parse("tcp://elsewhere:1", NULL, &url), 0);
    assert_int_equal(flyt_machine_check(&url, &err), 0);
    assert_int_equal(flyt_url_parse("vsock://7:1", NULL, &url), 0);
    assert_int_equal(flyt_machine_check(&url, &err), 0);
    assert_int_equal(flyt_url_parse("unix://" ELSEWHERE "/s", NULL, &url), 0);
    assert_int_equal(flyt_machine_check(&url, &err), -EHOSTUNREACH);
    assert_non_null(strstr(err.text, "another machine"));
    assert_non_null(strstr(err.text, ELSEWHERE));
    assert_non_null(strstr(err.text, boot_id));
}

/* ---- SHA-256: vectors of FIPS 180-4's examples and of NIST's CAVP ---- */

static void assert_digest(const void *data, size_t bytes, const char *expected)
{
    unsigned char digest[FLYT_SHA256_BYTES];
    char text[2 * FLYT_SHA256_BYTES + 1];

    flyt_sha256_of(data, bytes, digest);
    for (int i = 0; i < FLYT_SHA256_BYTES; i++)
        sprintf(text + 2 * i, "%02x", digest[i]);
    assert_string_equal(text, expected);
}

static void test_sha256_vectors(void **state)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char *million = malloc(1000000);

    assert_digest(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_digest(two_blocks, 56, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(million, 'a', 1000000);
    assert_digest(million, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

static void test_sha256_in_pieces(void **state)
{
    unsigned char data[300], whole[FLYT_SHA256_BYTES], pieces[FLYT_SHA256_BYTES];

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t bytes = 0; bytes <= sizeof data; bytes++) {
        struct flyt_sha256 hash;
        flyt_sha256_of(data, bytes, whole);
        flyt_sha256_init(&hash);
        for (size_t at = 0, step = 1; at < bytes; at += step, step = step % 67 + 1) {
            step = step < bytes - at ? step : bytes - at;
            flyt_sha256_add(&hash, data + at, step);
        }
        flyt_sha256_end(&hash, pieces);
        assert_memory_equal(whole, pieces, sizeof whole);
    }
}

/* ---- id tables ---- */

static int count_visit(void *user, uint64_t number, void *object)
{
    *(uint64_t *)user += number;
    return number == 500 ? 42 : 0;
}

static void test_idtable_adds_finds_removes(void **state)
{
    struct flyt_idtable *table = malloc(sizeof *table);
    static const uint64_t numbers[] = {0, 1, 1023, 1024, 1u << 20, FLYT_IDTABLE_NUMBER_END - 1};
    uint64_t sum = 0;
    int objects[6];

    flyt_idtable_init(table);
    for (int i = 0; i < 6; i++) {
        assert_null(flyt_idtable_find(table, numbers[i]));
        assert_int_equal(flyt_idtable_add(table, numbers[i], &objects[i]), 0);
        assert_int_equal(flyt_idtable_add(table, numbers[i], &objects[0]), -EEXIST);
    }
    assert_int_equal(flyt_idtable_add(table, FLYT_IDTABLE_NUMBER_END, &objects[0]), -ERANGE);
    assert_null(flyt_idtable_find(table, FLYT_IDTABLE_NUMBER_END));
    assert_null(flyt_idtable_find(table, UINT64_MAX));
    assert_int_equal(flyt_idtable_count(table), 6);
    assert_int_equal(flyt_idtable_each(table, count_visit, &sum), 0);
    assert_int_equal(sum, 1 + 1023 + 1024 + (1u << 20) + FLYT_IDTABLE_NUMBER_END - 1);
    for (int i = 0; i < 6; i++) {
        assert_ptr_equal(flyt_idtable_find(table, numbers[i]), &objects[i]);
        assert_ptr_equal(flyt_idtable_remove(table, numbers[i]), &objects[i]);
        assert_null(flyt_idtable_remove(table, numbers[i]));
        assert_null(flyt_idtable_find(table, numbers[i]));
    }
    assert_int_equal(flyt_idtable_count(table), 0);
    assert_int_equal(flyt_idtable_add(table, 500, &objects[0]), 0);
    assert_int_equal(flyt_idtable_each(table, count_visit, &sum), 42);
    flyt_idtable_fini(table);
    free(table);
}

enum { THREADS = 4, PER_THREAD = 20000 };

struct shared {
    struct flyt_idtable table;
    _Atomic(unsigned) removed, bad;
    _Atomic(bool) is_over;
};

struct part {
    struct shared *shared;
    uint64_t first;
};

static void *churn(void *argument)
{
    struct part *part = argument;

    for (uint64_t i = 0; i < PER_THREAD; i++) {
        uint64_t number = part->first + i;
        if (flyt_idtable_add(&part->shared->table, number, (void *)(number + 1)))
            atomic_fetch_add(&part->shared->bad, 1);
        if (i % 3 == 0 && flyt_idtable_remove(&part->shared->table, number))
            atomic_fetch_add(&part->shared->removed, 1);
    }
    return NULL;
}

static void *look(void *argument)
{
    struct shared *shared = argument;

    while (!atomic_load(&shared->is_over)) {
        for (uint64_t number = 0; number < THREADS * PER_THREAD; number += 17) {
            void *object = flyt_idtable_find(&shared->table, number);
            if (object && object != (void *)(number + 1))
                atomic_fetch_add(&shared->bad, 1);
        }
    }
    return NULL;
}

static void test_idtable_from_many_threads(void **state)
{
    struct shared *shared = calloc(1, sizeof *shared);
    struct part parts[THREADS];
    pthread_t threads[THREADS], finder;

    flyt_idtable_init(&shared->table);
    pthread_create(&finder, NULL, look, shared);
    for (unsigned i = 0; i < THREADS; i++) {
        parts[i] = (struct part){shared, i * PER_THREAD};
        pthread_create(&threads[i], NULL, churn, &parts[i]);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&shared->is_over, true);
    pthread_join(finder, NULL);
    assert_int_equal(atomic_load(&shared->bad), 0);
    assert_int_equal(flyt_idtable_count(&shared->table), THREADS * PER_THREAD - atomic_load(&shared->removed));
    flyt_idtable_fini(&shared->table);
    free(shared);
}

static void test_ids_by_rule(void **state)
{
    uint64_t library = flyt_id(FLYT_ID_LIBRARY, 12345);
    uint64_t kernel = flyt_kernel_id(library, 678);

    assert_int_equal(flyt_id_type(kernel), FLYT_ID_KERNEL);
    assert_int_equal(flyt_kernel_library_id(kernel), library);
    assert_int_equal(flyt_kernel_index(kernel), 678);
    assert_int_equal(flyt_window_device(flyt_window_base(3) + 5), 3);
    assert_int_equal(flyt_window_device(FLYT_WINDOW_BASE - 1), -1);
    assert_int_equal(flyt_window_device(flyt_window_base(FLYT_WINDOW_DEVICES)), -1);
}

/* ---- descriptors ---- */

/* "FDSize" of proc(5): how many descriptors there is room for. */
static unsigned descriptor_room(void)
{
    char line[256];
    unsigned room = 0;
    FILE *file = fopen("/proc/self/status", "re");

    assert_non_null(file);
    while (fgets(line, sizeof line, file) && sscanf(line, "FDSize: %u", &room) != 1)
        continue;
    fclose(file);
    return room;
}

static int next_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    close(fd);
    return fd;
}

static void test_room_for_descriptors(void **state)
{
    unsigned wanted = 4 * descriptor_room();
    const int next = next_descriptor();
    struct rlimit limit, low;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < wanted)
        wanted = (unsigned)limit.rlim_cur;
    flyt_descriptors_reserve(wanted);
    assert_in_range(descriptor_room(), wanted, UINT_MAX);
    assert_int_equal(next_descriptor(), next); /* none is left open */
    /* No further than the limit, and nothing fails. */
    low = limit;
    low.rlim_cur = (rlim_t)next + 8;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    flyt_descriptors_reserve(UINT_MAX);
    flyt_descriptors_reserve(0);
    assert_int_equal(next_descriptor(), next);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* ---- threads ---- */

static void *look_around(void *user)
{
    sigset_t blocked;
    char name[16] = "";

    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    /* Whoever started it names it, soon. */
    while (strcmp(name, "flyt-test") != 0)
        pthread_getname_np(pthread_self(), name, sizeof name);
    char found = sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGUSR1) ? 'y' : 'n';
    return write(*(int *)user, &found, 1) == 1 ? NULL : user;
}

static void test_threads_that_nobody_joins(void **state)
{
    sigset_t before, after;
    int ends[2];
    char found = 0;

    assert_int_equal(pipe(ends), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(flyt_thread_start("flyt-test", look_around, &ends[1]), 0);
    assert_int_equal(read(ends[0], &found, 1), 1);
    assert_int_equal(found, 'y');
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
    close(ends[0]);
    close(ends[1]);
}

static void test_descriptors_travel_with_payload(void **state)
{
    int pair[2], pipe_ends[2], fds[FLYT_DESCRIPTORS_MAX];
    unsigned fd_count = 99;
    char text[16], byte = 0;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(flyt_descriptors_send(pair[0], "hello", 5, pipe_ends, 2), 0);
    assert_int_equal(flyt_descriptors_receive(pair[1], text, sizeof text, fds, 2, &fd_count), 5);
    assert_memory_equal(text, "hello", 5);
    assert_int_equal(fd_count, 2);
    assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    flyt_close(fds[0]);
    flyt_close(fds[1]);

    /* More than the receiver wants: refused as a whole, nothing leaks. */
    assert_int_equal(flyt_descriptors_send(pair[0], "!", 1, pipe_ends, 2), 0);
    int before = dup(0);
    close(before);
    assert_int_equal(flyt_descriptors_receive(pair[1], text, sizeof text, fds, 1, &fd_count), -EMSGSIZE);
    int after = dup(0);
    close(after);
    assert_int_equal(before, after);
    assert_int_equal(flyt_descriptors_send(pair[0], "", 0, NULL, 0), -EINVAL);

    close(pair[0]);
    assert_int_equal(flyt_descriptors_receive(pair[1], text, sizeof text, fds, 1, &fd_count), 0);
    assert_int_equal(flyt_descriptors_send(pair[1], "x", 1, NULL, 0), -EPIPE);
    close(pair[1]);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void test_auto_close(void **state)
{
    int number;

    {
        flyt_auto_close int fd = dup(0);
        number = fd;
        assert_int_not_equal(fcntl(number, F_GETFD), -1);
    }
    assert_int_equal(fcntl(number, F_GETFD), -1);
    errno = ERANGE;
    assert_int_equal(flyt_close(-1), -1);
    assert_int_equal(errno, ERANGE);
}

/* By another thread; whoever counts may have ended before. */
static void test_close_aside(void **state)
{
    struct flyt_tally *left = flyt_tally_new();
    int ends[2], fds[3];
    char byte;

    assert_non_null(left);
    assert_true(flyt_tally_is_alone(left));
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fds[0] = ends[1];
    fds[1] = -1;
    fds[2] = dup(ends[1]);
    flyt_close_aside(fds, 3, left);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(fds[i], -1);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* when both are closed */
    while (!flyt_tally_is_alone(left))
        sched_yield();
    assert_int_equal(flyt_tally_count(left), 0);
    close(ends[0]);
    flyt_close_aside(fds, 3, left); /* nothing to be closed */
    assert_true(flyt_tally_is_alone(left));
    flyt_tally_add(left);
    flyt_tally_add(left);
    assert_int_equal(flyt_tally_count(left), 2);
    flyt_tally_remove(left);
    assert_false(flyt_tally_is_alone(left));
    assert_int_equal(flyt_tally_count(left), 1);
    flyt_tally_unref(left);
    flyt_tally_remove(left); /* frees it */
    flyt_tally_add(NULL);
    flyt_tally_remove(NULL);
    assert_null(flyt_tally_unref(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_keeps_code_and_cuts_text),
        cmocka_unit_test(test_log_writes_one_line),
        cmocka_unit_test(test_log_writes_no_control_character),
        cmocka_unit_test(test_clock_counts_down),
        cmocka_unit_test(test_url_accepts),
        cmocka_unit_test(test_url_refuses_and_says_why),
        cmocka_unit_test(test_url_order),
        cmocka_unit_test(test_machine),
        cmocka_unit_test(test_sha256_vectors),
        cmocka_unit_test(test_sha256_in_pieces),
        cmocka_unit_test(test_idtable_adds_finds_removes),
        cmocka_unit_test(test_idtable_from_many_threads),
        cmocka_unit_test(test_ids_by_rule),
        cmocka_unit_test(test_room_for_descriptors),
        cmocka_unit_test(test_threads_that_nobody_joins),
        cmocka_unit_test(test_descriptors_travel_with_payload),
        cmocka_unit_test(test_auto_close),
        cmocka_unit_test(test_close_aside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
