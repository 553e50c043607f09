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

/* Its part's length, or -1: no such kind. */
static int part_bytes_of(uint32_t kind)
{
    static const int bytes[FLYT_MANAGER_LINK_KINDS] = {
        [FLYT_MANAGER_LINK_READY] = sizeof(struct flyt_manager_link_ready),
        [FLYT_MANAGER_LINK_SESSION] = sizeof(struct flyt_manager_link_session),
        [FLYT_MANAGER_LINK_DATA] = sizeof(struct flyt_manager_link_stream),
        [FLYT_MANAGER_LINK_EXTENT] = sizeof(struct flyt_manager_link_extent),
        [FLYT_MANAGER_LINK_EXTENT_GONE] = sizeof(struct flyt_manager_link_extent),
        [FLYT_MANAGER_LINK_EXTENT_CREDITED] = sizeof(struct flyt_manager_link_extent),
        [FLYT_MANAGER_LINK_LIMIT] = sizeof(struct flyt_manager_link_limit),
        [FLYT_MANAGER_LINK_LIMIT_DONE] = sizeof(struct flyt_manager_link_limit_done),
        [FLYT_MANAGER_LINK_NEED] = sizeof(struct flyt_manager_link_need),
        [FLYT_MANAGER_LINK_NEED_DONE] = sizeof(struct flyt_manager_link_need),
        [FLYT_MANAGER_LINK_SM] = sizeof(struct flyt_manager_link_sm),
        [FLYT_MANAGER_LINK_SM_DONE] = sizeof(struct flyt_manager_link_sm_done),
        [FLYT_MANAGER_LINK_SHARE] = sizeof(struct flyt_manager_link_share),
        [FLYT_MANAGER_LINK_SHARE_DONE] = sizeof(struct flyt_manager_link_share_done),
        [FLYT_MANAGER_LINK_FAULT] = sizeof(struct flyt_manager_link_fault),
        [FLYT_MANAGER_LINK_USE] = sizeof(struct flyt_manager_link_use),
        [FLYT_MANAGER_LINK_REJOIN] = sizeof(struct flyt_manager_link_rejoin),
        [FLYT_MANAGER_LINK_WELCOME] = sizeof(struct flyt_manager_link_welcome),
        [FLYT_MANAGER_LINK_RETURN] = sizeof(struct flyt_manager_link_returned),
        [FLYT_MANAGER_LINK_RESUME] = sizeof(struct flyt_manager_link_resume),
        [FLYT_MANAGER_LINK_GIVE] = sizeof(struct flyt_manager_link_extent),
        [FLYT_MANAGER_LINK_MOVE] = sizeof(struct flyt_manager_link_move),
        [FLYT_MANAGER_LINK_MIRROR] = sizeof(struct flyt_manager_link_extent),
        [FLYT_MANAGER_LINK_STOP] = sizeof(struct flyt_manager_link_stop),
        [FLYT_MANAGER_LINK_GO_ON] = sizeof(struct flyt_manager_link_stop),
        [FLYT_MANAGER_LINK_LEAVE] = sizeof(struct flyt_manager_link_stop),
        [FLYT_MANAGER_LINK_TAKE_BACK] = sizeof(struct flyt_manager_link_stop),
        [FLYT_MANAGER_LINK_MOVE_STATE] = sizeof(struct flyt_manager_link_move_state),
        [FLYT_MANAGER_LINK_STOPPED] = sizeof(struct flyt_manager_link_stopped),
        [FLYT_MANAGER_LINK_LEFT] = sizeof(struct flyt_manager_link_stop),
        [FLYT_MANAGER_LINK_LIBRARY] = sizeof(struct flyt_manager_link_library),
        [FLYT_MANAGER_LINK_PREPARE] = sizeof(struct flyt_manager_link_session),
        [FLYT_MANAGER_LINK_MAKE] = sizeof(struct flyt_manager_link_extent),
        [FLYT_MANAGER_LINK_UNMAKE] = sizeof(struct flyt_manager_link_extent),
        [FLYT_MANAGER_LINK_STATE] = sizeof(struct flyt_manager_link_stop),
        [FLYT_MANAGER_LINK_MADE] = sizeof(struct flyt_manager_link_made),
        [FLYT_MANAGER_LINK_PREPARED] = sizeof(struct flyt_manager_link_prepared),
        [FLYT_MANAGER_LINK_RECEIVE] = sizeof(struct flyt_manager_link_receive),
        [FLYT_MANAGER_LINK_TRY] = sizeof(struct flyt_manager_link_stop),
        /* RECORD: no part */
    };

    return kind == 0 || kind >= FLYT_MANAGER_LINK_KINDS ? -1 : bytes[kind];
}

