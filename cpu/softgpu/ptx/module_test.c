/* What is refused and how it is said; and that no text, however damaged, and no kernel made from it, does harm. */
#include "cpu/softgpu/ptx/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BODY(text)                                                                                                     \
    HEAD ".visible .entry k() {\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .pred %p<9>;\n" text         \
         "\nret; }\n"

static void refusals_name_the_cause(void **state)
{
    static const struct {
        const char *text;
        CUresult result;
        const char *diagnosis;
    } cases[] = {
        {"", CUDA_ERROR_INVALID_IMAGE, ".version"},
        {"garbage", CUDA_ERROR_INVALID_IMAGE, ".version"},
        {"// a comment\n.versoin 8.0\n", CUDA_ERROR_INVALID_IMAGE, ".version"},
        {"/* a */ .version 8.0\nnonsense\n", CUDA_ERROR_INVALID_PTX, "line 2"},
        {".version 99.0\n.target sm_75\n", CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "99.0"},
        {HEAD ".frob\n", CUDA_ERROR_INVALID_PTX, ".frob"},
        {"\177ELF", CUDA_ERROR_INVALID_IMAGE, "line 1"},
        {".version 8.0\n.target sm_100\n.address_size 64\n", CUDA_ERROR_NO_BINARY_FOR_GPU, "sm_100"},
        {BODY("tex.2dms.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %r1, %r1, %r1}];"), CUDA_ERROR_NOT_SUPPORTED,
         "line 6: tex.2dms.v4.f32.s32"},
        {BODY("wgmma.fence.sync.aligned;"), CUDA_ERROR_NOT_SUPPORTED, "wgmma.fence.sync.aligned"},
        {BODY("frobnicate.u32 %r1, %r2;"), CUDA_ERROR_INVALID_PTX, "frobnicate.u32"},
        {BODY("add.s32 %r1, %r2;"), CUDA_ERROR_INVALID_PTX, "operands"},
        {BODY("add.s32 %r1, %r2, %nothing;"), CUDA_ERROR_INVALID_PTX, "%nothing"},
        {BODY("mov.u32 %r1, %pm3;"), CUDA_ERROR_NOT_SUPPORTED, "%pm3"},
        {BODY("mov.u32 %r1, nothing;"), CUDA_ERROR_INVALID_PTX, "nothing"},
        {BODY("bra NOWHERE;"), CUDA_ERROR_INVALID_PTX, "NOWHERE"},
        {BODY("add.s32 %r1, %r2, %p1;"), CUDA_ERROR_INVALID_PTX, "predicate"},
        {BODY("call missing, ();"), CUDA_ERROR_INVALID_PTX, "no such function"},
        {HEAD ".extern .func elsewhere;\n.visible .entry k() { call elsewhere; ret; }\n", CUDA_ERROR_INVALID_PTX,
         "elsewhere"},
        {HEAD ".extern .func cudaGraphSetConditional;\n.visible .entry k() { call cudaGraphSetConditional; ret; }\n",
         CUDA_ERROR_INVALID_PTX, "built-in"},
        {HEAD ".extern .func cudaGetLastError;\n.visible .entry k() { call cudaGetLastError; ret; }\n",
         CUDA_ERROR_NOT_SUPPORTED, "cudaGetLastError"},
        {HEAD ".extern .global .u32 x[];\n", CUDA_ERROR_INVALID_PTX, "unresolved extern variable x"},
        {HEAD ".extern .global .u32 x;\n", CUDA_SUCCESS, ""},
        {HEAD ".global .u32 x;\n.global .u32 x;\n", CUDA_ERROR_INVALID_PTX, "Duplicate definition"},
        {HEAD ".extern .global .u32 x;\n.shared .u32 x;\n", CUDA_ERROR_INVALID_PTX, "Memory space"},
        {HEAD ".func f { ret; }\n.func f { ret; }\n", CUDA_ERROR_INVALID_PTX, "Duplicate definition"},
        {HEAD ".global .texref t;\n", CUDA_ERROR_NOT_SUPPORTED, ".texref"},
        {HEAD ".visible .entry k() {", CUDA_ERROR_INVALID_PTX, "inside a function"},
        {HEAD ".global .u32 x[2] = {1, 2, 3};", CUDA_ERROR_INVALID_PTX, "initialisers"},
        {HEAD ".global .u64 x = y;", CUDA_ERROR_INVALID_PTX, "y"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUresult result = flyt_ptx_harness_load(&harness, cases[i].text);

        if (result != cases[i].result || !strstr(harness.diag.text, cases[i].diagnosis))
            fail_msg("case %zu: %d, %s", i, (int)result, harness.diag.text);
    }
}

static void kernels_describe_themselves(void **state)
{
    static const char text[] =
        HEAD ".global .align 8 .u64 list[2] = {generic(other), k};\n.global .align 4 .u32 other = 7;\n"
             ".const .align 4 .f32 factor[3] = {0f3F800000, 2.0, 3};\n.extern .shared .align 16 .b8 dynamic[];\n"
             ".visible .entry k(.param .u32 a, .param .align 8 .b8 b[24], .param .u8 c) .reqntid 32, 2, 1 {\n"
             ".shared .align 8 .b8 fixed[100]; .local .align 4 .b8 room[40]; .reg .b32 %r<3>; .reg .f32 %f<2>;\n"
             "mov.u32 %r1, fixed; mov.u32 %r2, dynamic; ld.const.f32 %f1, [factor]; ret; }\n";
    const struct flyt_ptx_kernel *kernel;

    (void)state;
    assert_int_equal(flyt_ptx_harness_load(&harness, text), CUDA_SUCCESS);
    kernel = flyt_ptx_module_kernel(harness.module, 0);
    assert_int_equal(kernel->param_count, 3);
    assert_int_equal(kernel->param_offset[1], 8);
    assert_int_equal(kernel->param_bytes[1], 24);
    assert_int_equal(kernel->param_offset[2], 32);
    assert_int_equal(kernel->params_bytes, 33);
    assert_int_equal(kernel->static_shared_bytes, 112);
    assert_int_equal(kernel->local_bytes, 48);
    assert_int_equal(kernel->const_bytes, 12);
    assert_int_equal(kernel->max_threads, 64);
    assert_int_equal(kernel->required_block[1], 2);
    assert_int_equal(kernel->target_version, 75);
    assert_int_equal(kernel->ptx_version, 80);
    assert_int_equal(flyt_ptx_module_variable_count(harness.module), 3);
    assert_int_equal(((uint64_t *)flyt_ptx_harness_variable(&harness, "list"))[0],
                     (uint64_t)(uintptr_t)flyt_ptx_harness_variable(&harness, "other"));
    assert_int_equal(*(uint32_t *)flyt_ptx_harness_variable(&harness, "other"), 7);
    assert_true(((float *)flyt_ptx_harness_variable(&harness, "factor"))[2] == 3.0f);
}

/* As many values at once as no block of 512 threads has registers for: the program says how large its blocks are, or
 * it does not, and then they may have 1,024 threads. */
static void registers_leave_room_for_the_largest_block(void **state)
{
    enum { VALUES = 200 };
    static const struct {
        const char *directive;
        unsigned asked;
        uint32_t min, max;
    } cases[] = {{"", 0, 64, 64},
                 {".maxntid 256, 1, 1", 0, 200, 255},
                 {".maxntid 512", 0, 100, 128},
                 {".reqntid 8, 8, 16", 0, 56, 64},
                 {".maxntid 256 .minnctapersm 4", 0, 64, 64},
                 {".maxntid 1024 .minnctapersm 4294967295", 0, 16, 16},
                 {".maxntid 128 .maxnreg 40", 0, 40, 40},
                 {".maxnreg 200", 0, 64, 64},
                 /* what the loader asks for, where the kernel does not say it better */
                 {"", 32, 32, 32},
                 {"", 200, 64, 64},
                 {"", 1, 16, 16},
                 {".maxntid 256", 40, 200, 255},
                 {".maxnreg 48", 40, 48, 48}};
    static char text[65536];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int at = sprintf(text,
                         HEAD ".visible .entry k(.param .u64 out) %s {\n.reg .b64 %%o; .reg .b32 %%r<%d>;\n"
                              "ld.param.u64 %%o, [out];\n",
                         cases[i].directive, VALUES);

        for (int r = 0; r < VALUES; r++)
            at += sprintf(text + at, "ld.global.u32 %%r%d, [%%o + %d];\n", r, r * 4);
        for (int r = 0; r < VALUES; r++)
            at += sprintf(text + at, "st.global.u32 [%%o + %d], %%r%d;\n", r * 4, VALUES - 1 - r);
        sprintf(text + at, "ret; }\n");
        harness.max_registers = cases[i].asked;
        assert_int_equal(flyt_ptx_harness_load(&harness, text), CUDA_SUCCESS);
        assert_in_range(flyt_ptx_module_kernel(harness.module, 0)->register_count, cases[i].min, cases[i].max);
    }
    harness.max_registers = 0;
}

