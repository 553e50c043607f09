/* The core over a channel without a server: contexts, flow control, copies that overlap, launches, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "cpu/client/client.h"
#include "cpu/client/context.h"
#include "cpu/client/copy.h"
#include "cpu/client/device.h"
#include "cpu/client/event.h"
#include "cpu/client/fake_channel.h"
#include "cpu/client/function.h"
#include "cpu/client/host.h"
#include "cpu/client/kernel.h"
#include "cpu/client/memory.h"
#include "cpu/client/module.h"
#include "cpu/client/stream.h"
#include "rpc/base/id.h"

static uint64_t next_address = FLYT_WINDOW_BASE;

/* What the test wants to know of the last call of each kind. */
static struct {
    uint64_t copy_out_transfer_id, copy_out_bytes;
    flyt_copy_in_transfer_args copy_in;
    flyt_kernel_launch_args launch;
    char params[4096];
    uint64_t function_id;
} seen;

static void serve_device_info(flyt_device_info_res *res)
{
    static int attributes[200];
    res->name = strdup("test device");
    res->pci_bus_id = strdup("0000:00:00.0");
    for (int i = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X; i <= CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z; i++)
        attributes[i] = 1024;
    for (int i = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X; i <= CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z; i++)
        attributes[i] = 65535;
    attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 4;
    attributes[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = 1;
    attributes[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] = 1;
    res->attributes.attributes_len = 200;
    res->attributes.attributes_val = malloc(sizeof attributes);
    memcpy(res->attributes.attributes_val, attributes, sizeof attributes);
    res->least_priority = 0;
    res->greatest_priority = -5;
}

/* How many kernels a library shall have beyond the first one; the server's answer when it is asked for them: one after
 * the other, none, or more than there are. */
static struct {
    unsigned more_count;
    enum { ONE_BY_ONE, NONE, TOO_MANY } way;
    unsigned asked_count, unloaded_count;
} parts;

static void serve_library_kernels(const flyt_library_kernels_args *args, flyt_library_kernels_res *res)
{
    char name[16];
    parts.asked_count++;
    res->kernels.kernels_len = parts.way == ONE_BY_ONE ? 1 : parts.way == NONE ? 0 : parts.more_count + 1;
    res->kernels.kernels_val = calloc(res->kernels.kernels_len + 1, sizeof *res->kernels.kernels_val);
    for (unsigned i = 0; i < res->kernels.kernels_len; i++) {
        snprintf(name, sizeof name, "kernel%u", args->first + i);
        res->kernels.kernels_val[i].name = strdup(name);
    }
}

/* One kernel: an int at 0, a pointer at 8, a char at 16. */
static void serve_library_load(flyt_library_load_res *res)
{
    static const flyt_kernel_param places[] = {{0, 4}, {8, 8}, {16, 1}};
    res->info_log = strdup("");
    res->error_log = strdup("");
    res->kernels.kernels_len = 1;
    res->kernel_count = 1 + parts.more_count;
    res->kernels.kernels_val = calloc(1, sizeof *res->kernels.kernels_val);
    res->kernels.kernels_val[0].name = strdup("kernel");
    res->kernels.kernels_val[0].params.params_len = 3;
    res->kernels.kernels_val[0].params.params_val = malloc(sizeof places);
    memcpy(res->kernels.kernels_val[0].params.params_val, places, sizeof places);
}

static int required_cluster_width;

static void serve_kernel_info(flyt_kernel_info_res *res)
{
    res->attributes.attributes_len = CU_FUNC_ATTRIBUTE_MAX;
    res->attributes.attributes_val = calloc(CU_FUNC_ATTRIBUTE_MAX, sizeof(int));
    res->attributes.attributes_val[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
    res->attributes.attributes_val[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    if (required_cluster_width) {
        res->attributes.attributes_val[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = required_cluster_width;
        res->attributes.attributes_val[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] = 1;
        res->attributes.attributes_val[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] = 1;
    }
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    switch (procedure) {
    case FLYT_MEMORY_ALLOC:
        ((flyt_memory_alloc_res *)res)->address = next_address;
        next_address += 1 << 24;
        break;
    case FLYT_DEVICE_INFO:
        serve_device_info(res);
        break;
    case FLYT_IMAGE_FIND:
        ((flyt_image_find_res *)res)->is_known = 1;
        break;
    case FLYT_LIBRARY_LOAD:
        serve_library_load(res);
        break;
    case FLYT_LIBRARY_KERNELS:
        serve_library_kernels(args, res);
        break;
    case FLYT_LIBRARY_UNLOAD:
        parts.unloaded_count++;
        break;
    case FLYT_KERNEL_INFO:
        serve_kernel_info(res);
        break;
    case FLYT_KERNEL_OCCUPANCY:
        ((flyt_kernel_occupancy_res *)res)->block_count = 2;
        break;
    case FLYT_COPY_OUT_TRANSFER:
        seen.copy_out_transfer_id = ((const flyt_copy_out_transfer_args *)args)->transfer_id;
        seen.copy_out_bytes = ((const flyt_copy_out_transfer_args *)args)->bytes;
        break;
    case FLYT_COPY_IN_TRANSFER:
        seen.copy_in = *(const flyt_copy_in_transfer_args *)args;
        break;
    case FLYT_KERNEL_LAUNCH:
        seen.launch = *(const flyt_kernel_launch_args *)args;
        memcpy(seen.params, seen.launch.params.params_val, seen.launch.params.params_len);
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

/* What the page says of a stream and of its event is the answer, for as long as patience lasts. */
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

/* ---- launches ---- */

static CUfunction load_kernel(void)
{
    CUmodule module;
    CUfunction function;
    assert_int_equal(flyt_module_load("// PTX\n.version 8.0", NULL, &module), CUDA_SUCCESS);
    assert_int_equal(flyt_module_function(module, "no such kernel", &function), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(flyt_module_function(module, "kernel", &function), CUDA_SUCCESS);
    return function;
}

static void test_kernels_come_in_several_replies(void **state)
{
    static const char image[] = "// PTX\n.version 8.0";
    CUlibrary library;
    CUkernel first, last, all[4];
    unsigned count;
    parts.more_count = 3;
    parts.asked_count = parts.unloaded_count = 0;
    assert_int_equal(flyt_library_load(image, NULL, &library), CUDA_SUCCESS);
    assert_int_equal(parts.asked_count, 3);
    assert_int_equal(flyt_library_kernel_count(library, &count), CUDA_SUCCESS);
    assert_int_equal(count, 4);
    assert_int_equal(flyt_library_kernel(library, "kernel", &first), CUDA_SUCCESS);
    assert_int_equal(flyt_library_kernel(library, "kernel3", &last), CUDA_SUCCESS);
    assert_int_equal(flyt_library_kernels(library, 4, all), CUDA_SUCCESS);
    assert_ptr_equal(all[0], first);
    assert_ptr_equal(all[3], last);
    assert_int_equal(flyt_library_unload(library), CUDA_SUCCESS);
    assert_int_equal(parts.unloaded_count, 1);
    /* A server that contradicts itself: an error, and what it loaded is unloaded. */
    for (parts.way = NONE; parts.way <= TOO_MANY; parts.way++)
        assert_int_equal(flyt_library_load(image, NULL, &library), CUDA_ERROR_UNKNOWN);
    assert_int_equal(parts.unloaded_count, 3);
    parts.more_count = UINT32_MAX - 1;
    assert_int_equal(flyt_library_load(image, NULL, &library), CUDA_ERROR_UNKNOWN);
    parts.more_count = 0;
}

static void test_parameters_are_packed_by_layout(void **state)
{
    int number = 0x01020304;
    uint64_t pointer = 0x1122334455667788;
    char letter = 'x', expected[17] = {4, 3, 2, 1};
    void *params[] = {&number, &pointer, &letter};
    struct flyt_launch launch = {.function = load_kernel(), .grid = {5, 6, 7}, .block = {32, 2, 1}, .params = params};
    memcpy(expected + 8, &pointer, 8);
    expected[16] = 'x';
    assert_int_equal(flyt_kernel_launch(&launch), CUDA_SUCCESS);
    assert_int_equal(seen.launch.params.params_len, sizeof expected);
    assert_memory_equal(seen.params, expected, sizeof expected);
    assert_int_equal(seen.launch.grid[2], 7);
    assert_int_equal(seen.launch.kernel_id, (uint64_t)(uintptr_t)launch.function);
    launch.params = NULL;
    launch.param_buffer = expected;
    launch.param_buffer_bytes = sizeof expected;
    memset(seen.params, 0, sizeof seen.params);
    assert_int_equal(flyt_kernel_launch(&launch), CUDA_SUCCESS);
    assert_memory_equal(seen.params, expected, sizeof expected);
    launch.param_buffer_bytes++;
    assert_int_equal(flyt_kernel_launch(&launch), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    launch.param_buffer_bytes = 4;
    assert_int_equal(flyt_kernel_launch(&launch), CUDA_SUCCESS);
    memset(expected + 4, 0, sizeof expected - 4);
    assert_int_equal(seen.launch.params.params_len, sizeof expected);
    assert_memory_equal(seen.params, expected, sizeof expected);
}

static void test_bad_launches_are_refused_at_once(void **state)
{
    int value[2] = {0};
    void *params[] = {value, value, value};
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    struct flyt_launch good = {.function = load_kernel(), .grid = {1, 1, 1}, .block = {1, 1, 1}, .params = params}, bad;
    unsigned before = fake.call_count[FLYT_KERNEL_LAUNCH];
    bad = good, bad.grid[1] = 0;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.block[0] = 2048;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.block[0] = 64, bad.block[1] = 64;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.block[0] = 1024;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    bad = good, bad.dynamic_shared_bytes = 49153;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.params = NULL;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.grid[0] = 9, bad.attributes = &cooperative, bad.attribute_count = 1; /* 2 on each of 4 */
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_int_equal(fake.call_count[FLYT_KERNEL_LAUNCH], before);
    bad.grid[0] = 8;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_SUCCESS);
}

struct cluster_case {
    unsigned grid[3], cluster[3];
    CUresult result;
};

static void check_cluster_cases(CUfunction function, const struct cluster_case *cases, size_t count)
{
    int value[2] = {0};
    void *params[] = {value, value, value};
    for (size_t i = 0; i < count; i++) {
        const unsigned *cluster = cases[i].cluster;
        CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                       .value.clusterDim = {cluster[0], cluster[1], cluster[2]}};
        struct flyt_launch launch = {
            .function = function, .block = {1, 1, 1}, .params = params, .attributes = &attribute, .attribute_count = 1};
        memcpy(launch.grid, cases[i].grid, sizeof launch.grid);
        unsigned before = fake.call_count[FLYT_KERNEL_LAUNCH];
        assert_int_equal(flyt_kernel_launch(&launch), cases[i].result);
        assert_int_equal(fake.call_count[FLYT_KERNEL_LAUNCH], before + (cases[i].result == CUDA_SUCCESS));
    }
}

/* What an H200 answered. */
static void test_bad_clusters_are_refused_at_once(void **state)
{
    static const struct cluster_case plain_cases[] = {
        {{8, 1, 1}, {2, 1, 1}, CUDA_SUCCESS},
        {{8, 1, 1}, {0, 0, 0}, CUDA_SUCCESS},
        {{7, 1, 1}, {1, 1, 1}, CUDA_SUCCESS},
        {{7, 1, 1}, {7, 1, 1}, CUDA_SUCCESS},
        {{8, 4, 1}, {2, 2, 1}, CUDA_SUCCESS},
        {{0, 1, 1}, {2, 1, 1}, CUDA_ERROR_INVALID_VALUE},
        {{7, 1, 1}, {2, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 3, 1}, {2, 2, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {0, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {2, 0, 0}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{4, 1, 1}, {8, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {UINT32_MAX, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{16, 1, 1}, {16, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 4, 4}, {2, 2, 4}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
    };
    static const struct cluster_case required_cases[] = {
        {{8, 1, 1}, {2, 1, 1}, CUDA_SUCCESS},
        {{8, 1, 1}, {0, 0, 0}, CUDA_SUCCESS},
        {{7, 1, 1}, {0, 0, 0}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {4, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {1, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
    };
    static const struct cluster_case large[] = {{{16, 1, 1}, {16, 1, 1}, CUDA_SUCCESS}};
    CUfunction function = load_kernel();
    check_cluster_cases(function, plain_cases, sizeof plain_cases / sizeof plain_cases[0]);
    assert_int_equal(flyt_kernel_attribute_set(function, -1, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
                     CUDA_SUCCESS);
    check_cluster_cases(function, large, 1);
    required_cluster_width = 2;
    check_cluster_cases(load_kernel(), required_cases, sizeof required_cases / sizeof required_cases[0]);
    required_cluster_width = 0;
}

static void test_properties_are_masked(void **state)
{
    int value;
    assert_int_equal(flyt_device_attribute(0, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, &value), CUDA_SUCCESS);
    assert_int_equal(value, 0);
    assert_int_equal(flyt_device_attribute(0, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &value), CUDA_SUCCESS);
    assert_int_equal(value, 1);
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
    for (int i = 0; i < 2000 && fake.call_count[FLYT_HOST_FUNCTION_DONE] == before; i++)
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
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(test_kernels_come_in_several_replies),
        cmocka_unit_test(test_parameters_are_packed_by_layout),
        cmocka_unit_test(test_bad_launches_are_refused_at_once),
        cmocka_unit_test(test_bad_clusters_are_refused_at_once),
        cmocka_unit_test(test_properties_are_masked),
        cmocka_unit_test(test_host_function_runs_and_may_not_call),
        cmocka_unit_test(test_one_way_error_reaches_its_thread_once),
        cmocka_unit_test(test_fatal_error_is_for_all_for_ever),
        cmocka_unit_test(test_lost_connection_outranks_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
