/*
 * The client's end of a session: one main connection, shared by all threads and all replaced libraries of a process,
 * and data streams for large copies.
 *
 * Sending: calls are encoded with rpcgen's XDR routines into one send buffer, in the order of flyt_channel_send and
 * _call; a one-way call is written out when the server's queue has run empty, when the buffer is full enough, at the
 * next call with a reply, at flyt_channel_flush, or when the server asks for all that there is. Replies are matched by
 * xid, which is the low half of the call's sequence number. Receiving: a waiting caller reads the connection itself;
 * while nobody waits, a background thread does. What the server calls is handed to the handlers from whichever thread
 * reads: a handler must not wait for the channel (sending one-way is allowed), must be quick, and must not take a lock
 * that anybody holds while calling the channel: that call may wait for the very thread that is in the handler.
 *
 * All functions may be called from any thread. After a connection is lost every function returns FLYT_CHANNEL_LOST at
 * once, for ever; one line on stderr has said why.
 *
 * A connection that ends need not be lost. Where the server has announced FLYT_FEATURE_RESUME (handshake.h) and there
 * is a handler `resume`, its session may go on at another server, over another connection, under the same struct
 * flyt_channel. Meanwhile the channel is away: whoever sends waits, and whoever waits for a reply goes on waiting.
 * First what the old server has said is read to its end; then no handler is called any more but `resume`. Every call of
 * which a byte was written must be known to be complete (flyt_channel_progress), or the next server must know that the
 * dead one had not begun it (session_left_at) or that it may be executed again; every other reply must have come and no
 * transfer may be under way. Otherwise the connection is lost: nobody could say what was executed. Calls that nobody
 * had begun, written or not, are sent by the new connection, which continues the sequence numbers; data streams are
 * opened again when they are needed. The channel connects to the same address with the same credentials and the
 * session's token, for FLYT_CHANNEL_RESUME_MS while nobody answers or the answer is "busy". Where the server had
 * stopped the program it was about to be moved: then FLYT_CHANNEL_STOPPED_MS, and every other time `locate` is asked
 * where, as it is where the address is a unix socket that could not be connected to: its node may have others; a server
 * that is lost on the way was not the last one, and the one that was left may have everything still, as
 * one that said so (FLYT_BACK_MOVED, below). What flyt_channel_info tells stays what the first server said; the new one
 * must have the same session, as many devices, and every procedure that the first had. A protocol error, a `fatal`
 * notice that came before, and closing are never followed by a resumption.
 *
 * A server can stop the program (FLYT_BACK_STOP): from then on a call that has no number yet waits at a gate, until the
 * server lets it go on (FLYT_BACK_GO_ON), or the session goes on elsewhere. What was begun is sent whole: calls with a
 * number, transfers with chunks under way, groups (flyt_channel_group_begin); then session_stopped goes behind them.
 * What several threads make together keeps the gate open until it is whole (flyt_channel_hold_begin). Replies, handlers
 * and data go on as ever. Through the gate, also behind session_stopped, go host_function_done (a stream may stand
 * still until the server has it), session_all_sent, what handlers send, and data, which belongs to a call that was
 * made. Then the server may end its part (FLYT_BACK_MOVED): the channel ends the connection and connects again, where
 * it is told to look. What fails on the way (nobody answers, busy, an object that is not made, a connection that is
 * lost once more) is thrown away as a whole and begun anew, for as long as the server has said; nothing but a refusal
 * for good ends it before: there is no such session, or nobody lets this program in. A server that still has the
 * session as it was says so (session_is_whole): then nothing is made again.
 */
#ifndef FLYT_TRANSPORT_CHANNEL_H
#define FLYT_TRANSPORT_CHANNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "flyt.h"
#include "rpc/base/error.h"
#include "rpc/base/ticket.h"
#include "rpc/transport/endpoint/endpoint.h"

struct flyt_channel;

/* How long a connection to another server is tried for, from the end of the old one on, where the server has not said
 * how long; and for how long a refusal is not for good where each try asks for new credentials. */
enum { FLYT_CHANNEL_RESUME_MS = 10000, FLYT_CHANNEL_STOPPED_MS = 60000, FLYT_CHANNEL_URL_BYTES = 512 };

/* Where a session is, and what proves that the program may have it. */
struct flyt_channel_place;
struct flyt_region;

enum {
    FLYT_CHANNEL_OK = 0,
    FLYT_CHANNEL_LOST = -1,
    FLYT_CHANNEL_UNSUPPORTED = -2,
    FLYT_CHANNEL_GONE = -3,
    FLYT_CHANNEL_STOPPED = -4
};

