/*
 * Calls whose boxes take many driver calls: how many of these are made in a round of the loop, what goes on between two
 * rounds, that the right bytes come to the right places, and what is left of such a call when something fails or ends
 * in its middle. The driver has memory here (a model of it), and counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"
#include "cpu/server/core/pieces.h"

enum { MEMORY_BYTES = 8 << 20 };

bool __real_flyt_jobs_advance(struct flyt_session *session, bool *ret_needs_poll);
bool __wrap_flyt_jobs_advance(struct flyt_session *session, bool *ret_needs_poll);

static struct flyt_driver driver;
static const struct flyt_driver *fake;
static struct {
    uint64_t base;
    unsigned char bytes[MEMORY_BYTES];
    atomic_uint count;  /* driver calls that set or copy */
    unsigned fail_at;   /* of these: it is refused; 0: none */
    atomic_uint of[8];  /* by driver stream */
    atomic_uint most;   /* in one round */
    atomic_bool is_bad; /* outside of the memory */
} model;

/* ---- the driver ---- */

static CUresult count(CUstream stream)
{
    unsigned number = (unsigned)(uintptr_t)stream - 1;
    unsigned now = atomic_fetch_add(&model.count, 1) + 1;
    if (now == model.fail_at)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add(&model.of[number], 1);
    return CUDA_SUCCESS;
}

static unsigned char *place(CUdeviceptr address, size_t bytes)
{
    if (address >= model.base && address - model.base <= MEMORY_BYTES - bytes)
        return model.bytes + (address - model.base);
    atomic_store(&model.is_bad, true);
    return NULL;
}

static CUresult set_rows(CUdeviceptr address, size_t pitch_bytes, unsigned char value, size_t width_bytes,
                         size_t height, CUstream stream)
{
    CUresult result = count(stream);
    for (size_t row = 0; row < height && result == CUDA_SUCCESS; row++) {
        unsigned char *at = place(address + row * pitch_bytes, width_bytes);
        if (at)
            memset(at, value, width_bytes);
    }
    return result == CUDA_SUCCESS ? fake->cuMemsetD8Async(address, value, width_bytes, stream) : result;
}

static CUresult set_line(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream)
{
    if (address < model.base || address - model.base >= MEMORY_BYTES) /* the clearing of new memory */
        return fake->cuMemsetD8Async(address, value, bytes, stream);
    return set_rows(address, bytes, value, bytes, 1, stream);
}

static CUresult copy_in_line(CUdeviceptr address, const void *data, size_t bytes, CUstream stream)
{
    CUresult result = count(stream);
    unsigned char *at = place(address, bytes);
    if (result == CUDA_SUCCESS && at)
        memcpy(at, data, bytes);
    return result == CUDA_SUCCESS ? fake->cuMemcpyHtoDAsync(address, data, bytes, stream) : result;
}

