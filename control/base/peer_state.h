/*
 * What the files of the peer share (peer_state.c, peer_turns.c, peer_io.c, peer_call.c, peer_reply.c, peer.c,
 * peer_connect.c, door.c, each using those before it): its state,
 * and what each does for the others. Nobody else includes this.
 *
 * No function of the public interface does I/O or calls back: it queues, and flyt_peer_wake has the loop do the rest.
 * Whatever calls back (ready, ended, serve, done) may close the peer: who goes on afterwards holds a reference and
 * looks at the phase again.
 */
#ifndef FLYT_CONTROL_PEER_STATE_H
#define FLYT_CONTROL_PEER_STATE_H

#include <sys/queue.h>
#include <openssl/types.h>

#include "control/base/peer.h"
#include "control/base/peer_turns.h"
#include "rpc/transport/input.h"

enum flyt_peer_phase {
    FLYT_PEER_CONNECTING, /* looking up the host, connecting */
    FLYT_PEER_PROBING,    /* client: has asked for TLS (RFC 9289, section 4.1), waits for STARTTLS */
    FLYT_PEER_GUARDED,    /* server: nothing but the null call until TLS is asked for */
    FLYT_PEER_UPGRADING,  /* server: STARTTLS is being sent */
    FLYT_PEER_SHAKING,    /* the TLS handshake */
    FLYT_PEER_CONFIRMING, /* client: with TLS 1.3 only an answer shows that the server took our certificate */
    FLYT_PEER_READY,
    FLYT_PEER_DRAINING,  /* flyt_peer_close_when_sent */
    FLYT_PEER_LINGERING, /* all is sent; the other end closes first, or a reset could overtake what it has not read */
    FLYT_PEER_ENDED,
};

/* An encoded record, mark included, that waits to be sent. */
struct flyt_outgoing {
    STAILQ_ENTRY(flyt_outgoing) link;
    unsigned char *data;
    size_t bytes, sent_bytes;
    struct flyt_made_call *call; /* where it waits and is to be answered */
    bool has_fd;                 /* a descriptor goes with its first byte, */
    int fd;                      /* which is closed with it */
};
STAILQ_HEAD(flyt_outgoing_list, flyt_outgoing);

/* What it counts in unsent_bytes: small ones cost more than their bytes. */
static inline size_t flyt_outgoing_cost(const struct flyt_outgoing *record)
{
    return record->bytes + sizeof *record + 2 * sizeof(void *);
}

/* A call of ours. */
struct flyt_made_call {
    TAILQ_ENTRY(flyt_made_call) link;
    struct flyt_peer *peer;
    uint32_t xid, program, procedure;
    xdrproc_t xdr_res;
    size_t result_bytes;
    flyt_call_done_fn done; /* NULL: it has ended, but the other end still serves it */
    void *user;
    sd_event_source *deadline;
    uint64_t started_us;
    bool is_on_wire;
};

/* A call that is served. */
struct flyt_call {
    TAILQ_ENTRY(flyt_call) link;
    struct flyt_peer *peer; /* NULL: it has gone */
    const struct flyt_procedure *procedure;
    uint32_t xid;
    void *args;
    uint64_t started_us;
    struct flyt_identity identity;
};

struct flyt_connecting;
struct flyt_peer;

/* What a peer asks and tells the door that it came through (door.c). */
struct flyt_peer_door_ops {
    /* It has got an identity: whether it may stay. */
    bool (*admits)(struct flyt_peer *peer);
    /* It has an identity, or another one: counts it. False: there are too many of that. May be told so again. */
    bool (*identified)(struct flyt_peer *peer);
    /* Whether it may hold more: counts what it holds now, output and input. */
    bool (*has_room)(struct flyt_peer *peer);
    void (*refused)(struct flyt_peer *peer); /* before it is forgotten */
    void (*forget)(struct flyt_peer *peer);
};

/* What a peer that connects has of peer_connect.c. */
struct flyt_peer_connect_ops {
    /* Its turn: a lookup has ended, a socket is connected or not. */
    void (*go_on)(struct flyt_peer *peer);
    void (*forget)(struct flyt_peer *peer);
    const char *(*host)(const struct flyt_peer *peer);
};

/* What the connections of one address, or of one identity, have together (door.c). */
enum flyt_door_scope { FLYT_DOOR_ADDRESS, FLYT_DOOR_IDENTITY, FLYT_DOOR_SCOPES };
struct flyt_door_group;

struct flyt_peer {
    unsigned ref_count; /* one is the owner's: of who has made it, until it has ended or was closed */
    struct flyt_peer_config config;
    enum flyt_peer_phase phase;
    bool is_server, was_ready, is_closed;
    bool has_identity, is_counted_anonymous;
    struct flyt_identity identity;
    struct flyt_error cause; /* code set: the connection is to end, is_last_sent: once all is sent */
    bool is_last_sent;

    int fd;                        /* -1: none */
    struct flyt_peer_turns *turns; /* the door's; NULL: io and again are its own */
    sd_event_source *io, *again, *setup, *stall;
    bool is_watched, is_woken; /* turns.c */
    TAILQ_ENTRY(flyt_peer) woken_link;
    uint32_t io_events;
    struct flyt_tls *tls; /* a reference */
    SSL *ssl;
    bool wants_write;                   /* TLS must write before it can read on */
    struct flyt_connecting *connecting; /* NULL: it has connected, or was */
    const struct flyt_peer_connect_ops *connect_ops;

