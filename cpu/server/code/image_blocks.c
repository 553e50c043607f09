#include "cpu/server/code/image_blocks.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/code/image_code.h"

struct token {
    const char *text;
    size_t bytes;
};

static bool next(struct token *token)
{
    token->text = flyt_ptx_token(token->text + token->bytes, &token->bytes);
    return token->text;
}

static bool is(const struct token *token, const char *text)
{
    return flyt_ptx_is(token->text, token->bytes, text);
}

/* Behind .reqntid: X[, Y[, Z]]; what is not said is 1. *token: the last number. */
static bool read_size(struct token *token, uint32_t size[3])
{
    for (unsigned i = 0; i < 3; i++)
        size[i] = 1;
    for (unsigned i = 0; i < 3; i++) {
        if (!next(token))
            return false;
        uint64_t number = flyt_ptx_number(token->text, token->bytes);
        if (!number || number > UINT32_MAX)
            return false;
        size[i] = (uint32_t)number;
        struct token behind = *token;
        if (!next(&behind) || !is(&behind, ","))
            return true;
        *token = behind;
    }
    return true;
}

/* Up to its semicolon, which does not end the kernel's head. */
static bool pass_pragma(struct token *token)
{
    while (next(token))
        if (is(token, ";"))
            return true;
    return false;
}

/* Behind .entry: NAME [(PARAMETERS)] DIRECTIVES, up to its body or, of a declaration, the semicolon. *token: where it
 * ends. False: it demands nothing. */
static bool read_kernel(struct token *token, struct token *ret_name, uint32_t size[3])
{
    bool has_size = false;
    unsigned depth = 0;
    if (!next(token))
        return false;
    *ret_name = *token;
    while (next(token)) {
        depth += is(token, "(");
        depth -= is(token, ")") && depth;
        if (depth)
            continue;
        if (is(token, "{") || is(token, ";"))
            return has_size;
        if (is(token, ".blocksareclusters"))
            return false;
        if (is(token, ".pragma") && !pass_pragma(token))
            return false;
        if (is(token, ".reqntid") && !(has_size = read_size(token, size)))
            return false;
    }
    return false;
}

/* How many kernels can demand a size. 0 also where a preprocessor's line may give anything another name. */
static uint32_t count_at_most(const char *text)
{
    struct token token = {.text = text};
    uint32_t count = 0;
    if (!strstr(text, ".reqntid"))
        return 0; /* as nearly always: a fast look */
    while (next(&token)) {
        if (is(&token, "#"))
            return 0;
        count += is(&token, ".reqntid");
    }
    return count;
}

static int compare(const void *left, const void *right)
{
    return strcmp(((const struct flyt_image_block *)left)->kernel, ((const struct flyt_image_block *)right)->kernel);
}

int flyt_image_blocks(const char *text, struct flyt_image_blocks *ret_blocks)
{
    struct flyt_image_blocks blocks = {0};
    struct token token = {.text = text}, name;
    uint32_t size[3], most = count_at_most(text);
    *ret_blocks = blocks;
    if (!most)
        return 0;
    blocks.items = calloc(most, sizeof *blocks.items);
    if (!blocks.items)
        return -ENOMEM;
    while (token.text && next(&token)) {
        if (!is(&token, ".entry") || !read_kernel(&token, &name, size))
            continue;
        struct flyt_image_block *block = &blocks.items[blocks.count];
        block->kernel = strndup(name.text, name.bytes);
        if (!block->kernel) {
            flyt_image_blocks_free(&blocks);
            return -ENOMEM;
        }
        memcpy(block->size, size, sizeof block->size);
        blocks.count++;
    }
    qsort(blocks.items, blocks.count, sizeof *blocks.items, compare);
    *ret_blocks = blocks;
    return 0;
}

void flyt_image_blocks_get(const struct flyt_image_blocks *blocks, const char *kernel, uint32_t *ret_size)
{
    const struct flyt_image_block wanted = {.kernel = (char *)(uintptr_t)kernel};
    const struct flyt_image_block *found =
        blocks->count ? bsearch(&wanted, blocks->items, blocks->count, sizeof wanted, compare) : NULL;
    if (found)
        memcpy(ret_size, found->size, sizeof found->size);
}

void flyt_image_blocks_free(struct flyt_image_blocks *blocks)
{
    for (uint32_t i = 0; i < blocks->count; i++)
        free(blocks->items[i].kernel);
    free(blocks->items);
    *blocks = (struct flyt_image_blocks){0};
}
