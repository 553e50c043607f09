#include "control/node/host/vm_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "control/base/name.h"
#include "control/base/vm_memory.h"
#include "rpc/base/descriptors.h"

enum { MODE = 0600 };

static int path_of(const char *folder, const char *vm_ip, struct flyt_error *err, char *ret_path)
{
    if (!flyt_is_address(vm_ip))
        return flyt_error_set(err, -EINVAL, "'%.64s' is no VM's address", vm_ip);
    int length = snprintf(ret_path, FLYT_NODE_VM_MEMORY_PATH_BYTES, "%s/flyt-%s", folder, vm_ip);
    return length < FLYT_NODE_VM_MEMORY_PATH_BYTES ? 0 : flyt_error_set(err, -EINVAL, "the folder's name is too long");
}

/* The bytes of the folder's pages: those of its file system's blocks. */
static int check_folder(const struct flyt_node_vm_memory *memory, struct flyt_error *err, uint64_t *ret_page_bytes)
{
    struct statfs system;

    if (statfs(memory->folder, &system))
        return flyt_error_set(err, -errno, "the folder for VMs' memory, %s: %m", memory->folder);
    if (system.f_type != TMPFS_MAGIC && system.f_type != HUGETLBFS_MAGIC)
        return flyt_error_set(err, -EINVAL, "the folder for VMs' memory, %s, is neither in a tmpfs nor in a hugetlbfs",
                              memory->folder);
    *ret_page_bytes = (uint64_t)system.f_bsize;
    if (memory->bytes < *ret_page_bytes || memory->bytes < 2 * FLYT_VM_MEMORY_HEAD_BYTES ||
        memory->bytes & (memory->bytes - 1))
        return flyt_error_set(err, -EINVAL, "%" PRIu64 " bytes are no power of two of at least %" PRIu64, memory->bytes,
                              *ret_page_bytes);
    return 0;
}

/* Through a page of it, for a hugetlbfs has no write(2); while the file is this process's alone, which nobody can then
 * truncate under it. */
static int write_head(int fd, const struct flyt_node_vm_memory *memory, uint64_t page_bytes, const char *vm_ip)
{
    const struct flyt_vm_memory_head head = flyt_vm_memory_head_of(vm_ip, memory->bytes);
    void *page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (page == MAP_FAILED)
        return -errno;
    memcpy(page, &head, sizeof head);
    return munmap(page, page_bytes) ? -errno : 0;
}

static int fill(int fd, const struct flyt_node_vm_memory *memory, uint64_t page_bytes, const char *vm_ip)
{
    if (fchmod(fd, MODE) || ftruncate(fd, (off_t)memory->bytes)) /* whatever the umask is */
        return -errno;
    /* All pages, where this says that there are none, and not by a signal when they are touched. */
    if (fallocate(fd, 0, 0, (off_t)memory->bytes))
        return -errno;
    int status = write_head(fd, memory, page_bytes, vm_ip);
    if (!status && fchown(fd, memory->uid, memory->gid))
        status = -errno;
    return status;
}

static int check_kind(const struct stat *info, uint64_t bytes, struct flyt_error *err)
{
    if (!S_ISREG(info->st_mode) || (info->st_mode & 07777) != MODE || info->st_nlink != 1)
        return flyt_error_set(err, -EEXIST, "it is no file of mode 0600 with one name");
    if (bytes && (uint64_t)info->st_size != bytes)
        return flyt_error_set(err, -EEXIST, "it has %" PRIu64 " bytes, not %" PRIu64, (uint64_t)info->st_size, bytes);
    return 0;
}

/* Whether the file can be one that was made here. What is in it is not looked at: it is the guest's to write. */
static int check_found(int fd, const struct flyt_node_vm_memory *memory, struct flyt_error *err)
{
    struct stat info;

    if (fstat(fd, &info))
        return flyt_error_set(err, -errno, "%m");
    int status = check_kind(&info, memory->bytes, err);
    if (status)
        return status;
    if (info.st_uid != memory->uid || info.st_gid != memory->gid)
        return flyt_error_set(err, -EEXIST, "it is user %u's, not %u's", info.st_uid, memory->uid);
    return check_kind(&info, memory->bytes, err);
}

