#include "control/base/daemon.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "rpc/base/build_name.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum { DESCRIPTORS = 4096 }; /* that a daemon may well need: it waits for no room then */

enum { OPTIONS_MAX = 16, PASSED_MAX = 4096 };

struct passed {
    int fd; /* -1: taken */
    char *name;
};

struct flyt_daemon {
    const struct flyt_daemon_config *config;
    sd_event *event;
    struct flyt_loop loop;
    const char *file; /* NULL: there is none, only fallbacks */
    void *settings;
    struct passed *passed;
    unsigned passed_count;
    int exit_status;
    bool is_ready;
    bool only_checks;
};

static int complain(const struct flyt_daemon_config *config, const char *sentence)
{
    fprintf(stderr, "%s: %s\n", config->name, sentence);
    return 2;
}

static void print_value(const struct flyt_setting *setting)
{
    static const char *const kinds[] = {
        [FLYT_SETTING_STRING] = "string", [FLYT_SETTING_STRINGS] = "strings", [FLYT_SETTING_BOOL] = "bool",
        [FLYT_SETTING_NUMBER] = "number", [FLYT_SETTING_SECONDS] = "seconds", [FLYT_SETTING_SIZE] = "size",
        [FLYT_SETTING_CHOICE] = "choice", [FLYT_SETTING_RANGE] = "range",     [FLYT_SETTING_GROUPS] = "groups",
    };
    printf("  %-26s %s", setting->path, setting->help ? setting->help : "");
    if (setting->kind == FLYT_SETTING_CHOICE)
        for (int i = 0; setting->choices[i]; i++)
            printf("%s%s", i ? ", " : ": ", setting->choices[i]);
    if (setting->kind != FLYT_SETTING_GROUPS)
        printf(" (%s%s%s)", kinds[setting->kind], setting->fallback && *setting->fallback ? ", default " : "",
               setting->fallback ? setting->fallback : ", required");
    printf("%s\n", setting->is_live ? " (live)" : "");
}

