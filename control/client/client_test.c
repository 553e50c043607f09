/* Tests of the client manager as a process, between a cluster manager that does as the test says and its programs. */
#include <cjson/cJSON.h>
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
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/base/peer.h"
#include "control/base/vm_memory.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/listen.h"

enum { PATIENCE_MS = 60000, STEP_US = 20000, HELD_MAX = 8 };

struct test {
    sd_event *event;
    struct flyt_door *door;
    int listen_fd;
    char folder[64], url[FLYT_URL_TEXT_BYTES];
    pid_t pid;
    /* The cluster manager's answers. */
    flyt_status status;
    const char *text;
    bool has_grant, is_silent;
    struct flyt_call *held[HELD_MAX]; /* what is not answered */
    unsigned held_count;
    struct flyt_peer *vm;
    unsigned memory_count; /* how often it said that it does not use what it shares with its host, */
    char memory_why[512];  /* and why, last */
    unsigned hello_count, look_count, attach_count; /* attach without and with programs that wait */
    /* What it says of the VM's use. */
    unsigned usage_count, again_ms, device_count;
    bool is_usage_silent, is_usage_unknown;
    flyt_program_use uses[2];
};

/* ---- the cluster manager ---- */

static void serve_hello(struct flyt_call *call, void *args)
{
    struct test *test = flyt_peer_user(flyt_call_peer(call));
    const flyt_hello_res res = {
        .outcome = {FLYT_STATUS_OK, (char *)""}, .build = (char *)"boss", .epoch = 1, .is_leader = TRUE};

    test->vm = flyt_call_peer(call);
    test->hello_count++;
    flyt_call_reply(call, &res);
}

static void serve_attach(struct flyt_call *call, void *args)
{
    struct test *test = flyt_peer_user(flyt_call_peer(call));
    const flyt_attach_args *wish = args;
    static char url[] = "tcp://127.0.0.1:9";
    flyt_url_text urls[] = {url};
    flyt_slot slot = {.gpu_uuid = (char *)"GPU-0", .sm_count = 8, .memory_bytes = 1 << 30};
    flyt_grant grant = {.allocation = {.id = 0x77,
                                       .vm_ip = (char *)"10.0.0.7",
                                       .tenant = (char *)"",
                                       .state = FLYT_ALLOCATION_ACTIVE,
                                       .revision = 1,
                                       .generation = 1,
                                       .slots = {1, &slot}},
                        .node = (char *)"n1",
                        .data_urls = {1, urls},
                        .key_number = 1};
    const flyt_attach_res res = {.outcome = {test->status, (char *)test->text},
                                 .grants = {test->has_grant && test->status == FLYT_STATUS_OK, &grant}};

    *(wish->is_waiting ? &test->attach_count : &test->look_count) += 1;
    if (test->is_silent) {
        assert_true(test->held_count < HELD_MAX);
        test->held[test->held_count++] = call;
        return;
    }
    flyt_call_reply(call, &res);
}

static void serve_report(struct flyt_call *call, void *args)
{
    flyt_call_reply(call, &(flyt_outcome){FLYT_STATUS_OK, (char *)""});
}

static void serve_memory(struct flyt_call *call, void *args)
{
    struct test *test = flyt_peer_user(flyt_call_peer(call));

    test->memory_count++;
    snprintf(test->memory_why, sizeof test->memory_why, "%s", ((const flyt_vm_memory_args *)args)->why);
    flyt_call_reply(call, &(flyt_outcome){FLYT_STATUS_OK, (char *)""});
}

static void serve_usage(struct flyt_call *call, void *args)
{
    struct test *test = flyt_peer_user(flyt_call_peer(call));
    flyt_device_use devices[2] = {{.type = (char *)"a GPU",
                                   .compute_major = 9,
                                   .sm_count = 4,
                                   .memory_bytes = 1 << 20,
                                   .memory_used_bytes = 12345,
                                   .busy_pct = 7}};
    if (test->is_usage_unknown)
        devices[0].memory_used_bytes = FLYT_UNKNOWN_BYTES;
    devices[1] = devices[0];
    const flyt_vm_usage_res res = {.outcome = {test->status, (char *)test->text},
                                   .again_ms = test->again_ms,
                                   .driver = {(char *)"580.1.2", 13000},
                                   .devices = {test->device_count, devices},
                                   .programs = {2, test->uses}};

    test->usage_count++;
    if (test->is_usage_silent)
        test->held[test->held_count++] = call;
    else
        flyt_call_reply(call, &res);
}

