/* Calls of a library of the test's own over a channel without a server: what is awaited and what is not, what travels,
 * what wrong answers, handles and descriptors come to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/library/object.h"
#include "flyt.h"

enum {
    FINE = 0,
    REFUSED = 15,
    FAILED = 13,
    HANDLE = 1,
    INVALID = 7,
    MEMORY = 3,
    TOLD = 9,
    ROW_NEW = 11,
    ROW_END,
    ROW_WORK,
    ROW_SIZE,
    MADE_MAX = 16
};

struct state {
    int32_t mode, level;
};
struct arguments {
    uint32_t array_bytes;
    int32_t n, pointer_mode, unused;
    uint64_t address;
    struct flyt_lib_scalar alpha;
};
enum { STATE_AT = (sizeof(struct arguments) + FLYT_LIB_ALIGN - 1) / FLYT_LIB_ALIGN * FLYT_LIB_ALIGN };
struct descriptor {
    struct flyt_lib_value_head head;
    int32_t order, count;
};

static const struct state defaults = {.level = 5};
static const struct descriptor value_defaults = {.count = 1};
static const struct flyt_lib_attribute attributes[] = {{1, offsetof(struct descriptor, order), 4},
                                                       {70, offsetof(struct descriptor, count), 4}};
static const struct flyt_lib_value_kind value_kind = {.bytes = sizeof(struct descriptor),
                                                      .room = 64,
                                                      .count = 2,
                                                      .attributes = attributes,
                                                      .defaults = &value_defaults,
                                                      .magic = 77};
static struct flyt_lib_use use = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static const struct flyt_lib library = {.name = "test",
                                        .soname = "libtest.so.1",
                                        .version = 1002,
                                        .refused = REFUSED,
                                        .failed = FAILED,
                                        .handle = HANDLE,
                                        .invalid = INVALID,
                                        .memory = MEMORY,
                                        .told = TOLD,
                                        .use = &use};
static const struct flyt_lib_kind kind = {.name = "test",
                                          .library = &library,
                                          .has_stream = true,
                                          .state_bytes = sizeof(struct state),
                                          .defaults = &defaults,
                                          .mode_at = offsetof(struct state, mode)};

static const struct flyt_lib_kind apart_kind = {.name = "apart",
                                                .library = &library,
                                                .is_apart = true,
                                                .state_bytes = sizeof(struct state),
                                                .defaults = &defaults,
                                                .mode_at = -1};
static const struct flyt_lib_row apart_row = {
    .library = &library, .name = "testForget", .id = ROW_END, .flags = FLYT_LIB_ASKS};

static struct {
    int open_result, status;
    uint32_t node_version;
    size_t result_bytes;
    unsigned char arguments[512];
    size_t bytes;
    uint64_t made[MADE_MAX], forgotten;
    unsigned made_count;
} server;

static void keep(u_int bytes, const char *data)
{
    assert_in_range(bytes, 0, sizeof server.arguments);
    server.bytes = bytes;
    if (bytes)
        memcpy(server.arguments, data, bytes);
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    if (procedure == FLYT_DEVICE_INFO)
        fake_serve_device_info(res);
    if (procedure == FLYT_LIBRARY_OPEN) {
        assert_string_equal(((const flyt_library_open_args *)args)->name, "test");
        assert_int_equal(((const flyt_library_open_args *)args)->client_version, 1002);
        assert_string_equal(((const flyt_library_open_args *)args)->environment, "NVIDIA_TF32_OVERRIDE=0\n");
        ((flyt_library_open_res *)res)->result = server.open_result;
        ((flyt_library_open_res *)res)->node_version = server.node_version;
        ((flyt_library_open_res *)res)->text = strdup("it is not");
    }
    if (procedure == FLYT_LIBOBJECT_NEW) {
        server.made[server.made_count++ % MADE_MAX] = ((const flyt_libobject_new_args *)args)->object_id;
        ((flyt_libobject_new_res *)res)->status = server.status;
    }
    if (procedure == FLYT_LIBOBJECT_FORGET)
        server.forgotten = ((const flyt_libobject_forget_args *)args)->object_id;
    if (procedure == FLYT_LIBCALL_STREAM)
        keep(((const flyt_libcall_stream_args *)args)->arguments.arguments_len,
             ((const flyt_libcall_stream_args *)args)->arguments.arguments_val);
    if (procedure == FLYT_LIBCALL_ASK) {
        flyt_libcall_ask_res *answer = res;
        keep(((const flyt_libcall_ask_args *)args)->arguments.arguments_len,
             ((const flyt_libcall_ask_args *)args)->arguments.arguments_val);
        answer->status = server.status;
        answer->results.results_len = (u_int)server.result_bytes;
        answer->results.results_val = calloc(1, server.result_bytes + 1);
        memset(answer->results.results_val, 9, server.result_bytes);
    }
}

/* ---- as entry points are made ---- */

