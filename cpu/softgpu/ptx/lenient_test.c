/* What CUDA leaves undefined, and programs get away with on a GPU: they get away with it here, too. */
#include "cpu/softgpu/ptx/test.h"

#include <stdio.h>
#include <string.h>

enum { THREADS = 256, ROUNDS = 40 };

/* %r1 the thread, %rd2 its place in `out`, %r2 its place in s, %r3 that of the thread 32 further on. */
#define KERNEL(text)                                                                                                   \
    ".visible .entry k(.param .u64 out) {\n.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<9>;\n"                   \
    ".shared .align 4 .b8 s[1024];\nld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\n"     \
    "add.s64 %rd2, %rd1, %rd2;\nmov.u32 %r2, s;\nadd.u32 %r4, %r1, 32;\nand.b32 %r4, %r4, 255;\n"                      \
    "mad.lo.u32 %r3, %r4, 4, %r2;\nmad.lo.u32 %r2, %r1, 4, %r2;\n" text "\nst.global.u32 [%rd2], %r10;\nret; }\n"

static uint32_t *out;

static void run(const char *text, uint32_t threads)
{
    if (flyt_ptx_harness_load(&harness, text) != CUDA_SUCCESS)
        fail_msg("%s", harness.diag.text);
    out = flyt_ptx_harness_alloc(&harness, THREADS * sizeof *out);
    assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, threads, (uint64_t)(uintptr_t)out), CUDA_SUCCESS);
}

/* Written, barrier, read, and written again at once: the second barrier is missing. */
static void a_missing_second_barrier_does_not_show(void **state)
{
    (void)state;
    run(HEAD KERNEL("mov.u32 %r10, 0;\nmov.u32 %r5, 0;\n"
                    "ROUND: mad.lo.u32 %r6, %r5, 1000, %r1;\nst.shared.u32 [%r2], %r6;\nbar.sync 0;\n"
                    "ld.shared.u32 %r7, [%r3];\nadd.u32 %r10, %r10, %r7;\n"
                    "add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, 40;\n@%p1 bra ROUND;"),
        THREADS);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(out[i], ((i + 32) & 255) * ROUNDS + 1000 * ROUNDS * (ROUNDS - 1) / 2);
}

/* The same with the read and the write behind it in one piece of code without a branch. */
static void nor_where_nothing_branches(void **state)
{
    (void)state;
    run(HEAD KERNEL("st.shared.u32 [%r2], %r1;\nbar.sync 0;\n"
                    "ld.shared.u32 %r10, [%r3];\nadd.u32 %r10, %r10, 1;\nst.shared.u32 [%r2], %r10;\nbar.sync 0;\n"
                    "ld.shared.u32 %r5, [%r3];\nmad.lo.u32 %r10, %r5, 1000, %r10;\nst.shared.u32 [%r2], %r10;"),
        THREADS);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(out[i], (((i + 64) & 255) + 1) * 1000 + ((i + 32) & 255) + 1);
}

/* As in a matrix product by tiles: each thread reads 16 of the others' before it writes again. */
static void nor_after_a_loop(void **state)
{
    (void)state;
    run(HEAD KERNEL("mov.u32 %r10, 0;\nmov.u32 %r5, 0;\nmov.u32 %r11, s;\n"
                    "ROUND: mad.lo.u32 %r6, %r5, 1000, %r1;\nst.shared.u32 [%r2], %r6;\nbar.sync 0;\n"
                    "mov.u32 %r8, 0;\n"
                    "INNER: mad.lo.u32 %r9, %r8, 16, %r1;\nand.b32 %r9, %r9, 255;\nmad.lo.u32 %r9, %r9, 4, %r11;\n"
                    "ld.shared.u32 %r7, [%r9];\nadd.u32 %r10, %r10, %r7;\n"
                    "add.u32 %r8, %r8, 1;\nsetp.lt.u32 %p1, %r8, 16;\n@%p1 bra INNER;\n"
                    "add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, 40;\n@%p1 bra ROUND;"),
        THREADS);
    for (uint32_t i = 0; i < THREADS; i++) {
        uint32_t want = 0;

        for (uint32_t round = 0; round < ROUNDS; round++)
            for (uint32_t k = 0; k < 16; k++)
                want += round * 1000 + ((i + 16 * k) & 255);
        assert_int_equal(out[i], want);
    }
}

/* Lane i votes with its low bit's inverse. */
#define VOTE(mask) "and.b32 %r5, %r1, 1;\nsetp.eq.u32 %p1, %r5, 0;\n" mask "vote.sync.ballot.b32 %r10, %p1, %r6;"

static void ballots_without_the_caller(void **state)
{
    (void)state;
    run(HEAD KERNEL(VOTE("mov.u32 %r6, %lanemask_lt;\n")), 32);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], 0x55555555u & ((1u << i) - 1));
    run(HEAD KERNEL(VOTE("mov.u32 %r6, %lanemask_ge;\n")), 32);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], 0x55555555u & ~((1u << i) - 1));
    run(HEAD KERNEL(VOTE("mov.u32 %r6, 0x0000f0f0;\n")), 32);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], 0x00005050);
    /* The upper half alone, which its mask does not name. */
    run(HEAD KERNEL("mov.u32 %r10, 77;\nsetp.lt.u32 %p2, %r1, 16;\n@%p2 bra DONE;\n" VOTE(
            "mov.u32 %r6, 0x0000ffff;\n") "\nDONE:"),
        32);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], i < 16 ? 77 : 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_second_barrier_does_not_show),
        cmocka_unit_test(nor_where_nothing_branches),
        cmocka_unit_test(nor_after_a_loop),
        cmocka_unit_test(ballots_without_the_caller),
    };

    return RUN_WITH_EACH_ISA(tests, set_up);
}
