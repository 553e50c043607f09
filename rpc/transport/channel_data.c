#include "rpc/transport/channel_state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rpc/base/clock.h"
#include "rpc/base/deadline.h"
#include "rpc/base/log.h"

enum {
    CHUNK_BYTES_MIN = 1024 * 1024, /* so that a transfer's parts spread over the streams */
    MAIN_CHUNK_BYTES = 256 * 1024, /* on the main connection: small calls of others pass in between */
    AWAY_MS = 10000,               /* that whoever listens may be away, being started again */
    AWAY_PAUSE_MS = 50,
    END_MS = 5000,      /* how long the handlers of streams that have ended may take: they are to be quick */
    LAST_READ_MS = 1000 /* how long a server that is gone may take to end its streams */
};

/* A transfer that is being sent. Under data.mutex, but what never changes. */
struct flyt_data_job {
    struct flyt_data_job *next;
    uint64_t transfer_id;
    const char *data;          /* NULL: `pack` */
    flyt_channel_pack_fn pack; /* with `user` */
    size_t bytes, chunk_bytes, next_offset;
    uint64_t
        granted_bytes;   /* so many from its beginning on, by what the server has said; the window is granted anyway */
    unsigned busy_count; /* chunks being written */
    int status;
    bool is_done; /* and, where `done` is NULL, its waiting owner frees it */
    void (*done)(void *user, uint64_t transfer_id, int status);
    void *user;
};

/* ---- chunks ---- */

/* Writes one chunk as a record. 0 or a negative errno. */
static int write_chunk(struct flyt_output *output, const struct flyt_chunk_head *head, const void *data)
{
    XDR xdrs;

    flyt_output_lock(output);
    int status = flyt_output_take_writer_locked(output);
    if (!status) {
        status = flyt_output_begin_locked(output, false, &xdrs);
        if (!status && !flyt_chunk_head_put(&xdrs, FLYT_PROGRAM, FLYT_CHUNK, head)) {
            flyt_output_cancel_locked(output);
            status = -ENOMEM;
        }
        if (status)
            flyt_output_leave_writer_locked(output);
        else
            status = flyt_output_write_payload_locked(output, data, head->bytes);
    }
    flyt_output_unlock(output);
    return status;
}

static void lose(struct flyt_channel *channel, int status)
{
    char cause[256];

    if (status == -EPIPE && channel->can_resume)
        snprintf(cause, sizeof cause, "the server process ended while work was unfinished: a transfer was under way");
    else if (status == -EPIPE)
        snprintf(cause, sizeof cause, "the server closed a data stream");
    else
        snprintf(cause, sizeof cause, "a data stream failed: %s", strerror(-status));
    flyt_channel_lose(channel, cause);
}

/* ---- transfers ---- */

static void append_locked(struct flyt_data *data, struct flyt_data_job *job)
{
    job->next = NULL;
    *data->last = job;
    data->last = &job->next;
}

static struct flyt_data_job *remove_locked(struct flyt_data *data, struct flyt_data_job **link)
{
    struct flyt_data_job *job = *link;

    *link = job->next;
    if (!*link)
        data->last = link;
    return job;
}

/* A transfer of which no chunk is left to take or being written is over. The mutex is free while its owner is told. */
static void end_locked(struct flyt_channel *channel, struct flyt_data_job *job)
{
    struct flyt_data *data = &channel->data;

    job->is_done = true;
    data->job_count--;
    flyt_send_gate_end(channel);
    if (!job->done) {
        pthread_cond_broadcast(&data->changed);
        return;
    }
    pthread_mutex_unlock(&data->mutex);
    job->done(job->user, job->transfer_id, job->status);
    free(job);
    pthread_mutex_lock(&data->mutex);
}

/* Everything that waits to be sent has failed. */
static void fail_all_locked(struct flyt_channel *channel)
{
    struct flyt_data *data = &channel->data;

    while (data->first) {
        struct flyt_data_job *job = remove_locked(data, &data->first);
        job->status = FLYT_CHANNEL_LOST;
        job->next_offset = job->bytes;
        if (!job->busy_count)
            end_locked(channel, job);
    }
}

