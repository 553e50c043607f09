#include "rpc/transport/manager_link.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"

enum { LISTEN_BACKLOG = 1024 };

/* What precedes a message: how long its parts are, so that either may come from another build. */
struct head {
    uint32_t kind;
    uint32_t part_bytes;
    uint32_t data_bytes;
    uint32_t reserved;
};
_Static_assert(sizeof(struct head) == 16, "link layout");

enum { PART_BYTES_MAX = 16384 }; /* of a newer sender */

/* ---- what a message of each part may say ---- */

static bool is_good_ready(const struct flyt_manager_link_message *message)
{
    return message->ready.group_count <= FLYT_GROUPS_MAX && message->ready.device_count <= FLYT_GPUS_MAX &&
           memchr(message->ready.name, 0, sizeof message->ready.name);
}

static bool is_good_granted(const struct flyt_manager_link_session *session)
{
    if (session->slot_count > FLYT_SLOTS_MAX || session->is_encrypted > 1 ||
        (session->ledger_count && session->ledger_count != session->slot_count) ||
        !memchr(session->rejoin_path, 0, sizeof session->rejoin_path))
        return false;
    for (unsigned i = 0; i < session->slot_count; i++)
        if (session->slots[i].device_index >= FLYT_DEVICES_MAX)
            return false;
    return true;
}

static bool is_good_session(const struct flyt_manager_link_message *message)
{
    return is_good_granted(&message->session);
}

static bool is_good_rejoin(const struct flyt_manager_link_message *message)
{
    const struct flyt_manager_link_rejoin *rejoin = &message->rejoin;

    return is_good_granted(&rejoin->session) && memchr(rejoin->program, 0, sizeof rejoin->program) &&
           memchr(rejoin->client_address, 0, sizeof rejoin->client_address);
}

static bool is_good_extent(const struct flyt_manager_link_message *message)
{
    return message->extent.slot < FLYT_SLOTS_MAX;
}

static bool is_good_made(const struct flyt_manager_link_message *message)
{
    return message->made.extent.slot < FLYT_SLOTS_MAX;
}

static bool is_good_limit(const struct flyt_manager_link_message *message)
{
    return message->limit.slot < FLYT_SLOTS_MAX && message->limit.when_free <= 1;
}

static bool is_good_limit_done(const struct flyt_manager_link_message *message)
{
    return message->limit_done.slot < FLYT_SLOTS_MAX;
}

static bool is_good_need(const struct flyt_manager_link_message *message)
{
    return message->need.slot < FLYT_SLOTS_MAX;
}

static bool is_good_sm(const struct flyt_manager_link_message *message)
{
    return message->sm.slot < FLYT_SLOTS_MAX;
}

static bool is_good_sm_done(const struct flyt_manager_link_message *message)
{
    return message->sm_done.slot < FLYT_SLOTS_MAX && message->sm_done.state <= FLYT_MANAGER_LINK_VACATED;
}

static bool is_good_share(const struct flyt_manager_link_message *message)
{
    return message->share.slot < FLYT_SLOTS_MAX && message->share.is_suspended <= 1 &&
           message->share.has_time_slices <= 1;
}

static bool is_good_share_done(const struct flyt_manager_link_message *message)
{
    return message->share_done.slot < FLYT_SLOTS_MAX;
}

static bool is_good_resume(const struct flyt_manager_link_message *message)
{
    const struct flyt_manager_link_resume *resume = &message->resume;

    return resume->extent_count <= FLYT_MANAGER_LINK_EXTENTS_MAX && resume->is_made <= 1 && resume->has_record <= 1 &&
           resume->is_ahead <= 1 && resume->is_held <= 1 &&
           !(resume->is_ahead && (resume->is_made || resume->has_record));
}

static bool is_good_streams(const struct flyt_manager_link_streams *streams)
{
    return streams->stream_count <= FLYT_MIGRATION_STREAMS_MAX && streams->is_encrypted <= 1;
}

