#include "control/node/ops/resolver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "control/base/lookup.h"
#include "rpc/base/machine.h"

struct flyt_node_resolver {
    struct flyt_url urls[FLYT_NODE_WAY_URLS_MAX];
    struct flyt_lookup *lookups[FLYT_NODE_WAY_URLS_MAX]; /* NULL: it is over, or it is a unix socket */
    unsigned url_count;
    struct flyt_node_address addresses[FLYT_NODE_WAY_ADDRESSES_MAX];
    unsigned count, first; /* first: to be tried first */
    struct flyt_error err; /* of the last look-up that failed */
};

static bool can_be_reached(const struct flyt_url *url, bool is_local)
{
    if (url->scheme == FLYT_URL_UNIX)
        return is_local && !flyt_machine_check(url, NULL);
    /* A CID is a host's word for its own guests. */
    return url->scheme == FLYT_URL_TCP && !is_local && *url->host && url->port;
}

/* Those of the network, or those of this machine. */
static int take(struct flyt_node_resolver *resolver, char *const *urls, unsigned count, bool is_local)
{
    for (unsigned i = 0; i < count && resolver->url_count < FLYT_NODE_WAY_URLS_MAX; i++) {
        struct flyt_url *url = &resolver->urls[resolver->url_count];
        if (flyt_url_parse(urls[i], NULL, url) || !can_be_reached(url, is_local))
            continue;
        int status = is_local ? 0 : flyt_lookup_new(url, &resolver->lookups[resolver->url_count]);
        if (status)
            return status;
        resolver->url_count++;
    }
    return 0;
}

int flyt_node_resolver_new(char *const *urls, unsigned count, struct flyt_node_resolver **ret_way,
                           struct flyt_error *err)
{
    struct flyt_node_resolver *resolver = calloc(1, sizeof *resolver);
    int status = resolver ? take(resolver, urls, count, false) : -ENOMEM;

    if (!status && !resolver->url_count)
        status = take(resolver, urls, count, true);
    if (!status && !resolver->url_count)
        status = -EINVAL;
    if (status) {
        flyt_node_resolver_free(resolver);
        return flyt_error_set(err, status, "%s",
                              status == -EINVAL ? "the other node has told no address where it can be connected to"
                                                : "the other node's addresses cannot be looked up: no memory");
    }
    *ret_way = resolver;
    return 0;
}

struct flyt_node_resolver *flyt_node_resolver_free(struct flyt_node_resolver *resolver)
{
    if (!resolver)
        return NULL;
    for (unsigned i = 0; i < resolver->url_count; i++)
        flyt_lookup_free(resolver->lookups[i]);
    free(resolver);
    return NULL;
}

static void add(struct flyt_node_resolver *resolver, const struct flyt_url *url, const void *address, socklen_t bytes)
{
    struct flyt_node_address *to = &resolver->addresses[resolver->count];

    if (resolver->count == FLYT_NODE_WAY_ADDRESSES_MAX || bytes > sizeof to->address)
        return;
    memcpy(&to->address, address, bytes);
    to->bytes = bytes;
    flyt_url_print(url, to->url);
    resolver->count++;
}

static void add_unix(struct flyt_node_resolver *resolver, const struct flyt_url *url)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, url->path, strlen(url->path) + 1);
    add(resolver, url, &address, sizeof address);
}

/* Whether nothing is awaited any more of this URL. */
static bool look_at(struct flyt_node_resolver *resolver, unsigned i)
{
    const struct addrinfo *list = NULL;

    if (!resolver->lookups[i])
        return true;
    int status = flyt_lookup_result(resolver->lookups[i], &list, &resolver->err);
    if (status == -EAGAIN)
        return false;
    for (; !status && list; list = list->ai_next)
        add(resolver, &resolver->urls[i], list->ai_addr, list->ai_addrlen);
    resolver->lookups[i] = flyt_lookup_free(resolver->lookups[i]);
    return true;
}

int flyt_node_resolver_look(struct flyt_node_resolver *resolver, struct flyt_error *err)
{
    /* In their order: a name is waited for before the next URL's addresses are taken. */
    for (unsigned i = 0; i < resolver->url_count; i++)
        if (!look_at(resolver, i))
            return -EAGAIN;
    if (!resolver->count && resolver->urls[0].scheme == FLYT_URL_UNIX)
        for (unsigned i = 0; i < resolver->url_count; i++)
            add_unix(resolver, &resolver->urls[i]);
    if (resolver->count)
        return 0;
    return flyt_error_set(err, -EHOSTUNREACH, "%s", resolver->err.text);
}

unsigned flyt_node_resolver_count(const struct flyt_node_resolver *resolver)
{
    return resolver->count;
}

const struct flyt_node_address *flyt_node_resolver_address(const struct flyt_node_resolver *resolver, unsigned number)
{
    return &resolver->addresses[number];
}

unsigned flyt_node_resolver_first(const struct flyt_node_resolver *resolver)
{
    return resolver->first;
}

void flyt_node_resolver_prefer(struct flyt_node_resolver *resolver, const struct flyt_node_address *address)
{
    resolver->first = (unsigned)(address - resolver->addresses);
}
