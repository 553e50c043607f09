#include "control/node/loading.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/charge.h"
#include "control/node/link_dispatch.h"
#include "control/node/pool.h"
#include "control/node/resume.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"

enum { HASTE_MS = 2000 };

static void set_stage(struct flyt_node_loading *loading, enum flyt_node_loading_stage stage)
{
    loading->stage = stage;
    loading->stage_ms = flyt_clock_ms();
    loading->ops->wake(loading);
}

static bool is_late(const struct flyt_node_loading *loading, uint64_t limit_ms)
{
    return flyt_clock_ms() - loading->stage_ms > limit_ms;
}

static struct flyt_node_allocation *allocation_of(const struct flyt_node_loading *loading)
{
    return flyt_node_allocation_find(loading->node, loading->its.allocation_id);
}

/* ---- beginning and end ---- */

void flyt_node_loading_init(struct flyt_node_loading *loading, struct flyt_node *node,
                            const struct flyt_node_loading_ops *ops, const struct flyt_node_loading_session *its)
{
    *loading = (struct flyt_node_loading){.next = node->loadings,
                                          .node = node,
                                          .ops = ops,
                                          .its = *its,
                                          .move_id = flyt_node_random(),
                                          .stage = FLYT_NODE_LOADING_NEW,
                                          .stage_ms = flyt_clock_ms()};
    node->loadings = loading;
}

/* It has no process, and is not among those that wait: first its memory, then its charge, when its server has gone. */
static void free_session(struct flyt_node_loading *loading)
{
    struct flyt_node_server *session = loading->session;

    if (!session)
        return;
    loading->session = NULL;
    flyt_node_extents_drop(session->node, &session->extents, session->server_id);
    flyt_node_charge_end(session);
    explicit_bzero(session->token, sizeof session->token);
    flyt_node_server_drop(session);
}

void flyt_node_loading_fini(struct flyt_node_loading *loading)
{
    struct flyt_node_loading **link = &loading->node->loadings;

    if (loading->stage < FLYT_NODE_LOADING_WAITING)
        free_session(loading);
    else if (loading->session)
        loading->session->prepared = NULL;
    if (loading->target)
        loading->target->loading = NULL;
    while (*link != loading)
        link = &(*link)->next;
    *link = loading->next;
    explicit_bzero(loading->its.token, sizeof loading->its.token);
}

bool flyt_node_loading_is_done(const struct flyt_node_loading *loading)
{
    return loading->stage == FLYT_NODE_LOADING_OVER && !loading->target;
}

/* A session that waits for its client, or has it, is ended by others, soon. */
void flyt_node_loading_drop(struct flyt_node_loading *loading, const char *reason)
{
    struct flyt_node_server *session = loading->session;

    if (loading->stage == FLYT_NODE_LOADING_OVER)
        return;
    bool is_waiting = loading->stage == FLYT_NODE_LOADING_WAITING && session;
    if (loading->stage < FLYT_NODE_LOADING_WAITING)
        free_session(loading);
    loading->session = NULL;
    loading->stage = FLYT_NODE_LOADING_OVER;
    flyt_node_resume_end_target(loading->target);
    if (is_waiting) {
        session->prepared = NULL;
        flyt_node_resume_end(session, reason);
    }
    set_stage(loading, FLYT_NODE_LOADING_OVER);
}

void flyt_node_loading_fail(struct flyt_node_loading *loading, enum flyt_node_loading_end how, flyt_status status,
                            const char *format, ...)
{
    char sentence[400];
    va_list arguments;

    if (loading->stage == FLYT_NODE_LOADING_OVER)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    flyt_node_loading_drop(loading, sentence);
    loading->ops->failed(loading, how, status, sentence);
}

#define FAIL(loading, status, ...) flyt_node_loading_fail(loading, FLYT_NODE_LOADING_FAILED, status, __VA_ARGS__)

bool flyt_node_loading_is_made_to_fail(struct flyt_node_loading *loading, const char *point)
{
    if (flyt_fault_point(point) != FLYT_FAULT_ERROR)
        return false;
    FAIL(loading, FLYT_STATUS_UNAVAILABLE, "a test lets it fail at %s", point);
    return true;
}

/* ---- PREPARE ---- */

void flyt_node_loading_send(struct flyt_node_loading *loading, const struct flyt_manager_link_message *message,
                            const int *fds, unsigned fd_count)
{
    flyt_node_loading_send_files(loading, message, fds, fd_count, NULL);
}

