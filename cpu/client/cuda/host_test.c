/*
 * Page-locked memory that is shared, over a channel without a server, which plays several: each has its own books of
 * what is locked. What a server has locked is unlocked there before its pages go, or the GPU would keep them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/memory.h"
#include "rpc/base/id.h"
#include "rpc/base/region.h"

enum { SERVERS = 7, PIECES = 16, BYTES = 3 * 4096 };

/* By fake.region_at: what that server has locked. */
static struct {
    uint64_t offsets[PIECES];
    unsigned count;
} servers[SERVERS];

static uint64_t next_address = FLYT_WINDOW_BASE;
static uint64_t transfer_id; /* of a copy that travels; 0: none */
static bool refuses;
static unsigned held_by_another; /* locks that come next: another session has some of their pages */

static void (*on_lock)(void); /* called while the server locks pages; NULL: none */
static atomic_uint locking;   /* pages that the server is locking */

static unsigned find(uint64_t offset_bytes)
{
    unsigned place = 0;
    while (place < servers[fake.region_at].count && servers[fake.region_at].offsets[place] != offset_bytes)
        place++;
    return place;
}

static int lock(uint64_t offset_bytes)
{
    if (refuses)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (held_by_another && held_by_another--)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (find(offset_bytes) == servers[fake.region_at].count)
        servers[fake.region_at].offsets[servers[fake.region_at].count++] = offset_bytes;
    return CUDA_SUCCESS;
}

