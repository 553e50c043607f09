/*
 * Writes the node's state file (state.h) by a thread of its own: a disk may take longer than all that the loop does.
 *
 * What is to be written is the state as it is when the loop comes to writing it, so that changes which come together,
 * or while another write is under way, share the next one. Who may act only on what is written waits for his commit:
 * until then the state that is to be written is not the one that holds (order.h). Where it cannot be written, all who
 * wait are told, and take back what they have asked for before the next write begins; an event tells
 * (node.state_unsaved), and it is tried again every FLYT_NODE_WRITE_AGAIN_MS until file and state are the same. The
 * epoch is taken back by nobody: node->epoch_written is what the disk has of it. The loop's thread, and never from
 * inside a call of it.
 */
#ifndef FLYT_NODE_WRITER_H
#define FLYT_NODE_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct flyt_node;
struct flyt_node_writer;

enum { FLYT_NODE_WRITE_AGAIN_MS = 1000 };

/* Part of whoever waits; nothing to free. Zero: nobody waits. */
struct flyt_node_commit {
    struct flyt_node_commit *next;
    void (*done)(void *user, int status); /* 0: it is on the disk; or a negative errno: it is not */
    void *user;
    bool is_waiting;
    bool is_at_once; /* it need not be on the disk */
};

/* 0 or a negative errno. */
int flyt_node_writer_new(struct flyt_node *node, sd_event *event, struct flyt_node_writer **ret_writer);
/* Writes what is not written, as flyt_node_writer_flush; nothing is written later. NULL is allowed. */
struct flyt_node_writer *flyt_node_writer_free(struct flyt_node_writer *writer);
/* For the node manager's end: waits until the state is written, or cannot be, and tells all who wait. */
void flyt_node_writer_flush(struct flyt_node_writer *writer);
/* Writes the state as it is now, and waits for it: for a start, and for who may not go on without. 0 or a negative
 * errno. */
int flyt_node_writer_write(struct flyt_node_writer *writer);

/* For something else that may wait for the disk which STATE_DIR is on, as flyt_worker_do: behind what is being written.
 */
int flyt_node_writer_do(struct flyt_node_writer *writer, void (*work)(void *job),
                        void (*done)(void *job, int is_cancelled), void *job);

/* `done` is told once, from the loop. The commit waits for nothing else meanwhile. */
void flyt_node_commit(struct flyt_node *node, struct flyt_node_commit *commit, void (*done)(void *user, int status),
                      void *user);
/*
 * For a moment that leaves no time to wait for a disk (flyt_node_state_write_ahead). _ahead writes the state as it is
 * now, which is to be that of a moment to come, beside the file; the commit (NULL: nobody waits) is told when it is
 * there, or is not: that makes no difference but for the time. _at_once is as flyt_node_commit, but that the file may
 * not be on the disk yet, if it was written ahead, or is not what was there before; the next write brings it there.
 */
void flyt_node_commit_ahead(struct flyt_node *node, struct flyt_node_commit *commit,
                            void (*done)(void *user, int status), void *user);
void flyt_node_commit_at_once(struct flyt_node *node, struct flyt_node_commit *commit,
                              void (*done)(void *user, int status), void *user);
/* `done` is not told any more. One that does not wait is allowed. */
void flyt_node_commit_forget(struct flyt_node *node, struct flyt_node_commit *commit);
/* Nobody waits: where it cannot be written that is told, and tried again. */
void flyt_node_save_soon(struct flyt_node *node);

#endif
