/*
 * One of the connections between two servers of different nodes over which a session moves (MOVE of kind
 * FLYT_SERVER_LINK_MOVE_SEND, RECEIVE): a stream socket that a node manager has made, from here on encrypted where it
 * is to be (rpc/transport/secure.h). Everything waits where it can be called off: by a descriptor that becomes
 * readable, and stays so.
 *
 * The image's connection may be read by one thread while another one writes to it: where it is encrypted, a thread
 * carries what goes over it. The further ones, which have the contents of pages and go one way, are encrypted by the
 * thread that sends them, straight from their place, and decrypted to it by the one that reads them.
 */
#ifndef FLYT_SERVER_PEER_H
#define FLYT_SERVER_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "rpc/base/error.h"

struct flyt_secure;

enum {
    FLYT_PEER_ALIVE_MS = 5000, /* so long at most either side says nothing at all over the image's connection */
    /* So long it may be silent, and so may one on which contents are due; then the other side is taken for lost. */
    FLYT_PEER_SILENCE_MS = 60000,
    FLYT_PEER_CONNECT_MS = 10000, /* for the encryption's handshake */
    FLYT_PEER_LOW_BYTES = 1024 * 1024,
    FLYT_PEER_FAREWELL_MS = 2000, /* so long what was said last waits to be read, or an answer for a broken stream */
};

/* fd -1: none. */
struct flyt_peer {
    int fd; /* what is read and written; does not block */
    struct flyt_secure *secure;
    bool is_direct; /* fd is secure's own */
    int low_bytes;  /* a wait is for so many (SO_RCVLOWAT) */
};

/*
 * Takes fd over, also where it fails. key: NULL: it stays in clear; else FLYT_KEY_BYTES, and the sending side makes the
 * handshake, for FLYT_PEER_CONNECT_MS at most. 0, -ECANCELED, or another negative errno with a sentence.
 */
int flyt_peer_open(struct flyt_peer *peer, int fd, const unsigned char *key, bool is_sender, int cancel_fd,
                   struct flyt_error *err);
/* A further connection: takes fd over, also where it fails; does not wait. key: as above, until flyt_peer_begin has
 * ended. Then flyt_peer_begin, in the thread that sends or reads it, before it does: makes the handshake where there
 * is to be one, for FLYT_PEER_CONNECT_MS at most. Both: 0 or a negative errno with a sentence, -ECANCELED among them.
 */
int flyt_peer_open_stream(struct flyt_peer *peer, int fd, const unsigned char *key, bool is_sender,
                          struct flyt_error *err);
int flyt_peer_begin(struct flyt_peer *peer, int cancel_fd, struct flyt_error *err);
/* Whether the other side, where it is to be silent, has sent something. Any thread. */
bool flyt_peer_has_more(const struct flyt_peer *peer);
/* Whether what was written still goes out is left to chance: flyt_peer_part before it makes sure. To be called for a
 * zeroed one with fd -1, too. */
void flyt_peer_close(struct flyt_peer *peer);

/* Sends all of the parts, which are written to; waits as long as it takes. 0; -ECANCELED; -EPIPE: the other side has
 * gone; or another negative errno. */
int flyt_peer_send(const struct flyt_peer *peer, struct iovec *parts, unsigned count, int cancel_fd);

/* Waits until there is something to be read, or the end. 0; -ECANCELED; -ETIMEDOUT; or a negative errno. */
int flyt_peer_await(const struct flyt_peer *peer, int cancel_fd, int timeout_ms);
/* The same; but so many bytes are still to come (1 or more), and a wait may last until FLYT_PEER_LOW_BYTES of them are
 * there: what is woken up seldom does not hinder who sends. -ETIMEDOUT says nothing of fewer, which are to be read. */
int flyt_peer_await_part(struct flyt_peer *peer, size_t due_bytes, int cancel_fd, int timeout_ms);
/* Reads what is there, at most `bytes`. Their number; 0: the end; -EAGAIN: nothing; -EBADMSG: it is not what the other
 * side has sent; or another negative errno. */
int flyt_peer_read(const struct flyt_peer *peer, void *place, size_t bytes);

/* Says that nothing more is to be sent, and reads what still comes, up to the end, for FLYT_PEER_FAREWELL_MS at most:
 * so what was sent last is read on the other side, and not thrown away with the connection. */
void flyt_peer_part(const struct flyt_peer *peer);

#endif
