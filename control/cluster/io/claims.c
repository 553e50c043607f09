#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/claims.h"
#include "control/store/lease.h"
#include "rpc/base/claims.h"

struct flyt_claim {
    char *node;
    uint64_t at_ms;
};

static struct flyt_claim *find(struct flyt_claims *claims, const char *node)
{
    for (size_t i = 0; i < claims->count; i++)
        if (!strcmp(claims->items[i].node, node))
            return &claims->items[i];
    return NULL;
}

/* Forgets those that no longer hold anybody back. */
static void expire(struct flyt_claims *claims, uint64_t now_ms)
{
    for (size_t i = claims->count; i-- > 0;) {
        if (now_ms - claims->items[i].at_ms < FLYT_CLAIM_NODE_MS)
            continue;
        free(claims->items[i].node);
        claims->items[i] = claims->items[--claims->count];
    }
}

static struct flyt_claim *add(struct flyt_claims *claims, const char *node)
{
    if (claims->count == claims->room) {
        size_t room = claims->room ? 2 * claims->room : 8;
        struct flyt_claim *items = realloc(claims->items, room * sizeof *items);
        if (!items)
            return NULL;
        claims->items = items;
        claims->room = room;
    }
    struct flyt_claim *claim = &claims->items[claims->count];
    claim->node = strdup(node);
    if (!claim->node)
        return NULL;
    claims->count++;
    return claim;
}

enum flyt_claim_verdict flyt_claims_judge(struct flyt_claims *claims, const char *node, uint64_t epoch,
                                          uint64_t own_epoch, uint64_t now_ms)
{
    uint64_t full_ms = claims->full_ms > now_ms ? claims->full_ms : now_ms;

    if (epoch > FLYT_EPOCH_MAX || epoch > own_epoch + FLYT_CLAIM_AHEAD_MAX)
        return FLYT_CLAIM_TOO_FAR;
    expire(claims, now_ms);
    if (find(claims, node) || full_ms + FLYT_CLAIM_EACH_MS > now_ms + FLYT_CLAIMS_AT_ONCE * FLYT_CLAIM_EACH_MS)
        return FLYT_CLAIM_TOO_OFTEN;
    struct flyt_claim *claim = add(claims, node);
    if (!claim)
        return FLYT_CLAIM_TOO_OFTEN;
    claim->at_ms = now_ms;
    claims->full_ms = full_ms + FLYT_CLAIM_EACH_MS;
    return FLYT_CLAIM_BELIEVED;
}

void flyt_claims_fini(struct flyt_claims *claims)
{
    for (size_t i = 0; i < claims->count; i++)
        free(claims->items[i].node);
    free(claims->items);
    *claims = (struct flyt_claims){0};
}
