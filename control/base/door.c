/* A listening socket and the connections that came through it: how many, from where, how long without an identity. */
#include "control/base/peer_state.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "control/base/acceptor.h"
#include "rpc/base/log.h"

/* The connections of an address, or of an identity. */
struct flyt_door_group {
    const char *key; /* begins it, for the tree */
    unsigned peer_count, anonymous_count;
    size_t bytes;
    bool is_full_logged;
    char text[];
};

struct flyt_door {
    struct flyt_door_config config;
    void *groups[FLYT_DOOR_SCOPES]; /* tsearch(3) */
    struct flyt_tls *tls;
    int listen_fd;
    struct flyt_peer_turns *turns;
    struct flyt_acceptor *acceptor;
    LIST_HEAD(, flyt_peer) peers;
    TAILQ_HEAD(, flyt_peer) anonymous; /* without an identity, the oldest first */
    unsigned peer_count, anonymous_count;
    uint64_t refused_count;
    bool is_full_logged; /* one line for each time */
};

static bool admits(struct flyt_peer *peer)
{
    const struct flyt_door *door = peer->door;

    return !door->config.admit || door->config.admit(&peer->identity, door->config.peer.user);
}

/* ---- groups ---- */

static int compare_groups(const void *a, const void *b)
{
    return strcmp(((const struct flyt_door_group *)a)->key, ((const struct flyt_door_group *)b)->key);
}

/* Those of the key; they are made where there are none. NULL: no memory. */
static struct flyt_door_group *get_group(struct flyt_door *door, enum flyt_door_scope scope, const char *key)
{
    struct flyt_door_group wanted = {.key = key}, *group;
    struct flyt_door_group **found = tfind(&wanted, &door->groups[scope], compare_groups);

    if (found)
        return *found;
    size_t bytes = strlen(key) + 1;
    group = calloc(1, sizeof *group + bytes);
    if (!group)
        return NULL;
    memcpy(group->text, key, bytes);
    group->key = group->text;
    if (tsearch(group, &door->groups[scope], compare_groups))
        return group;
    free(group);
    return NULL;
}

static void drop_empty(struct flyt_door *door, enum flyt_door_scope scope, struct flyt_door_group *group)
{
    if (group->peer_count)
        return;
    tdelete(group, &door->groups[scope], compare_groups);
    free(group);
}

static void leave_group(struct flyt_door *door, struct flyt_peer *peer, enum flyt_door_scope scope)
{
    struct flyt_door_group *group = peer->groups[scope];

    if (!group)
        return;
    peer->groups[scope] = NULL;
    group->peer_count--;
    group->bytes -= peer->counted_bytes;
    group->is_full_logged = false;
    drop_empty(door, scope, group);
}

/* False: there are so many already, or there is no memory. */
static bool join_group(struct flyt_door *door, struct flyt_peer *peer, enum flyt_door_scope scope, const char *key,
                       unsigned peers_max)
{
    struct flyt_door_group *group = get_group(door, scope, key);

    if (!group)
        return false;
    if (group->peer_count >= peers_max) {
        if (!group->is_full_logged)
            flyt_warn("connection refused: address=%s: too many connections of %s; further ones are not logged",
                      peer->identity.address, key);
        group->is_full_logged = true;
        return false;
    }
    group->peer_count++;
    group->bytes += peer->counted_bytes;
    peer->groups[scope] = group;
    return true;
}

static bool has_room(struct flyt_peer *peer)
{
    const struct flyt_door *door = peer->door;
    size_t bytes = peer->unsent_bytes + (peer->has_input ? flyt_input_held_bytes(&peer->input) : 0);
    bool has_it = true;

    for (unsigned scope = 0; scope < FLYT_DOOR_SCOPES; scope++) {
        struct flyt_door_group *group = peer->groups[scope];
        if (!group)
            continue;
        bool grows = bytes > peer->counted_bytes;
        group->bytes += bytes - peer->counted_bytes;
        has_it &= !grows || group->bytes <= (scope == FLYT_DOOR_IDENTITY ? door->config.identity_bytes_max
                                                                         : door->config.address_bytes_max);
    }
    peer->counted_bytes = bytes;
    return has_it;
}

