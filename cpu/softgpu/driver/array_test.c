/* Arrays and objects of the software GPU: what is refused, which handles there are, and memory that comes back. */
#include <stdlib.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/test.h"

static CUDA_ARRAY3D_DESCRIPTOR shape(size_t width, size_t height, size_t depth, unsigned flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width,
                                     .Height = height,
                                     .Depth = depth,
                                     .Format = CU_AD_FORMAT_FLOAT,
                                     .NumChannels = 1,
                                     .Flags = flags};
}

static void shapes(void **state)
{
    const CUDA_ARRAY3D_DESCRIPTOR bad[] = {shape(0, 0, 0, 0),
                                           shape(1 << 20, 0, 0, 0),
                                           shape(4, 0, 4, 0),
                                           shape(4, 4, 0, CUDA_ARRAY3D_LAYERED),
                                           shape(4, 5, 6, CUDA_ARRAY3D_CUBEMAP),
                                           shape(4, 4, 5, CUDA_ARRAY3D_CUBEMAP)};
    CUDA_ARRAY3D_DESCRIPTOR desc = shape(4, 4, 0, CUDA_ARRAY3D_SPARSE), found;
    CUmipmappedArray mipmap;
    CUarray array, level;

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(cuArray3DCreate(&array, &bad[i]), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuArray3DCreate(&array, &desc), CUDA_ERROR_NOT_SUPPORTED);
    desc = shape(4, 4, 0, 0);
    desc.Flags = CUDA_ARRAY3D_DEPTH_TEXTURE;
    assert_int_equal(cuArray3DCreate(&array, &desc), CUDA_ERROR_INVALID_VALUE);
    desc.Flags = 0;
    desc.Format = CU_AD_FORMAT_NV12;
    desc.NumChannels = 3; /* not said to be of video */
    assert_int_equal(cuArray3DCreate(&array, &desc), CUDA_ERROR_INVALID_VALUE);
    desc.Format = CU_AD_FORMAT_BC1_UNORM;
    desc.NumChannels = 2;
    assert_int_equal(cuArray3DCreate(&array, &desc), CUDA_ERROR_INVALID_VALUE);
    desc.NumChannels = 4;
    desc.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    assert_int_equal(cuArray3DCreate(&array, &desc), CUDA_ERROR_NOT_SUPPORTED);
    desc.Flags = 0;
    desc.Height = 0;
    assert_int_equal(cuArray3DCreate(&array, &desc), CUDA_ERROR_INVALID_VALUE);
    desc = shape(9, 4, 0, 0);
    assert_ok(cuMipmappedArrayCreate(&mipmap, &desc, 9));
    assert_ok(cuMipmappedArrayGetLevel(&level, mipmap, 3));
    assert_ok(cuArray3DGetDescriptor(&found, level));
    assert_int_equal(found.Width, 1);
    assert_int_equal(cuMipmappedArrayGetLevel(&level, mipmap, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuArrayDestroy(level), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMipmappedArrayDestroy(mipmap));
}

static void memory_comes_back(void **state)
{
    const CUDA_ARRAY3D_DESCRIPTOR desc = shape(1024, 1024, 0, 0), huge = shape(131072, 131072, 0, 0);
    size_t before, with, after, total;
    CUarray array;

    assert_ok(cuMemGetInfo(&before, &total));
    assert_ok(cuArray3DCreate(&array, &desc));
    assert_ok(cuMemGetInfo(&with, &total));
    assert_true(before - with >= 4 << 20);
    assert_ok(cuArrayDestroy(array));
    assert_ok(cuMemGetInfo(&after, &total));
    assert_int_equal(after, before);
    assert_int_equal(cuArray3DCreate(&array, &huge), CUDA_ERROR_OUT_OF_MEMORY);
}

static void copies(void **state)
{
    const CUDA_ARRAY3D_DESCRIPTOR desc = shape(8, 4, 0, 0);
    float in[32], out[32] = {0};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = 32,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .WidthInBytes = 32,
                          .Height = 4,
                          .Depth = 1};
    CUarray array;

    for (int i = 0; i < 32; i++)
        in[i] = (float)i;
    assert_ok(cuArray3DCreate(&array, &desc));
    copy.dstArray = array;
    assert_ok(cuMemcpy3D(&copy));
    copy = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = array,
                           .srcXInBytes = 4,
                           .srcY = 1,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = out,
                           .dstPitch = 8,
                           .WidthInBytes = 8,
                           .Height = 2,
                           .Depth = 1};
    assert_ok(cuMemcpy3D(&copy));
    assert_true(out[0] == 9 && out[1] == 10 && out[2] == 17 && out[3] == 18);
    copy.srcXInBytes = 28;
    assert_int_equal(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcXInBytes = 2;
    assert_int_equal(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcXInBytes = 0;
    copy.srcY = 3;
    assert_int_equal(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuArrayDestroy(array));
}

/* In blocks, whose bytes are copied and which textures read. */
static void blocks(void **state)
{
    static const struct {
        CUarray_format format;
        unsigned channels;
        bool is_srgb;
    } formats[] = {
        {CU_AD_FORMAT_BC3_UNORM_SRGB, 4, true}, {CU_AD_FORMAT_BC5_SNORM, 2, false},
        {CU_AD_FORMAT_BC6H_SF16, 3, false},     {CU_AD_FORMAT_BC7_UNORM, 4, false},
        {CU_AD_FORMAT_BC7_UNORM_SRGB, 4, true},
    };
    const CUDA_TEXTURE_DESC plain = {0}, srgb = {.flags = CU_TRSF_SRGB};

    for (unsigned i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        CUDA_ARRAY3D_DESCRIPTOR desc = shape(10, 6, 0, 0);
        char in[96], out[96] = {0};
        CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .srcHost = in,
                              .srcPitch = 48,
                              .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                              .WidthInBytes = 48,
                              .Height = 2};
        CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
        CUtexObject object;
        CUarray array;

        for (int k = 0; k < 96; k++)
            in[k] = (char)(k * 3 + 1);
        desc.Format = formats[i].format;
        desc.NumChannels = formats[i].channels;
        assert_ok(cuArray3DCreate(&array, &desc));
        copy.dstArray = array;
        assert_ok(cuMemcpy2D(&copy));
        copy.WidthInBytes = 40;
        assert_int_equal(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
        copy.WidthInBytes = 48;
        copy.Height = 3;
        assert_int_equal(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
        copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .srcArray = array,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = out,
                               .dstPitch = 48,
                               .WidthInBytes = 48,
                               .Height = 2};
        assert_ok(cuMemcpy2D(&copy));
        assert_memory_equal(in, out, sizeof(in));
        resource.res.array.hArray = array;
        assert_int_equal(cuTexObjectCreate(&object, &resource, &plain, NULL),
                         formats[i].is_srgb ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
        if (!formats[i].is_srgb)
            assert_ok(cuTexObjectDestroy(object));
        assert_ok(cuTexObjectCreate(&object, &resource, &srgb, NULL));
        assert_ok(cuTexObjectDestroy(object));
        assert_ok(cuArrayDestroy(array));
    }
}

/* A planar array is only its planes, which go with it; texels that are packed are shown by surfaces alone. */
static void planes(void **state)
{
    const CUDA_ARRAY3D_DESCRIPTOR first = shape(10, 6, 0, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE);
    const CUDA_TEXTURE_DESC texture = {0};
    CUDA_ARRAY3D_DESCRIPTOR desc = first, found;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    CUmipmappedArray mipmap;
    CUarray array, plane, none;
    CUtexObject object;

    desc.Format = CU_AD_FORMAT_NV12;
    desc.NumChannels = 3;
    assert_ok(cuArray3DCreate(&array, &desc));
    assert_ok(cuArrayGetPlane(&plane, array, 1));
    assert_int_equal(cuArrayGetPlane(&none, array, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuArrayGetPlane(&none, plane, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuArray3DGetDescriptor(&found, plane));
    assert_int_equal(found.Width, 5);
    assert_int_equal(found.Height, 3);
    assert_int_equal(found.NumChannels, 2);
    assert_ok(cuArrayDestroy(plane));
    assert_ok(cuArray3DGetDescriptor(&found, array));
    assert_int_equal(found.Format, CU_AD_FORMAT_NV12);
    resource.res.array.hArray = array;
    assert_int_equal(cuTexObjectCreate(&object, &resource, &texture, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuSurfObjectCreate(&object, &resource), CUDA_ERROR_INVALID_VALUE);
    resource.res.array.hArray = plane;
    assert_ok(cuTexObjectCreate(&object, &resource, &texture, NULL));
    assert_ok(cuArrayDestroy(array));
    assert_ok(cuTexObjectDestroy(object));
    assert_int_equal(cuMipmappedArrayCreate(&mipmap, &desc, 1), CUDA_ERROR_NOT_SUPPORTED);

    desc.Format = CU_AD_FORMAT_Y416;
    desc.NumChannels = 4;
    assert_ok(cuArray3DCreate(&array, &desc));
    resource.res.array.hArray = array;
    assert_int_equal(cuTexObjectCreate(&object, &resource, &texture, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuSurfObjectCreate(&object, &resource));
    assert_ok(cuSurfObjectDestroy(object));
    assert_ok(cuArrayDestroy(array));
    desc.Flags = 0;
    assert_int_equal(cuArray3DCreate(&array, &desc), CUDA_ERROR_INVALID_VALUE);
}

/* Whatever the flags: their texels have no places of their own. */
static void blocks_have_no_surfaces(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR desc = shape(64, 64, 0, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE);
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    CUsurfObject surface;
    CUarray array;

    assert_ok(cuArray3DCreate(&array, &desc));
    resource.res.array.hArray = array;
    assert_ok(cuSurfObjectCreate(&surface, &resource));
    assert_ok(cuSurfObjectDestroy(surface));
    assert_ok(cuArrayDestroy(array));
    desc.Format = CU_AD_FORMAT_BC1_UNORM;
    desc.NumChannels = 4;
    assert_ok(cuArray3DCreate(&array, &desc));
    resource.res.array.hArray = array;
    assert_int_equal(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuArrayDestroy(array));
}

/* The lowest that is free; a texture outlives its array. */
static void handles(void **state)
{
    const CUDA_ARRAY3D_DESCRIPTOR desc = shape(8, 4, 0, CUDA_ARRAY3D_SURFACE_LDST);
    const CUDA_TEXTURE_DESC texture = {0}, linear = {.filterMode = CU_TR_FILTER_MODE_LINEAR},
                            seamless = {.flags = CU_TRSF_SEAMLESS_CUBEMAP};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY}, memory = {.resType = CU_RESOURCE_TYPE_LINEAR};
    CUtexObject a, b, c;
    CUsurfObject surface;
    CUdeviceptr address;
    CUarray array;

    assert_ok(cuArray3DCreate(&array, &desc));
    resource.res.array.hArray = array;
    assert_ok(cuTexObjectCreate(&a, &resource, &texture, NULL));
    assert_ok(cuSurfObjectCreate(&surface, &resource));
    assert_ok(cuTexObjectCreate(&b, &resource, &linear, NULL));
    assert_int_equal(surface, a + 1);
    assert_int_equal(b, a + 2);
    assert_int_equal(cuTexObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuSurfObjectDestroy(surface));
    assert_ok(cuTexObjectCreate(&c, &resource, &texture, NULL));
    assert_int_equal(c, surface);
    assert_int_equal(cuTexObjectCreate(&c, &resource, &seamless, NULL), CUDA_ERROR_NOT_SUPPORTED);
    assert_ok(cuArrayDestroy(array));
    assert_ok(cuTexObjectDestroy(a));
    assert_ok(cuTexObjectDestroy(b));
    assert_ok(cuTexObjectDestroy(surface));
    assert_ok(cuMemAlloc(&address, 4096));
    memory.res.linear.devPtr = address;
    memory.res.linear.format = CU_AD_FORMAT_SIGNED_INT32;
    memory.res.linear.numChannels = 1;
    memory.res.linear.sizeInBytes = 4096;
    assert_int_equal(cuTexObjectCreate(&a, &memory, &linear, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuSurfObjectCreate(&surface, &memory), CUDA_ERROR_INVALID_VALUE);
    memory.res.linear.sizeInBytes = 64ull << 20;
    assert_int_equal(cuTexObjectCreate(&a, &memory, &texture, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuMemFree(address));
}

static int set_up(void **state)
{
    setenv("FLYT_SOFT_MEMORY", "1G", 1);
    test_start();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes), cmocka_unit_test(memory_comes_back),       cmocka_unit_test(copies),
        cmocka_unit_test(blocks), cmocka_unit_test(blocks_have_no_surfaces), cmocka_unit_test(planes),
        cmocka_unit_test(handles)};

    return cmocka_run_group_tests(tests, set_up, NULL);
}
