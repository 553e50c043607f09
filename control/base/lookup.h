/*
 * The addresses of a host, without holding up the loop: a number is known at once, a name is looked up by a thread of
 * its own, which shares nothing with anybody but what it was given. So a look-up can be given up while a resolver
 * hangs. The loop's thread.
 */
#ifndef FLYT_CONTROL_LOOKUP_H
#define FLYT_CONTROL_LOOKUP_H

#include <netdb.h>

#include "rpc/base/error.h"
#include "rpc/base/url.h"

struct flyt_lookup;

/* Begins to look up the host and port of a tcp URL; an empty host is this machine. 0 or a negative errno. */
int flyt_lookup_new(const struct flyt_url *url, struct flyt_lookup **ret_lookup);
/* Gives up what is under way. NULL is allowed. Returns NULL. */
struct flyt_lookup *flyt_lookup_free(struct flyt_lookup *lookup);
/* Readable when there is a result; the look-up's. */
int flyt_lookup_fd(const struct flyt_lookup *lookup);
/* 0 and *ret_list, which is the look-up's; -EAGAIN: not yet; -EHOSTUNREACH and one sentence: there is no such host. */
int flyt_lookup_result(const struct flyt_lookup *lookup, const struct addrinfo **ret_list, struct flyt_error *err);

#endif
