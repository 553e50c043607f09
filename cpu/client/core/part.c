#include "cpu/client/core/part.h"

struct flyt_parts flyt_parts;

void flyt_parts_install(const struct flyt_part *parts, unsigned count, const struct flyt_channel_handlers *handlers)
{
    flyt_parts = (struct flyt_parts){.list = parts, .count = count, .handlers = handlers};
}
