#include "rpc/transport/channel_state.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include "flyt_client_calls.h"
#include "rpc/base/clock.h"
#include "rpc/base/deadline.h"
#include "rpc/base/log.h"
#include "rpc/base/url.h"

enum {
    LAST_READ_MS = 1000, /* how long a server that is gone may take to end the connection */
    HANDLER_MS = 5000,   /* and a handler, which is to be quick, to return */
    PAUSE_MS_MIN = 4,    /* between tries; a quarter longer each time: a process takes some 40 ms to leave a GPU */
    PAUSE_MS_MAX = 200,
    ASK_PAUSE_MS_MIN = 100 /* where each try asks others than the node */
};

/* One going on of a session, on the stack of the background thread. */
struct resumption {
    struct flyt_channel *channel;
    uint64_t after;
    uint64_t start_ms, end_ms; /* no try begins after the latter; UINT64_MAX: for ever */
    bool is_moved;             /* what fails is begun again as a whole */
    bool is_stopped;           /* not is_moved, and the program stood still to be moved: it may be elsewhere by now */
    bool is_asked;             /* where it is, each time; is_stopped, is_unreached: every other time */
    bool is_unreached;         /* it was at a unix socket that could not be connected to: its node may have others */
    struct flyt_resume_state state;
    const char *doubt; /* what stands against it unless the next server knows better; NULL: nothing, `after` is set */
    unsigned located_count; /* addresses that were tried, those of who was busy once */
    uint64_t refused_ms;    /* since when every answer has been a refusal; 0: the last one was none */
    struct steps {          /* when they were over (flyt_clock_ns) */
        uint64_t begin_ns;  /* all of it began */
        uint64_t left_ns;   /* the old connection */
        uint64_t try_ns;    /* the last try began */
        uint64_t fresh_ns;  /* connected, the handshake included */
        uint64_t begun_ns;  /* session_resume_begin, or that nothing is to be made */
        uint64_t made_ns;   /* all objects */
        uint64_t ended_ns;  /* session_resume_end */
        uint64_t taken_ns;  /* the channel has the new connection */
        unsigned try_count;
    } steps;
    /* Of one try: */
    bool is_lost;             /* it had a server, which was lost */
    _Atomic(bool) has_failed; /* what the other server has said against it; `failure` is there then */
    _Atomic(bool) is_refused; /* it was a call of the handler's: that can say what of */
    char failure[256];
};

/* ---- what the other server calls meanwhile ---- */

/* From the threads that read the fresh connection, one at a time. */
static void note_failure(struct resumption *self, const char *what, int result)
{
    if (atomic_load(&self->has_failed))
        return;
    snprintf(self->failure, sizeof self->failure, "%.200s (%d)", what, result);
    atomic_store(&self->has_failed, true);
}

static void *chunk_place(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    return NULL;
}

static void chunk_done(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
}

static void pull(void *user, uint64_t transfer_id)
{
    note_failure(user, "the other server asked for data that nobody offered", 0);
}

static void host_function(void *user, uint64_t function_id, int status)
{
    note_failure(user, "the other server called a function that nobody launched", status);
}

static void output(void *user, bool is_error, const char *text, size_t bytes)
{
    struct flyt_channel *channel = ((struct resumption *)user)->channel;

    channel->handlers->output(channel->user, is_error, text, bytes);
}

static void call_error(void *user, uint64_t sequence, uint32_t thread, int result)
{
    struct resumption *self = user;

    self->channel->handlers->call_error(self->channel->user, sequence, thread, result);
    if (!atomic_load(&self->has_failed))
        atomic_store(&self->is_refused, true);
    note_failure(self, "the other server could not make the session's objects again", result);
}

static void fatal(void *user, int result, const char *cause)
{
    note_failure(user, cause, result);
}

static void credit(void *user, uint64_t stream_id, uint64_t executed_calls)
{
}

static void transfer_failed(void *user, uint64_t transfer_id, int result)
{
    note_failure(user, "a transfer to the other server failed", result);
}

