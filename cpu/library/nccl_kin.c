#include "cpu/library/nccl_kin.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/client/library/again.h"
#include "cpu/client/library/object.h"

struct nccl_kin flyt_nccl_kin = {.mutex = PTHREAD_MUTEX_INITIALIZER};

enum { NO_COLOR = -1 };

/* ---- finding ---- */

/* The member with the handle that the program has; NULL: it is not known. */
static struct nccl_member *find_locked(uint64_t comm)
{
    for (struct nccl_birth *birth = flyt_nccl_kin.first; birth && comm; birth = birth->next)
        for (struct nccl_member *member = birth->members; member; member = member->next)
            if (member->is_live && member->order.comm == comm)
                return member;
    return NULL;
}

bool flyt_nccl_is_there(const struct nccl_member *member)
{
    const struct flyt_lib_object *object =
        member->is_live ? flyt_nccl_comm((void *)(uintptr_t)member->order.comm) : NULL;
    return object && object->number == member->number;
}

bool flyt_nccl_is_complete(const struct nccl_birth *birth)
{
    while (birth->parent && birth->member_count == birth->parent->member_count)
        birth = birth->parent;
    return !birth->parent && flyt_nccl_family_is_whole(&birth->family);
}

/* The rank of the member's communicator; NULL: not known. */
static struct nccl_member *peer_locked(const struct nccl_member *member, int rank)
{
    struct nccl_member *peer = member->birth->members;
    while (peer && (!peer->has_comm || peer->order.color != member->order.color || peer->rank != rank))
        peer = peer->next;
    return peer;
}

/* ---- how far ranks are ---- */

static uint64_t *message_count(struct nccl_member *member, bool is_sent, int peer)
{
    if (peer < 0 || peer >= FLYT_NCCL_HOME_RANKS_MAX)
        return NULL;
    if (!member->messages && !(member->messages = calloc(1, sizeof *member->messages))) {
        member->birth->root->family.is_spoilt = true;
        return NULL;
    }
    return is_sent ? &member->messages->sent[peer] : &member->messages->received[peer];
}

static uint64_t messages_known(const struct nccl_member *member, bool is_sent, int peer)
{
    if (!member->messages)
        return 0;
    return is_sent ? member->messages->sent[peer] : member->messages->received[peer];
}

/* Whether the two have made as many operations, as far as they meet in them. */
static bool is_level_with(const struct nccl_member *one, const struct nccl_member *other)
{
    return one->collective_count == other->collective_count &&
           messages_known(one, true, other->rank) == messages_known(other, false, one->rank);
}

static bool is_level_locked(const struct nccl_birth *birth)
{
    bool is_level = true;
    for (const struct nccl_member *one = birth->members; one && is_level; one = one->next)
        for (const struct nccl_member *other = birth->members; other && is_level; other = other->next)
            if (one->has_comm && other->has_comm && one->order.color == other->order.color)
                is_level = is_level_with(one, other);
    return is_level;
}

/* As long as its ranks are not level the stop waits. Another hold is there meanwhile, the calling thread's. */
static void weigh_locked(struct nccl_birth *birth)
{
    bool is_open = flyt_nccl_is_complete(birth) && !is_level_locked(birth);
    if (is_open == birth->is_held)
        return;
    if (!is_open)
        flyt_lib_hold_end();
    birth->is_held = is_open && flyt_lib_hold_begin(true) == FLYT_LIB_HELD;
}

static void spoil_locked(struct nccl_birth *root)
{
    root->family.is_spoilt = true;
    for (struct nccl_birth *birth = flyt_nccl_kin.first; birth; birth = birth->next)
        if (birth->root == root)
            weigh_locked(birth);
}

/* ---- operations ---- */

static bool is_message(uint32_t function)
{
    return function == FLYT_NCCL_SEND || function == FLYT_NCCL_RECV;
}

