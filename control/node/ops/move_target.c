#include "control/node/ops/move_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/size.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/memory/charge.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/migration.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"

_Static_assert((int)FLYT_NODE_MOVE_LIBRARIES_MAX + (int)FLYT_NODE_EXTENTS_MAX < (int)FLYT_NODE_LINK_QUEUE_MAX,
               "a target can be told at once of all that there is when it is taken");

/* ---- memory ---- */

static struct flyt_node_move_extent **find_extent(struct flyt_node_move *move, uint64_t extent_id)
{
    struct flyt_node_move_extent **link = &move->extents;

    while (*link && (*link)->extent.extent_id != extent_id)
        link = &(*link)->next;
    return link;
}

static void forget_extent(struct flyt_node_move *move, struct flyt_node_move_extent **link)
{
    struct flyt_node_move_extent *extent = *link;

    *link = extent->next;
    move->extent_count--;
    move->awaited_count -= !extent->is_made;
    flyt_close(extent->fd);
    free(extent);
}

/* To be made there, or given as it is. `fd` stays the caller's. */
static void add_extent(struct flyt_node_move *move, const struct flyt_manager_link_extent *from, int fd)
{
    bool is_given = move->way->is_given;

    if (flyt_node_move_is_made_to_fail(move, "node.migrate.make"))
        return;
    struct flyt_node_move_extent *extent = malloc(sizeof *extent);
    int given_fd = extent && is_given ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (!extent || (is_given && given_fd < 0)) {
        flyt_node_move_fail(move, -ENOMEM, "the node manager has no memory or no descriptor left");
        free(extent);
        return;
    }
    *extent = (struct flyt_node_move_extent){.next = move->extents, .extent = *from, .is_made = is_given, .fd = -1};
    move->extents = extent;
    move->extent_count++;
    move->awaited_count += !is_given;
    move->asked_ms = flyt_clock_ms();
    struct flyt_manager_link_message *message =
        flyt_node_link_message(is_given ? FLYT_MANAGER_LINK_GIVE : FLYT_MANAGER_LINK_MAKE);
    message->extent = *from;
    flyt_node_move_send(move, move->target.server, message, given_fd);
}

/* Whether the source's memory is made there as it comes. By way of the host the target makes it itself. */
static bool has_memory_there(const struct flyt_node_move *move)
{
    return move->target.server && !move->way->is_by_host &&
           flyt_node_target_is_between(&move->target, FLYT_NODE_TARGET_PREPARING, FLYT_NODE_TARGET_LOADING);
}

void flyt_node_move_extent(struct flyt_node_server *server, const struct flyt_manager_link_extent *extent, int fd)
{
    struct flyt_node_move *move = flyt_node_move_at(server);

    if (has_memory_there(move))
        add_extent(move, extent, fd);
}

/* The target, by way of the host, has made memory, which is kept until it has the session. fd is taken over. */
static void keep_made(struct flyt_node_move *move, const struct flyt_manager_link_made *made, int fd)
{
    char size[FLYT_SIZE_TEXT_BYTES];

    struct flyt_node_move_extent *extent = made->outcome ? NULL : malloc(sizeof *extent);
    if (made->outcome)
        flyt_node_move_fail(move, made->outcome, "%s of its memory cannot be made on GPU %u: %s",
                            flyt_size_text(made->extent.bytes, size), move->target.server->gpu->index,
                            strerror(-made->outcome));
    else if (*find_extent(move, made->extent.extent_id) || move->extent_count >= FLYT_NODE_EXTENTS_MAX ||
             made->extent.slot >= move->migration->wanted.slots.slots_len)
        flyt_node_move_fail(move, -EBADMSG, "its new server process has made other memory than it was told to");
    else if (!extent)
        flyt_node_move_fail(move, -ENOMEM, "the node manager has no memory");
    if (move->outcome) {
        free(extent);
        flyt_close(fd);
        return;
    }
    *extent = (struct flyt_node_move_extent){.next = move->extents, .extent = made->extent, .is_made = true, .fd = fd};
    move->extents = extent;
    move->extent_count++;
}