static void over_budget(void *user, uint32_t device, uint64_t bytes)
{
    struct flyt_channel *channel = ((struct resumption *)user)->channel;

    if (channel->handlers->over_budget)
        channel->handlers->over_budget(channel->user, device, bytes);
}

static void lost(void *user, const char *cause)
{
}

static const struct flyt_channel_handlers handlers = {
    .chunk_place = chunk_place,
    .chunk_done = chunk_done,
    .pull = pull,
    .host_function = host_function,
    .output = output,
    .call_error = call_error,
    .fatal = fatal,
    .credit = credit,
    .transfer_failed = transfer_failed,
    .over_budget = over_budget,
    .lost = lost,
};

/* ---- the old connection ---- */

static bool is_over(struct flyt_channel *channel)
{
    pthread_mutex_lock(&channel->mutex);
    bool is_ended = channel->is_closing || !flyt_channel_is_away(channel);
    pthread_mutex_unlock(&channel->mutex);
    return is_ended;
}

/* Whether somebody else is the reader for no longer than this. */
static void wait_reader(struct flyt_channel *channel)
{
    struct timespec end = flyt_deadline_ms(20);

    pthread_mutex_lock(&channel->mutex);
    if (channel->has_reader)
        pthread_cond_clockwait(&channel->reader_left, &channel->mutex, CLOCK_MONOTONIC, &end);
    pthread_mutex_unlock(&channel->mutex);
}

static bool is_read_out(struct flyt_channel *channel)
{
    pthread_mutex_lock(&channel->mutex);
    bool is_out = channel->is_read_out && !channel->has_reader;
    pthread_mutex_unlock(&channel->mutex);
    return is_out;
}

/* What the old server has said is read to the end, by whoever is the reader. False: not within the time. */
static bool read_until(struct flyt_channel *channel, uint64_t deadline_ms)
{
    while (!is_read_out(channel) && flyt_clock_left_ms(deadline_ms)) {
        pthread_mutex_lock(&channel->mutex);
        bool has_reader = channel->has_reader;
        pthread_mutex_unlock(&channel->mutex);
        if (has_reader)
            wait_reader(channel);
        else if (!flyt_endpoint_await(channel->endpoint, FLYT_ENDPOINT_IN, -1, deadline_ms))
            flyt_channel_read(channel);
    }
    return is_read_out(channel);
}

static bool is_sending(struct flyt_channel *channel)
{
    pthread_mutex_lock(&channel->data.mutex);
    bool has_jobs = channel->data.job_count;
    pthread_mutex_unlock(&channel->data.mutex);
    return has_jobs || atomic_load(&channel->chunked_count);
}

/* A server that moves the session has all data, also such as was sent behind session_stopped: a thread that has sent
 * the last of it may still have to see that. */
static void await_senders(struct flyt_channel *channel)
{
    uint64_t deadline_ms = flyt_clock_ms() + HANDLER_MS;

    while (is_sending(channel) && flyt_clock_left_ms(deadline_ms))
        poll(NULL, 0, 1);
}

/* Nothing is read or written any more, and all threads have let go of the old connection. 0 or a negative errno. */
static int leave_connection(struct flyt_channel *channel, bool is_moved, struct flyt_error *err)
{
    eventfd_t value;

    if (is_moved)
        await_senders(channel);
    if (!flyt_data_leave(channel))
        return flyt_error_set(err, -EBUSY, "a transfer was under way");
    eventfd_write(channel->lost_fd, 1); /* who opens data streams gives up */
    /* It ends what is in write, and a server that lives. What a dead one has sent can still be read. */
    flyt_endpoint_shut(channel->endpoint, FLYT_ENDPOINT_WRITING);
    flyt_output_hold(&channel->output);
    if (!read_until(channel, flyt_clock_ms() + LAST_READ_MS)) {
        flyt_endpoint_shut(channel->endpoint, FLYT_ENDPOINT_BOTH);
        if (!read_until(channel, flyt_clock_ms() + HANDLER_MS))
            return flyt_error_set(err, -EBUSY, "a handler did not return");
    }
    if (!flyt_data_end(channel))
        return flyt_error_set(err, -EBUSY, "a transfer was under way");
    eventfd_read(channel->lost_fd, &value);
    if (is_over(channel)) /* it was meant for good */
        eventfd_write(channel->lost_fd, 1);
    return 0;
}

