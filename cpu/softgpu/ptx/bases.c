/*
 * Which loads and stores of a function have a base in common. Unrolled loops read one place after the other from the
 * same register; how its 32 addresses lie need be found out once, by the first of them.
 */
#include "cpu/softgpu/ptx/lower.h"

#include <string.h>

/* A register that an access of this block of instructions has used as its base. */
struct kept {
    struct ptx_vinsn *first; /* NULL: none */
    const struct ptx_vinsn *last;
};

/* Whether the second access may use what is known of the first one's base. */
static bool is_alike(const struct ptx_vinsn *a, const struct ptx_vinsn *b)
{
    return a->op[4].index == b->op[4].index && a->access_bytes == b->access_bytes && a->aux == b->aux &&
           !((a->flags ^ b->flags) & PTX_INSN_NARROW);
}

static void note_access(struct kept kept[PTX_BASES], struct ptx_vinsn *vinsn)
{
    unsigned oldest = 0;

    for (unsigned b = 0; b < PTX_BASES; b++) {
        if (kept[b].first && is_alike(kept[b].first, vinsn)) {
            kept[b].first->flags |= PTX_INSN_KEEPS;
            kept[b].last = vinsn;
            vinsn->exec = vinsn->exec_kept;
            vinsn->base = (uint8_t)b;
            return;
        }
        if (kept[b].last < kept[oldest].last)
            oldest = b;
    }
    if (vinsn->is_conditional)
        return;
    kept[oldest] = (struct kept){vinsn, vinsn};
    vinsn->base = (uint8_t)oldest;
}

/* What a base register is written over with, nobody has looked at. */
static void forget_written(struct kept kept[PTX_BASES], const struct ptx_vinsn *vinsn)
{
    for (unsigned o = 0; o < PTX_OPS_MAX; o++)
        for (unsigned b = 0; b < PTX_BASES; b++)
            if (vinsn->definitions >> o & 1 && kept[b].first && kept[b].first->op[4].index == vinsn->op[o].index)
                kept[b] = (struct kept){0};
}

void flyt_ptx_bases_share(struct ptx_lower *lower)
{
    struct kept kept[PTX_BASES] = {0};

    for (size_t i = 0; i < lower->vinsn_count; i++) {
        struct ptx_vinsn *vinsn = &lower->vinsns[i];

        if (vinsn->exec_kept)
            note_access(kept, vinsn);
        forget_written(kept, vinsn);
        if (vinsn->ending != PTX_ENDS_NOT)
            memset(kept, 0, sizeof kept);
    }
}
