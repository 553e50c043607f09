/*
 * A session that is written to an image, its server's part in a checkpoint (checkpoint.h): what the server is told, and
 * what it says. Its checkpoint decides when it is stopped, whether it goes on or leaves, and what becomes of its file.
 * The loop's thread.
 */
#ifndef FLYT_NODE_SESSION_SAVE_H
#define FLYT_NODE_SESSION_SAVE_H

#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "control/node/model/server.h"
#include "control/node/ops/restore_check.h"
#include "cpu/image/file.h"
#include "cpu/image/flusher.h"
#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

struct flyt_node_checkpoint;

enum flyt_node_session_save_stage {
    FLYT_NODE_SESSION_SAVE_NEW,      /* its server has not said whether it can be written */
    FLYT_NODE_SESSION_SAVE_ASKED,    /* MOVE was sent */
    FLYT_NODE_SESSION_SAVE_WRITING,  /* it can; the program runs */
    FLYT_NODE_SESSION_SAVE_STOPPING, /* STOP was sent */
    FLYT_NODE_SESSION_SAVE_STOPPED,  /* all is written */
    FLYT_NODE_SESSION_SAVE_LEAVING,  /* LEAVE was sent */
    FLYT_NODE_SESSION_SAVE_ENDING,   /* the program has left; the process is told to end */
    FLYT_NODE_SESSION_SAVE_OVER,
};

struct flyt_node_session_save {
    struct flyt_node_role role; /* of its server; first */
    struct flyt_node_session_save *next;
    struct flyt_node_checkpoint *checkpoint;
    struct flyt_node_server *server; /* NULL: it has gone */
    uint64_t move_id, session_id;
    char program[FLYT_NAME_BYTES_MAX + 1];
    enum flyt_node_session_save_stage stage;
    uint64_t stage_ms;
    bool is_ready, has_file;
    int earlier_fd; /* the image that its own is to build on; -1: none */
    int write_fd;   /* the file for its server, until that has it; else -1 */
    int read_fd;    /* the file for who tries the image, until that has it; else -1 */
    struct flyt_node_restore_check restore_check;
    struct flyt_checkpoint_file file;
    struct flyt_error open_err;             /* why it has none; code 0: it has, or it is not known yet */
    struct flyt_flusher *flusher;           /* of an image that is settling */
    char image[FLYT_CHECKPOINT_NAME_BYTES]; /* its name, once it has one; else empty */
    struct flyt_manager_link_move_state state;
    struct flyt_manager_link_stopped stopped;
    uint64_t stop_ns, standstill_us;
};

/* Of a server that has no other part in an operation, in stage NEW and in no list. NULL: no memory. */
struct flyt_node_session_save *flyt_node_session_save_new(struct flyt_node_checkpoint *checkpoint,
                                                          struct flyt_node_server *server);
/* Its server is left as it is; a file that has no name yet goes. */
void flyt_node_session_save_free(struct flyt_node_session_save *session_save);
/* Goes on as far as nobody is awaited; its checkpoint fails where somebody was awaited for too long. */
void flyt_node_session_save_advance(struct flyt_node_session_save *session_save);
/* Its checkpoint is to fail for it: a negative errno, and one sentence. */
void flyt_node_session_save_fail(struct flyt_node_session_save *session_save, int outcome, const char *sentence);
/* WRITING: its program is to stop. */
void flyt_node_session_save_stop(struct flyt_node_session_save *session_save);
/* STOPPING: whether all that the program has begun is done; whether its server waits for LAST then, for it shares with
 * others; LAST. */
bool flyt_node_session_save_is_drained(const struct flyt_node_session_save *session_save);
bool flyt_node_session_save_waits_for_last(const struct flyt_node_session_save *session_save);
void flyt_node_session_save_last(struct flyt_node_session_save *session_save);
/* Its program goes on as if nothing had been; OVER. What it has written stays where all of it is there. */
void flyt_node_session_save_go_on(struct flyt_node_session_save *session_save);
/* STOPPED: the session is in its image, its program is told to leave. */
void flyt_node_session_save_leave(struct flyt_node_session_save *session_save);
/* Its file, all of which is there, is brought to the disk, and given to who tries it. */
void flyt_node_session_save_settle(struct flyt_node_session_save *session_save);
/* Whether it is on the disk. */
bool flyt_node_session_save_is_settled(struct flyt_node_session_save *session_save);
/* Its file, which has no name, goes. */
void flyt_node_session_save_let_go_of_file(struct flyt_node_session_save *session_save);
/* Adds its figures. */
void flyt_node_session_save_use(const struct flyt_node_session_save *session_save, flyt_saving_use *ret_use);
/* The server's link was lost and is there again: before the commit it goes on by itself, and the checkpoint fails;
 * after it, its session is in the image, and it is ended. */
void flyt_node_session_save_link_lost(struct flyt_node_server *server);

#endif
