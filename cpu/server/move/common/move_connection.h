/*
 * One of the connections between two servers of different nodes over which a session moves (MOVE of kind
 * FLYT_MANAGER_LINK_MOVE_SEND, RECEIVE): a stream socket that a node manager has made, from here on encrypted where it
 * is to be (rpc/transport/endpoint/secure.h). Everything waits where it can be called off: by a descriptor that becomes
 * readable, and stays so.
 *
 * Each is an endpoint (rpc/transport/endpoint/endpoint.h). The image's connection may be read by one thread while
 * another one writes to it. The further ones, which have the contents of pages and go one way, are encrypted by the
 * thread that sends them, straight from their place, and decrypted to it by the one that reads them.
 */
#ifndef FLYT_SERVER_MOVE_CONNECTION_H
#define FLYT_SERVER_MOVE_CONNECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "rpc/base/error.h"
#include "rpc/transport/endpoint/secure.h"

struct flyt_endpoint;

enum {
    FLYT_MOVE_CONNECTION_ALIVE_MS =
        5000, /* so long at most either side says nothing at all over the image's connection */
    /* So long it may be silent, and so may one on which contents are due; then the other side is taken for lost. */
    FLYT_MOVE_CONNECTION_SILENCE_MS = 60000,
    FLYT_MOVE_CONNECTION_CONNECT_MS = 10000, /* for the encryption's handshake */
    FLYT_MOVE_CONNECTION_LOW_BYTES = 1024 * 1024,
    FLYT_MOVE_CONNECTION_FAREWELL_MS =
        2000, /* so long what was said last waits to be read, or an answer for a broken stream */
};

/* fd -1: none. */
struct flyt_move_connection {
    int fd; /* the endpoint's, of which it is not told how many bytes a wait is for */
    struct flyt_endpoint *endpoint;
    int low_bytes; /* a wait is for so many (SO_RCVLOWAT) */
    /* A further connection. */
    bool is_encrypted, is_sender;
    atomic_bool is_begun;                     /* what comes from here on is what was sent */
    unsigned char key[FLYT_SECURE_KEY_BYTES]; /* until the handshake is made */
};

/*
 * Takes fd over, also where it fails. key: NULL: it stays in clear; else FLYT_KEY_BYTES, and the sending side makes the
 * handshake, for FLYT_MOVE_CONNECTION_CONNECT_MS at most. 0, -ECANCELED, or another negative errno with a sentence.
 */
int flyt_move_connection_open(struct flyt_move_connection *connection, int fd, const unsigned char *key, bool is_sender,
                              int cancel_fd, struct flyt_error *err);
/* A further connection: takes fd over, also where it fails; does not wait. key: as above, until
 * flyt_move_connection_begin has ended. Then flyt_move_connection_begin, in the thread that sends or reads it, before
 * it does: makes the handshake where there is to be one, for FLYT_MOVE_CONNECTION_CONNECT_MS at most. Both: 0 or a
 * negative errno with a sentence, -ECANCELED among them.
 */
int flyt_move_connection_open_stream(struct flyt_move_connection *connection, int fd, const unsigned char *key,
                                     bool is_sender, struct flyt_error *err);
int flyt_move_connection_begin(struct flyt_move_connection *connection, int cancel_fd, struct flyt_error *err);
/* Whether the other side, where it is to be silent, has sent something. Any thread. */
bool flyt_move_connection_has_more(const struct flyt_move_connection *connection);
/* Whether what was written still goes out is left to chance: flyt_move_connection_part before it makes sure. To be
 * called for a zeroed one with fd -1, too. */
void flyt_move_connection_close(struct flyt_move_connection *connection);

/* The image's connection: sends what goes without waiting. How many bytes; -EAGAIN: none now; or another negative
 * errno. Call it with 0 bytes while flyt_move_connection_is_pending. */
ssize_t flyt_move_connection_try_send(const struct flyt_move_connection *connection, const void *bytes, size_t count);
/* Whether something that was taken has not gone out. */
bool flyt_move_connection_is_pending(const struct flyt_move_connection *connection);
/* The image's connection: whether there is something to be read now, of which its descriptor may not tell. */
bool flyt_move_connection_is_ready(const struct flyt_move_connection *connection);
/* The image's connection: nothing more is said, either way. */
void flyt_move_connection_end(const struct flyt_move_connection *connection);

/* Sends all of the parts, which are written to; waits as long as it takes. 0; -ECANCELED; -EPIPE: the other side has
 * gone; or another negative errno. */
int flyt_move_connection_send(const struct flyt_move_connection *connection, struct iovec *parts, unsigned count,
                              int cancel_fd);

/* Waits until there is something to be read, or the end. 0; -ECANCELED; -ETIMEDOUT; or a negative errno. */
int flyt_move_connection_await(const struct flyt_move_connection *connection, int cancel_fd, int timeout_ms);
/* The same; but so many bytes are still to come (1 or more), and a wait may last until FLYT_MOVE_CONNECTION_LOW_BYTES
 * of them are there: what is woken up seldom does not hinder who sends. -ETIMEDOUT says nothing of fewer, which are to
 * be read. */
int flyt_move_connection_await_part(struct flyt_move_connection *connection, size_t due_bytes, int cancel_fd,
                                    int timeout_ms);
/* Reads what is there, at most `bytes`. Their number; 0: the end; -EAGAIN: nothing; -EBADMSG: it is not what the other
 * side has sent; or another negative errno. */
int flyt_move_connection_read(const struct flyt_move_connection *connection, void *place, size_t bytes);

/* Says that nothing more is to be sent, and reads what still comes, up to the end, for FLYT_MOVE_CONNECTION_FAREWELL_MS
 * at most: so what was sent last is read on the other side, and not thrown away with the connection. */
void flyt_move_connection_part(const struct flyt_move_connection *connection);

#endif