static int create_from(void **ret_handle, const struct flyt_lib_kind *of, const uint64_t *named, size_t named_count)
{
    static const struct flyt_lib_row row = {
        .library = &library, .name = "testCreate", .id = ROW_NEW, .flags = FLYT_LIB_ASKS};
    char nothing[1];
    struct flyt_lib_call call = {.row = &row, .arguments = nothing};
    flyt_lib_begin(&call);
    flyt_lib_new(&call, ret_handle, of);
    call.named = named;
    call.named_count = named_count;
    return flyt_lib_finish(&call);
}

static int create_of(void **ret_handle, const struct flyt_lib_kind *of)
{
    return create_from(ret_handle, of, NULL, 0);
}

static int create(void **ret_handle)
{
    return create_of(ret_handle, &kind);
}

static int destroy(void *handle)
{
    static const struct flyt_lib_row row = {
        .library = &library, .name = "testDestroy", .id = ROW_END, .flags = FLYT_LIB_ASKS};
    char nothing[1];
    struct flyt_lib_call call = {.row = &row, .arguments = nothing};
    flyt_lib_begin(&call);
    flyt_lib_end(&call, (uint64_t)(uintptr_t)handle, &kind);
    return flyt_lib_finish(&call);
}

static int call_row(const struct flyt_lib_row *row, void *handle, int n, const float *alpha, uint64_t address,
                    const void *array, size_t array_bytes, void *out, size_t out_bytes)
{
    struct arguments sent;
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = row, .arguments = &sent};
    flyt_lib_begin(&call);
    flyt_lib_object(&call, (uint64_t)(uintptr_t)handle, &kind);
    sent.pointer_mode = flyt_lib_mode(&call, 0);
    sent.n = n;
    sent.address = address;
    flyt_lib_scalar(&call, &sent.alpha, alpha, sent.pointer_mode, sizeof *alpha, FLYT_LIB_SCALAR);
    sent.array_bytes = flyt_lib_in(&call, array, array_bytes, true);
    flyt_lib_out(&call, out, out_bytes, true);
    return flyt_lib_finish(&call);
}

static const struct flyt_lib_address addresses[] = {{offsetof(struct arguments, address), 8},
                                                    {offsetof(struct arguments, alpha.place), 4}};
static const struct flyt_lib_row work_row = {.library = &library,
                                             .name = "testWork",
                                             .id = ROW_WORK,
                                             .flags = FLYT_LIB_IN_STREAM,
                                             .bytes = sizeof(struct arguments),
                                             .key_bytes = offsetof(struct arguments, address),
                                             .address_count = 2,
                                             .addresses = addresses};
static const struct flyt_lib_row size_row = {.library = &library,
                                             .name = "testSize",
                                             .id = ROW_SIZE,
                                             .flags = FLYT_LIB_CACHED,
                                             .bytes = sizeof(struct arguments),
                                             .key_bytes = offsetof(struct arguments, address)};