/* ---- the other one ---- */

/* Whether the other server is one for this session. */
static int check_fresh(const struct flyt_channel *channel, const struct flyt_channel *fresh, struct flyt_error *err)
{
    if (fresh->info.session_id != channel->info.session_id)
        return flyt_error_set(err, -EPROTO, "the other server answered with another session");
    if (fresh->info.device_count != channel->info.device_count)
        return flyt_error_set(err, -EPROTO, "the other server has %u devices in place of %u", fresh->info.device_count,
                              channel->info.device_count);
    for (unsigned procedure = 0; procedure < flyt_procedure_end; procedure++) {
        if (channel->accepted[procedure] && !fresh->accepted[procedure])
            return flyt_error_set(err, -EPROTO, "the other server (build %s) lacks procedure %u, which the first had",
                                  fresh->info.server_build, procedure);
    }
    return 0;
}

/* Whether this try asks where the session is; else it is looked for where it was. */
static bool asks(const struct resumption *self)
{
    return self->is_asked && !((self->is_stopped || self->is_unreached) && self->steps.try_count % 2);
}

/* One try. 0 and *ret_fresh, or a negative errno. */
static int connect_fresh(struct resumption *self, struct flyt_error *err, struct flyt_channel **ret_fresh)
{
    struct flyt_channel *channel = self->channel;
    uint64_t deadline_ms = flyt_clock_ms() + channel->connect_timeout_ms;
    struct flyt_channel_place place = {.credentials = channel->credentials};
    int status = 0;

    memcpy(place.url, channel->url, sizeof channel->url);
    if (asks(self))
        status = channel->handlers->locate(channel->user, self->located_count, &place, err);
    if (!status)
        status = flyt_channel_open_fresh(channel, &place, &handlers, self,
                                         deadline_ms < self->end_ms ? deadline_ms : self->end_ms, err, ret_fresh);
    /* Who is busy has answered: another of its addresses would say the same. */
    self->located_count += asks(self) && status != -EBUSY;
    explicit_bzero(&place, sizeof place);
    return status;
}

/* What a call of our own on the fresh connection has come to. 0 or a negative errno. */
static int check_call(const struct resumption *self, const struct flyt_channel *fresh, const char *name, int status,
                      int result, struct flyt_error *err)
{
    if (atomic_load(&self->has_failed))
        return flyt_error_set(err, -EPROTO, "%s", self->failure);
    if (status == FLYT_CHANNEL_LOST)
        return flyt_error_set(err, -EPIPE, "the other server's connection was lost too: %.300s", fresh->lost_cause);
    if (status)
        return flyt_error_set(err, -ENOSYS, "the other server lacks %s", name);
    if (result)
        return flyt_error_set(err, -EPROTO, "the other server refused %s (%d)", name, result);
    return 0;
}

/* Whether the server has everything as it was when it was left. 0 or a negative errno. */
static int ask_whole(const struct resumption *self, struct flyt_channel *fresh, struct flyt_error *err,
                     bool *ret_is_whole)
{
    flyt_session_is_whole_args args = {0};
    flyt_session_is_whole_res res = {0};

    *ret_is_whole = false;
    if ((!self->is_moved && !self->is_stopped) || !flyt_channel_has(fresh, FLYT_SESSION_IS_WHOLE))
        return 0;
    int called = flyt_call_session_is_whole(fresh, &args, &res);
    *ret_is_whole = res.is_whole;
    return check_call(self, fresh, "session_is_whole", called, res.result, err);
}

/* What the dead server had begun, of which its node may know more than it told us. 0, and there is no doubt any more;
 * or a negative errno. */
