/*
 * The listener of a server: accepts connections on its listening sockets and reads exactly the first calls of each,
 * until a handshake has come in full; that connection is then handed over together with the record. Null calls and
 * queries are answered here, so that rpcinfo and anyone's stock client can make them without a session. Without CUDA.
 *
 * A connection that has not made its handshake is bounded in everything: FLYT_GREETER_TIME_MS of life, records of
 * FLYT_HANDSHAKE_BYTES_MAX, FLYT_GREETER_CONNECTIONS_MAX of them at once. While it is full, each may live a second,
 * and for one that comes the address with most of them loses one: so strangers cannot keep others out, who need a place
 * for the moment of a handshake. Where all are of different addresses, or local, further ones wait in the kernel's
 * queue. What is not a call of ours gets its RPC error or is closed.
 *
 * Single-threaded and non-blocking: wait until flyt_greeter_fd is readable (poll, epoll, sd-event), then call
 * flyt_greeter_process; that is all, time limits included. Example:
 *
 *     struct flyt_greeter_config config = {.query = fill_query, .handshake = hand_over, .user = self};
 *     flyt_greeter_new(&config, &greeter);
 *     flyt_greeter_listen(greeter, listen_fd);
 *     for (;;) { poll(flyt_greeter_fd(greeter)) ; flyt_greeter_process(greeter); }
 */
#ifndef FLYT_TRANSPORT_GREETER_H
#define FLYT_TRANSPORT_GREETER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "flyt.h"

enum {
    FLYT_GREETER_CONNECTIONS_MAX = 256,
    FLYT_GREETER_TIME_MS = 10000,
    FLYT_GREETER_FRAGMENTS_MAX = 64,
    /* A handshake's record with its marks. */
    FLYT_GREETER_RECORD_BYTES_MAX = FLYT_HANDSHAKE_BYTES_MAX + 4 * FLYT_GREETER_FRAGMENTS_MAX
};

struct flyt_greeter;

/* A handshake that answers a challenge; everything is valid during the call. */
struct flyt_greeter_answer {
    unsigned char challenge[FLYT_CHALLENGE_BYTES]; /* of this connection, never used again */
    unsigned char record_hash[FLYT_HASH_BYTES];    /* SHA-256 of the first record, without marks */
    uint32_t xid;
    const flyt_handshake_args *args; /* equal to those of the first handshake but for the proof */
};

struct flyt_greeter_config {
    /* Fills the zeroed answer to a query; strings must stay valid until the next call and are not freed. */
    void (*query)(void *user, flyt_query_res *res);
    /*
     * A handshake came. fd belongs to the callee from now on: connected, close-on-exec, non-blocking, tuned, and at the
     * byte after the record. `record` (raw, record marks included: input of flyt_handshake_decode and
     * flyt_connection_preload) is valid during the call. The greeter may be freed only after the call.
     */
    void (*handshake)(void *user, int fd, const void *record, size_t bytes);
    /*
     * NULL: nobody is challenged. A connection's first handshake, decoded: whether it is to prove its credentials. If
     * not, it is handed over. If so, the greeter sends a challenge and keeps the connection, within the bounds that it
     * had from the beginning; a second handshake, which must be equal but for its proof, comes to `answer`, like
     * `handshake` (then `record` is the second one).
     */
    bool (*is_challenged)(void *user, const flyt_handshake_args *args);
    void (*answer)(void *user, int fd, const struct flyt_greeter_answer *answer, const void *record, size_t bytes);
    void *user;
};

/* 0 or a negative errno. */
int flyt_greeter_new(const struct flyt_greeter_config *config, struct flyt_greeter **ret_greeter);
/* Closes its connections, not the listening sockets. NULL is allowed. Returns NULL. */
struct flyt_greeter *flyt_greeter_free(struct flyt_greeter *greeter);

/* Accepts from listen_fd (made non-blocking; stays the caller's, who closes it after the greeter is freed). At most 8.
 * 0, -ENOSPC, or a negative errno. */
int flyt_greeter_listen(struct flyt_greeter *greeter, int listen_fd);

/* Readable when there is something to do. */
int flyt_greeter_fd(const struct flyt_greeter *greeter);

/* Does what there is to do without waiting. 0, or a negative errno where the greeter itself is broken (its connections
 * never are a reason). */
int flyt_greeter_process(struct flyt_greeter *greeter);

#endif
