#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "control/node/test/fake_server.h"
#include "rpc/base/fault_point.h"

/* How a line comes from the other node: 1; 0: the connection has ended. Who has started this process may go meanwhile,
 * and it with him. */
static int read_line(int link_fd, int fd, char *line, size_t bytes)
{
    size_t used = 0;

    while (used < bytes - 1) {
        struct pollfd polls[] = {{.fd = fd, .events = POLLIN}, {.fd = link_fd, .events = POLLRDHUP}};
        poll(polls, 2, -1);
        if (polls[1].revents)
            _exit(0);
        ssize_t got = recv(fd, line + used, 1, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN)
            continue;
        if (got <= 0)
            return 0;
        if (line[used] == '\n')
            break;
        used++;
    }
    line[used] = 0;
    return 1;
}

/* Each connection for contents brings its own number, as a digit. */
static bool are_in_order(int link_fd, const int *fds, unsigned stream_count)
{
    char line[12], number[12];
    bool is_good = true;

    for (unsigned i = 1; i <= stream_count && is_good; i++) {
        snprintf(number, sizeof number, "%u", i);
        is_good = read_line(link_fd, fds[i], line, sizeof line) && !strcmp(line, number);
    }
    return is_good;
}

/* Whether it may go on: one that has no memory takes nothing any more, and acknowledges nothing. */
static bool make_one(struct fake *fake, uint64_t id, uint64_t bytes, uint64_t word)
{
    unsigned index = (unsigned)id % FAKE_EXTENTS_MAX;

    fake->message.extent =
        (struct flyt_manager_link_extent){.extent_id = id, .bytes = bytes, .address = 0x200000000000 + (id << 32)};
    if (flyt_fault_point("fake.receive_make") == FLYT_FAULT_ERROR) {
        fake->message.kind = FLYT_MANAGER_LINK_MADE;
        fake->message.data_bytes = 0;
        fake->message.made.outcome = -ENOMEM; /* its extent is there already: it begins as the message's */
        fake_put(fake);
        return true;
    }
    fake_target_make(fake);
    if (fake->extents[index].fd)
        fake_write_word(fake->extents[index].fd, word);
    return fake->extents[index].fd;
}

static void forget_one(struct fake *fake, uint64_t id)
{
    unsigned index = (unsigned)id % FAKE_EXTENTS_MAX;

    close(fake->extents[index].fd);
    fake->extents[index].fd = 0;
    fake->message.kind = FLYT_MANAGER_LINK_EXTENT_GONE;
    fake->message.data_bytes = 0;
    fake->message.extent = (struct flyt_manager_link_extent){.extent_id = id};
    fake_put(fake);
}

/*
 * The other node's server is a test: "make ID BYTES WORD", "gone ID", "keys" (answered with a line), "end SEQUENCE"
 * (answered likewise). 0, or what PREPARED is to say.
 */
static int obey_node(struct fake *fake, const int *fds, const struct flyt_manager_link_streams *streams)
{
    char line[128], word[8];
    uint64_t a, b, c;

    for (;;) {
        if (!read_line(fake->link_fd, fds[0], line, sizeof line))
            return -EPIPE;
        a = b = c = 0;
        *word = 0;
        sscanf(line, "%7s %" SCNu64 " %" SCNu64 " %" SCNu64, word, &a, &b, &c);
        if (!strcmp(word, "make") && !make_one(fake, a, b, c))
            return -ENOMEM;
        else if (!strcmp(word, "make"))
            continue;
        else if (!strcmp(word, "gone"))
            forget_one(fake, a);
        else if (!strcmp(word, "keys"))
            fake_say_keys(fds[0], streams);
        else
            break;
    }
    if (strcmp(word, "end") != 0 || !are_in_order(fake->link_fd, fds, streams->stream_count))
        return -EBADMSG;
    fake->taken.sequence = fake->sequence = a;
    fake->taken.library_count = fake->library_count;
    fake->taken.has_state = true;
    return 0;
}

