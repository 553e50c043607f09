#include <stddef.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/saving.h"

struct flyt_saving *flyt_saving_find(struct flyt_cluster *cluster, uint64_t id)
{
    struct flyt_saving *saving = cluster->savings;

    while (saving && saving->id != id)
        saving = saving->next;
    return saving;
}

struct flyt_saving *flyt_saving_of(const struct flyt_held *held)
{
    struct flyt_saving *saving = held->cluster->savings;

    while (saving && saving->allocation_id != held->id)
        saving = saving->next;
    return saving;
}

#define BEGUN    FLYT_SAVING_IS_BEGUN
#define ANSWERED FLYT_SAVING_IS_ANSWERED

/* The first row counts of which all of the one is seen, and none of the other. */
static const struct {
    unsigned all, none;
    enum flyt_saving_step step;
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

enum flyt_saving_step flyt_saving_next(unsigned seen)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((seen & rows[i].all) == rows[i].all && !(seen & rows[i].none))
            return rows[i].step;
    return FLYT_SAVING_WAIT;
}