static int ask_left_at(struct resumption *self, struct flyt_channel *fresh, struct flyt_error *err)
{
    flyt_session_left_at_args args = {0};
    flyt_session_left_at_res res = {0};
    uint64_t last_fixed;

    if (!flyt_channel_has(fresh, FLYT_SESSION_LEFT_AT))
        return flyt_error_set(err, -ENOSYS, "the other server lacks session_left_at");
    int called = flyt_call_session_left_at(fresh, &args, &res);
    int status = check_call(self, fresh, "session_left_at", called, res.result, err);
    if (status)
        return status;
    if (!res.is_known)
        return flyt_error_set(err, -ENODATA, "nobody knows what was executed");
    const struct flyt_call_state record = {res.begun, res.executed, res.completed, res.error_count};
    /* A dead server has begun whatever it has said to be complete: that is what another one knew before. */
    if (self->state.complete > record.begun)
        return flyt_error_set(err, -EPROTO, "what the other server has is older than what is known");
    if (!flyt_channel_find_fixed(self->channel, record.begun, &last_fixed))
        return flyt_error_set(err, -EPROTO, "what is kept of it cannot be read");
    self->doubt = flyt_resume_obstacle_of_record(&self->state, &record, last_fixed, &self->after);
    flyt_debug("session was left server=%s begun=%" PRIu64 " executed=%" PRIu64 " completed=%" PRIu64
               " written=%" PRIu64 " last_fixed=%" PRIu64 ": %s",
               fresh->url, record.begun, record.executed, record.completed, self->state.written, last_fixed,
               self->doubt ? self->doubt : "goes on");
    return self->doubt ? flyt_error_set(err, -ECANCELED, "%s", self->doubt) : 0;
}

/* Nothing is made again: what this server has told of errors has all been heard. 0 or a negative errno. */
static int return_to(struct resumption *self, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct flyt_channel *channel = self->channel;
    const struct flyt_progress_page *page = atomic_load(&fresh->page);
    struct flyt_error cause = {0};

    if (page) {
        fresh->error_base = atomic_load(&page->error_count);
        atomic_fetch_add(&fresh->error_count, fresh->error_base);
    }
    channel->resume_after = self->after;
    int status = channel->handlers->resume(channel->user, NULL, &cause);
    return status ? flyt_error_set(err, -EPROTO, "%.400s", *cause.text ? cause.text : "something is missing") : 0;
}

/* Lets the server say why, for who moves the session. Whether it can is no matter: the program says so, too. */
static void tell_why(struct flyt_channel *fresh, const char *why)
{
    char text[FLYT_STRING_BYTES_MAX];
    flyt_session_resume_fail_args args = {.reason = text};
    flyt_session_resume_fail_res res = {0};

    snprintf(text, sizeof text, "%.400s", why);
    if (flyt_channel_has(fresh, FLYT_SESSION_RESUME_FAIL))
        flyt_call_session_resume_fail(fresh, &args, &res);
}

/* Everything is made again. 0 or a negative errno. */
static int make_again(struct resumption *self, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct flyt_channel *channel = self->channel;
    flyt_session_resume_begin_args begin = {0};
    flyt_session_resume_begin_res begin_res = {0};
    struct flyt_error cause = {0};

    int called = flyt_call_session_resume_begin(fresh, &begin, &begin_res);
    int status = check_call(self, fresh, "session_resume_begin", called, begin_res.result, err);
    if (status)
        return status;
    self->steps.begun_ns = flyt_clock_ns();
    channel->resume_after = self->after;
    status = channel->handlers->resume(channel->user, fresh, &cause);
    self->steps.made_ns = flyt_clock_ns();
    if (*cause.text)
        tell_why(fresh, cause.text);
    bool is_named = *cause.text && atomic_load(&self->is_refused);
    if (status && !is_named && (status = check_call(self, fresh, "the session's objects", FLYT_CHANNEL_OK, 0, err)))
        return status;
    if (status || *cause.text)
        return flyt_error_set(err, -EPROTO, "%.400s", *cause.text ? cause.text : "the program cannot be restored");
    /* It is not told to go on after an error that is known. */
    return check_call(self, fresh, "the session's objects", FLYT_CHANNEL_OK, 0, err);
}