static bool is_good_move(const struct flyt_manager_link_message *message)
{
    const struct flyt_manager_link_move *move = &message->move;

    return move->move_id && move->kind >= FLYT_MANAGER_LINK_MOVE_GIVE && move->kind <= FLYT_MANAGER_LINK_MOVE_SEND &&
           is_good_streams(&move->streams) && move->rounds_max && move->rounds_max <= FLYT_MANAGER_LINK_ROUNDS_MAX &&
           move->slowdown_pct <= 100;
}

static bool is_good_receive(const struct flyt_manager_link_message *message)
{
    const struct flyt_manager_link_awaited *awaited = &message->receive.awaited;

    return message->receive.move_id && is_good_streams(&message->receive.streams) &&
           memchr(awaited->program, 0, sizeof awaited->program) &&
           memchr(awaited->client_address, 0, sizeof awaited->client_address);
}

static bool is_good_stop(const struct flyt_manager_link_message *message)
{
    return message->stop.move_id != 0;
}

static bool is_good_move_state(const struct flyt_manager_link_message *message)
{
    return message->move_state.move_id && message->move_state.phase >= FLYT_MANAGER_LINK_MOVE_REFUSED &&
           message->move_state.phase <= FLYT_MANAGER_LINK_MOVE_DRAINED;
}

static bool is_good_stopped(const struct flyt_manager_link_message *message)
{
    return message->stopped.move_id && message->stopped.has_state == (message->stopped.outcome == 0) &&
           message->stopped.extent_count <= FLYT_MANAGER_LINK_EXTENTS_MAX;
}

static bool is_good_shared(const struct flyt_manager_link_message *message)
{
    return message->shared.slot < FLYT_SLOTS_MAX && message->shared.has_memory <= 1 && message->shared.outcome <= 0 &&
           message->shared.is_restored <= 1;
}

static bool is_good_coredumps(const struct flyt_manager_link_message *message)
{
    return message->coredumps.bytes_max > 0;
}

static bool is_good_coredump(const struct flyt_manager_link_message *message)
{
    const bool is_of_file = message->coredump.state >= FLYT_MANAGER_LINK_COREDUMP_BEGUN &&
                            message->coredump.state <= FLYT_MANAGER_LINK_COREDUMP_CUT;
    return is_of_file ? message->data_bytes > 0 : message->coredump.state == FLYT_MANAGER_LINK_COREDUMP_ENABLED;
}

static bool is_good_locks(const struct flyt_manager_link_message *message)
{
    const struct flyt_manager_link_locks *locks = &message->locks;

    return locks->move_id && locks->piece_count <= FLYT_MANAGER_LINK_PIECES_MAX && locks->has_memory <= 1 &&
           locks->is_gone <= 1 && message->data_bytes == locks->piece_count * sizeof(struct flyt_manager_link_piece);
}

static bool is_good_locks_done(const struct flyt_manager_link_message *message)
{
    return message->locks_done.move_id != 0;
}

static bool is_good_library(const struct flyt_manager_link_message *message)
{
    return message->library.has_ended <= 1 && (message->library.has_ended || message->data_bytes > 0);
}

/* ---- how many descriptors come, where that is not the same for all messages of a kind ---- */

static unsigned session_descriptors(const struct flyt_manager_link_message *message)
{
    return 1 + message->session.ledger_count +
           FLYT_TIME_SLICES_FDS * flyt_manager_link_time_slice_count(&message->session);
}

/* Older servers send a token for each slot that is shared in time. */
static unsigned rejoin_descriptors(const struct flyt_manager_link_message *message)
{
    return message->rejoin.session.ledger_count + flyt_manager_link_time_slice_count(&message->rejoin.session);
}

static unsigned share_descriptors(const struct flyt_manager_link_message *message)
{
    return message->share.has_time_slices ? FLYT_TIME_SLICES_FDS : 0;
}