/* How many descriptors come with it. */
static unsigned descriptors_of(const struct flyt_manager_link_message *message)
{
    switch (message->kind) {
    case FLYT_MANAGER_LINK_SESSION:
        return 1 + message->session.ledger_count +
               FLYT_TIME_SLICES_FDS * flyt_manager_link_time_slice_count(&message->session);
    case FLYT_MANAGER_LINK_REJOIN:
        /* Older servers send a token for each slot that is shared in time. */
        return message->rejoin.session.ledger_count + flyt_manager_link_time_slice_count(&message->rejoin.session);
    case FLYT_MANAGER_LINK_DATA:
    case FLYT_MANAGER_LINK_EXTENT:
    case FLYT_MANAGER_LINK_GIVE:
    case FLYT_MANAGER_LINK_FOLDER:
    case FLYT_MANAGER_LINK_MIRROR:
    case FLYT_MANAGER_LINK_TAKE_BACK:
    case FLYT_MANAGER_LINK_STATE:
    case FLYT_MANAGER_LINK_TRY:
    case FLYT_MANAGER_LINK_RECORD:
        return 1;
    case FLYT_MANAGER_LINK_SHARE:
        return message->share.has_time_slices ? FLYT_TIME_SLICES_FDS : 0;
    case FLYT_MANAGER_LINK_MOVE:
        return message->move.kind == FLYT_MANAGER_LINK_MOVE_SEND    ? 1 + message->move.streams.stream_count
               : message->move.kind == FLYT_MANAGER_LINK_MOVE_WRITE ? 1 + message->move.has_parent
                                                                    : 0;
    case FLYT_MANAGER_LINK_RECEIVE:
        return 1 + message->receive.streams.stream_count;
    case FLYT_MANAGER_LINK_STOPPED:
        return message->stopped.has_state;
    case FLYT_MANAGER_LINK_MADE:
        return message->made.outcome == 0;
    default:
        return 0;
    }
}

void flyt_manager_link_say(struct flyt_manager_link_message *message, const char *sentence)
{
    size_t bytes = sentence ? strnlen(sentence, FLYT_TEXT_BYTES_MAX) : 0;

    if (bytes)
        memcpy(message->data, sentence, bytes);
    message->data[bytes] = 0;
    message->data_bytes = (uint32_t)bytes;
}

/* ---- what may come ---- */

static bool is_good_session(const struct flyt_manager_link_session *session)
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

static bool is_good_rejoin(const struct flyt_manager_link_rejoin *rejoin)
{
    return is_good_session(&rejoin->session) && memchr(rejoin->program, 0, sizeof rejoin->program) &&
           memchr(rejoin->client_address, 0, sizeof rejoin->client_address);
}

static bool is_good_streams(const struct flyt_manager_link_streams *streams)
{
    return streams->stream_count <= FLYT_MIGRATION_STREAMS_MAX && streams->is_encrypted <= 1;
}

static bool is_good_awaited(const struct flyt_manager_link_awaited *awaited)
{
    return memchr(awaited->program, 0, sizeof awaited->program) &&
           memchr(awaited->client_address, 0, sizeof awaited->client_address);
}

static bool is_good_move(const struct flyt_manager_link_move *move)
{
    return move->move_id && move->kind >= FLYT_MANAGER_LINK_MOVE_GIVE && move->kind <= FLYT_MANAGER_LINK_MOVE_SEND &&
           is_good_streams(&move->streams) && move->rounds_max && move->rounds_max <= FLYT_MANAGER_LINK_ROUNDS_MAX &&
           move->slowdown_pct <= 100;
}

