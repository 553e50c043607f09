/* Texts that a compiler never writes: each is refused by name, and none reaches memory that is not its own. */
#include "cpu/softgpu/ptx/test.h"

#include <stdlib.h>
#include <string.h>

#define BODY(text)                                                                                                     \
    HEAD ".visible .entry k(.param .u64 out) {\n.reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;\n"                 \
         ".reg .pred %p<9>;\nld.param.u64 %rd1, [out];\n" text "\nret; }\n"

static void refuse(const char *text, const char *diagnosis)
{
    CUresult result = flyt_ptx_harness_load(&harness, text);

    if (result != CUDA_ERROR_INVALID_PTX || !strstr(harness.diag.text, diagnosis))
        fail_msg("%.60s…: %d, %s", text, (int)result, harness.diag.text);
}

/* `head`, `count` times `piece`, `tail`: the caller frees it. */
static char *repeat(const char *head, const char *piece, size_t count, const char *tail)
{
    size_t piece_bytes = strlen(piece), head_bytes = strlen(head);
    char *text = malloc(head_bytes + count * piece_bytes + strlen(tail) + 1);

    assert_non_null(text);
    memcpy(text, head, head_bytes);
    for (size_t i = 0; i < count; i++)
        memcpy(text + head_bytes + i * piece_bytes, piece, piece_bytes);
    strcpy(text + head_bytes + count * piece_bytes, tail);
    return text;
}

static void nesting_is_bounded(void **state)
{
    static const struct {
        const char *piece, *diagnosis;
    } cases[] = {
        {"[%rd1, ", "nested"},
        {"{", "nested"},
        {"(", "nested"},
        {"!", "expected a number"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = repeat(BODY("ld.global.u32 %r1, "), cases[i].piece, 1000000, "");
        char *at = strstr(text, "\nret; }\n");

        memset(at, ' ', strlen("\nret; }\n")); /* the statement goes on */
        refuse(text, cases[i].diagnosis);
        free(text);
    }
    {
        char *text = repeat(HEAD ".visible .entry k() {", "{", 1000000, "");

        refuse(text, "nested");
        free(text);
    }
}

/* A predicate has 32 bits for all lanes: a load into one would write far behind it. */
static void loads_want_data_registers(void **state)
{
    (void)state;
    refuse(BODY("ld.global.u32 %p1, [%rd1];"), "predicate");
    refuse(BODY("ld.global.u64 %p1, [%rd1];"), "predicate");
    refuse(BODY("ld.param.u64 %p1, [out];"), "predicate");
    refuse(BODY("ld.global.v2.u32 {%p1, %p2}, [%rd1];"), "predicate");
    refuse(BODY("ld.global.v2.u32 {%p1, %r2}, [%rd1];"), "predicate");
    refuse(BODY("ld.global.v2.u32 {_, %p2}, [%rd1];"), "predicate");
}

/* A result that does not fit would be lost in silence. */
static void results_want_registers_of_their_size(void **state)
{
    (void)state;
    refuse(BODY("activemask.b32 %rd2;"), "size");
    refuse(BODY("shfl.sync.idx.b32 %rd2, %r1, 0, 31, -1;"), "size");
    refuse(BODY("shfl.sync.idx.b32 %r2|%r3, %r1, 0, 31, -1;"), "size");
    refuse(BODY("vote.sync.ballot.b32 %h1, %p1, -1;"), "size");
    refuse(BODY("vote.sync.all.pred %r1, %p1, -1;"), "size");
    refuse(BODY("match.any.sync.b64 %rd2, %rd1, -1;"), "size");
    refuse(BODY("redux.sync.add.s32 %rd2, %r1, -1;"), "size");
    refuse(BODY("elect.sync %rd2|%p1, -1;"), "size");
    refuse(BODY("bar.red.popc.u32 %rd2, 0, %p1;"), "size");
    refuse(BODY("alloca.u64 %r1, 16;"), "size");
    refuse(BODY("stacksave.u64 %r1;"), "size");
}

static void numbers_have_bounds(void **state)
{
    uint64_t *out = flyt_ptx_harness_alloc(&harness, 8);

    (void)state;
    refuse(BODY("mov.u64 %rd2, 18446744073709551616;"), "number");
    refuse(BODY("mov.u64 %rd2, 0x10000000000000000;"), "number");
    refuse(BODY("mov.u64 %rd2, 0b10000000000000000000000000000000000000000000000000000000000000000;"), "number");
    refuse(BODY("ld.global.u32 %r1, [%rd1+99999999999999999999];"), "number");
    refuse(HEAD ".global .u32 x[99999999999999999999];\n", "number");
    refuse(HEAD ".global .u32 x[-1];\n", "length");
    refuse(HEAD ".global .u32 x[1099511627776][1099511627776];\n", "length");
    refuse(BODY(".reg .b32 %q<99999999999>;"), "register count");
    refuse(HEAD ".global .align 3 .u32 x;\n", "alignment");
    assert_int_equal(flyt_ptx_harness_load(&harness, BODY("mov.u64 %rd2, 18446744073709551615;\n"
                                                          "st.global.u64 [%rd1], %rd2;")),
                     CUDA_SUCCESS);
    assert_int_equal(FLYT_PTX_RUN(&harness, "k", 1, 1, (uint64_t)(uintptr_t)out), CUDA_SUCCESS);
    assert_true(*out == UINT64_MAX);
}

static void what_is_opened_must_end(void **state)
{
    (void)state;
    refuse(HEAD "/* and so on", "comment");
    refuse(HEAD "/*", "comment");
    refuse(HEAD "/* *", "comment");
    refuse(BODY("") "/* \n\n", "comment");
    refuse(HEAD ".pragma \"nounroll\n;", "string");
    refuse(HEAD ".pragma \"nounroll\\", "string");
    refuse(HEAD ".section .debug {", "braces");
    refuse(HEAD ".global .u32 x = {1, 2", "','");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_opened_must_end),   cmocka_unit_test(numbers_have_bounds),
        cmocka_unit_test(loads_want_data_registers), cmocka_unit_test(results_want_registers_of_their_size),
        cmocka_unit_test(nesting_is_bounded),
    };

    return RUN_WITH_EACH_ISA(tests, set_up);
}
