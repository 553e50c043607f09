#include <stddef.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/checkpoint_op.h"

struct flyt_checkpoint_op *flyt_checkpoint_op_find(struct flyt_cluster *cluster, uint64_t id)
{
    struct flyt_checkpoint_op *op = cluster->checkpoint_ops;

    while (op && op->id != id)
        op = op->next;
    return op;
}

struct flyt_checkpoint_op *flyt_checkpoint_op_of(const struct flyt_cluster_allocation *allocation)
{
    struct flyt_checkpoint_op *op = allocation->cluster->checkpoint_ops;

    while (op && op->allocation_id != allocation->id)
        op = op->next;
    return op;
}

#define BEGUN    FLYT_SAVING_IS_BEGUN
#define ANSWERED FLYT_SAVING_IS_ANSWERED

/* The first row counts of which all of the one is seen, and none of the other. */
static const struct {
    unsigned all, none;
    enum flyt_checkpoint_op_step step;
} rows[] = {
    {ANSWERED | FLYT_SAVING_IS_OLD, BEGUN, FLYT_SAVING_REFUSE_OLD},
    {ANSWERED | FLYT_SAVING_IS_REFUSED, BEGUN, FLYT_SAVING_REFUSE},
    {ANSWERED, BEGUN, FLYT_SAVING_BEGIN},
    {0, BEGUN, FLYT_SAVING_WAIT},
    {FLYT_SAVING_IS_DONE, 0, FLYT_SAVING_END},
    {FLYT_SAVING_HAS_FAILED, 0, FLYT_SAVING_FAIL},
    {ANSWERED | FLYT_SAVING_IS_OLD, 0, FLYT_SAVING_FAIL_OLD},
    {ANSWERED | FLYT_SAVING_IS_FORGOTTEN, 0, FLYT_SAVING_FAIL_FORGOTTEN},
    {FLYT_SAVING_IS_GIVEN_UP, 0, FLYT_SAVING_FAIL_GIVEN_UP},
    {FLYT_SAVING_IS_DUE, FLYT_SAVING_IS_ASKING, FLYT_SAVING_ASK},
};

enum flyt_checkpoint_op_step flyt_checkpoint_op_next(unsigned seen)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((seen & rows[i].all) == rows[i].all && !(seen & rows[i].none))
            return rows[i].step;
    return FLYT_SAVING_WAIT;
}
