/*
 * What the parts of the channel share: its state, and who may touch which of it. For rpc/transport/channel*.c only.
 *
 *   channel.c           calls, the lost connection
 *   channel_open.c      opening, closing
 *   channel_handshake.c the handshake of a connection
 *   channel_receive.c   records that come in; who reads; the background thread
 *   channel_data.c      data streams
 *   channel_connect.c   the connection of one
 *   channel_progress.c  what is known of the server's progress
 *   channel_kept.c      calls that may have to be sent again
 *   channel_send_gate.c      where calls wait while the server has stopped the program
 *   channel_resume.c    going on over another connection
 *   channel_adopt.c     taking over that connection
 *   resume_rule.c       whether that may be
 *   channel_client.c    a CLIENT of the RPC library over it
 *
 * channel.c, channel_receive.c and channel_send_gate.c call each other: a call waits for its reply and at the gate.
 * What is built on them they reach by what the channel carries: `data.ops` and `resume`.
 *
 * Locks, in the order in which they may be taken: output.mutex, mutex; data.mutex alone. While a session goes on, the
 * mutex of its channel is held when the output's of the fresh one is taken (flyt_channel_lose), never the other way.
 *
 * The reader: at any time at most one thread reads the main connection (has_reader). A caller that waits for a reply
 * and finds no reader becomes it, and hands the replies of others to them; when its own is there it passes the role to
 * another waiting caller. Only when nobody waits does the background thread read. It learns of its turn without a
 * system call per call: it looks after the socket again 1 ms after callers have stopped, or when it is kicked.
 *
 * AWAY: the connection has ended and the session may go on over another one. Whoever notices (flyt_channel_break) sets
 * the state; the background thread does all the rest (flyt_channel_resume). It takes the writer's role and keeps it
 * (flyt_output_hold), so that nothing is written, waits until the old connection has been read to its end
 * (is_read_out: nobody becomes the reader then), and joins the threads of the data streams. From then on it is alone
 * with endpoint, output, input, progress and data streams, until it makes the state UP again under both mutexes, by
 * which whoever ends the connection (flyt_channel_lose) has one endpoint or the other. What stays is `accepted` and the
 * address of the progress page: threads may be looking there,
 * so it stays mapped until the close (spare_page: while a server has no page), with the page of whichever server.
 *
 * The gate is looked at under output.mutex, where a call gets its number: once it is shut no call gets one that may not
 * pass. begun_count counts what is half-sent: groups, and transfers with chunks to be sent. Who brings it to 0 looks at
 * is_due and kicks the background thread; who makes is_due true looks at begun_count afterwards: one of them sees to it
 * that session_stopped goes. While hold_count is not 0, the gate is open though session_stopped is due: whoever brings
 * it to 0 shuts it. A session that goes on over another connection finds the gate open, unless the new server has
 * stopped it already, on the fresh connection, where that is only noted (is_due).
 */
#ifndef FLYT_TRANSPORT_CHANNEL_STATE_H
#define FLYT_TRANSPORT_CHANNEL_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include "flyt_procedures.h"
#include "rpc/base/error.h"
#include "rpc/transport/channel.h"
#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/input.h"
#include "rpc/transport/kept.h"
#include "rpc/transport/message.h"
#include "rpc/transport/output.h"
#include "rpc/transport/progress_page.h"
#include "rpc/base/region.h"
#include "rpc/transport/resume_rule.h"

enum {
    FLYT_CHANNEL_CLOSE_MS = 1000, /* how long a server that does not read may delay the program's end */
    FLYT_CHANNEL_READ_AHEAD_BYTES = 64 * 1024,
    FLYT_CHANNEL_FLUSH_BYTES = 32 * 1024, /* one-way calls are written out when so much is waiting */
    FLYT_CHANNEL_TABLE_FIRST = 16,        /* procedures from here on have sequence numbers */
    FLYT_DATA_BYTES_MIN = 512 * 1024      /* smaller transfers take the main connection: waking threads costs more */
};

