/*
 * For tests: a process that has taken the mutex of a ledger (or of turns) and does not go on, as a server that was
 * stopped there. It dies with the test.
 */
#ifndef FLYT_BASE_TEST_HOLDER_H
#define FLYT_BASE_TEST_HOLDER_H

#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rpc/base/shared.h"

/* `fd` is the shared memory's, of at least a page. Returns when the mutex is held: the process, for test_holder_end;
 * -1: it is not. */
static inline pid_t test_holder_begin(int fd)
{
    struct flyt_shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int go[2];
    char byte;

    if (shared == MAP_FAILED || pipe(go))
        return -1;
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_mutex_lock(&shared->mutex);
        if (write(go[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    close(go[1]);
    bool is_held = pid > 0 && read(go[0], &byte, 1) == 1;
    close(go[0]);
    munmap(shared, 4096);
    return is_held ? pid : -1;
}

/* It dies; the mutex can be had then. */
static inline bool test_holder_end(pid_t pid)
{
    return !kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid;
}

#endif
