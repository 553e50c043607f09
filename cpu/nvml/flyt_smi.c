/*
 * flyt-smi: what a VM has of its GPUs, as nvidia-smi's users and their scripts ask for it. One thread, no connection of
 * its own: everything is asked of libnvidia-ml.so.1, once in each round (-l), and printed.
 *
 * Exit status: 0, 2 for what was typed, else the code of NVML that ended it (6: no such device, 9: nobody says which
 * devices there are).
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/nvml/flyt_smi_query.h"
#include "cpu/nvml/flyt_smi_report.h"
#include "rpc/base/build_name.h"

enum { USAGE = 2, DEVICES_MAX = 64, LOOP_MS = 5000, LOOP_S_MAX = 1000000 };

enum action { TABLE, LIST, REPORT, QUERY, NAMES };

struct flyt_smi {
    enum action action;
    struct flyt_smi_query query;
    bool has_query, has_format;
    char *ids;             /* -i; NULL: all */
    const char *file;      /* -f; NULL: the standard output */
    unsigned long loop_ms; /* 0: once */
    flyt_nvml_device devices[DEVICES_MAX];
    unsigned device_count;
};

static const char usage[] =
    "usage: flyt-smi [-q] [-i ID[,ID…]] [-l [SECONDS]] [-f FILE]\n"
    "       flyt-smi -L\n"
    "       flyt-smi --query-gpu=FIELD[,FIELD…] --format=csv[,noheader][,nounits]\n"
    "       flyt-smi --query-compute-apps=FIELD[,FIELD…] --format=csv[,noheader][,nounits]\n"
    "\n"
    "Shows what this VM has of its GPUs and what it uses of it, by its client manager's word.\n"
    "\n"
    "  -L, --list-gpus           one line for each device: its name and UUID\n"
    "  -q, --query               a report on each device, section by section\n"
    "  -i, --id=ID[,ID…]         these devices only: index, UUID or PCI bus id\n"
    "  -l, --loop[=SECONDS]      again and again (every 5 seconds)\n"
    "  -lms, --loop-ms=MS        the same, by milliseconds\n"
    "  -f, --filename=FILE       prints into a file, which is made anew\n"
    "  --query-gpu=FIELDS        values of each device; --help-query-gpu lists the fields\n"
    "  --query-compute-apps=FIELDS   values of each of the VM's programs; --help-query-compute-apps\n"
    "  --format=csv[,noheader][,nounits]   how a query prints; needed there\n"
    "  -h, --help                this text\n"
    "  --version                 the version\n"
    "\n"
    "Exit status: 0; 2 where an option or a field is wrong; 6: no such device; 9: nobody says which devices there "
    "are.\n";

static int fail(const char *what, const char *which)
{
    fprintf(stderr, "flyt-smi: %s%s (flyt-smi --help)\n", what, which);
    return USAGE;
}

/* ---- options ---- */

static int take_format(struct flyt_smi *smi, char *format)
{
    char *word;
    bool is_csv = false;
    while ((word = strsep(&format, ","))) {
        if (!strcmp(word, "csv"))
            is_csv = true;
        else if (!strcmp(word, "noheader"))
            smi->query.has_header = false;
        else if (!strcmp(word, "nounits"))
            smi->query.has_units = false;
        else
            return fail("--format takes csv, noheader and nounits, not ", word);
    }
    smi->has_format = is_csv;
    return is_csv ? 0 : fail("--format must say csv", "");
}

static int take_query(struct flyt_smi *smi, enum flyt_smi_subject subject, char *fields)
{
    if (smi->has_query)
        return fail("one query at a time", "");
    smi->action = QUERY;
    smi->has_query = true;
    smi->query.subject = subject;
    const char *wrong = flyt_smi_parse(fields, &smi->query);
    if (wrong)
        fprintf(stderr, "flyt-smi: field \"%s\" is not one that can be asked for (flyt-smi --help-query-%s)\n", wrong,
                subject == FLYT_SMI_GPUS ? "gpu" : "compute-apps");
    return wrong ? USAGE : 0;
}