/* ---- grants ---- */

/* So much of the transfer may be sent, counted from its beginning. */
static uint64_t limit_of_locked(const struct flyt_channel *channel, const struct flyt_data_job *job)
{
    uint64_t window_bytes = atomic_load(&channel->window_bytes);

    return window_bytes > job->granted_bytes ? window_bytes : job->granted_bytes;
}

static bool is_ready_locked(const struct flyt_channel *channel, const struct flyt_data_job *job)
{
    return job->next_offset < limit_of_locked(channel, job);
}

/* The next chunk of a transfer that is ready. */
static struct flyt_chunk_head cut_locked(const struct flyt_channel *channel, struct flyt_data_job *job)
{
    struct flyt_chunk_head head = {.transfer_id = job->transfer_id, .offset_bytes = job->next_offset};
    uint64_t granted = limit_of_locked(channel, job) - job->next_offset;
    size_t left = job->bytes - job->next_offset;

    if (left > job->chunk_bytes)
        left = job->chunk_bytes;
    head.bytes = (uint32_t)(left < granted ? left : granted);
    job->next_offset += head.bytes;
    return head;
}

/* Waits for something to send. Who reads may be standing aside, and what is missing may have come. */
static void wait_locked(struct flyt_channel *channel, bool is_grant_missing)
{
    if (is_grant_missing)
        flyt_channel_kick(channel);
    pthread_cond_wait(&channel->data.changed, &channel->data.mutex);
}

static struct flyt_data_job *find_job(struct flyt_data_job *job, uint64_t transfer_id)
{
    while (job && job->transfer_id != transfer_id)
        job = job->next;
    return job;
}

static int take_grant(struct flyt_channel *channel, const flyt_back_grant *grant, struct flyt_error *err)
{
    struct flyt_data *data = &channel->data;
    int status = 0;

    pthread_mutex_lock(&data->mutex);
    struct flyt_data_job *job = find_job(data->first, grant->transfer_id);
    if (!job)
        job = find_job(data->first_here, grant->transfer_id);
    if (grant->bytes > UINT64_MAX - grant->offset_bytes ||
        (job && grant->offset_bytes > limit_of_locked(channel, job))) {
        status = flyt_error_set(err, -EBADMSG, "the server granted data of a transfer behind what may be sent of it");
    } else if (job && job->granted_bytes < grant->offset_bytes + grant->bytes) {
        job->granted_bytes = grant->offset_bytes + grant->bytes;
        pthread_cond_broadcast(&data->changed);
    }
    pthread_mutex_unlock(&data->mutex);
    return status;
}

/* ---- sending threads ---- */

/* The first transfer of which more may be sent now. */
static struct flyt_data_job **find_ready_locked(struct flyt_channel *channel)
{
    struct flyt_data_job **link = &channel->data.first;

    while (*link && !is_ready_locked(channel, *link))
        link = &(*link)->next;
    return link;
}

/* Takes a chunk of the transfer, which then goes behind the others: they share the streams. */
static struct flyt_data_job *take_chunk_locked(struct flyt_channel *channel, struct flyt_data_job **link,
                                               struct flyt_chunk_head *ret_head)
{
    struct flyt_data *data = &channel->data;
    struct flyt_data_job *job = remove_locked(data, link);

    *ret_head = cut_locked(channel, job);
    job->busy_count++;
    if (job->next_offset < job->bytes)
        append_locked(data, job);
    return job;
}

/* Writes a chunk of the transfer; `packed` is the thread's, for FLYT_CHUNK_BYTES_MAX, made when it is needed. 0 or a
 * negative errno. */
static int write_part(struct flyt_output *output, const struct flyt_data_job *job, const struct flyt_chunk_head *head,
                      char **packed)
{
    if (job->data)
        return write_chunk(output, head, job->data + head->offset_bytes);
    if (!*packed && !(*packed = malloc(FLYT_CHUNK_BYTES_MAX)))
        return -ENOMEM;
    job->pack(job->user, head->offset_bytes, *packed, head->bytes);
    return write_chunk(output, head, *packed);
}