static int work(void *handle, int n, float alpha, uint64_t address)
{
    return call_row(&work_row, handle, n, &alpha, address, NULL, 0, NULL, 0);
}

static int work_of(void *handle, const struct flyt_lib_kind *of, int n)
{
    struct arguments sent;
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &work_row, .arguments = &sent};
    flyt_lib_begin(&call);
    flyt_lib_object(&call, (uint64_t)(uintptr_t)handle, of);
    sent.n = n;
    return flyt_lib_finish(&call);
}

static unsigned asked(void)
{
    return fake.call_count[FLYT_LIBCALL_ASK];
}

static unsigned sent(void)
{
    return fake.call_count[FLYT_LIBCALL_STREAM];
}

/* ---- tests ---- */

static void a_library_is_opened_once(void **state)
{
    void *handle;
    server.open_result = CUDA_ERROR_NOT_SUPPORTED;
    assert_int_equal(create(&handle), REFUSED);
    server.open_result = 0;
    assert_int_equal(create(&handle), REFUSED); /* it stays away */
    assert_int_equal(fake.call_count[FLYT_LIBRARY_OPEN], 1);
    assert_int_equal(fake.call_count[FLYT_LIBOBJECT_NEW], 0);
    use.is_known = 0;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(create(&handle), FINE);
        assert_int_equal(destroy(handle), FINE);
    }
    assert_int_equal(fake.call_count[FLYT_LIBRARY_OPEN], 2);
}

static void what_has_succeeded_is_not_awaited_again(void **state)
{
    void *handle;
    assert_int_equal(create(&handle), FINE);
    unsigned asks = asked(), sends = sent();
    assert_int_equal(work(handle, 3, 1, 0x200000000000), FINE);
    assert_int_equal(asked(), asks + 1);
    assert_int_equal(work(handle, 3, 2, 0x200000000100), FINE); /* another address, another scalar */
    assert_int_equal(work(handle, 3, 2, 8), FINE);
    assert_int_equal(asked(), asks + 1);
    assert_int_equal(sent(), sends + 2);
    server.status = INVALID;
    assert_int_equal(work(handle, -1, 1, 0), INVALID);
    assert_int_equal(work(handle, -1, 1, 0), INVALID); /* what has failed is */
    server.status = FINE;
    assert_int_equal(asked(), asks + 3);
    /* What has an answer in the program's memory always is. */
    float alpha = 1;
    int out[2] = {0};
    server.result_bytes = FLYT_LIB_ALIGN;
    for (int i = 0; i < 2; i++)
        assert_int_equal(call_row(&work_row, handle, 3, &alpha, 0, NULL, 0, out, sizeof out), FINE);
    assert_int_equal(asked(), asks + 5);
    assert_int_equal(out[1], 0x09090909);
    server.result_bytes = 0;
    assert_int_equal(destroy(handle), FINE);
}

static void without_an_address_it_is_another_call(void **state)
{
    void *handle;
    float alpha = 1;
    assert_int_equal(create(&handle), FINE);
    unsigned asks = asked();
    assert_int_equal(work(handle, 30, 1, 0x200000000000), FINE);
    server.status = INVALID;
    assert_int_equal(work(handle, 30, 1, 0), INVALID);
    assert_int_equal(call_row(&work_row, handle, 30, NULL, 8, NULL, 0, NULL, 0), INVALID);
    server.status = FINE;
    assert_int_equal(asked(), asks + 3);
    assert_int_equal(call_row(&work_row, handle, 30, &alpha, 8, NULL, 0, NULL, 0), FINE);
    assert_int_equal(asked(), asks + 3);
    assert_int_equal(destroy(handle), FINE);
}

