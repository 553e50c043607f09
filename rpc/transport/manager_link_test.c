/* Tests of the messages between a node manager and its server processes: what is sent arrives, and nothing bad does. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/descriptors.h"
#include "rpc/transport/manager_link.h"

enum { MAX = FLYT_MANAGER_LINK_DESCRIPTORS_MAX };

struct ends {
    int fds[2];
    struct flyt_manager_link_message sent, got;
    int got_fds[MAX];
    unsigned got_count;
};

static int set_up(void **state)
{
    struct ends *ends = calloc(1, sizeof *ends);

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends->fds), 0);
    *state = ends;
    return 0;
}

static int tear_down(void **state)
{
    struct ends *ends = *state;

    flyt_close(ends->fds[0]);
    flyt_close(ends->fds[1]);
    free(ends);
    return 0;
}

static void fill(void *part, size_t bytes)
{
    unsigned char *at = part;

    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(i * 37 + 11);
}

static int receive(struct ends *ends)
{
    return flyt_manager_link_receive(ends->fds[1], &ends->got, ends->got_fds, &ends->got_count);
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_session_with_all_its_descriptors(void **state)
{
    struct ends *ends = *state;
    struct flyt_manager_link_session *session = &ends->sent.session;
    int fds[MAX];
    struct stat one, other;

    fill(session, sizeof *session);
    ends->sent.kind = FLYT_MANAGER_LINK_SESSION;
    session->is_encrypted = 1;
    session->slot_count = session->ledger_count = FLYT_SLOTS_MAX;
    strcpy(session->rejoin_path, "/run/flyt/link.sock");
    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++)
        session->slots[i].device_index = i;
    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++)
        session->slots[i].flags = FLYT_MANAGER_LINK_HAS_TIME_SLICES;
    ends->sent.data_bytes = FLYT_MANAGER_LINK_DATA_BYTES_MAX;
    fill(ends->sent.data, ends->sent.data_bytes);
    for (unsigned i = 0; i < MAX; i++)
        fds[i] = memfd_create("x", MFD_CLOEXEC);
    assert_int_equal(flyt_manager_link_send(ends->fds[0], &ends->sent, fds, MAX), 0);
    assert_int_equal(receive(ends), 0);
    assert_int_equal(ends->got.kind, FLYT_MANAGER_LINK_SESSION);
    assert_memory_equal(&ends->got.session, session, sizeof *session);
    assert_int_equal(ends->got.data_bytes, FLYT_MANAGER_LINK_DATA_BYTES_MAX);
    assert_memory_equal(ends->got.data, ends->sent.data, ends->sent.data_bytes);
    assert_int_equal(ends->got.data[FLYT_MANAGER_LINK_DATA_BYTES_MAX], 0);
    assert_int_equal(ends->got_count, MAX);
    for (unsigned i = 0; i < MAX; i++) {
        assert_int_equal(fstat(fds[i], &one) | fstat(ends->got_fds[i], &other), 0);
        assert_int_equal(one.st_ino, other.st_ino); /* in their order */
        assert_true(fcntl(ends->got_fds[i], F_GETFD) & FD_CLOEXEC);
        close(fds[i]);
        close(ends->got_fds[i]);
    }
}

