/* Events that other processes have, too: what is said of records here, and heard of those of others, with a driver
 * whose streams a test holds. The other process is another user of the page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/core/event.h"
#include "cpu/server/core/event_share.h"
#include "cpu/server/core/observer.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/test/fake_driver.h"
#include "rpc/base/shared_event.h"

static struct flyt_session session;
static struct flyt_stream stream;
static struct flyt_event event;
static struct flyt_shared_event *other; /* the other process's */
static int shared_count, ended_count;

static void count_shared(struct flyt_session *unused, bool is_more)
{
    shared_count += is_more ? 1 : -1;
}

static void count_ended(const struct flyt_event_share *share)
{
    ended_count++;
}

static const struct flyt_observer observer = {.shared_counted = count_shared};

static int set_up(void **state)
{
    static const unsigned char token[FLYT_EVENT_TOKEN_BYTES] = {1};
    struct flyt_device *device = &session.devices[0];
    struct flyt_shared_event *page;
    int fd;
    session = (struct flyt_session){.driver = flyt_fake_driver(), .observer = &observer, .device_count = 1};
    *device = (struct flyt_device){.session = &session, .is_made = true};
    session.current_device = device;
    stream = (struct flyt_stream){.device = device, .cu_stream = (CUstream)1};
    event = (struct flyt_event){.device = device};
    shared_count = ended_count = 0;
    assert_int_equal(flyt_shared_event_new(&page), 0);
    assert_int_equal(flyt_shared_event_descriptor(page, &fd), 0);
    assert_int_equal(flyt_shared_event_open(fd, &other), 0);
    close(fd);
    assert_int_equal(flyt_event_share_begin(&event, page, token, true), CUDA_SUCCESS);
    event.share->ended = count_ended;
    assert_int_equal(shared_count, 1);
    return 0;
}

static int tear_down(void **state)
{
    flyt_fake_release(0);
    flyt_shared_event_close(other);
    flyt_fence_unref(event.fence);
    flyt_event_shares_fini(&session);
    flyt_fence_pool_fini(&session.devices[0]);
    return 0;
}

/* Behind what the stream has, which stands still. */
static void record(void)
{
    struct flyt_fence *fence;
    flyt_fake_hold(0);
    assert_int_equal(session.driver->cuMemsetD8Async(0, 0, 1, stream.cu_stream), CUDA_SUCCESS);
    assert_int_equal(flyt_fence_record(&stream, false, &fence), CUDA_SUCCESS);
    assert_int_equal(flyt_event_set(&event, fence), CUDA_SUCCESS);
}

static struct flyt_shared_record record_elsewhere(void)
{
    struct flyt_shared_record made;
    assert_int_equal(flyt_shared_event_record(other, &made), 0);
    return made;
}

static void end_event(void)
{
    flyt_event_share_end(event.share);
    event.share = NULL;
    event.fence = flyt_fence_unref(event.fence);
}

static void a_record_is_told_and_its_end(void **state)
{
    assert_false(flyt_event_shares_advance(&session));
    record();
    uint64_t word = flyt_shared_event_last(other);
    assert_int_not_equal(word, 0);
    assert_true(flyt_event_shares_advance(&session));
    assert_false(flyt_shared_event_is_complete(other, word));
    /* It is its own last record: nothing new. */
    struct flyt_fence *fence = event.fence;
    assert_int_equal(flyt_event_share_look(event.share), CUDA_SUCCESS);
    assert_ptr_equal(event.fence, fence);
    flyt_fake_release(0);
    assert_false(flyt_event_shares_advance(&session));
    assert_true(flyt_shared_event_is_complete(other, word));
}

