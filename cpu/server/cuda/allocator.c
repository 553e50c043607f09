#include "cpu/server/cuda/allocator.h"

#include <assert.h>
#include <errno.h>
#include <search.h>
#include <stdlib.h>

enum block_state { FREE, USED, RETIRED };

/* A range of addresses. The blocks of an allocator do not overlap; free ones have no free neighbours. */
struct flyt_block {
    uint64_t address, bytes;
    enum block_state state;
    struct flyt_block *prev, *next; /* in its class, while free */
};

/* Blocks that overlap count as equal: so any address in a block finds it. */
static int compare(const void *left, const void *right)
{
    const struct flyt_block *a = left, *b = right;
    if (a->address + a->bytes <= b->address)
        return -1;
    return a->address >= b->address + b->bytes;
}

static struct flyt_block *find(const struct flyt_allocator *allocator, uint64_t address)
{
    const struct flyt_block key = {.address = address, .bytes = 1};
    struct flyt_block **node = tfind(&key, (void *const *)&allocator->tree, compare);
    return node ? *node : NULL;
}

/* Class of a block of `bytes`: level (highest bit of the number of quanta) and part (the three bits below it). */
static void class_of(const struct flyt_allocator *allocator, uint64_t bytes, unsigned *ret_level, unsigned *ret_part)
{
    uint64_t quanta = bytes / allocator->quantum_bytes;
    unsigned level = 63 - (unsigned)__builtin_clzll(quanta);
    *ret_level = level;
    *ret_part = level >= 3 ? (unsigned)(quanta >> (level - 3)) & 7 : (unsigned)(quanta << (3 - level)) & 7;
}

static void enter_class(struct flyt_allocator *allocator, struct flyt_block *block)
{
    unsigned level, part;
    class_of(allocator, block->bytes, &level, &part);
    struct flyt_block **head = &allocator->classes[level][part];
    block->prev = NULL;
    block->next = *head;
    if (*head)
        (*head)->prev = block;
    *head = block;
    allocator->parts[level] |= (uint8_t)(1u << part);
    allocator->levels |= 1ull << level;
    allocator->free_bytes += block->bytes;
    block->state = FREE;
}

static void leave_class(struct flyt_allocator *allocator, struct flyt_block *block)
{
    unsigned level, part;
    class_of(allocator, block->bytes, &level, &part);
    if (block->next)
        block->next->prev = block->prev;
    if (block->prev) {
        block->prev->next = block->next;
    } else {
        allocator->classes[level][part] = block->next;
        if (!block->next && !(allocator->parts[level] &= (uint8_t) ~(1u << part)))
            allocator->levels &= ~(1ull << level);
    }
    allocator->free_bytes -= block->bytes;
}

/* A block that is in the tree and in no class. NULL: out of memory. */
static struct flyt_block *insert(struct flyt_allocator *allocator, uint64_t address, uint64_t bytes)
{
    struct flyt_block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    block->address = address;
    block->bytes = bytes;
    block->state = USED;
    struct flyt_block **node = tsearch(block, &allocator->tree, compare);
    if (!node) {
        free(block);
        return NULL;
    }
    assert(*node == block);
    return block;
}

static void enter_used(struct flyt_allocator *allocator, struct flyt_block *block)
{
    block->state = USED;
    allocator->used_count++;
    allocator->used_bytes += block->bytes;
}

static void leave_used(struct flyt_allocator *allocator, const struct flyt_block *block)
{
    allocator->used_count--;
    allocator->used_bytes -= block->bytes;
}

static void forget(struct flyt_allocator *allocator, struct flyt_block *block)
{
    tdelete(block, &allocator->tree, compare);
    free(block);
}

void flyt_allocator_init(struct flyt_allocator *allocator, uint64_t quantum_bytes)
{
    *allocator = (struct flyt_allocator){.quantum_bytes = quantum_bytes};
}

void flyt_allocator_fini(struct flyt_allocator *allocator)
{
    tdestroy(allocator->tree, free);
    flyt_allocator_init(allocator, allocator->quantum_bytes);
}

/* Makes a block free, together with its free neighbours. */
static void make_free(struct flyt_allocator *allocator, struct flyt_block *block)
{
    struct flyt_block *before = find(allocator, block->address - 1);
    struct flyt_block *behind = find(allocator, block->address + block->bytes);
    if (behind && behind->state == FREE) {
        uint64_t bytes = behind->bytes;
        leave_class(allocator, behind);
        forget(allocator, behind);
        block->bytes += bytes;
    }
    if (before && before->state == FREE) {
        uint64_t bytes = block->bytes;
        leave_class(allocator, before);
        forget(allocator, block);
        before->bytes += bytes;
        block = before;
    }
    enter_class(allocator, block);
}

int flyt_allocator_add(struct flyt_allocator *allocator, uint64_t address, uint64_t bytes)
{
    struct flyt_block *block = insert(allocator, address, bytes);
    if (!block)
        return -ENOMEM;
    allocator->total_bytes += bytes;
    make_free(allocator, block);
    return 0;
}

bool flyt_allocator_is_free(const struct flyt_allocator *allocator, uint64_t address, uint64_t bytes)
{
    const struct flyt_block *block = find(allocator, address);
    return block && block->state == FREE && bytes <= block->address + block->bytes - address;
}

