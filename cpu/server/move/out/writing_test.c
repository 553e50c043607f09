/*
 * A session's memory on two software GPUs, written into images while it is written, made and given back; what an image
 * has is read with its reader and compared on the CPU, byte by byte, with the session's memory through its descriptors.
 * The test is the session's own thread, its program, and the node manager. All of it with the kernel that hashes, and
 * with the CPU that stands in for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/image/file.h"
#include "cpu/image/flatten.h"
#include "cpu/image/page_index.h"
#include "cpu/image/reader.h"
#include "cpu/image/verify.h"
#include "cpu/server/move/out/copying.h"
#include "cpu/server/test/fake_session.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/move/out/save.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/core/submit.h"
#include "rpc/base/fault_point.h"

enum { SEQUENCE = 4711, MIB = 1 << 20 };

static char folder[64], path[128]; /* of the image */
static bool is_flat;               /* it was made of several */

/* ---- the session's thread ---- */

static struct flyt_manager_link_move move_of(enum flyt_checkpoint_packing packing)
{
    return (struct flyt_manager_link_move){.move_id = ++self.move_id,
                                           .kind = FLYT_MANAGER_LINK_MOVE_WRITE,
                                           .rounds_max = 8,
                                           .rest_bytes = 4 * PAGE,
                                           .slowdown_pct = 50,
                                           .packing = packing};
}

/* parent_fd: -1: on no earlier image. */
static void begin_upon(int fd, int parent_fd, enum flyt_checkpoint_packing packing)
{
    const struct flyt_manager_link_move move = move_of(packing);
    struct flyt_error err = {0};
    assert_ok(flyt_copying_begin_image(&self.session, &move, fd, parent_fd, &err));
    assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
}

static void begin_with(int fd, enum flyt_checkpoint_packing packing)
{
    begin_upon(fd, -1, packing);
}

static void begin(int fd)
{
    begin_with(fd, FLYT_CHECKPOINT_PACK_NOT);
}

static int new_file(void)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* To where all pages are in the image. */
static void finish_pages(void)
{
    fake_session_stand_still();
    flyt_copying_finish(&self.session);
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
}

static void put_state(void)
{
    struct flyt_error err = {0};
    int fd = flyt_save_state(&self.session, SEQUENCE, &err);
    assert_true(fd >= 0);
    flyt_copying_put_state(&self.session, fd);
}

static void finish(void)
{
    finish_pages();
    assert_string_equal(flyt_copying_sentence(&self.session), "");
    assert_int_equal(flyt_copying_result(&self.session), 0);
    put_state();
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
    assert_string_equal(flyt_copying_sentence(&self.session), "");
    assert_int_equal(flyt_copying_result(&self.session), 0);
}

static void expect_failure(int want, const char *words)
{
    if (flyt_copying_result(&self.session) != want || !strstr(flyt_copying_sentence(&self.session), words))
        fail_msg("%d '%s', not %d '%s'", flyt_copying_result(&self.session), flyt_copying_sentence(&self.session), want,
                 words);
}

/* ---- images ---- */

struct image {
    struct {
        uint64_t address, bytes;
        unsigned char *pages;
        bool is_there;
    } extents[EXTENTS_MAX];
    unsigned count;
    flyt_checkpoint_range *allocations;
    uint64_t allocation_count;
    struct flyt_checkpoint_totals totals;
    uint64_t bytes;
};

static unsigned char *place_in(struct image *image, uint64_t address)
{
    for (unsigned i = 0; i < image->count; i++)
        if (image->extents[i].is_there && address - image->extents[i].address < image->extents[i].bytes)
            return image->extents[i].pages + (address - image->extents[i].address);
    fail_msg("no extent at %llx", (unsigned long long)address);
    return NULL;
}

static void drop(struct image *image, uint64_t address)
{
    for (unsigned i = 0; i < image->count; i++)
        if (image->extents[i].is_there && image->extents[i].address == address) {
            image->extents[i].is_there = false;
            free(image->extents[i].pages);
            return;
        }
    fail_msg("no extent at %llx", (unsigned long long)address);
}

static void take_allocations(struct image *image, const flyt_checkpoint_allocations *told)
{
    if (told->is_first)
        image->allocation_count = 0;
    uint64_t count = image->allocation_count + told->ranges.ranges_len;
    image->allocations = reallocarray(image->allocations, count + 1, sizeof *image->allocations);
    assert_non_null(image->allocations);
    if (told->ranges.ranges_len)
        memcpy(image->allocations + image->allocation_count, told->ranges.ranges_val,
               told->ranges.ranges_len * sizeof *image->allocations);
    image->allocation_count = count;
}

