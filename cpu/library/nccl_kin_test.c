/* What the client knows of communicators, and makes again of it: ranks that are not level hold the stop, by operations,
 * messages and splits; and the calls that another server gets. The channel is these functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/client/library/again.h"
#include "cpu/client/library/object.h"
#include "cpu/library/nccl_kin.h"

const struct flyt_lib_kind flyt_lib_kind_nccl_comm = {.name = "comm"};
const struct flyt_lib_row flyt_lib_row_ncclGroupEnd, flyt_lib_row_ncclCommInitRank, flyt_lib_row_ncclGetUniqueId,
    flyt_lib_row_ncclCommRegister, flyt_lib_row_ncclRedOpCreatePreMulSum;

/* ---- the client library ---- */

enum { COMMS = 32 };

static struct flyt_lib_object objects[COMMS]; /* by id, from 1 */

struct flyt_lib_object *flyt_lib_find(uint64_t handle, const struct flyt_lib_kind *kind)
{
    return handle && handle < COMMS && kind == &flyt_lib_kind_nccl_comm && objects[handle].number ? &objects[handle]
                                                                                                  : NULL;
}

void *flyt_lib_state(struct flyt_lib_object *object)
{
    return object->state;
}

static unsigned hold_count, wait_count;
static bool is_stopping, is_forked;

enum flyt_lib_hold flyt_lib_hold_begin(bool joins)
{
    if (is_stopping && !(joins && hold_count))
        return FLYT_LIB_STOPPED;
    hold_count++;
    return FLYT_LIB_HELD;
}

void flyt_lib_hold_end(void)
{
    assert_true(hold_count);
    hold_count--;
}

/* The program goes on at once. */
void flyt_lib_hold_wait(void)
{
    wait_count++;
    is_stopping = false;
}

bool flyt_lib_is_open(void)
{
    return !is_forked;
}

void flyt_lib_again_by(flyt_lib_again_fn again)
{
}

/* ---- another server ---- */

enum { REFUSED = -1, ORDERS_MAX = 64 };

static struct {
    struct flyt_nccl_order orders[ORDERS_MAX];
    unsigned char ids[ORDERS_MAX]; /* the first byte of each one's unique id */
    unsigned order_count, list_count, id_count, kept_count, waiting_count;
    bool makes_none;
    uint64_t waiting_comm; /* a part with one operation of it comes again */
} other;

static void take_orders(const void *arguments, const char *list, int32_t *made)
{
    const struct flyt_args_ncclCommInitRank *sent = arguments;
    size_t at = 0;
    for (unsigned i = 0; at < sent->orders_bytes; i++) {
        const struct flyt_nccl_order *order = (const void *)(list + at);
        bool has_comm = flyt_nccl_makes(order->control) && !(order->control == FLYT_NCCL_SPLIT && order->color < 0);
        at += flyt_nccl_order_bytes(order);
        made[i] = has_comm && !other.makes_none;
        other.ids[other.order_count] = order->id_count ? *flyt_nccl_order_id(order) : 0;
        other.orders[other.order_count++] = *order;
    }
    other.list_count++;
}

int flyt_lib_again_call(struct flyt_restore *restore, const struct flyt_lib_row *row,
                        const struct flyt_lib_again_bytes *arguments, const struct flyt_lib_again_bytes *array,
                        void *results, size_t result_bytes, const char *what)
{
    if (row == &flyt_lib_row_ncclCommInitRank) {
        take_orders(arguments->data, array->data, results);
    } else if (row == &flyt_lib_row_ncclGetUniqueId) {
        assert_int_equal(result_bytes, FLYT_NCCL_UNIQUE_ID_BYTES);
        memset(results, (int)(100 + ++other.id_count), result_bytes);
    } else {
        other.kept_count++;
        if (result_bytes)
            memset(results, 0, result_bytes); /* NCCL gives no handle here */
    }
    return 0;
}

int flyt_lib_again_refuse(struct flyt_restore *restore, const char *what)
{
    assert_string_equal(what, "an NCCL communicator");
    return REFUSED;
}

int flyt_lib_again_lack(struct flyt_restore *restore, const char *what)
{
    return REFUSED;
}

int flyt_lib_again_kept(struct flyt_restore *restore, const struct flyt_lib_row *row, flyt_lib_again_each_fn each,
                        void *user)
{
    struct {
        struct flyt_args_ncclGroupEnd args FLYT_LIB_ALIGNED;
        struct flyt_nccl_part part FLYT_LIB_ALIGNED;
        struct flyt_nccl_op op;
    } sent = {.args = {.part_bytes = sizeof sent.part + sizeof sent.op}, .op = {.comm = other.waiting_comm}};
    assert_ptr_equal(row, &flyt_lib_row_ncclGroupEnd);
    if (other.waiting_comm)
        each(user, &sent, sizeof sent);
    each(user, &sent, 3); /* cut off: it counts as nothing */
    return 0;
}