/* ---- who is there ---- */

static void leave_anonymous(struct flyt_door *door, struct flyt_peer *peer)
{
    if (peer->is_counted_anonymous) {
        TAILQ_REMOVE(&door->anonymous, peer, anonymous_link);
        door->anonymous_count--;
        peer->groups[FLYT_DOOR_ADDRESS]->anonymous_count--;
    }
    peer->is_counted_anonymous = false;
}

static bool identified(struct flyt_peer *peer)
{
    struct flyt_door *door = peer->door;
    const struct flyt_identity *identity = &peer->identity;
    char key[FLYT_NAME_BYTES_MAX + 32];

    leave_group(door, peer, FLYT_DOOR_IDENTITY);
    /* On a unix socket the kernel's word is the address, too. */
    snprintf(key, sizeof key, "role 0x%x, name %s", identity->role, identity->name);
    if (identity->uid == (uid_t)-1 && !join_group(door, peer, FLYT_DOOR_IDENTITY, key, door->config.per_identity_max))
        return false;
    leave_anonymous(door, peer);
    return true;
}

static void refused(struct flyt_peer *peer)
{
    peer->door->refused_count++;
}

static void forget(struct flyt_peer *peer)
{
    struct flyt_door *door = peer->door;

    leave_anonymous(door, peer);
    for (unsigned scope = 0; scope < FLYT_DOOR_SCOPES; scope++)
        leave_group(door, peer, scope);
    LIST_REMOVE(peer, door_link);
    peer->door = NULL;
    door->peer_count--;
    door->is_full_logged = false;
}

static const struct flyt_peer_door_ops door_ops = {admits, identified, has_room, refused, forget};
static const struct flyt_peer_turns_ops turns_ops = {flyt_peer_is_ready, flyt_peer_take_turn};

/* NULL, or which bound another connection would pass. */
static const char *bound_passed(const struct flyt_door *door, const struct flyt_peer *peer)
{
    if (door->peer_count >= door->config.peers_max)
        return "too many connections";
    if (!peer->has_identity && door->anonymous_count >= door->config.anonymous_max)
        return "too many connections without an identity";
    return NULL;
}

/*
 * Whose place another one without an identity gets where all are taken: the address that has most of them loses its
 * oldest. So strangers cannot keep others out, who need a place for the moment of a handshake; those of an address with
 * fewer are never pushed out.
 */
static struct flyt_peer *find_victim(const struct flyt_door *door)
{
    struct flyt_peer *peer, *victim = NULL;
    unsigned most = 0;

    TAILQ_FOREACH(peer, &door->anonymous, anonymous_link)
    {
        const struct flyt_door_group *group = peer->groups[FLYT_DOOR_ADDRESS];
        if (group->anonymous_count <= most)
            continue;
        most = group->anonymous_count;
        victim = peer;
    }
    return victim;
}

static void make_room(struct flyt_door *door)
{
    struct flyt_error cause;

    flyt_error_set(&cause, -EPIPE, "others without an identity wait for its place");
    flyt_peer_end(find_victim(door), &cause);
}

