/* checkpoint, restore: begun by one call, then followed in the view "checkpoints". */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/actions.h"
#include "control/flytctl/follow.h"
#include "control/flytctl/view.h"
#include "cpu/image/writer.h"

/* --pack's words are in the packings' order (commands.c). */
_Static_assert(FLYT_CHECKPOINT_PACK_NOT == 0 && FLYT_CHECKPOINT_PACK_LZ4 == 1 && FLYT_CHECKPOINT_PACK_ZSTD == 2,
               "none, lz4, zstd");

enum { BEGIN_MS = 60000 /* how much longer the answer may take: it is when the node has taken it */ };

/* "VM 10.0.1.7 to /images: copying, 1.2GiB of 4.0GiB" */
static void put_progress(FILE *out, const cJSON *row, void *user)
{
    char copied[FLYT_NUMBER_BYTES], memory[FLYT_NUMBER_BYTES];
    const bool is_restore = !strcmp(flyt_row_text(row, "kind"), "restore");

    fprintf(out, "%s %s %s %s: %s", is_restore ? "node" : "VM", flyt_row_text(row, is_restore ? "node" : "vm_ip"),
            is_restore ? "from" : "to", flyt_row_text(row, "folder"), flyt_row_text(row, "phase"));
    if (strcmp(flyt_row_text(row, "phase"), "copying") != 0)
        return;
    flyt_text_size(copied, flyt_row_number(row, "copied_bytes"));
    flyt_text_size(memory, flyt_row_number(row, "memory_bytes"));
    fprintf(out, ", %s of %s", copied, memory);
}

static void put_end(struct flyt_ctl *ctl, const cJSON *row)
{
    const double count = flyt_row_number(row, "sessions");
    const bool is_restore = !strcmp(flyt_row_text(row, "kind"), "restore");
    const bool is_running = is_restore || cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(row, "leave_running"));
    const double kept_bytes = flyt_row_number(row, "kept_bytes");
    char memory[FLYT_NUMBER_BYTES], kept[FLYT_NUMBER_BYTES];

    flyt_text_size(memory, flyt_row_number(row, "memory_bytes"));
    flyt_text_size(kept, kept_bytes);
    fprintf(ctl->out, "%.0f program%s with %s", count, count == 1 ? "" : "s", memory);
    if (kept_bytes > 0 && !is_restore)
        fprintf(ctl->out, " (%s unchanged, in earlier images)", kept);
    fputs(is_restore ? " restored from " : " written to ", ctl->out);
    flyt_text_put(ctl->out, flyt_row_text(row, "folder"));
    fputs(" on node ", ctl->out);
    flyt_text_put(ctl->out, flyt_row_text(row, "node"));
    fprintf(ctl->out, " in %.1f s", flyt_row_number(row, "elapsed_ms") / 1000);
    if (!is_restore && is_running)
        fprintf(ctl->out, "; running on, standstill %.1f ms\n", flyt_row_number(row, "standstill_us") / 1000);
    else
        fputs(is_restore ? "\n" : "; waiting for a restore\n", ctl->out);
}

static void put_begun(struct flyt_ctl *ctl, const struct flyt_following *following)
{
    fprintf(ctl->out, "%s %s has begun: `flytctl checkpoints %s` shows how far it is\n", following->word, following->id,
            following->id);
}

/* With -o json its object is printed, also of one that was refused or has failed. */
static enum flyt_exit run(struct flyt_ctl *ctl, uint32_t procedure, xdrproc_t xdr_args, const void *args,
                          bool is_detached)
{
    flyt_saving_begun_res res;
    char id[17], meanwhile[64];
    struct flyt_following following = {.view = "checkpoints",
                                       .word = procedure == FLYT_RESTORE ? "restore" : "checkpoint",
                                       .id = id,
                                       .put_progress = put_progress,
                                       .meanwhile = meanwhile};
    cJSON *row = NULL;
    enum flyt_exit status = flyt_link_call(ctl, procedure, xdr_args, args, (xdrproc_t)xdr_flyt_saving_begun_res, &res,
                                           sizeof res, BEGIN_MS);

    if (status != FLYT_EXIT_OK)
        return status;
    if (res.outcome.status != FLYT_STATUS_OK) {
        status = flyt_finish(ctl, &res.outcome, "%s", "");
        xdr_free((xdrproc_t)xdr_flyt_saving_begun_res, &res);
        return status;
    }
    snprintf(id, sizeof id, "%016" PRIx64, (uint64_t)res.id);
    snprintf(meanwhile, sizeof meanwhile, "`flytctl checkpoints %s` shows it", id);
    xdr_free((xdrproc_t)xdr_flyt_saving_begun_res, &res);
    if (is_detached)
        row = flyt_follow_read(ctl, &following, &status);
    else
        status = flyt_follow(ctl, &following, &row);
    const bool is_done = row && !strcmp(flyt_row_text(row, "phase"), "done");
    if (row && ctl->output == FLYT_OUTPUT_JSON)
        flyt_follow_put_json(ctl, row);
    else if (is_done)
        put_end(ctl, row);
    else if (row && is_detached)
        put_begun(ctl, &following);
    if (status == FLYT_EXIT_OK && !is_done && (!is_detached || flyt_follow_is_over(row)))
        status = flyt_complain(FLYT_EXIT_REFUSED, "%s", flyt_row_text(row, "reason"));
    cJSON_Delete(row);
    return status;
}

