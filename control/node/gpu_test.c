/* Tests of NVML and MPS behind stand-ins: a library with NVML's names, a script in place of MPS's control program. */
#include <errno.h>
#include <fcntl.h>
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

#include "control/node/mps.h"
#include "control/node/nvml.h"
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
    char library[512];
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
                                  "[ -e hanging ] && exec sleep 60\n"
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
    if (flyt_node_mps_new(test->event, &test->settings, &err, &test->mps))
        fail_msg("%s", err.text);
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
    struct flyt_error err;
    char words[64];
    int status;

    touch(test, "running");
    test->settings.mps = FLYT_NODE_MPS_WATCH;
    if (flyt_node_mps_new(test->event, &test->settings, &err, &test->mps))
        fail_msg("%s", err.text);
    struct flyt_node node = {.settings = &test->settings, .mps = test->mps};
    for (unsigned round = 0; round < 2; round++) {
        pid_t pid = fork();
        if (!pid) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
            _exit(0);
        }
        int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (round) /* MPS does not answer: killed all the same */
            touch(test, "hanging");
        flyt_node_mps_end_client(&node, pid, pid_fd);
        close(pid_fd);
        pid_t ended = 0;
        for (unsigned i = 0; i < 3000 && !ended; i++) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nvml),
        cmocka_unit_test(test_nvml_tells_of_processes),
        cmocka_unit_test_setup_teardown(test_mps_is_watched_or_started, set_up_mps, tear_down_mps),
        cmocka_unit_test_setup_teardown(test_clients_are_ended_through_mps, set_up_mps, tear_down_mps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