/* A good message of this kind, otherwise all zero. Whether a descriptor comes with it. */
static bool make_good(struct flyt_manager_link_message *message, uint32_t kind)
{
    memset(message, 0, sizeof *message);
    message->kind = kind;
    flyt_manager_link_say(message, "why it is so");
    switch (kind) {
    case FLYT_MANAGER_LINK_MOVE:
        message->move = (struct flyt_manager_link_move){
            .move_id = 1, .kind = FLYT_MANAGER_LINK_MOVE_WRITE, .rounds_max = FLYT_MANAGER_LINK_ROUNDS_MAX};
        return true;
    case FLYT_MANAGER_LINK_STOP:
    case FLYT_MANAGER_LINK_GO_ON:
    case FLYT_MANAGER_LINK_LEAVE:
    case FLYT_MANAGER_LINK_LEFT:
    case FLYT_MANAGER_LINK_LAST:
    case FLYT_MANAGER_LINK_LOCKS_WANTED:
        message->stop.move_id = 1;
        return false;
    case FLYT_MANAGER_LINK_LOCKS:
        message->locks = (struct flyt_manager_link_locks){.move_id = 1, .piece_count = 2, .has_memory = 1};
        message->data_bytes = 2 * sizeof(struct flyt_manager_link_piece);
        memset(message->data, 1, message->data_bytes);
        return true;
    case FLYT_MANAGER_LINK_LOCKS_DONE:
        message->locks_done.move_id = 1;
        return false;
    case FLYT_MANAGER_LINK_TAKE_BACK:
    case FLYT_MANAGER_LINK_STATE:
    case FLYT_MANAGER_LINK_TRY:
        message->stop.move_id = 1;
        return true;
    case FLYT_MANAGER_LINK_MOVE_STATE:
        message->move_state.move_id = 1;
        message->move_state.phase = FLYT_MANAGER_LINK_MOVE_DRAINED;
        return false;
    case FLYT_MANAGER_LINK_STOPPED:
        message->stopped.move_id = 1;
        message->stopped.has_state = 1;
        message->stopped.extent_count = FLYT_MANAGER_LINK_EXTENTS_MAX;
        return true;
    case FLYT_MANAGER_LINK_RESUME:
        message->resume.is_made = 1;
        message->resume.has_record = 1;
        return false;
    case FLYT_MANAGER_LINK_RECEIVE:
        message->receive.move_id = 1;
        return true;
    case FLYT_MANAGER_LINK_COREDUMPS:
        message->coredumps.bytes_max = 1;
        return true;
    case FLYT_MANAGER_LINK_COREDUMP:
        message->coredump.state = FLYT_MANAGER_LINK_COREDUMP_CUT;
        return false;
    case FLYT_MANAGER_LINK_SESSION:
    case FLYT_MANAGER_LINK_DATA:
    case FLYT_MANAGER_LINK_EXTENT:
    case FLYT_MANAGER_LINK_GIVE:
    case FLYT_MANAGER_LINK_FOLDER:
    case FLYT_MANAGER_LINK_MIRROR:
    case FLYT_MANAGER_LINK_MADE:
    case FLYT_MANAGER_LINK_RECORD:
    case FLYT_MANAGER_LINK_VM_MEMORY:
    case FLYT_MANAGER_LINK_EVENT_EXPORT:
    case FLYT_MANAGER_LINK_LOCKED_LEDGER:
        return true;
    default:
        return false;
    }
}

static void send_and_compare(struct ends *ends, bool has_fd)
{
    int fd = has_fd ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    uint32_t kind = ends->sent.kind;
    const int fds[] = {fd, fd};
    const unsigned count = kind == FLYT_MANAGER_LINK_VM_MEMORY ? FLYT_MANAGER_LINK_VM_MEMORY_FDS : has_fd;

    memset(&ends->got, 0xee, sizeof ends->got);
    int status = flyt_manager_link_send(ends->fds[0], &ends->sent, fds, count);
    if (status || receive(ends))
        fail_msg("kind %u: does not arrive", kind);
    assert_int_equal(ends->got.kind, kind);
    assert_string_equal((char *)ends->got.data, (char *)ends->sent.data);
    assert_int_equal(ends->got_count, count);
    /* The union's first bytes are every part's; what is behind a part is zero in both. */
    assert_memory_equal(&ends->got.ready, &ends->sent.ready, sizeof ends->sent.ready);
    for (unsigned i = 0; i < count; i++)
        close(ends->got_fds[i]);
    flyt_close(fd);
}