static unsigned move_descriptors(const struct flyt_manager_link_message *message)
{
    return message->move.kind == FLYT_MANAGER_LINK_MOVE_SEND    ? 1 + message->move.streams.stream_count
           : message->move.kind == FLYT_MANAGER_LINK_MOVE_WRITE ? 1 + message->move.has_parent
                                                                : 0;
}

static unsigned receive_descriptors(const struct flyt_manager_link_message *message)
{
    return 1 + message->receive.streams.stream_count;
}

static unsigned stopped_descriptors(const struct flyt_manager_link_message *message)
{
    return message->stopped.has_state;
}

static unsigned made_descriptors(const struct flyt_manager_link_message *message)
{
    return message->made.outcome == 0;
}

static unsigned brokered_descriptors(const struct flyt_manager_link_message *message)
{
    return message->shared.has_memory;
}

static unsigned locks_descriptors(const struct flyt_manager_link_message *message)
{
    return message->locks.has_memory;
}

static bool is_good_use(const struct flyt_manager_link_message *message)
{
    for (unsigned i = 0; i < FLYT_LIBRARIES_MAX; i++)
        if (strnlen(message->use.opened[i].name, FLYT_LIBRARY_NAME_BYTES) == FLYT_LIBRARY_NAME_BYTES)
            return false;
    return true;
}

/* ---- kinds ---- */

/* All that is said of a kind of message: who reads one has it checked against this. */
struct kind {
    size_t part_bytes;
    unsigned descriptors; /* how many come with it; or: */
    unsigned (*descriptors_of)(const struct flyt_manager_link_message *message);
    bool (*is_good)(const struct flyt_manager_link_message *message); /* NULL: there is nothing to check */
    bool has_data;                                                    /* it makes no sense without */
    bool is_order; /* its descriptors are for the thread that carries out a session's orders */
};

#define PART(part) .part_bytes = sizeof(((struct flyt_manager_link_message *)NULL)->part)

