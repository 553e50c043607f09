/*
 * A session's memory on two software GPUs, copied to a third while it is written, made and given back; what has arrived
 * is compared on the CPU, byte by byte, through the descriptors of both sides. The test is the session's own thread,
 * its program, and the node manager. All of it with the kernel, and with the CPU that stands in for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/server/move/out/copier.h"
#include "cpu/server/move/out/copying.h"
#include "cpu/server/test/fake_session.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/share/resize.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/core/submit.h"
#include "rpc/base/fault_point.h"

enum {
    TARGET = DEVICES, /* the GPU where the mirrors are */
    GRANULE = 2 << 20,
};

/* ---- the node manager ---- */

static int make_target(uint64_t bytes)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = TARGET}};
    CUmemGenericAllocationHandle handle;
    int fd = -1;
    assert_ok(cuMemCreate(&handle, bytes, &properties, 0));
    assert_ok(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    assert_ok(cuMemRelease(handle));
    /* What was there before is not what is there after a copy. */
    unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 0xee, bytes);
    munmap(memory, bytes);
    return fd;
}

static void deliver(struct fake_extent *extent)
{
    if (!extent->is_there || extent->is_delivered)
        return;
    extent->is_delivered = true;
    flyt_copying_mirror(&self.session, &extent->extent, dup(extent->other_fd));
}

static void take(struct fake_extent *extent)
{
    extent->other_fd = make_target(extent->extent.bytes);
    if (self.session.copying && !self.is_late)
        deliver(extent);
}

static void deliver_all(void)
{
    fake_session_listen();
    for (unsigned i = 0; i < self.extent_count; i++)
        deliver(&self.extents[i]);
}

/* Both sides, as the CPU sees them. */
static bool is_equal(const struct fake_extent *extent)
{
    uint64_t bytes = extent->extent.bytes;
    void *source = mmap(NULL, bytes, PROT_READ, MAP_SHARED, extent->fd, 0);
    void *target = mmap(NULL, bytes, PROT_READ, MAP_SHARED, extent->other_fd, 0);
    assert_true(source != MAP_FAILED && target != MAP_FAILED);
    bool answer = memcmp(source, target, bytes) == 0;
    munmap(source, bytes);
    munmap(target, bytes);
    return answer;
}

static void assert_all_equal(void)
{
    unsigned count = 0;
    fake_session_listen();
    for (unsigned i = 0; i < self.extent_count; i++) {
        if (!self.extents[i].is_there)
            continue;
        count++;
        assert_true(is_equal(&self.extents[i]));
    }
    assert_int_equal(count, fake_session_expected_extents());
}

/* ---- the session's thread ---- */

static void begin(void)
{
    const struct flyt_manager_link_move move = {.move_id = ++self.move_id,
                                                .kind = FLYT_MANAGER_LINK_MOVE_MIRROR,
                                                .rounds_max = 8,
                                                .rest_bytes = 4 * PAGE,
                                                .slowdown_pct = 50};
    struct flyt_error err = {0};
    fake_session_listen();
    for (unsigned i = 0; i < self.extent_count; i++)
        self.extents[i].is_delivered = false;
    assert_ok(flyt_copying_begin(&self.session, &move, &err));
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    assert_string_equal(flyt_copying_sentence(&self.session), "");
}

static void finish(void)
{
    fake_session_stand_still();
    flyt_copying_finish(&self.session);
    if (flyt_copying_result(&self.session) == -EAGAIN)
        assert_int_equal(fake_session_state().phase, FLYT_MANAGER_LINK_MOVE_LAST);
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
}

static void finish_well(void)
{
    finish();
    assert_string_equal(flyt_copying_sentence(&self.session), "");
    assert_int_equal(flyt_copying_result(&self.session), 0);
    assert_all_equal();
}

static int begin_session(void **state)
{
    self.take = take;
    return fake_session_begin(state);
}

/* ---- tests ---- */