/* A thread that waits for a reply; lives on its stack. Under channel.mutex, but what the reader alone touches. */
struct flyt_waiter {
    struct flyt_waiter *next, *previous;
    pthread_cond_t answered;
    uint32_t xid;
    uint64_t sequence; /* 0: a call without a number */
    unsigned procedure;
    xdrproc_t xdr_res;
    void *res;
    struct flyt_xdr_payload payload; /* place NULL: the reply has none, or it is decoded like any other field */
    bool has_payload;
    int status;
    bool is_done;
};

/* One connection for bulk data, with its two threads. `endpoint` is there from before it is connected on. */
struct flyt_lane {
    struct flyt_channel *channel;
    struct flyt_endpoint *endpoint;
    _Atomic(pthread_t) handling; /* the receiving thread, from its beginning on: it may be in a handler */
    struct flyt_output output;
    struct flyt_input input;
    struct flyt_chunk_head chunk; /* being received; the receiving thread's */
    pthread_t sender, receiver;
    bool has_sender, has_receiver;
};

struct flyt_data_job;

/* AWAY: there is no server to open them at, or they are being closed, until the session goes on (then CLOSED). */
enum flyt_data_state { FLYT_DATA_CLOSED, FLYT_DATA_OPENING, FLYT_DATA_OPEN, FLYT_DATA_ENDED, FLYT_DATA_AWAY };

/* What is asked of them by what they are built on. */
struct flyt_data_ops {
    /* The server has granted more of a transfer. 0, or -EBADMSG with *err: it cannot have granted that. */
    int (*grant)(struct flyt_channel *channel, const flyt_back_grant *grant, struct flyt_error *err);
    /* Opens the streams if that has not been done, and waits for it. */
    void (*open)(struct flyt_channel *channel);
    /* Ends the streams, so that all their threads come to their end. */
    void (*shutdown)(struct flyt_channel *channel);
    /* Waits for the threads; every transfer that is not through fails. Twice does no harm. */
    void (*join)(struct flyt_channel *channel);
};

/* The data streams. All members under mutex; lanes are set up before they are counted and stay until close, or
 * until their threads have ended in AWAY. */
struct flyt_data {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum flyt_data_state state;
    struct flyt_lane lanes[FLYT_DATA_STREAMS_MAX];
    unsigned lane_count;    /* 0 when open: chunks go over the main connection */
    pthread_t first_sender; /* opens the streams, then sends on lane 0 */
    bool has_first_sender;
    struct flyt_data_job *first, **last;         /* with chunks that nobody has taken yet */
    struct flyt_data_job *first_here;            /* what threads of the program send over the main connection */
    unsigned job_count;                          /* transfers that are not over */
    unsigned thread_count;                       /* threads that have not come to their end */
    uint64_t sent_bytes, received_bytes, writes; /* of streams that were closed when the session went on */
    const struct flyt_data_ops *ops;
};

/* Under output.mutex; what is atomic is read without. */
struct flyt_send_gate {
    _Atomic(bool) is_shut;
    _Atomic(bool) is_due;          /* session_stopped is to be sent */
    uint64_t number;               /* of the last FLYT_BACK_STOP, while it is shut */
    uint64_t answer;               /* the number of the session_stopped that answers it; 0: not sent */
    _Atomic(unsigned) begun_count; /* changed without the mutex, too */
    unsigned hold_count;           /* of these, those that keep it open meanwhile */
    struct flyt_channel_group *groups;
    pthread_cond_t opened;
};

enum flyt_channel_state { FLYT_CHANNEL_UP, FLYT_CHANNEL_AWAY, FLYT_CHANNEL_ENDED };

/* What senders write and what the reader writes lie in lines of the cache of their own. */
enum { FLYT_CHANNEL_LINE_BYTES = 64 };

