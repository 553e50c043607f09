#include "control/flytctl/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/text.h"

enum { GAP = 2, UNIT_BYTES = 3 /* "GiB" */ };

static bool is_right(const struct flyt_column *column)
{
    return column->format != FLYT_SHOW_TEXT && column->format != FLYT_SHOW_MOMENT;
}

static char *text_of(const cJSON *value)
{
    if (cJSON_IsString(value))
        return flyt_text_safe(value->valuestring, strlen(value->valuestring));
    if (cJSON_IsBool(value))
        return flyt_text_format("%s", cJSON_IsTrue(value) ? "yes" : "no");
    if (cJSON_IsNumber(value))
        return flyt_text_format("%.15g", value->valuedouble);
    if (cJSON_IsArray(value) || cJSON_IsObject(value)) {
        char *all = flyt_text_format("%s", "");
        for (const cJSON *item = value->child; item; item = item->next) {
            char *one = text_of(item);
            char *longer = flyt_text_format("%s%s%s", all, *all ? "," : "", one);
            free(one);
            free(all);
            all = longer;
        }
        return all;
    }
    return flyt_text_format("-");
}

static char *number_of(enum flyt_format format, const cJSON *value, uint64_t now_ms)
{
    char text[FLYT_NUMBER_BYTES];
    double number = value->valuedouble;

    switch (format) {
    case FLYT_SHOW_SIZE:
        flyt_text_size(text, number);
        break;
    case FLYT_SHOW_PCT:
        snprintf(text, sizeof text, "%.0f%%", number);
        break;
    case FLYT_SHOW_AGE:
        flyt_text_span(text, (double)now_ms - number);
        break;
    case FLYT_SHOW_MOMENT:
        flyt_text_moment(text, number);
        break;
    case FLYT_SHOW_SPAN:
        flyt_text_span(text, number);
        break;
    case FLYT_SHOW_SPAN_US:
        snprintf(text, sizeof text, "%.1fs", number / 1e6);
        break;
    case FLYT_SHOW_MS_OF_US:
        snprintf(text, sizeof text, "%.1fms", number / 1e3);
        break;
    default:
        snprintf(text, sizeof text, "%.15g", number);
        break;
    }
    return flyt_text_format("%s", text);
}

static char *part_of(const struct flyt_column *column, const cJSON *row, const char *field, uint64_t now_ms)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(row, field);
    bool is_unknown_moment = (column->format == FLYT_SHOW_AGE || column->format == FLYT_SHOW_MOMENT) &&
                             cJSON_IsNumber(value) && value->valuedouble <= 0;

    if (column->format == FLYT_SHOW_TEXT || !cJSON_IsNumber(value) || is_unknown_moment)
        return is_unknown_moment ? flyt_text_format("-") : text_of(value);
    return number_of(column->format, value, now_ms);
}

char *flyt_table_cell(const struct flyt_column *column, const cJSON *row, uint64_t now_ms)
{
    char *first = part_of(column, row, column->field, now_ms);
    if (!*first) {
        free(first);
        first = flyt_text_format("-");
    }
    if (!column->of)
        return first;
    char *second = part_of(column, row, column->of, now_ms);
    /* "8.0/140.4GiB": the unit once, where both have the same. */
    size_t bytes = strlen(first), second_bytes = strlen(second);
    if (column->format == FLYT_SHOW_SIZE && bytes > UNIT_BYTES && second_bytes > UNIT_BYTES &&
        !strcmp(first + bytes - UNIT_BYTES, second + second_bytes - UNIT_BYTES))
        first[bytes - UNIT_BYTES] = 0;
    char *both = flyt_text_format("%s%c%s", first, column->format == FLYT_SHOW_TEXT ? ':' : '/', second);
    free(first);
    free(second);
    return both;
}

static bool is_there(const struct flyt_column *column, const cJSON *rows)
{
    const cJSON *row;

    cJSON_ArrayForEach(row, rows)
    {
        if (cJSON_GetObjectItemCaseSensitive(row, column->field))
            return true;
    }
    return !column->may_be_missing;
}

