/*
 * A channel without a server, for tests: what the client sends goes to the test's function, which also fills replies,
 * and the test plays the server's part by calling the handlers. One channel at a time; a further one is any other
 * pointer, and does the same.
 */
#ifndef FLYT_CLIENT_FAKE_CHANNEL_H
#define FLYT_CLIENT_FAKE_CHANNEL_H

#include "rpc/transport/channel.h"
#include "rpc/base/region.h"

struct fake_channel {
    /* Every call; it fails where this sets is_lost. `res` is NULL for one-way calls, else zeroed; `data` is where a
     * payload goes. */
    void (*serve)(unsigned procedure, const void *args, void *res, void *data);
    enum flyt_channel_waits waits_as;   /* that the last one was asked for */
    unsigned driver_version;            /* that the handshake has told, where it is not 0 */
    uint64_t sequence;                  /* of the last call */
    const struct flyt_channel *channel; /* that it was made on */
    /* What flyt_channel_kept tells: calls above the number that it is given, and its answer. */
    const struct flyt_channel_kept_call *kept;
    unsigned kept_count;
    int kept_status;
    uint64_t kept_gone;                /* what flyt_channel_kept_sums tells of them */
    flyt_progress progress;            /* what flyt_channel_progress answers */
    enum flyt_channel_known page_says; /* of what `progress` says nothing about */
    void (*on_page)(void);             /* called when it is asked; may be NULL */
    /* What was asked last. */
    uint64_t asked_number, asked_sequence, asked_blocking_sequence;
    unsigned call_count[256]; /* by procedure */
    _Atomic bool is_away;     /* who flushes it waits until it is not; so many do: */
    _Atomic unsigned waiting_count;
    uint64_t data_transfer_id; /* of the last flyt_channel_send_data(_later) */
    uint64_t data_bytes;
    unsigned data_count;  /* how often they were called */
    unsigned group_count; /* groups that have not ended */
    unsigned data_groups; /* how often data was sent in one */
    bool is_data_held;    /* _later does not finish by itself: the test calls held_done */
    void (*held_done)(void *user, uint64_t transfer_id, int status);
    void *held_user;
    flyt_channel_pack_fn held_pack; /* of the last one; NULL: it lies in one piece */
    struct flyt_region region;      /* that flyt_channel_region answers; all zero: none */
    uint64_t region_at;             /* that flyt_channel_region_at answers */
    bool maps_region, fills_region;
    enum flyt_channel_reach region_reach; /* that flyt_channel_region_reach answers */
    bool is_lost;
    unsigned lacks;                               /* a procedure that the server is too old for; 0: none */
    const struct flyt_channel_handlers *handlers; /* what the client gave */
    void *user;
};

extern struct fake_channel fake;

/* Answers FLYT_DEVICE_INFO: a device with four multiprocessors and the usual limits. */
void fake_serve_device_info(flyt_device_info_res *res);

#endif
