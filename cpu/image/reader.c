#include "cpu/image/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/image/checksum.h"

/* Grows to what is needed, never beyond what heads of records may ask for. */
struct buffer {
    unsigned char *data;
    size_t capacity;
};

struct flyt_checkpoint_reader {
    int fd;
    char *name;
    char *build; /* that wrote it; NULL: not known yet */
    bool must_end, has_begun, has_ended;
    bool is_skimming;
    uint64_t stream_bytes; /* read so far */
    uint64_t record_offset_bytes;
    struct flyt_error failed; /* code 0: not yet */
    struct flyt_checkpoint_rules rules;
    struct flyt_sha256 digest; /* of heads and bodies */
    struct flyt_record_head head;
    const struct flyt_record_type *row; /* of the current record; NULL: body holds nothing to free */
    union flyt_checkpoint_body body;
    bool is_payload_open; /* not read yet */
    struct flyt_unpacker unpacker;
    int (*wait)(void *user, struct flyt_error *err); /* NULL: the descriptor blocks */
    void *wait_user;
    ssize_t (*read)(void *user, void *place, size_t bytes); /* with wait_user; NULL: from the descriptor */
    struct buffer record;                                   /* head and body */
    struct buffer payload, unpacked;                        /* of what nobody wants, or is packed */
};