static void take_record(struct image *image, struct flyt_checkpoint_reader *reader,
                        const struct flyt_checkpoint_record *record)
{
    struct flyt_error err;
    switch (record->type) {
    case FLYT_CHECKPOINT_HEAD:
        assert_true(flyt_checkpoint_id_is_none(record->body->head.parent_id));
        assert_int_equal(record->body->head.session_id, 1);
        assert_int_equal(record->body->head.page_hash, is_flat ? 0 : FLYT_PAGE_HASH_VERSION);
        assert_true(*record->body->head.gpu_type && record->body->head.sm_count && record->body->head.compute_major);
        break;
    case FLYT_CHECKPOINT_EXTENT:
        assert_in_range(image->count, 0, EXTENTS_MAX - 1);
        image->extents[image->count].address = record->body->extent.address;
        image->extents[image->count].bytes = record->body->extent.bytes;
        image->extents[image->count].is_there = true;
        image->extents[image->count].pages = malloc(record->body->extent.bytes);
        memset(image->extents[image->count++].pages, 0xee, record->body->extent.bytes);
        break;
    case FLYT_CHECKPOINT_EXTENT_GONE:
        drop(image, record->body->extent_gone.address);
        break;
    case FLYT_CHECKPOINT_ALLOCATIONS:
        take_allocations(image, &record->body->allocations);
        break;
    case FLYT_CHECKPOINT_PAGES:
        for (unsigned i = 0; i < record->body->pages.page_count; i++) /* all of them are in some extent */
            place_in(image, record->body->pages.address + (uint64_t)i * PAGE);
        assert_int_equal(flyt_checkpoint_place(reader, place_in(image, record->body->pages.address), &err), 0);
        break;
    case FLYT_CHECKPOINT_SEQUENCE:
        assert_int_equal(record->body->sequence.received, SEQUENCE);
        assert_int_equal(record->body->sequence.completed, SEQUENCE);
        break;
    default:
        break;
    }
}

static struct image *read_image(int fd)
{
    struct image *image = calloc(1, sizeof *image);
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    struct flyt_error err = {0};
    int status;
    assert_non_null(image);
    assert_int_equal(flyt_checkpoint_reader_new(fd, "image", true, &reader, &err), 0);
    while ((status = flyt_checkpoint_next(reader, &record, &err)) > 0)
        take_record(image, reader, &record);
    if (status)
        fail_msg("%s", err.text);
    image->totals = *flyt_checkpoint_reader_totals(reader);
    image->bytes = flyt_checkpoint_reader_bytes(reader);
    flyt_checkpoint_reader_free(reader);
    return image;
}

static void free_image(struct image *image)
{
    for (unsigned i = 0; i < image->count; i++)
        if (image->extents[i].is_there)
            free(image->extents[i].pages);
    free(image->allocations);
    free(image);
}

/* The session's memory is what the image has, and no more. */
static void assert_memory_is(struct image *image)
{
    unsigned count = 0;
    fake_session_listen();
    for (unsigned i = 0; i < self.extent_count; i++) {
        const struct fake_extent *extent = &self.extents[i];
        if (!extent->is_there)
            continue;
        void *memory = mmap(NULL, extent->extent.bytes, PROT_READ, MAP_SHARED, extent->fd, 0);
        assert_true(memory != MAP_FAILED);
        assert_int_equal(memcmp(memory, place_in(image, extent->extent.address), extent->extent.bytes), 0);
        munmap(memory, extent->extent.bytes);
        count++;
    }
    assert_int_equal(count, image->totals.extent_count);
    assert_int_equal(count, fake_session_expected_extents());
}

static void assert_allocations_are(const struct image *image)
{
    assert_int_equal(image->allocation_count, self.block_count);
    for (unsigned i = 0; i < self.block_count; i++) {
        bool is_found = false;
        for (uint64_t n = 0; n < image->allocation_count; n++)
            is_found |= image->allocations[n].address == self.blocks[i].address &&
                        image->allocations[n].bytes >= self.blocks[i].bytes;
        assert_true(is_found);
    }
}

/* The file is sound and has what is there. Its rounds. */
static uint32_t check_file(void)
{
    struct flyt_checkpoint_summary summary;
    struct flyt_error err = {0};
    assert_int_equal(flyt_checkpoint_verify(path, true, &summary, &err), 0);
    flyt_checkpoint_summary_fini(&summary);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct image *image = read_image(fd);
    close(fd);
    assert_memory_is(image);
    assert_allocations_are(image);
    uint32_t rounds = image->totals.round_count;
    assert_int_equal(image->totals.slot_count, DEVICES);
    free_image(image);
    return rounds;
}

/* ---- before and after ---- */

