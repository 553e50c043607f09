/*
 * control_load --manager URL[,URL…] [--nodes N] [--gpus N] [--vms N]
 * control_load --write STORE --vms N      writes the VMs' documents and ends
 *
 * Commands on standard input, a line each; answers are JSON objects, one on a line:
 *
 *   status                        at once: what there is
 *   fill N AT_ONCE                N further VMs attach, AT_ONCE at a time, and stay; "filled" at the end
 *   load RATE SECONDS HOLD_MS     idle VMs attach in turn, RATE in a second, each for HOLD_MS; "loaded" when the last
 *                                 one was answered: latencies count from the time at which it was to be asked
 *   end                           the programs of VMs that stay end
 *   quit
 *
 * By themselves: "all_up" when every node is registered and every VM connected, with the seconds since that was so the
 * last time; "violation" with a sentence.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "tests/bench/load/load.h"

enum { SPARE_DESCRIPTORS = 64, MANAGERS_MAX = 16 };

static uint64_t now_us(void)
{
    return flyt_clock_ns() / 1000;
}

void load_peers_changed(struct load *load)
{
    bool is_all_up = load->nodes_up == load->node_count && load->vms_up == load->vm_count;

    if (is_all_up && load->down_us) {
        printf("{\"event\":\"all_up\",\"seconds\":%.3f}\n", (double)(now_us() - load->down_us) / 1e6);
        load->down_us = 0;
    } else if (!is_all_up && !load->down_us) {
        load->down_us = now_us();
    }
}

/* ---- asking ---- */

static int compare(const void *one, const void *other)
{
    const uint64_t *a = one, *b = other;

    return (*a > *b) - (*a < *b);
}

static void print_end(struct load *load, const char *event)
{
    struct load_counts *counts = &load->counts;
    size_t n = counts->took_count;
    double seconds = (double)(now_us() - load->begin_us) / 1e6;

    qsort(counts->took_us, n, sizeof *counts->took_us, compare);
    printf("{\"event\":\"%s\",\"seconds\":%.3f,\"asked\":%" PRIu64 ",\"granted\":%" PRIu64 ",\"refused\":%" PRIu64
           ",\"again\":%" PRIu64 ",\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"violations\":%" PRIu64
           ",\"refusal\":\"%s\"}\n",
           event, seconds, counts->asked, counts->granted, counts->refused, counts->again,
           n ? (double)counts->took_us[n / 2] / 1e3 : 0.0,
           n ? (double)counts->took_us[n - 1 - (n - 1) / 100] / 1e3 : 0.0,
           n ? (double)counts->took_us[n - 1] / 1e3 : 0.0, load->violation_count, counts->refusal);
}

static void begin_counting(struct load *load)
{
    free(load->counts.took_us);
    load->counts = (struct load_counts){0};
    load->begin_us = now_us();
}

static struct load_vm *next_idle(struct load *load)
{
    for (unsigned i = 0; i < load->vm_count; i++) {
        struct load_vm *vm = &load->vms[load->next_vm];
        load->next_vm = (load->next_vm + 1) % load->vm_count;
        if (load_vm_is_idle(vm))
            return vm;
    }
    return NULL;
}

/* false: all VMs are busy. */
static bool issue(struct load *load, uint64_t due_us, bool stays)
{
    struct load_vm *vm = next_idle(load);

    if (!vm)
        return false;
    load->counts.asked++;
    load->asking_count++;
    load_vm_ask(vm, due_us, stays);
    return true;
}

static void go_on_filling(struct load *load)
{
    while (load->fill_left && load->asking_count < load->fill_at_once && issue(load, now_us(), true))
        load->fill_left--;
    if (load->asking_count)
        return;
    load->is_filling = false;
    print_end(load, "filled");
}

