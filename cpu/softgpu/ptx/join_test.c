/* Units that are compiled apart and joined: what names mean across them, and what the joiner refuses. */
#include "cpu/softgpu/ptx/test.h"

#include <stdio.h>
#include <string.h>

#define KERNEL   ".visible .entry k(.param .u64 out) {\n.reg .b32 %r<9>; .reg .b64 %rd<9>;\nld.param.u64 %rd1, [out];\n"
#define STORE    "st.global.u32 [%rd1], %r1; ret; }\n"
#define EXTERN_F ".extern .func (.param .b32 result) f(.param .b32 x);\n"
/* %r1 = f(value) */
#define CALL_F(value)                                                                                                  \
    "{ .param .b32 p; .param .b32 q; st.param.b32 [p], " value "; call (q), f, (p); ld.param.b32 %r1, [q]; }\n"
/* linkage func f(x): x + value */
#define FUNC_F(linkage, value)                                                                                         \
    linkage ".func (.param .b32 result) f(.param .b32 x) {\n.reg .b32 %r<3>;\n"                                        \
            "ld.param.b32 %r1, [x]; add.s32 %r1, %r1, " value "; st.param.b32 [result], %r1; ret; }\n"

#define join(...)                                                                                                      \
    flyt_ptx_harness_join(&harness, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                            \
                          (const char *const[]){__VA_ARGS__}, true)
/* What a kernel stores. */
static int result_of(const char *kernel)
{
    int *out = flyt_ptx_harness_alloc(&harness, sizeof *out);

    *out = -1;
    assert_int_equal(FLYT_PTX_RUN(&harness, kernel, 1, 1, (uint64_t)(uintptr_t)out), CUDA_SUCCESS);
    return *out;
}

static void functions_are_found_in_other_units(void **state)
{
    (void)state;
    /* Before the definition and behind it. */
    assert_int_equal(join(HEAD EXTERN_F KERNEL CALL_F("5") STORE, HEAD FUNC_F(".visible ", "100")), CUDA_SUCCESS);
    assert_int_equal(result_of("k"), 105);
    assert_int_equal(join(HEAD FUNC_F(".visible ", "100"), HEAD EXTERN_F KERNEL CALL_F("5") STORE), CUDA_SUCCESS);
    assert_int_equal(result_of("k"), 105);
    /* By address, in code and in a table. */
    assert_int_equal(
        join(HEAD EXTERN_F
             ".global .align 8 .u64 table[1] = {f};\n" KERNEL
             "ld.global.u64 %rd2, [table]; mov.u64 %rd3, f; sub.s64 %rd2, %rd2, %rd3; cvt.u32.u64 %r2, %rd2;\n"
             "{ .param .b32 p; .param .b32 q; st.param.b32 [p], 7;\n"
             "kind: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
             "call (q), %rd3, (p), kind; ld.param.b32 %r1, [q]; }\nadd.s32 %r1, %r1, %r2;\n" STORE,
             HEAD FUNC_F(".visible ", "20")),
        CUDA_SUCCESS);
    assert_int_equal(result_of("k"), 27);
}

static void variables_are_one_object_in_all_units(void **state)
{
    (void)state;
    assert_int_equal(join(HEAD ".extern .global .align 4 .u32 x;\n.extern .const .align 4 .u32 table[];\n" KERNEL
                               "ld.global.u32 %r1, [x]; ld.const.u32 %r2, [table+4]; add.s32 %r1, %r1, %r2;\n" STORE,
                          HEAD
                          ".visible .global .align 4 .u32 x = 40;\n.visible .const .align 4 .u32 table[2] = {1, 2};\n"
                          ".visible .global .align 8 .u64 place = generic(x);\n"),
                     CUDA_SUCCESS);
    assert_int_equal(*(uint64_t *)flyt_ptx_harness_variable(&harness, "place"),
                     (uint64_t)(uintptr_t)flyt_ptx_harness_variable(&harness, "x"));
    assert_int_equal(result_of("k"), 42);
}

static void statics_stay_apart(void **state)
{
    (void)state;
    assert_int_equal(
        join(HEAD ".global .align 4 .u32 x = 3;\n" FUNC_F("", "10")
                 KERNEL CALL_F("1") "ld.global.u32 %r2, [x]; mad.lo.s32 %r1, %r1, 10, %r2;\n" STORE,
             HEAD ".global .align 4 .u32 x = 4;\n" FUNC_F(
                 "", "20") ".visible .entry second(.param .u64 out) {\n.reg .b32 %r<9>; .reg .b64 %rd<9>;\n"
                           "ld.param.u64 %rd1, [out];\n" CALL_F(
                               "1") "ld.global.u32 %r2, [x]; mad.lo.s32 %r1, %r1, 10, %r2;\n" STORE),
        CUDA_SUCCESS);
    assert_int_equal(result_of("k"), 113);
    assert_int_equal(result_of("second"), 214);
}

static void weak_and_common_give_way(void **state)
{
    (void)state;
    assert_int_equal(join(HEAD FUNC_F(".weak ", "1") KERNEL CALL_F("0") STORE, HEAD FUNC_F(".weak ", "2")),
                     CUDA_SUCCESS);
    assert_int_equal(result_of("k"), 1);
    assert_int_equal(join(HEAD FUNC_F(".weak ", "1") KERNEL CALL_F("0") STORE, HEAD FUNC_F(".visible ", "2")),
                     CUDA_SUCCESS);
    assert_int_equal(result_of("k"), 2);
    assert_int_equal(join(HEAD FUNC_F(".visible ", "2"), HEAD FUNC_F(".weak ", "1") KERNEL CALL_F("0") STORE),
                     CUDA_SUCCESS);
    assert_int_equal(result_of("k"), 2);
    assert_int_equal(join(HEAD ".weak .global .u32 x = 1;\n" KERNEL "ld.global.u32 %r1, [x];\n" STORE,
                          HEAD ".visible .global .u32 x = 2;\n"),
                     CUDA_SUCCESS);
    assert_int_equal(result_of("k"), 2);
    assert_int_equal(join(HEAD ".common .global .u32 x;\n" KERNEL "ld.global.u32 %r1, [x+12];\n" STORE,
                          HEAD ".common .global .align 16 .u32 x[4];\n"),
                     CUDA_SUCCESS);
    assert_int_equal(result_of("k"), 0);
    assert_int_equal(flyt_ptx_module_variable(harness.module, 0)->bytes, 16);
    assert_int_equal(flyt_ptx_module_variable(harness.module, 0)->align, 16);
}

