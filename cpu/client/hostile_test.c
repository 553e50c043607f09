/* The core against a server that is late, fails in the middle or lies, over a channel without one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/client.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/notification.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/event.h"
#include "cpu/client/cuda/function.h"
#include "cpu/client/cuda/function_queue.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/module.h"
#include "cpu/client/cuda/pool.h"
#include "cpu/client/cuda/stream.h"
#include "rpc/base/id.h"

enum { BYTES = 1 << 20 };

static uint64_t next_address = FLYT_WINDOW_BASE;

static struct {
    uint64_t out_id, in_id; /* of the last copies */
    int synchronize_result;
    uint64_t synchronized_id; /* the stream's */
    bool peer_is_enabled;
    uint64_t limit; /* every one, at most once lowered */
    unsigned limits_set;
    bool is_watched, watch_is_lost;
    void (*hook)(void); /* called once, at the next synchronizing call or host function */
} server;

static void run_hook(void)
{
    void (*hook)(void) = server.hook;
    server.hook = NULL;
    if (hook)
        hook();
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    switch (procedure) {
    case FLYT_DEVICE_BUDGET_WATCH:
        run_hook();
        fake.is_lost = server.watch_is_lost;
        server.is_watched = ((const flyt_device_budget_watch_args *)args)->is_watched;
        break;
    case FLYT_MEMORY_ALLOC:
        ((flyt_memory_alloc_res *)res)->address = next_address;
        next_address += 1 << 24;
        break;
    case FLYT_COPY_OUT_TRANSFER:
        server.out_id = ((const flyt_copy_out_transfer_args *)args)->transfer_id;
        break;
    case FLYT_COPY_IN_TRANSFER:
        server.in_id = ((const flyt_copy_in_transfer_args *)args)->transfer_id;
        break;
    case FLYT_STREAM_SYNCHRONIZE:
        ((flyt_stream_synchronize_res *)res)->result = server.synchronize_result;
        server.synchronized_id = ((const flyt_stream_synchronize_args *)args)->stream_id;
        run_hook();
        break;
    case FLYT_EVENT_SYNCHRONIZE:
    case FLYT_DEVICE_SYNCHRONIZE:
    case FLYT_HOST_FUNCTION_LAUNCH:
        run_hook();
        break;
    case FLYT_DEVICE_PEER_ACCESS_SET:
        server.peer_is_enabled = ((const flyt_device_peer_access_set_args *)args)->is_enabled;
        break;
    case FLYT_DEVICE_LIMIT_GET:
        ((flyt_device_limit_get_res *)res)->value = server.limit;
        break;
    case FLYT_DEVICE_LIMIT_SET:
        server.limit = ((const flyt_device_limit_set_args *)args)->value;
        server.limits_set++;
        break;
    case FLYT_DEVICE_PEER_INFO:
        ((flyt_device_peer_info_res *)res)->can_access = 1;
        ((flyt_device_peer_info_res *)res)->performance_rank = -3;
        break;
    default:
        break;
    }
}

/* What all tests work with; device memory and pinned memory of BYTES, and a stream. */
static CUdeviceptr device_memory;
static char *pinned;
static CUstream stream;

static int set_up(void **state)
{
    server.synchronize_result = CUDA_SUCCESS;
    server.hook = NULL;
    fake.is_data_held = false;
    return flyt_runtime_enter() || flyt_memory_alloc(BYTES, &device_memory) ||
           flyt_host_alloc(BYTES, 0, (void **)(void *)&pinned) || flyt_stream_create(0, 0, &stream);
}

static int tear_down(void **state)
{
    return flyt_stream_destroy(stream) || (pinned && flyt_host_free(pinned)) || flyt_memory_free(device_memory);
}

static CUresult copy_out(void *to, CUstream on, bool is_async)
{
    struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_HOST, (uint64_t)(uintptr_t)to, FLYT_PLACE_DEVICE, device_memory, BYTES);
    return flyt_copy(&copy, on, is_async);
}