static void an_object_apart_is_none_of_before(void **state)
{
    void *first, *second;
    assert_int_equal(create_of(&first, &apart_kind), FINE);
    assert_int_equal(work_of(first, &apart_kind, 31), FINE);
    unsigned asks = asked();
    assert_int_equal(work_of(first, &apart_kind, 31), FINE);
    assert_int_equal(asked(), asks);
    flyt_lib_forget(&apart_row, (uint64_t)(uintptr_t)first, &apart_kind);
    for (unsigned i = 0; i < 100; i++) { /* the id may come again */
        assert_int_equal(create_of(&second, &apart_kind), FINE);
        assert_int_equal(work_of(second, &apart_kind, 31), FINE);
        assert_int_equal(asked(), ++asks);
        flyt_lib_forget(&apart_row, (uint64_t)(uintptr_t)second, &apart_kind);
    }
}

static unsigned captured_waits[2]; /* how many calls do not, and do */

static CUresult note_captured(struct flyt_stream *const *streams, unsigned count, const struct flyt_captured_call *call)
{
    captured_waits[call->waits]++;
    return CUDA_SUCCESS;
}

/* A graph is told where a thread of the server's makes the call: of a row that says so, or an object. */
static void captured_calls_say_whether_a_thread_makes_them(void **state)
{
    static const struct flyt_lib_kind waiting_kind = {.name = "waiting",
                                                      .library = &library,
                                                      .is_waiting = true,
                                                      .state_bytes = sizeof(struct state),
                                                      .defaults = &defaults,
                                                      .mode_at = -1};
    static const struct flyt_capture_ops ops = {.call = note_captured};
    struct flyt_capture capture = {.number = 1};
    struct flyt_stream *stream;
    void *handle, *waiting;
    assert_int_equal(create_of(&handle, &apart_kind), FINE);
    assert_int_equal(create_of(&waiting, &waiting_kind), FINE);
    assert_int_equal(flyt_stream_get(NULL, &stream), CUDA_SUCCESS);
    flyt_captures.ops = &ops;
    flyt_captures.first = &capture;
    atomic_store(&flyt_captures.count, 1);
    flyt_capture_join_locked(&capture, stream);
    assert_int_equal(work_of(handle, &apart_kind, 1), FINE);
    assert_int_equal(captured_waits[true], 0);
    assert_int_equal(work_of(waiting, &waiting_kind, 1), FINE);
    flyt_capture_leave_locked(&capture);
    assert_int_equal(captured_waits[false], 1);
    assert_int_equal(captured_waits[true], 1);
    flyt_lib_forget(&apart_row, (uint64_t)(uintptr_t)handle, &apart_kind);
    flyt_lib_forget(&apart_row, (uint64_t)(uintptr_t)waiting, &waiting_kind);
}

/* A draw has counts of its library's in what it launches, which no call that is made anew has: the capture ends. */
static void a_captured_draw_is_refused(void **state)
{
    static const struct flyt_capture_ops ops = {.call = note_captured};
    struct flyt_lib_row row = work_row;
    struct flyt_capture capture = {.number = 2};
    struct flyt_stream *stream;
    struct arguments sent;
    void *handle;
    row.flags |= FLYT_LIB_DRAWS;
    const unsigned captured_before = captured_waits[false] + captured_waits[true], asks = asked();
    assert_int_equal(create_of(&handle, &apart_kind), FINE);
    assert_int_equal(flyt_stream_get(NULL, &stream), CUDA_SUCCESS);
    flyt_captures.ops = &ops;
    flyt_captures.first = &capture;
    atomic_store(&flyt_captures.count, 1);
    flyt_capture_join_locked(&capture, stream);
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &row, .arguments = &sent};
    flyt_lib_begin(&call);
    flyt_lib_object(&call, (uint64_t)(uintptr_t)handle, &apart_kind);
    assert_int_equal(flyt_lib_finish(&call), REFUSED);
    assert_true(capture.is_invalid);
    flyt_capture_leave_locked(&capture);
    assert_int_equal(captured_waits[false] + captured_waits[true], captured_before);
    assert_int_equal(asked(), asks);
    flyt_lib_forget(&apart_row, (uint64_t)(uintptr_t)handle, &apart_kind);
}