static void mirrors_become_what_is_there(void **state)
{
    fake_session_allocate(0, 9 << 20);
    fake_session_allocate(0, 70000);
    fake_session_allocate(1, 3 << 20);
    fake_session_write_somewhere(200);
    begin();
    assert_int_equal(fake_session_state().phase, FLYT_MANAGER_LINK_MOVE_COPYING);
    deliver_all();
    for (unsigned i = 0; i < 60; i++) {
        fake_session_write_somewhere(4);
        fake_session_advance();
    }
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    struct flyt_manager_link_move_state ready = fake_session_state();
    uint64_t pages = 0;
    for (unsigned i = 0; i < DEVICES; i++)
        pages += self.session.devices[i].memory->extent_bytes / PAGE;
    assert_int_equal(ready.pages_count, pages);
    assert_in_range(ready.round, 2, 8);
    assert_true(ready.copied_bytes >= pages * PAGE);
    assert_int_equal(ready.outcome, 0);
    finish_well();
    assert_true(flyt_copying_pages_last(&self.session) <= pages);
    fake_session_end_copying();
}

/* The next one starts from nothing, at the same addresses. */
static void a_second_move_is_like_the_first(void **state)
{
    fake_session_allocate(0, 4 << 20);
    for (unsigned i = 0; i < 2; i++) {
        fake_session_write_somewhere(50);
        begin();
        deliver_all();
        ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
        finish_well();
        fake_session_end_copying();
        /* Into other memory than before. */
        for (unsigned n = 0; n < self.extent_count; n++) {
            close(self.extents[n].other_fd);
            self.extents[n].other_fd = make_target(self.extents[n].extent.bytes);
        }
    }
}

/* How many pages the last rounds copy is told, and that they are few where little was changed. */
static void the_last_rounds_copy_what_was_changed(void **state)
{
    fake_session_allocate(0, 6 << 20);
    fake_session_write_somewhere(50);
    begin();
    deliver_all();
    fake_session_stand_still();
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    ADVANCE_UNTIL(fake_session_state().pages_dirty == 0);
    assert_ok(flyt_device_use(self.blocks[0].device));
    assert_ok(cuMemsetD32Async(self.blocks[0].address + PAGE - 4, 0x55aa55aa, 2, self.writers[0]));
    assert_ok(cuMemsetD32Async(self.blocks[0].address + 40 * PAGE, 0x55aa55aa, 1, self.writers[0]));
    finish_well();
    assert_int_equal(flyt_copying_pages_last(&self.session), 3);
    fake_session_end_copying();
}

static void an_empty_session_is_exact(void **state)
{
    begin();
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    finish_well();
    assert_int_equal(flyt_copying_pages_last(&self.session), 0);
    fake_session_end_copying();
}

/* No mirror comes any more for what is given back before. */
static void a_session_that_becomes_empty_is_ready(void **state)
{
    self.is_late = true;
    fake_session_allocate(0, 4 << 20);
    begin();
    for (unsigned i = 0; i < 10; i++)
        fake_session_advance();
    assert_int_equal(fake_session_state().phase, FLYT_MANAGER_LINK_MOVE_COPYING);
    fake_session_free(0);
    assert_ok(flyt_device_use(&self.session.devices[0]));
    while (self.session.devices[0].memory->extent_count) {
        fake_session_advance();
        flyt_memory_give_back(&self.session.devices[0], false);
    }
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    finish_well();
    fake_session_end_copying();
}

/* Memory is made and given back in the middle of rounds, and mirrors come late. */
static void extents_come_and_go(void **state)
{
    self.is_late = true;
    begin();
    for (unsigned i = 0; i < 400; i++) {
        uint64_t what = fake_session_random() % 8;
        if (what < 2 && self.block_count < BLOCKS_MAX - 4)
            fake_session_allocate((unsigned)(fake_session_random() % DEVICES),
                                  4096 + fake_session_random() % (5 << 20));
        if (what == 2 && self.block_count)
            fake_session_free((unsigned)(fake_session_random() % self.block_count));
        if (what == 3) {
            struct flyt_device *device = &self.session.devices[fake_session_random() % DEVICES];
            assert_ok(flyt_device_use(device));
            flyt_memory_give_back(device, false);
        }
        if (what == 4)
            deliver_all();
        fake_session_write_somewhere(2);
        fake_session_advance();
        if (self.extent_count > EXTENTS_MAX - 64)
            break;
    }
    deliver_all();
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    fake_session_write_somewhere(20);
    finish_well();
    fake_session_end_copying();
}

