#include "cpu/client/graph/mirror.h"

#include <stdlib.h>
#include "cpu/client/bulk/copy_plan.h"
#include "cpu/client/bulk/range.h"

enum { ALIGNMENT = 512 }; /* of a mirror: addresses in it are aligned as in the host's memory */

/* Managed memory, which kernels beside have at its own address. */
static bool is_managed(uint64_t address)
{
    struct flyt_range range;
    return flyt_range_find(address, &range) && range.is_managed;
}

bool flyt_mirrors_may_have(const struct flyt_node_data *data)
{
    const struct flyt_copy *copy = &data->copy;
    if (data->kind == FLYT_NODE_FILL)
        return data->fill.is_host && !is_managed(data->fill.fill.address);
    return data->kind == FLYT_NODE_COPY && !is_managed(copy->dst.address) && !is_managed(copy->src.address) &&
           copy->dst.place != FLYT_PLACE_ARRAY && copy->src.place != FLYT_PLACE_ARRAY &&
           (copy->dst.place == FLYT_PLACE_HOST || copy->src.place == FLYT_PLACE_HOST);
}

/* The box that a fill of host memory writes. */
static struct flyt_copy fill_box(const struct flyt_fill *fill)
{
    const struct flyt_copy_side side = {.place = FLYT_PLACE_HOST,
                                        .address = fill->address,
                                        .pitch_bytes = fill->pitch_bytes,
                                        .slice_bytes = fill->slice_bytes};
    return (struct flyt_copy){.dst = side,
                              .src = {.place = FLYT_PLACE_DEVICE},
                              .width_bytes = fill->width * fill->element_bytes,
                              .height = fill->height,
                              .depth = fill->depth};
}

static struct flyt_copy box_of(const struct flyt_node_data *data)
{
    return data->kind == FLYT_NODE_FILL ? fill_box(&data->fill.fill) : data->copy;
}

/* ---- which memory ---- */

/* Takes every range that touches this one into it, and adds it. */
static CUresult add_range(struct flyt_mirrors *self, uint64_t base, uint64_t bytes)
{
    uint64_t end = base + bytes;
    struct flyt_mirror *list = realloc(self->list, (self->count + 1) * sizeof *list);
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->list = list;
    for (unsigned i = 0; i < self->count;) {
        const uint64_t other_end = list[i].base + list[i].bytes;
        if (list[i].base > end || other_end < base) {
            i++;
            continue;
        }
        base = list[i].base < base ? list[i].base : base;
        end = other_end > end ? other_end : end;
        list[i] = list[--self->count];
        i = 0; /* the larger one may touch others */
    }
    list[self->count++] = (struct flyt_mirror){.base = base, .bytes = end - base};
    return CUDA_SUCCESS;
}

static CUresult note_side(struct flyt_mirrors *self, const struct flyt_copy *copy, const struct flyt_copy_side *side)
{
    uint64_t span_bytes;
    if (side->place != FLYT_PLACE_HOST)
        return CUDA_SUCCESS;
    if (!flyt_copy_span(copy, side, &span_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t lead_bytes = side->address % ALIGNMENT;
    return add_range(self, side->address - lead_bytes, lead_bytes + span_bytes);
}

CUresult flyt_mirrors_note(struct flyt_mirrors *self, const struct flyt_node_data *data)
{
    const struct flyt_copy copy = box_of(data);
    CUresult result = note_side(self, &copy, &copy.dst);
    return result ? result : note_side(self, &copy, &copy.src);
}

CUresult flyt_mirrors_make(struct flyt_mirrors *self, uint64_t context_id, int device)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < self->count && !result; i++)
        result = flyt_plan_memory_take(&self->list[i].memory, context_id, device, self->list[i].bytes);
    return result;
}

/* ---- nodes ---- */

/* Where the mirror of a noted address is. One that was managed memory when the others were noted, and has been freed
 * since, stays as it is: the server has no such address. */
static CUdeviceptr mirrored(const struct flyt_mirrors *self, uint64_t address)
{
    for (unsigned i = 0; i < self->count; i++)
        if (address - self->list[i].base < self->list[i].bytes)
            return self->list[i].memory.address + (address - self->list[i].base);
    return address;
}

static struct flyt_copy_side mirrored_side(const struct flyt_mirrors *self, const struct flyt_copy_side *side)
{
    struct flyt_copy_side there = *side;
    if (side->place == FLYT_PLACE_HOST) {
        there.place = FLYT_PLACE_DEVICE;
        there.address = mirrored(self, side->address);
    }
    return there;
}

void flyt_mirrors_put(const struct flyt_mirrors *self, struct flyt_node_data *data)
{
    if (data->kind == FLYT_NODE_FILL) {
        data->fill.is_host = false;
        data->fill.fill.address = mirrored(self, data->fill.fill.address);
        return;
    }
    data->copy.dst = mirrored_side(self, &data->copy.dst);
    data->copy.src = mirrored_side(self, &data->copy.src);
}

static CUresult append(struct flyt_copy **list, unsigned *count, const struct flyt_copy *copy)
{
    struct flyt_copy *longer = realloc(*list, (*count + 1) * sizeof *longer);
    if (!longer)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *list = longer;
    longer[(*count)++] = *copy;
    return CUDA_SUCCESS;
}

/* What is written is brought in, too: a body may not be executed, or not be at all. */
static CUresult use_side(struct flyt_mirrors *self, const struct flyt_copy *copy, const struct flyt_copy_side *side)
{
    const struct flyt_copy_side there = mirrored_side(self, side);
    struct flyt_copy in = *copy, out = *copy;
    if (side->place != FLYT_PLACE_HOST)
        return CUDA_SUCCESS;
    in.dst = out.src = there;
    in.src = out.dst = *side;
    CUresult result = append(&self->ins, &self->in_count, &in);
    return result || side != &copy->dst ? result : append(&self->outs, &self->out_count, &out);
}

CUresult flyt_mirrors_use(struct flyt_mirrors *self, const struct flyt_node_data *data)
{
    const struct flyt_copy copy = box_of(data);
    CUresult result = use_side(self, &copy, &copy.dst);
    return result ? result : use_side(self, &copy, &copy.src);
}

void flyt_mirrors_forget(struct flyt_mirrors *self)
{
    free(self->ins);
    free(self->outs);
    self->ins = self->outs = NULL;
    self->in_count = self->out_count = 0;
}

void flyt_mirrors_fini(struct flyt_mirrors *self)
{
    flyt_mirrors_forget(self);
    for (unsigned i = 0; i < self->count; i++)
        flyt_plan_memory_free(&self->list[i].memory);
    free(self->list);
    *self = (struct flyt_mirrors){0};
}