/* A sending thread: chunk after chunk until the end. */
static void send_chunks(struct flyt_channel *channel, struct flyt_output *output)
{
    struct flyt_data *data = &channel->data;
    struct flyt_data_job **link;
    struct flyt_chunk_head head;
    char *packed = NULL;

    pthread_mutex_lock(&data->mutex);
    for (;;) {
        while (!*(link = find_ready_locked(channel)) && data->state == FLYT_DATA_OPEN)
            wait_locked(channel, data->first);
        if (data->state != FLYT_DATA_OPEN)
            break;
        struct flyt_data_job *job = take_chunk_locked(channel, link, &head);
        pthread_mutex_unlock(&data->mutex);
        int status = write_part(output, job, &head, &packed);
        if (status)
            lose(channel, status);
        pthread_mutex_lock(&data->mutex);
        if (status)
            job->status = FLYT_CHANNEL_LOST;
        if (!--job->busy_count && job->next_offset == job->bytes)
            end_locked(channel, job);
    }
    if (data->state == FLYT_DATA_ENDED)
        fail_all_locked(channel);
    pthread_mutex_unlock(&data->mutex);
    free(packed);
}

/* ---- threads ---- */

static int start_thread_locked(struct flyt_data *data, pthread_t *thread, bool *has_thread, const char *name,
                               void *(*run)(void *), void *user)
{
    int status = flyt_channel_start_thread(thread, name, run, user);

    *has_thread = !status;
    data->thread_count += !status;
    return status;
}

/* The last thing that a thread does. */
static void *leave_thread(struct flyt_data *data)
{
    pthread_mutex_lock(&data->mutex);
    data->thread_count--;
    pthread_cond_broadcast(&data->changed);
    pthread_mutex_unlock(&data->mutex);
    return NULL;
}

static void *run_sender(void *argument)
{
    struct flyt_lane *lane = argument;

    send_chunks(lane->channel, &lane->output);
    return leave_thread(&lane->channel->data);
}

/* ---- receiving ---- */

static bool split_chunk(void *user, const unsigned char *head, size_t head_bytes, size_t record_bytes,
                        struct flyt_input_split *ret_split)
{
    struct flyt_lane *lane = user;
    struct flyt_channel *channel = lane->channel;
    struct flyt_chunk_head *chunk = &lane->chunk;

    if (!flyt_chunk_head_get(head, head_bytes, record_bytes, FLYT_BACK_PROGRAM, FLYT_BACK_CHUNK, chunk))
        return false;
    *ret_split = (struct flyt_input_split){
        .head_bytes = FLYT_CHUNK_HEAD_BYTES,
        .payload_bytes = chunk->bytes,
        .place = channel->handlers->chunk_place(channel->user, chunk->transfer_id, chunk->offset_bytes, chunk->bytes),
    };
    return true;
}

static void *run_receiver(void *argument)
{
    struct flyt_lane *lane = argument;
    struct flyt_channel *channel = lane->channel;
    struct flyt_input_record record;
    bool is_end = false;
    int status;

    atomic_store(&lane->handling, pthread_self());
    for (;;) {
        status = flyt_input_next(&lane->input, &record);
        if (status > 0 && !record.is_split)
            status = -EBADMSG;
        is_end = !status;
        if (!status)
            status = flyt_input_fill(&lane->input, true);
        else if (status > 0 && record.split.place)
            channel->handlers->chunk_done(channel->user, lane->chunk.transfer_id, lane->chunk.offset_bytes,
                                          lane->chunk.bytes);
        if (status < 0)
            break;
    }
    if (is_end && status == -EPIPE && !flyt_input_has_part(&lane->input))
        flyt_channel_break(channel, "the server closed a data stream");
    else if (!flyt_channel_is_lost(channel))
        lose(channel, status);
    return leave_thread(&channel->data);
}

/* ---- opening ---- */

/* Who listens may be in the middle of a restart, of which running programs are not to notice: nobody listens, the
 * connection ends before its answer, or the session's server has not come back to it. Then again, until deadline_ms. */