void flyt_node_loading_send_files(struct flyt_node_loading *loading, const struct flyt_manager_link_message *message,
                                  const int *fds, unsigned fd_count, struct flyt_tally *left)
{
    int status = flyt_node_link_queue_send_files(&loading->target->queue, message, fds, fd_count, left);

    if (status && status != -EPIPE) /* where it has gone, its end says so */
        FAIL(loading, FLYT_STATUS_UNAVAILABLE, "its new server process cannot be told of it: %s", strerror(-status));
}

/* The entry in the ledgers of a session that is loaded into this server, until it is the server's own. A server may
 * come back after a restart, and nobody else knows whose the entry is then. */
static uint64_t entry_of(const struct flyt_node *node, uint64_t server_id)
{
    const struct {
        char what[16];
        uint64_t server_id;
    } text = {"flyt loading", server_id};
    unsigned char digest[FLYT_TICKET_KEY_BYTES];
    uint64_t entry_id;

    flyt_hmac(node->state.node_key, sizeof node->state.node_key, &text, sizeof text, digest);
    memcpy(&entry_id, digest, sizeof entry_id);
    return entry_id ? entry_id : 1;
}

/* The session as it was, without a process, for a server that has its id. NULL: no memory. */
static struct flyt_node_server *make_session(const struct flyt_node_loading *loading,
                                             struct flyt_node_allocation *allocation, struct flyt_node_server *target)
{
    const struct flyt_node_loading_session *from = &loading->its;
    struct flyt_node_server *session = calloc(1, sizeof *session);

    if (!session)
        return NULL;
    *session = (struct flyt_node_server){.node = target->node,
                                         .gpu = target->gpu,
                                         .state = FLYT_NODE_SERVER_AWAY,
                                         .pid_fd = -1,
                                         .link_fd = -1,
                                         .allocation = allocation,
                                         .server_id = entry_of(target->node, target->server_id),
                                         .session_id = from->session_id,
                                         .ticket = {.allocation_id = from->allocation_id,
                                                    .session_id = from->session_id,
                                                    .client_pid = from->client_pid},
                                         .session_started_ms = from->started_ms,
                                         .is_encrypted = from->is_encrypted};
    memcpy(session->token, from->token, sizeof session->token);
    snprintf(session->ticket.program, sizeof session->ticket.program, "%s", from->program);
    snprintf(session->ticket.client_address, sizeof session->ticket.client_address, "%s", from->client_address);
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        session->gpus[i] = allocation->slots[i].gpu;
    return session;
}

/* An entry in each ledger; one that has come back may have it. What was made is freed with the session. */
static int join_ledgers(const struct flyt_node_loading *loading)
{
    const struct flyt_node_allocation *allocation = loading->session->allocation;
    int status = 0;

    for (unsigned i = 0; i < allocation->now.slots.slots_len && !status; i++) {
        status = allocation->slots[i].ledger
                     ? flyt_ledger_join(allocation->slots[i].ledger, loading->session->server_id)
                     : -ENOMEM;
        if (status == -EEXIST && loading->is_returned)
            status = 0;
    }
    return status;
}

/* What it will be told with SESSION, but for its client's and its own secrets. */
static int describe(struct flyt_node_loading *loading, const struct flyt_node_allocation *allocation,
                    struct flyt_manager_link_message *message)
{
    struct flyt_node_server *target = loading->target;
    const flyt_allocation *now = &allocation->now;

    memset(&message->session, 0, sizeof message->session);
    int status = flyt_node_server_describe_session(target, now, &loading->session->ticket, loading->session, message);
    message->kind = FLYT_MANAGER_LINK_PREPARE;
    message->data_bytes = 0;
    explicit_bzero(message->session.token, sizeof message->session.token);
    explicit_bzero(message->session.channel_key, sizeof message->session.channel_key);
    explicit_bzero(message->session.rejoin_secret, sizeof message->session.rejoin_secret);
    for (unsigned i = 0; i < now->slots.slots_len; i++) {
        if (now->is_suspended)
            message->session.slots[i].flags |= FLYT_MANAGER_LINK_IS_SUSPENDED;
        target->gpus[i] = allocation->slots[i].gpu;
    }
    return status;
}

static void prepare(struct flyt_node_loading *loading, struct flyt_node_allocation *allocation,
                    struct flyt_node_server *target)
{
    static struct flyt_manager_link_message message; /* the loop's thread only */

