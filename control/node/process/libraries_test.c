/* Tests of which of NVIDIA's libraries there are (libraries.h): what a process prints of them, which users it is, and
 * what sessions have opened. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/process/libraries.h"
#include "control/node/test/test_node.h"

static void test_lines(void **state)
{
    static const struct {
        const char *line, *name; /* name NULL: the line is left out */
        unsigned version;
    } cases[] = {
        {"cudnn 9.19", "cudnn", 9019},
        {"cublaslt 13.1", "cublaslt", 13001},
        {"nvidia5 1.0", "nvidia5", 1000},
        {"a_name_of_16_byt 1.0", NULL, 0},
        {"fifteen15letter 1.0", "fifteen15letter", 1000},
        {"sixteen16letters 1.0", NULL, 0},
        {"cudnn", NULL, 0},
        {"cudnn 9", NULL, 0},
        {"cudnn 9.19.0", NULL, 0},
        {"cudnn 1000.1000", NULL, 0},
        {"cudnn -9.19", NULL, 0},
        {"CUDNN 9.19", NULL, 0},
        {"", NULL, 0},
    };
    flyt_library_version versions[FLYT_LIBRARIES_MAX];

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned count = 0;
        flyt_node_libraries_take(versions, &count, cases[i].line);
        if (count != (cases[i].name != NULL))
            fail_msg("%s", cases[i].line);
        if (!count)
            continue;
        assert_string_equal(versions[0].name, cases[i].name);
        assert_int_equal(versions[0].version_number, cases[i].version);
        free(versions[0].name);
    }
    unsigned count = FLYT_LIBRARIES_MAX;
    flyt_node_libraries_take(versions, &count, "cudnn 9.19");
    assert_int_equal(count, FLYT_LIBRARIES_MAX);
}

static bool is_known(struct test_node *test, void *user)
{
    flyt_libraries_args *args = user;
    int status = flyt_node_report_libraries(&test->node, args);

    if (status)
        xdr_free((xdrproc_t)xdr_flyt_libraries_args, args);
    return !status;
}

static void test_sessions(void **state)
{
    struct test_node *test = *state;
    flyt_libraries_args args;

    setenv("FLYT_FAKE_LIBRARIES", "cublas 13.1\nwhat is that?\ncudnn 9.19\n", 1);
    test_node_stop(test);
    test_node_start(test);
    assert_int_equal(flyt_node_report_libraries(&test->node, &args), -EAGAIN);
    test_node_until(test, is_known, &args, "what there is");
    unsetenv("FLYT_FAKE_LIBRARIES");
    assert_int_equal(args.libraries.libraries_len, 2);
    assert_string_equal(args.libraries.libraries_val[1].name, "cudnn");
    assert_int_equal(args.libraries.libraries_val[1].version_number, 9019);
    assert_int_equal(args.sessions.sessions_len, 0);
    xdr_free((xdrproc_t)xdr_flyt_libraries_args, &args);

    test_node_grant(test, &test_one);
    struct test_program programs[] = {test_node_enter(test, &test_one), test_node_enter(test, &test_one)};
    struct flyt_manager_link_opened *opened = test_node_server(test, &programs[1])->has.use.opened;
    opened[0] = (struct flyt_manager_link_opened){"cudnn", 9019};
    opened[1] = (struct flyt_manager_link_opened){"cublas", 13001};
    assert_int_equal(flyt_node_report_libraries(&test->node, &args), 0);
    assert_int_equal(args.sessions.sessions_len, 1); /* the other one has opened nothing */
    const flyt_session_libraries *session = &args.sessions.sessions_val[0];
    assert_int_equal(session->session_id, programs[1].session_id);
    assert_int_equal(session->allocation_id, test_one.id);
    assert_int_equal(session->libraries.libraries_len, 2);
    assert_string_equal(session->libraries.libraries_val[0].name, "cudnn");
    assert_int_equal(session->libraries.libraries_val[1].version_number, 13001);
    xdr_free((xdrproc_t)xdr_flyt_libraries_args, &args);
    test_node_leave(test, &test_one, programs, 2);
}

/* A look that fails says nothing of what there is, and there is another one long before the regular one. */
static void test_failed_look(void **state)
{
    struct test_node *test = *state;
    flyt_libraries_args args;

    setenv("FLYT_FAKE_LIBRARIES_FAILURE", "", 1);
    test_node_stop(test);
    test_node_start(test);
    test_node_until_warm(test);
    unsetenv("FLYT_FAKE_LIBRARIES_FAILURE");
    assert_int_equal(flyt_node_report_libraries(&test->node, &args), -EAGAIN);
    setenv("FLYT_FAKE_LIBRARIES", "cublas 13.1\n", 1);
    test_node_until(test, is_known, &args, "what there is");
    unsetenv("FLYT_FAKE_LIBRARIES");
    assert_int_equal(args.libraries.libraries_len, 1);
    assert_string_equal(args.libraries.libraries_val[0].name, "cublas");
    xdr_free((xdrproc_t)xdr_flyt_libraries_args, &args);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        TEST_NODE(test_sessions),
        TEST_NODE(test_failed_look),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
