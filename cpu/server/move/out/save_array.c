#include "cpu/server/move/out/save_array.h"

#include <errno.h>

#include "cpu/image/writer.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/array.h"
#include "cpu/server/move/common/state.h"

enum { PART_BYTES = FLYT_CHECKPOINT_OBJECT_BYTES_MAX - FLYT_STATE_ARRAY_BYTES };

static uint64_t bytes_of(const struct flyt_array *array)
{
    uint64_t bytes = 0;
    for (unsigned level = 0; level < array->level_count; level++)
        bytes += flyt_array_level_bytes(array, level);
    return bytes;
}

static int add_bytes(void *user, uint64_t number, void *object)
{
    uint64_t *sum = user;
    *sum += bytes_of(object);
    return *sum > FLYT_STATE_ARRAYS_BYTES_MAX;
}

int flyt_save_array_check(struct flyt_session *session, struct flyt_error *err)
{
    uint64_t sum = 0;
    return flyt_objects_each(&session->objects, FLYT_OBJECTS_ARRAY, add_bytes, &sum)
               ? flyt_error_set(err, -ENOTSUP, "its CUDA arrays hold more than %llu GiB",
                                FLYT_STATE_ARRAYS_BYTES_MAX >> 30)
               : 0;
}

struct put {
    struct flyt_checkpoint_writer *writer;
    unsigned char *piece;
    uint64_t *number;
    struct flyt_error *err;
};

static int put_part(const struct put *self, const struct flyt_array *array, const struct flyt_state_array *part,
                    uint64_t bytes)
{
    flyt_checkpoint_object object = {.number = (*self->number)++, .kind = FLYT_CHECKPOINT_ARRAY};
    flyt_state_array_put(part, self->piece);
    CUresult result =
        flyt_array_read(array, part->level, part->offset_bytes, self->piece + FLYT_STATE_ARRAY_BYTES, bytes);
    if (result != CUDA_SUCCESS) {
        flyt_session_check(array->device->session, result);
        return flyt_error_set(self->err, -EIO, "the contents of a CUDA array cannot be copied, cuda_result=%d",
                              (int)result);
    }
    object.value.value_len = (u_int)(FLYT_STATE_ARRAY_BYTES + bytes);
    object.value.value_val = (char *)self->piece;
    return flyt_checkpoint_put_object(self->writer, &object, self->err);
}

static int put_array(void *user, uint64_t number, void *object)
{
    const struct put *self = user;
    const struct flyt_array *array = object;
    /* Parts of whole elements, whose size divides 16. */
    const uint64_t most = PART_BYTES / 16 * 16;
    int status = 0;
    for (unsigned level = 0; level < array->level_count; level++) {
        const uint64_t all = flyt_array_level_bytes(array, level);
        for (uint64_t done = 0; done < all && !status; done += most) {
            const struct flyt_state_array part = {array->object.id, done, level};
            status = put_part(self, array, &part, all - done < most ? all - done : most);
        }
    }
    return status;
}

int flyt_save_arrays(struct flyt_session *session, struct flyt_checkpoint_writer *writer, unsigned char *piece,
                     uint64_t *in_out_number, struct flyt_error *err)
{
    struct put self = {writer, piece, in_out_number, err};
    int status = flyt_save_array_check(session, err);
    return status ? status : flyt_objects_each(&session->objects, FLYT_OBJECTS_ARRAY, put_array, &self);
}