/* The folder as the node has it. */
static enum flyt_exit check_folder(const char *folder)
{
    if (*folder != '/')
        return flyt_complain(FLYT_EXIT_USAGE, "the folder is one of the node's: write its whole path, not '%s'",
                             folder);
    if (strlen(folder) > FLYT_NAME_BYTES_MAX)
        return flyt_complain(FLYT_EXIT_USAGE, "the folder's path is longer than %d bytes", FLYT_NAME_BYTES_MAX);
    return FLYT_EXIT_OK;
}

static unsigned seconds(const struct flyt_arguments *arguments)
{
    return (unsigned)((flyt_option_get(arguments, "timeout")->number + 999) / 1000);
}

/* A VM, or else a program by its id. *ret_vm: malloc'ed, "" where it is a program. */
static enum flyt_exit select_programs(struct flyt_ctl *ctl, const char *text, char **ret_vm, uint64_t *ret_session_id)
{
    struct flyt_view view;
    const cJSON *row;

    *ret_session_id = 0;
    if (!flyt_is_id_prefix(text))
        return flyt_select_vm(ctl, text, ret_vm);
    /* A VM's name may look like an id. */
    enum flyt_exit status = flyt_view_read(ctl, "vms", "", &view);
    if (status != FLYT_EXIT_OK)
        return status;
    enum flyt_match match = flyt_match_vm(view.rows, text, &row);
    flyt_view_free(&view);
    if (match != FLYT_MATCH_NONE)
        return flyt_select_vm(ctl, text, ret_vm);
    status = flyt_select_id(ctl, "sessions", text, ret_session_id);
    if (status == FLYT_EXIT_OK)
        *ret_vm = flyt_must(strdup(""));
    return status;
}

enum flyt_exit flyt_run_checkpoint(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *to = flyt_option_get(arguments, "to"), *pack = flyt_option_get(arguments, "pack");
    flyt_checkpoint_args args = {.folder = (char *)(to->is_set ? to->texts[0] : ""),
                                 .leave_running = flyt_option_is(arguments, "leave-running"),
                                 .full = flyt_option_is(arguments, "full"),
                                 .packing = pack->is_set ? (unsigned)pack->number : FLYT_CHECKPOINT_PACK_LZ4,
                                 .stop_ms = (unsigned)flyt_option_get(arguments, "stop-timeout")->number,
                                 .timeout_s = seconds(arguments)};
    uint64_t session_id;

    if (!to->is_set)
        return flyt_complain(FLYT_EXIT_USAGE, "--to says which folder of the node the images go to");
    enum flyt_exit status = check_folder(args.folder);
    if (status == FLYT_EXIT_OK)
        status = select_programs(ctl, arguments->words[0], &args.vm, &session_id);
    if (status != FLYT_EXIT_OK)
        return status;
    args.session_id = session_id;
    status = run(ctl, FLYT_CHECKPOINT, (xdrproc_t)xdr_flyt_checkpoint_args, &args, flyt_option_is(arguments, "detach"));
    free(args.vm);
    return status;
}

enum flyt_exit flyt_run_restore(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *node = flyt_option_get(arguments, "node");
    const flyt_restore_args args = {.node = (char *)(node->is_set ? node->texts[0] : ""),
                                    .folder = (char *)arguments->words[0],
                                    .timeout_s = seconds(arguments)};
    enum flyt_exit status = check_folder(args.folder);

    if (status != FLYT_EXIT_OK)
        return status;
    return run(ctl, FLYT_RESTORE, (xdrproc_t)xdr_flyt_restore_args, &args, flyt_option_is(arguments, "detach"));
}
