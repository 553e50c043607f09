#include "control/flytctl/select.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "control/base/name.h"
#include "control/flytctl/text.h"

enum { ID_DIGITS = 16 };

bool flyt_is_id_prefix(const char *text)
{
    size_t bytes = strlen(text);

    return bytes >= 1 && bytes <= ID_DIGITS && strspn(text, "0123456789abcdefABCDEF") == bytes;
}

uint64_t flyt_id_of(const char *text)
{
    return strtoull(text, NULL, 16);
}

static enum flyt_match add(enum flyt_match match, const cJSON *row, const cJSON **ret_row)
{
    if (match == FLYT_MATCH_NONE)
        *ret_row = row;
    return match == FLYT_MATCH_NONE ? FLYT_MATCH_ONE : FLYT_MATCH_SEVERAL;
}

enum flyt_match flyt_match_vm(const cJSON *vms, const char *text, const cJSON **ret_row)
{
    enum flyt_match match = FLYT_MATCH_NONE;
    const cJSON *row;

    cJSON_ArrayForEach(row, vms)
    {
        if (!strcmp(flyt_row_text(row, "vm_ip"), text)) { /* an address goes before another VM's name */
            *ret_row = row;
            return FLYT_MATCH_ONE;
        }
    }
    cJSON_ArrayForEach(row, vms)
    {
        if (*text && !strcmp(flyt_row_text(row, "name"), text))
            match = add(match, row, ret_row);
    }
    return match;
}

static bool is_node_and_index(const cJSON *row, const char *text)
{
    const char *colon = strrchr(text, ':'), *node = flyt_row_text(row, "node");
    char index[24];

    if (!colon || strlen(node) != (size_t)(colon - text) || strncmp(node, text, (size_t)(colon - text)))
        return false;
    snprintf(index, sizeof index, "%.0f", flyt_row_number(row, "index"));
    return !strcmp(colon + 1, index);
}

enum flyt_match flyt_match_gpu(const cJSON *gpus, const char *text, const cJSON **ret_row)
{
    enum flyt_match match = FLYT_MATCH_NONE;
    size_t bytes = strlen(text);
    const cJSON *row;

    cJSON_ArrayForEach(row, gpus)
    {
        if (is_node_and_index(row, text) || !strcasecmp(flyt_row_text(row, "uuid"), text)) {
            *ret_row = row;
            return FLYT_MATCH_ONE;
        }
    }
    cJSON_ArrayForEach(row, gpus)
    {
        const char *uuid = flyt_row_text(row, "uuid");
        if (bytes &&
            (!strncasecmp(uuid, text, bytes) || (!strncasecmp(uuid, "GPU-", 4) && !strncasecmp(uuid + 4, text, bytes))))
            match = add(match, row, ret_row);
    }
    return match;
}

/* An id may stand in several rows (an allocation has one for each GPU): that is one. */
enum flyt_match flyt_match_id(const cJSON *rows, const char *text, const cJSON **ret_row)
{
    enum flyt_match match = FLYT_MATCH_NONE;
    size_t bytes = strlen(text);
    const cJSON *row;

    cJSON_ArrayForEach(row, rows)
    {
        const char *id = flyt_row_text(row, "id");
        if (!bytes || strncasecmp(id, text, bytes) ||
            (match != FLYT_MATCH_NONE && !strcmp(flyt_row_text(*ret_row, "id"), id)))
            continue;
        match = add(match, row, ret_row);
    }
    return match;
}

static enum flyt_exit complain_match(enum flyt_match match, const char *kind, const char *text)
{
    if (match == FLYT_MATCH_ONE)
        return FLYT_EXIT_OK;
    if (match == FLYT_MATCH_NONE)
        return flyt_complain(FLYT_EXIT_NOT_FOUND, "there is no %s %s", kind, text);
    return flyt_complain(FLYT_EXIT_USAGE, "%s is more than one %s: write more of it", text, kind);
}

