#include "control/node/process/libraries.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/base/worker.h"
#include "control/node/host/machine.h"
#include "control/node/model/allocation.h"
#include "control/node/model/node.h"
#include "control/node/model/server.h"
#include "control/node/process/spawn.h"
#include "control/node/process/uids.h"
#include "control/node/state/settings.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum { OUTPUT_BYTES = 4096, ARGUMENTS_MAX = 8, STOP_MS = 500 };

struct flyt_node_libraries {
    struct flyt_node *node;
    struct flyt_worker *worker;
    sd_event_source *timer;
    struct flyt_node_look *look; /* under way; NULL: none is */
    bool is_known;               /* by a look that has succeeded */
    bool has_looked;
    unsigned failure_count; /* of looks, one after the other */
    unsigned count;
    flyt_library_version versions[FLYT_LIBRARIES_MAX]; /* of malloc */
};

/* One look; the thread's alone while it is under way. */
struct flyt_node_look {
    struct flyt_node *node; /* NULL: nobody wants to know any more. The loop's thread only. */
    uid_t uid;              /* 0: the node manager's own */
    char home[FLYT_MANAGER_LINK_FOLDER_BYTES], server[4096], folders[FLYT_NODE_LIBRARIES_BYTES_MAX + 1], number[16];
    char *argv[ARGUMENTS_MAX];
    char **envp;
    int status; /* 0, or a negative errno: it could not be found out */
    char output[OUTPUT_BYTES];
};

/* ---- the process ---- */

__attribute__((noreturn)) static void become_looker(const struct flyt_node_look *look, int out_fd)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd >= 0) {
        dup2(null_fd, STDIN_FILENO);
        dup2(null_fd, STDERR_FILENO);
    }
    if (dup2(out_fd, STDOUT_FILENO) < 0)
        _exit(FLYT_NODE_CANNOT_RUN);
    if (look->uid && flyt_node_uids_become(look->uid, look->home))
        _exit(FLYT_NODE_CANNOT_BECOME);
    execve(look->argv[0], look->argv, look->envp);
    _exit(FLYT_NODE_CANNOT_RUN);
}

/* What it prints, up to its end. 0, or a negative errno: -ETIMEDOUT: that takes too long. */
static int read_output(struct flyt_node_look *look, int fd)
{
    uint64_t until_ms = flyt_clock_ms() + FLYT_NODE_LIBRARIES_LOOK_MS;
    size_t used = 0;

    for (;;) {
        uint64_t now_ms = flyt_clock_ms();
        struct pollfd wanted = {.fd = fd, .events = POLLIN};
        int ready = now_ms < until_ms ? poll(&wanted, 1, (int)(until_ms - now_ms)) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return ready ? -errno : -ETIMEDOUT;
        ssize_t got = read(fd, look->output + used, sizeof look->output - 1 - used);
        if (got <= 0)
            return got ? -errno : 0;
        used += (size_t)got;
        if (used == sizeof look->output - 1)
            return -EMSGSIZE;
    }
}

static void look_at_libraries(void *user)
{
    struct flyt_node_look *look = user;
    int fds[2], result = 0;

    if (pipe2(fds, O_CLOEXEC)) {
        look->status = -errno;
        return;
    }
    const pid_t pid = vfork();
    if (pid == 0)
        become_looker(look, fds[1]);
    look->status = pid < 0 ? -errno : 0;
    flyt_close(fds[1]);
    if (pid > 0) {
        look->status = read_output(look, fds[0]);
        if (look->status)
            kill(pid, SIGKILL);
        while (waitpid(pid, &result, 0) < 0 && errno == EINTR)
            ;
        /* One that a library has ended has told of those before it. */
        if (!look->status && !*look->output && result)
            look->status = -ENOEXEC;
    }
    flyt_close(fds[0]);
}

/* ---- what it has found ---- */

