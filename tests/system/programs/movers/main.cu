// Runs one case of movers.h, or all of them, each in a process of its own.
// usage: movers CASE [--seconds S | --until-file PATH] [--seed N] [--rest MS]
//        movers [--seconds S] [--jobs N]
//        movers --list
//
// A case prints "ready" when it is set up, "round N" about every tenth of a second, and at the end, after S seconds
// (1) or when PATH exists, "ok CASE rounds=N", exit status 0; else "FAIL CASE round N seed S: WHY", exit status 1.
// Between two rounds it sleeps for MS (0) milliseconds.
// Without a CASE all run, N (4) at a time, the faulting ones last and alone: a line for each that has ended, exit
// status 1 where one has failed. --list has a line for each: NAME FAMILY FLAGS WHAT, with FLAGS of "fault", "code"
// (movers.h, enum mover_flag) or "-".
#include "movers.h"

#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <string>

enum { ROUND_LINE_MS = 100, JOBS = 4, JOBS_MAX = 64, SECONDS_MAX = 1000000, REST_MS_MAX = 10000 };

extern const mover_family structures_family, variables_family, modules_family, contexts_family, streams_family,
    per_thread_family, events_family, callbacks_family, contents_family, allocations_family, copies_family,
    threads_family, settings_family, process_family, managed_family, managed_variables_family, mapped_family,
    graphs_family;

static const mover_family *const families[] = {
    &structures_family, &variables_family,   &modules_family, &contexts_family,
    &streams_family,    &per_thread_family,  &events_family,  &callbacks_family,
    &contents_family,   &allocations_family, &copies_family,  &threads_family,
    &settings_family,   &process_family,     &managed_family, &managed_variables_family,
    &mapped_family,      &graphs_family,
};

struct options {
    const char *name;
    const char *until_path; /* NULL: after `seconds` */
    double seconds;
    uint32_t seed;
    unsigned jobs, rest_ms;
    bool is_list;
};

/* For what a failure says, from any thread. */
static struct {
    const char *name;
    uint32_t seed;
    volatile uint32_t number;
    FILE *out; /* the standard output as it was at the start: cases redirect theirs */
} running;

extern char **environ;

void mover_fail(const char *file, int line, const char *format, ...)
{
    const char *base = strrchr(file, '/');
    va_list arguments;

    flockfile(running.out); /* and never unlocked: one failure is enough */
    fprintf(running.out, "FAIL %s round %u seed %u: %s:%d: ", running.name, running.number, running.seed,
            base ? base + 1 : file, line);
    va_start(arguments, format);
    vfprintf(running.out, format, arguments);
    va_end(arguments);
    fputc('\n', running.out);
    fflush(running.out);
    _exit(1);
}

static const mover_entry *find(const char *name)
{
    for (const mover_family *family : families)
        for (size_t i = 0; i < family->count; i++)
            if (!strcmp(family->entries[i].name, name))
                return &family->entries[i];
    return NULL;
}

static int list_all(void)
{
    for (const mover_family *family : families)
        for (size_t i = 0; i < family->count; i++) {
            const mover_entry *entry = &family->entries[i];
            printf("%s %s %s %s\n", entry->name, family->name,
                   entry->flags & MOVER_FAULTS ? "fault"
                   : entry->flags & MOVER_CODE ? "code"
                                               : "-",
                   entry->what);
        }
    return 0;
}

// ---- one case

static int run_case(const mover_entry *entry, const struct options *options)
{
    mover *one = entry->make();
    double begin_ms, said_ms = 0;

    running.name = entry->name;
    running.seed = options->seed;
    one->random_state = options->seed * 2654435761u | 1;
    one->set_up();
    fprintf(running.out, "ready\n");
    begin_ms = mover_now_ms();
    do {
        if (options->rest_ms)
            mover_sleep_ms(options->rest_ms);
        running.number = ++one->number;
        one->round();
        if (mover_now_ms() - said_ms >= ROUND_LINE_MS) {
            said_ms = mover_now_ms();
            fprintf(running.out, "round %u\n", one->number);
        }
    } while (options->until_path ? access(options->until_path, F_OK) != 0
                                 : mover_now_ms() - begin_ms < options->seconds * 1e3);
    one->finish();
    fprintf(running.out, "ok %s rounds=%u\n", entry->name, one->number);
    delete one;
    return 0;
}

// ---- all of them

struct child {
    const mover_entry *entry;
    pid_t pid;
    FILE *output;
};

