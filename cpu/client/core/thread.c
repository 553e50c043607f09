#include "cpu/client/core/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include "cpu/client/core/part.h"
#include "rpc/base/log.h"

_Atomic int flyt_thread_left_behind;

__thread struct flyt_thread *flyt_thread_self __attribute__((tls_model("initial-exec")));

static struct {
    pthread_mutex_t mutex;
    pthread_once_t once;
    pthread_key_t key;
    bool has_key;
    struct flyt_thread *first;
    _Atomic uint32_t last_number;
} threads = {.mutex = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* The error goes to the process, unless it has one already: one is told, as of every thread. Of those that nobody can
 * be told, the first of each thread is warned of. */
static void leave_behind(uint32_t number, CUresult result)
{
    static _Atomic uint32_t last_warned;
    int none = CUDA_SUCCESS;
    if (atomic_compare_exchange_strong(&flyt_thread_left_behind, &none, (int)result))
        flyt_warn("a call of a thread that has ended failed: the next call of any thread returns the error, thread=%u "
                  "cuda_result=%d",
                  number, (int)result);
    else if (atomic_exchange(&last_warned, number) != number)
        flyt_warn("a call of a thread that has ended failed: no call returns the error, for another one is told, "
                  "thread=%u cuda_result=%d",
                  number, (int)result);
    else
        flyt_debug("a call of a thread that has ended failed thread=%u result=%d", number, (int)result);
}

static void unlink_thread(struct flyt_thread *thread)
{
    pthread_mutex_lock(&threads.mutex);
    *(thread->previous ? &thread->previous->next : &threads.first) = thread->next;
    if (thread->next)
        thread->next->previous = thread->previous;
    pthread_mutex_unlock(&threads.mutex);
}

/* The destructor of the key: the thread ends. */
static void end_thread(void *data)
{
    struct flyt_thread *thread = data;
    flyt_thread_self = thread; /* destroying its streams may ask who calls */
    FLYT_PARTS_TELL_DOWN(thread_end, thread);
    unlink_thread(thread);
    int pending = atomic_load(&thread->pending); /* unlinked: nobody sets it any more */
    if (pending)
        leave_behind(thread->number, (CUresult)pending);
    free(thread->contexts);
    free(thread->streams);
    free(thread);
    flyt_thread_self = NULL;
}

static void make_key(void)
{
    threads.has_key = pthread_key_create(&threads.key, end_thread) == 0;
}

struct flyt_thread *flyt_thread_make(void)
{
    pthread_once(&threads.once, make_key);
    struct flyt_thread *thread = calloc(1, sizeof *thread);
    /* Without the destructor the record would outlive its thread and then another's number would be its own. */
    if (!thread || !threads.has_key || pthread_setspecific(threads.key, thread) != 0) {
        free(thread);
        return NULL;
    }
    thread->number = atomic_fetch_add(&threads.last_number, 1) + 1;
    pthread_mutex_lock(&threads.mutex);
    thread->next = threads.first;
    if (thread->next)
        thread->next->previous = thread;
    threads.first = thread;
    pthread_mutex_unlock(&threads.mutex);
    flyt_thread_self = thread;
    return thread;
}

void flyt_thread_set_pending(uint32_t number, CUresult result)
{
    int none = CUDA_SUCCESS;
    pthread_mutex_lock(&threads.mutex);
    struct flyt_thread *one = threads.first;
    while (one && one->number != number)
        one = one->next;
    if (one)
        atomic_compare_exchange_strong(&one->pending, &none, (int)result);
    pthread_mutex_unlock(&threads.mutex);
    if (!one)
        leave_behind(number, result);
}

CUresult flyt_thread_take_pending(void)
{
    CUresult result = (CUresult)atomic_exchange(&flyt_thread_self->pending, CUDA_SUCCESS);
    return result ? result : (CUresult)atomic_exchange(&flyt_thread_left_behind, CUDA_SUCCESS);
}

static void warn_untold(uint32_t number, CUresult result)
{
    flyt_warn("a call failed and the program has ended without hearing of it: thread=%u cuda_result=%d", number,
              (int)result);
}

void flyt_thread_tell_untold(void)
{
    int left_behind = atomic_exchange(&flyt_thread_left_behind, CUDA_SUCCESS);
    if (left_behind)
        warn_untold(0, (CUresult)left_behind);
    if (pthread_mutex_trylock(&threads.mutex) != 0)
        return;
    for (struct flyt_thread *one = threads.first; one; one = one->next) {
        int pending = atomic_exchange(&one->pending, CUDA_SUCCESS);
        if (pending)
            warn_untold(one->number, (CUresult)pending);
    }
    pthread_mutex_unlock(&threads.mutex);
}

bool flyt_thread_has_answer(void)
{
    bool has_answer = false;
    pthread_mutex_lock(&threads.mutex);
    for (struct flyt_thread *one = threads.first; one && !has_answer; one = one->next)
        has_answer = atomic_load(&one->answer) == FLYT_ANSWER_COME;
    pthread_mutex_unlock(&threads.mutex);
    return has_answer;
}

bool flyt_thread_push(struct flyt_thread *thread, uint64_t context_id)
{
    if (thread->context_count == thread->context_capacity) {
        unsigned capacity = thread->context_capacity ? 2 * thread->context_capacity : 8;
        uint64_t *more = realloc(thread->contexts, capacity * sizeof *more);
        if (!more)
            return false;
        thread->contexts = more;
        thread->context_capacity = capacity;
    }
    thread->contexts[thread->context_count++] = context_id;
    return true;
}

void flyt_thread_forked(void)
{
    pthread_mutex_init(&threads.mutex, NULL);
    threads.first = flyt_thread_self;
    if (threads.first)
        threads.first->next = threads.first->previous = NULL;
}
