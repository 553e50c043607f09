#include "control/node/host/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

bool flyt_node_is_own_variable(const char *variable)
{
    static const char *const own[] = {"NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_PID=", "LISTEN_FDS", "FDSTORE="};
    bool is_own = false;

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        is_own |= !strncmp(variable, own[i], strlen(own[i]));
    return is_own;
}

uint64_t flyt_node_wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

uint64_t flyt_node_random(void)
{
    uint64_t number = 0;

    /* Never less than asked for, up to 256 bytes (getrandom(2)). */
    while (!number)
        if (getrandom(&number, sizeof number, 0) < 0 && errno != EINTR)
            abort();
    return number;
}

void flyt_node_clean_name(const char *from, char *ret_name, size_t bytes)
{
    size_t used = 0;

    for (; from[used] && used < bytes - 1; used++)
        ret_name[used] = from[used] > ' ' && from[used] < 0x7f ? from[used] : '_';
    ret_name[used] = 0;
    if (!used)
        snprintf(ret_name, bytes, "?");
}
