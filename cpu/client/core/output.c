#include "cpu/client/core/output.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rpc/base/log.h"

struct flyt_output_text {
    struct flyt_output_text *next;
    bool is_error;
    size_t bytes;
    char text[];
};

static struct {
    pthread_mutex_t mutex;
    struct flyt_output_text *first, *last;
    _Atomic bool is_there;
} kept = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void flyt_output_keep(void *user, bool is_error, const char *text, size_t bytes)
{
    struct flyt_output_text *one = malloc(sizeof *one + bytes);
    if (!one) {
        flyt_warn("no memory for a kernel's output bytes=%zu", bytes);
        return;
    }
    *one = (struct flyt_output_text){.is_error = is_error, .bytes = bytes};
    memcpy(one->text, text, bytes);
    pthread_mutex_lock(&kept.mutex);
    *(kept.first ? &kept.last->next : &kept.first) = one;
    kept.last = one;
    atomic_store(&kept.is_there, true);
    pthread_mutex_unlock(&kept.mutex);
}

static struct flyt_output_text *take(void)
{
    pthread_mutex_lock(&kept.mutex);
    struct flyt_output_text *list = kept.first;
    kept.first = NULL;
    atomic_store(&kept.is_there, false);
    pthread_mutex_unlock(&kept.mutex);
    return list;
}

void flyt_output_print(void)
{
    if (!atomic_load_explicit(&kept.is_there, memory_order_relaxed))
        return;
    for (struct flyt_output_text *one = take(); one;) {
        struct flyt_output_text *next = one->next;
        FILE *stream = one->is_error ? stderr : stdout;
        fwrite(one->text, 1, one->bytes, stream);
        fflush(stream);
        free(one);
        one = next;
    }
}

void flyt_output_forked(void)
{
    atomic_store(&kept.is_there, false);
}