/* What the server asks of the client. `user` is flyt_channel_config.user. */
struct flyt_channel_handlers {
    /* Where `bytes` of a transfer's data at `offset_bytes` are to be written (read straight off the socket, from a
     * data stream's or the reading thread); NULL: they are thrown away. */
    void *(*chunk_place)(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes);
    /* The same chunk has arrived in full; not called for one that was thrown away. */
    void (*chunk_done)(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes);
    void (*pull)(void *user, uint64_t transfer_id);
    void (*host_function)(void *user, uint64_t function_id, int status);
    void (*output)(void *user, bool is_error, const char *text, size_t bytes);
    void (*call_error)(void *user, uint64_t sequence, uint32_t thread, int result);
    void (*fatal)(void *user, int result, const char *cause);
    void (*credit)(void *user, uint64_t stream_id, uint64_t executed_calls);
    void (*transfer_failed)(void *user, uint64_t transfer_id, int result);
    /* More memory of a device is in use than its limit allows; NULL: nobody is to be told. */
    void (*over_budget)(void *user, uint32_t device, uint64_t bytes);
    /* The connection is gone; called once. Nothing else is called afterwards. */
    void (*lost)(void *user, const char *cause);
    /*
     * The session goes on at another server, over `fresh`, where session_resume_begin has been called: makes everything
     * again with calls on it, the ordinary ones under the ids that there are; it must not use the channel itself (its
     * functions return FLYT_CHANNEL_LOST here). Other threads of the program stand still meanwhile in the channel's
     * functions, or will when they enter them. flyt_channel_resume_after tells behind which call it goes on: what calls
     * above that one make is made by them, for they are sent afterwards. Called from a thread of the channel, may
     * block, and ends soon when calls on `fresh` return FLYT_CHANNEL_LOST. `fresh` has no data streams, and data that
     * is sent in the background is to be done before the handler returns; numbers of its calls mean nothing to the
     * session; what it reports as an error of a call is given to call_error, too (with the call's number on `fresh`),
     * and ends the resumption: with the handler's sentence, where that has one. `fresh` NULL: the server that has been
     * left has everything as it was, and nothing is to be made; whether nothing is missing here, and whatever earlier
     * calls of this handler have noted of servers that were not taken is void. 0, or a negative errno with a sentence:
     * the session is then lost; or, where it was moved, `resume` is called once more, with another connection, also
     * after a 0 where that was lost afterwards. May be NULL: no session goes on.
     */
    int (*resume)(void *user, struct flyt_channel *fresh, struct flyt_error *err);
    /*
     * Where a session that was moved is now (FLYT_MOVED_ASK_AGAIN), or may be because its server had stopped it; called
     * before each try, or each other one, from a thread of the channel; `attempt` counts from 0, and stays the same
     * where the answer was "busy". *place is what was last used, and is left so where it holds. May block, and closing
     * waits for it. What place->credentials.data points to stays until the next call. 0, or a negative errno with a
     * sentence: -EACCES, -ENODEV and -EPROTO are refusals, after others it is called again. May be NULL: it is where it
     * was.
     */
    int (*locate)(void *user, unsigned attempt, struct flyt_channel_place *place, struct flyt_error *err);
};

/* What proves to a node that the program may have a session there (rpc/base/ticket.h). */
struct flyt_channel_credentials {
    const void *data; /* sent with the handshake, at most FLYT_CREDENTIALS_BYTES_MAX */
    size_t bytes;
    unsigned char secret[FLYT_TICKET_KEY_BYTES]; /* answers the challenge; is not sent */
    /* The server is to begin TLS with the key that secret and challenge make: then nothing but a refusal is believed in
     * clear. */
    bool is_encrypted;
};

struct flyt_channel_place {
    char url[FLYT_CHANNEL_URL_BYTES];
    struct flyt_channel_credentials credentials; /* data NULL: none */
};

/* Connects to a URL, within the time: 0 and *ret_endpoint, which is the caller's, or a negative errno with a sentence.
 * Any thread. */
typedef int (*flyt_channel_dial_fn)(void *user, const char *url, unsigned timeout_ms, struct flyt_error *err,
                                    struct flyt_endpoint **ret_endpoint);

