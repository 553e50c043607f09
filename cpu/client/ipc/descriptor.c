/* Descriptors, and physical memory that is passed on by them. */
#include "cpu/client/ipc/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/virtual.h"
#include "cpu/client/ipc/ipc.h"

enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

static const char memory_magic[FLYT_DESCRIPTOR_MAGIC_BYTES] = "flyt memory";

CUresult flyt_descriptor_write(const struct flyt_descriptor_content *content, int *ret_fd)
{
    int fd = memfd_create("flyt memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (write(fd, content, sizeof *content) != (ssize_t)sizeof *content || fcntl(fd, F_ADD_SEALS, SEALS)) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *ret_fd = fd;
    return CUDA_SUCCESS;
}

bool flyt_descriptor_read(int fd, const char *magic, struct flyt_descriptor_content *ret_content)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && !fstat(fd, &info) && info.st_size == sizeof *ret_content &&
           pread(fd, ret_content, sizeof *ret_content, 0) == (ssize_t)sizeof *ret_content &&
           !memcmp(ret_content->magic, magic, sizeof ret_content->magic);
}

CUresult flyt_descriptor_check_type(CUmemAllocationHandleType type)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return flyt_not_supported("memory shared by another handle than a file descriptor");
    return flyt_ipc_is_supported() ? CUDA_SUCCESS : flyt_not_supported("memory shared without a node manager");
}

CUresult flyt_ipc_export_physical(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                  unsigned long long flags, void *ret_handle)
{
    struct flyt_virtual_memory memory;
    struct flyt_descriptor_content content = {0};
    uint64_t offset;
    int fd;
    CUresult result = flyt_descriptor_check_type(type);
    if (!result && flags)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_virtual_describe(handle, &memory);
    if (!result && !(memory.handle_types & type))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    if (memory.import) {
        memcpy(content.token, memory.import->token, sizeof content.token);
    } else {
        result = flyt_ipc_export(memory.address, handle, content.token, &offset);
    }
    content.number = memory.bytes;
    memcpy(content.magic, memory_magic, sizeof memory_magic);
    if (!result)
        result = flyt_descriptor_write(&content, &fd);
    if (!result)
        memcpy(ret_handle, &fd, sizeof fd);
    return result;
}

static void end_import(struct flyt_import *import)
{
    flyt_ipc_import_end(import->record.minted_id, true);
}

CUresult flyt_ipc_import_physical(void *os_handle, CUmemAllocationHandleType type,
                                  CUmemGenericAllocationHandle *ret_handle)
{
    struct flyt_descriptor_content content;
    struct flyt_import *import;
    CUresult result = flyt_descriptor_check_type(type);
    if (!result && !flyt_descriptor_read((int)(intptr_t)os_handle, memory_magic, &content))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_ipc_import(content.token, &import);
    if (result)
        return result;
    if (import->bytes == content.number)
        result =
            flyt_virtual_adopt(import, import->record.minted_id, import->device, import->bytes, end_import, ret_handle);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        end_import(import);
    return result;
}
