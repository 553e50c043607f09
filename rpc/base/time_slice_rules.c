#include "rpc/base/time_slice_rules.h"

#include <errno.h>
#include <string.h>

#define MS 1000000ull

static const uint64_t grant_min_ns = 2 * MS, grant_max_ns = 20 * MS;
/* What is kept of overuse: a tenant whose kernels take minutes is not shut out for a day. */
static const int64_t debt_max_ns = 60000 * (int64_t)MS;
/* Of a tenant without a minimum where minima take all: in thousandths. */
enum { WEIGHT_MIN = 5 };

static uint64_t load(const _Atomic(uint64_t) *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void add(_Atomic(uint64_t) *word, uint64_t more)
{
    atomic_store_explicit(word, load(word) + more, memory_order_relaxed);
}

static uint64_t window_ns(const struct flyt_time_slice_tenant *tenant)
{
    return tenant->share.window_ms * MS;
}

static bool is_capped(const struct flyt_time_slice_tenant *tenant)
{
    return tenant->share.maximum_pct && tenant->share.maximum_pct < 100;
}

static int64_t part_of(uint64_t ns, uint32_t pct)
{
    return (int64_t)(ns * pct / 100);
}

static uint64_t grant_ns(const struct flyt_time_slice_tenant *tenant)
{
    uint64_t ns = window_ns(tenant) / 10;

    return ns < grant_min_ns ? grant_min_ns : ns > grant_max_ns ? grant_max_ns : ns;
}

/* The least of its maximum for which it is worth to begin. */
static int64_t beginning_ns(const struct flyt_time_slice_tenant *tenant)
{
    int64_t whole = part_of(window_ns(tenant), tenant->share.maximum_pct);
    int64_t grant = (int64_t)grant_ns(tenant);

    return (grant < whole ? grant : whole) / 2;
}

/* ---- what servers do ---- */

void flyt_time_slice_set_idle_word(_Atomic(uint64_t) *word, bool is_idle, uint64_t now_ns)
{
    uint64_t idle = load(word);

    /* One word, so that it is true at every moment: even: idle so long in all; odd: the moment at which that would have
     * begun without a break. The lowest bit is not part of the time. */
    if (is_idle && !(idle & 1))
        atomic_store_explicit(word, ((now_ns - idle) & ~1ull) | 1, memory_order_relaxed);
    else if (!is_idle && (idle & 1))
        atomic_store_explicit(word, (now_ns - idle) & ~1ull, memory_order_relaxed);
}

void flyt_time_slice_set_idle(struct flyt_time_slice_server *server, bool is_idle, uint64_t now_ns)
{
    flyt_time_slice_set_idle_word(&server->idle, is_idle, now_ns);
}

static uint64_t idle_ns(const struct flyt_time_slice_server *server, uint64_t now_ns)
{
    uint64_t idle = load(&server->idle);

    if (!(idle & 1))
        return idle;
    return now_ns > idle ? now_ns - idle : 0;
}

static bool is_of(const struct flyt_time_slice_server *server, int32_t tenant)
{
    return server->server_id && (int32_t)server->tenant == tenant;
}

static bool has_server(const struct flyt_time_slice_table *table, int32_t tenant, enum flyt_time_slice_state state)
{
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++) {
        const struct flyt_time_slice_server *server = &table->servers[i];
        if (is_of(server, tenant) && server->state == state && !server->is_missing)
            return true;
    }
    return false;
}

static bool is_waiting(const struct flyt_time_slice_table *table, int32_t tenant)
{
    return has_server(table, tenant, FLYT_TIME_SLICE_WAITS);
}

static bool is_running(const struct flyt_time_slice_table *table, int32_t tenant)
{
    return has_server(table, tenant, FLYT_TIME_SLICE_RUNS);
}

static bool is_active(const struct flyt_time_slice_table *table, int32_t tenant)
{
    return table->holder == tenant || is_waiting(table, tenant) || is_running(table, tenant);
}

/* ---- counting ---- */