static int again(void)
{
    memset(&other, 0, offsetof(typeof(other), makes_none));
    return flyt_nccl_again(NULL);
}

/* ---- the program ---- */

struct sent {
    struct flyt_nccl_order order;
    unsigned char id[FLYT_NCCL_UNIQUE_ID_BYTES];
};

static void send(const void *order, size_t bytes, int32_t made, int status)
{
    flyt_nccl_orders_begin(order, bytes);
    flyt_nccl_orders_note(order, bytes, &made, status);
    flyt_nccl_orders_end();
}

static void give_handle(uint64_t comm)
{
    static uint64_t number;
    objects[comm].number = ++number;
}

static void init(unsigned char id, int ranks, int rank, uint64_t comm)
{
    struct sent sent = {.order = {.control = FLYT_NCCL_INIT,
                                  .id_count = 1,
                                  .rank_count = ranks,
                                  .rank = rank,
                                  .comm = comm,
                                  .device = (uint32_t)rank}};
    memset(sent.id, id, sizeof sent.id);
    give_handle(comm);
    send(&sent, sizeof sent, 1, 0);
}

static void split(uint64_t parent, int color, int key, uint64_t comm)
{
    const struct flyt_nccl_order order = {
        .control = FLYT_NCCL_SPLIT, .parent = parent, .color = color, .key = key, .comm = comm};
    give_handle(comm);
    send(&order, sizeof order, color >= 0, 0);
    if (color < 0)
        objects[comm].number = 0;
}

static void end(enum flyt_nccl_control control, uint64_t comm)
{
    const struct flyt_nccl_order order = {.control = control, .comm = comm};
    send(&order, sizeof order, 0, 0);
    if (control != FLYT_NCCL_FINALIZE)
        objects[comm].number = 0;
}

static void operate_with(enum flyt_nccl_function function, uint64_t comm, int peer, int status)
{
    const struct flyt_nccl_op op = {.function = function, .comm = comm, .peer = peer};
    flyt_nccl_ops_begin(&op, sizeof op, 1);
    flyt_nccl_ops_end(&op, sizeof op, 1, status);
}

static void operate(uint64_t comm)
{
    operate_with(FLYT_NCCL_ALL_REDUCE, comm, 0, 0);
}

/* All are gone: nothing is left, nor held. */
static void ends_clean(uint64_t first, uint64_t last)
{
    for (uint64_t comm = first; comm <= last; comm++)
        if (objects[comm].number)
            end(FLYT_NCCL_DESTROY, comm);
    assert_null(flyt_nccl_kin.first);
    assert_int_equal(hold_count, 0);
}

/* ---- tests ---- */

static void test_ranks_that_are_not_level_hold_the_stop(void **state)
{
    init(1, 2, 0, 1);
    operate(1); /* the other one's thread has not noted its own yet, */
    assert_int_equal(hold_count, 0);
    init(1, 2, 1, 2); /* and is behind when it has */
    assert_int_equal(hold_count, 1);
    operate(2);
    assert_int_equal(hold_count, 0);
    for (unsigned i = 1; i <= 3; i++) {
        operate(1);
        assert_int_equal(hold_count, 1);
    }
    is_stopping = true;
    operate(2); /* it passes, for the first one's wait for it */
    operate(2);
    operate(2);
    assert_int_equal(wait_count, 0);
    assert_int_equal(hold_count, 0);
    operate(2); /* that one begins something */
    assert_int_equal(wait_count, 1);
    assert_int_equal(hold_count, 1);
    operate(1);
    wait_count = 0;
    ends_clean(1, 2);
}

static void test_ranks_elsewhere_hold_nothing(void **state)
{
    init(1, 2, 0, 1);
    for (unsigned i = 0; i < 3; i++)
        operate(1);
    assert_int_equal(hold_count, 0);
    assert_int_equal(again(), REFUSED);
    assert_int_equal(other.list_count, 0);
    ends_clean(1, 1);
    assert_int_equal(again(), 0);
}

