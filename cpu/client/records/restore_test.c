/* What is made again when a session goes on at another server: which calls, in which order, what is refused and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <unistd.h>
#include "cpu/client/core/answer.h"
#include "cpu/client/core/client.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/event.h"
#include "cpu/client/cuda/function.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/image.h"
#include "cpu/client/cuda/kernel.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/module.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/records/restore.h"
#include "rpc/base/id.h"
#include "rpc/transport/message.h"

/* ---- the two servers ---- */

static struct flyt_channel *const fresh = (struct flyt_channel *)(void *)&fake.call_count;

/* The new server's part: what it was told, a line per call, and where it shall fail or differ. */
static struct {
    char log[16384];
    unsigned fail_procedure; /* 0: none */
    int fail_result;
    bool lacks_images;
    unsigned kernel_count;
    const char *second_kernel;
    uint64_t variable_address;
    int capability; /* 10 × major + minor */
    unsigned restored_count;
} server;

static uint64_t next_address = FLYT_WINDOW_BASE;
static uint64_t copy_out_id, function_id; /* what the program asked for last */

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    size_t used = strlen(server.log);
    va_list list;
    va_start(list, format);
    vsnprintf(server.log + used, sizeof server.log - used, format, list);
    va_end(list);
}

static void tell_kernels(u_int *ret_count, flyt_kernel_info **ret_kernels, unsigned first, unsigned count)
{
    flyt_kernel_info *kernels = calloc(count + 1, sizeof *kernels);
    for (unsigned i = 0; i < count; i++) {
        kernels[i].name = strdup(first + i == 0 ? "first" : server.second_kernel);
        kernels[i].params.params_len = 1;
        kernels[i].params.params_val = calloc(1, sizeof *kernels[i].params.params_val);
        kernels[i].params.params_val->size_bytes = 8;
    }
    *ret_count = count;
    *ret_kernels = kernels;
}

/* One kernel per reply. */
static void load_library(flyt_library_load_res *res)
{
    res->info_log = strdup("");
    res->error_log = strdup("");
    res->kernel_count = server.kernel_count;
    tell_kernels(&res->kernels.kernels_len, &res->kernels.kernels_val, 0, 1);
}

static void tell_more_kernels(const flyt_library_kernels_args *args, flyt_library_kernels_res *res)
{
    tell_kernels(&res->kernels.kernels_len, &res->kernels.kernels_val, args->first, 1);
}