/* Thousandths of the time that it is to have while all who are active want theirs. */
static uint64_t weight_of(const struct flyt_time_slice_table *table, int32_t tenant)
{
    unsigned count = 0, minima = 0;

    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++) {
        if (!table->tenants[i].tenant_id || (i != tenant && !is_active(table, i)))
            continue;
        count++;
        minima += table->tenants[i].share.minimum_pct;
    }
    unsigned spare = minima < 100 ? 100 - minima : 0;
    unsigned weight = table->tenants[tenant].share.minimum_pct * 10 + (count ? spare * 10 / count : 0);
    return weight < WEIGHT_MIN ? WEIGHT_MIN : weight;
}

static bool is_anybody_else_waiting(const struct flyt_time_slice_table *table)
{
    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++)
        if (i != table->holder && table->tenants[i].tenant_id && is_waiting(table, i))
            return true;
    return false;
}

/* How much of the time since then no server of the holder had work. */
static uint64_t take_idle(struct flyt_time_slice_table *table, uint64_t span_ns, uint64_t now_ns)
{
    uint64_t least = span_ns;

    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++) {
        struct flyt_time_slice_server *server = &table->servers[i];
        if (!is_of(server, table->holder) || server->state != FLYT_TIME_SLICE_RUNS)
            continue;
        uint64_t ns = idle_ns(server, now_ns);
        uint64_t more = ns > server->idle_settled_ns ? ns - server->idle_settled_ns : 0;
        server->idle_settled_ns = ns;
        least = more < least ? more : least;
    }
    return least;
}

static int64_t at_least(int64_t value, int64_t least)
{
    return value > least ? value : least;
}

static void charge(struct flyt_time_slice_table *table, uint64_t span_ns, uint64_t now_ns)
{
    struct flyt_time_slice_tenant *tenant = &table->tenants[table->holder];
    uint64_t idle = take_idle(table, span_ns, now_ns);
    uint64_t used_ns = is_anybody_else_waiting(table) ? span_ns : span_ns - idle;

    if (table->is_owed)
        tenant->owed_ns = at_least(tenant->owed_ns - (int64_t)used_ns, -debt_max_ns);
    else /* what nobody else had wanted makes no debt */
        tenant->owed_ns = at_least(tenant->owed_ns - (int64_t)used_ns, tenant->owed_ns < 0 ? tenant->owed_ns : 0);
    tenant->left_ns = at_least(tenant->left_ns - (int64_t)used_ns, -debt_max_ns);
    tenant->virtual_ns += used_ns * 1000 / weight_of(table, table->holder);
    add(&tenant->used_ns, used_ns);
    if (now_ns > load(&table->until_ns)) {
        uint64_t over_ns = now_ns - load(&table->until_ns);
        add(&tenant->overused_ns, over_ns < used_ns ? over_ns : used_ns);
    }
}

/* Whether a server of it has work on the GPU for which others do not wait any longer. */
static bool is_over(const struct flyt_time_slice_table *table, int32_t tenant)
{
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (is_of(&table->servers[i], tenant) && table->servers[i].is_missing == FLYT_TIME_SLICE_IS_OVER)
            return true;
    return false;
}

/* Beside whoever has the token. */
static void charge_beside(struct flyt_time_slice_table *table, int32_t place, uint64_t span_ns)
{
    struct flyt_time_slice_tenant *tenant = &table->tenants[place];

    tenant->owed_ns = at_least(tenant->owed_ns - (int64_t)span_ns, -debt_max_ns);
    tenant->left_ns = at_least(tenant->left_ns - (int64_t)span_ns, -debt_max_ns);
    tenant->virtual_ns += span_ns * 1000 / weight_of(table, place);
    add(&tenant->used_ns, span_ns);
    add(&tenant->overused_ns, span_ns);
}

static void fill(struct flyt_time_slice_table *table, int32_t place, uint64_t span_ns)
{
    struct flyt_time_slice_tenant *tenant = &table->tenants[place];

    if (tenant->share.minimum_pct && is_active(table, place)) {
        int64_t whole = part_of(window_ns(tenant), tenant->share.minimum_pct);
        tenant->owed_ns += part_of(span_ns, tenant->share.minimum_pct);
        tenant->owed_ns = tenant->owed_ns < whole ? tenant->owed_ns : whole;
    }
    if (is_capped(tenant)) {
        int64_t whole = part_of(window_ns(tenant), tenant->share.maximum_pct);
        tenant->left_ns += part_of(span_ns, tenant->share.maximum_pct);
        tenant->left_ns = tenant->left_ns < whole ? tenant->left_ns : whole;
    }
    if (place != table->holder && is_waiting(table, place))
        add(&tenant->waited_ns, span_ns);
}