static int connect_lane(struct flyt_channel *channel, struct flyt_lane *lane, uint64_t deadline_ms,
                        struct flyt_error *err)
{
    for (;;) {
        int status = flyt_channel_connect_data(channel, lane, split_chunk, err);
        bool is_away = status == -ECONNREFUSED || status == -ECONNRESET || status == -EPIPE || status == -ENOENT ||
                       status == -EBUSY;
        struct pollfd lost = {.fd = channel->lost_fd, .events = POLLIN};
        if (!is_away || flyt_clock_ms() >= deadline_ms || poll(&lost, 1, AWAY_PAUSE_MS) != 0)
            return status;
    }
}

/* From now on what comes is read: the server may send as soon as it has answered, and the next stream's opening may
 * take as long as connecting does. Whether it has its receiver. */
static bool receive_lane(struct flyt_data *data, struct flyt_lane *lane)
{
    pthread_mutex_lock(&data->mutex);
    data->lane_count++;
    int status = start_thread_locked(data, &lane->receiver, &lane->has_receiver, "flyt-data", run_receiver, lane);
    pthread_mutex_unlock(&data->mutex);
    return !status;
}

/* Connects the streams; where the server takes none, or a connection fails, everything goes over the main connection.
 * Whether each that is open has its receiver. */
static bool open_lanes(struct flyt_channel *channel)
{
    struct flyt_data *data = &channel->data;
    uint64_t deadline_ms = flyt_clock_ms() + AWAY_MS;
    struct flyt_error err;
    bool is_complete = true;

    for (unsigned count = 0; count < channel->data_stream_count; count++) {
        struct flyt_lane *lane = &data->lanes[count];
        lane->channel = channel;
        int status = connect_lane(channel, lane, deadline_ms, &err);
        if (status) {
            if (!flyt_channel_is_lost(channel) && !flyt_channel_is_away(channel))
                flyt_warn("data stream %u of %u not opened: %s", count + 1, channel->data_stream_count, err.text);
            break;
        }
        is_complete = receive_lane(data, lane) && is_complete;
    }
    return is_complete;
}

/* Those of streams that are open; the first one's is the caller. */
static void start_senders_locked(struct flyt_data *data)
{
    for (unsigned i = 1; i < data->lane_count; i++) { /* one less does no harm */
        struct flyt_lane *lane = &data->lanes[i];
        start_thread_locked(data, &lane->sender, &lane->has_sender, "flyt-send", run_sender, lane);
    }
}

static void *run_first_sender(void *argument)
{
    struct flyt_channel *channel = argument;
    struct flyt_data *data = &channel->data;
    bool is_complete = open_lanes(channel);

    pthread_mutex_lock(&data->mutex);
    const unsigned count = data->lane_count;
    start_senders_locked(data);
    if (data->state == FLYT_DATA_OPENING)
        data->state = FLYT_DATA_OPEN;
    else
        for (unsigned i = 0; i < count; i++) /* ended meanwhile; what a dead server has sent can still be read */
            flyt_endpoint_shut(data->lanes[i].endpoint,
                               data->state == FLYT_DATA_AWAY ? FLYT_ENDPOINT_WRITING : FLYT_ENDPOINT_BOTH);
    pthread_cond_broadcast(&data->changed);
    pthread_mutex_unlock(&data->mutex);
    if (!is_complete)
        flyt_channel_lose(channel, "a thread for a data stream cannot be started");
    send_chunks(channel, count ? &data->lanes[0].output : &channel->output);
    return leave_thread(data);
}

/* Starts the first sender, which opens the streams: who asks may be a handler, and must not wait for a connection. */
static int start_locked(struct flyt_channel *channel)
{
    struct flyt_data *data = &channel->data;

    if (data->state == FLYT_DATA_ENDED)
        return FLYT_CHANNEL_LOST;
    if (data->state != FLYT_DATA_CLOSED)
        return FLYT_CHANNEL_OK;
    if (start_thread_locked(data, &data->first_sender, &data->has_first_sender, "flyt-send", run_first_sender, channel))
        return FLYT_CHANNEL_LOST;
    data->state = FLYT_DATA_OPENING;
    return FLYT_CHANNEL_OK;
}

