#include "cpu/client/graph/plan_memory.h"

#include "cpu/client/bulk/range.h"
#include "cpu/client/cuda/memory.h"

CUresult flyt_plan_memory_take(struct flyt_plan_memory *self, uint64_t context_id, int device, uint64_t bytes)
{
    struct flyt_range range;
    CUresult result = flyt_memory_take(context_id, device, bytes, &self->address);
    if (!result && flyt_range_find(self->address, &range))
        self->buffer_id = range.buffer_id;
    return result;
}

void flyt_plan_memory_free(struct flyt_plan_memory *self)
{
    struct flyt_range range;
    if (self->address && flyt_range_find(self->address, &range) && range.buffer_id == self->buffer_id)
        flyt_range_free(self->address);
    *self = (struct flyt_plan_memory){0};
}
