/*
 * File descriptors: closing them at the end of a scope, and handing them to another process together with the bytes
 * that say what they are for (SCM_RIGHTS, unix(7)). Any thread; nothing is kept here.
 */
#ifndef FLYT_BASE_DESCRIPTORS_H
#define FLYT_BASE_DESCRIPTORS_H

#include <stddef.h>

enum {
    FLYT_DESCRIPTORS_MAX = 64,   /* in one message */
    FLYT_DESCRIPTORS_HIGH = 480, /* where those are that flyt_descriptor_move_up has moved */
};

/* Closes fd if it is not negative; keeps errno. Returns -1, so that `fd = flyt_close(fd)` forgets it. */
int flyt_close(int fd);

static inline void flyt_close_at_end(int *fd)
{
    *fd = flyt_close(*fd);
}

/* `flyt_auto_close int fd = …;` is closed where its scope ends; set it to -1 to keep it open. */
#define flyt_auto_close __attribute__((cleanup(flyt_close_at_end)))

/*
 * Sends `bytes` of payload (at least 1) with fd_count descriptors (0–FLYT_DESCRIPTORS_MAX) over a unix socket. The
 * descriptors stay open here. Over a stream socket the payload may be of any length: descriptors travel with its first
 * byte. Blocks as the socket does. 0 or a negative errno; -EPIPE without a signal where the peer has gone.
 */
int flyt_descriptors_send(int socket_fd, const void *payload, size_t bytes, const int *fds, unsigned fd_count);

/*
 * Receives at most payload_bytes_max bytes of payload and the descriptors that came with them, close-on-exec; they
 * belong to the caller. At most fd_count_max are taken; more, or more than the kernel could install, is -EMSGSIZE (all
 * are closed). One recvmsg(2): over a stream socket the payload may come short, to be completed by read(2).
 * Returns bytes received, 0 at the end of the stream, or a negative errno; on failure and at the end the outputs are
 * untouched.
 */
int flyt_descriptors_receive(int socket_fd, void *payload, size_t payload_bytes_max, int *ret_fds,
                             unsigned fd_count_max, unsigned *ret_fd_count);

/*
 * Has the kernel make room for descriptors up to this number, as far as RLIMIT_NOFILE lets it. A table that grows
 * later, in a process that has threads, waits for an RCU grace period: tens of milliseconds, in whatever call needs the
 * next descriptor. To be called while nobody waits, best before there are threads. What cannot be is left.
 */
void flyt_descriptors_reserve(unsigned count);

/*
 * Moves a descriptor behind all others, to the first free number from FLYT_DESCRIPTORS_HIGH on. When a process is
 * killed, Linux lets go of what its descriptors refer to from the highest number down (task_work_run in the kernel's
 * kernel/task_work.c takes the last one added first). So the other end of such a socket hears of the process's end
 * before a driver, with its devices below, has cleaned up, which takes it tens of milliseconds.
 * Returns the descriptor, close-on-exec; `fd` is closed then. Where RLIMIT_NOFILE lets no such number be, `fd` itself.
 */
int flyt_descriptor_move_up(int fd);

#endif
