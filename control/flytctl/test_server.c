#include "control/flytctl/test_server.h"

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/listen.h"

enum {
    RUN_MS_MAX = 60000,
    BACKUP_CHUNK_BYTES = 100000,
    VIEWS_BEFORE_INTERRUPT = 3, /* by then it follows something, and has said what it has read */
};

unsigned test_interrupt_after_ms;
unsigned test_as_uid;

static struct test_server *server_of(struct flyt_call *call)
{
    return flyt_peer_user(flyt_call_peer(call));
}

static flyt_outcome outcome_of(const struct test_server *server)
{
    return (flyt_outcome){.status = server->status, .text = (char *)(server->text ? server->text : "")};
}

static void keep(struct test_server *server, struct flyt_call *call)
{
    assert_true(server->kept_count < sizeof server->kept / sizeof server->kept[0]);
    server->kept[server->kept_count++] = call;
}

static void serve_hello(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);
    const flyt_hello_args *args = data;
    flyt_url_text leaders[TEST_LEADERS_MAX];
    flyt_hello_res res = {.outcome = {.text = (char *)""}, .build = (char *)"test-build", .epoch = 3};

    server->hello_count++;
    server->kind = args->kind;
    snprintf(server->name, sizeof server->name, "%s", args->name);
    if (server->manner == TEST_IS_SILENT_FROM_HELLO) {
        keep(server, call);
        return;
    }
    res.is_leader = server->manner != TEST_DOES_NOT_LEAD &&
                    (server->manner != TEST_LEADS_FROM_THIRD_HELLO || server->hello_count >= 3);
    res.leaders.leaders_val = leaders;
    while (res.leaders.leaders_len < TEST_LEADERS_MAX && server->leaders[res.leaders.leaders_len]) {
        leaders[res.leaders.leaders_len] = (char *)server->leaders[res.leaders.leaders_len];
        res.leaders.leaders_len++;
    }
    flyt_call_reply(call, &res);
}

/* Whether the call is to be answered as usual. All results begin with an outcome. */
static bool may_answer(struct flyt_call *call, uint32_t procedure, void *empty_result)
{
    struct test_server *server = server_of(call);

    server->call_count++;
    server->last = procedure;
    switch (server->manner) {
    case TEST_IS_SILENT:
        keep(server, call);
        return false;
    case TEST_CLOSES: {
        struct flyt_peer *peer = flyt_call_peer(call);
        flyt_call_done(call);
        flyt_peer_close_when_sent(peer);
        return false;
    }
    case TEST_LEADS_NO_MORE:
        server->manner = TEST_DOES_NOT_LEAD;
        *(flyt_outcome *)empty_result = (flyt_outcome){FLYT_STATUS_NOT_LEADER, (char *)"not any more"};
        flyt_call_reply(call, empty_result);
        return false;
    default:
        return true;
    }
}

static void reply_outcome(struct flyt_call *call, uint32_t procedure)
{
    flyt_outcome outcome = {.text = (char *)""};

    if (!may_answer(call, procedure, &outcome))
        return;
    outcome = outcome_of(server_of(call));
    flyt_call_reply(call, &outcome);
}

static void serve_view(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);
    const flyt_view_args *args = data;
    const struct test_view *view = server->views;
    flyt_view_res res = {.outcome = {.text = (char *)""}};

    server->view_count++;
    snprintf(server->selector, sizeof server->selector, "%s", args->selector);
    if (!may_answer(call, FLYT_VIEW, &res))
        return;
    while (view && view->name && strcmp(view->name, args->view))
        view++;
    const char *json = server->manner == TEST_IS_GARBAGE ? "[{\"vm_ip\":" : view && view->name ? view->json : "[]";
    if (server->manner == TEST_REPEATS) {
        res.next = 5;
        json = "[]";
    } else if (!strcmp(args->view, "events")) { /* what is there comes once */
        res.next = 9;
        json = args->after >= 9 ? "[]" : json;
    } else if (view && view->name && args->after + 1 < view->pages) {
        res.next = args->after + 1;
    }
    res.outcome = outcome_of(server);
    res.json.json_val = (char *)json;
    res.json.json_len = (u_int)strlen(json);
    flyt_call_reply(call, &res);
}

