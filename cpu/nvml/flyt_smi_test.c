/* flyt-smi's fields over a library of the test's own: names, units, what is not known, and names that would command a
 * terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/nvml/flyt_smi_query.h"

static const char *name = "GPU X";
static int memory_code, program_code;
static unsigned long long program_bytes = 5 << 20;

#define GIVES(function, ...)                                                                                           \
    int function(__VA_ARGS__);                                                                                         \
    int function(__VA_ARGS__)

GIVES(nvmlDeviceGetIndex, flyt_nvml_device device, unsigned *ret_index)
{
    *ret_index = 3;
    return 0;
}

GIVES(nvmlDeviceGetCount_v2, unsigned *ret_count)
{
    *ret_count = 4;
    return 0;
}

static int give(const char *text, char *ret_text, unsigned bytes)
{
    if (strlen(text) >= bytes)
        return FLYT_NVML_INSUFFICIENT_SIZE;
    strcpy(ret_text, text);
    return *text ? 0 : FLYT_NVML_NOT_SUPPORTED;
}

GIVES(nvmlDeviceGetName, flyt_nvml_device device, char *ret_name, unsigned bytes)
{
    return give(name, ret_name, bytes);
}

GIVES(nvmlDeviceGetUUID, flyt_nvml_device device, char *ret_uuid, unsigned bytes)
{
    return give("GPU-1", ret_uuid, bytes);
}

GIVES(nvmlSystemGetDriverVersion, char *ret_version, unsigned bytes)
{
    return give("", ret_version, bytes);
}

GIVES(nvmlSystemGetProcessName, unsigned pid, char *ret_name, unsigned bytes)
{
    return program_code ? program_code : give("/bin/\x1b[2Jx\n", ret_name, bytes);
}

GIVES(nvmlDeviceGetCudaComputeCapability, flyt_nvml_device device, int *ret_major, int *ret_minor)
{
    *ret_major = 9;
    *ret_minor = 0;
    return 0;
}

GIVES(nvmlDeviceGetPciInfo_v3, flyt_nvml_device device, struct flyt_nvml_pci *ret_pci)
{
    *ret_pci = (struct flyt_nvml_pci){.domain = 0xf17, .bus = 1, .bus_id = "00000F17:01:00.0"};
    return 0;
}

GIVES(nvmlDeviceGetMemoryInfo, flyt_nvml_device device, struct flyt_nvml_memory *ret_memory)
{
    *ret_memory =
        (struct flyt_nvml_memory){.total = 7ull << 30, .used = (3 << 20) + 5, .free = (7ull << 30) - (3 << 20) - 5};
    return memory_code;
}

GIVES(nvmlDeviceGetUtilizationRates, flyt_nvml_device device, struct flyt_nvml_utilization *ret_rates)
{
    *ret_rates = (struct flyt_nvml_utilization){.gpu = 55};
    return 0;
}

GIVES(nvmlDeviceGetPersistenceMode, flyt_nvml_device device, unsigned *ret_mode)
{
    *ret_mode = 1;
    return 0;
}

GIVES(nvmlDeviceGetComputeRunningProcesses_v3, flyt_nvml_device device, unsigned *count,
      struct flyt_nvml_process *ret_processes)
{
    return FLYT_NVML_NOT_READY;
}

/* ---- tests ---- */

static void expect_told(const char *field, bool has_units, const char *expected)
{
    char text[FLYT_SMI_TEXT_BYTES];
    flyt_smi_tell(NULL, field, has_units, text);
    assert_string_equal(text, expected);
}

static void expect_told_of_program(const char *field, bool has_units, const char *expected)
{
    const struct flyt_nvml_process program = {.pid = 42, .used_bytes = program_bytes};
    char text[FLYT_SMI_TEXT_BYTES];
    flyt_smi_tell_program(NULL, &program, field, has_units, text);
    assert_string_equal(text, expected);
}

static void test_values(void **state)
{
    expect_told("index", true, "3");
    expect_told("count", true, "4");
    expect_told("gpu_name", true, "GPU X");
    expect_told("memory.total", true, "7168 MiB");
    expect_told("memory.used", false, "3");
    expect_told("memory.free", true, "7164 MiB");
    expect_told("utilization.gpu", true, "55 %");
    expect_told("compute_cap", true, "9.0");
    expect_told("pci.domain", true, "0x0F17");
    expect_told("gpu_bus_id", true, "00000F17:01:00.0");
    expect_told("persistence_mode", true, "Enabled");
    expect_told_of_program("pid", true, "42");
    expect_told_of_program("used_memory", true, "5 MiB");
    expect_told_of_program("used_gpu_memory", false, "5");
}

