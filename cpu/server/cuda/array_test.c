/*
 * Arrays and textures: what a client may ask for, and what is refused before the driver sees it; that what is ended
 * goes when the GPU is done with it; and which handle a texture gets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"
#include "cpu/server/cuda/array.h"
#include "rpc/api/array_box.h"

enum { WIDTH = 40, HEIGHT = 8, TEXEL = 4, HANDLES = 64, COPIED_MAX = 1 << 20 };

static struct flyt_driver driver;
static const struct flyt_driver *fake;
static struct {
    atomic_uint arrays, cleared, copies;
    atomic_bool is_full;
    atomic_bool has_handle[HANDLES];
    CUDA_MEMCPY3D last;
} script;

static CUresult array_create(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    if (atomic_load(&script.is_full))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *array = (CUarray)(uintptr_t)(0x1000 + atomic_fetch_add(&script.arrays, 1));
    return CUDA_SUCCESS;
}

static CUresult array_destroy(CUarray array)
{
    atomic_fetch_sub(&script.arrays, 1);
    return CUDA_SUCCESS;
}

/* Behind its array's handle, so that it is told apart. */
static CUresult array_plane(CUarray *plane, CUarray array, unsigned number)
{
    *plane = (CUarray)((uintptr_t)array + 0x100000 * (number + 1));
    return CUDA_SUCCESS;
}

static CUresult copy_box(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    static const char zeros[COPIED_MAX];
    const size_t bytes = copy->WidthInBytes * copy->Height;
    bool is_clear = copy->dstMemoryType == CU_MEMORYTYPE_ARRAY && copy->srcMemoryType == CU_MEMORYTYPE_HOST &&
                    bytes <= COPIED_MAX && memcmp(copy->srcHost, zeros, bytes) == 0;
    atomic_fetch_add(is_clear ? &script.cleared : &script.copies, 1);
    script.last = *copy;
    return fake->cuMemsetD8Async(0x200000000000, 0, 1, stream);
}

/* The lowest that is free, as the software GPU has it. */
static CUresult handle_create(unsigned long long *handle, const CUDA_RESOURCE_DESC *resource)
{
    unsigned at = 1;
    while (at < HANDLES && atomic_load(&script.has_handle[at]))
        at++;
    if (at == HANDLES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_store(&script.has_handle[at], true);
    *handle = at;
    return CUDA_SUCCESS;
}

static CUresult texture_create(CUtexObject *handle, const CUDA_RESOURCE_DESC *resource,
                               const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    return handle_create(handle, resource);
}

static CUresult handle_destroy(unsigned long long handle)
{
    atomic_store(&script.has_handle[handle], false);
    return CUDA_SUCCESS;
}

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device)
{
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
        *value = 512;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
        *value = 32;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT:
    case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH:
        *value = 1 << 16;
        return CUDA_SUCCESS;
    default:
        return fake->cuDeviceGetAttribute(value, which, device);
    }
}

static struct fixture *begin(void)
{
    fake = flyt_fake_driver();
    driver = *fake;
    driver.cuArray3DCreate = array_create;
    driver.cuArrayDestroy = array_destroy;
    driver.cuArrayGetPlane = array_plane;
    driver.cuMemcpy3DAsync = copy_box;
    driver.cuTexObjectCreate = texture_create;
    driver.cuTexObjectDestroy = handle_destroy;
    driver.cuSurfObjectCreate = handle_create;
    driver.cuSurfObjectDestroy = handle_destroy;
    driver.cuDeviceGetAttribute = attribute;
    memset(&script, 0, sizeof script);
    struct fixture *self = make_over(&driver);
    self->session.is_scrubbing = true;
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    barrier(self);
    return self;
}

static void end(struct fixture *self)
{
    void *state = self;
    tear_down(&state);
}

static uint64_t array_id(unsigned number)
{
    return flyt_id(FLYT_ID_ARRAY, number);
}

static const flyt_array_shape plane = {.width = WIDTH, .height = HEIGHT, .format = CU_AD_FORMAT_FLOAT, .channels = 1};

static int make_array(struct fixture *self, unsigned number, const flyt_array_shape *shape)
{
    flyt_array_create_res res = {0};
    uint32_t xid = SEND(self, FLYT_ARRAY_CREATE, array_create, .array_id = array_id(number), .shape = *shape);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_array_create_res, &res);
    return res.result;
}

