// Arrays in formats of video: which shapes there are, planes and their descriptions, copies, textures and surfaces of
// planes and of packed texels; and what the flags of arrays mean that are for graphics.
// nvcc: -lcuda
#include "check.h"

#include <cuda.h>
#include <vector>

enum { WIDTH = 24, HEIGHT = 10, LAYERS = 3, VIDEO = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE };

typedef std::vector<unsigned char> bytes;

struct plane_shape {
    unsigned channels, across, down; /* texels of the image for one of the plane's */
};

/* planes: none where texels are packed, of so many bytes each. */
struct format {
    CUarray_format number;
    unsigned channels, bytes; /* of a planar one, of a channel */
    std::vector<plane_shape> planes;
};

static const std::vector<plane_shape> of_420 = {{1, 1, 1}, {2, 2, 2}}, of_422 = {{1, 1, 1}, {2, 2, 1}},
                                      of_444 = {{1, 1, 1}, {2, 1, 1}}, three = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}};

static const format formats[] = {
    {CU_AD_FORMAT_NV12, 3, 1, of_420},
    {CU_AD_FORMAT_P010, 3, 2, of_420},
    {CU_AD_FORMAT_P016, 3, 2, of_420},
    {CU_AD_FORMAT_NV16, 3, 1, of_422},
    {CU_AD_FORMAT_P210, 3, 2, of_422},
    {CU_AD_FORMAT_P216, 3, 2, of_422},
    {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 3, 1, of_444},
    {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 3, 2, of_444},
    {CU_AD_FORMAT_Y444_PLANAR8, 3, 1, three},
    {CU_AD_FORMAT_Y444_PLANAR10, 3, 2, three},
    {CU_AD_FORMAT_YUY2, 4, 4, {}},
    {CU_AD_FORMAT_Y210, 2, 4, {}},
    {CU_AD_FORMAT_Y216, 2, 4, {}},
    {CU_AD_FORMAT_AYUV, 4, 4, {}},
    {CU_AD_FORMAT_Y410, 1, 4, {}},
    {CU_AD_FORMAT_Y416, 4, 8, {}},
};

static CUDA_ARRAY3D_DESCRIPTOR describe(const format &of, size_t width, size_t height, size_t depth, unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR desc = {};
    desc.Width = width;
    desc.Height = height;
    desc.Depth = depth;
    desc.Format = of.number;
    desc.NumChannels = of.channels;
    desc.Flags = flags;
    return desc;
}

static CUarray make(const CUDA_ARRAY3D_DESCRIPTOR &desc)
{
    CUarray array;
    CHECK_CU(cuArray3DCreate(&array, &desc));
    return array;
}

static bytes fill(size_t count, unsigned seed)
{
    bytes all(count);
    for (auto &byte : all)
        byte = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
    return all;
}

static CUresult copy(CUarray array, bytes &host, size_t row_bytes, size_t rows, size_t slices, bool to_array)
{
    CUDA_MEMCPY3D box = {};
    box.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    box.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    box.srcArray = box.dstArray = array;
    box.srcHost = box.dstHost = host.data();
    box.srcPitch = box.dstPitch = box.WidthInBytes = row_bytes;
    box.srcHeight = box.dstHeight = box.Height = rows;
    box.Depth = slices;
    return cuMemcpy3D(&box);
}

static void expect(CUarray array, const bytes &want, size_t row_bytes, size_t rows, size_t slices)
{
    bytes got(want.size());
    CHECK_CU(copy(array, got, row_bytes, rows, slices, false));
    EXPECT(got == want);
}

/* ---- shapes ---- */

