#include "cpu/image/contents.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cpu/image/checksum.h"
#include "cpu/image/packing.h"

struct piece {
    uint64_t offset_bytes;
    uint32_t payload_bytes, checksum;
    flyt_checkpoint_encoding encoding;
    size_t raw_bytes;
};

struct flyt_contents {
    int fd;
    pthread_t threads[FLYT_CONTENTS_THREADS_MAX];
    unsigned thread_count;
    pthread_mutex_t mutex;
    pthread_cond_t came, went;
    /* Under the mutex. */
    struct piece waiting[FLYT_CONTENTS_WAITING_MAX];
    unsigned first, count;
    bool is_ending, is_wrong;
};

static bool read_payload(int fd, const struct piece *piece, unsigned char *payload)
{
    for (uint32_t done = 0; done < piece->payload_bytes;) {
        ssize_t count = pread(fd, payload + done, piece->payload_bytes - done, (off_t)(piece->offset_bytes + done));
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        done += (uint32_t)count;
    }
    return true;
}

static bool is_right(int fd, const struct piece *piece, struct flyt_unpacker *unpacker, unsigned char *payload,
                     unsigned char *raw)
{
    if (!read_payload(fd, piece, payload) ||
        flyt_checkpoint_checksum(0, payload, piece->payload_bytes) != piece->checksum)
        return false;
    return piece->encoding == FLYT_CHECKPOINT_RAW ||
           flyt_unpacker_unpack(unpacker, piece->encoding, payload, piece->payload_bytes, raw, piece->raw_bytes) == 0;
}

/* The next one; false: there is none any more. */
static bool next_piece(struct flyt_contents *contents, struct piece *ret_piece)
{
    pthread_mutex_lock(&contents->mutex);
    while (!contents->count && !contents->is_ending)
        pthread_cond_wait(&contents->came, &contents->mutex);
    bool is_there = contents->count > 0;
    if (is_there) {
        *ret_piece = contents->waiting[contents->first];
        contents->first = (contents->first + 1) % FLYT_CONTENTS_WAITING_MAX;
        contents->count--;
        pthread_cond_signal(&contents->went);
    }
    pthread_mutex_unlock(&contents->mutex);
    return is_there;
}

/* Where something is wrong, or there is no memory, the rest is taken and not looked at. */
static void *run(void *user)
{
    struct flyt_contents *contents = user;
    unsigned char *payload = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX),
                  *raw = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX);
    struct flyt_unpacker unpacker = {0};
    struct piece piece;
    bool is_wrong = !payload || !raw;
    while (next_piece(contents, &piece))
        is_wrong = is_wrong || !is_right(contents->fd, &piece, &unpacker, payload, raw);
    pthread_mutex_lock(&contents->mutex);
    contents->is_wrong |= is_wrong;
    pthread_mutex_unlock(&contents->mutex);
    flyt_unpacker_fini(&unpacker);
    free(payload);
    free(raw);
    return NULL;
}

int flyt_contents_begin(int fd, struct flyt_contents **ret_contents)
{
    struct flyt_contents *contents = calloc(1, sizeof *contents);
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    sigset_t all, before;
    int status = 0;
    if (!contents)
        return -ENOMEM;
    contents->fd = fd;
    pthread_mutex_init(&contents->mutex, NULL);
    pthread_cond_init(&contents->came, NULL);
    pthread_cond_init(&contents->went, NULL);
    sigfillset(&all); /* signals are for others */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!status && contents->thread_count < FLYT_CONTENTS_THREADS_MAX &&
           (!contents->thread_count || (long)contents->thread_count < processors)) {
        status = pthread_create(&contents->threads[contents->thread_count], NULL, run, contents);
        contents->thread_count += !status;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (contents->thread_count) { /* fewer will do */
        *ret_contents = contents;
        return 0;
    }
    flyt_contents_end(contents);
    return -status;
}

void flyt_contents_take(struct flyt_contents *contents, const struct flyt_checkpoint_record *record)
{
    if (record->type != FLYT_CHECKPOINT_PAGES || !record->payload_bytes)
        return;
    pthread_mutex_lock(&contents->mutex);
    while (contents->count == FLYT_CONTENTS_WAITING_MAX)
        pthread_cond_wait(&contents->went, &contents->mutex);
    contents->waiting[(contents->first + contents->count++) % FLYT_CONTENTS_WAITING_MAX] =
        (struct piece){.offset_bytes = record->payload_offset_bytes,
                       .payload_bytes = record->payload_bytes,
                       .checksum = record->payload_checksum,
                       .encoding = record->body->pages.encoding,
                       .raw_bytes = record->place_bytes};
    pthread_cond_signal(&contents->came);
    pthread_mutex_unlock(&contents->mutex);
}

bool flyt_contents_end(struct flyt_contents *contents)
{
    if (!contents)
        return true;
    pthread_mutex_lock(&contents->mutex);
    contents->is_ending = true;
    pthread_cond_broadcast(&contents->came);
    pthread_mutex_unlock(&contents->mutex);
    for (unsigned i = 0; i < contents->thread_count; i++)
        pthread_join(contents->threads[i], NULL);
    bool is_right_ = !contents->is_wrong;
    pthread_cond_destroy(&contents->came);
    pthread_cond_destroy(&contents->went);
    pthread_mutex_destroy(&contents->mutex);
    free(contents);
    return is_right_;
}
