/*
 * A session's memory on two software GPUs, copied to a third while it is written, made and given back; what has arrived
 * is compared on the CPU, byte by byte, through the descriptors of both sides. The test is the session's own thread,
 * its program, and the node manager. All of it with the kernel, and with the CPU that stands in for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/copier.h"
#include "cpu/server/copying.h"
#include "cpu/server/session.h"
#include "cpu/server/stream.h"
#include "rpc/base/fault_point.h"

enum {
    DEVICES = 2, /* of the session */
    TARGET = 2,  /* where the mirrors are */
    EXTENTS_MAX = 512,
    BLOCKS_MAX = 24,
    GRANULE = 2 << 20,
    PAGE = FLYT_PAGE_BYTES,
    GROUP_SIZE = 8,
    PATIENCE = 1000 * 1000, /* rounds of a loop that pauses */
};

#define assert_ok(call) assert_int_equal((call), CUDA_SUCCESS)

#define X(name) .name = name,
static struct flyt_driver driver = {FLYT_DRIVER_FUNCTIONS(X).is_soft = true};
#undef X

/* As the node manager knows it. */
struct extent {
    struct flyt_server_link_extent extent;
    int source_fd, target_fd;
    bool is_there, is_delivered;
};

struct block {
    struct flyt_device *device;
    uint64_t address, bytes;
};

static struct fixture {
    struct flyt_session session;
    struct flyt_manager manager;
    int fd; /* the node manager's end */
    CUstream writers[DEVICES];
    struct extent extents[EXTENTS_MAX];
    unsigned extent_count;
    struct block blocks[BLOCKS_MAX];
    unsigned block_count;
    uint64_t random, sequence, move_id;
    unsigned switched, vacated;
    bool is_late; /* mirrors come when the test says so */
} self;

static uint64_t next_random(void)
{
    self.random ^= self.random << 13;
    self.random ^= self.random >> 7;
    self.random ^= self.random << 17;
    return self.random;
}

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

static void deliver(struct extent *extent)
{
    if (!extent->is_there || extent->is_delivered)
        return;
    extent->is_delivered = true;
    flyt_copying_mirror(&self.session, &extent->extent, dup(extent->target_fd));
}

static void take_extent(const struct flyt_server_link_extent *told, int fd)
{
    assert_in_range(self.extent_count, 0, EXTENTS_MAX - 1);
    struct extent *extent = &self.extents[self.extent_count++];
    *extent =
        (struct extent){.extent = *told, .source_fd = fd, .target_fd = make_target(told->bytes), .is_there = true};
    if (self.session.copying && !self.is_late)
        deliver(extent);
}

static void forget(struct extent *extent)
{
    if (!extent->is_there)
        return;
    extent->is_there = false;
    close(extent->source_fd);
    close(extent->target_fd);
}

/* What the server has said. */
static void listen_to_server(void)
{
    static struct flyt_server_link_message message;
    int fds[FLYT_SERVER_LINK_DESCRIPTORS_MAX];
    unsigned count;
    while (flyt_server_link_receive(self.fd, &message, fds, &count) == 0) {
        if (message.kind == FLYT_SERVER_LINK_EXTENT)
            take_extent(&message.extent, fds[0]);
        for (unsigned i = 0; message.kind == FLYT_SERVER_LINK_EXTENT_GONE && i < self.extent_count; i++)
            if (self.extents[i].extent.extent_id == message.extent.extent_id)
                forget(&self.extents[i]);
        self.switched += message.kind == FLYT_SERVER_LINK_SM_DONE && message.sm_done.state == FLYT_SERVER_LINK_SWITCHED;
        self.vacated += message.kind == FLYT_SERVER_LINK_SM_DONE && message.sm_done.state == FLYT_SERVER_LINK_VACATED;
    }
}

static void deliver_all(void)
{
    listen_to_server();
    for (unsigned i = 0; i < self.extent_count; i++)
        deliver(&self.extents[i]);
}

