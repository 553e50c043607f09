#include "cpu/client/core/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cpu/client/core/instance.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

void flyt_stats_report(void)
{
    char line[1024];
    const char *path = getenv("FLYT_STATS");
    if (!path || !*path)
        return;
    const char *device = atomic_load(&flyt_client.device_name);
    struct flyt_channel_counts counts = flyt_channel_counts(flyt_client.channel);
    int bytes =
        snprintf(line, sizeof line,
                 "program=%s device=\"%s\" calls=%llu replies=%llu sent_bytes=%llu received_bytes=%llu "
                 "launches=%llu page_answers=%llu wall_ms=%.3f\n",
                 program_invocation_short_name, device ? device : "", (unsigned long long)counts.calls,
                 (unsigned long long)counts.replies, (unsigned long long)counts.sent_bytes,
                 (unsigned long long)counts.received_bytes,
                 (unsigned long long)flyt_channel_call_count(flyt_client.channel, FLYT_KERNEL_LAUNCH),
                 (unsigned long long)counts.page_answers, (double)(flyt_clock_ns() - flyt_client.start_ns) / 1e6);
    if (bytes >= (int)sizeof line)
        bytes = sizeof line - 1;
    bool is_stderr = strcmp(path, "-") == 0;
    int fd = is_stderr ? STDERR_FILENO : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)bytes) != bytes)
        flyt_warn("statistics are not written path=%s: %m", path);
    if (fd >= 0 && !is_stderr)
        close(fd);
}
