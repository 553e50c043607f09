/* Device printf: text is kept until a call that synchronises, and written to the process's standard output then. What
 * failed assertions say goes to standard error at once. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/softgpu/driver/driver.h"

enum { PRINT_ROOM_FIRST = 4096 };

/* Writes everything, or as much as the descriptor takes: there is nobody to tell of a failure. */
static void write_all(int fd, const char *text, size_t text_bytes)
{
    while (text_bytes) {
        ssize_t n = write(fd, text, text_bytes);

        if (n > 0) {
            text += n;
            text_bytes -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd out = {.fd = fd, .events = POLLOUT};

            poll(&out, 1, -1);
        } else if (errno != EINTR) {
            return;
        }
    }
}

void flyt_soft_print_flush(struct flyt_soft_device *device)
{
    struct flyt_soft_print *print = &device->print;
    size_t text_bytes;
    char *text;

    pthread_mutex_lock(&print->write_mutex);
    pthread_mutex_lock(&print->mutex);
    text = print->text;
    text_bytes = print->text_bytes;
    print->text = NULL;
    print->text_bytes = 0;
    print->room_bytes = 0;
    pthread_mutex_unlock(&print->mutex);
    if (text_bytes) {
        /* What the process itself has printed before comes first. */
        fflush(stdout);
        write_all(STDOUT_FILENO, text, text_bytes);
    }
    free(text);
    pthread_mutex_unlock(&print->write_mutex);
}

void flyt_soft_print_add(struct flyt_soft_device *device, const char *text, size_t text_bytes)
{
    struct flyt_soft_print *print = &device->print;
    bool is_full;

    pthread_mutex_lock(&print->mutex);
    if (print->text_bytes + text_bytes > print->room_bytes) {
        size_t room = print->room_bytes ? print->room_bytes : PRINT_ROOM_FIRST;
        char *grown;

        while (room < print->text_bytes + text_bytes)
            room *= 2;
        grown = realloc(print->text, room);
        if (grown) {
            print->text = grown;
            print->room_bytes = room;
        }
    }
    /* Out of memory: the text is lost, as text is that does not fit a GPU's buffer. */
    if (print->text_bytes + text_bytes <= print->room_bytes) {
        memcpy(print->text + print->text_bytes, text, text_bytes);
        print->text_bytes += text_bytes;
    }
    is_full = print->text_bytes > device->limits[CU_LIMIT_PRINTF_FIFO_SIZE];
    pthread_mutex_unlock(&print->mutex);
    if (is_full)
        flyt_soft_print_flush(device);
}

void flyt_soft_print_error(const char *text, size_t text_bytes)
{
    write_all(STDERR_FILENO, text, text_bytes);
}
