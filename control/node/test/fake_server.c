/*
 * A server process without CUDA, for tests: speaks rpc/transport/manager_link.h, answers its client's handshake, and
 * then does what the client's lines say. Each is answered with one line, a number or text.
 *
 *   charge SLOT BYTES | release SLOT BYTES    of the ledger
 *   reserve SLOT BYTES                        of the ledger
 *   extent ID SLOT BYTES | drop ID SLOT BYTES memory that the manager holds too; drop waits for the credit
 *   extents COUNT SLOT BYTES                  so many, from id 1 on
 *   memory ID                                 "slot bytes address inode" of it, or "none"
 *   record BEGUN EXECUTED COMPLETED ERRORS    what it says of its calls from now on
 *   left                                      the same four, of the server before, that came with RESUME; "no"
 *   resumed                                   "extents last-id" that came with RESUME; "no"
 *   replaceable 0|1                           what USE says
 *   ending                                    USE says so from now on
 *   cache SLOT BYTES                          charged, and given back when a lower limit is wanted
 *   groups SLOT                               the groups as hexadecimal digits of its first four bytes
 *   limit SLOT                                the limit as it was last told
 *   sluggish 0|1                              1: new groups are switched to, but the old ones not vacated
 *   unchanging 0|1                            1: groups cannot be changed
 *   share SLOT                                "suspended" or "active", the priority, the token's number or 0
 *   silent 0|1                                1: SHARE is not answered; 0: now it is
 *   stubborn                                  a KILL is not heard
 *   write ID NUMBER | read ID                 the first word of that memory
 *   library ID | libraries                    one is loaded | how many are
 *   movable 0|1                               what USE says of it
 *   refusing 1                                MOVE is refused
 *   restless COUNT                            it does not stop at so many STOPs
 *   busy 0|1                                  1: it never has copied everything; 0: now it has
 *   mute 0|1                                  1: STOP is not answered; 0: now it is
 *   state                                     "sequence libraries" that came with STATE; "no"
 *   go_on                                     its client has made its objects again: answered when that is told
 *   export TOKEN ID | import TOKEN            that memory for others | of another session: what came of it, and of
 *                                             memory its bytes and first word
 *   unexport TOKEN                            memory or an event
 *   imported 0 | unimport 0                   what it was given last: tells it once more | lets go of it
 *   export_event TOKEN NUMBER | import_event TOKEN   a page with that first word
 *   die | quit                                by SIGKILL | after RETURN
 *   hang_up                                   its link ends, as that of a process that takes its time to end
 *   relink COUNT SLOT BYTES                   so many extents, from id 1 on, are the last that it tells; then it comes
 * back linger 0|1|2                              its program ends by itself: RETURN, what it sends to ends, and the
 * process stays until it is killed. Now | in place of an answer to STOP | with it
 *
 * One that is moved (MOVE) copies those first words into the other server's memory, and says "moved" as its last line.
 * With an image (MOVE_WRITE) it writes these into that, and as the server that is given one it makes the memory anew.
 * To another node (MOVE_SEND) it says what fake_receive.c is told there, when it is to stop; on its first connection
 * "0" is the answer, any other line says at any time why not, and "keys" is a question. As the other server it passes
 * the fault points fake.prepare, fake.make, fake.state, fake.try, fake.locks and fake.session, of which "error" is
 * answered with a failure (fake.session: it ends). Of three pieces that are locked where it is moved from, one is
 * unlocked at once: "locks" asks for the number that the other one has.
 */
#include "control/node/test/fake_server.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "control/node/test/fake_ready.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/ledger.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/manager_link.h"

void fake_put(struct fake *fake)
{
    if (flyt_manager_link_send(fake->link_fd, &fake->message, NULL, 0) && errno != EPIPE)
        fprintf(stderr, "fake server: nothing can be sent\n");
}

void fake_answer(struct fake *fake, const char *text)
{
    char line[600];
    int bytes = snprintf(line, sizeof line, "%s\n", text);

    if (send(fake->client_fd, line, (size_t)bytes, MSG_NOSIGNAL) != bytes)
        _exit(0);
}

