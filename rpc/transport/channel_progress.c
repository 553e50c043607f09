#include "rpc/transport/channel_state.h"

#include <sched.h>

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t look(const _Atomic(uint64_t) *number)
{
    return atomic_load_explicit(number, memory_order_acquire);
}

/* After a look at the page's numbers: whether every error that the server told before it wrote them has been heard. */
static bool has_heard_errors(const struct flyt_channel *channel, const struct flyt_progress_page *page)
{
    return look(&channel->error_count) >= look(&page->error_count);
}

/* Acquire: see page in channel_state.h. */
static const struct flyt_progress_page *page_of(const struct flyt_channel *channel)
{
    return atomic_load_explicit(&channel->page, memory_order_acquire);
}

/* The page before the channel's own numbers: another server's page has not said anything yet when it comes to this
 * address, and the channel's numbers say by then what that server goes on with (take_over_locked of channel_adopt.c).
 */
flyt_progress flyt_channel_progress(const struct flyt_channel *channel)
{
    const struct flyt_progress_page *page = page_of(channel);
    flyt_progress seen = {0};

    if (page && !flyt_channel_is_lost(channel))
        seen = (flyt_progress){
            .received = look(&page->received), .executed = look(&page->executed), .completed = look(&page->completed)};
    if (page && !has_heard_errors(channel, page))
        seen = (flyt_progress){0};
    return (flyt_progress){.received = larger(look(&channel->received), seen.received),
                           .executed = larger(look(&channel->executed), seen.executed),
                           .completed = larger(look(&channel->completed), seen.completed)};
}

/* It is known that the calls are not complete: the server must get them, and a core to execute them on. */
static enum flyt_channel_known leave_pending(struct flyt_channel *channel, uint64_t sequence)
{
    if (atomic_load(&channel->written_sequence) < sequence && flyt_channel_flush(channel))
        return FLYT_CHANNEL_UNKNOWN;
    if (!channel->may_spin)
        sched_yield();
    return FLYT_CHANNEL_PENDING;
}

/* `page` may be NULL. `place`: its number for these calls; NULL: it has none for them. */
static enum flyt_channel_known look_up(struct flyt_channel *channel, const struct flyt_progress_page *page,
                                       const _Atomic(uint64_t) *place, uint64_t sequence)
{
    if (flyt_channel_is_lost(channel))
        return FLYT_CHANNEL_UNKNOWN;
    if (look(&channel->completed) >= sequence)
        return FLYT_CHANNEL_DONE;
    if (!page)
        return FLYT_CHANNEL_UNKNOWN;
    bool is_done = larger(place ? look(place) : 0, look(&page->completed)) >= sequence;
    /* Since the look above, another server's page may have come (flyt_channel_progress). */
    is_done |= look(&channel->completed) >= sequence;
    if ((!is_done && !place) || !has_heard_errors(channel, page))
        return FLYT_CHANNEL_UNKNOWN;
    atomic_fetch_add_explicit(&channel->page_answer_count, 1, memory_order_relaxed);
    return is_done ? FLYT_CHANNEL_DONE : FLYT_CHANNEL_PENDING;
}

static const _Atomic(uint64_t) *place_of_stream(const struct flyt_progress_page *page, uint64_t stream_number)
{
    return page && stream_number < FLYT_PROGRESS_STREAMS_MAX ? &page->streams[stream_number] : NULL;
}

static const _Atomic(uint64_t) *place_of_blocking(const struct flyt_progress_page *page, unsigned device)
{
    return page && device < FLYT_PROGRESS_DEVICES_MAX ? &page->blocking[device] : NULL;
}

enum flyt_channel_known flyt_channel_stream_known(struct flyt_channel *channel, uint64_t stream_number,
                                                  uint64_t sequence)
{
    const struct flyt_progress_page *page = page_of(channel);

    flyt_channel_enter(channel);
    enum flyt_channel_known known = look_up(channel, page, place_of_stream(page, stream_number), sequence);
    if (known == FLYT_CHANNEL_PENDING)
        known = leave_pending(channel, sequence);
    flyt_channel_leave(channel, 0);
    return known;
}

enum flyt_channel_known flyt_channel_blocking_known(struct flyt_channel *channel, unsigned device, uint64_t sequence)
{
    const struct flyt_progress_page *page = page_of(channel);

    flyt_channel_enter(channel);
    enum flyt_channel_known known = look_up(channel, page, place_of_blocking(page, device), sequence);
    if (known == FLYT_CHANNEL_PENDING)
        known = leave_pending(channel, sequence);
    flyt_channel_leave(channel, 0);
    return known;
}

bool flyt_channel_legacy_is_done(struct flyt_channel *channel, unsigned device, uint64_t stream_number,
                                 uint64_t sequence, uint64_t blocking_sequence)
{
    const struct flyt_progress_page *page = page_of(channel);

    flyt_channel_enter(channel);
    bool is_done = look_up(channel, page, place_of_stream(page, stream_number), sequence) == FLYT_CHANNEL_DONE &&
                   look_up(channel, page, place_of_blocking(page, device), blocking_sequence) == FLYT_CHANNEL_DONE;
    flyt_channel_leave(channel, 0);
    return is_done;
}