/* The session is as it was after call `after`. 0 or a negative errno. */
static int restore(struct resumption *self, struct flyt_channel *fresh, struct flyt_error *err)
{
    flyt_session_resume_end_args end = {.sequence = self->after};
    flyt_session_resume_end_res end_res = {0};
    bool is_whole;

    int status = ask_whole(self, fresh, err, &is_whole);
    if (!status)
        status = is_whole ? return_to(self, fresh, err) : make_again(self, fresh, err);
    if (status)
        return status;
    int called = flyt_call_session_resume_end(fresh, &end, &end_res);
    self->steps.ended_ns = flyt_clock_ns();
    return check_call(self, fresh, "session_resume_end", called, end_res.result, err);
}

/* The fresh channel's threads end, its connection stays. 0 or a negative errno. */
static int dissolve(struct resumption *self, struct flyt_channel *fresh, struct flyt_error *err)
{
    fresh->data.ops->shutdown(fresh); /* what was to be sent has been, over the main connection: it has no streams */
    fresh->data.ops->join(fresh);
    flyt_channel_flush(fresh);
    pthread_mutex_lock(&fresh->mutex);
    fresh->is_closing = true;
    pthread_mutex_unlock(&fresh->mutex);
    flyt_channel_kick(fresh);
    pthread_join(fresh->background, NULL);
    fresh->has_background = false;
    return check_call(self, fresh, "", flyt_channel_is_lost(fresh) ? FLYT_CHANNEL_LOST : FLYT_CHANNEL_OK, 0, err);
}

/* From here on closing the channel, or losing it, ends what is waited for on the fresh one. */
static void set_fresh(struct flyt_channel *channel, struct flyt_channel *fresh)
{
    pthread_mutex_lock(&channel->mutex);
    channel->fresh = fresh;
    bool is_ended = channel->is_closing || !flyt_channel_is_away(channel);
    pthread_mutex_unlock(&channel->mutex);
    if (fresh && is_ended)
        flyt_channel_lose(fresh, "closed");
}

/* All of it once. 0 or a negative errno; *ret_is_connected: the node has let us in. */
static int try_once(struct resumption *self, struct flyt_error *err, bool *ret_is_connected)
{
    struct flyt_channel *channel = self->channel, *fresh;

    atomic_store(&self->has_failed, false);
    atomic_store(&self->is_refused, false);
    self->steps.try_ns = flyt_clock_ns();
    self->steps.try_count++;
    int status = connect_fresh(self, err, &fresh);
    self->steps.fresh_ns = self->steps.begun_ns = self->steps.made_ns = flyt_clock_ns();
    *ret_is_connected = !status;
    if (status)
        return status;
    set_fresh(channel, fresh);
    status = check_fresh(channel, fresh, err);
    if (!status && self->doubt)
        status = ask_left_at(self, fresh, err);
    if (!status)
        status = restore(self, fresh, err);
    if (!status)
        status = dissolve(self, fresh, err);
    if (!status)
        status = flyt_channel_adopt(channel, fresh, self->after, err);
    self->steps.taken_ns = flyt_clock_ns();
    set_fresh(channel, NULL);
    self->is_lost = flyt_channel_is_lost(fresh);
    if (fresh->has_background)
        flyt_channel_close(fresh);
    else
        flyt_channel_free(fresh);
    return status;
}

/* Whether nobody was there to let us in, or not now. */
static bool is_absence(int status)
{
    switch (status) {
    case -ECONNREFUSED: /* also: it closed the connection instead of answering */
    case -ECONNRESET:
    case -ECONNABORTED:
    case -EPIPE:
    case -ENOENT: /* a unix socket, while who listens starts again */
    case -EBUSY:
    case -EAGAIN:
    case -ETIMEDOUT:
        return true;
    default:
        return false;
    }
}

