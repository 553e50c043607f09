#include "cpu/client/core/visible.h"

#include <stdlib.h>
#include <string.h>
#include "rpc/base/log.h"

static unsigned all_of(const char *text, unsigned count)
{
    flyt_warn("CUDA_VISIBLE_DEVICES=%.100s is not followed: numbers from 0 on, in their order, are; all %u devices are "
              "visible",
              text, count);
    return count;
}

unsigned flyt_visible_devices(const char *text, unsigned count)
{
    if (!text)
        return count;
    unsigned visible = 0;
    for (const char *at = text;; at++) {
        char *end;
        long number = strtol(at, &end, 10);
        if (!strncmp(at, "GPU-", 4) || !strncmp(at, "MIG-", 4))
            return all_of(text, count);
        if (end == at || number < 0 || number >= (long)count)
            return visible; /* no device: the list ends here */
        if (number != (long)visible)
            return number < (long)visible ? 0
                                          : all_of(text, count); /* one that is named twice makes the list invalid */
        visible++;
        at = end;
        if (*at != ',')
            return visible;
    }
}
