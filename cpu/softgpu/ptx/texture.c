/* tex and tld4. */

#include "cpu/softgpu/ptx/exec.h"

#include <math.h>
#include <string.h>

#include "cpu/softgpu/ptx/half.h"
#include "cpu/softgpu/ptx/lanes.h"
#include "cpu/softgpu/ptx/ops.h"
#include "cpu/softgpu/texel/bptc.h"

/* ---- texels ---- */

/* One texel: floats, or the bits of integers. */
union texel {
    float f[4];
    uint32_t u[4];
};

/* The element is read as it is, extended to 32 bits. */
#define PLAIN(T, value)                                                                                                \
    for (unsigned c = 0; c < channels; c++) {                                                                          \
        T v;                                                                                                           \
        memcpy(&v, at + c * sizeof v, sizeof v);                                                                       \
        out->u[c] = (uint32_t)(value);                                                                                 \
    }                                                                                                                  \
    break
/* The element becomes a float. */
#define SCALED(T, value)                                                                                               \
    for (unsigned c = 0; c < channels; c++) {                                                                          \
        T v;                                                                                                           \
        memcpy(&v, at + c * sizeof v, sizeof v);                                                                       \
        out->f[c] = (value);                                                                                           \
    }                                                                                                                  \
    break

static void read_words(unsigned channels, const char *at, union texel *out)
{
    if (channels == 1)
        memcpy(out->u, at, sizeof out->u[0]);
    else if (channels == 2)
        memcpy(out->u, at, 2 * sizeof out->u[0]);
    else
        memcpy(out->u, at, sizeof out->u);
}

/* Red in the lowest bits. */
static void read_101010_2(const char *at, union texel *out)
{
    uint32_t bits;

    memcpy(&bits, at, sizeof bits);
    for (unsigned c = 0; c < 3; c++)
        out->f[c] = (float)(bits >> c * 10 & 1023) / 1023.0f;
    out->f[3] = (float)(bits >> 30) / 3.0f;
}

static void read_plain(CUarray_format format, unsigned channels, const char *at, union texel *out)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
        PLAIN(uint8_t, v);
    case CU_AD_FORMAT_SIGNED_INT8:
        PLAIN(int8_t, (int32_t)v);
    case CU_AD_FORMAT_UNSIGNED_INT16:
        PLAIN(uint16_t, v);
    case CU_AD_FORMAT_SIGNED_INT16:
        PLAIN(int16_t, (int32_t)v);
    case CU_AD_FORMAT_HALF:
        SCALED(uint16_t, flyt_half_to_float(v));
    case CU_AD_FORMAT_UNORM_INT_101010_2:
        read_101010_2(at, out);
        break;
    default:
        read_words(channels, at, out);
        break;
    }
}

static float to_unit(int32_t value, float most)
{
    float scaled = (float)value / most;

    return scaled < -1 ? -1 : scaled;
}

static void read_scaled(CUarray_format format, unsigned channels, const char *at, union texel *out)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_UNORM_INT8X1 ... CU_AD_FORMAT_UNORM_INT8X4:
        SCALED(uint8_t, (float)v / 255.0f);
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SNORM_INT8X1 ... CU_AD_FORMAT_SNORM_INT8X4:
        SCALED(int8_t, to_unit(v, 127));
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_UNORM_INT16X1 ... CU_AD_FORMAT_UNORM_INT16X4:
        SCALED(uint16_t, (float)v / 65535.0f);
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SNORM_INT16X1 ... CU_AD_FORMAT_SNORM_INT16X4:
        SCALED(int16_t, to_unit(v, 32767));
    default:
        read_plain(format, channels, at, out);
        break;
    }
}

/* IEC 61966-2-1; the fourth channel is no colour, nor is the second of two. */
static void make_linear(unsigned channels, union texel *texel)
{
    const unsigned colours = channels < 3 ? 1 : 3;

    for (unsigned c = 0; c < colours; c++) {
        float v = texel->f[c];

        texel->f[c] = v <= 0.04045f ? v / 12.92f : powf((v + 0.055f) / 1.055f, 2.4f);
    }
}