static void start_child(struct child *child, const struct options *options)
{
    std::string seconds = std::to_string(options->seconds), seed = std::to_string(options->seed);
    const char *arguments[] = {"movers", child->entry->name, "--seconds", seconds.c_str(),
                               "--seed", seed.c_str(),       NULL};
    posix_spawn_file_actions_t actions;

    child->output = tmpfile();
    if (!child->output) {
        perror("movers: tmpfile");
        exit(2);
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(child->output), 1);
    posix_spawn_file_actions_adddup2(&actions, fileno(child->output), 2);
    errno = posix_spawn(&child->pid, "/proc/self/exe", &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (errno != 0) {
        perror("movers: a process for a case");
        exit(2);
    }
}

/* Prints its last line, or all that it said where it has failed; whether it was right. */
static bool end_child(struct child *child, int status)
{
    bool is_right = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    char line[512], last[512] = "";

    rewind(child->output);
    while (fgets(line, sizeof line, child->output)) {
        if (!is_right)
            fputs(line, stdout);
        memcpy(last, line, sizeof last);
    }
    if (is_right)
        fputs(last, stdout);
    else
        printf("%s has failed, status 0x%x\n", child->entry->name, status);
    fclose(child->output);
    fflush(stdout);
    return is_right;
}

/* Runs those, `jobs` at a time; how many have failed. */
static unsigned run_children(const std::vector<const mover_entry *> &entries, unsigned jobs,
                             const struct options *options)
{
    std::vector<struct child> children;
    unsigned failed = 0;
    size_t next = 0;

    while (next < entries.size() || !children.empty()) {
        while (next < entries.size() && children.size() < jobs) {
            struct child child = {entries[next++], 0, NULL};
            start_child(&child, options);
            children.push_back(child);
        }
        int status;
        pid_t pid = wait(&status);
        for (size_t i = 0; i < children.size(); i++)
            if (children[i].pid == pid) {
                failed += !end_child(&children[i], status);
                children.erase(children.begin() + (long)i);
                break;
            }
    }
    return failed;
}

static int run_all(const struct options *options)
{
    std::vector<const mover_entry *> peaceful, faulting;
    unsigned failed;

    for (const mover_family *family : families)
        for (size_t i = 0; i < family->count; i++)
            (family->entries[i].flags & MOVER_FAULTS ? faulting : peaceful).push_back(&family->entries[i]);
    failed = run_children(peaceful, options->jobs, options) + run_children(faulting, 1, options);
    printf("%zu cases, %u failed\n", peaceful.size() + faulting.size(), failed);
    return failed != 0;
}

// ---- the command line

static void refuse(const char *what, const char *word)
{
    fprintf(stderr,
            "movers: %s: %s\nusage: movers CASE [--seconds S | --until-file PATH] [--seed N] [--rest MS]\n"
            "       movers [--seconds S] [--jobs N]\n       movers --list\n",
            what, word);
    exit(2);
}

static double number_of(const char *option, const char *text, double least, double most)
{
    char *end;
    double value = text ? strtod(text, &end) : 0;

    if (!text || end == text || *end || !(value >= least && value <= most))
        refuse("a number is missing or out of range", option);
    return value;
}

static struct options parse(char **words)
{
    struct options options = {NULL, NULL, 1, 1, JOBS, 0, false};

    while (*++words) {
        const char *option = *words;
        if (option[0] != '-' && !options.name)
            options.name = option;
        else if (!strcmp(option, "--list"))
            options.is_list = true;
        else if (!words[1])
            refuse("unknown, or its value is missing", option);
        else if (!strcmp(option, "--until-file"))
            options.until_path = *++words;
        else if (!strcmp(option, "--seconds"))
            options.seconds = number_of(option, *++words, 0, SECONDS_MAX);
        else if (!strcmp(option, "--seed"))
            options.seed = (uint32_t)number_of(option, *++words, 0, UINT32_MAX);
        else if (!strcmp(option, "--rest"))
            options.rest_ms = (unsigned)number_of(option, *++words, 0, REST_MS_MAX);
        else if (!strcmp(option, "--jobs"))
            options.jobs = (unsigned)number_of(option, *++words, 1, JOBS_MAX);
        else
            refuse("unknown option", option);
    }
    return options;
}

int main(int, char **arguments)
{
    struct options options = parse(arguments);

    if (options.is_list)
        return list_all();
    if (!options.name)
        return run_all(&options);
    const mover_entry *entry = find(options.name);
    if (!entry)
        refuse("no such case (movers --list)", options.name);
    running.out = fdopen(dup(1), "w");
    if (!running.out) {
        perror("movers: standard output");
        return 2;
    }
    setvbuf(running.out, NULL, _IOLBF, 0);
    return run_case(entry, &options);
}
