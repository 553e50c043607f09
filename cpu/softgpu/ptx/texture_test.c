/* Which spellings of texture and surface instructions are taken and refused, and what happens where there is no object
 * or no memory. What they compute is compared in tests/apps (texture_fetch, texture_layers, surface). */
#include "cpu/softgpu/ptx/test.h"

#include <stdio.h>
#include <string.h>

static CUresult load(const char *instruction)
{
    char text[2048];

    snprintf(text, sizeof text,
             "%s.visible .entry k(.param .u64 t, .param .u64 out) {\n.reg .b32 %%r<9>; .reg .b16 %%h<9>; .reg .b64 "
             "%%rd<9>;\n.reg .f32 %%f<9>; .reg .pred %%p<3>;\nld.param.u64 %%rd1, [t]; ld.param.u64 %%rd2, [out];\n%s\n"
             "st.global.f32 [%%rd2], %%f1; ret; }\n",
             HEAD, instruction);
    return flyt_ptx_harness_load(&harness, text);
}

static void spellings(void **state)
{
    static const char *const right[] = {
        "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];",
        "tex.1d.v4.f32.s32 {%f1, _, _, _}, [%rd1, %r1];",
        "@%p1 tex.a2d.v4.u32.f32 {%r1, %r2, %r3, %r4}, [%rd1, {%r1, %f1, %f2, %f2}];",
        "tex.base.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];",
        "tex.grad.3d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2, %f3, %f3}], {%f1, %f2, %f3, %f3}, {%f1, %f2, "
        "%f3, %f3};",
        "tld4.a.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];",
        "txq.array_size.b32 %r1, [%rd1];",
        "txq.level.width.b32 %r1, [%rd1], 2;",
        "suq.depth.b32 %r1, [%rd1];",
        "suld.b.2d.v4.b32.clamp {%r1, %r2, %r3, %r4}, [%rd1, {%r1, %r2}];",
        "sust.b.a1d.b8.zero [%rd1, {%r1, %r2}], {%h1};",
        "sust.p.2d.v4.b32.trap [%rd1, {%r1, %r2}], {%r1, %r2, %r3, %r4};",
        "sust.p.a1d.b32.clamp [%rd1, {%r1, %r2}], {%f1};",
        "sured.b.min.2d.s32.trap [%rd1, {%r1, %r2}], %r3;",
    };
    static const char *const lacking[] = {
        "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [name, {%r1}];",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}|%p1, [%rd1, {%f1, %f2}];",
        "tex.2dms.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %r2, %r3, %r3}];",
        "tex.2d.v2.f16x2.f32 {%r1, %r2}, [%rd1, {%f1, %f2}];",
        "tld4.r.a2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %f1, %f2, %f2}];",
        "txq.num_samples.b32 %r1, [%rd1];",
        "suq.memory_layout.b32 %r1, [%rd1];",
        "sust.p.2d.v4.u32.trap [%rd1, {%r1, %r2}], {%r1, %r2, %r3, %r4};",
        "sust.p.2d.b16.trap [%rd1, {%r1, %r2}], {%h1};",
        "suld.p.2d.v4.b32.trap {%r1, %r2, %r3, %r4}, [%rd1, {%r1, %r2}];",
    };
    static const char *const wrong[] = {
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1}];",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3}, [%rd1, {%f1, %f2}];",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1];",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%r1, {%f1, %f2}];",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}, {%f1, %f2}];",
        "tex.level.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];",
        "suld.b.2d.v4.b64.trap {%rd1, %rd2, %rd3, %rd4}, [%rd1, {%r1, %r2}];",
        "ld.global.u32 %r1, [%rd1, {%r1}];",
    };

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        if (load(right[i]) != CUDA_SUCCESS)
            fail_msg("%s: %s", right[i], harness.diag.text);
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (load(lacking[i]) != CUDA_ERROR_NOT_SUPPORTED)
            fail_msg("%s is not refused by name: %s", lacking[i], harness.diag.text);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (load(wrong[i]) != CUDA_ERROR_INVALID_PTX)
            fail_msg("%s is taken: %s", wrong[i], harness.diag.text);
}