/* ---- blocks of 4 by 4 texels ---- */

/*
 * BC1 to BC5 of Microsoft's Direct3D, which Khronos's Data Format Specification describes as S3TC and RGTC. What they
 * compute is exact here; hardware may round. BC6H and BC7 are exact anywhere. Channels that a format lacks stay as they
 * are.
 */

/* Colours: two of 5, 6 and 5 bits, then two bits for each texel. */

static void unpack_colour(unsigned packed, float *out)
{
    out[0] = (float)(packed >> 11) / 31;
    out[1] = (float)(packed >> 5 & 63) / 63;
    out[2] = (float)(packed & 31) / 31;
}

/* has_alpha: a fourth channel is elsewhere, and there are always four colours. Otherwise the order of the two says
 * whether there are four, or three and a clear black. */
static void read_colour(const unsigned char *block, bool has_alpha, unsigned texel, float *out)
{
    static const float seconds[2][4] = {{0, 1, 1 / 3.0f, 2 / 3.0f}, {0, 1, 0.5f, 0}};
    const unsigned first = block[0] | (unsigned)block[1] << 8, second = block[2] | (unsigned)block[3] << 8;
    const unsigned index = block[4 + texel / 4] >> texel % 4 * 2 & 3;
    const bool has_clear = !has_alpha && first <= second;
    const float part = seconds[has_clear][index];
    float colours[2][3];

    unpack_colour(first, colours[0]);
    unpack_colour(second, colours[1]);
    for (unsigned c = 0; c < 3; c++)
        out[c] = has_clear && index == 3 ? 0 : (1 - part) * colours[0][c] + part * colours[1][c];
    if (!has_alpha)
        out[3] = has_clear && index == 3 ? 0 : 1;
}

/* One channel: two values of 8 bits, then three bits for each texel. */

static float end_of_ramp(unsigned char bits, bool is_signed)
{
    const int8_t value = (int8_t)bits;

    if (!is_signed)
        return (float)bits / 255;
    return value < -127 ? -1 : (float)value / 127;
}

/* The order of the two says whether all others lie between them, or two are the least and the most. */
static float read_ramp(const unsigned char *block, bool is_signed, unsigned texel)
{
    const float first = end_of_ramp(block[0], is_signed), second = end_of_ramp(block[1], is_signed);
    const bool is_falling = is_signed ? (int8_t)block[0] > (int8_t)block[1] : block[0] > block[1];
    const unsigned steps = is_falling ? 7 : 5;
    uint64_t indices = 0;
    unsigned index;

    memcpy(&indices, block + 2, 6);
    index = indices >> texel * 3 & 7;
    if (index < 2)
        return index ? second : first;
    if (index > steps)
        return index == 7 ? 1 : is_signed ? -1 : 0;
    return ((float)(steps + 1 - index) * first + (float)(index - 1) * second) / (float)steps;
}

static void read_bc6h(const unsigned char *block, bool is_signed, unsigned texel, float *out)
{
    uint16_t halves[3];

    flyt_texel_bc6h_read(block, is_signed, texel, halves);
    for (unsigned c = 0; c < 3; c++)
        out[c] = flyt_half_to_float(halves[c]);
}

static void read_bc7(const unsigned char *block, unsigned texel, float *out)
{
    uint8_t channels[4];

    flyt_texel_bc7_read(block, texel, channels);
    for (unsigned c = 0; c < 4; c++)
        out[c] = (float)channels[c] / 255.0f;
}

