/* Special registers, and addresses that are only known at run time. */
#include "cpu/softgpu/ptx/exec.h"

#include <string.h>
#include <time.h>

/* X(name, expression): `i` is the lane. */
#define SPECIALS                                                                                                       \
    X("%tid.x", w->tid[0][i])                                                                                          \
    X("%tid.y", w->tid[1][i])                                                                                          \
    X("%tid.z", w->tid[2][i])                                                                                          \
    X("%ntid.x", launch->block[0])                                                                                     \
    X("%ntid.y", launch->block[1])                                                                                     \
    X("%ntid.z", launch->block[2])                                                                                     \
    X("%ctaid.x", w->block->id[0])                                                                                     \
    X("%ctaid.y", w->block->id[1])                                                                                     \
    X("%ctaid.z", w->block->id[2])                                                                                     \
    X("%nctaid.x", launch->grid[0])                                                                                    \
    X("%nctaid.y", launch->grid[1])                                                                                    \
    X("%nctaid.z", launch->grid[2])                                                                                    \
    X("%laneid", i)                                                                                                    \
    X("%warpid", w->index)                                                                                             \
    X("%nwarpid", 64)                                                                                                  \
    X("%smid", w->block->sm)                                                                                           \
    X("%nsmid", launch->sm_count)                                                                                      \
    X("%gridid", w->run->grid_id)                                                                                      \
    X("%lanemask_eq", 1u << i)                                                                                         \
    X("%lanemask_lt", (1u << i) - 1)                                                                                   \
    X("%lanemask_le", (2u << i) - 1)                                                                                   \
    X("%lanemask_ge", 0u - (1u << i))                                                                                  \
    X("%lanemask_gt", 0u - (2u << i))                                                                                  \
    X("%clock", clock_cycles())                                                                                        \
    X("%clock_hi", clock_cycles() >> 32)                                                                               \
    X("%clock64", clock_cycles())                                                                                      \
    X("%globaltimer", nanoseconds(CLOCK_REALTIME))                                                                     \
    X("%globaltimer_lo", nanoseconds(CLOCK_REALTIME))                                                                  \
    X("%globaltimer_hi", nanoseconds(CLOCK_REALTIME) >> 32)                                                            \
    X("%envreg1", launch->grid_workspace >> 32)                                                                        \
    X("%envreg2", launch->grid_workspace)                                                                              \
    X("%dynamic_smem_size", launch->dynamic_shared_bytes)                                                              \
    X("%total_smem_size", launch->dynamic_shared_bytes + w->run->kernel->static_shared_bytes)                          \
    X("%aggr_smem_size", w->run->shared_bytes)                                                                         \
    X("%reserved_smem_offset_begin", w->run->reserved_offset)                                                          \
    X("%reserved_smem_offset_end", w->run->reserved_offset + PTX_RESERVED_SHARED_BYTES)                                \
    X("%reserved_smem_offset_cap", PTX_RESERVED_SHARED_BYTES)                                                          \
    X("%reserved_smem_offset_0", w->run->reserved_offset)                                                              \
    X("%reserved_smem_offset_1", w->run->reserved_offset + PTX_RESERVED_SHARED_BYTES / 2)                              \
    X("%is_explicit_cluster", 0)                                                                                       \
    X("%clusterid.x", w->block->id[0] / extent(launch->cluster[0]))                                                    \
    X("%clusterid.y", w->block->id[1] / extent(launch->cluster[1]))                                                    \
    X("%clusterid.z", w->block->id[2] / extent(launch->cluster[2]))                                                    \
    X("%nclusterid.x", launch->grid[0] / extent(launch->cluster[0]))                                                   \
    X("%nclusterid.y", launch->grid[1] / extent(launch->cluster[1]))                                                   \
    X("%nclusterid.z", launch->grid[2] / extent(launch->cluster[2]))                                                   \
    X("%cluster_ctaid.x", w->block->id[0] % extent(launch->cluster[0]))                                                \
    X("%cluster_ctaid.y", w->block->id[1] % extent(launch->cluster[1]))                                                \
    X("%cluster_ctaid.z", w->block->id[2] % extent(launch->cluster[2]))                                                \
    X("%cluster_nctaid.x", extent(launch->cluster[0]))                                                                 \
    X("%cluster_nctaid.y", extent(launch->cluster[1]))                                                                 \
    X("%cluster_nctaid.z", extent(launch->cluster[2]))                                                                 \
    X("%cluster_ctarank", 0)                                                                                           \
    X("%cluster_nctarank", 1)                                                                                          \
    X("WARP_SZ", PTX_LANES)

