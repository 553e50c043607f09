/*
 * What blocks of BC6H and BC7 hold, read one field after the other as Khronos's Data Format Specification describes
 * them under "BPTC": its partitions are rows of digits here, its layouts of BC6H the text of its table.
 */
#ifndef TESTS_APPS_BLOCK_REFERENCE_H
#define TESTS_APPS_BLOCK_REFERENCE_H

#include <cstdio>
#include <cstdlib>
#include <cmath>

enum { BLOCK_BYTES = 16, BLOCK_TEXELS = 16, BC7_MODES = 8, BC6H_MODES = 14, BLOCK_PARTITIONS = 64 };

/* The part of each texel, of blocks in two and in three parts. */
static const char *const block_parts[2][BLOCK_PARTITIONS] = {
    {"0011001100110011", "0001000100010001", "0111011101110111", "0001001100110111", "0000000100010011",
     "0011011101111111", "0001001101111111", "0000000100110111", "0000000000010011", "0011011111111111",
     "0000000101111111", "0000000000010111", "0001011111111111", "0000000011111111", "0000111111111111",
     "0000000000001111", "0000100011101111", "0111000100000000", "0000000010001110", "0111001100010000",
     "0011000100000000", "0000100011001110", "0000000010001100", "0111001100110001", "0011000100010000",
     "0000100010001100", "0110011001100110", "0011011001101100", "0001011111101000", "0000111111110000",
     "0111000110001110", "0011100110011100", "0101010101010101", "0000111100001111", "0101101001011010",
     "0011001111001100", "0011110000111100", "0101010110101010", "0110100101101001", "0101101010100101",
     "0111001111001110", "0001001111001000", "0011001001001100", "0011101111011100", "0110100110010110",
     "0011110011000011", "0110011010011001", "0000011001100000", "0100111001000000", "0010011100100000",
     "0000001001110010", "0000010011100100", "0110110010010011", "0011011011001001", "0110001110011100",
     "0011100111000110", "0110110011001001", "0110001100111001", "0111111010000001", "0001100011100111",
     "0000111100110011", "0011001111110000", "0010001011101110", "0100010001110111"},
    {"0011001102212222", "0001001122112221", "0000200122112211", "0222002200110111", "0000000011221122",
     "0011001100220022", "0022002211111111", "0011001122112211", "0000000011112222", "0000111111112222",
     "0000111122222222", "0012001200120012", "0112011201120112", "0122012201220122", "0011011211221222",
     "0011200122002220", "0001001101121122", "0111001120012200", "0000112211221122", "0022002200221111",
     "0111011102220222", "0001000122212221", "0000001101220122", "0000110022102210", "0122012200110000",
     "0012001211222222", "0110122112210110", "0000011012211221", "0022110211020022", "0110011020022222",
     "0011012201220011", "0000200022112221", "0000000211221222", "0222002200120011", "0011001200220222",
     "0120012001200120", "0000111122220000", "0120120120120120", "0120201212010120", "0011220011220011",
     "0011112222000011", "0101010122222222", "0000000021212121", "0022112200221122", "0022001100220011",
     "0220122102201221", "0101222222220101", "0000212121212121", "0101010101012222", "0222011102220111",
     "0002111200021112", "0000211221122112", "0222011101110222", "0002111211120002", "0110011001102222",
     "0000000021122112", "0110011022222222", "0022001100110022", "0022112211220022", "0000000000002112",
     "0002000100020001", "0222122202221222", "0101222222222222", "0111201122012220"}};

/* The texel of the second part, of two and of three, and of the third one, whose number is a bit shorter. */
static const int block_anchors[3][BLOCK_PARTITIONS] = {
    {15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 2,  8, 2, 2, 8,
     8,  15, 2,  8,  2,  2,  8,  8,  2,  2,  15, 15, 6,  8,  2,  8,  15, 15, 2, 8, 2, 2,
     2,  15, 15, 6,  6,  2,  6,  8,  15, 15, 2,  2,  15, 15, 15, 15, 15, 2,  2, 15},
    {3,  3,  15, 15, 8, 3,  15, 15, 8,  8,  6, 6,  6, 5,  3, 3,  3,  3,  8,  15, 3,  3,
     6,  10, 5,  8,  8, 6,  8,  5,  15, 15, 8, 15, 3, 5,  6, 10, 8,  15, 15, 3,  15, 5,
     15, 15, 15, 15, 3, 15, 5,  5,  5,  8,  5, 10, 5, 10, 8, 13, 15, 12, 3,  3},
    {15, 8, 8, 3,  15, 15, 3,  8,  15, 15, 15, 15, 15, 15, 15, 8,  15, 8,  15, 3,  15, 8,
     15, 8, 3, 15, 6,  10, 15, 15, 10, 8,  15, 3,  15, 10, 10, 8,  9,  10, 6,  15, 8,  15,
     3,  6, 6, 8,  15, 3,  15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 3,  15, 15, 8}};

