/*
 * flyt-server: executes the CUDA calls of programs elsewhere on this machine's GPUs.
 *
 * - The listener is the process that a person starts. No CUDA, one thread. It accepts connections and answers what
 *   needs no session (rpc/transport/greeter.h), hands each client to a warm server process together with its socket,
 *   starts new ones and reaps those that ended (warm_servers.h). It owns the listening sockets and the folder of module
 * images.
 * - Server processes, one per client (child.h), are this program again, with --serve; a node manager starts them, too,
 *   with --gpu (rpc/transport/manager_link.h), and there is no listener then. Each initialises the driver and
 *   makes a context before its client is there, serves exactly one, and frees everything by its end. Its threads: the
 *   submission thread (session.h), those of data streams (transfer.h), the worker (worker.h), and one that watches
 *   (watch.h).
 *
 * A server process that crashes takes its own client's session with it and nothing else.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/process/child.h"
#include "cpu/server/cuda/coredump.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/library/library.h"
#include "cpu/server/process/warm_servers.h"
#include "cpu/server/process/rpcbind.h"
#include "rpc/base/build_name.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/proto/control_limits.h"
#include "rpc/transport/greeter.h"
#include "rpc/transport/endpoint/listen.h"

static const uint64_t SM_RATE_MAX = 1000000000000;

enum { LISTEN_MAX = 8, WARM_MAX = 64, SOFT_MAX = FLYT_DEVICES_MAX, SMS_MAX = 1024 };

struct options {
    const char *urls[LISTEN_MAX];
    unsigned url_count;
    unsigned warm_per_device;
    bool is_soft;
    bool is_registering; /* with rpcbind */
    bool is_child;
    bool is_telling_versions;
    struct flyt_child_options child; /* --serve only */
};

struct flyt_server {
    struct options options;
    struct flyt_warm_servers pool;
    struct flyt_greeter *greeter;
    struct flyt_image_cache images;
    char image_folder[4096];
    int listen_fds[LISTEN_MAX];
    char listen_urls[LISTEN_MAX][FLYT_URL_TEXT_BYTES];
    unsigned listen_count;
    unsigned registered_port; /* with rpcbind; 0: none */
    int signal_fd;
    uint64_t started_ms;
    struct pollfd polls[FLYT_WARM_SERVERS_CHILDREN_MAX + 2];
};

static const char usage[] =
    "usage: flyt-server --listen URL… [--soft N] [--warm N]\n"
    "\n"
    "Executes the CUDA calls of programs that run elsewhere (flyt-run) on this machine's GPUs.\n"
    "\n"
    "  --listen URL        tcp://[HOST]:PORT, unix:///PATH or vsock://[CID]:PORT; port 0 lets the kernel choose; may "
    "be repeated.\n"
    "                      Prints `listening URL` for each when ready.\n"
    "  --warm N            server processes kept ready for the next programs, per GPU (default 1)\n"
    "  --soft N            N software GPUs in place of the machine's GPUs: kernels run on the CPU\n"
    "  --soft-sms N        SMs of a software GPU (default 132)\n"
    "  --soft-memory SIZE  its memory, e.g. 512M or 4G (the default)\n"
    "  --soft-cc X.Y[,…]   its compute capability (default 9.0); several: one for each, the last one for the rest, "
    "too\n"
    "  --soft-sm-rate N    thread-instructions per second of each of its SMs (default 0: no limit)\n"
    "  --rpcbind           registers the first tcp port with this machine's rpcbind, for tools that look there\n"
    "  --libraries FOLDERS folders of NVIDIA's libraries (libcublas.so.13 and others), by colons (otherwise where the\n"
    "                      loader finds them)\n"
    "  --nccl-interfaces NAMES  network interfaces that NCCL may use, by commas (otherwise the loopback alone)\n"
    "  --library-versions  prints which of these libraries there are, and their versions, and ends\n"
    "  --no-scrub          new device memory is not cleared: the driver is trusted to hand out clean memory\n"
    "  --no-shared-memory  programs of this machine and their servers share none: all goes through their sockets\n"
    "  --locked-memory BYTES  page-locked memory that a program may share with its server (otherwise any)\n"
    "  --coredumps FOLDER  where programs' core dumps of the GPU go, whatever file they name (otherwise there are "
    "none)\n"
    "  --coredumps-bytes BYTES  that all files there may have together (otherwise 1 GiB)\n"
    "  --help              this text\n"
    "  --version           the version\n"
    "\n"
    "FLYT_LOG=error|warn|info|debug|trace says how much is written to stderr (default info).\n";

