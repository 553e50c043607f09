#include "cpu/softgpu/texel/bptc.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- what both formats share: bits, partitions, indices, interpolation ---- */

/* 128 bits, the lowest ones first. */
struct block {
    uint64_t words[2];
};

static struct block read_block(const unsigned char *bytes)
{
    struct block block;

    memcpy(block.words, bytes, sizeof block.words);
    return block;
}

/* At most 16 bits of a block. */
static unsigned take(const struct block *block, unsigned at, unsigned count)
{
    uint64_t bits = block->words[at / 64] >> at % 64;

    if (at % 64 && at < 64)
        bits |= block->words[1] << (64 - at);
    return (unsigned)(bits & ((1u << count) - 1));
}

enum { PARTITIONS = 64 };

/* Of two parts: the bit of each texel, texel 0 in the lowest. */
static const uint16_t halves[PARTITIONS] = {
    0xcccc, 0x8888, 0xeeee, 0xecc8, 0xc880, 0xfeec, 0xfec8, 0xec80, 0xc800, 0xffec, 0xfe80, 0xe800, 0xffe8,
    0xff00, 0xfff0, 0xf000, 0xf710, 0x008e, 0x7100, 0x08ce, 0x008c, 0x7310, 0x3100, 0x8cce, 0x088c, 0x3110,
    0x6666, 0x366c, 0x17e8, 0x0ff0, 0x718e, 0x399c, 0xaaaa, 0xf0f0, 0x5a5a, 0x33cc, 0x3c3c, 0x55aa, 0x9696,
    0xa55a, 0x73ce, 0x13c8, 0x324c, 0x3bdc, 0x6996, 0xc33c, 0x9966, 0x0660, 0x0272, 0x04e4, 0x4e40, 0x2720,
    0xc936, 0x936c, 0x39c6, 0x639c, 0x9336, 0x9cc6, 0x817e, 0xe718, 0xccf0, 0x0fcc, 0x7744, 0xee22};

/* Of three: 2 bits for each texel. */
static const uint32_t thirds[PARTITIONS] = {
    0xaa685050, 0x6a5a5040, 0x5a5a4200, 0x5450a0a8, 0xa5a50000, 0xa0a05050, 0x5555a0a0, 0x5a5a5050,
    0xaa550000, 0xaa555500, 0xaaaa5500, 0x90909090, 0x94949494, 0xa4a4a4a4, 0xa9a59450, 0x2a0a4250,
    0xa5945040, 0x0a425054, 0xa5a5a500, 0x55a0a0a0, 0xa8a85454, 0x6a6a4040, 0xa4a45000, 0x1a1a0500,
    0x0050a4a4, 0xaaa59090, 0x14696914, 0x69691400, 0xa08585a0, 0xaa821414, 0x50a4a450, 0x6a5a0200,
    0xa9a58000, 0x5090a0a8, 0xa8a09050, 0x24242424, 0x00aa5500, 0x24924924, 0x24499224, 0x50a50a50,
    0x500aa550, 0xaaaa4444, 0x66660000, 0xa5a0a5a0, 0x50a050a0, 0x69286928, 0x44aaaa44, 0x66666600,
    0xaa444444, 0x54a854a8, 0x95809580, 0x96969600, 0xa85454a8, 0x80959580, 0xaa141414, 0x96960000,
    0xaaaa1414, 0xa05050a0, 0xa0a5a5a0, 0x96000000, 0x40804080, 0xa9a8a9a8, 0xaaaaaa44, 0x2a4a5254};
/* The texel of a part whose number lacks its highest bit; of the first part it is texel 0. */
static const uint8_t second_of_two[PARTITIONS] = {15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
                                                  15, 2,  8,  2,  2,  8,  8,  15, 2,  8,  2,  2,  8,  8,  2,  2,
                                                  15, 15, 6,  8,  2,  8,  15, 15, 2,  8,  2,  2,  2,  15, 15, 6,
                                                  6,  2,  6,  8,  15, 15, 2,  2,  15, 15, 15, 15, 15, 2,  2,  15};
