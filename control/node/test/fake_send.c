#include "control/node/test/fake_server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void say(const struct fake *fake, unsigned stream, const char *text)
{
    char line[600];
    int bytes = snprintf(line, sizeof line, "%s\n", text);

    if (send(fake->sending.fds[stream], line, (size_t)bytes, MSG_NOSIGNAL) != bytes && errno != EPIPE &&
        errno != ECONNRESET)
        _exit(1);
}

void fake_say_keys(int fd, const struct flyt_manager_link_streams *streams)
{
    char text[64];
    int used = snprintf(text, sizeof text, "%u", streams->is_encrypted);

    for (unsigned i = 0; i <= streams->stream_count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %02x%02x", streams->keys[i][0],
                         streams->keys[i][FLYT_KEY_BYTES - 1]);
    text[used++] = '\n';
    if (send(fd, text, (size_t)used, MSG_NOSIGNAL) != used)
        _exit(1);
}

void fake_send_begin(struct fake *fake, const int *fds, unsigned count)
{
    char number[12];

    fake->sending.streams = fake->message.move.streams;
    for (unsigned i = 0; i < count; i++) {
        fake->sending.fds[i] = fds[i];
        snprintf(number, sizeof number, "%u", i);
        if (i)
            say(fake, i, number);
    }
    fake->sending.count = count;
}

void fake_send_forget(struct fake *fake)
{
    while (fake->sending.count)
        close(fake->sending.fds[--fake->sending.count]);
    fake->sending.is_awaiting = fake->sending.is_acknowledged = false;
    fake->sending.line_bytes = 0;
}

void fake_send_stop(struct fake *fake)
{
    char text[120];

    for (unsigned i = 0; i < FAKE_EXTENTS_MAX; i++) {
        if (!fake->extents[i].fd)
            continue;
        snprintf(text, sizeof text, "make %" PRIu64 " %" PRIu64 " %" PRIu64, fake->extents[i].extent.extent_id,
                 fake->extents[i].extent.bytes, fake_read_word(fake->extents[i].fd));
        say(fake, 0, text);
    }
    snprintf(text, sizeof text, "end %" PRIu64, fake->sequence);
    fake->sending.is_awaiting = true;
    say(fake, 0, text);
}

/* It goes on here. */
static void fail(struct fake *fake, int outcome, const char *sentence)
{
    if (fake->sending.is_awaiting)
        fake_move_say_stopped(fake, outcome, sentence);
    else
        fake_move_say_phase(fake, FLYT_MANAGER_LINK_MOVE_OVER, outcome, sentence);
    fake_move_end(fake);
}

void fake_send_hear(struct fake *fake)
{
    char *line = fake->sending.line;
    size_t room = sizeof fake->sending.line - 1 - fake->sending.line_bytes;
    ssize_t bytes = recv(fake->sending.fds[0], line + fake->sending.line_bytes, room, MSG_DONTWAIT);

    if (bytes < 0 && errno == EAGAIN)
        return;
    if (bytes <= 0 && fake->sending.is_acknowledged) { /* nothing is to come any more */
        fake_send_forget(fake);
        return;
    }
    if (bytes <= 0) {
        fail(fake, -EPIPE, "the connection to the other node has ended");
        return;
    }
    fake->sending.line_bytes += (size_t)bytes;
    line[fake->sending.line_bytes] = 0;
    char *end = strchr(line, '\n');
    if (!end)
        return;
    *end = 0;
    fake->sending.line_bytes = 0;
    if (!strcmp(line, "keys")) {
        fake_say_keys(fake->sending.fds[0], &fake->sending.streams);
        return;
    }
    if (strcmp(line, "0") != 0) {
        fail(fake, -EIO, line);
        return;
    }
    fake->sending.is_awaiting = false;
    fake->sending.is_acknowledged = true;
    fake_move_say_stopped(fake, 0, NULL);
}