static int take_loop(struct flyt_smi *smi, const char *text, const char *unit, unsigned long unit_ms)
{
    char *end;
    unsigned long count = strtoul(text, &end, 10);
    if (*end || end == text || *text == '-' || !count || count > LOOP_S_MAX * 1000ul / unit_ms)
        return fail(unit, text);
    smi->loop_ms = count * unit_ms;
    return 0;
}

static int take_seconds(struct flyt_smi *smi, const char *text)
{
    smi->loop_ms = LOOP_MS;
    return text ? take_loop(smi, text, "--loop takes seconds, not ", 1000) : 0;
}

static int take_milliseconds(struct flyt_smi *smi, const char *text)
{
    return take_loop(smi, text, "--loop-ms takes milliseconds, not ", 1);
}

enum option_number { QUERY_GPU = 256, QUERY_PROGRAMS, FORMAT, LOOP_BY_MS, HELP_GPU, HELP_PROGRAMS, VERSION };

static const struct option options[] = {
    {"list-gpus", no_argument, NULL, 'L'},
    {"id", required_argument, NULL, 'i'},
    {"query", no_argument, NULL, 'q'},
    {"loop", optional_argument, NULL, 'l'},
    {"loop-ms", required_argument, NULL, LOOP_BY_MS},
    {"filename", required_argument, NULL, 'f'},
    {"query-gpu", required_argument, NULL, QUERY_GPU},
    {"query-compute-apps", required_argument, NULL, QUERY_PROGRAMS},
    {"format", required_argument, NULL, FORMAT},
    {"help-query-gpu", no_argument, NULL, HELP_GPU},
    {"help-query-compute-apps", no_argument, NULL, HELP_PROGRAMS},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, VERSION},
    {0},
};

/* What stands behind "-l", which may be a word of its own: seconds, or "ms" and then milliseconds. */
static int take_short_loop(struct flyt_smi *smi, char **argv)
{
    bool is_number = argv[optind] && argv[optind][0] >= '0' && argv[optind][0] <= '9';
    if (optarg && !strcmp(optarg, "ms"))
        return is_number ? take_milliseconds(smi, argv[optind++]) : fail("-lms needs milliseconds", "");
    return take_seconds(smi, !optarg && is_number ? argv[optind++] : optarg);
}

static int take_option(struct flyt_smi *smi, int option, char **argv)
{
    switch (option) {
    case 'L':
        smi->action = LIST;
        return 0;
    case 'i':
        smi->ids = optarg;
        return 0;
    case 'l':
        return take_short_loop(smi, argv);
    case LOOP_BY_MS:
        return take_milliseconds(smi, optarg);
    case 'q':
        smi->action = REPORT;
        return 0;
    case 'f':
        smi->file = optarg;
        return 0;
    case QUERY_GPU:
        return take_query(smi, FLYT_SMI_GPUS, optarg);
    case QUERY_PROGRAMS:
        return take_query(smi, FLYT_SMI_PROGRAMS, optarg);
    case FORMAT:
        return take_format(smi, optarg);
    case HELP_GPU:
    case HELP_PROGRAMS:
        flyt_smi_print_names(option == HELP_GPU ? FLYT_SMI_GPUS : FLYT_SMI_PROGRAMS);
        smi->action = NAMES;
        return 0;
    case 'h':
        fputs(usage, stdout);
        smi->action = NAMES;
        return 0;
    case VERSION:
        printf("flyt-smi %s\n", flyt_build_name);
        smi->action = NAMES;
        return 0;
    default: /* getopt has said what is wrong */
        return USAGE;
    }
}

static int parse(struct flyt_smi *smi, int argc, char **argv)
{
    int option, status = 0;
    while (!status && smi->action != NAMES && (option = getopt_long(argc, argv, "Lqi:l::f:h", options, NULL)) != -1)
        status = take_option(smi, option, argv);
    if (!status && smi->action != NAMES && argv[optind])
        status = fail("there is nothing called ", argv[optind]);
    if (!status && smi->has_query != smi->has_format)
        status = fail(smi->has_query ? "a query needs --format=csv" : "--format is for queries", "");
    return status;
}

