/* What is told to a program of the tests on its standard input, a line at a time. Belongs to the loop's thread. */
#ifndef FLYT_TESTS_INPUT_LINES_H
#define FLYT_TESTS_INPUT_LINES_H

#include <stdbool.h>
#include <stddef.h>

enum { INPUT_LINE_BYTES = 4096 };

struct input_lines {
    char text[INPUT_LINE_BYTES];
    size_t bytes;
    bool has_ended; /* end of input, or a line that is too long */
};

/* Reads once what there is, without waiting where fd is readable. */
void input_lines_read(struct input_lines *lines, int fd);
/* There is no room: reading is of use when a line has been taken. */
bool input_lines_is_full(const struct input_lines *lines);
/* Takes the next line into `line` (INPUT_LINE_BYTES), without its end. False: no whole line is there. */
bool input_lines_next(struct input_lines *lines, char *line);

#endif
