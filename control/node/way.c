#include "control/node/way.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "control/base/lookup.h"
#include "rpc/base/machine.h"

struct flyt_node_way {
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
static int take(struct flyt_node_way *way, char *const *urls, unsigned count, bool is_local)
{
    for (unsigned i = 0; i < count && way->url_count < FLYT_NODE_WAY_URLS_MAX; i++) {
        struct flyt_url *url = &way->urls[way->url_count];
        if (flyt_url_parse(urls[i], NULL, url) || !can_be_reached(url, is_local))
            continue;
        int status = is_local ? 0 : flyt_lookup_new(url, &way->lookups[way->url_count]);
        if (status)
            return status;
        way->url_count++;
    }
    return 0;
}

int flyt_node_way_new(char *const *urls, unsigned count, struct flyt_node_way **ret_way, struct flyt_error *err)
{
    struct flyt_node_way *way = calloc(1, sizeof *way);
    int status = way ? take(way, urls, count, false) : -ENOMEM;

    if (!status && !way->url_count)
        status = take(way, urls, count, true);
    if (!status && !way->url_count)
        status = -EINVAL;
    if (status) {
        flyt_node_way_free(way);
        return flyt_error_set(err, status, "%s",
                              status == -EINVAL ? "the other node has told no address where it can be connected to"
                                                : "the other node's addresses cannot be looked up: no memory");
    }
    *ret_way = way;
    return 0;
}

struct flyt_node_way *flyt_node_way_free(struct flyt_node_way *way)
{
    if (!way)
        return NULL;
    for (unsigned i = 0; i < way->url_count; i++)
        flyt_lookup_free(way->lookups[i]);
    free(way);
    return NULL;
}

static void add(struct flyt_node_way *way, const struct flyt_url *url, const void *address, socklen_t bytes)
{
    struct flyt_node_address *to = &way->addresses[way->count];

    if (way->count == FLYT_NODE_WAY_ADDRESSES_MAX || bytes > sizeof to->address)
        return;
    memcpy(&to->address, address, bytes);
    to->bytes = bytes;
    flyt_url_print(url, to->url);
    way->count++;
}

static void add_unix(struct flyt_node_way *way, const struct flyt_url *url)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, url->path, strlen(url->path) + 1);
    add(way, url, &address, sizeof address);
}

/* Whether nothing is awaited any more of this URL. */
static bool look_at(struct flyt_node_way *way, unsigned i)
{
    const struct addrinfo *list = NULL;

    if (!way->lookups[i])
        return true;
    int status = flyt_lookup_result(way->lookups[i], &list, &way->err);
    if (status == -EAGAIN)
        return false;
    for (; !status && list; list = list->ai_next)
        add(way, &way->urls[i], list->ai_addr, list->ai_addrlen);
    way->lookups[i] = flyt_lookup_free(way->lookups[i]);
    return true;
}

int flyt_node_way_look(struct flyt_node_way *way, struct flyt_error *err)
{
    /* In their order: a name is waited for before the next URL's addresses are taken. */
    for (unsigned i = 0; i < way->url_count; i++)
        if (!look_at(way, i))
            return -EAGAIN;
    if (!way->count && way->urls[0].scheme == FLYT_URL_UNIX)
        for (unsigned i = 0; i < way->url_count; i++)
            add_unix(way, &way->urls[i]);
    if (way->count)
        return 0;
    return flyt_error_set(err, -EHOSTUNREACH, "%s", way->err.text);
}

unsigned flyt_node_way_count(const struct flyt_node_way *way)
{
    return way->count;
}

const struct flyt_node_address *flyt_node_way_address(const struct flyt_node_way *way, unsigned number)
{
    return &way->addresses[number];
}

unsigned flyt_node_way_first(const struct flyt_node_way *way)
{
    return way->first;
}

void flyt_node_way_prefer(struct flyt_node_way *way, const struct flyt_node_address *address)
{
    way->first = (unsigned)(address - way->addresses);
}
