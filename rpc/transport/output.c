#include "rpc/transport/output.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include "rpc/proto/limits.h"

enum {
    MARK_BYTES = 4,
    KEPT_BYTES_MAX = 1024 * 1024 /* a buffer that grew beyond this for one record is freed again */
};

int flyt_output_init(struct flyt_output *output, struct flyt_endpoint *endpoint)
{
    memset(output, 0, sizeof *output);
    output->endpoint = endpoint;
    pthread_mutex_init(&output->mutex, NULL);
    pthread_cond_init(&output->changed, NULL);
    output->fill.bytes_max = output->out.bytes_max = FLYT_OUTPUT_WAITING_BYTES_MAX + 2 * FLYT_RECORD_BYTES_MAX;
    if (!flyt_bytes_reserve(&output->fill, 64 * 1024) || !flyt_bytes_reserve(&output->out, 64 * 1024)) {
        flyt_output_fini(output);
        return -ENOMEM;
    }
    return 0;
}

void flyt_output_fini(struct flyt_output *output)
{
    flyt_bytes_fini(&output->fill);
    flyt_bytes_fini(&output->out);
    pthread_mutex_destroy(&output->mutex);
    pthread_cond_destroy(&output->changed);
}

static void wait_locked(struct flyt_output *output)
{
    output->waiter_count++;
    pthread_cond_wait(&output->changed, &output->mutex);
    output->waiter_count--;
}

static void tell_locked(struct flyt_output *output)
{
    if (output->waiter_count)
        pthread_cond_broadcast(&output->changed);
}

/* Whether the endpoint has taken bytes that it has not sent. */
static bool has_pending(const struct flyt_output *output)
{
    return atomic_load_explicit(&output->endpoint->has_pending, memory_order_relaxed);
}

static bool is_all_sent_locked(const struct flyt_output *output)
{
    return output->out_sent_bytes == output->out.used && !has_pending(output);
}

/* Others look at it all the time: it is written when it changes. */
static void set_locked(_Atomic(bool) *place, bool value)
{
    if (atomic_load_explicit(place, memory_order_relaxed) != value)
        atomic_store(place, value);
}

static void update_waiting_locked(struct flyt_output *output)
{
    bool is_idle = !output->status && !output->is_writing;
    bool is_left = !is_all_sent_locked(output);

    set_locked(&output->is_stuck, is_idle && is_left);
    set_locked(&output->is_waiting, is_idle && (output->fill.used || is_left));
}

static void fail_locked(struct flyt_output *output, int status)
{
    if (!output->status)
        output->status = status;
    update_waiting_locked(output);
    if (output->waiter_count)
        pthread_cond_broadcast(&output->changed);
}

void flyt_output_fail(struct flyt_output *output, int status)
{
    flyt_output_lock(output);
    fail_locked(output, status);
    flyt_output_unlock(output);
}

/* ---- records ---- */

int flyt_output_begin_locked(struct flyt_output *output, bool may_wait, XDR *xdrs)
{
    while (may_wait && !output->status && output->fill.used >= FLYT_OUTPUT_WAITING_BYTES_MAX) {
        if (output->is_writing)
            wait_locked(output);
        else
            flyt_output_flush_locked(output, true);
    }
    if (!output->status && !flyt_bytes_reserve(&output->fill, MARK_BYTES))
        fail_locked(output, -ENOBUFS);
    if (output->status)
        return output->status;
    output->record_begin = output->fill.used;
    output->fill.used += MARK_BYTES;
    flyt_xdr_encode_init(xdrs, &output->fill);
    return 0;
}

/* Writes the record mark: one fragment, the last (RFC 5531 section 11), followed by `more` bytes from elsewhere. */
static void put_mark_locked(struct flyt_output *output, size_t more)
{
    size_t bytes = output->fill.used - output->record_begin - MARK_BYTES + more;
    uint32_t mark = htonl(0x80000000u | (uint32_t)bytes);

    memcpy(output->fill.data + output->record_begin, &mark, sizeof mark);
}

void flyt_output_end_locked(struct flyt_output *output)
{
    put_mark_locked(output, 0);
    update_waiting_locked(output);
}

void flyt_output_cancel_locked(struct flyt_output *output)
{
    output->fill.used = output->record_begin;
}

/* ---- writing ---- */

/* Sends all parts, or as much as the endpoint takes where it must not wait; the parts are used up. 0 or a negative
 * errno; *ret_sent tells in both cases how many bytes have gone. */
static int send_parts(struct flyt_output *output, struct iovec *part, size_t part_count, bool may_wait,
                      size_t *ret_sent)
{
    size_t total = 0;
    int status = 0;

    while (part_count || has_pending(output)) {
        ssize_t sent = flyt_endpoint_write(output->endpoint, part, part_count, may_wait);
        if (sent == -EAGAIN && !may_wait)
            break;
        if (sent < 0) {
            status = (int)sent;
            break;
        }
        atomic_fetch_add_explicit(&output->write_count, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&output->sent_bytes, (size_t)sent, memory_order_relaxed);
        total += (size_t)sent;
        for (; part_count && (size_t)sent >= part->iov_len; part++, part_count--)
            sent -= (ssize_t)part->iov_len;
        if (part_count) {
            part->iov_base = (char *)part->iov_base + sent;
            part->iov_len -= (size_t)sent;
        }
    }
    *ret_sent = total;
    return status;
}

