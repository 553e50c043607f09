#include "control/cluster/io/edit.h"

#include <errno.h>

static enum flyt_store_result run(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct flyt_edit *edit = user;

    edit->result =
        flyt_store_edit(store, edit->collection, edit->id, edit->edit, edit->user, &edit->err, &edit->status);
    *err = edit->err;
    return edit->result;
}

static void ended(void *user, int is_cancelled)
{
    const struct flyt_edit *edit = user;

    edit->done(edit->user, is_cancelled);
}

int flyt_edit_begin(struct flyt_store_writer *store_writer, struct flyt_edit *edit)
{
    return flyt_store_writer_do(store_writer, edit->operation, run, ended, edit);
}

bool flyt_edit_is_done(const struct flyt_edit *edit)
{
    return edit->result == FLYT_STORE_OK && !edit->status;
}

flyt_status flyt_edit_outcome(struct flyt_edit *edit, const char **ret_text)
{
    const struct flyt_error why = edit->err;

    *ret_text = edit->err.text;
    switch (edit->result) {
    case FLYT_STORE_OK:
    case FLYT_STORE_NOT_FOUND:
        break;
    case FLYT_STORE_UNKNOWN:
        flyt_error_set(&edit->err, why.code, "whether it was written is not known: %s", why.text);
        return FLYT_STATUS_TIMEOUT;
    case FLYT_STORE_CONFLICT:
        *ret_text = "others change the same document all the time";
        return FLYT_STATUS_CONFLICT;
    default:
        flyt_error_set(&edit->err, why.code, "the store did not take it: %s", why.text);
        return FLYT_STATUS_UNAVAILABLE;
    }
    if (edit->status)
        return edit->status == -EEXIST   ? FLYT_STATUS_EXISTS
               : edit->status == -ENOENT ? FLYT_STATUS_NOT_FOUND
               : edit->status == -ENOMEM ? FLYT_STATUS_UNAVAILABLE
                                         : FLYT_STATUS_INVALID;
    *ret_text = "";
    return FLYT_STATUS_OK;
}
