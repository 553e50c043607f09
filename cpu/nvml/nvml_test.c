/*
 * The library before a client manager of the test's own: devices and figures as it says them, arguments that are wrong,
 * answers that cannot be, and nobody who answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control.h"
#include "cpu/nvml/calls.h"
#include "cpu/nvml/library.h"
#include "rpc/base/clock.h"
#include "rpc/base/device_identity.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/message.h"

enum { PROGRAMS = 3, OTHER_PROGRAMS = 1000 };

enum manner {
    ANSWERS,
    IS_SILENT,
    CLOSES,
    SAYS_GARBAGE,
    IS_CUT_OFF,      /* ends in the middle of the record */
    CUTS_THE_RESULT, /* a whole record, whose result ends too soon */
    CLAIMS_LENGTH,   /* a record of 2 GiB */
    CLAIMS_DEVICES,  /* more than there can be */
    CLAIMS_PROGRAMS,
    HAS_NO_NAMES, /* a UUID that is none */
    IS_TOO_BUSY,  /* 1,000 % */
    IS_OLDER,     /* does not know the procedure */
    TELLS_NEWS,   /* a notice first, and more behind the result than is known here */
    DENIES,
    KNOWS_NOTHING,
};

static struct {
    char folder[64], path[96];
    int listen_fd;
    pthread_t thread;
    enum manner manner;
    unsigned device_count, program_count, asked_count;
    uint64_t total_bytes, used_bytes;
    unsigned busy_pct;
    const char *type;
} manager;

/* ---- the client manager ---- */

static bool read_all(int fd, void *data, size_t bytes)
{
    for (size_t used = 0; used < bytes;) {
        ssize_t got = recv(fd, (char *)data + used, bytes - used, 0);
        if (got <= 0)
            return false;
        used += (size_t)got;
    }
    return true;
}

static void put_result(XDR *xdrs)
{
    static char empty[] = "", version[] = "580.1.2", none[] = "GPU-none", denied[] = "user nobody may not";
    flyt_local_device devices[FLYT_SLOTS_MAX];
    struct flyt_device_identity names[FLYT_SLOTS_MAX];
    static flyt_program_use programs[OTHER_PROGRAMS];
    flyt_local_devices_res res = {.outcome = {FLYT_STATUS_OK, empty},
                                  .driver = {version, 13010},
                                  .devices = {manager.device_count, devices},
                                  .programs = {manager.program_count, programs}};
    for (unsigned i = 0; i < manager.device_count; i++) {
        flyt_device_identify("10.0.1.7", i, &names[i]);
        devices[i] = (flyt_local_device){.uuid = manager.manner == HAS_NO_NAMES ? none : names[i].uuid_text,
                                         .pci_bus_id = names[i].pci_bus_id,
                                         .use = {.type = (char *)manager.type,
                                                 .compute_major = *manager.type ? 9 : 0,
                                                 .sm_count = 8,
                                                 .memory_bytes = manager.total_bytes,
                                                 .memory_used_bytes = manager.used_bytes,
                                                 .busy_pct = manager.manner == IS_TOO_BUSY ? 1000 : manager.busy_pct}};
    }
    for (unsigned i = 0; i < manager.program_count; i++)
        programs[i] = (flyt_program_use){i ? 70000 + i : (u_int)getpid(), i == 2 ? FLYT_UNKNOWN_BYTES : 100 + i};
    if (manager.manner == DENIES || manager.manner == KNOWS_NOTHING)
        res = (flyt_local_devices_res){
            .outcome = {manager.manner == DENIES ? FLYT_STATUS_DENIED : FLYT_STATUS_UNAVAILABLE, denied}};
    if (!res.driver.driver_version)
        res.driver.driver_version = empty;
    if (!xdr_flyt_local_devices_res(xdrs, &res))
        abort();
}

/* Where in the result the number of devices stands: behind an empty text, the version's and the CUDA version. */
enum { DEVICES_AT = 4 + 4 + 4 + 8 + 4 };

