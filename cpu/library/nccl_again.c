/* NCCL's communicators at another server: each birth that something of the program's comes of is made by one list of
 * orders, parents first, the first ones with a unique id of that server's. Ranks that the program has ended, and which
 * others cannot do without, are made too, under ids that pass, and are ended again. */
#include <stdlib.h>
#include <string.h>

#include "cpu/client/core/restore_call.h"
#include "cpu/client/library/again.h"
#include "cpu/library/nccl_kin.h"

static const char what[] = "an NCCL communicator";

/* No id of an object's is as high. */
#define PASSING_ID (1ull << 63)

static bool is_needed_locked(const struct nccl_birth *birth)
{
    bool is_needed = false;
    for (const struct nccl_member *member = birth->members; member && !is_needed; member = member->next)
        is_needed = flyt_nccl_is_there(member);
    for (const struct nccl_birth *child = birth->next; child && !is_needed; child = child->next)
        is_needed = child->parent == birth && is_needed_locked(child);
    return is_needed;
}

static bool can_be_made_locked(const struct nccl_birth *birth)
{
    bool can_be = flyt_nccl_is_complete(birth);
    for (const struct nccl_member *member = birth->members; member && can_be; member = member->next)
        can_be = !(flyt_nccl_is_there(member) && member->is_finalized);
    return can_be;
}

/* ---- operations that come again by themselves ---- */

static void count_part(void *user, const void *arguments, size_t bytes)
{
    const struct flyt_args_ncclGroupEnd *sent = arguments;
    const size_t at = flyt_lib_align(sizeof *sent);
    (void)user;
    if (bytes < at || sent->part_bytes < sizeof(struct flyt_nccl_part) || sent->part_bytes > bytes - at)
        return;
    const struct flyt_nccl_op *ops = (const void *)((const char *)arguments + at + sizeof(struct flyt_nccl_part));
    size_t count = (sent->part_bytes - sizeof(struct flyt_nccl_part)) / sizeof *ops;
    for (struct nccl_birth *birth = flyt_nccl_kin.first; birth; birth = birth->next)
        for (struct nccl_member *member = birth->members; member; member = member->next)
            for (size_t i = 0; i < count; i++)
                member->waiting_count += member->is_live && member->order.comm == ops[i].comm;
}

/* Which ids they are made under, and how many of their operations come again. */
static int prepare_locked(struct flyt_restore *restore)
{
    uint64_t passing_count = 0;
    for (struct nccl_birth *birth = flyt_nccl_kin.first; birth; birth = birth->next)
        for (struct nccl_member *member = birth->members; member; member = member->next) {
            member->again_id = flyt_nccl_is_there(member) ? member->order.comm : PASSING_ID | ++passing_count;
            member->waiting_count = 0;
        }
    return flyt_lib_again_kept(restore, &flyt_lib_row_ncclGroupEnd, count_part, NULL);
}

/* ---- making ---- */

/* What the server is to take as done: what it gets again counts from there. */
static uint64_t done_count(const struct nccl_member *member)
{
    if (!flyt_nccl_is_there(member))
        return 0;
    const struct flyt_state_comm *state = flyt_lib_state(flyt_nccl_comm((void *)(uintptr_t)member->order.comm));
    return __atomic_load_n(&state->op_count, __ATOMIC_RELAXED) - member->waiting_count;
}

static void put_order(const struct nccl_member *member, const unsigned char *id, unsigned char *place)
{
    struct flyt_nccl_order order = member->order;
    order.comm = member->again_id;
    order.parent = member->parent ? member->parent->again_id : 0;
    order.groups = 0;
    order.done = done_count(member);
    order.id_count = member->parent ? 0 : 1;
    memcpy(place, &order, sizeof order);
    if (!member->parent)
        memcpy(place + sizeof order, id, FLYT_NCCL_UNIQUE_ID_BYTES);
}