struct flyt_channel_config {
    const char *url;           /* tcp://HOST:PORT or unix:///PATH */
    flyt_channel_dial_fn dial; /* NULL: a socket */
    void *dial_user;
    unsigned cuda_version; /* e.g. 13000 */
    const struct flyt_channel_handlers
        *handlers; /* outlives the channel; no member is NULL but `resume` and `locate` */
    void *user;
    unsigned connect_timeout_ms;                        /* 0: 10,000 */
    const struct flyt_channel_credentials *credentials; /* copied; NULL: none, and a challenge cannot be answered */
    const struct flyt_signature *signatures;            /* outlives the channel; NULL: this build's tables */
    unsigned signature_count;
    int *vm_memory_fd; /* of the memory that this VM shares with its host, taken over, and -1 then; NULL: none */
};

/* What the handshake told. */
struct flyt_channel_info {
    uint64_t session_id;
    unsigned device_count;
    unsigned driver_version; /* of the present node: changes when the session goes on elsewhere (relaxed loads) */
    char server_build[FLYT_STRING_BYTES_MAX + 1];
};

/*
 * Connects and makes the handshake. Blocks at most the time-out. 0 and *ret_channel, or a negative errno with one
 * sentence in *err (address and cause): -ECONNREFUSED, -ETIMEDOUT, -EPROTO (another base version), -EACCES (denied,
 * or ended by an operator before it began), -ENODEV, -EINVAL (the URL) and what connect(2) says.
 */
int flyt_channel_open(const struct flyt_channel_config *config, struct flyt_error *err,
                      struct flyt_channel **ret_channel);
/* Sends what is buffered (for a second at most), waits for threads of the channel to end, frees it. Threads that are
 * inside a function of the channel get FLYT_CHANNEL_LOST and are waited for; none may enter one any more. `lost` is not
 * called. Not from a handler. NULL is allowed. Returns NULL. */
struct flyt_channel *flyt_channel_close(struct flyt_channel *channel);
/* In a forked child: closes the descriptors without a word to the server. The memory stays, unused: threads that are
 * not there may have been changing it. Nothing else may be called any more. NULL is allowed. */
void flyt_channel_abandon(struct flyt_channel *channel);
const struct flyt_channel_info *flyt_channel_info(const struct flyt_channel *channel);
/* The program's region (region.h), NULL: there is none. It stays when the channel is closed. */
const struct flyt_region *flyt_channel_region(const struct flyt_channel *channel);
/* 0: the server has not got it. Else it has, so that calls may name places of it: a number that no other server of the
 * session has. Of a fresh connection, that one's server. */
uint64_t flyt_channel_region_at(const struct flyt_channel *channel);
/* In the handler `resume`: whether kernels may have addresses of the region, as the server says that the session has
 * left; UNKNOWN: it ended without a word. */
enum flyt_channel_reach { FLYT_CHANNEL_UNREACHED, FLYT_CHANNEL_REACHED, FLYT_CHANNEL_REACH_UNKNOWN };
enum flyt_channel_reach flyt_channel_region_reach(struct flyt_channel *channel);
/* Whether kernels reach what is page-locked there, by the program's addresses. */
bool flyt_channel_maps_region(const struct flyt_channel *channel);
/* And whether the server fills memory by these addresses. */
bool flyt_channel_fills_region(const struct flyt_channel *channel);
/*
 * How the calling thread waits for the replies of its next calls: AUTO spins for a moment, where cores are many, and
 * blocks; the others do what they are called until the reply is there (a thread that has left reading to another one
 * blocks).
 */
enum flyt_channel_waits { FLYT_CHANNEL_WAITS_AUTO, FLYT_CHANNEL_SPINS, FLYT_CHANNEL_YIELDS, FLYT_CHANNEL_BLOCKS };
void flyt_channel_wait_as(enum flyt_channel_waits how);
bool flyt_channel_is_lost(const struct flyt_channel *channel);
/*
 * A planned move: the server has said that calls up to `after` are complete and all answered, that none above it has
 * been or will be executed, and that it ends. When the connection ends, the session goes on behind `after`: calls above
 * it that were written are written again, as they were, and their callers go on waiting for the replies. To be called
 * before the connection ends; may be called in a handler. Where there is no `resume`, the connection is lost as ever.
 */
void flyt_channel_move_after(struct flyt_channel *channel, uint64_t after);
/* In `resume`, of the channel (not of `fresh`): the number of the call behind which the session goes on. */
uint64_t flyt_channel_resume_after(const struct flyt_channel *channel);
/* Whether the server has this procedure with the same signature. */
bool flyt_channel_has(const struct flyt_channel *channel, unsigned procedure);