void flyt_node_move_target_unmade(struct flyt_node_target *target, uint64_t extent_id)
{
    struct flyt_node_move *move = flyt_node_move_by(&target->role);
    struct flyt_node_move_extent **link = find_extent(move, extent_id);

    if (!move->way->is_by_host)
        return;
    if (*link)
        forget_extent(move, link);
    else
        flyt_node_move_fail(move, -EBADMSG, "its new server process gives back memory that it did not have");
}

void flyt_node_move_extent_gone(struct flyt_node_server *server, uint64_t extent_id)
{
    struct flyt_node_move *move = flyt_node_move_at(server);

    if (!has_memory_there(move))
        return;
    struct flyt_node_move_extent **link = find_extent(move, extent_id);
    if (!*link)
        return;
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_UNMAKE);
    message->extent = (*link)->extent;
    forget_extent(move, link);
    flyt_node_move_send(move, move->target.server, message, -1);
    flyt_node_migration_wake(move->migration);
}

/* ---- libraries ---- */

static void forget_libraries(struct flyt_node_move *move)
{
    struct flyt_node_move_library *library;

    while ((library = move->libraries_first)) {
        move->libraries_first = library->next;
        free(library);
    }
    move->libraries_last = NULL;
    move->library_count = 0;
    move->library_bytes = 0;
}

void flyt_node_move_target_library(struct flyt_node_move *move, const struct flyt_manager_link_message *told)
{
    if (move->target.server) {
        struct flyt_manager_link_message *message = flyt_node_link_message(told->kind);
        message->library = told->library;
        message->data_bytes = told->data_bytes;
        memcpy(message->data, told->data, told->data_bytes);
        flyt_node_move_send(move, move->target.server, message, -1);
        return;
    }
    if (move->library_count >= FLYT_NODE_MOVE_LIBRARIES_MAX ||
        told->data_bytes > FLYT_NODE_MOVE_LIBRARIES_BYTES_MAX - move->library_bytes) {
        flyt_node_move_fail(move, -ENOBUFS,
                            "it loads and unloads more libraries than the node manager keeps for a new server process");
        return;
    }
    struct flyt_node_move_library *library = malloc(sizeof *library + told->data_bytes);
    if (!library) {
        flyt_node_move_fail(move, -ENOMEM, "the node manager has no memory");
        return;
    }
    library->next = NULL;
    library->library = told->library;
    library->bytes = told->data_bytes;
    memcpy(library->data, told->data, told->data_bytes);
    *(move->libraries_last ? &move->libraries_last->next : &move->libraries_first) = library;
    move->libraries_last = library;
    move->library_count++;
    move->library_bytes += told->data_bytes;
}

static void send_libraries(struct flyt_node_move *move)
{
    for (const struct flyt_node_move_library *library = move->libraries_first; library; library = library->next) {
        struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_LIBRARY);
        message->library = library->library;
        message->data_bytes = (uint32_t)library->bytes;
        memcpy(message->data, library->data, library->bytes);
        flyt_node_move_send(move, move->target.server, message, -1);
    }
    forget_libraries(move);
}

/* ---- page-locked memory ---- */

/* By way of the host the target hears of nothing but the image until its program has stopped. */
static void ask_locks(struct flyt_node_move *move)
{
    if (!(move->source->takes & move->target.server->takes & FLYT_MANAGER_LINK_TAKES_LOCKS))
        return;
    move->locks_are_awaited = true;
    move->asked_ms = flyt_clock_ms();
    flyt_node_move_source_ask_locks(move);
}

void flyt_node_move_target_locks(struct flyt_node_move *move, const struct flyt_manager_link_message *told, int fd)
{
    if (move->outcome || !has_memory_there(move)) {
        flyt_close(fd);
        return;
    }
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_LOCKS);
    message->locks = told->locks;
    message->data_bytes = told->data_bytes;
    memcpy(message->data, told->data, told->data_bytes);
    flyt_node_move_send(move, move->target.server, message, fd);
}

