// Arrays of normalised and of block-compressed formats: their descriptions, copies of their elements, which are whole
// blocks of 4 by 4 texels where texels come in blocks, their levels, and what textures read of them.
// nvcc: -lcuda
#include "block_reference.h"
#include "texture_reference.h"

#include <cuda.h>

enum { WIDTH = 20, HEIGHT = 12, LEVELS = 5, TEXELS_MAX = 16384 };

typedef std::vector<unsigned char> bytes;

struct format {
    cudaChannelFormatDesc desc;
    CUarray_format number;
    unsigned channels, element_bytes;
    int side;
    bool is_srgb;
    void (*decode)(const unsigned char *element, int x, int y, double *out);
};

/* ---- what the formats mean, in double precision ---- */

static void unorm8(const unsigned char *element, int count, double *out)
{
    for (int c = 0; c < count; c++)
        out[c] = element[c] / 255.0;
}

static void snorm8(const unsigned char *element, int count, double *out)
{
    for (int c = 0; c < count; c++)
        out[c] = std::fmax((signed char)element[c] / 127.0, -1);
}

static unsigned word(const unsigned char *at)
{
    return at[0] + 256u * at[1];
}

static void unorm16(const unsigned char *element, int count, double *out)
{
    for (int c = 0; c < count; c++)
        out[c] = word(element + 2 * c) / 65535.0;
}

static void snorm16(const unsigned char *element, int count, double *out)
{
    for (int c = 0; c < count; c++)
        out[c] = std::fmax((short)word(element + 2 * c) / 32767.0, -1);
}

template <void (*element)(const unsigned char *, int, double *), int count>
static void texel(const unsigned char *at, int, int, double *out)
{
    element(at, count, out);
}

static void packed(const unsigned char *element, int, int, double *out)
{
    const unsigned bits = word(element) | word(element + 2) << 16;
    out[0] = bits % 1024 / 1023.0;
    out[1] = (bits >> 10) % 1024 / 1023.0;
    out[2] = (bits >> 20) % 1024 / 1023.0;
    out[3] = (bits >> 30) / 3.0;
}

/* Four colours, or three and a clear black. */
static void colour(const unsigned char *block, int x, int y, bool is_opaque, double *out)
{
    const unsigned ends[2] = {word(block), word(block + 2)};
    const bool has_four = is_opaque || ends[0] > ends[1];
    const int index = block[4 + y] >> 2 * x & 3;
    for (int c = 0; c < 3; c++) {
        double values[2], all[4];
        for (int e = 0; e < 2; e++)
            values[e] = c == 0 ? (ends[e] >> 11) / 31.0 : c == 1 ? (ends[e] >> 5) % 64 / 63.0 : ends[e] % 32 / 31.0;
        all[0] = values[0];
        all[1] = values[1];
        all[2] = has_four ? (2 * values[0] + values[1]) / 3 : (values[0] + values[1]) / 2;
        all[3] = has_four ? (values[0] + 2 * values[1]) / 3 : 0;
        out[c] = all[index];
    }
    if (!is_opaque)
        out[3] = has_four || index != 3 ? 1 : 0;
}

/* Eight values from one end to the other, or six and the least and the most. */
static double ramp(const unsigned char *block, int x, int y, bool is_signed)
{
    const int ends[2] = {is_signed ? (signed char)block[0] : block[0], is_signed ? (signed char)block[1] : block[1]};
    const double most = is_signed ? 127 : 255, a = std::fmax(ends[0] / most, -1), b = std::fmax(ends[1] / most, -1);
    const int bit = 3 * (4 * y + x),
              index = (block[2 + bit / 8] | (bit < 40 ? block[3 + bit / 8] << 8 : 0)) >> bit % 8 & 7;
    const bool has_eight = ends[0] > ends[1];
    const double all[2][8] = {
        {a, b, (4 * a + b) / 5, (3 * a + 2 * b) / 5, (2 * a + 3 * b) / 5, (a + 4 * b) / 5, is_signed ? -1.0 : 0.0, 1},
        {a, b, (6 * a + b) / 7, (5 * a + 2 * b) / 7, (4 * a + 3 * b) / 7, (3 * a + 4 * b) / 7, (2 * a + 5 * b) / 7,
         (a + 6 * b) / 7}};
    return all[has_eight][index];
}

static void bc1(const unsigned char *block, int x, int y, double *out)
{
    colour(block, x, y, false, out);
}

static void bc2(const unsigned char *block, int x, int y, double *out)
{
    colour(block + 8, x, y, true, out);
    out[3] = (word(block + 2 * y) >> 4 * x & 15) / 15.0;
}

