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
