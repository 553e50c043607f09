#include "cpu/nvml/flyt_smi_query.h"

#include <stdarg.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

/* What is asked about: a device, or one of its programs. */
struct subject {
    flyt_nvml_device device;
    const struct flyt_nvml_process *program;
};

/* Writes the answer (FLYT_SMI_TEXT_BYTES); false: there is none. */
typedef bool (*get_fn)(const struct subject *of, char *ret_text);

struct flyt_smi_field {
    const char *name, *alias; /* alias NULL: none */
    const char *unit;         /* NULL: none */
    get_fn get;               /* NULL: known to people, and not to a VM */
};

static bool put(char *ret_text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool put(char *ret_text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ret_text, FLYT_SMI_TEXT_BYTES, format, args);
    va_end(args);
    return true;
}

/* ---- devices ---- */

static bool get_index(const struct subject *of, char *ret_text)
{
    unsigned index;
    return !nvmlDeviceGetIndex(of->device, &index) && put(ret_text, "%u", index);
}

static bool get_count(const struct subject *of, char *ret_text)
{
    unsigned count;
    return !nvmlDeviceGetCount_v2(&count) && put(ret_text, "%u", count);
}

static bool get_name(const struct subject *of, char *ret_text)
{
    return !nvmlDeviceGetName(of->device, ret_text, FLYT_SMI_TEXT_BYTES);
}

static bool get_uuid(const struct subject *of, char *ret_text)
{
    return !nvmlDeviceGetUUID(of->device, ret_text, FLYT_SMI_TEXT_BYTES);
}

static bool get_driver(const struct subject *of, char *ret_text)
{
    return !nvmlSystemGetDriverVersion(ret_text, FLYT_SMI_TEXT_BYTES);
}

static bool get_capability(const struct subject *of, char *ret_text)
{
    int major, minor;
    return !nvmlDeviceGetCudaComputeCapability(of->device, &major, &minor) && put(ret_text, "%d.%d", major, minor);
}

static bool get_bus_id(const struct subject *of, char *ret_text)
{
    struct flyt_nvml_pci pci;
    return !nvmlDeviceGetPciInfo_v3(of->device, &pci) && put(ret_text, "%s", pci.bus_id);
}

static bool get_domain(const struct subject *of, char *ret_text)
{
    struct flyt_nvml_pci pci;
    return !nvmlDeviceGetPciInfo_v3(of->device, &pci) && put(ret_text, "0x%04X", pci.domain);
}

static bool get_bus(const struct subject *of, char *ret_text)
{
    struct flyt_nvml_pci pci;
    return !nvmlDeviceGetPciInfo_v3(of->device, &pci) && put(ret_text, "0x%02X", pci.bus);
}

static bool get_device(const struct subject *of, char *ret_text)
{
    struct flyt_nvml_pci pci;
    return !nvmlDeviceGetPciInfo_v3(of->device, &pci) && put(ret_text, "0x%02X", pci.device);
}

static bool get_total(const struct subject *of, char *ret_text)
{
    struct flyt_nvml_memory memory;
    return !nvmlDeviceGetMemoryInfo(of->device, &memory) && put(ret_text, "%llu", memory.total >> 20);
}

static bool get_used(const struct subject *of, char *ret_text)
{
    struct flyt_nvml_memory memory;
    return !nvmlDeviceGetMemoryInfo(of->device, &memory) && put(ret_text, "%llu", memory.used >> 20);
}

static bool get_free(const struct subject *of, char *ret_text)
{
    struct flyt_nvml_memory memory;
    return !nvmlDeviceGetMemoryInfo(of->device, &memory) && put(ret_text, "%llu", memory.free >> 20);
}

static bool get_busy(const struct subject *of, char *ret_text)
{
    struct flyt_nvml_utilization rates;
    return !nvmlDeviceGetUtilizationRates(of->device, &rates) && put(ret_text, "%u", rates.gpu);
}

static bool get_persistence(const struct subject *of, char *ret_text)
{
    unsigned mode;
    return !nvmlDeviceGetPersistenceMode(of->device, &mode) && put(ret_text, mode ? "Enabled" : "Disabled");
}

static bool get_compute_mode(const struct subject *of, char *ret_text)
{
    return put(ret_text, "Default");
}

static bool get_disabled(const struct subject *of, char *ret_text)
{
    return put(ret_text, "Disabled");
}

/* ---- both ---- */

