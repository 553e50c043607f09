/*
 * What the daemons share at start and end: options, configuration, event loop, signals, sd_notify, watchdog.
 *
 * --config FILE, --check-config (reads it, says `FILE: ok` or the error, exits 0 or 2), --help, --version. Logs go to
 * stderr, with "<N>" priorities where stderr is the journal. SIGTERM and SIGINT end the loop, SIGHUP reads the
 * configuration again. READY=1, RELOADING=1, STOPPING=1, STATUS=, WATCHDOG=1 and the descriptor store by sd_notify.
 * They hold keys, so they leave no core file, and only root (CAP_SYS_PTRACE) can look into them with a debugger.
 */
#ifndef FLYT_CONTROL_DAEMON_H
#define FLYT_CONTROL_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <systemd/sd-event.h>

#include "control/base/config.h"
#include "control/base/loop.h"

struct flyt_daemon;

struct flyt_daemon_option {
    const char *name;     /* "join" for --join */
    const char *argument; /* "TOKEN", NULL: none */
    const char *help;
};

struct flyt_daemon_config {
    const char *name;         /* "flyt-node-manager" */
    const char *summary;      /* first lines of --help */
    const char *default_file; /* "/etc/flyt/node.conf" */
    const struct flyt_setting *settings;
    size_t settings_bytes;                    /* of the structure that they fill */
    const struct flyt_daemon_option *options; /* further ones, ended by one without name; NULL: none */
    /* A further option was given. 0 or an exit status. */
    int (*option)(void *user, const char *name, const char *value);
    /* What the table cannot say about the configuration (also for --check-config). 0 or negative and *err. */
    int (*check)(const void *settings, struct flyt_error *err);
    /* The loop is there, the configuration read. 0; or negative and *err: the daemon exits with 1. */
    int (*start)(void *user, struct flyt_daemon *daemon, struct flyt_error *err);
    /* The configuration was read again and applied. */
    void (*reload)(void *user);
    /* The loop has ended; free everything. */
    void (*stop)(void *user);
    void *user;
};

/* Runs a daemon from main's arguments to its exit status: 0; 1: it could not start or failed; 2: usage or
 * configuration. */
int flyt_daemon_run(const struct flyt_daemon_config *config, int argc, char **argv);

/* Tells in the registry, which outlives the loop, how long the loop's turns take (loop.h). 0 or -ENOMEM. */
int flyt_daemon_measure(struct flyt_daemon *daemon, struct flyt_metrics *metrics, const char *name);
sd_event *flyt_daemon_event(struct flyt_daemon *daemon);
const void *flyt_daemon_settings(const struct flyt_daemon *daemon);
/* Tells systemd (once) that the daemon serves, with a line of status. */
void flyt_daemon_ready(struct flyt_daemon *daemon, const char *status);
void flyt_daemon_status(struct flyt_daemon *daemon, const char *status);
/* Ends the loop; the exit status is 0 or 1. */
void flyt_daemon_exit(struct flyt_daemon *daemon, int status);

/*
 * The descriptor store (sd_pid_notify_with_fds, FDSTORE=1): keeps fd, which stays open here, under a name of letters,
 * digits, '-' and '.' over restarts. Nothing happens without a NOTIFY_SOCKET: -ENOTCONN.
 */
int flyt_daemon_keep(struct flyt_daemon *daemon, const char *name, const int *fds, unsigned count);
int flyt_daemon_forget(struct flyt_daemon *daemon, const char *name);
/* Descriptors that the service manager passed at start (LISTEN_FDS, LISTEN_FDNAMES): listening sockets and kept ones.
 * Each is given out once; returns -1 where there is none of this name any more. Close-on-exec; the caller's. */
int flyt_daemon_take(struct flyt_daemon *daemon, const char *name);
/* Calls visit with the name of each descriptor that was passed and not taken yet. */
void flyt_daemon_each_passed(struct flyt_daemon *daemon, void (*visit)(const char *name, void *user), void *user);

#endif