/* What a server gets that is to be as after all calls up to `sequence`: how many objects, and how many ends. */
static unsigned made_again(uint64_t sequence, unsigned *ret_ends)
{
    struct flyt_error err = {0};
    struct flyt_restore restore = {.fresh = flyt_client.channel, .sequence = sequence, .err = &err};
    unsigned ends = fake.call_count[FLYT_LIBOBJECT_FORGET];
    server.made_count = 0;
    assert_int_equal(flyt_lib_objects_restore(&restore), 0);
    flyt_restore_end(&restore);
    *ret_ends = fake.call_count[FLYT_LIBOBJECT_FORGET] - ends;
    return server.made_count;
}

static void forget(void *handle)
{
    flyt_lib_forget(&apart_row, (uint64_t)(uintptr_t)handle, &apart_kind);
}

static void what_others_are_made_from_is_made_again(void **state)
{
    void *first, *second, *third;
    unsigned ends;
    fake.progress.executed = UINT64_MAX;
    assert_int_equal(made_again(UINT64_MAX, &ends), 0);
    assert_int_equal(create_of(&first, &apart_kind), FINE);
    const uint64_t named[] = {(uint64_t)(uintptr_t)first, (uint64_t)(uintptr_t)first};
    assert_int_equal(create_from(&second, &apart_kind, named, 2), FINE);
    const uint64_t also[] = {(uint64_t)(uintptr_t)second};
    assert_int_equal(create_from(&third, &apart_kind, also, 1), FINE);
    forget(second);
    forget(first);
    assert_int_equal(made_again(UINT64_MAX, &ends), 3);
    assert_int_equal(server.made[0], named[0]);
    assert_int_equal(server.made[1], also[0]);
    assert_int_equal(server.made[2], (uint64_t)(uintptr_t)third);
    assert_int_equal(ends, 2); /* the program has them no more */
    assert_int_equal(server.forgotten, named[0]);
    /* Made otherwise, and from none of those: what the program has not is not needed any more. */
    assert_true(flyt_lib_remake((uint64_t)(uintptr_t)third, &apart_kind, &apart_row, "x", 1, NULL, 0));
    forget(third);
    assert_int_equal(made_again(UINT64_MAX, &ends), 0);
    assert_int_equal(ends, 0);
}

static void what_a_later_call_ends_is_there_until_then(void **state)
{
    void *handle;
    unsigned ends;
    assert_int_equal(create_of(&handle, &apart_kind), FINE);
    uint64_t before = fake.sequence;
    fake.progress.executed = before;
    forget(handle);
    assert_int_equal(made_again(before, &ends), 1);
    assert_int_equal(ends, 0); /* the call that does comes again */
    assert_int_equal(made_again(before + 1, &ends), 0);
    fake.progress.executed = UINT64_MAX;
    assert_int_equal(create_of(&handle, &apart_kind), FINE);
    forget(handle);
    assert_int_equal(made_again(UINT64_MAX, &ends), 0);
}

static void settings_and_arrays_travel(void **state)
{
    void *handle;
    const char array[5] = "abcd";
    float alpha = 0.5f;
    assert_int_equal(create(&handle), FINE);
    struct state *settings = flyt_lib_state(flyt_lib_find((uint64_t)(uintptr_t)handle, &kind));
    assert_int_equal(settings->level, 5);
    settings->level = 6;
    assert_int_equal(call_row(&work_row, handle, 4, &alpha, 1, array, sizeof array, NULL, 0), FINE);
    assert_int_equal(server.bytes, STATE_AT + 2 * FLYT_LIB_ALIGN);
    const struct arguments *arguments = (const void *)server.arguments;
    assert_int_equal(arguments->n, 4);
    assert_int_equal(arguments->array_bytes, sizeof array);
    assert_int_equal(arguments->alpha.place, FLYT_LIB_HOST);
    assert_memory_equal(arguments->alpha.value, &alpha, sizeof alpha);
    assert_int_equal(((const struct state *)(server.arguments + STATE_AT))->level, 6);
    assert_memory_equal(server.arguments + STATE_AT + FLYT_LIB_ALIGN, "abcd\0\0\0", 8);
    settings->mode = 1;
    assert_int_equal(call_row(&work_row, handle, 4, (const float *)(uintptr_t)0x200000000400, 1, NULL, 0, NULL, 0),
                     FINE);
    assert_int_equal(arguments->alpha.place, FLYT_LIB_DEVICE);
    assert_int_equal(arguments->alpha.address, 0x200000000400);
    assert_int_equal(destroy(handle), FINE);
}