struct flyt_channel {
    char url[FLYT_CHANNEL_URL_BYTES];
    char program_name[FLYT_STRING_BYTES_MAX + 1];
    const struct flyt_channel_handlers *handlers;
    void *user;
    struct flyt_channel_info info;
    unsigned connect_timeout_ms, cuda_version;
    _Atomic(unsigned) data_stream_count; /* 0 on a fresh connection, whatever was offered */
    unsigned offered_stream_count;
    _Atomic(uint64_t) window_bytes;          /* of a transfer that may be sent without a grant; UINT64_MAX: all of it */
    const struct flyt_signature *signatures; /* as configured */
    unsigned signature_count;
    unsigned char token[FLYT_TOKEN_BYTES];
    unsigned token_bytes;
    struct flyt_channel_credentials credentials; /* data: malloc'ed, NULL: none */
    bool *accepted;                              /* by procedure, flyt_procedure_end of them */
    flyt_channel_dial_fn dial;
    void *dial_user;
    struct flyt_endpoint *endpoint;

    struct flyt_output output;
    /* Under output.mutex. */
    uint64_t sequence;
    uint32_t plain_xid; /* of calls without a sequence number, counted down from the top so as not to meet others */
    _Atomic(uint64_t) written_sequence;
    struct flyt_kept kept;          /* freed when the connection is lost */
    _Atomic(uint64_t) *call_counts; /* by procedure, flyt_procedure_end of them */
    struct flyt_send_gate gate;
    _Atomic(uint64_t) all_asked;  /* number of a FLYT_BACK_SEND_ALL that is still to be answered; 0: none */
    _Atomic(unsigned) user_count; /* threads inside a function of the channel: closing waits for them */

    _Alignas(FLYT_CHANNEL_LINE_BYTES) struct flyt_input input; /* the reader's */
    struct flyt_chunk_head chunk;
    /* The server's progress: the reader writes, everybody reads. A sender that leaves a call in the buffer first makes
     * output.is_waiting true and then looks at `received`; the reader first writes `received` and then looks at
     * is_waiting: one of them sees that the server is idle, and writes. */
    _Alignas(FLYT_CHANNEL_LINE_BYTES) _Atomic(uint64_t) received, executed, completed;
    _Atomic(uint64_t) reply_count;
    /* From the handshake on; NULL: there is none. Where the session goes on, error_count is set before the new page is
     * there; who looks at the page and then at the count (channel_progress.c) never has a new page with an old count.
     */
    _Atomic(const struct flyt_progress_page *) page;
    _Atomic(uint64_t) error_count; /* calls of call_error and fatal that have been handed over */
    _Atomic(uint64_t) page_answer_count;

    pthread_mutex_t mutex;
    pthread_cond_t reader_left;
    struct flyt_waiter *first_waiter, *last_waiter; /* the last call first */
    _Atomic(uint64_t) first_awaited;                /* number of the first call whose reply is waited for; UINT64_MAX */
    struct flyt_waiter *busy_waiter;                /* the reader is filling its result: it must not go away */
    bool has_reader;
    _Atomic(pthread_t) reader; /* valid while has_reader */
    unsigned recent_calls;     /* readers that came and went since the background thread last looked */
    bool is_closing;
    bool background_is_aside, background_is_timed;
    bool may_spin;
    uint64_t last_wait_ns; /* of the reader, until something came */

    /* What every call looks at, and seldom changes. */
    _Alignas(FLYT_CHANNEL_LINE_BYTES) pthread_t background;
    bool has_background;
    int wake_fd;
    /* Readable for ever once the connection is lost, and while data streams are to end because it is away: ends what
     * waits for another connection. */
    int lost_fd;
    _Atomic(bool) is_attended; /* what is left in the buffer now will be looked after within a millisecond */
    _Atomic(unsigned) state;   /* enum flyt_channel_state; written under mutex */
    char lost_cause[512];

