// Shares memory with other processes as its lines say. Each is answered with one line: "ok" and what was asked for, or an
// error's name. Memory has names, and is an array of unsigned numbers.
//
//   alloc NAME BYTES | create NAME BYTES   by cudaMalloc | by cuMemCreate, mapped
//   fill NAME SEED | sum NAME              number i becomes SEED + i, by a kernel | the sum of all, by a kernel
//   mark NAME NUMBER | marked NAME         the last number becomes that, and waits | it
//   free NAME                              whatever it is
//   handle NAME | open NAME HANDLE         an IPC handle, in hexadecimal digits
//   send NAME PATH | receive NAME PATH     a descriptor by the unix socket at PATH, which the receiver has made: it
//                                          answers "listens" first
//   make_pool PATH | receive_pool PATH     a pool: sends its descriptor | receives it
//   take NAME BYTES | pointer NAME         of the pool that was made | as data, in hexadecimal digits
//   accept NAME DATA                       what another process has taken of it
//   use DEVICE | peer DEVICE               makes it the current one | lets the current one reach its memory
//   left                                   free bytes, as cudaMemGetInfo says
//   hold | let_go                          the stream stands still from there on | and goes on
//   fill_later NAME SEED                   as fill, and does not wait for it
//   make_event NAME | event_handle NAME    an event that can be shared | its handle, in hexadecimal digits
//   open_event NAME HANDLE                 another process's
//   record NAME | await NAME               in the stream | by the stream, for all that follows
//   query NAME | synchronize NAME          by the host
//   end_event NAME                         destroys it
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
    enum { ALLOCATED, OPENED, MAPPED, POOLED } kind;
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle physical;
};

static std::map<std::string, memory> memories;
static std::map<std::string, CUevent> events;
static volatile int is_open;
static CUmemoryPool pool;

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
    if (one.kind == memory::POOLED)
        return cuMemFreeAsync(one.address, 0);
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

static bool send_to(const char *path, int fd, size_t bytes)
{
    int at = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = address_of(path);
    bool is_sent = !connect(at, (struct sockaddr *)&address, sizeof address) && pass(at, &fd, &bytes, true);
    close(at);
    close(fd);
    return is_sent;
}