static void tell_kernel(flyt_kernel_traits_res *res)
{
    res->attributes.attributes_len = CU_FUNC_ATTRIBUTE_MAX;
    res->attributes.attributes_val = calloc(CU_FUNC_ATTRIBUTE_MAX, sizeof(int));
    res->attributes.attributes_val[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
}

static void tell_device(flyt_device_info_res *res)
{
    res->name = strdup("test device");
    res->pci_bus_id = strdup("0000:00:00.0");
    res->attributes.attributes_len = CU_DEVICE_ATTRIBUTE_MAX;
    res->attributes.attributes_val = calloc(CU_DEVICE_ATTRIBUTE_MAX, sizeof(int));
    res->attributes.attributes_val[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = server.capability / 10;
    res->attributes.attributes_val[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = server.capability % 10;
    res->greatest_priority = -5;
}

/* Both servers answer alike. */
static void answer(unsigned procedure, const void *args, void *res)
{
    switch (procedure) {
    case FLYT_MEMORY_ALLOC:
        ((flyt_memory_alloc_res *)res)->address = next_address;
        next_address += 1 << 20;
        break;
    case FLYT_DEVICE_INFO:
        tell_device(res);
        break;
    case FLYT_DEVICE_PEER_INFO:
        ((flyt_device_peer_info_res *)res)->can_access = 1;
        break;
    case FLYT_IMAGE_FIND:
        ((flyt_image_find_res *)res)->is_known = !server.lacks_images;
        break;
    case FLYT_LIBRARY_LOAD:
        load_library(res);
        break;
    case FLYT_LIBRARY_KERNELS:
        tell_more_kernels(args, res);
        break;
    case FLYT_LIBRARY_MANAGED:
        ((flyt_library_managed_res *)res)->result = CUDA_ERROR_NOT_FOUND;
        break;
    case FLYT_LIBRARY_GLOBAL:
        ((flyt_library_global_res *)res)->address = server.variable_address;
        ((flyt_library_global_res *)res)->bytes = 4;
        break;
    case FLYT_KERNEL_TRAITS:
        tell_kernel(res);
        break;
    case FLYT_COPY_OUT_TRANSFER:
        copy_out_id = ((const flyt_copy_out_transfer_args *)args)->transfer_id;
        break;
    case FLYT_HOST_FUNCTION_LAUNCH:
        function_id = ((const flyt_host_function_launch_args *)args)->function_id;
        break;
    default:
        break;
    }
}

static unsigned long long number(uint64_t id)
{
    return (unsigned long long)flyt_id_number(id);
}

static void note_memory(const flyt_memory_restore_args *args)
{
    assert_int_equal(args->addresses.addresses_len, args->sizes.sizes_len);
    server.restored_count += args->addresses.addresses_len;
    note("memory %u:", args->device);
    for (unsigned i = 0; i < args->addresses.addresses_len && i < 8; i++)
        note(" %llx+%llu", (unsigned long long)args->addresses.addresses_val[i],
             (unsigned long long)args->sizes.sizes_val[i]);
    note("\n");
}

static void note_call(unsigned procedure, const void *data)
{
    const union {
        const void *any;
        const flyt_stream_create_args *stream;
        const flyt_event_create_args *event;
        const flyt_stream_attribute_set_args *of_stream;
        const flyt_event_restore_args *record;
        const flyt_library_load_args *load;
        const flyt_library_global_args *global;
        const flyt_kernel_attribute_set_args *attribute;
        const flyt_kernel_cache_config_set_args *cache;
        const flyt_device_limit_set_args *limit;
        const flyt_device_cache_config_set_args *preference;
        const flyt_device_peer_access_set_args *peer;
    } args = {data};
    switch (procedure) {
    case FLYT_STREAM_CREATE:
        return note("stream %llu on %u, flags %u, priority %d\n", number(args.stream->stream_id), args.stream->device,
                    args.stream->flags, args.stream->priority);
    case FLYT_STREAM_ATTRIBUTE_SET:
        return note("attribute %u of stream %llu is %u\n", args.of_stream->attribute.id,
                    number(args.of_stream->stream_id), args.of_stream->attribute.value[0]);
    case FLYT_EVENT_CREATE:
        return note("event %llu on %u, flags %u\n", number(args.event->event_id), args.event->device,
                    args.event->flags);
    case FLYT_EVENT_RESTORE:
        return note("recorded %llu, time %u\n", number(args.record->event_id), args.record->has_time);
    case FLYT_MEMORY_RESTORE:
        return note_memory(data);
    case FLYT_LIBRARY_LOAD:
        return note("load %llu, options %u\n", number(args.load->library_id), args.load->options.options_len);
    case FLYT_LIBRARY_GLOBAL:
        return note("variable %s of %llu\n", args.global->name, number(args.global->library_id));
    case FLYT_KERNEL_ATTRIBUTE_SET:
        return note("attribute %d of kernel %u is %d\n", args.attribute->attribute,
                    flyt_kernel_index(args.attribute->kernel_id), args.attribute->value);
    case FLYT_KERNEL_CACHE_CONFIG_SET:
        return note("cache of kernel %u is %u\n", flyt_kernel_index(args.cache->kernel_id), args.cache->cache_config);
    case FLYT_DEVICE_LIMIT_SET:
        return note("limit %u of %u is %llu\n", args.limit->limit, args.limit->device,
                    (unsigned long long)args.limit->value);
    case FLYT_DEVICE_CACHE_CONFIG_SET:
        return note("cache of %u is %u\n", args.preference->device, args.preference->cache_config);
    case FLYT_DEVICE_PEER_ACCESS_SET:
        return note("peer %u of %u\n", args.peer->peer_device, args.peer->device);
    default:
        return note("call %u\n", procedure);
    }
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    (void)data;
    bool is_new = fake.channel == fresh;
    uint32_t thread;
    if (is_new && procedure == server.fail_procedure && res) {
        *(int *)res = server.fail_result; /* the first field of every reply */
        return;
    }
    if (is_new && procedure == server.fail_procedure)
        fake.handlers->call_error(fake.user, fake.sequence, FLYT_RESTORE_THREAD, server.fail_result);
    answer(procedure, args, res);
    if (!is_new)
        return;
    memcpy(&thread, args, sizeof thread);
    if (procedure != FLYT_IMAGE_FIND && procedure != FLYT_IMAGE_STORE) /* of the program's image */
        assert_int_equal(thread, FLYT_RESTORE_THREAD);
    note_call(procedure, args);
}

/* ---- each test's program ---- */

static CUcontext context;
static const char image[] = ".version 8.0\n";

/* All calls so far are executed and complete. */
static void complete_all(void)
{
    fake.progress.received = fake.progress.executed = fake.progress.completed = fake.sequence;
}

static int set_up(void **state)
{
    memset(&server, 0, sizeof server);
    server.kernel_count = 2;
    server.second_kernel = "second";
    server.variable_address = 0x7000;
    fake.kept_count = 0;
    fake.kept_status = FLYT_CHANNEL_OK;
    return flyt_context_create(0, 0, &context) != CUDA_SUCCESS;
}

static int tear_down(void **state)
{
    memset(&server, 0, sizeof server);
    fake.kept_count = 0;
    CUresult result = flyt_context_destroy(context);
    complete_all();
    return result != CUDA_SUCCESS;
}

static void go_on(void)
{
    struct flyt_error err = {0};
    server.log[0] = 0;
    assert_int_equal(flyt_restore(fake.user, fresh, &err), 0);
    assert_string_equal(err.text, "");
}

static struct flyt_error refused(int error)
{
    struct flyt_error err = {0};
    server.log[0] = 0;
    assert_int_equal(flyt_restore(fake.user, fresh, &err), error);
    assert_int_equal(err.code, error);
    return err;
}

#define BARRIER "call 16\n"

static bool has_line(const char *format, ...)
{
    char line[256];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    return strstr(server.log, line) != NULL;
}

static CUstream new_stream(unsigned flags, int priority)
{
    CUstream stream;
    assert_int_equal(flyt_stream_create(flags, priority, &stream), CUDA_SUCCESS);
    return stream;
}

static CUevent new_event(unsigned flags)
{
    CUevent event;
    assert_int_equal(flyt_event_create(flags, &event), CUDA_SUCCESS);
    return event;
}

static CUdeviceptr new_memory(size_t bytes)
{
    CUdeviceptr address;
    assert_int_equal(flyt_memory_alloc(bytes, &address), CUDA_SUCCESS);
    return address;
}

static unsigned long long of(const void *handle)
{
    return number((uint64_t)(uintptr_t)handle);
}

/* ---- what is made ---- */

static void test_an_empty_session_is_a_barrier(void **state)
{
    complete_all();
    go_on();
    assert_string_equal(server.log, BARRIER);
}

static void test_everything_is_made_in_order(void **state)
{
    CUmodule module;
    CUlibrary lazy;
    CUfunction function;
    CUkernel kernel;
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = (void *)(uintptr_t)32;
    struct flyt_jit_options options = {.count = 1, .options = &option, .values = &value};
    assert_int_equal(flyt_library_open_lazy(image, &lazy), CUDA_SUCCESS);
    assert_int_equal(flyt_module_load(image, &options, &module), CUDA_SUCCESS);
    assert_int_equal(flyt_module_function(module, "second", &function), CUDA_SUCCESS);
    assert_int_equal(flyt_kernel_attribute_set(function, -1, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536),
                     CUDA_SUCCESS);
    assert_int_equal(flyt_kernel_cache_config_set(function, -1, CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
    CUdeviceptr large = new_memory(1 << 20), small = new_memory(100);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING, -3);
    CUevent recorded = new_event(0), idle = new_event(CU_EVENT_DISABLE_TIMING);
    assert_int_equal(flyt_event_record(recorded, stream, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_event_record(recorded, CU_STREAM_PER_THREAD, 0), CUDA_SUCCESS);
    /* Loaded after the module, though its id is older. */
    assert_int_equal(flyt_library_kernel(lazy, "first", &kernel), CUDA_SUCCESS);
    complete_all();
    go_on();
    char expected[2048];
    unsigned long long first = of(module), second = of(lazy);
    snprintf(expected, sizeof expected,
             "call 96\nload %llu, options 1\ncall 103\n"
             "attribute 8 of kernel 1 is 65536\ncache of kernel 1 is 2\n"
             "call 96\nload %llu, options 0\ncall 103\n"
             "memory 0: %llx+1048576 %llx+100\n"
             "stream %llu on 0, flags 1, priority -3\nstream %llu on 0, flags 0, priority 0\n"
             "event %llu on 0, flags 0\nrecorded %llu, time 0\nevent %llu on 0, flags 2\n" BARRIER,
             first, second, (unsigned long long)large, (unsigned long long)small, of(stream), of(stream) + 1,
             of(recorded), of(recorded), of(idle));
    assert_string_equal(server.log, expected);
    assert_int_equal(flyt_library_unload(lazy), CUDA_SUCCESS);
}

static void test_calls_behind_it_make_and_end_things_themselves(void **state)
{
    CUmodule gone_module, module;
    CUstream gone_stream = new_stream(0, 0), stream = new_stream(CU_STREAM_NON_BLOCKING, -1);
    CUevent gone_event = new_event(0), event = new_event(CU_EVENT_BLOCKING_SYNC);
    CUdeviceptr gone_memory = new_memory(1000), memory = new_memory(2000);
    assert_int_equal(flyt_module_load(image, NULL, &gone_module), CUDA_SUCCESS);
    assert_int_equal(flyt_module_load(image, NULL, &module), CUDA_SUCCESS);
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(gone_stream), CUDA_SUCCESS);
    assert_int_equal(flyt_event_destroy(gone_event), CUDA_SUCCESS);
    assert_int_equal(flyt_memory_free(gone_memory), CUDA_SUCCESS);
    assert_int_equal(flyt_module_unload(gone_module), CUDA_SUCCESS);
    complete_all();
    /* All of these come again afterwards. */
    CUstream later_stream = new_stream(0, 0);
    CUevent later_event = new_event(0);
    assert_int_equal(flyt_event_record(later_event, later_stream, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(stream), CUDA_SUCCESS);
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
    assert_int_equal(flyt_memory_free(memory), CUDA_SUCCESS);
    assert_int_equal(flyt_module_unload(module), CUDA_SUCCESS);
    go_on();
    char expected[1024];
    snprintf(expected, sizeof expected,
             "call 96\nload %llu, options 0\ncall 103\nmemory 0: %llx+2000\n"
             "stream %llu on 0, flags 1, priority -1\nevent %llu on 0, flags 1\nrecorded %llu, time 0\n" BARRIER,
             of(module), (unsigned long long)memory, of(stream), of(event), of(event));
    assert_string_equal(server.log, expected);
    /* Executed at the new server: forgotten. */
    complete_all();
    go_on();
    assert_true(has_line("stream %llu on", of(later_stream)));
    assert_true(has_line("recorded %llu,", of(later_event)));
    assert_false(has_line("stream %llu on", of(stream)));
    assert_false(has_line("event %llu on", of(event)));
    assert_false(has_line("memory"));
    assert_false(has_line("load"));
}

/* However many others come and go: the record of what an unexecuted call ends is not used again. */
static void test_records_stay_until_their_end_is_executed(void **state)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING, -2);
    complete_all();
    assert_int_equal(flyt_stream_destroy(stream), CUDA_SUCCESS);
    for (int i = 0; i < 2 * FLYT_TABLE_REST; i++)
        assert_int_equal(flyt_stream_destroy(new_stream(0, 0)), CUDA_SUCCESS);
    go_on();
    char expected[256];
    snprintf(expected, sizeof expected, "stream %llu on 0, flags 1, priority -2\n" BARRIER, of(stream));
    assert_string_equal(server.log, expected);
}

/* Those of a stream that has gone and whose id is another's now are not set. */
static void test_attributes_of_streams_are_set_again(void **state)
{
    CUstreamAttrValue policy = {.syncPolicy = CU_SYNC_POLICY_YIELD}, domain = {.memSyncDomain = 1}, value;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING, 0), copy = new_stream(CU_STREAM_NON_BLOCKING, 0);
    assert_int_equal(flyt_stream_attribute_set(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &policy),
                     CUDA_SUCCESS);
    assert_int_equal(flyt_stream_attribute_set(CU_STREAM_LEGACY, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &domain),
                     CUDA_SUCCESS);
    assert_int_equal(flyt_stream_attributes_copy(copy, stream), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_attribute(copy, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value), CUDA_SUCCESS);
    assert_int_equal(value.syncPolicy, CU_SYNC_POLICY_YIELD);
    assert_int_equal(flyt_stream_attribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_ERROR_INVALID_VALUE);
    complete_all();
    go_on();
    assert_true(has_line("attribute 3 of stream %llu is 3\n", of(stream)));
    assert_true(has_line("attribute 3 of stream %llu is 3\n", of(copy)));
    assert_true(has_line("attribute 10 of stream 1 is 1\n"));
    assert_int_equal(flyt_stream_destroy(stream), CUDA_SUCCESS);
    complete_all();
    for (int i = 0; i < 2 * FLYT_TABLE_REST; i++) {
        assert_int_equal(flyt_stream_destroy(new_stream(0, 0)), CUDA_SUCCESS);
        complete_all();
    }
    go_on();
    assert_false(has_line("attribute 3 of stream %llu", of(stream)));
    assert_true(has_line("attribute 3 of stream %llu is 3\n", of(copy)));
    domain.memSyncDomain = 0;
    assert_int_equal(flyt_stream_attribute_set(CU_STREAM_LEGACY, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &domain),
                     CUDA_SUCCESS);
    flyt_stream_reset_legacy(0); /* for the tests that follow */
}

/* A context that is destroyed behind it takes everything along, one call each; these come again. */
static void test_a_context_that_ends_behind_it_is_made_whole(void **state)
{
    CUcontext other;
    assert_int_equal(flyt_context_create(0, 1, &other), CUDA_SUCCESS);
    CUstream stream = new_stream(0, 0);
    CUdeviceptr first = next_address = flyt_window_base(1), second;
    first = new_memory(512);
    second = new_memory(512);
    complete_all();
    assert_int_equal(flyt_context_destroy(other), CUDA_SUCCESS);
    go_on();
    next_address = FLYT_WINDOW_BASE + (1ull << 36);
    assert_true(has_line("stream %llu on 1,", of(stream)));
    assert_true(has_line("memory 1:"));
    assert_true(has_line(" %llx+512", (unsigned long long)first));
    assert_true(has_line(" %llx+512", (unsigned long long)second));
}

static void test_allocations_go_in_calls_of_so_many(void **state)
{
    enum { COUNT = FLYT_RANGES_MAX + 10 };
    for (int i = 0; i < COUNT; i++)
        new_memory(16);
    complete_all();
    unsigned before = fake.call_count[FLYT_MEMORY_RESTORE];
    go_on();
    assert_int_equal(fake.call_count[FLYT_MEMORY_RESTORE] - before, 2);
    assert_int_equal(server.restored_count, COUNT);
}

/* A library that a device reset has ended is NEW; where the reset's unload comes again it must be there. */
static void test_a_library_that_is_ended_and_loaded_again(void **state)
{
    CUlibrary library;
    CUkernel kernel;
    assert_int_equal(flyt_runtime_device_set(0), CUDA_SUCCESS);
    assert_int_equal(flyt_library_open_lazy(image, &library), CUDA_SUCCESS);
    assert_int_equal(flyt_library_kernel(library, "first", &kernel), CUDA_SUCCESS);
    complete_all();
    assert_int_equal(flyt_device_reset(0), CUDA_SUCCESS);
    go_on();
    assert_true(has_line("load %llu,", of(library)));
    complete_all();
    go_on();
    assert_false(has_line("load"));
    assert_int_equal(flyt_library_ensure(library), CUDA_SUCCESS);
    complete_all();
    go_on();
    assert_true(has_line("load %llu,", of(library)));
    assert_int_equal(flyt_library_unload(library), CUDA_SUCCESS);
    assert_int_equal(flyt_context_set_current(context), CUDA_SUCCESS);
}

/* ---- counts ---- */

/* A record as the channel keeps it: a call that records an event on the stream. */
static struct flyt_channel_kept_call keep_record(char *room, size_t room_bytes, uint64_t sequence, CUstream stream)
{
    XDR xdrs;
    flyt_event_record_args args = {.event_id = flyt_id(FLYT_ID_EVENT, 1), .stream_id = (uint64_t)(uintptr_t)stream};
    xdrmem_create(&xdrs, room, (u_int)room_bytes, XDR_ENCODE);
    assert_true(flyt_call_head_put(&xdrs, (uint32_t)sequence, FLYT_PROGRAM, FLYT_VERSION, FLYT_EVENT_RECORD));
    assert_true(xdr_flyt_event_record_args(&xdrs, &args));
    return (struct flyt_channel_kept_call){
        .sequence = sequence, .procedure = FLYT_EVENT_RECORD, .record = room, .bytes = xdr_getpos(&xdrs)};
}

static void test_the_count_of_calls_goes_on(void **state)
{
    static char rooms[3][256];
    struct flyt_channel_kept_call kept[3];
    CUstream handle = new_stream(0, 0), other = new_stream(0, 0);
    CUevent event = new_event(0);
    const struct flyt_stream *stream = flyt_stream_find((uint64_t)(uintptr_t)handle);
    for (int i = 0; i < 100; i++)
        assert_int_equal(flyt_event_record(event, handle, 0), CUDA_SUCCESS);
    complete_all();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(flyt_event_record(event, handle, 0), CUDA_SUCCESS);
        kept[i] = keep_record(rooms[i], sizeof rooms[i], fake.sequence, handle);
    }
    kept[2] = keep_record(rooms[2], sizeof rooms[2], fake.sequence + 1, other);
    fake.kept = kept;
    fake.kept_count = 3;
    go_on();
    assert_int_equal(stream->issued_calls, 102);
    assert_int_equal(stream->executed_calls, 100);
    fake.handlers->credit(fake.user, stream->stream_id, 1);
    assert_int_equal(stream->executed_calls, 101);
    fake.handlers->credit(fake.user, stream->stream_id, 2);
    assert_int_equal(stream->executed_calls, 102);
    fake.handlers->credit(fake.user, stream->stream_id, 3); /* more than there were */
    assert_int_equal(stream->executed_calls, 102);
    /* Goes on a second time. */
    fake.kept_count = 0;
    complete_all();
    assert_int_equal(flyt_event_record(event, handle, 0), CUDA_SUCCESS);
    complete_all();
    go_on();
    fake.handlers->credit(fake.user, stream->stream_id, 0);
    assert_int_equal(stream->executed_calls, 103);
}

/* Tries at other servers, and none is taken: the one that was left goes on counting where it was. */
static void test_the_count_of_a_session_that_stays(void **state)
{
    CUstream handle = new_stream(0, 0);
    CUevent event = new_event(0);
    const struct flyt_stream *stream = flyt_stream_find((uint64_t)(uintptr_t)handle);
    struct flyt_error err = {0};
    for (int i = 0; i < 100; i++)
        assert_int_equal(flyt_event_record(event, handle, 0), CUDA_SUCCESS);
    complete_all();
    go_on(); /* a server before this one */
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < 10; i++)
            assert_int_equal(flyt_event_record(event, handle, 0), CUDA_SUCCESS);
        complete_all();
        for (int tries = 0; tries < round - 1; tries++)
            go_on();
        assert_int_equal(flyt_restore(fake.user, NULL, &err), 0);
        assert_int_equal(stream->base_calls, 100);
        assert_int_equal(flyt_event_record(event, handle, 0), CUDA_SUCCESS);
        uint64_t executed = 11 * (uint64_t)round;
        fake.handlers->credit(fake.user, stream->stream_id, executed - 1);
        assert_int_equal(stream->executed_calls, 100 + executed - 1);
        fake.handlers->credit(fake.user, stream->stream_id, executed);
        assert_int_equal(stream->executed_calls, 100 + executed);
    }
    complete_all();
    go_on();
    assert_int_equal(stream->base_calls, 133);
    assert_int_equal(stream->executed_calls, 133);
}