    target->server_id = flyt_node_random();
    loading->session = make_session(loading, allocation, target);
    if (!loading->session || join_ledgers(loading)) {
        target->server_id = 0;
        FAIL(loading, FLYT_STATUS_UNAVAILABLE, "the node has no memory, or the VM's ledger no entry");
        return;
    }
    loading->target = target;
    target->loading = loading;
    flyt_node_charge_lend(target, loading->session);
    flyt_node_server_set_state(target, FLYT_NODE_SERVER_PREPARING);
    flyt_node_cgroups_enter(&loading->node->cgroups, target->pid, allocation->now.vm_ip, target->cgroup);
    set_stage(loading, FLYT_NODE_LOADING_PREPARING);
    if (flyt_node_loading_is_made_to_fail(loading, "node.load.prepare"))
        return;
    int status = flyt_node_server_equip(target, allocation, loading->session);
    if (!status)
        status = describe(loading, allocation, &message);
    if (status)
        FAIL(loading, FLYT_STATUS_UNAVAILABLE, "its new server process cannot be told of it: %s", strerror(-status));
    else
        flyt_node_loading_send(loading, &message, NULL, 0);
}

/* Others of the allocation that are on their way, and not counted as its sessions yet. */
static unsigned count_loading(const struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    unsigned count = 0;

    for (const struct flyt_node_loading *loading = node->loadings; loading; loading = loading->next)
        count += loading->session && loading->stage < FLYT_NODE_LOADING_WAITING &&
                 loading->its.allocation_id == allocation->now.id;
    return count;
}

/* A session may begin, as far as its VM and the GPUs are concerned. */
static void look_for_server(struct flyt_node_loading *loading)
{
    struct flyt_node_allocation *allocation = allocation_of(loading);
    struct flyt_node *node = loading->node;
    struct flyt_error err = {0};

    if (!allocation) {
        FAIL(loading, FLYT_STATUS_NOT_FOUND, "the VM's allocation is not here any more");
        return;
    }
    const unsigned promised = flyt_node_pool_promised(node, allocation);
    const unsigned others = count_loading(node, allocation) + flyt_node_pool_let_in(node, allocation->now.id);
    int status = loading->is_running ? flyt_node_allocation_check_room(node, allocation, promised, &err)
                                     : flyt_node_allocation_check(node, allocation, others, promised, &err);
    if (status) {
        FAIL(loading, status == -EBUSY ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE, "%s", err.text);
        return;
    }
    struct flyt_node_server *warm = flyt_node_pool_take(node, allocation->slots[0].gpu);
    if (warm)
        prepare(loading, allocation, warm);
}

void flyt_node_loading_begin(struct flyt_node_loading *loading)
{
    set_stage(loading, FLYT_NODE_LOADING_WANTING);
}

void flyt_node_loading_advance(struct flyt_node_loading *loading, uint64_t load_ms)
{
    switch (loading->stage) {
    case FLYT_NODE_LOADING_WANTING:
        if (is_late(loading, FLYT_NODE_LOADING_WARM_MS))
            FAIL(loading, FLYT_STATUS_TIMEOUT, "no server process became ready in time");
        else
            look_for_server(loading);
        break;
    case FLYT_NODE_LOADING_PREPARING:
        if (is_late(loading, FLYT_NODE_LOADING_PREPARE_MS))
            FAIL(loading, FLYT_STATUS_TIMEOUT, "its new server process does not answer");
        break;
    case FLYT_NODE_LOADING_LOADING:
        if (is_late(loading, load_ms))
            FAIL(loading, FLYT_STATUS_TIMEOUT, "it was not loaded within %" PRIu64 " s", load_ms / 1000);
        break;
    case FLYT_NODE_LOADING_GIVEN:
        if (is_late(loading, loading->node->switch_ms))
            FAIL(loading, FLYT_STATUS_TIMEOUT, "its new server process has not said in time that it goes on");
        break;
    default: /* who waits for its client has a limit of its own (resume.h) */
        break;
    }
}

/* ---- one that comes back ---- */

int flyt_node_loading_return(struct flyt_node_loading *loading, struct flyt_node_allocation *allocation,
                             struct flyt_node_server *target, uint64_t move_id, uint64_t extent_count)
{
    loading->session = make_session(loading, allocation, target);
    if (!loading->session)
        return -ENOMEM;
    loading->is_returned = true;
    loading->move_id = move_id;
    loading->target = target;
    target->loading = loading;
    flyt_node_charge_lend(target, loading->session);
    flyt_node_server_set_state(target, FLYT_NODE_SERVER_PREPARING);
    struct flyt_node_server *session = loading->session;
    loading->has_extents =
        flyt_node_extents_restore(loading->node, &session->extents, session->server_id) == extent_count &&
        session->extents.count == extent_count;
    if (!loading->has_extents)
        flyt_node_extents_drop(loading->node, &session->extents, session->server_id);
    return 0;
}