static unsigned count_extents(void)
{
    unsigned count = 0;
    listen_to_server();
    for (unsigned i = 0; i < self.extent_count; i++)
        count += self.extents[i].is_there;
    return count;
}

/* Both sides, as the CPU sees them. */
static bool is_equal(const struct extent *extent)
{
    uint64_t bytes = extent->extent.bytes;
    void *source = mmap(NULL, bytes, PROT_READ, MAP_SHARED, extent->source_fd, 0);
    void *target = mmap(NULL, bytes, PROT_READ, MAP_SHARED, extent->target_fd, 0);
    assert_true(source != MAP_FAILED && target != MAP_FAILED);
    bool answer = memcmp(source, target, bytes) == 0;
    munmap(source, bytes);
    munmap(target, bytes);
    return answer;
}

static void assert_all_equal(void)
{
    unsigned count = 0;
    listen_to_server();
    for (unsigned i = 0; i < self.extent_count; i++) {
        if (!self.extents[i].is_there)
            continue;
        count++;
        assert_true(is_equal(&self.extents[i]));
    }
    unsigned expected = 0;
    for (unsigned i = 0; i < DEVICES; i++)
        expected += self.session.devices[i].memory.extent_count;
    assert_int_equal(count, expected);
}

/* ---- the program ---- */

static void allocate(unsigned device, uint64_t bytes)
{
    struct block *block = &self.blocks[self.block_count];
    assert_in_range(self.block_count, 0, BLOCKS_MAX - 1);
    *block = (struct block){.device = &self.session.devices[device], .bytes = bytes};
    assert_ok(flyt_device_use(block->device));
    assert_ok(flyt_memory_alloc(block->device, bytes, &block->address));
    self.block_count++;
    listen_to_server();
}

static void free_block(unsigned i)
{
    struct block *block = &self.blocks[i];
    /* The session does not know these streams, and so does not wait for them. */
    assert_ok(cuStreamSynchronize(self.writers[block->device->ordinal]));
    assert_ok(flyt_memory_free(block->device, block->address, ++self.sequence));
    *block = self.blocks[--self.block_count];
}

/* Fills a part of some block, with one of few values, so that pages also become what they were. */
static void write_somewhere(unsigned times)
{
    for (unsigned i = 0; i < times && self.block_count; i++) {
        const struct block *block = &self.blocks[next_random() % self.block_count];
        uint64_t at = next_random() % (block->bytes / 4) * 4, count = 1 + next_random() % (PAGE / 2);
        if (count > (block->bytes - at) / 4)
            count = (block->bytes - at) / 4;
        assert_ok(flyt_device_use(block->device));
        assert_ok(cuMemsetD32Async(block->address + at, (unsigned)(next_random() % 3) * 0x01020304u, count,
                                   self.writers[block->device->ordinal]));
    }
}

static void stand_still(void)
{
    for (unsigned i = 0; i < DEVICES; i++)
        assert_ok(cuStreamSynchronize(self.writers[i]));
    for (unsigned i = 0; i < DEVICES; i++)
        if (self.session.devices[i].scrub)
            assert_ok(cuStreamSynchronize(self.session.devices[i].scrub->cu_stream));
    flyt_session_poll_streams(&self.session);
}

/* ---- the session's thread ---- */

static void begin(void)
{
    const struct flyt_server_link_move move = {.move_id = ++self.move_id,
                                               .kind = FLYT_SERVER_LINK_MOVE_MIRROR,
                                               .rounds_max = 8,
                                               .rest_bytes = 4 * PAGE,
                                               .slowdown_pct = 50};
    struct flyt_error err = {0};
    listen_to_server();
    for (unsigned i = 0; i < self.extent_count; i++)
        self.extents[i].is_delivered = false;
    assert_ok(flyt_copying_begin(&self.session, &move, &err));
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    assert_string_equal(flyt_copying_sentence(&self.session), "");
}

static struct flyt_server_link_move_state state_now(void)
{
    struct flyt_server_link_move_state state = {.move_id = 77, .elapsed_us = 88};
    flyt_copying_state(&self.session, &state);
    assert_int_equal(state.move_id, 77);
    assert_int_equal(state.elapsed_us, 88);
    assert_int_equal(state.page_bytes, PAGE);
    assert_true(state.pages_left <= state.pages_dirty);
    return state;
}

