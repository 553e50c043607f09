/* Objects of NVIDIA's libraries while the session's SMs change: handles in which a library keeps streams, calls that a
 * thread makes meanwhile, and how many SMs a library is told. The libraries are functions of this test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <dlfcn.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/library/library.h"
#include "cpu/server/test/fake_orders.h"
#include "cpu/server/test/fake_library.h"
#include "flyt_lib_cublas.h"
#include "flyt_lib_cusolver.h"

extern struct flyt_server_library flyt_server_library_cublas, flyt_server_library_cusolver;

static char lines[512];
static char handles[8];
static unsigned made_count;
static sem_t is_solving, may_solve;
static bool waits, waits_to_make; /* a solver's call does, or what makes a solver, until the test lets it go on */

static void say(const char *word, int number)
{
    size_t at = strlen(lines);
    snprintf(lines + at, sizeof lines - at, "%s:%d ", word, number);
}

static int number_of(const void *handle)
{
    return (int)((const char *)handle - handles);
}

static void assert_lines(const char *wanted)
{
    assert_string_equal(lines, wanted);
    lines[0] = '\0';
}

/* ---- the libraries ---- */

#define LIBRARY(name, ...)                                                                                             \
    __attribute__((visibility("default"))) int name(__VA_ARGS__);                                                      \
    __attribute__((visibility("default"))) int name(__VA_ARGS__)

static int make_handle(void **handle)
{
    *handle = &handles[made_count];
    say("made", (int)made_count++);
    return 0;
}

LIBRARY(cusolverDnCreate, void **handle)
{
    if (waits_to_make) {
        sem_post(&is_solving);
        sem_wait(&may_solve);
    }
    return make_handle(handle);
}

LIBRARY(cusolverDnDestroy, void *handle)
{
    say("ended", number_of(handle));
    return 0;
}

LIBRARY(cusolverDnSetStream, void *handle, void *stream)
{
    say("stream", number_of(handle));
    return 0;
}

LIBRARY(cusolverDnSetMathMode, void *handle, int mode)
{
    say("mode", mode);
    return 0;
}

LIBRARY(cusolverDnSsyevd, void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, void *work, int lwork,
        void *info)
{
    if (waits) {
        sem_post(&is_solving);
        sem_wait(&may_solve);
    }
    say("solved", number_of(handle));
    return 0;
}

LIBRARY(cublasCreate_v2, void **handle)
{
    return make_handle(handle);
}

LIBRARY(cublasSetStream_v2, void *handle, void *stream)
{
    return 0;
}

LIBRARY(cublasSetSmCountTarget, void *handle, int count)
{
    say("sms", count);
    return 0;
}

LIBRARY(cublasSetPointerMode_v2, void *handle, int mode)
{
    return 0;
}

LIBRARY(cublasSswap_v2, void *handle, int n, void *x, int incx, void *y, int incy)
{
    say("swapped", n);
    return 0;
}

/* As if loaded. */
static void load(struct flyt_server_library *library)
{
    void *file = dlopen(NULL, RTLD_NOW);
    assert_true(flyt_server_library_look_up(library, file));
    atomic_store(&library->file, file);
}

/* ---- the client ---- */

#define CUSOLVER(name) row(&flyt_server_library_cusolver, name)
#define CUBLAS(name)   row(&flyt_server_library_cublas, name)

static void create_object(struct fixture *self, uint32_t row_id)
{
    unsigned char nothing[FLYT_LIB_ALIGN] = {0};
    flyt_libobject_new_res res = {0};
    uint32_t xid =
        SEND(self, FLYT_LIBOBJECT_NEW, libobject_new, .thread = 1, .object_id = flyt_id(FLYT_ID_LIBOBJECT, 1),
             .row = row_id, .arguments = {sizeof nothing, (char *)nothing});
    await_reply(self, xid, (xdrproc_t)xdr_flyt_libobject_new_res, &res);
    assert_int_equal(res.result ? res.result : res.status, 0);
    xdr_free((xdrproc_t)xdr_flyt_libobject_new_res, (char *)&res);
}

static void call_object(struct fixture *self, uint32_t row_id, void *sent, size_t bytes)
{
    uint64_t id = flyt_id(FLYT_ID_LIBOBJECT, 1);
    SEND(self, FLYT_LIBCALL_STREAM, libcall_stream, .thread = 1, .stream_id = legacy, .objects = {1, &id},
         .row = row_id, .arguments = {(u_int)bytes, sent});
}

static void solve_with(struct fixture *self, int math_mode)
{
    struct {
        struct flyt_args_cusolverDnSsyevd args FLYT_LIB_ALIGNED;
        struct flyt_state_dn state FLYT_LIB_ALIGNED;
    } sent = {.state = {.deterministic_mode = 1, .math_mode = math_mode}};
    call_object(self, CUSOLVER("cusolverDnSsyevd"), &sent, sizeof sent);
}

static void solve(struct fixture *self)
{
    solve_with(self, 1);
    synchronize(self, legacy);
}

static void end_object(struct fixture *self)
{
    flyt_libobject_end_res res = {0};
    uint32_t xid = SEND(self, FLYT_LIBOBJECT_END, libobject_end, .thread = 1,
                        .object_id = flyt_id(FLYT_ID_LIBOBJECT, 1), .row = CUSOLVER("cusolverDnDestroy"));
    await_reply(self, xid, (xdrproc_t)xdr_flyt_libobject_end_res, &res);
    assert_int_equal(res.result ? res.result : res.status, 0);
}

/* ---- tests ---- */

