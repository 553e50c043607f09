/*
 * What a VM's device is called inside the VM: a UUID and a PCI address that belong to the VM and to the device's
 * number, not to the GPU that serves it at the moment. So both stay as they are when the VM moves to another GPU, and
 * whoever is asked in the VM (CUDA, NVML) says the same without asking anybody. Pure; any thread.
 */
#ifndef FLYT_BASE_DEVICE_IDENTITY_H
#define FLYT_BASE_DEVICE_IDENTITY_H

enum {
    FLYT_DEVICE_UUID_BYTES = 16,
    FLYT_DEVICE_UUID_TEXT_BYTES = 48, /* "GPU-8-4-4-4-12 digits" */
    FLYT_DEVICE_PCI_TEXT_BYTES = 16,
    FLYT_DEVICE_PCI_DOMAIN = 0x0f17, /* no machine has this one: the VM's own devices are elsewhere */
};

struct flyt_device_identity {
    unsigned char uuid[FLYT_DEVICE_UUID_BYTES];
    char uuid_text[FLYT_DEVICE_UUID_TEXT_BYTES];
    unsigned pci_domain, pci_bus, pci_device;
    char pci_bus_id[FLYT_DEVICE_PCI_TEXT_BYTES]; /* as cudaDeviceGetPCIBusId prints it: "0F17:01:00.0" */
};

/* vm_ip: as the cluster knows the VM; device: as its programs number it, below 255. The UUID is one of version 8
 * (RFC 9562): SHA-256 of both. */
void flyt_device_identify(const char *vm_ip, unsigned device, struct flyt_device_identity *ret_identity);

#endif
