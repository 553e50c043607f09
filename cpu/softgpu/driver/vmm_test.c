/* Virtual memory: fixed addresses, access, extents that outlive their process; copies and pointers on top. */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/softgpu/driver/test.h"

#define WINDOW  ((CUdeviceptr)0x200000000000)
#define TIB     ((size_t)1 << 40)
#define GRANULE ((size_t)2 << 20)

static const CUmemAllocationProp extent_prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};

static const CUmemAccessDesc read_write = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

/* Made before the driver starts: a process that writes an extent, hands it over and waits to be killed. */
static pid_t owner;
static int owner_socket;

static void send_fd(int socket, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    if (sendmsg(socket, &message, 0) != 1)
        _exit(3);
}

static int receive_fd(int socket)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    int fd;

    assert_int_equal(recvmsg(socket, &message, 0), 1);
    assert_non_null(CMSG_FIRSTHDR(&message));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

static void owner_main(int socket)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUcontext ctx;
    int fd;

    if (cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) ||
        cuMemCreate(&handle, 4 * GRANULE, &extent_prop, 0) || cuMemAddressReserve(&address, TIB, 0, WINDOW, 0) ||
        address != WINDOW || cuMemMap(WINDOW, 4 * GRANULE, 0, handle, 0) ||
        cuMemSetAccess(WINDOW, 4 * GRANULE, &read_write, 1) || cuMemsetD32(WINDOW, 0x12345678, GRANULE) ||
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
        _exit(2);
    send_fd(socket, fd);
    pause();
    _exit(0);
}

