/* Tests of NVML and MPS behind stand-ins: a library with NVML's names, a script in place of MPS's control program. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/gpu/nvml.h"
#include "control/node/process/mps.h"
#include "rpc/base/clock.h"

/* A file beside this program. */
static void beside(const char *name, char *path, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", path, bytes - 64);

    assert_true(length > 0);
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, name);
}

static void run(sd_event *event, unsigned ms)
{
    uint64_t end_ms = flyt_clock_ms() + ms;

    while (flyt_clock_ms() < end_ms)
        assert_true(sd_event_run(event, 10000) >= 0);
}

static void test_nvml(void **state)
{
    struct flyt_node_gpus gpus = {0};
    struct flyt_node_nvml *nvml;
    struct flyt_error err;
    char library[512], driver[FLYT_NODE_DRIVER_BYTES];
    unsigned cuda;
    sd_event *event;

    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(flyt_node_nvml_open("/nowhere/libnvidia-ml.so.1", event, &err, &nvml), -ENOENT);
    assert_non_null(strstr(err.text, "not installed"));
    assert_int_equal(flyt_node_nvml_open("libc.so.6", event, &err, &nvml), -ENOSYS);
    beside("libfake-nvml.so", library, sizeof library);
    unsetenv("FLYT_FAKE_NVML");
    if (flyt_node_nvml_open(library, event, &err, &nvml))
        fail_msg("%s", err.text);
    assert_int_equal(flyt_node_nvml_list(nvml, 8, &err, &gpus), 0);
    flyt_node_nvml_versions(nvml, driver, &cuda);
    assert_string_equal(driver, "580.1.2");
    assert_int_equal(cuda, 13000);
    assert_int_equal(gpus.count, 2);
    assert_string_equal(gpus.items[1].uuid, "GPU-00000000-0000-0000-0000-000000000002");
    assert_int_equal(gpus.items[1].uuid_bytes[15], 2);
    assert_string_equal(gpus.items[0].type, "NVIDIA H200");
    assert_true(gpus.items[0].memory_bytes == 150754820096ull);
    flyt_node_nvml_measure(nvml, &gpus, NULL, NULL);
    for (unsigned i = 0; i < 3000 && !gpus.items[1].busy_pct; i++)
        run(event, 10);
    assert_int_equal(gpus.items[1].busy_pct, 41);
    assert_int_equal(gpus.items[1].used_bytes, 1001);
    assert_int_equal(gpus.items[1].temperature_c, 51);
    assert_int_equal(gpus.items[0].power_w, 700);
    assert_int_equal(gpus.items[1].power_w, 0); /* it does not tell */
    setenv("FLYT_FAKE_NVML", "lost", 1);
    flyt_node_nvml_measure(nvml, &gpus, NULL, NULL);
    for (unsigned i = 0; i < 3000 && gpus.items[1].health == FLYT_HEALTH_OK; i++)
        run(event, 10);
    assert_int_equal(gpus.items[1].health, FLYT_HEALTH_FAILED);
    assert_string_equal(gpus.items[1].health_text, "GPU is lost");
    assert_int_equal(gpus.items[0].health, FLYT_HEALTH_OK);
    flyt_node_nvml_measure(nvml, &gpus, NULL, NULL);
    flyt_node_nvml_close(nvml); /* in the middle of a measurement */
    flyt_node_gpus_fini(&gpus);
    sd_event_unref(event);
}

static void count(void *user)
{
    ++*(unsigned *)user;
}

static void measure_again(struct flyt_node_nvml *nvml, struct flyt_node_gpus *gpus, sd_event *event)
{
    unsigned measured = 0;

    assert_false(flyt_node_nvml_is_measuring(nvml));
    flyt_node_nvml_measure(nvml, gpus, count, &measured);
    assert_true(flyt_node_nvml_is_measuring(nvml));
    for (unsigned i = 0; i < 3000 && !measured; i++)
        run(event, 10);
    assert_int_equal(measured, 1);
}

