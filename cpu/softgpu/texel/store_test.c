/* What formatted stores write, against an NVIDIA H200 (driver 580.159.04): ends of ranges, values half way between two,
 * NaN, infinities, halves without their leading bit. */
#include "cpu/softgpu/texel/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t whole[] = {0x00000000, 0x00000001, 0x00000002, 0x0000007f, 0x00000080, 0x00000081, 0x000000fe,
                                 0x000000ff, 0x00000100, 0x00000101, 0x00007fff, 0x00008000, 0x0000ffff, 0x00010000,
                                 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe, 0xffffff81, 0xffffff80, 0xffffff7f,
                                 0xffff8001, 0xffff8000, 0xffff7fff, 0x12345678, 0xfedcba98, 0x3f800000};

static const uint32_t floats[] = {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x40000000, 0xc0000000, 0x3f000000,
                                  0xbf000000, 0x3e800000, 0x3dcccccd, 0xbdcccccd, 0x3b008081, 0x3b003eb6, 0x3bc0c0c1,
                                  0x3c20a0a1, 0x3c60e0e1, 0x3f000000, 0x3b810204, 0x3c418306, 0xbb810204, 0xbc418306,
                                  0x3ca14285, 0x37000080, 0x37c000c0, 0x382000a0, 0x37800100, 0xb8400180, 0x3a002008,
                                  0x3ac0300c, 0x3e2aaaab, 0x3f000000, 0x3efae148, 0x3f7fbe77, 0x7fc00000, 0xffc00000,
                                  0x7f800000, 0xff800000, 0x00000001, 0x7f800001, 0x477fe000, 0x477fef00, 0x477ff000,
                                  0x47800000, 0xc7800000, 0x33800000, 0x33000000, 0x32fffae5, 0x333ffc2b, 0x3f801000,
                                  0x3f803000, 0x3f801d7e, 0x7e967699, 0xfe967699, 0x40490fd0, 0x387fda40};

