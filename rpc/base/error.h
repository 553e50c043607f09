/*
 * An error that a person will read: a code and one sentence that names the object, the cause and, where that is known,
 * what to do. Used where the outcome leaves the program (configuration, command lines, connecting); inside, a negative
 * errno does.
 */
#ifndef FLYT_BASE_ERROR_H
#define FLYT_BASE_ERROR_H

struct flyt_error {
    int code;       /* negative errno, 0: no error */
    char text[512]; /* one sentence without a final newline */
};

/* Fills *err (NULL is allowed: then only the code is returned) and returns code. */
int flyt_error_set(struct flyt_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
