/* Our structures and constants against the toolkit's nvml.h, where it has one: checked when this is compiled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/nvml/types.h"

#if __has_include(<nvml.h>)
#include <nvml.h>

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_PLACE(ours, field, theirs, their_field)                                                                   \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #theirs "." #their_field)
#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs)

SAME_SIZE(struct flyt_nvml_pci, nvmlPciInfo_t);
SAME_PLACE(struct flyt_nvml_pci, domain, nvmlPciInfo_t, domain);
SAME_PLACE(struct flyt_nvml_pci, device_id, nvmlPciInfo_t, pciDeviceId);
SAME_PLACE(struct flyt_nvml_pci, subsystem_id, nvmlPciInfo_t, pciSubSystemId);
SAME_PLACE(struct flyt_nvml_pci, bus_id, nvmlPciInfo_t, busId);
SAME_SIZE(struct flyt_nvml_pci_ext, nvmlPciInfoExt_v1_t);
SAME_PLACE(struct flyt_nvml_pci_ext, sub_class, nvmlPciInfoExt_v1_t, subClass);
SAME_PLACE(struct flyt_nvml_pci_ext, bus_id, nvmlPciInfoExt_v1_t, busId);
SAME(FLYT_NVML_VERSION(struct flyt_nvml_pci_ext, 1), nvmlPciInfoExt_v1);
SAME_SIZE(struct flyt_nvml_memory, nvmlMemory_t);
SAME_PLACE(struct flyt_nvml_memory, used, nvmlMemory_t, used);
SAME_SIZE(struct flyt_nvml_memory_v2, nvmlMemory_v2_t);
SAME_PLACE(struct flyt_nvml_memory_v2, free, nvmlMemory_v2_t, free);
SAME_PLACE(struct flyt_nvml_memory_v2, used, nvmlMemory_v2_t, used);
SAME(FLYT_NVML_VERSION(struct flyt_nvml_memory_v2, 2), nvmlMemory_v2);
SAME_SIZE(struct flyt_nvml_utilization, nvmlUtilization_t);
SAME_PLACE(struct flyt_nvml_utilization, memory, nvmlUtilization_t, memory);
SAME_SIZE(struct flyt_nvml_process_v1, nvmlProcessInfo_v1_t);
SAME_SIZE(struct flyt_nvml_process, nvmlProcessInfo_v2_t);
SAME_PLACE(struct flyt_nvml_process, compute_instance, nvmlProcessInfo_v2_t, computeInstanceId);
SAME_SIZE(struct flyt_nvml_uuid, nvmlUUID_v1_t);
SAME_PLACE(struct flyt_nvml_uuid, value, nvmlUUID_v1_t, value);
SAME(FLYT_NVML_VERSION(struct flyt_nvml_uuid, 1), nvmlUUID_v1);
SAME(FLYT_NVML_UUID_TEXT, NVML_UUID_TYPE_ASCII);
SAME(FLYT_NVML_UUID_BINARY, NVML_UUID_TYPE_BINARY);
SAME(FLYT_NVML_FLAG_NO_GPUS, NVML_INIT_FLAG_NO_GPUS);
SAME(FLYT_NVML_NOT_AVAILABLE, NVML_VALUE_NOT_AVAILABLE);
SAME(FLYT_NVML_SUCCESS, NVML_SUCCESS);
SAME(FLYT_NVML_UNINITIALIZED, NVML_ERROR_UNINITIALIZED);
SAME(FLYT_NVML_INVALID_ARGUMENT, NVML_ERROR_INVALID_ARGUMENT);
SAME(FLYT_NVML_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
SAME(FLYT_NVML_NO_PERMISSION, NVML_ERROR_NO_PERMISSION);
SAME(FLYT_NVML_NOT_FOUND, NVML_ERROR_NOT_FOUND);
SAME(FLYT_NVML_INSUFFICIENT_SIZE, NVML_ERROR_INSUFFICIENT_SIZE);
SAME(FLYT_NVML_DRIVER_NOT_LOADED, NVML_ERROR_DRIVER_NOT_LOADED);
SAME(FLYT_NVML_VERSION_MISMATCH, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
SAME(FLYT_NVML_NOT_READY, NVML_ERROR_NOT_READY);
SAME(FLYT_NVML_UNKNOWN, NVML_ERROR_UNKNOWN);
SAME(FLYT_NVML_BRAND_GEFORCE, NVML_BRAND_GEFORCE);
SAME(FLYT_NVML_BRAND_RTX, NVML_BRAND_NVIDIA_RTX);
SAME(FLYT_NVML_BRAND_NVIDIA, NVML_BRAND_NVIDIA);
#endif

/* What holds without the header: the sizes that programs were built with. */
static void test_sizes(void **state)
{
    assert_int_equal(sizeof(struct flyt_nvml_pci), 68);
    assert_int_equal(sizeof(struct flyt_nvml_pci_ext), 64);
    assert_int_equal(sizeof(struct flyt_nvml_memory), 24);
    assert_int_equal(FLYT_NVML_VERSION(struct flyt_nvml_memory_v2, 2), 0x02000028);
    assert_int_equal(sizeof(struct flyt_nvml_process_v1), 16);
    assert_int_equal(sizeof(struct flyt_nvml_process), 24);
    assert_int_equal(FLYT_NVML_VERSION(struct flyt_nvml_uuid, 1), 0x01000034);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