static bool may_try_again(struct resumption *self, int status, bool is_connected)
{
    /* One that may have been moved is somewhere as a whole, too: a server that is gone again was not the last one. */
    if (is_connected ? self->is_moved || (self->is_stopped && self->is_lost) : is_absence(status)) {
        self->refused_ms = 0;
        return true;
    }
    if (is_connected || !self->is_asked || status == -ESTALE)
        return false;
    /* What was granted may not hold any more, or not yet where it is to hold. */
    uint64_t now_ms = flyt_clock_ms();
    if (!self->refused_ms)
        self->refused_ms = now_ms;
    return now_ms - self->refused_ms < FLYT_CHANNEL_RESUME_MS;
}

/* After a try that did not get in where the session was: a unix socket may be gone for good, and so may vsock where the
 * virtual machine has moved to another host, while its node has others.
 * Who is busy, or slow, is there. */
static void doubt_socket(struct resumption *self, int status)
{
    const struct flyt_channel *channel = self->channel;
    struct flyt_url url;

    if (self->is_asked || !channel->handlers->locate || status == -EBUSY || status == -ETIMEDOUT ||
        flyt_url_parse(channel->url, NULL, &url))
        return;
    self->is_asked = self->is_unreached = url.scheme != FLYT_URL_TCP;
}

/* 0, or a negative errno with what the last try came to. */
static int go_on(struct resumption *self, struct flyt_error *err)
{
    unsigned pause_ms = self->is_asked && !self->is_stopped ? ASK_PAUSE_MS_MIN : PAUSE_MS_MIN;
    struct pollfd over = {.fd = self->channel->lost_fd, .events = POLLIN};
    struct flyt_error before = {0};

    for (;;) {
        bool is_connected;
        *err = (struct flyt_error){0};
        int status = try_once(self, err, &is_connected);
        bool is_late = !flyt_clock_left_ms(self->end_ms);
        if (is_late && status == -ETIMEDOUT && *before.text)
            *err = before; /* that one was cut off by the end of the time, and says nothing */
        if (!status || is_late || !may_try_again(self, status, is_connected))
            return status;
        before = *err;
        if (!is_connected)
            doubt_socket(self, status);
        flyt_debug("session does not go on yet server=%s: %s", self->channel->url, err->text);
        if (poll(&over, 1, (int)pause_ms) != 0)
            return flyt_error_set(err, -ECANCELED, "closed");
        pause_ms = 5 * pause_ms / 4 < PAUSE_MS_MAX ? 5 * pause_ms / 4 : PAUSE_MS_MAX;
    }
}

/* ---- all of it ---- */

/* NULL, or what was unfinished. What the node may know better is a doubt for now. */
static const char *find_obstacle(struct resumption *self, struct flyt_error *err)
{
    if (leave_connection(self->channel, self->is_moved, err))
        return err->text;
    if (!flyt_channel_find_state(self->channel, &self->state))
        return "what is kept of it cannot be read";
    const char *obstacle = flyt_resume_obstacle(&self->state, &self->after);
    if (!obstacle || self->is_moved || self->state.is_moved || flyt_resume_obstacle_for_ever(&self->state))
        return obstacle;
    self->doubt = obstacle;
    return NULL;
}

/* The calls that waited go out; whoever reads goes on where the socket does not take all. */
static void write_kept(struct flyt_channel *channel)
{
    flyt_output_lock(&channel->output);
    int status = flyt_channel_write_locked(channel, false);
    flyt_output_unlock(&channel->output);
    if (status)
        flyt_channel_lose(channel, strerror(-status));
}

