/*
 * One connection between two programs of the control plane: ONC RPC version 2 (RFC 5531) with XDR by rpcgen, calls in
 * both directions, asynchronous, on an sd-event loop. Over tcp with mutual TLS 1.3 (RFC 9289: the null call with the
 * AUTH_TLS flavour answers "STARTTLS" and the handshake follows; in clear nothing but the null call works), over a unix
 * socket in clear with the identity that the kernel tells (SO_PEERCRED).
 *
 * Everything here belongs to the loop's thread and never blocks. A call that is served may be answered later, after
 * its connection has gone too; a call that is made ends exactly once: with its result, at its deadline, or when the
 * connection ends.
 *
 * Bounds. A record: FLYT_CONTROL_HELLO_BYTES_MAX before the peer has an identity, record_bytes_max afterwards. Calls of
 * a peer served at once: FLYT_PEER_SERVING_MAX; at a further one reading stops until one was answered. So that replies
 * are never stuck behind calls, no more of our own calls are on the wire at once; further ones wait here, in order.
 * Unsent output: FLYT_PEER_OUTPUT_BYTES_MAX, beyond which a call is refused and a reply closes the connection, and
 * FLYT_PEER_STALL_MS without the peer reading any of it. Connections without an identity are few and short, those of
 * one identity and of one address are bounded, and so is what they hold in memory together (struct flyt_door_config). A
 * message that is no RPC, or whose arguments or results cannot be decoded, ends its connection (after the answer
 * GARBAGE_ARGS, where it was a call).
 */
#ifndef FLYT_CONTROL_PEER_H
#define FLYT_CONTROL_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <rpc/rpc.h>
#include <systemd/sd-event.h>

#include "control.h"
#include "rpc/base/error.h"

enum {
    FLYT_PEER_SERVING_MAX = 64,
    FLYT_PEER_OUTPUT_BYTES_MAX = 64 << 20,
    FLYT_PEER_STALL_MS = 30000,
    FLYT_PEER_SETUP_MS = 10000, /* from connected to ready, where nobody says otherwise */
};

struct flyt_peer;
struct flyt_call;
struct flyt_tls; /* control/base/tls.h */

/* Roles: who may make a call. Bits, so that a procedure may list several. */
enum flyt_role {
    FLYT_ROLE_ANONYMOUS = 1 << 0, /* TLS without a client certificate; in clear over tcp, until it is set */
    FLYT_ROLE_NODE = 1 << FLYT_PEER_NODE,
    FLYT_ROLE_VM = 1 << FLYT_PEER_VM,
    FLYT_ROLE_OPERATOR = 1 << FLYT_PEER_OPERATOR,
    FLYT_ROLE_VIEWER = 1 << FLYT_PEER_VIEWER,
    FLYT_ROLE_MANAGER = 1 << 7, /* what we have connected to */
    FLYT_ROLE_ANY = 0xff,
};

/* Who is at the other end. */
struct flyt_identity {
    enum flyt_role role;
    char name[FLYT_NAME_BYTES_MAX + 1];    /* node, vm_ip, operator ("uid=N" on a unix socket); empty: not known */
    char serial[64];                       /* of the certificate, hexadecimal; empty without one */
    char address[FLYT_NAME_BYTES_MAX + 1]; /* numeric address and port, or "unix uid=N pid=N" */
    uid_t uid;                             /* unix only, else -1 */
    pid_t pid;
};

/* A row of a program's table, ended by one without `serve`. */
struct flyt_procedure {
    uint32_t number;
    const char *name; /* in logs and metrics: "vm_attach" */
    unsigned roles;
    xdrproc_t xdr_args; /* NULL: void */
    size_t args_bytes;
    xdrproc_t xdr_res; /* NULL: void */
    /*
     * Serves a call. `args` is the decoded argument, freed after the call is answered; NULL where it is void. Answers
     * by flyt_call_reply, now or later, exactly once; a one-way procedure by flyt_call_done.
     */
    void (*serve)(struct flyt_call *call, void *args);
};

