/*
 * How an instruction computes all 32 lanes in loops that the compiler turns into vector code. Inactive lanes are
 * computed too where not all are active, and thrown away: an expression must be harmless for any operands.
 */
#ifndef FLYT_SOFTGPU_PTX_LANES_H
#define FLYT_SOFTGPU_PTX_LANES_H

#include "cpu/softgpu/ptx/warp.h"

#include <string.h>

#ifdef PTX_PLAIN_LOOPS /* sanitized: the loops hold checks, and the annotation would only cause a warning */
#define PTX_VECTOR
#elif defined __clang__
#define PTX_VECTOR _Pragma("clang loop vectorize(assume_safety)")
#else
#define PTX_VECTOR _Pragma("GCC ivdep")
#endif

#define PTX_FOR_LANES PTX_VECTOR for (unsigned i = 0; i < PTX_LANES; i++)

/* d[i] = expression for the active lanes; `i` is the lane. Operands may be the same register: each lane is on its own.
 */
#define PTX_WRITE(d, expression)                                                                                       \
    do {                                                                                                               \
        const uint32_t ptx_mask_ = w->mask;                                                                            \
        if (ptx_mask_ == PTX_ALL_LANES) {                                                                              \
            PTX_FOR_LANES d[i] = (expression);                                                                         \
        } else {                                                                                                       \
            PTX_FOR_LANES d[i] = ptx_mask_ >> i & 1 ? (expression) : d[i];                                             \
        }                                                                                                              \
    } while (0)

/* Instructions of one to three sources of types A, B, C and a destination of type D. */
#define PTX_OP1(name, D, A, expression)                                                                                \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        D *d = ptx_register(w, in->op[0]);                                                                             \
        const A *a = ptx_lanes(w, in->op[1]);                                                                          \
        PTX_WRITE(d, expression);                                                                                      \
        return in + 1;                                                                                                 \
    }
#define PTX_OP2(name, D, A, B, expression)                                                                             \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        D *d = ptx_register(w, in->op[0]);                                                                             \
        const A *a = ptx_lanes(w, in->op[1]);                                                                          \
        const B *b = ptx_lanes(w, in->op[2]);                                                                          \
        PTX_WRITE(d, expression);                                                                                      \
        return in + 1;                                                                                                 \
    }
#define PTX_OP3(name, D, A, B, C, expression)                                                                          \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        D *d = ptx_register(w, in->op[0]);                                                                             \
        const A *a = ptx_lanes(w, in->op[1]);                                                                          \
        const B *b = ptx_lanes(w, in->op[2]);                                                                          \
        const C *c = ptx_lanes(w, in->op[3]);                                                                          \
        PTX_WRITE(d, expression);                                                                                      \
        return in + 1;                                                                                                 \
    }

/* A comparison of two sources of type A into a predicate. */
#define PTX_COMPARE(name, A, expression)                                                                               \
    static const struct ptx_insn *name(struct ptx_warp *w, const struct ptx_insn *in)                                  \
    {                                                                                                                  \
        const A *a = ptx_lanes(w, in->op[1]);                                                                          \
        const A *b = ptx_lanes(w, in->op[2]);                                                                          \
        uint32_t truth = 0;                                                                                            \
        for (unsigned i = 0; i < PTX_LANES; i++)                                                                       \
            truth |= (uint32_t)(expression) << i;                                                                      \
        ptx_set_pred(w, in->op[0], truth);                                                                             \
        return in + 1;                                                                                                 \
    }

/* Lane i of a predicate mask. */
#define PTX_BIT(mask) ((mask) >> i & 1)

#endif