/* As the server does, which knows of pages that it is still locking only that they are none to lock. */
static int lock_beside(uint64_t offset_bytes)
{
    if (atomic_fetch_add(&locking, 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (on_lock)
        on_lock();
    const int result = lock(offset_bytes);
    atomic_store(&locking, 0);
    return result;
}

static int unlock(uint64_t offset_bytes)
{
    unsigned place = find(offset_bytes);
    if (place == servers[fake.region_at].count)
        return CUDA_ERROR_INVALID_VALUE;
    servers[fake.region_at].offsets[place] = servers[fake.region_at].offsets[--servers[fake.region_at].count];
    return CUDA_SUCCESS;
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    if (procedure == FLYT_REGION_LOCK)
        ((flyt_region_lock_res *)res)->result = lock_beside(((const flyt_region_lock_args *)args)->offset_bytes);
    if (procedure == FLYT_REGION_UNLOCK)
        ((flyt_region_unlock_res *)res)->result = unlock(((const flyt_region_unlock_args *)args)->offset_bytes);
    if (procedure == FLYT_COPY_IN_TRANSFER)
        transfer_id = ((const flyt_copy_in_transfer_args *)args)->transfer_id;
    if (procedure == FLYT_STREAM_SYNCHRONIZE && transfer_id) { /* the stream has reached the copy */
        fake.handlers->pull(fake.user, transfer_id);
        transfer_id = 0;
    }
    if (procedure == FLYT_MEMORY_ALLOC) {
        ((flyt_memory_alloc_res *)res)->address = next_address;
        next_address += 1 << 24;
    }
}

static void *alloc(void)
{
    void *address;
    assert_int_equal(flyt_host_alloc(BYTES, 0, &address), CUDA_SUCCESS);
    return address;
}

static void copy_in(CUdeviceptr device, const void *host)
{
    struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, (uint64_t)(uintptr_t)host, BYTES);
    assert_int_equal(flyt_copy(&copy, NULL, false), CUDA_SUCCESS);
}

static void pages_are_locked_where_they_are_used(void **state)
{
    CUdeviceptr device;
    assert_int_equal(flyt_memory_alloc(BYTES, &device), CUDA_SUCCESS);
    fake.region_at = 1;
    void *used = alloc(), *unused = alloc();
    assert_int_equal(servers[1].count, 2);
    unsigned before = fake.call_count[FLYT_COPY_IN_REGION];
    copy_in(device, used);
    fake.region_at = 2;
    copy_in(device, used);
    copy_in(device, used);
    assert_int_equal(servers[2].count, 1);
    assert_int_equal(fake.call_count[FLYT_COPY_IN_REGION], before + 3);
    /* Where it cannot be locked, or no server has it, the bytes travel. */
    fake.region_at = 3;
    refuses = true;
    copy_in(device, used);
    copy_in(device, used);
    refuses = false;
    fake.region_at = 0;
    copy_in(device, used);
    assert_int_equal(fake.call_count[FLYT_COPY_IN_REGION], before + 3);
    assert_int_equal(servers[3].count, 0);
    /* Back at a server that has it locked still, which nobody here knows. */
    fake.region_at = 2;
    assert_int_equal(flyt_host_free(used), CUDA_SUCCESS);
    assert_int_equal(flyt_host_free(unused), CUDA_SUCCESS);
    assert_int_equal(servers[2].count, 0);
    assert_ptr_equal(alloc(), used); /* the same pages, which are new */
    assert_int_equal(flyt_host_free(used), CUDA_SUCCESS);
}

static void *raced;
static pthread_t beside;
static atomic_int beside_number; /* of the thread, as the system knows it, once it asks */
static atomic_bool beside_is_shared, beside_has_answer;

static void *ask_beside(void *user)
{
    uint64_t server;
    flyt_thread_number();
    atomic_store(&beside_number, gettid());
    atomic_store(&beside_is_shared, flyt_host_is_shared((uint64_t)(uintptr_t)raced, &server));
    atomic_store(&beside_has_answer, true);
    return NULL;
}

static bool sleeps(int number)
{
    char path[64], state = 0;
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    const int found = fscanf(file, "%*d (%*[^)]) %c", &state);
    fclose(file);
    return found == 1 && state == 'S';
}

/* Till the other thread has its answer, or waits for this one's. */
static void race(void)
{
    on_lock = NULL;
    assert_int_equal(pthread_create(&beside, NULL, ask_beside, NULL), 0);
    while (!atomic_load(&beside_has_answer) && !(atomic_load(&beside_number) && sleeps(atomic_load(&beside_number))))
        sched_yield();
}

static void of_two_threads_one_asks(void **state)
{
    uint64_t server;
    fake.region_at = 1;
    raced = alloc();
    fake.region_at = 2;
    on_lock = race;
    const unsigned before = fake.call_count[FLYT_REGION_LOCK];
    assert_true(flyt_host_is_shared((uint64_t)(uintptr_t)raced, &server));
    assert_int_equal(pthread_join(beside, NULL), 0);
    assert_true(atomic_load(&beside_is_shared));
    assert_int_equal(fake.call_count[FLYT_REGION_LOCK], before + 1);
    assert_int_equal(flyt_host_free(raced), CUDA_SUCCESS);
}

/* By the GPU, where kernels have addresses of the memory, and the server is one that takes them. */
static void fills_are_sent_to_who_takes_them(void **state)
{
    CUdeviceptr device;
    fake.region_at = 1;
    fake.maps_region = true;
    unsigned char *memory = alloc();
    assert_int_equal(flyt_host_device_pointer(memory, 0, &device), CUDA_SUCCESS);
    const struct flyt_fill fill = {
        .address = device, .width = 16, .height = 1, .depth = 1, .element_bytes = 1, .value = 7};
    const unsigned before = fake.call_count[FLYT_MEMORY_SET];
    assert_int_equal(flyt_fill(&fill, NULL, true), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_MEMORY_SET], before);
    assert_int_equal(memory[15], 7); /* done here */
    fake.fills_region = true;
    assert_int_equal(flyt_fill(&fill, NULL, true), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_MEMORY_SET], before + 1);
    fake.maps_region = fake.fills_region = false;
    assert_int_equal(flyt_host_free(memory), CUDA_SUCCESS);
}

