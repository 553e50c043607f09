#include "control/node/link/broker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/server_control.h"
#include "control/node/model/allocation.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/shared_event.h"
#include "rpc/base/ticket.h"

/* ---- lists ---- */

/* fd is taken over; NULL: no memory. */
static struct flyt_node_event_page *page_new(int fd)
{
    struct flyt_node_event_page *page = malloc(sizeof *page);

    if (page)
        *page = (struct flyt_node_event_page){.ref_count = 1, .fd = fd};
    else
        flyt_close(fd);
    return page;
}

/* NULL is allowed. */
static void page_unref(struct flyt_node_event_page *page)
{
    if (!page || --page->ref_count)
        return;
    flyt_close(page->fd);
    free(page);
}

/* page: NULL, or one to which a reference is taken where this succeeds. */
static int add(struct flyt_node_shared **list, unsigned *count, unsigned count_max,
               const struct flyt_manager_link_shared *shared, bool is_event, struct flyt_node_event_page *page)
{
    struct flyt_node_shared *one = *count < count_max ? malloc(sizeof *one) : NULL;

    if (!one)
        return *count < count_max ? -ENOMEM : -ENOSPC;
    *one = (struct flyt_node_shared){.next = *list, .shared = *shared, .is_event = is_event, .page = page};
    if (page)
        page->ref_count++;
    *list = one;
    ++*count;
    return 0;
}

static void take_out(struct flyt_node_shared **link, unsigned *count)
{
    struct flyt_node_shared *one = *link;

    *link = one->next;
    --*count;
    page_unref(one->page);
    free(one);
}

static void empty(struct flyt_node_shared **list, unsigned *count)
{
    while (*list)
        take_out(list, count);
}

static bool is_token(const struct flyt_manager_link_shared *one, const struct flyt_manager_link_shared *other)
{
    return flyt_equal_in_constant_time(one->token, other->token, sizeof one->token);
}

static bool is_extent(const struct flyt_manager_link_shared *one, const struct flyt_manager_link_shared *other)
{
    return one->session_id == other->session_id && one->extent_id == other->extent_id;
}

/* ---- whose memory it is ---- */

static const struct flyt_node_extent *extent_of(const struct flyt_node_holding *has, uint64_t extent_id)
{
    const struct flyt_node_extent *extent = has->extents.first;

    while (extent && extent->extent_id != extent_id)
        extent = extent->next;
    return extent;
}

/* What one of the allocation's sessions has: at a server (NULL: without one). While it goes from one server to another
 * it may have something at both. */
struct owner {
    const struct flyt_node_session *session;
    struct flyt_node_server *server;
    struct flyt_node_holding *has; /* NULL: there are no more */
};

/* Goes through all of these. */
struct walk {
    const struct flyt_node_allocation *allocation;
    const struct flyt_node_session *session; /* the next one */
    bool is_at_target;                       /* what it has there is */
};

static struct walk walk_of(const struct flyt_node_allocation *allocation)
{
    return (struct walk){.allocation = allocation, .session = allocation->node->sessions};
}

static struct owner owner_at(const struct flyt_node_session *session, bool is_at_target)
{
    struct flyt_node_server *server = is_at_target ? session->target : session->present;

    if (is_at_target ? !server || !flyt_node_server_allocation(server) : session->state == FLYT_NODE_SESSION_LOADING)
        return (struct owner){0};
    return (struct owner){session, server, server ? &server->has : flyt_node_session_has(session)};
}

static struct owner next_owner(struct walk *walk)
{
    struct owner owner = {0};

    while (!owner.has && walk->session) {
        if (walk->session->allocation == walk->allocation)
            owner = owner_at(walk->session, walk->is_at_target);
        if (walk->is_at_target)
            walk->session = walk->session->next;
        walk->is_at_target = !walk->is_at_target;
    }
    return owner;
}

static bool has_owner(const struct flyt_node_allocation *allocation, const struct flyt_manager_link_shared *shared)
{
    struct walk walk = walk_of(allocation);
    struct owner owner;

    while ((owner = next_owner(&walk)).has)
        if (owner.session->id == shared->session_id && extent_of(owner.has, shared->extent_id))
            return true;
    return false;
}

