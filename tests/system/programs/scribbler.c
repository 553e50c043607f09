/*
 * LD_PRELOAD=scribbler.so FLYT_TEST_SCRIBBLE=FILE: a server process that was taken over. While FILE has the number of a
 * flyt-server's process, that process writes random bytes over all memory that it shares with others and can write:
 * what it has mapped so, and what its descriptors can be mapped or opened anew to be written. FILE.rounds then says how
 * often it has been through, FILE.written and FILE.refused which memory it could write and which it could not. What it
 * shares with its own program alone it leaves as it is, for that would end it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED "/memfd:flyt-"
#define OWN    "/memfd:flyt-progress"

enum { NAMES_MAX = 64, PAUSE_US = 2000, IDLE_US = 20000 };

struct names {
    const char *kind;
    char list[NAMES_MAX][64];
    unsigned count;
};

static struct names written = {.kind = "written"}, refused = {.kind = "refused"};
static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void scribble(void *memory, size_t bytes)
{
    volatile uint64_t *words = memory;

    for (size_t i = 0; i < bytes / sizeof *words; i++)
        words[i] = next_random() & (i % 3 ? ~0ull : 0xff); /* small numbers hit indexes and states */
}

static void say(const char *suffix, const char *line, int flags)
{
    char path[512];

    snprintf(path, sizeof path, "%s.%s", getenv("FLYT_TEST_SCRIBBLE"), suffix);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    if (fd < 0 || write(fd, line, strlen(line)) < 0)
        _exit(99);
    close(fd);
}

/* Each name once. */
static void note(struct names *names, const char *name)
{
    char line[80];

    for (unsigned i = 0; i < names->count; i++)
        if (!strncmp(names->list[i], name, sizeof names->list[i] - 1))
            return;
    if (names->count == NAMES_MAX)
        return;
    snprintf(names->list[names->count++], sizeof names->list[0], "%s", name);
    snprintf(line, sizeof line, "%.63s\n", name);
    say(names->kind, line, O_APPEND);
}

static void scribble_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];

    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        char access[8], name[256] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &begin, &end, access, name) < 4 ||
            strncmp(name, SHARED, strlen(SHARED)) || !strncmp(name, OWN, strlen(OWN)) || access[3] != 's')
            continue;
        if (access[1] == 'w')
            scribble((void *)begin, end - begin);
        note(access[1] == 'w' ? &written : &refused, name + strlen("/memfd:"));
    }
    if (maps)
        fclose(maps);
}

static void scribble_anew(int fd, const char *name)
{
    struct stat info;
    void *memory = MAP_FAILED;

    if (!fstat(fd, &info) && info.st_size)
        memory = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        note(&refused, name);
        return;
    }
    scribble(memory, (size_t)info.st_size);
    munmap(memory, (size_t)info.st_size);
    note(&written, name);
}

static void scribble_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *one;

    while (folder && (one = readdir(folder))) {
        char path[300], target[256];
        snprintf(path, sizeof path, "/proc/self/fd/%s", one->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = 0;
        if (strncmp(target, SHARED, strlen(SHARED)) || !strncmp(target, OWN, strlen(OWN)))
            continue;
        *strchrnul(target, ' ') = 0; /* " (deleted)" */
        scribble_anew(atoi(one->d_name), target + strlen("/memfd:"));
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
            scribble_anew(fd, target + strlen("/memfd:"));
            close(fd);
        }
    }
    if (folder)
        closedir(folder);
}

static bool is_told(void)
{
    char text[32] = "";
    int fd = open(getenv("FLYT_TEST_SCRIBBLE"), O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    return bytes > 0 && atol(text) == getpid();
}

static void *run(void *unused)
{
    char line[32];

    for (unsigned long rounds = 0;;) {
        if (!is_told()) {
            usleep(IDLE_US);
            continue;
        }
        scribble_mapped();
        scribble_descriptors();
        snprintf(line, sizeof line, "%lu\n", ++rounds);
        say("rounds", line, O_TRUNC);
        usleep(PAUSE_US);
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;

    if (getenv("FLYT_TEST_SCRIBBLE") && !strcmp(program_invocation_short_name, "flyt-server") &&
        !pthread_create(&thread, NULL, run, NULL))
        pthread_detach(thread);
}
