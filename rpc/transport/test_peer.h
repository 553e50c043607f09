/*
 * A server for tests and measurements of the wire, in the test's own process: it listens, makes handshakes, opens data
 * streams and answers every procedure through rpcgen's dispatch, without CUDA. One thread per connection. Its memory is
 * one array of bytes: "device" addresses are offsets in it. Where its features say so, a session goes on over another
 * connection: each main connection is then what in reality would be a server process of its own.
 */
#ifndef FLYT_TRANSPORT_TEST_PEER_H
#define FLYT_TRANSPORT_TEST_PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "flyt.h"
#include "rpc/base/url.h"
#include "rpc/transport/call_record.h"
#include "rpc/transport/channel.h"
#include "rpc/transport/connection.h"

enum {
    TEST_PEER_CONNECTIONS_MAX = 64,
    TEST_PEER_TRANSFERS_MAX = 64,
    TEST_PEER_WINDOW_BYTES = 192 * 1024 /* less than any chunk */
};

struct test_peer;

/* One connection; `connection` is NULL when its thread has ended. */
struct test_link {
    struct test_peer *peer;
    struct flyt_connection *connection;
    pthread_t thread;
    bool has_thread;
    _Atomic(bool) is_main, is_data; /* neither, until the handshake has said which */
    bool is_cut;       /* under the peer's mutex */
    bool is_restoring; /* between session_resume_begin and _end: calls are not counted */
    bool is_stopped;   /* the test's */
    uint64_t received, last_notice;
    struct flyt_error end; /* why it ended */
};

struct test_peer {
    /* Set by the test between test_peer_init and test_peer_start. */
    unsigned data_streams;
    unsigned closes_count;            /* so many connections after the first are closed without a word */
    const flyt_signature *signatures; /* rising numbers */
    unsigned signature_count;
    const unsigned char *base_hash; /* another one makes it refuse */
    bool is_mute;                   /* sends no idle notices */
    unsigned features;              /* what its answers to handshakes announce */
    uint64_t window_bytes;          /* of a transfer without a grant, where clients heed them; 0: it grants nothing */
    bool is_own_granter;            /* the test grants, by test_peer_grant; else every chunk brings a window more */
    const int *handshake_fds;       /* descriptors that travel with them, over unix sockets; the test's */
    unsigned handshake_fd_count;
    _Atomic(unsigned) busy_data_count; /* so many data streams are told to come later */
    _Atomic(unsigned) busy_count;     /* so many connections that want to go on with a session are told to come later */
    _Atomic(unsigned) resume_status;  /* what they are told, if it is not OK: a flyt_handshake_status */
    const char *resume_message;       /* and in which words; NULL: none */
    _Atomic(unsigned) driver_version; /* that it tells from now on; 0: 13000 */
    _Atomic(bool) is_whole;           /* it says that nothing is to be made again */
    const struct flyt_call_state *left_at; /* it says that the dead server had come so far; NULL: it does not know */
    _Atomic(unsigned) unresumed_count;     /* so many session_resume_end are refused */
    /* Called for every call of a table's procedure before it is answered; returns false where it answers by itself or
     * not at all. May be NULL. */
    bool (*serve)(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                  struct svc_req *req);
    void *user;

    /* What it has granted, of the transfers that came first; under the mutex. */
    struct {
        uint64_t transfer_id, end;
    } granted[TEST_PEER_TRANSFERS_MAX];
    unsigned granted_count;
    _Atomic(bool) heeds_grants;        /* the client that came last does */
    _Atomic(unsigned) grant_count;     /* how often */
    _Atomic(unsigned) ungranted_count; /* chunks that should not have come */

    unsigned char *memory;
    size_t memory_bytes;

    char url[FLYT_URL_TEXT_BYTES];
    flyt_channel_dial_fn dial; /* in memory: how a client gets to it, with the peer as user; NULL: by its URL */
    struct flyt_memory_listener memory_listener;
    int listen_fd;         /* -1: in memory */
    _Atomic(bool) is_deaf; /* nobody gets to it in memory any more */
    pthread_t thread;
    pthread_mutex_t mutex;
    struct test_link links[TEST_PEER_CONNECTIONS_MAX];
    unsigned link_count;
    _Atomic(unsigned) next_chunk_link;
    _Atomic(uint64_t) call_count, chunk_bytes;
    _Atomic(uint64_t) restored_count; /* calls that made a session's objects again */
    _Atomic(uint64_t) resume_after;   /* of the last session_resume_end */
    _Atomic(unsigned) reason_count;   /* of session_resume_fail, and what the last one said */
    char reason[64];
    _Atomic(unsigned) refused_count; /* connections that were told to come later */
    _Atomic(unsigned) whole_count;   /* how often it was asked */
    _Atomic(unsigned) key;           /* the first byte of the credentials that came last; 0: none */
    _Atomic(bool) holds_chunks;      /* chunks are not taken while this is true */
    _Atomic(bool) holds_streams;     /* handshakes of data streams are not answered while this is true */
    unsigned free_streams;           /* so many of them are all the same, the first ones; set before it is started */
    _Atomic(unsigned) held_streams;  /* so many were held */
    _Atomic(uint64_t) executed_max;  /* tells no higher number as executed; UINT64_MAX at first */
};

void test_peer_init(struct test_peer *peer);
/* Listens on url ("tcp://127.0.0.1:0", "unix:///…"). Fails the test where that is not possible. */
void test_peer_start(struct test_peer *peer, const char *url);
/* The same at an address that nobody else has: with the scheme "unix" at a path, with "memory" by its
 * member `dial` alone, with others at a port of TCP. */
void test_peer_start_on(struct test_peer *peer, const char *scheme);
/* Takes a connection over, of which somebody has read the handshake's record (with its mark). */
void test_peer_take(struct test_peer *peer, struct flyt_endpoint *endpoint, const void *record, size_t bytes);
/* Ends all connections and threads and frees the memory. */
void test_peer_stop(struct test_peer *peer);
/* Grants `bytes` from an offset on. */
void test_peer_grant(struct test_peer *peer, uint64_t transfer_id, uint64_t offset_bytes, uint64_t bytes);
/* Nobody can connect any more; the connections that there are stay. */
void test_peer_deafen(struct test_peer *peer);
/* Shuts the connections down, as a dying server's kernel does. */
void test_peer_cut(struct test_peer *peer);
/* Sends memory[address…] to the client as chunks, over the data streams where there are some. */
void test_peer_send_chunks(struct test_peer *peer, struct test_link *link, uint64_t transfer_id, uint64_t address,
                           size_t bytes);

/* What the generated stubs call (flyt_test_svc.c). */
bool_t flyt_test_serve(unsigned procedure, void *args, void *res, size_t res_bytes, struct svc_req *req);

#endif
