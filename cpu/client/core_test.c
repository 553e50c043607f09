/* The core over a channel without a server: contexts, flow control, copies that overlap, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/client/core/client.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/event.h"
#include "cpu/client/cuda/function.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/kernel.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/module.h"
#include "cpu/client/cuda/stream.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"

static uint64_t next_address = FLYT_WINDOW_BASE;

/* What the test wants to know of the last call of each kind. */
static struct {
    uint64_t copy_out_transfer_id, copy_out_bytes;
    flyt_copy_in_transfer_args copy_in;
    uint64_t function_id;
} seen;

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    switch (procedure) {
    case FLYT_MEMORY_ALLOC:
        ((flyt_memory_alloc_res *)res)->address = next_address;
        next_address += 1 << 24;
        break;
    case FLYT_DEVICE_INFO:
        fake_serve_device_info(res);
        break;
    case FLYT_COPY_OUT_TRANSFER:
        seen.copy_out_transfer_id = ((const flyt_copy_out_transfer_args *)args)->transfer_id;
        seen.copy_out_bytes = ((const flyt_copy_out_transfer_args *)args)->bytes;
        break;
    case FLYT_COPY_IN_TRANSFER:
        seen.copy_in = *(const flyt_copy_in_transfer_args *)args;
        break;
    case FLYT_HOST_FUNCTION_LAUNCH:
        seen.function_id = ((const flyt_host_function_launch_args *)args)->function_id;
        break;
    default:
        break;
    }
}

/* The server's part of a device-to-host transfer. */
static void deliver(uint64_t transfer_id, uint64_t offset_bytes, size_t bytes, int value)
{
    void *place = fake.handlers->chunk_place(fake.user, transfer_id, offset_bytes, bytes);
    assert_non_null(place);
    memset(place, value, bytes);
    fake.handlers->chunk_done(fake.user, transfer_id, offset_bytes, bytes);
}

/* ---- contexts ---- */

/* The version of this library's own interface, and no connection for it: programs ask before they fork. */
static void test_no_driver_is_asked_before_the_first_call(void **state)
{
    assert_int_equal(flyt_client_driver_version(), CUDA_VERSION);
    assert_null(fake.handlers);
}

