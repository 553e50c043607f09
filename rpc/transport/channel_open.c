#include "rpc/transport/channel_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "flyt_signatures.h"
#include "rpc/transport/handshake.h"
#include "rpc/base/claims.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/region_offer.h"
#include "rpc/transport/endpoint/rings.h"

enum {
    DEFAULT_TIMEOUT_MS = 10000,
    CONNECT_TRY_MS = 500 /* of one try to connect again: a channel that is closed meanwhile waits for it */
};

/* ---- opening ---- */

static int dial_socket(void *user, const char *url, unsigned timeout_ms, struct flyt_error *err,
                       struct flyt_endpoint **ret_endpoint)
{
    int fd;
    int status = flyt_connect(url, timeout_ms, err, &fd);

    if (status)
        return status;
    status = flyt_endpoint_of_socket(fd, ret_endpoint);
    if (status)
        flyt_close(fd);
    return status ? flyt_error_set(err, status, "no memory") : 0;
}

static void accept_procedure(struct flyt_channel *channel, unsigned procedure)
{
    if (procedure >= FLYT_CHANNEL_TABLE_FIRST && procedure < flyt_procedure_end)
        channel->accepted[procedure] = true;
}

static bool take_accepted(struct flyt_channel *channel, const flyt_handshake_res *res)
{
    channel->accepted = calloc(flyt_procedure_end, sizeof *channel->accepted);
    if (!channel->accepted)
        return false;
    channel->accepted[FLYT_NULL] = channel->accepted[FLYT_QUERY] = true;
    bool has_all = res->rows.flyt_late_bytes_len > 0;
    for (unsigned i = 0; i < channel->signature_count && has_all; i++)
        accept_procedure(channel, channel->signatures[i].procedure);
    for (u_int i = 0; i < res->accepted.accepted_len; i++)
        accept_procedure(channel, res->accepted.accepted_val[i]);
    return true;
}

static int take_answer(struct flyt_channel *channel, const flyt_handshake_res *res, struct flyt_error *err)
{
    channel->info.session_id = res->session_id;
    channel->info.device_count = res->device_count;
    channel->info.driver_version = res->driver_version;
    snprintf(channel->info.server_build, sizeof channel->info.server_build, "%s", res->build);
    unsigned wanted = flyt_handshake_data_streams();
    channel->offered_stream_count = res->data_streams < wanted ? res->data_streams : wanted;
    if (!channel->is_fresh)
        channel->data_stream_count = channel->offered_stream_count;
    uint64_t window_bytes = flyt_handshake_number(&res->window);
    channel->window_bytes = window_bytes ? window_bytes : UINT64_MAX;
    channel->offers_resume = res->features & FLYT_FEATURE_RESUME && res->token.token_len;
    channel->can_resume = channel->offers_resume && channel->handlers->resume;
    channel->token_bytes = res->token.token_len;
    if (res->token.token_len)
        memcpy(channel->token, res->token.token_val, res->token.token_len);
    return take_accepted(channel, res) ? 0 : flyt_error_set(err, -ENOMEM, "no memory");
}

/* The descriptors that came with the answer, each for the feature that announces it; -1: none. Where there are more or
 * fewer than were announced, nobody knows which is which: then there is none at all. */
struct arrived {
    int page, rings;
};

static struct arrived sort_descriptors(const flyt_handshake_res *res, const struct flyt_greeting *greeting)
{
    struct arrived arrived = {-1, -1};
    int *const places[] = {&arrived.page, &arrived.rings};
    static const unsigned features[] = {FLYT_FEATURE_PROGRESS_PAGE, FLYT_FEATURE_RINGS};
    unsigned wanted = 0, came = 0;

    for (unsigned i = 0; i < FLYT_GREETING_FDS_MAX; i++)
        came += greeting->fds[i] >= 0;
    for (unsigned i = 0; i < FLYT_GREETING_FDS_MAX; i++)
        wanted += res->features & features[i] ? 1 : 0;
    if (!greeting->takes_fds || wanted != came)
        return arrived;
    for (unsigned i = 0, next = 0; i < FLYT_GREETING_FDS_MAX; i++)
        if (res->features & features[i])
            *places[i] = greeting->fds[next++];
    return arrived;
}

