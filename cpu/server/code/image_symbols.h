/*
 * The names of a module's variables and constants, by which the driver gives their addresses: all whose contents a
 * session has beside the image, literals that the compiler has made included (only their addresses matter then).
 *
 * Contents may be addresses that were put in when the module was loaded: of other variables, which whoever looks for
 * addresses in contents finds, and of functions, which are the same everywhere (CUDA 13.0, driver 580).
 *
 * Nothing in the bytes is trusted. From any thread.
 */
#ifndef FLYT_SERVER_IMAGE_SYMBOLS_H
#define FLYT_SERVER_IMAGE_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

enum { FLYT_IMAGE_SYMBOLS_MAX = 1 << 20 };

struct flyt_image_symbol {
    char *name; /* at most FLYT_SYMBOL_BYTES_MAX bytes */
    bool is_constant;
};

/* By name, each once. All zero: none. */
struct flyt_image_symbols {
    struct flyt_image_symbol *items;
    uint32_t count;
};

/* Of machine code. 0 and *ret_symbols, to be freed by _free; -ENOTSUP: it has variables that no name leads to, or one
 * name for two; -EBADMSG: it cannot be understood; -E2BIG: more than FLYT_IMAGE_SYMBOLS_MAX; -ENOMEM. */
int flyt_image_symbols(const char *code, uint64_t bytes, struct flyt_image_symbols *ret_symbols);
/* The place of a name among them; -1: there is none. */
int64_t flyt_image_symbols_find(const struct flyt_image_symbols *symbols, const char *name);
void flyt_image_symbols_free(struct flyt_image_symbols *symbols);

#endif
