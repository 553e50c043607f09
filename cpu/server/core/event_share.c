#include "cpu/server/core/event_share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/event.h"
#include "cpu/server/core/observer.h"
#include "cpu/server/core/session.h"
#include "rpc/base/clock.h"
#include "rpc/base/shared_event.h"

enum { LOOK_NS = 5 * 1000 * 1000 };

struct flyt_shared_fence {
    struct flyt_shared_fence *next;
    struct flyt_fence *fence;
    bool is_own; /* recorded here; else by another process, and record has nothing but its word */
    struct flyt_shared_record record;
};

/* Takes no reference where it fails. */
static struct flyt_shared_fence *add(struct flyt_event_share *share, struct flyt_fence *fence)
{
    struct flyt_shared_fence *one = calloc(1, sizeof *one);
    if (!one)
        return NULL;
    one->fence = flyt_fence_ref(fence);
    one->next = share->fences;
    share->fences = one;
    return one;
}

static void take_out(struct flyt_shared_fence **link)
{
    struct flyt_shared_fence *one = *link;
    *link = one->next;
    flyt_fence_unref(one->fence);
    free(one);
}

CUresult flyt_event_share_begin(struct flyt_event *event, struct flyt_shared_event *page, const unsigned char *token,
                                bool is_exported)
{
    struct flyt_session *session = event->device->session;
    struct flyt_event_share *share = calloc(1, sizeof *share);
    if (!share)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *share = (struct flyt_event_share){
        .session = session, .event = event, .page = page, .is_exported = is_exported, .next = session->event_shares};
    memcpy(share->token, token, sizeof share->token);
    CUresult result =
        event->fence && !flyt_shared_event_last(page) ? flyt_event_share_record(share, event->fence) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
        free(share);
        return result;
    }
    session->event_shares = share;
    event->share = share;
    session->observer->shared_counted(session, true);
    return CUDA_SUCCESS;
}

static void free_share(struct flyt_event_share **link)
{
    struct flyt_event_share *share = *link;
    *link = share->next;
    while (share->fences)
        take_out(&share->fences);
    flyt_shared_event_close(share->page);
    free(share);
}

void flyt_event_share_end(struct flyt_event_share *share)
{
    if (!share)
        return;
    if (share->ended)
        share->ended(share);
    share->event = NULL;
    share->session->observer->shared_counted(share->session, false);
}

CUresult flyt_event_share_record(struct flyt_event_share *share, struct flyt_fence *fence)
{
    struct flyt_shared_fence *one = add(share, fence);
    if (!one)
        return CUDA_ERROR_OUT_OF_MEMORY;
    one->is_own = true;
    int status = flyt_shared_event_record(share->page, &one->record);
    if (status) {
        take_out(&share->fences);
        return status == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_HANDLE;
    }
    share->seen = one->record.word;
    return CUDA_SUCCESS;
}

CUresult flyt_event_share_look(struct flyt_event_share *share)
{
    uint64_t last = share ? flyt_shared_event_last(share->page) : 0;
    struct flyt_fence *fence;
    if (!share || last == share->seen)
        return CUDA_SUCCESS;
    if (share->foreign_count == FLYT_FOREIGN_RECORDS_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = flyt_device_use(share->event->device);
    if (result == CUDA_SUCCESS)
        result = flyt_fence_promise(share->event->device, false, &fence);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_shared_fence *one = add(share, fence);
    if (one) {
        one->record.word = last;
        share->foreign_count++;
        share->seen = last;
        flyt_event_see(share->event, fence);
    } else {
        flyt_fence_unref(fence);
    }
    return one ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether it is reached, and all is said that is to be said of it. */
static bool is_over(struct flyt_event_share *share, struct flyt_shared_fence *one, bool is_looking)
{
    if (one->is_own)
        return flyt_fence_poll(one->fence) != CUDA_ERROR_NOT_READY &&
               flyt_shared_event_complete(share->page, &one->record);
    if (!flyt_shared_event_is_complete(share->page, one->record.word) &&
        !(is_looking && flyt_shared_event_is_abandoned(share->page, one->record.word)))
        return false;
    share->foreign_count--;
    flyt_fence_break(one->fence);
    share->session->is_scan_due = true; /* calls may have been deferred until then */
    return true;
}

static void advance(struct flyt_event_share *share, uint64_t now_ns)
{
    bool is_looking = now_ns >= share->look_ns;
    if (is_looking)
        share->look_ns = now_ns + LOOK_NS;
    for (struct flyt_shared_fence **link = &share->fences; *link;) {
        if (is_over(share, *link, is_looking))
            take_out(link);
        else
            link = &(*link)->next;
    }
}

bool flyt_event_shares_advance(struct flyt_session *session)
{
    bool has_fences = false;
    if (!session->event_shares)
        return false;
    uint64_t now_ns = flyt_clock_ns();
    for (struct flyt_event_share **link = &session->event_shares, *share; (share = *link);) {
        advance(share, now_ns);
        has_fences |= share->fences != NULL;
        if (!share->event && !share->fences)
            free_share(link);
        else
            link = &share->next;
    }
    return has_fences;
}

void flyt_event_shares_fini(struct flyt_session *session)
{
    while (session->event_shares)
        free_share(&session->event_shares);
}