static void what_kernels_reach_is_locked_before(void **state)
{
    struct flyt_error err;
    struct flyt_restore restore = {.fresh = (struct flyt_channel *)&fake, .err = &err};
    CUdeviceptr device;
    fake.region_at = 1;
    fake.maps_region = true;
    void *one = alloc(), *two = alloc();
    const unsigned locked = servers[1].count;
    fake.region_at = 6;
    assert_int_equal(flyt_host_restore(&restore), 0); /* nothing is reached */
    assert_int_equal(servers[6].count, 0);
    fake.region_reach = FLYT_CHANNEL_REACH_UNKNOWN; /* a server that died: all is locked that can be */
    refuses = true;
    assert_int_equal(flyt_host_restore(&restore), 0);
    refuses = false;
    assert_int_equal(flyt_host_restore(&restore), 0);
    assert_int_equal(servers[6].count, 2);
    fake.maps_region = false;
    assert_int_equal(flyt_host_restore(&restore), 0);
    fake.maps_region = true;
    fake.region_reach = FLYT_CHANNEL_UNREACHED;
    fake.region_at = 2;
    unsigned before = fake.call_count[FLYT_REGION_REACH];
    assert_int_equal(flyt_host_device_pointer(one, 0, &device), CUDA_SUCCESS);
    assert_int_equal(flyt_host_device_pointer(two, 0, &device), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_REGION_REACH], before + 1);
    assert_int_equal(servers[2].count, 2); /* all of it, one being asked for */
    fake.region_at = 3;
    refuses = true;
    assert_int_equal(flyt_host_device_pointer(one, 0, &device), CUDA_ERROR_OUT_OF_MEMORY);
    refuses = false;
    assert_int_equal(flyt_host_restore(&restore), 0);
    assert_int_equal(servers[3].count, 2);
    assert_int_equal(flyt_host_device_pointer(one, 0, &device), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_REGION_REACH], before + 2);
    assert_int_equal(flyt_host_free(one), CUDA_SUCCESS);
    assert_int_equal(servers[3].count, 1);
    fake.maps_region = false;
    assert_int_equal(flyt_host_restore(&restore), -ENOTSUP);
    assert_non_null(strstr(err.text, "host memory"));
    assert_int_equal(flyt_host_free(two), CUDA_SUCCESS);
    assert_int_equal(servers[1].count, locked);
}

/* A VM's memory, which ends somewhere, and of which other programs have some. */
static void what_a_vm_has_no_room_for_is_staged(void **state)
{
    enum { ROOM = 8 };
    const struct flyt_region own = fake.region;
    CUdeviceptr device;
    void *pieces[ROOM], *further, *mapped;
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, FLYT_REGION_HEAD_BYTES + ROOM * BYTES), 0);
    assert_int_equal(flyt_region_of_vm(fd, &fake.region), 0);
    fake.region_at = 1;
    fake.maps_region = true;
    servers[1].count = 0;
    held_by_another = 3; /* other pages are found */
    pieces[0] = alloc();
    assert_int_equal(servers[1].count, 1);
    assert_int_equal(servers[1].offsets[0], FLYT_REGION_HEAD_BYTES + 3 * BYTES);
    for (unsigned i = 1; i < ROOM; i++)
        pieces[i] = alloc();
    assert_int_equal(servers[1].count, ROOM);
    further = alloc();
    assert_int_equal(servers[1].count, ROOM);
    assert_true((char *)further < fake.region.base || (char *)further >= fake.region.base + fake.region.bytes);
    assert_int_equal(flyt_host_device_pointer(further, 0, &device), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(flyt_host_alloc(BYTES, CU_MEMHOSTALLOC_DEVICEMAP, &mapped), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(flyt_host_device_pointer(pieces[0], 0, &device), CUDA_SUCCESS);
    assert_int_equal(flyt_host_free(further), CUDA_SUCCESS);
    assert_int_equal(flyt_host_free(pieces[2]), CUDA_SUCCESS);
    assert_int_equal(flyt_host_alloc(BYTES, CU_MEMHOSTALLOC_DEVICEMAP, &mapped), CUDA_SUCCESS);
    assert_ptr_equal(mapped, pieces[2]);
    pieces[2] = mapped;
    held_by_another = 1000; /* for ever */
    assert_int_equal(flyt_host_free(pieces[3]), CUDA_SUCCESS);
    pieces[3] = alloc();
    assert_int_equal(servers[1].count, ROOM - 1);
    held_by_another = 0;
    for (unsigned i = 0; i < ROOM; i++)
        assert_int_equal(flyt_host_free(pieces[i]), CUDA_SUCCESS);
    assert_int_equal(servers[1].count, 0);
    fake.maps_region = false;
    flyt_region_unmap(&fake.region);
    fake.region = own;
}

static int make(void **state)
{
    int fd;
    assert_int_equal(flyt_region_new(&fake.region, &fd), 0);
    close(fd);
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    return flyt_runtime_enter();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_locked_where_they_are_used), cmocka_unit_test(of_two_threads_one_asks),
        cmocka_unit_test(what_kernels_reach_is_locked_before),  cmocka_unit_test(fills_are_sent_to_who_takes_them),
        cmocka_unit_test(what_a_vm_has_no_room_for_is_staged),
    };
    return cmocka_run_group_tests(tests, make, NULL);
}
