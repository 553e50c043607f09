#include "control/base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"

void flyt_loop_init(struct flyt_loop *loop)
{
    *loop = (struct flyt_loop){.schedule_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)};
}

void flyt_loop_fini(struct flyt_loop *loop)
{
    loop->schedule_fd = flyt_close(loop->schedule_fd);
}

int flyt_loop_tell(struct flyt_loop *loop, struct flyt_metrics *metrics, const char *daemon)
{
    static const double buckets[] = {0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 0};
    char turns[64], longest[64];

    snprintf(turns, sizeof turns, "flyt_%s_loop_turn_seconds", daemon);
    snprintf(longest, sizeof longest, "flyt_%s_loop_turn_max_seconds", daemon);
    loop->turns = flyt_metric_new(metrics, FLYT_HISTOGRAM, turns, "",
                                  "Turns of the event loop: CPU time and time blocked", buckets);
    loop->longest =
        flyt_metric_new(metrics, FLYT_GAUGE, longest, "", "The longest turn of the last minute or two", NULL);
    return loop->turns && loop->longest ? 0 : -ENOMEM;
}

void flyt_loop_note(struct flyt_loop *loop, uint64_t now_ms, uint64_t turn_ns)
{
    if (now_ms - loop->window_ms >= FLYT_LOOP_WINDOW_MS) {
        loop->longest_ns[1] = loop->longest_ns[0];
        loop->longest_ns[0] = 0;
        loop->window_ms = now_ms;
    }
    if (turn_ns > loop->longest_ns[0])
        loop->longest_ns[0] = turn_ns;
    if (!loop->turns)
        return;
    uint64_t longest_ns = loop->longest_ns[loop->longest_ns[1] > loop->longest_ns[0]];
    flyt_metric_observe(loop->turns, NULL, (double)turn_ns / 1e9);
    flyt_metric_set(loop->longest, NULL, (double)longest_ns / 1e9);
}

/* For how long the thread has waited for a CPU; 0: that is not told. */
static uint64_t delay_ns(const struct flyt_loop *loop)
{
    char text[128];
    uint64_t delay = 0;

    ssize_t bytes = loop->schedule_fd < 0 ? 0 : pread(loop->schedule_fd, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = 0;
    return sscanf(text, "%*u %" SCNu64, &delay) == 1 ? delay : 0;
}

static int dispatch(struct flyt_loop *loop, sd_event *event)
{
    uint64_t begin_ns = flyt_clock_ns(), begin_delay_ns = delay_ns(loop);

    int status = sd_event_dispatch(event);
    uint64_t end_ns = flyt_clock_ns(), waited_ns = delay_ns(loop) - begin_delay_ns, turn_ns = end_ns - begin_ns;
    flyt_loop_note(loop, end_ns / 1000000, turn_ns > waited_ns ? turn_ns - waited_ns : 0);
    return status;
}

int flyt_loop_run(struct flyt_loop *loop, sd_event *event)
{
    while (sd_event_get_state(event) != SD_EVENT_FINISHED) {
        int status = sd_event_prepare(event);
        if (status == 0)
            status = sd_event_wait(event, UINT64_MAX);
        if (status > 0)
            status = dispatch(loop, event);
        if (status < 0)
            return status;
    }
    int code = 0;
    int status = sd_event_get_exit_code(event, &code);
    return status < 0 ? status : code;
}

int flyt_loop_add_again(sd_event *event, sd_event_time_handler_t handler, void *user, sd_event_source **ret_source)
{
    sd_event_source *source;

    int status = sd_event_add_time_relative(event, &source, CLOCK_MONOTONIC, 0, 1, handler, user);
    if (status >= 0)
        status = sd_event_source_set_enabled(source, SD_EVENT_OFF);
    if (status < 0)
        return status;
    *ret_source = source;
    return 0;
}

int flyt_loop_again(sd_event_source *source)
{
    int status = sd_event_source_get_enabled(source, NULL);

    /* Setting its time again would put it behind what has come since, for ever. */
    if (status > 0)
        return 0;
    if (status == 0)
        status = sd_event_source_set_time_relative(source, 0);
    if (status >= 0)
        status = sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return status < 0 ? status : 0;
}
