#include "control/node/test/fake_server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control/node/test/fake_image.h"
#include "rpc/base/fault_point.h"

void fake_move_say_phase(struct fake *fake, enum flyt_manager_link_move_phase phase, int outcome, const char *sentence)
{
    uint64_t count = fake_count_extents(fake);

    fake->message.kind = FLYT_MANAGER_LINK_MOVE_STATE;
    fake->message.move_state = (struct flyt_manager_link_move_state){
        .move_id = fake->move.id ? fake->move.id : fake->move.left_id,
        .phase = phase,
        .outcome = outcome,
        .round = phase >= FLYT_MANAGER_LINK_MOVE_READY ? 2 : 1,
        .page_bytes = 4096,
        .pages_count = count,
        .copied_bytes = fake->move.kind == FLYT_MANAGER_LINK_MOVE_MIRROR || fake->sending.count ? 2 * 4096 * count : 0};
    flyt_manager_link_say(&fake->message, sentence);
    fake_put(fake);
}

static bool is_mirrored(const struct fake *fake)
{
    for (unsigned i = 0; fake->move.kind == FLYT_MANAGER_LINK_MOVE_MIRROR && i < FAKE_EXTENTS_MAX; i++)
        if (fake->extents[i].fd && !fake->move.mirror_fds[i])
            return false;
    return true;
}

static void look_ready(struct fake *fake)
{
    if (fake->move.id && !fake->move.is_busy && is_mirrored(fake))
        fake_move_say_phase(fake, FLYT_MANAGER_LINK_MOVE_READY, 0, NULL);
}

static void say_library(struct fake *fake, uint64_t id)
{
    fake->message.kind = FLYT_MANAGER_LINK_LIBRARY;
    fake->message.library = (struct flyt_manager_link_library){.library_id = id};
    flyt_manager_link_say(&fake->message, "what is loaded");
    fake_put(fake);
}

static void on_locks_wanted(struct fake *fake)
{
    const struct flyt_manager_link_piece pieces[] = {{0, 4096}, {4096, 8192}, {1 << 20, 4096}};
    int fd = memfd_create("region", MFD_CLOEXEC);

    fake->message.kind = FLYT_MANAGER_LINK_LOCKS;
    fake->message.locks = (struct flyt_manager_link_locks){.move_id = fake->move.id, .piece_count = 3, .has_memory = 1};
    fake->message.data_bytes = sizeof pieces;
    memcpy(fake->message.data, pieces, sizeof pieces);
    flyt_manager_link_send(fake->link_fd, &fake->message, &fd, 1);
    close(fd);
    fake->message.locks = (struct flyt_manager_link_locks){.move_id = fake->move.id, .piece_count = 1, .is_gone = 1};
    fake->message.data_bytes = sizeof *pieces;
    fake_put(fake);
}

static void forget_copies(struct fake *fake)
{
    for (unsigned i = 0; i < FAKE_EXTENTS_MAX; i++) {
        if (fake->move.mirror_fds[i])
            close(fake->move.mirror_fds[i]);
        fake->move.mirror_fds[i] = 0;
    }
    if (fake->move.image_fd)
        close(fake->move.image_fd);
    if (fake->move.parent_fd)
        close(fake->move.parent_fd);
    fake->move.image_fd = fake->move.parent_fd = 0;
    fake_send_forget(fake);
}

static void on_move(struct fake *fake, const int *fds, unsigned count)
{
    const struct flyt_manager_link_move move = fake->message.move;

    fake->move.id = move.move_id;
    fake->move.kind = move.kind;
    forget_copies(fake);
    fake->move.pages_kept = 0;
    if (move.kind == FLYT_MANAGER_LINK_MOVE_SEND) {
        fake_send_begin(fake, fds, count);
    } else if (count) {
        fake->move.image_fd = fds[0];
        fake->move.parent_fd = count > 1 ? fds[1] : 0;
    }
    if (fake->move.is_refusing) {
        fake_move_say_phase(fake, FLYT_MANAGER_LINK_MOVE_REFUSED, -ENOTSUP, "a kernel of it allocates memory");
        fake_move_end(fake);
        return;
    }
    fake_move_say_phase(fake, FLYT_MANAGER_LINK_MOVE_BEGUN, 0, NULL);
    for (unsigned i = 0; i < fake->library_count; i++)
        say_library(fake, fake->libraries[i]);
    fake_move_say_phase(fake, FLYT_MANAGER_LINK_MOVE_COPYING, 0, NULL);
    if (move.kind != FLYT_MANAGER_LINK_MOVE_MIRROR || !fake_count_extents(fake))
        look_ready(fake);
}

