// Formatted stores (sust.p): words become what the surface's format holds, x counts texels, and what each boundary mode
// does outside. Values are not half way between two that the format has; what a store has no word for is not compared.
// nvcc: -lcuda
#include "check.h"

#include <cmath>
#include <cuda.h>
#include <vector>

enum { WIDTH = 8, HEIGHT = 4, DEPTH = 3, LAYERS = 3, TEXELS = WIDTH * HEIGHT };

struct place {
    int x, y, z; /* z: a slice or a layer */
};

/* ---- the instruction: five shapes, three vectors, three bounds ---- */

#define STORE(shape, coordinates, bound)                                                                               \
    do {                                                                                                               \
        if (count == 4)                                                                                                \
            asm volatile("sust.p." shape ".v4.b32." bound " [%0, " coordinates "], {%4, %5, %6, %7};" ::"l"(surface),  \
                         "r"(at.x), "r"(at.y), "r"(at.z), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)                       \
                         : "memory");                                                                                  \
        else if (count == 2)                                                                                           \
            asm volatile("sust.p." shape ".v2.b32." bound " [%0, " coordinates "], {%4, %5};" ::"l"(surface),          \
                         "r"(at.x), "r"(at.y), "r"(at.z), "r"(v.x), "r"(v.y)                                           \
                         : "memory");                                                                                  \
        else                                                                                                           \
            asm volatile("sust.p." shape ".b32." bound " [%0, " coordinates "], {%4};" ::"l"(surface), "r"(at.x),      \
                         "r"(at.y), "r"(at.z), "r"(v.x)                                                                \
                         : "memory");                                                                                  \
    } while (0)
#define STORE_WITHIN(shape, coordinates)                                                                               \
    do {                                                                                                               \
        if (bound == cudaBoundaryModeZero)                                                                             \
            STORE(shape, coordinates, "zero");                                                                         \
        else if (bound == cudaBoundaryModeClamp)                                                                       \
            STORE(shape, coordinates, "clamp");                                                                        \
        else                                                                                                           \
            STORE(shape, coordinates, "trap");                                                                         \
    } while (0)

enum shape { SHAPE_1D, SHAPE_2D, SHAPE_3D, SHAPE_LAYERS_OF_1D, SHAPE_LAYERS_OF_2D, SHAPES };

__global__ void store(cudaSurfaceObject_t surface, shape shape, cudaSurfaceBoundaryMode bound, int count,
                      const place *places, const uint4 *words)
{
    const place at = places[threadIdx.x];
    const uint4 v = words[threadIdx.x];
    switch (shape) {
    case SHAPE_1D:
        STORE_WITHIN("1d", "{%1}");
        break;
    case SHAPE_2D:
        STORE_WITHIN("2d", "{%1, %2}");
        break;
    case SHAPE_3D:
        STORE_WITHIN("3d", "{%1, %2, %3, %3}");
        break;
    case SHAPE_LAYERS_OF_1D:
        STORE_WITHIN("a1d", "{%3, %1}");
        break;
    default:
        STORE_WITHIN("a2d", "{%3, %1, %2, %2}");
        break;
    }
}

/* ---- arrays ---- */

struct target {
    CUarray array;
    CUsurfObject surface;
    size_t width, height, depth, element_bytes;
    bool is_layered;

    target(shape shape, CUarray_format format, unsigned channels, size_t bytes)
        : width(WIDTH), height(shape == SHAPE_1D || shape == SHAPE_LAYERS_OF_1D ? 0 : HEIGHT),
          depth(shape == SHAPE_3D                        ? DEPTH
                : shape == SHAPE_1D || shape == SHAPE_2D ? 0
                                                         : LAYERS),
          element_bytes(bytes), is_layered(shape >= SHAPE_LAYERS_OF_1D)
    {
        CUDA_ARRAY3D_DESCRIPTOR desc = {};
        CUDA_RESOURCE_DESC resource = {};
        desc.Width = width;
        desc.Height = height;
        desc.Depth = depth;
        desc.Format = format;
        desc.NumChannels = channels;
        desc.Flags = CUDA_ARRAY3D_SURFACE_LDST | (is_layered ? CUDA_ARRAY3D_LAYERED : 0u);
        CHECK_CU(cuArray3DCreate(&array, &desc));
        resource.resType = CU_RESOURCE_TYPE_ARRAY;
        resource.res.array.hArray = array;
        CHECK_CU(cuSurfObjectCreate(&surface, &resource));
    }
    ~target()
    {
        CHECK_CU(cuSurfObjectDestroy(surface));
        CHECK_CU(cuArrayDestroy(array));
    }
    size_t bytes() const
    {
        return width * (height ? height : 1) * (depth ? depth : 1) * element_bytes;
    }
    std::vector<unsigned char> copy(std::vector<unsigned char> *given)
    {
        std::vector<unsigned char> got(bytes());
        CUDA_MEMCPY3D copy = {};
        copy.WidthInBytes = width * element_bytes;
        copy.Height = height ? height : 1;
        copy.Depth = depth ? depth : 1;
        copy.srcMemoryType = given ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
        copy.dstMemoryType = given ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
        copy.srcPitch = copy.dstPitch = copy.WidthInBytes;
        copy.srcHeight = copy.dstHeight = copy.Height;
        copy.srcHost = given ? given->data() : NULL;
        copy.dstHost = given ? NULL : got.data();
        copy.srcArray = copy.dstArray = array;
        CHECK_CU(cuMemcpy3D(&copy));
        return got;
    }
};

