/*
 * The submission thread's loop.
 *
 * It never blocks in the driver. What waits for the GPU is a job whose fences are polled: without a pause at first,
 * because most waits are short and every wake-up from the kernel costs more than they take, then at intervals that
 * grow with the wait, to one part in POLL_PART of it, so that a long kernel costs neither a core nor noticeable delay.
 */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cpu/server/core/pieces.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/transport/endpoint/endpoint_poll.h"

enum {
    CALLS_PER_ROUND_MAX = 64,
    SPIN_NS = 60 * 1000,         /* without work, before the thread sleeps */
    SPIN_FEW_CPUS_NS = 5 * 1000, /* where spinning takes a core that others need */
    SPIN_ROUND_NS = 4 * 1000,    /* of that without looking for anything but what programs wait for */
    FEW_CPUS = 4,
    POLL_PART = 256,
    POLL_MIN_NS = 20 * 1000,
    POLL_MAX_NS = 250 * 1000,
    TURN_MAX_NS = 1000 * 1000 * 1000,
    QUIET_NS = 1000 * 1000, /* without a call, before a client hears that nothing is under way */
    PARTS_MAX = 15,
};

/* The parts that have something to do in each round: few of them, and a round is short. NULL behind the last. */
struct hooks {
    const struct flyt_part *before_calls[PARTS_MAX + 1], *advance[PARTS_MAX + 1], *rest[PARTS_MAX + 1];
};

struct idle {
    uint64_t since_ns; /* 0: the last round had work */
    uint64_t spin_ns;
    bool is_yielding;
    uint64_t gpu_since_ns; /* 0: the GPU had nothing to do in the last round */
};

static struct hooks find_hooks(const struct flyt_session *session)
{
    struct hooks hooks = {0};
    unsigned before_count = 0, advance_count = 0, rest_count = 0;
    for (unsigned i = 0; (*session->parts)[i]; i++) {
        const struct flyt_part *part = (*session->parts)[i];
        assert(i < PARTS_MAX);
        if (part->before_calls)
            hooks.before_calls[before_count++] = part;
        if (part->advance)
            hooks.advance[advance_count++] = part;
        if (part->rest)
            hooks.rest[rest_count++] = part;
    }
    return hooks;
}

/* Calls that came in. Returns whether there were any. */
static bool take_calls(struct flyt_session *session)
{
    struct flyt_error err; /* read only where the connection has said what is wrong */
    if (!session->connection)
        return false;
    if (session->receive)
        return session->receive(session);
    int count = flyt_connection_receive(session->connection, false, CALLS_PER_ROUND_MAX, &err);
    if (count >= 0)
        return true;
    if (count == -EAGAIN)
        return false;
    session->is_ended = true;
    if (count == -ETIMEDOUT) {
        flyt_session_end_vanished(session);
    } else if (count != -EPIPE) {
        snprintf(session->end_reason, sizeof session->end_reason, "bad message: %.400s", err.text);
        flyt_warn("session %s: bad message, the connection is closed, client_pid=%d: %s", session->label,
                  (int)session->client_pid, err.text);
    }
    return false;
}

static void flush(struct flyt_session *session)
{
    if (session->connection && flyt_connection_flush(session->connection) != 0)
        session->is_ended = true;
}

/*
 * Calls, and in a quiet session what programs wait for, calls and the ends of jobs, for some rounds' time: a look at
 * all the rest takes as long as a program's wait for a short kernel, and asks the driver for the same work once more.
 * Streams that nobody waits for are in the progress page, which needs that look. Returns whether there were any.
 */
static bool await_calls(struct flyt_session *session, const struct idle *idle)
{
    bool is_busy = take_calls(session);
    if (is_busy || !idle->since_ns || idle->is_yielding || (session->busy_first && !session->jobs.first))
        return is_busy;
    uint64_t now_ns = flyt_clock_ns(), end_ns = now_ns + SPIN_ROUND_NS;
    if (now_ns - idle->since_ns >= idle->spin_ns)
        return false;
    bool needs_poll;
    while (!session->is_ended && !atomic_load(&session->is_kicked) && flyt_clock_ns() < end_ns) {
        if (flyt_jobs_advance(session, &needs_poll)) {
            flush(session); /* who waits for a reply has it before the rest of the round */
            return true;
        }
        if (take_calls(session))
            return true;
    }
    return false;
}