/* Whether other ranks wait for this one's operation. */
static bool joins_locked(const struct nccl_member *member, uint32_t function, int peer)
{
    bool is_sent = function == FLYT_NCCL_SEND, is_behind = false;
    if (!member->birth->is_held)
        return false;
    for (const struct nccl_member *one = member->birth->members; one && !is_message(function); one = one->next)
        is_behind |= one->has_comm && one->order.color == member->order.color &&
                     one->collective_count > member->collective_count;
    const struct nccl_member *other = is_message(function) ? peer_locked(member, peer) : NULL;
    return is_behind ||
           (other && messages_known(other, !is_sent, member->rank) > messages_known(member, is_sent, peer));
}

/* Counts an operation, or takes it back. */
static void count_locked(struct nccl_member *member, uint32_t function, int peer, int step)
{
    uint64_t *messages = is_message(function) ? message_count(member, function == FLYT_NCCL_SEND, peer) : NULL;
    if (messages)
        *messages += (uint64_t)(int64_t)step;
    else if (!is_message(function))
        member->collective_count += (uint64_t)(int64_t)step;
    weigh_locked(member->birth);
}

/* With the mutex, or without it for a while: until the calling thread holds the stop, or the connection is lost. */
static bool hold_locked(bool (*joins)(const void *user), const void *user)
{
    enum flyt_lib_hold hold;
    while ((hold = flyt_lib_hold_begin(joins(user))) == FLYT_LIB_STOPPED) {
        pthread_mutex_unlock(&flyt_nccl_kin.mutex);
        flyt_lib_hold_wait();
        pthread_mutex_lock(&flyt_nccl_kin.mutex);
    }
    return hold == FLYT_LIB_HELD;
}

static _Thread_local bool is_holding;

static void let_go_of_hold(void)
{
    if (is_holding && flyt_lib_is_open())
        flyt_lib_hold_end();
    is_holding = false;
}

struct ops {
    const struct flyt_nccl_op *first;
    size_t stride, count;
};

static const struct flyt_nccl_op *op_at(const struct ops *ops, size_t i)
{
    return (const void *)((const char *)ops->first + i * ops->stride);
}

static bool ops_join(const void *user)
{
    const struct ops *ops = user;
    bool joins = false;
    for (size_t i = 0; i < ops->count && !joins; i++) {
        const struct flyt_nccl_op *op = op_at(ops, i);
        const struct nccl_member *member = find_locked(op->comm);
        joins = member && joins_locked(member, op->function, op->peer);
    }
    return joins;
}

static void count_ops_locked(const struct ops *ops, int step)
{
    for (size_t i = 0; i < ops->count; i++) {
        const struct flyt_nccl_op *op = op_at(ops, i);
        struct nccl_member *member = find_locked(op->comm);
        if (member)
            count_locked(member, op->function, op->peer, step);
    }
}

void flyt_nccl_ops_begin(const struct flyt_nccl_op *first, size_t stride, size_t count)
{
    const struct ops ops = {first, stride, count};
    if (!flyt_lib_is_open())
        return;
    pthread_mutex_lock(&flyt_nccl_kin.mutex);
    is_holding = hold_locked(ops_join, &ops);
    count_ops_locked(&ops, 1);
    pthread_mutex_unlock(&flyt_nccl_kin.mutex);
}

/* What was refused because of its arguments has not been made. */
static bool is_refusal(int status)
{
    return status == NCCL_ARGUMENT || status == NCCL_USAGE;
}

static bool is_well(int status)
{
    return status == NCCL_SUCCESS || status == FLYT_NCCL_IN_PROGRESS;
}

void flyt_nccl_ops_end(const struct flyt_nccl_op *first, size_t stride, size_t count, int status)
{
    const struct ops ops = {first, stride, count};
    if (!flyt_lib_is_open())
        return;
    pthread_mutex_lock(&flyt_nccl_kin.mutex);
    if (is_refusal(status))
        count_ops_locked(&ops, -1);
    for (size_t i = 0; i < count && !is_well(status) && !is_refusal(status); i++) {
        const struct nccl_member *member = find_locked(op_at(&ops, i)->comm);
        if (member)
            spoil_locked(member->birth->root);
    }
    let_go_of_hold();
    pthread_mutex_unlock(&flyt_nccl_kin.mutex);
}