/* The bits of a block, the lowest one of each byte first. */
struct block_bits {
    const unsigned char *block;
    int at;

    int take(int count)
    {
        int value = 0;
        for (int i = 0; i < count; i++, at++)
            value |= (block[at / 8] >> at % 8 & 1) << i;
        return value;
    }
};

static inline int block_part(int parts, int partition, int texel)
{
    return parts == 1 ? 0 : block_parts[parts - 2][partition][texel] - '0';
}

static inline bool block_is_anchor(int parts, int partition, int texel)
{
    return !texel || (parts == 2 && texel == block_anchors[0][partition]) ||
           (parts == 3 && (texel == block_anchors[1][partition] || texel == block_anchors[2][partition]));
}

/* The weight of the second end for each texel. */
static inline void block_weights(block_bits *bits, int width, int parts, int partition, int *weights)
{
    static const int all[3][16] = {
        {0, 21, 43, 64}, {0, 9, 18, 27, 37, 46, 55, 64}, {0, 4, 9, 13, 17, 21, 26, 30, 34, 38, 43, 47, 51, 55, 60, 64}};
    for (int t = 0; t < BLOCK_TEXELS; t++)
        weights[t] = all[width - 2][bits->take(width - block_is_anchor(parts, partition, t))];
}

static inline int block_mix(int first, int second, int weight)
{
    return (first * (64 - weight) + second * weight + 32) / 64;
}

/* ---- BC7 ---- */

static const struct bc7_mode {
    int parts, partition, rotation, selection, colour, alpha, own_low, shared_low, index, second_index;
} bc7_modes[BC7_MODES] = {
    {3, 4, 0, 0, 4, 0, 1, 0, 3, 0}, {2, 6, 0, 0, 6, 0, 0, 1, 3, 0}, {3, 6, 0, 0, 5, 0, 0, 0, 2, 0},
    {2, 6, 0, 0, 7, 0, 1, 0, 2, 0}, {1, 0, 2, 1, 5, 6, 0, 0, 2, 3}, {1, 0, 2, 0, 7, 8, 0, 0, 2, 2},
    {1, 0, 0, 0, 7, 7, 1, 0, 4, 0}, {2, 6, 0, 0, 5, 5, 1, 0, 2, 0},
};

/* Of `bits` bits, made 8. */
static inline int bc7_widen(int value, int bits)
{
    int wide = value << (8 - bits);
    return wide | wide >> bits;
}

static inline void bc7_ends(block_bits *bits, const bc7_mode &mode, int ends[6][4])
{
    const int count = 2 * mode.parts, lows = mode.own_low ? count : mode.shared_low ? mode.parts : 0;
    for (int c = 0; c < 4; c++)
        for (int e = 0; e < count; e++)
            ends[e][c] = bits->take(c < 3 ? mode.colour : mode.alpha);
    int low[6] = {0, 0, 0, 0, 0, 0};
    for (int i = 0; i < lows; i++)
        low[i] = bits->take(1);
    for (int e = 0; e < count; e++)
        for (int c = 0; c < 4; c++) {
            int width = c < 3 ? mode.colour : mode.alpha;
            if (lows)
                ends[e][c] = 2 * ends[e][c] + low[mode.own_low ? e : e / 2];
            ends[e][c] = width ? bc7_widen(ends[e][c], width + (lows > 0)) : 255;
        }
}

/* All texels, channels innermost, from 0 to 255. */
static inline void bc7_decode(const unsigned char *block, int out[BLOCK_TEXELS][4])
{
    block_bits bits = {block, 0};
    int number = 0, ends[6][4], weights[2][BLOCK_TEXELS];
    while (number < BC7_MODES && !bits.take(1))
        number++;
    if (number == BC7_MODES) {
        for (int i = 0; i < BLOCK_TEXELS * 4; i++)
            out[i / 4][i % 4] = 0;
        return;
    }
    const bc7_mode &mode = bc7_modes[number];
    const int partition = bits.take(mode.partition), rotation = bits.take(mode.rotation),
              is_swapped = bits.take(mode.selection);
    bc7_ends(&bits, mode, ends);
    block_weights(&bits, mode.index, mode.parts, partition, weights[0]);
    if (mode.second_index)
        block_weights(&bits, mode.second_index, mode.parts, partition, weights[1]);
    for (int t = 0; t < BLOCK_TEXELS; t++) {
        const int first = 2 * block_part(mode.parts, partition, t);
        for (int c = 0; c < 4; c++)
            out[t][c] = block_mix(ends[first][c], ends[first + 1][c],
                                  weights[mode.second_index ? (c == 3) != is_swapped : 0][t]);
        if (rotation) {
            const int alpha = out[t][3];
            out[t][3] = out[t][rotation - 1];
            out[t][rotation - 1] = alpha;
        }
    }
}

