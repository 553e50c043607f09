#include "rpc/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/log_sink.h"

enum { LINE_BYTES_MAX = 2048 };

/* The one state of this module: who we are and how much is said. Written at start, read from every thread. */
static _Atomic(const char *) log_program = "flyt";
static atomic_int log_fd = STDERR_FILENO;
static _Atomic(int) log_level = FLYT_LOG_WARN;
static _Atomic(flyt_log_sink_fn) log_sink;
static atomic_bool log_has_priorities, log_has_clock;

void flyt_log_init(const char *program, enum flyt_log_level default_level)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    const char *wanted = getenv("FLYT_LOG");
    int level = (int)default_level;

    if (wanted) {
        for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
            if (!strcmp(wanted, names[i]))
                level = i;
        }
    }
    const char *has_clock = getenv("FLYT_LOG_CLOCK");
    atomic_store_explicit(&log_has_clock, has_clock && !strcmp(has_clock, "1"), memory_order_relaxed);
    atomic_store_explicit(&log_level, level, memory_order_relaxed);
    atomic_store_explicit(&log_program, program, memory_order_relaxed);
}

bool flyt_log_is_on(enum flyt_log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

static bool is_continuation(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

/* How many bytes of `text` continue the character that begins with `lead`, as far as they are there. */
static size_t continued(unsigned char lead, const char *text, size_t bytes)
{
    size_t more = lead >= 0xf0 && lead < 0xf8 ? 3 : lead >= 0xe0 && lead < 0xf0 ? 2 : lead >= 0xc2 && lead < 0xe0;
    size_t there = 0;

    while (there < more && there < bytes && is_continuation((unsigned char)text[there]))
        there++;
    return there;
}

/*
 * A log line stays one line, and commands no terminal, whatever a peer's sentence or a file name contains. A control
 * character is a byte below the space, DEL, or U+0080 to U+009F: in UTF-8, or as a byte of its own, which a terminal
 * that does not read UTF-8 takes for the same.
 */
static void flatten(char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char lead = (unsigned char)line[i];
        size_t more = continued(lead, line + i + 1, bytes - i - 1);
        bool is_c1 = lead == 0xc2 && more && (unsigned char)line[i + 1] < 0xa0;
        if (lead < ' ' || lead == 0x7f || is_continuation(lead) || is_c1)
            memset(line + i, ' ', 1 + more);
        i += more;
    }
}

void flyt_log_set_priorities(bool is_on)
{
    atomic_store_explicit(&log_has_priorities, is_on, memory_order_relaxed);
}

void flyt_log_set_sink(flyt_log_sink_fn sink)
{
    atomic_store(&log_sink, sink);
}

void flyt_log_set_fd(int fd)
{
    atomic_store_explicit(&log_fd, fd, memory_order_relaxed);
}

void flyt_log(enum flyt_log_level level, const char *format, ...)
{
    char line[LINE_BYTES_MAX];
    int saved_errno = errno;
    va_list values;

    if (!flyt_log_is_on(level))
        return;
    const char *program = atomic_load_explicit(&log_program, memory_order_relaxed);
    /* LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG of syslog(3) */
    static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>", "<7>"};
    bool has_priority = atomic_load_explicit(&log_has_priorities, memory_order_relaxed);
    char clock[32] = "";
    if (atomic_load_explicit(&log_has_clock, memory_order_relaxed)) {
        uint64_t now_us = flyt_clock_ns() / 1000;
        snprintf(clock, sizeof clock, "%" PRIu64 ".%06u ", now_us / 1000000, (unsigned)(now_us % 1000000));
    }
    int head = snprintf(line, sizeof line, "%s%s%s: ", has_priority ? priorities[level] : "", clock, program);
    if (head < 0 || (size_t)head >= sizeof line)
        head = 0;
    errno = saved_errno; /* for %m in the caller's format */
    va_start(values, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head, format, values);
    va_end(values);
    if (body >= 0) {
        size_t bytes = (size_t)head + (size_t)body;
        if (bytes > sizeof line - 1)
            bytes = sizeof line - 1;
        flatten(line, bytes);
        flyt_log_sink_fn sink = atomic_load(&log_sink);
        if (sink)
            sink(level, line + head, bytes - (size_t)head);
        line[bytes++] = '\n';
        int fd = atomic_load_explicit(&log_fd, memory_order_relaxed);
        /* One write, so that lines of several processes do not mix. If stderr takes nothing there is nobody to tell. */
        while (write(fd, line, bytes) < 0 && errno == EINTR)
            continue;
    }
    errno = saved_errno;
}
