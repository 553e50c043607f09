/*
 * What the files of the server without CUDA share, which fake_server.c describes: fake_move.c is the server that is
 * left, fake_target.c the one where a session goes on.
 */
#ifndef FLYT_NODE_FAKE_SERVER_H
#define FLYT_NODE_FAKE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/ledger.h"
#include "rpc/transport/server_link.h"

enum { FAKE_EXTENTS_MAX = 512, FAKE_LIBRARIES_MAX = 64 };

struct fake {
    int link_fd, client_fd;
    struct flyt_server_link_message message;
    struct flyt_server_link_session session;
    struct flyt_ledger *ledgers[FLYT_SLOTS_MAX];
    unsigned char holding[FLYT_SLOTS_MAX][FLYT_SERVER_LINK_GROUP_BYTES]; /* groups that are not vacated */
    uint64_t cached[FLYT_SLOTS_MAX];
    uint64_t limits[FLYT_SLOTS_MAX];
    char program[FLYT_NAME_BYTES_MAX + 1];
    struct {
        struct flyt_server_link_extent extent;
        int fd; /* 0: none */
    } extents[FAKE_EXTENTS_MAX];
    bool is_stubborn, is_sluggish, is_unchanging, is_silent;
    int turn_fds[FLYT_SLOTS_MAX];        /* -1: none */
    struct flyt_server_link_share share; /* the last one that came */
    bool is_resumed;
    struct flyt_server_link_resume resume;
    struct flyt_server_link_use use;
    uint64_t last_extent_id, sequence; /* the highest id ever; lines that its client has said */
    unsigned library_count;
    uint64_t libraries[FAKE_LIBRARIES_MAX];
    struct {
        uint64_t id, left_id; /* 0: none */
        uint32_t kind;
        int mirror_fds[FAKE_EXTENTS_MAX]; /* 0: none */
        bool is_refusing, is_busy, is_mute, is_frozen;
        int image_fd; /* 0: none */
        uint64_t restless_count;
    } move;
    struct {
        uint64_t sequence, library_count; /* as STATE says */
        bool has_state;
    } taken;
    char line[512];
    size_t line_bytes;
};

/* ---- fake_server.c ---- */

/* Sends fake->message, without descriptors. */
void fake_put(struct fake *fake);
/* A line for its client. */
void fake_answer(struct fake *fake, const char *text);
void fake_answer_number(struct fake *fake, int64_t number);
unsigned fake_count_extents(const struct fake *fake);
/* USE. */
void fake_say_use(struct fake *fake);
/* Of the record in fake->message. */
void fake_answer_handshake(struct fake *fake);

/* ---- fake_move.c ---- */

/* The first word of some memory. */
uint64_t fake_read_word(int fd);
void fake_write_word(int fd, uint64_t word);
/* fake->message, of a kind from MOVE to TAKE_BACK. fd (-1: none) is taken over. */
void fake_move_hear(struct fake *fake, int fd);
/* A line of its client that has to do with moves. False: it has not. */
bool fake_move_obey(struct fake *fake, const char *word, uint64_t a, uint64_t b);

/* ---- fake_target.c ---- */

/* fake->message, of what comes before the session, of one that is moved here. False: it is something else. */
bool fake_target_prepare(struct fake *fake, int fd);
/* Ends the process where it is given another session than it was told. */
void fake_target_compare(const struct fake *fake);

#endif
