#include "cpu/server/move/out/save.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "cpu/image/writer.h"
#include "cpu/server/bulk/region.h"
#include "cpu/server/move/out/copying.h"
#include "cpu/server/move/common/counts.h"
#include "cpu/server/core/event.h"
#include "cpu/server/move/out/libraries.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/move/out/save_array.h"
#include "cpu/server/move/out/save_head.h"
#include "cpu/server/move/out/scan.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/settings.h"
#include "cpu/server/move/common/state.h"
#include "cpu/server/core/stream.h"
#include "flyt.h"
#include "flyt_signatures.h"
#include "rpc/base/build_name.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

/* ---- what the program has shown to have ---- */

void flyt_save_note_asked(struct flyt_library *library, const char *name)
{
    int64_t place = flyt_image_symbols_find(&library->code.symbols, name);
    if (place >= 0)
        library->is_asked[place] = true;
    else
        library->session->save->is_any = true;
}

void flyt_save_note_used(struct flyt_session *session, uint64_t address)
{
    struct flyt_save *self = session->save;
    for (unsigned i = 0; i < self->used_count; i++)
        if (self->used[i] == address)
            return;
    if (self->used_count < FLYT_SAVE_USED_MAX)
        self->used[self->used_count++] = address;
    else
        self->is_any = true;
}

static int check_library(void *user, uint64_t number, void *object)
{
    const struct flyt_library *library = object;
    struct flyt_error *err = user;
    if (library->code.symbols_status)
        flyt_error_set(err, -ENOTSUP, "the variables of a library cannot be told from its image: %s",
                       strerror(-library->code.symbols_status));
    return err->code != 0;
}

int flyt_save_check(struct flyt_session *session, struct flyt_error *err)
{
    *err = (struct flyt_error){0};
    flyt_objects_each(&session->objects, FLYT_OBJECTS_LIBRARY, check_library, err);
    return err->code ? err->code : flyt_save_array_check(session, err);
}

/* ---- the state ---- */

enum { PIECE_BYTES = FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX, PLACES_FIRST = 64 };

/* A variable on one device; its place in `places` is the same. */
struct variable {
    const struct flyt_library *library;
    const struct flyt_image_symbol *symbol;
    struct flyt_device *device;
};

struct saved_event {
    struct flyt_event *event;
    double before_ms; /* so long before its device's `now` it was reached, where it has a fence with a time */
};

struct save {
    struct flyt_session *session;
    struct flyt_error *err;
    struct flyt_library **libraries;
    size_t library_count;
    struct variable *variables;
    struct flyt_scan_place *places;
    uint32_t variable_count, room;
    uint32_t lock_count; /* of locked pages of the program's region, whose places are behind the variables' */
    struct saved_event *events;
    size_t event_count;
    struct flyt_resume_base now[FLYT_DEVICES_MAX]; /* where some event of the device has a time */
    struct flyt_checkpoint_writer *writer;
    unsigned char *piece; /* PIECE_BYTES */
};

static int no_memory(const struct save *self)
{
    return flyt_error_set(self->err, -ENOMEM, "out of host memory");
}

static int driver_failed(const struct save *self, const char *what, CUresult result)
{
    flyt_session_check(self->session, result);
    return flyt_error_set(self->err, -EIO, "%s, cuda_result=%d", what, (int)result);
}

/* ---- variables and constants ---- */

/* Room for one more variable or place. */
static int make_room(struct save *self)
{
    if (self->variable_count + self->lock_count < self->room)
        return 0;
    uint32_t room = self->room ? 2 * self->room : PLACES_FIRST;
    struct variable *variables = reallocarray(self->variables, room, sizeof *variables);
    if (variables)
        self->variables = variables;
    struct flyt_scan_place *places = reallocarray(self->places, room, sizeof *places);
    if (places)
        self->places = places;
    if (!variables || !places)
        return no_memory(self);
    self->room = room;
    return 0;
}