static void serve_vm_set(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);
    const flyt_vm_set_args *args = data;

    server->set = *args;
    snprintf(server->vm, sizeof server->vm, "%s", args->vm);
    snprintf(server->set_name, sizeof server->set_name, "%s", args->name.value);
    server->has_includes = args->include_types.is_set;
    server->include_count = args->include_types.names.names_len;
    if (args->libraries.names.names_len)
        snprintf(server->library, sizeof server->library, "%s", args->libraries.names.names_val[0]);
    reply_outcome(call, FLYT_VM_SET);
}

static void serve_vm_remove(struct flyt_call *call, void *data)
{
    const flyt_vm_remove_args *args = data;

    snprintf(server_of(call)->vm, 256, "%s", args->vm);
    server_of(call)->kill = args->kill;
    reply_outcome(call, FLYT_VM_REMOVE);
}

static void serve_tenant_set(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);

    server->quotas = *(const flyt_tenant_set_args *)data;
    snprintf(server->tenant, sizeof server->tenant, "%s", server->quotas.tenant);
    reply_outcome(call, FLYT_TENANT_SET);
}

static void serve_resize(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);
    flyt_slot_use slot = {.memory_bytes = 8ull << 30,
                          .memory_used_bytes = 1ull << 30,
                          .sm_count = 24,
                          .switch_state = server->draining_sms ? FLYT_SWITCH_SWITCHED : FLYT_SWITCH_VACATED};
    flyt_allocation_use use = {
        .id = 0xabc, .revision = 7, .outcome = {.text = (char *)""}, .session_count = 2, .slots = {1, &slot}};
    flyt_resize_res res = {.outcome = {.text = (char *)""}, .revision = 7, .uses = {1, &use}};

    server->resize = *(const flyt_resize_args *)data;
    snprintf(server->vm, sizeof server->vm, "%s", server->resize.vm);
    if (!may_answer(call, FLYT_RESIZE, &(flyt_resize_res){.outcome = {.text = (char *)""}}))
        return;
    res.outcome = outcome_of(server);
    flyt_call_reply(call, &res);
}

static void serve_drain(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);
    flyt_draining one = {.session_id = 0xdef, .client_pid = 12};
    flyt_drain_res res = {.outcome = {.text = (char *)""}, .sessions = {1, &one}};

    one.program_name = (char *)(server->program_name ? server->program_name : "solver");
    server->drain = *(const flyt_drain_args *)data;
    server->drain.vm = NULL;
    server->drain_count++;
    if (!may_answer(call, FLYT_DRAIN, &(flyt_drain_res){.outcome = {.text = (char *)""}}))
        return;
    if (!server->drain.kill) {
        res.sm_count = server->draining_sms;
        res.outcome = (flyt_outcome){FLYT_STATUS_TIMEOUT, (char *)"16 SMs draining: solver (pid 12)"};
    }
    flyt_call_reply(call, &res);
}

static void serve_migrate(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);
    static flyt_name targets[] = {(char *)"n1:1"};
    flyt_migrate_res res = {.outcome = {.text = (char *)""}};

    server->migrate = *(const flyt_migrate_args *)data;
    server->migrate_count++;
    snprintf(server->vm, sizeof server->vm, "%s", server->migrate.vm);
    snprintf(server->target, sizeof server->target, "%s", server->migrate.target);
    if (!may_answer(call, FLYT_MIGRATE, &(flyt_migrate_res){.outcome = {.text = (char *)""}}))
        return;
    res.outcome = server->migrate_status ? (flyt_outcome){server->migrate_status, (char *)"there is no room"}
                                         : (flyt_outcome){FLYT_STATUS_OK, (char *)""};
    if (!server->migrate_status)
        res.migration_id = 0xfeed, res.targets.targets_len = 1, res.targets.targets_val = targets;
    flyt_call_reply(call, &res);
}