static CUresult copy_in(const void *from, CUstream on, bool is_async)
{
    struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_DEVICE, device_memory, FLYT_PLACE_HOST, (uint64_t)(uintptr_t)from, BYTES);
    return flyt_copy(&copy, on, is_async);
}

static void *place(uint64_t id, uint64_t offset_bytes, size_t bytes)
{
    return fake.handlers->chunk_place(fake.user, id, offset_bytes, bytes);
}

static void arrive(uint64_t id, uint64_t offset_bytes, size_t bytes)
{
    fake.handlers->chunk_done(fake.user, id, offset_bytes, bytes);
}

static void deliver(uint64_t id)
{
    assert_non_null(place(id, 0, BYTES));
    arrive(id, 0, BYTES);
}

/* ---- memory stays while it is in use ---- */

static _Atomic int freed;

static void *free_pinned(void *user)
{
    CUresult result = flyt_host_free(pinned);
    pinned = NULL;
    atomic_store(&freed, result == CUDA_SUCCESS ? 1 : -1);
    return NULL;
}

/* Frees the pinned memory in another thread, which must not come to an end before `let_go` was called. */
static void expect_free_waits_for(void (*let_go)(void))
{
    pthread_t thread;
    atomic_store(&freed, 0);
    pthread_create(&thread, NULL, free_pinned, NULL);
    usleep(30000);
    assert_int_equal(atomic_load(&freed), 0);
    let_go();
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&freed), 1);
}

static void finish_chunk(void)
{
    memset(pinned, 1, BYTES / 2);
    arrive(server.out_id, 0, BYTES / 2);
}

static void test_a_failed_copy_out_keeps_memory_while_a_chunk_arrives(void **state)
{
    assert_int_equal(copy_out(pinned, stream, true), CUDA_SUCCESS);
    assert_ptr_equal(place(server.out_id, 0, BYTES / 2), pinned);
    fake.handlers->transfer_failed(fake.user, server.out_id, CUDA_ERROR_INVALID_VALUE);
    assert_null(place(server.out_id, BYTES / 2, BYTES / 2)); /* nothing more is let in */
    expect_free_waits_for(finish_chunk);
}

static void finish_sending(void)
{
    fake.is_data_held = false;
    fake.held_done(fake.held_user, fake.data_transfer_id, FLYT_CHANNEL_OK);
}

static void test_a_failed_copy_in_keeps_memory_while_it_is_read(void **state)
{
    fake.is_data_held = true;
    assert_int_equal(copy_in(pinned, stream, true), CUDA_SUCCESS);
    fake.handlers->transfer_failed(fake.user, server.in_id, CUDA_ERROR_INVALID_VALUE);
    expect_free_waits_for(finish_sending);
}

/* The caller's buffer may be on a stack that is gone by then. */
static void test_a_failed_synchronous_copy_takes_no_late_bytes(void **state)
{
    static char pageable[BYTES];
    server.synchronize_result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(copy_out(pageable, stream, false), CUDA_ERROR_INVALID_VALUE);
    assert_null(place(server.out_id, 0, BYTES));
}

/* ---- what a server may not ask ---- */

static void test_chunks_outside_or_twice_are_thrown_away(void **state)
{
    assert_int_equal(copy_out(pinned, stream, true), CUDA_SUCCESS);
    uint64_t id = server.out_id;
    assert_null(place(id, BYTES, 1));
    assert_null(place(id, UINT64_MAX, 1));
    assert_null(place(id, 1, BYTES));
    assert_null(place(id + 1, 0, 1));
    assert_non_null(place(id, 0, BYTES / 2));
    assert_null(place(id, 0, BYTES / 2)); /* while it is being read */
    arrive(id, 77, 5);
    arrive(id, 0, BYTES / 2);
    assert_false(flyt_stream_query(stream) == CUDA_SUCCESS);
    assert_non_null(place(id, BYTES / 2, BYTES / 2));
    arrive(id, BYTES / 2, BYTES / 2);
    assert_int_equal(flyt_stream_query(stream), CUDA_SUCCESS);
    assert_null(place(id, 0, BYTES / 2));
}

