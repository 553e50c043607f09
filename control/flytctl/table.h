/*
 * Tables for people out of arrays of flat JSON objects: columns by a table, numbers to the right, no trailing blanks.
 * Only where a width is given (a terminal) are columns that may shrink cut, with an ellipsis.
 */
#ifndef FLYT_FLYTCTL_TABLE_H
#define FLYT_FLYTCTL_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <cjson/cJSON.h>

enum flyt_format {
    FLYT_SHOW_TEXT, /* as it is; arrays joined by commas, true and false as yes and no */
    FLYT_SHOW_NUMBER,
    FLYT_SHOW_SIZE, /* bytes */
    FLYT_SHOW_PCT,
    FLYT_SHOW_AGE,    /* since a moment in ms */
    FLYT_SHOW_MOMENT, /* that moment */
    FLYT_SHOW_SPAN,   /* ms */
    FLYT_SHOW_SPAN_US,
    FLYT_SHOW_MS_OF_US, /* microseconds, shown as milliseconds */
};

/* A row; the table ends with one without title. Absent and null values are "-". */
struct flyt_column {
    const char *title;
    const char *field;
    enum flyt_format format;
    const char *of;      /* second field, NULL: none. "4/16", or with a text "node:0" */
    bool is_wide;        /* only with -o wide */
    bool may_shrink;     /* to FLYT_COLUMN_WIDTH_MIN */
    bool may_be_missing; /* left out where no row has the field */
};

enum { FLYT_COLUMNS_MAX = 32, FLYT_COLUMN_WIDTH_MIN = 8 };

/* What several tables with the same columns share: widths only grow. Begins as {0}. */
struct flyt_table_widths {
    unsigned widths[FLYT_COLUMNS_MAX];
};

struct flyt_layout {
    bool is_wide;
    bool has_no_head;
    unsigned width;                   /* 0: no limit */
    uint64_t now_ms;                  /* wall clock, for ages */
    struct flyt_table_widths *widths; /* NULL: none */
};

void flyt_table_put(FILE *out, const struct flyt_column *columns, const cJSON *rows, const struct flyt_layout *layout);
/* One object, a line for each column. */
void flyt_table_put_object(FILE *out, const struct flyt_column *columns, const cJSON *object,
                           const struct flyt_layout *layout);
/* What stands in a cell; malloc'ed, safe to print. */
char *flyt_table_cell(const struct flyt_column *column, const cJSON *row, uint64_t now_ms);

#endif
