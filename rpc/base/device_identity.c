#include "rpc/base/device_identity.h"

#include <stdio.h>
#include <string.h>

#include "rpc/base/sha256.h"

void flyt_device_identify(const char *vm_ip, unsigned device, struct flyt_device_identity *ret_identity)
{
    static const char label[] = "flyt device";
    struct flyt_device_identity *i = ret_identity;
    unsigned char digest[FLYT_SHA256_BYTES], *u = i->uuid;
    const unsigned char number = (unsigned char)device;
    struct flyt_sha256 hash;

    flyt_sha256_init(&hash);
    flyt_sha256_add(&hash, label, sizeof label);
    flyt_sha256_add(&hash, vm_ip, strlen(vm_ip) + 1);
    flyt_sha256_add(&hash, &number, 1);
    flyt_sha256_end(&hash, digest);
    memcpy(u, digest, sizeof i->uuid);
    u[6] = (unsigned char)((u[6] & 0x0f) | 0x80); /* version */
    u[8] = (unsigned char)((u[8] & 0x3f) | 0x80); /* variant */
    snprintf(i->uuid_text, sizeof i->uuid_text,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4],
             u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    i->pci_domain = FLYT_DEVICE_PCI_DOMAIN;
    i->pci_bus = number + 1u;
    i->pci_device = 0;
    snprintf(i->pci_bus_id, sizeof i->pci_bus_id, "%04X:%02X:%02X.0", i->pci_domain & 0xffffu, i->pci_bus & 0xffu,
             i->pci_device & 0xffu);
}