static void put_number(struct flyt_bytes *bytes, size_t at, uint32_t number)
{
    uint32_t word = htonl(number);
    memcpy(bytes->data + at, &word, sizeof word);
}

static void send_all(int fd, const void *data, size_t bytes)
{
    if (send(fd, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes && manager.manner == ANSWERS)
        abort();
}

static void send_notice(int fd)
{
    struct flyt_bytes bytes = {.bytes_max = 1 << 16};
    static char text[] = "another size";
    flyt_local_changed_args changed = {.text = text};
    uint32_t mark = 0;
    XDR xdrs;
    flyt_xdr_encode_init(&xdrs, &bytes);
    if (!xdr_opaque(&xdrs, (char *)&mark, sizeof mark) ||
        !flyt_call_head_put(&xdrs, 9, FLYT_LOCAL_PROGRAM, FLYT_LOCAL_VERSION, FLYT_LOCAL_CHANGED) ||
        !xdr_flyt_local_changed_args(&xdrs, &changed))
        abort();
    put_number(&bytes, 0, 0x80000000u | (uint32_t)(bytes.used - 4));
    send_all(fd, bytes.data, bytes.used);
    flyt_bytes_fini(&bytes);
}

static void answer(int fd)
{
    struct flyt_bytes bytes = {.bytes_max = 1 << 20};
    uint32_t mark = 0, more[4] = {0};
    XDR xdrs;
    flyt_xdr_encode_init(&xdrs, &bytes);
    if (!xdr_opaque(&xdrs, (char *)&mark, sizeof mark) || !flyt_reply_head_put(&xdrs, 1))
        abort();
    size_t head = bytes.used;
    put_result(&xdrs);
    if (manager.manner == TELLS_NEWS && !xdr_opaque(&xdrs, (char *)more, sizeof more))
        abort();
    size_t used = bytes.used;
    if (manager.manner == CUTS_THE_RESULT)
        used -= 40;
    if (manager.manner == CLAIMS_DEVICES)
        put_number(&bytes, head + DEVICES_AT, 0x7fffffff);
    if (manager.manner == CLAIMS_PROGRAMS)
        put_number(&bytes, used - 4 - 12 * manager.program_count, 0x40000000);
    if (manager.manner == IS_OLDER) {
        put_number(&bytes, head - 4, PROC_UNAVAIL); /* the status, last in the head */
        used = head;
    }
    put_number(&bytes, 0, manager.manner == CLAIMS_LENGTH ? 0xffffffff : 0x80000000u | (uint32_t)(used - 4));
    if (manager.manner == TELLS_NEWS)
        send_notice(fd);
    send_all(fd, bytes.data, manager.manner == IS_CUT_OFF ? used / 2 : used);
    flyt_bytes_fini(&bytes);
}

static void serve(int fd)
{
    char record[4096];
    uint32_t mark;
    if (!read_all(fd, &mark, sizeof mark) || !read_all(fd, record, ntohl(mark) & 0xfff))
        return;
    __atomic_add_fetch(&manager.asked_count, 1, __ATOMIC_SEQ_CST);
    if (manager.manner == SAYS_GARBAGE)
        send_all(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    else if (manager.manner != IS_SILENT && manager.manner != CLOSES)
        answer(fd);
    if (manager.manner != CLOSES && manager.manner != IS_CUT_OFF)
        read_all(fd, record, 1); /* until it has gone */
}

static void *run_manager(void *user)
{
    int fd;
    while ((fd = accept(manager.listen_fd, NULL, NULL)) >= 0) {
        serve(fd);
        close(fd);
    }
    return NULL;
}

static int start_manager(void **state)
{
    struct flyt_error err;
    char url[128], shown[FLYT_URL_TEXT_BYTES];
    strcpy(manager.folder, "/tmp/flyt-nvml-test-XXXXXX");
    if (!mkdtemp(manager.folder))
        return -1;
    snprintf(manager.path, sizeof manager.path, "%s/sock", manager.folder);
    snprintf(url, sizeof url, "unix://%s", manager.path);
    if (flyt_listen(url, &err, &manager.listen_fd, shown))
        return -1;
    setenv("FLYT_CLIENT_SOCKET", manager.path, 1);
    unsetenv("FLYT_SERVER");
    return pthread_create(&manager.thread, NULL, run_manager, NULL);
}

static int stop_manager(void **state)
{
    shutdown(manager.listen_fd, SHUT_RDWR);
    pthread_join(manager.thread, NULL);
    close(manager.listen_fd);
    unlink(manager.path);
    return rmdir(manager.folder);
}

static int begin(void **state)
{
    manager.manner = ANSWERS;
    manager.device_count = 1;
    manager.program_count = PROGRAMS;
    manager.total_bytes = 1000;
    manager.used_bytes = 300;
    manager.busy_pct = 40;
    manager.type = "NVIDIA H200";
    return 0;
}

static int end(void **state)
{
    while (nvmlShutdown() == FLYT_NVML_SUCCESS) {
    }
    return 0;
}

/* What is told now, not a moment ago. */
static void wait_until_stale(void)
{
    usleep((FLYT_NVML_FRESH_MS + 20) * 1000);
}

static flyt_nvml_device device(unsigned index)
{
    flyt_nvml_device found;
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(index, &found), FLYT_NVML_SUCCESS);
    return found;
}

/* ---- tests ---- */

static void test_begins_and_ends(void **state)
{
    unsigned number = 77;
    char text[80];
    assert_int_equal(nvmlShutdown(), FLYT_NVML_UNINITIALIZED);
    assert_int_equal(nvmlDeviceGetCount_v2(&number), FLYT_NVML_UNINITIALIZED);
    assert_int_equal(nvmlDeviceGetCount_v2(NULL), FLYT_NVML_UNINITIALIZED);
    assert_int_equal(nvmlSystemGetNVMLVersion(text, sizeof text), FLYT_NVML_UNINITIALIZED);
    assert_int_equal(nvmlDeviceGetTemperature(NULL, 0, &number), FLYT_NVML_UNINITIALIZED);
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlInitWithFlags(0), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlShutdown(), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetCount_v2(&number), FLYT_NVML_SUCCESS);
    assert_int_equal(number, 1);
    assert_int_equal(nvmlShutdown(), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetCount_v2(&number), FLYT_NVML_UNINITIALIZED);
    assert_string_equal(nvmlErrorString(FLYT_NVML_SUCCESS), "Success");
    assert_string_equal(nvmlErrorString(FLYT_NVML_NOT_SUPPORTED), "Not Supported");
    assert_string_equal(nvmlErrorString(-1), "Unknown Error");
    assert_string_equal(nvmlErrorString(999), "Unknown Error");
}

