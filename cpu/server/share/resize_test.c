/*
 * Other SMs under a running session, over a driver that does nothing: what is asked of the driver and in which order,
 * what the node manager is told, and that everything that waited goes on in the right order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "cpu/server/test/fake_orders.h"
#include "cpu/server/share/resize.h"

static void assert_streams(unsigned streams)
{
    assert_int_equal(flyt_fake_stream_count(), streams);
}

/* ---- tests ---- */

static void idle_streams_move_at_once(void **state)
{
    struct managed *self = *state;
    SEND(self->client, FLYT_STREAM_CREATE, stream_create, .stream_id = stream_id(0), .flags = CU_STREAM_NON_BLOCKING,
         .priority = -2);
    barrier(self->client);
    flyt_fake_log_clear();
    resize(self, 3);
    assert_log("green:2=16 stream:2@2,-3 stream:3@2,-2 gone:0 gone:1");
    assert_streams(2);
    assert_int_equal(self->client->session.devices[0].partition->sm_count, 16);
}

static void set_attribute(struct fixture *client, uint64_t id, unsigned attribute, unsigned value, CUresult expected)
{
    flyt_stream_attribute_set_res res;
    uint32_t xid = SEND(client, FLYT_STREAM_ATTRIBUTE_SET, stream_attribute_set, .stream_id = id,
                        .attribute = {.id = attribute, .value = {value}});
    await_reply(client, xid, (xdrproc_t)xdr_flyt_stream_attribute_set_res, &res);
    assert_int_equal(res.result, expected);
}

/* The driver streams that are new have them, the legacy one too; priorities are those of the class. */
static void streams_keep_their_attributes(void **state)
{
    struct managed *self = *state;
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    barrier(self->client);
    flyt_fake_log_clear();
    set_attribute(self->client, stream_id(0), CU_LAUNCH_ATTRIBUTE_PRIORITY, (unsigned)-1, CUDA_SUCCESS);
    set_attribute(self->client, stream_id(0), CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, 3, CUDA_SUCCESS);
    set_attribute(self->client, stream_id(0), CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, 2, CUDA_SUCCESS);
    set_attribute(self->client, legacy, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, 1, CUDA_SUCCESS);
    set_attribute(self->client, legacy, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1, CUDA_ERROR_INVALID_VALUE);
    assert_log("attribute:1,8,-3 attribute:1,3,3 attribute:1,3,2 attribute:0,10,1");
    flyt_fake_log_clear();
    resize(self, 3);
    assert_log(
        "green:2=16 stream:2@2,-2 attribute:2,3,2 attribute:2,8,-3 stream:3@2,-2 attribute:3,10,1 gone:0 gone:1");
}

/* The stream that stays has no attributes any more: its client has forgotten them, too. */
static void a_reset_forgets_attributes(void **state)
{
    struct managed *self = *state;
    flyt_device_reset_res res;
    set_attribute(self->client, legacy, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, 1, CUDA_SUCCESS);
    flyt_fake_log_clear();
    uint32_t xid = SEND(self->client, FLYT_DEVICE_RESET, device_reset);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_device_reset_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_log("stream:1@1,-2 gone:0");
    flyt_fake_log_clear();
    resize(self, 3);
    assert_log("green:2=16 stream:2@2,-2 gone:1");
}

static void busy_streams_wait_for_what_they_left(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING); /* driver stream 1 */
    create(client, 1, CU_STREAM_NON_BLOCKING); /* 2 */
    flyt_fake_hold(1);
    set(client, stream_id(0), address);
    barrier(client);
    flyt_fake_log_clear();
    uint64_t revision = order(self, 1);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    set(client, stream_id(0), address);
    set(client, stream_id(1), address);
    assert_int_equal(synchronize(client, stream_id(1)), CUDA_SUCCESS);
    /* New work of the busy stream is there, and does not overtake. */
    assert_int_equal(query(client, stream_id(0)), CUDA_ERROR_NOT_READY);
    expect_nothing(self);
    assert_streams(4);
    flyt_fake_release(1);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
    assert_streams(3);
    char log[4096];
    flyt_fake_log(log, sizeof log);
    /* The mark of what was there, the new stream's wait for it, then new work: and nobody waits in the driver. */
    const char *wait = strstr(log, "wait:4<1"), *more = strstr(log, "memset:4"), *gone = strstr(log, "gone:1");
    assert_true(wait && more && gone && wait < more && more < gone);
    assert_non_null(strstr(log, "memset:3"));
    assert_null(strstr(log, "sync"));
    assert_null(strstr(log, "wait:3"));
}