/* Every try makes the same, whatever became of the one before. */
static void test_any_number_of_tries(void **state)
{
    static char first[sizeof server.log];
    CUdeviceptr address = new_memory(64), gone = new_memory(32);
    CUstream stream = new_stream(0, 0), ended = new_stream(0, 0);
    CUevent event = new_event(0);
    CUmodule module;
    CUfunction kernel;
    assert_int_equal(flyt_module_load(image, NULL, &module), CUDA_SUCCESS);
    assert_int_equal(flyt_module_function(module, "first", &kernel), CUDA_SUCCESS);
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    complete_all();
    assert_int_equal(flyt_memory_free(gone), CUDA_SUCCESS); /* these come again */
    assert_int_equal(flyt_stream_destroy(ended), CUDA_SUCCESS);
    go_on();
    strcpy(first, server.log);
    assert_non_null(strstr(first, "load "));
    for (int i = 0; i < 4; i++) {
        static const unsigned failing[] = {FLYT_LIBRARY_LOAD, FLYT_MEMORY_RESTORE, FLYT_STREAM_CREATE,
                                           FLYT_EVENT_RESTORE};
        server.fail_procedure = failing[i];
        server.fail_result = CUDA_ERROR_OUT_OF_MEMORY;
        refused(-EIO);
        server.fail_procedure = 0;
        go_on();
        assert_string_equal(server.log, first);
    }
    assert_int_equal(flyt_module_unload(module), CUDA_SUCCESS);
    assert_int_equal(flyt_memory_free(address), CUDA_SUCCESS);
}