/* Counts what has passed. Before every change of who waits or works. */
static void settle(struct flyt_time_slice_table *table, uint64_t now_ns)
{
    if (now_ns <= table->settled_ns)
        return;
    uint64_t span_ns = now_ns - table->settled_ns;
    table->settled_ns = now_ns;
    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++)
        if (table->tenants[i].tenant_id) {
            fill(table, i, span_ns);
            if (i != table->holder && is_over(table, i))
                charge_beside(table, i, span_ns);
        }
    if (table->holder >= 0 && table->is_taken)
        charge(table, span_ns, now_ns);
}

/* ---- who is next ---- */

static bool may_begin(const struct flyt_time_slice_table *table, int32_t place)
{
    const struct flyt_time_slice_tenant *tenant = &table->tenants[place];

    return tenant->tenant_id && (is_waiting(table, place) || is_running(table, place)) &&
           (!is_capped(tenant) || tenant->left_ns >= beginning_ns(tenant) ||
            (place == table->holder && tenant->left_ns > beginning_ns(tenant) / 4));
}

static bool is_owed_more(const struct flyt_time_slice_tenant *one, const struct flyt_time_slice_tenant *other)
{
    if (one->share.priority != other->share.priority)
        return one->share.priority > other->share.priority;
    return one->owed_ns * other->share.minimum_pct > other->owed_ns * one->share.minimum_pct;
}

static bool has_had_less(const struct flyt_time_slice_tenant *one, const struct flyt_time_slice_tenant *other)
{
    if (one->share.priority != other->share.priority)
        return one->share.priority > other->share.priority;
    return one->virtual_ns < other->virtual_ns;
}

/* -1: nobody waits that may begin. */
static int32_t next_of(const struct flyt_time_slice_table *table, bool *ret_is_owed)
{
    int32_t owed = -1, other = -1;

    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++) {
        const struct flyt_time_slice_tenant *tenant = &table->tenants[i];
        if (!may_begin(table, i))
            continue;
        if (tenant->share.minimum_pct && tenant->owed_ns > 0 &&
            (owed < 0 || is_owed_more(tenant, &table->tenants[owed])))
            owed = i;
        if (other < 0 || has_had_less(tenant, &table->tenants[other]))
            other = i;
    }
    *ret_is_owed = owed >= 0;
    return owed >= 0 ? owed : other;
}

static void wake(struct flyt_time_slice_table *table, int32_t tenant, struct flyt_time_slice_answer *answer)
{
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++) {
        struct flyt_time_slice_server *server = &table->servers[i];
        if (i == answer->asker || !is_of(server, tenant) || server->state != FLYT_TIME_SLICE_WAITS)
            continue;
        atomic_fetch_add_explicit(&server->wake, 1, memory_order_release);
        answer->woken[i / 64] |= 1ull << (i % 64);
    }
}

static void set_end(struct flyt_time_slice_table *table, int32_t place, bool is_owed, uint64_t now_ns)
{
    const struct flyt_time_slice_tenant *tenant = &table->tenants[place];
    uint64_t ns = grant_ns(tenant);

    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++)
        if (i != place && table->tenants[i].tenant_id && is_waiting(table, i) && grant_ns(&table->tenants[i]) < ns)
            ns = grant_ns(&table->tenants[i]);
    if (is_capped(tenant) && tenant->left_ns < (int64_t)ns)
        ns = (uint64_t)tenant->left_ns;
    table->is_owed = is_owed;
    atomic_store_explicit(&table->until_ns, now_ns + ns, memory_order_relaxed);
    table->virtual_ns = tenant->virtual_ns > table->virtual_ns ? tenant->virtual_ns : table->virtual_ns;
}

static void grant_next(struct flyt_time_slice_table *table, uint64_t now_ns, struct flyt_time_slice_answer *answer)
{
    bool is_owed;
    int32_t next = next_of(table, &is_owed);

    if (next < 0)
        return;
    set_end(table, next, is_owed, now_ns);
    table->granted_ns = now_ns;
    table->is_taken = table->is_recalled = 0;
    add(&table->tenants[next].grant_count, 1);
    table->holder = next;
    wake(table, next, answer);
}