static void test_what_is_not_known(void **state)
{
    expect_told("driver_version", true, "[N/A]");
    expect_told("temperature.gpu", true, "[N/A]");
    expect_told("nonsense", true, "[N/A]");
    memory_code = FLYT_NVML_NOT_READY;
    expect_told("memory.used", true, "[N/A]");
    memory_code = 0;
    program_bytes = FLYT_NVML_NOT_AVAILABLE;
    expect_told_of_program("used_memory", true, "[N/A]");
    program_code = FLYT_NVML_NOT_FOUND;
    expect_told_of_program("process_name", true, "[Not Found]");
    program_code = 0;
    struct flyt_nvml_process programs[1];
    assert_int_equal(flyt_smi_programs(NULL, programs), 0);
}

/* Names that scripts ask nvidia-smi for: a device that has not got one says so, and is asked about the rest. */
static void test_what_only_a_whole_gpu_has(void **state)
{
    static const char *const names[] = {
        "pcie.link.gen.max",
        "pcie.link.width.max",
        "clocks_throttle_reasons.active",
        "clocks_throttle_reasons.hw_slowdown",
        "clocks_event_reasons.active",
        "clocks_event_reasons.sw_thermal_slowdown",
        "power.draw.instant",
        "power.draw.average",
        "power.management",
        "power.default_limit",
        "power.min_limit",
        "power.max_limit",
        "clocks.video",
        "clocks.max.graphics",
        "clocks.max.memory",
        "clocks.applications.graphics",
        "ecc.mode.pending",
        "ecc.errors.corrected.volatile.total",
        "ecc.errors.uncorrected.aggregate.device_memory",
        "pci.device_id",
        "pci.sub_device_id",
        "utilization.jpeg",
        "utilization.ofa",
        "gom.current",
        "inforom.img",
        "retired_pages.pending",
    };
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct flyt_smi_query query = {.subject = FLYT_SMI_GPUS};
        char one[64];
        snprintf(one, sizeof one, "%s", names[i]);
        assert_null(flyt_smi_parse(one, &query));
        assert_int_equal(query.field_count, 1);
        expect_told(names[i], true, "[N/A]");
    }
    struct flyt_smi_query query = {.subject = FLYT_SMI_GPUS};
    char wrong[] = "ecc.errors.corrected.volatile.nonsense";
    assert_string_equal(flyt_smi_parse(wrong, &query), "ecc.errors.corrected.volatile.nonsense");
}

static void test_names_of_others(void **state)
{
    expect_told_of_program("name", true, "/bin/?[2Jx?");
    name = "GPU\r\x07";
    expect_told("name", true, "GPU??");
    name = "GPU X";
}

static void test_reads_fields(void **state)
{
    struct flyt_smi_query query = {.subject = FLYT_SMI_GPUS};
    char good[] = "index, gpu_name,memory.used", wrong[] = "index,used_memory", none[] = "", last[] = "index,";
    assert_null(flyt_smi_parse(good, &query));
    assert_int_equal(query.field_count, 3);
    assert_string_equal(flyt_smi_parse(wrong, &query), "used_memory");
    assert_string_equal(flyt_smi_parse(none, &query), "");
    assert_string_equal(flyt_smi_parse(last, &query), "");
    char many[8 * FLYT_SMI_FIELDS_MAX] = "index";
    for (unsigned i = 0; i < FLYT_SMI_FIELDS_MAX; i++)
        strcat(many, ",index");
    query = (struct flyt_smi_query){.subject = FLYT_SMI_GPUS};
    assert_string_equal(flyt_smi_parse(many, &query), "index");
    assert_int_equal(query.field_count, FLYT_SMI_FIELDS_MAX);
    query = (struct flyt_smi_query){.subject = FLYT_SMI_PROGRAMS};
    char programs[] = "used_memory,gpu_uuid";
    assert_null(flyt_smi_parse(programs, &query));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_what_is_not_known),
        cmocka_unit_test(test_what_only_a_whole_gpu_has),
        cmocka_unit_test(test_names_of_others),
        cmocka_unit_test(test_reads_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