static const struct kind kinds[FLYT_MANAGER_LINK_KINDS] = {
    [FLYT_MANAGER_LINK_READY] = {PART(ready), .is_good = is_good_ready},
    [FLYT_MANAGER_LINK_FAILED] = {0},
    [FLYT_MANAGER_LINK_SESSION] = {PART(session), .descriptors_of = session_descriptors, .is_good = is_good_session,
                                   .has_data = true},
    [FLYT_MANAGER_LINK_DATA] = {PART(stream), .descriptors = 1, .has_data = true},
    [FLYT_MANAGER_LINK_EXTENT] = {PART(extent), .descriptors = 1, .is_good = is_good_extent},
    [FLYT_MANAGER_LINK_EXTENT_GONE] = {PART(extent), .is_good = is_good_extent},
    [FLYT_MANAGER_LINK_EXTENT_CREDITED] = {PART(extent), .is_good = is_good_extent},
    [FLYT_MANAGER_LINK_LIMIT] = {PART(limit), .is_good = is_good_limit},
    [FLYT_MANAGER_LINK_LIMIT_DONE] = {PART(limit_done), .is_good = is_good_limit_done},
    [FLYT_MANAGER_LINK_SM] = {PART(sm), .is_good = is_good_sm},
    [FLYT_MANAGER_LINK_SM_DONE] = {PART(sm_done), .is_good = is_good_sm_done},
    [FLYT_MANAGER_LINK_USE] = {PART(use), .is_good = is_good_use},
    [FLYT_MANAGER_LINK_RETURN] = {PART(returned)},
    [FLYT_MANAGER_LINK_REJOIN] = {PART(rejoin), .descriptors_of = rejoin_descriptors, .is_good = is_good_rejoin},
    [FLYT_MANAGER_LINK_WELCOME] = {PART(welcome)},
    [FLYT_MANAGER_LINK_GO] = {0},
    [FLYT_MANAGER_LINK_KILL] = {0},
    [FLYT_MANAGER_LINK_NEED] = {PART(need), .is_good = is_good_need},
    [FLYT_MANAGER_LINK_NEED_DONE] = {PART(need), .is_good = is_good_need},
    [FLYT_MANAGER_LINK_SHARE] = {PART(share), .descriptors_of = share_descriptors, .is_good = is_good_share,
                                 .is_order = true},
    [FLYT_MANAGER_LINK_SHARE_DONE] = {PART(share_done), .is_good = is_good_share_done},
    [FLYT_MANAGER_LINK_FAULT] = {PART(fault)},
    [FLYT_MANAGER_LINK_CAUSE] = {0},
    [FLYT_MANAGER_LINK_RESUME] = {PART(resume), .is_good = is_good_resume},
    [FLYT_MANAGER_LINK_GIVE] = {PART(extent), .descriptors = 1, .is_good = is_good_extent},
    [FLYT_MANAGER_LINK_FOLDER] = {.descriptors = 1},
    [FLYT_MANAGER_LINK_MOVE] = {PART(move), .descriptors_of = move_descriptors, .is_good = is_good_move,
                                .is_order = true},
    [FLYT_MANAGER_LINK_MIRROR] = {PART(extent), .descriptors = 1, .is_good = is_good_extent, .is_order = true},
    [FLYT_MANAGER_LINK_STOP] = {PART(stop), .is_good = is_good_stop},
    [FLYT_MANAGER_LINK_GO_ON] = {PART(stop), .is_good = is_good_stop},
    [FLYT_MANAGER_LINK_LEAVE] = {PART(stop), .is_good = is_good_stop},
    [FLYT_MANAGER_LINK_TAKE_BACK] = {PART(stop), .descriptors = 1, .is_good = is_good_stop, .has_data = true,
                                     .is_order = true},
    [FLYT_MANAGER_LINK_MOVE_STATE] = {PART(move_state), .is_good = is_good_move_state},
    [FLYT_MANAGER_LINK_STOPPED] = {PART(stopped), .descriptors_of = stopped_descriptors, .is_good = is_good_stopped},
    [FLYT_MANAGER_LINK_LEFT] = {PART(stop), .is_good = is_good_stop},
    [FLYT_MANAGER_LINK_LIBRARY] = {PART(library), .is_good = is_good_library},
    [FLYT_MANAGER_LINK_PREPARE] = {PART(session), .is_good = is_good_session},
    [FLYT_MANAGER_LINK_MAKE] = {PART(extent), .is_good = is_good_extent},
    [FLYT_MANAGER_LINK_UNMAKE] = {PART(extent), .is_good = is_good_extent},
    [FLYT_MANAGER_LINK_STATE] = {PART(stop), .descriptors = 1, .is_good = is_good_stop},
    [FLYT_MANAGER_LINK_MADE] = {PART(made), .descriptors_of = made_descriptors, .is_good = is_good_made},
    [FLYT_MANAGER_LINK_PREPARED] = {PART(prepared)},
    [FLYT_MANAGER_LINK_RECEIVE] = {PART(receive), .descriptors_of = receive_descriptors, .is_good = is_good_receive},
    [FLYT_MANAGER_LINK_RECORD] = {.descriptors = 1},
    [FLYT_MANAGER_LINK_TRY] = {PART(stop), .descriptors = 1, .is_good = is_good_stop},
    [FLYT_MANAGER_LINK_VM_MEMORY] = {.descriptors = FLYT_MANAGER_LINK_VM_MEMORY_FDS},
    [FLYT_MANAGER_LINK_EXPORT] = {PART(shared), .is_good = is_good_shared},
    [FLYT_MANAGER_LINK_EXPORT_GONE] = {PART(shared), .is_good = is_good_shared},
    [FLYT_MANAGER_LINK_IMPORT] = {PART(shared), .is_good = is_good_shared},
    [FLYT_MANAGER_LINK_IMPORT_HELD] = {PART(shared), .is_good = is_good_shared},
    [FLYT_MANAGER_LINK_IMPORT_GONE] = {PART(shared), .is_good = is_good_shared},
    [FLYT_MANAGER_LINK_BROKERED] = {PART(shared), .descriptors_of = brokered_descriptors, .is_good = is_good_shared,
                                    .is_order = true},
    [FLYT_MANAGER_LINK_EVENT_EXPORT] = {PART(shared), .descriptors = 1, .is_good = is_good_shared},
    [FLYT_MANAGER_LINK_EVENT_IMPORT] = {PART(shared), .is_good = is_good_shared},
    [FLYT_MANAGER_LINK_LAST] = {PART(stop), .is_good = is_good_stop},
    [FLYT_MANAGER_LINK_COREDUMPS] = {PART(coredumps), .descriptors = 1, .is_good = is_good_coredumps},
    [FLYT_MANAGER_LINK_COREDUMP] = {PART(coredump), .is_good = is_good_coredump},
    [FLYT_MANAGER_LINK_LOCKS_WANTED] = {PART(stop), .is_good = is_good_stop},
    [FLYT_MANAGER_LINK_LOCKS] = {PART(locks), .descriptors_of = locks_descriptors, .is_good = is_good_locks},
    [FLYT_MANAGER_LINK_LOCKED_LEDGER] = {.descriptors = 1},
    [FLYT_MANAGER_LINK_LOCKS_DONE] = {PART(locks_done), .is_good = is_good_locks_done},
};