static int compare_extents(const void *left, const void *right)
{
    const struct flyt_manager_link_shared *a = *(const struct flyt_manager_link_shared *const *)left,
                                          *b = *(const struct flyt_manager_link_shared *const *)right;

    if (a->session_id != b->session_id)
        return a->session_id < b->session_id ? -1 : 1;
    return a->extent_id < b->extent_id ? -1 : a->extent_id > b->extent_id;
}

static unsigned import_count(const struct flyt_node_allocation *allocation)
{
    struct walk walk = walk_of(allocation);
    struct owner owner;
    unsigned count = 0;

    while ((owner = next_owner(&walk)).has)
        count += owner.has->broker.import_count;
    return count;
}

/* Those of a slot, sorted by their extents, of which several sessions may have one. How many. */
static unsigned sort_imports(const struct flyt_node_allocation *allocation, unsigned slot,
                             const struct flyt_manager_link_shared **ret_imports)
{
    struct walk walk = walk_of(allocation);
    struct owner owner;
    unsigned count = 0;

    while ((owner = next_owner(&walk)).has)
        for (const struct flyt_node_shared *one = owner.has->broker.imports; one; one = one->next)
            if (one->shared.slot == slot)
                ret_imports[count++] = &one->shared;
    qsort(ret_imports, count, sizeof *ret_imports, compare_extents);
    return count;
}

int flyt_node_broker_left_bytes(const struct flyt_node_allocation *allocation, unsigned slot, uint64_t *ret_bytes)
{
    const unsigned all_count = import_count(allocation);
    const struct flyt_manager_link_shared **imports = all_count ? calloc(all_count, sizeof *imports) : NULL;
    uint64_t bytes = 0;

    if (all_count && !imports)
        return -ENOMEM;
    const unsigned count = all_count ? sort_imports(allocation, slot, imports) : 0;
    for (unsigned i = 0; i < count; i++)
        if ((!i || !is_extent(imports[i], imports[i - 1])) && !has_owner(allocation, imports[i]))
            bytes += imports[i]->bytes;
    free(imports);
    *ret_bytes = bytes;
    return 0;
}

/* Nobody is granted memory that some still have: what they have alone is charged before their entry goes that had it.
 */
static void settle(struct flyt_node_allocation *allocation)
{
    if (allocation->node->is_reattaching)
        return;
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_ledger *ledger = allocation->slots[i].ledger;
        const uint64_t entry_id = flyt_node_allocation_shared_entry(allocation);
        uint64_t bytes = 0;
        int status = flyt_node_broker_left_bytes(allocation, i, &bytes);
        if (!status && ledger && bytes)
            status = flyt_ledger_mend(ledger, entry_id, bytes, 0);
        else if (!status && ledger)
            flyt_ledger_reclaim(ledger, entry_id, NULL);
        if (status)
            flyt_warn("allocation %016" PRIx64
                      ": memory that outlived its session is not charged, vm=%s slot=%u bytes=%" PRIu64 ": %s",
                      (uint64_t)allocation->now.id, allocation->now.vm_ip, i, bytes, strerror(-status));
    }
}

/* ---- exports ---- */

/* Who has told of the token, of memory or of an event, and what it names. */
static struct owner find_export(const struct flyt_node_allocation *allocation,
                                const struct flyt_manager_link_shared *shared, bool is_event,
                                struct flyt_node_shared **ret_export)
{
    struct walk walk = walk_of(allocation);
    struct owner owner;

    while ((owner = next_owner(&walk)).has)
        for (struct flyt_node_shared *one = is_event ? owner.has->broker.events : owner.has->broker.exports; one;
             one = one->next)
            if (is_token(&one->shared, shared)) {
                *ret_export = one;
                return owner;
            }
    return (struct owner){0};
}