/* The first failure stays. offset_bytes: where the image is wrong. */
__attribute__((format(printf, 5, 6))) static int fail(struct flyt_checkpoint_reader *reader, int code,
                                                      uint64_t offset_bytes, struct flyt_error *err, const char *format,
                                                      ...)
{
    char why[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    flyt_error_set(&reader->failed, code, "image %.200s: %s at byte %" PRIu64 ": %s", reader->name,
                   code == -EBADMSG   ? "damaged"
                   : code == -ENODATA ? "cut off"
                   : code == -ENOTSUP ? "not supported"
                                      : "not read",
                   offset_bytes, why);
    *err = reader->failed;
    return code;
}

int flyt_checkpoint_reader_new(int fd, const char *name, bool must_end, struct flyt_checkpoint_reader **ret_reader,
                               struct flyt_error *err)
{
    struct flyt_checkpoint_reader *reader = calloc(1, sizeof *reader);

    if (!reader)
        return flyt_error_set(err, -ENOMEM, "image %s: no memory", name);
    reader->fd = fd;
    reader->must_end = must_end;
    reader->name = strdup(name);
    if (!reader->name) {
        free(reader);
        return flyt_error_set(err, -ENOMEM, "image %s: no memory", name);
    }
    flyt_checkpoint_rules_init(&reader->rules);
    flyt_sha256_init(&reader->digest);
    *ret_reader = reader;
    return 0;
}

void flyt_checkpoint_reader_set_wait(struct flyt_checkpoint_reader *reader,
                                     int (*wait)(void *user, struct flyt_error *err), void *user)
{
    reader->wait = wait;
    reader->wait_user = user;
}

void flyt_checkpoint_reader_set_source(struct flyt_checkpoint_reader *reader,
                                       ssize_t (*read)(void *user, void *place, size_t bytes),
                                       int (*wait)(void *user, struct flyt_error *err), void *user)
{
    reader->read = read;
    flyt_checkpoint_reader_set_wait(reader, wait, user);
}

void flyt_checkpoint_reader_skim(struct flyt_checkpoint_reader *reader)
{
    reader->is_skimming = true;
}

static void forget_record(struct flyt_checkpoint_reader *reader)
{
    if (reader->row)
        xdr_free(reader->row->xdr, (char *)&reader->body);
    reader->row = NULL;
}

struct flyt_checkpoint_reader *flyt_checkpoint_reader_free(struct flyt_checkpoint_reader *reader)
{
    if (reader) {
        forget_record(reader);
        flyt_checkpoint_rules_fini(&reader->rules);
        flyt_unpacker_fini(&reader->unpacker);
        free(reader->record.data);
        free(reader->payload.data);
        free(reader->unpacked.data);
        free(reader->build);
        free(reader->name);
        free(reader);
    }
    return NULL;
}

/* What is in the buffer stays. */
static int need(struct flyt_checkpoint_reader *reader, struct buffer *buffer, size_t bytes, struct flyt_error *err)
{
    if (bytes > buffer->capacity) {
        unsigned char *data = realloc(buffer->data, bytes);
        if (!data)
            return fail(reader, -ENOMEM, reader->stream_bytes, err, "no memory");
        buffer->data = data;
        buffer->capacity = bytes;
    }
    return 0;
}

/* Nothing is there to be read. 0: it is to be tried again. */
static int wait_for_more(struct flyt_checkpoint_reader *reader, struct flyt_error *err)
{
    struct flyt_error why;
    int status = reader->wait(reader->wait_user, &why);

    return status ? fail(reader, status, reader->stream_bytes, err, "%s", why.text) : 0;
}

/* Bytes, 0 at the end, or a negative errno. */
static ssize_t read_some(struct flyt_checkpoint_reader *reader, void *place, size_t bytes)
{
    if (reader->read)
        return reader->read(reader->wait_user, place, bytes);
    ssize_t count = read(reader->fd, place, bytes);
    return count < 0 ? -errno : count;
}

/* Reads exactly so many bytes. what: that are missing where it ends before. */
static int read_all(struct flyt_checkpoint_reader *reader, void *place, size_t bytes, const char *what,
                    struct flyt_error *err)
{
    char *at = place;

    while (bytes) {
        ssize_t count = read_some(reader, at, bytes);
        if (count == -EINTR)
            continue;
        if (count == -EAGAIN && reader->wait) {
            int status = wait_for_more(reader, err);
            if (status)
                return status;
            continue;
        }
        if (count < 0)
            return fail(reader, (int)count, reader->stream_bytes, err, "%s", strerror((int)-count));
        if (!count)
            return fail(reader, -ENODATA, reader->stream_bytes, err, "%zu bytes of %s are missing%s", bytes, what,
                        reader->has_begun ? "" : "; is this an image?");
        at += count;
        bytes -= (size_t)count;
        reader->stream_bytes += (uint64_t)count;
    }
    return 0;
}

/* What a record is about, for errors. */
static void describe(const struct flyt_checkpoint_reader *reader, char *text, size_t text_bytes)
{
    const union flyt_checkpoint_body *body = &reader->body;

    if (reader->head.type == FLYT_CHECKPOINT_PAGES)
        snprintf(text, text_bytes, "%u pages at %#" PRIx64, body->pages.page_count, (uint64_t)body->pages.address);
    else if (reader->head.type == FLYT_CHECKPOINT_GLOBAL)
        snprintf(text, text_bytes, "the global %.200s", body->global.symbol);
    else
        snprintf(text, text_bytes, "a record of type %s", reader->row ? reader->row->name : "unknown");
}

/* ---- the payload ---- */

/* Reads it, whole, and checks it. */
static int read_payload(struct flyt_checkpoint_reader *reader, void *place, struct flyt_error *err)
{
    struct flyt_error why;
    char what[300];

    reader->is_payload_open = false;
    describe(reader, what, sizeof what);
    int status = read_all(reader, place, reader->head.payload_bytes, what, err);
    if (status)
        return status;
    if (flyt_checkpoint_checksum(0, place, reader->head.payload_bytes) != reader->head.payload_checksum)
        return fail(reader, -EBADMSG, reader->record_offset_bytes, err, "the checksum of %s does not fit", what);
    if (reader->row)
        status = flyt_checkpoint_rules_payload(&reader->rules, place, reader->head.payload_bytes, &why);
    return status ? fail(reader, status, reader->record_offset_bytes, err, "%s: %s", what, why.text) : 0;
}

static bool is_packed(const struct flyt_checkpoint_reader *reader)
{
    return reader->row && reader->head.type == FLYT_CHECKPOINT_PAGES &&
           (reader->body.pages.encoding == FLYT_CHECKPOINT_LZ4 || reader->body.pages.encoding == FLYT_CHECKPOINT_ZSTD);
}

static uint64_t place_bytes(const struct flyt_checkpoint_reader *reader)
{
    if (!reader->row || reader->head.type != FLYT_CHECKPOINT_PAGES)
        return reader->row ? reader->head.payload_bytes : 0;
    return reader->body.pages.encoding == FLYT_CHECKPOINT_PARENT
               ? 0
               : (uint64_t)reader->body.pages.page_count * FLYT_CHECKPOINT_PAGE_BYTES;
}

int flyt_checkpoint_place(struct flyt_checkpoint_reader *reader, void *place, struct flyt_error *err)
{
    if (reader->failed.code) {
        *err = reader->failed;
        return err->code;
    }
    if (reader->row && reader->head.type == FLYT_CHECKPOINT_PAGES &&
        reader->body.pages.encoding == FLYT_CHECKPOINT_ZERO)
        memset(place, 0, place_bytes(reader));
    if (!reader->is_payload_open)
        return 0;
    if (!is_packed(reader))
        return read_payload(reader, place, err);
    int status = need(reader, &reader->payload, reader->head.payload_bytes, err);
    if (!status)
        status = read_payload(reader, reader->payload.data, err);
    if (status)
        return status;
    status = flyt_unpacker_unpack(&reader->unpacker, reader->body.pages.encoding, reader->payload.data,
                                  reader->head.payload_bytes, place, place_bytes(reader));
    return status
               ? fail(reader, status, reader->record_offset_bytes, err, "%u pages at %#" PRIx64 " cannot be unpacked",
                      reader->body.pages.page_count, (uint64_t)reader->body.pages.address)
               : 0;
}

/* Where they are missing, what follows is, too. */
static int pass_over_payload(struct flyt_checkpoint_reader *reader, struct flyt_error *err)
{
    reader->is_payload_open = false;
    if (lseek(reader->fd, reader->head.payload_bytes, SEEK_CUR) < 0) {
        int code = errno;
        return fail(reader, -code, reader->stream_bytes, err, "%s", strerror(code));
    }
    reader->stream_bytes += reader->head.payload_bytes;
    return 0;
}

/* What nobody wanted is checked all the same, unless it is skimmed. */
static int drain(struct flyt_checkpoint_reader *reader, struct flyt_error *err)
{
    struct buffer *buffer = is_packed(reader) ? &reader->unpacked : &reader->payload;

    if (!reader->is_payload_open)
        return 0;
    if (reader->is_skimming && reader->row &&
        (reader->head.type == FLYT_CHECKPOINT_PAGES || reader->head.type == FLYT_CHECKPOINT_HASHES))
        return pass_over_payload(reader, err);
    int status = need(reader, buffer, reader->row ? place_bytes(reader) : reader->head.payload_bytes, err);
    return status ? status : flyt_checkpoint_place(reader, buffer->data, err);
}

/* ---- records ---- */

static int begin(struct flyt_checkpoint_reader *reader, struct flyt_error *err)
{
    unsigned char preamble[FLYT_PREAMBLE_BYTES];
    uint32_t format;
    int status = read_all(reader, preamble, sizeof preamble, "its beginning", err);

    if (status)
        return status;
    if (!flyt_preamble_get(preamble, &format))
        return fail(reader, -EBADMSG, 0, err, "it does not begin as an image does");
    if (format > FLYT_CHECKPOINT_FORMAT)
        return fail(reader, -ENOTSUP, 0, err,
                    "it has format %u, which is newer than format %d, the newest that this build reads: use a newer "
                    "Flyt",
                    format, FLYT_CHECKPOINT_FORMAT);
    if (!format)
        return fail(reader, -EBADMSG, 0, err, "there is no format 0");
    reader->has_begun = true;
    return 0;
}

/* The head of the next record, and its body as it lies. */
static int read_record(struct flyt_checkpoint_reader *reader, struct flyt_error *err)
{
    struct flyt_record_head *head = &reader->head;
    unsigned char *body;
    int status;

    reader->record_offset_bytes = reader->stream_bytes;
    status = need(reader, &reader->record, FLYT_RECORD_HEAD_BYTES, err);
    if (!status)
        status = read_all(reader, reader->record.data, FLYT_RECORD_HEAD_BYTES, "the head of a record", err);
    if (status)
        return status;
    if (!flyt_record_head_get(reader->record.data, head))
        return fail(reader, -EBADMSG, reader->record_offset_bytes, err, "this is not the head of a record");
    if (head->number != reader->rules.totals.record_count)
        return fail(reader, -EBADMSG, reader->record_offset_bytes, err, "record %" PRIu64 " is here, not %" PRIu64,
                    head->number, reader->rules.totals.record_count);
    if (head->body_bytes > FLYT_CHECKPOINT_BODY_BYTES_MAX || head->payload_bytes > FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX ||
        head->flags & ~(uint32_t)FLYT_RECORD_OPTIONAL)
        return fail(reader, -EBADMSG, reader->record_offset_bytes, err,
                    "a record of %u and %u bytes with flags %#x is beyond its bounds", head->body_bytes,
                    head->payload_bytes, head->flags);
    status = need(reader, &reader->record, FLYT_RECORD_HEAD_BYTES + (size_t)head->body_bytes, err);
    if (status)
        return status;
    body = reader->record.data + FLYT_RECORD_HEAD_BYTES;
    status = read_all(reader, body, head->body_bytes, "a record", err);
    if (status)
        return status;
    if (flyt_checkpoint_checksum(0, body, head->body_bytes) != head->body_checksum)
        return fail(reader, -EBADMSG, reader->record_offset_bytes, err, "the checksum of a record does not fit");
    return 0;
}

/* A type that this build does not know. */
static int pass_over(struct flyt_checkpoint_reader *reader, struct flyt_error *err)
{
    const struct flyt_record_head *head = &reader->head;

    if (!(head->flags & FLYT_RECORD_OPTIONAL))
        return fail(reader, -ENOTSUP, reader->record_offset_bytes, err,
                    "it needs records of type %u, which this build does not know; Flyt %.200s wrote it: use that one "
                    "or a newer one",
                    head->type, reader->build ? reader->build : "(unknown)");
    if (!reader->rules.rank)
        return fail(reader, -EBADMSG, reader->record_offset_bytes, err, "its first record is not its head");
    reader->rules.totals.record_count++;
    reader->rules.totals.skipped_count++;
    reader->is_payload_open = head->payload_bytes > 0;
    return drain(reader, err);
}

static int decode(struct flyt_checkpoint_reader *reader, const struct flyt_record_type *row, struct flyt_error *err)
{
    XDR xdrs;

    memset(&reader->body, 0, sizeof reader->body);
    reader->row = row;
    xdrmem_create(&xdrs, (char *)reader->record.data + FLYT_RECORD_HEAD_BYTES, reader->head.body_bytes, XDR_DECODE);
    if (!row->xdr(&xdrs, &reader->body) || xdr_getpos(&xdrs) != reader->head.body_bytes)
        return fail(reader, -EBADMSG, reader->record_offset_bytes, err, "a record of type %s is not as it should be",
                    row->name);
    return 0;
}

/* What the END record says of all before it. */
static int check_end(struct flyt_checkpoint_reader *reader, struct flyt_error *err)
{
    const flyt_checkpoint_end *end = &reader->body.end;
    unsigned char digest[FLYT_SHA256_BYTES], more;
    ssize_t count;

    flyt_sha256_end(&reader->digest, digest);
    if (end->stream_bytes != reader->record_offset_bytes || memcmp(end->digest, digest, sizeof digest))
        return fail(reader, -EBADMSG, reader->record_offset_bytes, err,
                    "the checksum over all records does not fit: one was taken out or put in");
    reader->has_ended = true;
    if (!reader->must_end)
        return 0;
    do {
        count = read(reader->fd, &more, 1);
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
        int code = errno;
        return fail(reader, -code, reader->stream_bytes, err, "%s", strerror(code));
    }
    return count ? fail(reader, -EBADMSG, reader->stream_bytes, err, "something follows its end") : 0;
}

static int take_record(struct flyt_checkpoint_reader *reader, const struct flyt_record_type *row,
                       struct flyt_error *err)
{
    struct flyt_error why;
    char what[300];
    int status = decode(reader, row, err);

    if (status)
        return status;
    if (reader->head.type != FLYT_CHECKPOINT_END)
        flyt_sha256_add(&reader->digest, reader->record.data, FLYT_RECORD_HEAD_BYTES + reader->head.body_bytes);
    status =
        flyt_checkpoint_rules_take(&reader->rules, reader->head.type, &reader->body, reader->head.payload_bytes, &why);
    if (status) {
        describe(reader, what, sizeof what);
        return fail(reader, status, reader->record_offset_bytes, err, "%s: %s", what, why.text);
    }
    if (reader->head.type == FLYT_CHECKPOINT_HEAD && !reader->build) {
        reader->build = strdup(reader->body.head.build);
        if (!reader->build)
            return fail(reader, -ENOMEM, reader->stream_bytes, err, "no memory");
    }
    if (reader->head.type == FLYT_CHECKPOINT_STREAMS && reader->must_end)
        return fail(reader, -ENOTSUP, reader->record_offset_bytes, err,
                    "it was written for a server of another node, and not to be kept: contents are not in it");
    reader->is_payload_open = reader->head.payload_bytes > 0;
    /* The empty global is whole without a payload. */
    if (!reader->is_payload_open)
        flyt_checkpoint_rules_payload(&reader->rules, NULL, 0, &why);
    return reader->head.type == FLYT_CHECKPOINT_END ? check_end(reader, err) : 0;
}

int flyt_checkpoint_next(struct flyt_checkpoint_reader *reader, struct flyt_checkpoint_record *ret_record,
                         struct flyt_error *err)
{
    const struct flyt_record_type *row = NULL;

    if (reader->failed.code) {
        *err = reader->failed;
        return err->code;
    }
    int status = reader->has_begun ? drain(reader, err) : begin(reader, err);
    forget_record(reader);
    if (status || reader->has_ended)
        return status;
    while (!status && !row) {
        status = read_record(reader, err);
        if (status)
            break;
        row = flyt_record_type_find(reader->head.type);
        if (!row) {
            flyt_sha256_add(&reader->digest, reader->record.data, FLYT_RECORD_HEAD_BYTES + reader->head.body_bytes);
            status = pass_over(reader, err);
        }
    }
    if (!status)
        status = take_record(reader, row, err);
    if (status)
        return status;
    *ret_record = (struct flyt_checkpoint_record){.type = (flyt_checkpoint_type)reader->head.type,
                                                  .body = &reader->body,
                                                  .place_bytes = place_bytes(reader),
                                                  .stream_offset_bytes = reader->record_offset_bytes,
                                                  .payload_offset_bytes = reader->stream_bytes,
                                                  .payload_bytes = reader->head.payload_bytes,
                                                  .payload_checksum = reader->head.payload_checksum};
    return 1;
}

const struct flyt_checkpoint_totals *flyt_checkpoint_reader_totals(const struct flyt_checkpoint_reader *reader)
{
    return &reader->rules.totals;
}

const struct flyt_page_map *flyt_checkpoint_reader_pages(const struct flyt_checkpoint_reader *reader)
{
    return &reader->rules.map;
}

uint64_t flyt_checkpoint_reader_page_count(const struct flyt_checkpoint_reader *reader)
{
    return flyt_checkpoint_rules_pages(&reader->rules);
}

uint64_t flyt_checkpoint_reader_bytes(const struct flyt_checkpoint_reader *reader)
{
    return reader->stream_bytes;
}
