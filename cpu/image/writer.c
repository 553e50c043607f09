#include "cpu/image/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "cpu/image/checksum.h"
#include "rpc/base/id.h"

/* Where it is written to. */
struct way {
    int fd;
    int cancel_fd;                                                /* -1: none */
    int (*send)(void *user, struct iovec *parts, unsigned count); /* NULL: to the descriptor */
    void *user;
};

struct flyt_checkpoint_writer {
    struct way way;
    char *name;
    bool has_ended;
    uint64_t stream_bytes;
    struct flyt_error failed; /* code 0: not yet */
    struct flyt_checkpoint_rules rules;
    struct flyt_sha256 digest; /* of heads and bodies */
    struct flyt_packer packer;
    unsigned char head[FLYT_RECORD_HEAD_BYTES + FLYT_CHECKPOINT_BODY_BYTES_MAX];
};

/* The first failure stays. */
static int fail(struct flyt_checkpoint_writer *writer, int code, const char *why, struct flyt_error *err)
{
    if (!writer->failed.code)
        flyt_error_set(&writer->failed, code, "image %.200s: at byte %" PRIu64 ": %s", writer->name,
                       writer->stream_bytes, why);
    *err = writer->failed;
    return writer->failed.code;
}

static int fail_to_write(struct flyt_checkpoint_writer *writer, int code, struct flyt_error *err)
{
    char why[200];
    snprintf(why, sizeof why, "it cannot be written: %s", strerror(code));
    return fail(writer, -code, why, err);
}

/* Until the descriptor takes something, or tells why it does not. 0 or an errno. */
static int wait_for_room(const struct flyt_checkpoint_writer *writer)
{
    struct pollfd polls[] = {{.fd = writer->way.fd, .events = POLLOUT},
                             {.fd = writer->way.cancel_fd, .events = POLLIN}};
    while (poll(polls, 2, -1) < 0)
        if (errno != EINTR)
            return errno;
    return polls[1].revents ? ECANCELED : 0;
}

static int send_all(struct flyt_checkpoint_writer *writer, struct iovec *parts, int part_count, struct flyt_error *err)
{
    uint64_t bytes = 0;
    for (int i = 0; i < part_count; i++)
        bytes += parts[i].iov_len;
    int status = writer->way.send(writer->way.user, parts, (unsigned)part_count);
    if (status)
        return fail_to_write(writer, -status, err);
    writer->stream_bytes += bytes;
    return 0;
}

static int write_all(struct flyt_checkpoint_writer *writer, struct iovec *parts, int part_count, struct flyt_error *err)
{
    if (writer->way.send)
        return send_all(writer, parts, part_count, err);
    while (part_count) {
        ssize_t count = writev(writer->way.fd, parts, part_count);
        if (count < 0 && errno == EINTR)
            continue;
        int code = count < 0 ? errno : 0;
        if (code == EAGAIN && (code = wait_for_room(writer)) == 0)
            continue;
        if (code)
            return fail_to_write(writer, code, err);
        writer->stream_bytes += (uint64_t)count;
        for (; part_count && (size_t)count >= parts->iov_len; parts++, part_count--)
            count -= (ssize_t)parts->iov_len;
        if (part_count) {
            parts->iov_base = (char *)parts->iov_base + count;
            parts->iov_len -= (size_t)count;
        }
    }
    return 0;
}

/* Writes one record. The payload stays where it is. */
static int put(struct flyt_checkpoint_writer *writer, uint32_t type, const void *body, const void *payload,
               uint32_t payload_bytes, struct flyt_error *err)
{
    unsigned char *encoded = writer->head + FLYT_RECORD_HEAD_BYTES;
    bool is_optional = type == FLYT_CHECKPOINT_HASH_KEY || type >= FLYT_CHECKPOINT_STOPPED;
    struct flyt_record_head head = {.type = type,
                                    .number = writer->rules.totals.record_count,
                                    .flags = is_optional ? FLYT_RECORD_OPTIONAL : 0,
                                    .payload_bytes = payload_bytes,
                                    .payload_checksum = flyt_checkpoint_checksum(0, payload, payload_bytes)};
    struct flyt_error why;
    XDR xdrs;

    if (writer->failed.code)
        return fail(writer, 0, "", err);
    int status = flyt_checkpoint_rules_take(&writer->rules, type, body, payload_bytes, &why);
    if (!status)
        status = flyt_checkpoint_rules_payload(&writer->rules, payload, payload_bytes, &why);
    if (status)
        return fail(writer, status == -ENOMEM ? status : -EINVAL, why.text, err);
    xdrmem_create(&xdrs, (char *)encoded, FLYT_CHECKPOINT_BODY_BYTES_MAX, XDR_ENCODE);
    if (!flyt_record_type_find(type)->xdr(&xdrs, (void *)body))
        return fail(writer, -EINVAL, "a part of a record is longer than its bound", err);
    head.body_bytes = xdr_getpos(&xdrs);
    head.body_checksum = flyt_checkpoint_checksum(0, encoded, head.body_bytes);
    flyt_record_head_put(&head, writer->head);
    flyt_sha256_add(&writer->digest, writer->head, FLYT_RECORD_HEAD_BYTES + head.body_bytes);
    struct iovec parts[] = {{writer->head, FLYT_RECORD_HEAD_BYTES + head.body_bytes}, {(void *)payload, payload_bytes}};
    return write_all(writer, parts, payload_bytes ? 2 : 1, err);
}