static void contradictions_are_refused(void **state)
{
    static const struct {
        const char *units[3];
        CUresult result;
        const char *diagnosis;
        bool is_seen_early; /* before all units are there */
    } cases[] = {
        {{HEAD EXTERN_F KERNEL CALL_F("5") STORE}, CUDA_ERROR_UNKNOWN, "Undefined reference to 'f' in 'unit0'", false},
        {{HEAD EXTERN_F ".global .u64 table = f;\n"},
         CUDA_ERROR_UNKNOWN,
         "Undefined reference to 'f' in 'unit0'",
         false},
        {{HEAD EXTERN_F KERNEL "mov.u64 %rd2, f; st.global.u64 [%rd1], %rd2; ret; }\n"},
         CUDA_ERROR_UNKNOWN,
         "Undefined reference to 'f' in 'unit0'",
         false},
        {{HEAD, HEAD ".extern .global .u32 x;\n"}, CUDA_ERROR_UNKNOWN, "Undefined reference to 'x' in 'unit1'", false},
        /* A static function of that name in another unit is none. */
        {{HEAD EXTERN_F KERNEL CALL_F("5") STORE, HEAD FUNC_F("", "1")},
         CUDA_ERROR_UNKNOWN,
         "Undefined reference to 'f'",
         false},
        {{HEAD, HEAD FUNC_F(".visible ", "1"), HEAD FUNC_F(".visible ", "1")},
         CUDA_ERROR_UNKNOWN,
         "Multiple definition of 'f' in 'unit2', first defined in 'unit1'",
         true},
        {{HEAD ".visible .global .u32 x = 1;\n", HEAD ".visible .global .u32 x;\n"},
         CUDA_ERROR_UNKNOWN,
         "Multiple definition of 'x' in 'unit1', first defined in 'unit0'",
         true},
        {{HEAD KERNEL "ret; }\n", HEAD KERNEL "ret; }\n"}, CUDA_ERROR_UNKNOWN, "Multiple definition of 'k'", true},
        {{HEAD ".extern .global .u32 x[4];\n", HEAD ".visible .global .u32 x;\n"},
         CUDA_ERROR_UNKNOWN,
         "Size doesn't match for 'x' in 'unit1', first specified in 'unit0'",
         true},
        {{HEAD ".extern .global .u32 x;\n", HEAD ".visible .const .u32 x = 1;\n"},
         CUDA_ERROR_UNKNOWN,
         "Memory space doesn't match for 'x' in 'unit1'",
         true},
        {{HEAD EXTERN_F, HEAD ".visible .func f(.param .b32 x) { ret; }\n"},
         CUDA_ERROR_UNKNOWN,
         "Prototype doesn't match for 'f' in 'unit1'",
         true},
        {{HEAD, "garbage"}, CUDA_ERROR_INVALID_IMAGE, "unit1, line 1", true},
        {{HEAD, HEAD KERNEL "frobnicate; }\n"}, CUDA_ERROR_INVALID_PTX, "unit1, line 7: frobnicate", true},
        {{HEAD, ".version 8.0\n.target sm_100\n"}, CUDA_ERROR_NO_BINARY_FOR_GPU, "unit1, line", true},
        {{HEAD, ".version 8.0\n.address_size 64\n"}, CUDA_ERROR_INVALID_PTX, "no .target", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned count = cases[i].units[2] ? 3 : cases[i].units[1] ? 2 : 1;
        CUresult result = flyt_ptx_harness_join(&harness, count, cases[i].units, true), early;

        if (result != cases[i].result || !strstr(harness.diag.text, cases[i].diagnosis))
            fail_msg("case %zu: %d, %s", i, (int)result, harness.diag.text);
        early = flyt_ptx_harness_join(&harness, count, cases[i].units, false);
        if (early != (cases[i].is_seen_early ? result : CUDA_SUCCESS))
            fail_msg("case %zu, not closed: %d, %s", i, (int)early, harness.diag.text);
    }
}

static void system_functions_are_known_in_units(void **state)
{
    static const char prints[] =
        HEAD ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
             ".global .align 1 .b8 text[3] = {104, 105, 0};\n.visible .func say {\n.reg .b64 %rd<2>;\n"
             "mov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1;\n"
             "{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %rd1; st.param.b64 [b], 0;\n"
             "call (r), vprintf, (a, b); }\nret; }\n";

    (void)state;
    assert_int_equal(join(prints, HEAD ".extern .func say;\n" KERNEL "call say; mov.u32 %r1, 1;\n" STORE),
                     CUDA_SUCCESS);
    harness.text_bytes = 0;
    assert_int_equal(result_of("k"), 1);
    assert_string_equal(harness.text, "hi");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_found_in_other_units),
        cmocka_unit_test(variables_are_one_object_in_all_units),
        cmocka_unit_test(statics_stay_apart),
        cmocka_unit_test(weak_and_common_give_way),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(system_functions_are_known_in_units),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
