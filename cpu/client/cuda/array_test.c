/* Arrays and textures over a channel without a server: which calls there are, what is refused without one, and what is
 * made again at another server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/cuda/array.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/texture.h"
#include "rpc/api/array_box.h"
#include "rpc/base/id.h"

static flyt_array_create_args made;
static flyt_copy_in_args copied;
static uint64_t handles[16], wanted[16]; /* that the server gives, and that it was asked for, in their order */
static unsigned handle_count, wanted_count;

/* Every attribute that says nothing, of textures too, is large enough. */
static void serve_info(flyt_device_info_res *res)
{
    fake_serve_device_info(res);
    for (int i = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH; i < CU_DEVICE_ATTRIBUTE_MAX; i++)
        if ((unsigned)i < res->attributes.attributes_len && !res->attributes.attributes_val[i])
            res->attributes.attributes_val[i] = 1024;
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    switch (procedure) {
    case FLYT_DEVICE_INFO:
        serve_info(res);
        break;
    case FLYT_ARRAY_CREATE:
        made = *(const flyt_array_create_args *)args;
        break;
    case FLYT_COPY_IN:
        copied = *(const flyt_copy_in_args *)args;
        break;
    case FLYT_TEXTURE_CREATE:
        if (((const flyt_texture_create_args *)args)->wanted)
            wanted[wanted_count++] = ((const flyt_texture_create_args *)args)->wanted;
        ((flyt_texture_create_res *)res)->handle = ((const flyt_texture_create_args *)args)->wanted
                                                       ? ((const flyt_texture_create_args *)args)->wanted
                                                       : handles[handle_count++];
        break;
    case FLYT_DEVICE_SYNCHRONIZE:
    case FLYT_STREAM_SYNCHRONIZE:
        fake.progress.completed = fake.sequence;
        break;
    default:
        break;
    }
}

static CUDA_ARRAY3D_DESCRIPTOR shape(size_t width, size_t height, size_t depth, unsigned flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width,
                                     .Height = height,
                                     .Depth = depth,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT16,
                                     .NumChannels = 2,
                                     .Flags = flags};
}

static CUarray make(size_t width, size_t height, size_t depth)
{
    const CUDA_ARRAY3D_DESCRIPTOR desc = shape(width, height, depth, 0);
    CUarray array = NULL;
    assert_int_equal(flyt_array_create(&desc, &array), CUDA_SUCCESS);
    return array;
}

