/* What control flow promises that nvcc's own output seldom asks for: dynamic stack, tables, barriers by number, grids
 * that wait for all their blocks; and what ends a launch. */
#include "cpu/softgpu/ptx/test.h"

#include <fenv.h>
#include <stdio.h>
#include <string.h>

#define REGISTERS                                                                                                      \
    ".reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<9>;\nld.param.u64 %rd1, [out];\n"                              \
    "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd1, %rd2;\n"
#define KERNEL(text) ".visible .entry k(.param .u64 out) {\n" REGISTERS text "\nret; }\n"

static uint32_t *out; /* 256 words of device memory, zeroed */

static void load(const char *text)
{
    if (flyt_ptx_harness_load(&harness, text) != CUDA_SUCCESS)
        fail_msg("%s", harness.diag.text);
    out = flyt_ptx_harness_alloc(&harness, 256 * sizeof *out);
}

static CUresult run(uint32_t grid, uint32_t block)
{
    return FLYT_PTX_RUN(&harness, "k", grid, block, (uint64_t)(uintptr_t)out);
}

/* Two pieces at once, and one in each round of a loop that gives it back: far more in all than a stack holds. */
static void stack_is_given_out_and_back(void **state)
{
    (void)state;
    load(HEAD KERNEL("alloca.u64 %rd3, 40;\nalloca.u64 %rd4, 24;\n"
                     "st.local.u32 [%rd3], %r1;\nst.local.u32 [%rd3+36], 7;\n"
                     "st.local.u32 [%rd4], 1000;\nst.local.u32 [%rd4+20], 9;\nmov.u32 %r2, 0;\n"
                     "ROUND: stacksave.u64 %rd5;\nalloca.u64 %rd6, 4096;\nst.local.u32 [%rd6], %r2;\n"
                     "st.local.u32 [%rd6+4092], %r2;\nstackrestore.u64 %rd5;\n"
                     "add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 1000;\n@%p1 bra ROUND;\n"
                     "ld.local.u32 %r3, [%rd3];\nld.local.u32 %r4, [%rd3+36];\nld.local.u32 %r5, [%rd4];\n"
                     "ld.local.u32 %r6, [%rd4+20];\nadd.u32 %r3, %r3, %r4;\nadd.u32 %r3, %r3, %r5;\n"
                     "add.u32 %r3, %r3, %r6;\nst.global.u32 [%rd2], %r3;"));
    assert_int_equal(run(1, 64), CUDA_SUCCESS);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(out[i], i + 7 + 1000 + 9);
    load(HEAD KERNEL("mov.u64 %rd3, 1099511627776;\nalloca.u64 %rd4, %rd3;"));
    assert_int_equal(run(1, 1), CUDA_ERROR_LAUNCH_FAILED);
}

enum { TAIL = 200 };

/* Lanes that a table has sent apart come together behind it: the long tail is executed once and not once per target. */
static void lanes_meet_behind_a_table(void **state)
{
    static char text[16384];
    size_t used;

    (void)state;
    used = (size_t)snprintf(text, sizeof text, "%s",
                            HEAD ".visible .entry k(.param .u64 out) {\n" REGISTERS
                                 "and.b32 %r2, %r1, 3;\nT: .branchtargets A, B, C, D;\nbrx.idx %r2, T;\n"
                                 "A: mov.u32 %r3, 10;\nbra JOIN;\nB: mov.u32 %r3, 20;\nbra JOIN;\n"
                                 "C: mov.u32 %r3, 30;\nbra JOIN;\nD: mov.u32 %r3, 40;\nJOIN:\n");
    for (unsigned i = 0; i < TAIL; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "add.u32 %%r3, %%r3, 1;\n");
    snprintf(text + used, sizeof text - used, "st.global.u32 [%%rd2], %%r3;\nret; }\n");
    load(text);
    assert_int_equal(run(1, 32), CUDA_SUCCESS);
    for (unsigned i = 0; i < 32; i++)
        assert_int_equal(out[i], 10 * ((i & 3) + 1) + TAIL);
    assert_in_range(harness.counts.warp_instructions, TAIL, 2 * TAIL);
}

/* The halves of two warps meet at barriers of their own: nobody may go on before the other warp's half has come. */
static void lanes_choose_their_barrier(void **state)
{
    (void)state;
    load(HEAD KERNEL(".shared .align 4 .b8 s[256];\nmov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.u32 %r4, %r2, %r3;\n"
                     "add.u32 %r5, %r1, 500;\nst.shared.u32 [%r4], %r5;\n"
                     "shr.u32 %r6, %r1, 4;\nand.b32 %r6, %r6, 1;\nadd.u32 %r6, %r6, 1;\nbarrier.sync %r6, 32;\n"
                     "xor.b32 %r3, %r3, 128;\nadd.u32 %r4, %r2, %r3;\nld.shared.u32 %r5, [%r4];\n"
                     "st.global.u32 [%rd2], %r5;"));
    assert_int_equal(run(1, 64), CUDA_SUCCESS);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(out[i], (i ^ 32) + 500);
}

/* More blocks than a device of 132 SMs holds at once with 32 on each: one worker must hold all of them. */
static void a_grid_waits_for_all_its_blocks(void **state)
{
    enum { BLOCKS = 132 * 32 + 500 };

    (void)state;
    load(HEAD KERNEL("setp.ne.u32 %p1, %r1, 0;\n@%p1 bra END;\natom.global.add.u32 %r2, [%rd1], 1;\n"
                     "AGAIN: ld.volatile.global.u32 %r3, [%rd1];\nmov.u32 %r4, %nctaid.x;\n"
                     "setp.lt.u32 %p2, %r3, %r4;\n@%p2 bra AGAIN;\nEND:"));
    harness.is_cooperative = true;
    assert_int_equal(run(BLOCKS, 32), CUDA_SUCCESS);
    harness.is_cooperative = false;
    assert_int_equal(out[0], BLOCKS);
}