static void test_shapes(const format &of)
{
    static const struct {
        size_t width, height, depth;
        unsigned flags;
        CUresult want;
    } shapes[] = {
        {WIDTH, HEIGHT, 0, VIDEO, CUDA_SUCCESS},
        {WIDTH, HEIGHT, 0, VIDEO | CUDA_ARRAY3D_SURFACE_LDST, CUDA_SUCCESS},
        {WIDTH, HEIGHT, LAYERS, VIDEO | CUDA_ARRAY3D_LAYERED, CUDA_SUCCESS},
        {2, 2, 0, VIDEO, CUDA_SUCCESS},
        {WIDTH, HEIGHT, 0, 0, CUDA_ERROR_INVALID_VALUE},
        {WIDTH, HEIGHT, 0, CUDA_ARRAY3D_SURFACE_LDST, CUDA_ERROR_INVALID_VALUE},
        {WIDTH, 0, 0, VIDEO, CUDA_ERROR_INVALID_VALUE},
        {WIDTH, HEIGHT, 2, VIDEO, CUDA_ERROR_INVALID_VALUE},
        {WIDTH + 1, HEIGHT, 0, VIDEO, CUDA_ERROR_INVALID_VALUE},
        {WIDTH, HEIGHT + 1, 0, VIDEO, CUDA_ERROR_INVALID_VALUE},
        {WIDTH, WIDTH, 6, VIDEO | CUDA_ARRAY3D_CUBEMAP, CUDA_ERROR_INVALID_VALUE},
        {1 << 18, HEIGHT, 0, VIDEO, CUDA_ERROR_INVALID_VALUE},
    };
    for (auto &shape : shapes) {
        const CUDA_ARRAY3D_DESCRIPTOR desc = describe(of, shape.width, shape.height, shape.depth, shape.flags);
        CUarray array;
        CUresult got = cuArray3DCreate(&array, &desc);
        EXPECT(got == shape.want, "format %#x %zux%zux%zu flags %#x: got %d, expected %d", of.number, shape.width,
               shape.height, shape.depth, shape.flags, got, shape.want);
        if (got == CUDA_SUCCESS)
            CHECK_CU(cuArrayDestroy(array));
    }
    for (unsigned channels = 0; channels < 6; channels++) {
        CUDA_ARRAY3D_DESCRIPTOR desc = describe(of, WIDTH, HEIGHT, 0, VIDEO);
        CUarray array;
        desc.NumChannels = channels;
        if (channels != of.channels)
            EXPECT_CU(cuArray3DCreate(&array, &desc), CUDA_ERROR_INVALID_VALUE);
    }
}

static void test_description(const format &of)
{
    const CUDA_ARRAY3D_DESCRIPTOR desc = describe(of, WIDTH, HEIGHT, 0, VIDEO);
    CUDA_ARRAY3D_DESCRIPTOR found;
    cudaChannelFormatDesc channels;
    CUarray array = make(desc);
    CHECK_CU(cuArray3DGetDescriptor(&found, array));
    EXPECT_EQ(found.Format, of.number);
    EXPECT_EQ(found.NumChannels, of.channels);
    EXPECT_EQ(found.Width, WIDTH);
    EXPECT_EQ(found.Height, HEIGHT);
    EXPECT_EQ(found.Depth, 0);
    EXPECT_EQ(found.Flags, VIDEO);
    if (of.number == CU_AD_FORMAT_NV12) {
        CHECK(cudaGetChannelDesc(&channels, (cudaArray_t)array));
        EXPECT(channels.x == 8 && channels.y == 8 && channels.z == 8 && !channels.w);
        EXPECT_EQ(channels.f, cudaChannelFormatKindNV12);
    } else {
        EXPECT_ERR(cudaGetChannelDesc(&channels, (cudaArray_t)array), cudaErrorInvalidChannelDescriptor);
    }
    CHECK_CU(cuArrayDestroy(array));
}

/* ---- planes ---- */

static void test_plane_description(CUarray plane, const format &of, const plane_shape &shape, size_t layers)
{
    CUDA_ARRAY3D_DESCRIPTOR found;
    cudaChannelFormatDesc channels;
    CHECK_CU(cuArray3DGetDescriptor(&found, plane));
    EXPECT_EQ(found.Format, of.bytes == 1 ? CU_AD_FORMAT_UNSIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT16);
    EXPECT_EQ(found.NumChannels, shape.channels);
    EXPECT_EQ(found.Width, WIDTH / shape.across);
    EXPECT_EQ(found.Height, HEIGHT / shape.down);
    EXPECT_EQ(found.Depth, layers);
    EXPECT(found.Flags & VIDEO);
    CHECK(cudaGetChannelDesc(&channels, (cudaArray_t)plane));
    EXPECT_EQ(channels.x, of.bytes * 8);
    EXPECT_EQ(channels.y, shape.channels > 1 ? of.bytes * 8 : 0);
    EXPECT_EQ(channels.f, cudaChannelFormatKindUnsigned);
}