/* The session may have been about to be the server's own, which its entries are then. Their charge stays what it is:
 * extents that are to be told again are not anybody else's meanwhile. */
static int take_back_entries(const struct flyt_node_loading *loading)
{
    const struct flyt_node_allocation *allocation = loading->session->allocation;
    const uint64_t target_id = loading->target->server_id;
    int status = 0;

    for (unsigned i = 0; i < allocation->now.slots.slots_len && !status; i++) {
        struct flyt_ledger *ledger = allocation->slots[i].ledger;
        if (ledger)
            status = flyt_ledger_move(ledger, target_id, loading->session->server_id,
                                      flyt_ledger_charged(ledger, target_id));
        if (status == -EEXIST)
            flyt_ledger_reclaim(ledger, target_id, NULL);
        if (status == -EEXIST || status == -ENOENT) /* it is the session's, or there is none */
            status = 0;
    }
    return status;
}

/* What is held of the slot is charged, whatever was charged before the restart. */
static int charge_held(const struct flyt_node_loading *loading, unsigned slot)
{
    const struct flyt_node_server *session = loading->session;
    struct flyt_ledger *ledger = session->allocation->slots[slot].ledger;
    uint64_t charged_bytes = flyt_ledger_charged(ledger, session->server_id);
    uint64_t held_bytes = flyt_node_extents_of_slot(&session->extents, slot);

    return held_bytes > charged_bytes ? flyt_ledger_charge_for(ledger, session->server_id, held_bytes - charged_bytes)
                                      : 0;
}

/* All of it is there: what more is charged was not let go of in time. */
static void credit_rest(const struct flyt_node_loading *loading)
{
    const struct flyt_node_server *session = loading->session;

    for (unsigned i = 0; i < session->allocation->now.slots.slots_len; i++) {
        struct flyt_ledger *ledger = session->allocation->slots[i].ledger;
        uint64_t charged_bytes = flyt_ledger_charged(ledger, session->server_id);
        uint64_t held_bytes = flyt_node_extents_of_slot(&session->extents, i);
        if (charged_bytes > held_bytes)
            flyt_ledger_release(ledger, session->server_id, charged_bytes - held_bytes);
    }
}

void flyt_node_loading_welcome(struct flyt_node_loading *loading)
{
    static struct flyt_manager_link_message message; /* the loop's thread only */
    const struct flyt_node_allocation *allocation = loading->session->allocation;

    int status = take_back_entries(loading);
    if (!status)
        status = join_ledgers(loading);
    for (unsigned i = 0; i < allocation->now.slots.slots_len && !status; i++)
        status = charge_held(loading, i);
    if (status) {
        FAIL(loading, status == -ENOMEM ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE,
             "its VM has no room for its memory after a restart of the node manager: %s", strerror(-status));
        return;
    }
    set_stage(loading, FLYT_NODE_LOADING_LOADING);
    message.kind = FLYT_MANAGER_LINK_WELCOME;
    message.data_bytes = 0;
    message.welcome = (struct flyt_manager_link_welcome){.send_extents = !loading->has_extents};
    flyt_node_loading_send(loading, &message, NULL, 0);
}

void flyt_node_loading_leave(struct flyt_node_loading *loading)
{
    struct flyt_node_server *session = loading->session;

    if (!session || !loading->target || loading->stage > FLYT_NODE_LOADING_WAITING)
        return;
    loading->target->outlives = true;
    flyt_node_charge_leave(loading->target);
    loading->session = NULL;
    if (loading->stage == FLYT_NODE_LOADING_WAITING)
        flyt_node_resume_leave(session);
    flyt_node_extents_leave(&session->extents);
    explicit_bzero(session->token, sizeof session->token);
    flyt_node_server_drop(session);
}

void flyt_node_loading_let_go(struct flyt_node_loading *loading)
{
    static struct flyt_manager_link_message message; /* the loop's thread only */

    loading->is_whole = false;
    message.kind = FLYT_MANAGER_LINK_GO_ON;
    message.data_bytes = 0;
    message.stop = (struct flyt_manager_link_stop){.move_id = loading->move_id};
    flyt_node_loading_send(loading, &message, NULL, 0);
}

