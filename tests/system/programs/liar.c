/*
 * LD_PRELOAD=liar.so FLYT_TEST_LIAR=FILE: a server process that lies about its turns (rpc/base/time_slice_board.h).
 * While FILE has the number of a flyt-server's process and "idle", the page of that process says that it does nothing,
 * whatever it does; with "keeps", that it works, once it does, and is well.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/time_slice_board.h"

enum { PAUSE_US = 200, IDLE_US = 20000 };

static bool is_told(const char *what)
{
    char text[64] = "";
    int fd = open(getenv("FLYT_TEST_LIAR"), O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    return bytes > 0 && atol(text) == getpid() && strstr(text, what);
}

/* NULL: it has none. */
static struct flyt_time_slice_page *find_page(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    struct flyt_time_slice_page *page = NULL;
    char line[512];

    while (maps && !page && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        char access[8];
        if (strstr(line, "/memfd:flyt-time-slice ") && sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3 &&
            access[1] == 'w')
            page = (struct flyt_time_slice_page *)begin;
    }
    if (maps)
        fclose(maps);
    return page;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void keep(struct flyt_time_slice_page *page)
{
    static uint64_t kept;

    if (!kept && (atomic_load(&page->word) & FLYT_TIME_SLICE_STATE_MASK) == FLYT_TIME_SLICE_RUNS)
        kept = atomic_load(&page->word);
    if (!kept)
        return;
    atomic_store(&page->word, kept);
    atomic_store(&page->seen_ns, now_ns());
}

static void *run(void *unused)
{
    for (;;) {
        struct flyt_time_slice_page *page = is_told("idle") || is_told("keeps") ? find_page() : NULL;
        bool is_keeping = is_told("keeps");
        for (unsigned i = 0; page && i < 1000; i++) {
            if (is_keeping)
                keep(page);
            else
                atomic_store(&page->word, 0xfffffull << FLYT_TIME_SLICE_STATE_BITS | FLYT_TIME_SLICE_IDLE);
            usleep(PAUSE_US);
        }
        usleep(page ? PAUSE_US : IDLE_US);
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;

    if (getenv("FLYT_TEST_LIAR") && !strcmp(program_invocation_short_name, "flyt-server") &&
        !pthread_create(&thread, NULL, run, NULL))
        pthread_detach(thread);
}