static const struct flyt_procedure procedures[] = {
    {FLYT_HELLO, "hello", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_hello_args, sizeof(flyt_hello_args),
     (xdrproc_t)xdr_flyt_hello_res, serve_hello},
    {FLYT_VM_ATTACH, "attach", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_attach_args, sizeof(flyt_attach_args),
     (xdrproc_t)xdr_flyt_attach_res, serve_attach},
    {FLYT_VM_REPORT, "report", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_vm_report_args, sizeof(flyt_vm_report_args),
     (xdrproc_t)xdr_flyt_outcome, serve_report},
    {FLYT_VM_MEMORY, "memory", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_vm_memory_args, sizeof(flyt_vm_memory_args),
     (xdrproc_t)xdr_flyt_outcome, serve_memory},
    {FLYT_VM_USAGE, "usage", FLYT_ROLE_ANY, NULL, 0, (xdrproc_t)xdr_flyt_vm_usage_res, serve_usage},
    {.serve = NULL},
};
static const struct flyt_program program = {FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedures};

static void open_office(struct test *test)
{
    const struct flyt_door_config config = {.peer = {.event = test->event,
                                                     .serves = &program,
                                                     .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX,
                                                     .user = test},
                                            .peers_max = 4,
                                            .anonymous_max = 4,
                                            .anonymous_ms = 600000};
    struct flyt_error err;
    char url[FLYT_URL_TEXT_BYTES];

    snprintf(url, sizeof url, "%s", *test->url ? test->url : "tcp://127.0.0.1:0");
    if (flyt_listen(url, &err, &test->listen_fd, test->url))
        fail_msg("%s", err.text);
    assert_int_equal(flyt_door_new(test->listen_fd, NULL, &config, &test->door), 0);
}

static void close_office(struct test *test)
{
    if (!test->door)
        return;
    while (test->held_count)
        flyt_call_fail(test->held[--test->held_count]);
    test->door = flyt_door_free(test->door);
    close(test->listen_fd);
}

/* ---- the client manager ---- */

static void until(struct test *test, bool (*holds)(const struct test *test, const void *user), const void *user,
                  const char *what)
{
    uint64_t end_ms = flyt_clock_ms() + PATIENCE_MS;

    while (!holds(test, user)) {
        if (flyt_clock_ms() > end_ms)
            fail_msg("not within a minute: %s", what);
        assert_int_equal(waitpid(test->pid, NULL, WNOHANG), 0);
        assert_true(sd_event_run(test->event, STEP_US) >= 0);
    }
}

static void run_for(struct test *test, uint64_t ms)
{
    uint64_t end_ms = flyt_clock_ms() + ms;

    while (flyt_clock_ms() < end_ms)
        assert_true(sd_event_run(test->event, STEP_US) >= 0);
}

static bool is_counted(const struct test *test, const void *user)
{
    return *(const unsigned *)user > 0;
}

static void start_client(struct test *test, const char *more)
{
    char path[128], binary[512];
    ssize_t bytes = readlink("/proc/self/exe", binary, sizeof binary - 64);

    assert_true(bytes > 0);
    binary[bytes] = 0;
    strcpy(strstr(binary, "/control/client/"), "/bin/flyt-client-manager");
    snprintf(path, sizeof path, "%s/conf", test->folder);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file, "managers = [\"%s\"];\nvm_ip = \"10.0.0.7\";\nsocket = \"%s/sock\";\nmetrics = \"\";\n%s\n",
            test->url, test->folder, more);
    fprintf(file, "state_dir = \"%s/none\";\n", test->folder);
    assert_int_equal(fclose(file), 0);
    test->pid = fork();
    if (!test->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(binary, binary, "--config", path, NULL);
        _exit(127);
    }
    assert_true(test->pid > 0);
    until(test, is_counted, &test->hello_count, "HELLO");
}