static void bc3(const unsigned char *block, int x, int y, double *out)
{
    colour(block + 8, x, y, true, out);
    out[3] = ramp(block, x, y, false);
}

template <bool is_signed> static void bc4(const unsigned char *block, int x, int y, double *out)
{
    out[0] = ramp(block, x, y, is_signed);
}

template <bool is_signed> static void bc5(const unsigned char *block, int x, int y, double *out)
{
    out[0] = ramp(block, x, y, is_signed);
    out[1] = ramp(block + 8, x, y, is_signed);
}

template <bool is_signed> static void bc6h(const unsigned char *block, int x, int y, double *out)
{
    double texels[BLOCK_TEXELS][3];
    bc6h_decode(block, is_signed, texels);
    for (int c = 0; c < 3; c++)
        out[c] = texels[4 * y + x][c];
}

static void bc7(const unsigned char *block, int x, int y, double *out)
{
    int texels[BLOCK_TEXELS][4];
    bc7_decode(block, texels);
    for (int c = 0; c < 4; c++)
        out[c] = texels[4 * y + x][c] / 255.0;
}

#define KIND(name) cudaCreateChannelDesc<cudaChannelFormatKind##name>()

static const format formats[] = {
    {KIND(UnsignedNormalized8X1), CU_AD_FORMAT_UNORM_INT8X1, 1, 1, 1, false, texel<unorm8, 1>},
    {KIND(UnsignedNormalized8X2), CU_AD_FORMAT_UNORM_INT8X2, 2, 2, 1, false, texel<unorm8, 2>},
    {KIND(UnsignedNormalized8X4), CU_AD_FORMAT_UNORM_INT8X4, 4, 4, 1, false, texel<unorm8, 4>},
    {KIND(UnsignedNormalized16X1), CU_AD_FORMAT_UNORM_INT16X1, 1, 2, 1, false, texel<unorm16, 1>},
    {KIND(UnsignedNormalized16X2), CU_AD_FORMAT_UNORM_INT16X2, 2, 4, 1, false, texel<unorm16, 2>},
    {KIND(UnsignedNormalized16X4), CU_AD_FORMAT_UNORM_INT16X4, 4, 8, 1, false, texel<unorm16, 4>},
    {KIND(SignedNormalized8X1), CU_AD_FORMAT_SNORM_INT8X1, 1, 1, 1, false, texel<snorm8, 1>},
    {KIND(SignedNormalized8X2), CU_AD_FORMAT_SNORM_INT8X2, 2, 2, 1, false, texel<snorm8, 2>},
    {KIND(SignedNormalized8X4), CU_AD_FORMAT_SNORM_INT8X4, 4, 4, 1, false, texel<snorm8, 4>},
    {KIND(SignedNormalized16X1), CU_AD_FORMAT_SNORM_INT16X1, 1, 2, 1, false, texel<snorm16, 1>},
    {KIND(SignedNormalized16X2), CU_AD_FORMAT_SNORM_INT16X2, 2, 4, 1, false, texel<snorm16, 2>},
    {KIND(SignedNormalized16X4), CU_AD_FORMAT_SNORM_INT16X4, 4, 8, 1, false, texel<snorm16, 4>},
    {KIND(UnsignedNormalized1010102), CU_AD_FORMAT_UNORM_INT_101010_2, 4, 4, 1, false, packed},
    {KIND(UnsignedBlockCompressed1), CU_AD_FORMAT_BC1_UNORM, 4, 8, 4, false, bc1},
    {KIND(UnsignedBlockCompressed1SRGB), CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 8, 4, true, bc1},
    {KIND(UnsignedBlockCompressed2), CU_AD_FORMAT_BC2_UNORM, 4, 16, 4, false, bc2},
    {KIND(UnsignedBlockCompressed2SRGB), CU_AD_FORMAT_BC2_UNORM_SRGB, 4, 16, 4, true, bc2},
    {KIND(UnsignedBlockCompressed3), CU_AD_FORMAT_BC3_UNORM, 4, 16, 4, false, bc3},
    {KIND(UnsignedBlockCompressed3SRGB), CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 16, 4, true, bc3},
    {KIND(UnsignedBlockCompressed4), CU_AD_FORMAT_BC4_UNORM, 1, 8, 4, false, bc4<false>},
    {KIND(SignedBlockCompressed4), CU_AD_FORMAT_BC4_SNORM, 1, 8, 4, false, bc4<true>},
    {KIND(UnsignedBlockCompressed5), CU_AD_FORMAT_BC5_UNORM, 2, 16, 4, false, bc5<false>},
    {KIND(SignedBlockCompressed5), CU_AD_FORMAT_BC5_SNORM, 2, 16, 4, false, bc5<true>},
    {KIND(UnsignedBlockCompressed6H), CU_AD_FORMAT_BC6H_UF16, 3, 16, 4, false, bc6h<false>},
    {KIND(SignedBlockCompressed6H), CU_AD_FORMAT_BC6H_SF16, 3, 16, 4, false, bc6h<true>},
    {KIND(UnsignedBlockCompressed7), CU_AD_FORMAT_BC7_UNORM, 4, 16, 4, false, bc7},
    {KIND(UnsignedBlockCompressed7SRGB), CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 16, 4, true, bc7},
};