/* ---- devices ---- */

static int find_device(const char *id, flyt_nvml_device *ret_device)
{
    char *end;
    unsigned long index = strtoul(id, &end, 10);
    if (*id >= '0' && *id <= '9' && !*end)
        return index > DEVICES_MAX ? FLYT_NVML_INVALID_ARGUMENT
                                   : nvmlDeviceGetHandleByIndex_v2((unsigned)index, ret_device);
    if (!strncmp(id, "GPU-", 4))
        return nvmlDeviceGetHandleByUUID(id, ret_device);
    return nvmlDeviceGetHandleByPciBusId_v2(id, ret_device);
}

static int find_named(struct flyt_smi *smi)
{
    char ids[4096], *rest = ids, *id;
    snprintf(ids, sizeof ids, "%s", smi->ids);
    while ((id = strsep(&rest, ",")) && smi->device_count < DEVICES_MAX) {
        int code = find_device(id, &smi->devices[smi->device_count++]);
        if (code == FLYT_NVML_INVALID_ARGUMENT || code == FLYT_NVML_NOT_FOUND) {
            fprintf(stderr, "flyt-smi: no device %s was found\n", id);
            return FLYT_NVML_NOT_FOUND;
        }
        if (code)
            return code;
    }
    return 0;
}

static int find_all(struct flyt_smi *smi)
{
    int code = nvmlDeviceGetCount_v2(&smi->device_count);
    if (smi->device_count > DEVICES_MAX)
        smi->device_count = DEVICES_MAX;
    for (unsigned i = 0; !code && i < smi->device_count; i++)
        code = nvmlDeviceGetHandleByIndex_v2(i, &smi->devices[i]);
    if (!code && !smi->device_count) {
        printf("No devices were found\n");
        return FLYT_NVML_NOT_FOUND;
    }
    return code;
}

/* ---- what is shown ---- */

static void list(const struct flyt_smi *smi)
{
    char index[FLYT_SMI_TEXT_BYTES], name[FLYT_SMI_TEXT_BYTES], uuid[FLYT_SMI_TEXT_BYTES];
    for (unsigned i = 0; i < smi->device_count; i++) {
        flyt_smi_tell(smi->devices[i], "index", false, index);
        flyt_smi_tell(smi->devices[i], "name", false, name);
        flyt_smi_tell(smi->devices[i], "uuid", false, uuid);
        printf("GPU %s: %s (UUID: %s)\n", index, name, uuid);
    }
}

static const char line[] =
    "+-----------------------------------------------------------------------------------------+\n";

static void print_device(flyt_nvml_device device)
{
    static const char *const fields[] = {"index",           "name",        "pci.bus_id", "memory.used", "memory.total",
                                         "utilization.gpu", "compute_mode"};
    enum { INDEX, NAME, BUS, USED, TOTAL, BUSY, MODE, FIELDS };
    char text[FIELDS][FLYT_SMI_TEXT_BYTES], memory[64];
    for (unsigned i = 0; i < FIELDS; i++)
        flyt_smi_tell(device, fields[i], i == BUSY, text[i]);
    if (text[USED][0] == '[')
        snprintf(memory, sizeof memory, "N/A");
    else
        snprintf(memory, sizeof memory, "%.10sMiB / %.10sMiB", text[USED], text[TOTAL]);
    printf("| %3.3s  %-29.29s | %-16.16s | %20.20s | %8.8s |\n", text[INDEX], text[NAME], text[BUS], memory,
           text[BUSY]);
}