struct flyt_program {
    uint32_t program, version;
    const struct flyt_procedure *procedures;
};

struct flyt_peer_config {
    sd_event *event;
    const struct flyt_program *serves; /* one; NULL: calls from the peer are refused (PROG_UNAVAIL) */
    size_t record_bytes_max;           /* received and sent; 0: FLYT_CONTROL_RECORD_BYTES_MAX */
    uint64_t stall_ms;                 /* 0: FLYT_PEER_STALL_MS */
    void *user; /* flyt_peer_user gives it back; what all of these functions get until it is set anew */
    /* The connection can be used (TLS included). May be NULL. */
    void (*ready)(struct flyt_peer *peer, void *user);
    /*
     * It has ended: by the other end, by an error (`cause` is a sentence) or because connecting failed; never after
     * flyt_peer_close, and of a door's connections only for those that were ready. All calls that were under way have
     * ended before. The peer is freed after this returns.
     */
    void (*ended)(struct flyt_peer *peer, const struct flyt_error *cause, void *user);
    /* For metrics, may be NULL: a call was served or made, how long it took, whether it failed on the wire. The name
     * is that of the table for served calls, of flyt_control_procedure_name for others. */
    void (*measured)(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user);
};

/*
 * Connects to tcp://HOST:PORT or unix:///PATH, names looked up on another thread. Over tcp in clear (`tls` NULL)
 * loopback addresses only. Over a unix socket `tls` is not used. Returns at once; then `ready` or, not later than
 * timeout_ms (0: FLYT_PEER_SETUP_MS), `ended`. 0 and *ret_peer, or a negative errno and a sentence in *err: the URL is
 * bad. Calls may be made before it is ready: they wait.
 */
int flyt_peer_connect(const char *url, struct flyt_tls *tls, const struct flyt_peer_config *config, uint64_t timeout_ms,
                      struct flyt_error *err, struct flyt_peer **ret_peer);
/* Ends calls under way with -ECANCELED, closes, frees. No `ended`. NULL is allowed. Returns NULL. */
struct flyt_peer *flyt_peer_close(struct flyt_peer *peer);
/* Sends what is waiting, then closes (a reply before the end). `ended` is not called; the peer is not to be used any
 * more. Calls under way end with -ECANCELED before this returns. */
void flyt_peer_close_when_sent(struct flyt_peer *peer);

void *flyt_peer_user(const struct flyt_peer *peer);
void flyt_peer_set_user(struct flyt_peer *peer, void *user);
const struct flyt_identity *flyt_peer_identity(const struct flyt_peer *peer);
/* For connections in clear (loopback, unix), where HELLO says who it is: what the procedures' roles are checked with.
 */
void flyt_peer_set_identity(struct flyt_peer *peer, enum flyt_role role, const char *name);

/*
 * How a call ended. status 0: `result` is decoded and freed after the function returns (take strings out of it by
 * setting them to NULL). Otherwise `result` is NULL: -ETIMEDOUT, -EPIPE (the connection ended), -ECANCELED,
 * -EBADMSG, -ENOSYS (the other end has no such procedure: it is of another version, and has done nothing), -EPROTO
 * (refused by the RPC layer for another reason: garbage, no memory; what was called may have been done), -EACCES (not
 * this role).
 */
typedef void (*flyt_call_done_fn)(void *user, int status, void *result);

/*
 * Makes a call; `args` (NULL with xdr_args NULL: void) has been read when this returns. done (NULL: a one-way call, no
 * reply is expected) is called later, never from inside. timeout_ms 0: no deadline but the connection's end.
 * result_bytes: size of the result's type. 0; or a negative errno, then done is not called: -EINVAL (a value is out of
 * its bounds, or all is longer than a record may be), -EPIPE (the connection has ended), -ENOBUFS (too much is
 * unsent), -ENOMEM.
 */
int flyt_peer_call(struct flyt_peer *peer, uint32_t program, uint32_t version, uint32_t procedure, xdrproc_t xdr_args,
                   const void *args, xdrproc_t xdr_res, size_t result_bytes, uint64_t timeout_ms,
                   flyt_call_done_fn done, void *user);