static const uint8_t second_of_three[PARTITIONS] = {
    3, 3,  15, 15, 8, 3,  15, 15, 8,  8, 6,  6, 6,  5,  3,  3,  3, 3,  8, 15, 3, 3, 6, 10, 5, 8,  8, 6,  8,  5,  15, 15,
    8, 15, 3,  5,  6, 10, 8,  15, 15, 3, 15, 5, 15, 15, 15, 15, 3, 15, 5, 5,  5, 8, 5, 10, 5, 10, 8, 13, 15, 12, 3,  3};
static const uint8_t third[PARTITIONS] = {15, 8, 8,  3,  15, 15, 3,  8,  15, 15, 15, 15, 15, 15, 15, 8,
                                          15, 8, 15, 3,  15, 8,  15, 8,  3,  15, 6,  10, 15, 15, 10, 8,
                                          15, 3, 15, 10, 10, 8,  9,  10, 6,  15, 8,  15, 3,  6,  6,  8,
                                          15, 3, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 3,  15, 15, 8};

/* A block's texels in one to three parts, each with two ends. */
struct parts {
    unsigned count, partition;
};

static unsigned part_of(struct parts parts, unsigned texel)
{
    return parts.count == 2   ? halves[parts.partition] >> texel & 1
           : parts.count == 3 ? thirds[parts.partition] >> 2 * texel & 3
                              : 0;
}

/* The texels whose indices are shorter by a bit. */
static unsigned short_ones(struct parts parts)
{
    unsigned texels = 1;

    if (parts.count == 2)
        texels |= 1u << second_of_two[parts.partition];
    else if (parts.count == 3)
        texels |= 1u << second_of_three[parts.partition] | 1u << third[parts.partition];
    return texels;
}

/* Of the indices of 2 to 4 bits that begin at `at`: the weight of the second end, of 64, for a texel. */
static int weight_of(const struct block *block, unsigned at, unsigned bits, struct parts parts, unsigned texel)
{
    static const int8_t weights[3][16] = {
        {0, 21, 43, 64}, {0, 9, 18, 27, 37, 46, 55, 64}, {0, 4, 9, 13, 17, 21, 26, 30, 34, 38, 43, 47, 51, 55, 60, 64}};
    const unsigned shorts = short_ones(parts);
    const unsigned before = (unsigned)__builtin_popcount(shorts & ((1u << texel) - 1));

    return weights[bits - 2][take(block, at + texel * bits - before, bits - (shorts >> texel & 1))];
}

static int interpolate(int first, int second, int weight)
{
    return (first * (64 - weight) + second * weight + 32) >> 6;
}

/* ---- BC7 ---- */

enum { BC7_MODES = 8 };

/* Bits of each field, in the order in which they come. */
static const struct bc7_mode {
    uint8_t part_count, partition, rotation, selection;
    uint8_t colour, alpha;       /* of a channel of an end */
    uint8_t own_low, shared_low; /* one bit below them: of an end, or of both ends of a part */
    uint8_t index, second_index;
} bc7_modes[BC7_MODES] = {
    {3, 4, 0, 0, 4, 0, 1, 0, 3, 0}, {2, 6, 0, 0, 6, 0, 0, 1, 3, 0}, {3, 6, 0, 0, 5, 0, 0, 0, 2, 0},
    {2, 6, 0, 0, 7, 0, 1, 0, 2, 0}, {1, 0, 2, 1, 5, 6, 0, 0, 2, 3}, {1, 0, 2, 0, 7, 8, 0, 0, 2, 2},
    {1, 0, 0, 0, 7, 7, 1, 0, 4, 0}, {2, 6, 0, 0, 5, 5, 1, 0, 2, 0},
};

/* Where the fields of a block begin behind its mode, and what its head says. */
struct bc7_head {
    const struct bc7_mode *mode;
    struct parts parts;
    unsigned rotation, selection;
    unsigned colours, alphas, lows, indices, second_indices;
};