static void answers_are_kept(void **state)
{
    void *handle;
    float alpha = 0;
    int out = 0;
    assert_int_equal(create(&handle), FINE);
    unsigned asks = asked();
    server.result_bytes = FLYT_LIB_ALIGN;
    for (int i = 0; i < 3; i++, out = 0) {
        assert_int_equal(call_row(&size_row, handle, 8, &alpha, (uint64_t)i, NULL, 0, &out, sizeof out), FINE);
        assert_int_equal(out, 0x09090909);
    }
    assert_int_equal(asked(), asks + 1);
    struct state *settings = flyt_lib_state(flyt_lib_find((uint64_t)(uintptr_t)handle, &kind));
    settings->level = 7;
    assert_int_equal(call_row(&size_row, handle, 8, &alpha, 0, NULL, 0, &out, sizeof out), FINE);
    assert_int_equal(asked(), asks + 2);
    /* An answer of another size is none. */
    server.result_bytes = 2 * FLYT_LIB_ALIGN;
    assert_int_equal(call_row(&size_row, handle, 9, &alpha, 0, NULL, 0, &out, sizeof out), FAILED);
    server.result_bytes = 0;
    assert_int_equal(call_row(&size_row, handle, 10, &alpha, 0, NULL, 0, &out, sizeof out), FAILED);
    assert_int_equal(destroy(handle), FINE);
}

static void wrong_handles_are_refused(void **state)
{
    void *handle;
    unsigned asks = asked(), sends = sent();
    assert_int_equal(work(NULL, 1, 1, 0), HANDLE);
    assert_int_equal(work((void *)(uintptr_t)0x1b00000000000fff, 1, 1, 0), HANDLE);
    assert_int_equal(create(NULL), INVALID);
    server.status = MEMORY;
    assert_int_equal(create(&handle), MEMORY);
    server.status = FINE;
    assert_int_equal(create(&handle), FINE);
    assert_int_equal(destroy(handle), FINE);
    assert_int_equal(work(handle, 1, 1, 0), HANDLE);
    assert_int_equal(destroy(handle), HANDLE);
    assert_int_equal(asked() - asks + sent() - sends, 0);
}

static void sizes_are_bounded(void **state)
{
    void *handle;
    float alpha = 0;
    static char array[FLYT_LIBCALL_BYTES_MAX + 1];
    assert_int_equal(create(&handle), FINE);
    unsigned before = asked() + sent();
    assert_int_equal(call_row(&work_row, handle, 1, &alpha, 0, array, sizeof array, NULL, 0), INVALID);
    assert_int_equal(call_row(&work_row, handle, 1, &alpha, 0, array, FLYT_LIBCALL_BYTES_MAX, NULL, 0), INVALID);
    assert_int_equal(call_row(&work_row, handle, 1, &alpha, 0, array, flyt_lib_extent(-1, 4), NULL, 0), INVALID);
    assert_int_equal(call_row(&work_row, handle, 1, &alpha, 0, array, flyt_lib_extent(1ll << 40, 4), NULL, 0), INVALID);
    assert_int_equal(call_row(&work_row, handle, 1, &alpha, 0, NULL, 0, array, sizeof array), INVALID);
    assert_int_equal(asked() + sent(), before);
    assert_int_equal(destroy(handle), FINE);
}

