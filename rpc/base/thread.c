#include "rpc/base/thread.h"

#include <pthread.h>
#include <signal.h>

int flyt_thread_start(const char *name, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of the thread's own doing: where it is blocked there is no handler, but the end */
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits it */
    int status = pthread_create(&thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status)
        return -status;
    /* It may have ended: there is something to name until it is detached. */
    pthread_setname_np(thread, name);
    pthread_detach(thread);
    return 0;
}