static int start(void **state)
{
    int sockets[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    owner = fork();
    if (!owner)
        owner_main(sockets[1]);
    close(sockets[1]);
    owner_socket = sockets[0];
    setenv("FLYT_SOFT_DEVICES", "2", 1);
    setenv("FLYT_SOFT_MEMORY", "256M", 1);
    test_start();
    return 0;
}

static CUmemGenericAllocationHandle extent_new(size_t bytes)
{
    CUmemGenericAllocationHandle handle;

    assert_ok(cuMemCreate(&handle, bytes, &extent_prop, 0));
    return handle;
}

static void addresses_are_given_as_asked(void **state)
{
    CUdeviceptr a, b, c;

    assert_ok(cuMemAddressReserve(&a, TIB, 0, WINDOW, 0));
    assert_int_equal(a, WINDOW);
    assert_ok(cuMemAddressReserve(&b, TIB, 0, WINDOW + TIB, 0));
    assert_int_equal(b, WINDOW + TIB);
    /* Taken already: somewhere else. */
    assert_ok(cuMemAddressReserve(&c, GRANULE, 0, WINDOW + GRANULE, 0));
    assert_int_not_equal(c, WINDOW + GRANULE);
    assert_ok(cuMemAddressFree(c, GRANULE));
    assert_int_equal(cuMemAddressFree(a, GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemAddressFree(b, TIB));
    assert_ok(cuMemAddressFree(a, TIB));
    assert_ok(cuMemAddressReserve(&a, GRANULE, 0, WINDOW, 0));
    assert_int_equal(a, WINDOW);
    assert_ok(cuMemAddressFree(a, GRANULE));
    assert_int_equal(cuMemAddressReserve(&a, 100, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

/* What is in flight when a reservation ends may still come to its addresses: they must lead somewhere until it is over.
 */
static void addresses_stay_while_work_is_in_flight(void **state)
{
    CUmemGenericAllocationHandle handle = extent_new(GRANULE);
    CUdeviceptr word, at, again;
    CUlibrary library = test_library();
    CUstream stream;

    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuMemAlloc(&word, 4));
    assert_ok(cuMemsetD32(word, 0, 1));
    assert_ok(cuMemAddressReserve(&at, 4 * GRANULE, 0, WINDOW, 0));
    assert_ok(cuMemMap(at, GRANULE, 0, handle, 0));
    assert_ok(cuMemSetAccess(at, GRANULE, &read_write, 1));
    assert_ok(cuMemsetD32(at, 7, 1));
    assert_ok(test_launch(test_kernel(library, "spin"), stream, word, 0));
    assert_ok(cuMemUnmap(at, GRANULE));
    assert_ok(cuMemAddressFree(at, 4 * GRANULE));
    assert_int_equal(*(volatile uint32_t *)at, 0);
    /* It has ended all the same. */
    assert_int_equal(cuMemAddressFree(at, 4 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemMap(at, GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemsetD32Async(word, 1, 1, CU_STREAM_PER_THREAD));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    assert_ok(cuMemAddressReserve(&again, 4 * GRANULE, 0, at, 0));
    assert_int_equal(again, at);
    assert_ok(cuMemAddressFree(again, 4 * GRANULE));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemFree(word));
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuLibraryUnload(library));
}

static void memory_is_accessible_between_access_and_unmap(void **state)
{
    CUmemGenericAllocationHandle handle = extent_new(2 * GRANULE), same;
    CUmemLocation location = extent_prop.location;
    unsigned long long flags;
    uint32_t value = 7;
    CUdeviceptr at;

    assert_ok(cuMemAddressReserve(&at, TIB, 0, WINDOW, 0));
    assert_int_equal(cuMemMap(at, GRANULE, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuMemMap(at + TIB, 2 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemMap(at, 2 * GRANULE, 0, handle, 0));
    assert_int_equal(cuMemMap(at, 2 * GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoD(at, &value, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemSetAccess(at, 4 * GRANULE, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemSetAccess(at, 2 * GRANULE, &read_write, 1));
    assert_ok(cuMemGetAccess(&flags, &location, at + GRANULE));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    location.id = 1;
    assert_ok(cuMemGetAccess(&flags, &location, at));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_ok(cuMemcpyHtoD(at, &value, 4));
    assert_int_equal(cuMemcpyHtoD(at + 2 * GRANULE - 2, &value, 4), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemRetainAllocationHandle(&same, (void *)(at + 100)));
    assert_int_equal(same, handle);
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemRelease(handle));
    /* Mapped still: the memory is there without a handle. */
    assert_ok(cuMemcpyDtoH(&value, at, 4));
    assert_int_equal(value, 7);
    assert_int_equal(cuMemAddressFree(at, TIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemUnmap(at, GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemUnmap(at, 4 * GRANULE));
    assert_int_equal(cuMemcpyDtoH(&value, at, 4), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemAddressFree(at, TIB));
}

static void memory_is_limited_and_comes_back(void **state)
{
    CUmemGenericAllocationHandle big = extent_new(250 << 20), more;
    size_t free_before, free_after, total;
    CUdeviceptr p, q;

    assert_int_equal(cuMemCreate(&more, 8 << 20, &extent_prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAlloc(&p, 8 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    assert_ok(cuMemGetInfo(&free_before, &total));
    assert_int_equal(total, 256 << 20);
    assert_ok(cuMemAlloc(&p, 100));
    assert_ok(cuMemAlloc(&q, 100));
    assert_ok(cuMemFree(p));
    assert_ok(cuMemFree(q));
    assert_int_equal(cuMemFree(q), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemGetInfo(&free_after, &total));
    assert_int_equal(free_after, free_before);
    assert_ok(cuMemRelease(big));
    assert_ok(cuMemGetInfo(&free_after, &total));
    assert_int_equal(free_after, free_before + (250 << 20));
}

static void an_extent_outlives_its_process(void **state)
{
    int fd = receive_fd(owner_socket), status;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUdeviceptr at;
    uint32_t values[2];

    kill(owner, SIGKILL);
    assert_int_equal(waitpid(owner, &status, 0), owner);
    assert_true(WIFSIGNALED(status));
    assert_ok(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    assert_ok(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    assert_int_equal(prop.location.id, 0);
    assert_ok(cuMemAddressReserve(&at, TIB, 0, WINDOW, 0));
    assert_int_equal(at, WINDOW);
    assert_ok(cuMemMap(at, 4 * GRANULE, 0, handle, 0));
    assert_ok(cuMemSetAccess(at, 4 * GRANULE, &read_write, 1));
    assert_ok(cuMemcpyDtoH(&values[0], at, 4));
    assert_ok(cuMemcpyDtoH(&values[1], at + 4 * GRANULE - 4, 4));
    assert_int_equal(values[0], 0x12345678);
    assert_int_equal(values[1], 0x12345678);
    assert_ok(cuMemUnmap(at, 4 * GRANULE));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemAddressFree(at, TIB));
}

static void other_descriptors_are_no_extents(void **state)
{
    CUmemGenericAllocationHandle handle;

    for (int fd = -1; fd < 3; fd++)
        assert_int_equal(
            cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_ERROR_INVALID_VALUE);
}

static void copies_in_two_and_three_dimensions(void **state)
{
    unsigned char from[4][8][16], to[4][8][16];
    CUdeviceptr at;
    CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcPitch = 16,
                        .srcHeight = 8,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstPitch = 64,
                        .dstHeight = 10,
                        .dstXInBytes = 3,
                        .dstY = 1,
                        .WidthInBytes = 16,
                        .Height = 8,
                        .Depth = 4};
    CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .srcPitch = 64,
                         .srcXInBytes = 3,
                         .srcY = 1 + 20,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = to[2],
                         .dstPitch = 16,
                         .WidthInBytes = 16,
                         .Height = 8};

    for (size_t i = 0; i < sizeof(from); i++)
        ((unsigned char *)from)[i] = (unsigned char)(i * 7);
    assert_ok(cuMemAlloc(&at, 64 * 10 * 4));
    in.dstDevice = at;
    out.srcDevice = at;
    assert_ok(cuMemcpy3D(&in));
    assert_ok(cuMemcpy2D(&out));
    assert_memory_equal(to[2], from[2], sizeof(to[2]));
    in.dstPitch = 8;
    assert_int_equal(cuMemcpy3D(&in), CUDA_ERROR_INVALID_VALUE);
    out.Height = 30;
    assert_int_equal(cuMemcpy2D(&out), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemsetD2D16(at, 64, 0xabcd, 3, 2));
    assert_ok(cuMemcpyDtoH(to, at + 64 + 4, 2));
    assert_int_equal(to[0][0][0], 0xcd);
    assert_int_equal(cuMemsetD32(at + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemFree(at));
}

/* Pages that lie in a large fill with 0 are given back to the system; what is around them is not touched. */
static void a_large_fill_clears_what_it_says(void **state)
{
    enum { BEFORE = 100 };
    CUmemGenericAllocationHandle handle = extent_new(4 * GRANULE);
    size_t bytes = 4 * GRANULE, filled = 3 * GRANULE + 4321;
    unsigned char *host = malloc(bytes);
    CUdeviceptr at;

    assert_non_null(host);
    assert_ok(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    assert_ok(cuMemMap(at, bytes, 0, handle, 0));
    assert_ok(cuMemSetAccess(at, bytes, &read_write, 1));
    assert_ok(cuMemsetD8(at, 0xee, bytes));
    assert_ok(cuMemsetD8(at + BEFORE, 0, filled));
    assert_ok(cuMemcpyDtoH(host, at, bytes));
    for (size_t i = 0; i < bytes; i++)
        if (host[i] != (i >= BEFORE && i < BEFORE + filled ? 0 : 0xee))
            fail_msg("byte %zu is %#x", i, host[i]);
    assert_ok(cuMemUnmap(at, bytes));
    assert_ok(cuMemRelease(handle));
    assert_ok(cuMemAddressFree(at, bytes));
    free(host);
}

static void pointers_tell_what_they_are(void **state)
{
    CUmemorytype type;
    CUdeviceptr at, start;
    size_t bytes;
    void *host;
    int ordinal = 5, local = 0;
    unsigned flags;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[] = {&type, &ordinal};

    assert_ok(cuMemAlloc(&at, 100));
    assert_ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 50));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_ok(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 50));
    assert_int_equal(start, at);
    assert_ok(cuMemGetAddressRange(&start, &bytes, at + 50));
    assert_int_equal(bytes, 100);
    assert_ok(cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_PORTABLE));
    assert_ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)host));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    assert_ok(cuMemHostGetFlags(&flags, host));
    assert_int_equal(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    assert_ok(cuMemHostGetDevicePointer(&start, host, 0));
    assert_int_equal(start, (CUdeviceptr)host);
    assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&local),
                     CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuPointerGetAttributes(2, attributes, data, (CUdeviceptr)&local));
    assert_int_equal(type, 0);
    assert_int_equal(ordinal, -2);
    assert_ok(cuMemHostRegister(&local, sizeof(local), 0));
    assert_int_equal(cuMemHostRegister(&local, sizeof(local), 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_ok(cuMemHostUnregister(&local));
    assert_int_equal(cuMemHostUnregister(&local), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_ok(cuMemFreeHost(host));
    assert_ok(cuMemFree(at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_given_as_asked),
        cmocka_unit_test(addresses_stay_while_work_is_in_flight),
        cmocka_unit_test(memory_is_accessible_between_access_and_unmap),
        cmocka_unit_test(memory_is_limited_and_comes_back),
        cmocka_unit_test(an_extent_outlives_its_process),
        cmocka_unit_test(other_descriptors_are_no_extents),
        cmocka_unit_test(copies_in_two_and_three_dimensions),
        cmocka_unit_test(a_large_fill_clears_what_it_says),
        cmocka_unit_test(pointers_tell_what_they_are),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
