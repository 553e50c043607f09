#include "cpu/server/test/fake_session.h"

#include <errno.h>
#include <sys/socket.h>

#include "cpu/server/move/out/copying.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/share/resize.h"
#include "cpu/server/process/parts.h"
#include "cpu/server/core/stream.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/test_random.h"

struct fake_session self;

uint64_t fake_session_random(void)
{
    return test_random_next(&self.random);
}

/* ---- the node manager ---- */

static void take_extent(const struct flyt_manager_link_extent *told, int fd)
{
    assert_in_range(self.extent_count, 0, EXTENTS_MAX - 1);
    struct fake_extent *extent = &self.extents[self.extent_count++];
    *extent = (struct fake_extent){.extent = *told, .fd = fd, .other_fd = -1, .is_there = true};
    if (self.take)
        self.take(extent);
}

static void forget(uint64_t extent_id)
{
    for (unsigned i = 0; i < self.extent_count; i++) {
        struct fake_extent *extent = &self.extents[i];
        if (!extent->is_there || extent->extent.extent_id != extent_id)
            continue;
        extent->is_there = false;
        close(extent->fd);
        flyt_close(extent->other_fd);
    }
}

void fake_session_listen(void)
{
    static struct flyt_manager_link_message message;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned count;
    while (flyt_manager_link_receive(self.fd, &message, fds, &count) == 0) {
        if (message.kind == FLYT_MANAGER_LINK_EXTENT)
            take_extent(&message.extent, fds[0]);
        if (message.kind == FLYT_MANAGER_LINK_EXTENT_GONE)
            forget(message.extent.extent_id);
        self.switched +=
            message.kind == FLYT_MANAGER_LINK_SM_DONE && message.sm_done.state == FLYT_MANAGER_LINK_SWITCHED;
        self.vacated += message.kind == FLYT_MANAGER_LINK_SM_DONE && message.sm_done.state == FLYT_MANAGER_LINK_VACATED;
    }
}

unsigned fake_session_count_extents(void)
{
    unsigned count = 0;
    fake_session_listen();
    for (unsigned i = 0; i < self.extent_count; i++)
        count += self.extents[i].is_there;
    return count;
}

unsigned fake_session_expected_extents(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < DEVICES; i++)
        count += self.session.devices[i].memory->extent_count;
    return count;
}

/* ---- the program ---- */

struct fake_block *fake_session_allocate(unsigned device, uint64_t bytes)
{
    struct fake_block *block = &self.blocks[self.block_count];
    assert_in_range(self.block_count, 0, BLOCKS_MAX - 1);
    *block = (struct fake_block){.device = &self.session.devices[device], .bytes = bytes};
    assert_ok(flyt_device_use(block->device));
    assert_ok(flyt_memory_alloc(block->device, bytes, &block->address));
    self.block_count++;
    fake_session_listen();
    return block;
}

void fake_session_free(unsigned i)
{
    struct fake_block *block = &self.blocks[i];
    /* The session does not know these streams, and so does not wait for them. */
    assert_ok(cuStreamSynchronize(self.writers[block->device->ordinal]));
    assert_ok(flyt_memory_free(block->device, block->address, ++self.sequence));
    *block = self.blocks[--self.block_count];
}

void fake_session_set(const struct fake_block *block, uint64_t at, unsigned value, uint64_t count)
{
    assert_ok(flyt_device_use(block->device));
    assert_ok(cuMemsetD32Async(block->address + at, value, count, self.writers[block->device->ordinal]));
}

void fake_session_write_somewhere(unsigned times)
{
    for (unsigned i = 0; i < times && self.block_count; i++) {
        const struct fake_block *block = &self.blocks[fake_session_random() % self.block_count];
        uint64_t at = fake_session_random() % (block->bytes / 4) * 4, count = 1 + fake_session_random() % (PAGE / 2);
        if (count > (block->bytes - at) / 4)
            count = (block->bytes - at) / 4;
        fake_session_set(block, at, (unsigned)(fake_session_random() % 3) * 0x01020304u, count);
    }
}

void fake_session_stand_still(void)
{
    for (unsigned i = 0; i < DEVICES; i++)
        assert_ok(cuStreamSynchronize(self.writers[i]));
    for (unsigned i = 0; i < DEVICES; i++)
        if (self.session.devices[i].scrub)
            assert_ok(cuStreamSynchronize(self.session.devices[i].scrub->cu_stream));
    flyt_session_poll_streams(&self.session);
}

/* ---- the session's thread ---- */

struct flyt_manager_link_move_state fake_session_state(void)
{
    struct flyt_manager_link_move_state state = {.move_id = 77, .elapsed_us = 88};
    flyt_copying_state(&self.session, &state);
    assert_int_equal(state.move_id, 77);
    assert_int_equal(state.elapsed_us, 88);
    assert_int_equal(state.page_bytes, PAGE);
    assert_true(state.pages_left <= state.pages_dirty);
    return state;
}

void fake_session_advance(void)
{
    flyt_copying_advance(&self.session);
    flyt_session_poll_streams(&self.session);
    flyt_resize_advance(&self.session);
}

void fake_session_end_copying(void)
{
    flyt_copying_end(&self.session);
    ADVANCE_UNTIL(!self.session.copying);
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    for (unsigned i = 0; i < DEVICES; i++)
        assert_int_equal(self.session.devices[i].copying_count, 0);
}

/* ---- before and after ---- */

int fake_session_begin(void **state)
{
    const struct flyt_manager_link_session granted = {.session_id = 1, .slot_count = DEVICES, .group_size = GROUP_SIZE};
    struct flyt_error err = {0};
    int fds[2];
    self.driver = fake_soft_driver;
    self.random = TEST_RANDOM_SEED;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
    self.fd = fds[0];
    assert_int_equal(flyt_session_init(&self.session, &self.driver, &flyt_parts, &err), 0);
    /* The session takes the standard descriptors for what kernels say; the test's own lines still belong outside. */
    dup2(self.session.print.output.before_fd, STDOUT_FILENO);
    dup2(self.session.print.error.before_fd, STDERR_FILENO);
    assert_int_equal(flyt_manager_open(&self.manager, fds[1], &granted, NULL), 0);
    self.session.manager = &self.manager;
    self.session.session_id = granted.session_id;
    self.session.is_scrubbing = true;
    self.session.device_count = DEVICES;
    for (unsigned i = DEVICES; i-- > 0;) {
        struct flyt_device *device;
        self.session.devices[i].slot = i;
        assert_ok(flyt_session_use_device(&self.session, i, &device));
        assert_ok(cuStreamCreate(&self.writers[i], CU_STREAM_NON_BLOCKING));
    }
    return 0;
}

int fake_session_end(void **state)
{
    flyt_session_fini(&self.session);
    close(self.fd);
    close(flyt_manager_change_link(&self.manager, -1));
    return 0;
}

int fake_session_with_cpu(void **state)
{
    self.driver = fake_soft_driver;
    self.is_late = false;
    return 0;
}

int fake_session_with_kernel(void **state)
{
    fake_session_with_cpu(state);
    self.driver.is_soft = false;
    return 0;
}

int fake_session_clean_up(void **state)
{
    flyt_fault_set(NULL);
    if (self.session.copying)
        fake_session_end_copying();
    while (self.block_count)
        fake_session_free(0);
    fake_session_stand_still();
    for (unsigned i = 0; i < DEVICES; i++) {
        assert_ok(flyt_device_use(&self.session.devices[i]));
        flyt_memory_give_back(&self.session.devices[i], false);
    }
    assert_int_equal(fake_session_count_extents(), 0);
    self.extent_count = 0;
    return 0;
}