/* Where the page is announced and did not come, or is not what it should be, it goes on without. */
static void take_page(struct flyt_channel *channel, const flyt_handshake_res *res, int fd)
{
    if (!(res->features & FLYT_FEATURE_PROGRESS_PAGE))
        return;
    const struct flyt_progress_page *page;
    int status = fd < 0 ? -ENODATA : flyt_progress_page_map(fd, &page);
    if (status)
        flyt_debug("no progress page server=%s: %s", channel->url, strerror(-status));
    else
        atomic_store(&channel->page, page);
}

static void has_region_now(const struct flyt_channel *channel, struct flyt_channel *owner, int status)
{
    atomic_store_explicit(&owner->has_region, owner->region.id, memory_order_release);
    if (status) /* it is an extra */
        flyt_debug("no region server=%s: %s", channel->url, strerror(-status));
}

/* What the server makes of it. */
static void use_region(struct flyt_channel *channel, struct flyt_channel *owner, unsigned use)
{
    atomic_store(&channel->region_at, use & FLYT_REGION_IS_SEEN ? ++owner->region_number : 0);
    const bool is_mapped = use & FLYT_REGION_IS_MAPPED && flyt_region_is_at_home(&owner->region);
    atomic_store(&channel->maps_region, is_mapped);
    atomic_store(&channel->fills_region, is_mapped && use & FLYT_REGION_IS_FILLED);
}

/* Through rings, unless they cannot be used: then neither can the server. 0 or a negative errno with a sentence. */
static int go_on_through(struct flyt_channel *channel, int status, struct flyt_rings *rings, struct flyt_error *err)
{
    if (!status)
        status = flyt_endpoint_over_rings(channel->endpoint, rings, &channel->endpoint);
    if (status)
        return flyt_error_set(err, -EPROTO, "the memory that it shares cannot be used: %s", strerror(-status));
    channel->input.endpoint = channel->output.endpoint = channel->endpoint;
    return 0;
}

/* Brings the region of `owner`, the session's channel, which may be this one; it is made when a server first asks for
 * it. 0 or a negative errno with a sentence. */
static int bring_region(struct flyt_channel *channel, struct flyt_channel *owner, const flyt_handshake_res *res,
                        const struct flyt_greeting *greeting, struct flyt_error *err)
{
    unsigned use = 0;
    int status = 0;

    if (!(res->features & FLYT_FEATURE_REGION))
        return 0;
    if (!owner->region.id)
        status = flyt_region_new(&owner->region, &owner->region_fd);
    has_region_now(channel, owner, status);
    status = flyt_region_offer(channel->endpoint, owner->region_fd, greeting->deadline_ms, greeting->cancel_fd, &use);
    if (status)
        return flyt_error_set(err, status, "it did not take the memory that is to be shared: %s", strerror(-status));
    use_region(channel, owner, owner->region_fd >= 0 ? use : 0);
    return 0;
}

static bool has_vm_memory(const struct flyt_channel *owner)
{
    return owner->vm_memory_fd >= 0 || owner->region.is_vm;
}

/* The same with the memory that this VM shares with its host, in which rings are then. */
static int share_vm_memory(struct flyt_channel *channel, struct flyt_channel *owner,
                           const struct flyt_greeting *greeting, struct flyt_error *err)
{
    struct flyt_rings rings;
    unsigned use = 0;
    uint64_t place = 0;
    int status = 0;

    if (!owner->region.id && owner->vm_memory_fd >= 0) {
        status = flyt_region_of_vm(owner->vm_memory_fd, &owner->region);
        owner->vm_memory_fd = status ? flyt_close(owner->vm_memory_fd) : -1;
    }
    has_region_now(channel, owner, status);
    status = flyt_region_offer_rings(channel->endpoint, owner->region.is_vm ? &owner->region : NULL,
                                     greeting->deadline_ms, greeting->cancel_fd, &use, &place);
    if (status)
        return flyt_error_set(err, status, "it did not take the memory that is to be shared: %s", strerror(-status));
    use_region(channel, owner, use);
    if (!(use & FLYT_REGION_IS_SEEN))
        return 0;
    channel->rings_region = &owner->region;
    channel->rings_place = place;
    return go_on_through(channel, flyt_rings_join(owner->region.base + place, &rings), &rings, err);
}

