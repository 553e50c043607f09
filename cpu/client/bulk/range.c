#include "cpu/client/bulk/range.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "rpc/base/id.h"

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
    atomic_uint variable_count;  /* changed under the lock */
    atomic_bool was_synchronous; /* a range has had CU_POINTER_ATTRIBUTE_SYNC_MEMOPS; never false again */
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

/* The range with the lowest base at or above the address. */
static struct node *ceiling_locked(uint64_t address)
{
    struct node *best = NULL;
    for (struct node *one = ranges.root; one;) {
        if (one->range.base >= address) {
            best = one;
            one = one->left;
        } else {
            one = one->right;
        }
    }
    return best;
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

/* ---- pages of variables ---- */

/* [first, end) in bytes: end may be at most the end of all addresses. */
struct pages {
    uint64_t first, end;
};

/* False: they would reach past the last address. */
static bool pages_of(const struct flyt_range *range, struct pages *ret_pages)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), last = range->base + range->bytes - 1;
    ret_pages->first = range->base - range->base % page_bytes;
    return !__builtin_add_overflow(last - last % page_bytes, page_bytes, &ret_pages->end);
}

/* The client reserves the window as a whole; an address that it has minted is in no address space. */
static bool needs_pages(const struct flyt_range *range)
{
    return range->kind == FLYT_RANGE_VARIABLE && flyt_window_device(range->base) < 0 &&
           !flyt_range_is_minted(range->base);
}

/* Takes off the first and the last page where another variable is in them; no variable lies between. False: no page is
 * the range's own. */
static bool trim_locked(const struct flyt_range *range, struct pages *in_out_pages)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    const struct node *before = range->base ? floor_locked(range->base - 1) : NULL;
    const struct node *after = ceiling_locked(range->base + range->bytes);
    if (before && needs_pages(&before->range) && before->range.base + before->range.bytes > in_out_pages->first)
        in_out_pages->first += page_bytes;
    if (after && needs_pages(&after->range) && after->range.base < in_out_pages->end)
        in_out_pages->end -= page_bytes;
    return in_out_pages->first < in_out_pages->end;
}

/* 0, -EEXIST, -EINVAL or -ENOMEM, as flyt_range_insert. The range is not in the tree yet. */
static int reserve_locked(const struct flyt_range *range)
{
    struct pages pages;
    if (!pages_of(range, &pages))
        return -EINVAL;
    if (!trim_locked(range, &pages))
        return 0;
    void *wanted = (void *)(uintptr_t)pages.first; /* NOLINT: a fixed place is the point */
    void *got = mmap(wanted, pages.end - pages.first, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED)
        return errno == EEXIST ? -EEXIST : -ENOMEM;
    if (got == wanted)
        return 0;
    munmap(got, pages.end - pages.first); /* a kernel before 4.17 took the address for a hint: it was not free */
    return -EEXIST;
}

/* The range has left the tree. */
static void release_locked(const struct flyt_range *range)
{
    struct pages pages;
    if (needs_pages(range) && pages_of(range, &pages) && trim_locked(range, &pages))
        munmap((void *)(uintptr_t)pages.first, pages.end - pages.first); /* NOLINT */
}

bool flyt_range_is_reserved(uint64_t address)
{
    struct pages pages;
    if (!atomic_load_explicit(&ranges.variable_count, memory_order_relaxed))
        return false; /* what every copy of pageable memory asks */
    if (!pages_of(&(struct flyt_range){.base = address, .bytes = 1}, &pages))
        return false;
    pthread_rwlock_rdlock(&ranges.lock);
    const struct node *before = floor_locked(address), *after = ceiling_locked(address);
    bool is_reserved =
        (before && needs_pages(&before->range) && before->range.base + before->range.bytes > pages.first) ||
        (after && needs_pages(&after->range) && after->range.base < pages.end);
    pthread_rwlock_unlock(&ranges.lock);
    return is_reserved;
}

/* ---- all kinds ---- */