/*
 * One-way call. `args` is encoded before return; it points to the row's args struct. *ret_sequence may be NULL.
 * FLYT_CHANNEL_OK, _LOST, or _UNSUPPORTED (the server lacks the procedure, or an argument exceeds its bound on the
 * wire: nothing is sent, no sequence number used). Blocks only while the send buffer is full; never in a handler. A
 * large one that is answered with data opens the data streams first, so that the server has them to answer on.
 *
 * Sequence numbers count the calls of the tables' procedures (16 and up), from 1; the handshake, null calls, queries
 * and chunks have none.
 */
int flyt_channel_send(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                      uint64_t *ret_sequence);
/*
 * Call with a reply. `res` is zeroed first and filled; the caller frees it with xdr_free(xdr_res, res), also when the
 * decoding failed half way (the channel is then lost). Blocks until the reply is there.
 */
int flyt_channel_call(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                      xdrproc_t xdr_res, void *res);
/* The same, where the last field of the reply is a payload: it is read straight into data, and the field is left empty
 * (length set, pointer NULL). A payload longer than data_bytes is a protocol error. */
int flyt_channel_call_payload(struct flyt_channel *channel, unsigned procedure, xdrproc_t xdr_args, void *args,
                              xdrproc_t xdr_res, void *res, void *data, size_t data_bytes);
int flyt_channel_flush(struct flyt_channel *channel);
/* The most that the server has told, in replies and notices or in its progress page: sequence numbers. */
flyt_progress flyt_channel_progress(const struct flyt_channel *channel);

/*
 * What is known here, without a message, about calls that were sent. UNKNOWN: nothing, so ask; always so after a loss.
 * DONE: complete, and every error that came before has been given to call_error or fatal. PENDING: not complete when
 * the server wrote the progress page last (progress_page.h), which it does every few dozen microseconds while there is
 * something to tell; what still waited in the buffer has then been written out. A server that has no such stream, or
 * has forgotten to publish, leaves the answer at PENDING for ever: who goes on asking has to ask the server now and
 * then. No system call but for that writing, and on machines with few cores, where the server may need this one, a
 * sched_yield(2) for PENDING.
 */
enum flyt_channel_known { FLYT_CHANNEL_UNKNOWN, FLYT_CHANNEL_PENDING, FLYT_CHANNEL_DONE };
/* Of the calls that name the stream with this number (flyt_id_number), up to `sequence`. */
enum flyt_channel_known flyt_channel_stream_known(struct flyt_channel *channel, uint64_t stream_number,
                                                  uint64_t sequence);
/* Of the calls that name any blocking stream of the device, up to `sequence`. */
enum flyt_channel_known flyt_channel_blocking_known(struct flyt_channel *channel, unsigned device, uint64_t sequence);
/* Whether both are DONE: calls of a device's legacy stream, which has that number, up to `sequence`, and those of its
 * blocking streams up to blocking_sequence. Only looks: for who waits by a call where it is false. */
bool flyt_channel_legacy_is_done(struct flyt_channel *channel, unsigned device, uint64_t stream_number,
                                 uint64_t sequence, uint64_t blocking_sequence);

/*
 * Sends `bytes` of data under transfer_id in chunks over the data streams (opened at first use), or over the main
 * connection where the server takes none; no more than the server has granted, where it does that. Returns when the
 * data has been read: it may then be overwritten.
 */
int flyt_channel_send_data(struct flyt_channel *channel, uint64_t transfer_id, const void *data, size_t bytes);
/* The same in the background: `done` is called (from a thread of the channel) when the data has been read, or with
 * FLYT_CHANNEL_LOST; not where this function itself returns other than FLYT_CHANNEL_OK. May be called in a handler. */
int flyt_channel_send_data_later(struct flyt_channel *channel, uint64_t transfer_id, const void *data, size_t bytes,
                                 void (*done)(void *user, uint64_t transfer_id, int status), void *user);
/* The same of data that does not lie in one piece: `pack` puts `bytes` of it, from offset_bytes on, to `place`, when
 * they are about to be sent; from threads of the channel, for several parts at a time. It must not wait. */
typedef void (*flyt_channel_pack_fn)(void *user, uint64_t offset_bytes, void *place, size_t bytes);
int flyt_channel_send_packed_later(struct flyt_channel *channel, uint64_t transfer_id, flyt_channel_pack_fn pack,
                                   size_t bytes, void (*done)(void *user, uint64_t transfer_id, int status),
                                   void *user);