/* ---- contents ---- */

/* Elements, packed: rows of them, each of so many bytes. */
struct contents {
    int width, height; /* in texels */
    size_t row_bytes, rows;
    bytes all;

    contents(const format &of, int texels_across, int texels_down, unsigned seed)
        : width(texels_across), height(texels_down),
          row_bytes((size_t)((texels_across + of.side - 1) / of.side) * of.element_bytes),
          rows((size_t)((texels_down + of.side - 1) / of.side)), all(row_bytes * rows)
    {
        for (auto &byte : all)
            byte = (unsigned char)(texture_random(&seed) * 256);
    }
};

/* Whether a channel is of the colour, which sRGB encodes: of two channels only one is. */
static bool is_colour(const format &of, unsigned channel)
{
    return channel < (of.channels == 4 ? 3 : 1);
}

/* As textures read them. */
static texture_image decode(const format &of, const contents &given)
{
    texture_image image = {2, {given.width, given.height, 1}, (int)of.channels, {}};
    for (int y = 0; y < given.height; y++)
        for (int x = 0; x < given.width; x++) {
            double out[4];
            of.decode(&given.all[(size_t)(y / of.side) * given.row_bytes + (size_t)(x / of.side) * of.element_bytes],
                      x % of.side, y % of.side, out);
            for (unsigned c = 0; c < of.channels; c++) {
                double v = out[c];
                if (of.is_srgb && is_colour(of, c))
                    v = v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
                image.texels.push_back(v);
            }
        }
    return image;
}

static void put(cudaArray_t array, const contents &given)
{
    CHECK(cudaMemcpy2DToArray(array, 0, 0, given.all.data(), given.row_bytes, given.row_bytes, given.rows,
                              cudaMemcpyHostToDevice));
}

static void expect(cudaArray_t array, const contents &wanted)
{
    bytes got(wanted.all.size());
    CHECK(cudaMemcpy2DFromArray(got.data(), wanted.row_bytes, array, 0, 0, wanted.row_bytes, wanted.rows,
                                cudaMemcpyDeviceToHost));
    EXPECT(got == wanted.all);
}

static cudaArray_t make(const format &of, int width, int height, unsigned flags = 0)
{
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &of.desc, (size_t)width, (size_t)height, flags));
    return array;
}

/* ---- descriptions ---- */

static void expect_desc(const cudaChannelFormatDesc &got, const cudaChannelFormatDesc &want)
{
    EXPECT_EQ(got.x, want.x);
    EXPECT_EQ(got.y, want.y);
    EXPECT_EQ(got.z, want.z);
    EXPECT_EQ(got.w, want.w);
    EXPECT_EQ(got.f, want.f);
}