/* Nobody makes up for what is missing there, either. */
static void test_a_session_that_stays_lacks_nothing(void **state)
{
    static char host[1 << 20];
    CUdeviceptr address = new_memory(sizeof host);
    CUstream stream = new_stream(0, 0);
    struct flyt_error err = {0};
    struct flyt_copy copy = {.dst = {.place = FLYT_PLACE_HOST, .address = (uint64_t)(uintptr_t)host},
                             .src = {.place = FLYT_PLACE_DEVICE, .address = address},
                             .width_bytes = sizeof host,
                             .height = 1,
                             .depth = 1};
    assert_int_equal(flyt_host_register(host, sizeof host, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_copy(&copy, stream, true), CUDA_SUCCESS);
    complete_all();
    assert_int_equal(flyt_restore(fake.user, NULL, &err), -EBUSY);
    assert_string_equal(err.text, "bytes of a copy to the host have not arrived");
    assert_non_null(fake.handlers->chunk_place(fake.user, copy_out_id, 0, sizeof host));
    fake.handlers->chunk_done(fake.user, copy_out_id, 0, sizeof host);
    assert_int_equal(flyt_restore(fake.user, NULL, &err), 0);
    assert_int_equal(flyt_host_unregister(host), CUDA_SUCCESS);
}

/* ---- what is not to be parted ---- */

static unsigned calls_in_groups, calls_outside;

static void note_group(unsigned procedure, const void *args, void *res, void *data)
{
    bool is_of_one = procedure == FLYT_COPY_IN_TRANSFER || procedure == FLYT_IMAGE_FIND ||
                     procedure == FLYT_IMAGE_STORE || procedure == FLYT_LIBRARY_LOAD ||
                     procedure == FLYT_LIBRARY_KERNELS;
    if (is_of_one && fake.group_count)
        calls_in_groups++;
    else if (is_of_one)
        calls_outside++;
    serve(procedure, args, res, data);
}

/* A copy's call and its data; an image, its loading and its kernels. */
static void test_what_belongs_together_is_a_group(void **state)
{
    static char host[1 << 20];
    CUdeviceptr address = new_memory(sizeof host);
    CUmodule module;
    struct flyt_copy copy = {.dst = {.place = FLYT_PLACE_DEVICE, .address = address},
                             .src = {.place = FLYT_PLACE_HOST, .address = (uint64_t)(uintptr_t)host},
                             .width_bytes = sizeof host,
                             .height = 1,
                             .depth = 1};
    calls_in_groups = calls_outside = 0;
    server.lacks_images = true;
    fake.serve = note_group;
    unsigned data_count = fake.data_count;
    assert_int_equal(flyt_copy(&copy, NULL, true), CUDA_SUCCESS); /* at once */
    assert_int_equal(calls_in_groups, 1);
    assert_int_equal(flyt_host_register(host, sizeof host, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_copy(&copy, NULL, true), CUDA_SUCCESS); /* in the background */
    assert_int_equal(calls_in_groups, 2);
    assert_int_equal(flyt_module_load(image, NULL, &module), CUDA_SUCCESS);
    assert_int_equal(calls_in_groups, 2 + 4);
    assert_int_equal(calls_outside, 0);
    assert_int_equal(fake.data_count, data_count + 3);
    assert_int_equal(fake.data_groups, 3);
    assert_int_equal(fake.group_count, 0);
    fake.serve = serve;
    complete_all();
    assert_int_equal(flyt_host_unregister(host), CUDA_SUCCESS);
    assert_int_equal(flyt_module_unload(module), CUDA_SUCCESS);
}

static void test_what_is_complete_stays_so(void **state)
{
    CUstream stream = new_stream(0, 0);
    CUevent event = new_event(0);
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    complete_all();
    go_on();
    unsigned before = fake.call_count[FLYT_EVENT_QUERY];
    assert_int_equal(flyt_event_query(event), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_query(stream), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_EVENT_QUERY], before);
}

/* ---- what is refused ---- */

static void test_a_refusal_names_the_memory(void **state)
{
    CUdeviceptr address = new_memory(64);
    char expected[128];
    complete_all();
    server.fail_procedure = FLYT_MEMORY_RESTORE;
    server.fail_result = CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(expected, sizeof expected, "1 allocations of device 0 from %#llx on cannot be made again: CUDA error 2",
             (unsigned long long)address);
    assert_string_equal(refused(-EIO).text, expected);
    assert_false(has_line(BARRIER));
}

static void test_a_refusal_names_what_was_made_one_way(void **state)
{
    CUstream stream = new_stream(0, 0);
    char expected[128];
    complete_all();
    server.fail_procedure = FLYT_STREAM_CREATE;
    server.fail_result = CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(expected, sizeof expected, "stream %#llx cannot be made again: CUDA error 2",
             (unsigned long long)(uintptr_t)stream);
    assert_string_equal(refused(-EIO).text, expected);
    assert_int_equal(flyt_client_enter(), CUDA_SUCCESS); /* it is no error of the program's */
    server.fail_procedure = 0;
    go_on(); /* nothing of it stays */
}

/* SHA-256 of the image above, as sha256sum says. */
#define MODULE                                                                                                         \
    "module with SHA-256 8907817230176d288b6248ca08590b957ac74c150c3fde2260837375122e0bba cannot be loaded again: "

static void test_a_refusal_names_the_module(void **state)
{
    CUmodule module;
    assert_int_equal(flyt_module_load(image, NULL, &module), CUDA_SUCCESS);
    complete_all();
    server.fail_procedure = FLYT_LIBRARY_LOAD;
    server.fail_result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    assert_string_equal(refused(-EIO).text, MODULE "CUDA error 209");
    server.fail_procedure = 0;
    server.kernel_count = 3;
    assert_string_equal(refused(-EIO).text, MODULE "it has other kernels there");
    server.kernel_count = 2;
    server.second_kernel = "another";
    assert_string_equal(refused(-EIO).text, MODULE "it has other kernels there");
    server.second_kernel = "second";
    /* A module's image is the program's, and may be gone. */
    server.lacks_images = true;
    assert_string_equal(refused(-EIO).text, MODULE "the node lacks its image, and the program has given it away");
    server.lacks_images = false;
    go_on();
}

static void test_a_node_that_lacks_an_image_is_given_it(void **state)
{
    static char own[] = ".version 8.0\n";
    CUlibrary library;
    assert_int_equal(flyt_library_open_lazy(own, &library), CUDA_SUCCESS);
    assert_int_equal(flyt_library_ensure(library), CUDA_SUCCESS);
    complete_all();
    server.lacks_images = true;
    unsigned before = fake.data_count;
    go_on();
    assert_int_equal(fake.data_count - before, 1);
    assert_int_equal(fake.data_bytes, strlen(own));
    assert_true(has_line("call 97\nload %llu,", of(library)));
    own[9] = '7'; /* the program's memory must stay as it was */
    assert_string_equal(refused(-EIO).text, MODULE "the node lacks its image, and the program's has changed");
    assert_int_equal(flyt_library_unload(library), CUDA_SUCCESS);
    own[9] = '8';
    assert_string_equal(refused(-EIO).text, MODULE "the node lacks its image, and the program has given it away");
}

static void test_variables_must_be_where_they_were(void **state)
{
    CUmodule module;
    CUdeviceptr address;
    assert_int_equal(flyt_module_load(image, NULL, &module), CUDA_SUCCESS);
    assert_int_equal(flyt_module_global(module, "counter", &address, NULL), CUDA_SUCCESS);
    complete_all();
    go_on();
    assert_true(has_line("variable counter of %llu\n", of(module)));
    server.variable_address += 256;
    assert_string_equal(refused(-EIO).text,
                        "variable counter, whose address the program or a copy has, is at another one there");
}

static void CUDA_CB do_nothing(void *user)
{
}

static void test_what_has_begun_and_not_finished(void **state)
{
    static char host[1 << 17];
    CUstream stream = new_stream(0, 0);
    CUdeviceptr address = new_memory(sizeof host);
    struct flyt_copy copy = {.width_bytes = sizeof host, .height = 1, .depth = 1};
    copy.src.place = FLYT_PLACE_DEVICE;
    copy.src.address = address;
    copy.dst.place = FLYT_PLACE_HOST;
    copy.dst.address = (uint64_t)(uintptr_t)host;
    assert_int_equal(flyt_host_function_launch(stream, do_nothing, NULL), CUDA_SUCCESS);
    uint64_t launched = fake.sequence;
    fake.progress.completed = launched - 1;
    go_on(); /* not begun: it comes again */
    fake.progress.completed = launched;
    assert_string_equal(refused(-EBUSY).text, "a host function has begun and not finished");
    /* Its thread has sent that it has finished, and waits for the channel that the session goes on with. */
    atomic_store(&fake.is_away, true);
    fake.handlers->host_function(fake.user, function_id, CUDA_SUCCESS);
    while (!atomic_load(&fake.waiting_count))
        usleep(1000);
    assert_int_equal(fake.call_count[FLYT_HOST_FUNCTION_DONE], 1);
    fake.progress.completed = fake.sequence - 1;
    assert_string_equal(refused(-EBUSY).text, "a host function has begun and not finished");
    complete_all();
    go_on();
    atomic_store(&fake.is_away, false);
    assert_int_equal(flyt_host_register(host, sizeof host, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_copy(&copy, stream, true), CUDA_SUCCESS);
    fake.progress.completed = fake.sequence - 1;
    go_on();
    complete_all();
    assert_string_equal(refused(-EBUSY).text, "bytes of a copy to the host have not arrived");
    void *place = fake.handlers->chunk_place(fake.user, copy_out_id, 0, sizeof host);
    assert_non_null(place);
    fake.handlers->chunk_done(fake.user, copy_out_id, 0, sizeof host);
    go_on();
    assert_int_equal(flyt_host_unregister(host), CUDA_SUCCESS);
    fake.kept_status = FLYT_CHANNEL_GONE;
    assert_string_equal(refused(-EBUSY).text, "more calls wait for the server than are kept");
}

static void test_data_that_went_to_the_old_server(void **state)
{
    static char room[512];
    XDR xdrs;
    flyt_copy_in_transfer_args args = {.stream_id = flyt_legacy_stream_id(0), .bytes = 1 << 20, .is_pull = 1};
    struct flyt_channel_kept_call kept = {.procedure = FLYT_COPY_IN_TRANSFER, .record = room};
    complete_all();
    kept.sequence = fake.sequence + 1;
    for (; args.is_pull < 2; args.is_pull--) {
        xdrmem_create(&xdrs, room, sizeof room, XDR_ENCODE);
        assert_true(flyt_call_head_put(&xdrs, 1, FLYT_PROGRAM, FLYT_VERSION, FLYT_COPY_IN_TRANSFER));
        assert_true(xdr_flyt_copy_in_transfer_args(&xdrs, &args));
        kept.bytes = xdr_getpos(&xdrs);
        fake.kept = &kept;
        fake.kept_count = 1;
        if (args.is_pull)
            go_on();
        else
            assert_string_equal(refused(-EBUSY).text,
                                "the data of a copy to the device went to the server that the session leaves");
    }
}

/* Between an answer and the books: waited for. */
static void *write_down(void *user)
{
    CUdeviceptr address = 0;
    struct flyt_thread *thread = flyt_thread_get();
    flyt_answer_begin();
    flyt_answer_come(thread);
    *(_Atomic bool *)user = true;
    usleep(20000);
    flyt_context_set_current(context);
    assert_int_equal(flyt_memory_alloc(48, &address), CUDA_SUCCESS); /* ends with the answer in the books */
    return NULL;
}

static void test_an_answer_is_written_down_first(void **state)
{
    pthread_t thread;
    static _Atomic bool has_answer;
    complete_all();
    pthread_create(&thread, NULL, write_down, (void *)(uintptr_t)&has_answer);
    while (!has_answer)
        usleep(1000);
    go_on();
    pthread_join(thread, NULL);
    assert_true(has_line("+48\n"));
    /* One that is never written down. */
    flyt_answer_begin();
    flyt_answer_come(flyt_thread_self);
    assert_string_equal(refused(-EBUSY).text, "a thread of the program has not taken the answer to its last call");
    flyt_answer_end();
    /* One that has not come hinders nobody. */
    flyt_answer_begin();
    go_on();
    flyt_answer_end();
}

/* What the program was told of its device stays; code is chosen for the one that it has. */
static void test_images_are_chosen_for_the_device_as_it_is(void **state)
{
    static const uint32_t container[16] = {0xBA55ED50};
    static const int capabilities[] = {90, 86, 100, 90};
    struct flyt_fatbin_device target;
    int told, major;
    assert_int_equal(flyt_device_attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &told), CUDA_SUCCESS);
    for (size_t i = 0; i < sizeof capabilities / sizeof capabilities[0]; i++) {
        server.capability = capabilities[i];
        complete_all();
        go_on();
        assert_int_equal(flyt_image_target(container, 0, &target), CUDA_SUCCESS);
        assert_int_equal(10 * target.major + target.minor, capabilities[i]);
        assert_int_equal(flyt_device_attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major), CUDA_SUCCESS);
        assert_int_equal(major, told);
    }
    assert_int_equal(flyt_image_target(image, 0, &target), CUDA_SUCCESS); /* is what it is */
    assert_int_equal(target.major, 0);
}