static void on_mirror(struct fake *fake, int fd)
{
    unsigned index = (unsigned)fake->message.extent.extent_id % FAKE_EXTENTS_MAX;

    if (!fake->move.id || !fake->extents[index].fd || fake->move.mirror_fds[index]) {
        close(fd);
        return;
    }
    if (flyt_fault_point("fake.mirror") == FLYT_FAULT_ERROR) {
        close(fd);
        fake_move_say_phase(fake, FLYT_MANAGER_LINK_MOVE_OVER, -ENOLINK, "its GPU cannot reach that memory");
        fake_move_end(fake);
        return;
    }
    fake->move.mirror_fds[index] = fd;
    look_ready(fake);
}

uint64_t fake_read_word(int fd)
{
    uint64_t word = 0;

    return pread(fd, &word, sizeof word, 0) == (ssize_t)sizeof word ? word : 0;
}

void fake_write_word(int fd, uint64_t word)
{
    if (pwrite(fd, &word, sizeof word, 0) != (ssize_t)sizeof word)
        _exit(1);
}

void fake_move_say_stopped(struct fake *fake, int outcome, const char *sentence)
{
    const uint64_t state[] = {fake->sequence, fake->library_count};
    int fd = outcome ? -1 : memfd_create("state", MFD_CLOEXEC);

    if (fd >= 0 && pwrite(fd, state, sizeof state, 0) != (ssize_t)sizeof state)
        _exit(1);
    fake->message.kind = FLYT_MANAGER_LINK_STOPPED;
    fake->message.stopped = (struct flyt_manager_link_stopped){.move_id = fake->move.id,
                                                               .outcome = outcome,
                                                               .has_state = outcome == 0,
                                                               .sequence = fake->sequence,
                                                               .extent_count = fake_count_extents(fake),
                                                               .last_extent_id = fake->last_extent_id,
                                                               .pages_last = 1,
                                                               .pages_kept = fake->move.pages_kept};
    flyt_manager_link_say(&fake->message, sentence);
    flyt_manager_link_send(fake->link_fd, &fake->message, &fd, fd >= 0);
    if (fd >= 0)
        close(fd);
    if (!outcome && fake->move.lingers)
        fake_linger(fake);
}

/* By id, as addresses rise. */
static int write_image(struct fake *fake)
{
    static struct fake_image image;

    image.session_id = fake->session.session_id;
    image.sequence = fake->sequence;
    image.count = 0;
    for (unsigned i = 0; i < FAKE_EXTENTS_MAX; i++) {
        if (!fake->extents[i].fd)
            continue;
        image.extents[image.count].id = fake->extents[i].extent.extent_id;
        image.extents[image.count].bytes = fake->extents[i].extent.bytes;
        image.extents[image.count++].word = fake_read_word(fake->extents[i].fd);
    }
    return fake_image_write(fake->move.image_fd, &image, fake->move.parent_fd ? fake->move.parent_fd : -1,
                            &fake->move.pages_kept);
}

static void stop(struct fake *fake)
{
    if (fake->move.lingers == 1)
        fake_linger(fake);
    if (fake->move.restless_count) {
        fake->move.restless_count--;
        fake_move_say_stopped(fake, -ETIMEDOUT, "its program does not stop");
        return;
    }
    fake->move.is_frozen = true;
    for (unsigned i = 0; i < FAKE_EXTENTS_MAX; i++)
        if (fake->move.mirror_fds[i] && fake->extents[i].fd)
            fake_write_word(fake->move.mirror_fds[i], fake_read_word(fake->extents[i].fd));
    if (fake->sending.count) {
        fake_send_stop(fake);
        return;
    }
    int status = fake->move.kind == FLYT_MANAGER_LINK_MOVE_WRITE ? write_image(fake) : 0;
    if (!is_mirrored(fake))
        status = -EIO;
    fake_move_say_stopped(fake, status, status ? "not everything is written" : NULL);
}

static void on_stop(struct fake *fake)
{
    if (fake->message.stop.move_id != fake->move.id)
        return;
    fake->move.is_stop_due = fake->move.is_mute;
    if (!fake->move.is_mute)
        stop(fake);
}

static void on_go_on(struct fake *fake)
{
    if (fake->use.is_coming == FLYT_MANAGER_LINK_IS_WHOLE) {
        fake->use.is_coming = 0;
        fake_say_use(fake);
    } else if (fake->message.stop.move_id == fake->move.id) {
        fake_move_end(fake);
    }
}

void fake_move_end(struct fake *fake)
{
    fake->move.id = 0;
    fake->move.is_stop_due = false;
    fake->move.is_frozen = false;
    forget_copies(fake);
}

