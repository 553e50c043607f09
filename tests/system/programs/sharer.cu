// Shares memory with other processes as its lines say. Each is answered with one line: "ok" and what was asked for, or an
// error's name. Memory has names, and is an array of unsigned numbers.
//
//   alloc NAME BYTES | create NAME BYTES   by cudaMalloc | by cuMemCreate, mapped
//   fill NAME SEED | sum NAME              number i becomes SEED + i, by a kernel | the sum of all, by a kernel
//   free NAME                              whatever it is
//   handle NAME | open NAME HANDLE         an IPC handle, in hexadecimal digits
//   send NAME PATH | receive NAME PATH     a descriptor by the unix socket at PATH, which the receiver has made: it
//                                          answers "listens" first
//   left                                   free bytes, as cudaMemGetInfo says
// nvcc: -lcuda
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <map>
#include <string>

struct memory {
    enum { ALLOCATED, OPENED, MAPPED } kind;
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle physical;
};

static std::map<std::string, memory> memories;

__global__ void fill(unsigned *numbers, size_t count, unsigned seed)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        numbers[i] = seed + (unsigned)i;
}

__global__ void add(const unsigned *numbers, size_t count, unsigned long long *sum)
{
    unsigned long long part = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        part += numbers[i];
    atomicAdd(sum, part);
}

static CUresult map(memory *one)
{
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult result = cuMemAddressReserve(&one->address, one->bytes, 0, 0, 0);
    if (!result)
        result = cuMemMap(one->address, one->bytes, 0, one->physical, 0);
    return result ? result : cuMemSetAccess(one->address, one->bytes, &access, 1);
}

static CUresult create(memory *one)
{
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUresult result = cuMemCreate(&one->physical, one->bytes, &properties, 0);
    return result ? result : map(one);
}

static CUresult let_go(const memory &one)
{
    if (one.kind == memory::ALLOCATED)
        return cuMemFree(one.address);
    if (one.kind == memory::OPENED)
        return cuIpcCloseMemHandle(one.address);
    CUresult result = cuMemUnmap(one.address, one.bytes);
    if (!result)
        result = cuMemAddressFree(one.address, one.bytes);
    return result ? result : cuMemRelease(one.physical);
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    return address;
}

/* One descriptor, with the number of bytes. */
static bool pass(int at, int *fd, size_t *bytes, bool is_sent)
{
    char control[CMSG_SPACE(sizeof(int))] = {};
    struct iovec part = {bytes, sizeof *bytes};
    struct msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    if (is_sent)
        memcpy(CMSG_DATA(head), fd, sizeof *fd);
    ssize_t done = is_sent ? sendmsg(at, &message, 0) : recvmsg(at, &message, 0);
    if (!is_sent && done > 0)
        memcpy(fd, CMSG_DATA(head), sizeof *fd);
    return done == (ssize_t)sizeof *bytes;
}

static CUresult send(const memory &one, const char *path)
{
    int fd = -1, at = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = address_of(path);
    size_t bytes = one.bytes;
    CUresult result = cuMemExportToShareableHandle(&fd, one.physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (!result && (connect(at, (struct sockaddr *)&address, sizeof address) || !pass(at, &fd, &bytes, true)))
        result = CUDA_ERROR_OPERATING_SYSTEM;
    close(at);
    if (fd >= 0)
        close(fd);
    return result;
}

static CUresult receive(memory *one, const char *path)
{
    int fd = -1, listening = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = address_of(path);
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 1))
        return CUDA_ERROR_OPERATING_SYSTEM;
    puts("listens");
    fflush(stdout);
    int at = accept(listening, NULL, NULL);
    bool has_come = at >= 0 && pass(at, &fd, &one->bytes, false);
    close(at);
    close(listening);
    if (!has_come)
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUresult result = cuMemImportFromShareableHandle(&one->physical, (void *)(uintptr_t)fd,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    return result ? result : map(one);
}

static std::string handle_text(const CUipcMemHandle &handle)
{
    std::string text;
    char digits[3];
    for (unsigned char byte : handle.reserved) {
        snprintf(digits, sizeof digits, "%02x", byte);
        text += digits;
    }
    return text;
}

static CUresult open(memory *one, const char *text)
{
    CUipcMemHandle handle = {};
    for (size_t i = 0; i < sizeof handle && text[2 * i]; i++)
        sscanf(text + 2 * i, "%2hhx", (unsigned char *)&handle.reserved[i]);
    CUresult result = cuIpcOpenMemHandle(&one->address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    return result ? result : cuMemGetAddressRange(NULL, &one->bytes, one->address);
}

static CUresult sum(const memory &one, unsigned long long *ret_sum)
{
    unsigned long long *place;
    cudaError_t error = cudaMalloc(&place, sizeof *place);
    if (!error)
        error = cudaMemset(place, 0, sizeof *place);
    if (!error) {
        add<<<8, 256>>>((const unsigned *)one.address, one.bytes / sizeof(unsigned), place);
        error = cudaMemcpy(ret_sum, place, sizeof *place, cudaMemcpyDeviceToHost);
        cudaFree(place);
    }
    return (CUresult)error;
}

static CUresult carry_out(const std::string &verb, const std::string &name, const char *word, std::string *answer)
{
    memory fresh = {};
    CUresult result;
    if (verb == "alloc") {
        fresh.kind = memory::ALLOCATED;
        fresh.bytes = strtoull(word, NULL, 0);
        result = cuMemAlloc(&fresh.address, fresh.bytes);
    } else if (verb == "create") {
        fresh.kind = memory::MAPPED;
        fresh.bytes = strtoull(word, NULL, 0);
        result = create(&fresh);
    } else if (verb == "open") {
        fresh.kind = memory::OPENED;
        result = open(&fresh, word);
    } else if (verb == "receive") {
        fresh.kind = memory::MAPPED;
        result = receive(&fresh, word);
    } else {
        const memory &one = memories[name];
        if (verb == "fill") {
            fill<<<8, 256>>>((unsigned *)one.address, one.bytes / sizeof(unsigned), (unsigned)strtoul(word, NULL, 0));
            return (CUresult)cudaDeviceSynchronize();
        }
        if (verb == "sum") {
            unsigned long long value;
            result = sum(one, &value);
            *answer = std::to_string(value);
            return result;
        }
        if (verb == "handle") {
            CUipcMemHandle handle;
            result = cuIpcGetMemHandle(&handle, one.address + 4);
            *answer = handle_text(handle);
            return result;
        }
        if (verb == "send")
            return send(one, word);
        if (verb == "left") {
            size_t left, total;
            result = cuMemGetInfo(&left, &total);
            *answer = std::to_string(left);
            return result;
        }
        result = let_go(one);
        memories.erase(name);
        return result;
    }
    if (!result)
        memories[name] = fresh;
    return result;
}

int main()
{
    char line[512], verb[16], name[64], word[256];
    if (cudaFree(NULL))
        return 1;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        std::string answer;
        const char *error = "ok";
        *name = *word = 0;
        sscanf(line, "%15s %63s %255s", verb, name, word);
        CUresult result = carry_out(verb, name, word, &answer);
        if (result)
            cuGetErrorName(result, &error);
        printf("%s %s\n", error, result ? "" : answer.c_str());
        fflush(stdout);
    }
    return 0;
}