static void run(const target &to, shape shape, cudaSurfaceBoundaryMode bound, int count,
                const std::vector<place> &places, const std::vector<uint4> &words)
{
    place *device_places;
    uint4 *device_words;
    CHECK(cudaMalloc(&device_places, places.size() * sizeof(place)));
    CHECK(cudaMalloc(&device_words, words.size() * sizeof(uint4)));
    CHECK(cudaMemcpy(device_places, places.data(), places.size() * sizeof(place), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_words, words.data(), words.size() * sizeof(uint4), cudaMemcpyHostToDevice));
    store<<<1, (unsigned)places.size()>>>(to.surface, shape, bound, count, device_places, device_words);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(device_places));
    CHECK(cudaFree(device_words));
}

/* ---- formats ---- */

static unsigned as_bits(float value)
{
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Words, and what a channel of `bytes` becomes of each. */
struct conversion {
    unsigned word;
    long long value; /* its lowest bytes */
};

static const std::vector<conversion> whole = {{0, 0}, {1, 1}, {100, 100}, {127, 127}};
static const std::vector<conversion> unsigned8 = {{255, 255}, {256, 255}, {0x80000000, 255}, {0xffffffff, 255}};
static const std::vector<conversion> unsigned16 = {{40000, 40000}, {65536, 65535}, {0xffffffff, 65535}};
static const std::vector<conversion> signed8 = {{0xffffffff, -1}, {128, 127}, {0xffffff00, -128}, {0x80000000, -128}};
static const std::vector<conversion> signed16 = {{0xffff8000, -32768}, {40000, 32767}, {0xffff0000, -32768}};
static const std::vector<conversion> any32 = {{0x80000000, 0x80000000}, {0xffffffff, 0xffffffff}};
static const std::vector<conversion> floats = {{0x3f800000, 0x3f800000}, {0xff7fffff, 0xff7fffff}};
static const std::vector<conversion> halves = {
    {as_bits(1), 0x3c00},       {as_bits(-2.5f), 0xc100},    {as_bits(1e30f), 0x7bff}, {as_bits(-65600), 0xfbff},
    {as_bits(1.0009f), 0x3c00}, {as_bits(INFINITY), 0x7c00}, {as_bits(0x1p-24f), 1},   {as_bits(0x1p-25f), 0}};

/* Of 0 to 1, or -1 to 1, in so many steps. */
static std::vector<conversion> normalised(int steps, bool is_signed)
{
    std::vector<conversion> all = {{as_bits(2), steps}, {as_bits(-7), is_signed ? -steps : 0}, {as_bits(NAN), 0}};
    for (double value : {0.0, 0.2, 0.37, 0.74, 1.0, -0.31, -0.86})
        all.push_back({as_bits((float)value), value < 0 && !is_signed ? 0 : std::lround(value * steps)});
    return all;
}

static void test_format(CUarray_format format, unsigned channels, unsigned channel_bytes,
                        const std::vector<conversion> &conversions)
{
    for (int count = 1; count <= 4; count *= 2) {
        target to(SHAPE_2D, format, channels, channels * channel_bytes);
        std::vector<place> places;
        std::vector<uint4> words;
        for (int i = 0; i < TEXELS; i++) {
            const auto word = [&](int c) { return conversions[(size_t)(i + c) % conversions.size()].word; };
            places.push_back({i % WIDTH, i / WIDTH, 0});
            words.push_back(make_uint4(word(0), word(1), word(2), word(3)));
        }
        run(to, SHAPE_2D, cudaBoundaryModeTrap, count, places, words);
        const auto got = to.copy(NULL);
        for (int i = 0; i < TEXELS; i++)
            for (int c = 0; c < count && c < (int)channels; c++) {
                const long long want = conversions[(size_t)(i + c) % conversions.size()].value;
                EXPECT(!memcmp(&got[((size_t)i * channels + (size_t)c) * channel_bytes], &want, channel_bytes),
                       "format %#x of %u channels: word %#x in channel %d", format, channels,
                       conversions[(size_t)(i + c) % conversions.size()].word, c);
            }
    }
}

/* Three channels of 10 bits and one of 2, red in the lowest. */
static void test_packed(void)
{
    target to(SHAPE_2D, CU_AD_FORMAT_UNORM_INT_101010_2, 4, 4);
    run(to, SHAPE_2D, cudaBoundaryModeTrap, 4, {{3, 2, 0}},
        {make_uint4(as_bits(0.2f), as_bits(1), as_bits(-1), as_bits(0.74f))});
    const auto got = to.copy(NULL);
    unsigned packed;
    memcpy(&packed, &got[(2 * WIDTH + 3) * 4], sizeof packed);
    EXPECT_EQ(packed, 205u | 1023u << 10 | 2u << 30);
}

static void test_formats(void)
{
    const auto joined = [](std::vector<conversion> first, const std::vector<conversion> &second) {
        first.insert(first.end(), second.begin(), second.end());
        return first;
    };
    for (unsigned channels : {1u, 2u, 4u}) {
        const int of = channels == 1 ? 0 : channels == 2 ? 1 : 2;
        test_format(CU_AD_FORMAT_UNSIGNED_INT8, channels, 1, joined(whole, unsigned8));
        test_format(CU_AD_FORMAT_UNSIGNED_INT16, channels, 2, joined(whole, unsigned16));
        test_format(CU_AD_FORMAT_UNSIGNED_INT32, channels, 4, joined(whole, any32));
        test_format(CU_AD_FORMAT_SIGNED_INT8, channels, 1, joined(whole, signed8));
        test_format(CU_AD_FORMAT_SIGNED_INT16, channels, 2, joined(whole, signed16));
        test_format(CU_AD_FORMAT_SIGNED_INT32, channels, 4, joined(whole, any32));
        test_format(CU_AD_FORMAT_FLOAT, channels, 4, floats);
        test_format(CU_AD_FORMAT_HALF, channels, 2, halves);
        test_format((CUarray_format)(CU_AD_FORMAT_UNORM_INT8X1 + of), channels, 1, normalised(255, false));
        test_format((CUarray_format)(CU_AD_FORMAT_UNORM_INT16X1 + of), channels, 2, normalised(65535, false));
        test_format((CUarray_format)(CU_AD_FORMAT_SNORM_INT8X1 + of), channels, 1, normalised(127, true));
        test_format((CUarray_format)(CU_AD_FORMAT_SNORM_INT16X1 + of), channels, 2, normalised(32767, true));
    }
    test_packed();
}

/* ---- places ---- */

/* Where a store lands; false: nowhere. */
static bool land(const target &to, cudaSurfaceBoundaryMode bound, const place &at, size_t *ret_index)
{
    const int sizes[3] = {(int)to.width, (int)to.height, (int)to.depth}, given[3] = {at.x, at.y, at.z};
    int found[3] = {0, 0, 0};
    for (int d = 0; d < 3; d++) {
        if (!sizes[d]) /* a dimension that it lacks */
            continue;
        const bool is_layer = d == 2 && to.is_layered; /* what is negative is beyond the last one */
        found[d] = given[d] < 0 ? is_layer ? sizes[d] - 1 : 0 : given[d] < sizes[d] ? given[d] : sizes[d] - 1;
        if (found[d] != given[d] && bound != cudaBoundaryModeClamp)
            return false;
    }
    *ret_index = (size_t)((found[2] * (to.height ? HEIGHT : 1) + found[1]) * WIDTH + found[0]);
    return true;
}

/* One store after the other, so that it is known which is the last where several meet. */
static void test_places(shape shape, cudaSurfaceBoundaryMode bound)
{
    target to(shape, CU_AD_FORMAT_UNSIGNED_INT16, 2, 4);
    std::vector<unsigned> want(to.bytes() / 4, 0);
    std::vector<unsigned char> empty(to.bytes(), 0);
    unsigned number = 0;
    to.copy(&empty);
    for (const place &at :
         {place{3, 2, 1}, place{0, 0, 0}, place{7, 3, 2}, place{-1, 1, 1}, place{8, 1, 1}, place{1000, 2, 2},
          place{2, -1, 1}, place{4, 4, 0}, place{5, 2, 3}, place{1, 2, -1}, place{6, -9, 70}}) {
        size_t index;
        number++;
        run(to, shape, bound, 2, {at}, {make_uint4(number, 100 + number, 0, 0)});
        if (land(to, bound, at, &index))
            want[index] = number | (100 + number) << 16;
    }
    const auto got = to.copy(NULL);
    for (size_t i = 0; i < want.size(); i++) {
        unsigned word;
        memcpy(&word, &got[4 * i], sizeof word);
        EXPECT(word == want[i], "shape %d bound %d at %zu: got %#x, expected %#x", shape, bound, i, word, want[i]);
    }
}

int main(void)
{
    CHECK(cudaFree(NULL));
    test_formats();
    for (int shape = 0; shape < SHAPES; shape++)
        for (auto bound : {cudaBoundaryModeZero, cudaBoundaryModeClamp})
            test_places((enum shape)shape, bound);
    return 0;
}