/* What is free and being read is unmapped when it is not being read any more. */
static void memory_that_is_read_stays(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    fake_session_allocate(0, 32 << 20);
    fake_session_stand_still();
    begin();
    deliver_all();
    bool has_met = false;
    for (unsigned i = 0; i < 200 && !has_met; i++) {
        fake_session_advance();
        has_met = device->copying_count;
    }
    assert_true(has_met);
    fake_session_free(0);
    assert_ok(flyt_device_use(device));
    unsigned before = fake_session_count_extents();
    flyt_memory_give_back(device, false);
    if (self.driver.is_soft) /* this thread hashes: it has not yet */
        assert_int_equal(fake_session_count_extents(), before);
    ADVANCE_UNTIL(!device->copying_count);
    assert_ok(flyt_device_use(device));
    flyt_memory_give_back(device, false);
    assert_int_equal(fake_session_count_extents(), 0);
    finish_well();
    fake_session_end_copying();
}

/* An allocation that needs the room of what is free and being read waits for that, and gets it. */
static void room_that_is_read_is_waited_for(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    uint64_t address = 0;
    fake_session_allocate(0, 56 << 20);
    fake_session_stand_still();
    begin();
    deliver_all();
    ADVANCE_UNTIL(device->copying_count);
    fake_session_free(0);
    assert_ok(flyt_device_use(device));
    CUresult result = flyt_memory_alloc(device, 70 << 20, &address); /* of 96 */
    if (self.driver.is_soft)
        assert_int_equal(result, CUDA_ERROR_NOT_READY);
    ADVANCE_UNTIL(result != CUDA_ERROR_NOT_READY ||
                  (result = flyt_memory_alloc(device, 70 << 20, &address)) != CUDA_ERROR_NOT_READY);
    assert_ok(result);
    assert_int_equal(fake_session_count_extents(), 1);
    self.blocks[self.block_count++] = (struct fake_block){.device = device, .address = address, .bytes = 70 << 20};
    fake_session_write_somewhere(20);
    finish_well();
    fake_session_end_copying();
}

/* Where SMs are shared nothing is given to the GPU out of turn; a suspended VM has none, and is copied all the same. */
static void a_closed_gate_is_waited_at(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    fake_session_allocate(0, 4 << 20);
    fake_session_stand_still();
    begin();
    deliver_all();
    device->time_slice_gate.is_closed = true;
    for (unsigned i = 0; i < 100; i++)
        fake_session_advance();
    assert_int_equal(fake_session_state().copied_bytes, 0);
    assert_int_equal(device->copying_count, 0);
    device->time_slice_gate.is_suspended = true;
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    device->time_slice_gate.is_suspended = false;
    fake_session_stand_still();
    flyt_copying_finish(&self.session);
    for (unsigned i = 0; i < 100; i++)
        fake_session_advance();
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    device->time_slice_gate.is_closed = false;
    finish_well();
    fake_session_end_copying();
}

static void an_extent_without_a_mirror_is_waited_for(void **state)
{
    fake_session_allocate(0, 4 << 20);
    fake_session_write_somewhere(20);
    begin();
    deliver_all();
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    self.is_late = true;
    fake_session_allocate(1, 8 << 20);
    fake_session_write_somewhere(20);
    assert_int_equal(fake_session_state().phase, FLYT_MANAGER_LINK_MOVE_COPYING);
    fake_session_stand_still();
    flyt_copying_finish(&self.session);
    for (unsigned i = 0; i < 500; i++) {
        fake_session_advance();
        usleep(20);
    }
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    deliver_all();
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
    assert_int_equal(flyt_copying_result(&self.session), 0);
    assert_all_equal();
    fake_session_end_copying();
}

/* It comes while a last round is under way that does not know it. */
static void a_mirror_comes_during_the_last_round(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    fake_session_allocate(0, 24 << 20);
    fake_session_write_somewhere(20);
    begin();
    deliver_all();
    fake_session_stand_still();
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY && fake_session_state().pages_dirty == 0);
    self.is_late = true;
    fake_session_allocate(1, 4 << 20);
    fake_session_stand_still();
    flyt_copying_finish(&self.session);
    /* This round finds all that it knows as it was copied. */
    ADVANCE_UNTIL(device->copying_count && fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_LAST);
    deliver_all();
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
    assert_int_equal(flyt_copying_result(&self.session), 0);
    assert_all_equal();
    fake_session_end_copying();
}