static bool get_time(const struct subject *of, char *ret_text)
{
    struct timeval now;
    struct tm local;
    char text[64];
    gettimeofday(&now, NULL);
    localtime_r(&now.tv_sec, &local);
    strftime(text, sizeof text, "%Y/%m/%d %H:%M:%S", &local);
    return put(ret_text, "%s.%03ld", text, (long)now.tv_usec / 1000);
}

/* ---- programs ---- */

static bool get_pid(const struct subject *of, char *ret_text)
{
    return put(ret_text, "%u", of->program->pid);
}

static bool get_program(const struct subject *of, char *ret_text)
{
    return !nvmlSystemGetProcessName(of->program->pid, ret_text, FLYT_SMI_TEXT_BYTES) || put(ret_text, "[Not Found]");
}

static bool get_program_memory(const struct subject *of, char *ret_text)
{
    return of->program->used_bytes != FLYT_NVML_NOT_AVAILABLE && put(ret_text, "%llu", of->program->used_bytes >> 20);
}

/* ---- the tables ---- */

#define UNKNOWN_ALSO(name, alias, unit)                                                                                \
    {                                                                                                                  \
        name, alias, unit, NULL                                                                                        \
    }
#define UNKNOWN(name, unit) UNKNOWN_ALSO(name, NULL, unit)
#define REASONS(family)                                                                                                \
    UNKNOWN(family ".supported", NULL), UNKNOWN(family ".active", NULL), UNKNOWN(family ".gpu_idle", NULL),            \
        UNKNOWN(family ".applications_clocks_setting", NULL), UNKNOWN(family ".sw_power_cap", NULL),                   \
        UNKNOWN(family ".hw_slowdown", NULL), UNKNOWN(family ".hw_thermal_slowdown", NULL),                            \
        UNKNOWN(family ".hw_power_brake_slowdown", NULL), UNKNOWN(family ".sw_thermal_slowdown", NULL),                \
        UNKNOWN(family ".sync_boost", NULL)
#define ECC_ERROR(kind, place) UNKNOWN("ecc.errors." kind "." place, NULL)
#define ECC_ERRORS(kind)                                                                                               \
    ECC_ERROR(kind, "device_memory"), ECC_ERROR(kind, "dram"), ECC_ERROR(kind, "register_file"),                       \
        ECC_ERROR(kind, "l1_cache"), ECC_ERROR(kind, "l2_cache"), ECC_ERROR(kind, "texture_memory"),                   \
        ECC_ERROR(kind, "cbu"), ECC_ERROR(kind, "sram"), ECC_ERROR(kind, "total")