static void advance(void)
{
    flyt_copying_advance(&self.session);
    flyt_session_poll_streams(&self.session);
    flyt_resize_advance(&self.session);
}

/* Until the condition holds: what is waited for comes, however slow the machine is. */
#define ADVANCE_UNTIL(condition)                                                                                       \
    do {                                                                                                               \
        unsigned patience_ = PATIENCE;                                                                                 \
        while (!(condition) && patience_--) {                                                                          \
            advance();                                                                                                 \
            usleep(20);                                                                                                \
        }                                                                                                              \
        assert_true(condition);                                                                                        \
    } while (0)

static void finish(void)
{
    stand_still();
    flyt_copying_finish(&self.session);
    if (flyt_copying_result(&self.session) == -EAGAIN)
        assert_int_equal(state_now().phase, FLYT_SERVER_LINK_MOVE_LAST);
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
}

static void finish_well(void)
{
    finish();
    assert_string_equal(flyt_copying_sentence(&self.session), "");
    assert_int_equal(flyt_copying_result(&self.session), 0);
    assert_all_equal();
}

static void end_copying(void)
{
    flyt_copying_end(&self.session);
    ADVANCE_UNTIL(!self.session.copying);
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    for (unsigned i = 0; i < DEVICES; i++)
        assert_int_equal(self.session.devices[i].copying_count, 0);
}

/* ---- fixture ---- */

