#include "cpu/nvml/flyt_smi_report.h"

#include <string.h>

#include "cpu/nvml/flyt_smi_query.h"

/* A line of the report: a section's name where it has no field, else an answer to a query. */
struct row {
    unsigned char depth;
    const char *label, *field;
};

static const struct row rows[] = {
    {1, "Product Name", "name"},
    {1, "Display Mode", "display_mode"},
    {1, "Display Active", "display_active"},
    {1, "Persistence Mode", "persistence_mode"},
    {1, "MIG Mode", NULL},
    {2, "Current", "mig.mode.current"},
    {2, "Pending", "mig.mode.pending"},
    {1, "Serial Number", "serial"},
    {1, "GPU UUID", "uuid"},
    {1, "Minor Number", "index"},
    {1, "VBIOS Version", "vbios_version"},
    {1, "PCI", NULL},
    {2, "Bus", "pci.bus"},
    {2, "Device", "pci.device"},
    {2, "Domain", "pci.domain"},
    {2, "Device Id", "pci.device_id"},
    {2, "Bus Id", "pci.bus_id"},
    {2, "Sub System Id", "pci.sub_device_id"},
    {1, "Fan Speed", "fan.speed"},
    {1, "Performance State", "pstate"},
    {1, "FB Memory Usage", NULL},
    {2, "Total", "memory.total"},
    {2, "Reserved", "memory.reserved"},
    {2, "Used", "memory.used"},
    {2, "Free", "memory.free"},
    {1, "Compute Mode", "compute_mode"},
    {1, "Utilization", NULL},
    {2, "GPU", "utilization.gpu"},
    {2, "Memory", "utilization.memory"},
    {2, "Encoder", "utilization.encoder"},
    {2, "Decoder", "utilization.decoder"},
    {2, "JPEG", "utilization.jpeg"},
    {2, "OFA", "utilization.ofa"},
    {1, "ECC Mode", NULL},
    {2, "Current", "ecc.mode.current"},
    {2, "Pending", "ecc.mode.pending"},
    {1, "Temperature", NULL},
    {2, "GPU Current Temp", "temperature.gpu"},
    {2, "Memory Current Temp", "temperature.memory"},
    {1, "GPU Power Readings", NULL},
    {2, "Average Power Draw", "power.draw.average"},
    {2, "Instantaneous Power Draw", "power.draw.instant"},
    {2, "Current Power Limit", "enforced.power.limit"},
    {2, "Default Power Limit", "power.default_limit"},
    {2, "Min Power Limit", "power.min_limit"},
    {2, "Max Power Limit", "power.max_limit"},
    {1, "Clocks", NULL},
    {2, "Graphics", "clocks.current.graphics"},
    {2, "SM", "clocks.current.sm"},
    {2, "Memory", "clocks.current.memory"},
    {2, "Video", "clocks.current.video"},
    {1, "Max Clocks", NULL},
    {2, "Graphics", "clocks.max.graphics"},
    {2, "SM", "clocks.max.sm"},
    {2, "Memory", "clocks.max.memory"},
};

/* Here what is not known has no brackets. */
static const char *without_brackets(const char *text)
{
    return strcmp(text, "[N/A]") ? text : "N/A";
}

static void print_row(unsigned depth, const char *label, const char *value)
{
    enum { VALUES_BEGIN = 42 };
    printf("%*s%-*s: %s\n", (int)depth * 4, "", VALUES_BEGIN - (int)depth * 4, label, without_brackets(value));
}

static void print_section(unsigned depth, const char *label)
{
    printf("%*s%s\n", (int)depth * 4, "", label);
}

static void print_programs(flyt_nvml_device device)
{
    static struct flyt_nvml_process programs[FLYT_SMI_PROGRAMS_MAX];
    static const struct row program_rows[] = {
        {2, "Process ID", "pid"}, {3, "Name", "process_name"}, {3, "Used GPU Memory", "used_gpu_memory"}};
    char text[FLYT_SMI_TEXT_BYTES];
    unsigned count = flyt_smi_programs(device, programs);
    if (!count)
        print_row(1, "Processes", "None");
    else
        print_section(1, "Processes");
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < sizeof program_rows / sizeof program_rows[0]; j++) {
            flyt_smi_tell_program(device, &programs[i], program_rows[j].field, true, text);
            print_row(program_rows[j].depth, program_rows[j].label, text);
        }
}

static void print_device(flyt_nvml_device device)
{
    char text[FLYT_SMI_TEXT_BYTES];
    flyt_smi_tell(device, "pci.bus_id", false, text);
    printf("GPU %s\n", without_brackets(text));
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].field) {
            print_section(rows[i].depth, rows[i].label);
            continue;
        }
        flyt_smi_tell(device, rows[i].field, true, text);
        print_row(rows[i].depth, rows[i].label, text);
    }
    print_programs(device);
    printf("\n");
}

void flyt_smi_report(const flyt_nvml_device *devices, unsigned count)
{
    char text[FLYT_SMI_TEXT_BYTES];
    int cuda = 0;
    printf("\n==============FLYT-SMI LOG==============\n\n");
    flyt_smi_tell(devices[0], "timestamp", false, text);
    print_row(0, "Timestamp", text);
    flyt_smi_tell(devices[0], "driver_version", false, text);
    print_row(0, "Driver Version", text);
    nvmlSystemGetCudaDriverVersion_v2(&cuda);
    snprintf(text, sizeof text, "%d.%d", cuda / 1000, cuda % 1000 / 10);
    print_row(0, "CUDA Version", text);
    printf("\n");
    snprintf(text, sizeof text, "%u", count);
    print_row(0, "Attached GPUs", text);
    for (unsigned i = 0; i < count; i++)
        print_device(devices[i]);
}