static CUresult send(const memory &one, const char *path)
{
    int fd;
    CUresult result = cuMemExportToShareableHandle(&fd, one.physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return result || send_to(path, fd, one.bytes) ? result : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult make_pool(const char *path)
{
    int fd;
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUresult result = cuMemPoolCreate(&pool, &properties);
    if (!result)
        result = cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return result || send_to(path, fd, 0) ? result : CUDA_ERROR_OPERATING_SYSTEM;
}

/* -1: none has come. */
static int receive_from(const char *path, size_t *bytes)
{
    int fd = -1, listening = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = address_of(path);
    if (bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 1))
        return -1;
    puts("listens");
    fflush(stdout);
    int at = accept(listening, NULL, NULL);
    bool has_come = at >= 0 && pass(at, &fd, bytes, false);
    close(at);
    close(listening);
    return has_come ? fd : -1;
}

static CUresult receive_pool(const char *path)
{
    size_t none;
    int fd = receive_from(path, &none);
    CUresult result = cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    close(fd);
    return result;
}

static CUresult receive(memory *one, const char *path)
{
    int fd = receive_from(path, &one->bytes);
    CUresult result = cuMemImportFromShareableHandle(&one->physical, (void *)(uintptr_t)fd,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    return result ? result : map(one);
}

static std::string digits_of(const void *data, size_t bytes)
{
    std::string text;
    char digits[3];
    for (size_t i = 0; i < bytes; i++) {
        snprintf(digits, sizeof digits, "%02x", ((const unsigned char *)data)[i]);
        text += digits;
    }
    return text;
}

static void read_digits(const char *text, void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes && text[2 * i]; i++)
        sscanf(text + 2 * i, "%2hhx", (unsigned char *)data + i);
}

static CUresult open(memory *one, const char *text)
{
    CUipcMemHandle handle = {};
    read_digits(text, &handle, sizeof handle);
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

static void CUDA_CB stand_still(void *unused)
{
    while (!is_open)
        usleep(500);
}

/* CUDA_ERROR_UNKNOWN: no line about events. */
static CUresult carry_out_event(const std::string &verb, const std::string &name, const char *word, std::string *answer)
{
    CUipcEventHandle handle = {};
    CUevent event = events[name];
    CUresult result;
    if (verb == "make_event")
        return cuEventCreate(&events[name], CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    if (verb == "event_handle") {
        result = cuIpcGetEventHandle(&handle, event);
        *answer = digits_of(&handle, sizeof handle);
        return result;
    }
    if (verb == "open_event") {
        read_digits(word, &handle, sizeof handle);
        return cuIpcOpenEventHandle(&events[name], handle);
    }
    return verb == "record"        ? cuEventRecord(event, 0)
           : verb == "await"       ? cuStreamWaitEvent(0, event, 0)
           : verb == "query"       ? cuEventQuery(event)
           : verb == "synchronize" ? cuEventSynchronize(event)
           : verb == "end_event"   ? cuEventDestroy(event)
                                   : CUDA_ERROR_UNKNOWN;
}

static CUresult carry_out(const std::string &verb, const std::string &name, const char *word, std::string *answer)
{
    memory fresh = {};
    CUresult result = carry_out_event(verb, name, word, answer);
    if (result != CUDA_ERROR_UNKNOWN)
        return result;
    if (verb == "use")
        return (CUresult)cudaSetDevice(atoi(name.c_str()));
    if (verb == "peer")
        return (CUresult)cudaDeviceEnablePeerAccess(atoi(name.c_str()), 0);
    if (verb == "hold") {
        is_open = 0;
        return cuLaunchHostFunc(0, stand_still, NULL);
    }
    if (verb == "let_go") {
        is_open = 1;
        return CUDA_SUCCESS;
    }
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
    } else if (verb == "take") {
        fresh.kind = memory::POOLED;
        fresh.bytes = strtoull(word, NULL, 0);
        result = cuMemAllocFromPoolAsync(&fresh.address, fresh.bytes, pool, 0);
    } else if (verb == "accept") {
        CUmemPoolPtrExportData data = {};
        fresh.kind = memory::POOLED;
        read_digits(word, &data, sizeof data);
        result = cuMemPoolImportPointer(&fresh.address, pool, &data);
        if (!result)
            result = cuMemGetAddressRange(NULL, &fresh.bytes, fresh.address);
    } else if (verb == "make_pool") {
        return make_pool(name.c_str());
    } else if (verb == "receive_pool") {
        return receive_pool(name.c_str());
    } else {
        const memory &one = memories[name];
        if (verb == "fill" || verb == "fill_later") {
            fill<<<8, 256>>>((unsigned *)one.address, one.bytes / sizeof(unsigned), (unsigned)strtoul(word, NULL, 0));
            return (CUresult)(verb == "fill" ? cudaDeviceSynchronize() : cudaGetLastError());
        }
        if (verb == "sum") {
            unsigned long long value;
            result = sum(one, &value);
            *answer = std::to_string(value);
            return result;
        }
        if (verb == "mark") {
            result = cuMemsetD32(one.address + one.bytes - 4, (unsigned)strtoul(word, NULL, 0), 1);
            return result ? result : cuCtxSynchronize();
        }
        if (verb == "marked") {
            unsigned number;
            result = cuMemcpyDtoH(&number, one.address + one.bytes - 4, sizeof number);
            *answer = std::to_string(number);
            return result;
        }
        if (verb == "handle") {
            CUipcMemHandle handle;
            result = cuIpcGetMemHandle(&handle, one.address + 4);
            *answer = digits_of(&handle, sizeof handle);
            return result;
        }
        if (verb == "pointer") {
            CUmemPoolPtrExportData data;
            result = cuMemPoolExportPointer(&data, one.address);
            *answer = digits_of(&data, sizeof data);
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
    char line[512], verb[16], name[256], word[256];
    if (cudaFree(NULL))
        return 1;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        std::string answer;
        const char *error = "ok";
        *name = *word = 0;
        sscanf(line, "%15s %255s %255s", verb, name, word);
        CUresult result = carry_out(verb, name, word, &answer);
        if (result)
            cuGetErrorName(result, &error);
        printf("%s %s\n", error, result ? "" : answer.c_str());
        fflush(stdout);
    }
    return 0;
}