/* NULL: there is no such kind. */
static const struct kind *find_kind(uint32_t kind)
{
    return kind && kind < FLYT_MANAGER_LINK_KINDS ? &kinds[kind] : NULL;
}

static unsigned count_descriptors(const struct flyt_manager_link_message *message)
{
    const struct kind *kind = &kinds[message->kind];

    return kind->descriptors_of ? kind->descriptors_of(message) : kind->descriptors;
}

static bool is_good(const struct flyt_manager_link_message *message)
{
    const struct kind *kind = &kinds[message->kind];

    return (!kind->has_data || message->data_bytes > 0) && (!kind->is_good || kind->is_good(message));
}

bool flyt_manager_link_is_order_with_descriptors(uint32_t kind)
{
    return find_kind(kind) && find_kind(kind)->is_order;
}

/* ---- sending and receiving ---- */

void flyt_manager_link_say(struct flyt_manager_link_message *message, const char *sentence)
{
    size_t bytes = sentence ? strnlen(sentence, FLYT_TEXT_BYTES_MAX) : 0;

    if (bytes)
        memcpy(message->data, sentence, bytes);
    message->data[bytes] = 0;
    message->data_bytes = (uint32_t)bytes;
}

int flyt_manager_link_send(int socket_fd, const struct flyt_manager_link_message *message, const int *fds,
                           unsigned fd_count)
{
    unsigned char *raw;
    const struct kind *kind = find_kind(message->kind);

    if (!kind || message->data_bytes > FLYT_MANAGER_LINK_DATA_BYTES_MAX || !is_good(message) ||
        fd_count != count_descriptors(message))
        return -EINVAL;
    const struct head head = {
        .kind = message->kind, .part_bytes = (uint32_t)kind->part_bytes, .data_bytes = message->data_bytes};
    size_t bytes = sizeof head + head.part_bytes + head.data_bytes;
    raw = malloc(bytes);
    if (!raw)
        return -ENOMEM;
    memcpy(raw, &head, sizeof head);
    memcpy(raw + sizeof head, &message->ready, head.part_bytes);
    memcpy(raw + sizeof head + head.part_bytes, message->data, head.data_bytes);
    int status = flyt_descriptors_send(socket_fd, raw, bytes, fds, fd_count);
    free(raw);
    return status == -ECONNRESET ? -EPIPE : status;
}

