/*
 * Pageable memory that is copied through a VM's region, over a channel without a server. The test plays the GPU: it
 * carries out what was sent when somebody waits for the stream, and no sooner, so that a piece that is used again too
 * early is seen in the bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/bulk/staging.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/stream.h"
#include "rpc/base/id.h"
#include "rpc/base/region.h"

enum { REGION_BYTES = 16 << 20, BYTES = (11 << 20) + 4099, PENDING_MAX = 16 };

static unsigned char device[BYTES], host[BYTES];
static CUdeviceptr device_address;

/* Copies that the GPU has not reached. */
static struct {
    void *dst;
    const void *src;
    size_t bytes;
} pending[PENDING_MAX];
static unsigned pending_count, most_pending;

static bool refuses;                 /* to lock pages */
static int answer;                   /* to who waits for a stream */
static void (*on_region_copy)(void); /* called with each one that is sent; NULL: none */
static void (*on_synchronize)(void); /* in each wait with something pending; NULL: none */
static uint64_t in_transfer, out_transfer, out_offset, out_bytes;

static uint64_t program_stream; /* of the test's copies */
static unsigned beside_count;   /* pieces in other streams */
static unsigned wait_count;     /* for the program's stream */

static void copy_later(uint64_t stream_id, void *dst, const void *src, size_t bytes)
{
    beside_count += stream_id != program_stream;
    assert_true(pending_count < PENDING_MAX);
    pending[pending_count].dst = dst;
    pending[pending_count].src = src;
    pending[pending_count++].bytes = bytes;
    most_pending = pending_count > most_pending ? pending_count : most_pending;
    if (on_region_copy)
        on_region_copy();
}

static void reach(void)
{
    for (unsigned i = 0; i < pending_count; i++)
        memcpy(pending[i].dst, pending[i].src, pending[i].bytes);
    pending_count = 0;
    if (!out_transfer)
        return;
    void *place = fake.handlers->chunk_place(fake.user, out_transfer, 0, out_bytes);
    assert_non_null(place);
    memcpy(place, device + out_offset, out_bytes);
    fake.handlers->chunk_done(fake.user, out_transfer, 0, out_bytes);
    out_transfer = 0;
}

static void synchronize(flyt_stream_synchronize_res *res)
{
    if (pending_count && on_synchronize)
        on_synchronize();
    res->result = answer;
    if (!answer)
        reach();
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    if (procedure == FLYT_MEMORY_ALLOC)
        ((flyt_memory_alloc_res *)res)->address = FLYT_WINDOW_BASE;
    if (procedure == FLYT_REGION_LOCK)
        ((flyt_region_lock_res *)res)->result = refuses ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    if (procedure == FLYT_COPY_IN_REGION) {
        const flyt_copy_in_region_args *in = args;
        copy_later(in->stream_id, device + (in->dst.address - device_address), fake.region.base + in->src.offset_bytes,
                   in->dst.width_bytes);
    }
    if (procedure == FLYT_COPY_OUT_REGION) {
        const flyt_copy_out_region_args *out = args;
        copy_later(out->stream_id, fake.region.base + out->dst.offset_bytes,
                   device + (out->src.address - device_address), out->src.width_bytes);
    }
    if (procedure == FLYT_COPY_IN_TRANSFER)
        in_transfer = ((const flyt_copy_in_transfer_args *)args)->dst.address - device_address;
    if (procedure == FLYT_COPY_OUT_TRANSFER) {
        const flyt_copy_out_transfer_args *out = args;
        out_transfer = out->transfer_id;
        out_offset = out->src.address - device_address;
        out_bytes = out->bytes;
    }
    if (procedure == FLYT_STREAM_SYNCHRONIZE) {
        wait_count += ((const flyt_stream_synchronize_args *)args)->stream_id == program_stream;
        synchronize(res);
    }
}

static void fill(unsigned char *bytes, unsigned seed)
{
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 9);
}

static CUresult copy(bool is_in, size_t offset, size_t bytes, bool is_async)
{
    const uint64_t here = (uint64_t)(uintptr_t)(host + offset), there = device_address + offset;
    const struct flyt_copy one = is_in ? flyt_copy_plain(FLYT_PLACE_DEVICE, there, FLYT_PLACE_HOST, here, bytes)
                                       : flyt_copy_plain(FLYT_PLACE_HOST, here, FLYT_PLACE_DEVICE, there, bytes);
    return flyt_copy(&one, NULL, is_async);
}

static unsigned sent(void)
{
    return fake.call_count[FLYT_COPY_IN_REGION] + fake.call_count[FLYT_COPY_OUT_REGION];
}

static unsigned travelled(void)
{
    return fake.call_count[FLYT_COPY_IN_TRANSFER] + fake.call_count[FLYT_COPY_OUT_TRANSFER];
}