static void serve_migrate_cancel(struct flyt_call *call, void *data)
{
    const flyt_migrate_cancel_args *args = data;

    server_of(call)->cancel_count++;
    snprintf(server_of(call)->vm, 256, "%s", args->vm);
    reply_outcome(call, FLYT_MIGRATE_CANCEL);
}

static void reply_saving(struct flyt_call *call, uint32_t procedure)
{
    struct test_server *server = server_of(call);
    flyt_saving_begun_res res = {.outcome = {.text = (char *)""}, .node = (char *)"n1"};

    if (!may_answer(call, procedure, &res))
        return;
    if (server->saving_status)
        res.outcome = (flyt_outcome){server->saving_status, (char *)"it is being resized"};
    else
        res.id = 0xbeef;
    flyt_call_reply(call, &res);
}

static void serve_checkpoint(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);

    server->checkpoint = *(const flyt_checkpoint_args *)data;
    server->checkpoint_count++;
    snprintf(server->vm, sizeof server->vm, "%s", server->checkpoint.vm);
    snprintf(server->target, sizeof server->target, "%s", server->checkpoint.folder);
    reply_saving(call, FLYT_CHECKPOINT);
}

static void serve_restore(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);

    server->restore = *(const flyt_restore_args *)data;
    server->restore_count++;
    snprintf(server->vm, sizeof server->vm, "%s", server->restore.node);
    snprintf(server->target, sizeof server->target, "%s", server->restore.folder);
    reply_saving(call, FLYT_RESTORE);
}

static void serve_schedule(struct flyt_call *call, void *data)
{
    static const char json[] = "[{\"id\":\"0000000000000abc\",\"vm_ip\":\"10.0.0.1\",\"node\":\"n1\",\"gpu\":\"GPU-1\","
                               "\"state\":\"active\"}]";
    struct test_server *server = server_of(call);
    flyt_view_res res = {.outcome = {.text = (char *)""}};

    server->schedule = *(const flyt_schedule_args *)data;
    snprintf(server->target, sizeof server->target, "%s", server->schedule.target);
    if (!may_answer(call, FLYT_SCHEDULE, &res))
        return;
    res.outcome = outcome_of(server);
    res.json.json_val = (char *)json;
    res.json.json_len = sizeof json - 1;
    flyt_call_reply(call, &res);
}

static void serve_gpu_set(struct flyt_call *call, void *data)
{
    const flyt_gpu_set_args *args = data;

    snprintf(server_of(call)->target, 256, "%s", args->gpu);
    server_of(call)->group_size = args->group_size;
    reply_outcome(call, FLYT_GPU_SET);
}

static void serve_allocation(struct flyt_call *call, void *data)
{
    const flyt_allocation_args *args = data;

    server_of(call)->id = args->id;
    server_of(call)->action = (int)args->action;
    reply_outcome(call, FLYT_ALLOCATION);
}

static void serve_fence(struct flyt_call *call, void *data)
{
    const flyt_fence_args *args = data;

    snprintf(server_of(call)->target, 256, "%s", args->node);
    server_of(call)->is_confirmed = args->is_confirmed_dead;
    reply_outcome(call, FLYT_NODE_FENCE);
}

static void serve_adopt(struct flyt_call *call, void *data)
{
    const flyt_adopt_args *args = data;

    snprintf(server_of(call)->target, 256, "%s <- %s (%u)", args->node, args->gpus.gpus_val[args->gpus.gpus_len - 1],
             args->gpus.gpus_len);
    reply_outcome(call, FLYT_NODE_ADOPT);
}