    struct flyt_input input;
    bool has_input;
    struct flyt_input_record held; /* with data: a call that must wait until another was answered; reading stops */
    struct flyt_outgoing_list output, waiting; /* waiting: calls that may not be on the wire yet */
    size_t unsent_bytes;                       /* of both */
    uint64_t progress_ms;                      /* when the other end has last read something */

    TAILQ_HEAD(, flyt_made_call) made; /* in the order in which they were made */
    void *made_by_xid;                 /* the same, tsearch(3) */
    unsigned on_wire_count;
    uint32_t next_xid;

    TAILQ_HEAD(, flyt_call) serving;
    unsigned serving_count, refused_count;

    struct flyt_door *door; /* NULL: none */
    const struct flyt_peer_door_ops *door_ops;
    LIST_ENTRY(flyt_peer) door_link;
    TAILQ_ENTRY(flyt_peer) anonymous_link;      /* while is_counted_anonymous */
    char door_address[FLYT_NAME_BYTES_MAX + 1]; /* what per_address_max counts by */
    struct flyt_door_group *groups[FLYT_DOOR_SCOPES];
    size_t counted_bytes; /* what its groups know of it */
};

/* ---- peer_state.c ---- */

/* Has the loop run the peer soon. */
void flyt_peer_wake(struct flyt_peer *peer);
/* Notes that the connection is to end, for this reason, and wakes the peer. The first reason counts. */
void flyt_peer_fail(struct flyt_peer *peer, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
struct flyt_peer *flyt_peer_unref(struct flyt_peer *peer);
/* (Re)arms a timer; 0: turns it off. */
int flyt_peer_timer(struct flyt_peer *peer, sd_event_source **source, uint64_t after_ms,
                    sd_event_time_handler_t handler);
uint64_t flyt_peer_now_us(void);

/* ---- peer.c ---- */

/* A peer without a socket, with one reference. */
int flyt_peer_alloc(const struct flyt_peer_config *config, struct flyt_tls *tls, bool is_server,
                    struct flyt_peer_turns *turns, struct flyt_peer **ret_peer);
/* A door's socket; takes over fd in every case. `tls` NULL: in clear. `ready` is called later. 0 or a negative errno.
 */
int flyt_peer_accepted(int fd, struct flyt_tls *tls, const struct flyt_peer_config *config,
                       struct flyt_peer_turns *turns, struct flyt_peer **ret_peer);
/* A connected socket that does not block: the peer's from now on, on failure too. */
int flyt_peer_attach(struct flyt_peer *peer, int fd);
/* Watches the socket for `events` of epoll(7) by flyt_peer_run. */
int flyt_peer_watch(struct flyt_peer *peer, int fd, uint32_t events);
/* What the loop calls: the socket is ready for `events` of epoll(7); its turn. */
void flyt_peer_is_ready(struct flyt_peer *peer, uint32_t events);
void flyt_peer_take_turn(struct flyt_peer *peer);
/* Ends the connection at once; calls `ended`. */
void flyt_peer_end(struct flyt_peer *peer, const struct flyt_error *cause);
/* TLS or what stands for it is done: from connected to the question for TLS, to ready. */
void flyt_peer_proceed(struct flyt_peer *peer);
/* How long it may take from now until it is ready and has an identity. */
int flyt_peer_limit_setup(struct flyt_peer *peer, uint64_t within_ms);

/* ---- peer_io.c ---- */

/* Reads once. Bytes (> 0), -EAGAIN, -EPIPE at the end, or another negative errno. */
int flyt_peer_receive(struct flyt_peer *peer, struct flyt_error *err);
/* Sends what it can. 0: all is sent; -EAGAIN; or another negative errno. */
int flyt_peer_send(struct flyt_peer *peer, struct flyt_error *err);
/* Whether more may be queued: by what it has not sent, and by what others of its identity and address hold. */
bool flyt_peer_has_room(struct flyt_peer *peer);
/* Puts a record on the wire behind the others; takes over `record`. */
void flyt_peer_queue(struct flyt_peer *peer, struct flyt_outgoing *record);
struct flyt_outgoing *flyt_outgoing_free(struct flyt_outgoing *record);
/* Says who is at the other end of a connected socket: address, uid, pid; for a door, what it counts by. */
void flyt_peer_describe(struct flyt_peer *peer);

/* ---- peer_reply.c: a record that was received is a call ---- */

void flyt_peer_take_call(struct flyt_peer *peer, const unsigned char *record, size_t bytes);

/* ---- peer_call.c ---- */

/* What stands before a call's arguments; of a reply: xid only. */
struct flyt_record_head {
    bool is_reply;
    uint32_t xid, program, version, procedure;
};
/* Encodes a record: room for the mark, what `head` puts, what `body` puts (may be NULL). 0, -EINVAL or -ENOMEM. */
int flyt_peer_encode(const struct flyt_peer *peer, const struct flyt_record_head *head, xdrproc_t xdr, const void *body,
                     struct flyt_outgoing **ret_record);
/* Queues a record of plain words. False: no memory, and the connection is to end. */
bool flyt_peer_queue_words(struct flyt_peer *peer, const uint32_t *words, unsigned count);
/* A record that was received is a reply. */
void flyt_peer_take_reply(struct flyt_peer *peer, const unsigned char *record, size_t bytes);
/* Puts waiting calls on the wire as far as they may. */
void flyt_peer_release_calls(struct flyt_peer *peer);
/* Ends all calls. */
void flyt_peer_end_calls(struct flyt_peer *peer, int status);

#endif
