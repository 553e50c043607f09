/*
 * The submission thread's loop.
 *
 * It never blocks in the driver. What waits for the GPU is a job whose moments are polled: without a pause at first,
 * because most waits are short and every wake-up from the kernel costs more than they take, then at intervals that
 * grow with the wait, to one part in POLL_PART of it, so that a long kernel costs neither a core nor noticeable delay.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cpu/server/call.h"
#include "cpu/server/copying.h"
#include "cpu/server/left.h"
#include "cpu/server/limit.h"
#include "cpu/server/session.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

enum {
    CALLS_PER_ROUND_MAX = 64,
    SPIN_NS = 60 * 1000,         /* without work, before the thread sleeps */
    SPIN_FEW_CPUS_NS = 5 * 1000, /* where spinning takes a core that others need */
    FEW_CPUS = 4,
    POLL_PART = 64,
    POLL_MIN_NS = 20 * 1000,
    POLL_MAX_NS = 250 * 1000,
    TURN_MAX_NS = 1000 * 1000 * 1000,
    QUIET_NS = 1000 * 1000, /* without a call, before a client hears that nothing is under way */
};

struct idle {
    uint64_t since_ns; /* 0: the last round had work */
    uint64_t spin_ns;
    bool is_yielding;
    uint64_t gpu_since_ns; /* 0: the GPU had nothing to do in the last round */
};

/* The kernel's keepalive says so; watch.c, where the client owes an answer. */
static void end_vanished(struct flyt_session *session)
{
    session->is_ended = true;
    snprintf(session->end_reason, sizeof session->end_reason, "the client did not answer any more");
    flyt_warn("session %s: the client does not answer any more, client_pid=%d program=%s", session->label,
              (int)session->client_pid, session->client_name);
}