/* fd stays the caller's; -1: none. `found` says whose and which it is; NULL: nothing. */
static void answer(struct flyt_node_server *server, const struct flyt_manager_link_shared *question, int outcome,
                   const struct flyt_manager_link_shared *found, int fd)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);

    if (!message) {
        flyt_node_server_end(server, "its node manager has no memory");
        return;
    }
    message->kind = FLYT_MANAGER_LINK_BROKERED;
    message->shared = found ? *found : *question;
    message->shared.number = question->number;
    message->shared.outcome = outcome;
    message->shared.has_memory = fd >= 0;
    flyt_node_server_send(server, message, fd >= 0 ? &fd : NULL, fd >= 0);
    free(message);
}

static int export(struct flyt_node_server *server, const struct flyt_manager_link_shared *shared)
{
    struct flyt_node_brokerage *broker = &server->has.broker;
    const struct flyt_node_extent *extent = extent_of(&server->has, shared->extent_id);
    struct flyt_node_shared *known;
    const struct owner owner = find_export(flyt_node_server_allocation(server), shared, false, &known);

    if (!extent)
        return -ENOENT;
    if (owner.has)
        return owner.server == server && known->shared.extent_id == shared->extent_id ? 0 : -EEXIST;
    return add(&broker->exports, &broker->export_count, FLYT_NODE_SHARED_MAX, shared, false, NULL);
}

/* What a session of the allocation has of another one's event; NULL: none has it. */
static struct flyt_node_event_page *find_kept(const struct flyt_node_allocation *allocation,
                                              const struct flyt_manager_link_shared *shared)
{
    struct walk walk = walk_of(allocation);
    struct owner owner;

    while ((owner = next_owner(&walk)).has)
        for (const struct flyt_node_shared *one = owner.has->broker.event_imports; one; one = one->next)
            if (is_token(&one->shared, shared)) {
                one->page->ref_count++;
                return one->page;
            }
    return NULL;
}

/* What a server has of another session's event is kept for sessions that had the event, where its maker has destroyed
 * it or comes back. 0, -ENOMEM, -ENOSPC. */
static int keep_event(struct flyt_node_server *server, const struct flyt_manager_link_shared *shared,
                      struct flyt_node_event_page *page)
{
    struct flyt_node_brokerage *broker = &server->has.broker;

    return add(&broker->event_imports, &broker->event_import_count, FLYT_NODE_SHARED_EVENTS_MAX, shared, true, page);
}

/* The page of the first time is the event's: other sessions have it already. */
static void export_event(struct flyt_node_server *server, const struct flyt_manager_link_shared *shared, int fd)
{
    struct flyt_node_brokerage *broker = &server->has.broker;
    struct flyt_node_shared *known;
    struct flyt_node_event_page *page = page_new(fd);
    const struct owner owner = shared->is_restored
                                   ? (struct owner){0}
                                   : find_export(flyt_node_server_allocation(server), shared, true, &known);

    struct flyt_node_event_page *kept = owner.has ? NULL : find_kept(flyt_node_server_allocation(server), shared);
    if (kept) { /* its maker has come back */
        page_unref(page);
        page = kept;
    }
    if (!page) {
        answer(server, shared, -ENOMEM, NULL, -1);
    } else if (owner.has) {
        bool is_own = owner.server == server;
        answer(server, shared, is_own ? 0 : -EEXIST, NULL, is_own ? known->page->fd : -1);
    } else if (shared->is_restored) {
        int status = keep_event(server, shared, page);
        answer(server, shared, status, NULL, status ? -1 : page->fd);
    } else {
        int status = add(&broker->events, &broker->event_count, FLYT_NODE_SHARED_EVENTS_MAX, shared, true, page);
        answer(server, shared, status, NULL, status ? -1 : page->fd);
    }
    page_unref(page);
}

static void end_token(struct flyt_node_shared **link, unsigned *count, const struct flyt_manager_link_shared *shared)
{
    while (*link && !is_token(&(*link)->shared, shared))
        link = &(*link)->next;
    if (*link)
        take_out(link, count);
}