void fake_receive(struct fake *fake, const int *fds, unsigned fd_count)
{
    const struct flyt_manager_link_receive from = fake->message.receive;
    const char *sentence = NULL;

    int outcome = obey_node(fake, fds, &from.streams);
    if (outcome)
        sentence = outcome == -EPIPE    ? "the other node has gone"
                   : outcome == -ENOMEM ? "there is no memory"
                                        : "that is no image";
    else if (flyt_fault_point("fake.state") == FLYT_FAULT_ERROR)
        outcome = -EXDEV;
    if (outcome == -EXDEV)
        sentence = "a variable has come to be elsewhere";
    if (!outcome && send(fds[0], "0\n", 2, MSG_NOSIGNAL) != 2)
        _exit(1);
    fake->message.kind = FLYT_MANAGER_LINK_PREPARED;
    fake->received.move_id = outcome ? 0 : from.move_id;
    fake->received.awaited = from.awaited;
    fake->message.prepared = (struct flyt_manager_link_prepared){
        .move_id = from.move_id, .outcome = outcome, .sequence = outcome ? 0 : fake->sequence};
    fake->message.prepared.has_stopped = !outcome;
    fake->message.prepared.error_count = 3;
    flyt_manager_link_say(&fake->message, sentence);
    fake_put(fake);
    for (unsigned i = 0; i < fd_count; i++)
        close(fds[i]);
}

/* ---- after a restart ---- */

static bool connect_again(struct fake *fake)
{
    for (unsigned i = 0; i < 6000; i++) {
        fake->link_fd = flyt_manager_link_connect(fake->session.rejoin_path);
        if (fake->link_fd >= 0)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return false;
}

static void say_rejoin(struct fake *fake)
{
    struct flyt_manager_link_rejoin *rejoin = &fake->message.rejoin;
    const struct flyt_manager_link_awaited *awaited = &fake->received.awaited;

    fake->message.kind = FLYT_MANAGER_LINK_REJOIN;
    fake->message.data_bytes = 0;
    *rejoin = (struct flyt_manager_link_rejoin){.version = FLYT_MANAGER_LINK_VERSION,
                                                .client_pid = awaited->client_pid,
                                                .started_ms = awaited->started_ms,
                                                .extent_count = fake_count_extents(fake),
                                                .received_move_id = fake->received.move_id,
                                                .session = fake->session};
    rejoin->session.ledger_count = 0;
    memcpy(rejoin->session.token, awaited->token, sizeof awaited->token);
    memcpy(rejoin->session.rejoin_secret, awaited->rejoin_secret, sizeof awaited->rejoin_secret);
    strcpy(rejoin->program, awaited->program);
    strcpy(rejoin->client_address, awaited->client_address);
    fake_put(fake);
}

static void say_received(struct fake *fake, bool with_extents)
{
    for (unsigned i = 0; with_extents && i < FAKE_EXTENTS_MAX; i++) {
        if (!fake->extents[i].fd)
            continue;
        fake->message.kind = FLYT_MANAGER_LINK_MADE;
        fake->message.data_bytes = 0;
        fake->message.made = (struct flyt_manager_link_made){.extent = fake->extents[i].extent};
        flyt_manager_link_send(fake->link_fd, &fake->message, &fake->extents[i].fd, 1);
    }
    if (flyt_fault_point("fake.return") == FLYT_FAULT_ERROR)
        _exit(1);
    fake->message.kind = FLYT_MANAGER_LINK_PREPARED;
    fake->message.data_bytes = 0;
    fake->message.prepared = (struct flyt_manager_link_prepared){
        .move_id = fake->received.move_id, .sequence = fake->sequence, .has_stopped = 1, .error_count = 3};
    fake_put(fake);
}

bool fake_receive_return(struct fake *fake)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned count = 0;

    if (!fake->received.move_id || flyt_fault_point("fake.outlive") == FLYT_FAULT_ERROR)
        return false;
    for (;;) {
        close(fake->link_fd);
        if (!connect_again(fake))
            return false;
        say_rejoin(fake);
        if (flyt_manager_link_receive(fake->link_fd, &fake->message, fds, &count))
            continue; /* that one has gone, too */
        if (fake->message.kind != FLYT_MANAGER_LINK_WELCOME)
            return false;
        say_received(fake, fake->message.welcome.send_extents);
        return true;
    }
}
