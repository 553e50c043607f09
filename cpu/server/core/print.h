/*
 * What kernels say. The driver writes device printf to the process's standard output and failed assertions to standard
 * error; in a server process both are files in memory, and the log has a descriptor of its own. What is new is sent to
 * the client before the reply to a call that waits for the GPU, and before the news that the context is lost.
 */
#ifndef FLYT_SERVER_PRINT_H
#define FLYT_SERVER_PRINT_H

#include <stdbool.h>
#include <stdint.h>

struct flyt_session;

/* One output: what its descriptor was before, the file in its place, and how much of that was sent. */
struct flyt_print_output {
    int before_fd;
    int fd;
    uint64_t sent_bytes;
};

struct flyt_print {
    struct flyt_print_output output, error; /* fd −1: not redirected, nothing is sent */
    bool is_used;                           /* a loaded module prints, or may */
};

/* Redirects descriptors 1 and 2 into memory files, the log to what 2 was. 0 or a negative errno: nothing is changed. */
int flyt_print_init(struct flyt_print *print);
/* Puts the descriptors back. */
void flyt_print_fini(struct flyt_print *print);

/* Whether the kernels of a module image print or assert, or may. From any thread. */
bool flyt_print_can(const void *image, uint64_t bytes);

/* Makes the driver write what finished kernels printed and sends what is new. Waits for no kernel. */
void flyt_print_flush(struct flyt_session *session);

#endif