static const char *const names[] = {
#define X(name, expression) name,
    SPECIALS
#undef X
};

int flyt_ptx_special_find(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name))
            return (int)i;
    return -1;
}

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A GPU's cycle counter: one cycle per nanosecond. */
static uint64_t clock_cycles(void)
{
    return nanoseconds(CLOCK_MONOTONIC);
}

static uint32_t extent(uint32_t cluster)
{
    return cluster ? cluster : 1;
}

/* Special register number `special` of every lane. */
static void read_special(const struct ptx_warp *w, unsigned special, uint64_t values[PTX_LANES])
{
    const struct flyt_ptx_launch *launch = w->run->launch;
    unsigned number = 0;

#define X(name, expression)                                                                                            \
    if (special == number++) {                                                                                         \
        for (unsigned i = 0; i < PTX_LANES; i++)                                                                       \
            values[i] = (expression);                                                                                  \
        return;                                                                                                        \
    }
    SPECIALS
#undef X
}

/* op[0] the result, aux the register. */
const struct ptx_insn *flyt_ptx_exec_special32(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint32_t *d = ptx_lanes(w, in->op[0]);
    uint64_t values[PTX_LANES];

    read_special(w, in->aux, values);
    PTX_EACH_LANE(lane, w->mask)
    d[lane] = (uint32_t)values[lane];
    return in + 1;
}

const struct ptx_insn *flyt_ptx_exec_special64(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint64_t *d = ptx_lanes(w, in->op[0]);
    uint64_t values[PTX_LANES];

    read_special(w, in->aux, values);
    PTX_EACH_LANE(lane, w->mask)
    d[lane] = values[lane];
    return in + 1;
}

/* op[0] = base + imm in every lane that runs. */
static const struct ptx_insn *write_address32(struct ptx_warp *w, const struct ptx_insn *in, uint64_t base)
{
    uint32_t *d = ptx_lanes(w, in->op[0]);

    PTX_EACH_LANE(lane, w->mask)
    d[lane] = (uint32_t)(base + (uint64_t)in->imm);
    return in + 1;
}

static const struct ptx_insn *write_address64(struct ptx_warp *w, const struct ptx_insn *in, uint64_t base)
{
    uint64_t *d = ptx_lanes(w, in->op[0]);

    PTX_EACH_LANE(lane, w->mask)
    d[lane] = base + (uint64_t)in->imm;
    return in + 1;
}

/* The address of shared variable number aux in the kernel that runs. */
const struct ptx_insn *flyt_ptx_exec_shared_address32(struct ptx_warp *w, const struct ptx_insn *in)
{
    return write_address32(w, in, w->run->kernel->shared_offset[in->aux]);
}

const struct ptx_insn *flyt_ptx_exec_shared_address64(struct ptx_warp *w, const struct ptx_insn *in)
{
    return write_address64(w, in, w->run->kernel->shared_offset[in->aux]);
}

/* The address, in local space, of what lies imm bytes into the frame. */
const struct ptx_insn *flyt_ptx_exec_local_address32(struct ptx_warp *w, const struct ptx_insn *in)
{
    return write_address32(w, in, w->frame->local_base);
}

const struct ptx_insn *flyt_ptx_exec_local_address64(struct ptx_warp *w, const struct ptx_insn *in)
{
    return write_address64(w, in, w->frame->local_base);
}