static CUresult copy_out_line(void *data, CUdeviceptr address, size_t bytes, CUstream stream)
{
    CUresult result = count(stream);
    const unsigned char *at = place(address, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = fake->cuMemcpyDtoHAsync(data, address, bytes, stream);
    if (at)
        memcpy(data, at, bytes);
    return result;
}

static CUresult copy_rows(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    CUresult result = count(stream);
    for (size_t row = 0; row < copy->Height && result == CUDA_SUCCESS; row++) {
        bool is_in = copy->dstMemoryType == CU_MEMORYTYPE_DEVICE;
        unsigned char *at =
            place(is_in ? copy->dstDevice + row * copy->dstPitch : copy->srcDevice + row * copy->srcPitch,
                  copy->WidthInBytes);
        if (at && is_in)
            memcpy(at, (const char *)copy->srcHost + row * copy->srcPitch, copy->WidthInBytes);
        else if (at)
            memcpy((char *)copy->dstHost + row * copy->dstPitch, at, copy->WidthInBytes);
    }
    return result == CUDA_SUCCESS ? fake->cuMemcpy2DAsync(copy, stream) : result;
}

/* One round's jobs. */
bool __wrap_flyt_jobs_advance(struct flyt_session *session, bool *ret_needs_poll)
{
    unsigned before = atomic_load(&model.count);
    bool is_changed = __real_flyt_jobs_advance(session, ret_needs_poll);
    unsigned made = atomic_load(&model.count) - before;
    if (made > atomic_load(&model.most))
        atomic_store(&model.most, made);
    return is_changed;
}

/* ---- a session with memory ---- */

static struct fixture *begin(void)
{
    fake = flyt_fake_driver();
    driver = *fake;
    driver.cuMemsetD8Async = set_line;
    driver.cuMemsetD2D8Async = set_rows;
    driver.cuMemcpyHtoDAsync = copy_in_line;
    driver.cuMemcpyDtoHAsync = copy_out_line;
    driver.cuMemcpy2DAsync = copy_rows;
    memset(&model, 0, sizeof model);
    struct fixture *self = make_over(&driver);
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
    model.base = alloc(self, MEMORY_BYTES, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING); /* driver stream 1 */
    create(self, 1, CU_STREAM_NON_BLOCKING); /* 2 */
    barrier(self);
    return self;
}

static void end(struct fixture *self)
{
    void *state = self;
    assert_false(atomic_load(&model.is_bad));
    tear_down(&state);
}

/* Two rows of one byte in each slice, and slices whose distance is no multiple of that of the rows. */
enum { PITCH = 16, SLICE = 40 };

static flyt_box box_of(unsigned slices)
{
    return (flyt_box){.address = model.base + 3,
                      .width_bytes = 1,
                      .height = 2,
                      .depth = slices,
                      .pitch_bytes = PITCH,
                      .slice_bytes = SLICE};
}

/* The byte of the model that is the packed box's i-th one. */
static unsigned char *byte_of(unsigned i)
{
    return &model.bytes[3 + (size_t)(i / 2) * SLICE + (size_t)(i % 2) * PITCH];
}

static uint32_t fill(struct fixture *self, unsigned stream, unsigned slices, unsigned char value)
{
    return SEND(self, FLYT_MEMORY_SET, memory_set, .stream_id = stream_id(stream), .dst = box_of(slices),
                .element_bytes = 1, .value = value);
}

/* Every byte of the box, and none beside it. */
static void expect_filled(unsigned slices, unsigned char value)
{
    size_t filled = 0;
    for (unsigned i = 0; i < 2 * slices; i++)
        assert_int_equal(*byte_of(i), value);
    for (size_t at = 0; at < MEMORY_BYTES; at++)
        filled += model.bytes[at] != 0;
    assert_int_equal(filled, 2 * slices);
}

static void await_count(unsigned number)
{
    for (unsigned i = 0; atomic_load(&model.count) < number; i++) {
        assert_true(i < 20000);
        usleep(1000);
    }
}

/* ---- tests ---- */

static void few_are_submitted_in_a_round(void **state)
{
    enum { SLICES = 100000 };
    struct fixture *self = begin();
    fill(self, 0, SLICES, 7);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&model.count), SLICES);
    assert_in_range(atomic_load(&model.most), 1, FLYT_PIECES_PER_ROUND_MAX);
    expect_filled(SLICES, 7);
    end(self);
}

/* What the driver does in one call is one, in the call. */
static void boxes_without_irregular_gaps_are_one(void **state)
{
    static const flyt_box boxes[] = {
        {.width_bytes = 1, .height = 1, .depth = 1000, .pitch_bytes = 0, .slice_bytes = 48},
        {.width_bytes = 1, .height = 10, .depth = 100, .pitch_bytes = 32, .slice_bytes = 320},
        {.width_bytes = 4, .height = 10, .depth = 100, .pitch_bytes = 4, .slice_bytes = 40},
        {.width_bytes = 4, .height = 1, .depth = 1000, .pitch_bytes = 4, .slice_bytes = 4},
        {.width_bytes = 4, .height = 1000, .depth = 1, .pitch_bytes = 4, .slice_bytes = 0},
        {.width_bytes = 4, .height = 1000, .depth = 1, .pitch_bytes = 8, .slice_bytes = 1},
        {.width_bytes = 4000, .height = 1, .depth = 1, .pitch_bytes = 0, .slice_bytes = 0},
    };
    struct fixture *self = begin();
    for (unsigned i = 0; i < sizeof boxes / sizeof boxes[0]; i++) {
        flyt_box box = boxes[i];
        box.address = model.base;
        memset(model.bytes, 0, sizeof model.bytes);
        SEND(self, FLYT_MEMORY_SET, memory_set, .stream_id = stream_id(0), .dst = box, .element_bytes = 1, .value = 9);
        barrier(self);
        assert_int_equal(atomic_load(&model.count), i + 1);
        size_t filled = 0;
        for (uint64_t slice = 0; slice < box.depth; slice++)
            for (uint64_t row = 0; row < box.height; row++)
                for (uint64_t column = 0; column < box.width_bytes; column++)
                    assert_int_equal(model.bytes[slice * box.slice_bytes + row * box.pitch_bytes + column], 9);
        for (size_t at = 0; at < MEMORY_BYTES; at++)
            filled += model.bytes[at] != 0;
        assert_int_equal(filled, box.width_bytes * box.height * box.depth);
    }
    assert_int_equal(atomic_load(&model.most), 0);
    end(self);
}