static int begin_session(void **state)
{
    snprintf(folder, sizeof folder, "/var/tmp/flyt-writing-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/image", folder);
    return fake_session_begin(state);
}

static int remove_one(const char *name, const struct stat *status, int kind, struct FTW *place)
{
    return remove(name);
}

static int end_session(void **state)
{
    fake_session_end(state);
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- tests ---- */

static void write_and_check(enum flyt_checkpoint_packing packing)
{
    fake_session_allocate(0, 9 * MIB);
    fake_session_allocate(0, 70000);
    fake_session_allocate(1, 3 * MIB);
    fake_session_write_somewhere(200);
    begin_with(new_file(), packing);
    assert_int_equal(fake_session_state().phase, FLYT_MANAGER_LINK_MOVE_COPYING);
    for (unsigned i = 0; i < 60; i++) {
        fake_session_write_somewhere(4);
        fake_session_advance();
    }
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    fake_session_write_somewhere(3);
    finish();
    uint64_t pages = 0;
    for (unsigned i = 0; i < DEVICES; i++)
        pages += self.session.devices[i].memory->extent_bytes / PAGE;
    assert_int_equal(fake_session_state().pages_count, pages);
    assert_true(fake_session_state().copied_bytes >= pages * PAGE);
    assert_true(flyt_copying_pages_last(&self.session) <= pages);
    fake_session_end_copying();
    check_file();
}

static void an_image_has_what_is_there(void **state)
{
    write_and_check(FLYT_CHECKPOINT_PACK_NOT);
}

static void packed_images_too(void **state)
{
    write_and_check(FLYT_CHECKPOINT_PACK_LZ4);
    while (self.block_count)
        fake_session_free(0);
    write_and_check(FLYT_CHECKPOINT_PACK_ZSTD);
}

/* Nobody writes while it looks: what changed and changed back between two looks is not written, and nothing is lost. */
static void pages_change_and_change_back(void **state)
{
    const struct fake_block *block = fake_session_allocate(0, 4 * MIB);
    fake_session_stand_still(); /* it is cleared */
    fake_session_set(block, 0, 0x11111111, MIB);
    fake_session_stand_still();
    begin(new_file());
    for (unsigned i = 0; i < 12; i++) {
        uint64_t before = fake_session_state().copied_bytes;
        const bool is_awaited = i % 3 == 0; /* then it must differ from all that may have been written */
        fake_session_set(block, 3 * PAGE, is_awaited ? 0x33330000 + i : i % 2 ? 0x11111111 : 0x22222222, PAGE / 4);
        if (is_awaited) {
            fake_session_stand_still();
            ADVANCE_UNTIL(fake_session_state().copied_bytes > before);
        }
        fake_session_advance();
    }
    finish();
    fake_session_end_copying();
    check_file();
}

static void extents_come_and_go(void **state)
{
    begin(new_file());
    for (unsigned i = 0; i < 40; i++) {
        if (self.block_count > 6)
            fake_session_free((unsigned)(fake_session_random() % self.block_count));
        else
            fake_session_allocate((unsigned)(fake_session_random() % DEVICES), 1 + fake_session_random() % (5 * MIB));
        fake_session_write_somewhere(3);
        for (unsigned n = 0; n < 30; n++) {
            fake_session_advance();
            for (unsigned k = 0; k < DEVICES; k++) {
                assert_ok(flyt_device_use(&self.session.devices[k]));
                flyt_memory_reap(&self.session.devices[k]);
                if (i % 4 == 0)
                    flyt_memory_give_back(&self.session.devices[k], false);
            }
        }
    }
    finish();
    fake_session_end_copying();
    assert_true(check_file() > 1);
}

static void zero_pages_take_no_room(void **state)
{
    const struct fake_block *block = fake_session_allocate(0, 64 * MIB);
    fake_session_stand_still(); /* it is cleared */
    fake_session_set(block, 40 * MIB, 7, 1);
    begin(new_file());
    finish();
    fake_session_end_copying();
    check_file();
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_in_range(file.st_size, PAGE, MIB);
}

static void an_empty_session_is_an_image(void **state)
{
    begin(new_file());
    finish();
    fake_session_end_copying();
    assert_int_equal(check_file(), 1);
}

static void the_program_goes_on_after_all(void **state)
{
    fake_session_allocate(0, 6 * MIB);
    fake_session_write_somewhere(20);
    begin(new_file());
    for (unsigned i = 0; i < 3; i++) {
        finish_pages();
        assert_int_equal(flyt_copying_result(&self.session), 0);
        flyt_copying_go_on(&self.session);
        assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
        fake_session_write_somewhere(10);
        fake_session_allocate(1, 3 * MIB);
    }
    finish();
    fake_session_end_copying();
    check_file();
}

/* It may be called off at any time; the next image is as whole as if that had not been. */
static void it_is_called_off_in_every_phase(void **state)
{
    fake_session_allocate(0, 20 * MIB);
    fake_session_write_somewhere(400);
    for (unsigned phase = 0; phase < 5; phase++) {
        begin(new_file());
        if (phase == 1)
            ADVANCE_UNTIL(fake_session_state().copied_bytes);
        if (phase == 2)
            ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
        if (phase >= 3)
            finish_pages();
        if (phase == 4)
            put_state();
        fake_session_end_copying();
        fake_session_write_somewhere(10);
    }
    begin(new_file());
    finish();
    fake_session_end_copying();
    check_file();
}

/* ---- images that build on earlier ones ---- */

struct chain {
    char last[200]; /* the last image's path; empty: there is none */
    unsigned length;
};

/* The image that was just written gets the name that its head gives it. */
static void name_image(struct chain *chain, unsigned char *ret_parent_id)
{
    struct flyt_page_index index;
    struct flyt_error err;
    char name[FLYT_CHECKPOINT_NAME_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flyt_page_index_read(fd, path, &index, &err), 0);
    close(fd);
    memcpy(ret_parent_id, index.parent_id, sizeof index.parent_id);
    flyt_checkpoint_file_name(index.id, name);
    flyt_page_index_fini(&index);
    snprintf(chain->last, sizeof chain->last, "%s/%s", folder, name);
    assert_int_equal(rename(path, chain->last), 0);
}

/* One more, whole, and with the ones before it what is in memory. Its pages that are not in it. */
static uint64_t add_image(struct chain *chain)
{
    unsigned char parent_id[FLYT_CHECKPOINT_ID_BYTES];
    struct flyt_error err = {0};
    int parent_fd = *chain->last ? open(chain->last, O_RDONLY | O_CLOEXEC) : -1;
    assert_true(parent_fd >= 0 || !*chain->last);
    begin_upon(new_file(), parent_fd, chain->length % 2 ? FLYT_CHECKPOINT_PACK_LZ4 : FLYT_CHECKPOINT_PACK_NOT);
    if (chain->length % 3) /* or its program has stopped before the earlier one was read */
        ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    finish();
    uint64_t kept_pages = flyt_copying_pages_kept(&self.session);
    fake_session_end_copying();
    name_image(chain, parent_id);
    chain->length = flyt_checkpoint_id_is_none(parent_id) ? 1 : chain->length + 1;
    int fd = new_file();
    if (flyt_checkpoint_flatten(chain->last, fd, &err))
        fail_msg("%s", err.text);
    close(fd);
    is_flat = true;
    check_file();
    is_flat = false;
    return kept_pages;
}

static uint64_t pages_written(const struct chain *chain)
{
    struct flyt_checkpoint_summary summary;
    struct flyt_error err;
    if (flyt_checkpoint_verify(chain->last, true, &summary, &err))
        fail_msg("%s", err.text);
    assert_int_equal(summary.parent_count, chain->length - 1);
    uint64_t count = summary.totals.page_counts[FLYT_CHECKPOINT_RAW] + summary.totals.page_counts[FLYT_CHECKPOINT_LZ4];
    flyt_checkpoint_summary_fini(&summary);
    return count;
}

static void what_has_not_changed_is_not_written_again(void **state)
{
    const uint64_t pages = 6 * MIB / PAGE;
    struct chain chain = {.length = 0};
    const struct fake_block *block = fake_session_allocate(0, 8 * MIB);
    fake_session_stand_still(); /* it is cleared */
    for (unsigned i = 0; i < pages; i++)
        fake_session_set(block, (uint64_t)i * PAGE, 0x1000 + i, PAGE / 4);
    fake_session_stand_still();
    assert_int_equal(add_image(&chain), 0);
    assert_int_equal(pages_written(&chain), pages);
    assert_int_equal(add_image(&chain), pages); /* nothing has changed */
    assert_int_equal(pages_written(&chain), 0);
    fake_session_set(block, 3 * PAGE, 0xabcdef, 1);
    fake_session_stand_still();
    assert_int_equal(add_image(&chain), pages - 1);
    assert_int_equal(pages_written(&chain), 1);
    fake_session_set(block, 3 * PAGE, 0x1003, PAGE / 4); /* as it was in the first one, which is not asked */
    fake_session_set(block, 5 * PAGE, 0, PAGE / 4);      /* zeros are never written */
    fake_session_stand_still();
    assert_int_equal(add_image(&chain), pages - 2);
    assert_int_equal(pages_written(&chain), 1);
    fake_session_set(block, 7 * PAGE, 0x77, 1);
    fake_session_set(block, 7 * PAGE, 0x1007, 1); /* changed, and back, unseen */
    fake_session_stand_still();
    assert_int_equal(add_image(&chain), pages - 1);
    assert_int_equal(pages_written(&chain), 0);
    assert_int_equal(chain.length, 5);
}

static void extents_go_and_others_come_in_their_place(void **state)
{
    struct chain chain = {.length = 0};
    for (unsigned i = 0; i < 6; i++) {
        for (unsigned n = 0; n < 8; n++) {
            if (self.block_count > 5)
                fake_session_free((unsigned)(fake_session_random() % self.block_count));
            else
                fake_session_allocate((unsigned)(fake_session_random() % DEVICES),
                                      1 + fake_session_random() % (5 * MIB));
            fake_session_write_somewhere(3);
            fake_session_stand_still();
            for (unsigned k = 0; k < DEVICES; k++) {
                assert_ok(flyt_device_use(&self.session.devices[k]));
                flyt_memory_reap(&self.session.devices[k]);
                flyt_memory_give_back(&self.session.devices[k], false);
            }
        }
        add_image(&chain);
        pages_written(&chain);
    }
    assert_int_equal(chain.length, 6);
}

/* Everything is written then, and the image builds on none. */
static void an_earlier_image_that_is_of_no_use(void **state)
{
    struct chain chain = {.length = 0};
    struct stat file;
    fake_session_allocate(0, 6 * MIB);
    fake_session_stand_still(); /* it is cleared */
    fake_session_set(&self.blocks[0], 0, 0x12345678, MIB);
    fake_session_stand_still();
    add_image(&chain);
    assert_int_equal(flyt_fault_set("writing.parent:error"), 0);
    assert_int_equal(add_image(&chain), 0);
    assert_int_equal(chain.length, 1);
    assert_int_equal(flyt_fault_set(NULL), 0);
    assert_true(add_image(&chain) > 0);
    assert_int_equal(stat(chain.last, &file), 0);
    assert_int_equal(truncate(chain.last, file.st_size - 1), 0);
    assert_int_equal(add_image(&chain), 0);
    assert_int_equal(chain.length, 1);
    self.session.session_id++; /* another's */
    struct flyt_error err = {0};
    const struct flyt_manager_link_move move = move_of(FLYT_CHECKPOINT_PACK_NOT);
    assert_ok(flyt_copying_begin_image(&self.session, &move, new_file(), open(chain.last, O_RDONLY | O_CLOEXEC), &err));
    self.session.session_id--;
    finish();
    assert_int_equal(flyt_copying_pages_kept(&self.session), 0);
}

/* It may be called off while the earlier one is read, and at any time after that. */
static void building_on_one_is_called_off(void **state)
{
    struct chain chain = {.length = 0};
    fake_session_allocate(0, 6 * MIB);
    fake_session_write_somewhere(100);
    fake_session_stand_still();
    add_image(&chain);
    for (unsigned i = 0; i < 20; i++) {
        begin_upon(new_file(), open(chain.last, O_RDONLY | O_CLOEXEC), FLYT_CHECKPOINT_PACK_NOT);
        for (unsigned n = 0; n < i; n++)
            fake_session_advance();
        fake_session_end_copying();
    }
    assert_true(add_image(&chain) > 0);
    pages_written(&chain);
}

/* ---- descriptors that fail ---- */

/* Nothing is wrong with the session: another image is whole. */
static void another_one_is_whole(void)
{
    fake_session_end_copying();
    begin(new_file());
    finish();
    fake_session_end_copying();
    check_file();
}

/* ---- what is fetched takes no SM ---- */

static uint64_t fake_ns;
static bool is_fetch; /* the driver's last command was one */
static CUevent held;  /* behind the first one, which seems to last; NULL: none yet, or no more */

static uint64_t fake_clock(void)
{
    return fake_ns;
}

static CUresult fetch(void *place, CUdeviceptr address, size_t bytes, CUstream cu_stream)
{
    is_fetch = bytes > MIB; /* less is hashed */
    return cuMemcpyDtoHAsync(place, address, bytes, cu_stream);
}

static CUresult record(CUevent event, CUstream cu_stream)
{
    if (is_fetch && !held)
        held = event;
    is_fetch = false;
    return cuEventRecord(event, cu_stream);
}

static CUresult query(CUevent event)
{
    return event == held ? CUDA_ERROR_NOT_READY : cuEventQuery(event);
}

static CUresult set_some(void *user, struct flyt_stream *stream)
{
    return cuMemsetD8Async(*(CUdeviceptr *)user, 1, 64, stream->cu_stream);
}

/* The program is busy: the next batch waits for its turn, and not for what the one before has copied. */
static void a_fetch_holds_back_nothing(void **state)
{
    struct flyt_device *device = &self.session.devices[0];
    uint64_t (*clock_ns)(void) = self.session.clock_ns;
    const struct fake_block *block = fake_session_allocate(0, 64 << 20); /* four batches */
    CUdeviceptr address = block->address;
    fake_session_set(block, 0, 0x01020304, (64 << 20) / 4);
    fake_session_stand_still();
    held = NULL;
    is_fetch = false;
    fake_ns = clock_ns();
    self.session.clock_ns = fake_clock;
    self.driver.cuMemcpyDtoHAsync = fetch;
    self.driver.cuEventRecord = record;
    self.driver.cuEventQuery = query;
    begin(new_file());
    assert_ok(flyt_stream_submit(device->legacy, 1, FLYT_SUBMIT_WORK, device, set_some, &address));
    for (unsigned i = 0; i < RETRIES_MAX && !(held && device->copying_count == 2); i++) {
        fake_ns += 10000; /* pauses pass */
        flyt_copying_advance(&self.session);
        usleep(20);
    }
    assert_non_null(held);
    assert_int_equal(device->busy_count, 1);
    assert_int_equal(device->copying_count, 2);
    assert_int_equal(fake_session_state().copied_bytes, 0);
    held = NULL;
    self.session.clock_ns = clock_ns;
    fake_session_with_cpu(NULL);
    ADVANCE_UNTIL(flyt_stream_query(device->legacy) == CUDA_SUCCESS);
    finish();
    fake_session_end_copying();
    check_file();
}

/* Nobody who is to get contents waits for the look at all of them; runs of pages go over the ends of its batches. */

static uint64_t looked_bytes; /* before the first piece was fetched */
static unsigned fetches;

static CUresult count_fetches(void *place, CUdeviceptr address, size_t bytes, CUstream cu_stream)
{
    fetches += bytes > MIB; /* less is hashed */
    if (!fetches)
        looked_bytes += bytes;
    return cuMemcpyDtoHAsync(place, address, bytes, cu_stream);
}

static void what_is_found_is_written_at_once(void **state)
{
    const struct fake_block *block = fake_session_allocate(0, 96 * MIB); /* six batches */
    fake_session_set(block, 0, 0x01020304, 50 * MIB / 4);
    fake_session_set(block, 70 * MIB, 0x05060708, 20 * MIB / 4);
    fake_session_stand_still();
    looked_bytes = fetches = 0;
    self.driver.cuMemcpyDtoHAsync = count_fetches;
    begin(new_file());
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    assert_true(fetches >= 5); /* of 70 MiB, in pieces of 16 */
    assert_in_range(looked_bytes, MIB, 95 * MIB);
    assert_int_equal(fake_session_state().copied_bytes, fake_session_state().pages_count * PAGE);
    finish();
    fake_session_end_copying();
    fake_session_with_cpu(NULL);
    check_file();
}

static void a_full_disk_is_said(void **state)
{
    fake_session_allocate(0, 6 * MIB);
    fake_session_write_somewhere(100);
    begin(open("/dev/full", O_WRONLY | O_CLOEXEC));
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
    expect_failure(-ENOSPC, "cannot be written");
    another_one_is_whole();
}

static void a_quota_is_said(void **state)
{
    struct rlimit before, limit;
    const struct fake_block *block = fake_session_allocate(0, 60 * MIB);
    fake_session_stand_still(); /* it is cleared */
    fake_session_set(block, 0, 0x12345678, 15 * MIB);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){48 * MIB, before.rlim_max}; /* memory of the software GPU is files, too */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    begin(new_file());
    finish_pages();
    int status = setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, 0);
    expect_failure(-EFBIG, "cannot be written");
    another_one_is_whole();
}