static void end_export(struct flyt_node_server *server, const struct flyt_manager_link_shared *shared)
{
    end_token(&server->has.broker.exports, &server->has.broker.export_count, shared);
    end_token(&server->has.broker.events, &server->has.broker.event_count, shared);
    end_token(&server->has.broker.event_imports, &server->has.broker.event_import_count, shared);
}

/* ---- imports ---- */

/* It has a server that goes on, or makes its objects again. */
static bool is_served(const struct flyt_node_allocation *allocation, uint64_t session_id)
{
    struct walk walk = walk_of(allocation);
    struct owner owner;

    while ((owner = next_owner(&walk)).has)
        if (owner.session->id == session_id && owner.server && owner.server->state == FLYT_NODE_SERVER_SERVING)
            return true;
    return false;
}

/* Whether it may still tell of what it exports: its client is on its way, or makes its objects again. That exports
 * first, so that one which wants something has nothing more to tell. */
static bool may_export(const struct owner *owner)
{
    if (!owner->server)
        return owner->session->state == FLYT_NODE_SESSION_WAITING;
    switch (owner->server->state) {
    case FLYT_NODE_SERVER_LEFT:
        return !is_served(owner->session->allocation, owner->session->id);
    case FLYT_NODE_SERVER_SERVING:
        return owner->has->use.is_coming == FLYT_MANAGER_LINK_IS_COMING && !owner->has->broker.wanted;
    default:
        return false;
    }
}

static bool is_any_awaited(const struct flyt_node_server *server)
{
    struct walk walk = walk_of(flyt_node_server_allocation(server));
    struct owner owner;

    while ((owner = next_owner(&walk)).has)
        if (owner.session->id != server->session->id && may_export(&owner))
            return true;
    return false;
}

/* Never recorded: NULL where none can be made. */
static struct flyt_node_event_page *make_page(void)
{
    struct flyt_shared_event *event;
    int fd;

    if (flyt_shared_event_new(&event))
        return NULL;
    int status = flyt_shared_event_descriptor(event, &fd);
    flyt_shared_event_close(event);
    return status ? NULL : page_new(fd);
}

/* Its session is written to an image, together with all that share with it by then: others wait for the end of that. */
static bool is_being_written(const struct flyt_node_server *server)
{
    return server && server->role && server->role->ops->kind == FLYT_NODE_ROLE_SAVE;
}

/* A reference to the page that the session is to have; NULL: none. */
static struct flyt_node_event_page *find_page(const struct flyt_node_server *server,
                                              const struct flyt_manager_link_shared *question)
{
    struct flyt_node_shared *known;

    if (find_export(flyt_node_server_allocation(server), question, true, &known).has) {
        known->page->ref_count++;
        return known->page;
    }
    return question->is_restored ? find_kept(flyt_node_server_allocation(server), question) : NULL;
}

/* False: it cannot be told yet. An event that its maker has destroyed is there for sessions that had it, and do where
 * they go on: all its records are complete, so that a new page is as good. */
static bool try_event(struct flyt_node_server *server, const struct flyt_manager_link_shared *question)
{
    struct flyt_node_shared *known;
    const struct owner owner = find_export(flyt_node_server_allocation(server), question, true, &known);

    if (is_being_written(owner.server) && !is_being_written(server))
        return false;
    struct flyt_node_event_page *page = find_page(server, question);
    if (!page && (server->node->is_reattaching || (question->is_restored && is_any_awaited(server))))
        return false;
    if (!page && question->is_restored)
        page = make_page();
    int status = page ? keep_event(server, question, page) : question->is_restored ? -ENOMEM : -ENOENT;
    answer(server, question, status, NULL, status ? -1 : page->fd);
    page_unref(page);
    return true;
}

/* What it has here is not what it goes on with. */
static bool has_left(const struct owner *owner)
{
    const struct flyt_node_session *session = owner->session;

    if (owner->server)
        return owner->server->state == FLYT_NODE_SERVER_LEFT || owner->server->state == FLYT_NODE_SERVER_ENDING;
    return session->state == FLYT_NODE_SESSION_ENDING ||
           (session->role && session->role->ops->kind == FLYT_NODE_ROLE_MOVE);
}

