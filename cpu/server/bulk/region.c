#include "cpu/server/bulk/region.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/server/core/device.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "rpc/base/claims.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/ledger.h"
#include "rpc/base/log.h"
#include "rpc/transport/manager_link.h"
#include "rpc/transport/region_offer.h"

/* The next server has a VM's file itself. */
static int open_region(int fd, bool is_vm, struct flyt_session_region *ret_region)
{
    ret_region->fd = is_vm ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (!is_vm && ret_region->fd < 0)
        return -errno;
    int status = is_vm ? flyt_region_map_vm(fd, &ret_region->region) : flyt_region_map(fd, &ret_region->region);
    if (status)
        ret_region->fd = flyt_close(ret_region->fd);
    return status;
}

/* The session has none. */
static int make(struct flyt_session *session, int fd, bool is_vm)
{
    struct flyt_session_region *self = calloc(1, sizeof *self);
    if (!self)
        return -ENOMEM;
    int status = open_region(fd, is_vm, self);
    if (status) {
        free(self);
        return status;
    }
    const char *most = getenv(FLYT_LOCKED_MEMORY);
    self->locked_bytes_max = most ? strtoull(most, NULL, 10) : UINT64_MAX;
    session->region = self;
    return 0;
}

/* ---- the VM's ledger ---- */

/* Of the session there are to be so many bytes more than are locked. 0; -ENOMEM: beyond what its VM may have. */
static int charge(struct flyt_session *session, uint64_t bytes)
{
    struct flyt_session_region *self = session->region;
    const uint64_t wanted_bytes = self->locked_bytes + bytes;
    if (!session->locked_ledger || wanted_bytes <= self->charged_bytes)
        return 0;
    if (flyt_ledger_charge(session->locked_ledger, session->session_id, wanted_bytes - self->charged_bytes))
        return -ENOMEM;
    self->charged_bytes = wanted_bytes;
    return 0;
}

/* Not while the session comes: what it had elsewhere it is about to lock here. */
static void discharge(struct flyt_session *session)
{
    struct flyt_session_region *self = session->region;
    if (self->is_ahead || self->charged_bytes <= self->locked_bytes || session->resume.state != FLYT_RESUME_NONE)
        return;
    flyt_ledger_release(session->locked_ledger, session->session_id, self->charged_bytes - self->locked_bytes);
    self->charged_bytes = self->locked_bytes;
}

/* Its client has brought it, and nobody else charges the session now. What is locked already is, whatever the limit. */
static void take_charge(struct flyt_session *session)
{
    if (!session->locked_ledger)
        return;
    session->region->charged_bytes = flyt_ledger_charged(session->locked_ledger, session->session_id);
    charge(session, 0);
}

/* ---- its client's ---- */

static void drop_ahead(struct flyt_session *session);

static int take(struct flyt_session *session, int fd, bool is_vm)
{
    struct flyt_session_region *self = session->region;
    const bool is_here = self && flyt_region_is_of(&self->region, fd); /* ahead, or its client comes back */
    int status = 0;
    if (is_here && self->is_ahead)
        session->resume.steps.locked_ahead_count = self->lock_count;
    if (is_here)
        self->is_ahead = false;
    else if (self && !self->is_ahead)
        return -EEXIST;
    if (!is_here) {
        drop_ahead(session);
        status = make(session, fd, is_vm);
    }
    if (!status)
        take_charge(session);
    return status;
}

int flyt_session_region_take(struct flyt_session *session, int fd)
{
    return take(session, fd, false);
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

static int guard_region(struct flyt_session *session)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART};
    if (guard.session)
        return 0;
    guard.session = session;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &guard.before)) {
        guard.session = NULL;
        return -errno;
    }
    return 0;
}

int flyt_session_region_take_vm(struct flyt_session *session)
{
    int status = take(session, session->vm_memory_fds[0], true);
    return status ? status : guard_region(session);
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
    flyt_close(self->fd);
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
    return self && !self->is_ahead && region_id == self->region.id && bytes && offset_bytes <= self->region.bytes &&
           bytes <= self->region.bytes - offset_bytes;
}

/* Of the session; the VM's sessions together have a ledger, and control groups where the machine has them. */
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

/* Whether locks can be there, whoever says so. */
static bool is_whole_pages(const struct flyt_region *region, uint64_t offset_bytes, uint64_t bytes)
{
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    return bytes && !(offset_bytes % page_bytes) && !(bytes % page_bytes) && offset_bytes <= region->bytes &&
           bytes <= region->bytes - offset_bytes && !(region->is_vm && offset_bytes < FLYT_REGION_HEAD_BYTES);
}