struct relay {
    int from, to;
    uint64_t bytes; /* then it ends */
};

static void *relay(void *user)
{
    struct relay *self_ = user;
    char bytes[4096];
    ssize_t count = 1;
    while (self_->bytes && count > 0) {
        count = read(self_->from, bytes, self_->bytes < sizeof bytes ? self_->bytes : sizeof bytes);
        if (count <= 0 || write(self_->to, bytes, (size_t)count) != count)
            break;
        self_->bytes -= (uint64_t)count;
    }
    close(self_->from);
    return NULL;
}

/* At every size: before the head, in it, in pages, in the last record. */
static void a_reader_that_dies_is_said(void **state)
{
    struct stat file;
    fake_session_allocate(0, 6 * MIB);
    fake_session_stand_still();
    fake_session_write_somewhere(100);
    fake_session_stand_still(); /* so that every image has the same size */
    begin(new_file());
    finish();
    fake_session_end_copying();
    assert_int_equal(stat(path, &file), 0);
    const uint64_t sizes[] = {0, 100, PAGE, (uint64_t)file.st_size / 2, (uint64_t)file.st_size - 20};
    for (unsigned i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
        struct relay ends = {.to = new_file(), .bytes = sizes[i / 2]};
        pthread_t thread;
        int fds[2], small = 4096;
        assert_int_equal(i % 2 ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) : pipe2(fds, O_CLOEXEC), 0);
        if (i % 2)
            setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        ends.from = fds[0];
        assert_int_equal(pthread_create(&thread, NULL, relay, &ends), 0);
        begin(fds[1]);
        finish_pages();
        if (flyt_copying_result(&self.session) == 0) {
            put_state();
            ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
        }
        int result = flyt_copying_result(&self.session);
        if (i / 2 < 4 || result) /* the last bytes may have gone into the pipe before its reader died */
            expect_failure(i % 2 && result == -ECONNRESET ? -ECONNRESET : -EPIPE, "cannot be written");
        fake_session_end_copying();
        pthread_join(thread, NULL);
        close(ends.to);
    }
    begin(new_file());
    another_one_is_whole();
}