/* ---- births ---- */

static struct nccl_birth *birth_new_locked(struct nccl_birth *parent, unsigned split_number,
                                           const struct flyt_nccl_order *order)
{
    struct nccl_birth *birth = calloc(1, sizeof *birth), **place = &flyt_nccl_kin.first;
    if (!birth)
        return NULL;
    birth->parent = parent;
    birth->root = parent ? parent->root : birth;
    birth->split_number = split_number;
    if (order->control == FLYT_NCCL_INIT)
        flyt_nccl_family_begin(&birth->family, order);
    while (*place)
        place = &(*place)->next;
    *place = birth;
    return birth;
}

static struct nccl_birth *root_locked(const struct flyt_nccl_order *order)
{
    for (struct nccl_birth *birth = flyt_nccl_kin.first; birth; birth = birth->next)
        if (!birth->parent && flyt_nccl_family_has(&birth->family, order))
            return birth;
    return birth_new_locked(NULL, 0, order);
}

static struct nccl_birth *split_locked(struct nccl_member *parent, const struct flyt_nccl_order *order)
{
    unsigned number = parent->split_count++;
    for (struct nccl_birth *birth = flyt_nccl_kin.first; birth; birth = birth->next)
        if (birth->parent == parent->birth && birth->split_number == number)
            return birth;
    return birth_new_locked(parent->birth, number, order);
}

/* The members of each color by their keys, and then as they were in their parent. */
static void give_ranks_locked(struct nccl_birth *birth)
{
    for (struct nccl_member *one = birth->members; one && birth->parent; one = one->next) {
        one->rank = 0;
        for (const struct nccl_member *other = birth->members; other; other = other->next)
            one->rank += other->order.color == one->order.color &&
                         (other->order.key < one->order.key ||
                          (other->order.key == one->order.key && other->parent->rank < one->parent->rank));
    }
}

static void free_member(struct nccl_member *member)
{
    while (member->kept) {
        struct nccl_kept *next = member->kept->next;
        free(member->kept);
        member->kept = next;
    }
    free(member->messages);
    free(member);
}

static void free_birth_locked(struct nccl_birth **place)
{
    struct nccl_birth *birth = *place;
    *place = birth->next;
    if (birth->is_held)
        flyt_lib_hold_end();
    while (birth->members) {
        struct nccl_member *next = birth->members->next;
        free_member(birth->members);
        birth->members = next;
    }
    free(birth);
}

static bool has_live(const struct nccl_birth *birth, bool of_family)
{
    for (const struct nccl_birth *one = flyt_nccl_kin.first; one; one = one->next)
        for (const struct nccl_member *member = one->members; member; member = member->next)
            if (member->is_live && (one == birth || (of_family && one->root == birth->root)))
                return true;
    return false;
}

static bool has_child(const struct nccl_birth *birth)
{
    const struct nccl_birth *child = flyt_nccl_kin.first;
    while (child && child->parent != birth)
        child = child->next;
    return child;
}

/* What nothing that the program has comes of; of a split others may still be about to note their part. */
static bool is_over(const struct nccl_birth *birth)
{
    if (has_child(birth) || has_live(birth, false))
        return false;
    return flyt_nccl_is_complete(birth) || !has_live(birth, true);
}

static void reap_locked(void)
{
    bool is_reaped = true;
    while (is_reaped) {
        is_reaped = false;
        for (struct nccl_birth **place = &flyt_nccl_kin.first; *place;)
            if (is_over(*place)) {
                free_birth_locked(place);
                is_reaped = true;
            } else {
                place = &(*place)->next;
            }
    }
}

/* ---- orders ---- */