static void test_description(const format &of)
{
    cudaArray_t array = make(of, WIDTH, HEIGHT);
    cudaChannelFormatDesc found;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    cudaExtent extent;
    unsigned flags = 99;
    CHECK(cudaArrayGetInfo(&found, &extent, &flags, array));
    expect_desc(found, of.desc);
    EXPECT_EQ(extent.width, WIDTH);
    EXPECT_EQ(extent.height, HEIGHT);
    EXPECT_EQ(extent.depth, 0);
    EXPECT_EQ(flags, 0);
    CHECK(cudaGetChannelDesc(&found, array));
    expect_desc(found, of.desc);
    CHECK_CU(cuArray3DGetDescriptor(&desc, (CUarray)array));
    EXPECT_EQ(desc.Format, of.number);
    EXPECT_EQ(desc.NumChannels, of.channels);
    EXPECT_EQ(desc.Width, WIDTH);
    EXPECT_EQ(desc.Height, HEIGHT);
    CHECK(cudaFreeArray(array));

    CUarray own;
    desc = {};
    desc.Width = WIDTH;
    desc.Height = HEIGHT;
    desc.Format = of.number;
    desc.NumChannels = of.channels;
    CHECK_CU(cuArray3DCreate(&own, &desc));
    CHECK(cudaGetChannelDesc(&found, (cudaArray_t)own));
    expect_desc(found, of.desc);
    CHECK_CU(cuArrayDestroy(own));
    for (unsigned channels = 0; channels < 6; channels++) {
        desc.NumChannels = channels;
        if (channels != of.channels)
            EXPECT_CU(cuArray3DCreate(&own, &desc), CUDA_ERROR_INVALID_VALUE);
    }
    found = of.desc;
    found.x += 1;
    EXPECT_ERR(cudaMallocArray(&array, &found, WIDTH, HEIGHT), cudaErrorInvalidChannelDescriptor);
    found = of.desc;
    found.y = found.y ? 0 : found.x;
    EXPECT_ERR(cudaMallocArray(&array, &found, WIDTH, HEIGHT), cudaErrorInvalidChannelDescriptor);
    if (of.side > 1) {
        EXPECT_ERR(cudaMallocArray(&array, &of.desc, WIDTH, 0), cudaErrorInvalidValue);
        EXPECT_ERR(cudaMallocArray(&array, &of.desc, WIDTH, HEIGHT, cudaArraySurfaceLoadStore), cudaErrorNotSupported);
    }
}

/* ---- copies ---- */

static cudaMemcpy3DParms box_to(cudaArray_t array, const contents &given)
{
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr((void *)given.all.data(), given.row_bytes, given.row_bytes, given.rows);
    copy.dstArray = array;
    copy.extent = make_cudaExtent((size_t)given.width, (size_t)given.height, 1);
    copy.kind = cudaMemcpyHostToDevice;
    return copy;
}

/* The runtime's boxes count texels, the driver's bytes and rows of elements. */
static void test_copies(const format &of, int width, int height)
{
    const contents first(of, width, height, 1), second(of, width, height, 2), third(of, width, height, 3);
    cudaArray_t array = make(of, width, height), other = make(of, width, height);
    put(array, first);
    expect(array, first);
    cudaMemcpy3DParms box = box_to(array, second);
    CHECK(cudaMemcpy3D(&box));
    expect(array, second);

    CUDA_MEMCPY2D rows = {};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = third.all.data();
    rows.srcPitch = third.row_bytes;
    rows.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    rows.dstArray = (CUarray)array;
    rows.WidthInBytes = third.row_bytes;
    rows.Height = third.rows;
    CHECK_CU(cuMemcpy2D(&rows));
    expect(array, third);
    rows.Height = third.rows + 1;
    rows.srcPitch = 0;
    EXPECT_CU(cuMemcpy2D(&rows), CUDA_ERROR_INVALID_VALUE);

    CHECK(cudaMemcpy2DArrayToArray(other, 0, 0, array, 0, 0, third.row_bytes, third.rows, cudaMemcpyDeviceToDevice));
    expect(other, third);
    box = {};
    box.srcArray = array;
    box.dstArray = other;
    box.extent = make_cudaExtent((size_t)width, (size_t)height, 1);
    box.kind = cudaMemcpyDeviceToDevice;
    put(array, first);
    CHECK(cudaMemcpy3D(&box));
    expect(other, first);
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeArray(other));
}

/* Where an element begins, not the array; through memory of the device. */
static void test_part(const format &of)
{
    contents all(of, WIDTH, HEIGHT, 4);
    const contents part(of, 8, 4, 5);
    cudaArray_t array = make(of, WIDTH, HEIGHT);
    unsigned char *device;
    put(array, all);
    CHECK(cudaMalloc(&device, part.all.size()));
    CHECK(cudaMemcpy(device, part.all.data(), part.all.size(), cudaMemcpyHostToDevice));
    cudaMemcpy3DParms box = box_to(array, part);
    box.srcPtr.ptr = device;
    box.dstPos = make_cudaPos(4, 8, 0);
    box.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3D(&box));
    for (size_t y = 0; y < part.rows; y++)
        memcpy(&all.all[((size_t)(8 / of.side) + y) * all.row_bytes + (size_t)(4 / of.side) * of.element_bytes],
               &part.all[y * part.row_bytes], part.row_bytes);
    expect(array, all);
    bytes got(part.all.size());
    CHECK(cudaMemcpy2DFromArray(got.data(), part.row_bytes, array, (size_t)(4 / of.side) * of.element_bytes,
                                (size_t)(8 / of.side), part.row_bytes, part.rows, cudaMemcpyDeviceToHost));
    EXPECT(got == part.all);
    CHECK(cudaFree(device));
    CHECK(cudaFreeArray(array));
}