enum flyt_exit flyt_select_vm(struct flyt_ctl *ctl, const char *text, char **ret_vm_ip)
{
    struct flyt_view view;
    const cJSON *row = NULL;

    if (flyt_is_address(text)) {
        *ret_vm_ip = flyt_must(strdup(text));
        return FLYT_EXIT_OK;
    }
    enum flyt_exit status = flyt_view_read(ctl, "vms", "", &view);
    if (status != FLYT_EXIT_OK)
        return status;
    enum flyt_match match = flyt_match_vm(view.rows, text, &row);
    if (match == FLYT_MATCH_SEVERAL)
        status = flyt_complain(FLYT_EXIT_USAGE, "several VMs have the name %s: write the vm_ip", text);
    else
        status = complain_match(match, "VM", text);
    if (status == FLYT_EXIT_OK)
        *ret_vm_ip = flyt_must(strdup(flyt_row_text(row, "vm_ip")));
    flyt_view_free(&view);
    return status;
}

enum flyt_exit flyt_select_gpu(struct flyt_ctl *ctl, const char *text, char **ret_uuid)
{
    struct flyt_view view;
    const cJSON *row = NULL;
    enum flyt_exit status = flyt_view_read(ctl, "gpus", "", &view);

    if (status != FLYT_EXIT_OK)
        return status;
    status = complain_match(flyt_match_gpu(view.rows, text, &row), "GPU", text);
    if (status == FLYT_EXIT_OK)
        *ret_uuid = flyt_must(strdup(flyt_row_text(row, "uuid")));
    flyt_view_free(&view);
    return status;
}

enum flyt_exit flyt_select_id(struct flyt_ctl *ctl, const char *view_name, const char *text, uint64_t *ret_id)
{
    struct flyt_view view;
    const cJSON *row = NULL;
    char kind[24];

    snprintf(kind, sizeof kind, "%.*s", (int)strlen(view_name) - 1, view_name); /* "sessions" -> "session" */
    if (!flyt_is_id_prefix(text))
        return flyt_complain(FLYT_EXIT_USAGE, "'%s' is no id: 16 hexadecimal digits, or the first of them", text);
    if (strlen(text) == ID_DIGITS) {
        *ret_id = flyt_id_of(text);
        return FLYT_EXIT_OK;
    }
    enum flyt_exit status = flyt_view_read(ctl, view_name, "", &view);
    if (status != FLYT_EXIT_OK)
        return status;
    status = complain_match(flyt_match_id(view.rows, text, &row), kind, text);
    if (status == FLYT_EXIT_OK)
        *ret_id = flyt_id_of(flyt_row_text(row, "id"));
    flyt_view_free(&view);
    return status;
}

enum flyt_exit flyt_select_target(struct flyt_ctl *ctl, const char *text, flyt_target_kind *ret_kind, char **ret_target)
{
    struct flyt_view view;
    const cJSON *row;
    bool is_node = false;
    enum flyt_exit status = flyt_view_read(ctl, "nodes", "", &view);

    if (status != FLYT_EXIT_OK)
        return status;
    cJSON_ArrayForEach(row, view.rows)
    {
        is_node |= !strcmp(flyt_row_text(row, "name"), text);
    }
    flyt_view_free(&view);
    if (is_node) {
        *ret_kind = FLYT_TARGET_NODE;
        *ret_target = flyt_must(strdup(text));
        return FLYT_EXIT_OK;
    }
    status = flyt_view_read(ctl, "gpus", "", &view);
    if (status != FLYT_EXIT_OK)
        return status;
    status = complain_match(flyt_match_gpu(view.rows, text, &row), "node or GPU", text);
    if (status == FLYT_EXIT_OK) {
        *ret_kind = FLYT_TARGET_GPU;
        *ret_target = flyt_must(strdup(flyt_row_text(row, "uuid")));
    }
    flyt_view_free(&view);
    return status;
}
