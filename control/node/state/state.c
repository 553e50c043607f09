#include "control/node/state/state.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/node/state/checkpointed.h"
#include "control/node/state/departed.h"
#include "control/node/state/image_uncommitted.h"
#include "control/node/state/killed.h"
#include "control/node/state/receive_record.h"
#include "control/node/state/state_allocation.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/xdr_buffer.h"

static const char file_name[] = "state.json";

/* Version 1 had allocations in another form. */
enum { VERSION = 2, VERSION_OF_NAMES = 2, STATE_BYTES_MAX = 64 << 20 };

/* ---- allocations ---- */

int flyt_node_allocation_copy(const flyt_allocation *from, flyt_allocation *ret_copy)
{
    struct flyt_bytes bytes = {.bytes_max = 1 << 20};
    flyt_allocation copy = {0};
    XDR xdrs;

    flyt_xdr_encode_init(&xdrs, &bytes);
    bool is_good = xdr_flyt_allocation(&xdrs, (flyt_allocation *)from);
    if (is_good) {
        flyt_xdr_decode_init(&xdrs, bytes.data, bytes.used, NULL);
        is_good = xdr_flyt_allocation(&xdrs, &copy);
    }
    flyt_bytes_fini(&bytes);
    if (!is_good) {
        xdr_free((xdrproc_t)xdr_flyt_allocation, &copy);
        return -ENOMEM;
    }
    *ret_copy = copy;
    return 0;
}

/* ---- reading ---- */

static int read_file(const char *path, char **ret_text)
{
    flyt_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;

    if (fd < 0 || fstat(fd, &info))
        return -errno;
    if (info.st_size > STATE_BYTES_MAX)
        return -EFBIG;
    char *text = malloc((size_t)info.st_size + 1);
    if (!text)
        return -ENOMEM;
    size_t have = 0;
    while (have < (size_t)info.st_size) {
        ssize_t step = read(fd, text + have, (size_t)info.st_size - have);
        if (step < 0 && errno == EINTR)
            continue;
        if (step <= 0) {
            free(text);
            return step < 0 ? -errno : -EIO;
        }
        have += (size_t)step;
    }
    text[have] = 0;
    *ret_text = text;
    return 0;
}

/* What of the file is not in the state. */
struct file {
    unsigned version;
    const flyt_allocation *const *allocations; /* where it is written; what is read is in the state */
    unsigned allocation_count;
};

static const struct flyt_field group_size_fields[] = {
    {"uuid", FLYT_CHARS(struct flyt_node_group_size, uuid), .rules = FLYT_NEEDED},
    {"group_size", FLYT_NUMBER(struct flyt_node_group_size, group_size), .max = 64, .rules = FLYT_NEEDED | FLYT_DIGITS},
    {0},
};
static const struct flyt_item group_size_item = {.fields = group_size_fields,
                                                 .bytes = sizeof(struct flyt_node_group_size)};

enum { STATE, THE_FILE, READ_ALLOCATIONS, WRITTEN_ALLOCATIONS };
#define OF(kind, ...) FLYT_##kind(struct flyt_node_state, __VA_ARGS__)

static const struct flyt_field fields[] = {
    {"version", FLYT_NUMBER(struct file, version), .part = THE_FILE, .max = VERSION,
     .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"node_key", OF(BYTES, node_key), .rules = FLYT_NEEDED},
    {"key_number", OF(NUMBER, key_number), .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"epoch", OF(NUMBER, epoch), .max = FLYT_NODE_EPOCH_MAX, .rules = FLYT_NEEDED | FLYT_DIGITS},
    {"boot_id", OF(CHARS, boot_id), .rules = FLYT_NEEDED},
    {"group_sizes", OF(ARRAY, group_sizes, group_size_count, &group_size_item)},
    {"allocations", OF(VECTOR, allocations, allocation_count, FLYT_ALLOCATIONS_MAX, &flyt_node_state_allocation_item),
     .part = READ_ALLOCATIONS, .rules = FLYT_NEEDED},
    {"allocations", FLYT_POINTERS(struct file, allocations, allocation_count, &flyt_node_state_allocation_item),
     .part = WRITTEN_ALLOCATIONS},
    {"checkpointed", OF(CHAIN, checkpointed, FLYT_NODE_CHECKPOINTED_MAX, &flyt_node_checkpointed_item)},
    {"left", OF(CHAIN, left, FLYT_ALLOCATIONS_MAX, &flyt_node_departed_item)},
    {"receiving", OF(CHAIN, receiving, FLYT_ALLOCATIONS_MAX, &flyt_node_receive_record_item)},
    {"unkept_images", OF(CHAIN, uncommitted, FLYT_NODE_IMAGE_UNCOMMITTED_MAX, &flyt_node_image_uncommitted_item)},
    {"killed_sessions", OF(CHAIN, killed, FLYT_NODE_KILLED_MAX, &flyt_node_killed_item)},
    {0},
};

static int get_all(const cJSON *root, struct flyt_node_state *state, struct flyt_error *err)
{
    struct file file = {0};
    int status = flyt_fields_read(fields, root, (void *const[]){state, &file, NULL, NULL}, FLYT_LEAVE_UNKNOWN, err);

    /* Else servers that come back, and the cluster manager, tell them again. */
    return status || file.version < VERSION_OF_NAMES
               ? status
               : flyt_fields_read(fields, root, (void *const[]){NULL, NULL, state, NULL}, FLYT_LEAVE_UNKNOWN, err);
}