void flyt_node_libraries_take(flyt_library_version *versions, unsigned *count, const char *line)
{
    char name[FLYT_LIBRARY_NAME_BYTES], major[4], minor[4];
    int end = 0;

    if (sscanf(line, "%15[a-z0-9] %3[0-9].%3[0-9]%n", name, major, minor, &end) != 3 || line[end] ||
        *count == FLYT_LIBRARIES_MAX)
        return;
    char *copy = strdup(name);
    if (copy)
        versions[(*count)++] = (flyt_library_version){copy, (unsigned)(atoi(major) * 1000 + atoi(minor))};
}

static void forget_versions(struct flyt_node_libraries *libraries)
{
    for (unsigned i = 0; i < libraries->count; i++)
        free(libraries->versions[i].name);
    libraries->count = 0;
}

static void free_look(struct flyt_node_look *look)
{
    free(look->envp);
    free(look);
}

/* The next look comes after the regular time, or after a shorter one that each further failure doubles. */
static void set_timer(struct flyt_node_libraries *libraries)
{
    uint64_t pause_ms = FLYT_NODE_LIBRARIES_AGAIN_MS;

    for (unsigned i = 1; i < libraries->failure_count && pause_ms < FLYT_NODE_LIBRARIES_MS; i++)
        pause_ms *= 2;
    if (!libraries->failure_count || pause_ms > FLYT_NODE_LIBRARIES_MS)
        pause_ms = FLYT_NODE_LIBRARIES_MS;
    sd_event_source_set_time_relative(libraries->timer, pause_ms * 1000);
    sd_event_source_set_enabled(libraries->timer, SD_EVENT_ONESHOT);
}

/* Takes the lines of a look that has succeeded. */
static void take_output(struct flyt_node_libraries *libraries, char *output)
{
    forget_versions(libraries);
    for (char *line = output, *end; *line && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        flyt_node_libraries_take(libraries->versions, &libraries->count, line);
    }
    libraries->is_known = true;
    flyt_node_changed(libraries->node);
}

/* With is_cancelled by the thread, of one that was left: nobody wants to know any more. */
static void on_looked(void *user, int is_cancelled)
{
    struct flyt_node_look *look = user;
    struct flyt_node_libraries *libraries = is_cancelled || !look->node ? NULL : look->node->libraries;

    if (libraries) {
        libraries->look = NULL;
        libraries->has_looked = true;
        libraries->failure_count = look->status ? libraries->failure_count + 1 : 0;
        if (look->status) /* what was known stays known */
            flyt_warn("which of NVIDIA's libraries there are could not be found out: %s", strerror(-look->status));
        else
            take_output(libraries, look->output);
        set_timer(libraries);
    }
    free_look(look);
}

/* ---- looking ---- */

/* The environment that a server has, as far as the loader looks at it. */
static char **make_environment(void)
{
    size_t count = 0, used = 0;

    while (environ[count])
        count++;
    char **envp = calloc(count + 1, sizeof *envp);
    for (size_t i = 0; envp && i < count; i++)
        if (!flyt_node_is_own_variable(environ[i]))
            envp[used++] = environ[i];
    return envp;
}

static int make_look(struct flyt_node *node, struct flyt_node_look *look)
{
    const struct flyt_node_settings *settings = node->settings;
    char **next = look->argv;

    snprintf(look->server, sizeof look->server, "%s", settings->server);
    *next++ = look->server;
    *next++ = (char *)"--library-versions";
    if (settings->libraries) {
        snprintf(look->folders, sizeof look->folders, "%s", settings->libraries);
        *next++ = (char *)"--libraries";
        *next++ = look->folders;
    }
    if (settings->software_gpus) {
        snprintf(look->number, sizeof look->number, "%u", (unsigned)settings->software_gpus);
        *next++ = (char *)"--soft";
        *next++ = look->number;
    }
    flyt_node_uids_folder(node, look->home);
    look->envp = make_environment();
    if (!look->envp)
        return -ENOMEM;
    return node->uids.last ? flyt_node_uids_take(node, &look->uid) : 0;
}