void load_answered(struct load *load, bool is_granted, uint64_t took_us, const char *refusal)
{
    struct load_counts *counts = &load->counts;

    load->asking_count--;
    if (is_granted) {
        counts->granted++;
        if (counts->took_count == counts->took_room) {
            counts->took_room = counts->took_room ? 2 * counts->took_room : 1024;
            counts->took_us = realloc(counts->took_us, counts->took_room * sizeof *counts->took_us);
            if (!counts->took_us)
                abort();
        }
        counts->took_us[counts->took_count++] = took_us;
    } else {
        counts->refused++;
        snprintf(counts->refusal, sizeof counts->refusal, "%s", refusal);
    }
    if (load->is_filling)
        go_on_filling(load);
    else if (!load->asking_count && !load->is_loading)
        print_end(load, "loaded");
}

/* Issues what is due. Questions keep to their times also where answers are late. */
static int on_pace(sd_event_source *source, uint64_t usec, void *user)
{
    struct load *load = user;
    uint64_t now = now_us();

    for (;;) {
        uint64_t due_us = load->begin_us + load->issued_count * load->period_ns / 1000;
        if (due_us >= load->end_us) {
            load->is_loading = false;
            if (!load->asking_count)
                print_end(load, "loaded");
            return 0;
        }
        if (due_us > now) {
            sd_event_source_set_time(source, due_us);
            return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
        }
        load->issued_count++;
        if (!issue(load, due_us, false))
            load_violation(load, "no idle VM is left: more VMs, a shorter hold or a lower rate");
    }
}

/* ---- commands ---- */

static unsigned held_count(const struct load *load)
{
    unsigned count = 0;

    for (unsigned i = 0; i < load->node_count; i++)
        count += load->nodes[i].held_count;
    return count;
}

static void print_status(const struct load *load)
{
    unsigned running = 0;

    for (unsigned i = 0; i < load->vm_count; i++)
        running += load->vms[i].is_running;
    printf("{\"event\":\"status\",\"nodes_up\":%u,\"vms_up\":%u,\"held\":%u,\"running\":%u,\"asking\":%u,"
           "\"violations\":%" PRIu64 "}\n",
           load->nodes_up, load->vms_up, held_count(load), running, load->asking_count, load->violation_count);
}

static void command(struct load *load, const char *line)
{
    unsigned count, seconds, hold_ms;
    double rate;
    bool is_busy = load->is_loading || load->is_filling || load->asking_count;

    if (!strcmp(line, "status")) {
        print_status(load);
    } else if (!strcmp(line, "quit")) {
        load->is_ending = true;
    } else if (!strcmp(line, "end")) {
        for (unsigned i = 0; i < load->vm_count; i++)
            if (load->vms[i].is_running && load->vms[i].stays)
                load_vm_end(&load->vms[i]);
    } else if (!is_busy && sscanf(line, "fill %u %u", &load->fill_left, &load->fill_at_once) == 2) {
        begin_counting(load);
        load->is_filling = true;
        go_on_filling(load);
    } else if (!is_busy && sscanf(line, "load %lf %u %u", &rate, &seconds, &hold_ms) == 3 && rate > 0) {
        begin_counting(load);
        load->is_loading = true;
        load->issued_count = 0;
        load->hold_ms = hold_ms;
        load->period_ns = (uint64_t)(1e9 / rate);
        load->end_us = load->begin_us + seconds * 1000000ull;
        sd_event_source_set_time(load->pace, load->begin_us);
        sd_event_source_set_enabled(load->pace, SD_EVENT_ONESHOT);
        (void)count;
    } else {
        printf("{\"event\":\"error\",\"text\":\"not understood, or busy: %s\"}\n", line);
    }
}

static int on_input(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct load *load = user;
    char line[INPUT_LINE_BYTES];

    input_lines_read(&load->input, fd);
    while (input_lines_next(&load->input, line))
        command(load, line);
    load->is_ending |= load->input.has_ended;
    return 0;
}

/* ---- beginning and end ---- */

static int raise_descriptors(unsigned needed)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files))
        return -errno;
    if (files.rlim_cur < needed && files.rlim_max < needed && !geteuid())
        files.rlim_max = needed;
    files.rlim_cur = files.rlim_max;
    if (!setrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur >= needed)
        return 0;
    fprintf(stderr,
            "control_load: %u descriptors are needed, %" PRIu64
            " are allowed: raise the hard limit (ulimit -Hn, LimitNOFILE=, /etc/security/limits.conf) or take fewer "
            "nodes and VMs\n",
            needed, (uint64_t)files.rlim_max);
    return -EMFILE;
}

