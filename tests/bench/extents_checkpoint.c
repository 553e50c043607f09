/*
 * Whether the driver's own checkpoint takes a process as Flyt's servers are: with memory of cuMemCreate, exported to
 * somebody who holds the descriptors. Natively, and on a GPU that is not under MPS: there the driver refuses all of it.
 *
 * usage: extents_checkpoint [GPU [MIB]]
 *        Physical GPU 0, 1024 MiB in extents of 64.
 *
 * For each way in which memory is held prints what each step gave, how long it took, and whether every word was as
 * before: "WAY lock=0 checkpoint=0 (123.4 ms) restore=0 (56.7 ms) unlock=0 contents=right". The numbers are CUresult.
 * Exit status 1: a child failed otherwise.
 */
#include <cuda.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXTENT_BYTES = 64 << 20, EXTENTS_MAX = 4096 };

enum way { ALLOCATED, CREATED, EXPORTABLE, EXPORTED, HELD, WAYS };

static const char *const names[WAYS] = {
    [ALLOCATED] = "cuMemAlloc",
    [CREATED] = "cuMemCreate",
    [EXPORTABLE] = "cuMemCreate for export",
    [EXPORTED] = "exported, descriptor closed",
    [HELD] = "exported, descriptor held by another process",
};

static unsigned gpu, extent_count = 1024 / 64;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult result_ = (call);                                                                                     \
        if (result_ != CUDA_SUCCESS) {                                                                                 \
            fprintf(stderr, "%s:%d: %s: CUDA error %d\n", __FILE__, __LINE__, #call, (int)result_);                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* ---- the process that is written ---- */

static void pass(int socket_fd, int fd)
{
    char byte = 0, space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(socket_fd, &message, 0) != 1)
        exit(1);
}

static void make_extent(enum way way, CUdevice device, CUdeviceptr at, int socket_fd)
{
    const CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .requestedHandleTypes =
                                            way == CREATED ? 0 : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUmemAccessDesc access = {.location = wanted.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    int fd;

    CHECK(cuMemCreate(&handle, EXTENT_BYTES, &wanted, 0));
    CHECK(cuMemMap(at, EXTENT_BYTES, 0, handle, 0));
    CHECK(cuMemSetAccess(at, EXTENT_BYTES, &access, 1));
    if (way < EXPORTED)
        return;
    CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (way == HELD)
        pass(socket_fd, fd);
    close(fd);
}

static int be_written(enum way way, int socket_fd)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    uint32_t *words = malloc(EXTENT_BYTES);
    char byte = 0;

    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, (int)gpu));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    if (way == ALLOCATED)
        CHECK(cuMemAlloc(&memory, (size_t)extent_count * EXTENT_BYTES));
    else
        CHECK(cuMemAddressReserve(&memory, (size_t)extent_count * EXTENT_BYTES, 0, 0, 0));
    for (unsigned i = 0; i < extent_count; i++) {
        if (way != ALLOCATED)
            make_extent(way, device, memory + (CUdeviceptr)i * EXTENT_BYTES, socket_fd);
        CHECK(cuMemsetD32(memory + (CUdeviceptr)i * EXTENT_BYTES, 0xABC00000u + i, EXTENT_BYTES / 4));
    }
    CHECK(cuCtxSynchronize());
    if (write(socket_fd, "r", 1) != 1 || read(socket_fd, &byte, 1) != 1)
        return 1;
    for (unsigned i = 0; i < extent_count; i++) {
        CHECK(cuMemcpyDtoH(words, memory + (CUdeviceptr)i * EXTENT_BYTES, EXTENT_BYTES));
        for (unsigned k = 0; k < EXTENT_BYTES / 4; k++)
            if (words[k] != 0xABC00000u + i)
                return 2;
    }
    return 0;
}

/* ---- who has it written ---- */

/* Takes what it passes until it is ready. False: it has ended. */
static int is_ready(int socket_fd)
{
    for (;;) {
        char byte = 0, space[CMSG_SPACE(sizeof(int))];
        struct iovec part = {&byte, 1};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
        if (recvmsg(socket_fd, &message, 0) != 1)
            return 0;
        if (byte == 'r')
            return 1; /* descriptors stay open */
    }
}

/* 0; 1: the child failed. */
static int try_way(enum way way, const char *self)
{
    int sockets[2], status;
    char words[4][16];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(words[0], sizeof words[0], "%d", (int)way);
        snprintf(words[1], sizeof words[1], "%d", sockets[1]);
        snprintf(words[2], sizeof words[2], "%u", gpu);
        snprintf(words[3], sizeof words[3], "%u", extent_count);
        close(sockets[0]);
        execl(self, self, "--child", words[0], words[1], words[2], words[3], (char *)NULL);
        _exit(1);
    }
    close(sockets[1]);
    if (pid < 0 || !is_ready(sockets[0]))
        return 1;
    CUcheckpointLockArgs lock = {.timeoutMs = 10000};
    CUresult locked = cuCheckpointProcessLock(pid, &lock);
    double begun_ms = now_ms();
    CUresult written = locked ? locked : cuCheckpointProcessCheckpoint(pid, NULL);
    double written_ms = now_ms();
    CUresult restored = written ? written : cuCheckpointProcessRestore(pid, NULL);
    double restored_ms = now_ms();
    CUresult unlocked = locked ? locked : cuCheckpointProcessUnlock(pid, NULL);
    printf("%-46s lock=%d checkpoint=%d (%.1f ms) restore=%d (%.1f ms) unlock=%d", names[way], locked, written,
           written_ms - begun_ms, restored, restored_ms - written_ms, unlocked);
    fflush(stdout);
    if (unlocked)
        kill(pid, SIGKILL);
    if (write(sockets[0], "g", 1) != 1)
        fprintf(stderr, "the child has gone\n");
    close(sockets[0]);
    if (waitpid(pid, &status, 0) != pid)
        return 1;
    printf(" contents=%s\n", WIFSIGNALED(status)        ? "lost"
                             : WEXITSTATUS(status) == 0 ? "right"
                             : WEXITSTATUS(status) == 2 ? "WRONG"
                                                        : "not to be read");
    return 0;
}

int main(int argc, char **argv)
{
    int status = 0;

    if (argc == 6 && !strcmp(argv[1], "--child")) {
        gpu = (unsigned)atoi(argv[4]);
        extent_count = (unsigned)atoi(argv[5]);
        return be_written((enum way)atoi(argv[2]), atoi(argv[3]));
    }
    gpu = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    if (argc > 2)
        extent_count = (unsigned)atoi(argv[2]) / (EXTENT_BYTES >> 20);
    if (!extent_count || extent_count > EXTENTS_MAX) {
        fprintf(stderr, "usage: extents_checkpoint [GPU [MIB]]: 64 to 262144 MiB\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    CHECK(cuInit(0));
    for (enum way way = ALLOCATED; way < WAYS; way++)
        status |= try_way(way, argv[0]);
    return status;
}