/* Its end has come: goes on, or is to stop. */
static void renew(struct flyt_time_slice_table *table, uint64_t now_ns)
{
    bool is_owed;

    if (next_of(table, &is_owed) == table->holder) {
        set_end(table, table->holder, is_owed, now_ns);
    } else {
        table->is_recalled = 1;
        table->recalled_ns = now_ns;
    }
}

static void put_over(struct flyt_time_slice_server *server, uint64_t since_ns)
{
    server->is_missing = FLYT_TIME_SLICE_IS_OVER;
    server->state = FLYT_TIME_SLICE_IDLE;
    server->over_ns = since_ns;
}

/* Whoever does not take what he was given, or has stopped in the middle of it, is not waited for; who has still work on
 * the GPU when his time is over, not for ever. */
static void drop_missing(struct flyt_time_slice_table *table, uint64_t now_ns)
{
    bool is_overdue = table->is_recalled && now_ns >= table->recalled_ns + FLYT_TIME_SLICE_OVERRUN_MS * MS &&
                      is_anybody_else_waiting(table);
    bool is_late = !table->is_taken && now_ns >= table->granted_ns + FLYT_TIME_SLICE_TAKE_MS * MS;

    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++) {
        struct flyt_time_slice_server *server = &table->servers[i];
        if (!is_of(server, table->holder))
            continue;
        if (is_late && server->state == FLYT_TIME_SLICE_WAITS)
            server->is_missing = FLYT_TIME_SLICE_IS_LOST;
        uint64_t last_ns = load(&server->seen_ns);
        last_ns = last_ns > load(&table->until_ns) ? last_ns : load(&table->until_ns);
        if (server->state == FLYT_TIME_SLICE_RUNS && now_ns >= last_ns + FLYT_TIME_SLICE_LOST_MS * MS) {
            server->is_missing = FLYT_TIME_SLICE_IS_LOST;
            server->state = FLYT_TIME_SLICE_IDLE;
            /* While it stood still the GPU did nothing for it. */
            struct flyt_time_slice_tenant *tenant = &table->tenants[table->holder];
            tenant->owed_ns = at_least(tenant->owed_ns, 0);
            tenant->left_ns = at_least(tenant->left_ns, 0);
            tenant->virtual_ns = tenant->virtual_ns < table->virtual_ns ? tenant->virtual_ns : table->virtual_ns;
        }
        if (server->state == FLYT_TIME_SLICE_RUNS && is_overdue)
            put_over(server, table->recalled_ns);
    }
}

static void move_on(struct flyt_time_slice_table *table, uint64_t now_ns, struct flyt_time_slice_answer *answer)
{
    if (table->holder >= 0) {
        drop_missing(table, now_ns);
        bool has_left = !is_running(table, table->holder) && (table->is_taken || !is_waiting(table, table->holder));
        if (has_left)
            table->holder = -1;
        else if (table->is_taken && !table->is_recalled && now_ns >= load(&table->until_ns))
            renew(table, now_ns);
    }
    if (table->holder < 0)
        grant_next(table, now_ns, answer);
}

/* One has come who is next: who has the token is not to keep it for a whole grant. */
static void shorten(struct flyt_time_slice_table *table, int32_t tenant, uint64_t now_ns)
{
    uint64_t end_ns = table->granted_ns + grant_min_ns;
    bool is_owed;

    end_ns = end_ns > now_ns ? end_ns : now_ns;
    if (table->holder >= 0 && table->holder != tenant && end_ns < load(&table->until_ns) &&
        next_of(table, &is_owed) == tenant)
        atomic_store_explicit(&table->until_ns, end_ns, memory_order_relaxed);
}