/* Nobody reads: nothing waits, and it can be called off at any time. */
static void a_reader_that_stalls_hinders_nobody(void **state)
{
    fake_session_allocate(0, 100 * MIB);
    fake_session_stand_still(); /* it is cleared */
    fake_session_write_somewhere(100);
    fake_session_set(&self.blocks[0], 0, 0x12345678, 25 * MIB);
    fake_session_stand_still(); /* or pages that are still zero would be told, which fits into a pipe */
    for (unsigned i = 0; i < 4; i++) {
        int fds[2];
        assert_int_equal(i % 2 ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) : pipe2(fds, O_CLOEXEC), 0);
        begin(fds[1]);
        ADVANCE_UNTIL(fake_session_state().pages_dirty > 0);
        if (i >= 2)
            fake_session_stand_still();
        if (i >= 2)
            flyt_copying_finish(&self.session);
        for (unsigned n = 0; n < 500; n++)
            fake_session_advance();
        assert_int_equal(flyt_copying_result(&self.session), -EAGAIN);
        assert_int_equal(fake_session_state().copied_bytes, 0);
        fake_session_end_copying();
        close(fds[0]);
    }
    begin(new_file());
    another_one_is_whole();
}

/* What nobody has written to the end is no image. */
static void without_an_end_it_is_none(void **state)
{
    struct flyt_checkpoint_summary summary;
    struct flyt_error err = {0};
    fake_session_allocate(0, 3 * MIB);
    begin(new_file());
    finish_pages();
    assert_int_equal(flyt_copying_result(&self.session), 0);
    fake_session_end_copying();
    assert_int_equal(flyt_checkpoint_verify(path, true, &summary, &err), -ENODATA);
    flyt_checkpoint_summary_fini(&summary);
}

