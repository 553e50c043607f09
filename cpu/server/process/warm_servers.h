/*
 * The listener's server processes: some warm, each of which serves the next client that comes, the others each serving
 * one. The pool starts new ones when warm ones are used up, and forgets those that ended, however they did.
 *
 * Single-threaded; never waits for a server process.
 */
#ifndef FLYT_SERVER_WARM_SERVERS_H
#define FLYT_SERVER_WARM_SERVERS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "flyt.h"

enum {
    FLYT_WARM_SERVERS_CHILDREN_MAX = 1024,
    FLYT_WARM_SERVERS_WAITING_MAX = 256, /* clients for whom no server is warm yet; further ones are refused */
    FLYT_WARM_SERVERS_WAIT_MS =
        9000, /* each waits so long at most: a program gives up by itself after 10 s, without a cause */
    FLYT_WARM_SERVERS_STARTS_MIN = 2, /* servers that may start at the same time, however few CPUs there are */
};

struct flyt_warm_servers_config {
    unsigned warm_per_device;
    unsigned starts_max; /* servers that start at the same time, at most; at least 1 (flyt_warm_servers_starts_max) */
    char *const *child_argv; /* of a server process, which finds its control socket at FLYT_MANAGER_LINK_FD */
};

/* As many as the CPUs that this process may use, at least FLYT_WARM_SERVERS_STARTS_MIN: starting one is mostly work of
 * a CPU, so that more at once would only make each of them late. */
unsigned flyt_warm_servers_starts_max(void);

struct flyt_child_entry;
struct flyt_waiting;

struct flyt_warm_servers {
    struct flyt_warm_servers_config config;
    struct flyt_child_entry *children;
    unsigned child_count, warm_count, starting_count, serving_count;
    struct flyt_waiting *waiting_first, *waiting_last; /* clients for whom no server is warm yet */
    unsigned waiting_count;
    unsigned device_count;   /* as the last ready server said; 0: none was */
    uint64_t session_count;  /* so far */
    uint64_t start_after_ms; /* after a failure: not at once again */
    bool has_failed;         /* the last server that was started could not be prepared */
    char failure[FLYT_STRING_BYTES_MAX];
};

void flyt_warm_servers_init(struct flyt_warm_servers *pool, const struct flyt_warm_servers_config *config);
/* Ends and reaps all server processes. */
void flyt_warm_servers_fini(struct flyt_warm_servers *pool);

/* Starts what is missing, as far as starts_max allows; clients for whom there is none wait. Returns for how many
 * milliseconds at most the caller may sleep (-1: any time). */
int flyt_warm_servers_fill(struct flyt_warm_servers *pool);

/* Descriptors to wait for, with room for FLYT_WARM_SERVERS_CHILDREN_MAX; returns how many. After poll(2): _process with
 * them.
 */
unsigned flyt_warm_servers_polls(const struct flyt_warm_servers *pool, struct pollfd *polls);
void flyt_warm_servers_process(struct flyt_warm_servers *pool, const struct pollfd *polls, unsigned count);

/* Reaps server processes that ended (SIGCHLD). */
void flyt_warm_servers_reap(struct flyt_warm_servers *pool);

/* A client's handshake: hands it to a warm server, or to the one that its token names; refuses it where that cannot
 * be. Takes over fd. */
void flyt_warm_servers_hand_over(struct flyt_warm_servers *pool, int fd, const void *record, size_t bytes);

#endif
