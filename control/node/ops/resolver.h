/*
 * The way to another node's listener: its URLs, looked up without holding up the loop, and the addresses that they lead
 * to. Those of the network are tried first; a unix socket of this machine may be one's own listener: only where there
 * is nothing else. One that is another machine's is left out, and so is vsock. The loop's thread.
 */
#ifndef FLYT_NODE_RESOLVER_H
#define FLYT_NODE_RESOLVER_H

#include <stdbool.h>
#include <sys/socket.h>

#include "rpc/base/error.h"
#include "rpc/base/url.h"

enum {
    FLYT_NODE_WAY_URLS_MAX = 16,
    FLYT_NODE_WAY_ADDRESSES_MAX = 64, /* of all of them; further ones are not tried */
};

struct flyt_node_resolver;

struct flyt_node_address {
    struct sockaddr_storage address;
    socklen_t bytes;
    char url[FLYT_URL_TEXT_BYTES]; /* of which it is one */
};

/* Begins to look them up; `urls` stay the caller's. 0; -EINVAL: none of them is one that can be connected to; another
 * negative errno; *err has one sentence. */
int flyt_node_resolver_new(char *const *urls, unsigned count, struct flyt_node_resolver **ret_way,
                           struct flyt_error *err);
/* NULL is allowed. Returns NULL. */
struct flyt_node_resolver *flyt_node_resolver_free(struct flyt_node_resolver *resolver);

/* 0: the addresses are known, at least one; -EAGAIN: not yet, to be asked again; -EHOSTUNREACH and one sentence: there
 * are none. */
int flyt_node_resolver_look(struct flyt_node_resolver *resolver, struct flyt_error *err);
/* How many there are, when they are known; the one of this number, from 0. */
unsigned flyt_node_resolver_count(const struct flyt_node_resolver *resolver);
const struct flyt_node_address *flyt_node_resolver_address(const struct flyt_node_resolver *resolver, unsigned number);
/* The number of the one that is to be tried first, the others after it, around: at first 0. */
unsigned flyt_node_resolver_first(const struct flyt_node_resolver *resolver);
/* This one was connected to: it is the first from now on. */
void flyt_node_resolver_prefer(struct flyt_node_resolver *resolver, const struct flyt_node_address *address);

#endif