/* ---- beginning and end ---- */

static int begin(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_head *head, struct flyt_error *err)
{
    unsigned char preamble[FLYT_PREAMBLE_BYTES];
    flyt_checkpoint_head own = *head;
    struct iovec part = {preamble, sizeof preamble};

    own.page_bytes = FLYT_CHECKPOINT_PAGE_BYTES;
    flyt_preamble_put(FLYT_CHECKPOINT_FORMAT, preamble);
    int status = write_all(writer, &part, 1, err);
    return status ? status : put(writer, FLYT_CHECKPOINT_HEAD, &own, NULL, 0, err);
}

int flyt_checkpoint_writer_new(int fd, const char *name, const flyt_checkpoint_head *head,
                               enum flyt_checkpoint_packing packing, struct flyt_checkpoint_writer **ret_writer,
                               struct flyt_error *err)
{
    return flyt_checkpoint_writer_new_cancellable(fd, -1, name, head, packing, ret_writer, err);
}

/* Writes to where `way` does. */
static int make(const struct way *way, const char *name, const flyt_checkpoint_head *head,
                enum flyt_checkpoint_packing packing, struct flyt_checkpoint_writer **ret_writer,
                struct flyt_error *err)
{
    struct flyt_checkpoint_writer *writer = malloc(sizeof *writer);

    if (!writer)
        return flyt_error_set(err, -ENOMEM, "image %s: no memory", name);
    memset(writer, 0, offsetof(struct flyt_checkpoint_writer, head));
    writer->way = *way;
    flyt_checkpoint_rules_init(&writer->rules);
    flyt_sha256_init(&writer->digest);
    writer->name = strdup(name);
    int status = flyt_packer_init(&writer->packer, packing);
    if (!writer->name || status)
        status = flyt_error_set(err, -ENOMEM, "image %s: no memory", name);
    if (!status)
        status = begin(writer, head, err);
    if (status)
        flyt_checkpoint_writer_free(writer);
    else
        *ret_writer = writer;
    return status;
}

int flyt_checkpoint_writer_new_cancellable(int fd, int cancel_fd, const char *name, const flyt_checkpoint_head *head,
                                           enum flyt_checkpoint_packing packing,
                                           struct flyt_checkpoint_writer **ret_writer, struct flyt_error *err)
{
    const struct way way = {.fd = fd, .cancel_fd = cancel_fd};

    return make(&way, name, head, packing, ret_writer, err);
}

int flyt_checkpoint_writer_new_sending(int (*send)(void *user, struct iovec *parts, unsigned count), void *user,
                                       const char *name, const flyt_checkpoint_head *head,
                                       enum flyt_checkpoint_packing packing, struct flyt_checkpoint_writer **ret_writer,
                                       struct flyt_error *err)
{
    const struct way way = {.fd = -1, .cancel_fd = -1, .send = send, .user = user};

    return make(&way, name, head, packing, ret_writer, err);
}

void flyt_checkpoint_writer_pack(struct flyt_checkpoint_writer *writer, enum flyt_checkpoint_packing packing)
{
    writer->packer.packing = packing;
}

struct flyt_checkpoint_writer *flyt_checkpoint_writer_free(struct flyt_checkpoint_writer *writer)
{
    if (writer) {
        flyt_checkpoint_rules_fini(&writer->rules);
        flyt_packer_fini(&writer->packer);
        free(writer->name);
        free(writer);
    }
    return NULL;
}

int flyt_checkpoint_put_sequence(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_sequence *sequence,
                                 struct flyt_error *err)
{
    return put(writer, FLYT_CHECKPOINT_SEQUENCE, sequence, NULL, 0, err);
}