static void take_orders(struct resumption *self)
{
    struct flyt_channel *channel = self->channel;

    flyt_output_lock(&channel->output);
    bool has_stopped = flyt_send_gate_is_shut(channel) && channel->gate.answer;
    flyt_output_unlock(&channel->output);
    pthread_mutex_lock(&channel->mutex);
    self->is_moved = channel->is_patient;
    self->is_stopped = !self->is_moved && has_stopped;
    self->end_ms = self->start_ms + (self->is_stopped ? FLYT_CHANNEL_STOPPED_MS : FLYT_CHANNEL_RESUME_MS);
    if (self->is_moved)
        self->end_ms = channel->moved.wait_ms ? self->start_ms + channel->moved.wait_ms : UINT64_MAX;
    self->is_asked = (self->is_stopped || (self->is_moved && channel->moved.flags & FLYT_MOVED_ASK_AGAIN)) &&
                     channel->handlers->locate;
    pthread_mutex_unlock(&channel->mutex);
}

enum flyt_channel_reach flyt_channel_region_reach(struct flyt_channel *channel)
{
    pthread_mutex_lock(&channel->mutex);
    bool is_told = channel->is_patient, is_reached = channel->moved.flags & FLYT_MOVED_REACHED;
    pthread_mutex_unlock(&channel->mutex);
    return is_told ? is_reached ? FLYT_CHANNEL_REACHED : FLYT_CHANNEL_UNREACHED : FLYT_CHANNEL_REACH_UNKNOWN;
}

static uint64_t us_between(uint64_t begin_ns, uint64_t end_ns)
{
    return (end_ns - begin_ns) / 1000;
}

/* One behind the other; of several tries those before the last are `tries`. */
static void log_steps(const struct resumption *self)
{
    const struct steps *steps = &self->steps;

    flyt_debug("session goes on: leave_us=%" PRIu64 " tries=%u tries_us=%" PRIu64 " connect_us=%" PRIu64
               " begin_us=%" PRIu64 " objects_us=%" PRIu64 " end_us=%" PRIu64 " take_us=%" PRIu64 " rest_us=%" PRIu64,
               us_between(steps->begin_ns, steps->left_ns), steps->try_count, us_between(steps->left_ns, steps->try_ns),
               us_between(steps->try_ns, steps->fresh_ns), us_between(steps->fresh_ns, steps->begun_ns),
               us_between(steps->begun_ns, steps->made_ns), us_between(steps->made_ns, steps->ended_ns),
               us_between(steps->ended_ns, steps->taken_ns), us_between(steps->taken_ns, flyt_clock_ns()));
}

void flyt_channel_resume(struct flyt_channel *channel)
{
    struct resumption self = {.channel = channel, .start_ms = flyt_clock_ms(), .steps = {.begin_ns = flyt_clock_ns()}};
    struct flyt_error err = {0};
    char cause[sizeof channel->lost_cause];

    take_orders(&self);
    const char *obstacle = find_obstacle(&self, &err);
    self.steps.left_ns = flyt_clock_ns();
    int status = obstacle ? -ECANCELED : go_on(&self, &err);
    if (status && !obstacle)
        obstacle = self.doubt;
    if (obstacle) {
        /* Its node may know why nobody could have told what was executed. */
        const bool has_why = status == -ESTALE && *err.text;
        snprintf(cause, sizeof cause, "%.100s while work was unfinished: %.80s%s%.300s%s",
                 self.is_moved ? channel->away_cause : "the server process ended", obstacle, has_why ? " (" : "",
                 has_why ? err.text : "", has_why ? ")" : "");
        flyt_channel_lose(channel, cause);
        return;
    }
    if (status) {
        snprintf(cause, sizeof cause, "%.100s, and %s cannot go on at another one: %.300s", channel->away_cause,
                 self.is_moved ? "it" : "the session", err.text);
        flyt_channel_lose(channel, cause);
        return;
    }
    flyt_data_return(channel);
    write_kept(channel);
    flyt_info("session goes on at another server server=%s calls=%" PRIu64 " away_ms=%" PRIu64, channel->url,
              self.after, flyt_clock_ms() - self.start_ms);
    log_steps(&self);
}

uint64_t flyt_channel_resume_after(const struct flyt_channel *channel)
{
    return channel->resume_after;
}
