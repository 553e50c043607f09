/* Which spellings of the video instructions are refused, and that nothing else takes parts of registers. What they
 * compute is compared with the manual in tests/apps/video.cu, whose spellings NVIDIA's assembler has seen. */
#include "cpu/softgpu/ptx/test.h"

#include <stdio.h>

static CUresult load(const char *instruction)
{
    char text[1024];

    snprintf(text, sizeof text,
             "%s.visible .entry k() {\n.reg .b32 %%r<9>; .reg .b16 %%h<9>; .reg .pred %%p<3>;\n%s\nret; }\n", HEAD,
             instruction);
    return flyt_ptx_harness_load(&harness, text);
}

static void spellings(void **state)
{
    static const char *const right[] = {
        "vadd.u32.s32.u32.sat %r1.b3, %r2.h0, 5, %r4;",
        "vmad.s32.s32.s32.shr15 %r1, -%r2, %r3.h1, %r4;",
        "vset4.u32.s32.ge.add %r1.b30, %r2.b7070, %r3, %r4;",
        "@%p1 vshl.u32.u32.u32.wrap.max %r1, %r2, %r3, %r4;",
        "mov.u16 %h1, %ntid.z;",
        "cvt.u32.u16 %r1, %nctaid.x;",
    };
    static const char *const wrong[] = {
        "vadd.u32.u32 %r1, %r2, %r3;",
        "vadd.u32.u32.u16 %r1, %r2, %r3;",
        "vadd.u32.u32.u32 %r1, %r2.b4, %r3;",
        "vadd.u32.u32.u32 %r1, %r2.h10, %r3;",
        "vadd.u32.u32.u32 %r1, %r2;",
        "vadd.u32.u32.u32 %r1, %r2, %r3, %r4;",
        "vadd.u32.u32.u32.add %r1.b0, %r2, %r3, %r4;",
        "vadd.u32.u32.u32.add %r1, %r2, %r3, %r4.b0;",
        "vadd.u32.u32.u32.shr7 %r1, %r2, %r3;",
        "vadd.u32.u32.u32 %r1, -%r2, %r3;",
        "vadd2.u32.u32.u32 %r1, %r2, %r3;",
        "vadd2.u32.u32.u32.min %r1, %r2, %r3, %r4;",
        "vadd2.u32.u32.u32.sat.add %r1, %r2, %r3, %r4;",
        "vadd2.u32.u32.u32 %r1, %r2.h4, %r3, %r4;",
        "vadd2.u32.u32.u32 %r1, %r2.h14, %r3, %r4;",
        "vadd2.u32.u32.u32 %r1.h01, %r2, %r3, %r4;",
        "vadd4.u32.u32.u32 %r1.b4, %r2, %r3, %r4;",
        "vadd4.u32.u32.u32 %r1, %r2.b8000, %r3, %r4;",
        "vadd4.u32.u32.u32 %r1, %r2.b32100, %r3, %r4;",
        "vshl.u32.u32.u32 %r1, %r2, %r3;",
        "vshl.u32.u32.s32.wrap %r1, %r2, %r3;",
        "vset.u32.u32 %r1, %r2, %r3;",
        "vset.u32.u32.lt.gt %r1, %r2, %r3;",
        "vmad.u32.u32.u32 %r1.b0, %r2, %r3, %r4;",
        "vmad.u32.u32.u32.po %r1, -%r2, %r3, %r4;",
        "vmad.u32.u32.u32 %r1, -%r2, %r3, -%r4;",
        "vavrg.u32.u32.u32 %r1, %r2, %r3;",
        "add.u32 %r1, %r2.b0, %r3;",
        "add.u32 %r1.h0, %r2, %r3;",
        "sub.u32 %r1, -%r2, %r3;",
        "mov.b32 %r1, {%h1.b0, %h2};",
        "ld.shared.u32 %r1, [%r2.h0];",
        "mov.u16 %h1, %laneid;",
        "add.u16 %h1, %tid.x, 1;",
    };

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        if (load(right[i]) != CUDA_SUCCESS)
            fail_msg("%s: %s", right[i], harness.diag.text);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (load(wrong[i]) != CUDA_ERROR_INVALID_PTX)
            fail_msg("%s is taken", wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spellings)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