static struct bc7_head read_bc7_head(const struct block *block, unsigned number)
{
    const struct bc7_mode *mode = &bc7_modes[number];
    const unsigned ends = 2u * mode->part_count;
    struct bc7_head head = {.mode = mode, .parts = {.count = mode->part_count}};
    unsigned at = number + 1;

    head.parts.partition = take(block, at, mode->partition);
    at += mode->partition;
    head.rotation = take(block, at, mode->rotation);
    at += mode->rotation;
    head.selection = take(block, at, mode->selection);
    head.colours = at + mode->selection;
    head.alphas = head.colours + 3 * ends * mode->colour;
    head.lows = head.alphas + ends * mode->alpha;
    head.indices = head.lows + ends * mode->own_low + mode->part_count * mode->shared_low;
    head.second_indices = head.indices + 16u * mode->index - mode->part_count;
    return head;
}

/* A channel of an end, in 8 bits: its highest ones again where it has fewer. */
static int read_bc7_end(const struct block *block, const struct bc7_head *head, unsigned channel, unsigned part,
                        unsigned end)
{
    const struct bc7_mode *mode = head->mode;
    const unsigned ends = 2u * mode->part_count, number = 2 * part + end;
    unsigned bits = channel < 3 ? mode->colour : mode->alpha, value;

    if (!bits)
        return 255;
    value = channel < 3 ? take(block, head->colours + (channel * ends + number) * bits, bits)
                        : take(block, head->alphas + number * bits, bits);
    if (mode->own_low || mode->shared_low) {
        value = value << 1 | take(block, head->lows + (mode->own_low ? number : part), 1);
        bits++;
    }
    value <<= 8 - bits;
    return (int)(value | value >> bits);
}

void flyt_texel_bc7_read(const unsigned char *bytes, unsigned texel, uint8_t *ret_texel)
{
    const struct block block = read_block(bytes);
    struct bc7_head head;
    int weights[2];
    unsigned part;

    if (!bytes[0]) {
        memset(ret_texel, 0, 4);
        return;
    }
    head = read_bc7_head(&block, (unsigned)__builtin_ctz(bytes[0]));
    part = part_of(head.parts, texel);
    weights[0] = weights[1] = weight_of(&block, head.indices, head.mode->index, head.parts, texel);
    if (head.mode->second_index)
        weights[!head.selection] = weight_of(&block, head.second_indices, head.mode->second_index, head.parts, texel);
    for (unsigned c = 0; c < 4; c++) {
        const unsigned place = !head.rotation || (c < 3 && c != head.rotation - 1) ? c : c == 3 ? head.rotation - 1 : 3;

        ret_texel[place] = (uint8_t)interpolate(read_bc7_end(&block, &head, c, part, 0),
                                                read_bc7_end(&block, &head, c, part, 1), weights[c == 3]);
    }
}

/* ---- BC6H ---- */

enum { BC6H_RUNS_MAX = 24, BC6H_PARTITION = 77, BC6H_INDICES_OF_TWO = 82, BC6H_INDICES_OF_ONE = 65 };

/* A channel of one of four ends; the second part has the last two. */
enum bc6h_value { R0, G0, B0, R1, G1, B1, R2, G2, B2, R3, G3, B3, BC6H_VALUES };

/* Bits that come together, from bit `low` of a value on. */
struct bc6h_run {
    uint8_t value, low, count;
};