static void test_names(void **state)
{
    struct flyt_device_identity identity;
    struct flyt_nvml_pci pci;
    char text[96];
    manager.device_count = 2;
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    flyt_nvml_device second = device(1), found;
    flyt_device_identify("10.0.1.7", 1, &identity);
    assert_int_equal(nvmlDeviceGetUUID(second, text, sizeof text), FLYT_NVML_SUCCESS);
    assert_string_equal(text, identity.uuid_text);
    assert_int_equal(nvmlDeviceGetHandleByUUID(text, &found), FLYT_NVML_SUCCESS);
    assert_ptr_equal(found, second);
    struct flyt_nvml_uuid uuid = {.version = FLYT_NVML_VERSION(uuid, 1), .type = FLYT_NVML_UUID_BINARY};
    memcpy(uuid.value.bytes, identity.uuid, sizeof identity.uuid);
    assert_int_equal(nvmlDeviceGetHandleByUUIDV(&uuid, &found), FLYT_NVML_SUCCESS);
    assert_ptr_equal(found, second);
    assert_int_equal(nvmlDeviceGetPciInfo_v3(second, &pci), FLYT_NVML_SUCCESS);
    assert_string_equal(pci.bus_id, "00000F17:02:00.0");
    assert_string_equal(pci.bus_id_legacy, "0F17:02:00.0");
    assert_int_equal(pci.domain, FLYT_DEVICE_PCI_DOMAIN);
    for (const char *const *way = (const char *const[]){"00000F17:02:00.0", "0f17:2:0", "F17:02:00.0", NULL}; *way;
         way++) {
        found = NULL;
        assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2(*way, &found), FLYT_NVML_SUCCESS);
        assert_ptr_equal(found, second);
    }
    assert_int_equal(nvmlDeviceGetName(second, text, sizeof text), FLYT_NVML_SUCCESS);
    assert_string_equal(text, "NVIDIA H200");
    assert_int_equal(nvmlSystemGetDriverVersion(text, sizeof text), FLYT_NVML_SUCCESS);
    assert_string_equal(text, "580.1.2");
    int version = 0, major = 0, minor = 7, brand = 0;
    unsigned number = 0, pending;
    assert_int_equal(nvmlSystemGetCudaDriverVersion_v2(&version), FLYT_NVML_SUCCESS);
    assert_int_equal(version, 13010);
    assert_int_equal(nvmlDeviceGetCudaComputeCapability(second, &major, &minor), FLYT_NVML_SUCCESS);
    assert_int_equal(10 * major + minor, 90);
    assert_int_equal(nvmlDeviceGetArchitecture(second, &number), FLYT_NVML_SUCCESS);
    assert_int_equal(number, 9);
    assert_int_equal(nvmlDeviceGetBrand(second, &brand), FLYT_NVML_SUCCESS);
    assert_int_equal(brand, FLYT_NVML_BRAND_NVIDIA);
    assert_int_equal(nvmlDeviceGetIndex(second, &number), FLYT_NVML_SUCCESS);
    assert_int_equal(number, 1);
    assert_int_equal(nvmlDeviceGetMigMode(second, &number, &pending), FLYT_NVML_SUCCESS);
    assert_int_equal(number + pending, 0);
    assert_int_equal(nvmlDeviceGetPersistenceMode(second, &number), FLYT_NVML_SUCCESS);
    assert_int_equal(number, 1);
    assert_int_equal(nvmlDeviceGetTopologyCommonAncestor(second, second, &number), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetTopologyCommonAncestor(second, device(0), &number), FLYT_NVML_NOT_SUPPORTED);
}