static void open_data(struct flyt_channel *channel)
{
    struct flyt_data *data = &channel->data;

    if (!channel->data_stream_count)
        return;
    /* A stop is answered when they are open: of a stream that is being opened, what the server sends over it could be
     * lost when the session is moved. Where the program is being stopped it opens none. */
    flyt_send_gate_begin(channel);
    pthread_mutex_lock(&data->mutex);
    while (!atomic_load(&channel->gate.is_shut) && !start_locked(channel) &&
           (data->state == FLYT_DATA_OPENING || data->state == FLYT_DATA_AWAY))
        pthread_cond_wait(&data->changed, &data->mutex);
    while (data->state == FLYT_DATA_OPENING)
        pthread_cond_wait(&data->changed, &data->mutex);
    pthread_mutex_unlock(&data->mutex);
    flyt_send_gate_end(channel);
}

static void shutdown_data(struct flyt_channel *channel)
{
    struct flyt_data *data = &channel->data;

    pthread_mutex_lock(&data->mutex);
    for (unsigned i = 0; i < data->lane_count; i++)
        flyt_endpoint_shut(data->lanes[i].endpoint, FLYT_ENDPOINT_BOTH);
    data->state = FLYT_DATA_ENDED;
    pthread_cond_broadcast(&data->changed);
    pthread_mutex_unlock(&data->mutex);
}

static void join(pthread_t thread, bool *has_thread)
{
    if (*has_thread)
        pthread_join(thread, NULL);
    *has_thread = false;
}

static void join_data(struct flyt_channel *channel)
{
    struct flyt_data *data = &channel->data;

    /* The first one may still be opening; it starts the others. */
    join(data->first_sender, &data->has_first_sender);
    for (unsigned i = 0; i < data->lane_count; i++) {
        join(data->lanes[i].sender, &data->lanes[i].has_sender);
        join(data->lanes[i].receiver, &data->lanes[i].has_receiver);
    }
    pthread_mutex_lock(&data->mutex);
    if (data->state != FLYT_DATA_AWAY)
        fail_all_locked(channel);
    pthread_mutex_unlock(&data->mutex);
}

static const struct flyt_data_ops operations = {
    .grant = take_grant, .open = open_data, .shutdown = shutdown_data, .join = join_data};

void flyt_data_init(struct flyt_data *data)
{
    pthread_mutex_init(&data->mutex, NULL);
    pthread_cond_init(&data->changed, NULL);
    data->last = &data->first;
    data->ops = &operations;
}

/* ---- a session that goes on ---- */

bool flyt_data_leave(struct flyt_channel *channel)
{
    struct flyt_data *data = &channel->data;

    pthread_mutex_lock(&data->mutex);
    bool is_idle = !data->job_count;
    if (is_idle && data->state != FLYT_DATA_ENDED) {
        data->state = FLYT_DATA_AWAY;
        for (unsigned i = 0; i < data->lane_count; i++)
            /* What a dead server has sent can still be read. */
            flyt_endpoint_shut(data->lanes[i].endpoint, FLYT_ENDPOINT_WRITING);
        pthread_cond_broadcast(&data->changed);
    }
    pthread_mutex_unlock(&data->mutex);
    return is_idle;
}

/* Whether the threads end within the time. */
static bool wait_threads_locked(struct flyt_data *data, unsigned timeout_ms)
{
    struct timespec end = flyt_deadline_ms(timeout_ms);

    while (data->thread_count) {
        if (pthread_cond_clockwait(&data->changed, &data->mutex, CLOCK_MONOTONIC, &end))
            break;
    }
    return !data->thread_count;
}

static void close_lane_locked(struct flyt_data *data, struct flyt_lane *lane)
{
    struct flyt_endpoint *endpoint = lane->endpoint;

    data->sent_bytes += atomic_load(&lane->output.sent_bytes);
    data->received_bytes += atomic_load(&lane->input.received_bytes);
    data->writes += atomic_load(&lane->output.write_count);
    atomic_store(&lane->handling, 0);
    lane->endpoint = NULL; /* first: a child that is forked in between must not close what has its number then */
    flyt_endpoint_close(endpoint);
    flyt_input_fini(&lane->input);
    flyt_output_fini(&lane->output);
}