static int begin(void **state)
{
    fake.region_at = 1;
    answer = 0;
    refuses = false;
    on_region_copy = on_synchronize = NULL;
    pending_count = most_pending = 0;
    fill(host, 1);
    fill(device, 2);
    return 0;
}

/* Before the place is there: later it stays. */
static void without_room_it_travels(void **state)
{
    const unsigned before = travelled();
    refuses = true;
    assert_int_equal(copy(true, 0, BYTES, false), CUDA_SUCCESS);
    assert_int_equal(copy(false, 0, BYTES, false), CUDA_SUCCESS);
    assert_int_equal(sent(), 0);
    assert_int_equal(travelled(), before + 2);
    refuses = false;
    const unsigned locks = fake.call_count[FLYT_REGION_LOCK];
    while (!sent()) /* there is none asked for with every copy */
        assert_int_equal(copy(true, 0, FLYT_STAGING_BYTES_MIN, false), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_REGION_LOCK], locks + 1);
    assert_true(travelled() > before + 32);
}

static void every_byte_comes_both_ways(void **state)
{
    static const size_t sizes[] = {FLYT_STAGING_BYTES_MIN, FLYT_STAGING_BYTES_MIN + 1, (2 << 20) - 1, BYTES - 3};
    unsigned char *expected = malloc(BYTES);
    const unsigned before = travelled();
    for (unsigned i = 0; i < 4 * sizeof sizes / sizeof *sizes; i++) {
        const size_t bytes = sizes[i / 4];
        const bool is_in = i & 1, is_async = i & 2;
        fill(host, i + 10);
        fill(device, i + 90);
        memcpy(expected, is_in ? device : host, BYTES);
        memcpy(expected + 3, (is_in ? host : device) + 3, bytes);
        assert_int_equal(copy(is_in, 3, bytes, is_async), CUDA_SUCCESS);
        if (is_in)
            memset(host, 0, BYTES); /* it was read */
        assert_memory_equal(is_in ? device : host, expected, BYTES);
    }
    assert_int_equal(travelled(), before);
    assert_int_equal(most_pending, 1); /* while the thread copies the other piece */
    free(expected);
}

/* What other threads give to the program's stream is waited for before, and with the first piece. */
static void the_first_piece_alone_is_in_the_programs_stream(void **state)
{
    program_stream = flyt_legacy_stream_id(0);
    for (unsigned i = 0; i < 2; i++) {
        const unsigned before = sent();
        beside_count = wait_count = 0;
        assert_int_equal(copy(i, 0, BYTES, false), CUDA_SUCCESS);
        assert_true(sent() - before > 2);
        assert_int_equal(beside_count, sent() - before - 1);
        assert_int_equal(wait_count, 2);
    }
}

static void what_is_smaller_or_elsewhere_goes_another_way(void **state)
{
    unsigned before = sent();
    assert_int_equal(copy(true, 0, FLYT_STAGING_BYTES_MIN - 1, false), CUDA_SUCCESS);
    assert_int_equal(copy(false, 0, FLYT_STAGING_BYTES_MIN - 1, false), CUDA_SUCCESS);
    const struct flyt_region vms = fake.region;
    fake.region.is_vm = false; /* as on one host */
    assert_int_equal(copy(true, 0, BYTES, false), CUDA_SUCCESS);
    assert_int_equal(copy(false, 0, BYTES, false), CUDA_SUCCESS);
    fake.region = vms;
    fake.region_at = 0;
    assert_int_equal(copy(true, 0, BYTES, false), CUDA_SUCCESS);
    assert_int_equal(copy(false, 0, BYTES, false), CUDA_SUCCESS);
    assert_int_equal(sent(), before);
}

static unsigned region_copies_till_move;
static uint64_t moves_to;

/* The session goes on elsewhere, where what was sent is done. */
static void move(void)
{
    if (region_copies_till_move && !--region_copies_till_move) {
        reach();
        fake.region_at = moves_to;
    }
}

static void a_move_comes_in_the_midst(void **state)
{
    for (unsigned i = 0; i < 8; i++) {
        const bool is_in = i & 1, is_refused = i & 2;
        begin(NULL);
        assert_int_equal(copy(true, 0, FLYT_STAGING_BYTES_MIN, false), CUDA_SUCCESS); /* locked there */
        const unsigned before = travelled(), locks = fake.call_count[FLYT_REGION_LOCK];
        on_region_copy = move;
        region_copies_till_move = 5 + i;
        moves_to = i & 4 ? 0 : 2 + i;
        refuses = is_refused;
        assert_int_equal(copy(is_in, 1, BYTES - 1, false), CUDA_SUCCESS);
        assert_int_equal(region_copies_till_move, 0);
        /* The rest travels where the place is not to be had; of what travels to the device only the call is seen. */
        const bool is_staged = moves_to && !is_refused;
        assert_int_equal(travelled(), before + !is_staged);
        assert_int_equal(fake.call_count[FLYT_REGION_LOCK], locks + (moves_to != 0));
        const size_t there = is_in && !is_staged ? in_transfer - 1 : BYTES - 1;
        assert_true(there >= 5u << 19);
        assert_memory_equal(device + 1, host + 1, there);
    }
}

