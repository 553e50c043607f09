/* Descriptors: a memfd that nobody can change any more, in which a token stands. */
#include "cpu/client/ipc/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/virtual.h"
#include "cpu/client/ipc/token.h"

enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

static const char magic[16] = "flyt memory";

struct content {
    char magic[sizeof magic];
    unsigned char token[FLYT_TOKEN_OF_MEMORY_BYTES];
    uint64_t bytes;
};
_Static_assert(sizeof(struct content) == 56, "descriptor layout");

static CUresult write_descriptor(const struct content *content, int *ret_fd)
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

static bool read_descriptor(int fd, struct content *ret_content)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & SEALS) == SEALS && !fstat(fd, &info) && info.st_size == sizeof *ret_content &&
           pread(fd, ret_content, sizeof *ret_content, 0) == (ssize_t)sizeof *ret_content &&
           !memcmp(ret_content->magic, magic, sizeof magic);
}

/* What both functions below ask first. */
static CUresult check_type(CUmemAllocationHandleType type)
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
    struct content content = {0};
    uint64_t offset;
    int fd;
    CUresult result = check_type(type);
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
    content.bytes = memory.bytes;
    memcpy(content.magic, magic, sizeof magic);
    if (!result)
        result = write_descriptor(&content, &fd);
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
    struct content content;
    struct flyt_import *import;
    CUresult result = check_type(type);
    if (!result && !read_descriptor((int)(intptr_t)os_handle, &content))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_ipc_import(content.token, &import);
    if (result)
        return result;
    if (import->bytes == content.bytes)
        result =
            flyt_virtual_adopt(import, import->record.minted_id, import->device, import->bytes, end_import, ret_handle);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        end_import(import);
    return result;
}