static _Atomic(const struct flyt_ptx_object *) slots[FLYT_PTX_OBJECTS_MAX];

static CUresult run(uint64_t handle)
{
    void *out = flyt_ptx_harness_alloc(&harness, 256);

    harness.objects.slots = slots;
    return FLYT_PTX_RUN(&harness, "k", 1, 32, handle, (uint64_t)(uintptr_t)out);
}

/* Handles that no object has, or one of the other kind, end the launch; so does memory that is not there. */
static void objects(void **state)
{
    struct flyt_ptx_object texture = {
        .image = {.format = CU_AD_FORMAT_FLOAT,
                  .channels = 1,
                  .texel_bytes = 4,
                  .is_memory = true,
                  .level_count = 1,
                  .levels = {{(uint64_t)(uintptr_t)flyt_ptx_harness_alloc(&harness, 4096), 1024, 1, 1, 0, 0}}},
        .is_integer = true,
    };

    (void)state;
    slots[3] = &texture;
    assert_int_equal(load("mov.u32 %r1, %tid.x; tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];"), CUDA_SUCCESS);
    assert_int_equal(run(3), CUDA_SUCCESS);
    assert_int_equal(run(4), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run(0), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(run(UINT64_MAX), CUDA_ERROR_ILLEGAL_ADDRESS);
    texture.image.levels[0].address = 4096;
    assert_int_equal(run(3), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(load("suq.width.b32 %r1, [%rd1];"), CUDA_SUCCESS);
    assert_int_equal(run(3), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(load("mov.u32 %r1, 0; suld.b.1d.b32.trap %r2, [%rd1, {%r1}];"), CUDA_SUCCESS);
    assert_int_equal(run(3), CUDA_ERROR_ILLEGAL_ADDRESS);
    slots[3] = NULL;
}

/* A surface's edge: the launch ends where it says .trap, and where an element is not in its place. */
static void edges(void **state)
{
    static char pixels[64 * 4];
    static const struct flyt_ptx_object surface = {
        .is_surface = true, .image = {.format = CU_AD_FORMAT_FLOAT, .channels = 1, .texel_bytes = 4, .level_count = 1}};
    struct flyt_ptx_object own = surface;

    (void)state;
    own.image.levels[0] = (struct flyt_ptx_level){(uint64_t)(uintptr_t)pixels, 64, 1, 1, 256, 256};
    slots[5] = &own;
    assert_int_equal(load("mov.u32 %r1, 252; suld.b.1d.b32.trap %r2, [%rd1, {%r1}];"), CUDA_SUCCESS);
    assert_int_equal(run(5), CUDA_SUCCESS);
    assert_int_equal(load("mov.u32 %r1, 256; suld.b.1d.b32.trap %r2, [%rd1, {%r1}];"), CUDA_SUCCESS);
    assert_int_equal(run(5), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(load("mov.u32 %r1, 63; sust.p.1d.b32.trap [%rd1, {%r1}], {%r1};"), CUDA_SUCCESS);
    assert_int_equal(run(5), CUDA_SUCCESS);
    assert_int_equal(load("mov.u32 %r1, 64; sust.p.1d.b32.trap [%rd1, {%r1}], {%r1};"), CUDA_SUCCESS);
    assert_int_equal(run(5), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(load("mov.u32 %r1, -4; sust.b.1d.b32.zero [%rd1, {%r1}], %r2;"), CUDA_SUCCESS);
    assert_int_equal(run(5), CUDA_SUCCESS);
    assert_int_equal(load("mov.u32 %r1, 2; sured.b.add.1d.u32.trap [%rd1, {%r1}], %r2;"), CUDA_SUCCESS);
    assert_int_equal(run(5), CUDA_ERROR_MISALIGNED_ADDRESS);
    slots[5] = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spellings), cmocka_unit_test(objects), cmocka_unit_test(edges)};

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