/* The texel in a column and a row, both less than 4. */
static void read_block(CUarray_format format, const unsigned char *block, unsigned x, unsigned y, float *out)
{
    const bool is_signed = format == CU_AD_FORMAT_BC4_SNORM || format == CU_AD_FORMAT_BC5_SNORM;
    const unsigned texel = y * 4 + x;

    switch (format) {
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
        read_colour(block, false, texel, out);
        break;
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
        out[3] = (float)(block[texel / 2] >> texel % 2 * 4 & 15) / 15;
        read_colour(block + 8, true, texel, out);
        break;
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
        out[3] = read_ramp(block, false, texel);
        read_colour(block + 8, true, texel, out);
        break;
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
        out[1] = read_ramp(block + 8, is_signed, texel);
        out[0] = read_ramp(block, is_signed, texel);
        break;
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
        read_bc6h(block, format == CU_AD_FORMAT_BC6H_SF16, texel, out);
        break;
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB:
        read_bc7(block, texel, out);
        break;
    default: /* BC4 */
        out[0] = read_ramp(block, is_signed, texel);
        break;
    }
}

/* ---- fetches ---- */

/* A fetch under way. */
struct fetch {
    struct ptx_warp *w;
    const struct flyt_ptx_object *object;
    bool has_failed; /* the memory of the image is not there */
};

/* Where a texel is, each of which may be -1: outside, where the border is. */
struct place {
    int32_t x, y, z;
};

static void read_texel(struct fetch *fetch, const struct flyt_ptx_level *level, struct place place, union texel *out)
{
    const struct flyt_ptx_object *object = fetch->object;
    const struct flyt_ptx_image *image = &object->image;
    uint64_t address;

    if ((place.x | place.y | place.z) < 0) {
        memcpy(out->f, object->border, sizeof out->f);
        return;
    }
    address = level->address + (uint64_t)place.z * level->slice_bytes +
              (uint64_t)(place.y >> image->block_shift) * level->row_bytes +
              (uint64_t)(place.x >> image->block_shift) * image->texel_bytes;
    if (image->is_memory && !flyt_ptx_span(fetch->w, PTX_SPACE_GLOBAL, address, image->texel_bytes, false)) {
        fetch->has_failed = true;
        return;
    }
    if (image->block_shift)
        read_block(image->format, (const unsigned char *)(uintptr_t)address, place.x & 3, /* NOLINT */
                   place.y & 3, out->f);
    else if (image->format == CU_AD_FORMAT_FLOAT)
        read_words(image->channels, (const char *)(uintptr_t)address, out); /* NOLINT */
    else if (object->is_integer)
        read_plain(image->format, image->channels, (const char *)(uintptr_t)address, out); /* NOLINT */
    else
        read_scaled(image->format, image->channels, (const char *)(uintptr_t)address, out); /* NOLINT */
    if (object->is_srgb)
        make_linear(image->channels, out);
}

/* ---- coordinates ---- */

/* The texels of one dimension that a fetch reads, and how much of the second one. */
struct axis {
    int32_t at[2];
    float second;
};

/* Of what is near: in_texels sees to that. */
static int32_t wrap(int32_t i, int32_t count)
{
    while (i < 0)
        i += count;
    while (i >= count)
        i -= count;
    return i;
}

/* The same as floorf where a whole number holds it, on every processor in a few steps. */
static int32_t floor_near(float x)
{
    int32_t i = (int32_t)x;

    return i - (x < (float)i);
}

/* Where texel i is; -1: outside. */
static int32_t place_index(CUaddress_mode mode, int32_t i, int32_t count)
{
    switch (mode) {
    case CU_TR_ADDRESS_MODE_WRAP:
        return wrap(i, count);
    case CU_TR_ADDRESS_MODE_MIRROR:
        i = wrap(i, 2 * count);
        return i < count ? i : 2 * count - 1 - i;
    case CU_TR_ADDRESS_MODE_BORDER:
        return i >= 0 && i < count ? i : -1;
    default:
        return i < 0 ? 0 : i < count ? i : count - 1;
    }
}