static void what_cannot_go_on_ends_the_launch(void **state)
{
    static const struct {
        const char *text;
        CUresult result;
    } cases[] = {
        {KERNEL("mov.u32 %r2, 2;\nT: .branchtargets A, B;\nbrx.idx %r2, T;\nA:\nB:"), CUDA_ERROR_INVALID_PC},
        {KERNEL("mov.u64 %rd3, 4096;\nP: .callprototype _ ();\ncall %rd3, (), P;"), CUDA_ERROR_INVALID_PC},
        {".func f() { call f, (); ret; }\n" KERNEL("call f, ();"), CUDA_ERROR_LAUNCH_FAILED},
        {KERNEL("trap;"), CUDA_ERROR_ILLEGAL_INSTRUCTION},
        {KERNEL("bar.sync 16;"), CUDA_ERROR_ILLEGAL_INSTRUCTION},
        {KERNEL("ld.global.u32 %r2, [%rd1+2];"), CUDA_ERROR_MISALIGNED_ADDRESS},
        {KERNEL("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1+8];"), CUDA_ERROR_MISALIGNED_ADDRESS},
        {KERNEL("mov.u64 %rd3, 0;\nld.u32 %r2, [%rd3];"), CUDA_ERROR_ILLEGAL_ADDRESS},
        {KERNEL("mov.u64 %rd3, -4;\natom.add.u32 %r2, [%rd3], 1;"), CUDA_ERROR_ILLEGAL_ADDRESS},
        {KERNEL(".shared .u32 s;\nmov.u32 %r2, s;\nst.shared.u32 [%r2+4], 1;"), CUDA_ERROR_ILLEGAL_ADDRESS},
        {KERNEL(".shared .u32 s;\nmov.u32 %r2, s;\nld.shared.u32 %r3, [%r2+-4];"), CUDA_ERROR_ILLEGAL_ADDRESS},
        {KERNEL(".local .u32 x;\nmov.u64 %rd3, x;\nst.local.u32 [%rd3+1048576], 1;"), CUDA_ERROR_ILLEGAL_ADDRESS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        CUresult result;

        snprintf(text, sizeof text, "%s%s", HEAD, cases[i].text);
        load(text);
        result = run(1, 32);
        if (result != cases[i].result)
            fail_msg("case %zu: %d", i, (int)result);
    }
}

/* Sums of f32 in memory take subnormals for zeros, in shared memory they keep them: what an H200 left behind. */
static void sums_in_memory_flush_subnormals(void **state)
{
    static const struct {
        uint32_t before, after;
        const char *addend;
    } cases[] = {{1, 0, "0f00000001"},
                 {0x00800001, 0, "0f80800000"},
                 {0x80000001, 0x80000000, "0f80000001"},
                 {1, 0, "0f80000000"},
                 {0x3f800000, 0x40000000, "0f3f800000"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];

        snprintf(text, sizeof text,
                 "%satom.global.add.f32 %%f1, [%%rd1], %s;\nmov.b32 %%r2, %%f1;\nst.global.u32 [%%rd1+4], %%r2;\n"
                 "red.add.f32 [%%rd1+8], %s;\nret; }\n",
                 HEAD ".visible .entry k(.param .u64 out) {\n.reg .f32 %f<2>;\n" REGISTERS, cases[i].addend,
                 cases[i].addend);
        load(text);
        out[0] = out[2] = cases[i].before;
        assert_int_equal(run(1, 1), CUDA_SUCCESS);
        assert_int_equal(out[0], cases[i].after);
        assert_int_equal(out[1], cases[i].before);
        assert_int_equal(out[2], cases[i].after);
    }
    load(HEAD KERNEL(".shared .align 4 .b32 s[2];\n.reg .f32 %f<2>;\nst.shared.u32 [s+4], 1;\n"
                     "mov.u64 %rd3, s;\ncvta.shared.u64 %rd3, %rd3;\n"
                     "atom.shared.add.f32 %f1, [s+4], 0f00000001;\natom.add.f32 %f1, [%rd3+4], 0f00000001;\n"
                     "ld.shared.u32 %r2, [s+4];\nst.global.u32 [%rd1], %r2;"));
    assert_int_equal(run(1, 1), CUDA_SUCCESS);
    assert_int_equal(out[0], 3);
}

/* Threads inherit the floating-point environment of whoever makes them, and programs set it as they like. */
static void rounding_is_not_the_programs(void **state)
{
    static struct flyt_ptx_harness other;
    uint64_t one = 0x3f800000, little = 0x33000000 /* 2^-25 */, sum = 0;

    (void)state;
    assert_int_equal(fesetround(FE_UPWARD), 0);
    flyt_ptx_harness_init(&other, 1);
    fesetround(FE_TONEAREST);
    assert_int_equal(flyt_ptx_harness_apply(&other, "add.f32", "f=ff", 1, &one, &little, NULL, &sum), CUDA_SUCCESS);
    flyt_ptx_harness_fini(&other);
    assert_int_equal(sum, one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stack_is_given_out_and_back),     cmocka_unit_test(lanes_meet_behind_a_table),
        cmocka_unit_test(lanes_choose_their_barrier),      cmocka_unit_test(what_cannot_go_on_ends_the_launch),
        cmocka_unit_test(a_grid_waits_for_all_its_blocks), cmocka_unit_test(rounding_is_not_the_programs),
        cmocka_unit_test(sums_in_memory_flush_subnormals),
    };

    return RUN_WITH_EACH_ISA(tests, set_up);
}