void flyt_node_loading_expect(struct flyt_node_loading *loading)
{
    loading->session->prepared = loading->target;
    set_stage(loading, FLYT_NODE_LOADING_WAITING);
    flyt_node_resume_expect(loading->session);
}

/* ---- what servers say ---- */

static void on_made(struct flyt_node_loading *loading, const struct flyt_manager_link_made *made, int fd)
{
    struct flyt_node_server *session = loading->session;
    const struct flyt_node_allocation *allocation = session->allocation;
    const struct flyt_manager_link_extent *extent = &made->extent;

    if (made->outcome || extent->slot >= allocation->now.slots.slots_len) {
        flyt_close(fd);
        FAIL(loading, FLYT_STATUS_NO_CAPACITY, "its memory cannot be made: %s",
             made->outcome ? strerror(-made->outcome) : "it has a device that its VM has not");
        return;
    }
    if (flyt_node_loading_is_made_to_fail(loading, "node.load.made")) {
        flyt_close(fd);
        return;
    }
    int status = flyt_node_extent_add(loading->node, &session->extents, session->server_id, extent, fd);
    if (status) {
        FAIL(loading, FLYT_STATUS_UNAVAILABLE, "its memory cannot be held: %s", strerror(-status));
        return;
    }
    status = loading->is_returned
                 ? charge_held(loading, extent->slot)
                 : flyt_ledger_charge_for(allocation->slots[extent->slot].ledger, session->server_id, extent->bytes);
    if (status)
        FAIL(loading, status == -ENOMEM ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE,
             "its VM has no room for its memory, %" PRIu64 " bytes so far: %s", session->extents.bytes,
             strerror(-status));
}

void flyt_node_loading_extent_gone(struct flyt_node_server *server, uint64_t extent_id)
{
    struct flyt_node_loading *loading = server->loading;
    uint64_t bytes;
    unsigned slot;

    if (loading->stage != FLYT_NODE_LOADING_LOADING)
        return;
    struct flyt_node_server *session = loading->session;
    int status =
        flyt_node_extent_remove(loading->node, &session->extents, session->server_id, extent_id, &slot, &bytes);
    if (!status)
        status = flyt_ledger_release(session->allocation->slots[slot].ledger, session->server_id, bytes);
    if (status)
        FAIL(loading, FLYT_STATUS_UNAVAILABLE, "its new server process gives back memory that it did not have: %s",
             strerror(-status));
}

static void on_prepared(struct flyt_node_loading *loading, const struct flyt_manager_link_message *told)
{
    const struct flyt_manager_link_prepared *prepared = &told->prepared;

    if (prepared->outcome) {
        bool is_its = loading->stage == FLYT_NODE_LOADING_LOADING && prepared->move_id == loading->move_id;
        flyt_node_loading_fail(loading, is_its ? FLYT_NODE_LOADING_REFUSED : FLYT_NODE_LOADING_FAILED,
                               prepared->outcome == -ENOMEM ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE, "%s",
                               told->data_bytes ? (const char *)told->data : strerror(-prepared->outcome));
    } else if (loading->stage == FLYT_NODE_LOADING_PREPARING && !prepared->move_id) {
        set_stage(loading, FLYT_NODE_LOADING_LOADING);
        if (flyt_node_loading_is_made_to_fail(loading, "node.load.begin"))
            return;
        int status = loading->ops->load(loading);
        if (status)
            FAIL(loading, FLYT_STATUS_UNAVAILABLE, "its new server process cannot be given what it is made from: %s",
                 strerror(-status));
    } else if (loading->stage == FLYT_NODE_LOADING_LOADING && prepared->move_id == loading->move_id) {
        if (loading->is_running && prepared->has_stopped) { /* its client may not know what it had done there */
            loading->session->has_left_at = true;
            loading->session->left_at = (struct flyt_call_state){prepared->sequence, prepared->sequence,
                                                                 prepared->sequence, prepared->error_count};
        }
        if (loading->is_returned)
            credit_rest(loading);
        set_stage(loading, FLYT_NODE_LOADING_LOADED);
        loading->ops->loaded(loading, prepared);
    }
}

void flyt_node_loading_on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *told, int fd)
{
    struct flyt_node_loading *loading = server->loading;

    if (told->kind == FLYT_MANAGER_LINK_MADE && loading->stage == FLYT_NODE_LOADING_LOADING) {
        on_made(loading, &told->made, fd);
        return;
    }
    flyt_close(fd);
    if (told->kind == FLYT_MANAGER_LINK_PREPARED)
        on_prepared(loading, told);
}