/* What follows the mode: of 2 bits, where it is less than 2, else of 5. */
static const struct bc6h_mode {
    uint8_t number;
    bool has_changes;  /* all ends but the first are told by how they differ from it */
    uint8_t bits;      /* of a channel of the first end */
    uint8_t others[3]; /* of a red, green and blue one of the others */
    struct bc6h_run runs[BC6H_RUNS_MAX];
} bc6h_modes[] = {
    {0,
     true,
     10,
     {5, 5, 5},
     {{G2, 4, 1},
      {B2, 4, 1},
      {B3, 4, 1},
      {R0, 0, 10},
      {G0, 0, 10},
      {B0, 0, 10},
      {R1, 0, 5},
      {G3, 4, 1},
      {G2, 0, 4},
      {G1, 0, 5},
      {B3, 0, 1},
      {G3, 0, 4},
      {B1, 0, 5},
      {B3, 1, 1},
      {B2, 0, 4},
      {R2, 0, 5},
      {B3, 2, 1},
      {R3, 0, 5},
      {B3, 3, 1}}},
    {1, true, 7, {6, 6, 6}, {{G2, 5, 1}, {G3, 4, 1}, {G3, 5, 1}, {R0, 0, 7}, {B3, 0, 1}, {B3, 1, 1},
                             {B2, 4, 1}, {G0, 0, 7}, {B2, 5, 1}, {B3, 2, 1}, {G2, 4, 1}, {B0, 0, 7},
                             {B3, 3, 1}, {B3, 5, 1}, {B3, 4, 1}, {R1, 0, 6}, {G2, 0, 4}, {G1, 0, 6},
                             {G3, 0, 4}, {B1, 0, 6}, {B2, 0, 4}, {R2, 0, 6}, {R3, 0, 6}}},
    {2,
     true,
     11,
     {5, 4, 4},
     {{R0, 0, 10},
      {G0, 0, 10},
      {B0, 0, 10},
      {R1, 0, 5},
      {R0, 10, 1},
      {G2, 0, 4},
      {G1, 0, 4},
      {G0, 10, 1},
      {B3, 0, 1},
      {G3, 0, 4},
      {B1, 0, 4},
      {B0, 10, 1},
      {B3, 1, 1},
      {B2, 0, 4},
      {R2, 0, 5},
      {B3, 2, 1},
      {R3, 0, 5},
      {B3, 3, 1}}},
    {6, true, 11, {4, 5, 4}, {{R0, 0, 10}, {G0, 0, 10}, {B0, 0, 10}, {R1, 0, 4}, {R0, 10, 1}, {G3, 4, 1}, {G2, 0, 4},
                              {G1, 0, 5},  {G0, 10, 1}, {G3, 0, 4},  {B1, 0, 4}, {B0, 10, 1}, {B3, 1, 1}, {B2, 0, 4},
                              {R2, 0, 4},  {B3, 0, 1},  {B3, 2, 1},  {R3, 0, 4}, {G2, 4, 1},  {B3, 3, 1}}},
    {10, true, 11, {4, 4, 5}, {{R0, 0, 10}, {G0, 0, 10}, {B0, 0, 10}, {R1, 0, 4}, {R0, 10, 1}, {B2, 4, 1},  {G2, 0, 4},
                               {G1, 0, 4},  {G0, 10, 1}, {B3, 0, 1},  {G3, 0, 4}, {B1, 0, 5},  {B0, 10, 1}, {B2, 0, 4},
                               {R2, 0, 4},  {B3, 1, 1},  {B3, 2, 1},  {R3, 0, 4}, {B3, 4, 1},  {B3, 3, 1}}},
    {14,
     true,
     9,
     {5, 5, 5},
     {{R0, 0, 9},
      {B2, 4, 1},
      {G0, 0, 9},
      {G2, 4, 1},
      {B0, 0, 9},
      {B3, 4, 1},
      {R1, 0, 5},
      {G3, 4, 1},
      {G2, 0, 4},
      {G1, 0, 5},
      {B3, 0, 1},
      {G3, 0, 4},
      {B1, 0, 5},
      {B3, 1, 1},
      {B2, 0, 4},
      {R2, 0, 5},
      {B3, 2, 1},
      {R3, 0, 5},
      {B3, 3, 1}}},
    {18,
     true,
     8,
     {6, 5, 5},
     {{R0, 0, 8},
      {G3, 4, 1},
      {B2, 4, 1},
      {G0, 0, 8},
      {B3, 2, 1},
      {G2, 4, 1},
      {B0, 0, 8},
      {B3, 3, 1},
      {B3, 4, 1},
      {R1, 0, 6},
      {G2, 0, 4},
      {G1, 0, 5},
      {B3, 0, 1},
      {G3, 0, 4},
      {B1, 0, 5},
      {B3, 1, 1},
      {B2, 0, 4},
      {R2, 0, 6},
      {R3, 0, 6}}},
    {22, true, 8, {5, 6, 5}, {{R0, 0, 8}, {B3, 0, 1}, {B2, 4, 1}, {G0, 0, 8}, {G2, 5, 1}, {G2, 4, 1}, {B0, 0, 8},
                              {G3, 5, 1}, {B3, 4, 1}, {R1, 0, 5}, {G3, 4, 1}, {G2, 0, 4}, {G1, 0, 6}, {G3, 0, 4},
                              {B1, 0, 5}, {B3, 1, 1}, {B2, 0, 4}, {R2, 0, 5}, {B3, 2, 1}, {R3, 0, 5}, {B3, 3, 1}}},
    {26, true, 8, {5, 5, 6}, {{R0, 0, 8}, {B3, 1, 1}, {B2, 4, 1}, {G0, 0, 8}, {B2, 5, 1}, {G2, 4, 1}, {B0, 0, 8},
                              {B3, 5, 1}, {B3, 4, 1}, {R1, 0, 5}, {G3, 4, 1}, {G2, 0, 4}, {G1, 0, 5}, {B3, 0, 1},
                              {G3, 0, 4}, {B1, 0, 6}, {B2, 0, 4}, {R2, 0, 5}, {B3, 2, 1}, {R3, 0, 5}, {B3, 3, 1}}},
    {30, false, 6, {6, 6, 6}, {{R0, 0, 6}, {G3, 4, 1}, {B3, 0, 1}, {B3, 1, 1}, {B2, 4, 1}, {G0, 0, 6},
                               {G2, 5, 1}, {B2, 5, 1}, {B3, 2, 1}, {G2, 4, 1}, {B0, 0, 6}, {G3, 5, 1},
                               {B3, 3, 1}, {B3, 5, 1}, {B3, 4, 1}, {R1, 0, 6}, {G2, 0, 4}, {G1, 0, 6},
                               {G3, 0, 4}, {B1, 0, 6}, {B2, 0, 4}, {R2, 0, 6}, {R3, 0, 6}}},
    {3, false, 10, {10, 10, 10}, {{R0, 0, 10}, {G0, 0, 10}, {B0, 0, 10}, {R1, 0, 10}, {G1, 0, 10}, {B1, 0, 10}}},
    {7,
     true,
     11,
     {9, 9, 9},
     {{R0, 0, 10},
      {G0, 0, 10},
      {B0, 0, 10},
      {R1, 0, 9},
      {R0, 10, 1},
      {G1, 0, 9},
      {G0, 10, 1},
      {B1, 0, 9},
      {B0, 10, 1}}},
    {11,
     true,
     12,
     {8, 8, 8},
     {{R0, 0, 10},
      {G0, 0, 10},
      {B0, 0, 10},
      {R1, 0, 8},
      {R0, 11, 1},
      {R0, 10, 1},
      {G1, 0, 8},
      {G0, 11, 1},
      {G0, 10, 1},
      {B1, 0, 8},
      {B0, 11, 1},
      {B0, 10, 1}}},
    {15, true, 16, {4, 4, 4}, {{R0, 0, 10}, {G0, 0, 10}, {B0, 0, 10}, {R1, 0, 4},  {R0, 15, 1}, {R0, 14, 1},
                               {R0, 13, 1}, {R0, 12, 1}, {R0, 11, 1}, {R0, 10, 1}, {G1, 0, 4},  {G0, 15, 1},
                               {G0, 14, 1}, {G0, 13, 1}, {G0, 12, 1}, {G0, 11, 1}, {G0, 10, 1}, {B1, 0, 4},
                               {B0, 15, 1}, {B0, 14, 1}, {B0, 13, 1}, {B0, 12, 1}, {B0, 11, 1}, {B0, 10, 1}}},
};

