#include "tests/system/programs/input_lines.h"

#include <string.h>
#include <unistd.h>

void input_lines_read(struct input_lines *lines, int fd)
{
    ssize_t bytes = read(fd, lines->text + lines->bytes, sizeof lines->text - 1 - lines->bytes);

    lines->has_ended = bytes <= 0;
    if (bytes > 0)
        lines->bytes += (size_t)bytes;
}

bool input_lines_is_full(const struct input_lines *lines)
{
    return lines->bytes == sizeof lines->text - 1;
}

bool input_lines_next(struct input_lines *lines, char *line)
{
    const char *end = memchr(lines->text, '\n', lines->bytes);

    if (!end)
        return false;
    size_t line_bytes = (size_t)(end - lines->text);
    memcpy(line, lines->text, line_bytes);
    line[line_bytes] = '\0';
    lines->bytes -= line_bytes + 1;
    memmove(lines->text, end + 1, lines->bytes);
    return true;
}