static int begin_session(void **state)
{
    struct flyt_server_link_session granted = {.session_id = 1, .slot_count = DEVICES, .group_size = GROUP_SIZE};
    struct flyt_error err = {0};
    int fds[2];
    self.random = 88172645463325252ull;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
    self.fd = fds[0];
    assert_int_equal(flyt_session_init(&self.session, &driver, &err), 0);
    dup2(self.session.print.output.before_fd, STDOUT_FILENO);
    dup2(self.session.print.error.before_fd, STDERR_FILENO);
    assert_int_equal(flyt_manager_open(&self.manager, fds[1], &granted, NULL), 0);
    self.session.manager = &self.manager;
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

static int end_session(void **state)
{
    flyt_session_fini(&self.session);
    close(self.fd);
    close(flyt_manager_change_link(&self.manager, -1));
    return 0;
}

static int with_kernel(void **state)
{
    driver.is_soft = false;
    self.is_late = false;
    return 0;
}

static int with_cpu(void **state)
{
    driver.is_soft = true;
    self.is_late = false;
    return 0;
}

/* Nothing is left for the next test. */
static int clean_up(void **state)
{
    driver.cuDeviceCanAccessPeer = cuDeviceCanAccessPeer;
    flyt_fault_set(NULL);
    if (self.session.copying)
        end_copying();
    while (self.block_count)
        free_block(0);
    stand_still();
    for (unsigned i = 0; i < DEVICES; i++) {
        assert_ok(flyt_device_use(&self.session.devices[i]));
        flyt_memory_give_back(&self.session.devices[i], false);
    }
    assert_int_equal(count_extents(), 0);
    self.extent_count = 0;
    return 0;
}

/* ---- tests ---- */

static void mirrors_become_what_is_there(void **state)
{
    allocate(0, 9 << 20);
    allocate(0, 70000);
    allocate(1, 3 << 20);
    write_somewhere(200);
    begin();
    assert_int_equal(state_now().phase, FLYT_SERVER_LINK_MOVE_COPYING);
    deliver_all();
    for (unsigned i = 0; i < 60; i++) {
        write_somewhere(4);
        advance();
    }
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
    struct flyt_server_link_move_state ready = state_now();
    uint64_t pages = 0;
    for (unsigned i = 0; i < DEVICES; i++)
        pages += self.session.devices[i].memory.extent_bytes / PAGE;
    assert_int_equal(ready.pages_count, pages);
    assert_in_range(ready.round, 2, 8);
    assert_true(ready.copied_bytes >= pages * PAGE);
    assert_int_equal(ready.outcome, 0);
    finish_well();
    assert_true(flyt_copying_pages_last(&self.session) <= pages);
    end_copying();
}

/* The next one starts from nothing, at the same addresses. */
static void a_second_move_is_like_the_first(void **state)
{
    allocate(0, 4 << 20);
    for (unsigned i = 0; i < 2; i++) {
        write_somewhere(50);
        begin();
        deliver_all();
        ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
        finish_well();
        end_copying();
        /* Into other memory than before. */
        for (unsigned n = 0; n < self.extent_count; n++) {
            close(self.extents[n].target_fd);
            self.extents[n].target_fd = make_target(self.extents[n].extent.bytes);
        }
    }
}

/* How many pages the last rounds copy is told, and that they are few where little was changed. */
static void the_last_rounds_copy_what_was_changed(void **state)
{
    allocate(0, 6 << 20);
    write_somewhere(50);
    begin();
    deliver_all();
    stand_still();
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
    ADVANCE_UNTIL(state_now().pages_dirty == 0);
    assert_ok(flyt_device_use(self.blocks[0].device));
    assert_ok(cuMemsetD32Async(self.blocks[0].address + PAGE - 4, 0x55aa55aa, 2, self.writers[0]));
    assert_ok(cuMemsetD32Async(self.blocks[0].address + 40 * PAGE, 0x55aa55aa, 1, self.writers[0]));
    finish_well();
    assert_int_equal(flyt_copying_pages_last(&self.session), 3);
    end_copying();
}

static void an_empty_session_is_exact(void **state)
{
    begin();
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
    finish_well();
    assert_int_equal(flyt_copying_pages_last(&self.session), 0);
    end_copying();
}

/* No mirror comes any more for what is given back before. */
static void a_session_that_becomes_empty_is_ready(void **state)
{
    self.is_late = true;
    allocate(0, 4 << 20);
    begin();
    for (unsigned i = 0; i < 10; i++)
        advance();
    assert_int_equal(state_now().phase, FLYT_SERVER_LINK_MOVE_COPYING);
    free_block(0);
    assert_ok(flyt_device_use(&self.session.devices[0]));
    while (self.session.devices[0].memory.extent_count) {
        advance();
        flyt_memory_give_back(&self.session.devices[0], false);
    }
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
    finish_well();
    end_copying();
}

/* Memory is made and given back in the middle of rounds, and mirrors come late. */
static void extents_come_and_go(void **state)
{
    self.is_late = true;
    begin();
    for (unsigned i = 0; i < 400; i++) {
        uint64_t what = next_random() % 8;
        if (what < 2 && self.block_count < BLOCKS_MAX - 4)
            allocate((unsigned)(next_random() % DEVICES), 4096 + next_random() % (5 << 20));
        if (what == 2 && self.block_count)
            free_block((unsigned)(next_random() % self.block_count));
        if (what == 3) {
            struct flyt_device *device = &self.session.devices[next_random() % DEVICES];
            assert_ok(flyt_device_use(device));
            flyt_memory_give_back(device, false);
        }
        if (what == 4)
            deliver_all();
        write_somewhere(2);
        advance();
        if (self.extent_count > EXTENTS_MAX - 64)
            break;
    }
    deliver_all();
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
    write_somewhere(20);
    finish_well();
    end_copying();
}

/* What is free and being read is unmapped when it is not being read any more. */
static void memory_that_is_read_stays(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    allocate(0, 32 << 20);
    stand_still();
    begin();
    deliver_all();
    bool has_met = false;
    for (unsigned i = 0; i < 200 && !has_met; i++) {
        advance();
        has_met = device->copying_count;
    }
    assert_true(has_met);
    free_block(0);
    assert_ok(flyt_device_use(device));
    unsigned before = count_extents();
    flyt_memory_give_back(device, false);
    if (driver.is_soft) /* this thread hashes: it has not yet */
        assert_int_equal(count_extents(), before);
    ADVANCE_UNTIL(!device->copying_count);
    assert_ok(flyt_device_use(device));
    flyt_memory_give_back(device, false);
    assert_int_equal(count_extents(), 0);
    finish_well();
    end_copying();
}

/* An allocation that needs the room of what is free and being read waits for that, and gets it. */
static void room_that_is_read_is_waited_for(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    uint64_t address = 0;
    allocate(0, 160 << 20);
    stand_still();
    begin();
    deliver_all();
    ADVANCE_UNTIL(device->copying_count);
    free_block(0);
    assert_ok(flyt_device_use(device));
    CUresult result = flyt_memory_alloc(device, 200 << 20, &address); /* of 256 */
    if (driver.is_soft)
        assert_int_equal(result, CUDA_ERROR_NOT_READY);
    ADVANCE_UNTIL(result != CUDA_ERROR_NOT_READY ||
                  (result = flyt_memory_alloc(device, 200 << 20, &address)) != CUDA_ERROR_NOT_READY);
    assert_ok(result);
    assert_int_equal(count_extents(), 1);
    self.blocks[self.block_count++] = (struct block){.device = device, .address = address, .bytes = 200 << 20};
    write_somewhere(20);
    finish_well();
    end_copying();
}

/* Where SMs are shared nothing is given to the GPU out of turn; a suspended VM has none, and is copied all the same. */
static void a_closed_gate_is_waited_at(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    allocate(0, 4 << 20);
    stand_still();
    begin();
    deliver_all();
    device->turn.is_closed = true;
    for (unsigned i = 0; i < 100; i++)
        advance();
    assert_int_equal(state_now().copied_bytes, 0);
    assert_int_equal(device->copying_count, 0);
    device->turn.is_suspended = true;
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
    device->turn.is_suspended = false;
    stand_still();
    flyt_copying_finish(&self.session);
    for (unsigned i = 0; i < 100; i++)
        advance();
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    device->turn.is_closed = false;
    finish_well();
    end_copying();
}

static void an_extent_without_a_mirror_is_waited_for(void **state)
{
    allocate(0, 4 << 20);
    write_somewhere(20);
    begin();
    deliver_all();
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
    self.is_late = true;
    allocate(1, 8 << 20);
    write_somewhere(20);
    assert_int_equal(state_now().phase, FLYT_SERVER_LINK_MOVE_COPYING);
    stand_still();
    flyt_copying_finish(&self.session);
    for (unsigned i = 0; i < 500; i++) {
        advance();
        usleep(20);
    }
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    deliver_all();
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
    assert_int_equal(flyt_copying_result(&self.session), 0);
    assert_all_equal();
    end_copying();
}

/* It comes while a last round is under way that does not know it. */
static void a_mirror_comes_during_the_last_round(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    allocate(0, 24 << 20);
    write_somewhere(20);
    begin();
    deliver_all();
    stand_still();
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY && state_now().pages_dirty == 0);
    self.is_late = true;
    allocate(1, 4 << 20);
    stand_still();
    flyt_copying_finish(&self.session);
    /* This round finds all that it knows as it was copied. */
    ADVANCE_UNTIL(device->copying_count && state_now().phase == FLYT_SERVER_LINK_MOVE_LAST);
    deliver_all();
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
    assert_int_equal(flyt_copying_result(&self.session), 0);
    assert_all_equal();
    end_copying();
}