/* Each holds what was copied to it, and nothing of the others. */
static void test_planes(const format &of, size_t layers)
{
    CUarray array = make(describe(of, WIDTH, HEIGHT, layers, VIDEO | (layers ? CUDA_ARRAY3D_LAYERED : 0u)));
    std::vector<CUarray> planes;
    std::vector<bytes> contents;
    for (auto &shape : of.planes) {
        const unsigned number = (unsigned)planes.size();
        const size_t row = WIDTH / shape.across * shape.channels * of.bytes, rows = HEIGHT / shape.down;
        CUarray plane, again;
        cudaArray_t same;
        CHECK_CU(cuArrayGetPlane(&plane, array, number));
        CHECK_CU(cuArrayGetPlane(&again, array, number));
        CHECK(cudaArrayGetPlane(&same, (cudaArray_t)array, number));
        EXPECT(plane == again && plane == (CUarray)same);
        test_plane_description(plane, of, shape, layers);
        planes.push_back(plane);
        contents.push_back(fill(row * rows * (layers ? layers : 1), number + 1));
        CHECK_CU(copy(plane, contents.back(), row, rows, layers ? layers : 1, true));
        EXPECT_CU(copy(plane, contents.back(), row, rows + 1, 1, true), CUDA_ERROR_INVALID_VALUE);
        EXPECT_CU(cuArrayDestroy(plane), CUDA_SUCCESS); /* which does nothing */
    }
    for (size_t i = 0; i < planes.size(); i++)
        expect(planes[i], contents[i], WIDTH / of.planes[i].across * of.planes[i].channels * of.bytes,
               HEIGHT / of.planes[i].down, layers ? layers : 1);
    CUarray none;
    EXPECT_CU(cuArrayGetPlane(&none, array, (unsigned)planes.size()), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuArrayGetPlane(&none, planes[0], 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuArrayGetPlane(NULL, array, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(copy(array, contents[0], WIDTH, HEIGHT, 1, true), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuArrayDestroy(array));
}

/* ---- textures and surfaces ---- */

static CUresult make_texture(CUarray array, CUtexObject *ret_texture)
{
    CUDA_RESOURCE_DESC resource = {};
    CUDA_TEXTURE_DESC desc = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    desc.flags = CU_TRSF_READ_AS_INTEGER;
    desc.addressMode[0] = desc.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
    return cuTexObjectCreate(ret_texture, &resource, &desc, NULL);
}

static CUresult make_surface(CUarray array, CUsurfObject *ret_surface)
{
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return cuSurfObjectCreate(ret_surface, &resource);
}

__global__ void read(cudaTextureObject_t texture, uint4 *out)
{
    out[threadIdx.y * blockDim.x + threadIdx.x] =
        tex2D<uint4>(texture, (float)threadIdx.x + 0.5f, (float)threadIdx.y + 0.5f);
}

template <class T> __global__ void invert(cudaSurfaceObject_t surface)
{
    const int x = (int)(threadIdx.x * sizeof(T)), y = (int)threadIdx.y;
    T v = surf2Dread<T>(surface, x, y);
    unsigned char *bytes_of = (unsigned char *)&v;
    for (unsigned i = 0; i < sizeof v; i++)
        bytes_of[i] = (unsigned char)~bytes_of[i];
    surf2Dwrite(v, surface, x, y);
}

static void invert_plane(CUsurfObject surface, unsigned channels, dim3 size)
{
    if (channels == 1)
        invert<unsigned char><<<1, size>>>(surface);
    else
        invert<uchar2><<<1, size>>>(surface);
    CHECK_LAUNCH();
}

/* Both see what was copied to the plane. Of channels of 16 bits only that there are such: an H200's show something
 * else. */
static void test_plane_objects(CUarray plane, const format &of, const plane_shape &shape, uint4 *device)
{
    const unsigned width = WIDTH / shape.across, height = HEIGHT / shape.down;
    const size_t row = width * shape.channels * of.bytes;
    bytes contents = fill(row * height, 7);
    std::vector<uint4> got(width * height);
    CUtexObject texture;
    CUsurfObject surface;
    CHECK_CU(copy(plane, contents, row, height, 1, true));
    CHECK_CU(make_surface(plane, &surface)); /* the flag of video is enough */
    if (of.bytes == 1)
        invert_plane(surface, shape.channels, dim3(width, height));
    CHECK_CU(make_texture(plane, &texture));
    read<<<1, dim3(width, height)>>>(texture, device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(got.data(), device, got.size() * sizeof got[0], cudaMemcpyDeviceToHost));
    for (auto &byte : contents)
        byte = (unsigned char)~byte;
    for (size_t i = 0; of.bytes == 1 && i < got.size(); i++) {
        EXPECT_EQ(got[i].x, contents[i * shape.channels]);
        if (shape.channels > 1)
            EXPECT_EQ(got[i].y, contents[i * shape.channels + 1]);
    }
    CHECK_CU(cuTexObjectDestroy(texture));
    CHECK_CU(cuSurfObjectDestroy(surface));
}

static void test_objects(const format &of, uint4 *device)
{
    CUarray array = make(describe(of, WIDTH, HEIGHT, 0, VIDEO));
    CUtexObject texture;
    CUsurfObject surface;
    EXPECT_CU(make_texture(array, &texture), CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < of.planes.size(); i++) {
        CUarray plane;
        CHECK_CU(cuArrayGetPlane(&plane, array, i));
        test_plane_objects(plane, of, of.planes[i], device);
    }
    if (of.planes.empty()) {
        bytes contents = fill((size_t)WIDTH * HEIGHT * of.bytes, 9);
        CHECK_CU(copy(array, contents, WIDTH * of.bytes, HEIGHT, 1, true));
        expect(array, contents, WIDTH * of.bytes, HEIGHT, 1);
        CHECK_CU(make_surface(array, &surface));
        CHECK_CU(cuSurfObjectDestroy(surface));
    } else {
        EXPECT_CU(make_surface(array, &surface), CUDA_ERROR_INVALID_VALUE);
    }
    CHECK_CU(cuArrayDestroy(array));
}

/* ---- flags of other formats ---- */

/* Attachments and depth are for what graphics makes; video is for every format. */
static void test_flags(void)
{
    const format floats = {CU_AD_FORMAT_FLOAT, 1, 4, {}};
    CUarray array;
    for (unsigned flags : {(unsigned)CUDA_ARRAY3D_COLOR_ATTACHMENT, (unsigned)CUDA_ARRAY3D_DEPTH_TEXTURE,
                           (unsigned)CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_SURFACE_LDST, 0x200u, 0x400u}) {
        const CUDA_ARRAY3D_DESCRIPTOR desc = describe(floats, WIDTH, HEIGHT, 0, flags);
        cudaChannelFormatDesc channels = cudaCreateChannelDesc<float>();
        cudaArray_t runtimes;
        EXPECT_CU(cuArray3DCreate(&array, &desc), CUDA_ERROR_INVALID_VALUE);
        EXPECT_ERR(cudaMallocArray(&runtimes, &channels, WIDTH, HEIGHT, flags), cudaErrorInvalidValue);
    }
    for (size_t height : {(size_t)0, (size_t)HEIGHT}) {
        bytes contents = fill(WIDTH * 4 * (height ? height : 1), 3);
        CUsurfObject surface;
        CUarray plane;
        array = make(describe(floats, WIDTH, height, 0, VIDEO));
        CHECK_CU(copy(array, contents, WIDTH * 4, height ? height : 1, 1, true));
        expect(array, contents, WIDTH * 4, height ? height : 1, 1);
        CHECK_CU(make_surface(array, &surface));
        EXPECT_CU(cuArrayGetPlane(&plane, array, 0), CUDA_ERROR_INVALID_VALUE);
        CHECK_CU(cuSurfObjectDestroy(surface));
        CHECK_CU(cuArrayDestroy(array));
    }
    cudaChannelFormatDesc planes = cudaCreateChannelDesc<cudaChannelFormatKindNV12>();
    cudaArray_t runtimes;
    EXPECT_ERR(cudaMallocArray(&runtimes, &planes, WIDTH, HEIGHT), cudaErrorInvalidValue);
    planes.z = 0;
    EXPECT_ERR(cudaMallocArray(&runtimes, &planes, WIDTH, HEIGHT), cudaErrorInvalidChannelDescriptor);
}

int main(void)
{
    uint4 *device;
    CHECK(cudaMalloc(&device, sizeof(uint4) * WIDTH * HEIGHT));
    for (auto &of : formats) {
        test_shapes(of);
        test_description(of);
        if (!of.planes.empty()) {
            test_planes(of, 0);
            test_planes(of, LAYERS);
        }
        test_objects(of, device);
    }
    test_flags();
    CHECK(cudaFree(device));
    return 0;
}