/* A coordinate in texels, near enough to the image for a whole number. NaN is taken for the first one. */
static float in_texels(const struct flyt_ptx_object *object, CUaddress_mode mode, float x, float count)
{
    if (mode == CU_TR_ADDRESS_MODE_WRAP)
        x -= floorf(x);
    else if (mode == CU_TR_ADDRESS_MODE_MIRROR)
        x -= 2 * floorf(x / 2);
    if (object->is_normalized)
        x *= count;
    if (!(x >= -2))
        return x < -2 ? -2 : 0;
    return x > 2 * count + 2 ? 2 * count + 2 : x;
}

static struct axis find_axis(const struct flyt_ptx_object *object, CUaddress_mode mode, float x, uint32_t count,
                             bool is_linear)
{
    float texels = in_texels(object, mode, x, (float)count);
    int32_t fixed;

    if (!is_linear)
        return (struct axis){.at = {place_index(mode, floor_near(texels), (int32_t)count)}};
    fixed = floor_near((texels - 0.5f) * 256 + 0.5f);
    return (struct axis){
        .at = {place_index(mode, fixed >> 8, (int32_t)count), place_index(mode, (fixed >> 8) + 1, (int32_t)count)},
        .second = (float)(fixed & 255) / 256};
}

/* The layer of an image, or its first slice. */
static uint32_t find_layer(const struct flyt_ptx_image *image, uint32_t asked, unsigned faces)
{
    uint32_t layers = image->levels[0].depth / faces;

    if (!layers || !image->is_layered)
        return 0;
    return asked < layers ? asked : layers - 1;
}

/* ---- levels ---- */

/* What an instruction asks for. */
struct sample {
    float x[3];
    unsigned dimensions;
    int32_t layer; /* face included; -1: the third dimension is one of the image's own */
    bool is_cube;
};

static CUaddress_mode mode_of(const struct fetch *fetch, const struct sample *sample, unsigned dimension)
{
    return sample->is_cube ? CU_TR_ADDRESS_MODE_CLAMP : fetch->object->address_modes[dimension];
}

static void find_axes(const struct fetch *fetch, const struct flyt_ptx_level *level, const struct sample *sample,
                      bool is_linear, struct axis *axes)
{
    const uint32_t counts[3] = {level->width, level->height, level->depth};

    for (unsigned d = 0; d < 3; d++)
        axes[d] = d < sample->dimensions
                      ? find_axis(fetch->object, mode_of(fetch, sample, d), sample->x[d], counts[d], is_linear)
                      : (struct axis){.at = {0}};
    if (sample->layer >= 0)
        axes[2] = (struct axis){.at = {sample->layer, sample->layer}};
}

/* With a constant number of dimensions the loops are unrolled. */
static inline __attribute__((always_inline)) void mix_corners(struct fetch *fetch, const struct flyt_ptx_level *level,
                                                              const struct axis *axes, unsigned dimensions,
                                                              union texel *out)
{
    const unsigned channels = fetch->object->image.channels;
    union texel texel = {0}, sum = {0};

    for (unsigned corner = 0; corner < 1u << dimensions; corner++) {
        float weight = 1;

        for (unsigned d = 0; d < dimensions; d++)
            weight *= corner >> d & 1 ? axes[d].second : 1 - axes[d].second;
        if (weight == 0)
            continue;
        read_texel(fetch, level,
                   (struct place){axes[0].at[corner & 1], axes[1].at[corner >> 1 & 1], axes[2].at[corner >> 2 & 1]},
                   &texel);
        if (channels == 1)
            sum.f[0] += weight * texel.f[0];
        else
            for (unsigned c = 0; c < 4; c++) /* those that are not there are 0 */
                sum.f[c] += weight * texel.f[c];
    }
    *out = sum;
}