/* False: it cannot be told yet. */
static bool try_memory(struct flyt_node_server *server, const struct flyt_manager_link_shared *question)
{
    struct flyt_node_brokerage *broker = &server->has.broker;
    struct flyt_node_shared *known;
    const struct owner owner = find_export(flyt_node_server_allocation(server), question, false, &known);
    const struct flyt_node_extent *extent = owner.has ? extent_of(owner.has, known->shared.extent_id) : NULL;
    bool is_there = extent && !has_left(&owner) && owner.has->gpus[extent->slot] == server->has.gpus[extent->slot];

    if ((!extent && server->node->is_reattaching) ||
        (extent && is_being_written(owner.server) && !is_being_written(server)))
        return false;
    if (!is_there && (question->is_restored || (owner.has && has_left(&owner))) && is_any_awaited(server))
        return false;
    if (!is_there) {
        answer(server, question, -ENOENT, NULL, -1);
        return true;
    }
    struct flyt_manager_link_shared import = known->shared;
    import.session_id = owner.session->id;
    import.bytes = extent->bytes;
    import.slot = extent->slot;
    int status = add(&broker->imports, &broker->import_count, FLYT_NODE_SHARED_MAX, &import, false, NULL);
    answer(server, question, status, status ? NULL : &import, status ? -1 : extent->fd);
    return true;
}

static bool try_import(struct flyt_node_server *server, const struct flyt_manager_link_shared *question, bool is_event)
{
    return is_event ? try_event(server, question) : try_memory(server, question);
}

/* Whether any was answered. */
static bool retry(struct flyt_node_server *server)
{
    const unsigned count = server->has.broker.wanted_count;

    for (struct flyt_node_shared **link = &server->has.broker.wanted; *link;) {
        if (try_import(server, &(*link)->shared, (*link)->is_event))
            take_out(link, &server->has.broker.wanted_count);
        else
            link = &(*link)->next;
    }
    return server->has.broker.wanted_count < count;
}

void flyt_node_broker_look(const struct flyt_node_allocation *allocation)
{
    bool is_any;

    do {
        is_any = false;
        for (struct flyt_node_server *server = allocation->node->servers; server; server = server->next)
            is_any |= flyt_node_server_allocation(server) == allocation && retry(server);
    } while (is_any);
}

static void import(struct flyt_node_server *server, const struct flyt_manager_link_shared *question, bool is_event)
{
    struct flyt_node_brokerage *broker = &server->has.broker;

    if (try_import(server, question, is_event))
        return;
    int status = add(&broker->wanted, &broker->wanted_count, FLYT_NODE_WANTED_MAX, question, is_event, NULL);
    if (status)
        answer(server, question, status, NULL, -1);
    else
        flyt_node_broker_look(flyt_node_server_allocation(server));
}

static void end_import(struct flyt_node_server *server, const struct flyt_manager_link_shared *shared)
{
    struct flyt_node_shared **link = &server->has.broker.imports;

    while (*link && !is_extent(&(*link)->shared, shared))
        link = &(*link)->next;
    if (!*link)
        return;
    take_out(link, &server->has.broker.import_count);
    settle(flyt_node_server_allocation(server));
}

/* ---- moving ---- */

bool flyt_node_broker_shares(const struct flyt_node_holding *has)
{
    const struct flyt_node_brokerage *broker = &has->broker;

    return broker->exports || broker->imports || broker->events || broker->event_imports;
}

static bool is_exported(const struct flyt_node_allocation *allocation, const struct flyt_manager_link_shared *import)
{
    struct walk walk = walk_of(allocation);
    struct owner owner;

    while ((owner = next_owner(&walk)).has)
        for (const struct flyt_node_shared *one = owner.session->id == import->session_id ? owner.has->broker.exports
                                                                                          : NULL;
             one; one = one->next)
            if (!memcmp(one->shared.token, import->token, sizeof import->token)) /* neither is a stranger's */
                return true;
    return false;
}