/* The head of one that a call changes is the client's, whatever the answer says. */
static void a_descriptor_gets_what_a_call_made_of_it(void **state)
{
    static const struct flyt_lib_row row = {.library = &library,
                                            .name = "testGrind",
                                            .id = ROW_WORK,
                                            .flags = FLYT_LIB_IN_STREAM,
                                            .bytes = sizeof(struct descriptor)};
    struct descriptor *value = flyt_lib_make(&value_kind, NULL, 0);
    void *handle;
    assert_int_equal(create(&handle), FINE);
    for (int i = 0; i < 2; i++) { /* awaited each time */
        struct descriptor sent = {.head = {0}};
        struct flyt_lib_call call = {.row = &row, .arguments = &sent};
        unsigned asks = asked();
        value->count = 1;
        server.result_bytes = flyt_lib_align(sizeof *value - sizeof value->head);
        flyt_lib_begin(&call);
        flyt_lib_object(&call, (uint64_t)(uintptr_t)handle, &kind);
        flyt_lib_value_set(&call, &sent, value, &value_kind);
        assert_int_equal(flyt_lib_finish(&call), FINE);
        assert_int_equal(asked(), asks + 1);
        assert_int_equal(value->count, 0x09090909);
        assert_int_equal(value->head.magic, 77);
        assert_int_equal(value->head.is_owned, 1);
    }
    server.result_bytes = 0;
    assert_int_equal(flyt_lib_unmake(&library, &value_kind, value), FINE);
}

static void results_come_with_a_status_that_tells(void **state)
{
    void *handle;
    float alpha = 1;
    int out[2] = {0};
    assert_int_equal(create(&handle), FINE);
    server.result_bytes = FLYT_LIB_ALIGN;
    server.status = TOLD;
    assert_int_equal(call_row(&work_row, handle, 61, &alpha, 0, NULL, 0, out, sizeof out), TOLD);
    assert_int_equal(out[1], 0x09090909);
    server.status = INVALID;
    memset(out, 0, sizeof out);
    assert_int_equal(call_row(&work_row, handle, 61, &alpha, 0, NULL, 0, out, sizeof out), INVALID);
    assert_int_equal(out[1], 0);
    server.status = TOLD;
    server.result_bytes = 0;
    assert_int_equal(call_row(&work_row, handle, 61, &alpha, 0, NULL, 0, out, sizeof out), FAILED);
    server.status = FINE;
}

static void descriptors_hold_what_is_set(void **state)
{
    struct descriptor *value = flyt_lib_make(&value_kind, NULL, 0), copy;
    char room[sizeof(struct descriptor)] __attribute__((aligned(8)));
    int order = 4, told = 0;
    size_t written = 0;
    assert_int_equal(flyt_lib_attribute_set(&library, &value_kind, value, 1, &order, 4), FINE);
    assert_int_equal(flyt_lib_attribute_set(&library, &value_kind, value, 1, &order, 8), INVALID);
    assert_int_equal(flyt_lib_attribute_set(&library, &value_kind, value, 2, &order, 4), INVALID);
    assert_int_equal(flyt_lib_attribute_set(&library, &value_kind, value, 1, NULL, 4), INVALID);
    assert_int_equal(flyt_lib_attribute_get(&library, &value_kind, value, 1, &told, 4, &written), FINE);
    assert_true(told == 4 && written == 4);
    assert_int_equal(flyt_lib_attribute_get(&library, &value_kind, value, 70, NULL, 0, &written), FINE);
    assert_int_equal(flyt_lib_attribute_get(&library, &value_kind, value, 70, &told, 2, NULL), INVALID);
    assert_int_equal(flyt_lib_attribute_get(&library, &value_kind, value, 70, NULL, 0, NULL), INVALID);
    memcpy(&copy, value, sizeof copy);
    assert_int_equal(flyt_lib_unmake(&library, &value_kind, NULL), FINE);
    assert_int_equal(flyt_lib_unmake(&library, &value_kind, value), FINE);
    /* In the program's own bytes: as many as there are. */
    assert_null(flyt_lib_make(&value_kind, room, sizeof room - 1));
    assert_ptr_equal(flyt_lib_make(&value_kind, room, sizeof room), room);
    assert_int_equal(flyt_lib_unmake(&library, &value_kind, room), FINE);
    assert_int_equal(flyt_lib_attribute_set(&library, &value_kind, room, 1, &order, 4), INVALID); /* it has ended */
}

