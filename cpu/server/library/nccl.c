/* NCCL's communicators: the table of them, and the calls that make, end and ask them. */
#include "cpu/server/library/nccl.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/session.h"
#include "cpu/server/library/library.h"
#include "flyt_lib_nccl.h"
#include "rpc/library/nccl_list.h"

/* ---- the table ---- */

struct comm {
    struct comm *next;
    uint64_t id;
    unsigned use_count;
    struct flyt_nccl_made made;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t left;
    struct comm *first;
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

static struct comm **place_of_locked(uint64_t id)
{
    struct comm **place = &table.first;
    while (*place && (*place)->id != id)
        place = &(*place)->next;
    return place;
}

bool flyt_nccl_comm_add(uint64_t id, const struct flyt_nccl_made *made)
{
    struct comm *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return false;
    *fresh = (struct comm){.id = id, .made = *made};
    pthread_mutex_lock(&table.mutex);
    bool is_new = !*place_of_locked(id);
    if (is_new) {
        fresh->next = table.first;
        table.first = fresh;
    }
    pthread_mutex_unlock(&table.mutex);
    if (!is_new)
        free(fresh);
    return is_new;
}

bool flyt_nccl_comm_blocks(uint64_t id)
{
    pthread_mutex_lock(&table.mutex);
    const struct comm *comm = *place_of_locked(id);
    bool blocks = !comm || comm->made.blocks;
    pthread_mutex_unlock(&table.mutex);
    return blocks;
}

void *flyt_nccl_comm_find(uint64_t id)
{
    pthread_mutex_lock(&table.mutex);
    const struct comm *comm = *place_of_locked(id);
    void *real = comm ? comm->made.real : NULL;
    pthread_mutex_unlock(&table.mutex);
    return real;
}

struct flyt_nccl_use flyt_nccl_comm_use(uint64_t id)
{
    pthread_mutex_lock(&table.mutex);
    struct comm *comm = *place_of_locked(id);
    if (comm)
        comm->use_count++;
    pthread_mutex_unlock(&table.mutex);
    return (struct flyt_nccl_use){.id = id, .real = comm ? comm->made.real : NULL};
}

void flyt_nccl_comm_leave(struct flyt_nccl_use *use)
{
    if (!use->real)
        return;
    pthread_mutex_lock(&table.mutex);
    (*place_of_locked(use->id))->use_count--;
    pthread_cond_broadcast(&table.left);
    pthread_mutex_unlock(&table.mutex);
}

struct flyt_nccl_made flyt_nccl_comm_take(uint64_t id)
{
    struct flyt_nccl_made made = {0};
    struct comm *comm;
    pthread_mutex_lock(&table.mutex);
    while ((comm = *place_of_locked(id)) && comm->use_count) /* another one may take it meanwhile */
        pthread_cond_wait(&table.left, &table.mutex);
    if (comm) {
        made = comm->made;
        *place_of_locked(id) = comm->next;
    }
    pthread_mutex_unlock(&table.mutex);
    if (comm)
        flyt_nccl_registrations_drop(id);
    free(comm);
    return made;
}

void flyt_nccl_comm_count(uint64_t id)
{
    pthread_mutex_lock(&table.mutex);
    struct comm *comm = *place_of_locked(id);
    if (comm)
        comm->made.done_count++;
    pthread_mutex_unlock(&table.mutex);
}

bool flyt_nccl_comm_has_done(uint64_t id, uint64_t count)
{
    pthread_mutex_lock(&table.mutex);
    const struct comm *comm = *place_of_locked(id);
    bool has_done = !comm || comm->made.done_count >= count;
    pthread_mutex_unlock(&table.mutex);
    return has_done;
}

void flyt_nccl_comm_finalize(uint64_t id)
{
    pthread_mutex_lock(&table.mutex);
    struct comm *comm = *place_of_locked(id);
    if (comm && !comm->made.is_finalized)
        flyt_nccl_kin_finalize(comm->made.kin);
    if (comm)
        comm->made.is_finalized = true;
    pthread_mutex_unlock(&table.mutex);
}

void flyt_nccl_comm_spoil(uint64_t id)
{
    pthread_mutex_lock(&table.mutex);
    const struct comm *comm = *place_of_locked(id);
    if (comm)
        flyt_nccl_kin_spoil(comm->made.kin);
    pthread_mutex_unlock(&table.mutex);
}

/* The family of a communicator that an order has made; NULL: no memory. */
static struct flyt_nccl_kin *join_family(const struct flyt_nccl_order *order)
{
    pthread_mutex_lock(&table.mutex);
    const struct comm *parent = order->control == FLYT_NCCL_INIT ? NULL : *place_of_locked(order->parent);
    struct flyt_nccl_kin *kin = flyt_nccl_kin_come(order, parent ? parent->made.kin : NULL);
    pthread_mutex_unlock(&table.mutex);
    return kin;
}

/* ---- the environment ---- */

static bool is_loopback_only(void)
{
    const char *interfaces = getenv("FLYT_NCCL_INTERFACES");
    return !interfaces || !*interfaces;
}

/* Servers have uids of their own: none opens what another one has in /dev/shm. What listens has no password, so that it
 * listens where the operator says, which is nowhere but on this machine where he says nothing. */
void flyt_nccl_set_environment(void)
{
    const char *interfaces = getenv("FLYT_NCCL_INTERFACES");
    bool is_loopback = is_loopback_only();
    setenv("NCCL_SOCKET_IFNAME", is_loopback ? "=lo" : interfaces, 1);
    setenv("NCCL_SHM_DISABLE", "1", 1);
    setenv("NCCL_RAS_ENABLE", "0", 1); /* it listens, too */
    if (is_loopback) {
        setenv("NCCL_IB_DISABLE", "1", 1);
        setenv("NCCL_NET", "Socket", 1);
    }
}

/* ---- NCCL's structure ---- */

enum { CONFIG_VERSION = 22800 };

struct unique_id {
    char bytes[FLYT_NCCL_UNIQUE_ID_BYTES];
};

static struct flyt_nccl_own_config *fill_config(struct flyt_nccl_own_config *config,
                                                const struct flyt_nccl_order *order, char *name)
{
    const struct flyt_nccl_config *from = &order->config;
    if (!from->is_given)
        return NULL;
    if (name)
        memcpy(name, from->name, sizeof from->name - 1);
    *config = (struct flyt_nccl_own_config){.bytes = sizeof *config,
                                            .magic = (unsigned)FLYT_NCCL_CONFIG_MAGIC,
                                            .version = CONFIG_VERSION,
                                            .blocking = from->blocking,
                                            .cga_cluster_size = from->cga_cluster_size,
                                            .min_ctas = from->min_ctas,
                                            .max_ctas = from->max_ctas,
                                            .split_share = from->split_share,
                                            .traffic_class = from->traffic_class,
                                            .comm_name = name,
                                            .collnet_enable = from->collnet_enable,
                                            .cta_policy = from->cta_policy,
                                            .shrink_share = from->shrink_share,
                                            .nvls_ctas = from->nvls_ctas,
                                            .channels_per_net_peer = from->channels_per_net_peer,
                                            .nvlink_centric_sched = from->nvlink_centric_sched};
    return config;
}

/* ---- orders ---- */

/* The next order in `bytes` bytes, of which *at are read; NULL: there is none, or it is cut off. */
static struct flyt_nccl_order *next_order(unsigned char *data, size_t bytes, size_t *at)
{
    struct flyt_nccl_order *order = (struct flyt_nccl_order *)(void *)(data + *at);
    if (bytes - *at < sizeof *order)
        return NULL;
    size_t whole = flyt_nccl_order_bytes(order);
    if (!whole || bytes - *at < whole || order->control >= FLYT_NCCL_CONTROLS)
        return NULL;
    *at += whole;
    return order;
}

/* A unique id has the address to which its ranks connect, behind 8 bytes: a program could have this node connect
 * anywhere. Where communicators do not leave this machine, no such address does. */
static bool is_at_home(const struct flyt_session *session, const struct flyt_nccl_order *order)
{
    bool is_home = true;
    for (uint32_t i = 0; i < order->id_count && !session->driver->is_soft && is_loopback_only(); i++) {
        const char *at = (const char *)(order + 1) + (size_t)i * FLYT_NCCL_UNIQUE_ID_BYTES + 8;
        union {
            struct sockaddr any;
            struct sockaddr_in four;
            struct sockaddr_in6 six;
        } address;
        memcpy(&address, at, sizeof address);
        is_home &= address.any.sa_family == AF_INET    ? ntohl(address.four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
                   : address.any.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&address.six.sin6_addr) != 0
                                                       : false;
    }
    return is_home;
}

/* An id's communicator must be there, or not yet; its operations must have been done, but where it is aborted. */
static CUresult check_order(struct flyt_session *session, const struct flyt_nccl_order *order, bool may_wait)
{
    struct flyt_device *device;
    bool is_init = order->control == FLYT_NCCL_INIT;
    uint64_t named =
        order->control == FLYT_NCCL_SPLIT || order->control == FLYT_NCCL_SHRINK ? order->parent : order->comm;
    if (is_init && (!order->id_count || order->excluded_count || !is_at_home(session, order)))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_init && (order->id_count || !flyt_nccl_comm_find(named)))
        return order->id_count ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    if (flyt_nccl_makes(order->control) && flyt_nccl_comm_find(order->comm))
        return CUDA_ERROR_INVALID_VALUE;
    if ((order->control == FLYT_NCCL_ABORT || order->control == FLYT_NCCL_REVOKE) == may_wait)
        return CUDA_ERROR_INVALID_VALUE;
    if (may_wait && !is_init && !flyt_nccl_comm_has_done(named, order->groups))
        return FLYT_CALL_RETRY;
    return flyt_session_use_device(session, order->device, &device);
}