void fake_answer_number(struct fake *fake, int64_t number)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64, number);
    fake_answer(fake, text);
}

/* ---- the manager's side ---- */

void fake_linger(struct fake *fake)
{
    fake->message.kind = FLYT_MANAGER_LINK_RETURN;
    flyt_manager_link_say(&fake->message, NULL);
    fake->message.returned = (struct flyt_manager_link_returned){0};
    fake_put(fake);
    fake_send_forget(fake);
    close(fake->client_fd);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that has failed */
    for (;;)
        pause();
}

static void end(struct fake *fake, const char *sentence)
{
    fake->message.kind = FLYT_MANAGER_LINK_RETURN;
    flyt_manager_link_say(&fake->message, sentence);
    fake_put(fake);
    _exit(0);
}

static void give_back_cache(struct fake *fake, unsigned slot)
{
    if (fake->cached[slot] && !flyt_ledger_release(fake->ledgers[slot], fake->session.server_id, fake->cached[slot]))
        fake->cached[slot] = 0;
}

static void on_limit(struct fake *fake)
{
    const struct flyt_manager_link_limit limit = fake->message.limit;

    fake->limits[limit.slot] = limit.memory_bytes;
    fake->session.slots[limit.slot].memory_bytes = limit.memory_bytes;
    give_back_cache(fake, limit.slot);
    fake->message.kind = FLYT_MANAGER_LINK_LIMIT_DONE;
    fake->message.limit_done = (struct flyt_manager_link_limit_done){
        limit.revision, flyt_ledger_used(fake->ledgers[limit.slot], fake->session.server_id), limit.slot, 0,
        limit.number};
    fake_put(fake);
}

static void on_groups(struct fake *fake)
{
    const struct flyt_manager_link_sm sm = fake->message.sm;

    fake->message.kind = FLYT_MANAGER_LINK_SM_DONE;
    /* A real one compares the number with what the driver gives for these groups. */
    if (fake->is_unchanging || !sm.sm_count) {
        int why = fake->is_unchanging ? -EOPNOTSUPP : -EINVAL;
        fake->message.sm_done = (struct flyt_manager_link_sm_done){sm.revision, sm.slot, why};
        fake_put(fake);
        return;
    }
    for (unsigned i = 0; i < sizeof sm.groups; i++)
        fake->holding[sm.slot][i] |= fake->session.slots[sm.slot].groups[i];
    memcpy(fake->session.slots[sm.slot].groups, sm.groups, sizeof sm.groups);
    fake->message.sm_done = (struct flyt_manager_link_sm_done){sm.revision, sm.slot, FLYT_MANAGER_LINK_SWITCHED};
    fake_put(fake);
    if (fake->is_sluggish)
        return;
    memset(fake->holding[sm.slot], 0, sizeof fake->holding[sm.slot]);
    fake->message.sm_done.state = FLYT_MANAGER_LINK_VACATED;
    fake_put(fake);
}

unsigned fake_count_extents(const struct fake *fake)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FAKE_EXTENTS_MAX; i++)
        count += fake->extents[i].fd != 0;
    return count;
}

static int send_extent(struct fake *fake, unsigned index);

static void on_welcome(struct fake *fake)
{
    const uint32_t sends_extents = fake->message.welcome.send_extents;

    if (fake->locked_ledger_fd) {
        fake->message.kind = FLYT_MANAGER_LINK_LOCKED_LEDGER;
        fake->message.data_bytes = 0;
        flyt_manager_link_send(fake->link_fd, &fake->message, &fake->locked_ledger_fd, 1);
    }
    if (!sends_extents)
        return;
    for (unsigned i = 0; i < FAKE_EXTENTS_MAX; i++)
        if (fake->extents[i].fd)
            send_extent(fake, i);
}

