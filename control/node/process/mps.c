#include "control/node/process/mps.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/base/worker.h"
#include "control/node/host/machine.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

extern char **environ;

enum {
    PATH_BYTES = 512,
    OUTPUT_BYTES = 4096,
    CONTROL_MS = 5000,
    KILLED_MS = 1000, /* the control program has so long to go when it was killed */
    JOBS_MAX = 512,
};

struct flyt_node_mps {
    const struct flyt_node_settings *settings;
    sd_event *event;
    struct flyt_worker *worker;                /* that watches */
    struct flyt_worker *enders[FLYT_GPUS_MAX]; /* by GPU; NULL: none of its clients was ended yet */
    bool is_late_told[FLYT_GPUS_MAX];
    uint64_t end_ms;
    int stop_fd; /* an eventfd: readable when nobody is to wait any more */
    sd_event_source *timer;
    char pipe_variable[PATH_BYTES], log_variable[PATH_BYTES];
    bool is_watching, was_running, is_running;
    bool takes_users, found_users; /* as the loop knows it, as the thread has found it */
};

/* Servers are, or may be, users of their own. */
static bool wants_users(const struct flyt_node_settings *settings)
{
    return settings->server_uids.last && !geteuid();
}

int flyt_node_mps_make_dirs(const struct flyt_node_settings *settings)
{
    static const struct {
        const char *name;
        bool is_passed; /* by servers; MPS itself sets who may do what in there */
    } folders[] = {{"", true}, {"/pipe", true}, {"/none", true}, {"/log", false}};
    char path[PATH_BYTES];
    struct stat info;

    for (unsigned i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s%s", settings->mps_dir, folders[i].name);
        if ((mkdir(path, 0700) && errno != EEXIST) || stat(path, &info))
            return -errno;
        if (folders[i].is_passed && wants_users(settings) && chmod(path, (info.st_mode & 0777) | 0111))
            return -errno;
    }
    return 0;
}

/* ---- several users ---- */

static ssize_t read_file(const char *path, char *text, size_t bytes)
{
    flyt_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t count = fd < 0 ? -1 : read(fd, text, bytes - 1);

    if (count >= 0)
        text[count] = 0;
    return count;
}

/* -M, alone or among other letters, or in full. */
static bool is_users_option(const char *word)
{
    const char *name = word + 1 + (word[0] == '-' && word[1] == '-');

    if (word[0] != '-')
        return false;
    return !strcmp(name, "multiuser-server") || (word[1] != '-' && strchr(word, 'M') && !word[strspn(word, "-dfMq")]);
}

/* MPS has no question that would tell it: how the daemon was started does. Its number is in its folder, in a file that
 * everybody may write who gets there, so that it has to be root's and to have MPS's name. */
