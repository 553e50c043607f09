/* A program with valves (valve.api): its calls, the entry points, the client's books, the way over the wire and the
 * server are what rows have made; the channel and what both sides stand on stand in for the real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/client/core/client.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "flyt_client_rows.h"
#include "flyt_procedures.h"
#include "rpc/gen/test/valve_test.h"

enum { CONTEXT = 77 };

static struct {
    uint64_t sequence;
    uint64_t context_id;
    int device;
    unsigned call_count, failed_result;
} client = {.context_id = CONTEXT};

/* ---- the channel: over the wire's format, to the server beside it ---- */

static int travel(unsigned procedure, void *args, void *res)
{
    const struct flyt_procedure *row = flyt_procedure_find(procedure);
    static unsigned char bytes[1 << 20];
    XDR out, in;
    if (flyt_client.lost)
        return FLYT_CHANNEL_LOST;
    xdrmem_create(&out, (char *)bytes, sizeof bytes, XDR_ENCODE);
    assert_true(row->xdr_args(&out, args));
    xdrmem_create(&in, (char *)bytes, xdr_getpos(&out), XDR_DECODE);
    void *there = calloc(1, row->args_bytes);
    assert_true(row->xdr_args(&in, there));
    void *answer = row->xdr_res ? calloc(1, row->res_bytes) : NULL;
    unsigned result = valve_server_call(procedure, there, answer);
    client.failed_result = result ? result : client.failed_result;
    client.call_count++;
    if (row->xdr_res) {
        xdrmem_create(&out, (char *)bytes, sizeof bytes, XDR_ENCODE);
        assert_true(row->xdr_res(&out, answer));
        xdrmem_create(&in, (char *)bytes, xdr_getpos(&out), XDR_DECODE);
        assert_true(row->xdr_res(&in, res));
        xdr_free(row->xdr_res, answer);
    }
    xdr_free(row->xdr_args, there);
    free(there);
    free(answer);
    return 0;
}

int flyt_channel_send(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                      uint64_t *ret_sequence)
{
    if (flyt_client.lost)
        return FLYT_CHANNEL_LOST;
    *ret_sequence = ++client.sequence;
    return travel(procedure, args, NULL);
}

/* As the channel does it, the routine is the caller's: of an answer that is noted it fills more than the results. */
int flyt_channel_call(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                      xdrproc_t xdr_res, void *res)
{
    client.sequence++;
    return travel(procedure, args, res);
}

flyt_progress flyt_channel_progress(const struct flyt_channel *channel)
{
    return (flyt_progress){client.sequence, client.sequence, client.sequence};
}

/* ---- what the client stands on ---- */

struct flyt_client flyt_client = {.state = FLYT_CLIENT_OPEN};
__thread struct flyt_thread *flyt_thread_self;

CUresult flyt_client_enter(void)
{
    return CUDA_SUCCESS;
}

CUresult flyt_client_enter_release(void)
{
    return CUDA_SUCCESS;
}

bool flyt_client_is_initialized(void)
{
    return true;
}