const struct flyt_node_session *flyt_node_broker_find_stray(const struct flyt_node_allocation *allocation)
{
    struct walk walk = walk_of(allocation);
    struct owner owner;

    while ((owner = next_owner(&walk)).has)
        for (const struct flyt_node_shared *one = owner.has->broker.imports; one; one = one->next)
            if (!is_exported(allocation, &one->shared))
                return owner.session;
    return NULL;
}

/* ---- what happens ---- */

void flyt_node_broker_on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *message,
                                 int fd)
{
    struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
    struct flyt_node_brokerage *broker = &server->has.broker;
    const struct flyt_manager_link_shared *shared = &message->shared;

    if (!allocation || shared->slot >= allocation->now.slots.slots_len) {
        flyt_close(fd);
        return;
    }
    switch (message->kind) {
    case FLYT_MANAGER_LINK_EXPORT:
        answer(server, shared, export(server, shared), NULL, -1);
        flyt_node_broker_look(allocation);
        break;
    case FLYT_MANAGER_LINK_EVENT_EXPORT:
        export_event(server, shared, fd);
        flyt_node_broker_look(allocation);
        break;
    case FLYT_MANAGER_LINK_EVENT_IMPORT:
        import(server, shared, true);
        break;
    case FLYT_MANAGER_LINK_EXPORT_GONE:
        end_export(server, shared);
        break;
    case FLYT_MANAGER_LINK_IMPORT:
        import(server, shared, false);
        break;
    case FLYT_MANAGER_LINK_IMPORT_HELD:
        if (add(&broker->imports, &broker->import_count, FLYT_NODE_SHARED_MAX, shared, false, NULL))
            flyt_warn("session %016" PRIx64 ": what it has of another session's memory is not known here",
                      server->session->id);
        settle(allocation);
        break;
    default:
        end_import(server, shared);
    }
}

void flyt_node_broker_extent_gone(struct flyt_node_server *server, uint64_t extent_id)
{
    for (struct flyt_node_shared **link = &server->has.broker.exports; *link;) {
        if ((*link)->shared.extent_id == extent_id)
            take_out(link, &server->has.broker.export_count);
        else
            link = &(*link)->next;
    }
    settle(flyt_node_server_allocation(server));
}

void flyt_node_broker_exit(struct flyt_node_server *server)
{
    bool has_imports = server->has.broker.imports != NULL;

    empty(&server->has.broker.imports, &server->has.broker.import_count);
    empty(&server->has.broker.event_imports, &server->has.broker.event_import_count);
    empty(&server->has.broker.wanted, &server->has.broker.wanted_count);
    if (has_imports && flyt_node_server_allocation(server))
        settle(flyt_node_server_allocation(server));
}

void flyt_node_broker_end(struct flyt_node_allocation *allocation, struct flyt_node_holding *has)
{
    flyt_node_broker_free(has);
    settle(allocation);
}

void flyt_node_broker_move(struct flyt_node_holding *from, struct flyt_node_server *to)
{
    to->has.broker.exports = from->broker.exports;
    to->has.broker.export_count = from->broker.export_count;
    to->has.broker.events = from->broker.events;
    to->has.broker.event_count = from->broker.event_count;
    from->broker.exports = from->broker.events = NULL;
    from->broker.export_count = from->broker.event_count = 0;
    flyt_node_broker_look(flyt_node_server_allocation(to));
}

void flyt_node_broker_free(struct flyt_node_holding *has)
{
    struct flyt_node_brokerage *broker = &has->broker;

    empty(&broker->exports, &broker->export_count);
    empty(&broker->events, &broker->event_count);
    empty(&broker->imports, &broker->import_count);
    empty(&broker->event_imports, &broker->event_import_count);
    empty(&broker->wanted, &broker->wanted_count);
}

void flyt_node_broker_settle_all(struct flyt_node *node)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        if (flyt_node_server_allocation(server))
            retry(server);
    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next)
        settle(allocation);
}
