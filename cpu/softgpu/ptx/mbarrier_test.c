/* mbarrier, cp.async, and what memory instructions say about caches; vectors of atomic operations. */
#include "cpu/softgpu/ptx/test.h"

#include <stdio.h>
#include <string.h>

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

/* %r2 and %rd2 are the barrier (shared and generic address), %r3 where data goes, %rd1 is out, %r1 the thread. */
#define KERNEL(body)                                                                                                   \
    ".version 8.6\n.target sm_90\n.address_size 64\n"                                                                  \
    ".shared .align 8 .b64 bars[4];\n.shared .align 128 .b8 data[4096];\n"                                             \
    ".visible .entry k(.param .u64 out, .param .u64 in, .param .u32 number) {\n"                                       \
    ".reg .b16 %h<16>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<16>; .reg .pred %p<16>;\n"                    \
    "ld.param.u64 %rd1, [out]; ld.param.u64 %rd3, [in]; ld.param.u32 %r4, [number]; mov.u32 %r1, %tid.x;\n"            \
    "mov.u32 %r2, bars; mov.u32 %r3, data; cvt.u64.u32 %rd2, %r2; cvta.shared.u64 %rd2, %rd2;\n"                       \
    "mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %rd1, %rd4;\n" body "ret; }\n"
#define PUT_PRED(p, at)   "selp.u32 %r30, 1, 0, " p "; st.global.u32 [%rd1+" at "], %r30;\n"
#define PUT(r, at)        "st.global.u32 [%rd1+" at "], " r ";\n"
#define TEST_STATE(s, at) "mbarrier.test_wait.shared.b64 %p1, [%r2], " s ";\n" PUT_PRED("%p1", at)
#define TEST_PARITY(parity, at)                                                                                        \
    "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r2], " parity ";\n" PUT_PRED("%p1", at)

static uint32_t *out; /* 1024 words, zeroed by run */
static char *in;      /* 4096 bytes, counted through by 1 */

static int set_up_memory(void **state)
{
    set_up(state);
    out = flyt_ptx_harness_alloc(&harness, 4096);
    in = flyt_ptx_harness_alloc(&harness, 4096);
    for (unsigned i = 0; i < 4096; i++)
        in[i] = (char)(i % 251 + 1);
    return 0;
}

static CUresult run_at(const char *kernel, unsigned threads, uint64_t from, uint32_t number)
{
    if (flyt_ptx_harness_load(&harness, kernel) != CUDA_SUCCESS)
        fail_msg("%s", harness.diag.text);
    memset(out, 0, 4096);
    return FLYT_PTX_RUN(&harness, "k", 1, threads, ADDRESS(out), from, number);
}

#define RUN(kernel, threads, number)                                                                                   \
    assert_int_equal(run_at(kernel, threads, ADDRESS(in), (uint32_t)(number)), CUDA_SUCCESS)

static void check_words(const uint32_t *wanted, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (out[i] != wanted[i])
            fail_msg("result %u is %u, expected %u", i, out[i], wanted[i]);
}

/* ---- barriers ---- */

static void phases_end_with_their_last_arrival(void **state)
{
    // clang-format off
    static const char kernel[] = KERNEL(
        "mbarrier.init.shared.b64 [%r2], 3;\n" /* phase 0 */
        "mbarrier.arrive.shared.b64 %rd10, [%r2];\n"
        TEST_STATE("%rd10", "0")               /* no */
        "mbarrier.pending_count.b64 %r10, %rd10;\n"
        PUT("%r10", "4")                       /* 3 before it */
        "mbarrier.arrive.b64 %rd11, [%rd2];\n"
        TEST_PARITY("0", "8")                  /* no */
        TEST_PARITY("1", "12")                 /* the one before is over */
        "mbarrier.pending_count.b64 %r10, %rd11;\n"
        PUT("%r10", "16")                      /* 2 */
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r2], 1;\n"
        TEST_STATE("%rd11", "20")              /* yes */
        TEST_PARITY("0", "24")                 /* yes */
        TEST_PARITY("1", "28")                 /* no */
        "mbarrier.arrive.noComplete.shared.b64 %rd12, [%r2], 2;\n"
        TEST_STATE("%rd12", "32")              /* no */
        "mbarrier.arrive_drop.shared.b64 _, [%r2];\n"
        TEST_STATE("%rd12", "36")              /* yes; two from now on */
        "mbarrier.arrive.shared.b64 %rd13, [%r2], 2;\n"
        "mbarrier.pending_count.b64 %r10, %rd13;\n"
        PUT("%r10", "40")                      /* 2 */
        TEST_STATE("%rd13", "44")              /* yes */
        "mbarrier.inval.shared.b64 [%r2];\n");
    // clang-format on
    static const uint32_t wanted[] = {0, 3, 0, 1, 2, 1, 1, 0, 0, 1, 2, 1};

    (void)state;
    RUN(kernel, 1, 0);
    check_words(wanted, 12);
}