static int begin_anew(void **state)
{
    made_count = 0;
    waits = waits_to_make = false;
    lines[0] = '\0';
    sem_init(&is_solving, 0, 0);
    sem_init(&may_solve, 0, 0);
    return begin(state);
}

/* No thread waits for a test that has failed. */
static int let_go(void **state)
{
    sem_post(&may_solve);
    return end(state);
}

static void a_handle_with_streams_is_made_for_each_set_of_sms(void **state)
{
    struct managed *self = *state;
    create_object(self->client, CUSOLVER("cusolverDnCreate"));
    solve(self->client);
    assert_lines("made:0 stream:0 solved:0 ");
    solve(self->client);
    assert_lines("solved:0 ");
    resize(self, 3);
    assert_lines("");
    solve(self->client);
    assert_lines("made:1 stream:1 solved:1 ");
    solve(self->client);
    assert_lines("solved:1 ");
    /* Its settings are its own. */
    solve_with(self->client, 2);
    synchronize(self->client, legacy);
    assert_lines("mode:2 solved:1 ");
    resize(self, 4);
    solve(self->client);
    assert_lines("made:2 stream:2 solved:2 ");
    resize(self, 3);
    solve(self->client);
    assert_lines("stream:1 mode:1 solved:1 ");
    end_object(self->client);
    assert_int_equal(strlen(lines), strlen("ended:0 ended:1 ended:2 "));
    assert_string_equal(lines + strlen("ended:0 ended:2 "), "ended:1 ");
}

/* Orders other SMs while a thread works on the first ones: the session switches, and nothing is vacated. */
static uint64_t order_meanwhile(struct managed *self)
{
    sem_wait(&is_solving);
    flyt_fake_log_clear();
    uint64_t revision = order(self, 3);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    for (unsigned i = 0; i < 5; i++) /* rounds of the loop */
        alloc(self->client, 64, CUDA_SUCCESS);
    assert_nothing_heard(self);
    return revision;
}

static void what_a_thread_works_in_is_not_vacated(void **state)
{
    struct managed *self = *state;
    char text[512];
    create_object(self->client, CUSOLVER("cusolverDnCreate"));
    waits = true;
    solve_with(self->client, 1);
    uint64_t revision = order_meanwhile(self);
    flyt_fake_log(text, sizeof text);
    assert_null(strstr(text, "gone"));
    sem_post(&may_solve);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    /* What comes next in the stream, 1 of the driver's now, is after all that the library gave to 0. */
    flyt_fake_log(text, sizeof text);
    const char *waited = strstr(text, "wait:1<0"), *gone = strstr(text, "gone:0");
    assert_non_null(waited);
    assert_true(gone && waited < gone);
    assert_lines("made:0 stream:0 solved:0 ");
    waits = false;
    solve(self->client);
    assert_lines("made:1 stream:1 solved:1 ");
}

/* An object that is made meanwhile has no stream: its call ends when all that was given to the SMs that are left is
 * done. */
static void what_makes_an_object_is_not_vacated(void **state)
{
    struct managed *self = *state;
    flyt_libobject_new_res res = {0};
    char text[512];
    waits_to_make = true;
    uint32_t xid = SEND(self->client, FLYT_LIBOBJECT_NEW, libobject_new, .thread = 1,
                        .row = CUSOLVER("cusolverDnCreate"), .object_id = flyt_id(FLYT_ID_LIBOBJECT, 1));
    uint64_t revision = order_meanwhile(self);
    sem_post(&may_solve);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_libobject_new_res, &res);
    assert_int_equal(res.result ? res.result : res.status, 0);
    xdr_free((xdrproc_t)xdr_flyt_libobject_new_res, &res);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    flyt_fake_log(text, sizeof text);
    assert_non_null(strstr(text, "all"));
    assert_null(strstr(text, "sync"));
    assert_lines("made:0 ");
    waits_to_make = false;
}

static void swap_for(struct fixture *self, int sm_count)
{
    struct {
        struct flyt_args_cublasSswap_v2 args FLYT_LIB_ALIGNED;
        struct flyt_state_cublas state FLYT_LIB_ALIGNED;
    } sent = {.args = {.n = 1}, .state = {.sm_count = sm_count}};
    call_object(self, CUBLAS("cublasSswap_v2"), &sent, sizeof sent);
    synchronize(self, legacy);
}

static void how_many_sms_there_are_is_told(void **state)
{
    struct managed *self = *state;
    create_object(self->client, CUBLAS("cublasCreate_v2"));
    swap_for(self->client, 0);
    assert_lines("made:0 swapped:1 "); /* there is no limit */
    resize(self, 3);
    swap_for(self->client, 0);
    swap_for(self->client, 0);
    assert_lines("sms:16 swapped:1 swapped:1 ");
    swap_for(self->client, 4); /* the program says how many */
    resize(self, 7);
    swap_for(self->client, 4);
    assert_lines("sms:4 swapped:1 swapped:1 ");
    swap_for(self->client, 0);
    assert_lines("sms:24 swapped:1 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_handle_with_streams_is_made_for_each_set_of_sms, begin_anew, let_go),
        cmocka_unit_test_setup_teardown(what_a_thread_works_in_is_not_vacated, begin_anew, let_go),
        cmocka_unit_test_setup_teardown(what_makes_an_object_is_not_vacated, begin_anew, let_go),
        cmocka_unit_test_setup_teardown(how_many_sms_there_are_is_told, begin_anew, let_go),
    };
    load(&flyt_server_library_cublas);
    load(&flyt_server_library_cusolver);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