static int complain(const char *format, const char *what)
{
    fprintf(stderr, "flyt-server: ");
    fprintf(stderr, format, what);
    fprintf(stderr, " (flyt-server --help lists the options)\n");
    return 2;
}

/* A number from min to max, or -1. */
static long number(const char *text, long min, long max)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno || end == text || *end || value < min || value > max ? -1 : value;
}

/* The software GPU reads its configuration from the environment, which server processes inherit. 0 or an exit status.
 */
static int set_soft(const char *name, const char *variable, const char *value)
{
    char *end;
    double size = strtod(value, &end);
    char unit = *end ? *end++ : 0;
    if (end == value || *end || !(size > 0) || (unit && !strchr("KMGkmg", unit)))
        return complain("--%s needs a positive number", name);
    setenv(variable, value, 1);
    return 0;
}

static int set_sm_rate(const char *value)
{
    char *end;

    errno = 0;
    uint64_t rate = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno || rate > SM_RATE_MAX)
        return complain("--soft-sm-rate takes a number of instructions per second, up to 10^12, not '%s'", value);
    setenv("FLYT_SOFT_SM_RATE", value, 1);
    return 0;
}

/* Server processes inherit it. */
static int keep(const char *variable, const char *value)
{
    return setenv(variable, value, 1) ? complain("an option cannot be kept: %s", strerror(errno)) : 0;
}

static int keep_bytes(const char *complaint, const char *variable, const char *value)
{
    char *end;

    errno = 0;
    strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno)
        return complain(complaint, value);
    return keep(variable, value);
}

static int set_coredumps(const char *folder)
{
    char path[PATH_MAX];

    if (!realpath(folder, path) || access(path, W_OK | X_OK))
        return complain("--coredumps takes a folder that this user may write, not '%s'", folder);
    return keep(FLYT_COREDUMPS, path);
}

/* Which ones it knows the software GPU says. */
static int set_capabilities(const char *value)
{
    unsigned major, minor;
    for (const char *at = value;; at++) {
        int used = 0;
        if (!isdigit((unsigned char)*at) || sscanf(at, "%3u.%1u%n", &major, &minor, &used) != 2 ||
            (at[used] && at[used] != ','))
            return complain("--soft-cc takes compute capabilities such as 9.0 or 9.0,8.0, not '%s'", value);
        at += used;
        if (!*at)
            break;
    }
    setenv("FLYT_SOFT_CC", value, 1);
    return 0;
}

static int take_option(struct options *options, int option, const char *value)
{
    switch (option) {
    case 'l':
        if (options->url_count == LISTEN_MAX)
            return complain("--listen may be given %s times at most", "8");
        options->urls[options->url_count++] = value;
        return 0;
    case 'w':
        if (number(value, 1, WARM_MAX) < 0)
            return complain("--warm takes a number from 1 to 64, not '%s'", value);
        options->warm_per_device = (unsigned)number(value, 1, WARM_MAX);
        return 0;
    case 's':
        if (number(value, 1, SOFT_MAX) < 0)
            return complain("--soft takes a number from 1 to 15, not '%s'", value);
        options->is_soft = options->child.is_soft = true;
        setenv("FLYT_SOFT_DEVICES", value, 1);
        return 0;
    case 'S':
        return set_soft("soft-sms", "FLYT_SOFT_SMS", value);
    case 'M':
        return set_soft("soft-memory", "FLYT_SOFT_MEMORY", value);
    case 'C':
        return set_capabilities(value);
    case 'R':
        return set_sm_rate(value);
    case 'c':
        options->is_child = true;
        options->child.image_folder = value;
        return 0;
    case 'r':
        options->is_registering = true;
        return 0;
    case 'L':
        return keep("FLYT_LIBRARIES", value);
    case 'I':
        return keep("FLYT_NCCL_INTERFACES", value);
    case 'H':
        return keep("FLYT_SHARED_MEMORY", "no");
    case 'P':
        return keep_bytes("--locked-memory takes a number of bytes, not '%s'", FLYT_LOCKED_MEMORY, value);
    case 'D':
        return set_coredumps(value);
    case 'B':
        return keep_bytes("--coredumps-bytes takes a number of bytes, not '%s'", FLYT_COREDUMPS_BYTES, value);
    case 'V':
        options->is_telling_versions = true;
        return 0;
    case 'N':
        options->child.is_trusting = true;
        return 0;
    case 'g':
        options->child.gpu = (int)number(value, 0, FLYT_GPUS_MAX - 1);
        return options->child.gpu < 0 ? complain("--gpu takes the number of a GPU, not '%s'", value) : 0;
    case 'G':
        if (number(value, 1, SMS_MAX) < 0)
            return complain("--group-size takes a number of SMs, not '%s'", value);
        options->child.group_size = (unsigned)number(value, 1, SMS_MAX);
        return 0;
    default:
        return complain("unknown or incomplete option%s", "");
    }
}