/* The writer empties `out`, of which nothing is left, and takes what was filled meanwhile: record_bytes of whole
 * records, and maybe the head of a bulk record. */
static void take_filled_locked(struct flyt_output *output, size_t record_bytes)
{
    struct flyt_bytes empty = output->out;

    if (output->turn)
        output->turn(output->turn_user, &empty, record_bytes);
    if (empty.capacity > KEPT_BYTES_MAX)
        flyt_bytes_fini(&empty);
    empty.used = 0;
    output->out = output->fill;
    output->fill = empty;
    output->out_sent_bytes = 0;
}

/* Writing has failed: for ever, or until there is another connection. */
static void break_locked(struct flyt_output *output, int status)
{
    if (output->broken && output->broken(output->broken_user, status))
        output->is_held = true;
    else
        fail_locked(output, status);
}

/* Writes `out` and then `data`; the mutex is free meanwhile, the writer's role is the caller's. 0 or a negative errno,
 * after which the output has failed or is held. */
static int write_out_locked(struct flyt_output *output, bool may_wait, const void *data, size_t bytes, size_t padding)
{
    static const char zeros[4];
    struct iovec parts[3] = {
        {.iov_base = output->out.data + output->out_sent_bytes, .iov_len = output->out.used - output->out_sent_bytes},
        {.iov_base = (void *)data, .iov_len = bytes},
        {.iov_base = (void *)zeros, .iov_len = padding},
    };
    size_t first = parts[0].iov_len ? 0 : 1, end = padding ? 3 : bytes ? 2 : 1;

    flyt_output_unlock(output);
    size_t sent;
    int status = send_parts(output, parts + first, end - first, may_wait, &sent);
    flyt_output_lock(output);
    size_t left = output->out.used - output->out_sent_bytes;
    output->out_sent_bytes += sent < left ? sent : left;
    if (status)
        break_locked(output, status);
    return status ? status : output->status;
}

int flyt_output_flush_locked(struct flyt_output *output, bool may_wait)
{
    bool is_all_taken = false;

    if (output->is_writing) {
        output->is_wanted_again = true;
        return output->status;
    }
    if (!output->fill.used && is_all_sent_locked(output)) /* as in most rounds of a server's loop */
        return output->status;
    output->is_writing = true;
    /* A first round may have to finish what an earlier writer left; what was filled before this call goes out in the
     * round after it, and what others filled and wanted written meanwhile in further ones. */
    while (!output->status && !output->is_held) {
        if (is_all_sent_locked(output)) {
            if (is_all_taken && !output->is_wanted_again && output->fill.used < FLYT_OUTPUT_WAITING_BYTES_MAX)
                break;
            if (!output->fill.used)
                break;
            take_filled_locked(output, output->fill.used);
            is_all_taken = true;
            output->is_wanted_again = false;
        }
        write_out_locked(output, may_wait, NULL, 0, 0);
        tell_locked(output);
        if (!is_all_sent_locked(output)) /* only where it must not wait */
            break;
    }
    flyt_output_leave_writer_locked(output);
    return output->status;
}

void flyt_output_leave_writer_locked(struct flyt_output *output)
{
    output->is_writing = output->is_held;
    update_waiting_locked(output);
    tell_locked(output);
}

int flyt_output_take_writer_locked(struct flyt_output *output)
{
    do {
        while (output->is_writing && !output->status)
            wait_locked(output);
        if (output->status)
            return output->status;
        output->is_writing = true;
        output->is_wanted_again = false;
        if (output->out_sent_bytes == output->out.used || !write_out_locked(output, true, NULL, 0, 0))
            return 0;
        flyt_output_leave_writer_locked(output);
    } while (!output->status);
    return output->status;
}

int flyt_output_write_payload_locked(struct flyt_output *output, const void *data, size_t bytes)
{
    size_t padding = -bytes & 3;

    put_mark_locked(output, bytes + padding);
    take_filled_locked(output, output->record_begin);
    output->is_wanted_again = false;
    int status = write_out_locked(output, true, data, bytes, padding);
    bool is_wanted_again = output->is_wanted_again;
    flyt_output_leave_writer_locked(output);
    return !status && is_wanted_again ? flyt_output_flush_locked(output, true) : status;
}

/* ---- another connection ---- */

void flyt_output_hold(struct flyt_output *output)
{
    flyt_output_lock(output);
    while (output->is_writing && !output->is_held && !output->status)
        wait_locked(output);
    output->is_held = output->is_writing = true;
    update_waiting_locked(output);
    flyt_output_unlock(output);
}

void flyt_output_go_on_locked(struct flyt_output *output, struct flyt_endpoint *endpoint, struct flyt_bytes *out)
{
    flyt_bytes_fini(&output->out);
    output->endpoint = endpoint;
    output->out = *out;
    output->out_sent_bytes = 0;
    *out = (struct flyt_bytes){0};
    output->is_held = output->is_wanted_again = false;
    flyt_output_leave_writer_locked(output);
}
