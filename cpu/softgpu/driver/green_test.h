/* What the tests of partitions share: green contexts, and kernels that tell where they run. */
#ifndef FLYT_SOFTGPU_DRIVER_GREEN_TEST_H
#define FLYT_SOFTGPU_DRIVER_GREEN_TEST_H

#include "cpu/softgpu/driver/account.h"
#include "cpu/softgpu/driver/test.h"

/*
 * where: each block writes %smid to word [2 * block], %nsmid behind it.
 * crowd: words are: running blocks, the most at once, blocks that are done. Each stays until more than `v` run at once,
 * or for a few hundred slices of a worker, so that all that may start do.
 * meet: each thread waits until `v` have come, in a loop whose turns are long.
 * count: turns a loop of three instructions `v` times.
 */
#define TURN "add.u32 %c, %c, 1;\nxor.b32 %c, %c, %b;\nadd.u32 %c, %c, 3;\nxor.b32 %c, %c, 5;\n"
static const char green_ptx[] = ".version 9.0\n.target sm_75\n.address_size 64\n" TEST_KERNEL(
    "where", "mov.u32 %a, %ctaid.x;\nmul.wide.u32 %d, %a, 8;\nld.param.u64 %e, [p];\nadd.s64 %d, %d, %e;\n"
             "mov.u32 %a, %smid;\nst.global.u32 [%d], %a;\nmov.u32 %a, %nsmid;\nst.global.u32 [%d+4], %a;\n")
    TEST_KERNEL("crowd", "atom.global.add.u32 %a, [%d], 1;\nadd.u32 %a, %a, 1;\nred.global.max.u32 [%d+4], %a;\n"
                         "mov.u32 %c, 0;\n"
                         "again:\nld.volatile.global.u32 %a, [%d+4];\nsetp.gt.u32 %q, %a, %b;\n@%q bra out;\n"
                         "add.u32 %c, %c, 1;\nsetp.lt.u32 %q, %c, 20000;\n@%q bra again;\n"
                         "out:\nred.global.add.u32 [%d+8], 1;\nred.global.add.u32 [%d], -1;\n")
        TEST_KERNEL("meet", "red.global.add.u32 [%d], 1;\n"
                            "again:\n" TURN TURN TURN
                            "ld.volatile.global.u32 %a, [%d];\nsetp.lt.u32 %q, %a, %b;\n@%q bra again;\n")
            TEST_KERNEL("count", "again:\nadd.u32 %b, %b, -1;\nsetp.ne.u32 %q, %b, 0;\n@%q bra again;\n") TEST_KERNEL(
                "spin", "again:\nld.volatile.global.u32 %a, [%d];\nsetp.eq.s32 %q, %a, 0;\n@%q bra again;\n");

/* A green context of device 0 with groups `first` … first + count - 1 of 8 SMs each, and a stream of it. */
struct test_green {
    CUgreenCtx green;
    CUcontext ctx;
    CUstream stream;
};

static inline struct test_green test_green_new(unsigned first, unsigned count)
{
    CUdevResource all, groups[15];
    CUdevResourceDesc desc;
    struct test_green made;
    unsigned got = 15;

    assert_ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    assert_ok(cuDevSmResourceSplitByCount(groups, &got, &all, NULL, 0, 8));
    assert_int_equal(got, 15);
    assert_ok(cuDevResourceGenerateDesc(&desc, groups + first, count));
    assert_ok(cuGreenCtxCreate(&made.green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    assert_ok(cuCtxFromGreenCtx(&made.ctx, made.green));
    assert_ok(cuGreenCtxStreamCreate(&made.stream, made.green, CU_STREAM_NON_BLOCKING, 0));
    return made;
}

static inline void test_green_free(struct test_green *made)
{
    assert_ok(cuStreamDestroy(made->stream));
    assert_ok(cuGreenCtxDestroy(made->green));
}

static inline CUlibrary test_green_library(void)
{
    CUlibrary library;

    assert_ok(cuLibraryLoadData(&library, green_ptx, NULL, NULL, 0, NULL, NULL, 0));
    return library;
}

/* `blocks` blocks of `threads` threads on `memory`. */
static inline void test_run(CUfunction kernel, CUstream stream, unsigned blocks, unsigned threads,
                            unsigned shared_bytes, CUdeviceptr memory, uint32_t value)
{
    void *params[] = {&memory, &value};

    assert_ok(cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, params, NULL));
}

static inline CUdeviceptr test_words(unsigned count)
{
    CUdeviceptr words;

    assert_ok(cuMemAlloc(&words, 4 * count));
    assert_ok(cuMemsetD32(words, 0, count));
    return words;
}

/* What the context has used. */
static inline struct flyt_soft_account test_account(CUcontext ctx)
{
    static struct flyt_soft_account accounts[FLYT_SOFT_ACCOUNTS_MAX];
    unsigned count = flyt_soft_accounting(accounts, FLYT_SOFT_ACCOUNTS_MAX);
    unsigned long long id;

    assert_ok(cuCtxGetId(ctx, &id));
    for (unsigned i = 0; i < count; i++)
        if (accounts[i].context_id == id)
            return accounts[i];
    fail_msg("context %llu has no account", id);
    return accounts[0];
}

#endif