static int begin_look(struct flyt_node_libraries *libraries)
{
    struct flyt_node_look *look = calloc(1, sizeof *look);

    if (!look)
        return -ENOMEM;
    look->node = libraries->node;
    int status = make_look(libraries->node, look);
    if (!status)
        status = flyt_worker_do(libraries->worker, look_at_libraries, on_looked, look);
    if (status)
        free_look(look);
    else
        libraries->look = look;
    return status;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_libraries *libraries = user;

    (void)source;
    (void)usec;
    if (libraries->look || !begin_look(libraries))
        return 0; /* its end sets the timer */
    libraries->failure_count++;
    set_timer(libraries);
    return 0;
}

int flyt_node_libraries_new(struct flyt_node *node)
{
    struct flyt_node_libraries *libraries = calloc(1, sizeof *libraries);

    if (!libraries)
        return -ENOMEM;
    node->libraries = libraries;
    libraries->node = node;
    int status = flyt_worker_new(node->event, "flyt-libraries", 2, &libraries->worker);
    if (!status)
        status =
            sd_event_add_time_relative(node->event, &libraries->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, libraries);
    return status < 0 ? status : 0;
}

void flyt_node_libraries_free(struct flyt_node *node)
{
    struct flyt_node_libraries *libraries = node->libraries;

    if (!libraries)
        return;
    node->libraries = NULL;
    if (libraries->look)
        libraries->look->node = NULL;
    sd_event_source_disable_unref(libraries->timer);
    /* A process that loads something large is left: it ends when it has nobody to tell. */
    if (libraries->worker)
        flyt_worker_finish(libraries->worker, STOP_MS);
    flyt_worker_leave(libraries->worker, NULL);
    forget_versions(libraries);
    free(libraries);
}

bool flyt_node_libraries_have_looked(const struct flyt_node *node)
{
    return node->libraries && node->libraries->has_looked;
}

/* ---- what is told ---- */

static int add_version(flyt_library_version *versions, u_int *count, const char *name, unsigned version)
{
    versions[*count] = (flyt_library_version){strdup(name), version};
    return versions[(*count)++].name ? 0 : -ENOMEM;
}

static int add_session(const struct flyt_node_session *from, flyt_libraries_args *args)
{
    const struct flyt_manager_link_use *use = &flyt_node_session_shown(from)->use;

    if (!flyt_node_session_is_shown(from) || !*use->opened[0].name || args->sessions.sessions_len == FLYT_SESSIONS_MAX)
        return 0;
    flyt_session_libraries *session = &args->sessions.sessions_val[args->sessions.sessions_len++];
    session->session_id = from->id;
    session->allocation_id = from->allocation->now.id;
    session->libraries.libraries_val = calloc(FLYT_LIBRARIES_MAX, sizeof *session->libraries.libraries_val);
    if (!session->libraries.libraries_val)
        return -ENOMEM;
    int status = 0;
    for (unsigned i = 0; !status && i < FLYT_LIBRARIES_MAX && *use->opened[i].name; i++)
        status = add_version(session->libraries.libraries_val, &session->libraries.libraries_len, use->opened[i].name,
                             use->opened[i].version);
    return status;
}

int flyt_node_report_libraries(const struct flyt_node *node, flyt_libraries_args *ret_args)
{
    const struct flyt_node_libraries *libraries = node->libraries;
    int status = 0;

    *ret_args = (flyt_libraries_args){0};
    if (!libraries || !libraries->is_known)
        return -EAGAIN;
    ret_args->libraries.libraries_val = calloc(FLYT_LIBRARIES_MAX, sizeof *ret_args->libraries.libraries_val);
    ret_args->sessions.sessions_val = calloc(node->session_count + 1, sizeof *ret_args->sessions.sessions_val);
    if (!ret_args->libraries.libraries_val || !ret_args->sessions.sessions_val)
        return -ENOMEM;
    for (unsigned i = 0; !status && i < libraries->count; i++)
        status = add_version(ret_args->libraries.libraries_val, &ret_args->libraries.libraries_len,
                             libraries->versions[i].name, libraries->versions[i].version_number);
    for (const struct flyt_node_session *session = node->sessions; session && !status; session = session->next)
        status = add_session(session, ret_args);
    return status;
}
