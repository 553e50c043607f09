/* Calls of NVIDIA's libraries from a client that keeps to no rule, where the node has none of them: over the wire, to a
 * session without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/library/environment.h"
#include "cpu/server/test/fake_client.h"

static int open_library(struct fixture *self, const char *name, const char *environment, char *ret_text)
{
    flyt_library_open_res res = {0};
    uint32_t xid = SEND(self, FLYT_LIBRARY_OPEN, library_open, .thread = 1, .name = (char *)(uintptr_t)name,
                        .client_version = 13001, .environment = (char *)(uintptr_t)environment);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_library_open_res, &res);
    if (ret_text)
        snprintf(ret_text, 256, "%s", res.text);
    xdr_free((xdrproc_t)xdr_flyt_library_open_res, (char *)&res);
    return res.result;
}

static void what_is_not_there_is_named(void **state)
{
    struct fixture *self = *state;
    char text[256];
    assert_int_equal(open_library(self, "nothing", "", text), CUDA_ERROR_NOT_SUPPORTED);
    assert_string_equal(text, "this server does not know the library");
    assert_int_equal(open_library(self, "../../libc", "", text), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(open_library(self, "cublas", "", text), CUDA_ERROR_NOT_SUPPORTED);
    assert_non_null(strstr(text, "the node has no libcublas.so.13"));
}

static void only_what_is_listed_comes_into_the_environment(void **state)
{
    struct fixture *self = *state;
    open_library(
        self, "cublas",
        "FLYT_TEST_FOREIGN=1\nCUBLAS_WORKSPACE_CONFIG=/etc/passwd\n=3\nNVIDIA_TF32_OVERRIDE\nNVIDIA_TF32_OVERRIDE=0\n"
        "NVIDIA_TF32_OVERRIDE=\nCUBLAS_EMULATION_STRATEGY=cut off",
        NULL);
    assert_null(getenv("FLYT_TEST_FOREIGN"));
    assert_null(getenv("CUBLAS_WORKSPACE_CONFIG"));
    assert_null(getenv("CUBLAS_EMULATION_STRATEGY"));
    assert_string_equal(getenv("NVIDIA_TF32_OVERRIDE"), "0");
    open_library(self, "cublas", "CUBLAS_WORKSPACE_CONFIG=:4096:8\n", NULL);
    const char *before = getenv("CUBLAS_WORKSPACE_CONFIG");
    assert_string_equal(before, ":4096:8");
    /* What a thread may be reading stays as it is. */
    open_library(self, "cublas", "CUBLAS_WORKSPACE_CONFIG=:16:8\n", NULL);
    assert_string_equal(getenv("CUBLAS_WORKSPACE_CONFIG"), ":16:8");
    assert_string_equal(before, ":4096:8");
}

static void calls_of_unknown_rows_and_objects_are_refused(void **state)
{
    struct fixture *self = *state;
    char bytes[64] = {0};
    uint64_t unknown[4] = {flyt_id(FLYT_ID_LIBOBJECT, 5), 0, stream_id(0), UINT64_MAX};
    flyt_libobject_new_res made = {0};
    uint32_t xid = SEND(self, FLYT_LIBOBJECT_NEW, libobject_new, .thread = 1,
                        .object_id = flyt_id(FLYT_ID_LIBOBJECT, 5), .row = 1, .arguments = {sizeof bytes, bytes});
    await_reply(self, xid, (xdrproc_t)xdr_flyt_libobject_new_res, &made);
    assert_int_equal(made.result, CUDA_ERROR_NOT_SUPPORTED);
    for (unsigned count = 0; count <= 4; count++) {
        flyt_libcall_ask_res res = {0};
        xid = SEND(self, FLYT_LIBCALL_ASK, libcall_ask, .thread = 1, .stream_id = legacy, .objects = {count, unknown},
                   .row = 77, .arguments = {sizeof bytes, bytes});
        await_reply(self, xid, (xdrproc_t)xdr_flyt_libcall_ask_res, &res);
        assert_int_equal(res.result, count ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED);
        xdr_free((xdrproc_t)xdr_flyt_libcall_ask_res, (char *)&res);
    }
    flyt_libobject_end_res ended = {0};
    xid = SEND(self, FLYT_LIBOBJECT_END, libobject_end, .thread = 1, .object_id = flyt_id(FLYT_ID_LIBOBJECT, 5),
               .row = 1);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_libobject_end_res, &ended);
    assert_int_equal(ended.result, CUDA_ERROR_INVALID_HANDLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_not_there_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_what_is_listed_comes_into_the_environment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(calls_of_unknown_rows_and_objects_are_refused, set_up, tear_down),
    };
    setenv("FLYT_LIBRARIES", "/nowhere", 1);
    setenv("NVIDIA_TF32_OVERRIDE", "1", 1); /* as the operator has it */
    flyt_server_environment_reserve();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
