#include "control/base/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rpc/base/deadline.h"
#include "rpc/base/descriptors.h"

struct entry {
    struct entry *next;
    void (*work)(void *job);
    void (*done)(void *job, int is_cancelled);
    void *job;
};

struct queue {
    struct entry *first, **last;
};

struct flyt_worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t came, went;
    struct queue waiting; /* under the mutex */
    struct queue ended;   /* under the mutex */
    size_t waiting_count; /* under the mutex; those whose work has not ended */
    size_t jobs_max;
    bool is_ending;          /* under the mutex */
    bool is_busy;            /* under the mutex: a job is under way */
    bool is_left;            /* under the mutex: nobody but the thread has it any more */
    struct flyt_tally *left; /* where is_left: counts the thread; or NULL */
    int event_fd;
    sd_event_source *source;
};

static void queue_init(struct queue *queue)
{
    *queue = (struct queue){.last = &queue->first};
}

static void queue_add(struct queue *queue, struct entry *entry)
{
    entry->next = NULL;
    *queue->last = entry;
    queue->last = &entry->next;
}

static struct entry *queue_take(struct queue *queue)
{
    struct entry *entry = queue->first;
    if (!entry)
        return NULL;
    queue->first = entry->next;
    if (!queue->first)
        queue->last = &queue->first;
    return entry;
}

static void queue_move(struct queue *from, struct queue *ret_to)
{
    struct entry *entry;

    queue_init(ret_to);
    while ((entry = queue_take(from)))
        queue_add(ret_to, entry);
}

/* What is left when it has no thread, no source and no job any more. */
static void destroy(struct flyt_worker *worker)
{
    flyt_close(worker->event_fd);
    pthread_cond_destroy(&worker->came);
    pthread_cond_destroy(&worker->went);
    pthread_mutex_destroy(&worker->mutex);
    free(worker);
}

/* The thread of one that was left: nobody is there to be told on the loop. */
static void end_alone(struct flyt_worker *worker, struct entry *entry)
{
    struct flyt_tally *left = worker->left;
    entry->done(entry->job, 1);
    free(entry);
    destroy(worker);
    flyt_tally_remove(left);
}

static void *run(void *user)
{
    struct flyt_worker *worker = user;
    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        while (!worker->waiting.first && !worker->is_ending)
            pthread_cond_wait(&worker->came, &worker->mutex);
        if (worker->is_ending)
            break;
        struct entry *entry = queue_take(&worker->waiting);
        worker->is_busy = true;
        pthread_mutex_unlock(&worker->mutex);
        entry->work(entry->job);
        pthread_mutex_lock(&worker->mutex);
        worker->is_busy = false;
        worker->waiting_count--;
        if (worker->is_left) {
            pthread_mutex_unlock(&worker->mutex);
            end_alone(worker, entry);
            return NULL;
        }
        queue_add(&worker->ended, entry);
        pthread_cond_signal(&worker->went);
        pthread_mutex_unlock(&worker->mutex);
        /* Not under the mutex: the loop, which this wakes, would wait for a thread that has no CPU. */
        eventfd_write(worker->event_fd, 1);
        pthread_mutex_lock(&worker->mutex);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

/* What has ended so far; jobs that end meanwhile raise the event again. */
static int take_ended(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct flyt_worker *worker = user;
    eventfd_t count;
    eventfd_read(fd, &count);
    pthread_mutex_lock(&worker->mutex);
    struct entry *entry = worker->ended.first;
    queue_init(&worker->ended);
    pthread_mutex_unlock(&worker->mutex);
    while (entry) {
        struct entry *next = entry->next;
        entry->done(entry->job, 0);
        free(entry);
        entry = next;
    }
    return 0;
}

int flyt_worker_new(sd_event *event, const char *name, size_t jobs_max, struct flyt_worker **ret_worker)
{
    struct flyt_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return -ENOMEM;
    worker->jobs_max = jobs_max;
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->came, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->went, &attributes);
    pthread_condattr_destroy(&attributes);
    queue_init(&worker->waiting);
    queue_init(&worker->ended);
    int status = 0;
    worker->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->event_fd < 0)
        status = -errno;
    else
        status = sd_event_add_io(event, &worker->source, worker->event_fd, EPOLLIN, take_ended, worker);
    if (status >= 0)
        status = -pthread_create(&worker->thread, NULL, run, worker);
    if (status < 0) {
        sd_event_source_disable_unref(worker->source);
        flyt_close(worker->event_fd);
        free(worker);
        return status;
    }
    pthread_setname_np(worker->thread, name);
    *ret_worker = worker;
    return 0;
}

static void cancel(struct queue *queue, int is_cancelled)
{
    struct entry *entry;
    while ((entry = queue_take(queue))) {
        entry->done(entry->job, is_cancelled);
        free(entry);
    }
}

struct flyt_worker *flyt_worker_free(struct flyt_worker *worker)
{
    if (!worker)
        return NULL;
    pthread_mutex_lock(&worker->mutex);
    worker->is_ending = true;
    pthread_cond_signal(&worker->came);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->thread, NULL);
    sd_event_source_disable_unref(worker->source);
    cancel(&worker->ended, 1);
    cancel(&worker->waiting, 1);
    destroy(worker);
    return NULL;
}

struct flyt_worker *flyt_worker_leave(struct flyt_worker *worker, struct flyt_tally *left)
{
    struct queue ended, waiting;
    if (!worker)
        return NULL;
    pthread_mutex_lock(&worker->mutex);
    worker->is_ending = true; /* no job is begun any more */
    if (!worker->is_busy) {
        pthread_mutex_unlock(&worker->mutex);
        return flyt_worker_free(worker);
    }
    worker->is_left = true;
    flyt_tally_add(left);
    worker->left = left;
    queue_move(&worker->ended, &ended);
    queue_move(&worker->waiting, &waiting);
    worker->source = sd_event_source_disable_unref(worker->source);
    pthread_detach(worker->thread);
    pthread_mutex_unlock(&worker->mutex); /* it is the thread's */
    cancel(&ended, 1);
    cancel(&waiting, 1);
    return NULL;
}

bool flyt_worker_finish(struct flyt_worker *worker, uint64_t timeout_ms)
{
    struct timespec end = flyt_deadline_ms(timeout_ms);
    int status = 0;
    pthread_mutex_lock(&worker->mutex);
    while (worker->waiting_count && status == 0)
        status = pthread_cond_timedwait(&worker->went, &worker->mutex, &end);
    bool is_finished = !worker->waiting_count;
    pthread_mutex_unlock(&worker->mutex);
    return is_finished;
}

int flyt_worker_do(struct flyt_worker *worker, void (*work)(void *job), void (*done)(void *job, int is_cancelled),
                   void *job)
{
    struct entry *entry = malloc(sizeof *entry);
    if (!entry)
        return -ENOMEM;
    *entry = (struct entry){.work = work, .done = done, .job = job};
    pthread_mutex_lock(&worker->mutex);
    bool is_full = worker->waiting_count >= worker->jobs_max || worker->is_ending;
    if (!is_full) {
        worker->waiting_count++;
        queue_add(&worker->waiting, entry);
        pthread_cond_signal(&worker->came);
    }
    pthread_mutex_unlock(&worker->mutex);
    if (is_full)
        free(entry);
    return is_full ? -EAGAIN : 0;
}

size_t flyt_worker_waiting(const struct flyt_worker *worker)
{
    struct flyt_worker *own = (struct flyt_worker *)worker;
    pthread_mutex_lock(&own->mutex);
    size_t count = own->waiting_count;
    pthread_mutex_unlock(&own->mutex);
    return count;
}