static void test_what_is_used(void **state)
{
    struct flyt_nvml_memory memory;
    struct flyt_nvml_memory_v2 newer = {.version = FLYT_NVML_VERSION(newer, 2)};
    struct flyt_nvml_utilization rates = {.memory = 9};
    struct flyt_nvml_process processes[8];
    struct flyt_nvml_process_v1 older[8];
    unsigned count = 8;
    char name[256];
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    flyt_nvml_device it = device(0);
    assert_int_equal(nvmlDeviceGetMemoryInfo(it, &memory), FLYT_NVML_SUCCESS);
    assert_true(memory.total == 1000 && memory.used == 300 && memory.free == 700);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(it, &newer), FLYT_NVML_SUCCESS);
    assert_true(newer.total == 1000 && newer.used == 300 && newer.free == 700 && !newer.reserved);
    assert_int_equal(nvmlDeviceGetUtilizationRates(it, &rates), FLYT_NVML_SUCCESS);
    assert_int_equal(rates.gpu, 40);
    assert_int_equal(rates.memory, 0);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(it, &count, processes), FLYT_NVML_SUCCESS);
    assert_int_equal(count, PROGRAMS);
    assert_int_equal(processes[0].pid, getpid());
    assert_true(processes[0].used_bytes == 100 && processes[0].gpu_instance == 0xffffffff);
    assert_true(processes[2].used_bytes == FLYT_NVML_NOT_AVAILABLE);
    count = 8;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses(it, &count, older), FLYT_NVML_SUCCESS);
    assert_true(older[1].pid == 70001 && older[1].used_bytes == 101);
    count = 8;
    assert_int_equal(nvmlDeviceGetGraphicsRunningProcesses_v3(it, &count, processes), FLYT_NVML_SUCCESS);
    assert_int_equal(count, 0);
    assert_int_equal(nvmlSystemGetProcessName((unsigned)getpid(), name, sizeof name), FLYT_NVML_SUCCESS);
    assert_non_null(strstr(name, "nvml_test"));
    /* A limit below what is in use; another GPU while the monitor runs; more devices: nothing is free, nor known. */
    wait_until_stale();
    manager.total_bytes = 200;
    manager.type = "";
    manager.busy_pct = FLYT_UNKNOWN;
    manager.device_count = 2;
    assert_int_equal(nvmlDeviceGetMemoryInfo(it, &memory), FLYT_NVML_SUCCESS);
    assert_true(memory.total == 200 && memory.used == 300 && memory.free == 0);
    assert_int_equal(nvmlDeviceGetName(it, name, sizeof name), FLYT_NVML_NOT_SUPPORTED);
    int major, minor;
    assert_int_equal(nvmlDeviceGetCudaComputeCapability(it, &major, &minor), FLYT_NVML_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetUtilizationRates(it, &rates), FLYT_NVML_NOT_SUPPORTED);
    count = 8;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(it, &count, processes), FLYT_NVML_SUCCESS);
    assert_true(processes[0].used_bytes == FLYT_NVML_NOT_AVAILABLE);
    wait_until_stale();
    manager.used_bytes = FLYT_UNKNOWN_BYTES;
    assert_int_equal(nvmlDeviceGetMemoryInfo(it, &memory), FLYT_NVML_NOT_READY);
}

