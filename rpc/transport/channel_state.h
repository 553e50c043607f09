/*
 * What the parts of the channel share: its state, and who may touch which of it. For rpc/transport/channel*.c only.
 *
 *   channel.c           calls, the lost connection
 *   channel_open.c      opening, handshake, closing
 *   channel_receive.c   records that come in; who reads; the background thread
 *   channel_data.c      data streams
 *   channel_progress.c  what is known of the server's progress
 *   channel_kept.c      calls that may have to be sent again
 *   channel_client.c    a CLIENT of the RPC library over it
 *
 * Locks, in the order in which they may be taken: output.mutex, mutex; data.mutex alone.
 *
 * The reader: at any time at most one thread reads the main connection (has_reader). A caller that waits for a reply
 * and finds no reader becomes it, and hands the replies of others to them; when its own is there it passes the role to
 * another waiting caller. Only when nobody waits does the background thread read. It learns of its turn without a
 * system call per call: it looks after the socket again 1 ms after callers have stopped, or when it is kicked.
 */
#ifndef FLYT_TRANSPORT_CHANNEL_STATE_H
#define FLYT_TRANSPORT_CHANNEL_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include "flyt_procedures.h"
#include "rpc/base/error.h"
#include "rpc/transport/channel.h"
#include "rpc/transport/input.h"
#include "rpc/transport/kept.h"
#include "rpc/transport/message.h"
#include "rpc/transport/output.h"
#include "rpc/transport/progress_page.h"
#include "rpc/transport/secure.h"

enum {
    FLYT_CHANNEL_CLOSE_MS = 1000, /* how long a server that does not read may delay the program's end */
    FLYT_CHANNEL_READ_AHEAD_BYTES = 64 * 1024,
    FLYT_CHANNEL_FLUSH_BYTES = 32 * 1024, /* one-way calls are written out when so much is waiting */
    FLYT_CHANNEL_TABLE_FIRST = 16,        /* procedures from here on have sequence numbers */
    FLYT_CHANNEL_URL_BYTES = 512,
    FLYT_DATA_BYTES_MIN = 512 * 1024 /* smaller transfers take the main connection: waking threads costs more */
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

/* One connection for bulk data, with its two threads. fd is -1, or open from the moment that there is a socket. */
struct flyt_lane {
    struct flyt_channel *channel;
    int fd;
    struct flyt_secure *secure; /* as the channel's */
    struct flyt_output output;
    struct flyt_input input;
    struct flyt_chunk_head chunk; /* being received; the receiving thread's */
    pthread_t sender, receiver;
    bool has_sender, has_receiver;
};

struct flyt_data_job;

enum flyt_data_state { FLYT_DATA_CLOSED, FLYT_DATA_OPENING, FLYT_DATA_OPEN, FLYT_DATA_ENDED };

/* The data streams. All members under mutex; lanes are set up before the state becomes OPEN and stay until close. */
struct flyt_data {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum flyt_data_state state;
    struct flyt_lane lanes[FLYT_DATA_STREAMS_MAX];
    unsigned lane_count;    /* 0 when open: chunks go over the main connection */
    pthread_t first_sender; /* opens the streams, then sends on lane 0 */
    bool has_first_sender;
    struct flyt_data_job *first, **last; /* with chunks that nobody has taken yet */
};

struct flyt_channel {
    char url[FLYT_CHANNEL_URL_BYTES];
    char program_name[FLYT_STRING_BYTES_MAX + 1];
    const struct flyt_channel_handlers *handlers;
    void *user;
    struct flyt_channel_info info;
    unsigned connect_timeout_ms, cuda_version, data_stream_count;
    unsigned char token[FLYT_TOKEN_BYTES];
    unsigned token_bytes;
    struct flyt_channel_credentials credentials; /* data: malloc'ed, NULL: none */
    bool *accepted;                              /* by procedure, flyt_procedure_end of them */
    int fd;
    struct flyt_secure *secure; /* what carries fd's bytes to the server's socket; NULL: fd is that socket */