static void the_program_goes_on_after_all(void **state)
{
    allocate(0, 6 << 20);
    write_somewhere(20);
    begin();
    deliver_all();
    finish_well();
    flyt_copying_go_on(&self.session);
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    for (unsigned i = 0; i < 20; i++) {
        write_somewhere(5);
        advance();
    }
    allocate(1, 100000);
    deliver_all();
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
    write_somewhere(5);
    finish_well();
    /* And in the middle of the last rounds. */
    flyt_copying_go_on(&self.session);
    write_somewhere(100);
    stand_still();
    flyt_copying_finish(&self.session);
    advance();
    flyt_copying_go_on(&self.session);
    write_somewhere(100);
    finish_well();
    end_copying();
}

static void order_sms(struct flyt_device *device, unsigned groups, uint64_t revision)
{
    struct flyt_server_link_sm order = {.revision = revision, .slot = device->slot};
    for (unsigned i = 0; i < 8 * sizeof groups; i++)
        if (groups >> i & 1) {
            flyt_server_link_add_group(order.groups, i);
            order.sm_count += GROUP_SIZE;
        }
    assert_ok(flyt_device_use(device));
    flyt_resize_take(device, &order);
}

static void sms_change_meanwhile(void **state)
{
    unsigned revision = 0;
    allocate(0, 20 << 20);
    write_somewhere(20);
    begin();
    deliver_all();
    self.switched = self.vacated = 0;
    for (unsigned i = 0; i < 60; i++) {
        write_somewhere(2);
        advance();
        if (i % 10 == 3)
            order_sms(&self.session.devices[0], 1u << (1 + i / 10 % 3), ++revision);
    }
    ADVANCE_UNTIL(!self.session.left_count && !flyt_copying_holds_sms(&self.session.devices[0]));
    listen_to_server();
    assert_int_equal(self.switched, revision);
    assert_in_range(self.vacated, 1, revision);
    ADVANCE_UNTIL(state_now().phase == FLYT_SERVER_LINK_MOVE_READY);
    write_somewhere(20);
    finish_well();
    end_copying();
}