int flyt_checkpoint_put_stopped(struct flyt_checkpoint_writer *writer, uint64_t error_count, struct flyt_error *err)
{
    const flyt_checkpoint_stopped body = {error_count};

    return put(writer, FLYT_CHECKPOINT_STOPPED, &body, NULL, 0, err);
}

int flyt_checkpoint_put_counts(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_counts *counts,
                               struct flyt_error *err)
{
    return put(writer, FLYT_CHECKPOINT_COUNTS, counts, NULL, 0, err);
}

int flyt_checkpoint_put_settings(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_settings *settings,
                                 struct flyt_error *err)
{
    return put(writer, FLYT_CHECKPOINT_SETTINGS, settings, NULL, 0, err);
}

int flyt_checkpoint_put_tallies(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_tallies *tallies,
                                struct flyt_error *err)
{
    return put(writer, FLYT_CHECKPOINT_TALLIES, tallies, NULL, 0, err);
}

int flyt_checkpoint_put_end(struct flyt_checkpoint_writer *writer, struct flyt_error *err)
{
    flyt_checkpoint_end end = {.record_count = writer->rules.totals.record_count,
                               .stream_bytes = writer->stream_bytes,
                               .page_count = flyt_checkpoint_rules_pages(&writer->rules)};
    struct flyt_sha256 digest = writer->digest;

    flyt_sha256_end(&digest, (unsigned char *)end.digest);
    int status = put(writer, FLYT_CHECKPOINT_END, &end, NULL, 0, err);
    writer->has_ended = !status;
    return status;
}

const struct flyt_checkpoint_totals *flyt_checkpoint_writer_totals(const struct flyt_checkpoint_writer *writer)
{
    return &writer->rules.totals;
}

bool flyt_checkpoint_writer_has_ended(const struct flyt_checkpoint_writer *writer)
{
    return !writer->failed.code && writer->has_ended;
}

uint64_t flyt_checkpoint_writer_bytes(const struct flyt_checkpoint_writer *writer)
{
    return writer->stream_bytes;
}

uint64_t flyt_checkpoint_writer_pages(const struct flyt_checkpoint_writer *writer)
{
    return flyt_checkpoint_rules_pages(&writer->rules);
}

uint64_t flyt_checkpoint_writer_kept_pages(const struct flyt_checkpoint_writer *writer)
{
    return flyt_page_map_count_missing(&writer->rules.map);
}

/* ---- small records ---- */

int flyt_checkpoint_put_slot(struct flyt_checkpoint_writer *writer, unsigned slot, uint64_t memory_limit_bytes,
                             struct flyt_error *err)
{
    flyt_checkpoint_slot body = {
        .slot = slot, .window_address = flyt_window_base(slot), .memory_limit_bytes = memory_limit_bytes};

    return put(writer, FLYT_CHECKPOINT_SLOT, &body, NULL, 0, err);
}

int flyt_checkpoint_put_hash_key(struct flyt_checkpoint_writer *writer, const void *key, struct flyt_error *err)
{
    flyt_checkpoint_hash_key body;

    memcpy(body.key, key, sizeof body.key);
    return put(writer, FLYT_CHECKPOINT_HASH_KEY, &body, NULL, 0, err);
}

int flyt_checkpoint_put_round(struct flyt_checkpoint_writer *writer, struct flyt_error *err)
{
    flyt_checkpoint_round body = {.number = writer->rules.totals.round_count + 1};

    return put(writer, FLYT_CHECKPOINT_ROUND, &body, NULL, 0, err);
}

int flyt_checkpoint_put_extent(struct flyt_checkpoint_writer *writer, uint64_t address, uint64_t bytes,
                               struct flyt_error *err)
{
    flyt_checkpoint_extent body = {.address = address, .bytes = bytes};

    return put(writer, FLYT_CHECKPOINT_EXTENT, &body, NULL, 0, err);
}

int flyt_checkpoint_put_extent_gone(struct flyt_checkpoint_writer *writer, uint64_t address, struct flyt_error *err)
{
    flyt_checkpoint_extent_gone body = {.address = address};

    return put(writer, FLYT_CHECKPOINT_EXTENT_GONE, &body, NULL, 0, err);
}