/* Batched copies count elements. */
static void test_batch(const format &of)
{
    const contents given(of, WIDTH, HEIGHT, 9);
    cudaArray_t array = make(of, WIDTH, HEIGHT);
    CUDA_MEMCPY3D_BATCH_OP box = {};
    CUstream stream;
    box.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.src.op.ptr.ptr = (CUdeviceptr)given.all.data();
    box.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    box.dst.op.array.array = (CUarray)array;
    box.extent.width = given.row_bytes / of.element_bytes;
    box.extent.height = given.rows;
    box.extent.depth = 1;
    box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CHECK_CU(cuStreamCreate(&stream, 0));
    CHECK_CU(cuMemcpy3DBatchAsync(1, &box, 0, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    expect(array, given);
    box.extent.height = given.rows + 1;
    EXPECT_CU(cuMemcpy3DBatchAsync(1, &box, 0, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuStreamDestroy(stream));
    CHECK(cudaFreeArray(array));
}

static void test_graph(const format &of)
{
    const contents first(of, WIDTH, HEIGHT, 6), second(of, WIDTH, HEIGHT, 7);
    cudaArray_t array = make(of, WIDTH, HEIGHT);
    cudaMemcpy3DParms box = box_to(array, first), found = {};
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t exec;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode(&node, graph, NULL, 0, &box));
    CHECK(cudaGraphMemcpyNodeGetParams(node, &found));
    EXPECT(found.dstArray == array);
    EXPECT_EQ(found.extent.width, WIDTH);
    EXPECT_EQ(found.extent.height, HEIGHT);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    expect(array, first);
    CHECK(cudaGraphExecDestroy(exec));
    box = box_to(array, second);
    CHECK(cudaGraphMemcpyNodeSetParams(node, &box)); /* what is executable already keeps copies of arrays */
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    CHECK(cudaDeviceSynchronize());
    expect(array, second);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFreeArray(array));
}

/* ---- textures ---- */

__global__ void fetch(cudaTextureObject_t texture, const float2 *points, int count, float level, float4 *out)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        out[i] = level < 0 ? tex2D<float4>(texture, points[i].x, points[i].y)
                           : tex2DLod<float4>(texture, points[i].x, points[i].y, level);
}

static float2 *points;
static float4 *results;

/* Blocks of which every GPU reads the same. */
static bool is_exact(const format &of)
{
    return of.number >= CU_AD_FORMAT_BC6H_UF16 && of.number <= CU_AD_FORMAT_BC7_UNORM_SRGB;
}

/* What GPUs may be off. Between the ends of a ramp they take the nearest of 64 steps or so: a fifth becomes 12 of 64, a
 * third between colours 20 (an H200 reads 108 of 255 for 112). */
static double tolerance_of(const format &of, unsigned channel)
{
    const bool is_signed = of.number == CU_AD_FORMAT_BC4_SNORM || of.number == CU_AD_FORMAT_BC5_SNORM;
    const bool is_ramp = of.channels < 4 || (of.decode == bc3 && channel == 3);
    if (of.is_srgb && is_colour(of, channel))
        return 3.0 / 255;
    if (of.side == 1 || is_exact(of))
        return 1e-6;
    return !is_ramp ? 6.0 / 255 : is_signed ? 0.06 : 0.03;
}

/* A channel that the format lacks. */
static double missing(const format &of, unsigned channel, bool is_view)
{
    return channel == 3 && of.side > 1 && !is_view ? 1 : 0;
}

/* Every texel, or, where it is linear, places between them. level < 0: the texture has no levels. */
static void expect_fetches(const format &of, cudaTextureObject_t texture, const texture_image &image,
                           const texture_sampler &sampler, float level, bool is_view = false)
{
    const int count = image.size[0] * image.size[1];
    double most = 1;
    for (double texel : image.texels)
        most = std::fmax(most, std::fabs(texel));
    std::vector<float2> at((size_t)count);
    std::vector<float4> got((size_t)count);
    for (int i = 0; i < count; i++) {
        const double shift = sampler.is_linear ? 0.5 + (i % 32) / 32.0 : 0.5;
        at[(size_t)i].x = (float)((i % image.size[0] + shift) / (sampler.is_normalized ? image.size[0] : 1));
        at[(size_t)i].y = (float)((i / image.size[0] + shift) / (sampler.is_normalized ? image.size[1] : 1));
    }
    CHECK(cudaMemcpy(points, at.data(), sizeof(float2) * (size_t)count, cudaMemcpyHostToDevice));
    fetch<<<1, 64>>>(texture, points, count, level, results);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(got.data(), results, sizeof(float4) * (size_t)count, cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; i++) {
        const double x[3] = {at[(size_t)i].x, at[(size_t)i].y, 0};
        const float channels[4] = {got[(size_t)i].x, got[(size_t)i].y, got[(size_t)i].z, got[(size_t)i].w};
        for (unsigned c = 0; c < 4; c++) {
            const double want = c < of.channels ? texture_fetch(image, sampler, x, (int)c) : missing(of, c, is_view);
            EXPECT(std::fabs(channels[c] - want) <= tolerance_of(of, c) + (sampler.is_linear ? most * 4.0 / 256 : 0),
                   "format %#x at %g %g level %g channel %u: got %g, expected %g", of.number, x[0], x[1], level, c,
                   channels[c], want);
        }
    }
}