static void serve_vm_device(struct flyt_call *call, void *data)
{
    const flyt_vm_device_args *args = data;
    struct test_server *server = server_of(call);
    flyt_name path = (char *)(server->path ? server->path : "/dev/shm/flyt-10.0.0.9");
    flyt_vm_device_res res = {.outcome = {.text = (char *)""}};

    snprintf(server->target, sizeof server->target, "%s %s%s", args->vm, args->node, args->remove ? " remove" : "");
    if (!may_answer(call, FLYT_VM_DEVICE, &res))
        return;
    res.outcome = outcome_of(server);
    if (!args->remove && res.outcome.status == FLYT_STATUS_OK) {
        res.path.path_len = 1;
        res.path.path_val = &path;
        res.bytes = 1 << 28;
    }
    flyt_call_reply(call, &res);
}

static void serve_token(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);
    const flyt_token_args *args = data;
    flyt_token_res res = {.outcome = {.text = (char *)""}, .token = (char *)""};

    server->token_kind = args->kind;
    server->valid_s = args->valid_s;
    snprintf(server->target, sizeof server->target, "%s", args->name);
    if (!may_answer(call, FLYT_JOIN_TOKEN, &res))
        return;
    res.outcome = outcome_of(server);
    res.token = (char *)(server->token ? server->token : "flyt1.abc.def");
    flyt_call_reply(call, &res);
}

static void serve_session_kill(struct flyt_call *call, void *data)
{
    server_of(call)->id = ((const flyt_session_args *)data)->id;
    reply_outcome(call, FLYT_SESSION_KILL);
}

static void serve_backup(struct flyt_call *call, void *data)
{
    struct test_server *server = server_of(call);
    uint64_t offset = ((const flyt_backup_args *)data)->offset_bytes;
    flyt_backup_res res = {.outcome = {.text = (char *)""}, .total_bytes = server->backup_bytes};
    char chunk[BACKUP_CHUNK_BYTES];

    if (!may_answer(call, FLYT_BACKUP, &res))
        return;
    uint64_t end = server->backup_cut_bytes ? server->backup_cut_bytes : server->backup_bytes;
    uint64_t left = offset < end ? end - offset : 0;
    res.outcome = outcome_of(server);
    res.data.data_len = left < sizeof chunk ? (u_int)left : (u_int)sizeof chunk;
    res.data.data_val = chunk;
    for (u_int i = 0; i < res.data.data_len; i++)
        chunk[i] = (char)((offset + i) * 7 + ((offset + i) >> 9));
    flyt_call_reply(call, &res);
}

static void serve_revoke(struct flyt_call *call, void *data)
{
    const flyt_revoke_args *args = data;

    snprintf(server_of(call)->target, 256, "%s", args->name);
    server_of(call)->token_kind = args->kind;
    reply_outcome(call, FLYT_REVOKE);
}

#define ROW(number_, name_, type_, res_, serve_)                                                                       \
    {                                                                                                                  \
        number_, name_, FLYT_ROLE_ANY, (xdrproc_t)xdr_##type_, sizeof(type_), (xdrproc_t)xdr_##res_, serve_            \
    }