static void rejoin(struct fake *fake)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    struct flyt_manager_link_rejoin *rejoin = &fake->message.rejoin;

    /* Before it has left it goes on by itself. */
    fake_move_end(fake);
    close(fake->link_fd);
    fake->link_fd = -1;
    for (unsigned i = 0; i < 6000 && fake->link_fd < 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* the first time too, as flyt-server does */
        fake->link_fd = flyt_manager_link_connect(fake->session.rejoin_path);
    }
    if (fake->link_fd < 0)
        _exit(0);
    fake->message.kind = FLYT_MANAGER_LINK_REJOIN;
    fake->message.data_bytes = 0;
    *rejoin = (struct flyt_manager_link_rejoin){.version = FLYT_MANAGER_LINK_VERSION,
                                                .client_pid = 7,
                                                .extent_count = fake_count_extents(fake),
                                                .left_move_id = fake->move.left_id,
                                                .session = fake->session};
    memcpy(rejoin->holding, fake->holding, sizeof rejoin->holding);
    snprintf(rejoin->program, sizeof rejoin->program, "%s", fake->program);
    for (unsigned i = 0; i < fake->session.slot_count; i++)
        fds[fd_count++] = flyt_ledger_fd(fake->ledgers[i]);
    for (unsigned i = 0; i < fake->session.slot_count; i++)
        rejoin->session.slots[i].flags &= ~(uint32_t)FLYT_MANAGER_LINK_HAS_TIME_SLICES;
    flyt_manager_link_send(fake->link_fd, &fake->message, fds, fd_count);
}

void fake_say_use(struct fake *fake)
{
    fake->message.kind = FLYT_MANAGER_LINK_USE;
    fake->message.use = fake->use;
    flyt_manager_link_say(&fake->message, fake->use.is_replaceable ? NULL : "it has what cannot be kept");
    fake_put(fake);
}

static void answer_share(struct fake *fake)
{
    fake->message.kind = FLYT_MANAGER_LINK_SHARE_DONE;
    fake->message.data_bytes = 0;
    fake->message.share_done = (struct flyt_manager_link_share_done){fake->share.revision, fake->share.slot, 0};
    fake_put(fake);
}

/* Keeps the board of a place. */
static int take_board(const int *fds)
{
    for (unsigned i = 1; i < FLYT_TIME_SLICES_FDS; i++)
        close(fds[i]);
    return fds[0];
}

static void on_share(struct fake *fake, int fd)
{
    struct flyt_manager_link_slot *slot = &fake->session.slots[fake->message.share.slot];

    fake->share = fake->message.share;
    slot->priority = fake->share.priority;
    slot->flags &= ~(uint32_t)FLYT_MANAGER_LINK_IS_SUSPENDED;
    if (fake->share.is_suspended)
        slot->flags |= FLYT_MANAGER_LINK_IS_SUSPENDED;
    if (fd >= 0) {
        slot->flags |= FLYT_MANAGER_LINK_HAS_TIME_SLICES;
        close(fake->time_slice_fds[fake->share.slot]);
        fake->time_slice_fds[fake->share.slot] = fd;
    }
    if (!fake->is_silent)
        answer_share(fake);
}

static void say_share(struct fake *fake, unsigned slot)
{
    const struct flyt_manager_link_slot *from = &fake->session.slots[slot];
    struct stat info = {0};
    char text[80];

    if (fake->time_slice_fds[slot] >= 0)
        fstat(fake->time_slice_fds[slot], &info);
    snprintf(text, sizeof text, "%s %d %ju", from->flags & FLYT_MANAGER_LINK_IS_SUSPENDED ? "suspended" : "active",
             from->priority, (uintmax_t)info.st_ino);
    fake_answer(fake, text);
}