static void the_program_goes_on_after_all(void **state)
{
    fake_session_allocate(0, 6 << 20);
    fake_session_write_somewhere(20);
    begin();
    deliver_all();
    finish_well();
    flyt_copying_go_on(&self.session);
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    for (unsigned i = 0; i < 20; i++) {
        fake_session_write_somewhere(5);
        fake_session_advance();
    }
    fake_session_allocate(1, 100000);
    deliver_all();
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    fake_session_write_somewhere(5);
    finish_well();
    /* And in the middle of the last rounds. */
    flyt_copying_go_on(&self.session);
    fake_session_write_somewhere(100);
    fake_session_stand_still();
    flyt_copying_finish(&self.session);
    fake_session_advance();
    flyt_copying_go_on(&self.session);
    fake_session_write_somewhere(100);
    finish_well();
    fake_session_end_copying();
}

static void order_sms(struct flyt_device *device, unsigned groups, uint64_t revision)
{
    struct flyt_manager_link_sm order = {.revision = revision, .slot = device->slot};
    for (unsigned i = 0; i < 8 * sizeof groups; i++)
        if (groups >> i & 1) {
            flyt_manager_link_add_group(order.groups, i);
            order.sm_count += GROUP_SIZE;
        }
    assert_ok(flyt_device_use(device));
    flyt_resize_take(device, &order);
}

static void sms_change_meanwhile(void **state)
{
    unsigned revision = 0;
    fake_session_allocate(0, 20 << 20);
    fake_session_write_somewhere(20);
    begin();
    deliver_all();
    self.switched = self.vacated = 0;
    for (unsigned i = 0; i < 60; i++) {
        fake_session_write_somewhere(2);
        fake_session_advance();
        if (i % 10 == 3)
            order_sms(&self.session.devices[0], 1u << (1 + i / 10 % 3), ++revision);
    }
    ADVANCE_UNTIL(!self.session.left_count && !flyt_copying_holds_sms(&self.session.devices[0]));
    fake_session_listen();
    assert_int_equal(self.switched, revision);
    assert_in_range(self.vacated, 1, revision);
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    fake_session_write_somewhere(20);
    finish_well();
    fake_session_end_copying();
}

static uint64_t fake_ns;

static uint64_t fake_clock(void)
{
    return fake_ns;
}

static CUresult set_some(void *user, struct flyt_stream *stream)
{
    const struct fake_block *block = user;
    return cuMemsetD8Async(block->address, 1, 64, stream->cu_stream);
}

/* While the program uses the GPU one batch makes the next one wait; without it none does. */
static void a_busy_program_is_spared(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    uint64_t (*clock_ns)(void) = self.session.clock_ns;
    fake_session_allocate(0, 64 << 20); /* four batches on the CPU */
    fake_session_stand_still();
    fake_ns = clock_ns();
    self.session.clock_ns = fake_clock;
    begin();
    deliver_all();
    assert_ok(flyt_stream_submit(device->legacy, 1, FLYT_SUBMIT_WORK, device, set_some, &self.blocks[0]));
    assert_int_equal(device->busy_count, 1);
    uint64_t copied = 0;
    for (unsigned i = 0; i < RETRIES_MAX && !copied; i++) {
        fake_ns++; /* not so long as the pause */
        flyt_copying_advance(&self.session);
        copied = fake_session_state().copied_bytes;
        usleep(10);
    }
    assert_in_range(copied, 1, 16 << 20);
    for (unsigned i = 0; i < 100; i++) {
        flyt_copying_advance(&self.session);
        usleep(10);
    }
    assert_int_equal(fake_session_state().copied_bytes, copied);
    assert_int_equal(device->copying_count, 0);
    /* The program has left the GPU to itself for long enough: though the clock stands, all is copied. */
    ADVANCE_UNTIL(flyt_stream_query(device->legacy) == CUDA_SUCCESS);
    assert_int_equal(device->busy_count, 0);
    fake_ns += FLYT_COPIER_QUIET_NS + 1;
    ADVANCE_UNTIL(fake_session_state().copied_bytes >= 64 << 20);
    self.session.clock_ns = clock_ns;
    finish_well();
    fake_session_end_copying();
}

/* A look has seen all pages, and is not over when the program stops, for the GPU's time is another's: what was written
 * since is found. */
