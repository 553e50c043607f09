#include "cpu/server/bulk/region.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/server/core/session.h"
#include "rpc/base/claims.h"
#include "rpc/transport/region_offer.h"

static int take(struct flyt_session *session, int fd, int (*map)(int fd, struct flyt_region *ret_region))
{
    if (session->region) /* of a client that comes back */
        return flyt_region_is_of(&session->region->region, fd) ? 0 : -EEXIST;
    struct flyt_session_region *self = calloc(1, sizeof *self);
    if (!self)
        return -ENOMEM;
    int status = map(fd, &self->region);
    if (status) {
        free(self);
        return status;
    }
    const char *most = getenv(FLYT_LOCKED_MEMORY);
    self->locked_bytes_max = most ? strtoull(most, NULL, 10) : UINT64_MAX;
    session->region = self;
    return 0;
}

int flyt_session_region_take(struct flyt_session *session, int fd)
{
    return take(session, fd, flyt_region_map);
}

/* ---- the memory that a VM shares with this machine ---- */

/* For the handler of a signal, which is the process's, as is its one session. */
static struct {
    struct flyt_session *session;
    struct sigaction before;
    atomic_bool is_cut;
} guard;

/*
 * Who touches what was cut off gets SIGBUS: this thread, or one of the driver's. Memory of the process's own takes the
 * place of all of it, so that whoever it was goes on, and the session ends as one does whose client sends nonsense.
 * mmap(2) is a system call and no more.
 */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    const struct flyt_region *region = &guard.session->region->region;
    if ((uint64_t)((char *)info->si_addr - region->base) >= region->bytes ||
        mmap(region->base, region->bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        sigaction(SIGBUS, &guard.before, NULL); /* somebody else's, who is to have it */
        return;
    }
    atomic_store(&guard.is_cut, true);
    flyt_session_kick(guard.session);
    errno = error;
}

int flyt_session_region_take_vm(struct flyt_session *session)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART};
    int status = take(session, session->vm_memory_fds[0], flyt_region_map_vm);
    if (status || guard.session)
        return status;
    guard.session = session;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &guard.before)) {
        guard.session = NULL;
        return -errno;
    }
    return 0;
}

int flyt_session_region_claim_rings(struct flyt_session *session, const struct flyt_region_place *place,
                                    void **ret_place)
{
    const struct flyt_region *region = &session->region->region;
    int status = flyt_region_check_rings(region, place);
    if (!status)
        status = flyt_claim(session->vm_memory_fds[1], place->offset_bytes, flyt_region_rings_bytes());
    if (!status)
        *ret_place = region->base + place->offset_bytes;
    return status;
}

bool flyt_session_region_is_cut(const struct flyt_session *session)
{
    return session->region && session->region->region.is_vm &&
           atomic_load_explicit(&guard.is_cut, memory_order_relaxed);
}

bool flyt_session_region_is_mapped(const struct flyt_session *session)
{
    bool is_mapped = session->region && flyt_region_is_at_home(&session->region->region);
    for (unsigned i = 0; i < session->device_count && is_mapped; i++) {
        int can = 0;
        is_mapped =
            session->driver->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
                                                  session->devices[i].cu_device) == CUDA_SUCCESS &&
            can;
    }
    return is_mapped;
}

bool flyt_session_region_is_reached(const struct flyt_session *session)
{
    return session->region && session->region->is_reached;
}

void flyt_session_region_fini(struct flyt_session *session)
{
    struct flyt_session_region *self = session->region;
    if (!self)
        return;
    if (guard.session == session) {
        sigaction(SIGBUS, &guard.before, NULL);
        guard.session = NULL;
        atomic_store(&guard.is_cut, false);
    }
    flyt_region_unmap(&self->region);
    free(self->locks);
    free(self);
    session->region = NULL;
}

/* ---- what is locked ---- */

