/*
 * JSON as it came, printed again: every number and string as it was written, but with characters that a terminal must
 * not get raw written as \uNNNN, and bytes that are no UTF-8 as \ufffd. Pure functions.
 */
#ifndef FLYT_FLYTCTL_JSON_H
#define FLYT_FLYTCTL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Prints one valid JSON document, indented (is_pretty) or on one line, and a newline. */
void flyt_json_put(FILE *out, const char *json, size_t bytes, bool is_pretty);
/* Prints a text as a JSON string. */
void flyt_json_put_string(FILE *out, const char *text);

#endif
