/* What a module is refused for is said, whatever was said before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/client/cuda/jit.h"
#include "cpu/client/cuda/jit_link_call.h"
#include "rpc/base/log.h"

enum { REASONS = 200 };

static int log_fd;

static int begin(void **state)
{
    log_fd = memfd_create("stderr", MFD_CLOEXEC);
    flyt_log_init("flyt", FLYT_LOG_WARN);
    flyt_log_set_fd(log_fd);
    return log_fd < 0;
}

static unsigned lines_with(const char *words)
{
    static char text[1 << 16];
    unsigned count = 0;
    ssize_t bytes = pread(log_fd, text, sizeof text - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = 0;
    for (const char *at = text; (at = strstr(at, words)); at++)
        count++;
    return count;
}

static void say(unsigned number)
{
    struct flyt_jit_logs logs;
    flyt_jit_logs_init(&logs, NULL);
    CUresult result = flyt_jit_logs_refuse(&logs, CUDA_ERROR_NOT_SUPPORTED, "reason %u is one", number);
    flyt_jit_logs_say(&logs, result);
}

static void every_reason_is_said_once(void **state)
{
    for (unsigned i = 0; i < REASONS; i++)
        for (unsigned again = 0; again < 3; again++)
            say(i);
    for (unsigned i = 0; i < REASONS; i++) {
        char words[64];
        snprintf(words, sizeof words, ": reason %u is one,", i);
        assert_int_equal(lines_with(words), 1);
    }
}

static void too_many_images_are_refused_in_words(void **state)
{
    static const void *units[FLYT_LINK_INPUTS_MAX + 2];
    struct flyt_jit_logs logs;
    flyt_jit_logs_init(&logs, NULL);
    for (unsigned i = 0; i <= FLYT_LINK_INPUTS_MAX; i++)
        units[i] = units;
    CUresult result = flyt_jit_link_units(NULL, units, NULL, NULL, &logs, NULL);
    assert_int_equal(result, CUDA_ERROR_NOT_SUPPORTED);
    flyt_jit_logs_say(&logs, result);
    assert_int_equal(lines_with("at most 4096 images are linked into one"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_is_said_once),
        cmocka_unit_test(too_many_images_are_refused_in_words),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