static const struct flyt_procedure procedures[] = {
    ROW(FLYT_HELLO, "hello", flyt_hello_args, flyt_hello_res, serve_hello),
    ROW(FLYT_VIEW, "view", flyt_view_args, flyt_view_res, serve_view),
    ROW(FLYT_VM_SET, "vm_set", flyt_vm_set_args, flyt_outcome, serve_vm_set),
    ROW(FLYT_VM_REMOVE, "vm_remove", flyt_vm_remove_args, flyt_outcome, serve_vm_remove),
    ROW(FLYT_TENANT_SET, "tenant_set", flyt_tenant_set_args, flyt_outcome, serve_tenant_set),
    ROW(FLYT_RESIZE, "resize", flyt_resize_args, flyt_resize_res, serve_resize),
    ROW(FLYT_DRAIN, "drain", flyt_drain_args, flyt_drain_res, serve_drain),
    ROW(FLYT_MIGRATE, "migrate", flyt_migrate_args, flyt_migrate_res, serve_migrate),
    ROW(FLYT_MIGRATE_CANCEL, "migrate_cancel", flyt_migrate_cancel_args, flyt_outcome, serve_migrate_cancel),
    ROW(FLYT_CHECKPOINT, "checkpoint", flyt_checkpoint_args, flyt_saving_begun_res, serve_checkpoint),
    ROW(FLYT_RESTORE, "restore", flyt_restore_args, flyt_saving_begun_res, serve_restore),
    ROW(FLYT_SCHEDULE, "schedule", flyt_schedule_args, flyt_view_res, serve_schedule),
    ROW(FLYT_GPU_SET, "gpu_set", flyt_gpu_set_args, flyt_outcome, serve_gpu_set),
    ROW(FLYT_ALLOCATION, "allocation", flyt_allocation_args, flyt_outcome, serve_allocation),
    ROW(FLYT_NODE_FENCE, "node_fence", flyt_fence_args, flyt_outcome, serve_fence),
    ROW(FLYT_NODE_ADOPT, "node_adopt", flyt_adopt_args, flyt_outcome, serve_adopt),
    ROW(FLYT_JOIN_TOKEN, "join_token", flyt_token_args, flyt_token_res, serve_token),
    ROW(FLYT_VM_DEVICE, "vm_device", flyt_vm_device_args, flyt_vm_device_res, serve_vm_device),
    ROW(FLYT_SESSION_KILL, "session_kill", flyt_session_args, flyt_outcome, serve_session_kill),
    ROW(FLYT_BACKUP, "backup", flyt_backup_args, flyt_backup_res, serve_backup),
    ROW(FLYT_REVOKE, "revoke", flyt_revoke_args, flyt_outcome, serve_revoke),
    {.serve = NULL},
};
static const struct flyt_program program = {FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedures};

void test_server_init(struct test_server *server, sd_event *event)
{
    struct flyt_error err = {0};
    char url[120];

    *server = (struct test_server){.event = event, .listen_fd = -1};
    snprintf(server->folder, sizeof server->folder, "/tmp/flytctl-test-XXXXXX");
    assert_non_null(mkdtemp(server->folder));
    snprintf(url, sizeof url, "unix://%s/s", server->folder);
    if (flyt_listen(url, &err, &server->listen_fd, server->url))
        fail_msg("%s", err.text);
    const struct flyt_door_config config = {.peer = {.event = event, .serves = &program, .user = server}};
    assert_int_equal(flyt_door_new(server->listen_fd, NULL, &config, &server->door), 0);
}

static void forget_calls(struct test_server *server)
{
    while (server->kept_count)
        flyt_call_done(server->kept[--server->kept_count]);
}

void test_server_fini(struct test_server *server)
{
    forget_calls(server);
    flyt_door_free(server->door);
    flyt_close(server->listen_fd);
    flyt_unlisten(server->url);
    assert_int_equal(rmdir(server->folder), 0);
}

void test_server_reset(struct test_server *server)
{
    struct test_server fresh = {
        .event = server->event, .door = server->door, .listen_fd = server->listen_fd, .views = server->views};

    forget_calls(server);
    memcpy(fresh.url, server->url, sizeof fresh.url);
    memcpy(fresh.folder, server->folder, sizeof fresh.folder);
    *server = fresh;
}

/* ---- the process ---- */

/* build/control/flytctl/x_test -> build/bin/flytctl */
static void find_program(char *path, size_t bytes)
{
    ssize_t count = readlink("/proc/self/exe", path, bytes - 1);

    assert_true(count > 0);
    path[count] = 0;
    for (int i = 0; i < 3; i++)
        *strrchr(path, '/') = 0;
    strncat(path, "/bin/flytctl", bytes - strlen(path) - 1);
}

