/*
 * The token of one set of SMs that VMs share in time. Who has it next follows by the rules of time_slice_rules.h from
 * what all their servers say; a thread of the process that made this (the node manager) applies them and writes the
 * outcome on a board that servers can only read. A server says how it is in a page of its own, which nobody else of
 * them has, rings, and sees on the board what it may (time_slice_seat.h). So a server that dies, is stopped, or writes
 * rubbish wherever it can writes nothing that another one reads, and there is no lock between them.
 *
 * What a server can do is to lie about itself. One that says that it works and does not give back keeps the token until
 * FLYT_TIME_SLICE_OVERRUN_MS after its end; then the others go on beside it, and its tenant pays for it until it says
 * that it is done. So does one that says that it works and has not got the token. One that says that it does not work,
 * and does, is not seen here: flyt_time_slices_look tells what each has said, for somebody who sees what the GPU does.
 *
 * While the thread is away (the process was stopped, killed, or is restarted) servers go on by the clock: in each
 * FLYT_TIME_SLICE_CYCLE_MS every tenant has its part, whether it needs it or not.
 *
 * Any thread; what waits, waits for the thread's own work of microseconds.
 */
#ifndef FLYT_BASE_TIME_SLICES_H
#define FLYT_BASE_TIME_SLICES_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/time_slice_rules.h"

/* Of a place: the board, sealed against writing; the page; the bell (eventfd). */
enum { FLYT_TIME_SLICES_FDS = 3 };

struct flyt_time_slices;

/* 0 or a negative errno. */
int flyt_time_slices_new(struct flyt_time_slices **ret_time_slices);
/* Ends the thread. NULL is allowed. Returns NULL. */
struct flyt_time_slices *flyt_time_slices_close(struct flyt_time_slices *time_slices);
/* The board's, by which one is told from another. */
int flyt_time_slices_fd(const struct flyt_time_slices *time_slices);

/* As flyt_time_slice_table_…, now. */
int flyt_time_slices_set(struct flyt_time_slices *time_slices, uint64_t tenant_id,
                         const struct flyt_time_slice_share *share, uint64_t revision);
void flyt_time_slices_remove(struct flyt_time_slices *time_slices, uint64_t tenant_id);
/* A place for a server of the tenant, with a new page, where it has one already, too. ret_fds (FLYT_TIME_SLICES_FDS)
 * are to be handed to it; they stay this one's, until it leaves or joins again. 0; -ENOENT: no such tenant; -ENOSPC;
 * another negative errno. */
int flyt_time_slices_join(struct flyt_time_slices *time_slices, uint64_t tenant_id, uint64_t server_id, int *ret_fds);
void flyt_time_slices_leave(struct flyt_time_slices *time_slices, uint64_t server_id);

struct flyt_time_slices_state {
    struct flyt_time_slice_share share;
    uint64_t used_ns, waited_ns, overused_ns, grant_count;
    bool is_holder;
};

/* -ENOENT: no such tenant. */
int flyt_time_slices_read(struct flyt_time_slices *time_slices, uint64_t tenant_id,
                          struct flyt_time_slices_state *ret_state);
/* The tenants, into ret_ids (FLYT_TIME_SLICE_TENANTS_MAX). Returns how many. */
unsigned flyt_time_slices_list(struct flyt_time_slices *time_slices, uint64_t *ret_ids);
/* The servers, into ret_ids (FLYT_TIME_SLICE_SERVERS_MAX). Returns how many. */
unsigned flyt_time_slices_servers(struct flyt_time_slices *time_slices, uint64_t *ret_ids);

/* What a server has said. */
struct flyt_time_slices_server {
    uint64_t server_id;
    uint64_t said_ns; /* for how long it has said since it joined that it works, or was offered to; never too little */
    uint64_t over_ns; /* for how long others have not waited for what it says it has on the GPU; 0: they do */
    bool is_kept;     /* of these: it says so as if it had the token */
    bool is_stray;    /* it says so, has not got the token, and nobody pays for it: it may have stopped */
};

/* All of them, into ret_servers (FLYT_TIME_SLICE_SERVERS_MAX). Returns how many. */
unsigned flyt_time_slices_look(struct flyt_time_slices *time_slices, struct flyt_time_slices_server *ret_servers);
/* The server works, whatever it says: its tenant pays for that until it says that it is done. */
void flyt_time_slices_mark_over(struct flyt_time_slices *time_slices, uint64_t server_id);
/* Its tenant pays for so much GPU time that it has not said. */
void flyt_time_slices_charge(struct flyt_time_slices *time_slices, uint64_t server_id, uint64_t ns);
/* Whether the server has joined, whatever its tenant. */
bool flyt_time_slices_has(struct flyt_time_slices *time_slices, uint64_t server_id);

#endif