static int send_locked(struct flyt_restore *restore, const void *list, size_t bytes, int32_t *made, unsigned count)
{
    const struct flyt_args_ncclCommInitRank sent = {.orders_bytes = (uint32_t)bytes,
                                                    .is_made_bytes = (uint32_t)(count * sizeof *made)};
    return flyt_lib_again_call(restore, &flyt_lib_row_ncclCommInitRank, &FLYT_LIB_AGAIN_OF(sent),
                               &(struct flyt_lib_again_bytes){list, bytes}, made, count * sizeof *made, what);
}

static int make_birth_locked(struct flyt_restore *restore, const struct nccl_birth *birth, const unsigned char *id)
{
    const size_t each = sizeof(struct flyt_nccl_order) + (birth->parent ? 0 : FLYT_NCCL_UNIQUE_ID_BYTES);
    int32_t made[FLYT_NCCL_HOME_RANKS_MAX] = {0};
    unsigned char *list = calloc(birth->member_count, each);
    if (!list)
        return flyt_lib_again_lack(restore, what);
    unsigned i = 0;
    for (const struct nccl_member *member = birth->members; member; member = member->next)
        put_order(member, id, list + i++ * each);
    int status = send_locked(restore, list, i * each, made, i);
    i = 0;
    for (const struct nccl_member *member = birth->members; member && !status; member = member->next)
        if (made[i++] != member->has_comm)
            status = flyt_lib_again_refuse(restore, what);
    free(list);
    return status;
}

static int make_again_locked(struct flyt_restore *restore, const struct nccl_birth *birth)
{
    const struct flyt_args_ncclGetUniqueId sent = {.uniqueId_bytes = FLYT_NCCL_UNIQUE_ID_BYTES};
    unsigned char id[FLYT_NCCL_UNIQUE_ID_BYTES];
    int status = can_be_made_locked(birth) ? 0 : flyt_lib_again_refuse(restore, what);
    if (!status && !birth->parent)
        status = flyt_lib_again_call(restore, &flyt_lib_row_ncclGetUniqueId, &FLYT_LIB_AGAIN_OF(sent), NULL, id,
                                     sizeof id, what);
    return status ? status : make_birth_locked(restore, birth, id);
}

/* ---- what they have, and those that pass ---- */

static int give_again_locked(struct flyt_restore *restore, const struct nccl_member *member)
{
    int status = 0;
    for (struct nccl_kept *kept = member->kept; kept && !status; kept = kept->next) {
        bool is_buffer = kept->row == &flyt_lib_row_ncclCommRegister;
        uint64_t number = 0;
        status = flyt_lib_again_call(restore, kept->row, &(struct flyt_lib_again_bytes){kept->arguments, kept->bytes},
                                     NULL, &number, is_buffer ? sizeof number : 0,
                                     is_buffer ? "a registered buffer of NCCL's" : "an operator of NCCL's");
        kept->is_lost = is_buffer && !number;
    }
    return status;
}

static int end_passing_locked(struct flyt_restore *restore, const struct nccl_member *member)
{
    const struct flyt_nccl_order order = {
        .control = FLYT_NCCL_DESTROY, .device = member->order.device, .comm = member->again_id};
    int32_t made;
    return send_locked(restore, &order, sizeof order, &made, 1);
}

static int restore_locked(struct flyt_restore *restore)
{
    int status = flyt_nccl_kin.is_incomplete ? flyt_lib_again_refuse(restore, what) : prepare_locked(restore);
    for (struct nccl_birth *birth = flyt_nccl_kin.first; birth && !status; birth = birth->next)
        if (is_needed_locked(birth))
            status = make_again_locked(restore, birth);
    for (struct nccl_birth *birth = flyt_nccl_kin.first; birth && !status; birth = birth->next)
        for (struct nccl_member *member = birth->members; member && !status; member = member->next)
            if (flyt_nccl_is_there(member))
                status = give_again_locked(restore, member);
            else if (is_needed_locked(birth) && member->has_comm)
                status = end_passing_locked(restore, member);
    return status;
}

int flyt_nccl_again(struct flyt_restore *restore)
{
    pthread_mutex_lock(&flyt_nccl_kin.mutex);
    int status = restore_locked(restore);
    pthread_mutex_unlock(&flyt_nccl_kin.mutex);
    return status;
}