static uint64_t fake_ns;

static uint64_t fake_clock(void)
{
    return fake_ns;
}

/* While the program uses the GPU one batch makes the next one wait; without it none does. */
static void a_busy_program_is_spared(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    uint64_t (*clock_ns)(void) = self.session.clock_ns;
    allocate(0, 64 << 20); /* four batches on the CPU */
    stand_still();
    fake_ns = clock_ns();
    self.session.clock_ns = fake_clock;
    begin();
    deliver_all();
    assert_ok(flyt_device_use(device));
    assert_ok(flyt_stream_enter(device->legacy));
    assert_ok(flyt_stream_leave(device->legacy, 1,
                                cuMemsetD8Async(self.blocks[0].address, 1, 64, device->legacy->cu_stream)));
    assert_int_equal(device->busy_count, 1);
    uint64_t copied = 0;
    for (unsigned i = 0; i < 100000 && !copied; i++) {
        fake_ns += 1000; /* the batch takes time */
        flyt_copying_advance(&self.session);
        copied = state_now().copied_bytes;
        usleep(10);
    }
    assert_in_range(copied, 1, 16 << 20);
    for (unsigned i = 0; i < 100; i++) {
        flyt_copying_advance(&self.session);
        usleep(10);
    }
    assert_int_equal(state_now().copied_bytes, copied);
    assert_int_equal(device->copying_count, 0);
    /* The program has left the GPU to itself for long enough: though the clock stands, all is copied. */
    ADVANCE_UNTIL(flyt_stream_query(device->legacy) == CUDA_SUCCESS);
    assert_int_equal(device->busy_count, 0);
    fake_ns += FLYT_COPIER_QUIET_NS + 1;
    ADVANCE_UNTIL(state_now().copied_bytes >= 64 << 20);
    self.session.clock_ns = clock_ns;
    finish_well();
    end_copying();
}

