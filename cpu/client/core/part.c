#include "cpu/client/core/part.h"

struct flyt_parts flyt_parts;

void flyt_parts_install(const struct flyt_part *parts, unsigned count, const struct flyt_channel_handlers *handlers)
{
    flyt_parts = (struct flyt_parts){.list = parts, .count = count, .handlers = handlers};
    for (unsigned i = 0; i < count; i++)
        if (parts[i].synchronized)
            flyt_parts.synchronized = parts[i].synchronized;
}