void flyt_node_move_target_locked(struct flyt_node_target *target, const struct flyt_manager_link_locks_done *done)
{
    struct flyt_node_move *move = flyt_node_move_by(&target->role);

    move->locked = *done;
    move->locks_are_awaited = false;
    flyt_node_migration_wake(move->migration);
}

/* ---- beginning ---- */

static void prepare(struct flyt_node_move *move, struct flyt_node_server *server)
{
    struct flyt_node_target *target = &move->target;

    flyt_node_target_begin(target, server, move->source->session);
    flyt_node_target_set_state(target, FLYT_NODE_TARGET_PREPARING);
    flyt_node_target_hurry(target, move->way->is_given);
    if (flyt_node_move_is_made_to_fail(move, "node.migrate.prepare"))
        return;
    flyt_node_target_prepare(target, &move->migration->wanted, move->source->session);
    if (move->outcome)
        return;
    if (move->way->is_given)
        flyt_node_charge_lend(server, flyt_node_server_allocation(move->source), &move->source->has);
    const struct flyt_node_extents *extents = &move->source->has.extents;
    if (!flyt_node_extents_are_whole(extents))
        flyt_node_move_fail(move, -ENOTSUP, "the node manager does not hold all of its memory");
    if (move->way->is_by_host)
        return; /* the image has the rest */
    send_libraries(move);
    for (const struct flyt_node_extent *extent = extents->first; extent && !move->outcome; extent = extent->next) {
        const struct flyt_manager_link_extent its = {
            .extent_id = extent->extent_id, .bytes = extent->bytes, .address = extent->address, .slot = extent->slot};
        add_extent(move, &its, extent->fd);
    }
    if (!move->outcome)
        ask_locks(move);
}

void flyt_node_move_target_look(struct flyt_node_target *target)
{
    struct flyt_node_move *move = flyt_node_move_by(&target->role);
    const struct flyt_node_gpu *gpu = target->gpu;
    struct flyt_node_server *warm = flyt_node_target_find(target);

    if (warm)
        prepare(move, warm);
    else if (!gpu || gpu->health == FLYT_HEALTH_FAILED)
        flyt_node_move_fail(move, -ENODEV, "no server process starts on its new GPU: %.300s",
                            gpu ? gpu->health_text : "it has gone");
}

void flyt_node_move_target_prepared(struct flyt_node_target *target)
{
    struct flyt_node_move *move = flyt_node_move_by(&target->role);

    if (move->outcome)
        return;
    flyt_node_target_set_state(target, FLYT_NODE_TARGET_LOADING);
    if (move->way->is_by_host)
        flyt_node_move_host_begin(move);
}

void flyt_node_move_target_load(struct flyt_node_move *move, int fd)
{
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_STATE);

    message->stop.move_id = move->move_id;
    flyt_node_move_send(move, move->target.server, message, fd);
}

/* ---- what it says ---- */

static void on_made(struct flyt_node_move *move, const struct flyt_manager_link_made *made, int fd)
{
    struct flyt_node_move_extent *extent = *find_extent(move, made->extent.extent_id);
    char size[FLYT_SIZE_TEXT_BYTES];

    if (!extent || extent->is_made) { /* it has gone meanwhile */
        flyt_close(fd);
        return;
    }
    if (made->outcome) {
        flyt_close(fd);
        flyt_node_move_fail(move, made->outcome, "%s of its memory cannot be made on GPU %u: %s",
                            flyt_size_text(extent->extent.bytes, size), move->target.server->gpu->index,
                            strerror(-made->outcome));
        return;
    }
    if (made->extent.bytes != extent->extent.bytes || made->extent.address != extent->extent.address ||
        made->extent.slot != extent->extent.slot) {
        flyt_close(fd);
        flyt_node_move_fail(move, -EBADMSG, "its new server process has made other memory than it was told to");
        return;
    }
    extent->fd = fd;
    extent->is_made = true;
    move->awaited_count--;
    flyt_node_migration_wake(move->migration);
    int mirror_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (mirror_fd < 0) {
        flyt_node_move_fail(move, -errno, "the node manager has no descriptor left");
        return;
    }
    if (flyt_node_move_is_made_to_fail(move, "node.migrate.mirror") || !move->source) {
        flyt_close(mirror_fd);
        return;
    }
    flyt_node_move_source_mirror(move, &extent->extent, mirror_fd);
}