int flyt_checkpoint_put_allocations(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_range *ranges,
                                    uint64_t range_count, struct flyt_error *err)
{
    flyt_checkpoint_allocations body = {.is_first = TRUE};
    int status;

    do {
        uint64_t count = range_count < FLYT_CHECKPOINT_RANGES_MAX ? range_count : FLYT_CHECKPOINT_RANGES_MAX;
        body.ranges.ranges_val = (flyt_checkpoint_range *)ranges;
        body.ranges.ranges_len = (u_int)count;
        status = put(writer, FLYT_CHECKPOINT_ALLOCATIONS, &body, NULL, 0, err);
        body.is_first = FALSE;
        ranges += count;
        range_count -= count;
    } while (range_count && !status);
    return status;
}

int flyt_checkpoint_put_object(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_object *object,
                               struct flyt_error *err)
{
    return put(writer, FLYT_CHECKPOINT_OBJECT, object, NULL, 0, err);
}

int flyt_checkpoint_put_object_gone(struct flyt_checkpoint_writer *writer, uint64_t number, struct flyt_error *err)
{
    flyt_checkpoint_object_gone body = {.number = number};

    return put(writer, FLYT_CHECKPOINT_OBJECT_GONE, &body, NULL, 0, err);
}

/* ---- what comes in parts ---- */

static uint32_t part_of(uint64_t left_bytes)
{
    return left_bytes < FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX ? (uint32_t)left_bytes : FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX;
}

int flyt_checkpoint_put_module_image(struct flyt_checkpoint_writer *writer, const void *image, uint64_t bytes,
                                     unsigned char *ret_sha256, struct flyt_error *err)
{
    flyt_checkpoint_module_image body = {.total_bytes = bytes};
    unsigned char sha256[FLYT_SHA256_BYTES];
    int status = 0;

    flyt_sha256_of(image, bytes, sha256);
    memcpy(body.sha256, sha256, sizeof sha256);
    if (writer->failed.code)
        return fail(writer, 0, "", err);
    if (!flyt_checkpoint_rules_has_module_image(&writer->rules, sha256)) {
        do {
            uint32_t part = part_of(bytes - body.offset_bytes);
            status =
                put(writer, FLYT_CHECKPOINT_MODULE_IMAGE, &body, (const char *)image + body.offset_bytes, part, err);
            body.offset_bytes += part;
        } while (body.offset_bytes < bytes && !status);
    }
    if (!status)
        memcpy(ret_sha256, sha256, sizeof sha256);
    return status;
}

int flyt_checkpoint_put_global(struct flyt_checkpoint_writer *writer, const flyt_checkpoint_global *global,
                               const void *contents, uint64_t bytes, struct flyt_error *err)
{
    flyt_checkpoint_global body = *global;
    const char *at = contents;
    int status;

    do {
        uint32_t part = part_of(bytes);
        status = put(writer, FLYT_CHECKPOINT_GLOBAL, &body, at, part, err);
        at += part;
        bytes -= part;
        body.offset_bytes += part;
    } while (bytes && !status);
    return status;
}

/* ---- pages ---- */

static bool is_zero(const unsigned char *page)
{
    return !page[0] && !memcmp(page, page + 1, FLYT_CHECKPOINT_PAGE_BYTES - 1);
}

/* Hashes of a part of the pages, from hashes of all. */
static void set_hashes(flyt_checkpoint_pages *body, const void *hashes, uint64_t first)
{
    if (hashes) {
        body->hashes.hashes_val = (char *)hashes + first * FLYT_CHECKPOINT_PAGE_HASH_BYTES;
        body->hashes.hashes_len = body->page_count * FLYT_CHECKPOINT_PAGE_HASH_BYTES;
    }
}

static int put_contents(struct flyt_checkpoint_writer *writer, flyt_checkpoint_pages *body, const void *contents,
                        struct flyt_error *err)
{
    uint32_t raw_bytes = body->page_count * FLYT_CHECKPOINT_PAGE_BYTES;
    const void *payload;
    uint32_t payload_bytes = flyt_packer_pack(&writer->packer, contents, raw_bytes, &body->encoding, &payload);

    return put(writer, FLYT_CHECKPOINT_PAGES, body, payload, payload_bytes, err);
}