/* A connection that reads, in its own portions. */
static void a_socket_gets_the_same(void **state)
{
    struct relay ends = {.to = new_file(), .bytes = UINT64_MAX};
    pthread_t thread;
    int fds[2];
    fake_session_allocate(0, 40 * MIB);
    fake_session_allocate(1, 5 * MIB);
    fake_session_write_somewhere(500);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ends.from = fds[0];
    assert_int_equal(pthread_create(&thread, NULL, relay, &ends), 0);
    begin(fds[1]);
    ADVANCE_UNTIL(fake_session_state().phase == FLYT_MANAGER_LINK_MOVE_READY);
    fake_session_write_somewhere(50);
    finish();
    fake_session_end_copying(); /* which closes it */
    pthread_join(thread, NULL);
    close(ends.to);
    check_file();
}

static void steps_fail_where_a_test_wants_it(void **state)
{
    static const char *const points[] = {"writing.pages:error:2", "writing.end:error", "copying.round:error:2",
                                         "copying.last:error"};
    fake_session_allocate(0, 40 * MIB);
    fake_session_stand_still(); /* it is cleared */
    fake_session_set(&self.blocks[0], 0, 0x12345678, 10 * MIB);
    for (unsigned i = 0; i < sizeof points / sizeof points[0]; i++) {
        assert_int_equal(flyt_fault_set(points[i]), 0);
        begin(new_file());
        if (i == 2)
            ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
        finish_pages();
        if (i == 1) {
            assert_int_equal(flyt_copying_result(&self.session), 0);
            put_state();
            ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
        }
        expect_failure(-EIO, "a test wants it");
        fake_session_end_copying();
        assert_int_equal(flyt_fault_set(NULL), 0);
    }
}

