#include "cpu/server/code/image_name.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/code/image_code.h"
#include "rpc/base/fatbin.h"

static const char text_section[] = ".text.";

/* A section of its own for each kernel. */
static bool name_code(const struct flyt_code *code, char *ret_name, size_t room)
{
    Elf64_Shdr section;
    for (unsigned i = 0; flyt_code_section(code, i, &section); i++) {
        const char *name = flyt_code_text(code, &code->names, section.sh_name);
        if (!name || strncmp(name, text_section, sizeof text_section - 1) != 0)
            continue;
        snprintf(ret_name, room, "%s", name + sizeof text_section - 1);
        return true;
    }
    return false;
}

/* The word behind the first ".entry". The text ends with a NUL. */
static bool name_ptx(const char *text, char *ret_name, size_t room)
{
    bool is_next = false;
    size_t bytes;
    for (const char *at = text; (at = flyt_ptx_token(at, &bytes)); at += bytes) {
        if (is_next) {
            snprintf(ret_name, room, "%.*s", (int)(bytes < room ? bytes : room), at);
            return true;
        }
        is_next = flyt_ptx_is(at, bytes, ".entry");
    }
    return false;
}

/* Of an image with a NUL behind its bytes. */
static bool name_plain(const char *image, uint64_t bytes, char *ret_name, size_t room)
{
    struct flyt_code code;
    if (bytes >= SELFMAG && memcmp(image, ELFMAG, SELFMAG) == 0)
        return flyt_code_open(&code, image, bytes) && name_code(&code, ret_name, room);
    return name_ptx(image, ret_name, room);
}

static void name_container(const char *image, uint64_t bytes, char *ret_name, size_t room)
{
    struct flyt_fatbin fatbin;
    struct flyt_fatbin_entry entry;
    bool is_named = false;
    if (flyt_fatbin_init(image, bytes, &fatbin) != 0)
        return;
    while (!is_named && flyt_fatbin_next(&fatbin, &entry) == 1) {
        char *plain;
        size_t plain_bytes;
        bool has_code = entry.kind == FLYT_FATBIN_PTX || entry.kind == FLYT_FATBIN_CUBIN;
        if (!has_code || flyt_fatbin_decompress(&entry, &plain, &plain_bytes) != 0)
            continue;
        is_named = name_plain(plain, plain_bytes, ret_name, room);
        free(plain);
    }
}

void flyt_image_name(const char *image, uint64_t bytes, char *ret_name, size_t room)
{
    char *plain;
    uint64_t plain_bytes;
    *ret_name = 0;
    if (bytes >= sizeof(uint32_t) && flyt_fatbin_is(image)) {
        name_container(image, bytes, ret_name, room);
    } else if (flyt_image_choose(image, bytes, 0, 0, true, &plain, &plain_bytes) == 0) {
        name_plain(plain, plain_bytes, ret_name, room);
        free(plain);
    }
}