/* Hears one message. Returns its kind, 0 where the link had to be made anew. */
static uint32_t dispatch(struct fake *fake)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned count = 0;

    int status = flyt_manager_link_receive(fake->link_fd, &fake->message, fds, &count);
    if (status == -EPIPE) {
        rejoin(fake);
        return 0;
    }
    if (status)
        _exit(1);
    uint32_t kind = fake->message.kind;
    if (kind == FLYT_MANAGER_LINK_SHARE)
        on_share(fake, count ? take_board(fds) : -1);
    if (kind == FLYT_MANAGER_LINK_SHARE)
        count = 0;
    if (kind == FLYT_MANAGER_LINK_BROKERED) {
        fake_broker_hear(fake, count ? fds[0] : -1);
        count = 0;
    }
    if ((kind >= FLYT_MANAGER_LINK_MOVE && kind <= FLYT_MANAGER_LINK_TAKE_BACK) ||
        kind == FLYT_MANAGER_LINK_LOCKS_WANTED) {
        fake_move_hear(fake, fds, count);
        count = 0;
    }
    while (count)
        close(fds[--count]);
    if (kind == FLYT_MANAGER_LINK_LIMIT)
        on_limit(fake);
    if (kind == FLYT_MANAGER_LINK_SM)
        on_groups(fake);
    if (kind == FLYT_MANAGER_LINK_WELCOME)
        on_welcome(fake);
    if (kind == FLYT_MANAGER_LINK_GO)
        _exit(0);
    if (kind == FLYT_MANAGER_LINK_KILL && !fake->is_stubborn) {
        char text[500];
        snprintf(text, sizeof text, "killed: %.400s", (const char *)fake->message.data);
        fake_answer(fake, text);
        end(fake, "");
    }
    return kind;
}

/* ---- the client's side ---- */

static int send_extent(struct fake *fake, unsigned index)
{
    fake->message.kind = FLYT_MANAGER_LINK_EXTENT;
    fake->message.data_bytes = 0;
    fake->message.extent = fake->extents[index].extent;
    return flyt_manager_link_send(fake->link_fd, &fake->message, &fake->extents[index].fd, 1);
}

static int make_extent(struct fake *fake, uint64_t id, unsigned slot, uint64_t bytes)
{
    int status = flyt_ledger_charge(fake->ledgers[slot], fake->session.server_id, bytes);
    unsigned index = (unsigned)id % FAKE_EXTENTS_MAX;

    if (!status) {
        fake->extents[index].fd = memfd_create("extent", MFD_CLOEXEC);
        fake->last_extent_id = id > fake->last_extent_id ? id : fake->last_extent_id;
        fake->extents[index].extent = (struct flyt_manager_link_extent){
            .extent_id = id, .bytes = bytes, .address = 0x200000000000 + (id << 32), .slot = slot};
        status = send_extent(fake, index);
    }
    return status;
}

static int make_extents(struct fake *fake, uint64_t count, unsigned slot, uint64_t bytes)
{
    int status = 0;

    for (uint64_t id = 1; !status && id <= count; id++)
        status = make_extent(fake, id, slot, bytes);
    return status;
}

static void say_memory(struct fake *fake, uint64_t id)
{
    unsigned index = (unsigned)id % FAKE_EXTENTS_MAX;
    const struct flyt_manager_link_extent *extent = &fake->extents[index].extent;
    struct stat info = {0};
    char text[120];

    if (!fake->extents[index].fd || extent->extent_id != id || fstat(fake->extents[index].fd, &info)) {
        fake_answer(fake, "none");
        return;
    }
    snprintf(text, sizeof text, "%u %" PRIu64 " %" PRIx64 " %ju", extent->slot, extent->bytes, extent->address,
             (uintmax_t)info.st_ino);
    fake_answer(fake, text);
}

static void record(struct fake *fake, const char *line)
{
    uint64_t numbers[4] = {0};
    int fd = -1;

    sscanf(line, "record %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &numbers[0], &numbers[1], &numbers[2],
           &numbers[3]);
    if (!fake->record) {
        if (flyt_call_record_new(&fake->record, &fd))
            _exit(1);
        fake->message.kind = FLYT_MANAGER_LINK_RECORD;
        fake->message.data_bytes = 0;
        flyt_manager_link_send(fake->link_fd, &fake->message, &fd, 1);
        close(fd);
    }
    atomic_store(&fake->record->begun, numbers[0]);
    atomic_store(&fake->record->executed, numbers[1]);
    atomic_store(&fake->record->completed, numbers[2]);
    atomic_store(&fake->record->error_count, numbers[3]);
    fake_answer(fake, "0");
}

