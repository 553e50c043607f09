/*
 * The call record: memory in which a server writes, call by call, what it is doing, so that the node manager, which
 * has it too, can say what had been done when the server's process is dead. A call that had not begun was not executed,
 * wherever it was: its client sends it again to the next server (resume_rule.h).
 *
 * The server makes it when it gets a session and hands it over (RECORD, manager_link.h). Only its submission thread
 * writes: `begun` before it executes a call, `executed` when every call up to that one was executed (after which errors
 * have been counted), `completed` when their work is done, too. None of them is ever ahead of the truth; the last two
 * may be behind it. They go back but once, when the session goes on behind another number (resume.h). Nobody reads it
 * before the process has ended, or has stopped its session to be left (STOPPED): a dead process's writes are all there,
 * in their order, and one that has stopped writes nothing more.
 */
#ifndef FLYT_TRANSPORT_CALL_RECORD_H
#define FLYT_TRANSPORT_CALL_RECORD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define FLYT_CALL_RECORD_MAGIC 0x6c6c616374796c66ull /* "flytcall" in memory */

enum { FLYT_CALL_RECORD_BYTES = 4096 };

struct flyt_call_record {
    uint64_t magic;
    _Atomic(uint64_t) begun;       /* the highest number of a call of which anything may have been done */
    _Atomic(uint64_t) executed;    /* as in flyt_progress */
    _Atomic(uint64_t) completed;   /* as in flyt_progress */
    _Atomic(uint64_t) error_count; /* FLYT_BACK_CALL_ERROR and _FATAL handed to this connection so far */
    uint64_t reserved[507];
};

_Static_assert(sizeof(struct flyt_call_record) == FLYT_CALL_RECORD_BYTES, "layout of the call record");
_Static_assert(offsetof(struct flyt_call_record, begun) == 8, "layout of the call record");
_Static_assert(offsetof(struct flyt_call_record, error_count) == 32, "layout of the call record");
_Static_assert(sizeof(_Atomic(uint64_t)) == 8 && ATOMIC_LLONG_LOCK_FREE == 2, "shared between processes: no lock");

/* What it says at one moment; as RESUME and session_left_at have it. */
struct flyt_call_state {
    uint64_t begun, executed, completed, error_count;
};

/* The server's side: a new one, mapped for writing until flyt_call_record_unmap, and a descriptor of it, which the
 * caller closes. 0 or a negative errno, as flyt_sealed_new. */
int flyt_call_record_new(struct flyt_call_record **ret_record, int *ret_fd);

/* The node manager's: maps the one that came as fd, which stays the caller's, for reading. 0; -EINVAL, -EPROTO: it is
 * none; or a negative errno. */
int flyt_call_record_map(int fd, const struct flyt_call_record **ret_record);

/* What it says, of a server that has ended or stopped. */
struct flyt_call_state flyt_call_record_read(const struct flyt_call_record *record);

/* NULL is allowed. */
void flyt_call_record_unmap(const struct flyt_call_record *record);

/* ---- the server's submission thread ---- */

static inline void flyt_call_record_begin(struct flyt_call_record *record, uint64_t sequence)
{
    /* A call that had to wait begins after later ones. */
    if (atomic_load_explicit(&record->begun, memory_order_relaxed) < sequence)
        atomic_store_explicit(&record->begun, sequence, memory_order_relaxed);
    /* What follows is done by the driver, in functions that the compiler does not see into; the barrier keeps inlined
     * parts behind it. */
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void flyt_call_record_set(_Atomic(uint64_t) *number, uint64_t sequence)
{
    atomic_store_explicit(number, sequence, memory_order_release);
}

#endif