bool flyt_data_end(struct flyt_channel *channel)
{
    struct flyt_data *data = &channel->data;

    pthread_mutex_lock(&data->mutex);
    bool is_over = wait_threads_locked(data, LAST_READ_MS);
    if (!is_over) {
        for (unsigned i = 0; i < data->lane_count; i++)
            flyt_endpoint_shut(data->lanes[i].endpoint, FLYT_ENDPOINT_BOTH);
        is_over = wait_threads_locked(data, END_MS);
    }
    is_over = is_over && !data->job_count;
    pthread_mutex_unlock(&data->mutex);
    if (!is_over)
        return false;
    join_data(channel);
    pthread_mutex_lock(&data->mutex);
    for (unsigned i = 0; i < data->lane_count; i++)
        close_lane_locked(data, &data->lanes[i]);
    data->lane_count = 0;
    pthread_mutex_unlock(&data->mutex);
    return true;
}

void flyt_data_return(struct flyt_channel *channel)
{
    struct flyt_data *data = &channel->data;

    pthread_mutex_lock(&data->mutex);
    if (data->state == FLYT_DATA_AWAY)
        data->state = FLYT_DATA_CLOSED;
    for (struct flyt_data_job *job = data->first; job; job = job->next)
        job->granted_bytes = 0; /* by the old server */
    if (data->first && start_locked(channel))
        fail_all_locked(channel);
    pthread_cond_broadcast(&data->changed);
    pthread_mutex_unlock(&data->mutex);
}

/* ---- the end ---- */

void flyt_data_abandon(struct flyt_data *data)
{
    for (unsigned i = 0; i < FLYT_DATA_STREAMS_MAX; i++)
        flyt_endpoint_abandon(data->lanes[i].endpoint);
}

void flyt_data_fini(struct flyt_data *data)
{
    for (unsigned i = 0; i < data->lane_count; i++) {
        flyt_endpoint_close(data->lanes[i].endpoint);
        flyt_input_fini(&data->lanes[i].input);
        flyt_output_fini(&data->lanes[i].output);
    }
    pthread_mutex_destroy(&data->mutex);
    pthread_cond_destroy(&data->changed);
}

/* ---- sending ---- */

static size_t chunk_bytes_for(const struct flyt_channel *channel, size_t bytes)
{
    size_t share = channel->data_stream_count ? bytes / (4 * channel->data_stream_count) : MAIN_CHUNK_BYTES;

    if (!channel->data_stream_count)
        return MAIN_CHUNK_BYTES;
    if (share < CHUNK_BYTES_MIN)
        return CHUNK_BYTES_MIN;
    return share > FLYT_CHUNK_BYTES_MAX ? FLYT_CHUNK_BYTES_MAX : share & ~(size_t)0xffff;
}

/* Waits until a chunk of it may be sent, and takes that. False: the connection is lost. */
static bool take_here_locked(struct flyt_channel *channel, struct flyt_data_job *job, struct flyt_chunk_head *ret_head)
{
    while (!is_ready_locked(channel, job) && channel->data.state != FLYT_DATA_ENDED)
        wait_locked(channel, true);
    bool is_ready = is_ready_locked(channel, job);
    if (is_ready)
        *ret_head = cut_locked(channel, job);
    return is_ready;
}

/* In the calling thread, over the main connection. */
static int send_chunks_here(struct flyt_channel *channel, struct flyt_data_job *job)
{
    struct flyt_data *data = &channel->data;
    struct flyt_chunk_head head;
    int status = 0;

    pthread_mutex_lock(&data->mutex);
    job->next = data->first_here;
    data->first_here = job;
    while (!status && job->next_offset < job->bytes && take_here_locked(channel, job, &head)) {
        pthread_mutex_unlock(&data->mutex);
        status = write_chunk(&channel->output, &head, job->data + head.offset_bytes);
        pthread_mutex_lock(&data->mutex);
    }
    struct flyt_data_job **link = &data->first_here;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    pthread_mutex_unlock(&data->mutex);
    if (status)
        lose(channel, status);
    return status || flyt_channel_is_lost(channel) ? FLYT_CHANNEL_LOST : FLYT_CHANNEL_OK;
}

