#include "control/base/lookup.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "rpc/base/descriptors.h"
#include "rpc/base/thread.h"

enum { PORT_TEXT_BYTES = 8 };

/* What thread and owner share; the last one frees it. */
struct flyt_lookup {
    _Atomic(int) ref_count;
    int done_fd; /* eventfd: readable once status and list are there */
    char host[FLYT_URL_HOST_BYTES_MAX + 1];
    char port[PORT_TEXT_BYTES];
    int status; /* of getaddrinfo(3) */
    int error;  /* errno, for EAI_SYSTEM */
    struct addrinfo *list;
};

struct flyt_lookup *flyt_lookup_free(struct flyt_lookup *lookup)
{
    if (!lookup || atomic_fetch_sub_explicit(&lookup->ref_count, 1, memory_order_acq_rel) > 1)
        return NULL;
    if (lookup->list)
        freeaddrinfo(lookup->list);
    flyt_close(lookup->done_fd);
    free(lookup);
    return NULL;
}

static void look_up(struct flyt_lookup *lookup, int flags)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};

    lookup->status = getaddrinfo(*lookup->host ? lookup->host : NULL, lookup->port, &hints, &lookup->list);
    lookup->error = errno;
}

static void *lookup_main(void *user)
{
    struct flyt_lookup *lookup = user;

    look_up(lookup, 0);
    eventfd_write(lookup->done_fd, 1);
    flyt_lookup_free(lookup);
    return NULL;
}

static int start_thread(struct flyt_lookup *lookup)
{
    atomic_fetch_add_explicit(&lookup->ref_count, 1, memory_order_relaxed);
    int status = flyt_thread_start("flyt-lookup", lookup_main, lookup);
    if (status)
        flyt_lookup_free(lookup);
    return status;
}

int flyt_lookup_new(const struct flyt_url *url, struct flyt_lookup **ret_lookup)
{
    struct flyt_lookup *lookup = calloc(1, sizeof *lookup);

    if (!lookup)
        return -ENOMEM;
    lookup->ref_count = 1;
    lookup->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lookup->done_fd < 0) {
        int status = -errno;
        free(lookup);
        return status;
    }
    memcpy(lookup->host, url->host, sizeof lookup->host);
    snprintf(lookup->port, sizeof lookup->port, "%u", url->port);
    look_up(lookup, *lookup->host ? AI_NUMERICHOST : 0);
    int status = 0;
    if (lookup->status == EAI_NONAME)
        status = start_thread(lookup);
    else
        eventfd_write(lookup->done_fd, 1);
    if (status)
        flyt_lookup_free(lookup);
    else
        *ret_lookup = lookup;
    return status;
}

int flyt_lookup_fd(const struct flyt_lookup *lookup)
{
    return lookup->done_fd;
}

int flyt_lookup_result(const struct flyt_lookup *lookup, const struct addrinfo **ret_list, struct flyt_error *err)
{
    struct pollfd done = {.fd = lookup->done_fd, .events = POLLIN};

    if (poll(&done, 1, 0) < 1)
        return -EAGAIN;
    if (lookup->status)
        return flyt_error_set(err, -EHOSTUNREACH, "cannot find the host '%s': %s", lookup->host,
                              lookup->status == EAI_SYSTEM ? strerror(lookup->error) : gai_strerror(lookup->status));
    *ret_list = lookup->list;
    return 0;
}