static void sample_level(struct fetch *fetch, unsigned number, const struct sample *sample, union texel *out)
{
    const struct flyt_ptx_level *level = &fetch->object->image.levels[number];
    bool is_linear = fetch->object->filter == CU_TR_FILTER_MODE_LINEAR;
    struct axis axes[3];

    find_axes(fetch, level, sample, is_linear, axes);
    if (!is_linear)
        read_texel(fetch, level, (struct place){axes[0].at[0], axes[1].at[0], axes[2].at[0]}, out);
    else if (sample->dimensions == 1)
        mix_corners(fetch, level, axes, 1, out);
    else if (sample->dimensions == 2)
        mix_corners(fetch, level, axes, 2, out);
    else
        mix_corners(fetch, level, axes, 3, out);
}

/* Level of detail `detail`, without the object's bias and clamp yet. */
static void sample_levels(struct fetch *fetch, float detail, const struct sample *sample, union texel *out)
{
    const struct flyt_ptx_object *object = fetch->object;
    float last = (float)(object->image.level_count - 1), whole, second;
    union texel other = {0};

    if (last == 0) {
        sample_level(fetch, 0, sample, out);
        return;
    }
    detail += object->level_bias;
    detail = detail > object->level_min ? detail : object->level_min; /* NaN, too */
    detail = detail < object->level_max ? detail : object->level_max;
    detail = detail > 0 ? detail : 0;
    detail = detail < last ? detail : last;
    if (object->level_filter != CU_TR_FILTER_MODE_LINEAR) {
        sample_level(fetch, (unsigned)floorf(detail + 0.5f), sample, out);
        return;
    }
    detail = floorf(detail * 256 + 0.5f) / 256;
    whole = floorf(detail);
    second = detail - whole;
    sample_level(fetch, (unsigned)whole, sample, out);
    if (second == 0)
        return;
    sample_level(fetch, (unsigned)whole + 1, sample, &other);
    for (unsigned c = 0; c < object->image.channels; c++)
        out->f[c] = (1 - second) * out->f[c] + second * other.f[c];
}

/* The level of detail where the coordinates change by so much from one pixel to the next, across and down. */
static float detail_of(const struct flyt_ptx_object *object, const float *across, const float *down,
                       unsigned dimensions)
{
    const struct flyt_ptx_level *level = &object->image.levels[0];
    const uint32_t counts[3] = {level->width, level->height, level->depth};
    float sums[2] = {0, 0};

    for (unsigned d = 0; d < dimensions; d++) {
        float scale = object->is_normalized ? (float)counts[d] : 1;

        sums[0] += across[d] * scale * across[d] * scale;
        sums[1] += down[d] * scale * down[d] * scale;
    }
    return 0.5f * log2f(sums[0] > sums[1] ? sums[0] : sums[1]);
}

/* ---- cubemaps ---- */

/* The face that a direction meets, and where, from 0 to 1 each: the guide's table in "Cubemap Textures". */
static unsigned find_face(const float *direction, float *ret_s, float *ret_t)
{
    float x = direction[0], y = direction[1], z = direction[2], s, t, most;
    unsigned face;

    if (fabsf(x) >= fabsf(y) && fabsf(x) >= fabsf(z)) {
        face = x >= 0 ? 0 : 1;
        most = fabsf(x);
        s = x >= 0 ? -z : z;
        t = -y;
    } else if (fabsf(y) >= fabsf(z)) {
        face = y >= 0 ? 2 : 3;
        most = fabsf(y);
        s = x;
        t = y >= 0 ? z : -z;
    } else {
        face = z >= 0 ? 4 : 5;
        most = fabsf(z);
        s = z >= 0 ? x : -x;
        t = -y;
    }
    most = most > 0 ? most : 1;
    *ret_s = (s / most + 1) / 2;
    *ret_t = (t / most + 1) / 2;
    return face;
}

/* ---- instructions ---- */

/* The operands of one lane, behind the handle. */
struct lane {
    uint32_t words[PTX_TEXTURE_WORDS_MAX];
};

static float as_float(uint32_t word)
{
    float value;

    memcpy(&value, &word, sizeof value);
    return value;
}

static void read_lane(const struct ptx_warp *w, const struct ptx_insn *in, unsigned count, uint32_t index,
                      struct lane *ret_lane)
{
    for (unsigned i = 0; i < count; i++)
        ret_lane->words[i] = ((const uint32_t *)ptx_wide_operand(w, in, 1 + i))[index];
}