static struct nccl_birth *birth_locked(struct nccl_member *parent, const struct flyt_nccl_order *order)
{
    if (order->control == FLYT_NCCL_INIT)
        return root_locked(order);
    if (parent)
        return split_locked(parent, order);
    struct nccl_birth *birth = birth_new_locked(NULL, 0, order);
    if (birth)
        birth->family.is_spoilt = true; /* it comes of what has gone meanwhile */
    return birth;
}

static void add_member_locked(const struct flyt_nccl_order *order, bool has_comm)
{
    struct nccl_member *parent = order->control == FLYT_NCCL_INIT ? NULL : find_locked(order->parent);
    const struct flyt_lib_object *object = flyt_nccl_comm((void *)(uintptr_t)order->comm);
    struct nccl_member *stale = find_locked(order->comm), *member = calloc(1, sizeof *member);
    if (stale)
        stale->is_live = false; /* a reset of its device has ended it */
    struct nccl_birth *birth = member ? birth_locked(parent, order) : NULL;
    if (!birth) {
        free(member);
        flyt_nccl_kin.is_incomplete = true;
        return;
    }
    *member = (struct nccl_member){.next = birth->members,
                                   .birth = birth,
                                   .parent = parent,
                                   .order = *order,
                                   .number = object ? object->number : 0,
                                   .has_comm = has_comm,
                                   .is_live = has_comm,
                                   .rank = order->control == FLYT_NCCL_INIT ? order->rank : -1};
    birth->members = member;
    birth->member_count++;
    flyt_nccl_family_come(&birth->root->family, order);
    if (birth->parent && birth->member_count == birth->parent->member_count)
        give_ranks_locked(birth);
    weigh_locked(birth);
}

static void end_locked(const struct flyt_nccl_order *order)
{
    struct nccl_member *member = find_locked(order->comm);
    if (!member)
        return;
    member->is_live = false;
    if (order->control == FLYT_NCCL_ABORT)
        spoil_locked(member->birth->root);
}

/* A split that was refused has not been made. */
static void fail_locked(const struct flyt_nccl_order *order, int status)
{
    struct nccl_member *parent = find_locked(order->parent);
    if (parent && order->control == FLYT_NCCL_SPLIT && is_refusal(status))
        count_locked(parent, FLYT_NCCL_FUNCTIONS, 0, -1);
    else if (parent && order->control != FLYT_NCCL_INIT)
        spoil_locked(parent->birth->root);
}

static void note_locked(const struct flyt_nccl_order *order, bool is_made, int status)
{
    struct nccl_member *member = find_locked(order->comm);
    bool has_no_color = order->control == FLYT_NCCL_SPLIT && order->color == NO_COLOR;
    switch ((enum flyt_nccl_control)order->control) {
    case FLYT_NCCL_INIT:
    case FLYT_NCCL_SPLIT:
    case FLYT_NCCL_SHRINK:
        if (is_well(status) && (is_made || has_no_color))
            add_member_locked(order, is_made);
        else
            fail_locked(order, status);
        break;
    case FLYT_NCCL_FINALIZE:
        if (member)
            member->is_finalized = true;
        break;
    case FLYT_NCCL_DESTROY:
    case FLYT_NCCL_ABORT:
        end_locked(order);
        break;
    case FLYT_NCCL_REVOKE:
        if (member)
            spoil_locked(member->birth->root);
        break;
    case FLYT_NCCL_CONTROLS:
        break;
    }
}

struct orders {
    const unsigned char *data;
    size_t bytes, at;
};

/* NULL: there is no other. They are this library's own. */
static const struct flyt_nccl_order *next_order(struct orders *orders)
{
    const struct flyt_nccl_order *order = (const void *)(orders->data + orders->at);
    if (orders->at == orders->bytes)
        return NULL;
    orders->at += flyt_nccl_order_bytes(order);
    return order;
}