/* 0: go on; 2: exit with this status; -1: exit with 0. */
static int parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"listen", required_argument, NULL, 'l'},
        {"warm", required_argument, NULL, 'w'},
        {"soft", required_argument, NULL, 's'},
        {"soft-sms", required_argument, NULL, 'S'},
        {"soft-memory", required_argument, NULL, 'M'},
        {"soft-cc", required_argument, NULL, 'C'},
        {"libraries", required_argument, NULL, 'L'},
        {"nccl-interfaces", required_argument, NULL, 'I'},
        {"library-versions", no_argument, NULL, 'V'},
        {"no-scrub", no_argument, NULL, 'N'},
        {"no-shared-memory", no_argument, NULL, 'H'},
        {"locked-memory", required_argument, NULL, 'P'},
        {"coredumps", required_argument, NULL, 'D'},
        {"coredumps-bytes", required_argument, NULL, 'B'},
        {"serve", required_argument, NULL, 'c'},
        {"gpu", required_argument, NULL, 'g'},
        {"soft-sm-rate", required_argument, NULL, 'R'},
        {"group-size", required_argument, NULL, 'G'},
        {"rpcbind", no_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    *options = (struct options){.warm_per_device = 1, .child.gpu = -1};
    opterr = 0;
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'h' || option == 'v') {
            printf("%s%s", option == 'h' ? usage : "flyt-server ", option == 'h' ? "" : flyt_build_name);
            printf("%s", option == 'v' ? "\n" : "");
            return -1;
        }
        int status = take_option(options, option, optarg);
        if (status)
            return status;
    }
    if (optind < argc)
        return complain("what is '%s'?", argv[optind]);
    if (!options->url_count && !options->is_child && !options->is_telling_versions)
        return complain("say where to listen: --listen %s", "unix:///PATH or tcp://:PORT");
    return 0;
}

/* ---- --library-versions ---- */

/* At once: one that ends this process when it is loaded takes only those behind it along. */
static void print_version(const struct flyt_server_library *library, const char *absent)
{
    if (absent || !library->version)
        fprintf(stderr, "%s: %s\n", library->name, absent ? absent : "its file does not tell a version");
    else
        printf("%s %u.%u\n", library->name, library->version / 1000, library->version % 1000);
    fflush(stdout);
}

static void answer_query(void *user, flyt_query_res *res)
{
    const struct flyt_server *server = user;
    res->build = (char *)flyt_build_name;
    res->uptime_ms = flyt_clock_ms() - server->started_ms;
    res->device_count = server->pool.device_count;
    res->session_count = server->pool.serving_count;
    res->warm_count = server->pool.warm_count;
}

static void take_handshake(void *user, int fd, const void *record, size_t bytes)
{
    flyt_warm_servers_hand_over(&((struct flyt_server *)user)->pool, fd, record, bytes);
}

static int open_listeners(struct flyt_server *server, struct flyt_error *err)
{
    for (unsigned i = 0; i < server->options.url_count; i++) {
        int status = flyt_listen(server->options.urls[i], err, &server->listen_fds[i], server->listen_urls[i]);
        if (status)
            return status;
        server->listen_count++;
        status = flyt_greeter_listen(server->greeter, server->listen_fds[i]);
        if (status)
            return flyt_error_set(err, status, "%s: %s", server->options.urls[i], strerror(-status));
    }
    return 0;
}

/* The first tcp port: rpcbind keeps one for each program, version and transport. */
static int register_port(struct flyt_server *server, struct flyt_error *err)
{
    struct flyt_url url;

    for (unsigned i = 0; i < server->listen_count; i++)
        if (!flyt_url_parse(server->listen_urls[i], err, &url) && url.scheme == FLYT_URL_TCP) {
            int status = flyt_rpcbind_register(FLYT_PROGRAM, FLYT_VERSION, url.port, err);
            if (!status)
                server->registered_port = url.port;
            return status;
        }
    return flyt_error_set(err, -EINVAL, "--rpcbind registers a tcp port, and none is listened on");
}