/* ---- BC6H ---- */

static const struct bc6h_mode {
    int number;
    bool has_changes;
    int bits, others[3];
    const char *fields; /* behind the mode */
} bc6h_modes[BC6H_MODES] = {
    {0,
     true,
     10,
     {5, 5, 5},
     "g2[4] b2[4] b3[4] r0[9:0] g0[9:0] b0[9:0] r1[4:0] g3[4] g2[3:0] g1[4:0] b3[0] g3[3:0] b1[4:0] b3[1] b2[3:0] "
     "r2[4:0] b3[2] r3[4:0] b3[3]"},
    {1,
     true,
     7,
     {6, 6, 6},
     "g2[5] g3[4] g3[5] r0[6:0] b3[0] b3[1] b2[4] g0[6:0] b2[5] b3[2] g2[4] b0[6:0] b3[3] b3[5] b3[4] r1[5:0] g2[3:0] "
     "g1[5:0] g3[3:0] b1[5:0] b2[3:0] r2[5:0] r3[5:0]"},
    {2,
     true,
     11,
     {5, 4, 4},
     "r0[9:0] g0[9:0] b0[9:0] r1[4:0] r0[10] g2[3:0] g1[3:0] g0[10] b3[0] g3[3:0] b1[3:0] b0[10] b3[1] b2[3:0] r2[4:0] "
     "b3[2] r3[4:0] b3[3]"},
    {6,
     true,
     11,
     {4, 5, 4},
     "r0[9:0] g0[9:0] b0[9:0] r1[3:0] r0[10] g3[4] g2[3:0] g1[4:0] g0[10] g3[3:0] b1[3:0] b0[10] b3[1] b2[3:0] r2[3:0] "
     "b3[0] b3[2] r3[3:0] g2[4] b3[3]"},
    {10,
     true,
     11,
     {4, 4, 5},
     "r0[9:0] g0[9:0] b0[9:0] r1[3:0] r0[10] b2[4] g2[3:0] g1[3:0] g0[10] b3[0] g3[3:0] b1[4:0] b0[10] b2[3:0] r2[3:0] "
     "b3[1] b3[2] r3[3:0] b3[4] b3[3]"},
    {14,
     true,
     9,
     {5, 5, 5},
     "r0[8:0] b2[4] g0[8:0] g2[4] b0[8:0] b3[4] r1[4:0] g3[4] g2[3:0] g1[4:0] b3[0] g3[3:0] b1[4:0] b3[1] b2[3:0] "
     "r2[4:0] b3[2] r3[4:0] b3[3]"},
    {18,
     true,
     8,
     {6, 5, 5},
     "r0[7:0] g3[4] b2[4] g0[7:0] b3[2] g2[4] b0[7:0] b3[3] b3[4] r1[5:0] g2[3:0] g1[4:0] b3[0] g3[3:0] b1[4:0] b3[1] "
     "b2[3:0] r2[5:0] r3[5:0]"},
    {22,
     true,
     8,
     {5, 6, 5},
     "r0[7:0] b3[0] b2[4] g0[7:0] g2[5] g2[4] b0[7:0] g3[5] b3[4] r1[4:0] g3[4] g2[3:0] g1[5:0] g3[3:0] b1[4:0] b3[1] "
     "b2[3:0] r2[4:0] b3[2] r3[4:0] b3[3]"},
    {26,
     true,
     8,
     {5, 5, 6},
     "r0[7:0] b3[1] b2[4] g0[7:0] b2[5] g2[4] b0[7:0] b3[5] b3[4] r1[4:0] g3[4] g2[3:0] g1[4:0] b3[0] g3[3:0] b1[5:0] "
     "b2[3:0] r2[4:0] b3[2] r3[4:0] b3[3]"},
    {30,
     false,
     6,
     {6, 6, 6},
     "r0[5:0] g3[4] b3[0] b3[1] b2[4] g0[5:0] g2[5] b2[5] b3[2] g2[4] b0[5:0] g3[5] b3[3] b3[5] b3[4] r1[5:0] g2[3:0] "
     "g1[5:0] g3[3:0] b1[5:0] b2[3:0] r2[5:0] r3[5:0]"},
    {3, false, 10, {10, 10, 10}, "r0[9:0] g0[9:0] b0[9:0] r1[9:0] g1[9:0] b1[9:0]"},
    {7, true, 11, {9, 9, 9}, "r0[9:0] g0[9:0] b0[9:0] r1[8:0] r0[10] g1[8:0] g0[10] b1[8:0] b0[10]"},
    {11, true, 12, {8, 8, 8}, "r0[9:0] g0[9:0] b0[9:0] r1[7:0] r0[10:11] g1[7:0] g0[10:11] b1[7:0] b0[10:11]"},
    {15, true, 16, {4, 4, 4}, "r0[9:0] g0[9:0] b0[9:0] r1[3:0] r0[10:15] g1[3:0] g0[10:15] b1[3:0] b0[10:15]"},
};