static int add_variable(struct save *self, const struct variable *variable, uint64_t address, uint64_t bytes)
{
    int status = make_room(self);
    if (status)
        return status;
    if (self->variable_count == FLYT_IMAGE_SYMBOLS_MAX)
        return flyt_error_set(self->err, -ENOTSUP, "its libraries have more than %d variables", FLYT_IMAGE_SYMBOLS_MAX);
    self->variables[self->variable_count] = *variable;
    self->places[self->variable_count++] = (struct flyt_scan_place){address, bytes, false};
    return 0;
}

/* Whether the library has variables on the device: it is put there when it is first used there. */
static bool is_on(const struct flyt_library *library, const struct flyt_device *device)
{
    return device->is_made && (!device->ordinal || !device->ledger || library->reserved_mask >> device->ordinal & 1);
}

static int find_variables_of(struct save *self, struct flyt_library *library, struct flyt_device *device)
{
    const struct flyt_driver *driver = self->session->driver;
    CUresult result = flyt_device_use(device);
    int status = 0;
    for (uint32_t i = 0; i < library->code.symbols.count && result == CUDA_SUCCESS && !status; i++) {
        const struct variable variable = {library, &library->code.symbols.items[i], device};
        CUdeviceptr address = 0;
        size_t bytes = 0;
        result = driver->cuLibraryGetGlobal(&address, &bytes, library->cu_library, variable.symbol->name);
        if (result == CUDA_ERROR_NOT_FOUND) { /* nothing uses it, and it has no place */
            result = CUDA_SUCCESS;
            continue;
        }
        if (result == CUDA_SUCCESS)
            status = add_variable(self, &variable, address, bytes);
    }
    if (result != CUDA_SUCCESS)
        return driver_failed(self, "the address of a variable cannot be had", result);
    return status;
}

static int find_variables(struct save *self)
{
    struct flyt_session *session = self->session;
    int status = 0;
    for (size_t i = 0; i < self->library_count && !status; i++) {
        struct flyt_library *library = self->libraries[i];
        for (unsigned k = 0; k < session->device_count && !status; k++)
            if (is_on(library, &session->devices[k]))
                status = find_variables_of(self, library, &session->devices[k]);
    }
    return status;
}

/* All memory of the session on a device: its extents, other sessions' that it has, and the variables themselves, which
 * may point to each other. */
static int list_memory(const struct save *self, const struct flyt_device *device, struct flyt_scan_range **ret_ranges,
                       uint32_t *ret_count)
{
    uint32_t count = 0;
    struct flyt_scan_range *ranges = calloc(
        (size_t)device->memory->extent_count + device->memory->import_count + self->variable_count + 1, sizeof *ranges);
    if (!ranges)
        return no_memory(self);
    for (const struct flyt_extent *extent = device->memory->extents; extent; extent = extent->next)
        ranges[count++] = (struct flyt_scan_range){extent->address, extent->bytes};
    for (const struct flyt_extent *extent = device->memory->imports; extent; extent = extent->next)
        ranges[count++] = (struct flyt_scan_range){extent->address, extent->bytes};
    for (uint32_t i = 0; i < self->variable_count; i++)
        if (self->variables[i].device == device)
            ranges[count++] = (struct flyt_scan_range){self->places[i].address, self->places[i].bytes};
    *ret_ranges = ranges;
    *ret_count = count;
    return 0;
}

/* What the program has shown to have. */
static void mark_known(struct save *self)
{
    const struct flyt_save *known = self->session->save;
    for (uint32_t i = 0; i < self->variable_count; i++) {
        const struct variable *variable = &self->variables[i];
        const struct flyt_library *library = variable->library;
        struct flyt_scan_place *place = &self->places[i];
        place->is_referenced = known->is_any || library->is_asked[variable->symbol - library->code.symbols.items];
        for (unsigned k = 0; k < known->used_count; k++) /* that of its end, too */
            place->is_referenced |= known->used[k] >= place->address && known->used[k] - place->address <= place->bytes;
    }
}

/* Host memory of the program's that kernels can reach, and of which nobody has said yet that they may have addresses.
 */