static bool is_good(const struct flyt_manager_link_message *message)
{
    switch (message->kind) {
    case FLYT_MANAGER_LINK_READY:
        return message->ready.group_count <= FLYT_GROUPS_MAX && message->ready.device_count <= FLYT_GPUS_MAX &&
               memchr(message->ready.name, 0, sizeof message->ready.name);
    case FLYT_MANAGER_LINK_SESSION:
        return is_good_session(&message->session) && message->data_bytes > 0;
    case FLYT_MANAGER_LINK_DATA:
        return message->data_bytes > 0;
    case FLYT_MANAGER_LINK_EXTENT:
    case FLYT_MANAGER_LINK_EXTENT_GONE:
    case FLYT_MANAGER_LINK_EXTENT_CREDITED:
    case FLYT_MANAGER_LINK_GIVE:
    case FLYT_MANAGER_LINK_MIRROR:
    case FLYT_MANAGER_LINK_MAKE:
    case FLYT_MANAGER_LINK_UNMAKE:
        return message->extent.slot < FLYT_SLOTS_MAX;
    case FLYT_MANAGER_LINK_RESUME:
        return message->resume.extent_count <= FLYT_MANAGER_LINK_EXTENTS_MAX && message->resume.is_made <= 1 &&
               message->resume.has_record <= 1 && message->resume.is_ahead <= 1 && message->resume.is_held <= 1 &&
               !(message->resume.is_ahead && (message->resume.is_made || message->resume.has_record));
    case FLYT_MANAGER_LINK_MOVE:
        return is_good_move(&message->move);
    case FLYT_MANAGER_LINK_STOP:
    case FLYT_MANAGER_LINK_GO_ON:
    case FLYT_MANAGER_LINK_LEAVE:
    case FLYT_MANAGER_LINK_STATE:
    case FLYT_MANAGER_LINK_TRY:
    case FLYT_MANAGER_LINK_LEFT:
        return message->stop.move_id != 0;
    case FLYT_MANAGER_LINK_RECEIVE:
        return message->receive.move_id && is_good_streams(&message->receive.streams) &&
               is_good_awaited(&message->receive.awaited);
    case FLYT_MANAGER_LINK_TAKE_BACK:
        return message->stop.move_id && message->data_bytes > 0;
    case FLYT_MANAGER_LINK_MOVE_STATE:
        return message->move_state.move_id && message->move_state.phase >= FLYT_MANAGER_LINK_MOVE_REFUSED &&
               message->move_state.phase <= FLYT_MANAGER_LINK_MOVE_OVER;
    case FLYT_MANAGER_LINK_STOPPED:
        return message->stopped.move_id && message->stopped.has_state == (message->stopped.outcome == 0) &&
               message->stopped.extent_count <= FLYT_MANAGER_LINK_EXTENTS_MAX;
    case FLYT_MANAGER_LINK_LIBRARY:
        return message->library.has_ended <= 1 && (message->library.has_ended || message->data_bytes > 0);
    case FLYT_MANAGER_LINK_PREPARE:
        return is_good_session(&message->session);
    case FLYT_MANAGER_LINK_MADE:
        return message->made.extent.slot < FLYT_SLOTS_MAX;
    case FLYT_MANAGER_LINK_LIMIT:
        return message->limit.slot < FLYT_SLOTS_MAX && message->limit.when_free <= 1;
    case FLYT_MANAGER_LINK_LIMIT_DONE:
        return message->limit_done.slot < FLYT_SLOTS_MAX;
    case FLYT_MANAGER_LINK_NEED:
    case FLYT_MANAGER_LINK_NEED_DONE:
        return message->need.slot < FLYT_SLOTS_MAX;
    case FLYT_MANAGER_LINK_SM:
        return message->sm.slot < FLYT_SLOTS_MAX;
    case FLYT_MANAGER_LINK_SM_DONE:
        return message->sm_done.slot < FLYT_SLOTS_MAX && message->sm_done.state <= FLYT_MANAGER_LINK_VACATED;
    case FLYT_MANAGER_LINK_SHARE:
        return message->share.slot < FLYT_SLOTS_MAX && message->share.is_suspended <= 1 &&
               message->share.has_time_slices <= 1;
    case FLYT_MANAGER_LINK_SHARE_DONE:
        return message->share_done.slot < FLYT_SLOTS_MAX;
    case FLYT_MANAGER_LINK_REJOIN:
        return is_good_rejoin(&message->rejoin);
    default:
        return true;
    }
}

/* ---- sending and receiving ---- */

int flyt_manager_link_send(int socket_fd, const struct flyt_manager_link_message *message, const int *fds,
                           unsigned fd_count)
{
    unsigned char *raw;
    int part_bytes = part_bytes_of(message->kind);

    if (part_bytes < 0 || message->data_bytes > FLYT_MANAGER_LINK_DATA_BYTES_MAX || !is_good(message) ||
        fd_count != descriptors_of(message))
        return -EINVAL;
    const struct head head = {
        .kind = message->kind, .part_bytes = (uint32_t)part_bytes, .data_bytes = message->data_bytes};
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
    int own_part_bytes = part_bytes_of(head.kind);
    if (own_part_bytes < 0 || head.part_bytes > PART_BYTES_MAX || head.data_bytes > FLYT_MANAGER_LINK_DATA_BYTES_MAX ||
        bytes != sizeof head + head.part_bytes + head.data_bytes)
        return false;
    size_t taken_bytes = head.part_bytes < (uint32_t)own_part_bytes ? head.part_bytes : (size_t)own_part_bytes;
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
    bool is_message = bytes > 0 && unpack(raw, (size_t)bytes, ret_message) && fd_count == descriptors_of(ret_message);
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
