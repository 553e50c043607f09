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

static bool get_group_sizes(const cJSON *array, struct flyt_node_state *state)
{
    const cJSON *item;
    uint64_t number;

    cJSON_ArrayForEach(item, array)
    {
        const char *uuid = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "uuid"));
        if (state->group_size_count == FLYT_GPUS_MAX || !uuid ||
            !flyt_node_state_get_number(item, "group_size", 64, &number))
            return false;
        struct flyt_node_group_size *size = &state->group_sizes[state->group_size_count++];
        snprintf(size->uuid, sizeof size->uuid, "%s", uuid);
        size->group_size = (unsigned)number;
    }
    return true;
}

static bool get_all(const cJSON *root, struct flyt_node_state *state)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(root, "allocations"), *item;
    const char *boot_id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "boot_id"));
    uint64_t number, version;
    int count = cJSON_GetArraySize(array);

    if (!flyt_node_state_get_number(root, "version", VERSION, &version) || !boot_id || !cJSON_IsArray(array) ||
        count > FLYT_ALLOCATIONS_MAX ||
        !flyt_node_state_get_hex(root, "node_key", state->node_key, sizeof state->node_key) ||
        !flyt_node_state_get_number(root, "epoch", FLYT_NODE_EPOCH_MAX, &state->epoch))
        return false;
    if (!flyt_node_state_get_number(root, "key_number", UINT32_MAX, &number))
        return false;
    state->key_number = (uint32_t)number;
    snprintf(state->boot_id, sizeof state->boot_id, "%s", boot_id);
    if (!get_group_sizes(cJSON_GetObjectItemCaseSensitive(root, "group_sizes"), state) ||
        !flyt_node_checkpointed_get(root, &state->checkpointed) || !flyt_node_departed_get(root, &state->left) ||
        !flyt_node_receive_records_get(root, &state->receiving) ||
        !flyt_node_image_uncommitted_get(root, &state->uncommitted) || !flyt_node_killed_get(root, &state->killed))
        return false;
    state->allocations = calloc((size_t)count + 1, sizeof *state->allocations);
    if (!state->allocations)
        return false;
    /* Else servers that come back, and the cluster manager, tell them again. */
    if (version < VERSION_OF_NAMES)
        return true;
    cJSON_ArrayForEach(item, array)
    {
        if (!flyt_node_state_get_allocation(item, &state->allocations[state->allocation_count]))
            return false;
        state->allocation_count++;
    }
    return true;
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
    if (status) {
        if (getrandom(state.node_key, sizeof state.node_key, 0) != (ssize_t)sizeof state.node_key)
            return flyt_error_set(err, -EIO, "no key can be made: the kernel gives no random numbers");
    } else {
        cJSON *root = cJSON_Parse(text);
        bool is_good = root && get_all(root, &state);
        cJSON_Delete(root);
        free(text);
        if (!is_good) {
            flyt_node_state_fini(&state);
            return flyt_error_set(err, -EBADMSG,
                                  "%s is damaged: move it away, and the node registers as an empty one with a new key",
                                  path);
        }
    }
    *ret_state = state;
    *ret_is_new = status != 0;
    return 0;
}

void flyt_node_state_fini(struct flyt_node_state *state)
{
    flyt_node_state_free_allocations(state);
    flyt_node_checkpointed_free(state->checkpointed);
    state->checkpointed = NULL;
    flyt_node_departed_free(state->left);
    state->left = NULL;
    flyt_node_receive_records_free(state->receiving);
    state->receiving = NULL;
    flyt_node_image_uncommitted_free(state->uncommitted);
    state->uncommitted = NULL;
    flyt_node_killed_free(state->killed);
    state->killed = NULL;
    free(state->ahead);
    state->ahead = NULL;
}

void flyt_node_state_free_allocations(struct flyt_node_state *state)
{
    for (unsigned i = 0; i < state->allocation_count; i++)
        xdr_free((xdrproc_t)xdr_flyt_allocation, &state->allocations[i]);
    free(state->allocations);
    state->allocations = NULL;
    state->allocation_count = 0;
}

/* ---- writing ---- */

char *flyt_node_state_print(const struct flyt_node_state *state, const flyt_allocation *const *allocations,
                            unsigned count)
{
    cJSON *root = cJSON_CreateObject();
    bool is_good = root && flyt_node_state_put_number(root, "version", VERSION) &&
                   flyt_node_state_put_hex(root, "node_key", state->node_key, sizeof state->node_key) &&
                   flyt_node_state_put_number(root, "key_number", state->key_number) &&
                   flyt_node_state_put_number(root, "epoch", state->epoch) &&
                   cJSON_AddStringToObject(root, "boot_id", state->boot_id);
    cJSON *sizes = is_good ? cJSON_AddArrayToObject(root, "group_sizes") : NULL;
    for (unsigned i = 0; sizes && i < state->group_size_count; i++) {
        cJSON *item = flyt_node_state_add_object(sizes);
        is_good = item && cJSON_AddStringToObject(item, "uuid", state->group_sizes[i].uuid) &&
                  flyt_node_state_put_number(item, "group_size", state->group_sizes[i].group_size) && is_good;
    }
    cJSON *array = sizes ? cJSON_AddArrayToObject(root, "allocations") : NULL;
    for (unsigned i = 0; array && i < count; i++) {
        cJSON *item = flyt_node_state_add_object(array);
        is_good = item && flyt_node_state_put_allocation(item, allocations[i]) && is_good;
    }
    is_good = array && is_good && flyt_node_checkpointed_put(root, state->checkpointed) &&
              flyt_node_departed_put(root, state->left) && flyt_node_receive_records_put(root, state->receiving) &&
              flyt_node_image_uncommitted_put(root, state->uncommitted) && flyt_node_killed_put(root, state->killed);
    char *text = is_good ? cJSON_Print(root) : NULL;
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