/* Events, the legacy stream's order and the end of memory's use see through the change. */
static void order_between_streams_holds(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, 0);                      /* 1 */
    create(client, 1, CU_STREAM_NON_BLOCKING); /* 2 */
    SEND(client, FLYT_EVENT_CREATE, event_create, .event_id = event_id(1));
    flyt_fake_hold(1);
    set(client, stream_id(0), address);
    SEND(client, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(0));
    barrier(client);
    uint64_t revision = order(self, 1);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    flyt_fake_log_clear();
    set(client, legacy, address); /* after the blocking stream's work */
    SEND(client, FLYT_STREAM_WAIT_EVENT, stream_wait_event, .stream_id = stream_id(1), .event_id = event_id(1));
    set(client, stream_id(1), address);
    assert_int_equal(query(client, legacy), CUDA_ERROR_NOT_READY);
    assert_int_equal(query(client, stream_id(1)), CUDA_ERROR_NOT_READY);
    assert_int_equal(count_in_log("wait:"), 2);
    flyt_fake_release(1);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    assert_int_equal(synchronize(client, legacy), CUDA_SUCCESS);
    assert_int_equal(synchronize(client, stream_id(1)), CUDA_SUCCESS);
    flyt_progress progress = barrier(client);
    assert_int_equal(progress.completed, progress.received);
    /* The event is recorded in the new stream. */
    SEND(client, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(0));
    flyt_event_synchronize_res res;
    uint32_t xid = SEND(client, FLYT_EVENT_SYNCHRONIZE, event_synchronize, .event_id = event_id(1));
    await_reply(client, xid, (xdrproc_t)xdr_flyt_event_synchronize_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
}

/* A host function holds its stream; what is deferred behind it goes to the new one. */
static void held_streams_go_on_in_the_new_context(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    flyt_back_host_function back;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING); /* 1 */
    set(client, stream_id(0), address);
    SEND(client, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 7);
    set(client, stream_id(0), address);
    await_back(client, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    flyt_fake_log_clear();
    resize(self, 5);
    SEND(client, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 7);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(count_in_log("memset:2"), 1);
    assert_int_equal(count_in_log("memset:1"), 0);
}

/* Destroyed while it has work: its old and its new driver stream go when that is done. */
static void destroyed_streams_are_drained_too(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(client, stream_id(0), address);
    SEND(client, FLYT_STREAM_DESTROY, stream_destroy, .stream_id = stream_id(0));
    barrier(client);
    uint64_t revision = order(self, 1);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    expect_nothing(self);
    flyt_fake_release(1);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    barrier(client);
    assert_streams(1);
}

static void the_same_groups_change_nothing(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING);
    resize(self, 1);
    flyt_fake_log_clear();
    resize(self, 1);
    assert_log("");
    /* While an earlier order still drains, it is not vacated before that is. */
    flyt_fake_hold(3);
    flyt_fake_hold(2);
    set(client, stream_id(0), address);
    barrier(client);
    expect(self, order(self, 2), FLYT_MANAGER_LINK_SWITCHED);
    expect(self, order(self, 2), FLYT_MANAGER_LINK_SWITCHED);
    expect_nothing(self);
    flyt_fake_release(2);
    flyt_fake_release(3);
    expect(self, self->revision, FLYT_MANAGER_LINK_VACATED);
    expect_nothing(self);
}

static void what_cannot_be_is_refused(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING);
    resize(self, 1);
    expect(self, order(self, 1u << GROUPS), -EINVAL);
    expect(self, order(self, 0), -EINVAL);
    flyt_fake_log_clear();
    flyt_fake_limit_streams(5); /* the second of the two that are needed */
    flyt_fake_hold(2);
    flyt_fake_hold(3);
    set(client, stream_id(0), address);
    barrier(client);
    expect(self, order(self, 6), -ENOMEM);
    assert_streams(2);
    assert_int_equal(client->session.devices[0].partition->sm_count, 8);
    flyt_fake_release(2);
    flyt_fake_release(3);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
    flyt_fake_limit_streams(4096);
    resize(self, 6);
    assert_int_equal(client->session.devices[0].partition->sm_count, 16);
    set(client, stream_id(0), address);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
}