static void arrays_are_checked_and_cleared(void **state)
{
    struct fixture *self = begin();
    flyt_array_shape shape = plane;
    assert_int_equal(make_array(self, 1, &plane), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&script.cleared), 1);
    assert_int_equal(make_array(self, 1, &plane), CUDA_ERROR_INVALID_HANDLE); /* the id is taken */
    assert_int_equal(atomic_load(&script.arrays), 1);
    shape.width = 0;
    assert_int_equal(make_array(self, 2, &shape), CUDA_ERROR_INVALID_VALUE);
    shape.width = UINT64_MAX;
    assert_int_equal(make_array(self, 2, &shape), CUDA_ERROR_INVALID_VALUE);
    shape = plane;
    shape.depth = 1ull << 40;
    assert_int_equal(make_array(self, 2, &shape), CUDA_ERROR_INVALID_VALUE);
    shape = plane;
    shape.channels = 3;
    assert_int_equal(make_array(self, 2, &shape), CUDA_ERROR_INVALID_VALUE);
    shape = plane;
    shape.levels = 99;
    assert_int_equal(make_array(self, 2, &shape), CUDA_ERROR_INVALID_VALUE);
    shape = plane;
    shape.flags = CUDA_ARRAY3D_SPARSE;
    assert_int_equal(make_array(self, 2, &shape), CUDA_ERROR_NOT_SUPPORTED);
    shape = plane;
    shape.format = CU_AD_FORMAT_NV12; /* of three channels */
    assert_int_equal(make_array(self, 2, &shape), CUDA_ERROR_INVALID_VALUE);
    shape = plane;
    shape.flags = CUDA_ARRAY3D_COLOR_ATTACHMENT;
    assert_int_equal(make_array(self, 2, &shape), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(atomic_load(&script.arrays), 1);
    end(self);
}

static flyt_box box_of(unsigned number, struct flyt_array_place place, uint64_t width_bytes, uint64_t height)
{
    return (flyt_box){.address = array_id(number),
                      .width_bytes = width_bytes,
                      .height = height,
                      .depth = 1,
                      .pitch_bytes = flyt_array_box_pitch(&place),
                      .slice_bytes = flyt_array_box_slice(&place)};
}

static int copy_out(struct fixture *self, const flyt_box *box)
{
    flyt_copy_out_res res = {0};
    uint32_t xid = SEND(self, FLYT_COPY_OUT, copy_out, .stream_id = stream_id(0), .src = *box);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_copy_out_res, &res);
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
    return res.result;
}

