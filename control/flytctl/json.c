#include "control/flytctl/json.h"

#include <string.h>

#include "control/flytctl/text.h"

/* A character that is not plain; in strings beyond the first 65,536 two halves (RFC 8259, section 7). */
static void put_character(FILE *out, uint32_t character)
{
    if (character >= 0x10000)
        fprintf(out, "\\u%04x\\u%04x", 0xd7c0 + (character >> 10), 0xdc00 + (character & 0x3ff));
    else
        fprintf(out, "\\u%04x", character);
}

/* The inside of a string up to its end or the closing quote. Returns where that is. */
static size_t put_inside(FILE *out, const char *text, size_t bytes, bool is_json)
{
    uint32_t character;
    size_t at = 0;

    while (at < bytes && !(is_json && text[at] == '"')) {
        int count = flyt_utf8_get(text + at, bytes - at, &character);
        if (is_json && text[at] == '\\' && at + 1 < bytes && (unsigned char)text[at + 1] >= 0x20 &&
            (unsigned char)text[at + 1] < 0x7f) {
            fwrite(text + at, 1, 2, out);
            at += 2;
            continue;
        }
        if (count < 0)
            fputs("\\ufffd", out);
        else if (flyt_character_is_unsafe(character))
            put_character(out, character);
        else if (!is_json && (character == '"' || character == '\\'))
            fprintf(out, "\\%c", (int)character);
        else
            fwrite(text + at, 1, (size_t)count, out);
        at += count < 0 ? 1 : (size_t)count;
    }
    return at;
}

void flyt_json_put_string(FILE *out, const char *text)
{
    fputc('"', out);
    put_inside(out, text, strlen(text), false);
    fputc('"', out);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void put_line(FILE *out, unsigned depth, bool is_pretty)
{
    if (is_pretty)
        fprintf(out, "\n%*s", (int)depth * 2, "");
}

void flyt_json_put(FILE *out, const char *json, size_t bytes, bool is_pretty)
{
    unsigned depth = 0;

    for (size_t at = 0; at < bytes; at++) {
        char c = json[at];
        if (is_space(c))
            continue;
        if (c == '"') {
            fputc(c, out);
            at += 1 + put_inside(out, json + at + 1, bytes - at - 1, true);
            fputc(c, out);
        } else if (c == '{' || c == '[') {
            size_t next = at + 1;
            while (next < bytes && is_space(json[next]))
                next++;
            fputc(c, out);
            if (next < bytes && (json[next] == '}' || json[next] == ']')) {
                fputc(json[next], out);
                at = next;
            } else {
                put_line(out, ++depth, is_pretty);
            }
        } else if (c == '}' || c == ']') {
            put_line(out, depth ? --depth : 0, is_pretty);
            fputc(c, out);
        } else {
            fputc(c, out);
            if (c == ',')
                put_line(out, depth, is_pretty);
            else if (c == ':' && is_pretty)
                fputc(' ', out);
        }
    }
    fputc('\n', out);
}
