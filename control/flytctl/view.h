/*
 * Reading views (FLYT_VIEW) whole, over as many calls as it takes, and which columns they have.
 */
#ifndef FLYT_FLYTCTL_VIEW_H
#define FLYT_FLYTCTL_VIEW_H

#include <cjson/cJSON.h>
#include <stddef.h>

#include "control/flytctl/flytctl.h"
#include "control/flytctl/table.h"

struct flyt_view {
    cJSON *rows; /* an array of objects, one in it where the view is one object */
    char *json;  /* as it was sent; pages are joined */
    size_t json_bytes;
    uint64_t next; /* events: the last one's number */
};

/* selector: "" for all. On success free with flyt_view_free. */
enum flyt_exit flyt_view_read(struct flyt_ctl *ctl, const char *view, const char *selector, struct flyt_view *ret_view);
/* One call only, of events: those after `after`, waiting wait_ms for one. */
enum flyt_exit flyt_view_read_page(struct flyt_ctl *ctl, const char *view, const char *selector, uint64_t after,
                                   unsigned wait_ms, struct flyt_view *ret_view);
/* An answer's text into rows. */
enum flyt_exit flyt_view_parse(const char *json, size_t bytes, struct flyt_view *ret_view);
void flyt_view_free(struct flyt_view *view);

/* NULL: a view without a table of its own. */
const struct flyt_column *flyt_view_columns(const char *view);
/* Prints in the form that was asked for. */
void flyt_view_put(struct flyt_ctl *ctl, const char *view_name, const struct flyt_view *view);
void flyt_view_put_rows(struct flyt_ctl *ctl, const struct flyt_column *columns, const cJSON *rows);

/* The field of a row, "" where it is none. */
const char *flyt_row_text(const cJSON *row, const char *field);
double flyt_row_number(const cJSON *row, const char *field);
/* Milliseconds since 1970. */
uint64_t flyt_now_ms(void);

#endif