/* The version, of a library that has not been asked for, of a node that tells this one. */
static uint32_t version_of_node(uint32_t told)
{
    server.node_version = told;
    use.node_version = 0;
    use.is_known = 0;
    return flyt_lib_node_version(&library);
}

static void a_version_is_asked_of_no_server_that_is_not_there(void **state)
{
    server.node_version = 1003004;
    assert_int_equal(flyt_lib_node_version(&library), 1002000);
    assert_int_equal(fake.sequence, 0);
}

static void the_version_is_that_of_the_node(void **state)
{
    assert_int_equal(version_of_node(1003004), 1003004);
    unsigned opens = fake.call_count[FLYT_LIBRARY_OPEN];
    assert_int_equal(flyt_lib_node_version(&library), 1003004);
    assert_int_equal(fake.call_count[FLYT_LIBRARY_OPEN], opens);
    /* None that serves this library: another major version, an older minor one, one without a patch level, none. */
    assert_int_equal(version_of_node(2003004), 1002000);
    assert_int_equal(version_of_node(1001009), 1002000);
    assert_int_equal(version_of_node(1003), 1002000);
    assert_int_equal(version_of_node(0), 1002000);
    server.open_result = CUDA_ERROR_NOT_SUPPORTED;
    assert_int_equal(version_of_node(1003004), 1002000);
    server.open_result = 0;
    assert_int_equal(version_of_node(1002001), 1002001);
}

static void the_version_is_that_of_the_next_node(void **state)
{
    struct flyt_error err = {0};
    struct flyt_restore restore = {.fresh = flyt_client.channel, .sequence = UINT64_MAX, .err = &err};
    assert_int_equal(version_of_node(1003004), 1003004);
    server.node_version = 1005006;
    assert_int_equal(flyt_libs_restore(&restore), 0);
    flyt_restore_end(&restore);
    assert_int_equal(flyt_lib_node_version(&library), 1005006);
}

static int set_up(void **state)
{
    fake.serve = serve;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_is_asked_of_no_server_that_is_not_there), /* the first one that does connects */
        cmocka_unit_test(a_library_is_opened_once),
        cmocka_unit_test(what_has_succeeded_is_not_awaited_again),
        cmocka_unit_test(without_an_address_it_is_another_call),
        cmocka_unit_test(an_object_apart_is_none_of_before),
        cmocka_unit_test(captured_calls_say_whether_a_thread_makes_them),
        cmocka_unit_test(a_captured_draw_is_refused),
        cmocka_unit_test(what_others_are_made_from_is_made_again),
        cmocka_unit_test(what_a_later_call_ends_is_there_until_then),
        cmocka_unit_test(settings_and_arrays_travel),
        cmocka_unit_test(answers_are_kept),
        cmocka_unit_test(wrong_handles_are_refused),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(a_descriptor_gets_what_a_call_made_of_it),
        cmocka_unit_test(results_come_with_a_status_that_tells),
        cmocka_unit_test(descriptors_hold_what_is_set),
        cmocka_unit_test(the_version_is_that_of_the_node),
        cmocka_unit_test(the_version_is_that_of_the_next_node),
    };
    setenv("FLYT_SERVER", "tcp://127.0.0.1:1", 1);
    setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
    setenv("CUBLAS_WORKSPACE_CONFIG", "/etc/passwd", 1); /* no path is told */
    return cmocka_run_group_tests(tests, set_up, NULL);
}