static void test_context_stack(void **state)
{
    CUcontext first, second, top;
    CUstream stream;
    int device;
    assert_int_equal(flyt_stream_create(0, 0, &stream), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(flyt_context_create(0, 0, &first), CUDA_SUCCESS);
    assert_int_equal(flyt_context_create(0, 1, &second), CUDA_SUCCESS);
    assert_int_equal(flyt_context_current(&top), CUDA_SUCCESS);
    assert_ptr_equal(top, second);
    assert_int_equal(flyt_context_device(NULL, &device), CUDA_SUCCESS);
    assert_int_equal(device, 1);
    assert_int_equal(flyt_context_pop(&top), CUDA_SUCCESS);
    assert_ptr_equal(top, second);
    assert_int_equal(flyt_context_device(NULL, &device), CUDA_SUCCESS);
    assert_int_equal(device, 0);
    assert_int_equal(flyt_stream_create(0, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(flyt_context_destroy(first), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_query(stream), CUDA_ERROR_INVALID_HANDLE); /* it went with its context */
    assert_int_equal(flyt_context_current(&top), CUDA_SUCCESS);
    assert_null(top);
    assert_int_equal(flyt_context_destroy(first), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(flyt_context_push(second), CUDA_SUCCESS);
    assert_int_equal(flyt_context_push(second), CUDA_SUCCESS);
    assert_int_equal(flyt_context_destroy(second), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_create(0, 0, &stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(flyt_context_pop(NULL), CUDA_SUCCESS);
    assert_int_equal(flyt_context_pop(NULL), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(flyt_context_push((CUcontext)(uintptr_t)0x1234), CUDA_ERROR_INVALID_CONTEXT);
}

static void test_primary_context(void **state)
{
    CUcontext primary, again, current;
    int is_active;
    unsigned flags;
    assert_int_equal(flyt_primary_state(1, &flags, &is_active), CUDA_SUCCESS);
    assert_false(is_active);
    assert_int_equal(flyt_primary_release(1), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(flyt_primary_retain(1, &primary), CUDA_SUCCESS);
    assert_int_equal(flyt_primary_retain(1, &again), CUDA_SUCCESS);
    assert_ptr_equal(primary, again);
    assert_int_equal(flyt_context_destroy(primary), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(flyt_primary_release(1), CUDA_SUCCESS);
    assert_int_equal(flyt_primary_state(1, NULL, &is_active), CUDA_SUCCESS);
    assert_true(is_active);
    assert_int_equal(flyt_primary_release(1), CUDA_SUCCESS);
    assert_int_equal(flyt_primary_state(1, NULL, &is_active), CUDA_SUCCESS);
    assert_false(is_active);
    assert_int_equal(flyt_runtime_enter(), CUDA_SUCCESS); /* binds device 0 */
    assert_int_equal(flyt_context_current(&current), CUDA_SUCCESS);
    assert_ptr_not_equal(current, primary);
    assert_int_equal(flyt_runtime_device_set(7), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(flyt_primary_retain(-1, &again), CUDA_ERROR_INVALID_DEVICE);
}

/* ---- streams ---- */

static void *give_credit(void *user)
{
    usleep(20000);
    fake.handlers->credit(fake.user, (uint64_t)(uintptr_t)user, 256);
    return NULL;
}

static void test_a_stream_without_credit_waits(void **state)
{
    CUstream stream;
    CUevent event;
    pthread_t server;
    assert_int_equal(flyt_runtime_enter(), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(flyt_event_create(0, &event), CUDA_SUCCESS);
    fake.progress.executed = 0;
    unsigned before = fake.call_count[FLYT_EVENT_RECORD];
    for (int i = 0; i < FLYT_STREAM_CREDIT_CALLS; i++)
        assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_EVENT_RECORD] - before, FLYT_STREAM_CREDIT_CALLS);
    pthread_create(&server, NULL, give_credit, stream);
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS); /* waits until then */
    pthread_join(server, NULL);
    /* Progress that says that all was executed counts as credit for all. */
    fake.progress.executed = UINT64_MAX;
    for (int i = 0; i < 2 * FLYT_STREAM_CREDIT_CALLS; i++)
        assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
    assert_int_equal(flyt_event_destroy(event), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(flyt_stream_destroy(stream), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(stream), CUDA_ERROR_INVALID_HANDLE);
}

static void test_queries_are_answered_from_progress(void **state)
{
    CUevent event;
    assert_int_equal(flyt_event_create(0, &event), CUDA_SUCCESS);
    unsigned before = fake.call_count[FLYT_EVENT_QUERY];
    assert_int_equal(flyt_event_query(event), CUDA_SUCCESS); /* never recorded */
    assert_int_equal(flyt_event_record(event, NULL, 0), CUDA_SUCCESS);
    fake.progress.completed = fake.sequence;
    assert_int_equal(flyt_event_query(event), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_EVENT_QUERY], before);
    assert_int_equal(flyt_event_record(event, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_event_query(event), CUDA_SUCCESS); /* the fake server says so */
    assert_int_equal(fake.call_count[FLYT_EVENT_QUERY], before + 1);
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
}

static uint32_t thread_number;

static void learn_thread(unsigned procedure, const void *args, void *res, void *data)
{
    if (procedure == FLYT_STREAM_SYNCHRONIZE)
        thread_number = ((const flyt_stream_synchronize_args *)args)->thread;
}

/* An error that is heard of while the page is looked at. */
static void fail_meanwhile(void)
{
    fake.handlers->call_error(fake.user, 1, thread_number, CUDA_ERROR_INVALID_VALUE);
}

/* What the page says of a stream and of its event is the answer, for as long as its retry policy says. */
static void test_the_page_answers_queries(void **state)
{
    CUstream stream;
    CUevent event;
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(flyt_event_create(0, &event), CUDA_SUCCESS);
    unsigned streams = fake.call_count[FLYT_STREAM_QUERY], events = fake.call_count[FLYT_EVENT_QUERY];
    fake.progress.completed = 0;
    fake.page_says = FLYT_CHANNEL_PENDING;
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    uint64_t sequence = fake.sequence;
    assert_int_equal(flyt_event_query(event), CUDA_ERROR_NOT_READY);
    assert_int_equal(fake.asked_number, flyt_id_number((uint64_t)(uintptr_t)stream));
    assert_int_equal(fake.asked_sequence, sequence);
    assert_int_equal(flyt_stream_query(stream), CUDA_ERROR_NOT_READY);
    assert_int_equal(fake.asked_sequence, sequence);
    assert_int_equal(fake.call_count[FLYT_STREAM_QUERY] - streams, 0);
    assert_int_equal(fake.call_count[FLYT_EVENT_QUERY] - events, 0);
    /* The server, which is asked in the end, knows better. */
    unsigned polls = 0;
    while (flyt_stream_query(stream) == CUDA_ERROR_NOT_READY)
        polls++;
    assert_int_equal(fake.call_count[FLYT_STREAM_QUERY] - streams, 1);
    while (flyt_event_query(event) == CUDA_ERROR_NOT_READY)
        polls++;
    assert_int_equal(fake.call_count[FLYT_EVENT_QUERY] - events, 1);
    assert_true(polls > 0);
    /* A new record starts afresh. */
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_event_query(event), CUDA_ERROR_NOT_READY);
    fake.page_says = FLYT_CHANNEL_DONE;
    assert_int_equal(flyt_event_query(event), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_query(stream), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_STREAM_QUERY] - streams, 1);
    assert_int_equal(fake.call_count[FLYT_EVENT_QUERY] - events, 1);
    fake.page_says = FLYT_CHANNEL_UNKNOWN;
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(stream), CUDA_SUCCESS);
}

/* The legacy stream is done when every blocking stream is, and only then. */
static void test_the_page_answers_for_the_legacy_stream(void **state)
{
    CUstream stream;
    CUevent event;
    assert_int_equal(flyt_stream_create(0, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(flyt_event_create(0, &event), CUDA_SUCCESS);
    assert_int_equal(flyt_event_record(event, NULL, 0), CUDA_SUCCESS);
    fake.progress.completed = fake.sequence;
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    fake.page_says = FLYT_CHANNEL_PENDING;
    assert_int_equal(flyt_stream_query(NULL), CUDA_ERROR_NOT_READY);
    assert_int_equal(fake.asked_sequence, fake.sequence - 1);
    assert_int_equal(fake.asked_blocking_sequence, fake.sequence);
    fake.page_says = FLYT_CHANNEL_DONE;
    assert_int_equal(flyt_stream_query(NULL), CUDA_SUCCESS);
    fake.page_says = FLYT_CHANNEL_UNKNOWN;
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(stream), CUDA_SUCCESS);
}

/* "Done" does not overtake the error of an earlier call of the same thread. */
static void test_an_error_comes_before_the_page(void **state)
{
    CUstream stream;
    CUevent event;
    fake.serve = learn_thread;
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    fake.serve = serve;
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(flyt_event_create(0, &event), CUDA_SUCCESS);
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    fake.progress.completed = 0;
    fake.page_says = FLYT_CHANNEL_DONE;
    fake.on_page = fail_meanwhile;
    assert_int_equal(flyt_stream_query(stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_event_query(event), CUDA_ERROR_INVALID_VALUE);
    fake.page_says = FLYT_CHANNEL_PENDING;
    assert_int_equal(flyt_event_query(event), CUDA_ERROR_INVALID_VALUE);
    fake.on_page = NULL;
    fake.page_says = FLYT_CHANNEL_UNKNOWN;
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(stream), CUDA_SUCCESS);
}

static void test_garbage_handles(void **state)
{
    static const uint64_t garbage[] = {3,
                                       0xdeadbeef,
                                       UINT64_MAX,
                                       0x1100000000000001ull,
                                       0x11000000000fffffull,
                                       0x1200000000000010ull,
                                       0x7fff00001234ull};
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        void *handle = (void *)(uintptr_t)garbage[i];
        struct flyt_launch launch = {.function = handle, .grid = {1, 1, 1}, .block = {1, 1, 1}};
        assert_int_equal(flyt_stream_query(handle), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(flyt_stream_destroy(handle), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(flyt_event_query(handle), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(flyt_kernel_launch(&launch), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(flyt_module_unload(handle), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(flyt_library_unload(handle), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(flyt_context_set_current(handle), CUDA_ERROR_INVALID_CONTEXT);
    }
}

/* ---- copies ---- */

enum { BUFFER_BYTES = 1 << 20 };

static CUresult plain(enum flyt_place dst_place, uint64_t dst, enum flyt_place src_place, uint64_t src, uint64_t bytes,
                      bool is_async)
{
    struct flyt_copy copy = flyt_copy_plain(dst_place, dst, src_place, src, bytes);
    return flyt_copy(&copy, NULL, is_async);
}

static void test_pinned_source_is_pulled_while_a_writer_is_pending(void **state)
{
    CUdeviceptr device;
    void *host;
    assert_int_equal(flyt_memory_alloc(BUFFER_BYTES, &device), CUDA_SUCCESS);
    assert_int_equal(flyt_host_alloc(BUFFER_BYTES, 0, &host), CUDA_SUCCESS);
    uint64_t address = (uint64_t)(uintptr_t)host;
    assert_int_equal(plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, address, BUFFER_BYTES, true), CUDA_SUCCESS);
    assert_false(seen.copy_in.is_pull);
    assert_int_equal(plain(FLYT_PLACE_HOST, address, FLYT_PLACE_DEVICE, device, BUFFER_BYTES / 2, true), CUDA_SUCCESS);
    uint64_t out_id = seen.copy_out_transfer_id;
    /* The half that is being written is pulled, the other is not. */
    assert_int_equal(plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, address, 64, true), CUDA_SUCCESS);
    assert_true(seen.copy_in.is_pull);
    uint64_t pulled_id = seen.copy_in.transfer_id;
    assert_int_equal(
        plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, address + BUFFER_BYTES / 2, BUFFER_BYTES / 2, true),
        CUDA_SUCCESS);
    assert_false(seen.copy_in.is_pull);
    assert_int_not_equal(fake.data_transfer_id, pulled_id);
    /* The server may ask before the bytes of the earlier copy are here. */
    fake.handlers->pull(fake.user, pulled_id);
    assert_int_not_equal(fake.data_transfer_id, pulled_id);
    deliver(out_id, 0, BUFFER_BYTES / 2, 0x5a);
    assert_int_equal(fake.data_transfer_id, pulled_id);
    assert_int_equal(fake.data_bytes, 64);
    assert_int_equal(((char *)host)[BUFFER_BYTES / 2 - 1], 0x5a);
    assert_int_equal(plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, address, BUFFER_BYTES, true), CUDA_SUCCESS);
    assert_false(seen.copy_in.is_pull);
    assert_int_equal(flyt_host_free(host), CUDA_SUCCESS);
    assert_int_equal(flyt_memory_free(device), CUDA_SUCCESS);
    assert_int_equal(flyt_memory_free(device), CUDA_ERROR_INVALID_VALUE);
}

static void *deliver_late(void *user)
{
    usleep(20000);
    deliver(seen.copy_out_transfer_id, 0, seen.copy_out_bytes, 0x11);
    return NULL;
}

static void test_synchronizing_waits_for_the_bytes(void **state)
{
    CUdeviceptr device;
    CUstream stream, other;
    CUevent event;
    void *host;
    pthread_t server;
    struct flyt_copy copy;
    assert_int_equal(flyt_memory_alloc(BUFFER_BYTES, &device), CUDA_SUCCESS);
    assert_int_equal(flyt_host_alloc(BUFFER_BYTES, 0, &host), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &other), CUDA_SUCCESS);
    assert_int_equal(flyt_event_create(0, &event), CUDA_SUCCESS);
    copy = flyt_copy_plain(FLYT_PLACE_HOST, (uint64_t)(uintptr_t)host, FLYT_PLACE_DEVICE, device, BUFFER_BYTES);
    assert_int_equal(flyt_copy(&copy, stream, true), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_query(stream), CUDA_ERROR_NOT_READY); /* the stream is done, the bytes are not here */
    assert_int_equal(flyt_stream_synchronize(other), CUDA_SUCCESS);    /* has nothing to do with it */
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_wait_event(other, event, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_event_query(event), CUDA_ERROR_NOT_READY);
    pthread_create(&server, NULL, deliver_late, NULL);
    assert_int_equal(flyt_stream_synchronize(other), CUDA_SUCCESS); /* now it has */
    assert_int_equal(((char *)host)[BUFFER_BYTES - 1], 0x11);
    pthread_join(server, NULL);
    assert_int_equal(flyt_event_query(event), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_query(stream), CUDA_SUCCESS);
    assert_int_equal(flyt_host_free(host), CUDA_SUCCESS);
}

static void test_output_into_a_box_with_gaps(void **state)
{
    enum { WIDTH = 100, HEIGHT = 10, PITCH = 128 };
    CUdeviceptr device;
    char *host;
    assert_int_equal(flyt_memory_alloc(PITCH * HEIGHT, &device), CUDA_SUCCESS);
    assert_int_equal(flyt_host_alloc(PITCH * HEIGHT, 0, (void **)(void *)&host), CUDA_SUCCESS);
    struct flyt_copy copy = {.dst = {FLYT_PLACE_HOST, (uint64_t)(uintptr_t)host, PITCH, 0},
                             .src = {FLYT_PLACE_DEVICE, device, PITCH, 0},
                             .width_bytes = WIDTH,
                             .height = HEIGHT,
                             .depth = 1};
    assert_int_equal(flyt_copy(&copy, NULL, true), CUDA_SUCCESS);
    assert_int_equal(seen.copy_out_bytes, WIDTH * HEIGHT);
    deliver(seen.copy_out_transfer_id, 550, 450, 2); /* in any order */
    deliver(seen.copy_out_transfer_id, 0, 550, 1);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    assert_int_equal(host[5 * PITCH + 49], 1);
    assert_int_equal(host[5 * PITCH + 50], 2);
    assert_int_equal(host[9 * PITCH + 99], 2);
    assert_int_equal(host[4 * PITCH + 100], 0);
    assert_int_equal(flyt_host_free(host), CUDA_SUCCESS);
}

static void test_copies_stay_inside_allocations(void **state)
{
    static char host[4096];
    CUdeviceptr device;
    uint64_t address = (uint64_t)(uintptr_t)host;
    assert_int_equal(flyt_memory_alloc(1000, &device), CUDA_SUCCESS);
    assert_int_equal(plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, address, 1000, false), CUDA_SUCCESS);
    assert_int_equal(plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, address, 1001, false), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(plain(FLYT_PLACE_DEVICE, device + 999, FLYT_PLACE_ANY, address, 2, false),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(
        plain(FLYT_PLACE_DEVICE, FLYT_WINDOW_BASE + FLYT_WINDOW_BYTES - 64, FLYT_PLACE_HOST, address, 8, false),
        CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(plain(FLYT_PLACE_HOST, device, FLYT_PLACE_HOST, address, 8, false), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(plain(FLYT_PLACE_DEVICE, address, FLYT_PLACE_HOST, address, 8, false), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(plain(FLYT_PLACE_DEVICE, 0, FLYT_PLACE_HOST, address, 8, false), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(plain(FLYT_PLACE_DEVICE, 0, FLYT_PLACE_HOST, 0, 0, false), CUDA_SUCCESS);
    assert_int_equal(flyt_memory_free(device), CUDA_SUCCESS);
}

/* What the fake device can do and Flyt does not forward reads as if it could not; what is only a number stays. */
static void test_properties_are_masked(void **state)
{
    static const struct {
        CUdevice_attribute attribute;
        int shown;
    } expected[] = {
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
        {CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 1 << 20},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
        {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1},
        {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    };
    int value;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(flyt_device_attribute(0, expected[i].attribute, &value), CUDA_SUCCESS);
        assert_int_equal(value, expected[i].shown);
    }
}

/* A handle comes again when it was destroyed often enough; what cuStreamGetId says never does. */
static void test_ids_of_streams_are_unique(void **state)
{
    enum { STREAMS = 2000 };
    static unsigned long long ids[STREAMS];
    unsigned long long legacy, legacy_elsewhere;
    CUcontext other;
    CUstream stream;
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(flyt_stream_create(0, 0, &stream), CUDA_SUCCESS);
        assert_int_equal(flyt_stream_number(stream, &ids[i]), CUDA_SUCCESS);
        assert_int_equal(flyt_stream_destroy(stream), CUDA_SUCCESS);
        assert_true(!i || ids[i] > ids[i - 1]);
    }
    assert_int_equal(flyt_stream_number(NULL, &legacy), CUDA_SUCCESS);
    assert_int_equal(flyt_context_create(0, 0, &other), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_number(NULL, &legacy_elsewhere), CUDA_SUCCESS);
    assert_int_not_equal(legacy, legacy_elsewhere); /* each context has one of its own */
    assert_int_equal(flyt_context_destroy(other), CUDA_SUCCESS);
    for (int i = 0; i < STREAMS; i++)
        assert_true(ids[i] != legacy && ids[i] != legacy_elsewhere);
}

static enum flyt_channel_waits seen_waits;

static void note_waits(unsigned procedure, const void *args, void *res, void *data)
{
    if (procedure == FLYT_DEVICE_SYNCHRONIZE || procedure == FLYT_STREAM_SYNCHRONIZE ||
        procedure == FLYT_EVENT_SYNCHRONIZE)
        seen_waits = fake.waits_as;
}

/* How a thread waits is what its current context was told, and of no effect on other calls. */
static void test_waits_follow_the_contexts_flags(void **state)
{
    static const struct {
        unsigned flags;
        enum flyt_channel_waits waits;
    } modes[] = {{CU_CTX_SCHED_AUTO, FLYT_CHANNEL_WAITS_AUTO},
                 {CU_CTX_SCHED_SPIN, FLYT_CHANNEL_SPINS},
                 {CU_CTX_SCHED_YIELD | CU_CTX_MAP_HOST, FLYT_CHANNEL_YIELDS},
                 {CU_CTX_SCHED_BLOCKING_SYNC, FLYT_CHANNEL_BLOCKS}};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        CUcontext context;
        CUevent plain, blocking;
        assert_int_equal(flyt_context_create(modes[i].flags, 0, &context), CUDA_SUCCESS);
        assert_int_equal(flyt_event_create(0, &plain), CUDA_SUCCESS);
        assert_int_equal(flyt_event_create(CU_EVENT_BLOCKING_SYNC, &blocking), CUDA_SUCCESS);
        assert_int_equal(flyt_event_record(plain, NULL, 0), CUDA_SUCCESS);
        assert_int_equal(flyt_event_record(blocking, NULL, 0), CUDA_SUCCESS);
        fake.serve = note_waits;
        assert_int_equal(flyt_device_synchronize(), CUDA_SUCCESS);
        assert_int_equal(seen_waits, modes[i].waits);
        seen_waits = FLYT_CHANNEL_WAITS_AUTO;
        assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
        assert_int_equal(seen_waits, modes[i].waits);
        seen_waits = FLYT_CHANNEL_WAITS_AUTO;
        /* Whether the wait for an event blocks the event says. */
        assert_int_equal(flyt_event_synchronize(plain), CUDA_SUCCESS);
        assert_int_equal(seen_waits, modes[i].waits == FLYT_CHANNEL_BLOCKS ? FLYT_CHANNEL_SPINS : modes[i].waits);
        assert_int_equal(flyt_event_synchronize(blocking), CUDA_SUCCESS);
        assert_int_equal(seen_waits, FLYT_CHANNEL_BLOCKS);
        assert_int_equal(fake.waits_as, FLYT_CHANNEL_WAITS_AUTO);
        fake.serve = serve;
        assert_int_equal(flyt_context_destroy(context), CUDA_SUCCESS);
    }
}

/* The node's, once there is one: newer or older than what this library was made for. */
static void test_the_drivers_version_is_the_nodes(void **state)
{
    int count;
    assert_int_equal(flyt_device_count(&count), CUDA_SUCCESS);
    assert_int_equal(flyt_client_driver_version(), fake.driver_version);
    assert_int_not_equal(flyt_client_driver_version(), CUDA_VERSION);
}

/* ---- host functions and errors ---- */

static _Atomic int ran;

static void CUDA_CB host_function(void *user)
{
    int count;
    atomic_store(&ran, flyt_device_count(&count) == CUDA_ERROR_NOT_PERMITTED ? 1 : -1);
}

static void test_host_function_runs_and_may_not_call(void **state)
{
    unsigned before = fake.call_count[FLYT_HOST_FUNCTION_DONE];
    CUdeviceptr device;
    void *host;
    assert_int_equal(flyt_memory_alloc(64, &device), CUDA_SUCCESS);
    assert_int_equal(flyt_host_alloc(64, 0, &host), CUDA_SUCCESS);
    assert_int_equal(flyt_host_function_launch(NULL, host_function, NULL), CUDA_SUCCESS);
    /* It may still write any pinned memory. */
    seen.copy_in.is_pull = 0;
    assert_int_equal(plain(FLYT_PLACE_DEVICE, device, FLYT_PLACE_HOST, (uint64_t)(uintptr_t)host, 64, true),
                     CUDA_SUCCESS);
    assert_true(seen.copy_in.is_pull);
    fake.handlers->host_function(fake.user, seen.function_id, 0);
    for (int i = 0; i < 60000 && fake.call_count[FLYT_HOST_FUNCTION_DONE] == before; i++)
        usleep(1000);
    assert_int_equal(atomic_load(&ran), 1);
    assert_int_equal(fake.call_count[FLYT_HOST_FUNCTION_DONE], before + 1);
    fake.handlers->pull(fake.user, seen.copy_in.transfer_id);
    assert_int_equal(flyt_host_free(host), CUDA_SUCCESS);
}

static uint32_t own_thread_number;

static void note_thread(unsigned procedure, const void *args, void *res, void *data)
{
    own_thread_number = ((const flyt_stream_synchronize_args *)args)->thread;
}

static void *use_in_other_thread(void *user)
{
    *(CUresult *)user = flyt_runtime_enter();
    return NULL;
}

static void test_one_way_error_reaches_its_thread_once(void **state)
{
    CUresult other_result = CUDA_ERROR_UNKNOWN;
    pthread_t other;
    fake.serve = note_thread;
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    fake.serve = serve;
    fake.handlers->call_error(fake.user, 1, own_thread_number, CUDA_ERROR_OUT_OF_MEMORY);
    fake.handlers->call_error(fake.user, 2, own_thread_number, CUDA_ERROR_INVALID_VALUE);
    pthread_create(&other, NULL, use_in_other_thread, &other_result);
    pthread_join(other, NULL);
    assert_int_equal(other_result, CUDA_SUCCESS);
    assert_int_equal(flyt_client_enter_release(), CUDA_SUCCESS); /* does not take it */
    assert_int_equal(flyt_client_enter(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_client_enter(), CUDA_SUCCESS);
}

static void *note_in_other_thread(void *user)
{
    fake.serve = note_thread;
    assert_int_equal(flyt_runtime_enter(), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    fake.serve = serve;
    if (*(int *)user) /* its error comes while it is there, but it asks no more */
        fake.handlers->call_error(fake.user, 1, own_thread_number, *(int *)user);
    return NULL;
}

/* Runs a thread that makes a call and ends; its number is own_thread_number then. */
static void run_thread(int error)
{
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, note_in_other_thread, &error), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
}

static void test_one_way_error_of_an_ended_thread_reaches_the_process_once(void **state)
{
    CUresult other_result = CUDA_SUCCESS;
    pthread_t other;
    /* It comes when its thread has ended. */
    run_thread(0);
    fake.handlers->call_error(fake.user, 1, own_thread_number, CUDA_ERROR_OUT_OF_MEMORY);
    fake.handlers->call_error(fake.user, 2, own_thread_number, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_client_enter_release(), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    /* Its thread had it and did not ask. */
    run_thread(CUDA_ERROR_INVALID_HANDLE);
    pthread_create(&other, NULL, use_in_other_thread, &other_result);
    pthread_join(other, NULL);
    assert_int_equal(other_result, CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(flyt_client_enter(), CUDA_SUCCESS);
    /* What a thread of the library itself has sent belongs to nobody else either. */
    fake.handlers->call_error(fake.user, 3, 0, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_client_enter(), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_client_enter(), CUDA_SUCCESS);
    /* A thread's own error comes first; the other one waits. */
    run_thread(CUDA_ERROR_INVALID_HANDLE);
    fake.serve = note_thread;
    assert_int_equal(flyt_client_enter(), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    fake.serve = serve;
    uint32_t self = own_thread_number;
    run_thread(CUDA_ERROR_INVALID_HANDLE);
    fake.handlers->call_error(fake.user, 4, self, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_client_enter(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_client_enter(), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(flyt_client_enter(), CUDA_SUCCESS);
}

/* Calls `tell` with stderr going to a file; its text into `text`. */
static void read_stderr(void (*tell)(void), char *text, size_t room_bytes)
{
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(fd >= 0);
    flyt_log_init("flyt", FLYT_LOG_WARN);
    flyt_log_set_fd(fd);
    tell();
    flyt_log_set_fd(STDERR_FILENO);
    ssize_t bytes = pread(fd, text, room_bytes - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = 0;
    close(fd);
}

static unsigned count_of(const char *text, const char *words)
{
    unsigned count = 0;
    while ((text = strstr(text, words))) {
        text++;
        count++;
    }
    return count;
}

static void leave_several_behind(void)
{
    run_thread(0);
    uint32_t one = own_thread_number;
    run_thread(0);
    fake.handlers->call_error(fake.user, 9, one, CUDA_ERROR_INVALID_HANDLE);
    for (unsigned i = 0; i < 3; i++)
        fake.handlers->call_error(fake.user, 10 + i, own_thread_number, CUDA_ERROR_INVALID_VALUE);
    fake.handlers->call_error(fake.user, 20, one, CUDA_ERROR_OUT_OF_MEMORY);
}

static void test_errors_that_nobody_hears_of_are_told(void **state)
{
    char text[4096];
    /* The first is told by the next call; of the others, one of each thread is warned of. */
    read_stderr(leave_several_behind, text, sizeof text);
    assert_int_equal(count_of(text, "the next call of any thread returns the error"), 1);
    assert_int_equal(count_of(text, "no call returns the error"), 2);
    /* The process ends before a call could. */
    fake.handlers->call_error(fake.user, 21, flyt_thread_get()->number, CUDA_ERROR_OUT_OF_MEMORY);
    read_stderr(flyt_thread_tell_untold, text, sizeof text);
    assert_int_equal(count_of(text, "has ended without hearing of it"), 2);
    assert_int_equal(count_of(text, "cuda_result=2\n"), 1);
    assert_int_equal(count_of(text, "cuda_result=400\n"), 1);
    read_stderr(flyt_thread_tell_untold, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(flyt_client_enter(), CUDA_SUCCESS);
}

/* The last two: nothing works after them. */
static void test_fatal_error_is_for_all_for_ever(void **state)
{
    CUresult other_result = CUDA_SUCCESS;
    pthread_t other;
    int count;
    /* Of one thread's call; but it is one of those that end the context. */
    fake.handlers->call_error(fake.user, 3, own_thread_number, CUDA_ERROR_CONTAINED);
    fake.handlers->fatal(fake.user, CUDA_ERROR_ASSERT, "a later one");
    pthread_create(&other, NULL, use_in_other_thread, &other_result);
    pthread_join(other, NULL);
    assert_int_equal(other_result, CUDA_ERROR_CONTAINED);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_ERROR_CONTAINED);
    assert_int_equal(flyt_device_count(&count), CUDA_SUCCESS); /* needs no context */
}

static void test_lost_connection_outranks_everything(void **state)
{
    int count;
    fake.is_lost = true;
    fake.handlers->lost(fake.user, "test");
    assert_int_equal(flyt_device_count(&count), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(flyt_runtime_enter(), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    fake.driver_version = 13020;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_driver_is_asked_before_the_first_call),
        cmocka_unit_test(test_context_stack),
        cmocka_unit_test(test_primary_context),
        cmocka_unit_test(test_a_stream_without_credit_waits),
        cmocka_unit_test(test_queries_are_answered_from_progress),
        cmocka_unit_test(test_the_page_answers_queries),
        cmocka_unit_test(test_the_page_answers_for_the_legacy_stream),
        cmocka_unit_test(test_an_error_comes_before_the_page),
        cmocka_unit_test(test_garbage_handles),
        cmocka_unit_test(test_pinned_source_is_pulled_while_a_writer_is_pending),
        cmocka_unit_test(test_synchronizing_waits_for_the_bytes),
        cmocka_unit_test(test_output_into_a_box_with_gaps),
        cmocka_unit_test(test_copies_stay_inside_allocations),
        cmocka_unit_test(test_properties_are_masked),
        cmocka_unit_test(test_ids_of_streams_are_unique),
        cmocka_unit_test(test_waits_follow_the_contexts_flags),
        cmocka_unit_test(test_the_drivers_version_is_the_nodes),
        cmocka_unit_test(test_host_function_runs_and_may_not_call),
        cmocka_unit_test(test_one_way_error_reaches_its_thread_once),
        cmocka_unit_test(test_one_way_error_of_an_ended_thread_reaches_the_process_once),
        cmocka_unit_test(test_errors_that_nobody_hears_of_are_told),
        cmocka_unit_test(test_fatal_error_is_for_all_for_ever),
        cmocka_unit_test(test_lost_connection_outranks_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