static int set_up(void **state)
{
    struct test *test = calloc(1, sizeof *test);

    strcpy(test->folder, "/tmp/flyt-client-test-XXXXXX");
    assert_non_null(mkdtemp(test->folder));
    assert_true(sd_event_new(&test->event) >= 0);
    test->text = "";
    test->has_grant = true;
    open_office(test);
    *state = test;
    return 0;
}

static int tear_down(void **state)
{
    struct test *test = *state;
    char command[128];
    int status = 0;

    if (test->pid > 0) {
        kill(test->pid, SIGTERM);
        waitpid(test->pid, &status, 0);
    }
    close_office(test);
    sd_event_unref(test->event);
    snprintf(command, sizeof command, "rm -rf %s", test->folder);
    int removed = system(command);
    free(test);
    return status || removed;
}

/* ---- programs ---- */

struct test_program {
    struct flyt_peer *peer;
    bool has_answer, has_ended;
    int call_status;
    flyt_status status;
    char text[512], json[65536];
    unsigned char secret[FLYT_KEY_BYTES];
};

static void on_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct test_program *mine = user;

    mine->peer = NULL;
    mine->has_ended = true;
}

static void connect_program(struct test *test, struct test_program *mine)
{
    const struct flyt_peer_config config = {
        .event = test->event, .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX, .user = mine, .ended = on_ended};
    struct flyt_error err;
    char url[128];

    *mine = (struct test_program){0};
    snprintf(url, sizeof url, "unix://%s/sock", test->folder);
    if (flyt_peer_connect(url, NULL, &config, 0, &err, &mine->peer))
        fail_msg("%s", err.text);
}

static void on_attached(void *user, int status, void *result)
{
    struct test_program *mine = user;
    const flyt_local_attach_res *res = result;

    mine->has_answer = true;
    mine->call_status = status;
    if (status)
        return;
    mine->status = res->outcome.status;
    snprintf(mine->text, sizeof mine->text, "%s", res->outcome.text);
    memcpy(mine->secret, res->secret, sizeof mine->secret);
}

static void ask(struct test_program *mine)
{
    const flyt_local_attach_args args = {.build = (char *)"b", .program_name = (char *)"a program of some length"};

    mine->has_answer = false;
    assert_int_equal(flyt_peer_call(mine->peer, FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, FLYT_LOCAL_ATTACH,
                                    (xdrproc_t)xdr_flyt_local_attach_args, &args, (xdrproc_t)xdr_flyt_local_attach_res,
                                    sizeof(flyt_local_attach_res), 0, on_attached, mine),
                     0);
}

static void on_status(void *user, int status, void *result)
{
    struct test_program *mine = user;
    const flyt_local_status_res *res = result;

    mine->has_answer = true;
    mine->call_status = status;
    if (!status)
        snprintf(mine->json, sizeof mine->json, "%.*s", (int)res->json.json_len, res->json.json_val);
}

static bool is_answered(const struct test *test, const void *user)
{
    return ((const struct test_program *)user)->has_answer;
}

static bool is_over(const struct test *test, const void *user)
{
    return ((const struct test_program *)user)->has_ended;
}

static void ask_status(struct test *test, struct test_program *mine)
{
    mine->has_answer = false;
    assert_int_equal(flyt_peer_call(mine->peer, FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, FLYT_LOCAL_STATUS, NULL, NULL,
                                    (xdrproc_t)xdr_flyt_local_status_res, sizeof(flyt_local_status_res), 0, on_status,
                                    mine),
                     0);
    until(test, is_answered, mine, "the status");
}

static struct test_program begin(struct test *test, struct test_program *mine, flyt_status status)
{
    connect_program(test, mine);
    ask(mine);
    until(test, is_answered, mine, "the answer");
    assert_int_equal(mine->call_status, 0);
    if (mine->status != status)
        fail_msg("status %d: %s", mine->status, mine->text);
    return *mine;
}

/* ---- monitors ---- */

struct test_monitor {
    struct test_program program; /* of which only the connection is used, and has_answer */
    flyt_local_devices_res res;
};