static int find_locks(struct save *self)
{
    const struct flyt_session_region *region = self->session->region;
    int status = 0;
    if (!flyt_session_region_is_mapped(self->session) || region->is_reached)
        return 0;
    for (unsigned i = 0; i < region->lock_count && !status; i++) {
        const struct flyt_region_lock *lock = &region->locks[i];
        status = lock->is_usable ? make_room(self) : 0;
        if (lock->is_usable && !status)
            self->places[self->variable_count + self->lock_count++] = (struct flyt_scan_place){
                (uint64_t)(uintptr_t)region->region.base + lock->offset_bytes, lock->bytes, false};
    }
    return status;
}

static void note_reached(const struct save *self)
{
    const struct flyt_scan_place *locks = self->places + self->variable_count;
    for (uint32_t i = 0; i < self->lock_count; i++)
        if (locks[i].is_referenced)
            self->session->region->is_reached = true;
}

/* Which variables' addresses the program may have, and whether its kernels may have some of its host memory. */
static int find_references(struct save *self)
{
    struct flyt_session *session = self->session;
    int status = 0;
    mark_known(self);
    uint32_t known_count = session->save->is_any ? self->variable_count : 0;
    struct flyt_scan_place *places = self->places + known_count;
    uint32_t place_count = self->variable_count + self->lock_count - known_count;
    for (unsigned i = 0; i < session->device_count && place_count && !status; i++) {
        struct flyt_device *device = &session->devices[i];
        struct flyt_scan_range *ranges = NULL;
        uint32_t count = 0;
        if (!device->is_made)
            continue;
        status = list_memory(self, device, &ranges, &count);
        if (status)
            return status;
        CUresult result = flyt_device_use(device);
        if (result == CUDA_SUCCESS)
            result = flyt_scan(session->driver, device->cu_device, ranges, count, places, place_count,
                               device->partition->sm_count, device->legacy->cu_stream);
        free(ranges);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            status = flyt_error_set(self->err, -ENOMEM, "there is no memory for looking for addresses");
        else if (result != CUDA_SUCCESS)
            status = driver_failed(self, "the memory cannot be searched for addresses", result);
    }
    note_reached(self);
    return status;
}

static int put_variable(struct save *self, const struct variable *variable, const struct flyt_scan_place *place)
{
    const struct flyt_driver *driver = self->session->driver;
    CUstream cu_stream = variable->device->legacy->cu_stream;
    uint64_t done = 0;
    flyt_checkpoint_global global = {.symbol = variable->symbol->name,
                                     .is_constant = variable->symbol->is_constant,
                                     .address = place->is_referenced ? place->address : 0,
                                     .total_bytes = place->bytes};
    u_quad_t module_id = 0;
    if (!flyt_state_module_id(variable->library->object.id, variable->device->ordinal, (uint64_t *)&module_id))
        return flyt_error_set(self->err, -ENOTSUP, "a library's number is too large");
    global.module_id = module_id;
    CUresult result = flyt_device_use(variable->device);
    do {
        uint64_t bytes = place->bytes - done < PIECE_BYTES ? place->bytes - done : PIECE_BYTES;
        if (result == CUDA_SUCCESS && bytes) {
            result = driver->cuMemcpyDtoHAsync(self->piece, place->address + done, bytes, cu_stream);
            CUresult waited = driver->cuStreamSynchronize(cu_stream);
            result = result == CUDA_SUCCESS ? waited : result;
        }
        if (result != CUDA_SUCCESS)
            return driver_failed(self, "the contents of a variable cannot be copied", result);
        global.offset_bytes = done;
        int status = flyt_checkpoint_put_global(self->writer, &global, self->piece, bytes, self->err);
        if (status)
            return status;
        done += bytes;
    } while (done < place->bytes);
    return 0;
}

/* ---- events ---- */

static int count_event(void *user, uint64_t number, void *object)
{
    ++*(size_t *)user;
    return 0;
}

static int list_event(void *user, uint64_t number, void *object)
{
    struct save *self = user;
    struct flyt_event *event = object;
    if (event->fence || event->origin != FLYT_EVENT_HERE)
        self->events[self->event_count++].event = event;
    return 0;
}

static bool has_fence_with_time(const struct flyt_event *event)
{
    return event->has_timing && event->fence && event->fence->is_recorded;
}

/* A fence now, and the session's clock then; of a session that has gone on here, the one with which events of before
 * are compared: what is between them stays as the program was told. */
