/* status, nodes, gpus, vms, allocations, sessions, tenants, events, session show, explain. */
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/commands.h"
#include "control/flytctl/json.h"
#include "control/flytctl/screen.h"
#include "control/flytctl/select.h"
#include "control/flytctl/text.h"
#include "control/flytctl/view.h"

enum { FOLLOW_WAIT_MS = 20000 };

static void put_view(struct flyt_ctl *ctl, const char *name, const struct flyt_view *view)
{
    const struct flyt_layout layout = {.is_wide = true, .now_ms = flyt_now_ms()};

    if (ctl->output != FLYT_OUTPUT_JSON && !strcmp(name, "status") && view->rows->child)
        flyt_table_put_object(ctl->out, flyt_view_columns(name), view->rows->child, &layout);
    else
        flyt_view_put(ctl, name, view);
}

static enum flyt_exit show(struct flyt_ctl *ctl, void *user)
{
    const struct flyt_arguments *arguments = user;
    const char *name = arguments->command->name, *selector = arguments->word_count ? arguments->words[0] : "";
    struct flyt_view view;
    enum flyt_exit status = flyt_view_read(ctl, name, selector, &view);

    if (status != FLYT_EXIT_OK)
        return status;
    put_view(ctl, name, &view);
    if (!cJSON_GetArraySize(view.rows)) {
        if (*selector)
            status = flyt_complain(FLYT_EXIT_NOT_FOUND, "no %s of that name or id: %s", name, selector);
        else
            flyt_complain(FLYT_EXIT_OK, "there are no %s", name);
    }
    flyt_view_free(&view);
    return status;
}

enum flyt_exit flyt_run_view(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *watch = flyt_option_get(arguments, "watch");

    if (!watch->is_set)
        return show(ctl, (void *)arguments);
    return flyt_screen_run(ctl, watch->number, 0, show, (void *)arguments);
}

/* ---- events ---- */

static void put_lines(struct flyt_ctl *ctl, const cJSON *rows)
{
    const cJSON *row;

    cJSON_ArrayForEach(row, rows)
    {
        char *text = flyt_must(cJSON_PrintUnformatted(row));
        flyt_json_put(ctl->out, text, strlen(text), false);
        free(text);
    }
}

static void keep_last(cJSON *rows, uint64_t count)
{
    for (uint64_t there = (uint64_t)cJSON_GetArraySize(rows); there > count; there--)
        cJSON_Delete(cJSON_DetachItemViaPointer(rows, rows->child));
}

static void put_events(struct flyt_ctl *ctl, const cJSON *rows, struct flyt_table_widths *widths, bool is_first,
                       bool has_lines)
{
    const struct flyt_layout layout = {.is_wide = ctl->output == FLYT_OUTPUT_WIDE,
                                       .has_no_head = !is_first,
                                       .width = ctl->width,
                                       .now_ms = flyt_now_ms(),
                                       .widths = widths};

    if (ctl->output != FLYT_OUTPUT_JSON) {
        flyt_table_put(ctl->out, flyt_view_columns("events"), rows, &layout);
    } else if (has_lines) {
        put_lines(ctl, rows);
    } else {
        char *text = flyt_must(cJSON_PrintUnformatted(rows));
        flyt_json_put(ctl->out, text, strlen(text), ctl->is_terminal);
        free(text);
    }
    fflush(ctl->out);
}

static enum flyt_exit follow(struct flyt_ctl *ctl, const char *selector, uint64_t after,
                             struct flyt_table_widths *widths)
{
    while (!ferror(ctl->out)) {
        struct flyt_view page;
        enum flyt_exit status = flyt_view_read_page(ctl, "events", selector, after, FOLLOW_WAIT_MS, &page);
        if (status != FLYT_EXIT_OK)
            return status;
        if (page.next > after)
            after = page.next;
        if (cJSON_GetArraySize(page.rows))
            put_events(ctl, page.rows, widths, false, true);
        flyt_view_free(&page);
    }
    return FLYT_EXIT_OK;
}

