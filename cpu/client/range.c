#include "cpu/client/range.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/client/instance.h"
#include "cpu/client/restore.h"
#include "cpu/client/thread.h"

/* A treap: a search tree by base that is a heap by a scrambled base, and hence balanced without bookkeeping. */
struct node {
    struct flyt_range range;
    uint64_t priority;
    struct node *left, *right;
    uint64_t freed; /* out of the tree: number of its memory_free, which the channel writes; 0: it has none yet */
    bool is_freed;  /* it has been sent: `freed` stands */
};

static struct {
    pthread_rwlock_t lock;
    struct node *root;
    struct node *leaving_first, *leaving_last; /* allocations that are being freed, through `right` */
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

/* ---- memory that is being freed ---- */

/* Forgets those at the list's beginning whose memory_free is executed; returns them, a list through `right`. */
static struct node *take_gone_locked(void)
{
    uint64_t executed = ranges.leaving_first ? flyt_channel_progress(flyt_client.channel).executed : 0;
    struct node *list = NULL;
    while (ranges.leaving_first && ranges.leaving_first->is_freed && ranges.leaving_first->freed <= executed) {
        struct node *one = ranges.leaving_first;
        ranges.leaving_first = one->right;
        one->right = list;
        list = one;
    }
    return list;
}

/* It is out of the tree, and in the list from the same moment on. */
static void add_leaving_locked(struct node *one)
{
    one->right = NULL;
    one->freed = 0;
    one->is_freed = false;
    *(ranges.leaving_first ? &ranges.leaving_last->right : &ranges.leaving_first) = one;
    ranges.leaving_last = one;
}

static void free_all(struct node *list)
{
    while (list) {
        struct node *one = list;
        list = one->right;
        free(one);
    }
}

/* The node is valid until this has sent its call, and no longer. */
static CUresult send_free(struct node *leaving)
{
    flyt_memory_free_args args = {.thread = flyt_thread_number(), .address = leaving->range.base};
    int status = flyt_send_memory_free(flyt_client.channel, &args, &leaving->freed);
    pthread_rwlock_wrlock(&ranges.lock);
    leaving->is_freed = true;
    pthread_rwlock_unlock(&ranges.lock);
    return flyt_client_status(status, "memory_free");
}

CUresult flyt_range_free(uint64_t base)
{
    pthread_rwlock_wrlock(&ranges.lock);
    struct node *gone = take_gone_locked();
    struct node *one = floor_locked(base);
    if (one && (one->range.base != base || one->range.kind != FLYT_RANGE_ALLOCATION))
        one = NULL;
    if (one) {
        remove_locked(one);
        add_leaving_locked(one);
    }
    pthread_rwlock_unlock(&ranges.lock);
    free_all(gone);
    return one ? send_free(one) : CUDA_ERROR_INVALID_VALUE;
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

static void take_away(const struct wanted *wanted)
{
    struct node *list = NULL;
    pthread_rwlock_wrlock(&ranges.lock);
    ranges.root = take_locked(ranges.root, wanted, &list);
    pthread_rwlock_unlock(&ranges.lock);
    free_all(list);
}

/* Moves those that are wanted to the list of those that leave; returns them, linked through `left`. */
static struct node *let_leave(const struct wanted *wanted)
{
    struct node *list = NULL, *leaving = NULL;
    pthread_rwlock_wrlock(&ranges.lock);
    ranges.root = take_locked(ranges.root, wanted, &list);
    while (list) {
        struct node *one = list;
        list = one->right;
        add_leaving_locked(one);
        one->left = leaving;
        leaving = one;
    }
    pthread_rwlock_unlock(&ranges.lock);
    return leaving;
}

void flyt_range_clear(uint64_t context_id, bool is_on_server)
{
    struct wanted wanted = {.kind = FLYT_RANGE_ALLOCATION, .context_id = context_id};
    if (!is_on_server) {
        take_away(&wanted);
        return;
    }
    for (struct node *one = let_leave(&wanted); one;) {
        struct node *next = one->left;
        send_free(one); /* a loss shows at the next call */
        one = next;
    }
}

void flyt_range_forget_variables(uint64_t library_id, int device)
{
    take_away(&(struct wanted){.kind = FLYT_RANGE_VARIABLE, .library_id = library_id, .device = device});
}

/* ---- at another server ---- */

/* Allocations of a device that the server is told of in one call. */
struct batch {
    struct flyt_restore *restore;
    int device;
    u_int count;
    uint64_t *addresses, *sizes;
    int status;
};

static void send_batch(struct batch *batch)
{
    flyt_memory_restore_args args = {.thread = FLYT_RESTORE_THREAD, .device = (unsigned)batch->device};
    flyt_memory_restore_res res = {0};
    args.addresses.addresses_len = args.sizes.sizes_len = batch->count;
    args.addresses.addresses_val = batch->addresses;
    args.sizes.sizes_val = batch->sizes;
    if (batch->status || !batch->count)
        return;
    int status = flyt_call_memory_restore(batch->restore->fresh, &args, &res);
    batch->status =
        flyt_restore_answered(batch->restore, status, res.result, "%u allocations of device %d from %#llx on",
                              batch->count, batch->device, (unsigned long long)batch->addresses[0]);
    batch->count = 0;
}

static void add_to_batch(struct batch *batch, const struct flyt_range *range)
{
    if (range->kind != FLYT_RANGE_ALLOCATION || range->device != batch->device)
        return;
    if (batch->count == FLYT_RANGES_MAX)
        send_batch(batch);
    if (batch->status)
        return;
    batch->addresses[batch->count] = range->base;
    batch->sizes[batch->count++] = range->bytes;
}

/* In the order of addresses. */
static void add_tree(struct batch *batch, const struct node *tree)
{
    if (!tree)
        return;
    add_tree(batch, tree->left);
    add_to_batch(batch, &tree->range);
    add_tree(batch, tree->right);
}

int flyt_range_restore(struct flyt_restore *restore)
{
    struct batch batch = {.restore = restore};
    batch.addresses = calloc(FLYT_RANGES_MAX, sizeof *batch.addresses);
    batch.sizes = calloc(FLYT_RANGES_MAX, sizeof *batch.sizes);
    if (!batch.addresses || !batch.sizes)
        batch.status = flyt_error_set(restore->err, -ENOMEM, "no memory to make the allocations again");
    /* Nobody who holds this lock calls the server: it is held here across calls over the other channel. */
    pthread_rwlock_rdlock(&ranges.lock);
    for (; !batch.status && batch.device < (int)flyt_client.device_count; batch.device++) {
        add_tree(&batch, ranges.root);
        for (const struct node *one = ranges.leaving_first; one; one = one->right)
            if (!one->freed || one->freed > restore->sequence)
                add_to_batch(&batch, &one->range);
        send_batch(&batch);
    }
    pthread_rwlock_unlock(&ranges.lock);
    free(batch.addresses);
    free(batch.sizes);
    return batch.status;
}