/* When it is worth to look again though nobody says anything. */
static uint64_t again(const struct flyt_time_slice_table *table, uint64_t now_ns)
{
    uint64_t first_ns = UINT64_MAX;

    if (table->holder >= 0 && !table->is_taken)
        return table->granted_ns + FLYT_TIME_SLICE_TAKE_MS * MS;
    if (table->holder >= 0 && !table->is_recalled)
        return load(&table->until_ns) > now_ns ? load(&table->until_ns) : now_ns;
    if (table->holder >= 0) {
        uint64_t lost_ns = load(&table->until_ns) + FLYT_TIME_SLICE_LOST_MS * MS;
        return lost_ns > now_ns ? lost_ns : now_ns + FLYT_TIME_SLICE_LOST_MS * MS / 4;
    }
    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++) {
        const struct flyt_time_slice_tenant *tenant = &table->tenants[i];
        if (!tenant->tenant_id || !is_waiting(table, i) || !is_capped(tenant))
            continue;
        int64_t lack_ns = at_least(beginning_ns(tenant) - tenant->left_ns, 0);
        uint64_t at_ns = now_ns + (uint64_t)lack_ns * 100 / tenant->share.maximum_pct + 1000;
        first_ns = at_ns < first_ns ? at_ns : first_ns;
    }
    return first_ns;
}

static void finish(struct flyt_time_slice_table *table, uint64_t now_ns, struct flyt_time_slice_answer *answer)
{
    move_on(table, now_ns, answer);
    bool is_wanted = false;
    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX && !is_wanted; i++)
        is_wanted = i != table->holder && is_waiting(table, i) && may_begin(table, i);
    atomic_store_explicit(&table->is_wanted, is_wanted, memory_order_relaxed);
    answer->again_ns = again(table, now_ns);
}

/* Becomes active: brings neither credit nor debt of the time in which it, or all others, wanted nothing. */
static void activate(struct flyt_time_slice_table *table, int32_t place)
{
    struct flyt_time_slice_tenant *tenant = &table->tenants[place];
    uint64_t least_ns = UINT64_MAX;

    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++) {
        const struct flyt_time_slice_tenant *other = &table->tenants[i];
        if (i != place && other->tenant_id && other->share.priority == tenant->share.priority && is_active(table, i) &&
            other->virtual_ns < least_ns)
            least_ns = other->virtual_ns;
    }
    if (least_ns == UINT64_MAX)
        least_ns = table->virtual_ns;
    if (tenant->virtual_ns < least_ns)
        tenant->virtual_ns = least_ns;
}

/* ---- calls ---- */

void flyt_time_slice_table_look(struct flyt_time_slice_table *table, uint64_t now_ns,
                                struct flyt_time_slice_answer *ret_answer)
{
    *ret_answer = (struct flyt_time_slice_answer){.again_ns = UINT64_MAX, .asker = FLYT_TIME_SLICE_SERVERS_MAX};
    settle(table, now_ns);
    finish(table, now_ns, ret_answer);
}

bool flyt_time_slice_table_take(struct flyt_time_slice_table *table, unsigned place, uint64_t now_ns,
                                struct flyt_time_slice_answer *ret_answer)
{
    struct flyt_time_slice_server *server = &table->servers[place];
    bool is_its = is_of(server, table->holder) && server->state == FLYT_TIME_SLICE_WAITS && !table->is_recalled;

    *ret_answer = (struct flyt_time_slice_answer){.again_ns = UINT64_MAX, .asker = place};
    settle(table, now_ns);
    if (is_its) {
        server->state = FLYT_TIME_SLICE_RUNS;
        server->is_missing = 0;
        server->idle_settled_ns = idle_ns(server, now_ns);
        table->is_taken = 1;
    }
    finish(table, now_ns, ret_answer);
    return is_its;
}

static bool has_any_server(const struct flyt_time_slice_table *table, int32_t tenant)
{
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (is_of(&table->servers[i], tenant))
            return true;
    return false;
}

unsigned flyt_time_slice_table_part(const struct flyt_time_slice_table *table, unsigned tenant)
{
    const struct flyt_time_slice_tenant *its = &table->tenants[tenant];
    unsigned count = 0, minima = 0;

    if (!its->tenant_id || !has_any_server(table, (int32_t)tenant))
        return 0;
    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++) {
        if (!table->tenants[i].tenant_id || !has_any_server(table, i))
            continue;
        count++;
        minima += table->tenants[i].share.minimum_pct;
    }
    unsigned part = its->share.minimum_pct * 10 + (minima < 100 ? (100 - minima) * 10 / count : 0);
    part = part < WEIGHT_MIN ? WEIGHT_MIN : part;
    return is_capped(its) && part > its->share.maximum_pct * 10 ? its->share.maximum_pct * 10 : part;
}