/* How long a process kept a GPU busy, as far as NVML tells; not of GPUs that MPS shares. */
static void test_nvml_tells_of_gpu_time(void **state)
{
    struct flyt_node_gpus gpus = {0};
    struct flyt_node_nvml *nvml;
    struct flyt_error err;
    char library[512];
    uint64_t busy_us = 0, later_us = 0;
    sd_event *event;

    assert_true(sd_event_new(&event) >= 0);
    beside("libfake-nvml.so", library, sizeof library);
    unsetenv("FLYT_FAKE_NVML");
    assert_int_equal(flyt_node_nvml_open(library, event, &err, &nvml), 0);
    assert_int_equal(flyt_node_nvml_list(nvml, 8, &err, &gpus), 0);
    const struct flyt_node_gpu_account account = flyt_node_nvml_account(nvml);
    setenv("FLYT_FAKE_NVML_BUSY", "1 4711 50", 1);
    measure_again(nvml, &gpus, event);
    assert_false(flyt_node_gpu_account_busy(&account, &gpus.items[1], 4711, &busy_us)); /* since nothing */
    measure_again(nvml, &gpus, event);
    assert_true(flyt_node_gpu_account_busy(&account, &gpus.items[1], 4711, &busy_us));
    assert_false(flyt_node_gpu_account_busy(&account, &gpus.items[0], 4711, &busy_us));
    assert_false(flyt_node_gpu_account_busy(&account, &gpus.items[1], 4712, &busy_us));
    run(event, 20);
    measure_again(nvml, &gpus, event);
    assert_true(flyt_node_gpu_account_busy(&account, &gpus.items[1], 4711, &later_us));
    assert_true(later_us >= busy_us + 10000);
    setenv("FLYT_FAKE_NVML_BUSY", "1 4711 0", 1);
    measure_again(nvml, &gpus, event);
    assert_true(flyt_node_gpu_account_busy(&account, &gpus.items[1], 4711, &busy_us));
    assert_int_equal(busy_us, later_us);
    gpus.items[1].is_mps = true;
    assert_false(flyt_node_gpu_account_busy(&account, &gpus.items[1], 4711, &busy_us));
    unsetenv("FLYT_FAKE_NVML_BUSY");
    flyt_node_nvml_close(nvml);
    flyt_node_gpus_fini(&gpus);
    sd_event_unref(event);
}

static void test_nvml_tells_of_processes(void **state)
{
    struct flyt_node_gpus gpus = {0};
    struct flyt_node_nvml *nvml;
    struct flyt_error err;
    char library[512];
    uint64_t bytes = 0;
    sd_event *event;

    assert_true(sd_event_new(&event) >= 0);
    beside("libfake-nvml.so", library, sizeof library);
    unsetenv("FLYT_FAKE_NVML");
    assert_int_equal(flyt_node_nvml_open(library, event, &err, &nvml), 0);
    assert_int_equal(flyt_node_nvml_list(nvml, 8, &err, &gpus), 0);
    assert_false(flyt_node_nvml_process(nvml, 0, 4711, &bytes)); /* not measured yet */
    static const char *const texts[] = {"1 4711 600000000", "1 4711 600000000 mps"};
    for (unsigned i = 0; i < 2; i++) {
        setenv("FLYT_FAKE_NVML_PROCESSES", texts[i], 1);
        measure_again(nvml, &gpus, event);
        assert_true(flyt_node_nvml_process(nvml, 1, 4711, &bytes));
        assert_int_equal(bytes, 600000000);
        assert_false(flyt_node_nvml_process(nvml, 0, 4711, &bytes));
        assert_false(flyt_node_nvml_process(nvml, 1, 4712, &bytes));
        assert_false(flyt_node_nvml_process(nvml, 2, 4711, &bytes));
    }
    setenv("FLYT_FAKE_NVML_PROCESSES", "1 4711 -1", 1);
    measure_again(nvml, &gpus, event);
    assert_false(flyt_node_nvml_process(nvml, 1, 4711, &bytes));
    unsetenv("FLYT_FAKE_NVML_PROCESSES");
    flyt_node_nvml_close(nvml);
    flyt_node_gpus_fini(&gpus);
    sd_event_unref(event);
}

/* ---- MPS ---- */

struct mps_test {
    sd_event *event;
    char folder[64], script[128];
    struct flyt_node_settings settings;
    struct flyt_node_mps *mps;
};

/* Runs while there is FOLDER/running; -d makes it; writes down every command and what it was told of folders. */
static const char script_text[] = "#!/bin/sh\n"
                                  "cd %s || exit 1\n"
                                  "if [ \"$1\" = -d ]; then env | grep -E '^(NOTIFY_SOCKET|WATCHDOG_|LISTEN_)' >>own; "
                                  "[ -e forbidden ] && exit 1; touch running; exit 0; fi\n"
                                  "read command\n"
                                  "echo \"$command $CUDA_MPS_PIPE_DIRECTORY\" >>commands\n"
                                  "env | grep -E '^(NOTIFY_SOCKET|WATCHDOG_|LISTEN_)' >>own\n"
                                  "[ -e running ] || { echo 'Cannot find MPS control daemon process'; exit 1; }\n"
                                  "[ -e hanging ] && exec sleep 600\n"
                                  "[ -e \"hanging-${command##* }\" ] && exec sleep 600\n"
                                  "[ \"$command\" = get_server_list ] && printf '4711\\n4712\\n'\n"
                                  "exit 0\n";