static void test_memory_is_sent_once_and_only_where_it_may_be_pulled(void **state)
{
    fake.is_data_held = true;
    unsigned before = fake.data_count;
    assert_int_equal(copy_in(pinned, stream, true), CUDA_SUCCESS); /* in the background */
    fake.handlers->pull(fake.user, server.in_id);
    fake.handlers->pull(fake.user, server.in_id + 1);
    assert_int_equal(fake.data_count, before + 1);
    finish_sending();
    fake.handlers->pull(fake.user, server.in_id);
    assert_int_equal(fake.data_count, before + 1);

    assert_int_equal(copy_out(pinned, stream, true), CUDA_SUCCESS);
    deliver(server.out_id);
    assert_int_equal(copy_out(pinned, stream, true), CUDA_SUCCESS);
    fake.is_data_held = true;
    assert_int_equal(copy_in(pinned, stream, true), CUDA_SUCCESS); /* to be pulled */
    deliver(server.out_id);
    fake.handlers->pull(fake.user, server.in_id);
    fake.handlers->pull(fake.user, server.in_id);
    assert_int_equal(fake.data_count, before + 2);
    finish_sending();
}

static void test_numbers_that_cannot_be(void **state)
{
    CUdeviceptr address;
    uint64_t good = next_address;
    next_address = (uint64_t)(uintptr_t)&good; /* the program's own memory */
    assert_int_equal(flyt_memory_alloc(64, &address), CUDA_ERROR_UNKNOWN);
    next_address = FLYT_WINDOW_BASE + FLYT_WINDOW_BYTES; /* another device's */
    assert_int_equal(flyt_memory_alloc(64, &address), CUDA_ERROR_UNKNOWN);
    next_address = FLYT_WINDOW_BASE + FLYT_WINDOW_BYTES - 32;
    assert_int_equal(flyt_memory_alloc(64, &address), CUDA_ERROR_UNKNOWN);
    next_address = good;

    server.synchronize_result = -7;
    assert_int_equal(flyt_stream_synchronize(stream), CUDA_ERROR_UNKNOWN);
    server.synchronize_result = CUDA_SUCCESS;
    /* More credit than calls is nobody's. */
    fake.progress.executed = 0;
    fake.handlers->credit(fake.user, (uint64_t)(uintptr_t)stream, UINT64_MAX);
    fake.handlers->credit(fake.user, flyt_legacy_stream_id(0), UINT64_MAX);
    fake.progress.executed = UINT64_MAX;
    for (int i = 0; i < 3 * FLYT_STREAM_CREDIT_CALLS; i++)
        assert_int_equal(flyt_stream_synchronize(stream), CUDA_SUCCESS);
    fake.handlers->credit(fake.user, 0x1234, 1);
    fake.handlers->host_function(fake.user, 0x1234, -1);
    fake.handlers->transfer_failed(fake.user, 0x1234, 0);
}

static void test_what_is_asked_of_peers_is_kept(void **state)
{
    int value;
    unsigned before = fake.call_count[FLYT_DEVICE_PEER_INFO];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(flyt_device_can_access_peer(0, 1, &value), CUDA_SUCCESS);
        assert_int_equal(value, 1);
        assert_int_equal(flyt_device_p2p_attribute(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 1, &value),
                         CUDA_SUCCESS);
        assert_int_equal(value, -3);
    }
    assert_int_equal(fake.call_count[FLYT_DEVICE_PEER_INFO], before + 1);
}

static void test_host_copies_keep_away_from_variables(void **state)
{
    static char other[64];
    struct flyt_range range = {.base = 0x90000, .bytes = 64, .kind = FLYT_RANGE_VARIABLE, .library_id = 9};
    assert_int_equal(flyt_range_insert(&range), 0);
    struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_HOST, range.base, FLYT_PLACE_HOST, (uint64_t)(uintptr_t)other, 8);
    assert_int_equal(flyt_copy(&copy, stream, false), CUDA_ERROR_INVALID_VALUE);
    flyt_range_forget_variables(9, -1);
}