static bool is_for_users(const struct flyt_node_mps *mps)
{
    char path[PATH_BYTES], text[OUTPUT_BYTES];
    struct stat info;
    bool is_found = false;

    snprintf(path, sizeof path, "%s/pipe/nvidia-cuda-mps-control.pid", mps->settings->mps_dir);
    int pid = read_file(path, text, sizeof text) > 0 ? atoi(text) : 0;
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (pid <= 0 || stat(path, &info) || info.st_uid != geteuid())
        return false;
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    if (read_file(path, text, sizeof text) <= 0 || strncmp(text, "nvidia-cuda-mps", 15) != 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    ssize_t bytes = read_file(path, text, sizeof text);
    for (const char *word = text; bytes > 0 && word < text + bytes; word += strlen(word) + 1)
        is_found |= is_users_option(word);
    return is_found;
}

bool flyt_node_mps_takes_users(const struct flyt_node_mps *mps)
{
    return mps->takes_users;
}

/* On the loop's thread, after looking. */
static void note_users(struct flyt_node_mps *mps, bool is_first)
{
    bool is_news = is_first || mps->found_users != mps->takes_users;

    mps->takes_users = mps->found_users;
    if (!is_news || !wants_users(mps->settings) || !mps->is_running)
        return;
    if (mps->takes_users)
        flyt_info("mps: the control daemon serves several users at a time: servers are users of their own");
    else
        flyt_warn("mps: the control daemon was not started with -M and serves one user at a time: servers of shared "
                  "GPUs are user %u until it is",
                  geteuid());
}

void flyt_node_mps_pipe_dir(const struct flyt_node *node, flyt_isolation isolation, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s", node->settings->mps_dir, isolation == FLYT_ISOLATION_STRICT ? "none" : "pipe");
}

/* ---- the control program: on the worker, or at the start ---- */

/* The environment with MPS's folders in front, and without what is this process's own; malloc'ed. */
static char **make_environment(const struct flyt_node_mps *mps)
{
    size_t count = 0, used = 3;

    while (environ[count])
        count++;
    char **envp = calloc(count + 4, sizeof *envp);
    if (!envp)
        return NULL;
    envp[0] = (char *)mps->pipe_variable;
    envp[1] = (char *)mps->log_variable;
    envp[2] = (char *)"CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING=1";
    for (size_t i = 0; i < count; i++)
        if (!flyt_node_is_own_variable(environ[i]))
            envp[used++] = environ[i];
    return envp;
}

static pid_t spawn(const struct flyt_node_mps *mps, bool is_daemon, int in_fd, int out_fd)
{
    char *argv[] = {mps->settings->mps_control, NULL, NULL, NULL}, **option = argv + 1;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid = -1;

    char **envp = make_environment(mps);
    if (!envp || posix_spawn_file_actions_init(&actions)) {
        free(envp);
        return -1;
    }
    if (is_daemon && wants_users(mps->settings))
        *option++ = (char *)"-M";
    if (is_daemon)
        *option = (char *)"-d";
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_adddup2(&actions, in_fd, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_fd, STDERR_FILENO);
    int status = posix_spawnp(&pid, argv[0], &actions, &attributes, argv, envp);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(envp);
    return status ? -1 : pid;
}

/* Whether the descriptor is readable before the deadline, and before everything is to stop. */
static bool is_readable(const struct flyt_node_mps *mps, int fd, uint64_t deadline_ms)
{
    struct pollfd polls[] = {{.fd = fd, .events = POLLIN}, {.fd = mps->stop_fd, .events = POLLIN}};

    while (poll(polls, 2, flyt_clock_left_ms(deadline_ms)) < 0)
        if (errno != EINTR)
            return false;
    return polls[0].revents;
}

/* Waits for its end; kills it at the deadline. 0 where it ended well. One that even then does not go stays a zombie
 * until the node manager's end. */
static int reap(const struct flyt_node_mps *mps, pid_t pid, uint64_t deadline_ms)
{
    int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int status = 0;

    bool is_late = pid_fd >= 0 && !is_readable(mps, pid_fd, deadline_ms);
    if (is_late) {
        kill(pid, SIGKILL);
        struct pollfd end = {.fd = pid_fd, .events = POLLIN};
        poll(&end, 1, KILLED_MS);
    }
    pid_t ended;
    do
        ended = waitpid(pid, &status, is_late ? WNOHANG : 0);
    while (ended < 0 && errno == EINTR);
    if (!ended)
        flyt_warn("mps: the control program %d does not even end when it is killed", (int)pid);
    flyt_close(pid_fd);
    return ended < 0 ? -errno : is_late ? -ETIMEDOUT : WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

static void read_output(const struct flyt_node_mps *mps, int fd, char *output, uint64_t deadline_ms)
{
    size_t used = 0;

    while (used < OUTPUT_BYTES - 1 && is_readable(mps, fd, deadline_ms)) {
        ssize_t step = read(fd, output + used, OUTPUT_BYTES - 1 - used);
        if (step <= 0)
            break;
        used += (size_t)step;
    }
    output[used] = 0;
}

/* Runs it with a command on its input (NULL: so that it starts the daemon), until the deadline. `output` has
 * OUTPUT_BYTES. 0 or a negative errno. */
static int run_control_until(const struct flyt_node_mps *mps, const char *command, char *output, uint64_t deadline_ms)
{
    int in[2], out[2];

    *output = 0;
    if (pipe2(in, O_CLOEXEC))
        return -errno;
    if (pipe2(out, O_CLOEXEC)) {
        flyt_close(in[0]);
        flyt_close(in[1]);
        return -errno;
    }
    pid_t pid = spawn(mps, !command, in[0], out[1]);
    flyt_close(in[0]);
    flyt_close(out[1]);
    int status = pid < 0 ? -ENOENT : 0;
    /* Shorter than a pipe holds: it never waits. */
    if (pid >= 0 && command && write(in[1], command, strlen(command)) < 0)
        status = -errno;
    flyt_close(in[1]);
    if (pid >= 0 && command)
        read_output(mps, out[0], output, deadline_ms);
    flyt_close(out[0]);
    if (pid >= 0) {
        int ended = reap(mps, pid, deadline_ms);
        status = status ? status : ended;
    }
    return status;
}

static int run_control(const struct flyt_node_mps *mps, const char *command, char *output)
{
    return run_control_until(mps, command, output, flyt_clock_ms() + CONTROL_MS);
}

static bool is_daemon_there(const struct flyt_node_mps *mps)
{
    char output[OUTPUT_BYTES];

    return !run_control(mps, "get_server_list\n", output) && !strstr(output, "Cannot find MPS control daemon");
}

/* Whether it runs at the end. */
static bool watch_or_start(const struct flyt_node_mps *mps)
{
    char output[OUTPUT_BYTES];

    if (is_daemon_there(mps))
        return true;
    return mps->settings->mps == FLYT_NODE_MPS_START && !run_control(mps, NULL, output) && is_daemon_there(mps);
}

/* ---- watching ---- */

static void watch_work(void *job)
{
    struct flyt_node_mps *mps = job;

    mps->is_running = watch_or_start(mps);
    mps->found_users = mps->is_running && is_for_users(mps);
}

static void watch_done(void *job, int is_cancelled)
{
    struct flyt_node_mps *mps = job;

    mps->is_watching = false;
    if (is_cancelled)
        return;
    note_users(mps, false);
    if (mps->is_running == mps->was_running)
        return;
    mps->was_running = mps->is_running;
    if (mps->is_running)
        flyt_info("mps: the control daemon is there again");
    else
        flyt_fail("mps: the control daemon does not answer: no program can begin on shared GPUs");
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_mps *mps = user;

    if (!mps->is_watching)
        mps->is_watching = !flyt_worker_do(mps->worker, watch_work, watch_done, mps);
    sd_event_source_set_time_relative(source, FLYT_NODE_MPS_WATCH_MS * 1000);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

int flyt_node_mps_new(sd_event *event, const struct flyt_node_settings *settings, struct flyt_error *err,
                      struct flyt_node_mps **ret_mps)
{
    *ret_mps = NULL;
    if (settings->mps == FLYT_NODE_MPS_OFF)
        return 0;
    struct flyt_node_mps *mps = calloc(1, sizeof *mps);
    if (!mps)
        return flyt_error_set(err, -ENOMEM, "no memory");
    mps->settings = settings;
    mps->event = event;
    mps->end_ms = FLYT_NODE_MPS_END_MS;
    mps->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mps->stop_fd < 0) {
        free(mps);
        return flyt_error_set(err, -errno, "MPS cannot be watched: %m");
    }
    snprintf(mps->pipe_variable, PATH_BYTES, "CUDA_MPS_PIPE_DIRECTORY=%s/pipe", settings->mps_dir);
    snprintf(mps->log_variable, PATH_BYTES, "CUDA_MPS_LOG_DIRECTORY=%s/log", settings->mps_dir);
    int status = flyt_node_mps_make_dirs(settings);
    if (status) {
        flyt_node_mps_free(mps);
        return flyt_error_set(err, status, "%s cannot be made: %s", settings->mps_dir, strerror(-status));
    }
    mps->is_running = mps->was_running = watch_or_start(mps);
    mps->found_users = mps->is_running && is_for_users(mps);
    note_users(mps, true);
    if (!mps->is_running) {
        flyt_node_mps_free(mps);
        return flyt_error_set(err, -ENOENT,
                              settings->mps == FLYT_NODE_MPS_START
                                  ? "the MPS control daemon cannot be started with %s"
                                  : "no MPS control daemon runs in %s/pipe: start its unit, or set mps = \"start\"",
                              settings->mps == FLYT_NODE_MPS_START ? settings->mps_control : settings->mps_dir);
    }
    status = flyt_worker_new(event, "mps", JOBS_MAX, &mps->worker);
    if (status >= 0)
        status = sd_event_add_time_relative(event, &mps->timer, CLOCK_MONOTONIC, FLYT_NODE_MPS_WATCH_MS * 1000, 100000,
                                            on_timer, mps);
    if (status < 0) {
        flyt_node_mps_free(mps);
        return flyt_error_set(err, status, "MPS cannot be watched: %s", strerror(-status));
    }
    *ret_mps = mps;
    return 0;
}

struct flyt_node_mps *flyt_node_mps_free(struct flyt_node_mps *mps)
{
    if (!mps)
        return NULL;
    sd_event_source_disable_unref(mps->timer);
    eventfd_write(mps->stop_fd, 1); /* nobody is waited for */
    for (unsigned i = 0; i < FLYT_GPUS_MAX; i++)
        flyt_worker_free(mps->enders[i]);
    flyt_worker_free(mps->worker);
    flyt_close(mps->stop_fd);
    free(mps);
    return NULL;
}

/* ---- ending clients ---- */

struct ending {
    struct flyt_node_mps *mps;
    unsigned gpu_index;
    pid_t pid;
    int pid_fd;
    uint64_t deadline_ms;
    sd_event_source *timer; /* NULL: it was killed */
};

static void end_work(void *job)
{
    const struct ending *ending = job;
    char servers[OUTPUT_BYTES], output[OUTPUT_BYTES], command[96], *rest = servers;

    /* It waited for its turn for too long: it was killed, or is in a moment. */
    if (!flyt_clock_left_ms(ending->deadline_ms))
        return;
    /* One MPS server for each uid: the client is one of them's, the others refuse. */
    if (run_control_until(ending->mps, "get_server_list\n", servers, ending->deadline_ms))
        return;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        if (atoi(line) <= 0 || !flyt_clock_left_ms(ending->deadline_ms))
            continue;
        snprintf(command, sizeof command, "terminate_client %d %d\n", atoi(line), (int)ending->pid);
        run_control_until(ending->mps, command, output, ending->deadline_ms);
    }
}

static void kill_now(struct ending *ending)
{
    ending->timer = sd_event_source_disable_unref(ending->timer);
    syscall(SYS_pidfd_send_signal, ending->pid_fd, SIGKILL, NULL, 0);
}

static void end_done(void *job, int is_cancelled)
{
    struct ending *ending = job;

    if (ending->timer) {
        ending->mps->is_late_told[ending->gpu_index] = false;
        kill_now(ending);
    }
    flyt_close(ending->pid_fd);
    free(ending);
}

/* The job may wait for its turn, or for MPS; it ends by itself. */
static int on_late(sd_event_source *source, uint64_t usec, void *user)
{
    struct ending *ending = user;
    bool *is_told = &ending->mps->is_late_told[ending->gpu_index];

    if (!*is_told)
        flyt_warn("gpu %u: MPS does not end its clients in time: they are killed without it", ending->gpu_index);
    *is_told = true;
    kill_now(ending);
    return 0;
}

/* NULL: there cannot be one. */
static struct flyt_worker *ender_of(struct flyt_node_mps *mps, unsigned gpu_index)
{
    struct flyt_worker **ender = &mps->enders[gpu_index];

    if (!*ender && flyt_worker_new(mps->event, "mps end", JOBS_MAX, ender) < 0)
        *ender = NULL;
    return *ender;
}

void flyt_node_mps_end_client(struct flyt_node *node, unsigned gpu_index, pid_t pid, int pid_fd)
{
    struct flyt_node_mps *mps = node->mps;
    struct flyt_worker *ender = ender_of(mps, gpu_index);
    struct ending *ending = ender ? calloc(1, sizeof *ending) : NULL;

    /* MPS needs the client's own threads to end its work: for one that is stopped it would wait in vain. */
    syscall(SYS_pidfd_send_signal, pid_fd, SIGCONT, NULL, 0);
    if (ending) {
        *ending = (struct ending){.mps = mps,
                                  .gpu_index = gpu_index,
                                  .pid = pid,
                                  .pid_fd = fcntl(pid_fd, F_DUPFD_CLOEXEC, 0),
                                  .deadline_ms = flyt_clock_ms() + mps->end_ms};
        if (ending->pid_fd >= 0 &&
            sd_event_add_time_relative(mps->event, &ending->timer, CLOCK_MONOTONIC, mps->end_ms * 1000, 1000, on_late,
                                       ending) >= 0 &&
            !flyt_worker_do(ender, end_work, end_done, ending))
            return;
        sd_event_source_disable_unref(ending->timer);
        flyt_close(ending->pid_fd);
        free(ending);
    }
    syscall(SYS_pidfd_send_signal, pid_fd, SIGKILL, NULL, 0);
}

void flyt_node_mps_set_end_ms(struct flyt_node_mps *mps, uint64_t end_ms)
{
    mps->end_ms = end_ms;
}
