/* Partitions of SMs: which groups go together, and where and how many blocks run in them. */
#include "cpu/softgpu/driver/green_test.h"

enum { SHARED_BYTES = 100 * 1024, BLOCKS_PER_SM = 2 }; /* of the 228 KiB of an SM */

static CUlibrary library;

static int start(void **state)
{
    test_start();
    library = test_green_library();
    return 0;
}

static unsigned context_sms(CUcontext ctx)
{
    CUdevResource resource;

    assert_ok(cuCtxGetDevResource(ctx, &resource, CU_DEV_RESOURCE_TYPE_SM));
    return resource.sm.smCount;
}

static void any_groups_of_one_split_go_together(void **state)
{
    CUdevResource all, groups[66], rest, chosen[4];
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUcontext ctx;
    unsigned count = 15;

    assert_ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    assert_ok(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 8));
    chosen[0] = groups[14];
    chosen[1] = groups[2];
    chosen[2] = rest;
    chosen[3] = groups[7];
    assert_ok(cuDevResourceGenerateDesc(&desc, chosen, 4));
    assert_ok(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    assert_ok(cuCtxFromGreenCtx(&ctx, green));
    assert_int_equal(context_sms(ctx), 3 * 8 + 12);
    assert_ok(cuGreenCtxDestroy(green));
    count = 66;
    assert_ok(
        cuDevSmResourceSplitByCount(groups, &count, &all, NULL, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 2));
    assert_int_equal(count, 66);
    assert_ok(cuDevResourceGenerateDesc(&desc, groups + 10, 33));
    assert_ok(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    assert_ok(cuCtxFromGreenCtx(&ctx, green));
    assert_int_equal(context_sms(ctx), 66);
    assert_ok(cuGreenCtxDestroy(green));
}

static void groups_of_different_splits_do_not(void **state)
{
    CUdevResource all, first[15], second[15], loose[16], chosen[2];
    CUdevResourceDesc desc;
    unsigned count = 15;

    assert_ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    assert_ok(cuDevSmResourceSplitByCount(first, &count, &all, NULL, 0, 8));
    assert_ok(cuDevSmResourceSplitByCount(second, &count, &all, NULL, 0, 8));
    count = 16;
    assert_ok(
        cuDevSmResourceSplitByCount(loose, &count, &all, NULL, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 8));
    chosen[0] = first[0];
    chosen[1] = second[1];
    assert_int_equal(cuDevResourceGenerateDesc(&desc, chosen, 2), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    chosen[1] = loose[1];
    assert_int_equal(cuDevResourceGenerateDesc(&desc, chosen, 2), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    chosen[0] = all;
    assert_int_equal(cuDevResourceGenerateDesc(&desc, chosen, 2), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    chosen[1] = all;
    assert_int_equal(cuDevResourceGenerateDesc(&desc, chosen, 2), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    assert_ok(cuDevResourceGenerateDesc(&desc, chosen, 1));
}

/* Blocks of a launch in the stream see `sms` SMs, numbered from 0, and run on all of them. */
static void check_sms(CUstream stream, unsigned sms)
{
    enum { BLOCKS = 300 };
    uint32_t words[2 * BLOCKS], seen[FLYT_SOFT_ACCOUNTS_MAX] = {0};
    CUdeviceptr memory = test_words(2 * BLOCKS);

    test_run(test_kernel(library, "where"), stream, BLOCKS, 1, 0, memory, 0);
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuMemcpyDtoH(words, memory, sizeof(words)));
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_true(words[2 * i] < sms);
        assert_int_equal(words[2 * i + 1], sms);
        seen[words[2 * i]]++;
    }
    for (unsigned i = 0; i < sms; i++)
        assert_int_not_equal(seen[i], 0);
    assert_ok(cuMemFree(memory));
}

static void the_streams_context_decides_where_a_kernel_runs(void **state)
{
    struct test_green one = test_green_new(14, 1), three = test_green_new(4, 3);
    CUcontext primary;
    CUstream stream;

    assert_ok(cuCtxGetCurrent(&primary));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_sms(one.stream, 8);
    check_sms(three.stream, 24);
    assert_ok(cuCtxSetCurrent(three.ctx));
    check_sms(NULL, 24);
    check_sms(one.stream, 8);
    check_sms(stream, 132);
    assert_ok(cuCtxSetCurrent(primary));
    check_sms(NULL, 132);
    assert_ok(cuStreamDestroy(stream));
    test_green_free(&one);
    test_green_free(&three);
}

static void occupancy_follows_the_current_context(void **state)
{
    struct test_green two = test_green_new(0, 2);
    CUcontext primary;
    int blocks, threads;

    assert_ok(cuCtxGetCurrent(&primary));
    assert_ok(cuCtxSetCurrent(two.ctx));
    assert_ok(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, test_kernel(library, "where"), NULL, 0, 0));
    assert_int_equal(threads, 1024);
    assert_int_equal(blocks, 16 * 2);
    assert_ok(cuCtxSetCurrent(primary));
    test_green_free(&two);
}

static CUfunction large_kernel(const char *name)
{
    CUfunction kernel = test_kernel(library, name);

    assert_ok(cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED_BYTES));
    return kernel;
}

/* The most blocks that were there at once; all of `total` have run. */
static uint32_t crowd_read(CUdeviceptr words, uint32_t total)
{
    uint32_t values[3];

    assert_ok(cuMemcpyDtoH(values, words, sizeof(values)));
    assert_int_equal(values[0], 0);
    assert_int_equal(values[2], total);
    return values[1];
}

static void no_more_blocks_run_at_once_than_the_sms_hold(void **state)
{
    struct test_green one = test_green_new(5, 1), two = test_green_new(8, 2);
    CUfunction crowd = large_kernel("crowd");
    CUdeviceptr words = test_words(3);

    test_run(crowd, one.stream, 50, 1, SHARED_BYTES, words, 8 * BLOCKS_PER_SM);
    assert_ok(cuStreamSynchronize(one.stream));
    assert_int_equal(crowd_read(words, 50), 8 * BLOCKS_PER_SM);
    assert_ok(cuMemsetD32(words, 0, 3));
    test_run(crowd, two.stream, 70, 1, SHARED_BYTES, words, 16 * BLOCKS_PER_SM);
    assert_ok(cuStreamSynchronize(two.stream));
    assert_int_equal(crowd_read(words, 70), 16 * BLOCKS_PER_SM);
    assert_ok(cuMemFree(words));
    test_green_free(&one);
    test_green_free(&two);
}

/* Two streams of one context, and a context of its own over the same SMs: together no more than one alone. */
static void launches_on_the_same_sms_share_their_room(void **state)
{
    struct test_green one = test_green_new(5, 1), same = test_green_new(5, 1);
    CUfunction crowd = large_kernel("crowd");
    CUdeviceptr words = test_words(3);
    CUstream other;

    assert_ok(cuGreenCtxStreamCreate(&other, one.green, CU_STREAM_NON_BLOCKING, 0));
    test_run(crowd, one.stream, 20, 1, SHARED_BYTES, words, 8 * BLOCKS_PER_SM);
    test_run(crowd, other, 20, 1, SHARED_BYTES, words, 8 * BLOCKS_PER_SM);
    test_run(crowd, same.stream, 20, 1, SHARED_BYTES, words, 8 * BLOCKS_PER_SM);
    assert_ok(cuStreamSynchronize(one.stream));
    assert_ok(cuStreamSynchronize(other));
    assert_ok(cuStreamSynchronize(same.stream));
    assert_int_equal(crowd_read(words, 60), 8 * BLOCKS_PER_SM);
    assert_ok(cuMemFree(words));
    assert_ok(cuStreamDestroy(other));
    test_green_free(&one);
    test_green_free(&same);
}

/* Disjoint partitions do not: what one holds leaves the other its own. */
static void launches_on_other_sms_have_their_own_room(void **state)
{
    struct test_green one = test_green_new(0, 1), two = test_green_new(1, 1);
    CUfunction spin = large_kernel("spin");
    CUdeviceptr gate = test_words(1), words = test_words(2);

    test_run(spin, one.stream, 8 * BLOCKS_PER_SM, 32, SHARED_BYTES, gate, 0);
    test_run(large_kernel("meet"), two.stream, 8 * BLOCKS_PER_SM, 32, SHARED_BYTES, words, 32 * 8 * BLOCKS_PER_SM);
    assert_ok(cuStreamSynchronize(two.stream));
    assert_int_equal(cuStreamQuery(one.stream), CUDA_ERROR_NOT_READY);
    assert_ok(cuMemsetD32(gate, 1, 1));
    assert_ok(cuStreamSynchronize(one.stream));
    assert_ok(cuMemFree(gate));
    assert_ok(cuMemFree(words));
    test_green_free(&one);
    test_green_free(&two);
}

/* Several launches whose blocks all wait for each other, each as large as the partition, with others between them. */
static void cooperative_launches_start_whole(void **state)
{
    enum { LAUNCHES = 6, BLOCKS = 8 * BLOCKS_PER_SM };
    struct test_green one = test_green_new(3, 1);
    CUfunction meet = large_kernel("meet"), count = large_kernel("count");
    CUdeviceptr words = test_words(LAUNCHES), word;
    CUstream streams[LAUNCHES];
    uint32_t threads = BLOCKS, values[LAUNCHES];
    void *params[] = {&word, &threads};

    for (unsigned i = 0; i < LAUNCHES; i++) {
        assert_ok(cuGreenCtxStreamCreate(&streams[i], one.green, CU_STREAM_NON_BLOCKING, 0));
        word = words + 4 * i;
        test_run(count, one.stream, 3, 32, SHARED_BYTES, words, 1000);
        assert_ok(cuLaunchCooperativeKernel(meet, BLOCKS, 1, 1, 1, 1, 1, SHARED_BYTES, streams[i], params));
    }
    assert_int_equal(cuLaunchCooperativeKernel(meet, BLOCKS + 1, 1, 1, 1, 1, 1, SHARED_BYTES, one.stream, params),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_ok(cuStreamSynchronize(one.stream));
    for (unsigned i = 0; i < LAUNCHES; i++) {
        assert_ok(cuStreamSynchronize(streams[i]));
        assert_ok(cuStreamDestroy(streams[i]));
    }
    assert_ok(cuMemcpyDtoH(values, words, sizeof(values)));
    for (unsigned i = 0; i < LAUNCHES; i++)
        assert_int_equal(values[i], BLOCKS);
    assert_ok(cuMemFree(words));
    test_green_free(&one);
}

/* The loop's three instructions are those that a longer loop has more of. */
static void each_context_accounts_for_itself(void **state)
{
    enum { BLOCKS = 40, THREADS = 96, SHORT = 1000, LONG = 5000 };
    struct test_green one = test_green_new(2, 1), two = test_green_new(6, 2);
    CUfunction count = test_kernel(library, "count");
    CUdeviceptr word = test_words(1);
    struct flyt_soft_account a, b;

    test_run(count, one.stream, BLOCKS, THREADS, 0, word, SHORT);
    test_run(count, two.stream, BLOCKS, THREADS, 0, word, LONG);
    assert_ok(cuStreamSynchronize(one.stream));
    assert_ok(cuStreamSynchronize(two.stream));
    a = test_account(one.ctx);
    b = test_account(two.ctx);
    assert_int_equal(a.sm_count, 8);
    assert_int_equal(b.sm_count, 16);
    assert_int_equal(a.is_green, 1);
    assert_int_equal(a.is_alive, 1);
    assert_int_equal(a.launches, 1);
    assert_int_equal(a.blocks, BLOCKS);
    assert_int_equal(b.thread_instructions - a.thread_instructions, 3ul * BLOCKS * THREADS * (LONG - SHORT));
    assert_true(a.thread_instructions > 3ul * BLOCKS * THREADS * SHORT);
    assert_true(a.thread_instructions < 3ul * BLOCKS * THREADS * (SHORT + 10));
    assert_true(b.busy_us > 0);
    test_run(count, one.stream, BLOCKS, THREADS, 0, word, SHORT);
    assert_ok(cuStreamSynchronize(one.stream));
    assert_int_equal(test_account(one.ctx).thread_instructions, 2 * a.thread_instructions);
    assert_int_equal(test_account(two.ctx).busy_us, b.busy_us);
    assert_ok(cuMemFree(word));
    test_green_free(&one);
    test_green_free(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_groups_of_one_split_go_together),
        cmocka_unit_test(groups_of_different_splits_do_not),
        cmocka_unit_test(the_streams_context_decides_where_a_kernel_runs),
        cmocka_unit_test(occupancy_follows_the_current_context),
        cmocka_unit_test(no_more_blocks_run_at_once_than_the_sms_hold),
        cmocka_unit_test(launches_on_the_same_sms_share_their_room),
        cmocka_unit_test(launches_on_other_sms_have_their_own_room),
        cmocka_unit_test(cooperative_launches_start_whole),
        cmocka_unit_test(each_context_accounts_for_itself),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