/* ---- what a synchronization covers, and what it does not ---- */

static void test_the_default_stream_waits_for_bytes_of_others(void **state)
{
    CUstream gone;
    fake.progress.completed = UINT64_MAX; /* the GPU is done with all of it */
    assert_int_equal(copy_out(pinned, stream, true), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_query(NULL), CUDA_ERROR_NOT_READY);
    deliver(server.out_id);
    assert_int_equal(flyt_stream_query(NULL), CUDA_SUCCESS);
    /* Also where the stream has been destroyed meanwhile. */
    assert_int_equal(flyt_stream_create(0, 0, &gone), CUDA_SUCCESS);
    assert_int_equal(copy_out(pinned, gone, true), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(gone), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_query(NULL), CUDA_ERROR_NOT_READY);
    deliver(server.out_id);
    assert_int_equal(flyt_stream_query(NULL), CUDA_SUCCESS);
    fake.progress.completed = 0;
}

/* As another thread would, while this one waits. Its bytes come only when this one goes on. */
static void issue_more(void)
{
    assert_int_equal(copy_out(pinned, stream, true), CUDA_SUCCESS);
}

static CUevent other_event;

static void issue_more_and_record(void)
{
    issue_more();
    assert_int_equal(flyt_event_record(other_event, stream, 0), CUDA_SUCCESS);
}

static void test_synchronizing_does_not_wait_for_what_comes_later(void **state)
{
    CUevent event;
    assert_int_equal(flyt_event_create(0, &event), CUDA_SUCCESS);
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    other_event = event;
    server.hook = issue_more;
    assert_int_equal(flyt_stream_synchronize(stream), CUDA_SUCCESS);
    deliver(server.out_id);
    server.hook = issue_more;
    assert_int_equal(flyt_device_synchronize(), CUDA_SUCCESS);
    deliver(server.out_id);
    server.hook = issue_more_and_record;
    assert_int_equal(flyt_event_synchronize(event), CUDA_SUCCESS);
    deliver(server.out_id);
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
}

/* ---- per-thread default streams ---- */

static pthread_barrier_t barrier;

/* A thread whose default stream a reset takes away, and that asks for it anew when another thread has got its id. */
struct thread_with_stream {
    uint64_t id, id_after; /* as the server knows it: what cuStreamGetId says never comes again */
};

static bool ask_own_id(uint64_t *ret_id)
{
    if (flyt_runtime_enter() || flyt_stream_synchronize(CU_STREAM_PER_THREAD))
        return false;
    *ret_id = server.synchronized_id; /* one thread at a time: the barrier sees to that */
    return true;
}

static void *outlive_reset(void *user)
{
    struct thread_with_stream *self = user;
    bool is_good = ask_own_id(&self->id);
    pthread_barrier_wait(&barrier); /* it is made */
    pthread_barrier_wait(&barrier); /* it is another's */
    if (!is_good || !ask_own_id(&self->id_after))
        self->id_after = self->id;
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* Gets a default stream and, if it has the wanted id, keeps it until its first owner has asked for his own. */
static void *use_own_stream(void *user)
{
    struct thread_with_stream *wanted = user;
    uint64_t id;
    if (!ask_own_id(&id) || id != wanted->id)
        return NULL;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return wanted;
}

/* A reset has taken what the set-up had made. */
static void make_again(void)
{
    assert_int_equal(flyt_runtime_enter(), CUDA_SUCCESS);
    assert_int_equal(flyt_memory_alloc(BYTES, &device_memory), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_create(0, 0, &stream), CUDA_SUCCESS);
}

static void test_a_reset_gives_no_thread_the_stream_of_another(void **state)
{
    enum { THREADS_MAX = 2000 };
    struct thread_with_stream first = {0};
    pthread_t outliving, other;
    void *found = NULL;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&outliving, NULL, outlive_reset, &first);
    pthread_barrier_wait(&barrier);
    assert_int_equal(flyt_device_reset(0), CUDA_SUCCESS);
    for (int i = 0; i < THREADS_MAX && !found; i++) {
        pthread_create(&other, NULL, use_own_stream, &first);
        pthread_join(other, &found);
    }
    assert_non_null(found);
    pthread_join(outliving, NULL);
    assert_int_not_equal(first.id, first.id_after);
    pthread_barrier_destroy(&barrier);
    make_again();
}