static void on_devices(void *user, int status, void *result)
{
    struct test_monitor *mine = user;
    flyt_local_devices_res *res = result;

    mine->program.has_answer = true;
    mine->program.call_status = status;
    if (status)
        return;
    xdr_free((xdrproc_t)xdr_flyt_local_devices_res, &mine->res);
    mine->res = *res; /* taken over */
    *res = (flyt_local_devices_res){0};
}

static void ask_devices_only(struct test_monitor *mine)
{
    mine->program.has_answer = false;
    assert_int_equal(flyt_peer_call(mine->program.peer, FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, FLYT_LOCAL_DEVICES,
                                    NULL, NULL, (xdrproc_t)xdr_flyt_local_devices_res, sizeof(flyt_local_devices_res),
                                    0, on_devices, mine),
                     0);
}

static void ask_devices(struct test *test, struct test_monitor *mine)
{
    ask_devices_only(mine);
    until(test, is_answered, &mine->program, "the devices");
    assert_int_equal(mine->program.call_status, 0);
}

static void begin_monitor(struct test *test, struct test_monitor *mine)
{
    *mine = (struct test_monitor){0};
    connect_program(test, &mine->program);
}

static void end_monitor(struct test_monitor *mine)
{
    flyt_peer_close(mine->program.peer);
    xdr_free((xdrproc_t)xdr_flyt_local_devices_res, &mine->res);
}

/* ---- tests ---- */

static void test_later_programs_need_no_manager(void **state)
{
    struct test *test = *state;
    struct test_program first, second, third;

    start_client(test, "attach_timeout = 1;");
    begin(test, &first, FLYT_STATUS_OK);
    begin(test, &second, FLYT_STATUS_OK);
    assert_memory_not_equal(first.secret, second.secret, sizeof first.secret);
    assert_int_equal(test->attach_count, 1);
    close_office(test);
    run_for(test, 300);
    /* What one program had was no good; nobody can be asked, and what there is serves him and the others. */
    ask(&first);
    until(test, is_answered, &first, "the second answer");
    assert_int_equal(first.status, FLYT_STATUS_OK);
    begin(test, &third, FLYT_STATUS_OK);
    flyt_peer_close(first.peer);
    flyt_peer_close(second.peer);
    flyt_peer_close(third.peer);
}

/* Nothing is allocated because a connection has come back, and what is there stays while the manager says "later". */
static void test_connection_comes_back(void **state)
{
    struct test *test = *state;
    struct test_program first, second;

    start_client(test, "");
    begin(test, &first, FLYT_STATUS_OK);
    close_office(test);
    test->hello_count = 0;
    test->status = FLYT_STATUS_UNAVAILABLE;
    test->text = "the node is not there yet";
    open_office(test);
    until(test, is_counted, &test->look_count, "it looks what there is");
    assert_int_equal(test->attach_count, 1);
    begin(test, &second, FLYT_STATUS_OK);
    /* The allocation has ended meanwhile: who comes next makes a new one. */
    close_office(test);
    flyt_peer_close(second.peer);
    test->look_count = 0;
    test->status = FLYT_STATUS_OK;
    test->text = "";
    test->has_grant = false;
    open_office(test);
    until(test, is_counted, &test->look_count, "it looks again");
    run_for(test, 100);
    assert_int_equal(test->attach_count, 1);
    test->has_grant = true;
    begin(test, &second, FLYT_STATUS_OK);
    assert_int_equal(test->attach_count, 2);
    flyt_peer_close(first.peer);
    flyt_peer_close(second.peer);
}

/* Who comes while it is only looked is not refused for what was found. */
static void test_program_comes_while_it_looks(void **state)
{
    struct test *test = *state;
    struct test_program first, second;

    start_client(test, "");
    begin(test, &first, FLYT_STATUS_OK);
    close_office(test);
    test->is_silent = true;
    open_office(test);
    until(test, is_counted, &test->look_count, "it looks what there is");
    ask(&first); /* what it had was no good: it waits for the answer */
    run_for(test, 100);
    test->is_silent = false;
    flyt_call_reply(test->held[--test->held_count],
                    &(flyt_attach_res){.outcome = {FLYT_STATUS_OK, (char *)""}, .grants = {0, NULL}});
    until(test, is_answered, &first, "the answer");
    assert_int_equal(first.status, FLYT_STATUS_OK);
    assert_int_equal(test->attach_count, 2);
    begin(test, &second, FLYT_STATUS_OK);
    flyt_peer_close(first.peer);
    flyt_peer_close(second.peer);
}

