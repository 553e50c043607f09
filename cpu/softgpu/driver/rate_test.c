/*
 * The speed of SMs, by the engine's own accounting. A partition may be slower than its rate, where the machine has
 * other things to do, and never faster: that it is as fast is looked for until it was, once in each case.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/softgpu/driver/green_test.h"

enum { SM_RATE = 1000000, WAIT_S_MAX = 600, THREADS = 64, SLACK_US = 2500 };

static CUlibrary library;
static char folder[] = "/tmp/flyt-soft-account-XXXXXX";

static int start(void **state)
{
    char text[16];

    assert_non_null(mkdtemp(folder));
    snprintf(text, sizeof(text), "%d", SM_RATE);
    setenv("FLYT_SOFT_SM_RATE", text, 1);
    setenv("FLYT_SOFT_ACCOUNT", folder, 1);
    test_start();
    library = test_green_library();
    return 0;
}

static int stop(void **state)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%d", folder, (int)getpid());
    return unlink(path) || rmdir(folder) ? -1 : 0;
}

/* Starts `ms` milliseconds of work for `sms` SMs, in 2 blocks per SM. */
static void start_work(CUstream stream, unsigned sms, unsigned ms, CUdeviceptr word)
{
    test_run(test_kernel(library, "count"), stream, 2 * sms, THREADS, 0, word, SM_RATE / 1000 * ms / (3 * 2 * THREADS));
}

/* Percent of its SMs' speed that the context had between two accounts, and no more than there is. */
static double speed_pct(const struct flyt_soft_account *before, const struct flyt_soft_account *after)
{
    uint64_t executed = after->thread_instructions - before->thread_instructions;
    uint64_t busy_us = after->busy_us - before->busy_us;
    uint64_t rate_us = SM_RATE / 1000000 * after->sm_count;

    assert_true(executed <= (busy_us + SLACK_US) * rate_us);
    return 100.0 * (double)executed / (double)(busy_us * rate_us);
}

/* 8 and 16 SMs, each alone for about 100 ms and both together: each has the speed of its SMs. */
static void speed_is_that_of_the_sms(void **state)
{
    struct test_green one = test_green_new(1, 1), two = test_green_new(4, 2);
    CUdeviceptr word = test_words(1);
    double best[4] = {0};
    const time_t until_s = time(NULL) + WAIT_S_MAX;

    while (time(NULL) < until_s) {
        struct flyt_soft_account before[2] = {test_account(one.ctx), test_account(two.ctx)}, after[2];
        bool is_good = true;

        for (unsigned i = 0; i < 2; i++) {
            start_work(one.stream, 8, 100, word);
            if (!i)
                assert_ok(cuStreamSynchronize(one.stream));
            start_work(two.stream, 16, 100, word);
            assert_ok(cuStreamSynchronize(one.stream));
            assert_ok(cuStreamSynchronize(two.stream));
            after[0] = test_account(one.ctx);
            after[1] = test_account(two.ctx);
            for (unsigned j = 0; j < 2; j++) {
                double pct = speed_pct(&before[j], &after[j]);

                if (pct > best[2 * i + j])
                    best[2 * i + j] = pct;
                is_good &= best[2 * i + j] > 95;
                before[j] = after[j];
            }
        }
        if (is_good)
            break;
    }
    for (unsigned i = 0; i < 4; i++)
        if (best[i] <= 95)
            fail_msg("case %u reached %.1f %% of its speed", i, best[i]);
    assert_ok(cuMemFree(word));
    test_green_free(&one);
    test_green_free(&two);
}

/* Whatever time has passed before: short launches with pauses between them get no more than their own time. */
static void idle_time_earns_nothing(void **state)
{
    struct test_green one = test_green_new(1, 1);
    CUdeviceptr word = test_words(1);

    for (unsigned i = 0; i < 5; i++) {
        struct flyt_soft_account before = test_account(one.ctx), after;

        usleep(30000);
        start_work(one.stream, 8, 20, word);
        assert_ok(cuStreamSynchronize(one.stream));
        after = test_account(one.ctx);
        speed_pct(&before, &after);
    }
    assert_ok(cuMemFree(word));
    test_green_free(&one);
}

/* Blocks that wait for blocks that have not started, several warps of them: at this speed a slice is over before a
 * waiting loop has turned often. */
static void blocks_that_wait_for_each_other_go_on(void **state)
{
    struct test_green one = test_green_new(0, 1);
    CUdeviceptr words = test_words(2);
    uint32_t met[2];

    test_run(test_kernel(library, "meet"), one.stream, 16, 128, 0, words, 2 * 16 * 128);
    assert_int_equal(cuStreamQuery(one.stream), CUDA_ERROR_NOT_READY);
    /* The other half comes through another stream, of the primary context. */
    test_run(test_kernel(library, "meet"), NULL, 16, 128, 0, words, 2 * 16 * 128);
    assert_ok(cuStreamSynchronize(one.stream));
    assert_ok(cuStreamSynchronize(NULL));
    assert_ok(cuMemcpyDtoH(met, words, sizeof(met)));
    assert_int_equal(met[0], 2 * 16 * 128);
    assert_ok(cuMemFree(words));
    test_green_free(&one);
}