void flyt_node_move_target_compare(struct flyt_node_move *move)
{
    if (move->stage != FLYT_NODE_MOVE_STOPPED || move->target.state != FLYT_NODE_TARGET_LOADED || move->outcome)
        return;
    if (move->received_sequence != move->stopped.sequence)
        flyt_node_move_fail(move, -EBADMSG, "its new server process has taken over another state of it");
    else if (move->extent_count != move->stopped.extent_count)
        flyt_node_move_fail(move, -EIO,
                            "its server process has %" PRIu64 " extents of memory, and its new one has made %u",
                            move->stopped.extent_count, move->extent_count);
    else
        move->times.loaded_ns = flyt_clock_ns();
}

/* By way of the host the target may be there before the source says that it has stopped. */
void flyt_node_move_target_loaded(struct flyt_node_target *target, const struct flyt_manager_link_prepared *prepared)
{
    struct flyt_node_move *move = flyt_node_move_by(&target->role);

    move->received_sequence = prepared->sequence;
    if (!move->way->is_by_host && move->stage != FLYT_NODE_MOVE_STOPPED)
        flyt_node_move_fail(move, -EBADMSG, "its new server process has taken over what it was not told yet");
    else
        flyt_node_move_target_compare(move);
}

void flyt_node_move_target_made(struct flyt_node_target *target, const struct flyt_manager_link_made *made, int fd)
{
    struct flyt_node_move *move = flyt_node_move_by(&target->role);

    if (move->outcome)
        flyt_close(fd);
    else if (move->way->is_by_host)
        keep_made(move, made, fd);
    else
        on_made(move, made, fd);
}

/* ---- ending ---- */

void flyt_node_move_target_forget(struct flyt_node_move *move)
{
    while (move->extents)
        forget_extent(move, &move->extents);
    forget_libraries(move);
}

void flyt_node_move_target_lose(struct flyt_node_move *move, struct flyt_node_server *target)
{
    bool is_by_will = target->state == FLYT_NODE_SERVER_ENDING && *target->end_reason && !target->fault.is_hit;
    const char *why = *target->end_reason ? target->end_reason : NULL;

    if (flyt_node_move_is_given(move) && !move->source) {
        if (!is_by_will)
            flyt_node_move_fail(move, -EPIPE, "its server process and the one where it was to go on have both ended");
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_OVER); /* and the session with it */
    } else if (flyt_node_move_is_given(move)) {
        flyt_node_move_undo_giving(move, target);
        if (move->source->state != FLYT_NODE_SERVER_ENDING) /* else the session ends, wherever it is */
            flyt_node_move_fail(move, -EPIPE, "%s",
                                why ? why : "its new server process has ended before it went on there");
        flyt_node_move_set_stage(move, FLYT_NODE_MOVE_RETURNING);
    } else if (move->stage == FLYT_NODE_MOVE_LEFT && move->waiting) {
        flyt_node_move_fail(move, -EPIPE, "its server process and the one where it was to go on have both ended");
        flyt_node_move_lose(move, move->sentence);
    } else if (move->stage != FLYT_NODE_MOVE_OVER) {
        flyt_node_move_fail(move, -EPIPE, "%s", why ? why : "its new server process has ended");
        if (move->stage == FLYT_NODE_MOVE_LEFT)
            flyt_node_move_set_stage(move, FLYT_NODE_MOVE_RETURNING);
    }
    flyt_node_migration_wake(move->migration);
}