static void test_messages_are_level_by_pairs(void **state)
{
    for (int rank = 0; rank < 3; rank++)
        init(1, 3, rank, (uint64_t)rank + 1);
    operate_with(FLYT_NCCL_SEND, 1, 2, 0);
    assert_int_equal(hold_count, 1);
    is_stopping = true;
    operate_with(FLYT_NCCL_RECV, 3, 0, 0);
    assert_int_equal(wait_count, 0);
    assert_int_equal(hold_count, 0);
    operate_with(FLYT_NCCL_RECV, 2, 0, 0);
    assert_int_equal(wait_count, 1);
    operate_with(FLYT_NCCL_SEND, 1, 2, 0); /* to another one */
    operate_with(FLYT_NCCL_RECV, 3, 0, 0);
    assert_int_equal(hold_count, 1);
    operate_with(FLYT_NCCL_SEND, 1, 1, 0);
    assert_int_equal(hold_count, 0);
    operate_with(FLYT_NCCL_SEND, 1, 99999, NCCL_ARGUMENT); /* no such rank */
    operate_with(FLYT_NCCL_SEND, 1, -1, NCCL_ARGUMENT);
    assert_int_equal(hold_count, 0);
    wait_count = 0;
    ends_clean(1, 3);
}

/* Its ranks may wait for each other: what others have begun is let pass, and nothing else. */
static void test_what_makes_and_ends_passes_while_something_is_held(void **state)
{
    init(1, 2, 0, 1);
    init(1, 2, 1, 2);
    operate(1);
    is_stopping = true;
    init(2, 1, 0, 3);
    end(FLYT_NCCL_DESTROY, 3);
    assert_int_equal(wait_count, 0);
    split(1, 0, 0, 3); /* the first rank leads already */
    assert_int_equal(wait_count, 1);
    split(2, 0, 0, 4);
    operate(2);
    assert_int_equal(hold_count, 0);
    is_stopping = true;
    end(FLYT_NCCL_DESTROY, 4);
    assert_int_equal(wait_count, 2);
    wait_count = 0;
    ends_clean(1, 4);
}

static void test_what_fails_holds_nothing(void **state)
{
    init(1, 2, 0, 1);
    init(1, 2, 1, 2);
    operate_with(FLYT_NCCL_ALL_REDUCE, 1, 0, NCCL_ARGUMENT);
    assert_int_equal(hold_count, 0);
    assert_int_equal(again(), 0);
    operate_with(FLYT_NCCL_ALL_REDUCE, 1, 0, NCCL_INTERNAL);
    assert_int_equal(hold_count, 0);
    assert_int_equal(again(), REFUSED);
    ends_clean(1, 2);
}

static void test_a_split_is_what_all_ranks_make(void **state)
{
    init(1, 2, 0, 1);
    init(1, 2, 1, 2);
    split(1, 5, 1, 3);
    assert_int_equal(hold_count, 1);
    is_stopping = true;
    split(2, 5, 0, 4);
    assert_int_equal(wait_count, 0);
    assert_int_equal(hold_count, 0);
    is_stopping = false;
    operate_with(FLYT_NCCL_SEND, 3, 0, 0); /* the first one of the parent is the second one here */
    assert_int_equal(hold_count, 1);
    operate_with(FLYT_NCCL_RECV, 4, 1, 0);
    assert_int_equal(hold_count, 0);
    ends_clean(1, 4);
}

static void test_makes_again_what_there_is(void **state)
{
    struct flyt_state_comm *count = (void *)objects[1].state;
    for (int rank = 0; rank < 2; rank++)
        init(1, 2, rank, (uint64_t)rank + 1);
    count->op_count = 9;
    other.waiting_comm = 1;
    flyt_nccl_keep(1, &flyt_lib_row_ncclCommRegister, 70, "", 1);
    flyt_nccl_keep(2, &flyt_lib_row_ncclRedOpCreatePreMulSum, 5, "", 1);
    flyt_nccl_keep(2, &flyt_lib_row_ncclRedOpCreatePreMulSum, 6, "", 1);
    flyt_nccl_let_go(2, &flyt_lib_row_ncclRedOpCreatePreMulSum, 5);
    assert_false(flyt_nccl_has_lost(1, &flyt_lib_row_ncclCommRegister, 70));
    assert_int_equal(again(), 0);
    assert_int_equal(other.list_count, 1);
    assert_int_equal(other.order_count, 2);
    for (unsigned i = 0; i < 2; i++) {
        const struct flyt_nccl_order *order = &other.orders[i];
        assert_int_equal(other.ids[i], 101); /* a new one, and no id of before */
        assert_int_equal(order->comm, order->rank + 1);
        assert_int_equal(order->device, order->rank);
        assert_int_equal(order->rank_count, 2);
        assert_int_equal(order->done, order->comm == 1 ? 8 : 0); /* one of 9 comes again */
    }
    assert_int_not_equal(other.orders[0].rank, other.orders[1].rank);
    assert_int_equal(other.kept_count, 2);
    assert_true(flyt_nccl_has_lost(1, &flyt_lib_row_ncclCommRegister, 70));
    other.makes_none = true; /* a server that says it has made what it has not */
    assert_int_equal(again(), REFUSED);
    other.makes_none = false;
    other.waiting_comm = 0;
    count->op_count = 0;
    ends_clean(1, 2);
}

