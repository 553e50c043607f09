#include "rpc/transport/kept.h"

#include <stdlib.h>
#include <string.h>
#include "rpc/proto/limits.h"
#include "rpc/transport/message.h"

enum {
    MARK_BYTES = 4,
    BUFFER_BYTES = 64 * 1024,     /* of a new buffer */
    TOGETHER_PART = 4,            /* what fills no more than this part of its buffer is put to the one before */
    SPARE_BYTES_MAX = 512 * 1024, /* a larger buffer is freed when it is no longer needed */
    SPARE_COUNT_MAX = 8,          /* as many as the calls of one stream need, with usual parameters */
    TABLE_FIRST = 16              /* procedures from here on have sequence numbers */
};

struct flyt_kept_buffer {
    struct flyt_kept_buffer *next;
    struct flyt_bytes bytes;
    uint64_t last; /* call; the first is behind the last of the buffer before */
};

void flyt_kept_init(struct flyt_kept *kept)
{
    *kept = (struct flyt_kept){0};
}

static void free_buffer(struct flyt_kept *kept, struct flyt_kept_buffer *buffer)
{
    kept->bytes -= buffer->bytes.capacity;
    flyt_bytes_fini(&buffer->bytes);
    free(buffer);
}

static void free_list(struct flyt_kept *kept, struct flyt_kept_buffer *buffer)
{
    while (buffer) {
        struct flyt_kept_buffer *next = buffer->next;
        free_buffer(kept, buffer);
        buffer = next;
    }
}

void flyt_kept_fini(struct flyt_kept *kept)
{
    free_list(kept, kept->first);
    free_list(kept, kept->spare);
    kept->first = kept->last = kept->spare = NULL;
    kept->spare_count = 0;
    kept->gone = kept->written;
}

/* ---- the queue ---- */

/* Lets go of the oldest buffer. */
static void drop_first(struct flyt_kept *kept)
{
    struct flyt_kept_buffer *buffer = kept->first;

    kept->first = buffer->next;
    if (!kept->first)
        kept->last = NULL;
    kept->gone = buffer->last;
    if (buffer->bytes.capacity > SPARE_BYTES_MAX || kept->spare_count == SPARE_COUNT_MAX) {
        free_buffer(kept, buffer);
        return;
    }
    buffer->bytes.used = 0;
    buffer->next = kept->spare;
    kept->spare = buffer;
    kept->spare_count++;
}

static struct flyt_kept_buffer *take_spare(struct flyt_kept *kept)
{
    struct flyt_kept_buffer *buffer = kept->spare;

    if (buffer) {
        kept->spare = buffer->next;
        kept->spare_count--;
    }
    return buffer;
}

static void hold_to_bounds(struct flyt_kept *kept)
{
    while (kept->spare && kept->bytes > FLYT_KEPT_BYTES_MAX)
        free_buffer(kept, take_spare(kept));
    while (kept->first && (kept->bytes > FLYT_KEPT_BYTES_MAX || kept->written - kept->gone > FLYT_KEPT_CALLS_MAX)) {
        drop_first(kept);
        if (kept->bytes > FLYT_KEPT_BYTES_MAX && kept->spare)
            free_buffer(kept, take_spare(kept));
    }
}

/* Puts a written buffer behind the others, and an empty one in its place. False: no memory; it was not kept. */
static bool push(struct flyt_kept *kept, struct flyt_bytes *out)
{
    struct flyt_kept_buffer *buffer = take_spare(kept);

    if (!buffer) {
        buffer = calloc(1, sizeof *buffer);
        if (!buffer)
            return false;
        buffer->bytes.bytes_max = out->bytes_max;
        if (!flyt_bytes_reserve(&buffer->bytes, BUFFER_BYTES)) {
            free(buffer);
            return false;
        }
        kept->bytes += buffer->bytes.capacity;
    }
    struct flyt_bytes empty = buffer->bytes;
    buffer->bytes = *out;
    *out = empty;
    kept->bytes += buffer->bytes.capacity - empty.capacity;
    buffer->bytes.used = kept->written_calls_bytes;
    buffer->last = kept->written;
    buffer->next = NULL;
    *(kept->last ? &kept->last->next : &kept->first) = buffer;
    kept->last = buffer;
    return true;
}