static unsigned print_programs(flyt_nvml_device device)
{
    static struct flyt_nvml_process programs[FLYT_SMI_PROGRAMS_MAX];
    char index[FLYT_SMI_TEXT_BYTES], name[FLYT_SMI_TEXT_BYTES], memory[FLYT_SMI_TEXT_BYTES];
    unsigned count = flyt_smi_programs(device, programs);
    flyt_smi_tell(device, "index", false, index);
    for (unsigned i = 0; i < count; i++) {
        flyt_smi_tell_program(device, &programs[i], "process_name", false, name);
        flyt_smi_tell_program(device, &programs[i], "used_memory", true, memory);
        printf("| %3.3s  %10u   C   %-48.48s %16.16s |\n", index, programs[i].pid, name, memory);
    }
    return count;
}

static void print_table(const struct flyt_smi *smi)
{
    char driver[FLYT_SMI_TEXT_BYTES];
    int cuda = 0;
    unsigned count = 0;
    flyt_smi_tell(smi->devices[0], "driver_version", false, driver);
    nvmlSystemGetCudaDriverVersion_v2(&cuda);
    char version[32];
    snprintf(version, sizeof version, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    printf("%s| FLYT-SMI %-22.22s  Driver Version: %-18.18s  CUDA Version: %-4.4s |\n%s", line, flyt_build_name, driver,
           version, line);
    printf("| GPU  %-29s | %-16s | %20s | %8s |\n", "Name", "Bus-Id", "Memory-Usage", "GPU-Util");
    printf("|====================================+==================+======================+==========|\n");
    for (unsigned i = 0; i < smi->device_count; i++)
        print_device(smi->devices[i]);
    printf("%s| GPU         PID Type  %-48s %16s |\n", line, "Process name", "GPU Memory Usage");
    printf("|=========================================================================================|\n");
    for (unsigned i = 0; i < smi->device_count; i++)
        count += print_programs(smi->devices[i]);
    if (!count)
        printf("| %-87s |\n", "No running processes found");
    printf("%s", line);
}

static int show(struct flyt_smi *smi)
{
    smi->device_count = 0;
    int code = smi->ids ? find_named(smi) : find_all(smi);
    if (code)
        return code;
    if (smi->action == LIST)
        list(smi);
    else if (smi->action == REPORT)
        flyt_smi_report(smi->devices, smi->device_count);
    else if (smi->action == TABLE)
        print_table(smi);
    for (unsigned i = 0; smi->action == QUERY && i < smi->device_count; i++)
        flyt_smi_print_device(&smi->query, smi->devices[i]);
    return 0;
}

static int say_code(int code)
{
    const char *why = code == FLYT_NVML_DRIVER_NOT_LOADED ? ": no client manager says which devices this VM has (is "
                                                            "flyt-client-manager running, and FLYT_SERVER not set?)"
                                                          : "";
    fprintf(stderr, "flyt-smi: the GPUs cannot be asked: %s%s\n", nvmlErrorString(code), why);
    return code > 255 ? 255 : code;
}

/* A round whose client manager is away says so, and the next one may be better. */
static int run(struct flyt_smi *smi)
{
    const struct timespec pause = {(time_t)(smi->loop_ms / 1000), (long)(smi->loop_ms % 1000) * 1000000};
    int code = nvmlInit_v2();
    if (code)
        return say_code(code);
    if (smi->action == QUERY && smi->query.has_header)
        flyt_smi_print_header(&smi->query);
    for (;;) {
        code = show(smi);
        if (code && code != FLYT_NVML_NOT_FOUND)
            say_code(code);
        if (fflush(stdout) || ferror(stdout) || !smi->loop_ms)
            break;
        nanosleep(&pause, NULL);
    }
    nvmlShutdown();
    return code > 255 ? 255 : code;
}

int main(int argc, char **argv)
{
    struct flyt_smi smi = {.query = {.has_header = true, .has_units = true}};
    int status = parse(&smi, argc, argv);
    if (status || smi.action == NAMES)
        return status;
    if (smi.file && !freopen(smi.file, "w", stdout)) {
        fprintf(stderr, "flyt-smi: %s cannot be written: %m\n", smi.file);
        return USAGE;
    }
    return run(&smi);
}