static void bytes_that_are_awaited_hold_a_phase(void **state)
{
    // clang-format off
    static const char kernel[] = KERNEL(
        "mbarrier.init.shared.b64 [%r2], 1;\n"
        "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd10, [%r2], %r4;\n"
        TEST_STATE("%rd10", "0")
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 100;\n"
        TEST_STATE("%rd10", "4")
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 412;\n"
        TEST_STATE("%rd10", "8") /* phase 1 */
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 16;\n"
        TEST_PARITY("1", "12")
        "mbarrier.arrive.shared.b64 _, [%r2];\n"
        TEST_PARITY("1", "16")
        "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r2], 16;\n"
        TEST_PARITY("1", "20") /* phase 2: bytes may come before they are awaited */
        "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 8;\n"
        TEST_PARITY("0", "24")
        "mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 8;\n"
        TEST_PARITY("0", "28"));
    // clang-format on
    static const uint32_t wanted[] = {0, 0, 1, 0, 0, 1, 0, 1};

    (void)state;
    RUN(kernel, 1, 512);
    check_words(wanted, 8);
}

/* All threads of four warps meet eight times; what each wrote before is there for all others behind. */
static void warps_meet_at_a_barrier(void **state)
{
    static const char kernel[] =
        KERNEL("setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [%r2], 128; bar.sync 0; mov.u32 %r10, 0;\n"
               "mul.lo.u32 %r11, %r1, 4; add.u32 %r11, %r11, %r3; xor.b32 %r12, %r1, 127; mul.lo.u32 %r12, %r12, 4;\n"
               "add.u32 %r12, %r12, %r3; mov.u32 %r15, 0;\n"
               "ROUND: add.u32 %r13, %r10, %r1; st.shared.u32 [%r11], %r13;\n"
               "mbarrier.arrive.shared.b64 _, [%r2]; and.b32 %r14, %r10, 1;\n"
               "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], %r14, 1000; @!%p2 bra WAIT;\n"
               "ld.shared.u32 %r13, [%r12]; add.u32 %r15, %r15, %r13;\n"
               "add.u32 %r11, %r11, 512; add.u32 %r12, %r12, 512;\n" /* elsewhere: nobody waits for the reading */
               "add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 8; @%p3 bra ROUND;\n"
               "st.global.u32 [%rd5], %r15;\n");

    (void)state;
    RUN(kernel, 128, 0);
    for (uint32_t i = 0; i < 128; i++)
        assert_int_equal(out[i], 8 * (127 - i) + 28);
}

/* One lane of a warp waits for the others, which come to arrive only later. */
static void lanes_of_a_warp_wait_for_each_other(void **state)
{
    static const char kernel[] =
        KERNEL("setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [%r2], 31; bar.warp.sync -1; @!%p1 bra ARRIVE;\n"
               "WAIT: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra WAIT;\n"
               "ld.shared.u32 %r10, [%r3]; st.global.u32 [%rd1], %r10; bra END;\n"
               "ARRIVE: mov.u32 %r11, 7; st.shared.u32 [%r3], %r11; mbarrier.arrive.shared.b64 _, [%r2];\n"
               "END:\n");

    (void)state;
    RUN(kernel, 32, 0);
    assert_int_equal(out[0], 7);
}

