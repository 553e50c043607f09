/*
 * Which of NVIDIA's libraries the node has for programs, and which of them its sessions have opened.
 *
 * What there is a process finds out that ends then (`flyt-server --library-versions`, as the user that a server would
 * be): the node manager itself loads nothing of CUDA. A thread starts it and reads what it prints, at the start and
 * FLYT_NODE_LIBRARIES_MS after each, for the files may be replaced while servers go on with those that they have. A
 * look that fails changes nothing of what is known; the next one comes sooner.
 *
 * The loop's thread.
 */
#ifndef FLYT_NODE_LIBRARIES_H
#define FLYT_NODE_LIBRARIES_H

#include <stdbool.h>

#include "control.h"

struct flyt_node;
struct flyt_node_libraries;

enum {
    FLYT_NODE_LIBRARIES_MS = 600000,
    FLYT_NODE_LIBRARIES_AGAIN_MS = 1000, /* after a look that failed; twice that after two, and so on up to the above */
    FLYT_NODE_LIBRARIES_LOOK_MS = 60000  /* a process that has not ended by then is killed */
};

/* After the GPUs and users are known: looks soon, on the loop. 0 or a negative errno. */
int flyt_node_libraries_new(struct flyt_node *node);
/* Waits half a second at most. Allowed where there are none. */
void flyt_node_libraries_free(struct flyt_node *node);

/* What is to be told of both. 0 (xdr_free); -EAGAIN: the node's are not known yet; -ENOMEM. *ret_args can be freed in
 * each case. */
int flyt_node_report_libraries(const struct flyt_node *node, flyt_libraries_args *ret_args);

/* ---- for tests ---- */

/* Whether a look has ended, whatever it has come to. */
bool flyt_node_libraries_have_looked(const struct flyt_node *node);

/* Takes a line that the process has printed ("cudnn 9.19"); a line of another kind is left out. */
void flyt_node_libraries_take(flyt_library_version *versions /* FLYT_LIBRARIES_MAX, names of malloc */, unsigned *count,
                              const char *line);

#endif
