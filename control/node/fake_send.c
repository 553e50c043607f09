#include "control/node/fake_server.h"

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

void fake_send_begin(struct fake *fake, const int *fds, unsigned count)
{
    const struct flyt_server_link_streams *streams = &fake->message.move.streams;
    char text[40 + 2 * FLYT_TICKET_KEY_BYTES];

    for (unsigned i = 0; i < count; i++) {
        fake->sending.fds[i] = fds[i];
        int bytes = snprintf(text, sizeof text, "stream %u %s", i, streams->is_encrypted ? "" : "clear");
        for (unsigned j = 0; streams->is_encrypted && j < FLYT_TICKET_KEY_BYTES; j++)
            bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "%02x", streams->keys[i][j]);
        say(fake, i, text);
    }
    fake->sending.count = count;
}

void fake_send_forget(struct fake *fake)
{
    while (fake->sending.count)
        close(fake->sending.fds[--fake->sending.count]);
    fake->sending.is_awaiting = false;
    fake->sending.line_bytes = 0;
}

void fake_send_stop(struct fake *fake)
{
    char text[500];
    int bytes = snprintf(text, sizeof text, "image %" PRIu64, fake->sequence);

    for (unsigned i = 0; i < FAKE_EXTENTS_MAX && bytes < 400; i++)
        if (fake->extents[i].fd)
            bytes +=
                snprintf(text + bytes, sizeof text - (size_t)bytes, " %" PRIu64, fake_read_word(fake->extents[i].fd));
    fake->sending.is_awaiting = true;
    say(fake, 0, text);
}

/* It goes on here. */
static void fail(struct fake *fake, int outcome, const char *sentence)
{
    if (fake->sending.is_awaiting)
        fake_move_say_stopped(fake, outcome, sentence);
    else
        fake_move_say_phase(fake, FLYT_SERVER_LINK_MOVE_OVER, outcome, sentence);
    fake_move_end(fake);
}

void fake_send_hear(struct fake *fake)
{
    char *line = fake->sending.line;
    size_t room = sizeof fake->sending.line - 1 - fake->sending.line_bytes;
    ssize_t bytes = recv(fake->sending.fds[0], line + fake->sending.line_bytes, room, MSG_DONTWAIT);

    if (bytes < 0 && errno == EAGAIN)
        return;
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
    if (strcmp(line, "ok") != 0) {
        fail(fake, -EIO, line);
        return;
    }
    fake->sending.is_awaiting = false;
    fake_move_say_stopped(fake, 0, NULL);
}