/* Fields like "g2[4]" and "r0[9:0]"; of those whose first number is less the order of bits is the other one. */
static inline void bc6h_take(block_bits *bits, const char *fields, int ends[4][3])
{
    for (const char *at = fields; *at; at += *at == ' ') {
        const int channel = *at == 'r' ? 0 : *at == 'g' ? 1 : 2, end = at[1] - '0';
        char *next;
        const int high = (int)strtol(at + 3, &next, 10), low = *next == ':' ? (int)strtol(next + 1, &next, 10) : high;
        for (int i = 0; i <= std::abs(high - low); i++)
            ends[end][channel] |= bits->take(1) << (high >= low ? low + i : low - i);
        at = next + 1;
    }
}

static inline int bc6h_signed(int value, int bits)
{
    value &= (1 << bits) - 1;
    return value < 1 << (bits - 1) ? value : value - (1 << bits);
}

static inline void bc6h_finish(const bc6h_mode &mode, bool is_signed, int ends[4][3])
{
    for (int c = 0; c < 3; c++) {
        if (mode.has_changes)
            for (int e = 1; e < 4; e++)
                ends[e][c] = (ends[0][c] + bc6h_signed(ends[e][c], mode.others[c])) & ((1 << mode.bits) - 1);
        if (is_signed)
            for (int e = 0; e < 4; e++)
                ends[e][c] = bc6h_signed(ends[e][c], mode.bits);
    }
}

static inline int bc6h_widen(int value, int bits, bool is_signed)
{
    if (bits >= 16 || (!is_signed && bits >= 15) || !value)
        return value;
    if (!is_signed)
        return value == (1 << bits) - 1 ? 0xffff : ((value << 15) + 0x4000) >> (bits - 1);
    const int size = std::abs(value), most = (1 << (bits - 1)) - 1,
              wide = size >= most ? 0x7fff : ((size << 15) + 0x4000) >> (bits - 1);
    return value < 0 ? -wide : wide;
}

static inline int bc6h_mix(int first, int second, int weight)
{
    return (int)std::floor((first * (64 - weight) + second * weight + 32) / 64.0);
}

/* Of the bits of a half, which is finite. */
static inline double bc6h_half(int bits)
{
    const int exponent = bits >> 10 & 31;
    const double size = exponent ? std::ldexp(1024 + (bits & 1023), exponent - 25) : std::ldexp(bits & 1023, -24);
    return bits & 0x8000 ? -size : size;
}

/* All texels, channels innermost. */
static inline void bc6h_decode(const unsigned char *block, bool is_signed, double out[BLOCK_TEXELS][3])
{
    block_bits bits = {block, 0};
    int number = bits.take(2), ends[4][3] = {}, weights[BLOCK_TEXELS], partition = 0;
    const bc6h_mode *mode = bc6h_modes;
    if (number >= 2)
        number |= bits.take(3) << 2;
    while (mode < bc6h_modes + BC6H_MODES && mode->number != number)
        mode++;
    if (mode == bc6h_modes + BC6H_MODES) {
        for (int i = 0; i < BLOCK_TEXELS * 3; i++)
            out[i / 3][i % 3] = 0;
        return;
    }
    const int parts = number % 4 == 3 ? 1 : 2;
    bc6h_take(&bits, mode->fields, ends);
    bc6h_finish(*mode, is_signed, ends);
    if (parts == 2)
        partition = bits.take(5);
    block_weights(&bits, parts == 2 ? 3 : 4, parts, partition, weights);
    for (int t = 0; t < BLOCK_TEXELS; t++)
        for (int c = 0; c < 3; c++) {
            const int first = 2 * block_part(parts, partition, t),
                      mixed = bc6h_mix(bc6h_widen(ends[first][c], mode->bits, is_signed),
                                       bc6h_widen(ends[first + 1][c], mode->bits, is_signed), weights[t]);
            out[t][c] = bc6h_half(!is_signed   ? mixed * 31 / 64
                                  : mixed >= 0 ? mixed * 31 / 32
                                               : 0x8000 | (-mixed * 31 / 32));
        }
}

#endif
