/* Which block sizes kernels of PTX demand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/code/image_blocks.h"

#define HEAD ".version 9.0 .target sm_90 .address_size 64\n"

/* Whether the kernel demands this size; zeros: none. */
static void check(const char *text, const char *kernel, uint32_t x, uint32_t y, uint32_t z)
{
    struct flyt_image_blocks blocks;
    uint32_t size[3] = {0};
    assert_int_equal(flyt_image_blocks(text, &blocks), 0);
    flyt_image_blocks_get(&blocks, kernel, size);
    flyt_image_blocks_free(&blocks);
    assert_int_equal(size[0], x);
    assert_int_equal(size[1], y);
    assert_int_equal(size[2], z);
}

static void sizes_that_are_demanded(void **state)
{
    check(HEAD ".visible .entry k(.param .u64 p) .reqntid 32, 2, 1 { ret; }", "k", 32, 2, 1);
    check(HEAD ".visible .entry k .reqntid 32,2 { ret; }", "k", 32, 2, 1);
    check(HEAD ".entry k() .reqntid 0x20U .minnctapersm 4 { ret; }", "k", 32, 1, 1);
    check(HEAD ".entry k() .pragma \"nounroll\"; .reqntid/* 8 */ 16 // , 4\n, 2 { ret; }", "k", 16, 2, 1);
    check(HEAD ".entry k() .reqntid 8 .reqnctapercluster 1,1,1 { ret; }", "k", 8, 1, 1);
    check(HEAD ".entry k(.param .align 8 .b8 p[24], .param .u64 .ptr .global q) .reqntid 4,4,4 { ret; }", "k", 4, 4, 4);
    check(HEAD ".extern .entry k() .reqntid 4; .entry l() { ret; }", "k", 4, 1, 1);
    check("// # is no preprocessor's here\n" HEAD ".entry k() .reqntid 4 { ret; }", "k", 4, 1, 1);
}

static void sizes_that_are_not(void **state)
{
    check(HEAD ".entry k() .maxntid 32, 2, 1 { ret; }", "k", 0, 0, 0);
    check(HEAD "// .reqntid 32\n.entry k() { ret; }", "k", 0, 0, 0);
    check(HEAD ".entry k() { ret; } .entry l() .reqntid 3 { ret; }", "k", 0, 0, 0);
    check(HEAD ".func k() .reqntid 3 { ret; }", "k", 0, 0, 0);
    check(HEAD ".entry k() .reqntid 3 { ret; }", "k2", 0, 0, 0);
    /* As nvcc has __block_size__: the launch names clusters. */
    check(HEAD ".entry k() .blocksareclusters .reqntid 32 .reqnctapercluster 1,1,1 { ret; }", "k", 0, 0, 0);
    check(HEAD ".entry k() .reqntid 32 .reqnctapercluster 1,1,1 .blocksareclusters { ret; }", "k", 0, 0, 0);
    /* What cannot be understood. */
    check(HEAD "#define k l\n.entry k() .reqntid 3 { ret; }", "k", 0, 0, 0);
    check(HEAD ".entry k() .reqntid 0 { ret; }", "k", 0, 0, 0);
    check(HEAD ".entry k() .reqntid 4294967296 { ret; }", "k", 0, 0, 0);
    check(HEAD ".entry k() .reqntid many { ret; }", "k", 0, 0, 0);
}

static void many_kernels(void **state)
{
    enum { KERNELS = 1000, TEXT_BYTES = KERNELS * 64 };
    char *text = malloc(TEXT_BYTES), *at = text, name[16];
    assert_non_null(text);
    for (unsigned i = 0; i < KERNELS; i++)
        at += snprintf(at, (size_t)(text + TEXT_BYTES - at), ".entry k%u() %s %u { ret; }\n", i,
                       i % 3 ? ".reqntid" : ".maxntid", i + 1);
    for (unsigned i = 0; i < KERNELS; i += 7) {
        snprintf(name, sizeof name, "k%u", i);
        check(text, name, i % 3 ? i + 1 : 0, i % 3 ? 1 : 0, i % 3 ? 1 : 0);
    }
    free(text);
}

/* Cut off anywhere: never read outside, and what has not ended demands nothing. */
static void texts_that_are_cut(void **state)
{
    static const char whole[] = HEAD ".entry k(.param .u64 p) .pragma \"a\"; .reqntid 32, 2, 1 {";
    for (size_t bytes = 0; bytes < sizeof whole - 1; bytes++) {
        char *text = strndup(whole, bytes);
        assert_non_null(text);
        check(text, "k", 0, 0, 0);
        free(text);
    }
    check(whole, "k", 32, 2, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_are_demanded),
        cmocka_unit_test(sizes_that_are_not),
        cmocka_unit_test(many_kernels),
        cmocka_unit_test(texts_that_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