CUresult flyt_client_status(int status, const char *procedure)
{
    return status ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

CUresult flyt_client_reply(int status, int result, const char *procedure)
{
    return status ? flyt_client_status(status, procedure) : (CUresult)result;
}

CUresult flyt_context_get(uint64_t *ret_context_id, int *ret_device)
{
    *ret_context_id = client.context_id;
    *ret_device = client.device;
    return client.context_id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult flyt_context_device(CUcontext context, int *ret_device)
{
    uint64_t id;
    return flyt_context_get(&id, ret_device);
}

CUresult flyt_device_check(int device)
{
    return device >= 0 && device < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* ---- tests ---- */

static int begin(void **state)
{
    flyt_client.lost = 0;
    client = (typeof(client)){.context_id = CONTEXT, .sequence = client.sequence}; /* records of before know numbers */
    struct flyt_session *session = valve_server_new();
    valve_server_use(session);
    *state = session;
    return 0;
}

static int end(void **state)
{
    flyt_rows_clear(CONTEXT, true);
    valve_server_drop(*state, -1);
    assert_int_equal(valve_server_driver_count(), 0);
    valve_server_free(*state);
    return 0;
}

static CUvalve valve_new(unsigned flags)
{
    CUvalve valve = NULL;
    assert_int_equal(cuValveCreate(&valve, flags, 0), CUDA_SUCCESS);
    return valve;
}

static unsigned level_of(CUvalve valve)
{
    unsigned level = 0;
    assert_int_equal(cuValveGetLevel(valve, &level), CUDA_SUCCESS);
    return level;
}

static void a_program_has_valves(void **state)
{
    unsigned level = 7;
    client.device = 1;
    CUvalve one = valve_new(3), other = valve_new(4);
    assert_int_equal(cuValveSetLevel(one, 42), CUDA_SUCCESS);
    assert_int_equal(level_of(one), 42 + 3000 + 600000);
    assert_int_equal(level_of(other), 0 + 4000 + 600000);
    assert_int_equal(cuValveSetLevel(one, 101), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(level_of(one), 42 + 3000 + 600000);
    assert_int_equal(valve_server_count(*state), 2);
    assert_int_equal(cuValveDestroy(one), CUDA_SUCCESS);
    assert_int_equal(valve_server_count(*state), 1);
    assert_int_equal(valve_server_driver_count(), 1);
    assert_int_equal(cuValveGetLevel(one, &level), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(level, 7);
    assert_int_equal(cuValveDestroy(one), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuValveDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuValveDestroy(other), CUDA_SUCCESS);
}

static void arguments_are_checked(void **state)
{
    unsigned room = 7;
    CUvalve valve = NULL;
    assert_int_equal(cuValveCreate(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
    client.context_id = 0;
    assert_int_equal(cuValveCreate(&valve, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
    assert_null(valve);
    client.context_id = CONTEXT;
    assert_int_equal(cuValveGetLevel(valve_new(0), NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDeviceGetValveRoom(&room, 2, 1), CUDA_SUCCESS);
    assert_int_equal(room, 62);
    assert_int_equal(cuDeviceGetValveRoom(&room, 2, 2), CUDA_ERROR_INVALID_DEVICE);
}

static void memory_of_the_program_is_read_and_written(void **state)
{
    const unsigned values[] = {1, 2, 4};
    uint64_t sums[3] = {9, 9, 9};
    CUvalve valve = valve_new(0);
    assert_int_equal(cuValveSetLevel(valve, 10), CUDA_SUCCESS);
    assert_int_equal(cuValveSums(valve, 3, values, sums), CUDA_SUCCESS);
    assert_true(sums[0] == 13 && sums[1] == 16 && sums[2] == 9);
    assert_int_equal(cuValveSums(valve, 0, NULL, NULL), CUDA_SUCCESS);
    assert_int_equal(cuValveSums(valve, 3, NULL, sums), CUDA_ERROR_INVALID_VALUE);
    valve_server_age(true);
    assert_int_equal(cuValveSums(valve, 3, values, sums), CUDA_ERROR_NOT_SUPPORTED);
    valve_server_age(false);
}

static void numbers_lie_on_either_side(void **state)
{
    const double factor = 1.5;
    const unsigned offset = 0x80000007;
    double level = 0;
    CUvalve valve = valve_new(0);
    assert_int_equal(cuValveSetLevel(valve, 10), CUDA_SUCCESS);
    assert_int_equal(cuValveScale(valve, 0, &factor, &offset, &level), CUDA_SUCCESS);
    assert_true(level == 10 * 1.5 + 0x80000007);
    valve_server_numbers = (struct valve_numbers){-2, 3};
    const struct valve_numbers *there = &valve_server_numbers;
    assert_int_equal(cuValveScale(valve, 1, &there->factor, &there->offset, &level), CUDA_SUCCESS);
    assert_true(level == -17);
    assert_int_equal(cuValveScale(valve, 0, NULL, &offset, &level), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuValveScale(valve, 1, &there->factor, NULL, &level), CUDA_ERROR_INVALID_VALUE);
    /* An address that is none of the session's, or leads over the end of what is. */
    assert_int_equal(cuValveScale(valve, 1, &factor, &there->offset, &level), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuValveScale(valve, 1, (const double *)((const char *)&there->offset + 4), &there->offset, &level),
                     CUDA_ERROR_INVALID_VALUE);
    assert_true(level == -17);
}

/* Of one that the driver cannot make the program hears nothing at once; nobody finds it, and the server counts it. */
static void a_valve_that_cannot_be_made(void **state)
{
    unsigned level;
    valve_server_fill(true);
    CUvalve valve = valve_new(0);
    valve_server_fill(false);
    assert_int_equal(client.failed_result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuValveGetLevel(valve, &level), CUDA_ERROR_INVALID_HANDLE);
    assert_true(valve_server_count(*state) == 0 && valve_server_refused(*state) == 1);
    assert_int_equal(valve_server_driver_count(), 0);
    assert_int_equal(cuValveDestroy(valve), CUDA_SUCCESS);
}

static void valves_go_with_their_context(void **state)
{
    CUvalve one = valve_new(0);
    client.context_id = CONTEXT + 1;
    CUvalve other = valve_new(0);
    flyt_rows_clear(CONTEXT, true);
    assert_int_equal(valve_server_driver_count(), 1);
    assert_int_equal(cuValveDestroy(one), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(level_of(other), 500000);
    unsigned calls = client.call_count;
    flyt_rows_clear(CONTEXT + 1, false); /* the server has done so */
    assert_int_equal(client.call_count, calls);
    assert_int_equal(cuValveDestroy(other), CUDA_ERROR_INVALID_HANDLE);
}

static void valves_go_with_their_device(void **state)
{
    valve_new(0);
    client.device = 1;
    valve_new(0);
    valve_server_drop(*state, 0);
    assert_int_equal(valve_server_driver_count(), 1);
    assert_int_equal(valve_server_count(*state), 1);
    valve_server_drop(*state, 1);
    assert_int_equal(valve_server_driver_count(), 0);
}

static void a_lost_connection_makes_no_valve(void **state)
{
    CUvalve valve = NULL;
    flyt_client.lost = CUDA_ERROR_DEVICE_UNAVAILABLE;
    assert_int_equal(cuValveCreate(&valve, 0, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_null(valve);
}

/* What was there behind a call, and no more, is there again: under its id, and set to what it was set to last. */
static void valves_are_made_again(void **state)
{
    struct flyt_error err = {0};
    CUvalve gone = valve_new(9), one = valve_new(1), other = valve_new(2);
    assert_int_equal(cuValveSetLevel(one, 10), CUDA_SUCCESS);
    assert_int_equal(cuValveSetLevel(one, 11), CUDA_SUCCESS);
    assert_int_equal(cuValveDestroy(gone), CUDA_SUCCESS);
    struct flyt_restore restore = {.sequence = client.sequence, .err = &err};
    struct flyt_session *next = valve_server_new();
    valve_server_use(next);
    assert_true(valve_server_compare(*state, next, &err) < 0);
    assert_string_equal(err.text, "its client has made 0 valves again, and it had 2");
    assert_int_equal(flyt_rows_restore(&restore), 0);
    flyt_restore_end(&restore);
    assert_int_equal(valve_server_compare(*state, next, &err), 0);
    assert_int_equal(level_of(one), 11 + 1000 + 500000);
    assert_int_equal(level_of(other), 0 + 2000 + 500000);
    assert_int_equal(cuValveSetLevel(one, 10), CUDA_SUCCESS);
    assert_true(valve_server_compare(*state, next, &err) < 0);
    assert_string_equal(err.text, "its client has made valves again that are not what they were");
    valve_server_drop(next, -1);
    valve_server_free(next);
    valve_server_use(*state);
}

/* An object is there for the call that ends it and comes again; one that was ended before is not. */
static void what_a_later_call_ends_is_made_again(void **state)
{
    struct flyt_error err = {0};
    valve_new(0);
    CUvalve other = valve_new(0);
    struct flyt_restore restore = {.sequence = client.sequence, .err = &err};
    assert_int_equal(cuValveDestroy(other), CUDA_SUCCESS);
    struct flyt_session *next = valve_server_new();
    valve_server_use(next);
    assert_int_equal(flyt_rows_restore(&restore), 0);
    flyt_restore_end(&restore);
    assert_int_equal(valve_server_count(next), 2);
    valve_server_drop(next, -1);
    valve_server_free(next);
    valve_server_use(*state);
}

static void a_server_that_refuses_one_says_which(void **state)
{
    struct flyt_error err = {0};
    CUvalve valve = valve_new(1);
    assert_int_equal(cuValveSetLevel(valve, 10), CUDA_SUCCESS);
    struct flyt_restore restore = {.sequence = client.sequence, .err = &err};
    struct flyt_session *next = valve_server_new();
    valve_server_use(next);
    valve_server_fill(true);
    assert_true(flyt_rows_restore(&restore) < 0); /* what is set of what is not there */
    valve_server_fill(false);
    flyt_restore_end(&restore);
    assert_non_null(strstr(err.text, "valve_level_set of valve 0x7f"));
    valve_server_free(next);
    valve_server_use(*state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_program_has_valves, begin, end),
        cmocka_unit_test_setup_teardown(arguments_are_checked, begin, end),
        cmocka_unit_test_setup_teardown(numbers_lie_on_either_side, begin, end),
        cmocka_unit_test_setup_teardown(memory_of_the_program_is_read_and_written, begin, end),
        cmocka_unit_test_setup_teardown(a_valve_that_cannot_be_made, begin, end),
        cmocka_unit_test_setup_teardown(valves_go_with_their_context, begin, end),
        cmocka_unit_test_setup_teardown(valves_go_with_their_device, begin, end),
        cmocka_unit_test_setup_teardown(a_lost_connection_makes_no_valve, begin, end),
        cmocka_unit_test_setup_teardown(valves_are_made_again, begin, end),
        cmocka_unit_test_setup_teardown(what_a_later_call_ends_is_made_again, begin, end),
        cmocka_unit_test_setup_teardown(a_server_that_refuses_one_says_which, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