    struct flyt_output output;
    /* Under output.mutex. */
    uint64_t sequence;
    uint32_t plain_xid; /* of calls without a sequence number, counted down from the top so as not to meet others */
    _Atomic(uint64_t) written_sequence;
    struct flyt_kept kept; /* freed when the connection is lost */

    struct flyt_input input; /* the reader's */
    struct flyt_chunk_head chunk;
    /* The server's progress: the reader writes, everybody reads. A sender that leaves a call in the buffer first makes
     * output.is_waiting true and then looks at `received`; the reader first writes `received` and then looks at
     * is_waiting: one of them sees that the server is idle, and writes. */
    _Atomic(uint64_t) received, executed, completed;
    _Atomic(uint64_t) call_count, reply_count;
    const struct flyt_progress_page *page; /* from the handshake on; NULL: there is none */
    _Atomic(uint64_t) error_count;         /* calls of call_error and fatal that have been handed over */
    _Atomic(uint64_t) page_answer_count;
    _Atomic(unsigned) user_count; /* threads inside a function of the channel: closing waits for them */

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

    pthread_t background;
    bool has_background;
    int wake_fd;
    int lost_fd; /* readable for ever once the connection is lost: ends what waits for a data stream's connection */
    _Atomic(bool) is_attended; /* what is left in the buffer now will be looked after within a millisecond */
    _Atomic(bool) is_lost;
    char lost_cause[512];

    struct flyt_data data;
};

/* The socket that leads to the server. */
static inline int flyt_channel_socket(const struct flyt_channel *channel)
{
    return channel->secure ? flyt_secure_fd(channel->secure) : channel->fd;
}

/* channel.c: takes the connection for lost: says so once, ends all sockets, wakes everybody. Not with a mutex held. */
void flyt_channel_lose(struct flyt_channel *channel, const char *cause);
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
/* Wakes the background thread. */
void flyt_channel_kick(struct flyt_channel *channel);
/* Starts a thread of the channel: named, all signals blocked. 0 or a negative errno. */
int flyt_channel_start_thread(pthread_t *thread, const char *name, void *(*run)(void *), void *user);

/*
 * Answers FLYT_BACK_SEND_ALL: session_all_sent with this number goes behind everything that has been encoded, and all
 * of it is written out. Called by the reader, so it waits for nobody: who encodes holds output.mutex for that only, a
 * thread that is writing takes the rest along, and what the socket refuses is written when it can take more.
 */
void flyt_channel_send_all(struct flyt_channel *channel, uint64_t number);

/* channel_receive.c */
bool flyt_channel_split(void *user, const unsigned char *head, size_t head_bytes, size_t record_bytes,
                        struct flyt_input_split *ret_split);
void *flyt_channel_background(void *channel);
/* Waits until `waiter`, which has been entered, has its reply. FLYT_CHANNEL_OK, _LOST or _UNSUPPORTED. */
int flyt_channel_wait(struct flyt_channel *channel, struct flyt_waiter *waiter);

/* channel_open.c: a further connection of the session, handshake made. 0 or a negative errno with *err. The input
 * splits records with split_fn and user. */
int flyt_channel_connect_data(struct flyt_channel *channel, struct flyt_lane *lane, flyt_input_split_fn split_fn,
                              struct flyt_error *err);

/* channel_kept.c: begins to keep calls: after the handshake, before threads use the channel. */
void flyt_channel_keep(struct flyt_channel *channel);

/* channel_data.c */
void flyt_data_init(struct flyt_data *data);
/* Opens the data streams if that has not been done, and waits for it. */
void flyt_data_open(struct flyt_channel *channel);
/* Ends the sockets, so that all threads of the data streams come to their end. */
void flyt_data_shutdown(struct flyt_channel *channel);
/* Waits for the threads; every transfer that is not through fails. Twice does no harm. */
void flyt_data_join(struct flyt_channel *channel);
/* Closes the sockets: with no threads there, or in a forked child. */
void flyt_data_close(struct flyt_data *data);
void flyt_data_fini(struct flyt_data *data);

#endif
