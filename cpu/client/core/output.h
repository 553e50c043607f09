/*
 * What kernels print, and what failed assertions say: kept when it arrives, printed by a thread that has called. The
 * thread that reads the channel must not print: the program may hold a lock of stdio's while it waits for a reply that
 * this very thread would read, and a full pipe would hold up every call.
 */
#ifndef FLYT_CLIENT_OUTPUT_H
#define FLYT_CLIENT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Handler of the channel: keeps a copy. Without memory the text is lost, which is said. */
void flyt_output_keep(void *user, bool is_error, const char *text, size_t bytes);
/* Prints what is kept, through stdio, so that it comes in order with what the program itself prints. Called where a
 * reply has come, since the server sends output before the reply of the synchronization that covers it, where a call
 * fails for good, and at the end. One relaxed load where there is none. */
void flyt_output_print(void);
/* In a forked child: what is kept is the parent's to print. */
void flyt_output_forked(void);

#endif