/* is_ahead: it is locked where the session is, and charged and claimed there. */
static int note(struct flyt_session *session, uint64_t offset_bytes, uint64_t bytes, bool is_ahead)
{
    struct flyt_session_region *self = session->region;
    if (!is_whole_pages(&self->region, offset_bytes, bytes))
        return -EINVAL;
    const unsigned at = count_up_to(self, offset_bytes);
    const struct flyt_region_lock *before = at ? &self->locks[at - 1] : NULL;
    const struct flyt_region_lock *behind = at < self->lock_count ? &self->locks[at] : NULL;
    if ((before && offset_bytes - before->offset_bytes < before->bytes) ||
        (behind && behind->offset_bytes - offset_bytes < bytes))
        return -EINVAL;
    int status = is_within_bound(self, bytes) ? make_room(self) : -ENOMEM;
    if (!status && self->region.is_vm && !is_ahead)
        status = flyt_claim(self->region.claims_fd, offset_bytes, bytes);
    if (status)
        return status;
    if (!is_ahead && charge(session, bytes)) {
        /* What the session's server before has locked stays claimed for it, too: both have one description. */
        if (self->region.is_vm && session->resume.state == FLYT_RESUME_NONE)
            flyt_unclaim(self->region.claims_fd, offset_bytes, bytes);
        return -ENOMEM;
    }
    self->locked_bytes += bytes;
    memmove(&self->locks[at + 1], &self->locks[at], (self->lock_count - at) * sizeof *self->locks);
    self->locks[at] = (struct flyt_region_lock){.offset_bytes = offset_bytes, .bytes = bytes};
    self->lock_count++;
    return 0;
}

int flyt_session_region_add(struct flyt_session *session, uint32_t region_id, uint64_t offset_bytes, uint64_t bytes)
{
    if (!is_of_region(session->region, region_id, offset_bytes, bytes))
        return -EINVAL;
    return note(session, offset_bytes, bytes, false);
}

/* The note that begins there; NULL: none does. */
static struct flyt_region_lock *lock_at(const struct flyt_session_region *self, uint64_t offset_bytes)
{
    const unsigned at = count_up_to(self, offset_bytes);
    return at && self->locks[at - 1].offset_bytes == offset_bytes ? &self->locks[at - 1] : NULL;
}

struct flyt_region_lock *flyt_session_region_find(struct flyt_session *session, uint32_t region_id,
                                                  uint64_t offset_bytes, uint64_t bytes)
{
    if (!is_of_region(session->region, region_id, offset_bytes, bytes))
        return NULL;
    struct flyt_region_lock *lock = lock_at(session->region, offset_bytes);
    return lock && lock->bytes == bytes ? lock : NULL;
}

void flyt_session_region_remove(struct flyt_session *session, uint64_t offset_bytes)
{
    struct flyt_session_region *self = session->region;
    struct flyt_region_lock *lock = lock_at(self, offset_bytes);
    if (!lock)
        return;
    self->locked_bytes -= lock->bytes;
    memmove(lock, lock + 1, (size_t)(&self->locks[--self->lock_count] - lock) * sizeof *lock);
    discharge(session);
}

void flyt_session_region_release(struct flyt_session *session, uint64_t offset_bytes)
{
    const struct flyt_session_region *self = session->region;
    const struct flyt_region_lock *lock = lock_at(self, offset_bytes);
    if (lock && self->region.is_vm)
        flyt_unclaim(self->region.claims_fd, offset_bytes, lock->bytes);
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

/* ---- locking ---- */

CUresult flyt_session_region_register(const struct flyt_session *session, uint64_t offset_bytes, uint64_t bytes)
{
    CUresult result = session->driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS)
        result = session->driver->cuMemHostRegister(session->region->region.base + offset_bytes, bytes,
                                                    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    return result;
}

CUresult flyt_session_region_unregister(const struct flyt_session *session, uint64_t offset_bytes)
{
    CUresult result = session->driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result == CUDA_SUCCESS)
        result = session->driver->cuMemHostUnregister(session->region->region.base + offset_bytes);
    return result;
}

