/* Which devices there are, and what they are called. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cpu/nvml/library.h"

/* ---- how many, and which ---- */

FLYT_NVML_FUNCTION(nvmlDeviceGetCount_v2, unsigned *ret_count)
{
    const flyt_local_devices_res *known;
    int code = flyt_nvml_take(false, &known);
    if (code)
        return code;
    unsigned count = known->devices.devices_len;
    flyt_nvml_give_back();
    if (!ret_count)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_count = count;
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetCount, unsigned *ret_count)
{
    return nvmlDeviceGetCount_v2(ret_count);
}

FLYT_NVML_FUNCTION(nvmlDeviceGetHandleByIndex_v2, unsigned index, flyt_nvml_device *ret_device)
{
    unsigned count;
    int code = nvmlDeviceGetCount_v2(&count);
    if (code)
        return code;
    if (!ret_device || index >= count)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_device = flyt_nvml_handle(index);
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetHandleByIndex, unsigned index, flyt_nvml_device *ret_device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, ret_device);
}

typedef bool (*is_wanted_fn)(const flyt_local_device *device, const void *wanted);

static int find(is_wanted_fn is_wanted, const void *wanted, flyt_nvml_device *ret_device)
{
    const flyt_local_devices_res *known;
    int code = flyt_nvml_take(false, &known);
    if (code)
        return code;
    code = wanted && ret_device ? FLYT_NVML_NOT_FOUND : FLYT_NVML_INVALID_ARGUMENT;
    for (u_int i = 0; code == FLYT_NVML_NOT_FOUND && i < known->devices.devices_len; i++)
        if (is_wanted(&known->devices.devices_val[i], wanted)) {
            *ret_device = flyt_nvml_handle(i);
            code = FLYT_NVML_SUCCESS;
        }
    flyt_nvml_give_back();
    return code;
}

static bool has_uuid(const flyt_local_device *device, const void *wanted)
{
    return strcasecmp(device->uuid, wanted) == 0;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetHandleByUUID, const char *uuid, flyt_nvml_device *ret_device)
{
    return find(has_uuid, uuid, ret_device);
}

FLYT_NVML_FUNCTION(nvmlDeviceGetHandleByUUIDV, const struct flyt_nvml_uuid *uuid, flyt_nvml_device *ret_device)
{
    char text[FLYT_NVML_UUID_TEXT_BYTES] = "";
    if (!flyt_nvml_is_begun())
        return FLYT_NVML_UNINITIALIZED;
    if (!uuid)
        return FLYT_NVML_INVALID_ARGUMENT;
    if (uuid->version != FLYT_NVML_VERSION(*uuid, 1))
        return FLYT_NVML_VERSION_MISMATCH;
    const unsigned char *b = uuid->value.bytes;
    if (uuid->type == FLYT_NVML_UUID_TEXT)
        snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1, uuid->value.text);
    else if (uuid->type == FLYT_NVML_UUID_BINARY)
        snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return *text ? find(has_uuid, text, ret_device) : FLYT_NVML_INVALID_ARGUMENT;
}

struct address {
    unsigned domain, bus, device;
};

/* "domain:bus:device[.0]", in hexadecimal; without a domain it is 0. */
static bool parse_address(const char *text, struct address *ret_address)
{
    struct address *a = ret_address;
    int end = 0;
    if (sscanf(text, "%x:%x:%x%n", &a->domain, &a->bus, &a->device, &end) < 3) {
        a->domain = 0;
        if (sscanf(text, "%x:%x%n", &a->bus, &a->device, &end) < 2)
            return false;
    }
    return !text[end] || strcmp(text + end, ".0") == 0;
}

static bool has_address(const flyt_local_device *device, const void *wanted)
{
    struct address has;
    return parse_address(device->pci_bus_id, &has) && memcmp(&has, wanted, sizeof has) == 0;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetHandleByPciBusId_v2, const char *bus_id, flyt_nvml_device *ret_device)
{
    struct address wanted;
    if (!flyt_nvml_is_begun())
        return FLYT_NVML_UNINITIALIZED;
    bool is_one = bus_id && parse_address(bus_id, &wanted);
    return find(has_address, is_one ? &wanted : NULL, ret_device);
}

FLYT_NVML_FUNCTION(nvmlDeviceGetHandleByPciBusId, const char *bus_id, flyt_nvml_device *ret_device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, ret_device);
}

/* ---- names ---- */

FLYT_NVML_FUNCTION(nvmlDeviceGetName, flyt_nvml_device device, char *ret_name, unsigned bytes)
{
    const flyt_local_device *known;
    int code = flyt_nvml_take_device(device, false, NULL, &known);
    if (code)
        return code;
    code = flyt_nvml_copy_text(known->use.type, ret_name, bytes);
    flyt_nvml_give_back();
    return code;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetUUID, flyt_nvml_device device, char *ret_uuid, unsigned bytes)
{
    const flyt_local_device *known;
    int code = flyt_nvml_take_device(device, false, NULL, &known);
    if (code)
        return code;
    code = flyt_nvml_copy_text(known->uuid, ret_uuid, bytes);
    flyt_nvml_give_back();
    return code;
}