static void on_leave(struct fake *fake)
{
    if (fake->message.stop.move_id != fake->move.id || !fake->move.is_frozen)
        _exit(1);
    fake_answer(fake, fake->message.stop.timeout_us == FLYT_MANAGER_LINK_FOR_EVER ? "moved for ever" : "moved");
    close(fake->client_fd);
    fake->client_fd = -1;
    fake->move.left_id = fake->move.id;
    fake->move.id = 0;
    forget_copies(fake);
    fake->message.kind = FLYT_MANAGER_LINK_LEFT;
    fake->message.data_bytes = 0;
    fake->message.stop = (struct flyt_manager_link_stop){.move_id = fake->move.left_id};
    fake_put(fake);
}

static void on_take_back(struct fake *fake, int fd)
{
    if (fake->message.stop.move_id != fake->move.left_id)
        _exit(1);
    if (fake->client_fd >= 0)
        close(fake->client_fd);
    fake->client_fd = fd;
    fake->line_bytes = 0;
    fake->move.is_frozen = false;
    fake_answer_handshake(fake);
}

void fake_move_hear(struct fake *fake, const int *fds, unsigned count)
{
    int fd = count == 1 ? *fds : -1;

    switch (fake->message.kind) {
    case FLYT_MANAGER_LINK_MOVE:
        on_move(fake, fds, count);
        break;
    case FLYT_MANAGER_LINK_MIRROR:
        on_mirror(fake, fd);
        break;
    case FLYT_MANAGER_LINK_STOP:
        on_stop(fake);
        break;
    case FLYT_MANAGER_LINK_GO_ON:
        on_go_on(fake);
        break;
    case FLYT_MANAGER_LINK_LEAVE:
        on_leave(fake);
        break;
    case FLYT_MANAGER_LINK_TAKE_BACK:
        on_take_back(fake, fd);
        break;
    case FLYT_MANAGER_LINK_LOCKS_WANTED:
        on_locks_wanted(fake);
        break;
    default:
        break;
    }
}

/* ---- its client ---- */

bool fake_move_obey(struct fake *fake, const char *word, uint64_t a, uint64_t b)
{
    unsigned index = (unsigned)a % FAKE_EXTENTS_MAX;
    char text[64] = "no";

    if (!strcmp(word, "write")) {
        fake_write_word(fake->extents[index].fd, b);
        fake_answer(fake, "0");
    } else if (!strcmp(word, "read")) {
        fake_answer_number(fake, (int64_t)fake_read_word(fake->extents[index].fd));
    } else if (!strcmp(word, "library")) {
        fake->libraries[fake->library_count++ % FAKE_LIBRARIES_MAX] = a;
        if (fake->move.id)
            say_library(fake, a);
        fake_answer(fake, "0");
    } else if (!strcmp(word, "libraries")) {
        fake_answer_number(fake, fake->library_count);
    } else if (!strcmp(word, "locks")) {
        fake_answer_number(fake, fake->locked_count);
    } else if (!strcmp(word, "movable")) {
        fake->use.can_move = (uint32_t)a;
        fake_say_use(fake);
        fake_answer(fake, "0");
    } else if (!strcmp(word, "refusing") || !strcmp(word, "mute")) {
        fake->move.is_refusing = *word == 'r' && a;
        fake->move.is_mute = *word == 'm' && a;
        fake_answer(fake, "0");
        if (fake->move.is_stop_due && !fake->move.is_mute)
            stop(fake);
    } else if (!strcmp(word, "linger")) {
        if (!a)
            fake_linger(fake);
        fake->move.lingers = a;
        fake_answer(fake, "0");
    } else if (!strcmp(word, "restless")) {
        fake->move.restless_count = a;
        fake_answer(fake, "0");
    } else if (!strcmp(word, "busy")) {
        fake->move.is_busy = a;
        if (fake->move.id && a)
            fake_move_say_phase(fake, FLYT_MANAGER_LINK_MOVE_COPYING, 0, NULL);
        look_ready(fake);
        fake_answer(fake, "0");
    } else if (!strcmp(word, "state")) {
        if (fake->taken.has_state)
            snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64, fake->taken.sequence, fake->taken.library_count);
        fake_answer(fake, text);
    } else if (!strcmp(word, "whole")) { /* it goes on when it is told to, and only where it was told to wait */
        fake->use.is_coming = fake->resume.is_held ? FLYT_MANAGER_LINK_IS_WHOLE : 0;
        fake_say_use(fake);
        fake_answer(fake, fake->resume.is_held ? "held" : "goes on");
    } else if (!strcmp(word, "goes_on")) {
        fake_answer(fake, fake->use.is_coming ? "no" : "yes");
    } else if (!strcmp(word, "go_on")) {
        fake->use.is_coming = 0;
        fake_say_use(fake);
        if (fake->move.left_id)
            fake_move_say_phase(fake, FLYT_MANAGER_LINK_MOVE_OVER, 0, NULL);
        fake->move.left_id = 0;
        fake_answer(fake, "0");
    } else {
        return false;
    }
    return true;
}