/* Floats of any size are elements for the runtime, packed ones too. */
static cudaTextureReadMode mode_of(const format &of)
{
    const bool is_float = of.number == CU_AD_FORMAT_UNORM_INT_101010_2 || of.number == CU_AD_FORMAT_BC6H_UF16 ||
                          of.number == CU_AD_FORMAT_BC6H_SF16;
    return is_float ? cudaReadModeElementType : cudaReadModeNormalizedFloat;
}

static cudaTextureObject_t show(const format &of, const cudaResourceDesc &resource, const texture_sampler &sampler)
{
    cudaTextureObject_t texture;
    cudaTextureDesc desc = {}, found;
    desc.readMode = mode_of(of);
    desc.filterMode = sampler.is_linear ? cudaFilterModeLinear : cudaFilterModePoint;
    desc.addressMode[0] = desc.addressMode[1] = cudaAddressModeClamp;
    desc.normalizedCoords = sampler.is_normalized;
    desc.sRGB = of.is_srgb;
    desc.maxMipmapLevelClamp = LEVELS;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, NULL));
    CHECK(cudaGetTextureObjectTextureDesc(&found, texture));
    EXPECT_EQ(found.readMode, mode_of(of));
    EXPECT_EQ(found.sRGB, of.is_srgb);
    return texture;
}

static const texture_sampler nearest = {{cudaAddressModeClamp, cudaAddressModeClamp}, false, false, 0},
                             linear = {{cudaAddressModeClamp, cudaAddressModeClamp}, true, false, 0},
                             by_level = {{cudaAddressModeClamp, cudaAddressModeClamp}, false, true, 0};

static void test_fetches_of(const format &of, const contents &given)
{
    cudaArray_t array = make(of, given.width, given.height);
    cudaResourceDesc resource = {};
    put(array, given);
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    for (const texture_sampler *sampler : {&nearest, &linear}) {
        cudaTextureObject_t texture = show(of, resource, *sampler);
        expect_fetches(of, texture, decode(of, given), *sampler, -1);
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFreeArray(array));
}

static void test_fetches(const format &of, int width, int height)
{
    test_fetches_of(of, contents(of, width, height, 8));
}

/* `count` bits of a block, of which the first is bit `at`. */
static void set_bits(unsigned char *block, int at, int count, int value)
{
    for (int i = 0; i < count; i++) {
        const int bit = at + i, set = value >> i & 1;
        block[bit / 8] = (unsigned char)((block[bit / 8] & ~(1 << bit % 8)) | set << bit % 8);
    }
}

/* Every mode with every number of the bits that choose parts, rotations and the like, and what is reserved. */
static void test_modes_of_bc7(const format &of)
{
    enum { CHOICES = 64 };
    contents given(of, 4 * CHOICES, 4 * (BC7_MODES + 1), 40);
    for (int mode = 0; mode <= BC7_MODES; mode++)
        for (int choice = 0; choice < CHOICES; choice++) {
            unsigned char *block = &given.all[(size_t)mode * given.row_bytes + (size_t)choice * BLOCK_BYTES];
            set_bits(block, 0, 8, mode < BC7_MODES ? block[0] << (mode + 1) | 1 << mode : 0);
            if (mode < BC7_MODES && mode != 6) /* which has no such bits */
                set_bits(block, mode + 1, 6, choice);
        }
    test_fetches_of(of, given);
}

static void test_modes_of_bc6h(const format &of)
{
    enum { CHOICES = 32, NUMBERS = 32 };
    contents given(of, 4 * CHOICES, 4 * NUMBERS, 41);
    for (int number = 0; number < NUMBERS; number++)
        for (int choice = 0; choice < CHOICES; choice++) {
            unsigned char *block = &given.all[(size_t)number * given.row_bytes + (size_t)choice * BLOCK_BYTES];
            set_bits(block, 0, 5, number);
            if (number % 4 != 3) /* which are whole */
                set_bits(block, 77, 5, choice);
        }
    test_fetches_of(of, given);
}