/* An element for each of the words, which begins with it; of several channels the words that follow are the others. */
static const struct {
    CUarray_format format;
    unsigned channels;
    const uint32_t *words;
    unsigned count;
    const char *elements; /* hexadecimal */
} stores[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, 1, whole, 27, "0001027f8081feffffffffffffffffffffffffffffffffffffffff"},
    {CU_AD_FORMAT_UNSIGNED_INT8, 4, whole, 27,
     "0001027f01027f80027f80817f8081fe8081feff81fefffffefffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
     "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00ffff0001ff000102"},
    {CU_AD_FORMAT_UNSIGNED_INT16, 1, whole, 27,
     "0000010002007f0080008100fe00ff0000010101ff7f0080ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
    {CU_AD_FORMAT_SIGNED_INT8, 1, whole, 27, "0001027f7f7f7f7f7f7f7f7f7f7f7f80fffe8180808080807f807f"},
    {CU_AD_FORMAT_SIGNED_INT16, 1, whole, 27,
     "0000010002007f0080008100fe00ff0000010101ff7fff7fff7fff7fff7f0080fffffeff81ff80ff7fff018000800080ff7f0080ff7f"},
    {CU_AD_FORMAT_HALF, 1, floats, 55,
     "00000080003c00bc004000c0003800b80034662e66ae04180118061e052107230038081c0c22089c0ca20a258000800180020001008301100"
     "11655310038d737fd3b007e00fe007c00fc0000017cff7bff7bff7bff7bfffb0100000000000000003c013c003cff7bfffb4842ff03"},
    {CU_AD_FORMAT_HALF, 2, floats, 55,
     "000000800080003c003c00bc00bc0040004000c000c00038003800b800b800340034662e662e66ae66ae0418041801180118061e061e05210"
     "5210723072300380038081c081c0c220c22089c089c0ca20ca20a250a25800080008001800180028002000100010083008301100110011601"
     "165531553100380038d737d737fd3bfd3b007e007e00fe00fe007c007c00fc00fc00000000017c017cff7bff7bff7bff7bff7bff7bff7bff7"
     "bfffbfffb01000100000000000000000000000000003c003c013c013c003c003cff7bff7bfffbfffb48424842ff03ff030000"},
    {CU_AD_FORMAT_FLOAT, 1, floats, 55,
     "00000000000000800000803f000080bf00000040000000c00000003f000000bf0000803ecdcccc3dcdccccbd8180003bb63e003bc1c0c03ba"
     "1a0203ce1e0603c0000003f0402813b0683413c040281bb068341bc8542a13c80000037c000c037a000203800018037800140b80820003a0c"
     "30c03aabaa2a3e0000003f48e1fa3e77be7f3f0000c07f0000c0ff0000807f000080ff010000000100807f00e07f4700ef7f4700f07f47000"
     "08047000080c70000803300000033e5faff322bfc3f330010803f0030803f7e1d803f9976967e997696fed00f494040da7f38"},
    {CU_AD_FORMAT_UNORM_INT8X1, 1, floats, 55,
     "0000ff00ff007f0040190000000102037f0103000005000000000000002a7f7dff0000ff000000ffffffff0000000000ffffffff00ff00"},
    {CU_AD_FORMAT_UNORM_INT16X1, 1, floats, 55,
     "00000000ffff0000ffff0000ff7f000000409919000080008000810182028303ff7f02010603000000000a050000010002000100000020006"
     "000aa2aff7f707dbdff00000000ffff000000000000ffffffffffffffff00000000000000000000ffffffffffffffff0000ffff0400"},
    {CU_AD_FORMAT_SNORM_INT8X1, 1, floats, 55,
     "00007f817f813fc1200df300000101023f000100ff0200000000000000153f3e7f00007f8100007f7f7f7f81000000007f7f7f7f817f00"},
    {CU_AD_FORMAT_SNORM_INT16X1, 1, floats, 55,
     "00000000ff7f0180ff7f0180ff3f01c00020cd0c33f340004000c1004101c201ff3f810083017fff7dfe85020000010001000000ffff10003"
     "0005515ff3fb83ede7f00000000ff7f018000000000ff7fff7fff7fff7f01800000000000000000ff7fff7fff7fff7f0180ff7f0200"},
    {CU_AD_FORMAT_SNORM_INT16X4, 4, floats, 55,
     "00000000ff7f01800000ff7f0180ff7fff7f0180ff7f01800180ff7f0180ff3fff7f0180ff3f01c00180ff3f01c00020ff3f01c00020cd0c0"
     "1c00020cd0c33f30020cd0c33f34000cd0c33f34000400033f340004000c10040004000c10041014000c1004101c201c1004101c201ff3f41"
     "01c201ff3f8100c201ff3f81008301ff3f810083017fff810083017fff7dfe83017fff7dfe85027fff7dfe850200007dfe850200000100850"
     "20000010001000000010001000000010001000000ffff01000000ffff10000000ffff10003000ffff100030005515100030005515ff3f3000"
     "5515ff3fb83e5515ff3fb83ede7fff3fb83ede7f0000b83ede7f00000000de7f00000000ff7f00000000ff7f01800000ff7f01800000ff7f0"
     "18000000000018000000000ff7f00000000ff7fff7f0000ff7fff7fff7fff7fff7fff7fff7fff7fff7fff7f0180ff7fff7f01800000ff7f01"
     "800000000001800000000000000000000000000000000000000000ff7f00000000ff7fff7f0000ff7fff7fff7fff7fff7fff7fff7fff7fff7"
     "fff7f0180ff7fff7f0180ff7fff7f0180ff7f02000180ff7f02000000ff7f020000000000020000000000ff7f"},
    {CU_AD_FORMAT_UNORM_INT_101010_2, 4, floats, 55,
     "0000f03f00fc0fc0ff03f03f00fc0f40ff03f01f00fc0740ff01001000006406009901006600200000082000020860000218a0000628e0400"
     "a38f01f0efc4700ff11c000043000000c00000000004001005000001400000000000000000000000000000000000000000010000004a04a01"
     "a8f25faafc57dfffd5e73ff5f90f00fe0300c00000f03f00fc0f00ff030000000000c00000f0ff00fcffffffffffffffffff3fffff0f00ff0"
     "300000000000000000000000000c00000f0ff00fcffffffffffffffffff3fffff0fc0ff03f03f00fc0f00ff030000000000c0"},
};

static void conversions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        const size_t digits = strlen(stores[i].elements) / stores[i].count;

        for (unsigned k = 0; k < stores[i].count; k++) {
            unsigned char element[16];
            char got[33] = {0};
            uint32_t words[4];

            for (unsigned c = 0; c < 4; c++)
                words[c] = stores[i].words[(k + c) % stores[i].count];
            flyt_texel_store(stores[i].format, stores[i].channels, words, element);
            for (unsigned b = 0; b < digits / 2; b++)
                snprintf(got + 2 * (size_t)b, 3, "%02x", element[b]);
            if (memcmp(got, stores[i].elements + k * digits, digits) != 0)
                fail_msg("format %#x: %#x is %s", (unsigned)stores[i].format, words[0], got);
        }
    }
}

/* Words of 32 bits are what they are. */
static void wide(void **state)
{
    const uint32_t words[4] = {0x7f800001, 0x80000000, 0xffffffff, 1};
    const CUarray_format formats[] = {CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_UNSIGNED_INT32};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        unsigned char element[17] = {[16] = 0x5a};

        flyt_texel_store(formats[i], 4, words, element);
        assert_memory_equal(element, words, sizeof words);
        assert_int_equal(element[16], 0x5a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(conversions), cmocka_unit_test(wide)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