/* Inside and after `serve`. */
struct flyt_peer *flyt_call_peer(const struct flyt_call *call);               /* NULL: it has gone */
const struct flyt_identity *flyt_call_identity(const struct flyt_call *call); /* stays with the call */
/* Answers and frees the call; *result (of the procedure's result type) has been read when this returns and stays the
 * caller's. Dropped silently where the peer has gone. */
void flyt_call_reply(struct flyt_call *call, const void *result);
/* The same over a unix socket, with a descriptor, which is taken over in every case and travels with the reply's first
 * byte. */
void flyt_call_reply_with(struct flyt_call *call, const void *result, int fd);
/* Ends a call without a reply (one-way). */
void flyt_call_done(struct flyt_call *call);
/* Ends a call with an RPC error instead of a result: SYSTEM_ERR. Also what a result that cannot be encoded gives. */
void flyt_call_fail(struct flyt_call *call);

/* "node_heartbeat", "order_apply", "local_attach": what is called by these numbers; "other" where nothing is. */
const char *flyt_control_procedure_name(uint32_t program, uint32_t procedure);

/* ---- listening ---- */

struct flyt_door;

enum { FLYT_DOOR_PEERS_MAX = 4096, FLYT_DOOR_ANONYMOUS_MAX = 64 };
enum { FLYT_DOOR_IDENTITY_BYTES_MAX = 96 << 20, FLYT_DOOR_ADDRESS_BYTES_MAX = 768 << 20 };

struct flyt_door_config {
    struct flyt_peer_config peer; /* of each accepted connection */
    unsigned peers_max;           /* all at once; 0: FLYT_DOOR_PEERS_MAX */
    /* Without an identity, all at once; 0: FLYT_DOOR_ANONYMOUS_MAX. Beyond it the address that has most of them loses
     * its oldest. In each turn of the loop a quarter of as many are accepted: so thousands that come at once each have
     * some turns to say who they are. */
    unsigned anonymous_max;
    unsigned anonymous_ms;     /* and how long each may be; 0: FLYT_PEER_SETUP_MS */
    unsigned per_address_max;  /* connections of one address (unix: of one uid) at once; 0: peers_max */
    unsigned per_identity_max; /* of one certificate's name and role, or of what HELLO says in clear; 0: peers_max */
    /* What connections of one identity, or of one address, may hold in memory at once: answers that are not read,
     * records that are not complete. Beyond it the one that wants more is closed. 0: FLYT_DOOR_IDENTITY_BYTES_MAX,
     * FLYT_DOOR_ADDRESS_BYTES_MAX. */
    size_t identity_bytes_max, address_bytes_max;
    /* Asked for each connection with an identity from a certificate or the kernel (unix: FLYT_ROLE_OPERATOR): false
     * closes it. May set role and name. `user` is peer.user. */
    bool (*admit)(struct flyt_identity *identity, void *user);
};

/*
 * Accepts on listen_fd (made non-blocking, stays the caller's). With `tls`, which outlives the door, a client needs a
 * certificate, unless a procedure of the served program lists FLYT_ROLE_ANONYMOUS. Connections beyond a bound other
 * than anonymous_max are closed at once, those beyond per_identity_max as soon as it is known who they are. 0 or a
 * negative errno.
 */
int flyt_door_new(int listen_fd, struct flyt_tls *tls, const struct flyt_door_config *config,
                  struct flyt_door **ret_door);
/* Closes its connections too, without `ended` (flyt_door_each visits them before). NULL is allowed. Returns NULL. */
struct flyt_door *flyt_door_free(struct flyt_door *door);
/* Connections so far whose certificate was refused (expired, of another CA, for something else), or that are not
 * admitted. */
uint64_t flyt_door_refused_count(const struct flyt_door *door);
/* Calls visit for each connection that is ready. visit may close the one that it is given. */
void flyt_door_each(struct flyt_door *door, void (*visit)(struct flyt_peer *peer, void *user), void *user);

#endif