    /* A session that goes on (channel_resume.c); under mutex but what is atomic. */
    bool can_resume;                 /* the server has told that it may, and the program can */
    bool offers_resume;              /* the server has told it */
    bool is_fresh;                   /* this is the other connection: its loss is told by its owner */
    bool is_read_out;                /* AWAY: nothing more comes from the old connection */
    bool is_torn;                    /* it ended within a record */
    bool is_moved;                   /* the server has named the last call that it executed: */
    uint64_t move_after;             /* this one */
    bool is_patient;                 /* it is tried again as a whole, as the server has said: */
    flyt_back_moved moved;           /* this */
    _Atomic(bool) had_fatal;         /* the server has said that it is over */
    _Atomic(unsigned) chunked_count; /* threads that send a transfer's chunks over this connection */
    pthread_cond_t came_back;        /* the state is no longer AWAY */
    char away_cause[256];            /* how the old connection ended */
    struct flyt_channel *fresh;      /* NULL: none yet; set and freed by the background thread */
    uint64_t resume_after;           /* in the handler `resume`: the background thread's */
    _Atomic(uint64_t) resume_count;
    void (*resume)(struct flyt_channel *channel); /* flyt_channel_resume, for channel_receive.c */
    uint64_t error_base; /* errors in error_count that were told over another connection than this one */
    /* The region: made by the thread that makes a handshake (the background's, once there is one), and mapped for ever:
     * its memory is the program's. A fresh connection has none of its own. */
    struct flyt_region region;
    int region_fd;    /* to be brought to servers; -1: none is */
    int vm_memory_fd; /* what is to be the region where a server shares it; -1: there is none, or it is that already */
    /* Where this connection's rings are, claimed of the session's region; NULL: nowhere there. */
    const struct flyt_region *rings_region;
    uint64_t rings_place;
    uint64_t region_number; /* the last region_at that was given */
    _Atomic(bool) has_region;
    _Atomic(uint64_t) region_at;                 /* flyt_channel_region_at */
    _Atomic(bool) fills_region;                  /* memory_set takes these addresses */
    _Atomic(bool) maps_region;                   /* kernels reach what is locked of it, by the program's addresses */
    const struct flyt_progress_page *spare_page; /* of a server that is gone, while this one has none; see AWAY */

    struct flyt_data data;
};

/* channel.c: takes the connection for lost: says so once, ends all sockets, wakes everybody. Not with a mutex held. */
void flyt_channel_lose(struct flyt_channel *channel, const char *cause);
/* The connection has ended, without anybody's fault that is known: AWAY where the session may go on; lost otherwise.
 * Not with a mutex held. */
void flyt_channel_break(struct flyt_channel *channel, const char *cause);
/* AWAY: waits until the session goes on (not in a handler, which then may go on at once). FLYT_CHANNEL_OK or _LOST. */
int flyt_channel_stand_by(struct flyt_channel *channel);
/* What every function of the channel asks first. FLYT_CHANNEL_OK or _LOST. */
static inline int flyt_channel_ready(struct flyt_channel *channel)
{
    if (__builtin_expect(atomic_load_explicit(&channel->state, memory_order_acquire) == FLYT_CHANNEL_UP, true))
        return FLYT_CHANNEL_OK;
    return flyt_channel_stand_by(channel);
}

static inline bool flyt_channel_is_away(const struct flyt_channel *channel)
{
    return atomic_load_explicit(&channel->state, memory_order_acquire) == FLYT_CHANNEL_AWAY;
}

/* Around everything that a thread of the program does with the channel. */
static inline void flyt_channel_enter(struct flyt_channel *channel)
{
    atomic_fetch_add_explicit(&channel->user_count, 1, memory_order_acquire);
}

static inline int flyt_channel_leave(struct flyt_channel *channel, int status)
{
    atomic_fetch_sub_explicit(&channel->user_count, 1, memory_order_release);
    return status;
}

/* Writes out what is buffered. The caller holds output.mutex. */
int flyt_channel_write_locked(struct flyt_channel *channel, bool may_wait);
/* Whether the calling thread is the reader, as a handler is: it must then not wait for the socket. */
bool flyt_channel_is_reader(struct flyt_channel *channel);
/* The same, or it reads a data stream. */
bool flyt_channel_is_handler(struct flyt_channel *channel);
/* Encodes a call as the next record, and completes it not yet; waits at the gate and for room, unless !may_wait.
 * FLYT_CHANNEL_OK; _UNSUPPORTED: its arguments exceed the protocol's bounds, nothing is sent; _LOST: output.status says
 * why. */
