#include "cpu/client/range.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/client/instance.h"
#include "cpu/client/thread.h"

/* A treap: a search tree by base that is a heap by a scrambled base, and hence balanced without bookkeeping. */
struct node {
    struct flyt_range range;
    uint64_t priority;
    struct node *left, *right;
};

static struct {
    pthread_rwlock_t lock;
    struct node *root;
    uint64_t last_buffer_id;
} ranges = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* The finaliser of a well-mixing hash: neighbouring addresses get unrelated priorities. */
static uint64_t scramble(uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ull;
    return value ^ value >> 33;
}

/* Splits a tree into bases below and not below `base`. */
static void split(struct node *tree, uint64_t base, struct node **ret_below, struct node **ret_above)
{
    while (tree) {
        if (tree->range.base < base) {
            *ret_below = tree;
            ret_below = &tree->right;
            tree = tree->right;
        } else {
            *ret_above = tree;
            ret_above = &tree->left;
            tree = tree->left;
        }
    }
    *ret_below = *ret_above = NULL;
}

/* All of `below` lies before all of `above`. */
static struct node *join(struct node *below, struct node *above)
{
    struct node *root = NULL, **place = &root;
    while (below && above) {
        if (below->priority > above->priority) {
            *place = below;
            place = &below->right;
            below = below->right;
        } else {
            *place = above;
            place = &above->left;
            above = above->left;
        }
    }
    *place = below ? below : above;
    return root;
}

/* The range with the highest base at or below the address. */
static struct node *floor_locked(uint64_t address)
{
    struct node *best = NULL;
    for (struct node *one = ranges.root; one;) {
        if (one->range.base <= address) {
            best = one;
            one = one->right;
        } else {
            one = one->left;
        }
    }
    return best;
}

static struct node *holder_locked(uint64_t address)
{
    struct node *one = floor_locked(address);
    return one && address - one->range.base < one->range.bytes ? one : NULL;
}

static bool overlaps_locked(const struct flyt_range *range)
{
    const struct node *last = floor_locked(range->base + range->bytes - 1);
    return last && (last->range.base >= range->base || range->base - last->range.base < last->range.bytes);
}

static void insert_locked(struct node *fresh)
{
    struct node **place = &ranges.root;
    while (*place && (*place)->priority > fresh->priority)
        place = fresh->range.base < (*place)->range.base ? &(*place)->left : &(*place)->right;
    split(*place, fresh->range.base, &fresh->left, &fresh->right);
    *place = fresh;
}

int flyt_range_insert(const struct flyt_range *range)
{
    struct node *fresh = calloc(1, sizeof *fresh);
    int error = fresh ? 0 : -ENOMEM;
    if (!range->bytes || range->bytes - 1 > UINT64_MAX - range->base)
        error = -EINVAL;
    pthread_rwlock_wrlock(&ranges.lock);
    if (!error && overlaps_locked(range))
        error = -EEXIST;
    if (!error) {
        fresh->range = *range;
        fresh->range.buffer_id = ++ranges.last_buffer_id;
        fresh->priority = scramble(range->base);
        insert_locked(fresh);
    }
    pthread_rwlock_unlock(&ranges.lock);
    if (error)
        free(fresh);
    return error;
}

bool flyt_range_find(uint64_t address, struct flyt_range *ret_range)
{
    pthread_rwlock_rdlock(&ranges.lock);
    const struct node *one = holder_locked(address);
    if (one)
        *ret_range = one->range;
    pthread_rwlock_unlock(&ranges.lock);
    return one != NULL;
}

bool flyt_range_is_pinned(uint64_t address, uint64_t bytes)
{
    struct flyt_range range;
    return flyt_range_find(address, &range) && flyt_range_is_host(&range) &&
           bytes <= range.bytes - (address - range.base);
}

bool flyt_range_is_foreign(uint64_t address)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char is_resident;
    return mincore((void *)(uintptr_t)(address / page_bytes * page_bytes), 1, &is_resident) == 0;
}

static void remove_locked(const struct node *gone)
{
    struct node **place = &ranges.root;
    while (*place != gone)
        place = gone->range.base < (*place)->range.base ? &(*place)->left : &(*place)->right;
    *place = join(gone->left, gone->right);
}

bool flyt_range_remove(uint64_t base, enum flyt_range_kind kind, struct flyt_range *ret_range)
{
    pthread_rwlock_wrlock(&ranges.lock);
    struct node *one = floor_locked(base);
    if (one && (one->range.base != base || one->range.kind != kind))
        one = NULL;
    if (one)
        remove_locked(one);
    pthread_rwlock_unlock(&ranges.lock);
    if (one && ret_range)
        *ret_range = one->range;
    free(one);
    return one != NULL;
}

/* Which ranges flyt_range_clear and flyt_range_forget_variables mean. */
struct wanted {
    enum flyt_range_kind kind;
    uint64_t context_id; /* of allocations */
    uint64_t library_id; /* of variables; 0: of any, on `device` */
    int device;
};

static bool is_wanted(const struct flyt_range *range, const struct wanted *wanted)
{
    if (range->kind != wanted->kind)
        return false;
    if (wanted->kind == FLYT_RANGE_ALLOCATION)
        return range->context_id == wanted->context_id;
    return wanted->library_id ? range->library_id == wanted->library_id : range->device == wanted->device;
}

/* Moves what is wanted out of the tree into a list through `right`. */
static struct node *take_locked(struct node *tree, const struct wanted *wanted, struct node **list)
{
    if (!tree)
        return NULL;
    tree->left = take_locked(tree->left, wanted, list);
    tree->right = take_locked(tree->right, wanted, list);
    if (!is_wanted(&tree->range, wanted))
        return tree;
    struct node *rest = join(tree->left, tree->right);
    tree->right = *list;
    *list = tree;
    return rest;
}

static struct node *take(const struct wanted *wanted)
{
    struct node *list = NULL;
    pthread_rwlock_wrlock(&ranges.lock);
    ranges.root = take_locked(ranges.root, wanted, &list);
    pthread_rwlock_unlock(&ranges.lock);
    return list;
}

void flyt_range_clear(uint64_t context_id, bool is_on_server)
{
    struct node *list = take(&(struct wanted){.kind = FLYT_RANGE_ALLOCATION, .context_id = context_id});
    while (list) {
        struct node *one = list;
        list = one->right;
        flyt_memory_free_args args = {.thread = flyt_thread_number(), .address = one->range.base};
        if (is_on_server)
            flyt_send_memory_free(flyt_client.channel, &args, NULL); /* a loss shows at the next call */
        free(one);
    }
}

void flyt_range_forget_variables(uint64_t library_id, int device)
{
    struct node *list = take(&(struct wanted){.kind = FLYT_RANGE_VARIABLE, .library_id = library_id, .device = device});
    while (list) {
        struct node *one = list;
        list = one->right;
        free(one);
    }
}