static CUresult mark_now(struct flyt_device *device, struct flyt_resume_base *now)
{
    if (device->base.fence) {
        now->fence = flyt_fence_ref(device->base.fence);
        now->time_ns = device->base.time_ns;
        return CUDA_SUCCESS;
    }
    CUresult result = flyt_device_use(device);
    return result == CUDA_SUCCESS ? flyt_resume_mark(device, now) : result;
}

static int compare_time(const void *left, const void *right)
{
    const struct saved_event *a = left, *b = right;
    return a->before_ms < b->before_ms ? -1 : a->before_ms > b->before_ms;
}

/*
 * The latest first. cuEventElapsedTime has 24 bits, so that two times that are far back, each taken from now, would not
 * tell what was between them: each is taken from the one behind it.
 */
static CUresult chain_times(struct save *self)
{
    const struct saved_event *later[FLYT_DEVICES_MAX] = {NULL};
    CUresult result = CUDA_SUCCESS;
    qsort(self->events, self->event_count, sizeof *self->events, compare_time);
    for (size_t i = 0; i < self->event_count && result == CUDA_SUCCESS; i++) {
        struct saved_event *saved = &self->events[i];
        unsigned ordinal = saved->event->device->ordinal;
        float ms;
        if (!has_fence_with_time(saved->event))
            continue;
        if (later[ordinal]) {
            result = self->session->driver->cuEventElapsedTime(&ms, saved->event->fence->cu_event,
                                                               later[ordinal]->event->fence->cu_event);
            if (result == CUDA_SUCCESS)
                saved->before_ms = later[ordinal]->before_ms + (double)ms;
        }
        later[ordinal] = saved;
    }
    return result;
}

static CUresult measure(struct save *self)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < self->event_count && result == CUDA_SUCCESS; i++) {
        struct saved_event *saved = &self->events[i];
        struct flyt_resume_base *now = &self->now[saved->event->device->ordinal];
        float ms;
        if (!has_fence_with_time(saved->event))
            continue;
        if (!now->fence)
            result = mark_now(saved->event->device, now);
        if (result == CUDA_SUCCESS)
            result =
                self->session->driver->cuEventElapsedTime(&ms, now->fence->cu_event, saved->event->fence->cu_event);
        if (result == CUDA_SUCCESS)
            saved->before_ms = -(double)ms;
    }
    return result == CUDA_SUCCESS ? chain_times(self) : result;
}

static int find_events(struct save *self)
{
    size_t count = 0;
    flyt_objects_each(&self->session->objects, FLYT_OBJECTS_EVENT, count_event, &count);
    self->events = calloc(count + 1, sizeof *self->events);
    if (!self->events)
        return no_memory(self);
    flyt_objects_each(&self->session->objects, FLYT_OBJECTS_EVENT, list_event, self);
    CUresult result = measure(self);
    return result == CUDA_SUCCESS ? 0 : driver_failed(self, "the times of events cannot be had", result);
}

static int put_event(struct save *self, uint64_t number, const struct saved_event *saved)
{
    const struct flyt_event *event = saved->event;
    struct flyt_state_event state = {.event_id = event->object.id};
    unsigned char bytes[FLYT_STATE_EVENT_BYTES];
    if (has_fence_with_time(event)) {
        state.has_time = true;
        state.time_ns = self->now[event->device->ordinal].time_ns - (uint64_t)(int64_t)(saved->before_ms * 1e6);
    } else if (event->origin == FLYT_EVENT_RESTORED_WITH_TIME) {
        state.has_time = true;
        state.time_ns = event->time_ns;
    }
    flyt_state_event_put(&state, bytes);
    const flyt_checkpoint_object object = {.number = number,
                                           .kind = FLYT_CHECKPOINT_EVENT,
                                           .value = {.value_len = sizeof bytes, .value_val = (char *)bytes}};
    return flyt_checkpoint_put_object(self->writer, &object, self->err);
}

/* ---- the image ---- */

