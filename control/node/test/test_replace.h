/*
 * Programs of tests whose sessions go on at another server (ops/replace.h).
 */
#ifndef FLYT_TEST_REPLACE_H
#define FLYT_TEST_REPLACE_H

#include <stdbool.h>

#include "control/node/test/test_node.h"

/* What a fake server answers that is refused what it asks for. */
const char *test_replace_refused_text(void);
/* For test_node_until: whether a program (user) has its session again, and its server has said so. */
bool test_replace_has_gone_on(struct test_node *test, void *user);
/* Its client comes back and is let in at once. */
void test_replace_come_back(struct test_node *test, const struct test_wish *wish, struct test_program *program);
/* Who comes with this token, or a forged ticket, is told so. */
void test_replace_is_refused(struct test_node *test, const struct test_wish *wish, const unsigned char *token,
                             bool is_forged, flyt_handshake_status status, const char *words);

#endif
