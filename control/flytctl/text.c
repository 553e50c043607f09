#include "control/flytctl/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

void *flyt_must(void *p)
{
    if (!p) {
        fputs("flytctl: out of memory\n", stderr);
        exit(4);
    }
    return p;
}

char *flyt_text_format(const char *format, ...)
{
    va_list arguments;
    char *text = NULL;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    return flyt_must(text);
}

int flyt_utf8_get(const char *text, size_t bytes, uint32_t *ret_character)
{
    const unsigned char *at = (const unsigned char *)text;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

    if (!bytes)
        return 0;
    int count = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? -1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : -1;
    if (count < 0 || (size_t)count > bytes)
        return -1;
    uint32_t character = count == 1 ? at[0] : at[0] & (0x7fu >> count);
    for (int i = 1; i < count; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return -1;
        character = character << 6 | (at[i] & 0x3f);
    }
    if (character < least[count] || character > 0x10ffff || (character >= 0xd800 && character < 0xe000))
        return -1;
    *ret_character = character;
    return count;
}

bool flyt_character_is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

static void put_safe(FILE *out, const char *text, size_t bytes)
{
    uint32_t character;

    for (size_t at = 0; at < bytes;) {
        int count = flyt_utf8_get(text + at, bytes - at, &character);
        if (count < 0)
            fprintf(out, "\\x%02x", (unsigned char)text[at]);
        else if (!flyt_character_is_unsafe(character))
            fwrite(text + at, 1, (size_t)count, out);
        else if (character == '\n' || character == '\t')
            fputs(character == '\n' ? "\\n" : "\\t", out);
        else
            fprintf(out, character < 0x80 ? "\\x%02x" : "\\u{%04x}", character);
        at += count < 0 ? 1 : (size_t)count;
    }
}

char *flyt_text_safe(const char *text, size_t bytes)
{
    char *safe = NULL;
    size_t safe_bytes;
    FILE *out = flyt_must(open_memstream(&safe, &safe_bytes));

    put_safe(out, text, bytes);
    fclose(out);
    return flyt_must(safe);
}

void flyt_text_put(FILE *out, const char *text)
{
    put_safe(out, text, strlen(text));
}

size_t flyt_text_fit(const char *text, unsigned width, unsigned *ret_width)
{
    size_t at = 0, bytes = strlen(text);
    unsigned used = 0;
    uint32_t character;

    while (at < bytes) {
        int count = flyt_utf8_get(text + at, bytes - at, &character);
        int columns = count > 0 ? wcwidth((wchar_t)character) : 1;
        if (columns < 0)
            columns = 1;
        if (used + (unsigned)columns > width)
            break;
        used += (unsigned)columns;
        at += count > 0 ? (size_t)count : 1;
    }
    *ret_width = used;
    return at;
}

unsigned flyt_text_width(const char *text)
{
    unsigned width;

    flyt_text_fit(text, UINT32_MAX / 2, &width);
    return width;
}

void flyt_text_size(char *text, double bytes)
{
    double kib = bytes / 1024, mib = kib / 1024;

    /* round(), not printf's: that takes 0.25 for 0.2. What rounds to 1024 of a unit is 1 of the next one. */
    if (bytes <= 0)
        snprintf(text, FLYT_NUMBER_BYTES, "0");
    else if (round(kib) < 1024)
        snprintf(text, FLYT_NUMBER_BYTES, "%.0fKiB", ceil(kib));
    else if (round(mib) < 1024)
        snprintf(text, FLYT_NUMBER_BYTES, "%.0fMiB", round(mib));
    else
        snprintf(text, FLYT_NUMBER_BYTES, "%.1fGiB", round(mib * 10 / 1024) / 10);
}

void flyt_text_span(char *text, double ms)
{
    uint64_t s = ms > 0 && ms < 1e18 ? (uint64_t)(ms / 1000) : 0;

    if (s < 60)
        snprintf(text, FLYT_NUMBER_BYTES, "%us", (unsigned)s);
    else if (s < 3600)
        snprintf(text, FLYT_NUMBER_BYTES, "%um%02us", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(text, FLYT_NUMBER_BYTES, "%uh%02um", (unsigned)(s / 3600), (unsigned)(s / 60 % 60));
    else
        snprintf(text, FLYT_NUMBER_BYTES, "%llud%uh", (unsigned long long)(s / 86400), (unsigned)(s / 3600 % 24));
}

void flyt_text_moment(char *text, double ms)
{
    time_t seconds = ms >= 0 && ms < 2.5e14 ? (time_t)(ms / 1000) : 0;
    struct tm parts;

    if (!localtime_r(&seconds, &parts) || !strftime(text, FLYT_NUMBER_BYTES, "%Y-%m-%d %H:%M:%S", &parts))
        snprintf(text, FLYT_NUMBER_BYTES, "-");
}