static void say_left(struct fake *fake)
{
    const struct flyt_manager_link_resume *resume = &fake->resume;
    char text[128] = "no";

    if (resume->has_record)
        snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, resume->begun, resume->executed,
                 resume->completed, resume->error_count);
    fake_answer(fake, text);
}

static void say_resumed(struct fake *fake)
{
    char text[64] = "no";

    if (fake->is_resumed)
        snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64, fake->resume.extent_count, fake->resume.last_extent_id);
    fake_answer(fake, text);
}

static void say_use(struct fake *fake, bool is_replaceable)
{
    fake->use.is_replaceable = is_replaceable;
    fake_say_use(fake);
    fake_answer(fake, "0");
}

static void drop_extent(struct fake *fake, uint64_t id)
{
    unsigned index = (unsigned)id % FAKE_EXTENTS_MAX;

    close(fake->extents[index].fd);
    fake->extents[index].fd = 0;
    if (fake->move.mirror_fds[index])
        close(fake->move.mirror_fds[index]);
    fake->move.mirror_fds[index] = 0;
    fake->message.kind = FLYT_MANAGER_LINK_EXTENT_GONE;
    fake->message.data_bytes = 0;
    fake->message.extent = (struct flyt_manager_link_extent){.extent_id = id};
    fake_put(fake);
    while (dispatch(fake) != FLYT_MANAGER_LINK_EXTENT_CREDITED)
        continue;
    fake_answer_number(fake, (int64_t)fake->message.extent.bytes);
}

static void obey(struct fake *fake, const char *line)
{
    uint64_t a = 0, b = 0, c = 0;
    char word[32] = "", text[64];

    sscanf(line, "%31s %" SCNu64 " %" SCNu64 " %" SCNu64, word, &a, &b, &c);
    struct flyt_ledger *ledger = fake->ledgers[a < FLYT_SLOTS_MAX ? a : 0];
    fake->sequence++;
    if (fake_move_obey(fake, word, a, b) || fake_broker_obey(fake, word, a, b))
        return;
    if (!strcmp(word, "charge")) {
        fake_answer_number(fake, flyt_ledger_charge(ledger, fake->session.server_id, b));
    } else if (!strcmp(word, "release")) {
        fake_answer_number(fake, flyt_ledger_release(ledger, fake->session.server_id, b));
    } else if (!strcmp(word, "reserve")) {
        fake_answer_number(fake, flyt_ledger_reserve(ledger, fake->session.server_id, b));
    } else if (!strcmp(word, "cache")) {
        int status = flyt_ledger_charge(ledger, fake->session.server_id, b);
        fake->cached[a] += status ? 0 : b;
        fake_answer_number(fake, status);
    } else if (!strcmp(word, "extent")) {
        fake_answer_number(fake, make_extent(fake, a, (unsigned)b, c));
    } else if (!strcmp(word, "extents")) {
        fake_answer_number(fake, make_extents(fake, a, (unsigned)b, c));
    } else if (!strcmp(word, "memory")) {
        say_memory(fake, a);
    } else if (!strcmp(word, "record")) {
        record(fake, line);
    } else if (!strcmp(word, "left")) {
        say_left(fake);
    } else if (!strcmp(word, "resumed")) {
        say_resumed(fake);
    } else if (!strcmp(word, "replaceable")) {
        say_use(fake, a);
    } else if (!strcmp(word, "ending")) {
        fake->use.is_ending = 1;
        fake_say_use(fake);
        fake_answer(fake, "0");
    } else if (!strcmp(word, "drop")) {
        drop_extent(fake, a);
    } else if (!strcmp(word, "groups")) {
        const unsigned char *groups = fake->session.slots[a].groups;
        snprintf(text, sizeof text, "%02x%02x%02x%02x", groups[3], groups[2], groups[1], groups[0]);
        fake_answer(fake, text);
    } else if (!strcmp(word, "limit")) {
        fake_answer_number(fake, (int64_t)fake->limits[a]);
    } else if (!strcmp(word, "sluggish") || !strcmp(word, "stubborn")) {
        fake->is_sluggish = *(word + 1) == 'l' && a;
        fake->is_stubborn |= *(word + 1) == 't';
        fake_answer(fake, "0");
    } else if (!strcmp(word, "share")) {
        say_share(fake, (unsigned)a);
    } else if (!strcmp(word, "silent")) {
        if (fake->is_silent && !a)
            answer_share(fake);
        fake->is_silent = a;
        fake_answer(fake, "0");
    } else if (!strcmp(word, "unchanging")) {
        fake->is_unchanging = a;
        fake_answer(fake, "0");
    } else if (!strcmp(word, "die")) {
        raise(SIGKILL);
    } else if (!strcmp(word, "hang_up")) {
        close(fake->link_fd);
        fake->link_fd = -1;
        fake_answer(fake, "0");
    } else if (!strcmp(word, "relink")) {
        int status = make_extents(fake, a, (unsigned)b, c);
        rejoin(fake);
        fake_answer_number(fake, status);
    } else if (!strcmp(word, "quit")) {
        end(fake, "");
    } else {
        fake_answer(fake, "what?");
    }
}