int flyt_channel_encode_locked(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                               bool may_wait, uint32_t *ret_xid);
/* A connection that cannot be written to is lost; who notices first says so. Not with a mutex held. FLYT_CHANNEL_OK for
 * status 0, else _LOST. */
int flyt_channel_end_write(struct flyt_channel *channel, int status);
/* From then on a connection that cannot be written to is not lost where the session may go on. */
void flyt_channel_watch_output(struct flyt_channel *channel);
/* Wakes the background thread. */
void flyt_channel_kick(struct flyt_channel *channel);
/* Starts a thread of the channel: named, all signals blocked. 0 or a negative errno. */
int flyt_channel_start_thread(pthread_t *thread, const char *name, void *(*run)(void *), void *user);

/*
 * Answers FLYT_BACK_SEND_ALL: session_all_sent with this number goes behind everything that has been encoded, and all
 * of it is written out. Called by the reader, or by who is to become it, so it waits for nobody: who encodes holds
 * output.mutex for that only, a thread that is writing takes the rest along, and what the socket refuses is written
 * when it can take more.
 */
void flyt_channel_send_all(struct flyt_channel *channel, uint64_t number);
/* The same of what came over a fresh connection, whose calls do not count, when that is the session's: for the
 * background thread. */
void flyt_channel_send_all_late(struct flyt_channel *channel);

/* channel_send_gate.c */
static inline bool flyt_send_gate_is_shut(struct flyt_channel *channel)
{
    return __builtin_expect(atomic_load_explicit(&channel->gate.is_shut, memory_order_relaxed), false);
}

/* A transfer with chunks to be sent begins, and is sent. */
static inline void flyt_send_gate_begin(struct flyt_channel *channel)
{
    atomic_fetch_add(&channel->gate.begun_count, 1);
}

static inline void flyt_send_gate_end(struct flyt_channel *channel)
{
    if (atomic_fetch_sub(&channel->gate.begun_count, 1) == 1 && atomic_load(&channel->gate.is_due))
        flyt_channel_kick(channel);
}

/* Whether the calling thread may make this call while it is shut. */
bool flyt_send_gate_may_pass_locked(struct flyt_channel *channel, unsigned procedure);
/* Waits while it is shut and the connection is not lost: output.status says so then. */
void flyt_send_gate_wait_locked(struct flyt_channel *channel);
/* The same for a thread that holds no mutex, and may wait. */
void flyt_send_gate_wait(struct flyt_channel *channel);
/* The connection is lost: wakes who waits. Output locked, its status set. */
void flyt_send_gate_lose_locked(struct flyt_channel *channel);
/* The session goes on over the connection of `fresh`. Both mutexes held. */
void flyt_send_gate_take_locked(struct flyt_channel *channel, struct flyt_channel *fresh);
/* Sends session_stopped where it is due and nothing is half-sent. Waits for nobody. */
void flyt_send_gate_answer(struct flyt_channel *channel);
/* The notices, from the reader. FLYT_BACK_MOVED: -ESHUTDOWN, the connection has been read to its end; or -EBADMSG, also
 * for a FLYT_BACK_STOP that cannot be answered; with *err. */
int flyt_send_gate_stop(struct flyt_channel *channel, uint64_t number, struct flyt_error *err);
void flyt_send_gate_go_on(struct flyt_channel *channel, uint64_t number);
int flyt_send_gate_move(struct flyt_channel *channel, const flyt_back_moved *moved, struct flyt_error *err);

/* channel_receive.c */
bool flyt_channel_split(void *user, const unsigned char *head, size_t head_bytes, size_t record_bytes,
                        struct flyt_input_split *ret_split);
void *flyt_channel_background(void *channel);
/* Reads what there is, as the reader; nothing where another thread does, or where the end has been reached. For the
 * background thread. */
void flyt_channel_read(struct flyt_channel *channel);
/* Waits until `waiter`, which has been entered, has its reply. FLYT_CHANNEL_OK, _LOST or _UNSUPPORTED. */
int flyt_channel_wait(struct flyt_channel *channel, struct flyt_waiter *waiter);

enum { FLYT_GREETING_FDS_MAX = 2 };

