#include "rpc/base/fault_point.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/base/log.h"

struct point {
    char name[FLYT_FAULT_NAME_BYTES_MAX + 1];
    enum flyt_fault_action action;
    unsigned long at; /* 0: each time */
    atomic_ulong passed;
};

/* Stored after the points are there (release), and read before they are (acquire). */
static atomic_uchar state;
enum { UNREAD, NOTHING, SOMETHING };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct point points[FLYT_FAULT_POINTS_MAX];
static unsigned point_count;

static bool parse_action(const char *text, size_t bytes, enum flyt_fault_action *ret_action)
{
    static const char *const names[] = {
        [FLYT_FAULT_ERROR] = "error", [FLYT_FAULT_KILL] = "kill", [FLYT_FAULT_HANG] = "hang"};

    for (unsigned i = FLYT_FAULT_ERROR; i <= FLYT_FAULT_HANG; i++)
        if (strlen(names[i]) == bytes && !memcmp(names[i], text, bytes)) {
            *ret_action = (enum flyt_fault_action)i;
            return true;
        }
    return false;
}

/* "NAME:ACTION[:N]" up to a comma or the end. Returns what is behind it; NULL: it is none. */
static const char *parse_point(const char *text, struct point *point)
{
    size_t name_bytes = strcspn(text, ":,");
    char *end;

    if (!name_bytes || name_bytes > FLYT_FAULT_NAME_BYTES_MAX || text[name_bytes] != ':')
        return NULL;
    memcpy(point->name, text, name_bytes);
    point->name[name_bytes] = 0;
    text += name_bytes + 1;
    size_t action_bytes = strcspn(text, ":,");
    if (!parse_action(text, action_bytes, &point->action))
        return NULL;
    text += action_bytes;
    point->at = 0;
    atomic_store_explicit(&point->passed, 0, memory_order_relaxed);
    if (*text == ':') {
        if (text[1] < '0' || text[1] > '9')
            return NULL;
        errno = 0;
        point->at = strtoul(text + 1, &end, 10);
        if (errno || !point->at)
            return NULL;
        text = end;
    }
    return *text == 0 || *text == ',' ? text : NULL;
}

int flyt_fault_set(const char *text)
{
    const char *at = text && *text ? text : NULL;

    point_count = 0;
    while (at) {
        at = point_count < FLYT_FAULT_POINTS_MAX ? parse_point(at, &points[point_count]) : NULL;
        if (!at) {
            point_count = 0;
            break;
        }
        point_count++;
        if (!*at)
            break;
        at++;
    }
    atomic_store_explicit(&state, point_count ? SOMETHING : NOTHING, memory_order_release);
    return text && *text && !point_count ? -EINVAL : 0;
}

static void read_variable(void)
{
    const char *text = secure_getenv(FLYT_FAULT_VARIABLE);

    /* A test may have set it before the first point was passed. */
    if (atomic_load_explicit(&state, memory_order_acquire) == UNREAD && flyt_fault_set(text))
        flyt_warn(FLYT_FAULT_VARIABLE " is no list of NAME:error|kill|hang[:N]: nothing is made to fail");
}

static enum flyt_fault_action act(struct point *point)
{
    if (point->action == FLYT_FAULT_ERROR)
        return FLYT_FAULT_ERROR;
    flyt_warn("at %s: made to %s by " FLYT_FAULT_VARIABLE, point->name,
              point->action == FLYT_FAULT_KILL ? "end" : "hang");
    if (point->action == FLYT_FAULT_KILL)
        kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

enum flyt_fault_action flyt_fault_point(const char *name)
{
    unsigned char now = atomic_load_explicit(&state, memory_order_acquire);

    if (__builtin_expect(now == NOTHING, 1))
        return FLYT_FAULT_NONE;
    pthread_once(&once, read_variable);
    if (atomic_load_explicit(&state, memory_order_acquire) == NOTHING)
        return FLYT_FAULT_NONE;
    for (unsigned i = 0; i < point_count; i++) {
        struct point *point = &points[i];
        if (strcmp(point->name, name) != 0)
            continue;
        unsigned long passed = atomic_fetch_add_explicit(&point->passed, 1, memory_order_relaxed) + 1;
        if (!point->at || point->at == passed)
            return act(point);
    }
    return FLYT_FAULT_NONE;
}