static unsigned choose_columns(const struct flyt_column *columns, const cJSON *rows, bool is_wide,
                               const struct flyt_column **ret_chosen)
{
    unsigned count = 0;

    for (; columns->title && count < FLYT_COLUMNS_MAX; columns++)
        if ((is_wide || !columns->is_wide) && is_there(columns, rows))
            ret_chosen[count++] = columns;
    return count;
}

/* Takes from the widest column that may shrink, until all fits or nothing more can be taken. */
static void shrink(const struct flyt_column *const *columns, unsigned *widths, unsigned count, unsigned limit)
{
    for (;;) {
        unsigned total = count ? (count - 1) * GAP : 0, widest = count;
        for (unsigned i = 0; i < count; i++) {
            total += widths[i];
            if (columns[i]->may_shrink && widths[i] > FLYT_COLUMN_WIDTH_MIN &&
                (widest == count || widths[i] > widths[widest]))
                widest = i;
        }
        if (total <= limit || widest == count)
            return;
        widths[widest]--;
    }
}

/* A cell; blanks in front of it are owed until something is printed, so that no line ends with them. */
static void put_cell(FILE *out, const char *text, unsigned width, bool right, unsigned *owed)
{
    unsigned used;
    size_t bytes = strlen(text);
    bool is_cut = flyt_text_width(text) > width;

    bytes = is_cut ? flyt_text_fit(text, width - 1, &used) : flyt_text_fit(text, width, &used);
    used += is_cut;
    unsigned rest = width > used ? width - used : 0;
    if (bytes || is_cut) {
        fprintf(out, "%*s%.*s%s", (int)(*owed + (right ? rest : 0)), "", (int)bytes, text, is_cut ? "…" : "");
        *owed = right ? 0 : rest;
    } else {
        *owed += width;
    }
    *owed += GAP;
}

static void put_row(FILE *out, char *const *cells, const struct flyt_column *const *columns, const unsigned *widths,
                    unsigned count)
{
    unsigned owed = 0;

    for (unsigned i = 0; i < count; i++)
        put_cell(out, cells[i], widths[i], is_right(columns[i]), &owed);
    fputc('\n', out);
}

void flyt_table_put(FILE *out, const struct flyt_column *all, const cJSON *rows, const struct flyt_layout *layout)
{
    const struct flyt_column *columns[FLYT_COLUMNS_MAX];
    unsigned widths[FLYT_COLUMNS_MAX];
    char *heads[FLYT_COLUMNS_MAX];
    unsigned count = choose_columns(all, rows, layout->is_wide, columns);
    size_t row_count = (size_t)cJSON_GetArraySize(rows), at = 0;
    char **cells = flyt_must(calloc(row_count * count + 1, sizeof *cells));
    const cJSON *row;

    for (unsigned i = 0; i < count; i++) {
        heads[i] = (char *)columns[i]->title;
        widths[i] = flyt_text_width(heads[i]);
        if (layout->widths && layout->widths->widths[i] > widths[i])
            widths[i] = layout->widths->widths[i];
    }
    cJSON_ArrayForEach(row, rows)
    {
        for (unsigned i = 0; i < count; i++, at++) {
            cells[at] = flyt_table_cell(columns[i], row, layout->now_ms);
            unsigned width = flyt_text_width(cells[at]);
            widths[i] = width > widths[i] ? width : widths[i];
        }
    }
    if (layout->widths)
        memcpy(layout->widths->widths, widths, count * sizeof *widths);
    if (layout->width)
        shrink(columns, widths, count, layout->width);
    if (!layout->has_no_head)
        put_row(out, heads, columns, widths, count);
    for (size_t i = 0; i < row_count; i++)
        put_row(out, cells + i * count, columns, widths, count);
    for (size_t i = 0; i < row_count * count; i++)
        free(cells[i]);
    free(cells);
}

void flyt_table_put_object(FILE *out, const struct flyt_column *columns, const cJSON *object,
                           const struct flyt_layout *layout)
{
    unsigned width = 0;

    for (const struct flyt_column *c = columns; c->title; c++)
        if (flyt_text_width(c->title) > width)
            width = flyt_text_width(c->title);
    for (const struct flyt_column *c = columns; c->title; c++) {
        char *cell = flyt_table_cell(c, object, layout->now_ms);
        fprintf(out, "%-*s  %s\n", (int)width, c->title, cell);
        free(cell);
    }
}