/*
 * Calls and data that a server which stops the program must get all or none of: data that is sent before the call that
 * names it or beside it, a call whose answer is of use only with that of the next one. From _begin to _end the calling
 * thread's calls are not stopped by the gate; _begin waits while it is shut, unless the thread is in a group already.
 * The program is not stopped before the end: between the two nothing may be waited for that another thread's call has
 * to bring. FLYT_CHANNEL_OK, or _LOST: then there is no group, and nothing to end. Data that is sent in the background
 * is handed over before _end. Not in a handler.
 */
struct flyt_channel_group {
    struct flyt_channel_group *next;
    pthread_t thread;
};
int flyt_channel_group_begin(struct flyt_channel *channel, struct flyt_channel_group *group);
void flyt_channel_group_end(struct flyt_channel *channel, struct flyt_channel_group *group);

/*
 * What one thread has begun and another one is to finish: operations of which each rank's thread makes its own. Between
 * _begin and _end, which may be of different threads, a server that stops the program waits, and every call of the
 * program is made as ever. While the server waits nothing is begun but what finishes such things: _begin returns
 * FLYT_CHANNEL_STOPPED unless `joins`, which the caller says while it knows of one that has not ended; what is to begin
 * waits (flyt_channel_hold_wait) and is tried again. FLYT_CHANNEL_OK, or _LOST: then nothing is held. _begin and _end
 * do not wait.
 */
int flyt_channel_hold_begin(struct flyt_channel *channel, bool joins);
void flyt_channel_hold_end(struct flyt_channel *channel);
/* Until the server lets the program go on, which it may do elsewhere. FLYT_CHANNEL_OK or _LOST. */
int flyt_channel_hold_wait(struct flyt_channel *channel);

/*
 * The calls that were sent and are not known to be executed are kept, as they were encoded, for sending them again
 * after a move; so are calls whose reply is waited for, until it comes. Chunks are not kept: their bytes are found
 * again by who sent them. Nobody ever waits for room: the newest FLYT_KEPT_BYTES_MAX and FLYT_KEPT_CALLS_MAX are kept,
 * and while older ones are not executed the set is without its beginning (see rpc/transport/kept.h for why).
 */
struct flyt_channel_kept_call {
    uint64_t sequence;
    unsigned procedure;
    const void *record; /* the RPC message (RFC 5531) without record mark, aligned to 4 bytes; valid during the call */
    size_t bytes;
    bool is_awaited; /* its reply has not come */
};

/*
 * Calls `each` (may be NULL: only the outcome is wanted) for every call with a number above `after`, in the order of
 * their numbers and without a hole, those that still wait in the buffer included; before them for those up to `after`
 * that are kept and whose reply is waited for. `each` must not use the channel, which stands still meanwhile, and
 * returns false to end the walk.
 * FLYT_CHANNEL_OK; _GONE: calls above `after` are no longer kept, `each` was not called; _LOST.
 */
int flyt_channel_kept(struct flyt_channel *channel, uint64_t after,
                      bool (*each)(void *user, const struct flyt_channel_kept_call *call), void *user);

struct flyt_channel_kept_sums {
    uint64_t gone; /* calls up to this number are not kept; more than executed: a move would lose calls */
    uint64_t last; /* number of the last call that was made */
    size_t bytes;  /* memory held by written buffers, at most FLYT_KEPT_BYTES_MAX */
};
struct flyt_channel_kept_sums flyt_channel_kept_sums(struct flyt_channel *channel);

/* Sums since the channel was opened, for reports. */
struct flyt_channel_counts {
    uint64_t calls, replies, sent_bytes, received_bytes, writes;
    uint64_t page_answers; /* questions that the progress page has answered */
    uint64_t resumptions;  /* how many times the session has gone on over another connection */
};
struct flyt_channel_counts flyt_channel_counts(const struct flyt_channel *channel);
/* Calls of one procedure, below flyt_procedure_end. */
uint64_t flyt_channel_call_count(const struct flyt_channel *channel, unsigned procedure);

/*
 * A CLIENT of the RPC library over the channel: cl_call makes flyt_channel_call, cl_freeres and cl_destroy do what
 * their names say (the channel stays open), cl_control knows CLGET_FD and time-outs are ignored. For rpcgen's client
 * stubs (clnt_call). Owned by the caller (clnt_destroy).
 */
CLIENT *flyt_channel_client(struct flyt_channel *channel);

#endif