/* The handshake of one connection (channel_handshake.c). */
struct flyt_greeting {
    struct flyt_endpoint **endpoint; /* becomes that of TLS where TLS is begun */
    struct flyt_output *output;
    struct flyt_input *input;
    uint64_t deadline_ms;
    int cancel_fd;
    bool takes_fds; /* looks for descriptors with the answers, where descriptors come through */
    bool is_odd;    /* there were more than FLYT_GREETING_FDS_MAX, or some with more than one read */
    bool is_encrypted;
    /* Those that came, in their order: that of the progress page first; the rest is -1. The caller closes them, also
     * where the handshake fails. */
    int fds[FLYT_GREETING_FDS_MAX];
};
#define FLYT_GREETING_NO_FDS                                                                                           \
    {                                                                                                                  \
        -1, -1                                                                                                         \
    }

void flyt_channel_fill_handshake(const struct flyt_channel *channel, flyt_connection_kind kind,
                                 flyt_handshake_args *args);
/* Makes the handshake, with its challenge where there is one. 0 and *res filled (xdr_free), or a negative errno with
 * the cause in *err and *res freed: -EACCES (denied), -ESTALE (no such session), -EBUSY, -ENODEV, -EPROTO,
 * -ECONNREFUSED (no answer), -ETIMEDOUT, -ECANCELED. */
int flyt_channel_greet(const struct flyt_channel *channel, struct flyt_greeting *greeting, flyt_handshake_args *args,
                       flyt_handshake_res *res, struct flyt_error *err);

/* channel_open.c: a channel of its own for a connection to `place` on which the session of `channel` goes on:
 * connected, handshake made, its background thread running. It has no data streams. One try; 0 or a negative errno with
 * *err: those of connect(2) and of flyt_channel_greet. */
int flyt_channel_open_fresh(struct flyt_channel *channel, const struct flyt_channel_place *place,
                            const struct flyt_channel_handlers *handlers, void *user, uint64_t deadline_ms,
                            struct flyt_error *err, struct flyt_channel **ret_fresh);
/* Frees a channel that has no threads. */
void flyt_channel_free(struct flyt_channel *channel);

/* channel_connect.c: a further connection of the session, handshake made. 0 or a negative errno with *err. The input
 * splits records with split_fn and user. */
int flyt_channel_connect_data(struct flyt_channel *channel, struct flyt_lane *lane, flyt_input_split_fn split_fn,
                              struct flyt_error *err);

/* channel_kept.c: begins to keep calls: after the handshake, before threads use the channel. */
void flyt_channel_keep(struct flyt_channel *channel);

/* channel_resume.c: what the background thread does when the state is AWAY. Afterwards it is UP or lost. */
void flyt_channel_resume(struct flyt_channel *channel);
/* channel_adopt.c: goes on over the connection of `fresh`, which has no threads any more, behind call `after`. 0, or
 * a negative errno with *err: nothing has been changed. */
int flyt_channel_adopt(struct flyt_channel *channel, struct flyt_channel *fresh, uint64_t after,
                       struct flyt_error *err);
/* channel_adopt.c: what there is of the old connection, for the rule. Its output is held. False: it cannot be read. */
bool flyt_channel_find_state(struct flyt_channel *channel, struct flyt_resume_state *ret_state);
/* The same of one number: the last call up to `begun` that may not be executed twice; one that is no longer kept may
 * not either. 0: none. */
bool flyt_channel_find_fixed(struct flyt_channel *channel, uint64_t begun, uint64_t *ret_last_fixed);

/* channel_data.c */
void flyt_data_init(struct flyt_data *data);
/* The connection is away: the streams end. Whether no transfer was under way. */
bool flyt_data_leave(struct flyt_channel *channel);
/* Then: waits until their threads have read what is there to be read, and closes them. False: a transfer is under way
 * or a thread is stuck. */
bool flyt_data_end(struct flyt_channel *channel);
/* The session goes on: they may be opened again. */
void flyt_data_return(struct flyt_channel *channel);
/* In a forked child. */
void flyt_data_abandon(struct flyt_data *data);
void flyt_data_fini(struct flyt_data *data);

#endif
