/* What all files of the cluster manager use. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/cluster/model/text.h"

uint64_t flyt_wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int flyt_text_set(char **text, const char *value)
{
    char *copy = value ? strdup(value) : NULL;

    if (value && !copy)
        return -ENOMEM;
    free(*text);
    *text = copy;
    return 0;
}
