/* The hub of the communicators that begin with one unique id: a thread that takes connections, and one for each of
 * them. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cpu/softgpu/library/nccl.h"

/* One thing that all ranks of a communicator do together. */
struct meeting {
    struct meeting *next;
    uint64_t sequence;
    int come_count;
    struct {
        bool has_come;
        struct flyt_soft_nccl_message message;
        void *data;
    } ranks[];
};

struct comm {
    struct comm *next;
    uint32_t number;
    int ranks;
    bool is_lost;
    struct meeting *meetings;
    int *links; /* by rank: its place in the hub's links */
};

struct link {
    struct hub *hub;
    int fd, rank;
    bool has_joined, has_left, has_ended;
    pthread_mutex_t write_mutex;
};

struct hub {
    int fd;
    unsigned char secret[32];
    pthread_mutex_t mutex; /* of all below */
    int link_count, ended_count;
    uint32_t last_number;
    struct comm *comms;
    struct link links[NCCL_RANKS_MAX];
};

/* ---- messages ---- */

static bool write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t bytes)
{
    char *at = data;

    while (bytes) {
        ssize_t n = recv(fd, at, bytes, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool flyt_soft_nccl_write(int fd, const struct flyt_soft_nccl_message *message, const void *data)
{
    return write_all(fd, message, sizeof(*message)) && (!message->bytes || write_all(fd, data, message->bytes));
}

bool flyt_soft_nccl_read(int fd, struct flyt_soft_nccl_message *ret_message, void **ret_data)
{
    *ret_data = NULL;
    if (!read_all(fd, ret_message, sizeof(*ret_message)))
        return false;
    if (!ret_message->bytes)
        return true;
    *ret_data = malloc(ret_message->bytes);
    if (*ret_data && read_all(fd, *ret_data, ret_message->bytes))
        return true;
    free(*ret_data);
    *ret_data = NULL;
    return false;
}

/* ---- communicators ---- */

static struct comm *comm_find(struct hub *hub, uint32_t number)
{
    struct comm *comm = hub->comms;

    while (comm && comm->number != number)
        comm = comm->next;
    return comm;
}

static struct comm *comm_new(struct hub *hub, int ranks)
{
    struct comm *comm = calloc(1, sizeof(*comm));

    if (comm)
        comm->links = calloc((size_t)ranks, sizeof(*comm->links));
    if (!comm || !comm->links) {
        free(comm);
        return NULL;
    }
    for (int i = 0; i < ranks; i++)
        comm->links[i] = -1;
    comm->ranks = ranks;
    comm->number = hub->last_number++;
    comm->next = hub->comms;
    hub->comms = comm;
    return comm;
}

static int rank_of(const struct hub *hub, const struct comm *comm, const struct link *link)
{
    for (int i = 0; i < comm->ranks; i++)
        if (comm->links[i] == link - hub->links)
            return i;
    return -1;
}

/* A link that has ended is passed over: its rank hears nothing more. */
static void tell(struct hub *hub, const struct comm *comm, int rank, struct flyt_soft_nccl_message *message,
                 const void *data)
{
    struct link *link = &hub->links[comm->links[rank]];

    pthread_mutex_lock(&link->write_mutex);
    if (!link->has_ended)
        (void)flyt_soft_nccl_write(link->fd, message, data); /* its own thread sees that it is gone */
    pthread_mutex_unlock(&link->write_mutex);
}

static struct meeting *meeting_get(struct comm *comm, uint64_t sequence)
{
    struct meeting *meeting = comm->meetings;

    while (meeting && meeting->sequence != sequence)
        meeting = meeting->next;
    if (meeting)
        return meeting;
    meeting = calloc(1, sizeof(*meeting) + (size_t)comm->ranks * sizeof(meeting->ranks[0]));
    if (!meeting)
        return NULL;
    meeting->sequence = sequence;
    meeting->next = comm->meetings;
    comm->meetings = meeting;
    return meeting;
}

static void meeting_free(struct comm *comm, struct meeting *meeting)
{
    struct meeting **place = &comm->meetings;

    while (*place != meeting)
        place = &(*place)->next;
    *place = meeting->next;
    for (int i = 0; i < comm->ranks; i++)
        free(meeting->ranks[i].data);
    free(meeting);
}

/* ---- what the ranks do together ---- */

/* Bytes that each rank brings: so many times its count. */
static int parts_brought(const struct comm *comm, const struct flyt_soft_nccl_message *message, int rank)
{
    switch ((enum flyt_soft_nccl_function)message->function) {
    case BROADCAST:
        return rank == message->root;
    case SCATTER:
        return rank == message->root ? comm->ranks : 0;
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
        return comm->ranks;
    default:
        return 1;
    }
}

static bool is_alike(const struct comm *comm, const struct meeting *meeting)
{
    const struct flyt_soft_nccl_message *first = &meeting->ranks[0].message;

    for (int i = 0; i < comm->ranks; i++) {
        const struct flyt_soft_nccl_message *one = &meeting->ranks[i].message;
        size_t wanted = (size_t)parts_brought(comm, one, i) * one->count * flyt_soft_nccl_type_bytes(one->type);

        if (one->kind != first->kind || one->function != first->function || one->type != first->type ||
            one->op != first->op || one->root != first->root || one->count != first->count)
            return false;
        if (one->kind == MESSAGE_COLLECT && (one->bytes != wanted || one->op < 0 || one->op >= NCCL_OPS ||
                                             one->root < 0 || one->root >= comm->ranks || one->function >= SEND))
            return false;
    }
    return true;
}

/* All contributions as one, in that of rank 0. */
static const char *reduce(const struct comm *comm, struct meeting *meeting, size_t count)
{
    const struct flyt_soft_nccl_message *first = &meeting->ranks[0].message;
    char *into = meeting->ranks[0].data;

    for (int i = 1; i < comm->ranks && into; i++)
        flyt_soft_nccl_combine(first->type, first->op, into, meeting->ranks[i].data, count);
    if (first->op == NCCL_AVG && into)
        flyt_soft_nccl_divide(first->type, into, count, comm->ranks);
    return into;
}

/* The part for `to` of each rank's, or the whole of each rank's, one behind the other. */
static char *gather(const struct comm *comm, const struct meeting *meeting, size_t bytes, int to)
{
    char *all = malloc(bytes * (size_t)comm->ranks + 1);

    for (int i = 0; i < comm->ranks && all && bytes; i++)
        memcpy(all + (size_t)i * bytes, (const char *)meeting->ranks[i].data + (size_t)to * bytes, bytes);
    return all;
}

static void send_collected(struct hub *hub, struct comm *comm, struct meeting *meeting)
{
    struct flyt_soft_nccl_message result = meeting->ranks[0].message;
    size_t bytes = result.count * flyt_soft_nccl_type_bytes(result.type), all = bytes * (size_t)comm->ranks;
    bool is_scattered = result.function == REDUCE_SCATTER || result.function == SCATTER;
    bool is_reduced = result.function <= REDUCE || result.function == REDUCE_SCATTER;
    bool is_for_root = result.function == REDUCE || result.function == GATHER;
    const char *common = is_reduced ? reduce(comm, meeting, result.count * (is_scattered ? (size_t)comm->ranks : 1))
                                    : meeting->ranks[result.root].data;

    result.kind = MESSAGE_RESULT;
    for (int i = 0; i < comm->ranks; i++) {
        bool is_gathered = result.function == ALL_GATHER || result.function == GATHER || result.function == ALL_TO_ALL;
        bool is_wanted = !is_for_root || i == result.root;
        char *own =
            is_gathered && is_wanted ? gather(comm, meeting, bytes, result.function == ALL_TO_ALL ? i : 0) : NULL;

        result.bytes = !is_wanted ? 0 : is_gathered ? all : bytes;
        result.status = is_gathered && is_wanted && !own ? NCCL_SYSTEM_ERROR : NCCL_SUCCESS;
        if (result.status)
            result.bytes = 0;
        tell(hub, comm, i, &result, own ? own : is_scattered && bytes ? common + (size_t)i * bytes : common);
        free(own);
    }
}

/* The ranks of a color are those of a new communicator, in the order of their keys, then of their ranks. */
static void send_split(struct hub *hub, struct comm *comm, struct meeting *meeting)
{
    for (int first = 0; first < comm->ranks; first++) {
        int color = meeting->ranks[first].message.root, members[NCCL_RANKS_MAX], count = 0;
        bool is_first = true;

        for (int i = 0; i < comm->ranks; i++) {
            if (meeting->ranks[i].message.root != color)
                continue;
            is_first &= i >= first;
            int at = count++;
            while (at && meeting->ranks[members[at - 1]].message.op > meeting->ranks[i].message.op) {
                members[at] = members[at - 1];
                at--;
            }
            members[at] = i;
        }
        if (!is_first)
            continue;
        struct comm *child = color >= 0 ? comm_new(hub, count) : NULL;
        struct flyt_soft_nccl_message result = {.kind = MESSAGE_RESULT,
                                                .comm = comm->number,
                                                .sequence = meeting->sequence,
                                                .ranks = child ? count : 0,
                                                .root = child ? (int)child->number : 0,
                                                .status = color >= 0 && !child ? NCCL_SYSTEM_ERROR : NCCL_SUCCESS};
        for (int i = 0; i < count && child; i++)
            child->links[i] = comm->links[members[i]];
        for (int i = 0; i < count; i++) {
            result.rank = i;
            tell(hub, comm, members[i], &result, NULL);
        }
    }
}

static void send_refusal(struct hub *hub, struct comm *comm, struct meeting *meeting)
{
    struct flyt_soft_nccl_message result = {
        .kind = MESSAGE_RESULT, .comm = comm->number, .sequence = meeting->sequence, .status = NCCL_INVALID_USAGE};

    for (int i = 0; i < comm->ranks; i++)
        tell(hub, comm, i, &result, NULL);
}

static bool come(struct hub *hub, struct comm *comm, int rank, const struct flyt_soft_nccl_message *message,
                 void **data)
{
    struct meeting *meeting = meeting_get(comm, message->sequence);

    if (!meeting || meeting->ranks[rank].has_come)
        return false;
    meeting->ranks[rank].has_come = true;
    meeting->ranks[rank].message = *message;
    meeting->ranks[rank].data = *data;
    *data = NULL;
    if (++meeting->come_count < comm->ranks)
        return true;
    if (meeting->ranks[0].message.kind == MESSAGE_SPLIT)
        send_split(hub, comm, meeting);
    else if (!is_alike(comm, meeting))
        send_refusal(hub, comm, meeting);
    else if (meeting->ranks[0].message.kind == MESSAGE_COLLECT)
        send_collected(hub, comm, meeting);
    else
        for (int i = 0; i < comm->ranks; i++)
            tell(hub, comm, i, &(struct flyt_soft_nccl_message){.kind = MESSAGE_RESULT}, NULL);
    meeting_free(comm, meeting);
    return true;
}

/* ---- links ---- */

static void tell_lost(struct hub *hub, const struct comm *comm, int rank)
{
    struct flyt_soft_nccl_message lost = {.kind = MESSAGE_LOST, .comm = comm->number};

    for (int i = 0; i < comm->ranks; i++)
        if (i != rank && comm->links[i] >= 0)
            tell(hub, comm, i, &lost, NULL);
}

/* The first rank says how many there are. */
static bool join(struct hub *hub, struct link *link, const struct flyt_soft_nccl_message *message, void **data)
{
    struct comm *comm = comm_find(hub, 0);
    bool is_known = *data && message->bytes == sizeof(hub->secret) && !memcmp(*data, hub->secret, sizeof(hub->secret));

    if (!is_known || link->has_joined || message->ranks < 1 || message->ranks > NCCL_RANKS_MAX)
        return false;
    if (!comm)
        comm = comm_new(hub, message->ranks);
    if (!comm || comm->ranks != message->ranks || message->rank < 0 || message->rank >= comm->ranks ||
        comm->links[message->rank] >= 0)
        return false;
    comm->links[message->rank] = (int)(link - hub->links);
    link->has_joined = true;
    if (comm->is_lost)
        tell(hub, comm, message->rank, &(struct flyt_soft_nccl_message){.kind = MESSAGE_LOST}, NULL);
    return come(hub, comm, message->rank, message, data);
}

static bool serve(struct hub *hub, struct link *link, struct flyt_soft_nccl_message *message, void **data)
{
    struct comm *comm = comm_find(hub, message->comm);
    int rank = comm ? rank_of(hub, comm, link) : -1;

    if (message->kind == MESSAGE_JOIN)
        return join(hub, link, message, data);
    if (rank < 0)
        return false;
    if (message->kind == MESSAGE_LEAVE) {
        link->has_left = true;
        return true;
    }
    if (message->kind == MESSAGE_DIRECT) {
        int to = message->root;

        if (to < 0 || to >= comm->ranks)
            return false;
        message->root = rank;
        tell(hub, comm, to, message, *data);
        return true;
    }
    return (message->kind == MESSAGE_COLLECT || message->kind == MESSAGE_SPLIT) && come(hub, comm, rank, message, data);
}

static void hub_free(struct hub *hub)
{
    for (int i = 0; i < hub->link_count; i++) {
        close(hub->links[i].fd);
        pthread_mutex_destroy(&hub->links[i].write_mutex);
    }
    while (hub->comms) {
        struct comm *comm = hub->comms;

        hub->comms = comm->next;
        while (comm->meetings)
            meeting_free(comm, comm->meetings);
        free(comm->links);
        free(comm);
    }
    close(hub->fd);
    pthread_mutex_destroy(&hub->mutex);
    free(hub);
}

/* Whether it was the last of all that may come. */
static bool end_link(struct hub *hub, struct link *link)
{
    bool is_lost = link->has_joined && !link->has_left;

    pthread_mutex_lock(&link->write_mutex);
    link->has_ended = true;
    shutdown(link->fd, SHUT_RDWR);
    pthread_mutex_unlock(&link->write_mutex);
    for (struct comm *comm = hub->comms; comm && is_lost; comm = comm->next) {
        int rank = rank_of(hub, comm, link);

        if (rank < 0)
            continue;
        comm->is_lost = true;
        tell_lost(hub, comm, rank);
    }
    hub->ended_count++;
    const struct comm *first = comm_find(hub, 0);
    int joined_count = 0;

    for (int i = 0; i < hub->link_count; i++)
        joined_count += hub->links[i].has_joined;
    if (!first || joined_count < first->ranks || hub->ended_count < hub->link_count)
        return false;
    shutdown(hub->fd, SHUT_RDWR); /* the thread that takes connections ends, and frees the hub */
    return true;
}

static void *link_main(void *user)
{
    struct link *link = user;
    struct hub *hub = link->hub;
    struct flyt_soft_nccl_message message;
    void *data;

    while (flyt_soft_nccl_read(link->fd, &message, &data)) {
        pthread_mutex_lock(&hub->mutex);
        bool goes_on = serve(hub, link, &message, &data);
        pthread_mutex_unlock(&hub->mutex);
        free(data);
        if (!goes_on)
            break;
    }
    pthread_mutex_lock(&hub->mutex);
    (void)end_link(hub, link);
    pthread_mutex_unlock(&hub->mutex);
    return NULL;
}

static void add_link(struct hub *hub, int fd)
{
    pthread_t thread;
    struct link *link = NULL;

    pthread_mutex_lock(&hub->mutex);
    if (hub->link_count < NCCL_RANKS_MAX) {
        link = &hub->links[hub->link_count];
        *link = (struct link){.hub = hub, .fd = fd};
        pthread_mutex_init(&link->write_mutex, NULL);
        if (pthread_create(&thread, NULL, link_main, link) == 0) {
            pthread_detach(thread);
            hub->link_count++;
        } else {
            link = NULL;
        }
    }
    pthread_mutex_unlock(&hub->mutex);
    if (!link)
        close(fd);
}

/* Until all ranks have come and gone, or the process ends. */
static void *hub_main(void *user)
{
    struct hub *hub = user;
    int fd;

    while ((fd = accept4(hub->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        add_link(hub, fd);
    pthread_mutex_lock(&hub->mutex); /* the last link's thread has let go of it then */
    bool is_over = hub->ended_count == hub->link_count;
    pthread_mutex_unlock(&hub->mutex);
    if (is_over)
        hub_free(hub);
    return NULL;
}

/* ---- making and finding one ---- */

static socklen_t address_of(const struct flyt_soft_nccl_id *id, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t bytes = strnlen(id->name, sizeof(id->name));
    memcpy(ret_address->sun_path + 1, id->name, bytes);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
}

int flyt_soft_nccl_hub_new(struct flyt_soft_nccl_id *ret_id)
{
    struct flyt_soft_nccl_id id = {0};
    struct sockaddr_un address;
    pthread_t thread;
    uint64_t number;
    struct hub *hub = calloc(1, sizeof(*hub));

    if (!hub || getrandom(&number, sizeof(number), 0) != sizeof(number) ||
        getrandom(id.secret, sizeof(id.secret), 0) != sizeof(id.secret)) {
        free(hub);
        return NCCL_SYSTEM_ERROR;
    }
    snprintf(id.name, sizeof(id.name), "flyt-nccl-%016llx", (unsigned long long)number);
    memcpy(hub->secret, id.secret, sizeof(hub->secret));
    pthread_mutex_init(&hub->mutex, NULL);
    hub->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = address_of(&id, &address);
    if (hub->fd < 0 || bind(hub->fd, (struct sockaddr *)&address, bytes) < 0 || listen(hub->fd, NCCL_RANKS_MAX) < 0 ||
        pthread_create(&thread, NULL, hub_main, hub) != 0) {
        if (hub->fd >= 0)
            close(hub->fd);
        free(hub);
        return NCCL_SYSTEM_ERROR;
    }
    pthread_detach(thread);
    *ret_id = id;
    return NCCL_SUCCESS;
}

int flyt_soft_nccl_hub_connect(const struct flyt_soft_nccl_id *id)
{
    struct sockaddr_un address;
    socklen_t bytes = address_of(id, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && (strncmp(id->name, "flyt-nccl-", 10) || connect(fd, (struct sockaddr *)&address, bytes) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}