/* Takes a message apart. False: it is none. */
static bool unpack(const unsigned char *raw, size_t bytes, struct flyt_manager_link_message *message)
{
    struct head head;

    if (bytes < sizeof head)
        return false;
    memcpy(&head, raw, sizeof head);
    const struct kind *kind = find_kind(head.kind);
    if (!kind || head.part_bytes > PART_BYTES_MAX || head.data_bytes > FLYT_MANAGER_LINK_DATA_BYTES_MAX ||
        bytes != sizeof head + head.part_bytes + head.data_bytes)
        return false;
    size_t taken_bytes = head.part_bytes < kind->part_bytes ? head.part_bytes : kind->part_bytes;
    message->kind = head.kind;
    message->data_bytes = head.data_bytes;
    memset(&message->ready, 0,
           offsetof(struct flyt_manager_link_message, data) - offsetof(struct flyt_manager_link_message, ready));
    memcpy(&message->ready, raw + sizeof head, taken_bytes);
    memcpy(message->data, raw + sizeof head + head.part_bytes, head.data_bytes);
    message->data[head.data_bytes] = 0;
    return is_good(message);
}

int flyt_manager_link_receive(int socket_fd, struct flyt_manager_link_message *ret_message, int *ret_fds,
                              unsigned *ret_fd_count)
{
    const size_t raw_bytes_max = sizeof(struct head) + PART_BYTES_MAX + FLYT_MANAGER_LINK_DATA_BYTES_MAX;
    unsigned char *raw = malloc(raw_bytes_max + 1);
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    if (!raw)
        return -ENOMEM;
    /* One more than there may be: a longer message, which the kernel cuts, does not pass for a good one. */
    int bytes =
        flyt_descriptors_receive(socket_fd, raw, raw_bytes_max + 1, fds, FLYT_MANAGER_LINK_DESCRIPTORS_MAX, &fd_count);
    /* The other side has gone without reading everything. That is told once, before what it had sent last. */
    if (bytes == -ECONNRESET)
        bytes = flyt_descriptors_receive(socket_fd, raw, raw_bytes_max + 1, fds, FLYT_MANAGER_LINK_DESCRIPTORS_MAX,
                                         &fd_count);
    bool is_message =
        bytes > 0 && unpack(raw, (size_t)bytes, ret_message) && fd_count == count_descriptors(ret_message);
    free(raw);
    if (is_message) {
        memcpy(ret_fds, fds, fd_count * sizeof *fds);
        *ret_fd_count = fd_count;
        return 0;
    }
    for (unsigned i = 0; bytes > 0 && i < fd_count; i++)
        flyt_close(fds[i]);
    return bytes > 0 || bytes == -EMSGSIZE ? -EBADMSG : bytes == 0 || bytes == -ECONNRESET ? -EPIPE : bytes;
}

/* ---- the path ---- */

static int make_address(const char *path, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof ret_address->sun_path)
        return -ENAMETOOLONG;
    strcpy(ret_address->sun_path, path);
    return 0;
}

int flyt_manager_link_connect(const char *path)
{
    struct sockaddr_un address;
    int status = make_address(path, &address);

    if (status)
        return status;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address)) {
        status = -errno;
        flyt_close(fd);
        return status;
    }
    return fd;
}

int flyt_manager_link_listen(const char *path)
{
    struct sockaddr_un address;
    struct stat info;
    int status = make_address(path, &address);

    if (status)
        return status;
    int other = flyt_manager_link_connect(path);
    if (other >= 0) {
        flyt_close(other);
        return -EADDRINUSE;
    }
    if (other == -ECONNREFUSED && !lstat(path, &info) && S_ISSOCK(info.st_mode))
        unlink(path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    /* Nobody can connect before listen(2), by when the mode is set. */
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) || chmod(path, 0600) ||
        listen(fd, LISTEN_BACKLOG)) {
        status = -errno;
        flyt_close(fd);
        return status;
    }
    return fd;
}
