/*
 * One line on stderr (or where flyt_log_set_fd says) per event: lower case, subject first, key=value with units, the
 * cause last. The function that decides what an error means logs it, once. Safe from any thread.
 *
 * The level comes from FLYT_LOG (error, warn, info, debug, trace), read once by flyt_log_init: programs
 * default to info, client libraries to warn. With FLYT_LOG_CLOCK=1 lines begin with CLOCK_MONOTONIC in seconds, the
 * same in all processes of a machine.
 */
#ifndef FLYT_BASE_LOG_H
#define FLYT_BASE_LOG_H

#include <stdbool.h>

enum flyt_log_level { FLYT_LOG_ERROR, FLYT_LOG_WARN, FLYT_LOG_INFO, FLYT_LOG_DEBUG, FLYT_LOG_TRACE };

/* `program` goes before every line ("flyt-server: …") and must outlive the process's last line. FLYT_LOG overrides
 * default_level. May be called again. */
void flyt_log_init(const char *program, enum flyt_log_level default_level);
/* Lines go to this descriptor from now on (at first: 2), which the caller keeps open. */
void flyt_log_set_fd(int fd);
/* Puts "<N>" before each line, as the journal reads priorities from a stream (sd-daemon(3)). */
void flyt_log_set_priorities(bool is_on);
bool flyt_log_is_on(enum flyt_log_level level);
/* Writes one line with one write(2). `format` has no newline; errno is kept. */
void flyt_log(enum flyt_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define flyt_fail(...)  flyt_log(FLYT_LOG_ERROR, __VA_ARGS__)
#define flyt_warn(...)  flyt_log(FLYT_LOG_WARN, __VA_ARGS__)
#define flyt_info(...)  flyt_log(FLYT_LOG_INFO, __VA_ARGS__)
#define flyt_debug(...) (flyt_log_is_on(FLYT_LOG_DEBUG) ? flyt_log(FLYT_LOG_DEBUG, __VA_ARGS__) : (void)0)
#define flyt_trace(...) (flyt_log_is_on(FLYT_LOG_TRACE) ? flyt_log(FLYT_LOG_TRACE, __VA_ARGS__) : (void)0)

#endif