static int send_here(struct flyt_channel *channel, struct flyt_data_job *job)
{
    job->chunk_bytes = MAIN_CHUNK_BYTES;
    atomic_fetch_add(&channel->chunked_count, 1);
    flyt_send_gate_begin(channel);
    int status = send_chunks_here(channel, job);
    flyt_send_gate_end(channel);
    atomic_fetch_sub(&channel->chunked_count, 1);
    return status;
}

static struct flyt_data_job new_job(const struct flyt_channel *channel, uint64_t transfer_id, const void *data,
                                    size_t bytes)
{
    return (struct flyt_data_job){
        .transfer_id = transfer_id, .data = data, .bytes = bytes, .chunk_bytes = chunk_bytes_for(channel, bytes)};
}

static int enqueue_locked(struct flyt_channel *channel, struct flyt_data_job *job)
{
    int status = start_locked(channel);

    if (status)
        return status;
    append_locked(&channel->data, job);
    channel->data.job_count++;
    flyt_send_gate_begin(channel);
    pthread_cond_broadcast(&channel->data.changed);
    return FLYT_CHANNEL_OK;
}

static int send_data(struct flyt_channel *channel, uint64_t transfer_id, const void *data, size_t bytes)
{
    struct flyt_data_job job = new_job(channel, transfer_id, data, bytes);

    if (flyt_channel_ready(channel))
        return FLYT_CHANNEL_LOST;
    if (bytes < FLYT_DATA_BYTES_MIN || !channel->data_stream_count)
        return send_here(channel, &job);
    pthread_mutex_lock(&channel->data.mutex);
    while (channel->data.state == FLYT_DATA_AWAY)
        pthread_cond_wait(&channel->data.changed, &channel->data.mutex);
    int status = enqueue_locked(channel, &job);
    /* A transfer that fails is done, too, when no writer has a chunk of it any more. */
    while (!status && !job.is_done)
        pthread_cond_wait(&channel->data.changed, &channel->data.mutex);
    pthread_mutex_unlock(&channel->data.mutex);
    return status ? status : job.status;
}

int flyt_channel_send_data(struct flyt_channel *channel, uint64_t transfer_id, const void *data, size_t bytes)
{
    flyt_channel_enter(channel);
    return flyt_channel_leave(channel, send_data(channel, transfer_id, data, bytes));
}

static int send_later(struct flyt_channel *channel, const struct flyt_data_job *given)
{
    struct flyt_data_job *job = malloc(sizeof *job);

    if (!job)
        return FLYT_CHANNEL_LOST;
    *job = *given;
    flyt_channel_enter(channel);
    int status = flyt_channel_ready(channel);
    if (!status) {
        pthread_mutex_lock(&channel->data.mutex);
        status = enqueue_locked(channel, job);
        pthread_mutex_unlock(&channel->data.mutex);
    }
    if (status)
        free(job);
    return flyt_channel_leave(channel, status ? FLYT_CHANNEL_LOST : FLYT_CHANNEL_OK);
}

int flyt_channel_send_data_later(struct flyt_channel *channel, uint64_t transfer_id, const void *data, size_t bytes,
                                 void (*done)(void *user, uint64_t transfer_id, int status), void *user)
{
    struct flyt_data_job job = new_job(channel, transfer_id, data, bytes);

    job.done = done;
    job.user = user;
    return send_later(channel, &job);
}

int flyt_channel_send_packed_later(struct flyt_channel *channel, uint64_t transfer_id, flyt_channel_pack_fn pack,
                                   size_t bytes, void (*done)(void *user, uint64_t transfer_id, int status), void *user)
{
    struct flyt_data_job job = new_job(channel, transfer_id, NULL, bytes);

    job.pack = pack;
    job.done = done;
    job.user = user;
    return send_later(channel, &job);
}
