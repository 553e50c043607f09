#include "rpc/transport/input.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum {
    MARK_BYTES = 4,
    BUFFER_BYTES_MIN = 4096,
    AFTER_PAYLOAD_BYTES =
        128,             /* behind a payload: the next record's mark and head, hardly more, or it is copied twice */
    FRAGMENTS_MAX = 4096 /* closing the gaps between fragments costs time: a flood of tiny ones is refused */
};

static const uint32_t mark_last = 0x80000000u; /* RFC 5531 section 11: the last fragment of its record */

int flyt_input_init(struct flyt_input *input, struct flyt_endpoint *endpoint, size_t record_bytes_max,
                    size_t read_ahead_bytes, flyt_input_split_fn split_fn, void *user)
{
    memset(input, 0, sizeof *input);
    input->endpoint = endpoint;
    input->record_bytes_max = record_bytes_max;
    input->read_ahead_bytes = read_ahead_bytes;
    input->split_fn = split_fn;
    input->user = user;
    input->capacity = read_ahead_bytes > BUFFER_BYTES_MIN ? read_ahead_bytes : BUFFER_BYTES_MIN;
    input->buffer = malloc(input->capacity);
    return input->buffer ? 0 : -ENOMEM;
}

void flyt_input_fini(struct flyt_input *input)
{
    free(input->buffer);
    input->buffer = NULL;
}

/* Makes room for `more` bytes behind `end`, first by moving what is there to the front. */
static int make_room(struct flyt_input *input, size_t more)
{
    if (input->begin == input->end)
        input->begin = input->end = 0;
    if (input->capacity - input->end >= more)
        return 0;
    size_t held = input->end - input->begin;
    if (input->begin) {
        memmove(input->buffer, input->buffer + input->begin, held);
        input->begin = 0;
        input->end = held;
    }
    if (input->capacity - held >= more)
        return 0;
    unsigned char *buffer = realloc(input->buffer, held + more);
    if (!buffer)
        return -ENOMEM;
    input->buffer = buffer;
    input->capacity = held + more;
    return 0;
}

int flyt_input_preload(struct flyt_input *input, const void *data, size_t bytes)
{
    int status = make_room(input, bytes);

    if (status)
        return status;
    memcpy(input->buffer + input->end, data, bytes);
    input->end += bytes;
    return 0;
}

/* ---- from bytes to records ---- */

/* Enters a fragment's mark at `at` into the record. */
static int take_mark(struct flyt_input *input, const unsigned char *at)
{
    uint32_t mark;

    memcpy(&mark, at, sizeof mark);
    mark = ntohl(mark);
    input->is_last = mark & mark_last;
    input->record_bytes += mark & ~mark_last;
    input->fragment_count++;
    if (input->record_bytes > input->record_bytes_max)
        return -EMSGSIZE;
    if (input->fragment_count > FRAGMENTS_MAX || (input->is_last && input->record_bytes % 4))
        return -EBADMSG;
    return 0;
}

/* Takes marks until the record's length is known or bytes are missing; moves later fragments up to the earlier. */
static int assemble(struct flyt_input *input)
{
    if (!input->in_record) {
        if (input->end - input->begin < MARK_BYTES)
            return 0;
        input->record_bytes = input->fragment_count = 0;
        input->in_record = true;
        input->is_split_asked = false;
        const unsigned char *mark = input->buffer + input->begin;
        input->begin += MARK_BYTES;
        int status = take_mark(input, mark);
        if (status)
            return status;
    }
    while (!input->is_last && input->end - input->begin >= input->record_bytes + MARK_BYTES) {
        unsigned char *mark = input->buffer + input->begin + input->record_bytes;
        int status = take_mark(input, mark);
        if (status)
            return status;
        input->end -= MARK_BYTES;
        memmove(mark, mark + MARK_BYTES, (size_t)(input->buffer + input->end - mark));
    }
    return 0;
}

/* Asks the consumer whether the record is to be cut, once enough of it is there. */
static int ask_split(struct flyt_input *input)
{
    size_t held = input->end - input->begin;
    size_t peek = input->record_bytes < sizeof input->head ? input->record_bytes : sizeof input->head;

    if (input->is_split_asked || !input->is_last || held < peek)
        return 0;
    input->is_split_asked = true;
    if (!input->split_fn || input->fragment_count > 1)
        return 0;
    if (!input->split_fn(input->user, input->buffer + input->begin, peek, input->record_bytes, &input->split))
        return 0;
    memcpy(input->head, input->buffer + input->begin, peek); /* which the record has in front of its payload */
    size_t cut = input->split.head_bytes + input->split.payload_bytes;
    if (input->split.head_bytes > peek || cut > input->record_bytes || input->record_bytes - cut > 3)
        return -EBADMSG;
    input->begin += input->split.head_bytes;
    input->payload_done_bytes = 0;
    input->padding_bytes = input->record_bytes - cut;
    input->is_split = true;
    return 0;
}