/* Opens what is there already. A descriptor, or a negative errno with a sentence. */
static int open_found(const char *path, const struct flyt_node_vm_memory *memory, struct flyt_error *err)
{
    struct flyt_error cause = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return errno == ENOENT ? -ENOENT : flyt_error_set(err, -EEXIST, "%s is there and cannot be opened: %m", path);
    int status = check_found(fd, memory, &cause);
    if (!status)
        return fd;
    flyt_close(fd);
    return flyt_error_set(err, status, "%s is there, and not a VM's memory: %.200s", path, cause.text);
}

/* 0, or a negative errno with a sentence and nothing left behind. */
static int make(const char *path, const struct flyt_node_vm_memory *memory, uint64_t page_bytes, const char *vm_ip,
                struct flyt_error *err)
{
    flyt_auto_close int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, MODE);

    if (fd < 0)
        return flyt_error_set(err, -errno, "%s cannot be made: %m", path);
    int status = fill(fd, memory, page_bytes, vm_ip);
    if (!status)
        return 0;
    unlink(path);
    return flyt_error_set(err, status, "%s cannot be made: %s", path, strerror(-status));
}

int flyt_node_vm_memory_make(const struct flyt_node_vm_memory *memory, const char *vm_ip, struct flyt_error *err,
                             char *ret_path)
{
    char path[FLYT_NODE_VM_MEMORY_PATH_BYTES];
    uint64_t page_bytes = 0;
    int status = path_of(memory->folder, vm_ip, err, path);

    if (!status)
        status = check_folder(memory, err, &page_bytes);
    if (status)
        return status;
    flyt_auto_close int found_fd = open_found(path, memory, err);
    status = found_fd == -ENOENT ? make(path, memory, page_bytes, vm_ip, err) : found_fd < 0 ? found_fd : 0;
    if (!status)
        memcpy(ret_path, path, sizeof path);
    return status;
}

/* Whose it is does not matter: what others write into it is believed as little. */
int flyt_node_vm_memory_open(const struct flyt_node_vm_memory *memory, const char *vm_ip, struct flyt_error *err)
{
    struct flyt_error cause = {0};
    char path[FLYT_NODE_VM_MEMORY_PATH_BYTES];
    struct stat info;

    int status = path_of(memory->folder, vm_ip, err, path);
    if (status)
        return status;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return flyt_error_set(err, -errno, "%s cannot be opened: %m", path);
    status = fstat(fd, &info) ? flyt_error_set(&cause, -errno, "%m") : check_kind(&info, memory->bytes, &cause);
    if (!status)
        return fd;
    flyt_close(fd);
    return flyt_error_set(err, status, "%s is not what was made: %.200s", path, cause.text);
}

uint64_t flyt_node_vm_memory_bytes(const char *folder, const char *vm_ip)
{
    char path[FLYT_NODE_VM_MEMORY_PATH_BYTES];
    struct stat info;

    if (path_of(folder, vm_ip, NULL, path) || lstat(path, &info) || !S_ISREG(info.st_mode) || info.st_size < 0)
        return 0;
    return (uint64_t)info.st_size;
}

int flyt_node_vm_memory_remove(const struct flyt_node_vm_memory *memory, const char *vm_ip, struct flyt_error *err)
{
    const struct flyt_node_vm_memory of_any_size = {.folder = memory->folder, .uid = memory->uid, .gid = memory->gid};
    char path[FLYT_NODE_VM_MEMORY_PATH_BYTES];
    int status = path_of(memory->folder, vm_ip, err, path);

    if (status)
        return status;
    flyt_auto_close int fd = open_found(path, &of_any_size, err);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    return unlink(path) && errno != ENOENT ? flyt_error_set(err, -errno, "%s is not removed: %m", path) : 0;
}