/* By whole numbers: no filter, and zeros outside. */
static void fetch_at(struct fetch *fetch, const struct ptx_texture_insn *what, const struct lane *lane,
                     union texel *out)
{
    const struct flyt_ptx_level *level = &fetch->object->image.levels[0];
    const uint32_t counts[3] = {level->width, level->height, level->depth};
    const uint32_t *x = lane->words + what->has_layer;
    int32_t at[3] = {0, 0, 0};

    for (unsigned d = 0; d < what->dimensions; d++) {
        if (x[d] >= counts[d])
            return;
        at[d] = (int32_t)x[d];
    }
    if (what->has_layer)
        at[2] = (int32_t)find_layer(&fetch->object->image, lane->words[0], 1);
    read_texel(fetch, level, (struct place){at[0], at[1], at[2]}, out);
}

static void read_sample(const struct fetch *fetch, const struct ptx_texture_insn *what, const struct lane *lane,
                        struct sample *ret_sample)
{
    const struct flyt_ptx_image *image = &fetch->object->image;
    uint32_t layer = what->has_layer ? lane->words[0] : 0;

    *ret_sample = (struct sample){.dimensions = what->is_cube ? 2 : what->dimensions, .layer = -1};
    for (unsigned d = 0; d < what->dimensions; d++)
        ret_sample->x[d] = as_float(lane->words[what->has_layer + d]);
    if (what->is_cube) {
        float s, t;
        unsigned face = find_face(ret_sample->x, &s, &t);
        uint32_t last = image->levels[0].depth - 1;

        ret_sample->x[0] = s;
        ret_sample->x[1] = t;
        ret_sample->is_cube = true;
        face += 6 * find_layer(image, layer, 6);
        ret_sample->layer = (int32_t)(face < last ? face : last);
    } else if (what->has_layer) {
        ret_sample->layer = (int32_t)find_layer(image, layer, 1);
    }
}

/* One channel of the four texels that linear filtering would read, from the lower left one on against the clock. */
static void gather(struct fetch *fetch, unsigned channel, const struct sample *sample, union texel *out)
{
    static const unsigned char corners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    const struct flyt_ptx_level *level = &fetch->object->image.levels[0];
    struct axis axes[3];

    find_axes(fetch, level, sample, true, axes);
    for (unsigned i = 0; i < 4; i++) {
        union texel texel = {0};

        read_texel(fetch, level, (struct place){axes[0].at[corners[i][0]], axes[1].at[corners[i][1]], axes[2].at[0]},
                   &texel);
        out->u[i] = texel.u[channel];
    }
}

static void fetch_one(struct fetch *fetch, const struct ptx_texture_insn *what, const struct lane *lane,
                      union texel *out)
{
    const uint32_t *behind = lane->words + what->has_layer + what->dimensions;
    float changes[2][3], detail = 0;
    struct sample sample;

    if (what->is_integer) {
        fetch_at(fetch, what, lane, out);
        return;
    }
    read_sample(fetch, what, lane, &sample);
    switch ((enum ptx_texture_how)what->how) {
    case PTX_TEXTURE_GATHER:
        gather(fetch, what->channel, &sample, out);
        return;
    case PTX_TEXTURE_LEVEL:
        detail = as_float(behind[0]);
        break;
    case PTX_TEXTURE_GRADIENT:
        for (unsigned i = 0; i < 2u * what->dimensions; i++)
            changes[i / what->dimensions][i % what->dimensions] = as_float(behind[i]);
        detail = detail_of(fetch->object, changes[0], changes[1], what->dimensions);
        break;
    default:
        break;
    }
    sample_levels(fetch, detail, &sample, out);
}

/* ---- many lanes at once: one level of floats, which is what most textures are ---- */

