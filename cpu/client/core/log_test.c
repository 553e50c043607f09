/* The error log: what is kept of many lines, what finds room in a buffer, and who hears of a line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/client/core/client.h"
#include "cpu/client/core/log.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"

enum { BUFFER_BYTES = FLYT_LOG_ENTRIES * FLYT_LOG_ENTRY_BYTES };

static CUlogIterator now(void)
{
    CUlogIterator iterator;
    assert_int_equal(flyt_logs_current(&iterator, 0), CUDA_SUCCESS);
    return iterator;
}

static unsigned lines_of(const char *text)
{
    unsigned count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

static void test_the_last_lines_are_kept(void **state)
{
    static char buffer[BUFFER_BYTES];
    CUlogIterator start = now();
    for (int i = 0; i < FLYT_LOG_ENTRIES + 5; i++)
        flyt_warn("line %d", i);
    size_t bytes = sizeof buffer;
    CUlogIterator again = start;
    assert_int_equal(flyt_logs_to_memory(&again, buffer, &bytes, 0), CUDA_SUCCESS);
    assert_int_equal(bytes, strlen(buffer));
    assert_null(strstr(buffer, " line 4\n"));
    assert_non_null(strstr(buffer, "earlier messages are lost"));
    assert_non_null(strstr(buffer, "[CUDA][W] line 5\n"));
    assert_int_equal(lines_of(buffer), FLYT_LOG_ENTRIES + 1);
    assert_int_equal(again, now());
}

static void test_the_last_that_fit_are_told(void **state)
{
    char buffer[256];
    CUlogIterator start = now();
    flyt_warn("one");
    flyt_fail("two");
    CUlogIterator again = start;
    size_t all = sizeof buffer, bytes;
    assert_int_equal(flyt_logs_to_memory(&again, buffer, &all, 0), CUDA_SUCCESS);
    assert_int_equal(lines_of(buffer), 2);
    assert_non_null(strstr(buffer, "[CUDA][E] two\n"));
    for (bytes = 1; bytes <= all + 1; bytes++) {
        char small[sizeof buffer];
        size_t got = bytes;
        memset(small, 'x', sizeof small);
        again = start;
        CUresult result = flyt_logs_to_memory(&again, small, &got, 0);
        assert_true(small[bytes] == 'x');
        assert_true(strlen(small) < bytes);
        if (bytes == all + 1)
            assert_string_equal(small, buffer);
        assert_int_equal(result == CUDA_SUCCESS, got != 0);
        if (got)
            assert_string_equal(small + got - strlen("two\n"), "two\n");
        else
            assert_int_equal(again, start);
    }
}

static unsigned heard;

static void hear(void *data, CUlogLevel level, char *message, size_t length)
{
    assert_int_equal(length, strlen(message));
    assert_int_equal(level, CU_LOG_LEVEL_WARNING);
    heard++;
    flyt_warn("heard %s", message); /* is kept, and not heard */
}

static void test_callbacks_hear_of_each_line(void **state)
{
    char buffer[512];
    size_t bytes = sizeof buffer;
    CUlogsCallbackHandle handles[FLYT_LOG_CALLBACKS], more;
    CUlogIterator start = now();
    for (int i = 0; i < FLYT_LOG_CALLBACKS; i++)
        assert_int_equal(flyt_logs_register(hear, NULL, &handles[i]), CUDA_SUCCESS);
    assert_int_equal(flyt_logs_register(hear, NULL, &more), CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 1; i < FLYT_LOG_CALLBACKS; i++)
        assert_int_equal(flyt_logs_unregister(handles[i]), CUDA_SUCCESS);
    flyt_warn("this");
    assert_int_equal(heard, 1);
    assert_int_equal(flyt_logs_unregister(handles[0]), CUDA_SUCCESS);
    assert_int_equal(flyt_logs_unregister(handles[0]), CUDA_ERROR_INVALID_VALUE);
    flyt_warn("that");
    assert_int_equal(heard, 1);
    assert_int_equal(flyt_logs_to_memory(&start, buffer, &bytes, 0), CUDA_SUCCESS);
    assert_int_equal(lines_of(buffer), 3);
    assert_non_null(strstr(buffer, "heard this\n"));
}

static atomic_bool is_enough;

static void *log_much(void *user)
{
    while (!atomic_load(&is_enough))
        flyt_warn("one of many");
    return NULL;
}

/* Whatever the parent's other threads were about. */
static void test_a_forked_child_logs(void **state)
{
    enum { THREADS = 2, CHILDREN = 100, HANGS_AFTER_S = 60 };
    pthread_t threads[THREADS];
    flyt_log_set_fd(-1);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_much, NULL), 0);
    for (unsigned i = 0; i < CHILDREN; i++) {
        int status;
        pid_t child = fork();
        if (!child) {
            CUlogIterator iterator;
            alarm(HANGS_AFTER_S);
            flyt_warn("of a child");
            _exit(flyt_logs_current(&iterator, 0));
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&is_enough, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    flyt_log_set_fd(STDERR_FILENO);
}

static CUresult told_in_callback;

static void call_cuda(void *data, CUlogLevel level, char *message, size_t length)
{
    told_in_callback = flyt_client_init();
}

/* What fails to connect says so while it connects. */
static void test_callbacks_do_not_call_cuda(void **state)
{
    enum { HANGS_AFTER_S = 60 };
    CUlogsCallbackHandle handle;
    void *base = (void *)(uintptr_t)FLYT_WINDOW_BASE; /* NOLINT */
    void *place = mmap(base, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(place, base);
    assert_int_equal(flyt_logs_register(call_cuda, NULL, &handle), CUDA_SUCCESS);
    alarm(HANGS_AFTER_S);
    assert_int_not_equal(flyt_client_init(), CUDA_SUCCESS);
    alarm(0);
    assert_int_equal(told_in_callback, CUDA_ERROR_NOT_PERMITTED);
    assert_int_not_equal(flyt_client_init(), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(flyt_logs_unregister(handle), CUDA_SUCCESS);
    munmap(place, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_lines_are_kept),     cmocka_unit_test(test_the_last_that_fit_are_told),
        cmocka_unit_test(test_callbacks_hear_of_each_line), cmocka_unit_test(test_a_forked_child_logs),
        cmocka_unit_test(test_callbacks_do_not_call_cuda),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
