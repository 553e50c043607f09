/*
 * In which order what the GPU has written reaches the program: as it was written, for two copies may have the same
 * place in the program's memory. The driver's events are in the test's hands.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"

enum { BYTES = 64, FIRST = 21, SECOND = 22 };

static struct flyt_driver driver;
static const struct flyt_driver *fake;
static struct {
    atomic_bool is_held;     /* no event is reached */
    atomic_bool is_copied;   /* the next event that is recorded follows a copy */
    atomic_uint event_count; /* that follow copies */
    CUevent first;           /* of these */
    atomic_bool is_late;     /* it is reached when it has been asked for once more */
} script;

static CUresult copy_out(void *data, CUdeviceptr address, size_t bytes, CUstream stream)
{
    atomic_store(&script.is_copied, true);
    return fake->cuMemcpyDtoHAsync(data, address, bytes, stream);
}

static CUresult event_record(CUevent event, CUstream stream)
{
    if (atomic_exchange(&script.is_copied, false) && !atomic_fetch_add(&script.event_count, 1))
        script.first = event;
    return fake->cuEventRecord(event, stream);
}

static CUresult event_query(CUevent event)
{
    bool is_late = !atomic_load(&script.is_held) && event == script.first && atomic_exchange(&script.is_late, false);
    return atomic_load(&script.is_held) || is_late ? CUDA_ERROR_NOT_READY : fake->cuEventQuery(event);
}

static struct fixture *begin(uint64_t *ret_address)
{
    fake = flyt_fake_driver();
    driver = *fake;
    driver.cuMemcpyDtoHAsync = copy_out;
    driver.cuEventRecord = event_record;
    driver.cuEventQuery = event_query;
    memset(&script, 0, sizeof script);
    struct fixture *self = make_over(&driver);
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
    *ret_address = alloc(self, 1 << 20, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    barrier(self);
    script.is_held = script.is_late = true;
    return self;
}

static void send_copy(struct fixture *self, unsigned stream, uint64_t address, uint64_t transfer_id)
{
    SEND(self, FLYT_COPY_OUT_TRANSFER, copy_out_transfer, .stream_id = stream_id(stream), .src = range(address, BYTES),
         .transfer_id = transfer_id, .bytes = BYTES);
}

/* Both copies are done from one moment to the next, while the server has just asked for the first one. */
static void release(unsigned copy_count)
{
    for (unsigned i = 0; atomic_load(&script.event_count) < copy_count; i++) {
        assert_true(i < 60000);
        usleep(1000);
    }
    atomic_store(&script.is_held, false);
}

static void expect_chunk(struct fixture *self, uint64_t transfer_id)
{
    flyt_chunk chunk = {0};
    await_back(self, FLYT_BACK_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunk);
    assert_int_equal(chunk.transfer_id, transfer_id);
    assert_int_equal(chunk.data.data_len, BYTES);
    xdr_free((xdrproc_t)xdr_flyt_chunk, &chunk);
}

static void end(struct fixture *self)
{
    void *state = self;
    tear_down(&state);
}

/* Of one stream, or of two that an event may have put in order. */
static void copies_arrive_as_they_were_made(void **state)
{
    for (unsigned stream = 0; stream < 2; stream++) {
        uint64_t address;
        struct fixture *self = begin(&address);
        send_copy(self, 0, address, FIRST);
        send_copy(self, stream, address, SECOND);
        release(2);
        expect_chunk(self, FIRST);
        expect_chunk(self, SECOND);
        end(self);
    }
}

static void an_answer_does_not_overtake_a_copy(void **state)
{
    uint64_t address;
    struct fixture *self = begin(&address);
    flyt_copy_out_res res = {0};
    send_copy(self, 0, address, FIRST);
    uint32_t xid = SEND(self, FLYT_COPY_OUT, copy_out, .stream_id = stream_id(0), .src = range(address, BYTES));
    release(2);
    expect_chunk(self, FIRST);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_copy_out_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
    end(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_arrive_as_they_were_made),
        cmocka_unit_test(an_answer_does_not_overtake_a_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