static void anothers_record_is_a_promise(void **state)
{
    struct flyt_shared_record first = record_elsewhere();
    assert_int_equal(flyt_event_share_look(event.share), CUDA_SUCCESS);
    struct flyt_fence *fence = flyt_fence_ref(event.fence);
    assert_non_null(fence);
    assert_false(fence->is_recorded);
    assert_true(flyt_event_shares_advance(&session));
    assert_int_equal(flyt_fence_poll(fence), CUDA_ERROR_NOT_READY);
    /* Who waits for the first waits for no later one. */
    struct flyt_shared_record second = record_elsewhere();
    assert_int_equal(flyt_event_share_look(event.share), CUDA_SUCCESS);
    assert_ptr_not_equal(event.fence, fence);
    assert_true(flyt_shared_event_complete(other, &first));
    assert_false(session.is_scan_due);
    assert_true(flyt_event_shares_advance(&session));
    assert_true(session.is_scan_due); /* calls are deferred until then */
    assert_int_equal(flyt_fence_poll(fence), CUDA_SUCCESS);
    assert_int_equal(flyt_fence_poll(event.fence), CUDA_ERROR_NOT_READY);
    assert_true(flyt_shared_event_complete(other, &second));
    assert_false(flyt_event_shares_advance(&session));
    assert_int_equal(flyt_fence_poll(event.fence), CUDA_SUCCESS);
    flyt_fence_unref(fence);
}

static void who_has_gone_is_waited_for_no_more(void **state)
{
    record_elsewhere();
    assert_int_equal(flyt_event_share_look(event.share), CUDA_SUCCESS);
    assert_true(flyt_event_shares_advance(&session));
    other = flyt_shared_event_close(other);
    while (flyt_event_shares_advance(&session))
        usleep(100);
    assert_int_equal(flyt_fence_poll(event.fence), CUDA_SUCCESS);
}

static void what_an_event_had_under_way_is_told_when_it_is_gone(void **state)
{
    record();
    uint64_t word = flyt_shared_event_last(other);
    end_event();
    assert_int_equal(ended_count, 1);
    assert_int_equal(shared_count, 0);
    assert_true(flyt_event_shares_advance(&session));
    assert_false(flyt_shared_event_is_complete(other, word));
    assert_false(flyt_shared_event_is_abandoned(other, word));
    flyt_fake_release(0);
    assert_false(flyt_event_shares_advance(&session));
    assert_true(flyt_shared_event_is_complete(other, word));
    assert_null(session.event_shares);
}

static void a_lost_context_holds_nobody_up(void **state)
{
    record();
    uint64_t word = flyt_shared_event_last(other);
    session.fatal = CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_false(flyt_event_shares_advance(&session));
    assert_true(flyt_shared_event_is_complete(other, word));
}

/* What others write into the page costs this process no more than so much. */
static void records_of_others_are_bounded(void **state)
{
    struct flyt_shared_record first = record_elsewhere();
    assert_int_equal(flyt_event_share_look(event.share), CUDA_SUCCESS);
    for (int i = 1; i < FLYT_FOREIGN_RECORDS_MAX; i++) {
        record_elsewhere();
        assert_int_equal(flyt_event_share_look(event.share), CUDA_SUCCESS);
    }
    struct flyt_fence *fence = event.fence;
    record_elsewhere();
    assert_int_equal(flyt_event_share_look(event.share), CUDA_ERROR_OUT_OF_MEMORY);
    assert_ptr_equal(event.fence, fence);
    assert_true(flyt_shared_event_complete(other, &first));
    assert_true(flyt_event_shares_advance(&session));
    assert_int_equal(flyt_event_share_look(event.share), CUDA_SUCCESS);
    assert_ptr_not_equal(event.fence, fence);
    other = flyt_shared_event_close(other);
    while (flyt_event_shares_advance(&session))
        usleep(100);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_record_is_told_and_its_end),       TEST(anothers_record_is_a_promise),
        TEST(who_has_gone_is_waited_for_no_more), TEST(what_an_event_had_under_way_is_told_when_it_is_gone),
        TEST(a_lost_context_holds_nobody_up),     TEST(records_of_others_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