static void test_wrong_arguments(void **state)
{
    struct flyt_nvml_memory_v2 memory = {0};
    struct flyt_nvml_pci_ext ext = {0};
    struct flyt_nvml_uuid uuid = {0};
    struct flyt_nvml_process processes[2];
    unsigned count = 0, number = 0;
    char text[96];
    static const char nothing;
    flyt_nvml_device found, nobody = (flyt_nvml_device)(const void *)&nothing;
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    flyt_nvml_device it = device(0);
    assert_int_equal(nvmlDeviceGetCount_v2(NULL), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(1, &found), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, NULL), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByUUID(NULL, &found), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByUUID("GPU-", &found), FLYT_NVML_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetHandleByUUIDV(&uuid, &found), FLYT_NVML_VERSION_MISMATCH);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("nonsense", &found), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("0f17:01:00.0x", &found), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("0000:01:00.0", &found), FLYT_NVML_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetUUID(it, text, 40), FLYT_NVML_INSUFFICIENT_SIZE);
    assert_int_equal(nvmlDeviceGetUUID(it, text, 41), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetUUID(it, NULL, 41), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetUUID(NULL, text, 41), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetUUID(nobody, text, 41), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetUUID(flyt_nvml_handle(1), text, 41), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetName(it, text, 0), FLYT_NVML_INSUFFICIENT_SIZE);
    assert_int_equal(nvmlDeviceGetMemoryInfo(it, NULL), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(it, NULL), FLYT_NVML_INVALID_ARGUMENT);
    for (unsigned version = 0; version <= 3; version++) {
        memory.version = FLYT_NVML_VERSION(memory, version);
        assert_int_equal(nvmlDeviceGetMemoryInfo_v2(it, &memory),
                         version == 2 ? FLYT_NVML_SUCCESS : FLYT_NVML_VERSION_MISMATCH);
    }
    assert_int_equal(nvmlDeviceGetPciInfoExt(it, &ext), FLYT_NVML_VERSION_MISMATCH);
    ext.version = FLYT_NVML_VERSION(ext, 1);
    assert_int_equal(nvmlDeviceGetPciInfoExt(it, &ext), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(it, NULL, processes), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(it, &count, NULL), FLYT_NVML_INSUFFICIENT_SIZE);
    assert_int_equal(count, PROGRAMS);
    count = 2;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(it, &count, processes), FLYT_NVML_INSUFFICIENT_SIZE);
    assert_int_equal(count, PROGRAMS);
    assert_int_equal(nvmlDeviceGetPersistenceMode(it, NULL), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetPersistenceMode(NULL, &number), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetTemperature(it, 0, &number), FLYT_NVML_NOT_SUPPORTED);
    assert_int_equal(nvmlDeviceGetTemperature(NULL, 0, &number), FLYT_NVML_INVALID_ARGUMENT);
    assert_int_equal(nvmlSystemGetTopologyGpuSet(0, &count, &found), FLYT_NVML_NOT_SUPPORTED);
    assert_int_equal(nvmlSystemGetProcessName(0x7ffffffe, text, sizeof text), FLYT_NVML_NOT_FOUND);
    assert_int_equal(nvmlSystemGetProcessName(1, text, 0), FLYT_NVML_INVALID_ARGUMENT);
}