static const struct flyt_smi_field gpu_fields[] = {
    {"timestamp", NULL, NULL, get_time},
    {"index", NULL, NULL, get_index},
    {"count", NULL, NULL, get_count},
    {"name", "gpu_name", NULL, get_name},
    {"uuid", "gpu_uuid", NULL, get_uuid},
    UNKNOWN_ALSO("serial", "gpu_serial", NULL),
    {"driver_version", NULL, NULL, get_driver},
    {"compute_cap", NULL, NULL, get_capability},
    {"pci.bus_id", "gpu_bus_id", NULL, get_bus_id},
    {"pci.domain", NULL, NULL, get_domain},
    {"pci.bus", NULL, NULL, get_bus},
    {"pci.device", NULL, NULL, get_device},
    {"memory.total", NULL, "MiB", get_total},
    {"memory.used", NULL, "MiB", get_used},
    {"memory.free", NULL, "MiB", get_free},
    UNKNOWN("memory.reserved", "MiB"),
    {"utilization.gpu", NULL, "%", get_busy},
    UNKNOWN("utilization.memory", "%"),
    UNKNOWN("utilization.encoder", "%"),
    UNKNOWN("utilization.decoder", "%"),
    UNKNOWN("utilization.jpeg", "%"),
    UNKNOWN("utilization.ofa", "%"),
    {"persistence_mode", NULL, NULL, get_persistence},
    {"compute_mode", NULL, NULL, get_compute_mode},
    {"mig.mode.current", NULL, NULL, get_disabled},
    {"mig.mode.pending", NULL, NULL, get_disabled},
    {"display_mode", NULL, NULL, get_disabled},
    {"display_active", NULL, NULL, get_disabled},
    UNKNOWN("display_attached", NULL),
    /* Of the whole GPU, of which a VM knows nothing: */
    UNKNOWN("vbios_version", NULL),
    UNKNOWN("pci.base_class", NULL),
    UNKNOWN("pci.sub_class", NULL),
    UNKNOWN("pci.device_id", NULL),
    UNKNOWN("pci.sub_device_id", NULL),
    UNKNOWN_ALSO("pcie.link.gen.current", "pcie.link.gen.gpucurrent", NULL),
    UNKNOWN("pcie.link.gen.max", NULL),
    UNKNOWN("pcie.link.gen.gpumax", NULL),
    UNKNOWN("pcie.link.gen.hostmax", NULL),
    UNKNOWN("pcie.link.width.current", NULL),
    UNKNOWN("pcie.link.width.max", NULL),
    UNKNOWN("addressing_mode", NULL),
    UNKNOWN("accounting.mode", NULL),
    UNKNOWN("accounting.buffer_size", NULL),
    UNKNOWN("driver_model.current", NULL),
    UNKNOWN("driver_model.pending", NULL),
    UNKNOWN_ALSO("inforom.img", "inforom.image", NULL),
    UNKNOWN("inforom.oem", NULL),
    UNKNOWN("inforom.ecc", NULL),
    UNKNOWN_ALSO("inforom.pwr", "inforom.power", NULL),
    UNKNOWN("inforom.checksum_validation", NULL),
    UNKNOWN_ALSO("gom.current", "gpu_operation_mode.current", NULL),
    UNKNOWN_ALSO("gom.pending", "gpu_operation_mode.pending", NULL),
    UNKNOWN("gsp.mode.current", NULL),
    UNKNOWN("gsp.mode.default", NULL),
    UNKNOWN("c2c.mode", NULL),
    UNKNOWN("pstate", NULL),
    UNKNOWN("fan.speed", "%"),
    UNKNOWN("temperature.gpu", NULL),
    UNKNOWN("temperature.gpu.tlimit", NULL),
    UNKNOWN("temperature.memory", NULL),
    UNKNOWN("power.management", NULL),
    UNKNOWN("power.draw", "W"),
    UNKNOWN("power.draw.average", "W"),
    UNKNOWN("power.draw.instant", "W"),
    UNKNOWN("power.limit", "W"),
    UNKNOWN("enforced.power.limit", "W"),
    UNKNOWN("power.default_limit", "W"),
    UNKNOWN("power.min_limit", "W"),
    UNKNOWN("power.max_limit", "W"),
    UNKNOWN_ALSO("clocks.current.graphics", "clocks.gr", "MHz"),
    UNKNOWN_ALSO("clocks.current.sm", "clocks.sm", "MHz"),
    UNKNOWN_ALSO("clocks.current.memory", "clocks.mem", "MHz"),
    UNKNOWN_ALSO("clocks.current.video", "clocks.video", "MHz"),
    UNKNOWN_ALSO("clocks.applications.graphics", "clocks.applications.gr", "MHz"),
    UNKNOWN_ALSO("clocks.applications.memory", "clocks.applications.mem", "MHz"),
    UNKNOWN_ALSO("clocks.default_applications.graphics", "clocks.default_applications.gr", "MHz"),
    UNKNOWN_ALSO("clocks.default_applications.memory", "clocks.default_applications.mem", "MHz"),
    UNKNOWN_ALSO("clocks.max.graphics", "clocks.max.gr", "MHz"),
    UNKNOWN("clocks.max.sm", "MHz"),
    UNKNOWN_ALSO("clocks.max.memory", "clocks.max.mem", "MHz"),
    REASONS("clocks_event_reasons"),
    REASONS("clocks_throttle_reasons"),
    UNKNOWN("encoder.stats.sessionCount", NULL),
    UNKNOWN("encoder.stats.averageFps", NULL),
    UNKNOWN("encoder.stats.averageLatency", NULL),
    UNKNOWN("ecc.mode.current", NULL),
    UNKNOWN("ecc.mode.pending", NULL),
    ECC_ERRORS("corrected.volatile"),
    ECC_ERRORS("corrected.aggregate"),
    ECC_ERRORS("uncorrected.volatile"),
    ECC_ERRORS("uncorrected.aggregate"),
    UNKNOWN_ALSO("retired_pages.single_bit_ecc.count", "retired_pages.sbe", NULL),
    UNKNOWN_ALSO("retired_pages.double_bit.count", "retired_pages.dbe", NULL),
    UNKNOWN("retired_pages.pending", NULL),
    UNKNOWN("remapped_rows.correctable", NULL),
    UNKNOWN("remapped_rows.uncorrectable", NULL),
    UNKNOWN("remapped_rows.pending", NULL),
    UNKNOWN("remapped_rows.failure", NULL),
};