static void boxes_must_lie_in_the_array(void **state)
{
    struct fixture *self = begin();
    assert_int_equal(make_array(self, 1, &plane), CUDA_SUCCESS);
    flyt_box good = box_of(1, (struct flyt_array_place){.x_bytes = 8, .y = 2}, 16, 3);
    assert_int_equal(copy_out(self, &good), CUDA_SUCCESS);
    assert_int_equal(script.last.srcXInBytes, 8);
    assert_int_equal(script.last.srcY, 2);
    assert_int_equal(script.last.Height, 3);
    const flyt_box bad[] = {
        box_of(1, (struct flyt_array_place){.x_bytes = WIDTH * TEXEL - 12}, 16, 1),
        box_of(1, (struct flyt_array_place){.x_bytes = UINT32_MAX}, 16, 1),
        box_of(1, (struct flyt_array_place){.x_bytes = 2}, 16, 1),
        box_of(1, (struct flyt_array_place){.y = HEIGHT}, 16, 1),
        box_of(1, (struct flyt_array_place){.z = 1}, 16, 1),
        box_of(1, (struct flyt_array_place){.level = 1}, 16, 1),
        box_of(1, (struct flyt_array_place){.y = 0}, 16, UINT64_MAX),
        box_of(1, (struct flyt_array_place){.y = 0}, 6, 1),
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(copy_out(self, &bad[i]), CUDA_ERROR_INVALID_VALUE);
    good = box_of(2, (struct flyt_array_place){0}, 16, 1);
    assert_int_equal(copy_out(self, &good), CUDA_ERROR_INVALID_HANDLE);
    end(self);
}

/* Of blocks: boxes, and what is cleared, count those. */
static void boxes_of_blocks_lie_in_the_array(void **state)
{
    static const flyt_array_shape blocks = {
        .width = 10, .height = 6, .format = CU_AD_FORMAT_BC7_UNORM, .channels = 4, .levels = 0};
    struct fixture *self = begin();
    assert_int_equal(make_array(self, 1, &blocks), CUDA_SUCCESS);
    assert_int_equal(script.last.WidthInBytes, 48);
    assert_int_equal(script.last.Height, 2);
    flyt_box box = box_of(1, (struct flyt_array_place){.x_bytes = 16, .y = 1}, 32, 1);
    assert_int_equal(copy_out(self, &box), CUDA_SUCCESS);
    const flyt_box bad[] = {
        box_of(1, (struct flyt_array_place){.x_bytes = 32}, 32, 1),
        box_of(1, (struct flyt_array_place){.y = 2}, 16, 1),
        box_of(1, (struct flyt_array_place){.x_bytes = 8}, 16, 1),
        box_of(1, (struct flyt_array_place){.y = 0}, 8, 1),
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(copy_out(self, &bad[i]), CUDA_ERROR_INVALID_VALUE);
    flyt_array_shape large = blocks;
    large.width = large.height = 1024; /* COPIED_MAX */
    assert_int_equal(make_array(self, 2, &large), CUDA_SUCCESS);
    assert_int_equal(flyt_session_find_array(&self->session, array_id(2))->charged_bytes, COPIED_MAX);
    end(self);
}

/* Planes are the levels of a planar array: each has extents and elements of its own, and is cleared and charged. */
static void planes_are_levels(void **state)
{
    static const flyt_array_shape planar = {.width = WIDTH,
                                            .height = HEIGHT,
                                            .format = CU_AD_FORMAT_P010,
                                            .channels = 3,
                                            .flags = CUDA_ARRAY3D_VIDEO_ENCODE_DECODE};
    struct fixture *self = begin();
    assert_int_equal(make_array(self, 1, &planar), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&script.cleared), 2);
    assert_int_equal(script.last.WidthInBytes, WIDTH / 2 * 4);
    assert_int_equal(script.last.Height, HEIGHT / 2);
    const struct flyt_array *array = flyt_session_find_array(&self->session, array_id(1));
    assert_int_equal(array->level_count, 2);
    assert_int_equal(flyt_array_level_bytes(array, 0), WIDTH * HEIGHT * 2);
    assert_int_equal(flyt_array_level_bytes(array, 1), WIDTH / 2 * HEIGHT / 2 * 4);
    flyt_box box = box_of(1, (struct flyt_array_place){.x_bytes = WIDTH * 2 - 4, .level = 1}, 4, HEIGHT / 2);
    assert_int_equal(copy_out(self, &box), CUDA_SUCCESS);
    assert_ptr_equal(script.last.srcArray, array->cu_levels[1]);
    const flyt_box bad[] = {
        box_of(1, (struct flyt_array_place){.level = 2}, 4, 1),
        box_of(1, (struct flyt_array_place){.y = HEIGHT / 2, .level = 1}, 4, 1),
        box_of(1, (struct flyt_array_place){.x_bytes = 2, .level = 1}, 4, 1),
        box_of(1, (struct flyt_array_place){.x_bytes = WIDTH * 2, .level = 0}, 2, 1),
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(copy_out(self, &bad[i]), CUDA_ERROR_INVALID_VALUE);
    flyt_array_shape mipmap = planar;
    mipmap.levels = 1;
    assert_int_equal(make_array(self, 2, &mipmap), CUDA_ERROR_INVALID_VALUE);
    end(self);
}

/* And no array is set as memory is. */
static void arrays_are_not_set(void **state)
{
    struct fixture *self = begin();
    assert_int_equal(make_array(self, 1, &plane), CUDA_SUCCESS);
    flyt_fake_log_clear();
    SEND(self, FLYT_MEMORY_SET, memory_set, .stream_id = stream_id(0), .element_bytes = 1,
         .dst = box_of(1, (struct flyt_array_place){0}, 16, 1));
    flyt_back_call_error error = {0};
    await_back(self, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
    assert_int_equal(error.result, CUDA_ERROR_INVALID_VALUE);
    assert_log("");
    end(self);
}

static unsigned count_arrays(unsigned want)
{
    for (unsigned i = 0; i < 20000 && atomic_load(&script.arrays) != want; i++)
        usleep(1000);
    return atomic_load(&script.arrays);
}

/* As long as work may use it, it stays; who needs its memory waits. */
static void an_array_goes_when_its_work_is_done(void **state)
{
    struct fixture *self = begin();
    uint64_t address = alloc(self, 4096, CUDA_SUCCESS);
    assert_int_equal(make_array(self, 1, &plane), CUDA_SUCCESS);
    barrier(self);
    flyt_fake_hold(1); /* the test's own stream, behind the legacy one */
    set(self, stream_id(0), address);
    SEND(self, FLYT_ARRAY_DESTROY, array_destroy, .array_id = array_id(1));
    atomic_store(&script.is_full, true);
    uint32_t xid = SEND(self, FLYT_ARRAY_CREATE, array_create, .array_id = array_id(2), .shape = plane);
    usleep(20000);
    assert_int_equal(atomic_load(&script.arrays), 1);
    flyt_fake_release(1);
    assert_int_equal(count_arrays(0), 0);
    flyt_array_create_res res = {0};
    await_reply(self, xid, (xdrproc_t)xdr_flyt_array_create_res, &res);
    assert_int_equal(res.result, CUDA_ERROR_OUT_OF_MEMORY); /* the driver still has none */
    atomic_store(&script.is_full, false);
    assert_int_equal(make_array(self, 2, &plane), CUDA_SUCCESS);
    end(self);
}

/* ---- textures ---- */

static int make_texture(struct fixture *self, unsigned number, flyt_texture_create_args args, uint64_t *ret_handle)
{
    flyt_texture_create_res res = {0};
    args.texture_id = flyt_id(FLYT_ID_TEXTURE, number);
    uint32_t xid = send_call(self, FLYT_TEXTURE_CREATE, (xdrproc_t)xdr_flyt_texture_create_args, &args);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_texture_create_res, &res);
    *ret_handle = res.handle;
    return res.result;
}

static flyt_texture_create_args of_line(uint64_t address, uint64_t bytes)
{
    return (flyt_texture_create_args){
        .memory = {.address = address, .bytes = bytes, .format = CU_AD_FORMAT_FLOAT, .channels = 1}};
}

static flyt_texture_create_args of_plane(uint64_t address, uint64_t width, uint64_t height, uint64_t pitch_bytes)
{
    return (flyt_texture_create_args){.memory = {.address = address,
                                                 .width = width,
                                                 .height = height,
                                                 .pitch_bytes = pitch_bytes,
                                                 .format = CU_AD_FORMAT_FLOAT,
                                                 .channels = 1}};
}

static void textures_show_what_is_the_sessions(void **state)
{
    struct fixture *self = begin();
    uint64_t address = alloc(self, 65536, CUDA_SUCCESS), handle;
    flyt_array_shape shape = plane;
    assert_int_equal(make_array(self, 1, &shape), CUDA_SUCCESS);
    assert_int_equal(make_texture(self, 1, of_line(address, 65536), &handle), CUDA_SUCCESS);
    assert_int_equal(make_texture(self, 2, of_plane(address, 100, 8, 512), &handle), CUDA_SUCCESS);
    assert_int_equal(make_texture(self, 3, (flyt_texture_create_args){.array_id = array_id(1)}, &handle), CUDA_SUCCESS);
    const flyt_texture_create_args bad[] = {
        of_line(address, 65536 + 512),
        of_line(address + 4, 64),
        of_line(0, 64),
        of_line(0x7f0000000000, 64),
        of_line(address, 2),
        of_line(address, UINT64_MAX),
        of_plane(address, 100, 129, 512),
        of_plane(address, 200, 8, 512),
        of_plane(address, 100, 8, 500),
        of_plane(address, 100, 1 << 20, 512),
        of_plane(address, 0, 8, 512),
        of_plane(address, 1 << 20, 1, 1 << 22),
        {.array_id = array_id(1), .level = 1},
        {.array_id = array_id(1), .level = FLYT_TEXTURE_LEVELS},
        {.is_surface = 1, .memory = of_line(address, 65536).memory},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(make_texture(self, 4, bad[i], &handle), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(make_texture(self, 4, (flyt_texture_create_args){.array_id = array_id(9)}, &handle),
                     CUDA_ERROR_INVALID_HANDLE);
    end(self);
}

/* Handles that were between are filled, and free again. */
static void a_texture_gets_the_handle_that_it_had(void **state)
{
    struct fixture *self = begin();
    uint64_t address = alloc(self, 65536, CUDA_SUCCESS), handle;
    flyt_texture_create_args args = of_line(address, 65536);
    args.wanted = 7;
    assert_int_equal(make_texture(self, 1, args, &handle), CUDA_SUCCESS);
    assert_int_equal(handle, 7);
    for (unsigned i = 1; i < 10; i++)
        assert_int_equal(atomic_load(&script.has_handle[i]), i == 7);
    args.wanted = 0;
    assert_int_equal(make_texture(self, 2, args, &handle), CUDA_SUCCESS);
    assert_int_equal(handle, 1);
    args.wanted = 1; /* another has it */
    assert_int_not_equal(make_texture(self, 3, args, &handle), CUDA_SUCCESS);
    for (unsigned i = 1; i < 10; i++)
        assert_int_equal(atomic_load(&script.has_handle[i]), i == 7 || i == 1);
    SEND(self, FLYT_TEXTURE_DESTROY, texture_destroy, .texture_id = flyt_id(FLYT_ID_TEXTURE, 1));
    barrier(self);
    for (unsigned i = 0; i < 20000 && atomic_load(&script.has_handle[7]); i++)
        usleep(1000);
    assert_false(atomic_load(&script.has_handle[7]));
    end(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_checked_and_cleared),
        cmocka_unit_test(boxes_must_lie_in_the_array),
        cmocka_unit_test(boxes_of_blocks_lie_in_the_array),
        cmocka_unit_test(planes_are_levels),
        cmocka_unit_test(arrays_are_not_set),
        cmocka_unit_test(an_array_goes_when_its_work_is_done),
        cmocka_unit_test(textures_show_what_is_the_sessions),
        cmocka_unit_test(a_texture_gets_the_handle_that_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