static int begin_image(struct save *self, int fd)
{
    struct flyt_session *session = self->session;
    const struct flyt_page_key *key = flyt_copying_hash_key(session);
    struct flyt_save_head head;
    int status = flyt_save_head(session, &head, self->err);
    head.head.page_hash = key ? FLYT_PAGE_HASH_VERSION : 0;
    if (!status)
        status = flyt_checkpoint_writer_new(fd, "the session's state", &head.head, FLYT_CHECKPOINT_PACK_NOT,
                                            &self->writer, self->err);
    for (unsigned i = 0; i < session->device_count && !status; i++)
        status = flyt_checkpoint_put_slot(self->writer, i, 0, self->err);
    if (!status && key)
        status = flyt_checkpoint_put_hash_key(self->writer, key, self->err);
    return status ? status : flyt_checkpoint_put_round(self->writer, self->err);
}

static int write_image(struct save *self, int fd, uint64_t sequence)
{
    const flyt_checkpoint_sequence numbers = {sequence, sequence, sequence};
    flyt_checkpoint_counts counts;
    flyt_checkpoint_settings settings;
    flyt_checkpoint_tallies tallies;
    uint64_t object_number = self->event_count + 1;
    int status = begin_image(self, fd);
    for (size_t i = 0; i < self->event_count && !status; i++)
        status = put_event(self, i + 1, &self->events[i]);
    if (!status)
        status = flyt_save_arrays(self->session, self->writer, self->piece, &object_number, self->err);
    for (uint32_t i = 0; i < self->variable_count && !status; i++)
        status = put_variable(self, &self->variables[i], &self->places[i]);
    if (!status && flyt_copying_hash_key(self->session))
        status = flyt_copying_put_hashes(self->session, self->writer, self->err);
    if (!status)
        status = flyt_checkpoint_put_sequence(self->writer, &numbers, self->err);
    if (!status)
        status = flyt_checkpoint_put_stopped(self->writer, flyt_execution_error_count(self->session), self->err);
    flyt_counts_take(self->session, &counts, &tallies);
    if (!status)
        status = flyt_checkpoint_put_counts(self->writer, &counts, self->err);
    flyt_settings_take(self->session, &settings);
    if (!status)
        status = flyt_checkpoint_put_settings(self->writer, &settings, self->err);
    if (!status)
        status = flyt_checkpoint_put_tallies(self->writer, &tallies, self->err);
    return status ? status : flyt_checkpoint_put_end(self->writer, self->err);
}

static int gather(struct save *self)
{
    self->piece = malloc(PIECE_BYTES);
    if (!self->piece || flyt_save_list_libraries(self->session, &self->libraries, &self->library_count) != 0)
        return no_memory(self);
    int status = flyt_save_check(self->session, self->err);
    if (!status)
        status = find_variables(self);
    if (!status)
        status = find_locks(self);
    if (!status)
        status = find_references(self);
    return status ? status : find_events(self);
}

static void end(struct save *self)
{
    flyt_checkpoint_writer_free(self->writer);
    for (unsigned i = 0; i < FLYT_DEVICES_MAX; i++)
        flyt_fence_unref(self->now[i].fence);
    free(self->libraries);
    free(self->variables);
    free(self->places);
    free(self->events);
    free(self->piece);
}

int flyt_save_state(struct flyt_session *session, uint64_t sequence, struct flyt_error *err)
{
    struct save self = {.session = session, .err = err};
    if (flyt_fault_point("state.save") == FLYT_FAULT_ERROR)
        return flyt_error_set(err, -EIO, "the state is not saved: a test wants that");
    int fd = memfd_create("flyt-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return flyt_error_set(err, -errno, "no memory file for the session's state: %m");
    int status = gather(&self);
    if (!status)
        status = write_image(&self, fd, sequence);
    if (!status && (lseek(fd, 0, SEEK_SET) != 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0))
        status = flyt_error_set(err, -errno, "the session's state cannot be sealed: %m");
    if (!status)
        flyt_debug("session %s: its state is saved, variables=%u events=%zu bytes=%llu", session->label,
                   self.variable_count, self.event_count,
                   (unsigned long long)flyt_checkpoint_writer_bytes(self.writer));
    end(&self);
    if (!status)
        return fd;
    flyt_close(fd);
    return status;
}