static void test_every_kind_arrives(void **state)
{
    struct ends *ends = *state;

    for (uint32_t kind = 1; kind < FLYT_MANAGER_LINK_KINDS; kind++) {
        bool has_fd = make_good(&ends->sent, kind);
        send_and_compare(ends, has_fd);
    }
    /* Whether a descriptor comes depends on what some of them say. */
    make_good(&ends->sent, FLYT_MANAGER_LINK_MOVE);
    ends->sent.move.kind = FLYT_MANAGER_LINK_MOVE_MIRROR;
    send_and_compare(ends, false);
    make_good(&ends->sent, FLYT_MANAGER_LINK_STOPPED);
    ends->sent.stopped.outcome = -ETIMEDOUT;
    ends->sent.stopped.has_state = 0;
    send_and_compare(ends, false);
    make_good(&ends->sent, FLYT_MANAGER_LINK_MADE);
    ends->sent.made.outcome = -ENOMEM;
    send_and_compare(ends, false);
    make_good(&ends->sent, FLYT_MANAGER_LINK_LIBRARY);
    ends->sent.library.has_ended = 1;
    flyt_manager_link_say(&ends->sent, NULL);
    send_and_compare(ends, false);
}

/* Neither side takes it: what is_good says of it holds for both. */
static void is_bad(struct ends *ends, bool has_fd, const char *what)
{
    unsigned char raw[8192] = {0};
    const uint32_t part_bytes = 2048; /* a newer sender's: of every kind that is tried here */
    int fd = ends->fds[0];
    unsigned before = open_descriptors();

    if (flyt_manager_link_send(ends->fds[0], &ends->sent, &fd, has_fd) != -EINVAL)
        fail_msg("sent: %s", what);
    memcpy(raw, (uint32_t[4]){ends->sent.kind, part_bytes, ends->sent.data_bytes, 0}, 16);
    memcpy(raw + 16, &ends->sent.ready, part_bytes);
    memcpy(raw + 16 + part_bytes, ends->sent.data, ends->sent.data_bytes);
    assert_int_equal(flyt_descriptors_send(ends->fds[0], raw, 16 + part_bytes + ends->sent.data_bytes, &fd, has_fd), 0);
    if (receive(ends) != -EBADMSG)
        fail_msg("received: %s", what);
    assert_int_equal(open_descriptors(), before);
}