/* Each program waits as long as it may, not as long as the first one: what is late here makes it longer only. */
static void test_each_program_has_its_time(void **state)
{
    enum { TIMEOUT_MS = 2000, BETWEEN_MS = 1000 };
    struct test *test = *state;
    struct test_program first, second;

    test->is_silent = true;
    start_client(test, "attach_timeout = 2;");
    connect_program(test, &first);
    ask(&first);
    run_for(test, BETWEEN_MS);
    connect_program(test, &second);
    const uint64_t asked_ms = flyt_clock_ms();
    ask(&second);
    until(test, is_answered, &first, "the first one's refusal");
    assert_int_equal(first.status, FLYT_STATUS_UNAVAILABLE);
    until(test, is_answered, &second, "the second one's refusal");
    assert_int_equal(second.status, FLYT_STATUS_UNAVAILABLE);
    assert_true(flyt_clock_ms() - asked_ms > TIMEOUT_MS - BETWEEN_MS / 2);
    flyt_peer_close(first.peer);
    flyt_peer_close(second.peer);
}

/* What the manager refuses is told to whoever waits for it. */
static void test_a_refusal_comes_late(void **state)
{
    struct test *test = *state;
    struct test_program first, second;

    test->is_silent = true;
    start_client(test, "attach_timeout = 600;");
    connect_program(test, &first);
    ask(&first);
    until(test, is_counted, &test->attach_count, "it asks");
    connect_program(test, &second);
    ask(&second);
    run_for(test, 100); /* the longer, the likelier that both wait */
    assert_false(first.has_answer || second.has_answer);
    test->is_silent = false;
    test->status = FLYT_STATUS_NO_CAPACITY;
    test->text = "there is none";
    const flyt_attach_res none = {.outcome = {FLYT_STATUS_NO_CAPACITY, (char *)"there is none"}, .grants = {0, NULL}};
    flyt_call_reply(test->held[--test->held_count], &none);
    until(test, is_answered, &first, "the first one's answer");
    until(test, is_answered, &second, "the second one's answer");
    assert_int_equal(first.status, FLYT_STATUS_NO_CAPACITY);
    assert_int_equal(second.status, FLYT_STATUS_NO_CAPACITY);
    assert_string_equal(second.text, "there is none");
    flyt_peer_close(first.peer);
    flyt_peer_close(second.peer);
}

static void test_status_of_many_programs(void **state)
{
    enum { MANY = 1000 };
    struct test *test = *state;
    struct test_program *programs = calloc(MANY, sizeof *programs);

    assert_non_null(programs);
    start_client(test, "");
    for (unsigned i = 0; i < MANY; i++)
        begin(test, &programs[i], FLYT_STATUS_OK);
    ask_status(test, &programs[0]);
    assert_int_equal(programs[0].call_status, 0);
    cJSON *object = cJSON_Parse(programs[0].json);
    assert_non_null(object);
    assert_int_equal(cJSON_GetObjectItemCaseSensitive(object, "program_count")->valueint, MANY);
    assert_true(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(object, "programs")) > 100);
    cJSON_Delete(object);
    for (unsigned i = 0; i < MANY; i++)
        flyt_peer_close(programs[i].peer);
    free(programs);
}

/* A monitor before any program: it hears what the VM is to have, nothing is placed for it, and it is no program. */
static void test_a_monitor_places_nothing(void **state)
{
    struct test *test = *state;
    struct test_monitor monitor;

    test->device_count = 2;
    test->again_ms = 60000;
    start_client(test, "");
    begin_monitor(test, &monitor);
    for (unsigned i = 0; i < 5; i++)
        ask_devices(test, &monitor);
    assert_int_equal(test->usage_count, 1);
    assert_int_equal(test->attach_count + test->look_count, 0);
    assert_int_equal(monitor.res.outcome.status, FLYT_STATUS_OK);
    assert_int_equal(monitor.res.devices.devices_len, 2);
    assert_int_equal(monitor.res.programs.programs_len, 0);
    assert_string_equal(monitor.res.driver.driver_version, "580.1.2");
    const flyt_local_device *devices = monitor.res.devices.devices_val;
    assert_string_equal(devices[0].pci_bus_id, "0F17:01:00.0");
    assert_string_equal(devices[1].pci_bus_id, "0F17:02:00.0");
    assert_string_not_equal(devices[0].uuid, devices[1].uuid);
    assert_int_equal(devices[1].use.memory_bytes, 1 << 20);
    assert_int_equal(devices[1].use.memory_used_bytes, 12345);
    assert_int_equal(devices[1].use.busy_pct, 7);
    ask_status(test, &monitor.program);
    assert_non_null(strstr(monitor.program.json, "\"program_count\":0"));
    end_monitor(&monitor);
}