/* More orders than contexts may be left: the last one counts, and waits until there is room. */
static void orders_that_come_too_fast_wait(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(client, stream_id(0), address);
    barrier(client);
    for (unsigned i = 0; i < FLYT_LEFT_CONTEXTS_MAX; i++)
        expect(self, order(self, 1 + i % 2), FLYT_MANAGER_LINK_SWITCHED);
    order(self, 4);
    order(self, 8);
    order(self, 16 + 32 + 64);
    expect_nothing(self);
    assert_streams(2 + FLYT_LEFT_CONTEXTS_MAX);
    flyt_fake_release(1);
    expect(self, self->revision, FLYT_MANAGER_LINK_SWITCHED);
    expect(self, self->revision, FLYT_MANAGER_LINK_VACATED);
    assert_int_equal(client->session.devices[0].partition->sm_count, 24);
    assert_streams(2);
}

/* Calls of several streams run through 300 changes: all of them are made, in order, and nothing is left over. */
static void many_changes_under_load(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    enum { STREAMS = 3, CHANGES = 300, SETS = 255, CALLS = 7 };
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    for (unsigned i = 0; i < STREAMS; i++)
        create(client, i, i ? CU_STREAM_NON_BLOCKING : 0);
    unsigned memset_count = 0;
    for (unsigned i = 0; i < CHANGES; i++) {
        flyt_fake_log_clear();
        uint64_t revision = order(self, 1 + i % SETS);
        for (unsigned j = 0; j < CALLS; j++)
            set(client, j % (STREAMS + 1) == STREAMS ? legacy : stream_id(j % (STREAMS + 1)), address);
        expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
        for (unsigned j = 0; j < STREAMS; j++)
            assert_int_equal(synchronize(client, stream_id(j)), CUDA_SUCCESS);
        assert_int_equal(synchronize(client, legacy), CUDA_SUCCESS);
        expect(self, revision, FLYT_MANAGER_LINK_VACATED);
        memset_count += count_in_log("memset:");
        assert_int_equal(count_in_log("sync"), 0);
        /* The contexts of groups that it has had are there still. */
        if (i >= SETS)
            assert_int_equal(count_in_log("green:"), 0);
        assert_streams(STREAMS + 1);
        flyt_progress progress = barrier(client);
        assert_int_equal(progress.completed, progress.received);
    }
    assert_int_equal(memset_count, CHANGES * CALLS);
}

/* After a fault nothing runs any more: the groups are free though the program is still there. */
static void a_lost_context_vacates(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    flyt_back_fatal back = {0};
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(client, stream_id(0), address);
    barrier(client);
    uint64_t revision = order(self, 1);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    flyt_fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    await_back(client, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    assert_int_equal(back.result, CUDA_ERROR_ILLEGAL_ADDRESS);
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &back);
    resize(self, 2);
}

/* ---- how much the driver has (pace.h) ---- */

/* So many calls of the stream, whose driver stream has that number and is held. */
static void send_many(struct managed *self, unsigned number, uint64_t address, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        set(self->client, stream_id(number), address);
}

/* After the loop has looked at everything: how many of the stream's calls the driver has got. */
static unsigned submitted(struct managed *self, const char *word)
{
    for (unsigned i = 0; i < 3; i++)
        query(self->client, stream_id(0));
    return count_in_log(word);
}

/* Operations end one by one, each after so long, until `until` have; the driver never has more than most, once what it
 * had at first has ended. */
static void end_one_by_one(struct managed *self, unsigned *done, unsigned until, uint64_t each_ns, unsigned most)
{
    unsigned first = submitted(self, "memset:1");
    for (; *done < until; ++*done) {
        unsigned now = submitted(self, "memset:1");
        if (*done >= first)
            assert_in_range(now - *done, 1, most);
        flyt_fake_step(1, 1, each_ns);
    }
}

static void long_work_is_given_to_the_driver_bit_by_bit(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    unsigned done = 0;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING); /* 1 */
    create(client, 1, CU_STREAM_NON_BLOCKING); /* 2 */
    flyt_fake_hold(1);
    send_many(self, 0, address, 100);
    assert_int_equal(submitted(self, "memset:1"), FLYT_PACE_DEPTH_FIRST);
    end_one_by_one(self, &done, 40, 7000000, 2);
    /* At least two, so that the GPU need not wait. */
    assert_int_equal(submitted(self, "memset:1") - done, 2);
    /* Another stream does not wait for that. */
    send_many(self, 1, address, 10);
    assert_int_equal(synchronize(client, stream_id(1)), CUDA_SUCCESS);
    /* Others SMs take hold at once, and what is left on those from before is what the driver had. */
    uint64_t revision = order(self, 3);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    assert_int_equal(submitted(self, "memset:1") - done, 2);
    flyt_fake_step(1, 2, 7000000);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(count_in_log("memset:"), 110);
    assert_int_equal(client->session.fatal, CUDA_SUCCESS);
}