int flyt_node_state_read(const char *folder, struct flyt_error *err, struct flyt_node_state *ret_state,
                         bool *ret_is_new)
{
    struct flyt_node_state state = {.key_number = 1};
    char path[PATH_MAX], *text = NULL;

    snprintf(path, sizeof path, "%s/%s", folder, file_name);
    int status = read_file(path, &text);
    if (status && status != -ENOENT)
        return flyt_error_set(err, status, "%s cannot be read: %s", path, strerror(-status));
    const bool is_new = status == -ENOENT;
    if (is_new) {
        if (getrandom(state.node_key, sizeof state.node_key, 0) != (ssize_t)sizeof state.node_key)
            return flyt_error_set(err, -EIO, "no key can be made: the kernel gives no random numbers");
    } else {
        cJSON *root = cJSON_Parse(text);
        struct flyt_error why = {.text = "it is not JSON"};
        status = root ? get_all(root, &state, &why) : -EBADMSG;
        cJSON_Delete(root);
        free(text);
        if (status) {
            flyt_node_state_fini(&state);
            return flyt_error_set(err, -EBADMSG,
                                  "%s is damaged (%.200s): move it away, and the node registers as an empty one with a "
                                  "new key",
                                  path, why.text);
        }
    }
    *ret_state = state;
    *ret_is_new = is_new;
    return 0;
}

void flyt_node_state_fini(struct flyt_node_state *state)
{
    flyt_fields_free(fields, STATE, state);
    flyt_node_state_free_allocations(state);
    free(state->ahead);
    state->ahead = NULL;
}

void flyt_node_state_free_allocations(struct flyt_node_state *state)
{
    flyt_fields_free(fields, READ_ALLOCATIONS, state);
}

/* ---- writing ---- */

char *flyt_node_state_print(const struct flyt_node_state *state, const flyt_allocation *const *allocations,
                            unsigned count)
{
    const struct file file = {VERSION, allocations, count};
    cJSON *root = flyt_fields_write(fields, (const void *const[]){state, &file, NULL, &file}, NULL);
    char *text = root ? cJSON_Print(root) : NULL;

    cJSON_Delete(root);
    return text;
}

/* Under this name, its bytes on the disk. 0 or a negative errno. */
static int write_file(int folder_fd, const char *name, const char *text)
{
    size_t left = strlen(text);
    flyt_auto_close int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0)
        return -errno;
    while (left) {
        ssize_t step = write(fd, text, left);
        if (step < 0 && errno == EINTR)
            continue;
        if (step < 0)
            return -errno;
        text += step;
        left -= (size_t)step;
    }
    return fsync(fd) ? -errno : 0;
}

static int write_durably(int folder_fd, const char *text)
{
    static const char part[] = "state.json.part";

    int status = write_file(folder_fd, part, text);
    if (status)
        return status;
    return renameat(folder_fd, part, folder_fd, file_name) || fsync(folder_fd) ? -errno : 0;
}

static int open_folder(const char *folder)
{
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int fail(const char *folder, const char *name, int status, struct flyt_error *err)
{
    return status ? flyt_error_set(err, status, "%s/%s cannot be written: %s", folder, name, strerror(-status)) : 0;
}

int flyt_node_state_write_text(const char *folder, const char *text, struct flyt_error *err)
{
    flyt_auto_close int folder_fd = open_folder(folder);

    return fail(folder, file_name, folder_fd < 0 ? -errno : write_durably(folder_fd, text), err);
}

int flyt_node_state_write(const char *folder, const struct flyt_node_state *state,
                          const flyt_allocation *const *allocations, unsigned count, struct flyt_error *err)
{
    char *text = flyt_node_state_print(state, allocations, count);

    int status = text ? flyt_node_state_write_text(folder, text, err) : fail(folder, file_name, -ENOMEM, err);
    free(text);
    return status;
}

/* ---- ahead ---- */

static const char ahead_name[] = "state.json.next";

int flyt_node_state_write_ahead(const char *folder, struct flyt_node_state *state, char *text, struct flyt_error *err)
{
    flyt_auto_close int folder_fd = open_folder(folder);
    int status = folder_fd < 0 ? -errno : write_file(folder_fd, ahead_name, text);

    free(state->ahead); /* whatever it was, it is not what is there */
    state->ahead = status ? NULL : text;
    if (status)
        free(text);
    return fail(folder, ahead_name, status, err);
}

int flyt_node_state_become(const char *folder, struct flyt_node_state *state, const char *text, struct flyt_error *err)
{
    flyt_auto_close int folder_fd = open_folder(folder);

    if (!state->ahead || folder_fd < 0 || strcmp(text, state->ahead) != 0 ||
        renameat(folder_fd, ahead_name, folder_fd, file_name))
        return flyt_node_state_write_text(folder, text, err);
    free(state->ahead);
    state->ahead = NULL;
    state->is_sync_due = true;
    return 0;
}

int flyt_node_state_settle(const char *folder, struct flyt_node_state *state, struct flyt_error *err)
{
    if (!state->ahead && !state->is_sync_due)
        return 0;
    flyt_auto_close int folder_fd = open_folder(folder);
    int status = folder_fd < 0 ? -errno : 0;
    if (!status && state->ahead)
        unlinkat(folder_fd, ahead_name, 0); /* of no use to anybody, and no harm */
    free(state->ahead);
    state->ahead = NULL;
    if (!status && state->is_sync_due && fsync(folder_fd))
        status = -errno;
    state->is_sync_due &= status != 0;
    return fail(folder, file_name, status, err);
}