/* With a program: what is granted is told from the grant, what is used from the cluster manager's word. */
static void test_a_monitor_sees_programs(void **state)
{
    struct test *test = *state;
    struct test_program first, second;
    struct test_monitor monitor;

    test->device_count = 1;
    test->again_ms = 100;
    test->uses[0] = (flyt_program_use){(u_int)getpid(), 1000};
    test->uses[1] = (flyt_program_use){1, 5};
    start_client(test, "");
    begin_monitor(test, &monitor);
    begin(test, &first, FLYT_STATUS_OK);
    begin(test, &second, FLYT_STATUS_OK);
    ask_devices(test, &monitor);
    assert_int_equal(monitor.res.devices.devices_len, 1);
    assert_int_equal(monitor.res.devices.devices_val[0].use.memory_bytes, 1 << 30);
    assert_int_equal(monitor.res.devices.devices_val[0].use.sm_count, 8);
    assert_int_equal(monitor.res.devices.devices_val[0].use.memory_used_bytes, 12345);
    assert_int_equal(monitor.res.programs.programs_len, 2);
    assert_int_equal(monitor.res.programs.programs_val[0].pid, getpid());
    assert_int_equal(monitor.res.programs.programs_val[0].memory_bytes, 1000);
    unsigned before = test->usage_count;
    run_for(test, 150);
    ask_devices(test, &monitor);
    assert_int_equal(test->usage_count, before + 1);
    /* Away: what is granted stays known, and how much is used is as old as the last word. */
    close_office(test);
    run_for(test, 200);
    ask_devices(test, &monitor);
    assert_int_equal(monitor.res.outcome.status, FLYT_STATUS_OK);
    assert_int_equal(monitor.res.devices.devices_val[0].use.memory_used_bytes, 12345);
    flyt_peer_close(first.peer);
    flyt_peer_close(second.peer);
    end_monitor(&monitor);
}

/* What is not known is told as such; a figure that was known is kept while for a moment nobody knows it. */
static void test_what_nobody_knows_for_a_moment(void **state)
{
    const bool is_known[] = {false, true, false, true};
    struct test *test = *state;
    struct test_monitor monitor;

    test->device_count = 1;
    test->again_ms = 100;
    start_client(test, "");
    begin_monitor(test, &monitor);
    for (unsigned i = 0; i < sizeof is_known; i++) {
        test->is_usage_unknown = !is_known[i];
        run_for(test, 150);
        ask_devices(test, &monitor);
        assert_int_equal(test->usage_count, i + 1);
        assert_true(monitor.res.devices.devices_val[0].use.memory_used_bytes == (i ? 12345 : FLYT_UNKNOWN_BYTES));
    }
    end_monitor(&monitor);
}

/* A cluster manager that says nothing holds a monitor up for two seconds, once, and a program not at all. */
static void test_a_silent_manager_and_monitors(void **state)
{
    struct test *test = *state;
    struct test_program program_of_vm;
    struct test_monitor first, second;

    test->is_usage_silent = true;
    start_client(test, "");
    begin_monitor(test, &first);
    begin_monitor(test, &second);
    ask_devices_only(&first);
    ask_devices_only(&second);
    until(test, is_counted, &test->usage_count, "it asks");
    begin(test, &program_of_vm, FLYT_STATUS_OK);
    flyt_peer_close(program_of_vm.peer);
    until(test, is_answered, &first.program, "the first one's answer");
    until(test, is_answered, &second.program, "the second one's answer");
    assert_int_equal(test->usage_count, 1);
    /* The program has brought a grant meanwhile: that much is known. */
    assert_int_equal(first.res.outcome.status, FLYT_STATUS_OK);
    assert_int_equal(first.res.devices.devices_len, 1);
    assert_true(first.res.devices.devices_val[0].use.memory_used_bytes == FLYT_UNKNOWN_BYTES);
    assert_true(first.res.devices.devices_val[0].use.busy_pct == FLYT_UNKNOWN);
    assert_string_equal(first.res.devices.devices_val[0].use.type, "");
    end_monitor(&first);
    end_monitor(&second);
}

