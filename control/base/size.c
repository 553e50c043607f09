#include "control/base/size.h"

#include <stdio.h>

const char *flyt_size_text(uint64_t bytes, char *text)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    double value = (double)bytes;

    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    /* Two figures behind the point where they say something. */
    snprintf(text, FLYT_SIZE_TEXT_BYTES, value == (double)(uint64_t)value ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text;
}