/* Parents that the program has no more, and ranks that a split has left out, are made under ids that pass. */
static void test_makes_and_ends_again_what_has_gone(void **state)
{
    for (int rank = 0; rank < 3; rank++)
        init(1, 3, rank, (uint64_t)rank + 1);
    for (int rank = 0; rank < 3; rank++)
        split((uint64_t)rank + 1, rank < 2 ? 0 : -1, -rank, (uint64_t)rank + 4);
    for (int rank = 0; rank < 3; rank++)
        end(FLYT_NCCL_DESTROY, (uint64_t)rank + 1);
    assert_int_equal(again(), 0);
    assert_int_equal(other.order_count, 3 + 3 + 3); /* made, split, ended */
    uint64_t passing[3];
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(other.orders[i].control, FLYT_NCCL_INIT);
        assert_true(other.orders[i].comm > UINT32_MAX);
        passing[other.orders[i].rank] = other.orders[i].comm;
    }
    for (unsigned i = 3; i < 6; i++) {
        const struct flyt_nccl_order *order = &other.orders[i];
        unsigned rank = 0;
        while (rank < 2 && passing[rank] != order->parent)
            rank++;
        assert_int_equal(order->control, FLYT_NCCL_SPLIT);
        assert_int_equal(order->parent, passing[rank]);
        assert_int_equal(order->key, -(int)rank);
        assert_int_equal(order->color, rank < 2 ? 0 : -1);
        if (rank < 2)
            assert_int_equal(order->comm, rank + 4);
    }
    for (unsigned i = 6; i < 9; i++) {
        assert_int_equal(other.orders[i].control, FLYT_NCCL_DESTROY);
        assert_true(other.orders[i].comm > UINT32_MAX);
    }
    ends_clean(4, 6);
    assert_int_equal(again(), 0);
    assert_int_equal(other.order_count, 0);
}

static void test_what_is_not_as_it_was_made_is_not_made_again(void **state)
{
    static const enum flyt_nccl_control controls[] = {FLYT_NCCL_FINALIZE, FLYT_NCCL_ABORT, FLYT_NCCL_REVOKE};
    for (unsigned i = 0; i < sizeof controls / sizeof controls[0]; i++) {
        init(1, 2, 0, 1);
        init(1, 2, 1, 2);
        assert_int_equal(again(), 0);
        end(controls[i], 1);
        if (controls[i] == FLYT_NCCL_REVOKE)
            give_handle(1); /* the program has it still */
        assert_int_equal(again(), REFUSED);
        objects[1].number = objects[2].number = 0; /* a reset ends the devices' */
        assert_int_equal(again(), 0);
        assert_int_equal(other.order_count, 0);
        init(2, 1, 0, 1); /* the handles come again */
        init(3, 1, 0, 2);
        assert_int_equal(again(), 0);
        assert_int_equal(other.order_count, 2);
        ends_clean(1, 2);
    }
}

/* The child's mutex may be locked for ever. */
static void test_a_forked_child_takes_no_lock(void **state)
{
    pthread_mutex_lock(&flyt_nccl_kin.mutex);
    is_forked = true;
    init(1, 2, 0, 1);
    operate(1);
    assert_false(flyt_nccl_has_lost(1, &flyt_lib_row_ncclCommRegister, 70));
    end(FLYT_NCCL_DESTROY, 1);
    is_forked = false;
    pthread_mutex_unlock(&flyt_nccl_kin.mutex);
    assert_null(flyt_nccl_kin.first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_that_are_not_level_hold_the_stop),
        cmocka_unit_test(test_ranks_elsewhere_hold_nothing),
        cmocka_unit_test(test_messages_are_level_by_pairs),
        cmocka_unit_test(test_what_makes_and_ends_passes_while_something_is_held),
        cmocka_unit_test(test_what_fails_holds_nothing),
        cmocka_unit_test(test_a_split_is_what_all_ranks_make),
        cmocka_unit_test(test_makes_again_what_there_is),
        cmocka_unit_test(test_makes_and_ends_again_what_has_gone),
        cmocka_unit_test(test_a_forked_child_takes_no_lock),
        cmocka_unit_test(test_what_is_not_as_it_was_made_is_not_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
