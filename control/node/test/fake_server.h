/*
 * What the files of the server without CUDA share, which fake_server.c describes: fake_broker.c is what it shares,
 * fake_move.c is the server that is left, fake_send.c what it sends to another node, fake_target.c the one where a
 * session goes on, fake_receive.c that for one which comes from another node.
 */
#ifndef FLYT_NODE_FAKE_SERVER_H
#define FLYT_NODE_FAKE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/ledger.h"
#include "rpc/transport/call_record.h"
#include "rpc/transport/manager_link.h"

enum { FAKE_EXTENTS_MAX = 512, FAKE_LIBRARIES_MAX = 64 };

struct fake {
    int link_fd, client_fd;
    struct flyt_manager_link_message message;
    struct flyt_manager_link_session session;
    struct flyt_ledger *ledgers[FLYT_SLOTS_MAX];
    unsigned char holding[FLYT_SLOTS_MAX][FLYT_MANAGER_LINK_GROUP_BYTES]; /* groups that are not vacated */
    uint64_t cached[FLYT_SLOTS_MAX];
    uint64_t limits[FLYT_SLOTS_MAX];
    char program[FLYT_NAME_BYTES_MAX + 1];
    struct {
        struct flyt_manager_link_extent extent;
        int fd; /* 0: none */
    } extents[FAKE_EXTENTS_MAX];
    bool is_stubborn, is_sluggish, is_unchanging, is_silent;
    int time_slice_fds[FLYT_SLOTS_MAX];   /* -1: none */
    struct flyt_manager_link_share share; /* the last one that came */
    bool is_resumed;
    struct flyt_manager_link_resume resume;
    struct flyt_call_record *record; /* NULL: it has handed over none */
    struct flyt_manager_link_use use;
    uint64_t last_extent_id, sequence; /* the highest id ever; lines that its client has said */
    unsigned library_count;
    uint64_t libraries[FAKE_LIBRARIES_MAX];
    struct {
        uint64_t id, left_id; /* 0: none */
        uint32_t kind;
        int mirror_fds[FAKE_EXTENTS_MAX]; /* 0: none */
        bool is_refusing, is_busy, is_mute, is_stop_due, is_frozen;
        int image_fd, parent_fd; /* 0: none */
        uint64_t pages_kept;
        uint64_t restless_count;
        uint64_t lingers; /* as the command names it */
    } move;
    struct {
        int fds[1 + FLYT_MIGRATION_STREAMS_MAX];
        unsigned count; /* of these; 0: it sends to no other node */
        struct flyt_manager_link_streams streams;
        bool is_awaiting; /* what it has sent at its stop is not acknowledged */
        bool is_acknowledged;
        char line[300];
        size_t line_bytes;
    } sending;
    int locked_ledger_fd;  /* 0: it has none */
    unsigned locked_count; /* pieces that it was told of (LOCKS), those that are gone left out */
    struct {
        uint64_t sequence, library_count; /* as STATE says */
        bool has_state;
    } taken;
    struct {
        uint64_t move_id; /* 0: it has received nothing */
        uint64_t error_count;
        struct flyt_manager_link_awaited awaited;
    } received;
    struct flyt_manager_link_shared imported; /* the last memory that it was given of another session's */
    char line[512];
    size_t line_bytes;
};

/* ---- fake_server.c ---- */

/* Sends fake->message, without descriptors. */
void fake_put(struct fake *fake);
/* "linger": does not return. */
void fake_linger(struct fake *fake) __attribute__((noreturn));
/* A line for its client. */
void fake_answer(struct fake *fake, const char *text);
void fake_answer_number(struct fake *fake, int64_t number);
unsigned fake_count_extents(const struct fake *fake);
/* USE. */
void fake_say_use(struct fake *fake);
/* Of the record in fake->message. */
void fake_answer_handshake(struct fake *fake);

/* ---- fake_broker.c ---- */

/* BROKERED in fake->message. fd is taken over; -1: none. */
void fake_broker_hear(struct fake *fake, int fd);
/* A line of its client that has to do with sharing. False: it has not. */
bool fake_broker_obey(struct fake *fake, const char *word, uint64_t token, uint64_t number);

/* ---- fake_move.c ---- */

/* The first word of some memory. */
uint64_t fake_read_word(int fd);
void fake_write_word(int fd, uint64_t word);
/* fake->message, LOCKS_WANTED, or of a kind from MOVE to TAKE_BACK. Its descriptors are taken over. */
void fake_move_hear(struct fake *fake, const int *fds, unsigned count);
/* MOVE_STATE; STOPPED, with 0 or why not. */
void fake_move_say_phase(struct fake *fake, enum flyt_manager_link_move_phase phase, int outcome, const char *sentence);
void fake_move_say_stopped(struct fake *fake, int outcome, const char *sentence);
/* It goes on, as if there had been no move. */
void fake_move_end(struct fake *fake);
/* A line of its client that has to do with moves. False: it has not. */
bool fake_move_obey(struct fake *fake, const char *word, uint64_t a, uint64_t b);

/* ---- fake_send.c ---- */

/* The connections of a MOVE_SEND, which are taken over: says on each which one it is, and with what key. */
void fake_send_begin(struct fake *fake, const int *fds, unsigned count);
/* Its program has stopped: says what there is, and waits for the other node's word. */
void fake_send_stop(struct fake *fake);
/* Something has come from there. */
void fake_send_hear(struct fake *fake);
void fake_send_forget(struct fake *fake);
/* A line: whether they are encrypted, and the first and last byte of each key. */
void fake_say_keys(int fd, const struct flyt_manager_link_streams *streams);

/* ---- fake_target.c ---- */

/* fake->message, of what comes before the session, of one that is moved here. False: it is something else. */
bool fake_target_prepare(struct fake *fake, int fd);
/* Memory as fake->message.extent says; MADE. */
void fake_target_make(struct fake *fake);
/* Ends the process where it is given another session than it was told. */
void fake_target_compare(const struct fake *fake);

/* ---- fake_receive.c: the same, from another node ---- */

/* RECEIVE. fds are taken over. */
void fake_receive(struct fake *fake, const int *fds, unsigned fd_count);
/* Its node manager has gone before SESSION. Whether it has found the next one, as a server does that has received a
 * session; the process ends where that wants none of it. "fake.outlive:error": it does as one of before did. */
bool fake_receive_return(struct fake *fake);

#endif
