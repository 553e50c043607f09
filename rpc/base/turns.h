/*
 * The token of one set of SMs, in memory that the servers which share it have together (a memfd), made by the node
 * manager. The rules are in turn_rules.h; here they are applied by the servers themselves, each under a mutex that
 * survives its owner's death: there is no process whose end or restart stops the others. Any number of processes and
 * threads.
 *
 * A process may be killed or stopped at any instruction. Between two stores every state is a true one; what a dead
 * server held is free when flyt_turns_leave is called for it, and at the latest FLYT_TURN_LOST_MS after the end of its
 * grant, as it is with one that was stopped. Whoever finds the mutex held for FLYT_TURNS_WAIT_MS goes without.
 *
 * The node manager alone sets shares, and lets servers in.
 */
#ifndef FLYT_BASE_TURNS_H
#define FLYT_BASE_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/turn_rules.h"

enum { FLYT_TURNS_WAIT_MS = 100 };

struct flyt_turns;

/* 0 or a negative errno. */
int flyt_turns_new(struct flyt_turns **ret_turns);
/* The one in a descriptor that was handed over, which stays the caller's. 0; -EBADMSG: it is none, or may still be cut
 * short; another negative errno. */
int flyt_turns_open(int fd, struct flyt_turns **ret_turns);
/* Closes this process's view of it. NULL is allowed. Returns NULL. */
struct flyt_turns *flyt_turns_close(struct flyt_turns *turns);
/* To be handed over; the object's. */
int flyt_turns_fd(const struct flyt_turns *turns);

/* As flyt_turn_table_…, now; who is next is woken. -ETIMEDOUT: a holder of the mutex does not go on. */
int flyt_turns_set(struct flyt_turns *turns, uint64_t tenant_id, const struct flyt_turn_share *share,
                   uint64_t revision);
int flyt_turns_remove(struct flyt_turns *turns, uint64_t tenant_id);
int flyt_turns_join(struct flyt_turns *turns, uint64_t tenant_id, uint64_t server_id);
int flyt_turns_leave(struct flyt_turns *turns, uint64_t server_id);
int flyt_turns_tell(struct flyt_turns *turns, unsigned place, uint64_t server_id, enum flyt_turn_state state,
                    struct flyt_turn_answer *ret_answer);

/* ---- of a server that has joined, at its place; none of these waits for the mutex ---- */

/* It has work on the GPU, or none. */
void flyt_turns_set_idle(struct flyt_turns *turns, unsigned place, bool is_idle, uint64_t now_ns);
/* It runs, and looks after its work: to be called at least every FLYT_TURN_LOST_MS / 4 until that is done. */
void flyt_turns_be_seen(struct flyt_turns *turns, unsigned place, uint64_t now_ns);
/* When the grant ends: of who has the token. */
uint64_t flyt_turns_until(const struct flyt_turns *turns);
/* Whether others wait for the token. */
bool flyt_turns_is_wanted(const struct flyt_turns *turns);
/* A number that is another one when the server is to ask again. */
uint32_t flyt_turns_wakes(const struct flyt_turns *turns, unsigned place);
/* Waits until it is another one than `wakes`, for timeout_ns at most. */
void flyt_turns_wait(struct flyt_turns *turns, unsigned place, uint32_t wakes, uint64_t timeout_ns);
/* Ends such a wait of another thread. */
void flyt_turns_wake(struct flyt_turns *turns, unsigned place);

/* ---- for who looks on; waits for nothing ---- */

struct flyt_turns_state {
    struct flyt_turn_share share;
    uint64_t used_ns, waited_ns, overused_ns, grant_count;
    bool is_holder;
};

/* -ENOENT: no such tenant. */
int flyt_turns_read(const struct flyt_turns *turns, uint64_t tenant_id, struct flyt_turns_state *ret_state);
/* The tenants, into ret_ids (FLYT_TURN_TENANTS_MAX). Returns how many. */
unsigned flyt_turns_list(const struct flyt_turns *turns, uint64_t *ret_ids);
/* The servers, into ret_ids (FLYT_TURN_SERVERS_MAX). Returns how many. */
unsigned flyt_turns_servers(const struct flyt_turns *turns, uint64_t *ret_ids);
/* Whether the server has joined, whatever its tenant. */
bool flyt_turns_has(const struct flyt_turns *turns, uint64_t server_id);

#endif