static void short_work_fills_the_queue_again(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    unsigned done = 0;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING); /* 1 */
    flyt_fake_hold(1);
    send_many(self, 0, address, 2000);
    end_one_by_one(self, &done, 40, 15000000, 1);
    /* What ended after the last marker that was reached is not known to have. */
    const unsigned full = FLYT_STREAM_DEPTH_MAX - FLYT_STREAM_DEPTH_MAX / FLYT_PACE_MARK_PART;
    while (submitted(self, "memset:1") - done < full) {
        unsigned step = (submitted(self, "memset:1") - done + 1) / 2;
        flyt_fake_step(1, step, 5000);
        done += step;
        assert_in_range(done, 0, 1000);
    }
    unsigned before = submitted(self, "memset:1");
    assert_in_range(before - done, full, FLYT_STREAM_DEPTH_MAX);
    /* And long ones among them are noticed. */
    flyt_fake_step(1, before - done, 4000000);
    assert_in_range(submitted(self, "memset:1") - before, 1, 5);
    flyt_fake_release(1);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(count_in_log("memset:1"), 2000);
}

/* Copies are bounded with the rest: one waits for its time slice while the stream is full, and holds nobody else. */
static void copies_wait_for_room(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    unsigned done = 0;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING); /* 1 */
    flyt_fake_hold(1);
    send_many(self, 0, address, 30);
    end_one_by_one(self, &done, 20, 9000000, 2);
    uint32_t xid = SEND(client, FLYT_COPY_OUT, copy_out, .stream_id = stream_id(0), .src = range(address, 64));
    for (; done < 28; done++) {
        submitted(self, "memset:1");
        assert_int_equal(count_in_log("out:1"), 0);
        flyt_fake_step(1, 1, 9000000);
    }
    flyt_fake_step(1, 2, 9000000);
    submitted(self, "memset:1");
    assert_int_equal(count_in_log("out:1"), 1);
    flyt_fake_release(1);
    flyt_copy_out_res res = {0};
    await_reply(client, xid, (xdrproc_t)xdr_flyt_copy_out_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
}

/* A single call that is as many operations as its box has slices. */
static void a_call_of_many_pieces_goes_on_in_the_new_context(void **state)
{
    enum { SLICES = 1000 };
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, SLICES * SLICE_BYTES, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING); /* 1 */
    barrier(client);
    flyt_fake_log_clear();
    flyt_fake_hold(1);
    set_slices(client, stream_id(0), address, SLICES);
    for (unsigned i = 0; count_in_log("memset:1") < FLYT_PACE_DEPTH_FIRST; i++) {
        assert_true(i < 20000);
        usleep(1000);
    }
    uint64_t revision = order(self, 1);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    assert_int_equal(count_in_log("memset:1"), FLYT_PACE_DEPTH_FIRST);
    flyt_fake_release(1);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(count_in_log("memset:1"), FLYT_PACE_DEPTH_FIRST);
    assert_int_equal(count_in_log("memset:2"), SLICES - FLYT_PACE_DEPTH_FIRST);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(idle_streams_move_at_once),
        TEST(streams_keep_their_attributes),
        TEST(a_reset_forgets_attributes),
        TEST(busy_streams_wait_for_what_they_left),
        TEST(order_between_streams_holds),
        TEST(held_streams_go_on_in_the_new_context),
        TEST(destroyed_streams_are_drained_too),
        TEST(the_same_groups_change_nothing),
        TEST(what_cannot_be_is_refused),
        TEST(orders_that_come_too_fast_wait),
        TEST(many_changes_under_load),
        TEST(a_lost_context_vacates),
        TEST(long_work_is_given_to_the_driver_bit_by_bit),
        TEST(short_work_fills_the_queue_again),
        TEST(copies_wait_for_room),
        TEST(a_call_of_many_pieces_goes_on_in_the_new_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