/* struct axis of all lanes. */
struct axes {
    int32_t at[2][PTX_LANES];
    float second[PTX_LANES];
};

static int32_t clamp_index(int32_t i, int32_t count)
{
    i = i < 0 ? 0 : i;
    return i < count ? i : count - 1;
}

/* find_axis for all lanes, where coordinates are clamped: in loops that become vector code. */
static void clamp_axes(const float *x, float scale, int32_t count, bool is_linear, struct axes *ret_axes)
{
    const float most = 2 * (float)count + 2;

    PTX_FOR_LANES
    {
        float texels = x[i] * scale;
        int32_t fixed, low;

        texels = texels > -2 ? texels : -2;
        texels = texels < most ? texels : most;
        fixed = is_linear ? floor_near((texels - 0.5f) * 256 + 0.5f) : floor_near(texels) * 256;
        low = fixed >> 8;
        ret_axes->at[0][i] = clamp_index(low, count);
        ret_axes->at[1][i] = clamp_index(low + 1, count);
        ret_axes->second[i] = (float)(fixed & 255) / 256;
    }
}

static void find_axes_of_lanes(const struct flyt_ptx_object *object, unsigned dimension, const float *x, uint32_t mask,
                               struct axes *ret_axes)
{
    const struct flyt_ptx_level *level = &object->image.levels[0];
    const uint32_t counts[3] = {level->width, level->height, level->depth};
    const CUaddress_mode mode = object->address_modes[dimension];
    const bool is_linear = object->filter == CU_TR_FILTER_MODE_LINEAR;

    if (mode == CU_TR_ADDRESS_MODE_CLAMP) {
        clamp_axes(x, object->is_normalized ? (float)counts[dimension] : 1, (int32_t)counts[dimension], is_linear,
                   ret_axes);
        return;
    }
    PTX_EACH_LANE(lane, mask)
    {
        const struct axis axis = find_axis(object, mode, x[lane], counts[dimension], is_linear);

        ret_axes->at[0][lane] = axis.at[0];
        ret_axes->at[1][lane] = axis.at[1];
        ret_axes->second[lane] = axis.second;
    }
}

/* The texels of one lane, mixed; channels is 1 or 4, and like the dimensions a constant. */
static inline __attribute__((always_inline)) void mix_lane(const struct flyt_ptx_object *object,
                                                           const struct axes *axes, uint32_t lane, uint64_t base,
                                                           unsigned dimensions, unsigned channels, union texel *out)
{
    const struct flyt_ptx_level *level = &object->image.levels[0];
    const uint64_t steps[3] = {object->image.texel_bytes, level->row_bytes, level->slice_bytes};
    const bool is_linear = object->filter == CU_TR_FILTER_MODE_LINEAR;

    for (unsigned corner = 0; corner < (is_linear ? 1u << dimensions : 1u); corner++) {
        uint64_t address = base;
        const float *texel;
        float weight = 1;
        int32_t outside = 0;

        for (unsigned d = 0; d < dimensions; d++) {
            int32_t at = axes[d].at[corner >> d & 1][lane];

            outside |= at;
            address += (uint64_t)(uint32_t)at * steps[d];
            weight *= corner >> d & 1 ? axes[d].second[lane] : 1 - axes[d].second[lane];
        }
        if (weight == 0)
            continue;
        texel = outside < 0 ? object->border : (const float *)(uintptr_t)address; /* NOLINT: the image's */
        for (unsigned c = 0; c < channels; c++)
            out->f[c] = is_linear ? out->f[c] + weight * texel[c] : texel[c];
    }
}

/* Whether the fetch is one of those that are done for all lanes at once. */
static bool is_plain(const struct ptx_texture_insn *what, const struct flyt_ptx_object *object)
{
    const struct flyt_ptx_image *image = &object->image;

    return what->how == PTX_TEXTURE_BASE && !what->is_integer && !what->is_cube && image->level_count == 1 &&
           image->format == CU_AD_FORMAT_FLOAT && image->channels != 2 && !image->is_memory;
}