static void take_kick(struct flyt_session *session)
{
    uint64_t count;
    if (!atomic_load(&session->is_kicked))
        return;
    if (read(session->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        flyt_warn("session %s: eventfd: %m", session->label);
    /* After the read, before the work is looked for: pairs with the exchange in flyt_session_kick. */
    atomic_store(&session->is_kicked, false);
    for (unsigned i = 0; (*session->parts)[i]; i++)
        if ((*session->parts)[i]->kicked)
            (*session->parts)[i]->kicked(session);
}

/* Jobs, full streams, deferred calls. Returns whether something happened; *ret_needs_poll: time can bring more. */
static bool advance(struct flyt_session *session, const struct hooks *hooks, bool needs_poll_before,
                    bool *ret_needs_poll)
{
    bool needs_poll;
    bool is_changed = flyt_jobs_advance(session, &needs_poll);
    needs_poll |= needs_poll_before;
    needs_poll |= flyt_stream_poll_full(session);
    for (const struct flyt_part *const *part = hooks->advance; *part; part++)
        needs_poll |= (*part)->advance(session);
    if (session->is_scan_due) {
        flyt_defer_scan(session);
        is_changed = true;
    } else if (session->is_retry_due) {
        flyt_defer_scan(session);
    }
    *ret_needs_poll = needs_poll || session->is_retry_due;
    return is_changed;
}

/* What is due before calls are taken. Returns whether time can bring more. */
static bool prepare_round(struct flyt_session *session, const struct hooks *hooks, const struct idle *idle)
{
    bool needs_poll = false;
    for (const struct flyt_part *const *part = hooks->before_calls; *part; part++)
        needs_poll |= (*part)->before_calls(session, idle->since_ns);
    return needs_poll;
}

/* And at the round's end. */
static bool end_round(struct flyt_session *session, const struct hooks *hooks, const struct idle *idle, bool is_busy)
{
    bool needs_poll = false;
    for (const struct flyt_part *const *part = hooks->rest; *part; part++)
        needs_poll |= (*part)->rest(session, is_busy ? 0 : idle->since_ns);
    return needs_poll;
}

/* Whether a session that has ended goes on without its client. */
static bool survives(struct flyt_session *session)
{
    for (unsigned i = 0; (*session->parts)[i]; i++)
        if ((*session->parts)[i]->survives && (*session->parts)[i]->survives(session))
            return true;
    return false;
}

bool flyt_session_can_tell(const struct flyt_session *session)
{
    return flyt_endpoint_wait(flyt_connection_endpoint(session->connection), FLYT_ENDPOINT_OUT, -1, 0) ==
           FLYT_ENDPOINT_OUT;
}

/* Whether so many calls came since the last notice that one is due though more are there. */
static bool is_notice_overdue(const struct flyt_session *session)
{
    return session->received_sequence - session->told_sequence >= FLYT_PROGRESS_CALLS;
}

/* The queue has run empty, or has not for long: the client hears of it once, so that calls never wait in its buffer
 * meanwhile, nor are kept for longer than needed. Returns whether it has still to be told. */
static bool tell_progress(struct flyt_session *session)
{
    if (!session->is_notice_due)
        return false;
    if (!flyt_session_can_tell(session))
        return true;
    session->is_notice_due = false;
    session->told_sequence = session->received_sequence;
    flyt_session_poll_streams(session);
    flyt_progress progress = flyt_session_progress(session);
    flyt_connection_call_back(session->connection, FLYT_BACK_PROGRESS, (xdrproc_t)xdr_flyt_progress, &progress);
    return false;
}

/*
 * A client of a node that sees no progress page hears, when it has been quiet for a moment, that all is complete, which
 * the last notice was too early to say: if this process ends then, the session can go on at another one. Returns
 * whether it has still to be told.
 */
static bool tell_completion(struct flyt_session *session, uint64_t idle_ns)
{
    bool is_told = session->told_complete == session->received_sequence || session->resume.state != FLYT_RESUME_NONE;
    if (!session->manager || session->progress_writer.shared || is_told || session->busy_first)
        return false; /* what is busy is looked after for the GPU time that it takes */
    if (idle_ns < QUIET_NS)
        return true;
    flyt_progress progress = flyt_session_progress(session);
    if (progress.completed != session->received_sequence)
        return false; /* what it waits for wakes this thread, or is polled */
    if (!flyt_session_can_tell(session))
        return true;
    session->told_complete = session->received_sequence;
    flyt_connection_call_back(session->connection, FLYT_BACK_PROGRESS, (xdrproc_t)xdr_flyt_progress, &progress);
    return false;
}

/*
 * GPU time, for the node manager: the time in which any stream had work whose end had not been seen. It is an upper
 * bound: an end is seen by the next poll, and work that waits for other sessions counts as well.
 */
static void measure(struct flyt_session *session, struct idle *idle, uint64_t now_ns)
{
    if (idle->gpu_since_ns)
        flyt_session_count(&session->gpu_time_ns, now_ns - idle->gpu_since_ns);
    idle->gpu_since_ns = session->busy_first ? now_ns : 0;
}

/* Publishes the progress. Returns whether time can bring more of it. */
static bool publish(struct flyt_session *session, struct idle *idle, bool is_busy)
{
    if (!session->progress_writer.shared && !session->manager)
        return false;
    uint64_t now_ns = flyt_clock_ns();
    uint64_t idle_ns = is_busy ? 0 : idle->since_ns ? now_ns - idle->since_ns : 1;
    bool needs_poll = session->progress_writer.shared ? flyt_progress_writer_publish(session, now_ns, idle_ns)
                                                      : flyt_progress_writer_look(session, idle_ns);
    if (session->manager)
        measure(session, idle, now_ns);
    return needs_poll;
}

static void rest(struct flyt_session *session, struct idle *idle, bool needs_poll)
{
    uint64_t now_ns = flyt_clock_ns();
    if (!idle->since_ns)
        idle->since_ns = now_ns;
    uint64_t waited_ns = now_ns - idle->since_ns;
    if (waited_ns < idle->spin_ns) {
        if (idle->is_yielding)
            sched_yield();
        return;
    }
    int64_t pause_ns = -1; /* until something comes */
    if (needs_poll) {
        uint64_t ns = waited_ns / POLL_PART;
        pause_ns = (int64_t)(ns < POLL_MIN_NS ? POLL_MIN_NS : ns > POLL_MAX_NS ? POLL_MAX_NS : ns);
    } else if (session->has_time_slices) {
        uint64_t ns = session->time_slice_again_ns > now_ns ? session->time_slice_again_ns - now_ns : 0;
        pause_ns = (int64_t)(ns < TURN_MAX_NS ? ns : TURN_MAX_NS);
    }
    int found = session->connection ? flyt_endpoint_wait(flyt_connection_endpoint(session->connection),
                                                         FLYT_ENDPOINT_IN, session->wake_fd, pause_ns)
                                    : flyt_endpoint_poll(NULL, session->wake_fd, pause_ns);
    if (found < 0 && found != -EINTR) {
        flyt_fail("session %s: poll: %s", session->label, strerror(-found));
        session->is_ended = true;
    }
}

void flyt_session_run(struct flyt_session *session)
{
    bool has_few_cpus = sysconf(_SC_NPROCESSORS_ONLN) <= FEW_CPUS;
    struct idle idle = {.spin_ns = has_few_cpus ? SPIN_FEW_CPUS_NS : SPIN_NS, .is_yielding = has_few_cpus};
    const struct hooks hooks = find_hooks(session);
    /* The kernel's default slack of 50 µs would more than double the shortest pauses. */
    prctl(PR_SET_TIMERSLACK, 1000);
    while (!session->is_ended || survives(session)) {
        bool needs_poll;
        bool is_waiting = prepare_round(session, &hooks, &idle);
        bool is_busy = await_calls(session, &idle);
        take_kick(session);
        is_busy |= advance(session, &hooks, is_waiting, &needs_poll);
        flush(session); /* likewise */
        if (!is_busy || is_notice_overdue(session))
            needs_poll |= tell_progress(session);
        bool is_going_on = is_busy || flyt_pieces_were_submitted(session);
        needs_poll |= publish(session, &idle, is_going_on);
        if (!is_busy)
            flyt_execution_write(session);
        needs_poll |= tell_completion(session, is_busy || !idle.since_ns ? 0 : flyt_clock_ns() - idle.since_ns);
        needs_poll |= end_round(session, &hooks, &idle, is_busy);
        flush(session);
        /* What is submitted piece by piece goes on at once; what else there is to tell does not wait for its end. */
        if (is_going_on)
            idle.since_ns = 0;
        else if (!session->is_ended)
            rest(session, &idle, needs_poll);
    }
    /* The client hears of the end now, however long the rest takes. */
    if (session->connection)
        flyt_endpoint_shut(flyt_connection_endpoint(session->connection), FLYT_ENDPOINT_BOTH);
}
