/*
 * Text from elsewhere, made fit for a terminal, and numbers as people read them. Pure functions.
 *
 * What a terminal must never get raw: control characters (C0, DEL, C1), bytes that are no UTF-8, and characters that
 * turn the direction of text or hide in it. They are shown as \xNN or \u{NNNN}.
 */
#ifndef FLYT_FLYTCTL_TEXT_H
#define FLYT_FLYTCTL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Decodes a character of UTF-8 (RFC 3629). Returns its bytes, 0 at the end, -1 where it is none. */
int flyt_utf8_get(const char *text, size_t bytes, uint32_t *ret_character);
/* Whether a character does something else than to be seen. */
bool flyt_character_is_unsafe(uint32_t character);

/* A copy that is safe to print; malloc'ed, never NULL (the process ends without memory). */
char *flyt_text_safe(const char *text, size_t bytes);
/* Columns that a safe text takes on a terminal. */
unsigned flyt_text_width(const char *text);
/* Bytes of as much of a safe text as fits into `width` columns; *ret_width is what it takes. */
size_t flyt_text_fit(const char *text, unsigned width, unsigned *ret_width);
/* Prints any text, made safe. */
void flyt_text_put(FILE *out, const char *text);

/* Numbers for people; `text` has FLYT_NUMBER_BYTES of room. */
enum { FLYT_NUMBER_BYTES = 32 };
/* Bytes, to the nearest: "8.0GiB"; "256MiB" where there is less than one; "12KiB"; "0". */
void flyt_text_size(char *text, double bytes);
/* A time between two moments: "45s", "12m30s", "5h02m", "3d4h"; negative ones are "0s". */
void flyt_text_span(char *text, double ms);
/* A moment, ms since 1970, in local time: "2026-05-04 13:07:09". */
void flyt_text_moment(char *text, double ms);

/* asprintf that ends the process without memory. */
char *flyt_text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* ends the process where p is NULL */
void *flyt_must(void *p);

#endif