/* Inline assembly in an unrolled loop repeats its labels, each in braces of its own. */
static void labels_belong_to_their_braces(void **state)
{
    static const char text[] = HEAD
        ".visible .entry k(.param .u64 out) {\n.reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p<3>;\n"
        "ld.param.u64 %rd1, [out]; mov.u32 %r1, 0; mov.u32 %r2, 3;\n"
        "{ AGAIN: add.s32 %r1, %r1, 1; sub.s32 %r2, %r2, 1; setp.ne.s32 %p1, %r2, 0; @%p1 bra AGAIN; }\n"
        "mov.u32 %r2, 5;\n"
        "{ AGAIN: add.s32 %r1, %r1, 10; sub.s32 %r2, %r2, 1; setp.ne.s32 %p1, %r2, 0; @%p1 bra AGAIN; @%p1 bra OUT; }\n"
        "OUT: st.global.u32 [%rd1], %r1; ret; }\n";
    int *out;

    (void)state;
    assert_int_equal(flyt_ptx_harness_load(&harness, text), CUDA_SUCCESS);
    out = flyt_ptx_harness_alloc(&harness, 4);
    assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, 1, (uint64_t)(uintptr_t)out), CUDA_SUCCESS);
    assert_int_equal(*out, 53);
}

/* ---- damaged texts ---- */

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);

    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static uint32_t next_random(void)
{
    static uint32_t state = 12345;

    state = state * 1664525 + 1013904223;
    return state >> 8;
}