static void test_nobody_knows_the_devices(void **state)
{
    struct test *test = *state;
    struct test_monitor monitor;

    test->status = FLYT_STATUS_UNAVAILABLE;
    test->text = "later";
    start_client(test, "");
    begin_monitor(test, &monitor);
    ask_devices(test, &monitor);
    assert_int_equal(monitor.res.outcome.status, FLYT_STATUS_UNAVAILABLE);
    assert_int_equal(monitor.res.devices.devices_len, 0);
    end_monitor(&monitor);
}

/* As another user than root: nobody, who is in no list, is told so when he asks, and sent away also if he does not. */
static void test_who_may(void **state)
{
    struct test *test = *state;
    struct test_program mine;
    char path[96];

    if (geteuid() != 0) {
        print_message("skip: only root can become another user\n");
        skip();
    }
    start_client(test, "allow_users = [\"daemon\"]; allow_groups = [\"games\"];");
    snprintf(path, sizeof path, "chmod 755 %s", test->folder);
    assert_int_equal(system(path), 0);
    begin(test, &mine, FLYT_STATUS_OK); /* root */
    flyt_peer_close(mine.peer);
    assert_int_equal(seteuid(1), 0); /* daemon */
    begin(test, &mine, FLYT_STATUS_OK);
    assert_int_equal(seteuid(0), 0);
    flyt_peer_close(mine.peer);
    assert_int_equal(seteuid(5), 0); /* games, whose group it is */
    begin(test, &mine, FLYT_STATUS_OK);
    assert_int_equal(seteuid(0), 0);
    flyt_peer_close(mine.peer);
    assert_int_equal(seteuid(65534), 0);
    connect_program(test, &mine);
    run_for(test, 200);
    assert_int_equal(seteuid(0), 0);
    until(test, is_over, &mine, "the end of the connection");
    assert_int_equal(seteuid(65534), 0);
    connect_program(test, &mine);
    ask(&mine);
    run_for(test, 200);
    assert_int_equal(seteuid(0), 0);
    until(test, is_over, &mine, "the end of the connection");
    assert_true(mine.has_answer);
    assert_int_equal(mine.call_status, 0);
    assert_int_equal(mine.status, FLYT_STATUS_DENIED);
    assert_string_equal(mine.text, "user nobody may not use this VM's GPU: neither allow_users nor allow_groups of "
                                   "client.conf lets him");
    /* The others are still served. */
    begin(test, &mine, FLYT_STATUS_OK);
    flyt_peer_close(mine.peer);
}

/* ---- the memory that the VM shares with its host ---- */

enum { MEMORY_BYTES = 1 << 20 };