/* Where the server goes on through rings this end must, too. 0 or a negative errno with a sentence. */
static int take_rings(struct flyt_channel *channel, const flyt_handshake_res *res, int fd, struct flyt_error *err)
{
    struct flyt_rings rings;

    if (!(res->features & FLYT_FEATURE_RINGS))
        return 0;
    return go_on_through(channel, fd < 0 ? -ENODATA : flyt_rings_map(fd, &rings), &rings, err);
}

static int share_memory(struct flyt_channel *channel, struct flyt_channel *owner, const flyt_handshake_res *res,
                        const struct flyt_greeting *greeting, struct flyt_error *err)
{
    const struct arrived arrived = sort_descriptors(res, greeting);

    take_page(channel, res, arrived.page);
    if (res->features & FLYT_FEATURE_VM_MEMORY && has_vm_memory(owner))
        return share_vm_memory(channel, owner, greeting, err);
    int status = bring_region(channel, owner, res, greeting, err);
    return status ? status : take_rings(channel, res, arrived.rings, err);
}

const struct flyt_region *flyt_channel_region(const struct flyt_channel *channel)
{
    return atomic_load_explicit(&channel->has_region, memory_order_acquire) ? &channel->region : NULL;
}

uint64_t flyt_channel_region_at(const struct flyt_channel *channel)
{
    return atomic_load_explicit(&channel->region_at, memory_order_relaxed);
}

bool flyt_channel_fills_region(const struct flyt_channel *channel)
{
    return atomic_load_explicit(&channel->fills_region, memory_order_relaxed);
}

bool flyt_channel_maps_region(const struct flyt_channel *channel)
{
    return atomic_load_explicit(&channel->maps_region, memory_order_relaxed);
}

/* The handshake of a session's main connection; `owner` is the session's channel. cancel_fd: -1, or what ends it when
 * it is readable. */
static int open_session(struct flyt_channel *channel, struct flyt_channel *owner, flyt_connection_kind kind,
                        uint64_t deadline_ms, int cancel_fd, struct flyt_error *err)
{
    struct flyt_greeting greeting = {.endpoint = &channel->endpoint,
                                     .output = &channel->output,
                                     .input = &channel->input,
                                     .deadline_ms = deadline_ms,
                                     .cancel_fd = cancel_fd,
                                     .takes_fds = flyt_endpoint_passes_descriptors(channel->endpoint),
                                     .fds = FLYT_GREETING_NO_FDS};
    unsigned char rows[FLYT_HASH_BYTES];
    char features[FLYT_LATE_NUMBER_BYTES];
    flyt_handshake_args args;
    flyt_handshake_res res;

    flyt_channel_fill_handshake(channel, kind, &args);
    args.features =
        flyt_handshake_put_number(FLYT_CLIENT_HEEDS_GRANTS | FLYT_CLIENT_TAKES_RINGS | FLYT_CLIENT_BRINGS_REGION |
                                      (has_vm_memory(owner) ? FLYT_CLIENT_HAS_VM_MEMORY : 0),
                                  features);
    flyt_handshake_hash_rows(channel->signatures, channel->signature_count, rows);
    args.rows.flyt_late_bytes_val = (char *)rows;
    args.rows.flyt_late_bytes_len = sizeof rows;
    int status = flyt_channel_greet(channel, &greeting, &args, &res, err);
    if (!status) {
        status = take_answer(channel, &res, err);
        if (!status)
            status = share_memory(channel, owner, &res, &greeting, err);
        xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    }
    for (unsigned i = 0; i < FLYT_GREETING_FDS_MAX; i++)
        flyt_close(greeting.fds[i]);
    return status;
}

static void close_descriptors(struct flyt_channel *channel)
{
    flyt_progress_page_unmap(atomic_exchange(&channel->page, NULL));
    flyt_close(channel->wake_fd);
    flyt_close(channel->lost_fd);
    flyt_close(channel->region_fd);
    flyt_close(channel->vm_memory_fd);
}

/* Nobody uses them any more. */
static void give_rings(const struct flyt_region *region, uint64_t place)
{
    if (region)
        flyt_region_give(region, place, flyt_region_rings_bytes());
}