/* Changes a few characters, numbers, words or lines. */
static void damage(char *text)
{
    static const char letters[] = "0123456789abcdefrpsux.%,;[]{}()+-@!";

    for (unsigned changes = 1 + next_random() % 4; changes; changes--) {
        size_t bytes = strlen(text), at = next_random() % bytes, from = next_random() % bytes;
        size_t count = 1 + next_random() % 24;

        switch (next_random() % 4) {
        case 0:
            text[at] = letters[next_random() % (sizeof letters - 1)];
            break;
        case 1:
            if (at + count < bytes)
                memset(text + at, ' ', count);
            break;
        case 2:
            if (at + count < bytes && from + count < bytes)
                memmove(text + at, text + from, count);
            break;
        default: /* another register of the same kind */
            while (at < bytes && (text[at] < '0' || text[at] > '9'))
                at++;
            if (at < bytes)
                text[at] = (char)('0' + next_random() % 10);
        }
    }
}

static atomic_bool cancel;
static atomic_bool is_watching;

/* Ends launches that have run for 20 milliseconds: damaged kernels may loop for ever. */
static void *watch(void *argument)
{
    (void)argument;
    while (atomic_load(&is_watching)) {
        usleep(20000);
        atomic_store(&cancel, true);
    }
    return NULL;
}

static void run_all_kernels(void)
{
    static char params[FLYT_PTX_PARAM_BYTES_MAX];
    uint64_t memory = (uint64_t)(uintptr_t)harness.base + (32 << 20);

    for (unsigned i = 0; i < sizeof params / 8; i++)
        memcpy(params + 8 * i, &memory, 8);
    for (unsigned k = 0; k < flyt_ptx_module_kernel_count(harness.module); k++) {
        struct flyt_ptx_launch launch = {.module = harness.module,
                                         .kernel_index = k,
                                         .grid = {2, 1, 1},
                                         .block = {48, 1, 1},
                                         .params = params,
                                         .memory = &harness.memory,
                                         .dynamic_shared_bytes = 64,
                                         .cancel = &cancel};

        atomic_store(&cancel, false);
        flyt_ptx_launch_run(harness.pool, &launch, NULL);
    }
}

static void damaged_modules_do_no_harm(void **state)
{
    char *text = read_text(PTX_TEST_FOLDER "/test_kernels_75.ptx"), *copy = malloc(1 << 20);
    time_t end = time(NULL) + 4;
    unsigned accepted = 0, tried = 0;
    pthread_t thread;

    (void)state;
    assert_non_null(copy);
    atomic_store(&is_watching, true);
    assert_int_equal(pthread_create(&thread, NULL, watch, NULL), 0);
    for (; time(NULL) < end && tried < 2000; tried++) {
        strcpy(copy, text);
        damage(copy);
        if (tried % 8 == 0)
            copy[next_random() % strlen(copy)] = 0; /* truncated */
        harness.used_bytes = 0;
        if (flyt_ptx_harness_load(&harness, copy) != CUDA_SUCCESS)
            continue;
        accepted++;
        run_all_kernels();
    }
    atomic_store(&is_watching, false);
    pthread_join(thread, NULL);
    free(text);
    free(copy);
    assert_true(tried > 20 && accepted > 0);
}

static int set_up_two(void **state)
{
    (void)state;
    flyt_ptx_harness_init(&harness, 2);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_name_the_cause),
        cmocka_unit_test(kernels_describe_themselves),
        cmocka_unit_test(registers_leave_room_for_the_largest_block),
        cmocka_unit_test(labels_belong_to_their_braces),
        cmocka_unit_test(damaged_modules_do_no_harm),
    };

    return cmocka_run_group_tests(tests, set_up_two, tear_down);
}