void flyt_time_slice_table_init(struct flyt_time_slice_table *table, uint64_t now_ns)
{
    memset(table, 0, sizeof *table);
    table->holder = -1;
    table->settled_ns = now_ns;
}

int flyt_time_slice_share_check(const struct flyt_time_slice_share *share)
{
    bool is_good = share->minimum_pct <= 100 && share->maximum_pct <= 100 &&
                   (!share->maximum_pct || share->maximum_pct >= share->minimum_pct) &&
                   share->window_ms >= FLYT_TIME_SLICE_WINDOW_MIN_MS &&
                   share->window_ms <= FLYT_TIME_SLICE_WINDOW_MAX_MS;

    return is_good ? 0 : -EINVAL;
}

static int32_t find_tenant(const struct flyt_time_slice_table *table, uint64_t tenant_id)
{
    for (int32_t i = 0; i < FLYT_TIME_SLICE_TENANTS_MAX; i++)
        if (table->tenants[i].tenant_id == tenant_id)
            return i;
    return -1;
}

static int find_server(const struct flyt_time_slice_table *table, uint64_t server_id, int32_t tenant)
{
    for (int i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (table->servers[i].server_id == server_id && (tenant < 0 || (int32_t)table->servers[i].tenant == tenant))
            return i;
    return -1;
}

int flyt_time_slice_table_set(struct flyt_time_slice_table *table, uint64_t tenant_id,
                              const struct flyt_time_slice_share *share, uint64_t revision, uint64_t now_ns,
                              struct flyt_time_slice_answer *ret_answer)
{
    *ret_answer = (struct flyt_time_slice_answer){.again_ns = UINT64_MAX, .asker = FLYT_TIME_SLICE_SERVERS_MAX};
    if (!tenant_id || flyt_time_slice_share_check(share))
        return -EINVAL;
    settle(table, now_ns);
    int32_t place = find_tenant(table, tenant_id);
    bool is_new = place < 0;
    if (is_new && (place = find_tenant(table, 0)) < 0)
        return -ENOSPC;
    struct flyt_time_slice_tenant *tenant = &table->tenants[place];
    if (is_new)
        memset(tenant, 0, sizeof *tenant);
    else if (revision < tenant->revision)
        return -ESTALE;
    bool was_capped = is_capped(tenant);
    tenant->share = *share;
    tenant->revision = revision;
    int64_t whole = part_of(window_ns(tenant), share->maximum_pct);
    if (is_capped(tenant) && (!was_capped || tenant->left_ns > whole))
        tenant->left_ns = whole;
    whole = part_of(window_ns(tenant), share->minimum_pct);
    if (tenant->owed_ns > whole)
        tenant->owed_ns = whole;
    tenant->tenant_id = tenant_id;
    /* What was granted under the old share ends soon enough. Who waits knows when to ask again by the old one. */
    wake(table, place, ret_answer);
    finish(table, now_ns, ret_answer);
    return 0;
}

static void free_server(struct flyt_time_slice_server *server)
{
    uint32_t wakes = atomic_load_explicit(&server->wake, memory_order_relaxed);

    server->server_id = 0;
    server->state = FLYT_TIME_SLICE_IDLE;
    server->is_missing = 0;
    server->idle_settled_ns = 0;
    atomic_store_explicit(&server->idle, 0, memory_order_relaxed);
    atomic_store_explicit(&server->wake, wakes + 1, memory_order_relaxed);
}

void flyt_time_slice_table_remove(struct flyt_time_slice_table *table, uint64_t tenant_id, uint64_t now_ns,
                                  struct flyt_time_slice_answer *ret_answer)
{
    int32_t place = tenant_id ? find_tenant(table, tenant_id) : -1;

    *ret_answer = (struct flyt_time_slice_answer){.again_ns = UINT64_MAX, .asker = FLYT_TIME_SLICE_SERVERS_MAX};
    if (place < 0)
        return;
    settle(table, now_ns);
    for (unsigned i = 0; i < FLYT_TIME_SLICE_SERVERS_MAX; i++)
        if (is_of(&table->servers[i], place))
            free_server(&table->servers[i]);
    if (table->holder == place)
        table->holder = -1;
    table->tenants[place].tenant_id = 0;
    finish(table, now_ns, ret_answer);
}

int flyt_time_slice_table_join(struct flyt_time_slice_table *table, uint64_t tenant_id, uint64_t server_id)
{
    int32_t tenant = tenant_id ? find_tenant(table, tenant_id) : -1;

    if (tenant < 0 || !server_id)
        return -ENOENT;
    int place = find_server(table, server_id, tenant);
    if (place >= 0)
        return place;
    place = find_server(table, 0, -1);
    if (place < 0)
        return -ENOSPC;
    struct flyt_time_slice_server *server = &table->servers[place];
    free_server(server);
    server->tenant = (uint32_t)tenant;
    server->server_id = server_id; /* last: who has an id has its values */
    return place;
}

void flyt_time_slice_table_leave(struct flyt_time_slice_table *table, uint64_t server_id, uint64_t now_ns,
                                 struct flyt_time_slice_answer *ret_answer)
{
    *ret_answer = (struct flyt_time_slice_answer){.again_ns = UINT64_MAX, .asker = FLYT_TIME_SLICE_SERVERS_MAX};
    settle(table, now_ns);
    int place;
    while (server_id && (place = find_server(table, server_id, -1)) >= 0)
        free_server(&table->servers[place]);
    finish(table, now_ns, ret_answer);
}

void flyt_time_slice_table_mark_over(struct flyt_time_slice_table *table, unsigned place, uint64_t now_ns,
                                     struct flyt_time_slice_answer *ret_answer)
{
    *ret_answer = (struct flyt_time_slice_answer){.again_ns = UINT64_MAX, .asker = place};
    settle(table, now_ns);
    if (table->servers[place].server_id && table->servers[place].is_missing != FLYT_TIME_SLICE_IS_OVER)
        put_over(&table->servers[place], now_ns);
    finish(table, now_ns, ret_answer);
}

void flyt_time_slice_table_charge(struct flyt_time_slice_table *table, unsigned place, uint64_t ns, uint64_t now_ns)
{
    settle(table, now_ns);
    if (table->servers[place].server_id)
        charge_beside(table, (int32_t)table->servers[place].tenant, ns);
}

int flyt_time_slice_table_tell(struct flyt_time_slice_table *table, unsigned place, uint64_t server_id,
                               enum flyt_time_slice_state state, uint64_t now_ns,
                               struct flyt_time_slice_answer *ret_answer)
{
    *ret_answer = (struct flyt_time_slice_answer){.again_ns = UINT64_MAX, .asker = FLYT_TIME_SLICE_SERVERS_MAX};
    if (place >= FLYT_TIME_SLICE_SERVERS_MAX || !server_id || table->servers[place].server_id != server_id ||
        table->servers[place].tenant >= FLYT_TIME_SLICE_TENANTS_MAX)
        return -ENOENT;
    struct flyt_time_slice_server *server = &table->servers[place];
    int32_t tenant = (int32_t)server->tenant;
    ret_answer->asker = place;
    settle(table, now_ns);
    atomic_store_explicit(&server->seen_ns, now_ns, memory_order_relaxed);
    bool was_over = server->is_missing == FLYT_TIME_SLICE_IS_OVER;
    if (!was_over || state != FLYT_TIME_SLICE_RUNS)
        server->is_missing = 0;
    bool was_active = is_active(table, tenant);
    /* Its grant was taken from it meanwhile: it may work only after what it has on the GPU is done. */
    if (state == FLYT_TIME_SLICE_BESIDE)
        put_over(server, was_over ? server->over_ns : now_ns);
    else if (state != FLYT_TIME_SLICE_RUNS)
        server->state = state;
    if (!was_active && is_waiting(table, tenant)) {
        activate(table, tenant);
        shorten(table, tenant, now_ns);
    }
    finish(table, now_ns, ret_answer);
    bool is_its = table->holder == tenant && !table->is_recalled && now_ns < load(&table->until_ns);
    if (is_its && server->state == FLYT_TIME_SLICE_WAITS) {
        server->state = FLYT_TIME_SLICE_RUNS;
        server->idle_settled_ns = idle_ns(server, now_ns);
        table->is_taken = 1;
    }
    ret_answer->is_granted = is_its && server->state == FLYT_TIME_SLICE_RUNS;
    ret_answer->until_ns = load(&table->until_ns);
    return 0;
}
