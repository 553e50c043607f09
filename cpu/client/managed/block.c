#include "cpu/client/managed/block.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static struct flyt_page_hash_keys *keys;
static struct flyt_page_hash zero_hash;
static pthread_once_t keys_once = PTHREAD_ONCE_INIT;

/* The key is known to nobody else, and needs to be no secret of this program's: it harms its own memory only. */
static void make_keys(void)
{
    static const char zero[FLYT_PAGE_BYTES];
    struct flyt_page_key key;
    struct flyt_page_hash_keys *made = aligned_alloc(_Alignof(struct flyt_page_hash_keys), sizeof *made);
    if (!made)
        return;
    if (getrandom(&key, sizeof key, 0) != sizeof key) {
        free(made);
        return;
    }
    flyt_page_hash_prepare(&key, made);
    flyt_page_hash(made, zero, &zero_hash, NULL);
    keys = made;
}

const struct flyt_page_hash_keys *flyt_managed_keys(void)
{
    pthread_once(&keys_once, make_keys);
    return keys;
}

bool flyt_managed_block_init(struct flyt_managed_block *block, uint64_t base, uint64_t bytes, bool is_large)
{
    *block = (struct flyt_managed_block){.base = base, .bytes = bytes};
    if (!is_large) {
        block->copy = calloc(1, bytes);
        return block->copy != NULL;
    }
    if (!flyt_managed_keys())
        return false;
    uint64_t count = bytes / FLYT_PAGE_BYTES;
    block->hashes = malloc(count * sizeof *block->hashes);
    for (uint64_t i = 0; block->hashes && i < count; i++)
        block->hashes[i] = zero_hash;
    return block->hashes != NULL;
}

void flyt_managed_block_fini(struct flyt_managed_block *block)
{
    free(block->copy);
    free(block->hashes);
    *block = (struct flyt_managed_block){0};
}

/* Of the unit at an offset: the last one of a small piece may be shorter. */
static uint64_t unit_at(const struct flyt_managed_block *block, uint64_t offset_bytes)
{
    uint64_t unit_bytes = flyt_managed_unit_bytes(block), left_bytes = block->bytes - offset_bytes;
    return left_bytes < unit_bytes ? left_bytes : unit_bytes;
}

bool flyt_managed_differs(const struct flyt_managed_block *block, uint64_t offset_bytes, const void *data)
{
    struct flyt_page_hash hash;
    if (!flyt_managed_block_is_large(block))
        return memcmp(block->copy + offset_bytes, data, unit_at(block, offset_bytes)) != 0;
    flyt_page_hash(keys, data, &hash, NULL);
    return !flyt_page_hash_is_equal(&hash, &block->hashes[offset_bytes / FLYT_PAGE_BYTES]);
}

bool flyt_managed_agree(struct flyt_managed_block *block, uint64_t offset_bytes, const void *data)
{
    struct flyt_page_hash hash, *agreed = block->hashes + offset_bytes / FLYT_PAGE_BYTES;
    bool differs;
    if (!flyt_managed_block_is_large(block)) {
        differs = flyt_managed_differs(block, offset_bytes, data);
        if (differs)
            memcpy(block->copy + offset_bytes, data, unit_at(block, offset_bytes));
        return differs;
    }
    flyt_page_hash(keys, data, &hash, NULL);
    differs = !flyt_page_hash_is_equal(&hash, agreed);
    *agreed = hash;
    return differs;
}

static char *host_at(const struct flyt_managed_block *block, uint64_t offset_bytes)
{
    return (char *)(uintptr_t)(block->base + offset_bytes); /* NOLINT: both sides have it there */
}

uint64_t flyt_managed_next_change(const struct flyt_managed_block *block, uint64_t end_bytes, uint64_t bytes_max,
                                  uint64_t *offset_bytes, uint64_t *ret_offset_bytes)
{
    uint64_t at = *offset_bytes, end;
    while (at < end_bytes && !flyt_managed_differs(block, at, host_at(block, at)))
        at += unit_at(block, at);
    for (end = at; end < end_bytes && end - at + unit_at(block, end) <= bytes_max; end += unit_at(block, end))
        if (end > at && !flyt_managed_differs(block, end, host_at(block, end)))
            break;
    *ret_offset_bytes = at;
    *offset_bytes = end;
    return end - at;
}

void flyt_managed_take(struct flyt_managed_block *block, uint64_t offset_bytes, const void *data, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes; done += unit_at(block, offset_bytes + done)) {
        const char *unit = (const char *)data + done;
        uint64_t at = offset_bytes + done;
        if (flyt_managed_agree(block, at, unit))
            memcpy(host_at(block, at), unit, unit_at(block, at));
    }
}
