/*
 * The parts of the library that the core calls and does not know: each family of objects, transfers, host functions.
 * What a part has to do when something happens stands in one table (parts.c), from the bottom up; the core goes through
 * it.
 */
#ifndef FLYT_CLIENT_PART_H
#define FLYT_CLIENT_PART_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

struct flyt_channel_handlers;
struct flyt_restore;
struct flyt_thread;

/* Members that a part has nothing to do for are NULL. */
struct flyt_part {
    /* Before the connection is made. */
    void (*init)(void);
    /* It is made, and which devices the program sees is known. */
    void (*connected)(void);
    /* The sticky code stands: who waits shall look at it. From any thread, handlers of the channel included. */
    void (*wake)(void);
    /* A fatal error has come, with the last call that is known to be complete: what is known of its cause. As `wake`.
     */
    void (*explain)(CUresult result, uint64_t completed);
    /* A thread of the program ends; in that thread. */
    void (*thread_end)(struct flyt_thread *thread);
    /* A context ends, and with it what belongs to it; is_on_server false: the server has ended that already. */
    void (*context_end)(uint64_t context_id, bool is_on_server);
    /* A device is about to be reset: its work is done. The context is its primary one, which ends after this. */
    void (*before_reset)(int device, uint64_t context_id);
    /* The server has reset the whole device. */
    void (*after_reset)(int device);
    /* The program has waited for a stream, an event or a device. In that thread; often: it costs next to nothing. One
     * part at most has it. */
    void (*synchronized)(void);
    /* The session is to go to another server behind call `sequence`: whether something has begun that is not finished,
     * and the sentence that says what. */
    bool (*is_unfinished)(uint64_t sequence);
    const char *unfinished;
    /* Makes what it has again, at another server. 0, or a negative errno, which is then also in restore->err. */
    int (*restore)(struct flyt_restore *restore);
    /* The session stays where it was, behind call `sequence`. */
    void (*stay)(uint64_t sequence);
};

/* `handlers` are those of the channel that are not the core's own (client.c). All of it lives as long as the process.
 * Once, before the first call of the library. */
void flyt_parts_install(const struct flyt_part *parts, unsigned count, const struct flyt_channel_handlers *handlers);

extern struct flyt_parts {
    const struct flyt_part *list;
    unsigned count;
    void (*synchronized)(void); /* of the part that has it: so often that nobody looks for it; NULL: none does */
    const struct flyt_channel_handlers *handlers;
} flyt_parts __attribute__((visibility("hidden")));

static inline void flyt_parts_tell_synchronized(void)
{
    if (flyt_parts.synchronized)
        flyt_parts.synchronized();
}

/* Calls a member of every part that has it, from the bottom up; or, of what ends, from the top down. */
#define FLYT_PARTS_TELL(member, ...)                                                                                   \
    do {                                                                                                               \
        for (unsigned part = 0; part < flyt_parts.count; part++)                                                       \
            if (flyt_parts.list[part].member)                                                                          \
                flyt_parts.list[part].member(__VA_ARGS__);                                                             \
    } while (0)
#define FLYT_PARTS_TELL_DOWN(member, ...)                                                                              \
    do {                                                                                                               \
        for (unsigned part = flyt_parts.count; part-- > 0;)                                                            \
            if (flyt_parts.list[part].member)                                                                          \
                flyt_parts.list[part].member(__VA_ARGS__);                                                             \
    } while (0)

#endif