static void print_help(const struct flyt_daemon_config *config)
{
    printf("usage: %s [--config FILE]", config->name);
    for (const struct flyt_daemon_option *o = config->options; o && o->name; o++)
        printf(" [--%s%s%s]", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
    printf("\n\n%s\n\n", config->summary);
    printf("  %-26s the configuration (default %s)\n", "--config FILE", config->default_file);
    printf("  %-26s read it, say whether it is right, and exit with 0 or 2\n", "--check-config");
    for (const struct flyt_daemon_option *o = config->options; o && o->name; o++) {
        char option[64];
        snprintf(option, sizeof option, "--%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
        printf("  %-26s %s\n", option, o->help);
    }
    printf("  %-26s this text\n  %-26s the version\n\nSettings:\n", "--help", "--version");
    for (const struct flyt_setting *s = config->settings; s->path; s++)
        print_value(s);
    printf("\nSIGHUP reads the configuration again: settings that are marked (live) change, others need a restart. "
           "SIGTERM ends\nthe daemon. FLYT_LOG=error|warn|info|debug|trace says how much it logs (default info). "
           "Exit status: 0; 1: it could not\nstart or failed; 2: usage or configuration.\n");
}

/* -1: go on; else the exit status. */
static int take_options(struct flyt_daemon *daemon, int argc, char **argv)
{
    const struct flyt_daemon_config *config = daemon->config;
    struct option known[OPTIONS_MAX + 5] = {
        {"config", required_argument, NULL, 'c'},
        {"check-config", no_argument, NULL, 'k'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
    };
    for (unsigned i = 0; config->options && config->options[i].name && i < OPTIONS_MAX; i++)
        known[4 + i] =
            (struct option){config->options[i].name, config->options[i].argument ? required_argument : no_argument,
                            NULL, 1000 + (int)i};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        int status = 0;
        if (option == 'c') {
            daemon->file = optarg;
        } else if (option == 'k') {
            daemon->only_checks = true;
        } else if (option == 'h') {
            print_help(config);
            return 0;
        } else if (option == 'v') {
            printf("%s %s\n", config->name, flyt_build_name);
            return 0;
        } else if (option >= 1000) {
            status = config->option(config->user, config->options[option - 1000].name, optarg);
        } else {
            status = complain(config, "unknown or incomplete option (--help lists them)");
        }
        if (status)
            return status;
    }
    return optind < argc ? complain(config, "arguments are not expected (--help lists the options)") : -1;
}

static int read_settings(struct flyt_daemon *daemon, void *ret_settings, struct flyt_error *err)
{
    const struct flyt_daemon_config *config = daemon->config;
    int status = flyt_config_read(daemon->file, config->settings, ret_settings, err);
    if (status == 0 && config->check && (status = config->check(ret_settings, err)) != 0)
        flyt_config_free(config->settings, ret_settings);
    return status;
}

static int end_on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *user)
{
    struct flyt_daemon *daemon = user;
    flyt_info("signal %u: ending", info->ssi_signo);
    flyt_daemon_exit(daemon, 0);
    return 0;
}

static int reload_on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *user)
{
    struct flyt_daemon *daemon = user;
    const struct flyt_daemon_config *config = daemon->config;
    struct flyt_error err = {0};
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
               (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    void *fresh = calloc(1, config->settings_bytes);
    if (fresh && read_settings(daemon, fresh, &err) == 0) {
        flyt_config_apply(config->settings, daemon->settings, fresh);
        if (config->reload)
            config->reload(config->user);
        flyt_info("configuration read again");
    } else {
        flyt_fail("configuration stays as it was: %s", err.code ? err.text : "no memory");
    }
    free(fresh);
    sd_notify(0, "READY=1");
    return 0;
}

static int make_loop(struct flyt_daemon *daemon)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    int status = sd_event_new(&daemon->event);
    if (status >= 0)
        status = sd_event_add_signal(daemon->event, NULL, SIGTERM, end_on_signal, daemon);
    if (status >= 0)
        status = sd_event_add_signal(daemon->event, NULL, SIGINT, end_on_signal, daemon);
    if (status >= 0)
        status = sd_event_add_signal(daemon->event, NULL, SIGHUP, reload_on_signal, daemon);
    if (status >= 0)
        status = sd_event_set_watchdog(daemon->event, true);
    return status < 0 ? status : 0;
}

/* Everything that the service manager passed: sockets of units, and what the descriptor store kept. */
static int take_passed(struct flyt_daemon *daemon)
{
    char **names = NULL;
    int count = sd_listen_fds_with_names(1, &names);
    if (count <= 0)
        return count;
    daemon->passed = calloc((size_t)count, sizeof *daemon->passed);
    for (int i = 0; i < count; i++) {
        if (daemon->passed)
            daemon->passed[daemon->passed_count++] = (struct passed){SD_LISTEN_FDS_START + i, names[i]};
        else
            free(names[i]);
    }
    free(names);
    return daemon->passed ? 0 : -ENOMEM;
}

static int run(struct flyt_daemon *daemon)
{
    const struct flyt_daemon_config *config = daemon->config;
    struct flyt_error err = {0};
    int status = take_passed(daemon);
    flyt_loop_init(&daemon->loop);
    if (status >= 0)
        status = make_loop(daemon);
    if (status < 0)
        flyt_error_set(&err, status, "the event loop cannot be made: %s", strerror(-status));
    else
        status = config->start(config->user, daemon, &err);
    if (status < 0)
        flyt_fail("%s", err.code ? err.text : strerror(-status));
    else if ((status = flyt_loop_run(&daemon->loop, daemon->event)) < 0)
        flyt_fail("the event loop has failed: %s", strerror(-status));
    sd_notify(0, "STOPPING=1");
    if (config->stop)
        config->stop(config->user);
    daemon->event = sd_event_unref(daemon->event);
    flyt_loop_fini(&daemon->loop);
    for (unsigned i = 0; i < daemon->passed_count; i++) {
        flyt_close(daemon->passed[i].fd);
        free(daemon->passed[i].name);
    }
    free(daemon->passed);
    return status < 0 ? 1 : daemon->exit_status;
}