/* What cannot be made last is no image, and hinders nobody; the next one is whole. */
static void a_disk_that_fails_is_said(void **state)
{
    fake_session_allocate(0, 40 * MIB);
    fake_session_stand_still(); /* it is cleared */
    fake_session_set(&self.blocks[0], 0, 0x12345678, 10 * MIB);
    assert_int_equal(flyt_fault_set("writing.flush:error"), 0);
    begin(new_file());
    ADVANCE_UNTIL(flyt_copying_result(&self.session) != -EAGAIN);
    expect_failure(-EIO, "cannot be made last");
    assert_int_not_equal(fake_session_state().phase, FLYT_MANAGER_LINK_MOVE_READY);
    assert_int_equal(flyt_fault_set(NULL), 0);
    another_one_is_whole();
}

/* The session is not ready as long as what was written is not on the disk, and its program runs. When it has stopped
 * all the same nothing waits for the disk: what is in the file is what was in memory then. */
static void nobody_waits_for_the_disk(void **state)
{
    fake_session_allocate(0, 40 * MIB);
    fake_session_stand_still(); /* it is cleared */
    fake_session_set(&self.blocks[0], 0, 0x12345678, 10 * MIB);
    assert_int_equal(flyt_fault_set("writing.flush:hang"), 0);
    begin_with(new_file(), FLYT_CHECKPOINT_PACK_LZ4);
    ADVANCE_UNTIL(fake_session_state().copied_bytes >= 40 * MIB && !fake_session_state().pages_left);
    for (unsigned i = 0; i < 500; i++) {
        fake_session_write_somewhere(2);
        fake_session_advance();
        assert_int_equal(fake_session_state().phase, FLYT_MANAGER_LINK_MOVE_COPYING);
    }
    finish();
    assert_true(flyt_copying_pages_last(&self.session) > 0);
    fake_session_end_copying();
    check_file();
    assert_int_equal(flyt_fault_set(NULL), 0);
    another_one_is_whole();
}