/* Whether the last of the communicators that orders make is another one's, too. */
static bool is_twice(const uint64_t *comms, unsigned count)
{
    unsigned i = 0;
    while (i + 1 < count && comms[i] != comms[count - 1])
        i++;
    return i + 1 < count;
}

static CUresult check_orders(struct flyt_libcall *call, size_t bytes, bool may_wait)
{
    uint64_t comms[FLYT_NCCL_RANKS_MAX];
    size_t at = 0;
    struct flyt_nccl_order *order;
    CUresult result = CUDA_SUCCESS;
    unsigned count = 0, made_count = 0;
    if (bytes > call->bytes - call->in_at)
        return CUDA_ERROR_INVALID_VALUE;
    while (result == CUDA_SUCCESS && (order = next_order(call->arguments + call->in_at, bytes, &at))) {
        if (++count > FLYT_NCCL_RANKS_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        if (flyt_nccl_makes(order->control))
            comms[made_count++] = order->comm;
        result = is_twice(comms, made_count) ? CUDA_ERROR_INVALID_VALUE : check_order(call->session, order, may_wait);
    }
    return result == CUDA_SUCCESS && (at != bytes || !count) ? CUDA_ERROR_INVALID_VALUE : result;
}

static int end_on(struct flyt_session *session, const struct flyt_device *device);

CUresult flyt_server_resolve_ncclCommInitRank(struct flyt_libcall *call);
CUresult flyt_server_resolve_ncclCommInitRank(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommInitRank *sent = (const void *)call->arguments;
    call->session->end_apart = end_on;
    return check_orders(call, sent->orders_bytes, true);
}

CUresult flyt_server_resolve_ncclCommAbort(struct flyt_libcall *call);
CUresult flyt_server_resolve_ncclCommAbort(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommAbort *sent = (const void *)call->arguments;
    return check_orders(call, sent->orders_bytes, false);
}

#define FUNCTION(call, type, name) ((type)flyt_server_library_function((call)->library, name))

static int init(struct flyt_libcall *call, const struct flyt_nccl_order *order, struct flyt_nccl_own_config *config,
                void **made)
{
    typedef int (*init_fn)(void **, int, struct unique_id, int, struct flyt_nccl_own_config *);
    typedef int (*scalable_fn)(void **, int, int, int, struct unique_id *, struct flyt_nccl_own_config *);
    struct unique_id *ids = (struct unique_id *)(uintptr_t)(order + 1);
    init_fn one = FUNCTION(call, init_fn, "ncclCommInitRankConfig");
    scalable_fn several = order->id_count > 1 ? FUNCTION(call, scalable_fn, "ncclCommInitRankScalable") : NULL;
    if (order->id_count > 1)
        return several ? several(made, order->rank_count, order->rank, (int)order->id_count, ids, config)
                       : call->library->refused;
    return one ? one(made, order->rank_count, *ids, order->rank, config) : call->library->refused;
}

/* Of a communicator that is there and stays. */
static int from_parent(struct flyt_libcall *call, const struct flyt_nccl_order *order,
                       struct flyt_nccl_own_config *config, void **made)
{
    typedef int (*split_fn)(void *, int, int, void **, struct flyt_nccl_own_config *);
    typedef int (*shrink_fn)(void *, int *, int, void **, struct flyt_nccl_own_config *, int);
    void *parent = flyt_nccl_comm_find(order->parent);
    split_fn split = FUNCTION(call, split_fn, "ncclCommSplit");
    shrink_fn shrink = FUNCTION(call, shrink_fn, "ncclCommShrink");
    if (!parent || (order->control == FLYT_NCCL_SPLIT ? !split : !shrink))
        return parent ? call->library->refused : call->library->handle;
    if (order->control == FLYT_NCCL_SPLIT)
        return split(parent, order->color, order->key, made, config);
    return shrink(parent, (int *)(uintptr_t)(order + 1), (int)order->excluded_count, made, config, order->flags);
}

static int with_comm(struct flyt_libcall *call, const struct flyt_nccl_order *order)
{
    static const char *const names[FLYT_NCCL_CONTROLS] = {[FLYT_NCCL_FINALIZE] = "ncclCommFinalize",
                                                          [FLYT_NCCL_DESTROY] = "ncclCommDestroy",
                                                          [FLYT_NCCL_ABORT] = "ncclCommAbort",
                                                          [FLYT_NCCL_REVOKE] = "ncclCommRevoke"};
    bool ends = order->control == FLYT_NCCL_DESTROY || order->control == FLYT_NCCL_ABORT;
    void *function = flyt_server_library_function(call->library, names[order->control]);
    struct flyt_nccl_made taken = ends ? flyt_nccl_comm_take(order->comm) : (struct flyt_nccl_made){0};
    void *comm = ends ? taken.real : flyt_nccl_comm_find(order->comm);
    int status = comm ? call->library->refused : call->library->handle;
    if (comm && function && order->control == FLYT_NCCL_REVOKE)
        status = ((int (*)(void *, int))function)(comm, order->flags);
    else if (comm && function)
        status = ((int (*)(void *))function)(comm);
    free(taken.name);
    if (taken.kin)
        flyt_nccl_kin_leave(taken.kin, taken.is_finalized, order->control == FLYT_NCCL_ABORT);
    else if (order->control == FLYT_NCCL_FINALIZE)
        flyt_nccl_comm_finalize(order->comm);
    else if (order->control == FLYT_NCCL_REVOKE)
        flyt_nccl_comm_spoil(order->comm);
    return status;
}

/* Whether what makes the communicator returns when it is there: of others NCCL's thread writes to where it is to be
 * after the call, and its memory is not kept for that. */
static bool may_make(const struct flyt_nccl_order *order)
{
    return order->control == FLYT_NCCL_INIT || flyt_nccl_comm_blocks(order->parent);
}

static bool will_block(const struct flyt_nccl_order *order)
{
    bool is_said = order->config.is_given && (order->config.blocking == 0 || order->config.blocking == 1);
    if (is_said || order->control == FLYT_NCCL_INIT)
        return !is_said || order->config.blocking;
    return flyt_nccl_comm_blocks(order->parent);
}

static int run_order(struct flyt_libcall *call, const struct flyt_nccl_order *order, struct flyt_nccl_made *made)
{
    struct flyt_nccl_own_config config;
    const struct flyt_session *session = call->session;
    CUresult result = session->driver->cuCtxSetCurrent(session->devices[order->device].cu_primary);
    if (result != CUDA_SUCCESS)
        return call->library->failed;
    if (!flyt_nccl_makes(order->control))
        return with_comm(call, order);
    if (!may_make(order))
        return call->library->refused;
    made->blocks = will_block(order);
    made->device = order->device;
    bool has_name = order->config.is_given && order->config.has_name;
    if (has_name && !(made->name = calloc(1, FLYT_NCCL_NAME_BYTES)))
        return call->library->memory;
    struct flyt_nccl_own_config *given = fill_config(&config, order, made->name);
    return order->control == FLYT_NCCL_INIT ? init(call, order, given, &made->real)
                                            : from_parent(call, order, given, &made->real);
}

/* A communicator of the device; 0: there is none. */
static uint64_t any_on(unsigned device)
{
    pthread_mutex_lock(&table.mutex);
    const struct comm *comm = table.first;
    while (comm && comm->made.device != device)
        comm = comm->next;
    uint64_t id = comm ? comm->id : 0;
    pthread_mutex_unlock(&table.mutex);
    return id;
}

extern struct flyt_server_library flyt_server_library_nccl;

/* With the device they end by an abort, which waits for no peer. */
static int end_on(struct flyt_session *session, const struct flyt_device *device)
{
    struct flyt_nccl_order order = {.control = FLYT_NCCL_ABORT};
    struct flyt_libcall call = {.session = session, .library = &flyt_server_library_nccl};
    if (session->driver->cuCtxSetCurrent(device->cu_primary) != CUDA_SUCCESS)
        return 0;
    while ((order.comm = any_on(device->ordinal)))
        with_comm(&call, &order);
    return flyt_nccl_staying_change();
}

static bool is_well(int status)
{
    return status == FLYT_NCCL_SUCCESS || status == FLYT_NCCL_IN_PROGRESS;
}

/* One group, where they are several: the first error, or how it ends. */
static int run_all(struct flyt_libcall *call, unsigned char *data, size_t bytes, struct flyt_nccl_made *made)
{
    typedef int (*plain_fn)(void);
    plain_fn start = FUNCTION(call, plain_fn, "ncclGroupStart"), end = FUNCTION(call, plain_fn, "ncclGroupEnd");
    size_t at = 0;
    int status = FLYT_NCCL_SUCCESS;
    const struct flyt_nccl_order *order = next_order(data, bytes, &at);
    bool is_group = order && at < bytes;
    if (is_group && (!start || !end))
        return call->library->refused;
    if (is_group)
        status = start();
    for (unsigned i = 0; order; i++, order = next_order(data, bytes, &at)) {
        int one = run_order(call, order, &made[i]);
        status = is_well(status) && one != FLYT_NCCL_SUCCESS ? one : status;
    }
    int ended = is_group ? end() : FLYT_NCCL_SUCCESS;
    return is_well(status) && ended != FLYT_NCCL_SUCCESS ? ended : status;
}

/* Which of the orders have made a communicator. */
static int note_made(struct flyt_libcall *call, unsigned char *data, size_t bytes, struct flyt_nccl_made *made,
                     int32_t *ret_is_made)
{
    size_t at = 0;
    const struct flyt_nccl_order *order;
    for (unsigned i = 0; (order = next_order(data, bytes, &at)); i++) {
        if (!made[i].real)
            continue;
        made[i].done_count = order->done;
        made[i].kin = join_family(order);
        if (!made[i].kin)
            return call->library->memory;
        if (!flyt_nccl_comm_add(order->comm, &made[i])) {
            flyt_nccl_kin_leave(made[i].kin, false, true);
            return call->library->memory;
        }
        made[i].name = NULL;
        ret_is_made[i] = 1;
    }
    return FLYT_NCCL_SUCCESS;
}

static void use_ids(unsigned char *data, size_t bytes)
{
    size_t at = 0;
    const struct flyt_nccl_order *order;
    while ((order = next_order(data, bytes, &at)))
        flyt_nccl_ids_used(order);
}

static int run_orders(struct flyt_libcall *call, uint32_t bytes, uint32_t made_bytes)
{
    unsigned char *data = flyt_libcall_in(call, bytes, bytes);
    int32_t *is_made = flyt_libcall_out(call, made_bytes, made_bytes);
    size_t at = 0;
    unsigned count = 0;
    while (data && next_order(data, bytes, &at))
        count++;
    if (call->status || !count || made_bytes != count * sizeof *is_made)
        return call->status ? call->status : call->library->invalid;
    struct flyt_nccl_made *made = calloc(count, sizeof *made);
    if (!made)
        return call->library->memory;
    int status = run_all(call, data, bytes, made);
    int noted = is_well(status) ? note_made(call, data, bytes, made, is_made) : FLYT_NCCL_SUCCESS;
    use_ids(data, bytes);
    for (unsigned i = 0; i < count; i++)
        free(made[i].name);
    free(made);
    call->staying = flyt_nccl_staying_change();
    return noted ? noted : status;
}

int flyt_server_run_ncclCommInitRank(struct flyt_libcall *call);
int flyt_server_run_ncclCommInitRank(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommInitRank *sent = (const void *)call->arguments;
    return run_orders(call, sent->orders_bytes, sent->is_made_bytes);
}

int flyt_server_run_ncclCommAbort(struct flyt_libcall *call);
int flyt_server_run_ncclCommAbort(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommAbort *sent = (const void *)call->arguments;
    return run_orders(call, sent->orders_bytes, sent->is_made_bytes);
}

/* ---- questions ---- */

int flyt_server_run_ncclGetUniqueId(struct flyt_libcall *call);
int flyt_server_run_ncclGetUniqueId(struct flyt_libcall *call)
{
    const struct flyt_args_ncclGetUniqueId *sent = (const void *)call->arguments;
    void *id = flyt_libcall_out(call, sent->uniqueId_bytes, FLYT_NCCL_UNIQUE_ID_BYTES);
    int status = id ? ((int (*)(void *))call->function)(id) : call->library->invalid;
    if (status == call->library->success)
        flyt_nccl_id_given(id);
    call->staying = flyt_nccl_staying_change();
    return status;
}

/* The rows that ask a communicator have its id first. */
static CUresult resolve_first(struct flyt_libcall *call)
{
    uint64_t id;
    memcpy(&id, call->arguments, sizeof id);
    return flyt_nccl_comm_find(id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

#define RESOLVES_FIRST(name)                                                                                           \
    _Static_assert(offsetof(struct flyt_args_##name, comm) == 0, "its communicator comes first");                      \
    CUresult flyt_server_resolve_##name(struct flyt_libcall *call);                                                    \
    CUresult flyt_server_resolve_##name(struct flyt_libcall *call)                                                     \
    {                                                                                                                  \
        return resolve_first(call);                                                                                    \
    }

#define TELLS_NUMBER(name, field)                                                                                      \
    RESOLVES_FIRST(name)                                                                                               \
    int flyt_server_run_##name(struct flyt_libcall *call);                                                             \
    int flyt_server_run_##name(struct flyt_libcall *call)                                                              \
    {                                                                                                                  \
        const struct flyt_args_##name *sent = (const void *)call->arguments;                                           \
        int *ret = flyt_libcall_out(call, sent->field##_bytes, sizeof *ret);                                           \
        flyt_auto_nccl_use comm = flyt_nccl_comm_use(sent->comm);                                                      \
        return comm.real && ret ? ((int (*)(void *, int *))call->function)(comm.real, ret) : call->library->invalid;   \
    }

TELLS_NUMBER(ncclCommCount, count)
TELLS_NUMBER(ncclCommUserRank, rank)

RESOLVES_FIRST(ncclCommGetAsyncError)
int flyt_server_run_ncclCommGetAsyncError(struct flyt_libcall *call);
int flyt_server_run_ncclCommGetAsyncError(struct flyt_libcall *call)
{
    const struct flyt_args_ncclCommGetAsyncError *sent = (const void *)call->arguments;
    int *ret = flyt_libcall_out(call, sent->asyncError_bytes, sizeof *ret);
    flyt_auto_nccl_use comm = flyt_nccl_comm_use(sent->comm);
    if (!comm.real || !ret)
        return call->library->invalid;
    int status = ((int (*)(void *, int *))call->function)(comm.real, ret);
    if (status == call->library->success && !is_well(*ret))
        flyt_nccl_comm_spoil(sent->comm);
    call->staying = flyt_nccl_staying_change();
    return status;
}

RESOLVES_FIRST(ncclGetLastError)
int flyt_server_run_ncclGetLastError(struct flyt_libcall *call);
int flyt_server_run_ncclGetLastError(struct flyt_libcall *call)
{
    const struct flyt_args_ncclGetLastError *sent = (const void *)call->arguments;
    char *ret = flyt_libcall_out(call, sent->text_bytes, FLYT_NCCL_TEXT_BYTES);
    flyt_auto_nccl_use comm = flyt_nccl_comm_use(sent->comm);
    const char *text = comm.real && ret ? ((const char *(*)(void *))call->function)(comm.real) : NULL;
    if (!text)
        return call->library->invalid;
    strncpy(ret, text, FLYT_NCCL_TEXT_BYTES - 1);
    return FLYT_NCCL_SUCCESS;
}