/* PciInfo of before has room for less than there is now. */
static void test_an_older_structure(void **state)
{
    char room[68];
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    memset(room, 0x55, sizeof room);
    assert_int_equal(nvmlDeviceGetPciInfo_v2(device(0), room), FLYT_NVML_SUCCESS);
    assert_string_equal(room, "0F17:01:00.0");
    for (size_t i = offsetof(struct flyt_nvml_pci, bus_id); i < sizeof room; i++)
        assert_int_equal(room[i], 0x55);
}

/* Many questions within a moment are one to the client manager; it is asked again afterwards. */
static void test_asks_seldom(void **state)
{
    struct flyt_nvml_memory memory;
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    wait_until_stale();
    unsigned before = manager.asked_count;
    uint64_t start_ms = flyt_clock_ms();
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(nvmlDeviceGetMemoryInfo(device(0), &memory), FLYT_NVML_SUCCESS);
    assert_true(manager.asked_count - before <= 1 + (flyt_clock_ms() - start_ms) / FLYT_NVML_FRESH_MS);
    before = manager.asked_count;
    wait_until_stale();
    manager.used_bytes = 555;
    assert_int_equal(nvmlDeviceGetMemoryInfo(device(0), &memory), FLYT_NVML_SUCCESS);
    assert_int_equal(memory.used, 555);
    assert_int_equal(manager.asked_count, before + 1);
}

static void test_many_programs(void **state)
{
    static struct flyt_nvml_process processes[OTHER_PROGRAMS];
    unsigned count = OTHER_PROGRAMS;
    manager.program_count = OTHER_PROGRAMS;
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &count, processes), FLYT_NVML_SUCCESS);
    assert_int_equal(count, OTHER_PROGRAMS);
    assert_int_equal(processes[OTHER_PROGRAMS - 1].pid, 70000 + OTHER_PROGRAMS - 1);
}

/* Whatever comes instead of an answer: no devices, in time. */
static void test_answers_that_are_none(void **state)
{
    static const struct {
        enum manner manner;
        int code;
    } cases[] = {{CLOSES, FLYT_NVML_DRIVER_NOT_LOADED},
                 {SAYS_GARBAGE, FLYT_NVML_DRIVER_NOT_LOADED},
                 {IS_CUT_OFF, FLYT_NVML_DRIVER_NOT_LOADED},
                 {CUTS_THE_RESULT, FLYT_NVML_DRIVER_NOT_LOADED},
                 {CLAIMS_LENGTH, FLYT_NVML_DRIVER_NOT_LOADED},
                 {CLAIMS_DEVICES, FLYT_NVML_DRIVER_NOT_LOADED},
                 {CLAIMS_PROGRAMS, FLYT_NVML_DRIVER_NOT_LOADED},
                 {HAS_NO_NAMES, FLYT_NVML_DRIVER_NOT_LOADED},
                 {IS_TOO_BUSY, FLYT_NVML_DRIVER_NOT_LOADED},
                 {IS_OLDER, FLYT_NVML_DRIVER_NOT_LOADED},
                 {KNOWS_NOTHING, FLYT_NVML_DRIVER_NOT_LOADED},
                 {DENIES, FLYT_NVML_NO_PERMISSION},
                 {TELLS_NEWS, FLYT_NVML_SUCCESS},
                 {ANSWERS, FLYT_NVML_SUCCESS}};
    unsigned count;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        manager.manner = cases[i].manner;
        wait_until_stale();
        int code = nvmlInit_v2();
        if (code != cases[i].code)
            fail_msg("manner %d: %s", cases[i].manner, nvmlErrorString(code));
        assert_int_equal(nvmlDeviceGetCount_v2(&count), code ? FLYT_NVML_UNINITIALIZED : FLYT_NVML_SUCCESS);
        end(state);
    }
}