/* Moves what the buffer holds of a payload to its place, and skips its padding. 1: the record is complete. */
static int take_payload(struct flyt_input *input, struct flyt_input_record *record)
{
    size_t held = input->end - input->begin;
    size_t left = input->split.payload_bytes - input->payload_done_bytes;
    size_t part = held < left ? held : left;

    if (part && input->split.place)
        memcpy((char *)input->split.place + input->payload_done_bytes, input->buffer + input->begin, part);
    input->payload_done_bytes += part;
    input->begin += part;
    if (part < left || input->end - input->begin < input->padding_bytes)
        return 0;
    input->begin += input->padding_bytes;
    input->in_record = input->is_split = false;
    *record = (struct flyt_input_record){
        .data = input->head, .bytes = input->split.head_bytes, .is_split = true, .split = input->split};
    return 1;
}

int flyt_input_next(struct flyt_input *input, struct flyt_input_record *ret_record)
{
    int status = 0;

    if (!input->is_split)
        status = assemble(input);
    if (!status && !input->is_split && input->in_record)
        status = ask_split(input);
    if (status)
        return status;
    if (input->is_split)
        return take_payload(input, ret_record);
    if (!input->in_record || !input->is_last || input->end - input->begin < input->record_bytes)
        return 0;
    *ret_record = (struct flyt_input_record){.data = input->buffer + input->begin, .bytes = input->record_bytes};
    input->begin += input->record_bytes;
    input->in_record = false;
    return 1;
}

bool flyt_input_has_record(const struct flyt_input *input)
{
    size_t held = input->end - input->begin;
    uint32_t mark;

    if (input->is_split)
        return held >= input->split.payload_bytes - input->payload_done_bytes + input->padding_bytes;
    if (input->in_record)
        return input->is_last && held >= input->record_bytes;
    if (held < MARK_BYTES)
        return false;
    memcpy(&mark, input->buffer + input->begin, sizeof mark);
    mark = ntohl(mark);
    /* Of several fragments: perhaps not all there, but then flyt_input_next takes at least the first one's mark. */
    return mark & mark_last ? held - MARK_BYTES >= (mark & ~mark_last) : held - MARK_BYTES >= mark;
}

bool flyt_input_has_part(const struct flyt_input *input)
{
    return input->in_record || input->is_split || input->begin != input->end;
}

void flyt_input_take(struct flyt_input *input, struct flyt_input *from)
{
    free(input->buffer);
    input->endpoint = from->endpoint;
    input->buffer = from->buffer;
    input->capacity = from->capacity;
    input->begin = from->begin;
    input->end = from->end;
    input->in_record = from->in_record;
    input->is_last = from->is_last;
    input->is_split_asked = from->is_split_asked;
    input->is_split = from->is_split;
    input->record_bytes = from->record_bytes;
    input->fragment_count = from->fragment_count;
    input->split = from->split;
    input->payload_done_bytes = from->payload_done_bytes;
    input->padding_bytes = from->padding_bytes;
    memcpy(input->head, from->head, sizeof input->head);
    atomic_fetch_add_explicit(&input->received_bytes, atomic_load(&from->received_bytes), memory_order_relaxed);
    from->buffer = NULL;
    from->capacity = from->begin = from->end = 0;
    from->in_record = from->is_split = false;
}

/* ---- from the endpoint to bytes ---- */

static int receive(struct flyt_input *input, const struct iovec *parts, size_t part_count, bool may_wait)
{
    ssize_t received = flyt_endpoint_read(input->endpoint, parts, part_count, may_wait);

    if (received > 0)
        atomic_fetch_add_explicit(&input->received_bytes, (uint64_t)received, memory_order_relaxed);
    return (int)received;
}

/* Straight to the payload's place, and a little of what follows into the buffer, which is empty. */
static int fill_payload(struct flyt_input *input, bool may_wait)
{
    size_t left = input->split.payload_bytes - input->payload_done_bytes;

    input->begin = input->end = 0;
    struct iovec parts[2] = {
        {.iov_base = (char *)input->split.place + input->payload_done_bytes, .iov_len = left},
        {.iov_base = input->buffer, .iov_len = AFTER_PAYLOAD_BYTES},
    };
    int received = receive(input, parts, 2, may_wait);
    if (received > 0) {
        size_t part = (size_t)received < left ? (size_t)received : left;
        input->payload_done_bytes += part;
        input->end = (size_t)received - part;
    }
    return received;
}

int flyt_input_fill(struct flyt_input *input, bool may_wait)
{
    if (input->is_split && input->split.place && input->payload_done_bytes < input->split.payload_bytes)
        return fill_payload(input, may_wait);

    size_t held = input->end - input->begin;
    size_t missing = 0, wanted;
    if (input->is_split) { /* thrown away: piece by piece through the buffer, which need not grow for that */
        wanted = input->split.payload_bytes - input->payload_done_bytes + input->padding_bytes;
    } else {
        size_t record = input->in_record ? input->record_bytes + (input->is_last ? 0 : MARK_BYTES) : 0;
        missing = wanted = record > held ? record - held : 0;
    }
    wanted += input->read_ahead_bytes;
    int status = make_room(input, missing > input->read_ahead_bytes ? missing : input->read_ahead_bytes);
    if (status)
        return status;
    struct iovec part = {.iov_base = input->buffer + input->end, .iov_len = input->capacity - input->end};
    if (part.iov_len > wanted)
        part.iov_len = wanted;
    int received = receive(input, &part, 1, may_wait);
    if (received > 0)
        input->end += (size_t)received;
    return received;
}