/* The last ones: what they set stays. */
static void test_settings_are_made_first(void **state)
{
    new_stream(0, 0);
    assert_int_equal(flyt_device_limit_set(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
    assert_int_equal(flyt_device_cache_config_set(CU_FUNC_CACHE_PREFER_SHARED), CUDA_SUCCESS);
    assert_int_equal(flyt_device_peer_enable(1, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_profiler_set(true), CUDA_SUCCESS);
    complete_all();
    go_on();
    static const char expected[] = "limit 0 of 0 is 4096\ncache of 0 is 1\npeer 1 of 0\ncall 17\nstream ";
    assert_memory_equal(server.log, expected, sizeof expected - 1);
    server.fail_procedure = FLYT_DEVICE_LIMIT_SET;
    server.fail_result = CUDA_ERROR_INVALID_VALUE;
    assert_string_equal(refused(-EIO).text, "limit 0 of device 0 cannot be made again: CUDA error 1");
}

static void test_nothing_goes_on_after_a_fault(void **state)
{
    complete_all();
    fake.handlers->fatal(fake.user, CUDA_ERROR_ASSERT, "");
    assert_string_equal(refused(-EIO).text, "the program's context has ended: CUDA error 710");
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
#define PROGRAM_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        PROGRAM_TEST(test_an_empty_session_is_a_barrier),
        PROGRAM_TEST(test_everything_is_made_in_order),
        PROGRAM_TEST(test_calls_behind_it_make_and_end_things_themselves),
        PROGRAM_TEST(test_records_stay_until_their_end_is_executed),
        PROGRAM_TEST(test_attributes_of_streams_are_set_again),
        PROGRAM_TEST(test_a_context_that_ends_behind_it_is_made_whole),
        PROGRAM_TEST(test_allocations_go_in_calls_of_so_many),
        PROGRAM_TEST(test_a_library_that_is_ended_and_loaded_again),
        PROGRAM_TEST(test_the_count_of_calls_goes_on),
        PROGRAM_TEST(test_the_count_of_a_session_that_stays),
        PROGRAM_TEST(test_any_number_of_tries),
        PROGRAM_TEST(test_a_session_that_stays_lacks_nothing),
        PROGRAM_TEST(test_what_belongs_together_is_a_group),
        PROGRAM_TEST(test_what_is_complete_stays_so),
        PROGRAM_TEST(test_a_refusal_names_the_memory),
        PROGRAM_TEST(test_a_refusal_names_what_was_made_one_way),
        PROGRAM_TEST(test_a_refusal_names_the_module),
        PROGRAM_TEST(test_a_node_that_lacks_an_image_is_given_it),
        PROGRAM_TEST(test_variables_must_be_where_they_were),
        PROGRAM_TEST(test_what_has_begun_and_not_finished),
        PROGRAM_TEST(test_data_that_went_to_the_old_server),
        PROGRAM_TEST(test_an_answer_is_written_down_first),
        PROGRAM_TEST(test_images_are_chosen_for_the_device_as_it_is),
        PROGRAM_TEST(test_settings_are_made_first),
        cmocka_unit_test(test_nothing_goes_on_after_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