static void test_bad_messages_of_a_move(void **state)
{
    struct ends *ends = *state;
    struct flyt_manager_link_message *sent = &ends->sent;
    static const uint32_t without_id[] = {FLYT_MANAGER_LINK_STOP, FLYT_MANAGER_LINK_GO_ON,     FLYT_MANAGER_LINK_LEAVE,
                                          FLYT_MANAGER_LINK_LEFT, FLYT_MANAGER_LINK_TAKE_BACK, FLYT_MANAGER_LINK_STATE,
                                          FLYT_MANAGER_LINK_TRY,  FLYT_MANAGER_LINK_LAST};
    static const uint32_t with_slot[] = {FLYT_MANAGER_LINK_MIRROR, FLYT_MANAGER_LINK_MAKE, FLYT_MANAGER_LINK_UNMAKE};
    bool has_fd;

#define BAD(kind, change)                                                                                              \
    do {                                                                                                               \
        has_fd = make_good(sent, FLYT_MANAGER_LINK_##kind);                                                            \
        change;                                                                                                        \
        is_bad(ends, has_fd, #kind ": " #change);                                                                      \
    } while (0)

    BAD(MOVE, sent->move.move_id = 0);
    BAD(MOVE, (sent->move.kind = 0, has_fd = false));
    BAD(MOVE, (sent->move.kind = FLYT_MANAGER_LINK_MOVE_WRITE + 1, has_fd = false));
    BAD(MOVE, sent->move.rounds_max = 0);
    BAD(MOVE, sent->move.rounds_max = FLYT_MANAGER_LINK_ROUNDS_MAX + 1);
    BAD(MOVE, sent->move.slowdown_pct = 101);
    BAD(MOVE, has_fd = false);
    BAD(LOCKS_WANTED, sent->stop.move_id = 0);
    BAD(LOCKS_DONE, sent->locks_done.move_id = 0);
    BAD(LOCKS, sent->locks.move_id = 0);
    BAD(LOCKS, sent->locks.piece_count = 1);
    BAD(LOCKS, sent->data_bytes -= 1);
    BAD(LOCKS, sent->locks.piece_count = FLYT_MANAGER_LINK_PIECES_MAX + 1);
    BAD(LOCKS, sent->locks.is_gone = 2);
    BAD(LOCKS, (sent->locks.has_memory = 2));
    BAD(LOCKS, has_fd = false);
    BAD(RESUME, sent->resume.is_made = 2);
    BAD(RESUME, (sent->resume = (struct flyt_manager_link_resume){.is_ahead = 2}));
    BAD(RESUME, (sent->resume = (struct flyt_manager_link_resume){.is_ahead = 1, .is_made = 1}));
    BAD(RESUME, (sent->resume = (struct flyt_manager_link_resume){.is_ahead = 1, .has_record = 1}));
    BAD(RESUME, (sent->resume = (struct flyt_manager_link_resume){.is_held = 2}));
    BAD(RESUME, sent->resume.extent_count = FLYT_MANAGER_LINK_EXTENTS_MAX + 1);
    BAD(TAKE_BACK, flyt_manager_link_say(sent, NULL));
    BAD(TAKE_BACK, has_fd = false);
    BAD(STATE, has_fd = false);
    BAD(TRY, has_fd = false);
    BAD(MIRROR, has_fd = false);
    BAD(MOVE_STATE, sent->move_state.move_id = 0);
    BAD(MOVE_STATE, sent->move_state.phase = 0);
    BAD(MOVE_STATE, sent->move_state.phase = FLYT_MANAGER_LINK_MOVE_DRAINED + 1);
    BAD(STOPPED, sent->stopped.move_id = 0);
    BAD(STOPPED, sent->stopped.outcome = -EIO);
    BAD(STOPPED, (sent->stopped.has_state = 0, has_fd = false));
    BAD(STOPPED, sent->stopped.extent_count = FLYT_MANAGER_LINK_EXTENTS_MAX + 1);
    BAD(STOPPED, has_fd = false);
    BAD(LIBRARY, sent->library.has_ended = 2);
    BAD(LIBRARY, flyt_manager_link_say(sent, NULL));
    BAD(PREPARE, sent->session.slot_count = FLYT_SLOTS_MAX + 1);
    BAD(PREPARE, (sent->session.slot_count = 2, sent->session.ledger_count = 1));
    BAD(PREPARE, has_fd = true);
    BAD(MADE, sent->made.extent.slot = FLYT_SLOTS_MAX);
    BAD(MADE, sent->made.outcome = -ENOMEM);
    BAD(MADE, has_fd = false);
    BAD(PREPARED, has_fd = true);
#undef BAD
    for (size_t i = 0; i < sizeof without_id / sizeof without_id[0]; i++) {
        has_fd = make_good(sent, without_id[i]);
        sent->stop.move_id = 0;
        is_bad(ends, has_fd, "one without a move");
    }
    for (size_t i = 0; i < sizeof with_slot / sizeof with_slot[0]; i++) {
        has_fd = make_good(sent, with_slot[i]);
        sent->extent.slot = FLYT_SLOTS_MAX;
        is_bad(ends, has_fd, "one of no slot");
    }
}

static void test_nothing_bad_is_sent(void **state)
{
    struct ends *ends = *state;
    int fd = ends->fds[0];

    ends->sent.kind = FLYT_MANAGER_LINK_KINDS;
    assert_int_equal(flyt_manager_link_send(fd, &ends->sent, NULL, 0), -EINVAL);
    ends->sent.kind = FLYT_MANAGER_LINK_EXTENT; /* without its descriptor */
    assert_int_equal(flyt_manager_link_send(fd, &ends->sent, NULL, 0), -EINVAL);
    assert_int_equal(flyt_manager_link_send(fd, &ends->sent, &fd, 1), 0);
    assert_int_equal(receive(ends), 0);
    close(ends->got_fds[0]);
    ends->sent.extent.slot = FLYT_SLOTS_MAX;
    assert_int_equal(flyt_manager_link_send(fd, &ends->sent, &fd, 1), -EINVAL);
    ends->sent.kind = FLYT_MANAGER_LINK_SM_DONE;
    ends->sent.sm_done.slot = 0;
    ends->sent.sm_done.state = 3;
    assert_int_equal(flyt_manager_link_send(fd, &ends->sent, NULL, 0), -EINVAL);
}

/* The raw form: head of kind, part's length, data's length, reserved; then both. */
static void send_raw(struct ends *ends, uint32_t kind, uint32_t part_bytes, uint32_t data_bytes, size_t bytes,
                     const void *part, const int *fds, unsigned fd_count)
{
    unsigned char raw[20000] = {0};

    memcpy(raw, (uint32_t[4]){kind, part_bytes, data_bytes, 0}, 16);
    if (part)
        memcpy(raw + 16, part, part_bytes);
    assert_int_equal(flyt_descriptors_send(ends->fds[0], raw, bytes, fds, fd_count), 0);
}

static void test_nothing_bad_is_received(void **state)
{
    struct ends *ends = *state;
    struct flyt_manager_link_session session = {.slot_count = 1, .ledger_count = 1};
    struct flyt_manager_link_ready ready = {.group_count = FLYT_GROUPS_MAX + 1};
    int fds[] = {ends->fds[0], ends->fds[0], ends->fds[0]};
    unsigned before = open_descriptors();

    send_raw(ends, 0, 0, 0, 16, NULL, NULL, 0);
    assert_int_equal(receive(ends), -EBADMSG);
    send_raw(ends, FLYT_MANAGER_LINK_KINDS, 0, 0, 16, NULL, fds, 1);
    assert_int_equal(receive(ends), -EBADMSG);
    send_raw(ends, FLYT_MANAGER_LINK_RETURN, 0, 0, 7, NULL, NULL, 0); /* shorter than a head */
    assert_int_equal(receive(ends), -EBADMSG);
    send_raw(ends, FLYT_MANAGER_LINK_RETURN, 0, 5, 16, NULL, NULL, 0); /* shorter than it says */
    assert_int_equal(receive(ends), -EBADMSG);
    send_raw(ends, FLYT_MANAGER_LINK_RETURN, 0, 0, 17, NULL, NULL, 0); /* longer */
    assert_int_equal(receive(ends), -EBADMSG);
    send_raw(ends, FLYT_MANAGER_LINK_RETURN, 0xfffffff0, 0, 16, NULL, NULL, 0);
    assert_int_equal(receive(ends), -EBADMSG);
    send_raw(ends, FLYT_MANAGER_LINK_RETURN, 0, 0xffffffff, 16, NULL, NULL, 0);
    assert_int_equal(receive(ends), -EBADMSG);
    send_raw(ends, FLYT_MANAGER_LINK_RETURN, 0, 0, 16, NULL, fds, 3); /* descriptors that it has not */
    assert_int_equal(receive(ends), -EBADMSG);
    send_raw(ends, FLYT_MANAGER_LINK_SESSION, sizeof session, 4, 16 + sizeof session + 4, &session, fds, 3);
    assert_int_equal(receive(ends), -EBADMSG);
    session.slot_count = FLYT_SLOTS_MAX + 1;
    session.ledger_count = 0;
    send_raw(ends, FLYT_MANAGER_LINK_SESSION, sizeof session, 4, 16 + sizeof session + 4, &session, fds, 1);
    assert_int_equal(receive(ends), -EBADMSG);
    session.slot_count = 2;
    session.ledger_count = 1;
    send_raw(ends, FLYT_MANAGER_LINK_SESSION, sizeof session, 4, 16 + sizeof session + 4, &session, fds, 2);
    assert_int_equal(receive(ends), -EBADMSG);
    session.ledger_count = 0;
    memset(session.rejoin_path, 'x', sizeof session.rejoin_path);
    send_raw(ends, FLYT_MANAGER_LINK_SESSION, sizeof session, 4, 16 + sizeof session + 4, &session, fds, 1);
    assert_int_equal(receive(ends), -EBADMSG);
    send_raw(ends, FLYT_MANAGER_LINK_READY, sizeof ready, 0, 16 + sizeof ready, &ready, NULL, 0);
    assert_int_equal(receive(ends), -EBADMSG);
    assert_int_equal(open_descriptors(), before); /* what came with them was closed */
    assert_int_equal(receive(ends), -EAGAIN);
    ends->fds[0] = flyt_close(ends->fds[0]);
    assert_int_equal(receive(ends), -EPIPE);
}

/* One that goes without reading what it was sent has been heard all the same. */
static void test_last_words(void **state)
{
    struct ends *ends = *state;

    make_good(&ends->sent, FLYT_MANAGER_LINK_KILL);
    assert_int_equal(flyt_manager_link_send(ends->fds[1], &ends->sent, NULL, 0), 0);
    make_good(&ends->sent, FLYT_MANAGER_LINK_RETURN);
    assert_int_equal(flyt_manager_link_send(ends->fds[0], &ends->sent, NULL, 0), 0);
    ends->fds[0] = flyt_close(ends->fds[0]);
    assert_int_equal(receive(ends), 0);
    assert_int_equal(ends->got.kind, FLYT_MANAGER_LINK_RETURN);
    assert_int_equal(receive(ends), -EPIPE);
}

/* A server that was started by an older or a newer build. */
static void test_parts_grow(void **state)
{
    struct ends *ends = *state;
    unsigned char part[sizeof(struct flyt_manager_link_use) + 100];
    struct flyt_manager_link_use use = {.call_count = 5, .memory_bytes = 6, .gpu_time_us = 7};
    const struct flyt_manager_link_ready ready = {.device_count = 3, .takes = FLYT_MANAGER_LINK_TAKES_COREDUMPS};

    memset(part, 0xee, sizeof part);
    memcpy(part, &use, sizeof use);
    send_raw(ends, FLYT_MANAGER_LINK_USE, sizeof part, 0, 16 + sizeof part, part, NULL, 0);
    assert_int_equal(receive(ends), 0);
    assert_memory_equal(&ends->got.use, &use, sizeof use);
    send_raw(ends, FLYT_MANAGER_LINK_USE, 16, 0, 32, part, NULL, 0);
    assert_int_equal(receive(ends), 0);
    assert_int_equal(ends->got.use.memory_bytes, 6);
    assert_int_equal(ends->got.use.gpu_time_us, 0);
    /* READY as it was before `takes`. */
    send_raw(ends, FLYT_MANAGER_LINK_READY, offsetof(struct flyt_manager_link_ready, takes), 0,
             16 + offsetof(struct flyt_manager_link_ready, takes), &ready, NULL, 0);
    assert_int_equal(receive(ends), 0);
    assert_int_equal(ends->got.ready.device_count, 3);
    assert_int_equal(ends->got.ready.takes, 0);
}

static void test_path(void **state)
{
    char path[100], longest[200];
    struct stat info;

    snprintf(path, sizeof path, "/tmp/flyt-link-test-%d", (int)getpid());
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(flyt_manager_link_connect(longest), -ENAMETOOLONG);
    assert_int_equal(flyt_manager_link_connect(path), -ENOENT);
    int listen_fd = flyt_manager_link_listen(path);
    assert_true(listen_fd >= 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(flyt_manager_link_listen(path), -EADDRINUSE);
    int fd = flyt_manager_link_connect(path);
    assert_true(fd >= 0);
    close(fd);
    close(listen_fd); /* as a manager that was killed leaves it */
    assert_int_equal(flyt_manager_link_connect(path), -ECONNREFUSED);
    listen_fd = flyt_manager_link_listen(path);
    assert_true(listen_fd >= 0);
    close(listen_fd);
    unlink(path);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* somebody's file stays */
    close(fd);
    assert_int_equal(flyt_manager_link_listen(path), -EADDRINUSE);
    assert_int_equal(stat(path, &info), 0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_session_with_all_its_descriptors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_kind_arrives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_messages_of_a_move, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_bad_is_sent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_bad_is_received, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_last_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parts_grow, set_up, tear_down),
        cmocka_unit_test(test_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