/* Adds the few calls of a written buffer to those that are kept. False: there is no room. */
static bool put_together(struct flyt_kept *kept, const struct flyt_bytes *out)
{
    struct flyt_kept_buffer *buffer = kept->last;
    size_t bytes = kept->written_calls_bytes;

    if (!buffer || bytes > out->capacity / TOGETHER_PART || bytes > buffer->bytes.capacity - buffer->bytes.used)
        return false;
    memcpy(buffer->bytes.data + buffer->bytes.used, out->data, bytes);
    buffer->bytes.used += bytes;
    buffer->last = kept->written;
    return true;
}

void flyt_kept_turn(struct flyt_kept *kept, struct flyt_bytes *out, uint64_t next, size_t next_calls_bytes,
                    uint64_t done)
{
    while (kept->first && kept->first->last <= done)
        drop_first(kept);
    bool is_needed = kept->first || kept->written > done; /* none in between: the queue has no holes */
    if (!is_needed) {
        kept->gone = kept->written;
    } else if (kept->written_calls_bytes && !put_together(kept, out) && !push(kept, out)) {
        while (kept->first)
            drop_first(kept);
        kept->gone = kept->written;
    }
    hold_to_bounds(kept);
    if (out->capacity > SPARE_BYTES_MAX)
        flyt_bytes_fini(out);
    out->used = 0;
    kept->written = next;
    kept->written_calls_bytes = next_calls_bytes;
}

void flyt_kept_restart(struct flyt_kept *kept, uint64_t after, size_t calls_bytes)
{
    while (kept->first)
        drop_first(kept);
    kept->gone = after;
    kept->written_calls_bytes = calls_bytes;
}

/* ---- walking ---- */

static uint32_t word_at(const unsigned char *bytes)
{
    uint32_t word;

    memcpy(&word, bytes, sizeof word);
    return ntohl(word);
}

/* The calls in `bytes` bytes of whole records; *sequence is the last number before, and after. */
static bool walk_bytes(const unsigned char *data, size_t bytes, uint64_t *sequence, flyt_kept_fn each, void *user)
{
    struct flyt_call_head head;

    while (bytes) {
        size_t record_bytes = bytes < MARK_BYTES ? 0 : word_at(data) & 0x7fffffff;
        if (!record_bytes || record_bytes > bytes - MARK_BYTES ||
            flyt_call_head_get(data + MARK_BYTES, record_bytes, &head))
            return false;
        bool is_counted = head.procedure >= TABLE_FIRST;
        *sequence += is_counted;
        struct flyt_kept_call call = {.sequence = is_counted ? *sequence : 0,
                                      .procedure = head.procedure,
                                      .record = data + MARK_BYTES,
                                      .bytes = record_bytes};
        if ((is_counted && head.xid != (uint32_t)call.sequence) || !each(user, &call))
            return false;
        data += MARK_BYTES + record_bytes;
        bytes -= MARK_BYTES + record_bytes;
    }
    return true;
}

bool flyt_kept_walk(const struct flyt_kept *kept, const struct flyt_bytes *out, const struct flyt_bytes *fill,
                    flyt_kept_fn each, void *user)
{
    uint64_t sequence = kept->gone;

    for (const struct flyt_kept_buffer *buffer = kept->first; buffer; buffer = buffer->next) {
        if (!walk_bytes(buffer->bytes.data, buffer->bytes.used, &sequence, each, user))
            return false;
    }
    return walk_bytes(out->data, kept->written_calls_bytes, &sequence, each, user) &&
           walk_bytes(fill->data, fill->used, &sequence, each, user);
}