static void read_client(struct fake *fake)
{
    ssize_t bytes =
        recv(fake->client_fd, fake->line + fake->line_bytes, sizeof fake->line - 1 - fake->line_bytes, MSG_DONTWAIT);
    char *newline;

    if (bytes < 0 && errno == EAGAIN)
        return;
    if (bytes <= 0)
        end(fake, ""); /* its program has gone */
    fake->line_bytes += (size_t)bytes;
    fake->line[fake->line_bytes] = 0;
    while ((newline = strchr(fake->line, '\n'))) {
        *newline = 0;
        obey(fake, fake->line);
        memmove(fake->line, newline + 1, strlen(newline + 1) + 1);
        fake->line_bytes = strlen(fake->line);
    }
}

void fake_answer_handshake(struct fake *fake)
{
    flyt_handshake_args args = {0};
    flyt_handshake_res res = {.message = (char *)"", .build = (char *)"fake", .device_count = fake->session.slot_count};
    void *record;
    size_t bytes;
    uint32_t xid;

    if (flyt_handshake_decode(fake->message.data, fake->message.data_bytes, &xid, &args))
        _exit(1);
    snprintf(fake->program, sizeof fake->program, "%.200s", args.program_name);
    res.session_id = fake->session.session_id;
    res.token.token_val = (char *)fake->session.token;
    res.token.token_len = sizeof fake->session.token;
    if (flyt_handshake_encode_reply(xid, &res, &record, &bytes) ||
        send(fake->client_fd, record, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        _exit(1);
    free(record);
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
}

/* What a session that goes on has; then SESSION is there. */
static void take_extents(struct fake *fake)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned count = 0;

    fake->is_resumed = true;
    fake->resume = fake->message.resume;
    for (uint64_t i = 0; i < fake->resume.extent_count; i++) {
        if (flyt_manager_link_receive(fake->link_fd, &fake->message, fds, &count) ||
            fake->message.kind != FLYT_MANAGER_LINK_GIVE)
            _exit(1);
        unsigned index = (unsigned)fake->message.extent.extent_id % FAKE_EXTENTS_MAX;
        fake->extents[index].extent = fake->message.extent;
        fake->extents[index].fd = fds[0];
    }
    if (!fake->resume.is_ahead)
        return;
    if (flyt_manager_link_receive(fake->link_fd, &fake->message, fds, &count))
        _exit(0); /* nobody needs it: the session has ended */
    if (fake->message.kind != FLYT_MANAGER_LINK_RESUME || fake->message.resume.is_ahead ||
        fake->message.resume.extent_count != fake->resume.extent_count)
        _exit(1);
    fake->resume = fake->message.resume;
}

static void take_session(struct fake *fake)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned count = 0;
    bool is_prepared = false, is_received;

    do {
        count = 0;
        while (flyt_manager_link_receive(fake->link_fd, &fake->message, fds, &count))
            if (!fake_receive_return(fake))
                _exit(0); /* a warm server that nobody needs (any more) */
        is_prepared |= fake->message.kind == FLYT_MANAGER_LINK_PREPARE;
        is_received = fake->message.kind == FLYT_MANAGER_LINK_RECEIVE;
        if (is_received)
            fake_receive(fake, fds, count);
    } while (is_received || fake_target_prepare(fake, count ? fds[0] : -1));
    if (fake->message.kind == FLYT_MANAGER_LINK_RESUME && is_prepared) {
        fake->is_resumed = true;
        fake->resume = fake->message.resume;
        fake->last_extent_id = fake->resume.last_extent_id;
    } else if (fake->message.kind == FLYT_MANAGER_LINK_RESUME) {
        take_extents(fake);
    }
    if (fake->is_resumed && flyt_manager_link_receive(fake->link_fd, &fake->message, fds, &count))
        _exit(0);
    if (fake->message.kind != FLYT_MANAGER_LINK_SESSION ||
        (is_prepared && flyt_fault_point("fake.session") == FLYT_FAULT_ERROR))
        _exit(1);
    if (is_prepared)
        fake_target_compare(fake);
    fake->client_fd = fds[0];
    fake->session = fake->message.session;
    for (unsigned i = 0; i < fake->session.slot_count; i++) {
        if (flyt_ledger_open(fds[1 + i], &fake->ledgers[i]))
            _exit(1);
        close(fds[1 + i]);
        fake->limits[i] = fake->session.slots[i].memory_bytes;
    }
    for (unsigned i = 0, next = 1 + fake->session.slot_count; i < fake->session.slot_count; i++) {
        bool has_time_slices = fake->session.slots[i].flags & FLYT_MANAGER_LINK_HAS_TIME_SLICES;
        fake->time_slice_fds[i] = has_time_slices ? take_board(fds + next) : -1;
        next += has_time_slices ? FLYT_TIME_SLICES_FDS : 0;
    }
    fake_answer_handshake(fake);
    fake->use =
        (struct flyt_manager_link_use){.can_move = FLYT_MANAGER_LINK_CAN_MOVE_SEND, .is_coming = fake->is_resumed};
    fake_say_use(fake);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--library-versions"))
        return getenv("FLYT_FAKE_LIBRARIES_FAILURE") ? 1 : fputs(getenv("FLYT_FAKE_LIBRARIES") ?: "", stdout) < 0;
    struct fake *fake = calloc(1, sizeof *fake);
    unsigned gpu = 0, group_size = 8, sms = 132;
    uint64_t memory_kib = 4 << 20;
    const char *capabilities = "9.0";

    for (int i = 1; fake && i + 1 < argc; i++) {
        if (!strcmp(argv[i], "--gpu"))
            gpu = (unsigned)atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--group-size"))
            group_size = (unsigned)atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--soft-sms"))
            sms = (unsigned)atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--soft-memory"))
            memory_kib = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--soft-cc"))
            capabilities = argv[i + 1];
    }
    if (!fake)
        return 1;
    fake->link_fd = FLYT_MANAGER_LINK_FD;
    if (getenv("FLYT_FAKE_FAILURE")) {
        fake->message.kind = FLYT_MANAGER_LINK_FAILED;
        flyt_manager_link_say(&fake->message, getenv("FLYT_FAKE_FAILURE"));
        fake_put(fake);
        return 1;
    }
    fake->message.kind = FLYT_MANAGER_LINK_READY;
    fake_ready(&fake->message.ready, gpu, group_size, sms, memory_kib << 10, capabilities);
    fake_put(fake);
    take_session(fake);
    for (;;) {
        /* A program that stands still is not heard. */
        struct pollfd polls[] = {{.fd = fake->move.is_frozen ? -1 : fake->client_fd, .events = POLLIN},
                                 {.fd = fake->link_fd, .events = POLLIN},
                                 {.fd = fake->sending.count ? fake->sending.fds[0] : -1, .events = POLLIN}};
        poll(polls, 3, -1);
        /* One at a time: who reads the client may hear what there was. */
        if (polls[1].revents)
            dispatch(fake);
        else if (polls[2].revents)
            fake_send_hear(fake);
        else if (polls[0].revents)
            read_client(fake);
    }
}