/* How many locks begin at or before the offset. */
static unsigned count_up_to(const struct flyt_session_region *self, uint64_t offset_bytes)
{
    unsigned low = 0, high = self->lock_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (self->locks[middle].offset_bytes <= offset_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_of_region(const struct flyt_session_region *self, uint32_t region_id, uint64_t offset_bytes,
                         uint64_t bytes)
{
    return self && region_id == self->region.id && bytes && offset_bytes <= self->region.bytes &&
           bytes <= self->region.bytes - offset_bytes;
}

/* The node bounds what all servers of a VM take together, by their control group; no session locks more than that. */
static bool is_within_bound(const struct flyt_session_region *self, uint64_t bytes)
{
    return self->locked_bytes <= self->locked_bytes_max && bytes <= self->locked_bytes_max - self->locked_bytes;
}

static int make_room(struct flyt_session_region *self)
{
    if (self->lock_count >= FLYT_REGION_LOCKS_MAX)
        return -ENOMEM;
    if (self->lock_count < self->lock_capacity)
        return 0;
    unsigned capacity = self->lock_capacity ? 2 * self->lock_capacity : 64;
    struct flyt_region_lock *locks = realloc(self->locks, capacity * sizeof *locks);
    if (!locks)
        return -ENOMEM;
    self->locks = locks;
    self->lock_capacity = capacity;
    return 0;
}

int flyt_session_region_add(struct flyt_session *session, uint32_t region_id, uint64_t offset_bytes, uint64_t bytes)
{
    struct flyt_session_region *self = session->region;
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    if (!is_of_region(self, region_id, offset_bytes, bytes) || offset_bytes % page_bytes || bytes % page_bytes ||
        (self->region.is_vm && offset_bytes < FLYT_REGION_HEAD_BYTES))
        return -EINVAL;
    const unsigned at = count_up_to(self, offset_bytes);
    const struct flyt_region_lock *before = at ? &self->locks[at - 1] : NULL;
    const struct flyt_region_lock *behind = at < self->lock_count ? &self->locks[at] : NULL;
    if ((before && offset_bytes - before->offset_bytes < before->bytes) ||
        (behind && behind->offset_bytes - offset_bytes < bytes))
        return -EINVAL;
    int status = is_within_bound(self, bytes) ? make_room(self) : -ENOMEM;
    if (!status && self->region.is_vm)
        status = flyt_claim(self->region.claims_fd, offset_bytes, bytes);
    if (status)
        return status;
    self->locked_bytes += bytes;
    memmove(&self->locks[at + 1], &self->locks[at], (self->lock_count - at) * sizeof *self->locks);
    self->locks[at] = (struct flyt_region_lock){.offset_bytes = offset_bytes, .bytes = bytes};
    self->lock_count++;
    return 0;
}

struct flyt_region_lock *flyt_session_region_find(struct flyt_session *session, uint32_t region_id,
                                                  uint64_t offset_bytes, uint64_t bytes)
{
    struct flyt_session_region *self = session->region;
    const unsigned at = is_of_region(self, region_id, offset_bytes, bytes) ? count_up_to(self, offset_bytes) : 0;
    struct flyt_region_lock *lock = at ? &self->locks[at - 1] : NULL;
    return lock && lock->offset_bytes == offset_bytes && lock->bytes == bytes ? lock : NULL;
}

void flyt_session_region_remove(struct flyt_session *session, uint64_t offset_bytes)
{
    struct flyt_session_region *self = session->region;
    const unsigned at = count_up_to(self, offset_bytes);
    if (!at || self->locks[at - 1].offset_bytes != offset_bytes)
        return;
    self->locked_bytes -= self->locks[at - 1].bytes;
    memmove(&self->locks[at - 1], &self->locks[at], (self->lock_count - at) * sizeof *self->locks);
    self->lock_count--;
}

void flyt_session_region_release(struct flyt_session *session, uint64_t offset_bytes)
{
    const struct flyt_session_region *self = session->region;
    const unsigned at = count_up_to(self, offset_bytes);
    if (at && self->locks[at - 1].offset_bytes == offset_bytes && self->region.is_vm)
        flyt_unclaim(self->region.claims_fd, offset_bytes, self->locks[at - 1].bytes);
    flyt_session_region_remove(session, offset_bytes);
}

char *flyt_session_region_place(const struct flyt_session *session, uint32_t region_id,
                                const struct flyt_region_span *span)
{
    const struct flyt_session_region *self = session->region;
    uint64_t bytes;
    if (!flyt_region_span_bytes(span, &bytes) || !is_of_region(self, region_id, span->offset_bytes, bytes))
        return NULL;
    const unsigned at = count_up_to(self, span->offset_bytes);
    const struct flyt_region_lock *lock = at ? &self->locks[at - 1] : NULL;
    if (!lock || !lock->is_usable || span->offset_bytes - lock->offset_bytes > lock->bytes ||
        bytes > lock->bytes - (span->offset_bytes - lock->offset_bytes))
        return NULL;
    return self->region.base + span->offset_bytes;
}