static const struct bc6h_mode *find_bc6h_mode(const struct block *block)
{
    const unsigned low = take(block, 0, 2), number = low < 2 ? low : take(block, 0, 5);

    for (size_t i = 0; i < sizeof bc6h_modes / sizeof *bc6h_modes; i++)
        if (bc6h_modes[i].number == number)
            return &bc6h_modes[i];
    return NULL;
}

static int extend_sign(int value, unsigned bits)
{
    const int sign = 1 << (bits - 1);

    return ((value & (2 * sign - 1)) ^ sign) - sign;
}

static void read_bc6h_values(const struct block *block, const struct bc6h_mode *mode, int *values)
{
    unsigned at = mode->number < 2 ? 2 : 5;

    memset(values, 0, BC6H_VALUES * sizeof *values);
    for (const struct bc6h_run *run = mode->runs; run < mode->runs + BC6H_RUNS_MAX && run->count; run++) {
        values[run->value] |= (int)(take(block, at, run->count) << run->low);
        at += run->count;
    }
}

/* Values of the mode's bits each, with their signs. */
static void finish_bc6h_values(const struct bc6h_mode *mode, bool is_signed, int *values)
{
    for (unsigned i = 0; i < BC6H_VALUES; i++) {
        const unsigned bits = i < 3 ? mode->bits : mode->others[i % 3];

        if (is_signed || (i >= 3 && mode->has_changes))
            values[i] = extend_sign(values[i], bits);
        if (i < 3 || !mode->has_changes)
            continue;
        values[i] = (values[i % 3] + values[i]) & ((1 << mode->bits) - 1);
        if (is_signed)
            values[i] = extend_sign(values[i], mode->bits);
    }
}