/* Calls that came in. Returns whether there were any. */
static bool take_calls(struct flyt_session *session)
{
    struct flyt_error err = {0};
    if (!session->connection)
        return false;
    if (flyt_move_is_leaving(&session->move))
        return flyt_left_read_out(session);
    int count = flyt_connection_receive(session->connection, false, CALLS_PER_ROUND_MAX, &err);
    if (count >= 0)
        return true;
    if (count == -EAGAIN)
        return false;
    session->is_ended = true;
    if (count == -ETIMEDOUT) {
        end_vanished(session);
    } else if (count != -EPIPE) {
        snprintf(session->end_reason, sizeof session->end_reason, "bad message: %.400s", err.text);
        flyt_warn("session %s: bad message, the connection is closed, client_pid=%d: %s", session->label,
                  (int)session->client_pid, err.text);
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
    bool is_broken =
        session->connection && !flyt_move_is_leaving(&session->move) && atomic_load(&session->transfers.is_broken);
    if (is_broken && atomic_load(&session->transfers.has_vanished)) {
        end_vanished(session);
    } else if (is_broken) {
        session->is_ended = true;
        snprintf(session->end_reason, sizeof session->end_reason, "a data stream was lost");
    }
    flyt_manager_process(session);
}

/* Jobs, full streams, parked calls. Returns whether something happened; *ret_needs_poll: time can bring more. */
static bool advance(struct flyt_session *session, bool needs_poll_before, bool *ret_needs_poll)
{
    bool needs_poll;
    bool is_changed = flyt_jobs_advance(session, &needs_poll);
    needs_poll |= needs_poll_before;
    needs_poll |= flyt_stream_poll_full(session);
    needs_poll |= flyt_staging_reap(&session->staging);
    if (session->left_count)
        needs_poll |= flyt_resize_advance(session);
    if (session->move.move_id || session->move.is_go_on_due)
        needs_poll |= flyt_move_advance(session);
    if (session->copying)
        needs_poll |= flyt_copying_advance(session);
    if (session->is_scan_due) {
        flyt_park_scan(session);
        is_changed = true;
    } else if (session->is_retry_due) {
        flyt_park_scan(session);
    }
    *ret_needs_poll = needs_poll || session->is_retry_due;
    return is_changed;
}

/* Gates of devices that are shared in time. Before calls are taken, so that none passes one whose time is over. Returns
 * whether time can bring more. */
static bool take_turns(struct flyt_session *session, const struct idle *idle)
{
    if (!session->has_turns)
        return false;
    uint64_t now_ns = flyt_clock_ns();
    return flyt_turns_advance(session, now_ns, idle->since_ns ? now_ns - idle->since_ns : 0, &session->turn_again_ns);
}

bool flyt_session_can_tell(const struct flyt_session *session)
{
    struct pollfd out = {.fd = flyt_connection_fd(session->connection), .events = POLLOUT};
    return poll(&out, 1, 0) == 1;
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
    if (!session->manager || session->page.shared || is_told || session->busy_first)
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
    if (!session->page.shared && !session->manager)
        return false;
    uint64_t now_ns = flyt_clock_ns();
    uint64_t idle_ns = is_busy ? 0 : idle->since_ns ? now_ns - idle->since_ns : 1;
    bool needs_poll =
        session->page.shared ? flyt_page_publish(session, now_ns, idle_ns) : flyt_page_look(session, idle_ns);
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
    struct timespec pause = {0};
    if (needs_poll) {
        uint64_t ns = waited_ns / POLL_PART;
        pause.tv_nsec = (long)(ns < POLL_MIN_NS ? POLL_MIN_NS : ns > POLL_MAX_NS ? POLL_MAX_NS : ns);
    } else if (session->has_turns) {
        uint64_t ns = session->turn_again_ns > now_ns ? session->turn_again_ns - now_ns : 0;
        pause.tv_sec = ns >= TURN_MAX_NS;
        pause.tv_nsec = ns >= TURN_MAX_NS ? 0 : (long)ns;
        needs_poll = true;
    }
    int main_fd = session->connection ? flyt_connection_fd(session->connection) : -1;
    struct pollfd polls[] = {{.fd = main_fd, .events = POLLIN}, {.fd = session->wake_fd, .events = POLLIN}};
    if (ppoll(polls, 2, needs_poll ? &pause : NULL, NULL) < 0 && errno != EINTR) {
        flyt_fail("session %s: poll: %m", session->label);
        session->is_ended = true;
    }
}

void flyt_session_run(struct flyt_session *session)
{
    bool has_few_cpus = sysconf(_SC_NPROCESSORS_ONLN) <= FEW_CPUS;
    struct idle idle = {.spin_ns = has_few_cpus ? SPIN_FEW_CPUS_NS : SPIN_NS, .is_yielding = has_few_cpus};
    /* The kernel's default slack of 50 µs would more than double the shortest pauses. */
    prctl(PR_SET_TIMERSLACK, 1000);
    while (!session->is_ended || flyt_move_take_end(session)) {
        bool needs_poll;
        bool is_waiting = take_turns(session, &idle);
        bool is_busy = take_calls(session);
        take_kick(session);
        is_busy |= advance(session, is_waiting, &needs_poll);
        if (!is_busy || is_notice_overdue(session))
            needs_poll |= tell_progress(session);
        needs_poll |= publish(session, &idle, is_busy);
        if (!is_busy)
            flyt_execution_write(session);
        needs_poll |= tell_completion(session, is_busy || !idle.since_ns ? 0 : flyt_clock_ns() - idle.since_ns);
        needs_poll |= flyt_limit_answer(session, is_busy || !idle.since_ns ? 0 : flyt_clock_ns() - idle.since_ns);
        if (session->connection && flyt_connection_flush(session->connection) != 0)
            session->is_ended = true;
        if (is_busy)
            idle.since_ns = 0;
        else if (!session->is_ended)
            rest(session, &idle, needs_poll);
    }
    /* The client hears of the end now, however long the rest takes. */
    if (session->connection)
        shutdown(flyt_connection_fd(session->connection), SHUT_RDWR);
}