void flyt_channel_free(struct flyt_channel *channel)
{
    close_descriptors(channel);
    flyt_progress_page_unmap(channel->spare_page);
    flyt_endpoint_close(channel->endpoint);
    give_rings(channel->rings_region, channel->rings_place);
    flyt_data_fini(&channel->data);
    flyt_input_fini(&channel->input);
    flyt_output_fini(&channel->output);
    flyt_kept_fini(&channel->kept);
    pthread_mutex_destroy(&channel->mutex);
    pthread_cond_destroy(&channel->reader_left);
    pthread_cond_destroy(&channel->came_back);
    pthread_cond_destroy(&channel->gate.opened);
    free(channel->accepted);
    free(channel->call_counts);
    explicit_bzero(channel->credentials.secret, sizeof channel->credentials.secret);
    free((void *)channel->credentials.data);
    free(channel);
}

static bool take_credentials(struct flyt_channel *channel, const struct flyt_channel_credentials *credentials)
{
    if (!credentials)
        return true;
    void *copy = malloc(credentials->bytes ? credentials->bytes : 1);
    if (!copy)
        return false;
    channel->credentials = *credentials;
    channel->credentials.data = memcpy(copy, credentials->data, credentials->bytes);
    return true;
}

static struct flyt_channel *make_channel(const struct flyt_channel_config *config, struct flyt_endpoint *endpoint)
{
    struct flyt_channel *channel = aligned_alloc(FLYT_CHANNEL_LINE_BYTES, sizeof *channel);
    _Atomic(uint64_t) *call_counts = calloc(flyt_procedure_end, sizeof *call_counts);

    if (!channel || !call_counts) {
        free(channel);
        free(call_counts);
        flyt_endpoint_close(endpoint);
        return NULL;
    }
    memset(channel, 0, sizeof *channel);
    channel->call_counts = call_counts;
    snprintf(channel->url, sizeof channel->url, "%s", config->url);
    snprintf(channel->program_name, sizeof channel->program_name, "%s", program_invocation_short_name);
    channel->endpoint = endpoint;
    channel->dial = config->dial ? config->dial : dial_socket;
    channel->dial_user = config->dial_user;
    channel->handlers = config->handlers;
    channel->user = config->user;
    channel->cuda_version = config->cuda_version;
    channel->signatures = config->signatures ? config->signatures : flyt_signatures;
    channel->signature_count = config->signatures ? config->signature_count : flyt_signature_count;
    channel->connect_timeout_ms = config->connect_timeout_ms ? config->connect_timeout_ms : DEFAULT_TIMEOUT_MS;
    channel->plain_xid = UINT32_MAX;
    channel->first_awaited = UINT64_MAX;
    flyt_kept_init(&channel->kept);
    channel->may_spin = sysconf(_SC_NPROCESSORS_ONLN) >= 4;
    channel->region_fd = -1;
    channel->vm_memory_fd = -1;
    pthread_mutex_init(&channel->mutex, NULL);
    pthread_cond_init(&channel->reader_left, NULL);
    pthread_cond_init(&channel->came_back, NULL);
    pthread_cond_init(&channel->gate.opened, NULL);
    flyt_data_init(&channel->data);
    channel->resume = flyt_channel_resume;
    channel->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    channel->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int status = flyt_input_init(&channel->input, endpoint, FLYT_RECORD_BYTES_MAX, FLYT_CHANNEL_READ_AHEAD_BYTES,
                                 flyt_channel_split, channel);
    status = status ? status : flyt_output_init(&channel->output, endpoint);
    if (status || channel->wake_fd < 0 || channel->lost_fd < 0 || !take_credentials(channel, config->credentials)) {
        flyt_channel_free(channel);
        return NULL;
    }
    return channel;
}

static int start_background(struct flyt_channel *channel, struct flyt_error *err)
{
    /* Who calls the channel from that thread is recognised by `background`: it must be there first. */
    pthread_mutex_lock(&channel->mutex);
    int status = flyt_channel_start_thread(&channel->background, "flyt-receive", flyt_channel_background, channel);
    channel->has_background = !status;
    pthread_mutex_unlock(&channel->mutex);
    return status ? flyt_error_set(err, status, "cannot start a thread: %s", strerror(-status)) : 0;
}

int flyt_channel_open(const struct flyt_channel_config *config, struct flyt_error *err,
                      struct flyt_channel **ret_channel)
{
    unsigned timeout_ms = config->connect_timeout_ms ? config->connect_timeout_ms : DEFAULT_TIMEOUT_MS;
    flyt_channel_dial_fn dial = config->dial ? config->dial : dial_socket;
    struct flyt_error cause = {0};
    struct flyt_endpoint *endpoint;