static void run_child(struct test_server *server, const char *const *words, int in, int out, int err)
{
    const char *argv[TEST_WORDS_MAX + 4] = {"flytctl"};
    char program_path[4096];
    unsigned count = 1;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL); /* which a shell has its background jobs ignore */
    find_program(program_path, sizeof program_path);
    if (server) {
        argv[count++] = "--manager";
        argv[count++] = server->url;
    }
    while (*words)
        argv[count++] = *words++;
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (test_as_uid && (setgid(test_as_uid) || setuid(test_as_uid)))
        _exit(126);
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    setenv("TZ", "UTC", 1);
    execv(program_path, (char **)argv);
    _exit(127);
}

struct reader {
    int fd; /* -1: it has ended */
    char *text;
    size_t bytes;
};

static void read_some(struct reader *reader)
{
    char data[65536];
    ssize_t count;

    while (reader->fd >= 0 && (count = read(reader->fd, data, sizeof data)) != -1) {
        if (count == 0) {
            reader->fd = flyt_close(reader->fd);
            return;
        }
        reader->text = realloc(reader->text, reader->bytes + (size_t)count + 1);
        assert_non_null(reader->text);
        memcpy(reader->text + reader->bytes, data, (size_t)count);
        reader->bytes += (size_t)count;
        reader->text[reader->bytes] = 0;
    }
    if (reader->fd >= 0 && errno != EAGAIN) /* EIO: a terminal that nobody has open any more */
        reader->fd = flyt_close(reader->fd);
}

static void open_streams(unsigned columns, int out[2], int err[2])
{
    struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = 30};

    if (columns)
        assert_int_equal(openpty(&out[0], &out[1], NULL, NULL, &size), 0);
    else
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    for (int i = 0; i < 2; i++) {
        int fd = i ? err[0] : out[0];
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
}

void test_run(struct test_server *server, unsigned columns, const char *typed, struct test_result *ret_result,
              const char *const *words)
{
    sd_event *event = server ? server->event : NULL;
    int out[2], err[2], status = 0;
    flyt_auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    uint64_t started_ms = flyt_clock_ms();
    bool has_interrupted = false;
    const unsigned views = server ? server->view_count + VIEWS_BEFORE_INTERRUPT : 0;

    open_streams(columns, out, err);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        run_child(server, words, columns ? out[1] : null, out[1], err[1]);
    flyt_close(out[1]);
    flyt_close(err[1]);
    struct reader readers[2] = {{.fd = out[0]}, {.fd = err[0]}};
    while (readers[0].fd >= 0 || readers[1].fd >= 0) {
        if (event)
            assert_true(sd_event_run(event, 2000) >= 0);
        else
            usleep(2000);
        if (typed && readers[0].bytes) {
            assert_int_equal(write(readers[0].fd, typed, strlen(typed)), strlen(typed));
            typed = NULL;
        }
        read_some(&readers[0]);
        read_some(&readers[1]);
        uint64_t elapsed_ms = flyt_clock_ms() - started_ms;
        if (test_interrupt_after_ms && !has_interrupted && elapsed_ms > test_interrupt_after_ms &&
            (!server || server->view_count >= views)) {
            has_interrupted = true;
            kill(pid, SIGINT);
        }
        if (elapsed_ms > RUN_MS_MAX) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            fail_msg("flytctl %s has not ended: %s%s", words[0], readers[0].text, readers[1].text);
        }
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ret_result->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ret_result->out = readers[0].text ? readers[0].text : strdup("");
    ret_result->out_bytes = readers[0].bytes;
    ret_result->err = readers[1].text ? readers[1].text : strdup("");
}

void test_result_fini(struct test_result *result)
{
    free(result->out);
    free(result->err);
    *result = (struct test_result){0};
}