static void barriers_at_bad_addresses_are_faults(void **state)
{
    static const char *const kernels[] = {
        KERNEL("add.u32 %r2, %r2, %r4; mbarrier.init.shared.b64 [%r2], 1;\n"),
        KERNEL("add.u32 %r2, %r2, %r4; mbarrier.arrive.shared.b64 _, [%r2];\n"),
        KERNEL("cvt.u64.u32 %rd6, %r4; add.u64 %rd2, %rd2, %rd6; mbarrier.arrive.b64 %rd10, [%rd2];\n"),
        KERNEL("add.u32 %r2, %r2, %r4; mbarrier.test_wait.parity.shared.b64 %p1, [%r2], 0;\n"),
        KERNEL("add.u32 %r2, %r2, %r4; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 0;\n"),
        KERNEL("add.u32 %r2, %r2, %r4; mbarrier.inval.shared.b64 [%r2];\n"),
        KERNEL("add.u32 %r2, %r2, %r4; cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];\n"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        RUN(kernels[i], 32, 8);
        assert_int_equal(run_at(kernels[i], 32, 0, 4), CUDA_ERROR_MISALIGNED_ADDRESS);
        assert_int_equal(run_at(kernels[i], 32, 0, 1 << 20), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    /* A generic address of global memory, or of a thread's own. */
    assert_int_equal(run_at(KERNEL("mbarrier.init.b64 [%rd1], 1;\n"), 1, 0, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run_at(KERNEL(".local .b64 own; mov.u64 %rd6, own; cvta.local.u64 %rd6, %rd6;\n"
                                   "mbarrier.init.b64 [%rd6], 1;\n"),
                            1, 0, 0),
                     CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* ---- cp.async ---- */

/* Thread i copies at 16 i, in shared memory (%r10), which is all ones, and in `in` (%rd11); %p1 is true of odd ones. */
#define COPY(instruction)                                                                                              \
    KERNEL("mul.lo.u32 %r10, %r1, 16; add.u32 %r10, %r10, %r3; mul.wide.u32 %rd10, %r1, 16;\n"                         \
           "add.u64 %rd11, %rd3, %rd10; mov.u64 %rd12, 0; and.b32 %r12, %r1, 1; setp.eq.u32 %p1, %r12, 1;\n"           \
           "mov.u32 %r11, -1; st.shared.v4.u32 [%r10], {%r11,%r11,%r11,%r11};\n" instruction                           \
           "\ncp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;\n"                                      \
           "ld.shared.v4.u32 {%r20,%r21,%r22,%r23}, [%r10]; add.u64 %rd10, %rd10, %rd1;\n"                             \
           "st.global.v4.u32 [%rd10], {%r20,%r21,%r22,%r23};\n")

/* `bytes` are written, of which `read` come from memory; the rest of sixteen is as it was. */
static void check_copies(unsigned bytes, unsigned read, bool odd_ignores)
{
    const unsigned char *got = (const unsigned char *)out;

    for (unsigned thread = 0; thread < 32; thread++)
        for (unsigned i = 0; i < 16; i++) {
            unsigned at = thread * 16 + i, copied = odd_ignores && thread & 1 ? 0 : read;
            unsigned wanted = i >= bytes ? 0xff : i >= copied ? 0 : (unsigned char)in[at];

            if (got[at] != wanted)
                fail_msg("thread %u, byte %u of %u, %u read: %u, expected %u", thread, i, bytes, read, got[at], wanted);
        }
}

static void copies_are_made(void **state)
{
    static const struct {
        const char *kernel;
        unsigned bytes;
        bool is_sized, odd_ignores;
    } cases[] = {
        {COPY("cp.async.ca.shared.global [%r10], [%rd11], 4;"), 4, false, false},
        {COPY("cp.async.ca.shared::cta.global.L2::64B [%r10], [%rd11], 8;"), 8, false, false},
        {COPY("cp.async.ca.shared.global.L2::128B [%r10], [%rd11], 16;"), 16, false, false},
        {COPY("cp.async.cg.shared.global.L2::256B [%r10+0], [%rd11+0], 0x10;"), 16, false, false},
        {COPY("cp.async.ca.shared.global [%r10], [%rd11], 4, %r4;"), 4, true, false},
        {COPY("cp.async.ca.shared.global [%r10], [%rd11], 8, %r4;"), 8, true, false},
        {COPY("cp.async.cg.shared.global [%r10], [%rd11], 16, %r4;"), 16, true, false},
        {COPY("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%r10], [%rd11], 16, %r4, %rd12;"), 16, true, false},
        {COPY("cp.async.cg.shared.global.L2::cache_hint [%r10], [%rd11], 16, %rd12;"), 16, false, false},
        {COPY("cp.async.ca.shared.global [%r10], [%rd11], 4, %p1;"), 4, false, true},
        {COPY("cp.async.cg.shared.global [%r10], [%rd11], 16, %p1;"), 16, false, true},
        {COPY("cp.async.cg.shared.global.L2::cache_hint [%r10], [%rd11], 16, %p1, %rd12;"), 16, false, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned size = 0; size <= (cases[i].is_sized ? 20u : 0u); size++) {
            unsigned most = size < cases[i].bytes ? size : cases[i].bytes;

            RUN(cases[i].kernel, 32, size);
            check_copies(cases[i].bytes, cases[i].is_sized ? most : cases[i].bytes, cases[i].odd_ignores);
        }
}

static void copies_at_bad_addresses_are_faults(void **state)
{
    static const char plain[] = COPY("cp.async.cg.shared.global [%r10], [%rd11], 16;");
    static const char sized[] = COPY("cp.async.cg.shared.global [%r10], [%rd11], 16, %r4;");
    static const char ignoring[] = COPY("setp.eq.u32 %p1, %r1, %r1;"
                                        "cp.async.cg.shared.global [%r10], [%rd11], 16, %p1;");
    static const char beyond[] = COPY("add.u32 %r13, %r10, %r4; cp.async.ca.shared.global [%r13], [%rd11], 8;");

    (void)state;
    assert_int_equal(run_at(plain, 32, ADDRESS(in) + 8, 0), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_int_equal(run_at(plain, 32, 0, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run_at(sized, 32, 0, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run_at(sized, 32, 0, 0), CUDA_SUCCESS); /* nothing is read */
    check_copies(16, 0, false);
    assert_int_equal(run_at(ignoring, 32, 0, 0), CUDA_SUCCESS);
    check_copies(16, 0, false);
    RUN(beyond, 32, 8);
    assert_int_equal(run_at(beyond, 32, ADDRESS(in), 4), CUDA_ERROR_MISALIGNED_ADDRESS);
    assert_int_equal(run_at(beyond, 32, ADDRESS(in), 1 << 20), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Without .noinc the arrival is one more than the phase waits for; with it, it is one of those. */
static void copies_arrive_at_barriers(void **state)
{
    // clang-format off
    static const char kernel[] = KERNEL(
        "mbarrier.init.shared.b64 [%r2], 2;\n"
        "cp.async.ca.shared.global [%r3], [%rd3], 4; cp.async.mbarrier.arrive.b64 [%rd2];\n"
        TEST_PARITY("0", "0")
        "mbarrier.arrive.shared.b64 _, [%r2];\n"
        TEST_PARITY("0", "4")
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];\n"
        TEST_PARITY("0", "8")
        "ld.shared.u32 %r10, [%r3];\n"
        PUT("%r10", "12"));
    // clang-format on
    uint32_t first;

    (void)state;
    memcpy(&first, in, sizeof first);
    RUN(kernel, 1, 0);
    check_words((const uint32_t[]){0, 0, 1, first}, 4);
}

/* ---- hints, policies, vectors ---- */

static void hints_change_nothing(void **state)
{
    static const char kernel[] = KERNEL(
        "createpolicy.fractional.L2::evict_last.b64 %rd10, 1.0;\n"
        "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %rd11, 0.5;\n"
        "createpolicy.fractional.L2::evict_normal.b64 %rd11;\n"
        "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd12, [%rd3], 64, 128;\n"
        "createpolicy.cvt.L2.b64 %rd13, %rd10;\n"
        "ld.global.L1::evict_last.L2::cache_hint.L2::128B.u32 %r10, [%rd3], %rd10;\n"
        "ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%r11,%r12,%r13,%r14}, [%rd3], %rd11;\n"
        "st.global.L1::no_allocate.L2::cache_hint.v2.u32 [%rd1], {%r10,%r12}, %rd12;\n"
        "red.global.add.L2::cache_hint.u32 [%rd1+8], %r13, %rd13;\n"
        "atom.global.add.L2::cache_hint.u32 %r15, [%rd1+8], 5, %rd13; st.global.u32 [%rd1+12], %r15;\n"
        "st.shared::cluster.u32 [%r3], %r14; ld.shared::cluster.u32 %r16, [%r3]; st.global.u32 [%rd1+16], %r16;\n");
    uint32_t words[4];

    (void)state;
    memcpy(words, in, sizeof words);
    RUN(kernel, 1, 0);
    check_words((const uint32_t[]){words[0], words[1], words[2] + 5, words[2], words[3]}, 5);
}

static void vectors_are_added_by_element(void **state)
{
    static const char kernel[] = KERNEL(
        "mov.f32 %f1, 0f3f800000; mov.f32 %f2, 0f40000000; mov.f32 %f3, 0f40400000; mov.f32 %f4, 0f40800000;\n"
        "mov.u32 %r10, 0x40003c00; mov.u32 %r11, 0x3c004000;\n"
        "red.global.v4.f32.add [%rd1], {%f1,%f2,%f3,%f4};\n"
        "red.relaxed.gpu.global.add.noftz.v2.f16x2 [%rd1+16], {%r10,%r11};\n"
        "setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 atom.global.v2.f32.add {%f5,%f6}, [%rd1+24], {%f3,%f4};\n"
        "@%p1 mov.f32 %f6, %f1; @%p1 mov.f32 %f5, %f1; @%p1 atom.global.v2.f32.add {%f5,%f6}, [%rd1+24], {%f6,%f5};\n"
        "@%p1 st.global.f32 [%rd1+32], %f5; @%p1 st.global.f32 [%rd1+36], %f6;\n");

    (void)state;
    RUN(kernel, 32, 0);
    check_words((const uint32_t[]){0x42000000, 0x42800000, 0x42c00000, 0x43000000, 0x54005000, 0x50005400, 0x40800000,
                                   0x40a00000, 0x40400000, 0x40800000},
                10);
}

static void others_are_refused_by_name(void **state)
{
    static const char *const instructions[] = {
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd3], 128, [%r2];",
        "cp.async.bulk.commit_group;",
        "cp.async.wgmma.arrive;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r3], 128;",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %r1, [%r2];",
        "mbarrier.arrive.shared.b32 %r10, [%r2];",
        "mbarrier.try_cancel.shared.b64 [%r2];",
        "mbarrier.inval [%r2];",
        "mbarrier.inval.b64.shared [%r2];",
        "barrier.cluster.arrive.aligned;",
        "mapa.shared::cluster.u32 %r10, %r2, 0;",
        "red.global.v8.bf16.max.noftz [%rd1], {%h0,%h1,%h2,%h3,%h4,%h5,%h6,%h7};",
    };
    char text[4096];

    (void)state;
    for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++) {
        char name[128];

        snprintf(name, sizeof name, "%.*s is not supported", (int)strcspn(instructions[i], " ;"), instructions[i]);
        snprintf(text, sizeof text, "%s", KERNEL("INSERT"));
        snprintf(strstr(text, "INSERT"), 512, "%s ret; }\n", instructions[i]);
        assert_int_equal(flyt_ptx_harness_load(&harness, text), CUDA_ERROR_NOT_SUPPORTED);
        if (!strstr(harness.diag.text, name))
            fail_msg("%s: %s", name, harness.diag.text);
    }
    assert_int_equal(flyt_ptx_harness_load(&harness, KERNEL("cp.async.cg.shared.global [%r3], [%rd3], 8;\n")),
                     CUDA_ERROR_INVALID_PTX);
    assert_int_equal(flyt_ptx_harness_load(&harness, KERNEL("ld.global.L2::cache_hint.u32 %r10, [%rd3], %r11;\n")),
                     CUDA_ERROR_INVALID_PTX);
    assert_int_equal(flyt_ptx_harness_load(&harness, KERNEL("ld.global.u32 %r10, [%rd3], %rd11;\n")),
                     CUDA_ERROR_INVALID_PTX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_end_with_their_last_arrival),
        cmocka_unit_test(bytes_that_are_awaited_hold_a_phase),
        cmocka_unit_test(warps_meet_at_a_barrier),
        cmocka_unit_test(lanes_of_a_warp_wait_for_each_other),
        cmocka_unit_test(barriers_at_bad_addresses_are_faults),
        cmocka_unit_test(copies_are_made),
        cmocka_unit_test(copies_at_bad_addresses_are_faults),
        cmocka_unit_test(copies_arrive_at_barriers),
        cmocka_unit_test(hints_change_nothing),
        cmocka_unit_test(vectors_are_added_by_element),
        cmocka_unit_test(others_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, set_up_memory, tear_down);
}