static void the_driver_has_no_more_than_a_stream_holds(void **state)
{
    enum { SLICES = 2000, MORE = 5 };
    struct fixture *self = begin();
    flyt_fake_hold(1);
    uint32_t call = fill(self, 0, SLICES, 1);
    await_count(FLYT_STREAM_DEPTH_MAX);
    /* Calls of other streams, and what asks for the first one's end, find the session there. */
    assert_int_equal(query(self, stream_id(0)), CUDA_ERROR_NOT_READY);
    set(self, stream_id(1), model.base + 3);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&model.count), FLYT_STREAM_DEPTH_MAX + 1);
    /* Done is the call with its last piece. */
    flyt_fake_step(1, FLYT_STREAM_DEPTH_MAX, 0);
    await_count(2 * FLYT_STREAM_DEPTH_MAX + 1);
    flyt_stream_query_res res;
    uint32_t xid = SEND(self, FLYT_STREAM_QUERY, stream_query, .stream_id = stream_id(0));
    await_reply(self, xid, (xdrproc_t)xdr_flyt_stream_query_res, &res);
    assert_int_equal(res.result, CUDA_ERROR_NOT_READY);
    assert_in_range(res.progress.executed, 1, call - 1);
    assert_in_range(res.progress.completed, 1, call - 1);
    /* What comes behind it in the stream waits. */
    for (unsigned i = 0; i < MORE; i++)
        set(self, stream_id(0), model.base);
    set(self, stream_id(1), model.base);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&model.of[1]), 2 * FLYT_STREAM_DEPTH_MAX);
    flyt_fake_release(1);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&model.of[1]), SLICES + MORE);
    flyt_progress progress = barrier(self);
    assert_int_equal(progress.completed, progress.received);
    end(self);
}

static size_t put_fill(struct fixture *self, char *record, size_t room, unsigned stream, unsigned slices)
{
    const flyt_memory_set_args args = {
        .stream_id = stream_id(stream), .dst = box_of(slices), .element_bytes = 1, .value = 1};
    return encode_call(self, record, room, FLYT_MEMORY_SET, (xdrproc_t)xdr_flyt_memory_set_args, &args);
}

/* Both come in one message; the short one is through long before the long one is. */
static void two_take_turns(void **state)
{
    enum { LONG = 200000, SHORT = 1000 };
    struct fixture *self = begin();
    char records[4096];
    size_t bytes = put_fill(self, records, sizeof records, 0, LONG);
    bytes += put_fill(self, records + bytes, sizeof records - bytes, 1, SHORT);
    const flyt_stream_synchronize_args args = {.stream_id = stream_id(1)};
    bytes += encode_call(self, records + bytes, sizeof records - bytes, FLYT_STREAM_SYNCHRONIZE,
                         (xdrproc_t)xdr_flyt_stream_synchronize_args, &args);
    flyt_fake_hold(2); /* so that the answer comes when the test has looked */
    assert_int_equal(send(self->fd, records, bytes, MSG_NOSIGNAL), bytes);
    await_count(FLYT_STREAM_DEPTH_MAX + 1);
    for (unsigned i = 0; atomic_load(&model.of[2]) < FLYT_STREAM_DEPTH_MAX; i++)
        assert_true(atomic_load(&model.of[1]) < LONG);
    flyt_fake_release(2);
    flyt_stream_synchronize_res res;
    await_reply(self, self->xid, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(atomic_load(&model.of[2]), SHORT);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&model.of[1]), LONG);
    assert_in_range(atomic_load(&model.most), 1, FLYT_PIECES_PER_ROUND_MAX);
    end(self);
}