static void let_in(int fd, void *user)
{
    struct flyt_door *door = user;
    struct flyt_peer *peer;

    int status = flyt_peer_accepted(fd, door->tls, &door->config.peer, door->turns, &peer);
    if (status < 0) {
        flyt_warn("connection refused: %s", strerror(-status));
        return;
    }
    if (!peer->has_identity && door->anonymous_count >= door->config.anonymous_max)
        make_room(door);
    const char *bound = bound_passed(door, peer);
    if (!bound && flyt_peer_limit_setup(peer, door->config.anonymous_ms) < 0)
        bound = "out of memory";
    if (bound) {
        if (!door->is_full_logged)
            flyt_warn("connection refused: address=%s: %s; further ones are not logged", peer->identity.address, bound);
        door->is_full_logged = true;
        flyt_peer_close(peer);
        return;
    }
    if (!join_group(door, peer, FLYT_DOOR_ADDRESS, peer->door_address, door->config.per_address_max)) {
        flyt_peer_close(peer);
        return;
    }
    peer->door = door;
    peer->door_ops = &door_ops;
    peer->is_counted_anonymous = !peer->has_identity;
    if (peer->is_counted_anonymous) {
        TAILQ_INSERT_TAIL(&door->anonymous, peer, anonymous_link);
        door->anonymous_count++;
        peer->groups[FLYT_DOOR_ADDRESS]->anonymous_count++;
    }
    door->peer_count++;
    LIST_INSERT_HEAD(&door->peers, peer, door_link);
}

int flyt_door_new(int listen_fd, struct flyt_tls *tls, const struct flyt_door_config *config,
                  struct flyt_door **ret_door)
{
    int flags = fcntl(listen_fd, F_GETFL);

    if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK))
        return -errno;
    struct flyt_door *door = calloc(1, sizeof *door);
    if (!door)
        return -ENOMEM;
    *door = (struct flyt_door){.config = *config, .tls = tls, .listen_fd = listen_fd};
    LIST_INIT(&door->peers);
    TAILQ_INIT(&door->anonymous);
    if (!door->config.peers_max)
        door->config.peers_max = FLYT_DOOR_PEERS_MAX;
    if (!door->config.anonymous_max)
        door->config.anonymous_max = FLYT_DOOR_ANONYMOUS_MAX;
    if (!door->config.per_address_max)
        door->config.per_address_max = door->config.peers_max;
    if (!door->config.per_identity_max)
        door->config.per_identity_max = door->config.peers_max;
    if (!door->config.identity_bytes_max)
        door->config.identity_bytes_max = FLYT_DOOR_IDENTITY_BYTES_MAX;
    if (!door->config.address_bytes_max)
        door->config.address_bytes_max = FLYT_DOOR_ADDRESS_BYTES_MAX;
    if (!door->config.anonymous_ms)
        door->config.anonymous_ms = FLYT_PEER_SETUP_MS;
    int status = flyt_peer_turns_new(config->peer.event, &turns_ops, &door->turns);
    const struct flyt_acceptor_config acceptor = {.event = config->peer.event,
                                                  .listen_fd = listen_fd,
                                                  .paused = "accepting paused until it works again",
                                                  .accepts_per_turn = (door->config.anonymous_max + 3) / 4,
                                                  .accepted = let_in,
                                                  .user = door};
    if (!status)
        status = flyt_acceptor_new(&acceptor, &door->acceptor);
    if (status < 0) {
        flyt_peer_turns_free(door->turns);
        free(door);
        return status;
    }
    *ret_door = door;
    return 0;
}

struct flyt_door *flyt_door_free(struct flyt_door *door)
{
    struct flyt_peer *peer;

    if (!door)
        return NULL;
    flyt_acceptor_free(door->acceptor);
    while ((peer = LIST_FIRST(&door->peers)))
        flyt_peer_close(peer);
    flyt_peer_turns_free(door->turns);
    free(door);
    return NULL;
}

uint64_t flyt_door_refused_count(const struct flyt_door *door)
{
    return door->refused_count;
}

void flyt_door_each(struct flyt_door *door, void (*visit)(struct flyt_peer *peer, void *user), void *user)
{
    struct flyt_peer *peer, *next;

    for (peer = LIST_FIRST(&door->peers); peer; peer = next) {
        next = LIST_NEXT(peer, door_link);
        if (peer->phase == FLYT_PEER_READY)
            visit(peer, user);
    }
}