#define MIX(dimensions_, channels_)                                                                                    \
    PTX_EACH_LANE(lane, w->mask)                                                                                       \
    mix_lane(object, axes, lane, bases[lane], dimensions_, channels_, &results[lane])

static void fetch_plain(const struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_texture_insn *what,
                        const struct flyt_ptx_object *object, union texel *results)
{
    const struct flyt_ptx_level *level = &object->image.levels[0];
    const uint32_t *layers = ptx_wide_operand(w, in, 1);
    uint64_t bases[PTX_LANES];
    struct axes axes[3];

    for (unsigned d = 0; d < what->dimensions; d++)
        find_axes_of_lanes(object, d, ptx_wide_operand(w, in, 1 + what->has_layer + d), w->mask, &axes[d]);
    PTX_EACH_LANE(lane, w->mask)
    {
        bases[lane] = level->address;
        if (what->has_layer)
            bases[lane] += find_layer(&object->image, layers[lane], 1) * level->slice_bytes;
        results[lane] = (union texel){0};
    }
    switch (what->dimensions * 2 + (object->image.channels == 4)) {
    case 2:
        MIX(1, 1);
        break;
    case 3:
        MIX(1, 4);
        break;
    case 4:
        MIX(2, 1);
        break;
    case 5:
        MIX(2, 4);
        break;
    case 6:
        MIX(3, 1);
        break;
    default:
        MIX(3, 4);
        break;
    }
}

/* ---- the instruction ---- */

/* The object that all lanes mean; NULL: they mean several, or one means none. */
static const struct flyt_ptx_object *find_common(const struct ptx_warp *w, const uint64_t *handles)
{
    const uint64_t first = handles[__builtin_ctz(w->mask)];

    PTX_EACH_LANE(lane, w->mask)
    if (handles[lane] != first)
        return NULL;
    return flyt_ptx_object_find(w, first, false);
}

/* Lane by lane. False: the launch has ended with a fault. */
static bool fetch_each(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_texture_insn *what,
                       const uint64_t *handles, union texel *results)
{
    struct fetch fetch = {.w = w};
    uint64_t handle = 0;

    PTX_EACH_LANE(lane, w->mask)
    {
        struct lane words;

        if (!fetch.object || handles[lane] != handle) {
            handle = handles[lane];
            fetch.object = flyt_ptx_object_find(w, handle, false);
        }
        results[lane] = (union texel){0};
        if (fetch.object) {
            read_lane(w, in, what->word_count, lane, &words);
            fetch_one(&fetch, what, &words, &results[lane]);
            if (fetch.object->image.is_opaque && what->how != PTX_TEXTURE_GATHER)
                results[lane].f[3] = 1;
        }
        if (!fetch.object || fetch.has_failed) {
            flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
            return false;
        }
    }
    return true;
}

static const struct ptx_insn *exec_texture(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint64_t *handles = ptx_wide_operand(w, in, 0);
    const struct flyt_ptx_object *common;
    union texel results[PTX_LANES];
    struct ptx_texture_insn what;

    memcpy(&what, &in->imm, sizeof what);
    common = w->mask ? find_common(w, handles) : NULL;
    if (common && is_plain(&what, common))
        fetch_plain(w, in, &what, common, results);
    else if (!fetch_each(w, in, &what, handles, results))
        return NULL;
    for (unsigned c = 0; c < what.result_count; c++) {
        uint32_t *d = ptx_wide_operand(w, in, 1 + what.word_count + c);

        PTX_EACH_LANE(lane, w->mask)
        d[lane] = results[lane].u[c];
    }
    return in + ptx_wide_parts(1 + what.word_count + what.result_count);
}

static const struct ptx_op_row rows[] = {{"$texture", exec_texture, ""}};
extern const struct ptx_op_table PTX_OP_TABLE(texture);
const struct ptx_op_table PTX_OP_TABLE(texture) = {rows, sizeof rows / sizeof *rows};