static unsigned sent_before, depth;

/* While a piece is under way, and once more while that copy's is. */
static void copy_beside(void)
{
    if (sent() - sent_before <= depth)
        return;
    depth++;
    assert_int_equal(copy(true, 0, FLYT_STAGING_BYTES_MIN, false), CUDA_SUCCESS);
}

/* As of threads whose streams go on only when another thread has copied something. */
static void nobody_waits_for_who_stands_still(void **state)
{
    const unsigned before = travelled();
    sent_before = sent();
    depth = 0;
    on_synchronize = copy_beside;
    assert_int_equal(copy(true, 0, FLYT_STAGING_BYTES_MIN, false), CUDA_SUCCESS);
    assert_int_equal(depth, 2);
    assert_int_equal(sent(), sent_before + 2);
    assert_int_equal(travelled(), before + 1);
}

static void fail_now(void)
{
    answer = CUDA_ERROR_INVALID_HANDLE;
}

/* Each lane is left by a copy whose first piece nobody has seen the end of. */
static void leave_all_lanes(void)
{
    for (unsigned i = 0; i < 2; i++) {
        begin(NULL);
        const unsigned before = sent();
        on_synchronize = fail_now;
        assert_int_equal(copy(i, 0, BYTES, false), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(sent(), before + 1);
    }
    begin(NULL);
}

static bool is_staged(void)
{
    const unsigned before = sent(), travelled_before = travelled();
    assert_int_equal(copy(true, 0, FLYT_STAGING_BYTES_MIN, false), CUDA_SUCCESS);
    assert_true((sent() > before) == (travelled() == travelled_before));
    return sent() > before;
}

/* The GPU may be at a piece that was not waited for: nobody gets that lane before it is known not to be. */
static void an_error_ends_it(void **state)
{
    const unsigned before = sent();
    answer = CUDA_ERROR_INVALID_HANDLE;
    assert_int_equal(copy(true, 0, BYTES, false), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(sent(), before); /* what comes before it in the stream has failed */
    begin(NULL);
    assert_true(is_staged());
    for (unsigned i = 0; i < 2; i++) {
        leave_all_lanes();
        assert_false(is_staged());
        fake.progress.completed = fake.sequence;
        assert_true(is_staged());
        leave_all_lanes();
        fake.region_at = 2; /* till then the pieces are that server's */
        assert_true(is_staged());
    }
}

/* As when a dead server's pieces are copied again at one that has no such pages locked. */
static void fail_piece(void)
{
    pending_count = 0;
    on_synchronize = NULL;
    fake.handlers->call_error(fake.user, fake.sequence, flyt_thread_number(), CUDA_ERROR_INVALID_VALUE);
}

/* Also the copy that is asynchronous, whose next call would say it otherwise; and the place is there for others. */
static void a_piece_that_fails_fails_its_copy(void **state)
{
    for (unsigned i = 0; i < 8; i++) {
        const bool is_in = i & 1, is_async = i & 2;
        begin(NULL);
        on_synchronize = fail_piece;
        const unsigned before = sent();
        assert_int_equal(copy(is_in, 0, BYTES, is_async), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(sent(), before + 1);
        assert_true(is_staged());
    }
}

static int make(void **state)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, REGION_BYTES), 0);
    assert_int_equal(flyt_region_of_vm(fd, &fake.region), 0);
    assert_int_equal(flyt_memory_alloc(BYTES, &device_address), CUDA_SUCCESS);
    return 0;
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_room_it_travels, begin),
        cmocka_unit_test_setup(every_byte_comes_both_ways, begin),
        cmocka_unit_test_setup(the_first_piece_alone_is_in_the_programs_stream, begin),
        cmocka_unit_test_setup(what_is_smaller_or_elsewhere_goes_another_way, begin),
        cmocka_unit_test_setup(a_move_comes_in_the_midst, begin),
        cmocka_unit_test_setup(nobody_waits_for_who_stands_still, begin),
        cmocka_unit_test_setup(a_piece_that_fails_fails_its_copy, begin),
        cmocka_unit_test_setup(an_error_ends_it, begin),
    };
    return flyt_runtime_enter() ? 1 : cmocka_run_group_tests(tests, make, NULL);
}