void flyt_node_loading_use_came(struct flyt_node_server *server)
{
    struct flyt_node_loading *loading = server->loading;

    if (!loading || loading->stage != FLYT_NODE_LOADING_GIVEN || server->state != FLYT_NODE_SERVER_SERVING)
        return;
    loading->is_whole = server->use.is_coming == FLYT_MANAGER_LINK_IS_WHOLE;
    if (loading->is_whole)
        loading->ops->wake(loading);
    if (server->use.is_coming)
        return;
    server->loading = NULL;
    loading->target = NULL;
    loading->goes_on = true;
    set_stage(loading, FLYT_NODE_LOADING_OVER);
    loading->ops->gone_on(loading, server);
}

void flyt_node_loading_exit(struct flyt_node_server *server)
{
    struct flyt_node_loading *loading = server->loading;

    if (!loading)
        return;
    server->loading = NULL;
    loading->target = NULL;
    if (loading->session)
        loading->session->prepared = NULL;
    FAIL(loading, FLYT_STATUS_UNAVAILABLE, "its new server process has ended before it went on there");
    loading->ops->wake(loading); /* one that was over is done */
}

void flyt_node_loading_end_session(struct flyt_node_server *server, const char *reason)
{
    struct flyt_node_loading *loading = server->loading;

    if (!loading)
        return;
    server->loading = NULL;
    loading->target = NULL;
    flyt_node_loading_fail(loading, FLYT_NODE_LOADING_ENDED, FLYT_STATUS_CONFLICT, "%s", reason);
}

/* ---- what others ask ---- */

unsigned flyt_node_loading_wants(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_loading *loading = node->loadings; loading; loading = loading->next) {
        const struct flyt_node_allocation *allocation =
            loading->stage == FLYT_NODE_LOADING_WANTING ? allocation_of(loading) : NULL;
        count += allocation && allocation->slots[0].gpu == gpu;
    }
    return count;
}

bool flyt_node_loading_is_hasty(const struct flyt_node *node)
{
    uint64_t now_ms = flyt_clock_ms();

    for (const struct flyt_node_loading *loading = node->loadings; loading; loading = loading->next)
        if (loading->is_running && loading->stage >= FLYT_NODE_LOADING_LOADED &&
            loading->stage < FLYT_NODE_LOADING_OVER && now_ms < loading->stage_ms + HASTE_MS)
            return true;
    return false;
}

bool flyt_node_loading_has_come(struct flyt_node_loading *loading)
{
    /* That it goes on may have been said, and not been read: then its program would not be here. */
    if (loading->stage == FLYT_NODE_LOADING_GIVEN)
        FAIL(loading, FLYT_STATUS_UNAVAILABLE, "its program has lost its new server process");
    return loading->stage == FLYT_NODE_LOADING_WAITING;
}

bool flyt_node_loading_has(const struct flyt_node *node, uint64_t server_id)
{
    const struct flyt_node_loading *loading = node->loadings;

    while (loading && (!loading->session || loading->session->server_id != server_id))
        loading = loading->next;
    return loading != NULL;
}

bool flyt_node_loading_hides(const struct flyt_node_server *server)
{
    return server->loading || server->prepared;
}

/* ---- for resume.c ---- */

void flyt_node_loading_describe(const struct flyt_node_server *session, struct flyt_manager_link_resume *ret_resume)
{
    ret_resume->is_made = 1;
    ret_resume->is_held = session->prepared->loading && session->prepared->loading->is_held;
}

void flyt_node_loading_given(struct flyt_node_server *session)
{
    struct flyt_node_loading *loading = session->prepared->loading;

    loading->session = NULL;
    loading->target->use.is_coming = 1;
    set_stage(loading, FLYT_NODE_LOADING_GIVEN);
}

void flyt_node_loading_forget(struct flyt_node_server *session, bool is_ended)
{
    struct flyt_node_loading *loading = session->prepared ? session->prepared->loading : NULL;

    session->prepared = NULL;
    if (!loading)
        return;
    loading->session = NULL; /* it is freed by whoever calls this */
    flyt_node_loading_fail(loading, is_ended ? FLYT_NODE_LOADING_ENDED : FLYT_NODE_LOADING_FAILED, FLYT_STATUS_TIMEOUT,
                           "%s", *session->end_reason ? session->end_reason : "its program has not come back in time");
}