/* What a reservation has: nobody's pages. */
static void map_nothing(void *address, uint64_t bytes)
{
    if (mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        flyt_warn("page-locked memory is not unmapped bytes=%llu: %m", (unsigned long long)bytes);
}

/* On the submission thread, whose context is another one from then on. */
static CUresult enter_primary(struct flyt_session *session)
{
    session->current_device = NULL;
    return session->driver->cuCtxSetCurrent(session->devices[0].cu_primary);
}

CUresult flyt_session_region_map_again(struct flyt_session *session, uint64_t offset_bytes, uint64_t bytes,
                                       uint64_t address)
{
    void *wanted = (void *)(uintptr_t)address; /* NOLINT: a fixed place is the point */
    CUresult result = enter_primary(session);
    if (result != CUDA_SUCCESS)
        return result;
    if (flyt_region_map_again(&session->region->region, offset_bytes, bytes, address))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        result = session->driver->cuMemHostRegister(wanted, bytes,
                                                    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result != CUDA_SUCCESS)
        map_nothing(wanted, bytes);
    return result;
}

CUresult flyt_session_region_unmap_again(struct flyt_session *session, uint64_t address, uint64_t bytes)
{
    void *wanted = (void *)(uintptr_t)address; /* NOLINT: as above */
    CUresult result = enter_primary(session);
    if (result == CUDA_SUCCESS)
        result = session->driver->cuMemHostUnregister(wanted);
    if (result == CUDA_SUCCESS)
        map_nothing(wanted, bytes);
    return result;
}

/* ---- ahead of its client ---- */

/* A VM's pages are claimed already, by the server that has them locked: for all servers of the session, which have one
 * open description. So they are neither claimed here nor given up: that server may have locked them anew meanwhile. */
static bool lock_one_ahead(struct flyt_session *session, const struct flyt_manager_link_piece *piece)
{
    if (note(session, piece->offset_bytes, piece->bytes, true))
        return false;
    CUresult result = flyt_session_region_register(session, piece->offset_bytes, piece->bytes);
    if (result == CUDA_SUCCESS)
        lock_at(session->region, piece->offset_bytes)->is_usable = true;
    else
        flyt_session_region_remove(session, piece->offset_bytes);
    return result == CUDA_SUCCESS;
}

/* What the driver does not let go of stays noted, so that it is not taken for what is locked. */
static void unlock_one_ahead(struct flyt_session *session, struct flyt_region_lock *lock)
{
    const uint64_t offset_bytes = lock->offset_bytes;
    lock->is_usable = false;
    session->current_device = NULL; /* the submission thread's context is another one from here on */
    if (flyt_session_region_unregister(session, offset_bytes) == CUDA_SUCCESS)
        flyt_session_region_remove(session, offset_bytes);
    else
        flyt_warn("page-locked memory of a session that is to go on here is not unlocked bytes=%llu",
                  (unsigned long long)lock->bytes);
}

static void unlock_ahead(struct flyt_session *session, const struct flyt_manager_link_piece *piece)
{
    struct flyt_region_lock *lock = session->region ? lock_at(session->region, piece->offset_bytes) : NULL;
    if (lock && lock->bytes == piece->bytes)
        unlock_one_ahead(session, lock);
}

/* Nothing of it is used. */
static void drop_ahead(struct flyt_session *session)
{
    for (unsigned i = session->region ? session->region->lock_count : 0; i-- > 0;)
        unlock_one_ahead(session, &session->region->locks[i]);
    flyt_session_region_fini(session);
}

static int open_ahead(struct flyt_session *session, int fd)
{
    const bool is_vm = fd < 0;
    if (is_vm && !session->has_vm_memory)
        return -ENXIO;
    int status = session->region ? 0 : make(session, is_vm ? session->vm_memory_fds[0] : fd, is_vm);
    if (!status && is_vm)
        status = guard_region(session);
    if (!status)
        session->region->is_ahead = true;
    return status;
}

void flyt_session_region_lock_ahead(struct flyt_session *session, const struct flyt_manager_link_locks *locks,
                                    const struct flyt_manager_link_piece *pieces, int fd,
                                    struct flyt_manager_link_locks_done *ret_done)
{
    const uint64_t until_ms = flyt_clock_ms() + FLYT_REGION_AHEAD_MS;
    struct flyt_manager_link_locks_done done = {0};
    int status = locks->is_gone || !locks->piece_count ? 0 : open_ahead(session, fd);
    if (status)
        flyt_info("page-locked memory of a session that is to go on here is not locked ahead: %s", strerror(-status));
    for (unsigned i = 0; i < locks->piece_count; i++) {
        if (locks->is_gone) {
            unlock_ahead(session, &pieces[i]);
        } else if (!status && pieces[i].bytes <= FLYT_REGION_AHEAD_PIECE_BYTES_MAX && flyt_clock_ms() < until_ms &&
                   lock_one_ahead(session, &pieces[i])) {
            done.locked_count++;
            done.locked_bytes += pieces[i].bytes;
        } else {
            done.missed_count++;
        }
    }
    flyt_debug("page-locked memory ahead of its client locked=%u missed=%u unlocked=%u", done.locked_count,
               done.missed_count, locks->is_gone ? locks->piece_count : 0);
    *ret_done = done;
}

void flyt_session_region_resumed(struct flyt_session *session)
{
    struct flyt_ledger *ledger = session->locked_ledger;
    if (session->region && !session->region->is_ahead)
        discharge(session);
    else if (ledger)
        flyt_ledger_release(ledger, session->session_id, flyt_ledger_charged(ledger, session->session_id));
}

bool flyt_session_region_settle(struct flyt_session *session)
{
    const struct flyt_session_region *self = session->region;
    if (!self || !self->is_ahead || session->resume.state != FLYT_RESUME_NONE)
        return false;
    unsigned left = self->lock_count;
    while (left && !self->locks[left - 1].is_usable)
        left--; /* the driver does not let go of it */
    if (left)
        unlock_one_ahead(session, &self->locks[left - 1]);
    else if (!self->lock_count)
        flyt_session_region_fini(session);
    return left != 0;
}
