#include "control/node/test/test_replace.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

const char *test_replace_refused_text(void)
{
    static char text[16];

    snprintf(text, sizeof text, "%d", -ENOMEM);
    return text;
}

bool test_replace_has_gone_on(struct test_node *test, void *user)
{
    return !test_node_server(test, user)->session->replacement.session_us;
}

void test_replace_come_back(struct test_node *test, const struct test_wish *wish, struct test_program *program)
{
    assert_int_equal(test_node_try_to_come(test, wish, program), FLYT_HANDSHAKE_OK);
}

void test_replace_is_refused(struct test_node *test, const struct test_wish *wish, const unsigned char *token,
                             bool is_forged, flyt_handshake_status status, const char *words)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program program = test_node_resume(test, &credentials, token, is_forged);

    assert_int_equal(program.status, status);
    test_contains(program.message, words);
}