static void touch(const struct mps_test *test, const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", test->folder, name);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static bool is_said(const struct mps_test *test, const char *words)
{
    char path[128], text[8192] = "";

    snprintf(path, sizeof path, "%s/commands", test->folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    return strstr(text, words) != NULL;
}

static int set_up_mps(void **state)
{
    struct mps_test *test = calloc(1, sizeof *test);

    strcpy(test->folder, "/tmp/flyt-mps-test-XXXXXX");
    assert_non_null(mkdtemp(test->folder));
    snprintf(test->script, sizeof test->script, "%s/control", test->folder);
    FILE *file = fopen(test->script, "we");
    fprintf(file, script_text, test->folder);
    fclose(file);
    assert_int_equal(chmod(test->script, 0700), 0);
    assert_true(sd_event_new(&test->event) >= 0);
    test->settings.mps_control = test->script;
    test->settings.mps_dir = test->folder;
    *state = test;
    return 0;
}

static int tear_down_mps(void **state)
{
    struct mps_test *test = *state;
    char command[128];

    flyt_node_mps_free(test->mps);
    sd_event_unref(test->event);
    snprintf(command, sizeof command, "rm -rf %s", test->folder);
    assert_int_equal(system(command), 0);
    free(test);
    return 0;
}

/* On a machine that stands still the script may not have answered in time. */
static void new_mps(struct mps_test *test)
{
    struct flyt_error err;
    int status = -ENOENT;

    for (unsigned i = 0; i < 20 && status == -ENOENT; i++)
        status = flyt_node_mps_new(test->event, &test->settings, &err, &test->mps);
    if (status)
        fail_msg("%s", err.text);
}

static void start_mps(struct mps_test *test)
{
    touch(test, "running");
    test->settings.mps = FLYT_NODE_MPS_WATCH;
    new_mps(test);
}

static void test_mps_is_watched_or_started(void **state)
{
    struct mps_test *test = *state;
    struct flyt_error err;
    struct stat own;
    char words[128];

    setenv("NOTIFY_SOCKET", "/run/of/the/node/manager", 1);
    setenv("WATCHDOG_USEC", "1000000", 1);

    assert_int_equal(flyt_node_mps_new(test->event, &test->settings, &err, &test->mps), 0);
    assert_null(test->mps); /* off */
    test->settings.mps = FLYT_NODE_MPS_WATCH;
    assert_int_equal(flyt_node_mps_new(test->event, &test->settings, &err, &test->mps), -ENOENT);
    assert_non_null(strstr(err.text, "start its unit"));
    test->settings.mps = FLYT_NODE_MPS_START;
    touch(test, "forbidden");
    assert_int_equal(flyt_node_mps_new(test->event, &test->settings, &err, &test->mps), -ENOENT);
    snprintf(words, sizeof words, "%s/forbidden", test->folder);
    unlink(words);
    new_mps(test);
    snprintf(words, sizeof words, "get_server_list %s/pipe", test->folder);
    assert_true(is_said(test, words));
    /* What it executes has not what the service manager gave the node manager alone. */
    snprintf(words, sizeof words, "%s/own", test->folder);
    assert_int_equal(stat(words, &own), 0);
    assert_int_equal(own.st_size, 0);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    struct flyt_node node = {.settings = &test->settings, .mps = test->mps};
    char path[128];
    flyt_node_mps_pipe_dir(&node, FLYT_ISOLATION_STRICT, path, sizeof path);
    assert_non_null(strstr(path, "/none"));
    assert_int_equal(access(path, F_OK), 0);
}

static void test_clients_are_ended_through_mps(void **state)
{
    struct mps_test *test = *state;
    char words[64];
    int status;

    start_mps(test);
    struct flyt_node node = {.settings = &test->settings, .mps = test->mps};
    for (unsigned round = 0; round < 2; round++) {
        pid_t pid = fork();
        if (!pid) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
            _exit(0);
        }
        int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
        /* It is ended by MPS, however long that takes; and where MPS does not answer it is killed all the same. */
        flyt_node_mps_set_end_ms(test->mps, round ? FLYT_NODE_MPS_END_MS : 3600000);
        if (round)
            touch(test, "hanging");
        flyt_node_mps_end_client(&node, 0, pid, pid_fd);
        close(pid_fd);
        pid_t ended = 0;
        while (!ended) {
            run(test->event, 10);
            ended = waitpid(pid, &status, WNOHANG);
        }
        assert_int_equal(ended, pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        snprintf(words, sizeof words, "terminate_client 4711 %d", (int)pid);
        assert_int_equal(is_said(test, words), !round);
        snprintf(words, sizeof words, "terminate_client 4712 %d", (int)pid);
        assert_int_equal(is_said(test, words), !round);
    }
}

/* A process that is to be ended; its descriptor. */
static int start_client(pid_t *ret_pid)
{
    *ret_pid = fork();
    if (!*ret_pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    return (int)syscall(SYS_pidfd_open, *ret_pid, 0);
}

static bool has_ended(int pid_fd)
{
    struct pollfd end = {.fd = pid_fd, .events = POLLIN};

    return poll(&end, 1, 0) > 0;
}

/* All clients of a GPU, as many as MPS has: together they take as long as one of them. One after another they would
 * take four minutes here, far longer than is waited. */
static void test_mps_that_hangs_holds_up_all_of_a_gpu_as_one(void **state)
{
    struct mps_test *test = *state;
    enum { CLIENTS = 48, PATIENCE_MS = 90000 };
    pid_t pids[CLIENTS];
    int pid_fds[CLIENTS];

    start_mps(test);
    struct flyt_node node = {.settings = &test->settings, .mps = test->mps};
    touch(test, "hanging");
    for (unsigned i = 0; i < CLIENTS; i++) {
        pid_fds[i] = start_client(&pids[i]);
        flyt_node_mps_end_client(&node, 0, pids[i], pid_fds[i]);
    }
    uint64_t until_ms = flyt_clock_ms() + PATIENCE_MS;
    for (unsigned i = 0; i < CLIENTS; i++) {
        while (!has_ended(pid_fds[i])) {
            if (flyt_clock_ms() > until_ms)
                fail_msg("client %u was not killed", i);
            run(test->event, 10);
        }
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
        close(pid_fds[i]);
    }
}

/* A client that MPS does not get ended holds up nobody on another GPU. */
static void test_mps_that_hangs_holds_up_its_gpu_alone(void **state)
{
    struct mps_test *test = *state;
    pid_t stuck, other;
    char name[64], words[64];

    start_mps(test);
    flyt_node_mps_set_end_ms(test->mps, 3600000);
    struct flyt_node node = {.settings = &test->settings, .mps = test->mps};
    int stuck_fd = start_client(&stuck), other_fd = start_client(&other);
    snprintf(name, sizeof name, "hanging-%d", (int)stuck);
    touch(test, name);
    flyt_node_mps_end_client(&node, 0, stuck, stuck_fd);
    snprintf(words, sizeof words, "terminate_client 4711 %d", (int)stuck);
    while (!is_said(test, words))
        run(test->event, 10);
    flyt_node_mps_end_client(&node, 1, other, other_fd);
    while (!has_ended(other_fd))
        run(test->event, 10);
    snprintf(words, sizeof words, "terminate_client 4712 %d", (int)other);
    assert_true(is_said(test, words));
    assert_false(has_ended(stuck_fd));
    /* The node manager's end waits for nobody: an hour is not over, and the client is killed all the same. */
    test->mps = flyt_node_mps_free(test->mps);
    assert_int_equal(waitpid(stuck, NULL, 0), stuck);
    assert_int_equal(waitpid(other, NULL, 0), other);
    close(stuck_fd);
    close(other_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nvml),
        cmocka_unit_test(test_nvml_tells_of_processes),
        cmocka_unit_test(test_nvml_tells_of_gpu_time),
        cmocka_unit_test_setup_teardown(test_mps_is_watched_or_started, set_up_mps, tear_down_mps),
        cmocka_unit_test_setup_teardown(test_clients_are_ended_through_mps, set_up_mps, tear_down_mps),
        cmocka_unit_test_setup_teardown(test_mps_that_hangs_holds_up_all_of_a_gpu_as_one, set_up_mps, tear_down_mps),
        cmocka_unit_test_setup_teardown(test_mps_that_hangs_holds_up_its_gpu_alone, set_up_mps, tear_down_mps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