/* What reached other devices' memory before does not any more, at the server either. */
static void test_a_reset_ends_access_to_other_devices(void **state)
{
    unsigned before = fake.call_count[FLYT_DEVICE_PEER_ACCESS_SET];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(flyt_device_peer_enable(1, 0), CUDA_SUCCESS);
        assert_true(server.peer_is_enabled);
        assert_int_equal(flyt_device_reset(0), CUDA_SUCCESS);
        assert_false(server.peer_is_enabled);
        assert_int_equal(fake.call_count[FLYT_DEVICE_PEER_ACCESS_SET], before + 2 * (i + 1));
        make_again();
        assert_int_equal(flyt_device_reset(0), CUDA_SUCCESS);
        assert_int_equal(fake.call_count[FLYT_DEVICE_PEER_ACCESS_SET], before + 2 * (i + 1));
        make_again();
    }
}

/* Each context says for itself what it reaches; the server hears of the first and of the last. */
static void test_each_context_has_its_own_peers(void **state)
{
    unsigned before = fake.call_count[FLYT_DEVICE_PEER_ACCESS_SET];
    CUcontext other, popped;
    assert_int_equal(flyt_device_peer_enable(1, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_device_peer_enable(1, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    assert_int_equal(flyt_context_create(0, 0, &other), CUDA_SUCCESS);
    assert_int_equal(flyt_device_peer_disable(1), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    assert_int_equal(flyt_device_peer_enable(1, 0), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_DEVICE_PEER_ACCESS_SET], before + 1);
    assert_int_equal(flyt_context_pop(&popped), CUDA_SUCCESS);
    assert_int_equal(flyt_device_peer_disable(1), CUDA_SUCCESS); /* the other one goes on reaching it */
    assert_true(server.peer_is_enabled);
    assert_int_equal(flyt_device_peer_disable(1), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    assert_int_equal(flyt_context_destroy(other), CUDA_SUCCESS);
    assert_false(server.peer_is_enabled);
    assert_int_equal(fake.call_count[FLYT_DEVICE_PEER_ACCESS_SET], before + 2);
}

/* What a kernel of the current context may follow: its own device's memory and that of peers, and no host memory. */
static void test_access_is_the_current_contexts(void **state)
{
    struct flyt_pointer here, host;
    CUcontext elsewhere;
    assert_int_equal(flyt_pointer_find((const void *)device_memory, &here), CUDA_SUCCESS);
    assert_int_equal(flyt_pointer_find(pinned, &host), CUDA_SUCCESS);
    assert_true(flyt_pointer_is_reached(&here));
    assert_false(flyt_pointer_is_reached(&host));
    assert_int_equal(flyt_context_create(0, 1, &elsewhere), CUDA_SUCCESS);
    assert_false(flyt_pointer_is_reached(&here));
    assert_int_equal(flyt_device_peer_enable(0, 0), CUDA_SUCCESS);
    assert_true(flyt_pointer_is_reached(&here));
    assert_int_equal(flyt_context_destroy(elsewhere), CUDA_SUCCESS);
}

/* A device has one set of limits: a context takes nothing from another one. */
static void test_a_limit_is_not_lowered_for_others(void **state)
{
    CUcontext other;
    server.limit = 1000;
    unsigned before = server.limits_set;
    assert_int_equal(flyt_device_limit_set(CU_LIMIT_STACK_SIZE, 500), CUDA_SUCCESS); /* nobody else is there */
    assert_int_equal(flyt_device_limit_set(CU_LIMIT_STACK_SIZE, 1000), CUDA_SUCCESS);
    assert_int_equal(flyt_context_create(0, 0, &other), CUDA_SUCCESS);
    assert_int_equal(flyt_device_limit_set(CU_LIMIT_STACK_SIZE, 999), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(flyt_device_limit_set(CU_LIMIT_STACK_SIZE, 2000), CUDA_SUCCESS);
    assert_int_equal(flyt_context_destroy(other), CUDA_SUCCESS);
    assert_int_equal(flyt_device_limit_set(CU_LIMIT_STACK_SIZE, 500), CUDA_SUCCESS);
    assert_int_equal(server.limits_set, before + 4);
}

/* What is not there cannot be pinned. */
static void test_only_memory_of_the_program_is_registered(void **state)
{
    enum { PAGE = 4096 };
    char *pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    munmap(pages + PAGE, PAGE);
    mprotect(pages + 2 * PAGE, PAGE, PROT_NONE);
    mprotect(pages + 3 * PAGE, PAGE, PROT_READ);
    assert_int_equal(flyt_host_register(pages, 2 * PAGE, 0), CUDA_ERROR_INVALID_VALUE); /* a hole at its end */
    assert_int_equal(flyt_host_register(pages + PAGE, 16, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_host_register(pages + 2 * PAGE, PAGE, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_host_register(pages + 3 * PAGE, PAGE, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_host_register(pages + 3 * PAGE, PAGE, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_SUCCESS);
    assert_int_equal(flyt_host_unregister(pages + 3 * PAGE), CUDA_SUCCESS);
    assert_int_equal(flyt_host_register(pages + 100, 200, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_host_unregister(pages + 100), CUDA_SUCCESS);
    assert_int_equal(flyt_host_register((void *)(UINTPTR_MAX - 100), 50, 0), CUDA_ERROR_INVALID_VALUE); /* NOLINT */
    munmap(pages, 4 * PAGE);
}

static void test_streams_of_contexts_that_are_gone_leave_nothing(void **state)
{
    enum { CONTEXTS = 50 };
    unsigned long long number;
    for (int i = 0; i < CONTEXTS; i++) {
        CUcontext context;
        assert_int_equal(flyt_context_create(0, 0, &context), CUDA_SUCCESS);
        assert_int_equal(flyt_stream_number(CU_STREAM_PER_THREAD, &number), CUDA_SUCCESS);
        assert_int_equal(flyt_context_destroy(context), CUDA_SUCCESS);
    }
    assert_in_range(flyt_thread_self->stream_count, 1, 4);
}

/* ---- output ---- */

static _Atomic int was_told;

static void *tell_output(void *user)
{
    fake.handlers->output(fake.user, false, "", 0);
    atomic_store(&was_told, 1);
    return NULL;
}

/* The thread that brings output must not need a lock of stdio, which may be held by one that waits for a reply. */
static void test_output_does_not_hold_up_the_reader(void **state)
{
    pthread_t reader;
    flockfile(stdout);
    pthread_create(&reader, NULL, tell_output, NULL);
    for (int i = 0; i < 60000 && !atomic_load(&was_told); i++)
        usleep(1000);
    int was_in_time = atomic_load(&was_told);
    funlockfile(stdout);
    pthread_join(reader, NULL);
    assert_true(was_in_time);
    assert_int_equal(flyt_stream_synchronize(stream), CUDA_SUCCESS);
}

static void test_output_is_there_when_a_synchronization_returns(void **state)
{
    char text[64] = "";
    int ends[2];
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    fake.handlers->output(fake.user, false, "one ", 4);
    fake.handlers->output(fake.user, false, "two\n", 4);
    CUresult result = flyt_stream_synchronize(stream);
    ssize_t bytes = result ? 0 : read(ends[0], text, sizeof text - 1);
    dup2(before, STDOUT_FILENO);
    close(before);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(bytes, 8);
    assert_string_equal(text, "one two\n");
}

/* ---- the ends ---- */

static void test_a_forked_child_looks_into_nothing(void **state)
{
    int status;
    pid_t child = fork();
    if (!child) {
        struct flyt_pointer pointer;
        int count;
        bool is_good =
            flyt_device_count(&count) == CUDA_ERROR_NOT_INITIALIZED &&
            flyt_library_unload((CUlibrary)(uintptr_t)flyt_id(FLYT_ID_LIBRARY, 1)) == CUDA_ERROR_NOT_INITIALIZED &&
            flyt_pointer_find(pinned, &pointer) == CUDA_SUCCESS && pointer.kind == FLYT_POINTER_UNKNOWN;
        _exit(is_good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static _Atomic int callbacks;

static void CUDA_CB count_callback(CUstream on, CUresult status, void *user)
{
    atomic_fetch_add(&callbacks, 1);
}

static void lose_now(void)
{
    fake.is_lost = true;
    fake.handlers->lost(fake.user, "test");
}

/* The loss queues the callback, and the call that has issued it fails as well: it runs, once. */
static void test_a_loss_while_a_callback_is_issued(void **state)
{
    server.hook = lose_now;
    assert_int_equal(flyt_stream_callback_add(stream, stream, count_callback, NULL, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    for (int i = 0; i < 60000 && flyt_function_is_pending(); i++)
        usleep(1000);
    assert_int_equal(atomic_load(&callbacks), 1);
    assert_false(flyt_function_is_pending());
}

/* ---- pinned memory has run out ---- */

enum { REGION_PAGES = 8, PAGE_BYTES = 4096 };

static uint64_t region_bytes; /* of which few can be had */

static void make_region(void)
{
    int fd;
    assert_int_equal(flyt_region_new(&fake.region, &fd), 0);
    close(fd);
    region_bytes = fake.region.bytes;
    fake.region.bytes = REGION_PAGES * PAGE_BYTES;
    fake.region_at = 1;
    fake.maps_region = true;
}

static void end_region(void)
{
    fake.region.bytes = region_bytes;
    flyt_region_unmap(&fake.region);
    fake.region = (struct flyt_region){0};
    fake.region_at = 0;
    fake.maps_region = false;
}

static CUmemoryPool new_host_pool(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location.type = CU_MEM_LOCATION_TYPE_HOST};
    cuuint64_t keep = UINT64_MAX;
    CUmemoryPool pool;
    assert_int_equal(flyt_pool_create(&props, &pool), CUDA_SUCCESS);
    assert_int_equal(flyt_pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), CUDA_SUCCESS);
    return pool;
}

static void complete_all(void)
{
    fake.progress.completed = fake.sequence;
}

/* What was freed is given back when all is waited for, and only then. */
static void test_pools_give_pinned_memory_back_where_there_is_none(void **state)
{
    enum { FIRST_BYTES = 6 * PAGE_BYTES, BYTES_MORE = 5 * PAGE_BYTES };
    const flyt_progress progress = fake.progress;
    CUdeviceptr first, address;
    cuuint64_t reserved_bytes;
    make_region();
    CUmemoryPool pool = new_host_pool();
    assert_int_equal(flyt_pool_alloc(FIRST_BYTES, pool, stream, &first), CUDA_SUCCESS);
    assert_int_equal(flyt_pool_alloc(BYTES_MORE, pool, stream, &address), CUDA_ERROR_OUT_OF_MEMORY);
    fake.progress.completed = 0;
    assert_int_equal(flyt_pool_free(first, stream), CUDA_SUCCESS);
    server.hook = complete_all;
    assert_int_equal(flyt_pool_alloc(BYTES_MORE, pool, stream, &address), CUDA_SUCCESS);
    assert_int_equal(flyt_pool_get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved_bytes),
                     CUDA_SUCCESS);
    assert_int_equal(reserved_bytes, BYTES_MORE);
    assert_int_equal(flyt_pool_free(address, stream), CUDA_SUCCESS);
    complete_all();
    assert_int_equal(flyt_pool_destroy(pool), CUDA_SUCCESS);
    end_region();
    fake.progress = progress;
}

/* ---- notifications ---- */

static void never(CUasyncNotificationInfo *info, void *user, CUasyncCallbackHandle handle)
{
    abort();
}

static pthread_t registering;
static CUasyncCallbackHandle registered;

static void *register_another(void *user)
{
    assert_int_equal(flyt_notification_register(0, never, NULL, &registered), CUDA_SUCCESS);
    return NULL;
}

/* The server is about to be told that nobody listens; another thread has time to tell it otherwise, if it may. */
static void register_meanwhile(void)
{
    assert_int_equal(pthread_create(&registering, NULL, register_another, NULL), 0);
    usleep(20000);
}

static void test_who_comes_while_the_last_one_goes_is_told(void **state)
{
    CUasyncCallbackHandle first;
    assert_int_equal(flyt_notification_register(0, never, NULL, &first), CUDA_SUCCESS);
    assert_true(server.is_watched);
    server.hook = register_meanwhile;
    assert_int_equal(flyt_notification_unregister(0, first), CUDA_SUCCESS);
    pthread_join(registering, NULL);
    assert_true(server.is_watched);
    assert_int_equal(flyt_notification_unregister(0, registered), CUDA_SUCCESS);
    assert_false(server.is_watched);
}

static int restore_notifications(unsigned *ret_count)
{
    struct flyt_error err = {0};
    struct flyt_restore restore = {.fresh = (struct flyt_channel *)(void *)&fake, .err = &err};
    const unsigned before = fake.call_count[FLYT_DEVICE_BUDGET_WATCH];
    int status = flyt_notification_restore(&restore);
    *ret_count = fake.call_count[FLYT_DEVICE_BUDGET_WATCH] - before;
    flyt_restore_end(&restore);
    return status;
}

static void test_a_server_that_cannot_tell_is_not_asked_to(void **state)
{
    CUasyncCallbackHandle handle;
    unsigned count;
    assert_int_equal(flyt_notification_register(0, never, NULL, &handle), CUDA_SUCCESS);
    assert_int_equal(restore_notifications(&count), 0);
    assert_int_equal(count, 1);
    fake.lacks = FLYT_DEVICE_BUDGET_WATCH;
    assert_int_equal(restore_notifications(&count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(flyt_notification_unregister(0, handle), CUDA_SUCCESS);
    assert_true(server.is_watched);
    fake.lacks = 0;
}

static void test_a_listener_whose_call_is_lost_is_none(void **state)
{
    const CUasyncCallbackHandle untouched = (CUasyncCallbackHandle)(void *)&fake;
    CUasyncCallbackHandle handle = untouched;
    unsigned count;
    server.watch_is_lost = true;
    assert_int_not_equal(flyt_notification_register(0, never, NULL, &handle), CUDA_SUCCESS);
    server.watch_is_lost = fake.is_lost = false;
    assert_ptr_equal(handle, untouched);
    assert_int_equal(restore_notifications(&count), 0);
    assert_int_equal(count, 0);
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_failed_copy_out_keeps_memory_while_a_chunk_arrives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_failed_copy_in_keeps_memory_while_it_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_failed_synchronous_copy_takes_no_late_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_chunks_outside_or_twice_are_thrown_away, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_memory_is_sent_once_and_only_where_it_may_be_pulled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_that_cannot_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_asked_of_peers_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_reset_ends_access_to_other_devices, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_each_context_has_its_own_peers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_access_is_the_current_contexts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_limit_is_not_lowered_for_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_memory_of_the_program_is_registered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_host_copies_keep_away_from_variables, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_default_stream_waits_for_bytes_of_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_synchronizing_does_not_wait_for_what_comes_later, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_reset_gives_no_thread_the_stream_of_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_streams_of_contexts_that_are_gone_leave_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output_does_not_hold_up_the_reader, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_output_is_there_when_a_synchronization_returns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_forked_child_looks_into_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pools_give_pinned_memory_back_where_there_is_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_comes_while_the_last_one_goes_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_server_that_cannot_tell_is_not_asked_to, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_listener_whose_call_is_lost_is_none, set_up, tear_down),
        /* Little works after these. */
        cmocka_unit_test_setup_teardown(test_a_loss_while_a_callback_is_issued, set_up, NULL),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