enum flyt_exit flyt_run_events(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *last = flyt_option_get(arguments, "last");
    const char *selector = arguments->word_count ? arguments->words[0] : "";
    bool has_to_follow = flyt_option_is(arguments, "follow");
    struct flyt_table_widths widths = {0};
    struct flyt_view view;
    enum flyt_exit status = flyt_view_read(ctl, "events", selector, &view);

    if (status != FLYT_EXIT_OK)
        return status;
    if (last->is_set)
        keep_last(view.rows, last->number);
    put_events(ctl, view.rows, &widths, true, has_to_follow);
    if (!cJSON_GetArraySize(view.rows) && !has_to_follow)
        flyt_complain(FLYT_EXIT_OK, "there are no events%s%s", *selector ? " of " : "", selector);
    uint64_t after = view.next;
    flyt_view_free(&view);
    return has_to_follow ? follow(ctl, selector, after, &widths) : FLYT_EXIT_OK;
}

/* ---- one object ---- */

enum flyt_exit flyt_run_session_show(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_layout layout = {.is_wide = true, .now_ms = flyt_now_ms()};
    const cJSON *row = NULL;
    struct flyt_view view;

    if (!flyt_is_id_prefix(arguments->words[0]))
        return flyt_complain(FLYT_EXIT_USAGE, "'%s' is no id: 16 hexadecimal digits, or the first of them",
                             arguments->words[0]);
    enum flyt_exit status = flyt_view_read(ctl, "sessions", "", &view);
    if (status != FLYT_EXIT_OK)
        return status;
    enum flyt_match match = flyt_match_id(view.rows, arguments->words[0], &row);
    if (match == FLYT_MATCH_NONE) {
        status = flyt_complain(FLYT_EXIT_NOT_FOUND, "there is no session %s", arguments->words[0]);
    } else if (match == FLYT_MATCH_SEVERAL) {
        status = flyt_complain(FLYT_EXIT_USAGE, "%s is more than one session: write more of it", arguments->words[0]);
    } else if (ctl->output == FLYT_OUTPUT_JSON) {
        char *text = flyt_must(cJSON_PrintUnformatted(row));
        flyt_json_put(ctl->out, text, strlen(text), ctl->is_terminal);
        free(text);
    } else {
        flyt_table_put_object(ctl->out, flyt_view_columns("sessions"), row, &layout);
    }
    flyt_view_free(&view);
    return status;
}

/* A row has one sentence, or a list of them. */
static void put_sentences(FILE *out, const cJSON *value)
{
    if (cJSON_IsString(value)) {
        flyt_text_put(out, value->valuestring);
        fputc('\n', out);
    }
    for (const cJSON *item = cJSON_IsArray(value) ? value->child : NULL; item; item = item->next)
        put_sentences(out, item);
}

enum flyt_exit flyt_run_explain(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    struct flyt_view view;
    const cJSON *row;
    char *vm_ip;
    enum flyt_exit status = flyt_select_vm(ctl, arguments->words[0], &vm_ip);

    if (status != FLYT_EXIT_OK)
        return status;
    status = flyt_view_read(ctl, "explain", vm_ip, &view);
    free(vm_ip);
    if (status != FLYT_EXIT_OK)
        return status;
    if (ctl->output == FLYT_OUTPUT_JSON)
        flyt_json_put(ctl->out, view.json, view.json_bytes, ctl->is_terminal);
    else
        cJSON_ArrayForEach(row, view.rows)
        {
            put_sentences(ctl->out, cJSON_GetObjectItemCaseSensitive(row, "sentence"));
        }
    if (!cJSON_GetArraySize(view.rows))
        status = flyt_complain(FLYT_EXIT_NOT_FOUND, "there is nothing to say about %s", arguments->words[0]);
    flyt_view_free(&view);
    return status;
}
