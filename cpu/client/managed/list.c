/* The list of pieces: an array in the order of addresses. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/managed/piece.h"
#include "cpu/client/cuda/stream_record.h"

static struct {
    pthread_mutex_t mutex;
    struct flyt_managed **pieces;
    size_t count, capacity;
} list = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void flyt_managed_lock(void)
{
    pthread_mutex_lock(&list.mutex);
}

void flyt_managed_unlock(void)
{
    pthread_mutex_unlock(&list.mutex);
}

/* The number of pieces that begin below the address. */
static size_t count_below(uint64_t address)
{
    size_t low = 0, high = list.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list.pieces[middle]->base < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct flyt_managed *flyt_managed_from(uint64_t address)
{
    size_t place = count_below(address);
    return place < list.count ? list.pieces[place] : NULL;
}

struct flyt_managed *flyt_managed_find(uint64_t address)
{
    size_t place = count_below(address);
    if (place < list.count && list.pieces[place]->base == address)
        return list.pieces[place];
    struct flyt_managed *before = place ? list.pieces[place - 1] : NULL;
    return before && address - before->base < before->bytes ? before : NULL;
}

bool flyt_managed_insert(struct flyt_managed *piece)
{
    if (list.count == list.capacity) {
        size_t capacity = list.capacity ? 2 * list.capacity : 16;
        struct flyt_managed **more = realloc(list.pieces, capacity * sizeof *more);
        if (!more)
            return false;
        list.pieces = more;
        list.capacity = capacity;
    }
    size_t place = count_below(piece->base);
    memmove(list.pieces + place + 1, list.pieces + place, (list.count - place) * sizeof *list.pieces);
    list.pieces[place] = piece;
    list.count++;
    return true;
}

void flyt_managed_remove(struct flyt_managed *piece)
{
    size_t place = count_below(piece->base);
    if (place == list.count || list.pieces[place] != piece)
        return;
    list.count--;
    memmove(list.pieces + place, list.pieces + place + 1, (list.count - place) * sizeof *list.pieces);
}

struct flyt_stream *flyt_managed_stream(struct flyt_managed *piece)
{
    if (piece->attach != CU_MEM_ATTACH_SINGLE)
        return NULL;
    struct flyt_stream *stream = flyt_stream_find(piece->stream_id);
    if (stream && stream->number == piece->stream_number)
        return stream;
    piece->attach = piece->default_attach;
    return NULL;
}