static void what_is_no_descriptor_is_refused(void **state)
{
    const struct flyt_manager_link_move move = move_of(FLYT_CHECKPOINT_PACK_NOT), packing = move_of(7);
    struct flyt_manager_link_move mirror = move;
    struct flyt_error err = {0};
    mirror.kind = FLYT_MANAGER_LINK_MOVE_MIRROR;
    assert_int_equal(flyt_copying_begin_image(&self.session, &move, -1, -1, &err), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_copying_begin_image(&self.session, &packing, new_file(), -1, &err), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_copying_begin_image(&self.session, &mirror, new_file(), -1, &err), CUDA_ERROR_INVALID_VALUE);
    assert_int_not_equal(
        flyt_copying_begin_image(&self.session, &move, open("/dev/null", O_RDONLY | O_CLOEXEC), -1, &err),
        CUDA_SUCCESS);
    assert_int_equal(err.code, -EBADF);
    assert_null(self.session.copying);
    begin(new_file());
    assert_int_equal(flyt_copying_begin_image(&self.session, &move, new_file(), -1, &err), CUDA_ERROR_NOT_READY);
}

int main(void)
{
    setenv("FLYT_SOFT_DEVICES", "2", 1);
    setenv("FLYT_SOFT_MEMORY", "1G", 1);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        TEST(an_image_has_what_is_there),
        CPU(packed_images_too),
        TEST(pages_change_and_change_back),
        TEST(extents_come_and_go),
        CPU(zero_pages_take_no_room),
        CPU(an_empty_session_is_an_image),
        TEST(the_program_goes_on_after_all),
        CPU(it_is_called_off_in_every_phase),
        TEST(what_has_not_changed_is_not_written_again),
        CPU(extents_go_and_others_come_in_their_place),
        CPU(an_earlier_image_that_is_of_no_use),
        CPU(building_on_one_is_called_off),
        CPU(a_fetch_holds_back_nothing),
        CPU(what_is_found_is_written_at_once),
        CPU(a_full_disk_is_said),
        CPU(a_quota_is_said),
        CPU(a_reader_that_dies_is_said),
        CPU(a_reader_that_stalls_hinders_nobody),
        CPU(without_an_end_it_is_none),
        CPU(a_socket_gets_the_same),
        CPU(steps_fail_where_a_test_wants_it),
        CPU(a_disk_that_fails_is_said),
        CPU(nobody_waits_for_the_disk),
        CPU(what_is_no_descriptor_is_refused),
    };
    return cmocka_run_group_tests(tests, begin_session, end_session);
}