int flyt_allocator_remove(struct flyt_allocator *allocator, uint64_t address, uint64_t bytes)
{
    if (!flyt_allocator_is_free(allocator, address, bytes))
        return -EBUSY;
    struct flyt_block *block = find(allocator, address);
    uint64_t end = address + bytes, block_end = block->address + block->bytes;
    uint64_t old_bytes = block->bytes;
    leave_class(allocator, block);
    /* The block must be cut before a block for what lies behind the gap can be put into the tree. */
    struct flyt_block *tail = NULL;
    if (end < block_end) {
        block->bytes = end - block->address;
        tail = insert(allocator, end, block_end - end);
        if (!tail) {
            block->bytes = old_bytes;
            enter_class(allocator, block);
            return -ENOMEM;
        }
        enter_class(allocator, tail);
    }
    block->bytes = address - block->address;
    if (block->bytes) {
        enter_class(allocator, block);
    } else {
        block->bytes = bytes; /* a block without bytes would not be found in the tree */
        forget(allocator, block);
    }
    allocator->total_bytes -= bytes;
    return 0;
}

/* A free block of at least `bytes`, or NULL. */
static struct flyt_block *find_free(const struct flyt_allocator *allocator, uint64_t bytes)
{
    unsigned level, part;
    class_of(allocator, bytes, &level, &part);
    /* Every block of a higher class fits. In the request's own class some may. */
    unsigned parts = part + 1 < FLYT_ALLOCATOR_PARTS ? allocator->parts[level] & ~0u << (part + 1) : 0;
    struct flyt_block *own = allocator->classes[level][part];
    for (unsigned looks = 0; own && looks < 64; own = own->next, looks++)
        if (own->bytes >= bytes)
            return own;
    if (parts)
        return allocator->classes[level][__builtin_ctz(parts)];
    uint64_t levels = allocator->levels & ~0ull << (level + 1);
    if (levels) {
        unsigned higher = (unsigned)__builtin_ctzll(levels);
        return allocator->classes[higher][__builtin_ctz(allocator->parts[higher])];
    }
    for (; own; own = own->next)
        if (own->bytes >= bytes)
            return own;
    return NULL;
}

int flyt_allocator_take(struct flyt_allocator *allocator, uint64_t bytes, uint64_t *ret_address)
{
    uint64_t mask = allocator->quantum_bytes - 1;
    if (!bytes || bytes > UINT64_MAX - mask || (bytes + mask) / allocator->quantum_bytes >> (FLYT_ALLOCATOR_LEVELS - 1))
        return -ENOSPC;
    bytes = (bytes + mask) & ~mask;
    struct flyt_block *block = find_free(allocator, bytes);
    if (!block)
        return -ENOSPC;
    leave_class(allocator, block);
    if (block->bytes > bytes) {
        uint64_t all_bytes = block->bytes;
        block->bytes = bytes;
        struct flyt_block *rest = insert(allocator, block->address + bytes, all_bytes - bytes);
        if (!rest) {
            block->bytes = all_bytes;
            enter_class(allocator, block);
            return -ENOMEM;
        }
        enter_class(allocator, rest);
    }
    enter_used(allocator, block);
    *ret_address = block->address;
    return 0;
}

int flyt_allocator_take_at(struct flyt_allocator *allocator, uint64_t address, uint64_t bytes)
{
    uint64_t mask = allocator->quantum_bytes - 1;
    if (!bytes || bytes > UINT64_MAX - mask || address & mask)
        return -EBUSY;
    bytes = (bytes + mask) & ~mask;
    if (!flyt_allocator_is_free(allocator, address, bytes))
        return -EBUSY;
    struct flyt_block *block = find(allocator, address), *used = block, *rest = NULL;
    const uint64_t start = block->address, all_bytes = block->bytes, before_bytes = address - start;
    const uint64_t rest_bytes = all_bytes - before_bytes - bytes;
    leave_class(allocator, block);
    /* What is left of the block comes first: the tree holds none that overlap. */
    block->bytes = before_bytes ? before_bytes : bytes;
    if (before_bytes)
        used = insert(allocator, address, bytes);
    if (used && rest_bytes)
        rest = insert(allocator, address + bytes, rest_bytes);
    if (!used || (rest_bytes && !rest)) {
        if (used && used != block)
            forget(allocator, used);
        block->bytes = all_bytes;
        enter_class(allocator, block);
        return -ENOMEM;
    }
    if (before_bytes)
        enter_class(allocator, block);
    if (rest)
        enter_class(allocator, rest);
    enter_used(allocator, used);
    return 0;
}

bool flyt_allocator_find(const struct flyt_allocator *allocator, uint64_t address, uint64_t *ret_address,
                         uint64_t *ret_bytes)
{
    const struct flyt_block *block = find(allocator, address);
    if (!block || block->state != USED)
        return false;
    *ret_address = block->address;
    *ret_bytes = block->bytes;
    return true;
}

struct walk {
    void (*fn)(void *user, uint64_t address, uint64_t bytes);
    void *user;
};

static void visit(const void *node, VISIT order, void *user)
{
    const struct flyt_block *block = *(struct flyt_block *const *)node;
    const struct walk *walk = user;
    if ((order == postorder || order == leaf) && block->state == USED)
        walk->fn(walk->user, block->address, block->bytes);
}

void flyt_allocator_each(const struct flyt_allocator *allocator,
                         void (*fn)(void *user, uint64_t address, uint64_t bytes), void *user)
{
    struct walk walk = {fn, user};
    twalk_r(allocator->tree, visit, &walk);
}

int flyt_allocator_retire(struct flyt_allocator *allocator, uint64_t address, uint64_t *ret_bytes)
{
    struct flyt_block *block = find(allocator, address);
    if (!block || block->state != USED || block->address != address)
        return -ENOENT;
    leave_used(allocator, block);
    block->state = RETIRED;
    *ret_bytes = block->bytes;
    return 0;
}

void flyt_allocator_free(struct flyt_allocator *allocator, uint64_t address)
{
    struct flyt_block *block = find(allocator, address);
    assert(block && block->state != FREE && block->address == address);
    if (block->state == USED)
        leave_used(allocator, block);
    make_free(allocator, block);
}