/* Another way to read it, and sRGB that only one of texture and array says. */
static void test_wrong_textures(const format &of)
{
    cudaArray_t array = make(of, WIDTH, HEIGHT);
    cudaResourceDesc resource = {};
    cudaTextureDesc desc = {};
    cudaTextureObject_t texture;
    bool is_normalized = mode_of(of) == cudaReadModeNormalizedFloat;
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    desc.sRGB = of.is_srgb;
    desc.readMode = is_normalized ? cudaReadModeElementType : cudaReadModeNormalizedFloat;
    EXPECT_ERR(cudaCreateTextureObject(&texture, &resource, &desc, NULL), cudaErrorInvalidNormSetting);
    if (of.is_srgb) {
        desc.readMode = mode_of(of);
        desc.sRGB = 0;
        EXPECT_ERR(cudaCreateTextureObject(&texture, &resource, &desc, NULL), cudaErrorInvalidValue);
    }
    resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = results;
    resource.res.linear.desc = of.desc;
    resource.res.linear.sizeInBytes = 1024;
    desc.readMode = mode_of(of);
    if (of.number == CU_AD_FORMAT_UNORM_INT_101010_2) {
        CHECK(cudaCreateTextureObject(&texture, &resource, &desc, NULL));
        CHECK(cudaDestroyTextureObject(texture));
    } else {
        EXPECT_ERR(cudaCreateTextureObject(&texture, &resource, &desc, NULL), cudaErrorInvalidValue);
    }
    CHECK(cudaFreeArray(array));
}

/* Levels smaller than a block have one all the same. */
static void test_levels(const format &of)
{
    cudaMipmappedArray_t mipmap;
    CHECK(cudaMallocMipmappedArray(&mipmap, &of.desc, make_cudaExtent(WIDTH, HEIGHT, 0), LEVELS));
    std::vector<contents> levels;
    for (int l = 0; l < LEVELS; l++) {
        cudaArray_t array;
        cudaChannelFormatDesc desc;
        cudaExtent extent;
        unsigned flags;
        levels.emplace_back(of, WIDTH >> l, HEIGHT >> l > 1 ? HEIGHT >> l : 1, 10 + (unsigned)l);
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, (unsigned)l));
        CHECK(cudaArrayGetInfo(&desc, &extent, &flags, array));
        expect_desc(desc, of.desc);
        EXPECT_EQ(extent.width, levels.back().width);
        EXPECT_EQ(extent.height, levels.back().height);
        cudaMemcpy3DParms box = box_to(array, levels.back());
        CHECK(cudaMemcpy3D(&box));
    }
    for (int l = 0; l < LEVELS; l++) {
        cudaArray_t array;
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, (unsigned)l));
        expect(array, levels[(size_t)l]);
    }
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmap;
    cudaTextureObject_t texture = show(of, resource, by_level);
    for (int l = 0; l < LEVELS; l++)
        expect_fetches(of, texture, decode(of, levels[(size_t)l]), by_level, (float)l);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeMipmappedArray(mipmap));
}

/* Whole numbers of 32 bits shown as blocks, which makes the array four times as wide and high. */
static void test_views(void)
{
    static const struct {
        cudaResourceViewFormat view;
        CUarray_format number;
    } views[] = {
        {cudaResViewFormatUnsignedBlockCompressed1, CU_AD_FORMAT_BC1_UNORM},
        {cudaResViewFormatUnsignedBlockCompressed2, CU_AD_FORMAT_BC2_UNORM},
        {cudaResViewFormatUnsignedBlockCompressed3, CU_AD_FORMAT_BC3_UNORM},
        {cudaResViewFormatUnsignedBlockCompressed4, CU_AD_FORMAT_BC4_UNORM},
        {cudaResViewFormatSignedBlockCompressed4, CU_AD_FORMAT_BC4_SNORM},
        {cudaResViewFormatUnsignedBlockCompressed5, CU_AD_FORMAT_BC5_UNORM},
        {cudaResViewFormatSignedBlockCompressed5, CU_AD_FORMAT_BC5_SNORM},
        {cudaResViewFormatUnsignedBlockCompressed6H, CU_AD_FORMAT_BC6H_UF16},
        {cudaResViewFormatSignedBlockCompressed6H, CU_AD_FORMAT_BC6H_SF16},
        {cudaResViewFormatUnsignedBlockCompressed7, CU_AD_FORMAT_BC7_UNORM},
    };
    for (auto &view : views)
        for (auto &of : formats) {
            if (of.number != view.number)
                continue;
            const contents given(of, WIDTH, HEIGHT, 20);
            const cudaChannelFormatDesc words =
                of.element_bytes == 8 ? cudaCreateChannelDesc<uint2>() : cudaCreateChannelDesc<uint4>();
            cudaArray_t array;
            CUDA_RESOURCE_DESC resource = {};
            CUDA_TEXTURE_DESC desc = {};
            CUDA_RESOURCE_VIEW_DESC shown = {};
            CUtexObject texture;
            CHECK(cudaMallocArray(&array, &words, WIDTH / 4, HEIGHT / 4));
            put(array, given);
            resource.resType = CU_RESOURCE_TYPE_ARRAY;
            resource.res.array.hArray = (CUarray)array;
            desc.addressMode[0] = desc.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
            shown.format = (CUresourceViewFormat)view.view;
            shown.width = WIDTH;
            shown.height = HEIGHT;
            CHECK_CU(cuTexObjectCreate(&texture, &resource, &desc, &shown));
            expect_fetches(of, texture, decode(of, given), nearest, -1, true);
            CHECK_CU(cuTexObjectDestroy(texture));
            CHECK(cudaFreeArray(array));
        }
}

