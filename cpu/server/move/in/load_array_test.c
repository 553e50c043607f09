/* What an image says of arrays: what makes no sense is refused, and an array whose contents did not come whole is none.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/core/session.h"
#include "cpu/server/cuda/array.h"
#include "cpu/server/move/common/state.h"
#include "cpu/server/move/in/load_array.h"
#include "cpu/server/move/in/prepare.h"

enum { WIDTH = 16, HEIGHT = 4, TEXEL = 4, ALL = WIDTH * HEIGHT * TEXEL };

static struct flyt_prepare prepare;
static struct flyt_session session = {.prepare = &prepare};

static uint64_t id(unsigned number)
{
    return flyt_id(FLYT_ID_ARRAY, number);
}

static int take(uint64_t array_id, uint32_t level, uint64_t offset_bytes, uint64_t bytes)
{
    unsigned char value[FLYT_STATE_ARRAY_BYTES + 2 * ALL] = {0};
    const struct flyt_state_array state = {array_id, offset_bytes, level};
    flyt_state_array_put(&state, value);
    const flyt_checkpoint_object object = {
        .kind = FLYT_CHECKPOINT_ARRAY,
        .value = {.value_len = (u_int)(FLYT_STATE_ARRAY_BYTES + bytes), .value_val = (char *)value}};
    struct flyt_error err;
    return flyt_load_array_take(&prepare, &object, &err);
}

static struct flyt_array make(unsigned number)
{
    return (struct flyt_array){.object.id = id(number),
                               .shape = {.width = WIDTH, .height = HEIGHT, .format = CU_AD_FORMAT_FLOAT, .channels = 1},
                               .level_count = 1};
}

static void parts_are_looked_at(void **state)
{
    struct flyt_state_array part = {0}, same = {id(7), 1ull << 40, 3};
    unsigned char bytes[FLYT_STATE_ARRAY_BYTES + 1] = {0};
    flyt_state_array_put(&same, bytes);
    assert_true(flyt_state_array_get(bytes, sizeof bytes, &part));
    assert_int_equal(part.array_id, same.array_id);
    assert_int_equal(part.offset_bytes, same.offset_bytes);
    assert_int_equal(part.level, same.level);
    assert_false(flyt_state_array_get(bytes, FLYT_STATE_ARRAY_BYTES, &part)); /* no contents */
    bytes[FLYT_STATE_ARRAY_BYTES - 1] = 1;
    assert_false(flyt_state_array_get(bytes, sizeof bytes, &part));
    assert_int_equal(take(flyt_id(FLYT_ID_EVENT, 1), 0, 0, 8), -EBADMSG);
    assert_int_equal(take(id(1), 0, 0, 0), -EBADMSG);
    prepare.part_bytes = FLYT_STATE_ARRAYS_BYTES_MAX - 7;
    assert_int_equal(take(id(1), 0, 0, 8), -EBADMSG);
    prepare.part_bytes = 0;
    assert_null(prepare.parts);
}

/* Nothing of it was written: the driver would be asked. */
static void contents_must_be_whole(void **state)
{
    const struct flyt_array array = make(1);
    assert_int_equal(flyt_array_level_bytes(&array, 0), ALL);
    assert_int_equal(flyt_load_array_fill(&session, &array), CUDA_ERROR_INVALID_VALUE); /* none came */
    assert_int_equal(take(id(2), 0, 0, ALL), 0);
    assert_int_equal(flyt_load_array_fill(&session, &array), CUDA_ERROR_INVALID_VALUE); /* of another */
    assert_int_equal(take(id(1), 0, 8, ALL - 8), 0);
    assert_int_equal(flyt_load_array_fill(&session, &array), CUDA_ERROR_INVALID_VALUE); /* not from the beginning */
    flyt_load_array_fini(&prepare);
    assert_int_equal(take(id(1), 0, 0, ALL + 4), 0);
    assert_int_equal(flyt_load_array_fill(&session, &array), CUDA_ERROR_INVALID_VALUE); /* more than there is */
    flyt_load_array_fini(&prepare);
    assert_int_equal(take(id(1), 1, 0, ALL), 0);
    assert_int_equal(flyt_load_array_fill(&session, &array), CUDA_ERROR_INVALID_VALUE); /* of a level that it lacks */
    flyt_load_array_fini(&prepare);
    assert_int_equal(take(id(1), 0, 0, 6), 0);
    assert_int_equal(flyt_load_array_fill(&session, &array), CUDA_ERROR_INVALID_VALUE); /* half a texel */
    flyt_load_array_fini(&prepare);
    assert_int_equal(prepare.part_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_looked_at), cmocka_unit_test(contents_must_be_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