int flyt_range_insert(const struct flyt_range *range)
{
    struct node *fresh = calloc(1, sizeof *fresh);
    int error = fresh ? 0 : -ENOMEM;
    if (!range->bytes || range->bytes - 1 > UINT64_MAX - range->base)
        error = -EINVAL;
    pthread_rwlock_wrlock(&ranges.lock);
    if (!error && overlaps_locked(range))
        error = -EEXIST;
    if (!error && needs_pages(range))
        error = reserve_locked(range);
    if (!error) {
        atomic_fetch_add(&ranges.variable_count, range->kind == FLYT_RANGE_VARIABLE);
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

bool flyt_range_holds(const struct flyt_range *range, uint64_t address, uint64_t bytes)
{
    const uint64_t offset = address - range->base;
    if (range->is_of_host && !range->is_reached)
        return false;
    if (bytes <= range->bytes - offset)
        return true;
    if (range->kind != FLYT_RANGE_MAPPED)
        return false;
    uint64_t held = range->bytes - offset;
    pthread_rwlock_rdlock(&ranges.lock);
    while (held < bytes) {
        const struct node *next = holder_locked(address + held);
        if (!next || next->range.kind != FLYT_RANGE_MAPPED || next->range.device != range->device ||
            (next->range.is_of_host && !next->range.is_reached))
            break;
        held += next->range.bytes;
    }
    pthread_rwlock_unlock(&ranges.lock);
    return held >= bytes;
}

void flyt_range_set_reached(uint64_t address, bool is_reached)
{
    pthread_rwlock_wrlock(&ranges.lock);
    struct node *one = holder_locked(address);
    if (one)
        one->range.is_reached = is_reached;
    atomic_store(&ranges.was_synchronous, true);
    pthread_rwlock_unlock(&ranges.lock);
}

bool flyt_range_set_synchronous(uint64_t address, bool is_on)
{
    pthread_rwlock_wrlock(&ranges.lock);
    struct node *one = holder_locked(address);
    bool is_found = one && one->range.kind != FLYT_RANGE_VARIABLE;
    if (is_found) {
        one->range.is_synchronous = is_on;
        atomic_store(&ranges.was_synchronous, true);
    }
    pthread_rwlock_unlock(&ranges.lock);
    return is_found;
}

bool flyt_range_is_synchronous(uint64_t address)
{
    struct flyt_range range;
    return atomic_load_explicit(&ranges.was_synchronous, memory_order_relaxed) && flyt_range_find(address, &range) &&
           (range.is_synchronous || range.is_of_host);
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
    return !flyt_range_is_reserved(address) &&
           mincore((void *)(uintptr_t)(address / page_bytes * page_bytes), 1, &is_resident) == 0;
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
    flyt_memory_free_args args = {.thread = flyt_thread_number(),
                                  .address = leaving->range.base - leaving->range.lead_bytes};
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

static bool is_allocation_of(const struct flyt_range *range, uint64_t context_id)
{
    return range->kind == FLYT_RANGE_ALLOCATION && range->context_id == context_id;
}

/* Moves a context's allocations out of the tree into a list through `right`. */
static struct node *take_locked(struct node *tree, uint64_t context_id, struct node **list)
{
    if (!tree)
        return NULL;
    tree->left = take_locked(tree->left, context_id, list);
    tree->right = take_locked(tree->right, context_id, list);
    if (!is_allocation_of(&tree->range, context_id))
        return tree;
    struct node *rest = join(tree->left, tree->right);
    tree->right = *list;
    *list = tree;
    return rest;
}

static void take_away(uint64_t context_id)
{
    struct node *list = NULL;
    pthread_rwlock_wrlock(&ranges.lock);
    ranges.root = take_locked(ranges.root, context_id, &list);
    pthread_rwlock_unlock(&ranges.lock);
    free_all(list);
}

/* Moves them to the list of those that leave; returns them, linked through `left`. */
static struct node *let_leave(uint64_t context_id)
{
    struct node *list = NULL, *leaving = NULL;
    pthread_rwlock_wrlock(&ranges.lock);
    ranges.root = take_locked(ranges.root, context_id, &list);
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
    if (!is_on_server) {
        take_away(context_id);
        return;
    }
    for (struct node *one = let_leave(context_id); one;) {
        struct node *next = one->left;
        send_free(one); /* a loss shows at the next call */
        one = next;
    }
}

/* One after the other: a page goes with the last variable in it, once. */
void flyt_range_forget_variables(uint64_t library_id, int device)
{
    struct node *gone = NULL, *next;
    if (!atomic_load(&ranges.variable_count))
        return;
    pthread_rwlock_wrlock(&ranges.lock);
    for (struct node *one = ceiling_locked(0); one; one = next) {
        bool is_last = one->range.base == UINT64_MAX;
        next = is_last ? NULL : ceiling_locked(one->range.base + 1);
        if (one->range.kind != FLYT_RANGE_VARIABLE || (library_id && one->range.library_id != library_id) ||
            (device >= 0 && one->range.device != device))
            continue;
        remove_locked(one);
        release_locked(&one->range);
        atomic_fetch_sub(&ranges.variable_count, 1);
        one->right = gone;
        gone = one;
    }
    pthread_rwlock_unlock(&ranges.lock);
    free_all(gone);
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
    batch->addresses[batch->count] = range->base - range->lead_bytes;
    batch->sizes[batch->count++] = range->served_bytes ? range->served_bytes : range->bytes;
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