int flyt_checkpoint_put_pages(struct flyt_checkpoint_writer *writer, uint64_t address, uint64_t page_count,
                              const void *contents, const void *hashes, struct flyt_error *err)
{
    const unsigned char *pages = contents;
    int status = writer->failed.code ? fail(writer, 0, "", err) : 0;

    for (uint64_t first = 0, end; first < page_count && !status; first = end) {
        bool are_zero = is_zero(pages + first * FLYT_CHECKPOINT_PAGE_BYTES);
        uint64_t most = are_zero ? FLYT_CHECKPOINT_RUN_PAGES_MAX : FLYT_CHECKPOINT_DATA_PAGES_MAX;
        for (end = first + 1; end < page_count && end - first < most; end++)
            if (is_zero(pages + end * FLYT_CHECKPOINT_PAGE_BYTES) != are_zero)
                break;
        flyt_checkpoint_pages body = {.address = address + first * FLYT_CHECKPOINT_PAGE_BYTES,
                                      .page_count = (u_int)(end - first),
                                      .encoding = FLYT_CHECKPOINT_ZERO};
        set_hashes(&body, hashes, first);
        status = are_zero ? put(writer, FLYT_CHECKPOINT_PAGES, &body, NULL, 0, err)
                          : put_contents(writer, &body, pages + first * FLYT_CHECKPOINT_PAGE_BYTES, err);
    }
    return status;
}

int flyt_checkpoint_put_run(struct flyt_checkpoint_writer *writer, uint64_t address, uint64_t page_count,
                            flyt_checkpoint_encoding encoding, const void *hashes, struct flyt_error *err)
{
    int status = writer->failed.code ? fail(writer, 0, "", err) : 0;

    for (uint64_t first = 0; first < page_count && !status;) {
        uint64_t left = page_count - first;
        flyt_checkpoint_pages body = {
            .address = address + first * FLYT_CHECKPOINT_PAGE_BYTES,
            .page_count = (u_int)(left < FLYT_CHECKPOINT_RUN_PAGES_MAX ? left : FLYT_CHECKPOINT_RUN_PAGES_MAX),
            .encoding = encoding};
        set_hashes(&body, hashes, first);
        status = put(writer, FLYT_CHECKPOINT_PAGES, &body, NULL, 0, err);
        first += body.page_count;
    }
    return status;
}

/* ---- from node to node ---- */

int flyt_checkpoint_put_streams(struct flyt_checkpoint_writer *writer, unsigned stream_count, const void *hash_key,
                                struct flyt_error *err)
{
    flyt_checkpoint_streams body = {.stream_count = stream_count};

    memcpy(body.hash_key, hash_key, sizeof body.hash_key);
    int status = put(writer, FLYT_CHECKPOINT_STREAMS, &body, NULL, 0, err);
    explicit_bzero(&body, sizeof body);
    return status;
}

int flyt_checkpoint_put_elsewhere(struct flyt_checkpoint_writer *writer, unsigned stream,
                                  const flyt_checkpoint_run *runs, uint32_t run_count, const void *hashes,
                                  uint64_t *ret_number, struct flyt_error *err)
{
    flyt_checkpoint_elsewhere body = {.stream = stream, .number = writer->rules.batch_number + 1};

    body.runs.runs_val = (flyt_checkpoint_run *)runs;
    body.runs.runs_len = run_count;
    for (uint32_t i = 0; i < run_count; i++)
        body.hashes.hashes_len += runs[i].page_count * FLYT_CHECKPOINT_PAGE_HASH_BYTES;
    body.hashes.hashes_val = (char *)hashes;
    int status = put(writer, FLYT_CHECKPOINT_ELSEWHERE, &body, NULL, 0, err);
    if (!status)
        *ret_number = body.number;
    return status;
}

int flyt_checkpoint_put_alive(struct flyt_checkpoint_writer *writer, uint64_t idle_ms, struct flyt_error *err)
{
    flyt_checkpoint_alive body = {.idle_ms = idle_ms};

    return put(writer, FLYT_CHECKPOINT_ALIVE, &body, NULL, 0, err);
}

int flyt_checkpoint_put_hashes(struct flyt_checkpoint_writer *writer, uint64_t address, uint64_t page_count,
                               const void *hashes, struct flyt_error *err)
{
    const char *at = hashes;
    int status = 0;

    while (page_count && !status) {
        uint64_t count = page_count < FLYT_CHECKPOINT_HASHED_PAGES_MAX ? page_count : FLYT_CHECKPOINT_HASHED_PAGES_MAX;
        flyt_checkpoint_hashes body = {.address = address, .page_count = (u_int)count};
        status = put(writer, FLYT_CHECKPOINT_HASHES, &body, at, (uint32_t)count * FLYT_CHECKPOINT_PAGE_HASH_BYTES, err);
        address += count * FLYT_CHECKPOINT_PAGE_BYTES;
        at += count * FLYT_CHECKPOINT_PAGE_HASH_BYTES;
        page_count -= count;
    }
    return status;
}