/* A PCI device of that kind, in a folder that looks as sysfs does. */
static void make_device(const struct test *test)
{
    const struct flyt_vm_memory_head head = flyt_vm_memory_head_of("10.0.0.7", MEMORY_BYTES);
    char command[512], path[128];

    snprintf(command, sizeof command,
             "mkdir -p %s/pci/0 && cd %s/pci/0 && echo 0x1af4 >vendor && echo 0x1110 >device && echo 1 >enable",
             test->folder, test->folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/pci/0/resource2", test->folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, &head, sizeof head), sizeof head);
    assert_int_equal(ftruncate(fd, MEMORY_BYTES), 0);
    close(fd);
}

/* Asks for it as a program does. *ret_fd: -1: no descriptor came. */
static flyt_status ask_memory(struct test *test, int *ret_fd)
{
    const uint32_t call[] = {
        htonl(0x80000000u | 40), htonl(77), htonl(CALL), htonl(2), htonl(FLYT_LOCAL_PROGRAM), htonl(FLYT_LOCAL_VERSION),
        htonl(FLYT_LOCAL_MEMORY)};
    char record[44] = {0}, url[128];
    uint32_t reply[64];
    struct flyt_error err;
    unsigned count = 0;
    int fd, came_fd = -1;

    memcpy(record, call, sizeof call); /* without credentials: zeros */
    snprintf(url, sizeof url, "unix://%s/sock", test->folder);
    if (flyt_connect(url, 60000, &err, &fd))
        fail_msg("%s", err.text);
    assert_int_equal(write(fd, record, sizeof record), sizeof record);
    assert_int_equal(flyt_wait_ready(fd, POLLIN, flyt_clock_ms() + 60000, -1), 0);
    assert_true(flyt_descriptors_receive(fd, reply, sizeof reply, &came_fd, 1, &count) >= 32);
    close(fd);
    *ret_fd = count ? came_fd : -1;
    return (flyt_status)ntohl(reply[7]);
}

static void test_memory(void **state)
{
    struct test *test = *state;
    char more[256], command[128];
    struct flock lock = {.l_type = F_WRLCK, .l_len = 4096};
    struct stat first, second;
    int fds[2];

    make_device(test);
    snprintf(more, sizeof more, "memory: { devices = \"%s/pci\"; groups = [\"games\"]; slow = 1000000; };",
             test->folder);
    start_client(test, more);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(ask_memory(test, &fds[i]), FLYT_STATUS_OK);
    assert_true(fds[0] >= 0 && fds[1] >= 0);
    assert_int_equal(fstat(fds[0], &first) || fstat(fds[1], &second), 0);
    assert_true(first.st_ino == second.st_ino && first.st_size == MEMORY_BYTES);
    /* Each program claims for itself. */
    assert_int_equal(fcntl(fds[0], F_OFD_SETLK, &lock), 0);
    assert_int_equal(fcntl(fds[1], F_OFD_SETLK, &lock), -1);
    close(fds[0]);
    close(fds[1]);
    if (geteuid() != 0)
        return;
    snprintf(command, sizeof command, "chmod 755 %s", test->folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(seteuid(5), 0); /* games, whose group it is */
    const flyt_status of_member = ask_memory(test, &fds[0]);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(seteuid(1), 0); /* daemon, who may use the GPU */
    const flyt_status of_other = ask_memory(test, &fds[1]);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(of_member, FLYT_STATUS_OK);
    assert_int_equal(of_other, FLYT_STATUS_DENIED);
    assert_true(fds[0] >= 0 && fds[1] < 0);
    close(fds[0]);
}

static void test_memory_of_nobody(void **state)
{
    struct test *test = *state;
    char more[256];
    int fd;

    make_device(test);
    snprintf(more, sizeof more, "memory: { devices = \"%s/pci\"; slow = 1000000; };", test->folder);
    start_client(test, more);
    assert_int_equal(ask_memory(test, &fd), FLYT_STATUS_DENIED);
    assert_int_equal(fd, -1);
}

static void test_slow_memory(void **state)
{
    struct test *test = *state;
    struct test_program mine;
    char more[256];
    int fd;

    make_device(test);
    snprintf(more, sizeof more, "memory: { devices = \"%s/pci\"; groups = [\"games\"]; slow = 0; };", test->folder);
    start_client(test, more);
    until(test, is_counted, &test->memory_count, "why it is not used");
    assert_non_null(strstr(test->memory_why, "times what one of ordinary memory takes"));
    if (!geteuid()) {
        assert_int_equal(ask_memory(test, &fd), FLYT_STATUS_NOT_FOUND);
        assert_int_equal(fd, -1);
    }
    connect_program(test, &mine);
    ask_status(test, &mine);
    assert_non_null(strstr(mine.json, "times what one of ordinary memory takes"));
    flyt_peer_close(mine.peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_later_programs_need_no_manager, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_connection_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_program_comes_while_it_looks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_each_program_has_its_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_refusal_comes_late, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_status_of_many_programs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_monitor_places_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_monitor_sees_programs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_nobody_knows_for_a_moment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_silent_manager_and_monitors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_knows_the_devices, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_may, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_memory_of_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_slow_memory, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