static void a_look_of_before_proves_nothing(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    uint64_t (*clock_ns)(void) = self.session.clock_ns;
    fake_session_allocate(0, 4 << 20);
    fake_session_write_somewhere(50);
    begin();
    deliver_all();
    fake_session_stand_still();
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    ADVANCE_UNTIL(fake_session_state().pages_dirty == 0);
    fake_ns = clock_ns();
    self.session.clock_ns = fake_clock;
    for (unsigned i = 0; i < 100; i++) { /* no round is under way when it stands */
        flyt_copying_advance(&self.session);
        usleep(10);
    }
    fake_ns += 1000000000;
    for (unsigned i = 0; i < RETRIES_MAX && !device->copying_count; i++)
        flyt_copying_advance(&self.session);
    assert_int_equal(device->copying_count, 1);
    device->time_slice_gate.is_closed = true;
    for (unsigned i = 0; i < RETRIES_MAX && device->copying_count; i++) {
        flyt_copying_advance(&self.session);
        usleep(10);
    }
    assert_int_equal(device->copying_count, 0);
    self.session.clock_ns = clock_ns;
    assert_ok(flyt_device_use(device));
    assert_ok(cuMemsetD32Async(self.blocks[0].address + 40 * PAGE, 0x55aa55aa, 1, self.writers[0]));
    fake_session_stand_still();
    flyt_copying_finish(&self.session);
    for (unsigned i = 0; i < 10; i++)
        flyt_copying_advance(&self.session);
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    device->time_slice_gate.is_closed = false;
    finish_well();
    fake_session_end_copying();
}

static void what_is_no_memory_is_refused(void **state)
{
    fake_session_allocate(0, 4 << 20);
    begin();
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    flyt_copying_mirror(&self.session, &self.extents[0].extent, fds[0]);
    assert_int_equal(close(fds[0]), -1); /* it was */
    close(fds[1]);
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    assert_non_null(strstr(flyt_copying_sentence(&self.session), "cannot be imported"));
    assert_int_equal(fake_session_state().outcome, -EINVAL);
    finish();
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    fake_session_end_copying();
    /* Memory of another size. */
    begin();
    flyt_copying_mirror(&self.session, &self.extents[0].extent, make_target(2 * self.extents[0].extent.bytes));
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    fake_session_end_copying();
    /* For an extent that is not as it says. */
    begin();
    struct flyt_manager_link_extent other = self.extents[0].extent;
    other.address += GRANULE;
    flyt_copying_mirror(&self.session, &other, dup(self.extents[0].other_fd));
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    fake_session_end_copying();
    /* Twice for one. */
    begin();
    deliver_all();
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    flyt_copying_mirror(&self.session, &self.extents[0].extent, dup(self.extents[0].other_fd));
    assert_int_equal(flyt_copying_result(&self.session), -EEXIST);
    fake_session_end_copying();
    /* For one that is gone, or when nothing is copied: nothing happens. */
    begin();
    other = self.extents[0].extent;
    other.extent_id += 1000;
    flyt_copying_mirror(&self.session, &other, dup(self.extents[0].other_fd));
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    deliver_all();
    finish_well();
    fake_session_end_copying();
    flyt_copying_mirror(&self.session, &other, dup(self.extents[0].other_fd));
    flyt_copying_extent_gone(&self.session, 1);
    flyt_copying_end(&self.session);
}

static CUresult no_peer(int *ret_can, CUdevice device, CUdevice connection)
{
    *ret_can = 0;
    return CUDA_SUCCESS;
}

static void gpus_that_are_no_peers_are_named(void **state)
{
    self.driver.cuDeviceCanAccessPeer = no_peer;
    fake_session_allocate(1, 4 << 20);
    begin();
    deliver_all();
    assert_int_equal(flyt_copying_result(&self.session), -ENOLINK);
    assert_string_equal(flyt_copying_sentence(&self.session), "GPU 1 cannot reach the memory of GPU 2");
    fake_session_end_copying();
}

static void what_changes_by_itself_is_an_error(void **state)
{
    fake_session_allocate(0, 4 << 20);
    begin();
    deliver_all();
    fake_session_stand_still();
    flyt_copying_finish(&self.session);
    unsigned value = 0;
    ADVANCE_UNTIL((cuMemsetD32Async(self.blocks[0].address, ++value, 1, self.writers[0]),
                   cuStreamSynchronize(self.writers[0]), flyt_copying_result(&self.session) != -EAGAIN));
    assert_int_equal(flyt_copying_result(&self.session), -EIO);
    assert_string_equal(flyt_copying_sentence(&self.session),
                        "memory changes though nothing of the session runs any more");
    fake_session_end_copying();
}