static void what_is_no_array_is_refused_here(void **state)
{
    const CUDA_ARRAY3D_DESCRIPTOR bad[] = {shape(0, 1, 0, 0),
                                           shape(1, 0, 1, 0),
                                           shape(4, 4, 0, CUDA_ARRAY3D_LAYERED),
                                           shape(4, 4, 0, 1u << 20),
                                           shape(4, 4, 0, CUDA_ARRAY3D_COLOR_ATTACHMENT),
                                           shape(4, 4, 0, CUDA_ARRAY3D_DEPTH_TEXTURE),
                                           shape(0, 4, 0, CUDA_ARRAY3D_SPARSE)};
    CUDA_ARRAY3D_DESCRIPTOR sparse = shape(4, 4, 0, CUDA_ARRAY3D_SPARSE), planes = shape(4, 4, 0, 0);
    CUmipmappedArray mipmap;
    unsigned before = fake.call_count[FLYT_ARRAY_CREATE];
    CUarray array;
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(flyt_array_create(&bad[i], &array), CUDA_ERROR_INVALID_VALUE);
    planes.Format = CU_AD_FORMAT_NV12;
    planes.NumChannels = 3;
    assert_int_equal(flyt_array_create(&sparse, &array), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(flyt_array_create(&planes, &array), CUDA_ERROR_INVALID_VALUE); /* not said to be of video */
    planes.Flags = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
    assert_int_equal(flyt_mipmap_create(&planes, 1, &mipmap), CUDA_ERROR_NOT_SUPPORTED);
    planes.Width = 5;
    assert_int_equal(flyt_array_create(&planes, &array), CUDA_ERROR_INVALID_VALUE);
    planes.Format = CU_AD_FORMAT_UNORM_INT8X4;
    planes.NumChannels = 5;
    assert_int_equal(flyt_array_create(&planes, &array), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake.call_count[FLYT_ARRAY_CREATE], before);
    assert_int_equal(flyt_array_destroy((CUarray)0x77), CUDA_ERROR_INVALID_HANDLE);
}

/* A copy names a box of the array; a run over several rows is several boxes. */
static void copies_name_boxes(void **state)
{
    static char bytes[4096];
    CUarray array = make(10, 6, 0);
    const struct flyt_array_at at = {.array = array, .x_bytes = 8, .y = 1};
    const struct flyt_copy_side side = {.place = FLYT_PLACE_HOST, .address = (uint64_t)(uintptr_t)bytes};
    struct flyt_copy_side box;
    unsigned before = fake.call_count[FLYT_COPY_IN];
    assert_int_equal(flyt_array_copy_run(&at, &side, 120, true, NULL, false), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_COPY_IN], before + 3); /* 32 bytes, two rows of 40, 8 bytes */
    struct flyt_array_place place = flyt_array_box_place(copied.dst.pitch_bytes, copied.dst.slice_bytes);
    assert_int_equal(copied.dst.address, (uint64_t)(uintptr_t)array);
    assert_int_equal(copied.dst.width_bytes, 8);
    assert_int_equal(place.x_bytes, 0);
    assert_int_equal(place.y, 4);
    assert_int_equal(flyt_array_copy_run(&at, &side, 6 * 40, true, NULL, false), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_array_copy_side(&at, 36, 1, 1, &box), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_array_copy_side(&at, 30, 1, 1, &box), CUDA_ERROR_INVALID_VALUE); /* half a texel */
    assert_int_equal(flyt_array_copy_side(&at, 32, 6, 1, &box), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_array_copy_side(&at, 32, 5, 2, &box), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_array_copy_side(&at, 32, 5, 1, &box), CUDA_SUCCESS);
    assert_int_equal(flyt_array_destroy(array), CUDA_SUCCESS);
    assert_int_equal(flyt_array_destroy(array), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(flyt_array_copy_side(&at, 32, 5, 1, &box), CUDA_ERROR_INVALID_HANDLE);
}

/* Levels go with their array, and the server knows nothing of them. */
static void levels_are_the_librarys(void **state)
{
    const CUDA_ARRAY3D_DESCRIPTOR desc = shape(20, 12, 0, 0);
    CUDA_ARRAY3D_DESCRIPTOR found;
    CUmipmappedArray mipmap;
    CUarray level, same;
    struct flyt_copy_side box;
    assert_int_equal(flyt_mipmap_create(&desc, 99, &mipmap), CUDA_SUCCESS);
    assert_int_equal(made.shape.levels, 5);
    unsigned before = fake.call_count[FLYT_ARRAY_CREATE];
    assert_int_equal(flyt_mipmap_level(mipmap, 3, &level), CUDA_SUCCESS);
    assert_int_equal(flyt_mipmap_level(mipmap, 3, &same), CUDA_SUCCESS);
    assert_ptr_equal(level, same);
    assert_int_equal(flyt_mipmap_level(mipmap, 5, &same), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_array_describe(level, &found), CUDA_SUCCESS);
    assert_int_equal(found.Width, 2);
    assert_int_equal(found.Height, 1);
    assert_int_equal(flyt_array_destroy(level), CUDA_ERROR_INVALID_VALUE);
    const struct flyt_array_at at = {.array = level};
    assert_int_equal(flyt_array_copy_side(&at, 8, 1, 1, &box), CUDA_SUCCESS);
    assert_int_equal(box.address, (uint64_t)(uintptr_t)mipmap);
    assert_int_equal(flyt_array_box_place(box.pitch_bytes, box.slice_bytes).level, 3);
    assert_int_equal(fake.call_count[FLYT_ARRAY_CREATE], before);
    assert_int_equal(flyt_array_describe((CUarray)mipmap, &found), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(flyt_mipmap_destroy(mipmap), CUDA_SUCCESS);
    assert_int_equal(flyt_array_describe(level, &found), CUDA_ERROR_INVALID_HANDLE);
}

/* So do planes, which are levels to the server; what a planar array holds is only theirs. */
static void planes_are_the_librarys(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR desc = shape(20, 12, 0, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE), found;
    struct flyt_array_element element;
    struct flyt_copy_side box;
    CUarray array, plane, same;
    desc.Format = CU_AD_FORMAT_P010;
    desc.NumChannels = 3;
    assert_int_equal(flyt_array_create(&desc, &array), CUDA_SUCCESS);
    unsigned before = fake.call_count[FLYT_ARRAY_CREATE];
    assert_int_equal(flyt_array_plane(array, 1, &plane), CUDA_SUCCESS);
    assert_int_equal(flyt_array_plane(array, 1, &same), CUDA_SUCCESS);
    assert_ptr_equal(plane, same);
    assert_int_equal(flyt_array_plane(array, 2, &same), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_array_plane(plane, 0, &same), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_array_describe(plane, &found), CUDA_SUCCESS);
    assert_int_equal(found.Width, 10);
    assert_int_equal(found.Height, 6);
    assert_int_equal(found.NumChannels, 2);
    assert_int_equal(found.Format, CU_AD_FORMAT_UNSIGNED_INT16);
    assert_int_equal(flyt_array_element(array, &element), CUDA_ERROR_INVALID_VALUE);
    struct flyt_array_at at = {.array = array};
    assert_int_equal(flyt_array_copy_side(&at, 20, 1, 1, &box), CUDA_ERROR_INVALID_VALUE);
    at.array = plane;
    assert_int_equal(flyt_array_copy_side(&at, 40, 6, 1, &box), CUDA_SUCCESS);
    assert_int_equal(box.address, (uint64_t)(uintptr_t)array);
    assert_int_equal(flyt_array_box_place(box.pitch_bytes, box.slice_bytes).level, 1);
    assert_int_equal(flyt_array_copy_at(&box, &at), CUDA_SUCCESS);
    assert_ptr_equal(at.array, plane);
    assert_int_equal(flyt_array_destroy(plane), CUDA_SUCCESS); /* it stays */
    assert_int_equal(flyt_array_describe(plane, &found), CUDA_SUCCESS);
    assert_int_equal(fake.call_count[FLYT_ARRAY_CREATE], before);
    assert_int_equal(flyt_array_destroy(array), CUDA_SUCCESS);
    assert_int_equal(flyt_array_describe(plane, &found), CUDA_ERROR_INVALID_HANDLE);
}

/* Copies count blocks; one that sticks out of the array is whole. Levels shrink in texels. */
static void texels_may_come_in_blocks(void **state)
{
    CUDA_ARRAY3D_DESCRIPTOR desc = shape(10, 6, 0, 0), found;
    struct flyt_array_element element;
    struct flyt_copy_side box;
    CUmipmappedArray mipmap;
    CUarray array, level;
    desc.Format = CU_AD_FORMAT_BC1_UNORM;
    desc.NumChannels = 4;
    assert_int_equal(flyt_array_create(&desc, &array), CUDA_SUCCESS);
    assert_int_equal(made.shape.width, 10);
    assert_int_equal(flyt_array_element(array, &element), CUDA_SUCCESS);
    assert_int_equal(element.bytes, 8);
    assert_int_equal(element.side, 4);
    struct flyt_array_at at = {.array = array};
    assert_int_equal(flyt_array_copy_side(&at, 24, 2, 1, &box), CUDA_SUCCESS);
    assert_int_equal(flyt_array_copy_side(&at, 32, 2, 1, &box), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_array_copy_side(&at, 24, 3, 1, &box), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_array_copy_side(&at, 4, 1, 1, &box), CUDA_ERROR_INVALID_VALUE); /* half a block */
    at = (struct flyt_array_at){.array = array, .x_bytes = 16, .y = 1};
    assert_int_equal(flyt_array_copy_side(&at, 8, 1, 1, &box), CUDA_SUCCESS);
    assert_int_equal(flyt_array_destroy(array), CUDA_SUCCESS);
    assert_int_equal(flyt_mipmap_create(&desc, 9, &mipmap), CUDA_SUCCESS);
    assert_int_equal(made.shape.levels, 4);
    assert_int_equal(flyt_mipmap_level(mipmap, 1, &level), CUDA_SUCCESS);
    assert_int_equal(flyt_array_describe(level, &found), CUDA_SUCCESS);
    assert_int_equal(found.Width, 5);
    at = (struct flyt_array_at){.array = level};
    assert_int_equal(flyt_array_copy_side(&at, 16, 1, 1, &box), CUDA_SUCCESS);
    assert_int_equal(flyt_array_copy_side(&at, 16, 2, 1, &box), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_mipmap_destroy(mipmap), CUDA_SUCCESS);
}

static CUtexObject show(CUarray array, uint64_t handle)
{
    const CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    const CUDA_TEXTURE_DESC desc = {0};
    CUtexObject texture;
    handles[handle_count] = handle;
    assert_int_equal(flyt_texture_create(&resource, &desc, NULL, &texture), CUDA_SUCCESS);
    assert_int_equal(texture, handle);
    return texture;
}

/* What was ended is not made again; what there is comes in the order of its handles, and asks for them. */
static void handles_are_asked_for_again(void **state)
{
    CUarray array = make(8, 8, 0);
    show(array, 5);
    show(array, 2);
    CUtexObject gone = show(array, 3);
    show(array, 9);
    CUDA_TEXTURE_DESC sampling;
    assert_int_equal(flyt_texture_destroy(gone, true), CUDA_SUCCESS); /* it is no surface, and stays */
    assert_int_equal(flyt_texture_get_sampling(gone, &sampling), CUDA_SUCCESS);
    assert_int_equal(flyt_texture_destroy(gone, false), CUDA_SUCCESS);
    assert_int_equal(flyt_texture_get_sampling(gone, &sampling), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_texture_destroy(gone, false), CUDA_SUCCESS);
    struct flyt_error err = {0};
    struct flyt_restore restore = {.fresh = (struct flyt_channel *)&err, .sequence = fake.sequence, .err = &err};
    unsigned before = fake.call_count[FLYT_ARRAY_CREATE];
    wanted_count = 0;
    assert_int_equal(flyt_array_restore(&restore), 0);
    assert_int_equal(flyt_texture_restore(&restore), 0);
    assert_int_equal(fake.call_count[FLYT_ARRAY_CREATE], before + 1);
    assert_int_equal(wanted_count, 3);
    assert_int_equal(wanted[0], 2);
    assert_int_equal(wanted[1], 5);
    assert_int_equal(wanted[2], 9);
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_array_is_refused_here), cmocka_unit_test(copies_name_boxes),
        cmocka_unit_test(levels_are_the_librarys),          cmocka_unit_test(texels_may_come_in_blocks),
        cmocka_unit_test(handles_are_asked_for_again),      cmocka_unit_test(planes_are_the_librarys),
    };
    return flyt_runtime_enter() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
