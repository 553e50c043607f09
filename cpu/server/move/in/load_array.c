#include "cpu/server/move/in/load_array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/session.h"
#include "cpu/server/cuda/array.h"
#include "cpu/server/move/common/state.h"
#include "cpu/server/move/in/prepare.h"

int flyt_load_array_take(struct flyt_prepare *prepare, const flyt_checkpoint_object *object, struct flyt_error *err)
{
    struct flyt_state_array state;
    if (!flyt_state_array_get(object->value.value_val, object->value.value_len, &state))
        return flyt_error_set(err, -EBADMSG, "the session's state has a CUDA array that makes no sense");
    const uint64_t bytes = object->value.value_len - FLYT_STATE_ARRAY_BYTES;
    if (bytes > FLYT_STATE_ARRAYS_BYTES_MAX - prepare->part_bytes)
        return flyt_error_set(err, -EBADMSG, "the session's state has CUDA arrays of more than %llu GiB",
                              FLYT_STATE_ARRAYS_BYTES_MAX >> 30);
    struct flyt_loaded_part *part = malloc(sizeof *part + bytes);
    if (!part)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    part->next = NULL;
    part->array_id = state.array_id;
    part->offset_bytes = state.offset_bytes;
    part->bytes = bytes;
    part->level = state.level;
    memcpy(part->data, object->value.value_val + FLYT_STATE_ARRAY_BYTES, bytes);
    *(prepare->parts_last ? &prepare->parts_last->next : &prepare->parts) = part;
    prepare->parts_last = part;
    prepare->part_bytes += bytes;
    return 0;
}

static struct flyt_loaded_part *find_from(struct flyt_loaded_part *part, uint64_t array_id)
{
    while (part && part->array_id != array_id)
        part = part->next;
    return part;
}

/* Parts of an array lie one behind the other. The client makes arrays in the order in which they were saved, mostly. */
static struct flyt_loaded_part *find_first(struct flyt_prepare *prepare, uint64_t array_id)
{
    struct flyt_loaded_part *part = find_from(prepare->parts_next, array_id);
    return part ? part : find_from(prepare->parts, array_id);
}

/* One level, from its first part on; *in_out_part is then behind its last. */
static CUresult fill_level(const struct flyt_array *array, unsigned level, struct flyt_loaded_part **in_out_part)
{
    const uint64_t all = flyt_array_level_bytes(array, level);
    uint64_t done = 0;
    CUresult result = CUDA_SUCCESS;
    for (struct flyt_loaded_part *part; done < all && result == CUDA_SUCCESS; *in_out_part = part->next) {
        part = *in_out_part;
        if (!part || part->array_id != array->object.id || part->level != level || part->offset_bytes != done ||
            part->bytes > all - done || part->bytes % flyt_array_extents(array, level).element_bytes)
            return CUDA_ERROR_INVALID_VALUE;
        result = flyt_array_write(array, level, done, part->data, part->bytes);
        done += part->bytes;
    }
    return result;
}

CUresult flyt_load_array_fill(struct flyt_session *session, const struct flyt_array *array)
{
    struct flyt_loaded_part *part = find_first(session->prepare, array->object.id);
    CUresult result = CUDA_SUCCESS;
    for (unsigned level = 0; level < array->level_count && result == CUDA_SUCCESS; level++)
        result = fill_level(array, level, &part);
    session->prepare->parts_next = part;
    return result;
}

void flyt_load_array_fini(struct flyt_prepare *prepare)
{
    struct flyt_loaded_part *part;
    while ((part = prepare->parts)) {
        prepare->parts = part->next;
        free(part);
    }
    prepare->parts_last = prepare->parts_next = NULL;
    prepare->part_bytes = 0;
}