/* One round. Returns whether the server goes on. */
static bool wait_and_process(struct flyt_server *server)
{
    int timeout_ms = flyt_warm_servers_fill(&server->pool);
    struct pollfd *polls = server->polls;
    polls[0] = (struct pollfd){.fd = flyt_greeter_fd(server->greeter), .events = POLLIN};
    polls[1] = (struct pollfd){.fd = server->signal_fd, .events = POLLIN};
    unsigned count = flyt_warm_servers_polls(&server->pool, polls + 2);
    if (poll(polls, count + 2, timeout_ms) < 0 && errno != EINTR) {
        flyt_fail("poll: %m");
        return false;
    }
    flyt_warm_servers_process(&server->pool, polls + 2, count);
    if (polls[1].revents) {
        struct signalfd_siginfo info;
        if (read(server->signal_fd, &info, sizeof info) == (ssize_t)sizeof info && info.ssi_signo != SIGCHLD)
            return false;
        flyt_warm_servers_reap(&server->pool);
    }
    if (polls[0].revents && flyt_greeter_process(server->greeter) != 0) {
        flyt_fail("the listening sockets are broken");
        return false;
    }
    return true;
}

/* The first server process shows whether there is a GPU at all. */
static bool wait_for_first(struct flyt_server *server)
{
    while (!server->pool.device_count && !server->pool.has_failed)
        if (!wait_and_process(server))
            return false;
    return server->pool.device_count > 0;
}

static int run(struct flyt_server *server)
{
    struct flyt_error err = {0};
    const struct flyt_greeter_config config = {.query = answer_query, .handshake = take_handshake, .user = server};
    int status = flyt_greeter_new(&config, &server->greeter);
    if (status)
        flyt_error_set(&err, status, "%s", strerror(-status));
    else
        status = open_listeners(server, &err);
    if (!status && server->options.is_registering)
        status = register_port(server, &err);
    if (status) {
        fprintf(stderr, "flyt-server: %s\n", err.text);
        return 1;
    }
    if (!wait_for_first(server))
        return 1;
    for (unsigned i = 0; i < server->listen_count; i++)
        printf("listening %s\n", server->listen_urls[i]);
    fflush(stdout);
    while (wait_and_process(server))
        ;
    return 0;
}

/* Signals arrive as input of the event loop. Server processes unblock them again. */
static int take_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* an image (writing.h) that may not become larger */
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int listen_and_serve(struct flyt_server *server)
{
    struct flyt_error err = {0};
    server->started_ms = flyt_clock_ms();
    server->signal_fd = take_signals();
    if (server->signal_fd < 0 ||
        flyt_image_cache_make(&server->images, &err, server->image_folder, sizeof server->image_folder) != 0) {
        fprintf(stderr, "flyt-server: %s\n", err.code ? err.text : "no signalfd");
        return 1;
    }
    char *child_argv[8] = {"flyt-server", "--serve", server->image_folder};
    unsigned child_argc = 3;
    if (server->options.child.is_trusting)
        child_argv[child_argc++] = "--no-scrub";
    if (server->options.is_soft) {
        child_argv[child_argc++] = "--soft";
        child_argv[child_argc++] = getenv("FLYT_SOFT_DEVICES");
    }
    const struct flyt_warm_servers_config config = {.warm_per_device = server->options.warm_per_device,
                                                    .starts_max = flyt_warm_servers_starts_max(),
                                                    .child_argv = child_argv};
    flyt_warm_servers_init(&server->pool, &config);
    int status = run(server);
    if (server->registered_port)
        flyt_rpcbind_unregister(FLYT_PROGRAM, FLYT_VERSION, server->registered_port);
    server->greeter = flyt_greeter_free(server->greeter);
    for (unsigned i = 0; i < server->listen_count; i++) {
        close(server->listen_fds[i]);
        flyt_unlisten(server->listen_urls[i]);
    }
    flyt_warm_servers_fini(&server->pool);
    flyt_image_cache_remove(&server->images, server->image_folder);
    return status;
}

int main(int argc, char **argv)
{
    struct flyt_server *server = calloc(1, sizeof *server);
    if (!server)
        return 1;
    flyt_log_init("flyt-server", FLYT_LOG_INFO);
    int status = parse(argc, argv, &server->options);
    if (status == 0 && server->options.is_telling_versions)
        flyt_server_libraries_look(server->options.is_soft, print_version);
    else if (status == 0 && server->options.is_child)
        status = flyt_child_run(&server->options.child);
    else if (status == 0)
        status = listen_and_serve(server);
    free(server);
    return status < 0 ? 0 : status;
}
