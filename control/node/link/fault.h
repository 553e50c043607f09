/*
 * Faults under MPS: one program's illegal access ends the running contexts of all MPS clients of that GPU with the same
 * error, and MPS takes no new client there until all that were hit have gone (NVIDIA's MPS documentation, error
 * containment). So every server of the GPU is ended, warm ones too, each program hears whose fault it was, and the pool
 * starts new servers when all have gone.
 *
 * CUDA gives all of them the same code. Whose fault it was is told where only one of them had work on the GPU when it
 * heard of the fault: no other can have made it. Else those that had are named as possible. One whose server process
 * was killed just before is named first: its kernels run on for a moment, and fault where its memory goes first (seen
 * with driver 580: MPS tears all down 0.15 s after a SIGKILL under load). terminate_client, which comes before every
 * kill of our own, is what prevents that.
 *
 * Where somebody had work, those that have not looked at the GPU since had no part in it. Where such a session is
 * replaceable, its process is ended without a word to its program, and it waits for its client (replace.h), which
 * decides by itself whether it has unfinished work; the GPU's new servers start when all that were hit have gone.
 *
 * A server whose GPU is not shared by MPS reports nothing: its fault is its own. The loop's thread.
 */
#ifndef FLYT_NODE_FAULT_H
#define FLYT_NODE_FAULT_H

#include "control/node/model/node.h"

/* So long reports of one fault are gathered, from the first one on: each server hears of it at its next look at the GPU
 * (250 us at most while it has work). */
enum { FLYT_NODE_FAULT_GATHER_MS = 300 };
/* A program that has heard of it has so long to do what it does after an error; then its server is ended. */
enum { FLYT_NODE_FAULT_LEAVE_MS = 1000 };
/* And one whose driver writes a core dump of it so long since that began, at most: what it leaves is of use when it is
 * whole. Sessions of other VMs that wait for the GPU's new servers (replace_ms) have time left behind it. */
enum { FLYT_NODE_FAULT_DUMP_MS = 8000 };

/* So long after a server was killed a fault may be of its making. */
enum { FLYT_NODE_FAULT_KILLED_MS = 2000 };

struct flyt_node_server;

/* The server's process has ended by a signal. To be called before flyt_node_fault_leave. */
void flyt_node_fault_killed(struct flyt_node_server *server, int signal_number);
/* A server's context has ended with a fault. `cause` says how, in words; had_work: it had work on the GPU. */
void flyt_node_fault_report(struct flyt_node_server *server, const char *cause, bool had_work);
/* The server's driver has begun to write a core dump, or none is being written any more. Its session has
 * FLYT_NODE_FAULT_DUMP_MS for all that it leaves, from the first one's beginning. */
void flyt_node_fault_dumps(struct flyt_node_server *server, bool is_written);
/* The server's process has ended: what it reported is still of use, so that what was gathered is judged now. */
void flyt_node_fault_leave(struct flyt_node_server *server);
/* Whether servers that were hit on the GPU are still there: until then no other can start. */
bool flyt_node_fault_is_clearing(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
/* At the node manager's end. */
void flyt_node_faults_fini(struct flyt_node *node);

#endif