static void read_managers(struct load *load, char *text)
{
    static char *items[MANAGERS_MAX];

    for (char *item = strtok(text, ","); item && load->managers.count < MANAGERS_MAX; item = strtok(NULL, ","))
        items[load->managers.count++] = item;
    load->managers.items = items;
}

static bool options(struct load *load, int argc, char **argv, const char **ret_store)
{
    static const struct option list[] = {{"manager", 1, NULL, 'm'}, {"nodes", 1, NULL, 'n'}, {"gpus", 1, NULL, 'g'},
                                         {"vms", 1, NULL, 'v'},     {"write", 1, NULL, 'w'}, {0}};
    int option;

    while ((option = getopt_long(argc, argv, "", list, NULL)) >= 0) {
        unsigned *number = option == 'n' ? &load->node_count : option == 'g' ? &load->gpu_count : &load->vm_count;
        if (option == 'm')
            read_managers(load, optarg);
        else if (option == 'w')
            *ret_store = optarg;
        else if (option == '?')
            return false;
        else
            *number = (unsigned)strtoul(optarg, NULL, 10);
    }
    return (load->managers.count || *ret_store) && load->vm_count && load->vm_count <= LOAD_VMS_MAX &&
           load->node_count <= LOAD_NODES_MAX && load->gpu_count && load->gpu_count <= LOAD_GPUS_MAX;
}

static int start(struct load *load)
{
    /* A sixteenth: epoll and timers of the shards. */
    int status = raise_descriptors((load->node_count + load->vm_count) * 17 / 16 + SPARE_DESCRIPTORS);

    load->nodes = calloc(load->node_count + 1, sizeof *load->nodes);
    load->vms = calloc(load->vm_count, sizeof *load->vms);
    if (!load->nodes || !load->vms)
        return -ENOMEM;
    if (!status)
        status = load_shards_init(load, load->node_count + load->vm_count);
    if (status >= 0)
        status = sd_event_add_io(load->event, NULL, STDIN_FILENO, EPOLLIN, on_input, load);
    if (status >= 0)
        status = sd_event_add_time(load->event, &load->pace, CLOCK_MONOTONIC, 0, 1, on_pace, load);
    if (status < 0)
        return status;
    sd_event_source_set_enabled(load->pace, SD_EVENT_OFF);
    load->down_us = now_us();
    for (unsigned i = 0; i < load->node_count && status >= 0; i++)
        status = load_node_init(&load->nodes[i], load, i);
    for (unsigned i = 0; i < load->vm_count && status >= 0; i++)
        status = load_vm_init(&load->vms[i], load, i);
    return status;
}

static void finish(struct load *load)
{
    for (unsigned i = 0; load->nodes && i < load->node_count; i++)
        load_node_fini(&load->nodes[i]);
    for (unsigned i = 0; load->vms && i < load->vm_count; i++)
        load_vm_fini(&load->vms[i]);
    sd_event_source_disable_unref(load->pace);
    load_shards_fini(load);
    free(load->nodes);
    free(load->vms);
    free(load->counts.took_us);
}

int main(int argc, char **argv)
{
    struct load load = {.node_count = 0, .gpu_count = 8, .seed = 0xf1f1};
    struct flyt_error err = {0};
    const char *store = NULL;

    if (!options(&load, argc, argv, &store)) {
        fprintf(stderr,
                "usage: control_load --manager URL[,URL] [--nodes N] [--gpus 1-%d] --vms N\n"
                "       control_load --write STORE --vms N\n",
                LOAD_GPUS_MAX);
        return 2;
    }
    flyt_log_init("control_load", FLYT_LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    if (store) {
        if (!load_documents_write(store, load.vm_count, &err))
            return 0;
        fprintf(stderr, "control_load: %s\n", err.text);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    int status = start(&load);
    if (status >= 0)
        status = load_shards_run(&load);
    else
        fprintf(stderr, "control_load: %s\n", strerror(-status));
    finish(&load);
    return status != 0;
}