static int number_of(flyt_nvml_device device, unsigned *ret_number)
{
    const flyt_local_device *known;
    int code = flyt_nvml_take_device(device, false, NULL, &known);
    if (code)
        return code;
    flyt_nvml_give_back();
    if (!ret_number)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_number = (unsigned)flyt_nvml_index(device);
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetIndex, flyt_nvml_device device, unsigned *ret_index)
{
    return number_of(device, ret_index);
}

/* There is no /dev/nvidiaN in the VM: it is the N by which the VM's programs number the device. */
FLYT_NVML_FUNCTION(nvmlDeviceGetMinorNumber, flyt_nvml_device device, unsigned *ret_number)
{
    return number_of(device, ret_number);
}

/* ---- where it is ---- */

static int address_of(flyt_nvml_device device, struct address *ret_address)
{
    const flyt_local_device *known;
    int code = flyt_nvml_take_device(device, false, NULL, &known);
    if (code)
        return code;
    code = parse_address(known->pci_bus_id, ret_address) ? FLYT_NVML_SUCCESS : FLYT_NVML_UNKNOWN;
    flyt_nvml_give_back();
    return code;
}

/* What the board is (pciDeviceId) is not known: 0. */
static int fill_pci(flyt_nvml_device device, struct flyt_nvml_pci *ret_pci)
{
    struct address a;
    int code = address_of(device, &a);
    if (code)
        return code;
    struct flyt_nvml_pci pci = {.domain = a.domain, .bus = a.bus, .device = a.device};
    snprintf(pci.bus_id, sizeof pci.bus_id, "%08X:%02X:%02X.0", a.domain, a.bus, a.device);
    snprintf(pci.bus_id_legacy, sizeof pci.bus_id_legacy, "%04X:%02X:%02X.0", a.domain & 0xffff, a.bus & 0xff,
             a.device & 0xff);
    *ret_pci = pci;
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetPciInfo_v3, flyt_nvml_device device, struct flyt_nvml_pci *ret_pci)
{
    struct flyt_nvml_pci pci;
    int code = fill_pci(device, &pci);
    if (code)
        return code;
    if (!ret_pci)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_pci = pci;
    return FLYT_NVML_SUCCESS;
}

/* The structure ended before bus_id when these were new. */
static int give_old_pci(flyt_nvml_device device, void *ret_pci)
{
    struct flyt_nvml_pci pci;
    int code = fill_pci(device, &pci);
    if (code)
        return code;
    if (!ret_pci)
        return FLYT_NVML_INVALID_ARGUMENT;
    memcpy(ret_pci, &pci, offsetof(struct flyt_nvml_pci, bus_id));
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetPciInfo_v2, flyt_nvml_device device, void *ret_pci)
{
    return give_old_pci(device, ret_pci);
}

FLYT_NVML_FUNCTION(nvmlDeviceGetPciInfo, flyt_nvml_device device, void *ret_pci)
{
    return give_old_pci(device, ret_pci);
}

FLYT_NVML_FUNCTION(nvmlDeviceGetPciInfoExt, flyt_nvml_device device, struct flyt_nvml_pci_ext *ret_pci)
{
    struct flyt_nvml_pci pci;
    int code = fill_pci(device, &pci);
    if (code)
        return code;
    if (!ret_pci)
        return FLYT_NVML_INVALID_ARGUMENT;
    if (ret_pci->version != FLYT_NVML_VERSION(*ret_pci, 1))
        return FLYT_NVML_VERSION_MISMATCH;
    *ret_pci = (struct flyt_nvml_pci_ext){
        .version = ret_pci->version, .domain = pci.domain, .bus = pci.bus, .device = pci.device, .base_class = 3};
    memcpy(ret_pci->bus_id, pci.bus_id, sizeof ret_pci->bus_id);
    ret_pci->sub_class = 2; /* with base_class: a 3D controller, as every device for computing alone is */
    return FLYT_NVML_SUCCESS;
}

/* ---- two of them: only of one with itself something is known ---- */

static int check_two(flyt_nvml_device one, flyt_nvml_device other, const void *result)
{
    unsigned number;
    int code = number_of(one, &number);
    if (!code)
        code = number_of(other, &number);
    return code || result ? code : FLYT_NVML_INVALID_ARGUMENT;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetTopologyCommonAncestor, flyt_nvml_device one, flyt_nvml_device other,
                   unsigned *ret_level)
{
    int code = check_two(one, other, ret_level);
    if (code || one != other)
        return code ? code : FLYT_NVML_NOT_SUPPORTED;
    *ret_level = 0; /* internal */
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceOnSameBoard, flyt_nvml_device one, flyt_nvml_device other, int *ret_is_same)
{
    int code = check_two(one, other, ret_is_same);
    if (code || one != other)
        return code ? code : FLYT_NVML_NOT_SUPPORTED;
    *ret_is_same = 1;
    return FLYT_NVML_SUCCESS;
}
