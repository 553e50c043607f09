/*
 * Where programs come in: what the node listens on, and how long programs are held.
 */
#ifndef FLYT_NODE_ATTACH_H
#define FLYT_NODE_ATTACH_H

#include "control/node/model/node.h"

struct flyt_greeter;

struct flyt_node_attach {
    struct flyt_greeter *greeter;
    sd_event_source *greeter_source;
    int listen_fds[FLYT_URLS_MAX];
    char listen_urls[FLYT_URLS_MAX][FLYT_URL_BYTES_MAX + 1];
    unsigned listen_count;
    int local_fd;                           /* for programs of this machine */
    char local_url[FLYT_URL_BYTES_MAX + 1]; /* empty: there is none */
    sd_event_source *pool_timer;
    unsigned hold_ms;
};

/* Nothing is listened on. 0 or -ENOMEM. */
int flyt_node_attach_new(struct flyt_node *node);
void flyt_node_attach_free(struct flyt_node *node);

#endif