/* ---- copies ---- */

static char pattern(size_t i)
{
    return (char)(1 + i * 7 % 251);
}

static void small_copies_come_to_their_places(void **state)
{
    enum { SLICES = 32768, BYTES = 2 * SLICES };
    static char data[BYTES];
    struct fixture *self = begin();
    flyt_copy_out_res res = {0};
    for (size_t i = 0; i < BYTES; i++)
        data[i] = pattern(i);
    SEND(self, FLYT_COPY_IN, copy_in, .stream_id = stream_id(0), .dst = box_of(SLICES),
         .data = {.data_len = BYTES, .data_val = data});
    uint32_t xid = SEND(self, FLYT_COPY_OUT, copy_out, .stream_id = stream_id(0), .src = box_of(SLICES));
    await_reply(self, xid, (xdrproc_t)xdr_flyt_copy_out_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(res.data.data_len, BYTES);
    assert_memory_equal(res.data.data_val, data, BYTES);
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
    for (unsigned i = 0; i < BYTES; i++)
        assert_int_equal((char)*byte_of(i), pattern(i));
    assert_int_equal(atomic_load(&model.count), 2 * SLICES);
    assert_in_range(atomic_load(&model.most), 1, FLYT_PIECES_PER_ROUND_MAX);
    end(self);
}

/* Chunks that begin and end within slices, the second one first; and what comes back. */
static void large_copies_come_to_their_places(void **state)
{
    enum { SLICES = 50000, BYTES = 2 * SLICES, CUT = 33333, TO = 5, FROM = 6 };
    static char data[BYTES], back[BYTES];
    struct fixture *self = begin();
    for (size_t i = 0; i < BYTES; i++)
        data[i] = pattern(i);
    flyt_chunk chunks[] = {{.transfer_id = TO, .offset_bytes = CUT, .data = {BYTES - CUT, data + CUT}},
                           {.transfer_id = TO, .offset_bytes = 0, .data = {CUT, data}}};
    SEND(self, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = stream_id(0), .dst = box_of(SLICES),
         .transfer_id = TO, .bytes = BYTES);
    for (unsigned i = 0; i < 2; i++) {
        send_call(self, FLYT_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunks[i]);
        self->xid--; /* chunks have no number */
    }
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    for (unsigned i = 0; i < BYTES; i++)
        assert_int_equal((char)*byte_of(i), pattern(i));
    SEND(self, FLYT_COPY_OUT_TRANSFER, copy_out_transfer, .stream_id = stream_id(0), .src = box_of(SLICES),
         .transfer_id = FROM, .bytes = BYTES);
    for (size_t got = 0; got < BYTES;) {
        flyt_chunk chunk = {0};
        await_back(self, FLYT_BACK_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunk);
        assert_int_equal(chunk.transfer_id, FROM);
        assert_true(chunk.offset_bytes + chunk.data.data_len <= BYTES);
        memcpy(back + chunk.offset_bytes, chunk.data.data_val, chunk.data.data_len);
        got += chunk.data.data_len;
        xdr_free((xdrproc_t)xdr_flyt_chunk, &chunk);
    }
    assert_memory_equal(back, data, BYTES);
    assert_in_range(atomic_load(&model.most), 1, FLYT_PIECES_PER_ROUND_MAX);
    end(self);
}

/* ---- the middle ---- */

/* Skips progress notices and credits. */
static void await_call_error(struct fixture *self, uint32_t call, int want)
{
    flyt_back_call_error back;
    do
        assert_true(receive(self) && get(self, 4) == 0);
    while (get(self, 20) == FLYT_BACK_PROGRESS || get(self, 20) == FLYT_BACK_CREDIT);
    assert_int_equal(get(self, 20), FLYT_BACK_CALL_ERROR);
    XDR xdrs;
    xdrmem_create(&xdrs, self->message + CALL_HEAD_BYTES, (u_int)(self->message_bytes - CALL_HEAD_BYTES), XDR_DECODE);
    assert_true(xdr_flyt_back_call_error(&xdrs, &back));
    assert_int_equal(back.sequence, call);
    assert_int_equal(back.result, want);
}

/* The rest is not submitted; the thread that made the call hears of it, and the stream goes on. */
static void an_error_in_the_middle_is_the_calls(void **state)
{
    enum { SLICES = 3000, AT = 1000 };
    struct fixture *self = begin();
    flyt_copy_out_res res = {0};
    model.fail_at = AT;
    uint32_t call = fill(self, 0, SLICES, 1);
    set(self, stream_id(0), model.base);
    await_call_error(self, call, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&model.count), AT + 1);
    model.fail_at = AT + 1 + AT;
    uint32_t xid = SEND(self, FLYT_COPY_OUT, copy_out, .stream_id = stream_id(0), .src = box_of(SLICES));
    await_reply(self, xid, (xdrproc_t)xdr_flyt_copy_out_res, &res);
    assert_int_equal(res.result, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(res.data.data_len, 0);
    assert_int_equal(atomic_load(&model.count), AT + 1 + AT);
    flyt_progress progress = barrier(self);
    assert_int_equal(progress.completed, progress.received);
    end(self);
}

static void a_fault_in_the_middle_ends_it(void **state)
{
    enum { SLICES = 3000 };
    struct fixture *self = begin();
    flyt_back_fatal back = {0};
    flyt_fake_hold(1);
    uint32_t call = fill(self, 0, SLICES, 1);
    await_count(FLYT_STREAM_DEPTH_MAX);
    flyt_fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    await_back(self, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &back);
    await_call_error(self, call, CUDA_ERROR_ILLEGAL_ADDRESS);
    alloc(self, 64, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(atomic_load(&model.count), FLYT_STREAM_DEPTH_MAX);
    end(self);
}

/* Destroyed, freed and reset is what it works on when it is through. */
static void its_stream_and_its_memory_wait_for_it(void **state)
{
    enum { SLICES = 3000 };
    struct fixture *self = begin();
    flyt_device_reset_res res;
    flyt_fake_hold(1);
    fill(self, 0, SLICES, 1);
    SEND(self, FLYT_STREAM_DESTROY, stream_destroy, .stream_id = stream_id(0));
    SEND(self, FLYT_MEMORY_FREE, memory_free, .address = model.base);
    uint32_t xid = SEND(self, FLYT_DEVICE_RESET, device_reset);
    await_count(FLYT_STREAM_DEPTH_MAX);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&model.count), FLYT_STREAM_DEPTH_MAX);
    assert_true(flyt_fake_used_memory() >= MEMORY_BYTES);
    flyt_fake_release(1);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_device_reset_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(atomic_load(&model.count), SLICES);
    expect_filled(SLICES, 1);
    end(self);
}

/* The session ends whatever is left: in tear_down, which waits for its thread. */
static void the_client_goes_in_the_middle(void **state)
{
    enum { SLICES = 100000 };
    struct fixture *self = begin();
    flyt_fake_hold(1);
    fill(self, 0, SLICES, 1);
    await_count(FLYT_STREAM_DEPTH_MAX);
    end(self);
    assert_int_equal(atomic_load(&model.count), FLYT_STREAM_DEPTH_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_are_submitted_in_a_round),
        cmocka_unit_test(boxes_without_irregular_gaps_are_one),
        cmocka_unit_test(the_driver_has_no_more_than_a_stream_holds),
        cmocka_unit_test(two_take_turns),
        cmocka_unit_test(small_copies_come_to_their_places),
        cmocka_unit_test(large_copies_come_to_their_places),
        cmocka_unit_test(an_error_in_the_middle_is_the_calls),
        cmocka_unit_test(a_fault_in_the_middle_ends_it),
        cmocka_unit_test(its_stream_and_its_memory_wait_for_it),
        cmocka_unit_test(the_client_goes_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
