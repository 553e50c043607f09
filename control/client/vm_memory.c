#include "control/client/vm_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"

#define RESOURCE "resource2"

enum { VENDOR = 0x1af4, DEVICE = 0x1110 };

/* The number in a file of sysfs; 0: there is none. */
static unsigned long read_number(int folder_fd, const char *name)
{
    char text[32];
    flyt_auto_close int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (bytes <= 0)
        return 0;
    text[bytes] = 0;
    return strtoul(text, NULL, 0);
}

/* The firmware has given it its addresses; that it answers there a device without a driver is told here. */
static int enable(int folder_fd)
{
    flyt_auto_close int fd = -1;

    if (read_number(folder_fd, "enable"))
        return 0;
    fd = openat(folder_fd, "enable", O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, "1", 1) != 1 ? -errno : 0;
}

/* ---- what a copy takes ---- */

enum { COPIES = 16, TRIES = 8 };

static uint64_t copy_ns(const void *page)
{
    unsigned char copy[FLYT_VM_MEMORY_HEAD_BYTES];
    uint64_t least_ns = UINT64_MAX;

    for (unsigned try = 0; try < TRIES; try++) {
        const uint64_t begin_ns = flyt_clock_ns();
        for (unsigned i = 0; i < COPIES; i++) {
            memcpy(copy, page, sizeof copy);
            __asm__ volatile("" : : "r"(copy) : "memory"); /* all of them are made */
        }
        const uint64_t took_ns = flyt_clock_ns() - begin_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    return least_ns ? least_ns : 1;
}

int flyt_client_vm_memory_measure(const struct flyt_client_vm_memory *memory, double *ret_ratio)
{
    unsigned char ordinary[FLYT_VM_MEMORY_HEAD_BYTES] = {1};
    const void *page = mmap(NULL, FLYT_VM_MEMORY_HEAD_BYTES, PROT_READ, MAP_SHARED, memory->fd, 0);

    if (page == MAP_FAILED)
        return -errno;
    *ret_ratio = (double)copy_ns(page) / (double)copy_ns(ordinary);
    munmap((void *)page, FLYT_VM_MEMORY_HEAD_BYTES);
    return 0;
}

/* ---- finding it ---- */

/* A copy of the head: the memory changes as the host likes. */
static int read_head(int fd, struct flyt_vm_memory_head *ret_head)
{
    const void *page = mmap(NULL, FLYT_VM_MEMORY_HEAD_BYTES, PROT_READ, MAP_SHARED, fd, 0);

    if (page == MAP_FAILED)
        return -errno;
    memcpy(ret_head, page, sizeof *ret_head);
    munmap((void *)page, FLYT_VM_MEMORY_HEAD_BYTES);
    return 0;
}

static int check(int fd, const char *vm_ip, struct flyt_error *err, uint64_t *ret_bytes)
{
    struct flyt_vm_memory_head head;
    struct stat info;

    if (fstat(fd, &info))
        return flyt_error_set(err, -errno, "%m");
    if (info.st_size < FLYT_VM_MEMORY_HEAD_BYTES)
        return flyt_error_set(err, -EINVAL, "its memory is less than a page");
    int status = read_head(fd, &head);
    if (status)
        return flyt_error_set(err, status, "its memory cannot be mapped: %s", strerror(-status));
    status = flyt_vm_memory_head_check(&head, (uint64_t)info.st_size, err);
    if (!status && strcmp(head.vm_ip, vm_ip) != 0)
        status = flyt_error_set(err, -EINVAL, "it is the memory of VM %s, and this one is %s", head.vm_ip, vm_ip);
    if (!status)
        *ret_bytes = (uint64_t)info.st_size;
    return status;
}

/* One device of this kind. */
static int look_at(int folder_fd, const char *vm_ip, struct flyt_error *err, struct flyt_client_vm_memory *memory)
{
    int status = enable(folder_fd);

    if (status)
        return flyt_error_set(err, status, "it cannot be enabled: %s", strerror(-status));
    int fd = openat(folder_fd, RESOURCE, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return flyt_error_set(err, -errno, "its memory (" RESOURCE ") cannot be opened: %m");
    status = check(fd, vm_ip, err, &memory->bytes);
    memory->fd = status ? flyt_close(fd) : fd;
    return status;
}

/* A descriptor of its folder; -1: it is none, or of another kind. */
static int open_device(int devices_fd, const char *name)
{
    int fd = openat(devices_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 || (read_number(fd, "vendor") == VENDOR && read_number(fd, "device") == DEVICE) ? fd : flyt_close(fd);
}

/* A device that is of another kind is none: -ENODEV. */
static int try_device(int devices_fd, const char *folder, const char *name, const char *vm_ip, struct flyt_error *err,
                      struct flyt_client_vm_memory *memory)
{
    struct flyt_error cause = {0};
    flyt_auto_close int fd = open_device(devices_fd, name);

    if (fd < 0)
        return -ENODEV;
    int status = look_at(fd, vm_ip, &cause, memory);
    if (status)
        return flyt_error_set(err, status, "PCI device %.32s: %.300s", name, cause.text);
    snprintf(memory->device, sizeof memory->device, "%.120s/%.120s", folder, name);
    return 0;
}

int flyt_client_vm_memory_open(const struct flyt_client_vm_memory *memory)
{
    char path[FLYT_CLIENT_PCI_PATH_BYTES + sizeof RESOURCE + 1];

    snprintf(path, sizeof path, "%s/" RESOURCE, memory->device);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* ---- letting the client manager in ---- */

static int admit(int devices_fd, const char *name, gid_t gid, struct flyt_error *err)
{
    flyt_auto_close int fd = open_device(devices_fd, name);
    if (fd < 0)
        return 0;
    int status = enable(fd);
    if (!status && (fchownat(fd, RESOURCE, (uid_t)-1, gid, 0) || fchmodat(fd, RESOURCE, 0660, 0)))
        status = -errno;
    return status ? flyt_error_set(err, status, "PCI device %.32s: its memory cannot be given to group %u: %s", name,
                                   gid, strerror(-status))
                  : 0;
}

int flyt_client_vm_memory_admit(const char *folder, gid_t gid, struct flyt_error *err)
{
    DIR *devices = opendir(folder);
    int status = 0;

    for (const struct dirent *entry; devices && !status && (entry = readdir(devices));)
        if (*entry->d_name != '.')
            status = admit(dirfd(devices), entry->d_name, gid, err);
    if (devices)
        closedir(devices);
    return status;
}

int flyt_client_vm_memory_find(const char *folder, const char *vm_ip, struct flyt_error *err,
                               struct flyt_client_vm_memory *ret_memory)
{
    int found = flyt_error_set(err, -ENODEV, "this VM has no PCI device of memory that it shares with its host");
    DIR *devices = opendir(folder);

    for (const struct dirent *entry; devices && found && (entry = readdir(devices));) {
        struct flyt_client_vm_memory memory = {.fd = -1};
        int status =
            *entry->d_name == '.' ? -ENODEV : try_device(dirfd(devices), folder, entry->d_name, vm_ip, err, &memory);
        if (status == -ENODEV)
            continue;
        found = status;
        if (!status)
            *ret_memory = memory;
    }
    if (devices)
        closedir(devices);
    return found;
}