/* A client manager that hangs: five seconds, not for ever; afterwards devices stay known, and what changes is not. */
static void test_a_silent_manager(void **state)
{
    struct flyt_nvml_memory memory;
    char text[96];
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    flyt_nvml_device it = device(0);
    manager.manner = IS_SILENT;
    wait_until_stale();
    uint64_t start_ms = flyt_clock_ms();
    assert_int_equal(nvmlDeviceGetMemoryInfo(it, &memory), FLYT_NVML_NOT_READY);
    uint64_t took_ms = flyt_clock_ms() - start_ms;
    assert_true(took_ms >= FLYT_NVML_TIMEOUT_MS - 100);
    assert_int_equal(nvmlDeviceGetUUID(it, text, sizeof text), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetMemoryInfo(it, &memory), FLYT_NVML_NOT_READY);
    manager.manner = ANSWERS;
    wait_until_stale();
    assert_int_equal(nvmlDeviceGetMemoryInfo(it, &memory), FLYT_NVML_SUCCESS);
}

static void test_nobody_there(void **state)
{
    unsigned count = 7;
    setenv("FLYT_CLIENT_SOCKET", "/nowhere/client.sock", 1);
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_DRIVER_NOT_LOADED);
    assert_int_equal(nvmlInitWithFlags(FLYT_NVML_FLAG_NO_GPUS), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetCount_v2(&count), FLYT_NVML_NOT_READY);
    end(state);
    /* Direct mode: the server that FLYT_SERVER names says nothing of what it gives. */
    setenv("FLYT_CLIENT_SOCKET", manager.path, 1);
    setenv("FLYT_SERVER", "tcp://10.0.0.1:1", 1);
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_DRIVER_NOT_LOADED);
    unsetenv("FLYT_SERVER");
    wait_until_stale();
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
}

static void test_no_devices(void **state)
{
    unsigned count = 7;
    flyt_nvml_device found;
    manager.device_count = 0;
    wait_until_stale();
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetCount_v2(&count), FLYT_NVML_SUCCESS);
    assert_int_equal(count, 0);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &found), FLYT_NVML_INVALID_ARGUMENT);
}

static void *ask_for_ever(void *user)
{
    struct flyt_nvml_memory memory;
    while (!__atomic_load_n((bool *)user, __ATOMIC_RELAXED))
        nvmlDeviceGetMemoryInfo(flyt_nvml_handle(0), &memory);
    return NULL;
}

/* A fork while another thread asks: the child can ask, too. */
static void test_forks(void **state)
{
    pthread_t thread;
    bool is_over = false;
    assert_int_equal(nvmlInit_v2(), FLYT_NVML_SUCCESS);
    assert_int_equal(pthread_create(&thread, NULL, ask_for_ever, &is_over), 0);
    for (unsigned i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            unsigned count = 0;
            alarm(30);
            _exit(nvmlDeviceGetCount_v2(&count) || count != 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_begins_and_ends, begin, end),
        cmocka_unit_test_setup_teardown(test_names, begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_used, begin, end),
        cmocka_unit_test_setup_teardown(test_wrong_arguments, begin, end),
        cmocka_unit_test_setup_teardown(test_an_older_structure, begin, end),
        cmocka_unit_test_setup_teardown(test_asks_seldom, begin, end),
        cmocka_unit_test_setup_teardown(test_many_programs, begin, end),
        cmocka_unit_test_setup_teardown(test_answers_that_are_none, begin, end),
        cmocka_unit_test_setup_teardown(test_a_silent_manager, begin, end),
        cmocka_unit_test_setup_teardown(test_nobody_there, begin, end),
        cmocka_unit_test_setup_teardown(test_no_devices, begin, end),
        cmocka_unit_test_setup_teardown(test_forks, begin, end),
    };
    return cmocka_run_group_tests(tests, start_manager, stop_manager);
}