/* To 16 bits, or 15 and a sign: the ends of the range stay its ends. */
static int widen(int value, unsigned bits, bool is_signed)
{
    const unsigned magnitude_bits = is_signed ? bits - 1 : bits;
    const int magnitude = value < 0 ? -value : value, most = is_signed ? 0x7fff : 0xffff;
    int wide;

    if (bits >= (is_signed ? 16 : 15))
        return value;
    if (!magnitude)
        return 0;
    wide = magnitude >= (1 << magnitude_bits) - 1 ? most : ((magnitude << 15) + 0x4000) >> (bits - 1);
    return value < 0 ? -wide : wide;
}

/* The bits of a half, of which the least of 16 bits would be no number. As GPUs have it, a negative value that becomes
 * 0 loses its sign. */
static uint16_t as_half(int value, bool is_signed)
{
    const int size = value < 0 ? (value < -0x7fff ? 0x7fff : -value) : value;
    const int magnitude = size * 31 >> (is_signed ? 5 : 6);

    return (uint16_t)(value < 0 && magnitude ? 0x8000 | magnitude : magnitude);
}

void flyt_texel_bc6h_read(const unsigned char *bytes, bool is_signed, unsigned texel, uint16_t *ret_halves)
{
    const struct block block = read_block(bytes);
    const struct bc6h_mode *mode = find_bc6h_mode(&block);
    struct parts parts = {.count = 1};
    int values[BC6H_VALUES], weight;

    if (!mode) {
        memset(ret_halves, 0, 3 * sizeof *ret_halves);
        return;
    }
    if ((mode->number & 3) != 3)
        parts = (struct parts){2, take(&block, BC6H_PARTITION, 5)};
    read_bc6h_values(&block, mode, values);
    finish_bc6h_values(mode, is_signed, values);
    weight = parts.count == 2 ? weight_of(&block, BC6H_INDICES_OF_TWO, 3, parts, texel)
                              : weight_of(&block, BC6H_INDICES_OF_ONE, 4, parts, texel);
    for (unsigned c = 0; c < 3; c++) {
        const int *ends = values + 6 * part_of(parts, texel) + c;

        ret_halves[c] =
            as_half(interpolate(widen(ends[0], mode->bits, is_signed), widen(ends[3], mode->bits, is_signed), weight),
                    is_signed);
    }
}
