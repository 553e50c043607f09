/* Many small loops on one thread: an epoll of ours over the descriptors of theirs. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tests/bench/load/load.h"

enum { EVENTS_AT_ONCE = 64, TURNS_MAX = 4 * LOAD_SHARD_PEERS };

struct load_shard *load_shard_of(struct load *load, unsigned peer)
{
    return &load->shards[1 + peer / LOAD_SHARD_PEERS];
}

void load_shard_touch(struct load *load, struct load_shard *shard)
{
    if (shard->is_touched)
        return;
    shard->is_touched = true;
    shard->next_touched = load->touched;
    load->touched = shard;
}

int load_shards_init(struct load *load, unsigned peer_count)
{
    unsigned count = 1 + (peer_count + LOAD_SHARD_PEERS - 1) / LOAD_SHARD_PEERS;

    load->shards = calloc(count, sizeof *load->shards);
    if (!load->shards)
        return -ENOMEM;
    for (; load->shard_count < count; load->shard_count++) {
        struct load_shard *shard = &load->shards[load->shard_count];
        int status = sd_event_new(&shard->event);
        if (status < 0)
            return status;
        load_shard_touch(load, shard); /* timers of a loop are set when it runs */
    }
    load->event = load->shards[0].event;
    return 0;
}

void load_shards_fini(struct load *load)
{
    for (unsigned i = 0; i < load->shard_count; i++)
        sd_event_unref(load->shards[i].event);
    free(load->shards);
}

/* Does what there is to do in one, within a bound: the others get their turn. 0 or a negative errno. */
static int run(struct load *load, struct load_shard *shard)
{
    int status = 1;

    for (unsigned i = 0; i < TURNS_MAX && status > 0; i++)
        status = sd_event_run(shard->event, 0);
    if (status > 0)
        load_shard_touch(load, shard);
    return status < 0 ? status : 0;
}

static int run_touched(struct load *load)
{
    struct load_shard *shard = load->touched, *next;
    int status = 0;

    load->touched = NULL;
    for (; shard && !status; shard = next) {
        next = shard->next_touched;
        shard->is_touched = false;
        status = run(load, shard);
    }
    return status;
}

int load_shards_run(struct load *load)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    int fd = epoll_create1(EPOLL_CLOEXEC), status = fd < 0 ? -errno : 0;

    for (unsigned i = 0; i < load->shard_count && !status; i++) {
        events[0] = (struct epoll_event){.events = EPOLLIN, .data.ptr = &load->shards[i]};
        if (epoll_ctl(fd, EPOLL_CTL_ADD, sd_event_get_fd(load->shards[i].event), &events[0]))
            status = -errno;
    }
    while (!status && !load->is_ending) {
        int count = epoll_wait(fd, events, EVENTS_AT_ONCE, load->touched ? 0 : -1);
        if (count < 0 && errno != EINTR)
            status = -errno;
        for (int i = 0; i < count; i++)
            load_shard_touch(load, events[i].data.ptr);
        if (!status)
            status = run_touched(load);
    }
    if (fd >= 0)
        close(fd);
    return status;
}
