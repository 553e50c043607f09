/*
 * The sockets and the turns of many peers behind two sources of the loop. sd-event asks the kernel for all that is
 * ready before each single thing that it does: with a source for each of ten thousand connections, a manager that has
 * fallen behind by a second needs longer for every step, and does not catch up. So the connections of a door share an
 * epoll(7) of their own, of which some are served in each turn. Only the files of the peer include this.
 */
#ifndef FLYT_CONTROL_PEER_TURNS_H
#define FLYT_CONTROL_PEER_TURNS_H

#include <stdint.h>
#include <systemd/sd-event.h>

struct flyt_peer;
struct flyt_peer_turns;

/* What is done with a peer: its socket is ready for `events` of epoll(7); its turn, after it was woken. */
struct flyt_peer_turns_ops {
    void (*is_ready)(struct flyt_peer *peer, uint32_t events);
    void (*take_turn)(struct flyt_peer *peer);
};

/* 0 or a negative errno. */
int flyt_peer_turns_new(sd_event *event, const struct flyt_peer_turns_ops *ops, struct flyt_peer_turns **ret_turns);
/* Every peer was forgotten before. Inside a peer's turn is allowed. NULL is allowed. Returns NULL. */
struct flyt_peer_turns *flyt_peer_turns_free(struct flyt_peer_turns *turns);
/* Watches the peer's socket for `events`, from now on or instead of what it was watched for. 0 or a negative errno. */
int flyt_peer_turns_watch(struct flyt_peer_turns *turns, struct flyt_peer *peer, int fd, uint32_t events);
/* Its turn soon, once. */
void flyt_peer_turns_wake(struct flyt_peer_turns *turns, struct flyt_peer *peer);
/* Neither of them any more. The socket is still open. */
void flyt_peer_turns_forget(struct flyt_peer_turns *turns, struct flyt_peer *peer);

#endif
