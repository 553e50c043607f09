/*
 * What is in a module's image: the one of a container that a device would run, sections and texts of machine code (an
 * ELF file of 64 bits), tokens of PTX. Nothing in the bytes is trusted. Pure functions, any thread.
 */
#ifndef FLYT_SERVER_IMAGE_CODE_H
#define FLYT_SERVER_IMAGE_CODE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/base/fatbin.h"

/*
 * A copy of the image, or of that in a fat binary which the device of this compute capability takes, with a NUL behind
 * its bytes, to be freed by the caller. runs_code: the device runs machine code. 0; -ENOMEM; another negative errno:
 * the container is damaged or has none that suits.
 */
int flyt_image_choose(const char *image, uint64_t bytes, int major, int minor, bool runs_code, char **ret_plain,
                      uint64_t *ret_bytes);

struct flyt_code {
    const char *image;
    uint64_t bytes;
    Elf64_Ehdr header;
    Elf64_Shdr names;
};

/* Whether it is machine code whose sections can be read. The image stays the caller's. */
bool flyt_code_open(struct flyt_code *code, const char *image, uint64_t bytes);
/* False: there is none of that number, or it does not lie inside. */
bool flyt_code_section(const struct flyt_code *code, unsigned index, Elf64_Shdr *ret_section);
/* A text of a string table; NULL: it does not end inside. */
const char *flyt_code_text(const struct flyt_code *code, const Elf64_Shdr *table, uint64_t at);

/* The next token of PTX, behind spaces and comments: a name, a number, a dot with the word behind it, a text in quotes,
 * or any other character. The text ends with a NUL. NULL: its end. */
const char *flyt_ptx_token(const char *at, size_t *ret_bytes);
/* Whether the token is this text. */
bool flyt_ptx_is(const char *token, size_t bytes, const char *text);
/* The value of a token that is a whole number; UINT64_MAX: it is none. */
uint64_t flyt_ptx_number(const char *token, size_t bytes);

#endif