static const struct flyt_smi_field program_fields[] = {
    {"timestamp", NULL, NULL, get_time},         {"pid", NULL, NULL, get_pid},
    {"process_name", "name", NULL, get_program}, {"used_gpu_memory", "used_memory", "MiB", get_program_memory},
    {"gpu_uuid", NULL, NULL, get_uuid},          {"gpu_name", NULL, NULL, get_name},
    {"gpu_bus_id", NULL, NULL, get_bus_id},      {"gpu_serial", NULL, NULL, NULL},
};

static const struct {
    const struct flyt_smi_field *fields;
    size_t count;
} tables[] = {
    [FLYT_SMI_GPUS] = {gpu_fields, sizeof gpu_fields / sizeof gpu_fields[0]},
    [FLYT_SMI_PROGRAMS] = {program_fields, sizeof program_fields / sizeof program_fields[0]},
};

static const struct flyt_smi_field *find(enum flyt_smi_subject subject, const char *name)
{
    for (size_t i = 0; i < tables[subject].count; i++) {
        const struct flyt_smi_field *field = &tables[subject].fields[i];
        if (!strcmp(field->name, name) || (field->alias && !strcmp(field->alias, name)))
            return field;
    }
    return NULL;
}

const char *flyt_smi_parse(char *names, struct flyt_smi_query *query)
{
    char *rest = names, *name;
    while ((name = strsep(&rest, ","))) {
        name += strspn(name, " ");
        name[strcspn(name, " ")] = 0;
        const struct flyt_smi_field *field = find(query->subject, name);
        if (!field || query->field_count == FLYT_SMI_FIELDS_MAX)
            return name;
        query->fields[query->field_count++] = field;
    }
    return NULL;
}

void flyt_smi_print_names(enum flyt_smi_subject subject)
{
    for (size_t i = 0; i < tables[subject].count; i++) {
        const struct flyt_smi_field *field = &tables[subject].fields[i];
        printf("%s%s%s%s\n", field->name, field->alias ? " or " : "", field->alias ? field->alias : "",
               field->get ? "" : "  (not known in a VM: [N/A])");
    }
}

/* ---- answers ---- */

/* Names come from others: what a terminal would take for a command is not printed. */
static void tell(const struct flyt_smi_field *field, const struct subject *of, bool has_units, char *ret_text)
{
    if (!field || !field->get || !field->get(of, ret_text)) {
        put(ret_text, "[N/A]");
        return;
    }
    for (char *at = ret_text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    if (field->unit && has_units) {
        size_t used = strlen(ret_text);
        snprintf(ret_text + used, FLYT_SMI_TEXT_BYTES - used, " %s", field->unit);
    }
}

void flyt_smi_tell(flyt_nvml_device device, const char *name, bool has_units, char *ret_text)
{
    tell(find(FLYT_SMI_GPUS, name), &(struct subject){.device = device}, has_units, ret_text);
}

void flyt_smi_tell_program(flyt_nvml_device device, const struct flyt_nvml_process *program, const char *name,
                           bool has_units, char *ret_text)
{
    tell(find(FLYT_SMI_PROGRAMS, name), &(struct subject){device, program}, has_units, ret_text);
}

void flyt_smi_print_header(const struct flyt_smi_query *query)
{
    for (unsigned i = 0; i < query->field_count; i++) {
        const char *unit = query->fields[i]->unit;
        printf("%s%s%s%s%s", i ? ", " : "", query->fields[i]->name, unit ? " [" : "", unit ? unit : "",
               unit ? "]" : "");
    }
    printf("\n");
}

static void print_line(const struct flyt_smi_query *query, const struct subject *of)
{
    char text[FLYT_SMI_TEXT_BYTES];
    for (unsigned i = 0; i < query->field_count; i++) {
        tell(query->fields[i], of, query->has_units, text);
        printf("%s%s", i ? ", " : "", text);
    }
    printf("\n");
}

unsigned flyt_smi_programs(flyt_nvml_device device, struct flyt_nvml_process *ret_programs)
{
    unsigned count = FLYT_SMI_PROGRAMS_MAX;
    return nvmlDeviceGetComputeRunningProcesses_v3(device, &count, ret_programs) ? 0 : count;
}

void flyt_smi_print_device(const struct flyt_smi_query *query, flyt_nvml_device device)
{
    static struct flyt_nvml_process programs[FLYT_SMI_PROGRAMS_MAX];
    if (query->subject == FLYT_SMI_GPUS) {
        print_line(query, &(struct subject){.device = device});
        return;
    }
    unsigned count = flyt_smi_programs(device, programs);
    for (unsigned i = 0; i < count; i++)
        print_line(query, &(struct subject){device, &programs[i]});
}
