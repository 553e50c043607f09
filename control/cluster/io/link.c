/* Connections: who makes a call, and the end of one. */
#include <stdio.h>
#include <stdlib.h>

#include "control/base/peer.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/link.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

enum { HELLO_MS = 10000 };

struct flyt_link *flyt_call_link(const struct flyt_call *call)
{
    return flyt_peer_user(flyt_call_peer(call));
}

struct flyt_cluster *flyt_call_cluster(const struct flyt_call *call)
{
    return flyt_call_link(call)->cluster;
}

void flyt_link_ready(struct flyt_peer *peer, void *user)
{
    struct flyt_cluster *cluster = user;
    struct flyt_link *link = calloc(1, sizeof *link);

    if (!link) {
        flyt_peer_close(peer);
        return;
    }
    const struct flyt_identity *identity = flyt_peer_identity(peer);
    link->user_kind = FLYT_USER_LINK;
    link->cluster = cluster;
    link->peer = peer;
    link->silent_since_ms = flyt_clock_ms();
    link->is_clear = !identity->serial[0] && !(cluster->tls && identity->uid == (uid_t)-1);
    snprintf(link->address, sizeof link->address, "%s", identity->address);
    TAILQ_INSERT_TAIL(&cluster->links, link, entry);
    flyt_peer_set_user(peer, link);
}

struct flyt_link *flyt_link_free(struct flyt_link *link, const char *cause)
{
    link->cluster->ops->link_ended(link, cause);
    TAILQ_REMOVE(&link->cluster->links, link, entry);
    free(link);
    return NULL;
}

void flyt_link_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    enum flyt_user_kind *kind = user;

    if (*kind == FLYT_USER_LINK)
        flyt_link_free(user, cause->text);
    else
        flyt_debug("a connection ended before it was ready: %s", cause->text);
}

void flyt_link_close(struct flyt_link *link, const char *why)
{
    struct flyt_peer *peer = link->peer;

    flyt_info("%s %s at %s: connection closed: %s", link->kind ? flyt_kind_name(link->kind) : "peer", link->name,
              link->address, why);
    /* What is under way on it ends first, and may still look at the link. */
    flyt_peer_close(peer);
    flyt_link_free(link, why);
}

void flyt_links_tick(struct flyt_cluster *cluster)
{
    struct flyt_link *link, *next;
    uint64_t now_ms = flyt_clock_ms();

    for (link = TAILQ_FIRST(&cluster->links); link; link = next) {
        next = TAILQ_NEXT(link, entry);
        if (link->kind || now_ms - link->silent_since_ms < HELLO_MS)
            continue;
        flyt_debug("connection closed: address=%s: it has said no HELLO", link->address);
        flyt_peer_close(link->peer);
        flyt_link_free(link, "it has said no HELLO");
    }
}