    int status = dial(config->dial_user, config->url, timeout_ms, err, &endpoint);
    if (status)
        return status;
    struct flyt_channel *channel = make_channel(config, endpoint);
    if (!channel)
        return flyt_error_set(err, -ENOMEM, "cannot use the server at %s: no memory", config->url);
    if (config->vm_memory_fd) {
        channel->vm_memory_fd = *config->vm_memory_fd;
        *config->vm_memory_fd = -1;
    }
    status = open_session(channel, channel, FLYT_CONNECTION_SESSION, flyt_clock_ms() + timeout_ms, -1, &cause);
    if (!status) {
        flyt_channel_keep(channel);
        flyt_channel_watch_output(channel);
        status = start_background(channel, &cause);
    }
    if (status == -ESTALE) /* ended before it has begun */
        status = -EACCES;
    if (status) {
        struct flyt_region region = channel->region;
        flyt_channel_free(channel);
        flyt_region_unmap(&region);
        return flyt_error_set(err, status, "cannot use the server at %s: %.380s", config->url, cause.text);
    }
    *ret_channel = channel;
    return 0;
}

int flyt_channel_open_fresh(struct flyt_channel *channel, const struct flyt_channel_place *place,
                            const struct flyt_channel_handlers *handlers, void *user, uint64_t deadline_ms,
                            struct flyt_error *err, struct flyt_channel **ret_fresh)
{
    struct flyt_channel_config config = {.url = place->url,
                                         .dial = channel->dial,
                                         .dial_user = channel->dial_user,
                                         .cuda_version = channel->cuda_version,
                                         .handlers = handlers,
                                         .user = user,
                                         .connect_timeout_ms = channel->connect_timeout_ms,
                                         .signatures = channel->signatures,
                                         .signature_count = channel->signature_count};
    unsigned left_ms = (unsigned)flyt_clock_left_ms(deadline_ms);
    struct flyt_endpoint *endpoint;

    if (place->credentials.data)
        config.credentials = &place->credentials;
    int status = channel->dial(channel->dial_user, place->url, left_ms < CONNECT_TRY_MS ? left_ms : CONNECT_TRY_MS, err,
                               &endpoint);
    if (status)
        return status;
    struct flyt_channel *fresh = make_channel(&config, endpoint);
    if (!fresh)
        return flyt_error_set(err, -ENOMEM, "no memory");
    fresh->is_fresh = true;
    memcpy(fresh->token, channel->token, sizeof fresh->token);
    fresh->token_bytes = channel->token_bytes;
    status = open_session(fresh, channel, FLYT_CONNECTION_RESUME, deadline_ms, channel->lost_fd, err);
    if (!status)
        status = start_background(fresh, err);
    if (status) {
        flyt_channel_free(fresh);
        return status;
    }
    *ret_fresh = fresh;
    return 0;
}

/* ---- closing ---- */

struct flyt_channel *flyt_channel_close(struct flyt_channel *channel)
{
    if (!channel)
        return NULL;
    pthread_mutex_lock(&channel->mutex);
    channel->is_closing = true; /* what fails from here on is no news */
    pthread_cond_broadcast(&channel->came_back);
    pthread_mutex_unlock(&channel->mutex);
    if (!flyt_channel_is_lost(channel)) {
        flyt_endpoint_limit_writing(channel->endpoint, FLYT_CHANNEL_CLOSE_MS);
        flyt_channel_flush(channel);
    }
    flyt_channel_lose(channel, "closed");
    if (channel->has_background)
        pthread_join(channel->background, NULL);
    channel->data.ops->join(channel);
    /* All of them have been woken and are on their way out. */
    while (atomic_load_explicit(&channel->user_count, memory_order_acquire))
        usleep(100);
    flyt_channel_free(channel);
    return NULL;
}

void flyt_channel_abandon(struct flyt_channel *channel)
{
    if (!channel)
        return;
    flyt_channel_abandon(channel->fresh);
    flyt_endpoint_abandon(channel->endpoint);
    flyt_data_abandon(&channel->data);
    flyt_claims_abandon(channel->region.claims);
    close_descriptors(channel);
}