/* Floats are not normalised. */
static void test_floats(void)
{
    for (auto &desc :
         {cudaCreateChannelDesc<float>(), cudaCreateChannelDesc(16, 16, 0, 0, cudaChannelFormatKindFloat)}) {
        cudaResourceDesc resource = {};
        cudaTextureDesc how = {};
        cudaTextureObject_t texture;
        cudaArray_t array;
        CHECK(cudaMallocArray(&array, &desc, WIDTH, HEIGHT));
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = array;
        how.readMode = cudaReadModeNormalizedFloat;
        EXPECT_ERR(cudaCreateTextureObject(&texture, &resource, &how, NULL), cudaErrorInvalidNormSetting);
        CHECK(cudaFreeArray(array));
    }
}

/* ---- surfaces ---- */

__global__ void invert(cudaSurfaceObject_t surface)
{
    const int x = (int)threadIdx.x * 4, y = (int)threadIdx.y;
    uchar4 v = surf2Dread<uchar4>(surface, x, y);
    surf2Dwrite(make_uchar4((unsigned char)~v.x, (unsigned char)~v.y, (unsigned char)~v.z, (unsigned char)~v.w),
                surface, x, y);
}

/* Bytes go through surfaces as they are. */
static void test_surface(const format &of)
{
    contents given(of, WIDTH, HEIGHT, 30);
    cudaArray_t array = make(of, WIDTH, HEIGHT, cudaArraySurfaceLoadStore);
    cudaResourceDesc resource = {};
    cudaSurfaceObject_t surface;
    put(array, given);
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    invert<<<1, dim3(WIDTH, HEIGHT)>>>(surface);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    for (auto &byte : given.all)
        byte = (unsigned char)~byte;
    expect(array, given);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
}

int main(void)
{
    CHECK(cudaMalloc(&points, sizeof(float2) * TEXELS_MAX));
    CHECK(cudaMalloc(&results, sizeof(float4) * TEXELS_MAX));
    for (auto &of : formats) {
        test_description(of);
        test_copies(of, WIDTH, HEIGHT);
        test_copies(of, 10, 6); /* no multiple of a block */
        test_part(of);
        test_batch(of);
        test_graph(of);
        test_levels(of);
        test_wrong_textures(of);
        test_fetches(of, WIDTH, HEIGHT);
        test_fetches(of, 10, 6);
        if (of.number == CU_AD_FORMAT_UNORM_INT8X4)
            test_surface(of);
        if (of.number == CU_AD_FORMAT_BC7_UNORM || of.number == CU_AD_FORMAT_BC7_UNORM_SRGB)
            test_modes_of_bc7(of);
        if (of.number == CU_AD_FORMAT_BC6H_UF16 || of.number == CU_AD_FORMAT_BC6H_SF16)
            test_modes_of_bc6h(of);
    }
    for (auto &of : formats)
        if (of.number >= CU_AD_FORMAT_UNORM_INT8X1 && of.number <= CU_AD_FORMAT_UNORM_INT8X4) {
            format encoded = of; /* where the texture alone says so */
            encoded.is_srgb = true;
            test_fetches(encoded, WIDTH, HEIGHT);
        }
    test_views();
    test_floats();
    CHECK(cudaFree(points));
    CHECK(cudaFree(results));
    return 0;
}