/* The line of the context in this process's file. */
static void read_line(uint64_t id, char line[FLYT_SOFT_ACCOUNT_LINE_BYTES + 1])
{
    char path[128], begin[32];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%d", folder, (int)getpid());
    snprintf(begin, sizeof(begin), "context=%lu ", (unsigned long)id);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, FLYT_SOFT_ACCOUNT_LINE_BYTES + 1, file)) {
        assert_int_equal(strlen(line), FLYT_SOFT_ACCOUNT_LINE_BYTES);
        if (!strncmp(line, begin, strlen(begin))) {
            line[strcspn(line, "\n")] = 0;
            while (line[strlen(line) - 1] == ' ')
                line[strlen(line) - 1] = 0;
            fclose(file);
            return;
        }
    }
    fclose(file);
    fail_msg("no line for context %lu", (unsigned long)id);
}

/* What is no work of a kernel, the memory, comes to the file a moment later. */
static void check_line(const struct flyt_soft_account *a)
{
    char line[FLYT_SOFT_ACCOUNT_LINE_BYTES + 1], expected[256];

    snprintf(expected, sizeof(expected),
             "context=%lu device=0 green=1 alive=%u sms=8 launches=%lu blocks=%lu instructions=%lu busy_us=%lu "
             "memory=%lu works=%lu",
             (unsigned long)a->context_id, a->is_alive, (unsigned long)a->launches, (unsigned long)a->blocks,
             (unsigned long)a->thread_instructions, (unsigned long)a->busy_us, (unsigned long)a->memory_bytes,
             (unsigned long)a->works);
    read_line(a->context_id, line);
    for (unsigned i = 0; strcmp(line, expected) && i < 60000; i++) {
        usleep(1000);
        read_line(a->context_id, line);
    }
    assert_string_equal(line, expected);
}

static void the_file_says_the_same(void **state)
{
    struct test_green one = test_green_new(0, 1);
    CUdeviceptr gate = test_words(1);
    char line[FLYT_SOFT_ACCOUNT_LINE_BYTES + 1];
    struct flyt_soft_account account;

    account = test_account(one.ctx);
    check_line(&account);
    start_work(one.stream, 8, 10, gate);
    assert_ok(cuStreamSynchronize(one.stream));
    account = test_account(one.ctx);
    assert_int_equal(account.launches, 1);
    check_line(&account);
    /* A kernel that does not end is in the file all the same. */
    test_run(test_kernel(library, "spin"), one.stream, 1, 1, 0, gate, 0);
    do {
        usleep(5000);
        read_line(account.context_id, line);
    } while (!strstr(line, " launches=2 ") || strstr(line, " busy_us=0 "));
    assert_int_equal(cuStreamQuery(one.stream), CUDA_ERROR_NOT_READY);
    assert_ok(cuMemsetD32(gate, 1, 1));
    assert_ok(cuStreamSynchronize(one.stream));
    account = test_account(one.ctx);
    check_line(&account);
    test_green_free(&one);
    /* It goes with its last stream, which a worker may still have in its hands. */
    do {
        usleep(1000);
        read_line(account.context_id, line);
    } while (strstr(line, " alive=1 "));
    account.is_alive = 0;
    check_line(&account);
    assert_ok(cuMemFree(gate));
}

/* More contexts than there are lines: the newest are there, the live one too. */
static void old_contexts_give_up_their_lines(void **state)
{
    static struct flyt_soft_account accounts[FLYT_SOFT_ACCOUNTS_MAX];
    struct test_green kept = test_green_new(0, 1), last;
    unsigned long long id;

    for (unsigned i = 0; i < FLYT_SOFT_ACCOUNTS_MAX + 10; i++) {
        last = test_green_new(1, 1);
        assert_ok(cuCtxGetId(last.ctx, &id));
        test_green_free(&last);
    }
    assert_int_equal(flyt_soft_accounting(accounts, FLYT_SOFT_ACCOUNTS_MAX), FLYT_SOFT_ACCOUNTS_MAX);
    for (unsigned i = 1; i < FLYT_SOFT_ACCOUNTS_MAX; i++)
        assert_true(accounts[i - 1].context_id < accounts[i].context_id);
    assert_int_equal(accounts[FLYT_SOFT_ACCOUNTS_MAX - 1].context_id, id);
    assert_int_equal(accounts[FLYT_SOFT_ACCOUNTS_MAX - 1].is_alive, 0);
    assert_int_equal(test_account(kept.ctx).is_alive, 1);
    test_green_free(&kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speed_is_that_of_the_sms),
        cmocka_unit_test(idle_time_earns_nothing),
        cmocka_unit_test(blocks_that_wait_for_each_other_go_on),
        cmocka_unit_test(the_file_says_the_same),
        cmocka_unit_test(old_contexts_give_up_their_lines),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