/* Whether stderr is the journal's stream (systemd.exec(5)). */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat at;
    char own[64];
    if (!stream || fstat(STDERR_FILENO, &at) != 0)
        return false;
    snprintf(own, sizeof own, "%lu:%lu", (unsigned long)at.st_dev, (unsigned long)at.st_ino);
    return strcmp(own, stream) == 0;
}

int flyt_daemon_run(const struct flyt_daemon_config *config, int argc, char **argv)
{
    struct flyt_daemon daemon = {.config = config};
    flyt_log_init(config->name, FLYT_LOG_INFO);
    flyt_log_set_priorities(is_journal());
    int status = take_options(&daemon, argc, argv);
    if (status >= 0)
        return status;
    /* Before a key is read: none is in a core file, or shown to another process of this user. What is executed from
     * here begins dumpable again. */
    if (prctl(PR_SET_DUMPABLE, 0) != 0)
        flyt_warn("keys may be seen by other processes of this user: %m");
    if (!daemon.file && access(config->default_file, F_OK) == 0)
        daemon.file = config->default_file;
    daemon.settings = calloc(1, config->settings_bytes);
    if (!daemon.settings)
        return 1;
    flyt_descriptors_reserve(DESCRIPTORS); /* while there are no threads */
    struct flyt_error err = {0};
    if (read_settings(&daemon, daemon.settings, &err) != 0) {
        status = complain(config, err.text);
    } else if (daemon.only_checks) {
        printf("%s: ok\n", daemon.file ? daemon.file : "no file, all defaults");
        status = 0;
    } else {
        status = run(&daemon);
    }
    flyt_config_free(config->settings, daemon.settings);
    free(daemon.settings);
    return status;
}

int flyt_daemon_measure(struct flyt_daemon *daemon, struct flyt_metrics *metrics, const char *name)
{
    return flyt_loop_tell(&daemon->loop, metrics, name);
}

sd_event *flyt_daemon_event(struct flyt_daemon *daemon)
{
    return daemon->event;
}

const void *flyt_daemon_settings(const struct flyt_daemon *daemon)
{
    return daemon->settings;
}

void flyt_daemon_ready(struct flyt_daemon *daemon, const char *status)
{
    sd_notifyf(0, "%sSTATUS=%s", daemon->is_ready ? "" : "READY=1\n", status);
    daemon->is_ready = true;
}

void flyt_daemon_status(struct flyt_daemon *daemon, const char *status)
{
    sd_notifyf(0, "STATUS=%s", status);
}

void flyt_daemon_exit(struct flyt_daemon *daemon, int status)
{
    daemon->exit_status = status;
    sd_event_exit(daemon->event, 0);
}

int flyt_daemon_keep(struct flyt_daemon *daemon, const char *name, const int *fds, unsigned count)
{
    char message[256];
    snprintf(message, sizeof message, "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
    int status = sd_pid_notify_with_fds(0, 0, message, fds, count);
    return status < 0 ? status : status == 0 ? -ENOTCONN : 0;
}

int flyt_daemon_forget(struct flyt_daemon *daemon, const char *name)
{
    int status = sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
    return status < 0 ? status : status == 0 ? -ENOTCONN : 0;
}

int flyt_daemon_take(struct flyt_daemon *daemon, const char *name)
{
    for (unsigned i = 0; i < daemon->passed_count; i++) {
        struct passed *passed = &daemon->passed[i];
        if (passed->fd >= 0 && strcmp(passed->name, name) == 0) {
            int fd = passed->fd;
            passed->fd = -1;
            return fd;
        }
    }
    return -1;
}

void flyt_daemon_each_passed(struct flyt_daemon *daemon, void (*visit)(const char *name, void *user), void *user)
{
    for (unsigned i = 0; i < daemon->passed_count; i++)
        if (daemon->passed[i].fd >= 0)
            visit(daemon->passed[i].name, user);
}
