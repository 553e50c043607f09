/*
 * Captures what the process writes to a standard stream, by whatever path (stdio or the descriptor itself):
 * what kernels print appears there when the program synchronizes. Not for several threads at once.
 */
#ifndef TESTS_APPS_CAPTURE_H
#define TESTS_APPS_CAPTURE_H

#include "check.h"

struct capture {
    FILE *stream; /* stdout or stderr */
    int saved_fd; /* where the stream went before */
    FILE *file;   /* where it goes meanwhile */
};

__attribute__((unused)) static void capture_begin(struct capture *c, FILE *stream)
{
    c->stream = stream;
    fflush(stream);
    c->saved_fd = dup(fileno(stream));
    c->file = tmpfile();
    EXPECT(c->saved_fd >= 0 && c->file, "capture: %m");
    EXPECT(dup2(fileno(c->file), fileno(stream)) >= 0, "dup2: %m");
}

/* Restores the stream and returns the captured text, at most bytes - 1 of it, as a string in text. */
__attribute__((unused)) static void capture_end(struct capture *c, char *text, size_t bytes)
{
    size_t count;

    fflush(c->stream);
    EXPECT(dup2(c->saved_fd, fileno(c->stream)) >= 0, "dup2: %m");
    close(c->saved_fd);
    rewind(c->file);
    count = fread(text, 1, bytes - 1, c->file);
    text[count] = 0;
    fclose(c->file);
}

/* How often `part`, which is not empty, is in `text`. */
__attribute__((unused)) static int count_of(const char *text, const char *part)
{
    int count = 0;

    while ((text = strstr(text, part))) {
        count++;
        text += strlen(part);
    }
    return count;
}

#endif
