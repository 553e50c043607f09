/*
 * For tests: a session that is moved (move.h), over a driver that does nothing, with a client (fake_client.h) and a
 * node manager that the test plays; and with what copies pages and saves state in the test's hands, so that each step
 * lasts as long as the test wants: fake_move.c has functions in the place of those, where the linker puts them
 * (rules.mk). Time stands where it limits something. Functions fail the running test where something is not as it
 * should be.
 */
#ifndef FLYT_SERVER_FAKE_MOVE_H
#define FLYT_SERVER_FAKE_MOVE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"

enum { MIB = 1 << 20, MOVE_ID = 77, TIMEOUT_US = 1000 * 1000 };

/* What copies and saves does as this says, and says what it was asked. */
extern struct fake_move_parts {
    _Atomic(int) result; /* of the copying, as soon as it is to finish */
    _Atomic(int) rounds; /* of the copying, before: 0 or an error */
    _Atomic(bool) is_ready;
    _Atomic(int) begin_status, save_status;
    _Atomic(int) put_result; /* of an image, from when the state was given to it */
    _Atomic(unsigned) begun, finished, ended, mirrors, gone_on, listed, images, put;
    _Atomic(uint64_t) saved_sequence;
    bool is_finishing, is_put;
} fake_move_parts;

extern struct flyt_driver fake_move_driver; /* the session's: the fake one, with descriptors of memory */

struct moved {
    struct fixture *client;
    struct flyt_manager manager;
    struct flyt_ledger *ledger;
    int fd;                                   /* the node manager's end of the link */
    struct flyt_manager_link_message message; /* the last one that the session has sent */
    struct flyt_manager_link_message order;
    uint64_t extents, extents_gone, last_extent_id;
    uint32_t with_sharers; /* of MOVE */
};

/* Set-ups of a test, whose *state is a struct moved: a session with its client; with one that has not said yet who it
 * is; one that nobody serves before
 * fake_move_start. And the tear-down. */
int fake_move_set_up(void **state);
int fake_move_set_up_unattached(void **state);
int fake_move_set_up_alone(void **state);
void fake_move_start(struct moved *self);
int fake_move_tear_down(void **state);

/* ---- the node manager ---- */

/* Leaves self->order, as one of this kind, with a descriptor, which is taken over (-1: none). */
void fake_move_order(struct moved *self, uint32_t kind, int fd);
/* An order about this move, with TIMEOUT_US where it is limited. */
void fake_move_order_of(struct moved *self, uint32_t kind, uint64_t move_id);
/* MOVE; and up to where the session has said that it has begun. */
void fake_move_send(struct moved *self, uint64_t move_id, enum flyt_manager_link_move_kind kind);
void fake_move_begin(struct moved *self, enum flyt_manager_link_move_kind kind);
/* Suspends the VM, or has it go on. */
void fake_move_suspend(struct moved *self, bool is_suspended);
/* Time goes on by so much. */
void fake_move_pass_time(struct moved *self, uint64_t us);

/* Receives the next message but those about memory, which are counted, and use. */
void fake_move_next(struct moved *self);
/* What comes next is this: MOVE_STATE, STOPPED (behind what is told of the last pages), LEFT. */
void fake_move_expect_state(struct moved *self, uint32_t phase, int outcome);
const struct flyt_manager_link_stopped *fake_move_expect_stopped(struct moved *self, int outcome);
void fake_move_expect_left(struct moved *self);
/* The session's loop has gone round several times, and has said nothing else. */
void fake_move_expect_nothing(struct moved *self);

/* ---- the client ---- */

/* Says who it is; as one that lacks this row of the protocol (0: that has all). */
void fake_move_attach(struct moved *self);
void fake_move_attach_without(struct moved *self, uint32_t without);
/* Reads up to the call to stop, whose number it returns, or to go on, which has this number. */
uint64_t fake_move_await_stop(struct moved *self);
void fake_move_await_go_on(struct moved *self, uint64_t number);
/* It has stopped, as it was told with this number. */
void fake_move_answer_stop(struct moved *self, uint64_t number);
/* Orders STOP, which the client answers; returns its number. Wholly: with nothing under way, up to where it may leave.
 */
uint64_t fake_move_stop(struct moved *self);
uint64_t fake_move_stop_wholly(struct moved *self);
/* The program works as ever. */
void fake_move_expect_work(struct moved *self, uint64_t address);
/* Orders LEAVE; what the client is told. Wholly: it has ended its connection, and the session has seen that. */
flyt_back_moved fake_move_leave(struct moved *self);
void fake_move_leave_wholly(struct moved *self);
/* TAKE_BACK with a new connection of the client; of one whose handshake names this token. The handshake's status. */
void fake_move_take_back(struct moved *self);
flyt_handshake_status fake_move_take_back_with(struct moved *self, const unsigned char *token,
                                               flyt_connection_kind kind);
/* Calls of a client that comes back, with the results that are wanted. */
bool fake_move_is_whole(struct moved *self, int want);
flyt_progress fake_move_resume_end(struct moved *self, uint64_t sequence, int want);
/* The client's side of coming back behind that call. */
void fake_move_go_on_behind(struct moved *self, uint64_t sequence);
/* Reads up to the end of the connection. */
void fake_move_await_end(struct moved *self);

#endif