static void steps_fail_where_a_test_wants_it(void **state)
{
    static const char *const points[] = {"copying.mirror:error", "copying.round:error:2", "copying.last:error"};
    fake_session_allocate(0, 4 << 20);
    for (unsigned i = 0; i < sizeof points / sizeof points[0]; i++) {
        assert_int_equal(flyt_fault_set(points[i]), 0);
        begin();
        deliver_all();
        assert_int_equal(flyt_copying_result(&self.session), i ? -EAGAIN : -EIO);
        if (i == 1)
            ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
        finish();
        assert_int_equal(flyt_copying_result(&self.session), -EIO);
        assert_true(*flyt_copying_sentence(&self.session));
        fake_session_end_copying();
    }
}

static CUresult query_unknown(CUevent event)
{
    return CUDA_ERROR_UNKNOWN;
}

/* What a batch has come to is not known: nothing of it counts as copied, and the session is over. */
static void an_unknown_answer_ends_the_session(void **state)
{
    fake_session_allocate(0, 4 << 20);
    fake_session_stand_still(); /* only the copiers have something to ask */
    begin();
    deliver_all();
    self.driver.cuEventQuery = query_unknown;
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
    assert_int_equal(flyt_copying_result(&self.session), -EIO);
    assert_int_equal(self.session.fatal, CUDA_ERROR_UNKNOWN);
    /* The other tests have the session, too. */
    self.driver.cuEventQuery = fake_soft_driver.cuEventQuery;
    self.session.fatal = CUDA_SUCCESS;
    fake_session_end_copying();
}

static void other_moves_are_refused(void **state)
{
    const struct flyt_manager_link_move give = {.move_id = 5, .kind = FLYT_MANAGER_LINK_MOVE_GIVE};
    const struct flyt_manager_link_move mirror = {.move_id = 5, .kind = FLYT_MANAGER_LINK_MOVE_MIRROR};
    struct flyt_error err = {0};
    assert_int_equal(flyt_copying_begin(&self.session, &give, &err), CUDA_ERROR_INVALID_VALUE);
    assert_true(*err.text);
    begin();
    assert_int_equal(flyt_copying_begin(&self.session, &mirror, &err), CUDA_ERROR_NOT_READY);
    fake_session_end_copying();
}

/* Extents go while they are looked at. */
static void what_has_gone_is_not_ahead(void **state)
{
    struct flyt_copier copier = {.copies_early = true, .step = FLYT_COPIER_LOOKS};
    copier.table.pages_count = 50;
    copier.runs.compared_count = 20;
    assert_int_equal(flyt_copier_pages_ahead(&copier), 30);
    copier.runs.compared_count = 90;
    assert_int_equal(flyt_copier_pages_ahead(&copier), 0);
    copier.runs.compared_count = 20;
    copier.step = FLYT_COPIER_COPIES;
    assert_int_equal(flyt_copier_pages_ahead(&copier), 0);
}

int main(void)
{
    setenv("FLYT_SOFT_DEVICES", "3", 1);
    setenv("FLYT_SOFT_MEMORY", "96M", 1);
    const struct CMUnitTest tests[] = {
        TEST(mirrors_become_what_is_there),
        TEST(a_second_move_is_like_the_first),
        TEST(the_last_rounds_copy_what_was_changed),
        TEST(an_empty_session_is_exact),
        TEST(a_session_that_becomes_empty_is_ready),
        TEST(extents_come_and_go),
        TEST(memory_that_is_read_stays),
        TEST(room_that_is_read_is_waited_for),
        TEST(a_closed_gate_is_waited_at),
        TEST(an_extent_without_a_mirror_is_waited_for),
        TEST(a_mirror_comes_during_the_last_round),
        TEST(the_program_goes_on_after_all),
        TEST(sms_change_meanwhile),
        CPU(a_busy_program_is_spared),
        CPU(a_look_of_before_proves_nothing),
        TEST(what_is_no_memory_is_refused),
        TEST(gpus_that_are_no_peers_are_named),
        TEST(what_changes_by_itself_is_an_error),
        TEST(steps_fail_where_a_test_wants_it),
        TEST(an_unknown_answer_ends_the_session),
        TEST(other_moves_are_refused),
        cmocka_unit_test(what_has_gone_is_not_ahead),
    };
    return cmocka_run_group_tests(tests, begin_session, fake_session_end);
}
