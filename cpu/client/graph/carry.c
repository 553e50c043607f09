#include "cpu/client/graph/carry.h"

#include <stdlib.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/module.h"

/* ---- setting ---- */

static const char setter_name[] = "flyt_set_condition";
static const char setter_ptx[] = ".version 7.0\n"
                                 ".target sm_70\n"
                                 ".address_size 64\n"
                                 ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
                                 ".visible .entry flyt_set_condition(.param .u64 handle, .param .u64 word)\n"
                                 "{\n"
                                 "    .reg .b32 %r1;\n"
                                 "    .reg .b64 %rd<3>;\n"
                                 "    .param .b64 out0;\n"
                                 "    .param .b32 out1;\n"
                                 "    ld.param.u64 %rd1, [handle];\n"
                                 "    ld.param.u64 %rd2, [word];\n"
                                 "    ld.u32 %r1, [%rd2];\n"
                                 "    st.param.b64 [out0], %rd1;\n"
                                 "    st.param.b32 [out1], %r1;\n"
                                 "    call.uni cudaGraphSetConditional, (out0, out1);\n"
                                 "    ret;\n"
                                 "}\n";

static CUlibrary setter_library; /* under the mutex; NULL: not loaded yet */

static CUresult find_setter(int device, uint64_t *ret_kernel_id)
{
    CUkernel kernel;
    CUresult result = setter_library ? CUDA_SUCCESS : flyt_library_load(setter_ptx, NULL, &setter_library);
    if (!result)
        result = flyt_library_kernel(setter_library, setter_name, &kernel);
    if (result)
        return result;
    const struct flyt_kernel *record = flyt_kernel_find((uint64_t)(uintptr_t)kernel, NULL);
    return record ? flyt_library_kernel_on(record, device, ret_kernel_id) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult flyt_carry_load(const struct flyt_carry *self, struct flyt_carry_node *ret_node)
{
    struct flyt_node_data *data = &ret_node->node.data;
    *ret_node = (struct flyt_carry_node){.carry = self};
    ret_node->params.handle = self->reader->data.conditional.handle;
    ret_node->params.word = self->word.address;
    ret_node->taken.param_bytes = sizeof ret_node->params;
    ret_node->taken.buffer = (char *)&ret_node->params;
    data->kind = FLYT_NODE_KERNEL;
    data->device = self->reader->data.device;
    data->kernel.taken = &ret_node->taken;
    for (unsigned i = 0; i < 3; i++)
        data->kernel.launch.grid[i] = data->kernel.launch.block[i] = 1;
    return find_setter(data->device, &ret_node->taken.kernel_id);
}

/* ---- the word ---- */

static bool is_switch(const struct flyt_carry *self)
{
    return self->reader->data.conditional.type == CU_GRAPH_COND_TYPE_SWITCH;
}

/* One for each value that the reader tells from others; what is none of them the word says already. */
static unsigned body_count(const struct flyt_carry *self)
{
    return is_switch(self) ? self->reader->data.conditional.body_count : 1;
}

CUresult flyt_carry_begin(struct flyt_carry *self, uint64_t context_id)
{
    CUresult result = flyt_plan_memory_take(&self->word, context_id, self->reader->data.device, sizeof(uint32_t));
    self->is_carried = !result;
    return result;
}

static struct flyt_node_data fill_of(const struct flyt_carry *self, uint32_t value)
{
    return (struct flyt_node_data){.kind = FLYT_NODE_FILL,
                                   .device = self->reader->data.device,
                                   .fill.fill = {.address = self->word.address,
                                                 .element_bytes = sizeof value,
                                                 .value = value,
                                                 .width = 1,
                                                 .height = 1,
                                                 .depth = 1}};
}

void flyt_carry_clear(const struct flyt_carry *self, struct flyt_carry_node *ret_node)
{
    *ret_node = (struct flyt_carry_node){.carry = self};
    ret_node->node.data = fill_of(self, is_switch(self) ? body_count(self) : 0);
}

void flyt_carry_save(const struct flyt_carry *self, struct flyt_carry_node *ret_node)
{
    *ret_node = (struct flyt_carry_node){.carry = self};
    ret_node->node.graph = self->reader->graph;
    ret_node->node.data = self->reader->data;
    ret_node->node.data.conditional.type = is_switch(self) ? CU_GRAPH_COND_TYPE_SWITCH : CU_GRAPH_COND_TYPE_IF;
    ret_node->node.data.conditional.body_count = body_count(self);
    ret_node->node.data.conditional.bodies = NULL;
}

bool flyt_carry_is_save(const struct flyt_graph_node *node)
{
    return node->data.kind == FLYT_NODE_CONDITIONAL && !node->data.conditional.bodies;
}

CUresult flyt_carry_make_bodies(uint64_t context_id, struct flyt_segment_part *part)
{
    const struct flyt_carry *self = ((const struct flyt_carry_node *)part->node)->carry;
    CUresult result = CUDA_SUCCESS;
    part->bodies = calloc(body_count(self), sizeof *part->bodies);
    if (!part->bodies)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < body_count(self) && !result; i++) {
        const struct flyt_graph_node node = {.data = fill_of(self, is_switch(self) ? i : 1)};
        const struct flyt_segment_part fill = {.node = &node};
        result = flyt_segment_new(context_id, node.data.device, &fill, 1, &part->bodies[i]);
    }
    return result;
}