/* Others may wait for what makes a first communicator or ends one, and nobody knows of them here. */
static bool orders_join(const void *user)
{
    struct orders orders = *(const struct orders *)user;
    const struct flyt_nccl_order *order;
    bool joins = false;
    while ((order = next_order(&orders)) && !joins) {
        const struct nccl_member *parent = order->control == FLYT_NCCL_SPLIT ? find_locked(order->parent) : NULL;
        joins = parent ? joins_locked(parent, FLYT_NCCL_FUNCTIONS, 0) : order->control != FLYT_NCCL_SPLIT;
    }
    return joins;
}

void flyt_nccl_orders_begin(const void *data, size_t bytes)
{
    struct orders orders = {data, bytes, 0};
    const struct flyt_nccl_order *order;
    if (!flyt_lib_is_open())
        return;
    flyt_lib_again_by(flyt_nccl_again);
    pthread_mutex_lock(&flyt_nccl_kin.mutex);
    is_holding = hold_locked(orders_join, &orders);
    while ((order = next_order(&orders))) {
        struct nccl_member *parent = order->control == FLYT_NCCL_SPLIT ? find_locked(order->parent) : NULL;
        if (parent)
            count_locked(parent, FLYT_NCCL_FUNCTIONS, 0, 1); /* all ranks make it, as an operation */
    }
    pthread_mutex_unlock(&flyt_nccl_kin.mutex);
}

void flyt_nccl_orders_note(const void *data, size_t bytes, const int32_t *made, int status)
{
    struct orders orders = {data, bytes, 0};
    const struct flyt_nccl_order *order;
    if (!flyt_lib_is_open())
        return;
    pthread_mutex_lock(&flyt_nccl_kin.mutex);
    for (unsigned i = 0; (order = next_order(&orders)); i++)
        note_locked(order, made[i], status);
    reap_locked();
    pthread_mutex_unlock(&flyt_nccl_kin.mutex);
}

void flyt_nccl_orders_end(void)
{
    let_go_of_hold();
}

/* ---- operators and buffers ---- */

static struct nccl_kept **place_locked(struct nccl_member *member, const struct flyt_lib_row *row, uint64_t number)
{
    struct nccl_kept **place = &member->kept;
    while (*place && ((*place)->row != row || (*place)->number != number))
        place = &(*place)->next;
    return place;
}

void flyt_nccl_keep(uint64_t comm, const struct flyt_lib_row *row, uint64_t number, const void *arguments, size_t bytes)
{
    struct nccl_kept *fresh = malloc(sizeof *fresh + bytes);
    pthread_mutex_lock(&flyt_nccl_kin.mutex);
    struct nccl_member *member = find_locked(comm);
    if (fresh && member) {
        *fresh = (struct nccl_kept){.row = row, .number = number, .bytes = bytes};
        memcpy(fresh->arguments, arguments, bytes);
        *place_locked(member, row, number) = fresh; /* behind those before it: their order is kept */
        fresh = NULL;
    } else if (member) {
        spoil_locked(member->birth->root);
    }
    pthread_mutex_unlock(&flyt_nccl_kin.mutex);
    free(fresh);
}

void flyt_nccl_let_go(uint64_t comm, const struct flyt_lib_row *row, uint64_t number)
{
    pthread_mutex_lock(&flyt_nccl_kin.mutex);
    struct nccl_member *member = find_locked(comm);
    struct nccl_kept **place = member ? place_locked(member, row, number) : NULL;
    if (place && *place) {
        struct nccl_kept *gone = *place;
        *place = gone->next;
        free(gone);
    }
    pthread_mutex_unlock(&flyt_nccl_kin.mutex);
}

bool flyt_nccl_has_lost(uint64_t comm, const struct flyt_lib_row *row, uint64_t number)
{
    if (!flyt_lib_is_open())
        return false;
    pthread_mutex_lock(&flyt_nccl_kin.mutex);
    struct nccl_member *member = find_locked(comm);
    const struct nccl_kept *kept = member ? *place_locked(member, row, number) : NULL;
    bool is_lost = kept && kept->is_lost;
    pthread_mutex_unlock(&flyt_nccl_kin.mutex);
    return is_lost;
}