static void what_is_no_memory_is_refused(void **state)
{
    allocate(0, 4 << 20);
    begin();
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    flyt_copying_mirror(&self.session, &self.extents[0].extent, fds[0]);
    assert_int_equal(close(fds[0]), -1); /* it was */
    close(fds[1]);
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    assert_non_null(strstr(flyt_copying_sentence(&self.session), "cannot be imported"));
    assert_int_equal(state_now().outcome, -EINVAL);
    finish();
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    end_copying();
    /* Memory of another size. */
    begin();
    flyt_copying_mirror(&self.session, &self.extents[0].extent, make_target(2 * self.extents[0].extent.bytes));
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    end_copying();
    /* For an extent that is not as it says. */
    begin();
    struct flyt_server_link_extent other = self.extents[0].extent;
    other.address += GRANULE;
    flyt_copying_mirror(&self.session, &other, dup(self.extents[0].target_fd));
    assert_int_equal(flyt_copying_result(&self.session), -EINVAL);
    end_copying();
    /* Twice for one. */
    begin();
    deliver_all();
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    flyt_copying_mirror(&self.session, &self.extents[0].extent, dup(self.extents[0].target_fd));
    assert_int_equal(flyt_copying_result(&self.session), -EEXIST);
    end_copying();
    /* For one that is gone, or when nothing is copied: nothing happens. */
    begin();
    other = self.extents[0].extent;
    other.extent_id += 1000;
    flyt_copying_mirror(&self.session, &other, dup(self.extents[0].target_fd));
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
    deliver_all();
    finish_well();
    end_copying();
    flyt_copying_mirror(&self.session, &other, dup(self.extents[0].target_fd));
    flyt_copying_extent_gone(&self.session, 1);
    flyt_copying_end(&self.session);
}

static CUresult no_peer(int *ret_can, CUdevice device, CUdevice peer)
{
    *ret_can = 0;
    return CUDA_SUCCESS;
}

static void gpus_that_are_no_peers_are_named(void **state)
{
    driver.cuDeviceCanAccessPeer = no_peer;
    allocate(1, 4 << 20);
    begin();
    deliver_all();
    assert_int_equal(flyt_copying_result(&self.session), -ENOTSUP);
    assert_string_equal(flyt_copying_sentence(&self.session), "GPU 1 cannot reach the memory of GPU 2");
    end_copying();
}

static void what_changes_by_itself_is_an_error(void **state)
{
    allocate(0, 4 << 20);
    begin();
    deliver_all();
    stand_still();
    flyt_copying_finish(&self.session);
    unsigned value = 0;
    ADVANCE_UNTIL((cuMemsetD32Async(self.blocks[0].address, ++value, 1, self.writers[0]),
                   cuStreamSynchronize(self.writers[0]), flyt_copying_result(&self.session) != -EAGAIN));
    assert_int_equal(flyt_copying_result(&self.session), -EIO);
    assert_string_equal(flyt_copying_sentence(&self.session),
                        "memory changes though nothing of the session runs any more");
    end_copying();
}

static void steps_fail_where_a_test_wants_it(void **state)
{
    static const char *const points[] = {"copying.mirror:error", "copying.round:error:2", "copying.last:error"};
    allocate(0, 4 << 20);
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
        end_copying();
    }
}

static void other_moves_are_refused(void **state)
{
    const struct flyt_server_link_move give = {.move_id = 5, .kind = FLYT_SERVER_LINK_MOVE_GIVE};
    const struct flyt_server_link_move mirror = {.move_id = 5, .kind = FLYT_SERVER_LINK_MOVE_MIRROR};
    struct flyt_error err = {0};
    assert_int_equal(flyt_copying_begin(&self.session, &give, &err), CUDA_ERROR_INVALID_VALUE);
    assert_true(*err.text);
    begin();
    assert_int_equal(flyt_copying_begin(&self.session, &mirror, &err), CUDA_ERROR_NOT_READY);
    end_copying();
}

int main(void)
{
    setenv("FLYT_SOFT_DEVICES", "3", 1);
    setenv("FLYT_SOFT_MEMORY", "256M", 1);
#define TEST(name)                                                                                                     \
    {"kernel: " #name, name, with_kernel, clean_up, NULL},                                                             \
    {                                                                                                                  \
        "CPU: " #name, name, with_cpu, clean_up, NULL                                                                  \
    }
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
        {"CPU: a_busy_program_is_spared", a_busy_program_is_spared, with_cpu, clean_up, NULL},
        TEST(what_is_no_memory_is_refused),
        TEST(gpus_that_are_no_peers_are_named),
        TEST(what_changes_by_itself_is_an_error),
        TEST(steps_fail_where_a_test_wants_it),
        TEST(other_moves_are_refused),
    };
    return cmocka_run_group_tests(tests, begin_session, end_session);
}
